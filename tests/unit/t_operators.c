/* Quantised operators, attention, random numbers and com.microsoft's operators: models in ONNX's text syntax, run by the reference interpreter.
 * Wanted values are worked out by hand; operands are chosen so that this is possible: queries of zeros give every allowed key the same weight. */
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/api.h"

enum { MAX_ARGS = 12 };
typedef struct Arg { DType dt; int rank; int64_t dims[5]; const double *v; } Arg;        /* v NULL: zeros */
#define V(...) (const double[]){ __VA_ARGS__ }
#define HEAD "<ir_version: 10, opset_import: [\"\" : 25, \"com.microsoft\" : 1]>\n"

typedef struct OpRun {
    Ctx cx;
    Arena *arena;
    OnnxModel *model;
    const char *text;
    Tensor in[MAX_ARGS], out[MAX_ARGS];
} OpRun;

static void op_run_body(Ctx *cx, void *arg)
{
    OpRun *r = arg;
    onnx_load(cx, r->model, "<memory>", r->text, strlen(r->text));
    interp_run(cx, r->arena, r->model, r->in, r->out);
}

static void op_run(OpRun *r, const char *text, int nin, const Arg *in)
{
    memset(r, 0, sizeof *r);
    ctx_init(&r->cx);
    r->text = text;
    r->arena = arena_new(&r->cx);
    r->model = onnx_new(&r->cx);
    for (int i = 0; i < nin; i++) {
        Tensor *t = tensor_new(r->arena, &r->cx, in[i].dt, in[i].rank, in[i].dims);
        for (int64_t j = 0; in[i].v && j < tensor_count(t); j++) {
            Scalar s = dtype_is_float(t->dt) ? (Scalar){ .f = in[i].v[j] } : (Scalar){ .i = (int64_t)in[i].v[j] };
            scalar_store(t->dt, tensor_at(t, j), s);
        }
        r->in[i] = *t;
    }
    if (guard_call(&r->cx, op_run_body, r)) fail_msg("%s", r->cx.text);
}

static double op_value_at(const Tensor *t, int64_t j)
{
    Scalar s = scalar_load(t->dt, tensor_at(t, j));
    return dtype_is_float(t->dt) ? s.f : (double)s.i;
}

static void op_wanted(const OpRun *r, int k, DType dt, int n, const double *v)
{
    const Tensor *t = &r->out[k];
    assert_int_equal(t->dt, dt);
    assert_int_equal(tensor_count(t), n);
    for (int j = 0; j < n; j++) {
        double got = op_value_at(t, j);
        if (isnan(v[j]) ? !isnan(got) : !(fabs(got - v[j]) <= 1e-5 * (1 + fabs(v[j]))))
            fail_msg("output %d, element %d: %.9g, wanted %.9g", k, j, got, v[j]);
    }
}

static void op_run_end(OpRun *r)
{
    onnx_close(r->model);
    arena_free(r->arena);
}

static void gives(const char *text, int nin, const Arg *in, DType dt, int n, const double *v)
{
    OpRun r;
    op_run(&r, text, nin, in);
    op_wanted(&r, 0, dt, n, v);
    op_run_end(&r);
}

/* ---- quantisation ----------------------------------------------------------------------------------------------------------------------- */

static void test_quantize(void **state)
{
    (void)state;
    /* half to even, the zero point after rounding, saturation, NaN */
    gives(HEAD "g (float[8] x, float s, uint8 z) => (uint8[8] y) { y = QuantizeLinear(x, s, z) }", 3,
          (Arg[]){ { DT_f32, 1, { 8 }, V(1, 3, 5, -1, 1e9, -1e9, NAN, INFINITY) }, { DT_f32, 0, { 0 }, V(2) }, { DT_u8, 0, { 0 }, V(3) } }, DT_u8, 8,
          V(3, 5, 5, 3, 255, 0, 0, 255));
    /* a Relu before the quantiser counts where the zero point is not the bound */
    gives(HEAD "g (float[2] x, float s, int8 z) => (int8[2] y) { r = Relu(x) y = QuantizeLinear(r, s, z) }", 3,
          (Arg[]){ { DT_f32, 1, { 2 }, V(-3, 3) }, { DT_f32, 0, { 0 }, V(0.1) }, { DT_i8, 0, { 0 }, NULL } }, DT_i8, 2, V(0, 30));
    /* blocks of two along axis 1, the last one short */
    gives(HEAD "g (int8[1,3] x, float[1,2] s) => (float[1,3] y) { y = DequantizeLinear<axis = 1, block_size = 2>(x, s) }", 2,
          (Arg[]){ { DT_i8, 2, { 1, 3 }, V(1, -2, 3) }, { DT_f32, 2, { 1, 2 }, V(0.5, 4) } }, DT_f32, 3, V(0.5, -1, 12));
    gives(HEAD "g (int8[2,2] x, float[2] s, int8[2] z) => (float[2,2] y) { y = DequantizeLinear<axis = 0>(x, s, z) }", 3,
          (Arg[]){ { DT_i8, 2, { 2, 2 }, V(1, 2, 3, 4) }, { DT_f32, 1, { 2 }, V(1, 10) }, { DT_i8, 1, { 2 }, V(-1, 2) } }, DT_f32, 4, V(2, 3, 10, 20));
}

