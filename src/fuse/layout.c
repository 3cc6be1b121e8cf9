/* Layouts: the order of axes in which results lie in memory, chosen across a chain of convolutions.
 *
 * A model fixes one order (channels before places, mostly). A convolution runs best with lanes over its output channels, which then must lie together; so
 * does everything elementwise around it, if all agree. This pass rewrites the graph before planning: a contraction that slides a window gets its channels
 * last, and what reads it takes over the order in which its operands lie, through views. Views absorb the difference, so nothing is copied inside a chain;
 * where the model's own order is wanted (results of the graph, reshapes across channels) a view says so, and whoever reads it reads through that index map.
 *
 * What is read through padding gets a place with the padding around it, so that no address is tested, unless the contraction's loops leave the padding out.
 *
 * Three steps: an order for each node (in the order of the graph), new nodes with permuted axes, new outputs. A node without a better order stays. */
#include "fuse/fuse.h"

#include <string.h>

enum { FEW_CHANNELS = 4, MAX_SOURCES = 16 };        /* fewer channels than that do not fill lanes: the order stays */

typedef struct Order { uint8_t axis[MAX_RANK]; } Order;       /* place k of memory holds axis[k] */
typedef struct Layout {
    Arena *arena; Graph *g;
    int lanes;                          /* floats in a vector */
    int count;                          /* nodes of the graph as it was */
    uint8_t *live;
    int *uses;
    const Order **order;                /* by node id; NULL: as it is. Of a fold: of its operand's axes, those that are kept first */
    Node **made;                        /* by node id: the node in its new order */
    const Node *product;                /* what the sum that is being remade adds up */
} Layout;

/* Something that a node reads: node at idx, expressions over the reader's axes. */
typedef struct Source { const Node *node; Dim *const *idx; } Source;

static Source source_of(const Layout *l, const Node *reader, const Node *x)
{
    if (x->op == OP_view) return (Source){ x->in[0], x->view.idx };
    Dim **own = NEWS(l->arena, Dim *, x->rank + 1);
    for (int k = 0; k < x->rank; k++) own[k] = dim_idx(l->g, k, reader->dims[k]);
    return (Source){ x, own };
}

/* What n, at index idx of the body of a fold, reads: through elementwise nodes of as many elements that only serve it, and views. False: too much. */
static bool body_sources(const Layout *l, const Node *n, Dim *const *idx, Source *out, int *count, int depth)
{
    if (n->op == OP_view && depth < 64) {
        Dim **to = NEWS(l->arena, Dim *, n->view.nidx + 1);
        for (int k = 0; k < n->view.nidx; k++) to[k] = dim_subst(l->g, n->view.idx[k], n->rank, idx);
        const Node *x = n->in[0];
        if (!n->view.npred && by_element(x) && g_count(l->g, x) == g_count(l->g, n) && l->uses[n->id] == 1 && l->uses[x->id] == 1) return body_sources(l, x, to, out, count, depth + 1);
        n = x;
        idx = to;
    } else if (by_element(n) && l->uses[n->id] == 1 && depth < 64) {
        for (int i = 0; i < n->nin; i++) if (!body_sources(l, n->in[i], idx, out, count, depth + 1)) return false;
        return true;
    }
    if (*count == MAX_SOURCES) return false;
    out[(*count)++] = (Source){ n, idx };
    return true;
}

static bool source_uses(const Source *s, int axis)
{
    for (int j = 0; j < s->node->rank; j++) if (dim_uses(s->idx[j], axis)) return true;
    return false;
}

/* Appends the axes of the reader in the order in which the source's memory is walked. */
static int order_by(const Layout *l, const Source *s, const Node *reader, uint8_t *axis, int n)
{
    const Order *o = l->order[s->node->id];
    for (int j = 0; j < s->node->rank; j++) {
        Dim *e = s->idx[o ? o->axis[j] : j];
        for (int k = 0; k < reader->rank; k++) {
            if (!dim_uses(e, k)) continue;
            bool have = false;
            for (int i = 0; i < n; i++) have |= axis[i] == k;
            if (!have) axis[n++] = (uint8_t)k;
        }
    }
    return n;
}

