/* Random graphs: steps that add what models are made of: products of matrices, softmax, norms, attention, sigmoid.
 *
 * Attention comes in two kinds: of values that are there, and of inputs of its own whose sizes are such that it is streamed. */
#include "gen_values.h"

#include <math.h>
#include <string.h>

static Val matmul_val(Gen *s, Val a, Val b)
{
    Dim *inner = a.n->dims[a.n->rank - 1];
    double n = most_of(s, inner);
    DType dt = a.n->dt;
    factors_agree(s, &a, &b);
    a = tame(s, a, 30); b = tame(s, b, 30);
    Val v = a;
    v.special |= b.special;
    v.lo = -mag(&a) * mag(&b); v.hi = -v.lo;
    v.whole = a.whole && b.whole; v.exact = a.exact && b.exact;
    v.err = v.exact ? 0 : a.err * mag(&b) + b.err * mag(&a) + a.err * b.err;
    v = sum_bounds(v, dt, n);
    v.special |= dt == DT_f16 && mag(&v) > 6e4;
    v.tiny = !v.whole;
    v.n = g_matmul(s->g, a.n, b.n);
    return v;
}

void step_matmul(Gen *s)
{
    Val a = pick(s, want_float);
    if (!a.n || !a.n->rank || a.n->rank > 4) return;
    for (int tries = 0; tries < 30; tries++) {
        Val b = pick(s, want_any);
        if (!b.n || !b.n->rank || b.n->rank > 4) continue;
        Dim *inner = a.n->dims[a.n->rank - 1];
        if (b.n->dims[b.n->rank > 1 ? b.n->rank - 2 : 0] != inner) {
            if (b.n->rank < 2 || b.n->dims[b.n->rank - 1] != inner) continue;
            int perm[MAX_RANK];
            for (int k = 0; k < b.n->rank; k++) perm[k] = k;
            perm[b.n->rank - 1]--; perm[b.n->rank - 2]++;
            b.n = g_transpose(s->g, b.n, perm);
        }
        if (b.n->dt != a.n->dt) { if (!b.exact && !is_float(&b)) continue; b = tame(s, cast_val(s, b, a.n->dt), 30); }
        Node ba = { .rank = a.n->rank > 2 ? a.n->rank - 2 : 0, .dims = a.n->dims }, bb = { .rank = b.n->rank > 2 ? b.n->rank - 2 : 0, .dims = b.n->dims };
        if (!fits(&ba, &bb)) continue;
        int64_t work = broadcast_elements(s, &ba, &bb) * hint(s, inner) * (a.n->rank > 1 ? hint(s, a.n->dims[a.n->rank - 2]) : 1) * (b.n->rank > 1 ? hint(s, b.n->dims[b.n->rank - 1]) : 1);
        if (work > 20000) continue;
        keep(s, matmul_val(s, a, b));
        return;
    }
}

void reduce_places(Gen *s)
{
    static const FoldKind kinds[] = { FOLD_sum, FOLD_sum, FOLD_max, FOLD_min, FOLD_prod };
    Val v = s->val.at[s->val.n - 1];
    if (!is_float(&v) || v.n->rank < 2 || chance(s, 20)) return;
    for (int i = below(s, 3); i > 0; i--) {
        Val b = partner(s, v, want_float);
        if (chance(s, 50)) v = clamp(s, v, -4, 6);
        else if (b.n && b.n->dt == v.n->dt && expands_to(b.n, v.n->rank, v.n->dims)) v = binary(s, chance(s, 50) ? OP_add : OP_mul, tame(s, v, 100), tame(s, b, 100));
    }
    if (chance(s, 40)) keep(s, v);
    uint32_t axes = 1 + (uint32_t)below(s, (1 << (v.n->rank - 1)) - 1);
    for (int i = 1 + below(s, 3); i > 0; i--) {
        Val r = fold_val(s, kinds[below(s, 5)], v, axes, chance(s, 50));
        keep(s, r);
        if (chance(s, 40)) keep(s, tame(s, r, 3));
    }
}

