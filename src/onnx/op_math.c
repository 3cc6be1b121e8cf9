/* Elementwise operators that a formula of ops.def cannot say: mixed dtypes, any number of inputs, optional bounds, string attributes, and the
 * broadcasting of opsets 1 to 6 (`broadcast` and `axis` attributes). */
#include <string.h>
#include "onnx/onnx.h"

/* Narrow floats widened for a computation of several steps; its result is cast back with g_cast(g, y, x->dt). */
static Node *widened(Graph *g, Node *x) { return g_cast(g, x, dtype_wide(x->dt)); }

static Op prim_of(OpCall *o)
{
    static const struct { const char *onnx; Op op; } names[] = { { "Add", OP_add }, { "Sub", OP_sub }, { "Mul", OP_mul }, { "Div", OP_div },
        { "Pow", OP_pow }, { "And", OP_and }, { "Or", OP_or }, { "Xor", OP_xor }, { "Equal", OP_eq }, { "Less", OP_lt }, { "Max", OP_max },
        { "Min", OP_min }, { "Sum", OP_add }, { "Mean", OP_add } };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(names[i].onnx, o->node->op) == 0) return names[i].op;
    op_unsupported(o, "no primitive for %s", o->node->op);
}

/* Opsets 1 to 6: without broadcast=1 the shapes are equal; with it the second operand's axes are those of the first from `axis` on,
 * or its last ones. */
void op_old_binary(OpCall *o)
{
    Node *a = o->in[0], *b = o->in[1];
    bool greater = strcmp(o->node->op, "Greater") == 0;
    if (op_int(o, "broadcast", 0) && op_attr(o, "axis")) {
        int64_t at = op_int(o, "axis", 0);
        if (at < 0) at += a->rank;
        if (at < 0 || at + b->rank > a->rank)
            fail(o->cx, E_INVALID, "axis %lld: operands of rank %d and %d do not fit", (long long)op_int(o, "axis", 0), a->rank, b->rank);
        for (int k = (int)at + b->rank; k < a->rank; k++) b = g_unsqueeze(o->g, b, b->rank);
    }
    Node *in[2] = { greater ? b : a, greater ? a : b };
    o->out[0] = g_op(o->g, greater ? OP_lt : prim_of(o), 2, in);
}

/* Max, Min, Sum, Mean of any number of inputs. */
void op_variadic(OpCall *o)
{
    Op op = prim_of(o);
    DType dt = o->in[0]->dt;
    Node *y = NULL;
    for (int i = 0; i < o->nin; i++) {
        if (!o->in[i]) continue;
        Node *x = op == OP_add ? widened(o->g, o->in[i]) : o->in[i];
        y = y ? g2(o->g, op, y, x) : x;
    }
    ASSERT(y);                          /* the first input is there: the table says so */
    if (strcmp(o->node->op, "Mean") == 0) y = g2(o->g, OP_div, y, g_scalar(o->g, y->dt, o->nin));
    o->out[0] = g_cast(o->g, y, dt);
}

/* The result has the dtype of the base. */
void op_pow(OpCall *o)
{
    Graph *g = o->g;
    Node *a = o->in[0], *b = o->in[1];
    DType dt = a->dt;
    if (b->dt != dt) {
        DType wide;
        if (dtype_is_float(dt) && b->dt == DT_f64) wide = DT_f64;
        else if (dtype_is_int(dt) && dtype_is_float(b->dt)) wide = DT_f64;
        else if (dtype_is_int(dt)) wide = DT_i64;
        else wide = dtype_wide(dt);
        a = g_cast(g, a, wide);
        b = g_cast(g, b, wide);
    }
    o->out[0] = g_cast(g, g2(g, OP_pow, a, b), dt);
}

void op_mod(OpCall *o)
{
    o->out[0] = g2(o->g, op_int(o, "fmod", 0) ? OP_fmod : OP_mod, o->in[0], o->in[1]);
}

void op_bitshift(OpCall *o)
{
    const char *d = op_string(o, "direction", "");
    bool left = strcmp(d, "LEFT") == 0;
    if (!left && strcmp(d, "RIGHT")) fail(o->cx, E_FORMAT, "direction is '%s', wanted LEFT or RIGHT", d);
    o->out[0] = g2(o->g, left ? OP_shl : OP_shr, o->in[0], o->in[1]);
}

