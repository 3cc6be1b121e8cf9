/* Running folds with what is computed before, beside and after them: one kernel, right in every direction, along every axis, for every element type; against the
 * interpreter, and sums against a loop in double. */
#include "graphs.h"

static Node *number_of(Bench *b, double v) { return g_scalar(b->g, DT_f32, v); }

static Node *running(Bench *b, FoldKind kind, Node *x, int axis, int form)
{
    next(b);
    Node *y = g_scan(b->g, kind, x, axis, form & 1, form & 2);
    next(b);
    return y;
}

/* log(cumsum(exp(x))) in its four directions; values against a loop in double. */
enum { ROWS = 5, STEPS = 1003 };
static void against_double(Bench *b, int form, const float *got)
{
    const float *x = b->in[0].data;
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int k = 0; k < STEPS; k++) {
            int j = form & 2 ? STEPS - 1 - k : k;
            double own = exp((double)x[i * STEPS + j]), want = log(form & 1 ? sum : sum + own);
            sum += own;
            double have = got[i * STEPS + j];
            if (!(have == want || fabs(have - want) <= 1e-6 * fmax(1, fabs(want)))) fail_msg("form %d, row %d, place %d: %.9g, wanted %.9g", form, i, j, have, want);
        }
    }
}

static void directions_item(Ctx *cx, void *arg)
{
    Bench *b = arg;
    for (int form = 0; form < 4; form++) {
        b->nin = 0;
        b->a = arena_new(cx);
        b->g = graph_new(cx, b->a);
        Node *x = input(b, DT_f32, DIMS(ROWS, STEPS));
        next(b);
        output(b, g1(b->g, OP_log, running(b, FOLD_sum, g1(b->g, OP_exp, x), 1, form)));
        for (int fuse = 0; fuse < 2; fuse++) {
            Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = fuse });
            Tensor got = { 0 };
            assert_int_equal(segment_kernels(s), fuse ? 1 : 3);
            segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
            against_double(b, form, got.data);
            segment_free(s);
        }
        arena_free(b->a);
    }
}

