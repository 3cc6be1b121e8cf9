/* What compilers of tensor graphs are known to get wrong when they join operators: patterns that match too much, constants folded into the wrong axis or for
 * the wrong user, operands and attributes lost in an epilogue, groups that cannot run, results over operands that are still read. Each model runs in
 * the interpreter and as a program, fused and not (see model.h). */
#include "model.h"

/* ---- patterns that look like one operator ------------------------------------------------------------------------------------------------------ */
#define NORM_CHAIN "mean = ReduceMean(x, ax) d = Sub(x, mean) q = Pow(d, two) var = ReduceMean(q, ax) ve = Add(var, eps) sd = Sqrt(ve) n = Div(d, sd)\n"
#define NORM_CONST "float two = {2}, float eps = {0}"

static void test_norm_that_grows(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,1] x) => (float[1,2] y) <" NORM_CONST ", int64[1] ax = {-1}, float[1,2] s = {3, 4}, float[1,2] b = {1, 2}, float[1,1] e = {1e-5}> {\n"
                "mean = ReduceMean(x, ax) d = Sub(x, mean) q = Pow(d, two) var = ReduceMean(q, ax) ve = Add(var, e) sd = Sqrt(ve) n = Div(d, sd) m = Mul(n, s) y = Add(m, b) }",
                "f32[1,1] 7", "f32[1,2] 1 2", 0);
    trial_gives(OPSET(18) "g (float[4,4] x, float s, float[4,1] c, float[2,1,4] w) => (float[4,4] u, float[4,4] v, float[2,4,4] z) <" NORM_CONST ", int64[1] ax = {-1}> {\n"
                NORM_CHAIN "u = Mul(n, s) v = Mul(n, c) z = Mul(n, w) }",
                "f32[4,4] 0 2 0 2 0 2 0 2 0 2 0 2 0 2 0 2; f32[] 2; f32[4,1] 1 2 3 4; f32[2,1,4] 1 2 3 4 5 6 7 8",
                "f32[4,4] -2 2 -2 2 -2 2 -2 2 -2 2 -2 2 -2 2 -2 2; f32[4,4] -1 1 -1 1 -2 2 -2 2 -3 3 -3 3 -4 4 -4 4;"
                "f32[2,4,4] -1 2 -3 4 -1 2 -3 4 -1 2 -3 4 -1 2 -3 4 -5 6 -7 8 -5 6 -7 8 -5 6 -7 8 -5 6 -7 8", 0);
}

/* Mean over all axes, over an inner one, over two: each normalises what it says. */
static void test_norm_axes(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,2,2,2] x) => (float[1,2,2,2] n) <" NORM_CONST "> { mean = ReduceMean(x) d = Sub(x, mean) q = Pow(d, two) var = ReduceMean(q)\n"
                "ve = Add(var, eps) sd = Sqrt(ve) n = Div(d, sd) }",
                "f32[1,2,2,2] 1..8", "f32[1,2,2,2] -1.5275252 -1.0910895 -0.65465367 -0.21821789 0.21821789 0.65465367 1.0910895 1.5275252", 1e-6);
    trial_gives(OPSET(18) "g (float[1,2,2,2] x) => (float[1,2,2,2] n) <" NORM_CONST ", int64[1] ax = {1}> {" NORM_CHAIN "}",
                "f32[1,2,2,2] 1..8", "f32[1,2,2,2] -1 -1 -1 -1 1 1 1 1", 0);
    trial_gives(OPSET(18) "g (float[1,2,2,2] x, float[2] s) => (float[1,2,2,2] y) <" NORM_CONST ", int64[2] ax = {-2, -1}> {" NORM_CHAIN "y = Mul(n, s) }",
                "f32[1,2,2,2] 1..8; f32[2] 1 10", "f32[1,2,2,2] -1.3416408 -4.472136 0.4472136 13.416408 -1.3416408 -4.472136 0.4472136 13.416408", 1e-6);
}