static Val softmax_val(Gen *s, Val v, uint32_t axes, bool logarithm)
{
    double n = fold_count(s, v.n, axes), m = mag(&v);
    Val r = v;
    r.n = g_softmax(s->g, v.n, axes, logarithm);
    r.lo = logarithm ? -2 * m - log(n + 1) - 1 : 0; r.hi = logarithm ? 0 : 1;
    double u = v.n->dt == DT_f64 ? 1.2e-16 : 6e-8;
    return approx(r, 4 * v.err + u * (2 * n + 32) * fmax(1, 2 * m + log(n + 1)), 4);
}

void step_softmax(Gen *s)
{
    Val v = pick(s, want_float);
    if (!v.n || !v.n->rank) return;
    uint32_t axes = chance(s, 70) ? axis_bit(v.n->rank - 1) : axis_bit(below(s, v.n->rank));
    for (int k = 0; k < v.n->rank; k++) if ((axes >> k & 1) && dim_is(v.n->dims[k], 0)) return;
    keep(s, softmax_val(s, tame(s, v, 50), axes, chance(s, 25)));
}

static Val mean_val(Gen *s, Val v, uint32_t axes, bool keep_axes)
{
    double n = fold_count(s, v.n, axes), u = v.n->dt == DT_f64 ? 1.2e-16 : 6e-8;
    Val r = v;
    for (int k = 0; k < v.n->rank; k++) r.special |= (axes >> k & 1) && dim_is(v.n->dims[k], 0);
    r.n = g_mean(s->g, v.n, axes, keep_axes);
    return approx(r, v.err + n * u * mag(&v), 3);
}

void step_norm(Gen *s)
{
    Graph *g = s->g;
    Val x = pick(s, want_float);
    if (!x.n || !x.n->rank) return;
    uint32_t axes = chance(s, 70) ? axis_bit(x.n->rank - 1) : any_axes(s, x.n);
    if (!axes) return;
    x = tame(s, x, 50);
    Val mean = mean_val(s, x, axes, true), d = binary(s, OP_sub, x, mean);
    Val var = mean_val(s, binary(s, OP_mul, d, d), axes, true);
    var.lo = 0; var.hi = fmax(var.hi, 0);
    if (chance(s, 30)) keep(s, var);
    if (chance(s, 30)) keep(s, mean);
    var.n = g2(g, OP_add, var.n, scalar_like(s, var.n, 0.25)); var.lo = 0.2; var.hi += 0.3;
    double e = var.err;
    var.n = g1(g, OP_sqrt, var.n); var.lo = 0.4; var.hi = sqrt(var.hi) + 1;
    var = approx(var, 1.2 * e, 4);
    Val y = binary(s, OP_div, d, var);
    if (chance(s, 60)) y = binary(s, OP_mul, y, of_range(scalar_like(s, y.n, 1.5), 1.5, 1.5));
    keep(s, y);
}

/* An input of plain numbers with these sizes; n NULL when there is no room for it. */
static Val own_input(Gen *s, int rank, const int64_t *size)
{
    Case *c = s->c;
    if (c->nin == FUZZ_INPUTS) return (Val){ 0 };
    Tensor *t = &c->in[c->nin], *shape = NEW(c->arena, Tensor);
    *t = *tensor_new(c->arena, s->cx, DT_f32, rank, size);
    c->fill[c->nin] = FILL_real;
    fill_tensor(&s->r, FILL_real, t);
    *shape = *t;
    shape->data = NULL;
    Node *n = graph_input(s->g, arena_fmt(c->arena, "x%d", c->nin++), DT_f32, rank, size, NULL, shape);
    return leaf_val(n, FILL_real);
}

