/* What planning wants to know of each node before it is placed: who reads it and how often, whether it depends on constants only, whether it lies in memory
 * in any case, whether it costs more to read than to compute again.
 *
 * Each fact is found in one sweep over the graph, upwards where it comes from the operands (constant, reads no memory) and downwards where it comes from the
 * readers (live, spread), and lies in an array of the Planner by node id. Two of them are found as nodes are placed, operands first, since not every node
 * is asked for: reads_nothing() and widens(). */
#include "fuse/fuse.h"

NodeClass node_class(const Node *n)
{
    switch (n->op) {
    case OP_input: case OP_const: case OP_dims: case OP_iota: case OP_view: return CLASS_free;
    case OP_fold: return CLASS_fold;
    case OP_scan: return CLASS_scan;
    case OP_scatter: case OP_join: case OP_call: case OP_part: case OP_COUNT: return CLASS_whole;
    default: return CLASS_map;
    }
}

bool op_cheap(Op op) { return op != OP_random && prim_info[op].cost < OPERATIONS_POWER; }

/* ---- all nodes at once ------------------------------------------------------------------------------------------------------------------------ */
static void mark_live(Planner *p)
{
    Graph *g = p->g;
    for (int i = 0; i < g->output.n; i++) { p->live[g->output.at[i].node->id] = 1; p->output[g->output.at[i].node->id] = p->dense[g->output.at[i].node->id] = 1; p->uses[g->output.at[i].node->id]++; }
    for (int id = g->node.n - 1; id >= 0; id--) {
        const Node *n = g->node.at[id];
        if (n->op == OP_part && p->live[id]) p->live[n->in[0]->id] = 1;
        if (!p->live[id]) continue;
        for (int i = 0; i < n->nin; i++) {
            p->live[n->in[i]->id] = 1;
            p->uses[n->in[i]->id]++;
            if (n->op == OP_call) p->dense[n->in[i]->id] = 1;
            if (n->op == OP_fold) p->folds[fold_whole(n)->in[0]->id]++;
        }
    }
}

static int64_t count_hint(const Planner *p, const Node *n)
{
    int64_t c = 1;
    for (int k = 0; k < n->rank; k++) c *= dim_hint(p->g, n->dims[k]);
    return c;
}

/* Depends on constants only, and is not much larger than what it comes from: computed once when the program is made. */
static void mark_constant(Planner *p)
{
    for (int id = 0; id < p->g->node.n; id++) {
        const Node *n = p->g->node.at[id];
        bool c = n->op == OP_const || (n->nin > 0 && n->op != OP_call && n->op != OP_part && n->op != OP_random);
        int64_t most = 4096, sum = 0;
        for (int k = 0; k < n->rank; k++) c = c && dim_is_const(n->dims[k]);
        if (n->op == OP_view || n->op == OP_gather || n->op == OP_scatter) c = c && !view_open(&n->view);
        for (int i = 0; i < n->nin && c; i++) {
            c = c && p->constant[n->in[i]->id];
            int64_t have = count_hint(p, n->in[i]->op == OP_view ? n->in[i]->in[0] : n->in[i]);      /* a view spreads nothing in memory */
            sum += have;
            if (have > most) most = have;
        }
        if (n->op == OP_join && sum > most) most = sum;
        if (n->op != OP_view && n->op != OP_const && c && count_hint(p, n) > 4 * most) c = false;
        if (p->inner[id]) c = false;
        p->constant[id] = c;
    }
}

/* What folds read through views, however far below. */
static void mark_spread(Planner *p)
{
    uint8_t *body = NEWS(p->arena, uint8_t, p->g->node.n + 1);       /* 1: part of a fold's body; 2: seen through a view as well */
    for (int id = p->g->node.n - 1; id >= 0; id--) {
        const Node *n = p->g->node.at[id];
        if (!p->live[id] || (n->op != OP_fold && !body[id])) continue;
        if (body[id] == 2 && n->op != OP_view) { p->spread[id] = 1; continue; }
        if (n->op != OP_fold && n->op != OP_view && node_class(n) != CLASS_map) continue;
        for (int i = 0; i < n->nin; i++) {
            uint8_t *b = &body[n->in[i]->id], now = n->op == OP_view ? 2 : 1;
            if (*b < now) *b = now;
        }
    }
}

/* Does a view keep its source's elements in their order (reshape, squeeze)? */
static bool keeps_order(Planner *p, const Node *v)
{
    const Node *x = v->in[0];
    if (v->view.npred) return false;
    Dim *from = dim_const(p->g, 0), *to = dim_const(p->g, 0), *a = dim_const(p->g, 1), *b = dim_const(p->g, 1);
    for (int k = 0; k < v->rank; k++) { to = dim_add(p->g, dim_mul(p->g, to, v->dims[k]), dim_idx(p->g, k, v->dims[k])); a = dim_mul(p->g, a, v->dims[k]); }
    for (int k = 0; k < x->rank; k++) { from = dim_add(p->g, dim_mul(p->g, from, x->dims[k]), v->view.idx[k]); b = dim_mul(p->g, b, x->dims[k]); }
    return from == to && a == b;
}

