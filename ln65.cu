#line 1 "prelude"
/* sinter kernel prelude, CUDA C++ without headers */
typedef float f32; typedef double f64;
typedef signed char i8; typedef short i16; typedef int i32; typedef long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
#define FN static __device__ __forceinline__
#define SLOW static __device__ __noinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define ALIGN(n) __align__(n)
/* several elements that are moved at once, packed: see rows and packs */
#define PACK(t, n) Vec<n * (int)sizeof(t)>
#define PACK_LOAD(r, type, p) pack_load(r, p)
#define PACK_PASS(r, type, p) pack_pass(r, p)
#define PACK_STORE(r, type, p) pack_store(r, p)
#define PACK_LEAVE(r, type, p) (r).leave(p)
#define GLOBAL
#define LOCAL
#define BARRIER __syncthreads()
#define FIRST_TO_SET(err) (atomicCAS((unsigned long long *)(err), 0ull, 1ull) == 0)
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000)
#define __builtin_nanf(s) __int_as_float(0x7fc00000)
#define __builtin_nan(s) __longlong_as_double(0x7ff8000000000000)
#define INF __builtin_inf()
#define __builtin_expect(c, v) (c)
#define __builtin_fabsf fabsf
#define __builtin_copysignf copysignf
#define __builtin_copysign copysign
#define __builtin_fmaf __fmaf_rn
#define __builtin_fma __fma_rn
#define __builtin_sqrtf __fsqrt_rn
#define __builtin_sqrt __dsqrt_rn
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_ceilf ceilf
#define __builtin_ceil ceil
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_rintf rintf
#define __builtin_rint rint
/* within a warp by shuffles, then over the warps; a team is a power of two of at least 32 threads */
#define TEAM_FOLD(name, t, both) FN t both_##name##_##t(t a, t b) { return both; } FN t team_##name##_##t(i64 *shared, int thread, int team, t v) { \
    for (int h = 16; h > 0; h /= 2) { const t a = v, b = __shfl_xor_sync(~0u, v, h); v = both; } \
    if (team > 32) { \
        t *const s = (t *)shared; \
        BARRIER; if (thread % 32 == 0) s[thread / 32] = v; BARRIER; \
        v = s[0]; \
        for (int w = 1; w < team / 32; w++) { const t a = v, b = s[w]; v = both; } \
    } \
    return v; }