static void test_relu_clip(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (double[4] x) => (double[4] a, double[4] b, double[4] c, double[4] d) <double lo = {-1}, double hi = {1}> {\n"
                "r = Relu(x) a = Clip(r, lo, hi) b = Clip(r, lo) c = Clip(r) d = Clip(r, hi, lo) }", "f64[4] -2 0.5 3 nan", "f64[4] 0 0.5 1 nan; f64[4] 0 0.5 3 nan; f64[4] 0 0.5 3 nan; f64[4] -1 -1 -1 nan", 0);
    trial_gives(OPSET(18) "g (int32[3] x) => (int32[3] a, int32[3] b) <int32 lo = {-1}, int32 hi = {2}> { r = Relu(x) a = Clip(r, , hi) b = Clip(x, lo) }",
                "i32[3] -2 1 3", "i32[3] 0 1 2; i32[3] -1 1 3", 0);
    trial_gives("<ir_version: 8, opset_import: [\"\" : 6]> g (float[3] x) => (float[3] a) { r = Relu(x) a = Clip<max = 2.0>(r) }", "f32[3] -2 1 3", "f32[3] 0 1 2", 0);
}

/* ---- constants folded into weights --------------------------------------------------------------------------------------------------------------- */
static void test_batchnorm_after_transposed_conv(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,4,1] x, float[4,2,3] w, float[1,2,1] x2, float[2,6,3] w2) => (float[1,4,3] y, float[1,6,3] z) <float[4] g4 = {1, 2, 3, 4}, float[4] z4 = {0, 0, 0, 0},\n"
                "float[4] o4 = {1, 1, 1, 1}, float[6] g6 = {1, 2, 3, 4, 5, 6}, float[6] z6 = {0, 0, 0, 0, 0, 0}, float[6] o6 = {1, 1, 1, 1, 1, 1}> {\n"
                "c = ConvTranspose<group = 2>(x, w) y = BatchNormalization<epsilon = 0.0>(c, g4, z4, z4, o4)\n"
                "d = ConvTranspose(x2, w2) z = BatchNormalization<epsilon = 0.0>(d, g6, z6, z6, o6) }",
                "f32[1,4,1] 1; f32[4,2,3] 0..23; f32[1,2,1] 1; f32[2,6,3] 0..35",
                "f32[1,4,3] 6 8 10 24 28 32 90 96 102 144 152 160; f32[1,6,3] 18 20 22 48 52 56 90 96 102 144 152 160 210 220 230 288 300 312", 1e-6);
}

static void test_batchnorm_after_batched_matmul(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2,2,3] x, float[3,4] w) => (float[2,2,4] y) <float[2] s = {2, 3}, float[2] b = {0, 0}, float[2] v = {1, 1}> {\n"
                "m = MatMul(x, w) y = BatchNormalization<epsilon = 0.0>(m, s, b, b, v) }",
                "f32[2,2,3] 1; f32[3,4] 1", "f32[2,2,4] 6*4 9*4 6*4 9*4", 0);
}

/* A weight and a list of axes, each with two users of which one is rewritten. */
static void test_shared_constants(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,1,3,3] x, float[3,4] t) => (float[1,2,1,1] y, float[1,2,1,1] z, float[1,4] p, float[1,3] q)\n"
                "<float[2,1,3,3] w = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, float[2] s = {2, 3}, float[2] b = {0, 0}, float[2] v = {1, 1}, int64[1] from = {1}, int64[1] to = {2},\n"
                "int64[1] ax = {0}> { c = Conv(x, w) y = BatchNormalization<epsilon = 0.0>(c, s, b, b, v) z = Conv(x, w) p = Slice(t, from, to, ax) r = Transpose(t) q = Slice(r, from, to, ax) }",
                "f32[1,1,3,3] 1..9; f32[3,4] 0..11", "f32[1,2,1,1] 90 135; f32[1,2,1,1] 45; f32[1,4] 4 5 6 7; f32[1,3] 1 5 9", 0);
}

