/* Where along its axis a cascade has anything: bounds in closed form.
 *
 * A mask makes scores -inf, which leaves maxima as they are and gives weights of 0. From each fold down to the condition of its mask; a condition that compares
 * integers affine in the axis and the row (positions, sizes, numbers that are the same for all rows of a tile: a length) becomes a bound of the axis, taken
 * over the first and the last row of the tile. and: both bounds; or: the wider ones; anything else: no bound. So causal masks, windows, prefixes
 * and lengths visit what they need, for any sizes. Only fills of -inf count: after a finite one, a row could still need what it hides.
 * What a masked place is multiplied with is taken to be finite: 0 * inf is not looked for where nothing is visited. */
#include "kir/kir.h"

#include <math.h>

typedef struct Range { Dim *lo, *hi; } Range;            /* lo <= axis < hi; NULL: no bound */
typedef struct Bounding { Lowering *l; Graph *g; Dim *j, *row, *first, *last; } Bounding;

static Range range_both(Graph *g, Range a, Range b)
{
    return (Range){ !a.lo ? b.lo : !b.lo ? a.lo : dim_max(g, a.lo, b.lo), !a.hi ? b.hi : !b.hi ? a.hi : dim_min(g, a.hi, b.hi) };
}

static Range range_hull(Graph *g, Range a, Range b)
{
    return (Range){ a.lo && b.lo ? dim_min(g, a.lo, b.lo) : NULL, a.hi && b.hi ? dim_max(g, a.hi, b.hi) : NULL };
}

/* Through views: the node and its index. False behind a predicate. */
static bool through_views(const Bounding *b, const Node **n, Dim **at)
{
    while ((*n)->op == OP_view) {
        Dim *to[MAX_RANK] = { 0 };
        if ((*n)->view.npred) return false;
        for (int k = 0; k < (*n)->view.nidx; k++) to[k] = dim_subst(b->g, (*n)->view.idx[k], (*n)->rank, at);
        *n = (*n)->in[0];
        for (int k = 0; k < (*n)->rank; k++) at[k] = to[k];
    }
    return true;
}

/* An integer node at an index as an expression, or NULL. */
static Dim *integer_at(const Bounding *b, const Node *n, Dim *const *idx, int depth)
{
    Dim *at[MAX_RANK] = { 0 }, *x, *y;
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (dtype_is_float(n->dt) || n->dt == DT_bool || depth > 20 || !through_views(b, &n, at)) return NULL;
    switch (n->op) {
    case OP_iota: return at[n->axis];
    case OP_dims: return n->rank == 0 ? n->size[0] : NULL;
    case OP_const: return n->rank == 0 ? dim_const(b->g, scalar_load(n->dt, n->tensor->data).i) : NULL;
    case OP_cast: return dtype_is_float(n->in[0]->dt) || dtype_size(n->dt) < 4 ? NULL : integer_at(b, n->in[0], at, depth + 1);
    case OP_add: case OP_sub: case OP_mul:
        if (n->dt != DT_i64 && n->dt != DT_i32) return NULL;
        x = integer_at(b, n->in[0], at, depth + 1);
        y = x ? integer_at(b, n->in[1], at, depth + 1) : NULL;
        if (!y) return NULL;
        return n->op == OP_add ? dim_add(b->g, x, y) : n->op == OP_sub ? dim_sub(b->g, x, y) : dim_is_const(x) || dim_is_const(y) ? dim_mul(b->g, x, y) : NULL;
    case OP_neg:
        x = integer_at(b, n->in[0], at, depth + 1);
        return x ? dim_mulc(b->g, x, -1) : NULL;
    default: break;
    }
    for (int k = 0; k < n->rank; k++) if (dim_uses(at[k], b->j->var) || dim_uses(at[k], b->row->var)) return NULL;
    if ((n->op != OP_input && b->l->sub->home[n->id] < 0 && b->l->sub->home[n->id] != HOME_memory) || b->l->sub->home[n->id] == b->l->sub->id) return NULL;
    KVal *v = demand(b->l, n, at);      /* one number for the whole tile */
    return dim_idx(b->g, VALUE_VAR + v->id, dim_const(b->g, INT64_MAX / 4));
}

/* e at the row of the tile where it is largest (or smallest); NULL when that is not known. */
static Dim *extreme(const Bounding *b, Dim *e, bool largest)
{
    Dim *c, *rest;
    if (!dim_uses(e, b->row->var)) return e;
    if (!dim_linear(b->g, e, b->row->var, &c, &rest) || !dim_is_const(c)) return NULL;
    return dim_add(b->g, dim_mul(b->g, c, (c->c > 0) == largest ? b->last : b->first), rest);
}

