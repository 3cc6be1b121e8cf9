/* Random graphs: steps that add one node, or a few: elementwise primitives, casts, views, folds, joins, gathers, scatters, calls.
 *
 * Each carries the bounds and the error of its operands over to its result. Only exact values go through steps where the smallest difference would become a large
 * one (rounding, comparison, argmax). */
#include "gen_values.h"

#include <math.h>
#include <string.h>

/* ---- elementwise --------------------------------------------------------------------------------------------------- */
Val cast_val(Gen *s, Val v, DType to)
{
    DType from = v.n->dt;
    if (dtype_is_float(from) && to == DT_f16) v = tame(s, v, 3e4);
    Val r = v;
    r.n = g_cast(s->g, v.n, to);
    if (!dtype_is_float(to)) return of_int(r.n);
    if (!dtype_is_float(from)) {
        r.exact = true; r.err = 0; r.special = r.tiny = false;
        r.special = to == DT_f16 && mag(&r) > 6e4;
        r.whole = mag(&r) <= 0.4 / unit(to);
        r.lo -= fabs(r.lo) * 0.01; r.hi += fabs(r.hi) * 0.01;
        return r;
    }
    r.lo -= fabs(r.lo) * unit(to); r.hi += fabs(r.hi) * unit(to);
    return v.exact ? r : approx(r, v.err, 1);
}

void step_unary(Gen *s)
{
    static const Op ops[] = { OP_neg, OP_abs, OP_sqrt, OP_exp, OP_log, OP_log1p, OP_expm1, OP_sin, OP_cos, OP_tan, OP_asin, OP_acos, OP_atan, OP_sinh,
        OP_cosh, OP_tanh, OP_asinh, OP_acosh, OP_atanh, OP_erf, OP_neg, OP_abs, OP_exp, OP_sqrt, OP_tanh };
    Val v = pick(s, want_float);
    if (!v.n) return;
    v = tame(s, v, 1e3);
    Op op = ops[below(s, COUNT_OF(ops))];
    double e = v.err, m;
    switch (op) {
    case OP_neg: { double lo = v.lo; v.lo = -v.hi; v.hi = -lo; v.n = g1(s->g, op, v.n); keep(s, v); return; }
    case OP_abs: m = mag(&v); v.lo = v.lo > 0 ? v.lo : v.hi < 0 ? -v.hi : 0; v.hi = m; v.n = g1(s->g, op, v.n); keep(s, v); return;
    case OP_sqrt: {
        if (!v.exact || v.lo < 0) v = clamp(s, v, 0.25, INFINITY);
        Val a = v;
        v.n = g1(s->g, op, a.n); v.lo = sqrt(fmax(a.lo, 0)); v.hi = sqrt(a.hi); v.whole = false;
        keep(s, rounded_once(v, e, &a, NULL));
        return;
    }
    case OP_exp: case OP_expm1: case OP_sinh: case OP_cosh:
        v = clamp(s, v, -8, 8);
        m = exp(mag(&v));
        v.lo = op == OP_exp || op == OP_cosh ? 0 : -m; v.hi = m;
        e *= m; break;
    case OP_log: v = clamp(s, v, 0.25, INFINITY); v.lo = -2; v.hi = 12; e *= 4; break;
    case OP_log1p: v = clamp(s, v, -0.5, INFINITY); v.lo = -1; v.hi = 12; e *= 2; break;
    case OP_sin: case OP_cos: v.lo = -1; v.hi = 1; break;
    case OP_tan: v = clamp(s, v, -1, 1); v.lo = -1.6; v.hi = 1.6; e *= 4; break;
    case OP_asin: case OP_acos: v = clamp(s, v, -0.875, 0.875); v.lo = -1.6; v.hi = 3.2; e *= 3; break;
    case OP_atan: v.lo = -1.6; v.hi = 1.6; break;
    case OP_tanh: case OP_erf: v.lo = -1; v.hi = 1; e *= 1.2; break;
    case OP_asinh: v.lo = -12; v.hi = 12; break;
    case OP_acosh: v = clamp(s, v, 1.5, INFINITY); v.lo = 0; v.hi = 12; break;
    case OP_atanh: v = clamp(s, v, -0.875, 0.875); v.lo = -2; v.hi = 2; e *= 6; break;
    default: return;
    }
    v.n = g1(s->g, op, v.n);
    keep(s, approx(v, e, 12));
}

void step_round(Gen *s)
{
    static const Op ops[] = { OP_floor, OP_ceil, OP_trunc, OP_round };
    Val v = pick(s, want_exact_float);
    if (!v.n) return;
    v.n = g1(s->g, ops[below(s, 4)], v.n);
    v.lo = floor(v.lo); v.hi = ceil(v.hi);
    v.whole = !v.special;
    keep(s, v);
}

