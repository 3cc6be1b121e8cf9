/* Graphs: nodes made once each (equal nodes are one node), inputs, symbols, guards, and the folding that
 * is cheap enough to do at once.
 *
 * Equality is by content: operands and size expressions by their ids, fills by their bits, constants by
 * dtype, shape and data address (small ones by their bytes). Two nodes of `random` are one only when their
 * key operand is one node. Nothing here recurses over the graph.
 *
 * Folding: `where` with equal or known branches, casts that change nothing, operations on small known
 * constants, and integer arithmetic on sizes (`dims`), which stays symbolic: so shape arithmetic of a
 * model leaves no node behind. */
#include "ir/dim.h"
#include <string.h>

enum {
    FOLD_LIMIT = 16,
    SMALL_CONST = 64,
    DEFAULT_HINT = 8
}; /* elements; bytes; the size of an axis of which nothing is known */

const PrimInfo prim_info[OP_COUNT] = {
#define EW(name, n, dom, cost, fv, iv, c) [OP_##name] = { #name, n, dom, c, cost, true, false },
#define CMP(name, n, dom, cost, fv, iv, c) [OP_##name] = { #name, n, dom, c, cost, true, true },
#define STRUCT(name, what) [OP_##name] = { #name, -1, NULL, NULL, 1, false, false },
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
};

const char *const fold_name[FOLD_COUNT] = { "sum", "prod", "max", "min", "argmax", "argmin" };
const char *const combine_name[COMBINE_COUNT] = { "set", "add", "mul", "max", "min" };

Op op_from_name(const char *s)
{
    for (int k = 0; k < OP_COUNT; k++)
        if (strcmp(prim_info[k].name, s) == 0) return (Op)k;
    return OP_COUNT;
}

/* ---- sets ---------------------------------------------------------------------------------------------- */

void *set_get(const HashSet *s, uint64_t hash, bool (*same)(const void *item, const void *key),
              const void *key)
{
    if (s->cap == 0) return NULL;
    uint64_t mask = (uint64_t)s->cap - 1;
    for (uint64_t k = hash & mask; s->slot[k].item; k = (k + 1) & mask)
        if (s->slot[k].hash == hash && same(s->slot[k].item, key)) return s->slot[k].item;
    return NULL;
}

void set_put(Arena *a, HashSet *s, uint64_t hash, void *item)
{
    if (s->n * 2 >= s->cap) {
        HashSet big = { NULL, 0, s->cap ? s->cap * 2 : 256 };
        big.slot = arena_alloc(a, size_mul(a, sizeof *big.slot, (size_t)big.cap));
        for (int k = 0; k < s->cap; k++)
            if (s->slot[k].item) set_put(a, &big, s->slot[k].hash, s->slot[k].item);
        *s = big;
    }
    uint64_t mask = (uint64_t)s->cap - 1, k = hash & mask;
    while (s->slot[k].item) k = (k + 1) & mask;
    s->slot[k].hash = hash;
    s->slot[k].item = item;
    s->n++;
}

/* ---- graphs, symbols, guards --------------------------------------------------------------------------- */

Graph *graph_new(Ctx *cx, Arena *a)
{
    Graph *g = NEW(a, Graph);
    g->cx = cx;
    g->arena = a;
    g->tables = NEW(a, struct GraphTables);
    g->tables->sym = mapstr_new(a);
    graph_origin(g, "", "", "");
    return g;
}

int graph_origin(Graph *g, const char *name, const char *op, const char *domain)
{
    Origin o = { arena_str(g->arena, name ? name : ""), arena_str(g->arena, op ? op : ""),
                 arena_str(g->arena, domain ? domain : ""), NULL, 0 };
    vec_push(g->arena, &g->origin, o);
    return g->cur_origin = g->origin.n - 1;
}

void graph_output(Graph *g, const char *name, Node *n)
{
    vec_push(g->arena, &g->output, ((GraphPort){ arena_str(g->arena, name ? name : ""), n }));
}

static bool guard_same(const void *item, const void *key)
{
    const Guard *x = item, *y = key;
    return x->a == y->a && x->b == y->b && x->rel == y->rel;
}

