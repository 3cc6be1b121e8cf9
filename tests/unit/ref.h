/* Ref: a second, naive meaning of tensors: values in an array, each operation a loop over the result's coordinates; and graphs whose results are compared with one. */
#ifndef SN_TEST_REF_H
#define SN_TEST_REF_H
#include "test.h"
#include "ir/ir.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REF_RANK = 6, REF_SIZE = 4096 };
typedef struct Ref { int rank; int64_t dims[REF_RANK]; int64_t n; double at[REF_SIZE]; } Ref;

static uint64_t seed;
static inline int below(int n) { seed = seed * 6364136223846793005u + 1442695040888963407u; return (int)((seed >> 33) % (uint64_t)n); }

static inline Ref *ref_new(Arena *a, int rank, const int64_t *dims)
{
    Ref *r = NEW(a, Ref);
    r->rank = rank;
    r->n = 1;
    for (int k = 0; k < rank; k++) r->n *= r->dims[k] = dims[k];
    assert_true(r->n <= REF_SIZE);
    return r;
}

static inline Ref *ref_count_up(Arena *a, int rank, const int64_t *dims)
{
    Ref *r = ref_new(a, rank, dims);
    for (int64_t j = 0; j < r->n; j++) r->at[j] = (double)(j + 1);
    return r;
}

static inline Ref *ref_noise(Arena *a, int rank, const int64_t *dims)
{
    Ref *r = ref_new(a, rank, dims);
    for (int64_t j = 0; j < r->n; j++) r->at[j] = (below(2001) - 1000) / 256.0;
    return r;
}

static inline void coords(const Ref *r, int64_t j, int64_t *at)
{
    for (int k = r->rank - 1; k >= 0; k--) { at[k] = j % r->dims[k]; j /= r->dims[k]; }
}

static inline int64_t place(const Ref *r, const int64_t *at)
{
    int64_t j = 0;
    for (int k = 0; k < r->rank; k++) {
        if (at[k] < 0 || at[k] >= r->dims[k]) return -1;
        j = j * r->dims[k] + at[k];
    }
    return j;
}

/* ---- the graph side ------------------------------------------------------------------------------------------------- */

typedef struct Bench { Ctx *cx; Arena *a; Graph *g; Tensor in[8]; int nin; int64_t sym[8]; } Bench;

static inline void with_graph(void (*fn)(Bench *b))
{
    static Ctx cx;
    ctx_init(&cx);
    cx.opt.fail = -1;
    Bench b = { .cx = &cx };
    b.a = arena_new(&cx);
    b.g = graph_new(&cx, b.a);
    fn(&b);
    arena_free(b.a);
}

/* Runs fn, which must raise code with a message that contains part. */
typedef struct Attempt { Bench *b; void (*fn)(Bench *b); } Attempt;
static inline void attempt_run(Ctx *cx, void *arg) { (void)cx; ((Attempt *)arg)->fn(((Attempt *)arg)->b); }
static inline void raises_build(Bench *b, Status code, const char *part, void (*fn)(Bench *b))
{
    Attempt t = { b, fn };
    assert_int_equal(guard_call(b->cx, attempt_run, &t), code);
    if (!strstr(b->cx->text, part)) { print_error("%s lacks '%s'\n", b->cx->text, part); assert_true(false); }
}

static inline void ref_store(Bench *b, Tensor *t, DType dt, const Ref *r)
{
    tensor_init(b->cx, t, dt, r->rank, r->dims);
    t->data = arena_alloc(b->a, tensor_bytes(t) + 1);
    for (int64_t j = 0; j < r->n; j++) {
        Scalar s = scalar_cast(dt, DT_f64, (Scalar){ .f = r->at[j] }, false);
        scalar_store(dt, (char *)t->data + dtype_size(dt) * (size_t)j, s);
    }
}

static inline Node *input(Bench *b, DType dt, const Ref *r)
{
    Tensor *t = &b->in[b->nin++];
    ref_store(b, t, dt, r);
    return graph_input(b->g, arena_fmt(b->a, "x%d", b->nin), dt, r->rank, r->dims, NULL, t);
}

static inline Dim **sizes(Bench *b, int n, const int64_t *v)
{
    Dim **d = NEWS(b->a, Dim *, n + 1);
    for (int k = 0; k < n; k++) d[k] = dim_const(b->g, v[k]);
    return d;
}
#define DIMS(...) (sizes(b, (int)COUNT_OF(((int64_t[]){ __VA_ARGS__ })), (int64_t[]){ __VA_ARGS__ }))
#define REF(...) (ref_noise(b->a, (int)COUNT_OF(((int64_t[]){ __VA_ARGS__ })), (int64_t[]){ __VA_ARGS__ }))

static inline void same_within(Bench *b, Node *y, const Ref *want, double tolerance)
{
    Tensor out;
    eval_nodes(b->cx, b->a, b->g, b->in, b->sym, 1, &y, &out);
    assert_int_equal(out.rank, want->rank);
    for (int k = 0; k < want->rank; k++) assert_int_equal(out.dims[k], want->dims[k]);
    for (int64_t j = 0; j < want->n; j++) {
        Scalar s = scalar_load(out.dt, tensor_at(&out, j));
        double got = dtype_is_float(out.dt) ? s.f : (double)s.i;
        bool ok = isnan(want->at[j]) ? isnan(got) : got == want->at[j] || (isfinite(want->at[j]) && fabs(got - want->at[j]) <= tolerance * fmax(1, fabs(want->at[j])));
        if (!ok) {
            print_error("element %lld of %s: %.9g, wanted %.9g\n", (long long)j, shape_str(b->a, want->rank, want->dims), got, want->at[j]);
            assert_true(ok);
        }
    }
}
static inline void same(Bench *b, Node *y, const Ref *want) { same_within(b, y, want, 0); }

/* ---- folds ---------------------------------------------------------------------------------------------------------------- */
static inline double combine(FoldKind kind, double a, double x)
{
    return kind == FOLD_sum ? a + x : kind == FOLD_prod ? a * x : kind == FOLD_max ? (x > a ? x : a) : (x < a ? x : a);
}

static inline double start_of(FoldKind kind)
{
    return kind == FOLD_sum ? 0 : kind == FOLD_prod ? 1 : kind == FOLD_max ? -INFINITY : INFINITY;
}

static inline Ref *ref_fold(Arena *a, FoldKind kind, const Ref *x, uint32_t axes, bool keep)
{
    int64_t dims[REF_RANK];
    int rank = 0;
    for (int k = 0; k < x->rank; k++) {
        if (!(axes & axis_bit(k))) dims[rank++] = x->dims[k];
        else if (keep) dims[rank++] = 1;
    }
    Ref *y = ref_new(a, rank, dims);
    for (int64_t j = 0; j < y->n; j++) y->at[j] = start_of(kind);
    for (int64_t j = 0; j < x->n; j++) {
        int64_t from[REF_RANK], to[REF_RANK];
        int n = 0;
        coords(x, j, from);
        for (int k = 0; k < x->rank; k++) {
            if (!(axes & axis_bit(k))) to[n++] = from[k];
            else if (keep) to[n++] = 0;
        }
        double *at = &y->at[place(y, to)];
        *at = combine(kind, *at, x->at[j]);
    }
    return y;
}

/* test_fn: fn with a graph of its own and the same random numbers each time */
#define TEST_WITH(fn) static void test_##fn(void **state) { (void)state; seed = 77; with_graph(fn); }
#endif
