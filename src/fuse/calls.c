/* Calls of functions of the host in primitives, where they have such a form (CallDef.primitives): for devices whose memory is far from the host's, so that what goes
 * in and comes out need not be copied, and may be fused. The functions themselves are better near the host: they are free to sort. */
#include "fuse/fuse.h"

static Node *call_better(Graph *g, Node *old, Node *now, void *arg)
{
    (void)old, (void)arg;
    const Node *call = now->op == OP_part ? now->in[0] : NULL;
    return call && call->op == OP_call && call->call->def->primitives ? call->call->def->primitives(g, call->call, call->in, now) : NULL;
}

void calls_choose(Ctx *cx, Arena *a, Graph *g)
{
    bool any = false;
    for (int id = 0; id < g->node.n && !any; id++) any = g->node.at[id]->op == OP_call && g->node.at[id]->call->def->primitives;
    int changed = any ? graph_remake_all(cx, a, g, call_better, NULL) : 0;
    if (changed) log_line(cx, 2, "calls: %d results of functions of the host in primitives", changed);
}
