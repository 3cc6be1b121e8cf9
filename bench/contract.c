/* Contractions against oneDNN: matrix products in float32, bfloat16 and bytes, convolutions in float32; one thread, weights known beforehand (both sides lay them out as they like).
 *
 * oneDNN's primitives are made with weights of format `any` and, where asked for, its own post-ops; images are channels last on both sides. Contenders take
 * turns in one run; medians, and the ratio of the medians. Products of matrices are compared with sums in double, both sides' (some rows of them).
 *
 *     bench_contract gemm|conv [--f32|--bf16|--int8] [--plain] [--gelu] [SIZES...]    SIZES: one of one's own, m n k or h w in out kernel stride groups; built only where oneDNN's header is (Debian: libdnnl-dev); the kernels themselves never need it */
#include "api/api.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 31 };

typedef struct Gemm { int64_t m, n, k; } Gemm;
static const Gemm gemms[] = { { 64, 64, 64 }, { 128, 128, 128 }, { 256, 256, 256 }, { 512, 512, 512 }, { 1024, 1024, 1024 }, { 128, 3072, 768 }, { 512, 768, 3072 }, { 3136, 64, 576 }, { 1, 4096, 4096 } };
typedef struct Conv { const char *name; int64_t h, w, in, out, kernel, stride, groups; } Conv;
static const Conv convs[] = { { "3x3 56x56x64->64", 56, 56, 64, 64, 3, 1, 1 }, { "3x3 28x28x128->128", 28, 28, 128, 128, 3, 1, 1 }, { "1x1 56x56x64->256", 56, 56, 64, 256, 1, 1, 1 },
    { "depthwise 3x3 112x112x32", 112, 112, 32, 32, 3, 1, 32 }, { "3x3/2 224x224x3->32", 224, 224, 3, 32, 3, 2, 1 } };

/* Windows that Winograd's form is for: ours with leave for it and without. */
static const Conv squares[] = { { "3x3 56x56x64->64", 56, 56, 64, 64, 3, 1, 1 }, { "3x3 28x28x128->128", 28, 28, 128, 128, 3, 1, 1 }, { "3x3 14x14x256->256", 14, 14, 256, 256, 3, 1, 1 },
    { "3x3 7x7x512->512", 7, 7, 512, 512, 3, 1, 1 } };

typedef struct Side { dnnl_primitive_t primitive; dnnl_exec_arg_t arg[8]; int narg; dnnl_stream_t stream; } Side;

static void need(Ctx *cx, dnnl_status_t s, const char *what) { if (s != dnnl_success) fail(cx, E_DEVICE, "oneDNN: %s: status %d", what, (int)s); }

/* Numbers of a type: from -1 to 1, or all that a byte holds. */
static void *filled_as(Ctx *cx, DType t, int64_t n, uint64_t seed)
{
    uint8_t *p = block_alloc((size_t)n * dtype_size(t));
    if (!p) fail(cx, E_NOMEM, "no memory for a benchmark");
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = random_word(seed, (uint64_t)i);
        scalar_store(t, p + (size_t)i * dtype_size(t), dtype_is_float(t) ? (Scalar){ .f = (double)(r >> 11) * 0x1p-52 - 1 } : (Scalar){ .i = (int64_t)(r & 255) - (t == DT_i8 ? 128 : 0) });
    }
    return p;
}

static void side_arg(Ctx *cx, Side *s, dnnl_engine_t e, int what, const dnnl_memory_desc_t *d, void *data)
{
    dnnl_memory_t m;
    need(cx, dnnl_memory_create(&m, d, e, data ? data : DNNL_MEMORY_ALLOCATE), "memory");
    s->arg[s->narg++] = (dnnl_exec_arg_t){ what, m };
}

/* Weights in the form that the primitive wants. */
static void side_weights(Ctx *cx, Side *s, dnnl_engine_t e, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, void *data)
{
    side_arg(cx, s, e, DNNL_ARG_WEIGHTS, to, NULL);
    dnnl_memory_t plain, own = s->arg[s->narg - 1].memory;
    need(cx, dnnl_memory_create(&plain, from, e, data), "memory");
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    need(cx, dnnl_reorder_primitive_desc_create(&pd, from, e, to, e, NULL), "reorder");
    need(cx, dnnl_primitive_create(&p, pd), "reorder");
    dnnl_exec_arg_t arg[2] = { { DNNL_ARG_FROM, plain }, { DNNL_ARG_TO, own } };
    need(cx, dnnl_primitive_execute(p, s->stream, 2, arg), "reorder");
    need(cx, dnnl_stream_wait(s->stream), "reorder");
    dnnl_primitive_destroy(p);
    dnnl_primitive_desc_destroy(pd);
    dnnl_memory_destroy(plain);
}

