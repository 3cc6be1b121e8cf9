/* builders.c: the builders of leaves, elementwise nodes, loops and composites.
 *
 * A builder checks what a caller may get wrong (dtypes, shapes, axes: INVALID, with the shapes in the
 * message), brings operands to one shape by views, and calls graph_add. graph_add folds known operands;
 * folds over axes of size 1 and joins of known pieces are folded here. Composites are written as the
 * operator's definition would be; making them fast is the planner's work. Narrow floats: a composite widens
 * its operands to dtype_wide, computes there and rounds once. */
#include "ir/ir.h"
#include <string.h>

enum { JOIN_LIMIT = 4096 }; /* elements of constants that are joined while building */

DType dtype_wide(DType t) { return dtype_is_float(t) && dtype_size(t) < 4 ? DT_f32 : t; }

/* ---- leaves ------------------------------------------------------------------------------------------ */

Node *g_const(Graph *g, const Tensor *t)
{
    Dim *dims[MAX_RANK];
    for (int k = 0; k < t->rank; k++) dims[k] = dim_const(g, t->dims[k]);
    return graph_add(g, &(Node){ .op = OP_const, .dt = t->dt, .rank = t->rank, .dims = dims, .tensor = t });
}

static Node *known_scalar(Graph *g, DType dt, Scalar v)
{
    Tensor *t = tensor_new(g->arena, g->cx, dt, 0, NULL);
    scalar_store(dt, t->data, v);
    return g_const(g, t);
}

Node *g_scalar(Graph *g, DType dt, double v)
{
    return known_scalar(g, dt, scalar_cast(dt, DT_f64, (Scalar){ .f = v }, false));
}

Node *g_int(Graph *g, DType dt, int64_t v)
{
    return known_scalar(g, dt, scalar_cast(dt, DT_i64, (Scalar){ .i = v }, false));
}

Node *g_ints(Graph *g, int n, const int64_t *v)
{
    Tensor *t = tensor_new(g->arena, g->cx, DT_i64, 1, (int64_t[]){ n });
    if (n) memcpy(t->data, v, sizeof *v * (size_t)n);
    return g_const(g, t);
}

Node *g_dims(Graph *g, int rank, int n, Dim *const *v)
{
    ASSERT(rank == 1 || (rank == 0 && n == 1));
    Dim *count = dim_const(g, n);
    return graph_add(g, &(Node){ .op = OP_dims, .dt = DT_i64, .rank = rank, .dims = &count, .size = v });
}

Node *g_iota(Graph *g, int rank, Dim *const *dims, int axis)
{
    ASSERT(axis >= 0 && axis < rank && rank <= MAX_RANK);
    return graph_add(g, &(Node){ .op = OP_iota, .dt = DT_i64, .rank = rank, .dims = dims, .axis = axis });
}

Node *g_random(Graph *g, Node *key, int rank, Dim *const *dims)
{
    ASSERT(key->dt == DT_u64 && key->rank == 0 && rank <= MAX_RANK);
    return graph_add(
        g, &(Node){ .op = OP_random, .dt = DT_u64, .rank = rank, .dims = dims, .nin = 1, .in = &key });
}

/* ---- elementwise ------------------------------------------------------------------------------------- */

static void check_dtypes(Graph *g, Op op, int n, Node *const *in)
{
    const PrimInfo *p = &prim_info[op];
    int first = op == OP_where;
    if (first && in[0]->dt != DT_bool)
        fail(g->cx, E_INVALID, "the condition of where has dtype %s; bool is wanted",
             dtype_info[in[0]->dt].name);
    for (int k = first + 1; k < n; k++)
        if (in[k]->dt != in[first]->dt)
            fail(g->cx, E_INVALID, "%s of dtypes %s and %s; they must be equal", p->name,
                 dtype_info[in[first]->dt].name, dtype_info[in[k]->dt].name);
    if (first) return;
    char class = dtype_info[in[0]->dt].class;
    if (!strchr(p->domain, class == 'S' || class == 'U' ? 'I' : class))
        fail(g->cx, E_INVALID, "%s is not defined on dtype %s", p->name, dtype_info[in[0]->dt].name);
}

