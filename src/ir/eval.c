/* The reference interpreter: the definition of right.
 *
 * Nodes that must exist as a whole (folds, scans, scatters, joins, calls, results, and what eval_plan picks)
 * are stored in id order. The map nodes between them are evaluated on demand: for each stored node the cone
 * of map nodes above it is compiled into a flat program, which then runs for LANES index tuples at once
 * (neighbours along one axis of the loop nest), so that the cost of a step is shared by many elements.
 *
 * A Space is one set of index variables; the root space holds the loop indices, and each view opens another
 * one by computing its index expressions and its predicate for all lanes. A variable is start + step*lane
 * wherever that is true, else an array. Lanes that a predicate excludes are neither loaded nor checked; if
 * no lane is left the steps of that view are skipped.
 *
 * Values are Scalars rounded to the node's dtype after every operation. Intermediate tensors are blocks
 * freed after their last use. All of it runs under a guard, so a failure frees blocks and scratch arena
 * before it is raised again. */
#include "ir/eval.h"
#include <stdio.h>
#include <string.h>

/* Index arithmetic wraps: lanes that a predicate excludes may hold anything. */
static inline int64_t ix_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t ix_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t ix_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* ---- index expressions over lanes ---------------------------------------------------------------------- */
static int64_t *temp_take(Eval *ev)
{
    if (ev->ntemp == ev->temp.n)
        vec_push(ev->mem, &ev->temp, NEWS(ev->mem, int64_t, LANES));
    return ev->temp.at[ev->ntemp++];
}

