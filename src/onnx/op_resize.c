/* Resize and Upsample.
 *
 * The source coordinate of output place i on an axis is a rational function (mul*i + add) / den with integers: a scale is out/in, or the
 * simple fraction that a float32 stands for. So floor, ceiling, rounding and ties are integer arithmetic in index maps: nearest is one view, and linear
 * and cubic read views at floor(x)+t, clamped to the axis, times weights that depend on the remainder. No index is ever outside and no rounding
 * of a reciprocal moves a tie. Only tf_crop_and_resize, whose regions are arbitrary floats, computes coordinates in float64 and gathers.
 * Axes are separable and are done one after the other in the order given. */
#include "onnx/onnx.h"
#include <math.h>
#include <string.h>

typedef enum ResizeCoord { RC_half_pixel, RC_symmetric, RC_pytorch, RC_corners, RC_asymmetric, RC_tf_nn, RC_crop } ResizeCoord;
typedef enum ResizeRound { RR_prefer_floor, RR_prefer_ceil, RR_floor, RR_ceil, RR_old } ResizeRound;
typedef struct ResizeAxis {
    bool resized;
    Dim *in, *out, *p, *q;              /* the scale is p/q */
    double start, end;                  /* of the region */
} ResizeAxis;
typedef struct ResizeSpec {
    ResizeCoord coord;
    ResizeRound round;
    char mode;                          /* 'n' 'l' 'c' */
    bool antialias, exclude;
    double cubic_a, extrapolation;
    ResizeAxis axis[MAX_RANK];
} ResizeSpec;

/* x(i) = (mul*i + add) / den */
typedef struct ResizeMap { Dim *mul, *add, *den; } ResizeMap;

/* ---- scales ---------------------------------------------------------------------------------------------------------------------- */

static int64_t resize_gcd(int64_t a, int64_t b)
{
    while (b) { int64_t r = a % b; a = b; b = r; }
    return a < 0 ? -a : a;
}

/* The scale out/in in lowest terms, also when both are multiples of one symbolic size. */
static void scale_of_sizes(Graph *g, ResizeAxis *a)
{
    int64_t p = dim_hint(g, a->out), q = dim_hint(g, a->in), d = resize_gcd(p, q);
    a->p = a->out;
    a->q = a->in;
    if (p > 0 && q > 0 && dim_mulc(g, a->out, q / d) == dim_mulc(g, a->in, p / d)) {
        a->p = dim_const(g, p / d);
        a->q = dim_const(g, q / d);
    }
}

/* The first convergent of the continued fraction that rounds to v: 0.7 means 7/10, and a tie that the graph's author saw stays one. */
static bool float_fraction(float v, int64_t *p, int64_t *q)
{
    int64_t p0 = 0, q0 = 1;
    double rest = v;
    *p = 1, *q = 0;
    do {
        double whole = floor(rest);
        int64_t k = (int64_t)whole, p1 = k * *p + p0, q1 = k * *q + q0;
        p0 = *p, q0 = *q, *p = p1, *q = q1;
        if (*q > (int64_t)1 << 36 || *p > (int64_t)1 << 36) return false;
        if ((float)((double)*p / (double)*q) == v) return true;
        rest = 1 / (rest - whole);
    } while (rest < 0x1p26);
    return false;
}

/* A scale given as a float32: the size is floor(in*scale) in float32, as every implementation computes it. Where the float is the
 * rounding of out/in it means that fraction. */
static void scale_of_float(OpCall *o, ResizeAxis *a, float scale, double part)
{
    Graph *g = o->g;
    if (!(scale > 0 && scale < 1e9f))
        fail(o->cx, E_INVALID, "a scale is %g; a positive number is wanted", (double)scale);
    int64_t p, q;
    if (!float_fraction(scale, &p, &q)) op_unsupported(o, "the scale %g", (double)scale);
    a->p = dim_const(g, p);
    a->q = dim_const(g, q);
    if (part == 1 && q <= 16 && (q & (q - 1)) == 0) {
        a->out = dim_div(g, dim_mul(g, a->in, a->p), a->q);
        if (!dim_is_const(a->in)) return;
    }
    int64_t in = dim_decide_value(g, a->in, "an axis that is resized by a scale");
    int64_t out = (int64_t)floorf((float)in * (float)part * scale);
    a->out = dim_const(g, out);
    if (in > 0 && out > 0 && (float)((double)out / (double)in) == scale) scale_of_sizes(g, a);
}