/* May a right kernel give 0 where the interpreter does not, or the other way round? Then infinity times it is NaN or infinite, and both are right. */
static bool may_vanish(const Val *v) { return !v->exact && v->lo <= v->err && v->hi >= -v->err; }

/* Infinities become numbers; NaN stays. */
static Val without_infinities(Gen *s, Val v)
{
    v.n = g2(s->g, OP_min, g2(s->g, OP_max, v.n, scalar_like(s, v.n, -8)), scalar_like(s, v.n, 8));
    v.lo = fmin(fmax(v.lo, -8), 8); v.hi = fmax(fmin(v.hi, 8), -8);
    return v;
}

/* Makes factors of which every right product is the same. */
void factors_agree(Gen *s, Val *a, Val *b)
{
    if (a->special && may_vanish(b)) *a = without_infinities(s, *a);
    if (b->special && may_vanish(a)) *b = without_infinities(s, *b);
}

Val binary(Gen *s, Op op, Val a, Val b)
{
    double most = a.n->dt == DT_f16 ? 3e4 : 1e6;
    Val v = a;
    v.special |= b.special; v.tiny |= b.tiny;
    v.whole = false;
    switch (op) {
    case OP_add: case OP_sub:
        if (mag(&a) + mag(&b) > most) { a = tame(s, a, 100); b = tame(s, b, 100); }
        v.lo = op == OP_add ? a.lo + b.lo : a.lo - b.hi; v.hi = op == OP_add ? a.hi + b.hi : a.hi - b.lo;
        v.n = g2(s->g, op, a.n, b.n);
        v.whole = a.whole && b.whole && mag(&v) < 0.4 / unit(v.n->dt);
        return rounded_once(v, a.err + b.err, &a, &b);
    case OP_mul: {
        factors_agree(s, &a, &b);
        if (mag(&a) * mag(&b) > most) { a = tame(s, a, 100); b = tame(s, b, 100); }
        double p[4] = { a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi };
        v.lo = fmin(fmin(p[0], p[1]), fmin(p[2], p[3])); v.hi = fmax(fmax(p[0], p[1]), fmax(p[2], p[3]));
        v.n = g2(s->g, op, a.n, b.n);
        v.whole = a.whole && b.whole && mag(&v) < 0.4 / unit(v.n->dt);
        v.tiny = !v.whole;
        return rounded_once(v, a.err * mag(&b) + b.err * mag(&a) + a.err * b.err, &a, &b);
    }
    case OP_div: {
        a = tame(s, a, 1e3);
        if (!(b.exact && b.special && !b.tiny && chance(s, 50)) && b.lo < 0.25 && b.hi > -0.25) {
            b.n = g1(s->g, OP_abs, b.n); b.hi = mag(&b); b.lo = 0;
            b = clamp(s, b, 0.25, INFINITY);
        }
        bool zero = b.lo < 0.25 && b.hi > -0.25;
        double least = zero ? 1e-3 : fmin(fabs(b.lo), fabs(b.hi));
        v.lo = -mag(&a) / least; v.hi = mag(&a) / least;
        v.special |= zero; v.tiny = true;
        v.n = g2(s->g, op, a.n, b.n);
        return rounded_once(v, a.err / least + mag(&a) * b.err / least / least, &a, &b);
    }
    default: return (Val){ 0 };
    }
}

void step_binary(Gen *s)
{
    static const Op ops[] = { OP_add, OP_sub, OP_mul, OP_div, OP_max, OP_min, OP_add, OP_mul, OP_sub };
    Val a = pick(s, want_float);
    if (!a.n) return;
    Val b = partner(s, a, want_any);
    if (!is_float(&b)) return;
    if (chance(s, 30)) { Val t = a; a = b; b = t; }
    Op op = ops[below(s, COUNT_OF(ops))];
    if (op == OP_max || op == OP_min) {
        Val v = join_bounds(a, &b);
        v.n = g2(s->g, op, a.n, b.n);
        keep(s, v);
    } else keep(s, binary(s, op, a, b));
}

void step_pow(Gen *s)
{
    Val a = pick(s, want_float);
    if (!a.n) return;
    Val b = partner(s, a, want_any);
    if (!is_float(&b)) return;
    a = clamp(s, a, 0.25, 4); b = clamp(s, b, -3, 3);
    Val v = a;
    v.n = g2(s->g, OP_pow, a.n, b.n); v.lo = 0; v.hi = 64; v.special |= b.special;
    keep(s, approx(v, 64 * (12 * a.err + 1.4 * b.err), 24));
}

