/* One segment as C: its sizes as expressions, its guards as tests, its launches as calls of kernels.
 *
 * Each symbol of the segment's graph has bounds; where they are one number, everything that follows is a number. Memory is placed for the upper bounds
 * by the same function that places it for a run, so the file needs what the program needs. */
#include "api/aot.h"

#include <inttypes.h>
#include <string.h>

typedef struct AotSegment {
    Aot *x; Segment *s; Graph *g;
    const AotValue *in; AotValue *out;
    const char **sym; int64_t *lo, *hi;              /* of each symbol */
    int64_t *offset;                    /* of each node in the arena, or -1 */
    const char **dims;                  /* of each node of sizes: its variable */
} AotSegment;

/* ---- integers ---------------------------------------------------------------------------------------------------------------------------- */
typedef struct Span { int64_t lo, hi; } Span;

static int64_t clamp_mul(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
    return r;
}
static int64_t clamp_add(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return b > 0 ? INT64_MAX : INT64_MIN;
    return r;
}
static Span span_mul(Span a, Span b)
{
    int64_t v[4] = { clamp_mul(a.lo, b.lo), clamp_mul(a.lo, b.hi), clamp_mul(a.hi, b.lo), clamp_mul(a.hi, b.hi) };
    Span r = { v[0], v[0] };
    for (int i = 1; i < 4; i++) { if (v[i] < r.lo) r.lo = v[i]; if (v[i] > r.hi) r.hi = v[i]; }
    return r;
}
static int64_t span_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* The values that an expression can have, by interval arithmetic. */
static Span dim_span(const AotSegment *q, const Dim *d)
{
    switch (d->kind) {
    case DIM_sum: {
        Span r = { d->c, d->c };
        for (int k = 0; k < d->n; k++) {
            Span t = { d->term[k].coef, d->term[k].coef };
            for (int j = 0; j < d->term[k].n; j++) t = span_mul(t, dim_span(q, d->term[k].factor[j]));
            r = (Span){ clamp_add(r.lo, t.lo), clamp_add(r.hi, t.hi) };
        }
        return r;
    }
    case DIM_sym: return (Span){ q->lo[d->var], q->hi[d->var] };
    case DIM_idx: ASSERT(!"a variable"); break;
    case DIM_div: case DIM_mod: case DIM_min: case DIM_max: break;
    }
    Span a = dim_span(q, d->a), b = dim_span(q, d->b);
    if (d->kind == DIM_min) return (Span){ a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi };
    if (d->kind == DIM_max) return (Span){ a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi };
    if (a.lo == a.hi && b.lo == b.hi) {
        int64_t v = b.lo <= 0 ? 0 : d->kind == DIM_div ? span_div(a.lo, b.lo) : a.lo - span_div(a.lo, b.lo) * b.lo;
        return (Span){ v, v };
    }
    if (b.lo < 1) b.lo = 1;
    if (d->kind == DIM_mod) return (Span){ 0, a.lo >= 0 && a.hi < b.hi ? a.hi : b.hi - 1 };
    return (Span){ span_div(a.lo, a.lo < 0 ? b.lo : b.hi), span_div(a.hi, a.hi < 0 ? b.hi : b.lo) };
}

static const char *dim_c(const AotSegment *q, const Dim *d);
static const char *size_factor(const AotSegment *q, const Dim *d)
{
    const char *s = dim_c(q, d);
    return d->kind == DIM_sum || s[0] == '-' ? arena_fmt(q->x->a, "(%s)", s) : s;
}

