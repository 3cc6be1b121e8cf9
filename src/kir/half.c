/* Contractions with few columns, as 1x1 convolutions to 6 or 8 channels are: no more than half the lanes of a vector of 512 bits. Its other half would be multiplied in
 * vain. Processors multiply half vectors at least as fast, and twice as fast where a whole one passes through units of half the width; so sums are kept in half vectors,
 * and are widened for what follows them. Columns that fit in a quarter take two terms of the sum at once: a half vector of the panel has, for each column, two rows that
 * follow one another (word.c), the other operand is a pair of neighbours, all over it, and in the end neighbouring lanes are added. Those that fit in half are taken
 * likewise in whole vectors, unless these pass through units of half their width, where nothing is gained.
 *
 * An odd number of half vectors, three or five, is taken likewise: 24 columns are three halves and not two whole ones, and no more is loaded for them than for one. Where the
 * units have half the width (Vectors.split) half vectors do, elsewhere each half is a whole vector of two terms. */
#include "kir/kir.h"

#include <math.h>

enum { LEAST_COLUMNS = 2, HALF_OF = 16, MOST_HALVES = 5 };        /* HALF_OF: lanes of a vector that is worth halving */

/* The factor of a product that differs by column: a constant as it lies. NULL: it is something else, or both factors do. */
static KVal *column_factor(const LoopKernel *k, const KFold *f)
{
    for (int side = 0; side < 2; side++) {
        KVal *w = side ? f->mul_b : f->mul_a, *x = side ? f->mul_a : f->mul_b;
        Dim *one, *rest;
        if ((x->vary & VARY_lane) || w->kind != KV_load || w->dt != DT_f32 || w->at.npred || w->nopnd || !k->sub->constant[k->buf.at[w->buf].node->id]) continue;
        if (dim_linear(k->g, w->at.off, k->vec_var->var, &one, &rest) && dim_is(one, 1)) return w;
    }
    return NULL;
}

/* The one sum of the loops in b, if nothing else in them differs by column. */
static bool few_find(const LoopKernel *k, const KBlock *b, bool inside, KFold **sum)
{
    const KFold *f = NULL;
    for (int i = 0; inside && i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_update) f = b->stmt.at[i].fold;
    const KVal *w = f && f->mul_a && f->mul_b ? column_factor(k, f) : NULL;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && !few_find(k, s->loop->body, inside || !loop_around(s->loop), sum)) return false;
        if (!inside) continue;
        if (s->kind == KS_update) {
            if (*sum || s->fold != f || !w || w->block != b || f->kind != FOLD_sum || f->dt != DT_f32 || f->node->dt != DT_f32 || f->running || f->own) return false;
            *sum = s->fold;
        }
        if (s->kind == KS_store || s->kind == KS_skip) return false;
        if (s->kind == KS_val && (s->vary & VARY_lane) && s->val != w && !(f && s->val == f->value)) return false;
    }
    return true;
}

static bool bounds_only(const KVal *v)
{
    const KVal *c = v->in[v->in[0]->kind == KV_const ? 0 : 1];
    return (v->op == OP_max || v->op == OP_min) && c->kind == KV_const && !isnan(c->imm.f) && !(c->imm.f == 0 && signbit(c->imm.f));
}

static bool lies_along(const LoopKernel *k, const KAddr *at)
{
    Dim *one, *rest;
    return !at->npred && dim_linear(k->g, at->off, k->vec_var->var, &one, &rest) && dim_is(one, 1);
}

/* What follows the sum stays in half vectors as long as that is arithmetic. */
static void half_rest(const LoopKernel *k, KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KVal *v = b->stmt.at[i].kind == KS_val && b->stmt.at[i].vary & VARY_lane ? b->stmt.at[i].val : NULL;
        if (!v || v->dt != DT_f32) continue;
        if (v->kind == KV_fold) v->half = true;
        if (v->kind == KV_load) v->half = !v->nopnd && !v->ahead && lies_along(k, &v->at);
        if (v->kind != KV_ew || !(v->op == OP_add || v->op == OP_sub || v->op == OP_mul || bounds_only(v))) continue;
        v->half = true;
        for (int j = 0; j < v->nin; j++) v->half &= v->in[j]->half || !(v->in[j]->vary & VARY_lane);
    }
}

/* Is that all that follows it? Several half vectors have no whole ones to be widened to. */
static bool all_half(const LoopKernel *k, KBlock *b)
{
    bool all = true;
    half_rest(k, b);
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_store) all &= s->val->half && s->how == COMBINE_set && !s->nopnd && k->buf.at[s->buf].dt == DT_f32 && lies_along(k, &s->at);
        else if (s->kind == KS_val && (s->vary & VARY_lane)) all &= s->val->half;
    }
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_val) b->stmt.at[i].val->half = false;
    return all;
}

int half_count(const LoopKernel *k)
{
    int64_t half = k->lanes / 2, c = k->vec_var->a->c;
    if (c <= half) return 1;
    return c % half == 0 && c / half % 2 == 1 && c / half <= MOST_HALVES ? (int)(c / half) : 0;
}

static KFold *few_sum(LoopKernel *k)
{
    KFold *sum = NULL;
    if (k->lanes < HALF_OF || k->sub->kind != SUB_dot || !k->vec_var || k->sched.panels || k->sched.vectors > 1) return NULL;
    if (!dim_is_const(k->vec_var->a) || !half_count(k) || k->vec_var->a->c < LEAST_COLUMNS || kernel_folds(k->body) != 1) return NULL;
    if (k->sub->nnode && k->sub->constant[k->sub->node[0]->id]) return NULL;
    kernel_vary(k);
    if (!few_find(k, k->body, false, &sum)) return NULL;
    for (int i = 0; half_count(k) > 1 && i < k->body->stmt.n; i++) {
        const KStmt *s = &k->body->stmt.at[i];
        if (s->kind == KS_loop && (k->sched.vectors || !all_half(k, s->loop->body) || !(k->split || k->paired || word_pairs(k, s->loop)))) return NULL;
    }
    return sum;
}

int half_width(const LoopKernel *k) { return k->vec_var->a->c <= k->lanes / 4 ? k->lanes / 4 : k->lanes / 2; }
int half_lanes(LoopKernel *k) { return few_sum(k) ? half_width(k) : k->lanes; }

void half_choose(LoopKernel *k) { k->half = few_sum(k) != NULL; }

void half_apply(LoopKernel *k, KLoop *vec)
{
    KFold *f = k->half ? few_sum(k) : NULL;
    k->half = false;
    if (!f || !vec || vec->nv != half_count(k)) return;
    KVal *w = column_factor(k, f);
    const KBuf *b = &k->buf.at[w->buf];
    if (!b->panel && k->vec_var->a->c % (k->lanes / 2)) return;
    k->half = f->half = w->half = true;
    half_rest(k, vec->body);
    if (f->words) (w == f->mul_a ? f->mul_b : f->mul_a)->half = true;
}
