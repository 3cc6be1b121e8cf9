/* limit: 600 */
/* Programs as a whole: sizes that change between runs, how much is compiled and when, very many operands, results and nodes, random numbers, bodies of loops
 * and branches, threads and forks, the cache of kernels, what the report says. Each is a way in which compilers of tensor graphs are known to fail. */
#include "model.h"
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined __SSE2__
#include <xmmintrin.h>
#endif

static void run_or_fail(Trial *r)
{
    if (trial_run(r)) fail_msg("%s: %s", mode_name[r->mode], r->cx.text);
}

static void run_and_compare(Trial *r, const char *in, const char *want, double tol)
{
    trial_inputs(r, in);
    r->want = trial_tensors(&r->cx, r->arena, want, &r->nwant);
    run_or_fail(r);
    assert_int_equal(trial_differences(r, tol), 0);
}

/* ---- sizes --------------------------------------------------------------------------------------------------------------------------------- */
#define BLOCK OPSET(18) "g (float[B,S,8] x, float[8,8] w) => (float[B,S,8] y, float[B,S,S2] p) { q = MatMul(x, w) t = Transpose<perm = [0, 2, 1]>(q) s = MatMul(q, t) p = Softmax(s)\n" \
              "o = MatMul(p, q) a = Add(o, x) m = ReduceMean<axes = [-1]>(a) d = Sub(a, m) y = Relu(d) }"

static void test_sizes_change(void **state)
{
    (void)state;
    static const int seq[] = { 32, 1, 32, 0, 5 };
    for (int mode = MODE_fused; mode <= MODE_unfused; mode++) {
        Trial r;
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (float[N] x, float[N] z) => (float[N] y, float[N] same, float[M] twice) { a = Add(x, z) y = Relu(a) same = Identity(x) twice = Concat<axis = 0>(y, x) }");
        for (size_t i = 0; i < COUNT_OF(seq); i++) {
            char in[99], want[199];
            snprintf(in, sizeof in, seq[i] ? "f32[%d] -3; f32[%d] 5" : "f32[%d]; f32[%d]", seq[i], seq[i]);
            snprintf(want, sizeof want, seq[i] ? "f32[%d] 2; f32[%d] -3; f32[%d] 2*%d -3*%d" : "f32[%d]; f32[%d]; f32[%d]", seq[i], seq[i], 2 * seq[i], seq[i], seq[i]);
            run_and_compare(&r, in, want, 0);
            for (int k = 0; k < seq[i]; k++) {
                assert_true(((float *)r.in[0].data)[k] == -3);
                assert_true(((float *)r.in[1].data)[k] == 5);
            }
        }
        assert_in_range(program_variants(r.program), 1, 3);
        trial_close(&r);
    }
}

static void test_few_compilations(void **state)
{
    (void)state;
    Trial r;
    trial_open(&r, MODE_fused, BLOCK);
    unsigned seed = 1;
    int before = 0;
    for (int i = 0; i < 200; i++) {
        seed = seed * 1103515245 + 12345;
        int b = (int)(seed >> 16) % 64 + 1, s = (int)(seed >> 8) % 24 + 1;
        if (i % 40 == 39) s = 512, b = 1;
        r.in = NEWS(r.arena, Tensor, 2);
        r.in[0] = *tensor_new(r.arena, &r.cx, DT_f32, 3, (int64_t[]){ b, s, 8 });
        r.in[1] = *tensor_new(r.arena, &r.cx, DT_f32, 2, (int64_t[]){ 8, 8 });
        run_or_fail(&r);
        assert_true(((float *)r.out[1].data)[0] > 0);
        if (i == 99) before = program_variants(r.program);
    }
    assert_in_range(program_variants(r.program), 1, 6);
    assert_int_equal(program_variants(r.program), before);
    trial_close(&r);
}

/* ---- very many ------------------------------------------------------------------------------------------------------------------------------- */
enum { MANY = 500 };

