/* Contractions of one operand with different constants, few rows: one kernel, the same values. Sums are added in the same order, so the interpreter must give the same
 * bits for the graph before and after; kernels are compared with it. */
#include "graphs.h"
#include "fuse/fuse.h"

static Node *weights(Bench *b, int rank, const int64_t *dims)
{
    Tensor *t = tensor_new(b->a, b->cx, DT_f32, rank, dims);
    uint64_t seed = 500 + (uint64_t)b->g->node.n;
    for (int64_t j = 0; j < tensor_count(t); j++) ((float *)t->data)[j] = (float)((random_word(seed, (uint64_t)j) >> 11) % 2001) / 1000 - 1;
    return g_const(b->g, t);
}

static Node *product(Bench *b, Node *x, int64_t width)
{
    next(b);
    return g_matmul(b->g, x, weights(b, DIMS(x->dims[x->rank - 1]->c, width)));
}

static Node *biased(Bench *b, Node *x)
{
    next(b);
    return g2(b->g, OP_add, x, weights(b, DIMS(x->dims[x->rank - 1]->c)));
}

static Node *relu(Bench *b, Node *x) { next(b); return g2(b->g, OP_max, x, g_scalar(b->g, DT_f32, 0)); }
static Node *sum_of(Bench *b, Node *x) { next(b); return g_fold(b->g, FOLD_sum, g2(b->g, OP_mul, x, x), 1u << (x->rank - 1), false); }

/* ---- the pass ---------------------------------------------------------------------------------------------------------------------------- */
typedef struct PassItem { Bench *b; void (*build)(Bench *b); int made; const char *why; } PassItem;

static void pass_run(Ctx *cx, void *arg)
{
    PassItem *it = arg;
    Bench *b = it->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    it->build(b);
    int n = b->g->output.n;
    Refusals why = { 0 };
    Tensor *want = NEWS(b->a, Tensor, n + 1), *now = NEWS(b->a, Tensor, n + 1);
    interp_segment(cx, b->a, b->g, b->in, want);
    int made = siblings_choose(cx, b->a, b->g, 0, &why);
    graph_check(cx, b->g);
    if (it->made >= 0 && made != it->made) fail_msg("%d families, wanted %d", made, it->made);
    if (it->why) { assert_true(why.n > 0); assert_non_null(strstr(why.at[0].why, it->why)); }
    interp_segment(cx, b->a, b->g, b->in, now);
    for (int i = 0; i < n; i++) assert_memory_equal(now[i].data, want[i].data, tensor_bytes(&want[i]));
    run(b, true, want);
    arena_free(b->a);
}

static void pass_check(void **state, void (*build)(Bench *b), int made, const char *why)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx, .tolerance = 1e-4 };
    PassItem it = { &b, build, made, why };
    if (guard_call(&d->cx, pass_run, &it) != E_OK) fail_msg("%s", d->cx.text);
}

#define PASS(name, made, why, ...) \
    static void name##_graph(Bench *b) { Graph *g = b->g; (void)g; next(b); __VA_ARGS__ } \
    static void name(void **state) { pass_check(state, name##_graph, made, why); }

PASS(queries_keys_values, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(2, 3, 24));
    Node *q = biased(b, product(b, x, 20)); Node *k = biased(b, product(b, x, 20)); Node *v = biased(b, product(b, x, 33));
    output(b, sum_of(b, g2(g, OP_mul, q, k)));
    output(b, sum_of(b, v));)
PASS(gate_and_up, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(5, 19));
    Node *gate = product(b, x, 31); Node *up = product(b, x, 31);
    output(b, g2(g, OP_mul, g2(g, OP_mul, gate, g1(g, OP_sigmoid, gate)), up));)
PASS(bias_and_relu, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(4, 17));
    Node *p = relu(b, biased(b, product(b, x, 9))); Node *q = relu(b, biased(b, product(b, x, 21)));
    output(b, sum_of(b, p));
    output(b, sum_of(b, q));)
