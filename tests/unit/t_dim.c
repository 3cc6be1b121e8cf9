/* Integer expressions. Hand cases for the simplifications that decide whether an address is affine; then
 * random expressions whose canonical form, bounds, proofs, substitutions and linear parts are compared
 * with naive evaluation for all values of all variables. */
#include "test.h"
#include "ir/ir.h"
#include <stdio.h>
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

static Dim *new_sym(const char *name, int64_t hint)
{
    return graph_sym(g, &(Sym){ name, hint, SYM_input, 0, 0, NULL, 0 });
}
static Dim *num(int64_t c) { return dim_const(g, c); }
static Dim *plus(Dim *a, Dim *b) { return dim_add(g, a, b); }
static Dim *minus(Dim *a, Dim *b) { return dim_sub(g, a, b); }
static Dim *times(Dim *a, Dim *b) { return dim_mul(g, a, b); }
static Dim *over(Dim *a, Dim *b) { return dim_div(g, a, b); }
static Dim *rem(Dim *a, Dim *b) { return dim_mod(g, a, b); }

static void assert_text(const char *want, Dim *d)
{
    Text t = { .arena = arena };
    dim_print(&t, g, d);
    assert_string_equal(want, t.at);
}

static void test_sums(void **state)
{
    (void)state;
    Dim *n = new_sym("N", 5), *m = new_sym("M", 7), *i = dim_idx(g, 0, n);
    assert_ptr_equal(plus(n, m), plus(m, n));
    assert_ptr_equal(minus(plus(n, m), m), n);
    assert_ptr_equal(times(plus(n, num(1)), minus(n, num(1))), minus(times(n, n), num(1)));
    assert_true(dim_is(minus(times(n, m), times(m, n)), 0));
    assert_ptr_equal(dim_idx(g, 0, num(1)), num(0));
    assert_ptr_equal(dim_idx(g, 0, n), i);
    assert_int_equal(dim_idx(g, DIM_OPERAND, num(1))->kind, DIM_idx);
    assert_text("2*N + i0", plus(dim_mulc(g, n, 2), i));
    assert_text("-3*N*M - 1", dim_addc(g, dim_mulc(g, times(n, m), -3), -1));
    assert_text("(N + M)/4", over(plus(n, m), num(4)));
    assert_text("min(N, M)", dim_min(g, m, n));
    assert_text("-9223372036854775808", num(INT64_MIN));
}

static void test_quotients(void **state)
{
    (void)state;
    Dim *n = new_sym("N", 5), *m = new_sym("M", 7), *k = new_sym("K", 3);
    Dim *i = dim_idx(g, 0, m), *j = dim_idx(g, 1, n), *l = dim_idx(g, 2, num(4)),
        *x = dim_idx(g, 3, times(times(n, m), num(4)));
    Dim *flat = plus(times(i, n), j);
    assert_ptr_equal(over(flat, n), i);
    assert_ptr_equal(rem(flat, n), j);
    assert_ptr_equal(over(over(x, n), num(4)), over(x, dim_mulc(g, n, 4)));
    /* three digits, and back from the flat index */
    Dim *f3 = plus(dim_mulc(g, flat, 4), l), *n4 = dim_mulc(g, n, 4);
    assert_ptr_equal(over(f3, n4), i);
    assert_ptr_equal(rem(f3, n4), plus(dim_mulc(g, j, 4), l));
    assert_ptr_equal(over(rem(f3, n4), num(4)), j);
    assert_ptr_equal(rem(over(f3, num(4)), n), j);
    assert_ptr_equal(plus(dim_mulc(g, over(x, num(4)), 4), rem(x, num(4))), x);
    Dim *digits = plus(plus(times(over(x, n4), n4), dim_mulc(g, rem(over(x, num(4)), n), 4)), rem(x, num(4)));
    assert_ptr_equal(digits, x);
    assert_ptr_equal(plus(times(dim_mulc(g, over(x, n), 2), n), dim_mulc(g, rem(x, n), 2)),
                     dim_mulc(g, x, 2));
    assert_ptr_equal(over(rem(x, n4), num(4)), rem(over(x, num(4)), n));
    assert_ptr_equal(rem(rem(x, n4), num(4)), rem(x, num(4)));
    assert_ptr_equal(rem(rem(x, n4), n), rem(x, n));
    /* common factors */
    assert_ptr_equal(over(plus(times(i, k), times(j, k)), dim_mulc(g, k, 3)), over(plus(i, j), num(3)));
    assert_ptr_equal(over(plus(dim_mulc(g, i, 4), l), num(8)), over(i, num(2)));
    assert_ptr_equal(rem(plus(dim_mulc(g, i, 4), l), num(8)), plus(dim_mulc(g, rem(i, num(2)), 4), l));
    /* divisors that are sums */
    Dim *n1 = dim_addc(g, n, 1), *j1 = dim_idx(g, 4, n1);
    assert_ptr_equal(over(plus(times(i, n1), j1), n1), i);
    assert_ptr_equal(rem(plus(times(i, n1), j1), n1), j1);
    assert_ptr_equal(over(times(n1, m), n1), m);
    assert_ptr_equal(over(plus(times(i, n1), j1), dim_mulc(g, n1, 8)), over(i, num(8)));
    assert_ptr_equal(rem(plus(times(i, n1), j1), dim_mulc(g, n1, 8)), plus(times(rem(i, num(8)), n1), j1));
    /* negative remainders: a reversed axis */
    assert_ptr_equal(over(dim_addc(g, minus(times(n, plus(i, num(1))), j), -1), n), i);
    /* sizes of chained strided windows */
    assert_ptr_equal(over(dim_addc(g, over(dim_addc(g, n, 1), num(2)), 1), num(2)),
                     over(dim_addc(g, n, 3), num(4)));
    assert_ptr_equal(dim_ceildiv(g, dim_mulc(g, n, 4), num(4)), n);
    assert_ptr_equal(over(num(-7), num(2)), num(-4));
    assert_ptr_equal(rem(num(-7), num(4)), num(1));
}

