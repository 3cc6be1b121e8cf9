/* Recurrences, y[t] = f[t] y[t - 1] + x[t], with what is computed around them, and linear attention in its masked form, which becomes one: against the interpreter, and
 * against loops in double. */
#include "graphs.h"
#include "fuse/fuse.h"

static Node *number_of(Bench *b, double v) { return g_scalar(b->g, DT_f32, v); }

/* Between 0 and 1, from any number. */
static Node *fading(Bench *b, Node *x) { return g1(b->g, OP_sigmoid, x); }

static Node *recur(Bench *b, Node *x, Node *f, int axis, bool back)
{
    next(b);
    Node *y = g_recurrence(b->g, x, f, axis, back);
    next(b);
    return y;
}

#define RECURS(name, tolerance, kernels, ...) \
    static void name##_graph(Bench *b) { __VA_ARGS__ } \
    static void name(void **state) { check(state, name##_graph, tolerance, kernels); }

static void plain_of(Bench *b, int rank, const int64_t *dims, int axis, bool back)
{
    Node *x = input(b, DT_f32, rank, dims), *f = input(b, DT_f32, rank, dims);
    next(b);
    output(b, g1(b->g, OP_abs, recur(b, g1(b->g, OP_neg, x), fading(b, f), axis, back)));
}
RECURS(columns, 1e-5, 1, plain_of(b, DIMS(3, 133, 21), 1, false);)
RECURS(columns_back, 1e-5, 0, plain_of(b, DIMS(3, 57, 21), 1, true);)
RECURS(first_axis, 1e-5, 1, plain_of(b, DIMS(50, 37), 0, false);)
RECURS(last_axis, 1e-5, 0, plain_of(b, DIMS(7, 133), 1, false);)
RECURS(last_back, 1e-5, 0, plain_of(b, DIMS(7, 133), 1, true);)
RECURS(one_row, 1e-5, 0, plain_of(b, DIMS(300), 0, false);)
RECURS(one_place, 1e-5, 0, plain_of(b, DIMS(6, 1), 1, false);)
RECURS(one_first, 1e-5, 0, plain_of(b, DIMS(1, 60), 0, false);)
RECURS(no_places, 1e-5, 0, plain_of(b, DIMS(6, 0, 3), 1, false);)
RECURS(beside_sum, 1e-4, 2,            /* a running sum and a recurrence in one loop, the second of what the first comes to */
    Node *x = input(b, DT_f32, DIMS(4, 60, 33)); Node *f = input(b, DT_f32, DIMS(4, 60, 1));
    next(b);
    Node *c = g_scan(b->g, FOLD_sum, g1(b->g, OP_tanh, x), 1, false, false);
    next(b);
    output(b, c); output(b, g2(b->g, OP_mul, recur(b, c, fading(b, f), 1, false), x));)
RECURS(narrow, 2e-2, 0,
    Node *x = input(b, DT_f16, DIMS(3, 40, 20)); Node *f = input(b, DT_f16, DIMS(3, 40, 20)); Node *y = input(b, DT_bf16, DIMS(40, 20)); Node *d = input(b, DT_f64, DIMS(40, 20));
    output(b, recur(b, x, fading(b, f), 1, false)); output(b, recur(b, y, fading(b, y), 0, true)); output(b, recur(b, d, fading(b, d), 1, false));)
RECURS(not_finite, 1e-5, 0,
    Node *x = input(b, DT_f32, DIMS(40, 20)); Node *f = input(b, DT_f32, DIMS(40, 20));
    float *v = b->in[0].data; float *w = b->in[1].data;
    v[25] = INFINITY; v[67] = NAN; v[101] = -INFINITY; w[13] = INFINITY; w[334] = INFINITY; w[515] = NAN; w[606] = -0.0f; v[606] = -0.0f;
    output(b, recur(b, x, f, 0, false));)

/* A state of d by e numbers with decay, read by q: for each head, each row of the state, or each column. */
static void state_of(Bench *b, int64_t heads, int64_t steps, int64_t d, int64_t e, int form, bool back)
{
    Graph *g = b->g;
    Node *q = input(b, DT_f32, DIMS(heads, steps, d)), *k = input(b, DT_f32, DIMS(heads, steps, d)), *v = input(b, DT_f32, DIMS(heads, steps, e));
    Node *f = input(b, DT_f32, DIMS(heads, steps, form == 1 ? d : 1, form == 2 ? e : 1));
    next(b);
    Node *s = recur(b, g2(g, OP_mul, g_unsqueeze(g, k, 3), g_unsqueeze(g, v, 2)), fading(b, f), 1, back);
    output(b, g_squeeze(g, g_matmul(g, g_unsqueeze(g, q, 2), s), 2));
}
RECURS(state_head, 1e-4, 2, state_of(b, 3, 50, 20, 37, 0, false);)
RECURS(state_rows, 1e-4, 2, state_of(b, 2, 33, 16, 64, 1, false);)
RECURS(state_columns, 1e-4, 2, state_of(b, 2, 33, 7, 64, 2, true);)
RECURS(state_one_step, 1e-4, 0, state_of(b, 2, 1, 7, 64, 0, false);)

/* Against a loop in double: what is read of a state, and the plain recurrence. */
static void double_item(Ctx *cx, void *arg)
{
    enum { S = 300, D = 24, E = 40 };
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    state_of(b, 1, S, D, E, 1, false);
    Segment *s = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    Tensor got = { 0 };
    assert_int_equal(segment_kernels(s), 2);
    segment_run(cx, b->a, s, b->in, NULL, &got, NULL, NULL);
    check_state(b->a, S, D, E, b->in[0].data, b->in[1].data, b->in[2].data, b->in[3].data, got.data);
    segment_free(s);
    arena_free(b->a);
}

static void state_in_double(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, double_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

/* Any float type, axis, direction and length; sometimes two of them, sometimes sizes that are symbols. */
static void random_graph(Bench *b)
{
    static const DType types[] = { DT_f32, DT_f32, DT_f64, DT_f16, DT_bf16 };
    uint64_t at = 0;
    int64_t dims[3];
    const char *sym[3];
    int axis, rank = draw_sizes(b, &at, &axis, dims, sym);
    DType t = types[seed_draw(&at, COUNT_OF(types))];
    Node *x = input_of(b, t, rank, dims, sym), *f = input_of(b, t, rank, dims, sym);
    next(b);
    Node *y = g2(b->g, OP_add, x, g_cast(b->g, number_of(b, 1), t));
    for (int k = 0; k < 1 + (int)seed_draw(&at, 2); k++) {
        y = recur(b, y, seed_draw(&at, 2) ? fading(b, f) : g_cast(b->g, number_of(b, 0.5), t), axis, seed_draw(&at, 2));
        if (seed_draw(&at, 2)) y = g2(b->g, OP_sub, y, x);
        if (seed_draw(&at, 3) == 0) y = g_scan(b->g, FOLD_max, y, axis, seed_draw(&at, 2), seed_draw(&at, 2));
        if (seed_draw(&at, 3) == 0) output(b, y);
    }
    output(b, g1(b->g, OP_neg, y));
}

static void random_graphs(void **state)
{
    for (seed_now = 1; seed_now <= 25; seed_now++) check(state, random_graph, 3e-2, 0);
}

/* ---- linear attention as a masked product -------------------------------------------------------------------------------------------------------- */
enum { PLAIN, DECAY, RISING, EACH, DISTANCE, TABLE, POWER, FORMS };     /* weights: none; e to differences of running sums, of numbers below 0, of any, one for each row of the state; of the distance; a table of 0 and 1; a power of the distance */
static Node *places(Bench *b, Dim *n, int axis) { Dim *dims[2] = { n, n }; return g_iota(b->g, 2, dims, axis); }
static Node *mask_of(Bench *b, Dim *n, int style)
{
    Graph *g = b->g;
    Node *i = places(b, n, 0), *j = places(b, n, 1);
    switch (style) {
    case 0: return g2(g, OP_le, j, i);
    case 1: return g1(g, OP_not, g2(g, OP_lt, i, j));
    case 2: return g2(g, OP_lt, g2(g, OP_sub, j, i), g_int(g, DT_i64, 1));
    case 3: return g_cast(g, g_where(g, g2(g, OP_le, j, i), number_of(b, 1), number_of(b, 0)), DT_bool);
    case 4: return g1(g, OP_not, g2(g, OP_eq, g_where(g, g2(g, OP_le, j, i), number_of(b, 1), number_of(b, 0)), number_of(b, 0)));
    default: return g2(g, OP_lt, j, i);              /* not the place itself: another sum */
    }
}

static Node *table_of(Bench *b, int64_t n)
{
    Tensor *t = tensor_new(b->a, b->cx, DT_f32, 2, (int64_t[]){ n, n });
    for (int64_t k = 0; k < n * n; k++) ((float *)t->data)[k] = k % n <= k / n ? 1 : k % 5 ? 0.0f : -0.0f;
    return g_const(b->g, t);
}

/* Heads of q [H,S,D], k [H,S,D], v [H,S,E]. */
static Node *masked_of(Bench *b, int64_t heads, int64_t steps, int64_t d, int64_t e, int form, int style, bool sym)
{
    Graph *g = b->g;
    const char *const names[3] = { NULL, sym ? "s" : NULL, NULL };
    Node *q = input_of(b, DT_f32, 3, (int64_t[]){ heads, steps, d }, names), *k = input_of(b, DT_f32, 3, (int64_t[]){ heads, steps, d }, names), *v = input_of(b, DT_f32, 3, (int64_t[]){ heads, steps, e }, names);
    Node *raw = input_of(b, DT_f32, 3, (int64_t[]){ heads, steps, form == EACH ? d : 1 }, names), *mask = mask_of(b, q->dims[1], style), *none = number_of(b, -INFINITY), *zero = number_of(b, 0), *w;
    next(b);
    Node *kt = g_transpose(g, k, (int[]){ 0, 2, 1 });
    Node *steps_of = form == RISING ? g2(g, OP_mul, raw, number_of(b, 0.2)) : g2(g, OP_mul, g1(g, OP_abs, raw), number_of(b, -0.1)), *c = g_scan(g, FOLD_sum, steps_of, 1, false, false);
    next(b);
    if (form == EACH) {
        Node *between = g2(g, OP_sub, g_unsqueeze(g, c, 2), g_unsqueeze(g, c, 1)), *x = g1(g, OP_exp, g_where(g, g_unsqueeze(g, mask, 2), between, none));
        w = g_fold(g, FOLD_sum, g2(g, OP_mul, g2(g, OP_mul, g_unsqueeze(g, q, 2), g_unsqueeze(g, k, 1)), x), axis_bit(3), false);
    } else {
        w = g_matmul(g, q, kt);
        if (form == TABLE) w = g2(g, OP_mul, w, table_of(b, steps));
        else if (form == PLAIN) w = g_where(g, mask, g2(g, OP_mul, w, number_of(b, 0.125)), zero);
        else if (form == DISTANCE || form == POWER) {                 /* a rate for each head, as a constant */
            Tensor *rate = tensor_new(b->a, b->cx, DT_f32, 3, (int64_t[]){ heads, 1, 1 });
            for (int64_t h = 0; h < heads; h++) ((float *)rate->data)[h] = form == POWER ? 0.75f + 0.0625f * (float)(h % 4) : -0.05f * (float)(h + 1);
            Node *far = g_cast(g, g2(g, OP_sub, places(b, q->dims[1], 0), places(b, q->dims[1], 1)), DT_f32), *by = g_const(g, rate);
            w = g_where(g, mask, g2(g, OP_mul, w, form == POWER ? g2(g, OP_pow, by, far) : g1(g, OP_exp, g2(g, OP_mul, far, by))), zero);
        } else w = g2(g, OP_mul, w, g1(g, OP_exp, g_where(g, mask, g2(g, OP_sub, c, g_transpose(g, c, (int[]){ 0, 2, 1 })), none)));
    }
    next(b);
    return g_matmul(g, w, v);
}
static void attends(Bench *b, int64_t heads, int64_t steps, int64_t d, int64_t e, int form, int style, bool sym) { output(b, masked_of(b, heads, steps, d, e, form, style, sym)); }

RECURS(masked, 2e-5, 1, attends(b, 3, 100, 16, 33, PLAIN, 0, false);)
RECURS(masked_symbol, 2e-5, 1, attends(b, 2, 70, 16, 20, PLAIN, 1, true);)
RECURS(masked_less, 2e-5, 1, attends(b, 2, 70, 16, 20, PLAIN, 2, true);)
RECURS(masked_number, 2e-5, 1, attends(b, 2, 70, 16, 20, PLAIN, 3, false);)
RECURS(masked_zero, 2e-5, 1, attends(b, 2, 70, 16, 20, PLAIN, 4, false);)
RECURS(masked_table, 2e-5, 1, attends(b, 2, 70, 16, 20, TABLE, 0, false);)
RECURS(masked_decay, 2e-5, 3, attends(b, 3, 100, 16, 33, DECAY, 0, true);)
RECURS(masked_rising, 1e-4, 4, attends(b, 3, 100, 16, 33, RISING, 1, false);)
RECURS(masked_each, 2e-5, 3, attends(b, 2, 80, 12, 20, EACH, 0, true);)
RECURS(masked_distance, 2e-5, 0, attends(b, 4, 90, 16, 20, DISTANCE, 2, false);)
RECURS(masked_far, 1e-4, 0,                          /* the distance times a whole number, as integers */
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(2, 90, 8)); Node *k = input(b, DT_f32, DIMS(2, 8, 90)); Node *v = input(b, DT_f32, DIMS(2, 90, 20));
    next(b);
    Node *far = g2(g, OP_mul, g2(g, OP_sub, places(b, q->dims[1], 1), places(b, q->dims[1], 0)), g_int(g, DT_i64, 3));
    Node *w = g1(g, OP_exp, g2(g, OP_mul, g_cast(g, far, DT_f32), number_of(b, 0.01)));
    w = g_where(g, mask_of(b, q->dims[1], 2), g2(g, OP_mul, g_matmul(g, q, k), w), number_of(b, 0));
    next(b);
    output(b, g_matmul(g, w, v));)
/* One behind the other: the products that come to the second state differ along the axis that the first one's reading reduces. */
RECURS(masked_stacked, 1e-4, 2,
    Graph *g = b->g; Node *x = input(b, DT_f32, DIMS(2, 120, 24)); Node *k = input(b, DT_f32, DIMS(2, 24, 120));
    for (int layer = 0; layer < 2; layer++) {
        next(b);
        Node *w = g_where(g, mask_of(b, x->dims[1], 0), g_matmul(g, x, k), number_of(b, 0));
        next(b);
        x = g2(g, OP_mul, g_matmul(g, w, x), number_of(b, 0.01));
    }
    output(b, x);)
RECURS(state_spread, 1e-4, 0,
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(40, 16)), *k = input(b, DT_f32, DIMS(40, 16)), *v = input(b, DT_f32, DIMS(40, 20)), *u = input(b, DT_f32, DIMS(40, 16, 20));
    next(b);
    Node *s = recur(b, g2(g, OP_mul, g_unsqueeze(g, k, 2), g_unsqueeze(g, v, 1)), number_of(b, 0.75), 0, false);
    Node *y = g_fold(g, FOLD_sum, g2(g, OP_mul, g_unsqueeze(g, q, 2), s), axis_bit(1), true);
    next(b);
    output(b, g2(g, OP_sub, u, y));)
RECURS(masked_strictly, 2e-5, 0, attends(b, 2, 70, 16, 20, PLAIN, 5, false);)           /* without the place itself: stays a product of matrices */
RECURS(masked_few, 2e-5, 0, attends(b, 2, 9, 16, 20, PLAIN, 0, false);)                 /* few places: products cost less */
RECURS(masked_power, 2e-5, 0, attends(b, 4, 90, 16, 20, POWER, 0, true);)
/* Places as numbers of a type that wraps: places that are 256 apart are one, and a difference without a sign is never below 1. */
static void masked_wraps(Bench *b, DType t, bool difference)
{
    Graph *g = b->g;
    Node *q = input(b, DT_f32, DIMS(2, 300, 16)), *k = input(b, DT_f32, DIMS(2, 16, 300)), *v = input(b, DT_f32, DIMS(2, 300, 20));
    next(b);
    Node *i = g_cast(g, places(b, q->dims[1], 0), t), *j = g_cast(g, places(b, q->dims[1], 1), t);
    Node *mask = difference ? g2(g, OP_lt, g2(g, OP_sub, j, i), g_int(g, t, 1)) : g2(g, OP_le, j, i);
    Node *w = g_where(g, mask, g_matmul(g, q, k), number_of(b, 0));
    next(b);
    output(b, g_matmul(g, w, v));
}
RECURS(masked_u8, 2e-4, 0, masked_wraps(b, DT_u8, false);)
RECURS(masked_bool, 2e-4, 0,
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(2, 90, 16)); Node *k = input(b, DT_f32, DIMS(2, 16, 90)); Node *v = input(b, DT_f32, DIMS(2, 90, 20));
    next(b);
    Node *i = g_cast(g, g_cast(g, places(b, q->dims[1], 0), DT_bool), DT_i64); Node *j = g_cast(g, g_cast(g, places(b, q->dims[1], 1), DT_bool), DT_i64);
    next(b);
    output(b, g_matmul(g, g_where(g, g2(g, OP_le, j, i), g_matmul(g, q, k), number_of(b, 0)), v));)
