/* Pools: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool, LRN, and the regions MaxRoiPool and RoiAlign.
 *
 * A pool is a fold over the kernel axes of a window view. Padding is the fold's identity (the lowest value for a maximum, so padding never
 * wins; zero for sums), never a number that a Pad operator could have put there. The divisor of an average is the product over the axes of the
 * number of places counted: those inside the input, or inside the declared padding with count_include_pad; places that only ceil_mode
 * reaches never count. The index of a maximum is the smallest row-major index among the places that hold it: ties and NaN give the first one,
 * and padding, which has no index, cannot be chosen. */
#include "onnx/onnx.h"
#include <math.h>
#include <string.h>

static void pool_kernel(OpCall *o, const Node *x, Dim **kernel)
{
    int n;
    const int64_t *shape = op_ints(o, "kernel_shape", &n);
    if (!shape || n != x->rank - 2) fail(o->cx, E_INVALID, "kernel_shape has %d values; %d are wanted", n, x->rank - 2);
    for (int j = 0; j < n; j++) {
        if (shape[j] < 1)
            fail(o->cx, E_INVALID, "kernel_shape[%d] is %lld; a positive number is wanted", j, (long long)shape[j]);
        kernel[j] = dim_const(o->g, shape[j]);
    }
}

static void pool_window(OpCall *o, const Node *x, Window *w)
{
    Dim *kernel[MAX_RANK] = { NULL };
    if (x->rank < 2)
        fail(o->cx, E_INVALID, "the input has rank %d; batch, channels and spatial axes are wanted", x->rank);
    pool_kernel(o, x, kernel);
    window_init(o, w, x, kernel, true);
    if (2 + 2 * w->n > MAX_RANK) op_unsupported(o, "a pool over %d spatial axes", w->n);
}

/* Row-major indices of the maxima as the operator numbers them. */
static Node *pool_index(Graph *g, const Window *w, Node *x, Node *windows, Node *best, bool column_major)
{
    Dim *count = g_count(g, x);
    Scalar none = { .i = INT64_MAX };
    Node *place = window_view(g, w, g_reshape(g, iota_node(g, count), x->rank, x->dims), none);
    Node *miss = g_int(g, DT_i64, INT64_MAX);
    for (int j = 0; j < w->n; j++) best = g_unsqueeze(g, best, best->rank);
    Node *hit = g2(g, OP_eq, windows, best);
    if (dtype_is_float(x->dt)) hit = g2(g, OP_or, hit, g1(g, OP_not, g2(g, OP_eq, windows, windows)));
    Node *index = g_fold(g, FOLD_min, g_where(g, hit, place, miss), window_axes(w), false);
    index = g_where(g, g2(g, OP_eq, index, miss), g_int(g, DT_i64, -1), index);
    if (!column_major || w->n < 2) return index;
    Node *rest = index, *sum = NULL;
    Dim *step[SPATIAL_MAX], *size = dim_const(g, 1);
    for (int j = 0; j < w->n; j++) {
        step[j] = size;
        size = dim_mul(g, size, w->in[j]);
    }
    for (int j = w->n - 1; j >= 0; j--) {
        Node *d = dim_node(g, w->in[j], DT_i64);
        Node *term = g2(g, OP_mul, g2(g, OP_mod, rest, d), dim_node(g, step[j], DT_i64));
        sum = sum ? g2(g, OP_add, sum, term) : term;
        rest = g2(g, OP_div, rest, d);
    }
    sum = g2(g, OP_add, sum, g2(g, OP_mul, rest, dim_node(g, size, DT_i64)));
    return g_where(g, g2(g, OP_lt, index, g_int(g, DT_i64, 0)), index, sum);
}

void op_max_pool(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    Window w;
    pool_window(o, x, &w);
    Node *windows = window_view(g, &w, x, scalar_min(x->dt));
    o->out[0] = g_fold(g, FOLD_max, windows, window_axes(&w), false);
    if (op_wants(o, 1)) o->out[1] = pool_index(g, &w, x, windows, o->out[0], op_int(o, "storage_order", 0) != 0);
}

