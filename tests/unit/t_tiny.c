/* Weights below the normal numbers: columns of them are scaled and lie side by side. The interpreter must say the same before and after, up to the order of sums, for numbers
 * that are not finite and results below the normal ones too; kernels are compared with it. And what is left of them in the graph is counted. */
#include "graphs.h"
#include "fuse/fuse.h"

enum { ROWS = 9, DEEP = 24, WIDE = 48, LANES = 16 };

/* Weights [DEEP, WIDE]: columns of `dead`, a mask, have `each` tiny ones, and for the rest 0, or `beside` in one place. */
typedef struct Dead { uint64_t columns; int each; float beside; } Dead;
static Node *weights(Bench *b, const Dead *d)
{
    Tensor *t = tensor_new(b->a, b->cx, DT_f32, 2, (int64_t[]){ DEEP, WIDE });
    for (int k = 0; k < DEEP; k++)
        for (int c = 0; c < WIDE; c++) {
            uint64_t r = random_word(900 + (uint64_t)b->g->node.n, (uint64_t)(k * WIDE + c));
            bool dead = d->columns >> c & 1;
            ((float *)t->data)[k * WIDE + c] = !dead ? (float)(r % 2001) / 1000 - 1 : (k + c) % DEEP < d->each ? (r & 1 ? 1.7e-40f : -4e-42f) : (k + c) % DEEP == d->each ? d->beside : 0;
        }
    return g_const(b->g, t);
}

static Node *vector(Bench *b, int64_t n)
{
    Tensor *t = tensor_new(b->a, b->cx, DT_f32, 1, &n);
    for (int64_t j = 0; j < n; j++) ((float *)t->data)[j] = (float)(random_word(40 + (uint64_t)b->g->node.n, (uint64_t)j) % 2001) / 1000 - 1;
    return g_const(b->g, t);
}

static Node *product(Bench *b, Node *x, const Dead *d) { next(b); return g_matmul(b->g, x, weights(b, d)); }
static Node *sum_of_columns(Bench *b, Node *x) { next(b); return g_fold(b->g, FOLD_sum, x, 1u << (x->rank - 1), false); }

static bool below_normal(float f) { return f != 0 && fabsf(f) < 0x1p-126f; }

/* Vectors of weights of [DEEP, WIDE] that the outputs need with a number below the normal ones, and vectors of factors that scale sums back. */
static void count(Bench *b, int *slow, int *back)
{
    const uint8_t *live = graph_live(b->a, b->g);
    *slow = *back = 0;
    for (int id = 0; id < b->g->node.n; id++) {
        const Node *w = b->g->node.at[id];
        if (!live[id] || w->op != OP_const || w->dt != DT_f32 || w->rank == 0) continue;
        const float *f = w->tensor->data;
        for (int64_t at = 0; at < tensor_count(w->tensor); at += LANES) {
            bool tiny = false, factor = false;
            for (int64_t l = at; l < at + LANES && l < tensor_count(w->tensor); l++) { tiny |= below_normal(f[l]); factor |= w->rank == 1 && f[l] > 0 && f[l] < 0x1p-30f; }
            if (w->rank == 2 && w->dims[1]->c == WIDE) *slow += tiny;
            *back += factor;
        }
    }
}

typedef struct TinyItem { Bench *b; void (*build)(Bench *b); int made, slow, back; } TinyItem;
static void tiny_run(Ctx *cx, void *arg)
{
    static const float odd[] = { INFINITY, NAN, 3e38f, -3e38f, -INFINITY, 1e-39f, -0.0f };
    TinyItem *it = arg;
    Bench *b = it->b;
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
    it->build(b);
    int n = b->g->output.n, slow, back;
    for (int i = 0; i < b->nin; i++)                 /* in the last rows, the others are ordinary */
        for (int j = 0; j < 7; j++) ((float *)b->in[i].data)[(ROWS - 1 - j / 2) * DEEP + 5 * j % DEEP] = odd[j];
    Tensor *want = NEWS(b->a, Tensor, n + 1), *now = NEWS(b->a, Tensor, n + 1);
    interp_segment(cx, b->a, b->g, b->in, want);
    int made = tiny_choose(cx, b->a, b->g, LANES);
    graph_check(cx, b->g);
    count(b, &slow, &back);
    if (made != it->made || slow != it->slow || back != it->back) fail_msg("%d contractions, %d slow vectors, %d of factors; wanted %d, %d, %d", made, slow, back, it->made, it->slow, it->back);
    interp_segment(cx, b->a, b->g, b->in, now);
    for (int i = 0; i < n; i++) {
        compare(b, &now[i], &want[i], "rewritten", i);
        for (int64_t j = 0; j < tensor_count(&want[i]); j++) {
            float x = ((float *)now[i].data)[j], y = ((float *)want[i].data)[j];
            if (fabsf(y) < 1e-30f && fabsf(x - y) > 24 * 0x1p-149f) fail_msg("output %d: element %lld is %.9g, wanted %.9g", i, (long long)j, (double)x, (double)y);
        }
    }
    run(b, true, want);
    arena_free(b->a);
}