/* An expression in C. */
static const char *dim_c(const AotSegment *q, const Dim *d)
{
    Arena *a = q->x->a;
    Span v = dim_span(q, d);
    if (v.lo == v.hi) return arena_fmt(a, "%" PRId64, v.lo);
    switch (d->kind) {
    case DIM_sum: {
        const char *r = NULL;
        for (int k = 0; k < d->n; k++) {
            int64_t c = d->term[k].coef;
            const char *t = c == 1 || c == -1 ? NULL : arena_fmt(a, "%" PRId64, c < 0 ? -c : c);
            for (int j = 0; j < d->term[k].n; j++) t = arena_fmt(a, "%s%s%s", t ? t : "", t ? " * " : "", size_factor(q, d->term[k].factor[j]));
            r = r ? arena_fmt(a, "%s %s %s", r, c < 0 ? "-" : "+", t) : c < 0 ? arena_fmt(a, "-%s", t) : t;
        }
        if (!d->c) return r;
        return arena_fmt(a, "%s %s %" PRId64, r, d->c < 0 ? "-" : "+", d->c < 0 ? -d->c : d->c);
    }
    case DIM_sym: return q->sym[d->var];
    case DIM_idx: break;
    case DIM_div: return arena_fmt(a, "size_div(%s, %s)", dim_c(q, d->a), dim_c(q, d->b));
    case DIM_mod: return arena_fmt(a, "size_mod(%s, %s)", dim_c(q, d->a), dim_c(q, d->b));
    case DIM_min: return arena_fmt(a, "size_min(%s, %s)", dim_c(q, d->a), dim_c(q, d->b));
    case DIM_max: return arena_fmt(a, "size_max(%s, %s)", dim_c(q, d->a), dim_c(q, d->b));
    }
    ASSERT(!"a variable");
    return "";
}

static AotValue node_value(const AotSegment *q, const Node *n, const char *ptr)
{
    AotValue v = { .ptr = ptr, .dt = n->dt, .rank = n->rank };
    for (int k = 0; k < n->rank; k++) {
        Span s = dim_span(q, n->dims[k]);
        v.dim[k] = dim_c(q, n->dims[k]); v.lo[k] = s.lo < 0 ? 0 : s.lo; v.hi[k] = s.hi;
    }
    return v;
}

int64_t aot_bytes(const AotValue *v)
{
    int64_t n = (int64_t)dtype_size(v->dt);
    for (int k = 0; k < v->rank; k++) n = v->hi[k] < 0 ? 0 : clamp_mul(n, v->hi[k]);
    return n > INT64_MAX / 4 ? -1 : n;
}

static const char *count_c(const AotSegment *q, const Node *n)
{
    const char *r = arena_fmt(q->x->a, "%zu", dtype_size(n->dt));
    bool fixed = true;
    int64_t v = (int64_t)dtype_size(n->dt);
    for (int k = 0; k < n->rank; k++) {
        Span s = dim_span(q, n->dims[k]);
        fixed = fixed && s.lo == s.hi;
        v = clamp_mul(v, s.hi);
        r = arena_fmt(q->x->a, "%s * (%s)", r, dim_c(q, n->dims[k]));
    }
    return fixed ? arena_fmt(q->x->a, "%" PRId64, v) : r;
}

/* ---- symbols and guards ------------------------------------------------------------------------------------------------------------------ */