/* Attention of a size that is streamed: rows for vectors or one, and an axis of several blocks, with a mask or none, scaled or biased. */
static void streamed_attention(Gen *s)
{
    int64_t heads = 1 + below(s, 2), rows = 16 + below(s, 90), steps = 32 + below(s, 200), d = 1 + below(s, 9), e = 1 + below(s, 9);
    if (chance(s, 25)) {
        rows = 1;
        if (chance(s, 15)) { steps += 16300; heads = 1; d = 1 + below(s, 3); e = 1 + below(s, 3); }       /* in parts */
        else { steps += 256; d += below(s, 20); e += below(s, 20); }
    }
    Val q = own_input(s, 3, (int64_t[]){ heads, rows, d }), k = own_input(s, 3, (int64_t[]){ heads, steps, d }), v = own_input(s, 3, (int64_t[]){ chance(s, 70) ? heads : 1, steps, e });
    if (!q.n || !k.n || !v.n) return;
    k.n = g_transpose(s->g, k.n, (int[]){ 0, 2, 1 });
    Val score = tame(s, matmul_val(s, tame(s, q, 8), tame(s, k, 8)), 50);
    if (!usable(&score)) return;
    if (chance(s, 30)) { Val b = own_input(s, 2, (int64_t[]){ chance(s, 50) ? rows : 1, steps }); if (b.n) score = tame(s, binary(s, OP_add, score, b), 50); }
    Node *i = g_iota(s->g, 3, score.n->dims, 1), *j = g_iota(s->g, 3, score.n->dims, 2), *far = g2(s->g, OP_sub, i, j), *c = NULL, *w = g_int(s->g, DT_i64, 1 + below(s, 60));
    switch (below(s, 6)) {
    case 0: c = g2(s->g, OP_le, j, i); break;
    case 1: c = g2(s->g, OP_and, g2(s->g, OP_le, j, i), g2(s->g, OP_lt, far, w)); break;
    case 2: c = g2(s->g, OP_le, g1(s->g, OP_abs, far), w); break;
    case 3: c = g2(s->g, OP_or, g2(s->g, OP_lt, j, w), g2(s->g, OP_eq, i, j)); break;
    case 4: c = g1(s->g, OP_not, g2(s->g, OP_lt, g2(s->g, OP_add, i, w), g2(s->g, OP_add, j, j))); break;
    default: break;
    }
    if (c) score.n = g_where(s->g, c, score.n, scalar_like(s, score.n, chance(s, 80) ? -INFINITY : -1e4));
    score.special |= c != NULL;         /* rows without any step are NaN */
    Val scores = score;
    score = softmax_val(s, score, axis_bit(2), false);
    if (chance(s, 25)) keep(s, fold_val(s, FOLD_sum, binary(s, OP_mul, score, scores), axis_bit(2), chance(s, 50)));
    if (!c && chance(s, 40)) keep(s, fold_val(s, FOLD_sum, binary(s, OP_mul, score, softmax_val(s, scores, axis_bit(2), true)), axis_bit(2), false));
    if (chance(s, 25)) { Val u = own_input(s, 3, (int64_t[]){ heads, steps, chance(s, 50) ? e : 1 + below(s, 9) }); if (u.n) keep(s, matmul_val(s, score, u)); }
    if (chance(s, 25)) keep(s, fold_val(s, FOLD_max, scores, axis_bit(2), true));
    if (chance(s, 90)) keep(s, matmul_val(s, score, v));
}