Node *g_op(Graph *g, Op op, int n, Node *const *in)
{
    const PrimInfo *p = &prim_info[op];
    ASSERT((p->elementwise || op == OP_where) && n >= 1 && n <= 3 && n == (op == OP_where ? 3 : p->arity));
    check_dtypes(g, op, n, in);
    Dim *dims[MAX_RANK];
    int rank = in[0]->rank;
    memcpy(dims, in[0]->dims, sizeof *dims * (size_t)rank);
    for (int k = 1; k < n; k++) rank = dims_broadcast(g, rank, dims, in[k]->rank, in[k]->dims, dims);
    Node *to[3];
    for (int k = 0; k < n; k++) to[k] = g_expand(g, in[k], rank, dims);
    if (op == OP_pow && in[1]->op == OP_const && in[1]->rank == 0 && dtype_is_float(in[1]->dt) && scalar_load(in[1]->dt, in[1]->tensor->data).f == 2) {
        op = OP_mul;                    /* the same value: both round the exact square once */
        to[1] = to[0];
    }
    DType dt = p->compares ? DT_bool : to[n - 1]->dt;
    return graph_add(g, &(Node){ .op = op, .dt = dt, .rank = rank, .dims = dims, .nin = n, .in = to });
}

Node *g1(Graph *g, Op op, Node *a) { return g_op(g, op, 1, &a); }
Node *g2(Graph *g, Op op, Node *a, Node *b) { return g_op(g, op, 2, (Node *[]){ a, b }); }
Node *g_where(Graph *g, Node *c, Node *a, Node *b) { return g_op(g, OP_where, 3, (Node *[]){ c, a, b }); }

Node *g_cast_sat(Graph *g, Node *x, DType to, bool saturate)
{
    return graph_add(g, &(Node){ .op = OP_cast, .dt = to, .rank = x->rank, .dims = x->dims, .nin = 1,
                                 .in = &x, .saturate = saturate });
}

Node *g_cast(Graph *g, Node *x, DType to) { return g_cast_sat(g, x, to, true); }

Node *g_bitcast(Graph *g, Node *x, DType to)
{
    if (dtype_bits(to) != dtype_bits(x->dt))
        fail(g->cx, E_INVALID, "bitcast from %s to %s: their sizes differ", dtype_info[x->dt].name,
             dtype_info[to].name);
    return graph_add(
        g, &(Node){ .op = OP_bitcast, .dt = to, .rank = x->rank, .dims = x->dims, .nin = 1, .in = &x });
}

/* ---- loops ------------------------------------------------------------------------------------------- */

static void fold_dtype_check(Graph *g, FoldKind kind, const Node *x)
{
    bool order = kind == FOLD_max || kind == FOLD_min;
    if (x->dt == DT_bool && !order)
        fail(g->cx, E_INVALID, "%s of dtype bool; only max and min are defined on it", fold_name[kind]);
}

/* Shape of a fold's result; to `kept` with size 1 in place of what was reduced. */
static int fold_shape(Graph *g, const Node *x, uint32_t axes, Dim **dims, Dim **kept)
{
    int rank = 0;
    for (int k = 0; k < x->rank; k++) {
        bool reduced = axes & axis_bit(k);
        if (!reduced) dims[rank++] = x->dims[k];
        kept[k] = reduced ? dim_const(g, 1) : x->dims[k];
    }
    return rank;
}

Node *g_fold(Graph *g, FoldKind kind, Node *x, uint32_t axes, bool keep)
{
    ASSERT(kind <= FOLD_min && x->rank >= 0 && x->rank <= MAX_RANK);
    fold_dtype_check(g, kind, x);
    if (axes >> x->rank)
        fail(g->cx, E_INVALID, "%s over axes (mask %#x) that %s does not have", fold_name[kind], axes,
             dims_str(g, x->rank, x->dims));
    Dim *dims[MAX_RANK], *kept[MAX_RANK];
    int rank = fold_shape(g, x, axes, dims, kept), full = x->rank;
    if (!axes) return x;
    for (int k = 0; k < full; k++) /* a kernel would compute what does not change along the axis, though there is nothing to compute it from */
        if ((axes & axis_bit(k)) && dim_is(x->dims[k], 0)) return g_expand(g, known_scalar(g, x->dt, fold_start(kind, x->dt)), keep ? full : rank, keep ? kept : dims);
    for (int k = full - 1; k >= 0; k--) { /* an axis of size 1 folds to its element */
        if (!(axes & axis_bit(k)) || !dim_is(x->dims[k], 1)) continue;
        uint32_t below = axes & (axis_bit(k) - 1);
        x = g_squeeze(g, x, k);
        axes = (axes >> 1 & ~(axis_bit(k) - 1)) | below;
    }
    if (axes)
        x = graph_add(g, &(Node){ .op = OP_fold, .dt = x->dt, .rank = rank, .dims = dims, .nin = 1, .in = &x,
                                  .kind = (uint8_t)kind, .axes = axes });
    return keep ? g_reshape(g, x, full, kept) : x;
}

