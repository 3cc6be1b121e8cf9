/* Cascades of reductions in one pass: attention of many forms, sums over pairs, what must not be streamed. Each graph runs fused, unfused and by the
 * interpreter; the number of fused kernels says whether it was streamed. Sizes are no multiples of tiles and blocks. */
#include "graphs.h"
#include <fenv.h>

typedef struct Sizes { int64_t b, h, m, n, d, e; } Sizes;    /* batch, heads, rows, steps, length of a key and of a value */
static const Sizes usual = { 2, 2, 77, 150, 20, 13 };

static Node *dims_of(Bench *b, Sizes z, bool values, int which)
{
    return input(b, DT_f32, 4, which == 0 ? (int64_t[]){ z.b, z.h, z.m, z.d } : (int64_t[]){ z.b, z.h, z.n, values ? z.e : z.d });
}

static Node *scores_of(Bench *b, Node *q, Node *k)
{
    Node *s = g_matmul(b->g, q, g_transpose(b->g, k, (int[]){ 0, 1, 3, 2 }));
    next(b);
    return g2(b->g, OP_mul, s, g_scalar(b->g, DT_f32, 0.25));
}

static Node *weighted(Bench *b, Node *s, Node *v)
{
    next(b);
    Node *w = g_softmax(b->g, s, axis_bit(s->rank - 1), false);
    next(b);
    return g_matmul(b->g, w, v);
}

/* Rows and steps as i64, in the shape of the scores. */
static Node *place_of(Bench *b, const Node *s, int axis) { return g_iota(b->g, s->rank, s->dims, axis); }
static Node *fill_of(Bench *b, double v) { return g_scalar(b->g, DT_f32, v); }
static Node *count_of(Bench *b, int64_t v) { return g_int(b->g, DT_i64, v); }

typedef Node *(*Mod)(Bench *b, Node *s);
static void attention_of(Bench *b, Sizes z, Mod mod)
{
    Node *q = dims_of(b, z, false, 0), *k = dims_of(b, z, false, 1), *v = dims_of(b, z, true, 1);
    next(b);
    Node *s = scores_of(b, q, k);
    next(b);
    if (mod) s = mod(b, s);
    output(b, weighted(b, s, v));
}

