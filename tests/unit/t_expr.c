/* The expression language: each formula is evaluated on a few elements and compared with the same formula in C. */
#include "test.h"
#include "ir/ir.h"
#include <math.h>
#include <string.h>

enum { N = 7 };
static const double xs[N] = { -2.5, -1, -0.0, 0.25, 1, 3.75, NAN }, ys[N] = { 2, -3, 1, 0.5, -0.25, 4, 1 };

typedef struct Bed { Ctx *cx; Arena *a; Graph *g; Tensor in[3]; Binding bind[6]; const char *text; Node *made; } Bed;

static void bed_make(Bed *t, Ctx *cx, DType dt)
{
    ctx_init(cx);
    cx->opt.fail = -1;
    *t = (Bed){ .cx = cx, .a = arena_new(cx) };
    t->g = graph_new(cx, t->a);
    static const char *const names[3] = { "x", "y", "c" };
    for (int k = 0; k < 3; k++) {
        DType d = k == 2 ? DT_bool : dt;
        tensor_init(cx, &t->in[k], d, 1, (int64_t[]){ N });
        t->in[k].data = arena_alloc(t->a, tensor_bytes(&t->in[k]));
        for (int j = 0; j < N; j++) {
            double v = k == 0 ? xs[j] : k == 1 ? ys[j] : j % 2;
            scalar_store(d, tensor_at(&t->in[k], j), scalar_cast(d, DT_f64, (Scalar){ .f = v }, false));
        }
        t->bind[k] = (Binding){ .name = names[k], .type = 'n', .node = graph_input(t->g, names[k], d, 1, (int64_t[]){ N }, NULL, &t->in[k]) };
    }
    t->bind[3] = (Binding){ .name = "alpha", .type = 'f', .number = 0.5 };
    t->bind[4] = (Binding){ .name = "axis", .type = 'a', .axes = 1 };
    t->bind[5] = (Binding){ .name = "absent", .type = 'n' };
}

static Node *formula(Bed *t, const char *text) { return expr_build(t->g, text, (int)COUNT_OF(t->bind), t->bind); }

static double number(const Tensor *t, int64_t j)
{
    Scalar s = scalar_load(t->dt, tensor_at(t, j));
    return dtype_is_float(t->dt) ? s.f : (double)s.i;
}

#define OF(name, value) static double of_##name(double x, double y) { (void)x; (void)y; return value; }
static double dmax(double a, double b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; }
static double dmin(double a, double b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; }
OF(1, x + y * 2 - 1) OF(2, (x + y) * -2) OF(3, x - y - 1) OF(4, 8 / y / 2) OF(5, dmin(dmax(x, 0), 1)) OF(6, x < 0 ? 0.5 * x : x)
OF(7, x < y && (!(x >= 0) || y == 1)) OF(8, x != y) OF(9, dmax(x, 0)) OF(10, isnan(x) ? x : (x > 0) - (x < 0)) OF(11, x * x)
OF(12, 1 / (1 + exp(-x))) OF(13, 1 / sqrt(y)) OF(14, fmod(x, y)) OF(15, x > y) OF(16, x >= y) OF(17, tanh(x) + pow(y, 2))
OF(18, y) OF(19, 0.5 * x * (1 + erf(x / sqrt(2)))) OF(20, (x + 1) * (x + 1) + (x + 1)) OF(21, x + 1e-5 + 0.125 + 2) OF(22, 1 / y) OF(23, trunc(x))
OF(24, isnan(x) ? 0 : trunc(x)) OF(25, x == 0 || x > 1)

static const struct { const char *text; double (*value)(double x, double y); } formulas[] = {
    { "x + y * 2 - 1", of_1 }, { "(x+y)*-2", of_2 }, { "x - y - 1", of_3 }, { "8 / y / 2", of_4 }, { "clamp(x, 0, 1)", of_5 },
    { "where(x < 0, alpha * x, x)", of_6 }, { "x < y && (!(x >= 0) || y == 1)", of_7 }, { "x != y", of_8 }, { "ne(x, y)", of_8 },
    { "relu(x)", of_9 }, { "sign(x)", of_10 }, { "square(x)", of_11 }, { "sigmoid(x)", of_12 }, { "rsqrt(y)", of_13 }, { "x % y", of_14 },
    { "gt(x, y)", of_15 }, { "x > y", of_15 }, { "ge(x, y)", of_16 }, { "x >= y", of_16 }, { "tanh(x) + pow(y, 2)", of_17 },
    { "where(alpha > 1, x, y)", of_18 }, { "0.5 * x * (1 + erf(x / sqrt(2)))", of_19 }, { "t = x + 1; u = t * t; u + t", of_20 },
    { "x = x + 1; x * x + x", of_20 }, { "x + 1e-5 + .125 + 2.", of_21 }, { "recip(y)", of_22 }, { "f64(trunc(x))", of_23 }, { "i32(x)", of_24 },
    { "x == 0 || x > 1", of_25 }, { "\n x+y*2\t-1 ", of_1 },
};

