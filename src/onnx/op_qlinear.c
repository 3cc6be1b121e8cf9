/* Quantised operators of com.microsoft: elementwise, pooling and shape operators on 8-bit tensors (QLinear*), matrix products with quantised
 * operands (QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul) and with weights packed into blocks of 2, 4 or 8 bits (MatMulNBits).
 *
 * Linear operators work on the real values in float64, where 8-bit values and float32 scales add and multiply without loss, so that only the
 * final rounding decides; curves (Sigmoid, Softmax) are computed in float32, as the float operator would. */
#include "onnx/onnx.h"
#include <string.h>

/* The input triple value, scale, zero point at place i. */
static Node *qlinear_value(OpCall *o, int i, DType dt)
{
    return quant_real(o, op_need(o, i), quant_scalar(o, op_need(o, i + 1)), quant_scalar(o, o->in[i + 2]), dt);
}

/* Stores a real value by the scale at place i and the zero point after it. */
static Node *qlinear_store(OpCall *o, Node *real, int i, DType to)
{
    Node *zero = quant_scalar(o, o->in[i + 1]);
    Node *q = g2(o->g, OP_div, real, g_cast(o->g, quant_scalar(o, op_need(o, i)), real->dt));
    return quant_store(o, q, zero, zero ? zero->dt : to, true);
}

static void qlinear_binary(OpCall *o, Op op)
{
    Node *real = g2(o->g, op, qlinear_value(o, 0, DT_f64), qlinear_value(o, 3, DT_f64));
    o->out[0] = qlinear_store(o, real, 6, o->in[0]->dt);
}

void op_qlinear_add(OpCall *o) { qlinear_binary(o, OP_add); }
void op_qlinear_mul(OpCall *o) { qlinear_binary(o, OP_mul); }

void op_qlinear_where(OpCall *o)
{
    Node *real = g_where(o->g, o->in[0], qlinear_value(o, 1, DT_f64), qlinear_value(o, 4, DT_f64));
    o->out[0] = qlinear_store(o, real, 7, o->in[1]->dt);
}

void op_qlinear_concat(OpCall *o)
{
    Graph *g = o->g;
    if (o->nin < 5 || (o->nin - 2) % 3) fail(o->cx, E_INVALID, "%d inputs; a scale, a zero point and triples are wanted", o->nin);
    Node *zero = o->in[1], **piece = NEWS(o->a, Node *, o->nin);
    int n = (o->nin - 2) / 3, axis = op_axis(o, op_int(o, "axis", 0), o->in[2]->rank);
    for (int k = 0; k < n; k++) piece[k] = qlinear_store(o, qlinear_value(o, 2 + 3 * k, DT_f64), 0, zero ? zero->dt : o->in[2]->dt);
    o->out[0] = g_join(g, n, piece, axis);
}

void op_qlinear_leaky_relu(OpCall *o)
{
    Graph *g = o->g;
    Node *x = qlinear_value(o, 0, DT_f64), *slope = g_scalar(g, DT_f64, op_float(o, "alpha", (double)0.01f));
    Node *real = g_where(g, g2(g, OP_lt, x, g_scalar(g, DT_f64, 0)), g2(g, OP_mul, x, slope), x);
    o->out[0] = qlinear_store(o, real, 3, o->in[0]->dt);
}

void op_qlinear_sigmoid(OpCall *o)
{
    o->out[0] = qlinear_store(o, g_sigmoid(o->g, qlinear_value(o, 0, DT_f32)), 3, o->in[0]->dt);
}

/* Before opset 13 a Softmax runs over all axes from the given one on; the attribute opset says which is meant. */
void op_qlinear_softmax(OpCall *o)
{
    Node *x = o->in[0];
    int axis = op_axis(o, op_int(o, "axis", -1), x->rank);
    uint32_t all = (uint32_t)((1ull << x->rank) - 1);
    uint32_t axes = op_int(o, "opset", 13) < 13 ? all & ~(axis_bit(axis) - 1) : axis_bit(axis);
    o->out[0] = qlinear_store(o, g_softmax(o->g, qlinear_value(o, 0, DT_f32), axes, false), 3, x->dt);
}

