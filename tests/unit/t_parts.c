/* Long folds in parts: a fold of many elements to few results is shared between threads and merged. Each graph runs fused, unfused and by the interpreter,
 * with one thread and with two, which must give the same bits. */
#include "graphs.h"

/* Kernels that compute parts. */
static int parts_of(const Bench *b)
{
    const uint8_t *live = graph_live(b->a, b->g);
    int n = 0;
    for (int id = 0; id < b->g->node.n; id++) n += live[id] && b->g->node.at[id]->whole;
    return n;
}

typedef struct PartsItem { Bench *b; void (*build)(Bench *b); int parts; } PartsItem;

static void parts_run(Ctx *cx, void *arg)
{
    PartsItem *it = arg;
    Bench *b = it->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    it->build(b);
    int n = b->g->output.n;
    Tensor *want = NEWS(b->a, Tensor, n + 1), *got[2];
    interp_segment(cx, b->a, b->g, b->in, want);
    for (int fuse = 1; fuse >= 0; fuse--) {
        Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = fuse });
        graph_check(cx, b->g);
        assert_int_equal(parts_of(b), it->parts);
        int64_t *syms = NEWS(b->a, int64_t, b->g->sym.n + 1);
        const char *why = "";
        segment_free(s);
        for (int t = 0; t < 2; t++) {
            s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = fuse, .threads = t + 1 });
            assert_true(segment_serves(cx, b->a, s, b->in, syms, &why));
            got[t] = NEWS(b->a, Tensor, n + 1);
            segment_run(cx, b->a, s, b->in, syms, got[t], NULL, NULL);
            for (int i = 0; i < n; i++) compare(b, &got[t][i], &want[i], fuse ? "fused" : "unfused", i);
            segment_free(s);
        }
        for (int i = 0; i < n; i++) assert_memory_equal(got[0][i].data, got[1][i].data, tensor_bytes(&want[i]));
    }
    arena_free(b->a);
}

static void parts_check(void **state, void (*build)(Bench *b), double tolerance, int parts)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx, .tolerance = tolerance };
    PartsItem it = { &b, build, parts };
    if (guard_call(&d->cx, parts_run, &it) != E_OK) fail_msg("%s", d->cx.text);
}

