/* Operators whose result follows from comparing all elements: TopK (a call with known sizes), and those whose size only a run gives:
 * NonZero, Compress, Unique, NonMaxSuppression. Each is a C function of whole tensors.
 *
 * Order: numbers as usual, NaN above all of them (as NumPy sorts), -0 equal to 0, ties by the lower index. So TopK with largest gives NaN first,
 * and Unique gives it last, where all NaN are one value. */
#include "onnx/onnx.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- comparing elements ----------------------------------------------------------------------------------------------------------- */

static int scalar_order(DType dt, Scalar a, Scalar b)
{
    switch (dtype_info[dt].class) {
    case 'F': {
        bool na = isnan(a.f), nb = isnan(b.f);
        if (na || nb) return na - nb;
        return (a.f > b.f) - (a.f < b.f);
    }
    case 'U': return (a.u > b.u) - (a.u < b.u);
    default: return (a.i > b.i) - (a.i < b.i);
    }
}

static Scalar tensor_scalar(const Tensor *t, int64_t j)
{
    return scalar_load(t->dt, tensor_at(t, j));
}

static void tensor_copy_element(Tensor *to, int64_t j, const Tensor *from, int64_t k)
{
    memcpy(tensor_at(to, j), tensor_at(from, k), dtype_size(to->dt));
}

/* A stable merge sort of indices: qsort has neither stability nor an argument for the comparison. */
typedef int (*IndexOrder)(const void *self, int64_t a, int64_t b);
static void sort_indices(int64_t *at, int64_t *scratch, int64_t n, IndexOrder order, const void *self)
{
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            for (int64_t i = lo, j = mid, k = lo; k < hi; k++)
                scratch[k] = i < mid && (j >= hi || order(self, at[i], at[j]) <= 0) ? at[i++] : at[j++];
        }
        memcpy(at, scratch, (size_t)n * sizeof *at);
    }
}

/* A vector of sizes known when the call ran. */
static void result_init(Ctx *cx, Arena *a, Tensor *out, int rank, const int64_t *dims)
{
    *out = *tensor_new(a, cx, out->dt, rank, dims);
}

/* ---- TopK ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct TopKRow { DType dt; const Scalar *value; int largest; } TopKRow;

static int topk_order(const void *self, int64_t a, int64_t b)
{
    const TopKRow *r = self;
    int c = scalar_order(r->dt, r->value[a], r->value[b]);
    return r->largest ? -c : c;
}

static void topk_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    const TopKAttr *p = call->attr;
    const Tensor *x = &in[0];
    int64_t n = x->dims[p->axis], k = out[0].dims[p->axis], outer = 1, inner = 1;
    if (k > n || k < 0) fail(cx, E_INVALID, "TopK of %lld from %lld elements", (long long)k, (long long)n);
    for (int j = 0; j < x->rank; j++) *(j < p->axis ? &outer : &inner) *= j == p->axis ? 1 : x->dims[j];
    int64_t *at = NEWS(a, int64_t, n), *scratch = NEWS(a, int64_t, n);
    Scalar *value = NEWS(a, Scalar, n);
    for (int64_t row = 0; row < outer * inner; row++) {
        int64_t base = row / inner * n * inner + row % inner, to = row / inner * k * inner + row % inner;
        for (int64_t j = 0; j < n; j++) value[at[j] = j] = tensor_scalar(x, base + j * inner);
        sort_indices(at, scratch, n, topk_order, &(TopKRow){ x->dt, value, p->largest });
        for (int64_t j = 0; j < k; j++) {
            tensor_copy_element(&out[0], to + j * inner, x, base + at[j] * inner);
            *(int64_t *)tensor_at(&out[1], to + j * inner) = at[j];
        }
    }
}

/* An element's order in 32 bits, signed: floats by their bits, those below zero turned round, both zeros one, and what is no number above all. */
static Node *order_bits(Graph *g, Node *x)
{
    if (!dtype_is_float(x->dt)) return g_cast(g, x, DT_i64);
    Node *f = g_cast(g, x, DT_f32), *b = g_bitcast(g, f, DT_i32), *zero = g_int(g, DT_i32, 0);
    Node *up = g_where(g, g2(g, OP_lt, b, zero), g2(g, OP_xor, b, g_int(g, DT_i32, INT32_MAX)), b);
    up = g_where(g, g2(g, OP_eq, f, g_scalar(g, DT_f32, 0)), zero, up);
    return g_cast(g, g_where(g, g2(g, OP_eq, f, f), up, g_int(g, DT_i32, INT32_MAX)), DT_i64);
}

