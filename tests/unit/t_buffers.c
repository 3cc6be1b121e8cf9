/* Memory of a device in the public functions (sn_buffer): results and inputs that stay there, values of every dtype, many tensors at once; on each device that is there. */
#include "sn_model.h"

static sn_program *on_device(sn_model *m, const char *device)
{
    sn_options o = { .device = device, .interpret = !strcmp(device, "interpreter") };
    sn_program *p = NULL;
    if (o.interpret) o.device = NULL;
    sn_status st = sn_compile(m, &o, &p, &err);
    if (st == SN_DEVICE) return NULL;                /* there is none here */
    if (st) fail_msg("%s: %s: %s", device, sn_status_name(st), err.text);
    return p;
}

static sn_tensor in_buffer(sn_buffer *b, size_t offset, int64_t n)
{
    return (sn_tensor){ .dtype = SN_F32, .rank = 1, .dims = { n }, .buffer = b, .offset = offset };
}

static void buffers_on(const char *device)
{
    enum { N = 1003 };
    int64_t any = -1;
    float x[N], y[N], got[N];
    sn_model *m = one_op("Sub", NULL, 2, SN_F32, 1, &any);
    sn_program *p = on_device(m, device);
    for (int i = 0; i < N; i++) { x[i] = (float)i; y[i] = (float)(3 * i % 7); }
    for (int once = 0; p && once < 1; once++) {
        bool runs = strcmp(device, "null") != 0, staged = !strcmp(device, "cuda") || !strcmp(device, "opencl") || !runs;
        sn_buffer *a = NULL, *b = NULL, *far = NULL;
        assert_int_equal(sn_buffer_new(p, sizeof x + 8, &a, &err), SN_OK);
        assert_int_equal(sn_buffer_new(p, sizeof y, &b, &err), SN_OK);
        assert_int_equal(sn_buffer_write(a, 8, x, sizeof x, &err), SN_OK);
        assert_int_equal(sn_buffer_write(b, 0, y, sizeof y, &err), SN_OK);
        assert_int_equal(sn_buffer_write(b, 4, y, sizeof y, &err), SN_INVALID);
        assert_int_equal(sn_buffer_read(b, sizeof y + 1, got, 0, &err), SN_INVALID);
        /* one in a buffer, one from the host, the result in a buffer of its own */
        sn_buffer *c = NULL;
        assert_int_equal(sn_buffer_new(p, sizeof got, &c, &err), SN_OK);
        sn_tensor in[2] = { in_buffer(a, 8, N), vec_f32(y, N) }, out = { .buffer = c };
        if (sn_run(p, 2, in, 1, &out, &err)) fail_msg("%s: %s", device, err.text);
        assert_int_equal(out.rank, 1);
        assert_int_equal(out.dims[0], N);
        assert_int_equal(sn_buffer_read(c, 0, got, sizeof got, &err), SN_OK);
        for (int i = 0; runs && i < N; i++) assert_true(got[i] == x[i] - y[i]);
        /* in place, twice: what a run leaves the next one reads */
        in[1] = in_buffer(b, 0, N);
        out = in_buffer(a, 8, N);
        for (int r = 0; r < 2; r++) if (sn_run(p, 2, in, 1, &out, &err)) fail_msg("%s: %s", device, err.text);
        assert_int_equal(sn_buffer_read(a, 8, got, sizeof got, &err), SN_OK);
        for (int i = 0; runs && i < N; i++) assert_true(got[i] == x[i] - y[i] - y[i]);
        /* a result for the host */
        sn_tensor near = { 0 };
        assert_int_equal(sn_run(p, 2, in, 1, &near, &err), SN_OK);
        for (int i = 0; runs && i < N; i++) assert_true(((float *)near.data)[i] == x[i] - 3 * y[i]);
        sn_tensor_release(&near);
        /* a result that stays there, which the next run reads */
        sn_tensor kept = { .on_device = 1 }, next[2] = { in[0], in_buffer(b, 0, N) };
        int32_t type = -1, id = -1;
        assert_int_equal(sn_run(p, 2, in, 1, &kept, &err), SN_OK);
        assert_int_equal(kept.buffer != NULL, staged);
        assert_int_equal(kept.bytes, sizeof got);
        sn_program_place(p, &type, &id);
        assert_int_equal(id, 0);
        assert_int_equal(type == 1, !staged);
        next[0] = kept;
        next[0].owner = NULL;
        assert_int_equal(sn_run(p, 2, next, 1, &near, &err), SN_OK);
        for (int i = 0; runs && i < N; i++) assert_true(((float *)near.data)[i] == x[i] - 4 * y[i]);
        sn_tensor_release(&near);
        sn_tensor_release(&kept);
        assert_null(kept.buffer);
        sn_tensor_release(&kept);
        /* an output over a part of an input, one that does not fit, elements across their size, strides, NULL */
        out = in_buffer(a, 4, N);
        sn_status st = sn_run(p, 2, in, 1, &out, &err);
        assert_int_equal(st, staged ? SN_INVALID : SN_OK);
        out = in_buffer(c, 4, N);
        assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_INVALID);
        out = in_buffer(a, 6, N);
        if (staged) assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_INVALID);
        in[0].has_strides = 1;
        out = in_buffer(c, 0, N);
        assert_int_equal(sn_run(p, 2, in, 1, &out, &err), SN_INVALID);
        assert_int_equal(sn_buffer_new(NULL, 4, &far, &err), SN_INVALID);
        /* somebody else's memory */
        st = sn_buffer_wrap(p, sn_buffer_address(b), sizeof y, &far, &err);
        if (sn_buffer_address(b)) {
            assert_int_equal(st, SN_OK);
            assert_int_equal(sn_buffer_read(far, 0, got, sizeof got, &err), SN_OK);
            assert_memory_equal(got, y, sizeof y);
        } else assert_int_equal(st, SN_UNSUPPORTED);
        sn_buffer_free(far);
        sn_buffer_free(a);
        sn_buffer_free(b);
        sn_buffer_free(c);
        sn_buffer_free(NULL);
    }
    if (!p) print_message("skipped: no device %s\n", device);
    sn_program_free(p);
    sn_model_free(m);
}

