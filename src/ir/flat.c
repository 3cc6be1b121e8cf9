/* What evaluating costs besides arithmetic, and how the ready tier does without most of it.
 *
 * Loads whose place is linear in the indices of the loop nest, through however many views, get that place as numbers (an Affine) before the loops begin; views
 * that nothing else needs are then not entered at all. In an elementwise nest where all loads are like that, axes that lie together in everything that is read
 * and written become one, so that short innermost axes do not cost a block of lanes each.
 *
 * Blocks of memory are used again: pages that are touched for the first time cost more than most of what is computed in them. */
#include "ir/eval.h"

enum { SPARE_LARGEST = 16 << 20, SPARE_LEAST = 32 << 10, SPARE_WASTE = 8 };     /* bytes; times what is wanted */

/* ---- memory ---------------------------------------------------------------------------------------------- */
void *spare_take(Eval *ev, size_t bytes, size_t *room)
{
    int best = -1;
    for (int i = 0; bytes >= SPARE_LEAST && i < SPARES; i++) {
        const Spare *s = &ev->spare[i];
        if (s->at && s->room >= bytes && s->room / SPARE_WASTE <= bytes && (best < 0 || s->room < ev->spare[best].room))
            best = i;
    }
    if (best < 0) {
        size_t whole = SPARE_LEAST;      /* a power of two fits more of what comes later; pages that nobody touches cost nothing */
        while (whole < bytes && whole < SPARE_LARGEST)
            whole *= 2;
        *room = bytes < SPARE_LEAST || bytes > whole ? bytes : whole;
        return block_alloc(*room);
    }
    void *p = ev->spare[best].at;
    *room = ev->spare[best].room;
    ev->spare[best] = (Spare){ 0 };
    return p;
}

void spare_give(Eval *ev, void *p, size_t room)
{
    Spare *least = &ev->spare[0];
    for (int i = 1; i < SPARES; i++)
        if (ev->spare[i].room < least->room)
            least = &ev->spare[i];
    if (!ev->ready || room < SPARE_LEAST || room > SPARE_LARGEST || room <= least->room) {     /* the interpreter's blocks end with their tensors, so that sanitizers see what reads them later */
        block_free(p);
        return;
    }
    block_free(least->at);
    *least = (Spare){ p, room };
}

void spares_free(Eval *ev)
{
    for (int i = 0; i < SPARES; i++)
        block_free(ev->spare[i].at);
}

/* ---- places that are linear in the indices of the loop nest ------------------------------------------------- */
void affine_add(Affine *to, int64_t times, const Affine *x)
{
    to->c += times * x->c;
    for (int k = 0; k < MAX_RANK; k++)
        to->coef[k] += times * x->coef[k];
}

bool affine_lin(const Lin *l, const Affine *var, Affine *r)
{
    *r = (Affine){ .c = l->c };
    for (int k = 0; l->linear && k < l->n; k++) {
        if (l->var[k] >= MAX_RANK)
            return false;
        if (var)
            affine_add(r, l->coef[k], &var[l->var[k]]);
        else
            r->coef[l->var[k]] += l->coef[k];
    }
    return l->linear;
}

int64_t affine_at(const Eval *ev, const Affine *a)
{
    int64_t v = a->c;
    for (int k = 0; k < ev->rank; k++)
        v += a->coef[k] * ev->idx[k];
    return v;
}

/* The variables of the space that step s opens; -1: not all of them are linear, or lanes are left out. */
static int place_view(Eval *ev, const Step *s, int from)
{
    const View *v = &s->n->view;
    Affine e;
    int first = ev->place.n;
    if (from < 0 || s->n->op != OP_view || v->npred)
        return -1;
    for (int k = 0; k < v->nidx; k++) {
        const Lin *l = &ev->lin.at[s->lin + k];
        if (!l->linear || !affine_lin(l, &ev->place.at[from], &e))
            return -1;
        vec_push(ev->mem, &ev->place, e);
    }
    return first;
}

/* A view that reads outside its source is a bug of the builder. */
static void place_check(const Eval *ev, const Affine *a, int64_t size)
{
    int64_t lo = a->c, hi = a->c;
    for (int k = 0; k < ev->rank; k++) {
        int64_t most = a->coef[k] * (ev->dim[k] - 1);
        *(most < 0 ? &lo : &hi) += most;
    }
    ASSERT(lo >= 0 && hi < size);
}

