/* The public functions: models, graphs by calls, programs, errors, threads, failing allocations. */
#include "sn_model.h"

#include <math.h>
#include <pthread.h>

static sn_program *compiled(sn_model *m, bool interpret)
{
    sn_options o = { .interpret = interpret, .threads = 2 };
    sn_program *p = NULL;
    sn_status st = sn_compile(m, &o, &p, &err);
    if (st) fail_msg("%s: %s", sn_status_name(st), err.text);
    return p;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------------- */

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(sn_status_name(SN_INVALID), "INVALID");
    assert_string_equal(sn_status_name((sn_status)99), "?");
    assert_string_equal(sn_dtype_name(SN_BF16), "bf16");
    assert_string_equal(sn_dtype_name((sn_dtype)77), "?");
    assert_int_equal(sn_dtype_from_name("f8e4m3fn"), SN_F8E4M3FN);
    assert_int_equal(sn_dtype_from_name("text"), SN_NONE);
    assert_int_equal(sn_dtype_from_name(NULL), SN_NONE);
    assert_int_equal(sn_dtype_size(SN_I4), 1);
    assert_int_equal(sn_dtype_size(SN_F64), 8);
    assert_true(strlen(sn_version()) >= 5);
}

/* The numbers of sn_dtype and of dtypes.def are the same, by name. */
static void test_dtypes_agree(void **state)
{
    (void)state;
    static const sn_dtype all[] = { SN_F32, SN_F64, SN_F16, SN_BF16, SN_F8E4M3FN, SN_F8E4M3FNUZ, SN_F8E5M2, SN_F8E5M2FNUZ, SN_F8E8M0, SN_F4E2M1, SN_I8, SN_I16,
        SN_I32, SN_I64, SN_U8, SN_U16, SN_U32, SN_U64, SN_I4, SN_U4, SN_I2, SN_U2, SN_BOOL };
    assert_int_equal(COUNT_OF(all), DT_COUNT - 1);
    for (size_t i = 0; i < COUNT_OF(all); i++) assert_int_equal(sn_dtype_from_name(sn_dtype_name(all[i])), all[i]);
}

/* ---- models ------------------------------------------------------------------------------------------------------------------------- */

static const char text_model[] =
    "<ir_version: 10, opset_import: [\"\" : 21, \"local\" : 2], producer_name: \"me\", model_version: 7, metadata_props: [\"k\" : \"v\"]>\n"
    "net (float[N, 3, ?] x, int64 k) => (float[N, 3, M] y, bool b) <float[1] w = {2}> { y = Mul(x, w)\n b = Cast<to = 9>(k) }\n";

