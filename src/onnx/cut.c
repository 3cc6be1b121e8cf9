/* Cuts of the trace: the graph ends here, because what follows depends on data that only a run gives.
 *
 * The values still needed (of names with a later use, and of the operators being imported) become outputs, the host runs the graph, and a new one begins whose
 * inputs they are, with the values that came out as examples. Constants, and what depends on constants only, are not passed along but made again; sizes that
 * are symbols get fresh symbols, equal ones the same; a vector of sizes is made again if all of them are sizes of values that cross. */
#include "onnx/onnx.h"

enum { AGAIN_DEPTH = 64 };

typedef struct Crossing {               /* what passes from the old graph to the new one */
    int *place;                         /* by id of an old node: its output number, or NEVER */
    Node **to;                          /* by id of an old node: the new node */
    char *again;                        /* by id of an old node: 'y' made again since it depends on constants only, 'n' not, 0 not looked at */
    VEC(Node *) out;
    VEC(Node *) sizes;                  /* dims nodes: made again if their sizes are known in the new graph */
} Crossing;

/* Whether n depends on constants only, and so stays known in the next graph: a transposed weight, say. */
static bool made_again(Crossing *c, const Node *n, int depth)
{
    if (n->op == OP_const) return true;
    if (c->again[n->id]) return c->again[n->id] == 'y';
    bool known = depth < AGAIN_DEPTH && n->op != OP_input && n->op != OP_random && n->op != OP_call && n->op != OP_part;
    for (int k = 0; known && k < n->rank; k++) known = dim_is_const(n->dims[k]);
    for (int64_t k = 0; known && n->op == OP_dims && k < (n->rank ? n->dims[0]->c : 1); k++) known = dim_is_const(n->size[k]);
    if (n->op == OP_view || n->op == OP_gather || n->op == OP_scatter) known = known && !view_open(&n->view);      /* and so their variables' extents, sizes of n and operands */
    for (int k = 0; known && k < n->nin; k++) known = made_again(c, n->in[k], depth + 1);
    c->again[n->id] = known ? 'y' : 'n';
    return known;
}

static Dim *dim_again(Graph *g, const Dim *d)
{
    switch (d->kind) {
    case DIM_sum: {
        Dim *sum = dim_const(g, d->c);
        for (int k = 0; k < d->n; k++) {
            Dim *product = dim_const(g, d->term[k].coef);
            for (int f = 0; f < d->term[k].n; f++) product = dim_mul(g, product, dim_again(g, d->term[k].factor[f]));
            sum = dim_add(g, sum, product);
        }
        return sum;
    }
    case DIM_idx: return dim_idx(g, d->var, dim_again(g, d->a));
    case DIM_div: return dim_div(g, dim_again(g, d->a), dim_again(g, d->b));
    case DIM_mod: return dim_mod(g, dim_again(g, d->a), dim_again(g, d->b));
    case DIM_min: return dim_min(g, dim_again(g, d->a), dim_again(g, d->b));
    case DIM_max: return dim_max(g, dim_again(g, d->a), dim_again(g, d->b));
    case DIM_sym: break;
    }
    ASSERT(!"a symbol in a constant's size");
    return NULL;
}

static Dim **dims_again(Import *im, int n, Dim *const *d)
{
    Dim **v = NEWS(im->a, Dim *, n + 1);
    for (int k = 0; k < n; k++) v[k] = dim_again(im->g, d[k]);
    return v;
}

static Node *make_again(Import *im, Crossing *c, const Node *n)
{
    if (n->op == OP_const) return g_const(im->g, n->tensor);
    if (c->to[n->id]) return c->to[n->id];
    Node p = *n, **in = NEWS(im->a, Node *, n->nin + 1);
    for (int k = 0; k < n->nin; k++) in[k] = make_again(im, c, n->in[k]);
    p.in = in;
    p.dims = dims_again(im, n->rank, n->dims);
    if (n->op == OP_dims) p.size = dims_again(im, n->rank ? (int)n->dims[0]->c : 1, n->size);
    if (n->op == OP_view || n->op == OP_gather || n->op == OP_scatter) {
        Pred *pred = NEWS(im->a, Pred, n->view.npred + 1);
        for (int k = 0; k < n->view.npred; k++) pred[k] = (Pred){ dim_again(im->g, n->view.pred[k].e), dim_again(im->g, n->view.pred[k].n) };
        p.view.idx = dims_again(im, n->view.nidx, n->view.idx);
        p.view.pred = pred;
    }
    return c->to[n->id] = graph_add(im->g, &p);
}

