/* Rows: short ones several side by side, ones past the caches stored around them, what a reduction alone needs left to it, gathers below what they pick from. */
#include "graphs.h"
#include "api/segment.h"
#include <float.h>

/* Lengths around the lanes and numbers of rows that are no multiple of a tile; a result for each row beside the results of its elements. */
static int64_t row_count, row_length;
static void short_rows_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(row_count, row_length)), *c = input(b, DT_f32, DIMS(row_length));
    next(b);
    Node *y = g2(g, OP_add, x, c);
    next(b);
    Node *mean = g_mean(g, y, 2, true), *d = g2(g, OP_sub, y, mean), *var = g_mean(g, g2(g, OP_mul, d, d), 2, true);
    Node *n = g2(g, OP_div, d, g1(g, OP_sqrt, g2(g, OP_add, var, g_scalar(g, DT_f32, 1e-5))));
    output(b, n);
    output(b, mean);
    next(b);
    output(b, g_softmax(g, n, 2, false));
}

static void short_rows(void **state)
{
    static const int64_t lengths[] = { 2, 5, 15, 16, 17, 64, 77, 128, 129 };
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (row_count = 32; row_count < 36; row_count++) {
            row_length = lengths[i];
            check(state, short_rows_graph, 2e-5, 0);
        }
}

/* Rows that stay in registers, and the same kernels with rows of other lengths: planned for one length, run with several. Numbers of rows that leave some over. */
static void held_check(const float *x, const float *c, int64_t n, const float *soft, const float *norm, float most)
{
    double max = -INFINITY, sum = 0, mean = 0, var = 0;
    for (int64_t j = 0; j < n; j++) { max = fmax(max, x[j] + c[j]); mean += (x[j] + c[j]) / (double)n; }
    for (int64_t j = 0; j < n; j++) { sum += exp(x[j] + c[j] - max); var += (x[j] + c[j] - mean) * (x[j] + c[j] - mean) / (double)n; }
    assert_true(most == (float)max);
    for (int64_t j = 0; j < n; j++) {
        double want = exp(x[j] + c[j] - max) / sum, z = (x[j] + c[j] - mean) / sqrt(var + 1e-5) * c[j];
        if (!(fabs(soft[j] - want) <= 2e-6 * want)) fail_msg("length %d, element %d: %.9g, wanted %.9g", (int)n, (int)j, soft[j], want);
        if (!(fabs(norm[j] - z) <= 1e-5)) fail_msg("length %d, element %d: %.9g, normally %.9g", (int)n, (int)j, norm[j], z);
    }
}

static void held_run(Ctx *cx, void *arg)
{
    static const int64_t others[] = { 16, 64, 61, 128, 3, 200 };
    Bench *b = arg;
    b->a = arena_new(cx);
    Graph *g = b->g = graph_new(cx, b->a);
    b->nin = 0;
    Node *x = input_of(b, DT_f32, DIMS(row_count, row_length), (const char *const[]){ "N", "M" }), *c = input_of(b, DT_f32, DIMS(row_length), (const char *const[]){ "M" });
    Node *y = g2(g, OP_add, x, c), *mean = g_mean(g, y, 2, true), *d = g2(g, OP_sub, y, mean), *var = g_mean(g, g2(g, OP_mul, d, d), 2, true);
    output(b, g_softmax(g, y, 2, false));
    output(b, g2(g, OP_mul, g2(g, OP_div, d, g1(g, OP_sqrt, g2(g, OP_add, var, g_scalar(g, DT_f32, 1e-5)))), c));
    output(b, g_fold(g, FOLD_max, y, 2, false));
    Segment *seg = segment_new(cx, &b->dev->target, g, &(ProgramOptions){ .fuse = true });
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        int64_t n = others[i], *syms = NEWS(b->a, int64_t, g->sym.n + 1);
        const char *why = "";
        Tensor got[3] = { { 0 } };
        Graph *spare = graph_new(cx, b->a);
        Bench of = { .dev = b->dev, .cx = cx, .a = b->a, .g = spare };
        input(&of, DT_f32, DIMS(row_count, n));
        input(&of, DT_f32, DIMS(n));
        if (!segment_serves(cx, b->a, seg, of.in, syms, &why)) fail_msg("%s", why);
        segment_run(cx, b->a, seg, of.in, syms, got, NULL, NULL);
        for (int64_t r = 0; r < row_count; r++)
            held_check((const float *)of.in[0].data + r * n, of.in[1].data, n, (const float *)got[0].data + r * n, (const float *)got[1].data + r * n, ((const float *)got[2].data)[r]);
    }
    segment_free(seg);
    arena_free(b->a);
}