void graph_guard(Graph *g, Dim *a, char rel, Dim *b, const char *why)
{
    if ((rel == '=' || rel == '!') && a->id > b->id) {
        Dim *t = a;
        a = b;
        b = t;
    }
    Guard guard = { a, b, rel, why, g->cur_origin };
    int key[3] = { a->id, b->id, rel };
    uint64_t h = hash_bytes(key, sizeof key, 2);
    if (set_get(&g->tables->guard, h, guard_same, &guard)) return;
    set_put(g->arena, &g->tables->guard, h, arena_copy(g->arena, &guard, sizeof guard));
    vec_push(g->arena, &g->guard, guard);
}

Dim *graph_sym(Graph *g, const Sym *sym)
{
    Sym own = *sym;
    own.name = sym->name ? arena_str(g->arena, sym->name) : arena_fmt(g->arena, "s%d", g->sym.n);
    vec_push(g->arena, &g->sym, own);
    Dim *d = dim_sym(g, g->sym.n - 1);
    if (own.hint >= 1) {
        graph_guard(g, d, 'g', dim_const(g, 1), "a size that was not 0 stays so");
        return d;
    }
    Dim *c = dim_const(g, own.hint);
    graph_guard(g, d, '=', c, "a value below 1 stays what it is");
    return c;
}

static Dim *input_dim(Graph *g, const char *input, int axis, const char *name, int64_t hint)
{
    Sym s = { name, hint, SYM_input, g->input.n, axis, NULL, 0 };
    if (!name || !*name) s.name = arena_fmt(g->arena, "%s_%d", input, axis);
    void **slot = mapstr_at(g->tables->sym, s.name);
    if (*slot && (!name || !*name)) { /* a made-up name that the model uses for something else */
        for (int k = 1; *slot; k++) {
            s.name = arena_fmt(g->arena, "%s_%d_%d", input, axis, k);
            slot = mapstr_at(g->tables->sym, s.name);
        }
    }
    if (!*slot) {
        Dim *d = graph_sym(g, &s);
        return *slot = d;
    }
    int first = 0;
    for (; first < g->sym.n && strcmp(g->sym.at[first].name, s.name) != 0; first++) {}
    if (g->sym.at[first].hint != hint)
        fail(g->cx, E_INVALID, "axis %d of input '%s' has the size %lld, but '%s' was %lld before", axis,
             input, (long long)hint, s.name, (long long)g->sym.at[first].hint);
    return *slot;
}

Node *graph_input(Graph *g, const char *name, DType dt, int rank, const int64_t *dims, const char *const *sym,
                  const Tensor *hint)
{
    int64_t size[MAX_RANK];
    Dim *dim[MAX_RANK];
    name = arena_str(g->arena, name ? name : "");
    if (rank < 0 || rank > MAX_RANK)
        fail(g->cx, E_INVALID, "input '%s' has rank %d; wanted 0 to %d", name, rank, MAX_RANK);
    if (hint && (hint->rank != rank || hint->dt != dt))
        fail(g->cx, E_INVALID, "input '%s': the example has type %s and rank %d; wanted %s and rank %d", name,
             dtype_info[hint->dt].name, hint->rank, dtype_info[dt].name, rank);
    for (int k = 0; k < rank; k++) {
        size[k] = hint ? hint->dims[k] : dims[k] >= 0 ? dims[k] : DEFAULT_HINT;
        if (dims[k] < 0 && !hint && sym && sym[k] &&
            mapstr_get(g->tables->sym, sym[k])) /* as the symbol was hinted before */
            size[k] = dim_hint(g, mapstr_get(g->tables->sym, sym[k]));
        if (dims[k] >= 0 && size[k] != dims[k])
            fail(g->cx, E_INVALID, "input '%s': axis %d of the example has the size %lld; wanted %lld", name,
                 k, (long long)size[k], (long long)dims[k]);
        dim[k] = dims[k] >= 0 ? dim_const(g, dims[k]) : input_dim(g, name, k, sym ? sym[k] : NULL, size[k]);
    }
    Tensor *example = NEW(g->arena, Tensor);
    tensor_init(g->cx, example, dt, rank, size);
    if (hint) *example = *hint;
    Node *n =
        graph_add(g, &(Node){ .op = OP_input, .dt = dt, .rank = rank, .dims = dim, .index = g->input.n });
    vec_push(g->arena, &g->input, ((GraphPort){ name, n }));
    vec_push(g->arena, &g->hint, example);
    return n;
}