/* ---- bounds ----------------------------------------------------------------------------------------------------------------------- */

/* Bounds as attributes. Absent ones bound nothing: the default, the largest finite float, would turn infinities into it. */
void op_clip_6(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    if (op_attr(o, "min")) x = g2(g, OP_max, x, g_scalar(g, x->dt, op_float(o, "min", 0)));
    if (op_attr(o, "max")) x = g2(g, OP_min, x, g_scalar(g, x->dt, op_float(o, "max", 0)));
    o->out[0] = x;
}

static Node *bound_of(OpCall *o, int i)
{
    Node *b = o->in[i];
    if (b->rank > 1) fail(o->cx, E_INVALID, "input %d has rank %d, wanted a scalar", i, b->rank);
    return b->rank == 1 ? g_squeeze(o->g, b, 0) : b;
}

void op_clip(OpCall *o)
{
    Node *x = o->in[0];
    if (o->in[1]) x = g2(o->g, OP_max, x, bound_of(o, 1));
    if (o->in[2]) x = g2(o->g, OP_min, x, bound_of(o, 2));
    o->out[0] = x;
}

/* ---- activations -------------------------------------------------------------------------------------------------------------------- */

/* Until opset 6 a slope for each channel is a vector along axis 1; from 7 on it broadcasts from the right. */
void op_prelu(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *slope = o->in[1];
    if (o->opset < 7 && slope->rank == 1 && !dim_is(slope->dims[0], 1))
        for (int k = 2; k < x->rank; k++) slope = g_unsqueeze(g, slope, slope->rank);
    Node *wide = widened(g, x);
    Node *y = g_where(g, g2(g, OP_lt, wide, g_cast(g, g_int(g, DT_i64, 0), wide->dt)), g2(g, OP_mul, wide, widened(g, slope)), wide);
    if (y->rank != x->rank) fail(o->cx, E_INVALID, "the slope has rank %d, which does not broadcast to rank %d", slope->rank, x->rank);
    for (int k = 0; k < x->rank; k++)
        if (!dim_decide_eq(g, y->dims[k], x->dims[k], "PRelu's slope broadcasts to its input"))
            fail(o->cx, E_INVALID, "the slope %s does not broadcast to %s", dims_str(g, slope->rank, slope->dims), dims_str(g, x->rank, x->dims));
    o->out[0] = g_cast(g, y, x->dt);
}

void op_gelu(OpCall *o)
{
    const char *how = op_string(o, "approximate", "none");
    const char *text = strcmp(how, "none") == 0 ? "0.5 * x * (1 + erf(x * 0.70710678118654752440))"
        : strcmp(how, "tanh") == 0 ? "x * sigmoid(1.59576912160573071176 * (x + 0.044715 * x * x * x))" : NULL;
    /* 1 + tanh(u) is 2 sigmoid(2u), which does not cancel where u is far below 0 */
    if (!text) fail(o->cx, E_FORMAT, "approximate is '%s', wanted none or tanh", how);
    Binding b = { .name = "x", .type = 'n', .node = widened(o->g, o->in[0]) };
    o->out[0] = g_cast(o->g, expr_build(o->g, text, 1, &b), o->in[0]->dt);
}

