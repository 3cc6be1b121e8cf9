/* com.microsoft's fused float operators: normalisations with a residual, Gelu and its kin, matrix products and convolutions with an activation, and
 * channels-last forms. They are written as the chain they stand for, in float32 for 16-bit operands, and round each result once. */
#include "onnx/onnx.h"
#include <string.h>

static Node *wide_in(OpCall *o, int i)
{
    return o->in[i] ? g_cast(o->g, o->in[i], dtype_wide(o->in[i]->dt)) : NULL;
}

/* A formula over x (and one number a) in the wide dtype. */
static Node *curve(OpCall *o, const char *text, Node *x, double a)
{
    Binding b[] = { { .name = "x", .type = 'n', .node = x }, { .name = "a", .type = 'f', .number = a } };
    return expr_build(o->g, text, 2, b);
}

static const char text_gelu[] = "0.5 * x * (1 + erf(x * 0.70710678118654752440))";
static const char text_gelu_tanh[] = "x * sigmoid(1.59576912160573071176 * (x + 0.044715 * x * x * x))";
static const char text_swish[] = "x * sigmoid(a * x)";

/* The last axis plus a bias vector, through a curve. */
static void biased_curve(OpCall *o, const char *text, double a)
{
    Node *x = wide_in(o, 0), *bias = wide_in(o, 1);
    if (bias) x = g2(o->g, OP_add, x, bias);
    o->out[0] = g_cast(o->g, curve(o, text, x, a), o->in[0]->dt);
}

void op_msft_gelu(OpCall *o) { biased_curve(o, text_gelu, 0); }
void op_fast_gelu(OpCall *o) { biased_curve(o, text_gelu_tanh, 0); }
void op_quick_gelu(OpCall *o) { biased_curve(o, text_swish, op_float(o, "alpha", (double)1.702f)); }

/* The sum of all inputs: a value, a bias and a residual. */
void op_bias_add(OpCall *o)
{
    Node *y = wide_in(o, 0);
    for (int i = 1; i < o->nin; i++)
        if (o->in[i]) y = g2(o->g, OP_add, y, wide_in(o, i));
    o->out[0] = g_cast(o->g, y, o->in[0]->dt);
}

/* The first half of the last axis times Gelu of the second. */
void op_bias_split_gelu(OpCall *o)
{
    Graph *g = o->g;
    Node *x = g2(g, OP_add, wide_in(o, 0), wide_in(o, 1));
    int last = x->rank - 1;
    Dim *half = dim_div(g, x->dims[last], dim_const(g, 2));
    Node *a = g_slice(g, x, last, dim_const(g, 0), half, 1), *b = g_slice(g, x, last, half, half, 1);
    o->out[0] = g_cast(g, g2(g, OP_mul, a, curve(o, text_gelu, b, 0)), o->in[0]->dt);
}

/* Softmax over all axes from `axis` on. The bias broadcasts as its shape says, over inner axes (of size 1) or outer ones (missing). */
void op_bias_softmax(OpCall *o)
{
    Graph *g = o->g;
    Node *x = wide_in(o, 0), *bias = wide_in(o, 1);
    int axis = op_axis(o, op_int(o, "axis", 1), x->rank);
    uint32_t axes = (uint32_t)((1ull << x->rank) - 1) & ~(axis_bit(axis) - 1);
    o->out[0] = g_cast(g, g_softmax(g, g2(g, OP_add, x, bias), axes, false), o->in[0]->dt);
}

void op_bias_dropout(OpCall *o)
{
    const Tensor *training = op_value(o, 4);
    Graph *g = o->g;
    if (training && scalar_load(training->dt, training->data).i) op_unsupported(o, "training");
    Node *y = wide_in(o, 0);
    for (int i = 1; i < 3; i++)
        if (o->in[i]) y = g2(g, OP_add, y, wide_in(o, i));
    o->out[0] = g_cast(g, y, o->in[0]->dt);
    if (op_wants(o, 1)) o->out[1] = g_expand(g, g_cast(g, g_int(g, DT_i32, 1), DT_bool), y->rank, y->dims);
}

/* ---- normalisation ------------------------------------------------------------------------------------------------------------------------- */

