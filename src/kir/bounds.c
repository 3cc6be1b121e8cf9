/* Where along its axis a cascade has anything, and a window anything but padding: bounds in closed form; and blocks that numbers read from memory empty.
 *
 * A mask makes scores -inf, which leaves maxima as they are and gives weights of 0. From each fold down to the condition of its mask; a condition that compares
 * integers affine in the axis and the row (positions, sizes, numbers that are the same for all rows of a tile: a length) becomes a bound of the axis, taken
 * over the first and the last row of the tile. and: both bounds; or: the wider ones; anything else: no bound. So causal masks, windows, prefixes
 * and lengths visit what they need, for any sizes. Only fills of -inf count: after a finite one, a row could still need what it hides.
 * What a masked place is multiplied with is taken to be finite: 0 * inf is not looked for where nothing is visited.
 *
 * Where a condition compares numbers that are read (the documents that positions belong to), intervals decide for each block of the axis and tile of rows: the least
 * and the largest number of the block, and of the tile. If no pair of them can meet the condition, the block is left out. */
#include "kir/kir.h"

#include <math.h>

typedef struct Range { Dim *lo, *hi; } Range;            /* lo <= axis < hi; NULL: no bound */
typedef struct Span { KVal *lo, *hi; } Span;              /* lo <= an integer <= hi in the whole block and tile */
typedef struct Spanned { const Node *n; bool by_j; Span span; } Spanned;
typedef struct Test { bool known; KVal *v; } Test;       /* may a condition hold somewhere in block and tile? Not known: it may */
typedef struct Tested { const Node *n; bool want; Test test; } Tested;
typedef struct Bounding {
    Lowering *l; Graph *g; Dim *j, *row, *first, *last;
    Dim *start, *end; int steps; bool dry, reads;       /* the block; dry: nothing is made, only found out whether numbers along the axis are read */
    VEC(Spanned) spans;
    VEC(Tested) tests;                       /* of nodes of the cascade, each of which has one index */
    int left;                                /* steps, of the walks down the body of a fold: where many ways lead to one node, they end */
} Bounding;

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

/* Does the kernel read n from memory? */
static bool is_read(const Lowering *l, const Node *n)
{
    int home = l->sub->home[n->id];
    return (n->op == OP_input || home >= 0 || home == HOME_memory) && home != l->sub->id;
}

