/* The ONNX readers: binary models from byte strings made here by a tiny encoder (onnx_bytes.h), and text models.
 *
 * Each malformed kind is one row or one block with the status and a piece of the message it must give; every prefix of a good model
 * and every single-byte change of it must load or fail cleanly (a sanitizer build shows the rest). */
#include "onnx_bytes.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text_model[] =
    "# a comment\n"
    "< ir_version: 10, opset_import: [ \"\" : 21, \"local\" : 1 ], producer_name: \"a \\\"b\\\"\", metadata_props: [ \"k\" : \"v\" ] >\n"
    "agraph (float[N, 128, ?, \"M + N\"] X, float bias = {1e-1}, seq(float[]) s, untyped) => (float[N] C, int64[] D)\n"
    "< float[2] w = {1.0, -2}, int8[3] i = {-128, 127, 0}, double[3] d = {-inf, nan, 1.5}, uint64[1] u = {18446744073709551615},\n"
    "  float16[1] h = {15360}, int4[3] n = {-8, 7, 1}, string[2] st = {\"x\", \"\"}, float[0] e = {}, float[N] info >\n"
    "{\n"
    "  [n1] T, , \"out put\" = local.Foo <a = 1, b = -1.5e1, c = \"s\", d = [1, 2], e = [1, 2.5], f = [\"x\", \"y\"], g : ints = [],\n"
    "     h : floats = [1, 2], i : float = 3, j = float[2] {1, 2}, k = int64 named = {7}, l = float[3], m = inf> (X, , bias, \"\")\n"
    "  Y = If (T) < then_branch = g1 () => (float z) { z = Identity(X) }, else_branch = g2 () => (float z) <float[1] q = {3}> { z = Neg(q) } >\n"
    "  C = ai.onnx.Relu:fast (T,)   # done\n"
    "}\n"
    "< opset_import: [ \"\" : 20 ], domain: \"local\" >\n"
    "Foo <alpha: float = 4.0, gamma> (float[N] x, b) => (y) { y = Mul <v : ints = @gamma> (x, b) }\n";

/* ---- binary: what is right --------------------------------------------------------------------------------------------------------- */