static void test_proofs(void **state)
{
    (void)state;
    Dim *h = new_sym("H", 5), *w = new_sym("W", 7), *n = new_sym("N", 9);
    Dim *i = dim_idx(g, 0, h), *j = dim_idx(g, 1, w), *x = dim_idx(g, 2, n);
    assert_true(dim_prove_lt(g, plus(times(i, w), j), times(h, w)));
    assert_false(dim_prove_lt(g, plus(times(i, w), j), minus(times(h, w), num(1))));
    assert_true(dim_prove_lt(g, over(x, num(4)), dim_ceildiv(g, n, num(4))));
    assert_false(dim_prove_lt(g, over(x, num(4)), over(n, num(4))));
    assert_true(dim_prove_ge0(g, minus(x, dim_mulc(g, over(x, num(4)), 4))));
    assert_true(dim_prove_lt(g, dim_min(g, x, h), n));
    assert_true(dim_prove_lt(g, dim_min(g, x, h), plus(h, num(1))));
    assert_false(dim_prove_lt(g, dim_max(g, x, h), n));
    assert_true(dim_prove_lt(g, num(0), n));
    assert_false(dim_prove_lt(g, h, w));
    assert_true(dim_prove_ge0(g, minus(times(n, n), n)));
    /* windows of a strided convolution stay inside the padded axis */
    Dim *out = dim_addc(g, over(minus(n, num(3)), num(2)), 1), *o = dim_idx(g, 3, out),
        *tap = dim_idx(g, 4, num(3));
    assert_true(dim_prove_lt(g, plus(dim_mulc(g, o, 2), tap), n));
    assert_ptr_equal(dim_min(g, h, plus(h, w)), h);
    assert_ptr_equal(dim_max(g, dim_min(g, h, w), w), w);
    assert_ptr_equal(dim_min(g, num(INT64_MAX), h), h);
    assert_ptr_equal(dim_max(g, num(INT64_MIN), h), h);
    assert_ptr_equal(dim_min(g, dim_min(g, h, num(5)), num(3)), dim_min(g, h, num(3)));
}

static void overflowing(Ctx *cx, void *arg)
{
    (void)cx;
    Dim *n = arg;
    dim_mul(g, dim_mulc(g, n, INT64_MAX / 2), num(3));
}

static void test_overflow(void **state)
{
    (void)state;
    assert_int_equal(guard_call(&ctx, overflowing, new_sym("N", 5)), E_INVALID);
}

static void test_decisions(void **state)
{
    (void)state;
    Dim *n = new_sym("N", 5), *m = new_sym("M", 5);
    int before = g->guard.n;
    assert_true(dim_decide_eq(g, n, n, "same"));
    assert_false(dim_decide_eq(g, n, dim_addc(g, n, 1), "apart"));
    assert_false(dim_decide_eq(g, plus(n, m), num(1), "bounds"));
    assert_true(dim_decide_lt(g, n, plus(n, m), "bounds"));
    assert_false(dim_decide_lt(g, plus(n, m), n, "bounds"));
    assert_int_equal(g->guard.n, before);
    assert_true(dim_decide_eq(g, n, m, "hint"));
    assert_true(dim_decide_eq(g, m, n, "again"));
    assert_int_equal(g->guard.n, before + 1);
    assert_int_equal(g->guard.at[before].rel, '=');
    assert_false(dim_decide_lt(g, n, m, "hint"));
    assert_int_equal(g->guard.at[before + 1].rel, 'g');
    assert_int_equal(dim_decide_value(g, plus(n, m), "value"), 10);
    assert_int_equal(dim_decide_value(g, plus(n, m), "value"), 10);
    assert_int_equal(g->guard.n, before + 3);
    assert_true(new_sym("Z", 0) == num(0));
}

