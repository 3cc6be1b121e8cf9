/* Which values a node can have: intervals, from the constants that it is computed of.
 *
 * Who leaves out a product with 0 must know that the other factor is a finite number: 0 times infinity is no 0. Constants are looked through once; what is computed
 * from them has the interval that interval arithmetic gives, as long as that ends below the largest number of the dtype. Sums and functions are not followed. */
#include "ir/ir.h"

#include <math.h>

static const Reach reach_none = { 1, 0 };

static Reach reach_hull(Reach a, Reach b)
{
    if (!reach_known(a) || !reach_known(b)) return reach_none;
    return (Reach){ fmin(a.lo, b.lo), fmax(a.hi, b.hi) };
}

/* Of all values of an integer dtype. */
static Reach reach_dtype(DType t)
{
    if (dtype_is_float(t)) return reach_none;
    if (t == DT_bool) return (Reach){ 0, 1 };
    if (t == DT_u64) return (Reach){ 0, 0x1p64 };
    return (Reach){ (double)scalar_min(t).i, (double)scalar_max(t).i };
}

/* Results of an operation, rounded to a dtype: the interval is a little wider, and ends well below the largest number. Integers may wrap. */
typedef struct Rounding { double most, least, part; } Rounding;      /* numbers below `least` lose digits, and may become 0; others move by so much of themselves */
static Reach reach_round(DType t, double lo, double hi)
{
    Rounding r = { 0 };
    switch (t) {
    case DT_f64: r = (Rounding){ 0x1p1022, 0x1p-1022, 0x1p-48 }; break;
    case DT_f32: r = (Rounding){ 0x1p127, 0x1p-126, 0x1p-20 }; break;
    case DT_bf16: r = (Rounding){ 0x1p127, 0x1p-126, 0x1p-6 }; break;
    case DT_f16: r = (Rounding){ 0x1p15, 0x1p-14, 0x1p-8 }; break;
    default: return reach_dtype(t);
    }
    if (!(lo >= -r.most) || !(hi <= r.most)) return reach_none;
    return (Reach){ lo - fabs(lo) * r.part - r.least, hi + fabs(hi) * r.part + r.least };
}

Reach reach_ew(Op op, DType t, int n, const Reach *in)
{
    for (int i = 0; i < n; i++) if (!reach_known(in[i])) return reach_dtype(t);
    Reach a = n > 0 ? in[0] : reach_none, b = n > 1 ? in[1] : a;
    double edge[4] = { a.lo, a.hi, a.lo, a.hi };
    switch (op) {
    case OP_neg: return reach_round(t, -a.hi, -a.lo);
    case OP_abs: return reach_round(t, 0, fmax(-a.lo, a.hi));
    case OP_add: return reach_round(t, a.lo + b.lo, a.hi + b.hi);
    case OP_sub: return reach_round(t, a.lo - b.hi, a.hi - b.lo);
    case OP_max: return reach_round(t, fmax(a.lo, b.lo), fmax(a.hi, b.hi));
    case OP_min: return reach_round(t, fmin(a.lo, b.lo), fmin(a.hi, b.hi));
    case OP_sqrt: return a.lo >= 0 ? reach_round(t, sqrt(a.lo), sqrt(a.hi)) : reach_dtype(t);
    case OP_mul: for (int i = 0; i < 4; i++) edge[i] *= i < 2 ? b.lo : b.hi; break;
    case OP_div:
        if (b.lo <= 0 && b.hi >= 0) return reach_dtype(t);
        for (int i = 0; i < 4; i++) edge[i] /= i < 2 ? b.lo : b.hi;
        break;
    default: return reach_dtype(t);
    }
    double lo = fmin(fmin(edge[0], edge[1]), fmin(edge[2], edge[3])), hi = fmax(fmax(edge[0], edge[1]), fmax(edge[2], edge[3]));
    return reach_round(t, lo, hi);
}

Reach reach_cast(DType to, Reach x) { return reach_known(x) ? reach_round(to, x.lo, x.hi) : reach_dtype(to); }