/* ---- coordinates -------------------------------------------------------------------------------------------------------------------- */

static ResizeMap resize_map(OpCall *o, const ResizeSpec *s, const ResizeAxis *a)
{
    Graph *g = o->g;
    Dim *zero = dim_const(g, 0), *one = dim_const(g, 1), *p = a->p, *q = a->q;
    ResizeMap still = { zero, zero, one };
    ResizeMap half = { dim_mulc(g, q, 2), dim_sub(g, q, p), dim_mulc(g, p, 2) };     /* ((2i+1)q - p) / 2p */
    switch (s->coord) {
    case RC_half_pixel: return half;
    case RC_pytorch: return dim_decide_eq(g, a->out, one, "one output place") ? still : half;
    case RC_asymmetric: return (ResizeMap){ q, zero, p };
    case RC_tf_nn: return (ResizeMap){ half.mul, q, half.den };
    case RC_symmetric:
        half.add = dim_add(g, half.add, dim_sub(g, dim_mul(g, a->in, p), dim_mul(g, a->out, q)));
        return half;
    case RC_corners: {
        /* in*scale - 1 may be a fraction: the scale counts, not the size rounded from it */
        Dim *den = dim_sub(g, dim_mul(g, a->in, p), q);
        if (!dim_decide_lt(g, zero, den, "more than one output place")) return still;
        return (ResizeMap){ dim_mul(g, dim_addc(g, a->in, -1), q), zero, den };
    }
    case RC_crop: break;
    }
    ASSERT(!"a region has no rational map");
}

static Dim *map_at(Graph *g, const ResizeMap *m, Dim *i) { return dim_add(g, dim_mul(g, m->mul, i), m->add); }

static Dim *clamp_place(Graph *g, Dim *i, Dim *n) { return dim_max(g, dim_min(g, i, dim_addc(g, n, -1)), dim_const(g, 0)); }

/* The coordinates of a region in float64, a vector. */
static Node *crop_coordinate(OpCall *o, const ResizeAxis *a)
{
    Graph *g = o->g;
    Node *last = dim_node(g, dim_addc(g, a->in, -1), DT_f64), *start = g_scalar(g, DT_f64, a->start);
    /* the resized length in*p/q, less 1 */
    Dim *over = dim_sub(g, dim_mul(g, a->in, a->p), a->q);
    if (!dim_decide_lt(g, dim_const(g, 0), over, "more than one output place"))
        return g_expand(g, g2(g, OP_mul, g_scalar(g, DT_f64, (a->start + a->end) * 0.5), last), 1, &a->out);
    Node *len = g2(g, OP_div, dim_node(g, over, DT_f64), dim_node(g, a->q, DT_f64));
    Node *step = g2(g, OP_div, g2(g, OP_mul, g_scalar(g, DT_f64, a->end - a->start), last), len);
    Node *i = g_cast(g, iota_node(g, a->out), DT_f64);
    return g2(g, OP_add, g2(g, OP_mul, i, step), g2(g, OP_mul, start, last));
}

/* True where the coordinate of a region lies outside the axis, laid along it. */
static Node *crop_outside(Graph *g, const ResizeAxis *a, Node *at)
{
    Node *last = dim_node(g, dim_addc(g, a->in, -1), DT_f64);
    return g2(g, OP_or, g2(g, OP_lt, at, g_scalar(g, DT_f64, 0)), g2(g, OP_lt, last, at));
}

/* ---- nearest -------------------------------------------------------------------------------------------------------------------------- */

