/* A model by calls: each call appends to lists in the arena of an OnnxModel, so that a graph made by calls and one that was read from a file go the same way.
 *
 * A value is the number of its name; values start at 1. The first failure is kept in the graph, and everything after it does nothing. */
#include "api/api.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEWEST_OPSET = 28, MICROSOFT_OPSET = 1, SINTER_OPSET = 1 };

struct sn_graph {
    OnnxModel *m;
    Arena *a;
    Status code;                        /* the first failure */
    char text[1024];
    VEC(const char *) name;             /* of value k + 1 */
    VEC(OnnxValue) in, out;
    VEC(OnnxNode) node;
    VEC(OnnxTensor) init;
    MapStr *names;
};

typedef struct GraphCall {
    sn_graph *g;
    const char *name, *op, *attrs;
    sn_dtype dtype;
    int rank;
    const int64_t *dims;
    const char *const *symbols;
    const sn_tensor *tensor;
    int nin, nout;
    const sn_value *in;
    sn_value *out, value;
    sn_model *made;
} GraphCall;

/* ---- making and ending ---------------------------------------------------------------------------------------------------------------- */

static void graph_new_guarded(Ctx *cx, void *arg)
{
    GraphCall *c = arg;
    OnnxModel *m = onnx_new(cx);
    c->g = NEW(m->arena, sn_graph);
    *c->g = (sn_graph){ .m = m, .a = m->arena, .names = mapstr_new(m->arena) };
}

sn_status sn_graph_new(sn_graph **graph, sn_error *err)
{
    Ctx cx;
    ctx_quiet(&cx);
    GraphCall c = { 0 };
    Status st = guard_call(&cx, graph_new_guarded, &c);
    if (st == E_OK) {
        arena_bind(c.g->a, NULL);
        *graph = c.g;
    }
    return api_report(&cx, st, err);
}

void sn_graph_free(sn_graph *graph)
{
    if (graph) onnx_close(graph->m);
}

/* Runs one call unless an earlier one failed, and keeps its failure. */
static sn_status graph_call(GraphCall *c, void (*fn)(Ctx *, void *))
{
    sn_graph *g = c->g;
    if (!g) return SN_INVALID;
    if (g->code != E_OK) return (sn_status)g->code;
    Ctx cx;
    ctx_quiet(&cx);
    arena_bind(g->a, &cx);
    Status st = guard_call(&cx, fn, c);
    arena_bind(g->a, NULL);
    if (st != E_OK) {
        g->code = st;
        snprintf(g->text, sizeof g->text, "%.1023s", cx.text);
    }
    return (sn_status)st;
}

/* ---- values ---------------------------------------------------------------------------------------------------------------------------- */

static sn_value value_new(Ctx *cx, sn_graph *g, const char *name)
{
    void **at = mapstr_at(g->names, name);
    if (*at) fail(cx, E_INVALID, "the name '%s' is given twice", name);
    *at = g;
    vec_push(g->a, &g->name, name);
    return (sn_value)g->name.n;
}

/* A name of the library's own: no caller can give one that has a space in front. */
static const char *value_name(sn_graph *g) { return arena_fmt(g->a, " %d", g->name.n + 1); }

static const char *value_get(Ctx *cx, sn_graph *g, sn_value v, const char *what, int k)
{
    if (v < 1 || v > g->name.n) fail(cx, E_INVALID, "%s %d is the value %d, which is none of this graph's %d", what, k, v, g->name.n);
    return g->name.at[v - 1];
}