Node *graph_remake(Graph *g, Node *n, Node *const *made)
{
    bool same = true;
    for (int i = 0; i < n->nin; i++) same &= made[n->in[i]->id] == n->in[i];
    if (same) return n;
    Node **in = NEWS(g->arena, Node *, n->nin + 1), proto = *n;
    for (int i = 0; i < n->nin; i++) in[i] = made[n->in[i]->id];
    proto.in = in;
    return n->op == OP_view ? g_view(g, in[0], n->rank, n->dims, &n->view) : graph_add(g, &proto);
}

int fold_index(Graph *g, const Node *f, Dim *const *in, Dim **out)
{
    const Node *whole = fold_whole(f);
    int r = 0;
    for (int k = 0; k < whole->in[0]->rank; k++) {
        if (!(whole->axes >> k & 1)) out[r++] = in[k];
        else if (f->whole && k == f->axis) { out[r] = dim_idx(g, PART_VAR, f->dims[r]); r++; }
    }
    return r;
}

uint8_t *graph_live(Arena *a, const Graph *g)
{
    uint8_t *live = NEWS(a, uint8_t, g->node.n + 1);
    for (int i = 0; i < g->output.n; i++) live[g->output.at[i].node->id] = 1;
    for (int i = g->node.n; i-- > 0;)
        for (int k = 0; live[i] && k < g->node.at[i]->nin; k++) live[g->node.at[i]->in[k]->id] = 1;
    for (int i = 0; i < g->node.n; i++)
        if (g->node.at[i]->op == OP_part) live[i] = live[g->node.at[i]->in[0]->id];
    return live;
}

int *graph_uses(Arena *a, const Graph *g)
{
    const uint8_t *live = graph_live(a, g);
    int *uses = NEWS(a, int, g->node.n + 1);
    for (int id = 0; id < g->node.n; id++) for (int i = 0; live[id] && i < g->node.at[id]->nin; i++) uses[g->node.at[id]->in[i]->id]++;
    for (int i = 0; i < g->output.n; i++) uses[g->output.at[i].node->id]++;
    return uses;
}

int graph_remake_all(Ctx *cx, Arena *a, Graph *g, BetterFn better, void *arg)
{
    int n = g->node.n, origin = g->cur_origin, changed = 0;
    uint8_t *live = graph_live(a, g);
    Node **made = NEWS(a, Node *, n + 1);
    for (int id = 0; id < n; id++) {
        Node *x = g->node.at[id];
        if (!live[id]) continue;
        if ((id & 255) == 0) ctx_poll(cx);
        g->cur_origin = x->origin;
        made[id] = graph_remake(g, x, made);
        Node *y = better(g, x, made[id], arg);
        if (y) { made[id] = y; changed++; }
    }
    for (int i = 0; i < g->output.n; i++) g->output.at[i].node = made[g->output.at[i].node->id];
    g->cur_origin = origin;
    return changed;
}

/* ---- equality of nodes --------------------------------------------------------------------------------- */

static bool tensor_is_small(const Tensor *t)
{
    return t->data && tensor_dense(t) && tensor_bytes(t) <= SMALL_CONST;
}

static bool tensor_same(const Tensor *x, const Tensor *y)
{
    if (x->dt != y->dt || x->rank != y->rank ||
        memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)x->rank) != 0)
        return false;
    if (tensor_is_small(x) && tensor_is_small(y))
        return tensor_bytes(x) == 0 || memcmp(x->data, y->data, tensor_bytes(x)) == 0;
    return x->data == y->data && memcmp(x->strides, y->strides, sizeof *x->strides * (size_t)x->rank) == 0;
}

