/* Calls of whole tensors, and the iterations of Loop and Scan, as C. The functions that they use are api/aot/calls.inc; the results are those of the
 * functions in onnx/op_call.c and its neighbours, step by step.
 *
 * What only a run knows (how many results, how many iterations) is a variable with a bound: what the operands allow, or, where nothing does, the most that
 * the trace met; a run that needs more ends with SIZES. A body has a variant for each kind of arguments that the trace met; an iteration takes the first
 * whose guards hold. */
#include "api/aot.h"

#include <inttypes.h>
#include <string.h>

const char *aot_call_text(Ctx *cx, Arena *a, const char *code)
{
    Helpers *h = gen_c_helpers_of(cx, a, aot_calls_source());
    gen_c_standalone(h, code);
    Text t = { .arena = a };
    gen_c_helpers_print(h, &t);
    return t.n ? arena_fmt(a, "\n/* ---- operators on whole tensors ---- */\n%s", t.at) : "";
}

/* ---- pieces of text ---------------------------------------------------------------------------------------------------------------------- */
static const char *elements_c(Aot *x, const AotValue *v, const char *what)
{
    const DTypeInfo *d = &dtype_info[v->dt];
    const char *type = v->dt == DT_f32 ? "f32" : v->dt == DT_f64 ? "f64" : v->dt == DT_f16 ? "f16" : v->dt == DT_bf16 ? "bf16" : d->class == 'S' ? "signed" : d->class == 'F' ? NULL : "unsigned";
    if (!type) fail(x->cx, E_UNSUPPORTED, "%s of %s has no form in C", what, d->name);
    return arena_fmt(x->a, "(elements){ (const void *)(%s), IS_%s, %d }", v->ptr, type, d->bytes);
}

static const char *times_c(Aot *x, const char *a, const char *b)
{
    if (!strcmp(a, "1")) return b;
    if (!strcmp(b, "1")) return a;
    return arena_fmt(x->a, "%s * %s", a, strpbrk(b, " ") ? arena_fmt(x->a, "(%s)", b) : b);
}

/* The product of the sizes of axes from..to-1. */
static const char *count_of(Aot *x, const AotValue *v, int from, int to)
{
    const char *r = "1";
    for (int k = from; k < to; k++) r = times_c(x, r, strpbrk(v->dim[k], " ") ? arena_fmt(x->a, "(%s)", v->dim[k]) : v->dim[k]);
    return r;
}

static int64_t most_of(const AotValue *v, int from, int to)
{
    AotValue part = { .dt = DT_u8, .rank = to - from };
    for (int k = from; k < to; k++) part.hi[k - from] = v->hi[k];
    return aot_bytes(&part);
}

static const char *number_c(Aot *x, int64_t n) { return arena_fmt(x->a, "%" PRId64, n); }
static const char *real(Aot *x, double v) { Text t = { .arena = x->a }; text_float(&t, v, false); return t.at; }

static const char *keep(Aot *x, Ctx *cx, int64_t bytes, const char *what)
{
    if (bytes < 0 || bytes > INT64_MAX / 8) fail(cx, E_NOMEM, "%s: its memory is larger than the address space", what);
    return arena_fmt(x->a, "keep + %" PRId64, aot_keep(x, bytes));
}

static void fixed_dim(Aot *x, AotValue *v, int k, int64_t n) { v->dim[k] = number_c(x, n); v->lo[k] = v->hi[k] = n; }
static void same_dim(AotValue *v, int k, const AotValue *from, int j) { v->dim[k] = from->dim[j]; v->lo[k] = from->lo[j]; v->hi[k] = from->hi[j]; }
static void free_dim(AotValue *v, int k, const char *var, int64_t hi) { v->dim[k] = var; v->lo[k] = 0; v->hi[k] = hi; }