static void tiny_check(void **state, void (*build)(Bench *b), int made, int slow, int back)
{
    Shared *d = *state;
    Bench b = { .dev = d, .cx = &d->cx, .tolerance = 1e-4 };
    TinyItem it = { &b, build, made, slow, back };
    if (guard_call(&d->cx, tiny_run, &it) != E_OK) fail_msg("%s", d->cx.text);
}

#define TINY(name, made, slow, back, ...) \
    static void name##_graph(Bench *b) { Graph *g = b->g; (void)g; next(b); __VA_ARGS__ } \
    static void name(void **state) { tiny_check(state, name##_graph, made, slow, back); }

/* One column in each vector: they move into one, through what follows, to the sum over the columns. */
TINY(ends_in_a_sum, 1, 0, 1,
    Node *x = input(b, DT_f32, DIMS(ROWS, DEEP));
    Node *y = g2(g, OP_max, g2(g, OP_add, product(b, x, &(Dead){ 1ull << 3 | 1ull << 20 | 1ull << 40, 1, 0 }), vector(b, WIDE)), g_scalar(g, DT_f32, 0));
    Node *z = g2(g, OP_mul, y, g1(g, OP_exp, vector(b, WIDE)));
    output(b, sum_of_columns(b, z));
    output(b, g_fold(g, FOLD_max, z, 2, false));)
/* A product beside it, added to it, moves as well. */
TINY(with_its_fellow, 1, 0, 1,
    Node *x = input(b, DT_f32, DIMS(ROWS, DEEP));
    Node *y = product(b, x, &(Dead){ 1ull << 3 | 1ull << 20 | 1ull << 40, 1, 0 }), *z = product(b, g1(g, OP_neg, x), &(Dead){ 0, 0, 0 });
    output(b, sum_of_columns(b, g2(g, OP_add, y, z)));)
/* Both of a chain: the second one's rows are the first one's columns. */
TINY(one_after_the_other, 2, 0, 2,
    Node *x = input(b, DT_f32, DIMS(ROWS, DEEP)); Dead d = { 1ull << 1 | 1ull << 30, 2, 0 };
    Node *y = g_slice(g, product(b, x, &d), 1, dim_const(g, 0), dim_const(g, WIDE), 1);
    Tensor *t = tensor_new(b->a, b->cx, DT_f32, 2, (int64_t[]){ WIDE, WIDE });
    for (int i = 0; i < WIDE * WIDE; i++) ((float *)t->data)[i] = i % WIDE == 7 || i % WIDE == 25 ? 1e-41f : (float)(i * 37 % 101 - 50) / 64;
    next(b);
    output(b, sum_of_columns(b, g_matmul(g, y, g_const(g, t))));)
/* A result of the graph keeps its order: one weight in each vector stays, many are scaled where they are. */
TINY(a_result_stays, 0, 3, 0, output(b, product(b, input(b, DT_f32, DIMS(ROWS, DEEP)), &(Dead){ 1ull << 3 | 1ull << 20 | 1ull << 40, 1, 0 }));)
TINY(a_result_is_scaled, 1, 0, 3, output(b, product(b, input(b, DT_f32, DIMS(ROWS, DEEP)), &(Dead){ 1ull << 3 | 1ull << 20 | 1ull << 40, DEEP, 0 }));)
/* Larger weights beside tiny ones: a sum could overflow that does not. They move, unscaled. */
TINY(no_overflow, 1, 1, 0,
    Node *x = input(b, DT_f32, DIMS(ROWS, DEEP));
    output(b, sum_of_columns(b, product(b, x, &(Dead){ 1ull << 3 | 1ull << 27, 1, 1e-3f })));)
TINY(nor_of_a_result, 0, 3, 0, output(b, product(b, input(b, DT_f32, DIMS(ROWS, DEEP)), &(Dead){ 1ull << 3 | 1ull << 20 | 1ull << 40, 1, 0.5f }));)
TINY(a_join_stays, 0, 3, 0,
    Node *y = product(b, input(b, DT_f32, DIMS(ROWS, DEEP)), &(Dead){ 1ull << 3 | 1ull << 20 | 1ull << 40, 1, 0 });
    output(b, sum_of_columns(b, g_join(g, 2, (Node *[]){ y, g1(g, OP_abs, y) }, 1)));)
TINY(none, 0, 0, 0, output(b, product(b, input(b, DT_f32, DIMS(ROWS, DEEP)), &(Dead){ 0, 0, 0 }));)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_in_a_sum), cmocka_unit_test(with_its_fellow), cmocka_unit_test(one_after_the_other), cmocka_unit_test(a_result_stays), cmocka_unit_test(a_result_is_scaled),
        cmocka_unit_test(no_overflow), cmocka_unit_test(nor_of_a_result), cmocka_unit_test(a_join_stays), cmocka_unit_test(none),
    };
    return cmocka_run_group_tests_name("tiny", tests, open_all, close_all);
}
