/* Convolutions: Conv, ConvInteger, ConvTranspose, DeformConv, CausalConvWithState, Col2Im.
 *
 * All are sums of products over views. 16-bit floats are widened to float32 and the result, bias included, is rounded once.
 * A transposed convolution is written from its output: place o collects the kernel places k and input places i with
 * i*stride + k*dilation - before = o. With dilation 1 only each stride-th k fits, so the sum runs over those alone; otherwise a predicate
 * (remainder 0) selects them. A deformable convolution samples the input bilinearly into [N, C, kernel..., out...] and then is an ordinary sum. */
#include "onnx/onnx.h"
#include <string.h>

/* The window of a weight's kernel; kernel_shape, when given, must say the same. */
static void conv_kernel(OpCall *o, const Node *weight, Dim **kernel)
{
    int n;
    const int64_t *shape = op_ints(o, "kernel_shape", &n);
    if (shape && n != weight->rank - 2)
        fail(o->cx, E_INVALID, "kernel_shape has %d values for a weight of rank %d", n, weight->rank);
    for (int j = 0; j < weight->rank - 2; j++) {
        kernel[j] = weight->dims[j + 2];
        if (shape) op_size_is(o, dim_const(o->g, shape[j]), kernel[j], "kernel_shape: the weight's");
    }
}

/* [M] as [M,1,1...] so that it runs along the channels of [N,M,out...]. */
static Node *channel_vector(Graph *g, Node *v, int rank)
{
    return axis_node(g, v, rank - 1, 0);
}

static Node *conv_bias(OpCall *o, Node *y, int i)
{
    if (i >= o->nin || !o->in[i]) return y;
    if (o->in[i]->rank != 1) fail(o->cx, E_INVALID, "the bias has rank %d; 1 is wanted", o->in[i]->rank);
    op_size_is(o, o->in[i]->dims[0], y->dims[1], "the bias: the output channels");
    return g2(o->g, OP_add, y, channel_vector(o->g, g_cast(o->g, o->in[i], y->dt), y->rank));
}

void op_conv(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *weight = o->in[1];
    int64_t group = op_int(o, "group", 1);
    DType dt = x->dt, wide = dtype_wide(dt);
    conv_check(o, x, weight, group);
    Dim *kernel[MAX_RANK] = { NULL };
    conv_kernel(o, weight, kernel);
    Window w;
    window_init(o, &w, x, kernel, false);
    Node *y = conv_sum(o, &w, g_cast(g, x, wide), g_cast(g, weight, wide), group);
    o->out[0] = g_cast(g, conv_bias(o, y, 2), dt);
}

void op_conv_integer(OpCall *o)
{
    Graph *g = o->g;
    Node *x = g_cast(g, o->in[0], DT_i32), *weight = g_cast(g, o->in[1], DT_i32);
    int64_t group = op_int(o, "group", 1);
    conv_check(o, x, weight, group);
    Node *xz = o->nin > 2 ? o->in[2] : NULL, *wz = o->nin > 3 ? o->in[3] : NULL;
    /* zero points go before the padding, which therefore is zero and has no effect */
    if (xz) x = g2(g, OP_sub, x, g_reshape(g, g_cast(g, xz, DT_i32), 0, NULL));
    if (wz && wz->rank == 1 && !dim_is(wz->dims[0], 1)) weight = g2(g, OP_sub, weight, axis_node(g, g_cast(g, wz, DT_i32), weight->rank, 0));
    else if (wz) weight = g2(g, OP_sub, weight, g_reshape(g, g_cast(g, wz, DT_i32), 0, NULL));
    Dim *kernel[MAX_RANK] = { NULL };
    conv_kernel(o, weight, kernel);
    Window w;
    window_init(o, &w, x, kernel, false);
    o->out[0] = conv_sum(o, &w, x, weight, group);
}

/* ---- transposed ------------------------------------------------------------------------------------------------------------- */