static bool call_same(const Call *x, const Call *y)
{
    if (x->def != y->def || x->nin != y->nin || x->nout != y->nout || x->attr_size != y->attr_size)
        return false;
    if (memcmp(x->out_dt, y->out_dt, sizeof *x->out_dt * (size_t)x->nout) != 0) return false;
    return x->attr_size ? memcmp(x->attr, y->attr, x->attr_size) == 0 : x->attr == y->attr;
}

static int dims_node_count(const Node *n) { return n->rank == 0 ? 1 : (int)n->dims[0]->c; }

static bool view_same(const View *x, const View *y)
{
    if (x->nidx != y->nidx || x->npred != y->npred || x->fill.u != y->fill.u) return false;
    for (int k = 0; k < x->nidx; k++)
        if (x->idx[k] != y->idx[k]) return false;
    for (int k = 0; k < x->npred; k++)
        if (x->pred[k].e != y->pred[k].e || x->pred[k].n != y->pred[k].n) return false;
    return true;
}

static bool node_same(const void *item, const void *key)
{
    const Node *x = item, *y = key;
    if (x->op != y->op || x->dt != y->dt || x->rank != y->rank || x->nin != y->nin || x->kind != y->kind ||
        x->axes != y->axes || x->last != y->last)
        return false;
    for (int k = 0; k < x->rank; k++)
        if (x->dims[k] != y->dims[k]) return false;
    for (int k = 0; k < x->nin; k++)
        if (x->in[k] != y->in[k]) return false;
    switch (x->op) {
    case OP_input:
    case OP_part: return x->index == y->index;
    case OP_iota:
    case OP_scan:
    case OP_join: return x->axis == y->axis;
    case OP_const: return tensor_same(x->tensor, y->tensor);
    case OP_dims:
        for (int k = 0; k < dims_node_count(x); k++)
            if (x->size[k] != y->size[k]) return false;
        return true;
    case OP_view:
    case OP_gather:
    case OP_scatter: return view_same(&x->view, &y->view);
    case OP_cast: return x->saturate == y->saturate;
    case OP_call: return call_same(x->call, y->call);
    case OP_where:
    case OP_bitcast:
    case OP_random:
    case OP_fold: return true;
#define EW(name, n, dom, cost, fv, iv, c) case OP_##name:
#define CMP(name, n, dom, cost, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    case OP_COUNT: break;
    }
    return true;
}

static uint64_t hash_int(uint64_t h, int64_t v) { return hash_bytes(&v, sizeof v, h); }

/* Hashes only find equal nodes; no order and no output follows from them, so addresses may be in them. */
static uint64_t node_hash(const Node *n)
{
    int64_t head[8] = { n->op, n->dt, n->rank, n->nin, n->kind, n->axes, n->last, 0 };
    uint64_t h = hash_bytes(head, sizeof head, 3);
    for (int k = 0; k < n->rank; k++) h = hash_int(h, n->dims[k]->id);
    for (int k = 0; k < n->nin; k++) h = hash_int(h, n->in[k]->id);
    switch (n->op) {
    case OP_input:
    case OP_part: return hash_int(h, n->index);
    case OP_iota:
    case OP_scan:
    case OP_join: return hash_int(h, n->axis);
    case OP_const:
        if (tensor_is_small(n->tensor))
            h = hash_bytes(n->tensor->data, tensor_bytes(n->tensor), h);
        else
            h = hash_int(h, (int64_t)(uintptr_t)n->tensor->data);
        return h;
    case OP_dims:
        for (int k = 0; k < dims_node_count(n); k++) h = hash_int(h, n->size[k]->id);
        return h;
    case OP_view:
    case OP_gather:
    case OP_scatter:
        for (int k = 0; k < n->view.nidx; k++) h = hash_int(h, n->view.idx[k]->id);
        for (int k = 0; k < n->view.npred; k++)
            h = hash_int(hash_int(h, n->view.pred[k].e->id), n->view.pred[k].n->id);
        return hash_int(h, n->view.fill.i);
    case OP_cast: return hash_int(h, n->saturate);
    case OP_call:
        for (const char *s = n->call->def->name; *s; s++) h = h * 31 + (unsigned char)*s;
        return n->call->attr_size ? hash_bytes(n->call->attr, n->call->attr_size, h) : h;
    case OP_where:
    case OP_bitcast:
    case OP_random:
    case OP_fold: return h;
#define EW(name, k, dom, cost, fv, iv, c) case OP_##name:
#define CMP(name, k, dom, cost, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    case OP_COUNT: break;
    }
    return h;
}

