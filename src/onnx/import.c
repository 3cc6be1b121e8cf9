/* The tracing importer: walks the nodes of a graph in order, calls each operator's row of ops.def, and keeps which name is which node.
 *
 *   scope   the names of one graph: the main graph, an inlined branch, an inlined function, a loop body. A name that a branch does not define is
 *           looked up outward; a function sees nothing outside. When a scope opens, one pass finds the order of its nodes and, for each name, the last
 *           node that uses it (also from bodies inside), so that a cut knows at once which values are still needed.
 *   cut     ends the graph where the rest depends on data of a run: cut.c.
 *
 * Nothing recurses over the length of a graph, only over the nesting of bodies and functions, which has a limit. */
#include <stdio.h>
#include <string.h>
#include "onnx/onnx.h"

enum { MAX_NESTING = 64 };

static int64_t opset_version(const OnnxModel *m, const OnnxOpset *opset, int n, const char *domain)
{
    for (int i = 0; i < n; i++)
        if (strcmp(onnx_domain(opset[i].domain), onnx_domain(domain)) == 0) return opset[i].version;
    return n == 0 && m->ir_version < 3 && !onnx_domain(domain)[0] ? 1 : 0;      /* IR 1 and 2 had no imports */
}

/* ---- unknown operators ------------------------------------------------------------------------------------------------------------- */
typedef struct Walk {
    Ctx *cx; Arena *a;
    const OnnxModel *m;
    MapStr *functions, *seen;
    VEC(const OnnxFunction *) todo;
    Text text;
    const OnnxNode *first;              /* of those named in text */
} Walk;

static const char *function_key(Arena *a, const char *domain, const char *name, const char *overload)
{
    return arena_fmt(a, "%s:%s:%s", onnx_domain(domain), name, overload ? overload : "");
}

static MapStr *function_map(Ctx *cx, Arena *a, const OnnxModel *m)
{
    MapStr *map = mapstr_new(a);
    for (int i = 0; i < m->nfunction; i++) {
        const OnnxFunction *f = &m->function[i];
        void **at = mapstr_at(map, function_key(a, f->domain, f->name, f->overload));
        if (*at) fail(cx, E_FORMAT, "function '%s' of domain '%s' is defined twice", f->name, f->domain);
        *at = (void *)(uintptr_t)f;
    }
    return map;
}

static void walk_nodes(Walk *w, const OnnxNode *node, int n, const OnnxOpset *opset, int nopset, int depth)
{
    if (depth > MAX_NESTING) fail(w->cx, E_UNSUPPORTED, "graphs are nested more than %d deep", MAX_NESTING);
    for (int i = 0; i < n; i++) {
        const OnnxNode *x = &node[i];
        for (int k = 0; k < x->nattr; k++) {
            const OnnxAttr *t = &x->attr[k];
            if (t->g) walk_nodes(w, t->g->node, t->g->nnode, opset, nopset, depth + 1);
            if (t->type == ATTR_graphs)
                for (int j = 0; j < t->n; j++) walk_nodes(w, t->graphs[j]->node, t->graphs[j]->nnode, opset, nopset, depth + 1);
        }
        int64_t version = opset_version(w->m, opset, nopset, x->domain);
        const char *key = arena_fmt(w->a, "%s.%s(%lld)%s", onnx_domain(x->domain)[0] ? x->domain : "ai.onnx", x->op, (long long)version, x->overload ? x->overload : "");
        void **seen = mapstr_at(w->seen, key);
        if (*seen) continue;
        *seen = (void *)(uintptr_t)key;
        const OnnxFunction *f = w->m->nfunction ? mapstr_get(w->functions, function_key(w->a, x->domain, x->op, x->overload)) : NULL;
        if (f) {
            vec_push(w->a, &w->todo, f);
        } else if (!op_find(x->domain, x->op, version ? version : INT64_MAX)) {
            text_add(&w->text, "%s%s", w->text.n ? ", " : "", key);
            if (!w->first) w->first = x;
        }
    }
}

