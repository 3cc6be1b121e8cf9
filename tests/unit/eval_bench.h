/* A graph with its inputs, run by the reference interpreter, and what is expected of its results. */
#ifndef SN_TEST_EVAL_BENCH_H
#define SN_TEST_EVAL_BENCH_H
#include "test.h"
#include "ir/ir.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct Bench { Ctx cx; Arena *a; Graph *g; Tensor in[16]; int nin; int64_t syms[64]; } Bench;

static inline void bench_open(Bench *b, Ctx *cx)
{
    memset(b, 0, sizeof *b);
    b->a = arena_new(cx);
    b->g = graph_new(cx, b->a);
}

static inline Node *bench_input(Bench *b, DType dt, int rank, const int64_t *dims, const void *data)
{
    Tensor *t = &b->in[b->nin++];
    char name[8];
    tensor_init(b->g->cx, t, dt, rank, dims);
    t->data = (void *)data;
    snprintf(name, sizeof name, "x%d", b->nin);
    return graph_input(b->g, name, dt, rank, dims, NULL, t);
}

static inline Tensor bench_run(Bench *b, Node *n)
{
    Tensor t;
    graph_check(b->g->cx, b->g);
    for (int k = 0; k < b->g->sym.n; k++)
        b->syms[k] = b->g->sym.at[k].hint;
    eval_nodes(b->g->cx, b->a, b->g, b->in, b->syms, 1, &n, &t);
    assert_true(t.dt == n->dt && t.rank == n->rank && tensor_dense(&t));
    return t;
}

static inline Node *vec_f32(Bench *b, int n, const float *v)
{
    return bench_input(b, DT_f32, 1, (int64_t[]){ n }, v);
}
static inline Node *vec_i64(Bench *b, int n, const int64_t *v)
{
    return bench_input(b, DT_i64, 1, (int64_t[]){ n }, v);
}

static inline bool same_float(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static inline void expect_f32(Tensor t, int n, const float *want)
{
    assert_int_equal(t.dt, DT_f32);
    assert_int_equal(tensor_count(&t), n);
    for (int k = 0; k < n; k++)
        if (!same_float(((float *)t.data)[k], want[k]))
            fail_msg("element %d is %g, wanted %g", k, (double)((float *)t.data)[k], (double)want[k]);
}

static inline void expect_i64(Tensor t, int n, const int64_t *want)
{
    assert_int_equal(t.dt, DT_i64);
    assert_int_equal(tensor_count(&t), n);
    for (int k = 0; k < n; k++)
        if (((int64_t *)t.data)[k] != want[k])
            fail_msg("element %d is %lld, wanted %lld", k, (long long)((int64_t *)t.data)[k],
                     (long long)want[k]);
}

/* Every test body runs under a guard; a raised error fails it with its message. */
static inline void run_body(void (*body)(Ctx *, void *), void *arg)
{
    Ctx cx;
    ctx_init(&cx);
    Status s = guard_call(&cx, body, arg);
    if (s != E_OK)
        fail_msg("%s: %s", status_name(s), cx.text);
}
#define TEST(name) \
    static void body_##name(Bench *b); \
    static void guarded_##name(Ctx *cx, void *arg) \
    { Bench *b = arg; bench_open(b, cx); body_##name(b); arena_free(b->a); } \
    static void test_##name(void **state) { (void)state; Bench b; run_body(guarded_##name, &b); } \
    static void body_##name(Bench *b)

/* In [-1, 1). */
static inline float noise(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int)(*seed >> 8) / 8388608.0f - 1.0f;
}
#endif