static void test_ports(void **state)
{
    (void)state;
    sn_model *m = NULL;
    sn_port p;
    const char *key, *value;
    assert_int_equal(sn_model_from_memory(text_model, strlen(text_model), NULL, &m, &err), SN_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(sn_model_input_count(m), 2);
    assert_int_equal(sn_model_output_count(m), 2);
    assert_int_equal(sn_model_input(m, 0, &p, &err), SN_OK);
    assert_string_equal(p.name, "x");
    assert_int_equal(p.dtype, SN_F32);
    assert_int_equal(p.rank, 3);
    assert_int_equal(p.dims[0], -1);
    assert_int_equal(p.dims[1], 3);
    assert_string_equal(p.symbols[0], "N");
    assert_null(p.symbols[1]);
    assert_null(p.symbols[2]);
    assert_int_equal(sn_model_output(m, 1, &p, NULL), SN_OK);
    assert_int_equal(p.dtype, SN_BOOL);
    assert_int_equal(sn_model_input(m, 2, &p, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "the model has 2"));
    assert_int_equal(sn_model_output(m, -1, &p, &err), SN_INVALID);
    assert_string_equal(sn_model_meta(m, "producer"), "me");
    assert_string_equal(sn_model_meta(m, "k"), "v");
    assert_string_equal(sn_model_meta(m, "model_version"), "7");
    assert_string_equal(sn_model_meta(m, "graph"), "net");
    assert_string_equal(sn_model_meta(m, "graph_doc"), "");
    assert_string_equal(sn_model_meta(m, "opset"), "ai.onnx:21 local:2");
    assert_null(sn_model_meta(m, "nothing"));
    assert_int_equal(sn_model_meta_at(m, sn_model_meta_count(m) - 1, &key, &value, &err), SN_OK);
    assert_string_equal(key, "k");
    assert_int_equal(sn_model_meta_at(m, 99, &key, &value, &err), SN_INVALID);
    sn_model_free(m);
}

static void test_load_failures(void **state)
{
    (void)state;
    sn_model *m = NULL;
    assert_int_equal(sn_model_load("/nonexistent/net.onnx", &m, &err), SN_IO);
    assert_non_null(strstr(err.text, "/nonexistent/net.onnx"));
    assert_int_equal(err.code, SN_IO);
    assert_int_equal(sn_model_load(NULL, &m, &err), SN_INVALID);
    assert_int_equal(sn_model_from_memory("\xff\xff\xff", 3, "bytes", &m, NULL), SN_FORMAT);
    assert_int_equal(sn_model_from_memory(NULL, 3, "bytes", &m, &err), SN_INVALID);
    assert_null(m);
    sn_model_free(NULL);
    sn_program_free(NULL);
    sn_graph_free(NULL);
    sn_string_free(NULL);
    sn_tensor_release(NULL);
}

/* ---- graphs by calls ----------------------------------------------------------------------------------------------------------------- */

/* Every elementwise primitive is an operator, and the program does what the interpreter's value says. */
static void test_primitives(void **state)
{
    (void)state;
    const int64_t n = 5;
    for (int op = 0; op < OP_COUNT; op++) {
        const PrimInfo *p = &prim_info[op];
        if (!p->elementwise || op == OP_where || !strchr(p->domain, 'F')) continue;
        char name[64];
        snprintf(name, sizeof name, "sinter.%s", p->name);
        sn_model *m = one_op(name, NULL, p->arity, SN_F32, 1, &n);
        sn_program *prog = compiled(m, true);
        float a[5] = { 0.25f, 0.5f, 0.75f, 1, 0.125f }, b[5] = { 0.5f, 0.25f, 0.75f, 2, 1 };
        sn_tensor in[2] = { vec_f32(a, n), vec_f32(b, n) }, y = { 0 };
        if (sn_run(prog, p->arity, in, 1, &y, &err)) fail_msg("%s: %s", name, err.text);
        for (int i = 0; i < 5; i++) {
            Scalar v[2] = { { .f = a[i] }, { .f = b[i] } }, want = eval_ew((Op)op, DT_f32, p->arity, v);
            if (p->compares) assert_int_equal(((uint8_t *)y.data)[i], want.i);
            else if (isnan(want.f)) assert_true(isnan(((float *)y.data)[i]));
            else assert_true(((float *)y.data)[i] == (float)want.f);
        }
        sn_tensor_release(&y);
        sn_program_free(prog);
        sn_model_free(m);
    }
}

/* One operator on 2 x 3 floats 1..6; the result's first elements. */
static void check_prim(const char *op, const char *attrs, sn_dtype dt, int count, const double *want)
{
    const int64_t dims[2] = { 2, 3 };
    float x[6] = { 1, 2, 3, 4, 5, 6 };
    for (int interpret = 0; interpret < 2; interpret++) {
        sn_model *m = one_op(op, attrs, 1, SN_F32, 2, dims);
        sn_program *p = compiled(m, interpret);
        sn_tensor in = { .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .data = x, .bytes = sizeof x }, y = { 0 };
        if (sn_run(p, 1, &in, 1, &y, &err)) fail_msg("%s %s: %s", op, attrs, err.text);
        assert_int_equal(y.dtype, dt);
        assert_int_equal(y.bytes, (size_t)count * sn_dtype_size(dt));
        DType t = dtype_from_onnx((int)dt);
        for (int i = 0; i < count; i++) {
            Scalar v = scalar_load(t, (char *)y.data + (size_t)i * dtype_size(t));
            double got = dtype_is_float(t) ? v.f : (double)v.i;
            if (got != want[i]) fail_msg("%s %s: element %d is %g, wanted %g", op, attrs, i, got, want[i]);
        }
        sn_tensor_release(&y);
        sn_program_free(p);
        sn_model_free(m);
    }
}

static void test_structural_primitives(void **state)
{
    (void)state;
    check_prim("sinter.cast", "to=i64", SN_I64, 6, (double[]){ 1, 2, 3, 4, 5, 6 });
    check_prim("sinter.cast", "to=u8 saturate=0", SN_U8, 6, (double[]){ 1, 2, 3, 4, 5, 6 });
    check_prim("sinter.bitcast", "to=i32", SN_I32, 6, (double[]){ 0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000, 0x40c00000 });
}

static void test_folds(void **state)
{
    (void)state;
    check_prim("sinter.fold", "kind=sum axes=[1]", SN_F32, 2, (double[]){ 6, 15 });
    check_prim("sinter.fold", "kind=max axes=[0] keepdims=0", SN_F32, 3, (double[]){ 4, 5, 6 });
    check_prim("sinter.fold", "kind='prod'", SN_F32, 1, (double[]){ 720 });
    check_prim("sinter.fold", "kind=argmin axes=[-1]", SN_I64, 2, (double[]){ 0, 0 });
    check_prim("sinter.scan", "kind=sum axis=1", SN_F32, 6, (double[]){ 1, 3, 6, 4, 9, 15 });
    check_prim("sinter.scan", "kind=sum axis=1 exclusive=1 reverse=1", SN_F32, 6, (double[]){ 5, 3, 0, 11, 6, 0 });
    check_prim("sinter.join", "axis=1", SN_F32, 6, (double[]){ 1, 2, 3, 4, 5, 6 });
    check_prim("sinter.dims", NULL, SN_I64, 2, (double[]){ 2, 3 });
    check_prim("sinter.view", "dims=[3,2] strides=[1,3]", SN_F32, 6, (double[]){ 1, 4, 2, 5, 3, 6 });
    check_prim("sinter.view", "dims=[2,2] strides=[-2,0] offset=5", SN_F32, 4, (double[]){ 6, 6, 4, 4 });
    check_prim("Transpose", "perm=[1,0]", SN_F32, 6, (double[]){ 1, 4, 2, 5, 3, 6 });
    check_prim("LeakyRelu", "alpha=0.5", SN_F32, 6, (double[]){ 1, 2, 3, 4, 5, 6 });
}

static void test_many_operands(void **state)
{
    (void)state;
    sn_graph *g;
    sn_model *m;
    sn_value x, index, upd, shape, key, y[6];
    int64_t n3 = 3, i2[2] = { 2, -3 }, s2[2] = { 2, 2 };
    uint64_t k = 7;
    float u[2] = { 10, 20 };
    assert_int_equal(sn_graph_new(&g, &err), SN_OK);
    sn_graph_input(g, "x", SN_F32, 1, &n3, NULL, &x);
    sn_tensor ti = { .dtype = SN_I64, .rank = 1, .dims = { 2 }, .data = i2, .bytes = 16 }, tu = vec_f32(u, 2);
    sn_tensor ts = { .dtype = SN_I64, .rank = 1, .dims = { 2 }, .data = s2, .bytes = 16 }, tk = { .dtype = SN_U64, .data = &k, .bytes = 8 };
    sn_graph_const(g, &ti, &index);
    sn_graph_const(g, &tu, &upd);
    sn_graph_const(g, &ts, &shape);
    sn_graph_const(g, &tk, &key);
    i2[0] = 99;                         /* constants are copies */
    sn_graph_op(g, "sinter.gather", "axis=0", 2, (sn_value[]){ x, index }, 1, &y[0]);
    sn_graph_op(g, "sinter.scatter", "combine=add", 3, (sn_value[]){ x, index, upd }, 1, &y[1]);
    sn_graph_op(g, "sinter.iota", "axis=1", 1, &shape, 1, &y[2]);
    sn_graph_op(g, "sinter.random", NULL, 2, (sn_value[]){ key, shape }, 1, &y[3]);
    sn_graph_op(g, "sinter.lt", NULL, 2, (sn_value[]){ x, y[1] }, 1, &y[4]);
    sn_graph_op(g, "sinter.where", NULL, 3, (sn_value[]){ y[4], x, y[1] }, 1, &y[5]);
    for (int j = 0; j < 6; j++) {
        char name[8];
        snprintf(name, sizeof name, "y%d", j);
        sn_graph_output(g, name, y[j]);
    }
    if (sn_graph_finish(g, &m, &err)) fail_msg("%s", err.text);
    for (int interpret = 0; interpret < 2; interpret++) {
        sn_program *p = compiled(m, interpret);
        float xv[3] = { 1, 2, 3 };
        sn_tensor in = vec_f32(xv, 3), out[6];
        memset(out, 0, sizeof out);
        if (sn_run(p, 1, &in, 6, out, &err)) fail_msg("%s", err.text);
        assert_memory_equal(out[0].data, ((float[]){ 3, 1 }), 8);
        assert_memory_equal(out[1].data, ((float[]){ 21, 2, 13 }), 12);
        assert_memory_equal(out[2].data, ((int64_t[]){ 0, 1, 0, 1 }), 32);
        assert_int_equal(((uint64_t *)out[3].data)[2], random_word(7, 2));
        assert_memory_equal(out[4].data, "\1\0\1", 3);
        assert_memory_equal(out[5].data, ((float[]){ 1, 2, 3 }), 12);
        for (int j = 0; j < 6; j++) sn_tensor_release(&out[j]);
        sn_program_free(p);
    }
    sn_model_free(m);
}

/* The first failure stays, and its message comes out at the end. */
static void test_graph_failures(void **state)
{
    (void)state;
    static const struct { const char *attrs, *word; } bad[] = {
        { "axis", "name=value" }, { "axis=", "wanted a value" }, { "axis=1 axis=2", "given twice" }, { "a=[1,x]", "number" }, { "a='text", "does not end" },
        { "a=1b", "wanted a value" }, { "a='x'y", "space" }, { "=1", "name=value" }, { "a=[1", "number" } };
    sn_graph *g;
    sn_model *m = NULL;
    const int64_t n = 2, wrong = -2;
    sn_value x, y;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(sn_graph_new(&g, &err), SN_OK);
        sn_graph_input(g, "x", SN_F32, 1, &n, NULL, &x);
        assert_int_equal(sn_graph_op(g, "Relu", bad[i].attrs, 1, &x, 1, &y), SN_FORMAT);
        assert_int_equal(y, 0);
        assert_int_equal(sn_graph_output(g, "y", y), SN_FORMAT);
        assert_int_equal(sn_graph_finish(g, &m, &err), SN_FORMAT);
        if (!strstr(err.text, bad[i].word)) fail_msg("'%s': %s", bad[i].attrs, err.text);
    }
    assert_int_equal(sn_graph_new(&g, NULL), SN_OK);
    assert_int_equal(sn_graph_input(g, "x", SN_F32, 1, &wrong, NULL, &x), SN_INVALID);
    sn_graph_free(g);
    assert_int_equal(sn_graph_new(&g, NULL), SN_OK);
    assert_int_equal(sn_graph_input(g, "x", SN_F32, 1, &n, NULL, &x), SN_OK);
    assert_int_equal(sn_graph_input(g, "x", SN_F32, 1, &n, NULL, &x), SN_INVALID);
    assert_int_equal(sn_graph_finish(g, &m, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "'x' is given twice"));
    assert_int_equal(sn_graph_new(&g, NULL), SN_OK);
    x = 17;
    assert_int_equal(sn_graph_op(g, "Relu", NULL, 1, &x, 1, &y), SN_INVALID);
    assert_int_equal(sn_graph_finish(g, &m, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "none of this graph's"));
    assert_int_equal(sn_graph_new(&g, NULL), SN_OK);
    assert_int_equal(sn_graph_finish(g, &m, &err), SN_INVALID);
    assert_non_null(strstr(err.text, "no output"));
    assert_int_equal(sn_graph_finish(NULL, &m, &err), SN_INVALID);
    assert_null(m);
}

