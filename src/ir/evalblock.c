/* Running the program of a cone (cone.c) for one block of lanes: index expressions, loads, and the steps that compute.
 *
 * A Space is one set of index variables; the root space holds the loop indices, and each view opens another
 * one by computing its index expressions and its predicate for all lanes. A variable is start + step*lane
 * wherever that is true, else an array. Lanes that a predicate excludes are neither loaded nor checked; if
 * no lane is left the steps of that view are skipped.
 *
 * The value of a step is a slot of LANES Scalars, rounded to the node's dtype; in the ready tier one of floats
 * or of int32 (ready.c). */
#include "ir/eval.h"
#include <stdio.h>
#include <string.h>

/* ---- index expressions over lanes ------------------------------------------------------------------- */
static int64_t *temp_take(Eval *ev)
{
    if (ev->ntemp == ev->temp.n)
        vec_push(ev->mem, &ev->temp, NEWS(ev->mem, int64_t, LANES));
    return ev->temp.at[ev->ntemp++];
}

void lin_make(Eval *ev, Lin *l, const Dim *d)
{
    *l = (Lin){.d = d, .linear = true};
    if (!d->idx_mask) {
        l->c = dim_eval(d, ev->syms, NULL);
        return;
    }
    if (d->kind == DIM_idx) {
        l->n = 1, l->var[0] = d->var, l->coef[0] = 1;
        return;
    }
    l->linear = d->kind == DIM_sum;
    l->c = d->c;
    for (int k = 0; l->linear && k < d->n; k++) {
        int64_t coef = d->term[k].coef;
        int var = -1;
        for (int f = 0; f < d->term[k].n; f++) {
            const Dim *x = d->term[k].factor[f];
            if (!x->idx_mask)
                coef = ix_mul(coef, dim_eval(x, ev->syms, NULL));
            else if (x->kind == DIM_idx && var < 0)
                var = x->var;
            else
                l->linear = false;
        }
        if (var < 0)
            l->c = ix_add(l->c, coef);
        else if (l->n < LIN_MAX)
            l->var[l->n] = var, l->coef[l->n++] = coef;
        else
            l->linear = false;
    }
}

static Lanes lanes_binary(Eval *ev, DimKind kind, Lanes a, Lanes b)
{
    int n = ev->nlane;
    int64_t *v = temp_take(ev);
    for (int j = 0; j < n; j++) {
        int64_t x = lane_at(&a, j), y = lane_at(&b, j), q;
        switch (kind) {
        case DIM_min: v[j] = x < y ? x : y; break;
        case DIM_max: v[j] = x > y ? x : y; break;
        case DIM_sum: v[j] = ix_mul(x, y); break;
        case DIM_div: case DIM_mod:
            q = y <= 0 ? 0 : x / y - (x % y < 0); /* lanes that a predicate excludes may hold anything */
            v[j] = kind == DIM_div ? q : ix_sub(x, ix_mul(q, y));
            break;
        case DIM_sym: case DIM_idx:
            ASSERT(!"an operator of sizes");
        }
    }
    return (Lanes){.v = v};
}

static Lanes lanes_add(Eval *ev, Lanes a, Lanes b)
{
    if (!a.v && !b.v)
        return (Lanes){ix_add(a.start, b.start), ix_add(a.step, b.step), NULL};
    int64_t *v = temp_take(ev);
    for (int j = 0; j < ev->nlane; j++)
        v[j] = ix_add(lane_at(&a, j), lane_at(&b, j));
    return (Lanes){.v = v};
}

static Lanes lanes_mul(Eval *ev, Lanes a, Lanes b)
{
    if (!a.v && !a.step && !b.v)
        return (Lanes){ix_mul(a.start, b.start), ix_mul(a.start, b.step), NULL};
    if (!b.v && !b.step && !a.v)
        return (Lanes){ix_mul(a.start, b.start), ix_mul(b.start, a.step), NULL};
    return lanes_binary(ev, DIM_sum, a, b);
}

