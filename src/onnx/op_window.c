/* Windows: the geometry that convolutions and pools share. A window is a `view`: output place o and kernel place k of each spatial axis read
 * the input at o*stride - before + k*dilation, with the predicate that this lies inside. All sizes may be symbolic: the number of windows is
 * a floor quotient, SAME padding a difference of sizes.
 *
 * conv_sum is the one contraction of all convolutions: the iteration space [N, group, M/group, out..., C/group, kernel...] with the
 * reduced axes last; both operands are views of it, so that the recogniser of contractions sees which axes each of them reads. */
#include "onnx/onnx.h"
#include <string.h>

const int64_t *op_ints_n(OpCall *o, const char *name, int n, int64_t fallback)
{
    int count;
    const int64_t *v = op_ints(o, name, &count);
    if (v) {
        if (count != n) fail(o->cx, E_INVALID, "attribute %s has %d values; %d are wanted", name, count, n);
        return v;
    }
    int64_t *same = NEWS(o->a, int64_t, n ? n : 1);
    for (int k = 0; k < n; k++) same[k] = fallback;
    return same;
}

void op_size_is(OpCall *o, Dim *found, Dim *wanted, const char *what)
{
    if (!dim_decide_eq(o->g, found, wanted, what))
        fail(o->cx, E_INVALID, "%s: %lld, wanted %lld", what, (long long)dim_hint(o->g, found), (long long)dim_hint(o->g, wanted));
}

void op_divides(OpCall *o, int64_t n, Dim *size, const char *what)
{
    if (n < 1 || !dim_decide_eq(o->g, dim_mod(o->g, size, dim_const(o->g, n)), dim_const(o->g, 0), what))
        fail(o->cx, E_INVALID, "%s: %lld does not divide %lld", what, (long long)n, (long long)dim_hint(o->g, size));
}

Node *axis_node(Graph *g, Node *x, int rank, int axis)
{
    ASSERT(x->rank == 1);
    Dim *dims[MAX_RANK] = { NULL };
    for (int k = 0; k < rank; k++) dims[k] = k == axis ? x->dims[0] : dim_const(g, 1);
    return g_reshape(g, x, rank, dims);
}

Node *dim_node(Graph *g, Dim *d, DType dt)
{
    return g_cast(g, g_dims(g, 0, 1, &d), dt);
}

Node *iota_node(Graph *g, Dim *n)
{
    return g_iota(g, 1, &n, 0);
}

/* Explicit padding: floor((in + pads - extent) / stride) + 1 windows; with ceil_mode also a last partial one, unless it would start in the
 * padding at the end. */
static void window_explicit(OpCall *o, Window *w, int j, int64_t before, int64_t after, bool ceil_mode)
{
    Graph *g = o->g;
    Dim *extent = dim_addc(g, dim_mulc(g, dim_addc(g, w->kernel[j], -1), w->dilation[j]), 1);
    Dim *room = dim_sub(g, dim_addc(g, dim_addc(g, w->in[j], before), after), extent), *stride = dim_const(g, w->stride[j]);
    w->before[j] = dim_const(g, before);
    w->after[j] = dim_const(g, after);
    Dim *most = ceil_mode ? dim_min(g, dim_addc(g, dim_ceildiv(g, room, stride), 1), dim_ceildiv(g, dim_addc(g, w->in[j], before), stride))
                          : dim_addc(g, dim_div(g, room, stride), 1);
    const int64_t least = ceil_mode ? 1 - w->stride[j] : 0;       /* rounded up, a window may be longer than all of it */
    if (dim_decide_lt(g, room, dim_const(g, least), "a window fits into its padded input"))
        most = dim_const(g, 0);
    w->out[j] = most;
    if (before > 0 || after > 0 || ceil_mode) w->padded = true;
}

/* A stride longer than the kernel can make the padding negative: a pool then crops, as its formula says; a convolution stays unpadded. */
static void window_same(OpCall *o, Window *w, int j, bool upper, bool crops)
{
    Graph *g = o->g;
    Dim *stride = dim_const(g, w->stride[j]);
    Dim *extent = dim_addc(g, dim_mulc(g, dim_addc(g, w->kernel[j], -1), w->dilation[j]), 1);
    w->out[j] = dim_ceildiv(g, w->in[j], stride);
    Dim *total = dim_sub(g, dim_add(g, dim_mul(g, dim_addc(g, w->out[j], -1), stride), extent), w->in[j]);
    if (!crops) total = dim_max(g, total, dim_const(g, 0));
    Dim *two = dim_const(g, 2), *less = dim_div(g, total, two), *more = dim_sub(g, total, less);
    w->before[j] = upper ? less : more;
    if (crops && dim_decide_lt(g, total, dim_const(g, 0), "a stride longer than its kernel"))
        w->before[j] = upper ? dim_ceildiv(g, total, two) : dim_addc(g, less, 1);      /* halves round toward zero */
    w->after[j] = dim_sub(g, total, w->before[j]);
    if (!dim_is(total, 0)) w->padded = true;
}