/* ---- calls inside a segment -------------------------------------------------------------------------------------------------------------- */
void aot_call(Aot *x, const char *what, const Call *call, const AotValue *in, AotValue *out)
{
    const char *name = call->def->name;
    aot_line(x, "/* %s */", what);
    for (int k = 0; k < call->nout; k++) if (!out[k].ptr && strcmp(name, "topk")) out[k].ptr = keep(x, x->cx, aot_bytes(&out[k]), what);
    if (!strcmp(name, "topk")) {
        const TopKAttr *p = call->attr;
        const AotValue *v = &in[0], *r = out[0].rank ? &out[0] : &out[1];
        if (!out[0].ptr) out[0].ptr = keep(x, x->cx, aot_bytes(r) < 0 ? -1 : most_of(r, 0, r->rank) * (int64_t)dtype_size(v->dt), what);
        aot_line(x, "if (%s > %s) return %s_SIZES;", r->dim[p->axis], v->dim[p->axis], x->upper);
        aot_line(x, "top_k(%s, %s, %s, %s, %s, %d, %s, (void *)(%s), (void *)(%s));", elements_c(x, v, what), count_of(x, v, 0, p->axis), v->dim[p->axis],
            count_of(x, v, p->axis + 1, v->rank), r->dim[p->axis], p->largest, out[0].ptr, out[1].ptr ? out[1].ptr : "0", keep(x, x->cx, 16 * v->hi[p->axis] + 16, what));
    } else if (!strcmp(name, "det")) {
        const AotValue *v = &in[0];
        if (v->dt != DT_f32 && v->dt != DT_f64) fail(x->cx, E_UNSUPPORTED, "%s of %s has no form in C", what, dtype_info[v->dt].name);
        aot_line(x, "det(%s, %s, %s, %s, (void *)(%s));", elements_c(x, v, what), count_of(x, v, 0, v->rank - 2), v->dim[v->rank - 1], out[0].ptr,
            keep(x, x->cx, 8 * most_of(v, v->rank - 2, v->rank) + 8, what));
    } else if (!strcmp(name, "max_roi_pool") || !strcmp(name, "roi_align")) {
        const RoiAttr *p = call->attr;
        const AotValue *v = &in[0];
        bool align = name[0] == 'r';
        if (v->dt != DT_f32) fail(x->cx, E_UNSUPPORTED, "%s of %s has no form in C", what, dtype_info[v->dt].name);
        const char *sizes = arena_fmt(x->a, "%s, %s, %s, %s, %s, %s, %s", v->dim[0], v->dim[1], v->dim[2], v->dim[3], in[1].dim[0], out[0].dim[2], out[0].dim[3]);
        if (align) aot_line(x, "if (roi_align(%s, %s, %s, %s, %" PRId64 ", %s, %d, %d, (void *)(%s))) return %s_INDEX;", elements_c(x, v, what), elements_c(x, &in[1], what), elements_c(x, &in[2], what),
            sizes, p->sampling, real(x, (double)p->scale), p->half_pixel, p->use_max, out[0].ptr, x->upper);
        else aot_line(x, "if (max_roi_pool(%s, %s, %s, (f32)%s, (void *)(%s))) return %s_INDEX;", elements_c(x, v, what), elements_c(x, &in[1], what), sizes, real(x, (double)p->scale), out[0].ptr, x->upper);
    } else fail(x->cx, E_UNSUPPORTED, "%s: '%s' has no form in C", what, name);
}

/* ---- Loop and Scan ----------------------------------------------------------------------------------------------------------------------- */
typedef struct AotLoop { Aot *x; const AotStep *s; const BodyCall *c; const char *what; int n; AotValue *args, *state; } AotLoop;

/* The sizes of a state value: numbers where they never change, else variables up to the most that was met. Its memory holds a copy of the start. */
static AotValue loop_state(AotLoop *l, const AotValue *init, int arg, int result)
{
    Aot *x = l->x;
    AotValue v = *init;
    v.example = NULL; v.pinned = false;
    for (int k = 0; k < v.rank; k++) {
        int64_t lo = init->lo[k], hi = init->hi[k];
        for (const AotBody *b = l->s->body; b; b = b->next) {
            if (b->args[arg].rank != v.rank || b->result[result].rank != v.rank) fail(x->cx, E_UNSUPPORTED, "%s: a value whose rank changes has no form in C", l->what);
            for (int i = 0; i < 2; i++) {
                int at = i ? b->narg + result : arg;
                if (b->least[at][k] < lo) lo = b->least[at][k];
                if (b->most[at][k] > hi) hi = b->most[at][k];
            }
        }
        if (lo == hi) { fixed_dim(x, &v, k, lo); continue; }
        const char *var = arena_fmt(x->a, "size%d", x->nvar++);
        aot_line(x, "i64 %s = %s;", var, init->dim[k]);
        free_dim(&v, k, var, hi);
    }
    v.ptr = keep(x, x->cx, aot_bytes(&v), l->what);
    aot_line(x, "memcpy(%s, %s, (size_t)(%s));", v.ptr, init->ptr, times_c(x, number_c(x, (int64_t)dtype_size(v.dt)), count_of(x, &v, 0, v.rank)));
    return v;
}

