/* Contractions in oneDNN (rt/lib_dnnl.c): what the library is handed, in numbers, against plain loops over small whole numbers, so that every sum is exact;
 * whole models against the reference interpreter; NaN; threads; fork; what cannot be there. Everything but the last skips where the library is not installed. */
#include "model.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Setup { Device *device; Lib *lib; } Setup;

static int setup(void **state)
{
    static Setup s;
    char why[256];
    Options o;
    RtError e;
    options_default(&o);
    o.threads = 3;
    assert_int_equal(dev_cpu.open(&s.device, &o, &e), E_OK);
    s.lib = dev_cpu.lib(s.device, why, sizeof why);
    if (!s.lib) print_message("skipped: %s\n", why);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    dev_cpu.close(((Setup *)*state)->device);
    return 0;
}

#define NEED_LIBRARY(s) do { if (!(s)->lib) skip(); } while (0)

static float small(uint64_t seed, int64_t i) { return (float)(random_word(seed, (uint64_t)i) % 7) - 3; }

static float *numbers(int64_t n, uint64_t seed)
{
    float *p = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) p[i] = small(seed, i);
    return p;
}

/* Runs it on so many threads. */
static void run(const Setup *s, LibRun *r, int nbuf, float *const *buf, int threads)
{
    void *at[LIB_OPERANDS + 2];
    int64_t arg[1];
    Launch l = { 0 };
    RtError e;
    for (int i = 0; i < nbuf; i++) at[i] = buf[i];
    lib_launch(r, at, nbuf, arg, &l);
    if (dev_cpu.run(s->device, 1, &l, threads, NULL, NULL, &e)) fail_msg("%s", e.text);
}

/* ---- convolutions ----------------------------------------------------------------------------------------------------------------------------- */
/* Images channels last. gap: the result lies in one with so many more channels. */
typedef struct Shape { int64_t h, w, in, out, k, stride, pad, dilation, groups, gap; int parts; } Shape;

static LibOp conv_op(const Shape *s, int64_t oh, int64_t ow, const float *weights)
{
    int64_t per = s->in / s->groups, each = s->out / s->groups, wide = s->out + s->gap;
    LibOp op = { .naddend = 2, .nstep = 3, .parts = s->parts, .naxis = 7 };
    LibAxis none = { .window = -1, .step = 1, .dilation = 1 };
    for (int i = 0; i < 7; i++) op.axis[i] = none;
    op.axis[0] = (LibAxis){ LIB_row, oh, { s->stride * s->w * s->in, 0, ow * wide, 0, ow * s->out }, 4, true, s->stride, s->dilation, s->pad, s->h };
    op.axis[1] = (LibAxis){ LIB_row, ow, { s->stride * s->in, 0, wide, 0, s->out }, 5, true, s->stride, s->dilation, s->pad, s->w };
    op.axis[2].role = LIB_both; op.axis[2].extent = s->groups;
    memcpy(op.axis[2].at, (int64_t[]){ per, each * per * s->k * s->k, each, each, each }, 5 * sizeof(int64_t));
    op.axis[3].role = LIB_col; op.axis[3].extent = each;
    memcpy(op.axis[3].at, (int64_t[]){ 0, per * s->k * s->k, 1, 1, 1 }, 5 * sizeof(int64_t));
    for (int i = 4; i < 7; i++) op.axis[i].role = LIB_sum;
    op.axis[4].extent = op.axis[5].extent = s->k; op.axis[6].extent = per;
    memcpy(op.axis[4].at, (int64_t[]){ s->dilation * s->w * s->in, s->k }, 2 * sizeof(int64_t));
    memcpy(op.axis[5].at, (int64_t[]){ s->dilation * s->in, 1 }, 2 * sizeof(int64_t));
    memcpy(op.axis[6].at, (int64_t[]){ 1, s->k * s->k }, 2 * sizeof(int64_t));
    int n = 0, number[7];                /* axes of one place are none */
    for (int i = 0; i < 7; i++) { number[i] = n; if (op.axis[i].extent > 1 || op.axis[i].padded) op.axis[n++] = op.axis[i]; else number[i] = -1; }
    for (int i = 0; i < n; i++) if (op.axis[i].window >= 0) op.axis[i].window = number[op.axis[i].window];
    op.naxis = n;
    op.operand[LIB_SRC].at = -(s->pad * s->w + s->pad) * s->in;
    op.operand[LIB_WEIGHTS].known = weights;
    op.operand[LIB_DST].slot = 1;
    op.operand[LIB_ADDEND].slot = 2;     /* one for each channel */
    op.operand[LIB_ADDEND + 1].slot = 3; /* one for each element */
    op.step[0] = (LibStep){ .kind = LIB_mul, .addend = 0 };
    op.step[1] = (LibStep){ .kind = LIB_sub, .addend = 1 };
    op.step[2] = (LibStep){ .kind = LIB_clip, .lo = 0, .hi = 60 };
    return op;
}

