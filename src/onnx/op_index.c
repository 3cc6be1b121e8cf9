/* Operators that pick places by index: Gather, GatherElements, GatherND, Scatter, ScatterElements, ScatterND, ReverseSequence,
 * and the losses that read one class for each sample.
 *
 * An index tensor becomes one i64 operand for each indexed axis, made non-negative, laid along the result's (or the updates') axes. Scatters
 * combine in the row-major order of the updates, so equal indices have one meaning: without a reduction the last one wins. Sums and products
 * of 16-bit floats are formed in float32 and rounded once. */
#include "onnx/onnx.h"
#include <string.h>

static void index_check(OpCall *o, const Node *index)
{
    if (!dtype_is_int(index->dt))
        fail(o->cx, E_INVALID, "an index of dtype %s; an integer is wanted", dtype_info[index->dt].name);
}

void op_gather(OpCall *o)
{
    Node *x = o->in[0];
    index_check(o, o->in[1]);
    o->out[0] = g_gather_axis(o->g, x, o->in[1], op_axis(o, op_int(o, "axis", 0), x->rank));
}

/* An index tensor that is walked beside the data may not be longer on the other axes. */
static void beside_check(OpCall *o, const Node *x, const Node *index, int axis)
{
    for (int k = 0; k < x->rank; k++)
        if (k != axis && dim_decide_lt(o->g, x->dims[k], index->dims[k], "indices lie inside the data"))
            fail(o->cx, E_INVALID, "axis %d of the indices has %lld places, of the data %lld", k, (long long)dim_hint(o->g, index->dims[k]),
                 (long long)dim_hint(o->g, x->dims[k]));
}

