/* Tensors of more than 2^31 elements: every offset is 64 bits wide. Needs about 11 GiB; skips with one line where there is less. */
#include "model.h"
#include <unistd.h>

static const int64_t big = ((int64_t)1 << 31) + 16;

static bool enough(void)
{
    int64_t free = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (free > (int64_t)11 << 30) return true;
    print_message("skipped: 11 GiB of memory are needed\n");
    return false;
}

/* x + 1 over all of it; the last pieces of a join that begins beyond 2^31; a sum that counts them. */
static void test_both_ends(void **state)
{
    (void)state;
    if (!enough()) return;
    for (int mode = MODE_fused; mode <= MODE_unfused; mode++) {
        Trial r;
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (uint8[N] x, uint8[32] z) => (uint8[N] y, uint8[40] tail, uint8[3] mid) <uint8 one = {1}, int64[1] from = {2147483648}, int64[1] to = {9223372036854775807},\n"
                   "int64[1] ax = {0}, int64[3] at = {2147483647, 2147483648, 2147483649}, int64[1] eight = {2147483656}> {\n"
                   "y = Add(x, one) c = Concat<axis = 0>(x, z) s = Slice(c, eight, to, ax) tail = Add(s, one) mid = Gather(y, at) }");
        r.in = NEWS(r.arena, Tensor, 2);
        uint8_t *x = block_alloc((size_t)big);
        assert_non_null(x);
        memset(x, 7, (size_t)big);
        x[0] = 1; x[big - 1] = 41; x[(int64_t)1 << 31] = 99; x[((int64_t)1 << 31) + 8] = 55;
        tensor_init(&r.cx, &r.in[0], DT_u8, 1, (int64_t[]){ big });
        r.in[0].data = x;
        r.in[1] = *tensor_new(r.arena, &r.cx, DT_u8, 1, (int64_t[]){ 32 });
        for (int i = 0; i < 32; i++) ((uint8_t *)r.in[1].data)[i] = (uint8_t)(100 + i);
        if (trial_run(&r)) fail_msg("%s", r.cx.text);
        const uint8_t *y = r.out[0].data, *tail = r.out[1].data, *mid = r.out[2].data;
        for (int64_t i = 0; i < big; i++)
            if (y[i] != x[i] + 1) fail_msg("element %lld is %d", (long long)i, y[i]);
        assert_int_equal(tail[0], 56);
        assert_int_equal(tail[7], 42);
        for (int i = 0; i < 32; i++) assert_int_equal(tail[8 + i], 101 + i);
        assert_int_equal(mid[0], 8);
        assert_int_equal(mid[1], 100);
        assert_int_equal(mid[2], 8);
        trial_close(&r);
        block_free(x);
    }
}

static void test_two_axes(void **state)
{
    (void)state;
    if (!enough()) return;
    for (int mode = MODE_fused; mode <= MODE_unfused; mode++) {
        Trial r;                     /* rows whose start is beyond 2^31; a transposed read with a stride above 2^16 */
        trial_open(&r, (TrialMode)mode, OPSET(18) "g (uint8[R,65537] x) => (uint8[65537] last, uint8[R] column, uint8 top) <int64 m1 = {-1}, uint8 one = {1}> {\n"
                   "a = BitwiseXor(x, one) last = Gather<axis = 0>(a, m1) column = Gather<axis = 1>(a, m1) top = ReduceMax<keepdims = 0>(a) }");
        r.in = NEWS(r.arena, Tensor, 1);
        int64_t rows = 32769, n = rows * 65537;
        uint8_t *x = block_alloc((size_t)n);
        assert_non_null(x);
        memset(x, 6, (size_t)n);
        x[n - 1] = 200; x[(rows - 1) * 65537] = 100; x[65536] = 44;
        tensor_init(&r.cx, &r.in[0], DT_u8, 2, (int64_t[]){ rows, 65537 });
        r.in[0].data = x;
        if (trial_run(&r)) fail_msg("%s", r.cx.text);
        const uint8_t *last = r.out[0].data, *column = r.out[1].data;
        assert_int_equal(last[0], 101);
        assert_int_equal(last[1], 7);
        assert_int_equal(last[65536], 201);
        assert_int_equal(column[0], 45);
        assert_int_equal(column[1], 7);
        assert_int_equal(column[rows - 1], 201);
        assert_int_equal(*(uint8_t *)r.out[2].data, 201);
        trial_close(&r);
        block_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_both_ends), cmocka_unit_test(test_two_axes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
