/* The reference interpreter: views, folds, gathers, scatters, calls (elementwise primitives: t_eval_ew.c). What it gives is compared with
 * values worked out by hand and with plain C loops written here. */
#include "eval_bench.h"
#include <limits.h>

/* ---- views --------------------------------------------------------------------------------------------- */
static Node *iota3(Bench *b)     /* f32[2,3,4] of 0..23 */
{
    static float v[24];
    for (int k = 0; k < 24; k++)
        v[k] = (float)k;
    return bench_input(b, DT_f32, 3, (int64_t[]){ 2, 3, 4 }, v);
}

TEST(views)
{
    Graph *g = b->g;
    Node *x = iota3(b), *y;
    float want[256];
    int at = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 3; k++)
                want[at++] = -(float)(j * 12 + k * 4 + i);
    y = g1(g, OP_neg, g_transpose(g, x, (int[]){ 2, 0, 1 }));
    expect_f32(bench_run(b, y), 24, want);
    /* reshape of a transpose: quotients and remainders */
    y = g1(g, OP_neg,
           g_reshape(g, g_transpose(g, x, (int[]){ 2, 0, 1 }), 2,
                     (Dim *[]){ dim_const(g, 3), dim_const(g, 8) }));
    expect_f32(bench_run(b, y), 24, want);
    /* pad and crop */
    Dim *before[3] = { dim_const(g, 0), dim_const(g, 2), dim_const(g, -1) },
        *after[3] = { dim_const(g, 0), dim_const(g, -1), dim_const(g, 1) };
    at = 0;
    for (int i = 0; i < 2; i++)
        for (int j = -2; j < 2; j++)
            for (int k = 1; k < 5; k++)
                want[at++] = j < 0 || k > 3 ? 9.5f : (float)(i * 12 + j * 4 + k);
    expect_f32(bench_run(b, g_pad(g, x, before, after, (Scalar){ .f = 9.5 })), at, want);
    /* slice backwards with a step, flip */
    at = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 3; k >= 0; k -= 2)
                want[at++] = (float)(i * 12 + j * 4 + k);
    expect_f32(bench_run(b, g_slice(g, x, 2, dim_const(g, 3), dim_const(g, 2), -2)), at, want);
    at = 0;
    for (int i = 1; i >= 0; i--)
        for (int k = 0; k < 12; k++)
            want[at++] = (float)(i * 12 + k);
    expect_f32(bench_run(b, g_flip(g, x, 0)), at, want);
}

/* A predicate that is not an interval of lanes: every third element of a row, by a remainder. */
TEST(masks)
{
    Graph *g = b->g;
    enum { N = 1000 };
    static float v[N], want[N];
    for (int k = 0; k < N; k++) {
        v[k] = (float)k + 0.5f;
        want[k] = k % 3 == 1 && k >= 10 ? v[k / 3] : -7;
    }
    Node *x = vec_f32(b, N, v);
    Dim *n = dim_const(g, N), *i = dim_idx(g, 0, n), *idx[1] = { dim_div(g, i, dim_const(g, 3)) };
    Pred pred[2] = { { dim_addc(g, dim_mod(g, i, dim_const(g, 3)), -1), dim_const(g, 1) },
                     { dim_addc(g, i, -10), n } };
    View view = { .nidx = 1, .idx = idx, .npred = 2, .pred = pred, .fill = { .f = -7 } };
    Node *y = graph_add(
        g, &(Node){ .op = OP_view, .dt = DT_f32, .rank = 1, .dims = &n, .nin = 1, .in = &x, .view = view });
    expect_f32(bench_run(b, y), N, want);
    for (int k = 0; k < N; k++)
        want[k] = want[k] * 2 + 1;
    y = g2(g, OP_add, g2(g, OP_mul, y, g_scalar(g, DT_f32, 2)), g_scalar(g, DT_f32, 1));
    expect_f32(bench_run(b, y), N, want);
}

