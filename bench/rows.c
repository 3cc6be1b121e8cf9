/* Rows against a plain copy of as many bytes: softmax, LayerNorm, RMSNorm, cross-entropy, bias + GELU + residual, at 64 to 65,536 columns.
 *
 * A kernel that reads and writes everything once can be no faster than memcpy of as many bytes (half of them read, half written). Matrices lie past the last cache.
 * The longest row here, with its result, fits a second cache of 1 MB. One thread; the kernel and the copy take turns; medians, and the ratio of the best times.
 *
 *     bench_rows [NAME|COLUMNS]...      without any all */
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 15, ELEMENTS = 1 << 24 };          /* of a matrix */

typedef struct RowOp { const char *name, *model; int nin; char form[4]; bool whole; double moved; } RowOp;
/* form: M a matrix, V a vector of columns, L a label for each row; whole: the result is a matrix; moved: elements for each of the matrix */
static const RowOp ops[] = {
    { "softmax", "(float[N, M] x) => (float[N, M] y) { y = Softmax<axis = -1>(x) }", 1, "M", true, 2 },
    { "layernorm", "(float[N, M] x, float[M] s, float[M] b) => (float[N, M] y) { y = LayerNormalization<axis = -1>(x, s, b) }", 3, "MVV", true, 2 },
    { "rmsnorm", "(float[N, M] x, float[M] s) => (float[N, M] y) <float two = {2}, float eps = {1e-5}, int64[1] last = {-1}> "
        "{ q = Pow(x, two) m = ReduceMean(q, last) e = Add(m, eps) r = Sqrt(e) d = Div(x, r) y = Mul(d, s) }", 2, "MV", true, 2 },
    { "crossentropy", "(float[N, M] x, int64[N] t) => (float[N] y) { y = SoftmaxCrossEntropyLoss<reduction = \"none\">(x, t) }", 2, "ML", false, 1 },
    { "biasgelu", "(float[N, M] x, float[M] b, float[N, M] r) => (float[N, M] y) { a = Add(x, b) c = Gelu(a) y = Add(c, r) }", 3, "MVM", true, 3 },
};
static const int64_t columns[] = { 64, 128, 256, 1024, 4096, 16384, 65536 };

typedef struct Job { const RowOp *op; int64_t cols; } Job;

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void *block_of(Ctx *cx, size_t n)
{
    void *p = NULL;
    RtError e = { .launch = -1 };
    if (dev_cpu.alloc(NULL, n, &p, &e) != E_OK) fail(cx, e.code, "%s", e.text);      /* on large pages, as results of a program lie */
    return p;
}

static void run_job(Ctx *cx, void *arg)
{
    const Job *job = arg;
    const RowOp *op = job->op;
    Arena *a = arena_new(cx);
    OnnxModel *m = onnx_new(cx);
    const char *text = arena_fmt(a, "<ir_version: 10, opset_import: [\"\": 21]> g %s", op->model);
    onnx_load(cx, m, "rows.onnxtxt", text, strlen(text));
    int64_t rows = ELEMENTS / job->cols, dims[2] = { rows, job->cols };
    Tensor in[3], out = { 0 };
    for (int k = 0; k < op->nin; k++) {
        bool matrix = op->form[k] == 'M', labels = op->form[k] == 'L';
        int64_t n = matrix ? ELEMENTS : labels ? rows : job->cols;
        tensor_init(cx, &in[k], labels ? DT_i64 : DT_f32, matrix ? 2 : 1, labels ? &dims[0] : matrix ? dims : &dims[1]);
        in[k].data = block_of(cx, (size_t)n * (labels ? 8 : 4));
        for (int64_t i = 0; i < n; i++) {
            uint64_t r = random_word((uint64_t)k + 1, (uint64_t)i);
            if (labels) ((int64_t *)in[k].data)[i] = (int64_t)(r % (uint64_t)job->cols);
            else ((float *)in[k].data)[i] = (float)((double)(r >> 11) * 0x1p-51 - 2);
        }
    }
    size_t bytes = (size_t)(op->whole ? ELEMENTS : rows) * 4, moved = (size_t)(op->moved * ELEMENTS * 4 / 2);
    char *y = block_of(cx, bytes), *from = block_of(cx, moved), *to = block_of(cx, moved);
    memset(y, 0, bytes); memset(from, 1, moved); memset(to, 0, moved);
    Program *p = program_new(cx, m, &(ProgramOptions){ .fuse = true, .threads = 1 });
    double sec[2][RUNS];
    for (int r = -2; r < RUNS; r++) {
        Arena *own = arena_new(cx);
        out = (Tensor){ .data = y };
        double t0 = time_now();
        program_run(cx, p, own, in, &out, &bytes);
        double t1 = time_now();
        memcpy(to, from, moved);
        __asm__ volatile("" : : "r"(to) : "memory");
        double t2 = time_now();
        if (r >= 0) { sec[0][r] = t1 - t0; sec[1][r] = t2 - t1; }
        arena_free(own);
    }
    for (int k = 0; k < 2; k++) qsort(sec[k], RUNS, sizeof(double), by_value);
    int ns, launches = 0;
    const SegmentEvidence *ev = program_evidence(cx, p, a, &ns);
    for (int i = 0; i < ns; i++) launches += ev[i].launches;
    double f = sec[0][RUNS / 2], c = sec[1][RUNS / 2];
    printf("%-13s %6lld %2d %9.3f ms %9.3f ms %6.2f %6.2f %8.1f GB/s\n", op->name, (long long)job->cols, launches, f * 1e3, c * 1e3, f / c, sec[0][0] / sec[1][0], op->moved * ELEMENTS * 4 / f / 1e9);
    fflush(stdout);
    program_free(p);
    for (int k = 0; k < op->nin; k++) dev_cpu.release(NULL, in[k].data);
    dev_cpu.release(NULL, y); dev_cpu.release(NULL, from); dev_cpu.release(NULL, to);
    onnx_close(m);
    arena_free(a);
}

int main(int argc, char **argv)
{
    int bad = 0;
    printf("%-13s %6s %2s %12s %12s %6s %6s\n", "", "cols", "k", "kernel", "copy", "ratio", "best");
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        for (size_t j = 0; j < COUNT_OF(columns); j++) {
            bool op = true, size = true;            /* until one is named */
            for (int k = 1; k < argc; k++) { if (atoll(argv[k])) size = false; else op = false; }
            for (int k = 1; k < argc; k++) { size |= atoll(argv[k]) == columns[j]; op |= !strcmp(argv[k], ops[i].name); }
            if (!op || !size) continue;
            Ctx cx;
            ctx_init(&cx);
            if (guard_call(&cx, run_job, &(Job){ &ops[i], columns[j] }) != E_OK) { fprintf(stderr, "bench: %s\n", cx.text); bad = 1; }
        }
    return bad;
}
