/* The primitives as operators of the domain "sinter", for graphs that are built by calls. Elementwise ones need no function of their own; those with
 * attributes have one here. A view is given by strides, which says every view of one regular source; chains of ONNX's Reshape, Transpose, Slice and so on
 * end up as one view as well. */
#include <string.h>
#include "onnx/onnx.h"

void op_prim_ew(OpCall *o)
{
    Op op = op_from_name(o->node->op);
    ASSERT(op != OP_COUNT && prim_info[op].elementwise);
    o->out[0] = g_op(o->g, op, prim_info[op].arity, o->in);
}

void op_prim_where(OpCall *o) { o->out[0] = g_where(o->g, o->in[0], o->in[1], o->in[2]); }

static DType to_dtype(OpCall *o)
{
    int64_t code = op_int(o, "to", 0);
    DType dt = code > 0 && code < INT16_MAX ? dtype_from_onnx((int)code) : DT_none;
    if (!dt) fail(o->cx, E_INVALID, "attribute 'to' is %lld, wanted a dtype", (long long)code);
    return dt;
}

void op_prim_cast(OpCall *o) { o->out[0] = g_cast_sat(o->g, o->in[0], to_dtype(o), op_int(o, "saturate", 1) != 0); }

void op_prim_bitcast(OpCall *o) { o->out[0] = g_bitcast(o->g, o->in[0], to_dtype(o)); }

void op_prim_dims(OpCall *o) { o->out[0] = g_dims(o->g, 1, o->in[0]->rank, o->in[0]->dims); }

static Dim **shape_input(OpCall *o, int i, int *rank)
{
    Dim **dims = op_sizes(o, i, rank);
    if (o->in[i]->rank != 1 || *rank > MAX_RANK) fail(o->cx, E_INVALID, "input %d is no shape: it has rank %d and %d elements", i, o->in[i]->rank, *rank);
    return dims;
}

void op_prim_iota(OpCall *o)
{
    int rank;
    Dim **dims = shape_input(o, 0, &rank);
    o->out[0] = g_iota(o->g, rank, dims, op_axis(o, op_int(o, "axis", 0), rank));
}

void op_prim_random(OpCall *o)
{
    int rank;
    Dim **dims = shape_input(o, 1, &rank);
    if (o->in[0]->dt != DT_u64 || o->in[0]->rank) fail(o->cx, E_INVALID, "the key is %s of rank %d, wanted a u64 scalar", dtype_info[o->in[0]->dt].name, o->in[0]->rank);
    o->out[0] = g_random(o->g, o->in[0], rank, dims);
}

static FoldKind fold_attr(OpCall *o)
{
    const char *kind = op_string(o, "kind", "sum");
    for (int k = 0; k < FOLD_COUNT; k++)
        if (strcmp(fold_name[k], kind) == 0) return (FoldKind)k;
    fail(o->cx, E_INVALID, "attribute 'kind' is '%s', wanted sum, prod, max, min, argmax or argmin", kind);
}

void op_prim_fold(OpCall *o)
{
    int n, rank = o->in[0]->rank;
    FoldKind kind = fold_attr(o);
    const int64_t *axes = op_ints(o, "axes", &n);
    bool keep = op_int(o, "keepdims", 1) != 0;
    uint32_t mask = 0;
    for (int i = 0; i < n; i++) mask |= axis_bit(op_axis(o, axes[i], rank));
    if (kind != FOLD_argmax && kind != FOLD_argmin) {
        o->out[0] = g_fold(o->g, kind, o->in[0], axes ? mask : (uint32_t)((1ull << rank) - 1), keep);
        return;
    }
    if (n != 1) fail(o->cx, E_INVALID, "%d axes, wanted one for %s", n, fold_name[kind]);
    o->out[0] = g_argfold(o->g, kind, o->in[0], op_axis(o, axes[0], rank), keep, op_int(o, "last", 0) != 0);
}

void op_prim_scan(OpCall *o)
{
    FoldKind kind = fold_attr(o);
    if (kind == FOLD_argmax || kind == FOLD_argmin) fail(o->cx, E_INVALID, "a scan of kind %s, wanted sum, prod, max or min", fold_name[kind]);
    const int rank = o->in[1] && o->in[1]->rank > o->in[0]->rank ? o->in[1]->rank : o->in[0]->rank;       /* of the result, whose axes are counted */
    int axis = op_axis(o, op_int(o, "axis", 0), rank);
    if (o->in[1]) {
        if (kind != FOLD_sum || op_int(o, "exclusive", 0)) fail(o->cx, E_INVALID, "a running fold with a factor is an inclusive sum");
        o->out[0] = g_recurrence(o->g, o->in[0], o->in[1], axis, op_int(o, "reverse", 0) != 0);
        return;
    }
    o->out[0] = g_scan(o->g, kind, o->in[0], axis, op_int(o, "exclusive", 0) != 0, op_int(o, "reverse", 0) != 0);
}