/* A few of each row, one after the other: order and place, the lower place first, are one number, which no two elements share; each time the largest below the
 * last one is taken. */
enum { TOPK_FEW = 8, PLACE_BITS = 31 };
static Node *topk_primitives(Graph *g, const Call *call, Node *const *in, const Node *part)
{
    const TopKAttr *p = call->attr;
    Node *x = in[0], *place[TOPK_FEW], *last = NULL;
    const Dim *n = x->dims[p->axis], *k = part->dims[p->axis];
    bool held = dtype_is_float(x->dt) ? x->dt == DT_f32 || x->dt == DT_f16 || x->dt == DT_bf16 : dtype_size(x->dt) <= 4 && x->dt != DT_bool && x->dt != DT_u32 && dtype_bits(x->dt) >= 8;
    if (!held || !dim_is_const(n) || !dim_is_const(k) || n->c >= INT32_MAX || k->c < 1 || k->c > TOPK_FEW || k->c > n->c) return NULL;
    Node *order = order_bits(g, x), *least = g_int(g, DT_i64, INT64_MIN), *places = g_int(g, DT_i64, ((int64_t)1 << PLACE_BITS) - 1);
    if (!p->largest) order = g2(g, OP_sub, g_int(g, DT_i64, -1), order);
    Node *key = g2(g, OP_add, g2(g, OP_mul, order, g_int(g, DT_i64, (int64_t)1 << PLACE_BITS)), g2(g, OP_sub, places, g_iota(g, x->rank, x->dims, p->axis)));
    for (int i = 0; i < k->c; i++) {
        last = g_fold(g, FOLD_max, last ? g_where(g, g2(g, OP_lt, key, last), key, least) : key, 1u << p->axis, true);
        place[i] = g2(g, OP_sub, places, g2(g, OP_and, last, places));
    }
    Node *at = g_join(g, (int)k->c, place, p->axis);
    if (part->index == 1) return at;
    Dim *idx[MAX_RANK];
    for (int i = 0; i < x->rank; i++) idx[i] = i == p->axis ? dim_idx(g, DIM_OPERAND, x->dims[i]) : dim_idx(g, i, at->dims[i]);
    return g_gather(g, x, 1, &at, at->rank, at->dims, &(View){ .nidx = x->rank, .idx = idx });
}
static const CallDef topk_def = { .name = "topk", .eval = topk_eval, .primitives = topk_primitives };

static void topk(OpCall *o, Dim *k, int axis, bool largest)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    TopKAttr attr = { axis, largest };
    Dim *dims[MAX_RANK];
    for (int j = 0; j < x->rank; j++) dims[j] = j == axis ? k : x->dims[j];
    Dim *const *all[2] = { dims, dims };
    Call call = { .def = &topk_def, .nin = 1, .nout = 2, .out_dt = (DType[]){ x->dt, DT_i64 }, .attr = &attr, .attr_size = sizeof attr };
    Node **y = g_call(g, &call, &x, (int[]){ x->rank, x->rank }, all);
    o->out[0] = y[0];
    if (op_wants(o, 1)) o->out[1] = y[1];
}

void op_topk(OpCall *o)
{
    int n;
    Dim **k = op_sizes(o, 1, &n);
    if (n != 1) fail(o->cx, E_INVALID, "K has %d elements; 1 is wanted", n);
    topk(o, k[0], op_axis(o, op_int(o, "axis", -1), o->in[0]->rank), op_int(o, "largest", 1) != 0);
}