static void test_many_operands(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {           /* joined, summed, added one after the other; each operand with an operator of its own */
        static char text[1 << 17], in[1 << 14], want[1 << 15];
        char *t = text, *i = in, *w = want;
        t += sprintf(t, OPSET(18) "g (");
        for (int k = 0; k < MANY; k++) {
            t += sprintf(t, "%sfloat[N] x%d", k ? ", " : "", k);
            i += sprintf(i, "f32[3] %d;", k % 2 ? k : -k);
        }
        t += sprintf(t, ") => (float[M] y) {\n");
        for (int k = 0; k < MANY; k++) t += sprintf(t, "r%d = Relu(x%d)\n", k, k);
        if (kind < 2) {
            t += sprintf(t, kind ? "y = Sum(" : "y = Concat<axis = 0>(");
            for (int k = 0; k < MANY; k++) t += sprintf(t, "%sr%d", k ? ", " : "", k);
            sprintf(t, ") }");
        } else {
            for (int k = 1; k < MANY; k++) {
                char left[16], name[16];
                snprintf(left, sizeof left, "%c%d", k == 1 ? 'r' : 's', k - 1);
                snprintf(name, sizeof name, k == MANY - 1 ? "y" : "s%d", k);
                t += sprintf(t, "%s = Add(%s, r%d)\n", name, left, k);
            }
            sprintf(t, "}");
        }
        int sum = 0;
        for (int k = 1; k < MANY; k += 2) sum += k;
        if (kind) sprintf(w, "f32[3] %d", sum);
        else {
            w += sprintf(w, "f32[%d]", 3 * MANY);
            for (int k = 0; k < MANY; k++) w += sprintf(w, " %d*3", k % 2 ? k : 0);
        }
        double start = time_now();
        int bad = trial_mode(MODE_interpreter, text, in, want, 0) + trial_mode(MODE_fused, text, in, want, 0) + (kind < 2 ? trial_mode(MODE_unfused, text, in, want, 0) : 0);
        assert_int_equal(bad, 0);
        if (time_now() - start > 120) fail_msg("kind %d took %.0f s", kind, time_now() - start);
    }
}

static void test_many_results(void **state)
{
    (void)state;
    enum { RESULTS = 1000 };
    static char text[1 << 17], want[1 << 15];
    char *t = text, *w = want;
    t += sprintf(t, OPSET(18) "g (float[5] x, float[5] z) => (");
    for (int k = 0; k < RESULTS; k++) t += sprintf(t, "%sfloat[5] y%d", k ? ", " : "", k);
    t += sprintf(t, ") { a = Add(x, z)\n");
    for (int k = 0; k < RESULTS; k++) {
        t += sprintf(t, "c%d = Constant<value_float = %d.0>() y%d = Mul(a, c%d)\n", k, k, k, k);
        w += sprintf(w, "f32[5] %d;", 3 * k);
    }
    sprintf(t, "}");
    double start = time_now();
    int bad = trial_mode(MODE_fused, text, "f32[5] 1; f32[5] 2", want, 0);
    assert_int_equal(bad, 0);
    if (time_now() - start > 60) fail_msg("it took %.0f s", time_now() - start);
}

static char *chain(int n, const char *dims)
{
    static char text[6 << 20];
    char *t = text + sprintf(text, OPSET(18) "g (float[%s] x0) => (float[%s] x%d) { one = Constant<value_float = 1.0>()\n", dims, dims, n);
    for (int k = 0; k < n; k++) t += sprintf(t, k % 3 == 0 ? "x%d = Neg(x%d)\n" : k % 3 == 1 ? "x%d = Add(x%d, one)\n" : "x%d = Relu(x%d)\n", k + 1, k);
    sprintf(t, "}");
    return text;
}

static void import_only(Ctx *cx, void *arg)
{
    Trial *r = arg;
    onnx_load(cx, r->model, "<memory>", r->text, strlen(r->text));
    TraceHost host = { 0 };
    Graph *g = onnx_import(cx, r->arena, r->model, r->model->graph, 0, NULL, r->in, &host);
    Plan *p = plan_make(cx, r->arena, g, NULL, true, true);
    r->nout = p->nkernel;
}