/* out[i] = x[i, but index[i] at axis] */
void op_gather_elements(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *index = o->in[1];
    int axis = op_axis(o, op_int(o, "axis", 0), x->rank);
    index_check(o, index);
    if (index->rank != x->rank)
        fail(o->cx, E_INVALID, "an index of rank %d for data of rank %d; equal ranks are wanted", index->rank, x->rank);
    beside_check(o, x, index, axis);
    Dim *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) idx[k] = k == axis ? dim_idx(g, DIM_OPERAND, x->dims[k]) : dim_idx(g, k, index->dims[k]);
    Node *at = g_wrap_index(g, index, x->dims[axis]);
    o->out[0] = g_gather(g, x, 1, &at, index->rank, index->dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* The components of index tuples [..., n] as n operands over the leading axes, each followed by `trailing` axes of size 1. They index the
 * axes first, first+1 ... of x. */
static int index_tuple(OpCall *o, const Node *x, int first, Node *index, int trailing, Node **at)
{
    Graph *g = o->g;
    index_check(o, index);
    if (index->rank < 1) fail(o->cx, E_INVALID, "the indices have rank 0; at least 1 is wanted");
    int64_t n = dim_decide_value(g, index->dims[index->rank - 1], "the length of index tuples");
    if (n < 0 || n > x->rank - first)
        fail(o->cx, E_INVALID, "index tuples of length %lld for data of rank %d", (long long)n, x->rank);
    Dim *dims[MAX_RANK] = { NULL };
    int lead = index->rank - 1;
    if (lead + trailing > MAX_RANK)
        fail(o->cx, E_INVALID, "the result's rank is %d; at most %d is possible", lead + trailing, MAX_RANK);
    for (int k = 0; k < lead + trailing; k++) dims[k] = k < lead ? index->dims[k] : dim_const(g, 1);
    for (int j = 0; j < n; j++) {
        Node *part = g_squeeze(g, g_slice(g, index, lead, dim_const(g, j), dim_const(g, 1), 1), lead);
        at[j] = g_reshape(g, g_wrap_index(g, part, x->dims[first + j]), lead + trailing, dims);
    }
    return (int)n;
}

void op_gather_nd(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *index = o->in[1], *at[MAX_RANK];
    int batch = (int)op_int(o, "batch_dims", 0);
    if (batch < 0 || batch >= x->rank + (x->rank == 0) || batch >= index->rank)
        fail(o->cx, E_INVALID, "batch_dims is %d for ranks %d and %d", batch, x->rank, index->rank);
    int64_t known = dim_decide_value(g, index->dims[index->rank - 1], "the length of index tuples");
    if (known < 0 || known > x->rank - batch)
        fail(o->cx, E_INVALID, "index tuples of length %lld for data of rank %d", (long long)known, x->rank);
    int n = (int)known, lead = index->rank - 1, trailing = x->rank - batch - n, rank = lead + trailing;
    index_tuple(o, x, batch, index, trailing, at);
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < lead; k++) {
        dims[k] = index->dims[k];
        if (k < batch) op_size_is(o, dims[k], x->dims[k], "a batch axis of the indices: the data's");
    }
    for (int k = 0; k < trailing; k++) dims[lead + k] = x->dims[batch + n + k];
    for (int k = 0; k < x->rank; k++)
        idx[k] = k < batch ? dim_idx(g, k, dims[k]) : k < batch + n ? dim_idx(g, DIM_OPERAND + k - batch, x->dims[k])
                                                                    : dim_idx(g, lead + k - batch - n, x->dims[k]);
    if (n == 0) o->out[0] = g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
    else o->out[0] = g_gather(g, x, n, at, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* ---- scatters --------------------------------------------------------------------------------------------------------------- */

static Combine scatter_how(OpCall *o)
{
    static const struct { const char *name; Combine how; } names[] = {
        { "none", COMBINE_set }, { "add", COMBINE_add }, { "mul", COMBINE_mul }, { "max", COMBINE_max }, { "min", COMBINE_min } };
    const char *s = op_string(o, "reduction", "none");
    for (size_t k = 0; k < COUNT_OF(names); k++)
        if (!strcmp(s, names[k].name)) return names[k].how;
    fail(o->cx, E_INVALID, "the reduction is '%s'; none, add, mul, max or min is wanted", s);
}

static Node *scatter_combine(OpCall *o, Node *x, Node *updates, int n, Node *const *at, const View *v)
{
    Graph *g = o->g;
    Combine how = scatter_how(o);
    DType dt = x->dt, wide = how == COMBINE_add || how == COMBINE_mul ? dtype_wide(dt) : dt;
    if (updates->dt != dt)
        fail(o->cx, E_INVALID, "updates of dtype %s for data of %s", dtype_info[updates->dt].name, dtype_info[dt].name);
    return g_cast(g, g_scatter(g, g_cast(g, x, wide), g_cast(g, updates, wide), n, at, v, how), dt);
}

void op_scatter_elements(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *index = o->in[1], *updates = o->in[2];
    int axis = op_axis(o, op_int(o, "axis", 0), x->rank);
    index_check(o, index);
    if (index->rank != x->rank || updates->rank != x->rank)
        fail(o->cx, E_INVALID, "indices of rank %d and updates of rank %d for data of rank %d; equal ranks are wanted", index->rank, updates->rank, x->rank);
    Dim *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) {
        op_size_is(o, updates->dims[k], index->dims[k], "an axis of the updates: the indices'");
        idx[k] = k == axis ? dim_idx(g, DIM_OPERAND, x->dims[k]) : dim_idx(g, k, updates->dims[k]);
    }
    beside_check(o, x, index, axis);
    Node *at = g_wrap_index(g, index, x->dims[axis]);
    o->out[0] = scatter_combine(o, x, updates, 1, &at, &(View){ .nidx = x->rank, .idx = idx });
}

void op_scatter_nd(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *index = o->in[1], *updates = o->in[2], *at[MAX_RANK];
    int lead = index->rank - 1;
    int trailing = updates->rank - lead;
    if (lead < 0 || trailing < 0)
        fail(o->cx, E_INVALID, "updates of rank %d for indices of rank %d", updates->rank, index->rank);
    int n = index_tuple(o, x, 0, index, trailing, at);
    if (n + trailing != x->rank)
        fail(o->cx, E_INVALID, "updates have rank %d; %d is wanted", updates->rank, lead + x->rank - n);
    Dim *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) idx[k] = k < n ? dim_idx(g, DIM_OPERAND + k, x->dims[k]) : dim_idx(g, lead + k - n, x->dims[k]);
    for (int k = 0; k < updates->rank; k++) {
        Dim *want = k < lead ? index->dims[k] : x->dims[n + k - lead];
        op_size_is(o, updates->dims[k], want, "an axis of the updates: the indices', then the data's");
    }
    o->out[0] = scatter_combine(o, x, updates, n, at, &(View){ .nidx = x->rank, .idx = idx });
}

/* ---- sequences ----------------------------------------------------------------------------------------------------------------- */

