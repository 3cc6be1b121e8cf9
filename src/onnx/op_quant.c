/* Quantisation: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, the integer matrix products and QLinearConv.
 *
 * A quantised value q stands for (q - zero point) * scale. Integer sums are exact in int32; the product of the scales is formed and applied in
 * float64, so that what is rounded (half to even, then the zero point, then saturation) is the value that the integers and the float32 scales
 * stand for, and a tie is a tie. NaN becomes 0. QuantizeLinear and DequantizeLinear round their quotient and product where the operator says:
 * to `precision`, else to the wider dtype of value and scale, and to the output dtype. */
#include "onnx/onnx.h"

Node *op_need(OpCall *o, int i)
{
    if (i >= o->nin || !o->in[i]) fail(o->cx, E_FORMAT, "input %d is absent, but it is not optional", i);
    return o->in[i];
}

Node *quant_scalar(OpCall *o, Node *p)
{
    if (!p || p->rank == 0) return p;
    Dim *count = g_count(o->g, p);
    if (!dim_decide_eq(o->g, count, dim_const(o->g, 1), "a scale or zero point for the whole tensor"))
        fail(o->cx, E_INVALID, "a scale or zero point has the shape %s; one value is wanted", dims_str(o->g, p->rank, p->dims));
    return g_reshape(o->g, p, 0, NULL);
}

static bool one_element(OpCall *o, const Node *p)
{
    return p->rank == 0 || (p->rank == 1 && dim_decide_eq(o->g, p->dims[0], dim_const(o->g, 1), "a scale or zero point for the whole tensor"));
}

Node *quant_along(OpCall *o, Node *p, const Node *x, int axis)
{
    if (!p) return NULL;
    if (one_element(o, p)) return g_reshape(o->g, p, 0, NULL);
    if (p->rank != 1) return p;
    if (axis < 0 || axis >= x->rank || !dim_decide_eq(o->g, p->dims[0], x->dims[axis], "one scale or zero point for each place of its axis"))
        fail(o->cx, E_INVALID, "a scale or zero point of shape %s for axis %d of %s", dims_str(o->g, 1, p->dims), axis, dims_str(o->g, x->rank, x->dims));
    return axis_node(o->g, p, x->rank, axis);
}

/* A scale or zero point as QuantizeLinear lays it over x: one for all, one for each place of an axis, one for each block of an axis. */
static Node *quant_param(OpCall *o, Node *p, const Node *x)
{
    Graph *g = o->g;
    int64_t block = op_int(o, "block_size", 0), where = op_int(o, "axis", 1);
    if (!p) return NULL;
    if (block < 0) fail(o->cx, E_INVALID, "block_size %lld; a positive number, or 0 for no blocks, is wanted", (long long)block);
    if (!block || p->rank == 0) return one_element(o, p) ? g_reshape(g, p, 0, NULL) : quant_along(o, p, x, op_axis(o, where, x->rank));
    int axis = op_axis(o, where, x->rank);
    if (p->rank != x->rank)
        fail(o->cx, E_INVALID, "a scale or zero point in blocks has rank %d, the tensor rank %d; they must be equal", p->rank, x->rank);
    Dim *idx[MAX_RANK];
    for (int k = 0; k < x->rank; k++) {
        Dim *i = dim_idx(g, k, x->dims[k]), *size = dim_const(g, block);
        bool fits = dim_decide_eq(g, p->dims[k], k == axis ? dim_ceildiv(g, x->dims[k], size) : x->dims[k], "scales in blocks cover the tensor");
        if (!fits)
            fail(o->cx, E_INVALID, "scales of shape %s for blocks of %lld along axis %d of %s", dims_str(g, p->rank, p->dims), (long long)block, axis,
                 dims_str(g, x->rank, x->dims));
        idx[k] = k == axis ? dim_div(g, i, size) : i;
    }
    return g_view(g, p, x->rank, x->dims, &(View){ .nidx = x->rank, .idx = idx });
}

static bool quant_target(DType t)
{
    return (dtype_is_int(t) && dtype_size(t) <= 2) || (dtype_is_float(t) && dtype_size(t) == 1 && t != DT_f8e8m0);
}

/* The range of an integer dtype. */
static void quant_range(DType t, int64_t *low, int64_t *high)
{
    int bits = dtype_bits(t);
    bool is_signed = dtype_info[t].class == 'S';
    *low = is_signed ? -((int64_t)1 << (bits - 1)) : 0;
    *high = ((int64_t)1 << (bits - is_signed)) - 1;
}