static void side_free(Side *s)
{
    for (int i = 0; i < s->narg; i++) dnnl_memory_destroy(s->arg[i].memory);
    dnnl_primitive_destroy(s->primitive);
}

static Node *known(Graph *g, Arena *a, DType dt, int rank, const int64_t *dims, void *data)
{
    Tensor *t = NEW(a, Tensor);
    tensor_init(g->cx, t, dt, rank, dims);
    t->data = data;
    return g_const(g, t);
}

static int by_seconds(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

/* Both in turn; prints the line. *result: what ours gave, the caller's to free. */
static double race(Ctx *cx, const Target *t, Graph *g, const char *name, double flops, Tensor *in, Side *theirs, DType dt, int64_t count, void **result)
{
    Segment *s = segment_new(cx, t, g, &(ProgramOptions){ .fuse = true, .threads = 1 });
    size_t bytes = (size_t)count * dtype_size(dt);
    Tensor out = { .data = *result = filled_as(cx, dt, count, 9) };
    double sec[2][RUNS];
    int64_t syms[4] = { 0 };
    for (int r = -2; r < RUNS; r++) {
        Arena *own = arena_new(cx);
        double t0 = time_now();
        segment_run(cx, own, s, in, syms, &out, &bytes, NULL);
        double t1 = time_now();
        need(cx, dnnl_primitive_execute(theirs->primitive, theirs->stream, theirs->narg, theirs->arg), "run");
        need(cx, dnnl_stream_wait(theirs->stream), "run");
        double t2 = time_now();
        arena_free(own);
        if (r < 0) continue;
        sec[0][r] = t1 - t0;
        sec[1][r] = t2 - t1;
    }
    for (int k = 0; k < 2; k++) qsort(sec[k], RUNS, sizeof(double), by_seconds);
    double ours = sec[0][RUNS / 2], other = sec[1][RUNS / 2];
    printf("%-34s %9.3f ms %7.1f GFLOP/s   %9.3f ms %7.1f GFLOP/s   %5.2f\n", name, ours * 1e3, flops / ours / 1e9, other * 1e3, flops / other / 1e9, other / ours);
    fflush(stdout);
    segment_free(s);
    return other / ours;
}

static dnnl_primitive_attr_t epilogue(Ctx *cx, dnnl_alg_kind_t kind)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    need(cx, dnnl_primitive_attr_create(&attr), "attributes");
    need(cx, dnnl_post_ops_create(&ops), "post-ops");
    need(cx, dnnl_post_ops_append_eltwise(ops, 1, kind, 0, 0), "post-ops");
    need(cx, dnnl_primitive_attr_set_post_ops(attr, ops), "post-ops");
    dnnl_post_ops_destroy(ops);
    return attr;
}

/* Matrix products of numbers of these types; oneDNN's matmul of the same. */
typedef struct Kind { const char *name; DType x, w, y; dnnl_data_type_t dx, dw, dy; double close; } Kind;
static const Kind kinds[] = {
    { "f32", DT_f32, DT_f32, DT_f32, dnnl_f32, dnnl_f32, dnnl_f32, 1e-4 },
    { "bf16", DT_bf16, DT_bf16, DT_bf16, dnnl_bf16, dnnl_bf16, dnnl_bf16, 8e-3 },
    { "int8", DT_u8, DT_i8, DT_i32, dnnl_u8, dnnl_s8, dnnl_s32, 0 },
};

static double *as_double(Ctx *cx, DType t, const void *p, int64_t n)
{
    double *d = block_alloc((size_t)n * sizeof *d);
    if (!d) fail(cx, E_NOMEM, "no memory for a benchmark");
    for (int64_t i = 0; i < n; i++) {
        Scalar v = scalar_load(t, (const uint8_t *)p + (size_t)i * dtype_size(t));
        d[i] = dtype_is_float(t) ? v.f : (double)v.i;
    }
    return d;
}

