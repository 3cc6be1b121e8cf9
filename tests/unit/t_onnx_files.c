/* What lies beside a model: external data of its tensors, and tensors in files of their own (.pb, .npy).
 *
 * Both are written into a folder of the test, read back and compared; each malformed kind must fail with the status and a piece of the message that it names. */
#include "onnx_bytes.h"
#include <sys/stat.h>
#include <unistd.h>

/* ---- external data ---------------------------------------------------------------------------------------------------------------------- */

static char folder[64];

static const char *at(const char *name)
{
    static char paths[4][256];
    static int i;
    char *p = paths[i++ & 3];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static void save(const char *name, const void *p, size_t n)
{
    char why[128];
    assert_int_equal(file_write(at(name), p, n, why, sizeof why), E_OK);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", "/tmp/sinter-read-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static Enc external(const char *location, const char *offset, const char *length)
{
    Enc t = tensor("w", 1, 1, (int64_t[]){2}), e = {0};
    const char *const pairs[4][2] = {{"location", location}, {"offset", offset}, {"length", length}, {"checksum", "ignored"}};
    for (int i = 0; i < 4; i++)
        if (pairs[i][1]) {
            str(&e, 1, pairs[i][0]);
            str(&e, 2, pairs[i][1]);
            msg(&t, 13, &e);
        }
    num(&t, 14, 1);
    return model_with_tensor(&t);
}

static void external_refused(const char *location, const char *offset, const char *length, Status st, const char *piece)
{
    Enc e = external(location, offset, length);
    failed(load(at("m.onnx"), e.at, e.n), st, piece);
    free(e.at);
}

static void external_works(const char *path, const float *want)
{
    Load l = load(path, NULL, 0);
    const OnnxTensor *t = &loaded(&l)->init[0];
    assert_int_equal(l.m->nexternal, 1);
    assert_memory_equal(t->data, want, 8);
    assert_true((const uint8_t *)t->data >= l.m->external[0].data && (const uint8_t *)t->data + 8 <= l.m->external[0].data + l.m->external[0].size);
    onnx_close(l.m);
}

static void test_external(void **state)
{
    (void)state;
    static const float data[4] = {1, 2, 3, 4};
    Enc e = external("w.bin", "8", "8");
    assert_int_equal(make_folder(NULL), 0);
    save("m.onnx", e.at, e.n);
    save("w.bin", data, sizeof data);
    external_works(at("m.onnx"), data + 2);
    external_refused("w.bin", "12", "8", E_FORMAT, "8 bytes at offset 12, but 'w.bin' has 16 bytes");
    external_refused("w.bin", "9223372036854775807", "8", E_FORMAT, "at offset 9223372036854775807");
    external_refused("w.bin", "18446744073709551615", NULL, E_FORMAT, "wanted whole numbers");
    external_refused("w.bin", "-1", NULL, E_FORMAT, "wanted whole numbers");
    external_refused("w.bin", "", NULL, E_FORMAT, "wanted whole numbers");
    external_refused("w.bin", NULL, "16", E_FORMAT, "has length 16, but its shape wants 8 bytes");
    external_refused("none.bin", NULL, NULL, E_IO, "none.bin': No such file");
    external_refused(at("w.bin"), NULL, NULL, E_FORMAT, "is not a relative path");
    external_refused("../w.bin", NULL, NULL, E_FORMAT, "leaves the model's folder");
    external_refused("a/..", NULL, NULL, E_FORMAT, "leaves the model's folder");
    external_refused("a//../../w.bin", NULL, NULL, E_FORMAT, "leaves the model's folder");
    external_refused("", NULL, NULL, E_FORMAT, "is empty");
    external_refused(".", NULL, NULL, E_IO, "is a folder");
    failed(load(NULL, e.at, e.n), E_INVALID, "a model in memory has no folder");

    /* A folder below, the other names of the same file, and names that only look like going up. */
    assert_int_equal(mkdir(at("sub"), 0700), 0);
    save("sub/..w", data, sizeof data);
    free(e.at);
    e = external("sub/..w", NULL, NULL);
    save("m2.onnx", e.at, e.n);
    external_works(at("m2.onnx"), data);

    /* A model cache: snapshots/x/ has links to blobs/. */
    assert_int_equal(mkdir(at("blobs"), 0700) | mkdir(at("snapshots"), 0700) | mkdir(at("snapshots/x"), 0700), 0);
    free(e.at);
    e = external("model.onnx_data", "4", NULL);
    save("blobs/1234", e.at, e.n);
    save("blobs/5678", data, sizeof data);
    assert_int_equal(symlink("../../blobs/1234", at("snapshots/x/model.onnx")), 0);
    assert_int_equal(symlink("../../blobs/5678", at("snapshots/x/model.onnx_data")), 0);
    external_works(at("snapshots/x/model.onnx"), data + 1);

    /* A link to a model whose data lies beside the real file. */
    save("blobs/model.onnx_data", data, sizeof data);
    assert_int_equal(symlink("blobs/1234", at("linked.onnx")), 0);
    external_works(at("linked.onnx"), data + 1);

    /* The same link beside a model that is a file of its own leads out of its folder. */
    save("snapshots/x/own.onnx", e.at, e.n);
    failed(load(at("snapshots/x/own.onnx"), NULL, 0), E_FORMAT, "outside the folder of the model");
    free(e.at);
    assert_int_equal(remove_folder(NULL), 0);
}

/* ---- tensor files ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct FileJob { const char *path, *name; Arena *arena; Tensor *t; bool npy, write; } FileJob;

static void do_file(Ctx *cx, void *arg)
{
    FileJob *j = arg;
    if (j->npy)
        j->write ? npy_write(cx, j->path, j->t) : npy_read(cx, j->arena, j->path, j->t);
    else
        j->write ? tensorpb_write(cx, j->path, j->name, j->t) : tensorpb_read(cx, j->arena, j->path, j->t, &j->name);
}

static void tensor_refused(Ctx *cx, Arena *a, const char *name, const void *p, size_t n, Status st, const char *piece)
{
    Tensor t;
    FileJob j = {.path = at(name), .arena = a, .t = &t, .npy = strstr(name, ".npy") != NULL};
    save(name, p, n);
    Status found = guard_call(cx, do_file, &j);
    if (found != st || !strstr(cx->text, piece) || strstr(strstr(cx->text, name) + 1, name)) {
        print_error("wanted %s and '%s', found %s: %s\n", status_name(st), piece, status_name(found), cx->text);
        assert_true(!"the failure that was wanted");
    }
}

static void check_files(Ctx *cx, void *arg)
{
    Arena *a = arg;
    for (int form = 0; form < 2; form++)
        for (int dt = DT_none + 1; dt < DT_COUNT; dt++)
            for (int rank = 0; rank < 4; rank++) {
                static const int64_t dims[3] = {3, 1, 5};
                Tensor *t = tensor_new(a, cx, (DType)dt, rank, dims), r = {0};
                int64_t n = tensor_count(t);
                size_t size = dtype_size((DType)dt);
                uint8_t *p = t->data;
                for (int64_t i = 0; i < n; i++) {
                    int bits = dtype_bits((DType)dt);
                    uint64_t v = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
                    if (dt == DT_bool)
                        v &= 1;
                    if (bits < 8)
                        v = (v & ((1u << bits) - 1)) - (dtype_info[dt].class == 'S' ? (v >> (bits - 1) & 1) << bits : 0);
                    memcpy(p + (size_t)i * size, &v, size);
                }
                if (rank == 3) {        /* every other element of the last axis, which is stored in reverse */
                    t->strides[2] = 2;
                    t->dims[2] = 3;
                    t->data = p + 4 * size;
                    t->strides[2] = -2;
                }
                FileJob j = {.path = at(form ? "t.npy" : "t.pb"), .name = "nom", .arena = a, .t = t, .npy = form, .write = true};
                do_file(cx, &j);
                j.t = &r;
                j.write = false;
                j.name = NULL;
                do_file(cx, &j);
                assert_true(r.dt == (DType)dt && r.rank == rank && tensor_dense(&r));
                assert_true(form || !strcmp(j.name, "nom"));
                for (int i = 0; i < rank; i++)
                    assert_int_equal(r.dims[i], t->dims[i]);
                for (int64_t i = 0; i < tensor_count(&r); i++) {
                    int64_t from = rank == 3 ? i / 3 * 5 + 4 - 2 * (i % 3) : i;
                    assert_memory_equal((uint8_t *)r.data + (size_t)i * size, p + (size_t)from * size, size);
                }
            }
}