#define ATTENTION(name, sizes, kernels, ...) \
    static Node *name##_mod(Bench *b, Node *s) { __VA_ARGS__ } \
    static void name##_graph(Bench *b) { attention_of(b, sizes, name##_mod); } \
    static void name(void **state) { check(state, name##_graph, 2e-5, kernels); }

ATTENTION(attention_plain, usual, 1, (void)b; return s;)
ATTENTION(attention_one_block, ((Sizes){ 1, 3, 64, 64, 64, 64 }), 1, (void)b; return s;)
ATTENTION(attention_long, ((Sizes){ 1, 1, 33, 700, 8, 5 }), 1, (void)b; return s;)
ATTENTION(attention_bias, usual, 1, return g2(b->g, OP_add, s, input(b, DT_f32, DIMS(1, 2, 77, 150)));)
ATTENTION(attention_bias_of_steps, usual, 1, return g2(b->g, OP_add, s, input(b, DT_f32, DIMS(2, 1, 1, 150)));)
ATTENTION(attention_bool_mask, usual, 1, return g_where(b->g, input(b, DT_bool, DIMS(2, 1, 77, 150)), s, fill_of(b, -1e4));)
ATTENTION(attention_causal, usual, 1, return g_where(b->g, g2(b->g, OP_le, place_of(b, s, 3), place_of(b, s, 2)), s, fill_of(b, -INFINITY));)
ATTENTION(attention_window, usual, 1,
    Node *i = place_of(b, s, 2); Node *j = place_of(b, s, 3);
    Node *in = g2(b->g, OP_and, g2(b->g, OP_le, j, i), g2(b->g, OP_lt, g2(b->g, OP_sub, i, j), count_of(b, 9)));
    return g_where(b->g, in, s, fill_of(b, -INFINITY));)
ATTENTION(attention_window_whole, ((Sizes){ 2, 2, 77, 60, 20, 13 }), 1,      /* whole tiles of steps, were it not for the first one */
    Node *i = place_of(b, s, 2); Node *j = place_of(b, s, 3);
    return g_where(b->g, g2(b->g, OP_le, g2(b->g, OP_sub, i, j), count_of(b, 55)), s, fill_of(b, -INFINITY));)
ATTENTION(attention_prefix, usual, 1,
    Node *i = place_of(b, s, 2); Node *j = place_of(b, s, 3);
    Node *in = g2(b->g, OP_or, g2(b->g, OP_le, j, i), g2(b->g, OP_lt, j, count_of(b, 30)));
    return g_where(b->g, in, s, fill_of(b, -INFINITY));)
ATTENTION(attention_dilated, usual, 1,
    Node *far = g2(b->g, OP_sub, place_of(b, s, 2), place_of(b, s, 3));
    return g_where(b->g, g2(b->g, OP_eq, g2(b->g, OP_mod, far, count_of(b, 4)), count_of(b, 0)), s, fill_of(b, -INFINITY));)
ATTENTION(attention_documents, usual, 1,
    Node *doc = input(b, DT_i64, DIMS(2, 1, 77, 1)); Node *of = input(b, DT_i64, DIMS(2, 1, 1, 150));
    return g_where(b->g, g2(b->g, OP_eq, doc, of), s, fill_of(b, -INFINITY));)
/* Documents one after the other: most blocks have nothing for a tile of rows. In the second form the mask says what is hidden, numbers are in no order, and a prefix
 * is seen by all. */
static void number(Bench *b, int which, int n, int long_one, int stride)
{
    for (int i = 0; i < n; i++) {
        int64_t d = (int64_t)i * stride / long_one;
        if (b->in[which].dt == DT_i64) ((int64_t *)b->in[which].data)[i] = d; else ((int32_t *)b->in[which].data)[i] = (int32_t)(d * 7 % 11);
    }
}
static const Sizes packed = { 1, 2, 210, 630, 16, 12 };
ATTENTION(attention_packed, packed, 1,
    Node *doc = input(b, DT_i64, DIMS(1, 1, 210, 1)); Node *of = input(b, DT_i64, DIMS(1, 1, 1, 630));
    number(b, 3, 210, 90, 1); number(b, 4, 630, 270, 1);
    return g_where(b->g, g2(b->g, OP_eq, doc, of), s, fill_of(b, -INFINITY));)
ATTENTION(attention_packed_prefix, packed, 1,
    Node *doc = input(b, DT_i32, DIMS(210, 1)); Node *of = input(b, DT_i32, DIMS(630));
    number(b, 3, 210, 30, 1); number(b, 4, 630, 90, 1);
    Node *other = g2(b->g, OP_or, g2(b->g, OP_lt, doc, of), g2(b->g, OP_lt, of, doc));
    Node *hidden = g2(b->g, OP_and, other, g2(b->g, OP_le, count_of(b, 5), place_of(b, s, 3)));
    return g_where(b->g, hidden, fill_of(b, -INFINITY), s);)
ATTENTION(attention_packed_order, packed, 1,
    Node *doc = input(b, DT_i64, DIMS(210, 1)); Node *of = input(b, DT_i64, DIMS(630));
    number(b, 3, 210, 30, 3); number(b, 4, 630, 30, 1);
    return g_where(b->g, g2(b->g, OP_le, of, doc), s, fill_of(b, -INFINITY));)
/* Numbers of two widths: what is past 2^31 stays large. */
ATTENTION(attention_packed_wide, packed, 0,
    Node *doc = input(b, DT_i64, DIMS(210, 1)); Node *of = input(b, DT_i32, DIMS(630));
    for (int i = 0; i < 210; i++) ((int64_t *)b->in[3].data)[i] = i / 30 + (i < 90 ? 0 : (int64_t)1 << 33);
    for (int i = 0; i < 630; i++) ((int32_t *)b->in[4].data)[i] = i < 200 ? i / 90 : 100;
    return g_where(b->g, g2(b->g, OP_le, g_cast(b->g, of, DT_i64), doc), s, fill_of(b, -INFINITY));)
ATTENTION(attention_lengths, usual, 1,
    Node *n = input(b, DT_i64, DIMS(2, 1, 1, 1));
    ((int64_t *)b->in[3].data)[0] = 40; ((int64_t *)b->in[3].data)[1] = 149;
    return g_where(b->g, g2(b->g, OP_lt, place_of(b, s, 3), n), s, fill_of(b, -INFINITY));)
ATTENTION(attention_cap, usual, 1, return g2(b->g, OP_mul, g1(b->g, OP_tanh, g2(b->g, OP_div, s, fill_of(b, 5))), fill_of(b, 5));)
ATTENTION(attention_alibi, usual, 1,
    Node *far = g_cast(b->g, g2(b->g, OP_sub, place_of(b, s, 3), place_of(b, s, 2)), DT_f32);
    return g2(b->g, OP_add, s, g2(b->g, OP_mul, far, input(b, DT_f32, DIMS(1, 2, 1, 1))));)
/* Rows without any step give what the graph says: NaN. So does a score of NaN or +inf; -inf is a weight of 0. */
ATTENTION(attention_empty_rows, usual, 1,
    return g_where(b->g, g2(b->g, OP_lt, place_of(b, s, 3), g2(b->g, OP_sub, place_of(b, s, 2), count_of(b, 10))), s, fill_of(b, -INFINITY));)
ATTENTION(attention_special, usual, 1,
    Node *m = input(b, DT_f32, DIMS(1, 1, 77, 150));
    float *x = b->in[3].data;
    for (int j = 0; j < 150; j++) { x[150 * 3 + j] = -INFINITY; if (j < 80) x[150 * 4 + j] = -INFINITY; }
    x[150 * 7 + 149] = INFINITY; x[150 * 9 + 100] = NAN; x[150 * 11] = -INFINITY; x[150 * 12 + 140] = 1e30f; x[150 * 13] = 1e30f; x[150 * 14 + 3] = -1e30f;
    return g2(b->g, OP_add, s, m);)
/* One row: lanes run along the axis. An axis that is short: the three kernels. */
static const Sizes one_row = { 2, 2, 1, 2300, 19, 13 };
ATTENTION(attention_decoding, ((Sizes){ 2, 2, 1, 300, 16, 16 }), 1, (void)b; return s;)
ATTENTION(attention_decoding_long, one_row, 1, return g2(b->g, OP_add, s, input(b, DT_f32, DIMS(2, 1, 1, 2300)));)
ATTENTION(attention_decoding_lengths, one_row, 1,
    Node *n = input(b, DT_i64, DIMS(2, 1, 1, 1));
    ((int64_t *)b->in[3].data)[0] = 0; ((int64_t *)b->in[3].data)[1] = 2149;
    return g_where(b->g, g2(b->g, OP_lt, place_of(b, s, 3), n), s, fill_of(b, -INFINITY));)
ATTENTION(attention_decoding_late, one_row, 1, return g_where(b->g, g2(b->g, OP_lt, count_of(b, 2100), place_of(b, s, 3)), s, fill_of(b, -INFINITY));)
ATTENTION(attention_decoding_documents, one_row, 1,
    Node *doc = input(b, DT_i64, DIMS(2, 1, 1, 1)); Node *of = input(b, DT_i64, DIMS(2, 1, 1, 2300));
    return g_where(b->g, g2(b->g, OP_eq, doc, of), s, fill_of(b, -INFINITY));)
ATTENTION(attention_decoding_special, one_row, 1,
    Node *m = input(b, DT_f32, DIMS(2, 2, 1, 2300));
    float *x = b->in[3].data;
    for (int j = 0; j < 2300; j++) { x[j] = -INFINITY; if (j < 2200) x[2300 + j] = -INFINITY; }
    x[2300 * 2 + 2290] = NAN; x[2300 * 3 + 7] = 1e30f;
    return g2(b->g, OP_add, s, m);)
/* So long that it is shared between threads: a cascade of each part, and the merge. The last part is not whole; some parts have nothing. */
static const Sizes parts = { 1, 2, 1, 17001, 5, 7 };
ATTENTION(parts_plain, parts, 3, (void)b; return s;)
ATTENTION(parts_lengths, ((Sizes){ 2, 1, 1, 17001, 5, 7 }), 3,
    Node *n = input(b, DT_i64, DIMS(2, 1, 1, 1));
    ((int64_t *)b->in[3].data)[0] = 4097; ((int64_t *)b->in[3].data)[1] = 16384;
    return g_where(b->g, g2(b->g, OP_lt, place_of(b, s, 3), n), s, fill_of(b, -INFINITY));)
ATTENTION(parts_late, parts, 3, return g_where(b->g, g2(b->g, OP_lt, count_of(b, 9000), place_of(b, s, 3)), g2(b->g, OP_sub, s, fill_of(b, 1000)), fill_of(b, -INFINITY));)
ATTENTION(parts_special, ((Sizes){ 1, 5, 1, 17001, 5, 7 }), 3,
    Node *m = input(b, DT_f32, DIMS(1, 5, 1, 17001));
    float *x = b->in[3].data;
    for (int j = 0; j < 17001; j++) { x[j] = -INFINITY; if (j < 12000) x[17001 + j] = -INFINITY; }
    x[17001 * 2 + 5000] = NAN; x[17001 * 3 + 12345] = 1e30f; x[17001 * 4 + 3] = -1e30f;
    return g2(b->g, OP_add, s, m);)
/* A few rows: the same, block by block for all of them; more, that do not fill a vector: in lanes. */
static const Sizes few = { 2, 2, 5, 1430, 19, 13 };
ATTENTION(attention_few, ((Sizes){ 2, 2, 3, 320, 16, 16 }), 1, (void)b; return s;)
ATTENTION(attention_few_bias, few, 1, return g2(b->g, OP_add, s, input(b, DT_f32, DIMS(2, 1, 5, 1430)));)
ATTENTION(attention_few_causal, few, 1,
    Node *last = g2(b->g, OP_add, place_of(b, s, 2), count_of(b, 1190));
    return g_where(b->g, g2(b->g, OP_le, place_of(b, s, 3), last), s, fill_of(b, -INFINITY));)
ATTENTION(attention_few_window, few, 1,
    Node *far = g2(b->g, OP_sub, g2(b->g, OP_add, place_of(b, s, 2), count_of(b, 1400)), place_of(b, s, 3));
    Node *in = g2(b->g, OP_and, g2(b->g, OP_le, count_of(b, 0), far), g2(b->g, OP_lt, far, count_of(b, 130)));
    return g_where(b->g, in, s, fill_of(b, -INFINITY));)
ATTENTION(attention_few_lengths, few, 1,
    Node *n = input(b, DT_i64, DIMS(2, 1, 5, 1));
    for (int i = 0; i < 10; i++) ((int64_t *)b->in[3].data)[i] = 159 * i;
    return g_where(b->g, g2(b->g, OP_lt, place_of(b, s, 3), n), s, fill_of(b, -INFINITY));)
ATTENTION(attention_few_documents, few, 1,
    Node *doc = input(b, DT_i64, DIMS(2, 1, 5, 1)); Node *of = input(b, DT_i64, DIMS(2, 1, 1, 1430));
    return g_where(b->g, g2(b->g, OP_eq, doc, of), s, fill_of(b, -INFINITY));)
ATTENTION(attention_few_cap, few, 1, return g2(b->g, OP_mul, g1(b->g, OP_tanh, g2(b->g, OP_div, s, fill_of(b, 5))), fill_of(b, 5));)
ATTENTION(attention_few_special, few, 1,
    Node *m = input(b, DT_f32, DIMS(1, 1, 5, 1430));
    float *x = b->in[3].data;
    for (int j = 0; j < 1430; j++) { x[j] = -INFINITY; if (j < 1000) x[1430 + j] = -INFINITY; }
    x[1430 * 2 + 1429] = NAN; x[1430 * 3 + 7] = 1e30f; x[1430 * 4 + 700] = INFINITY;
    return g2(b->g, OP_add, s, m);)
ATTENTION(attention_few_lanes, ((Sizes){ 2, 2, 11, 430, 19, 13 }), 1, return g2(b->g, OP_add, s, input(b, DT_f32, DIMS(1, 2, 11, 430)));)
ATTENTION(parts_few, ((Sizes){ 1, 2, 4, 17001, 5, 7 }), 3,
    Node *last = g2(b->g, OP_add, place_of(b, s, 2), count_of(b, 16998));
    return g_where(b->g, g2(b->g, OP_le, place_of(b, s, 3), last), s, fill_of(b, -INFINITY));)
ATTENTION(attention_short, ((Sizes){ 2, 2, 40, 8, 16, 16 }), 0, (void)b; return s;)

/* What FlashAttention returns besides: log-sum-exp of the scores, from the same folds as the weights; and these themselves. */
static Node *softmax_parts(Bench *b, Node *s, Node **most, Node **sum)
{
    uint32_t last = axis_bit(s->rank - 1);
    *most = g_fold(b->g, FOLD_max, s, last, true);
    Node *e = g1(b->g, OP_exp, g2(b->g, OP_sub, s, *most));
    *sum = g_fold(b->g, FOLD_sum, e, last, true);
    return e;
}
static void logsumexp_graph(Bench *b)
{
    Node *q = dims_of(b, usual, false, 0), *k = dims_of(b, usual, false, 1), *v = dims_of(b, usual, true, 1), *most, *sum;
    next(b);
    Node *s = scores_of(b, q, k);
    next(b);
    Node *e = softmax_parts(b, s, &most, &sum);
    output(b, g2(b->g, OP_add, most, g1(b->g, OP_log, sum)));
    output(b, most);
    output(b, g2(b->g, OP_mul, sum, sum));
    output(b, g_matmul(b->g, g2(b->g, OP_div, e, sum), v));
}
static void logsumexp(void **state) { check(state, logsumexp_graph, 2e-5, 1); }

/* The same of one row, with the entropy and a second set of values. */
static void one_row_of(Bench *b, Sizes z)
{
    Sizes other = z;
    other.e = 40;
    Node *q = dims_of(b, z, false, 0), *k = dims_of(b, z, false, 1), *v = dims_of(b, z, true, 1), *u = dims_of(b, other, true, 1), *most, *sum;
    next(b);
    Node *s = scores_of(b, q, k), *lw = g_softmax(b->g, s, axis_bit(3), true), *e = softmax_parts(b, s, &most, &sum), *w = g2(b->g, OP_div, e, sum);
    output(b, g2(b->g, OP_add, most, g1(b->g, OP_log, sum)));
    output(b, g_matmul(b->g, w, v));
    output(b, g_fold(b->g, FOLD_sum, g2(b->g, OP_mul, w, lw), axis_bit(3), false));
    output(b, g_matmul(b->g, w, u));
}
static void one_row_graph(Bench *b) { one_row_of(b, one_row); }
static void one_row_results(void **state) { check(state, one_row_graph, 1e-4, 1); }
static void few_results_graph(Bench *b) { one_row_of(b, few); }
static void few_results(void **state) { check(state, few_results_graph, 1e-4, 1); }
static void parts_results_graph(Bench *b) { one_row_of(b, parts); }
static void parts_results(void **state) { check(state, parts_results_graph, 1e-4, 0); }

/* No values: logits of a classifier and the log-sum-exp of each row. */
static void logits_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(70, 24)), *w = input(b, DT_f32, DIMS(24, 1500)), *most, *sum;
    next(b);
    Node *s = g_matmul(b->g, x, w);
    next(b);
    softmax_parts(b, s, &most, &sum);
    output(b, g2(b->g, OP_add, g1(b->g, OP_log, sum), most));
}
static void logits(void **state) { check(state, logits_graph, 2e-5, 1); }

