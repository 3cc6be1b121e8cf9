/* Numbers that compilers of tensor graphs are known to get wrong: NaN, infinities, signed zeros, denormals, rounding, long sums, integers at their bounds.
 * Each model runs in the interpreter and as a program, fused and not (see model.h). */
#include "model.h"

/* ---- NaN --------------------------------------------------------------------------------------------------------------------------------- */
/* Vector maximum and minimum instructions return the other operand: bodies and tails of every length. */
static void test_nan_in_bounds(void **state)
{
    (void)state;
    static const int length[] = { 3, 8, 16, 17, 40, 64 };
    for (size_t l = 0; l < COUNT_OF(length); l++) {
        int n = length[l], at = n > 37 ? 37 : n - 1;
        char x[1024] = "", relu[1024] = "", clip[1024] = "", min[1024] = "", max[1024] = "", pool[1024] = "", in[4096], want[8192];
        for (int i = 0; i < n; i++) {
            bool nan = i == 0 || i == at;
            int v = i * 5 % 17 - 8, next = (i + 1) * 5 % 17 - 8;
#define PUT(s, value) (nan ? (void)strcat(s, " nan") : (void)sprintf(s + strlen(s), " %d", value))
            PUT(x, v);
            PUT(relu, v > 0 ? v : 0);
            PUT(clip, v < 0 ? 0 : v > 6 ? 6 : v);
            PUT(min, v < 2 ? v : 2);
            PUT(max, v > 2 ? v : 2);
            nan |= i + 1 == at;
            if (i + 1 < n) PUT(pool, v > next ? v : next);
#undef PUT
        }
        snprintf(in, sizeof in, "f32[%d] %s; f32[%d] 2; f32[] 0; f32[] 6; f32[%d] %s", n, x, n, n, x);
        snprintf(want, sizeof want, "f32[%d] %s; f32[%d] %s; f32[%d] %s; f32[%d] %s; f32[%d] %s; f32[%d] %s; f32[1,1,%d] %s; f32[] nan; f32[] nan; f32[] nan; f32[] nan",
                 n, relu, n, clip, n, min, n, min, n, max, n, max, n - 1, pool);
        trial_gives(OPSET(18) "g (float[N] x, float[N] b, float lo, float hi, float[M] z) => (float[N] relu, float[N] clip, float[N] min1, float[N] min2,\n"
                    "float[N] max1, float[N] max2, float[1,1,P] pool, float top, float low, float most, float both) <int64[3] s = {1, 1, -1}> {\n"
                    "relu = Relu(x) clip = Clip(x, lo, hi) min1 = Min(x, b) min2 = Min(b, x) max1 = Max(x, b) max2 = Max(b, x) u = Reshape(x, s)\n"
                    "pool = MaxPool<kernel_shape = [2]>(u) top = ReduceMax<keepdims = 0>(x) low = ReduceMin<keepdims = 0>(x)\n"
                    "m = Relu(z) most = ReduceMax<keepdims = 0>(m) o = Max(x, b) both = ReduceMin<keepdims = 0>(o) }", in, want, 0);
    }
}

static void test_nan_arg(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[6] x, float[3] e) => (int64 a, int64 b, int64 f0, int64 f1, int64 l0, int64 l1) {\n"
                "a = ArgMax<keepdims = 0>(x) b = ArgMin<keepdims = 0>(x) f0 = ArgMax<keepdims = 0>(e) l0 = ArgMax<keepdims = 0, select_last_index = 1>(e)\n"
                "f1 = ArgMin<keepdims = 0>(e) l1 = ArgMin<keepdims = 0, select_last_index = 1>(e) }",
                "f32[6] 4 2 nan 6 1 3; f32[3] 1", "i64[] 2; i64[] 2; i64[] 0; i64[] 0; i64[] 2; i64[] 2", 0);
}

/* Fused or not: a row without any finite score has no softmax. */
static void test_softmax_masked_row(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2,3] x, float[2,2] q, float[2,3] k, float[3,2] v) => (float[2,3] y, float[2,2] o) {\n"
                "y = Softmax(x) s = MatMul(q, k) m = Add(s, x) p = Softmax(m) o = MatMul(p, v) }",
                "f32[2,3] -inf -inf -inf 0 -inf 0; f32[2,2] 0; f32[2,3] 1; f32[3,2] 1 2 100 200 3 4",
                "f32[2,3] nan nan nan 0.5 0 0.5; f32[2,2] nan nan 2 3", 1e-6);
}