/* A hundred thousand operators in a row are planned in seconds. */
static void test_long_chain(void **state)
{
    (void)state;
    Trial r;
    double start = time_now();
    trial_open(&r, MODE_fused, chain(100000, "N"));
    trial_inputs(&r, "f32[7] 1");
    Status st = guard_call(&r.cx, import_only, &r);
    if (st) fail_msg("%s", r.cx.text);
    if (time_now() - start > 20) fail_msg("%.1f s", time_now() - start);
    assert_in_range(r.nout, 1, 20000);
    trial_close(&r);
    start = time_now();
    assert_int_equal(trial_mode(MODE_fused, chain(3000, "N"), "f32[7] 5", "f32[7] 1", 0), 0);
    if (time_now() - start > 60) fail_msg("3000 operators took %.0f s", time_now() - start);
}

/* Whoever lowers a kernel can be stopped at each value of it. */
static void lower_stopped(Ctx *cx, void *arg)
{
    Trial *r = arg;
    onnx_load(cx, r->model, "<memory>", r->text, strlen(r->text));
    TraceHost host = { 0 };
    Graph *g = onnx_import(cx, r->arena, r->model, r->model->graph, 0, NULL, r->in, &host);
    Plan *p = plan_make(cx, r->arena, g, NULL, true, true);
    assert_true(p->nkernel > 0);
    cx->cancel = &(volatile int){ 1 };
    kernel_lower(cx, r->arena, g, &p->kernel[0], (Vectors){ .lanes = 16 });
}

static void test_lowering_stops(void **state)
{
    (void)state;
    Trial r;
    trial_open(&r, MODE_fused, chain(200, "N"));
    trial_inputs(&r, "f32[7] 1");
    assert_int_equal(guard_call(&r.cx, lower_stopped, &r), E_CANCELLED);
    r.cx.cancel = NULL;
    trial_close(&r);
}

/* Planning 600 attentions in a row takes twice the memory of 300. */
static size_t attentions(int n)
{
    static char text[1 << 17];
    Trial r;
    char *t = text + sprintf(text, OPSET(18) "g (float[4,64] x0) => (float[4,64] x%d) {\n", n);
    for (int k = 0; k < n; k++) t += sprintf(t, "t%d = Transpose(x%d) q%d = MatMul(x%d, t%d) w%d = Softmax(q%d) x%d = MatMul(w%d, x%d)\n", k, k, k, k, k, k, k, k + 1, k, k);
    sprintf(t, "}");
    trial_open(&r, MODE_fused, text);
    trial_inputs(&r, "f32[4,64] 1");
    Status st = guard_call(&r.cx, import_only, &r);
    if (st) fail_msg("%s", r.cx.text);
    size_t used = arena_used(r.arena);
    trial_close(&r);
    return used;
}

static void test_long_chain_of_attentions(void **state)
{
    (void)state;
    size_t half = attentions(300), all = attentions(600);
    if (all > half * 5 / 2) fail_msg("300 take %zu bytes, 600 %zu", half, all);
}

/* Constants that grow are not computed when the program is made, nor kept. */
static void test_growing_constants(void **state)
{
    (void)state;
    Trial r;
    double start = time_now();
    trial_open(&r, MODE_fused, OPSET(18) "g (float x) => (float y, float z) <int64[1] n = {1000000000}, int64[3] s = {900, 900, 900}, float one = {2}> {\n"
               "e = Expand(x, n) y = ReduceMax<keepdims = 0>(e) c = ConstantOfShape<value = float[1] {3}>(s) t = Tile(c1, n1) n1 = Constant<value_ints = [100000000]>()\n"
               "c1 = Constant<value_floats = [4.0]>() m = Mul(t, one) m1 = ReduceMax<keepdims = 0>(m) c2 = ReduceMin<keepdims = 0>(c) z = Add(m1, c2) }");
    run_and_compare(&r, "f32[] 7", "f32[] 7; f32[] 11", 0);
    int n;
    const SegmentEvidence *e = program_evidence(&r.cx, r.program, r.arena, &n);
    assert_in_range(e[0].const_bytes + e[0].temp_bytes, 0, 1 << 20);
    trial_close(&r);
    trial_open(&r, MODE_fused, OPSET(18) "g (float x) => (float y, float z) <int64[3] s = {200, 200, 200}, int64[1,3] at = {1, 2, 3}, int64[3] i = {1, 2, 3}, float[1] v = {5}> {\n"
               "c = ConstantOfShape(s) d = ScatterND(c, at, v) t = ReduceSum<keepdims = 0>(d) y = Mul(t, x) z = GatherND(d, i) }");
    run_and_compare(&r, "f32[] 2", "f32[] 10; f32[] 5", 0);
    trial_close(&r);
    if (time_now() - start > 60) fail_msg("it took %.0f s", time_now() - start);
}