/* The body's variants, one after the other until one serves; then `after` is printed for its results. */
static void print_body(AotLoop *l, void (*after)(AotLoop *, const AotValue *result, void *), void *arg)
{
    Aot *x = l->x;
    const char *miss = x->miss, *served = arena_fmt(x->a, "served%d", x->nvar++);
    aot_line(x, "int %s = 0;", served);
    x->miss = "break";
    for (const AotBody *b = l->s->body; b; b = b->next) {
        aot_line(x, "%sdo {", b == l->s->body ? "" : arena_fmt(x->a, "if (!%s) ", served));
        x->indent++;
        AotValue *in = arena_copy(x->a, l->args, sizeof *in * (size_t)b->narg), *out = NEWS(x->a, AotValue, b->nresult + 1);
        AotValue *result = aot_steps(x, b->step, in, out);
        after(l, result, arg);
        aot_line(x, "%s = 1;", served);
        aot_line(x, "} while (0);");
    }
    x->miss = miss;
    aot_line(x, "if (!%s) %s;", served, miss);
}

static void take_state(AotLoop *l, const AotValue *result, int k)
{
    Aot *x = l->x;
    AotValue *v = &l->state[k];
    for (int d = 0; d < v->rank; d++) {
        if (!strcmp(v->dim[d], result->dim[d])) continue;
        if (v->lo[d] == v->hi[d]) { aot_line(x, "if (%s != %s) return %s_SIZES;", result->dim[d], v->dim[d], x->upper); continue; }
        aot_line(x, "if (%s > %" PRId64 ") return %s_SIZES;", result->dim[d], v->hi[d], x->upper);
    }
    aot_line(x, "memcpy(%s, %s, (size_t)(%s));", v->ptr, result->ptr, times_c(x, number_c(x, (int64_t)dtype_size(v->dt)), count_of(x, result, 0, v->rank)));
}

/* Sizes change only after all values were taken: one may be computed from another. */
static void take_sizes(AotLoop *l, const AotValue *result, int n)
{
    Aot *x = l->x;
    Text t = { .arena = x->a };
    for (int k = 0; k < n; k++)
        for (int d = 0; d < l->state[k].rank; d++) {
            if (l->state[k].lo[d] == l->state[k].hi[d] || !strcmp(l->state[k].dim[d], result[k].dim[d])) continue;
            const char *var = arena_fmt(x->a, "size%d", x->nvar++);
            aot_line(x, "const i64 %s = %s;", var, result[k].dim[d]);
            text_add(&t, "%s%s = %s;", t.n ? " " : "", l->state[k].dim[d], var);
        }
    if (t.n) aot_line(x, "%s", t.at);
}

typedef struct LoopSlices { AotValue *slice; const char *count, *go; int nscan; int64_t most; const int64_t *axis; const char *const *place, *length; } LoopSlices;

/* A result of each iteration has one shape: that of the first variant, with fixed sizes. */
static AotValue slice_value(AotLoop *l, int result, int64_t n, const char *count, int64_t axis)
{
    Aot *x = l->x;
    const AotBody *b = l->s->body;
    const OnnxValue *declared = &l->c->body->out[result];
    AotValue v = { .dt = b ? b->result[result].dt : declared->dt };
    int inner = b ? b->result[result].rank : declared->rank < 0 ? 0 : declared->rank;
    if (axis < 0) axis += inner + 1;
    v.rank = inner + 1;
    for (int k = 0; k < inner; k++) {
        int64_t size = b ? b->most[b->narg + result][k] : declared->dims[k].value > 0 ? declared->dims[k].value : 0;
        for (const AotBody *o = b; o; o = o->next)
            if (o->result[result].rank != inner || o->least[o->narg + result][k] != size || o->most[o->narg + result][k] != size)
                fail(x->cx, E_UNSUPPORTED, "%s: results of iterations whose sizes differ have no form in C", l->what);
        fixed_dim(x, &v, k < axis ? k : k + 1, size);
    }
    free_dim(&v, (int)axis, count, n);
    v.ptr = keep(x, x->cx, aot_bytes(&v), l->what);
    return v;
}