/* Rows of a result, spread over all of them, against sums in double. */
enum { CHECKED_ROWS = 24 };
static void check_gemm(Ctx *cx, const Gemm *c, const Kind *kind, const void *x, const void *w, const float *b, const void *y, const char *whose)
{
    double *dx = as_double(cx, kind->x, x, c->m * c->k), *dw = as_double(cx, kind->w, w, c->k * c->n), *dy = as_double(cx, kind->y, y, c->m * c->n);
    double *sum = block_alloc((size_t)c->n * 2 * sizeof *sum);
    if (!sum) fail(cx, E_NOMEM, "no memory for a benchmark");
    for (int64_t r = 0; r < CHECKED_ROWS && r < c->m; r++) {
        int64_t i = c->m <= CHECKED_ROWS ? r : r * (c->m - 1) / (CHECKED_ROWS - 1);
        double *size = sum + c->n;
        for (int64_t j = 0; j < 2 * c->n; j++) sum[j] = 0;
        for (int64_t k = 0; k < c->k; k++)
            for (int64_t j = 0; j < c->n; j++) { double p = dx[i * c->k + k] * dw[k * c->n + j]; sum[j] += p; size[j] += fabs(p); }
        for (int64_t j = 0; j < c->n; j++) {
            double want = sum[j] + (b ? b[j] : 0), got = dy[i * c->n + j], from = size[j] * 1e-6;
            if (b) want = 0.5 * want * (1 + erf(want * 0.70710678118654752));
            if (!(fabs(got - want) <= kind->close * (0.01 + fabs(want)) + from * (kind->close > 0))) fail(cx, E_INVALID, "%s: element %lld,%lld is %.9g, wanted %.9g", whose, (long long)i, (long long)j, got, want);
        }
    }
    block_free(dx); block_free(dw); block_free(dy); block_free(sum);
}

static double run_gemm(Ctx *cx, const Target *t, dnnl_engine_t e, dnnl_stream_t stream, const Gemm *c, const Kind *kind, bool gelu)
{
    Arena *a = arena_new(cx);
    int64_t dx[DNNL_MAX_NDIMS] = { c->m, c->k }, dw[DNNL_MAX_NDIMS] = { c->k, c->n }, dy[DNNL_MAX_NDIMS] = { c->m, c->n }, db[DNNL_MAX_NDIMS] = { 1, c->n };
    void *x = filled_as(cx, kind->x, c->m * c->k, 1), *w = filled_as(cx, kind->w, c->k * c->n, 2), *y = filled_as(cx, kind->y, c->m * c->n, 4);
    float *b = filled_as(cx, DT_f32, c->n, 3);
    Side s = { .stream = stream };
    dnnl_memory_desc_t mx, mw, mplain, my, mb;
    need(cx, dnnl_memory_desc_init_by_tag(&mx, 2, dx, kind->dx, dnnl_ab), "x");
    need(cx, dnnl_memory_desc_init_by_tag(&mw, 2, dw, kind->dw, dnnl_format_tag_any), "w");
    need(cx, dnnl_memory_desc_init_by_tag(&mplain, 2, dw, kind->dw, dnnl_ab), "w");
    need(cx, dnnl_memory_desc_init_by_tag(&my, 2, dy, kind->dy, dnnl_ab), "y");
    need(cx, dnnl_memory_desc_init_by_tag(&mb, 2, db, dnnl_f32, dnnl_ab), "b");
    dnnl_matmul_desc_t d;
    need(cx, dnnl_matmul_desc_init(&d, &mx, &mw, gelu ? &mb : NULL, &my), "matmul");
    dnnl_primitive_attr_t attr = gelu ? epilogue(cx, dnnl_eltwise_gelu_erf) : NULL;
    dnnl_primitive_desc_t pd;
    need(cx, dnnl_primitive_desc_create(&pd, &d, attr, e, NULL), "matmul");
    need(cx, dnnl_primitive_create(&s.primitive, pd), "matmul");
    side_arg(cx, &s, e, DNNL_ARG_SRC, &mx, x);
    side_weights(cx, &s, e, &mplain, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), w);
    side_arg(cx, &s, e, DNNL_ARG_DST, &my, y);
    if (gelu) side_arg(cx, &s, e, DNNL_ARG_BIAS, &mb, b);
    need(cx, dnnl_primitive_execute(s.primitive, stream, s.narg, s.arg), "matmul");
    need(cx, dnnl_stream_wait(stream), "matmul");
    check_gemm(cx, c, kind, x, w, gelu ? b : NULL, y, "oneDNN");
    Graph *g = graph_new(cx, a);
    Tensor in;
    tensor_init(cx, &in, kind->x, 2, dx);
    Tensor hint = in;
    in.data = x;
    Node *left = graph_input(g, "x", kind->x, 2, dx, NULL, &hint), *right = known(g, a, kind->w, 2, dw, w);
    DType wide = kind->x == DT_u8 ? DT_i32 : DT_f32;
    Node *r = g_matmul(g, g_cast(g, left, wide), g_cast(g, right, wide));
    if (gelu) {
        r = g2(g, OP_add, r, known(g, a, DT_f32, 2, db, b));
        Node *half = g_scalar(g, DT_f32, 0.5), *h = g1(g, OP_erf, g2(g, OP_mul, r, g_scalar(g, DT_f32, 0.70710678118654752)));
        r = g2(g, OP_mul, g2(g, OP_mul, r, half), g2(g, OP_add, h, g_scalar(g, DT_f32, 1)));
    }
    graph_output(g, "y", g_cast(g, r, kind->y));
    void *out;
    double ratio = race(cx, t, g, arena_fmt(a, "%lldx%lldx%lld%s", (long long)c->m, (long long)c->n, (long long)c->k, gelu ? " +bias+gelu" : ""), 2.0 * (double)c->m * (double)c->n * (double)c->k, &in, &s, kind->y, c->m * c->n, &out);
    check_gemm(cx, c, kind, x, w, gelu ? b : NULL, out, "sinter");
    side_free(&s);
    dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    block_free(x); block_free(w); block_free(b); block_free(y); block_free(out);
    arena_free(a);
    return ratio;
}

