/* Values needed while a graph is built (shapes computed by the model, axes, scales), and the binding of
 * symbols before a run.
 *
 * An element is first looked for as an expression: host_walk follows one element through dims, constants,
 * views and integer arithmetic, so Reshape(x, Concat(Shape(x)[0], -1)) stays symbolic. What is not such
 * arithmetic, but can be computed from small inputs and sizes, is evaluated for the hints and becomes a
 * SYM_value symbol: the same nodes are evaluated again on the actual inputs before a run (host_bind).
 *
 * All guards are checked before a run; when one fails the caller traces the graph anew. */
#include "ir/dim.h"
#include <string.h>

enum { HOST_INPUT = 4096, HOST_RESULT = 4096, HOST_CONE = 65536, HOST_DEPTH = 100, HOST_STEPS = 200000 };

/* What is known about each node, filled in id order as nodes are added. can: computable from constants,
 * sizes and small inputs. pure: from constants alone. elem: the symbols of its elements, where there are
 * any. fixed: host_value gave it out. */
typedef struct HostNode {
    bool can, pure, fixed;
    int seen;
    int64_t count;
    const Tensor *value;
    Dim **elem;
} HostNode;
struct HostTables {
    VEC(HostNode) node;
    VEC(Node *) stack;
    VEC(int64_t) sym;
    Tensor *inputs;
    int ninputs, seen;
};
typedef struct HostTables HostTables;

static bool dim_has_sym(const Dim *d)
{
    switch (d->kind) {
    case DIM_sym: return true;
    case DIM_idx: return false;
    case DIM_sum:
        for (int k = 0; k < d->n; k++)
            for (int f = 0; f < d->term[k].n; f++)
                if (dim_has_sym(d->term[k].factor[f]))
                    return true;
        return false;
    case DIM_div: case DIM_mod: case DIM_min: case DIM_max: break;
    }
    return dim_has_sym(d->a) || dim_has_sym(d->b);
}

/* The highest symbol in d, -1 for none. */
static int dim_top_sym(const Dim *d)
{
    int top = -1, t;
    switch (d->kind) {
    case DIM_sym: return d->var;
    case DIM_idx: return -1;
    case DIM_sum:
        for (int k = 0; k < d->n; k++)
            for (int f = 0; f < d->term[k].n; f++) {
                t = dim_top_sym(d->term[k].factor[f]);
                top = t > top ? t : top;
            }
        return top;
    case DIM_div: case DIM_mod: case DIM_min: case DIM_max: break;
    }
    top = dim_top_sym(d->a), t = dim_top_sym(d->b);
    return t > top ? t : top;
}

static bool node_has_sym(const Node *n)
{
    for (int k = 0; k < n->rank; k++)
        if (dim_has_sym(n->dims[k]))
            return true;
    if (n->op == OP_dims) {
        int64_t count = n->rank ? n->dims[0]->c : 1;
        for (int64_t k = 0; k < count; k++)
            if (dim_has_sym(n->size[k]))
                return true;
    }
    if (n->op == OP_view || n->op == OP_gather || n->op == OP_scatter) {
        for (int k = 0; k < n->view.nidx; k++)
            if (dim_has_sym(n->view.idx[k]))
                return true;
        for (int k = 0; k < n->view.npred; k++)
            if (dim_has_sym(n->view.pred[k].e) || dim_has_sym(n->view.pred[k].n))
                return true;
    }
    return false;
}

static HostNode *host_node(Graph *g, const Node *n)
{
    if (!g->host)
        g->host = NEW(g->arena, HostTables);
    HostTables *h = g->host;
    while (h->node.n <= n->id) {
        const Node *x = g->node.at[h->node.n];
        HostNode s = { .can = x->op != OP_random, .pure = !node_has_sym(x), .count = 1 };
        for (int k = 0; k < x->rank; k++) {
            int64_t size = dim_hint(g, x->dims[k]);
            s.count = size && s.count > HOST_CONE / size ? HOST_CONE + 1 : s.count * size;
        }
        if (x->op == OP_input) {
            const Tensor *t = x->index < g->hint.n ? g->hint.at[x->index] : NULL;
            s.pure = false;
            s.can = t && (t->data || !s.count) && s.count <= HOST_INPUT;
        }
        if (x->op != OP_const && x->op != OP_call && s.count > HOST_CONE)
            s.can = false;
        for (int k = 0; k < x->nin; k++) {
            s.can &= h->node.at[x->in[k]->id].can;
            s.pure &= h->node.at[x->in[k]->id].pure;
        }
        vec_push(g->arena, &h->node, s);
    }
    return &h->node.at[n->id];
}