const char *onnx_unknown_ops(Ctx *cx, Arena *a, const OnnxModel *m)
{
    Walk w = { .cx = cx, .a = a, .m = m, .functions = function_map(cx, a, m), .seen = mapstr_new(a), .text = { .arena = a } };
    walk_nodes(&w, m->graph->node, m->graph->nnode, m->opset, m->nopset, 0);
    MapStr *done = mapstr_new(a);
    for (int i = 0; i < w.todo.n; i++) {
        const OnnxFunction *f = w.todo.at[i];
        void **at = mapstr_at(done, function_key(a, f->domain, f->name, f->overload));
        if (*at) continue;
        *at = (void *)(uintptr_t)f;
        walk_nodes(&w, f->node, f->nnode, f->opset, f->nopset, 0);
    }
    const OnnxNode *x = w.first;
    if (x) text_add(&w.text, "; the first is node '%s'", x->name[0] ? x->name : x->nout ? x->out[0] : "");
    return w.text.n ? w.text.at : NULL;
}

/* ---- scopes --------------------------------------------------------------------------------------------------------------------------- */
static NameSlot *slot_new(Import *im, NameScope *s, const char *name, int def)
{
    NameSlot *x = NEW(im->a, NameSlot);
    x->name = name;
    x->owner = s;
    x->def = def;
    x->last = NEVER;
    *mapstr_at(s->names, name) = x;
    return x;
}

static void slot_set(Import *im, NameSlot *x, Node *n)
{
    if (!x->node && n) vec_push(im->a, &x->owner->live, x);
    x->node = n;
}

static Node *slot_get(Import *im, NameSlot *x)
{
    if (!x->node && x->init) {
        OpCall o = { .im = im, .cx = im->cx, .g = im->g, .a = im->a };
        slot_set(im, x, op_onnx_const(&o, x->init));
    }
    return x->node;
}

static NameSlot *scope_find(const NameScope *s, const char *name)
{
    for (; s; s = s->up) {
        NameSlot *x = mapstr_get(s->names, name);
        if (x) return x;
    }
    return NULL;
}

/* Names that a body uses but does not define itself, each once, in order of use. */
typedef VEC(const char *) Names;

static void free_names(Import *im, const OnnxGraph *g, MapStr *seen, Names *out, int depth)
{
    if (depth > MAX_NESTING) fail(im->cx, E_UNSUPPORTED, "graphs are nested more than %d deep", MAX_NESTING);
    MapStr *own = mapstr_new(im->a);
    for (int i = 0; i < g->ninit; i++) *mapstr_at(own, g->init[i].name) = im;
    for (int i = 0; i < g->nin; i++) *mapstr_at(own, g->in[i].name) = im;
    for (int i = 0; i < g->nnode; i++)
        for (int j = 0; j < g->node[i].nout; j++) *mapstr_at(own, g->node[i].out[j]) = im;
    Names used = { 0 };
    MapStr *inner = mapstr_new(im->a);
    for (int i = 0; i < g->nnode; i++) {
        const OnnxNode *x = &g->node[i];
        for (int j = 0; j < x->nin; j++)
            if (x->in[j][0]) vec_push(im->a, &used, x->in[j]);
        for (int k = 0; k < x->nattr; k++) {
            if (x->attr[k].g) free_names(im, x->attr[k].g, inner, &used, depth + 1);
            for (int j = 0; x->attr[k].type == ATTR_graphs && j < x->attr[k].n; j++)
                free_names(im, x->attr[k].graphs[j], inner, &used, depth + 1);
        }
    }
    for (int j = 0; j < g->nout; j++) vec_push(im->a, &used, g->out[j].name);
    for (int i = 0; i < used.n; i++) {
        if (mapstr_get(own, used.at[i])) continue;
        void **at = mapstr_at(seen, used.at[i]);
        if (!*at) vec_push(im->a, out, used.at[i]);
        *at = im;
    }
}

