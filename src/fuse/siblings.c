/* Siblings: contractions of one operand with different known weights become one contraction with the weights side by side (horizontal fusion): the products for
 * queries, keys and values, the two of a gated layer.
 *
 *     x W1, x W2, ...   becomes   y = x [W1 W2 ...],  each of them a view of some columns of y
 *
 * and what follows all of them in the same way (a bias, an activation) follows y. Constants are joined when the graph is made.
 *
 * For few rows: a vector times a matrix waits for the weights, one long stream of them is faster than some short ones, and threads are woken once. With more
 * rows each has enough to do, unless it is narrow: where a product has no more columns than eight, each multiplication needs a load of its own, which serves all columns of
 * the joined one. Otherwise nothing is gained with many rows (measured), and epilogues that differ would need a kernel of their own. */
#include "fuse/fuse.h"

#include <string.h>

enum { FEW_ROWS = 8, MOST_WEIGHTS = 32 << 20, MOST_SIBLINGS = 8, NARROW = 8 };      /* bytes of the joined weights; columns */

/* The sum over the axes of `fold` of `left`, which has no axis `column`, times known weights, whose axis `at` it is. */
typedef struct Sibling { Node *fold; const Node *left, *right; int column, at; } Sibling;
typedef struct Family {
    VEC(Sibling) of;
    VEC(Node *) last;                   /* by sibling: what follows it as it does the others; the fold itself where nothing does */
    int steps;                          /* nodes from a fold to `last`, that one included */
    int64_t rows;
    bool narrow;                        /* many rows, few columns each */
    Node *joined;                       /* once it is made */
} Family;
typedef struct Siblings {
    Arena *arena; Graph *g;
    int *uses; Node **reader;           /* by node id: how many read it, and the last of them */
    bool *kept, *known;                 /* by node id: lies in memory by itself: a result, a piece of a join; depends on constants only */
    VEC(Family *) family;
    Family **family_of;                 /* by node id of the last nodes */
    int *number;                        /* by node id: which sibling */
} Siblings;

static bool follows_pointwise(const Node *n) { return (prim_info[n->op].elementwise && n->nin <= 2) || n->op == OP_cast; }
static bool either_way(Op op) { return op == OP_add || op == OP_mul || op == OP_max || op == OP_min; }

/* The axis of a constant whose index is the axis c of the view, alone. -1: there is none, or c stands in another index as well. */
static int axis_along(Graph *g, const Node *v, int c)
{
    int at = -1;
    for (int j = 0; j < v->view.nidx; j++) {
        if (!dim_uses(v->view.idx[j], c)) continue;
        if (at >= 0 || v->view.idx[j] != dim_idx(g, c, v->dims[c]) || v->in[0]->dims[j] != v->dims[c]) return -1;
        at = j;
    }
    return at;
}

static bool view_of_const(const Node *n)
{
    return n->op == OP_view && !n->view.npred && n->in[0]->op == OP_const && n->in[0]->dt == DT_f32 && n->in[0]->rank > 0 && tensor_dense(n->in[0]->tensor);
}

/* The same, or computed when the program is made. */
static bool view_of_known(const Siblings *s, const Node *n)
{
    return view_of_const(n) || (n->op == OP_view && !n->view.npred && n->in[0]->dt == DT_f32 && n->in[0]->rank > 0 && s->known[n->in[0]->id]);
}

static bool is_narrow(const Sibling *s)
{
    const Dim *n = s->fold->in[0]->dims[s->column];
    return dim_is_const(n) && n->c <= NARROW;
}