/* Integers too: the bounds and the bias need not be whole. */
void op_shrink(OpCall *o)
{
    Node *x = o->in[0];
    Binding b[] = { { .name = "x", .type = 'n', .node = g_cast(o->g, x, dtype_is_int(x->dt) ? DT_f64 : dtype_wide(x->dt)) },
        { .name = "lambd", .type = 'f', .number = op_float(o, "lambd", 0.5) }, { .name = "bias", .type = 'f', .number = op_float(o, "bias", 0) } };
    o->out[0] = g_cast(o->g, expr_build(o->g, "where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))", 3, b), x->dt);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------------------- */

void op_isinf(OpCall *o)
{
    Graph *g = o->g;
    bool neg = op_int(o, "detect_negative", 1) != 0, pos = op_int(o, "detect_positive", 1) != 0;
    Node *x = widened(g, o->in[0]), *inf = g_scalar(g, x->dt, __builtin_inf());
    if (neg && pos) o->out[0] = g2(g, OP_eq, g1(g, OP_abs, x), inf);
    else if (neg) o->out[0] = g2(g, OP_eq, x, g1(g, OP_neg, inf));
    else if (pos) o->out[0] = g2(g, OP_eq, x, inf);
    else o->out[0] = g_expand(g, g_int(g, DT_bool, 0), x->rank, x->dims);
}

void op_where(OpCall *o)
{
    o->out[0] = g_where(o->g, o->in[0], o->in[1], o->in[2]);
}

/* ---- conversions -------------------------------------------------------------------------------------------------------------------- */

/* To the exponent-only float: from the bits of a float32, rounding as asked. Zero and negative values have no exponent: the lowest. */
static Node *cast_e8m0(OpCall *o, Node *x, bool saturate, const char *mode)
{
    Graph *g = o->g;
    Binding b[] = { { .name = "bits", .type = 'n', .node = g_bitcast(g, g1(g, OP_abs, g_cast(g, x, DT_f32)), DT_i32) } };
    const char *text;
    if (strcmp(mode, "up") == 0)
        text = "e = shr(bits, 23); m = and(bits, 8388607); where(e == 0, where(m > 4194304, e + 1, e), where(m > 0, e + 1, e))";
    else if (strcmp(mode, "down") == 0)
        text = "shr(bits, 23)";
    else if (strcmp(mode, "nearest") == 0)
        text = "e = shr(bits, 23); m = and(bits, 8388607); where(e == 0, where(m >= 6291456, e + 1, e), where(m >= 4194304, e + 1, e))";
    else
        fail(o->cx, E_FORMAT, "round_mode is '%s', wanted up, down or nearest", mode);
    Binding r[] = { b[0], { .name = "r", .type = 'n', .node = expr_build(g, text, 1, b) } };
    Node *y = expr_build(g, saturate ? "where(bits > 2139095040, 255, min(r, 254))" : "where(r >= 255 || bits < 4194304, 255, r)", 2, r);
    return g_bitcast(g, g_cast(g, y, DT_u8), DT_f8e8m0);
}

static Node *cast_to(OpCall *o, Node *x, DType to)
{
    bool saturate = op_int(o, "saturate", 1) != 0;
    if (to == DT_f8e8m0 && x->dt != to) return cast_e8m0(o, x, saturate, op_string(o, "round_mode", "up"));
    return g_cast_sat(o->g, x, to, saturate);
}

static DType dtype_attr(OpCall *o, const char *name)
{
    int64_t code = op_int(o, name, 0);
    DType to = dtype_from_onnx((int)code);
    if (!to) fail(o->cx, E_UNSUPPORTED, "%s is the ONNX element type %lld, which is not supported", name, (long long)code);
    return to;
}

/* The target as a name: opsets 1 to 5. */
void op_cast_1(OpCall *o)
{
    const OnnxAttr *t = op_attr(o, "to");
    if (!t || t->type != ATTR_string) {
        op_cast(o);
        return;
    }
    static const char *const names[] = { "", "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE", "UINT32", "UINT64" };
    DType to = DT_none;
    for (size_t i = 1; i < COUNT_OF(names); i++)
        if (strcmp(t->s, names[i]) == 0) to = dtype_from_onnx((int)i);
    if (!to) op_unsupported(o, "to is '%s', which is not supported", t->s);
    o->out[0] = g_cast(o->g, o->in[0], to);
}

void op_cast(OpCall *o)
{
    o->out[0] = cast_to(o, o->in[0], dtype_attr(o, "to"));
}

void op_castlike(OpCall *o)
{
    o->out[0] = cast_to(o, o->in[0], o->in[1]->dt);
}

void op_bitcast(OpCall *o)
{
    DType to = dtype_attr(o, "to"), from = o->in[0]->dt;
    if (dtype_bits(to) != dtype_bits(from))
        fail(o->cx, E_INVALID, "%s has %d bits, %s has %d", dtype_info[from].name, dtype_bits(from), dtype_info[to].name, dtype_bits(to));
    o->out[0] = g_bitcast(o->g, o->in[0], to);
}