static void input_guarded(Ctx *cx, void *arg)
{
    GraphCall *c = arg;
    sn_graph *g = c->g;
    if (!c->name || !c->name[0]) fail(cx, E_INVALID, "an input needs a name");
    if (!dtype_from_onnx((int)c->dtype)) fail(cx, E_INVALID, "input '%s': the dtype is %d, which is none", c->name, (int)c->dtype);
    if (c->rank < 0 || c->rank > MAX_RANK) fail(cx, E_INVALID, "input '%s' has rank %d, wanted 0 to %d", c->name, c->rank, MAX_RANK);
    if (c->rank && !c->dims) fail(cx, E_INVALID, "input '%s': dims is NULL", c->name);
    OnnxDim *d = NEWS(g->a, OnnxDim, c->rank + 1);
    for (int k = 0; k < c->rank; k++) {
        if (c->dims[k] < -1) fail(cx, E_INVALID, "input '%s': axis %d has the size %lld", c->name, k, (long long)c->dims[k]);
        d[k].value = c->dims[k];
        if (c->dims[k] < 0 && c->symbols && c->symbols[k]) d[k].sym = arena_str(g->a, c->symbols[k]);
    }
    const char *name = arena_str(g->a, c->name);
    c->value = value_new(cx, g, name);
    OnnxValue v = { .name = name, .kind = 't', .dt = dtype_from_onnx((int)c->dtype), .onnx_dt = (int)c->dtype, .rank = c->rank, .dims = d };
    vec_push(g->a, &g->in, v);
}

sn_status sn_graph_input(sn_graph *graph, const char *name, sn_dtype dtype, int rank, const int64_t *dims, const char *const *symbols, sn_value *value)
{
    GraphCall c = { .g = graph, .name = name, .dtype = dtype, .rank = rank, .dims = dims, .symbols = symbols };
    sn_status st = graph_call(&c, input_guarded);
    if (value) *value = st == SN_OK ? c.value : 0;
    return st;
}

static void const_guarded(Ctx *cx, void *arg)
{
    GraphCall *c = arg;
    sn_graph *g = c->g;
    if (!c->tensor) fail(cx, E_INVALID, "tensor is NULL");
    Tensor t = tensor_of_public(cx, c->tensor, "constant", "");
    if (!t.data && tensor_count(&t)) fail(cx, E_INVALID, "the constant has no data");
    OnnxTensor o = { .name = value_name(g), .dt = t.dt, .onnx_dt = dtype_info[t.dt].onnx, .rank = t.rank, .count = tensor_count(&t) };
    o.dims = arena_copy(g->a, t.dims, (size_t)t.rank * sizeof *t.dims);
    void *data = arena_alloc(g->a, tensor_bytes(&t));
    tensor_copy_to(&t, data, NULL);
    o.data = data;
    c->value = value_new(cx, g, o.name);
    vec_push(g->a, &g->init, o);
}

sn_status sn_graph_const(sn_graph *graph, const sn_tensor *tensor, sn_value *value)
{
    GraphCall c = { .g = graph, .tensor = tensor };
    sn_status st = graph_call(&c, const_guarded);
    if (value) *value = st == SN_OK ? c.value : 0;
    return st;
}

/* ---- attributes: words "name=value" ------------------------------------------------------------------------------------------------------ */

typedef struct AttrText { Ctx *cx; Arena *a; const char *all, *p; } AttrText;

_Noreturn static void attr_fail(const AttrText *t, const char *what)
{
    fail(t->cx, E_FORMAT, "attributes \"%s\", byte %d: %s", t->all, (int)(t->p - t->all), what);
}

typedef struct Number { bool real; double f; int64_t i; } Number;

/* The end of a number's text: 12, -1.5e3, inf, -inf, nan. NULL when there is none. */
static const char *read_number(const char *p, Number *n)
{
    const char *q = p + (*p == '-' || *p == '+');
    char *end;
    bool word = strncmp(q, "inf", 3) == 0 || strncmp(q, "nan", 3) == 0;
    if (!word && !isdigit((unsigned char)*q) && *q != '.') return NULL;
    n->f = strtod(p, &end);
    if (end == p || isalpha((unsigned char)*end) || *end == '_') return NULL;
    n->real = word;
    for (const char *s = p; s < end; s++) n->real |= strchr(".eEpPxX", *s) != NULL;
    if (!n->real) n->i = strtoll(p, NULL, 10);
    return end;
}

