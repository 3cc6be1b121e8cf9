/* Does the learned model of cost pay? Tuning of held kernels with it, against four times as many measurements without it.
 *
 * Kernels of many kinds and sizes are tuned: from the list of most of them an even selection of schedules is measured, and the model learns from these. Each of
 * ten others, of which it has seen nothing, is then tuned twice by the search that `sinter tune` uses: N schedules measured in the order of the model (fitted again
 * to those made so far), and 4 N without it, in the order of the analytic model and then by evolution. In the end both results and the kernel's own schedule
 * take turns, so that luck in a search's measurements counts for nothing. Reached: no slower than 1.02 times the other. One thread.
 *
 *     bench_learn [--build] [N]     N: 12 unless given; --build: only compiles what will be needed, so that measuring need not */
#include "api/api.h"
#include "api/segment.h"
#include "tune/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 11, LAST_TURNS = 41, TAUGHT = 64, HELD_EACH = 3, HELD = 10, REFIT_EACH = 3, TIMES = 4 };
static const double reached = 1.02, gain_needed = 0.03, least_seconds = 1.5e-3;      /* a turn runs a program so often that it takes this long */

typedef struct Bench { const char *name, *model, *in; } Bench;   /* in: sizes of the inputs, all float32 */
#define MATMUL(name, m, k, n) { name " " #m " x " #k " x " #n, "(float[" #m "," #k "] x, float[" #k "," #n "] w, float[" #n "] b) => (float[" #m "," #n "] y) { a = MatMul(x, w) c = Add(a, b) y = Relu(c) }", #m "," #k " " #k "," #n " " #n }
#define CONV(name, h, in, out, kernel, pad, stride, group, per) { name " " #h "x" #h " " #in "->" #out, "(float[1," #in "," #h "," #h "] x, float[" #out "," #per "," #kernel "," #kernel "] w) => (float[1," #out ",P,Q] y)" \
    " { a = Conv<kernel_shape = [" #kernel "," #kernel "], pads = [" #pad "," #pad "," #pad "," #pad "], strides = [" #stride "," #stride "], group = " #group ">(x, w) y = Relu(a) }", "1," #in "," #h "," #h " " #out "," #per "," #kernel "," #kernel }
#define ROWS(name, r, c, body) { name " " #r " x " #c, "(float[" #r "," #c "] x) => (float[A,B] y) { " body " }", #r "," #c }
/* Every third is held out. */
static const Bench benches[] = {
    MATMUL("product", 64, 64, 64), MATMUL("product", 128, 256, 100), MATMUL("product", 100, 300, 200),
    CONV("conv 3x3", 28, 32, 64, 3, 1, 1, 1, 32), CONV("conv 1x1", 56, 16, 64, 1, 0, 1, 1, 16), CONV("conv 3x3", 14, 64, 96, 3, 1, 1, 1, 64),
    ROWS("softmax", 512, 1000, "y = Softmax<axis = -1>(x)"), ROWS("log-softmax", 4096, 10, "y = LogSoftmax<axis = -1>(x)"), ROWS("softmax", 2000, 77, "y = Softmax<axis = -1>(x)"),
    ROWS("gelu", 300, 1000, "y = Gelu(x)"), ROWS("tanh, exp", 500, 500, "a = Tanh(x) b = Exp(a) y = Mul(b, x)"), ROWS("sigmoid, log", 260, 1000, "a = Sigmoid(x) b = Log(a) y = Add(b, x)"),
    MATMUL("product", 37, 500, 45), MATMUL("product", 1, 1024, 1000), MATMUL("product", 3, 768, 768),
    CONV("depthwise 3x3", 56, 32, 32, 3, 1, 1, 32, 1), CONV("conv 5x5", 28, 16, 24, 5, 2, 1, 1, 16), CONV("depthwise 5x5", 28, 96, 96, 5, 2, 1, 96, 1),
    ROWS("columns' sum", 700, 300, "y = ReduceSum<keepdims = 1>(x)"), ROWS("rows' max", 300, 800, "y = ReduceMax<axes = [1]>(x)"), ROWS("columns' max", 600, 500, "y = ReduceMax<axes = [0]>(x)"),
    { "scores 8 x 96 x 64 x 96", "(float[8,96,64] q, float[8,64,96] k, float[96,96] m) => (float[8,96,96] y) { a = MatMul(q, k) y = Add(a, m) }", "8,96,64 8,64,96 96,96" },
    { "weighted 8 x 64 x 80 x 64", "(float[8,64,80] q, float[8,80,64] k) => (float[8,64,64] y) { y = MatMul(q, k) }", "8,64,80 8,80,64" },
    { "scores 12 x 64 x 48 x 64", "(float[12,64,48] q, float[12,48,64] k, float[64,64] m) => (float[12,64,64] y) { a = MatMul(q, k) y = Add(a, m) }", "12,64,48 12,48,64 64,64" },
    CONV("conv 3x3/2", 56, 16, 32, 3, 1, 2, 1, 16), CONV("conv 7x7/2", 64, 3, 16, 7, 3, 2, 1, 3), CONV("conv 3x3/2", 64, 3, 32, 3, 1, 2, 1, 3),
    { "max pool 3x3 56x56x32", "(float[1,32,56,56] x) => (float[1,32,28,28] y) { y = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1], strides = [2,2]>(x) }", "1,32,56,56" },
    { "global mean 1x256x28x28", "(float[1,256,28,28] x) => (float[1,256,1,1] y) { y = GlobalAveragePool(x) }", "1,256,28,28" },
    { "mean pool 2x2 64x64x24", "(float[1,24,64,64] x) => (float[1,24,32,32] y) { y = AveragePool<kernel_shape = [2,2], strides = [2,2]>(x) }", "1,24,64,64" },
    MATMUL("product", 196, 64, 64), MATMUL("product", 50, 128, 512), CONV("conv 1x1", 14, 96, 160, 1, 0, 1, 1, 96),
};