static Lanes lanes_dim(Eval *ev, const Dim *d, const Space *s, const Lanes *operand)
{
    switch (d->kind) {
    case DIM_sym: return (Lanes){.start = ev->syms[d->var]};
    case DIM_idx: return d->var >= DIM_OPERAND ? operand[d->var - DIM_OPERAND] : s->var[d->var];
    case DIM_sum: {
        Lanes sum = {.start = d->c};
        for (int k = 0; k < d->n; k++) {
            Lanes p = {.start = d->term[k].coef};
            for (int f = 0; f < d->term[k].n; f++)
                p = lanes_mul(ev, p, lanes_dim(ev, d->term[k].factor[f], s, operand));
            sum = lanes_add(ev, sum, p);
        }
        return sum;
    }
    case DIM_div: case DIM_mod: case DIM_min: case DIM_max: break;
    }
    Lanes a = lanes_dim(ev, d->a, s, operand), b = lanes_dim(ev, d->b, s, operand);
    bool quotient = d->kind == DIM_div || d->kind == DIM_mod;
    if (quotient && !a.v && !b.v && !b.step && b.start > 0) { /* one quotient for all lanes: stays linear */
        int64_t end = ix_add(a.start, ix_mul(a.step, ev->nlane - 1)), y = b.start;
        int64_t q = a.start / y - (a.start % y < 0);
        if (q == end / y - (end % y < 0))
            return d->kind == DIM_div ? (Lanes){ .start = q }
                                      : (Lanes){ ix_sub(a.start, ix_mul(q, y)), a.step, NULL };
    }
    return lanes_binary(ev, d->kind, a, b);
}

static Lanes lanes_lin(Eval *ev, const Lin *l, const Space *s, const Lanes *operand)
{
    if (!l->linear)
        return lanes_dim(ev, l->d, s, operand);
    Lanes r = {.start = l->c};
    for (int k = 0; k < l->n; k++) {
        const Lanes *x = l->var[k] >= DIM_OPERAND ? &operand[l->var[k] - DIM_OPERAND] : &s->var[l->var[k]];
        if (!x->v) {
            r.start = ix_add(r.start, ix_mul(l->coef[k], x->start));
            r.step = ix_add(r.step, ix_mul(l->coef[k], x->step));
            continue;
        }
        bool first = !r.v;
        if (first)
            r.v = temp_take(ev);
        for (int j = 0; j < ev->nlane; j++)
            r.v[j] = ix_add(first ? 0 : r.v[j], ix_mul(l->coef[k], x->v[j]));
    }
    if (r.v && (r.start || r.step))
        for (int j = 0; j < ev->nlane; j++)
            r.v[j] = ix_add(r.v[j], ix_add(r.start, ix_mul(r.step, j)));
    return r;
}

/* ---- loads ------------------------------------------------------------------------------------------ */
static void load_lanes(DType t, const char *p, const Lanes *off, const Space *s, Scalar *r)
{
    size_t size = dtype_size(t);
#define LOAD_AS(T, m) \
    if (!off->v && !s->mask) { \
        for (int j = s->lo; j < s->hi; j++) { \
            T x; \
            memcpy(&x, p + (off->start + off->step * j) * (int64_t)sizeof x, sizeof x); \
            r[j].m = x; \
        } \
    } else { \
        for (int j = s->lo; j < s->hi; j++) \
            if (!s->mask || s->mask[j]) { \
                T x; \
                memcpy(&x, p + lane_at(off, j) * (int64_t)sizeof x, sizeof x); \
                r[j].m = x; \
            } \
    } \
    return;
    switch ((int)t) {
    case DT_f32: LOAD_AS(float, f)
    case DT_f64: LOAD_AS(double, f)
    case DT_i32: LOAD_AS(int32_t, i)
    case DT_i64: case DT_u64: LOAD_AS(int64_t, i)
    default:
        for (int j = s->lo; j < s->hi; j++)
            if (!s->mask || s->mask[j])
                r[j] = scalar_load(t, p + lane_at(off, j) * (int64_t)size);
    }
}

/* A view that reads outside its source is a bug of the builder. */
static void load_check(Eval *ev, const Node *n, const Tensor *t, const Space *s)
{
    for (int k = 0; k < t->rank; k++) {
        const Lanes *l = &s->var[k];
        bool ok = true;
        for (int j = s->lo; j < s->hi; j += l->v || s->mask || s->hi - s->lo < 3 ? 1 : s->hi - 1 - s->lo) {
            int64_t at = lane_at(l, j);
            ok = ok && ((s->mask && !s->mask[j]) || (at >= 0 && at < t->dims[k]));
        }
        if (!ok) {
            Text text = {.arena = ev->mem};
            node_print(&text, ev->g, n);
            fprintf(stderr, "index of axis %d is outside [0,%lld) in %s\n", k, (long long)t->dims[k],
                    text.at);
            ASSERT(!"index of a view within its source");
        }
    }
}

