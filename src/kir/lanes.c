/* Which axis of a kernel runs in lanes, and so the lowering that is taken: each way is lowered, and the cheapest by the addresses that come out is kept.
 *
 * What counts are the loads of the innermost loops and the stores, for each vector: one if the lanes lie together or share the element, many if they are
 * collected one by one. For contractions and rows each axis of the space is tried, and the last axis that folds reduce, whose lanes are added up in the end.
 * An elementwise kernel takes its last axis; where that is shorter than a vector it goes element by element, or takes a longer one if there is much to compute. */
#include "kir/kir.h"

/* What the loads of the innermost loops and the stores cost for each vector, in vector loads: one if the lanes lie together or share the element. */
typedef struct Costing { const LoopKernel *k; double loads, stores; } Costing;
static void cost_walk(Costing *x, const KBlock *b, const Dim *lane, bool inner)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) { cost_walk(x, s->loop->body, s->loop->vector ? s->loop->var : lane, inner || !loop_around(s->loop)); continue; }
        bool load = s->kind == KS_val && s->val->kind == KV_load, store = s->kind == KS_store;
        if (!load && !store) continue;
        const KAddr *at = load ? &s->val->at : &s->at;
        double c = 1;
        Dim *coef, *rest;
        if (lane && dim_uses(at->off, lane->var)) {
            if (!dim_linear(x->k->g, at->off, lane->var, &coef, &rest)) c = 24;
            else if ((dim_is(coef, 2) || dim_is(coef, 4)) && load && s->val->dt == DT_f32) c = (double)coef->c + 1;
            else if (!dim_is(coef, 1)) c = 14;
            else for (int p = 0; p < at->npred; p++) if (dim_uses(at->pred[p].e, lane->var)) { c = 2; break; }
        }
        if (store) x->stores += c;
        else if (inner) x->loads += c;
    }
}

enum { COST_ACROSS = 8, SHORT_LANES = 4 };          /* of adding up the lanes of one vector; an axis so many times shorter than a vector is not worth one */
static double lanes_cost(LoopKernel *k, int64_t extent, int64_t reduced, bool across)
{
    Costing x = { k, 0, 0 };
    cost_walk(&x, k->body, NULL, false);
    double points = (double)reduced;
    for (int i = 0; i < k->sub->rank; i++) if (!(k->sub->rows >> i & 1)) points *= (double)dim_hint(k->g, k->sub->space[i]);
    for (int i = 0; i < k->buf.n; i++) {             /* packing moves each element once, constants when the program is made */
        const KBuf *b = &k->buf.at[i];
        if (!b->packed || k->sub->constant[b->node->id]) continue;
        double count = 1;
        for (int j = 0; j < b->node->rank; j++) count *= (double)dim_hint(k->g, b->node->dims[j]);
        if (points > 0) x.loads += 3 * count / (points / k->lanes);
    }
    const int64_t unit = across ? k->lanes : half_lanes(k), vectors = (extent + unit - 1) / unit;
    double waste = extent > 0 ? (double)(vectors * unit) / (double)extent : 1;
    if (across && k->sub->kind == SUB_dot) x.stores = (x.stores + COST_ACROSS) * k->lanes;      /* one result at a time */
    double shared = across || k->sub->kind != SUB_dot || (unit < k->lanes && vectors == 1) ? 1 : 0.5;     /* a tile loads for several rows and vectors at once */
    return (shared * x.loads + 1) * waste + x.stores / (double)(reduced > 0 ? reduced : 1);
}

/* Operations of an elementwise kernel, for one element or one vector. */
static void map_ops(const KBlock *b, double *ops)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) map_ops(s->loop->body, ops);
        else if (s->kind == KS_val && (s->val->kind == KV_ew || s->val->kind == KV_random || s->val->kind == KV_cast)) {
            *ops += cost_again(s->val);
            for (int j = 0; j < s->val->nin; j++) if (s->val->in[j]->block == s->val->block) *ops -= cost_again(s->val->in[j]);
        }
    }
}

/* An elementwise kernel whose last axis is too short for lanes: element by element, or with lanes over a longer axis, along which they lie apart in memory, where
 * there is much to compute (an exp) for what is loaded one by one. */
enum { SHORT_GAIN = 4 };                 /* operations on single elements run so many side by side */
static LoopKernel *lower_short(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v)
{
    LoopKernel *best = lower_once(cx, a, g, sub, (Vectors){ .lanes = 1 }, -1);
    Costing x = { best, 0, 0 };
    double ops = 0;
    cost_walk(&x, best->body, NULL, true);
    map_ops(best->body, &ops);
    double least = v.lanes * (x.loads + x.stores + ops) / SHORT_GAIN;
    for (int lane = sub->rank - 1; lane >= 0; lane--) {
        int64_t extent = dim_hint(g, sub->space[lane]);
        if (extent * SHORT_LANES <= v.lanes) continue;
        LoopKernel *k = lower_once(cx, a, g, sub, v, lane);
        Costing y = { k, 0, 0 };
        cost_walk(&y, k->body, NULL, true);
        const int64_t turns = (extent + v.lanes - 1) / v.lanes;
        double of = 0, vectors = (double)turns;
        map_ops(k->body, &of);
        double cost = (y.loads + y.stores + of) * vectors * v.lanes / (double)extent;
        log_line(cx, 6, "kernel %d: lanes over axis %d: cost %.2f, element by element %.2f", sub->id, lane, cost, least * SHORT_GAIN);
        if (cost >= least) continue;
        best = k;
        least = cost;
    }
    return best;
}