static bool is_sibling(Graph *g, Node *f, Sibling *s)
{
    const Node *x = f->op == OP_fold && f->kind == FOLD_sum && !f->whole && f->dt == DT_f32 ? f->in[0] : NULL;
    const Node *through = x && x->op == OP_view && !x->view.npred ? x : NULL;      /* without the axes of a window of one place */
    const Node *mul = through ? x->in[0] : x;
    if (!mul || mul->op != OP_mul || mul->in[0]->op != OP_view || mul->in[1]->op != OP_view) return false;
    for (int side = 0; side < 2; side++) {
        const Node *l = mul->in[side], *r = mul->in[1 - side];
        if (l->view.npred || r->view.npred || (l->in[0]->op != OP_const) == (r->in[0]->op != OP_const)) continue;
        if (through) { l = g_view(g, (Node *)l, x->rank, x->dims, &through->view); r = g_view(g, (Node *)r, x->rank, x->dims, &through->view); }
        if (!view_of_const(r) || l->op != OP_view) continue;
        for (int c = x->rank - 1; c >= 0; c--) {
            bool used = (f->axes >> c & 1) || dim_is(x->dims[c], 1);
            for (int j = 0; j < l->view.nidx; j++) used |= dim_uses(l->view.idx[j], c);
            int at = used ? -1 : axis_along(g, r, c);
            if (at < 0) continue;
            *s = (Sibling){ f, l, r, c, at };
            return true;
        }
    }
    return false;
}

/* Indices that differ in the extent of one axis only: e over c of one extent, and its like over the other. */
static bool same_columns(Graph *g, const Node *v, const Node *w, int c)
{
    if (v->view.nidx != w->view.nidx || v->in[0]->rank != w->in[0]->rank) return false;
    for (int j = 0; j < v->view.nidx; j++) {
        bool along = v->view.idx[j] == dim_idx(g, c, v->dims[c]) && w->view.idx[j] == dim_idx(g, c, w->dims[c]);
        if (!along && (v->view.idx[j] != w->view.idx[j] || v->in[0]->dims[j] != w->in[0]->dims[j])) return false;
    }
    return true;
}

static bool are_siblings(Graph *g, const Sibling *a, const Sibling *b)
{
    const Node *x = a->fold->in[0], *y = b->fold->in[0];
    if (a->left->in[0] != b->left->in[0] || x->rank != y->rank || a->fold->axes != b->fold->axes || a->column != b->column || a->at != b->at) return false;
    for (int k = 0; k < x->rank; k++) if (k != a->column && x->dims[k] != y->dims[k]) return false;
    return same_columns(g, a->left, b->left, a->column) && same_columns(g, a->right, b->right, a->column);
}

/* The axis of the fold's result that the column is. */
static int result_axis(const Sibling *s)
{
    int r = 0;
    for (int k = 0; k < s->column; k++) r += !(s->fold->axes >> k & 1);
    return r;
}

/* The operand of n beside x. NULL: there is none. */
static Node *beside(const Node *n, const Node *x) { return n->nin < 2 ? NULL : n->in[n->in[0] == x]; }

/* Does what reads v, the only one, do the same as what reads w, with constants along the columns, or the same constant? axis: of the columns. */
static bool same_step(Siblings *s, const Node *v, const Node *w, int axis)
{
    const Node *a = s->reader[v->id], *b = s->reader[w->id];
    if (s->uses[v->id] != 1 || s->uses[w->id] != 1 || s->kept[v->id] || s->kept[w->id]) return false;
    if (a == b || a->op != b->op || a->dt != b->dt || !follows_pointwise(a) || a->rank != v->rank || (a->op == OP_cast && a->saturate != b->saturate)) return false;
    if (a->nin < 2) return true;
    if (!either_way(a->op) && (a->in[0] == v) != (b->in[0] == w)) return false;
    const Node *x = beside(a, v), *y = beside(b, w);
    if (x->op != OP_view || y->op != OP_view || x->view.npred || y->view.npred) return false;
    if (x->in[0] == y->in[0] && x->in[0]->rank == 0) return x->in[0]->op == OP_const;
    return view_of_known(s, x) && view_of_known(s, y) && axis_along(s->g, x, axis) >= 0 && axis_along(s->g, x, axis) == axis_along(s->g, y, axis) && same_columns(s->g, x, y, axis);
}

static void family_follow(Siblings *s, Family *f)
{
    int axis = result_axis(&f->of.at[0]);
    for (int i = 0; i < f->of.n; i++) vec_push(s->arena, &f->last, f->of.at[i].fold);
    for (;;) {
        for (int i = 1; i < f->of.n; i++) if (!same_step(s, f->last.at[0], f->last.at[i], axis)) return;
        for (int i = 0; i < f->of.n; i++) f->last.at[i] = s->reader[f->last.at[i]->id];
        f->steps++;
    }
}

