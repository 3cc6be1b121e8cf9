/* The rules of rules.def: what each claims, on special numbers; what they do to graphs; files of rules, right and wrong. */
#include "test.h"

#include "ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct Bench { Ctx cx; Arena *arena; Graph *g; const RuleSet *rules; int *times; char file[256]; const char *text; } Bench;

/* ---- claims ------------------------------------------------------------------------------------------------------------------------- */
static void check_stock(Ctx *cx, void *arg)
{
    Bench *b = arg;
    b->rules = rules_new(cx, b->arena, NULL);
    rules_check(cx, b->rules);
}

static void test_claims(void **state)
{
    (void)state;
    Bench b = { 0 };
    ctx_init(&b.cx);
    b.arena = arena_new(&b.cx);
    Status st = guard_call(&b.cx, check_stock, &b);
    if (st != E_OK) print_error("%s\n", b.cx.text);
    assert_int_equal(st, E_OK);
    assert_true(rules_count(b.rules) > 20);
    arena_free(b.arena);
}

/* ---- graphs -------------------------------------------------------------------------------------------------------------------------- */
typedef struct Rewriting { Bench b; void (*build)(struct Rewriting *r); const char *allow; Node *x, *y; int decisions; } Rewriting;

static void rewrite_guarded(Ctx *cx, void *arg)
{
    Rewriting *r = arg;
    Bench *b = &r->b;
    cx->opt.allow = r->allow;
    b->rules = rules_new(cx, b->arena, NULL);
    b->times = NEWS(b->arena, int, rules_count(b->rules));
    b->g = graph_new(cx, b->arena);
    r->build(r);
    graph_check(cx, b->g);
    graph_rewrite(cx, b->arena, b->g, b->rules, b->times);
    graph_check(cx, b->g);
    r->y = b->g->output.at[0].node;
}

static int times_of(const Bench *b, const char *rule)
{
    for (int i = 0; i < rules_count(b->rules); i++)
        if (strcmp(rules_name(b->rules, i), rule) == 0) return b->times[i];
    fail_msg("no rule '%s'", rule);
    return -1;
}

static void rewrite(Rewriting *r, void (*build)(Rewriting *), const char *allow)
{
    *r = (Rewriting){ .build = build, .allow = allow };
    ctx_init(&r->b.cx);
    r->b.arena = arena_new(&r->b.cx);
    Status st = guard_call(&r->b.cx, rewrite_guarded, r);
    if (st != E_OK) print_error("%s\n", r->b.cx.text);
    assert_int_equal(st, E_OK);
}

static Node *formula(Rewriting *r, const char *text)
{
    Binding b[] = { { .name = "x", .type = 'n', .node = r->x } };
    return expr_build(r->b.g, text, 1, b);
}

static void input_of(Rewriting *r, DType dt) { r->x = graph_input(r->b.g, "x", dt, 2, (int64_t[]){ 3, 5 }, NULL, NULL); }

static void build_plain(Rewriting *r)
{
    input_of(r, DT_f32);
    graph_output(r->b.g, "y", formula(r, "-(-(x * 1)) / 1 - 0"));
}

static void test_plain(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_plain, NULL);
    assert_ptr_equal(r.y, r.x);
    assert_int_equal(times_of(&r.b, "mul_one"), 1);
    assert_int_equal(times_of(&r.b, "neg_neg"), 1);
    assert_int_equal(times_of(&r.b, "div_one"), 1);
    assert_int_equal(times_of(&r.b, "sub_zero"), 1);
    arena_free(r.b.arena);
}

/* -0 + 0 is 0: the sum stays for floats, and goes for integers. */
static void build_zero_f(Rewriting *r) { input_of(r, DT_f32); graph_output(r->b.g, "y", formula(r, "x + 0")); }
static void build_zero_i(Rewriting *r) { input_of(r, DT_i32); graph_output(r->b.g, "y", formula(r, "x + 0")); }

static void test_zero(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_zero_f, "finite,reassoc");
    assert_int_equal(r.y->op, OP_add);
    arena_free(r.b.arena);
    rewrite(&r, build_zero_i, NULL);
    assert_ptr_equal(r.y, r.x);
    arena_free(r.b.arena);
}

static void build_products(Rewriting *r) { input_of(r, DT_f32); graph_output(r->b.g, "y", formula(r, "(x * 3) * 0.1")); }

static void test_leave(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_products, NULL);
    assert_int_equal(times_of(&r.b, "mul_mul"), 0);
    arena_free(r.b.arena);
    rewrite(&r, build_products, "reassoc");
    assert_int_equal(times_of(&r.b, "mul_mul"), 0);
    arena_free(r.b.arena);
    rewrite(&r, build_products, "finite,reassoc");
    assert_int_equal(times_of(&r.b, "mul_mul"), 1);
    assert_ptr_equal(r.y->in[0], r.x);
    arena_free(r.b.arena);
}