/* The same weights for two sets of values, of one width and of two; a third result of each row. */
static void two_values(Bench *b, int64_t e)
{
    Sizes wide = usual;
    wide.e = e;
    Node *q = dims_of(b, usual, false, 0), *k = dims_of(b, usual, false, 1), *v = dims_of(b, usual, true, 1), *u = dims_of(b, wide, true, 1), *t = input(b, DT_f32, DIMS(1, 1, 1, 150));
    next(b);
    Node *s = scores_of(b, q, k), *w = g_softmax(b->g, s, axis_bit(3), false);
    output(b, g_matmul(b->g, w, v));
    output(b, g_matmul(b->g, w, u));
    output(b, g_fold(b->g, FOLD_sum, g2(b->g, OP_mul, w, t), axis_bit(3), false));
}
static void same_width_graph(Bench *b) { two_values(b, 13); }
static void same_width(void **state) { check(state, same_width_graph, 2e-5, 1); }
static void two_widths_graph(Bench *b) { two_values(b, 31); }
static void two_widths(void **state) { check(state, two_widths_graph, 2e-5, 1); }

/* Carriers of several sums: entropy and second moment of the weights, cross-entropy with soft labels, about the maximum and about the log-sum-exp; alone and beside
 * attention's own result. In the masked form whole blocks have no weight (and labels none there), so the pivot comes late. */