TEST(leaves)
{
    Graph *g = b->g;
    Node *x = iota3(b);
    Dim *three = dim_const(g, 3), *two = dim_const(g, 2);
    Node *i = g_iota(g, 2, (Dim *[]){ two, three }, 1);
    expect_i64(bench_run(b, i), 6, (int64_t[]){ 0, 1, 2, 0, 1, 2 });
    expect_i64(bench_run(b, g_dims(g, 1, 3, x->dims)), 3, (int64_t[]){ 2, 3, 4 });
    expect_f32(bench_run(b, x), 24, b->in[0].data);
    expect_i64(bench_run(b, g_ints(g, 3, (int64_t[]){ 5, -6, 7 })), 3, (int64_t[]){ 5, -6, 7 });
    /* rank 0 and no elements */
    Node *s = bench_input(b, DT_f32, 0, NULL, (float[]){ 3 });
    expect_f32(bench_run(b, g2(g, OP_mul, s, s)), 1, (float[]){ 9 });
    Node *none = bench_input(b, DT_f32, 2, (int64_t[]){ 0, 5 }, NULL);
    expect_f32(bench_run(b, g1(g, OP_neg, none)), 0, NULL);
    Node *joined = g_join(g, 3, (Node *[]){ i, g2(g, OP_add, i, i), i }, 1);
    expect_i64(bench_run(b, joined), 18, (int64_t[]){ 0, 1, 2, 0, 2, 4, 0, 1, 2, 0, 1, 2, 0, 2, 4, 0, 1, 2 });
    joined = g_join(g, 2, (Node *[]){ i, g1(g, OP_neg, i) }, 0);
    expect_i64(bench_run(b, joined), 12, (int64_t[]){ 0, 1, 2, 0, 1, 2, 0, -1, -2, 0, -1, -2 });
}

TEST(random)
{
    Graph *g = b->g;
    Node *key = g_int(g, DT_u64, 42),
         *r = g_random(g, key, 2, (Dim *[]){ dim_const(g, 300), dim_const(g, 7) });
    Tensor t = bench_run(b, r);
    uint64_t first = ((uint64_t *)t.data)[0];
    int bits[64] = { 0 };
    Tensor again = bench_run(b, g2(g, OP_xor, r, g_int(g, DT_u64, 0)));
    assert_memory_equal(t.data, again.data, tensor_bytes(&t));
    for (int k = 0; k < 2100; k++) {
        uint64_t w = ((uint64_t *)t.data)[k];
        for (int j = 0; j < 64; j++)
            bits[j] += w >> j & 1;
        assert_true(k == 0 || w != first);
    }
    for (int j = 0; j < 64; j++)
        assert_true(bits[j] > 850 && bits[j] < 1250);           /* 1050 +- 9 deviations */
    int flips = 0;
    for (int k = 0; k < 64; k++)
        flips += __builtin_popcountll(random_word(1, 5) ^ random_word(1, 5 ^ (1ull << k)));
    assert_true(flips > 64 * 24 && flips < 64 * 40);
    assert_true(random_word(0, 0) != random_word(1, 0) && random_word(0, 1) != random_word(1, 0));
}

/* ---- folds and scans ----------------------------------------------------------------------------------- */
TEST(folds)
{
    Graph *g = b->g;
    enum { A = 5, B = 300, C = 7 };
    static float v[A * B * C], sum_b[A * C], sum_ac[B], max_bc[A], all[1];
    unsigned seed = 3;
    double total = 0, part;
    for (int k = 0; k < A * B * C; k++)
        total += v[k] = noise(&seed);
    all[0] = (float)total;
    for (int i = 0; i < A; i++)
        for (int k = 0; k < C; k++) {
            part = 0;
            for (int j = 0; j < B; j++)
                part += v[(i * B + j) * C + k];
            sum_b[i * C + k] = (float)part;
        }
    for (int j = 0; j < B; j++) {
        part = 0;
        for (int i = 0; i < A; i++)
            for (int k = 0; k < C; k++)
                part += v[(i * B + j) * C + k];
        sum_ac[j] = (float)part;
    }
    for (int i = 0; i < A; i++) {
        max_bc[i] = -INFINITY;
        for (int k = 0; k < B * C; k++)
            max_bc[i] = fmaxf(max_bc[i], v[i * B * C + k]);
    }
    Node *x = bench_input(b, DT_f32, 3, (int64_t[]){ A, B, C }, v);
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, x, 7, false)), 1, all);
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, x, 2, true)), A * C, sum_b);
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, x, 5, false)), B, sum_ac);
    expect_f32(bench_run(b, g_fold(g, FOLD_max, x, 6, false)), A, max_bc);
    Tensor t = bench_run(b, g_argfold(g, FOLD_argmin, x, 1, false, false));
    for (int i = 0; i < A; i++)
        for (int k = 0; k < C; k++) {
            int best = 0;
            for (int j = 1; j < B; j++)
                if (v[(i * B + j) * C + k] < v[(i * B + best) * C + k])
                    best = j;
            assert_int_equal(((int64_t *)t.data)[i * C + k], best);
        }
}