static Enc rich_model(void)
{
    static const float w[6] = {0, 1, 2, 3, 4, 5};
    Enc g = {0}, t, n, a = {0}, v = {0}, type = {0}, tt = {0}, shape = {0}, d = {0}, f = {0}, p = {0};
    str(&g, 2, "main");
    t = tensor("w", 1, 2, (int64_t[]){2, 3});
    bytes(&t, 9, w, sizeof w);
    msg(&g, 5, &t);
    n = node("Conv", "x", "y");
    str(&n, 1, "");
    str(&n, 1, "w");
    str(&n, 3, "conv1");
    str(&n, 7, "ai.onnx");
    str(&a, 1, "alpha"); num(&a, 20, 1); f32(&a, 2, 1.5f); msg(&n, 5, &a);
    str(&a, 1, "ints"); num(&a, 20, 7); num(&a, 8, 5); bytes(&a, 8, "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11); msg(&n, 5, &a);
    str(&a, 1, "floats"); num(&a, 20, 6); f32(&a, 7, 2); bytes(&a, 7, w + 1, 8); msg(&n, 5, &a);
    str(&a, 1, "s"); num(&a, 20, 3); bytes(&a, 4, "a\0b", 3); msg(&n, 5, &a);
    str(&a, 1, "strings"); num(&a, 20, 8); str(&a, 9, "p"); str(&a, 9, ""); msg(&n, 5, &a);
    str(&a, 1, "zero"); num(&a, 20, 2); msg(&n, 5, &a);                 /* a default value is not written */
    str(&a, 1, "old"); num(&a, 3, 7); msg(&n, 5, &a);                   /* files of the first IR versions name no type */
    str(&a, 1, "ref"); num(&a, 20, 2); str(&a, 21, "outer"); msg(&n, 5, &a);
    num(&a, 99, 1); str(&a, 1, "unknown fields"); num(&a, 20, 2); num(&a, 3, 1); bytes(&a, 1000, "zzz", 3); msg(&n, 5, &a);
    msg(&g, 1, &n);
    str(&v, 1, "x");
    num(&tt, 1, 1);
    str(&d, 2, "N"); msg(&shape, 1, &d);
    num(&d, 1, 4); msg(&shape, 1, &d);
    msg(&shape, 1, &d);
    num(&d, 1, (uint64_t)-1); msg(&shape, 1, &d);
    msg(&tt, 2, &shape); msg(&type, 1, &tt); msg(&v, 2, &type); msg(&g, 11, &v);
    str(&v, 1, "q");
    num(&tt, 1, 7); msg(&type, 1, &tt); msg(&p, 1, &type); msg(&type, 4, &p); msg(&v, 2, &type); msg(&g, 11, &v);
    str(&v, 1, "y");
    msg(&g, 12, &v);
    Enc m = model(&g);
    str(&m, 2, "maker");
    str(&p, 1, "k"); str(&p, 2, "v"); msg(&m, 14, &p);
    str(&f, 1, "fn"); str(&f, 10, "local"); str(&f, 4, "a"); str(&f, 5, "b"); str(&f, 6, "attr");
    n = node("Relu", "a", "b"); msg(&f, 7, &n);
    num(&p, 2, 13); msg(&f, 9, &p);
    str(&a, 1, "beta"); num(&a, 20, 1); f32(&a, 2, 3); msg(&f, 11, &a);
    msg(&m, 25, &f);
    return m;
}

static void test_rich_model(void **state)
{
    (void)state;
    Enc e = rich_model();
    Load l = load(NULL, e.at, e.n);
    const OnnxGraph *g = loaded(&l);
    const OnnxModel *m = l.m;
    assert_int_equal(m->ir_version, 8);
    assert_string_equal(m->producer, "maker");
    assert_string_equal(m->path, "<memory>");
    assert_int_equal(m->nopset, 1);
    assert_string_equal(m->opset[0].domain, "");
    assert_int_equal(m->opset[0].version, 17);
    assert_int_equal(m->nmeta, 1);
    assert_string_equal(m->meta_value[0], "v");
    assert_string_equal(g->name, "main");
    assert_true(g->nnode == 1 && g->ninit == 1 && g->nin == 2 && g->nout == 1 && g->ninfo == 0);

    const OnnxTensor *w = &g->init[0];
    assert_string_equal(w->name, "w");
    assert_true(w->dt == DT_f32 && w->rank == 2 && w->dims[0] == 2 && w->dims[1] == 3 && w->count == 6);
    assert_true((const uint8_t *)w->data > e.at && (const uint8_t *)w->data < e.at + e.n);      /* never copied */
    float last;
    memcpy(&last, (const uint8_t *)w->data + 20, 4);
    assert_true(last == 5);

    const OnnxNode *n = &g->node[0];
    assert_string_equal(n->name, "conv1");
    assert_string_equal(n->domain, "");
    assert_true(n->nin == 3 && n->nout == 1 && n->nattr == 9);
    assert_string_equal(n->in[1], "");
    assert_string_equal(n->in[2], "w");
    const OnnxAttr *a = n->attr;
    assert_true(a[0].type == ATTR_float && a[0].f == 1.5f);
    assert_true(a[1].type == ATTR_ints && a[1].n == 3 && a[1].ints[0] == 5 && a[1].ints[1] == 1 && a[1].ints[2] == -1);
    assert_true(a[2].type == ATTR_floats && a[2].n == 3 && a[2].floats[0] == 2 && a[2].floats[2] == 2);
    assert_true(a[3].type == ATTR_string && a[3].s_len == 3 && !memcmp(a[3].s, "a\0b", 4));
    assert_true(a[4].type == ATTR_strings && a[4].n == 2);
    assert_string_equal(a[4].strings[1], "");
    assert_true(a[5].type == ATTR_int && a[5].i == 0 && a[5].ref == NULL);
    assert_true(a[6].type == ATTR_int && a[6].i == 7);
    assert_true(a[7].type == ATTR_int);
    assert_string_equal(a[7].ref, "outer");
    assert_true(a[8].type == ATTR_int && a[8].i == 1);

    const OnnxValue *x = &g->in[0];
    assert_true(x->kind == 't' && x->dt == DT_f32 && x->rank == 4);
    assert_string_equal(x->dims[0].sym, "N");
    assert_true(x->dims[1].value == 4 && x->dims[2].value == -1 && !x->dims[2].sym && x->dims[3].value == -1);
    assert_true(g->in[1].kind == 's' && g->in[1].dt == DT_none && g->in[1].onnx_dt == 7 && g->in[1].rank == -1);
    assert_true(g->out[0].kind == 0 && g->out[0].rank == -1);

    const OnnxFunction *f = m->function;
    assert_int_equal(m->nfunction, 1);
    assert_string_equal(f->domain, "local");
    assert_true(f->nin == 1 && f->nout == 1 && f->nattr == 1 && f->nnode == 1 && f->nopset == 1 && f->nattr_default == 1);
    assert_true(f->attr_default[0].f == 3 && f->opset[0].version == 13);
    onnx_close(l.m);
    free(e.at);
}

/* Protobuf: the last scalar stands, messages that occur twice are merged, repeated fields go on. */
static void test_merge(void **state)
{
    (void)state;
    Enc g = {0}, m = {0}, n = node("First", "x", "y"), t = {0}, v = {0}, type = {0}, tt = {0}, a = {0};
    str(&n, 4, "Second");
    msg(&g, 1, &n);
    str(&g, 2, "one");
    msg(&m, 7, &g);
    num(&m, 1, 3);
    num(&m, 1, 9);
    msg(&m, 7, &g);                     /* an empty piece */
    str(&g, 2, "two");
    n = node("Third", "y", "z");
    str(&a, 1, "t");                    /* a tensor in two pieces */
    num(&a, 20, 4);
    num(&t, 1, 2); num(&t, 2, 1); msg(&a, 5, &t);
    num(&t, 2, 7); num(&t, 7, 41); num(&t, 7, 42); msg(&a, 5, &t);
    msg(&n, 5, &a);
    msg(&g, 1, &n);
    str(&v, 1, "v");
    num(&tt, 1, 10); msg(&type, 1, &tt); msg(&v, 2, &type);
    msg(&type, 4, &tt); msg(&v, 2, &type);                      /* another kind of type replaces the first */
    num(&tt, 1, 11); msg(&type, 1, &tt); msg(&v, 2, &type);
    msg(&g, 11, &v);
    msg(&m, 7, &g);
    Load l = load(NULL, m.at, m.n);
    const OnnxGraph *r = loaded(&l);
    assert_int_equal(l.m->ir_version, 9);
    assert_string_equal(r->name, "two");
    assert_int_equal(r->nnode, 2);
    assert_string_equal(r->node[0].op, "Second");
    assert_string_equal(r->node[1].op, "Third");
    const OnnxTensor *c = r->node[1].attr[0].t;
    int64_t value[2];
    assert_true(c->dt == DT_i64 && c->rank == 1 && c->count == 2);
    memcpy(value, c->data, sizeof value);
    assert_true(value[0] == 41 && value[1] == 42);
    assert_true(r->in[0].kind == 't' && r->in[0].dt == DT_f64);
    onnx_close(l.m);
    free(m.at);
}

/* ---- tensors: every dtype from its typed field, and below 8 bits from raw_data ---------------------------------------------------------- */

static void check_tensor(Enc *t, DType dt, int64_t count, const void *want, size_t n)
{
    Enc m = model_with_tensor(t);
    Load l = load(NULL, m.at, m.n);
    const OnnxTensor *r = &loaded(&l)->init[0];
    assert_int_equal(r->dt, dt);
    assert_int_equal(r->count, count);
    assert_int_equal(dtype_size(dt) * (size_t)count, n);
    assert_memory_equal(r->data, want, n);
    onnx_close(l.m);
    free(m.at);
}

static void test_typed_data(void **state)
{
    (void)state;
    for (int dt = DT_none + 1; dt < DT_COUNT; dt++) {
        int bits = dtype_bits((DType)dt), per = bits < 8 ? 8 / bits : 1;
        size_t size = dtype_size((DType)dt);
        bool is_signed = dtype_info[dt].class == 'S';
        for (int form = 0; form < 3; form++) {          /* unpacked, packed, packed in two pieces */
            int64_t dims[1] = {5};
            Enc t = tensor("t", dtype_info[dt].onnx, 1, dims), body[2] = {{0}, {0}};
            uint8_t want[40] = {0};
            int field = dt == DT_f32 ? 4 : dt == DT_f64 ? 10 : dt == DT_i64 ? 7 : dt == DT_u32 || dt == DT_u64 ? 11 : 5;
            for (int i = 0; i < 5; i++) {
                int64_t v = is_signed && i == 1 ? -1 : dt == DT_bool ? i & 1 : bits < 8 ? i & 1 : i * 3 + 1;
                memcpy(want + (size_t)i * size, &v, size);
                Enc *e = form == 2 && i > 2 ? &body[1] : &body[0];
                if (bits < 8 && i % per)
                    continue;
                if (bits < 8)           /* bytes of packed elements, made from the values above */
                    for (int k = 1; k < per && i + k < 5; k++) {
                        int64_t w = is_signed && i + k == 1 ? -1 : (i + k) & 1;
                        v = (v & ((1 << (bits * k)) - 1)) | (w & ((1 << bits) - 1)) << (bits * k);
                    }
                if (dt == DT_f32 || dt == DT_f64) {
                    if (form == 0)
                        varint(&t, (uint64_t)field << 3 | (dt == DT_f32 ? 5 : 1)), put(&t, &v, size);
                    else
                        put(e, &v, size);
                } else if (form == 0) {
                    num(&t, field, (uint64_t)v);
                } else {
                    varint(e, (uint64_t)v);
                }
            }
            if (form > 0)
                msg(&t, field, &body[0]);
            if (form == 2)
                msg(&t, field, &body[1]);
            check_tensor(&t, (DType)dt, 5, want, 5 * size);
        }
    }
    Enc t = tensor("i4", 22, 1, (int64_t[]){3});
    bytes(&t, 9, "\x78\x0f", 2);
    check_tensor(&t, DT_i4, 3, "\xf8\x07\xff", 3);
    t = tensor("u4", 21, 1, (int64_t[]){3});
    bytes(&t, 9, "\x78\x0f", 2);
    check_tensor(&t, DT_u4, 3, "\x08\x07\x0f", 3);
    t = tensor("f4", 23, 1, (int64_t[]){2});
    bytes(&t, 9, "\x78", 1);
    check_tensor(&t, DT_f4e2m1, 2, "\x08\x07", 2);
    t = tensor("i2", 26, 1, (int64_t[]){5});
    bytes(&t, 9, "\xe4\x02", 2);
    check_tensor(&t, DT_i2, 5, "\x00\x01\xfe\xff\xfe", 5);
    t = tensor("bool", 9, 1, (int64_t[]){3});
    bytes(&t, 9, "\x00\x02\xff", 3);
    check_tensor(&t, DT_bool, 3, "\x00\x01\x01", 3);
    t = tensor("empty", 1, 2, (int64_t[]){0, 7});
    check_tensor(&t, DT_f32, 0, "", 0);
    t = tensor("as 32 bits", 6, 1, (int64_t[]){1});
    num(&t, 5, 0xffffffffu);
    check_tensor(&t, DT_i32, 1, "\xff\xff\xff\xff", 4);
}

static Enc sparse(int64_t n, const int64_t *idx, int idx_rank, const int64_t *idx_dims, int rank, const int64_t *dims)
{
    static const float values[4] = {1, 2, 3, 4};
    Enc s = {0}, t = tensor("sp", 1, 1, &n);
    int64_t k = 1;
    bytes(&t, 9, values, (size_t)n * 4);
    msg(&s, 1, &t);
    t = tensor("", 7, idx_rank, idx_dims);
    for (int i = 0; i < idx_rank; i++)
        k *= idx_dims[i];
    bytes(&t, 9, idx, (size_t)k * 8);
    msg(&s, 2, &t);
    for (int i = 0; i < rank; i++)
        num(&s, 3, (uint64_t)dims[i]);
    return s;
}

static Enc model_with_sparse(Enc s) { Enc g = {0}; msg(&g, 15, &s); return model(&g); }

static void test_sparse(void **state)
{
    (void)state;
    static const float want[6] = {0, 1, 0, 0, 0, 2};
    const int64_t dims[2] = {2, 3}, huge[2] = {1 << 20, 1 << 20};
    for (int form = 0; form < 2; form++) {
        Enc e = model_with_sparse(form ? sparse(2, (int64_t[]){0, 1, 1, 2}, 2, (int64_t[]){2, 2}, 2, dims) :
            sparse(2, (int64_t[]){1, 5}, 1, (int64_t[]){2}, 2, dims));
        Load l = load(NULL, e.at, e.n);
        const OnnxTensor *t = &loaded(&l)->init[0];
        assert_string_equal(t->name, "sp");
        assert_true(t->rank == 2 && t->count == 6);
        assert_memory_equal(t->data, want, sizeof want);
        onnx_close(l.m);
        free(e.at);
    }
    refuse(model_with_sparse(sparse(2, (int64_t[]){1, 6}, 1, (int64_t[]){2}, 2, dims)), E_FORMAT, "outside its axis");
    refuse(model_with_sparse(sparse(2, (int64_t[]){0, 1, 0, 3}, 2, (int64_t[]){2, 2}, 2, dims)), E_FORMAT, "outside its axis");
    refuse(model_with_sparse(sparse(2, (int64_t[]){-1, 2}, 1, (int64_t[]){2}, 2, dims)), E_FORMAT, "outside its axis");
    refuse(model_with_sparse(sparse(2, (int64_t[]){2, 2}, 1, (int64_t[]){2}, 2, dims)), E_FORMAT, "not ascending");
    refuse(model_with_sparse(sparse(2, (int64_t[]){2}, 1, (int64_t[]){1}, 2, dims)), E_FORMAT, "indices are not int64");
    refuse(model_with_sparse(sparse(1, (int64_t[]){0}, 1, (int64_t[]){1}, 2, huge)), E_FORMAT, "out of proportion");
    Enc a = {0}, s = sparse(2, (int64_t[]){1, 5}, 1, (int64_t[]){2}, 2, dims);
    str(&a, 1, "sparse_value");
    num(&a, 20, 11);
    msg(&a, 22, &s);
    Enc e = model_with_attr(&a);
    Load l = load(NULL, e.at, e.n);
    const OnnxAttr *r = loaded(&l)->node[0].attr;
    assert_true(r->type == ATTR_sparse && r->sparse_rank == 2 && r->sparse_dims[1] == 3 && r->sparse_values->count == 2 &&
        r->sparse_indices->dt == DT_i64);
    assert_memory_equal(r->t->data, want, sizeof want);
    onnx_close(l.m);
    free(e.at);
}

/* ---- binary: what is wrong -------------------------------------------------------------------------------------------------------------- */

static Enc raw(const void *p, size_t n) { Enc e = {0}; put(&e, p, n); return e; }
#define RAW(s) raw(s, sizeof(s) - 1)

static void test_wire(void **state)
{
    (void)state;
    refuse((Enc){0}, E_INVALID, "neither a path nor bytes");
    failed(load(NULL, "", 0), E_FORMAT, "empty file");
    refuse(RAW("version https://git-lfs.github.com/spec/v1\noid sha256:12\n"), E_FORMAT, "Git LFS pointer");
    refuse(RAW("\x08"), E_FORMAT, "byte 0: ModelProto.ir_version: the message ends within a varint");
    refuse(RAW("\x08\x80\x80"), E_FORMAT, "ends within a varint");
    refuse(RAW("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), E_FORMAT, "more than 64 bits");
    refuse(RAW("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), E_FORMAT, "more than 64 bits");
    refuse(RAW("\x08\x07\x12\x05" "abc"), E_FORMAT, "byte 2: ModelProto.producer_name: found length 5, but the enclosing message has 3 bytes left");
    refuse(RAW("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), E_FORMAT, "found length 18446744073709551615");
    refuse(RAW("\x00\x01"), E_FORMAT, "field number 0");
    refuse(RAW("\x80\x80\x80\x80\x80\x01\x00"), E_FORMAT, "field number");
    refuse(RAW("\x3b\x3c"), E_FORMAT, "start of a group");
    refuse(RAW("\x0c"), E_FORMAT, "end of a group");
    refuse(RAW("\x0e\x00"), E_FORMAT, "wire type 6");
    refuse(RAW("\x0a\x01" "x"), E_FORMAT, "ModelProto.ir_version: found wire type length-delimited, wanted varint");
    refuse(RAW("\x38\x01"), E_FORMAT, "ModelProto.graph: found wire type varint, wanted length-delimited");
    refuse(RAW("\x99\x06\x01\x02\x03"), E_FORMAT, "ends within a 64-bit value: 3 bytes left");
    refuse(RAW("\x9d\x06\x01\x02\x03"), E_FORMAT, "ends within a 32-bit value");
    refuse(RAW("\x08\x07"), E_FORMAT, "no graph");
    refuse(RAW("\x12\x03" "a\0b\x3a\x00"), E_FORMAT, "zero byte");
    failed(load("/no/such/file.onnx", NULL, 0), E_IO, "/no/such/file.onnx: ");
}

static void test_bad_tensors(void **state)
{
    (void)state;
    static const int64_t two[1] = {2}, negative[2] = {2, -3}, wide[3] = {1ll << 32, 1ll << 31, 0}, deep[17] = {0}, large[1] = {1ll << 40};
    Enc t = tensor("w", 1, 1, two);
    bytes(&t, 9, "1234567", 7);
    refuse(model_with_tensor(&t), E_FORMAT, "tensor 'w': raw_data has 7 bytes, but float[2] wants 8");
    t = tensor("w", 1, 1, two);
    refuse(model_with_tensor(&t), E_FORMAT, "0 elements in float_data, but float[2] wants 2");
    t = tensor("w", 1, 1, two);
    f32(&t, 4, 1);
    refuse(model_with_tensor(&t), E_FORMAT, "1 elements in float_data");
    t = tensor("w", 1, 1, two);
    num(&t, 5, 1); num(&t, 5, 1);
    refuse(model_with_tensor(&t), E_FORMAT, "0 elements in float_data");
    t = tensor("w", 1, 1, two);
    bytes(&t, 4, "12345", 5);
    refuse(model_with_tensor(&t), E_FORMAT, "TensorProto.float_data: packed field of 5 bytes, wanted a multiple of 4");
    t = tensor("w", 7, 1, two);
    bytes(&t, 7, "\x01\x80", 2);
    refuse(model_with_tensor(&t), E_FORMAT, "TensorProto.int64_data: packed field ends within a varint");
    t = tensor("w", 3, 1, two);
    num(&t, 5, 1); num(&t, 5, 300);
    refuse(model_with_tensor(&t), E_FORMAT, "element 1 is 300, which does not fit i8");
    t = tensor("w", 1, 2, negative);
    refuse(model_with_tensor(&t), E_FORMAT, "dims [2,-3] are negative or too large");
    t = tensor("w", 1, 3, wide);
    refuse(model_with_tensor(&t), E_FORMAT, "too large");
    t = tensor("w", 1, 17, deep);
    refuse(model_with_tensor(&t), E_UNSUPPORTED, "more than 16 dimensions");
    t = tensor("w", 0, 1, two);
    refuse(model_with_tensor(&t), E_FORMAT, "data_type is 0");
    t = tensor("w", 99, 1, two);
    refuse(model_with_tensor(&t), E_UNSUPPORTED, "data_type is 99");
    t = tensor("w", 8, 1, two);
    str(&t, 6, "one");
    refuse(model_with_tensor(&t), E_FORMAT, "found 1 strings");
    t = tensor("w", 1, 1, large);       /* terabytes that are not there */
    bytes(&t, 9, "1234", 4);
    refuse(model_with_tensor(&t), E_FORMAT, "wants 4398046511104");
    t = tensor("w", 22, 1, large);
    bytes(&t, 5, "\x01", 1);
    refuse(model_with_tensor(&t), E_FORMAT, "wants 549755813888");
    t = tensor("w", 1, 1, two);
    bytes(&t, 3, "", 0);
    refuse(model_with_tensor(&t), E_UNSUPPORTED, "segments");
    t = tensor("w", 1, 1, two);
    num(&t, 14, 2);
    refuse(model_with_tensor(&t), E_FORMAT, "data_location is 2");
    t = tensor("w", 1, 1, two);
    num(&t, 14, 1);
    refuse(model_with_tensor(&t), E_FORMAT, "external data without a location");
}

static Enc nested(int depth)
{
    Enc n = node("Op", "x", "y"), g = {0}, a = {0};
    msg(&g, 1, &n);
    for (int i = 1; i < depth; i++) {
        n = node("If", "x", "y");
        str(&a, 1, "then_branch"); num(&a, 20, 5); msg(&a, 6, &g); msg(&n, 5, &a);
        msg(&g, 1, &n);
    }
    return model(&g);
}

static void test_bad_structure(void **state)
{
    (void)state;
    Enc a = {0}, n = {0}, e = nested(64), v = {0}, type = {0}, shape = {0}, d = {0}, tt = {0}, g = {0};
    Load l = load(NULL, e.at, e.n);
    loaded(&l);
    onnx_close(l.m);
    free(e.at);
    refuse(nested(65), E_UNSUPPORTED, "nested deeper than 64");
    for (int i = 0; i < 70; i++) {
        Enc box = {0};
        msg(&box, 1, &type);
        msg(&type, 4, &box);
    }
    msg(&v, 2, &type); msg(&g, 11, &v);
    refuse(model(&g), E_UNSUPPORTED, "types nested deeper than 64");
    str(&n, 1, "x");
    str(&n, 3, "nameless");
    refuse(model_with_node(&n), E_FORMAT, "node 'nameless' has no op_type");
    num(&a, 20, 2);
    refuse(model_with_attr(&a), E_FORMAT, "an attribute without a name");
    str(&a, 1, "a"); num(&a, 20, 2); f32(&a, 2, 1);
    refuse(model_with_attr(&a), E_FORMAT, "attribute 'a': type is 2, but its value is of type 1");
    str(&a, 1, "a"); num(&a, 20, 77);
    refuse(model_with_attr(&a), E_FORMAT, "attribute 'a': type is 77");
    str(&a, 1, "a"); num(&a, 20, 4);
    refuse(model_with_attr(&a), E_FORMAT, "node (Op): byte ");
    str(&a, 1, "a"); num(&a, 20, 4);
    refuse(model_with_attr(&a), E_FORMAT, "its tensor is missing");
    str(&v, 1, "x"); num(&d, 1, (uint64_t)-7); msg(&shape, 1, &d); num(&tt, 1, 1); msg(&tt, 2, &shape); msg(&type, 1, &tt); msg(&v, 2, &type);
    msg(&g, 11, &v);
    refuse(model(&g), E_FORMAT, "TensorShapeProto.Dimension.dim_value: found -7");
}

/* No prefix and no single changed byte of a good model does worse than fail. */
static void test_mangled(void **state)
{
    (void)state;
    Enc e = rich_model();
    uint8_t *copy = malloc(e.n);
    int good = 0, bad = 0;
    assert_non_null(copy);
    for (size_t n = 1; n < e.n; n++) {
        uint8_t *cut = malloc(n);       /* of the exact size, so that a read behind it is seen */
        assert_non_null(cut);
        memcpy(cut, e.at, n);
        Load l = load(NULL, cut, n);
        assert_true(l.st == E_OK || l.st == E_FORMAT);
        l.st == E_OK ? good++ : bad++;
        onnx_close(l.m);
        free(cut);
    }
    assert_true(bad > 100);
    static const uint8_t changes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (size_t i = 0; i < e.n; i++)
        for (size_t k = 0; k < COUNT_OF(changes); k++) {
            memcpy(copy, e.at, e.n);
            copy[i] ^= changes[k] ? changes[k] : 0x02;
            Load l = load(NULL, copy, e.n);
            assert_true(l.st == E_OK || l.st == E_FORMAT || l.st == E_UNSUPPORTED || l.st == E_INVALID);
            assert_true(arena_used(l.m->arena) < 100 * e.n + 20000);
            l.st == E_OK ? good++ : bad++;
            onnx_close(l.m);
        }
    assert_true(good > 0 && bad > 0);
    free(copy);
    free(e.at);
}

/* Each allocation in turn fails: the load ends with NOMEM, and closing gives back all there was. */
static void test_no_memory(void **state)
{
    (void)state;
    Enc e = rich_model();
    const struct { const char *path; const void *bytes; size_t n; } models[2] = {{"m.onnx", e.at, e.n}, {"m.onnxtxt", text_model, sizeof text_model - 1}};
    for (int i = 0; i < 2; i++) {
        Status st = E_NOMEM;
        int k = 1;
        for (; st == E_NOMEM; k++) {
            Load l = {.path = models[i].path, .bytes = models[i].bytes, .n = models[i].n};
            ctx_init(&l.cx);
            l.cx.opt.fail = k;
            st = guard_call(&l.cx, do_new, &l);
            if (st == E_OK)
                st = guard_call(&l.cx, do_load, &l);
            onnx_close(l.m);
        }
        assert_int_equal(st, E_OK);
        assert_true(k > 50);
    }
    free(e.at);
}

static void test_many_nodes(void **state)
{
    (void)state;
    Enc g = {0};
    char in[32], out[32];
    for (int i = 0; i < 100000; i++) {
        Enc a = {0}, n;
        snprintf(in, sizeof in, "value_%d", i);
        snprintf(out, sizeof out, "value_%d", i + 1);
        n = node("LeakyRelu", in, out);
        str(&a, 1, "alpha"); num(&a, 20, 1); f32(&a, 2, 0.5f); msg(&n, 5, &a);
        msg(&g, 1, &n);
    }
    Enc e = model(&g);
    double start = time_now();
    Load l = load(NULL, e.at, e.n);
    double took = time_now() - start;
    assert_int_equal(loaded(&l)->nnode, 100000);
    assert_string_equal(l.m->graph->node[99999].out[0], "value_100000");
    print_message("100,000 nodes (%zu bytes) in %.3f s, %zu bytes of memory\n", e.n, took, arena_used(l.m->arena));
    assert_true(took < 2.0);            /* about 0.03 s; a sanitizer build on a busy machine needs more */
    onnx_close(l.m);
    free(e.at);
}

/* ---- text syntax -------------------------------------------------------------------------------------------------------------------------- */

static void test_text(void **state)
{
    (void)state;
    Load l = load(NULL, text_model, sizeof text_model - 1);
    const OnnxGraph *g = loaded(&l);
    const OnnxModel *m = l.m;
    assert_true(m->ir_version == 10 && m->nopset == 2 && m->opset[0].version == 21 && m->nmeta == 1);
    assert_string_equal(m->producer, "a \"b\"");
    assert_true(g->nin == 4 && g->nout == 2 && g->ninit == 9 && g->ninfo == 1 && g->nnode == 3);
    assert_string_equal(g->in[0].dims[0].sym, "N");
    assert_string_equal(g->in[0].dims[3].sym, "M + N");
    assert_true(g->in[0].dims[1].value == 128 && g->in[0].dims[2].value == -1 && !g->in[0].dims[2].sym);
    assert_true(g->in[1].rank == 0 && g->in[2].kind == 's' && g->in[3].kind == 0 && g->out[1].rank == -1);
    assert_string_equal(g->init[0].name, "bias");
    assert_memory_equal(g->init[1].data, ((float[]){1, -2}), 8);
    assert_memory_equal(g->init[2].data, "\x80\x7f\x00", 3);
    double d[3];
    memcpy(d, g->init[3].data, sizeof d);
    assert_true(isinf(d[0]) && d[0] < 0 && isnan(d[1]) && d[2] == 1.5);
    assert_memory_equal(g->init[4].data, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    assert_memory_equal(g->init[5].data, "\x00\x3c", 2);
    assert_memory_equal(g->init[6].data, "\xf8\x07\x01", 3);
    assert_string_equal(g->init[7].strings[0], "x");
    assert_int_equal(g->init[8].count, 0);

    const OnnxNode *n = g->node;
    assert_string_equal(n[0].name, "n1");
    assert_string_equal(n[0].domain, "local");
    assert_true(n[0].nout == 3 && n[0].nin == 4 && n[0].nattr == 13);
    assert_string_equal(n[0].out[1], "");
    assert_string_equal(n[0].out[2], "out put");
    const OnnxAttr *a = n[0].attr;
    assert_true(a[0].type == ATTR_int && a[0].i == 1 && a[1].type == ATTR_float && a[1].f == -15 && a[2].s_len == 1);
    assert_true(a[3].type == ATTR_ints && a[3].n == 2 && a[3].ints[1] == 2);
    assert_true(a[4].type == ATTR_floats && a[4].n == 2 && a[4].floats[0] == 1 && a[4].floats[1] == 2.5f);
    assert_true(a[5].type == ATTR_strings && a[5].n == 2 && a[6].type == ATTR_ints && a[6].n == 0);
    assert_true(a[7].type == ATTR_floats && a[7].floats[1] == 2 && a[8].type == ATTR_float && a[8].f == 3);
    assert_true(a[9].type == ATTR_tensor && a[9].t->count == 2 && a[10].t->rank == 0);
    assert_string_equal(a[10].t->name, "named");
    assert_true(a[11].type == ATTR_type && a[11].tp->kind == 't' && a[11].tp->dims[0].value == 3 && isinf(a[12].f));
    assert_true(n[1].nattr == 2 && n[1].attr[0].type == ATTR_graph && n[1].attr[1].g->ninit == 1 && n[1].attr[1].g->nnode == 1);
    assert_string_equal(n[2].domain, "");
    assert_string_equal(n[2].overload, "fast");
    assert_int_equal(n[2].nin, 1);
    const OnnxFunction *f = m->function;
    assert_true(m->nfunction == 1 && f->nin == 2 && f->nattr == 1 && f->nattr_default == 1 && f->attr_default[0].f == 4 && f->nnode == 1);
    assert_true(f->node[0].attr[0].type == ATTR_ints);
    assert_string_equal(f->node[0].attr[0].ref, "gamma");
    onnx_close(l.m);
    for (size_t k = 1; k < sizeof text_model - 1; k++) {
        char *cut = malloc(k);
        assert_non_null(cut);
        memcpy(cut, text_model, k);
        l = load("cut.onnxtxt", cut, k);
        assert_true(l.st == E_OK || l.st == E_FORMAT);
        onnx_close(l.m);
        free(cut);
    }
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct { const char *text, *piece; } rows[] = {
        {"<ir_version 7> g () => () {}", "line 1, column 13: found '7', wanted ':'"},
        {"<nonsense: 7> g () => () {}", "found 'nonsense', wanted ir_version"},
        {"\n\n   g () = () {}", "line 3, column 9: found '=', wanted '=>'"},
        {"g () => () {", "found the end of the text, wanted"},
        {"g () => () { y = }", "wanted an operator's name"},
        {"g () => () { y = Op(x }", "wanted ')'"},
        {"g () => () { y = Op<a = [1, \"s\"]>(x) }", "the list's values differ in type"},
        {"g () => () { y = Op<a = []>(x) }", "an empty list needs a type"},
        {"g () => () { y = Op<a : int = [1]>(x) }", "type for one value"},
        {"g () => () { y = Op<a : int = 1.5>(x) }", "not of the type"},
        {"g () => () { y = Op<a : number = 1>(x) }", "wanted an attribute type"},
        {"g () => () { y = Op<a = 99999999999999999999>(x) }", "does not fit 64 bits"},
        {"g () => () { y = Op<a = 1e>(x) }", "digits of an exponent"},
        {"g () => () { y = Op<a = 1e99>(x) }", "too large for a float"},
        {"g () => () { y = Op<a = 12ab>(x) }", "the end of the number"},
        {"g () => () { y = Op<a = \"open>(x) }", "the string that starts here does not end"},
        {"g (float[3] x = {1, 2}) => () {}", "tensor 'x' has 2 values, but [3] wants 3"},
        {"g (float[N] x = {1, 2}) => () {}", "needs numbers as dimensions"},
        {"g (float[] x = {1, 2}) => () {}", "needs a tensor type with its dimensions"},
        {"g (float[9223372036854775807, 3] x = {}) => () {}", "too large"},
        {"g (float[-2] x) => () {}", "dimension -2"},
        {"g (int8[1] x = {128}) => () {}", "128 does not fit i8"},
        {"g (uint4[3] x = {1, 2, 16}) => () {}", "does not fit u4"},
        {"g (int32[1] x = {1.5}) => () {}", "wanted a whole number"},
        {"g (float16[1] x = {1.5}) => () {}", "wanted its bit pattern"},
        {"g (uint64[1] x = {-1}) => () {}", "does not fit u64"},
        {"g (float[1] x = [\"offset\" : \"0\"]) => () {}", "without a location"},
        {"g (seq(float x) => () {}", "wanted ')'"},
        {"g () => () {} trailing", "wanted"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        failed(load("m.onnxtxt", rows[i].text, strlen(rows[i].text)), E_FORMAT, rows[i].piece);
    Enc e = {0};
    for (int i = 0; i < 70; i++)
        put(&e, "g () => () { y = If<b = ", 24);
    failed(load("m.onnxtxt", e.at, e.n), E_UNSUPPORTED, "subgraphs nested deeper than 64");
    free(e.at);
    e = RAW("g (");
    for (int i = 0; i < 70; i++)
        put(&e, "seq(", 4);
    failed(load("m.onnxtxt", e.at, e.n), E_UNSUPPORTED, "types nested deeper than 64");
    free(e.at);
}

/* ---- real models -------------------------------------------------------------------------------------------------------------------------------- */

static void test_real_models(void **state)
{
    (void)state;
    static const char *const names[] = {"bert_toy", "magika_v3_3", "mobilenetv2_qdq_int8", "ppocrv4_rec", "silero_vad_v6", "ulfd_RFB-320"};
    const char *cases = env_get("SN_CASES");
    char path[512];
    if (!cases || !cases[0]) {
        print_message("SN_CASES is not set: real models are not read\n");
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(path, sizeof path, "%s/models/%s/model.onnx", cases, names[i]);
        Load l = load(path, NULL, 0);
        const OnnxGraph *g = loaded(&l);
        assert_true(g->nnode > 0 && g->nin > 0 && g->nout > 0);
        onnx_close(l.m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rich_model),    cmocka_unit_test(test_merge),       cmocka_unit_test(test_typed_data),
        cmocka_unit_test(test_sparse),        cmocka_unit_test(test_wire),        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_bad_structure), cmocka_unit_test(test_mangled),     cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_bad_text),    cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
