/* The importer: models in ONNX's text syntax, run by the reference interpreter and compared with values worked out by hand. */
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/api.h"

enum { MAX_PORTS = 8 };

typedef struct Run {
    Ctx cx;
    const char *text;                   /* the model */
    Tensor in[MAX_PORTS], out[MAX_PORTS];
    Arena *arena;
    OnnxModel *model;
    Status status;
} Run;

static Tensor make_tensor(Run *r, DType dt, int rank, const int64_t *dims, const double *v)
{
    Tensor *t = tensor_new(r->arena, &r->cx, dt, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++)
        scalar_store(dt, tensor_at(t, i), dtype_is_float(dt) ? (Scalar){ .f = v[i] } : (Scalar){ .i = (int64_t)v[i] });
    return *t;
}
#define DIMS(...) (int64_t[]){ __VA_ARGS__ }
#define VALUES(...) (double[]){ __VA_ARGS__ }

static void run_open(Run *r, const char *text)
{
    memset(r, 0, sizeof *r);
    ctx_init(&r->cx);
    r->text = text;
    r->arena = arena_new(&r->cx);
    r->model = onnx_new(&r->cx);
}

static void run_body(Ctx *cx, void *arg)
{
    Run *r = arg;
    if (!r->model->graph) onnx_load(cx, r->model, "<memory>", r->text, strlen(r->text));
    interp_run(cx, r->arena, r->model, r->in, r->out);
}

static void run_it(Run *r)
{
    r->status = guard_call(&r->cx, run_body, r);
}

static void run_close(Run *r)
{
    onnx_close(r->model);
    arena_free(r->arena);
}

static void expect(Run *r, int k, DType dt, int rank, const int64_t *dims, const double *v)
{
    const Tensor *t = &r->out[k];
    if (r->status) fail_msg("%s", r->cx.text);
    assert_int_equal(t->dt, dt);
    assert_int_equal(t->rank, rank);
    for (int i = 0; i < rank; i++) assert_int_equal(t->dims[i], dims[i]);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        Scalar s = scalar_load(dt, tensor_at(t, i));
        double got = dtype_is_float(dt) ? s.f : (double)s.i;
        if (!(isnan(v[i]) ? isnan(got) : isinf(v[i]) ? got == v[i] : fabs(got - v[i]) <= 1e-5 * (1 + fabs(v[i]))))
            fail_msg("output %d, element %d: %.9g, wanted %.9g", k, (int)i, got, v[i]);
    }
}

#define HEAD "<ir_version: 8, opset_import: [\"\" : 18]>\n"

/* ---- order and names ---------------------------------------------------------------------------------------------------------------- */

static void test_unsorted(void **state)
{
    (void)state;
    Run r;
    run_open(&r, HEAD "g (float[2] x) => (float[2] y) { y = Add(c, a) c = Exp(b) a = Neg(x) b = Abs(a) }");
    r.in[0] = make_tensor(&r, DT_f32, 1, DIMS(2), VALUES(0, -1));
    run_it(&r);
    expect(&r, 0, DT_f32, 1, DIMS(2), VALUES(1, exp(1) + 1));
    run_close(&r);
}

static void refused(const char *text, Status status, const char *part1, const char *part2)
{
    Run r;
    run_open(&r, text);
    r.in[0] = make_tensor(&r, DT_f32, 1, DIMS(2), VALUES(0, -1));
    r.in[1] = r.in[0];
    run_it(&r);
    if (r.status != status) fail_msg("%s: \"%s\", wanted %s", status_name(r.status), r.cx.text, status_name(status));
    if (!strstr(r.cx.text, part1) || !strstr(r.cx.text, part2)) fail_msg("the message \"%s\" lacks \"%s\" or \"%s\"", r.cx.text, part1, part2);
    run_close(&r);
}

