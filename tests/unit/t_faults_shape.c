/* Shapes and indices that compilers of tensor graphs are known to get wrong: reshapes with 0 and -1, negative steps, empty and rank-0 tensors, broadcasting,
 * pads, windows, resizing, gathers. Each model runs in the interpreter and as a program, fused and not (see model.h). */
#include "model.h"

/* ---- reshapes ----------------------------------------------------------------------------------------------------------------------------- */
static void test_reshape_chains(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[0,6,2] x, float[2,3] y) => (float[a,b,c] u, float[d,e,f] v)\n"
                "<int64[3] s1 = {3, 2, -1}, int64[3] s2 = {0, 0, 3}, int64[2] s3 = {0, -1}, int64[3] s4 = {0, 0, 1}> {\n"
                "p = Reshape(x, s1) u = Reshape<allowzero = 1>(p, s2) q = Reshape(y, s3) v = Reshape(q, s4) }",
                "f32[0,6,2]; f32[2,3] 1..6", "f32[0,0,3]; f32[2,3,1] 1..6", 0);
    trial_gives(OPSET(18) "g (float[1,5,1,1] x) => (float[1,5] y, float[1,5,1] z) <int64[1] last = {-1}, int64[1] first = {0}, int64[1] two = {2}> {\n"
                "a = Squeeze(x, last) y = Squeeze(a, last) b = Squeeze(x, first) c = Unsqueeze(b, first) z = Squeeze(c, two) }",
                "f32[1,5,1,1] 1..5", "f32[1,5] 1..5; f32[1,5,1] 1..5", 0);
}

static void test_reshape_every_rank(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[24] x) => (float[24] y, float[1,2,1,3,1,2,1,2] z) <int64[8] r8 = {1, 2, 1, 3, 1, 2, 1, 2}, int64[5] r5 = {2, 3, 1, 2, 2},\n"
                "int64[3] r3 = {4, 3, 2}, int64[2] r2 = {12, 2}, int64[1] r1 = {-1}> {\n"
                "a = Reshape(x, r8) z = Neg(a) c = Reshape(z, r5) d = Neg(c) e = Reshape(d, r3) f = Neg(e) h = Reshape(f, r2) i = Neg(h) y = Reshape(i, r1) }",
                "f32[24] 1..24", "f32[24] 1..24; f32[1,2,1,3,1,2,1,2] -1..-24", 0);
}

/* Nothing to scatter and nothing to fold: neither an index nor an element is read. */
static void test_nothing_to_go_through(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2,3] x, float[0,3] u, int64[0,1] i) => (float[2,3] y, float[2,3] z) { y = ScatterND(x, i, u) a = ScatterND<reduction = \"add\">(x, i, u) z = Neg(a) }",
                "f32[2,3] 1..6; f32[0,3]; i64[0,1]", "f32[2,3] 1..6; f32[2,3] -1..-6", 0);
    trial_gives(OPSET(18) "g (float[2,3] x, float[0,3] u, int64[0,3] i) => (float[2,3] y) { a = ScatterElements(x, i, u) y = Neg(a) }", "f32[2,3] 1..6; f32[0,3]; i64[0,3]", "f32[2,3] -1..-6", 0);
    trial_gives(OPSET(18) "g (float[4,3] w, int64[0,1] i, float[2,0] v) => (float[3] y, float[2] z, float[2,1] p) <int64[1] zero = {0}, int64[1] one = {1}> {\n"
                "j = Squeeze(i, one) e = Gather(w, j) y = ReduceSum<keepdims = 0>(e, zero) z = ReduceMax<keepdims = 0>(v, one) p = ReduceProd(v, one) }",
                "f32[4,3] 1..12; i64[0,1]; f32[2,0]", "f32[3] 0 0 0; f32[2] -inf -inf; f32[2,1] 1 1", 0);
}

static void test_transposes(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2,3,4] x) => (float[3,4,2] y, float[2,12] z) <int64[2] s = {2, -1}> {\n"
                "t = Transpose<perm = [1, 0, 2]>(x) y = Transpose<perm = [0, 2, 1]>(t) q = Transpose<perm = [2, 0, 1]>(y) z = Reshape(q, s) }",
                "f32[2,3,4] 0..23", "f32[3,4,2] 0 12 1 13 2 14 3 15 4 16 5 17 6 18 7 19 8 20 9 21 10 22 11 23; f32[2,12] 0..23", 0);
}