/* The sum of a convolution in the model's order [1, M, out...], of x [1, C, H, W] and w [M, C / groups, k, k]. */
static Node *conv_of(Graph *g, const Conv *c, Node *x, Node *w, int64_t oh, int64_t ow)
{
    bool deep = c->groups > 1;           /* one channel each */
    int64_t size[7] = { 1, c->out, oh, ow, deep ? 1 : c->in, c->kernel, c->kernel };
    Dim *dims[7], *i[7];
    for (int k = 0; k < 7; k++) { dims[k] = dim_const(g, size[k]); i[k] = dim_idx(g, k, dims[k]); }
    Dim *h = dim_addc(g, dim_add(g, dim_mulc(g, i[2], c->stride), i[5]), -(c->kernel / 2)), *v = dim_addc(g, dim_add(g, dim_mulc(g, i[3], c->stride), i[6]), -(c->kernel / 2));
    Dim *xi[4] = { i[0], deep ? i[1] : i[4], h, v }, *wi[4] = { i[1], i[4], i[5], i[6] };
    Pred pred[2] = { { h, dim_const(g, c->h) }, { v, dim_const(g, c->w) } };
    Node *px = g_view(g, x, 7, dims, &(View){ .nidx = 4, .idx = xi, .npred = c->kernel > 1 ? 2 : 0, .pred = pred }), *pw = g_view(g, w, 7, dims, &(View){ .nidx = 4, .idx = wi });
    return g_fold(g, FOLD_sum, g2(g, OP_mul, px, pw), axis_bit(4) | axis_bit(5) | axis_bit(6), false);
}