/* Depth-first over what each node uses, in the file's order, with a stack of our own: start[i]..start[i+1] are the edges of node i. */
static void sort_nodes(Import *im, NameScope *s, const NameUse *edge, const int *start)
{
    int n = s->g->nnode, done = 0;
    int *stack = NEWS(im->a, int, n + 1), *next = NEWS(im->a, int, n + 1);
    char *state = NEWS(im->a, char, n + 1);                         /* 0 new, 1 on the stack, 2 done */
    s->order = NEWS(im->a, int, n + 1);
    for (int root = 0; root < n; root++) {
        int top = 0;
        if (state[root]) continue;
        stack[top++] = root;
        state[root] = 1;
        next[root] = start[root];
        while (top) {
            int i = stack[top - 1];
            if (next[i] == start[i + 1]) {
                state[i] = 2;
                s->order[done++] = i;
                top--;
                continue;
            }
            const NameSlot *x = edge[next[i]++].slot;
            if (x->owner != s || x->def < 0 || state[x->def] == 2) continue;
            if (state[x->def] == 0) {
                stack[top++] = x->def;
                state[x->def] = 1;
                next[x->def] = start[x->def];
                continue;
            }
            Text t = { .arena = im->a };
            int from = top - 1;
            while (stack[from] != x->def) from--;
            for (int k = from; k <= top && t.n < 1000; k++) {
                const OnnxNode *d = &s->g->node[k < top ? stack[k] : x->def];
                text_add(&t, "%s'%s' (%s)", k > from ? " needs " : "", d->name[0] ? d->name : d->nout ? d->out[0] : "", d->op);
            }
            fail(im->cx, E_FORMAT, "the nodes form a cycle: %s", t.at);
        }
    }
}

static bool is_constant(const OnnxNode *x) { return !x->domain[0] && strcmp(x->op, "Constant") == 0; }

/* Names, order and last uses of a graph's nodes. Names of the graph's inputs have no node yet. */
static NameScope *scope_open(Import *im, NameScope *up, const OnnxGraph *g, const OnnxFunction *f, const OnnxOpset *opset, int nopset)
{
    Ctx *cx = im->cx;
    if (++im->depth > MAX_NESTING) fail(cx, E_UNSUPPORTED, "graphs and functions are nested more than %d deep", MAX_NESTING);
    NameScope *s = NEW(im->a, NameScope);
    *s = (NameScope){ .up = up, .caller = im->scope, .g = g, .function = f, .opset = opset, .nopset = nopset, .names = mapstr_new(im->a) };
    for (int i = 0; i < g->ninit; i++) {
        if (mapstr_get(s->names, g->init[i].name)) fail(cx, E_FORMAT, "initialiser '%s' is defined twice", g->init[i].name);
        slot_new(im, s, g->init[i].name, NEVER)->init = &g->init[i];
    }
    for (int i = 0; i < g->nin; i++) {
        const NameSlot *x = mapstr_get(s->names, g->in[i].name);
        if (x && !x->init) fail(cx, E_FORMAT, "input '%s' is defined twice", g->in[i].name);
        if (!x) slot_new(im, s, g->in[i].name, NEVER);
    }
    for (int i = 0; i < g->nnode; i++)
        for (int j = 0; j < g->node[i].nout; j++) {
            const char *name = g->node[i].out[j];
            if (!name[0]) continue;
            NameSlot *before = mapstr_get(s->names, name);
            if (!before) {
                slot_new(im, s, name, i);
            } else if (is_constant(&g->node[i]) && before->def >= 0 && is_constant(&g->node[before->def])) {
                log_line(cx, 1, "the constant '%s' is defined twice: the last one counts", name);
                before->def = i;
            } else {
                fail(cx, E_FORMAT, "the name '%s', a result of a node %s, is defined twice", name, g->node[i].op);
            }
        }
    VEC(NameUse) edge = { 0 };
    int *start = NEWS(im->a, int, g->nnode + 1), *place = NEWS(im->a, int, g->nnode + 1);
    bool sorted = true;
    Names used = { 0 };
    for (int i = 0; i < g->nnode; i++) {
        const OnnxNode *x = &g->node[i];
        start[i] = edge.n;
        used.n = 0;
        for (int j = 0; j < x->nin; j++)
            if (x->in[j][0]) vec_push(im->a, &used, x->in[j]);
        for (int k = 0; k < x->nattr; k++) {
            if (!x->attr[k].g && x->attr[k].type != ATTR_graphs) continue;
            MapStr *seen = mapstr_new(im->a);
            if (x->attr[k].g) free_names(im, x->attr[k].g, seen, &used, 1);
            for (int j = 0; x->attr[k].type == ATTR_graphs && j < x->attr[k].n; j++)
                free_names(im, x->attr[k].graphs[j], seen, &used, 1);
        }
        for (int j = 0; j < used.n; j++) {
            NameSlot *y = scope_find(s, used.at[j]);
            if (!y) {
                Note note;
                note_push(cx, &note, "node", x->name[0] ? x->name : x->nout ? x->out[0] : "", x->op);
                fail(cx, E_FORMAT, "it uses '%s', which is no input, initialiser or result of a node", used.at[j]);
            }
            if (y->owner == s && y->def >= i) sorted = false;
            vec_push(im->a, &edge, ((NameUse){ y, i }));
        }
    }
    start[g->nnode] = edge.n;
    if (!sorted) sort_nodes(im, s, edge.at, start);
    for (int k = 0; k < g->nnode; k++) place[s->order ? s->order[k] : k] = k;
    for (int k = 0; k < edge.n; k++) {
        NameSlot *x = edge.at[k].slot;
        int at = place[edge.at[k].node];
        if (x->owner != s) vec_push(im->a, &s->outer, ((NameUse){ x, at }));
        else if (x->last < at) x->last = at;
    }
    for (int j = 0; j < g->nout; j++) {
        NameSlot *x = scope_find(s, g->out[j].name);
        if (!x) fail(cx, E_FORMAT, "output '%s' is no input, initialiser or result of a node", g->out[j].name);
        if (x->owner != s) vec_push(im->a, &s->outer, ((NameUse){ x, ALWAYS }));
        else x->last = ALWAYS;
    }
    im->scope = s;
    return s;
}