/* Axes that are not there yet. */
static int order_rest(const Node *reader, uint8_t *axis, int n)
{
    uint8_t first[MAX_RANK];
    int m = 0;
    for (int k = 0; k < reader->rank; k++) {
        bool have = false;
        for (int i = 0; i < n; i++) have |= axis[i] == k;
        if (!have) first[m++] = (uint8_t)k;
    }
    for (int i = n - 1; i >= 0; i--) axis[i + m] = axis[i];
    memcpy(axis, first, (size_t)m);
    return n + m;
}

static void order_set(Layout *l, const Node *n, int rank, const uint8_t *axis)
{
    bool same = true;
    for (int k = 0; k < rank; k++) same &= axis[k] == k;
    if (same) return;
    Order *o = NEW(l->arena, Order);
    memcpy(o->axis, axis, (size_t)rank);
    l->order[n->id] = o;
}

static double size_of(const Layout *l, const Node *n)
{
    double c = 1;
    for (int k = 0; k < n->rank; k++) c *= (double)dim_hint(l->g, n->dims[k]);
    return c;
}

/* An elementwise node lies as its largest operand does that has a value for each of its elements; a join as its largest piece. */
static void order_pointwise(Layout *l, const Node *n)
{
    double best = 0;
    uint8_t axis[MAX_RANK] = { 0 };
    for (int i = 0; i < n->nin; i++) {
        Source s = source_of(l, n, n->in[i]);
        bool all = l->order[s.node->id] != NULL;
        for (int k = 0; k < n->rank; k++) all = all && (dim_is(n->dims[k], 1) || source_uses(&s, k));
        double size = all ? size_of(l, s.node) : 0;
        if (!all || size <= best) continue;
        best = size;
        order_rest(n, axis, order_by(l, &s, n, axis, 0));
    }
    if (best > 0) order_set(l, n, n->rank, axis);
}

/* The order of a fold: kept axes, then reduced ones. Numbers of the operand's axes. */
static void fold_order(Layout *l, const Node *f, const uint8_t *axis)
{
    uint8_t all[MAX_RANK];
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < f->in[0]->rank; k++) if ((f->axes >> axis[k] & 1) == (uint32_t)pass) all[n++] = axis[k];
    bool same = true;                    /* as it is now: each kind in its old order */
    for (int k = 1; k < n; k++) same &= all[k] > all[k - 1] || (f->axes >> all[k] & 1) != (f->axes >> all[k - 1] & 1);
    if (same) return;
    Order *o = NEW(l->arena, Order);
    memcpy(o->axis, all, (size_t)n);
    l->order[f->id] = o;
}

/* A contraction of something with channels (a window slides over it, or it lies in an order of its own) with weights: its places first, then the axes that
 * both have, then those of the weights alone, which are the channels of the result; reduced: the window first, the channels that lie together last. */
