/* What exporters wrote that the standard of its day did not say, or no longer says: such models run, in all three ways. */
#include "model.h"

/* The iteration number and the condition of a body as vectors of one element: the body squeezes them. */
static void test_loop_of_vectors(void **state)
{
    (void)state;
    trial_gives(OPSET(12) "g (float[3,2] x) => (float[2] y, float[3,2] all) <int64 n = {3}, bool yes = {1}, float[2] zero = {0, 0}> {\n"
                "y, all = Loop(n, yes, zero) <body = b (int64[1] i, bool[1] go, float[2] a) => (bool more, float[2] s, float[2] o) {\n"
                "k = Squeeze<axes = [0]>(i) more = Squeeze<axes = [0]>(go) row = Gather<axis = 0>(x, k) s = Add(a, row) o = Identity(s) }> }",
                "f32[3,2] 1..6", "f32[2] 9 12; f32[3,2] 1 2 4 6 9 12", 0);
}

/* LayerNormalization before it was ONNX's: float16 in, the scale's float32 out; from opset 17 on the input's dtype. */
static void test_layernorm_of_two_dtypes(void **state)
{
    (void)state;
    trial_gives(OPSET(12) "g (float16[1,2] x, float[2] s) => (float[1,2] y) { y = LayerNormalization<axis = -1, epsilon = 0.0>(x, s) }",
                "f16[1,2] 1 3; f32[2] 0.1 2", "f32[1,2] -0.1 2", 1e-6);
    trial_gives(OPSET(17) "g (float16[1,2] x, float16[2] s) => (float16[1,2] y) { y = LayerNormalization<axis = -1, epsilon = 0.0>(x, s) }",
                "f16[1,2] 1 3; f16[2] 0.5 2", "f16[1,2] -0.5 2", 0);
}

/* Of two constants with one name the last one counts, wherever it is used. Other results may not be defined twice. */
static void test_constants_twice(void **state)
{
    (void)state;
    const char *twice = OPSET(18) "g (float[2] x) => (float[2] y, float[2] z) { c = Constant<value_float = 3.0>() y = Mul(x, c) c = Constant<value_float = 5.0>() z = Add(x, c) }";
    trial_gives(twice, "f32[2] 1 2", "f32[2] 5 10; f32[2] 6 7", 0);
    const char *used_first = OPSET(18) "g (float[2] x) => (float[2] y, float[2] z) { y = Mul(x, c) c = Constant<value_float = 3.0>() z = Add(x, c) c = Constant<value_float = 5.0>() }";
    trial_gives(used_first, "f32[2] 1 2", "f32[2] 5 10; f32[2] 6 7", 0);
    trial_refused(OPSET(18) "g (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(a) a = Exp(x) }", "f32[2] 1 2", E_FORMAT, "'a', a result of a node Exp, is defined twice");
    trial_refused(OPSET(18) "g (float[2] x) => (float[2] y) { a = Constant<value_float = 3.0>() y = Mul(x, a) a = Exp(x) }", "f32[2] 1 2", E_FORMAT, "is defined twice");
}

/* The float32 nearest to 0.7 means 7/10: the last coordinate, 3.5/0.7 - 0.5, is a tie. */
static void test_scale_is_a_fraction(void **state)
{
    (void)state;
    trial_gives(OPSET(13) "g (float[6] x) => (float[4] y) <float[1] s = {0.7}> { y = Resize<mode = \"nearest\", nearest_mode = \"round_prefer_floor\">(x, , s) }",
                "f32[6] 1..6", "f32[4] 1 3 4 5", 0);
    trial_gives(OPSET(13) "g (float[6] x) => (float[4] y) <float[1] s = {0.7}> { y = Resize<mode = \"nearest\", nearest_mode = \"round_prefer_ceil\">(x, , s) }",
                "f32[6] 1..6", "f32[4] 1 3 4 6", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_of_vectors), cmocka_unit_test(test_layernorm_of_two_dtypes), cmocka_unit_test(test_constants_twice),
        cmocka_unit_test(test_scale_is_a_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
