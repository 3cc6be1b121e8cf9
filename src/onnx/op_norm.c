/* Normalisations. Every variance is computed in two passes, the mean first and then the mean of squared deviations: E[x^2] - E[x]^2 cancels.
 * Sixteen-bit floats are computed in float32 and rounded once at the end. */
#include <string.h>
#include "onnx/onnx.h"

static Node *normal_wide(OpCall *o, int i) { return o->in[i] ? g_cast(o->g, o->in[i], dtype_wide(o->in[i]->dt)) : NULL; }

/* One value for each channel against [N, C, D1, ...]. */
static Node *by_channel(OpCall *o, Node *v, int rank)
{
    while (v->rank < rank - 1) v = g_unsqueeze(o->g, v, v->rank);
    return v;
}

typedef struct Moments { Node *mean, *variance, *centred; } Moments;

static Moments moments_of(Graph *g, Node *x, uint32_t axes)
{
    Moments m;
    m.mean = g_mean(g, x, axes, true);
    m.centred = g2(g, OP_sub, x, m.mean);
    m.variance = g_mean(g, g2(g, OP_mul, m.centred, m.centred), axes, true);
    return m;
}

static Node *inverse_deviation(Graph *g, Node *variance, double epsilon)
{
    Node *s = g1(g, OP_sqrt, g2(g, OP_add, variance, g_scalar(g, variance->dt, epsilon)));
    return g2(g, OP_div, g_scalar(g, s->dt, 1), s);
}

static Node *normalised(Graph *g, Node *x, uint32_t axes, double epsilon)
{
    Moments m = moments_of(g, x, axes);
    return g2(g, OP_mul, m.centred, inverse_deviation(g, m.variance, epsilon));
}

static Node *scaled(Graph *g, Node *x, Node *scale, Node *bias)
{
    if (scale) x = g2(g, OP_mul, x, g_cast(g, scale, x->dt));
    return bias ? g2(g, OP_add, x, g_cast(g, bias, x->dt)) : x;
}

static uint32_t axes_from(int axis, int rank) { return (uint32_t)((1ull << rank) - 1) & ~((1u << axis) - 1); }

/* The widest dtype in which all of the inputs are exact. */
static DType common_wide(OpCall *o)
{
    DType dt = dtype_wide(o->in[0]->dt);
    for (int i = 1; i < o->nin; i++)
        if (o->in[i] && o->in[i]->dt == DT_f64) dt = DT_f64;
    return dt;
}

void op_batchnorm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    DType wide = common_wide(o);
    double epsilon = op_float(o, "epsilon", 1e-5);
    if (x->rank < 2 && o->opset < 9) fail(o->cx, E_INVALID, "the input has rank %d, wanted 2 or more", x->rank);
    Node *v[4], *wx = g_cast(g, x, wide);
    for (int i = 0; i < 4; i++) v[i] = g_cast(g, by_channel(o, o->in[i + 1], x->rank), wide);
    Node *mean = v[2], *variance = v[3];
    if (o->opset >= 14 && op_int(o, "training_mode", 0)) {
        double keep = op_float(o, "momentum", 0.9);
        uint32_t axes = axes_from(0, x->rank) & ~(x->rank > 1 ? axis_bit(1) : 0);
        Moments m = moments_of(g, wx, axes);
        Node *now[2] = { m.mean, m.variance };
        for (int k = 0; k < 2; k++) {
            Node *old = g_cast(g, o->in[3 + k], wide), *fresh = g_reshape(g, now[k], old->rank, old->dims);
            Node *sum = g2(g, OP_add, g2(g, OP_mul, old, g_scalar(g, wide, keep)), g2(g, OP_mul, fresh, g_scalar(g, wide, 1 - keep)));
            o->out[1 + k] = g_cast(g, sum, o->in[3 + k]->dt);
        }
        o->out[0] = g_cast(g, scaled(g, g2(g, OP_mul, m.centred, inverse_deviation(g, m.variance, epsilon)), v[0], v[1]), x->dt);
        return;
    }
    for (int j = 1; j < 5; j++)
        if (op_wants(o, j)) op_unsupported(o, "more than one output is wanted, which means training");
    Node *factor = g2(g, OP_mul, v[0], inverse_deviation(g, variance, epsilon));
    o->out[0] = g_cast(g, g2(g, OP_add, g2(g, OP_mul, g2(g, OP_sub, wx, mean), factor), v[1]), x->dt);
}

void op_instancenorm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    if (x->rank < 3) fail(o->cx, E_INVALID, "the input has rank %d, wanted 3 or more", x->rank);
    Node *y = normalised(g, normal_wide(o, 0), axes_from(2, x->rank), op_float(o, "epsilon", 1e-5));
    o->out[0] = g_cast(g, scaled(g, y, by_channel(o, normal_wide(o, 1), x->rank), by_channel(o, normal_wide(o, 2), x->rank)), x->dt);
}

