/* The reference interpreter: the definition of right.
 *
 * Nodes that must exist as a whole (folds, scans, scatters, joins, calls, results, and what eval_plan picks)
 * are stored in id order. The map nodes between them are evaluated on demand: for each stored node the cone
 * of map nodes above it is compiled into a flat program (cone.c), which then runs for LANES index tuples at once
 * (evalblock.c; neighbours along one axis of the loop nest), so that the cost of a step is shared by many elements.
 *
 * Values are Scalars rounded to the node's dtype after every operation. Intermediate tensors are blocks
 * freed after their last use. All of it runs under a guard, so a failure frees blocks and scratch arena
 * before it is raised again. */
#include "ir/eval.h"
#include <stdio.h>
#include <string.h>

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
    ErrSum *part = err_sums(ev, n) ? err_start(ev, n, NULL) : NULL;
    uint32_t outer = nest_without_lane(ev, kept), red = nest_without_lane(ev, n->axes & all);
    do {
        for (int64_t l = 0; l < (serial ? 1 : extent); l += LANES) {
            int m = serial ? 1 : chunk_size(extent - l);
            for (int j = 0; j < m; j++)
                acc[j] = start, at[j] = -1;
            int64_t seen = 0;
            if (part)
                err_start(ev, n, part);
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
                        else if (part)
                            err_fold(ev, n, serial, part, seen, slot_scalars(ev, x, slot), w);
                        else
                            fold_lanes(n->kind, x->dt, serial, acc, slot_scalars(ev, x, slot), w, NULL);
                        seen += serial ? w : 1;
                    }
                    if (serial)
                        ev->idx[ev->lane] = 0;
                } while (nest_next(ev, red));
            if (ev->lane >= 0)
                ev->idx[ev->lane] = serial ? 0 : l;
            if (part)
                err_end(ev, n, m, part, acc);
            fold_store(n, out, nest_offset(ev, stride), lane_stride, m, acc, at);
        }
        if (ev->lane >= 0)
            ev->idx[ev->lane] = 0;
    } while (nest_next(ev, outer));
}

/* As fold_lanes() does it for a sum: what has come so far, times the factor, plus x. */
static void recurrence_lanes(bool serial, Scalar *acc, const Scalar *x, const Scalar *factor, int m, Scalar *run)
{
    for (int j = 0; j < m; j++) {
        Scalar *a = &acc[serial ? 0 : j];
        a->f = a->f * factor[j].f + x[j].f;
        run[j] = *a;
    }
}

static void eval_scan(Eval *ev, const Node *n, const Tensor *out)
{
    if (!eval_state(ev, n)->count)
        return;
    int slot = cone_begin(ev, n->in[0], false), factor = is_recurrence(n) ? cone_beside(ev, n->in[1]) : 0;
    nest_lane(ev, ~0u);
    bool serial = ev->lane == n->axis;
    int64_t extent = nest_extent(ev), step = out->strides[ev->lane];
    Scalar acc[LANES], run[LANES], start = fold_start(n->kind, n->dt);
    ErrSum *sum = err_sums(ev, n) ? err_start(ev, n, NULL) : NULL;
    uint32_t outer = nest_without_lane(ev, ~axis_bit(n->axis)),
             along = nest_without_lane(ev, axis_bit(n->axis));
    do {
        acc[0] = start;
        if (sum)
            err_start(ev, n, sum);
        for (int64_t l = 0; l < extent; l += LANES) {
            int m = chunk_size(extent - l);
            ev->idx[ev->lane] = l;
            if (!serial)
                for (int j = 0; j < m; j++)
                    acc[j] = start;
            if (sum && !serial)
                err_start(ev, n, sum);
            do {
                eval_block(ev, m);
                if (sum)
                    err_scan(ev, n, serial, sum, slot_scalars(ev, n->in[0], slot), is_recurrence(n) ? slot_scalars(ev, n->in[1], factor) : NULL, m, run);
                else if (is_recurrence(n))
                    recurrence_lanes(serial, acc, slot_scalars(ev, n->in[0], slot), slot_scalars(ev, n->in[1], factor), m, run);
                else
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
/* A value that is given needs no operands. */
static int operands_of(const NodeState *f) { return f->given ? 0 : f->n->nin; }

static const Tensor *value_given(const Eval *ev, const Node *n) { return ev->given ? ev->given[n->id] : NULL; }

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
        for (int k = 0; k < n->nin && !value_given(ev, n); k++)
            if (!ev->pos[n->in[k]->id])
                vec_push(ev->mem, &todo, n->in[k]);
    }
    ev->st = NEWS(ev->mem, NodeState, count + 1);
    for (int id = lo; id <= hi; id++) {
        if (!ev->pos[id])
            continue;
        NodeState *f = &ev->st[ev->nst++];
        f->n = ev->g->node.at[id];
        f->given = value_given(ev, f->n);
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
        for (int k = 0; k < operands_of(f); k++) {
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
        f->base = operands_of(f) ? 0 : f->count;
        for (int k = 0; k < operands_of(f); k++) {
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
        if (!f->given && (n->op == OP_view || n->op == OP_gather) && eval_state(ev, n->in[0])->n->op != OP_view) {
            NodeState *x = eval_state(ev, n->in[0]);
            if (x->count < f->count && x->count <= 4096 + 4 * x->base && x->n->op != OP_iota)
                x->stored = true;
        }
        bool small = f->count <= 4096 + 4 * f->base;
        if (f->given || !eval_is_map(n) || f->depth >= EVAL_DEPTH || f->cone >= EVAL_CONE)
            f->stored = true;
        else if (f->uses > 1 && small && n->op != OP_iota && n->op != OP_view)
            f->stored = true;
        if (f->stored)
            f->base = f->count;
    }
    for (int i = ev->nst - 1; i >= 0; i--) {            /* part is a name of its call's result */
        NodeState *f = &ev->st[i];
        int when = f->stored && f->n->op != OP_part ? i : f->last;
        for (int k = 0; k < operands_of(f); k++) {
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
#define EW(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define CMP(name, arity, dom, cost, fv, iv, c) case OP_##name:
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
        if (f->given)
            f->val = arena_copy(ev->mem, f->given, sizeof(Tensor));
        else switch ((int)f->n->op) {
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
        bool named = f->given || f->n->op == OP_input || f->n->op == OP_const || f->n->op == OP_part;
        ASSERT(f->n->op != OP_call);
        if (!named)
            ev->result[k] = *f->val;
        else
            tensor_copy(ev->res, cx, &ev->result[k], f->val);
        if (named && f->count && !tensor_dense(f->val))
            eval_map(ev, f->n, false, &ev->result[k], 0);
    }
}

static void eval_guarded(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const Tensor *const *given,
                         const int64_t *syms, int n, Node *const *outs, Tensor *result, unsigned trial, bool ready)
{
    Eval ev = { .cx = cx,
                .mem = arena_new(cx),
                .res = a,
                .g = g,
                .inputs = inputs,
                .given = given,
                .syms = syms,
                .nout = n,
                .outs = outs,
                .result = result,
                .trial = trial,
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
    eval_guarded(cx, a, g, inputs, NULL, syms, n, outs, result, 0, false);
}

void eval_given(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const Tensor *const *given, const int64_t *syms,
                int n, Node *const *outs, Tensor *result, unsigned trial)
{
    eval_guarded(cx, a, g, inputs, given, syms, n, outs, result, trial, false);
}

void eval_ready(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const int64_t *syms, int n,
                Node *const *outs, Tensor *result)
{
    eval_guarded(cx, a, g, inputs, NULL, syms, n, outs, result, 0, true);
}
