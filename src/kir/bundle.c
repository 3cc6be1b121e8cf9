/* Rows in bundles: as many rows as a vector has lanes, each loop for all of them before the next loop.
 *
 * Besides its vectors each row costs what is between its loops: folds across the lanes, then scalars computed of them (a logarithm, a division, an element that is
 * gathered). In a bundle these have a lane for each row: the accumulators of all rows are folded together, in half of the operations, and whatever follows is computed
 * once for all rows. The loops take one row after the other, and nothing there waits for a fold across the lanes. For rows along which nothing is stored, and so short
 * that this counts; those that are read more than once must stay in the first cache, all of a bundle. */
#include "kir/kir.h"

enum { BUNDLE_ROW = 512, BUNDLES = 4 };   /* elements of a row that is read more than once; bundles that there must be */

bool bundle_serves(const LoopKernel *k, bool once)
{
    int64_t length = 1;
    const KAxis *row = k->npar ? &k->par[k->npar - 1] : NULL;
    for (int i = 0; i < k->sub->rank; i++) if (k->sub->rows >> i & 1) length *= dim_hint(k->g, k->sub->space[i]);
    if (!row || k->sub->step || k->sched.bundle == 1 || k->sched.rows) return false;
    return k->sched.bundle == 2 || (length <= (once ? BUNDLE_ONCE : BUNDLE_ROW) && dim_hint(k->g, row->extent) >= BUNDLES * k->lanes);
}

static bool plain_loop(const KLoop *o)
{
    if (!o->vector || o->blocked || o->from || o->split || o->tile > 1 || o->team > 1) return false;
    for (int i = 0; i < o->body->stmt.n; i++) {
        const KStmt *s = &o->body->stmt.at[i];
        if (s->kind == KS_val ? s->val->kind == KV_random : s->kind != KS_update || s->fold->running) return false;
    }
    return true;
}

static bool plain_between(const KStmt *s)
{
    if (s->kind == KS_fold) return !s->fold->running && s->fold->kind != FOLD_argmax && s->fold->kind != FOLD_argmin;
    return s->kind == KS_val ? s->val->kind != KV_random : s->kind == KS_store;
}

/* The first elements of the first row stand for all of the bundle. */
static void glance_once(LoopKernel *k, KBlock *b)
{
    const KAxis *row = &k->par[k->npar - 1];
    Dim *first = dim_idx(k->g, BUNDLE_VAR, row->extent), *c, *rest;
    for (int i = 0; i < b->stmt.n; i++) {
        KVal *v = b->stmt.at[i].kind == KS_val ? b->stmt.at[i].val : NULL;
        if (v && v->at.off && dim_linear(k->g, v->at.off, row->var->var, &c, &rest)) v->at.off = dim_add(k->g, dim_mul(k->g, c, first), rest);
    }
}

bool bundle_choose(LoopKernel *k)
{
    KLoop *glance = NULL;
    int folds = 0;
    if (!bundle_serves(k, k->pivoted)) return false;
    for (int i = 0; i < k->buf.n; i++) if (k->buf.at[i].scratch) return false;
    for (int i = 0; i < k->body->stmt.n; i++) {
        const KStmt *s = &k->body->stmt.at[i];
        if (s->kind == KS_loop ? !plain_loop(s->loop) : !plain_between(s)) return false;
        if (s->kind == KS_loop && !glance) glance = s->loop;
        folds += s->kind == KS_fold;
    }
    if (!folds || !glance) return false;
    if (k->pivoted) glance_once(k, glance->body);
    k->bundle = true;
    k->par[k->npar - 1].step = k->lanes;
    return true;
}