static void scope_close(Import *im)
{
    im->scope = im->scope->caller;
    im->depth--;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------------------------------- */
static void count_inputs(OpCall *o, const OpRow *row)
{
    int lo = row->min_in, hi = row->max_in;
    if (row->formula) {
        lo = hi = 0;
        for (const char *p = row->inputs; *p;) {
            while (*p == ' ') p++;
            if (!*p) break;
            while (*p && *p != ' ') p++;
            hi++;
            if (p[-1] != '?') lo = hi;
        }
    }
    int n = o->nin;
    while (n > 0 && !o->node->in[n - 1][0]) n--;
    if (n < lo || (hi >= 0 && n > hi)) {
        if (lo == hi) fail(o->cx, E_FORMAT, "%d inputs, wanted %d", n, lo);
        else if (hi < 0) fail(o->cx, E_FORMAT, "%d inputs, wanted %d or more", n, lo);
        else fail(o->cx, E_FORMAT, "%d inputs, wanted %d to %d", n, lo, hi);
    }
    for (int i = 0; i < lo; i++)
        if (!o->in[i]) fail(o->cx, E_FORMAT, "input %d is absent, but it is not optional", i);
}

static OpCall *call_new(Import *im, const OnnxNode *node, int64_t opset, int nin)
{
    OpCall *o = NEW(im->a, OpCall);
    *o = (OpCall){ .im = im, .cx = im->cx, .g = im->g, .a = im->a, .node = node, .opset = opset, .nin = nin, .nout = node->nout };
    o->in = NEWS(im->a, Node *, nin + OP_PLACES);
    o->out = NEWS(im->a, Node *, node->nout + OP_PLACES);
    return o;
}

static void call_row(Import *im, OpCall *o, const OpRow *row)
{
    count_inputs(o, row);
    vec_push(im->a, &im->calls, o);
    if (row->formula) op_formula(o, row);
    else row->fn(o);
    im->calls.n--;
}

static void trace_nodes(Import *im);

static const OpRow *find_row(Import *im, const char *domain, const char *op, int64_t version)
{
    static const OpRow none = { 0 };
    void **at = mapstr_at(im->rows, arena_fmt(im->a, "%s:%s:%lld", domain, op, (long long)version));
    if (!*at) {
        const OpRow *row = op_find(domain, op, version);
        *at = (void *)(uintptr_t)(row ? row : &none);
    }
    return *at == &none ? NULL : *at;
}

/* ---- functions: attributes of the call put in the place of references ----------------------------------------------------------------------- */
static const OnnxAttr *attr_named(const OnnxAttr *t, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0) return &t[i];
    return NULL;
}

static OnnxNode *bound_nodes(Import *im, const OnnxNode *node, int n, const OnnxFunction *f, const OnnxNode *call, int depth);

