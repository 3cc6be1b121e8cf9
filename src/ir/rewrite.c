/* rewrite.c: one pass over a graph that applies algebraic rules (rules.c) before kernels are planned, and the rules that take C.
 *
 * Nodes are visited in order, operands first. A node whose operands changed is made anew; then rules are tried until none matches. The graph only grows:
 * what is replaced is no longer reached from an output. Passes repeat while something changes, since a replacement may hold work for another rule.
 * Every replacement has the dtype and the sizes of what it replaces: rules_rewrite() refuses another. */
#include "ir/rewrite.h"

#include <string.h>

enum { MAX_PASSES = 4, MAX_STEPS = 16 };

/* ---- what is known ------------------------------------------------------------------------------------------------------------------- */
/* Operands have smaller ids, so filling the table upwards needs no recursion. */
bool rewrite_known(Rewrite *w, const Node *n)
{
    while (w->known.n <= n->id) {
        const Node *x = w->g->node.at[w->known.n];
        bool known = x->op != OP_input && x->op != OP_dims && x->op != OP_random && x->op != OP_call && x->op != OP_part && x->op != OP_iota;
        for (int k = 0; known && k < x->nin; k++) known = w->known.at[x->in[k]->id] == 1;
        if (x->op == OP_view || x->op == OP_gather || x->op == OP_scatter) known = known && !view_open(&x->view);
        for (int k = 0; known && k < x->rank; k++) known = dim_is_const(x->dims[k]) || x->op == OP_view;
        vec_push(w->g->arena, &w->known, known ? 1 : 2);
    }
    return w->known.at[n->id] == 1;
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------------------ */
static Node *with_operands(Rewrite *w, Node *n)
{
    Node **in = NULL;
    for (int k = 0; k < n->nin; k++) {
        if (w->to.at[n->in[k]->id] == n->in[k]) continue;
        if (!in) in = arena_copy(w->g->arena, n->in, sizeof *in * (size_t)n->nin);
        in[k] = w->to.at[n->in[k]->id];
    }
    if (!in) return n;
    Node proto = *n;
    proto.in = in;
    return graph_add(w->g, &proto);
}

static int rewrite_pass(Rewrite *w, int *times)
{
    Graph *g = w->g;
    int n = g->node.n, changed = 0;
    const uint8_t *live = graph_live(w->arena, g);
    if (!n) return 0;
    w->to.n = w->uses.n = 0;
    for (int i = 0; i < n; i++) {
        vec_push(w->arena, &w->to, g->node.at[i]);
        vec_push(w->arena, &w->uses, 0);
    }
    ASSERT(w->uses.at);
    for (int i = 0; i < n; i++)
        for (int k = 0; live[i] && k < g->node.at[i]->nin; k++) w->uses.at[g->node.at[i]->in[k]->id]++;
    for (int i = 0; i < g->output.n; i++) w->uses.at[g->output.at[i].node->id]++;
    for (int i = 0; i < n; i++) {
        if (!live[i]) continue;
        g->cur_origin = g->node.at[i]->origin;
        Node *x = with_operands(w, g->node.at[i]);
        for (int step = 0; step < MAX_STEPS; step++) {
            int rule;
            if (w->cx->opt.limit >= 0 && g->nrewrite >= w->cx->opt.limit) break;
            Node *y = rules_rewrite(w, x, &rule);
            if (!y) break;
            log_line(w->cx, 3, "rule %s: %%%d becomes %%%d", rules_name(w->rules, rule), x->id, y->id);
            x = y;
            times[rule]++;
            changed++;
            g->nrewrite++;
        }
        w->to.at[i] = x;
    }
    for (int i = 0; i < g->output.n; i++) g->output.at[i].node = w->to.at[g->output.at[i].node->id];
    return changed;
}

void graph_rewrite(Ctx *cx, Arena *a, Graph *g, const RuleSet *rules, int *times)
{
    Rewrite w = { .cx = cx, .g = g, .arena = a, .rules = rules, .allow = rules_leave(cx, cx->opt.allow) };
    for (int pass = 0; pass < MAX_PASSES; pass++)
        if (!rewrite_pass(&w, times)) break;
}

/* ---- rules that take C ------------------------------------------------------------------------------------------------------------------ */
/* Axes of n along which x, a view or n's own size, varies: those that its index map uses. */
static uint32_t axes_used(const Node *x)
{
    uint32_t used = 0;
    for (int k = 0; k < x->rank; k++) {
        bool uses = x->op != OP_view;
        for (int j = 0; !uses && j < x->view.nidx; j++) uses = dim_uses(x->view.idx[j], k);
        if (uses && !dim_is(x->dims[k], 1)) used |= axis_bit(k);
    }
    return used;
}

/* x without the axes outside `axes`, along which it is the same everywhere (it takes their element 0). */
static Node *without_axes(Graph *g, Node *x, uint32_t axes)
{
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    int rank = 0;
    for (int k = 0; k < x->rank; k++) {
        bool stays = axes & axis_bit(k);
        idx[k] = stays ? dim_idx(g, rank, x->dims[k]) : dim_const(g, 0);
        if (stays) dims[rank++] = x->dims[k];
    }
    return g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* The other way: x, whose axes are those of `axes`, spread over a shape. */
static Node *over_axes(Graph *g, Node *x, uint32_t axes, int rank, Dim *const *dims)
{
    Dim *idx[MAX_RANK];
    int n = 0;
    for (int k = 0; k < rank; k++)
        if (axes & axis_bit(k)) idx[n++] = dim_idx(g, k, dims[k]);
    return g_view(g, x, rank, dims, &(View){ .nidx = n, .idx = idx });
}

static bool spread(const Node *x)       /* a view without a predicate of something with elements */
{
    if (x->op != OP_view || x->view.npred) return false;
    for (int k = 0; k < x->in[0]->rank; k++)
        if (!dim_is_const(x->in[0]->dims[k]) || x->in[0]->dims[k]->c == 0) return false;
    return true;
}

/* Constants that an elementwise primitive combines meet at the size that they have, not at that of what they are spread over. */
Node *rule_hoist(Rewrite *w, Node *n)
{
    if (!prim_info[n->op].elementwise && n->op != OP_where && n->op != OP_cast) return NULL;
    uint32_t used = 0, all = 0;
    for (int k = 0; k < n->rank; k++) {
        if (!dim_is_const(n->dims[k]) || dim_is(n->dims[k], 0)) return NULL;
        if (!dim_is(n->dims[k], 1)) all |= axis_bit(k);
    }
    for (int k = 0; k < n->nin; k++) {
        if (!rewrite_known(w, n->in[k]) || !spread(n->in[k])) return NULL;
        used |= axes_used(n->in[k]);
    }
    if (n->nin == 0 || used == all) return NULL;
    Node *in[3] = { NULL };
    for (int k = 0; k < n->nin; k++) in[k] = without_axes(w->g, n->in[k], used);
    ASSERT(in[0]);
    Node proto = *n;
    proto.in = in;
    proto.rank = in[0]->rank;
    proto.dims = in[0]->dims;
    return over_axes(w->g, graph_add(w->g, &proto), used, n->rank, n->dims);
}

/* Roots keep the order, rounded as well, and a negative number makes both sides NaN; not so for the largest. */
Node *rule_root_least(Rewrite *w, Node *n)
{
    Node *r = n->op == OP_fold ? n->in[0] : n, *v = NULL;
    if (n->op != OP_fold || n->kind != FOLD_min) return NULL;
    if (r->op == OP_view && !r->view.npred) { v = r; r = r->in[0]; }
    if (r->op != OP_sqrt) return NULL;
    Node *x = v ? g_view(w->g, r->in[0], v->rank, v->dims, &v->view) : r->in[0], proto = *n;
    proto.in = &x;
    return g1(w->g, OP_sqrt, graph_add(w->g, &proto));
}

/* Does every value of `from` exist in `to`, so that a cast changes nothing but the form? */
static bool dtype_holds(DType to, DType from)
{
    const DTypeInfo *t = &dtype_info[to], *f = &dtype_info[from];
    int bits = dtype_bits(from);
    if (to == from) return true;
    if (f->class == 'B') return t->class != 'B' && dtype_bits(to) >= 8 && (to == DT_f64 || to == DT_f32 || to == DT_f16 || to == DT_bf16 || t->class == 'S' || t->class == 'U');
    if (f->class == 'F') return to == DT_f64 ? bits <= 32 : to == DT_f32 && (from == DT_f16 || from == DT_bf16);
    if (t->class == 'F') return to == DT_f64 ? bits <= 32 : to == DT_f32 ? bits <= 16 : to == DT_f16 && bits <= 8;
    if (f->class == 'U') return (t->class == 'U' && dtype_bits(to) > bits) || (t->class == 'S' && dtype_bits(to) > bits);
    return f->class == 'S' && t->class == 'S' && dtype_bits(to) > bits;
}

Node *rule_cast_cast(Rewrite *w, Node *n)
{
    if (n->op != OP_cast || n->in[0]->op != OP_cast) return NULL;
    Node *x = n->in[0]->in[0];
    if (!dtype_holds(n->in[0]->dt, x->dt)) return NULL;
    return x->dt == n->dt ? x : g_cast_sat(w->g, x, n->dt, n->saturate);
}

/* Is n a float of 16 bits that a wider one was rounded to, seen through views? */
static const Node *rounded_to_16(const Node *n)
{
    while (n->op == OP_view) n = n->in[0];
    return n->op == OP_cast && (n->dt == DT_f16 || n->dt == DT_bf16) && dtype_is_float(n->in[0]->dt) && dtype_bits(n->in[0]->dt) > 16 ? n->in[0] : NULL;
}

/* n, a float of 16 bits, as it would be in the wider dtype `to` without its own rounding and those below it; NULL: there are none that can be left out.
 * *budget: nodes that may still be made. */
static Node *unrounded(Rewrite *w, Node *n, DType to, int *budget)
{
    if (n->op == OP_cast && rounded_to_16(n)) return n->in[0]->dt == to ? n->in[0] : g_cast(w->g, n->in[0], to);
    if ((n->op != OP_view && !prim_info[n->op].elementwise) || n->nin == 0 || --*budget < 0) return NULL;
    Node **in = arena_alloc(w->g->arena, sizeof *in * (size_t)n->nin);
    for (int k = 0; k < n->nin; k++) {
        in[k] = unrounded(w, n->in[k], to, budget);
        if (!in[k] && n->op == OP_view) return NULL;
        if (!in[k]) in[k] = g_cast(w->g, n->in[k], to);
    }
    Node proto = *n;
    proto.in = in;
    proto.dt = to;
    return n->op == OP_view ? g_view(w->g, in[0], n->rank, n->dims, &n->view) : graph_add(w->g, &proto);
}

/* Values of 16 bits are rounded where they are stored, not between operators: what XLA calls excess precision. */
Node *rule_cast_wide(Rewrite *w, Node *n)
{
    int budget = 16;
    if (n->op == OP_cast && dtype_is_float(n->dt) && dtype_bits(n->dt) > 16 && (n->in[0]->dt == DT_f16 || n->in[0]->dt == DT_bf16)) return unrounded(w, n->in[0], n->dt, &budget);
    if ((n->dt != DT_f16 && n->dt != DT_bf16) || !prim_info[n->op].elementwise) return NULL;
    for (int k = 0; k < n->nin; k++) {
        const Node *x = rounded_to_16(n->in[k]);
        Node *y = x ? unrounded(w, n, x->dt, &budget) : NULL;
        if (y) return g_cast(w->g, y, n->dt);
    }
    return NULL;
}

/* A node seen through views that only rename and add axes: its index at a point of n, each an axis of n or 0. NULL: something else. */
static Node *below_views(Graph *g, Node *n, Dim **idx)
{
    for (int k = 0; k < n->rank; k++) idx[k] = dim_idx(g, k, n->dims[k]);
    if (n->op != OP_view) return n;
    if (n->view.npred) return NULL;
    uint32_t seen = 0;
    for (int j = 0; j < n->view.nidx; j++) {
        Dim *d = n->view.idx[j];
        idx[j] = d;
        if (dim_is(d, 0)) continue;
        if (d->kind != DIM_idx || d->var >= MAX_RANK || seen & axis_bit(d->var)) return NULL;
        seen |= axis_bit(d->var);
    }
    return n->in[0];
}

/* The contraction sum(p * q) with a constant operand, as n shows it: sum is read by nothing else. operand: p and q in the space of the sum. */
typedef struct ScaledSum { Node *sum, *operand[2], *constant; int side; Dim *idx[MAX_RANK]; } ScaledSum;

/* Is s->sum such a contraction? Weights may be 0 outside of themselves (transposed convolutions). */
static bool has_weights(Rewrite *w, ScaledSum *s)
{
    if (!s->sum || s->sum->op != OP_fold || s->sum->kind != FOLD_sum) return false;
    if (s->sum->id < w->uses.n && w->uses.at[s->sum->id] > 1) return false;
    const Node *body = s->sum->in[0], *seen = body->op == OP_view && !body->view.npred ? body : NULL, *mul = seen ? seen->in[0] : body;
    if (mul->op != OP_mul) return false;
    for (int i = 0; i < 2; i++) s->operand[i] = seen ? g_view(w->g, mul->in[i], seen->rank, seen->dims, &seen->view) : mul->in[i];
    for (s->side = 0; s->side < 2; s->side++) {
        Node *q = s->operand[s->side];
        s->constant = q;
        if (q->op == OP_view && (q->view.npred == 0 || q->view.fill.f == 0) && rewrite_known(w, q)) return true;
    }
    return false;
}

/* k, a factor of n = views of sum(p * view(weights)), at each element of the weights; NULL: it varies along an axis that the weights do not have. */
static Node *factor_of_weights(Graph *g, const ScaledSum *s, Node *n, Node *k)
{
    Node *q = s->constant, *weights = q->in[0];
    int space = s->sum->in[0]->rank, kept = 0;
    Dim *to[MAX_RANK], *idx[MAX_RANK];
    for (int i = 0; i < n->rank; i++) to[i] = NULL;
    for (int axis = 0; axis < space; axis++) {
        if (s->sum->axes & axis_bit(axis)) continue;
        ASSERT(kept < MAX_RANK && s->idx[kept]);
        Dim *at = s->idx[kept++];       /* this axis of the space is that axis of n */
        if (dim_is(at, 0)) continue;
        for (int j = 0; j < weights->rank; j++)
            if (q->view.idx[j]->kind == DIM_idx && q->view.idx[j]->var == axis && q->view.idx[j]->a == weights->dims[j]) to[at->var] = dim_idx(g, j, weights->dims[j]);
    }
    uint32_t used = axes_used(k);
    for (int i = 0; i < n->rank; i++)
        if (used & axis_bit(i) && !to[i]) return NULL;
    for (int i = 0; i < n->rank; i++) idx[i] = used & axis_bit(i) ? to[i] : dim_const(g, 0);
    return g_view(g, k, weights->rank, weights->dims, &(View){ .nidx = k->rank, .idx = idx });
}

/* k, a factor of n = view(sum), at each element of the sum: an axis of n that k knows is one of the sum, or two that it counts through (groups and their channels).
 * NULL: something else. */
static Node *factor_of_sum(Graph *g, const Node *n, const Node *sum, Node *k)
{
    const uint32_t used = axes_used(k);
    Dim *idx[MAX_RANK];
    if (n == sum) return k;
    for (int a = 0; a < n->rank; a++) {
        Dim *v = dim_idx(g, a, n->dims[a]), *const *at = n->view.idx;
        idx[a] = dim_const(g, 0);
        if (!(used & axis_bit(a))) continue;
        int uses = 0, slow = -1, fast = -1;
        for (int j = 0; j < sum->rank; j++) {
            if (!dim_uses(at[j], a)) continue;
            uses++;
            if (at[j] == v || (at[j] == dim_mod(g, v, sum->dims[j]) && dim_is_const(sum->dims[j]))) fast = j;
            else slow = j;
        }
        if (uses == 1 && fast >= 0 && at[fast] == v && sum->dims[fast] == n->dims[a]) idx[a] = dim_idx(g, fast, sum->dims[fast]);
        else if (uses == 2 && fast >= 0 && slow >= 0 && at[slow] == dim_div(g, v, sum->dims[fast]))
            idx[a] = dim_add(g, dim_mul(g, dim_idx(g, slow, sum->dims[slow]), sum->dims[fast]), dim_idx(g, fast, sum->dims[fast]));
        else return NULL;
    }
    return g_view(g, k, sum->rank, sum->dims, &(View){ .nidx = n->rank, .idx = idx });
}

/* The weights, as the contraction's space sees them, times a factor of n = view(sum): over the axes of the space that they know, which need not be their own (groups,
 * flipped windows). NULL: the factor varies along another one, or that would be more numbers than they are. */
static Node *scaled_apart(Rewrite *w, Node *n, Node *k, ScaledSum *s)
{
    Graph *g = w->g;
    s->sum = n->op == OP_view && !n->view.npred ? n->in[0] : n;
    if (!has_weights(w, s) || s->constant->view.npred || !(k = factor_of_sum(g, n, s->sum, k))) return NULL;
    const Node *space = s->sum->in[0], *q = s->constant;
    const uint32_t varies = axes_used(k), knows = axes_used(q);
    Dim *dims[MAX_RANK], *at[MAX_RANK], *own[MAX_RANK], *idx[MAX_RANK], *idx_k[MAX_RANK];
    int rank = 0, kept = 0;
    for (int i = 0; i < space->rank; i++) {
        at[i] = dim_const(g, 0);
        if (knows & axis_bit(i)) {
            dims[rank] = space->dims[i];
            own[rank] = dim_idx(g, i, space->dims[i]);
            at[i] = dim_idx(g, rank++, space->dims[i]);
        }
        if (s->sum->axes & axis_bit(i)) continue;
        if ((varies & axis_bit(kept)) && !(knows & axis_bit(i))) return NULL;
        idx_k[kept++] = at[i];
    }
    for (int j = 0; j < q->view.nidx; j++) idx[j] = dim_subst(g, q->view.idx[j], space->rank, at);
    Node *weights = g_view(g, q->in[0], rank, dims, &(View){ .nidx = q->view.nidx, .idx = idx });
    if (dim_hint(g, g_count(g, weights)) > dim_hint(g, g_count(g, q->in[0]))) return NULL;
    Node *scaled = g2(g, OP_mul, weights, g_view(g, k, rank, dims, &(View){ .nidx = kept, .idx = idx_k }));
    return g_view(g, scaled, space->rank, space->dims, &(View){ .nidx = rank, .idx = own });
}

/* A factor that is not finite would meet a zero, or both signs of infinity, among the weights, where the graph has one of the sum. */
static bool is_finite(Rewrite *w, Node *k)
{
    const Tensor *t = rewrite_known(w, k->in[0]) ? host_value(w->g, k->in[0]) : NULL;
    for (int64_t i = 0; t && i < tensor_count(t); i++) {
        double v = scalar_load(t->dt, tensor_at(t, i)).f;
        if (v - v != 0) return false;
    }
    return t;
}

/* (sum(p * weights) + b) * k = sum(p * (weights * k)) + b * k: batch normalisation behind a convolution or a product. */
Node *rule_scale_sum(Rewrite *w, Node *n)
{
    Graph *g = w->g;
    if (n->op != OP_mul) return NULL;
    for (int side = 0; side < 2; side++) {
        Node *y = n->in[side], *k = n->in[1 - side], *base = y, *shift = NULL;
        if (!rewrite_known(w, k) || !spread(k)) continue;
        ScaledSum s = { 0 };
        if ((y->op == OP_add || y->op == OP_sub) && rewrite_known(w, y->in[1])) {
            base = y->in[0];
            shift = y->in[1];
        }
        if (y->id < w->uses.n && w->uses.at[y->id] > 1) continue;
        s.sum = below_views(g, base, s.idx);
        Node *factor = has_weights(w, &s) ? factor_of_weights(g, &s, base, k) : NULL, *in[2];
        Node *operand = factor ? g_view(g, g2(g, OP_mul, s.constant->in[0], factor), s.constant->rank, s.constant->dims, &s.constant->view) : scaled_apart(w, base, k, &s);
        if (!operand || !is_finite(w, k)) continue;      /* asked last: it looks at every number */
        in[s.side] = operand;
        in[1 - s.side] = s.operand[1 - s.side];
        Node sum = *s.sum, *at = g2(g, OP_mul, in[0], in[1]);
        sum.in = &at;
        Node *z = graph_add(g, &sum);
        if (base != s.sum) z = g_view(g, z, base->rank, base->dims, &base->view);
        return shift ? g2(g, y->op, z, g2(g, OP_mul, shift, k)) : z;
    }
    return NULL;
}
