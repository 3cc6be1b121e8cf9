/* Products of matrices of narrow numbers on every instruction set, those that multiply bytes, pairs of bfloat16 and whole tiles included, against sums in double:
 * sizes that fill no vector, tile or word, fewer rows than a tile, batches, signed and unsigned bytes with zero points, numbers that are not finite. On a
 * machine without a unit for tiles its kernels run on one in plain C (tiles.h). And narrow products of float32: ones of few columns. */
#include "test.h"
#include "target.h"
#include "tiles.h"

#include <math.h>
#include <stdio.h>

typedef struct Case { DType x, w; int64_t batch, m, n, k; int zx, zw; bool turned; } Case;     /* turned: w lies [n, k] */
typedef struct Job { Ctx *cx; Arena *a; const Target *t; const Case *c; } Job;

static void *numbers(Arena *a, DType t, int64_t n, uint64_t seed, bool special)
{
    uint8_t *p = arena_alloc(a, (size_t)n * dtype_size(t) + 1);
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = random_word(seed, (uint64_t)i);
        Scalar s = dtype_is_float(t) ? (Scalar){ .f = ((double)(r % 255) - 127) / 64 } : (Scalar){ .i = (int64_t)(r & 255) - (t == DT_i8 ? 128 : 0) };
        if (special && dtype_is_float(t)) s.f = r % 97 == 3 ? INFINITY : r % 97 == 4 ? NAN : r % 97 == 5 ? -0.0 : r % 97 == 6 ? 3e38 : s.f;
        scalar_store(t, p + (size_t)i * dtype_size(t), s);
    }
    return p;
}

static double number_at(DType t, const uint8_t *p, int64_t i)
{
    Scalar s = scalar_load(t, p + (size_t)i * dtype_size(t));
    return dtype_is_float(t) ? s.f : (double)s.i;
}

static Node *known(Graph *g, Arena *a, DType dt, int rank, const int64_t *dims, void *data)
{
    Tensor *t = NEW(a, Tensor);
    tensor_init(g->cx, t, dt, rank, dims);
    t->data = data;
    return g_const(g, t);
}

/* One run, and its result against sums in double. */
static void check_run(Ctx *cx, const Job *j, Segment *s, const Tensor *in, const uint8_t *x, const uint8_t *w, const uint8_t *b)
{
    const Case *c = j->c;
    bool floats = dtype_is_float(c->x);
    DType wide = floats ? DT_f32 : DT_i32;
    int64_t count = c->batch * c->m * c->n, syms[4] = { 0 };
    Tensor out = { .data = arena_alloc(j->a, (size_t)count * 4 + 1) };
    size_t bytes = (size_t)count * 4;
    segment_run(cx, j->a, s, in, syms, &out, &bytes, NULL);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0, size = 0;
        int64_t row = i / c->n, col = i % c->n;
        for (int64_t k = 0; k < c->k; k++) {
            double p = (number_at(c->x, x, row * c->k + k) - c->zx) * (number_at(c->w, w, c->turned ? col * c->k + k : k * c->n + col) - c->zw);
            sum += p;
            size += fabs(p);
        }
        sum += number_at(wide, b, col);
        if (floats) {
            double got = number_at(c->turned ? DT_bf16 : DT_f32, out.data, i);
            double want = sum > 0 || isnan(sum) ? sum : 0;
            bool over = fabs(size) > 3.3e38 && !isnan(sum);          /* what is between may overflow */
            bool ok = isnan(want) ? isnan(got) : isinf(want) ? got == want : fabs(got - want) <= 1e-5 * size + 1e-6 + (c->turned ? 0x1p-8 * fabs(want) : 0);
            if (!ok && !over) fail(cx, E_INVALID, "%s: %lldx%lldx%lldx%lld: element %lld is %.9g, wanted %.9g", j->t->isa, (long long)c->batch, (long long)c->m, (long long)c->n, (long long)c->k, (long long)i, got, want);
        } else if (((int32_t *)out.data)[i] != (int32_t)(int64_t)sum)
            fail(cx, E_INVALID, "%s: %s x %s, %lldx%lldx%lldx%lld: element %lld is %d, wanted %.0f", j->t->isa, dtype_info[c->x].name, dtype_info[c->w].name, (long long)c->batch, (long long)c->m, (long long)c->n, (long long)c->k, (long long)i, ((int32_t *)out.data)[i], sum);
    }
}

