/* Reductions whose row is no plain formula, running sums, and positions of extremes. */
#include <string.h>
#include "onnx/onnx.h"

/* Until opset 12 the axes from `axis` on are one axis; since 13 it is one axis of its own. */
static uint32_t softmax_axes(OpCall *o, int rank)
{
    int64_t axis = op_int(o, "axis", o->opset < 13 ? 1 : -1);
    if (o->opset >= 13) return rank == 0 ? 0 : axis_bit(op_axis(o, axis, rank));
    if (axis == rank) return 0;
    return (uint32_t)((1ull << rank) - 1) & ~(axis_bit(op_axis(o, axis, rank)) - 1);
}

static void softmax_of(OpCall *o, bool logarithm)
{
    Node *x = o->in[0], *wide = g_cast(o->g, x, dtype_wide(x->dt));
    o->out[0] = g_cast(o->g, g_softmax(o->g, wide, softmax_axes(o, x->rank), logarithm), x->dt);
}

void op_softmax(OpCall *o) { softmax_of(o, false); }
void op_logsoftmax(OpCall *o) { softmax_of(o, true); }

void op_hardmax(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *flat = x;
    int axis = 0;
    if (o->opset < 13) {
        int64_t at = op_int(o, "axis", 1);
        flat = g_flatten(g, x, at == x->rank ? x->rank : op_axis(o, at, x->rank));
        axis = 1;
    } else {
        axis = op_axis(o, op_int(o, "axis", -1), x->rank);
    }
    if (dim_decide_eq(g, flat->dims[axis], dim_const(g, 0), "an axis without elements")) {         /* then there is nothing to mark */
        o->out[0] = x;
        return;
    }
    Node *hot = g2(g, OP_eq, g_iota(g, flat->rank, flat->dims, axis), g_argfold(g, FOLD_argmax, flat, axis, true, false));
    Node *y = g_cast(g, hot, x->dt);
    o->out[0] = flat == x ? y : g_reshape(g, y, x->rank, x->dims);
}

void op_arg(OpCall *o)
{
    Node *x = o->in[0];
    FoldKind kind = strcmp(o->node->op, "ArgMax") == 0 ? FOLD_argmax : FOLD_argmin;
    o->out[0] = g_argfold(o->g, kind, x, op_axis(o, op_int(o, "axis", 0), x->rank), op_int(o, "keepdims", 1) != 0,
        op_int(o, "select_last_index", 0) != 0);
}

/* ReduceL2 of integers: the root is no integer, so it is computed in float64 and cut. */
void op_reduce_l2(OpCall *o)
{
    static const OpRow row = { .op = "ReduceL2", .domain = "", .since = 18, .inputs = "x axes?", .attrs = "keepdims=1",
        .formula = "sqrt(sum[axes](x * x))" };
    static const OpRow old = { .op = "ReduceL2", .domain = "", .since = 1, .inputs = "x", .attrs = "axes keepdims=1",
        .formula = "sqrt(sum[axes](x * x))" };
    DType dt = o->in[0]->dt;
    if (dtype_is_int(dt)) o->in[0] = g_cast(o->g, o->in[0], DT_f64);
    op_formula(o, o->opset < 18 ? &old : &row);
    o->out[0] = g_cast(o->g, o->out[0], dt);
}

/* Logarithms of integer sums, likewise. */
void op_reduce_log(OpCall *o)
{
    bool exps = strcmp(o->node->op, "ReduceLogSumExp") == 0;
    /* the greatest element is taken out, unless it is infinite: then inf - inf would be NaN */
    const char *text = exps ? "m = max[axes](x); s = where(m - m == 0, m, 0); log(sum[axes](exp(x - s))) + s" : "log(sum[axes](x))";
    OpRow row = { .op = o->node->op, .domain = "", .since = 18, .inputs = o->opset < 18 ? "x" : "x axes?",
        .attrs = o->opset < 18 ? "axes keepdims=1" : "keepdims=1", .formula = text };
    DType dt = o->in[0]->dt;
    if (dtype_is_int(dt)) o->in[0] = g_cast(o->g, o->in[0], DT_f64);
    op_formula(o, &row);
    o->out[0] = g_cast(o->g, o->out[0], dt);
}

static void scan_of(OpCall *o, FoldKind kind)
{
    int n;
    const int64_t *axis = op_values_int(o, 1, &n);
    if (n != 1) fail(o->cx, E_INVALID, "axis has %d elements, wanted 1", n);
    Node *x = o->in[0];
    o->out[0] = g_scan(o->g, kind, x, op_axis(o, axis[0], x->rank), op_int(o, "exclusive", 0) != 0, op_int(o, "reverse", 0) != 0);
}

void op_cumsum(OpCall *o) { scan_of(o, FOLD_sum); }
void op_cumprod(OpCall *o) { scan_of(o, FOLD_prod); }