static void after_loop_body(AotLoop *l, const AotValue *result, void *arg)
{
    Aot *x = l->x;
    LoopSlices *z = arg;
    int n = l->n;
    aot_line(x, "%s = *(const u8 *)(%s) != 0;", z->go, result[0].ptr);
    for (int k = 0; k < z->nscan; k++) {
        const AotValue *r = &result[1 + n + k], *s = &z->slice[k];
        for (int d = 0; d < r->rank; d++) if (strcmp(r->dim[d], s->dim[d + 1])) aot_line(x, "if (%s != %s) return %s_SIZES;", r->dim[d], s->dim[d + 1], x->upper);
        const char *bytes = times_c(x, number_c(x, (int64_t)dtype_size(r->dt)), count_of(x, s, 1, s->rank));
        aot_line(x, "memcpy(%s + %s, %s, (size_t)(%s));", s->ptr, times_c(x, z->count, bytes), r->ptr, bytes);
    }
    for (int k = 0; k < n; k++) take_state(l, &result[1 + k], k);
    take_sizes(l, result + 1, n);
}

static AotValue scalar_value(Aot *x, const OnnxValue *declared, DType dt, const char *ptr)
{
    AotValue v = { .ptr = ptr, .dt = dt, .rank = declared->rank == 1 };
    if (v.rank) fixed_dim(x, &v, 0, 1);
    return v;
}

static void loop_c(AotLoop *l, const AotValue *in, AotValue *out, const Call *call)
{
    Aot *x = l->x;
    int n = l->n = l->c->nstate, nscan = call->nout - n, id = x->nvar++;
    const char *count = arena_fmt(x->a, "count%d", id), *go = arena_fmt(x->a, "go%d", id), *iter = arena_fmt(x->a, "iteration%d", id), *yes = arena_fmt(x->a, "yes%d", id);
    int64_t most = l->s->trips;
    if (in[0].example && in[0].example->data && in[0].dt == DT_i64) {
        int64_t given = scalar_load(DT_i64, in[0].example->data).i;
        if (given > most && given < 1 << 20) most = given;
    }
    l->state = NEWS(x->a, AotValue, n + 1);
    l->args = NEWS(x->a, AotValue, 2 + n + l->c->ncapture + 1);
    for (int k = 0; k < n; k++) l->state[k] = loop_state(l, &in[2 + k], 2 + k, 1 + k);
    LoopSlices z = { .slice = NEWS(x->a, AotValue, nscan + 1), .count = count, .go = go, .nscan = nscan, .most = most };
    for (int k = 0; k < nscan; k++) z.slice[k] = slice_value(l, 1 + n + k, most, count, 0);
    l->args[0] = scalar_value(x, &l->c->body->in[0], DT_i64, arena_fmt(x->a, "((const void *)&%s)", iter));
    l->args[1] = scalar_value(x, &l->c->body->in[1], DT_bool, arena_fmt(x->a, "((const void *)&%s)", yes));
    for (int k = 0; k < n; k++) l->args[2 + k] = l->state[k];
    for (int k = 0; k < l->c->ncapture; k++) { l->args[2 + n + k] = in[2 + n + k]; l->args[2 + n + k].pinned = false; }
    aot_line(x, "i64 %s = 0;", count);
    aot_line(x, "int %s = *(const u8 *)(%s) != 0;", go, in[1].ptr);
    aot_line(x, "for (; %s < *(const i64 *)(%s) && %s; %s++) {", count, in[0].ptr, go, count);
    x->indent++;
    aot_line(x, "const i64 %s = %s;", iter, count);
    aot_line(x, "const u8 %s = 1;", yes);
    aot_line(x, "(void)%s, (void)%s;", iter, yes);
    if (nscan || !l->s->body) aot_line(x, "if (%s >= %" PRId64 ") return %s_SIZES;", count, most, x->upper);
    if (l->s->body) print_body(l, after_loop_body, &z);
    aot_line(x, "}");
    for (int k = 0; k < n; k++) out[k] = l->state[k];
    for (int k = 0; k < nscan; k++) out[n + k] = z.slice[k];
}