void step_remainder(Gen *s)
{
    Val a = pick(s, want_exact_float);
    if (!a.n) return;
    Val b = partner(s, a, want_exact);
    if (!is_float(&b) || !b.exact) return;
    a = tame(s, a, 1e3); b = tame(s, b, 1e3);
    Val v = a;
    v.n = g2(s->g, chance(s, 50) ? OP_mod : OP_fmod, a.n, b.n);
    v.lo = -mag(&b); v.hi = mag(&b); v.special = true; v.tiny = true;
    keep(s, approx(v, 0, 2));
}

void step_integer(Gen *s)
{
    static const Op ops[] = { OP_add, OP_sub, OP_mul, OP_div, OP_mod, OP_fmod, OP_pow, OP_max, OP_min, OP_and, OP_or, OP_xor, OP_shl, OP_shr, OP_neg, OP_abs, OP_not };
    Val a = pick(s, want_int);
    if (!a.n) return;
    Op op = ops[below(s, COUNT_OF(ops))];
    if (prim_info[op].arity == 1) { keep(s, of_int(g1(s->g, op, a.n))); return; }
    Val b = partner(s, a, want_exact);
    if (b.n->dt != a.n->dt) return;
    if ((op == OP_shl || op == OP_shr) && chance(s, 60)) b = of_int(g2(s->g, OP_and, b.n, g_int(s->g, b.n->dt, 7)));
    keep(s, of_int(chance(s, 30) ? g2(s->g, op, b.n, a.n) : g2(s->g, op, a.n, b.n)));
}

static Node *truth(Gen *s, const Node *shape);

void step_logic(Gen *s)
{
    static const Op ops[] = { OP_and, OP_or, OP_xor, OP_eq };
    Val a = pick(s, want_bool);
    if (!a.n) return;
    if (chance(s, 25)) { keep(s, of_int(g1(s->g, OP_not, a.n))); return; }
    Val b = partner(s, a, want_bool);
    keep(s, of_int(g2(s->g, ops[below(s, 4)], a.n, b.n)));
}

void step_compare(Gen *s)
{
    static const Op ops[] = { OP_lt, OP_le, OP_eq };
    Val a = pick(s, want_exact_number);
    if (!a.n) return;
    Val b = partner(s, a, want_exact);
    if (b.n->dt != a.n->dt || !b.exact) return;
    keep(s, of_int(g2(s->g, ops[below(s, 3)], a.n, b.n)));
}

/* A condition that broadcasts with x: a value, or a mask made of positions. */
static Node *truth(Gen *s, const Node *x)
{
    for (int tries = 0; tries < 6; tries++) {
        Val c = pick(s, want_bool);
        if (c.n && fits(c.n, x) && broadcast_elements(s, c.n, x) <= s->most && chance(s, 70)) return c.n;
    }
    if (x->rank >= 2 && chance(s, 60)) {
        Dim *const *d = x->dims + x->rank - 2;
        Node *i = g_iota(s->g, 2, d, 0), *j = g_iota(s->g, 2, d, 1);
        Node *c = g2(s->g, OP_le, j, i);
        if (chance(s, 40)) c = g2(s->g, OP_and, c, g2(s->g, OP_lt, g2(s->g, OP_sub, i, j), g_int(s->g, DT_i64, 3)));
        return c;
    }
    if (x->rank) return g2(s->g, OP_lt, g_iota(s->g, 1, x->dims + x->rank - 1, 0), g_int(s->g, DT_i64, below(s, 9)));
    return g2(s->g, OP_eq, g_int(s->g, DT_i64, 1), g_int(s->g, DT_i64, 1));
}

void step_where(Gen *s)
{
    Val a = pick(s, want_any);
    if (!a.n) return;
    Val b = partner(s, a, want_any);
    if (b.n->dt != a.n->dt) return;
    if (chance(s, 15) && is_float(&a)) { b = of_range(scalar_like(s, a.n, -INFINITY), 0, 0); b.special = true; b.whole = true; }
    const Node *big = elements(s, a.n->rank, a.n->dims) >= elements(s, b.n->rank, b.n->dims) ? a.n : b.n;
    Node *c = truth(s, big);
    if (!fits(c, a.n) || !fits(c, b.n) || broadcast_elements(s, c, big) > s->most) return;
    Val v = join_bounds(a, &b);
    v.n = chance(s, 30) ? g_where(s->g, c, b.n, a.n) : g_where(s->g, c, a.n, b.n);
    keep(s, v);
}

DType any_dtype(Gen *s)
{
    static const DType few[] = { DT_f32, DT_f32, DT_f32, DT_f32, DT_f32, DT_f16, DT_bf16, DT_f64, DT_i64, DT_i32, DT_bool };
    static const DType rest[] = { DT_i8, DT_i16, DT_u8, DT_u16, DT_u32, DT_u64 };
    return chance(s, 85) ? few[below(s, COUNT_OF(few))] : rest[below(s, COUNT_OF(rest))];
}