Node *g_argfold(Graph *g, FoldKind kind, Node *x, int axis, bool keep, bool last)
{
    ASSERT(kind == FOLD_argmax || kind == FOLD_argmin);
    if (axis < 0 || axis >= x->rank)
        fail(g->cx, E_INVALID, "%s along axis %d of %s", fold_name[kind], axis,
             dims_str(g, x->rank, x->dims));
    if (dim_is(x->dims[axis], 0))
        fail(g->cx, E_INVALID, "%s along axis %d of %s, which has no elements", fold_name[kind], axis,
             dims_str(g, x->rank, x->dims));
    Dim *dims[MAX_RANK], *kept[MAX_RANK];
    int rank = fold_shape(g, x, axis_bit(axis), dims, kept);
    Node *y = graph_add(g, &(Node){ .op = OP_fold, .dt = DT_i64, .rank = rank, .dims = dims, .nin = 1,
                                    .in = &x, .kind = (uint8_t)kind, .axes = axis_bit(axis), .last = last });
    return keep ? g_unsqueeze(g, y, axis) : y;
}

Node *g_scan(Graph *g, FoldKind kind, Node *x, int axis, bool exclusive, bool reverse)
{
    ASSERT(kind <= FOLD_min);
    fold_dtype_check(g, kind, x);
    if (axis < 0 || axis >= x->rank)
        fail(g->cx, E_INVALID, "running %s along axis %d of %s", fold_name[kind], axis,
             dims_str(g, x->rank, x->dims));
    if (reverse) x = g_flip(g, x, axis);
    if (exclusive) { /* the identity moves in, the last element moves out */
        Dim *before[MAX_RANK], *after[MAX_RANK];
        for (int k = 0; k < x->rank; k++) {
            before[k] = dim_const(g, k == axis);
            after[k] = dim_const(g, -(k == axis));
        }
        x = g_pad(g, x, before, after, fold_start(kind, x->dt));
    }
    x = graph_add(g, &(Node){ .op = OP_scan, .dt = x->dt, .rank = x->rank, .dims = x->dims, .nin = 1,
                              .in = &x, .axis = axis, .kind = (uint8_t)kind });
    return reverse ? g_flip(g, x, axis) : x;
}

Node *g_recurrence(Graph *g, Node *x, Node *factor, int axis, bool reverse)
{
    Node *in[2] = { x, factor };
    if (x->dt != factor->dt || !dtype_is_float(x->dt))
        fail(g->cx, E_INVALID, "a recurrence of %s and %s; one type of floats is wanted", dtype_info[x->dt].name, dtype_info[factor->dt].name);
    Dim *dims[MAX_RANK];
    int rank = dims_broadcast(g, x->rank, x->dims, factor->rank, factor->dims, dims);
    if (axis < 0 || axis >= rank) fail(g->cx, E_INVALID, "a recurrence along axis %d of %s; one of its axes is wanted", axis, dims_str(g, rank, dims));
    for (int i = 0; i < 2; i++) {
        in[i] = g_expand(g, in[i], rank, dims);
        if (reverse) in[i] = g_flip(g, in[i], axis);
    }
    Node *y = graph_add(g, &(Node){ .op = OP_scan, .dt = x->dt, .rank = rank, .dims = dims, .nin = 2, .in = in, .axis = axis, .kind = FOLD_sum });
    return reverse ? g_flip(g, y, axis) : y;
}

/* ---- join -------------------------------------------------------------------------------------------- */