static void cross_add(Import *im, Crossing *c, Node *n, bool as_output)
{
    if (c->place[n->id] != NEVER) return;
    if (!as_output && made_again(c, n, 0)) return;
    if (!as_output && n->op == OP_dims) {
        vec_push(im->a, &c->sizes, n);
        return;
    }
    c->place[n->id] = c->out.n;
    vec_push(im->a, &c->out, n);
}

/* The last place whose uses of names are over. The operator that is being imported has its inputs already, but not what its bodies use, unless a
 * scope for a body is open: then that scope knows. */
static int last_done(const NameScope *s, const NameScope *innermost)
{
    if (s != innermost || s->pos >= s->g->nnode) return s->pos;
    const OnnxNode *x = &s->g->node[s->order ? s->order[s->pos] : s->pos];
    for (int k = 0; k < x->nattr; k++)
        if (x->attr[k].g || x->attr[k].type == ATTR_graphs) return s->pos - 1;
    return s->pos;
}

/* All nodes that are needed after the cut: of names with a later use, and of the operators being imported. */
static void cross_needed(Import *im, Crossing *c)
{
    for (int i = 0; i < im->calls.n; i++) {
        const OpCall *o = im->calls.at[i];
        for (int k = 0; k < o->nin; k++)
            if (o->in[k]) cross_add(im, c, o->in[k], false);
        for (int k = 0; k < o->nout; k++)
            if (o->out[k]) cross_add(im, c, o->out[k], false);
    }
    for (NameScope *s = im->scope; s; s = s->caller) {
        int n = 0, done = last_done(s, im->scope);
        for (int i = 0; i < s->outer.n; i++) {
            if (s->outer.at[i].node <= done) continue;
            s->outer.at[i].slot->needed = true;
            s->outer.at[n++] = s->outer.at[i];
        }
        s->outer.n = n;
    }
    for (NameScope *s = im->scope; s; s = s->caller) {
        int n = 0, done = last_done(s, im->scope);
        for (int i = 0; i < s->live.n; i++) {
            NameSlot *x = s->live.at[i];
            bool needed = x->last > done || x->needed;
            x->needed = false;
            if (!needed || x->init) {                               /* an initialiser becomes a constant again when it is used */
                x->node = NULL;
                continue;
            }
            cross_add(im, c, x->node, false);
            s->live.at[n++] = x;
        }
        s->live.n = n;
    }
}

/* The name of an old size in the new graph: the same for the same expression, another for another one. */
static const char *size_name(Import *im, const Graph *old, MapStr *names, const Dim *d)
{
    Text t = { .arena = im->a };
    dim_print(&t, old, d);
    for (;;) {
        void **at = mapstr_at(names, t.at);
        if (!*at) *at = (void *)(uintptr_t)d;
        if (*at == d) return t.at;
        text_add(&t, "'");
    }
}

static Node *cross_input(Import *im, const char *name, const Graph *old, MapStr *names, MapStr *sizes, const Node *x, const Tensor *value)
{
    int64_t dims[MAX_RANK];
    const char *sym[MAX_RANK];
    for (int k = 0; k < value->rank; k++) {
        dims[k] = -1;
        sym[k] = NULL;
        if (!x) continue;
        if (dim_is_const(x->dims[k])) dims[k] = x->dims[k]->c;
        else sym[k] = size_name(im, old, names, x->dims[k]);
    }
    Node *n = graph_input(im->g, name, value->dt, value->rank, dims, sym, value);
    for (int k = 0; k < value->rank; k++)
        if (sym[k]) *mapstr_at(sizes, sym[k]) = n->dims[k];
    return n;
}

/* A dims node again in the new graph, or NULL when one of its sizes is not the size of a value that crosses. */
static Node *cross_sizes(Import *im, const Graph *old, MapStr *names, MapStr *sizes, const Node *x)
{
    int n = x->rank ? (int)x->dims[0]->c : 1;
    Dim **d = NEWS(im->a, Dim *, n + 1);
    for (int k = 0; k < n; k++) {
        if (dim_is_const(x->size[k])) d[k] = dim_const(im->g, x->size[k]->c);
        else if (!(d[k] = mapstr_get(sizes, size_name(im, old, names, x->size[k])))) return NULL;
    }
    return g_dims(im->g, x->rank, n, d);
}

/* Which sizes will be symbols of the new graph: those of the values that cross anyway. */
static void cross_settle(Import *im, Crossing *c)
{
    int max = 0, kept = 0;
    for (int i = 0; i < c->out.n; i++)
        for (int k = 0; k < c->out.at[i]->rank; k++)
            if (c->out.at[i]->dims[k]->id > max) max = c->out.at[i]->dims[k]->id;
    char *known = NEWS(im->a, char, max + 1);
    for (int i = 0; i < c->out.n; i++)
        for (int k = 0; k < c->out.at[i]->rank; k++) known[c->out.at[i]->dims[k]->id] = 1;
    for (int i = 0; i < c->sizes.n; i++) {
        Node *x = c->sizes.at[i];
        bool all = true;
        for (int64_t k = 0; k < (x->rank ? x->dims[0]->c : 1) && all; k++)
            all = dim_is_const(x->size[k]) || (x->size[k]->id <= max && known[x->size[k]->id]);
        if (all) c->sizes.at[kept++] = x;
        else cross_add(im, c, x, true);
    }
    c->sizes.n = kept;
}