void op_qlinear_reduce_mean(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    int n;
    const int64_t *axes = op_ints(o, "axes", &n);
    uint32_t mask = n ? 0 : (uint32_t)((1ull << x->rank) - 1);
    for (int k = 0; k < n; k++) mask |= axis_bit(op_axis(o, axes[k], x->rank));
    Node *real = g_mean(g, qlinear_value(o, 0, DT_f64), mask, op_int(o, "keepdims", 1) != 0);
    o->out[0] = qlinear_store(o, real, 3, x->dt);
}

void op_qlinear_average_pool(OpCall *o)
{
    Graph *g = o->g;
    bool last = op_int(o, "channels_last", 0) != 0;
    Node *x = qlinear_value(o, 0, DT_f64);
    if (last) x = channels_last_to_first(g, x);
    Node *y = op_with(o, op_average_pool, 1, &x);
    y = qlinear_store(o, y, 3, o->in[0]->dt);
    o->out[0] = last ? channels_first_to_last(g, y) : y;
}

void op_qlinear_global_average_pool(OpCall *o)
{
    Node *x = o->in[0];
    if (x->rank < 3) fail(o->cx, E_INVALID, "the input has rank %d; batch, channels and spatial axes are wanted", x->rank);
    uint32_t axes = 0;
    bool last = op_int(o, "channels_last", 0) != 0;
    for (int k = 1; k < x->rank - 1; k++) axes |= axis_bit(last ? k : k + 1);
    o->out[0] = qlinear_store(o, g_mean(o->g, qlinear_value(o, 0, DT_f64), axes, true), 3, x->dt);
}

/* ---- matrix products ------------------------------------------------------------------------------------------------------------------ */

static Node *matrix_transposed(OpCall *o, Node *x)
{
    if (x->rank != 2) fail(o->cx, E_INVALID, "a matrix to transpose has rank %d; 2 is wanted", x->rank);
    return g_transpose(o->g, x, (int[]){ 1, 0 });
}

void op_qgemm(OpCall *o)
{
    Graph *g = o->g;
    Node *a = o->in[0], *b = op_need(o, 3);
    if (op_int(o, "transA", 0)) a = matrix_transposed(o, a);
    if (op_int(o, "transB", 0)) b = matrix_transposed(o, b);
    Node *sum = quant_matmul(o, a, quant_scalar(o, o->in[2]), b, o->in[5]), *zero = quant_scalar(o, o->in[8]);
    if (o->in[6]) sum = g2(g, OP_add, sum, o->in[6]);
    Node *sa = g2(g, OP_mul, g_cast(g, quant_scalar(o, o->in[1]), DT_f64), g_scalar(g, DT_f64, op_float(o, "alpha", 1)));
    Node *sb = quant_along(o, op_need(o, 4), b, 1), *sy = quant_scalar(o, o->in[7]);
    if (sy) o->out[0] = quant_requantised(o, sum, sa, sb, sy, zero, zero ? zero->dt : a->dt);
    else o->out[0] = g_cast(g, g2(g, OP_mul, g_cast(g, sum, DT_f64), g2(g, OP_mul, sa, g_cast(g, sb, DT_f64))), o->in[1]->dt);
}

Node *quant_matmul_float(OpCall *o, Node *a, Node *sa, Node *az, Node *b, Node *sb, Node *bz, Node *bias)
{
    Graph *g = o->g;
    DType dt = sa->dt, wide = dtype_wide(dt);
    Node *sum = g_cast(g, quant_matmul(o, a, az, b, bz), wide);
    sa = g_cast(g, quant_along(o, sa, a, a->rank - 2), wide);
    sb = g_cast(g, quant_along(o, sb, b, b->rank - 1), wide);
    Node *y = g2(g, OP_mul, sum, g2(g, OP_mul, sa, sb));
    if (bias) y = g2(g, OP_add, y, g_cast(g, bias, wide));
    return g_cast(g, y, dt);
}

void op_matmul_integer_to_float(OpCall *o)
{
    o->out[0] = quant_matmul_float(o, o->in[0], o->in[2], o->in[4], o->in[1], o->in[3], o->in[5], o->in[6]);
}