static bool order_contraction(Layout *l, const Node *f, const Source *s, int n)
{
    const Node *body = f->in[0];
    const Source *x = NULL;
    for (int i = 0; i < n; i++) {
        bool mixes = false, misses = false;
        for (int k = 0; k < body->rank; k++) misses |= !dim_is(body->dims[k], 1) && !source_uses(&s[i], k);
        for (int j = 0; j < s[i].node->rank; j++) {
            bool kept = false, reduced = false;
            for (int k = 0; k < body->rank; k++)
                if (dim_uses(s[i].idx[j], k)) { if (f->axes >> k & 1) reduced = true; else kept = true; }
            mixes |= kept && reduced;
        }
        if (!misses && !mixes) return false;         /* a reduction over what is there, no contraction */
        if (!mixes && !l->order[s[i].node->id]) continue;
        if (x && x->node != s[i].node) return false;
        x = &s[i];
    }
    if (!x || n < 2) return false;
    uint8_t axis[MAX_RANK] = { 0 };
    int m = 0, channel = -1;
    bool other[MAX_RANK] = { 0 };
    for (int k = 0; k < body->rank; k++)
        for (int i = 0; i < n; i++) other[k] |= s[i].node != x->node && source_uses(&s[i], k);
    uint8_t walk[MAX_RANK];
    int w = order_rest(body, walk, order_by(l, x, body, walk, 0));
    for (int pass = 0; pass < 3; pass++)             /* places; shared; of the weights alone */
        for (int i = 0; i < w; i++) {
            int k = walk[i];
            bool own = source_uses(x, k);
            if ((f->axes >> k & 1) || pass != (!other[k] ? 0 : own ? 1 : 2)) continue;
            axis[m++] = (uint8_t)k;
            if (other[k] && !dim_is(body->dims[k], 1)) channel = k;
        }
    if (channel < 0 || dim_hint(l->g, body->dims[channel]) < FEW_CHANNELS) {
        if (!l->order[x->node->id]) return true;
        m = 0;                           /* the result keeps its order, but the operand is walked as it lies */
        for (int k = 0; k < body->rank; k++) if (!(f->axes >> k & 1)) axis[m++] = (uint8_t)k;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < body->rank; k++) {
            if (!(f->axes >> k & 1)) continue;
            bool window = false;
            for (int j = 0; j < x->node->rank; j++)
                for (int q = 0; q < body->rank; q++) window |= !(f->axes >> q & 1) && dim_uses(x->idx[j], k) && dim_uses(x->idx[j], q);
            if (window == (pass == 0)) axis[m++] = (uint8_t)k;
        }
    ASSERT(m == body->rank);
    fold_order(l, f, axis);
    return true;
}

static void order_fold(Layout *l, const Node *f)
{
    Source s[MAX_SOURCES];
    int n = 0;
    Dim **own = NEWS(l->arena, Dim *, f->in[0]->rank + 1);
    for (int k = 0; k < f->in[0]->rank; k++) own[k] = dim_idx(l->g, k, f->in[0]->dims[k]);
    if (!body_sources(l, f->in[0], own, s, &n, 0)) return;
    if (f->kind == FOLD_sum && order_contraction(l, f, s, n)) return;
    double best = 0;                     /* a reduction of something that lies in another order: walks it as it lies */
    uint8_t axis[MAX_RANK] = { 0 };
    for (int i = 0; i < n; i++) {
        double size = l->order[s[i].node->id] ? size_of(l, s[i].node) : 0;
        if (size <= best) continue;
        best = size;
        order_rest(f->in[0], axis, order_by(l, &s[i], f->in[0], axis, 0));
    }
    if (best > 0) fold_order(l, f, axis);
}

/* ---- the new graph ---------------------------------------------------------------------------------------------------------------------------- */
/* A fold's order by the axes of its result. */
static void result_order(const Node *n, const Order *o, int *perm)
{
    if (n->op != OP_fold) { for (int k = 0; k < n->rank; k++) perm[k] = o->axis[k]; return; }
    for (int k = 0; k < n->rank; k++) {
        perm[k] = 0;
        for (int j = 0; j < o->axis[k]; j++) perm[k] += !(n->axes >> j & 1);
    }
}

/* The value with the axes of the old node. */
static Node *layout_value(Layout *l, const Node *n)
{
    if (!l->order[n->id]) return l->made[n->id];
    int perm[MAX_RANK], back[MAX_RANK];
    result_order(n, l->order[n->id], perm);
    for (int k = 0; k < n->rank; k++) back[perm[k]] = k;
    return g_transpose(l->g, l->made[n->id], back);
}

static Node *add_like(Layout *l, const Node *n, const int *perm, Node **in)
{
    Dim *dims[MAX_RANK];
    Node proto = *n;
    for (int k = 0; k < n->rank; k++) dims[k] = n->dims[perm ? perm[k] : k];
    proto.dims = dims;
    proto.in = in;
    if (n->op == OP_join && perm) for (int k = 0; k < n->rank; k++) if (perm[k] == n->axis) proto.axis = k;
    l->g->cur_origin = n->origin;
    return graph_add(l->g, &proto);
}

