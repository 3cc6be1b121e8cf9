/* Lowering: a subgraph becomes loops, values and stores.
 *
 * Demand-driven. Each store asks for the value of its node at an index: expressions over loop variables. An elementwise node asks for its operands at
 * the same index, a view substitutes its index map, a stored node becomes a load. So all index maps of a chain of views fold into one address.
 * The memo is keyed by (node, index, guards); an entry is good while its block is open (block.c: where values stand). What an earlier loop over the same
 * row computed is computed again, or kept in a private row when that costs more.
 *
 * A fold opens its loops in the block that knows its index: a contraction's thus lie inside the loops over its result. Folds over the rows of the
 * space that need the same earlier folds share one loop. */
#include "kir/kir.h"

#include <stdio.h>
#include <string.h>

/* Floats of one byte are moved and cast, never computed with. */
static void check_dtype(Lowering *l, DType t)
{
    DTypeInfo i = dtype_info[t];
    if (i.class == 'F' && i.bytes == 1) fail(l->cx, E_UNSUPPORTED, "kernels have no spelling for %s", i.name);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------- */
static int buf_of(Lowering *l, const Node *n, bool write, const uint8_t *order)
{
    for (int i = 0; i < l->k->buf.n; i++)
        if (l->k->buf.at[i].node == n && !l->k->buf.at[i].scratch && l->k->buf.at[i].packed == (order != NULL) && (!order || !memcmp(l->k->buf.at[i].order, order, (size_t)n->rank))) {
            if (write) l->k->buf.at[i].write = true; else l->k->buf.at[i].read = true;
            return i;
        }
    KBuf b = { .node = n, .dt = n->dt, .read = !write, .write = write, .packed = order != NULL };
    if (order) memcpy(b.order, order, (size_t)n->rank);
    vec_push(l->arena, &l->k->buf, b);
    return l->k->buf.n - 1;
}

static Dim *linear(Graph *g, int rank, Dim *const *dims, Dim *const *idx)
{
    Dim *off = dim_const(g, 0), *stride = dim_const(g, 1);
    for (int i = rank - 1; i >= 0; i--) {
        if (!dim_is(dims[i], 1)) off = dim_add(g, off, dim_mul(g, idx[i], stride));
        stride = dim_mul(g, stride, dims[i]);
    }
    return off;
}

/* The guards in force, as predicates of an address: a load under a failed one yields `fill` and touches no memory. */
static KAddr guarded(Lowering *l, Dim *off, int npred, const Pred *pred)
{
    int n = npred;
    for (Guarding *q = l->guard; q; q = q->up) n++;
    KAddr a = { .off = off };
    if (!n) return a;
    a.pred = NEWS(l->arena, Pred, n);
    for (int i = 0; i < npred; i++) a.pred[a.npred++] = pred[i];
    for (Guarding *q = l->guard; q; q = q->up) {
        bool have = false;
        for (int i = 0; i < a.npred; i++) have |= a.pred[i].e == q->p.e && a.pred[i].n == q->p.n;
        if (!have) a.pred[a.npred++] = q->p;
    }
    return a;
}

/* How deep the loop lies inside which an index changes; 0: outside of the contraction's. */
static int loop_depth(const Lowering *l, const Dim *d)
{
    for (const KBlock *b = l->cur; b && b->depth > l->point->depth; b = b->up) if (dim_uses(d, b->loop->var->var)) return b->depth;
    return 0;
}

/* What a contraction reads with lanes apart is packed before: the axis that the lanes run over comes last, before it the others in the order of the loops, so
 * that what is read next lies next. False: it is read as it lies. */
static bool packed_order(const Lowering *l, const Node *n, Dim *const *idx, uint8_t *order)
{
    bool once = l->sub->nnode && l->sub->constant[l->sub->node[0]->id];      /* such a kernel's constants may not be computed yet */
    if ((once && l->sub->constant[n->id]) || l->sub->kind != SUB_dot || !l->k->vec_var || l->cur->depth <= l->point->depth) return false;
    int axis = -1, last = -1;
    for (int k = 0; k < n->rank; k++) {
        if (!dim_is(n->dims[k], 1)) last = k;
        if (!dim_uses(idx[k], l->k->vec_var->var)) continue;
        if (axis >= 0) return false;
        axis = k;
    }
    Dim *c, *rest;
    if (axis < 0 || axis == last || !dim_linear(l->g, idx[axis], l->k->vec_var->var, &c, &rest) || !dim_is(c, 1)) return false;
    int m = 0;
    for (int k = 0; k < n->rank; k++) {
        int at = m;
        if (k == axis) continue;
        for (; at > 0 && loop_depth(l, idx[order[at - 1]]) > loop_depth(l, idx[k]); at--) order[at] = order[at - 1];
        order[at] = (uint8_t)k;
        m++;
    }
    order[m] = (uint8_t)axis;
    return true;
}

static KVal *val_load(Lowering *l, const Node *n, Dim *const *idx, int npred, const Pred *pred, Scalar fill)
{
    uint8_t order[MAX_RANK] = { 0 };
    bool packed = packed_order(l, n, idx, order);
    Dim *dims[MAX_RANK] = { NULL }, *at[MAX_RANK] = { NULL };
    for (int k = 0; k < n->rank; k++) { dims[k] = n->dims[packed ? order[k] : k]; at[k] = idx[packed ? order[k] : k]; }
    KVal p = { .kind = KV_load, .dt = n->dt, .buf = buf_of(l, n, false, packed ? order : NULL), .imm = fill, .node = n };
    p.at = guarded(l, linear(l->g, n->rank, dims, at), npred, pred);
    KVal *own = l->streaming ? stream_packed(l, &p) : NULL;
    return own ? own : val_new(l, &p);
}

/* Is a constant written into the text? Plain numbers only: kernels that differ in a scale are then one kernel that reads it. */
static bool is_plain(const Node *n)
{
    Scalar s = scalar_load(n->dt, n->tensor->data);
    if (!dtype_is_float(n->dt)) return n->dt == DT_bool || (s.i >= -16 && s.i <= 255) || s.i == scalar_min(n->dt).i || s.i == scalar_max(n->dt).i;
    double twice = s.f * 2, size = twice < 0 ? -twice : twice;
    if (s.f != s.f || size > 3e38 || (size <= 32 && twice == (double)(int)twice)) return true;
    return s.f == 127 || s.f == -128 || s.f == 255 || s.f == 32767 || s.f == -32768 || s.f == 65535;        /* where narrow integers end */
}

static bool in_memory(const Lowering *l, const Node *n)
{
    int home = l->sub->home[n->id];
    return home == HOME_memory || (l->sub->stored[n->id] && home != l->sub->id);
}

/* ---- loops ------------------------------------------------------------------------------------------------------------------------- */
KLoop *loop_new(Lowering *l, Dim *var, bool vector)
{
    KLoop *o = NEW(l->arena, KLoop);
    o->var = var; o->extent = var->a; o->vector = vector; o->nv = 1;
    block_new(l, l->cur, o);
    l->cur = o->body;
    return o;
}

void loop_close(Lowering *l, KLoop *o)
{
    l->cur = o->body->up;
    block_add(l, l->cur, (KStmt){ .kind = KS_loop, .loop = o });
}

/* The parts of the axis that is cut, as a variable. */
static Dim *part_var(const Lowering *l)
{
    return dim_idx(l->g, PART_VAR, dim_ceildiv(l->g, l->sub->space[l->sub->part], dim_const(l->g, l->sub->step)));
}

/* Opens loops over the row axes of the space; returns how many, in o. */
static int rows_open(Lowering *l, KLoop **o)
{
    int n = 0, last = -1;
    for (int i = 0; i < l->sub->rank; i++) if ((l->sub->rows >> i & 1) && !dim_is(l->sub->space[i], 1)) last = i;
    for (int i = 0; i < l->sub->rank; i++)
        if ((l->sub->rows >> i & 1) && !dim_is(l->sub->space[i], 1))
        {
            o[n++] = loop_new(l, dim_idx(l->g, SPACE_VAR + i, l->sub->space[i]), l->rows_vec && i == last);
            if (!l->sub->step || i != l->sub->part) continue;
            KLoop *cut = o[n - 1];
            cut->from = dim_mulc(l->g, part_var(l), l->sub->step);
            cut->extent = dim_min(l->g, dim_addc(l->g, cut->from, l->sub->step), l->sub->space[i]);
            cut->times = dim_const(l->g, l->sub->step);
        }
    l->row_loop = n ? o[n - 1] : NULL;
    return n;
}

static void loops_close(Lowering *l, KLoop **o, int n)
{
    while (n--) loop_close(l, o[n]);
}

KFold *fold_new(Lowering *l, const Node *f)
{
    check_dtype(l, f->in[0]->dt);
    KFold *a = NEW(l->arena, KFold);
    a->kind = (FoldKind)f->kind; a->dt = f->in[0]->dt; a->last = f->last; a->node = f; a->id = l->k->nfold++; a->loose = max_is_loose(l, f);
    block_add(l, l->cur, (KStmt){ .kind = KS_fold, .fold = a });
    return a;
}

void fold_update(Lowering *l, KFold *a, KVal *v, Dim *const *in)
{
    a->value = v;
    if (a->kind == FOLD_sum && (a->dt == DT_f32 || a->dt == DT_f64) && v->kind == KV_ew && v->op == OP_mul && v->block == l->cur && v->in[0]->dt == a->dt) {
        a->mul_a = v->in[0]; a->mul_b = v->in[1];
    }
    if (a->kind == FOLD_argmax || a->kind == FOLD_argmin) {
        int axis = 0;
        const Node *f = fold_whole(a->node);
        while (!(f->axes >> axis & 1)) axis++;
        ASSERT(f->axes == 1u << axis);
        a->index = val_index(l, a->node->whole ? dim_sub(l->g, in[axis], dim_mulc(l->g, part_var(l), a->node->step)) : in[axis]);
    }
    block_add(l, l->cur, (KStmt){ .kind = KS_update, .fold = a });
}

KVal *fold_result(Lowering *l, KFold *a)
{
    KVal p = { .kind = KV_fold, .dt = a->node->dt, .fold = a, .node = a->node };
    KVal *v = arena_copy(l->arena, &p, sizeof p);
    v->id = l->k->nval++;
    v->block = l->cur;
    vec_push(l->arena, &l->vals, v);
    block_add(l, l->cur, (KStmt){ .kind = KS_val, .val = v });
    return a->result = v;
}

/* ---- memo ------------------------------------------------------------------------------------------------------------------------ */
static unsigned memo_hash(const Node *n, Dim *const *idx, const Guarding *q)
{
    uint64_t h = (uint64_t)n->id * 0x9e3779b97f4a7c15ull + (q ? (uint64_t)q->id : 0);
    for (int i = 0; i < n->rank; i++) h = (h ^ (uint64_t)idx[i]->id) * 0x100000001b3ull;
    return (unsigned)(h >> 20) & 1023;
}

static MemoEntry *memo_find(Lowering *l, const Node *n, Dim *const *idx)
{
    for (MemoEntry *e = l->memo[memo_hash(n, idx, l->guard)]; e; e = e->next) {
        if (e->node != n || e->guard != l->guard) continue;
        bool same = true;
        for (int i = 0; i < n->rank && same; i++) same = e->idx[i] == idx[i];
        if (same) return e;
    }
    return NULL;
}

void memo_put(Lowering *l, const Node *n, Dim *const *idx, KVal *v)
{
    MemoEntry *e = memo_find(l, n, idx);
    if (e) { e->val = v; return; }
    unsigned h = memo_hash(n, idx, l->guard);
    e = NEW(l->arena, MemoEntry);
    e->node = n; e->guard = l->guard; e->val = v; e->next = l->memo[h];
    e->idx = NEWS(l->arena, Dim *, n->rank + 1);
    for (int i = 0; i < n->rank; i++) e->idx[i] = idx[i];
    l->memo[h] = e;
}

void memo_clear(Lowering *l)
{
    for (size_t i = 0; i < COUNT_OF(l->memo); i++) l->memo[i] = NULL;
}

/* ---- stores ------------------------------------------------------------------------------------------------------------------------ */
void store_add(Lowering *l, const SubStore *s, KVal *v, Combine how)
{
    KStmt st = { .kind = KS_store, .val = v, .buf = buf_of(l, s->into, true, NULL), .how = how };
    st.at.off = linear(l->g, s->into->rank, s->into->dims, s->coord);
    values_in_addr(l, &st.at, &st.opnd, &st.nopnd);
    KBlock *b = block_for_addr(l, v->block, &st.at, st.nopnd, st.opnd);
    if (b->depth < l->k->body->depth) b = l->k->body;
    if (l->sub->kind == SUB_scatter) b = l->cur;     /* each update by itself, also where neither it nor its place changes */
    block_add(l, b, st);
    if (s->into == s->node && b->loop && l->row_loop && b == l->row_loop->body) {
        StoredRow r = { v, st.buf, st.at.off };
        vec_push(l->arena, &l->rows, r);
    }
}

static bool same_index(const Node *n, Dim *const *a, Dim *const *b)
{
    for (int i = 0; i < n->rank; i++) if (a[i] != b[i]) return false;
    return true;
}

/* Emits the stores that wait for this value at this index. */
static void stores_for(Lowering *l, const Node *n, Dim *const *idx, KVal *v)
{
    if (l->sub->kind == SUB_scatter || l->guard) return;
    for (int i = 0; i < l->sub->nstore; i++) {
        const SubStore *s = &l->sub->store[i];
        if (l->done[i] || s->node != n || !same_index(n, s->at, idx)) continue;
        l->done[i] = 1;
        store_add(l, s, v, COMBINE_set);
    }
}

/* A value of an earlier loop over the same row: from the result's own memory, or from a private row. */
static KVal *row_again(Lowering *l, const Node *n, KVal *v)
{
    for (int i = 0; i < l->rows.n; i++)
        if (l->rows.at[i].val == v || (l->streaming && v->kind == KV_load && l->rows.at[i].buf == v->buf)) {
            l->k->buf.at[l->rows.at[i].buf].read = true;
            KVal p = { .kind = KV_load, .dt = v->dt, .buf = l->rows.at[i].buf, .at.off = l->rows.at[i].off, .node = n, .block = l->streaming ? l->cur : NULL };
            return val_new(l, &p);
        }
    if (l->streaming) return stream_again(l, n, v);
    if (l->k->vec_var) return NULL;     /* a private row holds one value for each point of the row */
    for (int i = 0; i < l->sub->nstore && !kernel_streams(l->g, l->sub); i++) {      /* a result that is written later anyway lends its memory: its lines are fetched while there is work to do */
        const SubStore *o = &l->sub->store[i];
        if (l->done[i] || l->lent[i] || o->into->dt != v->dt || v->dt != DT_f32) continue;
        Dim *at = linear(l->g, o->into->rank, o->into->dims, o->coord);
        bool whole = true;
        for (int k = 0; k < l->sub->rank; k++) whole &= dim_is(l->sub->space[k], 1) || dim_uses(at, SPACE_VAR + k);
        if (!whole) continue;
        l->lent[i] = 1;
        int own = buf_of(l, o->into, true, NULL);
        l->k->buf.at[own].read = true;
        block_add(l, v->block, (KStmt){ .kind = KS_store, .val = v, .buf = own, .at.off = at });
        StoredRow lent = { v, own, at };
        vec_push(l->arena, &l->rows, lent);
        KVal q = { .kind = KV_load, .dt = v->dt, .buf = own, .at.off = at, .node = n };
        return val_new(l, &q);
    }
    Dim *off = dim_const(l->g, 0), *stride = dim_const(l->g, 1);
    for (int i = l->sub->rank - 1; i >= 0; i--)
        if (l->sub->rows >> i & 1) {
            bool cut = l->sub->step && i == l->sub->part;
            Dim *at = dim_idx(l->g, SPACE_VAR + i, l->sub->space[i]);
            if (cut) at = dim_sub(l->g, at, dim_mulc(l->g, part_var(l), l->sub->step));
            off = dim_add(l->g, off, dim_mul(l->g, at, stride));
            stride = dim_mul(l->g, stride, cut ? dim_const(l->g, l->sub->step) : l->sub->space[i]);
        }
    KBuf b = { .node = n, .dt = dtype_info[v->dt].compute == DT_i32 ? DT_i32 : dtype_info[v->dt].compute, .read = true, .write = true, .scratch = true, .size = stride };
    if (v->dt == DT_bool) b.dt = DT_bool;
    vec_push(l->arena, &l->k->buf, b);
    int buf = l->k->buf.n - 1;
    block_add(l, v->block, (KStmt){ .kind = KS_store, .val = v, .buf = buf, .at.off = off });
    StoredRow r = { v, buf, off };
    vec_push(l->arena, &l->rows, r);
    KVal p = { .kind = KV_load, .dt = v->dt, .buf = buf, .at.off = off, .node = n };
    return val_new(l, &p);
}

/* ---- folds ------------------------------------------------------------------------------------------------------------------------- */
/* How many folds over the rows lie on the longest way below n inside this kernel; memoised by node id in `stage` (0: not known). */
static int stage_of(Lowering *l, const Node *n, MapStr *seen)
{
    char key[16];
    snprintf(key, sizeof key, "%d", n->id);
    void **at = mapstr_at(seen, key);
    if (*at) return (int)(intptr_t)*at - 1;
    int s = 0;
    if (!in_memory(l, n)) {
        for (int i = 0; i < n->nin; i++) { int t = stage_of(l, n->in[i], seen); if (t > s) s = t; }
        if (n->op == OP_fold && l->sub->iter[n->id]) s++;
    }
    *mapstr_at(seen, key) = (void *)(intptr_t)(s + 1);
    return s;
}

static KVal *demand_row_fold(Lowering *l, const Node *f)
{
    KBlock *was = l->cur;
    KLoop *was_row = l->row_loop;
    l->cur = l->point;
    KFold *fold[64]; int n = 0;
    MapStr *seen = mapstr_new(l->arena);
    int stage = stage_of(l, f, seen);
    for (int i = 0; i < l->sub->nnode && n < (int)COUNT_OF(fold); i++) {    /* and its siblings: they need nothing that only this loop gives */
        const Node *s = l->sub->node[i];
        if (s->op != OP_fold || !l->sub->iter[s->id] || stage_of(l, s, seen) != stage) continue;
        Dim *idx[MAX_RANK];
        fold_index(l->g, s, l->sub->iter[s->id], idx);
        MemoEntry *e = memo_find(l, s, idx);
        if (e && block_open(l, e->val->block)) continue;
        fold[n++] = fold_new(l, s);
    }
    KLoop *loop[MAX_RANK];
    int nl = rows_open(l, loop);
    for (int i = 0; i < n; i++) {
        KVal *v = demand(l, fold_whole(fold[i]->node)->in[0], l->sub->iter[fold[i]->node->id]);
        fold[i]->loop = nl ? loop[0] : NULL;
        fold_update(l, fold[i], v, l->sub->iter[fold[i]->node->id]);
    }
    loops_close(l, loop, nl);
    l->row_loop = was_row;
    KVal *result = NULL;
    for (int i = 0; i < n; i++) {
        const Node *s = fold[i]->node;
        KVal *v = fold_result(l, fold[i]);
        Dim *idx[MAX_RANK];
        fold_index(l->g, s, l->sub->iter[s->id], idx);
        memo_put(l, s, idx, v);
        stores_for(l, s, idx, v);
        if (s == f) result = v;
    }
    l->cur = was;
    return result;
}

static KVal *demand_inner_fold(Lowering *l, const Node *f, Dim *const *idx)
{
    KBlock *was = l->cur, *b = l->point;
    for (int i = 0; i < f->rank; i++) b = block_for(l, b, idx[i]);
    for (int i = 0; i < f->rank; i++) {
        KVal **list = NULL; int n = 0;
        values_in(l, idx[i], &list, &n);
        for (int j = 0; j < n; j++) if (list[j]->block->depth > b->depth) b = list[j]->block;
    }
    for (Guarding *q = l->guard; q; q = q->up) { b = block_for(l, b, q->p.e); b = block_for(l, b, q->p.n); }
    l->cur = b;
    KFold *a = fold_new(l, f);
    const Node *x = f->in[0];
    Dim *in[MAX_RANK]; KLoop *loop[MAX_RANK]; int r = 0, nl = 0, last = -1;
    for (int k = 0; k < x->rank; k++) if ((f->axes >> k & 1) && !dim_is(x->dims[k], 1)) last = k;
    for (int k = 0; k < x->rank; k++) {
        if (!(f->axes >> k & 1)) { in[k] = idx[r++]; continue; }
        in[k] = dim_idx(l->g, LOOP_VAR + l->nloop++, x->dims[k]);
        if (!dim_is_const(in[k])) loop[nl++] = loop_new(l, in[k], l->vec_k && k == last);
    }
    a->loop = nl ? loop[0] : NULL;
    KVal *v = demand(l, x, in);
    fold_update(l, a, v, in);
    loops_close(l, loop, nl);
    v = fold_result(l, a);
    l->cur = was;
    return v;
}

/* ---- demand ------------------------------------------------------------------------------------------------------------------------ */
static KVal *demand_view(Lowering *l, const Node *n, Dim *const *idx)
{
    const Node *src = n->in[0];
    Dim *to[MAX_RANK];
    for (int k = 0; k < n->view.nidx; k++) to[k] = dim_subst(l->g, n->view.idx[k], n->rank, idx);
    if (!n->view.npred) return demand(l, src, to);
    Pred *p = NEWS(l->arena, Pred, n->view.npred);
    for (int k = 0; k < n->view.npred; k++) {
        p[k].e = dim_subst(l->g, n->view.pred[k].e, n->rank, idx);
        p[k].n = dim_subst(l->g, n->view.pred[k].n, n->rank, idx);
    }
    if (in_memory(l, src) && !(src->op == OP_const && src->rank == 0)) return val_load(l, src, to, n->view.npred, p, n->view.fill);
    Guarding *was = l->guard;
    for (int k = 0; k < n->view.npred; k++) {
        Guarding *q = NEW(l->arena, Guarding);
        q->up = l->guard; q->p = p[k]; q->id = ++l->nguard;
        l->guard = q;
    }
    KVal *v = demand(l, src, to);
    l->guard = was;
    KVal valid = { .kind = KV_valid, .dt = DT_bool, .at = { .npred = n->view.npred, .pred = p } };
    KVal *in[3] = { val_new(l, &valid), v, val_const(l, n->dt, n->view.fill) };
    return val_ew(l, OP_where, n->dt, 3, in);
}

/* The operands' numbers at idx, checked against the axes that use them, as variables of further addresses. */
static void demand_indices(Lowering *l, const Node *n, int first, Dim *const *idx, Dim **var)
{
    for (int j = first; j < n->nin; j++) {
        KVal *v = demand(l, n->in[j], idx);
        Dim *limit = NULL;              /* the axis indexed by the bare operand */
        for (int k = 0; k < n->view.nidx; k++) {
            const Dim *e = n->view.idx[k];
            if (e->kind == DIM_idx && e->var == DIM_OPERAND + j - first) limit = n->in[0]->dims[k];
        }
        if (limit) {
            KVal c = { .kind = KV_check, .dt = DT_i64, .nin = 1, .in[0] = v, .dim = limit, .node = n };
            if (!dim_prove_lt(l->g, dim_const(l->g, 0), limit)) vec_push(l->arena, &l->k->limit, limit);
            c.at = guarded(l, NULL, 0, NULL);
            v = val_new(l, &c);
        }
        var[j - first] = dim_idx(l->g, VALUE_VAR + v->id, limit ? limit : dim_const(l->g, INT64_MAX / 4));
    }
}

static void subst_indexed(Lowering *l, const Node *n, int first, Dim *const *idx, int rank, Dim **to)
{
    Dim *var[MAX_RANK], *map[DIM_OPERAND + MAX_RANK] = { 0 };
    demand_indices(l, n, first, idx, var);
    for (int k = 0; k < rank; k++) map[k] = idx[k];
    for (int j = first; j < n->nin; j++) map[DIM_OPERAND + j - first] = var[j - first];
    for (int k = 0; k < n->view.nidx; k++) to[k] = dim_subst(l->g, n->view.idx[k], DIM_OPERAND + n->nin - first, map);
}

/* Does a contraction of this kernel lie below n? */
static bool above_contraction(Lowering *l, const Node *n)
{
    if (l->sub->kind != SUB_dot || in_memory(l, n) || n->nin == 0) return false;
    char key[16];
    snprintf(key, sizeof key, "%d", n->id);
    void **at = mapstr_at(l->above, key);
    if (*at) return *at == (void *)2;
    bool yes = n->op == OP_fold;
    for (int i = 0; i < n->nin && !yes; i++) yes = above_contraction(l, n->in[i]);
    *mapstr_at(l->above, key) = yes ? (void *)2 : (void *)1;
    return yes;
}

static KVal *demand_new(Lowering *l, const Node *n, Dim *const *idx)
{
    KVal *in[3];
    switch (n->op) {
    case OP_const:
        if (n->rank == 0 && is_plain(n)) return val_const(l, n->dt, scalar_load(n->dt, n->tensor->data));
        return val_load(l, n, idx, 0, NULL, (Scalar){ 0 });
    case OP_dims:
        if (n->rank == 0) return val_index(l, n->size[0]);
        return val_load(l, n, idx, 0, NULL, (Scalar){ 0 });
    case OP_iota: return val_index(l, idx[n->axis]);
    case OP_random: {
        Dim *none[1] = { NULL };
        KVal r = { .kind = KV_random, .dt = DT_u64, .nin = 1, .in[0] = demand(l, n->in[0], none), .dim = linear(l->g, n->rank, n->dims, idx) };
        return val_new(l, &r);
    }
    case OP_view: return demand_view(l, n, idx);
    case OP_gather: {
        Dim *to[MAX_RANK];
        subst_indexed(l, n, 1, idx, n->rank, to);
        return demand(l, n->in[0], to);
    }
    case OP_fold:
        return l->sub->iter[n->id] && l->sub->home[n->id] == l->sub->id ? demand_row_fold(l, n) : demand_inner_fold(l, n, idx);
    case OP_cast: case OP_bitcast: {
        KVal c = { .kind = n->op == OP_cast ? KV_cast : KV_bitcast, .dt = n->dt, .nin = 1, .in[0] = demand(l, n->in[0], idx) };
        c.saturate = n->op == OP_cast && n->saturate;
        return val_new(l, &c);
    }
    case OP_scan: return demand_scan(l, n, idx);
    case OP_input: case OP_scatter: case OP_join: case OP_call: case OP_part: case OP_COUNT:
        ASSERT(!"a node that lies in memory"); break;
    default: break;
    }
    for (int first = 1; first >= 0; first--)         /* a contraction's loops come before what only its epilogue loads */
        for (int i = 0; i < n->nin; i++) {
            if (n->op != OP_where) check_dtype(l, n->in[i]->dt);
            if (above_contraction(l, n->in[i]) == first) in[i] = demand(l, n->in[i], idx);
        }
    return val_ew(l, n->op, n->dt, n->nin, in);
}

KVal *demand(Lowering *l, const Node *n, Dim *const *idx)
{
    ctx_poll(l->cx);
    if (in_memory(l, n) && !(n->rank == 0 && (n->op == OP_const || n->op == OP_dims))) {
        MemoEntry *m = memo_find(l, n, idx);
        if (m && block_open(l, m->val->block)) return m->val;
        KVal *v = val_load(l, n, idx, 0, NULL, (Scalar){ 0 });
        memo_put(l, n, idx, v);
        return v;
    }
    MemoEntry *e = memo_find(l, n, idx);
    if (e && block_open(l, e->val->block)) return e->val;
    KVal *v = NULL;
    if (e && n->op != OP_view && n->op != OP_gather && e->val->block->loop && l->row_loop && e->val->block->loop->var == l->row_loop->var && !l->guard && (l->streaming ? stream_keeps(l, e->val) : cost_again(e->val) > 4))
        v = row_again(l, n, e->val);
    if (!v) v = demand_new(l, n, idx);
    if (!v->node) v->node = n;
    memo_put(l, n, idx, v);
    stores_for(l, n, idx, v);
    return v;
}

/* All folds over the rows, in the order in which they need one another, before a loop that uses them is open. */
static void lower_row_folds(Lowering *l)
{
    MapStr *seen = mapstr_new(l->arena);
    for (int stage = 1, more = 1; more; stage++) {
        more = 0;
        for (int i = 0; i < l->sub->nnode; i++) {
            const Node *f = l->sub->node[i];
            if (f->op != OP_fold || !l->sub->iter[f->id]) continue;
            int s = stage_of(l, f, seen);
            more |= s > stage;
            if (s != stage) continue;
            Dim *idx[MAX_RANK];
            fold_index(l->g, f, l->sub->iter[f->id], idx);
            demand(l, f, idx);
        }
    }
}

/* ---- a contraction whose results are reduced ------------------------------------------------------------------------------------------- */
/* One pass over the places: the contraction and what follows it are computed for a place, stored if they are wanted elsewhere, and folded. What is computed of the folds comes after. */
static void lower_places(Lowering *l)
{
    const Subgraph *s = l->sub;
    KBlock *was = l->point;
    KFold *fold[PLACE_FOLDS]; int n = 0;
    KLoop *loop[MAX_RANK];
    for (int i = 0; i < s->nnode; i++) {
        const Node *f = s->node[i];
        if (f->op != OP_fold || !s->iter[f->id]) continue;
        ASSERT(n < PLACE_FOLDS);
        fold[n++] = fold_new(l, f);
    }
    int nl = rows_open(l, loop);
    ASSERT(nl > 0);
    l->row_loop = NULL;
    l->point = l->cur;
    for (int i = 0; i < nl; i++) loop[i]->places = true;
    for (int i = 0; i < n; i++) {
        Dim *const *in = s->iter[fold[i]->node->id];
        fold[i]->loop = loop[0];
        fold_update(l, fold[i], demand(l, fold_whole(fold[i]->node)->in[0], in), in);
    }
    for (int i = 0; i < s->nstore; i++) {
        bool inner = false;
        for (int k = 0; k < s->store[i].into->rank; k++) for (int a = 0; a < s->rank; a++) inner |= (s->rows >> a & 1) && dim_uses(s->store[i].coord[k], SPACE_VAR + a);
        if (!inner || l->done[i]) continue;
        KVal *v = demand(l, s->store[i].node, s->store[i].at);
        if (!l->done[i]) { l->done[i] = 1; store_add(l, &s->store[i], v, COMBINE_set); }
    }
    l->point = was;
    loops_close(l, loop, nl);
    for (int i = 0; i < n; i++) {
        const Node *f = fold[i]->node;
        Dim *idx[MAX_RANK];
        KVal *v = fold_result(l, fold[i]);
        fold_index(l->g, f, s->iter[f->id], idx);
        memo_put(l, f, idx, v);
        stores_for(l, f, idx, v);
    }
    for (int i = 0; i < s->nstore; i++) {
        if (l->done[i]) continue;
        KVal *v = demand(l, s->store[i].node, s->store[i].at);
        if (!l->done[i]) { l->done[i] = 1; store_add(l, &s->store[i], v, COMBINE_set); }
    }
}

/* ---- whole kernels -------------------------------------------------------------------------------------------------------------------- */
static void lower_points(Lowering *l)
{
    const Subgraph *s = l->sub;
    bool open = false;
    KLoop *loop[MAX_RANK]; int nl = 0;
    if (s->kind == SUB_rows) lower_row_folds(l);
    for (int pass = 0; pass < 2; pass++)             /* first what is one value for each row, then what needs the loop over it */
        for (int i = 0; i < s->nstore; i++) {
            bool inner = false;
            for (int k = 0; k < s->store[i].into->rank; k++)
                for (int a = 0; a < s->rank; a++)
                    inner |= (s->rows >> a & 1) && dim_uses(s->store[i].coord[k], SPACE_VAR + a);
            if (inner != (pass == 1) || l->done[i]) continue;
            if (inner && !open) {
                /* all that the row's values wait for comes before this loop */
                l->cur = l->point;
                nl = rows_open(l, loop);
                open = true;
            }
            KVal *v = demand(l, s->store[i].node, s->store[i].at);
            if (!l->done[i]) { l->done[i] = 1; store_add(l, &s->store[i], v, COMBINE_set); }
        }
    if (open) loops_close(l, loop, nl);
}

static bool is_parallel(const LoopKernel *k, int axis)
{
    for (int i = 0; i < k->npar; i++) if (k->par[i].var->var == SPACE_VAR + axis) return true;
    return false;
}

static void lower_scatter(Lowering *l)
{
    const SubStore *s = &l->sub->store[0];
    const Node *n = s->node;
    KLoop *loop[MAX_RANK]; int nl = 0;
    for (int i = 0; i < l->sub->rank; i++)
        if (!dim_is(l->sub->space[i], 1) && !is_parallel(l->k, i)) loop[nl++] = loop_new(l, dim_idx(l->g, SPACE_VAR + i, l->sub->space[i]), false);
    Dim **to = NEWS(l->arena, Dim *, MAX_RANK);
    if (n->kind != COMBINE_set) check_dtype(l, n->dt);
    KVal *v = demand(l, n->in[1], s->at);
    subst_indexed(l, n, 2, s->at, n->in[1]->rank, to);
    SubStore at = { .node = s->node, .into = s->node, .at = s->at, .coord = to };
    store_add(l, &at, v, (Combine)n->kind);
    KStmt *st = &l->cur->stmt.at[l->cur->stmt.n - 1];
    st->at = guarded(l, st->at.off, 0, NULL);
    if (n->view.npred) {
        Pred *p = NEWS(l->arena, Pred, n->view.npred);
        for (int k = 0; k < n->view.npred; k++) { p[k].e = dim_subst(l->g, n->view.pred[k].e, n->in[1]->rank, s->at); p[k].n = n->view.pred[k].n; }
        st->at.pred = p; st->at.npred = n->view.npred;
    }
    loops_close(l, loop, nl);
}

/* The axes of a scatter's updates whose index is an index of the result: updates of two of them never meet. */
static uint32_t scatter_apart(const Subgraph *sub)
{
    const Node *n = sub->store[0].node;
    uint32_t axes = 0;
    for (int k = 0; k < n->view.nidx; k++) if (n->view.idx[k]->kind == DIM_idx && n->view.idx[k]->var < sub->rank) axes |= axis_bit(n->view.idx[k]->var);
    return axes;
}

LoopKernel *lower_once(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v, int lane)
{
    const int lanes = v.lanes;
    LoopKernel *k = NEW(a, LoopKernel);
    k->g = g; k->arena = a; k->sub = sub; k->lanes = lanes; k->dots = v.dots; k->waits = v.waits; k->split = v.split; k->mr = 1;
    Lowering *l = NEW(a, Lowering);
    *l = (Lowering){ .cx = cx, .arena = a, .g = g, .sub = sub, .k = k };
    l->done = NEWS(a, uint8_t, sub->nstore + 1);
    l->lent = NEWS(a, uint8_t, sub->nstore + 1);
    l->above = mapstr_new(a);
    l->simt = lanes == LANES_simt;
    bool serial = sub->kind == SUB_scatter;
    uint32_t apart = serial && lanes == LANES_simt ? scatter_apart(sub) : ~(sub->rows | sub->inner | (sub->stream ? sub->stream->out : 0));
    if (sub->stream && lane < 0 && sub->stream->row >= 0) apart &= ~axis_bit(sub->stream->row);
    if (lanes > 1 && lane < 0) { l->rows_vec = sub->kind == SUB_rows || sub->kind == SUB_scan; l->vec_k = sub->kind == SUB_dot || sub->stream; l->few = sub->kind == SUB_stream; }
    bool point_vec = lanes > 1 && lane >= 0 && !serial;
    if (!point_vec && !l->rows_vec && !l->vec_k && !l->few) k->lanes = 1;
    if (!serial || lanes == LANES_simt)
        for (int i = 0; i < sub->rank; i++)
            if ((apart >> i & 1) && !dim_is(sub->space[i], 1)) {
                Dim *var = dim_idx(g, SPACE_VAR + i, sub->space[i]);
                k->par[k->npar++] = (KAxis){ var, sub->space[i], 1 };
                if (point_vec && i == lane) k->vec_var = var;
            }
    if (sub->step && !dim_is_const(part_var(l))) k->par[k->npar++] = (KAxis){ part_var(l), part_var(l)->a, 1 };
    k->top = block_new(l, NULL, NULL);
    k->body = block_new(l, k->top, NULL);
    l->cur = l->point = k->body;
    KLoop *vec = NULL;
    if (k->vec_var) {
        vec = loop_new(l, k->vec_var, true);
        vec->blocked = true;
        if (sub->stream) {               /* as many vectors as accumulators leave registers for, and rows there are */
            ASSERT(lanes > 0);
            int64_t vecs = (dim_hint(g, vec->extent) + lanes - 1) / lanes;
            l->nv = stream_vectors(lanes);
            while (l->nv > 1 && vecs < l->nv) l->nv /= 2;
            vec->nv = l->nv;
        }
        l->point = l->cur;
    }
    switch (sub->kind) {
    case SUB_scan: lower_scan(l); break;
    case SUB_scatter: lower_scatter(l); break;
    case SUB_dot: if (sub->rows) { lower_places(l); break; } /* fall through */
    case SUB_map: case SUB_rows: lower_points(l); break;
    case SUB_stream: lower_stream(l); break;
    case SUB_call: case SUB_COUNT: ASSERT(!"a call is no kernel");
    }
    if (vec) { l->cur = l->point; loop_close(l, vec); }
    return k;
}