static void test_unknown_operator(void **state)
{
    (void)state;
    const int64_t n = 2;
    sn_program *p = NULL;
    sn_model *m = one_op("my.own.Twist", NULL, 1, SN_F32, 1, &n);
    assert_int_equal(sn_compile(m, NULL, &p, &err), SN_UNSUPPORTED);
    assert_non_null(strstr(err.text, "my.own.Twist"));
    assert_null(p);
    sn_model_free(m);
    assert_int_equal(sn_compile(NULL, NULL, &p, &err), SN_INVALID);
}

/* ---- running ---------------------------------------------------------------------------------------------------------------------------- */

static const char add_relu[] =
    "<ir_version: 10, opset_import: [\"\" : 21]>\n"
    "net (float[N, M] x, float[K] b) => (float[N, M] y) { a = Add(x, b)\n y = Relu(a) }\n";

static sn_model *add_relu_model(void)
{
    sn_model *m = NULL;
    assert_int_equal(sn_model_from_memory(add_relu, strlen(add_relu), "add_relu", &m, &err), SN_OK);
    return m;
}

static void test_buffers(void **state)
{
    (void)state;
    sn_model *m = add_relu_model();
    sn_program *p = compiled(m, false);
    float x[12] = { -3, 9, 1, 9, 2, 9, -1, 9, 5, 9, -6, 9 }, b[3] = { 1, 2, -4 }, y[7] = { 0 }, wide[24];
    for (int i = 0; i < 24; i++) wide[i] = 77;
    /* every second element, rows of three */
    sn_tensor in[2] = { { .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .strides = { 6, 2 }, .has_strides = 1, .data = x, .bytes = sizeof x }, vec_f32(b, 3) };
    sn_tensor out = { .data = y, .bytes = 24 };
    static const float want[6] = { 0, 3, 0, 0, 7, 0 };
    if (sn_run(p, 2, in, 1, &out, &err)) fail_msg("%s", err.text);
    assert_memory_equal(y, want, sizeof want);
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.dims[1], 3);
    assert_null(out.owner);
    sn_tensor_release(&out);            /* nothing to release: stays as it is */
    assert_ptr_equal(out.data, y);
    out.bytes = 23;
    assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_INVALID);
    out = (sn_tensor){ .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .strides = { 12, 4 }, .has_strides = 1, .data = wide, .bytes = sizeof wide };
    if (sn_run(p, 2, in, 1, &out, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < 24; i++) assert_true(wide[i] == (i % 4 ? 77 : want[i / 12 * 3 + i % 12 / 4]));
    out.dims[0] = 3;
    assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_INVALID);
    out.dims[0] = 2;
    out.bytes = 4 * 20;                 /* the last element starts at 20 */
    assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_INVALID);
    /* backwards and broadcast */
    sn_tensor back[2] = { { .dtype = SN_F32, .rank = 2, .dims = { 1, 3 }, .strides = { 0, -1 }, .has_strides = 1, .data = b + 2 },
                          { .dtype = SN_F32, .rank = 1, .dims = { 3 }, .strides = { 0 }, .has_strides = 1, .data = x + 1, .bytes = 4 } };
    out = (sn_tensor){ 0 };
    if (sn_run(p, 2, back, 1, &out, &err)) fail_msg("%s", err.text);
    assert_memory_equal(out.data, ((float[]){ 5, 11, 10 }), 12);
    assert_ptr_equal(out.owner, out.data);
    sn_tensor_release(&out);
    assert_null(out.data);
    sn_program_free(p);
    sn_model_free(m);
}