static void held(void **state)
{
    static const int64_t lengths[] = { 16, 32, 64, 128 };
    Shared *d = *state;
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (row_count = 35; row_count < 38; row_count++) {
            Bench b = { .dev = d, .cx = &d->cx };
            row_length = lengths[i];
            if (guard_call(&d->cx, held_run, &b) != E_OK) fail_msg("%s", d->cx.text);
        }
}

/* Half precision, and a mask that is read by the lanes of several rows. */
static void short_half_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f16, DIMS(37, 40)), *m = input(b, DT_bool, DIMS(37, 40));
    next(b);
    Node *y = g_where(g, m, g_cast(g, x, DT_f32), g_scalar(g, DT_f32, -INFINITY));
    output(b, g_softmax(g, y, 2, false));
    output(b, g_fold(g, FOLD_max, x, 2, false));
}
static void short_half(void **state) { check(state, short_half_graph, 2e-5, 0); }

/* The graph, fused, on the inputs that it was made with. */
static void run_fused(Ctx *cx, Bench *b, Tensor *got)
{
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    const char *why = "";
    int64_t *syms = NEWS(b->a, int64_t, b->g->sym.n + 1);
    if (!segment_serves(cx, b->a, s, b->in, syms, &why)) fail_msg("%s", why);
    segment_run(cx, b->a, s, b->in, syms, got, NULL, NULL);
    segment_free(s);
}

/* A matrix past the caches, with a length that leaves a tail and rows that begin anywhere: its stores pass by the caches where they may, and the last loop of a
 * row runs beside the next row's, with numbers of its own row. Rows without a sum, and the last one of each part. */
enum { LONG_N = 1100, LONG_M = 8001 };
static double normal_of(const float *p, int j)
{
    double mean = 0, var = 0;
    for (int i = 0; i < LONG_M; i++) mean += p[i] / LONG_M;
    for (int i = 0; i < LONG_M; i++) var += (p[i] - mean) * (p[i] - mean) / LONG_M;
    return (p[j] - mean) / sqrt(var + 1e-5);
}

static void long_run(Ctx *cx, void *arg)
{
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(LONG_N, LONG_M));
    float *in = b->in[0].data;
    in[7 * LONG_M + 5] = NAN;
    for (int j = 0; j < LONG_M; j++) in[14 * LONG_M + j] = -INFINITY;
    in[21 * LONG_M + 8000] = INFINITY;
    for (int j = 0; j < 8000; j++) in[28 * LONG_M + j] = -INFINITY;
    output(b, g_softmax(g, x, 2, false));
    Node *d = g2(g, OP_sub, x, g_mean(g, x, 2, true)), *var = g_mean(g, g2(g, OP_mul, d, d), 2, true);
    output(b, g2(g, OP_div, d, g1(g, OP_sqrt, g2(g, OP_add, var, g_scalar(g, DT_f32, 1e-5)))));
    Tensor got[2] = { { 0 } };
    run_fused(cx, b, got);
    for (int i = 0; i < LONG_N; i += 7) {
        const float *p = in + i * LONG_M, *q = (const float *)got[0].data + i * LONG_M, *n = (const float *)got[1].data + i * LONG_M;
        double sum = 0;
        for (int j = 0; j < LONG_M; j++) sum += exp(p[j]);
        for (int j = 0; j < LONG_M; j++) {
            double want = isfinite(sum) && sum > 0 ? exp(p[j]) / sum : NAN;
            if (isnan(want) ? !isnan(q[j]) : !(fabs(q[j] - want) <= 2e-6 * want + 1e-12)) fail_msg("row %d, element %d: %.9g, wanted %.9g", i, j, q[j], want);
        }
        for (int j = 0; j < LONG_M && i > 28; j += 500) {
            double want = normal_of(p, j);
            if (!(fabs(n[j] - want) <= 1e-5)) fail_msg("row %d, element %d: %.9g, normally %.9g", i, j, n[j], want);
        }
    }
    arena_free(b->a);
}

