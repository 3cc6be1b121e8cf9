/* Tiny weights: columns of a contraction whose weights are below the normal numbers are scaled, and lie side by side.
 *
 * Some processors multiply numbers below 2^-126 a hundred times more slowly, a whole vector at a time if one lane has such a number. Trained models have them in channels
 * that died. Where lanes run along the channels each of these slows a vector down for all places, in the sum and once more in what multiplies what it comes to. So
 *
 *     columns all of whose weights are so small that no sum can overflow for it are taken times a power of two, and the sum times its inverse: the one rounding is that of
 *     the result, infinities and NaN stay what they are;
 *
 *     the channels of the result are put into another order, in which the slow ones share vectors. What is computed of the result takes over that order, with its constants
 *     permuted, up to the sums over the channels that end it: no number changes but by the order of these sums. Where that does not end (a result of the graph, a
 *     reshape across channels, a join) the order stays.
 *
 * Two steps: what is scaled, and the axes that move, by a walk from the sum to all that reads it and all that is read beside it; then views of constants are made anew. */
#include "fuse/fuse.h"

#include <math.h>
#include <string.h>

enum { SLOW = 100, SHARE = 50 };         /* how many multiplications a slow one takes the time of; what is gained is at least such a part of all */
enum { LEAST_SCALE = 32, MOST_SCALE = 96 };      /* exponents: all that is not 0 becomes normal; results need not stay small for long */

typedef struct Scaled { const int *by; int axis; } Scaled;      /* columns along an axis times 2^by each; NULL: none */
typedef struct Moved { const Node *node; int axis; } Moved;
typedef struct Tiny {
    Arena *arena; Graph *g;
    int lanes, count;                   /* floats in a vector; nodes of the graph as it was */
    uint8_t *live;
    bool *kept;                         /* by node id: a result of the graph */
    int *from; Node **reader;           /* readers of node id: from[id] to from[id + 1] */
    const int **order;                  /* by node id and axis: place k holds what was order[k]; NULL: the axis stays */
    const int *now;                     /* the order that is being tried */
    VEC(Moved) moved;                   /* with it */
    Scaled *scaled;                     /* by id of views of weights: the weights; of sums: what was done to theirs */
} Tiny;

static bool below_normal(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return !(u & 0x7f800000u) && (u & 0x7fffffffu);
}

static const int **order_at(const Tiny *t, const Node *n, int axis) { return &t->order[n->id * MAX_RANK + axis]; }

/* The one index of v that is the axis a, alone; -1: there is none, or more depends on it. */
static int index_of_axis(const Tiny *t, const Node *v, int a)
{
    int at = -1;
    for (int p = 0; p < v->view.npred; p++) if (dim_uses(v->view.pred[p].e, a) || dim_uses(v->view.pred[p].n, a)) return -1;
    for (int j = 0; j < v->view.nidx; j++) {
        if (!dim_uses(v->view.idx[j], a)) continue;
        if (at >= 0 || v->view.idx[j] != dim_idx(t->g, a, v->dims[a]) || v->in[0]->dims[j] != v->dims[a]) return -1;
        at = j;
    }
    return at;
}

/* The axis of v that is the index j of what it views, and nothing else. */
static int axis_of_index(const Tiny *t, const Node *v, int j)
{
    for (int a = 0; a < v->rank; a++) if (dim_uses(v->view.idx[j], a)) return index_of_axis(t, v, a) == j ? a : -1;
    return -1;
}

static int fold_result_axis(const Node *f, int a)
{
    int r = 0;
    for (int k = 0; k < a; k++) r += !(f->axes >> k & 1);
    return r;
}

static int fold_body_axis(const Node *f, int r)
{
    for (int k = 0; k < f->in[0]->rank; k++) if (!(f->axes >> k & 1) && r-- == 0) return k;
    return -1;
}

static bool ignores(const Node *n, int a)
{
    if (n->op != OP_view) return false;
    for (int p = 0; p < n->view.npred; p++) if (dim_uses(n->view.pred[p].e, a) || dim_uses(n->view.pred[p].n, a)) return false;
    for (int j = 0; j < n->view.nidx; j++) if (dim_uses(n->view.idx[j], a)) return false;
    return true;
}

/* The axis moves, and n is still to be walked from. False: it has to stay, or moves in another order. */
static bool move(Tiny *t, const Node *n, int axis)
{
    if (axis < 0 || t->kept[n->id]) return false;
    const int **o = order_at(t, n, axis);
    if (*o) return *o == t->now;
    *o = t->now;
    vec_push(t->arena, &t->moved, ((Moved){ n, axis }));
    return true;
}

