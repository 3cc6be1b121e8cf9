/* Runs a model with the reference interpreter: the host of a trace that evaluates each segment as soon as it is finished.
 *
 * A segment's inputs are the previous segment's outputs, or the arguments. The bodies of Loop and Scan are graphs of their own, traced for the
 * shapes of each iteration; a body that stays one segment is kept and run again while its guards hold. */
#include "api/api.h"

typedef struct Interp {
    Arena *a;
    const Tensor *in;                   /* the inputs of the segment that is being built */
} Interp;

void interp_segment(Ctx *cx, Arena *a, const Graph *g, const Tensor *in, Tensor *out)
{
    int64_t *syms = NEWS(a, int64_t, g->sym.n + 1);
    const char *why = "";
    if (!host_bind(cx, a, g, in, syms, &why)) fail(cx, E_INVALID, "the graph was built for other sizes: %s", why);
    Node **node = NEWS(a, Node *, g->output.n + 1);
    for (int i = 0; i < g->output.n; i++) node[i] = g->output.at[i].node;
    (cx->opt.ready ? eval_ready : eval_nodes)(cx, a, g, in, syms, g->output.n, node, out);
}

static void interp_cut(void *self, Ctx *cx, const Cut *cut, Tensor *out)
{
    Interp *x = self;
    interp_segment(cx, x->a, cut->g, x->in, out);
    if (cut->call) {
        Tensor *in = NEWS(x->a, Tensor, cut->call->nin + 1), *result = out + cut->g->output.n;
        for (int i = 0; i < cut->call->nin; i++) in[i] = out[cut->call_in[i]];
        for (int i = 0; i < cut->call->nout; i++) result[i].dt = cut->call->out_dt[i];
        cut->call->def->eval(cx, x->a, cut->call, in, result);
    }
    x->in = out;
}

static Graph *trace_and_run(Ctx *cx, Arena *a, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, Tensor *out)
{
    Interp x = { a, args };
    TraceHost host = { &x, interp_cut, &loop_call, &scan_call };
    Graph *last = onnx_import(cx, a, m, g, ncapture, capture, args, &host);
    interp_segment(cx, a, last, x.in, out);
    return x.in == args ? last : NULL;
}

void interp_graph(Ctx *cx, Arena *a, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, Tensor *out)
{
    trace_and_run(cx, a, m, g, ncapture, capture, args, out);
}

void interp_run(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *in, Tensor *out)
{
    interp_graph(cx, a, m, m->graph, 0, NULL, in, out);
}

/* ---- bodies of Loop and Scan ------------------------------------------------------------------------------------------------------ */
typedef struct Body { const BodyCall *call; Graph *g; } Body;       /* and, if it came out as one segment, its graph */

static void body_run(void *self, Ctx *cx, Arena *a, const BodyCall *c, const Tensor *args, Tensor *out)
{
    Body *b = self;
    int64_t *syms = b->g ? NEWS(a, int64_t, b->g->sym.n + 1) : NULL;
    const char *why;
    bool same = b->g != NULL;
    for (int i = 0; same && i < b->g->input.n; i++) {
        const Node *n = b->g->input.at[i].node;
        same = n->dt == args[i].dt && n->rank == args[i].rank;
        for (int k = 0; same && k < n->rank; k++) same = !dim_is_const(n->dims[k]) || n->dims[k]->c == args[i].dims[k];
    }
    if (same && host_bind(cx, a, b->g, args, syms, &why)) interp_segment(cx, a, b->g, args, out);
    else b->g = trace_and_run(cx, a, c->model, c->body, c->ncapture, c->capture, args, out);
}


static void control_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    Body b = { call->attr, NULL };
    control_run(cx, a, call, in, out, body_run, &b);
}
const CallDef loop_call = { .name = "loop", .dynamic = true, .eval = control_eval }, scan_call = { .name = "scan", .dynamic = true, .eval = control_eval };