static Dim *nearest_place(OpCall *o, const ResizeSpec *s, const ResizeAxis *a, Dim *i)
{
    Graph *g = o->g;
    ResizeMap m = resize_map(o, s, a);
    Dim *at = map_at(g, &m, i), *twice = dim_mulc(g, m.den, 2);
    ResizeRound round = s->round;
    if (round == RR_old)                  /* before opset 11: down when it grows, up when it shrinks */
        round = dim_decide_lt(g, a->p, a->q, "a scale below 1") ? RR_ceil : RR_floor;
    Dim *place = round == RR_floor         ? dim_div(g, at, m.den)
                 : round == RR_ceil        ? dim_ceildiv(g, at, m.den)
                 : round == RR_prefer_ceil ? dim_div(g, dim_add(g, dim_mulc(g, at, 2), m.den), twice)
                                           : dim_ceildiv(g, dim_sub(g, dim_mulc(g, at, 2), m.den), twice);
    return clamp_place(g, place, a->in);
}

static Node *nearest_crop(OpCall *o, const ResizeSpec *s, Node *x, int axis)
{
    Graph *g = o->g;
    const ResizeAxis *a = &s->axis[axis];
    Node *at = crop_coordinate(o, a), *half = g_scalar(g, DT_f64, 0.5);
    Node *place = s->round == RR_floor         ? g1(g, OP_floor, at)
                  : s->round == RR_ceil        ? g1(g, OP_ceil, at)
                  : s->round == RR_prefer_ceil ? g1(g, OP_floor, g2(g, OP_add, at, half))
                                               : g1(g, OP_ceil, g2(g, OP_sub, at, half));
    Node *last = dim_node(g, dim_addc(g, a->in, -1), DT_i64), *zero = g_int(g, DT_i64, 0);
    place = g2(g, OP_max, g2(g, OP_min, g_cast(g, place, DT_i64), last), zero);
    Node *index = axis_node(g, place, x->rank, axis);
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) {
        dims[k] = k == axis ? a->out : x->dims[k];
        idx[k] = k == axis ? dim_idx(g, DIM_OPERAND, a->in) : dim_idx(g, k, dims[k]);
    }
    Node *y = g_gather(g, x, 1, &index, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
    Node *fill = g_cast(g, g_scalar(g, DT_f64, s->extrapolation), y->dt);
    return g_where(g, axis_node(g, crop_outside(g, a, at), x->rank, axis), fill, y);
}