/* Whether x can be computed now, within the limit on the elements of all nodes that takes. */
static bool host_can(Graph *g, Node *x)
{
    HostNode *s = host_node(g, x);
    HostTables *h = g->host;
    int64_t total = 0;
    if (!s->can || s->value)
        return s->can;
    h->stack.n = 0;
    vec_push(g->arena, &h->stack, x);
    s->seen = ++h->seen;
    while (h->stack.n) {
        Node *n = h->stack.at[--h->stack.n];
        total += n->op == OP_const ? 1 : h->node.at[n->id].count + 1;
        if (total > HOST_CONE)
            return false;
        for (int k = 0; k < n->nin; k++) {
            HostNode *from = &h->node.at[n->in[k]->id];
            if (from->seen != h->seen) {
                from->seen = h->seen;
                vec_push(g->arena, &h->stack, n->in[k]);
            }
        }
    }
    return true;
}

/* The value for the hints; host_can(x) holds. Recorded once. */
static const Tensor *host_eval(Graph *g, Node *x)
{
    HostNode *s = host_node(g, x);
    HostTables *h = g->host;
    if (s->value)
        return s->value;
    if (h->ninputs != g->hint.n) {
        h->inputs = NEWS(g->arena, Tensor, g->hint.n);
        h->ninputs = g->hint.n;
        for (int k = 0; k < g->hint.n; k++)
            if (g->hint.at[k])
                h->inputs[k] = *g->hint.at[k];
    }
    for (int k = h->sym.n; k < g->sym.n; k++)
        vec_push(g->arena, &h->sym, g->sym.at[k].hint);
    Tensor *t = NEW(g->arena, Tensor);
    eval_nodes(g->cx, g->arena, g, h->inputs, h->sym.at, 1, &x, t);
    host_node(g, x)->value = t;
    return t;
}

/* ---- value symbols ------------------------------------------------------------------------------------- */
/* Element k of x as a symbol (or its value, where that is below 1: see graph_sym); pin: its value is what
 * the graph was built for. */
static Dim *host_sym(Graph *g, Node *x, int k, bool pin)
{
    Node *as = x->dt == DT_i64 ? x : g_cast(g, x, DT_i64);
    const Tensor *t = host_eval(g, as);
    HostNode *s = host_node(g, as);
    if (!s->elem)
        s->elem = NEWS(g->arena, Dim *, tensor_count(t) + 1);
    if (!s->elem[k]) {
        Sym sym = { .hint = *(const int64_t *)tensor_at(t, k), .from = SYM_value, .node = as, .elem = k };
        sym.name = arena_fmt(g->arena, "v%d", g->sym.n);
        s->elem[k] = graph_sym(g, &sym);
    }
    if (pin)
        dim_decide_value(g, s->elem[k], "a value computed from data is what it was when the graph was built");
    return s->elem[k];
}

/* ---- one element as an expression ---------------------------------------------------------------------- */
/* Known: v (of the node's dtype). Else d, an expression of an i64 or i32 element. */
typedef struct Elem { bool known; Scalar v; Dim *d; } Elem;
/* Elements of nodes of rank 0 and 1 that were found, so that shared nodes are walked once. */
typedef struct Walk {
    Graph *g;
    int steps;
    struct WalkMemo { const Node *n; int64_t at; Elem e; } memo[256];
} Walk;

static bool host_walk(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e);

static Dim *elem_dim(Graph *g, const Elem *e) { return e->known ? dim_const(g, e->v.i) : e->d; }