/* ---- the joined one ---------------------------------------------------------------------------------------------------------------------- */
static Node *joined_const(Graph *g, int n, Node *const *part, int axis)
{
    const Tensor *first = part[0]->tensor;
    int64_t dims[MAX_RANK], at = 0;
    size_t inner = dtype_size(first->dt), outer = 1;
    for (int k = 0; k < first->rank; k++) {
        dims[k] = first->dims[k];
        if (k < axis) outer *= (size_t)dims[k];
        else if (k > axis) inner *= (size_t)dims[k];
    }
    dims[axis] = 0;
    for (int i = 0; i < n; i++) dims[axis] += part[i]->tensor->dims[axis];
    Tensor *t = tensor_new(g->arena, g->cx, first->dt, first->rank, dims);
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)part[i]->tensor->dims[axis] * inner;
        for (size_t o = 0; o < outer; o++)
            memcpy((char *)t->data + (o * (size_t)dims[axis] + (size_t)at) * inner, (const char *)part[i]->tensor->data + o * bytes, bytes);
        at += part[i]->tensor->dims[axis];
    }
    return g_const(g, t);
}

/* The view v of n constants (views of the same form, v the first) over the shape dims, where they lie side by side along axis c. */
static Node *joined_view(Siblings *s, int n, const Node *const *v, int c, int rank, Dim *const *dims)
{
    Graph *g = s->g;
    Node *part[MOST_SIBLINGS] = { NULL };
    Dim *idx[MAX_RANK];
    int at = axis_along(g, v[0], c);
    bool now = true;
    for (int i = 0; i < n; i++) { part[i] = v[i]->in[0]; now &= view_of_const(v[i]); }
    for (int j = 0; j < v[0]->view.nidx; j++) idx[j] = j == at ? dim_idx(g, c, dims[c]) : v[0]->view.idx[j];
    return g_view(g, now ? joined_const(g, n, part, at) : g_join(g, n, part, at), rank, dims, &(View){ .nidx = v[0]->view.nidx, .idx = idx });
}

/* An origin that stands for those of all these nodes. */
static void joined_origin(Siblings *s, int n, Node *const *of)
{
    Graph *g = s->g;
    int *also = NEWS(g->arena, int, n);
    for (int i = 0; i < n; i++) { ASSERT(of[i]); also[i] = of[i]->origin; }
    Origin o = g->origin.at[also[0]];
    graph_origin(g, o.name, o.op, o.domain);
    g->origin.at[g->cur_origin].also = also;
    g->origin.at[g->cur_origin].nalso = n;
}

static Node *make_joined(Siblings *s, const Family *f, const Node *fold)
{
    Graph *g = s->g;
    Sibling now;
    const Sibling *first = &f->of.at[0];
    int n = f->of.n, c = first->column, axis = result_axis(first);
    Node *last[MOST_SIBLINGS] = { NULL };
    const Node *right[MOST_SIBLINGS] = { NULL };
    Dim *dims[MAX_RANK], *width = dim_const(g, 0);
    ASSERT(n > 0 && n <= MOST_SIBLINGS);
    if (!is_sibling(g, (Node *)fold, &now) || now.column != c || now.at != first->at) return NULL;
    for (int i = 0; i < n; i++) { width = dim_add(g, width, f->of.at[i].fold->in[0]->dims[c]); right[i] = f->of.at[i].right; last[i] = f->of.at[i].fold; }
    const Node *body = fold->in[0];
    for (int k = 0; k < body->rank; k++) dims[k] = k == c ? width : body->dims[k];
    joined_origin(s, n, last);
    Node *in[2] = { g_view(g, now.left->in[0], body->rank, dims, &now.left->view), joined_view(s, n, right, c, body->rank, dims) };
    Node sum = *fold, *y, *x = g2(g, OP_mul, in[0], in[1]);
    for (int k = 0; k < fold->rank; k++) dims[k] = k == axis ? width : fold->dims[k];
    sum.in = &x; sum.dims = dims;
    y = graph_add(g, &sum);
    for (int step = 0; step < f->steps; step++) {
        const Node *other[MOST_SIBLINGS] = { NULL };
        Node *next[MOST_SIBLINGS] = { NULL };
        for (int i = 0; i < n; i++) { next[i] = s->reader[last[i]->id]; other[i] = beside(next[i], last[i]); }
        joined_origin(s, n, next);
        Node proto = *next[0], *of[2] = { y, y };
        if (other[0]) {
            int side = next[0]->in[0] == last[0];
            of[side] = other[0]->in[0]->rank == 0 ? g_view(g, other[0]->in[0], fold->rank, dims, &other[0]->view) : joined_view(s, n, other, axis, fold->rank, dims);
        }
        proto.in = of; proto.dims = dims;
        y = graph_add(g, &proto);
        for (int i = 0; i < n; i++) last[i] = next[i];
    }
    return y;
}