/* An integer node at an index as an expression, or NULL. */
static Dim *integer_at(Bounding *b, const Node *n, Dim *const *idx)
{
    Dim *at[MAX_RANK] = { 0 }, *x, *y;
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (dtype_is_float(n->dt) || n->dt == DT_bool || --b->left < 0 || !through_views(b, &n, at)) return NULL;
    switch (n->op) {
    case OP_iota: return at[n->axis];
    case OP_dims: return n->rank == 0 ? n->size[0] : NULL;
    case OP_const: return n->rank == 0 ? dim_const(b->g, scalar_load(n->dt, n->tensor->data).i) : NULL;
    case OP_cast: return dtype_is_float(n->in[0]->dt) || dtype_size(n->dt) < 4 ? NULL : integer_at(b, n->in[0], at);
    case OP_add: case OP_sub: case OP_mul:
        if (n->dt != DT_i64 && n->dt != DT_i32) return NULL;
        x = integer_at(b, n->in[0], at);
        y = x ? integer_at(b, n->in[1], at) : NULL;
        if (!y) return NULL;
        return n->op == OP_add ? dim_add(b->g, x, y) : n->op == OP_sub ? dim_sub(b->g, x, y) : dim_is_const(x) || dim_is_const(y) ? dim_mul(b->g, x, y) : NULL;
    case OP_neg:
        x = integer_at(b, n->in[0], at);
        return x ? dim_mulc(b->g, x, -1) : NULL;
    default: break;
    }
    for (int k = 0; k < n->rank; k++) if (dim_uses(at[k], b->j->var) || dim_uses(at[k], b->row->var)) return NULL;
    if (!is_read(b->l, n)) return NULL;
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
static Range range_less(Bounding *b, const Node *n, Dim *const *idx, bool swapped, bool strict)
{
    Dim *at[MAX_RANK] = { 0 };
    const Node *a = n->in[swapped], *with = n->in[!swapped];
    Range none = { NULL, NULL };
    Dim *y = integer_at(b, with, idx), *x;
    if (!y) return none;
    if (strict) y = dim_addc(b->g, y, -1);
    for (int k = 0; k < a->rank; k++) at[k] = idx[k];
    if (!through_views(b, &a, at)) return none;
    if (a->op == OP_abs && (x = integer_at(b, a->in[0], at))) return range_both(b->g, range_le(b, x, y), range_le(b, dim_mulc(b->g, x, -1), y));
    x = integer_at(b, a, at);
    return x ? range_le(b, x, y) : none;
}

/* Where a condition may be `want`. */
static Range range_when(Bounding *b, const Node *n, Dim *const *idx, bool want)
{
    Dim *at[MAX_RANK] = { 0 };
    Range none = { NULL, NULL };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (--b->left < 0 || !through_views(b, &n, at)) return none;
    switch (n->op) {
    case OP_and: case OP_or: {
        Range x = range_when(b, n->in[0], at, want), y = range_when(b, n->in[1], at, want);
        return (n->op == OP_and) == want ? range_both(b->g, x, y) : range_hull(b->g, x, y);
    }
    case OP_not: return range_when(b, n->in[0], at, !want);
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
    n = under_views(n);
    return n->op == OP_const && n->rank == 0 && dtype_is_float(n->dt) && scalar_load(n->dt, n->tensor->data).f == v;
}

/* Outside of this range n is `neutral`: -inf, or 0. */
static Range range_of_node(Bounding *b, const Node *n, Dim *const *idx, double neutral)
{
    Dim *at[MAX_RANK] = { 0 };
    Range none = { NULL, NULL };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (--b->left < 0 || !through_views(b, &n, at)) return none;
    bool zero = neutral == 0;
    switch (n->op) {
    case OP_where:
        if (is_value(n->in[2], neutral)) return range_both(b->g, range_when(b, n->in[0], at, true), range_of_node(b, n->in[1], at, neutral));
        if (is_value(n->in[1], neutral)) return range_both(b->g, range_when(b, n->in[0], at, false), range_of_node(b, n->in[2], at, neutral));
        return none;
    case OP_add: case OP_mul:
        if (zero != (n->op == OP_mul)) return none;
        return range_both(b->g, range_of_node(b, n->in[0], at, neutral), range_of_node(b, n->in[1], at, neutral));
    case OP_sub: return zero ? none : range_of_node(b, n->in[0], at, neutral);
    case OP_div: return zero ? range_of_node(b, n->in[0], at, neutral) : none;
    case OP_exp: return zero ? range_of_node(b, n->in[0], at, -HUGE_VAL) : none;
    default: return none;
    }
}

void stream_bounds(Lowering *l, Dim *j, Dim *row, Dim *first, Dim *last, Dim **lo, Dim **hi)
{
    Bounding b = { .l = l, .g = l->g, .j = j, .row = row, .first = first, .last = last };
    const Stream *s = l->sub->stream;
    Range all = { NULL, NULL };
    for (int i = 0; i < s->nfold; i++) {
        const StreamFold *f = &s->fold[i];
        b.left = WALK_STEPS;
        Range r = range_of_node(&b, f->body, f->at, fold_start((FoldKind)f->node->kind, DT_f32).f);
        all = i ? range_hull(l->g, all, r) : r;
    }
    *lo = all.lo ? dim_max(l->g, all.lo, dim_const(l->g, 0)) : NULL;
    *hi = all.hi ? dim_min(l->g, all.hi, j->a) : j->a;
}

/* ---- windows ------------------------------------------------------------------------------------------------------------------------------- */
/* What a fold reads through padding is its identity there, or 0 as a factor of a product that is summed up: such iterations of the loop over the window change
 * nothing and are left out, where the predicate says which of them these are before the loop begins. Along the rows of a tile, a turn leaves out those of them that
 * read padding. */
static bool has_pred(const KVal *v, Pred q)
{
    for (int i = 0; v && v->kind == KV_load && i < v->at.npred; i++) if (v->at.pred[i].e == q.e && v->at.pred[i].n == q.n) return true;
    return false;
}

static bool is_number(const KVal *v, Scalar s)
{
    return dtype_is_float(v->dt) ? v->imm.f == s.f : v->imm.i == s.i;
}

/* What is converted. */
static const KVal *without_casts(const KVal *v)
{
    while (v->kind == KV_cast) v = v->in[0];
    return v;
}

static Reach value_reach(const LoopKernel *k, const KVal *v, int depth)
{
    Reach in[3] = { { 1, 0 }, { 1, 0 }, { 1, 0 } }, none = { 1, 0 };
    if (depth > 8) return none;
    for (int i = 0; i < v->nin; i++) in[i] = value_reach(k, v->in[i], depth + 1);
    if (v->kind == KV_load && !v->at.npred) return node_reach(k->g, k->buf.at[v->buf].node);
    if (v->kind == KV_cast) return reach_cast(v->dt, in[0]);
    return v->kind == KV_ew && v->op != OP_where ? reach_ew(v->op, v->dt, v->nin, in) : none;
}

/* Does an update change nothing where q fails? A product with 0 does not if the other factor is known to be a finite number. */
static bool idle_without(const LoopKernel *k, const KFold *f, Pred q)
{
    const KVal *v = f->value;
    if (f->running || f->kind == FOLD_argmax || f->kind == FOLD_argmin) return false;
    if (has_pred(v, q)) return is_number(v, fold_start(f->kind, f->dt));
    for (int i = 0; f->kind == FOLD_sum && v->kind == KV_ew && v->op == OP_mul && i < 2; i++) {
        const KVal *x = without_casts(v->in[i]);
        if (has_pred(x, q) && is_number(x, (Scalar){ 0 }) && reach_known(value_reach(k, v->in[1 - i], 0))) return true;
    }
    return false;
}

static bool updates_idle(const LoopKernel *k, const KBlock *b, Pred q)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_store || (s->kind == KS_update && !idle_without(k, s->fold, q)) || (s->kind == KS_loop && !updates_idle(k, s->loop->body, q))) return false;
    }
    return true;
}