static bool elem_set(Elem *e, Dim *d)
{
    if (!d)
        return false;
    e->known = dim_is_const(d);
    e->d = d;
    if (e->known)
        e->v.i = d->c;
    return true;
}

static bool elem_const(Elem *e, Scalar v)
{
    e->known = true;
    e->v = v;
    return true;
}

static bool elem_truth(Elem *e, bool b) { return elem_const(e, (Scalar){ .i = b }); }

/* Where a view reads for the result's element idx: at. *valid: the predicate. False when that depends on
 * more than a decision. */
static bool view_at(Graph *g, const View *v, int rank, const int64_t *idx, int nop, const Elem *op,
                    const Node *src, int64_t *at, bool *valid)
{
    Dim *to[DIM_OPERAND + MAX_RANK] = { 0 };
    int n = nop ? DIM_OPERAND + nop : rank;
    for (int k = 0; k < rank; k++)
        to[k] = dim_const(g, idx[k]);
    for (int k = 0; k < nop; k++)
        to[DIM_OPERAND + k] = elem_dim(g, &op[k]);
    *valid = true;
    for (int k = 0; k < v->npred && *valid; k++) {
        Dim *e = dim_subst(g, v->pred[k].e, n, to), *m = dim_subst(g, v->pred[k].n, n, to);
        *valid = !dim_decide_lt(g, e, dim_const(g, 0), "which elements of a shape a view takes")
              && dim_decide_lt(g, e, m, "which elements of a shape a view takes");
    }
    for (int k = 0; k < v->nidx && *valid; k++) {
        Dim *e = dim_subst(g, v->idx[k], n, to);
        if (!dim_is_const(e) || e->c < 0 || (dim_is_const(src->dims[k]) && e->c >= src->dims[k]->c))
            return false;
        at[k] = e->c;
    }
    return true;
}

static bool walk_view(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    Elem op[MAX_RANK] = { 0 };
    int64_t at[MAX_RANK] = { 0 };
    bool valid;
    int nop = n->nin - 1;
    for (int k = 0; k < nop; k++)
        if (!host_walk(w, n->in[1 + k], idx, depth, &op[k]))
            return false;
    if (!view_at(w->g, &n->view, n->rank, idx, nop, op, n->in[0], at, &valid))
        return false;
    return valid ? host_walk(w, n->in[0], at, depth, e) : elem_const(e, n->view.fill);
}

static bool walk_join(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    int64_t at[MAX_RANK] = { 0 };
    memcpy(at, idx, sizeof *at * (size_t)n->rank);
    for (int k = 0; k < n->nin; k++) {
        Dim *size = n->in[k]->dims[n->axis];
        if (!dim_is_const(size))
            return false;
        if (at[n->axis] < size->c)
            return host_walk(w, n->in[k], at, depth, e);
        at[n->axis] -= size->c;
    }
    return false;
}

static bool walk_fold(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    Node *x = n->in[0];
    int64_t at[MAX_RANK] = { 0 }, total = 1;
    Dim *r = NULL;
    if (n->kind == FOLD_argmax || n->kind == FOLD_argmin || (n->dt != DT_i64 && n->dt != DT_i32))
        return false;
    for (int k = 0, o = 0; k < x->rank; k++) {
        if (!(n->axes & axis_bit(k)))
            at[k] = idx[o++];
        else if (!dim_is_const(x->dims[k]) || x->dims[k]->c > HOST_RESULT)
            return false;
        else
            total *= x->dims[k]->c;
    }
    if (total > HOST_RESULT)
        return false;
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i;
        Elem v;
        for (int k = x->rank - 1; k >= 0; k--)
            if (n->axes & axis_bit(k))
                at[k] = rest % x->dims[k]->c, rest /= x->dims[k]->c;
        if (!host_walk(w, x, at, depth, &v))
            return false;
        Dim *d = elem_dim(w->g, &v);
        if (!r) {
            r = d;
            continue;
        }
        r = dim_op(w->g, n->kind == FOLD_sum ? OP_add : n->kind == FOLD_prod ? OP_mul : n->kind == FOLD_max ? OP_max : OP_min, r, d);
        if (!r)
            return false;
    }
    return r ? elem_set(e, r) : elem_const(e, fold_start(n->kind, n->dt));
}