static Node *siblings_better(Graph *g, Node *old, Node *now, void *arg)
{
    Siblings *s = arg;
    Family *f = s->family_of[old->id];
    if (!f) return NULL;
    int origin = g->cur_origin, me = s->number[old->id], axis = result_axis(&f->of.at[0]);
    if (old == f->of.at[me].fold && !f->joined) {
        f->joined = make_joined(s, f, now);
        g->cur_origin = origin;
        if (!f->joined) for (int i = 0; i < f->of.n; i++) s->family_of[f->of.at[i].fold->id] = s->family_of[f->last.at[i]->id] = NULL;
    }
    if (!f->joined || old != f->last.at[me]) return NULL;
    Dim *start = dim_const(g, 0);
    for (int i = 0; i < me; i++) start = dim_add(g, start, f->last.at[i]->dims[axis]);
    return g_slice(g, f->joined, axis, start, old->dims[axis], 1);
}

/* ---- which ----------------------------------------------------------------------------------------------------------------------------------- */
/* Narrow ones become one if it has no columns for nothing, and if all that is computed element by element of each follows it. */
static const char *why_narrow_apart(const Siblings *s, const Family *f)
{
    int64_t columns = 0;
    for (int i = 0; i < f->of.n; i++) {
        const Node *last = f->last.at[i], *next = s->reader[last->id];
        columns += f->of.at[i].fold->in[0]->dims[f->of.at[i].column]->c;
        if (s->kept[last->id]) return "side by side: a result that lies in memory by itself would be copied";
        if (next && follows_pointwise(next)) return "side by side: what follows them differs, and would be a kernel of its own";
    }
    return columns % NARROW ? "side by side: together they leave lanes empty" : NULL;
}

static const char *why_apart(const Siblings *s, const Family *f, size_t least)
{
    const Node *x = f->of.at[0].fold->in[0];
    size_t bytes = 0;
    bool one = true;
    for (int k = 0; k < x->rank; k++) if (k != f->of.at[0].column && !(f->of.at[0].fold->axes >> k & 1)) one = one && dim_is(x->dims[k], 1);
    for (int i = 0; i < f->of.n; i++) bytes += tensor_bytes(f->of.at[i].right->in[0]->tensor);
    if (one) return "side by side: of one row for all sizes the weights are read as they lie, which is faster in narrow matrices";
    if (f->narrow) return why_narrow_apart(s, f);
    if (f->rows > FEW_ROWS) return "side by side: with many rows each contraction has enough to do";
    if (bytes < least) return "side by side: the cache holds their weights";
    if (bytes > MOST_WEIGHTS) return "side by side: the weights of each are a long stream already";
    for (int i = 0; i < f->of.n; i++) if (s->kept[f->last.at[i]->id]) return "side by side: a result that lies in memory by itself would be copied";
    return NULL;
}

static int64_t rows_of(const Graph *g, const Sibling *s)
{
    const Node *x = s->fold->in[0];
    int64_t rows = 1;
    for (int k = 0; k < x->rank; k++) if (k != s->column && !(s->fold->axes >> k & 1)) rows *= dim_hint(g, x->dims[k]);
    return rows;
}