static void moments(Bench *b, bool masked, bool values)
{
    Sizes z = { 2, 2, 77, 700, 20, 13 };
    Graph *g = b->g;
    Node *q = dims_of(b, z, false, 0), *k = dims_of(b, z, false, 1), *labels = input(b, DT_f32, DIMS(2, 1, 77, 700)), *v = dims_of(b, z, true, 1);
    next(b);
    Node *s = scores_of(b, q, k), *from = g2(g, OP_le, count_of(b, 450), place_of(b, s, 3));
    if (masked) s = g_where(g, from, s, fill_of(b, -80));
    Node *lw = g_softmax(g, s, axis_bit(3), true), *w = g_softmax(g, s, axis_bit(3), false), *far = g2(g, OP_sub, s, g_fold(g, FOLD_max, s, axis_bit(3), true));
    output(b, g_fold(g, FOLD_sum, g2(g, OP_mul, w, lw), axis_bit(3), false));
    output(b, g_fold(g, FOLD_sum, g2(g, OP_mul, g2(g, OP_mul, far, far), w), axis_bit(3), false));
    if (masked) labels = g_where(g, from, labels, fill_of(b, 0));
    output(b, g_fold(g, FOLD_sum, g2(g, OP_mul, labels, lw), axis_bit(3), true));
    if (values) output(b, g_matmul(g, w, v));
}
static void moments_alone_graph(Bench *b) { moments(b, false, false); }
static void moments_alone(void **state) { check(state, moments_alone_graph, 1e-4, 1); }
static void moments_beside_graph(Bench *b) { moments(b, false, true); }
static void moments_beside(void **state) { check(state, moments_beside_graph, 1e-4, 1); }
static void moments_masked_graph(Bench *b) { moments(b, true, true); }
static void moments_masked(void **state) { check(state, moments_masked_graph, 1e-4, 1); }

/* Values weighted by weight and logarithm: the partial sums that it needs have as many places as the result. -inf gives NaN, as 0 * -inf does. */
static void weighted_logs_graph(Bench *b)
{
    Node *q = dims_of(b, usual, false, 0), *k = dims_of(b, usual, false, 1), *v = dims_of(b, usual, true, 1), *m = input(b, DT_f32, DIMS(77, 150));
    float *x = b->in[3].data;
    for (int j = 0; j < 150; j++) { x[150 * 3 + j] = -INFINITY; if (j < 120) x[150 * 4 + j] = -INFINITY; }
    next(b);
    Node *s = g2(b->g, OP_add, scores_of(b, q, k), m);
    output(b, g_matmul(b->g, g2(b->g, OP_mul, g_softmax(b->g, s, axis_bit(3), false), g_softmax(b->g, s, axis_bit(3), true)), v));
}
static void weighted_logs(void **state) { check(state, weighted_logs_graph, 1e-4, 1); }

/* Scores that are needed elsewhere are computed apart. */
static void scores_kept_graph(Bench *b)
{
    Sizes z = usual;
    Node *q = dims_of(b, z, false, 0), *k = dims_of(b, z, false, 1), *v = dims_of(b, z, true, 1);
    next(b);
    Node *s = scores_of(b, q, k);
    output(b, weighted(b, s, v));
    output(b, s);
}
static void scores_kept(void **state) { check(state, scores_kept_graph, 2e-5, 0); }