static void test_nan_inf_tests(void **state)
{
    (void)state;
    trial_gives(OPSET(20) "g (float[5] x, float[2] l) => (bool[5] n, bool[5] i, float[5] w, float[1] s) {\n"
                "n = IsNaN(x) i = IsInf(x) z = Sub(x, x) nz = IsNaN(z) w = Where(nz, l0, x) s = ReduceLogSumExp(l) l0 = Constant<value_float = 9.0>() }",
                "f32[5] nan inf -inf 0 1e38; f32[2] -inf 0", "bool[5] 1 0 0 0 0; bool[5] 0 1 1 0 0; f32[5] 9 9 9 0 1e38; f32[1] 0", 0);
}

/* ---- algebra that holds for real numbers only ---------------------------------------------------------------------------------------------- */
static void test_inverse_pairs(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2] a, float[2] b, float[2] c) => (float[2] x, float[2] y, float[2] z) {\n"
                "e = Exp(a) x = Log(e) m = Mul(b, b) y = Sqrt(m) l = Log(c) z = Exp(l) }",
                "f32[2] 89 0; f32[2] 1e20 2; f32[2] -1 1", "f32[2] inf 0; f32[2] inf 2; f32[2] nan 1", 0);
}

static void test_neutral_elements(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[4] x) => (float[4] m, float[4] s, float[4] d, float[1,1,4] a) <float zero = {0}, float[1,1,1] zeros = {0}> {\n"
                "m = Mul(x, zero) s = Sub(x, x) d = Div(x, x) a = Add(x, zeros) }",
                "f32[4] nan inf -1 1", "f32[4] nan nan -0 0; f32[4] nan nan 0 0; f32[4] nan nan 1 1; f32[1,1,4] nan inf -1 1", 0);
}

static void test_sign_of_zero(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[3] x) => (float[3] plus, float[3] minus, float[3] times, float[3] twice, float[3] abs, float[3] one)\n"
                "<float zero = {0}, float neg = {-0.0}, float one_ = {1}> { plus = Add(x, zero) minus = Add(x, neg) times = Mul(x, one_) n = Neg(x) twice = Neg(n)\n"
                "abs = Abs(x) q = Div(one_, x) one = Div(one_, q) }",
                "f32[3] -0 0 -2", "f32[3] 0 0 -2; f32[3] -0 0 -2; f32[3] -0 0 -2; f32[3] -0 0 -2; f32[3] 0 0 2; f32[3] -0 0 -2", 0);
    for (int i = 0; i < 2; i++)          /* integers have one zero, also where a compiler knows the way through them */
        trial_gives(OPSET(18) "g (float[N] x) => (float[N] y, double[N] z, float[N] w) { i = Cast<to = 7>(x) y = Cast<to = 1>(i) d = Cast<to = 11>(x) j = Cast<to = 6>(d) z = Cast<to = 11>(j) k = Cast<to = 6>(i) w = Cast<to = 1>(k) }",
                    i ? "f32[19] -0.5*18 1.7" : "f32[1] -0.5", i ? "f32[19] 0*18 1; f64[19] 0*18 1; f32[19] 0*18 1" : "f32[1] 0; f64[1] 0; f32[1] 0", 0);
}

static void test_reciprocal_times(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[4] x, float[4] y) => (float[4] z, float[4] w) { r = Reciprocal(x) z = Mul(r, y) w = Div(y, x) }",
                "f32[4] 1e-39 0 inf 4; f32[4] 1e-39 0 inf 2", "f32[4] inf nan nan 0.5; f32[4] 1 nan nan 0.5", 0);
}

static void test_sum_then_difference(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[3] x) => (float[3] y) <float one = {1}> { a = Add(x, one) y = Sub(x, a) }", "f32[3] 0 5 1e8", "f32[3] -1 -1 0", 0);
}

static void test_denormals(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[17] x) => (float[17] y, float[17] z) <float one = {1}, float big = {1e30}> { y = Mul(x, one) z = Mul(x, big) }",
                "f32[17] 1e-40", "f32[17] 1e-40; f32[17] 9.9999462e-11", 1e-12);
}

/* ---- rounding stays where the graph has it -------------------------------------------------------------------------------------------------- */
static void test_cast_pair_rounds(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2] x, float[4] z) => (float[2] y, float s, float[2] b) <float two = {2}> {\n"
                "h = Cast<to = 10>(x) y = Cast<to = 1>(h) hz = Cast<to = 10>(z) fz = Cast<to = 1>(hz) m = Mul(fz, two) s = ReduceSum<keepdims = 0>(m)\n"
                "hb = Cast<to = 16>(x) b = Cast<to = 1>(hb) }",
                "f32[2] 0.14285715 70000; f32[4] 0.14285715", "f32[2] 0.142822265625 inf; f32[] 1.142578125; f32[2] 0.142578125 70144", 0);
}

