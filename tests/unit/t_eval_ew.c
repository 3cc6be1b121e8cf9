/* Elementwise primitives and casts in the reference interpreter: each is compared with values worked out by hand, and with C's own arithmetic. */
#include "eval_bench.h"
#include <limits.h>

static Scalar ew_f(Op op, DType t, double a, double b)
{
    return eval_ew(op, t, prim_info[op].arity, (Scalar[]){ { .f = a }, { .f = b } });
}
static int64_t ew_i(Op op, DType t, int64_t a, int64_t b)
{
    return eval_ew(op, t, prim_info[op].arity, (Scalar[]){ { .i = a }, { .i = b } }).i;
}

static void test_floats(void **state)
{
    (void)state;
    const double inf = INFINITY, nan = NAN;
    static const struct { Op op; double a, b, want;
    } row[] = {
        { OP_neg, 0.0, 0, -0.0 },
        { OP_neg, -INFINITY, 0, INFINITY },
        { OP_neg, NAN, 0, NAN },
        { OP_abs, -0.0, 0, 0.0 },
        { OP_abs, -INFINITY, 0, INFINITY },
        { OP_abs, NAN, 0, NAN },
        { OP_sqrt, -0.0, 0, -0.0 },
        { OP_sqrt, -1, 0, NAN },
        { OP_sqrt, INFINITY, 0, INFINITY },
        { OP_sqrt, 9, 0, 3 },
        { OP_exp, -INFINITY, 0, 0 },
        { OP_exp, INFINITY, 0, INFINITY },
        { OP_exp, -0.0, 0, 1 },
        { OP_exp, NAN, 0, NAN },
        { OP_log, 0.0, 0, -INFINITY },
        { OP_log, -0.0, 0, -INFINITY },
        { OP_log, -1, 0, NAN },
        { OP_log, INFINITY, 0, INFINITY },
        { OP_log, 1, 0, 0 },
        { OP_log1p, -1, 0, -INFINITY },
        { OP_log1p, -2, 0, NAN },
        { OP_log1p, -0.0, 0, -0.0 },
        { OP_expm1, -INFINITY, 0, -1 },
        { OP_expm1, -0.0, 0, -0.0 },
        { OP_expm1, INFINITY, 0, INFINITY },
        { OP_sin, INFINITY, 0, NAN },
        { OP_sin, -0.0, 0, -0.0 },
        { OP_cos, INFINITY, 0, NAN },
        { OP_cos, 0, 0, 1 },
        { OP_tan, -0.0, 0, -0.0 },
        { OP_tan, INFINITY, 0, NAN },
        { OP_asin, 2, 0, NAN },
        { OP_asin, -0.0, 0, -0.0 },
        { OP_acos, 1, 0, 0 },
        { OP_acos, -2, 0, NAN },
        { OP_atan, -0.0, 0, -0.0 },
        { OP_sinh, -INFINITY, 0, -INFINITY },
        { OP_cosh, -INFINITY, 0, INFINITY },
        { OP_sigmoid, 0, 0, 0.5 },
        { OP_sigmoid, INFINITY, 0, 1 },
        { OP_sigmoid, -INFINITY, 0, 0 },
        { OP_tanh, INFINITY, 0, 1 },
        { OP_tanh, -INFINITY, 0, -1 },
        { OP_tanh, -0.0, 0, -0.0 },
        { OP_asinh, -INFINITY, 0, -INFINITY },
        { OP_acosh, 0.5, 0, NAN },
        { OP_acosh, 1, 0, 0 },
        { OP_atanh, 1, 0, INFINITY },
        { OP_atanh, -1, 0, -INFINITY },
        { OP_atanh, 2, 0, NAN },
        { OP_erf, INFINITY, 0, 1 },
        { OP_erf, -INFINITY, 0, -1 },
        { OP_erf, -0.0, 0, -0.0 },
        { OP_floor, -0.5, 0, -1 },
        { OP_floor, -0.0, 0, -0.0 },
        { OP_ceil, -0.5, 0, -0.0 },
        { OP_ceil, 0.25, 0, 1 },
        { OP_trunc, -1.75, 0, -1 },
        { OP_trunc, INFINITY, 0, INFINITY },
        { OP_round, 0.5, 0, 0 },
        { OP_round, 1.5, 0, 2 },
        { OP_round, 2.5, 0, 2 },
        { OP_round, -0.5, 0, -0.0 },
        { OP_round, -2.5, 0, -2 },
        { OP_add, INFINITY, -INFINITY, NAN },
        { OP_add, -0.0, -0.0, -0.0 },
        { OP_add, -0.0, 0.0, 0.0 },
        { OP_sub, INFINITY, INFINITY, NAN },
        { OP_sub, 0.0, 0.0, 0.0 },
        { OP_sub, -0.0, 0.0, -0.0 },
        { OP_mul, 0, INFINITY, NAN },
        { OP_mul, -0.0, 3, -0.0 },
        { OP_mul, -2, 3, -6 },
        { OP_div, 1, 0.0, INFINITY },
        { OP_div, 1, -0.0, -INFINITY },
        { OP_div, 0, 0, NAN },
        { OP_div, 0, -5, -0.0 },
        { OP_div, INFINITY, INFINITY, NAN },
        { OP_mod, -3, 2, 1 },
        { OP_mod, 3, -2, -1 },
        { OP_mod, 5.5, 2, 1.5 },
        { OP_mod, -4, 2, 0.0 },
        { OP_mod, 4, -2, -0.0 },
        { OP_mod, 1, 0, NAN },
        { OP_mod, NAN, 2, NAN },
        { OP_mod, 1, INFINITY, 1 },
        { OP_fmod, -3, 2, -1 },
        { OP_fmod, 3, -2, 1 },
        { OP_fmod, -4, 2, -0.0 },
        { OP_fmod, 1, 0, NAN },
        { OP_fmod, 5, INFINITY, 5 },
        { OP_pow, 0, 0, 1 },
        { OP_pow, NAN, 0, 1 },
        { OP_pow, 1, NAN, 1 },
        { OP_pow, -8, 1.0 / 3, NAN },
        { OP_pow, 0, -1, INFINITY },
        { OP_pow, -2, 3, -8 },
        { OP_max, NAN, 1, NAN },
        { OP_max, 1, NAN, NAN },
        { OP_max, -0.0, 0.0, 0.0 },
        { OP_max, 0.0, -0.0, 0.0 },
        { OP_max, -0.0, -0.0, -0.0 },
        { OP_max, -INFINITY, 3, 3 },
        { OP_min, NAN, 1, NAN },
        { OP_min, 1, NAN, NAN },
        { OP_min, -0.0, 0.0, -0.0 },
        { OP_min, 0.0, -0.0, -0.0 },
        { OP_min, INFINITY, 3, 3 },
    };
    static const DType dt[] = { DT_f64, DT_f32, DT_f16, DT_bf16 };
    bool seen[OP_COUNT] = { 0 };
    for (size_t d = 0; d < COUNT_OF(dt); d++)
        for (size_t k = 0; k < COUNT_OF(row); k++) {
            double got = ew_f(row[k].op, dt[d], row[k].a, row[k].b).f;
            seen[row[k].op] = true;
            if (!same_float(got, row[k].want))
                fail_msg("%s %s(%g, %g) is %g, wanted %g", dtype_info[dt[d]].name, prim_info[row[k].op].name,
                         row[k].a, row[k].b, got, row[k].want);
        }
    for (int op = 0; op < OP_COUNT; op++)       /* no row for floats is left out */
        if (prim_info[op].elementwise && strchr(prim_info[op].domain, 'F') && !prim_info[op].compares &&
            !seen[op])
            fail_msg("%s is not tested on special values", prim_info[op].name);
    assert_int_equal(ew_f(OP_lt, DT_f32, nan, 1).i, 0);
    assert_int_equal(ew_f(OP_le, DT_f32, 1, nan).i, 0);
    assert_int_equal(ew_f(OP_eq, DT_f32, nan, nan).i, 0);
    assert_int_equal(ew_f(OP_eq, DT_f32, -0.0, 0.0).i, 1);
    assert_int_equal(ew_f(OP_lt, DT_f32, -0.0, 0.0).i, 0);
    assert_int_equal(ew_f(OP_le, DT_f32, -inf, inf).i, 1);
    /* rounding to the dtype, and past its range */
    assert_true(ew_f(OP_add, DT_f32, 16777216, 1).f == 16777216);
    assert_true(ew_f(OP_mul, DT_f32, 3e38, 10).f == inf);
    assert_true(ew_f(OP_add, DT_f16, 65504, 32).f == inf);
    assert_true(ew_f(OP_add, DT_f16, 2048, 1).f == 2048);
    assert_true(ew_f(OP_add, DT_bf16, 256, 1).f == 256);
    assert_true(ew_f(OP_div, DT_f32, 1, 3).f == (double)(1.0f / 3.0f));
    /* f32 arithmetic is that of float */
    unsigned seed = 7;
    for (int k = 0; k < 20000; k++) {
        float a = noise(&seed) * 1e3f, c = noise(&seed);
        assert_true((float)ew_f(OP_add, DT_f32, a, c).f == a + c &&
                    (float)ew_f(OP_mul, DT_f32, a, c).f == a * c);
        assert_true((float)ew_f(OP_div, DT_f32, a, c).f == a / c &&
                    (float)ew_f(OP_sqrt, DT_f32, fabsf(a), 0).f == sqrtf(fabsf(a)));
    }
}