static void expect_run(sn_program *p, int nin, const sn_tensor *in, int nout, sn_tensor *out, sn_status st, const char *word)
{
    assert_int_equal(sn_run(p, nin, in, nout, out, &err), st);
    if (!strstr(err.text, word)) fail_msg("'%s' is not in: %s", word, err.text);
}

static void test_run_failures(void **state)
{
    (void)state;
    sn_model *m = add_relu_model();
    float x[6] = { 0 };
    for (int interpret = 0; interpret < 2; interpret++) {
        sn_program *p = compiled(m, interpret);
        sn_tensor good[2] = { { .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .data = x, .bytes = 24 }, vec_f32(x, 3) }, in[2], out = { 0 };
        expect_run(p, 1, good, 1, &out, SN_INVALID, "1 inputs are given, wanted 2");
        expect_run(p, 2, good, 2, &out, SN_INVALID, "2 outputs are asked for, wanted 1");
        expect_run(p, 2, NULL, 1, &out, SN_INVALID, "in is NULL");
        expect_run(p, 2, good, 1, NULL, SN_INVALID, "out is NULL");
        memcpy(in, good, sizeof in);
        in[1].dtype = SN_I32;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "wanted f32[K]");
        in[1].dtype = (sn_dtype)99;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "input 'b'");
        memcpy(in, good, sizeof in);
        in[1].data = NULL;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "input 'b' has no data");
        memcpy(in, good, sizeof in);
        in[0].bytes = 20;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "input 'x': it has 20 bytes, wanted 24");
        memcpy(in, good, sizeof in);
        in[0].rank = 1;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "wanted f32[N,M]");
        in[0].rank = 17;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "input 'x'");
        memcpy(in, good, sizeof in);
        in[0].dims[0] = -2;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "input 'x'");
        in[0].dims[0] = INT64_MAX / 2;
        in[0].bytes = 0;
        assert_int_not_equal(sn_run(p, 2, in, 1, &out, &err), SN_OK);
        memcpy(in, good, sizeof in);
        in[1].dims[0] = 2;
        expect_run(p, 2, in, 1, &out, SN_INVALID, "Add");
        assert_null(out.data);
        assert_int_equal(sn_run(p, 2, good, 1, &out, &err), SN_OK);         /* and it still works */
        sn_tensor_release(&out);
        sn_program_free(p);
    }
    sn_model_free(m);
}