/* Elementwise on sizes: those primitives that are arithmetic of Dims, comparisons by decision. */
static bool walk_ew(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    Graph *g = w->g;
    Elem x[3];
    Scalar v[3];
    bool known = true;
    for (int k = 0; k < n->nin; k++) {
        if (!host_walk(w, n->in[k], idx, depth, &x[k]))
            return false;
        known &= x[k].known;
        v[k] = x[k].v;
    }
    DType t = n->in[0]->dt;
    if (known)
        return elem_const(e, eval_ew(n->op, t, n->nin, v));
    if (t != DT_i64 && t != DT_i32)
        return false;
    Dim *a = elem_dim(g, &x[0]), *b = n->nin > 1 ? elem_dim(g, &x[1]) : NULL, *zero = dim_const(g, 0);
    if (dim_long(a, b))
        return false;
    switch ((int)n->op) {
    case OP_neg: case OP_add: case OP_sub: case OP_mul: case OP_max: case OP_min: return elem_set(e, dim_op(g, n->op, a, b));
    case OP_abs:
        return elem_set(e, dim_decide_lt(g, a, zero, "the sign of a size") ? dim_sub(g, zero, a) : a);
    case OP_lt: return elem_truth(e, dim_decide_lt(g, a, b, "a comparison of sizes in the model"));
    case OP_le: return elem_truth(e, !dim_decide_lt(g, b, a, "a comparison of sizes in the model"));
    case OP_eq: return elem_truth(e, dim_decide_eq(g, a, b, "a comparison of sizes in the model"));
    case OP_div: case OP_fmod: case OP_mod:
        /* Dims divide by positive numbers and round down; the primitives round to zero, which is the same
         * from 0 on. */
        if (!dim_decide_lt(g, zero, b, "a divisor of sizes is positive"))
            return false;
        if (n->op != OP_mod && dim_decide_lt(g, a, zero, "a dividend of sizes is not negative"))
            return false;
        return elem_set(e, n->op == OP_div ? dim_div_try(g, a, b) : dim_mod_try(g, a, b));
    default: return false;
    }
}

static bool walk_cast(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    Elem x;
    DType from = n->in[0]->dt;
    if (!host_walk(w, n->in[0], idx, depth, &x))
        return false;
    if (x.known)
        return elem_const(e, scalar_cast(n->dt, from, x.v, n->saturate));
    if (n->dt == DT_i64 || n->dt == DT_i32)
        return elem_set(e, x.d);
    if (n->dt == DT_bool)
        return elem_truth(e, !dim_decide_eq(w->g, x.d, dim_const(w->g, 0), "the truth of a size"));
    return false;
}

/* Element idx of a tensor of known sizes. */
static bool elem_load(Elem *e, const Tensor *t, const int64_t *idx)
{
    int64_t off = 0;
    for (int k = 0; k < t->rank; k++) {
        if (idx[k] >= t->dims[k])
            return false;
        off += idx[k] * t->strides[k];
    }
    return elem_const(e, scalar_load(t->dt, (const char *)t->data + off * (int64_t)dtype_size(t->dt)));
}

static bool walk_node(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    Graph *g = w->g;
    if (n->op != OP_const && host_node(g, n)->pure && host_can(g, n))
        return elem_load(e, host_eval(g, n), idx);
    switch (n->op) {
#define EW(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define CMP(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
        return walk_ew(w, n, idx, depth, e);
    case OP_const: return elem_load(e, n->tensor, idx);
    case OP_dims: return elem_set(e, n->size[n->rank ? idx[0] : 0]);
    case OP_iota: return elem_const(e, (Scalar){ .i = idx[n->axis] });
    case OP_view: case OP_gather: return walk_view(w, n, idx, depth, e);
    case OP_join: return walk_join(w, n, idx, depth, e);
    case OP_fold: return walk_fold(w, n, idx, depth, e);
    case OP_cast: return walk_cast(w, n, idx, depth, e);
    case OP_where: {
        Elem c;
        return host_walk(w, n->in[0], idx, depth, &c) && c.known &&
               host_walk(w, n->in[c.v.i ? 1 : 2], idx, depth, e);
    }
    case OP_bitcast:
    case OP_input:
    case OP_random:
    case OP_scatter:
    case OP_scan:
    case OP_call:
    case OP_part:
    case OP_COUNT: break;
    }
    return false;
}