void step_cast(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n) return;
    DType to = any_dtype(s);
    if (!v.exact && !dtype_is_float(to)) to = DT_f32;
    keep(s, cast_val(s, v, to));
}

void step_bitcast(Gen *s)
{
    Val v = pick(s, want_exact);
    if (!v.n || v.special || v.n->dt == DT_bool) return;
    static const DType one[] = { DT_i8, DT_u8 }, two[] = { DT_i16, DT_u16, DT_f16, DT_bf16 }, four[] = { DT_i32, DT_u32, DT_f32 }, eight[] = { DT_i64, DT_u64, DT_f64 };
    DType to = dtype_size(v.n->dt) == 1 ? one[below(s, 2)] : dtype_size(v.n->dt) == 2 ? two[below(s, 4)] : dtype_size(v.n->dt) == 4 ? four[below(s, 3)] : eight[below(s, 3)];
    Node *n = g_bitcast(s->g, v.n, to);
    if (!dtype_is_float(to)) { keep(s, of_int(n)); return; }
    Val r = of_range(n, -1e38, 1e38);
    r.special = r.tiny = true;
    keep(s, clamp(s, r, -8, 8));
}

/* ---- views --------------------------------------------------------------------------------------------------------- */
static void keep_as(Gen *s, Val v, Node *n) { v.n = n; keep(s, v); }

void step_reshape(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n) return;
    Node *x = v.n;
    Dim *d[MAX_RANK]; int rank = x->rank, k;
    for (k = 0; k < rank; k++) d[k] = x->dims[k];
    switch (below(s, 5)) {
    case 0: d[0] = g_count(s->g, x); rank = 1; break;
    case 1:
        if (rank < 2) return;
        k = below(s, rank - 1);
        d[k] = dim_mul(s->g, d[k], d[k + 1]);
        for (int j = k + 1; j + 1 < rank; j++) d[j] = d[j + 1];
        rank--;
        break;
    case 2: {
        if (!rank || rank > 5) return;
        k = below(s, rank);
        int f = 2 + below(s, 2);
        if (!dim_is_const(d[k]) || d[k]->c % f) return;
        for (int j = rank; j > k; j--) d[j] = d[j - 1];
        d[k] = num(s, d[k]->c / f); d[k + 1] = num(s, f); rank++;
        break;
    }
    case 3: if (rank < 2) return; k = below(s, rank - 1); { Dim *t = d[k]; d[k] = d[k + 1]; d[k + 1] = t; } break;
    default:                            /* a shape of another value with as many elements */
        for (int i = s->val.n - 1; i >= 0; i--) {
            Node *y = s->val.at[i].n;
            if (y->rank == x->rank || g_count(s->g, y) != g_count(s->g, x)) continue;
            keep_as(s, v, g_reshape(s->g, x, y->rank, y->dims));
            return;
        }
        return;
    }
    keep_as(s, v, g_reshape(s->g, x, rank, d));
}

void step_transpose(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n || v.n->rank < 2) return;
    int perm[MAX_RANK];
    for (int k = 0; k < v.n->rank; k++) perm[k] = k;
    for (int k = v.n->rank - 1; k > 0; k--) { int j = below(s, k + 1), t = perm[k]; perm[k] = perm[j]; perm[j] = t; }
    keep_as(s, v, g_transpose(s->g, v.n, perm));
}

void step_expand(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n || v.n->rank > 4) return;
    Dim *d[MAX_RANK]; int more = below(s, 2), rank = v.n->rank + more;
    for (int k = 0; k < rank; k++) d[k] = k < more ? any_size(s) : dim_is(v.n->dims[k - more], 1) ? any_size(s) : v.n->dims[k - more];
    if (elements(s, rank, d) > s->most) return;
    keep_as(s, v, g_expand(s->g, v.n, rank, d));
}

void step_slice(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n || !v.n->rank) return;
    int axis = below(s, v.n->rank);
    Dim *n = v.n->dims[axis], *start, *count;
    int64_t h = hint(s, n), step = (int64_t[]){ 1, 2, -1, -2, 3, -3 }[below(s, 6)];
    if (!h) return;
    if (dim_is_const(n)) {
        int64_t at = below(s, (int)h), room = step > 0 ? (h - 1 - at) / step + 1 : at / -step + 1;
        start = num(s, at); count = num(s, chance(s, 5) ? 0 : room - below(s, (int)(room > 2 ? room / 2 : 1)));
    } else if (step == 1) {
        if (h < 2) return;
        start = num(s, chance(s, 50)); count = dim_addc(s->g, n, -1);
    } else {
        start = step > 0 ? num(s, 0) : dim_addc(s->g, n, -1);
        count = dim_ceildiv(s->g, n, num(s, step > 0 ? step : -step));
    }
    keep_as(s, v, g_slice(s->g, v.n, axis, start, count, step));
}

