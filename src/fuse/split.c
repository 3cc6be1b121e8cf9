/* Cascades in parts: a cascade of few rows over a long axis becomes one of each part of the axis, and the merge of what these have, so that threads share it.
 *
 * For each fold of the cascade that is wanted elsewhere, and those that it needs: a fold of each part, [rows..] to [P, rows..], whose body takes the part's own maximum (pivot) in
 * place of the whole one, and 1 for sums; cascade.c finds these again, as a cascade whose axis ends with the part. Then the merge: the maximum of the parts' maxima; and of sums,
 * each times the factor by which it moves to that (StreamFold.advance), with what it takes from other sums, added up; and the factor of the end.
 *
 * Where it is cut depends on sizes only, never on threads, and parts are added up in one order: so results are the same with any number of threads. */
#include "fuse/fuse.h"

#include <math.h>

enum { PART_STEPS = 4096, SPLIT_LEAST = 4, ENOUGH_ROWS = 8 };        /* places of a part; parts at least; rows that are enough to share */

/* Values at the points of a space: what stands in place of a node there. by_part: its first axis counts parts. */
typedef struct Stand { const Node *node; Node *by; bool by_part; } Stand;
enum { MOST_STEPS = 1 << 16 };
typedef struct Splitting {
    Graph *g; Arena *arena; const Cascade *q;
    int nstand; Stand stand[2 * MAX_FOLDS + 1];
    int rank; Dim *const *dims;         /* the space */
    Dim *part;                          /* of a point */
    Dim *map[SPACE_VAR + MAX_RANK];     /* of variables of the cascade's space to those of this one */
    bool fails;                         /* an index uses others */
    bool along;                         /* the space runs along the axis: what differs there is made once, for all folds, with the places that it has in the cascade */
    VEC(Stand) made;
    int steps;                          /* left, of the nodes that are looked at and made */
} Splitting;

static bool stands(const Splitting *t, const Node *n)
{
    for (int i = 0; i < t->nstand; i++) if (t->stand[i].node == n) return true;
    return false;
}

static bool needs_stand(Splitting *t, const Node *n)
{
    if (stands(t, n)) return true;
    t->fails |= --t->steps < 0;
    for (int i = 0; i < n->nin && !t->fails && n->op != OP_fold; i++) if (needs_stand(t, n->in[i])) return true;
    return false;
}

/* x, whose index without that of the part (by_part) is idx at a point of the cascade's space, at the points of the new one. */
static Node *view_at_points(Splitting *t, Node *x, Dim *const *idx, bool by_part)
{
    Dim *at[MAX_RANK] = { 0 };
    for (int k = 0; k < x->rank; k++) {
        at[k] = by_part && k == 0 ? t->part : dim_subst(t->g, idx[k - by_part], SPACE_VAR + MAX_RANK, t->map);
        for (int a = 0; a < t->q->rank; a++) t->fails |= dim_uses(at[k], SPACE_VAR + a);
    }
    return t->fails ? x : g_view(t->g, x, t->rank, t->dims, &(View){ .nidx = x->rank, .idx = at });
}

static Node *fold_at(Splitting *t, const StreamFold *f, Node *x, bool by_part)
{
    Dim *at[MAX_RANK] = { 0 };
    fold_index(t->g, f->node, f->in, at);
    return view_at_points(t, x, at, by_part);
}

/* The space is that of a node with these dims at idx, and the axis. False: it is at no plain index there. */
static bool space_of(Splitting *t, const Node *n, Dim *const *idx)
{
    const Dim *j = NULL;
    for (int k = 0; k < SPACE_VAR + MAX_RANK; k++) t->map[k] = NULL;
    for (int k = 0; k < n->rank; k++) {
        if (dim_is(n->dims[k], 1)) continue;
        if (idx[k]->kind != DIM_idx || idx[k]->a != n->dims[k] || t->map[idx[k]->var]) return false;
        t->map[idx[k]->var] = dim_idx(t->g, k, n->dims[k]);
        if (idx[k]->var == SPACE_VAR + t->q->stream.axis) j = t->map[idx[k]->var];
    }
    t->rank = n->rank; t->dims = n->dims;
    t->part = j ? dim_div(t->g, (Dim *)j, dim_const(t->g, PART_STEPS)) : NULL;
    return j;
}