/* A predicate of a load in b that says for which iterations of o it holds: it uses no variable that runs inside o, or in a tile. */
static bool pred_of_loop(const LoopKernel *k, const KLoop *o, const KBlock *b, Pred *found, Dim **coef, Dim **rest)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && pred_of_loop(k, o, s->loop->body, found, coef, rest)) return true;
        for (int q = 0; s->kind == KS_val && s->val->kind == KV_load && !s->val->nopnd && q < s->val->at.npred; q++) {
            *found = s->val->at.pred[q];
            bool free = !dim_uses(found->n, o->var->var);
            if (!dim_linear(k->g, found->e, o->var->var, coef, rest) || !dim_is_const(*coef) || (*coef)->c < 1) continue;
            for (const KBlock *c = b; c != o->body; c = c->up) free = free && !dim_uses(*rest, c->loop->var->var) && !dim_uses(found->n, c->loop->var->var);
            for (const Dim *const *x = (const Dim *const[]){ k->row_var, k->vec_var, NULL }, *const *end = x + 2; x < end; x++)
                free = free && (!*x || (!dim_uses(*rest, (*x)->var) && !dim_uses(found->n, (*x)->var)));
            if (free) return true;
        }
    }
    return false;
}

static void pred_drop(const KBlock *b, Pred q)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) pred_drop(s->loop->body, q);
        if (s->kind != KS_val || !has_pred(s->val, q)) continue;
        KAddr *at = &s->val->at;
        int n = 0;
        for (int p = 0; p < at->npred; p++) if (at->pred[p].e != q.e || at->pred[p].n != q.n) at->pred[n++] = at->pred[p];
        at->npred = n;
    }
}

/* Iterations of the loops in b. */
static int64_t inner_steps(const LoopKernel *k, const KBlock *b)
{
    int64_t most = 1;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        const KLoop *o = b->stmt.at[i].loop;
        int64_t n = dim_hint(k->g, loop_times(o)) * inner_steps(k, o->body);
        if (n > most) most = n;
    }
    return most;
}

