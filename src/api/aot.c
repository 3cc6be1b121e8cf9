/* A model as a C file of its own: kernels, weights, a plan of its memory, and one function that runs it.
 *
 * The model is traced for the arguments at hand, as a program does, but each cut is run by the reference interpreter: no compiler is needed, and the
 * instruction set may be another machine's. Then the segments are planned and their kernels printed as for a run (segment.c), and aot_step.c writes the
 * launches down as C. For "auto" all this happens once for each instruction set; the sets share the weights. */
#include "api/aot.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text and names ---------------------------------------------------------------------------------------------------------------------- */
void aot_line(Aot *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = arena_alloc(x->a, (size_t)n + 2);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    if (s[0] == '}') x->indent--;
    if (s[0] != '#') for (int i = 0; i < x->indent; i++) text_put(x->t, "    ", 4);
    text_add(x->t, "%s\n", s);
}

/* What C, the header and the file's own functions have for names. */
static bool is_taken(const char *s)
{
    static const char *const words[] = { "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if",
        "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile",
        "while", "bool", "true", "false", "class", "new", "this", "delete", "template", "private", "public", "operator", "and", "or", "not", "xor", "weights", "threads" };
    for (size_t i = 0; i < COUNT_OF(words); i++) if (!strcmp(words[i], s)) return true;
    return false;
}

const char *aot_identifier(Aot *x, const char *name, const char *prefix)
{
    char *s = arena_str(x->a, name);
    for (char *p = s; *p; p++) if (!isalnum((unsigned char)*p)) *p = '_';
    if (strlen(s) > 60) s[60] = 0;
    if (!s[0] || !isalpha((unsigned char)s[0]) || is_taken(s)) return arena_fmt(x->a, "%s_%s", prefix, s);
    return s;
}

static const char **member_names(Aot *x, int n, const char *(*name)(Aot *, int), const char *prefix)
{
    const char **r = NEWS(x->a, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        r[i] = aot_identifier(x, name(x, i), prefix);
        for (int k = 0; k < i; k++) if (!strcmp(r[k], r[i])) { r[i] = arena_fmt(x->a, "%s_%d", r[i], i); k = -1; }
    }
    return r;
}

/* ---- weights and memory ------------------------------------------------------------------------------------------------------------------ */
typedef struct BlobPart { int64_t at; size_t n; uint64_t hash; } BlobPart;
typedef struct BlobKey { const Aot *x; const void *data; size_t n; uint64_t hash; } BlobKey;
static bool blob_same(const void *item, const void *key)
{
    const BlobPart *p = item;
    const BlobKey *k = key;
    return p->n == k->n && p->hash == k->hash && !memcmp(k->x->weights.at + p->at, k->data, k->n);
}

int64_t aot_weight(Aot *x, const void *data, size_t n)
{
    AotBlob *b = &x->weights;
    BlobKey key = { x, data, n, hash_bytes(data, n, 0) };
    BlobPart *p = set_get(&b->known, key.hash, blob_same, &key);
    if (p) return p->at;
    size_t align = n >= 64 ? 64 : 16, at = (b->n + align - 1) & ~(align - 1);
    if (at + n > b->cap) {
        size_t cap = b->cap ? b->cap : 1 << 16;
        while (cap < at + n) cap *= 2;
        uint8_t *more = arena_alloc(x->a, cap);
        if (b->n) memcpy(more, b->at, b->n);
        b->at = more;
        b->cap = cap;
    }
    if (n) memcpy(b->at + at, data, n);
    b->n = at + n;
    p = NEW(x->a, BlobPart);
    *p = (BlobPart){ (int64_t)at, n, key.hash };
    set_put(x->a, &b->known, key.hash, p);
    return p->at;
}

int64_t aot_keep(Aot *x, int64_t bytes)
{
    int64_t at = x->keep;
    x->keep += (bytes + 63) & ~(int64_t)63;
    return at;
}

/* ---- tracing ----------------------------------------------------------------------------------------------------------------------------- */
typedef struct AotTrace { Aot *x; const Tensor *in; AotStep *first, **last; } AotTrace;

