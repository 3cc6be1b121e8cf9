/* Quantisation in lanes: round(x / step) + zero, kept within the range of a narrow integer, as one value (KV_quantise) with its numbers beside it (KV_quantum).
 *
 * A division takes as long as a dozen other operations. With r = 1 / step, rounded, and r' = 1 / step - r, rounded, the fused x r + (x r') is the rounded quotient
 * but for quotients that lie next to the middle between two floats (N. Brisebarre, J.-M. Muller, S. K. Raina, IEEE Trans. Computers 53, 2004). The whole
 * number that it is rounded to can differ only where such a quotient has k + 1/2 as a neighbour, and there are two of these for every k: all of them are tried here,
 * and a step for which one fails keeps its division. So the results are the same, bit for bit.
 *
 * Rounding to a whole number is left to the conversion. x is held between the multiples of step at which the results end, a quarter further out, so the conversion
 * meets no number that is out of range; NaN gives 0. Where the graph says that x is a number
 * for which no conversion overflows (ir/reach.c), and the result is stored and nothing else, it is kept within the range by the store. */
#include "kir/kir.h"
#include <math.h>
#include <string.h>

/* Is the product with the inverse, corrected, rounded to the same whole numbers as the quotient, for all of them up to `most`? */
static bool step_serves(float step, int64_t most)
{
    if (!(step > 0x1p-100f && step < 0x1p100f)) return false;
    float r = 1 / step, rest = fmaf(-r, step, 1) * r;
    for (int64_t k = 0; k <= most; k++) {
        float half = (float)k + 0.5f;
        for (int side = 0; side < 2; side++) {
            double middle = ((double)half + (double)nextafterf(half, side ? INFINITY : 0)) / 2;
            float x = (float)(middle * (double)step);        /* no other float has its quotient that near */
            float better = fmaf(x, r, x * rest), quotient = x / step;
            if (rintf(better) != rintf(quotient)) return false;
        }
    }
    return true;
}

static void count_stores(int *stores, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) count_stores(stores, s->loop->body);
        if (s->kind == KS_store && s->how == COMBINE_set) stores[s->val->id]++;
    }
}

void count_uses(int *uses, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) count_uses(uses, s->loop->body);
        if (s->kind == KS_store) uses[s->val->id]++;
        for (int j = 0; j < s->nopnd; j++) uses[s->opnd[j]->id]++;
        const KFold *f = s->kind == KS_update ? s->fold : NULL;
        const KVal *of[4] = { f ? f->value : NULL, f ? f->mul_a : NULL, f ? f->mul_b : NULL, f ? f->index : NULL };
        for (int j = 0; j < 4; j++) if (of[j]) uses[of[j]->id]++;
        for (int j = 0; s->kind == KS_val && j < s->val->nin; j++) uses[s->val->in[j]->id]++;
        for (int j = 0; s->kind == KS_val && j < s->val->nopnd; j++) uses[s->val->opnd[j]->id]++;
    }
}

/* The number that v is for the whole kernel, where it is known now. */
static bool known_number(const LoopKernel *k, const KVal *v, float *number)
{
    if (v->kind == KV_const) { *number = (float)v->imm.f; return true; }
    const Node *n = v->kind == KV_load ? k->buf.at[v->buf].node : NULL;
    if (!n || n->op != OP_const || n->rank || n->dt != DT_f32 || !n->tensor->data || v->block != k->top) return false;
    *number = (float)scalar_load(DT_f32, n->tensor->data).f;
    return true;
}

/* Is v a zero point: a whole number of the range, the same everywhere? */
static bool is_zero_point(const LoopKernel *k, const KVal *v, DType t, double low, double high)
{
    float number;
    if (known_number(k, v, &number)) return rintf(number) == number && number >= low && number <= high;
    const Node *n = v->kind == KV_load ? k->buf.at[v->buf].node : NULL;
    return n && !n->rank && n->op == OP_cast && n->in[0]->dt == t && v->block == k->top;
}

typedef struct Quantise { const LoopKernel *k; int *uses, *stores; uint8_t *gone; KVal *x, *step, *zero; DType t; bool near; } Quantise;      /* near: no conversion overflows */

/* Takes the elementwise operation that v must be and that serves nothing else, with one operand at most that is the number c. */
static KVal *taken(Quantise *q, KVal *v, Op op, const double *c)
{
    if (v->kind != KV_ew || v->op != op || v->dt != DT_f32 || q->uses[v->id] != 1) return NULL;
    if (!c) return v;
    for (int i = 0; i < 2; i++) if (v->in[i]->kind == KV_const && v->in[i]->imm.f == *c) return v->in[1 - i];
    return NULL;
}