/* Number of kernel places along axis j that lie in [-before, in + after): a vector over the outputs. */
static Node *pool_places(Graph *g, const Window *w, int j, Dim *before, Dim *after, DType dt)
{
    Dim *dims[2] = { w->out[j], w->kernel[j] };
    Dim *at = dim_add(g, dim_mulc(g, dim_idx(g, 0, dims[0]), w->stride[j]), dim_mulc(g, dim_idx(g, 1, dims[1]), w->dilation[j]));
    Pred inside = { dim_add(g, dim_sub(g, at, w->before[j]), before), dim_add(g, dim_add(g, w->in[j], before), after) };
    Node *one = g_view(g, g_scalar(g, dt, 1), 2, dims, &(View){ .npred = 1, .pred = &inside });
    Node *sum = g_fold(g, FOLD_sum, one, axis_bit(1), false);
    return g2(g, OP_max, sum, g_scalar(g, dt, 1));
}

void op_average_pool(OpCall *o)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt, wide = dtype_wide(dt);
    Node *x = g_cast(g, o->in[0], wide);
    bool all = op_int(o, "count_include_pad", 0) != 0;
    Window w;
    pool_window(o, x, &w);
    Node *sum = g_fold(g, FOLD_sum, window_view(g, &w, x, (Scalar){ 0 }), window_axes(&w), false), *count = NULL;
    Dim *zero = dim_const(g, 0);
    double whole = 1;
    for (int j = 0; j < w.n; j++) {
        whole *= (double)w.kernel[j]->c;
        if (!w.padded) continue;
        Node *c = axis_node(g, pool_places(g, &w, j, all ? w.before[j] : zero, all ? w.after[j] : zero, wide), sum->rank, 2 + j);
        count = count ? g2(g, OP_mul, count, c) : c;
    }
    if (!count) count = g_scalar(g, wide, whole);
    o->out[0] = g_cast(g, g2(g, OP_div, sum, count), dt);
}

/* (sum |x|^p)^(1/p); p = 1 and 2 need no pow. */
static Node *pool_norm(Graph *g, Node *x, uint32_t axes, bool keep, double p)
{
    Node *power = p == 2 ? g2(g, OP_mul, x, x) : g1(g, OP_abs, x);
    if (p != 1 && p != 2) power = g2(g, OP_pow, power, g_scalar(g, x->dt, p));
    Node *sum = g_fold(g, FOLD_sum, power, axes, keep);
    return p == 1 ? sum : p == 2 ? g1(g, OP_sqrt, sum) : g2(g, OP_pow, sum, g_scalar(g, x->dt, 1 / p));
}

static double pool_p(OpCall *o)
{
    const OnnxAttr *a = op_attr(o, "p");
    double p = a && a->type == ATTR_float ? op_float(o, "p", 2) : (double)op_int(o, "p", 2);    /* opset 1 has a float */
    if (!(p > 0)) fail(o->cx, E_INVALID, "p is %g; a positive number is wanted", p);
    return p;
}

void op_lp_pool(OpCall *o)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt;
    Node *x = g_cast(g, o->in[0], dtype_wide(dt));
    Window w;
    pool_window(o, x, &w);
    o->out[0] = g_cast(g, pool_norm(g, window_view(g, &w, x, (Scalar){ 0 }), window_axes(&w), false, pool_p(o)), dt);
}

static uint32_t spatial_axes(OpCall *o, const Node *x)
{
    if (x->rank < 2) fail(o->cx, E_INVALID, "the input has rank %d; at least 2 is wanted", x->rank);
    return (axis_bit(x->rank) - 1) & ~3u;
}

void op_global_average_pool(OpCall *o)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt;
    uint32_t axes = spatial_axes(o, o->in[0]);
    o->out[0] = axes ? g_cast(g, g_mean(g, g_cast(g, o->in[0], dtype_wide(dt)), axes, true), dt) : o->in[0];
}