static OnnxGraph *bound_graph(Import *im, const OnnxGraph *g, const OnnxFunction *f, const OnnxNode *call, int depth)
{
    if (depth > MAX_NESTING) fail(im->cx, E_UNSUPPORTED, "graphs are nested more than %d deep", MAX_NESTING);
    OnnxGraph *b = arena_copy(im->a, g, sizeof *g);
    b->node = bound_nodes(im, g->node, g->nnode, f, call, depth);
    return b;
}

static OnnxNode *bound_nodes(Import *im, const OnnxNode *node, int n, const OnnxFunction *f, const OnnxNode *call, int depth)
{
    OnnxNode *b = arena_copy(im->a, node, (size_t)n * sizeof *node);
    for (int i = 0; i < n; i++) {
        OnnxAttr *attr = NEWS(im->a, OnnxAttr, node[i].nattr + 1);
        int m = 0;
        for (int k = 0; k < node[i].nattr; k++) {
            OnnxAttr t = node[i].attr[k];
            if (t.ref && t.ref[0]) {
                const OnnxAttr *given = attr_named(call->attr, call->nattr, t.ref);
                if (!given) given = attr_named(f->attr_default, f->nattr_default, t.ref);
                if (!given) continue;                               /* absent in the call: absent here */
                const char *name = t.name;
                t = *given;
                t.name = name;
                t.ref = NULL;
            } else {
                if (t.g) t.g = bound_graph(im, t.g, f, call, depth + 1);
                if (t.type == ATTR_graphs) {
                    OnnxGraph **list = NEWS(im->a, OnnxGraph *, t.n + 1);
                    for (int j = 0; j < t.n; j++) list[j] = bound_graph(im, t.graphs[j], f, call, depth + 1);
                    t.graphs = list;
                }
            }
            attr[m++] = t;
        }
        b[i].attr = attr;
        b[i].nattr = m;
    }
    return b;
}

static void call_function(Import *im, OpCall *o, const OnnxFunction *f)
{
    for (const NameScope *s = im->scope; s; s = s->caller)
        if (s->function == f) fail(im->cx, E_FORMAT, "function '%s' calls itself", f->name);
    if (o->nin > f->nin) fail(im->cx, E_FORMAT, "%d inputs, but the function has %d", o->nin, f->nin);
    if (o->nout > f->nout) fail(im->cx, E_FORMAT, "%d outputs, but the function has %d", o->nout, f->nout);
    OnnxGraph *g = NEW(im->a, OnnxGraph);
    *g = (OnnxGraph){ .name = f->name, .nnode = f->nnode, .nin = f->nin, .nout = f->nout };
    g->node = bound_nodes(im, f->node, f->nnode, f, o->node, 0);
    g->in = NEWS(im->a, OnnxValue, f->nin + 1);
    g->out = NEWS(im->a, OnnxValue, f->nout + 1);
    for (int i = 0; i < f->nin; i++) g->in[i] = (OnnxValue){ .name = f->in[i], .rank = -1 };
    for (int i = 0; i < f->nout; i++) g->out[i] = (OnnxValue){ .name = f->out[i], .rank = -1 };
    Origin caller = im->g->origin.at[im->g->cur_origin];
    NameScope *s = scope_open(im, NULL, g, f, f->opset, f->nopset);
    s->prefix = caller.name;
    for (int i = 0; i < o->nin; i++) {
        slot_set(im, mapstr_get(s->names, f->in[i]), o->in[i]);
        o->in[i] = NULL;                                            /* the scope holds it now */
    }
    trace_nodes(im);
    for (int j = 0; j < o->nout; j++) o->out[j] = slot_get(im, mapstr_get(s->names, f->out[j]));
    scope_close(im);
}

/* Traces a body in place, its formal inputs bound to nodes. */
static void inline_body(OpCall *o, const OnnxGraph *body, int nin, Node *const *in, Node **out)
{
    Import *im = o->im;
    NameScope *up = im->scope, *s = scope_open(im, up, body, up->function, up->opset, up->nopset);
    s->prefix = up->prefix;
    for (int i = 0; i < nin; i++) slot_set(im, mapstr_get(s->names, body->in[i].name), in[i]);
    trace_nodes(im);
    for (int j = 0; j < body->nout; j++) out[j] = slot_get(im, scope_find(s, body->out[j].name));
    scope_close(im);
}