/* One product seen by its own group and by another: the same rounded value. */
static void test_f16_one_value(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float16[2,2] a, float16[2,2] b) => (float16[2,2] d, float16[2,2] e, float16[2,2] t) {\n"
                "t = Mul(a, b) r = Transpose(t) rr = Transpose(r) d = Sub(t, rr) q = ReduceMax<keepdims = 1>(t) u = Add(t, q) e = Sub(u, t) }",
                "f16[2,2] 0.33325195 1.0009766 3.1425781 0.1; f16[2,2] 0.1 1.0009766 3.1425781 7.1015625",
                "f16[2,2] 0; f16[2,2] 9.8671875 9.875 9.875 9.875; f16[2,2] 0.033325195 1.0019531 9.875 0.70996094", 1e-3);
}

/* A residual that is stored and normalised: both see the sum rounded to the narrow type. */
static void test_f16_residual(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float16[1,4] a, float16[1,4] b) => (float16[1,4] s, float16[1,4] n, float16[1,4] d) {\n"
                "s = Add(a, b) m = ReduceMean<axes = [-1]>(s) n = Sub(s, m) d = Sub(n, n2) m2 = ReduceMean<axes = [-1]>(s2) n2 = Sub(s2, m2) s2 = Add(a, b) }",
                "f16[1,4] 2000 2001 2002 2003; f16[1,4] 49.3125", "f16[1,4] 2050 2050 2052 2052; f16[1,4] -2 -2 0 0; f16[1,4] 0", 0);
}

static void test_f16_masks(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float16[2,4] x, float[2,4] m) => (float16[2,4] y, float16[2,4] z) <float16 low = {64511}> {\n"
                "c = Cast<to = 10>(m) s = Add(x, c) y = Softmax(s) w = Where(b, low, low) b = Equal(x, x) z = Softmax(w) }",
                "f16[2,4] 1; f32[2,4] 0 -1e12 0 -1e12 0 0 0 -1e12", "f16[2,4] 0.5 0 0.5 0 0.33325195 0.33325195 0.33325195 0; f16[2,4] 0.25", 1e-6);
}

static void test_float_to_integer(void **state)
{
    (void)state;                        /* docs: truncated, saturated to 64 bits, then wrapped; NaN is 0 */
    trial_gives(OPSET(18) "g (float[6] x) => (uint8[6] u, int8[6] i, int32[6] w, bool[6] b) { u = Cast<to = 2>(x) i = Cast<to = 3>(x) w = Cast<to = 6>(x) b = Cast<to = 9>(x) }",
                "f32[6] 300.7 nan -1.5 0.5 -0.0 127.9", "u8[6] 44 0 255 0 0 127; i8[6] 44 0 -1 0 0 127; i32[6] 300 0 -1 0 0 127; bool[6] 1 1 1 1 0 1", 0);
}

/* ---- sums and means --------------------------------------------------------------------------------------------------------------------------- */
static void test_narrow_sums(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float16[20000] x, bfloat16[70000] y, float16[4] z) => (float16 a, bfloat16 b, float16 c, float16 d) {\n"
                "a = ReduceSum<keepdims = 0>(x) b = ReduceMean<keepdims = 0>(y) c = ReduceMean<keepdims = 0>(z) d = ReduceL2<keepdims = 0>(z) }",
                "f16[20000] 1; bf16[70000] 1; f16[4] 60000", "f16[] 20000; bf16[] 1; f16[] 60000; f16[] inf", 0);
}

static void long_sum(const char *text, const char *in, const char *want)
{
    int bad = trial_mode(MODE_fused, text, in, want, 0) + trial_mode(MODE_unfused, text, in, want, 0);
    assert_int_equal(bad, 0);
}

/* Single precision counts no further than 2^24 one by one. */
static void test_long_sums(void **state)
{
    (void)state;
    long_sum(OPSET(18) "g (float[N,1] x) => (float[1,1] y, float[N2,1] z) <int64[1] zero = {0}, int64[1] one = {1}> { y = ReduceSum(x, zero) n = Shape(y) z = Expand(y, n) }",
             "f32[20000000,1] 1", "f32[1,1] 20000000; f32[1,1] 20000000");
    long_sum(OPSET(18) "g (float[N,2] x) => (float[2] y, float m) <int64[1] zero = {0}> { y = ReduceSum<keepdims = 0>(x, zero) m = ReduceMean<keepdims = 0>(x) }",
             "f32[20000000,2] 1", "f32[2] 20000000; f32[] 1");
}