enum { SHORT_STEPS = 16 };               /* a window of fewer steps is better unrolled */
static void bound_loops(LoopKernel *k, KBlock *b)
{
    Graph *g = k->g;
    for (int i = 0; i < b->stmt.n; i++) {
        KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        Pred q;
        Dim *c, *rest;
        if (!o) continue;
        if (!o->vector && !o->places && !o->from && o->step <= 1 && o->tile <= 1 && dim_hint(k->g, o->extent) * inner_steps(k, o->body) >= SHORT_STEPS && pred_of_loop(k, o, o->body, &q, &c, &rest) && updates_idle(k, o->body, q)) {
            o->times = o->extent;        /* 0 <= c * i + rest < n */
            o->from = dim_max(g, dim_const(g, 0), dim_ceildiv(g, dim_mulc(g, rest, -1), c));
            o->extent = dim_min(g, o->extent, dim_ceildiv(g, dim_sub(g, q.n, rest), c));
            pred_drop(o->body, q);
        }
        bound_loops(k, o->body);
    }
}

enum { MOST_OUTSIDE = 6 };               /* rows that are left out, at both ends together: there is a text for each number */
/* A predicate of a load in b, the same for all lanes, that says for each turn of o for which rows it holds. */
static bool pred_of_rows(const LoopKernel *k, const KLoop *o, const KBlock *b, Pred *found, int *before, int *after)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && pred_of_rows(k, o, s->loop->body, found, before, after)) return true;
        if (s->kind != KS_val || s->val->kind != KV_load || s->val->nopnd || (k->vec_var && dim_uses(s->val->at.off, k->vec_var->var))) continue;
        if (!dim_uses(s->val->at.off, k->row_var->var)) continue;      /* or the predicate alone tells rows apart: without it there is one sum for all */
        for (int q = 0; q < s->val->at.npred; q++) {
            *found = s->val->at.pred[q];
            if (dim_outside(k->g, found->e, found->n, k->row_var, o->var, before, after) && (*before || *after) && *before + *after <= MOST_OUTSIDE) return true;
        }
    }
    return false;
}

/* Versions of a turn's text, one for each number of rows that are left out, serve only where no tile reaches past the last row. */
static void bound_rows(LoopKernel *k, KBlock *b)
{
    Graph *g = k->g;
    for (int i = 0; i < b->stmt.n; i++) {
        KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        Pred q;
        Dim *c, *rest;
        if (!o) continue;
        bool plain = !o->vector && !o->places && !o->from && !o->row_from && o->step <= 1 && o->tile <= 1;
        if (plain && pred_of_rows(k, o, o->body, &q, &o->before, &o->after) && updates_idle(k, o->body, q) && dim_linear(g, q.e, k->row_var->var, &c, &rest)) {
            o->row_from = dim_ceildiv(g, dim_mulc(g, rest, -1), c);
            o->row_past = dim_ceildiv(g, dim_sub(g, q.n, rest), c);
            pred_drop(o->body, q);
        }
        bound_rows(k, o->body);
    }
}

void window_bounds(LoopKernel *k)
{
    bound_loops(k, k->body);
    if (k->row_var && k->mr > 1 && tile_fits(k)) bound_rows(k, k->body);
}

/* ---- blocks -------------------------------------------------------------------------------------------------------------------------------------- */
static Test test_of(const Bounding *b, Op op, KVal *x, KVal *y)
{
    KVal *in[3] = { x, y };
    return (Test){ true, b->dry ? NULL : val_ew(b->l, op, DT_bool, 2, in) };
}

static Test test_both(const Bounding *b, Test x, Test y) { return !x.known ? y : !y.known ? x : x.v == y.v ? x : test_of(b, OP_and, x.v, y.v); }

static Test test_either(const Bounding *b, Test x, Test y)
{
    Test none = { 0 };
    return !x.known || !y.known ? none : x.v == y.v ? x : test_of(b, OP_or, x.v, y.v);
}

static KVal *number_of(const Bounding *b, Dim *d)
{
    if (b->dry) return NULL;
    if (dim_is_const(d)) return val_const(b->l, DT_i64, (Scalar){ .i = d->c });
    return val_new(b->l, &(KVal){ .kind = KV_index, .dt = DT_i64, .dim = d, .block = b->l->cur });
}

