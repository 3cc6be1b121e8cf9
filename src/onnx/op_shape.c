/* Operators that move elements or speak about sizes: shape, reshape, slice, pad, split, concat and the like. All become views, joins and sizes.
 *
 * Targets of a reshape, bounds of a slice and so on are integer vectors as expressions over the symbols (op_sizes), so that a graph traced for
 * one size serves others. Reading them may cut the trace, which ends the life of every node and size read before: read_sizes() therefore
 * reads all of them once before any of them is used. */
#include <string.h>
#include "onnx/onnx.h"

static Dim *c_dim(OpCall *o, int64_t c) { return dim_const(o->g, c); }
static bool dim_less(OpCall *o, Dim *a, Dim *b) { return dim_decide_lt(o->g, a, b, o->node->op); }
static bool dim_same(OpCall *o, Dim *a, Dim *b) { return dim_decide_eq(o->g, a, b, o->node->op); }
static Node *zero_of(Graph *g, DType dt) { return g_cast(g, g_int(g, DT_i64, 0), dt); }

static void read_sizes(OpCall *o, int from, int to)
{
    int n;
    for (int i = from; i < to; i++) op_sizes(o, i, &n);
}

static Dim **dims_of_ints(OpCall *o, const int64_t *v, int n)
{
    Dim **d = NEWS(o->a, Dim *, n + 1);
    for (int k = 0; k < n; k++) d[k] = c_dim(o, v[k]);
    return d;
}

/* ---- sizes as data ------------------------------------------------------------------------------------------------------------------ */

