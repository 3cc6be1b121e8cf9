/* What exp of x minus the largest x of a row (softmax, log-sum-exp) need not care about.
 *
 * Its argument is not above 0, if it is a number, so nothing overflows. In a sum over the row one term is 1, so terms that are too small for a normal number do not count,
 * nor does a relative error of |x - max| 2^-28 in e^(x - max): where nothing else needs the terms, each is added as a product that is never formed (add_expdown in
 * gen/prelude/math.inc). */
#include "kir/kir.h"

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
        if (!f || f->kind != FOLD_sum || f->running || !f->own || f->own->body != b || f->dt != DT_f32) continue;
        if (v->kind != KV_ew || v->op != OP_exp || v->dt != DT_f32 || v->block != b || uses[v->id] != 1 || !below_largest(v->in[0])) continue;
        const Node *sum = f->node, *max = v->in[0]->in[1]->fold->node;
        if (!sum->whole && !max->whole && sum->axes == max->axes && sum->in[0]->rank == max->in[0]->rank) f->power = v->in[0];
    }
}

void sums_of_exp(LoopKernel *k)
{
    int *uses = NEWS(k->arena, int, k->nval + 1);
    count_uses(uses, k->top);
    count_uses(uses, k->body);
    power_walk(k->body, uses);
}