/* A .npy header of version 1 to 3 with the given dictionary, then data. */
static Enc npy(int version, const char *dict, const void *data, size_t n)
{
    Enc e = {0};
    uint8_t head[12] = "\x93NUMPY";
    size_t len = strlen(dict);
    head[6] = (uint8_t)version;
    head[8] = (uint8_t)len;
    head[9] = (uint8_t)(len >> 8);
    put(&e, head, version == 1 ? 10 : 12);
    put(&e, dict, len);
    put(&e, data, n);
    return e;
}

static void check_npy(Ctx *cx, void *arg)
{
    Arena *a = arg;
    static const struct { const char *dict; int version; DType dt; int rank; const char *data; int n; const char *want; } good[] = {
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n", 1, DT_i16, 1, "\1\2\3\4", 4, "\1\2\3\4"},
        {"{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", 2, DT_i16, 1, "\1\2\3\4", 4, "\2\1\4\3"},
        {"{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\"|u1\"}", 3, DT_u8, 2, "\0\1\2\3\4\5", 6, "\0\2\4\1\3\5"},
        {"{'descr': '=u1', 'fortran_order': False, 'shape': () }   \n", 1, DT_u8, 0, "\7", 1, "\7"},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (3L,), }\n", 1, DT_bool, 1, "\0\1\2", 3, "\0\1\1"},
        {"{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }\n", 1, DT_bf16, 1, "\x80\x3f", 2, "\x80\x3f"},
        {"{'descr': 'bfloat16', 'fortran_order': False, 'shape': (1,), }\n", 1, DT_bf16, 1, "\x80\x3f", 2, "\x80\x3f"},
        {"{'descr': '<f1', 'fortran_order': False, 'shape': (1,), }\n", 1, DT_f8e5m2, 1, "\x3c", 1, "\x3c"},
        {"{'descr': 'int4', 'fortran_order': False, 'shape': (2,), }\n", 1, DT_i4, 1, "\x08\x07", 2, "\xf8\x07"},
        {"{'descr': '|V1', 'fortran_order': False, 'shape': (1,), } # dtype f8e4m3fn\n", 1, DT_f8e4m3fn, 1, "\x3c", 1, "\x3c"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9007199254740992), }\n", 1, DT_f32, 2, "", 0, ""},
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        Enc e = npy(good[i].version, good[i].dict, good[i].data, (size_t)good[i].n);
        Tensor t;
        save("g.npy", e.at, e.n);
        free(e.at);
        npy_read(cx, a, at("g.npy"), &t);
        assert_true(t.dt == good[i].dt && t.rank == good[i].rank && (int)tensor_bytes(&t) == good[i].n);
        assert_memory_equal(t.data, good[i].want, (size_t)good[i].n);
    }
}