void op_prim_join(OpCall *o)
{
    o->out[0] = g_join(o->g, o->nin, o->in, op_axis(o, op_int(o, "axis", 0), o->in[0]->rank));
}

void op_prim_gather(OpCall *o)
{
    o->out[0] = g_gather_axis(o->g, o->in[0], o->in[1], op_axis(o, op_int(o, "axis", 0), o->in[0]->rank));
}

/* x with updates[.., i, ..] combined in at [.., index[i], ..]. */
void op_prim_scatter(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *index = o->in[1], *updates = o->in[2];
    int rank = x->rank, axis = op_axis(o, op_int(o, "axis", 0), rank), how = 0;
    const char *combine = op_string(o, "combine", "set");
    while (how < COMBINE_COUNT && strcmp(combine_name[how], combine)) how++;
    if (how == COMBINE_COUNT) fail(o->cx, E_INVALID, "attribute 'combine' is '%s', wanted set, add, mul, max or min", combine);
    if (index->rank != 1 || !dtype_is_int(index->dt) || updates->rank != rank || updates->dt != x->dt)
        fail(o->cx, E_INVALID, "the index is %s of rank %d and the updates %s of rank %d, wanted integers of rank 1 and %s of rank %d", dtype_info[index->dt].name,
            index->rank, dtype_info[updates->dt].name, updates->rank, dtype_info[x->dt].name, rank);
    Dim **idx = NEWS(o->a, Dim *, rank + 1), **one = NEWS(o->a, Dim *, rank + 1);
    for (int k = 0; k < rank; k++) {
        Dim *size = k == axis ? index->dims[0] : x->dims[k];
        if (!dim_decide_eq(g, updates->dims[k], size, "the updates of a scatter fit")) fail(o->cx, E_INVALID, "axis %d of the updates does not fit", k);
        idx[k] = k == axis ? dim_idx(g, DIM_OPERAND, x->dims[k]) : dim_idx(g, k, x->dims[k]);
        one[k] = k == axis ? index->dims[0] : dim_const(g, 1);
    }
    Node *wrapped = g_expand(g, g_reshape(g, g_wrap_index(g, index, x->dims[axis]), rank, one), rank, updates->dims);
    View v = { .nidx = rank, .idx = idx };
    o->out[0] = g_scatter(g, x, updates, 1, &wrapped, &v, (Combine)how);
}

void op_prim_view(OpCall *o)
{
    Graph *g = o->g;
    int n, m;
    const int64_t *dims = op_ints(o, "dims", &n), *strides = op_ints(o, "strides", &m);
    int64_t offset = op_int(o, "offset", 0);
    if (n != m || n > MAX_RANK) fail(o->cx, E_INVALID, "%d dims and %d strides", n, m);
    Dim *count = g_count(g, o->in[0]), *at = dim_const(g, offset), **size = NEWS(o->a, Dim *, n + 1);
    int64_t lo = offset, hi = offset;
    bool empty = false;
    for (int k = 0; k < n; k++) {
        int64_t span;
        if (dims[k] < 0) fail(o->cx, E_INVALID, "axis %d has the size %lld", k, (long long)dims[k]);
        empty |= dims[k] == 0;
        if (dims[k] && (__builtin_mul_overflow(dims[k] - 1, strides[k], &span) || __builtin_add_overflow(span < 0 ? lo : hi, span, span < 0 ? &lo : &hi)))
            fail(o->cx, E_INVALID, "the strides leave the range of 64-bit numbers");
        size[k] = dim_const(g, dims[k]);
        at = dim_add(g, at, dim_mulc(g, dim_idx(g, k, size[k]), strides[k]));
    }
    if (!empty && (lo < 0 || !dim_decide_lt(g, dim_const(g, hi), count, "a view lies inside its source")))
        fail(o->cx, E_INVALID, "the view reads elements %lld to %lld of %lld", (long long)lo, (long long)hi, (long long)dim_hint(g, count));
    Dim *idx[1] = { at };
    View v = { .nidx = 1, .idx = arena_copy(o->a, idx, sizeof idx) };
    o->out[0] = g_view(g, g_reshape(g, o->in[0], 1, &count), n, size, &v);
}