static void past_the_caches(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, long_run, &b) != E_OK) fail_msg("%s", d->cx.text);
}

/* A sum of squares of a product: the squares are not stored, and both sums read the product once. */
static void squares_graph(Bench *b)
{
    Graph *g = b->g;
    Node *a = input(b, DT_f32, DIMS(40, 24)), *w = input(b, DT_f32, DIMS(24, 90));
    next(b);
    Node *h = g_matmul(g, a, w);
    next(b);
    Node *q = g2(g, OP_mul, h, h);
    next(b);
    output(b, g_fold(g, FOLD_sum, h, 2, false));
    next(b);
    output(b, g_fold(g, FOLD_sum, q, 2, false));
}
static void squares(void **state) { check(state, squares_graph, 1e-4, 2); }

/* The loss of a classifier picks from scores: one kernel, no matrix of logarithms. */
static void picked_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(50, 70)), *t = input(b, DT_i64, DIMS(50, 1));
    for (int i = 0; i < 50; i++) ((int64_t *)b->in[1].data)[i] = i * 13 % 70;
    next(b);
    Node *l = g_softmax(g, x, 2, true);
    Dim *dims[2] = { x->dims[0], dim_const(g, 1) }, *idx[2] = { dim_idx(g, 0, dims[0]), dim_idx(g, DIM_OPERAND, x->dims[1]) };
    next(b);
    output(b, g1(g, OP_neg, g_gather(g, l, 1, &t, 2, dims, &(View){ .nidx = 2, .idx = idx })));
}
static void picked(void **state) { check(state, picked_graph, 2e-5, 1); }

/* An index outside of the axis is still found, though what it picks from has moved. */
typedef struct Outside { Bench *b; Segment *s; int64_t *syms; Status st; } Outside;
static void outside_segment(Ctx *cx, void *arg)
{
    Outside *o = arg;
    Tensor got = { 0 };
    segment_run(cx, o->b->a, o->s, o->b->in, o->syms, &got, NULL, NULL);
}

static void outside_run(Ctx *cx, void *arg)
{
    Outside *o = arg;
    Bench *b = o->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    picked_graph(b);
    ((int64_t *)b->in[1].data)[17] = 70;
    o->s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    const char *why = "";
    o->syms = NEWS(b->a, int64_t, b->g->sym.n + 1);
    assert_true(segment_serves(cx, b->a, o->s, b->in, o->syms, &why));
    o->st = guard_call(cx, outside_segment, o);
    segment_free(o->s);
    arena_free(b->a);
}

static void outside(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    Outside o = { .b = &b };
    if (guard_call(&d->cx, outside_run, &o) != E_OK) fail_msg("%s", d->cx.text);
    assert_int_equal(o.st, E_INVALID);
}

/* Columns, many and few, by all ways of going down them. */
/* Zeros of both signs, of which +0 is the largest, and what is divided by it: inf. As many rows as bundles want. */
static void zeros_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(72, 77));
    float *in = b->in[0].data;
    for (int i = 0; i < 72 * 77; i++) in[i] = -fabsf(in[i]) - 0.1f;
    for (int i = 0; i < 72; i++) { in[i * 77 + i] = 0; in[i * 77 + (i + 16) % 77] = in[i * 77 + 76] = -0.0f; }
    Node *m = g_fold(g, FOLD_max, x, 2, false), *wide = g_fold(g, FOLD_max, x, 2, true), *sum = g_fold(g, FOLD_sum, g1(g, OP_exp, g2(g, OP_sub, x, wide)), 2, false);
    output(b, g2(g, OP_div, sum, m));
}
static void zeros(void **state) { check(state, zeros_graph, 2e-5, 0); }

/* The sign of a loss of 0. */
static void zero_loss_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(72, 77)), *y = input(b, DT_f32, DIMS(72, 1));
    float *in = b->in[0].data;
    for (int i = 0; i < 72; i++) ((float *)b->in[1].data)[i] = i % 4 < 2 ? 0 : -0.0f;
    for (int i = 0; i < 72 * 77; i++) in[i] = -200;
    for (int i = 0; i < 72; i++) { in[i * 77 + i] = i % 2 ? 0 : -0.0f; if (i % 3 == 0) in[i * 77 + (i + 16) % 77] = -0.0f; }
    Node *m = g_fold(g, FOLD_max, x, 2, true), *sum = g_fold(g, FOLD_sum, g1(g, OP_exp, g2(g, OP_sub, x, m)), 2, true);
    output(b, g2(g, OP_div, g_scalar(g, DT_f32, 1), g2(g, OP_sub, g2(g, OP_sub, y, m), g1(g, OP_log, sum))));
}
static void zero_loss(void **state) { check(state, zero_loss_graph, 2e-5, 0); }