static void after_scan_body(AotLoop *l, const AotValue *result, void *arg)
{
    Aot *x = l->x;
    LoopSlices *z = arg;
    int n = l->n;
    for (int k = 0; k < z->nscan; k++) {
        const AotValue *r = &result[n + k], *s = &z->slice[k];
        int axis = (int)(z->axis[k] < 0 ? z->axis[k] + s->rank : z->axis[k]);
        for (int d = 0; d < r->rank; d++) {
            const char *want = s->dim[d < axis ? d : d + 1];
            if (strcmp(r->dim[d], want)) aot_line(x, "if (%s != %s) return %s_SIZES;", r->dim[d], want, x->upper);
        }
        aot_line(x, "slice_put(%s, %s, %s, %s, %s, %s);", s->ptr, r->ptr, count_of(x, s, 0, axis), z->length,
            times_c(x, number_c(x, (int64_t)dtype_size(r->dt)), count_of(x, s, axis + 1, s->rank)), z->place[k]);
    }
    for (int k = 0; k < n; k++) take_state(l, &result[k], k);
    take_sizes(l, result, n);
}

static void print_scan(AotLoop *l, const AotValue *in, AotValue *out, const Call *call)
{
    Aot *x = l->x;
    const BodyCall *c = l->c;
    int n = l->n = c->nstate, m = c->nscan_in, nscan = call->nout - n;
    if (c->opset < 9) fail(x->cx, E_UNSUPPORTED, "%s: Scan of opset 8 has no form in C", l->what);
    if (m < 1) fail(x->cx, E_UNSUPPORTED, "%s: no scan inputs", l->what);
    const char *at = arena_fmt(x->a, "count%d", x->nvar++), *length = NULL;
    int64_t most = 0;
    l->state = NEWS(x->a, AotValue, n + 1);
    l->args = NEWS(x->a, AotValue, n + m + c->ncapture + 1);
    for (int k = 0; k < n; k++) l->args[k] = l->state[k] = loop_state(l, &in[k], k, k);
    for (int k = 0; k < m; k++) {
        const AotValue *v = &in[n + k];
        int axis = (int)(c->in_axes[k] < 0 ? c->in_axes[k] + v->rank : c->in_axes[k]);
        AotValue s = { .dt = v->dt, .rank = v->rank - 1 };
        for (int d = 0; d < s.rank; d++) same_dim(&s, d, v, d < axis ? d : d + 1);
        s.ptr = keep(x, x->cx, aot_bytes(&s), l->what);
        l->args[n + k] = s;
        if (!k) { length = v->dim[axis]; most = v->hi[axis]; }
        else if (strcmp(length, v->dim[axis])) aot_line(x, "if (%s != %s) return %s_SIZES;", v->dim[axis], length, x->upper);
    }
    for (int k = 0; k < c->ncapture; k++) { l->args[n + m + k] = in[n + m + k]; l->args[n + m + k].pinned = false; }
    const char **place = NEWS(x->a, const char *, nscan + 1);
    LoopSlices z = { .slice = NEWS(x->a, AotValue, nscan + 1), .nscan = nscan, .axis = c->out_axes, .place = place, .length = length };
    for (int k = 0; k < nscan; k++) {
        z.slice[k] = slice_value(l, n + k, most, length, c->out_axes[k]);
        place[k] = c->out_dirs[k] ? arena_fmt(x->a, "%s - 1 - %s", length, at) : at;
    }
    aot_line(x, "for (i64 %s = 0; %s < %s; %s++) {", at, at, length, at);
    x->indent++;
    for (int k = 0; k < m; k++) {
        const AotValue *v = &in[n + k];
        int axis = (int)(c->in_axes[k] < 0 ? c->in_axes[k] + v->rank : c->in_axes[k]);
        aot_line(x, "slice_get(%s, %s, %s, %s, %s, %s);", l->args[n + k].ptr, v->ptr, count_of(x, v, 0, axis), v->dim[axis],
            times_c(x, number_c(x, (int64_t)dtype_size(v->dt)), count_of(x, v, axis + 1, v->rank)), c->in_dirs[k] ? arena_fmt(x->a, "%s - 1 - %s", length, at) : at);
    }
    if (l->s->body) print_body(l, after_scan_body, &z);
    aot_line(x, "}");
    for (int k = 0; k < n; k++) out[k] = l->state[k];
    for (int k = 0; k < nscan; k++) out[n + k] = z.slice[k];
}

