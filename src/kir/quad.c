/* Integer contractions four terms at a time: sums of products of unsigned and signed bytes, where four neighbours along the reduction are one 32-bit word
 * on both sides. One operand is read as such words as it lies (its bytes follow one another along the innermost loop); the other, a constant, is copied
 * into panels (panel.c) whose rows are taken together by fours:
 *
 *     bytes of rows q .. q + 3 at column e:   start * Q + (q / 4) * 4 P + (e - start) * 4   =   four times   e + start * (Q / 4 - 1) + (P / 4) * q
 *
 * The sum in int32 is exact, so it does not matter that four products are added at once. */
#include "kir/kir.h"

typedef struct Quad { KVal *x, *w, *product; KFold *fold; KLoop *loop; } Quad;

/* The byte that a value widens, as its load. */
static KVal *byte_load(KVal *v, DType t)
{
    if (v->kind != KV_cast || v->dt != DT_i32) return NULL;
    v = v->in[0];
    return v->kind == KV_load && v->dt == t && !v->nopnd ? v : NULL;
}

/* The innermost body of the one fold of a contraction, and nothing else in it. */
static bool quad_find(KBlock *b, Quad *q)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) return quad_find(s->loop->body, q);
        if (s->kind == KS_update) { q->fold = s->fold; q->loop = b->loop; }
    }
    KFold *f = q->fold;
    if (!f || !q->loop || q->loop->blocked || q->loop->vector || f->kind != FOLD_sum || f->dt != DT_i32 || f->running) return false;
    KVal *v = q->product = f->value;
    if (v->kind != KV_ew || v->op != OP_mul || v->block != b || b->stmt.n != 6) return false;
    for (int side = 0; side < 2; side++) {
        q->x = byte_load(v->in[side], DT_u8);
        q->w = byte_load(v->in[1 - side], DT_i8);
        if (q->x && q->w) break;
    }
    return q->x && q->w && q->x->block == b && q->w->block == b && v->in[0]->block == b && v->in[1]->block == b;
}

static bool multiple_of_4(Graph *g, Dim *d) { return dim_is(dim_mod(g, d, dim_const(g, 4)), 0); }

/* Products of single bytes, widened: the same instruction adds them, with zeros in the other three bytes of one side. */
static void bytes_choose(KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) bytes_choose(s->loop->body);
        KFold *f = s->kind == KS_update ? s->fold : NULL;
        KVal *v = f ? f->value : NULL;
        if (!f || f->quad || f->kind != FOLD_sum || f->dt != DT_i32 || f->running || v->kind != KV_ew || v->op != OP_mul || v->block != b) continue;
        for (int side = 0; side < 2 && !f->quad; side++) {
            if (!byte_load(v->in[side], DT_u8) || !byte_load(v->in[1 - side], DT_i8)) continue;
            f->mul_a = v->in[side]; f->mul_b = v->in[1 - side];
            f->quad = true;
        }
    }
}

static void quad_words(LoopKernel *k, KLoop *vec)
{
    Graph *g = k->g;
    Quad q = { 0 };
    Dim *one, *at, *rest, *row;
    if (!k->quads || !vec || k->sub->kind != SUB_dot || kernel_folds(k->body) != 1 || !quad_find(vec->body, &q)) return;
    int step = q.loop->var->var, lane = k->vec_var->var;
    KBuf *b = &k->buf.at[q.w->buf];
    Dim *width = vec->extent, *count = dim_const(g, 1);
    if (!dim_is_const(q.loop->extent) || q.loop->extent->c % 4 || !k->sub->constant[b->node->id] || b->write || k->sub->constant[k->sub->node[0]->id]) return;
    for (int i = 0; i < k->buf.n; i++) if (i != q.w->buf && k->buf.at[i].node == b->node) return;
    if (dim_uses(q.x->at.off, lane) || !dim_linear(g, q.x->at.off, step, &one, &rest) || !dim_is(one, 1)) return;
    for (int i = 0; i < q.x->at.npred; i++) if (dim_uses(q.x->at.pred[i].e, step) || dim_uses(q.x->at.pred[i].n, step)) return;
    if (q.w->at.npred || !dim_linear(g, q.w->at.off, lane, &one, &at) || !dim_is(one, 1)) return;
    row = dim_div(g, at, width);
    if (dim_mul(g, row, width) != at || !dim_linear(g, row, step, &one, &rest) || !dim_is(one, 1) || !multiple_of_4(g, rest)) return;
    for (int i = 0; i < b->node->rank; i++) count = dim_mul(g, count, b->node->dims[i]);
    Dim *rows = dim_div(g, count, width);
    if (dim_mul(g, rows, width) != count || !dim_is_const(rows) || rows->c % 4) return;

    buf_pack(b);
    b->panel = (int64_t)vec->nv * k->lanes;
    b->width = width;
    b->quad = true;
    q.w->at.off = dim_add(g, dim_add(g, k->vec_var, dim_mulc(g, dim_idx(g, START_VAR, width), rows->c / 4 - 1)), dim_mulc(g, row, b->panel / 4));
    uint32_t fill = (uint32_t)(q.x->imm.i & 255) * 0x01010101u;
    q.x->imm.i = (int32_t)fill;
    q.x->dt = q.w->dt = DT_i32;
    q.x->quad = QUAD_bytes; q.w->quad = QUAD_words;
    KBlock *body = q.loop->body;
    int n = 0;
    for (int i = 0; i < body->stmt.n; i++)           /* the casts go */
        if (body->stmt.at[i].kind != KS_val || body->stmt.at[i].val->kind != KV_cast) body->stmt.at[n++] = body->stmt.at[i];
    body->stmt.n = n;
    q.product->in[0] = q.x; q.product->in[1] = q.w;
    q.fold->mul_a = q.x; q.fold->mul_b = q.w;
    q.fold->quad = true;
    q.loop->step = 4;
}

void quad_choose(LoopKernel *k, KLoop *vec)
{
    quad_words(k, vec);
    if (k->quads && vec) bytes_choose(vec->body);
}