static void columns_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(row_count, row_length));
    next(b);
    output(b, g_fold(b->g, FOLD_max, x, 1, false));
    next(b);
    output(b, g_fold(b->g, FOLD_sum, g1(b->g, OP_abs, x), 1, false));
}
static void columns(void **state)
{
    static const int64_t sizes[][2] = { { 30, 16 }, { 9, 130 }, { 50, 513 }, { 3, 5000 }, { 300, 480 }, { 2500, 48 } };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) { row_count = sizes[i][0]; row_length = sizes[i][1]; check(state, columns_graph, 2e-5, 0); }
}

/* Extremes of columns: a NaN, an infinity and zeros of both signs at the first, the last and other places; where the loop is run again, and where there is none. */
static int extreme_nans;
static void extremes_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(row_count, row_length));
    float *v = b->in[0].data;
    const int64_t n = row_count, m = row_length;
    for (int64_t i = 0; i < n; i++) { v[m * i + 1] = i & 1 ? 0.0f : -0.0f; v[m * i + 2] = -INFINITY; v[m * i + 3] = i == n / 2 ? INFINITY : -1; }
    if (extreme_nans) { v[0] = NAN; v[m * (n - 1) + m - 1] = NAN; v[m * (n / 2) + m / 2] = NAN; v[m * 2 + 2] = NAN; v[m * 3 + 3] = NAN; }
    next(b);
    Node *y = g2(b->g, OP_mul, x, g_scalar(b->g, DT_f32, 1.0));
    output(b, g_fold(b->g, FOLD_max, y, 1, false));
    output(b, g_fold(b->g, FOLD_min, y, 1, false));
    output(b, g_fold(b->g, FOLD_sum, g1(b->g, OP_abs, x), 1, false));
}
static void extremes(void **state)
{
    static const int64_t sizes[][2] = { { 33, 16 }, { 70, 37 }, { 100, 256 }, { 45, 500 } };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (extreme_nans = 0; extreme_nans < 2; extreme_nans++) { row_count = sizes[i][0]; row_length = sizes[i][1]; check(state, extremes_graph, 2e-5, 0); }
}

/* Elementwise, with vectors that all rows share: one and two of them, computed or read, beside a number for each row; rows that fill the registers, that do not, and that leave
 * a rest; fewer rows than a block, and more. The row before the last axis may have neighbours. */
static void shared_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(3, row_count, row_length)), *c = input(b, DT_f32, DIMS(3, 1, row_length)), *d = input(b, DT_f32, DIMS(row_length)), *r = input(b, DT_f32, DIMS(3, row_count, 1));
    next(b);
    output(b, g2(g, OP_mul, x, g1(g, OP_sigmoid, c)));
    next(b);
    output(b, g2(g, OP_add, g2(g, OP_mul, x, c), d));
    next(b);
    output(b, g2(g, OP_max, g2(g, OP_sub, g2(g, OP_mul, x, d), r), g_scalar(g, DT_f32, 0)));
    next(b);
    Node *from = g1(g, OP_exp, x);
    output(b, from);
    next(b);
    output(b, g2(g, OP_div, from, g2(g, OP_add, g1(g, OP_abs, d), g_scalar(g, DT_f32, 1))));
}
static void shared(void **state)
{
    static const int64_t sizes[][2] = { { 7, 64 }, { 8, 16 }, { 200, 112 }, { 70, 240 }, { 90, 480 }, { 20, 496 }, { 40, 100 } };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) { row_count = sizes[i][0]; row_length = sizes[i][1]; check(state, shared_graph, 2e-5, 0); }
}

/* NaN in a row reaches what depends on the row's maximum, whether the maximum may lose it (softmax, logarithm of a sum) or not: where the sum does not go into every
 * result, does not see every element, or hides some of them. */
