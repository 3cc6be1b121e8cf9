/* Blocks and values of a kernel that is being lowered, and where a value stands.
 *
 * A value is put into the outermost open block that knows all variables it depends on: those of its operands' blocks, and those in its address, its
 * predicates and its number. So what does not change in a loop is computed before it. Numbers that values hold (an index that is read) are variables of
 * addresses too; whoever uses one stands where the value stands, or further in. */
#include "kir/kir.h"

KBlock *block_new(Lowering *l, KBlock *up, KLoop *loop)
{
    KBlock *b = NEW(l->arena, KBlock);
    b->up = up; b->loop = loop; b->depth = up ? up->depth + 1 : 0;
    if (loop) loop->body = b;
    return b;
}

void block_add(Lowering *l, KBlock *b, KStmt s) { vec_push(l->arena, &b->stmt, s); }

static bool block_knows(const Lowering *l, const KBlock *b, const Dim *d)
{
    if (b == l->k->top) return false;
    if (b->loop) return dim_uses(d, b->loop->var->var);
    for (int i = 0; i < l->k->npar; i++)
        if (l->k->par[i].var != l->k->vec_var && dim_uses(d, l->k->par[i].var->var)) return true;
    return false;
}

KBlock *block_for(const Lowering *l, KBlock *b, const Dim *d)
{
    if (d && d->idx_mask)
        for (KBlock *c = l->cur; c && c->depth > b->depth; c = c->up)
            if (block_knows(l, c, d)) return c;
    return b;
}

bool block_open(const Lowering *l, const KBlock *b)
{
    for (const KBlock *c = l->cur; c; c = c->up) if (c == b) return true;
    return false;
}

void values_in(Lowering *l, const Dim *d, KVal ***list, int *n)
{
    if (!d || !d->idx_mask) return;
    if (d->kind == DIM_idx) {
        if (d->var < VALUE_VAR) return;
        KVal *v = l->vals.at[d->var - VALUE_VAR];
        for (int i = 0; i < *n; i++) if ((*list)[i] == v) return;
        KVal **more = NEWS(l->arena, KVal *, *n + 1);
        for (int i = 0; i < *n; i++) more[i] = (*list)[i];
        more[(*n)++] = v;
        *list = more;
        return;
    }
    if (d->kind == DIM_sum) {
        for (int i = 0; i < d->n; i++) for (int j = 0; j < d->term[i].n; j++) values_in(l, d->term[i].factor[j], list, n);
        return;
    }
    values_in(l, d->a, list, n);
    values_in(l, d->b, list, n);
}

void values_in_addr(Lowering *l, const KAddr *a, KVal ***list, int *n)
{
    values_in(l, a->off, list, n);
    for (int i = 0; i < a->npred; i++) { values_in(l, a->pred[i].e, list, n); values_in(l, a->pred[i].n, list, n); }
}

KBlock *block_for_addr(const Lowering *l, KBlock *b, const KAddr *a, int nopnd, KVal *const *opnd)
{
    b = block_for(l, b, a->off);
    for (int i = 0; i < a->npred; i++) { b = block_for(l, b, a->pred[i].e); b = block_for(l, b, a->pred[i].n); }
    for (int i = 0; i < nopnd; i++) if (opnd[i]->block->depth > b->depth) b = opnd[i]->block;
    return b;
}

KVal *val_new(Lowering *l, const KVal *proto)
{
    KVal *v = arena_copy(l->arena, proto, sizeof *proto);
    values_in(l, v->dim, &v->opnd, &v->nopnd);
    values_in_addr(l, &v->at, &v->opnd, &v->nopnd);
    KBlock *b = v->block ? v->block : l->k->top;
    for (int i = 0; i < v->nin; i++) if (v->in[i]->block->depth > b->depth) b = v->in[i]->block;
    b = block_for(l, b, v->dim);
    b = block_for_addr(l, b, &v->at, v->nopnd, v->opnd);
    v->id = l->k->nval++;
    v->block = b;
    vec_push(l->arena, &l->vals, v);
    block_add(l, b, (KStmt){ .kind = KS_val, .val = v });
    return v;
}

KVal *val_const(Lowering *l, DType dt, Scalar s) { return val_new(l, &(KVal){ .kind = KV_const, .dt = dt, .imm = s }); }

KVal *val_index(Lowering *l, Dim *d)
{
    if (dim_is_const(d)) return val_const(l, DT_i64, (Scalar){ .i = d->c });
    return val_new(l, &(KVal){ .kind = KV_index, .dt = DT_i64, .dim = d });
}

static bool is_one(const KVal *v) { return v->kind == KV_const && (dtype_is_float(v->dt) ? v->imm.f == 1 : v->imm.i == 1); }

KVal *val_ew(Lowering *l, Op op, DType dt, int n, KVal *const *in)
{
    bool known = prim_info[op].elementwise && op != OP_where && n > 0;
    Scalar of[3] = { { 0 } };
    for (int i = 0; i < n; i++) { known = known && in[i]->kind == KV_const; of[i] = in[i]->imm; }
    if (known) return val_const(l, dt, eval_ew(op, in[0]->dt, n, of));
    if (op == OP_mul) for (int i = 0; i < 2; i++) if (is_one(in[i])) return in[1 - i];
    KVal p = { .kind = KV_ew, .op = op, .dt = dt, .nin = n };
    for (int i = 0; i < n; i++) p.in[i] = in[i];
    return val_new(l, &p);
}

enum { MOST_COST = 1000 };
/* What it costs to compute v again in a later loop over the same row; operands from outside the loop are there already. */
static int cost_below(const KVal *v, int *steps)
{
    int c = 0;
    if (--*steps < 0) return MOST_COST;
    switch (v->kind) {
    case KV_const: case KV_index: return 0;
    case KV_load: case KV_valid: case KV_check: c = 1; break;
    case KV_random: c = 8; break;
    case KV_fold: return 100;
    case KV_quantum: case KV_quantise: break;        /* made by the scheduler */
    case KV_cast: case KV_bitcast: c = 1; break;
    case KV_ew: c = prim_info[v->op].cost; break;
    }
    for (int i = 0; i < v->nin; i++) if (v->in[i]->block == v->block) c += cost_below(v->in[i], steps);
    return c > MOST_COST ? MOST_COST : c;
}

int cost_again(const KVal *v) { return cost_below(v, &(int){ WALK_STEPS }); }