/* x to f16, doubled, turned over, and wider again: without the rounding only by leave. The sum that is an output of 16 bits is rounded once. */
static void build_wide(Rewriting *r)
{
    Graph *g = r->b.g;
    input_of(r, DT_f32);
    Node *h = g_cast(g, r->x, DT_f16), *twice = g2(g, OP_add, h, h);
    Dim *dims[2] = { twice->dims[1], twice->dims[0] };
    Dim *idx[2] = { dim_idx(g, 1, twice->dims[0]), dim_idx(g, 0, twice->dims[1]) };
    graph_output(g, "y", g_cast(g, g_view(g, twice, 2, dims, &(View){ .nidx = 2, .idx = idx }), DT_f32));
    graph_output(g, "z", twice);
    graph_output(g, "i", g_cast(g, h, DT_i32));
}

static void test_wide(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_wide, "finite,reassoc");
    assert_int_equal(times_of(&r.b, "cast_wide"), 0);
    assert_int_equal(r.y->op, OP_cast);
    arena_free(r.b.arena);
    rewrite(&r, build_wide, "wide");
    assert_int_equal(times_of(&r.b, "cast_wide"), 2);
    assert_int_equal(r.y->op, OP_view);
    assert_int_equal(r.y->in[0]->op, OP_add);
    assert_int_equal(r.y->in[0]->dt, DT_f32);
    assert_ptr_equal(r.y->in[0]->in[0], r.x);
    Node *z = r.b.g->output.at[1].node, *i = r.b.g->output.at[2].node;
    assert_int_equal(z->op, OP_cast);
    assert_int_equal(z->dt, DT_f16);
    assert_ptr_equal(z->in[0], r.y->in[0]);
    assert_int_equal(i->in[0]->dt, DT_f16);     /* a cast to integers rounds from what the graph says */
    arena_free(r.b.arena);
}

/* i8 to f32 and back is i8; f32 to i8 and back is not f32; f16 through f32 to f64 is one cast. */
static void build_casts(Rewriting *r)
{
    input_of(r, DT_i8);
    graph_output(r->b.g, "y", g_cast(r->b.g, g_cast(r->b.g, r->x, DT_f32), DT_i8));
    Node *z = graph_input(r->b.g, "z", DT_f32, 1, (int64_t[]){ 4 }, NULL, NULL);
    graph_output(r->b.g, "lossy", g_cast(r->b.g, g_cast(r->b.g, z, DT_i8), DT_f32));
    Node *h = graph_input(r->b.g, "h", DT_f16, 1, (int64_t[]){ 4 }, NULL, NULL);
    graph_output(r->b.g, "wide", g_cast(r->b.g, g_cast(r->b.g, h, DT_f32), DT_f64));
}

static void test_casts(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_casts, NULL);
    const Graph *g = r.b.g;
    assert_ptr_equal(r.y, r.x);
    assert_int_equal(g->output.at[1].node->in[0]->op, OP_cast);
    assert_int_equal(g->output.at[2].node->in[0]->op, OP_input);
    arena_free(r.b.arena);
}

/* A contraction, a shift and a factor for each column: the factor goes into the weights, which then are a constant; the values stay. */
enum { ROWS = 3, INNER = 4, COLUMNS = 5 };
static float weights_data[INNER * COLUMNS], scale_data[COLUMNS], mean_data[COLUMNS];

static Node *constant(Rewriting *r, int rank, const int64_t *dims, float *data)
{
    Tensor *t = NEW(r->b.arena, Tensor);
    tensor_init(&r->b.cx, t, DT_f32, rank, dims);
    t->data = data;
    return g_const(r->b.g, t);
}

static void build_scaled(Rewriting *r)
{
    for (int i = 0; i < INNER * COLUMNS; i++) weights_data[i] = (float)(i % 7) - 3;
    for (int i = 0; i < COLUMNS; i++) { scale_data[i] = 0.5f * (float)i - 1; mean_data[i] = (float)i; }
    r->x = graph_input(r->b.g, "x", DT_f32, 2, (int64_t[]){ ROWS, INNER }, NULL, NULL);
    Node *w = constant(r, 2, (int64_t[]){ INNER, COLUMNS }, weights_data), *s = constant(r, 1, (int64_t[]){ COLUMNS }, scale_data), *m = constant(r, 1, (int64_t[]){ COLUMNS }, mean_data);
    graph_output(r->b.g, "y", g2(r->b.g, OP_mul, g2(r->b.g, OP_sub, g_matmul(r->b.g, r->x, w), m), s));
}

typedef struct Values { Rewriting *r; float in[ROWS * INNER], out[ROWS * COLUMNS]; } Values;