static void run_case(Ctx *cx, void *arg)
{
    Job *j = arg;
    const Case *c = j->c;
    Arena *a = j->a;
    bool floats = dtype_is_float(c->x);
    DType wide = floats ? DT_f32 : DT_i32;
    int64_t dx[3] = { c->batch, c->m, c->k }, dw[2] = { c->turned ? c->n : c->k, c->turned ? c->k : c->n }, db[1] = { c->n }, one[1] = { 0 };
    uint8_t *x, *w = numbers(a, c->w, c->k * c->n, 2, false), *b = numbers(a, floats ? DT_f32 : DT_i32, c->n, 3, false);
    Graph *g = graph_new(cx, a);
    Tensor in;
    tensor_init(cx, &in, c->x, 3, dx);
    Tensor hint = in;
    Node *left = g_cast(g, graph_input(g, "x", c->x, 3, dx, NULL, &hint), wide), *right = g_cast(g, known(g, a, c->w, 2, dw, w), wide);
    if (!floats) {
        int32_t *z = arena_alloc(a, 8);
        z[0] = c->zx; z[1] = c->zw;
        left = g2(g, OP_sub, left, known(g, a, DT_i32, 0, one, &z[0]));
        right = g2(g, OP_sub, right, known(g, a, DT_i32, 0, one, &z[1]));
    }
    if (c->turned) right = g_transpose(g, right, (int[]){ 1, 0 });
    Node *r = g2(g, OP_add, g_matmul(g, left, right), known(g, a, wide, 1, db, b));
    if (floats) r = g2(g, OP_max, r, g_scalar(g, DT_f32, 0));
    graph_output(g, "y", floats && c->turned ? g_cast(g, r, DT_bf16) : r);
    Segment *s = segment_new(cx, j->t, g, &(ProgramOptions){ .fuse = true, .threads = 1 });
    int terms = floats ? 2 : 4, dots = j->t->vectors.dots;
    bool few = c->x == DT_f32, paired = few && j->t->vectors.lanes >= 16 && c->n > 1 && (c->n <= 4 || (!j->t->vectors.split && (c->n <= 8 || c->n == 24 || c->n == 40)));
    if (c->k % terms == 0 && (few ? paired : c->n >= 4 && dots & (floats ? DOT_pairs : DOT_quads))) {          /* that it is the form that is meant */
        const char *form = few ? (c->n <= 4 ? "pairs_f32h(" : "pairs_f32v(") : dots & DOT_tiles && c->m >= 4 ? (floats ? "unit_pairs(" : "unit_quads(") : floats ? "dot2v(" : "dot4v(";
        bool there = false;
        for (int i = 0; i < s->npart; i++) there |= s->part[i].src.text && strstr(s->part[i].src.text, form);
        if (!there) fail(cx, E_INVALID, "%s: %lldx%lldx%lldx%lld: no %s in its kernels", j->t->isa, (long long)c->batch, (long long)c->m, (long long)c->n, (long long)c->k, form);
    }
    for (int special = 0; special <= floats; special++) {
        x = numbers(a, c->x, c->batch * c->m * c->k, 1, special);
        in.data = x;
        check_run(cx, j, s, &in, x, w, b);
    }
    segment_free(s);
}

static const Case cases[] = {
    { DT_bf16, DT_bf16, 1, 37, 48, 64, 0, 0, false },  { DT_bf16, DT_bf16, 1, 33, 17, 66, 0, 0, false }, { DT_bf16, DT_bf16, 1, 5, 35, 30, 0, 0, true },
    { DT_bf16, DT_bf16, 1, 1, 130, 34, 0, 0, false },  { DT_bf16, DT_bf16, 3, 20, 33, 2, 0, 0, false },  { DT_bf16, DT_bf16, 1, 150, 64, 2210, 0, 0, false },
    { DT_bf16, DT_bf16, 1, 18, 16, 33, 0, 0, false },  { DT_bf16, DT_bf16, 1, 2, 3, 5000, 0, 0, true },  { DT_bf16, DT_bf16, 2, 140, 31, 32, 0, 0, true },
    { DT_u8, DT_i8, 1, 37, 48, 64, 0, 0, false },      { DT_u8, DT_i8, 1, 33, 17, 68, 3, 0, false },     { DT_u8, DT_i8, 1, 5, 35, 28, 255, 0, true },
    { DT_i8, DT_i8, 1, 40, 33, 132, 0, 0, false },     { DT_i8, DT_i8, 2, 7, 20, 64, -128, 5, true },    { DT_u8, DT_u8, 1, 34, 19, 64, 128, 127, false },
    { DT_i8, DT_u8, 1, 1, 70, 36, 1, 200, false },     { DT_u8, DT_u8, 3, 20, 33, 4, 9, 0, true },       { DT_u8, DT_i8, 1, 150, 64, 2212, 7, -3, false },
    { DT_i8, DT_i8, 1, 9, 9, 30, 2, 1, false },
};

static const Case few_columns[] = {
    { DT_f32, DT_f32, 1, 37, 8, 64, 0, 0, false }, { DT_f32, DT_f32, 1, 50, 6, 30, 0, 0, false },  { DT_f32, DT_f32, 2, 26, 5, 2, 0, 0, false },  { DT_f32, DT_f32, 1, 24, 7, 33, 0, 0, false },
    { DT_f32, DT_f32, 1, 9, 4, 64, 0, 0, false },  { DT_f32, DT_f32, 1, 31, 24, 18, 0, 0, false }, { DT_f32, DT_f32, 1, 150, 8, 2210, 0, 0, false }, { DT_f32, DT_f32, 3, 1, 8, 16, 0, 0, false },
    { DT_f32, DT_f32, 1, 44, 40, 20, 0, 0, false }, { DT_f32, DT_f32, 1, 19, 24, 9, 0, 0, false }, { DT_f32, DT_f32, 2, 11, 24, 2210, 0, 0, false },
};

