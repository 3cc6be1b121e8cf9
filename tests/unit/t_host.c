/* Values needed while building: sizes that stay expressions, values from data that become symbols, guards,
 * and binding before a run. */
#include "test.h"
#include "ir/ir.h"
#include <stdio.h>
#include <string.h>

typedef struct Host {
    Ctx *cx;
    Arena *a;
    Graph *g;
    Tensor in[8];
    int nin;
    int64_t syms[64];
    const char *why;
} Host;

static Node *host_input(Host *h, DType dt, int rank, const int64_t *dims, const char *const *names,
                        const void *data)
{
    Tensor *t = &h->in[h->nin++];
    int64_t wanted[MAX_RANK];
    char name[16];
    snprintf(name, sizeof name, "x%d", h->nin);
    tensor_init(h->cx, t, dt, rank, dims);
    t->data = (void *)data;
    for (int k = 0; k < rank; k++)
        wanted[k] = names && names[k] ? -1 : dims[k];
    return graph_input(h->g, name, dt, rank, wanted, names, t);
}

static bool bind_now(Host *h)
{
    assert_true(h->g->sym.n <= 64);
    h->why = NULL;
    return host_bind(h->cx, h->a, h->g, h->in, h->syms, &h->why);
}

static void body_guard(Ctx *cx, void *arg)
{
    Host h = { .cx = cx, .a = arena_new(cx) };
    h.g = graph_new(cx, h.a);
    (*(void (**)(Host *))arg)(&h);
    graph_check(cx, h.g);
    arena_free(h.a);
}

static void run_host(void (*body)(Host *))
{
    Ctx cx;
    ctx_init(&cx);
    Status s = guard_call(&cx, body_guard, &body);
    if (s != E_OK)
        fail_msg("%s: %s", status_name(s), cx.text);
}
#define TEST(name) static void body_##name(Host *h); \
    static void test_##name(void **state) { (void)state; run_host(body_##name); } \
    static void body_##name(Host *h)

static const char *dim_text(Host *h, const Dim *d)
{
    Text t = { .arena = h->a };
    dim_print(&t, h->g, d);
    return t.at;
}

static Node *shape_of(Host *h, Node *x) { return g_dims(h->g, 1, x->rank, x->dims); }
static Node *pick(Host *h, Node *x, int k)
{
    return g_slice(h->g, x, 0, dim_const(h->g, k), dim_const(h->g, 1), 1);
}

/* Concat(Shape(x)[0] * Shape(x)[1], -1): stays symbolic, no guard and no symbol is added for it. */
TEST(sizes)
{
    Graph *g = h->g;
    Node *x = host_input(h, DT_f32, 3, (int64_t[]){ 2, 3, 4 }, (const char *[]){ "N", "M", NULL }, NULL),
         *s = shape_of(h, x);
    int n, guards = g->guard.n, syms = g->sym.n;
    Node *product = g2(g, OP_mul, pick(h, s, 0), pick(h, s, 1));
    Dim **d = host_dims(g, g_join(g, 2, (Node *[]){ product, g_ints(g, 1, (int64_t[]){ -1 }) }, 0), &n);
    assert_non_null(d);
    assert_int_equal(n, 2);
    assert_ptr_equal(d[0], dim_mul(g, x->dims[0], x->dims[1]));
    assert_true(dim_is(d[1], -1));
    d = host_dims(g, g_fold(g, FOLD_prod, g_cast(g, s, DT_i32), 1, false), &n);
    assert_non_null(d);
    assert_int_equal(n, 1);
    assert_ptr_equal(d[0], dim_mulc(g, dim_mul(g, x->dims[0], x->dims[1]), 4));
    d = host_dims(g, g_gather_axis(g, s, g_ints(g, 2, (int64_t[]){ -1, 0 }), 0), &n);
    assert_true(d && n == 2 && dim_is(d[0], 4) && d[1] == x->dims[0]);
    d = host_dims(g, g_flip(g, g2(g, OP_sub, s, g_int(g, DT_i64, 1)), 0), &n);
    assert_true(d && n == 3 && dim_is(d[0], 3) && d[2] == dim_addc(g, x->dims[0], -1));
    assert_int_equal(g->guard.n, guards);
    assert_int_equal(g->sym.n, syms);
    /* division of sizes; a comparison is decided and guarded */
    d = host_dims(g, g2(g, OP_div, pick(h, s, 1), g_int(g, DT_i64, 2)), &n);
    assert_true(d && d[0] == dim_div(g, x->dims[1], dim_const(g, 2)));
    Node *less = g2(g, OP_lt, pick(h, s, 0), pick(h, s, 1));
    d = host_dims(g, g_where(g, less, pick(h, s, 0), g_ints(g, 1, (int64_t[]){ 77 })), &n);
    assert_true(d && d[0] == x->dims[0]);
    assert_int_equal(g->sym.n, syms);
    assert_true(bind_now(h));
    assert_true(h->syms[0] == 2 && h->syms[1] == 3);
    h->in[0].dims[0] = 3;
    assert_false(bind_now(h));
    h->in[0].dims[1] = 9;
    assert_true(bind_now(h));
    assert_int_equal(dim_eval(d[0], h->syms, NULL), 3);
}