TEST(fold_specials)
{
    Graph *g = b->g;
    const float v[12] = { 1, NAN, 3, 2, 5, 5, 1, NAN, NAN, -0.0f, 0.0f, -INFINITY };
    Node *x = bench_input(b, DT_f32, 2, (int64_t[]){ 4, 3 }, v);
    expect_f32(bench_run(b, g_fold(g, FOLD_max, x, 2, false)), 4, (float[]){ NAN, 5, NAN, 0 });
    expect_f32(bench_run(b, g_fold(g, FOLD_min, x, 2, false)), 4, (float[]){ NAN, 2, NAN, -INFINITY });
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, x, 2, false)), 4, (float[]){ NAN, 12, NAN, -INFINITY });
    expect_f32(bench_run(b, g_fold(g, FOLD_prod, x, 2, false)), 4, (float[]){ NAN, 50, NAN, NAN });
    expect_i64(bench_run(b, g_argfold(g, FOLD_argmax, x, 1, false, false)), 4, (int64_t[]){ 1, 1, 1, 0 });
    expect_i64(bench_run(b, g_argfold(g, FOLD_argmax, x, 1, false, true)), 4, (int64_t[]){ 1, 2, 1, 1 });
    expect_i64(bench_run(b, g_argfold(g, FOLD_argmin, x, 1, false, false)), 4, (int64_t[]){ 1, 0, 1, 2 });
    expect_i64(bench_run(b, g_argfold(g, FOLD_argmax, x, 0, false, false)), 3, (int64_t[]){ 1, 0, 2 });
    /* nothing to fold */
    Node *none = bench_input(b, DT_f32, 2, (int64_t[]){ 2, 0 }, NULL);
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, none, 2, false)), 2, (float[]){ 0, 0 });
    expect_f32(bench_run(b, g_fold(g, FOLD_prod, none, 2, false)), 2, (float[]){ 1, 1 });
    expect_f32(bench_run(b, g_fold(g, FOLD_max, none, 2, false)), 2, (float[]){ -INFINITY, -INFINITY });
    expect_f32(bench_run(b, g_fold(g, FOLD_min, none, 2, false)), 2, (float[]){ INFINITY, INFINITY });
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, none, 1, false)), 0, NULL);
    /* u64 compares as unsigned, and integer sums wrap */
    const uint64_t u[3] = { 1, UINT64_MAX, 5 };
    Node *y = bench_input(b, DT_u64, 1, (int64_t[]){ 3 }, u);
    Tensor t = bench_run(b, g_fold(g, FOLD_max, y, 1, false));
    assert_true(*(uint64_t *)t.data == UINT64_MAX);
    t = bench_run(b, g_fold(g, FOLD_sum, y, 1, false));
    assert_true(*(uint64_t *)t.data == 5);
    expect_i64(bench_run(b, g_argfold(g, FOLD_argmax, y, 0, false, false)), 1, (int64_t[]){ 1 });
    const uint8_t flag[4] = { 0, 0, 1, 0 };
    y = bench_input(b, DT_bool, 2, (int64_t[]){ 2, 2 }, flag);
    t = bench_run(b, g_fold(g, FOLD_max, y, 2, false));
    assert_memory_equal(t.data, ((uint8_t[]){ 0, 1 }), 2);
    t = bench_run(b, g_fold(g, FOLD_min, y, 1, false));
    assert_memory_equal(t.data, ((uint8_t[]){ 0, 0 }), 2);
}

/* Every dtype: 3000 ones in a row. A narrow running sum would stop at 2048 (f16), 256 (bf16), ... */
TEST(fold_dtypes)
{
    Graph *g = b->g;
    static float ones[3000];
    for (int k = 0; k < 3000; k++)
        ones[k] = 1;
    Node *x = vec_f32(b, 3000, ones);
    for (int t = DT_none + 1; t < DT_COUNT; t++) {
        if (t == DT_bool)
            continue;
        Node *y = g_cast_sat(g, x, (DType)t, true);
        Tensor sum = bench_run(b, g_fold(g, FOLD_sum, y, 1, false)),
               max = bench_run(b, g_fold(g, FOLD_max, y, 1, false));
        Scalar got = scalar_load((DType)t, sum.data), top = scalar_load((DType)t, max.data);
        Scalar want = dtype_is_float((DType)t) ? (Scalar){ .f = 3000 } : (Scalar){ .i = 3000 };
        want = scalar_round((DType)t, want, false);
        if (dtype_is_float((DType)t)
                ? !same_float(got.f, want.f) || top.f != 1
                : got.i != want.i || top.i != scalar_round((DType)t, (Scalar){ .i = 1 }, false).i)
            fail_msg("sum or max of ones in %s", dtype_info[t].name);
    }
}