/* The geometry of a transposed convolution in a Window: in, kernel, out, before, stride, dilation. */
static void transpose_init(OpCall *o, Window *w, const Node *x, Dim *const *kernel)
{
    Graph *g = o->g;
    int n = x->rank - 2, nshape;
    if (n > SPATIAL_MAX) op_unsupported(o, "%d spatial axes; at most %d are possible", n, SPATIAL_MAX);
    *w = (Window){ .n = n, .padded = true };
    const int64_t *stride = op_ints_n(o, "strides", n, 1), *dilation = op_ints_n(o, "dilations", n, 1);
    const int64_t *extra = op_ints_n(o, "output_padding", n, 0), *pads = op_ints_n(o, "pads", 2 * n, 0);
    const int64_t *shape = op_ints(o, "output_shape", &nshape);
    const char *mode = op_string(o, "auto_pad", "NOTSET");
    bool upper = !strcmp(mode, "SAME_UPPER"), same = upper || !strcmp(mode, "SAME_LOWER"), valid = !strcmp(mode, "VALID");
    if (shape && nshape != n && nshape != n + 2)
        fail(o->cx, E_INVALID, "output_shape has %d values; %d are wanted", nshape, n);
    for (int j = 0; j < n; j++) {
        if (stride[j] < 1 || dilation[j] < 1)
            fail(o->cx, E_INVALID, "stride %lld and dilation %lld of axis %d; positive ones are wanted", (long long)stride[j], (long long)dilation[j], j);
        w->in[j] = x->dims[2 + j];
        w->kernel[j] = kernel[j];
        w->stride[j] = stride[j];
        w->dilation[j] = dilation[j];
        Dim *extent = dim_addc(g, dim_mulc(g, dim_addc(g, kernel[j], -1), dilation[j]), 1);
        Dim *full = dim_addc(g, dim_add(g, dim_mulc(g, dim_addc(g, w->in[j], -1), stride[j]), extent), extra[j]);
        Dim *out = shape ? dim_const(g, shape[nshape - n + j]) : same ? dim_mulc(g, w->in[j], stride[j]) : NULL;
        if (out) {
            Dim *total = dim_max(g, dim_sub(g, full, out), dim_const(g, 0)), *half = dim_div(g, total, dim_const(g, 2));
            w->before[j] = upper ? half : dim_sub(g, total, half);
            w->out[j] = out;
        } else {
            int64_t before = valid ? 0 : pads[j], after = valid ? 0 : pads[n + j];
            w->before[j] = dim_const(g, before);
            w->out[j] = dim_max(g, dim_addc(g, full, -before - after), dim_const(g, 0));
        }
    }
}

/* x [N,C,in...], weight [C,M/group,kernel...] -> [N,M,out...] */
static Node *transpose_sum(OpCall *o, const Window *w, Node *x, Node *weight, int64_t group)
{
    Graph *g = o->g;
    int n = w->n, gr = group > 1 ? 1 : 0;
    int am = 1 + gr, ao = am + 1, ac = ao + n, ak = ac + 1, rank = ak + n;
    if (rank > MAX_RANK) op_unsupported(o, "a convolution over %d spatial axes", n);
    Dim *dims[MAX_RANK] = { NULL }, *it[MAX_RANK] = { NULL }, *xi[MAX_RANK] = { NULL }, *wi[MAX_RANK] = { NULL };
    Dim *per = dim_div(g, x->dims[1], dim_const(g, group));
    dims[0] = x->dims[0];
    if (gr) dims[1] = dim_const(g, group);
    dims[am] = weight->dims[1];
    dims[ac] = per;
    for (int j = 0; j < n; j++) {
        dims[ao + j] = w->out[j];
        dims[ak + j] = w->dilation[j] == 1 ? dim_ceildiv(g, w->kernel[j], dim_const(g, w->stride[j])) : w->kernel[j];
    }
    for (int k = 0; k < rank; k++) it[k] = dim_idx(g, k, dims[k]);
    Pred xp[2 * SPATIAL_MAX], wp[SPATIAL_MAX];
    View xv = { .nidx = x->rank, .idx = xi, .pred = xp }, wv = { .nidx = weight->rank, .idx = wi, .pred = wp };
    xi[0] = it[0];
    xi[1] = wi[0] = gr ? dim_add(g, dim_mul(g, it[1], per), it[ac]) : it[ac];
    wi[1] = it[am];
    uint32_t axes = axis_bit(ac);
    for (int j = 0; j < n; j++) {
        Dim *stride = dim_const(g, w->stride[j]), *at = dim_add(g, it[ao + j], w->before[j]), *k = it[ak + j];
        axes |= axis_bit(ak + j);
        if (w->dilation[j] == 1) {
            wi[2 + j] = dim_add(g, dim_mod(g, at, stride), dim_mul(g, k, stride));
            xi[2 + j] = dim_sub(g, dim_div(g, at, stride), k);
            if (w->stride[j] > 1) wp[wv.npred++] = (Pred){ wi[2 + j], w->kernel[j] };
        } else {
            at = dim_sub(g, at, dim_mulc(g, k, w->dilation[j]));
            wi[2 + j] = k;
            xi[2 + j] = dim_div(g, at, stride);
            if (w->stride[j] > 1) xp[xv.npred++] = (Pred){ dim_mod(g, at, stride), dim_const(g, 1) };
        }
        xp[xv.npred++] = (Pred){ xi[2 + j], w->in[j] };
    }
    Node *product = g2(g, OP_mul, g_view(g, x, rank, dims, &xv), g_view(g, weight, rank, dims, &wv));
    Node *sum = g_fold(g, FOLD_sum, product, axes, false);
    Dim *shape[MAX_RANK] = { NULL };
    shape[0] = x->dims[0];
    shape[1] = dim_mulc(g, weight->dims[1], group);
    for (int j = 0; j < n; j++) shape[2 + j] = w->out[j];
    return g_reshape(g, sum, 2 + n, shape);
}