/* Least and largest value of an index over the axes of a view. False: it is not linear in them, or that depends on sizes. */
static bool index_reach(Graph *g, Dim *e, int rank, Dim *const *dims, Dim **low, Dim **high)
{
    *low = *high = e;
    for (int k = 0; k < rank; k++) {
        Dim *c, *rest, *d, *other;
        if (!dim_uses(e, k)) continue;
        if (!dim_linear(g, *low, k, &c, &rest) || !dim_linear(g, *high, k, &d, &other) || c != d || !dim_is_const(c)) return false;
        Dim *last = dim_mul(g, c, dim_addc(g, dims[k], -1));
        *low = c->c < 0 ? dim_add(g, rest, last) : rest;
        *high = c->c < 0 ? other : dim_add(g, other, last);
    }
    return true;
}

/* A factor of the product that is x itself, converted or not, where the other one is known to be finite: nothing is lost where x is padding of 0. */
static bool pads_idly(const Layout *l, const Node *x, const View *v)
{
    const Node *m = l->product;
    if (!m || m->op != OP_mul || (dtype_is_float(x->dt) ? v->fill.f != 0 : v->fill.i != 0)) return false;
    for (int i = 0; i < 2; i++) {
        const Node *n = m->in[i];
        while (n != x && (n->op == OP_cast || (n->op == OP_view && !n->view.npred))) n = n->in[0];
        if (n == x) return reach_known(node_reach(l->g, m->in[1 - i]));
    }
    return false;
}

/* Are places of axis j a parallel axis along which a contraction reads the same for all its many channels, so that a tile leaves out its rows in the padding? A turn
 * of the window, a tile's sums for all that is inside, must take longer than it takes to find out which rows these are. */
enum { TURN_CYCLES = 48, WIDE_STEP = 28, STEP = 6 };         /* at least; of a step of a tile, with 32 registers of 16 lanes and with 16 */
static bool rows_skip(const Layout *l, const Node *v, Pred q, int kept)
{
    int place = -1, window = -1, before, after;
    int64_t channels = 1, steps = 1;
    for (int k = 0; k < v->rank; k++) {
        bool own = false;
        for (int i = 0; i < v->view.nidx; i++) own |= dim_uses(v->view.idx[i], k);
        if (k < kept && !own) channels *= dim_hint(l->g, v->dims[k]);
        if (window >= 0) steps *= dim_hint(l->g, v->dims[k]);
        if (!dim_uses(q.e, k)) continue;
        int *at = k < kept ? &place : &window;
        if (*at >= 0) return false;
        *at = k;
    }
    if (place < 0 || window < 0 || channels < FEW_CHANNELS || steps * (l->lanes >= 16 ? WIDE_STEP : STEP) < TURN_CYCLES) return false;
    return dim_outside(l->g, q.e, q.n, dim_idx(l->g, place, v->dims[place]), dim_idx(l->g, window, v->dims[window]), &before, &after);
}

/* A window along axis j of what v reads, of which the loops leave the padding out (kir/bounds.c): places along it are the rows of a tile, which the last axis becomes
 * that is long enough, or the window is so large that it is not unrolled. kept: axes of v that the contraction keeps, the first ones. */
enum { ROW_PLACES = 7, WINDOW_STEPS = 16 };
static bool loop_skips(const Layout *l, const Node *v, Pred q, int j, int kept)
{
    int64_t steps = 1, place = 0, later = 0, most = 0;
    int window = -1;
    for (int k = kept; k < v->rank; k++) {
        Dim *c, *rest;
        bool own = dim_uses(v->view.idx[j], k);
        if (window >= 0 || own) steps *= dim_hint(l->g, v->dims[k]);
        if (!own) continue;
        if (window >= 0 || !dim_linear(l->g, v->view.idx[j], k, &c, &rest) || !dim_is_const(c) || c->c < 1) return false;
        window = k;
    }
    for (int p = 0; p < v->view.npred; p++)
        for (int i = 0; i < v->view.nidx; i++)
            for (int k = 0; v->view.pred[p].e == v->view.idx[i] && k < kept; k++) {
                int64_t n = dim_uses(v->view.idx[i], k) ? dim_hint(l->g, v->dims[k]) : 0;
                if (n && i == j) place = n;
                if (n && i > j) later = n;
                if (n > most) most = n;
            }
    bool row = !later && (place >= ROW_PLACES || place == most);
    if (window < 0 || (!row && steps < WINDOW_STEPS)) return false;
    return (later && (later >= ROW_PLACES || later >= place)) || rows_skip(l, v, q, kept);
}

