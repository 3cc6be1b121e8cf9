/* Programs of small graphs, fused and not, against the reference interpreter. Most of them are the smallest forms of what the random-graph test
 * (tests/fuzz) once found wrong; where it matters how a graph is cut into kernels, their number is tested too. */
#include "graphs.h"

/* ---- reductions over rows --------------------------------------------------------------------------------------------- */
static void softmax_graph(Bench *b)
{
    next(b);
    output(b, g_softmax(b->g, input(b, DT_f32, DIMS(5, 40)), 2, false));
}
static void rows_softmax(void **state) { check(state, softmax_graph, 1e-5, 1); }

/* A value of the row is asked for before the fold that it is divided by. */
static void late_fold_graph(Bench *b)
{
    Node *e = g1(b->g, OP_exp, input(b, DT_f32, DIMS(8)));
    output(b, g2(b->g, OP_div, e, g_fold(b->g, FOLD_sum, e, 1, true)));
}
static void rows_late_fold(void **state) { check(state, late_fold_graph, 1e-5, 1); }

static void one_element_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(1)), *m = input(b, DT_f32, DIMS(9, 1));
    output(b, g_argfold(b->g, FOLD_argmin, x, 0, false, false));
    output(b, g_argfold(b->g, FOLD_argmax, m, 1, true, true));
    output(b, g_scan(b->g, FOLD_min, m, 1, false, false));
    output(b, g_scan(b->g, FOLD_prod, x, 0, true, true));
}
static void folds_over_one_element(void **state) { check(state, one_element_graph, 0, 0); }

/* The first NaN is the largest and the smallest, also for the last of equals. */
static void arg_nan_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(7, 33));
    for (int j = 0; j < 7; j++)
        for (int k = 0; k < 33; k++)
            if ((k + j) % 5 == 2 && j) ((float *)b->in[0].data)[33 * j + k] = j == 6 ? 3.5f : NAN;
    for (int last = 0; last < 2; last++) {
        output(b, g_argfold(b->g, FOLD_argmax, x, 1, false, last));
        output(b, g_argfold(b->g, FOLD_argmin, x, 1, false, last));
        output(b, g_argfold(b->g, FOLD_argmin, x, 0, false, last));
    }
}
static void argfolds_with_nan(void **state) { check(state, arg_nan_graph, 0, 0); }

/* ---- indices ------------------------------------------------------------------------------------------------------------ */
/* Two views of one value whose axes meet in the result: every pair is needed, not the diagonal. */
static void pairs_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = g1(g, OP_abs, input(b, DT_f32, DIMS(7, 3)));
    next(b);
    Node *t = g_transpose(g, x, (int[]){ 1, 0 });
    output(b, g2(g, OP_mul, g_unsqueeze(g, x, 1), g_unsqueeze(g, g_transpose(g, t, (int[]){ 1, 0 }), 0)));
}
static void pairs_of_one_value(void **state) { check(state, pairs_graph, 0, 0); }

static void gathered_graph(Bench *b)
{
    Graph *g = b->g;
    static const char *const sym[4] = { NULL, NULL, "N", NULL };
    Node *x = g1(g, OP_tanh, input_of(b, DT_f32, DIMS(1, 4, 12, 4), sym)), *i = g_cast(g, input(b, DT_i16, DIMS(12)), DT_i64);
    next(b);
    Node *at[3], *dims[3] = { g_dims(g, 0, 1, &x->dims[0]), g_dims(g, 0, 1, &x->dims[1]), g_dims(g, 0, 1, &x->dims[2]) };
    Dim *d[2] = { dim_const(g, 12), dim_const(g, 12) }, *idx[4];
    for (int k = 0; k < 3; k++) {
        at[k] = g_expand(g, g2(g, OP_mod, i, dims[k]), 2, d);
        idx[k] = dim_idx(g, DIM_OPERAND + k, x->dims[k]);
    }
    idx[3] = dim_const(g, 0);
    output(b, g_gather(g, x, 3, at, 2, d, &(View){ .nidx = 4, .idx = idx }));
}
static void gathers_of_what_is_computed(void **state) { check(state, gathered_graph, 1e-5, 0); }