static inline int64_t lane_at(const Lanes *l, int j)
{
    return l->v ? l->v[j] : ix_add(l->start, ix_mul(l->step, j));
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

/* ---- loading and storing lanes ------------------------------------------------------------------------- */
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

static void store_lanes(const Tensor *t, int64_t off, int64_t step, int n, const Scalar *r)
{
    char *p = t->data;
    int64_t size = (int64_t)dtype_size(t->dt);
    if (t->dt == DT_f32) {
        for (int j = 0; j < n; j++) {
            float x = (float)r[j].f;
            memcpy(p + (off + step * j) * size, &x, sizeof x);
        }
    } else if (t->dt == DT_i64 || t->dt == DT_f64) {
        for (int j = 0; j < n; j++)
            memcpy(p + (off + step * j) * size, &r[j], sizeof r[j]);
    } else {
        for (int j = 0; j < n; j++)
            scalar_store(t->dt, p + (off + step * j) * size, r[j]);
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
        if (s->filled)
            for (int j = 0; j < LANES; j++)
                ((float *)r)[j] = *(const float *)t->data;
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

/* ---- running a program --------------------------------------------------------------------------------- */
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
static const Scalar *slot_scalars(Eval *ev, const Node *n, int step)
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
static bool space_enter(Eval *ev, const Node *n, int from, int to, int lin, int arg)
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

/* ---- compiling the cone of a stored node --------------------------------------------------------------- */
static int step_add(Eval *ev, Step s)
{
    vec_push(ev->mem, &ev->step, s);
    if (ev->slot.n < ev->step.n) {
        vec_push(ev->mem, &ev->own, NEWS(ev->mem, Scalar, LANES));
        vec_push(ev->mem, &ev->slot, NULL);
    }
    ev->slot.at[ev->step.n - 1] = ev->own.at[ev->step.n - 1];
    return ev->step.n - 1;
}

static int space_add(Eval *ev)
{
    vec_push(ev->mem, &ev->space, ((Space){.hi = LANES}));
    return ev->space.n - 1;
}

static int cone_step(Eval *ev, const Node *n, int space, bool top);

static int lins_add(Eval *ev, const View *v)
{
    int first = ev->lin.n;
    Lin l;
    for (int k = 0; k < v->nidx + 2 * v->npred; k++) {
        int p = k - v->nidx;
        lin_make(ev, &l, p < 0 ? v->idx[k] : p % 2 ? v->pred[p / 2].n : v->pred[p / 2].e);
        vec_push(ev->mem, &ev->lin, l);
    }
    return first;
}

/* Compiles index operands from in[first] on; they are in the space of the node that uses them. */
static int args_add(Eval *ev, const Node *n, int first, int space)
{
    int at[MAX_RANK], pos;
    for (int k = first; k < n->nin; k++)
        at[k - first] = cone_step(ev, n->in[k], space, false);
    pos = ev->arg.n;
    for (int k = first; k < n->nin; k++)
        vec_push(ev->mem, &ev->arg, at[k - first]);
    return pos;
}

static int cone_view(Eval *ev, const Node *n, int space)
{
    Step s = {.kind = STEP_enter, .n = n, .space = space};
    if (n->op == OP_gather)
        s.arg = args_add(ev, n, 1, space);
    s.a = space_add(ev);
    s.lin = lins_add(ev, &n->view);
    int enter = step_add(ev, s), x = cone_step(ev, n->in[0], s.a, false);
    if (!n->view.npred)
        return x;
    int leave = step_add(ev, (Step){.kind = STEP_leave, .n = n, .space = space, .a = x, .b = s.a});
    ev->step.at[enter].jump = leave;
    return leave;
}

/* The step whose slot holds n in that space. top: the node being stored itself. */
static int cone_step(Eval *ev, const Node *n, int space, bool top)
{
    for (int k = ev->step.n - 1; k >= 0; k--)
        if (ev->step.at[k].n == n && ev->step.at[k].space == space) {
            if (ev->step.at[k].kind != STEP_enter)
                return k;
            if (!n->view.npred)
                return cone_step(ev, n->in[0], ev->step.at[k].a, false);
        }
    Step s = {.n = n, .space = space};
    if (!top && eval_state(ev, n)->stored)
        return s.kind = STEP_load, step_add(ev, s);
    switch (n->op) {
#define EW(name, arity, dom, fv, iv, c) case OP_##name:
#define CMP(name, arity, dom, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
        s.kind = STEP_ew;
        s.a = cone_step(ev, n->in[0], space, false);
        s.b = n->nin > 1 ? cone_step(ev, n->in[1], space, false) : s.a;
        return step_add(ev, s);
    case OP_where:
        s.kind = STEP_where;
        s.a = cone_step(ev, n->in[0], space, false);
        s.b = cone_step(ev, n->in[1], space, false);
        s.c = cone_step(ev, n->in[2], space, false);
        return step_add(ev, s);
    case OP_cast: case OP_bitcast:
        s.kind = n->op == OP_cast ? STEP_cast : STEP_bitcast;
        s.a = cone_step(ev, n->in[0], space, false);
        return step_add(ev, s);
    case OP_iota:
        s.kind = STEP_iota;
        return step_add(ev, s);
    case OP_random:
        if (!ev->zero_space)
            ev->zero_space = space_add(ev);
        s.kind = STEP_random;
        s.a = cone_step(ev, n->in[0], ev->zero_space, false);
        return step_add(ev, s);
    case OP_view: case OP_gather:
        return cone_view(ev, n, space);
    case OP_input:
    case OP_const:
    case OP_dims:
    case OP_scatter:
    case OP_fold:
    case OP_scan:
    case OP_join:
    case OP_call:
    case OP_part:
    case OP_COUNT:
        break;
    }
    ASSERT(!"a map node");
    return 0;
}

static void nest_begin(Eval *ev, const Node *x)
{
    const NodeState *f = eval_state(ev, x);
    ev->step.n = ev->space.n = ev->lin.n = ev->arg.n = 0;
    ev->zero_space = 0;
    space_add(ev);
    ev->rank = x->rank;
    for (int k = 0; k < x->rank; k++)
        ev->dim[k] = f->dims[k], ev->idx[k] = 0;
}

int cone_begin(Eval *ev, const Node *x, bool top)
{
    nest_begin(ev, x);
    return cone_step(ev, x, 0, top);
}

int cone_begin_below(Eval *ev, const Node *x, const Node *operand)
{
    nest_begin(ev, x);
    if (x->op != OP_view)
        return cone_step(ev, operand, 0, false);
    Step s = {.kind = STEP_enter, .n = x, .a = space_add(ev), .lin = lins_add(ev, &x->view)};
    step_add(ev, s);
    return cone_step(ev, operand, s.a, false);
}

/* ---- loop nests ---------------------------------------------------------------------------------------- */
void nest_lane(Eval *ev, uint32_t allowed)
{
    ev->lane = -1;
    for (int k = ev->rank - 1; k >= 0; k--)
        if (allowed & axis_bit(k)) {
            if (ev->lane < 0 || ev->dim[k] > ev->dim[ev->lane])
                ev->lane = k;
            if (ev->dim[ev->lane] >= 32)
                return;
        }
}

bool nest_next(Eval *ev, uint32_t axes)
{
    for (int k = ev->rank - 1; k >= 0; k--)
        if (axes & axis_bit(k)) {
            if (++ev->idx[k] < ev->dim[k])
                return true;
            ev->idx[k] = 0;
        }
    return false;
}

static inline uint32_t nest_without_lane(const Eval *ev, uint32_t axes)
{
    return ev->lane < 0 ? axes : axes & ~axis_bit(ev->lane);
}
static inline int64_t nest_extent(const Eval *ev) { return ev->lane < 0 ? 1 : ev->dim[ev->lane]; }
static inline int chunk_size(int64_t left) { return left < LANES ? (int)left : LANES; }

static int64_t nest_offset(const Eval *ev, const int64_t *stride)
{
    int64_t off = 0;
    for (int k = 0; k < ev->rank; k++)
        off += ev->idx[k] * stride[k];
    return off;
}

/* out[base + index] = n, rounded to out's dtype. */
static void eval_map(Eval *ev, const Node *n, bool top, const Tensor *out, int64_t base)
{
    if (!eval_state(ev, n)->count)
        return;
    int x = cone_begin(ev, n, top);
    int64_t stride[MAX_RANK];
    memcpy(stride, out->strides, sizeof stride);
    if (ev->ready && cone_flatten(ev))
        nest_merge(ev, stride);
    nest_lane(ev, ~0u);
    int64_t step = ev->lane < 0 ? 0 : stride[ev->lane], extent = nest_extent(ev);
    do {
        for (int64_t at = 0; at < extent; at += LANES) {
            int m = chunk_size(extent - at);
            if (ev->lane >= 0)
                ev->idx[ev->lane] = at;
            int64_t off = base + nest_offset(ev, stride);
            bool there = slot_in_result(ev, x, out, off, step);
            eval_block(ev, m);
            if (there)
                continue;
            if (floats(ev, n) && out->dt == DT_f32)
                floats_store((float *)out->data + off, step, m, (const float *)ev->slot.at[x]);
            else if (ints(ev, n) && out->dt == n->dt)
                ints_store(out->dt, (char *)out->data + off * (int64_t)dtype_size(out->dt), step, m, (const int32_t *)ev->slot.at[x]);
            else
                store_lanes(out, off, step, m, slot_scalars(ev, n, x));
        }
        if (ev->lane >= 0)
            ev->idx[ev->lane] = 0;
    } while (nest_next(ev, nest_without_lane(ev, ~0u)));
}

/* ---- folds and scans ----------------------------------------------------------------------------------- */
static void fold_store(const Node *n, const Tensor *out, int64_t off, int64_t step, int m, Scalar *acc,
                       const int64_t *at)
{
    if (n->kind == FOLD_argmax || n->kind == FOLD_argmin)
        for (int j = 0; j < m; j++)
            acc[j].i = at[j] < 0 ? 0 : at[j];
    else
        round_lanes(n->dt, m, acc);
    store_lanes(out, off, step, m, acc);
}

static void eval_fold(Eval *ev, const Node *n, const Tensor *out)
{
    const Node *x = n->in[0];
    const NodeState *f = eval_state(ev, x);
    bool arg = n->kind == FOLD_argmax || n->kind == FOLD_argmin;
    int slot = cone_begin(ev, x, false);
    if (ev->ready)
        cone_flatten(ev);
    uint32_t all = x->rank ? (uint32_t)((1ull << x->rank) - 1) : 0, kept = all & ~n->axes, inner = 0;
    int64_t stride[MAX_RANK] = { 0 }, pos[MAX_RANK] = { 0 }, nred = 1,
            nkept = 1; /* of out; of the index of an arg fold */
    for (int k = x->rank - 1, o = n->rank - 1; k >= 0; k--) {
        if (n->axes & axis_bit(k)) {
            if (!inner && f->dims[k] > 1)
                inner = axis_bit(k); /* the innermost that moves: elements are taken in row-major order */
            pos[k] = nred, nred *= f->dims[k];
        } else {
            stride[k] = out->strides[o--], nkept *= f->dims[k];
        }
    }
    if (!nkept)
        return;
    nest_lane(ev, kept | inner);
    bool serial = ev->lane >= 0 && (n->axes & axis_bit(ev->lane));
    int64_t extent = nest_extent(ev), lane_stride = ev->lane < 0 ? 0 : stride[ev->lane], at[LANES];
    Scalar acc[LANES], start = fold_start(n->kind, x->dt);
    uint32_t outer = nest_without_lane(ev, kept), red = nest_without_lane(ev, n->axes & all);
    do {
        for (int64_t l = 0; l < (serial ? 1 : extent); l += LANES) {
            int m = serial ? 1 : chunk_size(extent - l);
            for (int j = 0; j < m; j++)
                acc[j] = start, at[j] = -1;
            if (nred)
                do {
                    for (int64_t c = 0; c < (serial ? extent : 1); c += LANES) {
                        int w = serial ? chunk_size(extent - c) : m;
                        if (ev->lane >= 0)
                            ev->idx[ev->lane] = serial ? c : l;
                        eval_block(ev, w);
                        if (arg)
                            argfold_lanes(n, serial, acc, at, slot_scalars(ev, x, slot), w, nest_offset(ev, pos),
                                          serial ? pos[ev->lane] : 0);
                        else
                            fold_lanes(n->kind, x->dt, serial, acc, slot_scalars(ev, x, slot), w, NULL);
                    }
                    if (serial)
                        ev->idx[ev->lane] = 0;
                } while (nest_next(ev, red));
            if (ev->lane >= 0)
                ev->idx[ev->lane] = serial ? 0 : l;
            fold_store(n, out, nest_offset(ev, stride), lane_stride, m, acc, at);
        }
        if (ev->lane >= 0)
            ev->idx[ev->lane] = 0;
    } while (nest_next(ev, outer));
}

static void eval_scan(Eval *ev, const Node *n, const Tensor *out)
{
    if (!eval_state(ev, n)->count)
        return;
    int slot = cone_begin(ev, n->in[0], false);
    nest_lane(ev, ~0u);
    bool serial = ev->lane == n->axis;
    int64_t extent = nest_extent(ev), step = out->strides[ev->lane];
    Scalar acc[LANES], run[LANES], start = fold_start(n->kind, n->dt);
    uint32_t outer = nest_without_lane(ev, ~axis_bit(n->axis)),
             along = nest_without_lane(ev, axis_bit(n->axis));
    do {
        acc[0] = start;
        for (int64_t l = 0; l < extent; l += LANES) {
            int m = chunk_size(extent - l);
            ev->idx[ev->lane] = l;
            if (!serial)
                for (int j = 0; j < m; j++)
                    acc[j] = start;
            do {
                eval_block(ev, m);
                fold_lanes(n->kind, n->dt, serial, acc, slot_scalars(ev, n->in[0], slot), m, run);
                round_lanes(n->dt, m, run);
                store_lanes(out, nest_offset(ev, out->strides), step, m, run);
            } while (nest_next(ev, along));
        }
        ev->idx[ev->lane] = 0;
    } while (nest_next(ev, outer));
}

/* ---- scatter, join, call ------------------------------------------------------------------------------- */
/* Updates in row-major order: lanes run along the innermost axis that moves. Float sums and products are
 * kept in double till the end. */
static void eval_scatter(Eval *ev, const Node *n, const Tensor *out)
{
    bool wide =
        dtype_is_float(n->dt) && n->dt != DT_f64 && (n->kind == COMBINE_add || n->kind == COMBINE_mul);
    Tensor acc = *out;
    Space *to;
    if (wide) {
        tensor_init(ev->cx, &acc, DT_f64, out->rank, out->dims);
        acc.data = block_alloc(tensor_bytes(&acc) + 1);
        if (!acc.data)
            fail(ev->cx, E_NOMEM, "no memory for %lld elements", (long long)tensor_count(&acc));
        eval_state(ev, n)->stage = acc.data;
    }
    eval_map(ev, n->in[0], false, &acc, 0);
    if (eval_state(ev, n->in[1])->count) {
        int x = cone_begin(ev, n->in[1], false), arg = args_add(ev, n, 2, 0), lin = lins_add(ev, &n->view),
            space = space_add(ev);
        ev->lane = -1;
        for (int k = ev->rank - 1; k >= 0 && ev->lane < 0; k--)
            if (ev->dim[k] > 1)
                ev->lane = k;
        int64_t extent = nest_extent(ev);
        do {
            for (int64_t l = 0; l < extent; l += LANES) {
                if (ev->lane >= 0)
                    ev->idx[ev->lane] = l;
                eval_block(ev, chunk_size(extent - l));
                const Scalar *update = slot_scalars(ev, n->in[1], x);
                if (!space_enter(ev, n, 0, space, lin, arg))
                    continue;
                to = &ev->space.at[space];
                for (int j = to->lo; j < to->hi; j++) {
                    int64_t off = 0;
                    if (to->mask && !to->mask[j])
                        continue;
                    for (int k = 0; k < to->n; k++) {
                        int64_t at = lane_at(&to->var[k], j);
                        ASSERT(at >= 0 && at < acc.dims[k]);
                        off += at * acc.strides[k];
                    }
                    void *p = (char *)acc.data + off * (int64_t)dtype_size(acc.dt);
                    scalar_store(acc.dt, p,
                                 combine_value(n->kind, n->dt, scalar_load(acc.dt, p), update[j]));
                }
            }
            if (ev->lane >= 0)
                ev->idx[ev->lane] = 0;
        } while (nest_next(ev, nest_without_lane(ev, ~0u)));
    }
    if (wide) {
        char *p = out->data;
        for (int64_t k = 0; k < tensor_count(out); k++, p += dtype_size(out->dt))
            scalar_store(out->dt, p, scalar_load(DT_f64, (double *)acc.data + k));
        block_free(acc.data);
        eval_state(ev, n)->stage = NULL;
    }
}

static void eval_join(Eval *ev, const Node *n, const Tensor *out)
{
    int64_t at = 0;
    for (int k = 0; k < n->nin; k++) {
        eval_map(ev, n->in[k], false, out, at * out->strides[n->axis]);
        at += eval_state(ev, n->in[k])->dims[n->axis];
    }
    ASSERT(at == out->dims[n->axis]);
}

static const Node *part_find(const Eval *ev, const Node *call, int index)
{
    for (int k = call->id + 1; k < ev->g->node.n; k++) {
        const Node *p = ev->g->node.at[k];
        if (p->op == OP_part && p->in[0] == call && p->index == index)
            return p;
    }
    return NULL;
}

/* Results that have no part node are not wanted: they get rank 0. */
static void eval_call(Eval *ev, NodeState *f)
{
    const Call *call = f->n->call;
    Tensor *in = NEWS(ev->mem, Tensor, call->nin + 1);
    ASSERT(call->nin == f->n->nin);
    for (int k = 0; k < call->nin; k++) {
        in[k] = *eval_state(ev, f->n->in[k])->val;
        if (!tensor_dense(&in[k])) {
            Tensor *t = tensor_new(ev->mem, ev->cx, in[k].dt, in[k].rank, in[k].dims);
            eval_map(ev, f->n->in[k], false, t, 0);
            in[k] = *t;
        }
    }
    f->val = NEWS(ev->mem, Tensor, call->nout + 1);
    for (int k = 0; k < call->nout; k++) {
        const Node *p = part_find(ev, f->n, k);
        int64_t dims[MAX_RANK];
        f->val[k].dt = call->out_dt[k];
        if (call->def->dynamic)
            continue;
        for (int d = 0; p && d < p->rank; d++)
            dims[d] = dim_eval(p->dims[d], ev->syms, NULL);
        f->val[k] = *tensor_new(ev->mem, ev->cx, call->out_dt[k], p ? p->rank : 0, dims);
        if (!p)
            f->val[k].data = NULL;
    }
    call->def->eval(ev->cx, ev->mem, call, in, f->val);
}

static void eval_part(Eval *ev, NodeState *f)
{
    NodeState *call = eval_state(ev, f->n->in[0]);
    ASSERT(f->n->index < call->n->call->nout);
    f->val = &call->val[f->n->index];
    bool same = f->val->rank == f->n->rank;
    for (int k = 0; same && k < f->n->rank; k++)
        same = f->val->dims[k] == f->dims[k];
    if (!same)
        fail(ev->cx, E_INVALID, "result %d of %s has the shape %s; the graph was built for %s", f->n->index,
             call->n->call->def->name, shape_str(ev->mem, f->val->rank, f->val->dims),
             shape_str(ev->mem, f->n->rank, f->dims));
}

/* ---- what is stored, and when -------------------------------------------------------------------------- */
/* The nodes that outs need, in id order: operands come first. */
static void eval_collect(Eval *ev)
{
    VEC(const Node *) todo = { 0 };
    int count = 0, lo = ev->g->node.n, hi = -1;
    ev->pos = NEWS(ev->mem, int, ev->g->node.n + 1);
    for (int k = 0; k < ev->nout; k++)
        vec_push(ev->mem, &todo, ev->outs[k]);
    while (todo.n) {
        const Node *n = todo.at[--todo.n];
        if (ev->pos[n->id])
            continue;
        ASSERT(n->id < ev->g->node.n && ev->g->node.at[n->id] == n);
        ev->pos[n->id] = 1;
        count++;
        lo = n->id < lo ? n->id : lo;
        hi = n->id > hi ? n->id : hi;
        for (int k = 0; k < n->nin; k++)
            if (!ev->pos[n->in[k]->id])
                vec_push(ev->mem, &todo, n->in[k]);
    }
    ev->st = NEWS(ev->mem, NodeState, count + 1);
    for (int id = lo; id <= hi; id++) {
        if (!ev->pos[id])
            continue;
        NodeState *f = &ev->st[ev->nst++];
        f->n = ev->g->node.at[id];
        f->last = f->first_dead = f->next_dead = -1;
        ev->pos[id] = ev->nst;
    }
}

static int64_t count_add(int64_t a, int64_t b) { return a > INT64_MAX / 8 - b ? INT64_MAX / 8 : a + b; }

static bool eval_is_map(const Node *n)
{
    return prim_info[n->op].elementwise || n->op == OP_where || n->op == OP_cast || n->op == OP_bitcast ||
           n->op == OP_view || n->op == OP_gather || n->op == OP_iota || n->op == OP_random;
}

static void eval_plan(Eval *ev)
{
    for (int k = 0; k < ev->nout; k++) {
        NodeState *f = eval_state(ev, ev->outs[k]);
        f->result = f->stored = true;
    }
    for (int i = 0; i < ev->nst; i++) {
        NodeState *f = &ev->st[i];
        const Node *n = f->n;
        f->dims = NEWS(ev->mem, int64_t, n->rank + 1);
        f->count = 1;
        for (int k = 0; k < n->rank; k++) {
            f->dims[k] = dim_eval(n->dims[k], ev->syms, NULL);
            ASSERT(f->dims[k] >= 0);
            f->count =
                f->dims[k] && f->count > INT64_MAX / 8 / f->dims[k] ? INT64_MAX / 8 : f->count * f->dims[k];
        }
        for (int k = 0; k < n->nin; k++) {
            bool again = false;
            for (int j = 0; j < k; j++)
                again |= n->in[j] == n->in[k];
            if (!again)
                eval_state(ev, n->in[k])->uses++;
        }
    }
    for (int i = 0; i < ev->nst; i++) {
        NodeState *f = &ev->st[i];
        const Node *n = f->n;
        f->depth = f->cone = 1;
        f->base = n->nin ? 0 : f->count;
        for (int k = 0; k < n->nin; k++) {
            NodeState *x = eval_state(ev, n->in[k]);
            f->base = count_add(f->base, x->base);
            if (n->op == OP_call)
                x->stored = true;
            if (x->stored)
                continue;
            f->depth = x->depth + 1 > f->depth ? x->depth + 1 : f->depth;
            f->cone += x->cone;
        }
        /* What a view repeats is computed once; but a view itself costs less than a copy. */
        if ((n->op == OP_view || n->op == OP_gather) && eval_state(ev, n->in[0])->n->op != OP_view) {
            NodeState *x = eval_state(ev, n->in[0]);
            if (x->count < f->count && x->count <= 4096 + 4 * x->base && x->n->op != OP_iota)
                x->stored = true;
        }
        bool small = f->count <= 4096 + 4 * f->base;
        if (!eval_is_map(n) || f->depth >= EVAL_DEPTH || f->cone >= EVAL_CONE)
            f->stored = true;
        else if (f->uses > 1 && small && n->op != OP_iota && n->op != OP_view)
            f->stored = true;
        if (f->stored)
            f->base = f->count;
    }
    for (int i = ev->nst - 1; i >= 0; i--) {            /* part is a name of its call's result */
        NodeState *f = &ev->st[i];
        int when = f->stored && f->n->op != OP_part ? i : f->last;
        for (int k = 0; k < f->n->nin; k++) {
            NodeState *x = eval_state(ev, f->n->in[k]);
            x->last = when > x->last ? when : x->last;
        }
    }
    for (int i = 0; i < ev->nst; i++) {
        NodeState *f = &ev->st[i];
        if (f->stored && f->last >= 0)
            f->next_dead = ev->st[f->last].first_dead, ev->st[f->last].first_dead = i;
    }
}

/* ---- the whole ----------------------------------------------------------------------------------------- */
static void input_check(Eval *ev, const NodeState *f)
{
    const Tensor *t = f->val;
    bool ok = t->dt == f->n->dt && t->rank == f->n->rank;
    for (int k = 0; ok && k < t->rank; k++)
        ok = t->dims[k] == f->dims[k];
    const char *name = ev->g->input.at[f->n->index].name;
    if (!ok)
        fail(ev->cx, E_INVALID, "input '%s' is %s%s, and %s%s is wanted", name, dtype_info[t->dt].name,
             shape_str(ev->mem, t->rank, t->dims), dtype_info[f->n->dt].name,
             shape_str(ev->mem, f->n->rank, f->dims));
    if (!t->data && f->count)
        fail(ev->cx, E_INVALID, "input '%s' has no data", name);
}

static void tensor_copy(Arena *a, Ctx *cx, Tensor *to, const Tensor *from)
{
    *to = *tensor_new(a, cx, from->dt, from->rank, from->dims);
    if (from->data && tensor_dense(from))
        memcpy(to->data, from->data, tensor_bytes(from));
}

static void eval_store(Eval *ev, NodeState *f)
{
    Node *n = f->n;
    Tensor *t = f->val = NEW(ev->mem, Tensor);
    tensor_init(ev->cx, t, n->dt, n->rank, f->dims);
    if (f->result) {
        t->data = arena_alloc(ev->res, tensor_bytes(t));
    } else {
        t->data = f->block = spare_take(ev, tensor_bytes(t) + 1, &f->room);
        if (!t->data)
            fail(ev->cx, E_NOMEM, "no memory for a tensor of %lld elements", (long long)f->count);
    }
    switch (n->op) {
    case OP_dims:
        for (int64_t k = 0; k < f->count; k++)
            ((int64_t *)t->data)[k] = dim_eval(n->size[k], ev->syms, NULL);
        break;
    case OP_fold:
        if (!ev->ready || !(ready_contract(ev, n, t) || ready_taps(ev, n, t)))
            eval_fold(ev, n, t);
        break;
    case OP_scan: eval_scan(ev, n, t); break;
    case OP_scatter: eval_scatter(ev, n, t); break;
    case OP_join: eval_join(ev, n, t); break;
    case OP_input: case OP_const: case OP_call: case OP_part: case OP_COUNT:
        ASSERT(!"a computed node");
        break;
#define EW(name, arity, dom, fv, iv, c) case OP_##name:
#define CMP(name, arity, dom, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    case OP_where: case OP_cast: case OP_bitcast: case OP_iota: case OP_random: case OP_view: case OP_gather:
        eval_map(ev, n, true, t, 0);
        break;
    }
}

static void eval_all(Ctx *cx, void *arg)
{
    Eval *ev = arg;
    eval_collect(ev);
    eval_plan(ev);
    for (int i = 0; i < ev->nst; i++) {
        NodeState *f = &ev->st[i];
        if (!f->stored)
            continue;
        ctx_poll(cx);
        Tensor named;
        switch ((int)f->n->op) {
        case OP_input:
            named = ev->inputs[f->n->index];
            f->val = arena_copy(ev->mem, &named, sizeof named);
            input_check(ev, f);
            break;
        case OP_const: f->val = arena_copy(ev->mem, f->n->tensor, sizeof(Tensor)); break;
        case OP_call: eval_call(ev, f); break;
        case OP_part: eval_part(ev, f); break;
        default: eval_store(ev, f);
        }
        for (int k = f->first_dead; k >= 0; k = ev->st[k].next_dead) {
            spare_give(ev, ev->st[k].block, ev->st[k].room);
            ev->st[k].block = NULL;
        }
    }
    for (int k = 0; k < ev->nout; k++) {
        NodeState *f = eval_state(ev, ev->outs[k]);
        bool named = f->n->op == OP_input || f->n->op == OP_const || f->n->op == OP_part;
        ASSERT(f->n->op != OP_call);
        if (!named)
            ev->result[k] = *f->val;
        else
            tensor_copy(ev->res, cx, &ev->result[k], f->val);
        if (named && f->count && !tensor_dense(f->val))
            eval_map(ev, f->n, false, &ev->result[k], 0);
    }
}

static void eval_guarded(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const int64_t *syms, int n,
                         Node *const *outs, Tensor *result, bool ready)
{
    Eval ev = { .cx = cx,
                .mem = arena_new(cx),
                .res = a,
                .g = g,
                .inputs = inputs,
                .syms = syms,
                .nout = n,
                .outs = outs,
                .result = result,
                .ready = ready };
    Status s = guard_call(cx, eval_all, &ev);
    for (int k = 0; k < ev.nst; k++)
        block_free(ev.st[k].block), block_free(ev.st[k].stage);
    spares_free(&ev);
    arena_free(ev.mem);
    if (s != E_OK) {
        char text[sizeof cx->text];
        memcpy(text, cx->text, sizeof text);
        cx->notes = NULL;                               /* the message names them already */
        fail(cx, s, "%s", text);
    }
}

void eval_nodes(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const int64_t *syms, int n,
                Node *const *outs, Tensor *result)
{
    eval_guarded(cx, a, g, inputs, syms, n, outs, result, false);
}

void eval_ready(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const int64_t *syms, int n,
                Node *const *outs, Tensor *result)
{
    eval_guarded(cx, a, g, inputs, syms, n, outs, result, true);
}