static void test_refused(void **state)
{
    (void)state;
    refused(HEAD "g (float[2] x) => (float[2] y) { a = Add(x, c) b = Abs(a) c = Exp(b) y = Neg(a) }", E_FORMAT, "cycle", "'a' (Add) needs 'c' (Exp) needs 'b' (Abs) needs 'a'");
    refused(HEAD "g (float[2] x) => (float[2] y) { y = Neg(x) y = Abs(x) }", E_FORMAT, "'y'", "twice");
    refused(HEAD "g (float[2] x) => (float[2] y) { y = Add(x, q) }", E_FORMAT, "node 'y' (Add)", "'q'");
    refused(HEAD "g (float[2] x) => (float[2] y) { z = Neg(x) }", E_FORMAT, "output 'y'", "no input");
    refused(HEAD "g (float[2] x) => (float[2] y) { y = Add(x) }", E_FORMAT, "node 'y' (Add)", "1 inputs, wanted 2");
    refused(HEAD "g (float[2] x) => (float[2] y) { y = Softmax<axis=3>(x) }", E_INVALID, "node 'y' (Softmax)", "axis 3, wanted one in [-1, 1)");
    refused(HEAD "g (float[3] x) => (float[3] y) { y = Neg(x) }", E_INVALID, "input 'x' is f32[2]", "wanted f32[3]");
    refused(HEAD "g (double[N] x) => (double[N] y) { y = Neg(x) }", E_INVALID, "input 'x' is f32[2]", "wanted f64[N]");
    refused("<ir_version: 8, opset_import: [\"z\" : 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }", E_FORMAT, "node 'y' (Neg)", "imports no version");
    refused("<ir_version: 8, opset_import: [\"\" : 18, \"loc\" : 1]> g (float[2] x) => (float[2] y) { y = loc.fn(x) }\n"
            "<domain: \"loc\", opset_import: [\"\" : 18, \"loc\" : 1]> fn (a) => (b) { b = loc.fn(a) }", E_FORMAT, "fn", "calls itself");
}

/* All of them at once, from bodies and functions too. */
static void test_unknown(void **state)
{
    (void)state;
    refused("<ir_version: 8, opset_import: [\"\" : 18, \"z\" : 2, \"loc\" : 1]>\n"
            "g (float[2] x) => (float[2] y) { a = Foo(x) b = z.Bar(a) d = loc.fn(b) c = IsNaN(d)\n"
            "  y = If(c) <then_branch = t () => (float[2] o) { o = Baz(d) }, else_branch = e () => (float[2] o) { o = Neg(d) }> }\n"
            "<domain: \"loc\", opset_import: [\"\" : 17]> fn (a) => (b) { b = Qux(a) }",
            E_UNSUPPORTED, "ai.onnx.Foo(18), z.Bar(2)", "ai.onnx.Baz(18), ai.onnx.Qux(17)");
}

/* ---- branches, functions, bodies ------------------------------------------------------------------------------------------------------- */

static void test_if(void **state)
{
    (void)state;
    for (int c = 0; c < 2; c++) {
        Run r;                          /* names equal in both branches; an outer initialiser; a nested branch with an outer-outer value */
        run_open(&r, HEAD "g (bool c, float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> {\n"
                          "a = Mul(x, w) n = Not(c)\n"
                          "y = If(c) <then_branch = p () => (float[2] o) { t = Add(a, w) o = If(c) <then_branch = q () => (float[2] u) { u = Add(t, a) },\n"
                          "else_branch = s () => (float[2] u) { u = Neg(t) }> }, else_branch = v () => (float[2] o) { t = Sub(a, w) o = Abs(t) }>\n"
                          "z = If(n) <then_branch = p () => (float[2] o) { t = Add(a, w) o = Neg(t) }, else_branch = v () => (float[2] o) { o = Identity(a) }> }");
        r.in[0] = make_tensor(&r, DT_bool, 0, NULL, VALUES(c));
        r.in[1] = make_tensor(&r, DT_f32, 1, DIMS(2), VALUES(3, -4));
        run_it(&r);
        expect(&r, 0, DT_f32, 1, DIMS(2), c ? VALUES(7, -14) : VALUES(2, 10));
        expect(&r, 1, DT_f32, 1, DIMS(2), c ? VALUES(3, -8) : VALUES(-4, 6));
        run_close(&r);
    }
}