/* Leaves the narrow ones in f, if there are two of them; returns the others. */
static Family *part_narrow(Siblings *s, Family *f)
{
    Family *narrow = NEW(s->arena, Family), *wide = NEW(s->arena, Family);
    for (int i = 0; i < f->of.n; i++) vec_push(s->arena, is_narrow(&f->of.at[i]) ? &narrow->of : &wide->of, f->of.at[i]);
    if (narrow->of.n < 2) return NULL;
    wide->rows = narrow->rows = f->rows;
    narrow->narrow = true;
    *f = *narrow;
    return wide;
}

static void find_families(Siblings *s, const uint8_t *live, int n)
{
    VEC(Family *) all = { 0 };
    for (int id = 0; id < n; id++) {
        Sibling x;
        if (!live[id] || s->known[id] || !is_sibling(s->g, s->g->node.at[id], &x)) continue;
        Family *f = NULL;
        for (int i = all.n - 1; i >= 0 && i >= all.n - 64 && !f; i--)
            if (all.at[i]->of.n < MOST_SIBLINGS && are_siblings(s->g, &all.at[i]->of.at[0], &x)) f = all.at[i];
        if (!f) { f = NEW(s->arena, Family); vec_push(s->arena, &all, f); }
        vec_push(s->arena, &f->of, x);
    }
    for (int i = 0; i < all.n; i++) {
        Family *f = all.at[i], *rest = NULL;
        f->rows = rows_of(s->g, &f->of.at[0]);
        if (f->rows > FEW_ROWS) rest = part_narrow(s, f);
        if (f->of.n > 1) vec_push(s->arena, &s->family, f);
        if (rest && rest->of.n > 1) vec_push(s->arena, &s->family, rest);
    }
}

int siblings_choose(Ctx *cx, Arena *a, Graph *g, size_t least, Refusals *why)
{
    int n = g->node.n, chosen = 0;
    Siblings *s = NEW(a, Siblings);
    *s = (Siblings){ .arena = a, .g = g, .uses = graph_uses(a, g), .reader = NEWS(a, Node *, n + 1), .kept = NEWS(a, bool, n + 1), .known = NEWS(a, bool, n + 1), .family_of = NEWS(a, Family *, n + 1), .number = NEWS(a, int, n + 1) };
    const uint8_t *live = graph_live(a, g);
    for (int id = 0; id < n; id++) {
        const Node *x = g->node.at[id];
        s->known[id] = x->op == OP_const || (x->nin > 0 && by_element(x)) || (x->op == OP_view && !view_open(&x->view));
        for (int i = 0; i < x->nin; i++) s->known[id] &= s->known[x->in[i]->id];
    }
    find_families(s, live, n);
    if (!s->family.n) return 0;
    for (int id = 0; id < n; id++)
        for (int i = 0; live[id] && i < g->node.at[id]->nin; i++) {
            Node *x = g->node.at[id], *in = x->in[i];
            s->reader[in->id] = x;
            s->kept[in->id] |= x->op == OP_join || x->op == OP_call || x->op == OP_scatter;
        }
    for (int i = 0; i < g->output.n; i++) s->kept[g->output.at[i].node->id] = true;
    for (int i = 0; i < s->family.n; i++) {
        Family *f = s->family.at[i];
        family_follow(s, f);
        const char *no = why_apart(s, f, least);
        if (!no && cx->opt.limit >= 0 && g->nrewrite >= cx->opt.limit) no = "the limit on decisions is reached";
        for (int k = 1; no && k < f->of.n; k++) vec_push(a, why, ((Refusal){ f->of.at[0].fold, f->of.at[k].fold, "siblings", no }));
        if (no) continue;
        g->nrewrite++;
        chosen++;
        for (int k = 0; k < f->of.n; k++) {
            s->family_of[f->of.at[k].fold->id] = s->family_of[f->last.at[k]->id] = f;
            s->number[f->of.at[k].fold->id] = s->number[f->last.at[k]->id] = k;
        }
    }
    if (chosen) graph_remake_all(cx, a, g, siblings_better, s);
    if (chosen) log_line(cx, 2, "siblings: %d families of contractions are one contraction each", chosen);
    return chosen;
}