/* floor(0.5 * float(N)): not arithmetic of sizes; computed again before each run. */
TEST(through_floats)
{
    Graph *g = h->g;
    Node *x = host_input(h, DT_f32, 2, (int64_t[]){ 7, 3 }, (const char *[]){ "N", NULL }, NULL);
    Node *f = g_cast(g, pick(h, shape_of(h, x), 0), DT_f32);
    Node *half = g_cast(g, g1(g, OP_floor, g2(g, OP_mul, f, g_scalar(g, DT_f32, 0.5))), DT_i64);
    int n;
    Dim **d = host_dims(g, half, &n);
    assert_true(d && n == 1 && !dim_is_const(d[0]));
    assert_int_equal(dim_hint(g, d[0]), 3);
    assert_ptr_equal(host_dims(g, half, &n)[0], d[0]); /* one symbol, however often it is asked for */
    assert_true(bind_now(h));
    assert_int_equal(dim_eval(d[0], h->syms, NULL), 3);
    h->in[0].dims[0] = 21;
    assert_true(bind_now(h));
    assert_int_equal(dim_eval(d[0], h->syms, NULL), 10);
    h->in[0].dims[0] = 1;                                       /* half of it is 0: another graph */
    assert_false(bind_now(h));
    assert_non_null(h->why);
    /* the third axis is fixed, so its half is simply known */
    f = g_cast(g, pick(h, shape_of(h, x), 1), DT_f32);
    d = host_dims(g, g_cast(g, g2(g, OP_mul, f, g_scalar(g, DT_f32, 2)), DT_i64), &n);
    assert_true(d && dim_is(d[0], 6));
}

/* A shape given as an input. */
TEST(from_data)
{
    Graph *g = h->g;
    static int64_t shape[3] = { 2, 0, 6 };
    Node *x = host_input(h, DT_i64, 1, (int64_t[]){ 3 }, NULL, shape);
    int n, syms = g->sym.n;
    Dim **d = host_dims(g, g2(g, OP_add, x, x), &n);
    assert_true(d && n == 3);
    assert_true(!dim_is_const(d[0]) && dim_is(d[1], 0) && !dim_is_const(d[2]));
    assert_int_equal(g->sym.n, syms + 3);
    assert_int_equal(dim_hint(g, d[2]), 12);
    assert_true(bind_now(h));
    shape[2] = 40;
    assert_true(bind_now(h));
    assert_int_equal(dim_eval(d[2], h->syms, NULL), 80);
    assert_int_equal(dim_eval(d[0], h->syms, NULL), 4);
    shape[1] = 1;                                               /* was 0 */
    assert_false(bind_now(h));
    shape[1] = 0, shape[0] = -2;
    assert_false(bind_now(h));
    assert_non_null(h->why);
}

TEST(not_known)
{
    Graph *g = h->g;
    static int64_t many[5000];
    static float data[4] = { 1, 2, 3, 4 };
    int n;
    Node *big = host_input(h, DT_i64, 1, (int64_t[]){ 5000 }, NULL, many),
         *empty = host_input(h, DT_i64, 1, (int64_t[]){ 2 }, NULL, NULL);
    Node *f = host_input(h, DT_f32, 1, (int64_t[]){ 4 }, NULL, data), *key = g_int(g, DT_u64, 1);
    assert_null(host_dims(g, pick(h, big, 0), &n));
    assert_null(host_dims(g, empty, &n));
    assert_null(host_value(g, empty));
    assert_null(host_value(g, g2(g, OP_add, empty, empty)));
    assert_null(host_dims(g, f, &n));
    assert_null(host_dims(g, g_cast(g, g_random(g, key, 1, (Dim *[]){ dim_const(g, 2) }), DT_i64), &n));
    /* a million elements on the way to a few */
    Dim *thousand[2] = { dim_const(g, 1000), dim_const(g, 1000) };
    Node *i = g_iota(g, 2, thousand, 1);
    assert_null(host_value(
        g, g_fold(g, FOLD_max, g2(g, OP_mul, i, g_expand(g, pick(h, empty, 0), 2, thousand)), 3, false)));
    assert_int_equal(g->sym.n, 0);
}