static void test_functions(void **state)
{
    (void)state;
    Run r;                              /* attributes by reference, a default, a function in a function, an absent optional input */
    run_open(&r, "<ir_version: 8, opset_import: [\"\" : 18, \"loc\" : 1]>\n"
                 "g (float[2] x) => (float[2] a, float[2] b, float[2] c) { a = loc.act<alpha = 0.5>(x) b = loc.twice(x) c = loc.lim(x, , x) }\n"
                 "<domain: \"loc\", opset_import: [\"\" : 18]> act <alpha> (u) => (v) { v = LeakyRelu<alpha: float = @alpha>(u) }\n"
                 "<domain: \"loc\", opset_import: [\"\" : 18, \"loc\" : 1]> twice <beta: float = 2.0> (u) => (v) { t = loc.act<alpha: float = @beta>(u)\n"
                 "  v = loc.act<alpha: float = @beta>(t) }\n"
                 "<domain: \"loc\", opset_import: [\"\" : 13]> lim (u, lo, hi) => (v) { m = ReduceMin<keepdims = 0>(hi) v = Clip(u, lo, m) }");
    r.in[0] = make_tensor(&r, DT_f32, 1, DIMS(2), VALUES(3, -4));
    run_it(&r);
    expect(&r, 0, DT_f32, 1, DIMS(2), VALUES(3, -2));
    expect(&r, 1, DT_f32, 1, DIMS(2), VALUES(3, -16));
    expect(&r, 2, DT_f32, 1, DIMS(2), VALUES(-4, -4));
    run_close(&r);
}

static void test_loop(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n += 3) {    /* a constant as the condition, an initialiser and an outer value inside, a growing state */
        Run r;
        run_open(&r, HEAD "g (int64 n, float[1] x) => (float[K] y, float[M, 1] s) <float[1] w = {10}> {\n"
                          "outer = Neg(x)\n"
                          "y, s = Loop(n, , x) <body = b (int64 i, bool c, float[K] v) => (bool c2, float[K2] v2, float[1] e) {\n"
                          "  c2 = Constant<value = bool {1}>() t = Add(outer, w) v2 = Concat<axis = 0>(v, t) f = Cast<to = 1>(i) e = Add(f, outer) }> }");
        r.in[0] = make_tensor(&r, DT_i64, 0, NULL, VALUES(n));
        r.in[1] = make_tensor(&r, DT_f32, 1, DIMS(1), VALUES(2));
        run_it(&r);
        expect(&r, 0, DT_f32, 1, DIMS(1 + n), VALUES(2, 8, 8, 8));
        expect(&r, 1, DT_f32, 2, DIMS(n, 1), VALUES(-2, -1, 0));
        run_close(&r);
    }
}

/* ---- cuts -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct Watch { int cuts, inputs[4]; const Tensor *in; Arena *a; } Watch;

static void watch_cut(void *self, Ctx *cx, const Cut *cut, Tensor *out)
{
    Watch *w = self;
    int64_t *syms = NEWS(w->a, int64_t, cut->g->sym.n + 1);
    const char *why;
    assert_true(host_bind(cx, w->a, cut->g, w->in, syms, &why));
    Node **node = NEWS(w->a, Node *, cut->g->output.n + 1);
    for (int i = 0; i < cut->g->output.n; i++) node[i] = cut->g->output.at[i].node;
    eval_nodes(cx, w->a, cut->g, w->in, syms, cut->g->output.n, node, out);
    w->in = out;
    w->inputs[w->cuts++] = cut->g->output.n;
}

static const char cut_model[] = HEAD "g (int64[K] x, float[N, 2] y) => (float[A, B] z, int64[2] s, float[A2, B2] u) <float[2, 2] w = {1, 2, 3, 4}> {\n"
    "wt = Transpose<perm = [1, 0]>(w) sh = Shape(y) rest = Constant<value_ints = [-1]>() m = ReduceMax<keepdims = 1>(x)\n"
    "target = Concat<axis = 0>(m, rest) e = Add(y, y) r = Reshape(e, target) z = Neg(r) s = Identity(sh)\n"
    "back = Reshape(r, sh) u = MatMul(back, wt) }";

static void test_cut_values(void **state)
{
    (void)state;
    Run r;
    run_open(&r, cut_model);
    double big[5000], y[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    for (int i = 0; i < 5000; i++) big[i] = i % 3;
    r.in[0] = make_tensor(&r, DT_i64, 1, DIMS(5000), big);
    r.in[1] = make_tensor(&r, DT_f32, 2, DIMS(4, 2), y);
    run_it(&r);
    expect(&r, 0, DT_f32, 2, DIMS(2, 4), VALUES(-2, -4, -6, -8, -10, -12, -14, -16));
    expect(&r, 1, DT_i64, 1, DIMS(2), VALUES(4, 2));
    expect(&r, 2, DT_f32, 2, DIMS(4, 2), VALUES(10, 22, 22, 50, 34, 78, 46, 106));
    run_close(&r);
}

static void cut_count_body(Ctx *cx, void *arg)
{
    Run *r = arg;
    onnx_load(cx, r->model, "<memory>", r->text, strlen(r->text));
    Watch w = { .in = r->in, .a = r->arena };
    TraceHost host = { .self = &w, .cut = watch_cut };
    Graph *g = onnx_import(cx, r->arena, r->model, r->model->graph, 0, NULL, r->in, &host);
    graph_check(cx, g);
    assert_int_equal(w.cuts, 1);
    assert_int_equal(w.inputs[0], 2);   /* the target's value and e: the weight is a constant again, the shape is e's */
    assert_int_equal(g->input.n, 2);
}