static Node *at_points(Splitting *t, Node *n, Dim *const *idx);
static Node *node_remade(Splitting *t, Node *n, Dim *const *idx)
{
    Node proto = *n, *in[4] = { 0 };
    ASSERT(n->nin <= 4);
    for (int k = 0; k < n->nin; k++) in[k] = at_points(t, n->in[k], idx);
    if (t->fails) return n;
    proto.in = in; proto.rank = t->rank; proto.dims = t->dims;
    return graph_add(t->g, &proto);
}

/* The same for a node of the cascade, with what stands for the folds. */
static Node *at_points(Splitting *t, Node *n, Dim *const *idx)
{
    Graph *g = t->g;
    Dim *at[MAX_RANK] = { 0 };
    for (int i = 0; i < t->nstand && !t->fails; i++)
        if (t->stand[i].node == n) return t->stand[i].by->rank ? view_at_points(t, t->stand[i].by, idx, t->stand[i].by_part) : g_expand(g, t->stand[i].by, t->rank, t->dims);
    if (!needs_stand(t, n)) return view_at_points(t, n, idx, false);
    if (n->op == OP_view) {
        for (int k = 0; k < n->view.nidx; k++) at[k] = dim_subst(g, n->view.idx[k], n->rank, idx);
        return at_points(t, n->in[0], at);
    }
    if (!t->along) return node_remade(t, n, idx);
    for (int i = 0; i < t->made.n; i++) if (t->made.at[i].node == n) return view_at_points(t, t->made.at[i].by, idx, false);
    Splitting own = *t;
    if (!space_of(&own, n, idx)) return node_remade(t, n, idx);
    Stand made = { n, node_remade(&own, n, idx), false };
    t->fails |= own.fails;
    t->steps = own.steps;
    t->made = own.made;
    if (t->fails) return n;
    vec_push(t->arena, &t->made, made);
    return view_at_points(t, made.by, idx, false);
}

static void stand_add(Splitting *t, const Node *n, Node *by, bool by_part) { t->stand[t->nstand++] = (Stand){ n, by, by_part }; }

/* A space: the places of fold f, with the part first (by_part) or not, and `last` more, if not NULL, as the cascade's axis. */
static void space_set(Splitting *t, Arena *a, const StreamFold *f, Dim *parts, Dim *last)
{
    Graph *g = t->g;
    Dim *at[MAX_RANK] = { 0 }, **dims = NEWS(a, Dim *, f->node->rank + 3);
    fold_index(g, f->node, f->in, at);
    t->rank = 0;
    for (int k = 0; k < SPACE_VAR + MAX_RANK; k++) t->map[k] = NULL;
    if (parts) dims[t->rank++] = parts;
    for (int k = 0; k < f->node->rank; k++) {
        if (at[k]->kind == DIM_idx) t->map[at[k]->var] = dim_idx(g, t->rank, f->node->dims[k]);
        dims[t->rank++] = f->node->dims[k];
    }
    t->map[SPACE_VAR + t->q->stream.axis] = last ? dim_idx(g, t->rank, last) : dim_const(g, 0);
    if (last) dims[t->rank++] = last;
    t->dims = dims;
    t->part = parts ? dim_idx(g, 0, parts) : last ? dim_div(g, dim_idx(g, t->rank - 1, last), dim_const(g, PART_STEPS)) : NULL;
}

/* x, 0 where it is no number: or (low) only where it is -inf. */
static Node *pivot_guarded(Graph *g, Node *x, bool low)
{
    Node *zero = g_scalar(g, x->dt, 0);
    return low ? g_where(g, g2(g, OP_eq, x, g_scalar(g, x->dt, -INFINITY)), zero, x) : g_where(g, g2(g, OP_eq, g2(g, OP_sub, x, x), zero), x, zero);
}