static float conv_at(const Shape *s, int64_t ow, const float *x, const float *w, const float *scale, const float *rest, int64_t i, int64_t j, int64_t c)
{
    int64_t per = s->in / s->groups, each = s->out / s->groups;
    double sum = 0;
    for (int64_t a = 0; a < s->k; a++)
        for (int64_t b = 0; b < s->k; b++)
            for (int64_t k = 0; k < per; k++) {
                int64_t h = i * s->stride + a * s->dilation - s->pad, v = j * s->stride + b * s->dilation - s->pad;
                if (h >= 0 && h < s->h && v >= 0 && v < s->w) sum += x[(h * s->w + v) * s->in + c / each * per + k] * w[((c * per + k) * s->k + a) * s->k + b];
            }
    sum = sum * scale[c] - rest[(i * ow + j) * s->out + c];
    return (float)(sum < 0 ? 0 : sum > 60 ? 60 : sum);
}

static void test_convolutions(void **state)
{
    const Setup *setup = *state;
    NEED_LIBRARY(setup);
    static const Shape shape[] = {
        { 14, 14, 32, 48, 3, 1, 1, 1, 1, 0, 1 }, { 14, 14, 32, 48, 3, 1, 1, 1, 1, 0, 5 },   { 15, 13, 16, 32, 3, 2, 1, 1, 1, 0, 4 }, { 9, 12, 16, 16, 5, 1, 2, 1, 1, 0, 9 },
        { 13, 10, 32, 32, 3, 1, 2, 2, 1, 0, 3 }, { 20, 11, 32, 32, 3, 1, 1, 1, 32, 0, 4 }, { 12, 12, 32, 64, 3, 1, 1, 1, 2, 0, 2 },  { 10, 10, 16, 32, 3, 1, 1, 1, 1, 16, 4 },
        { 14, 14, 64, 32, 1, 2, 0, 1, 1, 0, 4 },
    };
    int ran = 0;
    for (size_t n = 0; n < COUNT_OF(shape); n++) {
        const Shape *s = &shape[n];
        int64_t oh = (s->h + 2 * s->pad - (s->k - 1) * s->dilation - 1) / s->stride + 1, ow = (s->w + 2 * s->pad - (s->k - 1) * s->dilation - 1) / s->stride + 1, wide = s->out + s->gap;
        float *x = numbers(s->h * s->w * s->in, 1), *w = numbers(s->out * s->in / s->groups * s->k * s->k, 2), *scale = numbers(s->out, 3), *rest = numbers(oh * ow * s->out, 4);
        float *y[2] = { numbers(oh * ow * wide, 5), numbers(oh * ow * wide, 5) };
        LibOp op = conv_op(s, oh, ow, w);
        LibRun *r;
        RtError e;
        Status st = lib_make(setup->lib, &op, &r, &e);
        if (st) print_message("shape %zu: %s\n", n, e.text);
        assert_true(st == E_OK || st == E_UNSUPPORTED);
        for (int t = 0; t < 2 && !st; t++) {             /* 1 and 3 threads: the very same bits */
            run(setup, r, 4, (float *[]){ x, y[t], scale, rest }, t ? 3 : 1);
            for (int64_t i = 0; i < oh; i++)
                for (int64_t j = 0; j < ow; j++)
                    for (int64_t c = 0; c < wide; c++) {
                        float got = y[t][(i * ow + j) * wide + c], want = c < s->out ? conv_at(s, ow, x, w, scale, rest, i, j, c) : small(5, (i * ow + j) * wide + c);
                        if (got != want) fail_msg("shape %zu, %d threads, %s: [%d,%d,%d] is %g, wanted %g", n, t ? 3 : 1, lib_how(r), (int)i, (int)j, (int)c, (double)got, (double)want);
                    }
        }
        assert_true(st || !memcmp(y[0], y[1], (size_t)(oh * ow * wide) * sizeof(float)));
        ran += !st;
        if (!st) lib_free(r);
        for (int t = 0; t < 2; t++) block_free(y[t]);
        block_free(x); block_free(w); block_free(scale); block_free(rest);
    }
    assert_true(ran > 0);
}

