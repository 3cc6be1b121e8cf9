/* limit: 600 */
/* The ready tier: against the reference interpreter (elementwise values bit for bit, sums of products within what the order of a sum may change, both on special
 * numbers too), and programs whose runs go on while their kernels are compiled. */
#include "model.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- graphs: eval_ready against eval_nodes ------------------------------------------------------------------------------------------------------ */
typedef struct Fixture { Ctx cx; Arena *a; Graph *g; Tensor in[4]; int nin; } Fixture;

static void fixture_open(Fixture *f)
{
    memset(f, 0, sizeof *f);
    ctx_init(&f->cx);
    f->a = arena_new(&f->cx);
    f->g = graph_new(&f->cx, f->a);
}

/* Numbers in [-1, 1), and, special, zeros of both signs, denormals, infinities, NaN, huge ones. */
static Node *fixture_input(Fixture *f, int rank, const int64_t *dims, bool special)
{
    static const float strange[] = { 0, -0.0f, 1e-40f, -1e-45f, INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 0.5f, 1, -1, 2147483648.0f, -129 };
    Tensor *t = &f->in[f->nin++];
    *t = *tensor_new(f->a, &f->cx, DT_f32, rank, dims);
    uint32_t seed = 7u + (uint32_t)f->nin;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)t->data)[i] = special && i % 5 < 2 ? strange[(seed >> 16) % COUNT_OF(strange)] : (float)(seed >> 8) / 8388608.0f - 1;
    }
    return graph_input(f->g, arena_fmt(f->a, "x%d", f->nin), DT_f32, rank, dims, NULL, t);
}

typedef struct EvalJob { Fixture *f; Node *n; bool ready; Tensor out; } EvalJob;

static void eval_body(Ctx *cx, void *arg)
{
    EvalJob *j = arg;
    (j->ready ? eval_ready : eval_nodes)(cx, j->f->a, j->f->g, j->f->in, NULL, 1, &j->n, &j->out);
}

/* tol 0: the same bits (any NaN is any other). */
static void same_values(Fixture *f, Node *n, double tol)
{
    EvalJob want = { .f = f, .n = n }, got = { .f = f, .n = n, .ready = true };
    graph_check(&f->cx, f->g);
    assert_int_equal(guard_call(&f->cx, eval_body, &want), E_OK);
    assert_int_equal(guard_call(&f->cx, eval_body, &got), E_OK);
    assert_int_equal(tensor_count(&got.out), tensor_count(&want.out));
    for (int64_t i = 0; i < tensor_count(&want.out); i++) {
        Scalar x = scalar_load(n->dt, tensor_at(&got.out, i)), y = scalar_load(n->dt, tensor_at(&want.out, i));
        bool same = !dtype_is_float(n->dt) ? x.i == y.i : isnan(y.f) ? isnan(x.f) : x.f == y.f && !signbit(x.f) == !signbit(y.f);
        if (!same && tol > 0) same = fabs(x.f - y.f) <= tol * (1 + fabs(y.f));
        if (!same) fail_msg("element %lld is %.9g (%lld), the interpreter says %.9g (%lld)", (long long)i, x.f, (long long)x.i, y.f, (long long)y.i);
    }
}

static void test_elementwise_bits(void **state)
{
    (void)state;
    Fixture f;
    for (int op = 0; op < OP_COUNT; op++) {
        if (!prim_info[op].elementwise || !strchr(prim_info[op].domain, 'F')) continue;
        fixture_open(&f);
        Node *x = fixture_input(&f, 2, (int64_t[]){ 7, 311 }, true), *y = fixture_input(&f, 2, (int64_t[]){ 7, 311 }, true);
        Node *v = g_op(f.g, (Op)op, prim_info[op].arity, (Node *[]){ x, y });
        same_values(&f, v, 0);
        if (prim_info[op].compares) same_values(&f, g_where(f.g, v, x, y), 0);
        arena_free(f.a);
    }
}