/* [rows.., N] as [P, rows.., C]; past the end what changes nothing. */
static Node *cut_last(Graph *g, Node *x, Dim *parts, Scalar fill)
{
    Dim *dims[MAX_RANK], *idx[MAX_RANK], *c = dim_const(g, PART_STEPS);
    int r = x->rank - 1;
    dims[0] = parts;
    for (int k = 0; k < r; k++) { dims[k + 1] = x->dims[k]; idx[k] = dim_idx(g, k + 1, x->dims[k]); }
    dims[r + 1] = c;
    idx[r] = dim_add(g, dim_mulc(g, dim_idx(g, 0, parts), PART_STEPS), dim_idx(g, r + 1, c));
    Pred inside = { idx[r], x->dims[r] };
    return g_view(g, x, r + 2, dims, &(View){ .nidx = r + 1, .idx = idx, .npred = 1, .pred = &inside, .fill = fill });
}

/* Folds of the parts, then of the whole: to[i] in place of fold i. */
static bool cascade_split(Arena *a, Graph *g, const Cascade *q, Node **to)
{
    const Stream *s = &q->stream;
    Dim *n = q->space[s->axis], *parts = dim_ceildiv(g, n, dim_const(g, PART_STEPS));
    Splitting t = { .g = g, .arena = a, .q = q, .along = true, .steps = MOST_STEPS };
    Node *part[MAX_FOLDS] = { NULL };
    for (int i = 0; i < s->nfold; i++) {             /* a maximum needs no other; sums count as 1 for one another */
        const StreamFold *f = &s->fold[i];
        space_set(&t, a, f, NULL, n);
        g->cur_origin = f->node->origin;
        Node *body = at_points(&t, f->body, f->at);
        if (t.fails) return false;
        part[i] = g_fold(g, (FoldKind)f->node->kind, cut_last(g, body, parts, fold_start((FoldKind)f->node->kind, body->dt)), axis_bit(f->node->rank + 1), false);
        stand_add(&t, f->node, f->pivot ? pivot_guarded(g, part[i], false) : g_scalar(g, f->node->dt, 1), f->pivot);
    }
    for (int i = 0; i < s->nfold; i++) to[i] = s->fold[i].pivot ? g_fold(g, FOLD_max, part[i], axis_bit(0), false) : NULL;
    Splitting merge = { .g = g, .arena = a, .q = q, .steps = MOST_STEPS }, end = merge;
    for (int i = 0; i < s->nfold; i++) {
        const StreamFold *f = &s->fold[i];
        if (!f->pivot) { stand_add(&merge, f->node, g_scalar(g, f->node->dt, 1), false); continue; }
        stand_add(&merge, f->old, part[i], true);
        stand_add(&merge, f->cur, pivot_guarded(g, to[i], true), false);
        stand_add(&end, f->cur, pivot_guarded(g, to[i], true), false);
        stand_add(&end, f->node, to[i], false);
    }
    Node *sum[MAX_FOLDS] = { NULL };
    for (int i = 0; i < s->nfold; i++) {             /* at the whole maximum */
        const StreamFold *f = &s->fold[i];
        if (f->pivot) continue;
        space_set(&merge, a, f, parts, NULL);
        Node *x = part[i];
        Node *by = f->advance ? at_points(&merge, f->advance, f->at) : NULL;
        if (merge.fails) return false;
        if (by) x = g2(g, OP_mul, x, by);
        for (int k = 0; k < f->nterm; k++) {
            const StreamTerm *e = &f->term[k];
            const StreamFold *of = &s->fold[e->of];
            if (!e->advance) continue;
            Node *more = at_points(&merge, e->advance, f->at), *sums = fold_at(&merge, of, part[e->of], true);
            if (merge.fails) return false;
            more = g2(g, OP_mul, more, sums);
            for (int d = 0; d < s->nfold; d++) {
                if (!(e->pivots >> d & 1)) continue;
                Node *old = fold_at(&merge, &s->fold[d], part[d], true);
                if (merge.fails) return false;
                more = g_where(g, g2(g, OP_eq, old, g_scalar(g, old->dt, -INFINITY)), g_scalar(g, more->dt, 0), more);
            }
            x = g2(g, OP_add, x, more);
        }
        sum[i] = g_fold(g, FOLD_sum, x, axis_bit(0), false);
    }
    for (int i = 0; i < s->nfold; i++) {             /* each after those that its last factor needs */
        const StreamFold *f = &s->fold[i];
        if (f->pivot) continue;
        space_set(&end, a, f, NULL, NULL);
        to[i] = sum[i];
        Node *by = f->finish ? at_points(&end, f->finish, f->at) : NULL;
        if (end.fails) return false;
        if (by) to[i] = g2(g, OP_mul, to[i], by);
        for (int k = 0; k < f->nterm; k++) {
            const StreamTerm *e = &f->term[k];
            if (!e->finish) continue;
            Node *times = at_points(&end, e->finish, f->at), *sums = fold_at(&end, &s->fold[e->of], sum[e->of], false);
            if (end.fails) return false;
            to[i] = g2(g, OP_add, to[i], g2(g, OP_mul, times, sums));
        }
        stand_add(&end, f->node, to[i], false);
    }
    return true;
}