static double run_conv(Ctx *cx, const Target *t, dnnl_engine_t e, dnnl_stream_t stream, const Conv *c)
{
    Arena *a = arena_new(cx);
    int64_t pad = c->kernel / 2, oh = (c->h + 2 * pad - c->kernel) / c->stride + 1, ow = (c->w + 2 * pad - c->kernel) / c->stride + 1, per = c->in / c->groups;
    int64_t dx[DNNL_MAX_NDIMS] = { 1, c->in, c->h, c->w }, dy[DNNL_MAX_NDIMS] = { 1, c->out, oh, ow }, dw[DNNL_MAX_NDIMS] = { c->out, per, c->kernel, c->kernel }, dg[DNNL_MAX_NDIMS] = { c->groups, c->out / c->groups, per, c->kernel, c->kernel }, db[DNNL_MAX_NDIMS] = { c->out };
    int64_t nx = c->h * c->w * c->in, ny = oh * ow * c->out, nw = c->out * per * c->kernel * c->kernel;
    float *x = filled_as(cx, DT_f32, nx, 1), *w = filled_as(cx, DT_f32, nw, 2), *b = filled_as(cx, DT_f32, c->out, 3), *y = filled_as(cx, DT_f32, ny, 4);
    bool deep = c->groups > 1;
    Side s = { .stream = stream };
    dnnl_memory_desc_t mx, mw, mplain, my, mb;
    need(cx, dnnl_memory_desc_init_by_tag(&mx, 4, dx, dnnl_f32, dnnl_nhwc), "x");
    need(cx, dnnl_memory_desc_init_by_tag(&mw, deep ? 5 : 4, deep ? dg : dw, dnnl_f32, dnnl_format_tag_any), "w");
    need(cx, dnnl_memory_desc_init_by_tag(&mplain, deep ? 5 : 4, deep ? dg : dw, dnnl_f32, deep ? dnnl_goihw : dnnl_oihw), "w");
    need(cx, dnnl_memory_desc_init_by_tag(&my, 4, dy, dnnl_f32, dnnl_nhwc), "y");
    need(cx, dnnl_memory_desc_init_by_tag(&mb, 1, db, dnnl_f32, dnnl_x), "b");
    dnnl_convolution_desc_t d;
    int64_t strides[DNNL_MAX_NDIMS] = { c->stride, c->stride }, pads[DNNL_MAX_NDIMS] = { pad, pad };
    need(cx, dnnl_convolution_forward_desc_init(&d, dnnl_forward_inference, dnnl_convolution_direct, &mx, &mw, &mb, &my, strides, pads, pads), "convolution");
    dnnl_primitive_attr_t attr = epilogue(cx, dnnl_eltwise_relu);
    dnnl_primitive_desc_t pd;
    need(cx, dnnl_primitive_desc_create(&pd, &d, attr, e, NULL), "convolution");
    need(cx, dnnl_primitive_create(&s.primitive, pd), "convolution");
    side_arg(cx, &s, e, DNNL_ARG_SRC, &mx, x);
    side_weights(cx, &s, e, &mplain, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), w);
    side_arg(cx, &s, e, DNNL_ARG_DST, &my, y);
    side_arg(cx, &s, e, DNNL_ARG_BIAS, &mb, b);
    need(cx, dnnl_primitive_execute(s.primitive, stream, s.narg, s.arg), "convolution");
    need(cx, dnnl_stream_wait(stream), "convolution");
    Graph *g = graph_new(cx, a);
    int64_t last[4] = { 1, c->h, c->w, c->in }, plane[3] = { c->out, 1, 1 };
    Tensor in;
    tensor_init(cx, &in, DT_f32, 4, last);
    Tensor hint = in;
    in.data = x;
    Node *image = g_transpose(g, graph_input(g, "x", DT_f32, 4, last, NULL, &hint), (int[]){ 0, 3, 1, 2 });
    Node *r = g2(g, OP_add, conv_of(g, c, image, known(g, a, DT_f32, 4, dw, w), oh, ow), known(g, a, DT_f32, 3, plane, b));
    graph_output(g, "y", g_transpose(g, g2(g, OP_max, r, g_scalar(g, DT_f32, 0)), (int[]){ 0, 2, 3, 1 }));
    void *out;
    double ratio = race(cx, t, g, c->name, 2.0 * (double)(ny * per * c->kernel * c->kernel), &in, &s, DT_f32, ny, &out);
    for (int64_t i = 0; i < ny; i++) {
        float got = ((float *)out)[i];
        if (!(fabsf(got - y[i]) <= 1e-3f * (1 + fabsf(y[i])))) fail(cx, E_INVALID, "%s: element %lld is %.9g, oneDNN says %.9g", c->name, (long long)i, got, y[i]);
    }
    side_free(&s);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    block_free(x); block_free(w); block_free(b); block_free(y); block_free(out);
    arena_free(a);
    return ratio;
}