RECURS(masked_bits, 2e-4, 0,                         /* all bits of 0 or 1 turned round: never 0 */
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(2, 90, 16)); Node *k = input(b, DT_f32, DIMS(2, 16, 90)); Node *v = input(b, DT_f32, DIMS(2, 90, 20));
    next(b);
    Node *mask = g_cast(g, g1(g, OP_not, g_cast(g, g2(g, OP_lt, places(b, q->dims[1], 0), places(b, q->dims[1], 1)), DT_i32)), DT_bool);
    next(b);
    output(b, g_matmul(g, g_where(g, mask, g_matmul(g, q, k), number_of(b, 0)), v));)
RECURS(masked_u32, 2e-4, 0, masked_wraps(b, DT_u32, true);)
RECURS(masked_i32, 2e-4, 1, masked_wraps(b, DT_i32, true);)
RECURS(masked_far_u32, 2e-4, 0,                      /* 2^32 less the distance */
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(2, 90, 8)); Node *k = input(b, DT_f32, DIMS(2, 8, 90)); Node *v = input(b, DT_f32, DIMS(2, 90, 20));
    next(b);
    Node *far = g2(g, OP_sub, g_cast(g, places(b, q->dims[1], 1), DT_u32), g_cast(g, places(b, q->dims[1], 0), DT_u32));
    Node *w = g1(g, OP_exp, g2(g, OP_mul, g_cast(g, far, DT_f32), number_of(b, 1e-10)));
    w = g_where(g, mask_of(b, q->dims[1], 0), g2(g, OP_mul, g_matmul(g, q, k), w), number_of(b, 0));
    next(b);
    output(b, g_matmul(g, w, v));)