#define FN2 __device__ __forceinline__      /* of a class */
/* NaN if either is; +0 is above -0 */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#define HAVE_MAX
FN f32 max_f32(f32 a, f32 b) { f32 r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN f32 min_f32(f32 a, f32 b) { f32 r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN f64 max_f64(f64 a, f64 b) { return a != a || b != b ? a + b : a > b ? a : a == b ? __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b)) : b; }
FN f64 min_f64(f64 a, f64 b) { return a != a || b != b ? a + b : a < b ? a : a == b ? __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b)) : b; }
#define HAVE_BF16
/* the conversion of two values at once runs at full speed, that of one does not: x goes into the upper half, where a float has it */
FN f32 round_bf16(f32 x) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(0.0f)); return __uint_as_float(r); }
FN i32 to_bf16(f32 x) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(x)); return (i32)(r & 65535); }
#endif
#ifdef __CUDA_ARCH__
#define HAVE_EXP
FN f32 exp_f32(f32 x) { return expf(x); }        /* within 2 units in the last place, also below 2^-126 */
/* Of what is rounded to 16 bits: within 2^-17 of the value, a 64th of what that rounding may take; below 2^-126 it is 0. */
#define HAVE_ROUGH
FN f32 rough_exp_f32(f32 x) { f32 r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f)); return r; }
FN f32 rough_sigmoid_f32(f32 x) { f32 r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + rough_exp_f32(-x))); return r; }
/* |x| < 0.625: odd polynomial; else 1 - 2/(e^2|x| + 1), where the quotient is at most half the result: an approximate reciprocal (1 ulp) serves */
#define HAVE_TANH
FN f32 tanh_f32(f32 x) {
    const f32 a = fabsf(x), z = x * x;
    f32 p = fmaf(fmaf(fmaf(fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f), z, -5.37397155531e-2f), z, 1.33314422036e-1f), z, -3.33332819422e-1f), d, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a * 2.88539008f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d + 1.0f));
    return copysignf(a < 0.625f ? fmaf(p * z, a, a) : fmaf(-2.0f, r, 1.0f), x);
}
/* see math; 1 + e lies between 1 and 2, so an approximate reciprocal (1 ulp) serves */
#define HAVE_SIGMOID
FN f32 sigmoid_f32(f32 x) { const f32 e = expf(-fabsf(x)); f32 r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e)); return x < 0.0f ? e * r : r; }
#define HAVE_F16
FN f32 from_f16(i32 h) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)h)); return r; }
FN i32 to_f16(f32 x) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h; }
FN f32 round_f16(f32 x) { return from_f16(to_f16(x)); }
#endif
/* ---- kernels for groups of threads: behind the words of a dialect (GLOBAL, LOCAL, BARRIER, TEAM_FOLD ...) ---- */
#define IS_SIMT 1
#define IS_VECTOR 0
FN i64 idiv(i64 a, i64 b) { i64 q = a / b; return q - (a % b < 0); }     /* floor, b > 0 */
FN i64 imod(i64 a, i64 b) { i64 r = a % b; return r < 0 ? r + b : r; }
FN i64 imin(i64 a, i64 b) { return a < b ? a : b; }
FN i64 imax(i64 a, i64 b) { return a > b ? a : b; }
/* for 0 <= a, 0 < b: 64 bits cost a GPU several times what 32 do */
FN i64 quot(i64 a, i64 b) { return (u64)(a | b) >> 32 ? a / b : (i64)((u32)a / (u32)b); }
FN i64 rest(i64 a, i64 b) { return (u64)(a | b) >> 32 ? a % b : (i64)((u32)a % (u32)b); }
/* several elements that are moved at once */
#define ALIGNED(p, n) (((u64)(p) & ((n) - 1)) == 0)
#ifndef PACK
#define PACK(t, n) t##_##n
#define PACK_LOAD(r, type, p) ((r) = *(GLOBAL const type *)(p))
#define PACK_STORE(r, type, p) (*(GLOBAL type *)(p) = (r))
#define PACK_PASS(r, type, p) PACK_LOAD(r, type, p)
#define PACK_LEAVE(r, type, p) PACK_STORE(r, type, p)
#define PACK_GET(s, r, i) ld_##s(&(r).e[i])
#define PACK_PUT(s, r, i, v) st_##s(&(r).e[i], v)
#define PACKS(t, size) typedef struct ALIGN(2 * size) { t e[2]; } t##_2; typedef struct ALIGN(4 * size > 16 ? 16 : 4 * size) { t e[4]; } t##_4; typedef struct ALIGN(8 * size > 16 ? 16 : 8 * size) { t e[8]; } t##_8;
PACKS(f32, 4) PACKS(f64, 8) PACKS(i8, 1) PACKS(u8, 1) PACKS(i16, 2) PACKS(u16, 2) PACKS(i32, 4) PACKS(u32, 4) PACKS(i64, 8) PACKS(u64, 8)
#endif
/* an index outside its axis: one of them is reported, the access goes to element 0 */
FN i64 check_index(GLOBAL i64 *err, i64 site, i64 v, i64 n)
{
    if ((u64)v < (u64)n) return v;
    if (FIRST_TO_SET(err)) { err[1] = site; err[2] = v; err[3] = n; }
    return 0;
}
#ifndef HAVE_ROUGH                       /* for what is rounded to 16 bits: see cuda */
#define rough_exp_f32 exp_f32
#define rough_sigmoid_f32 sigmoid_f32
#endif
/* memory: macros, since a pointer may be to global memory or to a row of the group */
#define ld_f32(p) (*(p))
#define ld_f64(p) (*(p))
#define ld_i32(p) (*(p))
#define ld_u32(p) (*(p))
#define ld_i64(p) (*(p))
#define ld_u64(p) (*(p))
#define ld_i8(p) ((i32)*(p))
#define ld_i16(p) ((i32)*(p))
#define ld_u8(p) ((i32)*(p))
#define ld_u16(p) ((i32)*(p))
#define ld_bool(p) (-(i32)(*(p) != 0))
#define ld_f16(p) from_f16((i32)*(p))
#define ld_bf16(p) from_bf16((i32)*(p))
#define st_f32(p, v) (*(p) = (v))
#define st_f64(p, v) (*(p) = (v))
#define st_i32(p, v) (*(p) = (v))
#define st_u32(p, v) (*(p) = (v))
#define st_i64(p, v) (*(p) = (v))
#define st_u64(p, v) (*(p) = (v))
#define st_i8(p, v) (*(p) = (i8)(v))
#define st_i16(p, v) (*(p) = (i16)(v))
#define st_u8(p, v) (*(p) = (u8)(v))
#define st_u16(p, v) (*(p) = (u16)(v))
#define st_bool(p, v) (*(p) = (u8)((v) & 1))
#define st_f16(p, v) (*(p) = (u16)to_f16(v))
#define st_bf16(p, v) (*(p) = (u16)((u32)bits_f32(v) >> 16))     /* values of narrow dtypes are rounded already */
/* ---- one element, used lane by lane ---- */
/* x / 0 = 0, lowest / -1 wraps; mod takes the divisor's sign, fmod the dividend's */
FN i32 div1_i32(i32 a, i32 b) { return b == 0 ? 0 : b == -1 ? -a : a / b; }
FN i64 div1_i64(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? -a : a / b; }
FN u32 div1_u32(u32 a, u32 b) { return b == 0 ? 0 : a / b; }
FN u64 div1_u64(u64 a, u64 b) { return b == 0 ? 0 : a / b; }
FN i32 fmod1_i32(i32 a, i32 b) { return b == 0 || b == -1 ? 0 : a % b; }
FN i64 fmod1_i64(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
FN u32 fmod1_u32(u32 a, u32 b) { return b == 0 ? 0 : a % b; }
FN u64 fmod1_u64(u64 a, u64 b) { return b == 0 ? 0 : a % b; }
FN i32 mod1_i32(i32 a, i32 b) { i32 r = fmod1_i32(a, b); return r && (r < 0) != (b < 0) ? r + b : r; }
FN i64 mod1_i64(i64 a, i64 b) { i64 r = fmod1_i64(a, b); return r && (r < 0) != (b < 0) ? r + b : r; }
FN f32 mod1_f32(f32 a, f32 b) { f32 r = fmodf(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r == 0 ? __builtin_copysignf(r, b) : r; }
FN f64 mod1_f64(f64 a, f64 b) { f64 r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r == 0 ? __builtin_copysign(r, b) : r; }
#define POW1(t) FN t pow1_##t(t a, t b) { t r = 1; if (b < 0) return a == 1 ? 1 : a == (t)-1 ? ((b & 1) ? (t)-1 : 1) : 0; for (; b; b = (t)((u64)b >> 1), a = a * a) if (b & 1) r = r * a; return r; }
POW1(i32) POW1(i64) POW1(u32) POW1(u64)
#undef POW1
/* ---- casts: float to integer truncates, NaN gives 0, far values saturate at 64 bits and wrap ---- */
FN i64 to1_i64(f64 x) { return x != x ? 0 : x >= 9223372036854775808.0 ? 0x7fffffffffffffffl : x <= -9223372036854775808.0 ? -0x7fffffffffffffffl - 1 : (i64)x; }
FN u64 to1_u64(f64 x) { return x != x || x <= 0 ? 0 : x >= 18446744073709551616.0 ? ~0ul : x < 9223372036854775808.0 ? (u64)(i64)x : (u64)(i64)(x - 9223372036854775808.0) ^ 0x8000000000000000ul; }
enum { CODE_IEEE, CODE_FN, CODE_UZ, CODE_FIN };    /* see casts */
/* counter-based random words: the same as ir/value.c */
FN u64 random_mix(u64 z) { z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ul; z = (z ^ (z >> 27)) * 0x94D049BB133111EBul; return z ^ (z >> 31); }
FN u64 random_word(u64 key, u64 index)
{
    const u64 w = 0x9E3779B97F4A7C15ul, k = random_mix(key + w);
    return random_mix(random_mix(k + index * w) ^ (key * w + k));
}
/* ---- one lane ---- */
#define MASK(c) (-(i32)(c))
FN i32 bits_f32(f32 x) { union { f32 f; i32 i; } u; u.f = x; return u.i; }
FN f32 from_bits_f32(i32 x) { union { i32 i; f32 f; } u; u.i = x; return u.f; }
FN i64 bits_f64(f64 x) { union { f64 f; i64 i; } u; u.f = x; return u.i; }
FN f64 from_bits_f64(i64 x) { union { i64 i; f64 f; } u; u.i = x; return u.f; }
#define SCALAR_SEL(t) FN t sel_##t(i32 m, t a, t b) { return m ? a : b; }
SCALAR_SEL(f32) SCALAR_SEL(f64) SCALAR_SEL(i32) SCALAR_SEL(u32) SCALAR_SEL(i64) SCALAR_SEL(u64)
#define SCALAR_CMP(t) FN i32 lt_##t(t a, t b) { return MASK(a < b); } FN i32 le_##t(t a, t b) { return MASK(a <= b); } FN i32 eq_##t(t a, t b) { return MASK(a == b); }
SCALAR_CMP(f32) SCALAR_CMP(f64) SCALAR_CMP(i32) SCALAR_CMP(u32) SCALAR_CMP(i64) SCALAR_CMP(u64)
FN i32 any(i32 m) { return m; }
FN i32 outside(f32 x) { return !(__builtin_fabsf(x) < 2147483648.0f); }       /* what i32 does not hold */
#define SCALAR_CVT(to, from) FN to cvt_##from##_##to(from x) { return (to)x; }
SCALAR_CVT(f32, i32) SCALAR_CVT(f32, u32) SCALAR_CVT(f32, i64) SCALAR_CVT(f32, u64) SCALAR_CVT(f32, f64) SCALAR_CVT(f64, f32) SCALAR_CVT(f64, i32) SCALAR_CVT(f64, u32)
SCALAR_CVT(f64, i64) SCALAR_CVT(f64, u64) SCALAR_CVT(i32, u32) SCALAR_CVT(i32, i64) SCALAR_CVT(i32, u64) SCALAR_CVT(u32, i32) SCALAR_CVT(u32, i64) SCALAR_CVT(u32, u64)
FN i32 cvt_f32_i32(f32 x) { return (i32)x; }
SCALAR_CVT(i64, i32) SCALAR_CVT(i64, u32) SCALAR_CVT(i64, u64) SCALAR_CVT(u64, i32) SCALAR_CVT(u64, u32) SCALAR_CVT(u64, i64)
#if !IS_SIMT                            /* there, loads are macros for any kind of pointer */
#define SCALAR_LD(s, c) FN c ld_##s(const s *p) { return *(const s##_m *)p; } FN void st_##s(s *p, c v) { *(s##_m *)p = (s)v; }
SCALAR_LD(f32, f32) SCALAR_LD(f64, f64) SCALAR_LD(i8, i32) SCALAR_LD(i16, i32) SCALAR_LD(i32, i32) SCALAR_LD(i64, i64)
SCALAR_LD(u8, i32) SCALAR_LD(u16, i32) SCALAR_LD(u32, u32) SCALAR_LD(u64, u64)
/* 0 where c is not: the address is chosen, so that no branch is needed */
#define SCALAR_LDIF(s, c) FN c ldif_##s(const s *p, i32 ok) { static const s none = 0; return ld_##s(ok ? p : &none); }
SCALAR_LDIF(f32, f32) SCALAR_LDIF(f64, f64) SCALAR_LDIF(i8, i32) SCALAR_LDIF(i16, i32) SCALAR_LDIF(i32, i32) SCALAR_LDIF(i64, i64)
SCALAR_LDIF(u8, i32) SCALAR_LDIF(u16, i32) SCALAR_LDIF(u32, u32) SCALAR_LDIF(u64, u64)
FN i32 ld_bool(const u8 *p) { return -(i32)(*p != 0); }
FN void st_bool(u8 *p, i32 v) { *p = v & 1; }
#endif
/* c and the four products of unsigned bytes of x and signed bytes of w */
FN i32 dot4(i32 x, i32 w, i32 c) { for (int i = 0; i < 4; i++) c += (i32)((u32)x >> 8 * i & 255) * (i32)((i32)((u32)w << (24 - 8 * i)) >> 24); return c; }
/* c and the products of both pairs of bfloat16 */
FN f32 dot2(i32 x, i32 w, f32 c) { for (int i = 16; i >= 0; i -= 16) c += from_bits_f32((i32)((u32)x << (16 - i)) & -65536) * from_bits_f32((i32)((u32)w << (16 - i)) & -65536); return c; }
/* multiply and add: one rounding where the processor does that, two where a library would have to */
#if IS_SIMT || defined __FMA__ || defined __ARM_FEATURE_FMA
#define HAVE_FMA
FN f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
FN f64 fma_f64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
#else
FN f32 fma_f32(f32 a, f32 b, f32 c) { return a * b + c; }
FN f64 fma_f64(f64 a, f64 b, f64 c) { return a * b + c; }
#endif
FN f32 sqrt_f32(f32 a) { return __builtin_sqrtf(a); }
FN f64 sqrt_f64(f64 a) { return __builtin_sqrt(a); }
FN f32 splat_f32(f32 x) { return x; } FN f64 splat_f64(f64 x) { return x; } FN i32 splat_i32(i32 x) { return x; }
FN u32 splat_u32(u32 x) { return x; } FN i64 splat_i64(i64 x) { return x; } FN u64 splat_u64(u64 x) { return x; }
#define EACH1(t, name, f) FN t name##_##t(t x) { return f(x); }
#define EACH2(t, name, f) FN t name##_##t(t x, t y) { return f(x, y); }
FN f32 floor_f32(f32 x) { return __builtin_floorf(x); } FN f32 ceil_f32(f32 x) { return __builtin_ceilf(x); }
FN f32 trunc_f32(f32 x) { return __builtin_truncf(x); } FN f32 round_f32(f32 x) { return __builtin_rintf(x); }
FN f64 floor_f64(f64 x) { return __builtin_floor(x); } FN f64 ceil_f64(f64 x) { return __builtin_ceil(x); }
FN f64 trunc_f64(f64 x) { return __builtin_trunc(x); } FN f64 round_f64(f64 x) { return __builtin_rint(x); }
#define EACH_TO(from, to, f) FN to int_##from##_##to(from x) { return f(x); }
/* ---- functions of the primitives, for one lane and for LANES (suffix v) ---- */
FN f32 abs_f32(f32 x) { return from_bits_f32(bits_f32(x) & 0x7fffffff); }
FN f64 abs_f64(f64 x) { return from_bits_f64(bits_f64(x) & 0x7fffffffffffffffl); }
FN i32 abs_i32(i32 x) { return sel_i32(lt_i32(x, splat_i32(0)), (i32)(0 - (u32)x), x); }
FN i64 abs_i64(i64 x) { return sel_i64(lt_i64(x, splat_i64(0)), (i64)(0 - (u64)x), x); }
FN u32 abs_u32(u32 x) { return x; }
FN u64 abs_u64(u64 x) { return x; }
FN f32 div_f32(f32 a, f32 b) { return a / b; }
FN f64 div_f64(f64 a, f64 b) { return a / b; }
/* NaN if either is; +0 is above -0 */
#if !IS_VECTOR && !defined HAVE_MAX     /* lanes: see vector */
#define PICK1(t, name, op, both) FN t name##_##t(t a, t b) { return a != a || b != b ? a + b : a op b ? a : a == b ? from_bits_##t(bits_##t(a) both bits_##t(b)) : b; }
PICK1(f32, max, >, &) PICK1(f32, min, <, |) PICK1(f64, max, >, &) PICK1(f64, min, <, |)
#endif
#define MINMAX(t, T) FN T max_##T(T a, T b) { return sel_##T(lt_##T(a, b), b, a); } FN T min_##T(T a, T b) { return sel_##T(lt_##T(b, a), b, a); }
MINMAX(i32, i32) MINMAX(u32, u32)
#if !IS_VECTOR
MINMAX(i64, i64) MINMAX(u64, u64)
#endif
#undef MINMAX
/* integers: see helpers */
EACH2(i32, div, div1_i32) EACH2(i64, div, div1_i64) EACH2(u32, div, div1_u32) EACH2(u64, div, div1_u64)
EACH2(i32, fmod, fmod1_i32) EACH2(i64, fmod, fmod1_i64) EACH2(u32, fmod, fmod1_u32) EACH2(u64, fmod, fmod1_u64)
EACH2(i32, mod, mod1_i32) EACH2(i64, mod, mod1_i64) EACH2(u32, mod, fmod1_u32) EACH2(u64, mod, fmod1_u64)
EACH2(f32, mod, mod1_f32) EACH2(f64, mod, mod1_f64) EACH2(f32, fmod, fmodf) EACH2(f64, fmod, fmod)
EACH2(i32, pow, pow1_i32) EACH2(i64, pow, pow1_i64) EACH2(u32, pow, pow1_u32) EACH2(u64, pow, pow1_u64) EACH2(f64, pow, pow)
/* x^y = 2^(y log2 x) in double, for x that is neither negative nor NaN nor infinite and finite y; else lane by lane. log2 of the mantissa m in [sqrt(1/2), sqrt 2):
 * 2 atanh(s) / ln 2, s = (m - 1) / (m + 1), as a series; 2^f, |f| <= 1/2, as that of e^(f ln 2): both are right to 2^-32. 0 is like 2^-infinity. */
#if !IS_VECTOR
EACH2(f32, pow, powf)
#else
EACH2(f32, pow1, powf)
#define SHIFT52 0x1.8p52                 /* added to an integer it lies in the lower bits */
FN f64h powh_f32(f64h x, f64h y)
{
    i64h b = (i64h)x - 0x3fe6a09e667f3bcdl;             /* of sqrt(1/2): the exponent of m is 0 or -1 */
    f64h e = (f64h)((b >> 52) + (i64h)((f64h){0} + SHIFT52)) - SHIFT52, m = (f64h)((i64h)x - ((b >> 52) << 52));
    f64h s = (m - 1) / (m + 1), z = s * s;
    f64h l = ((((((z * (1.0 / 13) + 1.0 / 11) * z + 1.0 / 9) * z + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3) * z + 1) * s * 2.8853900817779268 + e;
    l = HALF_SEL(f64h, x == 0, (f64h){0} - 1e300, l);
    f64h t = y * l;
    t = HALF_SEL(f64h, t < -1000, (f64h){0} - 1000, t);
    t = HALF_SEL(f64h, t > 1000, (f64h){0} + 1000, t);
    f64h n = t + SHIFT52, r = (t - (n - SHIFT52)) * 0.69314718055994531;
    f64h p = (((((((r * (1.0 / 40320) + 1.0 / 5040) * r + 1.0 / 720) * r + 1.0 / 120) * r + 1.0 / 24) * r + 1.0 / 6) * r + 0.5) * r + 1) * r + 1;
    return (f64h)((i64h)p + (((i64h)n - (i64h)((f64h){0} + SHIFT52)) << 52));
}
FN f32v pow_f32v(f32v x, f32v y)
{
    if (anyv(~((bits_f32v(x) >= 0) & (x < __builtin_inff()) & (abs_f32v(y) < __builtin_inff())))) return pow1_f32v(x, y);
    f32_2 a = { x }, b = { y }, r;
    for (int i = 0; i < 2; i++) r.h[i] = CVT(powh_f32(CVT(a.h[i], f64h), CVT(b.h[i], f64h)), f32h);
    return r.v;
}
#endif
/* counts below 0, of the width or more shift all out: 0, to the right the sign (`out`); w: the width of the dtype, at most that of the type */
#define SHIFT(T, U, n, out) FN T shl_##T(T a, T b) { return sel_##T(lt_##U((U)b, splat_##U(n)), (T)((U)a << (U)(b & (n - 1))), splat_##T(0)); } \
    FN T shr_##T(T a, T b, i32 w) { return sel_##T(lt_##U((U)b, splat_##U(w)), a >> (b & (n - 1)), out); }
SHIFT(i32, u32, 32, a >> 31) SHIFT(u32, u32, 32, splat_u32(0)) SHIFT(i64, u64, 64, a >> 63) SHIFT(u64, u64, 64, splat_u64(0))
#undef SHIFT
EACH1(f64, exp, exp) EACH1(f64, log, log) EACH1(f64, tanh, tanh) EACH1(f64, erf, erf)
/* in full: a name may be a macro, which is left alone only where it is pasted */
EACH1(f64, sin, sin) EACH1(f64, cos, cos)
EACH1(f32, tan, tanf) EACH1(f64, tan, tan) EACH1(f32, asin, asinf) EACH1(f64, asin, asin) EACH1(f32, acos, acosf) EACH1(f64, acos, acos) EACH1(f32, atan, atanf) EACH1(f64, atan, atan)
EACH1(f32, sinh, sinhf) EACH1(f64, sinh, sinh) EACH1(f32, cosh, coshf) EACH1(f64, cosh, cosh) EACH1(f32, asinh, asinhf) EACH1(f64, asinh, asinh)
EACH1(f32, acosh, acoshf) EACH1(f64, acosh, acosh) EACH1(f32, atanh, atanhf) EACH1(f64, atanh, atanh) EACH1(f32, log1p, log1pf) EACH1(f64, log1p, log1p)
EACH1(f32, expm1, expm1f) EACH1(f64, expm1, expm1)
#ifndef HAVE_EXP
/* e^x = 2^n e^r, |r| <= ln2/2, degree-6 polynomial; 2^n in two factors so that denormal results and overflow come out right. NaN stays. */
#if IS_VECTOR && defined GNU_AVX512
FN f32 expdown_f32(f32 x) {            /* x is not above 89 */
    /* 2^n, n a multiple of 1/16: its sixteenths from a table by lane, the rest by the exponent; |r| <= ln2/32, degree 3. max gives the second operand of a NaN */
    const f32 part = { 1.0f, 1.04427373f, 1.09050775f, 1.13878858f, 1.18920708f, 1.24185777f, 1.29683959f, 1.35425556f,
        1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f, 1.68179286f, 1.75625217f, 1.8340081f, 1.91520655f };
    x = __builtin_ia32_maxps512_mask(splat_f32(-104.0f), x, x, (u16)-1, 4);
    f32 t = fma_f32(x, splat_f32(1.44269504f), splat_f32(786432.0f)), n = t - 786432.0f;    /* the last bits of t are the sixteenths */
    f32 r = fma_f32(n, splat_f32(-0.693145751953125f), x);
    r = fma_f32(n, splat_f32(-1.42860677e-6f), r);
    f32 p = fma_f32(r, splat_f32(0.166671664f), splat_f32(0.5f)), s = __builtin_shuffle(part, bits_f32(t));
    p = fma_f32(s, fma_f32(r * r, p, r), s);
    return __builtin_ia32_scalefps512_mask(p, n, p, (u16)-1, 4);
}
FN f32 exp_f32(f32 x) { return expdown_f32(__builtin_ia32_minps512_mask(splat_f32(89.0f), x, x, (u16)-1, 4)); }
#else
FN f32 exp_f32(f32 x) {
    x = sel_f32(MASK(x > 89.0f), splat_f32(89.0f), x);
    x = sel_f32(MASK(x < -104.0f), splat_f32(-104.0f), x);
    f32 t = x * 1.44269504f + 12582912.0f, n = t - 12582912.0f;      /* 3 * 2^22: what is added to it is rounded, and lies in its last bits */
    f32 r = fma_f32(n, splat_f32(-0.693145751953125f), x);
    r = fma_f32(n, splat_f32(-1.42860677e-6f), r);
    f32 p = splat_f32(1.375138876028359e-3f);
    p = fma_f32(p, r, splat_f32(8.368921466171741e-3f));
    p = fma_f32(p, r, splat_f32(4.166953265666962e-2f));
    p = fma_f32(p, r, splat_f32(0.166665181517601f));
    p = fma_f32(p, r, splat_f32(0.49999988079071045f));
    p = fma_f32(p * r, r, r) + 1.0f;
    i32 k = bits_f32(t) - 0x4b400000;
    i32 h = k >> 1;
    return p * from_bits_f32((h + 127) << 23) * from_bits_f32((k - h + 127) << 23);
}
#if IS_VECTOR
FN f32 expdown_f32(f32 x) { return exp_f32(x); }
#endif
#endif
#endif
/* x = m 2^e, m in [sqrt(1/2), sqrt 2): log m by a polynomial in m-1 (Cephes' logf), e ln2 in two parts */
FN f32 log_f32(f32 x) {
    i32 tiny = MASK(x < 1.17549435e-38f);
    f32 y = sel_f32(tiny, x * 8388608.0f, x);
    i32 b = bits_f32(y) - 0x3f3504f3;
    i32 e = (b >> 23) - (tiny & 23);
    f32 m = from_bits_f32((b & 0x7fffff) + 0x3f3504f3) - 1.0f;
    f32 p = splat_f32(7.0376836292e-2f);
    p = fma_f32(p, m, splat_f32(-1.1514610310e-1f)); p = fma_f32(p, m, splat_f32(1.1676998740e-1f));
    p = fma_f32(p, m, splat_f32(-1.2420140846e-1f)); p = fma_f32(p, m, splat_f32(1.4249322787e-1f));
    p = fma_f32(p, m, splat_f32(-1.6668057665e-1f)); p = fma_f32(p, m, splat_f32(2.0000714765e-1f));
    p = fma_f32(p, m, splat_f32(-2.4999993993e-1f)); p = fma_f32(p, m, splat_f32(3.3333331174e-1f));
    f32 fe = cvt_i32_f32(e), z = m * m;
    f32 r = fma_f32(fe, splat_f32(-2.12194440e-4f), p * m * z);
    r = fma_f32(z, splat_f32(-0.5f), r) + m;
    r = fma_f32(fe, splat_f32(0.693359375f), r);
    r = sel_f32(MASK(x == (f32)INF), x, r);
    r = sel_f32(MASK(x == 0.0f), splat_f32(-(f32)INF), r);
    return sel_f32(MASK(x < 0.0f) | MASK(x != x), splat_f32(__builtin_nanf("")), r);
}
#ifndef HAVE_TANH
/* |x| < 0.625: odd polynomial (Cephes' tanhf); else 1 - 2/(e^2|x| + 1) */
FN f32 tanh_f32(f32 x) {
    f32 a = abs_f32(x), z = x * x;
    f32 p = splat_f32(-5.70498872745e-3f);
    p = fma_f32(p, z, splat_f32(2.06390887954e-2f)); p = fma_f32(p, z, splat_f32(-5.37397155531e-2f));
    p = fma_f32(p, z, splat_f32(1.33314422036e-1f)); p = fma_f32(p, z, splat_f32(-3.33332819422e-1f));
    f32 small = fma_f32(p * z, a, a);
    f32 big = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
    return from_bits_f32(bits_f32(sel_f32(MASK(a < 0.625f), small, big)) | (bits_f32(x) & (i32)0x80000000));
}
#endif
/* e = exp(-|x|): 1/(1 + e), times e where x is negative: results below the normal numbers come out right too */
#ifndef HAVE_SIGMOID
FN f32 sigmoid_f32(f32 x) { f32 e = exp_f32(-abs_f32(x)); return sel_f32(MASK(x < 0.0f), e, splat_f32(1.0f)) / (1.0f + e); }
#endif
FN f64 sigmoid_f64(f64 x) { f64 e = exp_f64(-abs_f64(x)); return sel_f64(lt_f64(x, splat_f64(0.0)), e, splat_f64(1.0)) / (1.0 + e); }
#if IS_VECTOR && defined GNU_AVX512
/* On 16 pieces of [0, 4), each 1/4 wide and with coefficients of its own, looked up by lane: hi + (lo + r + r P(r)), r from the left end; beyond 4 it is 1. Least-squares
 * fits of degree 5 on Chebyshev nodes; within 1.3 ulp. */
FN f32 erf_f32(f32 x) {
    f32 a = abs_f32(x), t = __builtin_ia32_minps512_mask(splat_f32(3.9999998f), a, a, FULL);      /* a NaN stays */
    f32 m = __builtin_ia32_addps512_mask(t, splat_f32(2097152.0f), t, (u16)-1, 9), r = t - (m - 2097152.0f);    /* towards -inf: the last bits of m are the piece */
    i32 j = bits_f32(m);
    const f32 hi = { 0.0f, 0.276326388f, 0.520499885f, 0.711155653f, 0.842700779f, 0.92290014f, 0.966105163f, 0.986671686f, 0.995322287f, 0.998537302f, 0.999593019f, 0.999899387f, 0.999977887f, 0.999995708f, 0.999999285f, 0.999999881f };
    const f32 lo = { 0.0f, 6.18968032e-09f, -3.02725001e-09f, -1.80749371e-08f, 1.18435706e-08f, -1.45984247e-08f, -1.83637905e-08f, -1.54828239e-08f, -2.1866768e-08f, -1.82345641e-08f, 2.87697528e-08f, -9.14133924e-09f, 2.28825918e-08f, -1.12265885e-08f, -2.78376007e-08f, 5.4831939e-09f };
    const f32 c1 = { 0.128379136f, 0.060012795f, -0.121218719f, -0.357069314f, -0.584892035f, -0.76347816f, -0.881069183f, -0.947224855f, -0.979333043f, -0.992857814f, -0.997821808f, -0.999413788f, -0.999860764f, -0.999970794f, -0.999994576f, -0.999999106f };
    const f32 c2 = { 6.60820706e-06f, -0.264936656f, -0.439327836f, -0.482178807f, -0.415129632f, -0.295686454f, -0.178419515f, -0.0923638195f, -0.0413315035f, -0.0160652511f, -0.00544198789f, -0.00161032774f, -0.000416976662f, -9.46066211e-05f, -1.88272679e-05f, -3.28897227e-06f };
    const f32 c3 = { -0.376324654f, -0.310368508f, -0.147591099f, 0.0264276322f, 0.138736039f, 0.168137029f, 0.139171362f, 0.0902935192f, 0.0481837019f, 0.021639837f, 0.00828569382f, 0.00272664707f, 0.000775364984f, 0.000191260566f, 4.10405955e-05f, 7.67723122e-06f };
    const f32 c4 = { 0.00197638548f, 0.136480778f, 0.192140222f, 0.153811023f, 0.0665253177f, -0.0108108195f, -0.047935769f, -0.0492423549f, -0.034180671f, -0.0184313711f, -0.00811471138f, -0.0029883571f, -0.000933386502f, -0.000249455305f, -5.73909019e-05f, -1.14154573e-05f };
    const f32 c5 = { 0.106041782f, 0.046298191f, -0.0266344436f, -0.0666533709f, -0.0611044616f, -0.030675279f, -0.00231269933f, 0.0113268895f, 0.0124443881f, 0.00836067926f, 0.00423643552f, 0.00172771013f, 0.000584262249f, 0.000166579775f, 4.04595812e-05f, 8.43040561e-06f };
    f32 p = fma_f32(__builtin_shuffle(c5, j), r, __builtin_shuffle(c4, j));
    p = fma_f32(p, r, __builtin_shuffle(c3, j)); p = fma_f32(p, r, __builtin_shuffle(c2, j)); p = fma_f32(p, r, __builtin_shuffle(c1, j));
    p = fma_f32(p, r, r + __builtin_shuffle(lo, j)) + __builtin_shuffle(hi, j);
    return from_bits_f32(bits_f32(p) | (bits_f32(x) & (i32)0x80000000));
}
#else
/* |x| < 0.9277: x + x P(x^2); else 1 - exp(-Q(|x|)). P and Q are least-squares fits on Chebyshev nodes; both within 0.04 ulp before rounding. */
FN f32 erf_f32(f32 x) {
    f32 a = abs_f32(x), z = x * x;
    f32 p = splat_f32(8.401277591474354e-05f);
    p = fma_f32(p, z, splat_f32(-0.0008152130758389831f)); p = fma_f32(p, z, splat_f32(0.0052020978182554245f));
    p = fma_f32(p, z, splat_f32(-0.026859957724809647f)); p = fma_f32(p, z, splat_f32(0.11283709108829498f));
    p = fma_f32(p, z, splat_f32(-0.37612634897232056f)); p = fma_f32(p, z, splat_f32(0.12837916612625122f));
    f32 low = fma_f32(p, a, a);
    f32 t = sel_f32(MASK(a > 4.0f), splat_f32(4.0f), a);
    f32 q = splat_f32(1.8265503967995755e-05f);
    q = fma_f32(q, t, splat_f32(-0.0003984329814556986f)); q = fma_f32(q, t, splat_f32(0.003981964197009802f));
    q = fma_f32(q, t, splat_f32(-0.02458786778151989f)); q = fma_f32(q, t, splat_f32(0.10741367936134338f));
    q = fma_f32(q, t, splat_f32(0.6341676712036133f)); q = fma_f32(q, t, splat_f32(1.1290955543518066f));
    q = fma_f32(q, t, splat_f32(-8.532217907486483e-05f));
    f32 high = 1.0f - exp_f32(-q);
    return from_bits_f32(bits_f32(sel_f32(MASK(a < 0.9277f), low, high)) | (bits_f32(x) & (i32)0x80000000));
}
#endif
#if IS_VECTOR
#define APART(name) static __attribute__((noinline)) f32v apart_##name##_f32v(f32v x) { return name##_f32v(x); }
APART(exp) APART(log) APART(tanh) APART(erf) APART(sigmoid)
#endif
#ifdef HAVE_FMA
/* |x| = n pi/2 + r, |r| <= pi/4: pi/2 in three parts; the first product is exact up to 1e5. Beyond, and for inf and NaN, the library's function, by lane. */
SLOW f32 sin_far(f32 x, i32 quarter) { union { f32 v; f32 e[sizeof(f32) / 4]; } u; u.v = x; for (unsigned i = 0; i < sizeof(f32) / 4; i++) u.e[i] = quarter ? cosf(u.e[i]) : sinf(u.e[i]); return u.v; }
FN f32 sin_near(f32 x, i32 quarter) {
    f32 a = abs_f32(x), n = round_f32(a * 0.636619747f);
    i32 far = ~le_f32(a, splat_f32(100000.0f)), k = cvt_f32_i32(sel_f32(far, splat_f32(0.0f), n)) + quarter;
    f32 r = fma_f32(n, splat_f32(-1.57079601f), a);
    r = fma_f32(n, splat_f32(-3.13916473e-7f), r);
    r = fma_f32(n, splat_f32(-5.39030253e-15f), r);
    f32 z = r * r;
    f32 s = fma_f32(splat_f32(2.86567956e-6f), z, splat_f32(-1.98559923e-4f));
    s = fma_f32(s, z, splat_f32(8.33338592e-3f)); s = fma_f32(s, z, splat_f32(-1.66666672e-1f));
    s = fma_f32(s, r * z, r);
    f32 c = fma_f32(splat_f32(2.44677067e-5f), z, splat_f32(-1.38877297e-3f));
    c = fma_f32(c, z, splat_f32(4.16666567e-2f)); c = fma_f32(c, z, splat_f32(-0.5f)); c = fma_f32(c, z, splat_f32(1.0f));
    i32 b = bits_f32(sel_f32(MASK((k & 1) != 0), c, s)) ^ ((k & 2) << 30);
    if (!quarter) b ^= bits_f32(x) & (i32)0x80000000;
    if (__builtin_expect(any(far) != 0, 0)) return sel_f32(far, sin_far(x, quarter), from_bits_f32(b));
    return from_bits_f32(b);
}
FN f32 sin_f32(f32 x) { return sin_near(x, 0); }
FN f32 cos_f32(f32 x) { return sin_near(x, 1); }
#else
EACH1(f32, sin, sinf) EACH1(f32, cos, cosf)
#endif
/* argmax and argmin: does v take the place of a? The first NaN wins; `last`: the last of equals. */
#define ARG(t, T) \
FN i32 above_first_##T(T v, T a) { return lt_##T(a, v) | (~eq_##T(v, v) & eq_##T(a, a)); } FN i32 below_first_##T(T v, T a) { return lt_##T(v, a) | (~eq_##T(v, v) & eq_##T(a, a)); } \
FN i32 above_last_##T(T v, T a) { return le_##T(a, v) | (~eq_##T(v, v) & eq_##T(a, a)); } FN i32 below_last_##T(T v, T a) { return le_##T(v, a) | (~eq_##T(v, v) & eq_##T(a, a)); }
ARG(f32, f32) ARG(f64, f64) ARG(i32, i32) ARG(u32, u32) ARG(i64, i64) ARG(u64, u64)
#undef ARG
/* ---- conversions and rounding to narrow dtypes, for one lane and for LANES ---- */
EACH_TO(f32, i64, to1_i64) EACH_TO(f64, i64, to1_i64) EACH_TO(f32, u64, to1_u64) EACH_TO(f64, u64, to1_u64)
FN i32 int_f64_i32(f64 x) { return cvt_i64_i32(int_f64_i64(x)); }
FN u32 int_f64_u32(f64 x) { return cvt_i64_u32(int_f64_i64(x)); }
/* values of quantised data are small: the fast conversion serves unless some lane is out of range */
SLOW i32 int_far(f32 x) { return cvt_i64_i32(int_f32_i64(x)); }
FN i32 int_f32_i32(f32 x) {
    if (__builtin_expect(outside(x), 0)) return int_far(x);
    return cvt_f32_i32(x);
}
#if IS_VECTOR                          /* for values of at most 16 bits, and NaN, which leaves 0 in the lower 16 */
#ifdef NEAR
FN i32 near_f32_i32(f32 x) { return NEAR(x); }
#else
FN i32 near_f32_i32(f32 x) { return int_f32_i32(x); }
#endif
#endif
#if IS_VECTOR
/* round(x / step) + zero, within the range of a narrow integer; NaN gives 0. least, most: where x is cut, a quarter of a step beyond that range. Where there is
 * no fused multiply-add, the quotient is divided out. */
typedef struct quantum { f32 step, inverse, least, most; i32 zero; } quantum;
FN quantum quantum_of(f32 step, f32 zero, f32 low, f32 high) { return (quantum){ step, 1.0f / step, (low - zero - 0.25f) * step, (high - zero + 0.25f) * step, (i32)zero }; }
FN const quantum *here(const quantum *q) { __asm__ volatile("" : "+r"(q)); return q; }    /* read from memory where it stands: see here_f32 */
FN f32v quotient(f32v x, const quantum *q) {
#ifdef HAVE_FMA
    const f32v y = x * splat_f32v(q->inverse);
    return fma_f32v(fma_f32v(-y, splat_f32v(q->step), x), splat_f32v(q->inverse), y);
#else
    return x / splat_f32v(q->step);
#endif
}
#define QUANTISE(near) (near(quotient(BOUND_MAX(splat_f32v(q->least), BOUND_MIN(splat_f32v(q->most), x)), q)) + splat_i32v(zero)) & (i32v)(x == x)
#ifdef NEAREST                           /* what lies far below, and NaN, become the lowest integer */
FN i32v quantise_u8v(f32v x, const quantum *q, i32 zero) { return NOT_BELOW(NEAREST(quotient(BOUND_MIN(splat_f32v(q->most), x), q)) + splat_i32v(zero), splat_i32v(0)); }
FN i32v quantise_i8v(f32v x, const quantum *q, i32 zero) { return QUANTISE(NEAREST); }
#else
FN i32v rounded(f32v x) { return near_f32_i32v(round_f32v(x)); }
FN i32v quantise_u8v(f32v x, const quantum *q, i32 zero) { return QUANTISE(rounded); }
FN i32v quantise_i8v(f32v x, const quantum *q, i32 zero) { return QUANTISE(rounded); }
#endif
#undef QUANTISE
#endif
FN u32 int_f32_u32(f32 x) { return cvt_i64_u32(int_f32_i64(x)); }
/* narrow integers live in 32 bits */
FN i32 wrap_i8(i32 x) { return (x << 24) >> 24; } FN i32 wrap_i16(i32 x) { return (x << 16) >> 16; } FN i32 wrap_u8(i32 x) { return x & 255; }
FN i32 wrap_u16(i32 x) { return x & 65535; } FN i32 wrap_i4(i32 x) { return (x << 28) >> 28; } FN i32 wrap_u4(i32 x) { return x & 15; }
FN i32 wrap_i2(i32 x) { return (x << 30) >> 30; } FN i32 wrap_u2(i32 x) { return x & 3; }
/* f16 and bf16 live in float, rounded to nearest even after each operation */
FN f32 from_bf16(i32 h) { return from_bits_f32(h << 16); }
#ifndef HAVE_BF16
FN i32 to_bf16(f32 x) {
    i32 b = bits_f32(x);
    i32 r = ((b + 0x7fff + ((b >> 16) & 1)) >> 16) & 0xffff;
    return sel_i32(MASK(x != x), ((b >> 16) & 0xffff) | 0x40, r);
}
FN f32 round_bf16(f32 x) { return from_bf16(to_bf16(x)); }
#endif
#if !defined HAVE_F16 && (!defined HAVE_F16V || !IS_VECTOR)
FN f32 from_f16(i32 h) {
    i32 m = (h & 0x7fff) << 13, e = m & 0x0f800000;
    i32 normal = m + (112 << 23);
    f32 tiny = from_bits_f32(m + (113 << 23)) - from_bits_f32(splat_i32(113 << 23));
    i32 r = sel_i32(MASK(e == 0x0f800000), normal + (112 << 23), normal);
    r = sel_i32(MASK(e == 0), bits_f32(tiny), r);
    return from_bits_f32(r | ((h & 0x8000) << 16));
}
FN i32 to_f16(f32 x) {
    i32 b = bits_f32(x), sign = (b >> 16) & 0x8000, a = b & 0x7fffffff;
    i32 tiny = bits_f32(from_bits_f32(a) + from_bits_f32(splat_i32(126 << 23))) - (126 << 23);
    i32 normal = (a - (112 << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
    i32 r = sel_i32(MASK(a < (113 << 23)), tiny, normal);
    r = sel_i32(MASK(a >= 0x47800000), splat_i32(0x7c00), r);
    r = sel_i32(MASK(a > 0x7f800000), ((a >> 13) & 0x3ff) | 0x7e00, r);
    return r | sign;
}
FN f32 round_f16(f32 x) { return from_f16(to_f16(x)); }
#if !IS_SIMT                            /* there, loads are macros for any kind of pointer */
FN f32 ld_f16(const u16 *p) { return from_f16(ld_u16(p)); }
FN void st_f16(u16 *p, f32 x) { st_u16(p, to_f16(x)); }
#endif
#if IS_VECTOR
FN f32v ldpart_f16v(const u16 *p, i64 lo, i64 hi) { return from_f16v(ldpart_u16v(p, lo, hi)); }
FN void stpart_f16v(u16 *p, f32v x, i64 n) { stpart_u16v(p, to_f16v(x), n); }
#endif
#endif
#if !IS_SIMT
FN f32 ld_bf16(const u16 *p) { return from_bf16(ld_u16(p)); }
FN void st_bf16(u16 *p, f32 x) { st_u16(p, (bits_f32(x) >> 16) & 65535); }      /* values are rounded where they are computed */
#endif
#if IS_VECTOR
FN f32v ldpart_bf16v(const u16 *p, i64 lo, i64 hi) { return from_bf16v(ldpart_u16v(p, lo, hi)); }
FN void stpart_bf16v(u16 *p, f32v x, i64 n) { stpart_u16v(p, (bits_f32v(x) >> 16) & 65535, n); }
/* float32, rounded and stored. The instruction takes what is below 2^-126 for 0: such go the other way. */
SLOW void stslow_bf16v(u16 *p, f32v x, i64 n) { stpart_bf16v(p, round_bf16v(x), n); }
#if defined GNU_AVX512 && defined __AVX512BF16__
FN i16v bf16_shut(f32v x) { i16v h; __asm__("vcvtneps2bf16 %1, %0" : "=v"(h) : "v"(x)); return h; }
FN i32 has_tiny(f32v x) { return __builtin_ia32_fpclassps512_mask(x, 0x20, (u16)-1) != 0; }
FN void stround_bf16v(u16 *p, f32v x) { if (__builtin_expect(has_tiny(x), 0)) stslow_bf16v(p, x, LANES); else *(i16v_m *)p = bf16_shut(x); }
FN void stroundpart_bf16v(u16 *p, f32v x, i64 n) { if (__builtin_expect(has_tiny(x), 0)) stslow_bf16v(p, x, n); else __builtin_ia32_storedquhi256_mask((void *)p, bf16_shut(x), lane_mask(0, n)); }
#else
FN void stround_bf16v(u16 *p, f32v x) { st_bf16v(p, round_bf16v(x)); }
FN void stroundpart_bf16v(u16 *p, f32v x, i64 n) { stpart_bf16v(p, round_bf16v(x), n); }
#endif
#define STEPS(t) FN f32v lds_##t##v(const u16 *p, i64 step, i64 lo, i64 hi) { return from_##t##v(lds_u16v(p, step, lo, hi)); } FN void sts_##t##v(u16 *p, i64 step, f32v x, i64 n) { sts_u16v(p, step, to_##t##v(x), n); }
STEPS(f16) STEPS(bf16)
#undef STEPS
#endif
/* On the way from a wide dtype to a short float the first step drops digits: it rounds to odd (the last bit is set when anything was dropped), so that the
 * second rounding is the only one that shows. */
FN f32 odd_f64_f32(f64 x) {
    f32 f = cvt_f64_f32(x);
    f64 back = cvt_f32_f64(f);
    return from_bits_f32((bits_f32(f) + lt_f64(abs_f64(x), abs_f64(back))) | (~eq_f64(back, x) & 1));
}
FN f64 odd_i64_f64(i64 v) {
    i64 w = (v & ~0xfffl) | sel_i64(eq_i64(v & 0xfff, splat_i64(0)), splat_i64(0), splat_i64(0x800));
    return cvt_i64_f64(sel_i64(lt_i64(splat_i64(1l << 53), abs_i64(v)), w, v));
}
FN f64 odd_u64_f64(u64 v) {
    u64 w = (v & ~0xffful) | sel_u64(eq_u64(v & 0xfff, splat_u64(0)), splat_u64(0), splat_u64(0x800));
    return cvt_u64_f64(sel_u64(lt_u64(splat_u64(1ul << 53), v), w, v));
}
FN f32 odd_i64_f32(i64 v) { return odd_f64_f32(odd_i64_f64(v)); }
FN f32 odd_u64_f32(u64 v) { return odd_f64_f32(odd_u64_f64(v)); }
FN f32 odd_i32_f32(i32 v) { return odd_f64_f32(cvt_i32_f64(v)); }
FN f32 odd_u32_f32(u32 v) { return odd_f64_f32(cvt_u32_f64(v)); }
/* Floats of one byte are held as codes. One row describes each: fraction bits, bias, code of the largest value, sign bit, and what the codes above that mean:
 * IEEE infinity and NaN; FN one NaN and no infinity; UZ no -0, whose code is NaN; FIN neither. The same as base/dtype.c. */
FN f32 code_value(i32 c, i32 mbits, i32 bias, i32 max, i32 sign, i32 kind) {
    i32 m = c & (sign - 1);
    f32 tiny = cvt_i32_f32(m) * from_bits_f32((128 - bias - mbits) << 23);
    i32 r = (m << (23 - mbits)) + ((127 - bias) << 23);
    r = sel_i32(MASK(m < (1 << mbits)), bits_f32(tiny), r);
    if (kind == CODE_IEEE) r = sel_i32(MASK(m > max), (m << (23 - mbits)) | 0x7f800000, r);
    if (kind == CODE_FN) r = sel_i32(MASK(m > max), splat_i32(0x7fc00000), r);
    if (kind == CODE_UZ) return from_bits_f32(sel_i32(MASK(c == sign), splat_i32(0x7fc00000), r | sel_i32(MASK((c & sign) != 0), splat_i32((i32)0x80000000), splat_i32(0))));
    return from_bits_f32(r | sel_i32(MASK((c & sign) != 0), splat_i32((i32)0x80000000), splat_i32(0)));
}
FN i32 code_of(f32 x, i32 saturate, i32 mbits, i32 bias, i32 max, i32 sign, i32 kind) {
    i32 b = bits_f32(x), a = b & 0x7fffffff, s = (b >> 31) & sign;
    f32 unit = from_bits_f32((151 - bias - mbits) << 23);        /* its last place is the step of the values below the normal ones */
    i32 tiny = bits_f32(from_bits_f32(a) + unit) - ((151 - bias - mbits) << 23);
    i32 m = (a - ((127 - bias) << 23) + ((1 << (22 - mbits)) - 1) + ((a >> (23 - mbits)) & 1)) >> (23 - mbits);
    m = sel_i32(MASK(a < ((128 - bias) << 23)), tiny, m);
    i32 over = MASK(m > max), nan = MASK(a > 0x7f800000);
    if (kind == CODE_FIN) return sel_i32(nan, s ^ sign, s | sel_i32(over, splat_i32(max), m));
    if (kind == CODE_UZ) {
        m = sel_i32(MASK(m == 0), m, s | sel_i32(over, splat_i32(max), m));
        return sel_i32(saturate ? nan : nan | over, splat_i32(sign), m);
    }
    m = sel_i32(over, splat_i32(saturate ? max : max + 1), m);
    if (kind == CODE_FN) return s | sel_i32(nan, splat_i32(max + 1), m);
    i32 kept = (a >> (23 - mbits)) & ((1 << mbits) - 1);
    return s | sel_i32(nan, (max + 1) | sel_i32(MASK(kept == 0), splat_i32(1 << (mbits - 1)), kept), m);
}
#define CODE(from, to, ...) FN f32 from(i32 c) { return code_value(c, __VA_ARGS__); } FN i32 to(f32 x, i32 saturate) { return code_of(x, saturate, __VA_ARGS__); }
CODE(from_f8e4m3fn, to_f8e4m3fn, 3, 7, 0x7e, 0x80, CODE_FN) CODE(from_f8e4m3fnuz, to_f8e4m3fnuz, 3, 8, 0x7f, 0x80, CODE_UZ) CODE(from_f8e5m2, to_f8e5m2, 2, 15, 0x7b, 0x80, CODE_IEEE)
CODE(from_f8e5m2fnuz, to_f8e5m2fnuz, 2, 16, 0x7f, 0x80, CODE_UZ) CODE(from_f4e2m1, to_f4e2m1, 1, 1, 7, 8, CODE_FIN)
/* a bare power of two; saturating rounds up, the other to nearest, ties up; below zero there is NaN only */
FN f32 from_f8e8m0(i32 c) {
    return from_bits_f32(sel_i32(MASK(c == 255), splat_i32(0x7fc00000), sel_i32(MASK(c == 0), splat_i32(0x00400000), c << 23)));
}
FN i32 to_f8e8m0(f32 x, i32 saturate) {
    i32 b = bits_f32(x), e = b >> 23, f = b & 0x7fffff;
    i32 up = sel_i32(MASK(e == 0), MASK(f >= (saturate ? 0x400001 : 0x600000)), MASK(f >= (saturate ? 1 : 0x400000)));
    i32 r = e + (up & 1);
    r = sel_i32(MASK(r > 254), splat_i32(saturate ? 254 : 255), r);
    r = sel_i32(MASK((b & 0x7fffffff) < 0x400000), splat_i32(saturate ? 0 : 255), r);
    return sel_i32(MASK(x < 0.0f) | MASK(x != x), splat_i32(255), r);
}
/* ---- folds over a team (TEAM_FOLD of a dialect gives team_NAME_TYPE, and both_NAME_TYPE for two of them): each thread has a part, all get the whole. `shared` has room for two words of 8 bytes for each thread. ---- */
#define TEAM_NUMBER(t) TEAM_FOLD(sum, t, a + b) TEAM_FOLD(prod, t, a * b) TEAM_FOLD(max, t, max_##t(a, b)) TEAM_FOLD(min, t, min_##t(a, b))
TEAM_NUMBER(f32) TEAM_NUMBER(f64) TEAM_NUMBER(i32) TEAM_NUMBER(u32) TEAM_NUMBER(i64) TEAM_NUMBER(u64)
TEAM_FOLD(or, i32, a | b) TEAM_FOLD(and, i32, a & b)
/* the same for teams side by side, whose threads are not neighbours; `shared` is the team's own */
#define COLUMN_FOLD(name, t) FN t column_##name##_##t(LOCAL i64 *shared, int thread, int team, t v) { \
    LOCAL t *const part = (LOCAL t *)shared; \
    BARRIER; part[thread] = v; BARRIER; \
    for (int h = team / 2; h > 0; h /= 2) { if (thread < h) part[thread] = both_##name##_##t(part[thread], part[thread + h]); BARRIER; } \
    return part[0]; }
#define COLUMN_NUMBER(t) COLUMN_FOLD(sum, t) COLUMN_FOLD(prod, t) COLUMN_FOLD(max, t) COLUMN_FOLD(min, t)
COLUMN_NUMBER(f32) COLUMN_NUMBER(f64) COLUMN_NUMBER(i32) COLUMN_NUMBER(u32) COLUMN_NUMBER(i64) COLUMN_NUMBER(u64)
COLUMN_FOLD(or, i32) COLUMN_FOLD(and, i32)
/* a: each thread's best, x: its position; threads that had no element hold the identity at 0, which takes nobody's place */
#define TEAM_ARG(t, a, x, above, last, team) { \
    LOCAL t *const value = (LOCAL t *)shared; LOCAL i64 *const place = shared + team; \
    BARRIER; value[thread] = a; place[thread] = x; BARRIER; \
    for (int h = team / 2; h > 0; h /= 2) { \
        if (thread < h) { \
            const t e = value[thread + h], best = value[thread]; const i64 i = place[thread + h], at = place[thread]; \
            const i32 up = above##_##t(e, best), same = ~above##_##t(best, e) & ~up; \
            if (up || (same && ((last) && e == e ? i > at : i < at))) { value[thread] = e; place[thread] = i; } \
        } \
        BARRIER; \
    } \
    a = value[0]; x = place[0]; }
/* in: this thread's element becomes the fold of all up to it; whole: of all of the team */
#define TEAM_SCAN(name, t, in, whole, team) { \
    LOCAL t *const part = (LOCAL t *)shared; \
    BARRIER; part[thread] = in; BARRIER; \
    for (int h = 1; h < team; h *= 2) { \
        const t sofar = thread >= h ? both_##name##_##t(part[thread - h], in) : in; \
        BARRIER; in = sofar; part[thread] = in; BARRIER; \
    } \
    whole = part[team - 1]; }
#ifdef __CUDA_ARCH__
#define ADD_UNSEEN(w, zero) asm volatile("add.u32 %0, %0, %1;" : "+r"(w) : "r"(zero))
#define LOAD_PAST(w, p) asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"((w)[0]), "=r"((w)[1]), "=r"((w)[2]), "=r"((w)[3]) : "l"(p))
#define STORE_FIRST(w, p) asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" : : "l"(p), "r"((w)[0]), "r"((w)[1]), "r"((w)[2]), "r"((w)[3]) : "memory")
#define STORE_WHOLE(w, p) asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" : : "l"(p), "r"((w)[0]), "r"((w)[1]), "r"((w)[2]), "r"((w)[3]) : "memory")
#else
#define ADD_UNSEEN(w, zero) ((w) += (zero))
#define LOAD_PAST(w, p) { const uint4 x = *(const uint4 *)(p); (w)[0] = x.x; (w)[1] = x.y; (w)[2] = x.z; (w)[3] = x.w; }
#define STORE_FIRST(w, p) STORE_WHOLE(w, p)
#define STORE_WHOLE(w, p) (*(uint4 *)(p) = make_uint4((w)[0], (w)[1], (w)[2], (w)[3]))
#endif
/* ---- a part of a row in a thread: B bytes, packed in 32-bit words ---- */
template <int B> struct Vec {
    u32 w[B < 4 ? 1 : B / 4];
    FN2 void clear() { UNROLL for (int i = 0; i < (B < 4 ? 1 : B / 4); i++) w[i] = 0; }
    /* zero is 0, which the compiler cannot know: elements are taken out again, where it would keep those of an earlier loop, in several times the registers */
    FN2 void renew(u32 zero) { UNROLL for (int i = 0; i < (B < 4 ? 1 : B / 4); i++) ADD_UNSEEN(w[i], zero); }
    FN2 u32 some() const { u32 x = w[0]; UNROLL for (int i = 4; i < B / 4; i += 4) x |= w[i]; return x; }      /* of each load a word */
    FN2 void load(const void *p) {
        if (B == 1) w[0] = *(const u8 *)p;
        else if (B == 2) w[0] = *(const u16 *)p;
        else if (B == 4) w[0] = *(const u32 *)p;
        else if (B == 8) { const uint2 x = *(const uint2 *)p; w[0] = x.x; w[1] = x.y; }
        else UNROLL for (int i = 0; i < B / 16; i++) { const uint4 x = ((const uint4 *)p)[i]; w[4 * i] = x.x; w[4 * i + 1] = x.y; w[4 * i + 2] = x.z; w[4 * i + 3] = x.w; }
    }
    /* of a row that is read once and fills the registers: past the first cache */
    FN2 void stream(const void *p) {
        if (B % 16) load(p);
        else UNROLL for (int i = 0; i < B / 16; i++) LOAD_PAST(w + 4 * i, (const uint4 *)p + i);
    }
    /* of what nobody reads soon: it leaves the second cache first */
    FN2 void leave(void *p) const {
        if (B % 16) store(p);
        else UNROLL for (int i = 0; i < B / 16; i++) STORE_FIRST(w + 4 * i, (uint4 *)p + i);
    }
    FN2 void store(void *p) const {
        if (B == 1) *(u8 *)p = (u8)w[0];
        else if (B == 2) *(u16 *)p = (u16)w[0];
        else if (B == 4) *(u32 *)p = w[0];
        else if (B == 8) *(uint2 *)p = make_uint2(w[0], w[1]);
        else UNROLL for (int i = 0; i < B / 16; i++) STORE_WHOLE(w + 4 * i, (uint4 *)p + i);
    }
};
/* its element e as the value that ld_ gives, and the other way: put_ wants e to count up from 0 */
template <class T> FN i32 get8(const T &r, int e) { return (i32)(r.w[e / 4] >> 8 * (e % 4) & 255); }
template <class T> FN i32 get16(const T &r, int e) { return (i32)(r.w[e / 2] >> 16 * (e % 2) & 65535); }
template <class T> FN u64 get64(const T &r, int e) { return (u64)r.w[2 * e] | (u64)r.w[2 * e + 1] << 32; }
template <class T> FN f32 get_f32(const T &r, int e) { return __uint_as_float(r.w[e]); }
template <class T> FN f64 get_f64(const T &r, int e) { return __longlong_as_double((i64)get64(r, e)); }
template <class T> FN f32 get_f16(const T &r, int e) { return from_f16(get16(r, e)); }
template <class T> FN f32 get_bf16(const T &r, int e) { return __uint_as_float(e % 2 ? r.w[e / 2] & 0xffff0000u : r.w[e / 2] << 16); }
template <class T> FN i32 get_i8(const T &r, int e) { return (i32)(i8)get8(r, e); }
template <class T> FN i32 get_u8(const T &r, int e) { return get8(r, e); }
template <class T> FN i32 get_i16(const T &r, int e) { return (i32)(i16)get16(r, e); }
template <class T> FN i32 get_u16(const T &r, int e) { return get16(r, e); }
template <class T> FN i32 get_i32(const T &r, int e) { return (i32)r.w[e]; }
template <class T> FN u32 get_u32(const T &r, int e) { return r.w[e]; }
template <class T> FN i64 get_i64(const T &r, int e) { return (i64)get64(r, e); }
template <class T> FN u64 get_u64(const T &r, int e) { return get64(r, e); }
template <class T> FN i32 get_bool(const T &r, int e) { return -(i32)(get8(r, e) != 0); }
template <class T> FN void put8(T &r, int e, u32 x) { if (e % 4) r.w[e / 4] |= (x & 255) << 8 * (e % 4); else r.w[e / 4] = x & 255; }
template <class T> FN void put16(T &r, int e, u32 x) { if (e % 2) r.w[e / 2] |= x << 16; else r.w[e / 2] = x & 65535; }
template <class T> FN void put64(T &r, int e, u64 x) { r.w[2 * e] = (u32)x; r.w[2 * e + 1] = (u32)(x >> 32); }
template <class T> FN void put_f32(T &r, int e, f32 x) { r.w[e] = __float_as_uint(x); }
template <class T> FN void put_f64(T &r, int e, f64 x) { put64(r, e, (u64)__double_as_longlong(x)); }
template <class T> FN void put_f16(T &r, int e, f32 x) { put16(r, e, (u32)to_f16(x)); }
template <class T> FN void put_bf16(T &r, int e, f32 x) { if (e % 2) r.w[e / 2] = __byte_perm(r.w[e / 2], __float_as_uint(x), 0x7610); else r.w[e / 2] = __float_as_uint(x) >> 16; }   /* rounded before */
/* the same of a value that is still to be rounded: two are rounded and joined at once */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
template <class T> FN void round_put_bf16(T &r, int e, f32 x) { if (e % 2) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r.w[e / 2]) : "f"(x), "f"(__uint_as_float(r.w[e / 2]))); else r.w[e / 2] = __float_as_uint(x); }
template <class T> FN void round_put_f16(T &r, int e, f32 x) { if (e % 2) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r.w[e / 2]) : "f"(x), "f"(__uint_as_float(r.w[e / 2]))); else r.w[e / 2] = __float_as_uint(x); }
#else
template <class T> FN void round_put_bf16(T &r, int e, f32 x) { put_bf16(r, e, round_bf16(x)); }
template <class T> FN void round_put_f16(T &r, int e, f32 x) { put_f16(r, e, x); }
#endif
template <class T> FN void put_i8(T &r, int e, i32 x) { put8(r, e, (u32)x); }
template <class T> FN void put_u8(T &r, int e, i32 x) { put8(r, e, (u32)x); }
template <class T> FN void put_i16(T &r, int e, i32 x) { put16(r, e, (u32)x); }
template <class T> FN void put_u16(T &r, int e, i32 x) { put16(r, e, (u32)x); }
template <class T> FN void put_i32(T &r, int e, i32 x) { r.w[e] = (u32)x; }
template <class T> FN void put_u32(T &r, int e, u32 x) { r.w[e] = x; }
template <class T> FN void put_i64(T &r, int e, i64 x) { put64(r, e, (u64)x); }
template <class T> FN void put_u64(T &r, int e, u64 x) { put64(r, e, x); }
template <class T> FN void put_bool(T &r, int e, i32 x) { put8(r, e, (u32)x & 1); }
/* the greatest or least of a and a vector's elements, two at a time: NaN if any is, +0 is above -0 */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#define PACKED_FOLD(name, t, ty) template <class T> FN f32 packed_##name##_##t(f32 a, const T &r) { \
    T m = r; \
    UNROLL for (int i = 1; i < (int)(sizeof r.w / 4); i++) asm(#name ".NaN." ty " %0, %0, %1;" : "+r"(m.w[0]) : "r"(r.w[i])); \
    return name##_f32(a, name##_f32(get_##t(m, 0), get_##t(m, 1))); }
#else
#define PACKED_FOLD(name, t, ty) template <class T> FN f32 packed_##name##_##t(f32 a, const T &r) { UNROLL for (int e = 0; e < (int)(sizeof r.w / 2); e++) a = name##_f32(a, get_##t(r, e)); return a; }
#endif
PACKED_FOLD(max, bf16, "bf16x2") PACKED_FOLD(min, bf16, "bf16x2") PACKED_FOLD(max, f16, "f16x2") PACKED_FOLD(min, f16, "f16x2")
/* ---- shared memory that is filled while the threads work. A barrier of 8 bytes counts the bytes that are still to come; copies are of whole pieces of 16 bytes ---- */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
FN u32 shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
FN void filled_open(i64 *bar) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_at(bar)) : "memory"); }
FN void filled_opened() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
FN void filled_expect(i64 *bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(shared_at(bar)), "r"(bytes) : "memory"); }
FN void fill(void *to, const void *from, u32 bytes, i64 *bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" : : "r"(shared_at(to)), "l"(from), "r"(bytes), "r"(shared_at(bar)) : "memory");
}
/* until the bytes of this turn are there: turns are even and odd. What never comes is an error of the launch, not a hang. */
FN void filled_wait(i64 *bar, u32 turn)
{
    asm volatile("{\n.reg .pred p;\n.reg .u32 n;\nmov.u32 n, 0x4000000;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\n"
        "sub.u32 n, n, 1;\nsetp.ne.u32 p, n, 0;\n@p bra again;\ntrap;\ndone:\n}" : : "r"(shared_at(bar)), "r"(turn) : "memory");
}
/* true in one thread of a block, of the last of its W warps to come; seen is 0, and made of what must have been loaded */
template <int W> FN bool last_of(u32 *came, u32 seen)
{
    const u32 one = 1 + (__any_sync(~0u, seen) ? 1 : 0);
    u32 before;
    if (threadIdx.x % 32) return false;
    asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(shared_at(came)), "r"(one) : "memory");
    return before % W == W - 1;
}
/* blocks of a cluster: their number in it, and a barrier of all their threads, which waits for their stores too */
FN u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
FN void cluster_meet() { asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" : : : "memory"); }
/* A store into another one's shared memory, whose bytes its barrier at the place of `bar` counts: what is there needs no other barrier. */
FN void cluster_send(void *p, int block, u32 x, i64 *bar)
{
    asm volatile("{\n.reg .b32 r, m;\nmapa.shared::cluster.u32 r, %0, %1;\nmapa.shared::cluster.u32 m, %3, %1;\nst.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [r], %2, [m];\n}"
        : : "r"(shared_at(p)), "r"(block), "r"(x), "r"(shared_at(bar)) : "memory");
}
FN void cluster_send(void *p, int block, u64 x, i64 *bar)
{
    asm volatile("{\n.reg .b32 r, m;\nmapa.shared::cluster.u32 r, %0, %1;\nmapa.shared::cluster.u32 m, %3, %1;\nst.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [r], %2, [m];\n}"
        : : "r"(shared_at(p)), "r"(block), "l"(x), "r"(shared_at(bar)) : "memory");
}
FN void cluster_send(void *p, int block, i32 x, i64 *bar) { cluster_send(p, block, (u32)x, bar); }
FN void cluster_send(void *p, int block, i64 x, i64 *bar) { cluster_send(p, block, (u64)x, bar); }
FN void cluster_send(void *p, int block, f32 x, i64 *bar) { cluster_send(p, block, __float_as_uint(x), bar); }
FN void cluster_send(void *p, int block, f64 x, i64 *bar) { cluster_send(p, block, (u64)__double_as_longlong(x), bar); }
FN void cluster_wait(i64 *bar, u32 turn)
{
    asm volatile("{\n.reg .pred p;\n.reg .u32 n;\nmov.u32 n, 0x4000000;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@p bra done;\n"
        "sub.u32 n, n, 1;\nsetp.ne.u32 p, n, 0;\n@p bra again;\ntrap;\ndone:\n}" : : "r"(shared_at(bar)), "r"(turn) : "memory");
}
#define ROOM(name) extern __shared__ __align__(128) u8 name[]
#endif
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ >= 900
#define IF_CLUSTER(C, one, more) if constexpr (C > 1) { more } else { one }
#else
#define IF_CLUSTER(C, one, more) { one }
#endif
/* ---- one value of the values of W threads in each of C blocks. Up to 32 threads are neighbours in a warp, W a power of two; more are the block, W a multiple
 * of 32. part: two sets of 32 C words, used in turn (flip counts reductions), so that one barrier a reduction is enough; two more for places; blocks of a cluster
 * have two barriers behind them, and each warp sends its value to all blocks ---- */
/* the thread's number among those of its row, and a barrier of these: G rows of a block that take turns by themselves */
template <int W, int G> FN int row_thread() { return G > 1 ? threadIdx.x % W : threadIdx.x; }
#ifdef __CUDA_ARCH__
template <int W, int G> FN void row_meet() { if (G > 1) asm volatile("bar.sync %0, %1;" : : "r"(1 + threadIdx.x / W), "n"(W) : "memory"); else __syncthreads(); }
#endif
FN constexpr int row_span(int n) { return n <= 1 ? 1 : n <= 2 ? 2 : n <= 4 ? 4 : n <= 8 ? 8 : n <= 16 ? 16 : 32; }
#define ROW_FOLD(name, T, N, expr, none) \
template <int W, int C, int G> FN T row_##name##_##N(T a, i64 *part, int &flip) { \
    UNROLL for (int o = (W < 32 ? W : 32) / 2; o; o /= 2) { const T b = __shfl_xor_sync(~0u, a, o); a = expr; } \
    if (W > 32 || C > 1) { \
        const int thread = row_thread<W, G>(), warps = W / 32 * C, span = row_span(warps), lane = thread % span; \
        T *const p = (T *)(part + 32 * C * (flip & 1)); \
        IF_CLUSTER(C, if (thread % 32 == 0) p[thread / 32] = a; (row_meet<W, G>());, \
            i64 *const met = part + 128 * C + (flip & 1); \
            if (thread == 0) filled_expect(met, warps * (u32)sizeof(T)); \
            if (thread % 32 < C) cluster_send(p + cluster_rank() * (W / 32) + thread / 32, thread % 32, a, met); \
            cluster_wait(met, flip >> 1 & 1);) \
        flip++; \
        const T mine = a; \
        a = warps % span == 0 || lane < warps ? p[lane] : none; \
        UNROLL for (int i = span; i < warps; i += span) { const T b = i + lane < warps ? p[i + lane] : none; a = expr; } \
        UNROLL for (int o = span / 2; o; o /= 2) { const T b = __shfl_xor_sync(~0u, a, o); a = expr; } \
    } \
    return a; \
}
#define ROW_FOLDS(T) ROW_FOLD(sum, T, T, a + b, (T)0) ROW_FOLD(prod, T, T, a * b, (T)1) ROW_FOLD(max, T, T, max_##T(a, b), mine) ROW_FOLD(min, T, T, min_##T(a, b), mine)
ROW_FOLDS(f32) ROW_FOLDS(f64) ROW_FOLDS(i32) ROW_FOLDS(u32) ROW_FOLDS(i64) ROW_FOLDS(u64)
ROW_FOLD(sum, i32, mask, a | b, mine) ROW_FOLD(prod, i32, mask, a & b, mine) ROW_FOLD(max, i32, mask, a | b, mine) ROW_FOLD(min, i32, mask, a & b, mine)
/* the place of the greatest or least; of equals the first, or the last (of NaNs always the first) */
#define ROW_TAKE(name, T) { const i32 up = name##_first_##T(b, a), same = ~name##_first_##T(a, b) & ~up; if (up || (same && (LAST && b == b ? y > x : y < x))) { a = b; x = y; } }
#define ROW_ARG(fold, name, T) \
template <int W, int C, int G, int LAST> FN void row_##fold##_##T(T &a, i64 &x, i64 *part, int &flip) { \
    UNROLL for (int o = (W < 32 ? W : 32) / 2; o; o /= 2) { const T b = __shfl_xor_sync(~0u, a, o); const i64 y = __shfl_xor_sync(~0u, x, o); ROW_TAKE(name, T) } \
    if (W > 32 || C > 1) { \
        const int thread = row_thread<W, G>(), warps = W / 32 * C, span = row_span(warps), lane = thread % span; \
        T *const p = (T *)(part + 32 * C * (flip & 1)); \
        i64 *const q = part + 64 * C + 32 * C * (flip & 1); \
        IF_CLUSTER(C, if (thread % 32 == 0) { p[thread / 32] = a; q[thread / 32] = x; } (row_meet<W, G>());, \
            i64 *const met = part + 128 * C + (flip & 1); \
            const int to = cluster_rank() * (W / 32) + thread / 32; \
            if (thread == 0) filled_expect(met, warps * (u32)(sizeof(T) + sizeof x)); \
            if (thread % 32 < C) { cluster_send(p + to, thread % 32, a, met); cluster_send(q + to, thread % 32, x, met); } \
            cluster_wait(met, flip >> 1 & 1);) \
        flip++; \
        if (lane < warps) { a = p[lane]; x = q[lane]; } \
        UNROLL for (int i = span; i < warps; i += span) if (i + lane < warps) { const T b = p[i + lane]; const i64 y = q[i + lane]; ROW_TAKE(name, T) } \
        UNROLL for (int o = span / 2; o; o /= 2) { const T b = __shfl_xor_sync(~0u, a, o); const i64 y = __shfl_xor_sync(~0u, x, o); ROW_TAKE(name, T) } \
    } \
}
#define ROW_ARGS(T) ROW_ARG(argmax, above, T) ROW_ARG(argmin, below, T)
ROW_ARGS(f32) ROW_ARGS(f64) ROW_ARGS(i32) ROW_ARGS(u32) ROW_ARGS(i64) ROW_ARGS(u64)
/* ---- packs: Vec of elementwise kernels. As asm, loads stay before what is computed, and nothing is split ---- */
#ifdef __CUDA_ARCH__
#define LOAD_WORDS(to, p) asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]), "=r"((to)[3]) : "l"(p))
#define PASS_WORDS(to, p) asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"((to)[0]), "=r"((to)[1]), "=r"((to)[2]), "=r"((to)[3]) : "l"(p))
#define STORE_WORDS(from, p) asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(p), "r"((from)[0]), "r"((from)[1]), "r"((from)[2]), "r"((from)[3]) : "memory")
#else
#define PASS_WORDS(to, p) LOAD_WORDS(to, p)
#define LOAD_WORDS(to, p) { const uint4 x = *(const uint4 *)(p); (to)[0] = x.x; (to)[1] = x.y; (to)[2] = x.z; (to)[3] = x.w; }
#define STORE_WORDS(from, p) (*(uint4 *)(p) = make_uint4((from)[0], (from)[1], (from)[2], (from)[3]))
#endif
template <int B> FN void pack_load(Vec<B> &r, const void *p) {
    if (B % 16) r.load(p);
    else UNROLL for (int i = 0; i < B / 16; i++) LOAD_WORDS(r.w + 4 * i, (const uint4 *)p + i);
}
/* past the first cache: what is read once */
template <int B> FN void pack_pass(Vec<B> &r, const void *p) {
    if (B % 16) r.load(p);
    else UNROLL for (int i = 0; i < B / 16; i++) PASS_WORDS(r.w + 4 * i, (const uint4 *)p + i);
}
template <int B> FN void pack_store(const Vec<B> &r, void *p) {
    if (B % 16) r.store(p);
    else UNROLL for (int i = 0; i < B / 16; i++) STORE_WORDS(r.w + 4 * i, (uint4 *)p + i);
}
#define PACK_GET(s, r, i) get_##s(r, i)
#define PACK_PUT(s, r, i, v) put_##s(r, i, v)
/* ---- running folds in one pass: two words for each part, whether it is known and what it comes to, all 0 before the kernel ---- */
FN i64 look_draw(i64 *next) { return (i64)atomicAdd((unsigned long long *)next, 1ull); }
template <class T> FN void look_put(i64 *at, T v) { *(volatile T *)(at + 1) = v; __threadfence(); *(volatile i64 *)at = 1; }
template <class T> FN void look_wait(i64 *at, T &v) { while (!*(volatile i64 *)at) { } __threadfence(); v = *(volatile T *)(at + 1); }

