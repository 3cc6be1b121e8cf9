/* Operators that choose what is traced, bring values in, or pass them on: Constant, Identity, Dropout, If, Loop, Scan. */
#include <string.h>
#include "onnx/onnx.h"

void op_identity(OpCall *o)
{
    o->out[0] = o->in[0];
}

/* Optional values exist only where they are known: a tensor is there, an absent input is not. */
void op_optional_has(OpCall *o)
{
    o->out[0] = g_int(o->g, DT_bool, o->nin > 0 && o->in[0] != NULL);
}

/* ---- constants ----------------------------------------------------------------------------------------------------------------------- */

static Node *constant_vector(OpCall *o, DType dt, int rank, int64_t n, const void *data)
{
    Tensor *t = NEW(o->a, Tensor);
    tensor_init(o->cx, t, dt, rank, &n);
    t->data = (void *)(uintptr_t)data;
    return g_const(o->g, t);
}

static Node *constant_sparse(OpCall *o, const OnnxAttr *t)
{
    OnnxReader reader = { .cx = o->cx, .arena = o->a, .dense_left = (uint64_t)1 << 31 };
    OnnxTensor dense;
    if (!t->sparse_values || !t->sparse_indices) fail(o->cx, E_FORMAT, "the sparse value lacks values or indices");
    const char *wrong = onnx_sparse_dense(&reader, t->sparse_values, t->sparse_indices, t->sparse_rank, t->sparse_dims, &dense);
    if (wrong) fail(o->cx, E_FORMAT, "the sparse value: %s", wrong);
    return op_onnx_const(o, &dense);
}

void op_constant(OpCall *o)
{
    const OnnxAttr *t;
    int n;
    if (op_attr(o, "value")) o->out[0] = op_onnx_const(o, op_tensor(o, "value"));
    else if (op_attr(o, "value_float")) o->out[0] = g_scalar(o->g, DT_f32, op_float(o, "value_float", 0));
    else if (op_attr(o, "value_int")) o->out[0] = g_int(o->g, DT_i64, op_int(o, "value_int", 0));
    else if (op_attr(o, "value_floats")) {
        const float *v = op_floats(o, "value_floats", &n);
        o->out[0] = constant_vector(o, DT_f32, 1, n, v);
    } else if (op_attr(o, "value_ints")) {
        const int64_t *v = op_ints(o, "value_ints", &n);
        o->out[0] = constant_vector(o, DT_i64, 1, n, v);
    } else if ((t = op_attr(o, "sparse_value")) && t->type == ATTR_sparse) o->out[0] = constant_sparse(o, t);
    else if (op_attr(o, "value_string") || op_attr(o, "value_strings")) op_unsupported(o, "the value is a string");
    else fail(o->cx, E_FORMAT, "no attribute with a value");
}

/* ---- dropout --------------------------------------------------------------------------------------------------------------------------- */

/* Inference: the input itself, and a mask that keeps all. Until opset 9 the mask has the input's dtype. */
void op_dropout(OpCall *o)
{
    double ratio = 0.5;
    bool training = false;
    if (o->opset >= 12) {
        if (o->in[2]) {
            const Tensor *t = op_value(o, 2);
            training = tensor_count(t) == 1 && scalar_load(t->dt, t->data).i != 0;
        }
        if (training && o->in[1]) {
            const Tensor *t = op_value(o, 1);
            if (tensor_count(t) != 1) fail(o->cx, E_INVALID, "ratio is not a single value");
            ratio = scalar_load(t->dt, t->data).f;
        }
    }
    Graph *g = o->g;
    Node *x = o->in[0];
    if (!training || ratio == 0) {
        o->out[0] = x;
        if (op_wants(o, 1)) o->out[1] = g_expand(g, g_cast(g, g_int(g, DT_bool, 1), o->opset < 10 ? x->dt : DT_bool), x->rank, x->dims);
        return;
    }
    /* a key for each node: without a seed from its place in the graph, so that two nodes drop different elements */
    int64_t seed = op_attr(o, "seed") ? op_int(o, "seed", 0) : (int64_t)hash_bytes(o->node->out[0], strlen(o->node->out[0]), g->random_count++);
    Node *word = g_random(g, g_int(g, DT_u64, seed), x->rank, x->dims);
    Node *uniform = g2(g, OP_mul, g_cast(g, g2(g, OP_shr, word, g_int(g, DT_u64, 40)), DT_f32), g_scalar(g, DT_f32, 1.0 / (1 << 24)));
    Node *keep = g2(g, OP_le, g_scalar(g, DT_f32, ratio), uniform), *wide = g_cast(g, x, dtype_wide(x->dt));
    Node *y = g_where(g, keep, g2(g, OP_mul, wide, g_scalar(g, wide->dt, 1 / (1 - ratio))), g_scalar(g, wide->dt, 0));
    o->out[0] = g_cast(g, y, x->dt);
    o->out[1] = keep;
}

