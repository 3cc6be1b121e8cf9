/* Elementwise kernels whose rows share operands: a bias, a gain or a gate with one number for each channel, where channels lie together.
 *
 * Row after row such a vector would be loaded again for each vector that is computed, and what is computed of it alone would be computed again; beside one load and one store of
 * what differs by row that is a tenth to a quarter of the time. Where a whole row of it fits into the registers it stays there, and a loop over some rows goes by inside the
 * loop over the lanes, whose step is then the whole row: memory is still passed over in order. Pieces of rows, or tiles of rows, would do for longer ones, but memory would be
 * read with strides, which costs more than it saves once the operand comes from beyond the second cache. */
#include "kir/kir.h"

enum { LEAST_ROWS = 8, ROWS_SIZE = 16384 };      /* rows for which it pays; elements of a block of rows */

typedef struct Registers { const LoopKernel *k; uint8_t *seen; int vectors, others; bool ok; } Registers;    /* vectors that stay, by the step's number of them; what else a step needs */

static void registers_use(Registers *r, const KVal *v)
{
    if ((v->vary & VARY_row) || r->seen[v->id]) return;
    r->seen[v->id] = 1;
    if (v->vary & VARY_lane) r->vectors++;
    else r->others++;
}

/* What the loop over rows needs of the rest. Only what has one register for a vector; chains of many steps are taken in stages, for a few vectors at once. */
static void registers_count(Registers *r, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        DType t = s->kind == KS_val || s->kind == KS_store ? dtype_info[s->val->dt].compute : DT_f64;
        if (s->kind == KS_loop) { r->ok &= s->loop->var == r->k->vec_var && i == b->stmt.n - 1; continue; }
        if (((s->vary & VARY_lane) && t != DT_f32 && t != DT_i32) || (s->kind == KS_store && !b->loop)) r->ok = false;
        if (s->kind == KS_val && (s->val->kind == KV_random || s->val->kind == KV_check)) r->ok = false;
        if (!(s->vary & VARY_row)) { r->ok &= s->kind == KS_val; continue; }
        if (s->kind == KS_store) { registers_use(r, s->val); continue; }
        r->ok &= s->kind == KS_val && !is_dear(s->val);
        if (!r->ok) return;
        r->others++;
        for (int j = 0; j < s->val->nin; j++) registers_use(r, s->val->in[j]);
        for (int j = 0; j < s->val->nopnd; j++) registers_use(r, s->val->opnd[j]);
    }
}

static void rows_move(LoopKernel *k, KBlock *b, KBlock *to)
{
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt s = b->stmt.at[i];
        if (s.kind == KS_loop || !(s.vary & VARY_row)) { b->stmt.at[n++] = s; continue; }
        if (s.kind == KS_val) s.val->block = to;
        vec_push(k->arena, &to->stmt, s);
    }
    b->stmt.n = n;
}

void reuse_choose(LoopKernel *k, KLoop *vec)
{
    if (k->npar < 2 || k->par[k->npar - 1].var != k->vec_var || !dim_is_const(vec->extent) || !vec->extent->c || vec->extent->c % k->lanes || k->sched.vectors || k->sched.block) return;
    KAxis *row = &k->par[k->npar - 2];
    int64_t vectors = vec->extent->c / k->lanes, registers = k->lanes >= 16 ? 32 : 16, rows = ROWS_SIZE / vec->extent->c;
    if (dim_hint(k->g, row->extent) < LEAST_ROWS || vectors >= registers) return;
    k->row_var = row->var;
    kernel_vary(k);
    k->row_var = NULL;
    Registers r = { .k = k, .seen = NEWS(k->arena, uint8_t, k->nval + 1), .ok = true };
    registers_count(&r, k->body);
    registers_count(&r, vec->body);
    if (!r.ok || !r.vectors || r.vectors * vectors + r.others > registers) return;
    KLoop *o = NEW(k->arena, KLoop);
    o->var = row->var; o->extent = row->extent; o->nv = 1; o->blocked = true;
    o->body = NEW(k->arena, KBlock);
    *o->body = (KBlock){ .loop = o, .up = vec->body, .depth = vec->body->depth + 1 };
    rows_move(k, k->body, o->body);
    rows_move(k, vec->body, o->body);
    vec_push(k->arena, &vec->body->stmt, ((KStmt){ .kind = KS_loop, .loop = o }));
    vec->nv = (int)vectors;
    row->step = rows;
    k->down_var = row->var;
}