static void check_target(void **state, const Target *t, const Case *all, size_t n)
{
    Ctx *cx = *state;
    for (size_t i = 0; i < n; i++) {
        Job j = { cx, arena_new(cx), t, &all[i] };
        Status st = guard_call(cx, run_case, &j);
        if (st != E_OK) print_error("%s\n", cx->text);
        arena_free(j.a);
        assert_int_equal(st, E_OK);
    }
}

/* Sets that differ in what they do with narrow numbers, and two that do nothing. */
static void test_sets(void **state)
{
    static const char *const sets[] = { "amx", "avx512bf16", "avx512vnni", "avx2", "plain" };
    Ctx *cx = *state;
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        Arena *a = arena_new(cx);
        Target t;
        if (isa_open(cx, a, sets[i], &t)) {
            check_target(state, &t, cases, COUNT_OF(cases));
            dev_cpu.close(t.device);
        } else print_message("skipped: this machine has no %s\n", sets[i]);
        arena_free(a);
    }
}

/* What is printed for a unit for tiles, on one in plain C. */
static void test_tiles(void **state)
{
    Ctx *cx = *state;
    Arena *a = arena_new(cx);
    Target t;
    if (!isa_open(cx, a, "avx512bf16", &t) && !isa_open(cx, a, "avx512", &t)) {
        arena_free(a);
        print_message("skipped: this machine has no vectors of 16 floats\n");
        skip();
    }
    t.isa = "amx";
    t.vectors = gen_c_vectors("amx");
    t.prelude = arena_fmt(a, "%s%s", tiles_text, gen_c_prelude(a, "amx"));
    check_target(state, &t, cases, COUNT_OF(cases));
    dev_cpu.close(t.device);
    arena_free(a);
}

/* A float32 product whose operands bfloat16 does not hold, with leave to round them and without. */
typedef struct Leave { const Target *t; Arena *a; float got; } Leave;
static void run_leave(Ctx *cx, void *arg)
{
    Leave *l = arg;
    float *x = arena_alloc(l->a, 64 * 4), *w = arena_alloc(l->a, 128 * 4);
    for (int i = 0; i < 64; i++) x[i] = 1 + 0x1p-10f;
    for (int i = 0; i < 128; i++) w[i] = 1;
    int64_t dx[2] = { 8, 8 }, dw[2] = { 8, 16 }, syms[4] = { 0 };
    Graph *g = graph_new(cx, l->a);
    Tensor in, out = { .data = arena_alloc(l->a, 128 * 4) };
    size_t bytes = 128 * 4;
    tensor_init(cx, &in, DT_f32, 2, dx);
    Tensor hint = in;
    in.data = x;
    graph_output(g, "y", g_matmul(g, graph_input(g, "x", DT_f32, 2, dx, NULL, &hint), known(g, l->a, DT_f32, 2, dw, w)));
    Segment *s = segment_new(cx, l->t, g, &(ProgramOptions){ .fuse = true, .threads = 1 });
    segment_run(cx, l->a, s, &in, syms, &out, &bytes, NULL);
    segment_free(s);
    l->got = ((float *)out.data)[127];
}

static void test_leave(void **state)
{
    Ctx *cx = *state;
    static const char *const sets[] = { "avx512bf16", "avx2", "plain" };
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        for (int leave = 0; leave < 2; leave++) {
            Arena *a = arena_new(cx);
            Target t;
            if (isa_open(cx, a, sets[i], &t)) {
                Leave l = { &t, a, 0 };
                const char *was = cx->opt.allow;
                if (leave) cx->opt.allow = "bf16";
                Status st = guard_call(cx, run_leave, &l);
                cx->opt.allow = was;
                if (st != E_OK) print_error("%s\n", cx->text);
                assert_int_equal(st, E_OK);
                assert_true(l.got == (leave && t.vectors.dots & DOT_pairs ? 8.0f : 8 + 0x1p-7f));
                dev_cpu.close(t.device);
            }
            arena_free(a);
        }
}

/* Where vectors pass through units of half their width, and where they do not: both are right on all. */
static void test_few_columns(void **state)
{
    static const char *const sets[] = { "avx512", "avx2" };
    Ctx *cx = *state;
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        for (int split = 0; split < 2; split++) {
            Arena *a = arena_new(cx);
            Target t;
            if (isa_open(cx, a, sets[i], &t)) {
                t.vectors.split = split && t.vectors.lanes >= 16;
                check_target(state, &t, few_columns, COUNT_OF(few_columns));
                dev_cpu.close(t.device);
            } else print_message("skipped: this machine has no %s\n", sets[i]);
            arena_free(a);
        }
}

static int setup(void **state)
{
    static Ctx cx;
    ctx_init(&cx);
    *state = &cx;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sets), cmocka_unit_test(test_tiles), cmocka_unit_test(test_leave), cmocka_unit_test(test_few_columns) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