/* ---- bodies ----------------------------------------------------------------------------------------------------------------------------- */

static const OnnxGraph *body_of(OpCall *o, const char *name)
{
    const OnnxAttr *t = op_attr(o, name);
    if (!t || t->type != ATTR_graph || !t->g) fail(o->cx, E_FORMAT, "the attribute %s with a graph is missing", name);
    return t->g;
}

void op_if(OpCall *o)
{
    const Tensor *c = op_value(o, 0);
    if (c->dt != DT_bool || tensor_count(c) != 1) fail(o->cx, E_INVALID, "the condition is %s%s, wanted one bool", dtype_info[c->dt].name, shape_str(o->a, c->rank, c->dims));
    op_inline(o, body_of(o, scalar_load(DT_bool, c->data).i ? "then_branch" : "else_branch"), o->out);
}

/* The dtypes of a body's results: those of the states that went in, then those that the body declares. */
static DType *body_dtypes(OpCall *o, const OnnxGraph *body, int skip, int nstate, Node *const *state)
{
    DType *dt = NEWS(o->a, DType, o->nout + 1);
    for (int j = 0; j < o->nout; j++) dt[j] = j < nstate ? state[j]->dt : body->out[skip + j].dt;
    return dt;
}

static void body_outputs(OpCall *o, Node **result)
{
    for (int j = 0; j < o->nout; j++) o->out[j] = result[j];
}

void op_loop(OpCall *o)
{
    const OnnxGraph *body = body_of(o, "body");
    int nstate = o->nin - 2;
    if (nstate < 0) fail(o->cx, E_FORMAT, "%d inputs, wanted 2 or more", o->nin);
    if (body->nin != o->nin) fail(o->cx, E_FORMAT, "the body has %d inputs, wanted %d", body->nin, o->nin);
    if (body->nout != 1 + o->nout) fail(o->cx, E_FORMAT, "the body has %d outputs, wanted %d", body->nout, 1 + o->nout);
    if (o->nout < nstate) fail(o->cx, E_FORMAT, "%d outputs for %d carried values", o->nout, nstate);
    Node **in = NEWS(o->a, Node *, o->nin);
    in[0] = o->in[0] ? g_reshape(o->g, o->in[0], 0, NULL) : g_int(o->g, DT_i64, INT64_MAX);
    in[1] = o->in[1] ? g_reshape(o->g, o->in[1], 0, NULL) : g_int(o->g, DT_bool, 1);
    for (int i = 2; i < o->nin; i++) {
        if (!o->in[i]) fail(o->cx, E_FORMAT, "input %d is absent", i);
        in[i] = o->in[i];
    }
    BodyCall b = { .nstate = nstate };
    body_outputs(o, op_body_call(o, op_host(o)->loop, body, &b, o->nin, in, o->nout, body_dtypes(o, body, 1, nstate, in + 2)));
}

static const int64_t *scan_list(OpCall *o, const char *name, int want)
{
    int n;
    const int64_t *v = op_ints(o, name, &n);
    if (v && n != want) fail(o->cx, E_FORMAT, "%s has %d elements, wanted %d", name, n, want);
    return v ? v : NEWS(o->a, int64_t, want + 1);
}

/* Opset 8 has a leading input with sequence lengths and a leading batch axis; its host runs the body for each element of the batch. */
void op_scan(OpCall *o)
{
    const OnnxGraph *body = body_of(o, "body");
    int first = o->opset < 9, nscan = (int)op_int(o, "num_scan_inputs", 0), n = o->nin - first, nstate = n - nscan;
    if (first && o->in[0]) op_unsupported(o, "sequence_lens is given");
    if (nscan < 1 || nstate < 0) fail(o->cx, E_FORMAT, "num_scan_inputs is %d of %d inputs", nscan, n);
    if (body->nin != n || body->nout != o->nout || o->nout < nstate)
        fail(o->cx, E_FORMAT, "the body has %d inputs and %d outputs, wanted %d and %d", body->nin, body->nout, n, o->nout);
    for (int i = 0; i < n; i++)
        if (!o->in[first + i]) fail(o->cx, E_FORMAT, "input %d is absent", first + i);
    int nout = o->nout - nstate;
    BodyCall b = { .nstate = nstate, .nscan_in = nscan };
    b.in_axes = scan_list(o, "scan_input_axes", nscan);
    b.in_dirs = scan_list(o, first ? "directions" : "scan_input_directions", nscan);
    b.out_axes = scan_list(o, "scan_output_axes", nout);
    b.out_dirs = scan_list(o, "scan_output_directions", nout);
    Node **in = NEWS(o->a, Node *, n);
    for (int i = 0; i < n; i++) in[i] = o->in[first + i];
    body_outputs(o, op_body_call(o, op_host(o)->scan, body, &b, n, in, o->nout, body_dtypes(o, body, 0, nstate, in)));
}
