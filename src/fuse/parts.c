/* Long folds in parts: a fold with few results and many elements becomes two, so that threads can share it.
 *
 * A fold of N elements along an axis is, for each P parts of C elements, a fold of the part, and then a fold of the parts' results: the merge. The part is an
 * ordinary fold of a view that cuts the axis in two, [.., N, ..] to [.., P, C, ..], with the fold's identity past the end. It remembers the fold that it is a part of
 * (Node.whole), so a kernel computes it at the points of that one, with whatever else is computed there: its parts are one more parallel axis. argmax and argmin carry
 * the extreme beside the position. Narrow floats are widened, since they are rounded once.
 *
 * C depends on sizes only, never on threads: so do the results. */
#include "fuse/fuse.h"

enum { LEAST_PARTS = 8 };
/* Elements of a part; of a fold that is cut, at least; results that are enough to share. */
typedef struct Cutting { int64_t part, least, enough; bool scans; } Cutting;
static const Cutting few_threads = { 32768, 4 * 32768, 8, false }, many_threads = { 16384, 4 * 16384, 256, true }, many_waiting = { 16384, 4 * 16384, 256, false };

static int64_t size_hint(const Graph *g, const Dim *d) { int64_t n = dim_hint(g, d); return n > 0 ? n : 0; }

/* Is some operand read at every point of n, so that it is no product of things that repeat (a contraction, which has kernels of its own)? */
static bool reads_all(Graph *g, const Node *n, const Dim *count, int *steps)
{
    const Dim *own = g_count(g, n);
    if (n->op == OP_view) return reads_all(g, n->in[0], count, steps);
    if (own != count || n->op == OP_iota || n->op == OP_dims) return false;
    if (!prim_info[n->op].elementwise || --*steps < 0) return true;
    for (int i = 0; i < n->nin; i++) if (reads_all(g, n->in[i], count, steps)) return true;
    return false;
}

/* The axis of f's operand to cut, and the elements of a part along it; -1: f stays whole. */
static int choose_axis(Graph *g, const Cutting *cut, const Node *f, int64_t *step)
{
    const Node *x = f->in[0];
    int64_t all = 1, tasks = 1;
    int axis = -1, last = -1;
    if (x->rank >= MAX_RANK || f->whole) return -1;
    for (int k = 0; k < x->rank; k++) {
        int64_t n = size_hint(g, x->dims[k]);
        all = n && all > INT64_MAX / n ? INT64_MAX : all * n;
        if (!dim_is(x->dims[k], 1)) last = k;
    }
    if (all < cut->least) return -1;
    for (int k = 0; k < x->rank; k++) {
        int64_t n = size_hint(g, x->dims[k]);
        if (!(f->axes >> k & 1)) { tasks *= k == last ? (n + 63) / 64 : n; continue; }     /* columns go in lanes */
        if (axis < 0 || (size_hint(g, x->dims[axis]) < LEAST_PARTS && n > size_hint(g, x->dims[axis]))) axis = k;
    }
    if (tasks >= cut->enough || axis < 0) return -1;
    int64_t n = size_hint(g, x->dims[axis]), each = n ? all / n : 0;         /* elements beside one place of the axis */
    if (!each) return -1;
    *step = (cut->part + each - 1) / each;
    if (*step > 64) *step = (*step + 63) / 64 * 64;
    int steps = WALK_STEPS;
    return n >= 2 * *step && reads_all(g, x, g_count(g, x), &steps) ? axis : -1;
}

/* x with its axis cut into parts. */
static Node *cut_view(Graph *g, Node *x, int axis, int64_t step, Scalar fill)
{
    Dim *dims[MAX_RANK], *idx[MAX_RANK], *c = dim_const(g, step);
    for (int k = 0, m = 0; k < x->rank; k++) {
        if (k == axis) {
            dims[m] = dim_ceildiv(g, x->dims[k], c);
            dims[m + 1] = c;
            idx[k] = dim_add(g, dim_mulc(g, dim_idx(g, m, dims[m]), step), dim_idx(g, m + 1, c));
            m += 2;
        } else { dims[m] = x->dims[k]; idx[k] = dim_idx(g, m, dims[m]); m++; }
    }
    Pred inside = { idx[axis], x->dims[axis] };
    View v = { .nidx = x->rank, .idx = idx, .npred = 1, .pred = &inside, .fill = fill };
    return g_view(g, x, x->rank + 1, dims, &v);
}

/* The fold of each part: of a fold like f but of this kind, over x. */
static Node *part_fold(Graph *g, const Node *f, Node *x, FoldKind kind, int axis, int64_t step)
{
    bool arg = kind == FOLD_argmax || kind == FOLD_argmin;
    Dim *dims[MAX_RANK];
    Node proto = *f, *in = x;
    proto.kind = (uint8_t)kind; proto.dt = arg ? DT_i64 : x->dt; proto.in = &in; proto.last = arg && f->last;
    const Node *whole = graph_add(g, &proto);
    if (whole->op != OP_fold) return NULL;
    in = cut_view(g, x, axis, step, fold_start(kind, x->dt));
    if (in->op != OP_view || in->in[0]->op == OP_const) return NULL;
    proto.axes = (f->axes & (axis_bit(axis) - 1)) | (f->axes & ~(axis_bit(axis) - 1)) << 1;
    proto.rank = 0;
    for (int k = 0; k < in->rank; k++) if (!(proto.axes >> k & 1)) dims[proto.rank++] = in->dims[k];
    proto.dims = dims;
    proto.whole = whole; proto.axis = axis; proto.step = step;
    return graph_add(g, &proto);
}