/* All pairs of the 8-bit dtypes against C's int arithmetic. */
static void test_bytes(void **state)
{
    (void)state;
    for (int unsig = 0; unsig < 2; unsig++)
        for (int a = unsig ? 0 : -128; a < (unsig ? 256 : 128); a++)
            for (int b = unsig ? 0 : -128; b < (unsig ? 256 : 128); b++) {
                DType t = unsig ? DT_u8 : DT_i8;
                int floored = b ? a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0) : 0,
                    power = b < 0 ? 0 : 1;
                for (int k = 0; k < b; k++)
                    power = (int)((unsigned)power * (unsigned)a & 0xFF);
                if (b < 0 && (a == 1 || a == -1))
                    power = a == 1 || b % 2 == 0 ? 1 : -1;
                int shift = b < 0 || b > 7 ? 8 : b;
                int want[] = { [0] = a + b,
                               a - b,
                               a * b,
                               b ? a / b : 0,
                               floored,
                               b ? a % b : 0,
                               a > b ? a : b,
                               a < b ? a : b,
                               a & b,
                               a | b,
                               a ^ b,
                               shift == 8 ? 0 : (int)((unsigned)a << shift),
                               a >> shift,
                               power,
                               -a,
                               a < 0 ? -a : a,
                               ~a };
                static const Op op[] = { OP_add, OP_sub, OP_mul, OP_div, OP_mod, OP_fmod,
                                         OP_max, OP_min, OP_and, OP_or,  OP_xor, OP_shl,
                                         OP_shr, OP_pow, OP_neg, OP_abs, OP_not };
                for (size_t k = 0; k < COUNT_OF(op); k++) {
                    int64_t wrapped = unsig ? (uint8_t)want[k] : (int8_t)(uint8_t)want[k];
                    if (ew_i(op[k], t, a, b) != wrapped)
                        fail_msg("%s %s(%d, %d) is %lld, wanted %lld", dtype_info[t].name,
                                 prim_info[op[k]].name, a, b, (long long)ew_i(op[k], t, a, b),
                                 (long long)wrapped);
                }
                assert_int_equal(ew_i(OP_lt, t, a, b), a < b);
                assert_int_equal(ew_i(OP_le, t, a, b), a <= b);
                assert_int_equal(ew_i(OP_eq, t, a, b), a == b);
            }
}