/* What a contraction reads through padding: the values lie with the padding around them, as pieces of joins, so that no address is tested. Whoever computes
 * them writes them there, if only this contraction reads them; else they are copied, which pays where each serves many products. NULL: it stays as it is. */
enum { MOST_PADDING = 16, MANY_PRODUCTS = 48 };
static Node *padded(Layout *l, const Node *n, Node *v, int kept)
{
    Graph *g = l->g;
    const Node *x = n->op == OP_view ? n->in[0] : NULL;
    if (!x || !v || v->op != OP_view || !v->view.npred || l->uses[n->id] != 1) return NULL;
    bool alone = l->uses[x->id] == 1 && (by_element(x) || x->op == OP_fold || x->op == OP_join);
    if (!alone && size_of(l, n) < MANY_PRODUCTS * size_of(l, x)) return NULL;
    Node *m = v->in[0];
    View to = v->view;
    Dim **idx = NEWS(l->arena, Dim *, to.nidx + 1);
    int64_t before[MAX_RANK] = { 0 }, after[MAX_RANK] = { 0 };
    Pred *left = NEWS(l->arena, Pred, to.npred);
    int nleft = 0;
    bool idle = pads_idly(l, n, &to);
    for (int j = 0; j < to.nidx; j++) idx[j] = to.idx[j];
    for (int p = 0; p < to.npred; p++) {
        int j = 0;
        Dim *low, *high;
        while (j < to.nidx && (to.pred[p].e != to.idx[j] || to.pred[p].n != m->dims[j])) j++;
        if (j < to.nidx && idle && loop_skips(l, v, to.pred[p], j, kept)) { left[nleft++] = to.pred[p]; continue; }
        if (j == to.nidx || !index_reach(g, to.idx[j], v->rank, v->dims, &low, &high)) return NULL;
        high = dim_sub(g, high, dim_addc(g, m->dims[j], -1));
        if (!dim_is_const(low) || !dim_is_const(high) || -low->c > MOST_PADDING || high->c > MOST_PADDING) return NULL;
        before[j] = low->c < 0 ? -low->c : 0;
        after[j] = high->c > 0 ? high->c : 0;
        idx[j] = dim_addc(g, to.idx[j], before[j]);
    }
    Node *fill = dtype_is_float(m->dt) ? g_scalar(g, m->dt, to.fill.f) : g_int(g, m->dt, to.fill.i);
    for (int j = 0; j < m->rank; j++) {
        Node *piece[3], *in = m;
        Dim *dims[MAX_RANK];
        int count = 0;
        for (int k = 0; k < m->rank; k++) dims[k] = m->dims[k];
        for (int side = 0; side < 3; side++) {
            int64_t size = side == 0 ? before[j] : after[j];
            if (side == 1) { piece[count++] = in; continue; }
            if (!size) continue;
            dims[j] = dim_const(g, size);
            piece[count++] = g_expand(g, fill, m->rank, dims);
        }
        if (count > 1) m = g_join(g, count, piece, j);
    }
    to.idx = idx; to.npred = nleft; to.pred = left;
    return g_view(g, m, v->rank, v->dims, &to);
}

/* The old node n, seen through a view (or NULL), with its axes permuted; elementwise nodes that only serve one reader are made anew in that order. sum: the axes
 * that are kept, where it is summed up; else 0. */