static int nan_form, nan_rows;
static void nans_graph(Bench *b)
{
    enum { M = 83 };
    const int N = nan_rows;
    Graph *g = b->g;
    Node *in = input(b, DT_f32, DIMS(N, M)), *shown = input(b, DT_bool, DIMS(N, M)), *x = in;
    float *v = b->in[0].data;
    for (int i = 1; i < N; i++) v[M * i + (i * 37 + 5) % M] = NAN;        /* in whole vectors and in the last part of one */
    for (int j = 0; j < M; j++) v[M * 4 + j] = NAN;
    for (int j = 0; j < M; j++) if (j != 40) v[M * 5 + j] = -INFINITY;
    v[M * 6] = INFINITY;
    next(b);
    if (nan_form & 1) x = g2(g, OP_mul, in, g_scalar(g, DT_f32, 0.5));   /* computed in the kernel, or read */
    Node *m = g_fold(g, FOLD_max, x, 2, true), *e = g1(g, OP_exp, g2(g, OP_sub, x, m)), *s = g_fold(g, FOLD_sum, e, 2, true), *w = g2(g, OP_div, e, s);
    Node *half = g_slice(g, x, 1, dim_const(g, 0), dim_const(g, 40), 1);
    switch (nan_form >> 1) {
    case 0: output(b, w); break;
    case 1: output(b, g2(g, OP_add, m, g1(g, OP_log, s))); break;
    case 2: output(b, w); output(b, m); break;
    case 3: output(b, e); break;
    case 4: output(b, g_where(g, shown, w, g_scalar(g, DT_f32, 0))); break;
    case 5: output(b, g2(g, OP_add, m, g1(g, OP_log, g_fold(g, FOLD_sum, g1(g, OP_exp, g2(g, OP_sub, half, m)), 2, true)))); break;
    case 6: output(b, g2(g, OP_add, m, g_fold(g, FOLD_sum, g2(g, OP_pow, e, g_scalar(g, DT_f32, 0)), 2, true))); break;
    case 7: output(b, g2(g, OP_add, m, g_fold(g, FOLD_sum, g_where(g, shown, e, g_scalar(g, DT_f32, 0)), 2, true))); break;
    case 8: output(b, g2(g, OP_add, m, g_fold(g, FOLD_max, e, 2, true))); break;
    }
}
static void nans(void **state)
{
    for (nan_rows = 11; nan_rows <= 75; nan_rows += 64)                  /* the latter in bundles, where nothing is stored along rows */
        for (nan_form = 0; nan_form < 18; nan_form++) check(state, nans_graph, 2e-5, 0);
}

/* Rows in bundles: folds of all kinds and types, one after the other, a number that is gathered for each row, and one that each row brings along. */
static int bundle_form;
static void bundle_graph(Bench *b)
{
    Graph *g = b->g;
    static const DType types[] = { DT_f32, DT_i32, DT_f16, DT_f64, DT_i64, DT_u8, DT_bool };
    DType t = types[bundle_form % COUNT_OF(types)];
    Node *x = input(b, t, DIMS(row_count, row_length)), *c = input(b, DT_f32, DIMS(row_count, 1));
    if (t == DT_f32) ((float *)b->in[0].data)[row_length * 3 + row_length / 2] = NAN;
    next(b);
    Node *max = g_fold(g, FOLD_max, x, 2, true);
    output(b, max);
    output(b, g_fold(g, FOLD_min, x, 2, true));
    if (t == DT_bool) return;
    if (t != DT_u8) output(b, g_fold(g, FOLD_sum, x, 2, true));
    Node *y = g2(g, OP_sub, g_cast(g, x, DT_f32), c), *mean = g_mean(g, y, 2, true), *d = g2(g, OP_sub, y, mean);
    output(b, g1(g, OP_sqrt, g_mean(g, g2(g, OP_mul, d, d), 2, true)));
    output(b, g_fold(g, FOLD_prod, g2(g, OP_add, g2(g, OP_mul, d, g_scalar(g, DT_f32, 1e-3)), g_scalar(g, DT_f32, 1)), 2, true));
}

static void bundles(void **state)
{
    static const int64_t lengths[] = { 5, 64, 77 };
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (bundle_form = 0; bundle_form < 7; bundle_form++) {
            row_count = 64 + 5 * (int64_t)i; row_length = lengths[i];
            check(state, bundle_graph, 2e-5, 0);
        }
}