static void test_casts_and_views_bits(void **state)
{
    (void)state;
    static const DType types[] = { DT_f64, DT_f16, DT_bf16, DT_i8, DT_u8, DT_i16, DT_i32, DT_i64, DT_u64, DT_bool, DT_f8e4m3fn };
    Fixture f;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        fixture_open(&f);
        Node *x = fixture_input(&f, 2, (int64_t[]){ 3, 700 }, true), *c = g_cast(f.g, x, types[i]);
        same_values(&f, c, 0);
        same_values(&f, g1(f.g, OP_neg, g_cast(f.g, c, DT_f32)), 0);
        arena_free(f.a);
    }
    fixture_open(&f);
    Node *x = fixture_input(&f, 3, (int64_t[]){ 5, 6, 40 }, true);
    Dim *one[] = { dim_const(f.g, 1), dim_const(f.g, 0), dim_const(f.g, 3) }, *two[] = { dim_const(f.g, 0), dim_const(f.g, 2), dim_const(f.g, 1) };
    Node *p = g_pad(f.g, x, one, two, (Scalar){ .f = -0.5 });
    same_values(&f, g1(f.g, OP_abs, g_transpose(f.g, p, (int[]){ 2, 0, 1 })), 0);
    same_values(&f, g_bitcast(f.g, g1(f.g, OP_neg, x), DT_i32), 0);
    same_values(&f, g_join(f.g, 2, (Node *[]){ g1(f.g, OP_neg, x), x }, 1), 0);
    for (int kind = FOLD_sum; kind <= FOLD_min; kind++) same_values(&f, g_fold(f.g, (FoldKind)kind, p, 2, false), 0);
    same_values(&f, g_argfold(f.g, FOLD_argmax, x, 1, false, false), 0);
    same_values(&f, g_scan(f.g, FOLD_sum, x, 1, false, true), 0);
    arena_free(f.a);
}

/* A constant of n known numbers, one byte behind where its type would lie. */
static Node *odd_const(Fixture *f, DType dt, int rank, const int64_t *dims)
{
    const Tensor *even = tensor_new(f->a, &f->cx, dt, rank, dims);
    for (int64_t i = 0; i < tensor_count(even); i++) {
        const Scalar v = { .i = i * 7919 % 40 };
        scalar_store(dt, tensor_at(even, i), scalar_cast(dt, DT_i64, v, false));
    }
    Tensor *odd = arena_copy(f->a, even, sizeof *even);
    char *room = arena_alloc(f->a, tensor_bytes(even) + 1);
    odd->data = memcpy(room + 1, even->data, tensor_bytes(even));
    return g_const(f->g, odd);
}

/* Constants lie where a model's file has them, at any address: read as they lie, along another axis, as one number for all, through padding, by index, and
 * as factors of a product. Where it matters a sanitizer says so. */
static void test_constants_at_any_address(void **state)
{
    (void)state;
    static const DType types[] = { DT_f32, DT_f64, DT_f16, DT_bf16, DT_i8, DT_u8, DT_i16, DT_u16, DT_i32, DT_u32, DT_i64, DT_u64 };
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        Fixture f;
        fixture_open(&f);
        Node *x = fixture_input(&f, 2, (int64_t[]){ 40, 40 }, false), *c = odd_const(&f, types[i], 2, (int64_t[]){ 40, 40 }), *as = g_cast(f.g, c, DT_f32);
        Node *column = odd_const(&f, types[i], 2, (int64_t[]){ 40, 1 }), *at = odd_const(&f, DT_i64, 1, (int64_t[]){ 23 });
        Dim *one[] = { dim_const(f.g, 1), dim_const(f.g, 2) }, *two[] = { dim_const(f.g, 0), dim_const(f.g, 3) };
        Scalar fill = { 0 };
        same_values(&f, c, 0);
        same_values(&f, g2(f.g, OP_mul, as, x), 0);
        same_values(&f, g2(f.g, OP_add, c, c), 0);
        same_values(&f, g2(f.g, OP_mul, g_transpose(f.g, as, (int[]){ 1, 0 }), x), 0);
        same_values(&f, g2(f.g, OP_mul, g_cast(f.g, column, DT_f32), x), 0);
        same_values(&f, g_cast(f.g, g_pad(f.g, c, one, two, fill), DT_f32), 0);
        same_values(&f, g1(f.g, OP_neg, g_gather_axis(f.g, as, at, 0)), 0);
        same_values(&f, g_matmul(f.g, x, as), 2e-6 * 40 * 40);
        same_values(&f, g_matmul(f.g, as, x), 2e-6 * 40 * 40);
        arena_free(f.a);
    }
}