/* what follows differs: from there on they are apart */
PASS(one_relu, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(4, 17));
    Node *p = relu(b, biased(b, product(b, x, 9))); Node *q = biased(b, product(b, x, 21));
    output(b, sum_of(b, p));
    output(b, sum_of(b, q));)
PASS(minus_of_both_sides, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(4, 17)); Node *c = weights(b, DIMS(9)); Node *d = weights(b, DIMS(9));
    Node *p = g2(g, OP_sub, product(b, x, 9), c); Node *q = g2(g, OP_sub, d, product(b, x, 9));
    output(b, sum_of(b, p));
    output(b, sum_of(b, q));)
PASS(two_families, 2, NULL,
    Node *x = input(b, DT_f32, DIMS(6, 40)); Node *y = g1(g, OP_abs, x);
    for (int i = 0; i < 2; i++) {
        Node *p = product(b, i ? y : x, 11); Node *q = product(b, i ? y : x, 5);
        output(b, sum_of(b, p));
        output(b, sum_of(b, relu(b, q)));
    })
/* windows of one place: their axes are taken away by a view between product and sum */
PASS(convolutions, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(3, 10, 2)); Node *y[2];
    for (int i = 0; i < 2; i++) {
        int64_t width = 6 + 5 * i;
        Node *w = weights(b, DIMS(width, 10, 1));
        Dim *all[5] = { dim_const(g, 3), dim_const(g, width), dim_const(g, 2), dim_const(g, 10), dim_const(g, 1) }, *at[5];
        for (int k = 0; k < 5; k++) at[k] = dim_idx(g, k, all[k]);
        Dim *xi[3] = { at[0], at[3], at[2] }, *wi[3] = { at[1], at[3], dim_const(g, 0) };
        next(b);
        Node *p = g2(g, OP_mul, g_view(g, x, 5, all, &(View){ .nidx = 3, .idx = xi }), g_view(g, w, 5, all, &(View){ .nidx = 3, .idx = wi }));
        y[i] = relu(b, g_fold(g, FOLD_sum, g_squeeze(g, p, 4), 1u << 3, false));
        output(b, sum_of(b, y[i]));
    })
PASS(many_rows_apart, 0, "many rows", Node *x = input(b, DT_f32, DIMS(9, 24)); output(b, sum_of(b, product(b, x, 9))); output(b, sum_of(b, product(b, x, 8)));)
/* Narrow ones: with a bias that is computed when the program is made, and what reads the joined result in other rows; beside a wide one. */
PASS(narrow_ones, 1, NULL,
    Node *x = input(b, DT_f32, DIMS(37, 24));
    output(b, sum_of(b, product(b, x, 40)));
    for (int i = 0; i < 3; i++) {
        Node *y = product(b, x, 8);
        next(b);
        Node *known = g1(g, OP_exp, weights(b, DIMS(8)));
        y = relu(b, g2(g, OP_add, y, known));
        next(b);
        output(b, g_matmul(g, y, weights(b, DIMS(8, 5 + i))));
    })