/* ---- random expressions -------------------------------------------------------------------------------- */

enum { NSYM = 2, NVAR = 4, TOP = 4 }; /* symbols are 1..TOP */
typedef struct Expr {
    char op;
    int64_t c;
    struct Expr *a, *b;
    Dim *dim;
} Expr; /* op: c constant, s symbol, i variable, + - * / % < > */
static uint64_t seed;
static Dim *sym[NSYM], *extent[NVAR];

static int pick(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static int64_t naive_floor(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static int64_t naive(const Expr *e, const int64_t *s, const int64_t *v)
{
    if (e->op == 'c') return e->c;
    if (e->op == 's') return s[e->c];
    if (e->op == 'i') return v[e->c];
    int64_t a = naive(e->a, s, v), b = naive(e->b, s, v);
    switch (e->op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return naive_floor(a, b);
    case '%': return a - naive_floor(a, b) * b;
    case '<': return a < b ? a : b;
    default: return a > b ? a : b;
    }
}

static Expr *expr_new(char op, int64_t c, Expr *a, Expr *b)
{
    Expr *e = NEW(arena, Expr);
    *e = (Expr){ op, c, a, b, NULL };
    switch (op) {
    case 'c': e->dim = num(c); break;
    case 's': e->dim = sym[c]; break;
    case 'i': e->dim = dim_idx(g, (int)c, extent[c]); break;
    case '+': e->dim = plus(a->dim, b->dim); break;
    case '-': e->dim = minus(a->dim, b->dim); break;
    case '*': e->dim = times(a->dim, b->dim); break;
    case '/': e->dim = over(a->dim, b->dim); break;
    case '%': e->dim = rem(a->dim, b->dim); break;
    case '<': e->dim = dim_min(g, a->dim, b->dim); break;
    default: e->dim = dim_max(g, a->dim, b->dim); break;
    }
    return e;
}

static Expr *random_divisor(void)
{
    Expr *s = expr_new('s', pick(NSYM), NULL, NULL), *c = expr_new('c', 1 + pick(6), NULL, NULL);
    switch (pick(6)) {
    case 0: return s;
    case 1: return expr_new('*', 0, s, c);
    case 2: return expr_new('+', 0, s, c);
    case 3: return expr_new('*', 0, s, expr_new('s', pick(NSYM), NULL, NULL));
    default: return c;
    }
}

static Expr *random_expr(int depth)
{
    if (depth == 0 || pick(8) == 0) {
        int k = pick(5);
        if (k == 0) return expr_new('c', pick(9) - 3, NULL, NULL);
        if (k == 1) return expr_new('s', pick(NSYM), NULL, NULL);
        return expr_new('i', pick(NVAR), NULL, NULL);
    }
    Expr *a = random_expr(depth - 1);
    switch (pick(9)) {
    case 0:
    case 1: return expr_new('+', 0, a, random_expr(depth - 1));
    case 2: return expr_new('-', 0, a, random_expr(depth - 1));
    case 3: return expr_new('*', 0, a, random_divisor());
    case 4:
    case 5: return expr_new('/', 0, a, random_divisor());
    case 6:
    case 7: return expr_new('%', 0, a, random_divisor());
    default: return expr_new(pick(2) ? '<' : '>', 0, a, random_expr(depth - 1));
    }
}

/* Calls back for all values of symbols and variables. */
typedef struct Point {
    int64_t s[NSYM], v[NVAR];
} Point;

static bool next_point(Point *p, bool first)
{
    if (first) {
        for (int k = 0; k < NSYM; k++) p->s[k] = 1;
        memset(p->v, 0, sizeof p->v);
        return true;
    }
    for (int k = 0; k < NVAR; k++) {
        if (++p->v[k] < dim_eval(extent[k], p->s, NULL)) return true;
        p->v[k] = 0;
    }
    for (int k = 0; k < NSYM; k++) {
        if (++p->s[k] <= TOP) return true;
        p->s[k] = 1;
    }
    return false;
}

static void test_random(void **state)
{
    (void)state;
    int proved = 0, linear = 0, simpler = 0;
    for (int round = 0; round < 40; round++) {
        arena_free(arena);
        arena = arena_new(&ctx);
        g = graph_new(&ctx, arena);
        seed = (uint64_t)round * 77 + 5;
        for (int k = 0; k < NSYM; k++) sym[k] = new_sym(k ? "M" : "N", 2 + k);
        extent[0] = sym[0];
        extent[1] = num(2 + pick(4));
        extent[2] = pick(2) ? dim_addc(g, sym[1], pick(2)) : dim_ceildiv(g, sym[1], num(2));
        extent[3] = num(1 + pick(3));
        for (int trial = 0; trial < 40; trial++) {
            Expr *e = random_expr(4), *f = random_expr(3),
                 *to = expr_new('%', 0, random_expr(2), expr_new('s', 0, NULL, NULL));
            Dim *d = e->dim, *coef, *rest, *sub = dim_subst(g, d, 1, &to->dim);
            int var = pick(NVAR);
            bool ge0 = dim_prove_ge0(g, d), lt = dim_prove_lt(g, d, f->dim),
                 affine = dim_linear(g, d, var, &coef, &rest);
            bool uses = dim_uses(d, var), differs = false;
            if (affine) {
                assert_false(dim_uses(coef, var));
                assert_false(dim_uses(rest, var));
            }
            proved += ge0 + lt;
            linear += affine && uses;
            simpler += dim_is_const(d) || d->kind == DIM_idx;
            Point p;
            for (bool more = next_point(&p, true); more; more = next_point(&p, false)) {
                int64_t want = naive(e, p.s, p.v), got = dim_eval(d, p.s, p.v);
                if (want != got || want < d->lo || want > d->hi) {
                    Text t = { .arena = arena };
                    dim_print(&t, g, d);
                    print_error("round %d trial %d: %s is %lld, wanted %lld in [%lld, %lld]\n", round, trial,
                                t.at, (long long)got, (long long)want, (long long)d->lo, (long long)d->hi);
                }
                assert_int_equal(want, got);
                assert_true(want >= d->lo && want <= d->hi);
                if (ge0) assert_true(want >= 0);
                if (lt) assert_true(want < naive(f, p.s, p.v));
                if (affine)
                    assert_int_equal(want, dim_eval(coef, p.s, p.v) * p.v[var] + dim_eval(rest, p.s, p.v));
                Point q = p;
                q.v[0] = naive(to, p.s, p.v);
                assert_int_equal(naive(e, q.s, q.v), dim_eval(sub, p.s, p.v));
                q = p;
                q.v[var] = 0;
                differs = differs || naive(e, q.s, q.v) != want;
            }
            if (!uses) assert_false(differs);
        }
    }
    assert_true(proved > 200 && linear > 100 && simpler > 20); /* else the test says nothing */
}

/* Reshapes: the index into [A, B, C] seen from any other split of the same count is affine or has only the
 * quotients that it must have. */
static void test_reshape(void **state)
{
    (void)state;
    Dim *a = new_sym("A", 3), *c = new_sym("C", 5), *b = num(8);
    Dim *i = dim_idx(g, 0, a), *j = dim_idx(g, 1, num(2)), *k = dim_idx(g, 2, num(4)), *l = dim_idx(g, 3, c);
    Dim *flat = plus(times(plus(times(plus(times(i, num(2)), j), num(4)), k), c), l); /* [A, 2, 4, C] */
    assert_ptr_equal(over(flat, times(b, c)), i);
    assert_ptr_equal(rem(over(flat, c), b), plus(dim_mulc(g, j, 4), k));
    assert_ptr_equal(rem(flat, c), l);
    /* and through [A * 8, C] back to [A, 8 * C] */
    Dim *row = over(flat, c), *col = rem(flat, c), *again = plus(times(row, c), col);
    assert_ptr_equal(again, flat);
    Dim *y = dim_idx(g, 0, times(times(a, b), c)); /* [A*8*C] -> [A, 8, C] -> [A*8*C] */
    Dim *yi = over(y, times(b, c)), *yj = rem(over(y, c), b), *yk = rem(y, c);
    assert_ptr_equal(plus(times(plus(times(yi, b), yj), c), yk), y);
    Dim *to[] = { flat };
    assert_ptr_equal(dim_subst(g, yi, 1, to), i);
    assert_ptr_equal(dim_subst(g, yj, 1, to), plus(dim_mulc(g, j, 4), k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sums, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_quotients, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_proofs, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_overflow, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_decisions, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_reshape, setup_graph, drop_graph),
        cmocka_unit_test_setup_teardown(test_random, setup_graph, drop_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