/* Sums of e^(x - max) whose terms serve nothing else, and their logarithm: rows that are short, and ones that are read once, with a pivot that has to follow the
 * maximum: upwards step by step, from -inf, to inf, far up at once, never; and with NaN before and after it. */
static int64_t sum_length;
static bool sum_peaks;                     /* one number of each row is far above the others */
enum { SUM_KINDS = 37, SUM_ROWS = 101 };   /* enough for bundles, the last one not full, and each kind after different ones */
static float sum_sample(int row, int64_t j, int64_t n, float x)
{
    if (sum_peaks) return j == row % n ? 20 + x : x;
    bool last = j == n - 1;
    switch (row % SUM_KINDS) {
    case 1: return x + 50 * (float)(j / 700);
    case 2: return j < n - 3 ? -INFINITY : x;
    case 3: return last ? INFINITY : x;
    case 4: return last ? 3e38f : -3e38f;
    case 5: return last ? NAN : x + 200 * (float)(j / 1000);
    case 6: return j ? x + 200 * (float)(j / 1000) : NAN;
    case 7: return -INFINITY;
    case 8: return x - 90 * (float)(j / 100);
    case 9: return j % 3 ? -INFINITY : x;
    case 10: return last ? 0.0f : -0.0f;
    case 11: return j == n / 2 ? 39.5f : -60 + x;
    case 12: return j == n / 2 ? 41.5f : -1e30f;
    case 13: return 1e4f + x;
    case 14: return -1e-40f;
    case 15: return j < n / 2 ? -FLT_MAX : -FLT_MAX / 2;
    case 16: return x - 100;             /* a bundle's first row: its pivot is not 0; behind it such that it serves, and others */
    case 17: return x - 75;
    case 24: case 32: return x + 30;
    case 25: case 33: return x + 65;
    case 34: return x - 25;
    default: return 3 * x;
    }
}

static void sum_run(Ctx *cx, void *arg)
{
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    b->nin = 0;
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(SUM_ROWS, sum_length));
    float *in = b->in[0].data;
    for (int i = 0; i < SUM_ROWS; i++) for (int64_t j = 0; j < sum_length; j++) in[i * sum_length + j] = sum_sample(i, j, sum_length, in[i * sum_length + j]);
    Node *m = g_fold(g, FOLD_max, x, 2, true), *s = g_fold(g, FOLD_sum, g1(g, OP_exp, g2(g, OP_sub, x, m)), 2, true);
    output(b, s);
    output(b, g2(g, OP_add, m, g1(g, OP_log, s)));
    Tensor got[2] = { { 0 } };
    run_fused(cx, b, got);
    for (int i = 0; i < SUM_ROWS; i++) {
        const float *p = in + i * sum_length;
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < sum_length; j++) max = isnan(max) || isnan(p[j]) ? NAN : fmax(max, p[j]);
        for (int64_t j = 0; j < sum_length; j++) sum += exp(p[j] - max);
        double want[2] = { sum, max + log(sum) };
        for (int k = 0; k < 2; k++) {
            double is = ((const float *)got[k].data)[i];
            if (!k && is < 1) fail_msg("length %d, row %d: the sum is %.9g, less than that of the maximum alone", (int)sum_length, i, is);
            if (isnan(want[k]) ? !isnan(is) : !(fabs(is - want[k]) <= 4e-6 * fabs(want[k]))) fail_msg("length %d, row %d: %s %.9g, wanted %.9g", (int)sum_length, i, k ? "logarithm" : "sum", is, want[k]);
        }
    }
    arena_free(b->a);
}

static void sums_of_powers(void **state)
{
    static const int64_t lengths[] = { 2, 15, 64, 100, 513, 1000, 1024, 1025, 2050, 5003, 70001 };
    Shared *d = *state;
    for (size_t i = 0; i < 2 * COUNT_OF(lengths); i++) {
        Bench b = { .dev = d, .cx = &d->cx };
        sum_length = lengths[i / 2];
        sum_peaks = i % 2;
        if (sum_peaks && sum_length > 1025) continue;       /* what float32 adds to a 1 one after the other is lost there */
        if (guard_call(&d->cx, sum_run, &b) != E_OK) fail_msg("%s", d->cx.text);
    }
}