typedef struct Asked { const char *what; const Kind *kind; bool plain, gelu; int n; int64_t size[7]; } Asked;

static void run_all(Ctx *cx, void *arg)
{
    const Asked *asked = arg;
    const char *what = asked->what;
    Arena *a = arena_new(cx);
    Target t = { 0 };
    cx->opt.threads = 1;
    target_open(cx, a, &cx->opt, &t);
    dnnl_engine_t e;
    dnnl_stream_t stream;
    need(cx, dnnl_engine_create(&e, dnnl_cpu, 0), "engine");
    need(cx, dnnl_stream_create(&stream, e, dnnl_stream_default_flags), "stream");
    printf("%-34s %12s %15s   %12s %15s   %s\n", what, "sinter", "", "oneDNN", "", "their time / ours");
    const int64_t *z = asked->size;
    if (!strcmp(what, "gemm") && asked->n == 3) {
        for (int gelu = !asked->plain; gelu <= asked->gelu; gelu++) run_gemm(cx, &t, e, stream, &(Gemm){ z[0], z[1], z[2] }, asked->kind, gelu);
    } else if (!strcmp(what, "conv") && asked->n == 7) run_conv(cx, &t, e, stream, &(Conv){ "as asked", z[0], z[1], z[2], z[3], z[4], z[5], z[6] });
    else if (!strcmp(what, "gemm"))
        for (int gelu = !asked->plain; gelu <= asked->gelu; gelu++) {
            double sum = 0, least = 1e9;
            for (size_t i = 0; i < COUNT_OF(gemms); i++) { double r = run_gemm(cx, &t, e, stream, &gemms[i], asked->kind, gelu); sum += log(r); if (r < least) least = r; }
            printf("%s%-30s geometric mean %.3f, least %.3f\n", asked->kind->name, gelu ? " with bias and gelu" : "", exp(sum / (double)COUNT_OF(gemms)), least);
            fflush(stdout);
        }
    else {
        double sum = 0, least = 1e9;
        for (size_t i = 0; i < COUNT_OF(convs); i++) { double r = run_conv(cx, &t, e, stream, &convs[i]); sum += log(r); if (r < least) least = r; }
        printf("%-34s geometric mean %.3f, least %.3f\n", "with bias and relu", exp(sum / (double)COUNT_OF(convs)), least);
        for (size_t i = 0; i < COUNT_OF(squares); i++) {
            Conv tiles = squares[i];
            tiles.name = arena_fmt(a, "%s, Winograd", tiles.name);
            double direct = run_conv(cx, &t, e, stream, &squares[i]);
            cx->opt.allow = "winograd";
            double by_tiles = run_conv(cx, &t, e, stream, &tiles);
            cx->opt.allow = NULL;
            printf("%-34s %.2f times as fast as without leave\n", tiles.name, by_tiles / direct);
        }
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(e);
    target_close(&t);
    arena_free(a);
}

int main(int argc, char **argv)
{
    Asked asked = { .what = argc > 1 ? argv[1] : "gemm", .kind = &kinds[0] };
    for (int i = 2; i < argc; i++) {
        bool word = argv[i][0] == '-' && argv[i][1] == '-', known_word = false;
        if (!word) { if (asked.n < 7) asked.size[asked.n++] = strtoll(argv[i], NULL, 10); continue; }
        for (size_t k = 0; k < COUNT_OF(kinds); k++) if (!strcmp(argv[i] + 2, kinds[k].name)) { asked.kind = &kinds[k]; known_word = true; }
        if (!strcmp(argv[i], "--plain")) asked.plain = known_word = true;
        if (!strcmp(argv[i], "--gelu")) asked.gelu = known_word = true;
        if (!known_word) { fprintf(stderr, "bench: %s is not known; wanted --f32, --bf16, --int8, --plain, --gelu\n", argv[i]); return 1; }
    }
    if (!asked.plain && !asked.gelu) { asked.plain = true; asked.gelu = asked.kind->y != DT_i32; }
    Ctx cx;
    ctx_init(&cx);
    if (guard_call(&cx, run_all, &asked) == E_OK) return 0;
    fprintf(stderr, "bench: %s\n", cx.text);
    return 1;
}
