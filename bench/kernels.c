/* Fused kernels against loops written by hand, one thread: what the printed code costs beside what a person would write.
 *
 * The hand-written texts lie in hand.inc, are written in the kernels' own prelude and compiled by the same builder with the same flags, so only the loops
 * differ. Contenders take turns in one run; medians, and the spread between quartiles. Values are compared before anything is timed.
 *
 *     bench_kernels [NAME...]      add_relu layernorm softmax gelu rbf nbody least; without a name all */
#include "api/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Size { int rank; int64_t dims[3]; } Size;
typedef struct Case {
    const char *name, *model, *hand;    /* hand: function in hand.inc; its buffers are the model's inputs, then its output */
    int64_t rows, cols;                 /* what the hand-written loop is told */
    Size out;
    int nin; Size in[4];
    int runs;
} Case;

#define SQUARE(n, m) { 2, { n, m } }
#define ROW(m) { 1, { m } }
static const Case cases[] = {
    { "add_relu", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, M] x, float[N, M] b) => (float[N, M] y) { a = Add(x, b) y = Relu(a) }", "hand_add_relu",
        1, (int64_t)1 << 27, SQUARE(1, (int64_t)1 << 27), 2, { SQUARE(1, (int64_t)1 << 27), SQUARE(1, (int64_t)1 << 27) }, 9 },
    { "layernorm", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, M] x, float[M] s, float[M] b) => (float[N, M] y) { y = LayerNormalization<axis = -1>(x, s, b) }", "hand_layernorm",
        4096, 1024, SQUARE(4096, 1024), 3, { SQUARE(4096, 1024), ROW(1024), ROW(1024) }, 41 },
    { "softmax", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, M] x) => (float[N, M] y) { y = Softmax<axis = -1>(x) }", "hand_softmax",
        4096, 1024, SQUARE(4096, 1024), 1, { SQUARE(4096, 1024) }, 41 },
    { "gelu", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, M] x, float[M] b, float[N, M] r) => (float[N, M] y) { a = Add(x, b) c = Gelu(a) y = Add(c, r) }", "hand_gelu",
        4096, 1024, SQUARE(4096, 1024), 3, { SQUARE(4096, 1024), ROW(1024), SQUARE(4096, 1024) }, 41 },
    /* sums over pairs: a row for each point, over all others, without the matrix between (unfused it is there: 1 GB) */
    { "rbf", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, 1, 3] x, float[1, M, 3] p) => (float[N] y) <int64[1] last = {-1}> { d = Sub(x, p) q = Mul(d, d) "
        "r = ReduceSum<keepdims = 0>(q, last) n = Neg(r) e = Exp(n) y = ReduceSum<keepdims = 0>(e, last) }", "hand_rbf",
        16384, 16384, ROW(16384), 2, { { 3, { 16384, 1, 3 } }, { 3, { 1, 16384, 3 } } }, 5 },
    { "nbody", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, 1, 3] x, float[1, M, 3] p) => (float[N, 3] y) <int64[1] last = {-1}, int64[1] mid = {1}, float soft = {0.25}> "
        "{ d = Sub(p, x) q = Mul(d, d) r = ReduceSum<keepdims = 1>(q, last) s = Add(r, soft) w = Sqrt(s) u = Mul(w, s) f = Reciprocal(u) t = Mul(d, f) y = ReduceSum<keepdims = 0>(t, mid) }", "hand_nbody",
        4096, 4096, SQUARE(4096, 3), 2, { { 3, { 4096, 1, 3 } }, { 3, { 1, 4096, 3 } } }, 15 },
    { "least", "<ir_version: 10, opset_import: [\"\": 21]> g (float[N, 1, 3] x, float[1, M, 3] p) => (float[N] y) <int64[1] last = {-1}> { d = Sub(x, p) q = Mul(d, d) "
        "r = ReduceSum<keepdims = 0>(q, last) s = Sqrt(r) y = ReduceMin<keepdims = 0>(s, last) }", "hand_least",
        4096, 4096, ROW(4096), 2, { { 3, { 4096, 1, 3 } }, { 3, { 1, 4096, 3 } } }, 31 },
};

static const char hand_text[] =
#include "hand.inc"
;

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void fill(float *p, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) p[i] = (float)((double)(random_word(seed, (uint64_t)i) >> 11) * 0x1p-52 - 1);
}

typedef struct Line { double sec[3][64]; int launches[2]; } Line;     /* fused, unfused, hand */

static void check_equal(Ctx *cx, const Case *c, const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-5f * (1 + fabsf(b[i])))) fail(cx, E_INVALID, "%s: %s: element %lld is %.9g, wanted %.9g", c->name, what, (long long)i, a[i], b[i]);
}