static void test_ints(void **state)
{
    (void)state;
    const int64_t big = INT64_MAX, low = INT64_MIN;
    assert_true(ew_i(OP_div, DT_i64, low, -1) == low && ew_i(OP_div, DT_i32, INT_MIN, -1) == INT_MIN);
    assert_true(ew_i(OP_mod, DT_i64, low, -1) == 0 && ew_i(OP_fmod, DT_i64, low, -1) == 0);
    assert_true(ew_i(OP_div, DT_i64, 5, 0) == 0 && ew_i(OP_mod, DT_i64, 5, 0) == 0 &&
                ew_i(OP_fmod, DT_u64, 5, 0) == 0);
    assert_true(ew_i(OP_div, DT_i64, -7, 2) == -3 && ew_i(OP_mod, DT_i64, -7, 2) == 1 &&
                ew_i(OP_fmod, DT_i64, -7, 2) == -1);
    assert_true(ew_i(OP_mod, DT_i64, 7, -2) == -1 && ew_i(OP_mod, DT_i64, low, 3) == 1);
    assert_true(ew_i(OP_add, DT_i64, big, 1) == low && ew_i(OP_sub, DT_i64, low, 1) == big &&
                ew_i(OP_mul, DT_i64, low, -1) == low);
    assert_true(ew_i(OP_neg, DT_i64, low, 0) == low && ew_i(OP_abs, DT_i64, low, 0) == low &&
                ew_i(OP_abs, DT_i32, INT_MIN, 0) == INT_MIN);
    assert_true(ew_i(OP_add, DT_i32, INT_MAX, 1) == INT_MIN && ew_i(OP_add, DT_u32, UINT32_MAX, 1) == 0);
    assert_true(ew_i(OP_add, DT_i16, 32767, 1) == -32768 && ew_i(OP_mul, DT_u16, 65535, 65535) == 1);
    /* u64: the top bit is a value */
    const int64_t top = (int64_t)0x8000000000000000u, all = -1;
    assert_true(ew_i(OP_div, DT_u64, all, 2) == big && ew_i(OP_mod, DT_u64, all, 10) == 5 &&
                ew_i(OP_div, DT_u64, 1, all) == 0);
    assert_true(ew_i(OP_lt, DT_u64, 1, top) == 1 && ew_i(OP_le, DT_u64, top, 1) == 0 &&
                ew_i(OP_max, DT_u64, 1, top) == top);
    assert_true(ew_i(OP_min, DT_u64, 1, top) == 1 && ew_i(OP_abs, DT_u64, top + 1, 0) == top + 1 &&
                ew_i(OP_shr, DT_u64, top, 63) == 1);
    assert_true(ew_i(OP_shl, DT_u64, 1, 64) == 0 && ew_i(OP_shl, DT_i64, 3, 63) == low &&
                ew_i(OP_shr, DT_i64, -8, 1) == -4);
    assert_true(ew_i(OP_shl, DT_u32, 3, 31) == (int64_t)0x80000000u && ew_i(OP_shl, DT_i64, 1, -1) == 0 &&
                ew_i(OP_shr, DT_u32, 1, 32) == 0);
    assert_true(ew_i(OP_shr, DT_i32, -8, 32) == -1 && ew_i(OP_shr, DT_i8, -8, -1) == -1 &&
                ew_i(OP_shr, DT_i8, 8, 8) == 0 && ew_i(OP_shr, DT_u64, top, 64) == 0);
    assert_true(ew_i(OP_pow, DT_i64, 3, 4) == 81 && ew_i(OP_pow, DT_i64, -2, 63) == low &&
                ew_i(OP_pow, DT_i64, 2, -1) == 0);
    assert_true(ew_i(OP_pow, DT_i64, -1, -3) == -1 && ew_i(OP_pow, DT_i64, 0, 0) == 1 &&
                ew_i(OP_pow, DT_i32, 2, 31) == INT_MIN);
    /* two and four bits */
    assert_true(ew_i(OP_add, DT_i4, 7, 1) == -8 && ew_i(OP_add, DT_u4, 15, 1) == 0 &&
                ew_i(OP_not, DT_u4, 5, 0) == 10);
    assert_true(ew_i(OP_shl, DT_u4, 1, 4) == 0 && ew_i(OP_add, DT_i2, 1, 1) == -2);
    /* truth values */
    assert_true(ew_i(OP_not, DT_bool, 0, 0) == 1 && ew_i(OP_not, DT_bool, 1, 0) == 0 &&
                ew_i(OP_xor, DT_bool, 1, 1) == 0);
    assert_true(ew_i(OP_and, DT_bool, 1, 0) == 0 && ew_i(OP_or, DT_bool, 1, 0) == 1 &&
                ew_i(OP_eq, DT_bool, 1, 1) == 1);
}

