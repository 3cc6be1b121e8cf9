/* Joins behind elementwise nodes: what is computed of a joined tensor is computed of each piece, and joined then.
 *
 *     f(join(a, b), z)  =  join(f(a, z[first part]), f(b, z[second part]))
 *
 * So pieces need not be stored first: whoever computes them goes on with f, and pieces of one size that read the same memory become one kernel (the halves of
 * rotary embeddings, a convolution's branches in front of an activation). Done where nobody else reads the join and it has few pieces. The other operands are
 * cut as far down as nodes serve nobody else; where that would take an elementwise node from the reduction that it follows, the join stays. */
#include "fuse/fuse.h"

enum { MOST_PIECES = 4, MOST_DEEP = 8 };

typedef struct Cutting { Graph *g; int *uses, known, axis; Dim *start, *size; bool bad; } Cutting;    /* uses: of the first `known` nodes; others are new, for one reader */

static bool read_once(const Cutting *c, const Node *x) { return x->id >= c->known || c->uses[x->id] == 1; }

/* The piece of x, a node of the join's shape. */
static Node *cut(Cutting *c, Node *x, int depth)
{
    Graph *g = c->g;
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    if (!x->rank) return x;
    for (int k = 0; k < x->rank; k++) {
        dims[k] = k == c->axis ? c->size : x->dims[k];
        idx[k] = dim_idx(g, k, dims[k]);
    }
    if (by_element(x) && depth < MOST_DEEP && read_once(c, x)) {
        Node *in[3], proto = *x;
        for (int i = 0; i < x->nin; i++) in[i] = cut(c, x->in[i], depth + 1);
        proto.in = in; proto.dims = dims;
        int origin = g->cur_origin;
        g->cur_origin = x->origin;
        x = graph_add(g, &proto);
        g->cur_origin = origin;
        return x;
    }
    c->bad |= (x->op == OP_fold || x->op == OP_part) && read_once(c, x);
    idx[c->axis] = dim_add(g, c->start, idx[c->axis]);
    return g_view(g, x, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

static Node *joins_better(Graph *g, Node *old, Node *now, void *arg)
{
    Cutting *c = arg;
    int at = -1;
    if (!by_element(now)) return NULL;
    for (int i = 0; i < now->nin; i++) if (now->in[i]->op == OP_join && c->uses[old->in[i]->id] == 1) at = i;
    if (at < 0 || now->in[at]->nin > MOST_PIECES) return NULL;
    Node *join = now->in[at], *piece[MOST_PIECES], *in[3], proto = *now;
    c->g = g; c->axis = join->axis; c->bad = false;
    c->start = dim_const(g, 0);
    proto.in = in;
    for (int p = 0; p < join->nin; p++) {
        c->size = join->in[p]->dims[join->axis];
        proto.dims = join->in[p]->dims;
        for (int i = 0; i < now->nin; i++) {
            Node *x = now->in[i];
            bool alike = x->op == OP_join && x->axis == join->axis && x->nin == join->nin && c->uses[old->in[i]->id] == 1;
            for (int q = 0; alike && q < x->nin; q++) alike = x->in[q]->dims[x->axis] == join->in[q]->dims[x->axis];
            in[i] = alike ? x->in[p] : cut(c, x, 0);
        }
        if (c->bad) return NULL;
        piece[p] = graph_add(g, &proto);
        c->start = dim_add(g, c->start, c->size);
    }
    return g_join(g, join->nin, piece, join->axis);
}

void joins_choose(Ctx *cx, Arena *a, Graph *g)
{
    int n = g->node.n;
    bool any = false;
    for (int id = 0; id < n && !any; id++) any = g->node.at[id]->op == OP_join;
    if (!any) return;
    Cutting c = { .uses = graph_uses(a, g), .known = n };
    int changed = graph_remake_all(cx, a, g, joins_better, &c);
    if (changed) log_line(cx, 2, "joins: %d nodes are computed of each piece", changed);
}
