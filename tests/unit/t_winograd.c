/* Winograd's convolutions against plain loops in double: both tile sizes, edges, sizes that are no multiple of a tile, batches, what follows the sum, sizes that only a run gives, and
 * numbers that are not finite. The bound, for numbers within -1 and 1: the epsilon of float32 for each product of the direct sum and one more, times 8 for tiles of 4 x 4 and 0.5 for those of 2 x 2. Seen:
 * up to 4.3 and 0.29, and 0.41 of direct sums in float32. */
#include "graphs.h"
#include "fuse/fuse.h"

typedef struct Case { int64_t n, c, m, h, w, top, left, bottom, right; } Case;
typedef enum After { AFTER_nothing, AFTER_bias_relu, AFTER_residual, AFTER_silu, AFTER_two } After;
enum { AFTERS = AFTER_two + 1 };
static double bound(int tile) { return tile == 4 ? 8 : 0.5; }

typedef struct Net { Case z; After after; int tile, made; bool open, nan; const char *allow; int *kernels; } Net;      /* kernels: how many it became, if not NULL */
typedef struct NetItem { Bench *b; const Net *net; } NetItem;

static Node *weights(Bench *b, int rank, const int64_t *dims)
{
    Tensor *t = tensor_new(b->a, b->cx, DT_f32, rank, dims);
    for (int64_t j = 0; j < tensor_count(t); j++) ((float *)t->data)[j] = (float)((random_word(500 + (uint64_t)rank, (uint64_t)j) >> 11) % 2001) / 1000 - 1;
    return g_const(b->g, t);
}

/* x [N,C,H,W] by w [M,C,3,3] with a padding of zeros. */
static Node *conv_of(Bench *b, const Case *z, Node *x, Node *w)
{
    Graph *g = b->g;
    Dim *three = dim_const(g, 3), *i[7], *dims[7] = { x->dims[0], w->dims[0], dim_addc(g, x->dims[2], z->top + z->bottom - 2), dim_addc(g, x->dims[3], z->left + z->right - 2), x->dims[1], three, three };
    for (int k = 0; k < 7; k++) i[k] = dim_idx(g, k, dims[k]);
    Dim *h = dim_addc(g, dim_add(g, i[2], i[5]), -z->top), *v = dim_addc(g, dim_add(g, i[3], i[6]), -z->left), *xi[4] = { i[0], i[4], h, v }, *wi[4] = { i[1], i[4], i[5], i[6] };
    Pred pred[2] = { { h, x->dims[2] }, { v, x->dims[3] } };
    Node *px = g_view(g, x, 7, dims, &(View){ .nidx = 4, .idx = xi, .npred = 2, .pred = pred }), *pw = g_view(g, w, 7, dims, &(View){ .nidx = 4, .idx = wi });
    return g_fold(g, FOLD_sum, g2(g, OP_mul, px, pw), axis_bit(4) | axis_bit(5) | axis_bit(6), false);
}

static double direct(const Case *z, const float *x, const float *w, int64_t n, int64_t m, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t c = 0; c < z->c; c++)
        for (int64_t r = 0; r < 3; r++)
            for (int64_t s = 0; s < 3; s++) {
                int64_t at = i + r - z->top, along = j + s - z->left;
                if (at < 0 || at >= z->h || along < 0 || along >= z->w) continue;
                sum += (double)x[((n * z->c + c) * z->h + at) * z->w + along] * w[((m * z->c + c) * 3 + r) * 3 + s];
            }
    return sum;
}

