/* What exp of x minus the largest x of a row (softmax, log-sum-exp) need not care about.
 *
 * Its argument is not above 0, if it is a number, so nothing overflows. In a sum over the row one term is 1, so terms that are too small for a normal number do not count,
 * nor does a relative error of |x - max| 2^-28 + 2^-22 in e^(x - max): where nothing else needs the terms, each is added as a product that is never formed (add_power in
 * gen/prelude/math.inc).
 *
 * And such a sum needs no maximum that is known before: any pivot p near it serves, since the sum of e^(x - max) is that of e^(x - p) times e^(p - max), and floats
 * have the same digits everywhere. So rows that are not short are read once: p is the largest of the row's first elements; the loop that adds up also finds
 * the maximum; and after each chunk whose maximum lies more than PIVOT_REACH above p, it becomes p, the sum so far is scaled, and that chunk is done again.
 * In a bundle of rows (bundle.c) all have one pivot, that of the first row's elements, and no row asks meanwhile whether it serves: behind the loop all maxima are at hand, a
 * lane for each, and rows whose maximum lies further from the pivot than that, on either side, are done again with their maximum as the pivot. Where that of the first row's
 * elements is within PIVOT_NONE of 0, it is 0: then nothing is subtracted, and no row waits for it. */
#include "kir/kir.h"
#include <float.h>

/* Do both compute the same from the same elements? */
static bool same_value(const KVal *a, const KVal *b, int depth)
{
    if (a == b) return true;
    if (depth > 8 || a->kind != b->kind || a->op != b->op || a->dt != b->dt || a->nin != b->nin || a->nopnd || b->nopnd) return false;
    if (a->kind == KV_load) return a->buf == b->buf && a->at.off == b->at.off && !a->at.npred && !b->at.npred && a->word == b->word;
    if (a->kind == KV_const) return a->imm.u == b->imm.u;
    if ((a->kind != KV_ew && a->kind != KV_cast) || a->saturate != b->saturate) return false;
    for (int i = 0; i < a->nin; i++) if (!same_value(a->in[i], b->in[i], depth + 1)) return false;
    return true;
}

bool below_largest(const KVal *v)
{
    if (v->kind != KV_ew || v->op != OP_sub || v->in[1]->kind != KV_fold) return false;
    const KFold *f = v->in[1]->fold;
    return f->kind == FOLD_max && !f->running && f->value && same_value(v->in[0], f->value, 0);
}

static void power_walk(KBlock *b, const int *uses)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) power_walk(s->loop->body, uses);
        KFold *f = s->kind == KS_update ? s->fold : NULL;
        const KVal *v = f ? f->value : NULL;
        if (!f || f->kind != FOLD_sum || f->running || !b->loop || !b->loop->vector || b->loop->blocked || f->loop != b->loop || f->dt != DT_f32) continue;
        if (v->kind != KV_ew || v->op != OP_exp || v->dt != DT_f32 || v->block != b || uses[v->id] != 1 || !below_largest(v->in[0])) continue;
        const KFold *max = v->in[0]->in[1]->fold;        /* of all that the sum is of */
        if (!f->node->whole && !max->node->whole && f->node->axes == max->node->axes && max->loop && max->loop->extent == f->loop->extent && !max->loop->from && !f->loop->from)
            f->power = v->in[0];
    }
}

void kernel_powers(LoopKernel *k)
{
    int *uses = NEWS(k->arena, int, k->nval + 1);
    count_uses(uses, k->top);
    count_uses(uses, k->body);
    power_walk(k->body, uses);
}

/* ---- the pivot ------------------------------------------------------------------------------------------------------------------------------- */
enum { GLANCE = 64, PIVOT_LEAST = 512, PIVOT_CHUNK = 1024 };      /* first elements; rows that are longer; elements of a chunk, at least */

static KVal *add_val(LoopKernel *k, KBlock *b, KVal proto)
{
    KVal *v = arena_copy(k->arena, &proto, sizeof proto);
    v->id = k->nval++;
    v->block = b;
    v->dt = DT_f32;
    vec_push(k->arena, &b->stmt, ((KStmt){ .kind = KS_val, .val = v }));
    return v;
}

static KVal *add_ew(LoopKernel *k, KBlock *b, Op op, KVal *x, KVal *y) { return add_val(k, b, (KVal){ .kind = KV_ew, .op = op, .nin = y ? 2 : 1, .in = { x, y }, .node = x->node }); }