/* Grouped heads: the keys of a group serve several heads; rows first in memory, then heads. */
static void grouped_graph(Bench *b)
{
    int64_t B = 2, S = 70, N = 90, H = 6, G = 2, D = 8;
    Graph *g = b->g;
    Node *q = input(b, DT_f32, DIMS(B, S, H * D)), *k = input(b, DT_f32, DIMS(B, N, G * D)), *v = input(b, DT_f32, DIMS(B, N, G * D));
    Dim *qd[4] = { dim_const(g, B), dim_const(g, S), dim_const(g, H), dim_const(g, D) }, *kd[4] = { qd[0], dim_const(g, N), dim_const(g, G), qd[3] };
    next(b);
    q = g_transpose(g, g_reshape(g, q, 4, qd), (int[]){ 0, 2, 1, 3 });
    Node *kv[2] = { k, v };
    for (int i = 0; i < 2; i++) {
        Node *x = g_unsqueeze(g, g_transpose(g, g_reshape(g, kv[i], 4, kd), (int[]){ 0, 2, 1, 3 }), 2);
        Dim *wide[5] = { qd[0], kd[2], dim_const(g, H / G), kd[1], qd[3] }, *flat[4] = { qd[0], qd[2], kd[1], qd[3] };
        kv[i] = g_reshape(g, g_expand(g, x, 5, wide), 4, flat);
    }
    next(b);
    Node *y = weighted(b, scores_of(b, q, kv[0]), kv[1]);
    Dim *out[3] = { qd[0], qd[1], dim_const(g, H * D) };
    output(b, g_reshape(g, g_transpose(g, y, (int[]){ 0, 2, 1, 3 }), 3, out));
}
static void grouped(void **state) { check(state, grouped_graph, 2e-5, 2); }

/* The logarithm of the weights, then its exponential: the last factor needs both folds. */
static void logarithm_graph(Bench *b)
{
    Node *q = dims_of(b, usual, false, 0), *k = dims_of(b, usual, false, 1), *v = dims_of(b, usual, true, 1);
    next(b);
    Node *s = scores_of(b, q, k);
    next(b);
    Node *w = g1(b->g, OP_exp, g_softmax(b->g, s, axis_bit(3), true));
    next(b);
    output(b, g_matmul(b->g, w, v));
}
static void logarithm(void **state) { check(state, logarithm_graph, 2e-5, 1); }

/* Not of finite rank in the folds: two passes. */
static void refused_graph(Bench *b)
{
    Node *q = dims_of(b, usual, false, 0), *k = dims_of(b, usual, false, 1), *v = dims_of(b, usual, true, 1);
    next(b);
    Node *s = scores_of(b, q, k), *m = g_fold(b->g, FOLD_max, s, axis_bit(3), true);
    next(b);
    output(b, g_matmul(b->g, g1(b->g, OP_tanh, g2(b->g, OP_sub, s, m)), v));
}
static void refused(void **state) { check(state, refused_graph, 2e-5, 0); }

/* sum_j f(x_i, y_j) without the matrix between. */
static void pairs_graph(Bench *b)
{
    Node *x = input(b, DT_f32, DIMS(1100, 1, 3)), *y = input(b, DT_f32, DIMS(1, 1000, 3));
    next(b);
    Node *far = g2(b->g, OP_sub, x, y), *r2 = g_fold(b->g, FOLD_sum, g2(b->g, OP_mul, far, far), axis_bit(2), false);
    next(b);
    Node *w = g1(b->g, OP_exp, g1(b->g, OP_neg, r2));
    next(b);
    output(b, g_fold(b->g, FOLD_sum, w, axis_bit(1), false));
}
static void pairs(void **state) { check(state, pairs_graph, 1e-4, 1); }

/* Pairs of points of `e` coordinates: their differences [m, n, e], and the squares of their distances [m, n, 1]. */
static Node *differences(Bench *b, int64_t m, int64_t n, int64_t e, Node **square)
{
    Node *x = input(b, DT_f32, DIMS(m, 1, e)), *y = input(b, DT_f32, DIMS(1, n, e));
    next(b);
    Node *far = g2(b->g, OP_sub, y, x);
    *square = g_fold(b->g, FOLD_sum, g2(b->g, OP_mul, far, far), axis_bit(2), true);
    next(b);
    return far;
}

/* Forces: the differences weighed by a function of the distance, a result for each coordinate. weight_first: which of the two is met first. */
static void forces_of(Bench *b, int64_t m, int64_t n, int64_t e, bool weight_first, bool kept)
{
    Graph *g = b->g;
    Node *square, *far = differences(b, m, n, e, &square), *r = g2(g, OP_add, square, g_scalar(g, DT_f32, 0.3));
    Node *w = g2(g, OP_div, g_scalar(g, DT_f32, 1), g2(g, OP_mul, g1(g, OP_sqrt, r), r));
    next(b);
    output(b, g_fold(g, FOLD_sum, weight_first ? g2(g, OP_mul, w, far) : g2(g, OP_mul, far, w), axis_bit(1), false));
    if (kept) output(b, g_fold(g, FOLD_max, far, axis_bit(0), false));
}
static void forces_graph(Bench *b) { forces_of(b, 1100, 1000, 3, false, false); }
static void forces(void **state) { check(state, forces_graph, 1e-4, 1); }
static void forces_weight_graph(Bench *b) { forces_of(b, 1030, 1027, 2, true, false); }
static void forces_weight(void **state) { check(state, forces_weight_graph, 1e-4, 1); }
static void forces_beside_graph(Bench *b) { forces_of(b, 1100, 1000, 3, false, true); }
static void forces_beside(void **state) { check(state, forces_beside_graph, 1e-4, 0); }
static void forces_small_graph(Bench *b) { forces_of(b, 70, 33, 3, false, false); }
static void forces_small(void **state) { check(state, forces_small_graph, 1e-4, 0); }