static void test_dynamic_quantize(void **state)
{
    (void)state;
    OpRun r;
    op_run(&r, HEAD "g (float[2] x) => (uint8[2] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }", 1, (Arg[]){ { DT_f32, 1, { 2 }, NULL } });
    op_wanted(&r, 0, DT_u8, 2, V(0, 0));
    op_wanted(&r, 1, DT_f32, 1, V(1));
    op_wanted(&r, 2, DT_u8, 1, V(0));
    op_run_end(&r);
    op_run(&r, HEAD "g (float[3] x) => (uint8[3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }", 1, (Arg[]){ { DT_f32, 1, { 3 }, V(-55, 0, 200) } });
    op_wanted(&r, 0, DT_u8, 3, V(0, 55, 255));
    op_wanted(&r, 1, DT_f32, 1, V(1));
    op_wanted(&r, 2, DT_u8, 1, V(55));
    op_run_end(&r);
}

static void test_integer_products(void **state)
{
    (void)state;
    gives(HEAD "g (uint8[1,2] a, uint8[2,2] b, uint8 az, uint8[2] bz) => (int32[1,2] y) { y = MatMulInteger(a, b, az, bz) }", 4,
          (Arg[]){ { DT_u8, 2, { 1, 2 }, V(255, 0) }, { DT_u8, 2, { 2, 2 }, V(255, 1, 2, 3) }, { DT_u8, 0, { 0 }, V(1) }, { DT_u8, 1, { 2 }, V(0, 5) } },
          DT_i32, 2, V(254 * 255 - 2, 254 * -4 + 2));
    /* 0.16 a + 0.16 b at scale 0.32: an odd sum is a tie */
    gives(HEAD "g (int8[4] a, int8[4] b, float s, float t) => (int8[4] y) { y = com.microsoft.QLinearAdd(a, s, , b, s, , t) }", 4,
          (Arg[]){ { DT_i8, 1, { 4 }, V(1, 3, 5, -1) }, { DT_i8, 1, { 4 }, V(0, 0, 2, 0) }, { DT_f32, 0, { 0 }, V(0.16) }, { DT_f32, 0, { 0 }, V(0.32) } },
          DT_i8, 4, V(0, 2, 4, 0));
    gives(HEAD "g (uint8[1,1,3] x, float s, uint8 z, uint8[1,1,2] w, uint8 wz, float t, int32[1] b) => (uint8[1,1,2] y)"
               "{ y = QLinearConv(x, s, z, w, s, wz, t, z, b) }", 7,
          (Arg[]){ { DT_u8, 3, { 1, 1, 3 }, V(12, 14, 8) }, { DT_f32, 0, { 0 }, V(0.5) }, { DT_u8, 0, { 0 }, V(10) }, { DT_u8, 3, { 1, 1, 2 }, V(3, 1) },
                   { DT_u8, 0, { 0 }, V(2) }, { DT_f32, 0, { 0 }, V(0.5) }, { DT_i32, 1, { 1 }, V(3) } }, DT_u8, 2, V(10, 14));   /* 10 + {2-4+3, 4+2+3}/2 */
    /* codes 0..15 less 8, of which two blocks have the scales 1 and 2 */
    double ones[32];
    for (int k = 0; k < 32; k++) ones[k] = 1;
    gives(HEAD "g (float[1,32] a, uint8[1,2,8] b, float[2] s) => (float[1,1] y) { y = com.microsoft.MatMulNBits<K = 32, N = 1, bits = 4, block_size = 16>(a, b, s) }", 3,
          (Arg[]){ { DT_f32, 2, { 1, 32 }, ones }, { DT_u8, 3, { 1, 2, 8 }, V(0x98, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x8f, 0x08, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88, 0x88) },
                   { DT_f32, 1, { 2 }, V(1, 2) } }, DT_f32, 1, V(1 + 7 - 16));
}