void op_global_max_pool(OpCall *o)
{
    uint32_t axes = spatial_axes(o, o->in[0]);
    o->out[0] = axes ? g_fold(o->g, FOLD_max, o->in[0], axes, true) : o->in[0];
}

void op_global_lp_pool(OpCall *o)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt;
    uint32_t axes = spatial_axes(o, o->in[0]);
    Node *x = g_cast(g, o->in[0], dtype_wide(dt));
    o->out[0] = g_cast(g, axes ? pool_norm(g, x, axes, true, pool_p(o)) : g1(g, OP_abs, x), dt);
}

/* Zeros, with each value stored at its index (of the flattened unpooled tensor). A larger output_shape appends zeros on each axis. */
void op_max_unpool(OpCall *o)
{
    int nshape = 0;
    Dim **shape = o->nin > 2 && o->in[2] ? op_sizes(o, 2, &nshape) : NULL;
    Graph *g = o->g;
    Node *x = o->in[0], *index = o->in[1];
    int n = x->rank - 2;
    Dim *kernel[MAX_RANK] = { NULL }, *dims[MAX_RANK] = { NULL }, *zero[MAX_RANK] = { NULL }, *more[MAX_RANK] = { NULL };
    if (n < 0) fail(o->cx, E_INVALID, "the input has rank %d; at least 2 is wanted", x->rank);
    pool_kernel(o, x, kernel);
    const int64_t *stride = op_ints_n(o, "strides", n, 1), *pads = op_ints_n(o, "pads", 2 * n, 0);
    Dim *count = dim_const(g, 1);
    for (int k = 0; k < x->rank; k++) {
        int j = k - 2;
        dims[k] = j < 0 ? x->dims[k]
                        : dim_addc(g, dim_add(g, dim_mulc(g, dim_addc(g, x->dims[k], -1), stride[j]), kernel[j]), -pads[j] - pads[n + j]);
        count = dim_mul(g, count, dims[k]);
        zero[k] = dim_const(g, 0);
    }
    if (index->rank != x->rank) fail(o->cx, E_INVALID, "indices of rank %d; %d is wanted", index->rank, x->rank);
    for (int k = 0; k < x->rank; k++) op_size_is(o, index->dims[k], x->dims[k], "an axis of the indices: the input's");
    Dim *total = g_count(g, x);
    Node *flat = g_expand(g, g_scalar(g, x->dt, 0), 1, &count);
    Node *value = g_reshape(g, x, 1, &total), *at = g_reshape(g, index, 1, &total);
    Dim *idx = dim_idx(g, DIM_OPERAND, count);
    Node *y = g_scatter(g, flat, value, 1, &at, &(View){ .nidx = 1, .idx = &idx }, COMBINE_set);
    y = g_reshape(g, y, x->rank, dims);
    if (shape) {
        if (nshape != x->rank) fail(o->cx, E_INVALID, "output_shape has %d values; %d are wanted", nshape, x->rank);
        for (int k = 0; k < nshape; k++) more[k] = dim_sub(g, shape[k], dims[k]);
        y = g_pad(g, y, zero, more, (Scalar){ 0 });
    }
    o->out[0] = y;
}