/* a is quantised as DynamicQuantizeLinear does, then multiplied as integers. */
void op_dynamic_quantize_matmul(OpCall *o)
{
    Node *a, *sa, *az;
    quant_dynamic(o, o->in[0], &a, &sa, &az);
    o->out[0] = quant_matmul_float(o, a, sa, az, o->in[1], o->in[2], o->in[3], o->in[4]);
}

/* ---- weights in blocks ------------------------------------------------------------------------------------------------------------------ */

/* Fields of `bits` bits out of bytes, the lowest bits first: element [n, k] is field k of the bytes of row n. `bytes` is [N, any]. */
static Node *unpack_fields(OpCall *o, Node *bytes, int bits, Dim *columns)
{
    Graph *g = o->g;
    int per = 8 / bits;
    Dim *dims[2] = { bytes->dims[0], columns }, *k = dim_idx(g, 1, columns), *each = dim_const(g, per);
    View v = { .nidx = 2, .idx = (Dim *[]){ dim_idx(g, 0, dims[0]), dim_div(g, k, each) } };
    Node *word = g_cast(g, g_view(g, bytes, 2, dims, &v), DT_i32);
    if (per == 1) return word;
    Node *field = g2(g, OP_mod, g_cast(g, g_iota(g, 1, &columns, 0), DT_i32), g_int(g, DT_i32, per));
    Node *shift = g2(g, OP_mul, field, g_int(g, DT_i32, bits));
    return g2(g, OP_and, g2(g, OP_shr, word, shift), g_int(g, DT_i32, (1 << bits) - 1));
}

/* [N, blocks] laid over [N, K]: each block of `size` columns, or the block that an index vector names, has one value. */
static Node *over_blocks(OpCall *o, Node *x, int64_t size, Dim *columns, Node *group)
{
    Graph *g = o->g;
    Dim *dims[2] = { x->dims[0], columns }, *n = dim_idx(g, 0, dims[0]);
    if (group) {
        group = g_expand(g, g_slice(g, g_cast(g, group, DT_i64), 0, dim_const(g, 0), columns, 1), 2, dims);
        View v = { .nidx = 2, .idx = (Dim *[]){ n, dim_idx(g, DIM_OPERAND, x->dims[1]) } };
        return g_gather(g, x, 1, &group, 2, dims, &v);
    }
    View v = { .nidx = 2, .idx = (Dim *[]){ n, dim_div(g, dim_idx(g, 1, columns), dim_const(g, size)) } };
    return g_view(g, x, 2, dims, &v);
}

static Node *as_rows(OpCall *o, Node *x, Dim *rows)
{
    Dim *count = g_count(o->g, x);
    return g_reshape(o->g, x, 2, (Dim *[]){ rows, dim_div(o->g, count, rows) });
}

/* a [.., K]; b [N, blocks, bytes of a block]; scales [N, blocks]; zero points packed like b, row by row, or as floats; the block of each column;
 * bias [N]. Without zero points they are half of the range. */
void op_matmul_nbits(OpCall *o)
{
    Graph *g = o->g;
    Node *a = o->in[0], *zero = o->in[3], *group = o->in[4], *bias = o->in[5];
    int64_t bits = op_int(o, "bits", 4), size = op_int(o, "block_size", 32), nk = op_int(o, "K", 0), nn = op_int(o, "N", 0);
    if (bits != 2 && bits != 4 && bits != 8) op_unsupported(o, "weights of %lld bits; 2, 4 or 8 are wanted", (long long)bits);
    if (size < 8 / bits || nk < 1 || nn < 1)
        fail(o->cx, E_INVALID, "K %lld, N %lld, block_size %lld; positive numbers are wanted", (long long)nk, (long long)nn, (long long)size);
    if (o->in[1]->dt != DT_u8) op_unsupported(o, "packed weights of dtype %s; u8 is wanted", dtype_info[o->in[1]->dt].name);
    DType dt = a->dt, wide = dtype_wide(dt);
    Dim *columns = dim_const(g, nk), *rows = dim_const(g, nn), *blocks = dim_const(g, (nk + size - 1) / size);
    Node *scale = as_rows(o, o->in[2], rows), *w = unpack_fields(o, as_rows(o, o->in[1], rows), (int)bits, columns);
    if (!dim_decide_eq(g, scale->dims[1], blocks, "one scale for each block"))
        fail(o->cx, E_INVALID, "%lld scales for a row of %lld blocks", (long long)dim_hint(g, scale->dims[1]), (long long)dim_hint(g, blocks));
    Node *offset = g_scalar(g, wide, (double)(1 << (bits - 1)));
    if (zero && dtype_is_float(zero->dt)) offset = over_blocks(o, g_cast(g, as_rows(o, zero, rows), wide), size, columns, group);
    else if (zero) offset = over_blocks(o, g_cast(g, unpack_fields(o, as_rows(o, zero, rows), (int)bits, blocks), wide), size, columns, group);
    scale = over_blocks(o, g_cast(g, scale, wide), size, columns, group);
    w = g2(g, OP_mul, g2(g, OP_sub, g_cast(g, w, wide), offset), scale);
    Node *y = g_matmul(g, g_cast(g, a, wide), g_transpose(g, w, (int[]){ 1, 0 }));
    if (bias) y = g2(g, OP_add, y, g_cast(g, bias, wide));
    o->out[0] = g_cast(g, y, dt);
}