/* What n is computed of moves as well. */
static bool move_operands(Tiny *t, const Node *n, int axis)
{
    if (n->op == OP_view) {
        int j = index_of_axis(t, n, axis);
        if (j < 0 || n->in[0]->op != OP_const) return move(t, n->in[0], j);
        for (int k = 0; k < n->in[0]->rank; k++) if (*order_at(t, n->in[0], k)) return false;      /* others read it as it is */
        return tensor_dense(n->in[0]->tensor);
    }
    if (n->op == OP_const) return tensor_dense(n->tensor);
    if (n->op == OP_fold) return !n->whole && move(t, n->in[0], fold_body_axis(n, axis));
    if (!by_element(n)) return false;
    for (int i = 0; i < n->nin; i++) if (!ignores(n->in[i], axis) && !move(t, n->in[i], axis)) return false;
    return true;
}

/* And what reads it, unless a fold ends it. Views of constants have these to themselves. */
static bool move_reader(Tiny *t, const Node *n, int axis, const Node *r)
{
    if (r->op == OP_view) return n->op != OP_const && move(t, r, axis_of_index(t, r, axis));
    if (r->op == OP_fold && !r->whole && r->kind != FOLD_argmax && r->kind != FOLD_argmin) return r->axes >> axis & 1 ? true : move(t, r, fold_result_axis(r, axis));
    return by_element(r) && r->rank == n->rank && move(t, r, axis);
}

/* Moves the axis of n, and all that must move with it; or nothing. */
static bool move_all(Tiny *t, const Node *n, int axis)
{
    t->moved.n = 0;
    bool ok = move(t, n, axis);
    for (int i = 0; ok && i < t->moved.n; i++) {
        Moved m = t->moved.at[i];
        ok = move_operands(t, m.node, m.axis);
        for (int r = t->from[m.node->id]; ok && r < t->from[m.node->id + 1]; r++) ok = move_reader(t, m.node, m.axis, t->reader[r]);
    }
    for (int i = 0; !ok && i < t->moved.n; i++) *order_at(t, t->moved.at[i].node, t->moved.at[i].axis) = NULL;
    return ok;
}

/* ---- which ----------------------------------------------------------------------------------------------------------------------------------- */
static bool has_tiny(const Tensor *w)
{
    int64_t n = tensor_count(w), some = 0;
    for (int64_t i = 0; i < n; i++) some += below_normal(float_at(w->data, i));
    return some > 0;
}

static bool may_weigh(const Node *w) { return w->op == OP_const && w->dt == DT_f32 && w->rank > 0 && tensor_dense(w->tensor); }

/* Elements before an axis, and behind it. */
typedef struct Around { int64_t outer, inner; } Around;
static Around around_axis(const Tensor *w, int axis)
{
    Around n = { 1, 1 };
    for (int k = 0; k < axis; k++) n.outer *= w->dims[k];
    for (int k = axis + 1; k < w->rank; k++) n.inner *= w->dims[k];
    return n;
}

/* The columns of w, an axis of it: which have tiny weights, and how those are scaled whose sums stay far from overflow. */
typedef struct Columns { const Tensor *w; int axis; bool *tiny; int *scale; const int *order; } Columns;
static void columns_look(const Tiny *t, Columns *c)
{
    const void *f = c->w->data;
    Around of = around_axis(c->w, c->axis);
    int64_t n = c->w->dims[c->axis];
    float *most = NEWS(t->arena, float, n);
    c->tiny = NEWS(t->arena, bool, n); c->scale = NEWS(t->arena, int, n);
    for (int64_t e = 0; e < of.outer * n * of.inner; e++) {
        int64_t at = e / of.inner % n;
        c->tiny[at] |= below_normal(float_at(f, e));
        if (!(fabsf(float_at(f, e)) <= most[at])) most[at] = fabsf(float_at(f, e));      /* NaN stays */
    }
    for (int64_t at = 0; at < n; at++) {
        double room = c->tiny[at] ? -log2(2.0 * (double)most[at] * (double)(of.outer * of.inner)) : 0;
        c->scale[at] = room >= MOST_SCALE ? MOST_SCALE : room >= LEAST_SCALE ? (int)room : 0;
    }
}

