/* Ahead of time against just in time: `bench_aot CASE PACKAGE [RIVAL.so]` runs a model by a program, by a package and by another compiler's library, in turns
 * in one process and on one thread, and prints the medians. CASE is a folder with model.onnx and test_data_set_0. RIVAL.so has
 * void bench_call(void **in, void **out). The package's results must be the program's, bit for bit; the rival's difference is printed. */
#include "api/api.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 201, WARM_TURNS = 3 };
typedef void (*RivalCall)(void **in, void **out);

static int by_time(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double median_of(int n, double *v)
{
    qsort(v, (size_t)n, sizeof *v, by_time);
    return v[n / 2];
}

typedef struct BenchJob { const char *dir, *package, *rival; Arena *a; } BenchJob;

static void bench_guarded(Ctx *cx, void *arg)
{
    BenchJob *j = arg;
    Arena *a = j->a;
    OnnxModel *m = onnx_new(cx);
    onnx_load(cx, m, path_join(a, j->dir, "model.onnx"), NULL, 0);
    int nin, nout = m->graph->nout;
    model_inputs(a, m, &nin);
    Tensor *in = NEWS(a, Tensor, nin + 1), *out[3];
    void **rival_in = NEWS(a, void *, nin + 1), **rival_out = NEWS(a, void *, nout + 1);
    size_t *bytes = NEWS(a, size_t, nout + 1);
    for (int i = 0; i < nin; i++) {
        const char *name;
        tensorpb_read(cx, a, path_join(a, j->dir, arena_fmt(a, "test_data_set_0/input_%d.pb", i)), &in[i], &name);
        rival_in[i] = in[i].data;
    }
    ProgramOptions po = { .fuse = true, .threads = 1 };
    Program *p = program_new(cx, m, &po);
    Package *k = package_open(cx, j->package, 1);
    RivalCall rival = NULL;
    if (j->rival) {
        void *h = dlopen(j->rival, RTLD_NOW), *sym = h ? dlsym(h, "bench_call") : NULL;
        if (!sym) fail(cx, E_INVALID, "%s: %s", j->rival, dlerror());
        memcpy(&rival, &sym, sizeof sym);
    }
    for (int s = 0; s < 3; s++) out[s] = NEWS(a, Tensor, nout + 1);
    program_run(cx, p, a, in, out[0], NULL);
    int nseg;
    EvidenceSum sum = evidence_sum(a, 1, program_evidence(cx, p, a, &nseg));
    for (int i = 0; i < nout; i++) {
        bytes[i] = tensor_bytes(&out[0][i]) * 4 + 64;
        for (int s = 1; s < 3; s++) out[s][i].data = arena_alloc(a, bytes[i]);
        rival_out[i] = out[2][i].data;
    }
    double *t[3], spent = 0;
    for (int s = 0; s < 3; s++) t[s] = NEWS(a, double, MOST_TURNS);
    int n = 0;
    for (int r = -WARM_TURNS; n < MOST_TURNS && (spent < 6 || n < 5); r++) {
        Arena *own = arena_new(cx);
        double at[4];
        Tensor *again = NEWS(own, Tensor, nout + 1), *packed = NEWS(own, Tensor, nout + 1);
        for (int i = 0; i < nout; i++) { again[i].data = out[0][i].data; packed[i].data = out[1][i].data; }
        at[0] = time_now();
        program_run(cx, p, own, in, again, bytes);
        at[1] = time_now();
        package_run(cx, k, own, in, packed, bytes);
        at[2] = time_now();
        if (rival) rival(rival_in, rival_out);
        at[3] = time_now();
        arena_free(own);
        if (r < 0) continue;
        for (int s = 0; s < 3; s++) t[s][n] = at[s + 1] - at[s];
        spent += at[3] - at[0];
        n++;
    }
    double worst = 0;
    bool same = true;
    for (int i = 0; i < nout; i++) {
        same = same && !memcmp(out[0][i].data, out[1][i].data, tensor_bytes(&out[0][i]));
        for (int64_t e = 0; rival && out[0][i].dt == DT_f32 && e < tensor_count(&out[0][i]); e++) {
            double d = fabs((double)((float *)out[0][i].data)[e] - (double)((float *)rival_out[i])[e]);
            if (!(d <= worst)) worst = d;
        }
    }
    double jit = median_of(n, t[0]), ahead = median_of(n, t[1]), other = median_of(n, t[2]);
    printf("just in time %.3f ms, ahead of time %.3f ms (%.3f), the same bits: %s, temporary memory of a run %lld B", jit * 1e3, ahead * 1e3, ahead / jit, same ? "yes" : "NO", (long long)sum.temp_peak);
    if (rival) printf("; rival %.3f ms, %.1f times as long; differs by %.2g at most", other * 1e3, other / ahead, worst);
    printf("; %d turns\n", n);
    package_close(k);
    program_free(p);
    onnx_close(m);
}

int main(int argc, char **argv)
{
    Ctx cx;
    ctx_init(&cx);
    if (argc < 3) { fprintf(stderr, "usage: bench_aot CASE PACKAGE [RIVAL.so]\n"); return 2; }
    Arena *a = arena_new(&cx);
    BenchJob j = { argv[1], argv[2], argc > 3 ? argv[3] : NULL, a };
    Status st = guard_call(&cx, bench_guarded, &j);
    if (st != E_OK) fprintf(stderr, "bench_aot: %s\n", cx.text);
    arena_free(a);
    return st != E_OK;
}