static void run_case(Ctx *cx, void *arg)
{
    const Case *c = arg;
    Arena *a = arena_new(cx);
    OnnxModel *m = onnx_new(cx);
    onnx_load(cx, m, "bench.onnxtxt", c->model, strlen(c->model));
    int64_t n = 1;
    for (int i = 0; i < c->out.rank; i++) n *= c->out.dims[i];
    Tensor in[4], out;
    void *buf[6];
    for (int k = 0; k < c->nin; k++) {
        tensor_init(cx, &in[k], DT_f32, c->in[k].rank, c->in[k].dims);
        int64_t count = tensor_count(&in[k]);
        in[k].data = buf[k] = block_alloc((size_t)count * 4);
        if (!buf[k]) fail(cx, E_NOMEM, "no memory for input %d", k);
        fill(buf[k], count, (uint64_t)k + 1);
    }
    float *y[3];
    for (int k = 0; k < 3; k++) {
        y[k] = k < 1 || n < ((int64_t)1 << 24) ? block_alloc((size_t)n * 4) : y[0];   /* the large case writes one place in turn */
        if (!y[k]) fail(cx, E_NOMEM, "no memory for the output");
        memset(y[k], 0, (size_t)n * 4);
    }
    Program *p[2];
    for (int k = 0; k < 2; k++) p[k] = program_new(cx, m, &(ProgramOptions){ .fuse = k == 0, .threads = 1 });
    Device *device = NULL;
    RtError e = { .launch = -1 };
    Options opt = cx->opt;
    opt.threads = 1;
    if (dev_cpu.open(&device, &opt, &e) != E_OK) fail(cx, e.code, "%s", e.text);
    KernelText text = { .name = c->hand, .cost = 1 };
    const char *at = strstr(hand_text, arena_fmt(a, "void %s(", c->hand)), *end = strstr(at, "\n}\n");
    text.text = arena_fmt(a, "%.*s\n}\n", (int)(end - at), at);
    const Kernel *hand = NULL;
    if (dev_cpu.build(device, gen_c_prelude(a, dev_cpu.isa(device)), 1, &text, &hand, NULL, NULL, &e) != E_OK) fail(cx, e.code, "%s", e.text);
    int64_t hand_arg[2] = { c->rows, c->cols };
    buf[c->nin] = y[2];
    Launch launch = { .kernel = hand, .buf = buf, .arg = hand_arg, .total = c->rows, .grain = c->rows };
    size_t bytes = (size_t)n * 4;
    Line *line = NEW(a, Line);
    for (int r = -2; r < c->runs; r++)
        for (int k = 0; k < 3; k++) {
            Arena *own = arena_new(cx);
            out = (Tensor){ .data = y[k] };
            double t0 = time_now();
            if (k < 2) program_run(cx, p[k], own, in, &out, &bytes);
            else if (dev_cpu.run(device, 1, &launch, 1, NULL, NULL, &e) != E_OK) fail(cx, e.code, "%s", e.text);
            if (r >= 0) line->sec[k][r] = time_now() - t0;
            arena_free(own);
            if (r == -1 && y[1] != y[0] && k == 2) { check_equal(cx, c, "fused", y[0], y[2], n); check_equal(cx, c, "unfused", y[1], y[2], n); }
        }
    for (int k = 0; k < 3; k++) qsort(line->sec[k], (size_t)c->runs, sizeof(double), by_value);
    for (int k = 0; k < 2; k++) {
        int ns;
        const SegmentEvidence *ev = program_evidence(cx, p[k], a, &ns);
        for (int i = 0; i < ns; i++) line->launches[k] += ev[i].launches;
    }
    double f = line->sec[0][c->runs / 2], u = line->sec[1][c->runs / 2], h = line->sec[2][c->runs / 2];
    printf("%-10s %8.3f ms (%d)  %8.3f ms (%d)  %8.3f ms   %5.2f   %5.2f   %4.0f %%\n", c->name, f * 1e3, line->launches[0], u * 1e3, line->launches[1], h * 1e3, f / u, f / h,
        100 * (line->sec[0][c->runs * 3 / 4] - line->sec[0][c->runs / 4]) / f);
    for (int k = 0; k < 2; k++) program_free(p[k]);
    dev_cpu.close(device);
    for (int k = 0; k < c->nin; k++) block_free(buf[k]);
    for (int k = 2; k >= 0; k--) if (k == 0 || y[k] != y[0]) block_free(y[k]);
    onnx_close(m);
    arena_free(a);
}

int main(int argc, char **argv)
{
    int bad = 0;
    printf("%-10s %15s  %15s  %11s   %5s   %5s   %s\n", "", "fused", "unfused", "by hand", "f/u", "f/h", "quartiles of fused");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool want = argc < 2;
        for (int k = 1; k < argc; k++) want |= !strcmp(argv[k], cases[i].name);
        if (!want) continue;
        Ctx cx;
        ctx_init(&cx);
        if (guard_call(&cx, run_case, (void *)&cases[i]) != E_OK) { fprintf(stderr, "bench: %s\n", cx.text); bad = 1; }
    }
    return bad;
}