static Node *resize_nearest(OpCall *o, const ResizeSpec *s, Node *x)
{
    Graph *g = o->g;
    if (s->coord == RC_crop) {
        for (int k = 0; k < x->rank; k++)
            if (s->axis[k].resized) x = nearest_crop(o, s, x, k);
        return x;
    }
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) {
        const ResizeAxis *a = &s->axis[k];
        dims[k] = a->resized ? a->out : x->dims[k];
        idx[k] = dim_idx(g, k, dims[k]);
        if (a->resized) idx[k] = nearest_place(o, s, a, idx[k]);
    }
    return g_view(g, x, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* ---- linear and cubic -------------------------------------------------------------------------------------------------------------------- */

/* The neighbourhood of every output place on one axis: floor(x) as an index expression (NULL for regions) and as a vector, and x - floor(x). */
typedef struct ResizeNear { ResizeMap map; Node *low, *part, *outside; } ResizeNear;

static ResizeNear resize_near(OpCall *o, const ResizeSpec *s, const ResizeAxis *a, DType dt)
{
    Graph *g = o->g;
    ResizeNear r = { { NULL, NULL, NULL }, NULL, NULL, NULL };
    if (s->coord == RC_crop) {
        Node *at = crop_coordinate(o, a), *low = g1(g, OP_floor, at);
        r.low = g_cast(g, low, DT_i64);
        r.part = g_cast(g, g2(g, OP_sub, at, low), dt);
        r.outside = crop_outside(g, a, at);
        return r;
    }
    r.map = resize_map(o, s, a);
    Node *num = g2(g, OP_add, g2(g, OP_mul, iota_node(g, a->out), dim_node(g, r.map.mul, DT_i64)), dim_node(g, r.map.add, DT_i64));
    Node *den = dim_node(g, r.map.den, DT_i64), *rest = g2(g, OP_mod, num, den);
    r.low = g2(g, OP_div, g2(g, OP_sub, num, rest), den);
    r.part = g_cast(g, g2(g, OP_div, g_cast(g, rest, DT_f64), g_cast(g, den, DT_f64)), dt);
    return r;
}

/* x at floor + first + t, clamped, on an axis; t runs over a new last axis of `taps` places (none when taps is 1). */
static Node *near_values(Graph *g, const ResizeAxis *a, const ResizeNear *r, Node *x, int axis, int64_t first, int64_t taps)
{
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    int rank = x->rank + (taps > 1);
    for (int k = 0; k < x->rank; k++) idx[k] = dim_idx(g, k, dims[k] = k == axis ? a->out : x->dims[k]);
    if (taps > 1) dims[x->rank] = dim_const(g, taps);
    if (r->map.den) {
        Dim *at = dim_addc(g, dim_div(g, map_at(g, &r->map, idx[axis]), r->map.den), first);
        if (taps > 1) at = dim_add(g, at, dim_idx(g, x->rank, dims[x->rank]));
        idx[axis] = clamp_place(g, at, a->in);
        return g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
    }
    Node *at = axis_node(g, g2(g, OP_add, r->low, g_int(g, DT_i64, first)), rank, axis);
    if (taps > 1) at = g2(g, OP_add, at, axis_node(g, iota_node(g, dims[x->rank]), rank, x->rank));
    at = g2(g, OP_max, g2(g, OP_min, at, dim_node(g, dim_addc(g, a->in, -1), DT_i64)), g_int(g, DT_i64, 0));
    idx[axis] = dim_idx(g, DIM_OPERAND, a->in);
    return g_gather(g, x, 1, &at, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* Keys' cubic kernel with coefficient a at distance d >= 0: piece 0 for d <= 1, piece 1 for 1 < d < 2. */
static Node *cubic_piece(Graph *g, Node *d, double a, int piece)
{
#define C(v) g_scalar(g, d->dt, (v))
    Node *y;
    if (piece == 0) {
        y = g2(g, OP_sub, g2(g, OP_mul, C(a + 2), d), C(a + 3));
        return g2(g, OP_add, g2(g, OP_mul, g2(g, OP_mul, y, d), d), C(1));
    }
    y = g2(g, OP_sub, g2(g, OP_mul, C(a), d), C(5 * a));
    y = g2(g, OP_add, g2(g, OP_mul, y, d), C(8 * a));
    return g2(g, OP_sub, g2(g, OP_mul, y, d), C(4 * a));
#undef C
}

/* Weight of the neighbour at floor + t (2 for linear, 4 for cubic) as a vector. */
static Node *tap_weight(Graph *g, const ResizeSpec *s, Node *part, int t)
{
    Node *one = g_scalar(g, part->dt, 1);
    if (s->mode == 'l') return t ? part : g2(g, OP_sub, one, part);
    Node *rest = g2(g, OP_sub, one, part);
    Node *d = t == -1 ? g2(g, OP_add, part, one) : t == 0 ? part : t == 1 ? rest : g2(g, OP_add, rest, one);
    return cubic_piece(g, d, s->cubic_a, t == -1 || t == 2);
}

/* Weights [out, taps] of the filter stretched by 1/scale, at distances scale*(first + t - part). */
static Node *stretched_weights(OpCall *o, const ResizeSpec *s, const ResizeNear *r, double scale, int64_t first, int64_t taps)
{
    Graph *g = o->g;
    DType dt = r->part->dt;
    Node *t = g_cast(g, axis_node(g, g2(g, OP_add, iota_node(g, dim_const(g, taps)), g_int(g, DT_i64, first)), 2, 1), dt);
    Node *d = g1(g, OP_abs, g2(g, OP_mul, g2(g, OP_sub, t, axis_node(g, r->part, 2, 0)), g_scalar(g, dt, scale)));
    Node *zero = g_scalar(g, dt, 0), *one = g_scalar(g, dt, 1);
    if (s->mode == 'l') return g2(g, OP_max, g2(g, OP_sub, one, d), zero);
    Node *far = g_where(g, g2(g, OP_lt, d, g_scalar(g, dt, 2)), cubic_piece(g, d, s->cubic_a, 1), zero);
    return g_where(g, g2(g, OP_le, d, one), cubic_piece(g, d, s->cubic_a, 0), far);
}

/* The truth whether floor + offset is a place of the axis. */
static Node *tap_inside(Graph *g, const ResizeAxis *a, Node *place)
{
    return g2(g, OP_and, g2(g, OP_le, g_int(g, DT_i64, 0), place), g2(g, OP_lt, place, dim_node(g, a->in, DT_i64)));
}

static Node *resize_axis(OpCall *o, const ResizeSpec *s, Node *x, int axis)
{
    Graph *g = o->g;
    const ResizeAxis *a = &s->axis[axis];
    DType dt = x->dt;
    ResizeNear r = resize_near(o, s, a, dt);
    Node *y = NULL, *zero = g_scalar(g, dt, 0), *one = g_scalar(g, dt, 1);
    if (s->antialias && dim_decide_lt(g, a->p, a->q, "a scale below 1") && dim_decide_lt(g, dim_const(g, 0), a->p, "a scale of 0, for nothing")) {
        if (x->rank + 1 > MAX_RANK) op_unsupported(o, "antialiasing of rank %d", x->rank);
        double scale = (double)dim_decide_value(g, a->p, "an antialiased scale") / (double)dim_decide_value(g, a->q, "an antialiased scale");
        double reach = s->mode == 'l' ? 1 : 2;
        int64_t first = (int64_t)floor(-reach / scale) + 1, taps = 2 - 2 * first;
        Node *w = stretched_weights(o, s, &r, scale, first, taps);
        if (s->exclude) {
            Node *t = axis_node(g, g2(g, OP_add, iota_node(g, dim_const(g, taps)), g_int(g, DT_i64, first)), 2, 1);
            w = g_where(g, tap_inside(g, a, g2(g, OP_add, axis_node(g, r.low, 2, 0), t)), w, zero);
        }
        Node *sum = g_fold(g, FOLD_sum, w, axis_bit(1), true);
        w = g2(g, OP_div, w, g_where(g, g2(g, OP_eq, sum, zero), one, sum));
        Dim *dims[MAX_RANK];
        for (int k = 0; k <= x->rank; k++) dims[k] = k == axis ? w->dims[0] : k == x->rank ? w->dims[1] : dim_const(g, 1);
        w = g_reshape(g, w, x->rank + 1, dims);
        y = g_fold(g, FOLD_sum, g2(g, OP_mul, near_values(g, a, &r, x, axis, first, taps), w), axis_bit(x->rank), false);
    } else {
        int first = s->mode == 'l' ? 0 : -1, last = s->mode == 'l' ? 1 : 2;
        Node *w[4], *sum = NULL;
        for (int t = first; t <= last; t++) {
            Node *one_w = tap_weight(g, s, r.part, t);
            if (s->exclude) {
                one_w = g_where(g, tap_inside(g, a, g2(g, OP_add, r.low, g_int(g, DT_i64, t))), one_w, zero);
                sum = sum ? g2(g, OP_add, sum, one_w) : one_w;
            }
            w[t - first] = one_w;
        }
        if (sum) sum = g_where(g, g2(g, OP_eq, sum, zero), one, sum);
        for (int t = first; t <= last; t++) {
            Node *weight = sum ? g2(g, OP_div, w[t - first], sum) : w[t - first];
            Node *term = g2(g, OP_mul, near_values(g, a, &r, x, axis, t, 1), axis_node(g, weight, x->rank, axis));
            y = y ? g2(g, OP_add, y, term) : term;
        }
    }
    if (r.outside) y = g_where(g, axis_node(g, r.outside, x->rank, axis), g_scalar(g, dt, s->extrapolation), y);
    return y;
}

/* Integers are interpolated in floats that hold them, rounded to nearest even and clamped. */
static Node *resize_smooth(OpCall *o, const ResizeSpec *s, Node *x, const int *order, int n)
{
    Graph *g = o->g;
    DType dt = x->dt, wide = dtype_is_float(dt) ? dtype_wide(dt) : dtype_size(dt) > 2 ? DT_f64 : DT_f32;
    Node *y = g_cast(g, x, wide);
    for (int k = 0; k < n; k++)
        if (s->axis[order[k]].resized) y = resize_axis(o, s, y, order[k]);
    if (dtype_is_int(dt)) {
        double lo = dtype_info[dt].class == 'U' ? 0 : (double)scalar_min(dt).i;
        double hi = dt == DT_u64 ? (double)scalar_max(dt).u : (double)scalar_max(dt).i;
        y = g2(g, OP_min, g2(g, OP_max, g1(g, OP_round, y), g_scalar(g, wide, lo)), g_scalar(g, wide, hi));
    }
    return g_cast(g, y, dt);
}

/* ---- the operators ------------------------------------------------------------------------------------------------------------------------ */

static int resize_word(OpCall *o, const char *attr, const char *fallback, const char *const *words)
{
    const char *s = op_string(o, attr, fallback);
    for (int k = 0; words[k]; k++)
        if (!strcmp(s, words[k])) return k;
    fail(o->cx, E_INVALID, "%s is '%s', which has no meaning", attr, s);
}

static char resize_mode(OpCall *o, const char *s)
{
    if (!strcmp(s, "nearest")) return 'n';
    if (!strcmp(s, "linear") || !strcmp(s, "bilinear") || !strcmp(s, "trilinear")) return 'l';
    if (!strcmp(s, "cubic")) return 'c';
    fail(o->cx, E_INVALID, "mode is '%s'; nearest, linear or cubic is wanted", s);
}

/* Axes whose scale is 1 and that keep their size are left alone. */
static void resize_run(OpCall *o, ResizeSpec *s, const int *order, int n)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    for (int k = 0; k < x->rank; k++) {
        ResizeAxis *a = &s->axis[k];
        if (a->resized && a->p == a->q && a->in == a->out && (s->coord != RC_crop || (a->start == 0 && a->end == 1))) a->resized = false;
        if (a->resized && dim_decide_eq(g, a->in, dim_const(g, 0), "an empty axis is resized") && !dim_decide_eq(g, a->out, dim_const(g, 0), "to nothing"))
            fail(o->cx, E_INVALID, "axis %d is empty and cannot be resized to %lld", k, (long long)dim_hint(g, a->out));
    }
    o->out[0] = s->mode == 'n' ? resize_nearest(o, s, x) : resize_smooth(o, s, x, order, n);
}

/* Upsample, and Resize before opset 11: scales for all axes, coordinates x/scale. */
static void resize_scales(OpCall *o, const float *scale, int n)
{
    Node *x = o->in[0];
    ResizeSpec s = { .coord = RC_asymmetric, .round = RR_old, .mode = resize_mode(o, op_string(o, "mode", "nearest")) };
    int order[MAX_RANK];
    if (n != x->rank) fail(o->cx, E_INVALID, "%d scales for an input of rank %d", n, x->rank);
    for (int k = 0; k < n; k++) {
        order[k] = k;
        s.axis[k] = (ResizeAxis){ .resized = true, .in = x->dims[k], .end = 1 };
        scale_of_float(o, &s.axis[k], scale[k], 1);
    }
    resize_run(o, &s, order, n);
}

static float *resize_floats(OpCall *o, int i, int *n)
{
    const Tensor *t = op_value(o, i);
    *n = t ? (int)tensor_count(t) : 0;
    float *v = NEWS(o->a, float, *n + 1);
    for (int k = 0; k < *n; k++) v[k] = (float)scalar_load(t->dt, tensor_at(t, k)).f;
    return v;
}

void op_upsample_1(OpCall *o)
{
    float scale[4] = { 1, 1, (float)op_float(o, "height_scale", 1), (float)op_float(o, "width_scale", 1) };
    resize_scales(o, scale, 4);
}

void op_upsample_7(OpCall *o)
{
    int n;
    const float *scale = op_floats(o, "scales", &n);
    resize_scales(o, scale, n);
}

void op_resize_10(OpCall *o)
{
    int n;
    float *scale = resize_floats(o, 1, &n);
    resize_scales(o, scale, n);
}

/* Sizes that keep the aspect ratio: one scale, the least or greatest of size/in, for all axes; half sizes round up. */
static void resize_keep_ratio(OpCall *o, ResizeSpec *s, const int *axes, int n, Dim *const *sizes, bool larger)
{
    Graph *g = o->g;
    int64_t p = 0, q = 1;
    for (int k = 0; k < n; k++) {
        int64_t in = dim_decide_value(g, s->axis[axes[k]].in, "an axis that keeps its aspect ratio");
        int64_t out = dim_decide_value(g, sizes[k], "a size that keeps the aspect ratio");
        if (in < 1) fail(o->cx, E_INVALID, "axis %d is empty and has no aspect ratio", axes[k]);
        if (k == 0 || (larger ? out * q > p * in : out * q < p * in)) p = out, q = in;
    }
    int64_t d = resize_gcd(p, q);
    if (d > 1) p /= d, q /= d;
    for (int k = 0; k < n; k++) {
        ResizeAxis *a = &s->axis[axes[k]];
        a->p = dim_const(g, p);
        a->q = dim_const(g, q);
        a->out = dim_const(g, (2 * p * dim_hint(g, a->in) + q) / (2 * q));
    }
}

void op_resize(OpCall *o)
{
    static const char *const coords[] = { "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                                          "tf_half_pixel_for_nn", "tf_crop_and_resize", NULL };
    static const char *const rounds[] = { "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL };
    static const char *const policies[] = { "stretch", "not_larger", "not_smaller", NULL };
    ResizeSpec s = { .coord = (ResizeCoord)resize_word(o, "coordinate_transformation_mode", "half_pixel", coords),
                     .round = (ResizeRound)resize_word(o, "nearest_mode", "round_prefer_floor", rounds),
                     .mode = resize_mode(o, op_string(o, "mode", "nearest")) };
    s.antialias = op_int(o, "antialias", 0) != 0;
    s.exclude = op_int(o, "exclude_outside", 0) != 0;
    s.cubic_a = op_float(o, "cubic_coeff_a", -0.75);
    s.extrapolation = op_float(o, "extrapolation_value", 0);
    int policy = resize_word(o, "keep_aspect_ratio_policy", "stretch", policies);
    int nroi = 0, nscale = 0, nsize = 0, naxes, axes[MAX_RANK], rank = o->in[0]->rank;
    const int64_t *given = op_ints(o, "axes", &naxes);
    if (!given) naxes = rank;
    if (naxes > MAX_RANK) fail(o->cx, E_INVALID, "axes has %d values for rank %d", naxes, rank);
    for (int k = 0; k < naxes; k++) axes[k] = given ? op_axis(o, given[k], rank) : k;
    float *roi = s.coord == RC_crop && o->nin > 1 && o->in[1] ? resize_floats(o, 1, &nroi) : NULL;
    float *scale = o->nin > 2 && o->in[2] ? resize_floats(o, 2, &nscale) : NULL;
    Dim **sizes = nscale == 0 && o->nin > 3 && o->in[3] ? op_sizes(o, 3, &nsize) : NULL;
    Graph *g = o->g;
    Node *x = o->in[0];
    if (nscale ? nscale != naxes : nsize != naxes)
        fail(o->cx, E_INVALID, "%d scales or sizes for %d axes", nscale ? nscale : nsize, naxes);
    if (s.coord == RC_crop && nroi != 2 * naxes)
        fail(o->cx, E_INVALID, "roi has %d values; %d are wanted", nroi, 2 * naxes);
    for (int k = 0; k < naxes; k++) {
        ResizeAxis *a = &s.axis[axes[k]];
        *a = (ResizeAxis){ .resized = true, .in = x->dims[axes[k]], .end = 1 };
        if (nroi) a->start = (double)roi[k], a->end = (double)roi[naxes + k];
        if (nscale) {
            scale_of_float(o, a, scale[k], a->end - a->start);
        } else {
            a->out = sizes[k];
            scale_of_sizes(g, a);
        }
    }
    if (sizes && policy) resize_keep_ratio(o, &s, axes, naxes, sizes, policy == 2);
    resize_run(o, &s, axes, naxes);
}
