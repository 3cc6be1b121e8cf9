/* What each primitive does to values: the rows of prim.def on n elements at once, casts, folds, and the hash
 * behind `random`.
 *
 * Values are Scalars: double, or int64_t (uint64_t for u64) wrapped to the dtype. A narrow dtype is computed
 * in the wide type and rounded or wrapped once afterwards; for f32 add, sub, mul, div and sqrt that gives
 * the same as computing in float. Nothing here is undefined for any operand: integers wrap, and what C
 * leaves open (x / 0, INT_MIN / -1, wide shifts) has the value that prim.def says. */
#include "ir/ir.h"
#include <math.h>

/* ---- elementwise values -------------------------------------------------------------------------------- */
static inline int64_t iv_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t iv_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t iv_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static inline int64_t iv_neg(int64_t a) { return iv_sub(0, a); }
static inline int64_t iv_abs(int64_t a, DType t) { return a < 0 && t != DT_u64 ? iv_neg(a) : a; }
static inline int64_t iv_not(int64_t a, DType t) { return t == DT_bool ? !a : ~a; }
static inline int64_t iv_lt(int64_t a, int64_t b, DType t)
{
    return t == DT_u64 ? (uint64_t)a < (uint64_t)b : a < b;
}
static inline int64_t iv_le(int64_t a, int64_t b, DType t) { return !iv_lt(b, a, t); }
static inline int64_t iv_max(int64_t a, int64_t b, DType t) { return iv_lt(a, b, t) ? b : a; }
static inline int64_t iv_min(int64_t a, int64_t b, DType t) { return iv_lt(b, a, t) ? b : a; }

static inline int64_t iv_div(int64_t a, int64_t b, DType t)
{
    if (b == 0)
        return 0;
    if (t == DT_u64)
        return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? iv_neg(a) : a / b;
}

static inline int64_t iv_fmod(int64_t a, int64_t b, DType t)
{
    if (b == 0)
        return 0;
    if (t == DT_u64)
        return (int64_t)((uint64_t)a % (uint64_t)b);
    return b == -1 ? 0 : a % b;
}

static inline int64_t iv_mod(int64_t a, int64_t b, DType t)
{
    int64_t m = iv_fmod(a, b, t);
    return t != DT_u64 && m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

/* Wraps. A negative exponent gives the truncated reciprocal: 0 unless the base is 1 or -1. */
static int64_t iv_pow(int64_t a, int64_t b, DType t)
{
    if (b < 0 && t != DT_u64)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    int64_t r = 1;
    for (uint64_t n = (uint64_t)b; n; n >>= 1, a = iv_mul(a, a))
        if (n & 1)
            r = iv_mul(r, a);
    return r;
}

static inline int64_t iv_shl(int64_t a, int64_t b, DType t)
{
    return (uint64_t)b >= (uint64_t)dtype_bits(t) ? 0 : (int64_t)((uint64_t)a << b);
}

static inline int64_t iv_shr(int64_t a, int64_t b, DType t)
{
    if ((uint64_t)b >= (uint64_t)dtype_bits(t))
        return a < 0 && t != DT_u64 ? -1 : 0;
    if (a >= 0 || t == DT_u64)
        return (int64_t)((uint64_t)a >> b);
    return (int64_t)~(~(uint64_t)a >> b);
}

static inline double fv_max(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return a > b ? a : b > a ? b : signbit(a) ? b : a;
}

static inline double fv_min(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return a < b ? a : b < a ? b : signbit(a) ? a : b;
}

static double fv_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m == 0)
        return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;          /* NaN stays NaN */
}

void round_lanes(DType t, int n, Scalar *r)
{
    switch ((int)t) {
    case DT_f64: case DT_i64: case DT_u64:
        return;
    case DT_f32:
        for (int j = 0; j < n; j++)
            r[j].f = (double)(float)r[j].f;
        return;
    case DT_i32:
        for (int j = 0; j < n; j++)
            r[j].i = (int32_t)(uint32_t)r[j].u;
        return;
    default:
        for (int j = 0; j < n; j++)
            r[j] = scalar_round(t, r[j], false);
    }
}

/* The rows of prim.def, for n lanes. y is x when the arity is one. */
void ew_lanes(Op op, DType t, int n, const Scalar *x, const Scalar *y, Scalar *restrict r)
{
    bool flt = dtype_is_float(t);
#define LANES_OF(T, m, out, v) \
    for (int j = 0; j < n; j++) { T a = x[j].m, b = y[j].m; (void)a; (void)b; r[j].out = (v); }
    switch (op) {
#define EW(name, arity, dom, cost, fv, iv, c) \
    case OP_##name: if (flt) LANES_OF(double, f, f, fv) else LANES_OF(int64_t, i, i, iv) break;
#define CMP(name, arity, dom, cost, fv, iv, c) \
    case OP_##name: if (flt) LANES_OF(double, f, i, fv) else LANES_OF(int64_t, i, i, iv) break;
#define STRUCT(name, what) case OP_##name:
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    case OP_COUNT:
        ASSERT(!"elementwise primitive");
    }
    if (!prim_info[op].compares)
        round_lanes(t, n, r);
}

Scalar eval_ew(Op op, DType operand, int n, const Scalar *in)
{
    Scalar r;
    ASSERT(prim_info[op].elementwise && n == prim_info[op].arity);
    ew_lanes(op, operand, 1, &in[0], &in[n - 1], &r);
    return r;
}