/* The one fold of a loop that only computes values for it. */
static KFold *single_sum(const KLoop *o)
{
    KFold *f = NULL;
    if (!o->vector || o->blocked || o->from || o->split || o->tile > 1) return NULL;
    for (int i = 0; i < o->body->stmt.n; i++) {
        const KStmt *s = &o->body->stmt.at[i];
        if (s->kind == KS_update && !f) f = s->fold;
        else if (s->kind != KS_val || s->val->kind == KV_check || s->val->kind == KV_random) return NULL;
    }
    return f && f->loop == o && f->dt == DT_f32 && f->node->dt == DT_f32 ? f : NULL;
}

bool kernel_pivot(LoopKernel *k)
{
    KBlock *b = k->body;
    int at = -1, to = -1;                                /* the loops */
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        if (to >= 0) return false;
        if (at < 0) at = i;
        else to = i;
    }
    if (to < 0) return false;
    KLoop *first = b->stmt.at[at].loop, *sums = b->stmt.at[to].loop;
    KFold *max = single_sum(first), *sum = single_sum(sums);
    if (!max || !sum || !sum->power || first->var != sums->var || first->extent != sums->extent || dim_hint(k->g, first->extent) <= (bundle_serves(k, true) ? 0 : PIVOT_LEAST)) return false;
    KVal *less = sum->power, *largest = less->in[1], *total = sum->result;
    int *uses = NEWS(k->arena, int, k->nval + 1);
    count_uses(uses, k->top);
    count_uses(uses, sums->body);
    if (largest->fold != max || uses[less->id] != 1 || uses[largest->id] != 1) return false;
    for (int i = at + 1; i < to; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind != KS_fold && (s->kind != KS_val || (s->val != largest && s->val->kind == KV_ew))) return false;      /* what may need the maximum */
    }
    KFold *near = arena_copy(k->arena, max, sizeof *max);            /* of the first elements */
    near->id = k->nfold++;
    near->loose = true;
    for (int i = 0; i < first->body->stmt.n; i++) if (first->body->stmt.at[i].kind == KS_update) first->body->stmt.at[i].fold = near;
    first->extent = dim_min(k->g, first->extent, dim_const(k->g, GLANCE));
    max->value = less->in[0];
    max->loop = sums;
    vec_push(k->arena, &sums->body->stmt, ((KStmt){ .kind = KS_update, .fold = max }));
    KBlock old = *b;
    b->stmt.at = NULL; b->stmt.n = b->stmt.cap = 0;
    for (int i = 0; i < old.stmt.n; i++) {
        if (i == at) vec_push(k->arena, &b->stmt, ((KStmt){ .kind = KS_fold, .fold = near }));
        if (old.stmt.at[i].kind != KS_val || old.stmt.at[i].val != largest) vec_push(k->arena, &b->stmt, old.stmt.at[i]);
        if (i == at) {
            near->result = add_val(k, b, (KVal){ .kind = KV_fold, .fold = near, .node = max->node });
            KVal *least = add_val(k, k->top, (KVal){ .kind = KV_const, .imm.f = -(double)FLT_MAX });     /* so that what is -inf is below it */
            less->in[1] = k->pivot = add_ew(k, b, OP_max, near->result, least);
        }
        if (i != to) continue;
        vec_push(k->arena, &b->stmt, ((KStmt){ .kind = KS_val, .val = largest }));
        sum->result = add_val(k, b, (KVal){ .kind = KV_fold, .fold = sum, .node = sum->node });
        KVal *factor = add_ew(k, b, OP_exp, add_ew(k, b, OP_sub, k->pivot, largest), NULL);
        KVal *one = add_val(k, k->top, (KVal){ .kind = KV_const, .imm.f = 1 });           /* that of the maximum itself: roundings leave no sum below it, and so no logarithm below 0 */
        KVal *product = add_ew(k, b, OP_max, add_ew(k, b, OP_mul, sum->result, factor), one), *nan = add_ew(k, b, OP_sub, largest, largest);
        *total = (KVal){ .kind = KV_ew, .op = OP_add, .dt = DT_f32, .id = total->id, .nin = 2, .in = { product, nan }, .block = b, .node = total->node };       /* where the maximum is no number: NaN */
    }
    k->pivoted = sums;
    k->highest = max;
    return true;
}

void pivot_chunk(LoopKernel *k)
{
    int64_t step = (int64_t)k->pivoted->nv * k->lanes;
    k->pivoted->chunk = ((k->bundle ? BUNDLE_ONCE : PIVOT_CHUNK) + step - 1) / step * step;
}