void op_topk_1(OpCall *o)
{
    int64_t k = op_int(o, "k", -1);
    if (k < 0) fail(o->cx, E_INVALID, "the attribute k is %lld; a number of elements is wanted", (long long)k);
    topk(o, dim_const(o->g, k), op_axis(o, op_int(o, "axis", -1), o->in[0]->rank), true);
}

/* ---- NonZero, Compress ----------------------------------------------------------------------------------------------------------------- */

static bool scalar_true(DType dt, Scalar v)
{
    return dtype_is_float(dt) ? v.f != 0 : v.i != 0;
}

static void non_zero_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)call;
    const Tensor *x = &in[0];
    int64_t total = tensor_count(x), n = 0;
    for (int64_t j = 0; j < total; j++) n += scalar_true(x->dt, tensor_scalar(x, j));
    result_init(cx, a, out, 2, (int64_t[]){ x->rank, n });
    int64_t *y = out->data, col = 0;
    for (int64_t j = 0; j < total; j++) {
        if (!scalar_true(x->dt, tensor_scalar(x, j))) continue;
        int64_t rest = j;
        for (int k = x->rank - 1; k >= 0; k--) {
            y[k * n + col] = rest % x->dims[k];
            rest /= x->dims[k];
        }
        col++;
    }
}
static const CallDef non_zero_def = { .name = "non_zero", .dynamic = true, .eval = non_zero_eval };

void op_non_zero(OpCall *o)
{
    DType dt = DT_i64;
    o->out[0] = op_host_call(o, &non_zero_def, 1, (Node *[]){ o->in[0] }, 1, &dt, NULL, 0)[0];
}

/* Slices along attr (an axis) whose condition holds. A condition may be shorter than the axis. */
static void compress_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    int axis = *(const int *)call->attr;
    const Tensor *x = &in[0], *cond = &in[1];
    int64_t n = 0, given = tensor_count(cond), outer = 1, inner = 1, dims[MAX_RANK];
    if (given > x->dims[axis]) given = x->dims[axis];
    for (int64_t j = 0; j < given; j++) n += scalar_true(cond->dt, tensor_scalar(cond, j));
    for (int k = 0; k < x->rank; k++) {
        dims[k] = k == axis ? n : x->dims[k];
        *(k < axis ? &outer : &inner) *= k == axis ? 1 : x->dims[k];
    }
    result_init(cx, a, out, x->rank, dims);
    for (int64_t i = 0, to = 0; i < outer; i++)
        for (int64_t j = 0; j < given; j++) {
            if (!scalar_true(cond->dt, tensor_scalar(cond, j))) continue;
            for (int64_t k = 0; k < inner; k++) tensor_copy_element(out, to++, x, (i * x->dims[axis] + j) * inner + k);
        }
}
static const CallDef compress_def = { .name = "compress", .dynamic = true, .eval = compress_eval };

static Node *flat_input(OpCall *o, int i)
{
    Dim *count = g_count(o->g, o->in[i]);
    return g_reshape(o->g, o->in[i], 1, &count);
}

void op_compress(OpCall *o)
{
    bool flat = !op_attr(o, "axis");
    int axis = flat ? 0 : op_axis(o, op_int(o, "axis", 0), o->in[0]->rank);
    DType dt = o->in[0]->dt;
    if (o->in[1]->rank != 1) fail(o->cx, E_INVALID, "a condition of rank %d; 1 is wanted", o->in[1]->rank);
    Node *x = flat ? flat_input(o, 0) : o->in[0];
    o->out[0] = op_host_call(o, &compress_def, 2, (Node *[]){ x, o->in[1] }, 1, &dt, &axis, sizeof axis)[0];
}

/* ---- Unique ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct UniqueSlices { const Tensor *x; int64_t outer, inner, n; } UniqueSlices;

/* Slices compare by their elements in row-major order. */
static int unique_order(const void *self, int64_t a, int64_t b)
{
    const UniqueSlices *s = self;
    for (int64_t i = 0; i < s->outer; i++)
        for (int64_t k = 0; k < s->inner; k++) {
            int c = scalar_order(s->x->dt, tensor_scalar(s->x, (i * s->n + a) * s->inner + k), tensor_scalar(s->x, (i * s->n + b) * s->inner + k));
            if (c) return c;
        }
    return 0;
}