/* Where x <= y may hold. */
static Range range_le(const Bounding *b, Dim *x, Dim *y)
{
    Graph *g = b->g;
    Range r = { NULL, NULL };
    Dim *c, *rest;
    if (!dim_linear(g, dim_sub(g, x, y), b->j->var, &c, &rest) || !dim_is_const(c) || c->c == 0) return r;
    rest = dim_mulc(g, rest, -1);        /* c j <= rest */
    if (c->c > 0) {
        rest = extreme(b, rest, true);
        if (rest) r.hi = dim_addc(g, dim_div(g, rest, c), 1);
    } else {
        rest = extreme(b, dim_mulc(g, rest, -1), false);     /* -rest <= -c j */
        if (rest) r.lo = dim_ceildiv(g, rest, dim_const(g, -c->c));
    }
    return r;
}

/* Where a < b (or a <= b) may hold; an absolute value on the left is two comparisons. */
static Range range_less(const Bounding *b, const Node *n, Dim *const *idx, bool swapped, bool strict)
{
    Dim *at[MAX_RANK] = { 0 };
    const Node *a = n->in[swapped], *with = n->in[!swapped];
    Range none = { NULL, NULL };
    Dim *y = integer_at(b, with, idx, 0), *x;
    if (!y) return none;
    if (strict) y = dim_addc(b->g, y, -1);
    for (int k = 0; k < a->rank; k++) at[k] = idx[k];
    if (!through_views(b, &a, at)) return none;
    if (a->op == OP_abs && (x = integer_at(b, a->in[0], at, 0))) return range_both(b->g, range_le(b, x, y), range_le(b, dim_mulc(b->g, x, -1), y));
    x = integer_at(b, a, at, 0);
    return x ? range_le(b, x, y) : none;
}

/* Where a condition may be `want`. */
static Range range_when(const Bounding *b, const Node *n, Dim *const *idx, bool want, int depth)
{
    Dim *at[MAX_RANK] = { 0 };
    Range none = { NULL, NULL };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (depth > 20 || !through_views(b, &n, at)) return none;
    switch (n->op) {
    case OP_and: case OP_or: {
        Range x = range_when(b, n->in[0], at, want, depth + 1), y = range_when(b, n->in[1], at, want, depth + 1);
        return (n->op == OP_and) == want ? range_both(b->g, x, y) : range_hull(b->g, x, y);
    }
    case OP_not: return range_when(b, n->in[0], at, !want, depth + 1);
    case OP_lt: return want ? range_less(b, n, at, false, true) : range_less(b, n, at, true, false);
    case OP_le: return want ? range_less(b, n, at, false, false) : range_less(b, n, at, true, true);
    case OP_eq:
        if (!want || n->in[0]->dt == DT_bool) return none;
        return range_both(b->g, range_less(b, n, at, false, false), range_less(b, n, at, true, false));
    default: return none;
    }
}

static bool is_value(const Node *n, double v)
{
    while (n->op == OP_view && !n->view.npred) n = n->in[0];
    return n->op == OP_const && n->rank == 0 && dtype_is_float(n->dt) && scalar_load(n->dt, n->tensor->data).f == v;
}

/* Outside of this range n is `neutral`: -inf, or 0. */
static Range range_of_node(const Bounding *b, const Node *n, Dim *const *idx, double neutral, int depth)
{
    Dim *at[MAX_RANK] = { 0 };
    Range none = { NULL, NULL };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (depth > 40 || !through_views(b, &n, at)) return none;
    bool zero = neutral == 0;
    switch (n->op) {
    case OP_where:
        if (is_value(n->in[2], neutral)) return range_both(b->g, range_when(b, n->in[0], at, true, 0), range_of_node(b, n->in[1], at, neutral, depth + 1));
        if (is_value(n->in[1], neutral)) return range_both(b->g, range_when(b, n->in[0], at, false, 0), range_of_node(b, n->in[2], at, neutral, depth + 1));
        return none;
    case OP_add: case OP_mul:
        if (zero != (n->op == OP_mul)) return none;
        return range_both(b->g, range_of_node(b, n->in[0], at, neutral, depth + 1), range_of_node(b, n->in[1], at, neutral, depth + 1));
    case OP_sub: return zero ? none : range_of_node(b, n->in[0], at, neutral, depth + 1);
    case OP_div: return zero ? range_of_node(b, n->in[0], at, neutral, depth + 1) : none;
    case OP_exp: return zero ? range_of_node(b, n->in[0], at, -HUGE_VAL, depth + 1) : none;
    default: return none;
    }
}

void stream_bounds(Lowering *l, Dim *j, Dim *row, Dim *first, Dim *last, Dim **lo, Dim **hi)
{
    Bounding b = { l, l->g, j, row, first, last };
    const Stream *s = l->sub->stream;
    Range all = { NULL, NULL };
    for (int i = 0; i < s->nfold; i++) {
        const StreamFold *f = &s->fold[i];
        Range r = range_of_node(&b, f->node->in[0], f->in, f->pivot ? -HUGE_VAL : 0, 0);
        all = i ? range_hull(l->g, all, r) : r;
    }
    *lo = all.lo ? dim_max(l->g, all.lo, dim_const(l->g, 0)) : NULL;
    *hi = all.hi ? dim_min(l->g, all.hi, j->a) : j->a;
}