static Scalar any_fill(Gen *s, Val *v)
{
    static const double few[] = { 0, 0, 1, -2.5, -INFINITY };
    double f = few[below(s, 5)];
    if (!is_float(v)) return scalar_cast(v->n->dt, DT_f64, (Scalar){ .f = isinf(f) ? 3 : f }, false);
    if (isinf(f)) v->special = true;
    else { v->lo = fmin(v->lo, f); v->hi = fmax(v->hi, f); v->whole = v->whole && f == rint(f); }
    return (Scalar){ .f = f };
}

void step_pad(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n || !v.n->rank) return;
    Dim *before[MAX_RANK], *after[MAX_RANK], *d[MAX_RANK];
    for (int k = 0; k < v.n->rank; k++) {
        int a = chance(s, 50) ? 0 : below(s, 5) - 2, b = chance(s, 50) ? 0 : below(s, 5) - 2;
        if (hint(s, v.n->dims[k]) + a + b < 1) a = b = 0;
        before[k] = num(s, a); after[k] = num(s, b);
        d[k] = dim_addc(s->g, v.n->dims[k], a + b);
    }
    if (elements(s, v.n->rank, d) > s->most) return;
    Scalar fill = any_fill(s, &v);
    keep_as(s, v, g_pad(s->g, v.n, before, after, fill));
}

void step_small_view(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n) return;
    int k;
    switch (below(s, 3)) {
    case 0: if (v.n->rank) keep_as(s, v, g_flip(s->g, v.n, below(s, v.n->rank))); return;
    case 1: if (v.n->rank < 5) keep_as(s, v, g_unsqueeze(s->g, v.n, below(s, v.n->rank + 1))); return;
    default:
        for (k = 0; k < v.n->rank; k++) if (dim_is(v.n->dims[k], 1)) { keep_as(s, v, g_squeeze(s->g, v.n, k)); return; }
    }
}

/* Windows along the last axis: [..., n] to [..., m, k], with padding perhaps. */
static Node *windows(Gen *s, Val *v, int width, int stride, int dilation, bool pad, double fill)
{
    Graph *g = s->g;
    Node *x = v->n;
    int last = x->rank - 1, side = pad ? (width - 1) * dilation / 2 : 0;
    Dim *span = num(s, (width - 1) * dilation + 1), *dims[MAX_RANK], *idx[MAX_RANK];
    Dim *room = dim_sub(g, dim_addc(g, x->dims[last], 2 * side), span);
    if (hint(s, room) < 0 || !dim_decide_lt(g, num(s, -1), room, "a window fits")) return NULL;
    for (int k = 0; k < last; k++) { dims[k] = x->dims[k]; idx[k] = dim_idx(g, k, dims[k]); }
    dims[last] = dim_addc(g, dim_div(g, room, num(s, stride)), 1);
    dims[last + 1] = num(s, width);
    idx[last] = dim_add(g, dim_mulc(g, dim_idx(g, last, dims[last]), stride), dim_addc(g, dim_mulc(g, dim_idx(g, last + 1, dims[last + 1]), dilation), -side));
    Pred p = { idx[last], x->dims[last] };
    return g_view(g, x, x->rank + 1, dims, &(View){ .nidx = x->rank, .idx = idx, .npred = side > 0, .pred = &p, .fill = { .f = fill } });
}

Val fold_val(Gen *s, FoldKind kind, Val v, uint32_t axes, bool keep_axes);

void step_window(Gen *s)
{
    Val v = pick(s, want_float);
    if (!v.n || !v.n->rank || v.n->rank > 4 || has_zero(v.n)) return;
    int width = 1 + below(s, 4);
    bool pool = chance(s, 40), pad = chance(s, 50);
    v = tame(s, v, 100);
    Node *n = windows(s, &v, width, 1 + below(s, 2), 1 + below(s, 2), pad, pool ? -INFINITY : 0);
    if (!n || elements(s, n->rank, n->dims) > 2 * s->most) return;
    v.n = n;
    if (pool) { v.special |= pad; keep(s, fold_val(s, FOLD_max, v, axis_bit(n->rank - 1), false)); return; }
    v.lo = fmin(v.lo, 0); v.hi = fmax(v.hi, 0);
    Tensor *t = tensor_new(s->c->arena, s->cx, n->dt, 2, (int64_t[]){ 3, width });
    for (int j = 0; j < 3 * width; j++) scalar_store(n->dt, tensor_at(t, j), (Scalar){ .f = below(s, 5) - 2 });
    Node *w = g_const(s->g, t);
    /* [..., m, k] * [3, k] -> [..., m, 3, k] -> [..., m, 3] */
    Val f = of_range(w, -2, 2), x = v;
    f.whole = true;
    x.n = g_unsqueeze(s->g, n, n->rank - 1);
    keep(s, fold_val(s, FOLD_sum, binary(s, OP_mul, x, f), axis_bit(x.n->rank - 1), false));
}