static Node *permuted(Layout *l, const Node *n, const Node *through, const int *perm, int sum, int depth)
{
    Graph *g = l->g;
    g->cur_origin = n->origin;
    bool alone = l->uses[n->id] == 1 && depth <= 64;
    if (alone && !through && n->op == OP_view && !n->view.npred && by_element(n->in[0]) && l->uses[n->in[0]->id] == 1 && g_count(g, n->in[0]) == g_count(g, n))
        return permuted(l, n->in[0], n, perm, sum, depth + 1);
    if (!by_element(n) || !alone) {
        Node *v = layout_value(l, n);
        if (through) v = g_view(g, v, through->rank, through->dims, &through->view);
        v = g_transpose(g, v, perm);
        Node *p = sum ? padded(l, n, v, sum) : NULL;
        return p ? p : v;
    }
    Node *in[3];
    for (int i = 0; i < n->nin; i++) in[i] = permuted(l, n->in[i], through, perm, sum, depth + 1);
    Node like = *n;
    if (through) { like.rank = through->rank; like.dims = through->dims; }
    return add_like(l, &like, perm, in);
}

static Node *remade_fold(Layout *l, const Node *f, const Order *o)
{
    const Node *body = f->in[0];
    int perm[MAX_RANK], result[MAX_RANK];
    for (int k = 0; k < body->rank; k++) perm[k] = o->axis[k];
    result_order(f, o, result);
    ASSERT(body->rank > f->rank);
    l->product = body;
    Node *in = permuted(l, body, NULL, perm, f->kind == FOLD_sum ? f->rank : 0, 0);
    Dim *dims[MAX_RANK];
    Node proto = *f;
    for (int k = 0; k < f->rank; k++) dims[k] = f->dims[result[k]];
    proto.dims = dims; proto.in = &in;
    proto.axes = ((1u << (body->rank - f->rank)) - 1) << f->rank;
    l->g->cur_origin = f->origin;
    return graph_add(l->g, &proto);
}

static Node *remade(Layout *l, Node *n)
{
    const Order *o = l->order[n->id];
    bool same = !o;
    for (int i = 0; i < n->nin; i++) same = same && !l->order[n->in[i]->id] && l->made[n->in[i]->id] == n->in[i];
    if (same) return n;
    if (n->op == OP_fold && o) return remade_fold(l, n, o);
    Node **in = NEWS(l->arena, Node *, n->nin + 1);
    l->g->cur_origin = n->origin;
    int perm[MAX_RANK];
    if (o) result_order(n, o, perm);
    for (int i = 0; i < n->nin; i++) {
        in[i] = layout_value(l, n->in[i]);
        if (o) in[i] = g_transpose(l->g, in[i], perm);
    }
    if (n->op == OP_view) return g_view(l->g, in[0], n->rank, n->dims, &n->view);
    return add_like(l, n, o ? perm : NULL, in);
}

void layout_choose(Ctx *cx, Arena *a, Graph *g, int lanes)
{
    int n = g->node.n, origin = g->cur_origin;
    Layout *l = NEW(a, Layout);
    *l = (Layout){ .arena = a, .g = g, .lanes = lanes, .count = n, .live = NEWS(a, uint8_t, n + 1), .uses = NEWS(a, int, n + 1), .order = arena_alloc(a, sizeof *l->order * (size_t)(n + 1)), .made = NEWS(a, Node *, n + 1) };
    for (int i = 0; i < g->output.n; i++) { l->live[g->output.at[i].node->id] = 1; l->uses[g->output.at[i].node->id]++; }
    for (int id = n - 1; id >= 0; id--)
        for (int i = 0; l->live[id] && i < g->node.at[id]->nin; i++) { l->live[g->node.at[id]->in[i]->id] = 1; l->uses[g->node.at[id]->in[i]->id]++; }
    int chosen = 0;
    for (int id = 0; id < n; id++) {
        const Node *x = g->node.at[id];
        if ((id & 255) == 0) ctx_poll(cx);
        if (!l->live[id]) continue;
        if (x->op == OP_fold) order_fold(l, x);
        else if (chosen && (by_element(x) || x->op == OP_join)) order_pointwise(l, x);
        chosen += l->order[id] != NULL;
    }
    if (!chosen) return;
    for (int id = 0; id < n; id++) if (l->live[id]) l->made[id] = remade(l, g->node.at[id]);
    for (int i = 0; i < g->output.n; i++) g->output.at[i].node = layout_value(l, g->output.at[i].node);
    g->cur_origin = origin;
    log_line(cx, 2, "layout: %d of %d nodes lie in another order", chosen, n);
}
