/* Small graphs of primitives, made with the builders, as programs, fused and not, against the reference interpreter. */
#ifndef SN_TEST_GRAPHS_H
#define SN_TEST_GRAPHS_H
#include "test.h"
#include "api/api.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Shared { Ctx cx; Arena *arena; Target target; char cache[64]; } Shared;
typedef struct Bench { Shared *dev; Ctx *cx; Arena *a; Graph *g; Tensor in[16]; int nin; double tolerance; } Bench;

static void shared_open(Ctx *cx, void *arg)
{
    Shared *d = arg;
    d->arena = arena_new(cx);
    cx->opt.cache = d->cache;
    cx->opt.poison = 1;
    target_open(cx, d->arena, &cx->opt, &d->target);
}

static int open_all(void **state)
{
    Shared *d = calloc(1, sizeof *d);
    ctx_init(&d->cx);
    strcpy(d->cache, "/tmp/sinter-test-XXXXXX");
    if (!mkdtemp(d->cache) || guard_call(&d->cx, shared_open, d) != E_OK) { fprintf(stderr, "%s\n", d->cx.text); return 1; }
    *state = d;
    return 0;
}

static int close_all(void **state)
{
    Shared *d = *state;
    char line[96];
    target_close(&d->target);
    arena_free(d->arena);
    snprintf(line, sizeof line, "rm -rf '%s'", d->cache);
    int st = system(line);
    free(d);
    return st;
}

/* ---- a graph with its inputs ------------------------------------------------------------------------------------------ */
static Node *input_of(Bench *b, DType dt, int rank, const int64_t *dims, const char *const *sym)
{
    Tensor *t = &b->in[b->nin], *shape = NEW(b->a, Tensor);
    int64_t declared[MAX_RANK];
    *t = *tensor_new(b->a, b->cx, dt, rank, dims);
    uint64_t seed = 77 + (uint64_t)b->nin;
    for (int64_t j = 0; j < tensor_count(t); j++) {
        double v = (double)((random_word(seed, (uint64_t)j) >> 11) % 4001) / 1000 - 2;
        scalar_store(dt, tensor_at(t, j), scalar_cast(dt, DT_f64, (Scalar){ .f = dtype_is_float(dt) ? v : v * 4 }, false));
    }
    *shape = *t;
    shape->data = NULL;
    for (int k = 0; k < rank; k++) declared[k] = sym && sym[k] ? -1 : dims[k];
    return graph_input(b->g, arena_fmt(b->a, "x%d", b->nin++), dt, rank, declared, sym, shape);
}

#define DIMS(...) (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / 8), (int64_t[]){ __VA_ARGS__ }
static Node *input(Bench *b, DType dt, int rank, const int64_t *dims) { return input_of(b, dt, rank, dims, NULL); }
static void output(Bench *b, Node *n) { graph_output(b->g, arena_fmt(b->a, "y%d", b->g->output.n), n); }

static void compare(Bench *b, const Tensor *got, const Tensor *want, const char *mode, int out)
{
    assert_int_equal(got->dt, want->dt);
    for (int64_t j = 0; j < tensor_count(want); j++) {
        Scalar x = scalar_load(got->dt, tensor_at(got, j)), y = scalar_load(want->dt, tensor_at(want, j));
        bool flt = dtype_is_float(got->dt);
        bool ok = !flt ? x.i == y.i : isnan(y.f) ? isnan(x.f) : x.f == y.f || (isfinite(y.f) && fabs(x.f - y.f) <= b->tolerance * fmax(1, fabs(y.f)));
        if (ok) continue;
        if (flt) fail_msg("output %d, %s: element %lld is %.9g, the interpreter says %.9g", out, mode, (long long)j, x.f, y.f);
        fail_msg("output %d, %s: element %lld is %lld, the interpreter says %lld", out, mode, (long long)j, (long long)x.i, (long long)y.i);
    }
}