/* ---- folds --------------------------------------------------------------------------------------------------------- */
double fold_count(Gen *s, const Node *x, uint32_t axes)
{
    double n = 1;
    for (int k = 0; k < x->rank; k++) if (axes >> k & 1) n *= most_of(s, x->dims[k]);
    return n;
}

Val sum_bounds(Val v, DType dt, double n)
{
    double in = mag(&v), u = dt == DT_f64 ? 1.2e-16 : 6e-8;
    bool exact = v.exact && v.whole && n * in < 0.4 / u;
    v.lo = fmin(0, v.lo * n); v.hi = fmax(0, v.hi * n);
    if (exact) { v.whole = n * in < 0.4 / unit(dt); return v; }
    return approx(v, n * v.err + n * n * u * in, 2);
}

Val fold_val(Gen *s, FoldKind kind, Val v, uint32_t axes, bool keep_axes)
{
    double n = fold_count(s, v.n, axes);
    bool none = false;
    for (int k = 0; k < v.n->rank; k++) none |= (axes >> k & 1) && dim_is(v.n->dims[k], 0);
    if (!is_float(&v)) return of_int(g_fold(s->g, kind, v.n, axes, keep_axes));
    DType dt = v.n->dt;
    switch (kind) {
    case FOLD_sum: {
        double most = dt == DT_f16 ? 3e4 : 1e7;
        if (mag(&v) * n > most) v = clamp(s, v, -8, 8);
        if (mag(&v) * n > most) v = clamp(s, v, -1, 1);
        Val r = sum_bounds(v, dt, n);
        r.n = g_fold(s->g, kind, v.n, axes, keep_axes);
        return r;
    }
    case FOLD_prod: {
        if (n > 64) kind = FOLD_min;
        else {
            v = clamp(s, v, 0.875, 1.125);
            Val r = v;
            double m = pow(1.125, n);
            r.n = g_fold(s->g, kind, v.n, axes, keep_axes); r.lo = 0; r.hi = fmax(m, 1);
            return approx(r, n * m * (v.err + unit(dt)), n);
        }
    }   /* fall through */
    default: {
        Val r = v;
        r.n = g_fold(s->g, kind, v.n, axes, keep_axes);
        r.special |= none;
        return r;
    }
    }
}

uint32_t any_axes(Gen *s, const Node *x)
{
    if (!x->rank) return 0;
    if (chance(s, 50)) return axis_bit(x->rank - 1);
    return (uint32_t)below(s, 1 << x->rank);
}

void step_fold(Gen *s)
{
    static const FoldKind kinds[] = { FOLD_sum, FOLD_sum, FOLD_sum, FOLD_max, FOLD_min, FOLD_prod };
    Val v = pick(s, want_any);
    if (!v.n) return;
    FoldKind kind = kinds[below(s, 6)];
    if (v.n->dt == DT_bool && (kind == FOLD_sum || kind == FOLD_prod)) kind = chance(s, 50) ? FOLD_max : FOLD_min;
    keep(s, fold_val(s, kind, v, any_axes(s, v.n), chance(s, 50)));
}

void step_argfold(Gen *s)
{
    Val v = pick(s, want_exact_number);
    if (!v.n || !v.n->rank) return;
    int axis = chance(s, 60) ? v.n->rank - 1 : below(s, v.n->rank);
    if (dim_is(v.n->dims[axis], 0)) return;
    Val r = of_int(g_argfold(s->g, chance(s, 50) ? FOLD_argmax : FOLD_argmin, v.n, axis, chance(s, 40), chance(s, 30)));
    r.lo = 0; r.hi = most_of(s, v.n->dims[axis]);
    keep(s, r);
}