/* A leading axis of one is an axis. */
static void test_rank_is_kept(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,50,1] x, float[5,1,1] w) => (float[1,5,50,1] y, float[1,1,1] z) <int64[1] zero = {0}, int64[2] ends = {1, 2}> {\n"
                "u = Unsqueeze(x, zero) v = Unsqueeze(w, zero) a = Add(u, v) y = Mul(a, u) m = ReduceMax(x, ends) z = Add(m, m) }",
                "f32[1,50,1] 1; f32[5,1,1] 0..4", "f32[1,5,50,1] 1*50 2*50 3*50 4*50 5*50; f32[1,1,1] 2", 0);
}

/* ---- slices --------------------------------------------------------------------------------------------------------------------------------- */
static void test_slices_backwards(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[10] x) => (float[9] a, float[0] b, float[10] c, float[0] d, float[3] e, float[4] f) <int64[1] p9 = {9}, int64[1] p0 = {0}, int64[1] m1 = {-1},\n"
                "int64[1] p5 = {5}, int64[1] low = {-9223372036854775807}, int64[1] high = {9223372036854775807}, int64[1] m3 = {-3}> {\n"
                "a = Slice(x, p9, p0, p0, m1) b = Slice(x, p0, p5, p0, m1) c = Slice(x, m1, low, p0, m1) d = Slice(x, m1, high, p0, m1)\n"
                "e = Slice(x, p9, m8, p0, m3) m8 = Constant<value_ints = [-8]>() f = Slice(x, high, low, p0, m3) }",
                "f32[10] 0..9", "f32[9] 9..1; f32[0]; f32[10] 9..0; f32[0]; f32[3] 9 6 3; f32[4] 9 6 3 0", 0);
}

/* A whole slice, a pad that shifts, a concatenation: reads stay inside. */
static void test_slice_pad_concat(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,20,1,1] x) => (float[1,20,1,2] y, bool[1,20,1,1] z) <int64[1] zero = {0}, int64[1] many = {9223372036854775807}, int64[1] one = {1},\n"
                "int64[8] shift = {0, 1, 0, 0, 0, -1, 0, 0}> { s = Slice(x, zero, many, one) p = Pad(s, shift) y = Concat<axis = 3>(p, x) z = Less(p, x) }",
                "f32[1,20,1,1] 1..20",
                "f32[1,20,1,2] 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 9 9 10 10 11 11 12 12 13 13 14 14 15 15 16 16 17 17 18 18 19 19 20; bool[1,20,1,1] 1", 0);
}

/* ---- empty and rank-0 tensors ----------------------------------------------------------------------------------------------------------------- */
static void test_empty(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[0,2,3] a, float[1,3,2] b, float[2,0] c, float[0,3] d, float[3] bias, float[0,3] e, float[1,3] f, float[0,1,4] im, float[2,1,3] w) =>\n"
                "(float[0,2,2] p, float[2,3] q, float[0,3] r, float[0,2,2] s, float[3] sum, float[3] top, float[0] none, float[0,3] soft) {\n"
                "p = MatMul(a, b) m = MatMul(c, d) q = Add(m, bias) r = Mul(e, f) s = Conv(im, w) ax = Constant<value_ints = [0]>() sum = ReduceSum<keepdims = 0>(e, ax)\n"
                "top = ReduceMax<keepdims = 0>(e, ax) l = Constant<value_ints = [1]>() none = ReduceMean<keepdims = 0>(e, l) soft = Softmax(e) }",
                "f32[0,2,3]; f32[1,3,2] 1; f32[2,0]; f32[0,3]; f32[3] 1 2 3; f32[0,3]; f32[1,3] 1; f32[0,1,4]; f32[2,1,3] 1",
                "f32[0,2,2]; f32[2,3] 1 2 3 1 2 3; f32[0,3]; f32[0,2,2]; f32[3] 0; f32[3] -inf; f32[0]; f32[0,3]", 0);
    trial_gives(OPSET(18) "g (float[N,3] x, float[M,3] y) => (float[K,3] c, float[L,3] g0) <int64[0] i = {}> { c = Concat<axis = 0>(x, y, x) g0 = Gather(y, i) }",
                "f32[0,3]; f32[2,3] 1..6", "f32[2,3] 1..6; f32[0,3]", 0);
}