/* What is asked of memory before it is needed: results whose rows begin inside a line, where the second cache does not hold them, and long rows that are read once. */
static void gate_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_i32, DIMS(row_count, 1)), *c = input(b, DT_i32, DIMS(1, row_length));
    next(b);
    output(b, g_cast(g, g2(g, OP_eq, x, c), DT_f32));
}

static void loss_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(row_count, row_length)), *max = g_fold(g, FOLD_max, x, 2, true);
    output(b, g2(g, OP_add, max, g1(g, OP_log, g_fold(g, FOLD_sum, g1(g, OP_exp, g2(g, OP_sub, x, max)), 2, true))));
}

static void asks_run(Ctx *cx, void *arg)
{
    Item *it = arg;
    Bench *b = it->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    it->build(b);
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    SegmentEvidence e = { 0 };
    segment_evidence(cx, b->a, s, NULL, &e);
    assert_int_equal(e.nkernel, 1);
    assert_int_equal(strstr(e.kernel[0].source, "fetch") != NULL, it->kernels);
    segment_free(s);
    arena_free(b->a);
}

static void asks(void **state, void (*build)(Bench *b), int64_t rows, int64_t length, bool early)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    Item it = { &b, build, early };
    row_count = rows;
    row_length = length;
    if (guard_call(&d->cx, asks_run, &it) != E_OK) fail_msg("%d x %d: %s", (int)rows, (int)length, d->cx.text);
}

static void asked_early(void **state)
{
    asks(state, gate_graph, 800, 257, true);
    asks(state, gate_graph, 800, 256, false);
    asks(state, gate_graph, 80, 257, false);
    check(state, gate_graph, 0, 1);
    asks(state, loss_graph, 600, 16384, true);
    asks(state, loss_graph, 90, 131072, true);
    asks(state, loss_graph, 90, 16384, false);
}

/* Between two reductions over other axes, so that the middle one is a kernel that may write over what it reads. */
static void between_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(row_count, row_length));
    next(b);
    Node *y = g2(g, OP_sub, x, g_mean(g, x, 1, true));
    next(b);
    Node *n = g2(g, OP_div, y, g1(g, OP_exp, g_mean(g, g2(g, OP_mul, y, y), 2, true)));
    next(b);
    output(b, g_fold(g, FOLD_max, g1(g, OP_exp, n), 1, false));
}

static void shares_run(Ctx *cx, void *arg)
{
    Item *it = arg;
    Bench *b = it->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    it->build(b);
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    int rows = 0, shared = 0;
    for (int i = 0; i < s->plan->nkernel; i++) {
        const Subgraph *k = &s->plan->kernel[i];
        const Node *out = k->nstore == 1 ? k->store[0].into : NULL;
        if (k->kind != SUB_rows || !out || out->rank != 2) continue;
        rows++;
        shared += s->share[out->id] >= 0;
    }
    assert_true(rows > 0);
    assert_int_equal(shared > 0, it->kernels);
    segment_free(s);
    arena_free(b->a);
}

/* Rows that end inside a vector are not written over what they are made of: the next row would wait for what was stored beside its beginning. */
static void in_place(void **state)
{
    static const struct { int64_t length; bool shared; } of[] = { { 128, true }, { 121, false }, { 1999, true } };
    Shared *d = *state;
    for (size_t i = 0; i < COUNT_OF(of); i++) {
        Bench b = { .dev = d, .cx = &d->cx };
        Item it = { &b, between_graph, of[i].shared };
        row_count = 40;
        row_length = of[i].length;
        if (guard_call(&d->cx, shares_run, &it) != E_OK) fail_msg("%d: %s", (int)row_length, d->cx.text);
        check(state, between_graph, 1e-4, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asked_early), cmocka_unit_test(in_place),
        cmocka_unit_test(short_rows), cmocka_unit_test(short_half), cmocka_unit_test(past_the_caches), cmocka_unit_test(squares), cmocka_unit_test(picked),
        cmocka_unit_test(outside), cmocka_unit_test(columns), cmocka_unit_test(extremes), cmocka_unit_test(shared), cmocka_unit_test(nans), cmocka_unit_test(bundles), cmocka_unit_test(zeros), cmocka_unit_test(zero_loss), cmocka_unit_test(held), cmocka_unit_test(sums_of_powers),
    };
    return cmocka_run_group_tests_name("rows", tests, open_all, close_all);
}