static void test_products(void **state)
{
    (void)state;
    static const struct { int64_t a[4], b[4]; int rank; } size[] = {
        { { 37, 65 }, { 65, 43 }, 2 }, { { 2, 300 }, { 300, 2 }, 2 }, { { 64, 1024 }, { 1024, 48 }, 2 }, { { 1, 513 }, { 513, 700 }, 2 }, { { 700, 513 }, { 513, 1 }, 2 },
        { { 3, 2, 31, 17 }, { 3, 2, 17, 33 }, 4 }, { { 3, 1, 31, 17 }, { 1, 2, 17, 33 }, 4 } };
    for (size_t i = 0; i < COUNT_OF(size); i++)
        for (int form = 0; form < 3; form++) {          /* plain; what is multiplied is computed on the way; the result is transposed */
            Fixture f;
            fixture_open(&f);
            Node *a = fixture_input(&f, size[i].rank, size[i].a, false), *b = fixture_input(&f, size[i].rank, size[i].b, false);
            if (form == 1) a = g1(f.g, OP_tanh, a), b = g2(f.g, OP_mul, b, b);
            Node *c = g_matmul(f.g, a, b);
            if (form == 2) c = g_transpose(f.g, c, size[i].rank == 2 ? (int[]){ 1, 0 } : (int[]){ 1, 3, 0, 2 });
            same_values(&f, c, 2e-6 * (double)size[i].a[size[i].rank - 1]);
            arena_free(f.a);
        }
}

/* Products of small integers are exact: one after the other in a matrix, and a few taps each (a depthwise convolution), with extreme values and a long sum. */
static void test_small_integers(void **state)
{
    (void)state;
    static const char *const text[] = {
        OPSET(13) "g (uint8[37,700] x, int8[700,33] w, uint8 z) => (int32[37,33] y) { y = MatMulInteger(x, w, z) }",
        OPSET(13) "g (uint8[1,6,9,40] x, int8[8,6,3,3] w, uint8 z) => (int32[1,8,A,B] y) { y = ConvInteger<pads = [1,1,0,2]>(x, w, z) }",
        OPSET(13) "g (uint8[1,6,9,40] x, int8[6,1,3,3] w, uint8 z) => (int32[1,6,A,B] y) { y = ConvInteger<pads = [1,1,1,1], group = 6>(x, w, z) }",
        OPSET(13) "g (uint8[37,700] x, int8[700,33] w, uint8 z) => (int32[37,33] y) <int64[1] k = {1}, int64[1] l = {0}, int64[1] m = {2}> { a = Cast<to = 6>(x) b = Cast<to = 6>(w)"
                  " c = Unsqueeze(a, m) d = Unsqueeze(b, l) e = Mul(c, d) y = ReduceSum<keepdims = 0>(e, k) }",
        OPSET(13) "g (uint8[5,37,9] x, int8[5,37,9] w, uint8 z) => (int32[5,9] y) <int64[1] k = {1}> { a = Cast<to = 6>(x) b = Cast<to = 6>(w) e = Mul(a, b) y = ReduceSum<keepdims = 0>(e, k) }" };
    static const char *const in[] = { "u8[37,700] 255; i8[700,33] 127; u8[] 0", "u8[1,6,9,40] 0; i8[8,6,3,3] 0; u8[] 3", "u8[1,6,9,40] 0; i8[6,1,3,3] 0; u8[] 0",
        "u8[37,700] 255; i8[700,33] 127; u8[] 0", "u8[5,37,9] 0; i8[5,37,9] 0; u8[] 0" };
    for (size_t i = 0; i < COUNT_OF(text); i++)
        for (int extreme = 0; extreme < 2; extreme++) {
            Trial want, got;
            for (int k = 0; k < 2; k++) {
                Trial *r = k ? &got : &want;
                trial_open(r, k ? MODE_ready : MODE_interpreter, text[i]);
                trial_inputs(r, in[i]);
                for (int64_t e = 0; e < tensor_count(&r->in[0]); e++) ((uint8_t *)r->in[0].data)[e] = extreme ? 255 : (uint8_t)(e * 7919 % 256);
                for (int64_t e = 0; e < tensor_count(&r->in[1]); e++) ((int8_t *)r->in[1].data)[e] = extreme ? (int8_t)-128 : (int8_t)(e * 7919 % 251 - 125);
                if (trial_run(r)) fail_msg("%s", r->cx.text);
            }
            got.want = want.out;
            got.nwant = want.nout;
            assert_int_equal(trial_differences(&got, 0), 0);
            trial_close(&want);
            trial_close(&got);
        }
}