static bool host_walk(Walk *w, Node *n, const int64_t *idx, int depth, Elem *e)
{
    int64_t at = n->rank ? idx[0] : 0;
    struct WalkMemo *m = &w->memo[((uint64_t)n->id * 31 + (uint64_t)at) % COUNT_OF(w->memo)];
    if (depth > HOST_DEPTH || w->steps-- <= 0)
        return false;
    if (n->rank <= 1 && m->n == n && m->at == at) {
        *e = m->e;
        return true;
    }
    if (!walk_node(w, n, idx, depth + 1, e))
        return false;
    if (n->rank <= 1)
        *m = (struct WalkMemo){ n, at, *e };
    return true;
}

/* ---- what builders ask --------------------------------------------------------------------------------- */
Dim **host_dims(Graph *g, Node *x, int *n)
{
    Walk w = { .g = g, .steps = HOST_STEPS };
    if (x->rank > 1 || dtype_is_float(x->dt))
        return NULL;
    int64_t count = x->rank ? dim_hint(g, x->dims[0]) : 1;
    if (count > HOST_RESULT)
        return NULL;
    bool can = host_can(g, x);
    if (x->rank && !dim_is_const(x->dims[0])) {
        if (!can)
            return NULL;
        dim_decide_value(g, x->dims[0], "the number of sizes");
    }
    Dim **d = NEWS(g->arena, Dim *, count + 1);
    for (int64_t k = 0; k < count; k++) {
        Elem e;
        if (host_walk(&w, x, &k, 0, &e))
            d[k] = elem_dim(g, &e);
        else if (can)
            d[k] = host_sym(g, x, (int)k, false);
        else
            return NULL;
    }
    *n = (int)count;
    return d;
}

static Node *float_bits(Graph *g, Node *x)
{
    static const DType same[9] = { [1] = DT_i8, [2] = DT_i16, [4] = DT_i32, [8] = DT_i64 };
    return g_bitcast(g, x, same[dtype_size(x->dt)]);
}

const Tensor *host_value(Graph *g, Node *x)
{
    Walk w = { .g = g, .steps = HOST_STEPS };
    HostNode *s = host_node(g, x);
    if (x->op == OP_const && !s->value)
        s->value = x->tensor, s->fixed = true;
    if (s->fixed)
        return s->value;
    if (!host_can(g, x) || s->count > HOST_RESULT)
        return NULL;
    const Tensor *t = host_eval(g, x);
    if (!host_node(g, x)->pure) {
        for (int k = 0; k < x->rank; k++)
            if (!dim_is_const(x->dims[k]))
                dim_decide_value(g, x->dims[k], "the shape of a value that the graph depends on");
        Node *bits = dtype_is_float(x->dt) ? float_bits(g, x) : x;
        for (int64_t i = 0; i < tensor_count(t); i++) {
            int64_t idx[MAX_RANK] = { 0 }, rest = i;
            Elem e;
            for (int k = x->rank - 1; k >= 0; k--)
                idx[k] = rest % t->dims[k], rest /= t->dims[k];
            if (!host_walk(&w, x, idx, 0, &e))
                host_sym(g, bits, (int)i, true);
            else if (!e.known)
                dim_decide_value(g, e.d, "a value that the graph depends on");
        }
    }
    host_node(g, x)->fixed = true;
    return t;
}

/* ---- before a run -------------------------------------------------------------------------------------- */
typedef struct Bind {
    Ctx *cx;
    Arena *arena;
    const Graph *g;
    const Tensor *inputs;
    int64_t *syms;
    const char *why;
} Bind;