static void test_cut_count(void **state)
{
    (void)state;
    Run r;
    run_open(&r, cut_model);
    double big[5000] = { 0, 2 }, y[8] = { 0 };
    r.in[0] = make_tensor(&r, DT_i64, 1, DIMS(5000), big);
    r.in[1] = make_tensor(&r, DT_f32, 2, DIMS(4, 2), y);
    Status st = guard_call(&r.cx, cut_count_body, &r);
    if (st) fail_msg("%s", r.cx.text);
    run_close(&r);
}

/* ---- symbols: one trace serves other sizes ---------------------------------------------------------------------------------------------------- */

static void symbols_body(Ctx *cx, void *arg)
{
    Run *r = arg;
    onnx_load(cx, r->model, "<memory>", r->text, strlen(r->text));
    Graph *g = onnx_import(cx, r->arena, r->model, r->model->graph, 0, NULL, r->in, NULL);
    graph_check(cx, g);
    for (int n = 2; n < 40; n += 9) {
        int64_t *syms = NEWS(r->arena, int64_t, g->sym.n + 1);
        const char *why = "";
        double v[40 * 6];
        for (int i = 0; i < n * 6; i++) v[i] = i % 7;
        Tensor x = make_tensor(r, DT_f32, 2, DIMS(n, 6), v);
        if (!host_bind(cx, r->arena, g, &x, syms, &why)) fail_msg("refused for %d: %s", n, why);
        eval_nodes(cx, r->arena, g, &x, syms, 1, &g->output.at[0].node, r->out);
        assert_int_equal(r->out[0].dims[0], n - 1);
        assert_int_equal(r->out[0].dims[1], 12);
        for (int i = 0; i < n - 1; i++)
            for (int k = 0; k < 12; k++)
                if (*(float *)tensor_at(&r->out[0], i * 12 + k) != (float)(((i + 1) * 6 + k % 6) % 7)) fail_msg("n %d, element %d %d", n, i, k);
    }
}

static void test_symbols(void **state)
{
    (void)state;
    Run r;
    run_open(&r, HEAD "g (float[N, 6] x) => (float[M, 12] y) { a = Constant<value_ints = [1]>() z = Constant<value_ints = [0]>() e = Constant<value_ints = [99999999]>()\n"
                      "t = Slice(x, a, e, z) c = Concat<axis = 1>(t, t) sh = Shape(c) n = Slice(sh, z, a) k = Constant<value_ints = [2, -1]>()\n"
                      "d = Concat<axis = 0>(n, k) f = Reshape(c, d) q = Constant<value_ints = [0, -1]>() y = Reshape(f, q) }");
    double v[30] = { 0 };
    r.in[0] = make_tensor(&r, DT_f32, 2, DIMS(5, 6), v);
    Status st = guard_call(&r.cx, symbols_body, &r);
    if (st) fail_msg("%s", r.cx.text);
    run_close(&r);
}

/* ---- length: nothing recurses over the nodes --------------------------------------------------------------------------------------------------- */