static Node *join_consts(Graph *g, const Tensor *a, const Tensor *b, int axis)
{
    int64_t dims[MAX_RANK], inner = 1, outer = 1;
    memcpy(dims, a->dims, sizeof dims);
    dims[axis] += b->dims[axis];
    Tensor *t = tensor_new(g->arena, g->cx, a->dt, a->rank, dims);
    for (int k = 0; k < axis; k++) outer *= dims[k];
    for (int k = axis + 1; k < a->rank; k++) inner *= dims[k];
    char *dst = t->data;
    size_t size = dtype_size(a->dt);
    for (int64_t o = 0; o < outer; o++)
        for (int piece = 0; piece < 2; piece++) {
            const Tensor *src = piece ? b : a;
            int64_t run = src->dims[axis] * inner;
            for (int64_t j = 0; j < run; j++, dst += size) memcpy(dst, tensor_at(src, o * run + j), size);
        }
    return g_const(g, t);
}

/* Two neighbours as one known piece, or NULL. */
static Node *join_known(Graph *g, Node *a, Node *b, int axis)
{
    int na, nb;
    Dim **sa = a->rank == 1 && a->dt == DT_i64 ? node_as_dims(g, a, &na) : NULL,
        **sb = sa ? node_as_dims(g, b, &nb) : NULL;
    if (sb) {
        Dim **v = NEWS(g->arena, Dim *, na + nb + 1);
        memcpy(v, sa, sizeof *v * (size_t)na);
        memcpy(v + na, sb, sizeof *v * (size_t)nb);
        return g_dims(g, 1, na + nb, v);
    }
    if (a->op != OP_const || b->op != OP_const || !a->tensor->data || !b->tensor->data) return NULL;
    if (tensor_count(a->tensor) + tensor_count(b->tensor) > JOIN_LIMIT) return NULL;
    return join_consts(g, a->tensor, b->tensor, axis);
}

Node *g_join(Graph *g, int n, Node *const *x, int axis)
{
    ASSERT(n >= 1);
    Dim *dims[MAX_RANK];
    int rank = x[0]->rank;
    if (axis < 0 || axis >= rank)
        fail(g->cx, E_INVALID, "join along axis %d of %s", axis, dims_str(g, rank, x[0]->dims));
    memcpy(dims, x[0]->dims, sizeof *dims * (size_t)rank);
    for (int p = 1; p < n; p++) {
        if (x[p]->dt != x[0]->dt)
            fail(g->cx, E_INVALID, "join of dtypes %s and %s; they must be equal", dtype_info[x[0]->dt].name,
                 dtype_info[x[p]->dt].name);
        bool fits = x[p]->rank == rank;
        for (int k = 0; fits && k < rank; k++) {
            if (k == axis) continue;
            fits = dim_decide_eq(g, dims[k], x[p]->dims[k], "joined pieces agree in their other axes");
            if (dim_is_const(x[p]->dims[k])) dims[k] = x[p]->dims[k];
        }
        if (!fits)
            fail(g->cx, E_INVALID, "shapes %s and %s cannot be joined along axis %d",
                 dims_str(g, rank, x[0]->dims), dims_str(g, x[p]->rank, x[p]->dims), axis);
    }
    Dim *total = dim_const(g, 0);
    VEC(Node *) piece = { 0 };
    for (int p = 0; p < n; p++) {
        if (dim_is(x[p]->dims[axis], 0)) continue;
        total = dim_add(g, total, x[p]->dims[axis]);
        dims[axis] = x[p]->dims[axis];
        Node *y = g_expand(g, x[p], rank, dims); /* sizes that are equal by decision become the same */
        bool nested = y->op == OP_join && y->axis == axis;
        for (int k = 0; k < (nested ? y->nin : 1); k++) {
            Node *z = nested ? y->in[k] : y,
                 *both = piece.n ? join_known(g, piece.at[piece.n - 1], z, axis) : NULL;
            if (both)
                piece.at[piece.n - 1] = both;
            else
                vec_push(g->arena, &piece, z);
        }
    }
    if (!piece.n) return x[0];
    if (piece.n == 1) return piece.at[0];
    dims[axis] = total;
    return graph_add(g, &(Node){ .op = OP_join, .dt = x[0]->dt, .rank = rank, .dims = dims, .nin = piece.n,
                                 .in = piece.at, .axis = axis });
}