/* A value for each group (opset 18) becomes one for each channel. */
static Node *group_to_channel(OpCall *o, Node *v, int64_t groups, Dim *each, Dim *channels)
{
    Graph *g = o->g;
    if (o->opset >= 21 || !dim_decide_eq(g, v->dims[0], dim_const(g, groups), "a scale for each group") ||
        dim_decide_eq(g, channels, dim_const(g, groups), "as many groups as channels"))
        return v;
    Node *y = g_expand(g, g_unsqueeze(g, v, 1), 2, (Dim *[]){ dim_const(g, groups), each });
    return g_reshape(g, y, 1, &channels);
}

void op_groupnorm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    int64_t groups = op_int(o, "num_groups", 0);
    if (groups < 1) fail(o->cx, E_INVALID, "num_groups is %lld, wanted 1 or more", (long long)groups);
    if (x->rank < 2) fail(o->cx, E_INVALID, "the input has rank %d, wanted 2 or more", x->rank);
    if (!dim_decide_eq(g, dim_mod(g, x->dims[1], dim_const(g, groups)), dim_const(g, 0), "the groups divide the channels"))
        fail(o->cx, E_INVALID, "%lld groups do not divide %s on axis 1", (long long)groups, dims_str(g, x->rank, x->dims));
    Dim *each = dim_div(g, x->dims[1], dim_const(g, groups)), *dims[MAX_RANK + 1] = { x->dims[0], dim_const(g, groups), each };
    if (x->rank + 1 > MAX_RANK) op_unsupported(o, "rank %d", x->rank);
    for (int k = 2; k < x->rank; k++) dims[k + 1] = x->dims[k];
    Node *y = normalised(g, g_reshape(g, normal_wide(o, 0), x->rank + 1, dims), axes_from(2, x->rank + 1), op_float(o, "epsilon", 1e-5));
    Node *scale = group_to_channel(o, normal_wide(o, 1), groups, each, x->dims[1]), *bias = group_to_channel(o, normal_wide(o, 2), groups, each, x->dims[1]);
    y = scaled(g, g_reshape(g, y, x->rank, x->dims), by_channel(o, scale, x->rank), by_channel(o, bias, x->rank));
    o->out[0] = g_cast(g, y, x->dt);
}

/* float64 is kept in float64 whatever stash_type says; only the statistics that are returned take its dtype. Before opset 17 the operator
 * was com.microsoft's, also when it was written without a domain: its result has the scale's dtype. */
void op_layernorm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    int axis = op_axis(o, op_int(o, "axis", -1), x->rank);
    DType stash = dtype_from_onnx((int)op_int(o, "stash_type", 1));
    if (!dtype_is_float(stash)) fail(o->cx, E_FORMAT, "stash_type %lld is no float type", (long long)op_int(o, "stash_type", 1));
    Moments m = moments_of(g, normal_wide(o, 0), axes_from(axis, x->rank));
    Node *inv = inverse_deviation(g, m.variance, op_float(o, "epsilon", 1e-5));
    o->out[0] = g_cast(g, scaled(g, g2(g, OP_mul, m.centred, inv), normal_wide(o, 1), normal_wide(o, 2)), o->opset < 17 ? o->in[1]->dt : x->dt);
    o->out[1] = g_cast(g, m.mean, stash);
    o->out[2] = g_cast(g, inv, stash);
}

void op_rmsnorm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = normal_wide(o, 0);
    int axis = op_axis(o, op_int(o, "axis", -1), x->rank);
    Node *square = g_mean(g, g2(g, OP_mul, x, x), axes_from(axis, x->rank), true);
    Node *y = g2(g, OP_mul, x, inverse_deviation(g, square, op_float(o, "epsilon", 1e-5)));
    o->out[0] = g_cast(g, scaled(g, y, normal_wide(o, 1), NULL), o->in[1]->dt);
}

/* A vector of zeros stays one. */
void op_lpnorm(OpCall *o)
{
    int64_t p = op_int(o, "p", 2);
    if (p != 1 && p != 2) fail(o->cx, E_FORMAT, "p is %lld, wanted 1 or 2", (long long)p);
    Node *x = normal_wide(o, 0);
    Binding b[] = { { .name = "x", .type = 'n', .node = x },
        { .name = "axis", .type = 'a', .axes = axis_bit(op_axis(o, op_int(o, "axis", -1), x->rank)) } };
    const char *text = p == 1 ? "n = sum[axis](abs(x)); where(n == 0, x * 0, x / n)" : "n = sqrt(sum[axis](x * x)); where(n == 0, x * 0, x / n)";
    o->out[0] = g_cast(o->g, expr_build(o->g, text, 2, b), o->in[0]->dt);
}

void op_mvn(OpCall *o)
{
    static const int64_t usual[] = { 0, 2, 3 };
    int n;
    const int64_t *axes = op_ints(o, "axes", &n);
    if (!axes) axes = usual, n = 3;
    Node *x = normal_wide(o, 0);
    Binding b[] = { { .name = "x", .type = 'n', .node = x }, { .name = "axes", .type = 'a' } };
    for (int i = 0; i < n; i++) b[1].axes |= axis_bit(op_axis(o, axes[i], x->rank));
    o->out[0] = g_cast(o->g, expr_build(o->g, "d = x - mean[axes](x); d / (sqrt(mean[axes](d * d)) + 1e-9)", 2, b), o->in[0]->dt);
}