Node *quant_store(OpCall *o, Node *quotient, Node *zero, DType to, bool saturate)
{
    Graph *g = o->g;
    if (dtype_is_float(to)) {
        if (zero && to == DT_f4e2m1) quotient = g2(g, OP_add, quotient, g_cast(g, zero, quotient->dt));
        return g_cast_sat(g, quotient, to, saturate || to == DT_f4e2m1);
    }
    int64_t low, high;
    quant_range(to, &low, &high);
    Node *y = g1(g, OP_round, quotient);
    if (zero) y = g2(g, OP_add, y, g_cast(g, zero, y->dt));
    y = g2(g, OP_min, g2(g, OP_max, y, g_scalar(g, y->dt, (double)low)), g_scalar(g, y->dt, (double)high));
    return g_cast(g, y, to);
}

Node *quant_centred(OpCall *o, Node *x, Node *zero)
{
    Graph *g = o->g;
    if (dtype_is_float(x->dt)) return g_cast(g, x, DT_f32);
    x = g_cast(g, x, DT_i32);
    return zero ? g2(g, OP_sub, x, g_cast(g, zero, DT_i32)) : x;
}

Node *quant_real(OpCall *o, Node *x, Node *scale, Node *zero, DType dt)
{
    Graph *g = o->g;
    return g2(g, OP_mul, g_cast(g, quant_centred(o, x, zero), dt), g_cast(g, scale, dt));
}

Node *quant_requantised(OpCall *o, Node *sum, Node *sx, Node *sw, Node *sy, Node *zero, DType to)
{
    Graph *g = o->g;
    Node *scale = g2(g, OP_mul, g_cast(g, sx, DT_f64), g_cast(g, sw, DT_f64));
    if (sy) scale = g2(g, OP_div, scale, g_cast(g, sy, DT_f64));
    return quant_store(o, g2(g, OP_mul, g_cast(g, sum, DT_f64), scale), zero, to, true);
}

/* The dtype in which a value is divided by its scale. */
static DType quotient_dtype(DType x, DType scale)
{
    if (!dtype_is_float(x)) x = DT_f32;
    if (!dtype_is_float(scale) || dtype_size(scale) == 1) return x;
    return x == scale ? x : DT_f32;
}

void op_quantize_linear(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *scale = o->in[1], *zero = o->nin > 2 ? o->in[2] : NULL;
    int64_t wanted = op_int(o, "output_dtype", 0), precision = op_int(o, "precision", 0);
    DType to = zero ? zero->dt : wanted ? dtype_from_onnx((int)wanted) : DT_u8;
    if (zero && wanted && dtype_from_onnx((int)wanted) != zero->dt)
        fail(o->cx, E_INVALID, "output_dtype is %s, but the zero point is %s", dtype_info[dtype_from_onnx((int)wanted)].name, dtype_info[zero->dt].name);
    if (!quant_target(to))
        op_unsupported(o, "quantisation to %s; an integer of at most 16 bits or a float of at most 8 is wanted", dtype_info[to].name);
    DType p = precision ? dtype_from_onnx((int)precision) : quotient_dtype(x->dt, scale->dt);
    if (!dtype_is_float(p)) fail(o->cx, E_INVALID, "precision %lld; a float is wanted", (long long)precision);
    DType wide = dtype_wide(p);
    scale = quant_param(o, scale, x);
    zero = quant_param(o, zero, x);
    if (precision) x = g_cast(g, x, p), scale = g_cast(g, scale, p);
    Node *q = g2(g, OP_div, g_cast(g, x, wide), g_cast(g, scale, wide));
    o->out[0] = quant_store(o, g_cast(g, g_cast(g, q, p), wide), zero, to, op_int(o, "saturate", 1) != 0);
}

void op_dequantize_linear(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *scale = o->in[1], *zero = o->nin > 2 ? o->in[2] : NULL;
    int64_t wanted = op_int(o, "output_dtype", 0);
    DType to = wanted ? dtype_from_onnx((int)wanted) : scale->dt == DT_f8e8m0 ? DT_f32 : scale->dt;
    if (!dtype_is_float(to)) fail(o->cx, E_INVALID, "output_dtype %lld; a float is wanted", (long long)wanted);
    if (zero && zero->dt != x->dt)
        fail(o->cx, E_INVALID, "the zero point is %s, the value %s; they must be equal", dtype_info[zero->dt].name, dtype_info[x->dt].name);
    Node *real = quant_real(o, x, quant_param(o, scale, x), quant_param(o, zero, x), to == DT_f64 ? DT_f64 : DT_f32);
    o->out[0] = g_cast(g, real, to);
}