/* An element of a small integer node as C, where it is computed from inputs by simple steps; else NULL. */
static const char *element_c(const AotSegment *q, const Node *n, int64_t e, int *steps)
{
    Arena *a = q->x->a;
    const char *l, *r;
    if (--*steps < 0) return NULL;
    switch (n->op) {
    case OP_input:
        if (!dtype_is_int(n->dt) && n->dt != DT_bool) return NULL;
        return arena_fmt(a, "(i64)((const %s *)(%s))[%" PRId64 "]", aot_ctype(n->dt), q->in[n->index].ptr, e);
    case OP_const: {
        if (!dtype_is_int(n->dt)) return NULL;
        return arena_fmt(a, "%" PRId64, scalar_load(n->dt, tensor_at(n->tensor, e)).i);
    }
    case OP_dims: return arena_fmt(a, "(%s)", dim_c(q, n->size[e]));
    case OP_cast:
        if (dtype_size(n->dt) < 8 || !dtype_is_int(n->dt)) return NULL;
        return element_c(q, n->in[0], e, steps);
    case OP_view: {
        int64_t var[MAX_RANK] = { 0 }, at = 0;
        for (int k = n->rank - 1; k >= 0; k--) {
            Span s = dim_span(q, n->dims[k]);
            if (s.lo != s.hi || s.lo < 1) return NULL;
            var[k] = e % s.lo;
            e /= s.lo;
        }
        if (n->view.npred) return NULL;
        for (int k = 0; k < n->view.nidx; k++) {
            Span s = dim_span(q, n->in[0]->dims[k]);
            if (s.lo != s.hi) return NULL;
            at = at * s.lo + dim_eval(n->view.idx[k], q->hi, var);
        }
        return element_c(q, n->in[0], at, steps);
    }
    case OP_add: case OP_sub: case OP_mul: case OP_max: case OP_min:
        if (n->dt != DT_i64 || !(l = element_c(q, n->in[0], e, steps)) || !(r = element_c(q, n->in[1], e, steps))) return NULL;
        if (n->op == OP_max || n->op == OP_min) return arena_fmt(a, "size_%s(%s, %s)", prim_info[n->op].name, l, r);
        return arena_fmt(a, "(%s %s %s)", l, n->op == OP_add ? "+" : n->op == OP_sub ? "-" : "*", r);
    default: return NULL;
    }
}

static const char *origin_name(const Graph *g, int origin)
{
    const Origin *o = &g->origin.at[origin];
    return arena_fmt(g->arena, "%s '%s'", o->op ? o->op : "", o->name ? o->name : "");
}

/* Marks the inputs whose data a value is computed from. False when one of them is not pinned. */
static bool leaves_pinned(const AotSegment *q, const Node *n, uint8_t *leaf, uint8_t *seen)
{
    if (seen[n->id]) return true;
    seen[n->id] = 1;
    if (n->op == OP_input) {
        leaf[n->index] = 1;
        return q->in[n->index].pinned && q->in[n->index].example && q->in[n->index].example->data;
    }
    bool all = true;
    for (int i = 0; i < n->nin; i++) all = leaves_pinned(q, n->in[i], leaf, seen) && all;
    return all;
}

static bool sizes_fixed(const AotSegment *q, const Node *n, uint8_t *seen)
{
    if (seen[n->id]) return true;
    seen[n->id] = 1;
    if (n->op == OP_dims) for (int64_t e = 0, m = n->rank ? dim_span(q, n->dims[0]).hi : 1; e < m; e++) {
        Span s = dim_span(q, n->size[e]);
        if (s.lo != s.hi) return false;
    }
    for (int i = 0; i < n->nin; i++) if (!sizes_fixed(q, n->in[i], seen)) return false;
    return true;
}