/* Unfused, an operator that moves data (Transpose, Slice, Pad, Expand ...) is a kernel of its own, as in a framework that runs operators one by one. Not
 * so the views of an operator that computes: its broadcasts, which another operator may share because equal nodes are one. */
static void mark_moves(Planner *p)
{
    bool *computes = NEWS(p->arena, bool, p->g->origin.n + 1);
    for (int id = 0; id < p->g->node.n; id++)
        if (node_class(p->g->node.at[id]) != CLASS_free) computes[p->g->node.at[id]->origin] = true;
    for (int id = 0; id < p->g->node.n; id++) {
        const Node *n = p->g->node.at[id];
        for (int i = 0; p->live[id] && i < n->nin; i++) {
            const Node *v = n->in[i];
            if (v->op == OP_view && v->origin != n->origin && !computes[v->origin] && p->g->origin.at[v->origin].op && v->in[0]->op != OP_const && v->in[0]->op != OP_dims && !p->constant[v->id] && !keeps_order(p, v)) p->dense[v->id] = 1;
        }
    }
}

/* Sums of products of narrow numbers that are widened behind a view, as narrow.c writes them. */
static bool is_inner(const Node *n) { return n->op == OP_cast && n->in[0]->op == OP_view && dtype_size(n->dt) > dtype_size(n->in[0]->dt); }
static void mark_inner(Planner *p)
{
    for (int id = 0; id < p->g->node.n; id++) {
        const Node *f = p->g->node.at[id], *x = f->op == OP_fold ? f->in[0] : NULL;
        if (x && x->op == OP_view && !x->view.npred) x = x->in[0];
        if (!x || x->op != OP_mul || !is_inner(x->in[0]) || !is_inner(x->in[1]) || f->kind != FOLD_sum) continue;
        p->inner[id] = p->inner[x->in[0]->id] = p->inner[x->in[1]->id] = 1;
    }
}

void facts_find(Planner *p)
{
    size_t n = (size_t)p->g->node.n + 1;
    p->live = NEWS(p->arena, uint8_t, n); p->constant = NEWS(p->arena, uint8_t, n); p->output = NEWS(p->arena, uint8_t, n); p->dense = NEWS(p->arena, uint8_t, n);
    p->pure = NEWS(p->arena, uint8_t, n);
    p->thin = NEWS(p->arena, uint8_t, n);
    p->spread = NEWS(p->arena, uint8_t, n);
    p->inner = NEWS(p->arena, uint8_t, n);
    p->uses = NEWS(p->arena, int, n);
    p->walked = NEWS(p->arena, int, n);
    p->folds = NEWS(p->arena, int, n);
    mark_live(p);
    if (!p->groups) mark_inner(p);
    mark_constant(p);
    if (p->fuse) mark_spread(p);
    else mark_moves(p);
}

/* ---- one node, when it is placed -------------------------------------------------------------------------------------------------------------- */
bool reads_nothing(Planner *p, const Node *n)
{
    int count = 1;
    if (n->op == OP_iota || (n->rank == 0 && (n->op == OP_const || n->op == OP_dims))) { p->pure[n->id] = 1; return true; }
    if (n->op == OP_gather || n->op == OP_random || (node_class(n) != CLASS_map && n->op != OP_view) || !op_cheap(n->op)) return false;
    if (!p->fuse && n->rank > 0 && n->op != OP_view) return false;
    for (int i = 0; i < n->nin; i++) {
        if (!p->pure[n->in[i]->id]) return false;
        count += p->pure[n->in[i]->id];
    }
    if (count > 8) return false;
    p->pure[n->id] = (uint8_t)count;
    return true;
}

enum { MOST_THIN = 4 };
bool widens(Planner *p, const Node *n)
{
    if (p->fuse && p->groups && !p->dense[n->id] && n->op == OP_cast && n->dt == DT_f32 && n->in[0]->op != OP_view && (n->in[0]->dt == DT_bf16 || n->in[0]->dt == DT_f16)) {
        p->thin[n->id] = 1;              /* there, an instruction beside each load, however often, and half the bytes */
        return true;
    }
    if (!p->fuse || p->dense[n->id] || p->constant[n->id] || p->spread[n->id] || n->rank == 0 || dtype_size(n->dt) < 4) return false;
    if (n->op != OP_cast && n->op != OP_sub && n->op != OP_add && n->op != OP_mul) return false;
    const Node *x = NULL;
    for (int i = 0; i < n->nin; i++) {
        if (p->pure[n->in[i]->id]) continue;
        if (x) return false;
        x = n->in[i];
    }
    if (!x || x->op == OP_view) return false;
    int below = p->thin[x->id];
    if (!below && (n->op != OP_cast || dtype_size(x->dt) != 1 || dtype_is_float(x->dt) || x->dt == DT_bool)) return false;
    if (below == MOST_THIN) return false;
    p->thin[n->id] = (uint8_t)(below + 1);
    return true;
}