RECURS(masked_long, 2e-4, 0,                         /* gates that there are more ways to than steps to find their signs with */
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(2, 90, 16)); Node *k = input(b, DT_f32, DIMS(2, 16, 90)); Node *v = input(b, DT_f32, DIMS(2, 90, 20));
    Node *gate = g2(g, OP_mul, g1(g, OP_abs, input(b, DT_f32, DIMS(2, 90, 1))), number_of(b, -0.1));
    for (int n = 0; n < 13; n++) gate = g2(g, OP_max, gate, g2(g, OP_mul, gate, number_of(b, 0.5)));
    next(b);
    Node *c = g_scan(g, FOLD_sum, gate, 1, false, false); Node *between = g2(g, OP_sub, c, g_transpose(g, c, (int[]){ 0, 2, 1 }));
    Node *w = g2(g, OP_mul, g_matmul(g, q, k), g1(g, OP_exp, g_where(g, mask_of(b, q->dims[1], 0), between, number_of(b, -INFINITY))));
    next(b);
    output(b, g_matmul(g, w, v));)
RECURS(masked_kept, 2e-5, 0,                         /* the weights are a result as well */
    Node *x = masked_of(b, 2, 70, 16, 20, PLAIN, 0, false); Node *w = (Node *)under_views(x->in[0]->in[0]);
    output(b, w); output(b, x);)
