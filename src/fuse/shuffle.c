/* Shuffled axes: a reshape, a transpose and a reshape back put element p(c) at place c of an axis (channel shuffles between grouped convolutions).
 *
 * What computes element by element of that axis (a depthwise convolution, a normalisation) may as well run in the order in which its operand lies, and leave the
 * shuffle to whoever reads the result:
 *
 *     y[c] = f(x[p(c)], w[c])   becomes   y'[c] = f(x[c], w[q(c)]),  y[c] = y'[p(c)],   q the inverse of p
 *
 * so that lanes meet neighbours in memory and nothing is copied. w is a constant and is permuted when the graph is made. A reader that takes single elements (the
 * next convolution, one number for all its lanes) finds p in its address. */
#include "fuse/fuse.h"

#include <string.h>

enum { MOST_PERMUTED = 1 << 20 };        /* bytes of a constant */

typedef struct Shuffle { Graph *g; Arena *arena; int axis; Dim *to, *back; } Shuffle;       /* p and q, over the variable of the axis */

static bool known_now(const Node *n, int *steps)
{
    if (n->op == OP_const) return true;
    if ((!by_element(n) && n->op != OP_view) || --*steps < 0) return false;
    for (int i = 0; i < n->nin; i++) if (!known_now(n->in[i], steps)) return false;
    return true;
}

/* e = a * (c mod b) + c div b, for an axis c of a * b elements: its inverse is b * (c mod a) + c div a. */
static bool is_shuffle(Shuffle *s, Dim *e, int axis, Dim *extent)
{
    Graph *g = s->g;
    Dim *c = dim_idx(g, axis, extent), *a = NULL, *b = NULL;
    if (e->kind != DIM_sum || e->n != 2 || e->c || !dim_is_const(extent)) return false;
    for (int i = 0; i < 2; i++) {
        const DimTerm *t = &e->term[i];
        if (t->n != 1 || t->factor[0]->a != c || !dim_is_const(t->factor[0]->b)) return false;
        if (t->factor[0]->kind == DIM_mod) { a = dim_const(g, t->coef); b = t->factor[0]->b; }
        else if (t->factor[0]->kind != DIM_div || t->coef != 1) return false;
    }
    if (!a || dim_mul(g, a, b) != extent) return false;
    Dim *back = dim_add(g, dim_mul(g, b, dim_mod(g, c, a)), dim_div(g, c, a)), *map[MAX_RANK] = { 0 };
    map[axis] = back;
    if (dim_subst(g, e, axis + 1, map) != c) return false;
    *s = (Shuffle){ g, s->arena, axis, e, back };
    return true;
}

/* A shuffle of one of n's axes in what n reads, n being part of what is computed at each point. */
static bool find_shuffle(Shuffle *s, const Node *n, int *steps)
{
    if (--*steps < 0) return false;
    if (by_element(n)) {
        for (int i = 0; i < n->nin; i++) if (find_shuffle(s, n->in[i], steps)) return true;
        return false;
    }
    if (n->op != OP_view || known_now(n->in[0], steps)) return false;
    for (int j = 0; j < n->view.nidx; j++)
        for (int k = 0; k < n->rank; k++)
            if (dim_uses(n->view.idx[j], k) && is_shuffle(s, n->view.idx[j], k, n->dims[k])) return true;
    if (n->view.npred || !by_element(n->in[0]) || g_count(s->g, n->in[0]) != g_count(s->g, n)) return false;
    Shuffle below = *s;                  /* a product seen through a view that takes axes of size 1 away */
    if (!find_shuffle(&below, n->in[0], steps)) return false;
    for (int k = 0; k < n->rank; k++)
        if (n->view.idx[below.axis] == dim_idx(s->g, k, n->dims[k]) && n->dims[k] == n->in[0]->dims[below.axis]) {
            Dim *map[MAX_RANK] = { 0 };
            map[below.axis] = n->view.idx[below.axis];
            *s = (Shuffle){ s->g, s->arena, k, dim_subst(s->g, below.to, below.axis + 1, map), dim_subst(s->g, below.back, below.axis + 1, map) };
            return true;
        }
    return false;
}