static void chain_body(Ctx *cx, void *arg)
{
    Run *r = arg;
    enum { N = 100000 };
    OnnxGraph *g = NEW(r->model->arena, OnnxGraph);
    OnnxNode *node = NEWS(r->arena, OnnxNode, N);
    static const OnnxOpset opset = { "", 18 };
    const char **name = NEWS(r->arena, const char *, N + 1);
    for (int i = 0; i <= N; i++) name[i] = arena_fmt(r->arena, "v%d", i);
    for (int i = 0; i < N; i++)         /* last node first: the order must be found as well */
        node[N - 1 - i] = (OnnxNode){ .name = "", .op = "Neg", .domain = "", .overload = "", .nin = 1, .nout = 1, .in = name + i, .out = name + i + 1 };
    g->node = node;
    g->nnode = N;
    g->in = NEW(r->arena, OnnxValue);
    g->in[0] = (OnnxValue){ .name = name[0], .kind = 't', .dt = DT_f32, .rank = -1 };
    g->out = NEW(r->arena, OnnxValue);
    g->out[0] = (OnnxValue){ .name = name[N], .rank = -1 };
    g->nin = g->nout = 1;
    *r->model = (OnnxModel){ .arena = r->model->arena, .path = "chain", .ir_version = 8, .nopset = 1, .opset = &opset, .graph = g };
    interp_run(cx, r->arena, r->model, r->in, r->out);
}

static void test_chain(void **state)
{
    (void)state;
    Run r;
    run_open(&r, NULL);
    r.in[0] = make_tensor(&r, DT_f32, 1, DIMS(1), VALUES(3));
    r.status = guard_call(&r.cx, chain_body, &r);
    if (r.status) fail_msg("%s", r.cx.text);
    expect(&r, 0, DT_f32, 1, DIMS(1), VALUES(3));
    run_close(&r);
}

/* ---- values that other implementations got wrong ------------------------------------------------------------------------------------------------ */

static void test_norm_cancellation(void **state)
{
    (void)state;
    Run r;
    run_open(&r, HEAD "g (float[2, 4] x, float[4] s, float[4] b) => (float[2, 4] y) { y = LayerNormalization(x, s, b) }");
    r.in[0] = make_tensor(&r, DT_f32, 2, DIMS(2, 4), VALUES(40000, 40001, 40002, 40003, 1234, 1234, 1234, 1234));
    r.in[1] = make_tensor(&r, DT_f32, 1, DIMS(4), VALUES(1, 1, 1, 1));
    r.in[2] = make_tensor(&r, DT_f32, 1, DIMS(4), VALUES(0, 0, 0, 0));
    run_it(&r);
    expect(&r, 0, DT_f32, 2, DIMS(2, 4), VALUES(-1.3416354, -0.4472118, 0.4472118, 1.3416354, 0, 0, 0, 0));
    run_close(&r);
}

static void test_slice_bounds(void **state)
{
    (void)state;
    static const struct { const char *start, *end, *step; int n; double v[10]; } cases[] = {
        { "9", "0", "-1", 9, { 9, 8, 7, 6, 5, 4, 3, 2, 1 } }, { "0", "5", "-1", 0, { 0 } },
        { "-1", "-9223372036854775808", "-1", 10, { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 } }, { "-1", "9223372036854775807", "-1", 0, { 0 } },
        { "2", "2147483647", "3", 3, { 2, 5, 8 } }, { "20", "-20", "-4", 3, { 9, 5, 1 } }, { "-100", "100", "7", 2, { 0, 7 } } };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        Run r;
        char text[600];
        snprintf(text, sizeof text, HEAD "g (float[N] x) => (float[M] y) { s = Constant<value_ints = [%s]>() e = Constant<value_ints = [%s]>()\n"
            "a = Constant<value_ints = [0]>() t = Constant<value_ints = [%s]>() y = Slice(x, s, e, a, t) }", cases[k].start, cases[k].end, cases[k].step);
        run_open(&r, text);
        r.in[0] = make_tensor(&r, DT_f32, 1, DIMS(10), VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
        run_it(&r);
        expect(&r, 0, DT_f32, 1, DIMS(cases[k].n), cases[k].v);
        run_close(&r);
    }
}