/* Slow multiplications for a row of the result, of vectors of columns in that order: in the sums, and one behind them, two where the sum is scaled back. */
static int64_t slow_vectors(const Tiny *t, const Columns *x, const int *order, bool scaled)
{
    const void *f = x->w->data;
    Around of = around_axis(x->w, x->axis);
    int64_t n = x->w->dims[x->axis], slow = 0;
    for (int64_t c = 0; c < n; c += t->lanes) {
        int64_t end = c + t->lanes < n ? c + t->lanes : n;
        bool dead = false;
        for (int64_t l = c; l < end; l++) dead |= x->scale[order[l]] > 0;
        slow += !dead ? 0 : scaled ? 2 : 1;
        for (int64_t r = 0; r < of.outer * of.inner; r++) {
            bool any = false;
            for (int64_t l = c; l < end; l++) any |= !(scaled && x->scale[order[l]]) && below_normal(float_at(f, (r / of.inner * n + order[l]) * of.inner + r % of.inner));
            slow += any;
        }
    }
    return slow;
}

static bool pays(const Tiny *t, const Columns *c, int64_t gain)
{
    Around of = around_axis(c->w, c->axis);
    return gain > 0 && gain * SLOW * SHARE * t->lanes >= of.outer * of.inner * c->w->dims[c->axis];
}

static Node *only_reader(const Tiny *t, const Node *n) { return t->from[n->id + 1] - t->from[n->id] == 1 ? t->reader[t->from[n->id]] : NULL; }

/* The sum in which v, a view of a constant, is multiplied with something that has no axis *a of v, the columns: which becomes that axis of the sum. */
static const Node *sum_of_columns(const Tiny *t, const Node *v, int *a)
{
    const Node *m = only_reader(t, v), *r = m && m->op == OP_mul ? only_reader(t, m) : NULL;
    int axis = *a;
    if (!r || !ignores(m->in[m->in[0] == v], axis)) return NULL;
    if (r->op == OP_view) { axis = axis_of_index(t, r, axis); r = axis < 0 ? NULL : only_reader(t, r); }
    if (!r || r->op != OP_fold || r->kind != FOLD_sum || r->whole || r->dt != DT_f32 || r->axes >> axis & 1) return NULL;
    *a = fold_result_axis(r, axis);
    return r;
}

static int choose_columns(Tiny *t, const Node *v, int column, const Node *sum, int of_sum)
{
    Columns c = { .w = v->in[0]->tensor, .axis = index_of_axis(t, v, column) };
    if (c.axis < 0 || !has_tiny(c.w)) return 0;
    columns_look(t, &c);
    int64_t n = c.w->dims[c.axis];
    int *order = NEWS(t->arena, int, n), *as_it_is = NEWS(t->arena, int, n), m = 0;
    for (int kind = 0; kind < 3; kind++)             /* without tiny weights, with some, scaled */
        for (int at = 0; at < n; at++) if (kind == (c.scale[at] ? 2 : c.tiny[at])) order[m++] = at;
    for (int at = 0; at < n; at++) as_it_is[at] = at;
    int64_t now = slow_vectors(t, &c, as_it_is, false), scaled = slow_vectors(t, &c, as_it_is, true), moved = slow_vectors(t, &c, order, false), both = slow_vectors(t, &c, order, true);
    t->now = order;
    bool moves = pays(t, &c, (now < scaled ? now : scaled) - (moved < both ? moved : both)) && move_all(t, v, column);
    bool scales = pays(t, &c, moves ? moved - both : now - scaled);
    if (scales) {
        t->scaled[v->id] = (Scaled){ c.scale, column };
        t->scaled[sum->id] = (Scaled){ c.scale, of_sum };
    }
    return moves || scales;
}

static int find_tiny(Tiny *t)
{
    int chosen = 0;
    for (int id = 0; id < t->count; id++) {
        const Node *v = t->g->node.at[id];
        if (!t->live[id] || v->op != OP_view || v->view.npred || !may_weigh(v->in[0])) continue;
        for (int a = 0; a < v->rank; a++) {
            int of_sum = a;
            const Node *sum = ignores(v, a) ? NULL : sum_of_columns(t, v, &of_sum);
            if (!sum) continue;
            if (t->g->cx->opt.limit >= 0 && t->g->nrewrite >= t->g->cx->opt.limit) return chosen;
            int made = choose_columns(t, v, a, sum, of_sum);
            t->g->nrewrite += made;
            chosen += made;
            break;
        }
    }
    return chosen;
}