static void bind_symbols(AotSegment *q, const int64_t *met)
{
    Aot *x = q->x;
    Graph *g = q->g;
    uint8_t *leaf = NEWS(x->a, uint8_t, g->input.n + 1);
    for (int k = 0; k < g->sym.n; k++) {
        const Sym *s = &g->sym.at[k];
        if (s->from == SYM_input) {
            const AotValue *v = &q->in[s->input];
            q->sym[k] = v->dim[s->axis]; q->lo[k] = v->lo[s->axis]; q->hi[k] = v->hi[s->axis];
            continue;
        }
        uint8_t *seen = NEWS(x->a, uint8_t, g->node.n + 1), *own = NEWS(x->a, uint8_t, g->input.n + 1);
        bool pinned = leaves_pinned(q, s->node, own, seen);
        if (pinned) {
            memset(seen, 0, (size_t)g->node.n);
            if (!sizes_fixed(q, s->node, seen))
                fail(x->cx, E_UNSUPPORTED, "%s: a size follows from a dimension in a way that has no form in C yet; give each dimension one size", origin_name(g, s->node->origin));
            q->lo[k] = q->hi[k] = s->hint;
            q->sym[k] = arena_fmt(x->a, "%" PRId64, s->hint);
            for (int i = 0; i < g->input.n; i++) leaf[i] |= own[i];
            continue;
        }
        const char *e = element_c(q, s->node, s->elem, &(int){ 100 });
        if (!e) fail(x->cx, E_UNSUPPORTED, "%s: a size is computed from data in a way that has no form in C yet", origin_name(g, s->node->origin));
        if (s->hint < 1) {        /* the graph is for this value alone: graph_sym */
            q->lo[k] = q->hi[k] = s->hint;
            q->sym[k] = arena_fmt(x->a, "%" PRId64, s->hint);
            aot_line(x, "if (%s != %s) %s;", e, q->sym[k], x->miss);
            continue;
        }
        const char *var = arena_fmt(x->a, "size%d", x->nvar++);
        const int64_t most = met && met[k] > s->hint ? met[k] : s->hint;
        q->sym[k] = var; q->lo[k] = 0; q->hi[k] = most;
        aot_line(x, "const i64 %s = %s;", var, e);
        aot_line(x, "if (%s < 0 || %s > %" PRId64 ") %s;", var, var, most, x->miss);
    }
    for (int i = 0; i < g->input.n; i++) {
        if (!leaf[i]) continue;
        const Tensor *t = q->in[i].example;
        int64_t off = aot_weight(x, t->data, tensor_bytes(t));
        if (!tensor_bytes(t)) continue;
        aot_line(x, "if (memcmp(%s, weights + %" PRId64 ", %zu)) return %s_VALUES;", q->in[i].ptr, off, tensor_bytes(t), x->upper);
    }
}

/* 1: always, 0: never, -1: it depends. */
static int guard_known(Span a, Span b, char rel)
{
    bool apart = a.hi < b.lo || b.hi < a.lo, fixed = a.lo == a.hi && b.lo == b.hi;
    switch (rel) {
    case '=': return apart ? 0 : fixed ? 1 : -1;
    case '!': return apart ? 1 : fixed ? 0 : -1;
    case '<': return a.hi < b.lo ? 1 : a.lo >= b.hi ? 0 : -1;
    default: return a.lo >= b.hi ? 1 : a.hi < b.lo ? 0 : -1;
    }
}