static void step_load(Eval *ev, int step)
{
    Step *s = &ev->step.at[step];
    const Tensor *t = eval_state(ev, s->n)->val;
    const Space *sp = &ev->space.at[s->space];
    if (s->filled)
        return;
    if (slot_in_source(ev, step, t))
        return;
    Scalar *r = ev->slot.at[step] = ev->own.at[step];
    Lanes off = {0};
    if (s->flat) {
        const Affine *a = &ev->place.at[s->flat - 1];
        off = (Lanes){ .start = affine_at(ev, a), .step = ev->lane < 0 ? 0 : a->coef[ev->lane] };
        sp = &ev->space.at[0];
    } else
        load_check(ev, s->n, t, sp);
    for (int k = 0; k < t->rank && !s->flat; k++) {
        const Lanes *l = &sp->var[k];
        Lanes stride = {.start = t->strides[k]};
        if (!l->v)
            off.start += l->start * t->strides[k], off.step += l->step * t->strides[k];
        else if (off.v)
            for (int j = 0; j < ev->nlane; j++)
                off.v[j] = ix_add(off.v[j], ix_mul(l->v[j], t->strides[k]));
        else
            off.v = lanes_mul(ev, *l, stride).v;
    }
    if (off.v && (off.start || off.step))
        for (int j = 0; j < ev->nlane; j++)
            off.v[j] = ix_add(off.v[j], off.start + off.step * j);
    if (floats(ev, s->n)) {
        s->filled = tensor_count(t) == 1;
        const float v = s->filled ? (float)scalar_load(DT_f32, t->data).f : 0;
        if (s->filled)
            for (int j = 0; j < LANES; j++)
                ((float *)r)[j] = v;
        else
            floats_load(t->data, &off, sp, (float *)r);
        return;
    }
    if (ints(ev, s->n)) {
        s->filled = tensor_count(t) == 1;
        if (s->filled)
            for (int j = 0; j < LANES; j++)
                ((int32_t *)r)[j] = (int32_t)scalar_load(t->dt, t->data).i;
        else
            ints_load(t->dt, t->data, &off, sp, (int32_t *)r);
        return;
    }
    if (tensor_count(t) == 1) {
        Scalar v = scalar_load(t->dt, t->data);
        for (int j = 0; j < LANES; j++)
            r[j] = v;
        s->filled = true;
        return;
    }
    load_lanes(t->dt, t->data, &off, sp, r);
}

/* ---- steps ------------------------------------------------------------------------------------------ */
static _Noreturn void fail_index(Eval *ev, const Node *n, int64_t at, int axis, int64_t size)
{
    const Origin *o = &ev->g->origin.at[n->origin];
    char who[200];
    if (n->origin && o->op)
        snprintf(who, sizeof who, "%s '%s'", o->op, o->name ? o->name : "");
    else
        snprintf(who, sizeof who, "%s %%%d", prim_info[n->op].name, n->id);
    fail(ev->cx, E_INVALID, "%s: index %lld is outside axis %d of size %lld", who, (long long)at, axis, (long long)size);
}

/* The value of a step as Scalars; and Scalars as the value of a step. */
const Scalar *slot_scalars(Eval *ev, const Node *n, int step)
{
    if (!floats(ev, n) && !ints(ev, n))
        return ev->slot.at[step];
    Scalar *wide = (Scalar *)temp_take(ev);
    if (floats(ev, n))
        floats_to_scalars(ev->nlane, (const float *)ev->slot.at[step], wide);
    else
        ints_to_scalars(ev->nlane, (const int32_t *)ev->slot.at[step], wide);
    return wide;
}

static void slot_put(const Eval *ev, const Node *n, const Scalar *x, Scalar *r)
{
    if (ints(ev, n))
        scalars_to_ints(ev->nlane, x, (int32_t *)r);
    else if (floats(ev, n))
        for (int j = 0; j < ev->nlane; j++)
            ((float *)r)[j] = (float)x[j].f;
    else
        memcpy(r, x, (size_t)ev->nlane * sizeof *r);
}