TEST(scans)
{
    Graph *g = b->g;
    enum { N = 700 };
    static float v[3 * N], want[3 * N];
    unsigned seed = 11;
    for (int i = 0; i < 3; i++) {
        double run = 0;
        for (int k = 0; k < N; k++) {
            v[i * N + k] = noise(&seed);
            run += v[i * N + k];
            want[i * N + k] = (float)run;
        }
    }
    Node *x = bench_input(b, DT_f32, 2, (int64_t[]){ 3, N }, v);
    expect_f32(bench_run(b, g_scan(g, FOLD_sum, x, 1, false, false)), 3 * N, want);
    for (int k = 0; k < N; k++) {
        float run = -INFINITY;
        for (int i = 2; i >= 0; i--) {
            want[i * N + k] = run;
            run = v[i * N + k] > run ? v[i * N + k] : run;
        }
    }
    expect_f32(bench_run(b, g_scan(g, FOLD_max, x, 0, true, true)), 3 * N, want);
    Node *y = vec_i64(b, 5, (int64_t[]){ 1, 2, 3, 4, 5 });
    expect_i64(bench_run(b, g_scan(g, FOLD_prod, y, 0, false, false)), 5, (int64_t[]){ 1, 2, 6, 24, 120 });
    expect_i64(bench_run(b, g_scan(g, FOLD_sum, y, 0, true, false)), 5, (int64_t[]){ 0, 1, 3, 6, 10 });
    expect_i64(bench_run(b, g_scan(g, FOLD_sum, y, 0, false, true)), 5, (int64_t[]){ 15, 14, 12, 9, 5 });
    Node *none = bench_input(b, DT_f32, 2, (int64_t[]){ 2, 0 }, NULL);
    expect_f32(bench_run(b, g_scan(g, FOLD_sum, none, 1, false, false)), 0, NULL);
}

/* ---- gather and scatter -------------------------------------------------------------------------------- */
TEST(gathers)
{
    Graph *g = b->g;
    Node *x = iota3(b), *at = bench_input(b, DT_i64, 1, (int64_t[]){ 4 }, (int64_t[]){ 2, -1, 0, -3 });
    float want[32];
    int n = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++)
                want[n++] = (float)(i * 12 + (int[]){ 2, 2, 0, 0 }[j] * 4 + k);
    expect_f32(bench_run(b, g_gather_axis(g, x, at, 1)), n, want);
    /* below a predicate: lanes outside are not looked at */
    Dim *two = dim_const(g, 2), *four = dim_const(g, 4), *i = dim_idx(g, 0, four),
        *idx[1] = { dim_idx(g, DIM_OPERAND, two) };
    Node *wild = bench_input(b, DT_i64, 1, (int64_t[]){ 4 }, (int64_t[]){ 1, 0, 1000, -1000 }),
         *y = vec_f32(b, 2, (float[]){ 10, 20 });
    View v = { .nidx = 1, .idx = idx, .npred = 1, .pred = &(Pred){ i, two }, .fill = { .f = -1 } };
    Node *z = graph_add(g, &(Node){ .op = OP_gather,
                                    .dt = DT_f32,
                                    .rank = 1,
                                    .dims = &four,
                                    .nin = 2,
                                    .in = (Node *[]){ y, wild },
                                    .view = v });
    expect_f32(bench_run(b, z), 4, (float[]){ 20, 10, -1, -1 });
}

static void gather_outside(Ctx *cx, void *arg)
{
    Bench *b = arg;
    bench_open(b, cx);
    Node *x = vec_f32(b, 3, (float[]){ 1, 2, 3 }), *at = vec_i64(b, 2, (int64_t[]){ 0, 7 });
    graph_origin(b->g, "g1", "Gather", "");
    Node *y = g_gather_axis(b->g, x, at, 0), *out = g2(b->g, OP_mul, y, g_fold(b->g, FOLD_sum, y, 1, true));
    bench_run(b, out);
}

static void scatter_outside(Ctx *cx, void *arg)
{
    Bench *b = arg;
    bench_open(b, cx);
    Node *x = vec_f32(b, 3, (float[]){ 1, 2, 3 }), *up = vec_f32(b, 2, (float[]){ 1, 1 }),
         *at = vec_i64(b, 2, (int64_t[]){ 0, -4 });
    graph_origin(b->g, "s1", "ScatterElements", "");
    Dim *idx[1] = { dim_idx(b->g, DIM_OPERAND, x->dims[0]) };
    Node *y = g_scatter(b->g, x, up, 1, &at, &(View){ .nidx = 1, .idx = idx }, COMBINE_add);
    bench_run(b, g1(b->g, OP_neg, y));
}

static void test_outside(void **state)
{
    (void)state;
    Bench b;
    Ctx cx;
    ctx_init(&cx);
    Note note;
    note_push(&cx, &note, "model", "net.onnx", "");
    assert_int_equal(guard_call(&cx, gather_outside, &b), E_INVALID);
    if (!strstr(cx.text, "Gather 'g1': index 7 is outside axis 0 of size 3") ||
        strstr(strstr(cx.text, "net.onnx") + 1, "net.onnx"))
        fail_msg("the message is: %s", cx.text);
    assert_ptr_equal(cx.notes, &note);
    arena_free(b.a);
    assert_int_equal(guard_call(&cx, scatter_outside, &b), E_INVALID);
    if (!strstr(cx.text, "ScatterElements 's1': index -4 is outside axis 0 of size 3"))
        fail_msg("the message is: %s", cx.text);
    arena_free(b.a);
}