enum { REACH_SIDE = 8 };                 /* elements side by side: their chains of operations need not wait for one another */
static Reach reach_f32(const void *x, int64_t n)
{
    float lo[REACH_SIDE], hi[REACH_SIDE], odd[REACH_SIDE] = { 0 };
    for (int j = 0; j < REACH_SIDE; j++) { lo[j] = INFINITY; hi[j] = -INFINITY; }
    int64_t i = 0;
    for (; i + REACH_SIDE <= n; i += REACH_SIDE)
        for (int j = 0; j < REACH_SIDE; j++) {
            float v = float_at(x, i + j);
            lo[j] = v < lo[j] ? v : lo[j];
            hi[j] = v > hi[j] ? v : hi[j];
            odd[j] += v - v;             /* NaN from the first one on that is no finite number */
        }
    Reach r = { INFINITY, -INFINITY };
    for (int j = 0; j < REACH_SIDE; j++) {
        if (odd[j] != 0) return reach_none;
        r.lo = fmin(r.lo, (double)lo[j]);
        r.hi = fmax(r.hi, (double)hi[j]);
    }
    for (; i < n; i++) {
        const float v = float_at(x, i);
        if (!isfinite(v)) return reach_none;
        r.lo = fmin(r.lo, (double)v);
        r.hi = fmax(r.hi, (double)v);
    }
    return r;
}

static Reach reach_const(const Tensor *t)
{
    int64_t n = tensor_count(t);
    if (!dtype_is_float(t->dt)) return reach_dtype(t->dt);
    if (n == 0 || dtype_bits(t->dt) < 8) return reach_none;
    if (t->dt == DT_f32) return reach_f32(t->data, n);
    Reach r = { INFINITY, -INFINITY };
    for (int64_t i = 0; i < n; i++) {
        double v = scalar_load(t->dt, (const uint8_t *)t->data + (size_t)i * dtype_size(t->dt)).f;
        if (!isfinite(v)) return reach_none;
        r.lo = fmin(r.lo, v);
        r.hi = fmax(r.hi, v);
    }
    return r;
}

static Reach reach_view(const Node *n, Reach x)
{
    if (!n->view.npred) return x;
    double fill = dtype_is_float(n->dt) ? n->view.fill.f : (double)n->view.fill.i;
    return isfinite(fill) ? reach_hull(x, (Reach){ fill, fill }) : reach_none;
}

enum { REACH_DEPTH = 64 };
static Reach reach_of(Graph *g, const Node *n, int depth)
{
    while (g->reach.n <= n->id) vec_push(g->arena, &g->reach, (const Reach *)NULL);
    if (g->reach.at[n->id]) return *g->reach.at[n->id];
    Reach r = reach_dtype(n->dt), in[3] = { reach_none, reach_none, reach_none };
    bool ew = prim_info[n->op].elementwise && n->op != OP_where;
    if (depth > REACH_DEPTH) return r;
    for (int i = 0; i < n->nin && i < 3 && (ew || n->op == OP_cast || n->op == OP_view || n->op == OP_where); i++) in[i] = reach_of(g, n->in[i], depth + 1);
    if (n->op == OP_const) r = reach_const(n->tensor);
    else if (n->op == OP_view) r = reach_view(n, in[0]);
    else if (n->op == OP_cast) r = reach_cast(n->dt, in[0]);
    else if (n->op == OP_where) r = reach_hull(in[1], in[2]);
    else if (ew) r = reach_ew(n->op, n->dt, n->nin, in);
    else if (n->op == OP_join && n->nin) {
        r = reach_of(g, n->in[0], depth + 1);
        for (int i = 1; i < n->nin; i++) r = reach_hull(r, reach_of(g, n->in[i], depth + 1));
    }
    g->reach.at[n->id] = arena_copy(g->arena, &r, sizeof r);
    return r;
}

Reach node_reach(Graph *g, const Node *n) { return reach_of(g, n, 0); }