/* Equal addends err to one side: sums over one axis, over two, of squares, of products, of sizes known or not. */
static void test_sums_keep_digits(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[300,3,500] a, float[N,3,M] b, float[70000,16] c, float[200000,2] d, float[2,P] e, float[P,1] f) => (float[3] a0, float[3] b0, float c0, float[2] d0, float[2] e0, float[2,1] p, float[16] q)\n"
                "<int64[2] ends = {0, 2}, int64[1] rows = {0}, int64[1] last = {1}> { a0 = ReduceSum<keepdims = 0>(a, ends) b0 = ReduceSum<keepdims = 0>(b, ends) c0 = ReduceSum<keepdims = 0>(c)\n"
                "d0 = ReduceSum<keepdims = 0>(d, rows) e0 = ReduceSumSquare<keepdims = 0>(e, last) p = MatMul(e, f) q = ReduceMean<keepdims = 0>(c, rows) }",
                "f32[300,3,500] 0.1; f32[300,3,500] 0.1; f32[70000,16] 0.1; f32[200000,2] 0.1; f32[2,100000] 0.1; f32[100000,1] 0.1",
                "f32[3] 15000; f32[3] 15000; f32[] 112000; f32[2] 20000; f32[2] 1000; f32[2,1] 1000; f32[16] 0.1", 4e-6);
}

/* A single pass over squares cancels; a variance is never negative. */
static void test_variance(void **state)
{
    (void)state;
#define NORMS(shape, groups) OPSET(18) "g (float[1,1," shape "] x, float[" shape "] s, float[" shape "] b, float[1] s1, float[1] b1, float[1] m, float[1] v) =>\n" \
        "(float[1,1," shape "] ln, float[1,1," shape "] in, float[1,1," shape "] bn, float[1,1," shape "] chain, float[1] rm) <float two = {2}, float eps = {1e-5}> {\n" \
        "ln = LayerNormalization(x, s, b) in = InstanceNormalization(x, s1, b1) bn, rm, rv = BatchNormalization<training_mode = 1, momentum = 0.0>(x, s1, b1, m, v)\n" \
        "mean = ReduceMean<axes = [-1]>(x) d = Sub(x, mean) q = Pow(d, two) var = ReduceMean<axes = [-1]>(q) ve = Add(var, eps) sd = Sqrt(ve) chain = Div(d, sd) }"
    trial_gives(NORMS("4", "1"), "f32[1,1,4] 40000..40003; f32[4] 1; f32[4] 0; f32[1] 1; f32[1] 0; f32[1] 0; f32[1] 1",
                "f32[1,1,4] -1.3416354 -0.4472118 0.4472118 1.3416354; f32[1,1,4] -1.3416354 -0.4472118 0.4472118 1.3416354;"
                "f32[1,1,4] -1.3416354 -0.4472118 0.4472118 1.3416354; f32[1,1,4] -1.3416354 -0.4472118 0.4472118 1.3416354; f32[1] 40001.5", 1e-6);
    trial_gives(NORMS("256", "1"), "f32[1,1,256] 1234; f32[256] 1; f32[256] 0; f32[1] 1; f32[1] 0; f32[1] 0; f32[1] 1",
                "f32[1,1,256] 0; f32[1,1,256] 0; f32[1,1,256] 0; f32[1,1,256] 0; f32[1] 1234", 0);
#undef NORMS
    trial_gives(OPSET(21) "g (float[1,2,4] x, float[2] s, float[2] b) => (float[1,2,4] y) { y = GroupNormalization<num_groups = 2>(x, s, b) }",
                "f32[1,2,4] 40000..40003 1234*4; f32[2] 1; f32[2] 0", "f32[1,2,4] -1.3416354 -0.4472118 0.4472118 1.3416354 0*4", 1e-6);
}

static void test_softmax_shapes(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[5] a, float[3,4] b, float[4,1] c, float[2,2] d) => (float[5] x, float[3,4] y, float[4,1] z, float[2,2] w) {\n"
                "x = Softmax(a) y = Softmax<axis = 0>(b) z = Softmax(c) w = LogSoftmax(d) }",
                "f32[5] 1000; f32[3,4] 0 0 0 0 0.6931472 0.6931472 0.6931472 0.6931472 0 0 0 0; f32[4,1] -5 0 5 inf; f32[2,2] 0 1000 -1000 0",
                "f32[5] 0.2; f32[3,4] 0.25 0.25 0.25 0.25 0.5 0.5 0.5 0.5 0.25 0.25 0.25 0.25; f32[4,1] 1 1 1 nan; f32[2,2] -1000 0 -1000 0", 1e-6);
    trial_gives(OPSET(18) "g (float[1,N] a) => (float one, float top) { s = Softmax(a) one = ReduceSum<keepdims = 0>(s) top = ReduceMax<keepdims = 0>(s) }",
                "f32[1,1000003] 3", "f32[] 1; f32[] 9.99997e-7", 1e-6);
}