#define PARTS(name, tolerance, parts, ...) \
    static void name##_graph(Bench *b) { Graph *g = b->g; next(b); __VA_ARGS__ } \
    static void name(void **state) { parts_check(state, name##_graph, tolerance, parts); }

PARTS(sum_all, 1e-5, 1, output(b, g_fold(g, FOLD_sum, input(b, DT_f32, DIMS(999983)), 1, false));)
PARTS(sum_three_axes, 1e-5, 1, output(b, g_fold(g, FOLD_sum, input(b, DT_f32, DIMS(3, 517, 331)), 7, false));)
PARTS(mean_and_max, 1e-5, 2,
    Node *x = input(b, DT_f32, DIMS(2, 300007));
    next(b);
    output(b, g_mean(g, x, 2, false));
    next(b);
    output(b, g_fold(g, FOLD_max, x, 2, true));)
PARTS(sum_columns, 2e-4, 1, output(b, g_fold(g, FOLD_sum, input(b, DT_f32, DIMS(20011, 16)), 1, false));)
PARTS(sum_middle, 1e-5, 1, output(b, g_fold(g, FOLD_sum, input(b, DT_f32, DIMS(2, 40000, 5)), 2, false));)
/* What is computed before is fused into the parts, also where it is needed elsewhere. */
PARTS(sum_of_map, 1e-5, 1,
    Node *x = input(b, DT_f32, DIMS(3, 100003)); Node *c = input(b, DT_f32, DIMS(3, 1));
    next(b);
    Node *y = g2(g, OP_add, x, c);
    output(b, y);
    next(b);
    output(b, g_fold(g, FOLD_sum, g2(g, OP_mul, y, y), 2, false));)
PARTS(log_sum_exp, 1e-5, 2,
    Node *x = input(b, DT_f32, DIMS(1, 400001)); Node *m = g_fold(g, FOLD_max, x, 2, true);
    output(b, g2(g, OP_add, g1(g, OP_log, g_fold(g, FOLD_sum, g1(g, OP_exp, g2(g, OP_sub, x, m)), 2, true)), m));)
PARTS(softmax_of_all, 1e-5, 2, output(b, g_softmax(g, input(b, DT_f32, DIMS(1, 300000)), 2, false));)
PARTS(half, 1e-3, 1, output(b, g_fold(g, FOLD_sum, input(b, DT_f16, DIMS(150001)), 1, false));)
PARTS(product_i32, 0, 1, output(b, g_fold(g, FOLD_prod, g2(g, OP_or, input(b, DT_i32, DIMS(200003)), g_int(g, DT_i32, 1)), 1, false));)
PARTS(sum_i8, 0, 1, output(b, g_fold(g, FOLD_sum, input(b, DT_i8, DIMS(200003)), 1, false));)
PARTS(any_of, 0, 1,
    Node *x = input(b, DT_f32, DIMS(2, 200003));
    ((float *)b->in[0].data)[200003 + 177777] = 9;
    output(b, g_fold(g, FOLD_max, g2(g, OP_lt, g_scalar(g, DT_f32, 8), x), 2, false));)
/* A NaN is the maximum; positions of equals: the first, or the last. */
PARTS(maximum_of_nan, 0, 1,
    Node *x = input(b, DT_f32, DIMS(2, 150000));
    ((float *)b->in[0].data)[140000] = NAN;
    output(b, g_fold(g, FOLD_max, x, 2, false));)
static Node *ties(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(4, 150000));
    float *p = b->in[0].data;
    p[70000] = p[140000] = 9;
    p[150000 + 149999] = p[150000] = 9;
    p[300000 + 99999] = NAN; p[300000 + 33000] = NAN; p[300000 + 5] = 9;
    p[450000 + 32767] = p[450000 + 32768] = 9;
    return x;
}
PARTS(argmax_first, 0, 2, output(b, g_argfold(g, FOLD_argmax, ties(b), 1, false, false));)
PARTS(argmax_last, 0, 2, output(b, g_argfold(g, FOLD_argmax, ties(b), 1, true, true));)
PARTS(argmin_columns, 0, 2, output(b, g_argfold(g, FOLD_argmin, input(b, DT_f32, DIMS(70001, 3)), 0, false, false));)
/* Not cut: short; many results; a contraction, which has kernels of its own. */
PARTS(short_row, 1e-5, 0, output(b, g_fold(g, FOLD_sum, input(b, DT_f32, DIMS(20000)), 1, false));)
PARTS(many_rows, 2e-4, 0, output(b, g_fold(g, FOLD_sum, input(b, DT_f32, DIMS(64, 4000)), 2, false));)
PARTS(contraction, 1e-4, 0, output(b, g_matmul(g, input(b, DT_f32, DIMS(2, 50000)), input(b, DT_f32, DIMS(50000, 3))));)

/* The length is a symbol: the same kernels serve lengths without a whole part, and none at all. */
static void lengths_run(Ctx *cx, void *arg)
{
    static const int64_t lengths[] = { 300000, 1, 32768, 32769, 65536, 100, 500001 };
    Bench *b = arg;
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        b->a = arena_new(cx);
        b->g = graph_new(cx, b->a);
        b->nin = 0;
        const char *sym[1] = { "n" };
        Node *x = input_of(b, DT_f32, 1, (int64_t[]){ 300000 }, sym);
        output(b, g_fold(b->g, FOLD_sum, g1(b->g, OP_exp, x), 1, false));
        output(b, g_fold(b->g, FOLD_max, x, 1, false));
        Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
        assert_int_equal(parts_of(b), 2);
        b->in[0].dims[0] = lengths[i];
        int64_t *syms = NEWS(b->a, int64_t, b->g->sym.n + 1);
        const char *why = "";
        assert_true(segment_serves(cx, b->a, s, b->in, syms, &why) || lengths[i] > 300000);
        if (lengths[i] > 300000) { b->in[0] = *tensor_new(b->a, cx, DT_f32, 1, &lengths[i]); assert_true(segment_serves(cx, b->a, s, b->in, syms, &why)); }
        Tensor got[2] = { { 0 } };
        const float *p = b->in[0].data;
        double sum = 0;
        float most = -INFINITY;
        for (int64_t j = 0; j < lengths[i]; j++) { sum += exp(p[j]); most = fmaxf(most, p[j]); }
        segment_run(cx, b->a, s, b->in, syms, got, NULL, NULL);
        assert_true(fabs(*(float *)got[0].data - sum) <= 1e-5 * sum);
        assert_true(*(float *)got[1].data == most);
        segment_free(s);
        arena_free(b->a);
    }
}

static void lengths(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, lengths_run, &b) != E_OK) fail_msg("%s", d->cx.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_all), cmocka_unit_test(sum_three_axes), cmocka_unit_test(mean_and_max), cmocka_unit_test(sum_columns), cmocka_unit_test(sum_middle),
        cmocka_unit_test(sum_of_map), cmocka_unit_test(log_sum_exp), cmocka_unit_test(softmax_of_all), cmocka_unit_test(half), cmocka_unit_test(product_i32),
        cmocka_unit_test(sum_i8), cmocka_unit_test(any_of), cmocka_unit_test(maximum_of_nan), cmocka_unit_test(argmax_first), cmocka_unit_test(argmax_last),
        cmocka_unit_test(argmin_columns), cmocka_unit_test(short_row), cmocka_unit_test(many_rows), cmocka_unit_test(contraction), cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests_name("parts", tests, open_all, close_all);
}