static const Node *under_view(const Node *n) { return n->op == OP_view ? n->in[0] : n; }

/* Fields that mean nothing for the op are cleared, so that they cannot tell equal nodes apart. */
static void node_normalize(Node *n)
{
    if (n->whole && (n->op != OP_fold || under_view(n->in[0]) != under_view(n->whole->in[0]))) n->whole = NULL;     /* made anew of other operands */
    if (!n->whole) n->step = 0;
    bool folds = n->op == OP_fold || n->op == OP_scan;
    if (!folds && n->op != OP_scatter) n->kind = 0;
    if (n->op != OP_fold) n->axes = 0;
    if (!(n->op == OP_fold && (n->kind == FOLD_argmax || n->kind == FOLD_argmin))) n->last = false;
    if (n->op == OP_cast && !(dtype_is_float(n->dt) && dtype_size(n->dt) == 1)) n->saturate = false;
    if ((n->op == OP_view || n->op == OP_gather || n->op == OP_scatter) && n->view.npred == 0)
        n->view.fill.u = 0;
}

static Node *node_intern(Graph *g, const Node *proto)
{
    uint64_t h = node_hash(proto);
    Node *n = set_get(&g->tables->node, h, node_same, proto);
    if (n) return n;
    for (int k = 0; k < proto->rank; k++) if (!dim_fits(g, proto->dims[k])) fail(g->cx, E_INVALID, "a size does not fit in 64 bits");
    Arena *a = g->arena;
    n = arena_copy(a, proto, sizeof *n);
    n->id = g->node.n;
    n->origin = g->cur_origin;
    n->dims = arena_copy(a, proto->dims, sizeof *n->dims * (size_t)n->rank);
    n->in = arena_copy(a, proto->in, sizeof *n->in * (size_t)n->nin);
    if (n->op == OP_dims) n->size = arena_copy(a, proto->size, sizeof *n->size * (size_t)dims_node_count(n));
    if (n->op == OP_view || n->op == OP_gather || n->op == OP_scatter) {
        n->view.idx = arena_copy(a, proto->view.idx, sizeof *n->view.idx * (size_t)n->view.nidx);
        n->view.pred = arena_copy(a, proto->view.pred, sizeof *n->view.pred * (size_t)n->view.npred);
    }
    set_put(a, &g->tables->node, h, n);
    vec_push(a, &g->node, n);
    return n;
}

/* ---- folding: known constants -------------------------------------------------------------------------- */

/* Number of elements when the sizes are constants and it is at most FOLD_LIMIT, else -1. */
static int64_t node_small_count(const Node *n)
{
    int64_t count = 1;
    for (int k = 0; k < n->rank; k++) {
        if (!dim_is_const(n->dims[k]) || n->dims[k]->c > FOLD_LIMIT) return -1;
        count *= n->dims[k]->c;
        if (count > FOLD_LIMIT) return -1;
    }
    return count;
}

static Node *const_like(Graph *g, const Node *n, Tensor *t)
{
    return node_intern(g,
                       &(Node){ .op = OP_const, .dt = n->dt, .rank = n->rank, .dims = n->dims, .tensor = t });
}

static Tensor *tensor_like(Graph *g, const Node *n)
{
    int64_t size[MAX_RANK];
    for (int k = 0; k < n->rank; k++) size[k] = n->dims[k]->c;
    return tensor_new(g->arena, g->cx, n->dt, n->rank, size);
}