/* data in blocks along quantize_axis, one scale (and zero point) for each; the gathered rows are dequantised. */
void op_gather_block_quantized(OpCall *o)
{
    Graph *g = o->g;
    Node *data = o->in[0], *scale = o->in[2], *zero = o->in[3];
    int64_t bits = op_int(o, "bits", 4), size = op_int(o, "block_size", 128);
    int axis = op_axis(o, op_int(o, "gather_axis", 0), data->rank), along = op_axis(o, op_int(o, "quantize_axis", 1), data->rank);
    bool packed = data->dt == DT_u8 && bits < 8;
    if ((bits != 4 && bits != 8) || size < 1) op_unsupported(o, "blocks of %lld values of %lld bits", (long long)size, (long long)bits);
    if (packed && along != data->rank - 1) op_unsupported(o, "packed bytes along axis %d; the last one is wanted", along);
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    for (int k = 0; k < data->rank; k++) dims[k] = packed && k == along ? dim_mulc(g, data->dims[k], 8 / bits) : data->dims[k];
    for (int k = 0; k < data->rank; k++) {
        idx[k] = dim_idx(g, k, dims[k]);
        if (k == along) idx[k] = dim_div(g, idx[k], dim_const(g, size));
    }
    View by_block = { .nidx = data->rank, .idx = idx };
    Node *value = g_cast(g, data, DT_i32), *offset = g_int(g, DT_i32, data->dt == DT_u8 || data->dt == DT_u4 ? 1 << (bits - 1) : 0);
    if (packed) {
        Dim *rows = dim_div(g, g_count(g, data), data->dims[along]);
        value = g_reshape(g, unpack_fields(o, as_rows(o, data, rows), (int)bits, dims[along]), data->rank, dims);
        if (zero) {
            rows = dim_div(g, g_count(g, scale), scale->dims[along]);
            zero = g_reshape(g, unpack_fields(o, as_rows(o, zero, rows), (int)bits, scale->dims[along]), scale->rank, scale->dims);
        }
    }
    if (zero) offset = g_view(g, g_cast(g, zero, DT_i32), data->rank, dims, &by_block);
    DType dt = scale->dt, wide = dtype_wide(dt);
    Node *real = g2(g, OP_mul, g_cast(g, g2(g, OP_sub, value, offset), wide), g_cast(g, g_view(g, scale, data->rank, dims, &by_block), wide));
    o->out[0] = g_gather_axis(g, g_cast(g, real, dt), o->in[1], axis);
}

/* The product of integers, without a sum; the sum of integers in int32. */
void op_mul_integer(OpCall *o)
{
    o->out[0] = g2(o->g, OP_mul, quant_centred(o, o->in[0], quant_scalar(o, o->in[1])), quant_centred(o, o->in[2], quant_scalar(o, o->in[3])));
}

void op_reduce_sum_integer(OpCall *o)
{
    int n;
    const int64_t *axes = op_ints(o, "axes", &n);
    uint32_t mask = 0;
    for (int k = 0; k < n; k++) mask |= axis_bit(op_axis(o, axes[k], o->in[0]->rank));
    o->out[0] = g_fold(o->g, FOLD_sum, g_cast(o->g, o->in[0], DT_i32), mask, op_int(o, "keepdims", 1) != 0);
}
