/* Which float32 values may be a few units in the last place off, because all that is computed of them is rounded to 16 bits in the end.
 *
 * Backward from where values are used, to a fixed point: at first every value is taken for rough, then those lose it that are stored, compared, used as an
 * index, or go into an operation that could make a small relative error large. Products, quotients, choices, the larger and the smaller of two, and sums of what is
 * never negative keep it small; differences do not. Values of 16-bit dtypes are rounded themselves. */
#include "kir/kir.h"

typedef struct Roughness { bool *buf, changed; } Roughness;       /* buf: by buffer, what is kept in this private row is rough */

static bool is_half(DType t) { return t == DT_bf16 || t == DT_f16; }

static bool never_negative(const KVal *v, int depth)
{
    if (depth > 8) return false;
    if (v->kind == KV_const) return v->imm.f >= 0;
    if (v->kind == KV_cast) return dtype_is_float(v->in[0]->dt) && never_negative(v->in[0], depth + 1);
    if (v->kind == KV_fold) return v->fold->kind == FOLD_sum && v->fold->value && never_negative(v->fold->value, depth + 1);
    if (v->kind != KV_ew) return false;
    switch (v->op) {
    case OP_exp: case OP_sigmoid: case OP_sqrt: case OP_abs: return true;
    case OP_mul: if (v->in[0] == v->in[1]) return true; /* fall through */
    case OP_div: case OP_add: case OP_min: return never_negative(v->in[0], depth + 1) && never_negative(v->in[1], depth + 1);
    case OP_where: return never_negative(v->in[1], depth + 1) && never_negative(v->in[2], depth + 1);
    default: return false;
    }
}

/* May operand i of v be rough? */
static bool passes(const KVal *v, int i)
{
    if (v->kind == KV_cast) return is_half(v->dt);
    if (v->kind != KV_ew || (!is_half(v->dt) && !v->rough)) return false;
    switch (v->op) {
    case OP_mul: case OP_div: case OP_neg: case OP_abs: case OP_max: case OP_min: return true;
    case OP_where: return i > 0;
    case OP_add: return never_negative(v->in[0], 0) && never_negative(v->in[1], 0);
    default: return false;
    }
}

static void needs_digits(Roughness *r, KVal *v)
{
    if (!v || !v->rough) return;
    v->rough = false;
    r->changed = true;
}

static void all_need_digits(Roughness *r, int n, KVal *const *v) { for (int i = 0; i < n; i++) needs_digits(r, v[i]); }

static void used_by_update(Roughness *r, const KFold *f)
{
    const bool sum = f->kind == FOLD_sum && f->value && never_negative(f->value, 0);
    const bool keeps = f->result && f->result->rough && !f->running && (sum || f->kind == FOLD_max || f->kind == FOLD_min);
    if (!keeps) needs_digits(r, f->value);
    needs_digits(r, f->mul_a);
    needs_digits(r, f->mul_b);
    needs_digits(r, f->index);
}

static void used_in(Roughness *r, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        KVal *v = s->val;
        switch (s->kind) {
        case KS_loop: used_in(r, s->loop->body); break;
        case KS_update: used_by_update(r, s->fold); break;
        case KS_store:
            all_need_digits(r, s->nopnd, s->opnd);
            if (!is_half(v->dt) && !r->buf[s->buf]) needs_digits(r, v);
            break;
        case KS_val:
            for (int j = 0; j < v->nin; j++) if (!passes(v, j)) needs_digits(r, v->in[j]);
            all_need_digits(r, v->nopnd, v->opnd);
            if (v->kind == KV_load && !v->rough && r->buf[v->buf]) { r->buf[v->buf] = false; r->changed = true; }
            break;
        case KS_skip: needs_digits(r, v); break;
        case KS_fold: case KS_fetch: break;
        }
    }
}

static void take_for_rough(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) take_for_rough(s->loop->body);
        if (s->kind == KS_val) s->val->rough = s->val->dt == DT_f32 || is_half(s->val->dt);
    }
}

void kernel_rough(LoopKernel *k)
{
    Roughness r = { .buf = NEWS(k->arena, bool, k->buf.n + 1) };
    for (int i = 0; i < k->buf.n; i++) r.buf[i] = k->buf.at[i].scratch;
    take_for_rough(k->top);
    take_for_rough(k->body);
    do {
        r.changed = false;
        used_in(&r, k->top);
        used_in(&r, k->body);
    } while (r.changed);
}