/* Element c of the result is element q(c) of the constant, along an axis. */
static Node *permuted_const(const Shuffle *s, const Node *n, int axis, Dim *back, int var)
{
    const Tensor *t = n->tensor;
    size_t size = dtype_size(t->dt), inner = size, outer = 1;
    if (dtype_bits(t->dt) % 8 || tensor_bytes(t) > MOST_PERMUTED) return NULL;
    for (int k = 0; k < t->rank; k++) { if (k < axis) outer *= (size_t)t->dims[k]; else if (k > axis) inner *= (size_t)t->dims[k]; }
    Tensor *r = arena_copy(s->g->arena, t, sizeof *t);
    char *to = arena_alloc(s->g->arena, tensor_bytes(t));
    r->data = to;
    for (size_t o = 0; o < outer; o++)
        for (int64_t c = 0; c < t->dims[axis]; c++, to += inner) {
            int64_t vars[MAX_RANK] = { 0 };
            vars[var] = c;
            memcpy(to, (const char *)t->data + (o * (size_t)t->dims[axis] + (size_t)dim_eval(back, NULL, vars)) * inner, inner);
        }
    return g_const(s->g, r);
}

/* n with c := q(c) for its axis k. NULL: that would shuffle something else. */
static Node *unshuffled(const Shuffle *s, Node *n, int k, Dim *points, int *steps)
{
    Graph *g = s->g;
    Dim *map[MAX_RANK] = { 0 };
    if (--*steps < 0) return NULL;
    if (n->op == OP_const) return n->rank && !dim_is(n->dims[k], 1) ? permuted_const(s, n, k, s->back, s->axis) : n;
    if (by_element(n)) {
        Node *in[3], proto = *n;
        for (int i = 0; i < n->nin; i++) if (!(in[i] = unshuffled(s, n->in[i], k, points, steps))) return NULL;
        proto.in = in;
        g->cur_origin = n->origin;
        return graph_add(g, &proto);
    }
    if (n->op != OP_view) return NULL;
    int at = -1;
    for (int p = 0; p < n->view.npred; p++) if (dim_uses(n->view.pred[p].e, k) || dim_uses(n->view.pred[p].n, k)) return NULL;
    for (int j = 0; j < n->view.nidx; j++) if (dim_uses(n->view.idx[j], k)) { if (at >= 0) return NULL; at = j; }
    if (at < 0) return n;
    Node *x = n->in[0];
    View v = n->view;
    Dim *c = dim_idx(g, k, n->dims[k]);
    g->cur_origin = n->origin;
    if (v.idx[at] == c && x->dims[at] == n->dims[k]) {
        if (!known_now(x, steps) && (!by_element(x) || g_count(g, x) != points)) return NULL;
        x = unshuffled(s, x, at, points, steps);
        return x ? g_view(g, x, n->rank, n->dims, &v) : NULL;
    }
    Dim **idx = NEWS(s->arena, Dim *, v.nidx + 1), *own[MAX_RANK] = { 0 };
    own[s->axis] = c;                    /* q over the variable of this node's axis */
    map[k] = dim_subst(g, s->back, s->axis + 1, own);
    for (int j = 0; j < v.nidx; j++) idx[j] = dim_subst(g, v.idx[j], k + 1, map);
    if (idx[at] != c) return NULL;
    v.idx = idx;
    return g_view(g, x, n->rank, n->dims, &v);
}

/* n in the order of what it reads, behind a view; or NULL. */
static Node *without_shuffle(Shuffle *s, Node *n)
{
    Graph *g = s->g;
    bool fold = n->op == OP_fold;
    int look = WALK_STEPS, make = WALK_STEPS;
    Node *r, *body = fold ? n->in[0] : n;
    if ((!fold && !by_element(n)) || (fold && n->kind != FOLD_sum) || !find_shuffle(s, body, &look) || (fold && (n->axes >> s->axis & 1))) return NULL;
    Node *x = unshuffled(s, body, s->axis, g_count(g, body), &make);
    if (!x) return NULL;
    int axis = s->axis;
    if (fold) {
        Node proto = *n;
        proto.in = &x;
        g->cur_origin = n->origin;
        r = graph_add(g, &proto);
        for (int k = 0; k < s->axis; k++) axis -= n->axes >> k & 1;
    } else r = x;
    Dim *idx[MAX_RANK] = { 0 }, *map[MAX_RANK] = { 0 };
    for (int k = 0; k < r->rank; k++) idx[k] = dim_idx(g, k, r->dims[k]);
    map[s->axis] = idx[axis];
    idx[axis] = dim_subst(g, s->to, s->axis + 1, map);
    return g_view(g, r, r->rank, r->dims, &(View){ .nidx = r->rank, .idx = idx });
}

static Node *shuffle_better(Graph *g, Node *old, Node *now, void *arg)
{
    Shuffle s = { .g = g, .arena = arg };
    (void)old;
    return without_shuffle(&s, now);
}

void shuffles_choose(Ctx *cx, Arena *a, Graph *g)
{
    int changed = graph_remake_all(cx, a, g, shuffle_better, a);
    if (changed) log_line(cx, 2, "shuffle: %d nodes run in the order of what they read", changed);
}