TEST(values)
{
    Graph *g = h->g;
    static int64_t axes[2] = { 1, -1 };
    static float scale[2] = { 2.0f, 0.5f };
    Node *a = host_input(h, DT_i64, 1, (int64_t[]){ 2 }, NULL, axes),
         *s = host_input(h, DT_f32, 1, (int64_t[]){ 2 }, NULL, scale);
    /* constants cost no guard */
    Node *c = g2(g, OP_add, g_iota(g, 1, (Dim *[]){ dim_const(g, 3) }, 0), g_int(g, DT_i64, 5));
    const Tensor *t = host_value(g, c);
    assert_true(t && tensor_count(t) == 3 && ((int64_t *)t->data)[2] == 7);
    assert_int_equal(g->guard.n, 0);
    t = host_value(g, g_ints(g, 2, (int64_t[]){ 8, 9 }));
    assert_true(t && ((int64_t *)t->data)[1] == 9);
    assert_int_equal(g->guard.n, 0);
    /* integers and floats from data: pinned to what they are */
    t = host_value(g, a);
    assert_true(t && ((int64_t *)t->data)[0] == 1 && ((int64_t *)t->data)[1] == -1);
    assert_ptr_equal(host_value(g, a), t);
    t = host_value(g, g2(g, OP_mul, s, s));
    assert_true(t && t->dt == DT_f32 && ((float *)t->data)[0] == 4 && ((float *)t->data)[1] == 0.25f);
    assert_true(bind_now(h));
    axes[1] = 0;
    assert_false(bind_now(h));
    axes[1] = -1, axes[0] = 2;
    assert_false(bind_now(h));
    axes[0] = 1, scale[1] = 0.25f;
    assert_false(bind_now(h));
    scale[1] = -0.5f;                                           /* the same square */
    assert_true(bind_now(h));
}

/* A value of sizes pins the sizes it was computed from, and no others. */
TEST(values_of_sizes)
{
    Graph *g = h->g;
    Node *x = host_input(h, DT_f32, 2, (int64_t[]){ 2, 3 }, (const char *[]){ "N", "M" }, NULL);
    const Tensor *t = host_value(g, g2(g, OP_mul, pick(h, shape_of(h, x), 1), g_int(g, DT_i64, 2)));
    assert_true(t && *(int64_t *)t->data == 6);
    h->in[0].dims[0] = 50;
    assert_true(bind_now(h));
    h->in[0].dims[1] = 4;
    assert_false(bind_now(h));
    assert_non_null(strstr(h->why, "M"));
    h->in[0].dims[1] = 3;
    /* through floats */
    t = host_value(g,
                   g2(g, OP_mul, g_cast(g, pick(h, shape_of(h, x), 0), DT_f32), g_scalar(g, DT_f32, 0.25)));
    assert_true(t && *(float *)t->data == 0.5f);
    assert_false(bind_now(h));
    h->in[0].dims[0] = 2;
    assert_true(bind_now(h));
}

TEST(binding)
{
    Graph *g = h->g;
    Node *x = host_input(h, DT_f32, 2, (int64_t[]){ 4, 5 }, (const char *[]){ "N", "M" }, NULL);
    Node *y = host_input(h, DT_f32, 2, (int64_t[]){ 5, 4 }, (const char *[]){ "M", "N" }, NULL);
    assert_ptr_equal(x->dims[0], y->dims[1]);
    assert_int_equal(g->sym.n, 2);
    assert_true(bind_now(h));
    h->in[1].dims[0] = 6;
    assert_false(bind_now(h));
    assert_non_null(strstr(h->why, "x2"));
    assert_non_null(strstr(h->why, "axis 0"));
    assert_non_null(strstr(h->why, "6"));
    assert_non_null(strstr(h->why, "5"));
    h->in[0].dims[1] = 6;
    assert_true(bind_now(h));
    assert_true(h->syms[0] == 4 && h->syms[1] == 6);
    h->in[0].dims[1] = h->in[1].dims[0] = 0; /* sizes are at least 1, unless the graph was built for 0 */
    assert_false(bind_now(h));
    h->in[0].dims[1] = h->in[1].dims[0] = 6;
    graph_guard(g, dim_sub(g, x->dims[1], x->dims[0]), '<', dim_const(g, 4), "a reason");
    assert_true(bind_now(h));
    h->in[0].dims[1] = h->in[1].dims[0] = 8;
    assert_false(bind_now(h));
    assert_non_null(strstr(h->why, "a reason"));
    assert_non_null(strstr(dim_text(h, x->dims[0]), "N"));
    h->in[0].dims[1] = h->in[1].dims[0] = 5;
    double start = time_now();
    for (int k = 0; k < 1000; k++)
        assert_true(bind_now(h));
    assert_true(time_now() - start < 0.5); /* microseconds each, with room for a slow build */
}

/* A value whose nodes make sense only when an earlier guard holds: the guard is what is reported. */
TEST(guard_first)
{
    Graph *g = h->g;
    static int64_t list[3] = { 1, 2, 3 }, at[1] = { 2 };
    Node *x = host_input(h, DT_i64, 1, (int64_t[]){ 3 }, (const char *[]){ "N" }, list),
         *i = host_input(h, DT_i64, 1, (int64_t[]){ 1 }, NULL, at);
    dim_decide_lt(g, dim_const(g, 2), x->dims[0], "the list has three elements");
    int n;
    Dim **d = host_dims(g, g_gather_axis(g, x, i, 0), &n);
    assert_true(d && dim_hint(g, d[0]) == 3);
    assert_true(bind_now(h));
    h->in[0].dims[0] = 2;
    assert_false(bind_now(h));
    assert_non_null(strstr(h->why, "the list has three elements"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_through_floats),
        cmocka_unit_test(test_from_data), cmocka_unit_test(test_not_known),
        cmocka_unit_test(test_values),    cmocka_unit_test(test_values_of_sizes),
        cmocka_unit_test(test_binding),   cmocka_unit_test(test_guard_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