void cast_lanes(DType to, DType from, bool saturate, int n, const Scalar *x, Scalar *restrict r)
{
    bool wide = to == DT_f32 || to == DT_f64;
    if (wide && dtype_is_float(from)) {
        for (int j = 0; j < n; j++)
            r[j].f = x[j].f;
        round_lanes(to, n, r);
    } else if (to == DT_i64 && from != DT_u64 && !dtype_is_float(from)) {
        for (int j = 0; j < n; j++)
            r[j].i = x[j].i;
    } else {
        for (int j = 0; j < n; j++)
            r[j] = scalar_cast(to, from, x[j], saturate);
    }
}

void bitcast_lanes(DType to, DType from, int n, const Scalar *x, Scalar *restrict r)
{
    for (int j = 0; j < n; j++) {
        uint64_t bits = 0;
        scalar_store(from, &bits, x[j]);
        r[j] = scalar_load(to, &bits);
    }
}

/* The counter hash. The key is whitened with the SplitMix64 finaliser; the counter walks a Weyl sequence
 * from there, and two rounds of the finaliser (with the key between them, so that two keys do not give
 * shifted copies of one sequence) mix it:
 *     mix(z): z = (z ^ z>>30) * 0xBF58476D1CE4E5B9; z = (z ^ z>>27) * 0x94D049BB133111EB; z ^ z>>31
 *     k = mix(key + W); word = mix(mix(k + index*W) ^ (key*W + k))
 * with W = 0x9E3779B97F4A7C15, all modulo 2^64. */
static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t random_word(uint64_t key, uint64_t index)
{
    const uint64_t w = 0x9E3779B97F4A7C15u;
    uint64_t k = random_mix(key + w);
    return random_mix(random_mix(k + index * w) ^ (key * w + k));
}

/* ---- folds --------------------------------------------------------------------------------------------- */
Scalar fold_start(FoldKind kind, DType t)
{
    Scalar s = { .u = 0 };
    switch (kind) {
    case FOLD_sum: break;
    case FOLD_prod: if (dtype_is_float(t)) s.f = 1; else s.i = 1; break;
    case FOLD_max: s = scalar_min(t); break;
    case FOLD_min: s = scalar_max(t); break;
    case FOLD_argmax: case FOLD_argmin: case FOLD_COUNT: break;
    }
    return s;
}

/* acc[j] takes x[j]; or with serial, acc[0] takes all. out, if given, gets the running values (unrounded). */
void fold_lanes(FoldKind kind, DType t, bool serial, Scalar *acc, const Scalar *x, int n, Scalar *out)
{
#define FOLD_EACH(m, v) \
    if (out) { \
        for (int j = 0; j < n; j++) { Scalar *s = acc + (serial ? 0 : j); s->m = (v); out[j] = *s; } \
    } else if (serial) { \
        Scalar *s = acc; \
        for (int j = 0; j < n; j++) s->m = (v); \
    } else { \
        for (int j = 0; j < n; j++) { Scalar *s = acc + j; s->m = (v); } \
    } \
    break;
    bool flt = dtype_is_float(t);
    switch (kind) {
    case FOLD_sum: if (flt) { FOLD_EACH(f, s->f + x[j].f) } FOLD_EACH(i, iv_add(s->i, x[j].i))
    case FOLD_prod: if (flt) { FOLD_EACH(f, s->f * x[j].f) } FOLD_EACH(i, iv_mul(s->i, x[j].i))
    case FOLD_max: if (flt) { FOLD_EACH(f, fv_max(s->f, x[j].f)) } FOLD_EACH(i, iv_max(s->i, x[j].i, t))
    case FOLD_min: if (flt) { FOLD_EACH(f, fv_min(s->f, x[j].f)) } FOLD_EACH(i, iv_min(s->i, x[j].i, t))
    case FOLD_argmax: case FOLD_argmin: case FOLD_COUNT: ASSERT(!"a fold of values");
    }
}

/* The first NaN wins; among equals the first, or the last. at[j] < 0: nothing seen yet. */
void argfold_lanes(const Node *n, bool serial, Scalar *acc, int64_t *at, const Scalar *x, int m, int64_t pos,
                   int64_t step)
{
    DType t = n->in[0]->dt;
    for (int j = 0; j < m; j++, pos += step) {
        Scalar *s = acc + (serial ? 0 : j);
        int64_t *p = at + (serial ? 0 : j);
        bool take;
        if (dtype_is_float(t)) {
            double a = n->kind == FOLD_argmax ? s->f : x[j].f, b = n->kind == FOLD_argmax ? x[j].f : s->f;
            take = *p < 0 || (!isnan(s->f) && (isnan(x[j].f) || a < b || (n->last && a == b)));
        } else {
            int64_t a = n->kind == FOLD_argmax ? s->i : x[j].i, b = n->kind == FOLD_argmax ? x[j].i : s->i;
            take = *p < 0 || iv_lt(a, b, t) || (n->last && a == b);
        }
        if (take)
            *s = x[j], *p = pos;
    }
}

Scalar combine_value(Combine how, DType t, Scalar old, Scalar x)
{
    switch (how) {
    case COMBINE_set: return x;
    case COMBINE_add: fold_lanes(FOLD_sum, t, true, &old, &x, 1, NULL); return old;
    case COMBINE_mul: fold_lanes(FOLD_prod, t, true, &old, &x, 1, NULL); return old;
    case COMBINE_max: fold_lanes(FOLD_max, t, true, &old, &x, 1, NULL); return old;
    case COMBINE_min: fold_lanes(FOLD_min, t, true, &old, &x, 1, NULL); return old;
    case COMBINE_COUNT: break;
    }
    ASSERT(!"a way to combine");
    return x;
}