static Node *in_parts(Graph *g, const Cutting *cut, const Node *f)
{
    int64_t step;
    int axis = choose_axis(g, cut, f, &step), at = 0;
    if (axis < 0) return NULL;
    for (int k = 0; k < axis; k++) at += !(f->axes >> k & 1);        /* the parts' axis in the results */
    bool arg = f->kind == FOLD_argmax || f->kind == FOLD_argmin, narrow = dtype_is_float(f->dt) && dtype_size(f->dt) < 4 && (f->kind == FOLD_sum || f->kind == FOLD_prod);
    Node *x = narrow ? g_cast(g, f->in[0], DT_f32) : f->in[0];
    Node *p = part_fold(g, f, x, arg ? f->kind == FOLD_argmax ? FOLD_max : FOLD_min : (FoldKind)f->kind, axis, step);
    if (!p) return NULL;
    if (!arg) return g_cast(g, g_fold(g, (FoldKind)f->kind, p, axis_bit(at), false), f->dt);
    Node *i = part_fold(g, f, x, (FoldKind)f->kind, axis, step);
    if (!i) return NULL;
    Node *which = g_argfold(g, (FoldKind)f->kind, p, at, false, f->last), *place;
    Dim *idx[MAX_RANK];
    for (int k = 0, m = 0; k < i->rank; k++) idx[k] = k == at ? dim_idx(g, DIM_OPERAND, i->dims[k]) : dim_idx(g, m, which->dims[m]), m += k != at;
    place = g_gather(g, i, 1, &which, which->rank, which->dims, &(View){ .nidx = i->rank, .idx = idx });
    return g2(g, OP_add, place, g2(g, OP_mul, which, g_int(g, DT_i64, step)));
}

/* ---- running folds ------------------------------------------------------------------------------------------------------------------------------ */
enum { SCAN_PART = 4096, SCAN_LEAST = 16 * SCAN_PART, SCAN_ENOUGH = 256 };

static Op both_of(FoldKind kind) { return kind == FOLD_sum ? OP_add : kind == FOLD_max ? OP_max : kind == FOLD_min ? OP_min : OP_COUNT; }

static bool is_long_scan(const Graph *g, const Node *f)
{
    int64_t tasks = 1, n = f->op == OP_scan && !is_recurrence(f) ? size_hint(g, f->dims[f->axis]) : 0;
    for (int k = 0; n && k < f->rank; k++) if (k != f->axis) tasks *= size_hint(g, f->dims[k]);
    return n >= SCAN_LEAST && tasks < SCAN_ENOUGH && f->rank < MAX_RANK && both_of((FoldKind)f->kind) != OP_COUNT;
}

/* For thousands of threads: parts are folded each from its own beginning; what stands before each part is a running fold of their last elements; both are put together.
 * Not products: the part from its own beginning may be inf where the whole is 0. */
static Node *scan_in_parts(Graph *g, const Node *f)
{
    FoldKind kind = (FoldKind)f->kind;
    int axis = f->axis, rank = f->rank;
    bool narrow = dtype_is_float(f->dt) && dtype_size(f->dt) < 4 && kind == FOLD_sum;
    Node *x = narrow ? g_cast(g, f->in[0], DT_f32) : f->in[0];
    Node *cut = cut_view(g, x, axis, SCAN_PART, fold_start(kind, x->dt));
    Node *part = g_scan(g, kind, cut, axis + 1, false, false), *before;
    Dim *dims[MAX_RANK], *last[MAX_RANK], *at[MAX_RANK], *start[MAX_RANK], *c = dim_const(g, SCAN_PART);
    for (int k = 0, m = 0; k < rank; k++) {
        dims[k] = k == axis ? cut->dims[axis] : x->dims[k];
        last[m] = dim_idx(g, k, dims[k]);
        start[k] = at[m] = dim_idx(g, k, x->dims[k]);
        m++;
        if (k != axis) continue;
        start[k] = at[m - 1] = dim_div(g, dim_idx(g, k, x->dims[k]), c);
        at[m] = dim_mod(g, dim_idx(g, k, x->dims[k]), c);
        last[m++] = dim_const(g, SCAN_PART - 1);
    }
    before = g_view(g, part, rank, dims, &(View){ .nidx = rank + 1, .idx = last });
    before = g_scan(g, kind, before, axis, true, false);
    Node *own = g_view(g, part, rank, x->dims, &(View){ .nidx = rank + 1, .idx = at });
    return g_cast(g, g2(g, both_of(kind), g_view(g, before, rank, x->dims, &(View){ .nidx = rank, .idx = start }), own), f->dt);
}

static Node *parts_better(Graph *g, Node *old, Node *now, void *arg)
{
    const Cutting *cut = arg;
    (void)old;
    return now->op == OP_fold ? in_parts(g, cut, now) : cut->scans && is_long_scan(g, now) ? scan_in_parts(g, now) : NULL;
}

void parts_choose(Ctx *cx, Arena *a, Graph *g, bool many, bool scans)
{
    const Cutting *cut = !many ? &few_threads : scans ? &many_threads : &many_waiting;
    bool any = false;
    int64_t step;
    for (int id = 0; id < g->node.n && !any; id++) {
        const Node *x = g->node.at[id];
        any = (x->op == OP_fold && choose_axis(g, cut, x, &step) >= 0) || (cut->scans && is_long_scan(g, x));
    }
    int changed = any ? graph_remake_all(cx, a, g, parts_better, (void *)(uintptr_t)cut) : 0;
    if (changed) log_line(cx, 2, "parts: %d folds are shared between threads", changed);
}