/* ---- products ------------------------------------------------------------------------------------------------------------------------------------ */
/* y [b, m, n] = x [b, m, k] w [k, n], w of each b or one for all; turned: y [b, n, m]. */
typedef struct Product { int64_t b, m, n, k; bool known, each, turned; int parts; } Product;

static LibOp product_op(const Product *p, const float *w)
{
    LibOp op = { .naxis = 4, .parts = p->parts };
    LibAxis none = { .window = -1, .step = 1, .dilation = 1 };
    for (int i = 0; i < 4; i++) op.axis[i] = none;
    op.axis[0].role = p->each ? LIB_both : LIB_row; op.axis[0].extent = p->b;
    op.axis[1].role = LIB_row; op.axis[1].extent = p->m;
    op.axis[2].role = LIB_col; op.axis[2].extent = p->n;
    op.axis[3].role = LIB_sum; op.axis[3].extent = p->k;
    memcpy(op.axis[0].at, (int64_t[]){ p->m * p->k, p->each ? p->k * p->n : 0, p->m * p->n }, 3 * sizeof(int64_t));
    memcpy(op.axis[1].at, (int64_t[]){ p->k, 0, p->turned ? 1 : p->n }, 3 * sizeof(int64_t));
    memcpy(op.axis[2].at, (int64_t[]){ 0, 1, p->turned ? p->m : 1 }, 3 * sizeof(int64_t));
    memcpy(op.axis[3].at, (int64_t[]){ 1, p->n }, 2 * sizeof(int64_t));
    op.operand[LIB_WEIGHTS] = (LibOperand){ .slot = 1, .known = p->known ? w : NULL };
    op.operand[LIB_DST].slot = 2;
    return op;
}

static void test_products(void **state)
{
    const Setup *setup = *state;
    NEED_LIBRARY(setup);
    static const Product product[] = {
        { 1, 64, 96, 48, true, false, false, 1 }, { 1, 100, 96, 48, true, false, false, 4 }, { 3, 17, 40, 31, true, false, false, 8 },  { 4, 32, 64, 16, false, true, false, 4 },
        { 2, 48, 33, 64, false, false, true, 3 }, { 1, 1, 512, 64, true, false, false, 4 },  { 1, 3, 200, 64, false, false, false, 4 }, { 5, 24, 24, 24, true, true, false, 2 },
    };
    for (size_t n = 0; n < COUNT_OF(product); n++) {
        const Product *p = &product[n];
        float *x = numbers(p->b * p->m * p->k, 1), *w = numbers((p->each ? p->b : 1) * p->k * p->n, 2), *y = numbers(p->b * p->m * p->n, 3);
        LibOp op = product_op(p, w);
        LibRun *r;
        RtError e;
        if (lib_make(setup->lib, &op, &r, &e)) fail_msg("product %zu: %s", n, e.text);
        run(setup, r, 3, (float *[]){ x, w, y }, 3);
        for (int64_t b = 0; b < p->b; b++)
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t j = 0; j < p->n; j++) {
                    double sum = 0;
                    for (int64_t k = 0; k < p->k; k++) sum += x[(b * p->m + i) * p->k + k] * w[((p->each ? b : 0) * p->k + k) * p->n + j];
                    float got = y[b * p->m * p->n + (p->turned ? j * p->m + i : i * p->n + j)];
                    if (got != sum) fail_msg("product %zu, %s: [%d,%d,%d] is %g, wanted %g", n, lib_how(r), (int)b, (int)i, (int)j, (double)got, sum);
                }
        lib_free(r);
        block_free(x); block_free(w); block_free(y);
    }
}