/* Elements of the innermost axis that the contractions of a kernel reduce. */
static int64_t own_length(const Graph *g, const Subgraph *sub)
{
    int64_t n = 0;
    for (int i = 0; i < sub->nnode; i++) {
        const Node *f = sub->node[i], *x = f->in[0];
        if (f->op != OP_fold) continue;
        for (int k = x->rank - 1; k >= 0; k--)
            if ((f->axes >> k & 1) && !dim_is(x->dims[k], 1)) { n = dim_hint(g, x->dims[k]); break; }
    }
    return n;
}

/* Can the running folds of a kernel go by lanes along their axis? Not recurrences, nor products, which are 0 or inf in parts where the whole is neither, and truth values. */
static bool runs_in_lanes(const Graph *g, const Subgraph *sub, int axis, int lanes)
{
    for (int i = 0; i < sub->nnode; i++) {
        const Node *n = sub->node[i];
        if (n->op == OP_scan && (n->dt == DT_bool || is_recurrence(n) || (n->kind == FOLD_prod && dtype_is_float(n->dt)))) return false;
    }
    return dim_hint(g, sub->space[axis]) * SHORT_LANES > lanes;
}

/* Tries the ways to use lanes and takes the cheapest by the addresses that come out. */
LoopKernel *kernel_lower(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v) { return kernel_lower_as(cx, a, g, sub, v, &(Sched){ 0 }); }

LoopKernel *kernel_lower_as(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v, const Sched *sched)
{
    const int lanes = v.lanes;
    LoopKernel *best = NULL;
    int last = -1;
    if (lanes == LANES_simt) {
        best = lower_once(cx, a, g, sub, v, -1);
        best->sched = *sched;
        kernel_simt(best);
        return best;
    }
    for (int i = 0; i < sub->rank; i++) if (!dim_is(sub->space[i], 1)) last = i;
    bool rows_last = last >= 0 && (sub->rows >> last & 1);
    if (sub->kind == SUB_scan && rows_last && !runs_in_lanes(g, sub, last, lanes)) best = lower_once(cx, a, g, sub, (Vectors){ .lanes = 1 }, -1);
    else if (sub->kind == SUB_stream) best = lower_once(cx, a, g, sub, v, sub->stream->lane);
    else if (lanes == 1 || (sub->kind != SUB_dot && sub->kind != SUB_rows)) best = lower_once(cx, a, g, sub, v, rows_last ? -1 : last);
    else {
        int64_t own = sub->kind == SUB_dot ? own_length(g, sub) : rows_last ? dim_hint(g, sub->space[last]) : 0, reduced = 1;
        for (int i = 0; i < sub->rank; i++) if (sub->rows >> i & 1) reduced *= dim_hint(g, sub->space[i]);
        for (int i = 0; i < sub->nnode; i++) {
            const Node *f = sub->node[i];
            for (int k = 0; sub->kind == SUB_dot && f->op == OP_fold && k < f->in[0]->rank; k++) if (f->axes >> k & 1) reduced *= dim_hint(g, f->in[0]->dims[k]);
        }
        double least = 0;
        int at = 0;
        for (int lane = sub->rank - 1; lane >= -1; lane--) {
            if (lane >= 0 && ((sub->rows >> lane & 1) || dim_is(sub->space[lane], 1))) continue;
            if (lane < 0 && own == 0) continue;
            int64_t extent = lane < 0 ? own : dim_hint(g, sub->space[lane]);
            if (best && sub->kind == SUB_dot && extent < 4) continue;
            LoopKernel *k = lower_once(cx, a, g, sub, v, lane);
            double cost = ++at == sched->lanes ? -1 : lanes_cost(k, extent, reduced, lane < 0);
            log_line(cx, 6, "kernel %d: lanes over axis %d: cost %.2f", sub->id, lane, cost);
            if (best && cost >= least) continue;
            best = k;
            least = cost;
        }
        if (!best) best = lower_once(cx, a, g, sub, (Vectors){ .lanes = 1 }, -1);     /* a single element */
    }
    if (sub->kind == SUB_map && best->vec_var && dim_hint(g, best->vec_var->a) * SHORT_LANES <= lanes) best = lower_short(cx, a, g, sub, v);
    best->sched = *sched;
    kernel_schedule(best);
    return best;
}