TEST(scatters)
{
    Graph *g = b->g;
    Node *x = vec_f32(b, 4, (float[]){ 1, 2, 3, 4 });
    Node *up = vec_f32(b, 5, (float[]){ 10, 20, 30, 40, NAN }),
         *at = vec_i64(b, 5, (int64_t[]){ 2, 0, 2, 2, 3 });
    Dim *idx[1] = { dim_idx(g, DIM_OPERAND, x->dims[0]) };
    View v = { .nidx = 1, .idx = idx };
    static const float want[COMBINE_COUNT][4] = {
        [COMBINE_set] = { 20, 2, 40, NAN },    [COMBINE_add] = { 21, 2, 83, NAN },
        [COMBINE_mul] = { 20, 2, 36000, NAN }, [COMBINE_max] = { 20, 2, 40, NAN },
        [COMBINE_min] = { 1, 2, 3, NAN },
    };
    for (int how = 0; how < COMBINE_COUNT; how++) {
        Node *y = g_scatter(g, x, up, 1, &at, &v, (Combine)how);
        expect_f32(bench_run(b, y), 4, want[how]);
        expect_f32(bench_run(b, g_slice(g, g1(g, OP_neg, y), 0, dim_const(g, 0), dim_const(g, 3), 1)),
                   3, /* stored, not a result */
                   (float[]){ -want[how][0], -want[how][1], -want[how][2] });
    }
    assert_true(((float *)b->in[0].data)[2] == 3);              /* the source is not written to */
    /* rows, in order: later ones overwrite */
    static const float base[6] = { 0 }, rows[6] = { 1, 2, 3, 4, 5, 6 };
    Node *m = bench_input(b, DT_f32, 2, (int64_t[]){ 3, 2 }, base),
         *r = bench_input(b, DT_f32, 2, (int64_t[]){ 3, 2 }, rows);
    Node *which = bench_input(b, DT_i64, 2, (int64_t[]){ 3, 2 }, (int64_t[]){ 1, 1, 2, 2, 1, 1 });
    Dim *to[2] = { dim_idx(g, DIM_OPERAND, m->dims[0]), dim_idx(g, 1, r->dims[1]) };
    expect_f32(bench_run(b, g_scatter(g, m, r, 1, &which, &(View){ .nidx = 2, .idx = to }, COMBINE_set)), 6,
               (float[]){ 0, 0, 5, 6, 3, 4 });
    Node *i = vec_i64(b, 2, (int64_t[]){ INT64_MAX, 5 }), *one = vec_i64(b, 1, (int64_t[]){ 1 });
    Node *zero = vec_i64(b, 1, (int64_t[]){ 0 });
    Dim *iidx[1] = { dim_idx(g, DIM_OPERAND, i->dims[0]) };
    expect_i64(bench_run(b, g_scatter(g, i, one, 1, &zero, &(View){ .nidx = 1, .idx = iidx }, COMBINE_add)),
               2, (int64_t[]){ INT64_MIN, 5 });
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static void call_reverse(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)cx, (void)a, (void)call;
    int64_t n = in[0].dims[0];
    for (int64_t k = 0; k < n; k++)
        ((float *)out[0].data)[k] = ((float *)in[0].data)[n - 1 - k];
    *(int64_t *)out[1].data = n;
}

static void call_positive(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    int64_t n = 0, size = in[0].dims[0];
    (void)call;
    for (int64_t k = 0; k < size; k++)
        n += ((float *)in[0].data)[k] > 0;
    out[0] = *tensor_new(a, cx, DT_i64, 1, &n);
    for (int64_t k = 0, to = 0; k < size; k++)
        if (((float *)in[0].data)[k] > 0)
            ((int64_t *)out[0].data)[to++] = k;
}

TEST(calls)
{
    Graph *g = b->g;
    Node *x = vec_f32(b, 4, (float[]){ 1, -2, 3, 4 }), *y = g1(g, OP_neg, x);
    static const CallDef reverse = { .name = "reverse", .dynamic = false, .eval = call_reverse },
                         positive = { .name = "positive", .dynamic = true, .eval = call_positive };
    Call call = { &reverse, 1, 2, (DType[]){ DT_f32, DT_i64 }, NULL, 0 };
    Dim *const *dims[2] = { x->dims, NULL };
    Node **part = g_call(g, &call, &y, (int[]){ 1, 0 }, dims);
    expect_f32(bench_run(b, part[0]), 4, (float[]){ -4, -3, 2, -1 });
    expect_i64(bench_run(b, part[1]), 1, (int64_t[]){ 4 });
    expect_f32(bench_run(b, g2(g, OP_add, part[0], x)), 4, (float[]){ -3, -5, 5, 3 });
    call = (Call){ &positive, 1, 1, (DType[]){ DT_i64 }, NULL, 0 };
    Dim *three[1] = { dim_const(g, 3) };
    dims[0] = three;
    part = g_call(g, &call, &x, (int[]){ 1 }, dims);
    expect_i64(bench_run(b, g2(g, OP_add, part[0], part[0])), 3, (int64_t[]){ 0, 4, 6 });
}

