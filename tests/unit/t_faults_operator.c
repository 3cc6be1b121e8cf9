/* Quantised operators and attention where compilers of tensor graphs are known to differ: ties and saturation, activations before a quantiser, masks that
 * leave no key, values behind a mask. Each model runs in the interpreter and as a program, fused and not (see model.h). */
#include "model.h"

#define MSFT "<ir_version: 10, opset_import: [\"\" : 18, \"com.microsoft\" : 1]>\n"

/* ---- quantised ------------------------------------------------------------------------------------------------------------------------------ */
static void test_quantise_ties(void **state)
{
    (void)state;
    trial_gives(OPSET(21) "g (float[9] x, float[4] far) => (uint8[9] u, int8[9] i, uint8[4] v) <float s = {0.5}, float one = {1}, uint8 z = {3}, int8 zi = {0}> {\n"
                "u = QuantizeLinear(x, s, z) i = QuantizeLinear(x, s, zi) v = QuantizeLinear(far, one, z) }",
                "f32[9] 0.25 0.75 1.25 -0.25 -0.75 200 -200 0.2 inf; f32[4] 300.7 -300 252.5 251.5", "u8[9] 3 5 5 3 1 255 0 3 255; i8[9] 0 2 2 0 -2 127 -128 0 127; u8[4] 255 0 255 255", 0);
}

/* Dequantised, added and quantised again: a tie goes to the even value, fused or not. */
static void test_quantised_sum_ties(void **state)
{
    (void)state;
    char text[700], want[1400] = "u8[16,16]", odd[1400] = "u8[16,16]", in[1400];
    int n = snprintf(in, sizeof in, "u8[16,1] 0..15; u8[1,16] 100..115");
    ASSERT(n < (int)sizeof in);
    for (int a = 0; a < 16; a++)
        for (int b = 100; b < 116; b++) {
            sprintf(want + strlen(want), " %d", (int)rint((a + b) / 2.0));
            volatile float x = (float)a * 0.16f, y = (float)b * 0.16f, s = x + y, q = s / 0.32f;
            sprintf(odd + strlen(odd), " %d", (int)rintf(q));
        }
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, OPSET(21) "g (uint8[16,1] a, uint8[1,16] b) => (uint8[16,16] y) <float s = {%s}, float t = {%s}, uint8 z = {0}> {\n"
                 "x = DequantizeLinear(a, s, z) w = DequantizeLinear(b, s, z) c = Add(x, w) y = QuantizeLinear(c, t, z) }", k ? "0.16" : "0.25", k ? "0.32" : "0.5");
        trial_gives(text, in, k ? odd : want, 0);
    }
    trial_gives(MSFT "g (uint8[6] a, uint8[6] b, uint8[1,1,1,6] p) => (uint8[6] y, uint8[1,1,1,5] q) <float s = {0.5}, float t = {1}, uint8 z = {0}> {\n"
                "y = com.microsoft.QLinearAdd(a, s, z, b, s, z, t, z) q = com.microsoft.QLinearAveragePool<kernel_shape = [1, 2]>(p, s, z, s, z) }",
                "u8[6] 0..5; u8[6] 1; u8[1,1,1,6] 0..5", "u8[6] 0 1 2 2 2 3; u8[1,1,1,5] 0 2 2 4 4", 0);
    trial_gives(OPSET(21) "g (uint8[1,1,1,6] x, uint8[1,1,1,1] w, uint8[6,1] a, uint8[1,1] b) => (uint8[1,1,1,6] y, uint8[6,1] m) <float s = {0.5}, uint8 z = {0}> {\n"
                "y = QLinearConv(x, s, z, w, s, z, s, z) m = QLinearMatMul(a, s, z, b, s, z, s, z) }",
                "u8[1,1,1,6] 0..5; u8[1,1,1,1] 1; u8[6,1] 0..5; u8[1,1] 1", "u8[1,1,1,6] 0 0 1 2 2 2; u8[6,1] 0 0 1 2 2 2", 0);
}