static int first_order(const void *self, int64_t a, int64_t b)
{
    const int64_t *first = self;
    return (first[a] > first[b]) - (first[a] < first[b]);
}

/* Sorts the slices, so that equal ones stand together with the first occurrence in front; then numbers the groups by value or by occurrence. */
static void unique_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    const UniqueAttr *p = call->attr;
    const Tensor *x = &in[0];
    UniqueSlices s = { x, 1, 1, x->dims[p->axis] };
    for (int k = 0; k < x->rank; k++) *(k < p->axis ? &s.outer : &s.inner) *= k == p->axis ? 1 : x->dims[k];
    int64_t *at = NEWS(a, int64_t, s.n), *scratch = NEWS(a, int64_t, s.n), *first = NEWS(a, int64_t, s.n), *count = NEWS(a, int64_t, s.n);
    int64_t *group = NEWS(a, int64_t, s.n), *order = NEWS(a, int64_t, s.n), n = 0;
    for (int64_t j = 0; j < s.n; j++) at[j] = j;
    sort_indices(at, scratch, s.n, unique_order, &s);
    for (int64_t j = 0; j < s.n; j++) {
        if (j == 0 || unique_order(&s, at[j - 1], at[j]) != 0) first[n++] = at[j];
        group[at[j]] = n - 1;
        count[n - 1]++;
    }
    for (int64_t j = 0; j < n; j++) order[j] = j;
    if (!p->sorted) sort_indices(order, scratch, n, first_order, first);
    int64_t *number = scratch, dims[MAX_RANK];
    for (int k = 0; k < x->rank; k++) dims[k] = k == p->axis ? n : x->dims[k];
    result_init(cx, a, &out[0], x->rank, dims);
    result_init(cx, a, &out[1], 1, &n);
    result_init(cx, a, &out[2], 1, &s.n);
    result_init(cx, a, &out[3], 1, &n);
    for (int64_t j = 0; j < n; j++) {
        number[order[j]] = j;
        ((int64_t *)out[1].data)[j] = first[order[j]];
        ((int64_t *)out[3].data)[j] = count[order[j]];
        for (int64_t i = 0; i < s.outer; i++)
            for (int64_t k = 0; k < s.inner; k++) tensor_copy_element(&out[0], (i * n + j) * s.inner + k, x, (i * s.n + first[order[j]]) * s.inner + k);
    }
    for (int64_t j = 0; j < s.n; j++) ((int64_t *)out[2].data)[j] = number[group[j]];
}
static const CallDef unique_def = { .name = "unique", .dynamic = true, .eval = unique_eval };

void op_unique(OpCall *o)
{
    bool flat = !op_attr(o, "axis");
    UniqueAttr attr = { flat ? 0 : op_axis(o, op_int(o, "axis", 0), o->in[0]->rank), op_int(o, "sorted", 1) != 0 };
    DType dt[4] = { o->in[0]->dt, DT_i64, DT_i64, DT_i64 };
    Node *x = flat ? flat_input(o, 0) : o->in[0];
    Node **y = op_host_call(o, &unique_def, 1, &x, 4, dt, &attr, sizeof attr);
    for (int k = 0; k < o->nout && k < 4; k++) o->out[k] = y[k];
}

/* ---- NonMaxSuppression --------------------------------------------------------------------------------------------------------------------- */


/* Corners as y1 x1 y2 x2 in any order, or as centre and size. */
static void nms_corners(const Tensor *boxes, int64_t batch, int64_t box, bool center, double c[4])
{
    double v[4];
    for (int64_t k = 0; k < 4; k++) v[k] = tensor_scalar(boxes, (batch * boxes->dims[1] + box) * 4 + k).f;
    if (center) {
        c[0] = v[1] - v[3] / 2, c[1] = v[0] - v[2] / 2, c[2] = v[1] + v[3] / 2, c[3] = v[0] + v[2] / 2;
    } else {
        c[0] = fmin(v[0], v[2]), c[1] = fmin(v[1], v[3]), c[2] = fmax(v[0], v[2]), c[3] = fmax(v[1], v[3]);
    }
}