/* x / (bias + alpha/size * sum of squares over the channels around)^beta. What is raised is not negative, mostly: b^(3/4), the usual one, is sqrt(b) sqrt(sqrt(b)). */
void op_lrn(OpCall *o)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt, wide = dtype_wide(dt);
    Node *x = g_cast(g, o->in[0], wide);
    int64_t size = op_int(o, "size", 0);
    double alpha = op_float(o, "alpha", 0.0001), beta = op_float(o, "beta", 0.75), bias = op_float(o, "bias", 1);
    if (size < 1 || x->rank < 2 || x->rank >= MAX_RANK)
        fail(o->cx, E_INVALID, "size %lld and rank %d; a positive size and rank 2 or more are wanted", (long long)size, x->rank);
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) idx[k] = dim_idx(g, k, dims[k] = x->dims[k]);
    dims[x->rank] = dim_const(g, size);
    idx[1] = dim_addc(g, dim_add(g, idx[1], dim_idx(g, x->rank, dims[x->rank])), -((size - 1) / 2));
    Pred inside = { idx[1], x->dims[1] };
    Node *near = g_view(g, g2(g, OP_mul, x, x), x->rank + 1, dims, &(View){ .nidx = x->rank, .idx = idx, .npred = 1, .pred = &inside });
    Node *sum = g_fold(g, FOLD_sum, near, axis_bit(x->rank), false);
    Node *base = g2(g, OP_add, g_scalar(g, wide, bias), g2(g, OP_mul, g_scalar(g, wide, alpha / (double)size), sum));
    Node *root = g1(g, OP_sqrt, base), *power = beta == 0.75 && alpha >= 0 && bias >= 0 ? g2(g, OP_mul, root, g1(g, OP_sqrt, root)) : g2(g, OP_pow, base, g_scalar(g, wide, beta));
    o->out[0] = g_cast(g, g2(g, OP_div, x, power), dt);
}

/* ---- regions: opaque calls ------------------------------------------------------------------------------------------------------ */


static double roi_at(const Tensor *t, const int64_t place[MAX_RANK])
{
    int64_t at = 0;
    for (int k = 0; k < t->rank; k++) at += place[k] * t->strides[k];
    return scalar_load(t->dt, (const char *)t->data + at * (int64_t)dtype_size(t->dt)).f;
}

static int64_t roi_batch(Ctx *cx, double b, int64_t n)
{
    if (!(b >= 0 && b < (double)n)) fail(cx, E_INVALID, "a region is of image %g, but there are %lld", b, (long long)n);
    return (int64_t)b;
}

/* Bins as Fast R-CNN cuts them: corners rounded, ends included, at least one place wide; an empty bin is 0. */
static void roi_pool_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)a;
    const RoiAttr *p = call->attr;
    const Tensor *x = &in[0], *roi = &in[1];
    int64_t channels = x->dims[1], height = x->dims[2], width = x->dims[3], ph = out->dims[2], pw = out->dims[3];
    for (int64_t r = 0; r < roi->dims[0]; r++) {
        double box[5];
        for (int64_t k = 0; k < 5; k++) box[k] = roi_at(roi, (int64_t[MAX_RANK]){ r, k });
        int64_t batch = roi_batch(cx, box[0], x->dims[0]);
        double c[4];
        for (int k = 0; k < 4; k++) c[k] = round((float)box[k + 1] * p->scale);
        float bin_h = (float)fmax(c[3] - c[1] + 1, 1) / (float)ph, bin_w = (float)fmax(c[2] - c[0] + 1, 1) / (float)pw;
        for (int64_t ch = 0; ch < channels; ch++)
            for (int64_t i = 0; i < ph; i++)
                for (int64_t j = 0; j < pw; j++) {
                    int64_t h0 = (int64_t)fmin(fmax(floorf((float)i * bin_h) + c[1], 0), (double)height);
                    int64_t h1 = (int64_t)fmin(fmax(ceilf((float)(i + 1) * bin_h) + c[1], 0), (double)height);
                    int64_t w0 = (int64_t)fmin(fmax(floorf((float)j * bin_w) + c[0], 0), (double)width);
                    int64_t w1 = (int64_t)fmin(fmax(ceilf((float)(j + 1) * bin_w) + c[0], 0), (double)width);
                    double best = h1 <= h0 || w1 <= w0 ? 0 : -INFINITY;
                    for (int64_t h = h0; h < h1; h++)
                        for (int64_t w = w0; w < w1; w++) {
                            double v = roi_at(x, (int64_t[MAX_RANK]){ batch, ch, h, w });
                            if (v > best || v != v) best = best != best ? best : v;
                        }
                    scalar_store(out->dt, (char *)out->data + (size_t)(((r * channels + ch) * ph + i) * pw + j) * dtype_size(out->dt), (Scalar){ .f = best });
                }
    }
}
static const CallDef roi_pool_def = { .name = "max_roi_pool", .dynamic = false, .eval = roi_pool_eval };

