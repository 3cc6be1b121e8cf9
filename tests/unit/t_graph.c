/* Graphs: equal nodes are one node, inputs make symbols and guards, constants and shape arithmetic fold,
 * long chains are quick. */
#include "test.h"
#include "ir/ir.h"
#include <math.h>
#include <string.h>

static Arena *arena;
static Graph *g;
static Ctx ctx;

static int setup_graph(void **state)
{
    (void)state;
    ctx_init(&ctx);
    ctx.opt.fail = -1;
    arena = arena_new(&ctx);
    g = graph_new(&ctx, arena);
    return 0;
}

static int drop_graph(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static Node *input(const char *name, DType dt, int rank, const int64_t *dims, const char *const *sym,
                   const int64_t *hint)
{
    Tensor t;
    tensor_init(&ctx, &t, dt, rank, hint);
    return graph_input(g, name, dt, rank, dims, sym, &t);
}

static Node *op_node(Op op, Node *a, Node *b)
{
    Node *in[] = { a, b };
    return graph_add(g, &(Node){ .op = op,
                                 .dt = prim_info[op].compares ? DT_bool : a->dt,
                                 .rank = a->rank,
                                 .dims = a->dims,
                                 .nin = b ? 2 : 1,
                                 .in = in });
}

static Node *cast_node(Node *x, DType to)
{
    return graph_add(
        g, &(Node){ .op = OP_cast, .dt = to, .rank = x->rank, .dims = x->dims, .nin = 1, .in = &x });
}

static Node *where_node(Node *c, Node *a, Node *b)
{
    Node *in[] = { c, a, b };
    return graph_add(
        g, &(Node){ .op = OP_where, .dt = a->dt, .rank = a->rank, .dims = a->dims, .nin = 3, .in = in });
}

static Node *const_node(DType dt, int n, const void *data)
{
    int64_t size = n;
    Dim *dim = dim_const(g, n);
    Tensor *t = NEW(arena, Tensor);
    tensor_init(&ctx, t, dt, n > 0, &size);
    t->data = (void *)(uintptr_t)data;
    return graph_add(g, &(Node){ .op = OP_const, .dt = dt, .rank = n > 0, .dims = &dim, .tensor = t });
}

static Node *dims_node(int n, Dim *const *v)
{
    Dim *dim = dim_const(g, n);
    return graph_add(g, &(Node){ .op = OP_dims, .dt = DT_i64, .rank = 1, .dims = &dim, .size = v });
}

static Node *view_node(Node *x, Dim *idx, Dim *n, float fill)
{
    Pred pred = { idx, n };
    View v = { 1, &idx, n ? 1 : 0, &pred, { .f = fill } };
    return graph_add(
        g, &(Node){ .op = OP_view, .dt = x->dt, .rank = 1, .dims = x->dims, .nin = 1, .in = &x, .view = v });
}

static void test_names(void **state)
{
    (void)state;
    for (int k = 0; k < OP_COUNT; k++) {
        assert_non_null(prim_info[k].name);
        assert_int_equal(op_from_name(prim_info[k].name), k);
    }
    assert_int_equal(op_from_name("no such"), OP_COUNT);
    assert_true(prim_info[OP_lt].compares && prim_info[OP_lt].elementwise && prim_info[OP_lt].arity == 2);
    assert_false(prim_info[OP_fold].elementwise);
}

static void test_sharing(void **state)
{
    (void)state;
    Node *x = input("x", DT_f32, 2, (int64_t[]){ -1, 4 }, (const char *[]){ "N", NULL }, (int64_t[]){ 6, 4 });
    Node *y = input("y", DT_f32, 2, (int64_t[]){ -1, 4 }, (const char *[]){ "N", NULL }, (int64_t[]){ 6, 4 });
    assert_ptr_not_equal(x, y);
    assert_ptr_equal(x->dims[0], y->dims[0]);
    graph_origin(g, "first", "Add", "");
    Node *s = op_node(OP_add, x, y);
    graph_origin(g, "second", "Add", "");
    assert_ptr_equal(s, op_node(OP_add, x, y));
    assert_string_equal(g->origin.at[s->origin].name, "first");
    assert_ptr_not_equal(s, op_node(OP_add, y, x));
    assert_ptr_not_equal(s, op_node(OP_sub, x, y));
    for (int k = 0; k < g->node.n; k++) assert_int_equal(g->node.at[k]->id, k);
    /* fields that do not count */
    Node fold = { .op = OP_fold,
                  .dt = DT_f32,
                  .rank = 1,
                  .dims = x->dims,
                  .nin = 1,
                  .in = &x,
                  .kind = FOLD_sum,
                  .axes = 2 };
    Node *sum = graph_add(g, &fold);
    fold.last = true;
    assert_ptr_equal(graph_add(g, &fold), sum);
    fold.kind = FOLD_max;
    assert_ptr_not_equal(graph_add(g, &fold), sum);
    fold.axes = 1;
    fold.kind = FOLD_sum;
    fold.dims = x->dims + 1;
    assert_ptr_not_equal(graph_add(g, &fold), sum);
    graph_output(g, "same", x);
    assert_ptr_equal(g->output.at[0].node, x);
}

static void test_fills(void **state)
{
    (void)state;
    Node *x = input("x", DT_f32, 1, (int64_t[]){ 8 }, NULL, (int64_t[]){ 8 });
    Dim *i = dim_addc(g, dim_idx(g, 0, x->dims[0]), -1), *n = dim_const(g, 8);
    assert_ptr_equal(view_node(x, i, n, NAN), view_node(x, i, n, NAN));
    assert_ptr_not_equal(view_node(x, i, n, 0.0f), view_node(x, i, n, -0.0f));
    assert_ptr_not_equal(view_node(x, i, n, 0.0f), view_node(x, i, dim_const(g, 7), 0.0f));
    assert_ptr_equal(view_node(x, dim_idx(g, 0, n), NULL, 1.0f), view_node(x, dim_idx(g, 0, n), NULL, 2.0f));
}

static void test_const_sharing(void **state)
{
    (void)state;
    static float small1[4] = { 1, 2, 3, 4 }, small2[4] = { 1, 2, 3, 4 }, big1[100], big2[100];
    assert_ptr_equal(const_node(DT_f32, 4, small1), const_node(DT_f32, 4, small2));
    assert_ptr_not_equal(const_node(DT_f32, 4, small1), const_node(DT_f32, 3, small1));
    assert_ptr_not_equal(const_node(DT_f32, 4, small1), const_node(DT_i32, 4, small1));
    assert_ptr_equal(const_node(DT_f32, 100, big1), const_node(DT_f32, 100, big1));
    assert_ptr_not_equal(const_node(DT_f32, 100, big1), const_node(DT_f32, 100, big2));
    uint64_t k1 = 1, k2 = 2;
    Dim *n = dim_const(g, 5);
    Node *key1 = const_node(DT_u64, 0, &k1), *key2 = const_node(DT_u64, 0, &k2);
    Node r = { .op = OP_random, .dt = DT_u64, .rank = 1, .dims = &n, .nin = 1, .in = &key1 };
    Node *first = graph_add(g, &r);
    assert_ptr_equal(graph_add(g, &r), first);
    r.in = &key2;
    assert_ptr_not_equal(graph_add(g, &r), first);
}

static void test_calls(void **state)
{
    (void)state;
    static const CallDef sort = { .name = "sort" }, other = { .name = "other" };
    static const DType out[] = { DT_f32, DT_i64 };
    int a1 = 3, a2 = 3, a3 = 4;
    Node *x = input("x", DT_f32, 1, (int64_t[]){ 8 }, NULL, (int64_t[]){ 8 });
    Call c[] = { { &sort, 1, 2, out, &a1, sizeof a1 }, { &sort, 1, 2, out, &a2, sizeof a2 },
                 { &sort, 1, 2, out, &a3, sizeof a3 }, { &other, 1, 2, out, &a1, sizeof a1 },
                 { &sort, 1, 2, out, &a1, 0 },         { &sort, 1, 2, out, &a2, 0 } };
    Node *n[6];
    for (int k = 0; k < 6; k++)
        n[k] = graph_add(g, &(Node){ .op = OP_call, .nin = 1, .in = &x, .call = &c[k] });
    assert_ptr_equal(n[0], n[1]);
    for (int k = 2; k < 6; k++)
        for (int j = 0; j < k; j++)
            if (j != 0 || k != 1) assert_ptr_not_equal(n[j], n[k]);
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

static void contradicting(Ctx *cx, void *arg)
{
    (void)cx;
    (void)arg;
    input("x", DT_f32, 1, (int64_t[]){ -1 }, (const char *[]){ "N" }, (int64_t[]){ 6 });
    input("y", DT_f32, 1, (int64_t[]){ -1 }, (const char *[]){ "N" }, (int64_t[]){ 7 });
}

static void wrong_size(Ctx *cx, void *arg)
{
    (void)cx;
    (void)arg;
    input("x", DT_f32, 1, (int64_t[]){ 5 }, NULL, (int64_t[]){ 6 });
}

static void test_inputs(void **state)
{
    (void)state;
    Node *x = input("x", DT_f32, 3, (int64_t[]){ -1, 3, -1 }, (const char *[]){ "N", NULL, NULL },
                    (int64_t[]){ 6, 3, 0 });
    assert_int_equal(g->sym.n, 2);
    assert_string_equal(g->sym.at[0].name, "N");
    assert_string_equal(g->sym.at[1].name, "x_2");
    assert_int_equal(g->sym.at[1].axis, 2);
    assert_true(dim_is(x->dims[1], 3) && dim_is(x->dims[2], 0));
    assert_int_equal(g->guard.n, 2);
    assert_int_equal(g->guard.at[0].rel, 'g');
    assert_int_equal(g->guard.at[1].rel, '=');
    assert_int_equal(g->hint.at[0]->dims[0], 6);
    assert_int_equal(dim_hint(g, dim_mulc(g, x->dims[0], 2)), 12);
    /* a name of the model that looks made up */
    Node *y = graph_input(g, "y", DT_f32, 2, (int64_t[]){ -1, -1 }, (const char *[]){ "y_1", NULL }, NULL);
    assert_ptr_not_equal(y->dims[0], y->dims[1]);
    Node *z = graph_input(g, "z", DT_f32, 1, (int64_t[]){ -1 }, (const char *[]){ "N" }, NULL);
    assert_ptr_equal(z->dims[0], x->dims[0]);
    assert_int_equal(guard_call(&ctx, wrong_size, NULL), E_INVALID);
    g = graph_new(&ctx, arena);
    assert_int_equal(guard_call(&ctx, contradicting, NULL), E_INVALID);
    assert_non_null(strstr(ctx.text, "axis 0 of input 'y' has the size 7, but 'N' was 6"));
}

/* ---- folding ------------------------------------------------------------------------------------------- */

static void test_folding(void **state)
{
    (void)state;
    Node *x = input("x", DT_f32, 1, (int64_t[]){ 2 }, NULL, (int64_t[]){ 2 }), *y = op_node(OP_neg, x, NULL);
    Node *c = op_node(OP_lt, x, y);
    assert_ptr_equal(where_node(c, x, x), x);
    assert_ptr_equal(cast_node(x, DT_f32), x);
    static uint8_t yes[2] = { 1, 1 }, mixed[2] = { 1, 0 };
    assert_ptr_equal(where_node(const_node(DT_bool, 2, yes), x, y), x);
    assert_int_equal(where_node(const_node(DT_bool, 2, mixed), x, y)->op, OP_where);
    Node *b = graph_add(
        g, &(Node){ .op = OP_bitcast, .dt = DT_i32, .rank = 1, .dims = x->dims, .nin = 1, .in = &x });
    assert_int_equal(b->op, OP_bitcast);
    assert_ptr_equal(
        graph_add(g,
                  &(Node){ .op = OP_bitcast, .dt = DT_f32, .rank = 1, .dims = x->dims, .nin = 1, .in = &b }),
        x);
    Node *u = graph_add(
        g, &(Node){ .op = OP_bitcast, .dt = DT_u32, .rank = 1, .dims = x->dims, .nin = 1, .in = &b });
    assert_ptr_equal(u->in[0], x);
    static float v[2] = { 2.5f, -3.0f };
    Node *k = const_node(DT_f32, 2, v), *t = cast_node(k, DT_i32), *sum = op_node(OP_add, k, k),
         *less = op_node(OP_lt, k, sum);
    assert_int_equal(t->op, OP_const);
    assert_int_equal(((int32_t *)t->tensor->data)[0], 2);
    assert_int_equal(((int32_t *)t->tensor->data)[1], -3);
    assert_int_equal(sum->op, OP_const);
    assert_true(((float *)sum->tensor->data)[0] == 5.0f && ((float *)sum->tensor->data)[1] == -6.0f);
    assert_true(less->op == OP_const && less->dt == DT_bool);
    assert_true(((uint8_t *)less->tensor->data)[0] == 1 && ((uint8_t *)less->tensor->data)[1] == 0);
}

static void test_sizes(void **state)
{
    (void)state;
    Node *x = input("x", DT_f32, 2, (int64_t[]){ -1, -1 }, (const char *[]){ "N", "M" }, (int64_t[]){ 6, 5 });
    Dim *n = x->dims[0], *m = x->dims[1];
    Node *s = dims_node(2, (Dim *[]){ n, m });
    static int64_t two[2] = { 2, 2 }, minus1[2] = { -1, 0 };
    Node *c2 = const_node(DT_i64, 2, two), *twice = op_node(OP_mul, s, c2);
    assert_int_equal(twice->op, OP_dims);
    assert_ptr_equal(twice->size[0], dim_mulc(g, n, 2));
    assert_ptr_equal(op_node(OP_div, twice, c2), s);
    assert_ptr_equal(op_node(OP_sub, op_node(OP_add, s, c2), c2), s);
    Node *zero = op_node(OP_sub, s, s); /* known now: a constant */
    assert_true(zero->op == OP_const && ((int64_t *)zero->tensor->data)[1] == 0);
    /* what decides an expand: where(equal(s, -1), ones, s) */
    Node *eq = op_node(OP_eq, s, const_node(DT_i64, 2, minus1));
    assert_true(eq->op == OP_const && ((uint8_t *)eq->tensor->data)[0] == 0 &&
                ((uint8_t *)eq->tensor->data)[1] == 0);
    assert_ptr_equal(where_node(eq, c2, s), s);
    assert_int_equal(op_node(OP_eq, s, c2)->op, OP_eq); /* depends on the run */
    /* not the arithmetic of sizes: a negative dividend, a divisor that may be 0 */
    Node *neg = op_node(OP_neg, s, NULL);
    assert_int_equal(neg->op, OP_dims);
    assert_int_equal(op_node(OP_div, neg, c2)->op, OP_div);
    assert_int_equal(op_node(OP_mod, neg, c2)->op, OP_dims);
    assert_int_equal(op_node(OP_div, s, op_node(OP_sub, s, c2))->op, OP_div);
    /* through 32 bits, under a guard */
    int guards = g->guard.n;
    static int32_t one32[2] = { 1, 1 };
    Node *s32 = cast_node(s, DT_i32), *more = op_node(OP_add, s32, const_node(DT_i32, 2, one32)),
         *back = cast_node(more, DT_i64);
    assert_true(more->op == OP_cast && more->in[0]->op == OP_dims);
    assert_true(back->op == OP_dims && back->size[0] == dim_addc(g, n, 1));
    assert_int_equal(g->guard.n, guards + 4);
    assert_int_equal(g->guard.at[guards].rel, '<');
    /* count of elements */
    Node *count = graph_add(
        g,
        &(Node){ .op = OP_fold, .dt = DT_i64, .rank = 0, .nin = 1, .in = &s, .kind = FOLD_prod, .axes = 1 });
    assert_true(count->op == OP_dims && count->size[0] == dim_mul(g, n, m));
    int k;
    Dim **v = node_as_dims(g, s32, &k);
    assert_true(v && k == 2 && v[1] == m);
    assert_null(node_as_dims(g, x, &k));
}

/* Random shape arithmetic: what stays symbolic has the value of C's i64 arithmetic for all sizes. */
static void test_random_sizes(void **state)
{
    (void)state;
    static const Op ops[] = { OP_add, OP_sub, OP_mul, OP_div, OP_mod, OP_fmod, OP_min, OP_max };
    enum { SIZES = 64, TOP = 5 };
    static int64_t value[60][TOP * TOP];
    Node *node[60];
    uint64_t seed = 9;
    int folded = 0;
    for (int round = 0; round < 60; round++) {
        g = graph_new(&ctx, arena);
        Dim *s[2];
        int n = 0;
        for (int k = 0; k < 2; k++) {
            s[k] = graph_sym(g, &(Sym){ k ? "M" : "N", 3, SYM_input, 0, k, NULL, 0 });
            node[n] = dims_node(1, &s[k]);
            for (int p = 0; p < TOP * TOP; p++) value[n][p] = 1 + (k ? p % TOP : p / TOP);
            n++;
        }
        for (int k = 0; k < 4; k++) {
            int64_t *c = NEW(arena, int64_t);
            *c = k - 1 + (k > 1);
            node[n] = const_node(DT_i64, 1, c);
            for (int p = 0; p < TOP * TOP; p++) value[n][p] = *c;
            n++;
        }
        for (int tries = 0; tries < SIZES && n < 60; tries++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            int i = (int)((seed >> 33) % (unsigned)n), j = (int)((seed >> 43) % (unsigned)n);
            Op op = ops[(seed >> 55) % COUNT_OF(ops)];
            Node *r = op_node(op, node[i], node[j]);
            if (r->op != OP_dims) continue;
            bool small = true;
            for (int p = 0; p < TOP * TOP; p++) {
                int64_t a = value[i][p], b = value[j][p], w = 0, sizes[2] = { 1 + p / TOP, 1 + p % TOP };
                switch ((int)op) {
                case OP_add: w = a + b; break;
                case OP_sub: w = a - b; break;
                case OP_mul: w = a * b; break;
                case OP_div:
                    assert_true(b != 0);
                    w = a / b;
                    break;
                case OP_fmod:
                    assert_true(b != 0);
                    w = a % b;
                    break;
                case OP_mod:
                    assert_true(b != 0);
                    w = (a % b + b) % b;
                    break;
                case OP_min: w = a < b ? a : b; break;
                case OP_max: w = a > b ? a : b; break;
                }
                assert_int_equal(w, dim_eval(r->size[0], sizes, NULL));
                small = small && w > -10000 && w < 10000;
                value[n][p] = w;
            }
            folded++;
            if (small) node[n++] = r;
        }
    }
    assert_true(folded > 500);
}

/* ---- size ---------------------------------------------------------------------------------------------- */

static void test_chain(void **state)
{
    (void)state;
    Node *x = input("x", DT_f32, 2, (int64_t[]){ -1, 4 }, (const char *[]){ "N", NULL }, (int64_t[]){ 6, 4 }),
         *y = x;
    double start = time_now();
    for (int k = 0; k < 100000; k++) y = op_node(k % 3 ? OP_add : OP_mul, y, x);
    double took = time_now() - start;
    int made = g->node.n;
    assert_int_equal(made, 100001);
    y = x;
    for (int k = 0; k < 100000; k++) y = op_node(k % 3 ? OP_add : OP_mul, y, x);
    assert_int_equal(g->node.n, made);
    assert_true(took < 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_sharing, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_fills, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_const_sharing, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_calls, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_inputs, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_folding, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_sizes, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_random_sizes, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_chain, setup_graph, drop_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