/* ---- larger graphs ------------------------------------------------------------------------------------- */
TEST(matmul_softmax)
{
    Graph *g = b->g;
    enum { M = 37, K = 300, N = 45 };
    static float x[M * K], y[K * N], want[M * N];
    unsigned seed = 5;
    for (int k = 0; k < M * K; k++)
        x[k] = noise(&seed);
    for (int k = 0; k < K * N; k++)
        y[k] = noise(&seed);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double s = 0;
            for (int k = 0; k < K; k++)
                s += (double)(x[i * K + k] * y[k * N + j]);
            want[i * N + j] = (float)s;
        }
    Node *a = bench_input(b, DT_f32, 2, (int64_t[]){ M, K }, x),
         *c = bench_input(b, DT_f32, 2, (int64_t[]){ K, N }, y);
    Node *p = g_matmul(g, a, c);
    expect_f32(bench_run(b, p), M * N, want);
    Tensor t = bench_run(b, g_softmax(g, p, 2, false));
    for (int i = 0; i < M; i++) {
        double max = -INFINITY, sum = 0;
        for (int j = 0; j < N; j++)
            max = fmax(max, want[i * N + j]);
        for (int j = 0; j < N; j++)
            sum += exp(want[i * N + j] - max);
        for (int j = 0; j < N; j++)
            assert_true(fabs(((float *)t.data)[i * N + j] - exp(want[i * N + j] - max) / sum) < 1e-6);
    }
}

/* conv2d, stride 2, padding 1, as a fold of a product of views: nothing of the size of the product may be
 * stored. */
TEST(convolution)
{
    Graph *g = b->g;
    enum { CI = 3, H = 20, W = 23, CO = 4, KH = 3, KW = 3, OH = 10, OW = 12 };
    static float x[CI * H * W], w[CO * CI * KH * KW], want[CO * OH * OW];
    unsigned seed = 9;
    for (int k = 0; k < CI * H * W; k++)
        x[k] = noise(&seed);
    for (int k = 0; k < CO * CI * KH * KW; k++)
        w[k] = noise(&seed);
    for (int o = 0; o < CO; o++)
        for (int i = 0; i < OH; i++)
            for (int j = 0; j < OW; j++) {
                double s = 0;
                for (int c = 0; c < CI; c++)
                    for (int p = 0; p < KH; p++)
                        for (int q = 0; q < KW; q++) {
                            int r = i * 2 + p - 1, t = j * 2 + q - 1;
                            float in = r < 0 || r >= H || t < 0 || t >= W ? 0 : x[(c * H + r) * W + t];
                            s += (double)(in * w[((o * CI + c) * KH + p) * KW + q]);
                        }
                want[(o * OH + i) * OW + j] = (float)s;
            }
    Node *a = bench_input(b, DT_f32, 3, (int64_t[]){ CI, H, W }, x),
         *f = bench_input(b, DT_f32, 4, (int64_t[]){ CO, CI, KH, KW }, w);
    Dim *dims[6], *v[6];
    for (int k = 0; k < 6; k++) {
        dims[k] = dim_const(g, (int[]){ CO, OH, OW, CI, KH, KW }[k]);
        v[k] = dim_idx(g, k, dims[k]);
    }
    Dim *r = dim_addc(g, dim_add(g, dim_mulc(g, v[1], 2), v[4]), -1),
        *t = dim_addc(g, dim_add(g, dim_mulc(g, v[2], 2), v[5]), -1);
    Dim *xi[3] = { v[3], r, t }, *wi[4] = { v[0], v[3], v[4], v[5] };
    Pred pred[2] = { { r, dim_const(g, H) }, { t, dim_const(g, W) } };
    Node *win = g_view(g, a, 6, dims, &(View){ .nidx = 3, .idx = xi, .npred = 2, .pred = pred });
    Node *ker = g_view(g, f, 6, dims, &(View){ .nidx = 4, .idx = wi });
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, g2(g, OP_mul, win, ker), 8 + 16 + 32, false)), CO * OH * OW,
               want);
}

/* A product of 4,000 x 4,000 x 4,000 elements is never stored: 256 GB would be needed. Only a few of its
 * sums are taken. */