static void test_rank_zero(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float x, float[3] v) => (float[4] y, float low, float dot, float e, int64[0] s, float g0, float[1] u) <float[1] one = {1}, float[1,4] w = {1, 1, 1, 1},\n"
                "int64 at = {-1}, int64[0] shape = {}, float[1] f = {7}> { m = Mul(x, one) y = MatMul(m, w) low = ReduceMin(x) dot = Einsum<equation = \"i,i->\">(v, v)\n"
                "e = Exp(z) z = Sub(x, x) s = Shape(x) g0 = Gather(v, at) q = Reshape(f, shape) u1 = Mul(q, x) z0 = Constant<value_ints = [0]>() u = Unsqueeze(u1, z0) }",
                "f32[] 2; f32[3] 1 2 3", "f32[4] 2; f32[] 2; f32[] 14; f32[] 1; i64[0]; f32[] 3; f32[1] 14", 0);
}

/* ---- broadcasting ------------------------------------------------------------------------------------------------------------------------------ */
static void test_slope_from_the_right(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,3,2,3] x, float[3] s, float[3,1,1] c) => (float[1,3,2,3] y, float[1,3,2,3] z) { y = PRelu(x, s) z = PRelu(x, c) }",
                "f32[1,3,2,3] -1..-18; f32[3] 0.5 1.5 2.5; f32[3,1,1] 1 2 3",
                "f32[1,3,2,3] -0.5 -3 -7.5 -2 -7.5 -15 -3.5 -12 -22.5 -5 -16.5 -30 -6.5 -21 -37.5 -8 -25.5 -45;"
                "f32[1,3,2,3] -1 -2 -3 -4 -5 -6 -14 -16 -18 -20 -22 -24 -39 -42 -45 -48 -51 -54", 0);
}

static void test_gemm_bias(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[3,2] a, float[2,3] b, float[3] r, float[3,1] c, float[1,3] q, float[1] one, float s, float[1,2] a1) =>\n"
                "(float[3,3] v, float[3,3] w, float[3,3] x, float[3,3] y, float[3,3] z, float[1,3] u, float[1,3] t) {\n"
                "v = Gemm(a, b, r) w = Gemm(a, b, c) x = Gemm(a, b, q) y = Gemm(a, b, one) z = Gemm(a, b, s) u = Gemm(a1, b, r) m = MatMul(a1, b) t = Add(m, r) }",
                "f32[3,2] 1; f32[2,3] 1; f32[3] 1 2 3; f32[3,1] 1 2 3; f32[1,3] 1 2 3; f32[1] 5; f32[] 6; f32[1,2] 1",
                "f32[3,3] 3 4 5 3 4 5 3 4 5; f32[3,3] 3 3 3 4 4 4 5 5 5; f32[3,3] 3 4 5 3 4 5 3 4 5; f32[3,3] 7; f32[3,3] 8; f32[1,3] 3 4 5; f32[1,3] 3 4 5", 0);
}

static void test_matmul_batches(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,1,2] a, float[3,2,2] b, float[2,1,1,2] c, float[2] v) => (float[3,1,2] x, float[2,3,1,2] y, float[3,2] z) {\n"
                "x = MatMul(a, b) y = MatMul(c, b) z = MatMul(v, b) }",
                "f32[1,1,2] 1 10; f32[3,2,2] 1..12; f32[2,1,1,2] 1 10 1 100; f32[2] 1 10",
                "f32[3,1,2] 31 42 75 86 119 130; f32[2,3,1,2] 31 42 75 86 119 130 301 402 705 806 1109 1210; f32[3,2] 31 42 75 86 119 130", 0);
}

static void test_sizes_meet_at_run_time(void **state)
{
    (void)state;
    static const struct { const char *in, *want; } run[] = {
        { "f32[3,4] 1; f32[1,4] 1..4", "f32[3,4] 2..5 2..5 2..5" }, { "f32[3,4] 1; f32[3,4] 1..12", "f32[3,4] 2..13" }, { "f32[0,4]; f32[1,4] 1", "f32[0,4]" },
        { "f32[1,4] 1; f32[2,4] 1..8", "f32[2,4] 2..9" }, { "f32[1,4] 1; f32[0,4]", "f32[0,4]" }, { "f32[1,4] 1; f32[1,4] 1..4", "f32[1,4] 2..5" },
    };
    for (int mode = MODE_fused; mode <= MODE_unfused; mode++) {
        Trial r;                     /* one program for all sizes */
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (float[N,4] x, float[M,4] y) => (float[K,4] z) { z = Add(x, y) }");
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < COUNT_OF(run); i++) {
                trial_inputs(&r, run[i].in);
                r.want = trial_tensors(&r.cx, r.arena, run[i].want, &r.nwant);
                if (trial_run(&r)) fail_msg("%s: %s", run[i].in, r.cx.text);
                assert_int_equal(trial_differences(&r, 0), 0);
            }
        trial_inputs(&r, "f32[3,4] 1; f32[2,4] 1");
        assert_int_equal(trial_run(&r), E_INVALID);
        trial_close(&r);
    }
}

