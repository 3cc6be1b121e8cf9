/* Ahead of time: the prelude as plain functions, and the public functions that write and load packages. */
#include "api/api.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sn_error err;

/* ---- the small preprocessor ---------------------------------------------------------------------------------------------------------- */
static void test_expand(void **state)
{
    (void)state;
    static const char text[] =
        "/* a comment\n * of two lines */\n"
        "#define TWICE(t, name) static t name##_##t(t x) { return x + x; }\n"
        "#define ALL(f) f(int, twice) f(long, twice)\n"
        "ALL(TWICE)\n"
        "#if defined __clang__ && !defined NOTHING\n#define HOW 1\n#elif NOTHING == 3\n#define HOW 3\n#else\n#define HOW 2\n#endif\n"
        "static int how(void) { return HOW; }\n"
        "#define LIST(...) { __VA_ARGS__ }\n"
        "static int first(void) { int v[] = LIST(7, 8); return v[0] + twice_int(1); }\n"
        "#undef HOW\n#ifdef HOW\nstatic int never(void) { return 0; }\n#endif\n"
        "typedef struct pair { int a, b; } pair;\nenum { ONE, TWO };\nstatic int second(pair p) { return p.b + TWO; }\n";
    Ctx cx;
    ctx_init(&cx);
    Arena *a = arena_new(&cx);
    Helpers *h = gen_c_helpers_of(&cx, a, text);
    gen_c_standalone(h, "int main(void) { return first() + how(); }");
    Text t = { .arena = a };
    gen_c_helpers_print(h, &t);
    assert_string_equal(t.at,
        "static int twice_int(int x) { return x + x; }\n"
        "#ifdef __clang__\nstatic int how(void) { return 1; }\n#else\nstatic int how(void) { return 2; }\n#endif\n"
        "static int first(void) { int v[] = { 7, 8 }; return v[0] + twice_int(1); }\n");
    h = gen_c_helpers_of(&cx, a, text);
    gen_c_standalone(h, "second((pair){ 1, 2 })");
    t = (Text){ .arena = a };
    gen_c_helpers_print(h, &t);
    assert_string_equal(t.at, "typedef struct pair { int a, b; } pair;\nenum { ONE, TWO };\nstatic int second(pair p) { return p.b + TWO; }\n");
    arena_free(a);
}

/* A suffix goes to what the prelude defines and to nothing else. */
static void test_suffix(void **state)
{
    (void)state;
    Ctx cx;
    ctx_init(&cx);
    Arena *a = arena_new(&cx);
    Helpers *h = gen_c_helpers(&cx, a, "avx2", "_x");
    const char *code = gen_c_standalone(h, "void f(f32 *p) { st_f32v(p, max_f32v(ld_f32v(p), splat_f32v(sinf(1)))); }");
    assert_non_null(strstr(code, "st_f32v_x(p, max_f32v_x(ld_f32v_x(p), splat_f32v_x(sinf(1))))"));
    Text t = { .arena = a };
    gen_c_helpers_print(h, &t);
    assert_non_null(strstr(t.at, "float sinf(float);"));
    assert_non_null(strstr(t.at, "f32v_x max_f32v_x(f32v_x a, f32v_x b)"));
    const char *macro = strstr(t.at, "#define ");    /* one is left: the instruction set */
    assert_non_null(macro);
    assert_int_equal(strncmp(macro, "#define TARGET_x __attribute__((target(\"avx2", 44), 0);
    assert_null(strstr(macro + 1, "#define "));
    arena_free(a);
}

/* ---- the public functions -------------------------------------------------------------------------------------------------------------- */
static sn_model *scaled_model(void)
{
    sn_graph *g;
    sn_model *m;
    sn_value x, y, z;
    assert_int_equal(sn_graph_new(&g, &err), SN_OK);
    assert_int_equal(sn_graph_input(g, "x", SN_F32, 2, (int64_t[]){ -1, 5 }, (const char *[]){ "n", NULL }, &x), SN_OK);
    sn_graph_op(g, "Exp", NULL, 1, &x, 1, &y);
    sn_graph_op(g, "Softmax", "axis=-1", 1, &y, 1, &z);
    sn_graph_output(g, "z", z);
    if (sn_graph_finish(g, &m, &err)) fail_msg("%s", err.text);
    return m;
}

