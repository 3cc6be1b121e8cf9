/* Lanes of the ready tier (ready.c): values of float32 as floats, those of small integers as int32, instead of Scalars.
 *
 * Loads, stores, casts and elementwise primitives, each a loop over at most LANES elements that the C compiler vectorises. The operations that a machine
 * rounds correctly give what rounding the double gives, so each value is bit for bit the interpreter's; what has no loop here goes through Scalars. */
#include "ir/eval.h"
#include <math.h>
#include <string.h>

/* ---- floats ----------------------------------------------------------------------------------------------------------------------------------- */
WIDE void floats_to_scalars(int n, const float *x, Scalar *r)
{
    for (int j = 0; j < n; j++)
        r[j].f = x[j];
}

/* p: constants and inputs lie at any address. */
void floats_load(const void *p, const Lanes *off, const Space *s, float *r)
{
    int lo = s->lo, hi = s->hi;
    if (!off->v && !s->mask && off->step == 1) {
        memcpy(r + lo, (const char *)p + (off->start + lo) * (int64_t)sizeof *r, (size_t)(hi - lo) * sizeof *r);
        return;
    }
    if (!off->v && !s->mask && off->step == 0) {
        const float x = float_at(p, off->start);
        for (int j = lo; j < hi; j++)
            r[j] = x;
        return;
    }
    for (int j = lo; j < hi; j++)
        if (!s->mask || s->mask[j])
            r[j] = float_at(p, off->v ? off->v[j] : off->start + off->step * j);
}

void floats_store(float *p, int64_t step, int n, const float *x)
{
    if (step == 1)
        memcpy(p, x, (size_t)n * sizeof *p);
    else
        for (int j = 0; j < n; j++)
            memcpy(p + step * j, &x[j], sizeof *p);
}

/* From float32 to a small integer, where that is plain truncation; lanes for which it is not go the general way. */
WIDE static void floats_truncate(int n, const float *x, int32_t *restrict r)
{
    for (int j = 0; j < n; j++)
        r[j] = x[j] > -2147483648.0f && x[j] < 2147483648.0f ? (int32_t)x[j] : 0;
}

WIDE static bool floats_near(int n, const float *x)
{
    int far = 0;
    for (int j = 0; j < n; j++)
        far |= !(x[j] > -2147483648.0f && x[j] < 2147483648.0f);
    return !far;
}

static void ints_wrap(DType t, int n, int32_t *r)
{
#define WRAP(dt, type) \
    case dt: \
        for (int j = 0; j < n; j++) \
            r[j] = (type)r[j]; \
        break;
    switch ((int)t) {
        INT_ROWS(WRAP)
    }
#undef WRAP
}

bool floats_to_ints(DType to, bool saturate, int n, const float *x, int32_t *restrict r)
{
    if (to == DT_bool)
        return false;
    floats_truncate(n, x, r);
    ints_wrap(to, n, r);
    if (!floats_near(n, x))
        for (int j = 0; j < n; j++)
            r[j] = (int32_t)scalar_cast(to, DT_f32, (Scalar){ .f = x[j] }, saturate).i;
    return true;
}

/* ---- small integers --------------------------------------------------------------------------------------------------------------------------- */
void ints_to_scalars(int n, const int32_t *x, Scalar *r)
{
    for (int j = 0; j < n; j++)
        r[j].i = x[j];
}

void scalars_to_ints(int n, const Scalar *x, int32_t *restrict r)
{
    for (int j = 0; j < n; j++)
        r[j] = (int32_t)x[j].i;
}

#define READ(dt, type) \
    static inline int32_t load_##type(const char *p, int64_t i) { type x; memcpy(&x, p + i * (int64_t)sizeof x, sizeof x); return x; }
INT_ROWS(READ)
#undef READ

WIDE void ints_load(DType t, const void *p, const Lanes *off, const Space *s, int32_t *restrict r)
{
    const int lo = s->lo, hi = s->hi;
    const int64_t step = off->step;
#define LOAD(dt, type) \
    case dt: { \
        if (!off->v && !s->mask && step == 1) \
            for (int j = lo; j < hi; j++) \
                r[j] = load_##type(p, off->start + j); \
        else if (!off->v && !s->mask) \
            for (int j = lo; j < hi; j++) \
                r[j] = load_##type(p, off->start + step * j); \
        else \
            for (int j = lo; j < hi; j++) \
                if (!s->mask || s->mask[j]) \
                    r[j] = load_##type(p, off->v ? off->v[j] : off->start + step * j); \
        break; \
    }
    switch ((int)t) {
        INT_ROWS(LOAD)
    case DT_bool:
        for (int j = lo; j < hi; j++)
            if (!s->mask || s->mask[j])
                r[j] = ((const uint8_t *)p)[off->v ? off->v[j] : off->start + step * j] != 0;
    }
#undef LOAD
}

