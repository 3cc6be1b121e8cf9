/* Recurrences, y[t] = f[t] y[t - 1] + x[t], with what is computed around them, and linear attention in its masked form, which becomes one: against the interpreter, and
 * against loops in double. */
#include "graphs.h"

static Node *number_of(Bench *b, double v) { return g_scalar(b->g, DT_f32, v); }

/* Between 0 and 1, from any number. */
static Node *fading(Bench *b, Node *x) { return g1(b->g, OP_sigmoid, x); }

static Node *recur(Bench *b, Node *x, Node *f, int axis, bool back)
{
    next(b);
    Node *y = g_recurrence(b->g, x, f, axis, back);
    next(b);
    return y;
}

#define RECURS(name, tolerance, kernels, ...) \
    static void name##_graph(Bench *b) { __VA_ARGS__ } \
    static void name(void **state) { check(state, name##_graph, tolerance, kernels); }

static void plain_of(Bench *b, int rank, const int64_t *dims, int axis, bool back)
{
    Node *x = input(b, DT_f32, rank, dims), *f = input(b, DT_f32, rank, dims);
    next(b);
    output(b, g1(b->g, OP_abs, recur(b, g1(b->g, OP_neg, x), fading(b, f), axis, back)));
}
RECURS(columns, 1e-5, 1, plain_of(b, DIMS(3, 133, 21), 1, false);)
RECURS(columns_back, 1e-5, 0, plain_of(b, DIMS(3, 57, 21), 1, true);)
RECURS(first_axis, 1e-5, 1, plain_of(b, DIMS(50, 37), 0, false);)
RECURS(last_axis, 1e-5, 0, plain_of(b, DIMS(7, 133), 1, false);)
RECURS(last_back, 1e-5, 0, plain_of(b, DIMS(7, 133), 1, true);)
RECURS(one_row, 1e-5, 0, plain_of(b, DIMS(300), 0, false);)
RECURS(one_place, 1e-5, 0, plain_of(b, DIMS(6, 1), 1, false);)
RECURS(one_first, 1e-5, 0, plain_of(b, DIMS(1, 60), 0, false);)
RECURS(no_places, 1e-5, 0, plain_of(b, DIMS(6, 0, 3), 1, false);)
RECURS(beside_sum, 1e-4, 2,            /* a running sum and a recurrence in one loop, the second of what the first comes to */
    Node *x = input(b, DT_f32, DIMS(4, 60, 33)); Node *f = input(b, DT_f32, DIMS(4, 60, 1));
    next(b);
    Node *c = g_scan(b->g, FOLD_sum, g1(b->g, OP_tanh, x), 1, false, false);
    next(b);
    output(b, c); output(b, g2(b->g, OP_mul, recur(b, c, fading(b, f), 1, false), x));)
RECURS(narrow, 2e-2, 0,
    Node *x = input(b, DT_f16, DIMS(3, 40, 20)); Node *f = input(b, DT_f16, DIMS(3, 40, 20)); Node *y = input(b, DT_bf16, DIMS(40, 20)); Node *d = input(b, DT_f64, DIMS(40, 20));
    output(b, recur(b, x, fading(b, f), 1, false)); output(b, recur(b, y, fading(b, y), 0, true)); output(b, recur(b, d, fading(b, d), 1, false));)
RECURS(not_finite, 1e-5, 0,
    Node *x = input(b, DT_f32, DIMS(40, 20)); Node *f = input(b, DT_f32, DIMS(40, 20));
    float *v = b->in[0].data; float *w = b->in[1].data;
    v[25] = INFINITY; v[67] = NAN; v[101] = -INFINITY; w[13] = INFINITY; w[334] = INFINITY; w[515] = NAN; w[606] = -0.0f; v[606] = -0.0f;
    output(b, recur(b, x, f, 0, false));)

/* A state of d by e numbers with decay, read by q: for each head, each row of the state, or each column. */
static void state_of(Bench *b, int64_t heads, int64_t steps, int64_t d, int64_t e, int form, bool back)
{
    Graph *g = b->g;
    Node *q = input(b, DT_f32, DIMS(heads, steps, d)), *k = input(b, DT_f32, DIMS(heads, steps, d)), *v = input(b, DT_f32, DIMS(heads, steps, e));
    Node *f = input(b, DT_f32, DIMS(heads, steps, form == 1 ? d : 1, form == 2 ? e : 1));
    next(b);
    Node *s = recur(b, g2(g, OP_mul, g_unsqueeze(g, k, 3), g_unsqueeze(g, v, 2)), fading(b, f), 1, back);
    output(b, g_squeeze(g, g_matmul(g, g_unsqueeze(g, q, 2), s), 2));
}
RECURS(state_head, 1e-4, 2, state_of(b, 3, 50, 20, 37, 0, false);)
RECURS(state_rows, 1e-4, 2, state_of(b, 2, 33, 16, 64, 1, false);)
RECURS(state_columns, 1e-4, 2, state_of(b, 2, 33, 7, 64, 2, true);)
RECURS(state_one_step, 1e-4, 0, state_of(b, 2, 1, 7, 64, 0, false);)

/* Against a loop in double: what is read of a state, and the plain recurrence. */
static void double_item(Ctx *cx, void *arg)
{
    enum { S = 300, D = 24, E = 40 };
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    state_of(b, 1, S, D, E, 1, false);
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    Tensor got = { 0 };
    assert_int_equal(segment_kernels(s), 2);
    segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
    const float *q = b->in[0].data, *k = b->in[1].data, *v = b->in[2].data, *f = b->in[3].data, *y = got.data;
    double *c = NEWS(b->a, double, D * E);
    for (int t = 0; t < S; t++)
        for (int e = 0; e < E; e++) {
            double want = 0, size = 0;
            for (int d = 0; d < D; d++) {
                const double keep = 1 / (1 + exp(-(double)f[t * D + d]));
                c[d * E + e] = keep * c[d * E + e] + (double)k[t * D + d] * (double)v[t * E + e];
                want += (double)q[t * D + d] * c[d * E + e];
                size += fabs((double)q[t * D + d] * c[d * E + e]);
            }
            if (fabs((double)y[t * E + e] - want) > 4e-6 * (1 + size)) fail_msg("step %d, place %d: %.9g, wanted %.9g", t, e, (double)y[t * E + e], want);
        }
    segment_free(s);
    arena_free(b->a);
}

static void state_in_double(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, double_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

/* Any float type, axis, direction and length; sometimes two of them, sometimes sizes that are symbols. */
static uint64_t seed_now;
static uint64_t draw(uint64_t *at, uint64_t n) { return random_word(seed_now, (*at)++) % n; }
static void random_graph(Bench *b)
{
    static const DType types[] = { DT_f32, DT_f32, DT_f64, DT_f16, DT_bf16 };
    static const int64_t sizes[] = { 1, 2, 3, 7, 16, 17, 33, 64, 100 };
    uint64_t at = 0;
    int rank = 1 + (int)draw(&at, 3), axis = (int)draw(&at, (uint64_t)rank);
    int64_t dims[3];
    const char *sym[3] = { NULL };
    for (int k = 0; k < rank; k++) { dims[k] = sizes[draw(&at, COUNT_OF(sizes))]; if (draw(&at, 3) == 0) sym[k] = arena_fmt(b->a, "n%d", k); }
    DType t = types[draw(&at, COUNT_OF(types))];
    Node *x = input_of(b, t, rank, dims, sym), *f = input_of(b, t, rank, dims, sym);
    next(b);
    Node *y = g2(b->g, OP_add, x, g_cast(b->g, number_of(b, 1), t));
    for (int k = 0; k < 1 + (int)draw(&at, 2); k++) {
        y = recur(b, y, draw(&at, 2) ? fading(b, f) : g_cast(b->g, number_of(b, 0.5), t), axis, draw(&at, 2));
        if (draw(&at, 2)) y = g2(b->g, OP_sub, y, x);
        if (draw(&at, 3) == 0) y = g_scan(b->g, FOLD_max, y, axis, draw(&at, 2), draw(&at, 2));
        if (draw(&at, 3) == 0) output(b, y);
    }
    output(b, g1(b->g, OP_neg, y));
}

static void random_graphs(void **state)
{
    for (seed_now = 1; seed_now <= 40; seed_now++) check(state, random_graph, 3e-2, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);       /* t_recur NAME: with * and ? */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns), cmocka_unit_test(columns_back), cmocka_unit_test(first_axis), cmocka_unit_test(last_axis), cmocka_unit_test(last_back), cmocka_unit_test(one_row),
        cmocka_unit_test(one_place), cmocka_unit_test(one_first), cmocka_unit_test(no_places), cmocka_unit_test(beside_sum), cmocka_unit_test(narrow), cmocka_unit_test(not_finite),
        cmocka_unit_test(state_head), cmocka_unit_test(state_rows), cmocka_unit_test(state_columns), cmocka_unit_test(state_one_step), cmocka_unit_test(state_in_double), cmocka_unit_test(random_graphs),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