/* Whole models: convolutions of all kinds, pools, with results that are worked out by hand elsewhere; here the tiers agree. */
static void test_models(void **state)
{
    (void)state;
    static const char *const text[] = {
        OPSET(13) "g (float[1,6,9,40] x, float[8,6,3,3] w) => (float[1,8,A,B] y) { y = Conv<pads = [1,1,0,2], strides = [2,1]>(x, w) }",
        OPSET(13) "g (float[1,6,9,40] x, float[6,1,3,3] w) => (float[1,6,A,B] y) { y = Conv<pads = [1,1,1,1], group = 6>(x, w) }",
        OPSET(13) "g (float[1,6,9,40] x, float[4,3,3,3] w) => (float[1,4,A,B] y) { y = Conv<dilations = [2,2], group = 2>(x, w) }",
        OPSET(13) "g (float[1,6,9,40] x, float[6,2,3,3] w) => (float[1,2,A,B] y) { y = ConvTranspose<strides = [2,2]>(x, w) }",
        OPSET(13) "g (float[1,6,9,40] x, float[1] w) => (float[1,6,A,B] y, float[1,6,1,1] z) { a = MaxPool<kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>(x) y = Add(a, w) z = GlobalAveragePool(y) }",
        OPSET(13) "g (float[1,6,9,40] x, float[40,40] w) => (float[1,6,9,40] y) { s = MatMul(x, w) p = Softmax(s) y = Mul(p, x) }" };
    static const char *const in[] = { "f32[1,6,9,40] 0; f32[8,6,3,3] 0", "f32[1,6,9,40] 0; f32[6,1,3,3] 0", "f32[1,6,9,40] 0; f32[4,3,3,3] 0", "f32[1,6,9,40] 0; f32[6,2,3,3] 0",
        "f32[1,6,9,40] 0; f32[1] 1", "f32[1,6,9,40] 0; f32[40,40] 0" };
    for (size_t i = 0; i < COUNT_OF(text); i++) {
        Trial want, got;
        for (int k = 0; k < 2; k++) {
            Trial *r = k ? &got : &want;
            trial_open(r, k ? MODE_ready : MODE_interpreter, text[i]);
            trial_inputs(r, in[i]);
            for (int j = 0; j < 2; j++)
                for (int64_t e = 0; e < tensor_count(&r->in[j]); e++) ((float *)r->in[j].data)[e] = (float)((e * 7919 + j) % 101) * 0.02f - 1;
            if (trial_run(r)) fail_msg("%s", r->cx.text);
        }
        got.want = want.out;
        got.nwant = want.nout;
        assert_int_equal(trial_differences(&got, 1e-5), 0);
        trial_close(&want);
        trial_close(&got);
    }
}

/* ---- programs: answers while kernels are compiled -------------------------------------------------------------------------------------------------- */
enum { RUNNERS = 3 };
typedef struct Runner { Trial *trial; Program *p; Arena *a; Tensor out; Status status; int during, after; char text[256]; } Runner;
typedef struct RunOnce { Runner *r; Tensor *out; } RunOnce;

static void once_body(Ctx *cx, void *arg)
{
    RunOnce *o = arg;
    int n;
    program_run(cx, o->r->p, o->r->a, o->r->trial->in, o->out, NULL);
    const SegmentEvidence *e = program_evidence(cx, o->r->p, o->r->a, &n);           /* beside other runs, and the compiler */
    if (n != 1 || e[0].nkernel < 1) fail(cx, E_INVALID, "%d segments, the first with %d kernels", n, n ? e[0].nkernel : 0);
}

static void *runner_main(void *arg)
{
    Runner *r = arg;
    Ctx cx;
    ctx_init(&cx);
    r->a = arena_new(&cx);
    for (int i = 0; i < 100000 && r->after < 3 && r->status == E_OK; i++) {
        bool compiling = program_compiling(r->p);
        Tensor out = { 0 };
        r->status = guard_call(&cx, once_body, &(RunOnce){ r, &out });
        if (r->status != E_OK) snprintf(r->text, sizeof r->text, "%.200s", cx.text);
        else if (i == 0) r->out = out;
        else {
            double worst = 0;
            for (int64_t e = 0; e < tensor_count(&out); e++) worst = fmax(worst, fabs(((float *)out.data)[e] - ((float *)r->out.data)[e]));
            if (!(worst <= 1e-5)) { r->status = E_INVALID; snprintf(r->text, sizeof r->text, "run %d differs by %g", i, worst); }
        }
        *(compiling ? &r->during : &r->after) += 1;
        if (r->after == 0) usleep(1000);
    }
    return NULL;
}