static void test_formulas(void **state)
{
    (void)state;
    static Ctx cx;
    Bed t;
    bed_make(&t, &cx, DT_f64);
    for (size_t k = 0; k < COUNT_OF(formulas); k++) {
        Node *y = formula(&t, formulas[k].text);
        Tensor out;
        eval_nodes(&cx, t.a, t.g, t.in, NULL, 1, &y, &out);
        assert_int_equal(out.dims[0], N);
        for (int j = 0; j < N; j++) {
            double got = number(&out, j), want = formulas[k].value(xs[j], ys[j]);
            bool ok = isnan(want) ? isnan(got) : fabs(got - want) <= 1e-14 * fmax(1, fabs(want)) || got == want;
            if (!ok) print_error("%s at x=%g y=%g: %.17g, wanted %.17g\n", formulas[k].text, xs[j], ys[j], got, want);
            assert_true(ok);
        }
    }
    arena_free(t.a);
}

static void test_folds(void **state)
{
    (void)state;
    static Ctx cx;
    Bed t;
    bed_make(&t, &cx, DT_f64);
    double sum = 0, most = -INFINITY;
    for (int j = 0; j < N; j++) { sum += ys[j]; most = fmax(most, ys[j]); }
    Node *y[4] = { formula(&t, "sum[axis](y)"), formula(&t, "max[axis](y) + min[axis](y)"), formula(&t, "mean[axis](y)"),
                   formula(&t, "e = exp(y - max[axis](y)); e / sum[axis](e)") };
    Tensor out[4];
    eval_nodes(&cx, t.a, t.g, t.in, NULL, 4, y, out);
    assert_true(out[0].rank == 1 && out[0].dims[0] == 1);
    assert_true(fabs(number(&out[0], 0) - sum) < 1e-14);
    assert_true(number(&out[1], 0) == most - 3);
    assert_true(fabs(number(&out[2], 0) - sum / N) < 1e-14);
    double total = 0;
    for (int j = 0; j < N; j++) total += exp(ys[j] - most);
    for (int j = 0; j < N; j++) assert_true(fabs(number(&out[3], j) - exp(ys[j] - most) / total) < 1e-14);
    arena_free(t.a);
}

/* Numbers take the other operand's dtype, and sharing in the text is sharing in the graph. */
static void test_numbers(void **state)
{
    (void)state;
    static const DType dts[] = { DT_f32, DT_f16, DT_i32, DT_u8 };
    for (size_t k = 0; k < COUNT_OF(dts); k++) {
        static Ctx cx;
        Bed t;
        bed_make(&t, &cx, dts[k]);
        assert_int_equal(formula(&t, "2 * x")->dt, dts[k]);
        assert_int_equal(formula(&t, "x > 1")->dt, DT_bool);
        assert_ptr_equal(formula(&t, "x * 2 + y"), formula(&t, "t = x * (1 + 1); t + y"));
        assert_int_equal(formula(&t, "c && x == 0")->dt, DT_bool);
        arena_free(t.a);
    }
}

static void build_text(Ctx *cx, void *arg)
{
    (void)cx;
    Bed *t = arg;
    t->made = formula(t, t->text);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct { const char *text, *part; } wrong[] = {
        { "", "ends where a value is wanted" }, { "x +", "ends where a value is wanted" }, { "x y", "the end wanted" }, { "(x", "')' wanted" },
        { "z", "an unknown name" }, { "foo(x)", "no such function at \"foo(x)\"" }, { "sum(x)", "no such function" }, { "sum[x](x)", "axes binding" },
        { "foo[axis](x)", "no such fold" }, { "add(x)", "add takes 2 operands, not 1" }, { "clamp(x, 1)", "clamp takes 3 operands, not 2" },
        { "1 + 2", "has no dtype" }, { "absent + x", "absent operand" }, { "axis + x", "axes are no value" }, { "t = x", "';' wanted" },
        { "t = x;", "ends where" }, { "2x", "runs into a name" }, { "x $ y", "the end wanted" }, { "where(c, 1, 2)", "no dtype" },
        { "x = = y", "a value wanted" }, { "cast(x)", "no such function" }, { "sum[axis](1)", "one tensor" }, { "add(x, y, x, y)", "too many operands" },
    };
    static Ctx cx;
    Bed t;
    bed_make(&t, &cx, DT_f32);
    for (size_t k = 0; k < COUNT_OF(wrong); k++) {
        t.text = wrong[k].text;
        Status s = guard_call(&cx, build_text, &t);
        if (s != E_FORMAT || !strstr(cx.text, wrong[k].part)) print_error("'%s': %s %s\n", wrong[k].text, status_name(s), cx.text);
        assert_int_equal(s, E_FORMAT);
        assert_non_null(strstr(cx.text, wrong[k].part));
    }
    char deep[2000];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    t.text = deep;
    assert_int_equal(guard_call(&cx, build_text, &t), E_FORMAT);
    memset(deep, '-', sizeof deep - 1);
    assert_int_equal(guard_call(&cx, build_text, &t), E_FORMAT);
    arena_free(t.a);
    bed_make(&t, &cx, DT_i32);
    t.text = "x * 0.5";
    assert_int_equal(guard_call(&cx, build_text, &t), E_INVALID);
    assert_non_null(strstr(cx.text, "0.5 is no value of dtype i32"));
    arena_free(t.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas), cmocka_unit_test(test_folds), cmocka_unit_test(test_numbers), cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