static void evaluate(Ctx *cx, void *arg)
{
    Values *v = arg;
    Tensor in, out = { 0 };
    tensor_init(cx, &in, DT_f32, 2, (int64_t[]){ ROWS, INNER });
    in.data = v->in;
    eval_nodes(cx, v->r->b.arena, v->r->b.g, &in, NULL, 1, &v->r->y, &out);
    memcpy(v->out, out.data, (size_t)tensor_count(&out) * sizeof(float));
}

/* The least of roots, of a negative number, of NaN, of nothing; the largest stays. */
static void build_roots(Rewriting *r)
{
    r->x = graph_input(r->b.g, "x", DT_f32, 2, (int64_t[]){ ROWS, INNER }, NULL, NULL);
    Node *root = g1(r->b.g, OP_sqrt, r->x);
    graph_output(r->b.g, "y", g_fold(r->b.g, FOLD_min, root, axis_bit(1), false));
    graph_output(r->b.g, "z", g_fold(r->b.g, FOLD_max, root, axis_bit(1), false));
}

static void test_root_least(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_roots, NULL);
    assert_int_equal(times_of(&r.b, "root_least"), 1);
    assert_int_equal(r.y->op, OP_sqrt);
    assert_int_equal(r.b.g->output.at[1].node->op, OP_fold);
    Values v = { .r = &r };
    for (int i = 0; i < ROWS * INNER; i++) v.in[i] = (float)(i * i % 11) + 1;
    v.in[1] = -1; v.in[INNER] = NAN; v.in[2 * INNER] = INFINITY;
    assert_int_equal(guard_call(&r.b.cx, evaluate, &v), E_OK);
    for (int i = 0; i < ROWS; i++) {
        float want = INFINITY;
        for (int k = 0; k < INNER; k++) want = isnan(want) || isnan(sqrtf(v.in[i * INNER + k])) ? NAN : fminf(want, sqrtf(v.in[i * INNER + k]));
        if (isnan(want) ? !isnan(v.out[i]) : v.out[i] != want) fail_msg("row %d: %g, wanted %g", i, (double)v.out[i], (double)want);
    }
    arena_free(r.b.arena);
}

static void test_scale_sum(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_scaled, NULL);
    assert_int_equal(times_of(&r.b, "scale_sum"), 0);
    arena_free(r.b.arena);
    rewrite(&r, build_scaled, "finite,reassoc");
    assert_int_equal(times_of(&r.b, "scale_sum"), 1);
    assert_int_equal(r.y->op, OP_sub);
    assert_int_equal(r.y->in[0]->op, OP_fold);
    Values v = { .r = &r };
    for (int i = 0; i < ROWS * INNER; i++) v.in[i] = (float)(i * i % 11) - 4;
    assert_int_equal(guard_call(&r.b.cx, evaluate, &v), E_OK);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double sum = 0;
            for (int k = 0; k < INNER; k++) sum += (double)v.in[i * INNER + k] * weights_data[k * COLUMNS + j];
            assert_float_equal(v.out[i * COLUMNS + j], (float)((sum - mean_data[j]) * scale_data[j]), 1e-5);
        }
    arena_free(r.b.arena);
}

/* Constants of one number for each column meet at that size. */
static void build_hoist(Rewriting *r)
{
    r->x = graph_input(r->b.g, "x", DT_f32, 2, (int64_t[]){ ROWS, COLUMNS }, NULL, NULL);
    Node *s = constant(r, 1, (int64_t[]){ COLUMNS }, scale_data), *m = constant(r, 1, (int64_t[]){ COLUMNS }, mean_data);
    graph_output(r->b.g, "y", g2(r->b.g, OP_mul, g2(r->b.g, OP_mul, r->x, s), m));
}

static void test_hoist(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_hoist, "finite,reassoc");
    const Node *k = r.y->in[1];
    assert_int_equal(k->op, OP_view);
    assert_int_equal(k->in[0]->rank, 1);
    arena_free(r.b.arena);
}

/* A call whose operand is rewritten keeps all its results, those too that nobody reads. */
static void twice(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)cx, (void)a, (void)call;
    for (int k = 0; k < 2; k++) memcpy(out[k].data, in->data, tensor_bytes(in));
}
static const CallDef twice_call = { .name = "twice", .dynamic = false, .eval = twice };
static const DType twice_dtypes[] = { DT_f32, DT_f32 };

static void build_call(Rewriting *r)
{
    static const Call call = { &twice_call, 1, 2, twice_dtypes, NULL, 0 };
    input_of(r, DT_f32);
    Node *n = formula(r, "max(x, x)");
    graph_output(r->b.g, "y", g_call(r->b.g, &call, &n, (int[]){ 2, 2 }, (Dim *const *[]){ n->dims, n->dims })[1]);
}