RECURS(masked_normal, 2e-5, 0,                       /* divided by the sum of its weights: two sums of one product */
    Graph *g = b->g; Node *x = masked_of(b, 3, 150, 12, 20, DECAY, 0, true); Node *w = (Node *)under_views(x->in[0]->in[0]);
    next(b);
    Node *sum = g_fold(g, FOLD_sum, w, axis_bit(2), true); Node *most = g2(g, OP_max, g1(g, OP_abs, sum), number_of(b, 1));
    next(b);
    output(b, g2(g, OP_div, x, most));)
RECURS(masked_normal_before, 2e-5, 0,
    Graph *g = b->g; Node *q = g1(g, OP_abs, input(b, DT_f32, DIMS(3, 150, 12))); Node *k = g1(g, OP_abs, input(b, DT_f32, DIMS(3, 12, 150))); Node *v = input(b, DT_f32, DIMS(3, 150, 20));
    next(b);
    Node *w = g_where(g, mask_of(b, q->dims[1], 0), g_matmul(g, q, k), number_of(b, 0)); Node *sum = g2(g, OP_add, g_fold(g, FOLD_sum, w, axis_bit(2), true), number_of(b, 0.5));
    next(b);
    output(b, g_matmul(g, g2(g, OP_div, w, sum), v));)