static void print_guards(AotSegment *q)
{
    Aot *x = q->x;
    for (int i = 0; i < q->g->input.n; i++) {        /* sizes that the graph takes for fixed, or for the same */
        const Node *n = q->g->input.at[i].node;
        for (int k = 0; k < n->rank; k++) {
            const char *want = dim_c(q, n->dims[k]);
            if (strcmp(want, q->in[i].dim[k])) aot_line(x, "if (%s != %s) %s;", q->in[i].dim[k], want, x->miss);
        }
    }
    for (int k = 0; k < q->g->guard.n; k++) {
        const Guard *u = &q->g->guard.at[k];
        int known = guard_known(dim_span(q, u->a), dim_span(q, u->b), u->rel);
        if (known == 1) continue;
        if (known == 0) fail(x->cx, E_INVALID, "%s: the sizes never fit what the kernels are for (%s)", origin_name(q->g, u->origin), u->why ? u->why : "");
        const char *rel = u->rel == '=' ? "==" : u->rel == '!' ? "!=" : u->rel == '<' ? "<" : ">=";
        aot_line(x, "if (!(%s %s %s)) %s;", dim_c(q, u->a), rel, dim_c(q, u->b), x->miss);
    }
    for (int k = 0; k < q->s->limit.n; k++) {
        Span s = dim_span(q, q->s->limit.at[k]);
        if (s.lo > 0) continue;
        if (s.hi <= 0) fail(x->cx, E_UNSUPPORTED, "an axis without elements is indexed; that has no form in C");
        aot_line(x, "if (%s <= 0) %s;", dim_c(q, q->s->limit.at[k]), x->miss);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------------------ */
static void place_nodes(AotSegment *q)
{
    Aot *x = q->x;
    const Graph *g = q->g;
    int64_t *bytes = NEWS(x->a, int64_t, g->node.n + 1);
    q->offset = NEWS(x->a, int64_t, g->node.n + 1);
    for (int id = 0; id < g->node.n; id++) {
        const Node *n = g->node.at[id];
        bytes[id] = q->offset[id] = -1;
        if (!segment_in_arena(q->s, n)) continue;
        AotValue v = node_value(q, n, NULL);
        bytes[id] = aot_bytes(&v);
        if (bytes[id] < 0) fail(x->cx, E_NOMEM, "an intermediate result is larger than the address space");
    }
    int64_t all = segment_place(x->a, q->s, bytes, q->offset);
    if (all > x->arena) x->arena = all;
}

static int output_of(const AotSegment *q, const Node *n)
{
    for (int i = 0; i < q->g->output.n; i++) if (q->g->output.at[i].node == n) return i;
    return -1;
}

/* The address of a node's elements. */
static const char *node_ptr(AotSegment *q, const Node *n)
{
    Aot *x = q->x;
    AotValue v = node_value(q, n, NULL);
    if (n->op == OP_input) return arena_fmt(x->a, strchr(q->in[n->index].ptr, ' ') ? "(void *)(%s)" : "(void *)%s", q->in[n->index].ptr);
    if (q->s->fixed[n->id] || n->op == OP_const)
        return arena_fmt(x->a, "(void *)(weights + %" PRId64 ")", aot_weight(x, q->s->fixed[n->id] ? q->s->fixed[n->id] : n->tensor->data, (size_t)aot_bytes(&v)));
    if (n->op == OP_dims) {
        if (q->dims[n->id]) return arena_fmt(x->a, "(void *)%s", q->dims[n->id]);
        int64_t count = n->rank ? dim_span(q, n->dims[0]).hi : 1;
        const char *var = q->dims[n->id] = arena_fmt(x->a, "dims%d", x->nvar++);
        Text t = { .arena = x->a };
        for (int64_t i = 0; i < count; i++) text_add(&t, "%s%s", i ? ", " : "", dim_c(q, n->size[i]));
        aot_line(x, "const i64 %s[] = { %s };", var, count ? t.at : "0");
        return arena_fmt(x->a, "(void *)%s", var);
    }
    int out = output_of(q, n);
    if (out >= 0) return q->out[out].ptr;
    if (q->offset[n->id] < 0) fail(x->cx, E_INVALID, "%s: a result that no kernel writes", origin_name(q->g, n->origin));
    return q->offset[n->id] ? arena_fmt(x->a, "ws + %" PRId64, q->offset[n->id]) : "ws";
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------------------- */
static const char *kernel_ops(const AotSegment *q, const Part *p)
{
    static const char *const kind[SUB_COUNT] = { "elementwise", "rows", "contraction", "cascaded reductions", "running fold", "scatter", "call" };
    Text t = { .arena = q->x->a };
    text_add(&t, "%s", kind[p->sub->kind]);
    int last = -1, n = 0;
    for (int i = 0; i < p->sub->nnode && n < 12; i++) {
        const Origin *o = &q->g->origin.at[p->sub->node[i]->origin];
        if (p->sub->node[i]->origin == last || !o->op) continue;
        last = p->sub->node[i]->origin;
        text_add(&t, "%s%s '", n++ ? ", " : ": ", o->op);
        for (const char *s = o->name ? o->name : ""; *s; s++) {      /* a comment must not end early */
            bool ends = (s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*') || (unsigned char)*s < 32;
            text_put(&t, ends ? "_" : s, 1);
        }
        text_add(&t, "'");
    }
    return t.at;
}

static void note_kernel(Aot *x, const Part *p, const char *ops)
{
    AotKernel *k = x->kernel;
    while (k && strcmp(k->name, p->src.name)) k = k->next;
    if (!k) {
        k = NEW(x->a, AotKernel);
        k->name = p->src.name;
        k->text = gen_c_standalone(x->helpers, p->src.code);
        k->ops.arena = x->a;
        x->indexed |= strstr(k->text, "check_index") != NULL;
        *x->last_kernel = k;
        x->last_kernel = &k->next;
    }
    if (k->nops++ < 6) text_add(&k->ops, "%s%s", k->nops > 1 ? "\n * " : "", ops);
    else if (k->nops == 7) text_add(&k->ops, "\n * ...");
}

static void print_launch(AotSegment *q, const Part *p)
{
    Aot *x = q->x;
    const LoopKernel *k = p->loops;
    Span total = dim_span(q, k->total), work = dim_span(q, k->work);
    if (total.lo == total.hi && total.hi <= 0) return;
    const char *ops = kernel_ops(q, p);
    note_kernel(x, p, ops);
    Text buf = { .arena = x->a }, arg = { .arena = x->a };
    bool fixed = true;
    for (int i = 0; i < p->src.nbuf; i++) {
        const KBuf *b = &k->buf.at[p->src.buf[i]];
        const char *e;
        if (b->packed) {
            size_t bytes;
            const void *data = packed_data(q->s, b, &bytes);
            if (!data) fail(x->cx, E_NOMEM, "no memory to pack a constant");
            e = arena_fmt(x->a, "(void *)(weights + %" PRId64 ")", aot_weight(x, data, bytes));
        } else e = node_ptr(q, b->node);
        text_add(&buf, "%s%s", i ? ", " : "", e);
    }
    for (int i = 0; i < p->src.narg; i++) {
        Span s = dim_span(q, p->src.arg[i]);
        fixed = fixed && s.lo == s.hi;
        text_add(&arg, "%s%s", i ? ", " : "", dim_c(q, p->src.arg[i]));
    }
    if (p->src.scratch) {
        int64_t bytes = (dim_span(q, p->src.scratch).hi + 63) & ~(int64_t)63;
        if (bytes > x->scratch) x->scratch = bytes;
    }
    aot_line(x, "{   /* %s */", ops);
    x->indent++;
    aot_line(x, "void *const buf[] = { %s };", buf.n ? buf.at : "0");
    if (arg.n) aot_line(x, "%sconst i64 arg[] = { %s };", fixed ? "static " : "", arg.at);
    const char *name = arena_fmt(x->a, "%s%s", p->src.name, x->suffix), *args = arg.n ? "arg" : "0";
    if (x->o->threads < 2) aot_line(x, "%s(buf, %s, scratch, 0, %s, err);", name, args, dim_c(q, k->total));
    else if (work.lo == work.hi && total.lo == total.hi) {
        int64_t each = work.lo / total.lo + 1, grain = work.lo < 60000 ? total.lo : 20000 / each + 1;
        aot_line(x, "launch(in->threads, %s, buf, %s, scratch, %" PRId64 ", %" PRId64 ", err);", name, args, total.lo, grain < 1 ? 1 : grain);
    } else aot_line(x, "launch(in->threads, %s, buf, %s, scratch, %s, part_of(%s, %s), err);", name, args, dim_c(q, k->total), dim_c(q, k->work), dim_c(q, k->total));
    aot_line(x, "}");
}

/* Nodes of sizes are variables of the step's block: made before the launches that read them. */
static void declare_dims(AotSegment *q)
{
    const Graph *g = q->g;
    for (int i = 0; i < q->s->npart; i++) {
        const Part *p = &q->s->part[i];
        for (int k = 0; p->loops && !p->once && k < p->src.nbuf; k++) {
            const Node *n = p->loops->buf.at[p->src.buf[k]].node;
            if (n->op == OP_dims && !q->s->fixed[n->id]) node_ptr(q, n);
        }
        for (int k = 0; !p->loops && k < p->sub->node[0]->nin; k++) if (p->sub->node[0]->in[k]->op == OP_dims) node_ptr(q, p->sub->node[0]->in[k]);
    }
    for (int i = 0; i < g->output.n; i++) if (g->output.at[i].node->op == OP_dims) node_ptr(q, g->output.at[i].node);
}

static void print_host_call(AotSegment *q, const Part *p)
{
    Aot *x = q->x;
    const Node *call = p->sub->node[0];
    int nout = call->call->nout;
    AotValue *in = NEWS(x->a, AotValue, call->nin + 1), *out = NEWS(x->a, AotValue, nout + 1);
    for (int k = 0; k < call->nin; k++) in[k] = node_value(q, call->in[k], node_ptr(q, call->in[k]));
    for (int k = 0; k < nout; k++) out[k].dt = call->call->out_dt[k];
    for (int id = call->id + 1; id < q->g->node.n; id++) {
        const Node *v = q->g->node.at[id];
        if (v->op == OP_part && v->in[0] == call) out[v->index] = node_value(q, v, NULL);
    }
    for (int j = 1; j < p->sub->nnode; j++) out[p->sub->node[j]->index].ptr = node_ptr(q, p->sub->node[j]);
    aot_call(x, origin_name(q->g, call->origin), call->call, in, out);
}

/* ---- a segment --------------------------------------------------------------------------------------------------------------------------- */
void aot_segment(Aot *x, const AotStep *step, const AotValue *in, AotValue *out)
{
    Graph *g = step->g;
    ProgramOptions po = { .fuse = true };
    Segment *s = segment_new(x->cx, &x->target, g, &po);
    vec_push(x->a, &x->segment, s);
    if (s->interpreted) fail(x->cx, E_UNSUPPORTED, "no kernels: %s; that has no form in C", s->interpreted_why);
    int nsym = g->sym.n;
    AotSegment q = { .x = x, .s = s, .g = g, .in = in, .out = out, .sym = NEWS(x->a, const char *, nsym + 1), .lo = NEWS(x->a, int64_t, nsym + 1), .hi = NEWS(x->a, int64_t, nsym + 1),
        .dims = NEWS(x->a, const char *, g->node.n + 1) };
    bind_symbols(&q, step->most);
    print_guards(&q);
    place_nodes(&q);
    for (int i = 0; i < g->output.n; i++) {
        const char *given = out[i].ptr;
        out[i] = node_value(&q, g->output.at[i].node, given);
        int64_t bytes = aot_bytes(&out[i]);
        if (bytes < 0) fail(x->cx, E_NOMEM, "'%s' is larger than the address space", g->output.at[i].name);
        if (!given) out[i].ptr = arena_fmt(x->a, "keep + %" PRId64, aot_keep(x, bytes));
    }
    declare_dims(&q);
    for (int i = 0; i < s->npart; i++) {
        if (s->part[i].once) continue;
        if (s->part[i].loops) print_launch(&q, &s->part[i]);
        else print_host_call(&q, &s->part[i]);
    }
    if (x->indexed) aot_line(x, "if (err[0]) return %s_INDEX;", x->upper);
    for (int i = 0; i < g->output.n; i++) {          /* outputs that no kernel wrote there */
        const Node *n = g->output.at[i].node;
        int first = output_of(&q, n);
        bool copied = n->op == OP_input || s->fixed[n->id] || s->first[n->id] < 0;
        if ((!copied && first == i) || !aot_bytes(&out[i])) continue;
        const char *from = copied ? node_ptr(&q, n) : out[first].ptr;
        aot_line(x, "memcpy(%s, %s, (size_t)(%s));", out[i].ptr, from, count_c(&q, n));
    }
}