void op_conv_transpose(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *weight = o->in[1];
    int64_t group = op_int(o, "group", 1);
    DType dt = x->dt, wide = dtype_wide(dt);
    if (weight->rank != x->rank || x->rank < 2)
        fail(o->cx, E_INVALID, "the weight has rank %d and the input rank %d; equal ranks of at least 2 are wanted", weight->rank, x->rank);
    if (group < 1) fail(o->cx, E_INVALID, "group is %lld; a positive number is wanted", (long long)group);
    op_size_is(o, x->dims[1], weight->dims[0], "input channels: the weight's first axis");
    op_divides(o, group, x->dims[1], "input channels in groups");
    Dim *kernel[MAX_RANK] = { NULL };
    conv_kernel(o, weight, kernel);
    Window w;
    transpose_init(o, &w, x, kernel);
    Node *y = transpose_sum(o, &w, g_cast(g, x, wide), g_cast(g, weight, wide), group);
    o->out[0] = g_cast(g, conv_bias(o, y, 2), dt);
}

/* ---- deformable ------------------------------------------------------------------------------------------------------------- */

/* The coordinate of each sampling point along spatial axis j, in the layout [N, offset groups, 1, kernel..., out...]. offset is
 * [N, groups * kernel count * n, out...]. */
static Node *deform_coordinate(OpCall *o, const Window *w, Node *offset, int64_t groups, int j)
{
    Graph *g = o->g;
    int n = w->n, rank = 3 + 2 * n;
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK], *it[MAX_RANK] = { NULL };
    dims[0] = offset->dims[0];
    dims[1] = dim_const(g, groups);
    dims[2] = dim_const(g, 1);
    for (int k = 0; k < n; k++) dims[3 + k] = w->kernel[k], dims[3 + n + k] = offset->dims[2 + k];
    for (int k = 0; k < rank; k++) it[k] = dim_idx(g, k, dims[k]);
    Dim *channel = it[1];
    for (int k = 0; k < n; k++) channel = dim_add(g, dim_mul(g, channel, w->kernel[k]), it[3 + k]);
    idx[0] = it[0];
    idx[1] = dim_addc(g, dim_mulc(g, channel, n), j);
    for (int k = 0; k < n; k++) idx[2 + k] = it[3 + n + k];
    Node *shift = g_view(g, offset, rank, dims, &(View){ .nidx = offset->rank, .idx = idx });
    DType dt = shift->dt;
    Node *k = g2(g, OP_mul, iota_node(g, w->kernel[j]), g_int(g, DT_i64, w->dilation[j]));
    Node *at = g2(g, OP_sub, g2(g, OP_mul, iota_node(g, w->out[j]), g_int(g, DT_i64, w->stride[j])), dim_node(g, w->before[j], DT_i64));
    Node *base = g2(g, OP_add, axis_node(g, k, rank, 3 + j), axis_node(g, at, rank, 3 + n + j));
    return g2(g, OP_add, shift, g_cast(g, base, dt));
}