/* ---- epilogues ------------------------------------------------------------------------------------------------------------------------------------- */
static void test_scaled_bias(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2,2] a, float[2,2] b, float[2] c, float[2] d) => (float[2,2] x, float[2,2] y, float[2,2] z) <float half = {0.5}> {\n"
                "m = MatMul(a, b) p = Add(m, c) x = Mul(half, p) q = Mul(p, half) y = Add(q, d) e = Gemm<alpha = 0.5, beta = 2.0>(a, b, c) z = Mul(e, half) }",
                "f32[2,2] 1; f32[2,2] 1; f32[2] 4; f32[2] 1 2", "f32[2,2] 3; f32[2,2] 4 5 4 5; f32[2,2] 4.5", 0);
}

static void test_epilogue_attributes(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2,3] a, float[3,2] b) => (float[2,2] clip, float[2,2] leaky, float[2,2] elu, float[2,2] hard, float[2,2] celu, float[2,2] thr, float[2,2] selu) <float lo = {0.2}, float hi = {0.8}> {\n"
                "m = MatMul(a, b) clip = Clip(m, lo, hi) leaky = LeakyRelu<alpha = 0.3>(m) elu = Elu<alpha = 2.0>(m) hard = HardSigmoid<alpha = 0.5, beta = 0.25>(m)\n"
                "celu = Celu<alpha = 4.0>(m) thr = ThresholdedRelu<alpha = 0.75>(m) selu = Selu<alpha = 2.0, gamma = 3.0>(m) }",
                "f32[2,3] 1 0 0 0 1 0; f32[3,2] -2 0.5 1 0 5 5",
                "f32[2,2] 0.2 0.5 0.8 0.2; f32[2,2] -0.6 0.5 1 0; f32[2,2] -1.7293294 0.5 1 0; f32[2,2] 0 0.5 0.75 0.25; f32[2,2] -1.5738774 0.5 1 0; f32[2,2] 0 0 1 0;"
                "f32[2,2] -5.1879883 1.5 3 0", 1e-6);
    trial_gives(OPSET(18) "g (float[1,1,4] x, float[1,1,2] w) => (float[1,1,3] y, float[1,1,3] z) { c = Conv(x, w) y = LeakyRelu<alpha = 0.3>(c) z = Elu<alpha = 0.5>(c) }",
                "f32[1,1,4] 1 -3 1 2; f32[1,1,2] 1 1", "f32[1,1,3] -0.6 -0.6 3; f32[1,1,3] -0.43233236 -0.43233236 3", 1e-6);
    trial_gives(OPSET(23) "g (float[2,4] x, float[4] s, float[2,4] r) => (float[2,4] y, float[2,4] z) { y = RMSNormalization<epsilon = 0.0>(x, s) z = Add(y, r) }",
                "f32[2,4] 1 -1 1 -1 2 2 2 2; f32[4] 1 2 3 4; f32[2,4] 10", "f32[2,4] 1 -2 3 -4 1 2 3 4; f32[2,4] 11 8 13 6 11 12 13 14", 1e-6);
}

static void test_epilogue_order(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,2,3] x, float[2,2,1] w, float[1,2,3] r) => (float[1,2,3] y, float[1,2,3] z) {\n"
                "c = Conv(x, w) s = Add(c, r) y = Relu(s) p = Relu(c) z = Add(p, r) }",
                "f32[1,2,3] 1 2 3 4 5 6; f32[2,2,1] 1 -1 -1 1; f32[1,2,3] 2 4 1 -2 -4 -5", "f32[1,2,3] 0 1 0 1 0 0; f32[1,2,3] 2 4 1 1 -1 -2", 0);
    trial_gives(OPSET(18) "g (float[2,1,2] a, float[2,2,2] b, float[2] c, float[2,1,1] d) => (float[2,1,2] y, float[2,1,2] z) { m = MatMul(a, b) y = Add(m, c) z = Mul(m, d) }",
                "f32[2,1,2] 1; f32[2,2,2] 1..8; f32[2] 100 200; f32[2,1,1] 1 -1", "f32[2,1,2] 104 206 112 214; f32[2,1,2] 4 6 -12 -14", 0);
}