/* Lane by lane in tails of several vectors: a loop over the lanes that are left ends where the vector does. */
static void picked_columns_graph(Bench *b)
{
    static const int64_t width[] = { 3, 5, 7, 11, 13, 19, 24, 27, 40, 45, 55 };
    Graph *g = b->g;
    Node *table = input(b, DT_i32, DIMS(9));
    for (size_t i = 0; i < COUNT_OF(width); i++) {
        Node *x = input(b, DT_i32, DIMS(9, width[i])), *at = g_argfold(g, FOLD_argmin, x, 0, false, false);
        next(b);
        output(b, g_gather_axis(g, table, g_cast(g, g_cast(g, g2(g, OP_sub, at, g_int(g, DT_i64, 9)), DT_i32), DT_i64), 0));
        next(b);
    }
}
static void tails_lane_by_lane(void **state) { check(state, picked_columns_graph, 0, 0); }

/* ---- results --------------------------------------------------------------------------------------------------------------- */
static void view_output_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(30)), *s = g_fold(g, FOLD_sum, x, 1, true);
    next(b);
    output(b, s);
    output(b, g_join(g, 3, (Node *[]){ s, x, g_flip(g, x, 0) }, 0));
    next(b);
    Node *f = g_flip(g, x, 0);
    output(b, f);
    output(b, g1(g, OP_neg, f));
    output(b, x);
}
static void views_as_results(void **state) { check(state, view_output_graph, 1e-5, 0); }

/* An element of a constant that a size picks is no constant. */
static void picked_graph(Bench *b)
{
    Graph *g = b->g;
    static const char *const sym[4] = { "N", NULL, NULL, NULL };
    Node *x = input_of(b, DT_f32, DIMS(1, 40), sym), *c = g_cast(g, g_ints(g, 5, (int64_t[]){ 3, 1, 4, 1, 5 }), DT_f32);
    Dim *at = dim_mod(g, x->dims[0], dim_const(g, 5));
    Node *one = g_view(g, g1(g, OP_sqrt, c), 0, NULL, &(View){ .nidx = 1, .idx = &at });
    output(b, g1(g, OP_exp, one));
    output(b, g2(g, OP_mul, x, one));
}
static void constants_by_sizes(void **state) { check(state, picked_graph, 1e-5, 0); }

static void random_graph(Bench *b)
{
    Dim *d = dim_const(b->g, 33);
    output(b, g_random(b->g, g_int(b->g, DT_u64, 19), 1, &d));
}
static void random_words(void **state) { check(state, random_graph, 0, 1); }

static void empty_graph(Bench *b)
{
    Graph *g = b->g;
    static const char *const sym[4] = { "N", NULL, NULL, NULL };
    Node *x = input_of(b, DT_f32, DIMS(3, 0, 0, 3), sym), *y = input_of(b, DT_f32, DIMS(3, 0, 3), sym);
    Node *v = g1(g, OP_acosh, y);
    next(b);
    output(b, g2(g, OP_mul, x, g_reshape(g, v, 4, x->dims)));
    output(b, g_fold(g, FOLD_max, v, 2, false));
    Node *a = input(b, DT_f32, DIMS(2, 2, 2, 0)), *c = g2(g, OP_mul, a, a);
    Node *left = g2(g, OP_max, c, input(b, DT_f32, DIMS(2, 2, 2, 0)));
    Node *right = g2(g, OP_max, g_transpose(g, c, (int[]){ 0, 1, 3, 2 }), input(b, DT_f32, DIMS(2, 2, 0, 2)));
    next(b);
    output(b, g_matmul(g, left, right));
}
static void values_without_elements(void **state) { check(state, empty_graph, 0, 0); }

/* An opaque function with two results, of which one serves nobody: it has a place to write it nevertheless. */
static void twice(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)cx; (void)a; (void)call;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].rank, 1);
        assert_int_equal(out[k].dims[0], 3000);
        for (int64_t j = 0; j < 3000; j++) ((float *)out[k].data)[j] = (float)(k + 1) * ((const float *)in->data)[j];
    }
}
static const CallDef twice_call = { .name = "twice", .dynamic = false, .eval = twice };