#define MIXED OPSET(17) "g (float[B,48] x, float[48,48] w) => (float[B,48] y) { a = MatMul(x, w) b = Tanh(a) c = Softmax(b) d = Mul(c, x) e = MatMul(d, w) y = Add(e, x) }"

typedef struct Making { Trial *t; ProgramOptions o; Program *p; } Making;
static void make_body(Ctx *cx, void *arg)
{
    Making *m = arg;
    if (!m->t->model->graph) onnx_load(cx, m->t->model, m->t->path, m->t->text, strlen(m->t->text));
    m->p = program_new(cx, m->t->model, &m->o);
}
static void prepare_body(Ctx *cx, void *arg) { Making *m = arg; program_prepare(cx, m->p, m->t->in); }

/* Nothing on disk: the first result comes from the ready tier, later ones from kernels, to several threads at once, all the same but for rounding. */
static void test_swap(void **state)
{
    (void)state;
    Trial t;
    trial_open(&t, MODE_fused, MIXED);
    t.cx.opt.cache = "";
    trial_inputs(&t, "f32[5,48] 0; f32[48,48] 0");
    for (int j = 0; j < 2; j++)
        for (int64_t e = 0; e < tensor_count(&t.in[j]); e++) ((float *)t.in[j].data)[e] = (float)((e * 7919 + j) % 101) * 0.02f - 1;
    Making m = { .t = &t, .o = { .fuse = true, .ready = true, .threads = 2 } };
    assert_int_equal(guard_call(&t.cx, make_body, &m), E_OK);
    Runner r[RUNNERS] = { 0 };
    pthread_t thread[RUNNERS];
    for (int i = 0; i < RUNNERS; i++) {
        r[i].trial = &t;
        r[i].p = m.p;
        assert_int_equal(pthread_create(&thread[i], NULL, runner_main, &r[i]), 0);
    }
    for (int i = 0; i < RUNNERS; i++) pthread_join(thread[i], NULL);
    int during = 0;
    for (int i = 0; i < RUNNERS; i++) {
        if (r[i].status != E_OK) fail_msg("%s", r[i].text);
        assert_true(r[i].after >= 3);
        during += r[i].during;
        assert_memory_equal(r[i].out.data, r[0].out.data, tensor_bytes(&r[0].out));
    }
    assert_true(during > 0);
    assert_int_equal(guard_call(&t.cx, prepare_body, &m), E_OK);
    int n;
    const SegmentEvidence *e = program_evidence(&t.cx, m.p, t.arena, &n);
    assert_int_equal(n, 1);
    assert_true(e[0].build.compiled > 0);
    for (int i = 0; i < RUNNERS; i++) arena_free(r[i].a);
    program_free(m.p);
    trial_close(&t);
}

/* Freed while a compiler runs; and a compiler that fails: runs go on, and who waits for kernels is told. */
static void test_stopped_and_failed(void **state)
{
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        Trial t;
        trial_open(&t, MODE_fused, MIXED);
        t.cx.opt.cache = "";
        if (broken) t.cx.opt.cc = "/bin/false";
        trial_inputs(&t, "f32[5,48] 0.25; f32[48,48] 0.5");
        Making m = { .t = &t, .o = { .fuse = true, .ready = true } };
        Status st = guard_call(&t.cx, make_body, &m);
        assert_int_equal(st, E_OK);
        Runner r = { .trial = &t, .p = m.p, .a = t.arena };
        Tensor out = { 0 };
        st = guard_call(&t.cx, once_body, &(RunOnce){ &r, &out });
        if (st != E_OK) fail_msg("%s", t.cx.text);
        assert_int_equal(tensor_count(&out), 5 * 48);
        if (broken) assert_int_equal(guard_call(&t.cx, prepare_body, &m), E_COMPILE);
        program_free(m.p);
        trial_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise_bits), cmocka_unit_test(test_casts_and_views_bits), cmocka_unit_test(test_constants_at_any_address),
        cmocka_unit_test(test_products), cmocka_unit_test(test_small_integers),
        cmocka_unit_test(test_models), cmocka_unit_test(test_swap), cmocka_unit_test(test_stopped_and_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
