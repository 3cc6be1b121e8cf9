/* --check: each kernel by itself, against the reference interpreter.
 *
 * Before a kernel runs, the interpreter computes what it will store from what the kernel is going to read: the values that lie in memory, which kernels before it
 * computed. So a difference is this kernel's own, and roundings of a long chain of kernels do not add up. What lies in memory is looked at by its hash as well,
 * each time that a kernel reads it or adds to it, and at the end if it is a result: a kernel that wrote where another one's values are would else go by, since the
 * interpreter would be given what it left there.
 *
 * Where an element is further off than its size excuses, trials say how far apart results lie when sums err as a kernel's may (src/ir/erring.c): far where what follows
 * a sum cancels or rounds to few values, close together elsewhere.
 *
 * A store into its own tensor is compared as a whole; one into another tensor (a piece of a join, the start of a scatter) point by point. Values that live only
 * inside a kernel have no place where they could be compared; what is stored of them has. Each kernel's values are freed before the next one's. */
#include "api/segment.h"

#include <math.h>
#include <string.h>

enum { TRIALS = 64 };
/* What trials make of each element: between lo and hi, or not a number. */
typedef struct Span { Tensor lo, hi; bool *nan; } Span;
typedef struct Checking {
    Checker *c; int part; const Launch *launch; int threads; double *seconds;
    Arena *a; const Tensor **given;
    int nstore; SubStore *store; Node **node; Tensor *want;
    Span *span; unsigned trial;         /* span: NULL: no element differed so far */
} Checking;

static const char *part_name(const Part *p) { return p->loops ? p->src.name : p->sub->node[0]->call->def->name; }

static const char *tensor_name(Arena *a, const Segment *s, const Node *n)
{
    const Origin *o = &s->g->origin.at[n->origin];
    return o->op ? arena_fmt(a, "'%s' (%s)", o->name ? o->name : "", o->op) : arena_fmt(a, "'' (%s)", prim_info[n->op].name);
}

/* A tensor as it lies in memory: on the host, or a copy of it. */
static Tensor *tensor_there(Ctx *cx, const Checking *k, const Node *n)
{
    const Segment *s = k->c->s;
    Tensor *t = NEW(k->a, Tensor);
    node_tensor(cx, n, k->c->syms, t);
    t->data = k->c->at[n->id];
    if (!is_staged(s)) return t;
    t->data = arena_block(k->a, tensor_bytes(t) + 1);
    stage_read(cx, s, t->data, k->c->at[n->id], tensor_bytes(t));
    return t;
}

static uint64_t hash_there(const Tensor *t) { return hash_bytes(t->data, tensor_bytes(t), 0) | 1; }

static void check_unchanged(Ctx *cx, const Checking *k, const Node *n, const Tensor *t, const char *who)
{
    uint64_t *seen = &k->c->seen[n->id], now = hash_there(t);
    if (*seen && *seen != now)
        fail(cx, E_INVALID, "check: %s, %s of %s is not what it was when it was computed: another kernel wrote there", who, tensor_name(k->a, k->c->s, n), shape_str(k->a, t->rank, t->dims));
    *seen = now;
}

static void give(Ctx *cx, Checking *k, const Node *n)
{
    if (!k->c->at[n->id] || k->given[n->id]) return;         /* inputs, constants and sizes the interpreter has itself */
    Tensor *t = tensor_there(cx, k, n);
    check_unchanged(cx, k, n, t, arena_fmt(k->a, "kernel %s reads what was changed", part_name(&k->c->s->part[k->part])));
    k->given[n->id] = t;
}

static void give_operands(Ctx *cx, Checking *k)
{
    const Segment *s = k->c->s;
    const Part *p = &s->part[k->part];
    if (!p->loops) {
        const Node *call = p->sub->node[0];
        for (int i = 0; i < call->nin; i++) give(cx, k, call->in[i]);
        return;
    }
    for (int i = 0; i < p->loops->buf.n; i++) {
        const KBuf *b = &p->loops->buf.at[i];
        if (b->scratch) continue;
        if (!b->write) give(cx, k, part_reads(s, k->part, b->node));
        else if (k->c->seen[b->node->id]) check_unchanged(cx, k, b->node, tensor_there(cx, k, b->node), arena_fmt(k->a, "kernel %s adds to what was changed", p->src.name));
    }
    if (p->sub->kind != SUB_scatter) return;
    const Node *n = p->sub->node[0];    /* it begins with what lies there */
    Tensor *t = tensor_there(cx, k, n);
    const void *there = t->data;
    t->data = arena_alloc(k->a, tensor_bytes(t) + 1);
    if (tensor_bytes(t)) memcpy(t->data, there, tensor_bytes(t));
    k->given[n->in[0]->id] = t;
}

/* ---- comparing ---------------------------------------------------------------------------------------------------------------------------------- */
/* How far apart the values of a kernel and of the interpreter may be; 0: they must be the same. */
static double check_tolerance(DType t, double want)
{
    double tol = t == DT_f64 ? 1e-9 : t == DT_f16 ? 4e-3 : t == DT_bf16 ? 3e-2 : 1e-4, size = want < 0 ? -want : want;
    return !dtype_is_float(t) || !isfinite(want) ? 0 : tol * (1 + size);
}