RECURS(masked_quotient, 2e-5, 0,                     /* divided by something of the row, of the place, and turned round */
    Graph *g = b->g; Node *q = input(b, DT_f32, DIMS(2, 60, 16)); Node *k = input(b, DT_f32, DIMS(2, 16, 60)); Node *v = input(b, DT_f32, DIMS(2, 60, 24)); Node *r = input(b, DT_f32, DIMS(2, 60, 1)); Node *l = input(b, DT_f32, DIMS(60));
    next(b);
    r = g2(g, OP_add, g1(g, OP_abs, r), number_of(b, 0.5)); l = g2(g, OP_add, g1(g, OP_abs, l), number_of(b, 0.5));
    Node *w = g2(g, OP_div, g2(g, OP_div, g1(g, OP_neg, g_matmul(g, q, k)), r), l);
    w = g_where(g, g2(g, OP_lt, places(b, q->dims[1], 0), places(b, q->dims[1], 1)), number_of(b, 0), w);
    next(b);
    output(b, g_matmul(g, w, v));)
RECURS(masked_resets, 2e-5, 0,                       /* a decay of 0 (its logarithm is -inf): what comes after is no number, in either form */
    float *v; Node *y = masked_of(b, 1, 60, 16, 20, DECAY, 0, false); v = b->in[3].data; v[41] = INFINITY; output(b, y);)