/* NaN passes bounds; with leave (finite) the library may lose it, and is asked for all it has. */
static void test_steps(void **state)
{
    const Setup *setup = *state;
    NEED_LIBRARY(setup);
    enum { M = 16, N = 32, K = 8 };
    Product p = { 1, M, N, K, true, false, false, 1 };
    float *x = numbers(M * K, 1), *w = numbers(K * N, 2), *y = numbers(M * N, 3);
    LibOp op = product_op(&p, w);
    LibRun *r;
    RtError e;
    x[3 * K] = NAN;
    op.nstep = 1;
    op.step[0] = (LibStep){ .kind = LIB_clip, .lo = 0, .hi = INFINITY };
    assert_int_equal(lib_make(setup->lib, &op, &r, &e), E_OK);
    run(setup, r, 3, (float *[]){ x, w, y }, 1);
    for (int i = 0; i < M; i++) for (int j = 0; j < N; j++) assert_true(i == 3 ? isnan(y[i * N + j]) : y[i * N + j] >= 0);
    lib_free(r);
    x[3 * K] = 1;
    static const LibStepKind kind[] = { LIB_clip, LIB_tanh, LIB_sigmoid, LIB_gelu };
    for (size_t s = 0; s < COUNT_OF(kind); s++) {
        op.step[0] = (LibStep){ .kind = kind[s], .lo = kind[s] == LIB_clip ? -2 : 0, .hi = kind[s] == LIB_clip ? 3 : 0 };
        op.finite = false;
        if (kind[s] != LIB_clip) {
            assert_int_equal(lib_make(setup->lib, &op, &r, &e), E_UNSUPPORTED);
            assert_non_null(strstr(e.text, "loses NaN"));
        }
        op.finite = true;
        assert_int_equal(lib_make(setup->lib, &op, &r, &e), E_OK);
        run(setup, r, 3, (float *[]){ x, w, y }, 1);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double v = 0;
                for (int k = 0; k < K; k++) v += x[i * K + k] * w[k * N + j];
                double want = kind[s] == LIB_clip ? fmin(fmax(v, -2), 3) : kind[s] == LIB_tanh ? tanh(v) : kind[s] == LIB_sigmoid ? 1 / (1 + exp(-v)) : 0.5 * v * (1 + erf(v * M_SQRT1_2));
                assert_true(fabs(y[i * N + j] - want) <= 1e-5 * (1 + fabs(want)));
            }
        lib_free(r);
    }
    block_free(x); block_free(w); block_free(y);
}

/* ---- models --------------------------------------------------------------------------------------------------------------------------------------- */
static const char chain[] = OPSET(17) "g (float[1,16,H,12] x, float[1,32,H,12] r) => (float[1,32,H,12] y, float[1,H,12,24] z) <float[32,16,3,3] w, float[32] b, float[32,24] v> {\n"
                                      "c = Conv<pads = [1, 1, 1, 1]>(x, w, b)  s = Add(c, r)  y = Relu(s)  t = Transpose<perm = [0, 2, 3, 1]>(y)  z = MatMul(t, v) }";

static OnnxModel *chain_model(Ctx *cx)
{
    static char text[1 << 17];
    char *at = text;
    const char *from = chain;
    static const int count[] = { 32 * 16 * 9, 32, 32 * 24 };
    for (int k = 0; k < 3; k++) {        /* with numbers behind the names */
        const char *end = strstr(from, k == 0 ? " w," : k == 1 ? " b, float" : " v>");
        assert_non_null(end);
        at += sprintf(at, "%.*s %c = {", (int)(end - from), from, "wbv"[k]);
        for (int i = 0; i < count[k]; i++) at += sprintf(at, "%s%g", i ? ", " : "", (double)small((uint64_t)k + 7, i));
        at += sprintf(at, "}");
        from = end + 2;
    }
    strcpy(at, from);
    OnnxModel *m = onnx_new(cx);
    onnx_load(cx, m, "<memory>", text, strlen(text));
    return m;
}

typedef struct Job { OnnxModel *m; int h; float *y, *z; int threads, lib, fits; Program *keep; Status status; char why[200]; } Job;

static void job_body(Ctx *cx, void *arg)
{
    Job *j = arg;
    Arena *a = arena_new(cx);
    Program *p = j->keep ? j->keep : program_new(cx, j->m, &(ProgramOptions){ .fuse = true, .threads = j->threads });
    Tensor in[2], out[2] = { { .data = j->y }, { .data = j->z } };
    tensor_init(cx, &in[0], DT_f32, 4, (int64_t[]){ 1, 16, j->h, 12 });
    tensor_init(cx, &in[1], DT_f32, 4, (int64_t[]){ 1, 32, j->h, 12 });
    size_t bytes[2] = { (size_t)j->h * 12 * 32 * sizeof(float), (size_t)j->h * 12 * 24 * sizeof(float) };
    in[0].data = numbers(16 * j->h * 12, 1);
    in[1].data = numbers(32 * j->h * 12, 2);
    program_run(cx, p, a, in, out, bytes);
    int n;
    const SegmentEvidence *e = program_evidence(cx, p, a, &n);
    j->lib = j->fits = 0;
    for (int i = 0; i < n; i++) for (int k = 0; k < e[i].nkernel; k++) { j->lib += e[i].kernel[k].lib; j->fits += e[i].kernel[k].lib_fits; }
    block_free(in[0].data);
    block_free(in[1].data);
    if (!j->keep) program_free(p);
    arena_free(a);
}

