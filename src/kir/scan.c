/* Lowering of running folds (scans): one loop along their axis, in which each turn updates an accumulator and may use what it has come to.
 *
 * All running folds of a kernel share that loop, with what is computed beside them. Where a fold inside a turn reduces other axes of what runs (a state: a matrix
 * that each step changes and reads), the accumulator is an array in private memory, one number for each place of these axes: set by loops before, loaded and
 * stored by each turn. So is that of a recurrence, where it is multiplied by a factor first. */
#include "kir/kir.h"

/* Is its accumulator an array, or in scratch at least? */
static bool has_state(const Lowering *l, const Node *scan) { return l->sub->inner || is_recurrence(scan); }

/* Loops that set the states to what a fold of nothing is, put before the loop that runs, which is the last statement of the point. */
static void states_begin(Lowering *l)
{
    const int n = l->rows.n, run = l->point->stmt.n - 1;
    for (int i = 0; i < n; i++) {
        const StoredRow *r = &l->rows.at[i];
        Dim *at = dim_idx(l->g, LOOP_VAR + l->nloop++, r->off);
        KLoop *o = dim_is_const(at) ? NULL : loop_new(l, at, false);
        const Node *node = l->k->buf.at[r->buf].node;
        const DType dt = dtype_wide(node->dt);
        KVal *none = val_const(l, dt, fold_start((FoldKind)node->kind, dt));
        block_add(l, l->cur, (KStmt){ .kind = KS_store, .val = none, .buf = r->buf, .at.off = at });
        if (o) loop_close(l, o);
    }
    const KStmt loop = l->point->stmt.at[run];
    for (int i = run; i + 1 < l->point->stmt.n; i++) l->point->stmt.at[i] = l->point->stmt.at[i + 1];
    l->point->stmt.at[l->point->stmt.n - 1] = loop;
}

/* The state's number for a place of n: along the axes that a fold inside reduces, and that of the lanes. */
static Dim *state_at(const Lowering *l, const Node *n, Dim *const *idx)
{
    Dim *off = dim_const(l->g, 0);
    for (int k = 0; k < n->rank; k++) {
        const int a = idx[k]->kind == DIM_idx ? idx[k]->var - SPACE_VAR : -1;
        const bool outside = k == n->axis || dim_is(n->dims[k], 1) || (a >= 0 && a < l->sub->rank && !(l->k->vec_var && idx[k]->var == l->k->vec_var->var));
        if (!outside) off = dim_add(l->g, dim_mul(l->g, off, n->dims[k]), idx[k]);
    }
    return off;
}

static KVal *state_cast(Lowering *l, KVal *v, DType to)
{
    KVal c = { .kind = KV_cast, .dt = to, .nin = 1, .in[0] = v };
    return v->dt == to ? v : val_new(l, &c);
}

/* One of the running folds of a state: kept in scratch, since loops inside change its place. Narrow floats are kept wide, and rounded where they are used. factor: of a recurrence. */
static KVal *state_step(Lowering *l, const Node *n, Dim *const *idx, const KFold *f, KVal *v, KVal *factor)
{
    const DType dt = dtype_wide(n->dt);
    const Op step = n->kind == FOLD_sum ? OP_add : n->kind == FOLD_prod ? OP_mul : n->kind == FOLD_max ? OP_max : OP_min;
    if (factor && !f->loop) {            /* one place: nothing comes before it */
        KVal *none[3] = { val_const(l, dt, (Scalar){ 0 }), state_cast(l, factor, dt) }, *sum[3] = { val_ew(l, OP_mul, dt, 2, none), state_cast(l, v, dt) };
        return state_cast(l, val_ew(l, step, dt, 2, sum), n->dt);
    }
    Dim *off = state_at(l, n, idx), *size = dim_const(l->g, 1);
    for (int k = 0; k < n->rank; k++) if (k != n->axis && idx[k]->kind == DIM_idx && dim_uses(off, idx[k]->var)) size = dim_mul(l->g, size, n->dims[k]);
    KBuf b = { .node = n, .dt = dt, .read = true, .write = true, .scratch = true, .size = size };
    vec_push(l->arena, &l->k->buf, b);
    const int buf = l->k->buf.n - 1;
    KVal p = { .kind = KV_load, .dt = dt, .buf = buf, .at.off = off, .node = n, .block = l->cur }, *was = val_new(l, &p);
    KVal *faded[3] = { was, factor ? state_cast(l, factor, dt) : NULL }, *in[3] = { factor ? val_ew(l, OP_mul, dt, 2, faded) : was, state_cast(l, v, dt) };
    KVal *now = val_ew(l, step, dt, 2, in);
    block_add(l, l->cur, (KStmt){ .kind = KS_store, .val = now, .buf = buf, .at.off = off });
    StoredRow r = { now, buf, size };
    vec_push(l->arena, &l->rows, r);
    return state_cast(l, f->before ? was : now, n->dt);
}

KVal *demand_scan(Lowering *l, const Node *n, Dim *const *idx)
{
    int i = 0;
    while (l->sub->node[i] != n) i++;
    KFold *f = l->running[i];
    const Node *x = n->in[0];
    Dim *at[MAX_RANK] = { 0 };
    for (int k = 0; k < x->rank; k++) at[k] = idx[k];
    if (!l->simt && l->sub->home[x->id] == HOME_free) {
        x = scan_folded(l->g, n, at, &f->before);
        for (int k = 0; k < x->rank; k++) at[k] = dim_subst(l->g, at[k], n->rank, idx);
    }
    f->value = demand(l, x, at);
    if (has_state(l, n)) return state_step(l, n, idx, f, f->value, is_recurrence(n) ? demand(l, n->in[1], idx) : NULL);
    block_add(l, l->cur, (KStmt){ .kind = KS_update, .fold = f });
    return fold_result(l, f);
}

/* Running folds of one axis, and what is computed beside them, in one loop. */
void lower_scan(Lowering *l)
{
    const Subgraph *s = l->sub;
    int axis = 0;
    while (!(s->rows >> axis & 1)) axis++;
    l->running = NEWS(l->arena, KFold *, s->nnode + 1);
    for (int i = 0; i < s->nnode; i++) {
        if (s->node[i]->op != OP_scan) continue;
        if (has_state(l, s->node[i])) l->running[i] = NEW(l->arena, KFold);      /* no accumulator: see state_step() */
        else l->running[i] = fold_new(l, s->node[i]);
        l->running[i]->running = true;
    }
    Dim *var = dim_idx(l->g, SPACE_VAR + axis, s->space[axis]);
    KLoop *o = dim_is_const(var) ? NULL : loop_new(l, var, l->rows_vec);
    for (int i = 0; i < s->nnode; i++) if (l->running[i]) l->running[i]->loop = o;
    for (int i = 0; i < s->nstore; i++) {
        KVal *v = demand(l, s->store[i].node, s->store[i].at);
        if (!l->done[i]) { l->done[i] = 1; store_add(l, &s->store[i], v, COMBINE_set); }
    }
    if (o) loop_close(l, o);
    if (l->rows.n) states_begin(l);
}