static int run(Bench *b, bool fuse, const Tensor *want)
{
    Segment *s = segment_new(b->cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = fuse });
    int64_t *syms = NEWS(b->a, int64_t, b->g->sym.n + 1);
    const char *why = "";
    int kernels = segment_kernels(s), n = b->g->output.n;
    assert_true(segment_serves(b->cx, b->a, s, b->in, syms, &why));
    Tensor *got = NEWS(b->a, Tensor, n + 1);
    segment_run(b->cx, b->a, s, b->in, syms, got, NULL, NULL);
    for (int i = 0; i < n; i++) compare(b, &got[i], &want[i], fuse ? "fused" : "unfused", i);
    segment_free(s);
    return kernels;
}

typedef struct Item { Bench *b; void (*build)(Bench *b); int kernels; } Item;

static void run_item(Ctx *cx, void *arg)
{
    Item *it = arg;
    Bench *b = it->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    it->build(b);
    graph_check(cx, b->g);
    Tensor *want = NEWS(b->a, Tensor, b->g->output.n + 1);
    interp_segment(cx, b->a, b->g, b->in, want);
    run(b, false, want);
    int n = run(b, true, want);
    if (it->kernels && n != it->kernels) fail_msg("%d kernels, wanted %d", n, it->kernels);
    arena_free(b->a);
}

/* kernels: of the fused program; 0: any number */
__attribute__((unused)) static void check(void **state, void (*build)(Bench *b), double tolerance, int kernels)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx, .tolerance = tolerance };
    Item it = { &b, build, kernels };
    if (guard_call(&d->cx, run_item, &it) != E_OK) fail_msg("%s", d->cx.text);
}

/* Each operator of the model has an origin of its own: the unfused program keeps them apart. */
static void next(Bench *b) { graph_origin(b->g, arena_fmt(b->a, "n%d", b->g->origin.n), "Op", ""); }

/* What is read of a state of d x e numbers by q, k, v (and f: it keeps the sigmoid of f; or NULL), against a loop in double. */
__attribute__((unused)) static void check_state(Arena *a, int steps, int nd, int ne, const float *q, const float *k, const float *v, const float *f, const float *y)
{
    double *c = NEWS(a, double, nd * ne);
    for (int t = 0; t < steps; t++)
        for (int e = 0; e < ne; e++) {
            double want = 0, size = 0;
            for (int d = 0; d < nd; d++) {
                const double keep = f ? 1 / (1 + exp(-(double)f[t * nd + d])) : 1;
                c[d * ne + e] = keep * c[d * ne + e] + (double)k[t * nd + d] * (double)v[t * ne + e];
                want += (double)q[t * nd + d] * c[d * ne + e];
                size += fabs((double)q[t * nd + d] * c[d * ne + e]);
            }
            if (fabs((double)y[t * ne + e] - want) > 4e-6 * (1 + size)) fail_msg("step %d, place %d: %.9g, wanted %.9g", t, e, (double)y[t * ne + e], want);
        }
}

/* What a random graph is made of: each draw is the next word of the seed. A rank of 1 to 3 with its sizes, some of which are symbols (sym: their names, or NULL). */
static uint64_t seed_now;
__attribute__((unused)) static uint64_t seed_draw(uint64_t *at, uint64_t n) { return random_word(seed_now, (*at)++) % n; }
__attribute__((unused)) static int draw_sizes(Bench *b, uint64_t *at, int *axis, int64_t dims[3], const char *sym[3])
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 16, 17, 33, 64, 100 };
    const int rank = 1 + (int)seed_draw(at, 3);
    *axis = (int)seed_draw(at, (uint64_t)rank);
    for (int k = 0; k < rank; k++) { dims[k] = sizes[seed_draw(at, COUNT_OF(sizes))]; sym[k] = seed_draw(at, 3) == 0 ? arena_fmt(b->a, "n%d", k) : NULL; }
    return rank;
}
#endif