static const char *value_text(Arena *a, DType t, Scalar v)
{
    if (dtype_is_float(t)) return arena_fmt(a, "%.9g", v.f);
    return t == DT_u64 ? arena_fmt(a, "%llu", (unsigned long long)v.u) : arena_fmt(a, "%lld", (long long)v.i);
}

static void check_freeing(Ctx *cx, Checking *k, void (*fn)(Ctx *, void *))
{
    k->a = arena_new(cx);
    Status st = guard_call(cx, fn, k);
    arena_free(k->a);
    if (st != E_OK) fail_again(cx);
}

static void check_trial(Ctx *cx, void *arg)
{
    Checking *k = arg;
    Tensor *r = NEWS(k->a, Tensor, k->nstore + 1);
    eval_given(cx, k->a, k->c->s->g, k->c->in, k->given, k->c->syms, k->nstore, k->node, r, k->trial);
    for (int i = 0; i < k->nstore; i++) {
        Span *s = &k->span[i];
        size_t size = dtype_size(r[i].dt);
        bool real = dtype_is_float(r[i].dt);
        for (int64_t e = 0, n = tensor_count(&r[i]); e < n; e++) {
            void *lo = (uint8_t *)s->lo.data + (size_t)e * size, *hi = (uint8_t *)s->hi.data + (size_t)e * size;
            Scalar x = scalar_load(r[i].dt, (const uint8_t *)r[i].data + (size_t)e * size), a = scalar_load(r[i].dt, lo), b = scalar_load(r[i].dt, hi);
            s->nan[e] |= real && x.f != x.f;
            if (real ? !(a.f <= x.f) && x.f == x.f : x.i < a.i) scalar_store(r[i].dt, lo, x);
            if (real ? !(b.f >= x.f) && x.f == x.f : x.i > b.i) scalar_store(r[i].dt, hi, x);
        }
    }
}

/* How far apart results may be when sums and functions err as a kernel's may. Only for kernels that have no other excuse. */
static void check_span(Ctx *cx, Checking *k)
{
    k->span = NEWS(k->a, Span, k->nstore + 1);
    for (int i = 0; i < k->nstore; i++) {
        Span *s = &k->span[i];
        const size_t bytes = tensor_bytes(&k->want[i]);
        s->lo = s->hi = k->want[i];
        s->lo.data = arena_alloc(k->a, bytes + 1);
        s->hi.data = arena_alloc(k->a, bytes + 1);
        if (bytes) { memcpy(s->lo.data, k->want[i].data, bytes); memcpy(s->hi.data, k->want[i].data, bytes); }
        s->nan = NEWS(k->a, bool, tensor_count(&k->want[i]) + 1);
    }
    for (unsigned trial = 2; trial < 2 + TRIALS; trial++) {
        Checking t = *k;
        t.trial = trial;
        check_freeing(cx, &t, check_trial);
    }
}

static Scalar bound_at(const Tensor *t, int64_t w) { return scalar_load(t->dt, (const uint8_t *)t->data + (size_t)w * dtype_size(t->dt)); }

static bool in_span(const Span *s, Scalar x, int64_t w, double tol)
{
    const Scalar lo = bound_at(&s->lo, w), hi = bound_at(&s->hi, w);
    if (!dtype_is_float(s->lo.dt)) return x.i >= lo.i && x.i <= hi.i;
    return x.f != x.f ? s->nan[w] : x.f >= lo.f - tol && x.f <= hi.f + tol;
}

/* For the message: what the trials had, if they differ. */
static const char *span_text(Arena *a, const Span *s, int64_t w)
{
    const Scalar lo = bound_at(&s->lo, w), hi = bound_at(&s->hi, w);
    return lo.u == hi.u ? "" : arena_fmt(a, "; sums that err make it %s to %s", value_text(a, s->lo.dt, lo), value_text(a, s->hi.dt, hi));
}

/* Element e of what lies in memory against element w of what the interpreter says of store i. */
static void check_element(Ctx *cx, Checking *k, int i, const Tensor *got, int64_t e, int64_t w)
{
    const Tensor *want = &k->want[i];
    size_t size = dtype_size(got->dt);
    Scalar x = scalar_load(got->dt, (const uint8_t *)got->data + (size_t)e * size), y = scalar_load(got->dt, (const uint8_t *)want->data + (size_t)w * size);
    bool real = dtype_is_float(got->dt);
    if (real ? x.f == y.f || (x.f != x.f && y.f != y.f) : x.i == y.i) return;
    double tol = check_tolerance(got->dt, y.f);
    if (real && x.f - y.f <= tol && y.f - x.f <= tol) return;
    if (!k->span) check_span(cx, k);
    if (in_span(&k->span[i], x, w, tol)) return;
    int64_t index[MAX_RANK];
    for (int d = got->rank - 1; d >= 0; d--) { index[d] = e % got->dims[d]; e /= got->dims[d]; }
    fail(cx, E_INVALID, "check: kernel %s, %s, element %s of %s%s: %s, the interpreter says %s (%.3g apart is allowed%s)", part_name(&k->c->s->part[k->part]),
        tensor_name(k->a, k->c->s, k->store[i].into), shape_str(k->a, got->rank, index), dtype_info[got->dt].name, shape_str(k->a, got->rank, got->dims), value_text(k->a, got->dt, x),
        value_text(k->a, got->dt, y), tol, span_text(k->a, &k->span[i], w));
}