static bool bind_inputs(Bind *b)
{
    const Graph *g = b->g;
    for (int k = 0; k < g->sym.n; k++) {
        const Sym *s = &g->sym.at[k];
        b->syms[k] = s->from == SYM_input ? b->inputs[s->input].dims[s->axis] : s->hint;
    }
    for (int k = 0; k < g->input.n; k++) {
        const Node *n = g->input.at[k].node;
        for (int i = 0; n && i < n->rank; i++) {
            int64_t found = b->inputs[k].dims[i], wanted;
            if (dim_is_const(n->dims[i]) || found == (wanted = dim_eval(n->dims[i], b->syms, NULL)))
                continue;
            Text name = { .arena = b->arena };
            dim_print(&name, g, n->dims[i]);
            b->why = arena_fmt(b->arena, "input '%s': axis %d has size %lld, and %s is %lld",
                               g->input.at[k].name, i, (long long)found, name.at, (long long)wanted);
            return false;
        }
    }
    return true;
}

static bool guard_holds(Bind *b, const Guard *q)
{
    int64_t x = dim_eval(q->a, b->syms, NULL), y = dim_eval(q->b, b->syms, NULL);
    if (q->rel == '=' ? x == y : q->rel == '!' ? x != y : q->rel == '<' ? x < y : x >= y)
        return true;
    Text t = { .arena = b->arena };
    const char *rel = q->rel == '=' ? "=" : q->rel == '!' ? "!=" : q->rel == '<' ? "<" : ">=";
    if (q->origin)
        text_add(&t, "%s '%s': ", b->g->origin.at[q->origin].op, b->g->origin.at[q->origin].name);
    text_add(&t, "the graph was built for ");
    dim_print(&t, b->g, q->a);
    text_add(&t, " %s ", rel);
    dim_print(&t, b->g, q->b);
    text_add(&t, " (%s), and these are %lld and %lld", q->why ? q->why : "?", (long long)x, (long long)y);
    b->why = t.at;
    return false;
}

/* The guards whose symbols all lie below `known`. done: those that were checked before, or NULL. */
static bool guards_hold(Bind *b, int known, bool *done)
{
    for (int k = 0; k < b->g->guard.n; k++) {
        const Guard *q = &b->g->guard.at[k];
        if (done && (done[k] || dim_top_sym(q->a) >= known || dim_top_sym(q->b) >= known))
            continue;
        if (!guard_holds(b, q))
            return false;
        if (done)
            done[k] = true;
    }
    return true;
}

/* In order: a value's nodes use symbols that were there before it. What guards say about those is checked
 * first, since outside of it the nodes need not make sense. */
static bool bind_values(Bind *b)
{
    const Graph *g = b->g;
    bool *done = NULL;
    VEC(Node *) node = { 0 };
    VEC(Tensor) data = { 0 };
    for (int k = 0; k < g->sym.n; k++) {
        const Sym *s = &g->sym.at[k];
        if (s->from != SYM_value)
            continue;
        if (!done)
            done = NEWS(b->arena, bool, g->guard.n + 1);
        int i = node.n - 1;
        while (i >= 0 && node.at[i] != s->node)
            i--;
        if (i < 0) {
            Node *n = s->node;
            Tensor t;
            if (!guards_hold(b, k, done))
                return false;
            eval_nodes(b->cx, b->arena, g, b->inputs, b->syms, 1, &n, &t);
            i = node.n;
            vec_push(b->arena, &node, n);
            vec_push(b->arena, &data, t);
        }
        if (s->elem >= tensor_count(&data.at[i])) {
            b->why =
                arena_fmt(b->arena, "value %s has fewer elements than when the graph was built", s->name);
            return false;
        }
        b->syms[k] = ((const int64_t *)data.at[i].data)[s->elem];
    }
    return guards_hold(b, g->sym.n, done);
}

bool host_bind(Ctx *cx, Arena *scratch, const Graph *g, const Tensor *inputs, int64_t *syms, const char **why)
{
    Bind b = { cx, scratch, g, inputs, syms, NULL };
    bool ok = bind_inputs(&b) && bind_values(&b);
    if (why)
        *why = b.why;
    return ok;
}