/* ---- attention ------------------------------------------------------------------------------------------------------------------------------- */

static void test_attention_masks(void **state)
{
    (void)state;
    const Arg q = { DT_f32, 4, { 1, 1, 2, 1 }, NULL }, k = { DT_f32, 4, { 1, 1, 3, 1 }, V(0, NAN, 0) }, zeros = { DT_f32, 4, { 1, 1, 3, 1 }, NULL };
    const Arg v = { DT_f32, 4, { 1, 1, 3, 1 }, V(1, 2, 6) };
    /* a key that is masked does no harm though its score is NaN; a row without keys gives 0 */
    gives(HEAD "g (float[1,1,2,1] q, float[1,1,3,1] k, float[1,1,3,1] v, bool[2,3] m) => (float[1,1,2,1] y) { y = Attention(q, k, v, m) }", 4,
          (Arg[]){ q, k, v, { DT_bool, 2, { 2, 3 }, V(1, 0, 1, 0, 0, 0) } }, DT_f32, 2, V(3.5, 0));
    gives(HEAD "g (float[1,1,2,1] q, float[1,1,3,1] k, float[1,1,3,1] v, float[2,3] m) => (float[1,1,2,1] y) { y = Attention(q, k, v, m) }", 4,
          (Arg[]){ q, k, v, { DT_f32, 2, { 2, 3 }, V(0, -INFINITY, 0, -INFINITY, -INFINITY, -INFINITY) } }, DT_f32, 2, V(3.5, 0));
    gives(HEAD "g (float[1,1,2,1] q, float[1,1,3,1] k, float[1,1,3,1] v) => (float[1,1,2,1] y) { y = Attention<is_causal = 1>(q, k, v) }", 3,
          (Arg[]){ q, zeros, v }, DT_f32, 2, V(1, 1.5));
    /* a short mask hides the rest; values beyond a sequence's length are not read */
    gives(HEAD "g (float[1,1,2,1] q, float[1,1,3,1] k, float[1,1,3,1] v, bool[2,2] m) => (float[1,1,2,1] y) { y = Attention(q, k, v, m) }", 4,
          (Arg[]){ q, zeros, v, { DT_bool, 2, { 2, 2 }, V(1, 1, 0, 1) } }, DT_f32, 2, V(1.5, 2));
    gives(HEAD "g (float[1,1,2,1] q, float[1,1,3,1] k, float[1,1,3,1] v, int64[1] n) => (float[1,1,2,1] y) { y = Attention(q, k, v, , , , n) }", 4,
          (Arg[]){ q, zeros, { DT_f32, 4, { 1, 1, 3, 1 }, V(1, 2, NAN) }, { DT_i64, 1, { 1 }, V(2) } }, DT_f32, 2, V(1.5, 1.5));
    gives(HEAD "g (float[1,1,3,1] k, float[1,1,3,1] v) => (float[1,1,3,1] y) { y = Attention<left_window_size = 1, right_window_size = 0>(k, k, v) }", 2,
          (Arg[]){ zeros, v }, DT_f32, 3, V(1, 1.5, 4));
}

/* Padding and causal masks together: a masked key has no weight even in a row that has no other. */
static void test_packed_attention(void **state)
{
    (void)state;
    gives(HEAD "g (float[1,3,1] x, float[1,3] w, int32[1,3] m) => (float[1,3,1] y)"
               "{ y = com.microsoft.Attention<num_heads = 1, unidirectional = 1>(x, w, , m) }", 3,
          (Arg[]){ { DT_f32, 3, { 1, 3, 1 }, V(1, 2, 4) }, { DT_f32, 2, { 1, 3 }, V(0, 0, 1) }, { DT_i32, 2, { 1, 3 }, V(0, 1, 1) } }, DT_f32, 3, V(0, 2, 3));
    gives(HEAD "g (float[1,3,1] x, float[1,3] w, int32[2] m) => (float[1,3,1] y) { y = com.microsoft.Attention<num_heads = 1>(x, w, , m) }", 3,
          (Arg[]){ { DT_f32, 3, { 1, 3, 1 }, V(1, 2, 4) }, { DT_f32, 2, { 1, 3 }, V(0, 0, 1) }, { DT_i32, 1, { 2 }, V(2, 1) } }, DT_f32, 3, V(2, 2, 2));
    gives(HEAD "g (float[1,2,1,3,1] x) => (float[1,2,1] y) { y = com.microsoft.MultiHeadAttention<num_heads = 1>(x) }", 1,
          (Arg[]){ { DT_f32, 5, { 1, 2, 1, 3, 1 }, V(0, 5, 1, 0, 7, 4) } }, DT_f32, 2, V(2.5, 2.5));
}