static Node *fold_consts(Graph *g, const Node *n)
{
    bool elementwise = prim_info[n->op].elementwise;
    if (!(elementwise || n->op == OP_where || n->op == OP_cast || n->op == OP_bitcast) || n->nin == 0 ||
        n->nin > 3)
        return NULL;
    int64_t count = node_small_count(n);
    if (count < 0) return NULL;
    for (int k = 0; k < n->nin; k++)
        if (n->in[k]->op != OP_const || !n->in[k]->tensor->data || node_small_count(n->in[k]) != count)
            return NULL;
    Tensor *t = tensor_like(g, n);
    DType from = n->in[0]->dt;
    for (int64_t j = 0; j < count; j++) {
        Scalar v[3] = { { 0 } }, r;
        void *to = tensor_at(t, j);
        if (n->op == OP_bitcast) {
            memcpy(to, tensor_at(n->in[0]->tensor, j), dtype_size(n->dt));
            continue;
        }
        for (int k = 0; k < n->nin; k++) v[k] = scalar_load(n->in[k]->dt, tensor_at(n->in[k]->tensor, j));
        if (elementwise)
            r = eval_ew(n->op, from, n->nin, v);
        else if (n->op == OP_where)
            r = v[0].i ? v[1] : v[2];
        else
            r = scalar_cast(n->dt, from, v[0], n->saturate);
        scalar_store(n->dt, to, r);
    }
    return const_like(g, n, t);
}

/* ---- folding: sizes as data ---------------------------------------------------------------------------- */

/* Casts of sizes to i32 are looked through: graph_fits guards that the values survive them. */
Dim **node_as_dims(Graph *g, Node *x, int *n)
{
    if (x->op == OP_cast && x->dt == DT_i32 && x->in[0]->op == OP_dims) x = x->in[0];
    if (x->rank > 1 || (x->rank == 1 && !dim_is_const(x->dims[0]))) return NULL;
    if (x->op == OP_dims) {
        *n = dims_node_count(x);
        return arena_copy(g->arena, x->size, sizeof *x->size * (size_t)*n);
    }
    if (x->op != OP_const || (x->dt != DT_i64 && x->dt != DT_i32) || !x->tensor->data ||
        tensor_count(x->tensor) > 4 * FOLD_LIMIT)
        return NULL;
    *n = (int)tensor_count(x->tensor);
    Dim **v = NEWS(g->arena, Dim *, *n);
    for (int k = 0; k < *n; k++) v[k] = dim_const(g, scalar_load(x->dt, tensor_at(x->tensor, k)).i);
    return v;
}

/* Coefficients below 2^bits: products and sums of such do not overflow, so symbolic arithmetic agrees with
 * that of i64. */
static bool dim_small(const Dim *d, int bits)
{
    int64_t m = (int64_t)1 << bits;
    if (d->c <= -m || d->c >= m) return false;
    for (int k = 0; k < d->n; k++)
        if (d->term[k].coef <= -m || d->term[k].coef >= m) return false;
    return true;
}

/* i32 arithmetic on sizes is that of integers as long as the values fit: known, or guarded. */
static bool graph_fits(Graph *g, DType dt, Dim *d)
{
    if (dt == DT_i64) return true;
    const char *why = "a size computed in 32 bits fits them";
    if (d->idx_mask || d->lo < INT32_MIN) return false;
    return d->hi <= INT32_MAX || dim_decide_lt(g, d, dim_const(g, (int64_t)INT32_MAX + 1), why);
}

Dim *dim_op(Graph *g, Op op, Dim *a, Dim *b)
{
    if (dim_long(a, b)) return NULL;
    switch (op) {
    case OP_add: return dim_small(a, 61) && dim_small(b, 61) ? dim_add_try(g, a, b, 1) : NULL;
    case OP_sub: return dim_small(a, 61) && dim_small(b, 61) ? dim_add_try(g, a, b, -1) : NULL;
    case OP_mul: return dim_small(a, 20) && dim_small(b, 20) ? dim_mul_try(g, a, b) : NULL;
    case OP_neg: return dim_small(a, 61) ? dim_mulc(g, a, -1) : NULL;
    case OP_abs: return dim_prove_ge0(g, a) ? a : NULL;
    case OP_min: return dim_minmax_try(g, DIM_min, a, b);
    case OP_max: return dim_minmax_try(g, DIM_max, a, b);
    case OP_div:
    case OP_fmod: /* toward zero: that of floor for a >= 0 */
        if (!dim_small(a, 31) || !dim_small(b, 31) || !dim_prove_ge0(g, a) || b->hi < 1 ||
            !dim_prove_lt(g, dim_const(g, 0), b))
            return NULL;
        return op == OP_div ? dim_div_try(g, a, b) : dim_mod_try(g, a, b);
    case OP_mod:
        if (!dim_small(a, 31) || !dim_small(b, 31) || b->hi < 1 || !dim_prove_lt(g, dim_const(g, 0), b))
            return NULL;
        return dim_mod_try(g, a, b);
    default: return NULL; /* any other primitive: no arithmetic of sizes */
    }
}