TEST(casts)
{
    Graph *g = b->g;
    const float v[] = { 1.75f, -1.75f, NAN, INFINITY, -INFINITY, 300.5f, -0.0f, 65519.0f };
    Node *x = vec_f32(b, 8, v);
    expect_i64(bench_run(b, g_cast(g, x, DT_i64)), 8,
               (int64_t[]){ 1, -1, 0, INT64_MAX, INT64_MIN, 300, 0, 65519 });
    Tensor t = bench_run(b, g_cast(g, x, DT_u8));
    assert_memory_equal(t.data, ((uint8_t[]){ 1, 255, 0, 255, 0, 44, 0, 65519 & 255 }), 8);
    t = bench_run(b, g_cast(g, x, DT_bool));
    assert_memory_equal(t.data, ((uint8_t[]){ 1, 1, 1, 1, 1, 1, 0, 1 }), 8);
    expect_f32(bench_run(b, g_cast(g, g_cast(g, x, DT_f16), DT_f32)), 8,
               (float[]){ 1.75f, -1.75f, NAN, INFINITY, -INFINITY, 300.5f, -0.0f, 65504 });
    t = bench_run(b, g_bitcast(g, x, DT_i32));
    assert_true(((int32_t *)t.data)[0] == 0x3FE00000 && ((int32_t *)t.data)[6] == INT_MIN &&
                ((int32_t *)t.data)[3] == 0x7F800000);
    Node *mask = g2(g, OP_lt, x, g_scalar(g, DT_f32, 0));
    expect_f32(bench_run(b, g_where(g, mask, g_scalar(g, DT_f32, 7), x)), 8,
               (float[]){ 1.75f, 7, NAN, INFINITY, 7, 300.5f, -0.0f, 65519 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats), cmocka_unit_test(test_bytes), cmocka_unit_test(test_ints), cmocka_unit_test(test_casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