void op_inline(OpCall *o, const OnnxGraph *body, Node **out)
{
    for (int i = 0; i < body->nin; i++) {
        bool init = false;
        for (int k = 0; k < body->ninit && !init; k++) init = strcmp(body->init[k].name, body->in[i].name) == 0;
        if (!init) fail(o->cx, E_FORMAT, "the branch '%s' has an input '%s', wanted none", body->name, body->in[i].name);
    }
    if (body->nout != o->nout) fail(o->cx, E_FORMAT, "the branch '%s' has %d outputs, wanted %d", body->name, body->nout, o->nout);
    for (int i = 0; i < o->nin; i++) o->in[i] = NULL;
    inline_body(o, body, 0, NULL, out);
}

void op_inline_on(OpCall *o, const OnnxGraph *body, int nin, Node *const *in, int nout, Node **out)
{
    if (body->nin != nin || body->nout != nout)
        fail(o->cx, E_FORMAT, "the graph '%s' has %d inputs and %d outputs, wanted %d and %d", body->name, body->nin, body->nout, nin, nout);
    inline_body(o, body, nin, in, out);
}

const OnnxOpset *op_opsets(const OpCall *o, int *n)
{
    *n = o->im->scope->nopset;
    return o->im->scope->opset;
}

Node **op_body_call(OpCall *o, const CallDef *def, const OnnxGraph *body, BodyCall *b, int nin, Node *const *in, int nout, const DType *dt)
{
    Import *im = o->im;
    if (!def) op_unsupported(o, "a body that runs again and again needs a host that runs graphs");
    b->model = im->m;
    b->body = body;
    b->node = o->node;
    b->opset = o->opset;
    if (im->scope->function) {                                      /* the body means what the function's imports say, and sees no initialiser of the model */
        OnnxModel *m = arena_copy(im->a, im->m, sizeof *m);
        m->opset = im->scope->opset;
        m->nopset = im->scope->nopset;
        m->graph = NEW(im->a, OnnxGraph);
        b->model = m;
    }
    Names names = { 0 };
    free_names(im, body, mapstr_new(im->a), &names, 1);
    const char **capture = NEWS(im->a, const char *, names.n + 1);
    Node **all = NEWS(im->a, Node *, nin + names.n + 1);
    for (int i = 0; i < nin; i++) all[i] = in[i];
    b->ncapture = 0;
    for (int i = 0; i < names.n; i++) {
        NameSlot *x = scope_find(im->scope, names.at[i]);
        ASSERT(x);
        if (x->init && x->owner->g == b->model->graph) continue;   /* the body's import finds it there */
        Node *n = slot_get(im, x);
        if (!n) continue;                                           /* an absent optional input of a function */
        all[nin + b->ncapture] = n;
        capture[b->ncapture++] = names.at[i];
    }
    b->capture = capture;
    return op_host_call(o, def, nin + b->ncapture, all, nout, dt, b, sizeof *b);
}