static void unused_result_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(3000)), *f = g_flip(b->g, g1(b->g, OP_neg, x), 0);
    Node **part = g_call(b->g, &(Call){ .def = &twice_call, .nin = 1, .nout = 2, .out_dt = (DType[]){ DT_f32, DT_f32 } }, &f, (int[]){ 1, 1 }, (Dim *const *[]){ f->dims, f->dims });
    output(b, part[1]);
}
static void unused_result_of_a_call(void **state) { check(state, unused_result_graph, 0, 0); }

/* A number that each part of a kernel of rows reads, and another one that each part writes: not into its place. */
static void same(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)cx; (void)a; (void)call;
    memcpy(out->data, in->data, tensor_bytes(in));
}
static const CallDef same_call = { .name = "same", .dynamic = false, .eval = same };

static void number_graph(Bench *b)
{
    Graph *g = b->g;
    Node *u = input(b, DT_f32, 0, NULL), *x = input(b, DT_f32, DIMS(256, 1500)), *i = input(b, DT_u8, DIMS(50));
    Node *m = g_call(g, &(Call){ .def = &same_call, .nin = 1, .nout = 1, .out_dt = (DType[]){ DT_f32 } }, &u, (int[]){ 0 }, (Dim *const *[]){ u->dims })[0];
    next(b);
    Node *rows = g_fold(g, FOLD_max, g2(g, OP_mul, x, u), 2, false);
    next(b);
    Node *n = g2(g, OP_sub, m, u);
    next(b);
    output(b, g2(g, OP_sub, n, g_gather_axis(g, rows, g_cast(g, i, DT_i64), 0)));
}
static void numbers_of_all_parts(void **state) { check(state, number_graph, 1e-6, 0); }

/* Updates and indices that are the same along the last axis. */
static void scatter_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_bf16, DIMS(17)), *one = input(b, DT_bf16, DIMS(1)), *i = input(b, DT_u8, DIMS(15, 1));
    Dim *d[2] = { dim_const(g, 15), dim_const(g, 15) }, *idx = dim_idx(g, DIM_OPERAND, x->dims[0]);
    Node *at = g_expand(g, g2(g, OP_mod, g_cast(g, i, DT_i64), g_dims(g, 0, 1, &x->dims[0])), 2, d);
    next(b);
    for (int how = COMBINE_max; how < COMBINE_COUNT; how++)
        output(b, g_scatter(g, x, g_expand(g, one, 2, d), 1, &at, &(View){ .nidx = 1, .idx = &idx }, (Combine)how));
    output(b, g_scatter(g, input(b, DT_i32, DIMS(17)), g_expand(g, input(b, DT_i32, DIMS(1)), 2, d), 1, &at, &(View){ .nidx = 1, .idx = &idx }, COMBINE_add));
}
static void scatters_of_one_value(void **state) { check(state, scatter_graph, 0, 0); }

/* What is indexed has no elements: an error where there are indices, and no result where there are none. */
static void empty_axis_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(0, 3)), *i = g_cast(g, input(b, DT_i32, DIMS(0)), DT_i64), *y = g1(g, OP_exp, x);
    output(b, g_gather_axis(g, y, i, 0));
    output(b, g_fold(g, FOLD_sum, g_gather_axis(g, y, i, 0), 1, false));
}
static void gathers_from_nothing(void **state) { check(state, empty_axis_graph, 0, 0); }

/* A kernel that writes a piece of a join may not take in what reads the join elsewhere. */
static void join_read_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_i32, DIMS(6)), *c = input(b, DT_i32, DIMS(6)), *j = g_join(g, 3, (Node *[]){ x, x, x }, 0);
    Dim *d = dim_const(g, 6);
    Node *e = g_expand(g, g_slice(g, j, 0, dim_const(g, 13), dim_const(g, 1), 1), 1, &d);
    Node *first = g2(g, OP_add, c, x), *second = g2(g, OP_add, e, c);
    output(b, g2(g, OP_mul, first, second));
}
static void joins_read_elsewhere(void **state) { check(state, join_read_graph, 0, 0); }