static int64_t clamp_to(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

void op_shape(OpCall *o)
{
    Node *x = o->in[0];
    int64_t rank = x->rank, start = op_int(o, "start", 0), end = op_int(o, "end", rank);
    start = clamp_to(start < 0 ? start + rank : start, 0, rank);
    end = clamp_to(end < 0 ? end + rank : end, 0, rank);
    o->out[0] = g_dims(o->g, 1, end > start ? (int)(end - start) : 0, x->dims + start);
}

void op_size(OpCall *o)
{
    Dim *n = g_count(o->g, o->in[0]);
    o->out[0] = g_dims(o->g, 0, 1, &n);
}

/* ---- reshape ----------------------------------------------------------------------------------------------------------------------------- */

/* 0 copies a size (unless allowzero), -1 is what is left. Sizes that the input has too are cancelled and not divided by: so a batch of no elements
 * and a symbolic one work. */
static void reshape_to(OpCall *o, Node *x, int n, Dim **want, bool allow_zero)
{
    Graph *g = o->g;
    int infer = -1;
    bool cancelled[MAX_RANK] = { false }, zero = false;
    Dim *dims[MAX_RANK], *known = c_dim(o, 1), *left = c_dim(o, 1);
    if (n > MAX_RANK) op_unsupported(o, "rank %d, at most %d", n, MAX_RANK);
    for (int k = 0; k < n; k++) {
        Dim *d = want[k];
        int64_t hint = dim_hint(g, d);
        if (hint <= 0 && !dim_is_const(d)) d = c_dim(o, dim_decide_value(g, d, "a target size of Reshape that is 0 or -1"));
        if (hint < -1) fail(o->cx, E_INVALID, "the target shape has a size %lld", (long long)hint);
        dims[k] = d;
        if (hint == -1) {
            if (infer >= 0) fail(o->cx, E_INVALID, "the target shape has -1 twice");
            infer = k;
            continue;
        }
        if (hint == 0 && !allow_zero) {
            if (k >= x->rank) fail(o->cx, E_INVALID, "the target shape copies axis %d of %s, which has no such axis", k, dims_str(g, x->rank, x->dims));
            dims[k] = x->dims[k];
        }
        zero = zero || dim_is(dims[k], 0);
    }
    if (infer >= 0 && allow_zero && zero) fail(o->cx, E_INVALID, "the target shape has 0 and -1, and allowzero is 1");
    for (int k = 0; k < n; k++) {
        if (k == infer) continue;
        int j = 0;
        if (k < x->rank && x->dims[k] == dims[k] && !cancelled[k]) j = k;
        else while (j < x->rank && (cancelled[j] || x->dims[j] != dims[k])) j++;
        if (j < x->rank) cancelled[j] = true;
        else known = dim_mul(g, known, dims[k]);
    }
    if (infer >= 0) {
        for (int j = 0; j < x->rank; j++)
            if (!cancelled[j]) left = dim_mul(g, left, x->dims[j]);
        if (dim_same(o, known, c_dim(o, 0)) || !dim_same(o, dim_mod(g, left, known), c_dim(o, 0)))
            fail(o->cx, E_INVALID, "%s does not fit the target shape %s", dims_str(g, x->rank, x->dims), dims_str(g, n, dims));
        dims[infer] = dim_div(g, left, known);
    }
    o->out[0] = g_reshape(g, x, n, dims);
}

void op_reshape_1(OpCall *o)
{
    int n;
    const int64_t *v = op_ints(o, "shape", &n);
    reshape_to(o, o->in[0], n, dims_of_ints(o, v, n), false);
}

void op_reshape(OpCall *o)
{
    int n;
    Dim **want = op_sizes(o, 1, &n);
    reshape_to(o, o->in[0], n, want, op_int(o, "allowzero", 0) != 0);
}

void op_flatten(OpCall *o)
{
    int64_t axis = op_int(o, "axis", 1), rank = o->in[0]->rank;
    o->out[0] = g_flatten(o->g, o->in[0], axis == rank ? (int)rank : op_axis(o, axis, (int)rank));
}

/* The axes of an attribute, or of input 1 from `since` on; NULL when neither is there. */
static const int64_t *axes_of(OpCall *o, int since, int *n)
{
    return o->opset < since ? op_ints(o, "axes", n) : op_values_int(o, 1, n);
}

void op_squeeze(OpCall *o)
{
    int n;
    const int64_t *axes = axes_of(o, 13, &n);
    Node *x = o->in[0];
    bool drop[MAX_RANK] = { false };
    for (int k = 0; k < n && axes; k++) {
        int a = op_axis(o, axes[k], x->rank);
        if (!dim_same(o, x->dims[a], c_dim(o, 1)))
            fail(o->cx, E_INVALID, "axis %d of %s is not 1", a, dims_str(o->g, x->rank, x->dims));
        drop[a] = true;
    }
    for (int k = 0; k < x->rank && !axes; k++) drop[k] = dim_same(o, x->dims[k], c_dim(o, 1));
    for (int k = x->rank - 1; k >= 0; k--)
        if (drop[k]) x = g_squeeze(o->g, x, k);
    o->out[0] = x;
}

void op_unsqueeze(OpCall *o)
{
    int n;
    const int64_t *axes = axes_of(o, 13, &n);
    Node *x = o->in[0];
    bool fresh[MAX_RANK] = { false };
    int rank = x->rank + n;
    if (rank > MAX_RANK) op_unsupported(o, "rank %d, at most %d", rank, MAX_RANK);
    for (int k = 0; k < n; k++) {
        int a = op_axis(o, axes[k], rank);
        if (fresh[a]) fail(o->cx, E_INVALID, "axis %d is given twice", a);
        fresh[a] = true;
    }
    for (int k = 0; k < rank; k++)
        if (fresh[k]) x = g_unsqueeze(o->g, x, k);
    o->out[0] = x;
}

void op_transpose(OpCall *o)
{
    Node *x = o->in[0];
    int n, perm[MAX_RANK];
    bool seen[MAX_RANK] = { false };
    const int64_t *p = op_ints(o, "perm", &n);
    if (p && n != x->rank) fail(o->cx, E_INVALID, "perm has %d axes, the input %d", n, x->rank);
    for (int k = 0; k < x->rank; k++) {
        perm[k] = p ? op_axis(o, p[k], x->rank) : x->rank - 1 - k;
        if (seen[perm[k]]) fail(o->cx, E_INVALID, "perm names axis %d twice", perm[k]);
        seen[perm[k]] = true;
    }
    o->out[0] = g_transpose(o->g, x, perm);
}

void op_expand(OpCall *o)
{
    int n;
    Dim **want = op_sizes(o, 1, &n), *dims[MAX_RANK];
    if (n > MAX_RANK) op_unsupported(o, "rank %d, at most %d", n, MAX_RANK);
    Node *x = o->in[0];
    int rank = dims_broadcast(o->g, x->rank, x->dims, n, want, dims);
    o->out[0] = g_expand(o->g, x, rank, dims);
}

/* Each repeated axis becomes [times, size], is expanded and made one axis again. */
static void tile_by(OpCall *o, Node *x, int n, Dim **times)
{
    Graph *g = o->g;
    if (n != x->rank) fail(o->cx, E_INVALID, "%d repeats for an input of rank %d", n, x->rank);
    Dim *dims[MAX_RANK];
    for (int k = 0; k < n; k++) {
        if (dim_is(times[k], 1)) continue;
        if (dim_hint(g, times[k]) < 0) fail(o->cx, E_INVALID, "a repeat count is %lld", (long long)dim_hint(g, times[k]));
        if (x->rank == MAX_RANK) op_unsupported(o, "rank %d", x->rank);
        Node *y = g_unsqueeze(g, x, k);
        for (int j = 0; j < y->rank; j++) dims[j] = j == k ? times[k] : y->dims[j];
        y = g_expand(g, y, y->rank, dims);
        for (int j = 0; j < x->rank; j++) dims[j] = j == k ? dim_mul(g, x->dims[k], times[k]) : x->dims[j];
        x = g_reshape(g, y, x->rank, dims);
    }
    o->out[0] = x;
}

void op_tile(OpCall *o)
{
    int n;
    Dim **times = op_sizes(o, 1, &n);
    tile_by(o, o->in[0], n, times);
}

/* One axis; count and axis are tensors of the input's dtype. */
void op_tile_1(OpCall *o)
{
    const Tensor *t = op_value(o, 1), *a = op_value(o, 2);
    int rank = o->in[0]->rank;
    if (tensor_count(t) != 1 || tensor_count(a) != 1) fail(o->cx, E_INVALID, "tiles and axis are not single values");
    int64_t v[2];
    for (int k = 0; k < 2; k++) v[k] = scalar_cast(DT_i64, (k ? a : t)->dt, scalar_load((k ? a : t)->dt, (k ? a : t)->data), true).i;
    Dim *times[MAX_RANK];
    for (int k = 0; k < rank; k++) times[k] = c_dim(o, 1);
    times[op_axis(o, v[1], rank)] = c_dim(o, v[0]);
    tile_by(o, o->in[0], rank, times);
}

/* ---- parts ----------------------------------------------------------------------------------------------------------------------------------- */

void op_concat(OpCall *o)
{
    if (o->opset >= 4 && !op_attr(o, "axis")) fail(o->cx, E_FORMAT, "the attribute axis is missing");
    for (int i = 0; i < o->nin; i++)
        if (!o->in[i]) fail(o->cx, E_FORMAT, "input %d is absent", i);
    o->out[0] = g_join(o->g, o->nin, o->in, op_axis(o, op_int(o, "axis", 1), o->in[0]->rank));
}

/* Sizes from the attribute or input, else equal parts; since opset 18 the last part may be smaller. */
void op_split(OpCall *o)
{
    int n = 0, parts = o->nout;
    const int64_t *attr = o->opset < 13 ? op_ints(o, "split", &n) : NULL;
    Dim **size = attr ? dims_of_ints(o, attr, n) : o->in[1] ? op_sizes(o, 1, &n) : NULL;
    Graph *g = o->g;
    Node *x = o->in[0];
    int axis = op_axis(o, op_int(o, "axis", 0), x->rank);
    Dim *all = x->dims[axis], *at = c_dim(o, 0);
    if (size && n != parts) fail(o->cx, E_INVALID, "%d sizes for %d outputs", n, parts);
    if (!size) {
        int64_t given = op_int(o, "num_outputs", parts);
        if (given != parts) fail(o->cx, E_INVALID, "num_outputs is %lld, but there are %d outputs", (long long)given, parts);
        size = NEWS(o->a, Dim *, parts + 1);
        Dim *each = dim_ceildiv(g, all, c_dim(o, parts));
        bool even = dim_same(o, dim_mod(g, all, c_dim(o, parts)), c_dim(o, 0));
        if (!even && o->opset < 18) fail(o->cx, E_INVALID, "axis %d of %s does not split into %d equal parts", axis, dims_str(g, x->rank, x->dims), parts);
        for (int k = 0; k < parts; k++) {
            if (even) size[k] = dim_div(g, all, c_dim(o, parts));
            else size[k] = dim_less(o, dim_mulc(g, each, k + 1), all) ? each : dim_less(o, dim_mulc(g, each, k), all) ? dim_sub(g, all, dim_mulc(g, each, k)) : c_dim(o, 0);
        }
    }
    for (int k = 0; k < parts; k++) {
        if (dim_hint(g, size[k]) < 0) fail(o->cx, E_INVALID, "a part has the size %lld", (long long)dim_hint(g, size[k]));
        o->out[k] = g_slice(g, x, axis, at, size[k], 1);
        at = dim_add(g, at, size[k]);
    }
    if (!dim_same(o, at, all)) fail(o->cx, E_INVALID, "the parts do not add up to axis %d of %s", axis, dims_str(g, x->rank, x->dims));
}

static const int64_t far_off = (int64_t)1 << 60;        /* no axis is as long */

/* A bound of a slice within [lo, hi]; negative ones count from the end. Bounds far outside stand for "to the end". */
static Dim *slice_bound(OpCall *o, Dim *v, Dim *size, Dim *lo, Dim *hi)
{
    if (dim_is_const(v) && v->c >= far_off) return hi;
    if (dim_is_const(v) && v->c <= -far_off) return lo;
    if (dim_less(o, v, c_dim(o, 0))) {
        v = dim_add(o->g, v, size);
        return dim_less(o, v, lo) ? lo : v;
    }
    return dim_less(o, hi, v) ? hi : v;
}

static Node *slice_axis(OpCall *o, Node *x, int axis, Dim *start, Dim *end, int64_t step)
{
    Graph *g = o->g;
    Dim *size = x->dims[axis], *zero = c_dim(o, 0), *count, *last = dim_addc(g, size, -1);
    if (step == 0) fail(o->cx, E_INVALID, "the step along axis %d is 0", axis);
    step = step > far_off ? far_off : step < -far_off ? -far_off : step;
    if (dim_is(size, 0)) return x;
    if (step > 0) {
        start = slice_bound(o, start, size, zero, size);
        end = slice_bound(o, end, size, zero, size);
        count = dim_less(o, start, end) ? dim_ceildiv(g, dim_sub(g, end, start), c_dim(o, step)) : zero;
    } else {
        start = slice_bound(o, start, size, zero, last);
        end = slice_bound(o, end, size, c_dim(o, -1), last);
        count = dim_less(o, end, start) ? dim_ceildiv(g, dim_sub(g, start, end), c_dim(o, -step)) : zero;
    }
    if (dim_is(count, 0)) start = zero;
    return g_slice(g, x, axis, start, count, step);
}

static void slice_all(OpCall *o, int n, Dim **start, int nend, Dim **end, int naxes, const int64_t *axes, int nstep, const int64_t *step)
{
    Node *x = o->in[0];
    bool seen[MAX_RANK] = { false };
    if (n != nend || (axes && naxes != n) || (step && nstep != n))
        fail(o->cx, E_INVALID, "%d starts, %d ends, %d axes, %d steps", n, nend, axes ? naxes : n, step ? nstep : n);
    for (int k = 0; k < n; k++) {
        int axis = op_axis(o, axes ? axes[k] : k, x->rank);
        if (seen[axis]) fail(o->cx, E_INVALID, "axis %d is given twice", axis);
        seen[axis] = true;
        x = slice_axis(o, x, axis, start[k], end[k], step ? step[k] : 1);
    }
    o->out[0] = x;
}

void op_slice_1(OpCall *o)
{
    int n, nend, naxes;
    const int64_t *start = op_ints(o, "starts", &n), *end = op_ints(o, "ends", &nend), *axes = op_ints(o, "axes", &naxes);
    slice_all(o, n, dims_of_ints(o, start, n), nend, dims_of_ints(o, end, nend), naxes, axes, 0, NULL);
}

void op_slice(OpCall *o)
{
    int n, nend, naxes, nstep;
    read_sizes(o, 1, 5);
    const int64_t *axes = op_values_int(o, 3, &naxes), *step = op_values_int(o, 4, &nstep);
    Dim **start = op_sizes(o, 1, &n), **end = op_sizes(o, 2, &nend);
    slice_all(o, n, start, nend, end, naxes, axes, nstep, step);
}

/* ---- pad ----------------------------------------------------------------------------------------------------------------------------------------- */

/* One axis of a pad that repeats elements: the index is folded back into the axis. */
static Node *pad_repeat(OpCall *o, Node *x, int axis, Dim *before, Dim *after, const char *mode)
{
    Graph *g = o->g;
    Dim *size = x->dims[axis], *dims[MAX_RANK] = { 0 }, *idx[MAX_RANK] = { 0 };
    if (dim_is(before, 0) && dim_is(after, 0)) return x;
    if (dim_same(o, size, c_dim(o, 0))) fail(o->cx, E_INVALID, "axis %d has no elements that could be repeated", axis);
    for (int k = 0; k < x->rank; k++) dims[k] = x->dims[k];
    dims[axis] = dim_add(g, size, dim_add(g, before, after));
    for (int k = 0; k < x->rank; k++) idx[k] = dim_idx(g, k, dims[k]);
    Dim *at = dim_sub(g, idx[axis], before), *zero = c_dim(o, 0), *last = dim_addc(g, size, -1);
    if (strcmp(mode, "edge") == 0) at = dim_min(g, dim_max(g, at, zero), last);
    else if (strcmp(mode, "wrap") == 0) at = dim_mod(g, at, size);
    else if (strcmp(mode, "reflect")) fail(o->cx, E_FORMAT, "mode is '%s', wanted constant, reflect, edge or wrap", mode);
    else if (dim_same(o, size, c_dim(o, 1))) at = zero;
    else {
        Dim *period = dim_mulc(g, last, 2), *m = dim_mod(g, at, period);
        at = dim_min(g, m, dim_sub(g, period, m));
    }
    idx[axis] = at;
    return g_view(g, x, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* Negative pads crop. In the repeating modes they crop first. */
static void pad_by(OpCall *o, Dim **before, Dim **after, const char *mode, Node *value)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    DType dt = x->dt;
    if (strcmp(mode, "constant") == 0) {
        const Tensor *t = value ? host_value(g, value) : NULL;
        Scalar fill = { .i = 0 };
        if (value && value->dt != dt) fail(o->cx, E_INVALID, "the value to pad with is %s, the input %s", dtype_info[value->dt].name, dtype_info[dt].name);
        if (t && tensor_count(t) != 1) fail(o->cx, E_INVALID, "the value to pad with has %lld elements", (long long)tensor_count(t));
        if (t) fill = scalar_load(dt, t->data);
        Node *y = g_pad(g, x, before, after, fill);
        if (value && !t) {              /* known to a run only: where no element of x is */
            Node *inside = g_pad(g, g_expand(g, g_int(g, DT_bool, 1), x->rank, x->dims), before, after, (Scalar){ .i = 0 });
            y = g_where(g, inside, y, g_reshape(g, value, 0, NULL));
        }
        o->out[0] = y;
        return;
    }
    for (int k = 0, rank = x->rank; k < rank; k++) {             /* crops and repeats keep the rank */
        Dim *zero = c_dim(o, 0), *from = zero, *less = zero;
        if (dim_less(o, before[k], zero)) from = dim_sub(g, zero, before[k]), before[k] = zero;
        if (dim_less(o, after[k], zero)) less = dim_sub(g, zero, after[k]), after[k] = zero;
        if (!dim_is(from, 0) || !dim_is(less, 0)) x = g_slice(g, x, k, from, dim_sub(g, x->dims[k], dim_add(g, from, less)), 1);
        x = pad_repeat(o, x, k, before[k], after[k], mode);
    }
    o->out[0] = x;
}

static void pad_axes(OpCall *o, int n, Dim **pads, int naxes, const int64_t *axes, const char *mode, Node *value)
{
    Dim *before[MAX_RANK], *after[MAX_RANK];
    int rank = o->in[0]->rank, m = axes ? naxes : rank;
    bool seen[MAX_RANK] = { false };
    if (n != 2 * m) fail(o->cx, E_INVALID, "%d pads for %d axes, wanted %d", n, m, 2 * m);
    for (int k = 0; k < rank; k++) before[k] = after[k] = c_dim(o, 0);
    for (int k = 0; k < m; k++) {
        int a = axes ? op_axis(o, axes[k], rank) : k;
        if (seen[a]) fail(o->cx, E_INVALID, "axis %d is given twice", a);
        seen[a] = true;
        before[a] = pads[k];
        after[a] = pads[m + k];
    }
    pad_by(o, before, after, mode, value);
}

void op_pad(OpCall *o)
{
    const char *mode = op_string(o, "mode", "constant");
    if (o->opset < 11) {
        int n;
        const int64_t *p = op_ints(o, o->opset < 2 ? "paddings" : "pads", &n);
        Node *value = g_scalar(o->g, o->in[0]->dt, op_float(o, "value", 0));
        pad_axes(o, n, dims_of_ints(o, p, n), 0, NULL, mode, value);
        return;
    }
    int n, naxes;
    if (!o->in[1]) fail(o->cx, E_FORMAT, "input 1 (pads) is absent");
    read_sizes(o, 1, 2);
    read_sizes(o, 3, 4);
    const int64_t *axes = op_values_int(o, 3, &naxes);
    Dim **pads = op_sizes(o, 1, &n);
    pad_axes(o, n, pads, naxes, axes, mode, o->in[2]);
}

/* ---- made from sizes ----------------------------------------------------------------------------------------------------------------------------- */

void op_constantofshape(OpCall *o)
{
    int n;
    Dim **dims = op_sizes(o, 0, &n);
    const OnnxTensor *t = op_tensor(o, "value");
    if (n > MAX_RANK) op_unsupported(o, "rank %d, at most %d", n, MAX_RANK);
    if (t && t->count != 1) fail(o->cx, E_FORMAT, "the attribute value has %lld elements, wanted 1", (long long)t->count);
    for (int k = 0; k < n; k++)
        if (dim_hint(o->g, dims[k]) < 0) fail(o->cx, E_INVALID, "a size is %lld", (long long)dim_hint(o->g, dims[k]));
    Node *x = t ? g_reshape(o->g, op_onnx_const(o, t), 0, NULL) : g_scalar(o->g, DT_f32, 0);
    o->out[0] = g_expand(o->g, x, n, dims);
}

/* start + i * delta. The count is an expression for integers, a number for floats. */
void op_range(OpCall *o)
{
    Dim *count;
    if (dtype_is_int(o->in[0]->dt)) {
        int n[3];
        read_sizes(o, 0, 3);
        const int64_t *delta = op_values_int(o, 2, &n[2]);
        Dim **start = op_sizes(o, 0, &n[0]), **limit = op_sizes(o, 1, &n[1]);
        if (n[0] != 1 || n[1] != 1 || n[2] != 1) fail(o->cx, E_INVALID, "start, limit and delta are not single values");
        if (delta[0] == 0) fail(o->cx, E_INVALID, "delta is 0");
        Dim *way = delta[0] > 0 ? dim_sub(o->g, *limit, *start) : dim_sub(o->g, *start, *limit);
        count = dim_less(o, c_dim(o, 0), way) ? dim_ceildiv(o->g, way, c_dim(o, delta[0] < 0 ? -delta[0] : delta[0])) : c_dim(o, 0);
    } else {
        double v[3];
        for (int i = 0; i < 3; i++) {
            const Tensor *t = op_value(o, i);
            if (tensor_count(t) != 1) fail(o->cx, E_INVALID, "input %d is not a single value", i);
            v[i] = scalar_load(t->dt, t->data).f;
        }
        double n = (v[1] - v[0]) / v[2];
        if (!(n < 1e15)) fail(o->cx, E_INVALID, "from %g to %g by %g is no finite range", v[0], v[1], v[2]);
        int64_t whole = n > 0 ? (int64_t)n : 0;
        count = c_dim(o, n > (double)whole ? whole + 1 : whole);
    }
    Graph *g = o->g;
    Node *s[3];
    for (int i = 0; i < 3; i++) s[i] = g_reshape(g, o->in[i], 0, NULL);
    DType dt = s[0]->dt, wide = dtype_wide(dt);
    Node *step = g2(g, OP_mul, g_cast(g, g_iota(g, 1, &count, 0), wide), g_cast(g, s[2], wide));
    o->out[0] = g_cast(g, g2(g, OP_add, g_cast(g, s[0], wide), step), dt);
}

static Node *column_minus_row(Graph *g, const Node *x)
{
    return g2(g, OP_sub, g_iota(g, x->rank, x->dims, x->rank - 1), g_iota(g, x->rank, x->dims, x->rank - 2));
}

void op_eyelike(OpCall *o)
{
    Node *x = o->in[0];
    if (x->rank != 2) fail(o->cx, E_INVALID, "the input has rank %d, wanted 2", x->rank);
    DType dt = op_attr(o, "dtype") ? dtype_from_onnx((int)op_int(o, "dtype", 1)) : x->dt;
    if (!dt) op_unsupported(o, "dtype is the ONNX element type %lld", (long long)op_int(o, "dtype", 1));
    o->out[0] = g_cast(o->g, g2(o->g, OP_eq, column_minus_row(o->g, x), g_int(o->g, DT_i64, op_int(o, "k", 0))), dt);
}

void op_trilu(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    if (x->rank < 2) fail(o->cx, E_INVALID, "the input has rank %d, wanted 2 or more", x->rank);
    Node *k = o->in[1] ? g_reshape(g, o->in[1], 0, NULL) : g_int(g, DT_i64, 0), *at = column_minus_row(g, x);
    Node *keep = op_int(o, "upper", 1) ? g2(g, OP_le, k, at) : g2(g, OP_le, at, k);
    o->out[0] = g_where(g, keep, x, zero_of(g, x->dt));
}

/* Indices outside [-depth, depth) give a row of off values. */
void op_onehot(OpCall *o)
{
    int n = 0;
    Dim *depth;
    if (dtype_is_int(o->in[1]->dt)) {
        depth = op_sizes(o, 1, &n)[0];
    } else {
        const Tensor *t = op_value(o, 1);
        n = (int)tensor_count(t);
        depth = c_dim(o, scalar_cast(DT_i64, t->dt, scalar_load(t->dt, t->data), true).i);
    }
    Graph *g = o->g;
    Node *index = o->in[0], *values = o->in[2];
    if (n != 1) fail(o->cx, E_INVALID, "depth is not a single value");
    if (values->rank != 1 || !dim_same(o, values->dims[0], c_dim(o, 2))) fail(o->cx, E_INVALID, "values is %s, wanted two: off, on", dims_str(g, values->rank, values->dims));
    int rank = index->rank + 1, axis = op_axis(o, op_int(o, "axis", -1), rank);
    if (rank > MAX_RANK) op_unsupported(o, "rank %d", rank);
    Dim *dims[MAX_RANK];
    for (int k = 0, j = 0; k < rank; k++) dims[k] = k == axis ? depth : index->dims[j++];
    Node *hot = g2(g, OP_eq, g_iota(g, rank, dims, axis), g_unsqueeze(g, g_wrap_index(g, g_cast(g, index, DT_i64), depth), axis));
    Node *v[2];
    for (int k = 0; k < 2; k++) v[k] = g_squeeze(g, g_slice(g, values, 0, c_dim(o, k), c_dim(o, 1), 1), 0);
    o->out[0] = g_where(g, hot, v[1], v[0]);
}

/* ---- blocks of an image ---------------------------------------------------------------------------------------------------------------------------- */

static int64_t block_size(OpCall *o)
{
    int64_t b = op_int(o, "blocksize", 0);
    if (b < 1) fail(o->cx, E_FORMAT, "blocksize is %lld, wanted 1 or more", (long long)b);
    if (o->in[0]->rank != 4) fail(o->cx, E_INVALID, "the input has rank %d, wanted 4", o->in[0]->rank);
    return b;
}

static Dim *exact_part(OpCall *o, Dim *d, int64_t by)
{
    if (!dim_same(o, dim_mod(o->g, d, c_dim(o, by)), c_dim(o, 0))) fail(o->cx, E_INVALID, "%lld does not divide the input %s", (long long)by, dims_str(o->g, 4, o->in[0]->dims));
    return dim_div(o->g, d, c_dim(o, by));
}

/* Whether the channels are ordered by place in the block first (DCR), not by depth first (CRD). */
static bool block_mode_dcr(OpCall *o)
{
    const char *mode = op_string(o, "mode", "DCR");
    bool dcr = strcmp(mode, "DCR") == 0;
    if (!dcr && strcmp(mode, "CRD")) fail(o->cx, E_FORMAT, "mode is '%s', wanted DCR or CRD", mode);
    return dcr;
}

void op_depthtospace(OpCall *o)
{
    Graph *g = o->g;
    int64_t b = block_size(o);
    bool dcr = block_mode_dcr(o);
    Node *x = o->in[0];
    Dim *bd = c_dim(o, b), *c = exact_part(o, x->dims[1], b * b), *const *d = x->dims;
    Node *y = dcr ? g_transpose(g, g_reshape(g, x, 6, (Dim *[]){ d[0], bd, bd, c, d[2], d[3] }), (int[]){ 0, 3, 4, 1, 5, 2 })
                  : g_transpose(g, g_reshape(g, x, 6, (Dim *[]){ d[0], c, bd, bd, d[2], d[3] }), (int[]){ 0, 1, 4, 2, 5, 3 });
    o->out[0] = g_reshape(g, y, 4, (Dim *[]){ d[0], c, dim_mulc(g, d[2], b), dim_mulc(g, d[3], b) });
}

void op_spacetodepth(OpCall *o)
{
    Graph *g = o->g;
    int64_t b = block_size(o);
    Node *x = o->in[0];
    Dim *bd = c_dim(o, b), *const *d = x->dims, *h = exact_part(o, d[2], b), *w = exact_part(o, d[3], b);
    const int dcr[] = { 0, 3, 5, 1, 2, 4 }, crd[] = { 0, 1, 3, 5, 2, 4 };
    Node *y = g_transpose(g, g_reshape(g, x, 6, (Dim *[]){ d[0], d[1], h, bd, w, bd }), block_mode_dcr(o) ? dcr : crd);
    o->out[0] = g_reshape(g, y, 4, (Dim *[]){ d[0], dim_mulc(g, d[1], b * b), h, w });
}

/* ---- cache update ------------------------------------------------------------------------------------------------------------------------------------ */

void op_tensorscatter(OpCall *o)
{
    Graph *g = o->g;
    Node *past = o->in[0], *update = o->in[1];
    const char *mode = op_string(o, "mode", "linear");
    bool circular = strcmp(mode, "circular") == 0;
    if (!circular && strcmp(mode, "linear")) fail(o->cx, E_FORMAT, "mode is '%s', wanted linear or circular", mode);
    int axis = op_axis(o, op_int(o, "axis", -2), past->rank);
    if (axis == 0) fail(o->cx, E_INVALID, "axis is 0, which is the batch");
    if (update->rank != past->rank) fail(o->cx, E_INVALID, "the update has rank %d, the cache %d", update->rank, past->rank);
    for (int k = 0; k < past->rank; k++)
        if (k != axis && !dim_same(o, past->dims[k], update->dims[k]))
            fail(o->cx, E_INVALID, "the update is %s, the cache %s", dims_str(g, update->rank, update->dims), dims_str(g, past->rank, past->dims));
    Node *at = g_iota(g, update->rank, update->dims, axis);
    if (o->in[2]) {
        Node *write = g_cast(g, o->in[2], DT_i64);
        if (write->rank != 1) fail(o->cx, E_INVALID, "write_indices has rank %d, wanted 1", write->rank);
        while (write->rank < update->rank) write = g_unsqueeze(g, write, write->rank);
        at = g2(g, OP_add, at, write);
    }
    if (circular) at = g2(g, OP_mod, at, g_dims(g, 0, 1, &past->dims[axis]));
    Dim *idx[MAX_RANK];
    for (int k = 0; k < past->rank; k++) idx[k] = k == axis ? dim_idx(g, DIM_OPERAND, past->dims[k]) : dim_idx(g, k, update->dims[k]);
    o->out[0] = g_scatter(g, past, update, 1, &at, &(View){ .nidx = past->rank, .idx = idx }, COMBINE_set);
}