WIDE void ints_store(DType t, void *p, int64_t step, int n, const int32_t *x)
{
#define STORE(dt, type) \
    case dt: \
        if (step == 1) \
            for (int j = 0; j < n; j++) { \
                type v = (type)x[j]; \
                memcpy((type *)p + j, &v, sizeof v); \
            } \
        else \
            for (int j = 0; j < n; j++) { \
                type v = (type)x[j]; \
                memcpy((type *)p + step * j, &v, sizeof v); \
            } \
        break;
    switch ((int)t) {
        INT_ROWS(STORE)
    case DT_bool:
        for (int j = 0; j < n; j++)
            ((uint8_t *)p)[step * j] = x[j] != 0;
    }
#undef STORE
}

WIDE bool ints_ew(Op op, DType t, int n, const int32_t *x, const int32_t *y, int32_t *restrict r)
{
#define EACH(v) for (int j = 0; j < n; j++) { int32_t a = x[j], b = y[j]; (void)b; r[j] = (v); } break
    if (t == DT_bool && op != OP_and && op != OP_or && op != OP_xor && op != OP_eq)
        return false;
    switch ((int)op) {
    case OP_neg: EACH((int32_t)(0u - (uint32_t)a));
    case OP_add: EACH((int32_t)((uint32_t)a + (uint32_t)b));
    case OP_sub: EACH((int32_t)((uint32_t)a - (uint32_t)b));
    case OP_mul: EACH((int32_t)((uint32_t)a * (uint32_t)b));
    case OP_max: EACH(a > b ? a : b);
    case OP_min: EACH(a < b ? a : b);
    case OP_and: EACH(a & b);
    case OP_or: EACH(a | b);
    case OP_xor: EACH(a ^ b);
    case OP_lt: EACH(a < b);
    case OP_le: EACH(a <= b);
    case OP_eq: EACH(a == b);
    default: return false;
    }
#undef EACH
    if (!prim_info[op].compares)
        ints_wrap(t, n, r);
    return true;
}

WIDE bool ints_cast(DType to, int n, const int32_t *x, void *restrict r)
{
    if (to == DT_f32) {
        for (int j = 0; j < n; j++)
            ((float *)r)[j] = (float)x[j];
        return true;
    }
    if (to == DT_bool) {
        for (int j = 0; j < n; j++)
            ((int32_t *)r)[j] = x[j] != 0;
        return true;
    }
#define IS(dt, type) case dt:
    switch ((int)to) {
        INT_ROWS(IS)
        memcpy(r, x, (size_t)n * sizeof *x);
        ints_wrap(to, n, r);
        return true;
    }
#undef IS
    return false;
}

/* ---- floats, elementwise ---------------------------------------------------------------------------------------------------------------------- */
void floats_cast(DType from, int n, const Scalar *x, float *restrict r)
{
    Scalar wide[LANES];
    cast_lanes(DT_f32, from, false, n, x, wide);
    for (int j = 0; j < n; j++)
        r[j] = (float)wide[j].f;
}

WIDE void floats_ew(Op op, int n, const float *x, const float *y, void *restrict to)
{
    float *restrict r = to;
    int32_t *restrict truth = to;
#define EACH(v) for (int j = 0; j < n; j++) { float a = x[j], b = y[j]; (void)b; r[j] = (v); } return
#define TEST(v) for (int j = 0; j < n; j++) truth[j] = (v); return
    switch ((int)op) {
    case OP_neg: EACH(-a);
    case OP_abs: EACH(fabsf(a));
    case OP_add: EACH(a + b);
    case OP_sub: EACH(a - b);
    case OP_mul: EACH(a * b);
    case OP_div: EACH(a / b);
    case OP_sqrt: EACH(sqrtf(a));
    case OP_floor: EACH(floorf(a));
    case OP_ceil: EACH(ceilf(a));
    case OP_trunc: EACH(truncf(a));
    case OP_round: EACH(rintf(a));
    case OP_max: EACH(max_float(a, b));
    case OP_min: EACH(min_float(a, b));
    case OP_lt: TEST(x[j] < y[j]);
    case OP_le: TEST(x[j] <= y[j]);
    case OP_eq: TEST(x[j] == y[j]);
    }
#undef EACH
#undef TEST
    Scalar a[LANES] = { 0 }, b[LANES] = { 0 }, v[LANES];
    floats_to_scalars(n, x, a);
    if (y != x)
        floats_to_scalars(n, y, b);
    ASSERT(!prim_info[op].compares);
    ew_lanes(op, DT_f32, n, a, y != x ? b : a, v);
    for (int j = 0; j < n; j++)
        r[j] = (float)v[j].f;
}