static void directions(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, directions_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

/* A gated recurrence written with running sums: h = a * cumsum(x / a), a = exp(cumsum(log g)). */
static void gated_of(Bench *b, int rank, const int64_t *dims, int axis)
{
    Node *g = input(b, DT_f32, rank, dims), *x = input(b, DT_f32, rank, dims);
    next(b);
    g = g2(b->g, OP_add, g2(b->g, OP_mul, g1(b->g, OP_abs, g), number_of(b, 0.01)), number_of(b, 0.95));
    next(b);
    Node *a = g1(b->g, OP_exp, running(b, FOLD_sum, g1(b->g, OP_log, g), axis, 0));
    next(b);
    Node *h = running(b, FOLD_sum, g2(b->g, OP_div, x, a), axis, 0);
    next(b);
    output(b, g2(b->g, OP_mul, a, h));
}

#define SCANS(name, tolerance, kernels, ...) \
    static void name##_graph(Bench *b) { __VA_ARGS__ } \
    static void name(void **state) { check(state, name##_graph, tolerance, kernels); }

SCANS(gated, 2e-5, 1, gated_of(b, DIMS(7, 133), 1);)
SCANS(gated_columns, 2e-5, 1, gated_of(b, DIMS(3, 133, 21), 1);)
SCANS(gated_short, 2e-5, 1, gated_of(b, DIMS(133, 7), 1);)
SCANS(gated_one, 2e-5, 1, gated_of(b, DIMS(300), 0);)
SCANS(both_ways, 2e-5, 1,              /* one from each end: what the second reads is read from there */
    Node *x = input(b, DT_f32, DIMS(4, 90));
    Node *e = running(b, FOLD_sum, x, 1, 0); Node *r = running(b, FOLD_sum, x, 1, 2);
    output(b, g1(b->g, OP_tanh, e)); next(b); output(b, g1(b->g, OP_tanh, r));)
SCANS(kinds_together, 2e-5, 1,         /* sum, maximum and minimum of one operand, and the sum before each place */
    Node *x = input(b, DT_f32, DIMS(4, 90));
    next(b);
    Node *y = g1(b->g, OP_sin, x);
    output(b, running(b, FOLD_sum, y, 1, 0)); output(b, running(b, FOLD_max, y, 1, 0)); output(b, running(b, FOLD_min, y, 1, 0)); output(b, running(b, FOLD_sum, y, 1, 1));)
SCANS(shares, 2e-5, 1,                 /* the part of the whole so far; a bias of each row and one of each place */
    Node *x = input(b, DT_f32, DIMS(4, 3, 90)); Node *row = input(b, DT_f32, DIMS(4, 1, 1)); Node *place = input(b, DT_f32, DIMS(90));
    next(b);
    x = g1(b->g, OP_exp, g2(b->g, OP_add, x, row));
    Node *y = g2(b->g, OP_div, x, running(b, FOLD_sum, x, 2, 0));
    next(b);
    output(b, g2(b->g, OP_mul, y, place));)
SCANS(shares_back, 2e-5, 1,
    Node *x = input(b, DT_f32, DIMS(4, 3, 90)); Node *place = input(b, DT_f32, DIMS(90));
    next(b);
    x = g2(b->g, OP_add, g1(b->g, OP_exp, x), place);
    Node *y = g2(b->g, OP_div, x, running(b, FOLD_sum, x, 2, 2));
    next(b);
    output(b, g2(b->g, OP_mul, y, place)); output(b, x);)
SCANS(along_rows_back, 2e-5, 1,
    Node *x = input(b, DT_f32, DIMS(50, 37));
    next(b);
    output(b, g1(b->g, OP_exp, g1(b->g, OP_neg, running(b, FOLD_sum, g1(b->g, OP_exp, x), 0, 3))));)
SCANS(pieces, 2e-5, 0,                 /* pieces of a join */
    Node *x = input(b, DT_f32, DIMS(5, 40)); Node *y = running(b, FOLD_sum, g1(b->g, OP_exp, x), 1, 0);
    Node *in[2] = { y, x };
    output(b, g_join(b->g, 2, in, 1)); output(b, g1(b->g, OP_neg, y));)
SCANS(products, 1e-4, 3,               /* element by element: what goes by lanes stays apart */
    Node *x = input(b, DT_f32, DIMS(5, 40));
    next(b);
    x = g1(b->g, OP_exp, g2(b->g, OP_mul, x, number_of(b, 0.01)));
    output(b, g1(b->g, OP_log, running(b, FOLD_prod, x, 1, 0)));)
SCANS(products_beside, 1e-4, 1,
    Node *x = input(b, DT_f32, DIMS(5, 40, 9));
    next(b);
    x = g1(b->g, OP_exp, g2(b->g, OP_mul, x, number_of(b, 0.01)));
    output(b, g1(b->g, OP_log, running(b, FOLD_prod, x, 1, 0)));)
/* 0 times what would be too large; infinities of both signs; NaN */
SCANS(not_finite, 1e-5, 1,
    Node *x = input(b, DT_f32, DIMS(6, 60));
    float *v = b->in[0].data;
    v[0] = 0; v[1] = v[2] = 1e38f; v[70] = INFINITY; v[100] = -INFINITY; v[130] = NAN; v[200] = -INFINITY; v[250] = -0.0f;
    next(b);
    x = g1(b->g, OP_neg, x);
    output(b, g1(b->g, OP_neg, running(b, FOLD_sum, x, 1, 0))); output(b, g1(b->g, OP_abs, running(b, FOLD_max, x, 1, 1))); output(b, running(b, FOLD_min, x, 1, 0));)
SCANS(product_of_zero, 1e-5, 0,
    Node *x = input(b, DT_f32, DIMS(2, 60));
    float *v = b->in[0].data;
    for (int j = 0; j < 120; j++) v[j] = j % 60 == 0 ? 0 : 1e30f;
    next(b);
    output(b, g1(b->g, OP_neg, running(b, FOLD_prod, x, 1, 0)));)
SCANS(truth, 0, 1,
    Node *x = input(b, DT_f32, DIMS(6, 60));
    next(b);
    Node *t = g2(b->g, OP_lt, x, number_of(b, 1.5));
    output(b, g1(b->g, OP_not, running(b, FOLD_min, t, 1, 0)));)
SCANS(one_place, 1e-6, 0,
    Node *x = input(b, DT_f32, DIMS(6, 1));
    next(b);
    for (int form = 0; form < 4; form++) output(b, g1(b->g, OP_exp, running(b, FOLD_sum, g1(b->g, OP_exp, x), 1, form)));)
SCANS(no_places, 1e-6, 0,
    Node *x = input(b, DT_f32, DIMS(6, 0));
    next(b);
    for (int form = 0; form < 4; form++) output(b, g1(b->g, OP_exp, running(b, FOLD_sum, g1(b->g, OP_exp, x), 1, form)));)
SCANS(padded, 1e-5, 0,                 /* moved by two places, or filled with something else: no running fold before its place */
    Node *x = input(b, DT_f32, DIMS(6, 50));
    next(b);
    Node *e = g1(b->g, OP_exp, x); Dim *before[2] = { dim_const(b->g, 0), dim_const(b->g, 2) }; Dim *after[2] = { dim_const(b->g, 0), dim_const(b->g, -2) };
    output(b, running(b, FOLD_sum, g_pad(b->g, e, before, after, (Scalar){ 0 }), 1, 0));
    before[1] = dim_const(b->g, 1); after[1] = dim_const(b->g, -1);
    output(b, running(b, FOLD_sum, g_pad(b->g, e, before, after, (Scalar){ .f = 3 }), 1, 0));
    output(b, running(b, FOLD_max, g_pad(b->g, e, before, after, (Scalar){ 0 }), 1, 0));)
SCANS(sliced, 1e-5, 0,                 /* what reads it elsewhere than where it is computed stays apart */
    Node *x = input(b, DT_f32, DIMS(6, 50)); Node *c = running(b, FOLD_sum, g1(b->g, OP_exp, x), 1, 0);
    output(b, g1(b->g, OP_log, g_slice(b->g, c, 1, dim_const(b->g, 49), dim_const(b->g, 1), 1)));
    next(b);
    output(b, g2(b->g, OP_sub, g_slice(b->g, c, 1, dim_const(b->g, 10), dim_const(b->g, 40), 1), g_slice(b->g, c, 1, dim_const(b->g, 0), dim_const(b->g, 40), 1)));
    output(b, g1(b->g, OP_neg, g_transpose(b->g, c, (int[]){ 1, 0 })));)

/* Linear attention: running sums of outer products k v, times q: a state of d by e numbers, and no step of it in memory. product: as a product of matrices. */
static void linear_of(Bench *b, int64_t heads, int64_t steps, int64_t d, int64_t e, int form, bool product)
{
    Graph *g = b->g;
    Node *q = input(b, DT_f32, DIMS(heads, steps, d)), *k = input(b, DT_f32, DIMS(heads, steps, d)), *v = input(b, DT_f32, DIMS(heads, steps, e));
    next(b);
    Node *c = running(b, FOLD_sum, g2(g, OP_mul, g_unsqueeze(g, k, 3), g_unsqueeze(g, v, 2)), 1, form);
    next(b);
    output(b, product ? g_squeeze(g, g_matmul(g, g_unsqueeze(g, q, 2), c), 2) : g_fold(g, FOLD_sum, g2(g, OP_mul, g_unsqueeze(g, q, 3), c), axis_bit(2), false));
}
SCANS(linear, 1e-4, 1, linear_of(b, 3, 50, 20, 37, 0, false);)
SCANS(linear_product, 1e-4, 1, linear_of(b, 3, 50, 20, 37, 0, true);)
SCANS(linear_before, 1e-4, 1, linear_of(b, 2, 33, 7, 64, 1, false);)
SCANS(linear_back, 1e-4, 1, linear_of(b, 2, 33, 7, 64, 3, true);)
SCANS(linear_short, 1e-4, 1, linear_of(b, 1, 9, 3, 5, 0, false);)
SCANS(linear_one_step, 1e-4, 0, linear_of(b, 2, 1, 3, 5, 0, false); )
SCANS(linear_large, 1e-4, 2, linear_of(b, 1, 3, 300, 300, 0, false);)          /* a state larger than a cache is stored step by step */
SCANS(linear_kept, 1e-4, 0,                /* all steps of the state are results as well */
    Node *k = input(b, DT_f32, DIMS(20, 6, 1)); Node *v = input(b, DT_f32, DIMS(20, 1, 40));
    next(b);
    Node *c = running(b, FOLD_sum, g2(b->g, OP_mul, k, v), 0, 0);
    output(b, c); output(b, g_fold(b->g, FOLD_sum, g1(b->g, OP_tanh, c), axis_bit(1), false));)
SCANS(state_recurrence, 1e-4, 2,           /* a state with decay, normalised and read: h = a h + b x by running sums, y = sum of c h, behind it a gate */
    Graph *g = b->g; Node *a = input(b, DT_f32, DIMS(2, 40, 6, 1)); Node *u = input(b, DT_f32, DIMS(2, 40, 6, 1)); Node *x = input(b, DT_f32, DIMS(2, 40, 1, 33)); Node *c = input(b, DT_f32, DIMS(2, 40, 6, 1)); Node *z = input(b, DT_f32, DIMS(2, 40, 33));
    next(b);
    Node *l = running(b, FOLD_sum, g2(g, OP_mul, g1(g, OP_abs, a), number_of(b, -0.02)), 1, 0); Node *h = running(b, FOLD_sum, g2(g, OP_mul, g2(g, OP_mul, g1(g, OP_exp, g1(g, OP_neg, l)), u), x), 1, 0);
    next(b);
    Node *y = g_fold(g, FOLD_sum, g2(g, OP_mul, g2(g, OP_mul, g1(g, OP_exp, l), h), c), axis_bit(2), false);
    next(b);
    output(b, g2(g, OP_mul, y, g1(g, OP_sigmoid, z)));)
SCANS(largest_of_state, 1e-5, 1,
    Node *k = input(b, DT_f32, DIMS(20, 6, 1)); Node *v = input(b, DT_f32, DIMS(20, 1, 40));
    next(b);
    output(b, g1(b->g, OP_neg, g_fold(b->g, FOLD_min, running(b, FOLD_max, g2(b->g, OP_add, k, v), 0, 1), axis_bit(1), false)));)

/* Against a loop in double. */
static void linear_item(Ctx *cx, void *arg)
{
    enum { S = 300, D = 24, E = 40 };
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    linear_of(b, 1, S, D, E, 0, true);
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    Tensor got = { 0 };
    assert_int_equal(segment_kernels(s), 1);
    segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
    check_state(b->a, S, D, E, b->in[0].data, b->in[1].data, b->in[2].data, NULL, got.data);
    segment_free(s);
    arena_free(b->a);
}

static void linear_in_double(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, linear_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

/* Any element type, kind, axis, direction and length; sometimes two of them, sometimes sizes that are symbols. */
static void random_graph(Bench *b)
{
    static const DType types[] = { DT_f32, DT_f32, DT_f64, DT_f16, DT_bf16, DT_i32, DT_i64, DT_u8, DT_u32, DT_u64, DT_i16 };
    static const FoldKind kinds[] = { FOLD_sum, FOLD_sum, FOLD_max, FOLD_min, FOLD_prod };
    uint64_t at = 0;
    int64_t dims[3];
    const char *sym[3];
    int axis, rank = draw_sizes(b, &at, &axis, dims, sym);
    DType t = types[seed_draw(&at, COUNT_OF(types))];
    Node *x = input_of(b, t, rank, dims, sym);
    next(b);
    Node *y = g2(b->g, OP_add, x, g_cast(b->g, number_of(b, 1), t));
    for (int k = 0; k < 1 + (int)seed_draw(&at, 2); k++) {
        FoldKind kind = kinds[seed_draw(&at, COUNT_OF(kinds))];
        if (kind == FOLD_prod && dtype_is_float(t)) y = g2(b->g, OP_min, g2(b->g, OP_max, y, g_cast(b->g, number_of(b, -1), t)), g_cast(b->g, number_of(b, 1), t));
        y = running(b, kind, y, axis, (int)seed_draw(&at, 4));
        if (seed_draw(&at, 2)) y = g2(b->g, OP_sub, y, x);
        if (seed_draw(&at, 3) == 0) output(b, y);
    }
    output(b, g1(b->g, OP_neg, y));
}

static void random_graphs(void **state)
{
    for (seed_now = 1; seed_now <= 60; seed_now++) check(state, random_graph, 3e-2, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);       /* t_scan NAME: with * and ? */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directions), cmocka_unit_test(gated), cmocka_unit_test(gated_columns), cmocka_unit_test(gated_short), cmocka_unit_test(gated_one), cmocka_unit_test(both_ways),
        cmocka_unit_test(kinds_together), cmocka_unit_test(shares), cmocka_unit_test(shares_back), cmocka_unit_test(along_rows_back), cmocka_unit_test(pieces), cmocka_unit_test(products),
        cmocka_unit_test(products_beside), cmocka_unit_test(not_finite), cmocka_unit_test(product_of_zero), cmocka_unit_test(truth), cmocka_unit_test(one_place), cmocka_unit_test(no_places),
        cmocka_unit_test(padded), cmocka_unit_test(sliced), cmocka_unit_test(linear), cmocka_unit_test(linear_product), cmocka_unit_test(linear_before), cmocka_unit_test(linear_back),
        cmocka_unit_test(linear_short), cmocka_unit_test(linear_one_step), cmocka_unit_test(linear_large), cmocka_unit_test(linear_kept), cmocka_unit_test(state_recurrence), cmocka_unit_test(largest_of_state), cmocka_unit_test(linear_in_double), cmocka_unit_test(random_graphs),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