/* e where it is least (or largest) in block and tile; NULL when that is not known. */
static Dim *corner(const Bounding *b, Dim *e, bool largest)
{
    Dim *c, *rest;
    e = extreme(b, e, largest);
    if (!e || !dim_uses(e, b->j->var)) return e;
    if (!dim_linear(b->g, e, b->j->var, &c, &rest) || !dim_is_const(c)) return NULL;
    return dim_add(b->g, dim_mul(b->g, c, (c->c > 0) == largest ? dim_addc(b->g, b->end, -1) : b->start), rest);
}

/* Numbers of both sides of a condition are compared as i64, whatever they are read as. */
static KVal *as_i64(Lowering *l, KVal *v) { return v->dt == DT_i64 ? v : val_new(l, &(KVal){ .kind = KV_cast, .dt = DT_i64, .nin = 1, .in[0] = v }); }

/* The least and the largest of the numbers n[idx] as `var` runs through [from, to), in a loop where we are. */
static Span numbers_read(const Bounding *b, const Node *n, Dim *const *idx, const Dim *var, Dim *from, Dim *to, int times)
{
    Lowering *l = b->l;
    Dim *own = dim_idx(b->g, LOOP_VAR + l->nloop++, var->a), *at[MAX_RANK] = { 0 }, **map = NEWS(l->arena, Dim *, var->var + 1);
    Node *fold = NEWS(l->arena, Node, 2), **in = NEWS(l->arena, Node *, 1);
    in[0] = arena_copy(l->arena, n, sizeof *n);
    KFold *a[2];
    map[var->var] = own;
    for (int k = 0; k < n->rank; k++) at[k] = dim_subst(b->g, idx[k], var->var + 1, map);
    for (int i = 0; i < 2; i++) {
        fold[i] = (Node){ .op = OP_fold, .dt = n->dt, .kind = i ? FOLD_max : FOLD_min, .nin = 1, .in = in, .origin = n->origin };
        a[i] = fold_new(l, &fold[i]);
    }
    KLoop *o = loop_new(l, own, false);
    o->from = from; o->extent = to; o->times = dim_const(b->g, times);
    KVal *v = demand(l, n, at);
    for (int i = 0; i < 2; i++) { a[i]->loop = o; fold_update(l, a[i], v, at); }
    loop_close(l, o);
    KVal *lo = as_i64(l, fold_result(l, a[0]));
    return (Span){ lo, as_i64(l, fold_result(l, a[1])) };
}

/* False: not known. */
static bool span_of(Bounding *b, const Node *n, Dim *const *idx, Span *span)
{
    Lowering *l = b->l;
    Dim *at[MAX_RANK] = { 0 }, *e = integer_at(b, n, idx);
    if (e) {
        Dim *lo = corner(b, e, false), *hi = corner(b, e, true);
        if (!lo || !hi) return false;
        *span = (Span){ number_of(b, lo), number_of(b, hi) };
        return true;
    }
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (!through_views(b, &n, at)) return false;
    if (n->op == OP_cast && (n->dt == DT_i64 || n->dt == DT_i32) && (n->in[0]->dt == DT_i64 || n->in[0]->dt == DT_i32) && dtype_size(n->dt) >= dtype_size(n->in[0]->dt)) return span_of(b, n->in[0], at, span);
    bool by_j = false, by_row = false;
    for (int k = 0; k < n->rank; k++) { by_j |= dim_uses(at[k], b->j->var); by_row |= dim_uses(at[k], b->row->var); }
    if (!is_read(l, n) || (n->dt != DT_i64 && n->dt != DT_i32) || by_j == by_row) return false;
    b->reads |= by_j;
    if (b->dry) return true;
    for (int i = 0; i < b->spans.n; i++) if (b->spans.at[i].n == n && b->spans.at[i].by_j == by_j) { *span = b->spans.at[i].span; return true; }
    KBlock *was = l->cur;
    if (by_row) l->cur = l->point;       /* once for each tile */
    *span = by_j ? numbers_read(b, n, at, b->j, b->start, b->end, b->steps) : numbers_read(b, n, at, b->row, b->first, dim_addc(b->g, b->last, 1), l->k->lanes * (l->nv > 0 ? l->nv : 1));
    l->cur = was;
    Spanned s = { n, by_j, *span };
    vec_push(l->arena, &b->spans, s);
    return true;
}