static void test_layouts(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,2,2,2] x, float[6,2,1,1] w, float[1,2,1,2] u, float[2] b) => (int64[1,2,2] a, float[1,6,2] s, float[1,1,2,2] t, int64[1,1,2,2] m)\n"
                "<int64[1] from = {3}, int64[1] to = {6}, int64[1] one = {1}, int64[1] three = {3}, int64[1] two = {2}> {\n"
                "c = Conv(x, w) a = ArgMin<axis = 1, keepdims = 0>(c) d = Conv(u, w) q = Squeeze(d, two) s = Add(q, b) t = Slice(c, from, to, one, three) m = ArgMax<axis = 1>(c) }",
                "f32[1,2,2,2] 1 2 3 4 1 1 5 5; f32[6,2,1,1] 1 0 0 1 1 1 1 -1 -1 1 2 2; f32[1,2,1,2] 1 2 3 4; f32[2] 10 20",
                "i64[1,2,2] 3 4 3 3; f32[1,6,2] 11 22 13 24 14 26 8 18 12 22 18 32; f32[1,1,2,2] 0 1 -2 -1; i64[1,1,2,2] 5", 0);
}

/* ---- groups -------------------------------------------------------------------------------------------------------------------------------------------- */
static void test_diamonds(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,2,2] x, float[2,2,1] w, float[1,2] a, float[1,2] b) => (float[1,2,2] y, float[1,1,2] z, float[1,1,2] z2) <float zero = {0}, float one = {1}, float two = {2}, int64[1] ax = {0}> {\n"
                "c = Conv(x, w) ge = GreaterOrEqual(c, zero) s = Where(ge, one, two) y = Add(c, s)\n"
                "m = Max(a, b) d = Neg(a) p = Mul(d, m) u = Unsqueeze(m, ax) z = Add(p, u) p2 = Mul(m, d) z2 = Add(u, p2) }",
                "f32[1,2,2] 1 2 3 4; f32[2,2,1] 1 -1 -1 1; f32[1,2] 1 5; f32[1,2] 3 2", "f32[1,2,2] 0 0 3 3; f32[1,1,2] 0 -20; f32[1,1,2] 0 -20", 0);
}

static void test_parts_used_later(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[7,2] x) => (float[2,2] y, float[3,2] z, float[2] s) <int64[3] n = {2, 3, 2}, int64[1] ax = {0}> { a, b, c = Split<axis = 0>(x, n)\n"
                "e = Exp(a) l = Log(e) sum = ReduceSum<keepdims = 0>(b, ax) p = Mul(l, sum) y = Add(p, c) q = Neg(b) z = Sub(q, sum) t = Add(a, c) s = ReduceMax<keepdims = 0>(t, ax) }",
                "f32[7,2] 0..13", "f32[2,2] 10 32 48 76; f32[3,2] -22 -26 -24 -28 -26 -30; f32[2] 14 16", 1e-6);
    trial_gives(OPSET(18) "g (float[8] x) => (float y, float[8] z) { a = Exp(x) t = ReduceSum<keepdims = 0>(a) b = Div(a, t) y = ReduceSum<keepdims = 0>(b) c = Mul(a, y) z = Sub(c, a) }",
                "f32[8] 0", "f32[] 1; f32[8] 0", 0);
}

/* One more output changes nothing in the others. */
static void test_outputs_alone_and_together(void **state)
{
    (void)state;
#define CHAIN "h = MatMul(x, w) b = Add(h, c) m = ReduceMean<axes = [-1]>(b) d = Sub(b, m) q = Mul(d, d) v = ReduceMean<axes = [-1]>(q) r = Sqrt(v) n = Div(d, r) e = Exp(n) y = Less(c, e) p = Softmax(e)"
    static const char *const text[] = { OPSET(13) "g (float[5,7] x, float[7,9] w, float[9] c) => (bool[5,9] y, float[5,9] p) {" CHAIN "}",
        OPSET(13) "g (float[5,7] x, float[7,9] w, float[9] c) => (bool[5,9] y, float[5,9] p, float[5,9] b, float[5,1] v, float[5,9] e, float[5,9] q) {" CHAIN "}" };
#undef CHAIN
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        Trial r[2];
        for (int k = 0; k < 2; k++) {
            trial_open(&r[k], (TrialMode)mode, text[k]);
            trial_inputs(&r[k], "f32[5,7] 0..34; f32[7,9] 0.5; f32[9] 1..9");
            for (int i = 0; i < 35; i++) ((float *)r[k].in[0].data)[i] = (float)(i * 7 % 11) * 0.37f - 1.3f;
            for (int i = 0; i < 63; i++) ((float *)r[k].in[1].data)[i] = (float)(i * 5 % 13) * 0.21f - 1.1f;
            if (trial_run(&r[k])) fail_msg("%s", r[k].cx.text);
        }
        for (int k = 0; k < 2; k++) assert_memory_equal(r[0].out[k].data, r[1].out[k].data, tensor_bytes(&r[0].out[k]));
        trial_close(&r[0]);
        trial_close(&r[1]);
    }
}