/* A decoding step for two sequences whose caches are filled to 3 and 1 rows of a buffer of 4: what lies behind is neither read nor kept. */
static void test_group_query_cache(void **state)
{
    (void)state;
    OpRun r;
    op_run(&r, HEAD "g (float[2,1,2] q, float[2,1,1] k, float[2,1,1] v, float[2,1,4,1] pk, float[2,1,4,1] pv, int32[2] n, int32 t) =>"
                    "(float[2,1,2] y, float[2,1,4,1] nk, float[2,1,4,1] nv)"
                    "{ y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>(q, k, v, pk, pv, n, t) }", 7,
           (Arg[]){ { DT_f32, 3, { 2, 1, 2 }, NULL }, { DT_f32, 3, { 2, 1, 1 }, V(9, 8) }, { DT_f32, 3, { 2, 1, 1 }, V(6, 5) },
                    { DT_f32, 4, { 2, 1, 4, 1 }, V(1, 2, 3, 4, 5, NAN, NAN, 8) }, { DT_f32, 4, { 2, 1, 4, 1 }, V(0, 3, 3, NAN, 1, NAN, NAN, NAN) },
                    { DT_i32, 1, { 2 }, V(3, 1) }, { DT_i32, 0, { 0 }, V(4) } });
    op_wanted(&r, 0, DT_f32, 4, V(3, 3, 3, 3));
    op_wanted(&r, 1, DT_f32, 8, V(1, 2, 3, 9, 5, 8, 0, 0));
    op_wanted(&r, 2, DT_f32, 8, V(0, 3, 3, 6, 1, 5, 0, 0));
    op_run_end(&r);
}

#define HEAD27 "<ir_version: 10, opset_import: [\"\" : 27]>\n"

static void test_linear_attention(void **state)
{
    (void)state;
    const Arg q = { DT_f32, 3, { 1, 3, 1 }, V(1, 1, 2) }, k = { DT_f32, 3, { 1, 3, 1 }, V(1, 2, 1) }, v = { DT_f32, 3, { 1, 3, 1 }, V(1, 1, 3) };
    const Arg s = { DT_f32, 4, { 1, 1, 1, 1 }, V(10) };
    const double half = log(0.5);
    OpRun r;
    /* states 11 13 16 */
    op_run(&r, HEAD27 "g (float[1,3,1] q, float[1,3,1] k, float[1,3,1] v, float[1,1,1,1] s) => (float[1,3,1] y, float[1,1,1,1] n)"
                      "{ y, n = LinearAttention<q_num_heads = 1, kv_num_heads = 1, update_rule = \"linear\">(q, k, v, s) }", 4, (Arg[]){ q, k, v, s });
    op_wanted(&r, 0, DT_f32, 3, V(11, 13, 32));
    op_wanted(&r, 1, DT_f32, 1, V(16));
    op_run_end(&r);
    /* halved before each step: 6 5 5.5 */
    op_run(&r, HEAD27 "g (float[1,3,1] q, float[1,3,1] k, float[1,3,1] v, float[1,1,1,1] s, float[1,3,1] d) => (float[1,3,1] y, float[1,1,1,1] n)"
                      "{ y, n = LinearAttention<q_num_heads = 1, kv_num_heads = 1, update_rule = \"gated\">(q, k, v, s, d) }", 5,
           (Arg[]){ q, k, v, s, { DT_f32, 3, { 1, 3, 1 }, V(half, half, half) } });
    op_wanted(&r, 0, DT_f32, 3, V(6, 5, 11));
    op_wanted(&r, 1, DT_f32, 1, V(5.5));
    op_run_end(&r);
    /* with beta 1/2: 10 + (1-10)/2 = 5.5; 5.5 + (1-11)/2*2 = -4.5; -4.5 + (3+4.5)/2 = -0.75 */
    op_run(&r, HEAD27 "g (float[1,3,1] q, float[1,3,1] k, float[1,3,1] v, float[1,1,1,1] s, float[1,3,1] b) => (float[1,3,1] y, float[1,1,1,1] n)"
                      "{ y, n = LinearAttention<q_num_heads = 1, kv_num_heads = 1, update_rule = \"delta\">(q, k, v, s, , b) }", 5,
           (Arg[]){ q, k, v, s, { DT_f32, 3, { 1, 3, 1 }, V(0.5, 0.5, 0.5) } });
    op_wanted(&r, 0, DT_f32, 3, V(5.5, -4.5, -1.5));
    op_wanted(&r, 1, DT_f32, 1, V(-0.75));
    op_run_end(&r);
}