/* The least distance, the largest kernel value, extremes of products of matrices; NaN, and places that a mask leaves out. */
static void least_of(Bench *b, FoldKind kind, bool root, bool masked)
{
    Graph *g = b->g;
    Node *square;
    differences(b, 1100, 1000, 4, &square);
    float *x = b->in[0].data, *y = b->in[1].data;
    x[40] = NAN; y[4 * 7] = INFINITY; x[4 * 200 + 1] = -INFINITY;
    Node *s = root ? g1(g, OP_sqrt, square) : square;
    if (masked) s = g_where(g, g2(g, OP_le, g_iota(g, 3, s->dims, 1), g_iota(g, 3, s->dims, 0)), s, g_scalar(g, DT_f32, kind == FOLD_min ? INFINITY : -INFINITY));
    next(b);
    Node *m = g_fold(g, kind, s, axis_bit(1), false);
    next(b);
    output(b, g1(g, OP_neg, m));
}
#define LEAST(name, kernels, ...) \
    static void name##_graph(Bench *b) { least_of(b, __VA_ARGS__); } \
    static void name(void **state) { check(state, name##_graph, 1e-5, kernels); }
LEAST(least_distance, 1, FOLD_min, true, false)
LEAST(least_square, 1, FOLD_min, false, false)
LEAST(largest_square, 1, FOLD_max, false, false)
LEAST(least_masked, 1, FOLD_min, true, true)
LEAST(largest_masked, 1, FOLD_max, true, true)

/* Against loops in double: forces and least distances of the same points. */
static void in_double_item(Ctx *cx, void *arg)
{
    enum { M = 1050, N = 1000 };
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    Graph *g = b->g;
    Node *square, *far = differences(b, M, N, 3, &square);
    bool least = b->tolerance > 0.5;
    Node *r = g2(g, OP_add, square, g_scalar(g, DT_f32, 0.25));
    output(b, least ? g_fold(g, FOLD_min, g1(g, OP_sqrt, square), axis_bit(1), false)
        : g_fold(g, FOLD_sum, g2(g, OP_mul, far, g2(g, OP_div, g_scalar(g, DT_f32, 1), g2(g, OP_mul, g1(g, OP_sqrt, r), r))), axis_bit(1), false));
    Segment *s = segment_new(cx, &b->dev->target, g, &(ProgramOptions){ .fuse = true });
    Tensor got = { 0 };
    assert_int_equal(segment_kernels(s), 1);
    segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
    const float *x = b->in[0].data, *y = b->in[1].data, *have = got.data;
    for (int i = 0; i < M; i++) {
        double force[3] = { 0 }, size[3] = { 0 }, most = INFINITY;
        for (int j = 0; j < N; j++) {
            double d[3], r2 = 0;
            for (int k = 0; k < 3; k++) { d[k] = (double)y[3 * j + k] - (double)x[3 * i + k]; r2 += d[k] * d[k]; }
            most = fmin(most, sqrt(r2));
            for (int k = 0; k < 3; k++) { double t = d[k] / pow(r2 + 0.25, 1.5); force[k] += t; size[k] += fabs(t); }
        }
        if (least && fabs((double)have[i] - most) > 1e-6) fail_msg("row %d: least distance %.9g, wanted %.9g", i, (double)have[i], most);
        for (int k = 0; k < 3 && !least; k++)
            if (fabs((double)have[3 * i + k] - force[k]) > 2e-6 * size[k]) fail_msg("row %d: force %.9g, wanted %.9g", i, (double)have[3 * i + k], force[k]);
    }
    segment_free(s);
    arena_free(b->a);
}

static void in_double(void **state)
{
    Shared *d = *state;
    for (int least = 0; least < 2; least++) {
        Bench b = { .dev = d, .cx = &d->cx, .tolerance = least };
        if (guard_call(&d->cx, in_double_item, &b) != E_OK) fail_msg("%s", d->cx.text);
    }
}

/* Infinite values where a row's weight is e^-70 to e^-108: infinity as long as float32 has a weight for it, else NaN. In odd rows the largest score comes behind them. */
static void far_infinities_graph(Bench *b)
{
    Sizes z = { 1, 2, 77, 700, 20, 13 };
    Node *q = dims_of(b, z, false, 0), *k = dims_of(b, z, false, 1), *v = dims_of(b, z, true, 1), *m = input(b, DT_f32, DIMS(77, 700));
    float *of = b->in[2].data, *far = b->in[3].data;
    memset(b->in[0].data, 0, (size_t)(2 * 77 * 20) * sizeof *of);
    for (int i = 0; i < 77; i++)
        for (int j = 0; j < 700; j++) far[700 * i + j] = j == (i % 2 ? 650 : 5) ? 0 : j == 300 ? -70 - 0.5f * (float)i : -300;
    of[13 * 300 + 4] = INFINITY;
    of[13 * (700 + 300) + 9] = -INFINITY;
    next(b);
    output(b, weighted(b, g2(b->g, OP_add, scores_of(b, q, k), m), v));
}
static void far_infinities(void **state) { check(state, far_infinities_graph, 2e-5, 1); }

/* Scores that lie far apart: most weights would be numbers below 2^-126, with which processors are slow, if they were not 0 or e^-80. Right beside a loop in double. */
static void far_scores_item(Ctx *cx, void *arg)
{
    enum { M = 70, N = 330, D = 20, E = 13 };
    Bench *b = arg;
    const Sizes z = { 1, 1, b->tolerance > 0.5 ? 3 : M, N, D, E };      /* few rows, or a tile and more */
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    Node *q = dims_of(b, z, false, 0), *k = dims_of(b, z, false, 1), *v = dims_of(b, z, true, 1);
    output(b, weighted(b, g2(b->g, OP_mul, scores_of(b, q, k), fill_of(b, 20)), v));
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true, .threads = 1 });
    Tensor got = { 0 };
    assert_int_equal(segment_kernels(s), 1);
    segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
    feclearexcept(FE_ALL_EXCEPT);
    segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
    assert_false(fetestexcept(FE_UNDERFLOW));
    const float *x = b->in[0].data, *y = b->in[1].data, *of = b->in[2].data, *have = got.data;
    int tiny = 0;
    for (int i = 0; i < z.m; i++) {
        double score[N], most = -INFINITY, sum = 0, want[E] = { 0 };
        for (int j = 0; j < N; j++) {
            score[j] = 0;
            for (int d = 0; d < D; d++) score[j] += 5 * (double)x[D * i + d] * (double)y[D * j + d];
            most = fmax(most, score[j]);
        }
        for (int j = 0; j < N; j++) {
            const double w = exp(score[j] - most);
            tiny += w > 0x1p-149 && w < 0x1p-126;
            sum += w;
            for (int e = 0; e < E; e++) want[e] += w * (double)of[E * j + e];
        }
        for (int e = 0; e < E; e++) if (!(fabs((double)have[E * i + e] - want[e] / sum) <= 2e-4)) fail_msg("row %d, place %d: %.9g, wanted %.9g", i, e, (double)have[E * i + e], want[e] / sum);
    }
    assert_true(tiny > 10);
    segment_free(s);
    arena_free(b->a);
}