/* (x - mean) / sqrt(variance + epsilon) over the axes, or without the mean. *mean and *inverse: what was used. */
static Node *norm_over(Graph *g, Node *x, uint32_t axes, double epsilon, bool centre, Node **mean, Node **inverse)
{
    *mean = centre ? g_mean(g, x, axes, true) : NULL;
    if (centre) x = g2(g, OP_sub, x, *mean);
    Node *variance = g_mean(g, g2(g, OP_mul, x, x), axes, true);
    *inverse = g2(g, OP_div, g_scalar(g, x->dt, 1), g1(g, OP_sqrt, g2(g, OP_add, variance, g_scalar(g, x->dt, epsilon))));
    return g2(g, OP_mul, x, *inverse);
}

static Node *norm_scaled(Graph *g, Node *y, Node *scale, Node *shift)
{
    if (scale) y = g2(g, OP_mul, y, scale);
    return shift ? g2(g, OP_add, y, shift) : y;
}

/* The norm over the last axis of value plus residual plus bias; the sum itself, rounded to its dtype, is a result too. */
static void skip_norm(OpCall *o, bool centre, int beta, int bias)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt;
    Node *x = g2(g, OP_add, wide_in(o, 0), wide_in(o, 1)), *mean, *inverse;
    if (o->in[bias]) x = g2(g, OP_add, x, wide_in(o, bias));
    Node *y = norm_over(g, x, axis_bit(x->rank - 1), op_float(o, "epsilon", (double)1e-12f), centre, &mean, &inverse);
    o->out[0] = g_cast(g, norm_scaled(g, y, wide_in(o, 2), beta ? wide_in(o, beta) : NULL), dt);
    o->out[1] = mean;
    o->out[2] = inverse;
    o->out[3] = g_cast(g, x, dt);
}

void op_skip_layer_norm(OpCall *o) { skip_norm(o, true, 3, 4); }
void op_skip_simplified_layer_norm(OpCall *o) { skip_norm(o, false, 0, 3); }

void op_simplified_layer_norm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = wide_in(o, 0), *mean, *inverse;
    int axis = op_axis(o, op_int(o, "axis", -1), x->rank);
    uint32_t axes = (uint32_t)((1ull << x->rank) - 1) & ~(axis_bit(axis) - 1);
    Node *y = norm_over(g, x, axes, op_float(o, "epsilon", (double)1e-5f), false, &mean, &inverse);
    o->out[0] = g_cast(g, norm_scaled(g, y, wide_in(o, 1), NULL), o->in[1]->dt);
    o->out[1] = inverse;
}

/* The sum of word, position and segment vectors, normalised; also how many tokens of each row the mask keeps.
 * input_ids, segment_ids, the three tables, gamma, beta, mask, position_ids */
void op_embed_layer_norm(OpCall *o)
{
    Graph *g = o->g;
    Node *ids = o->in[0], *at = o->in[8], *mean, *inverse;
    for (int i = 2; i < 7; i++)
        if (i != 4) op_need(o, i);
    DType dt = o->in[2]->dt;
    if (ids->rank != 2) fail(o->cx, E_INVALID, "input_ids has rank %d; 2 is wanted", ids->rank);
    if (!at) at = g_unsqueeze(g, iota_node(g, ids->dims[1]), 0);
    Node *x = g2(g, OP_add, g_gather_axis(g, wide_in(o, 2), ids, 0), g_gather_axis(g, wide_in(o, 3), at, 0));
    if (o->in[1] && o->in[4]) x = g2(g, OP_add, x, g_gather_axis(g, wide_in(o, 4), o->in[1], 0));
    o->out[2] = g_cast(g, x, dt);
    Node *y = norm_over(g, x, axis_bit(2), op_float(o, "epsilon", (double)1e-12f), true, &mean, &inverse);
    o->out[0] = g_cast(g, norm_scaled(g, y, wide_in(o, 5), wide_in(o, 6)), dt);
    if (o->in[7]) {
        Node *kept = g_cast(g, g2(g, OP_lt, g_int(g, o->in[7]->dt, 0), o->in[7]), DT_i32);
        o->out[1] = g_fold(g, FOLD_sum, kept, axis_bit(1), false);
    } else o->out[1] = g_expand(g, g_int(g, DT_i32, 0), 1, ids->dims);
}