Node **g_call(Graph *g, const Call *call, Node *const *in, const int *rank, Dim *const *const *dims)
{
    Call *own = NEW(g->arena, Call);
    *own = *call;
    own->out_dt = arena_copy(g->arena, call->out_dt, sizeof *call->out_dt * (size_t)call->nout);
    if (call->attr_size) own->attr = arena_copy(g->arena, call->attr, call->attr_size);
    Node *whole = graph_add(g, &(Node){ .op = OP_call, .nin = call->nin, .in = in, .call = own });
    Node **part = NEWS(g->arena, Node *, call->nout + 1);
    for (int k = 0; k < call->nout; k++)
        part[k] = graph_add(g, &(Node){ .op = OP_part, .dt = call->out_dt[k], .rank = rank[k],
                                        .dims = dims[k], .nin = 1, .in = &whole, .index = k });
    return part;
}

/* ---- composites -------------------------------------------------------------------------------------- */

/* Both operands as views over [batch..., M, N, K]: a gets a column axis of size 1, b a row axis; they broadcast. */
Node *g_matmul(Graph *g, Node *a, Node *b)
{
    DType dt = a->dt, wide = dtype_wide(dt);
    if (b->dt != dt)
        fail(g->cx, E_INVALID, "matmul of dtypes %s and %s; they must be equal", dtype_info[dt].name,
             dtype_info[b->dt].name);
    int most = a->rank > b->rank ? a->rank : b->rank;
    if (!a->rank || !b->rank || most + 1 > MAX_RANK)
        fail(g->cx, E_INVALID, "matmul of shapes %s and %s: the ranks must be 1 to %d",
             dims_str(g, a->rank, a->dims), dims_str(g, b->rank, b->dims), MAX_RANK - 1);
    bool rows = a->rank > 1, columns = b->rank > 1;
    if (!dim_decide_eq(g, a->dims[a->rank - 1], b->dims[columns ? b->rank - 2 : 0],
                       "matmul: inner sizes agree"))
        fail(g->cx, E_INVALID, "matmul of shapes %s and %s: the inner sizes differ",
             dims_str(g, a->rank, a->dims), dims_str(g, b->rank, b->dims));
    a = g_cast(g, a, wide);
    b = g_cast(g, b, wide);
    if (columns) {
        int perm[MAX_RANK];
        for (int k = 0; k < b->rank; k++) perm[k] = k;
        perm[b->rank - 1] = b->rank - 2;
        perm[b->rank - 2] = b->rank - 1;
        b = g_transpose(g, b, perm);
        if (rows) b = g_unsqueeze(g, b, b->rank - 2);
        a = g_unsqueeze(g, a, a->rank - 1);
    }
    Node *product = g2(g, OP_mul, a, b);
    ASSERT(product->rank >= 1);
    return g_cast(g, g_fold(g, FOLD_sum, product, axis_bit(product->rank - 1), false), dt);
}

static void check_float(Graph *g, const Node *x, const char *what)
{
    if (!dtype_is_float(x->dt))
        fail(g->cx, E_INVALID, "%s of dtype %s; a float is wanted", what, dtype_info[x->dt].name);
}

Node *g_softmax(Graph *g, Node *x, uint32_t axes, bool logarithm)
{
    check_float(g, x, "softmax");
    DType dt = x->dt;
    x = g_cast(g, x, dtype_wide(dt));
    Node *shifted = g2(g, OP_sub, x, g_fold(g, FOLD_max, x, axes, true));
    Node *e = g1(g, OP_exp, shifted), *sum = g_fold(g, FOLD_sum, e, axes, true);
    if (logarithm) return g_cast(g, g2(g, OP_sub, shifted, g1(g, OP_log, sum)), dt);
    return g_cast(g, g2(g, OP_mul, e, g2(g, OP_div, g_scalar(g, x->dt, 1), sum)), dt);     /* one division for a row; 1 <= sum */
}

Node *g_mean(Graph *g, Node *x, uint32_t axes, bool keep)
{
    DType dt = x->dt, wide = dtype_wide(dt);
    Dim *count = dim_const(g, 1);
    for (int k = 0; k < x->rank; k++)
        if (axes & axis_bit(k)) count = dim_mul(g, count, x->dims[k]);
    Node *sum = g_fold(g, FOLD_sum, g_cast(g, x, wide), axes, keep);
    return g_cast(g, g2(g, OP_div, sum, g_cast(g, g_dims(g, 0, 1, &count), wide)), dt);
}

Node *g_sigmoid(Graph *g, Node *x)
{
    check_float(g, x, "sigmoid");
    return g_cast(g, g1(g, OP_sigmoid, g_cast(g, x, dtype_wide(x->dt))), x->dt);
}