/* ---- pads, windows ------------------------------------------------------------------------------------------------------------------------------ */
/* A pad with zeros is no pad of a maximum, whose border is minus infinity. */
static void test_pad_before_pool(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,1,4] x) => (float[1,1,3] y, float[1,1,3] z) <int64[6] p = {0, 0, 1, 0, 0, 1}> {\n"
                "e = Pad(x, p) y = MaxPool<kernel_shape = [2], strides = [2]>(e) z = AveragePool<kernel_shape = [2], strides = [2]>(e) }",
                "f32[1,1,4] -1..-4", "f32[1,1,3] 0 -2 0; f32[1,1,3] -0.5 -2.5 -2", 0);
}

static void test_pad_before_conv(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,1,5] x, float[1,1,3] t) => (float[1,1,2] a, float[1,1,5] b, float[1,1,3] c, float[1,1,4] d, float[1,1,9] r)\n"
                "<float[1,1,3] w = {1, 1, 1}, int64[6] crop = {0, 0, -2, 0, 0, -1}, int64[6] both = {0, 0, 1, 0, 0, 1}, float five = {5}, int64[6] channel = {0, 1, 0, 0, 0, 0},\n"
                "float[1,2,1] w2 = {10, 1}, int64[6] left = {0, 0, 1, 0, 0, 0}, float[1,1,2] w3 = {1, 1}, int64[6] two = {0, 0, 2, 0, 0, 2}> {\n"
                "p = Pad(x, crop) a = Conv<pads = [1, 1]>(p, w) q = Pad(x, both, five) b = Conv(q, w) s = Pad(t, channel) c = Conv(s, w2)\n"
                "u = Pad(t, left) d = Conv<auto_pad = \"SAME_UPPER\">(u, w3) v = Pad<mode = \"reflect\">(x, two) r = Conv<pads = [0, 0]>(vv, w) vv = Pad(v, both) }",
                "f32[1,1,5] 1..5; f32[1,1,3] 1..3", "f32[1,1,2] 7; f32[1,1,5] 8 6 9 12 14; f32[1,1,3] 1..3; f32[1,1,4] 1 3 5 3; f32[1,1,9] 5 6 5 6 9 12 13 12 7", 0);
}

/* The last window reaches beyond the pads: what lies there is not counted. */
static void test_pool_ceil(void **state)
{
    (void)state;
    trial_gives(OPSET(19) "g (float[1,1,9] x, float[1,1,3] s, float[1,1,6] l) => (float[1,1,4] a, float[1,1,1] b, float[1,1,6] c, float[1,1,6] d) {\n"
                "a = AveragePool<kernel_shape = [7], strides = [3], pads = [3, 3], ceil_mode = 1, count_include_pad = 1>(x)\n"
                "b = MaxPool<kernel_shape = [2], strides = [3], ceil_mode = 1>(s)\n"
                "c = MaxPool<kernel_shape = [2], dilations = [2], auto_pad = \"SAME_UPPER\">(l) d = AveragePool<kernel_shape = [2], dilations = [2], auto_pad = \"SAME_UPPER\">(l) }",
                "f32[1,1,9] 1..9; f32[1,1,3] 1..3; f32[1,1,6] 1..6",
                "f32[1,1,4] 1.4285714 4 5.5714286 4; f32[1,1,1] 2; f32[1,1,6] 2 3 4 5 6 5; f32[1,1,6] 2 2 3 4 5 5", 1e-6);
    trial_gives(OPSET(19) "g (float[1,1,6,2] x) => (float[1,1,6,2] y) { y = AveragePool<kernel_shape = [5, 5], auto_pad = \"SAME_LOWER\", count_include_pad = 1>(x) }",
                "f32[1,1,6,2] 0..11", "f32[1,1,6,2] 0.6 0.6 1.12 1.12 1.8 1.8 2.6 2.6 2.4 2.4 2.04 2.04", 1e-6);
    trial_gives(OPSET(18) "g (float[1,1,N] x, float[1,1,2] l) => (float[1,1,A] a, float[1,1,B] b, float[1,1,C] c) {\n"        /* a window longer than all that it is put on */
                "a = MaxPool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x) b = AveragePool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x)\n"
                "c = MaxPool<kernel_shape = [4], strides = [2], ceil_mode = 1>(l) }",
                "f32[1,1,2] 3 5; f32[1,1,2] 1 2", "f32[1,1,1] 5; f32[1,1,1] 4; f32[1,1,0]", 1e-6);
}