/* Exponents of rows and of places that are no differences, of which one or the other is -inf: these weights are 0, and no other. */
static void masked_closes(Bench *b, bool rises, int from, int64_t d)
{
    Graph *g = b->g;
    Node *q = input(b, DT_f32, DIMS(2, 70, 16)), *k = input(b, DT_f32, DIMS(2, 70, 16)), *v = input(b, DT_f32, DIMS(2, 70, 20)), *gate = input_of(b, DT_f32, 3, (int64_t[]){ 2, 70, d }, NULL), *place = input_of(b, DT_f32, 3, (int64_t[]){ 2, 70, d }, NULL);
    float *closed = b->in[3].data, *none = b->in[4].data;
    for (int64_t n = 0; n < d; n++) closed[from * d + n] = none[33 * d + n] = none[(70 + 20) * d + n] = none[70 * d + n] = -INFINITY;
    next(b);
    gate = g2(g, OP_mul, gate, number_of(b, 0.2)); place = g2(g, OP_mul, place, number_of(b, 0.2));
    Node *r = rises ? gate : g_scan(g, FOLD_sum, g2(g, OP_min, gate, number_of(b, 0)), 1, false, false), *mask = mask_of(b, q->dims[1], 0), *low = number_of(b, -INFINITY), *w;
    next(b);
    Node *x = g2(g, OP_add, g_unsqueeze(g, r, 2), g_unsqueeze(g, place, 1));
    x = g1(g, OP_exp, g_where(g, g_unsqueeze(g, mask, 2), x, low));
    w = g_fold(g, FOLD_sum, g2(g, OP_mul, g2(g, OP_mul, g_unsqueeze(g, q, 2), g_unsqueeze(g, k, 1)), x), axis_bit(3), false);
    next(b);
    output(b, g_matmul(g, w, v));
}
RECURS(masked_closed, 2e-5, 0, masked_closes(b, false, 41, 1);)
RECURS(masked_closed_first, 2e-5, 0, masked_closes(b, false, 0, 1);)
RECURS(masked_closed_each, 2e-5, 0, masked_closes(b, false, 41, 16);)
RECURS(masked_closed_pivot, 1e-4, 0, masked_closes(b, true, 41, 1);)
RECURS(masked_closed_row, 1e-4, 0, masked_closes(b, true, 0, 16);)
RECURS(masked_large, 1e-3, 0,                        /* a weight that no float holds, and after it ordinary ones */
    float *v; Node *y = masked_of(b, 1, 60, 16, 20, RISING, 0, false); v = b->in[3].data; v[30] = 150; v[31] = -150; v[50] = -800; v[51] = 790; output(b, y);)