#line 1 "k_b0967c23417df995"
extern "C" __global__ __launch_bounds__(256) void k_b0967c23417df995(const u16 *__restrict__ const b0, const f32 *__restrict__ const b1, f32 *const b2, f32 *const b3, const i64 n0, const i64 n1, const i64 n2, const i64 total, u8 *scratch, i64 *const err)
{
    const i64 group = blockIdx.x, groups = gridDim.x;
    const int thread = (int)threadIdx.x;
    __shared__ i64 shared[512];
    for (i64 point = group; point < total; point += groups) {
        const i64 q1 = quot(point, n0), p1 = (point - q1 * n0);
        const i64 p0 = q1;
        f32 a0;
        a0 = 0.0f;
        const f32 v2 = ld_f32(b1 + p0);
        for (i64 i1 = n1 * p1 + thread; i1 < n1 * p1 + n1; i1 += 256) {
            const f32 v0 = ld_bf16(b0 + n2 * p0 + i1);
            const f32 v1 = v0;
            const f32 v3 = v1 - v2;
            st_f32(b2 + n2 * p0 + i1, v3);
            a0 = fma_f32(v3, v3, a0);
        }
        const f32 v5 = team_sum_f32(shared, thread, 256, a0);
        if (thread == 0) st_f32(b3 + n0 * p0 + p1, v5);
    }
}