typedef struct Tuned { const Bench *b; OnnxModel *m; Tensor in[3]; Program *own; const char *structure; SchedSearch *search; int runs; } Tuned;
typedef struct Learn { Ctx *cx; Arena *a; bool build; int n; VEC(Example) example; Fitting *fitting; } Learn;

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double middle(int n, double *v)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

static void tensors_of(Learn *l, Tuned *t)
{
    int n = 0;
    for (const char *p = t->b->in; *p; n++) {
        int64_t dims[MAX_RANK];
        int rank = 0;
        char *end;
        do { dims[rank++] = strtoll(p, &end, 10); p = end + 1; } while (*end == ',');
        t->in[n] = *tensor_new(l->a, l->cx, DT_f32, rank, dims);
        for (int64_t i = 0; i < tensor_count(&t->in[n]); i++) ((float *)t->in[n].data)[i] = (float)((double)(random_word((uint64_t)n + 1, (uint64_t)i) >> 11) * 0x1p-52 - 1);
        if (!*end) break;
    }
}

static Program *program_of(Learn *l, const Tuned *t, const Sched *s)
{
    ProgramOptions o = { .fuse = true, .plain = true, .threads = 1 };
    if (s) { o.force_kernel = t->structure; o.force = *s; }
    Program *p = program_new(l->cx, t->m, &o);
    program_prepare(l->cx, p, t->in);
    return p;
}

static double turn(Learn *l, const Tuned *t, Program *p)
{
    RunStats st;
    program_profile(l->cx, p, t->in, t->runs, &st);
    return st.device_s;
}

/* The kernel of the model that takes longest of those that can be tuned. */
static void tuned_open_bench(Learn *l, Tuned *t)
{
    RunStats st;
    const char *text = arena_fmt(l->a, "<ir_version: 10, opset_import: [\"\": %d]> g %s", strstr(t->b->model, "Gelu") ? 20 : 11, t->b->model);
    t->m = onnx_new(l->cx);
    onnx_load(l->cx, t->m, t->b->name, text, strlen(text));
    tensors_of(l, t);
    t->own = program_of(l, t, NULL);
    program_profile(l->cx, t->own, t->in, 5, &st);
    t->runs = st.device_s > 0 && st.device_s < least_seconds ? (int)(least_seconds / st.device_s) + 1 : 1;
    int nseg;
    const SegmentEvidence *e = program_evidence(l->cx, t->own, l->a, &nseg);
    const KernelEvidence *most = NULL;
    for (int i = 0; i < e[0].nkernel; i++) {
        const KernelEvidence *k = &e[0].kernel[i];
        if (k->loops && !k->once && !k->packs && (!most || k->seconds > most->seconds)) most = k;
    }
    if (!most) fail(l->cx, E_INVALID, "%s: there is no kernel to tune", t->b->name);
    const Target *g = program_target_of(t->own);
    t->structure = most->structure;
    t->search = search_new(l->cx, l->a, most->loops, g->dialect, g->isa, g->vectors);
}

/* In turns with the kernel's own. */
static double ratio_of(Learn *l, const Tuned *t, Program *p)
{
    double x[2][TURNS];
    for (int i = 0; i < TURNS; i++) {
        x[i & 1][i] = turn(l, t, i & 1 ? p : t->own);
        x[!(i & 1)][i] = turn(l, t, i & 1 ? t->own : p);
    }
    return middle(TURNS, x[1]) / middle(TURNS, x[0]);
}

typedef struct Found { Sched sched; double ratio; } Found;

/* Measures a schedule; one that is faster than the best by what `sinter tune` asks for is measured again, and the worse of both counts. */
static void measured(Learn *l, const Tuned *t, SchedSearch *s, int at, Found *best)
{
    const Contender *c = &s->list.at[at];
    Program *p = program_of(l, t, &c->sched);
    double ratio = l->build ? 1 : ratio_of(l, t, p), least = 1 - gain_needed, again = 0;
    if (best && best->ratio < 1) least = best->ratio;
    if (best && ratio < least && (again = ratio_of(l, t, p)) > ratio) ratio = again;
    if (best && ratio < least) *best = (Found){ c->sched, ratio };
    program_free(p);
    search_tell(s, at, ratio);
}