PASS(narrow_and_odd, 0, "leave lanes empty", Node *x = input(b, DT_f32, DIMS(37, 24)); output(b, product(b, product(b, x, 7), 9)); output(b, product(b, product(b, x, 8), 9));)
PASS(narrow_followers_differ, 0, "what follows them differs", Node *x = input(b, DT_f32, DIMS(37, 24)); output(b, sum_of(b, relu(b, product(b, x, 8)))); output(b, sum_of(b, product(b, x, 8)));)
PASS(narrow_results, 0, "lies in memory", Node *x = input(b, DT_f32, DIMS(37, 24)); output(b, product(b, x, 8)); output(b, product(b, x, 8));)
PASS(one_row_apart, 0, "one row", Node *x = input(b, DT_f32, DIMS(1, 24)); output(b, sum_of(b, product(b, x, 8))); output(b, sum_of(b, product(b, x, 8)));)
PASS(results_apart, 0, "lies in memory", Node *x = input(b, DT_f32, DIMS(2, 24)); output(b, product(b, x, 8)); output(b, product(b, x, 8));)
PASS(other_operands, 0, NULL, output(b, sum_of(b, product(b, input(b, DT_f32, DIMS(2, 24)), 8))); output(b, sum_of(b, product(b, input(b, DT_f32, DIMS(2, 24)), 8)));)
PASS(transposed_weights, 0, NULL,
    Node *x = input(b, DT_f32, DIMS(2, 16));
    output(b, sum_of(b, product(b, x, 16)));
    next(b);
    output(b, sum_of(b, g_matmul(g, x, g_transpose(g, weights(b, DIMS(16, 16)), (int[]){ 1, 0 }))));)

/* Graphs by chance: products of one or two operands, some of the same followers, then sums of their squares. */
static uint64_t draw(Bench *b, uint64_t n) { return random_word(9000 + (uint64_t)b->nin, (uint64_t)b->g->node.n) % n; }
static int turn;
static void random_graph(Bench *b)
{
    b->nin = turn * 3;                   /* only to draw other numbers */
    uint64_t rows = 2 + draw(b, 9), length = 1 + draw(b, 40);
    b->nin = 0;
    Node *x[2] = { input(b, DT_f32, DIMS((int64_t)rows, (int64_t)length)), input(b, DT_f32, DIMS((int64_t)rows, (int64_t)length)) };
    b->nin = turn * 5 + 2;
    int n = 2 + (int)draw(b, 5);
    for (int i = 0; i < n; i++) {
        Node *y = product(b, x[draw(b, 3) == 0], 1 + (int64_t)draw(b, 24));
        for (int step = (int)draw(b, 4); step > 0; step--) y = draw(b, 3) ? biased(b, y) : draw(b, 2) ? relu(b, y) : g1(b->g, OP_abs, y);
        output(b, sum_of(b, y));
    }
    b->nin = 2;
}
static void random_graphs(void **state) { for (turn = 0; turn < 24; turn++) pass_check(state, random_graph, -1, NULL); }

/* ---- programs ---------------------------------------------------------------------------------------------------------------------------- */
/* Two of 1 MiB and one of 2 MiB, then two reductions. */
static void program_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(3, 512));
    Node *q = biased(b, product(b, x, 512)), *k = biased(b, product(b, x, 512)), *v = biased(b, product(b, x, 1024));
    next(b);
    output(b, g_fold(b->g, FOLD_sum, g2(b->g, OP_mul, q, k), 2, false));
    next(b);
    output(b, g_fold(b->g, FOLD_max, v, 2, false));
}
static void as_a_program(void **state)
{
    Shared *d = *state;
    check(state, program_graph, 1e-3, 3);
    d->cx.opt.off = "siblings";
    check(state, program_graph, 1e-3, 5);
    d->cx.opt.off = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_keys_values), cmocka_unit_test(gate_and_up), cmocka_unit_test(bias_and_relu), cmocka_unit_test(one_relu),
        cmocka_unit_test(minus_of_both_sides), cmocka_unit_test(two_families), cmocka_unit_test(convolutions), cmocka_unit_test(many_rows_apart), cmocka_unit_test(narrow_ones), cmocka_unit_test(narrow_and_odd), cmocka_unit_test(narrow_followers_differ), cmocka_unit_test(narrow_results), cmocka_unit_test(one_row_apart), cmocka_unit_test(results_apart),
        cmocka_unit_test(other_operands), cmocka_unit_test(transposed_weights), cmocka_unit_test(random_graphs), cmocka_unit_test(as_a_program),
    };
    return cmocka_run_group_tests_name("siblings", tests, open_all, close_all);
}