static void test_evidence(void **state)
{
    (void)state;
    sn_model *m = add_relu_model();
    sn_program *p = compiled(m, false);
    float x[6] = { 1, 2, 3, 4, 5, 6 };
    char *text = NULL;
    sn_tensor in[2] = { { .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .data = x, .bytes = 24 }, vec_f32(x, 3) }, out = { 0 };
    assert_int_equal(sn_program_explain(p, SN_EXPLAIN_TEXT, &text, &err), SN_INVALID);
    in[0].data = in[1].data = NULL;     /* sizes are enough to prepare */
    if (sn_prepare(p, 2, in, &err)) fail_msg("%s", err.text);
    assert_int_equal(sn_program_variants(p), 1);
    in[0].data = in[1].data = x;
    assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_OK);
    sn_tensor_release(&out);
    assert_int_equal(sn_program_variants(p), 1);
    in[0].dims[0] = 1;
    assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_OK);
    sn_tensor_release(&out);
    assert_int_equal(sn_program_explain(p, SN_EXPLAIN_TEXT, &text, &err), SN_OK);
    assert_non_null(strstr(text, "Relu y"));
    sn_string_free(text);
    assert_int_equal(sn_program_explain(p, SN_EXPLAIN_JSON, &text, &err), SN_OK);
    assert_true(text[0] == '{' && strstr(text, "\"Relu y\"") && strstr(text, "\"launches\": 1"));
    assert_non_null(strstr(text, "\"ms\": null"));       /* nothing is measured unasked */
    sn_string_free(text);
    assert_int_equal(sn_profile(p, 2, in, 3, &err), SN_OK);
    assert_int_equal(sn_program_explain(p, SN_EXPLAIN_JSON, &text, &err), SN_OK);
    assert_null(strstr(text, "\"ms\": null"));
    sn_string_free(text);
    in[0].dims[1] = 7;
    assert_int_equal(sn_profile(p, 2, in, 3, &err), SN_INVALID);
    sn_program_free(p);
    sn_model_free(m);
}