/* May x < y (strict), or x <= y, hold? */
static Test test_less(Bounding *b, const Node *x, const Node *y, Dim *const *idx, bool strict)
{
    Span p = { 0 }, q = { 0 };
    if (!span_of(b, x, idx, &p) || !span_of(b, y, idx, &q)) return (Test){ 0 };
    return test_of(b, strict ? OP_lt : OP_le, p.lo, q.hi);
}

/* May a condition be `want`? */
static Test test_new(Bounding *b, const Node *n, Dim *const *idx, bool want);
static Test test_when(Bounding *b, const Node *n, Dim *const *idx, bool want)
{
    for (int i = 0; i < b->tests.n; i++) if (b->tests.at[i].n == n && b->tests.at[i].want == want) return b->tests.at[i].test;
    Tested t = { n, want, test_new(b, n, idx, want) };
    if (!b->dry) vec_push(b->l->arena, &b->tests, t);
    return t.test;
}

static Test test_new(Bounding *b, const Node *n, Dim *const *idx, bool want)
{
    Dim *at[MAX_RANK] = { 0 };
    Test none = { 0 };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (--b->left < 0 || !through_views(b, &n, at)) return none;
    switch (n->op) {
    case OP_and: case OP_or: {
        Test x = test_when(b, n->in[0], at, want), y = test_when(b, n->in[1], at, want);
        return (n->op == OP_and) == want ? test_both(b, x, y) : test_either(b, x, y);
    }
    case OP_not: return test_when(b, n->in[0], at, !want);
    case OP_lt: return want ? test_less(b, n->in[0], n->in[1], at, true) : test_less(b, n->in[1], n->in[0], at, false);
    case OP_le: return want ? test_less(b, n->in[0], n->in[1], at, false) : test_less(b, n->in[1], n->in[0], at, true);
    case OP_eq:
        if (!want || n->in[0]->dt == DT_bool) return none;
        return test_both(b, test_less(b, n->in[0], n->in[1], at, false), test_less(b, n->in[1], n->in[0], at, false));
    default: return none;
    }
}

/* May n be something else than `neutral`? As range_of_node(). */
static Test test_of_node(Bounding *b, const Node *n, Dim *const *idx, double neutral)
{
    Dim *at[MAX_RANK] = { 0 };
    Test none = { 0 };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    if (--b->left < 0 || !through_views(b, &n, at)) return none;
    bool zero = neutral == 0;
    switch (n->op) {
    case OP_where:
        if (is_value(n->in[2], neutral)) return test_both(b, test_when(b, n->in[0], at, true), test_of_node(b, n->in[1], at, neutral));
        if (is_value(n->in[1], neutral)) return test_both(b, test_when(b, n->in[0], at, false), test_of_node(b, n->in[2], at, neutral));
        return none;
    case OP_add: case OP_mul:
        if (zero != (n->op == OP_mul)) return none;
        return test_both(b, test_of_node(b, n->in[0], at, neutral), test_of_node(b, n->in[1], at, neutral));
    case OP_sub: return zero ? none : test_of_node(b, n->in[0], at, neutral);
    case OP_div: return zero ? test_of_node(b, n->in[0], at, neutral) : none;
    case OP_exp: return zero ? test_of_node(b, n->in[0], at, -HUGE_VAL) : none;
    default: return none;
    }
}

bool stream_skips(Lowering *l, Dim *j, Dim *start, Dim *end, int steps, Dim *row, Dim *first, Dim *last)
{
    const Stream *s = l->sub->stream;
    Bounding b = { .l = l, .g = l->g, .j = j, .row = row, .first = first, .last = last, .start = start, .end = end, .steps = steps, .dry = true };
    Test all = { 0 };
    for (;; b.dry = false) {
        for (int i = 0; i < s->nfold; i++) {
            const StreamFold *f = &s->fold[i];
            b.left = WALK_STEPS;
            Test t = test_of_node(&b, f->body, f->at, fold_start((FoldKind)f->node->kind, DT_f32).f);
            all = i ? test_either(&b, all, t) : t;
        }
        if (!all.known || !b.reads) return false;
        if (!b.dry) break;
    }
    block_add(l, l->cur, (KStmt){ .kind = KS_skip, .val = all.v });
    return true;
}