static bool nms_overlaps(const double a[4], const double b[4], double limit)
{
    double h = fmin(a[2], b[2]) - fmax(a[0], b[0]), w = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    if (!(h > 0 && w > 0)) return false;
    double one = (a[2] - a[0]) * (a[3] - a[1]), two = (b[2] - b[0]) * (b[3] - b[1]), both = one + two - h * w;
    return one > 0 && two > 0 && both > 0 && h * w / both > limit;
}

static void nms_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    const NmsAttr *p = call->attr;
    const Tensor *boxes = &in[0], *scores = &in[1];
    int64_t batches = scores->dims[0], classes = scores->dims[1], n = scores->dims[2];
    if (boxes->dims[0] != batches || boxes->dims[1] != n || boxes->dims[2] != 4)
        fail(cx, E_INVALID, "boxes %s for scores %s", shape_str(a, 3, boxes->dims), shape_str(a, 3, scores->dims));
    int64_t *at = NEWS(a, int64_t, n), *scratch = NEWS(a, int64_t, n), *kept = NEWS(a, int64_t, n);
    Scalar *value = NEWS(a, Scalar, n);
    double(*corner)[4] = arena_alloc(a, size_mul(a, sizeof *corner, (size_t)n));
    VEC(int64_t) result = { 0 };
    for (int64_t b = 0; b < batches; b++) {
        for (int64_t j = 0; j < n; j++) nms_corners(boxes, b, j, p->center, corner[j]);
        for (int64_t c = 0; c < classes; c++) {
            int64_t some = 0, nkept = 0;
            for (int64_t j = 0; j < n; j++) {
                value[j] = tensor_scalar(scores, (b * classes + c) * n + j);
                if (!p->use_score || value[j].f > p->score) at[some++] = j;
            }
            sort_indices(at, scratch, some, topk_order, &(TopKRow){ scores->dt, value, 1 });
            for (int64_t j = 0; j < some && nkept < p->most; j++) {
                bool hidden = false;
                for (int64_t k = 0; k < nkept && !hidden; k++) hidden = nms_overlaps(corner[at[j]], corner[kept[k]], p->iou);
                if (hidden) continue;
                kept[nkept++] = at[j];
                vec_push(a, &result, b);
                vec_push(a, &result, c);
                vec_push(a, &result, at[j]);
            }
        }
    }
    result_init(cx, a, out, 2, (int64_t[]){ result.n / 3, 3 });
    if (result.n) memcpy(out->data, result.at, (size_t)result.n * sizeof *result.at);
}
static const CallDef nms_def = { .name = "non_max_suppression", .dynamic = true, .eval = nms_eval };

static double nms_number(OpCall *o, int i, double fallback)
{
    const Tensor *t = op_value(o, i);
    if (!t || tensor_count(t) == 0) return fallback;
    Scalar v = tensor_scalar(t, 0);
    return dtype_is_float(t->dt) ? v.f : (double)v.i;
}

void op_non_max_suppression(OpCall *o)
{
    NmsAttr attr;
    memset(&attr, 0, sizeof attr);
    attr.center = op_int(o, "center_point_box", 0) != 0;
    attr.most = (int64_t)fmin(fmax(nms_number(o, 2, 0), 0), 1e15);
    attr.iou = nms_number(o, 3, 0);
    attr.use_score = o->nin > 4 && o->in[4];
    attr.score = nms_number(o, 4, 0);
    if (o->in[0]->rank != 3 || o->in[1]->rank != 3)
        fail(o->cx, E_INVALID, "boxes of rank %d and scores of rank %d; 3 and 3 are wanted", o->in[0]->rank, o->in[1]->rank);
    DType dt = DT_i64;
    o->out[0] = op_host_call(o, &nms_def, 2, (Node *[]){ o->in[0], o->in[1] }, 1, &dt, &attr, sizeof attr)[0];
}