bool cone_flatten(Eval *ev)
{
    bool all = true;
    for (int k = 0; k < ev->rank; k++)
        if (!ev->dim[k])
            return false;
    ev->place.n = 0;
    for (int k = 0; k < ev->rank; k++) {
        Affine index = { 0 };
        index.coef[k] = 1;
        vec_push(ev->mem, &ev->place, index);
    }
    for (int i = 0; i < ev->space.n; i++)
        ev->space.at[i].place = i ? -1 : 0, ev->space.at[i].wanted = false;
    for (int i = 0; i < ev->step.n; i++) {
        Step *s = &ev->step.at[i];
        int from = ev->space.at[s->space].place;
        if (s->kind == STEP_enter)
            ev->space.at[s->a].place = place_view(ev, s, from);
        if (s->kind != STEP_load || from < 0)
            continue;
        const Tensor *t = eval_state(ev, s->n)->val;
        Affine off = { 0 };
        for (int k = 0; k < t->rank; k++) {
            place_check(ev, &ev->place.at[from + k], t->dims[k]);
            affine_add(&off, t->strides[k], &ev->place.at[from + k]);
        }
        vec_push(ev->mem, &ev->place, off);
        s->flat = ev->place.n;
    }
    for (int i = ev->step.n - 1; i >= 0; i--) {          /* the last users first */
        Step *s = &ev->step.at[i];
        if (s->kind == STEP_enter && ev->space.at[s->a].place >= 0 && !ev->space.at[s->a].wanted) {
            s->skip = true;
            continue;
        }
        if (s->kind == STEP_leave)
            ev->space.at[s->b].wanted = true;
        if ((s->kind == STEP_load && !s->flat) || s->kind == STEP_enter || s->kind == STEP_iota || s->kind == STEP_random)
            ev->space.at[s->space].wanted = true, all = false;
    }
    return all;
}

void nest_merge(Eval *ev, int64_t *stride)
{
    int n = 0;
    for (int k = 0; k < ev->rank; k++) {
        bool one = ev->dim[k] == 1, joins = n > 0 && stride[n - 1] == stride[k] * ev->dim[k];
        for (int i = 0; i < ev->step.n && joins && !one; i++) {
            const Step *s = &ev->step.at[i];
            joins = s->kind != STEP_load || ev->place.at[s->flat - 1].coef[n - 1] == ev->place.at[s->flat - 1].coef[k] * ev->dim[k];
        }
        if (one)
            continue;
        int to = joins ? n - 1 : n++;
        for (int i = 0; i < ev->step.n; i++)
            if (ev->step.at[i].kind == STEP_load) {
                Affine *a = &ev->place.at[ev->step.at[i].flat - 1];
                a->coef[to] = a->coef[k];
            }
        stride[to] = stride[k];
        ev->dim[to] = joins ? ev->dim[to] * ev->dim[k] : ev->dim[k];
    }
    for (int i = 0; i < ev->step.n; i++)
        for (int k = n; k < ev->rank && ev->step.at[i].kind == STEP_load; k++)
            ev->place.at[ev->step.at[i].flat - 1].coef[k] = 0;
    ev->rank = n;
}

/* ---- lanes that need no copy --------------------------------------------------------------------------------- */
static bool as_in_slot(const Eval *ev, const Node *n, const Tensor *t, const char *at)
{
    return t->dt == n->dt && (floats(ev, n) || (ints(ev, n) && n->dt == DT_i32)) && (uintptr_t)at % sizeof(Scalar) == 0;
}

bool slot_in_source(Eval *ev, int step, const Tensor *t)
{
    const Step *s = &ev->step.at[step];
    if (!s->flat || ev->lane < 0 || ev->place.at[s->flat - 1].coef[ev->lane] != 1)
        return false;
    char *at = (char *)t->data + affine_at(ev, &ev->place.at[s->flat - 1]) * (int64_t)sizeof(float);
    if (!as_in_slot(ev, s->n, t, at))
        return false;
    ev->slot.at[step] = (Scalar *)(void *)at;
    return true;
}

bool slot_in_result(Eval *ev, int step, const Tensor *out, int64_t off, int64_t lane_step)
{
    const Step *s = &ev->step.at[step];
    char *at = (char *)out->data + off * (int64_t)sizeof(float);
    if (s->kind == STEP_load)
        return false;
    bool there = lane_step == 1 && as_in_slot(ev, s->n, out, at);
    ev->slot.at[step] = there ? (Scalar *)(void *)at : ev->own.at[step];
    return there;
}