void op_max_roi_pool(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *roi = o->in[1];
    int n;
    const int64_t *shape = op_ints(o, "pooled_shape", &n);
    if (n != 2 || x->rank != 4 || roi->rank != 2)
        fail(o->cx, E_INVALID, "pooled_shape of %d values, input of rank %d, regions of rank %d; 2, 4 and 2 are wanted", n, x->rank, roi->rank);
    if (shape[0] < 1 || shape[1] < 1)
        fail(o->cx, E_INVALID, "pooled_shape is %lldx%lld; positive sizes are wanted", (long long)shape[0], (long long)shape[1]);
    op_size_is(o, roi->dims[1], dim_const(g, 5), "columns of the regions");
    RoiAttr attr = { .scale = (float)op_float(o, "spatial_scale", 1) };
    DType dt = x->dt;
    int rank = 4;
    Dim *const dims[4] = { roi->dims[0], x->dims[1], dim_const(g, shape[0]), dim_const(g, shape[1]) };
    Dim *const *alldims = dims;
    Call call = { .def = &roi_pool_def, .nin = 2, .nout = 1, .out_dt = &dt, .attr = &attr, .attr_size = sizeof attr };
    o->out[0] = g_call(g, &call, (Node *[]){ x, roi }, &rank, &alldims)[0];
}

/* One sampling point: four neighbours and weights; outside by more than one place it counts as zero. */
typedef struct RoiPoint { int64_t h[2], w[2]; double weight[4]; } RoiPoint;

static RoiPoint roi_point(double y, double x, int64_t height, int64_t width)
{
    RoiPoint p = { { 0, 0 }, { 0, 0 }, { 0 } };
    if (!(y >= -1 && y <= (double)height && x >= -1 && x <= (double)width)) return p;
    y = fmax(y, 0);
    x = fmax(x, 0);
    p.h[0] = (int64_t)y;
    p.w[0] = (int64_t)x;
    if (p.h[0] >= height - 1) y = (double)(p.h[0] = p.h[1] = height - 1);
    else p.h[1] = p.h[0] + 1;
    if (p.w[0] >= width - 1) x = (double)(p.w[0] = p.w[1] = width - 1);
    else p.w[1] = p.w[0] + 1;
    double ly = y - (double)p.h[0], lx = x - (double)p.w[0];
    p.weight[0] = (1 - ly) * (1 - lx);
    p.weight[1] = (1 - ly) * lx;
    p.weight[2] = ly * (1 - lx);
    p.weight[3] = ly * lx;
    return p;
}

