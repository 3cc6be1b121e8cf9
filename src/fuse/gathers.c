/* Gathers below elementwise nodes: of what is computed for every element, only what is picked is computed.
 *
 *     gather(f(a, b), i)  =  f(gather(a, i), gather(b, i))
 *
 * Done where the gather has fewer elements than what it reads, as far down as the nodes are cheap or serve nobody else, through views. So the loss of a classifier
 * picks from its scores and not from their logarithms, which then need not be stored. An index is checked where it picks from an axis by itself, so whatever still
 * uses it must do so from an axis of the same size, and something must use it. */
#include "fuse/fuse.h"

enum { MOST_DEEP = 8 };

typedef struct Sinking { Graph *g; int *uses; Node *gather; unsigned checked; } Sinking;       /* checked: operands of the gather, by bit */

/* The axis that operand j by itself is the index of, or NULL. */
static Dim *axis_of(const Node *x, Dim *const *idx, int j)
{
    for (int k = 0; k < x->rank; k++) {
        const Dim *e = idx[k];
        if (e && e->kind == DIM_idx && e->var == DIM_OPERAND + j) return x->dims[k];
    }
    return NULL;
}

/* Operands that pick from x at idx, each from an axis like the gather's own; false: one does so in another way. */
static bool picks_by_axis(const Sinking *s, const Node *x, Dim *const *idx, unsigned *which)
{
    const Node *n = s->gather;
    *which = 0;
    for (int j = 0; j < n->nin - 1; j++) {
        bool used = false;
        for (int k = 0; k < x->rank; k++) used |= dim_uses(idx[k], DIM_OPERAND + j);
        const Dim *axis = axis_of(x, idx, j);
        if (used && (!axis || axis != axis_of(n->in[0], n->view.idx, j))) return false;
        if (used) *which |= 1u << j;
    }
    return true;
}

static bool sinks(const Sinking *s, const Node *x)
{
    if (!prim_info[x->op].elementwise && x->op != OP_cast && x->op != OP_where) return false;
    return op_cheap(x->op) || s->uses[x->id] == 1;
}

/* x at the index of the gather: idx over its axes and operands. */
static Node *sink(Sinking *s, Node *x, Dim *const *idx, int depth)
{
    Graph *g = s->g;
    const Node *n = s->gather;
    unsigned picks;
    if (x->op == OP_view && !x->view.npred) {
        Dim *to[MAX_RANK] = { 0 };
        for (int k = 0; k < x->view.nidx; k++) to[k] = dim_subst(g, x->view.idx[k], x->rank, idx);
        if (picks_by_axis(s, x->in[0], to, &picks)) return sink(s, x->in[0], to, depth);
    }
    picks_by_axis(s, x, idx, &picks);
    if (picks && depth < MOST_DEEP && x->id < s->gather->id && sinks(s, x)) {
        Node **in = NEWS(g->arena, Node *, x->nin + 1), proto = *x;
        for (int i = 0; i < x->nin; i++) in[i] = sink(s, x->in[i], idx, depth + 1);
        proto.in = in; proto.rank = n->rank; proto.dims = n->dims;
        return graph_add(g, &proto);
    }
    View v = { .nidx = x->rank, .idx = idx };
    if (!picks) return g_view(g, x, n->rank, n->dims, &v);
    s->checked |= picks;
    return g_gather(g, x, n->nin - 1, n->in + 1, n->rank, n->dims, &v);
}

static Node *gathers_better(Graph *g, Node *old, Node *now, void *arg)
{
    if (old->op != OP_gather || now != old || old->view.npred) return NULL;         /* one below another one: that is enough */
    Sinking s = { g, arg, old, 0 };
    const Node *from = old->in[0];
    unsigned all;
    if (dim_hint(g, g_count(g, old)) >= dim_hint(g, g_count(g, from)) || !sinks(&s, from) || !picks_by_axis(&s, from, old->view.idx, &all)) return NULL;
    Node *y = sink(&s, old->in[0], old->view.idx, 0);
    return all && s.checked == all ? y : NULL;
}

void gathers_choose(Ctx *cx, Arena *a, Graph *g)
{
    int n = g->node.n;
    bool any = false;
    for (int id = 0; id < n && !any; id++) any = g->node.at[id]->op == OP_gather;
    if (!any) return;
    int changed = graph_remake_all(cx, a, g, gathers_better, graph_uses(a, g));
    if (changed) log_line(cx, 2, "gathers: %d pick from what their source is computed from", changed);
}