/* A product of inputs that the end of the model reads is no kernel of its beginning: it is right before what reads it, which says so. */
static void test_products_when_they_are_read(void **state)
{
    (void)state;
    Trial r;
    int n, at = -1;
    trial_open(&r, MODE_fused, OPSET(18) "g (float[16,16] h, float[16,16] r, float[16,16] x, float[16,16] v) => (float[16,16] y) { hr = MatMul(h, r) a = MatMul(x, v) b = MatMul(a, v) c = MatMul(b, hr) y = MatMul(c, v) }");
    run_and_compare(&r, "f32[16,16] 1; f32[16,16] 1; f32[16,16] 1; f32[16,16] 1", "f32[16,16] 1048576", 0);
    const SegmentEvidence *e = program_evidence(&r.cx, r.program, r.arena, &n);
    for (int i = 0; i < e[0].nkernel; i++)
        for (int j = 0; j < e[0].kernel[i].nnode; j++) if (strstr(e[0].kernel[i].node[j], " hr")) at = i;
    assert_int_equal(n, 1);
    assert_in_range(at, 1, e[0].nkernel - 2);
    bool read = false;
    for (int j = 0; j < e[0].kernel[at + 1].nfrom; j++) read |= e[0].kernel[at + 1].from[j] == at;
    assert_true(read);
    trial_close(&r);
}