static void attr_list(AttrText *t, OnnxAttr *x)
{
    typedef VEC(int64_t) Ints;
    typedef VEC(float) Floats;
    Ints ints = { 0 };
    Floats floats = { 0 };
    bool real = false;
    for (t->p++;;) {
        while (*t->p == ' ' || *t->p == ',') t->p++;
        if (*t->p == ']') break;
        Number n = { 0 };
        const char *end = read_number(t->p, &n);
        if (!end) attr_fail(t, "wanted a number or ']'");
        t->p = end;
        real |= n.real;
        vec_push(t->a, &ints, n.i);
        vec_push(t->a, &floats, (float)n.f);
    }
    t->p++;
    x->type = real ? ATTR_floats : ATTR_ints;
    x->n = ints.n;
    x->ints = ints.at;
    x->floats = floats.at;
}

static void attr_value(AttrText *t, OnnxAttr *x)
{
    Number n = { 0 };
    const char *end;
    if (*t->p == '[') {
        attr_list(t, x);
    } else if (*t->p == '\'' || *t->p == '"') {
        char quote = *t->p++;
        end = strchr(t->p, quote);
        if (!end) attr_fail(t, "the text does not end");
        x->type = ATTR_string;
        x->s_len = (size_t)(end - t->p);
        x->s = arena_fmt(t->a, "%.*s", (int)x->s_len, t->p);
        t->p = end + 1;
    } else if ((end = read_number(t->p, &n))) {
        x->type = n.real ? ATTR_float : ATTR_int;
        x->f = (float)n.f;
        x->i = n.i;
        t->p = end;
    } else {
        const char *from = t->p;
        if (!isalpha((unsigned char)*t->p) && *t->p != '_') attr_fail(t, "wanted a value");
        while (isalnum((unsigned char)*t->p) || *t->p == '_') t->p++;
        const char *word = arena_fmt(t->a, "%.*s", (int)(t->p - from), from);
        DType dt = dtype_from_name(word);
        x->type = dt ? ATTR_int : ATTR_string;
        x->i = dt ? dtype_info[dt].onnx : 0;
        x->s = word;
        x->s_len = strlen(word);
    }
    if (*t->p && *t->p != ' ') attr_fail(t, "wanted a space after a value");
}

static void read_attrs(Ctx *cx, sn_graph *g, const char *text, OnnxNode *node)
{
    AttrText t = { cx, g->a, text ? text : "", text ? text : "" };
    VEC(OnnxAttr) list = { 0 };
    for (;;) {
        while (*t.p == ' ') t.p++;
        if (!*t.p) break;
        const char *from = t.p;
        while (isalnum((unsigned char)*t.p) || *t.p == '_') t.p++;
        if (t.p == from || *t.p != '=') attr_fail(&t, "wanted name=value");
        OnnxAttr x = { .name = arena_fmt(g->a, "%.*s", (int)(t.p - from), from) };
        for (int i = 0; i < list.n; i++)
            if (strcmp(list.at[i].name, x.name) == 0) attr_fail(&t, "this attribute is given twice");
        t.p++;
        attr_value(&t, &x);
        vec_push(g->a, &list, x);
    }
    node->attr = list.at;
    node->nattr = list.n;
}

/* ---- operators and outputs ----------------------------------------------------------------------------------------------------------------- */

static void op_guarded(Ctx *cx, void *arg)
{
    GraphCall *c = arg;
    sn_graph *g = c->g;
    if (!c->op || !c->op[0]) fail(cx, E_INVALID, "the operator has no name");
    if (c->nin < 0 || c->nout < 0 || (c->nin && !c->in) || (c->nout && !c->out)) fail(cx, E_INVALID, "%s: %d inputs and %d outputs", c->op, c->nin, c->nout);
    const char *dot = strrchr(c->op, '.');
    OnnxNode n = { .op = arena_str(g->a, dot ? dot + 1 : c->op), .domain = dot ? arena_fmt(g->a, "%.*s", (int)(dot - c->op), c->op) : "", .overload = "" };
    n.domain = onnx_domain(n.domain);
    n.name = arena_fmt(g->a, "%s_%d", n.op, g->node.n);
    Note note;
    note_push(cx, &note, "node", n.name, n.op);
    n.nin = c->nin;
    n.nout = c->nout;
    n.in = NEWS(g->a, const char *, c->nin + 1);
    n.out = NEWS(g->a, const char *, c->nout + 1);
    for (int i = 0; i < c->nin; i++) n.in[i] = c->in[i] ? value_get(cx, g, c->in[i], "input", i) : "";
    read_attrs(cx, g, c->attrs, &n);
    int first = g->name.n;
    for (int j = 0; j < c->nout; j++) {
        n.out[j] = value_name(g);
        value_new(cx, g, n.out[j]);
    }
    vec_push(g->a, &g->node, n);
    for (int j = 0; j < c->nout; j++) c->out[j] = (sn_value)(first + 1 + j);
    note_pop(cx);
}