/* ---- com.microsoft ------------------------------------------------------------------------------------------------------------------------------ */

static void test_fused(void **state)
{
    (void)state;
    gives(HEAD "g (float[2,1,2] a, float[1,2,1] b) => (float[1,2,1] y) { y = com.microsoft.FusedMatMul<transBatchA = 1, alpha = 0.5>(a, b) }", 2,
          (Arg[]){ { DT_f32, 3, { 2, 1, 2 }, V(1, 2, 3, 4) }, { DT_f32, 3, { 1, 2, 1 }, V(10, 100) } }, DT_f32, 2, V(105, 215));
    gives(HEAD "g (float[1,1] a, float[1,2] b, float[2] c) => (float[1,2] y)"
               "{ y = com.microsoft.FusedGemm<alpha = 0.5, activation = \"LeakyRelu\", activation_alpha = 0.3>(a, b, c) }", 3,
          (Arg[]){ { DT_f32, 2, { 1, 1 }, V(2) }, { DT_f32, 2, { 1, 2 }, V(3, -30) }, { DT_f32, 1, { 2 }, V(4, 20) } }, DT_f32, 2, V(7, -3));
    OpRun r;
    op_run(&r, HEAD "g (float[1,1,2] x, float[2] s, float[2] w) => (float[1,1,2] y, float m, float i, float[1,1,2] z)"
                    "{ y, m, i, z = com.microsoft.SkipLayerNormalization<epsilon = 0.0>(x, s, w) }", 3,
           (Arg[]){ { DT_f32, 3, { 1, 1, 2 }, V(1, 3) }, { DT_f32, 1, { 2 }, V(1, 3) }, { DT_f32, 1, { 2 }, V(1, 10) } });
    op_wanted(&r, 0, DT_f32, 2, V(-1, 10));
    op_wanted(&r, 3, DT_f32, 2, V(2, 6));
    op_run_end(&r);
}

/* ---- random numbers -------------------------------------------------------------------------------------------------------------------------------- */

static void test_random(void **state)
{
    (void)state;
    OpRun r;
    op_run(&r, HEAD "g (float[4000] x) => (float[4000] a, float[4000] b, float[4000] c, float[4000] d, float[4000] e)"
                    "{ a = RandomNormalLike(x) b = RandomNormalLike(x) c = RandomUniformLike<seed = 3.0>(x) d = RandomUniformLike<seed = 3.0>(x)"
                    "  e = Bernoulli(x) }", 1, (Arg[]){ { DT_f32, 1, { 4000 }, NULL } });
    double sum = 0, square = 0, mean = 0;
    int same = 0;
    for (int j = 0; j < 4000; j++) {
        double a = op_value_at(&r.out[0], j), b = op_value_at(&r.out[1], j), c = op_value_at(&r.out[2], j);
        sum += a, square += a * a, mean += c;
        same += a == b;
        assert_true(c >= 0 && c < 1);
        assert_true(c == op_value_at(&r.out[3], j));
        assert_true(op_value_at(&r.out[4], j) == 0);
    }
    assert_true(same < 40);
    assert_true(fabs(sum / 4000) < 0.08 && fabs(square / 4000 - 1) < 0.12 && fabs(mean / 4000 - 0.5) < 0.03);
    op_run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_dynamic_quantize), cmocka_unit_test(test_integer_products),
        cmocka_unit_test(test_attention_masks), cmocka_unit_test(test_packed_attention), cmocka_unit_test(test_group_query_cache),
        cmocka_unit_test(test_linear_attention), cmocka_unit_test(test_fused), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