/* A quantiser whose lowest value is not 0 does not replace the activation before it. */
static void test_activation_before_quantiser(void **state)
{
    (void)state;
    trial_gives(OPSET(21) "g (float[1,1,3] x, float[1,1,1] w) => (int8[1,1,3] q, float[1,1,3] d, int8[1,1,3] c) <float s = {0.1}, int8 z = {0}, float lo = {-1}, float hi = {2}> {\n"
                "y = Conv(x, w) r = Relu(y) q = QuantizeLinear(r, s, z) d = DequantizeLinear(q, s, z) k = Clip(y, lo, hi) c = QuantizeLinear(k, s, z) }",
                "f32[1,1,3] -3 1 4; f32[1,1,1] 1", "i8[1,1,3] 0 10 40; f32[1,1,3] 0 1 4; i8[1,1,3] -10 10 20", 1e-6);
}

/* What is added before the quantiser is added before its rounding. */
static void test_sum_before_quantiser(void **state)
{
    (void)state;
    trial_gives(OPSET(21) "g (uint8[1,1,4] x, int8[1,1,1] w, float[1,1,4] r) => (int8[1,1,4] q, int8[1,1,4] p) <float s = {0.5}, float t = {1}, uint8 z = {2}, int8 zi = {0}> {\n"
                "a = DequantizeLinear(x, s, z) b = DequantizeLinear(w, s, zi) c = Conv(a, b) d = Add(c, r) q = QuantizeLinear(d, t, zi) e = Relu(d) p = QuantizeLinear(e, t, zi) }",
                "u8[1,1,4] 2 3 5 0; i8[1,1,1] 2; f32[1,1,4] 0.5 0.5 1 -0.5", "i8[1,1,4] 0 1 2 -2; i8[1,1,4] 0 1 2 0", 0);
}

static void test_quantised_branches(void **state)
{
    (void)state;
    trial_gives(OPSET(21) "g (float[1,1,4] x, float[1,1,2] w) => (float[1,1,4] y) <float s = {0.25}, float t = {0.5}, uint8 z = {8}, int8 zi = {0}> {\n"
                "a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z) c = Conv<pads = [0, 1]>(x, w) r = Relu(c) d = QuantizeLinear(r, t, zi) e = DequantizeLinear(d, t, zi) y = Add(b, e) }",
                "f32[1,1,4] -3 0.3 0.4 100; f32[1,1,2] 1 1", "f32[1,1,4] -2 0.75 64 125.25", 0);
}

static void test_rank_zero_scale(void **state)
{
    (void)state;
    trial_gives(OPSET(21) "g (float[2,2] x, float[1] s1, float one) => (float[2,2] y, float r) <float s = {0.5}, int8 z = {0}> {\n"
                "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) p = QuantizeLinear(one, s, z) r = DequantizeLinear(p, s, z) }",
                "f32[2,2] 0 0.5 -1 2; f32[1] 0.5; f32[] 1", "f32[2,2] 0 0.5 -1 2; f32[] 1", 0);
}

static void test_quantised_softmax_saturates(void **state)
{
    (void)state;
    trial_gives(MSFT "g (uint8[2,1] x) => (uint8[2,1] y) <float s = {0.1}, uint8 z = {0}, float t = {0.00390625}> {\n"
                "y = com.microsoft.QLinearSoftmax<axis = 1, opset = 13>(x, s, z, t, z) }", "u8[2,1] 7 255", "u8[2,1] 255", 0);
}

