/* Contractions of narrow numbers by words: a sum of products of bytes (unsigned and signed, in int32) or of bfloat16 (in float32), where neighbours along
 * the reduction are one 32-bit word on both sides, four bytes or a pair. One operand is read as such words as it lies (its elements follow one another along
 * the innermost loop); the other, a constant, is copied into panels (panel.c) whose rows are taken together, T terms to a word:
 *
 *     rows q .. q + T - 1 at column e:   start * Q + (q / T) * T P + (e - start) * T   =   T times   e + start * (Q / T - 1) + (P / T) * q
 *
 * Sums of bytes are exact. Products of bfloat16 are exact in float32; those of a pair are added to the sum one after the other, which is one more order of
 * additions, but the instruction takes numbers below 2^-126 for 0. float32 goes in pairs where there are few columns, which then take two lanes each (half.c). */
#include "kir/kir.h"

typedef struct Words { KVal *x, *w, *product; KFold *fold; KLoop *loop; int terms; bool few; Dim *row, *rest; int64_t deep; } Words;      /* few: of float32, in pairs; w lies `deep` rows deep */

/* A form that has an instruction: what is multiplied, in what it is summed, how many at once. */
typedef struct WordForm { int dot; DType x, w, sum; int terms; } WordForm;
static const WordForm word_table[] = { { DOT_quads, DT_u8, DT_i8, DT_i32, 4 }, { DOT_pairs, DT_bf16, DT_bf16, DT_f32, 2 }, { 0, DT_f32, DT_f32, DT_f32, 2 } };

/* The narrow number that a value widens, as its load. */
static KVal *narrow_load(KVal *v, DType from, DType to)
{
    if (from != to && (v->kind != KV_cast || v->dt != to)) return NULL;
    if (from != to) v = v->in[0];
    return v->kind == KV_load && v->dt == from && !v->nopnd ? v : NULL;
}

static bool form_fits(const LoopKernel *k, const WordForm *f, const KBlock *b, Words *q)
{
    KVal *v = q->product;
    if (f->dot ? !(k->dots & f->dot) : !q->few || (k->split && half_width(k) * 4 > k->lanes)) return false;
    if (q->fold->dt != f->sum || b->stmt.n != (f->dot ? 6 : 4)) return false;
    q->terms = f->terms;
    for (int side = 0; side < 2; side++) {
        q->x = narrow_load(v->in[side], f->x, f->sum);
        q->w = narrow_load(v->in[1 - side], f->w, f->sum);
        if (!q->x || !q->w || q->x->block != b || q->w->block != b) continue;
        if (f->x != f->w || (k->sub->constant[k->buf.at[q->w->buf].node->id] && dim_uses(q->w->at.off, k->vec_var->var))) return true;
    }
    return false;
}

/* The innermost body of the one fold of a contraction, and nothing else in it. */
static bool words_find(const LoopKernel *k, KBlock *b, Words *q)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) return words_find(k, s->loop->body, q);
        if (s->kind == KS_update) { q->fold = s->fold; q->loop = b->loop; }
    }
    KFold *f = q->fold;
    if (!f || !q->loop || q->loop->blocked || q->loop->vector || f->kind != FOLD_sum || f->running) return false;
    KVal *v = q->product = f->value;
    if (v->kind != KV_ew || v->op != OP_mul || v->block != b || v->in[0]->block != b || v->in[1]->block != b) return false;
    for (size_t i = 0; i < COUNT_OF(word_table); i++) if (form_fits(k, &word_table[i], b, q)) return true;
    return false;
}

/* Products of single bytes, widened: the same instruction adds them, with zeros in the other three bytes of one side. */
static void bytes_choose(KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) bytes_choose(s->loop->body);
        KFold *f = s->kind == KS_update ? s->fold : NULL;
        KVal *v = f ? f->value : NULL;
        if (!f || f->words || f->kind != FOLD_sum || f->dt != DT_i32 || f->running || v->kind != KV_ew || v->op != OP_mul || v->block != b) continue;
        for (int side = 0; side < 2 && !f->words; side++) {
            if (!narrow_load(v->in[side], DT_u8, DT_i32) || !narrow_load(v->in[1 - side], DT_i8, DT_i32)) continue;
            f->mul_a = v->in[side]; f->mul_b = v->in[1 - side];
            f->words = 4;
        }
    }
}

