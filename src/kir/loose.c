/* Maxima that need not keep NaN.
 *
 * max is NaN if an element is, which the machine's instruction is not: it takes three. Where a maximum only scales (softmax, log-sum-exp, attention), NaN arrives at
 * every result by another way: exp(x - max) is NaN where x is, whatever max says, so the sum over the row is, and so is what is computed from it. Four questions
 * about the nodes of one kernel, each of which is computed at one index for each point (what is read from memory may be read elsewhere as well):
 *   carries   is n NaN at each point where x, what the maximum is taken of, is NaN?     arithmetic of what carries
 *   poisoned  is n NaN if x is NaN anywhere in the row?                                 a sum of what carries over the maximum's axis, and arithmetic of that
 *   depends   does n need the maximum?
 *   signed    does n change with the sign of a maximum that is 0? Not if exp stands between; the machine's instruction gives either zero of two. Nor where the logarithm
 *             of the sum of exp(x - max) is added or subtracted: with zeros of both signs in the row it is log 2 at least, so the result is none.
 * The maximum is loose if each result that depends on it is poisoned and not signed. */
#include "kir/kir.h"

typedef struct Loose { const Lowering *l; const Node *max, *x; uint8_t *seen[4]; } Loose;    /* by question and node: 1 no, 2 yes */
enum { CARRIES, POISONED, DEPENDS, SIGNED };

static bool in_kernel(const Loose *q, const Node *n) { return q->l->sub->home[n->id] == q->l->sub->id; }

/* Is the result NaN if one operand is? */
static bool keeps_nan(const Node *n)
{
    if (n->op == OP_cast) return dtype_is_float(n->dt) && dtype_is_float(n->in[0]->dt) && dtype_size(n->dt) > 1;
    return prim_info[n->op].elementwise && !prim_info[n->op].compares && n->op != OP_pow && dtype_is_float(n->dt);
}

/* log of the sum of exp(x - max) over the maximum's axes */
static bool is_log_sum(const Loose *q, const Node *n)
{
    if (n->op != OP_log) return false;
    const Node *sum = under_views(n->in[0]), *e = sum->op == OP_fold && sum->kind == FOLD_sum && !sum->whole ? under_views(sum->in[0]) : NULL;
    const Node *d = e && e->op == OP_exp && sum->axes == q->max->axes && e == sum->in[0] ? e->in[0] : NULL;
    return d && d->op == OP_sub && d->in[0] == q->x && under_views(d->in[1]) == q->max;
}

/* Is the result the same for both zeros? log gives no -0, and +0 is what it adds to either. */
static bool forgets_sign(const Loose *q, const Node *n)
{
    if (n->op == OP_cast) return !dtype_is_float(n->dt);
    if (n->op == OP_sub && is_log_sum(q, under_views(n->in[1]))) return true;
    if (n->op == OP_add) return n->in[0]->op == OP_log || n->in[1]->op == OP_log;
    return n->op == OP_exp || n->op == OP_abs || prim_info[n->op].compares;
}

static bool ask(Loose *q, int what, const Node *n)
{
    uint8_t *seen = &q->seen[what][n->id];
    bool yes = false;
    if (*seen) return *seen == 2;
    *seen = 1;
    if (what == CARRIES && (n == q->x || (under_views(n) == under_views(q->x) && in_kernel(q, under_views(n))))) yes = true;
    else if (what >= DEPENDS && n == q->max) yes = true;
    else if (n->op == OP_view && (what >= DEPENDS || (!n->view.npred && in_kernel(q, under_views(n))))) yes = ask(q, what, n->in[0]);
    else if (!in_kernel(q, n) || (what == SIGNED && forgets_sign(q, n))) yes = false;
    else if (what == POISONED && n->op == OP_fold) yes = n->kind == FOLD_sum && !n->whole && dtype_is_float(n->dt) && ask(q, CARRIES, n->in[0]);
    else if (what >= DEPENDS || keeps_nan(n)) for (int i = 0; i < n->nin; i++) yes |= ask(q, what, n->in[i]);
    *seen = yes ? 2 : 1;
    return yes;
}

bool max_is_loose(const Lowering *l, const Node *f)
{
    Loose q = { .l = l, .max = f, .x = f->in[0] };
    if (l->k->lanes <= 1 || f->kind != FOLD_max || f->dt != DT_f32 || f->whole) return false;
    for (int i = 0; i < 4; i++) q.seen[i] = NEWS(l->arena, uint8_t, l->g->node.n);
    for (int i = 0; i < l->sub->nstore; i++) {
        const Node *n = l->sub->store[i].node;
        if (ask(&q, DEPENDS, n) && (!ask(&q, POISONED, n) || ask(&q, SIGNED, n))) return false;
    }
    return true;
}