/* Opens space `to` of a view, gather or scatter; false when no lane is valid. */
bool space_enter(Eval *ev, const Node *n, int from, int to, int lin, int arg)
{
    const Space *in = &ev->space.at[from];
    Space *out = &ev->space.at[to];
    const View *v = &n->view;
    const Lin *l = &ev->lin.at[lin];
    Lanes operand[MAX_RANK];
    int nindex = n->op == OP_view ? 0 : n->nin - (n->op == OP_gather ? 1 : 2);
    for (int k = 0; k < nindex; k++)
        operand[k] = (Lanes){.v = (int64_t *)&slot_scalars(ev, ev->step.at[ev->arg.at[arg + k]].n, ev->arg.at[arg + k])->i};
    out->n = v->nidx;
    out->lo = in->lo, out->hi = in->hi, out->mask = in->mask;
    for (int k = 0; k < v->npred; k++) {
        Lanes e = lanes_lin(ev, &l[v->nidx + 2 * k], in, operand),
              m = lanes_lin(ev, &l[v->nidx + 2 * k + 1], in, operand);
#define PRED_OK(j) (lane_at(&e, j) >= 0 && lane_at(&e, j) < lane_at(&m, j))
        while (out->lo < out->hi && !PRED_OK(out->lo))
            out->lo++;
        while (out->lo < out->hi && !PRED_OK(out->hi - 1))
            out->hi--;
        if (!e.v && !m.v && !m.step)
            continue;                                   /* linear: the valid lanes are one interval */
        uint8_t *mask = (uint8_t *)temp_take(ev);
        for (int j = out->lo; j < out->hi; j++)
            mask[j] = (!out->mask || out->mask[j]) && PRED_OK(j);
        out->mask = mask;
    }
    if (out->lo >= out->hi)
        return false;
    for (int k = 0; k < v->nidx; k++)
        out->var[k] = lanes_lin(ev, &l[k], in, operand);
    if (nindex) {
        const NodeState *src = eval_state(ev, n->in[0]);
        for (int k = 0; k < v->nidx; k++)
            for (int j = out->lo; j < out->hi; j++) {
                int64_t at = lane_at(&out->var[k], j);
                if ((!out->mask || out->mask[j]) && (at < 0 || at >= src->dims[k]))
                    fail_index(ev, n, at, k, src->dims[k]);
            }
    }
    return true;
}

static void step_leave(Eval *ev, const Step *s, Scalar *restrict r)
{
    const Space *in = &ev->space.at[s->b];
    const Scalar *x = ev->slot.at[s->a], fill = s->n->view.fill;
    if (floats(ev, s->n))
        for (int j = 0; j < ev->nlane; j++)
            ((float *)r)[j] = j >= in->lo && j < in->hi && (!in->mask || in->mask[j]) ? ((const float *)x)[j] : (float)fill.f;
    else if (ints(ev, s->n))
        for (int j = 0; j < ev->nlane; j++)
            ((int32_t *)r)[j] = j >= in->lo && j < in->hi && (!in->mask || in->mask[j]) ? ((const int32_t *)x)[j] : (int32_t)fill.i;
    else for (int j = 0; j < ev->nlane; j++)
        r[j] = j >= in->lo && j < in->hi && (!in->mask || in->mask[j]) ? x[j] : fill;
}

static void step_random(Eval *ev, const Step *s, Scalar *r)
{
    const Space *sp = &ev->space.at[s->space];
    const NodeState *f = eval_state(ev, s->n);
    uint64_t key = ev->slot.at[s->a][0].u;
    for (int j = sp->lo; j < sp->hi; j++) {
        uint64_t at = 0;
        for (int k = 0; k < s->n->rank; k++)
            at = at * (uint64_t)f->dims[k] + (uint64_t)lane_at(&sp->var[k], j);
        r[j].u = random_word(key, at);
    }
}

static void step_ew(Eval *ev, const Step *s, Scalar *r)
{
    const Node *x = s->n->in[0];
    Scalar *const *slot = ev->slot.at;
    int n = ev->nlane;
    if (floats(ev, x)) {
        floats_ew(s->n->op, n, (const float *)slot[s->a], (const float *)slot[s->b], r);
        return;
    }
    if (ints(ev, x) && ints_ew(s->n->op, x->dt, n, (const int32_t *)slot[s->a], (const int32_t *)slot[s->b], (int32_t *)r))
        return;
    const Scalar *a = slot_scalars(ev, x, s->a), *b = s->b == s->a ? a : slot_scalars(ev, x, s->b);
    if (!ints(ev, s->n)) {
        ew_lanes(s->n->op, x->dt, n, a, b, r);
        err_function(ev, s->n, n, r);
        return;
    }
    Scalar *wide = (Scalar *)temp_take(ev);
    ew_lanes(s->n->op, x->dt, n, a, b, wide);
    slot_put(ev, s->n, wide, r);
}