/* Linear attention as a masked product, with decay or without. */
static void linear_attention(Gen *s)
{
    Graph *g = s->g;
    int64_t heads = 1 + below(s, 2), steps = 16 + below(s, 150), d = 1 + below(s, 9), e = 1 + below(s, 20);
    Val q = own_input(s, 3, (int64_t[]){ heads, steps, d }), k = own_input(s, 3, (int64_t[]){ heads, steps, d }), v = own_input(s, 3, (int64_t[]){ heads, steps, e });
    if (!q.n || !k.n || !v.n) return;
    k.n = g_transpose(g, k.n, (int[]){ 0, 2, 1 });
    Val score = matmul_val(s, clamp(s, q, -2, 2), clamp(s, k, -2, 2)), rate = { 0 };
    Node *i = g_iota(g, 3, score.n->dims, 1), *j = g_iota(g, 3, score.n->dims, 2), *past = chance(s, 80) ? g2(g, OP_le, j, i) : g1(g, OP_not, g2(g, OP_lt, i, j));
    if (chance(s, 60)) rate = own_input(s, 3, (int64_t[]){ heads, steps, 1 });
    if (rate.n) {
        rate = clamp(s, rate, -1, 1);
        if (chance(s, 50)) { rate.n = g1(g, OP_neg, g1(g, OP_abs, rate.n)); rate.lo = -1; rate.hi = 0; }
        rate = binary(s, OP_mul, rate, of_range(scalar_like(s, rate.n, 0.03125), 0.03125, 0.03125));
        Val sum = sum_bounds(rate, DT_f32, (double)steps), there = sum;
        sum.n = g_scan(g, FOLD_sum, rate.n, 1, false, false);
        there.n = g_transpose(g, sum.n, (int[]){ 0, 2, 1 });
        Val w = binary(s, OP_sub, sum, there);
        const double off = w.err;
        w.n = g1(g, OP_exp, g_where(g, past, w.n, scalar_like(s, w.n, -INFINITY)));
        w.lo = 0; w.hi = exp(rate.hi <= 0 ? 0 : w.hi);
        score = binary(s, OP_mul, score, approx(w, w.hi * 2 * off, 8));
    } else score.n = g_where(g, past, score.n, scalar_like(s, score.n, 0));
    score.lo = fmin(score.lo, 0); score.hi = fmax(score.hi, 0);
    Val y = matmul_val(s, score, v);
    if (usable(&y)) keep(s, y);
}

void step_attention(Gen *s)
{
    if (s->states && chance(s, 50)) { linear_attention(s); return; }
    if (chance(s, 50)) { streamed_attention(s); return; }
    Val q = pick(s, want_float);
    if (!q.n || q.n->rank < 2 || q.n->rank > 4 || has_zero(q.n)) return;
    Val k = q, v = q, o;
    int r = q.n->rank, perm[MAX_RANK];
    for (int j = 0; j < 30; j++) { o = pick(s, want_float); if (o.n && o.n->rank == r && o.n->dt == q.n->dt && !memcmp(o.n->dims, q.n->dims, sizeof *o.n->dims * (size_t)r)) { if (chance(s, 50)) k = o; else v = o; } }
    if (elements(s, r, q.n->dims) * hint(s, q.n->dims[r - 2]) > 20000) return;
    for (int j = 0; j < r; j++) perm[j] = j;
    perm[r - 1]--; perm[r - 2]++;
    k.n = g_transpose(s->g, k.n, perm);
    Val score = tame(s, matmul_val(s, tame(s, q, 8), tame(s, k, 8)), 50);
    if (!usable(&score)) return;
    if (chance(s, 50)) {
        Dim *const *d = score.n->dims + r - 2;
        Node *c = g2(s->g, OP_le, g_iota(s->g, 2, d, 1), g_iota(s->g, 2, d, 0));
        score.n = g_where(s->g, c, score.n, scalar_like(s, score.n, -INFINITY));
    }
    score = softmax_val(s, score, axis_bit(r - 1), false);
    if (!usable(&score)) return;
    keep(s, matmul_val(s, score, v));
}

void step_sigmoid(Gen *s)
{
    Val v = pick(s, want_float);
    if (!v.n) return;
    v = clamp(s, v, -20, 20);
    Val x = v;
    v.n = g_sigmoid(s->g, x.n); v.lo = 0; v.hi = 1;
    v = approx(v, x.err, 12);
    keep(s, chance(s, 50) ? binary(s, OP_mul, x, v) : v);
}