/* A comparison of sizes: 0, 1, or -1 when it depends on them. */
static int dim_compare(Graph *g, Op op, Dim *a, Dim *b)
{
    if (!dim_small(a, 61) || !dim_small(b, 61)) return -1;
    bool less = dim_prove_lt(g, a, b), more = !less && dim_prove_lt(g, b, a);
    if (op == OP_eq) return a == b ? 1 : less || more ? 0 : -1;
    if (op == OP_lt) return less ? 1 : a == b || more || dim_prove_ge0(g, dim_sub(g, a, b)) ? 0 : -1;
    if (op == OP_le) return less || a == b || dim_prove_ge0(g, dim_sub(g, b, a)) ? 1 : more ? 0 : -1;
    return -1;
}

static Node *dims_like(Graph *g, const Node *n, Dim **v)
{
    Node *x =
        graph_add(g, &(Node){ .op = OP_dims, .dt = DT_i64, .rank = n->rank, .dims = n->dims, .size = v });
    if (n->dt == DT_i64) return x;
    return graph_add(
        g, &(Node){ .op = OP_cast, .dt = n->dt, .rank = n->rank, .dims = n->dims, .nin = 1, .in = &x });
}

static Node *fold_compare(Graph *g, const Node *n, Dim **a, Dim **b, int count)
{
    Tensor *t = NULL;
    for (int k = 0; k < count; k++) {
        int r = dim_compare(g, n->op, a[k], b[k]);
        if (r < 0) return NULL;
        if (!t) t = tensor_like(g, n);
        scalar_store(DT_bool, tensor_at(t, k), (Scalar){ .i = r });
    }
    return const_like(g, n, t ? t : tensor_like(g, n));
}

/* Whether folding is worth trying: an operand that is `dims`, directly or below a cast to i32. */
static bool uses_dims(const Node *n)
{
    for (int k = 0; k < n->nin; k++) {
        const Node *x = n->in[k];
        if (x->op == OP_dims || (x->op == OP_cast && x->dt == DT_i32 && x->in[0]->op == OP_dims)) return true;
    }
    return false;
}

static Node *fold_dims_reduce(Graph *g, const Node *n)
{
    int count;
    Dim **v = node_as_dims(g, n->in[0], &count), *r;
    if (!v || n->rank != 0 || n->in[0]->rank != 1 || n->axes != 1 || n->dt != DT_i64 || count == 0)
        return NULL;
    Op op = n->kind == FOLD_sum    ? OP_add
            : n->kind == FOLD_prod ? OP_mul
            : n->kind == FOLD_max  ? OP_max
            : n->kind == FOLD_min  ? OP_min
                                   : OP_COUNT;
    r = v[0];
    for (int k = 1; k < count && r; k++) r = dim_op(g, op, r, v[k]);
    return r ? dims_like(g, n, &r) : NULL;
}

