/* Element types: names, sizes, and exact conversions between every type and a Scalar.
 *
 * Every small float is described by one row of `minis` and converted by two functions. A double holds each value of
 * each of them exactly, so decoding builds the bits of a double; encoding takes the double's 53 significant bits,
 * drops those that do not fit and rounds to nearest even in integers. A carry out of the fraction moves into the
 * exponent by itself, which makes the code of the next power of two, and of infinity after the largest value.
 *
 *     double:  s eeeeeeeeeee ffff...f      shift right by 52 - mbits (more below the smallest normal) and round
 *     f8e5m2:  s eeeee ff
 *
 * Loading and storing an element keeps every bit pattern, the payloads of NaN included. */
#include "base/base.h"
#include <math.h>
#include <string.h>

const DTypeInfo dtype_info[DT_COUNT] = {
    [DT_none] = { "none", "V0", "void", 0, 0, 0, DT_none },
#define DTYPE(name, onnx, class, bytes, compute, numpy, ctype) \
    [DT_##name] = { #name, numpy, #ctype, onnx, bytes, #class[0], DT_##compute },
#include "base/dtypes.def"
#undef DTYPE
};

DType dtype_from_onnx(int code)
{
    for (DType t = DT_none + 1; t < DT_COUNT; t++)
        if (dtype_info[t].onnx == code)
            return t;
    return DT_none;
}

DType dtype_from_name(const char *s)
{
    for (DType t = DT_none + 1; t < DT_COUNT; t++)
        if (!strcmp(dtype_info[t].name, s))
            return t;
    return DT_none;
}

int dtype_bits(DType t)
{
    switch (t) {
    case DT_i4: case DT_u4: case DT_f4e2m1:
        return 4;
    case DT_i2: case DT_u2:
        return 2;
    default:
        return 8 * dtype_info[t].bytes;
    }
}

/* ---- small floats -------------------------------------------------------------------------------------------------- */

typedef enum Specials {
    IEEE,                               /* the largest exponent holds infinity and NaN */
    ONE_NAN,                            /* no infinity; all ones is NaN (names ending in fn) */
    ZERO_NAN,                           /* no infinity, no -0: the code of -0 is NaN (names ending in fnuz) */
    FINITE                              /* neither */
} Specials;

typedef struct Mini {
    int bits, mbits, bias;
    uint32_t max;                       /* code of the largest finite value */
    Specials specials;
} Mini;

static const Mini minis[DT_COUNT] = {
    [DT_f16]        = { 16, 10,  15, 0x7BFF, IEEE },
    [DT_bf16]       = { 16,  7, 127, 0x7F7F, IEEE },
    [DT_f8e4m3fn]   = {  8,  3,   7, 0x7E,   ONE_NAN },
    [DT_f8e4m3fnuz] = {  8,  3,   8, 0x7F,   ZERO_NAN },
    [DT_f8e5m2]     = {  8,  2,  15, 0x7B,   IEEE },
    [DT_f8e5m2fnuz] = {  8,  2,  16, 0x7F,   ZERO_NAN },
    [DT_f4e2m1]     = {  4,  1,   1, 0x7,    FINITE },
};

static uint64_t double_bits(double v) { uint64_t b; memcpy(&b, &v, sizeof b); return b; }
static double bits_double(uint64_t b) { double v; memcpy(&v, &b, sizeof v); return v; }
/* 2^e for an exponent that a normal double has. */
static double power_of_two(int e) { return bits_double((uint64_t)(e + 1023) << 52); }

#define DOUBLE_INF ((uint64_t)0x7FF << 52)

static double mini_decode(const Mini *f, uint32_t code)
{
    uint32_t sign_bit = 1u << (f->bits - 1), mag = code & (sign_bit - 1), frac = mag & ((1u << f->mbits) - 1);
    uint64_t sign = (uint64_t)((code & sign_bit) != 0) << 63;
    int e = (int)(mag >> f->mbits);
    if (f->specials == ZERO_NAN && code == sign_bit)
        return bits_double(DOUBLE_INF | (uint64_t)1 << 51);
    if (mag > f->max && f->specials == ONE_NAN)
        return bits_double(sign | DOUBLE_INF | (uint64_t)1 << 51);
    if (mag > f->max && f->specials == IEEE)
        return bits_double(sign | DOUBLE_INF | (uint64_t)frac << (52 - f->mbits));
    if (e == 0) {
        double v = frac * power_of_two(1 - f->bias - f->mbits);
        return sign ? -v : v;
    }
    return bits_double(sign | (uint64_t)(e - f->bias + 1023) << 52 | (uint64_t)frac << (52 - f->mbits));
}

/* The code of NaN; `payload` has the fraction of the double. */
static uint32_t mini_nan(const Mini *f, uint32_t sign, uint64_t payload)
{
    switch (f->specials) {
    case IEEE: {
        uint32_t kept = (uint32_t)(payload >> (52 - f->mbits));
        return sign | (f->max + 1) | (kept ? kept : 1u << (f->mbits - 1));
    }
    case ONE_NAN:
        return sign | (f->max + 1);
    case ZERO_NAN:
        return 1u << (f->bits - 1);
    case FINITE:                        /* a zero of the other sign, as ml_dtypes (and so ONNX's own data) has it */
        break;
    }
    return sign ^ 1u << (f->bits - 1);
}

static uint32_t mini_encode(const Mini *f, double v, bool saturate)
{
    uint64_t bits = double_bits(v), frac = bits & (((uint64_t)1 << 52) - 1);
    uint32_t sign = (uint32_t)(bits >> 63) << (f->bits - 1);
    int e = (int)(bits >> 52 & 0x7FF);
    if (e == 0x7FF && frac)
        return mini_nan(f, sign, frac);

    uint32_t mag = f->max + 1;          /* infinity and far too large */
    int field = e - 1023 + f->bias;     /* exponent field before rounding; < 1 below the smallest normal value */
    if (e != 0x7FF && field < (1 << 15)) {
        uint64_t whole = e ? frac | (uint64_t)1 << 52 : frac;
        int drop = 52 - f->mbits + (field < 1 ? 1 - field : 0);
        uint64_t kept = 0;
        if (drop < 64) {
            uint64_t rest = whole & (((uint64_t)1 << drop) - 1), half = (uint64_t)1 << (drop - 1);
            kept = whole >> drop;
            kept += rest > half || (rest == half && (kept & 1));
        }
        /* kept contains the leading one of a normal value, which counts as one step of the exponent */
        uint64_t code = kept + (field > 1 ? (uint64_t)(field - 1) << f->mbits : 0);
        if (code <= f->max)
            mag = (uint32_t)code;
    }
    if (mag > f->max) {
        if (f->specials == FINITE || (saturate && f->bits == 8))
            mag = f->max;
        else if (f->specials != IEEE)
            return mini_nan(f, sign, 0);
    }
    if (f->specials == ZERO_NAN && mag == 0)
        return 0;
    return sign | mag;
}

/* f8e8m0 is a bare power of two, 2^(code - 127), and 0xFF is NaN. ONNX's Cast defines two combinations: saturating
 * rounds up and clamps to the range (zero gives the smallest value); the other rounds to nearest, ties up, and gives
 * NaN outside the range. Negative values, which ONNX leaves open, are NaN. */
static uint32_t scale_encode(double v, bool saturate)
{
    if (isnan(v) || v < 0)
        return 0xFF;
    if (v < power_of_two(-127))
        return saturate ? 0 : 0xFF;
    if (isinf(v))
        return saturate ? 0xFE : 0xFF;
    int e;
    double m = frexp(v, &e);            /* v = m * 2^e with m in [0.5, 1) */
    int code = e - 1 + 127 + (saturate ? m > 0.5 : m >= 0.75);
    return code <= 0xFE ? (uint32_t)code : saturate ? 0xFE : 0xFF;
}

static double scale_decode(uint32_t code)
{
    return code == 0xFF ? bits_double(DOUBLE_INF | (uint64_t)1 << 51) : power_of_two((int)code - 127);
}

/* ---- load and store ------------------------------------------------------------------------------------------------- */

static double load_f32(const void *p)
{
    float f;
    uint32_t b;
    memcpy(&f, p, sizeof f);
    if (f == f)
        return f;
    memcpy(&b, p, sizeof b);            /* by bits: a conversion would make a signalling NaN quiet */
    return bits_double((uint64_t)(b >> 31) << 63 | DOUBLE_INF | (uint64_t)(b & 0x7FFFFF) << 29);
}

static void store_f32(void *p, double v)
{
    if (v == v) {
        float f = (float)v;
        memcpy(p, &f, sizeof f);
        return;
    }
    uint64_t bits = double_bits(v);
    uint32_t frac = (uint32_t)(bits >> 29) & 0x7FFFFF;
    uint32_t b = (uint32_t)(bits >> 63) << 31 | 0x7F800000 | (frac ? frac : 0x400000);
    memcpy(p, &b, sizeof b);
}

/* The low `bits` bits of v, with or without sign. */
static int64_t wrap_int(int64_t v, int bits, bool is_signed)
{
    if (bits == 64)
        return v;
    uint64_t low = (uint64_t)v & (((uint64_t)1 << bits) - 1), top = (uint64_t)1 << (bits - 1);
    return is_signed ? (int64_t)(low ^ top) - (int64_t)top : (int64_t)low;
}

#define LOAD_INT(type) do { type x; memcpy(&x, p, sizeof x); v.i = (int64_t)x; } while (0)
#define STORE_INT(type) do { type x = (type)v.u; memcpy(p, &x, sizeof x); } while (0)

Scalar scalar_load(DType t, const void *p)
{
    Scalar v = { .i = 0 };
    uint16_t half;
    const uint8_t *byte = p;
    switch (t) {
    case DT_f32: v.f = load_f32(p); break;
    case DT_f64: memcpy(&v.f, p, sizeof v.f); break;
    case DT_f16: case DT_bf16:
        memcpy(&half, p, sizeof half);
        v.f = mini_decode(&minis[t], half);
        break;
    case DT_f8e4m3fn: case DT_f8e4m3fnuz: case DT_f8e5m2: case DT_f8e5m2fnuz:
        v.f = mini_decode(&minis[t], *byte);
        break;
    case DT_f4e2m1: v.f = mini_decode(&minis[t], *byte & 0xF); break;
    case DT_f8e8m0: v.f = scale_decode(*byte); break;
    case DT_i8: LOAD_INT(int8_t); break;
    case DT_i16: LOAD_INT(int16_t); break;
    case DT_i32: LOAD_INT(int32_t); break;
    case DT_i64: case DT_u64: memcpy(&v.i, p, sizeof v.i); break;
    case DT_u8: v.i = *byte; break;
    case DT_u16: LOAD_INT(uint16_t); break;
    case DT_u32: LOAD_INT(uint32_t); break;
    case DT_i4: case DT_u4: case DT_i2: case DT_u2:
        v.i = wrap_int(*byte, dtype_bits(t), dtype_info[t].class == 'S');
        break;
    case DT_bool: v.i = *byte != 0; break;
    case DT_none: case DT_COUNT: ASSERT(!"an element type"); break;
    }
    return v;
}

/* Bytes of a four- or two-bit integer hold its value (i4 -1 is 0xFF): C code reads them as int8_t or uint8_t. */
void scalar_store(DType t, void *p, Scalar v)
{
    uint8_t *byte = p;
    switch (t) {
    case DT_f32: store_f32(p, v.f); break;
    case DT_f64: memcpy(p, &v.f, sizeof v.f); break;
    case DT_f16: case DT_bf16: {
        uint16_t half = (uint16_t)mini_encode(&minis[t], v.f, false);
        memcpy(p, &half, sizeof half);
        break;
    }
    case DT_f8e4m3fn: case DT_f8e4m3fnuz: case DT_f8e5m2: case DT_f8e5m2fnuz: case DT_f4e2m1:
        *byte = (uint8_t)mini_encode(&minis[t], v.f, false);
        break;
    case DT_f8e8m0: *byte = (uint8_t)scale_encode(v.f, false); break;
    case DT_i8: case DT_u8: *byte = (uint8_t)v.u; break;
    case DT_i16: case DT_u16: STORE_INT(uint16_t); break;
    case DT_i32: case DT_u32: STORE_INT(uint32_t); break;
    case DT_i64: case DT_u64: memcpy(p, &v.u, sizeof v.u); break;
    case DT_i4: case DT_u4: case DT_i2: case DT_u2:
        *byte = (uint8_t)wrap_int(v.i, dtype_bits(t), dtype_info[t].class == 'S');
        break;
    case DT_bool: *byte = v.i != 0; break;
    case DT_none: case DT_COUNT: ASSERT(!"an element type"); break;
    }
}

/* ---- rounding and casts ----------------------------------------------------------------------------------------------- */

Scalar scalar_round(DType t, Scalar v, bool saturate)
{
    float f;
    switch (t) {
    case DT_f64: break;
    case DT_f32:
        store_f32(&f, v.f);
        v.f = load_f32(&f);
        break;
    case DT_f16: case DT_bf16: case DT_f8e4m3fn: case DT_f8e4m3fnuz: case DT_f8e5m2: case DT_f8e5m2fnuz:
    case DT_f4e2m1:
        v.f = mini_decode(&minis[t], mini_encode(&minis[t], v.f, saturate));
        break;
    case DT_f8e8m0: v.f = scale_decode(scale_encode(v.f, saturate)); break;
    case DT_i8: case DT_i16: case DT_i32: case DT_i64: case DT_i4: case DT_i2:
        v.i = wrap_int(v.i, dtype_bits(t), true);
        break;
    case DT_u8: case DT_u16: case DT_u32: case DT_u64: case DT_u4: case DT_u2:
        v.i = wrap_int(v.i, dtype_bits(t), false);
        break;
    case DT_bool: v.i = v.i != 0; break;
    case DT_none: case DT_COUNT: ASSERT(!"an element type"); break;
    }
    return v;
}

/* A whole number as a double. More than 53 bits do not fit: for a target narrower than f64 the lowest bit kept is set
 * when anything is dropped (rounding to odd), so that the second rounding, to the target, is the only visible one. */
static double int_to_double(Scalar v, bool is_unsigned, bool to_f64)
{
    bool minus = !is_unsigned && v.i < 0;
    uint64_t mag = minus ? 0 - v.u : v.u;
    if (!to_f64 && mag >> 53 && (mag & 0x7FF))
        mag = (mag & ~(uint64_t)0x7FF) | 0x800;
    double d = (double)mag;
    return minus ? -d : d;
}

static uint64_t double_to_bits64(double v, bool to_u64)
{
    if (isnan(v))
        return 0;
    v = trunc(v);
    if (to_u64)
        return v >= 0x1p64 ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
    return v >= 0x1p63 ? (uint64_t)INT64_MAX : v < -0x1p63 ? (uint64_t)INT64_MIN : (uint64_t)(int64_t)v;
}

Scalar scalar_cast(DType to, DType from, Scalar v, bool saturate)
{
    bool from_float = dtype_is_float(from);
    if (to == DT_bool)
        return (Scalar){ .i = from_float ? v.f != 0 : v.i != 0 };
    if (dtype_is_float(to)) {
        if (!from_float)
            v.f = int_to_double(v, from == DT_u64, to == DT_f64);
        return scalar_round(to, v, saturate);
    }
    if (from_float)
        v.u = double_to_bits64(v.f, to == DT_u64);
    return scalar_round(to, v, saturate);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------------- */

static Scalar bound(DType t, bool top)
{
    switch (dtype_info[t].class) {
    case 'F':
        if (t == DT_f8e8m0)
            return (Scalar){ .f = scale_decode(top ? 0xFE : 0) };
        double v = t == DT_f32 || t == DT_f64 || minis[t].specials == IEEE ? (double)INFINITY
                                                                          : mini_decode(&minis[t], minis[t].max);
        return (Scalar){ .f = top ? v : -v };
    case 'S': {
        int64_t max = (int64_t)(UINT64_MAX >> (65 - dtype_bits(t)));
        return (Scalar){ .i = top ? max : -max - 1 };
    }
    case 'U':
        return (Scalar){ .u = top ? UINT64_MAX >> (64 - dtype_bits(t)) : 0 };
    }
    return (Scalar){ .i = top };        /* bool */
}

Scalar scalar_min(DType t) { return bound(t, false); }
Scalar scalar_max(DType t) { return bound(t, true); }