/* Mode avg: mean of bilinear samples. Mode max: ONNX takes the largest weighted neighbour of all samples, not the largest sample. */
static void roi_align_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)a;
    const RoiAttr *p = call->attr;
    const Tensor *x = &in[0], *roi = &in[1], *image = &in[2];
    int64_t channels = x->dims[1], height = x->dims[2], width = x->dims[3], ph = out->dims[2], pw = out->dims[3];
    if (tensor_count(out) == 0) return;
    if (height < 1 || width < 1)
        fail(cx, E_INVALID, "regions of an image of size %lldx%lld", (long long)height, (long long)width);
    for (int64_t r = 0; r < roi->dims[0]; r++) {
        Scalar b = scalar_load(image->dt, (const char *)image->data + r * image->strides[0] * (int64_t)dtype_size(image->dt));
        int64_t batch = roi_batch(cx, (double)b.i, x->dims[0]);
        double box[4], offset = p->half_pixel ? 0.5 : 0;
        for (int64_t k = 0; k < 4; k++) box[k] = roi_at(roi, (int64_t[MAX_RANK]){ r, k }) * (double)p->scale - offset;
        double roi_w = box[2] - box[0], roi_h = box[3] - box[1];
        if (!p->half_pixel) roi_w = fmax(roi_w, 1), roi_h = fmax(roi_h, 1);
        double bin_h = roi_h / (double)ph, bin_w = roi_w / (double)pw;
        int64_t nh = p->sampling > 0 ? p->sampling : (int64_t)fmin(fmax(ceil(bin_h), 0), 1e6);
        int64_t nw = p->sampling > 0 ? p->sampling : (int64_t)fmin(fmax(ceil(bin_w), 0), 1e6);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < ph; i++)
                for (int64_t j = 0; j < pw; j++) {
                    double sum = 0, best = nh > 0 && nw > 0 ? -INFINITY : 0;
                    for (int64_t sy = 0; sy < nh; sy++)
                        for (int64_t sx = 0; sx < nw; sx++) {
                            RoiPoint q = roi_point(box[1] + (double)i * bin_h + ((double)sy + 0.5) * bin_h / (double)nh,
                                                   box[0] + (double)j * bin_w + ((double)sx + 0.5) * bin_w / (double)nw, height, width);
                            for (int k = 0; k < 4; k++) {
                                double v = q.weight[k] * roi_at(x, (int64_t[MAX_RANK]){ batch, c, q.h[k >> 1], q.w[k & 1] });
                                sum += v;
                                if (v > best || v != v) best = best != best ? best : v;
                            }
                        }
                    double v = p->use_max ? best : sum / (double)(nh * nw > 1 ? nh * nw : 1);
                    scalar_store(out->dt, (char *)out->data + (size_t)(((r * channels + c) * ph + i) * pw + j) * dtype_size(out->dt), (Scalar){ .f = v });
                }
    }
}
static const CallDef roi_align_def = { .name = "roi_align", .dynamic = false, .eval = roi_align_eval };

void op_roi_align(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *roi = o->in[1], *image = o->in[2];
    if (x->rank != 4 || roi->rank != 2 || image->rank != 1)
        fail(o->cx, E_INVALID, "ranks %d, %d and %d of input, regions and batch indices; 4, 2 and 1 are wanted", x->rank, roi->rank, image->rank);
    op_size_is(o, roi->dims[1], dim_const(g, 4), "columns of the regions");
    op_size_is(o, image->dims[0], roi->dims[0], "batch indices: one for each region");
    int64_t height = op_int(o, "output_height", 1), width = op_int(o, "output_width", 1);
    if (height < 1 || width < 1)
        fail(o->cx, E_INVALID, "an output of %lldx%lld; positive sizes are wanted", (long long)height, (long long)width);
    const char *mode = op_string(o, "mode", "avg");
    const char *grid = op_string(o, "coordinate_transformation_mode", o->opset < 16 ? "output_half_pixel" : "half_pixel");
    RoiAttr attr = { .scale = (float)op_float(o, "spatial_scale", 1), .sampling = op_int(o, "sampling_ratio", 0),
                     .half_pixel = !strcmp(grid, "half_pixel"), .use_max = !strcmp(mode, "max") };
    if (!attr.use_max && strcmp(mode, "avg")) fail(o->cx, E_INVALID, "the mode is '%s'; avg or max is wanted", mode);
    DType dt = x->dt;
    int rank = 4;
    Dim *const dims[4] = { roi->dims[0], x->dims[1], dim_const(g, height), dim_const(g, width) };
    Dim *const *alldims = dims;
    Call call = { .def = &roi_align_def, .nin = 3, .nout = 1, .out_dt = &dt, .attr = &attr, .attr_size = sizeof attr };
    o->out[0] = g_call(g, &call, (Node *[]){ x, roi, image }, &rank, &alldims)[0];
}