static void test_resize_ties(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,1,1,20] x, float[1,1,4] s) => (float[1,1,1,6] y, float[1,1,8] z) <int64[4] n = {1, 1, 1, 6}, int64[3] m = {1, 1, 8}> {\n"
                "y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"half_pixel\", nearest_mode = \"round_prefer_ceil\">(x, , , n)\n"
                "z = Resize<mode = \"nearest\", coordinate_transformation_mode = \"half_pixel\", nearest_mode = \"floor\">(s, , , m) }",
                "f32[1,1,1,20] 0..19; f32[1,1,4] 10..13", "f32[1,1,1,6] 1 5 8 11 15 18; f32[1,1,8] 10 10 10 11 11 12 12 13", 0);
    /* a reciprocal of the scale would move the tie at index 32 (asymmetric, 13 of 26) */
    char in[900] = "f32[1,1,26] 0..25; f32[1,1,64]", want[900] = "f32[1,1,64]", down[900] = "f32[1,1,26]";
    for (int i = 0; i < 64; i++) sprintf(in + strlen(in), " %d", i), sprintf(want + strlen(want), " %d", i * 26 / 64);
    for (int i = 0; i < 26; i++) sprintf(down + strlen(down), " %d", i * 64 / 26);
    strcat(strcat(want, ";"), down);
    trial_gives(OPSET(18) "g (float[1,1,26] x, float[1,1,64] z) => (float[1,1,64] y, float[1,1,26] w) <int64[3] n = {1, 1, 64}, int64[3] m = {1, 1, 26}> {\n"
                "y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"asymmetric\", nearest_mode = \"floor\">(x, , , n)\n"
                "w = Resize<mode = \"nearest\", coordinate_transformation_mode = \"asymmetric\", nearest_mode = \"floor\">(z, , , m) }", in, want, 0);
    static const char *const how[] = { "mode = \"linear\", antialias = 1", "mode = \"cubic\", antialias = 1", "mode = \"linear\"", "mode = \"nearest\"" };
    for (size_t i = 0; i < COUNT_OF(how); i++) {         /* to nothing: a filter stretched by 1/0 */
        char text[300];
        snprintf(text, sizeof text, OPSET(19) "g (float[1,1,26] x) => (float[1,1,0] y) <int64[3] n = {1, 1, 0}> { y = Resize<%s>(x, , , n) }", how[i]);
        trial_refused(text, "f32[1,1,26] 0..25", E_INVALID, "divided by 0");
    }
}

static void test_hardmax_of_nothing(void **state)
{
    (void)state;
    trial_gives(OPSET(13) "g (float[n,m] x) => (float[n,m] y, float[n,m] z) { a = Neg(x) y = Hardmax(a) z = Hardmax<axis = 0>(a) }", "f32[2,3] 3 1 2 0 0 -1", "f32[2,3] 0 1 0 0 0 1; f32[2,3] 0 0 0 1 1 1", 0);
    trial_gives(OPSET(13) "g (float[n,m] x) => (float[n,m] y) { a = Neg(x) y = Hardmax(a) }", "f32[2,0]", "f32[2,0]", 0);
    trial_gives(OPSET(13) "g (float[n,m] x) => (float[n,m] y) { a = Neg(x) y = Hardmax(a) }", "f32[0,2]", "f32[0,2]", 0);
}