/* x is channels last unless channels_last is 0: [N, ..., C]. Groups of neighbouring channels share mean and variance. */
static void group_norm_msft(OpCall *o, Node *x, Node *gamma, Node *beta)
{
    Graph *g = o->g;
    int64_t groups = op_int(o, "groups", 0), activation = op_int(o, "activation", 0);
    bool last = op_int(o, "channels_last", 1) != 0;
    DType dt = x->dt, wide = dtype_wide(dt);
    if (x->rank < 2 || x->rank + 1 > MAX_RANK) fail(o->cx, E_INVALID, "the input has rank %d", x->rank);
    int c = last ? x->rank - 1 : 1;
    Dim *count = dim_const(g, groups), *dims[MAX_RANK];
    if (groups < 1 || !dim_decide_eq(g, dim_mod(g, x->dims[c], count), dim_const(g, 0), "groups divide the channels"))
        fail(o->cx, E_INVALID, "%lld groups do not divide %lld channels", (long long)groups, (long long)dim_hint(g, x->dims[c]));
    uint32_t axes = 0;
    for (int k = 0; k < x->rank + 1; k++) {
        dims[k] = k < c ? x->dims[k] : k == c ? count : k == c + 1 ? dim_div(g, x->dims[c], count) : x->dims[k - 1];
        if (k && k != c) axes |= axis_bit(k);
    }
    Node *mean, *inverse, *y = norm_over(g, g_reshape(g, g_cast(g, x, wide), x->rank + 1, dims), axes, op_float(o, "epsilon", (double)1e-5f), true, &mean, &inverse);
    y = g_reshape(g, y, x->rank, x->dims);
    y = norm_scaled(g, y, axis_node(g, g_cast(g, gamma, wide), x->rank, c), axis_node(g, g_cast(g, beta, wide), x->rank, c));
    if (activation == 1) y = curve(o, text_swish, y, 1);
    else if (activation) op_unsupported(o, "the activation %lld; 0 or 1 is wanted", (long long)activation);
    o->out[0] = g_cast(g, y, dt);
}

void op_msft_group_norm(OpCall *o) { group_norm_msft(o, o->in[0], o->in[1], o->in[2]); }

/* X, gamma, beta, skip, bias. The skip may be [N, C] or [N, 1, ..., C]. */
void op_skip_group_norm(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *sum = wide_in(o, 0), *skip = wide_in(o, 3);
    if (skip->rank == 2 && x->rank > 2) {
        Dim *dims[MAX_RANK];
        for (int k = 0; k < x->rank; k++) dims[k] = k == 0 ? skip->dims[0] : k == x->rank - 1 ? skip->dims[1] : dim_const(g, 1);
        skip = g_reshape(g, skip, x->rank, dims);
    }
    sum = g2(g, OP_add, sum, skip);
    if (o->in[4]) sum = g2(g, OP_add, sum, wide_in(o, 4));
    o->out[1] = g_cast(g, sum, x->dt);
    group_norm_msft(o, o->out[1], o->in[1], o->in[2]);
}

/* ---- activations named by attributes ------------------------------------------------------------------------------------------------------------ */

static Node *named_activation(OpCall *o, Node *x, const char *name, const float *param, int n)
{
    static const struct { const char *name, *text; double a, b; } known[] = {
        { "Relu", "max(x, 0)", 0, 0 }, { "Tanh", "tanh(x)", 0, 0 }, { "Sigmoid", "sigmoid(x)", 0, 0 },
        { "LeakyRelu", "where(x < 0, a * x, x)", 0.01, 0 }, { "HardSigmoid", "clamp(a * x + b, 0, 1)", 0.2, 0.5 },
        { "Clip", "min(max(x, a), b)", -3.402823466e38, 3.402823466e38 }, { "HardSwish", "x * clamp(x / 6 + 0.5, 0, 1)", 0, 0 },
        { "Elu", "where(x < 0, a * expm1(x), x)", 1, 0 }, { "Gelu", text_gelu, 0, 0 }, { "QuickGelu", text_swish, 1.702, 0 },
        { "Softsign", "x / (1 + abs(x))", 0, 0 }, { "Affine", "a * x + b", 1, 0 }, { "ThresholdedRelu", "where(x > a, x, 0)", 1, 0 },
        { "ParametricSoftplus", "a * (max(b * x, 0) + log1p(exp(-abs(b * x))))", 1, 1 }, { "ScaledTanh", "a * tanh(b * x)", 1, 1 },
        { "Softplus", "max(x, 0) + log1p(exp(-abs(x)))", 0, 0 },
    };
    if (!*name) return x;
    for (size_t k = 0; k < COUNT_OF(known); k++) {
        if (strcmp(name, known[k].name)) continue;
        Binding b[] = { { .name = "x", .type = 'n', .node = x }, { .name = "a", .type = 'f', .number = n > 0 ? (double)param[0] : known[k].a },
                        { .name = "b", .type = 'f', .number = n > 1 ? (double)param[1] : known[k].b } };
        return expr_build(o->g, known[k].text, 3, b);
    }
    op_unsupported(o, "the activation '%s'", name);
}