/* ---- results over operands ------------------------------------------------------------------------------------------------------------------------------- */
/* A buffer is taken over only where each read is at the very element that is written. */
static void test_reads_elsewhere(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[17] x, float[3,3] s, int64[17] i) => (float[17] y, float[17] yy, float[3,3] z, float[3,3] zz, float[17] w, float[17] v) <int64[1] last = {-1}, int64[1] low = {-1000}, int64[1] ax = {0},\n"
                "int64[1] back = {-1}, float two = {2}> {\n"
                "a = Mul(x, two) f = Slice(a, last, low, ax, back) y = Add(f, a) f2 = Slice(y, last, low, ax, back) n = Neg(x) yn = Add(y, n) f3 = Slice(yn, last, low, ax, back) yy = Sub(f3, yn)\n"
                "b = Mul(s, two) t = Transpose(b) z = Sub(t, b) c = Mul(t, b) ct = Transpose(c) zz = Add(ct, c)\n"
                "g0 = Gather(a, i) w = Add(g0, a) h = Gather(w, i) v = Add(h, w) }",
                "f32[17] 0..16; f32[3,3] 1..9; i64[17] 16..0",
                "f32[17] 32; f32[17] -16 -14 -12 -10 -8 -6 -4 -2 0 2 4 6 8 10 12 14 16; f32[3,3] 0 4 8 -4 0 4 -8 -4 0; f32[3,3] 8 64 168 64 200 384 168 384 648; f32[17] 32; f32[17] 64", 0);
    trial_gives(OPSET(18) "g (float[1,300] x) => (float[1,300] y) <int64[4] p = {0, 1, 0, -1}, int64[4] q = {0, -1, 0, 1}, float one = {1}> {\n"
                "a = Add(x, one) b = Pad(a, p) c = Add(b, a) d = Pad(c, q) y = Add(d, c) }", "f32[1,300] 0", "f32[1,300] 3 4*298 2", 0);
}

static void test_two_results_of_one_kernel(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[4] x, float[4] z) => (float[6] a, float[6] b, float[6] c) <int64[2] p = {1, 1}, float one = {1}> {\n"
                "u = Add(x, one) pu = Pad(u, p) a = Mul(pu, pu) v = Add(z, one) pv = Pad(v, p) b = Mul(pv, pv) c = Add(a, b) }",
                "f32[4] 0..3; f32[4] 9..12", "f32[6] 0 1 4 9 16 0; f32[6] 0 100 121 144 169 0; f32[6] 0 101 125 153 185 0", 0);
    trial_gives(OPSET(18) "g (float[4] x, float[4] z) => (float[8] a, float[4] b, float[4] c) { u = Exp(x) v = Exp(z) a = Concat<axis = 0>(u, v) b = Add(u, v) c = Sub(v, u) }",
                "f32[4] 0; f32[4] 0", "f32[8] 1; f32[4] 2; f32[4] 0", 0);
}