static void far_scores(void **state)
{
    Shared *d = *state;
    for (int rows = 0; rows < 2; rows++) {
        Bench b = { .dev = d, .cx = &d->cx, .tolerance = rows };
        if (guard_call(&d->cx, far_scores_item, &b) != E_OK) fail_msg("%s", d->cx.text);
    }
}

/* Rows of memory are asked for before they are needed: keys and values, the next tile's queries, and where results go to; whether rows follow one another or lie apart. */
static int times_in(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

static void asked_for_item(Ctx *cx, void *arg)
{
    Bench *b = arg;
    const bool apart = b->tolerance > 0.5;
    b->a = arena_new(cx);
    Graph *g = b->g = graph_new(cx, b->a);
    Node *x[3];
    for (int i = 0; i < 3; i++) {
        x[i] = input(b, DT_f32, 4, apart ? (int64_t[]){ 1, 256, 2, 64 } : (int64_t[]){ 1, 2, 256, 64 });
        if (apart) x[i] = g_transpose(g, x[i], (int[]){ 0, 2, 1, 3 });
    }
    output(b, weighted(b, scores_of(b, x[0], x[1]), x[2]));
    Segment *s = segment_new(cx, &b->dev->target, g, &(ProgramOptions){ .fuse = true, .threads = 1 });
    SegmentEvidence e = { 0 };
    segment_evidence(cx, b->a, s, NULL, &e);
    assert_int_equal(e.nkernel, 1);
    const char *text = e.kernel[0].source;
    const int tiles = times_in(text, "fetch_own(");      /* whole ones, and the rest */
    assert_true(tiles > 0);
    assert_int_equal(times_in(text, "fetch("), tiles);
    assert_int_equal(times_in(text, "fetch_near("), 2 * tiles);
    segment_free(s);
    arena_free(b->a);
}

static void asked_for(void **state)
{
    Shared *d = *state;
    if (d->target.vectors.lanes <= 1) skip();        /* no lanes, no tiles */
    for (int apart = 0; apart < 2; apart++) {
        Bench b = { .dev = d, .cx = &d->cx, .tolerance = apart };
        if (guard_call(&d->cx, asked_for_item, &b) != E_OK) fail_msg("%s", d->cx.text);
    }
}

/* ---- what must stay partly fused -------------------------------------------------------------------------------------------- */
/* Windows over something dear: it is stored, not computed again for each window; what follows the windows is fused. */
static void windows_graph(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, DIMS(2, 3, 20, 36)), *c = input(b, DT_f32, DIMS(2, 3, 18, 34));
    next(b);
    Node *e = g1(g, OP_exp, x);
    Dim *dims[6] = { x->dims[0], x->dims[1], dim_const(g, 18), dim_const(g, 34), dim_const(g, 3), dim_const(g, 3) }, *idx[4];
    idx[0] = dim_idx(g, 0, dims[0]); idx[1] = dim_idx(g, 1, dims[1]);
    for (int k = 0; k < 2; k++) idx[2 + k] = dim_add(g, dim_idx(g, 2 + k, dims[2 + k]), dim_idx(g, 4 + k, dims[4 + k]));
    next(b);
    Node *m = g_fold(g, FOLD_max, g_view(g, e, 6, dims, &(View){ .nidx = 4, .idx = idx }), axis_bit(4) | axis_bit(5), false);
    next(b);
    output(b, g2(g, OP_add, m, c));
}
static void windows(void **state) { check(state, windows_graph, 1e-5, 2); }

/* A chain of exp before a broadcast is computed once for each row, not for each point. */
static void broadcast_graph(Bench *b)
{
    next(b);
    Node *e = g1(b->g, OP_exp, g1(b->g, OP_exp, input(b, DT_f32, DIMS(50, 1))));
    next(b);
    output(b, g2(b->g, OP_mul, e, input(b, DT_f32, DIMS(50, 70))));
}
static void before_broadcast(void **state) { check(state, broadcast_graph, 1e-5, 2); }

/* ---- the algebra of a carrier ------------------------------------------------------------------------------------------------ */
/* The planner's own carrier of attention: its bodies and factors as graphs, evaluated in double. Any split of the axis gives the same in any grouping (merge is
 * associative), a pivot that moves in two steps is one that moves in one (T(d, d'') = T(d', d'') T(d, d')), and both agree with two passes. */
typedef struct Carrier { double m, s[2]; } Carrier;
typedef struct Algebra { const Stream *s; const Node *v; double x, vx, old, cur, end, l; } Algebra;

static double value_of(const Algebra *e, const Node *n)
{
    while (n->op == OP_view) n = n->in[0];
    const StreamFold *m = &e->s->fold[0], *l = &e->s->fold[1];
    if (n == m->old) return e->old;
    if (n == m->cur) return e->cur;
    if (n == m->node) return e->end;
    if (n == l->node) return e->l;
    if (n == e->s->inner[0].node) return e->x;
    if (n == e->v) return e->vx;
    if (n->op == OP_const) return scalar_load(n->dt, n->tensor->data).f;
    if (n->op == OP_fold || n->op == OP_input) fail_msg("node %d: nothing of a carrier", n->id);
    Scalar in[3];
    for (int i = 0; i < n->nin; i++) in[i].f = value_of(e, n->in[i]);
    return eval_ew(n->op, DT_f64, n->nin, in).f;
}

static double safe(double m) { return m == -INFINITY ? 0 : m; }
static double factor_of(const Algebra *e, const Node *n) { return n ? value_of(e, n) : 1; }

static Carrier advance_by(const Stream *s, Carrier c, double m)
{
    Algebra e = { .s = s, .old = c.m, .cur = safe(m), .l = 1 };
    for (int k = 0; k < 2; k++) c.s[k] *= factor_of(&e, s->fold[1 + k].advance);
    c.m = m;
    return c;
}

static Carrier lift_of(const Stream *s, const Node *v, double x, double vx)
{
    Algebra e = { .s = s, .v = v, .x = x, .vx = vx, .l = 1 };
    Carrier c = { .m = value_of(&e, s->fold[0].node->in[0]) };
    e.end = safe(c.m);
    for (int k = 0; k < 2; k++) c.s[k] = value_of(&e, s->fold[1 + k].node->in[0]);
    return c;
}