Node *op_apply(OpCall *o, const char *op, int64_t version, int nin, Node *const *in, const char *attrs)
{
    Import *im = o->im;
    OnnxNode *node = NEW(im->a, OnnxNode);
    OnnxAttr *attr = NEWS(im->a, OnnxAttr, 16);
    const char **names = NEWS(im->a, const char *, nin + 2);
    *node = (OnnxNode){ .name = o->node->name, .op = op, .domain = "", .overload = "", .nin = nin, .nout = 1, .in = names, .out = names + nin, .attr = attr };
    for (int i = 0; i < nin; i++) names[i] = in[i] ? "an operand" : "";
    names[nin] = "a result";
    for (const char *p = attrs ? attrs : ""; *p;) {                 /* name=i:1 name=f:0.5 name=s:text name=I:1,2 */
        char *word = arena_str(im->a, p), *eq = strchr(word, '='), *end = strchr(word, ' ');
        ASSERT(eq && eq[1] && eq[2] == ':' && node->nattr < 16);
        p += end ? end - word + 1 : (ptrdiff_t)strlen(word);
        if (end) *end = 0;
        *eq = 0;
        OnnxAttr *t = &attr[node->nattr++];
        t->name = word;
        const char *value = eq + 3;
        if (eq[1] == 'i') { t->type = ATTR_int; long long v = 0; sscanf(value, "%lld", &v); t->i = v; }
        else if (eq[1] == 'f') { t->type = ATTR_float; sscanf(value, "%f", &t->f); }
        else if (eq[1] == 's') { t->type = ATTR_string; t->s = value; t->s_len = strlen(value); }
        else {
            ASSERT(eq[1] == 'I');
            int64_t *v = NEWS(im->a, int64_t, strlen(value) + 1);
            t->type = ATTR_ints;
            for (int used = 0; *value; value += used + (value[used] == ',')) {
                long long x;
                if (sscanf(value, "%lld%n", &x, &used) != 1) break;
                v[t->n++] = x;
            }
            t->ints = v;
        }
    }
    const OpRow *row = find_row(im, "", op, version);
    if (!row) fail(im->cx, E_UNSUPPORTED, "needs the operator %s(%lld)", op, (long long)version);
    OpCall *c = call_new(im, node, version, nin);
    for (int i = 0; i < nin; i++) c->in[i] = in[i];
    call_row(im, c, row);
    return c->out[0];
}

static void trace_node(Import *im, NameScope *s, const OnnxNode *node)
{
    Ctx *cx = im->cx;
    const char *name = node->name[0] ? node->name : node->nout ? node->out[0] : "";
    Note note;
    note_push(cx, &note, "node", name, node->op);
    if (s->prefix) name = arena_fmt(im->a, "%s/%s", s->prefix, name);
    const char *domain = onnx_domain(node->domain);
    int64_t version = opset_version(im->m, s->opset, s->nopset, domain);
    const OnnxFunction *f = im->m->nfunction ? mapstr_get(im->functions, function_key(im->a, domain, node->op, node->overload)) : NULL;
    if (!version && !f) fail(cx, E_FORMAT, "the model imports no version of the operators of domain '%s'", domain[0] ? domain : "ai.onnx");
    graph_origin(im->g, name, node->op, domain);
    OpCall *o = call_new(im, node, version, node->nin);
    for (int i = 0; i < node->nin; i++)
        if (node->in[i][0]) o->in[i] = slot_get(im, scope_find(s, node->in[i]));
    if (f) {
        vec_push(im->a, &im->calls, o);
        call_function(im, o, f);
        im->calls.n--;
    } else {
        const OpRow *row = find_row(im, domain, node->op, version);
        if (!row) fail(cx, E_UNSUPPORTED, "the operator %s%s%s(%lld) has no meaning here", domain, domain[0] ? "." : "", node->op, (long long)version);
        call_row(im, o, row);
        if (im->m->by_hand) op_attrs_check(o, im->m->by_calls && (row->formula || strcmp(domain, "sinter") == 0));
    }
    for (int j = 0; j < node->nout; j++) {
        if (!node->out[j][0]) continue;
        NameSlot *x = mapstr_get(s->names, node->out[j]);
        if (x->last == NEVER || node != &s->g->node[x->def]) continue;    /* not used, or an earlier definition */
        if (!o->out[j]) fail(cx, E_UNSUPPORTED, "its output %d ('%s') has no meaning here", j, node->out[j]);
        slot_set(im, x, o->out[j]);
    }
    note_pop(cx);
}

static void trace_nodes(Import *im)
{
    NameScope *s = im->scope;
    for (s->pos = 0; s->pos < s->g->nnode; s->pos++) {
        ctx_poll(im->cx);
        trace_node(im, s, &s->g->node[s->order ? s->order[s->pos] : s->pos]);
    }
}

/* ---- inputs and the whole ------------------------------------------------------------------------------------------------------------------- */
static char *wanted_text(Import *im, const OnnxValue *v)
{
    Text t = { .arena = im->a };
    text_add(&t, "%s", v->dt ? dtype_info[v->dt].name : "any type");
    if (v->rank < 0) return t.at;
    text_add(&t, "[");
    for (int k = 0; k < v->rank; k++) {
        text_add(&t, "%s", k ? "," : "");
        if (v->dims[k].value >= 0) text_add(&t, "%lld", (long long)v->dims[k].value);
        else text_add(&t, "%s", v->dims[k].sym && v->dims[k].sym[0] ? v->dims[k].sym : "?");
    }
    text_add(&t, "]");
    return t.at;
}