/* A value of fewer axes is not computed in a kernel over points of which there may be none. */
static void no_points_graph(Bench *b)
{
    Graph *g = b->g;
    static const char *const sym[1] = { "N" };
    Node *x = input_of(b, DT_f32, DIMS(15), sym), *none = input(b, DT_f32, DIMS(0, 1, 1));
    output(b, g1(g, OP_exp, g2(g, OP_max, x, none)));
    output(b, g_gather_axis(g, x, g_int(g, DT_i64, 3), 0));
    output(b, g1(g, OP_neg, g_gather_axis(g, x, g_int(g, DT_i64, 2), 0)));
}
static void values_beside_no_points(void **state) { check(state, no_points_graph, 1e-5, 0); }

/* Pairs are too short for lanes: these run over the longer axis, where there is much to compute for what lies 2 or 4 apart, as of boxes by their corners or middles. */
static void boxes_graph(Bench *b)
{
    Graph *g = b->g;
    const int64_t n = b->nin ? 37 : 300;
    b->nin = 0;
    Node *x = input(b, DT_f32, DIMS(1, n, 4)), *place = input(b, DT_f32, DIMS(1, n, 2)), *size = input(b, DT_f32, DIMS(1, n, 2));
    Dim *none = dim_const(g, 0), *two = dim_const(g, 2);
    next(b);
    Node *middle = g2(g, OP_add, g2(g, OP_mul, g_slice(g, x, 2, none, two, 1), size), place);
    Node *extent = g2(g, OP_mul, g1(g, OP_exp, g_slice(g, x, 2, two, two, 1)), size);
    output(b, g_join(g, 2, (Node *[]){ middle, extent }, 2));
    next(b);
    output(b, g1(g, OP_tanh, g_slice(g, x, 2, dim_const(g, 1), two, 1)));
    output(b, g1(g, OP_exp, g_slice(g, x, 2, none, two, 3)));
}
static void boxes_few_graph(Bench *b) { b->nin = 1; boxes_graph(b); }
static void boxes_along_a_long_axis(void **state) { check(state, boxes_graph, 1e-6, 0); check(state, boxes_few_graph, 1e-6, 0); }

/* What a kernel reads at another place than it computes is not taken over into it: each of a chain's links would compute all links before it twice. */
static void shifted_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(6, 40));
    Dim *none[2] = { dim_const(g, 0), dim_const(g, 0) }, *one[2] = { none[0], dim_const(g, 1) }, *less[2] = { none[0], dim_const(g, -1) };
    for (int k = 0; k < 24; k++) x = g2(g, OP_sub, x, g1(g, OP_tanh, g_pad(g, x, one, less, (Scalar){ .f = 0 })));
    output(b, x);
}
static void chosen_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(6, 40)), *at = g2(g, OP_mod, g_cast(g, input(b, DT_i32, DIMS(6)), DT_i64), g_int(g, DT_i64, 6));
    next(b);
    for (int k = 0; k < 24; k++) x = g2(g, OP_sub, x, g1(g, OP_tanh, g_gather_axis(g, x, at, 0)));
    output(b, x);
}
static void skipped_graph(Bench *b)
{
    Graph *g = b->g;
    Node *t = g1(g, OP_tanh, input(b, DT_f32, DIMS(32, 32)));
    output(b, g2(g, OP_add, g_matmul(g, t, input(b, DT_f32, DIMS(32, 32))), t));
}
static void chains_of_shifts(void **state)
{
    check(state, shifted_graph, 1e-5, 24);
    check(state, chosen_graph, 1e-5, 0);
    check(state, skipped_graph, 1e-5, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_softmax),
        cmocka_unit_test(rows_late_fold),
        cmocka_unit_test(folds_over_one_element),
        cmocka_unit_test(argfolds_with_nan),
        cmocka_unit_test(pairs_of_one_value),
        cmocka_unit_test(gathers_of_what_is_computed),
        cmocka_unit_test(tails_lane_by_lane),
        cmocka_unit_test(views_as_results),
        cmocka_unit_test(constants_by_sizes),
        cmocka_unit_test(random_words),
        cmocka_unit_test(values_without_elements),
        cmocka_unit_test(unused_result_of_a_call),
        cmocka_unit_test(values_beside_no_points),
        cmocka_unit_test(joins_read_elsewhere),
        cmocka_unit_test(gathers_from_nothing),
        cmocka_unit_test(numbers_of_all_parts), cmocka_unit_test(scatters_of_one_value), cmocka_unit_test(boxes_along_a_long_axis), cmocka_unit_test(chains_of_shifts),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