static Carrier merge_of(const Stream *s, Carrier a, Carrier b)
{
    double m = fmax(a.m, b.m);
    a = advance_by(s, a, m);
    b = advance_by(s, b, m);
    return (Carrier){ m, { a.s[0] + b.s[0], a.s[1] + b.s[1] } };
}

static void close_to(double a, double b) { if (!(fabs(a - b) <= 1e-12 * fmax(1, fmax(fabs(a), fabs(b))))) fail_msg("%.17g is not %.17g", a, b); }

static void carrier_laws(const Stream *s, const Node *v, uint64_t seed)
{
    enum { N = 24 };
    double x[N], w[N], most = -INFINITY, l = 0, o = 0;
    for (int j = 0; j < N; j++) {
        uint64_t r = random_word(seed, (uint64_t)j);
        x[j] = r % 7 == 0 ? -INFINITY : (double)(r >> 40) / (1 << 24) * 160 - 80;
        w[j] = (double)(r % 1001) / 500 - 1;
        most = fmax(most, 0.25 * x[j]);
    }
    for (int j = 0; j < N; j++) { l += exp(0.25 * x[j] - most); o += exp(0.25 * x[j] - most) * w[j]; }
    int cut = 1 + (int)(random_word(seed, 99) % (N - 2)), cut2 = cut + (int)(random_word(seed, 98) % (uint64_t)(N - cut));
    Carrier part[3];
    for (int k = 0; k < 3; k++) part[k] = (Carrier){ -INFINITY, { 0, 0 } };
    for (int j = 0; j < N; j++) { Carrier *p = &part[j < cut ? 0 : j < cut2 ? 1 : 2]; *p = merge_of(s, *p, lift_of(s, v, x[j], w[j])); }
    Carrier a = merge_of(s, merge_of(s, part[0], part[1]), part[2]), c = merge_of(s, part[0], merge_of(s, part[1], part[2]));
    Carrier once = advance_by(s, part[0], 31), twice = advance_by(s, advance_by(s, part[0], 23), 31);
    for (int k = 0; k < 2; k++) { close_to(a.s[k], c.s[k]); close_to(once.s[k], twice.s[k]); }
    Algebra e = { .s = s, .cur = safe(a.m), .end = a.m, .l = 1 };
    e.l = a.s[0] * factor_of(&e, s->fold[1].finish);
    close_to(a.m, most);
    close_to(e.l, l);
    close_to(a.s[1] * factor_of(&e, s->fold[2].finish), o / l);
}

static void algebra_item(Ctx *cx, void *arg)
{
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    Node *q = dims_of(b, usual, false, 0), *k = dims_of(b, usual, false, 1), *v = dims_of(b, usual, true, 1);
    next(b);
    output(b, weighted(b, scores_of(b, q, k), v));
    Cascades all = { 0 };
    cascades_find(cx, b->a, b->g, &all);
    assert_int_equal(all.n, 1);
    const Stream *s = &all.at.at[0]->stream;
    assert_int_equal(s->nfold, 3);
    assert_true(s->fold[0].pivot && s->fold[1].rank == 1 && s->fold[2].rank == 1);
    for (uint64_t seed = 1; seed <= 200; seed++) carrier_laws(s, v, seed);
    arena_free(b->a);
}

static void carrier_algebra(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, algebra_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);       /* t_cascade NAME: with * and ? */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_plain), cmocka_unit_test(attention_one_block), cmocka_unit_test(attention_long), cmocka_unit_test(attention_bias),
        cmocka_unit_test(attention_bias_of_steps), cmocka_unit_test(attention_bool_mask), cmocka_unit_test(attention_causal), cmocka_unit_test(attention_window), cmocka_unit_test(attention_window_whole),
        cmocka_unit_test(attention_prefix), cmocka_unit_test(attention_dilated), cmocka_unit_test(attention_documents), cmocka_unit_test(attention_packed), cmocka_unit_test(attention_packed_prefix),
        cmocka_unit_test(attention_packed_order), cmocka_unit_test(attention_packed_wide), cmocka_unit_test(attention_lengths),
        cmocka_unit_test(attention_cap), cmocka_unit_test(attention_alibi), cmocka_unit_test(attention_empty_rows), cmocka_unit_test(attention_special),
        cmocka_unit_test(attention_decoding), cmocka_unit_test(attention_decoding_long), cmocka_unit_test(attention_decoding_lengths), cmocka_unit_test(attention_decoding_late), cmocka_unit_test(attention_decoding_documents),
        cmocka_unit_test(attention_decoding_special), cmocka_unit_test(attention_few), cmocka_unit_test(attention_few_bias), cmocka_unit_test(attention_few_causal), cmocka_unit_test(attention_few_window),
        cmocka_unit_test(attention_few_lengths), cmocka_unit_test(attention_few_documents), cmocka_unit_test(attention_few_cap), cmocka_unit_test(attention_few_special), cmocka_unit_test(attention_few_lanes),
        cmocka_unit_test(few_results), cmocka_unit_test(parts_few), cmocka_unit_test(attention_short), cmocka_unit_test(logsumexp), cmocka_unit_test(one_row_results), cmocka_unit_test(parts_results), cmocka_unit_test(parts_plain), cmocka_unit_test(parts_lengths), cmocka_unit_test(parts_late), cmocka_unit_test(parts_special), cmocka_unit_test(logits), cmocka_unit_test(same_width), cmocka_unit_test(two_widths), cmocka_unit_test(moments_alone), cmocka_unit_test(moments_beside), cmocka_unit_test(moments_masked), cmocka_unit_test(weighted_logs), cmocka_unit_test(scores_kept), cmocka_unit_test(grouped),
        cmocka_unit_test(logarithm), cmocka_unit_test(refused), cmocka_unit_test(pairs), cmocka_unit_test(forces), cmocka_unit_test(forces_weight), cmocka_unit_test(forces_beside), cmocka_unit_test(forces_small), cmocka_unit_test(least_distance), cmocka_unit_test(least_square), cmocka_unit_test(largest_square), cmocka_unit_test(least_masked), cmocka_unit_test(largest_masked), cmocka_unit_test(in_double), cmocka_unit_test(far_infinities), cmocka_unit_test(far_scores), cmocka_unit_test(asked_for),
        cmocka_unit_test(windows), cmocka_unit_test(before_broadcast), cmocka_unit_test(carrier_algebra),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
