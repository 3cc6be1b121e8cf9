/* The inside of a padded image: where all predicates of the addresses in a loop hold for every iteration and every element of the tile, none needs to be
 * tested, and no row of the tile lies past the end. A predicate 0 <= e < n, e linear in the variables that run in the loop, holds throughout if it holds at the corner where e is least and at the
 * one where it is largest; these corners are the condition under which a loop is printed without predicates. */
#include "gen/gen.h"

enum { MOST_CONDITIONS = 12 };

typedef struct Corner { Dim *low, *high, *n; } Corner;
typedef struct Corners { Printer *p; Corner at[MOST_CONDITIONS]; int n; bool fails, any; } Corners;

/* Adds the reach of one variable to the ends of e: it runs from `first` to `last`. False: e is not linear in it. */
static bool corner_move(Graph *g, const Dim *var, Dim *first, Dim *last, Dim **low, Dim **high)
{
    Dim *c, *rest, *d, *other;
    if (!dim_uses(*low, var->var) && !dim_uses(*high, var->var)) return true;
    if (!dim_linear(g, *low, var->var, &c, &rest) || !dim_linear(g, *high, var->var, &d, &other) || !dim_is_const(c) || c != d) return false;
    bool down = c->c < 0;
    *low = dim_add(g, rest, dim_mul(g, c, down ? last : first));
    *high = dim_add(g, other, dim_mul(g, c, down ? first : last));
    return true;
}

static void corner_add(Corners *x, const KLoop *const *loop, int nloop, Pred q)
{
    Printer *p = x->p;
    Graph *g = p->g;
    const LoopKernel *k = p->k;
    Dim *low = q.e, *high = q.e, *zero = dim_const(g, 0);
    for (int i = 0; i < nloop; i++) {
        if (dim_uses(q.n, loop[i]->var->var) || !corner_move(g, loop[i]->var, zero, dim_addc(g, loop_times(loop[i]), -1), &low, &high)) { x->fails = true; return; }
    }
    if (k->row_var && k->mr > 1) {       /* a variable of its own at the tile's first row: what stands for it is printed as it is */
        if (dim_uses(q.n, k->row_var->var) || !corner_move(g, k->row_var, k->row_var, dim_addc(g, k->row_var, k->mr - 1), &low, &high)) { x->fails = true; return; }
    }
    if (p->lane) {
        if (dim_uses(q.n, p->lane->var) || !corner_move(g, p->lane, p->lane, dim_addc(g, p->lane, (int64_t)p->nv * k->lanes - 1), &low, &high)) { x->fails = true; return; }
    }
    for (int i = 0; i < x->n; i++) if (x->at[i].low == low && x->at[i].high == high && x->at[i].n == q.n) return;
    if (x->n == MOST_CONDITIONS) { x->fails = true; return; }
    x->at[x->n++] = (Corner){ low, high, q.n };
}

static void corners_walk(Corners *x, const KBlock *b, const KLoop **loop, int nloop)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) {
            if (nloop == MAX_RANK) { x->fails = true; return; }
            loop[nloop] = s->loop;
            corners_walk(x, s->loop->body, loop, nloop + 1);
        }
        if (s->kind == KS_store && s->at.npred) x->fails = true;
        if (s->kind != KS_val || !s->val->at.npred) continue;
        x->any = true;
        if (s->val->nopnd) x->fails = true;          /* by numbers that only a run gives */
        for (int q = 0; q < s->val->at.npred && !x->fails; q++) corner_add(x, loop, nloop, s->val->at.pred[q]);
    }
}

const char *print_inside(Printer *p, const KLoop *o)
{
    Corners x = { .p = p };
    const KLoop *loop[MAX_RANK + 1] = { o };
    corners_walk(&x, o->body, loop, 1);
    const LoopKernel *k = p->k;
    bool rows = k->row_var && k->mr > 1 && !p->shifted && !rows_whole(k);
    if (x.fails || (!x.any && !rows)) return NULL;
    const char *all = rows ? arena_fmt(p->arena, "((%s + %d) <= (%s))", print_var(p, k->row_var), k->mr, print_dim(p, k->row_extent)) : NULL;
    for (int i = 0; i < x.n; i++)
        for (int end = 0; end < 2; end++) {
            Corner c = x.at[i];
            if (end ? dim_prove_lt(p->g, c.high, c.n) : dim_prove_ge0(p->g, c.low)) continue;
            const char *one = end ? arena_fmt(p->arena, "((%s) < (%s))", print_dim(p, c.high), print_dim(p, c.n)) : arena_fmt(p->arena, "((%s) >= 0)", print_dim(p, c.low));
            all = all ? arena_fmt(p->arena, "%s & %s", all, one) : one;
        }
    return all ? all : "1";
}