static Node *fold_dims(Graph *g, const Node *n)
{
    const PrimInfo *p = &prim_info[n->op];
    int count = 0, other = 0;
    Dim **a, **b = NULL;
    if (n->rank > 1 || !uses_dims(n)) return NULL;
    if (n->op == OP_fold) return fold_dims_reduce(g, n);
    if (n->op == OP_cast) { /* back from i32 */
        a = n->dt == DT_i64 ? node_as_dims(g, n->in[0], &count) : NULL;
        for (int k = 0; a && k < count; k++)
            if (!graph_fits(g, n->in[0]->dt, a[k])) return NULL;
        return a ? dims_like(g, n, a) : NULL;
    }
    int first = n->op == OP_where;
    if (!p->elementwise && !first) return NULL;
    if (n->nin - first < 1 || n->nin - first > 2) return NULL;
    a = node_as_dims(g, n->in[first], &count);
    if (n->nin - first == 2) b = node_as_dims(g, n->in[first + 1], &other);
    if (!a || (n->nin - first == 2 && (!b || other != count))) return NULL;
    DType dt = n->in[first]->dt;
    for (int k = 0; k < count; k++)
        if (!graph_fits(g, dt, a[k]) || (b && !graph_fits(g, dt, b[k]))) return NULL;
    if (p->compares) return b ? fold_compare(g, n, a, b, count) : NULL;
    Dim **v = NEWS(g->arena, Dim *, count);
    const Tensor *c = first && n->in[0]->op == OP_const ? n->in[0]->tensor : NULL;
    if (first && (!c || !c->data || tensor_count(c) != count)) return NULL;
    for (int k = 0; k < count; k++) {
        v[k] = first ? (scalar_load(DT_bool, tensor_at(c, k)).i ? a[k] : b[k])
                     : dim_op(g, n->op, a[k], b ? b[k] : NULL);
        if (!v[k] || (!first && !graph_fits(g, dt, v[k]))) return NULL;
    }
    return dims_like(g, n, v);
}

/* Sizes that are all known are a constant. */
static Node *fold_known_dims(Graph *g, const Node *n)
{
    int count = dims_node_count(n);
    for (int k = 0; k < count; k++)
        if (!dim_is_const(n->size[k])) return NULL;
    Tensor *t = tensor_like(g, n);
    for (int k = 0; k < count; k++) scalar_store(DT_i64, tensor_at(t, k), (Scalar){ .i = n->size[k]->c });
    return const_like(g, n, t);
}

/* in[1] or in[2] when the condition is a constant with one value. */
static Node *fold_where(const Node *n)
{
    if (n->in[1] == n->in[2]) return n->in[1];
    const Node *c = n->in[0];
    while (c->op == OP_view && c->view.npred == 0) c = c->in[0];
    if (c->op != OP_const || !c->tensor->data || tensor_count(c->tensor) == 0 ||
        tensor_count(c->tensor) > FOLD_LIMIT)
        return NULL;
    bool one = scalar_load(c->dt, tensor_at(c->tensor, 0)).i != 0;
    for (int64_t k = 1; k < tensor_count(c->tensor); k++)
        if ((scalar_load(c->dt, tensor_at(c->tensor, k)).i != 0) != one) return NULL;
    return one ? n->in[1] : n->in[2];
}

Node *graph_add(Graph *g, const Node *proto)
{
    Node n = *proto, *r = NULL, *base;
    ASSERT(n.op >= 0 && n.op < OP_COUNT && n.rank >= 0 && n.rank <= MAX_RANK && (n.nin == 0 || n.in));
    for (int k = 0; k < n.nin; k++) ASSERT(n.in[k]->id < g->node.n && g->node.at[n.in[k]->id] == n.in[k]);
    node_normalize(&n);
    if (n.op == OP_where) r = fold_where(&n);
    if (n.op == OP_cast && n.dt == n.in[0]->dt) return n.in[0];
    if (n.op == OP_bitcast) {
        if (n.in[0]->op == OP_bitcast) { /* n.in may be the caller's: it is not written to */
            base = n.in[0]->in[0];
            n.in = &base;
        }
        if (n.dt == n.in[0]->dt) return n.in[0];
    }
    if (n.op == OP_dims) {
        ASSERT(n.rank <= 1 && n.dt == DT_i64 && (n.rank == 0 || dim_is_const(n.dims[0])));
        r = fold_known_dims(g, &n);
    }
    if (!r) r = fold_consts(g, &n);
    if (!r) r = fold_dims(g, &n);
    return r ? r : node_intern(g, &n);
}