static int64_t offset_at(const Tensor *t, Dim *const *at, const int64_t *syms, const int64_t *vars)
{
    int64_t offset = 0;
    for (int d = 0; d < t->rank; d++) offset = offset * t->dims[d] + dim_eval(at[d], syms, vars);
    return offset;
}

/* A piece: at the points of the kernel's space, without the axes that do not matter to it. */
static void check_points(Ctx *cx, Checking *k, int i, const Tensor *got)
{
    const SubStore *store = &k->store[i];
    const Tensor *want = &k->want[i];
    const Subgraph *sub = k->c->s->part[k->part].sub;
    const int64_t *syms = k->c->syms;
    int64_t *vars = NEWS(k->a, int64_t, PART_VAR + 1), count[MAX_RANK + 1];
    int var[MAX_RANK + 1], n = 0;
    for (int d = 0; d <= sub->rank; d++) {
        int v = d < sub->rank ? SPACE_VAR + d : PART_VAR;
        bool used = false;
        for (int r = 0; r < want->rank; r++) used |= dim_uses(store->at[r], v);
        for (int r = 0; r < got->rank; r++) used |= dim_uses(store->coord[r], v);
        if (!used) continue;
        int64_t extent = dim_eval(sub->space[d < sub->rank ? d : sub->part], syms, NULL);
        count[n] = d < sub->rank ? extent : (extent + sub->step - 1) / sub->step;
        if (!count[n]) return;
        var[n++] = v;
    }
    for (bool more = true; more;) {
        check_element(cx, k, i, got, offset_at(got, store->coord, syms, vars), offset_at(want, store->at, syms, vars));
        int d = n - 1;
        for (; d >= 0 && ++vars[var[d]] == count[d]; d--) vars[var[d]] = 0;
        more = d >= 0;
        if (d < n - 1) ctx_poll(cx);
    }
}

static void check_store(Ctx *cx, Checking *k, int i)
{
    const SubStore *store = &k->store[i];
    const Tensor *got = tensor_there(cx, k, store->into);
    if (store->into == store->node) for (int64_t e = 0, n = tensor_count(got); e < n; e++) check_element(cx, k, i, got, e, e);
    else if (tensor_count(&k->want[i])) check_points(cx, k, i, got);
    k->c->seen[store->into->id] = hash_there(got);
}

static void check_launch(Ctx *cx, void *arg)
{
    Checking *k = arg;
    const Segment *s = k->c->s;
    const Part *p = &s->part[k->part];
    int most = p->loops ? p->sub->nstore : p->sub->nnode;
    k->store = NEWS(k->a, SubStore, most + 1);
    k->node = NEWS(k->a, Node *, most + 1);
    for (int i = 0; i < most; i++) {
        SubStore w = p->loops ? p->sub->store[i] : (SubStore){ .node = p->sub->node[i], .into = p->sub->node[i] };
        if (!k->c->at[w.into->id]) continue;                 /* nobody reads it */
        k->node[k->nstore] = w.node;
        k->store[k->nstore++] = w;
    }
    k->given = NEWS(k->a, const Tensor *, s->g->node.n + 1);
    give_operands(cx, k);
    k->want = NEWS(k->a, Tensor, k->nstore + 1);
    eval_given(cx, k->a, s->g, k->c->in, k->given, k->c->syms, k->nstore, k->node, k->want, 0);
    RtError e = { .launch = -1 };
    if (s->target->api->run(s->target->device, 1, k->launch, k->threads, cx->cancel, k->seconds, &e) != E_OK) segment_raise(cx, s, &e);
    for (int i = 0; i < k->nstore; i++) check_store(cx, k, i);
}

static void check_results(Ctx *cx, void *arg)
{
    Checking *k = arg;
    const Graph *g = k->c->s->g;
    for (int i = 0; i < g->output.n; i++) {
        const Node *n = g->output.at[i].node;
        if (k->c->seen[n->id]) check_unchanged(cx, k, n, tensor_there(cx, k, n), arena_fmt(k->a, "output '%s'", g->output.at[i].name));
    }
}

void checker_run(Ctx *cx, Checker *c, int part, const Launch *l, int threads, double *seconds)
{
    check_freeing(cx, &(Checking){ .c = c, .part = part, .launch = l, .threads = threads, .seconds = seconds }, check_launch);
}

void checker_end(Ctx *cx, Checker *c) { check_freeing(cx, &(Checking){ .c = c }, check_results); }