static Node *moved(Import *im, Crossing *c, const Node *n)
{
    if (made_again(c, n, 0)) return make_again(im, c, n);
    ASSERT(c->to[n->id]);
    return c->to[n->id];
}

/* Ends the graph: runs it (and the call on in[0..nin)), and goes on in a new one. Returns the call's results there. */
static Node **cut_here(Import *im, const char *why, const Call *call, int nin, Node *const *in)
{
    Graph *old = im->g;
    if (!im->host || !im->host->cut)
        fail(im->cx, E_UNSUPPORTED, "%s, which only a run can give", why);
    Crossing c = { .place = NEWS(im->a, int, old->node.n + 1), .to = NEWS(im->a, Node *, old->node.n + 1),
                   .again = NEWS(im->a, char, old->node.n + 1) };
    for (int i = 0; i < old->node.n; i++) c.place[i] = NEVER;
    int *call_in = NEWS(im->a, int, nin + 1);
    for (int k = 0; k < nin; k++) cross_add(im, &c, in[k], true);
    cross_needed(im, &c);
    cross_settle(im, &c);
    for (int k = 0; k < nin; k++) call_in[k] = c.place[in[k]->id];
    for (int i = 0; i < c.out.n; i++) graph_output(old, arena_fmt(im->a, "v%d", i), c.out.at[i]);
    int nresult = call ? call->nout : 0;
    Tensor *value = NEWS(im->a, Tensor, c.out.n + nresult + 1);
    Cut cut = { .g = old, .call = call, .call_in = call_in, .why = why };
    log_line(im->cx, 2, "cut: %s; %d nodes before, %d values cross", why, old->node.n, c.out.n);
    im->host->cut(im->host->self, im->cx, &cut, value);

    Origin origin = old->origin.at[old->cur_origin];
    im->g = graph_new(im->cx, im->a);
    graph_origin(im->g, origin.name, origin.op, origin.domain);
    MapStr *names = mapstr_new(im->a), *sizes = mapstr_new(im->a);
    for (int i = 0; i < c.out.n; i++) {
        const Node *x = c.out.at[i];
        c.to[x->id] = cross_input(im, arena_fmt(im->a, "v%d", i), old, names, sizes, x, &value[i]);
    }
    for (int i = 0; i < c.sizes.n; i++) {
        c.to[c.sizes.at[i]->id] = cross_sizes(im, old, names, sizes, c.sizes.at[i]);
        ASSERT(c.to[c.sizes.at[i]->id]);
    }
    Node **result = NEWS(im->a, Node *, nresult + 1);
    for (int k = 0; k < nresult; k++)
        result[k] = cross_input(im, arena_fmt(im->a, "v%d", c.out.n + k), old, names, sizes, NULL, &value[c.out.n + k]);

    for (NameScope *s = im->scope; s; s = s->caller)
        for (int i = 0; i < s->live.n; i++) s->live.at[i]->node = moved(im, &c, s->live.at[i]->node);
    for (int i = 0; i < im->calls.n; i++) {
        OpCall *o = im->calls.at[i];
        for (int k = 0; k < o->nin; k++)
            if (o->in[k]) o->in[k] = moved(im, &c, o->in[k]);
        for (int k = 0; k < o->nout; k++)
            if (o->out[k]) o->out[k] = moved(im, &c, o->out[k]);
        o->g = im->g;
    }
    return result;
}

const TraceHost *op_host(const OpCall *o)
{
    static const TraceHost none = { 0 };
    return o->im->host ? o->im->host : &none;
}

void op_cut(OpCall *o, const char *why)
{
    cut_here(o->im, why, NULL, 0, NULL);
}

Node **op_host_call(OpCall *o, const CallDef *def, int nin, Node *const *in, int nout, const DType *dt, const void *attr, size_t attr_size)
{
    Call *call = NEW(o->a, Call);
    *call = (Call){ .def = def, .nin = nin, .nout = nout, .out_dt = arena_copy(o->a, dt, (size_t)nout * sizeof *dt),
                    .attr = attr_size ? arena_copy(o->a, attr, attr_size) : attr, .attr_size = attr_size };
    return cut_here(o->im, arena_fmt(o->a, "the sizes of the results of %s are known only after it ran", o->node->op), call, nin, in);
}