/* Against a loop in double over the state, by decays: no step of it overflows, and lengths that were not seen before are served. */
static void masked_item(Ctx *cx, void *arg)
{
    enum { D = 16, E = 32 };
    Bench *b = arg;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    attends(b, 1, 200, D, E, DECAY, 0, true);
    Segment *seg = segment_new(cx, &b->dev->target, b->g, &(ProgramOptions){ .fuse = true });
    for (int64_t steps = 1; steps <= 200; steps += 199) {
        Tensor in[4], got = { 0 };
        int64_t *syms = NEWS(b->a, int64_t, b->g->sym.n + 1);
        const char *why = "";
        for (int k = 0; k < 4; k++) {
            in[k] = *tensor_new(b->a, cx, DT_f32, 3, (int64_t[]){ 1, steps, b->in[k].dims[2] });
            memcpy(in[k].data, b->in[k].data, tensor_bytes(&in[k]));
        }
        assert_true(segment_serves(cx, b->a, seg, in, syms, &why));
        segment_run(cx, b->a, seg, in, syms, &got, NULL, NULL);
        const float *q = in[0].data, *k = in[1].data, *v = in[2].data, *f = in[3].data, *y = got.data;
        double *c = NEWS(b->a, double, D * E);
        for (int64_t t = 0; t < steps; t++)
            for (int e = 0; e < E; e++) {
                double want = 0, size = 0;
                for (int d = 0; d < D; d++) {
                    c[d * E + e] = exp(-0.1 * fabs((double)f[t])) * c[d * E + e] + (double)k[t * D + d] * (double)v[t * E + e];
                    want += (double)q[t * D + d] * c[d * E + e];
                    size += fabs((double)q[t * D + d] * c[d * E + e]);
                }
                if (fabs((double)y[t * E + e] - want) > 4e-6 * (1 + size)) fail_msg("step %d, place %d: %.9g, wanted %.9g", (int)t, e, (double)y[t * E + e], want);
            }
    }
    segment_free(seg);
    arena_free(b->a);
}