/* Long, with few rows, and folds that stand at points of the space one by one. */
static bool splits(Graph *g, const Cascade *q)
{
    const Stream *s = &q->stream;
    int64_t rows = 1;
    if (s->lane >= 0 || s->end || dim_hint(g, q->space[s->axis]) < SPLIT_LEAST * PART_STEPS) return false;
    for (int k = 0; k < q->rank; k++) if (k != s->axis && k != s->row && !(s->out >> k & 1)) rows *= dim_hint(g, q->space[k]);
    if (rows >= ENOUGH_ROWS) return false;
    for (int i = 0; i < s->nfold; i++) {
        Dim *at[MAX_RANK] = { 0 };
        const Node *f = s->fold[i].node;
        fold_index(g, f, s->fold[i].in, at);
        if (f->rank + 3 > MAX_RANK) return false;
        for (int k = 0; k < f->rank; k++) if (!dim_is(f->dims[k], 1) && (at[k]->kind != DIM_idx || at[k]->a != f->dims[k])) return false;
        for (int k = 0; k < f->rank; k++) for (int j = 0; j < k; j++) if (at[k] == at[j] && at[k]->kind == DIM_idx) return false;
    }
    return true;
}

typedef struct Replacing { const Stream *s; Node *const *to; } Replacing;
static Node *split_better(Graph *g, Node *old, Node *now, void *arg)
{
    const Replacing *r = arg;
    (void)g; (void)now;
    for (int i = 0; i < r->s->nfold; i++) if (r->s->fold[i].node == old) return r->to[i];
    return NULL;
}

/* Is there a fold along an axis that is long enough? Looking for cascades takes longer. */
static bool splits_any(const Graph *g)
{
    for (int id = 0; id < g->node.n; id++) {
        const Node *n = g->node.at[id];
        for (int k = 0; n->op == OP_fold && k < n->in[0]->rank; k++)
            if ((n->axes >> k & 1) && dim_hint(g, n->in[0]->dims[k]) >= SPLIT_LEAST * PART_STEPS) return true;
    }
    return false;
}

void cascades_split(Ctx *cx, Arena *a, Graph *g)
{
    for (bool again = splits_any(g); again;) {                /* one at a time: the next may read its results */
        Cascades all = { 0 };
        again = false;
        cascades_find(cx, a, g, &all);
        for (int i = 0; i < all.n && !again; i++) {
            const Cascade *q = all.at.at[i];
            Node *to[MAX_FOLDS] = { NULL };
            int origin = g->cur_origin;
            bool done = splits(g, q) && cascade_split(a, g, q, to);
            g->cur_origin = origin;
            if (!done) continue;
            graph_remake_all(cx, a, g, split_better, &(Replacing){ &q->stream, to });
            log_line(cx, 2, "split: a cascade of few rows is shared between threads");
            again = true;
        }
    }
}