void window_init(OpCall *o, Window *w, const Node *x, Dim *const *kernel, bool pool)
{
    int n = x->rank - 2;
    if (n < 0) fail(o->cx, E_INVALID, "the input has rank %d; batch, channels and spatial axes are wanted", x->rank);
    if (n > SPATIAL_MAX) op_unsupported(o, "%d spatial axes; at most %d are possible", n, SPATIAL_MAX);
    *w = (Window){ .n = n };
    const char *mode = op_string(o, "auto_pad", "NOTSET");
    const int64_t *stride = op_ints_n(o, "strides", n, 1), *dilation = op_ints_n(o, "dilations", n, 1);
    bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER"), valid = !strcmp(mode, "VALID");
    if (!upper && !lower && !valid && strcmp(mode, "NOTSET") && *mode)
        fail(o->cx, E_INVALID, "auto_pad is '%s'; NOTSET, SAME_UPPER, SAME_LOWER or VALID is wanted", mode);
    const int64_t *pads = valid ? NULL : op_ints_n(o, "pads", 2 * n, 0);
    bool ceil_mode = op_int(o, "ceil_mode", 0) != 0 && !valid;
    for (int j = 0; j < n; j++) {
        if (stride[j] < 1 || dilation[j] < 1)
            fail(o->cx, E_INVALID, "stride %lld and dilation %lld of axis %d; positive ones are wanted", (long long)stride[j], (long long)dilation[j], j);
        w->in[j] = x->dims[j + 2];
        w->kernel[j] = kernel[j];
        w->stride[j] = stride[j];
        w->dilation[j] = dilation[j];
        if (upper || lower) window_same(o, w, j, upper, pool);
        else window_explicit(o, w, j, pads ? pads[j] : 0, pads ? pads[j + n] : 0, ceil_mode);
    }
}

void window_at(Graph *g, const Window *w, int j, Dim *out, Dim *k, Dim **idx, View *v, Pred *pred)
{
    *idx = dim_sub(g, dim_add(g, dim_mulc(g, out, w->stride[j]), dim_mulc(g, k, w->dilation[j])), w->before[j]);
    if (w->padded) pred[v->npred++] = (Pred){ *idx, w->in[j] };
}

Node *window_view(Graph *g, const Window *w, Node *x, Scalar fill)
{
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    Pred pred[SPATIAL_MAX];
    int n = w->n;
    View v = { .nidx = x->rank, .idx = idx, .pred = pred, .fill = fill };
    for (int k = 0; k < 2; k++) idx[k] = dim_idx(g, k, dims[k] = x->dims[k]);
    for (int j = 0; j < n; j++) {
        dims[2 + j] = w->out[j];
        dims[2 + n + j] = w->kernel[j];
        window_at(g, w, j, dim_idx(g, 2 + j, w->out[j]), dim_idx(g, 2 + n + j, w->kernel[j]), &idx[2 + j], &v, pred);
    }
    return g_view(g, x, 2 + 2 * n, dims, &v);
}

uint32_t window_axes(const Window *w)
{
    uint32_t mask = 0;
    for (int j = 0; j < w->n; j++) mask |= axis_bit(2 + w->n + j);
    return mask;
}

void conv_check(OpCall *o, const Node *x, const Node *weight, int64_t group)
{
    Graph *g = o->g;
    if (weight->rank != x->rank)
        fail(o->cx, E_INVALID, "the weight has rank %d and the input rank %d; equal ranks are wanted", weight->rank, x->rank);
    if (group < 1) fail(o->cx, E_INVALID, "group is %lld; a positive number is wanted", (long long)group);
    if (x->rank < 2) fail(o->cx, E_INVALID, "the input has rank %d; at least 2 is wanted", x->rank);
    op_size_is(o, x->dims[1], dim_mulc(g, weight->dims[1], group), "input channels: group times the weight's");
    op_divides(o, group, weight->dims[0], "output channels in groups");
}

Node *conv_sum(OpCall *o, const Window *w, Node *x, Node *weight, int64_t group)
{
    Graph *g = o->g;
    int n = w->n, gr = group > 1 ? 1 : 0;         /* the axis of groups exists only where there are several */
    int am = 1 + gr, ao = am + 1, ac = ao + n, ak = ac + 1, rank = ak + n;
    if (rank > MAX_RANK) op_unsupported(o, "a convolution over %d spatial axes", n);
    Dim *dims[MAX_RANK] = { NULL }, *it[MAX_RANK] = { NULL };
    Dim *per = dim_div(g, weight->dims[0], dim_const(g, group));
    dims[0] = x->dims[0];
    if (gr) dims[1] = dim_const(g, group);
    dims[am] = per;
    dims[ac] = weight->dims[1];
    for (int j = 0; j < n; j++) dims[ao + j] = w->out[j], dims[ak + j] = w->kernel[j];
    for (int k = 0; k < rank; k++) it[k] = dim_idx(g, k, dims[k]);

    Dim *xi[MAX_RANK] = { NULL }, *wi[MAX_RANK] = { NULL };
    Pred pred[SPATIAL_MAX];
    View xv = { .nidx = x->rank, .idx = xi, .pred = pred }, wv = { .nidx = weight->rank, .idx = wi };
    xi[0] = it[0];
    xi[1] = gr ? dim_add(g, dim_mul(g, it[1], weight->dims[1]), it[ac]) : it[ac];
    wi[0] = gr ? dim_add(g, dim_mul(g, it[1], per), it[am]) : it[am];
    wi[1] = it[ac];
    uint32_t axes = axis_bit(ac);
    for (int j = 0; j < n; j++) {
        window_at(g, w, j, it[ao + j], it[ak + j], &xi[2 + j], &xv, pred);
        wi[2 + j] = it[ak + j];
        axes |= axis_bit(ak + j);
    }
    Node *product = g2(g, OP_mul, g_view(g, x, rank, dims, &xv), g_view(g, weight, rank, dims, &wv));
    Node *sum = g_fold(g, FOLD_sum, product, axes, false);
    Dim *shape[MAX_RANK] = { NULL };
    shape[0] = x->dims[0];
    shape[1] = weight->dims[0];
    for (int j = 0; j < n; j++) shape[2 + j] = w->out[j];
    return g_reshape(g, sum, 2 + n, shape);
}