TEST(on_demand)
{
    Graph *g = b->g;
    enum { N = 4000 };
    static float x[N];
    for (int k = 0; k < N; k++)
        x[k] = (float)(k % 7);
    Node *v = vec_f32(b, N, x);
    Dim *n = dim_const(g, N), *dims[3] = { n, n, n }, *i[3];
    for (int k = 0; k < 3; k++)
        i[k] = dim_idx(g, k, n);
    Node *p = g_view(g, v, 3, dims, &(View){ .nidx = 1, .idx = &i[0] }),
         *q = g_view(g, v, 3, dims, &(View){ .nidx = 1, .idx = &i[2] });
    Node *product = g2(g, OP_mul, p, q), *twice = g2(g, OP_add, product, g2(g, OP_mul, product, product));
    for (int k = 0; k < 2; k++)
        twice = g_slice(g, twice, k, dim_const(g, 3), dim_const(g, 1), 1);
    float want = 0;
    for (int k = 0; k < N; k++)
        want += x[3] * x[k] + x[3] * x[k] * x[3] * x[k];
    expect_f32(bench_run(b, g_fold(g, FOLD_sum, twice, 7, false)), 1, &want);
}

TEST(long_chain)
{
    Graph *g = b->g;
    Node *x = vec_i64(b, 3, (int64_t[]){ 0, 10, 20 }), *y = x;
    for (int k = 0; k < 100000; k++) /* by turns, so that nothing cancels while the graph is built */
        y = k % 2 ? g2(g, OP_add, y, g_int(g, DT_i64, 1)) : g2(g, OP_xor, y, g_int(g, DT_i64, 0x100));
    int64_t want[3] = { 0, 10, 20 };
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 100000; k++)
            want[i] = k % 2 ? want[i] + 1 : want[i] ^ 0x100;
    expect_i64(bench_run(b, y), 3, want);
    for (int k = 0; k < 40; k++)                /* 2^40 paths */
        y = g2(g, OP_xor, g2(g, OP_add, y, y), y);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 40; k++)
            want[i] = (int64_t)((uint64_t)want[i] * 2) ^ want[i];
    expect_i64(bench_run(b, y), 3, want);
}

/* Two results, an unaligned and strided input, symbols in the shapes. */
TEST(symbols)
{
    Graph *g = b->g;
    static char bytes[4 * 64 + 1];
    Tensor *t = &b->in[b->nin++];
    tensor_init(g->cx, t, DT_f32, 2, (int64_t[]){ 3, 4 });
    t->strides[0] = 1, t->strides[1] = 3;
    for (int k = 0; k < 12; k++) {
        float v = (float)k;
        memcpy(bytes + 1 + 4 * k, &v, 4);
    }
    t->data = bytes + 1;
    Node *x = graph_input(g, "x", DT_f32, 2, (int64_t[]){ -1, -1 }, (const char *[]){ "N", "M" }, t);
    assert_int_equal(g->sym.n, 2);
    Node *outs[3] = { g_fold(g, FOLD_sum, x, 2, false), g_dims(g, 1, 2, x->dims), x };
    Tensor r[3];
    eval_nodes(g->cx, b->a, g, b->in, (int64_t[]){ 3, 4 }, 3, outs, r);
    expect_f32(r[0], 3, (float[]){ 0 + 3 + 6 + 9, 1 + 4 + 7 + 10, 2 + 5 + 8 + 11 });
    expect_i64(r[1], 2, (int64_t[]){ 3, 4 });
    expect_f32(r[2], 12, (float[]){ 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11 });
    tensor_init(g->cx, t, DT_f32, 2, (int64_t[]){ 1, 2 });      /* other sizes, same graph */
    t->data = (float[]){ 5, 6 };
    eval_nodes(g->cx, b->a, g, b->in, (int64_t[]){ 1, 2 }, 3, outs, r);
    expect_f32(r[0], 1, (float[]){ 11 });
}

/* What is given is taken as it is, and nothing below it is looked at: x has no data. */
TEST(given)
{
    Graph *g = b->g;
    Tensor *t = &b->in[b->nin++];
    tensor_init(g->cx, t, DT_f32, 2, (int64_t[]){ 2, 3 });
    Node *x = graph_input(g, "x", DT_f32, 2, (int64_t[]){ 2, 3 }, NULL, t);
    Node *sum = g_fold(g, FOLD_sum, g1(g, OP_exp, x), 2, true), *turned = g_transpose(g, x, (int[]){ 1, 0 });
    Node *outs[4] = { g2(g, OP_mul, sum, g_scalar(g, DT_f32, 10)), g_fold(g, FOLD_max, g2(g, OP_add, turned, turned), 1, false),
                      g_join(g, 2, (Node *[]){ sum, sum }, 1), turned };
    Tensor given_sum, given_turned, r[4];
    tensor_init(g->cx, &given_sum, DT_f32, 2, (int64_t[]){ 2, 1 });
    tensor_init(g->cx, &given_turned, DT_f32, 2, (int64_t[]){ 3, 2 });
    given_sum.data = (float[]){ 5, 7 };
    given_turned.data = (float[]){ 1, 2, 3, 4, 5, 6 };
    const Tensor **given = NEWS(b->a, const Tensor *, g->node.n);
    given[sum->id] = &given_sum;
    given[turned->id] = &given_turned;
    eval_given(g->cx, b->a, g, NULL, given, NULL, 4, outs, r, 0);
    expect_f32(r[0], 2, (float[]){ 50, 70 });
    expect_f32(r[1], 2, (float[]){ 10, 12 });
    expect_f32(r[2], 4, (float[]){ 5, 5, 7, 7 });
    expect_f32(r[3], 6, (float[]){ 1, 2, 3, 4, 5, 6 });
}