static void test_tensor_files(void **state)
{
    (void)state;
    Ctx cx;
    Arena *a;
    static const char small[] = "<ir_version: 10, opset_import: [\"\" : 20]> g (float[1] x) => (float[1] y) { y = Relu(x) }";
    Load l = load(NULL, small, sizeof small - 1);       /* its arena serves */
    a = l.m->arena;
    ctx_init(&cx);
    cx.opt.fail = -1;
    arena_bind(a, &cx);
    assert_int_equal(make_folder(NULL), 0);
    Status st = guard_call(&cx, check_files, a);
    if (st)
        print_error("%s\n", cx.text);
    assert_int_equal(st, E_OK);
    st = guard_call(&cx, check_npy, a);
    if (st)
        print_error("%s\n", cx.text);
    assert_int_equal(st, E_OK);

    static const struct { const char *dict; Status st; const char *piece; } bad[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", E_FORMAT, "4 bytes follow the npy header, but f32[2] wants 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", E_FORMAT, "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", E_FORMAT, "wanted a size of at most"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", E_FORMAT, "wanted a size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", E_FORMAT, "wanted ',' or ')'"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", E_FORMAT, "wanted True or False"},
        {"{'descr': '<f4', 'shape': (1,), }", E_FORMAT, "wanted descr, fortran_order and shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", E_FORMAT, "wanted one of descr"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } {}", E_FORMAT, "wanted the end of the header"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", E_FORMAT, "structured dtypes"},
        {"{'descr': '<c8", E_FORMAT, "wanted a short string"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", E_UNSUPPORTED, "npy dtype '<c8' has no meaning"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", E_UNSUPPORTED, "npy dtype '|O' has no meaning"},
        {"{'descr': '|V1', 'fortran_order': False, 'shape': (4,), }", E_UNSUPPORTED, "may be any type of one byte"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }", E_UNSUPPORTED, "more than 16"},
        {"", E_FORMAT, "wanted '{'"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        Enc e = npy(1, bad[i].dict, "1234", 4);
        tensor_refused(&cx, a, "b.npy", e.at, e.n, bad[i].st, bad[i].piece);
        free(e.at);
    }
    Enc head = npy(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2,), } # dtype i16\n", "1234", 4);
    int good = 0;
    for (size_t i = 0; i < head.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            Tensor t;
            FileJob j = {.path = at("c.npy"), .arena = a, .t = &t, .npy = true};
            head.at[i] ^= (uint8_t)(1 << bit);
            save("c.npy", head.at, head.n);
            head.at[i] ^= (uint8_t)(1 << bit);
            st = guard_call(&cx, do_file, &j);
            assert_true(st == E_OK || st == E_FORMAT || st == E_UNSUPPORTED);
            good += st == E_OK;
        }
    assert_true(good >= 32);            /* changes of the data, at least */
    free(head.at);
    tensor_refused(&cx, a, "b.npy", "\x93NUMPY\x01", 7, E_FORMAT, "wanted a .npy file");
    tensor_refused(&cx, a, "b.npy", "\x93NUMPY\x09\x00\x00\x00", 10, E_UNSUPPORTED, "npy version 9.0");
    tensor_refused(&cx, a, "b.npy", "\x93NUMPY\x02\x00\x00\x00", 10, E_FORMAT, "ends within the npy header");
    tensor_refused(&cx, a, "b.npy", "\x93NUMPY\x01\x00\x76\x00{}", 12, E_FORMAT, "the npy header has 118 bytes");
    tensor_refused(&cx, a, "b.pb", "\x10\x01\x4a\x03" "abc", 7, E_FORMAT, "raw_data has 3 bytes, but float[] wants 4");
    tensor_refused(&cx, a, "b.pb", "\x10\x08\x32\x01" "a", 5, E_UNSUPPORTED, "is of type string");
    tensor_refused(&cx, a, "b.pb", "\x0a\x03seq\x10\x01\x1a\x02\x10\x01", 11, E_UNSUPPORTED, "SequenceProto");
    tensor_refused(&cx, a, "b.pb", "\x0a\x03seq\x10\x01", 7, E_UNSUPPORTED, "SequenceProto");
    tensor_refused(&cx, a, "b.pb", "\x10\x01\x70\x01\x6a\x0d\x0a\x08location\x12\x01x", 19, E_UNSUPPORTED, "external data in a tensor file");
    onnx_close(l.m);
    assert_int_equal(remove_folder(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_external), cmocka_unit_test(test_tensor_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