/* ---- calls between segments -------------------------------------------------------------------------------------------------------------- */
void aot_host_call(Aot *x, const AotStep *s, const AotValue *in, AotValue *out)
{
    const Call *call = s->call;
    const char *name = call->def->name, *var = arena_fmt(x->a, "found%d", x->nvar);
    aot_line(x, "/* %s */", name);
    if (call->def == &loop_call || call->def == &scan_call) {
        const BodyCall *c = call->attr;
        AotLoop l = { .x = x, .s = s, .c = c, .what = arena_fmt(x->a, "%s '%s'", c->node->op, c->node->name ? c->node->name : "") };
        if (call->def == &loop_call) loop_c(&l, in, out, call);
        else print_scan(&l, in, out, call);
        return;
    }
    x->nvar++;
    const AotValue *v = &in[0];
    if (!strcmp(name, "non_zero")) {
        int64_t most = most_of(v, 0, v->rank);
        Text dims = { .arena = x->a };
        for (int k = 0; k < v->rank; k++) text_add(&dims, "%s%s", k ? ", " : "", v->dim[k]);
        fixed_dim(x, &out[0], 0, v->rank);
        free_dim(&out[0], 1, var, most);
        out[0].ptr = keep(x, x->cx, aot_bytes(&out[0]), name);
        aot_line(x, "const i64 %s = non_zero(%s, %d, (const i64[]){ %s }, %s, (void *)(%s));", var, elements_c(x, v, name), v->rank, v->rank ? dims.at : "0", count_of(x, v, 0, v->rank), out[0].ptr);
    } else if (!strcmp(name, "compress")) {
        int axis = *(const int *)call->attr;
        for (int k = 0; k < v->rank; k++) same_dim(&out[0], k, v, k);
        free_dim(&out[0], axis, var, v->hi[axis] < in[1].hi[0] ? v->hi[axis] : in[1].hi[0]);
        out[0].ptr = keep(x, x->cx, aot_bytes(&out[0]), name);
        aot_line(x, "const i64 %s = compress(%s, %s, %s, %s, %s, %s, %s);", var, v->ptr, elements_c(x, &in[1], name), in[1].dim[0], count_of(x, v, 0, axis), v->dim[axis],
            times_c(x, number_c(x, (int64_t)dtype_size(v->dt)), count_of(x, v, axis + 1, v->rank)), out[0].ptr);
    } else if (!strcmp(name, "unique")) {
        const UniqueAttr *p = call->attr;
        for (int k = 0; k < v->rank; k++) same_dim(&out[0], k, v, k);
        free_dim(&out[0], p->axis, var, v->hi[p->axis]);
        free_dim(&out[1], 0, var, v->hi[p->axis]);
        same_dim(&out[2], 0, v, p->axis);
        free_dim(&out[3], 0, var, v->hi[p->axis]);
        for (int k = 0; k < 4; k++) out[k].ptr = keep(x, x->cx, aot_bytes(&out[k]), name);
        aot_line(x, "const i64 %s = unique(%s, %s, %s, %s, %d, %s, (void *)(%s), (void *)(%s), (void *)(%s), (void *)(%s));", var, elements_c(x, v, name), count_of(x, v, 0, p->axis), v->dim[p->axis],
            count_of(x, v, p->axis + 1, v->rank), p->sorted, out[0].ptr, out[1].ptr, out[2].ptr, out[3].ptr, keep(x, x->cx, 48 * v->hi[p->axis] + 48, name));
    } else if (!strcmp(name, "non_max_suppression")) {
        const NmsAttr *p = call->attr;
        const AotValue *sc = &in[1];
        int64_t each = sc->hi[2] < p->most ? sc->hi[2] : p->most;
        free_dim(&out[0], 0, var, most_of(sc, 0, 2) * each);
        fixed_dim(x, &out[0], 1, 3);
        out[0].ptr = keep(x, x->cx, aot_bytes(&out[0]), name);
        aot_line(x, "if (%s != %s || %s != %s) return %s_SIZES;", v->dim[0], sc->dim[0], v->dim[1], sc->dim[2], x->upper);
        aot_line(x, "const i64 %s = non_max_suppression(%s, %s, %s, %s, %s, %" PRId64 ", %s, %s, %d, %d, (void *)(%s), (void *)(%s));", var, elements_c(x, v, name), elements_c(x, sc, name),
            sc->dim[0], sc->dim[1], sc->dim[2], p->most, real(x, p->iou), real(x, p->score), p->center, p->use_score, out[0].ptr, keep(x, x->cx, 24 * sc->hi[2] + 24, name));
    } else fail(x->cx, E_UNSUPPORTED, "'%s' has no form in C", name);
}