static void job_run(Job *j, const char *library)
{
    Ctx cx;
    ctx_init(&cx);
    cx.opt.lib = library;
    cx.opt.records = "";
    j->status = guard_call(&cx, job_body, j);
    if (j->status) snprintf(j->why, sizeof j->why, "%.190s", cx.text);
}

static void *job_thread(void *arg) { job_run(arg, "all"); return NULL; }

static Job job_new(OnnxModel *m, int h, int threads)
{
    return (Job){ .m = m, .h = h, .threads = threads, .y = numbers(32 * h * 12, 8), .z = numbers(24 * h * 12, 8) };
}

static void job_free(Job *j) { block_free(j->y); block_free(j->z); }

static void same_results(const Job *a, const Job *b)
{
    if (a->status || b->status) fail_msg("%s%s", a->status ? a->why : "", b->status ? b->why : "");
    assert_memory_equal(a->y, b->y, (size_t)a->h * 12 * 32 * sizeof(float));
    assert_memory_equal(a->z, b->z, (size_t)a->h * 12 * 24 * sizeof(float));
}

/* A chain whose height a run gives: by kernels and by the library (whole numbers: the same), with 1 to 3 threads, from several threads at once, after fork. */
static void test_program(void **state)
{
    const Setup *setup = *state;
    Ctx cx;
    ctx_init(&cx);
    OnnxModel *m = chain_model(&cx);
    Job own = job_new(m, 14, 1);
    job_run(&own, "none");
    assert_int_equal(own.status, E_OK);
    assert_int_equal(own.lib, 0);
    assert_true(own.fits > 0);
    for (int threads = 1; threads <= 3; threads++) {
        Job lib = job_new(m, 14, threads);
        job_run(&lib, "all");
        same_results(&own, &lib);
        assert_true(setup->lib ? lib.lib > 0 : lib.lib == 0);
        job_free(&lib);
    }
    enum { JOBS = 4 };
    Program *p = program_new(&cx, m, &(ProgramOptions){ .fuse = true, .threads = 2 });
    Job job[JOBS], alone[JOBS];
    pthread_t thread[JOBS];
    for (int i = 0; i < JOBS; i++) {     /* two sizes, each in two threads */
        alone[i] = job_new(m, 14 + i % 2, 1);
        job_run(&alone[i], "none");
        job[i] = job_new(m, 14 + i % 2, 2);
        job[i].keep = p;
    }
    for (int i = 0; i < JOBS; i++) assert_int_equal(pthread_create(&thread[i], NULL, job_thread, &job[i]), 0);
    for (int i = 0; i < JOBS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < JOBS; i++) same_results(&job[i], &alone[i]);
#if !defined __SANITIZE_THREAD__                         /* it allows no threads in a child of a process with threads */
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        Job child = job_new(m, 14, 2);
        child.keep = p;
        job_run(&child, "all");
        _exit(child.status != E_OK || memcmp(child.y, own.y, 14 * 12 * 32 * sizeof(float)) != 0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
#endif
    for (int i = 0; i < JOBS; i++) { job_free(&job[i]); job_free(&alone[i]); }
    job_free(&own);
    program_free(p);
    onnx_close(m);
}

/* ---- what is not there ------------------------------------------------------------------------------------------------------------------------------ */
static void test_absent(void **state)
{
    (void)state;
    char why[256];
    assert_null(lib_open("/no/such/libdnnl.so", why, sizeof why));
    assert_non_null(strstr(why, "is not there"));
    assert_null(lib_open("libm.so.6", why, sizeof why));             /* it is there, and something else */
    assert_non_null(strstr(why, "another version"));
    lib_close(NULL);
    lib_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_products), cmocka_unit_test(test_steps), cmocka_unit_test(test_program), cmocka_unit_test(test_absent),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