static void step_cast(Eval *ev, const Step *s, Scalar *r)
{
    const Node *x = s->n->in[0];
    const Scalar *from = ev->slot.at[s->a];
    int n = ev->nlane;
    if (ints(ev, x) && ints_cast(s->n->dt, n, (const int32_t *)from, r))
        return;
    if (floats(ev, x) && ints(ev, s->n) && floats_to_ints(s->n->dt, s->n->saturate, n, (const float *)from, (int32_t *)r))
        return;
    const Scalar *wide = slot_scalars(ev, x, s->a);
    if (floats(ev, s->n))
        floats_cast(x->dt, n, wide, (float *)r);
    else if (ints(ev, s->n)) {
        Scalar *to = (Scalar *)temp_take(ev);
        cast_lanes(s->n->dt, x->dt, s->n->saturate, n, wide, to);
        slot_put(ev, s->n, to, r);
    } else
        cast_lanes(s->n->dt, x->dt, s->n->saturate, n, wide, r);
}

void eval_block(Eval *ev, int n)
{
    if (++ev->blocks % 4096 == 0)
        ctx_poll(ev->cx);
    Space *root = &ev->space.at[0];
    root->n = ev->rank, root->lo = 0, root->hi = n;
    for (int k = 0; k < ev->rank; k++)
        root->var[k] = (Lanes){ev->idx[k], k == ev->lane, NULL};
    ev->nlane = n;
    ev->ntemp = 0;
    for (int i = 0; i < ev->step.n; i++) {
        Step *s = &ev->step.at[i];
        Scalar *r = ev->slot.at[i];
        Scalar *const *slot = ev->slot.at;
        switch (s->kind) {
        case STEP_load: step_load(ev, i); break;
        case STEP_ew:
            step_ew(ev, s, r);
            break;
        case STEP_where:
            if (floats(ev, s->n))
                for (int j = 0; j < n; j++)
                    ((float *)r)[j] = ((int32_t *)slot[s->a])[j] ? ((float *)slot[s->b])[j] : ((float *)slot[s->c])[j];
            else if (ints(ev, s->n))
                for (int j = 0; j < n; j++)
                    ((int32_t *)r)[j] = ((int32_t *)slot[s->a])[j] ? ((int32_t *)slot[s->b])[j] : ((int32_t *)slot[s->c])[j];
            else if (ev->ready)
                for (int j = 0; j < n; j++)
                    r[j] = ((int32_t *)slot[s->a])[j] ? slot[s->b][j] : slot[s->c][j];
            else for (int j = 0; j < n; j++)
                r[j] = slot[s->a][j].i ? slot[s->b][j] : slot[s->c][j];
            break;
        case STEP_cast:
            step_cast(ev, s, r);
            break;
        case STEP_bitcast: {
            Scalar wide[LANES] = { { 0 } };
            bitcast_lanes(s->n->dt, s->n->in[0]->dt, n, slot_scalars(ev, s->n->in[0], s->a), wide);
            slot_put(ev, s->n, wide, r);
            break;
        }
        case STEP_iota:
            for (int j = 0; j < n; j++)
                r[j].i = lane_at(&ev->space.at[s->space].var[s->n->axis], j);
            break;
        case STEP_random: step_random(ev, s, r); break;
        case STEP_enter:
            if (!s->skip && !space_enter(ev, s->n, s->space, s->a, s->lin, s->arg)) {
                ASSERT(s->jump);
                for (int j = 0; j < n; j++)
                    if (floats(ev, s->n))
                        ((float *)slot[s->jump])[j] = (float)s->n->view.fill.f;
                    else if (ints(ev, s->n))
                        ((int32_t *)slot[s->jump])[j] = (int32_t)s->n->view.fill.i;
                    else
                        slot[s->jump][j] = s->n->view.fill;
                i = s->jump;
            }
            break;
        case STEP_leave: step_leave(ev, s, r); break;
        }
    }
}