/* ---- random numbers ----------------------------------------------------------------------------------------------------------------------------- */
static void test_random_is_not_merged(void **state)
{
    (void)state;
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        Trial r;
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (float[64] x) => (float[64] d, float[64] s, float[64] u) { a = RandomNormalLike(x) b = RandomNormalLike(x) d = Sub(a, b)\n"
                   "e = RandomNormalLike<seed = 3.0>(x) f = RandomNormalLike<seed = 3.0>(x) s = Sub(e, f) u = RandomUniform<shape = [64]>() }");
        trial_inputs(&r, "f32[64] 0");
        run_or_fail(&r);
        Tensor *first = r.out;
        const float *d = r.out[0].data, *s = r.out[1].data, *u = r.out[2].data;
        int equal = 0;
        for (int i = 0; i < 64; i++) {
            equal += d[i] == 0;
            assert_true(s[i] == 0);
            assert_true(u[i] >= 0 && u[i] < 1);
        }
        assert_in_range(equal, 0, 2);
        assert_false(u[0] == u[1] && u[1] == u[2]);
        run_or_fail(&r);
        for (int k = 0; k < 3; k++) assert_memory_equal(first[k].data, r.out[k].data, 64 * sizeof(float));
        trial_close(&r);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------------------------------------------------------------- */
static void test_bodies(void **state)
{
    (void)state;
    trial_gives(OPSET(18) "g (float[2] x, bool c, float[2] k) => (float[2] y, float[3,2] all, float[2] z) <int64 n = {3}, bool yes = {1}, float[2] w = {10, 20}> {\n"
                "y, all = Loop(n, yes, x) <body = b (int64 i, bool go, float[2] a) => (bool more, float[2] s, float[2] o) { more = Constant<value = bool {1}>() t = Add(a, w) s = Add(t, k) o = Identity(t) }>\n"
                "z = If(c) <then_branch = p () => (float[2] r) { t = Mul(w, x) r = Neg(t) }, else_branch = q () => (float[2] r) { t = Add(w, x) r = Identity(t) }> }",
                "f32[2] 1 2; bool[] 1; f32[2] 0 1", "f32[2] 31 65; f32[3,2] 11 22 21 43 31 64; f32[2] -10 -40", 0);
    trial_gives(OPSET(18) "g (float x, float limit) => (float y, int64 n) <int64 many = {1000}, bool yes = {1}, int64 zero = {0}> {\n"
                "y, n = Loop(many, yes, x, zero) <body = b (int64 i, bool go, float a, int64 c) => (bool more, float s, int64 d) { s = Add(a, a) more = Less(s, limit) one = Constant<value_int = 1>() d = Add(c, one) }> }",
                "f32[] 1; f32[] 100", "f32[] 128; i64[] 7", 0);
    trial_gives(OPSET(18) "g (float[N,2] x, int64 n) => (float[2] y, float[M,2] z) <float[2] s = {0, 0}> {\n"
                "y, z = Scan<num_scan_inputs = 1, body = b (float[2] a, float[2] v) => (float[2] o, float[2] p) { o = Add(a, v) p = Mul(o, o) }>(s, x) }",
                "f32[3,2] 1..6; i64[] 1", "f32[2] 9 12; f32[3,2] 1 4 16 36 81 144", 0);
    trial_gives(OPSET(18) "g (float[2] x, int64 n) => (float[2] y, float[K,2] z) <bool yes = {1}> {\n"
                "y, z = Loop(n, yes, x) <body = b (int64 i, bool go, float[2] a) => (bool more, float[2] s, float[2] o) { more = Identity(go) s = Add(a, a) o = Neg(a) }> }",
                "f32[2] 1 2; i64[] 0", "f32[2] 1 2; f32[0,2]", 0);
}

/* ---- threads, forks ---------------------------------------------------------------------------------------------------------------------------------- */
static void wide_inputs(Trial *r)
{
    trial_inputs(r, "f32[700,600] 0");
    for (int i = 0; i < 700 * 600; i++) ((float *)r->in[0].data)[i] = (float)(i % 613) * 0.003f - 0.9f;
}

static void wide_open(Trial *r, int threads)
{
    trial_open(r, MODE_fused, OPSET(17) "g (float[700,600] x) => (float[700,1] y, float[700,600] z, float t) <int64[1] last = {-1}> { e = Exp(x) s = ReduceSum(e, last) y = Sqrt(s) z = Div(e, y) t = ReduceSum<keepdims = 0>(z) }");
    r->threads = threads;
    wide_inputs(r);
}

static void same_results(const Trial *a, const Trial *b)
{
    for (int k = 0; k < a->nout; k++) assert_memory_equal(a->out[k].data, b->out[k].data, tensor_bytes(&a->out[k]));
}

static void test_threads_same_bits(void **state)
{
    (void)state;
    Trial one, many;
    wide_open(&one, 1);
    run_or_fail(&one);
    for (int n = 2; n <= 13; n += 11) {
        wide_open(&many, n);
        run_or_fail(&many);
        same_results(&one, &many);
        trial_close(&many);
    }
    trial_close(&one);
}

typedef struct Caller { Trial *shared; Tensor out[3]; Arena *arena; Ctx cx; Status st; } Caller;

static void caller_body(Ctx *cx, void *arg)
{
    Caller *c = arg;
    for (int i = 0; i < 20; i++) {
        memset(c->out, 0, sizeof c->out);
        program_run(cx, c->shared->program, c->arena, c->shared->in, c->out, NULL);
    }
}

static void *caller_main(void *arg)
{
    Caller *c = arg;
    ctx_init(&c->cx);
    c->arena = arena_new(&c->cx);
    c->st = guard_call(&c->cx, caller_body, c);
    return NULL;
}

static void test_callers_at_once(void **state)
{
    (void)state;
    Trial r;
    wide_open(&r, 4);
    run_or_fail(&r);
    Caller c[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) { c[i].shared = &r; assert_int_equal(pthread_create(&t[i], NULL, caller_main, &c[i]), 0); }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        if (c[i].st) fail_msg("%s", c[i].cx.text);
        for (int k = 0; k < 3; k++) assert_memory_equal(c[i].out[k].data, r.out[k].data, tensor_bytes(&r.out[k]));
        arena_free(c[i].arena);
    }
    trial_close(&r);
}