static void test_package(void **state)
{
    (void)state;
    char dir[] = "/tmp/sinter-aot-XXXXXX", path[64], bad[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/net.sinter", dir);
    snprintf(bad, sizeof bad, "%s/net.txt", dir);
    float data[3 * 5], got[3 * 5], want[3 * 5];
    for (int i = 0; i < 15; i++) data[i] = (float)i / 7 - 1;
    sn_model *m = scaled_model();
    sn_tensor in = { .dtype = SN_F32, .rank = 2, .dims = { 3, 5 }, .data = data };
    sn_range range = { "n", 1 };
    sn_export_options o = { .nin = 1, .in = &in, .nrange = 1, .range = &range };
    assert_int_equal(sn_export(m, bad, &o, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "wanted a name that ends in"));
    o.isa = "frob";
    assert_int_equal(sn_export(m, path, &o, &err), SN_INVALID);
    o.isa = NULL;
    o.nin = 0;
    assert_int_equal(sn_export(m, path, &o, &err), SN_INVALID);
    o.nin = 1;
    if (sn_export(m, path, &o, &err)) fail_msg("%s", err.text);

    sn_program *p, *q;
    assert_int_equal(sn_program_load(bad, NULL, &p, &err), SN_IO);
    if (sn_program_load(path, NULL, &p, &err)) fail_msg("%s", err.text);
    if (sn_compile(m, NULL, &q, &err)) fail_msg("%s", err.text);
    if (sn_prepare(q, 1, &in, &err)) fail_msg("%s", err.text);      /* first results may come from elsewhere than from kernels */
    assert_int_equal(sn_model_input_count(sn_program_model(p)), 1);
    sn_port port;
    assert_int_equal(sn_model_input(sn_program_model(p), 0, &port, &err), SN_OK);
    assert_string_equal(port.name, "x");
    assert_string_equal(port.symbols[0], "n");
    assert_int_equal(port.dims[1], 5);
    for (int n = 3; n > 0; n--) {                    /* any size within the bounds, and the bits of a program */
        in.dims[0] = n;
        sn_tensor a = { .data = got, .bytes = sizeof got }, b = { .data = want, .bytes = sizeof want };
        if (sn_run(p, 1, &in, 1, &a, &err)) fail_msg("%s", err.text);
        if (sn_run(q, 1, &in, 1, &b, &err)) fail_msg("%s", err.text);
        assert_int_equal(a.dims[0], n);
        assert_memory_equal(got, want, (size_t)n * 5 * sizeof *got);
    }
    sn_tensor own = { 0 };
    if (sn_run(p, 1, &in, 1, &own, &err)) fail_msg("%s", err.text);
    assert_memory_equal(own.data, want, 5 * sizeof *want);
    sn_tensor_release(&own);
    float turned[3 * 5];                             /* strides of the caller's */
    for (int i = 0; i < 3; i++) for (int k = 0; k < 5; k++) turned[k * 3 + i] = data[i * 5 + k];
    sn_tensor strided = { .dtype = SN_F32, .rank = 2, .dims = { 3, 5 }, .strides = { 1, 3 }, .has_strides = 1, .data = turned }, a = { .data = got, .bytes = sizeof got };
    in.dims[0] = 3;
    sn_tensor b = { .data = want, .bytes = sizeof want };
    if (sn_run(p, 1, &strided, 1, &a, &err) || sn_run(q, 1, &in, 1, &b, &err)) fail_msg("%s", err.text);
    assert_memory_equal(got, want, sizeof got);
    in.dims[0] = 4;
    float four[4 * 5] = { 0 };
    in.data = four;
    assert_int_equal(sn_run(p, 1, &in, 1, &own, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "'n' is 4, and the package is for 1 to 3"));
    in.dims[0] = 3;
    a.bytes = 8;
    assert_int_equal(sn_run(p, 1, &in, 1, &a, &err), SN_INVALID);
    in.dims[1] = 4;
    assert_int_equal(sn_run(p, 1, &in, 1, &own, &err), SN_INVALID);
    char *text;
    assert_int_equal(sn_program_explain(p, SN_EXPLAIN_TEXT, &text, &err), SN_INVALID);
    sn_program_free(p);
    sn_program_free(q);
    sn_model_free(m);
    unlink(path);
    rmdir(dir);
}

static char *text_of_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *s = calloc(n + 1, 1);
    assert_non_null(s);
    assert_int_equal(fread(s, 1, n, f), n);
    fclose(f);
    return s;
}

/* Rules of a file, and what they may assume: the C text as they want it. */
static void test_exported_rules(void **state)
{
    (void)state;
    char dir[] = "/tmp/sinter-aot-XXXXXX", path[64], rules[64], cmd[96];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/half.c", dir);
    snprintf(rules, sizeof rules, "%s/half.rules", dir);
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    FILE *f = fopen(rules, "w");
    assert_non_null(f);
    fputs("RULE( half_sum, \"F\", FINITE, \"(x + abs(x)) * 0.5\", \"relu(x)\", \"the positive part\" )\n", f);
    fclose(f);
    sn_graph *g;
    sn_model *m;
    sn_value v[4], half;
    assert_int_equal(sn_graph_new(&g, &err), SN_OK);
    assert_int_equal(sn_graph_input(g, "x", SN_F32, 1, (int64_t[]){ 40 }, NULL, &v[0]), SN_OK);
    const float number = 0.5f;
    assert_int_equal(sn_graph_const(g, &(sn_tensor){ .dtype = SN_F32, .data = (void *)&number, .bytes = sizeof number }, &half), SN_OK);
    sn_graph_op(g, "Abs", NULL, 1, v, 1, &v[1]);
    sn_graph_op(g, "Add", NULL, 2, v, 1, &v[2]);
    sn_graph_op(g, "Mul", NULL, 2, (sn_value[]){ v[2], half }, 1, &v[3]);
    sn_graph_output(g, "y", v[3]);
    if (sn_graph_finish(g, &m, &err)) fail_msg("%s", err.text);
    sn_tensor in = { .dtype = SN_F32, .rank = 1, .dims = { 40 } };
    for (int leave = 0; leave < 2; leave++) {
        const sn_export_options o = { .nin = 1, .in = &in, .rules = rules, .allow = leave ? "finite" : NULL };
        if (sn_export(m, path, &o, &err)) fail_msg("%s", err.text);
        char *text = text_of_file(path);
        assert_int_equal(strstr(text, "abs_f32") == NULL, leave);
        free(text);
    }
    assert_int_equal(sn_export(m, path, &(sn_export_options){ .nin = 1, .in = &in, .allow = "speed" }, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "'speed' is nothing that can be allowed"));
    assert_int_equal(sn_export(m, path, &(sn_export_options){ .nin = 1, .in = &in, .rules = path }, &err), SN_FORMAT);
    sn_model_free(m);
    assert_int_equal(system(cmd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_expand), cmocka_unit_test(test_suffix), cmocka_unit_test(test_package), cmocka_unit_test(test_exported_rules) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