/* x [N,C,in...] at coordinates, linearly between the 2^n neighbours, zero outside: [N, groups, C/groups, kernel..., out...] */
static Node *deform_sample(OpCall *o, const Window *w, Node *x, Node *const *at, int64_t groups)
{
    Graph *g = o->g;
    int n = w->n, rank = 3 + 2 * n;
    ASSERT(n >= 1);
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    Dim *per = dim_div(g, x->dims[1], dim_const(g, groups));
    for (int k = 0; k < rank; k++) dims[k] = k == 2 ? per : at[0]->dims[k];
    idx[0] = dim_idx(g, 0, dims[0]);
    idx[1] = dim_add(g, dim_mul(g, dim_idx(g, 1, dims[1]), per), dim_idx(g, 2, per));
    for (int j = 0; j < n; j++) idx[2 + j] = dim_idx(g, DIM_OPERAND + j, x->dims[2 + j]);
    Node *low[SPATIAL_MAX] = { NULL }, *part[SPATIAL_MAX] = { NULL }, *zero = g_scalar(g, x->dt, 0), *sum = NULL;
    for (int j = 0; j < n; j++) {
        low[j] = g1(g, OP_floor, at[j]);
        part[j] = g2(g, OP_sub, at[j], low[j]);
    }
    for (int corner = 0; corner < 1 << n; corner++) {
        Node *index[SPATIAL_MAX], *inside = NULL, *weight = NULL;
        for (int j = 0; j < n; j++) {
            bool high = corner >> j & 1;
            Node *p = g2(g, OP_add, g_cast(g, low[j], DT_i64), g_int(g, DT_i64, high));
            Node *last = dim_node(g, dim_addc(g, x->dims[2 + j], -1), DT_i64), *first = g_int(g, DT_i64, 0);
            Node *ok = g2(g, OP_and, g2(g, OP_le, first, p), g2(g, OP_le, p, last));
            inside = inside ? g2(g, OP_and, inside, ok) : ok;
            index[j] = g2(g, OP_max, g2(g, OP_min, p, last), first);
            Node *share = high ? part[j] : g2(g, OP_sub, g_scalar(g, part[j]->dt, 1), part[j]);
            weight = weight ? g2(g, OP_mul, weight, share) : share;
        }
        Node *v = g_gather(g, x, n, index, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
        v = g2(g, OP_mul, g_where(g, inside, v, zero), g_cast(g, weight, x->dt));
        sum = sum ? g2(g, OP_add, sum, v) : v;
    }
    return sum;
}

void op_deform_conv(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *weight = o->in[1], *offset = o->in[2], *mask = o->nin > 4 ? o->in[4] : NULL;
    int64_t group = op_int(o, "group", 1), groups = op_int(o, "offset_group", 1);
    DType dt = x->dt, wide = dtype_wide(dt);
    conv_check(o, x, weight, group);
    int n = x->rank - 2, rank = 3 + 2 * n;
    if (n < 1) fail(o->cx, E_INVALID, "the input has rank %d; at least 3 is wanted", x->rank);
    if (rank > MAX_RANK) op_unsupported(o, "a deformable convolution over %d spatial axes", n);
    if (offset->rank != x->rank) fail(o->cx, E_INVALID, "the offset has rank %d; %d is wanted", offset->rank, x->rank);
    op_divides(o, groups, x->dims[1], "input channels in offset groups");
    Dim *kernel[MAX_RANK] = { NULL };
    conv_kernel(o, weight, kernel);
    Window w;
    window_init(o, &w, x, kernel, false);
    Dim *count = dim_const(g, groups * n);
    for (int j = 0; j < n; j++) {
        count = dim_mul(g, count, kernel[j]);
        op_size_is(o, offset->dims[2 + j], w.out[j], "an axis of the offset: the output's");
    }
    op_size_is(o, offset->dims[1], count, "offset channels: offset_group times the kernel's places times the axes");
    Node *at[SPATIAL_MAX] = { NULL };
    for (int j = 0; j < n; j++) at[j] = deform_coordinate(o, &w, g_cast(g, offset, wide), groups, j);
    Node *s = deform_sample(o, &w, g_cast(g, x, wide), at, groups);
    if (mask) {
        Dim *dims[MAX_RANK];
        for (int k = 0; k < rank; k++) dims[k] = at[0]->dims[k];
        s = g2(g, OP_mul, s, g_reshape(g, g_cast(g, mask, wide), rank, dims));
    }
    /* [N, C, kernel..., out...] and then the sum over C/group and the kernel */
    Dim *dims[MAX_RANK] = { NULL }, *it[MAX_RANK] = { NULL }, *si[MAX_RANK] = { NULL }, *wi[MAX_RANK] = { NULL };
    Dim *per = dim_div(g, weight->dims[0], dim_const(g, group)), *channel;
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    for (int k = 0; k < 2 * n; k++) dims[2 + k] = s->dims[3 + k];
    s = g_reshape(g, s, 2 + 2 * n, dims);
    int ao = 3, ac = ao + n, ak = ac + 1, full = ak + n;
    if (full > MAX_RANK) op_unsupported(o, "a deformable convolution over %d spatial axes", n);
    dims[1] = dim_const(g, group);
    dims[2] = per;
    dims[ac] = weight->dims[1];
    for (int j = 0; j < n; j++) dims[ao + j] = w.out[j], dims[ak + j] = kernel[j];
    for (int k = 0; k < full; k++) it[k] = dim_idx(g, k, dims[k]);
    channel = dim_add(g, dim_mul(g, it[1], weight->dims[1]), it[ac]);
    si[0] = it[0], si[1] = channel;
    wi[0] = dim_add(g, dim_mul(g, it[1], per), it[2]), wi[1] = it[ac];
    uint32_t axes = axis_bit(ac);
    for (int j = 0; j < n; j++) {
        si[2 + j] = wi[2 + j] = it[ak + j];
        si[2 + n + j] = it[ao + j];
        axes |= axis_bit(ak + j);
    }
    Node *y = g_view(g, s, full, dims, &(View){ .nidx = s->rank, .idx = si });
    y = g2(g, OP_mul, y, g_view(g, g_cast(g, weight, wide), full, dims, &(View){ .nidx = weight->rank, .idx = wi }));
    y = g_fold(g, FOLD_sum, y, axes, false);
    Dim *shape[MAX_RANK] = { NULL };
    shape[0] = x->dims[0], shape[1] = weight->dims[0];
    for (int j = 0; j < n; j++) shape[2 + j] = w.out[j];
    o->out[0] = g_cast(g, conv_bias(o, g_reshape(g, y, 2 + n, shape), 3), dt);
}

/* ---- depthwise over time with a carried state -------------------------------------------------------------------------------------- */

/* The sequence [state, x] of length k-1+L; output t is the sum over its places t..t+k-1; the new state is its last k-1 places. */
void op_causal_conv_state(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *weight = o->in[1], *state = o->nin > 3 ? o->in[3] : NULL;
    DType dt = x->dt, wide = dtype_wide(dt);
    const char *activation = op_string(o, "activation", "none");
    if (x->rank != 3 || weight->rank != 3)
        fail(o->cx, E_INVALID, "input of rank %d and weight of rank %d; 3 and 3 are wanted", x->rank, weight->rank);
    op_size_is(o, weight->dims[0], x->dims[1], "kernels: one for each channel");
    Dim *zero = dim_const(g, 0), *kernel = weight->dims[2], *carried = dim_addc(g, kernel, -1);
    Node *all = state ? g_join(g, 2, (Node *[]){ state, x }, 2)
                      : g_pad(g, x, (Dim *[]){ zero, zero, carried }, (Dim *[]){ zero, zero, zero }, (Scalar){ 0 });
    Dim *dims[4] = { x->dims[0], x->dims[1], x->dims[2], kernel }, *it[4];
    for (int k = 0; k < 4; k++) it[k] = dim_idx(g, k, dims[k]);
    Node *part = g_view(g, g_cast(g, all, wide), 4, dims, &(View){ .nidx = 3, .idx = (Dim *[]){ it[0], it[1], dim_add(g, it[2], it[3]) } });
    Node *tap = g_view(g, g_cast(g, weight, wide), 4, dims, &(View){ .nidx = 3, .idx = (Dim *[]){ it[1], zero, it[3] } });
    Node *y = conv_bias(o, g_fold(g, FOLD_sum, g2(g, OP_mul, part, tap), axis_bit(3), false), 2);
    if (!strcmp(activation, "silu") || !strcmp(activation, "swish")) y = g2(g, OP_mul, y, g_sigmoid(g, y));
    else if (strcmp(activation, "none") && *activation) op_unsupported(o, "the activation '%s'; silu, swish or none is wanted", activation);
    o->out[0] = g_cast(g, y, dt);
    if (op_wants(o, 1)) o->out[1] = g_slice(g, all, 2, x->dims[2], carried, 1);
}

/* ---- columns to image ---------------------------------------------------------------------------------------------------------- */

/* in [N, C*block, columns] -> [N, C, image...]: each place sums the block places k and columns i with i*stride + k*dilation - before = o. */
void op_col2im(OpCall *o)
{
    int n, nblock;
    op_sizes(o, 1, &n);
    Dim **block = op_sizes(o, 2, &nblock), **image = op_sizes(o, 1, &n);   /* again: reading the block may have begun a new graph */
    Graph *g = o->g;
    Node *x = o->in[0];
    DType dt = x->dt, wide = dtype_wide(dt);
    if (x->rank != 3 || nblock != n)
        fail(o->cx, E_INVALID, "input of rank %d, %d image and %d block sizes; rank 3 and equal numbers are wanted", x->rank, n, nblock);
    if (n > SPATIAL_MAX) op_unsupported(o, "%d spatial axes; at most %d are possible", n, SPATIAL_MAX);
    const int64_t *stride = op_ints_n(o, "strides", n, 1), *dilation = op_ints_n(o, "dilations", n, 1), *pads = op_ints_n(o, "pads", 2 * n, 0);
    Dim *count = dim_const(g, 1);
    for (int j = 0; j < n; j++) count = dim_mul(g, count, block[j]);
    Dim *dims[MAX_RANK] = { NULL }, *it[MAX_RANK] = { NULL };
    Pred pred[2 * SPATIAL_MAX];
    int npred = 0;
    dims[0] = x->dims[0];
    dims[1] = dim_div(g, x->dims[1], count);
    for (int j = 0; j < n; j++) dims[2 + j] = image[j], dims[2 + n + j] = block[j];
    for (int k = 0; k < 2 + 2 * n; k++) it[k] = dim_idx(g, k, dims[k]);
    Dim *row = it[1], *column = dim_const(g, 0), *blocks = dim_const(g, 1);
    op_size_is(o, dim_mul(g, dims[1], count), x->dims[1], "rows: a multiple of the block");
    uint32_t axes = 0;
    for (int j = 0; j < n; j++) {
        Dim *s = dim_const(g, stride[j]);
        Dim *extent = dim_addc(g, dim_mulc(g, dim_addc(g, block[j], -1), dilation[j]), 1);
        Dim *columns = dim_addc(g, dim_div(g, dim_sub(g, dim_addc(g, image[j], pads[j] + pads[n + j]), extent), s), 1);
        Dim *at = dim_sub(g, dim_addc(g, it[2 + j], pads[j]), dim_mulc(g, it[2 + n + j], dilation[j]));
        Dim *i = dim_div(g, at, s);
        if (stride[j] > 1) pred[npred++] = (Pred){ dim_mod(g, at, s), dim_const(g, 1) };
        pred[npred++] = (Pred){ i, columns };
        row = dim_add(g, dim_mul(g, row, block[j]), it[2 + n + j]);
        column = dim_add(g, dim_mul(g, column, columns), i);
        blocks = dim_mul(g, blocks, columns);
        axes |= axis_bit(2 + n + j);
    }
    op_size_is(o, x->dims[2], blocks, "columns: the places of the block");
    View v = { .nidx = 3, .idx = (Dim *[]){ it[0], row, column }, .npred = npred, .pred = pred };
    Node *y = g_view(g, g_cast(g, x, wide), 2 + 2 * n, dims, &v);
    o->out[0] = g_cast(g, g_fold(g, FOLD_sum, y, axes, false), dt);
}