static void learn_from(Learn *l, const Tuned *t, const SchedSearch *s, int at)
{
    Example e = { .kernel = t->b->name, .own = s->features, .it = s->list.at[at].features, .gain = example_gain(s->list.at[at].ratio) };
    vec_push(l->a, &l->example, e);
}

static Found tune_with(Learn *l, const Tuned *t, SchedSearch *s, int n, bool model)
{
    CostModel *m = model ? model_new(l->a) : NULL;
    int known = l->example.n;
    Found best = { .ratio = 1 };
    for (int i = 0; i < n; i++) {
        if (m && i % REFIT_EACH == 0 && !model_fit(m, l->fitting, l->example.n, l->example.at, t->b->name)) m = NULL;
        int at = search_next(s, m);
        if (at < 0) break;
        measured(l, t, s, at, &best);
        if (model) learn_from(l, t, s, at);
    }
    l->example.n = known;                /* the next held kernel has seen nothing of this one */
    return best;
}

static void learn_guarded(Ctx *cx, void *arg)
{
    Learn *l = arg;
    enum { N = COUNT_OF(benches) };
    Tuned *t = NEWS(l->a, Tuned, N);
    l->cx = cx;
    l->fitting = fitting_new(l->a);
    for (int i = 0; i < N; i++) {
        t[i].b = &benches[i];
        tuned_open_bench(l, &t[i]);
        if (i % HELD_EACH == HELD_EACH - 1) continue;
        SchedSearch *s = t[i].search;
        int n = s->list.n, take = n < TAUGHT ? n : TAUGHT;
        for (int j = 0; j < take; j++) { int at = (int)((int64_t)j * n / take); measured(l, &t[i], s, at, NULL); learn_from(l, &t[i], s, at); }
        fprintf(stderr, "\r%-32s %4d schedules measured", benches[i].name, l->example.n);
    }
    fprintf(stderr, "\r%60s\r", "");
    if (!l->build) printf("the model has learnt from %d schedules of %d kernels; times are parts of the own schedule's\n%-28s %9s %12s %12s %12s\n", l->example.n, N - N / HELD_EACH, "held kernel", "own ms",
        arena_fmt(l->a, "model, %d", l->n), arena_fmt(l->a, "without, %d", TIMES * l->n), "model/without");
    int good = 0, held = 0;
    for (int i = HELD_EACH - 1; i < N && held < HELD; i += HELD_EACH, held++) {
        for (int j = 0; l->build && j < TIMES * l->n && j < t[i].search->list.n; j++) measured(l, &t[i], t[i].search, j, NULL);
        if (l->build) continue;
        SchedSearch *again = search_new(cx, l->a, t[i].search->own, t[i].search->dialect, t[i].search->isa, t[i].search->vectors);
        Found with = tune_with(l, &t[i], again, l->n, true), without = tune_with(l, &t[i], t[i].search, TIMES * l->n, false);
        double x[3][LAST_TURNS];
        Program *p[3] = { t[i].own, program_of(l, &t[i], &with.sched), program_of(l, &t[i], &without.sched) };
        for (int r = 0; r < LAST_TURNS; r++) for (int k = 0; k < 3; k++) x[(k + r) % 3][r] = turn(l, &t[i], p[(k + r) % 3]);
        double own = middle(LAST_TURNS, x[0]), a = middle(LAST_TURNS, x[1]), b = middle(LAST_TURNS, x[2]);
        bool ok = a <= reached * b;
        good += ok;
        printf("%-28s %9.4f %12.3f %12.3f %12.3f %s  %s | %s\n", t[i].b->name, own * 1e3, a / own, b / own, a / b, ok ? "reached" : "not reached", sched_text(l->a, &with.sched), sched_text(l->a, &without.sched));
        fflush(stdout);
        program_free(p[1]);
        program_free(p[2]);
    }
    if (!l->build) printf("with the model, %d measurements reach what %d reach without it on %d of %d held kernels\n", l->n, TIMES * l->n, good, held);
    for (int i = 0; i < N; i++) { program_free(t[i].own); onnx_close(t[i].m); }
}

int main(int argc, char **argv)
{
    Ctx cx;
    Learn l = { .n = 12 };
    ctx_init(&cx);
    for (int i = 1; i < argc; i++) if (!strcmp(argv[i], "--build")) l.build = true; else if (atoi(argv[i]) > 0) l.n = atoi(argv[i]);
    l.a = arena_new(&cx);
    Status st = guard_call(&cx, learn_guarded, &l);
    if (st) fprintf(stderr, "bench_learn: %s\n", cx.text);
    arena_free(l.a);
    return st != E_OK;
}