/* Runs in a child that has other limits; its exit status says how it went. */
static void in_child(Trial *r, void (*limit)(void))
{
    Trial ref = *r;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(100);
        if (limit) limit();
        int bad = trial_run(r) ? 1 : 0;
        if (bad) fprintf(stderr, "%s\n", r->cx.text);
        for (int k = 0; !bad && k < r->nout; k++)
            if (ref.out && memcmp(ref.out[k].data, r->out[k].data, tensor_bytes(&r->out[k]))) bad = 2;
        _exit(bad);
    }
    int status;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the child ended with status %#x", status);
}

static void one_processor(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    int first = 0;
    while (!CPU_ISSET(first, &set)) first++;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    sched_setaffinity(0, sizeof set, &set);
    if (cpu_count() != 1) _exit(3);
}

static void *nothing(void *arg) { return arg; }

/* No thread can be made; the limit binds every user but the superuser. */
static void no_threads(void)
{
    struct rlimit l = { 0, 0 };
    pthread_t t;
    if (geteuid() == 0 && setuid(65534)) _exit(4);
    setrlimit(RLIMIT_NPROC, &l);
    if (!pthread_create(&t, NULL, nothing, NULL)) _exit(5);
}

static void test_run_after_fork(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    print_message("skipped: the thread sanitizer cannot follow threads made after fork()\n");
    skip();
#endif
    Trial r;
    wide_open(&r, 4);
    run_or_fail(&r);
    in_child(&r, NULL);
    in_child(&r, one_processor);
    in_child(&r, no_threads);
    run_or_fail(&r);
    trial_close(&r);
    wide_open(&r, 0);                   /* nothing is open yet: the child makes it all */
    run_or_fail(&r);
    Tensor *out = r.out;
    program_free(r.program);
    r.program = NULL;
    in_child(&r, one_processor);
    r.out = out;
    trial_close(&r);
}

/* ---- the floating-point environment ------------------------------------------------------------------------------------------------------------------- */
static void test_environment_untouched(void **state)
{
    (void)state;
#if defined __SSE2__
    unsigned before = _mm_getcsr() & 0xffc0;
    volatile float tiny = 1e-40f, one = 1;
    trial_gives(OPSET(18) "g (float[9] x, float[9] e) => (float[9] y, float[9] z) <float half = {0.5}> { y = Mul(x, half) a = Exp(e) z = Mul(a, half) }", "f32[9] 2e-40; f32[9] -95",
                "f32[9] 1e-40; f32[9] 2.760789e-42", 1e-43);
    assert_int_equal(_mm_getcsr() & 0xffc0, before);
    assert_true(tiny * one > 0);
#else
    print_message("skipped: no MXCSR on this machine\n");
#endif
}

/* With leave what is below the normal numbers is 0, on all threads; and the caller's own mode is what it was. */
static void test_flush_with_leave(void **state)
{
    (void)state;
#if defined __SSE2__
    enum { N = 1 << 18 };
    for (int mode = MODE_unfused; mode <= MODE_fused; mode++) {
        unsigned before = _mm_getcsr() & 0xffc0;
        volatile float tiny = 1e-40f, one = 1;
        Trial r;
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (float[262144] x, float[262144] e) => (float[262144] y, float[262144] z) <float big = {1e30}> { y = Mul(x, big) a = Exp(e) z = Mul(a, big) }");
        r.cx.opt.allow = "reassoc,flush";
        r.threads = r.cx.opt.threads = 2;
        trial_inputs(&r, "f32[262144] -1e-40; f32[262144] -95");
        for (int run = 0; run < 2; run++) {
            run_or_fail(&r);
            assert_int_equal(_mm_getcsr() & 0xffc0, before);
            assert_true(tiny * one > 0);
            for (int i = 0; i < N; i++) {
                const float y = ((const float *)r.out[0].data)[i], z = ((const float *)r.out[1].data)[i];
                if (y != 0 || !signbit(y) || z != 0) fail_msg("run %d, element %d: %g and %g, wanted -0 and 0", run, i, (double)y, (double)z);
            }
        }
        trial_close(&r);
    }
#else
    print_message("skipped: no MXCSR on this machine\n");
#endif
}

/* ---- the cache of kernels -------------------------------------------------------------------------------------------------------------------------------- */
static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st; (void)kind; (void)f;
    return remove(path);
}