/* Rules by the options: of a file, with leave and without. */
static void test_rules(void **state)
{
    (void)state;
    sn_graph *g;
    sn_model *m;
    sn_value x, s[2], y;
    float data[5] = { -2, -0.5f, 0, 1, 3 }, half_data = 0.5f;
    const sn_tensor half = { .dtype = SN_F32, .data = &half_data };
    sn_tensor in = vec_f32(data, 5);
    assert_int_equal(sn_graph_new(&g, &err), SN_OK);
    sn_graph_input(g, "x", SN_F32, 1, (int64_t[]){ 5 }, NULL, &x);
    sn_graph_op(g, "Abs", NULL, 1, &x, 1, &s[1]);
    sn_graph_op(g, "Add", NULL, 2, (sn_value[]){ x, s[1] }, 1, &s[0]);
    sn_graph_const(g, &half, &s[1]);
    sn_graph_op(g, "Mul", NULL, 2, s, 1, &y);
    sn_graph_output(g, "y", y);
    if (sn_graph_finish(g, &m, &err)) fail_msg("%s", err.text);
    static const struct { const char *allow, *said; } with[] = { { NULL, "half_sum 0 times: it needs --allow finite" }, { "finite", "half_sum 1 times" } };
    for (int i = 0; i < 2; i++) {
        char *text;
        sn_program *p;
        if (sn_compile(m, &(sn_options){ .rules = "examples/relu.rules", .allow = with[i].allow }, &p, &err)) fail_msg("%s", err.text);
        sn_tensor out = { 0 };
        assert_int_equal(sn_run(p, 1, &in, 1, &out, &err), SN_OK);
        for (int k = 0; k < 5; k++) assert_true(((float *)out.data)[k] == (data[k] > 0 ? data[k] : 0));
        sn_tensor_release(&out);
        assert_int_equal(sn_program_explain(p, SN_EXPLAIN_TEXT, &text, &err), SN_OK);
        if (!strstr(text, with[i].said)) fail_msg("not said: %s\n%s", with[i].said, text);
        sn_string_free(text);
        sn_program_free(p);
    }
    sn_program *none = NULL;
    assert_int_equal(sn_compile(m, &(sn_options){ .rules = "examples/wrong.rules" }, &none, &err), SN_FORMAT);
    assert_non_null(strstr(err.text, "examples/wrong.rules:2: rule 'drop_zero'"));
    assert_int_equal(sn_compile(m, &(sn_options){ .allow = "speed" }, &none, &err), SN_INVALID);
    assert_null(none);
    sn_model_free(m);
}

/* But files of exporters hold misspelt names, which other engines take: Softmax(x) with 'axs'. */
static void test_attributes_of_files(void **state)
{
    (void)state;
    static const char file[] = "\x08\x0a\x3a\x4a\x0a\x1b\x0a\x01\x78\x12\x01\x79\x22\x07\x53\x6f\x66\x74\x6d\x61\x78\x2a\x0a\x0a\x03\x61\x78\x73\x18\x00\xa0\x01\x02\x12\x01\x67"
        "\x5a\x13\x0a\x01\x78\x12\x0e\x0a\x0c\x08\x01\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03\x62\x13\x0a\x01\x79\x12\x0e\x0a\x0c\x08\x01\x12\x08\x0a\x02"
        "\x08\x02\x0a\x02\x08\x03\x42\x02\x10\x15";
    sn_model *m = NULL;
    assert_int_equal(sn_model_from_memory(file, sizeof file - 1, "file.onnx", &m, &err), SN_OK);
    sn_program *p = compiled(m, false);
    float x[6] = { 0 };
    sn_tensor in = { .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .data = x, .bytes = sizeof x }, out = { 0 };
    assert_int_equal(sn_run(p, 1, &in, 1, &out, &err), SN_OK);
    assert_float_equal(((const float *)out.data)[5], 1.0 / 3, 1e-6);
    sn_tensor_release(&out);
    sn_program_free(p);
    sn_model_free(m);
}