static void net_run(Ctx *cx, void *arg)
{
    const NetItem *it = arg;
    const Net *net = it->net;
    const Case *z = &net->z;
    Bench *b = it->b;
    b->a = arena_new(cx);
    Graph *g = b->g = graph_new(cx, b->a);
    b->nin = 0;
    int64_t oh = z->h + z->top + z->bottom - 2, ow = z->w + z->left + z->right - 2;
    static const char *const sym[4] = { "N", NULL, "H", "W" };
    next(b);
    Node *x = net->open ? input_of(b, DT_f32, DIMS(z->n, z->c, z->h, z->w), sym) : input(b, DT_f32, DIMS(z->n, z->c, z->h, z->w));
    float *data = b->in[0].data;
    for (int64_t j = 0; j < tensor_count(&b->in[0]); j++) data[j] /= 2;
    int64_t spot = net->nan ? (z->h / 2) * z->w + z->w / 2 : -1;
    if (spot >= 0) data[spot] = NAN;
    Node *w = weights(b, DIMS(z->m, z->c, 3, 3)), *bias = weights(b, DIMS(z->m, 1, 1)), *y = conv_of(b, z, x, w), *rest = NULL;
    if (net->after == AFTER_residual) {
        next(b);
        rest = input(b, DT_f32, DIMS(z->n, z->m, oh, ow));
    }
    next(b);
    if (net->after != AFTER_nothing) y = g2(g, OP_add, y, bias);
    if (rest) y = g2(g, OP_add, rest, y);
    if (net->after == AFTER_bias_relu || rest) y = g2(g, OP_max, y, g_scalar(g, DT_f32, 0));
    if (net->after == AFTER_silu) y = g2(g, OP_mul, y, g1(g, OP_sigmoid, y));
    if (net->after == AFTER_two) output(b, g1(g, OP_abs, y));
    output(b, y);
    if (net->tile) {
        Refusals why = { 0 };
        assert_int_equal(winograd_choose(cx, b->a, g, net->tile, &why), net->made);
        assert_int_equal(why.n, 0);
    }
    graph_check(cx, g);
    const char *allow = cx->opt.allow;
    cx->opt.allow = net->allow;
    Segment *s = segment_new(cx, &b->dev->target, g, &(ProgramOptions){ .fuse = true });
    cx->opt.allow = allow;
    int64_t syms[4] = { 0 };
    const char *no = "";
    assert_true(segment_serves(cx, b->a, s, b->in, syms, &no));
    Tensor got[2] = { { 0 } };
    segment_run(cx, b->a, s, b->in, syms, got, NULL, NULL);
    if (net->kernels) *net->kernels = segment_kernels(s);
    const double may = bound(net->tile ? net->tile : 4) * 0x1p-23 * (double)(9 * z->c + 1);
    const float *wd = w->tensor->data, *bd = bias->tensor->data;
    for (int64_t n = 0, at = 0; n < z->n; n++)
        for (int64_t m = 0; m < z->m; m++)
            for (int64_t i = 0; i < oh; i++)
                for (int64_t j = 0; j < ow; j++, at++) {
                    double v = direct(z, data, wd, n, m, i, j);
                    if (net->after != AFTER_nothing) v += bd[m];
                    if (rest) v += ((const float *)b->in[1].data)[at];
                    if (net->after == AFTER_bias_relu || rest) v = isnan(v) || v > 0 ? v : 0;
                    if (net->after == AFTER_silu) v = v / (1 + exp(-v));
                    for (int out = 0; out < g->output.n; out++) {
                        double want = net->after == AFTER_two && out == 0 ? fabs(v) : v, is = ((const float *)got[out].data)[at];
                        if (isnan(want)) { if (!isnan(is)) fail_msg("element %lld is %.9g, wanted NaN", (long long)at, is); continue; }
                        bool beside = net->nan && n == 0 && llabs(i + 1 - z->top - z->h / 2) < 6 && llabs(j + 1 - z->left - z->w / 2) < 6;       /* may be in one tile with it */
                        if (beside) continue;
                        if (!(fabs(is - want) <= may)) fail_msg("tile %d, %lldx%lld, after %d: element %lld is %.9g, wanted %.9g", net->tile, (long long)z->h, (long long)z->w, net->after, (long long)at, is, want);
                    }
                }
    segment_free(s);
    arena_free(b->a);
}

static void net_check(void **state, const Net *net)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    NetItem it = { &b, net };
    if (guard_call(&d->cx, net_run, &it) != E_OK) fail_msg("%s", d->cx.text);
}

static const Case cases[] = {
    { 1, 5, 4, 8, 8, 1, 1, 1, 1 }, { 1, 3, 17, 7, 13, 1, 1, 1, 1 }, { 2, 16, 8, 10, 6, 0, 0, 0, 0 }, { 3, 2, 2, 5, 4, 2, 0, 1, 1 }, { 2, 20, 33, 2, 3, 1, 1, 1, 1 },
};

static void test_values(void **state)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int tile = 2; tile <= 4; tile += 2) net_check(state, &(Net){ .z = cases[i], .after = (After)(i % AFTERS), .tile = tile, .made = 1 });
}

static void test_what_follows(void **state)
{
    for (int after = 0; after < AFTERS; after++)
        net_check(state, &(Net){ .z = { 2, 6, 18, 9, 11, 1, 1, 1, 1 }, .after = (After)after, .tile = after % 2 ? 4 : 2, .made = 1 });
}

static void test_sizes_of_a_run(void **state)
{
    for (int tile = 2; tile <= 4; tile += 2) net_check(state, &(Net){ .z = { 2, 6, 18, 9, 11, 1, 1, 1, 1 }, .after = AFTER_bias_relu, .tile = tile, .made = 1, .open = true });
}

/* A number that is not finite reaches the results of its tiles, all those that the direct sum gives it to, and no others. */
static void test_not_finite(void **state)
{
    for (int tile = 2; tile <= 4; tile += 2) net_check(state, &(Net){ .z = { 2, 3, 5, 24, 24, 1, 1, 1, 1 }, .tile = tile, .made = 1, .nan = true });
}

/* With leave only, and where it pays: many channels, not few. */
static void test_chosen(void **state)
{
    const char *const leave[] = { NULL, "finite,reassoc,wide", "winograd" };
    int many[3], few[3];
    if (((Shared *)*state)->target.vectors.lanes < 2) return;
    for (int i = 0; i < 3; i++) {
        net_check(state, &(Net){ .z = { 1, 64, 64, 26, 27, 1, 1, 1, 1 }, .after = AFTER_residual, .allow = leave[i], .kernels = &many[i] });
        net_check(state, &(Net){ .z = { 1, 2, 3, 26, 27, 1, 1, 1, 1 }, .after = AFTER_bias_relu, .allow = leave[i], .kernels = &few[i] });
    }
    assert_int_equal(many[1], many[0]);
    assert_true(many[2] > many[0] + 2);
    assert_int_equal(few[2], few[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_values), cmocka_unit_test(test_what_follows), cmocka_unit_test(test_sizes_of_a_run), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_chosen) };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