static void test_empty_and_rank_0(void **state)
{
    (void)state;
    Run r;
    run_open(&r, HEAD "g (float[2, 0] a, float[0, 3] b, float[3] c, float x, float[0, 6, 2] e, float[2, 3] f) => (float[2, 3] y, float m, float[0, 0, 3] z, float[2, 3, 1] w) {\n"
                      "y = Gemm(a, b, c) m = ReduceMin(x) s1 = Constant<value_ints = [3, 2, -1]>() s2 = Constant<value_ints = [0, 0, 3]>()\n"
                      "t = Reshape<allowzero = 1>(e, s1) z = Reshape<allowzero = 1>(t, s2)\n"
                      "s3 = Constant<value_ints = [0, -1]>() s4 = Constant<value_ints = [0, 0, 1]>() u = Reshape(f, s3) w = Reshape(u, s4) }");
    r.in[0] = make_tensor(&r, DT_f32, 2, DIMS(2, 0), NULL);
    r.in[1] = make_tensor(&r, DT_f32, 2, DIMS(0, 3), NULL);
    r.in[2] = make_tensor(&r, DT_f32, 1, DIMS(3), VALUES(1, 2, 3));
    r.in[3] = make_tensor(&r, DT_f32, 0, NULL, VALUES(5));
    r.in[4] = make_tensor(&r, DT_f32, 3, DIMS(0, 6, 2), NULL);
    r.in[5] = make_tensor(&r, DT_f32, 2, DIMS(2, 3), VALUES(1, 2, 3, 4, 5, 6));
    run_it(&r);
    expect(&r, 0, DT_f32, 2, DIMS(2, 3), VALUES(1, 2, 3, 1, 2, 3));
    expect(&r, 1, DT_f32, 0, NULL, VALUES(5));
    expect(&r, 2, DT_f32, 3, DIMS(0, 0, 3), NULL);
    expect(&r, 3, DT_f32, 3, DIMS(2, 3, 1), VALUES(1, 2, 3, 4, 5, 6));
    run_close(&r);
}

static void test_specials(void **state)
{
    (void)state;
    Run r;
    run_open(&r, HEAD "g (float[4, 2] a, float[4] b) => (float[4] l, float[4] r, float[4] c, float[4] s) { ax = Constant<value_ints = [1]>()\n"
                      "l = ReduceLogSumExp<keepdims = 0>(a, ax) r = Relu(b) lo = Constant<value_float = 0.0>() hi = Constant<value_float = 6.0>() c = Clip(b, lo, hi)\n"
                      "s = Softsign(b) }");
    r.in[0] = make_tensor(&r, DT_f32, 2, DIMS(4, 2), VALUES(-INFINITY, 0, -INFINITY, -INFINITY, INFINITY, 1, 1000, 1000));
    r.in[1] = make_tensor(&r, DT_f32, 1, DIMS(4), VALUES(NAN, -1, 9, 3));
    run_it(&r);
    expect(&r, 0, DT_f32, 1, DIMS(4), VALUES(0, -INFINITY, INFINITY, 1000 + log(2)));
    expect(&r, 1, DT_f32, 1, DIMS(4), VALUES(NAN, 0, 9, 3));
    expect(&r, 2, DT_f32, 1, DIMS(4), VALUES(NAN, 0, 6, 3));
    expect(&r, 3, DT_f32, 1, DIMS(4), VALUES(NAN, -0.5, 0.9, 0.75));
    run_close(&r);
}