static void test_old_value_is_kept(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[4,2] cache, int64[1,1] at, float[1,2] row) => (float[4,2] old, float[4,2] new, float[4,2] diff, float[4,2] mid) <float one = {1}> {\n"
                "old = Identity(cache) new = ScatterND(cache, at, row) diff = Sub(new, old) c1 = Add(cache, one) mid = Identity(c1) n1 = ScatterND(c1, at, row) n2 = ScatterND<reduction = \"add\">(n1, at, row)\n"
                "s = Sub(n2, mid) }",
                "f32[4,2] 1..8; i64[1,1] 2; f32[1,2] 50 60", "f32[4,2] 1..8; f32[4,2] 1 2 3 4 50 60 7 8; f32[4,2] 0 0 0 0 45 54 0 0; f32[4,2] 2..9", 0);
    trial_gives(OPSET(18) "g (float[3] x, int64[1] i) => (float[3] a, float[3] b, float[3] c) <float one = {1}, float[1] v = {100}> {\n"
                "t = Add(x, one) a = ScatterElements(t, i, v) b = Mul(t, one) p = ScatterElements(t, i, w) w = Neg(v) c = Add(p, a) }",
                "f32[3] 1 2 3; i64[1] 1", "f32[3] 2 100 4; f32[3] 2 3 4; f32[3] 4 0 8", 0);
    /* pieces of a join that are written where the scatter works: all of them before it */
    trial_gives(OPSET(18) "g (float[2] x, float[2] z, float[2] u) => (float[6] y) <int64[2] i = {2, 5}> { j = Concat<axis = 0>(x, z, x) y = ScatterElements<reduction = \"min\">(j, i, u) }",
                "f32[2] 1 2; f32[2] 3 4; f32[2] -1 -2", "f32[6] 1 2 -1 4 1 -2", 0);
    /* a scatter reads memory: what the kernel of a piece computes, and what is copied before as well */
    trial_gives(OPSET(18) "g (int32[2,3] x) => (int32[6,3] y) <int64 axis = {1}, int64 n = {6}> { s = CumSum(x, axis) j = Concat<axis = 0>(s, s, s) p = Cast<to = 7>(s) i = Mod(p, n)\n"
                "y = ScatterElements<axis = 0, reduction = \"add\">(j, i, x) }", "i32[2,3] 1..6", "i32[6,3] 1 3 9 5 9 15 1 3 6 4 16 21 5 3 6 4 9 15", 0);
    trial_gives(OPSET(18) "g (float[4] x, int64[4] i) => (float[4] y) <int64 axis = {0}, int64[1] last = {-1}, int64[1] low = {-1000}, int64[1] ax = {0}, int64[1] back = {-1}> {\n"
                "s = CumSum(x, axis) r = Slice(s, last, low, ax, back) y = ScatterElements<reduction = \"add\">(s, i, r) }", "f32[4] 1..4; i64[4] 2 0 2 3", "f32[4] 7 3 19 11", 0);
}

/* Results that nobody reads. */
static void test_unread_results(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[6,2] x) => (float[2,2] y, float[6,2] d, float[2,1] top) <int64[3] n = {2, 2, 2}, int64[1] one = {1}> { a, unused, c = Split<axis = 0>(x, n) y = Add(a, c)\n"
                "d, mask = Dropout(x) top, where = TopK(y, one) }", "f32[6,2] 0..11", "f32[2,2] 8 10 12 14; f32[6,2] 0..11; f32[2,1] 10 14", 0);
}

/* Steps of max(f(v), v) behind each other, with f(v) = v for the numbers at hand: there are 2^n ways down to where they begin. */
enum { WAYS = 40 };
static void ways_add(char *text, const char *from, const char *to, const char *first, const char *then)
{
    for (int i = 0; i < WAYS; i++) {
        char v[32], t[32], f[32], n[32];
        snprintf(v, sizeof v, i ? "%s%d" : "%s", i ? to : from, i);
        snprintf(n, sizeof n, i < WAYS - 1 ? "%s%d" : "%s", to, i + 1);
        snprintf(t, sizeof t, "%st%d", to, i);
        snprintf(f, sizeof f, then ? "%sf%d" : "%st%d", to, i);
        text += strlen(text);
        text += sprintf(text, "%s = %s(%s, %s) ", t, first, v, v);
        if (then) text += sprintf(text, "%s = %s(%s, two) ", f, then, t);
        sprintf(text, "%s = Max(%s, %s)\n", n, f, v);
    }
}