/* ---- attention ------------------------------------------------------------------------------------------------------------------------------ */
static void test_attention_masks(void **state)
{
    (void)state;
    trial_gives(OPSET(23) "g (float[1,1,2,2] q, float[1,1,3,2] k, float[1,1,3,2] v, bool[2,3] m, float[2,3] f) => (float[1,1,2,2] y, float[1,1,2,2] z) {\n"
                "y = Attention(q, k, v, m) z = Attention(q, k, v, f) }",
                "f32[1,1,2,2] 0; f32[1,1,3,2] 1; f32[1,1,3,2] 1..6; bool[2,3] 0 0 0 1 0 1; f32[2,3] -inf -inf -inf 0 -inf 0", "f32[1,1,2,2] 0 0 3 4; f32[1,1,2,2] 0 0 3 4", 1e-6);
    trial_gives(OPSET(23) "g (float[1,1,7,1] q, float[1,1,7,1] k, float[1,1,7,1] v, bool[7,7] m) => (float[1,1,7,1] y) { y = Attention<is_causal = 1>(q, k, v, m) }",
                "f32[1,1,7,1] 0; f32[1,1,7,1] 1; f32[1,1,7,1] 1 10 100 1000 10000 100000 1000000; bool[7,7] 0 1 1 0 0 1 0 0 1 1 0 0 1 0 0 1 1 0 0 1 0 0 1 1 0 0 1 0 0 1 1 0 0 1 0 0 1 1 0 0 1 0 0 1 1 0 0 1 0",
                "f32[1,1,7,1] 0 10 55 55 55 33370 33370", 1e-6);
}

/* Keys that are not there, and keys whose score is no number behind a mask, leave no trace. */
static void test_attention_junk(void **state)
{
    (void)state;
    trial_gives(OPSET(23) "g (float[1,1,1,1] q, float[1,1,3,1] k, float[1,1,3,1] v, bool[1,3] m) => (float[1,1,1,1] y) { y = Attention(q, k, v, m) }",
                "f32[1,1,1,1] 0; f32[1,1,3,1] 1 nan 1; f32[1,1,3,1] 2 3 4; bool[1,3] 1 0 1", "f32[1,1,1,1] 3", 1e-6);
    trial_gives(OPSET(23) "g (float[1,1,1,1] q, float[1,1,3,1] k, float[1,1,3,1] v, bool[1,3] m) => (float[1,1,1,1] y) { y = Attention(q, k, v, m) }",
                "f32[1,1,1,1] 0; f32[1,1,3,1] 1; f32[1,1,3,1] 2 nan 4; bool[1,3] 1 0 1", "f32[1,1,1,1] nan", 0);
    trial_gives(OPSET(24) "g (float[1,1,1,1] q, float[1,1,4,1] k, float[1,1,4,1] v, int64[1] n) => (float[1,1,1,1] y) { y = Attention(q, k, v, , , , n) }",
                "f32[1,1,1,1] 0; f32[1,1,4,1] 1 1 nan inf; f32[1,1,4,1] 2 6 nan inf; i64[1] 2", "f32[1,1,1,1] 4", 1e-6);
}

/* A recurrence counts the axes of its result, which its factor may have more of. */
static void test_recurrence_axes(void **state)
{
    (void)state;
    trial_gives("<ir_version: 10, opset_import: [\"\" : 18, \"sinter\" : 1]>\ng (float[N] x, float[M,N] f) => (float[M,N] y, float[M,N] z) { y = sinter.scan<kind = \"sum\", axis = -1>(x, f) z = sinter.scan<kind = \"sum\", axis = 0>(x, f) }",
                "f32[2] 1 2; f32[3,2] 1..6", "f32[3,2] 1 4 1 6 1 8; f32[3,2] 1 2 4 10 21 62", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise_ties), cmocka_unit_test(test_quantised_sum_ties), cmocka_unit_test(test_activation_before_quantiser), cmocka_unit_test(test_sum_before_quantiser),
        cmocka_unit_test(test_quantised_branches), cmocka_unit_test(test_rank_zero_scale), cmocka_unit_test(test_quantised_softmax_saturates),
        cmocka_unit_test(test_attention_masks), cmocka_unit_test(test_attention_junk), cmocka_unit_test(test_recurrence_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