/* Does the sum of k go by words? few: may it be one of float32? */
static bool words_fit(const LoopKernel *k, const KLoop *vec, bool few, Words *q)
{
    Graph *g = k->g;
    Dim *one, *at, *count = dim_const(g, 1);
    *q = (Words){ .few = few };
    if ((!k->dots && !few) || !vec || k->sub->kind != SUB_dot || kernel_folds(k->body) != 1 || !words_find(k, vec->body, q)) return false;
    int step = q->loop->var->var, lane = k->vec_var->var, terms = q->terms;
    const KBuf *b = &k->buf.at[q->w->buf];
    if (q->loop->from || q->loop->row_from || !dim_is_const(q->loop->extent) || q->loop->extent->c % terms || !k->sub->constant[b->node->id] || b->write || k->sub->constant[k->sub->node[0]->id]) return false;
    for (int i = 0; i < k->buf.n; i++) if (i != q->w->buf && k->buf.at[i].node == b->node) return false;
    if (dim_uses(q->x->at.off, lane) || !dim_linear(g, q->x->at.off, step, &one, &q->rest) || !dim_is(one, 1)) return false;
    for (int i = 0; i < q->x->at.npred; i++) if (dim_uses(q->x->at.pred[i].e, step) || dim_uses(q->x->at.pred[i].n, step)) return false;
    if (q->w->at.npred || !dim_linear(g, q->w->at.off, lane, &one, &at) || !dim_is(one, 1)) return false;
    q->row = dim_div(g, at, vec->extent);
    if (dim_mul(g, q->row, vec->extent) != at || !dim_linear(g, q->row, step, &one, &q->rest) || !dim_is(one, 1)) return false;
    if (!dim_is(dim_mod(g, q->rest, dim_const(g, terms)), 0)) return false;
    for (int i = 0; i < b->node->rank; i++) count = dim_mul(g, count, b->node->dims[i]);
    Dim *rows = dim_div(g, count, vec->extent);
    if (dim_mul(g, rows, vec->extent) != count || !dim_is_const(rows) || rows->c % terms) return false;
    q->deep = rows->c;
    return true;
}

bool word_pairs(const LoopKernel *k, const KLoop *vec) { return words_fit(k, vec, true, &(Words){ 0 }); }

static void words_apply(LoopKernel *k, KLoop *vec)
{
    Graph *g = k->g;
    Words q;
    if (!words_fit(k, vec, k->half, &q)) return;
    int terms = q.terms;
    KBuf *b = &k->buf.at[q.w->buf];
    Dim *width = vec->extent;
    int64_t deep = q.deep, whole = (int64_t)terms * UNIT_TILE_ROWS;
    if (!k->half && (deep % whole == 0 || (dim_is(q.rest, 0) && q.loop->extent->c == deep)) && unit_choose(k, vec, q.fold, q.loop, q.x, terms)) {
        b = &k->buf.at[q.w->buf];
        b->rows = deep = (deep + whole - 1) / whole * whole;
    }
    buf_pack(b);
    b->panel = (int64_t)vec->nv * (k->half ? half_width(k) : k->lanes);
    b->width = width;
    b->words = terms;
    q.w->at.off = dim_add(g, dim_add(g, k->vec_var, dim_mulc(g, dim_idx(g, START_VAR, width), deep / terms - 1)), dim_mulc(g, q.row, b->panel / terms));
    if (!k->half) {
        uint32_t fill = 0;
        scalar_store(q.x->dt, &fill, q.x->imm);
        fill *= terms == 4 ? 0x01010101u : 0x00010001u;
        q.x->imm.i = (int32_t)fill;
        q.x->dt = q.w->dt = DT_i32;
    }
    q.x->word = WORD_elements; q.w->word = WORD_words;
    KBlock *body = q.loop->body;
    int n = 0;
    for (int i = 0; i < body->stmt.n; i++)           /* the casts go */
        if (body->stmt.at[i].kind != KS_val || body->stmt.at[i].val->kind != KV_cast) body->stmt.at[n++] = body->stmt.at[i];
    body->stmt.n = n;
    q.product->in[0] = q.x; q.product->in[1] = q.w;
    q.fold->mul_a = q.x; q.fold->mul_b = q.w;
    q.fold->words = terms;
    q.loop->step = terms;
    k->paired = k->half && half_width(k) * 4 > k->lanes;
}

void word_choose(LoopKernel *k, KLoop *vec)
{
    words_apply(k, vec);
    if (k->dots & DOT_quads && vec) bytes_choose(vec->body);
}