static void test_device_buffers(void **state)
{
    (void)state;
    static const char *const devices[] = { "cpu", "interpreter", "null", "opencl", "cuda" };
    for (size_t i = 0; i < COUNT_OF(devices); i++) buffers_on(devices[i]);
}

/* An output that would be written before its memory's last reader: rows of sums need all of the input; and a shape that an input's values decide. */
static void test_device_values(void **state)
{
    (void)state;
    static const char *const devices[] = { "cpu", "opencl", "cuda" };
    int64_t want[2] = { 3, 2 };
    float x[6] = { 1, 2, 3, 4, 5, 6 }, got[6];
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        sn_graph *g;
        sn_model *m;
        sn_value v[2], y, z;
        int64_t six = 6, two = 2;
        assert_int_equal(sn_graph_new(&g, &err), SN_OK);
        sn_graph_input(g, "x", SN_F32, 1, &six, NULL, &v[0]);
        sn_graph_input(g, "shape", SN_I64, 1, &two, NULL, &v[1]);
        sn_graph_op(g, "Reshape", NULL, 2, v, 1, &y);
        sn_graph_op(g, "Transpose", NULL, 1, &y, 1, &z);
        sn_graph_output(g, "y", z);
        assert_int_equal(sn_graph_finish(g, &m, &err), SN_OK);
        sn_program *p = on_device(m, devices[i]);
        sn_buffer *a = NULL, *s = NULL;
        if (p) {
            assert_int_equal(sn_buffer_new(p, sizeof x, &a, &err), SN_OK);
            assert_int_equal(sn_buffer_new(p, sizeof want, &s, &err), SN_OK);
            assert_int_equal(sn_buffer_write(a, 0, x, sizeof x, &err), SN_OK);
            assert_int_equal(sn_buffer_write(s, 0, want, sizeof want, &err), SN_OK);
            sn_tensor in[2] = { in_buffer(a, 0, 6), { .dtype = SN_I64, .rank = 1, .dims = { 2 }, .buffer = s } }, out = { .buffer = a };
            sn_status st = sn_run(p, 2, in, 1, &out, &err);
            if (!strcmp(devices[i], "cpu")) {
                assert_int_equal(st, SN_OK);
                assert_int_equal(out.dims[0], 2);
                assert_int_equal(sn_buffer_read(a, 0, got, sizeof got, &err), SN_OK);
                assert_true(got[1] == 3 && got[3] == 2);
            } else {
                assert_int_equal(st, SN_INVALID);
                assert_non_null(strstr(err.text, "which is still read"));
            }
        }
        sn_buffer_free(a);
        sn_buffer_free(s);
        sn_program_free(p);
        sn_model_free(m);
    }
}

/* A step of an optimiser over several tensors, in place: on a device whose launches are dear it is one launch. */
static void test_device_many(void **state)
{
    (void)state;
    static const char *const devices[] = { "cpu", "opencl", "cuda" };
    enum { T = 5, MOST = 2051 };
    static const int64_t size[T] = { 1, 2051, 0, 5, 1024 };
    static float p0[MOST], g0[MOST], got[MOST];
    for (int k = 0; k < MOST; k++) { p0[k] = (float)k; g0[k] = (float)(k % 5); }
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        sn_graph *g;
        sn_model *m;
        assert_int_equal(sn_graph_new(&g, &err), SN_OK);
        for (int t = 0; t < T; t++) {
            char name[2][16];
            sn_value v[2], y;
            snprintf(name[0], sizeof name[0], "p%d", t);
            snprintf(name[1], sizeof name[1], "g%d", t);
            for (int k = 0; k < 2; k++) sn_graph_input(g, name[k], SN_F32, 1, &size[t], NULL, &v[k]);
            sn_graph_op(g, "Sub", NULL, 2, v, 1, &y);
            snprintf(name[0], sizeof name[0], "q%d", t);
            sn_graph_output(g, name[0], y);
        }
        assert_int_equal(sn_graph_finish(g, &m, &err), SN_OK);
        sn_program *p = on_device(m, devices[i]);
        sn_buffer *b[2 * T] = { NULL };
        sn_tensor in[2 * T], out[T];
        for (int t = 0; p && t < T; t++) {
            for (int k = 0; k < 2; k++) {
                assert_int_equal(sn_buffer_new(p, (size_t)size[t] * 4, &b[2 * t + k], &err), SN_OK);
                assert_int_equal(sn_buffer_write(b[2 * t + k], 0, k ? g0 : p0, (size_t)size[t] * 4, &err), SN_OK);
                in[2 * t + k] = in_buffer(b[2 * t + k], 0, size[t]);
            }
            out[t] = in[2 * t];
        }
        for (int r = 0; p && r < 3; r++) if (sn_run(p, 2 * T, in, T, out, &err)) fail_msg("%s: %s", devices[i], err.text);
        for (int t = 0; p && t < T; t++) {
            assert_int_equal(sn_buffer_read(b[2 * t], 0, got, (size_t)size[t] * 4, &err), SN_OK);
            for (int64_t k = 0; k < size[t]; k++) assert_true(got[k] == p0[k] - 3 * g0[k]);
        }
        for (int t = 0; t < 2 * T; t++) sn_buffer_free(b[t]);
        sn_program_free(p);
        sn_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_buffers), cmocka_unit_test(test_device_values), cmocka_unit_test(test_device_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