static AotStep *trace_step(AotTrace *t, Graph *g)
{
    AotStep *s = NEW(t->x->a, AotStep);
    s->g = g; s->in = t->in;
    s->most = NEWS(t->x->a, int64_t, g->sym.n + 1);
    *t->last = s;
    t->last = &s->next;
    return s;
}

static AotStep *trace_graph(Ctx *cx, Aot *x, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, Tensor *result);

/* Runs a body by the interpreter and keeps one trace for each set of arguments that the earlier ones do not serve. */
typedef struct BodyTrace { Aot *x; AotStep *step; int64_t trips; } BodyTrace;

static bool body_serves(Ctx *cx, Arena *a, const AotBody *b, const Tensor *args)
{
    const Graph *g = b->step->g;
    for (int i = 0; i < g->input.n; i++) {
        const Node *n = g->input.at[i].node;
        if (n->dt != args[i].dt || n->rank != args[i].rank) return false;
        for (int k = 0; k < n->rank; k++) if (dim_is_const(n->dims[k]) && n->dims[k]->c != args[i].dims[k]) return false;
    }
    const char *why;
    int64_t *syms = NEWS(a, int64_t, g->sym.n + 1);
    if (b->step->next || !host_bind(cx, a, g, args, syms, &why)) return false;
    for (int k = 0; k < g->sym.n; k++) if (syms[k] > b->step->most[k]) b->step->most[k] = syms[k];
    return true;
}

static void body_sizes(AotBody *b, const Tensor *args, const Tensor *result)
{
    for (int i = 0; i < b->narg + b->nresult; i++) {
        const Tensor *t = i < b->narg ? &args[i] : &result[i - b->narg];
        for (int k = 0; k < t->rank; k++) {
            if (t->dims[k] < b->least[i][k]) b->least[i][k] = t->dims[k];
            if (t->dims[k] > b->most[i][k]) b->most[i][k] = t->dims[k];
        }
    }
}

static void body_trace(void *self, Ctx *cx, Arena *a, const BodyCall *c, const Tensor *args, Tensor *out)
{
    BodyTrace *t = self;
    t->trips++;
    for (AotBody *b = t->step->body; b; b = b->next)
        if (body_serves(cx, a, b, args)) {
            interp_segment(cx, a, b->step->g, args, out);
            body_sizes(b, args, out);
            return;
        }
    AotBody *b = NEW(t->x->a, AotBody), **at = &t->step->body;
    Tensor *kept = arena_copy(t->x->a, args, sizeof *args * (size_t)(c->body->nin + c->ncapture));
    b->narg = c->body->nin + c->ncapture;
    b->args = kept;
    b->step = trace_graph(cx, t->x, c->body, c->ncapture, c->capture, args, out);
    b->nresult = c->body->nout;
    b->result = arena_copy(t->x->a, out, sizeof *out * (size_t)b->nresult);
    size_t each = sizeof *b->most;
    b->least = arena_alloc(t->x->a, each * (size_t)(b->narg + b->nresult + 1));
    b->most = arena_alloc(t->x->a, each * (size_t)(b->narg + b->nresult + 1));
    for (int i = 0; i < b->narg + b->nresult; i++) for (int k = 0; k < MAX_RANK; k++) b->least[i][k] = INT64_MAX;
    body_sizes(b, args, out);
    while (*at) at = &(*at)->next;
    *at = b;
}

static void aot_cut(void *self, Ctx *cx, const Cut *cut, Tensor *out)
{
    AotTrace *t = self;
    Arena *a = t->x->a;
    AotStep *s = trace_step(t, cut->g);
    int n = cut->g->output.n;
    memset(out, 0, sizeof *out * (size_t)(n + (cut->call ? cut->call->nout : 0)));
    interp_segment(cx, a, cut->g, t->in, out);
    if (cut->call) {
        const Call *c = s->call = cut->call;
        int *from = NEWS(a, int, c->nin + 1);
        Tensor *in = NEWS(a, Tensor, c->nin + 1);
        for (int i = 0; i < c->nin; i++) in[i] = out[from[i] = cut->call_in[i]];
        s->call_in = from;
        for (int i = 0; i < c->nout; i++) out[n + i].dt = c->out_dt[i];
        BodyTrace b = { t->x, s, 0 };
        if (c->def == &loop_call || c->def == &scan_call) control_run(cx, a, c, in, out + n, body_trace, &b);
        else c->def->eval(cx, a, c, in, out + n);
        s->trips = b.trips;
    }
    s->out = out;
    t->in = out;
}