static Node *activation_of(OpCall *o, Node *x)
{
    int n;
    const float *param = op_floats(o, "activation_params", &n);
    return named_activation(o, x, op_string(o, "activation", ""), param, n);
}

/* ---- matrix products --------------------------------------------------------------------------------------------------------------------------------- */

/* transBatch: the matrix' rows come before the batch axes, [M, batch..., K]; trans: the last two axes (after that) are swapped. */
static Node *fused_operand(OpCall *o, Node *x, bool trans, bool batch)
{
    int perm[MAX_RANK], r = x->rank;
    if (r < 2) return x;
    for (int k = 0; k < r; k++) perm[k] = k;
    if (batch && r > 2) {               /* the first axis moves behind the batch */
        for (int k = 0; k < r - 2; k++) perm[k] = k + 1;
        perm[r - 2] = 0;
        if (trans) perm[r - 2] = r - 1, perm[r - 1] = 0;
    } else if (trans) perm[r - 1] = r - 2, perm[r - 2] = r - 1;
    return g_transpose(o->g, x, perm);
}

static Node *fused_product(OpCall *o)
{
    Graph *g = o->g;
    Node *a = fused_operand(o, wide_in(o, 0), op_int(o, "transA", 0) != 0, op_int(o, "transBatchA", 0) != 0);
    Node *b = fused_operand(o, wide_in(o, 1), op_int(o, "transB", 0) != 0, op_int(o, "transBatchB", 0) != 0), *y = g_matmul(g, a, b);
    double alpha = op_float(o, "alpha", 1);
    return alpha == 1 ? y : g2(g, OP_mul, y, g_scalar(g, y->dt, alpha));
}

void op_fused_matmul(OpCall *o)
{
    o->out[0] = g_cast(o->g, fused_product(o), o->in[0]->dt);
}

void op_fused_matmul_activation(OpCall *o)
{
    float param[2] = { (float)op_float(o, "activation_alpha", 0), (float)op_float(o, "activation_beta", 0) };
    bool any = op_attr(o, "activation_alpha") || op_attr(o, "activation_beta");
    o->out[0] = g_cast(o->g, named_activation(o, fused_product(o), op_string(o, "activation", ""), param, any ? 2 : 0), o->in[0]->dt);
}

void op_fused_gemm(OpCall *o)
{
    Graph *g = o->g;
    Node *y = fused_product(o);
    double beta = op_float(o, "beta", 1);
    if (o->in[2] && beta != 0) {
        Node *c = wide_in(o, 2);
        y = g2(g, OP_add, y, beta == 1 ? c : g2(g, OP_mul, c, g_scalar(g, c->dt, beta)));
    }
    float param[3] = { (float)op_float(o, "activation_alpha", 0), (float)op_float(o, "activation_beta", 0), (float)op_float(o, "activation_gamma", 0) };
    int given = op_attr(o, "activation_beta") ? 2 : op_attr(o, "activation_alpha") ? 1 : 0;
    o->out[0] = g_cast(g, named_activation(o, y, op_string(o, "activation", ""), param, given), o->in[0]->dt);
}

void op_gemm_fast_gelu(OpCall *o)
{
    Graph *g = o->g;
    Node *y = g_matmul(g, wide_in(o, 0), wide_in(o, 1));
    if (o->in[2]) y = g2(g, OP_add, y, wide_in(o, 2));
    o->out[0] = g_cast(g, curve(o, text_gelu_tanh, y, 0), o->in[0]->dt);
}

/* ---- convolutions and pools ------------------------------------------------------------------------------------------------------------------------------ */

/* X, W, bias, a tensor to add, then the activation; with channels first or last. */
static void fused_conv(OpCall *o, bool last)
{
    Graph *g = o->g;
    Node *x = wide_in(o, 0);
    if (last) x = channels_last_to_first(g, x);
    Node *y = op_with(o, op_conv, 3, (Node *[]){ x, wide_in(o, 1), wide_in(o, 2) });
    if (last) y = channels_first_to_last(g, y);
    if (o->in[3]) y = g2(g, OP_add, y, wide_in(o, 3));
    o->out[0] = g_cast(g, activation_of(o, y), o->in[0]->dt);
}