sn_status sn_graph_op(sn_graph *graph, const char *op, const char *attrs, int nin, const sn_value *in, int nout, sn_value *out)
{
    GraphCall c = { .g = graph, .op = op, .attrs = attrs, .nin = nin, .in = in, .nout = nout, .out = out };
    sn_status st = graph_call(&c, op_guarded);
    for (int j = 0; out && j < nout && st != SN_OK; j++) out[j] = 0;
    return st;
}

/* An output is a name of its own: the same value may be several outputs. */
static void output_guarded(Ctx *cx, void *arg)
{
    GraphCall *c = arg;
    sn_graph *g = c->g;
    if (!c->name || !c->name[0]) fail(cx, E_INVALID, "an output needs a name");
    const char *from = value_get(cx, g, c->value, "output", g->out.n), *name = arena_str(g->a, c->name);
    value_new(cx, g, name);
    OnnxNode n = { .name = arena_fmt(g->a, "output_%d", g->out.n), .op = "Identity", .domain = "", .overload = "", .nin = 1, .nout = 1 };
    n.in = NEWS(g->a, const char *, 1);
    n.out = NEWS(g->a, const char *, 1);
    n.in[0] = from;
    n.out[0] = name;
    vec_push(g->a, &g->node, n);
    OnnxValue v = { .name = name, .kind = 't', .rank = -1 };
    vec_push(g->a, &g->out, v);
}

sn_status sn_graph_output(sn_graph *graph, const char *name, sn_value value)
{
    GraphCall c = { .g = graph, .name = name, .value = value };
    return graph_call(&c, output_guarded);
}

/* An output's dtype and sizes are not declared; kind 't' with DT_none says so. */
static void finish_guarded(Ctx *cx, void *arg)
{
    GraphCall *c = arg;
    sn_graph *g = c->g;
    OnnxModel *m = g->m;
    if (!g->out.n) fail(cx, E_INVALID, "the graph has no output");
    m->path = "<graph>";
    m->by_calls = m->by_hand = true;
    m->ir_version = 10;
    m->producer = "sinter";
    m->producer_version = SINTER_VERSION;
    m->domain = m->doc = "";
    OnnxOpset *opset = NEWS(g->a, OnnxOpset, 3);
    opset[0] = (OnnxOpset){ "", NEWEST_OPSET };
    opset[1] = (OnnxOpset){ "com.microsoft", MICROSOFT_OPSET };
    opset[2] = (OnnxOpset){ "sinter", SINTER_OPSET };
    m->opset = opset;
    m->nopset = 3;
    m->graph = NEW(g->a, OnnxGraph);
    *m->graph = (OnnxGraph){ .name = "graph", .nnode = g->node.n, .ninit = g->init.n, .nin = g->in.n, .nout = g->out.n, .node = g->node.at,
                             .init = g->init.at, .in = g->in.at, .out = g->out.at };
    c->made = model_wrap(m);
}

sn_status sn_graph_finish(sn_graph *graph, sn_model **model, sn_error *err)
{
    GraphCall c = { .g = graph };
    sn_status st = graph_call(&c, finish_guarded);
    if (err) {
        err->code = st;
        snprintf(err->text, sizeof err->text, "%s", st == SN_OK ? "" : graph ? graph->text : "graph is NULL");
    }
    if (st == SN_OK) *model = c.made;
    else sn_graph_free(graph);
    return st;
}