static void test_call(void **state)
{
    (void)state;
    Rewriting r;
    rewrite(&r, build_call, NULL);
    const Node *call = r.y->in[0];
    int parts = 0;
    assert_ptr_equal(call->in[0], r.x);
    for (int i = 0; i < r.b.g->node.n; i++) parts += r.b.g->node.at[i]->op == OP_part && r.b.g->node.at[i]->in[0] == call;
    assert_int_equal(parts, 2);
    arena_free(r.b.arena);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------------ */
static void read_file(Ctx *cx, void *arg)
{
    Bench *b = arg;
    b->rules = rules_new(cx, b->arena, b->file);
}

/* The message of reading a file with this text; "" when it is right. */
static const char *reading(Bench *b, const char *text)
{
    memset(b, 0, sizeof *b);
    ctx_init(&b->cx);
    snprintf(b->file, sizeof b->file, "rules_%d.def", (int)getpid());
    FILE *f = fopen(b->file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    b->arena = arena_new(&b->cx);
    Status st = guard_call(&b->cx, read_file, b);
    arena_free(b->arena);
    remove(b->file);
    return st == E_OK ? "" : b->cx.text;
}

static void test_files(void **state)
{
    (void)state;
    static const struct { const char *text, *message; } row_table[] = {
        { "RULE( half, \"F\", FINITE|REASSOC, \"x / 2\", \"x * 0.5\", \"a half\" )", "" },
        { "/* none */ // at all\n", "" },
        { "RULE( half, \"F\", EXACT, \"x / 3\", \"x * 0.3333333333\", \"a third\" )", "rule 'half': \"x / 3\" is not \"x * 0.3333333333\" for" },
        { "\nRULE( zero, \"F\", EXACT, \"x + 0\", \"x\", \"\" )", ":2: rule 'zero': \"x + 0\" is not \"x\" for f32 x=-0: 0 and -0" },
        { "RULE( self, \"F\", EXACT, \"x - x\", \"x * 0\", \"\" )", "rule 'self'" },
        { "RULE( many, \"F\", EXACT, \"x\", \"x\" )", "has 5 fields" },
        { "RULE( name, \"F\", EXACT, \"x\", \"x\", \"\" )", "elementwise primitives, names and numbers only" },
        { "RULE( free, \"F\", EXACT, \"x * 1\", \"y\", \"\" )", "uses 'y', which the pattern does not have" },
        { "RULE( bool, \"F\", EXACT, \"x < y\", \"x\", \"\" )", "different dtypes" },
        { "RULE( sure, \"F\", SURELY, \"x * 1\", \"x\", \"\" )", "needs EXACT, FINITE, REASSOC" },
        { "RULE( open, \"F\", EXACT, \"x * 1", "the end of the text wanted" },
        { "RULE half", "'(' wanted" },
        { "RULE( same, \"F\", EXACT, \"max(x, 0)\", \"relu(x)\", \"\" )", "both sides are the same graph" },
        { "RULE( kind, \"FQ\", EXACT, \"x * 1\", \"x\", \"\" )", ":1: rule 'kind': dtypes \"FQ\", wanted letters of F" },
        { "RULE( call, \"F\", EXACT, \"mox(x, 1)\", \"x\", \"\" )", ":1: rule 'call': formula \"mox(x, 1)\": no such function" },
        { "RULE( free, \"F\", EXACT, \"a * 1\", \"a\", \"\" )", ":1: rule 'free': formula \"a * 1\": an unknown name at \"a * 1\"; names are x, y, z, c, d, k, l" },
        { "RULE( mul_one, \"F\", EXACT, \"x * 1\", \"x\", \"\" )", "a row of src/ir/rules.def has this name" },
        { "RULE( one, \"F\", EXACT, \"x * 1\", \"x\", \"\" )\nRULE( one, \"F\", EXACT, \"x / 1\", \"x\", \"\" )", ":2: rule 'one': an earlier row of the file has this name" },
        { "\nRUL( half, \"F\" )", ":2: found RUL(, wanted RULE( or FUSE(" },
        { "/* open", "a comment without its end" },
    };
    for (size_t i = 0; i < sizeof row_table / sizeof row_table[0]; i++) {
        Bench b;
        const char *message = reading(&b, row_table[i].text);
        if (row_table[i].message[0] ? !strstr(message, row_table[i].message) : message[0] != 0) fail_msg("'%s' gives '%s', wanted '%s'", row_table[i].text, message, row_table[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims), cmocka_unit_test(test_plain), cmocka_unit_test(test_zero), cmocka_unit_test(test_leave), cmocka_unit_test(test_wide), cmocka_unit_test(test_casts),
        cmocka_unit_test(test_root_least), cmocka_unit_test(test_scale_sum), cmocka_unit_test(test_hoist), cmocka_unit_test(test_call), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