/* ---- the new graph --------------------------------------------------------------------------------------------------------------------------- */
static Node *const_moved(Graph *g, const Tensor *w, int axis, const int *order)
{
    Around of = around_axis(w, axis);
    int64_t n = w->dims[axis];
    size_t bytes = (size_t)of.inner * dtype_size(w->dt);
    Tensor *to = tensor_new(g->arena, g->cx, w->dt, w->rank, w->dims);
    for (int64_t o = 0; o < of.outer; o++)
        for (int64_t c = 0; c < n; c++) memcpy((char *)to->data + (size_t)(o * n + c) * bytes, (const char *)w->data + (size_t)(o * n + order[c]) * bytes, bytes);
    return g_const(g, to);
}

static Node *const_scaled(Graph *g, const Tensor *w, int axis, const int *by)
{
    Around of = around_axis(w, axis);
    int64_t n = w->dims[axis];
    Tensor *to = tensor_new(g->arena, g->cx, w->dt, w->rank, w->dims);
    for (int64_t e = 0; e < of.outer * n * of.inner; e++) ((float *)to->data)[e] = (float)ldexp((double)float_at(w->data, e), by[e / of.inner % n]);
    return g_const(g, to);
}

/* A sum of scaled columns, scaled back. */
static Node *scaled_back(const Tiny *t, Node *old, Node *now)
{
    Graph *g = t->g;
    Scaled s = t->scaled[old->id];
    const int *order = *order_at(t, old, s.axis);
    int64_t n = dim_hint(g, old->dims[s.axis]);
    Tensor *by = tensor_new(g->arena, g->cx, DT_f32, 1, &n);
    for (int64_t c = 0; c < n; c++) ((float *)by->data)[c] = (float)ldexp(1, -s.by[order ? order[c] : c]);
    Dim *at = dim_idx(g, s.axis, now->dims[s.axis]);
    return g2(g, OP_mul, now, g_view(g, g_const(g, by), now->rank, now->dims, &(View){ .nidx = 1, .idx = &at }));
}

static Node *tiny_better(Graph *g, Node *old, Node *now, void *arg)
{
    const Tiny *t = arg;
    if (old->op == OP_fold && t->scaled[old->id].by) return scaled_back(t, old, now);
    if (old->op == OP_const) {
        Node *c = old;
        for (int a = 0; a < old->rank; a++) if (*order_at(t, old, a)) c = const_moved(g, c->tensor, a, *order_at(t, old, a));
        return c == old ? NULL : c;
    }
    if (old->op != OP_view || old->in[0]->op != OP_const) return NULL;
    Node *w = old->in[0];
    Scaled s = t->scaled[old->id];
    if (s.by) w = const_scaled(g, w->tensor, index_of_axis(t, old, s.axis), s.by);
    for (int a = 0; a < old->rank; a++) {
        const int *order = *order_at(t, old, a);
        if (order) w = const_moved(g, w->tensor, index_of_axis(t, old, a), order);
    }
    return w == old->in[0] ? NULL : g_view(g, w, now->rank, now->dims, &now->view);
}

int tiny_choose(Ctx *cx, Arena *a, Graph *g, int lanes)
{
    int n = g->node.n;
    bool any = false;
    for (int id = 0; id < n && !any; id++) any = may_weigh(g->node.at[id]) && has_tiny(g->node.at[id]->tensor);
    if (!any) return 0;
    Tiny *t = NEW(a, Tiny);
    *t = (Tiny){ .arena = a, .g = g, .lanes = lanes, .count = n, .live = graph_live(a, g), .kept = NEWS(a, bool, n + 1), .from = NEWS(a, int, n + 2), .scaled = NEWS(a, Scaled, n + 1), .order = arena_alloc(a, size_mul(a, sizeof *t->order * MAX_RANK, (size_t)n + 1)) };
    for (int i = 0; i < g->output.n; i++) t->kept[g->output.at[i].node->id] = true;
    int *next = NEWS(a, int, n + 1);
    for (int id = 0; id < n; id++) for (int i = 0; t->live[id] && i < g->node.at[id]->nin; i++) t->from[g->node.at[id]->in[i]->id + 1]++;
    for (int id = 0; id < n; id++) t->from[id + 1] += t->from[id];
    t->reader = NEWS(a, Node *, t->from[n] + 1);
    for (int id = 0; id < n; id++)
        for (int i = 0; t->live[id] && i < g->node.at[id]->nin; i++) {
            int x = g->node.at[id]->in[i]->id;
            t->reader[t->from[x] + next[x]++] = g->node.at[id];
        }
    int chosen = find_tiny(t);
    if (chosen) graph_remake_all(cx, a, g, tiny_better, t);
    if (chosen) log_line(cx, 2, "tiny: the columns of %d contractions lie in another order", chosen);
    return chosen;
}