/* The steps of a graph. result: its outputs' values where somebody needs them, else NULL. */
static AotStep *trace_graph(Ctx *cx, Aot *x, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, Tensor *result)
{
    AotTrace t = { x, args, NULL, NULL };
    t.last = &t.first;
    TraceHost host = { &t, aot_cut, &loop_call, &scan_call };
    Graph *last = onnx_import(cx, x->a, x->m, g, ncapture, capture, args, &host);
    trace_step(&t, last);
    if (result) interp_segment(cx, x->a, last, t.in, result);
    return t.first;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------------------- */
AotValue *aot_steps(Aot *x, const AotStep *step, const AotValue *in, AotValue *last)
{
    for (const AotStep *s = step; s; s = s->next) {
        int n = s->g->output.n, m = s->call ? s->call->nout : 0;
        AotValue *out = s->next ? NEWS(x->a, AotValue, n + m + 1) : last;
        aot_segment(x, s, in, out);
        if (!s->next) return out;
        for (int i = 0; i < n + m; i++) out[i].example = &s->out[i];
        if (s->call) {
            AotValue *arg = NEWS(x->a, AotValue, s->call->nin + 1);
            for (int i = 0; i < s->call->nin; i++) arg[i] = out[s->call_in[i]];
            for (int i = 0; i < m; i++) { out[n + i].dt = s->call->out_dt[i]; out[n + i].rank = s->out[n + i].rank; }
            aot_host_call(x, s, arg, out + n);
        }
        in = out;
    }
    return NULL;
}

static int64_t range_lo(const Aot *x, const char *sym, const char *input, int axis)
{
    for (int i = 0; i < x->o->nrange; i++) {
        const char *n = x->o->range[i].name;
        if ((sym && !strcmp(n, sym)) || !strcmp(n, arena_fmt(x->a, "%s:%d", input, axis))) return x->o->range[i].lo;
    }
    return -1;
}

/* The inputs of the main graph: sizes that may vary become parameters. */
static AotValue *main_inputs(Aot *x, const Graph *g)
{
    AotValue *v = NEWS(x->a, AotValue, x->narg + 1);
    for (int i = 0; i < x->narg; i++) {
        const Node *n = g->input.at[i].node;
        v[i] = (AotValue){ .ptr = arena_fmt(x->a, "in->%s", x->in_name[i]), .dt = n->dt, .rank = n->rank, .example = &x->args[i], .pinned = true };
        for (int k = 0; k < n->rank; k++) {
            int64_t hint = x->args[i].dims[k], lo;
            v[i].lo[k] = v[i].hi[k] = hint;
            v[i].dim[k] = arena_fmt(x->a, "%" PRId64, hint);
            if (n->dims[k]->kind != DIM_sym) continue;
            const char *sym = g->sym.at[n->dims[k]->var].name;
            int p = 0;
            while (p < x->param.n && strcmp(x->param.at[p].name, sym)) p++;
            if (p == x->param.n) {
                lo = range_lo(x, sym, g->input.at[i].name, k);
                if (lo < 0) continue;
                if (lo < 1 || lo > hint) fail(x->cx, E_INVALID, "the dimension '%s' is to be %" PRId64 " to %" PRId64 "; wanted 1 at least, and the smaller number first", sym, lo, hint);
                AotParam q = { sym, aot_identifier(x, sym, "size"), lo, hint };
                for (int j = 0; j < x->narg; j++) if (!strcmp(q.var, x->in_name[j])) q.var = arena_fmt(x->a, "size_%s", q.var);
                vec_push(x->a, &x->param, q);
            }
            x->in_dims[i][k] = p + 1;
            v[i].lo[k] = x->param.at[p].lo;
            v[i].dim[k] = arena_fmt(x->a, "in->%s", x->param.at[p].var);
        }
    }
    return v;
}

/* ---- one instruction set ----------------------------------------------------------------------------------------------------------------- */
typedef struct AotSet { const char *isa, *suffix; Text helpers, kernels, run; int64_t workspace; int nkernel; } AotSet;

static int name_length(const char *s)
{
    int n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

/* Is a name used behind `s`, before the block around ends? */
static bool used_in_block(const char *s, const char *name, int n)
{
    for (int depth = 0; *s && depth >= 0;) {
        int m = name_length(s);
        if (m == n && !memcmp(s, name, (size_t)n)) return true;
        depth += *s == '{' ? 1 : *s == '}' ? -1 : 0;
        s += m ? m : 1;
    }
    return false;
}

/* A kernel without the constants that nothing reads, which compilers warn about. */
static const char *without_unused(Aot *x, const char *code)
{
    for (bool again = true; again;) {
        again = false;
        Text t = { .arena = x->a };
        for (const char *s = code; *s;) {
            const char *e = strchr(s, '\n'), *d = s + strspn(s, " ");
            size_t n = e ? (size_t)(e - s) + 1 : strlen(s), put = n;
            if (!strncmp(d, "const ", 6)) {
                const char *name = d + 6 + name_length(d + 6);
                while (*name == ' ' || *name == '*') name++;
                if (!strncmp(name, "const ", 6)) name += 6;
                for (const char *next; name && name < s + n; name = next) {      /* "const i64 a = 1, b = 2;" declares two */
                    int len = name_length(name), depth = 0;
                    next = NULL;
                    for (const char *q = name + len; q < s + n && !next; q++) {
                        depth += *q == '(' || *q == '{' || *q == '[' ? 1 : *q == ')' || *q == '}' || *q == ']' ? -1 : 0;
                        if (!depth && *q == ',' && q[1] == ' ' && name_length(q + 2) && !strncmp(q + 2 + name_length(q + 2), " = ", 3)) next = q + 2;
                    }
                    if (strncmp(name + len, " = ", 3) || used_in_block(name + len, name, len)) continue;
                    if (!next && name[-2] != ',') put = 0;
                    else if (!next) { text_put(&t, s, (size_t)(name - 2 - s)); text_add(&t, ";\n"); put = 0; again = true; break; }
                    again = again || put == 0;
                }
            }
            if (put) text_put(&t, s, put);
            s += n;
        }
        code = t.at;
    }
    return code;
}

static void print_set(Ctx *cx, Aot *x, AotSet *set, Device *device)
{
    Arena *a = x->a;
    Text body = { .arena = a };
    x->kernel = NULL; x->last_kernel = &x->kernel;
    x->arena = x->keep = x->scratch = 0;
    x->nvar = 0;
    x->miss = arena_fmt(a, "return %s_SIZES", x->upper);
    x->suffix = set->suffix;
    x->target = (Target){ .name = "cpu", .dialect = &dialect_c, .api = &dev_cpu, .device = device, .isa = set->isa, .vectors = gen_c_vectors(set->isa), .prelude = gen_c_prelude(a, set->isa), .rules = target_rules(cx, a, &cx->opt), .ahead = true };
    x->helpers = gen_c_helpers(cx, a, set->isa, set->suffix);
    AotStep *first = trace_graph(cx, x, x->m->graph, 0, NULL, x->args, NULL);
    x->t = &body;
    x->indent = 1;
    AotValue *in = main_inputs(x, first->g), *out = NEWS(a, AotValue, x->m->graph->nout + 1);
    for (int i = 0; i < x->m->graph->nout; i++) out[i].ptr = arena_fmt(a, "out->%s", x->out_name[i]);
    x->result = aot_steps(x, first, in, out);
    for (int i = 0; i < x->m->graph->nout; i++) {
        const AotValue *v = &x->result[i];
        Text dims = { .arena = a };
        for (int k = 0; k < v->rank; k++)
            if (aot_varies(v)) text_add(&dims, " out->%s_dims[%d] = %s;", x->out_name[i], k, v->dim[k]);
        if (dims.n) aot_line(x, "if (out->%s_dims) {%s }", x->out_name[i], dims.at);
    }
    for (AotKernel *k = x->kernel; k; k = k->next) {
        k->text = without_unused(x, k->text);
        static const char *const parameter[] = { "scratch", "err", "arg", "buf" };
        const char *brace = strstr(k->text, "{\n");
        text_add(&set->kernels, "\n/* %s */\n", k->ops.at);
        const char *head = strstr(k->text, "void k_");
        text_put(&set->kernels, k->text, (size_t)(head - k->text));
        text_add(&set->kernels, "static ");
        size_t name = strlen("void ") + strlen(k->name);
        text_put(&set->kernels, head, name);
        text_add(&set->kernels, "%s", set->suffix);
        text_put(&set->kernels, head + name, (size_t)(brace + 2 - head) - name);
        for (size_t i = 0; i < COUNT_OF(parameter); i++) {
            bool used = false;
            size_t n = strlen(parameter[i]);
            for (const char *s = brace; !used && (s = strstr(s, parameter[i])); s++)
                used = !isalnum((unsigned char)s[n]) && s[n] != '_' && !isalnum((unsigned char)s[-1]) && s[-1] != '_';
            if (!used) text_add(&set->kernels, "    (void)%s;\n", parameter[i]);
        }
        text_add(&set->kernels, "%s", brace + 2);
        if (set->kernels.at[set->kernels.n - 1] != '\n') text_add(&set->kernels, "\n");
        set->nkernel++;
    }
    int64_t arena = (x->arena + 63) & ~(int64_t)63;
    set->workspace = arena + x->keep + x->scratch * x->o->threads;
    gen_c_helpers_print(x->helpers, &set->helpers);
    text_add(&set->run, "\nstatic int run%s(const %s_inputs *in, const %s_outputs *out, unsigned char *ws)\n{\n", set->suffix, x->lower, x->lower);
    bool uses_weights = strstr(body.at ? body.at : "", "weights +") != NULL;
    if (x->o->weights == AOT_POINTER && uses_weights) text_add(&set->run, "    const unsigned char *const weights = in->weights;\n");
    if (x->keep) text_add(&set->run, "    unsigned char *const keep = ws + %" PRId64 ";\n", arena);
    if (x->o->threads > 1) text_add(&set->run, "    const struct scratch scratch = { ws + %" PRId64 ", %" PRId64 " };\n", arena + x->keep, x->scratch);
    else text_add(&set->run, "    void *const scratch = ws + %" PRId64 ";\n", arena + x->keep);
    text_add(&set->run, "    i64 err[4] = { 0 };\n    (void)in, (void)out, (void)ws, (void)scratch, (void)err;\n");
    text_put(&set->run, body.at ? body.at : "", body.n);
    text_add(&set->run, "    return %s_OK;\n}\n", x->upper);
}

typedef struct Opening { const char *isa; Device *device; Aot *x; AotSet *set; } Opening;

static void guarded_set(Ctx *cx, void *arg)
{
    Opening *o = arg;
    print_set(cx, o->x, o->set, o->device);
}

/* With the device at hand, where this machine has the instruction set: what is computed once is computed as a program would. */
static void make_set(Ctx *cx, Aot *x, AotSet *set)
{
    RtError e = { .launch = -1 };
    Options opt = cx->opt;
    Opening o = { set->isa, NULL, x, set };
    opt.isa = set->isa;
    if (dev_cpu.open(&o.device, &opt, &e) != E_OK) o.device = NULL;
    Status st = guard_call(cx, guarded_set, &o);
    for (int i = 0; i < x->segment.n; i++) segment_free(x->segment.at[i]);
    x->segment.n = 0;
    if (o.device) dev_cpu.close(o.device);
    if (st != E_OK) fail_again(cx);
}

/* ---- the file ---------------------------------------------------------------------------------------------------------------------------- */
static void print_weights(Aot *x, const char *runs, Text *t)
{
    const AotBlob *b = &x->weights;
    if (x->o->weights == AOT_POINTER || !strstr(runs, "weights +")) return;
    if (x->o->weights == AOT_BIN) {
        text_add(t, "\n/* the weights: %s, found by the assembler in the current folder or by -I */\n"
            "__asm__(\".pushsection .rodata\\n.balign 64\\n%s_weights_at:\\n.incbin \\\"%s\\\"\\n.popsection\\n\");\n"
            "extern const unsigned char %s_weights_at[] __attribute__((visibility(\"hidden\")));\n#define weights %s_weights_at\n", x->o->bin, x->lower, x->o->bin, x->lower, x->lower);
        return;
    }
    text_add(t, "\nstatic const _Alignas(64) u64 weight_words[] = {");
    char word[32];
    for (size_t i = 0; i < b->n; i += 8) {
        uint64_t v = 0;
        memcpy(&v, b->at + i, b->n - i < 8 ? b->n - i : 8);
        int n = snprintf(word, sizeof word, "%s0x%" PRIx64 ",", i % 64 ? "" : "\n", v);
        text_put(t, word, (size_t)n);
    }
    text_add(t, "%s\n};\n#define weights ((const unsigned char *)weight_words)\n", b->n ? "" : "0");
}

static const char file_types[] =
    "typedef float f32; typedef double f64;\n"
    "typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;\n"
    "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;\n";

static const struct { const char *name, *text; } file_sizes[] = {      /* of sizes that are known when it runs; each may use those above it */
    { "size_div(", "static inline i64 size_div(i64 a, i64 b) { return b <= 0 ? 0 : a / b - (a % b < 0); }" },
    { "size_mod(", "static inline i64 size_mod(i64 a, i64 b) { return b <= 0 ? 0 : a - (a / b - (a % b < 0)) * b; }" },
    { "size_min(", "static inline i64 size_min(i64 a, i64 b) { return a < b ? a : b; }" },
    { "part_of(", "static inline i64 part_of(i64 work, i64 total) { return work < 60000 || total < 1 ? total : 20000 / (work / total + 1) + 1; }" },
    { "size_max(", "static inline i64 size_max(i64 a, i64 b) { return a > b ? a : b; }" },
};

static const char file_threads[] =
    "\n/* ---- threads: the parts of a kernel, each with scratch memory of its own ---- */\n"
    "typedef void kernel(void *const *buf, const i64 *arg, void *scratch, i64 lo, i64 hi, i64 *err);\n"
    "struct scratch { unsigned char *at; i64 each; };\n"
    "struct job { kernel *fn; void *const *buf; const i64 *arg; struct scratch scratch; i64 *err; };\n"
    "static void part(void *job, int64_t lo, int64_t hi, int slot) { const struct job *j = job; j->fn(j->buf, j->arg, j->scratch.at + slot * j->scratch.each, lo, hi, j->err); }\n"
    "static void launch(const @_threads *t, kernel *fn, void *const *buf, const i64 *arg, struct scratch s, i64 total, i64 grain, i64 *err)\n"
    "{\n"
    "    struct job j = { fn, buf, arg, s, err };\n"
    "    if (!t || grain >= total) fn(buf, arg, s.at, 0, total, err);\n"
    "    else t->run(t->self, part, &j, total, grain);\n"
    "}\n";

static void put_named(Text *t, const char *s, const char *name)
{
    for (const char *at; (at = strchr(s, '@')); s = at + 1) { text_put(t, s, (size_t)(at - s)); text_add(t, "%s", name); }
    text_add(t, "%s", s);
}

static void print_source(Aot *x, AotSet *set, int nset, int64_t workspace, Text *t)
{
    const AotOptions *o = x->o;
    text_add(t, "/* %s, made by sinter %s%s%s\n *\n", x->lower, SINTER_VERSION, o->command ? ": " : "", o->command ? aot_comment(x, o->command) : "");
    text_add(t, " * Compile: cc -std=c11 -O2 -fwrapv -c %s.c%s\n", x->lower, o->weights == AOT_BIN ? "   (with the file of weights in the current folder, or its folder as -I)" : "");
    text_add(t, " * A program that reads and writes .npy files: cc -std=c11 -O2 -fwrapv -DMODEL_MAIN %s.c -lm -o %s\n", x->lower, x->lower);
    const bool vectors = strcmp(set[nset - 1].isa, "plain") != 0;
    if (vectors) text_add(t, " * gcc notes that GCC 4.6 changed how large vectors are passed; they go between functions of this file only: -Wno-psabi.\n");
    text_add(t, " * Memory: %" PRId64 " bytes from the caller, %zu bytes of weights; no other. */\n", workspace, x->weights.n);
    text_add(t, "#include \"%s.h\"\n\n#include <string.h>\n\n", x->lower);
    text_add(t, "#if defined __BYTE_ORDER__ && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n#error \"this file is for little-endian machines\"\n#endif\n"
        "/* sums and products are rounded apart, and integers wrap; clang takes the latter from -fwrapv only */\n"
        "#if defined __clang__\n#pragma STDC FP_CONTRACT OFF\n#elif defined __GNUC__\n#pragma GCC optimize(\"fp-contract=off\", \"wrapv\", \"no-math-errno\", \"no-trapping-math\")\n#endif\n"
        "#define UNROLL _Pragma(\"GCC unroll 24\")\n");
    if (vectors)
        text_add(t, "#ifdef __GNUC__\n#pragma GCC diagnostic ignored \"-Wpsabi\"\n#endif\n");
    text_add(t, "\n");
    text_put(t, file_types, strlen(file_types));
    Text runs = { .arena = x->a };
    for (int i = 0; i < nset; i++) text_put(&runs, set[i].run.at, set[i].run.n);
    for (size_t i = 0; i < COUNT_OF(file_sizes); i++) if (strstr(runs.at, file_sizes[i].name)) text_add(t, "%s\n", file_sizes[i].text);
    for (int i = 0; i < nset; i++) {
        text_add(t, "\n/* ---- %s: functions that the kernels use ---- */\n", set[i].isa);
        text_put(t, set[i].helpers.at ? set[i].helpers.at : "", set[i].helpers.n);
        text_add(t, "\n/* ---- %s: kernels. buf: operands and results; arg: sizes; [lo, hi): the part to compute ---- */\n", set[i].isa);
        text_put(t, set[i].kernels.at ? set[i].kernels.at : "", set[i].kernels.n);
    }
    print_weights(x, runs.at, t);
    if (o->threads > 1) put_named(t, file_threads, x->lower);
    text_add(t, "%s", aot_call_text(x->cx, x->a, runs.at));
    text_add(t, "\n/* ---- the model: ws is the caller's memory ---- */");
    text_put(t, runs.at, runs.n);
    text_add(t, "\nint %s_run(const %s_inputs *in, %s_outputs *out, void *workspace)\n{\n", x->lower, x->lower, x->lower);
    for (int i = 0; i < x->param.n; i++) {
        const AotParam *p = &x->param.at[i];
        text_add(t, "    if (in->%s < %" PRId64 " || in->%s > %" PRId64 ") return %s_SIZES;\n", p->var, p->lo, p->var, p->hi, x->upper);
    }
    if (nset == 1) text_add(t, "    return run%s(in, out, workspace);\n", set[0].suffix);
    for (int i = nset - 1; i >= 0 && nset > 1; i--) {
        Text test = { .arena = x->a };
        const char *feature = isa_find(set[i].isa)->features;
        for (size_t n = 0; *feature; feature += n + (feature[n] == ',')) {
            n = strcspn(feature, ",");
            if (strncmp(feature, "f16c", n)) text_add(&test, "%s__builtin_cpu_supports(\"%.*s\")", test.n ? " && " : "", (int)n, feature);      /* avx2 has f16c; older compilers don't know the word here */
        }
        if (i) text_add(t, "    if (%s) return run%s(in, out, workspace);\n", test.at, set[i].suffix);
        else text_add(t, "    return run%s(in, out, workspace);\n", set[0].suffix);
    }
    text_add(t, "}\n");
    aot_tail(x, t);
}

static const char *input_name(Aot *x, int i) { int n; return model_inputs(x->a, x->m, &n)[i]->name; }
static const char *output_name(Aot *x, int i) { return x->m->graph->out[i].name; }

static void fill_ports(Aot *x, AotFiles *f)
{
    int n;
    const OnnxValue **iv = model_inputs(x->a, x->m, &n);
    AotPort *in = NEWS(x->a, AotPort, n + 1), *out = NEWS(x->a, AotPort, x->m->graph->nout + 1);
    AotSize *size = NEWS(x->a, AotSize, x->param.n + 1);
    for (int i = 0; i < x->param.n; i++) size[i] = (AotSize){ x->param.at[i].name, x->param.at[i].lo, x->param.at[i].hi };
    for (int i = 0; i < n; i++) {
        in[i] = (AotPort){ .name = iv[i]->name, .dt = x->args[i].dt, .rank = x->args[i].rank, .bytes = (int64_t)tensor_bytes(&x->args[i]) };
        for (int k = 0; k < in[i].rank; k++) {
            in[i].dims[k] = x->args[i].dims[k];
            for (int p = 0; p < x->param.n; p++) if (x->in_dims[i][k] == p + 1) in[i].dims[k] = ~(int64_t)p;
        }
    }
    for (int i = 0; i < x->m->graph->nout; i++) {
        const AotValue *v = &x->result[i];
        out[i] = (AotPort){ .name = x->m->graph->out[i].name, .dt = v->dt, .rank = v->rank, .bytes = aot_bytes(v) };
        for (int k = 0; k < v->rank; k++) out[i].dims[k] = v->lo[k] == v->hi[k] ? v->lo[k] : -1;
    }
    f->nin = n; f->nout = x->m->graph->nout; f->nsize = x->param.n;
    f->in = in; f->out = out; f->size = size;
}

void aot_compile(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *args, const AotOptions *o, AotFiles *out)
{
    static const char *const every[] = { "plain", "avx2", "avx512", "avx512vnni" };
    Aot *x = NEW(a, Aot);
    *x = (Aot){ .cx = cx, .a = a, .m = m, .o = o, .args = args };
    model_inputs(a, m, &x->narg);
    x->in_dims = arena_alloc(a, sizeof *x->in_dims * (size_t)(x->narg + 1));
    x->lower = o->name;
    char *upper = arena_str(a, o->name);
    for (char *p = upper; *p; p++) *p = (char)toupper((unsigned char)*p);
    x->upper = upper;
    x->in_name = member_names(x, x->narg, input_name, "in");
    x->out_name = member_names(x, m->graph->nout, output_name, "out");
    bool all = !strcmp(o->isa, "auto");
    if (!all && !isa_find(o->isa)) fail(cx, E_INVALID, "there is no instruction set '%s'; wanted auto"
#define ISA(name, machine, level, lanes, dots, features, macros) ", " name
#include "base/isas.def"
#undef ISA
                                         , o->isa);
    int nset = all ? (int)COUNT_OF(every) : 1;
    AotSet *set = NEWS(a, AotSet, nset);
    int64_t workspace = 0;
    for (int i = 0; i < nset; i++) {
        set[i] = (AotSet){ .isa = all ? every[i] : o->isa, .suffix = all ? arena_fmt(a, "_%s", every[i]) : "", .helpers = { .arena = a }, .kernels = { .arena = a }, .run = { .arena = a } };
        make_set(cx, x, &set[i]);
        if (set[i].workspace > workspace) workspace = set[i].workspace;
        if (x->arena > out->arena) out->arena = x->arena;
        out->kernels = set[i].nkernel;
    }
    if (!workspace) workspace = 64;
    x->workspace = workspace;
    fill_ports(x, out);
    x->ports = out;
    Text source = { .arena = a }, header = { .arena = a };
    aot_header(x, &header);
    print_source(x, set, nset, workspace, &source);
    out->source = source.at; out->header = header.at;
    out->weights = x->weights.at; out->nweights = x->weights.n;
    out->workspace = workspace;
    out->any_isa = all || !strcmp(o->isa, "plain");
}