/* Trials, in which sums err: far apart where a sum of float32 hides what is added and the rest of it is looked at, close together elsewhere. */
TEST(trials)
{
    enum { N = 1000 };
    Graph *g = b->g;
    static float big[N], plain[N];
    for (int k = 0; k < N; k++) { big[k] = k ? 1 : 0x1p24f; plain[k] = (float)((k * 37) % 101) / 50 - 1; }
    Node *x = bench_input(b, DT_f32, 1, (int64_t[]){ N }, big), *y = bench_input(b, DT_f32, 1, (int64_t[]){ N }, plain);
    Node *outs[3] = { g2(g, OP_sub, g_fold(g, FOLD_sum, x, 1, false), g_scalar(g, DT_f32, 0x1p24)), g_fold(g, FOLD_sum, g2(g, OP_mul, y, y), 1, false), g1(g, OP_exp, y) };
    const Tensor **none = NEWS(b->a, const Tensor *, g->node.n);
    Tensor want[3], r[3];
    double least = INFINITY, most = 0, off = 0, exps = 0;
    eval_given(g->cx, b->a, g, b->in, none, NULL, 3, outs, want, 0);
    expect_f32(want[0], 1, (float[]){ N });          /* 999, rounded to even */
    const double sum = (double)((float *)want[1].data)[0];
    for (unsigned trial = 2; trial < 18; trial++) {
        eval_given(g->cx, b->a, g, b->in, none, NULL, 3, outs, r, trial);
        least = fmin(least, (double)((float *)r[0].data)[0]);
        most = fmax(most, (double)((float *)r[0].data)[0]);
        off = fmax(off, fabs((double)((float *)r[1].data)[0] - sum));
        for (int k = 0; k < N; k++) exps = fmax(exps, fabs((double)(((float *)r[2].data)[k] / ((float *)want[2].data)[k]) - 1));
    }
    assert_true(least <= 0 && most > 900 && most < 1100);
    assert_true(off > 0 && off < 1e-5 * sum);
    assert_true(exps > 0x1p-23 && exps < 0x1p-21);
}

TEST(text)
{
    Graph *g = b->g;
    Node *x = iota3(b);
    graph_origin(g, "sum_1", "ReduceSum", "");
    Node *y = g_fold(g, FOLD_sum, x, 2, false);
    Text t = { .arena = b->a }, all = { .arena = b->a }, dot = { .arena = b->a };
    node_print(&t, g, y);
    char want[80];
    snprintf(want, sizeof want, "%%%d f32[2,4] = fold sum axes 1 %%%d   ; ReduceSum sum_1", y->id, x->id);
    assert_string_equal(t.at, want);
    graph_output(g, "out",
                 g_pad(g, y, (Dim *[]){ dim_const(g, 1), dim_const(g, 0) },
                       (Dim *[]){ dim_const(g, 0), dim_const(g, 0) }, (Scalar){ .f = 2.5 }));
    graph_print(&all, g);
    assert_non_null(strstr(all.at, want));
    assert_non_null(strstr(all.at, "input 0 'x1'"));
    assert_non_null(strstr(all.at, "else 2.5"));
    assert_non_null(strstr(all.at, "output 'out'"));
    graph_dot(&dot, g, NULL);
    assert_non_null(strstr(dot.at, "digraph"));
    assert_non_null(strstr(dot.at, "->"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views), cmocka_unit_test(test_masks), cmocka_unit_test(test_leaves), cmocka_unit_test(test_random),
        cmocka_unit_test(test_folds), cmocka_unit_test(test_fold_specials), cmocka_unit_test(test_fold_dtypes), cmocka_unit_test(test_scans),
        cmocka_unit_test(test_gathers), cmocka_unit_test(test_outside), cmocka_unit_test(test_scatters), cmocka_unit_test(test_calls),
        cmocka_unit_test(test_matmul_softmax), cmocka_unit_test(test_convolution), cmocka_unit_test(test_on_demand), cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_symbols), cmocka_unit_test(test_given), cmocka_unit_test(test_trials), cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