/* ---- gather, scatter ------------------------------------------------------------------------------------------------------------------------------ */
static void test_gather_negative(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[1,4] x, int64[1,2] i) => (float[1] a, float[1,1,2] b, float[1,1,2] c, float[1,2] d) <int64 last = {-1}, int64[1,2] k = {0, -1}> {\n"
                "a = Gather<axis = -1>(x, last) b = Gather<axis = 1>(x, k) c = Gather<axis = 1>(x, i) d = GatherElements<axis = 1>(x, i) }",
                "f32[1,4] 1..4; i64[1,2] 0 -1", "f32[1] 4; f32[1,1,2] 1 4; f32[1,1,2] 1 4; f32[1,2] 1 4", 0);
    trial_refused(OPSET(18) "g (float[1,4] x) => (int64 y) <int64 seven = {7}> { s = Shape(x) y = Gather(s, seven) }", "f32[1,4] 1", E_INVALID, "7");
    trial_refused(OPSET(18) "g (float[4] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }", "f32[4] 1; i64[2] 0 4", E_INVALID, "index 4");
    trial_refused(OPSET(18) "g (float[4] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }", "f32[4] 1; i64[2] 0 -5", E_INVALID, "index");
    trial_refused(OPSET(18) "g (float[4] x, int64[1,1] i, float[1] u) => (float[4] y) { y = ScatterND(x, i, u) }", "f32[4] 1; i64[1,1] 9; f32[1] 1", E_INVALID, "index 9");
    /* below elementwise nodes and a slice, where the index is no longer that of an axis */
    trial_refused(OPSET(18) "g (float[M] x, int64[1] i) => (float[1] y) <int64[1] one = {1}, int64[1] big = {1000}> { s = Slice(x, one, big) t = Tanh(s) y = Gather(t, i) }",
                  "f32[5] 1; i64[1] 1000000", E_INVALID, "index 1000000");
    trial_refused(OPSET(18) "g (float[M,N] x, int64[1] i) => (float[1,N] y) { e = Exp(x) m = ReduceSum<keepdims = 1>(e) t = Div(e, m) y = Gather<axis = 0>(t, i) }",
                  "f32[5,3] 1; i64[1] 70000", E_INVALID, "index 70000");
}

/* Updates of one place, from many threads: each counts, every time. */
static void test_scatter_same_place(void **state)
{
    (void)state;
    enum { UPDATES = 50000, RUNS = 100 };
    for (int mode = MODE_fused; mode <= MODE_unfused; mode++) {
        Trial r;
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (float[4] x, int64[N,1] i, float[N] u) => (float[4] sum, float[4] set, float[4] top) <int64[1] flat = {-1}> {\n"
                   "sum = ScatterND<reduction = \"add\">(x, i, u) set = ScatterND(x, i, u) f = Reshape(i, flat) top = ScatterElements<reduction = \"max\">(x, f, u) }");
        r.threads = 8;
        char in[200];
        snprintf(in, sizeof in, "f32[4] 100; i64[%d,1] 2; f32[%d] 1..%d", UPDATES, UPDATES, UPDATES);
        trial_inputs(&r, in);
        for (int64_t k = 0; k < UPDATES; k++) ((float *)r.in[2].data)[k] = (float)(k % 8 + 1);
        ((int64_t *)r.in[1].data)[UPDATES - 1] = 1;
        r.want = trial_tensors(&r.cx, r.arena, "f32[4] 100 108 225092 100; f32[4] 100 8 7 100; f32[4] 100", &r.nwant);
        for (int k = 0; k < RUNS; k++) {
            if (trial_run(&r)) fail_msg("%s", r.cx.text);
            assert_int_equal(trial_differences(&r, 0), 0);
        }
        trial_close(&r);
    }
}

static void test_modulo_in_indices(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[6] x, int64[6] i) => (float[6] y, float[2,3] z) <int64 n = {6}, int64 three = {3}, int64[2] s = {2, 3}, int64[1] zero = {0}, int64[1] e = {-7},\n"
                "int64[1] m1 = {-1}> { a = Sub(i, three) b = Mod(a, n) y = Gather(x, b) r = Slice(x, m1, e, zero, m1) z = Reshape(r, s) }",
                "f32[6] 10..15; i64[6] 0..5", "f32[6] 13 14 15 10 11 12; f32[2,3] 15..10", 0);
}