/* Is v the cast of min(max(round(x / step) + zero, low), high)? Its parts are marked as gone. */
static bool quantise_find(Quantise *q, KVal *v)
{
    if (v->kind != KV_cast || (v->dt != DT_u8 && v->dt != DT_i8) || v->in[0]->dt != DT_f32 || !(v->vary & VARY_lane)) return false;
    double low = v->dt == DT_u8 ? 0 : -128, high = v->dt == DT_u8 ? 255 : 127;
    KVal *part[6] = { v->in[0] };
    bool max_first = part[0]->kind == KV_ew && part[0]->op == OP_min;
    part[1] = taken(q, part[0], max_first ? OP_min : OP_max, max_first ? &high : &low);
    part[2] = part[1] ? taken(q, part[1], max_first ? OP_max : OP_min, max_first ? &low : &high) : NULL;
    if (!part[2]) return false;
    KVal *sum = taken(q, part[2], OP_add, NULL), *round = NULL;
    q->zero = NULL;
    for (int i = 0; sum && i < 2 && !round; i++) {
        round = taken(q, sum->in[i], OP_round, NULL);
        q->zero = sum->in[1 - i];
    }
    if (!sum) round = taken(q, part[2], OP_round, NULL);
    KVal *div = round ? taken(q, round->in[0], OP_div, NULL) : NULL;
    float step, zero = 0;
    if (!div || !known_number(q->k, div->in[1], &step) || (q->zero && !is_zero_point(q->k, q->zero, v->dt, low, high))) return false;
    bool known = !q->zero || known_number(q->k, q->zero, &zero);
    if (!step_serves(step, known ? (int64_t)fmax(high - zero, zero - low) : 256)) return false;
    part[3] = sum; part[4] = round; part[5] = div;
    for (int i = 0; i < 6; i++) if (part[i]) q->gone[part[i]->id] = 1;
    q->x = div->in[0]; q->step = div->in[1]; q->t = v->dt;
    Reach reach = div->node ? node_reach(q->k->g, div->node) : (Reach){ 1, 0 };
    q->near = reach_known(reach) && reach.hi < 0x1p30 && (reach.lo > -0x1p30 || v->dt == DT_u8);        /* what is too low for a conversion becomes the lowest integer */
    if (known && zero == 0) {
        q->zero = NULL;
        double none = 0;
        KVal *below = v->dt == DT_u8 ? taken(q, q->x, OP_max, &none) : NULL;     /* what is below 0 becomes 0 in any case */
        if (below) { q->gone[q->x->id] = 1; q->x = below; }
    }
    return true;
}

/* The numbers of a quantisation, once for the kernel. */
static KVal *quantum_of(LoopKernel *k, const Quantise *q)
{
    KBlock *b = k->top;
    for (int i = 0; i < b->stmt.n; i++) {
        KVal *v = b->stmt.at[i].kind == KS_val ? b->stmt.at[i].val : NULL;
        if (v && v->kind == KV_quantum && v->dt == q->t && v->in[0] == q->step && v->nin == (q->zero ? 2 : 1) && (!q->zero || v->in[1] == q->zero)) return v;
    }
    KVal *v = NEW(k->arena, KVal);
    *v = (KVal){ .kind = KV_quantum, .dt = q->t, .id = k->nval++, .nin = q->zero ? 2 : 1, .in = { q->step, q->zero }, .block = b, .node = q->step->node };
    vec_push(k->arena, &b->stmt, ((KStmt){ .kind = KS_val, .val = v }));
    return v;
}

static void quantise_walk(LoopKernel *k, Quantise *q, KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) quantise_walk(k, q, s->loop->body);
        if (s->kind != KS_val || !quantise_find(q, s->val)) continue;
        KVal *v = s->val;
        v->kind = KV_quantise;
        v->nin = 2;
        v->in[0] = q->x;
        v->saturate = q->near && !k->half && q->stores[v->id] == q->uses[v->id];
        v->in[1] = quantum_of(k, q);
    }
}

static void drop_gone(KBlock *b, const uint8_t *gone)
{
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) drop_gone(s->loop->body, gone);
        if (s->kind != KS_val || !gone[s->val->id]) b->stmt.at[n++] = *s;
    }
    b->stmt.n = n;
}

void quantise_choose(LoopKernel *k)
{
    int n = k->nval;
    Quantise q = { .k = k, .uses = NEWS(k->arena, int, n + 1), .stores = NEWS(k->arena, int, n + 1), .gone = NEWS(k->arena, uint8_t, n + 1) };
    count_uses(q.uses, k->top);
    count_uses(q.uses, k->body);
    count_stores(q.stores, k->body);
    quantise_walk(k, &q, k->body);
    if (k->nval == n) return;
    uint8_t *gone = NEWS(k->arena, uint8_t, k->nval + 1);
    memcpy(gone, q.gone, (size_t)n);
    drop_gone(k->body, gone);
}