/* The range is widened to hold 0. A tensor of zeros gets the scale 1. */
void quant_dynamic(OpCall *o, Node *x, Node **y, Node **scale, Node **zero)
{
    Graph *g = o->g;
    uint32_t all = (uint32_t)((1ull << x->rank) - 1);
    Node *nought = g_scalar(g, x->dt, 0);
    Node *high = g2(g, OP_max, g_fold(g, FOLD_max, x, all, false), nought), *low = g2(g, OP_min, g_fold(g, FOLD_min, x, all, false), nought);
    Node *range = g2(g, OP_div, g2(g, OP_sub, high, low), g_scalar(g, x->dt, 255));
    *scale = g_where(g, g2(g, OP_eq, high, low), g_scalar(g, x->dt, 1), range);
    Node *start = g2(g, OP_sub, nought, g2(g, OP_div, low, *scale));
    *zero = quant_store(o, start, NULL, DT_u8, true);
    *y = quant_store(o, g2(g, OP_div, x, *scale), *zero, DT_u8, true);
}

void op_dynamic_quantize_linear(OpCall *o)
{
    quant_dynamic(o, o->in[0], &o->out[0], &o->out[1], &o->out[2]);
}

/* ---- matrix products ---------------------------------------------------------------------------------------------------------------- */

/* Sum of (a - az)(b - bz). One zero point for all, one for each row of a, one for each column of b. */
Node *quant_matmul(OpCall *o, Node *a, Node *az, Node *b, Node *bz)
{
    az = quant_along(o, az, a, a->rank - 2);
    bz = quant_along(o, bz, b, b->rank - 1);
    a = quant_centred(o, a, az);
    b = quant_centred(o, b, bz);
    if (a->dt != b->dt) a = g_cast(o->g, a, DT_f32), b = g_cast(o->g, b, DT_f32);
    return g_matmul(o->g, a, b);
}

void op_matmul_integer(OpCall *o)
{
    o->out[0] = quant_matmul(o, o->in[0], o->in[2], o->in[1], o->in[3]);
}

void op_qlinear_matmul(OpCall *o)
{
    Node *a = o->in[0], *b = o->in[3], *zero = o->in[7];
    Node *sum = quant_matmul(o, a, o->in[2], b, o->in[5]);
    Node *sa = quant_along(o, o->in[1], a, a->rank - 2), *sb = quant_along(o, o->in[4], b, b->rank - 1);
    Node *sy = quant_along(o, o->in[6], sum, sum->rank - 2);
    o->out[0] = quant_requantised(o, sum, sa, sb, sy, quant_along(o, zero, sum, sum->rank - 2), zero ? zero->dt : a->dt);
}

/* ---- convolution ----------------------------------------------------------------------------------------------------------------------- */

Node *op_with(OpCall *o, void (*fn)(OpCall *), int nin, Node *const *in)
{
    OpCall c = *o;
    c.in = NEWS(o->a, Node *, nin + OP_PLACES);
    c.out = NEWS(o->a, Node *, OP_PLACES);
    for (int i = 0; i < nin; i++) c.in[i] = in[i];
    c.nin = nin;
    c.nout = 1;
    fn(&c);
    o->g = c.g;
    return c.out[0];
}

Node *channels_last_to_first(Graph *g, Node *x)
{
    int perm[MAX_RANK];
    for (int k = 0; k < x->rank; k++) perm[k] = k < 2 ? (k ? x->rank - 1 : 0) : k - 1;
    return g_transpose(g, x, perm);
}

Node *channels_first_to_last(Graph *g, Node *x)
{
    int perm[MAX_RANK];
    for (int k = 0; k < x->rank; k++) perm[k] = k == 0 ? 0 : k == x->rank - 1 ? 1 : k + 1;
    return g_transpose(g, x, perm);
}

/* x, its scale and zero point, w, its scale and zero point, the output's scale and zero point, the bias in units of both scales. */
void op_qlinear_conv(OpCall *o)
{
    Graph *g = o->g;
    bool last = op_int(o, "channels_last", 0) != 0;
    Node *x = o->in[0], *bias = o->in[8], *zero = quant_scalar(o, o->in[7]);
    if (x->rank < 2) fail(o->cx, E_INVALID, "the input has rank %d; at least 2 is wanted", x->rank);
    DType to = zero ? zero->dt : x->dt;
    if (last) x = channels_last_to_first(g, x);
    Node *sum = op_with(o, op_conv_integer, 4, (Node *[]){ x, o->in[3], o->in[2], o->in[5] });
    if (bias) sum = g2(g, OP_add, sum, axis_node(g, g_cast(g, bias, DT_i32), sum->rank, 1));
    Node *y = quant_requantised(o, sum, quant_scalar(o, o->in[1]), quant_along(o, o->in[4], sum, 1), quant_scalar(o, o->in[6]), zero, to);
    o->out[0] = last ? channels_first_to_last(g, y) : y;
}