static BuildStats builds_of(const char *folder, const char *isa, const char *text, bool fuse)
{
    Trial r;
    trial_open(&r, fuse ? MODE_fused : MODE_unfused, text);
    r.cx.opt.cache = folder;
    if (isa) r.cx.opt.isa = isa;
    trial_inputs(&r, "f32[4,33] 1");
    run_or_fail(&r);
    int n;
    BuildStats b = program_evidence(&r.cx, r.program, r.arena, &n)[0].build;
    trial_close(&r);
    return b;
}

static void test_cache_hits(void **state)
{
    (void)state;
    char folder[] = "/tmp/sinter-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *text = OPSET(17) "g (float[N,33] x) => (float[N,33] y) { a = Neg(x) y = Softmax(a) }", *other = OPSET(17) "g (float[N,33] x) => (float[N,33] y) { a = Abs(x) y = Softmax(a) }";
    assert_true(builds_of(folder, NULL, text, true).compiled > 0);
    BuildStats b = builds_of(folder, NULL, text, true);
    assert_int_equal(b.compiled, 0);
    assert_true(b.from_disk > 0);
    assert_true(builds_of(folder, "plain", text, true).compiled > 0);
    assert_int_equal(builds_of(folder, "plain", text, true).compiled, 0);
    assert_true(builds_of(folder, NULL, other, true).compiled > 0);
    assert_int_equal(builds_of(folder, NULL, other, true).compiled, 0);
    assert_true(builds_of(folder, NULL, text, false).compiled > 0);
    assert_int_equal(builds_of(folder, NULL, text, true).compiled, 0);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- the report ------------------------------------------------------------------------------------------------------------------------------------------- */
/* Each operator of the model appears in the kernels that compute it, and no other name does. */
static void test_report_names_operators(void **state)
{
    (void)state;
    static const char *const want[] = { "MatMul h", "Add b", "Relu r", "ReduceMax t", "Sub s", "Conv c", "Exp e" };
    for (int mode = MODE_fused; mode <= MODE_unfused; mode++) {
        Trial r;
        trial_open(&r, (TrialMode)mode, OPSET(13) "g (float[4,3] x, float[3,5] w, float[5] k, float[1,1,9] u, float[1,1,2] f) => (float[4,5] s, float[1,1,8] e) {\n"
                   "[h] h = MatMul(x, w) [b] b = Add(h, k) [r] r = Relu(b) [t] t = ReduceMax<axes = [-1]>(r) [s] s = Sub(r, t) [c] c = Conv(u, f) [e] e = Exp(c) }");
        trial_inputs(&r, "f32[4,3] 1; f32[3,5] 1; f32[5] 1; f32[1,1,9] 1; f32[1,1,2] 1");
        run_or_fail(&r);
        int n, seen[COUNT_OF(want)] = { 0 };
        const SegmentEvidence *e = program_evidence(&r.cx, r.program, r.arena, &n);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < e[i].nkernel; k++)
                for (int j = 0; j < e[i].kernel[k].nnode; j++) {
                    size_t w = 0;
                    while (w < COUNT_OF(want) && strcmp(want[w], e[i].kernel[k].node[j])) w++;
                    if (w == COUNT_OF(want)) fail_msg("%s: '%s' is no operator of the model", mode_name[mode], e[i].kernel[k].node[j]);
                    seen[w]++;
                }
        for (size_t w = 0; w < COUNT_OF(want); w++)
            if (seen[w] < 1) fail_msg("%s: no kernel is said to compute '%s'", mode_name[mode], want[w]);
        trial_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_change), cmocka_unit_test(test_few_compilations), cmocka_unit_test(test_many_operands), cmocka_unit_test(test_many_results),
        cmocka_unit_test(test_long_chain), cmocka_unit_test(test_lowering_stops), cmocka_unit_test(test_long_chain_of_attentions), cmocka_unit_test(test_growing_constants), cmocka_unit_test(test_products_when_they_are_read), cmocka_unit_test(test_random_is_not_merged), cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_threads_same_bits), cmocka_unit_test(test_callers_at_once), cmocka_unit_test(test_run_after_fork),
        cmocka_unit_test(test_environment_untouched), cmocka_unit_test(test_flush_with_leave), cmocka_unit_test(test_cache_hits), cmocka_unit_test(test_report_names_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