void step_scan(Gen *s)
{
    static const FoldKind kinds[] = { FOLD_sum, FOLD_sum, FOLD_max, FOLD_min, FOLD_prod };
    Val v = pick(s, want_any);
    if (!v.n || !v.n->rank) return;
    FoldKind kind = kinds[below(s, 5)];
    int axis = below(s, v.n->rank);
    double n = most_of(s, v.n->dims[axis]);
    if (v.n->dt == DT_bool) kind = FOLD_max;
    bool exclusive = chance(s, 30), reverse = chance(s, 30);
    if (!is_float(&v)) { keep(s, of_int(g_scan(s->g, kind, v.n, axis, exclusive, reverse))); return; }
    Val r;
    if (s->states && chance(s, 40)) {    /* a recurrence: factors from -1 to 1 */
        Val f = clamp(s, partner(s, v, want_float), chance(s, 60) ? 0 : -1, 1);
        if (f.n && f.n->dt == v.n->dt && expands_to(f.n, v.n->rank, v.n->dims)) {
            if (mag(&v) * n > 3e4) v = clamp(s, v, -8, 8);
            r = sum_bounds(v, v.n->dt, n);
            r.lo = -mag(&r); r.hi = -r.lo; r.special |= f.special;
            r = approx(r, r.err + n * mag(&r) * (f.err + unit(v.n->dt)), 2);
            r.n = g_recurrence(s->g, v.n, f.n, axis, reverse);
            keep(s, r);
            return;
        }
    }
    if (kind == FOLD_prod && n > 64) kind = FOLD_max;
    if (kind == FOLD_prod) {
        v = clamp(s, v, 0.875, 1.125);
        r = v; r.lo = 0; r.hi = fmax(1, pow(1.125, n));
        r = approx(r, n * r.hi * (v.err + unit(v.n->dt)), n);
    } else if (kind == FOLD_sum) {
        if (mag(&v) * n > 3e4) v = clamp(s, v, -8, 8);
        r = sum_bounds(v, v.n->dt, n);
    } else {
        r = v;
        r.special |= exclusive;
    }
    r.n = g_scan(s->g, kind, v.n, axis, exclusive, reverse);
    keep(s, r);
}

/* ---- join, gather, scatter ----------------------------------------------------------------------------------------- */
void step_join(Gen *s)
{
    Val a = pick(s, want_any);
    if (!a.n || !a.n->rank) return;
    int axis = below(s, a.n->rank), n = 2 + below(s, 2);
    Node *piece[3] = { a.n };
    int m = 1;
    Val v = a;
    for (int tries = 0; tries < 20 && m < n; tries++) {
        Val b = pick(s, want_any);
        bool same = b.n && b.n->dt == a.n->dt && b.n->rank == a.n->rank;
        for (int k = 0; same && k < a.n->rank; k++) same = k == axis || b.n->dims[k] == a.n->dims[k];
        if (!same) continue;
        v = join_bounds(v, &b);
        piece[m++] = b.n;
    }
    if (m == 1) piece[m++] = a.n;
    if (elements(s, a.n->rank, a.n->dims) * m > s->most) return;
    v.n = g_join(s->g, m, piece, axis);
    keep(s, v);
}

/* i64 numbers below `size`, of some shape that broadcasts to dims; made of an integer value, or of positions. */
static Node *indices(Gen *s, Dim *size, int rank, Dim *const *dims)
{
    Graph *g = s->g;
    Node *n = NULL;
    for (int tries = 0; tries < 10 && !n; tries++) {
        Val v = pick(s, want_int);
        if (v.n && (rank < 0 || expands_to(v.n, rank, dims))) n = v.n;
    }
    if (!n) n = rank > 0 ? g2(g, OP_mul, g_iota(g, 1, dims + rank - 1, 0), g_int(g, DT_i64, 3)) : g_int(g, DT_i64, below(s, 50));
    return g2(g, OP_mod, g_cast(g, n, DT_i64), g_dims(g, 0, 1, &size));
}

void step_gather_axis(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n || !v.n->rank || v.n->rank > 3) return;
    int axis = below(s, v.n->rank);
    if (dim_is(v.n->dims[axis], 0)) return;
    Node *at = indices(s, v.n->dims[axis], -1, NULL);
    if (at->rank > 2 || elements(s, v.n->rank, v.n->dims) * elements(s, at->rank, at->dims) > s->most * hint(s, v.n->dims[axis])) return;
    if (chance(s, 40)) at = g2(s->g, OP_sub, at, g_dims(s->g, 0, 1, &v.n->dims[axis]));
    if (chance(s, 30)) at = g_cast(s->g, at, DT_i32);
    keep_as(s, v, g_gather_axis(s->g, v.n, at, axis));
}