/* A misspelt attribute would leave the default in force. */
static void test_attributes(void **state)
{
    (void)state;
    static const struct { const char *op, *attrs, *said; } wrong[] = {
        { "Softmax", "axs=1", "node 'Softmax_0' (Softmax): attribute 'axs' is unknown, wanted 'axis'" },
        { "Softmax", "axsi=1", "attribute 'axsi' is unknown, wanted 'axis'" },
        { "LeakyRelu", "slope=0.5", "attribute 'slope' is unknown, wanted alpha" },
        { "ReduceSum", "axes=[1]", "attribute 'axes' is unknown, wanted " },         /* an input since opset 13 */
        { "Relu", "axis=1", "attribute 'axis' is unknown, wanted none" },
        { "sinter.fold", "kind=sum axes=[1] keep=0", "attribute 'keep' is unknown, wanted " },
        { "Cast", "to=f99", "attribute 'to' is 'f99', wanted an int" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        sn_model *m = one_op(wrong[i].op, wrong[i].attrs, 1, SN_F32, 2, (int64_t[]){ 2, 3 });
        sn_program *p = compiled(m, false);
        float x[6] = { 0 };
        sn_tensor in = { .dtype = SN_F32, .rank = 2, .dims = { 2, 3 }, .data = x }, out = { 0 };
        assert_int_equal(sn_run(p, 1, &in, 1, &out, &err), SN_FORMAT);
        if (!strstr(err.text, wrong[i].said)) fail_msg("'%s', wanted '%s'", err.text, wrong[i].said);
        sn_program_free(p);
        sn_model_free(m);
    }
    static const char *const right[][2] = { { "Softmax", "axis=0" }, { "LayerNormalization", "axis=-1 epsilon=1e-5 stash_type=1" }, { "Dropout", "seed=3" } };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        sn_model *m = one_op(right[i][0], right[i][1], i == 1 ? 2 : 1, SN_F32, 1, (int64_t[]){ 3 });
        sn_program *p = compiled(m, false);
        float x[3] = { 0 };
        sn_tensor in[2] = { vec_f32(x, 3), vec_f32(x, 3) }, out = { 0 };
        if (sn_run(p, i == 1 ? 2 : 1, in, 1, &out, &err)) fail_msg("%s %s: %s", right[i][0], right[i][1], err.text);
        sn_tensor_release(&out);
        sn_program_free(p);
        sn_model_free(m);
    }
}

typedef struct Job { sn_program *p; int seed, wrong; } Job;