static void masked_in_double(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, masked_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

/* Which of them become states: all forms and masks but that without the place itself, and few places; and how what fades is carried. */
static void chosen_item(Ctx *cx, void *arg)
{
    static const char *const carried[FORMS] = { [PLAIN] = "nothing fades", [DECAY] = "1 at most", [RISING] = "pivot", [EACH] = "1 at most", [DISTANCE] = "1 at most", [TABLE] = "nothing fades", [POWER] = "1 at most" };
    Bench *b = arg;
    for (int form = 0; form < FORMS; form++)
        for (int style = 0; style < 6; style++)
            for (int few = 0; few < 2; few++) {
                Receipts how = { 0 };
                Refusals why = { 0 };
                b->nin = 0;
                b->a = arena_new(cx);
                b->g = graph_new(cx, b->a);
                attends(b, 2, few ? 8 : 90, 16, 20, form, style, form != TABLE);
                const int want = !few && (style < 5 || form == TABLE), got = states_choose(cx, b->a, b->g, &how, &why);
                if (got != want || how.n != want) fail_msg("form %d, mask %d, %s places: %d states, wanted %d", form, style, few ? "few" : "many", got, want);
                if (want && !strstr(how.at[0].text, carried[form])) fail_msg("form %d, mask %d: %s", form, style, how.at[0].text);
                arena_free(b->a);
            }
}

static void chosen(void **state)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx };
    if (guard_call(&d->cx, chosen_item, &b) != E_OK) fail_msg("%s", d->cx.text);
}

static void random_masked(Bench *b)
{
    uint64_t at = 0;
    const int64_t heads = 1 + (int64_t)seed_draw(&at, 4), steps = 1 + (int64_t)seed_draw(&at, 120), d = 1 + (int64_t)seed_draw(&at, 20), e = 1 + (int64_t)seed_draw(&at, 40);
    const int form = (int)seed_draw(&at, FORMS), style = (int)seed_draw(&at, 6);
    attends(b, heads, steps, d, e, form, style, form != TABLE && seed_draw(&at, 2));
}

static void random_masks(void **state)
{
    for (seed_now = 1; seed_now <= 25; seed_now++) check(state, random_masked, 1e-4, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);       /* t_recur NAME: with * and ? */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns), cmocka_unit_test(columns_back), cmocka_unit_test(first_axis), cmocka_unit_test(last_axis), cmocka_unit_test(last_back), cmocka_unit_test(one_row),
        cmocka_unit_test(one_place), cmocka_unit_test(one_first), cmocka_unit_test(no_places), cmocka_unit_test(beside_sum), cmocka_unit_test(narrow), cmocka_unit_test(not_finite),
        cmocka_unit_test(state_head), cmocka_unit_test(state_rows), cmocka_unit_test(state_columns), cmocka_unit_test(state_one_step), cmocka_unit_test(state_in_double), cmocka_unit_test(random_graphs),
        cmocka_unit_test(masked), cmocka_unit_test(masked_symbol), cmocka_unit_test(masked_less), cmocka_unit_test(masked_number), cmocka_unit_test(masked_zero), cmocka_unit_test(masked_table),
        cmocka_unit_test(masked_decay), cmocka_unit_test(masked_rising), cmocka_unit_test(masked_each), cmocka_unit_test(masked_distance), cmocka_unit_test(masked_power), cmocka_unit_test(masked_far), cmocka_unit_test(masked_stacked), cmocka_unit_test(state_spread), cmocka_unit_test(masked_strictly), cmocka_unit_test(masked_few), cmocka_unit_test(masked_u8), cmocka_unit_test(masked_bool), cmocka_unit_test(masked_bits), cmocka_unit_test(masked_u32), cmocka_unit_test(masked_i32), cmocka_unit_test(masked_far_u32), cmocka_unit_test(masked_long),
        cmocka_unit_test(masked_kept), cmocka_unit_test(masked_normal), cmocka_unit_test(masked_normal_before), cmocka_unit_test(masked_quotient), cmocka_unit_test(masked_resets), cmocka_unit_test(masked_closed), cmocka_unit_test(masked_closed_first), cmocka_unit_test(masked_closed_each), cmocka_unit_test(masked_closed_pivot), cmocka_unit_test(masked_closed_row), cmocka_unit_test(masked_large), cmocka_unit_test(masked_in_double), cmocka_unit_test(chosen), cmocka_unit_test(random_masks),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