/* Each axis of the source by an index operand, or by an axis of the result. */
void step_gather(Gen *s)
{
    Graph *g = s->g;
    Val v = pick(s, want_any);
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    if (!v.n || !v.n->rank || has_zero(v.n)) return;
    int rank = 1 + below(s, 3), nindex = 0;
    for (int k = 0; k < rank; k++) dims[k] = k < v.n->rank && chance(s, 60) ? v.n->dims[k] : any_size(s);
    if (elements(s, rank, dims) > s->most) return;
    Node *at[MAX_RANK];
    for (int k = 0; k < v.n->rank; k++) {
        if (k < rank && dims[k] == v.n->dims[k] && (chance(s, 60) || (nindex == 2))) { idx[k] = dim_idx(g, k, dims[k]); continue; }
        if (nindex == 3) {
            if (!dim_prove_lt(g, num(s, 0), v.n->dims[k])) return;   /* other sizes leave it no element 0 */
            idx[k] = num(s, 0);
            continue;
        }
        at[nindex] = g_expand(g, indices(s, v.n->dims[k], rank, dims), rank, dims);
        idx[k] = dim_idx(g, DIM_OPERAND + nindex++, v.n->dims[k]);
    }
    if (!nindex) return;
    keep_as(s, v, g_gather(g, v.n, nindex, at, rank, dims, &(View){ .nidx = v.n->rank, .idx = idx }));
}

void step_scatter(Gen *s)
{
    Graph *g = s->g;
    Combine how = (Combine)below(s, COMBINE_COUNT);
    Val v = pick(s, how == COMBINE_add || how == COMBINE_mul ? want_wide : want_number);
    if (!v.n || !v.n->rank || has_zero(v.n)) return;
    Val u = (Val){ 0 };
    for (int tries = 0; tries < 20 && !u.n; tries++) {
        u = pick(s, want_any);
        if (u.n && (u.n->dt != v.n->dt || u.n->rank > 3)) u.n = NULL;
    }
    if (!u.n) return;
    if (is_float(&v)) { v = tame(s, v, 100); u = tame(s, u, 100); }
    double n = 1;
    for (int k = 0; k < u.n->rank; k++) n *= most_of(s, u.n->dims[k]);
    Val r = join_bounds(v, &u);
    if (is_float(&v) && how == COMBINE_mul) {
        if (n > 64) how = COMBINE_set;
        else { u = clamp(s, u, 0.875, 1.125); r = v; r.special |= u.special; r.hi = mag(&v) * pow(1.125, n); r.lo = -r.hi; r = approx(r, r.hi * n * (u.err + v.err + unit(v.n->dt)), n); }
    }
    if (is_float(&v) && how == COMBINE_add) { r = join_bounds(v, &u); r = sum_bounds(r, v.n->dt, n + 1); }
    Dim *idx[MAX_RANK]; Node *at[MAX_RANK]; int nindex = 0;
    for (int k = 0; k < v.n->rank; k++) {
        if (k < u.n->rank && u.n->dims[k] == v.n->dims[k] && chance(s, 50)) { idx[k] = dim_idx(g, k, u.n->dims[k]); continue; }
        if (nindex == 3) {
            if (!dim_prove_lt(g, num(s, 0), v.n->dims[k])) return;   /* other sizes leave it no element 0 */
            idx[k] = num(s, 0);
            continue;
        }
        at[nindex] = g_expand(g, indices(s, v.n->dims[k], u.n->rank, u.n->dims), u.n->rank, u.n->dims);
        idx[k] = dim_idx(g, DIM_OPERAND + nindex++, v.n->dims[k]);
    }
    r.n = g_scatter(g, v.n, u.n, nindex, at, &(View){ .nidx = v.n->rank, .idx = idx }, how);
    if (!is_float(&v)) r = of_int(r.n);
    keep(s, r);
}

/* ---- calls ----------------------------------------------------------------------------------------------------------- */
/* An opaque function of a whole tensor with two results: the tensor, and its elements backwards. */
static void both_ways(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    int64_t n = tensor_count(in);
    (void)a; (void)call;
    for (int k = 0; k < 2; k++) {
        void *data = out[k].data;
        tensor_init(cx, &out[k], in->dt, in->rank, in->dims);
        out[k].data = data;
        for (int64_t j = 0; j < n; j++) memcpy(tensor_at(&out[k], j), tensor_at(in, k ? n - 1 - j : j), dtype_size(in->dt));
    }
}
static const CallDef both_ways_call = { .name = "both_ways", .dynamic = false, .eval = both_ways };

void step_call(Gen *s)
{
    Val v = pick(s, want_any);
    if (!v.n) return;
    const DType dt[2] = { v.n->dt, v.n->dt };
    int rank[2] = { v.n->rank, v.n->rank };
    Dim *const *dims[2] = { v.n->dims, v.n->dims };
    Node **part = g_call(s->g, &(Call){ .def = &both_ways_call, .nin = 1, .nout = 2, .out_dt = dt }, &v.n, rank, dims);
    int which = below(s, 3);
    if (which != 1) keep_as(s, v, part[0]);
    if (which != 0) keep_as(s, v, part[1]);
}