static void test_integers(void **state)
{
    (void)state;
    Run r;
    run_open(&r, HEAD "g (int32[4] a, int32[4] b) => (int32[4] d, int32[4] m, int32[4] f) { d = Div(a, b) m = Mod(a, b) f = Mod<fmod = 1>(a, b) }");
    r.in[0] = make_tensor(&r, DT_i32, 1, DIMS(4), VALUES(-2147483648.0, 5, -5, 5));
    r.in[1] = make_tensor(&r, DT_i32, 1, DIMS(4), VALUES(-1, 0, 3, -3));
    run_it(&r);
    expect(&r, 0, DT_i32, 1, DIMS(4), VALUES(-2147483648.0, 0, -1, -1));
    expect(&r, 1, DT_i32, 1, DIMS(4), VALUES(0, 0, 1, -1));
    expect(&r, 2, DT_i32, 1, DIMS(4), VALUES(0, 0, -2, 2));
    run_close(&r);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------------------- */

typedef struct RowTry { const OpRow *row; DType dt; Arena *a; } RowTry;

/* One node of the row's operator on ordinary tensors. */
static void row_body(Ctx *cx, void *arg)
{
    RowTry *t = arg;
    arena_bind(t->a, cx);
    OnnxModel m = { .arena = t->a, .path = "row", .ir_version = 8, .nopset = 1 };
    OnnxOpset opset = { t->row->domain, t->row->since };
    OnnxGraph g = { .name = "g", .nnode = 1, .nout = 1 };
    OnnxNode node = { .name = "", .op = t->row->op, .domain = t->row->domain, .overload = "", .nout = 1 };
    const char *names[16], *out = "y";
    OnnxValue in[16], y = { .name = out, .rank = -1 };
    Tensor arg_of[16], result;
    for (const char *p = t->row->inputs; *p; g.nin++) {
        size_t n = strcspn(p, " ");
        if (strncmp(p, "axes", 4) == 0) break;
        char *name = NEWS(t->a, char, n + 1);
        memcpy(name, p, p[n - 1] == '?' ? n - 1 : n);
        in[g.nin] = (OnnxValue){ .name = names[g.nin] = name, .rank = -1 };
        arg_of[g.nin] = *tensor_new(t->a, cx, t->dt, 2, DIMS(2, 3));
        p += n + strspn(p + n, " ");
    }
    node.in = names;
    node.nin = g.nin;
    node.out = &out;
    g.node = &node;
    g.in = in;
    g.out = &y;
    m.opset = &opset;
    m.graph = &g;
    interp_run(cx, t->a, &m, arg_of, &result);
}

/* A formula that is no expression, or names what it does not bind, is found here. */
static void test_formulas(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < op_table_n; i++) {
        if (!op_table[i].formula) continue;
        char why[3][2048];
        static const DType dtypes[] = { DT_f32, DT_i32, DT_bool };
        bool good = false;
        n++;
        for (size_t k = 0; k < COUNT_OF(dtypes) && !good; k++) {
            Ctx cx;
            ctx_init(&cx);
            RowTry t = { &op_table[i], dtypes[k], arena_new(&cx) };
            good = guard_call(&cx, row_body, &t) == E_OK;
            snprintf(why[k], sizeof why[k], "%s", cx.text);
            arena_free(t.a);
        }
        if (!good) fail_msg("%s(%d): %s", op_table[i].op, op_table[i].since, why[0]);
    }
    assert_true(n > 50);
}

/* Two rows of one operator and version would hide one another. */
static void test_table_unique(void **state)
{
    (void)state;
    for (int i = 0; i < op_table_n; i++) {
        const OpRow *a = &op_table[i];
        assert_true((a->formula != NULL) != (a->fn != NULL));
        assert_ptr_equal(op_find(a->domain, a->op, a->since), a);
        for (int k = 0; k < i; k++) {
            const OpRow *b = &op_table[k];
            if (strcmp(a->op, b->op) == 0 && strcmp(a->domain, b->domain) == 0 && a->since == b->since) fail_msg("%s(%d) has two rows", a->op, a->since);
        }
    }
    assert_null(op_find("", "Softmax", 0));
    assert_null(op_find("nowhere", "Softmax", 13));
    assert_ptr_equal(op_find("ai.onnx", "Relu", 20), op_find("", "Relu", 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unsorted), cmocka_unit_test(test_refused), cmocka_unit_test(test_unknown), cmocka_unit_test(test_if),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_loop), cmocka_unit_test(test_cut_values), cmocka_unit_test(test_cut_count),
        cmocka_unit_test(test_symbols), cmocka_unit_test(test_chain), cmocka_unit_test(test_norm_cancellation), cmocka_unit_test(test_slice_bounds),
        cmocka_unit_test(test_empty_and_rank_0), cmocka_unit_test(test_specials), cmocka_unit_test(test_integers), cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_table_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