/* Sizes nested 60 deep, by remainders, quotients and products that no canonical form makes short: polynomials and copies of them would double with each level. */
static void test_nested_sizes(void **state)
{
    (void)state;
    static const char *const step[] = {
        "p%1$d = Mul(a%1$d, b%1$d) q%1$d = Add(p%1$d, seven) a%2$d = Mod(q%1$d, m) b%2$d = Add(a%2$d, b%1$d)\n",
        "q%1$d = Add(a%1$d, b%1$d) c%1$d = Mod(q%1$d, m) a%2$d = Add(c%1$d, a%1$d) b%2$d = Mod(c%1$d, seven)\n",
        "q%1$d = Div(a%1$d, two) r%1$d = Mod(a%1$d, two) u%1$d = Mul(r%1$d, seven) a%2$d = Add(q%1$d, u%1$d) b%2$d = Identity(b%1$d)\n",
        "p%1$d = Min(a%1$d, b%1$d) q%1$d = Max(a%1$d, seven) r%1$d = Add(p%1$d, q%1$d) a%2$d = Mod(r%1$d, m) b%2$d = Div(r%1$d, two)\n",
        "p%1$d = Mul(a%1$d, b%1$d) a%2$d = Mod(p%1$d, m) b%2$d = Add(b%1$d, two)\n",
    };
    for (int way = 0; way < (int)COUNT_OF(step); way++) {
        char text[12000], in[64], want[64];
        int n = snprintf(text, sizeof text, OPSET(18) "g (float[N,M] x) => (float[K] y) <int64[1] i = {0}, int64[1] j = {1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] seven = {7},\n"
            "int64[1] m = {1003}, float[1] z = {2}> { s = Shape(x) a0 = Gather(s, i) b0 = Gather(s, j)\n");
        int64_t a = 3, b = 5, c;
        for (int k = 0; k < 60; k++) {
            n += snprintf(text + n, sizeof text - (size_t)n, step[way], k, k + 1);
            switch (way) {
            case 0: a = (a * b + 7) % 1003; b += a; break;
            case 1: c = (a + b) % 1003; a += c; b = c % 7; break;
            case 2: a = a / 2 + a % 2 * 7; break;
            case 3: c = (a < b ? a : b) + (a > 7 ? a : 7); a = c % 1003; b = c / 2; break;
            default: a = a * b % 1003; b += 2; break;
            }
        }
        snprintf(text + n, sizeof text - (size_t)n, "f = Mod(a60, seven) l = Add(f, one) y = Expand(z, l) }");
        snprintf(in, sizeof in, "f32[3,5] 1..15");
        n = snprintf(want, sizeof want, "f32[%d]", (int)(a % 7 + 1));
        for (int k = 0; k <= a % 7; k++) n += snprintf(want + n, sizeof want - (size_t)n, " 2");
        trial_gives(text, in, want, 0);
    }
}

/* Sums of sizes that wrap are numbers that the host computes, not sizes that do not fit. */
static void test_wrapping_sizes(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[N] x) => (float[K] y, float[L] z) <int64[1] most = {9223372036854775807}, int64[1] one = {1}, int64[1] two = {2}, int64[1] seven = {7}, int64[1] axes = {0}, float[1] v = {2}> {\n"
                "s = Shape(x) c = Concat<axis = 0>(s, most, one) a = ReduceSum(c, axes) f = Mod(a, seven) y = Expand(v, f) b = Add(s, most) d = Add(b, two) e = Mod(d, seven) z = Expand(v, e) }",
                "f32[5] 1..5", "f32[4] 2 2 2 2; f32[5] 2 2 2 2 2", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape_chains), cmocka_unit_test(test_reshape_every_rank), cmocka_unit_test(test_nothing_to_go_through), cmocka_unit_test(test_transposes), cmocka_unit_test(test_rank_is_kept),
        cmocka_unit_test(test_slices_backwards), cmocka_unit_test(test_slice_pad_concat), cmocka_unit_test(test_empty), cmocka_unit_test(test_rank_zero),
        cmocka_unit_test(test_slope_from_the_right), cmocka_unit_test(test_gemm_bias), cmocka_unit_test(test_matmul_batches),
        cmocka_unit_test(test_sizes_meet_at_run_time), cmocka_unit_test(test_pad_before_pool), cmocka_unit_test(test_pad_before_conv), cmocka_unit_test(test_pool_ceil),
        cmocka_unit_test(test_resize_ties), cmocka_unit_test(test_gather_negative), cmocka_unit_test(test_scatter_same_place), cmocka_unit_test(test_modulo_in_indices),
        cmocka_unit_test(test_hardmax_of_nothing), cmocka_unit_test(test_nested_sizes), cmocka_unit_test(test_wrapping_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