static void test_many_ways_to_one_value(void **state)
{
    (void)state;
    char text[8 * 1024 + 8 * WAYS * 100];
    strcpy(text, OPSET(18) "g (float[2,3] x, float[3,2] w) => (float[2,3] y, float s, float[2,2] p, float[2,3] m, float[2,3] c, float[4,3] j) <int64 axis = {1}> {");
    ways_add(text, "x", "y", "Mul", NULL);
    ways_add(text, "w", "u", "Mul", NULL);
    strcat(text, "a = Neg(y) s = ReduceSum<keepdims = 0>(y) p = MatMul(y, u) e = Exp(a) l = Log(e) m = Softmax<axis = 0>(l) c = CumSum(y, axis) j = Concat<axis = 0>(y, x) }");
    trial_gives(text, "f32[2,3] 1 0 1 1 0 1; f32[3,2] 1 0 1 1 1 0",
                "f32[2,3] 1 0 1 1 0 1; f32[] 4; f32[2,2] 2 0 2 0; f32[2,3] 0.5; f32[2,3] 1 1 2 1 1 2; f32[4,3] 1 0 1 1 0 1 1 0 1 1 0 1", 0);
    /* a sum of parts of what is the same along an axis */
    strcpy(text, OPSET(18) "g (float[512,1] x) => (float s) <int64[2] d = {512, 512}> { e = Expand(x, d)\n");
    ways_add(text, "e", "y", "Mul", NULL);
    strcat(text, "s = ReduceSum<keepdims = 0>(y) }");
    trial_gives(text, "f32[512,1] 1", "f32[] 262144", 0);
    /* attention: scores, mask and weights */
    strcpy(text, OPSET(18) "g (float[8,4] q, float[4,32] k, float[32,4] v, float[8,32] mask) => (float[8,4] y, float[8,4] z) <float two = {2}> { s = MatMul(q, k)\n");
    ways_add(text, "s", "a", "Mul", NULL);
    ways_add(text, "mask", "b", "Mul", NULL);
    strcat(text, "c = Add(a, b) w = Softmax(c) y = MatMul(w, v) w2 = Softmax(s)\n");
    ways_add(text, "w2", "w3", "Add", "Div");
    strcat(text, "z = MatMul(w3, v) }");
    trial_gives(text, "f32[8,4] 1; f32[4,32] 0; f32[32,4] 1; f32[8,32] 1", "f32[8,4] 1; f32[8,4] 1", 0);
    /* what is computed of places */
    strcpy(text, OPSET(18) "g (float[n] x) => (float[n] y, float[n] z) <int64 zero = {0}, int64 one = {1}, int64 two = {2}> { l = Size(x) r = Range(zero, l, one)\n");
    ways_add(text, "r", "i", "Add", "Div");
    strcat(text, "f = Cast<to = 1>(i) y = Add(f, x) z = Gather(x, i) }");
    trial_gives(text, "f32[9] 8..0", "f32[9] 8; f32[9] 8..0", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_that_grows), cmocka_unit_test(test_norm_axes), cmocka_unit_test(test_relu_clip), cmocka_unit_test(test_batchnorm_after_transposed_conv),
        cmocka_unit_test(test_batchnorm_after_batched_matmul), cmocka_unit_test(test_shared_constants), cmocka_unit_test(test_scaled_bias),
        cmocka_unit_test(test_epilogue_attributes), cmocka_unit_test(test_epilogue_order), cmocka_unit_test(test_layouts), cmocka_unit_test(test_diamonds),
        cmocka_unit_test(test_parts_used_later), cmocka_unit_test(test_outputs_alone_and_together), cmocka_unit_test(test_reads_elsewhere),
        cmocka_unit_test(test_two_results_of_one_kernel), cmocka_unit_test(test_old_value_is_kept), cmocka_unit_test(test_unread_results),
        cmocka_unit_test(test_many_ways_to_one_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