void op_reverse_sequence(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *lens = o->in[1];
    int batch = op_axis(o, op_int(o, "batch_axis", 1), x->rank), time = op_axis(o, op_int(o, "time_axis", 0), x->rank);
    if (lens->rank != 1 || batch == time)
        fail(o->cx, E_INVALID, "lengths of rank %d, batch axis %d, time axis %d", lens->rank, batch, time);
    op_size_is(o, lens->dims[0], x->dims[batch], "lengths: one for each sequence");
    Node *t = axis_node(g, iota_node(g, x->dims[time]), x->rank, time);
    Node *len = axis_node(g, g_cast(g, lens, DT_i64), x->rank, batch);
    Node *back = g2(g, OP_sub, g2(g, OP_sub, len, g_int(g, DT_i64, 1)), t);
    Node *at = g_where(g, g2(g, OP_lt, t, len), back, t);
    Dim *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < x->rank; k++) idx[k] = dim_idx(g, k == time ? DIM_OPERAND : k, x->dims[k]);
    o->out[0] = g_gather(g, x, 1, &at, x->rank, x->dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* ---- losses -------------------------------------------------------------------------------------------------------------------- */

/* input [N,C,d...] (log-probabilities), target [N,d...], weight [C] or NULL. The loss of a sample is -weight[t] * input[n,t,d]; an ignored
 * target weighs nothing; the mean divides by the sum of the weights. */
static Node *class_loss(OpCall *o, Node *input, Node *target, Node *weight)
{
    Graph *g = o->g;
    int rank = input->rank - 1;
    if (rank < 1 || target->rank != rank)
        fail(o->cx, E_INVALID, "input of rank %d and target of rank %d; ranks r+1 and r are wanted", input->rank, target->rank);
    if (!dtype_is_int(target->dt))
        fail(o->cx, E_INVALID, "a target of dtype %s; an integer is wanted", dtype_info[target->dt].name);
    const char *how = op_string(o, "reduction", "mean");
    Node *t = g_cast(g, target, DT_i64), *used = NULL;
    if (op_attr(o, "ignore_index")) {
        Node *skip = g2(g, OP_eq, t, g_int(g, DT_i64, op_int(o, "ignore_index", 0)));
        used = g1(g, OP_not, skip);
        t = g_where(g, skip, g_int(g, DT_i64, 0), t);
    }
    Dim *idx[MAX_RANK] = { NULL };
    idx[0] = dim_idx(g, 0, input->dims[0]);
    idx[1] = dim_idx(g, DIM_OPERAND, input->dims[1]);
    for (int k = 1; k < rank; k++) idx[k + 1] = dim_idx(g, k, input->dims[k + 1]);
    for (int k = 0; k < rank; k++) {
        Dim *want = input->dims[k ? k + 1 : 0];
        op_size_is(o, target->dims[k], want, "an axis of the target: the input's");
    }
    Node *loss = g1(g, OP_neg, g_gather(g, input, 1, &t, rank, target->dims, &(View){ .nidx = input->rank, .idx = idx }));
    Node *share = weight ? g_gather_axis(g, weight, t, 0) : NULL, *zero = g_scalar(g, input->dt, 0);
    if (share) loss = g2(g, OP_mul, loss, share);
    if (used) {
        share = g_where(g, used, share ? share : g_scalar(g, input->dt, 1), zero);
        loss = g_where(g, used, loss, zero);
    }
    uint32_t all = axis_bit(rank) - 1;
    if (!strcmp(how, "none")) return loss;
    if (!strcmp(how, "sum")) return g_fold(g, FOLD_sum, loss, all, false);
    if (strcmp(how, "mean")) fail(o->cx, E_INVALID, "the reduction is '%s'; none, sum or mean is wanted", how);
    if (!share) return g_mean(g, loss, all, false);
    return g2(g, OP_div, g_fold(g, FOLD_sum, loss, all, false), g_fold(g, FOLD_sum, share, all, false));
}

void op_nll_loss(OpCall *o)
{
    DType dt = o->in[0]->dt, wide = dtype_wide(dt);
    Node *weight = o->nin > 2 && o->in[2] ? g_cast(o->g, o->in[2], wide) : NULL;
    o->out[0] = g_cast(o->g, class_loss(o, g_cast(o->g, o->in[0], wide), o->in[1], weight), dt);
}

void op_softmax_cross_entropy(OpCall *o)
{
    Graph *g = o->g;
    DType dt = o->in[0]->dt, wide = dtype_wide(dt);
    Node *weight = o->nin > 2 && o->in[2] ? g_cast(g, o->in[2], wide) : NULL;
    if (o->in[0]->rank < 2) fail(o->cx, E_INVALID, "scores of rank %d; at least 2 is wanted", o->in[0]->rank);
    Node *logp = g_softmax(g, g_cast(g, o->in[0], wide), axis_bit(1), true);
    o->out[0] = g_cast(g, class_loss(o, logp, o->in[1], weight), dt);
    if (op_wants(o, 1)) o->out[1] = g_cast(g, logp, dt);
}