#line 1 "k_23335dbed65762f5"
extern "C" __global__ __launch_bounds__(128) void k_23335dbed65762f5(const f32 *__restrict__ const b0, const f32 *__restrict__ const b1, const u16 *__restrict__ const b2, const u16 *__restrict__ const b3, u16 *const b4, const i64 n0, const i64 n1, const i64 total, u8 *scratch, i64 *const err)
{
    const i64 group = blockIdx.x, groups = gridDim.x;
    const int thread = (int)threadIdx.x;
    const int whole = ALIGNED(b0, 16) && n0 % 4 == 0 && ALIGNED(b2, 16) && ALIGNED(b3, 16) && ALIGNED(b4, 16) && n0 % 8 == 0;
    for (i64 point = group * 128 + thread; point < total; point += (i64)groups * 128) {
        const i64 q1 = quot(point, n1), p1_0 = (point - q1 * n1) * 8;
        const i64 p0 = q1;
        if (whole && p1_0 + 8 <= n0) {
            PACK(f32, 8) r0;
            PACK(u16, 8) r1;
            PACK(u16, 8) r2;
            PACK(u16, 8) r3;
            PACK_LOAD(r0, PACK(f32, 8), b0 + n0 * p0 + p1_0);
            PACK_LOAD(r1, PACK(u16, 8), b2 + p1_0);
            PACK_LOAD(r2, PACK(u16, 8), b3 + p1_0);
            UNROLL for (int e = 0; e < 8; e++) {
                const i64 p1 = p1_0 + e;
                const f32 v0 = PACK_GET(f32, r0, e);
                const f32 v1 = ld_f32(b1 + p0);
                const f32 v2 = v0 * v1;
                const f32 v3 = PACK_GET(bf16, r1, e);
                const f32 v4 = v3;
                const f32 v5 = v2 * v4;
                const f32 v6 = PACK_GET(bf16, r2, e);
                const f32 v7 = v6;
                const f32 v8 = v5 + v7;
                const f32 v9 = round_bf16(v8);
                PACK_PUT(bf16, r3, e, v9);
            }
            PACK_STORE(r3, PACK(u16, 8), b4 + n0 * p0 + p1_0);
        } else {
            ROLLED for (i64 p1 = p1_0; p1 < imin(p1_0 + 8, n0); p1++) {
                const f32 v0 = ld_f32(b0 + n0 * p0 + p1);
                const f32 v1 = ld_f32(b1 + p0);
                const f32 v2 = v0 * v1;
                const f32 v3 = ld_bf16(b2 + p1);
                const f32 v4 = v3;
                const f32 v5 = v2 * v4;
                const f32 v6 = ld_bf16(b3 + p1);
                const f32 v7 = v6;
                const f32 v8 = v5 + v7;
                const f32 v9 = round_bf16(v8);
                st_bf16(b4 + n0 * p0 + p1, v9);
            }
        }
    }
}