/* ---- integers ---------------------------------------------------------------------------------------------------------------------------------- */
/* No result stops the process: x / 0 and x % 0 are what the table of primitives says, INT_MIN / -1 wraps. */
static void test_integer_division(void **state)
{
    (void)state;
#define DIVISION(T) OPSET(18) "g (" T "[N] x, " T "[N] y) => (" T "[N] d, " T "[N] m, " T "[N] f) { d = Div(x, y) m = Mod(x, y) f = Mod<fmod = 1>(x, y) }"
    trial_gives(DIVISION("int32"), "i32[6] -2147483648 7 -7 7 -7 0; i32[6] -1 2 2 -2 -2 5", "i32[6] -2147483648 3 -3 -3 3 0; i32[6] 0 1 1 -1 -1 0; i32[6] 0 1 -1 1 -1 0", 0);
    trial_gives(DIVISION("int64"), "i64[17] -9223372036854775808 7*16; i64[17] -1 2*16", "i64[17] -9223372036854775808 3*16; i64[17] 0 1*16; i64[17] 0 1*16", 0);
    trial_gives(DIVISION("int8"), "i8[3] -128 7 -7; i8[3] -1 2 2", "i8[3] -128 3 -3; i8[3] 0 1 1; i8[3] 0 1 -1", 0);
    trial_gives(DIVISION("int16"), "i16[3] -32768 7 -7; i16[3] -1 2 2", "i16[3] -32768 3 -3; i16[3] 0 1 1; i16[3] 0 1 -1", 0);
    trial_gives(DIVISION("uint8"), "u8[3] 255 7 8; u8[3] 254 2 3", "u8[3] 1 3 2; u8[3] 1 1 2; u8[3] 1 1 2", 0);
    trial_gives(DIVISION("int32"), "i32[2] -5 5; i32[2] 3 -3", "i32[2] -1 -1; i32[2] 1 -1; i32[2] -2 2", 0);
#undef DIVISION
}

static void by_zero(const char *type, const char *dt)
{
    char text[512], in[128], want[128];
    snprintf(text, sizeof text, OPSET(18) "g (%s[19] x, %s[19] y) => (%s[19] d, %s[19] m) { d = Div(x, y) m = Mod(x, y) }", type, type, type, type);
    snprintf(in, sizeof in, "%s[19] 5 0 9*17; %s[19] 0*18 3", dt, dt);
    snprintf(want, sizeof want, "%s[19] 0*18 3; %s[19] 0*19", dt, dt);
    trial_gives(text, in, want, 0);
}

static void test_division_by_zero(void **state)
{
    (void)state;
    by_zero("int8", "i8");
    by_zero("int16", "i16");
    by_zero("int32", "i32");
    by_zero("int64", "i64");
    by_zero("uint8", "u8");
    by_zero("uint32", "u32");
    by_zero("uint64", "u64");
    trial_gives(OPSET(18) "g (int32[N] x, int32[N] y) => (int32[N] z) <int32 zero = {0}, int32 low = {-2147483648}> { c = Equal(y, zero) d = Div(x, y) m = Mod(low, y) e = Where(c, zero, d) z = Add(e, m) }",
                "i32[19] 9*18 7; i32[19] 0*9 -1*9 7", "i32[19] 0*9 -9*9 6", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_in_bounds), cmocka_unit_test(test_nan_arg), cmocka_unit_test(test_softmax_masked_row), cmocka_unit_test(test_nan_inf_tests),
        cmocka_unit_test(test_inverse_pairs), cmocka_unit_test(test_neutral_elements), cmocka_unit_test(test_sign_of_zero), cmocka_unit_test(test_reciprocal_times),
        cmocka_unit_test(test_sum_then_difference), cmocka_unit_test(test_denormals), cmocka_unit_test(test_cast_pair_rounds), cmocka_unit_test(test_f16_one_value),
        cmocka_unit_test(test_f16_residual), cmocka_unit_test(test_f16_masks), cmocka_unit_test(test_float_to_integer), cmocka_unit_test(test_narrow_sums),
        cmocka_unit_test(test_long_sums), cmocka_unit_test(test_sums_keep_digits), cmocka_unit_test(test_variance), cmocka_unit_test(test_softmax_shapes), cmocka_unit_test(test_integer_division),
        cmocka_unit_test(test_division_by_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