static void *run_many(void *arg)
{
    Job *j = arg;
    float x[300], b[3] = { 1, -2, 0.5f };
    for (int round = 0; round < 40; round++) {
        int n = 1 + (round * 7 + j->seed) % 100;        /* sizes change, so variants are made while others run */
        for (int i = 0; i < 3 * n; i++) x[i] = (float)((i * 37 + round + j->seed) % 19) - 9;
        sn_tensor in[2] = { { .dtype = SN_F32, .rank = 2, .dims = { n, 3 }, .data = x, .bytes = sizeof x }, vec_f32(b, 3) }, out = { 0 };
        sn_error e;
        if (sn_run(j->p, 2, in, 1, &out, &e)) {
            j->wrong++;
            continue;
        }
        for (int i = 0; i < 3 * n; i++) {
            float a = x[i] + b[i % 3];
            j->wrong += ((float *)out.data)[i] != (a > 0 ? a : 0);
        }
        sn_tensor_release(&out);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    sn_model *m = add_relu_model();
    sn_program *p = compiled(m, false);
    pthread_t t[4];
    Job job[4];
    for (int i = 0; i < 4; i++) {
        job[i] = (Job){ p, i, 0 };
        assert_int_equal(pthread_create(&t[i], NULL, run_many, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(job[i].wrong, 0);
    }
    sn_program_free(p);
    sn_model_free(m);
}

static void test_cancel(void **state)
{
    (void)state;
    volatile int stop = 1;
    sn_model *m = add_relu_model();
    sn_options o = { .cancel = &stop };
    sn_program *p = NULL;
    float x[3] = { 0 };
    sn_tensor in[2] = { { .dtype = SN_F32, .rank = 2, .dims = { 1, 3 }, .data = x, .bytes = 12 }, vec_f32(x, 3) }, out = { 0 };
    sn_status st = sn_compile(m, &o, &p, &err);
    if (st == SN_OK) st = sn_run(p, 2, in, 1, &out, &err);
    assert_int_equal(st, SN_CANCELLED);
    stop = 0;
    if (!p) assert_int_equal(sn_compile(m, &o, &p, &err), SN_OK);
    assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_OK);
    sn_tensor_release(&out);
    volatile int own = 1;               /* of one run: the other does not matter */
    assert_int_equal(sn_run_cancellable(p, &own, 2, in, 1, &out, &err), SN_CANCELLED);
    assert_null(out.data);
    own = 0;
    stop = 1;
    assert_int_equal(sn_run_cancellable(p, &own, 2, in, 1, &out, &err), SN_OK);
    sn_tensor_release(&out);
    assert_int_equal(sn_run_cancellable(p, NULL, 2, in, 1, &out, &err), SN_CANCELLED);
    sn_program_free(p);
    sn_model_free(m);
}

/* Runs that wait for no compiler: the first one, and the first of sizes that need other kernels. */
static void test_background(void **state)
{
    (void)state;
    enum { N = 64 };
    float x[N * N], row[N], want, *got;
    sn_model *m = add_relu_model();
    for (int i = 0; i < N * N; i++) x[i] = (float)(i % 17) - 8;
    for (int i = 0; i < N; i++) row[i] = (float)(i % 3);
    for (int broken = 0; broken < 2; broken++) {
        sn_options o = { .background = 1, .cache = "", .compiler = broken ? "/bin/false" : NULL };
        sn_program *p = NULL;
        assert_int_equal(sn_compile(m, &o, &p, &err), SN_OK);
        for (int n = N; n; n = n > 1 ? 1 : 0) {
            sn_tensor in[2] = { { .dtype = SN_F32, .rank = 2, .dims = { n, n }, .data = x }, vec_f32(row, n) };
            sn_tensor out = { 0 };
            if (sn_run(p, 2, in, 1, &out, &err)) fail_msg("%s", err.text);
            got = out.data;
            for (int i = 0; i < n * n; i++) {
                want = x[i] + row[i % n];
                assert_true(got[i] == (want > 0 ? want : 0));
            }
            sn_tensor_release(&out);
            assert_int_equal(sn_prepare(p, 2, in, &err), broken ? SN_COMPILE : SN_OK);
            assert_int_equal(sn_program_compiling(p), 0);
            assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_OK);
            sn_tensor_release(&out);
        }
        sn_program_free(p);
    }
    sn_model_free(m);
}

/* The n-th allocation fails, for each n until all goes well: each time a status, and nothing leaks (the sanitizers look). */
static void test_failing_allocations(void **state)
{
    (void)state;
    float x[3] = { 1, 2, 3 };
    int n = 1, failures = 0;
    sn_model *m = add_relu_model();
    for (;; n += n < 60 ? 1 : 7) {
        char text[16];
        snprintf(text, sizeof text, "%d", n);
        setenv("SN_FAIL", text, 1);     /* each call counts from 1 */
        sn_program *p = NULL;
        sn_tensor in[2] = { { .dtype = SN_F32, .rank = 2, .dims = { 1, 3 }, .data = x, .bytes = 12 }, vec_f32(x, 3) }, out = { 0 };
        sn_status st = sn_compile(m, NULL, &p, &err);
        if (st == SN_OK) st = sn_run(p, 2, in, 1, &out, &err);
        if (st == SN_OK) sn_tensor_release(&out);
        sn_program_free(p);
        if (st == SN_OK) break;
        if (st != SN_NOMEM) fail_msg("allocation %d: %s: %s", n, sn_status_name(st), err.text);
        failures++;
        assert_true(n < 20000);
    }
    unsetenv("SN_FAIL");
    assert_true(failures > 20);
    sn_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_dtypes_agree), cmocka_unit_test(test_ports), cmocka_unit_test(test_load_failures),
        cmocka_unit_test(test_primitives), cmocka_unit_test(test_structural_primitives), cmocka_unit_test(test_folds), cmocka_unit_test(test_many_operands),
        cmocka_unit_test(test_graph_failures), cmocka_unit_test(test_unknown_operator), cmocka_unit_test(test_buffers), cmocka_unit_test(test_run_failures),
        cmocka_unit_test(test_evidence), cmocka_unit_test(test_rules), cmocka_unit_test(test_attributes), cmocka_unit_test(test_attributes_of_files), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_cancel), cmocka_unit_test(test_background), cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