void op_fused_conv(OpCall *o) { fused_conv(o, false); }
void op_nhwc_conv(OpCall *o) { fused_conv(o, true); }

void op_nhwc_max_pool(OpCall *o)
{
    Node *x = channels_last_to_first(o->g, o->in[0]);
    o->out[0] = channels_first_to_last(o->g, op_with(o, op_max_pool, 1, &x));
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------------------------------------------ */

void op_expand_dims(OpCall *o)
{
    int n;
    const int64_t *axis = op_values_int(o, 1, &n);
    if (n != 1) fail(o->cx, E_INVALID, "%d axes; 1 is wanted", n);
    o->out[0] = g_unsqueeze(o->g, o->in[0], op_axis(o, axis[0], o->in[0]->rank + 1));
}

void op_msft_range(OpCall *o)
{
    Node *step = o->in[2] ? o->in[2] : g_cast(o->g, g_int(o->g, DT_i64, 1), o->in[0]->dt);
    o->out[0] = op_apply(o, "Range", 11, 3, (Node *[]){ o->in[0], o->in[1], step }, "");
}

void op_msft_pad(OpCall *o)
{
    Graph *g = o->g;
    const char *mode = op_string(o, "mode", "constant");
    Node *pads = o->in[1];
    if (pads->rank != 1) pads = g_reshape(g, pads, 1, (Dim *[]){ g_count(g, pads) });
    o->out[0] = op_apply(o, "Pad", 13, 3, (Node *[]){ o->in[0], pads, quant_scalar(o, o->in[2]) }, arena_fmt(o->a, "mode=s:%s", mode));
}

/* 1 when no input has an infinity or a NaN. */
void op_is_all_finite(OpCall *o)
{
    Graph *g = o->g;
    bool inf_only = op_int(o, "isinf_only", 0) != 0, nan_only = op_int(o, "isnan_only", 0) != 0;
    Node *all = NULL;
    for (int i = 0; i < o->nin; i++) {
        Node *x = wide_in(o, i), *ok = g2(g, OP_eq, x, x);
        if (!nan_only) {
            Node *finite = g2(g, OP_lt, g1(g, OP_abs, x), g_scalar(g, x->dt, __builtin_inf()));
            ok = inf_only ? g2(g, OP_or, finite, g1(g, OP_not, ok)) : finite;
        }
        ok = g_fold(g, FOLD_min, ok, (uint32_t)((1ull << x->rank) - 1), false);
        all = all ? g2(g, OP_and, all, ok) : ok;
    }
    o->out[0] = all;
}

/* Interleaved pairs (re, im) on the last axis; conj: times the conjugate of the second. */
static void complex_product(OpCall *o, bool conj)
{
    Graph *g = o->g;
    Node *v[2][2], *both[2];
    DType dt = o->in[0]->dt;
    for (int i = 0; i < 2; i++) {
        Node *x = wide_in(o, i);
        for (int k = 0; k < 2; k++) v[i][k] = g_slice(g, x, x->rank - 1, dim_const(g, k), dim_const(g, 1), 1);
    }
    if (conj) v[1][1] = g1(g, OP_neg, v[1][1]);
    both[0] = g2(g, OP_sub, g2(g, OP_mul, v[0][0], v[1][0]), g2(g, OP_mul, v[0][1], v[1][1]));
    both[1] = g2(g, OP_add, g2(g, OP_mul, v[0][0], v[1][1]), g2(g, OP_mul, v[0][1], v[1][0]));
    o->out[0] = g_cast(g, g_join(g, 2, both, both[0]->rank - 1), dt);
}

void op_complex_mul(OpCall *o) { complex_product(o, false); }
void op_complex_mul_conj(OpCall *o) { complex_product(o, true); }

/* Distances between the rows of two matrices. */
void op_cdist(OpCall *o)
{
    Graph *g = o->g;
    const char *metric = op_string(o, "metric", "sqeuclidean");
    Node *d = g2(g, OP_sub, g_unsqueeze(g, o->in[0], 1), g_unsqueeze(g, o->in[1], 0));
    Node *y = g_fold(g, FOLD_sum, g2(g, OP_mul, d, d), axis_bit(2), false);
    if (!strcmp(metric, "euclidean")) y = g1(g, OP_sqrt, y);
    else if (strcmp(metric, "sqeuclidean")) op_unsupported(o, "the metric '%s'", metric);
    o->out[0] = y;
}