/* An argument as an input of the graph. `strict`: it must fit what is declared; a body's declarations are often vague or stale. */
static Node *bind_input(Import *im, const OnnxValue *v, const Tensor *arg, bool strict, MapStr *sizes)
{
    Ctx *cx = im->cx;
    int64_t dims[MAX_RANK];
    const char *sym[MAX_RANK];
    bool fits = !v->dt || v->dt == arg->dt;
    if (v->kind && v->kind != 't') fail(cx, E_UNSUPPORTED, "input '%s' is a %s, wanted a tensor", v->name,
        v->kind == 's' ? "sequence" : v->kind == 'o' ? "optional" : "sparse tensor");
    if (v->kind && !v->dt) fail(cx, E_UNSUPPORTED, "input '%s' has the ONNX element type %d, which is not supported", v->name, v->onnx_dt);
    if (strict && v->rank >= 0 && v->rank != arg->rank) fits = false;
    for (int k = 0; k < arg->rank; k++) {
        const OnnxDim *d = v->rank == arg->rank ? &v->dims[k] : NULL;
        dims[k] = -1;
        sym[k] = NULL;
        if (d && d->value >= 0) {
            if (d->value == arg->dims[k]) dims[k] = d->value;
            else if (strict) fits = false;
        } else if (d && d->sym && d->sym[0]) {
            /* exporters reuse a name for sizes that differ: then they are two symbols */
            void **at = mapstr_at(sizes, d->sym);
            if (!*at) *at = arena_copy(im->a, &arg->dims[k], sizeof arg->dims[k]);
            if (*(int64_t *)*at == arg->dims[k]) sym[k] = d->sym;
        }
    }
    if (!fits)
        fail(cx, E_INVALID, "input '%s' is %s%s, wanted %s", v->name, dtype_info[arg->dt].name, shape_str(im->a, arg->rank, arg->dims), wanted_text(im, v));
    return graph_input(im->g, v->name, arg->dt, arg->rank, dims, sym, arg);
}

Graph *onnx_import(Ctx *cx, Arena *a, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, const TraceHost *host)
{
    Note note;
    bool main_graph = g == m->graph;
    if (main_graph) note_push(cx, &note, "file", m->path, NULL);
    Import *im = NEW(a, Import);
    *im = (Import){ .cx = cx, .a = a, .m = m, .host = host, .rows = mapstr_new(a) };
    if (main_graph) {
        const char *unknown = onnx_unknown_ops(cx, a, m);
        if (unknown) fail(cx, E_UNSUPPORTED, "operators without a meaning here: %s", unknown);
    }
    im->functions = function_map(cx, a, m);
    im->g = graph_new(cx, a);
    NameScope *base = NULL;
    if (!main_graph) {                  /* a body sees the initialisers of the model, and what it captures */
        base = NEW(a, NameScope);
        *base = (NameScope){ .g = m->graph, .names = mapstr_new(a) };
        for (int i = 0; i < m->graph->ninit; i++) slot_new(im, base, m->graph->init[i].name, NEVER)->init = &m->graph->init[i];
        for (int i = 0; i < ncapture; i++) slot_new(im, base, capture[i], NEVER);
        im->scope = base;
    }
    NameScope *s = scope_open(im, base, g, NULL, m->opset, m->nopset);
    MapStr *sizes = mapstr_new(a);
    int n = 0;
    for (int i = 0; i < g->nin; i++) {
        NameSlot *x = mapstr_get(s->names, g->in[i].name);
        if (x->init) continue;
        slot_set(im, x, bind_input(im, &g->in[i], &args[n++], main_graph, sizes));
    }
    for (int i = 0; i < ncapture; i++, n++)
        slot_set(im, mapstr_get(base->names, capture[i]), graph_input(im->g, capture[i], args[n].dt, args[n].rank, args[n].dims, NULL, &args[n]));
    trace_nodes(im);
    for (int j = 0; j < g->nout; j++) graph_output(im->g, g->out[j].name, slot_get(im, scope_find(s, g->out[j].name)));
    if (main_graph) note_pop(cx);
    return im->g;
}
