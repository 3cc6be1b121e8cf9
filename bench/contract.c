/* Contractions against oneDNN: matrix products and convolutions in float32, one thread, weights known beforehand (both sides lay them out as they like).
 *
 * oneDNN's primitives are made with weights of format `any` and, where asked for, its own post-ops; images are channels last on both sides. Contenders take
 * turns in one run; medians, and the ratio of the medians. Values are compared before anything is timed.
 *
 *     bench_contract gemm|conv [SIZES...]    SIZES: one of one's own, m n k or h w in out kernel stride groups; built only where oneDNN's header is (Debian: libdnnl-dev); the kernels themselves never need it */
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

typedef struct Side { dnnl_primitive_t primitive; dnnl_exec_arg_t arg[8]; int narg; dnnl_stream_t stream; } Side;

static void need(Ctx *cx, dnnl_status_t s, const char *what) { if (s != dnnl_success) fail(cx, E_DEVICE, "oneDNN: %s: status %d", what, (int)s); }

static float *filled(Ctx *cx, int64_t n, uint64_t seed, float scale)
{
    float *p = block_alloc((size_t)n * sizeof *p);
    if (!p) fail(cx, E_NOMEM, "no memory for a benchmark");
    for (int64_t i = 0; i < n; i++) p[i] = scale * (float)((double)(random_word(seed, (uint64_t)i) >> 11) * 0x1p-52 - 1);
    return p;
}

static void side_arg(Ctx *cx, Side *s, dnnl_engine_t e, int what, const dnnl_memory_desc_t *d, void *data)
{
    dnnl_memory_t m;
    need(cx, dnnl_memory_create(&m, d, e, data ? data : DNNL_MEMORY_ALLOCATE), "memory");
    s->arg[s->narg++] = (dnnl_exec_arg_t){ what, m };
}

/* Weights in the form that the primitive wants. */
static void side_weights(Ctx *cx, Side *s, dnnl_engine_t e, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, float *data)
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

static Node *known(Graph *g, Arena *a, int rank, const int64_t *dims, float *data)
{
    Tensor *t = NEW(a, Tensor);
    tensor_init(g->cx, t, DT_f32, rank, dims);
    t->data = data;
    return g_const(g, t);
}

static int by_seconds(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

/* Both in turn; prints the line. */
static double race(Ctx *cx, const Target *t, Graph *g, const char *name, double flops, Tensor *in, Side *theirs, const float *want, int64_t count)
{
    Segment *s = segment_new(cx, t, g, &(ProgramOptions){ .fuse = true, .threads = 1 });
    Tensor out = { .data = filled(cx, count, 9, 0) };
    size_t bytes = (size_t)count * 4;
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
        if (r == -2)
            for (int64_t i = 0; i < count; i++) {
                float x = ((float *)out.data)[i];
                if (!(fabsf(x - want[i]) <= 1e-3f * (1 + fabsf(want[i])))) fail(cx, E_INVALID, "%s: element %lld is %.9g, oneDNN says %.9g", name, (long long)i, x, want[i]);
            }
        if (r < 0) continue;
        sec[0][r] = t1 - t0;
        sec[1][r] = t2 - t1;
    }
    for (int k = 0; k < 2; k++) qsort(sec[k], RUNS, sizeof(double), by_seconds);
    double ours = sec[0][RUNS / 2], other = sec[1][RUNS / 2];
    printf("%-34s %9.3f ms %7.1f GFLOP/s   %9.3f ms %7.1f GFLOP/s   %5.2f\n", name, ours * 1e3, flops / ours / 1e9, other * 1e3, flops / other / 1e9, other / ours);
    fflush(stdout);
    segment_free(s);
    block_free(out.data);
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

static double run_gemm(Ctx *cx, const Target *t, dnnl_engine_t e, dnnl_stream_t stream, const Gemm *c, bool gelu)
{
    Arena *a = arena_new(cx);
    int64_t dx[DNNL_MAX_NDIMS] = { c->m, c->k }, dw[DNNL_MAX_NDIMS] = { c->k, c->n }, dy[DNNL_MAX_NDIMS] = { c->m, c->n }, db[DNNL_MAX_NDIMS] = { 1, c->n };
    float *x = filled(cx, c->m * c->k, 1, 1), *w = filled(cx, c->k * c->n, 2, 1), *b = filled(cx, c->n, 3, 1), *y = filled(cx, c->m * c->n, 4, 0);
    Side s = { .stream = stream };
    dnnl_memory_desc_t mx, mw, mplain, my, mb;
    need(cx, dnnl_memory_desc_init_by_tag(&mx, 2, dx, dnnl_f32, dnnl_ab), "x");
    need(cx, dnnl_memory_desc_init_by_tag(&mw, 2, dw, dnnl_f32, dnnl_format_tag_any), "w");
    need(cx, dnnl_memory_desc_init_by_tag(&mplain, 2, dw, dnnl_f32, dnnl_ab), "w");
    need(cx, dnnl_memory_desc_init_by_tag(&my, 2, dy, dnnl_f32, dnnl_ab), "y");
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
    Graph *g = graph_new(cx, a);
    Tensor in;
    tensor_init(cx, &in, DT_f32, 2, dx);
    Tensor hint = in;
    in.data = x;
    Node *r = g_matmul(g, graph_input(g, "x", DT_f32, 2, dx, NULL, &hint), known(g, a, 2, dw, w));
    if (gelu) {
        r = g2(g, OP_add, r, known(g, a, 2, db, b));
        Node *half = g_scalar(g, DT_f32, 0.5), *h = g1(g, OP_erf, g2(g, OP_mul, r, g_scalar(g, DT_f32, 0.70710678118654752)));
        r = g2(g, OP_mul, g2(g, OP_mul, r, half), g2(g, OP_add, h, g_scalar(g, DT_f32, 1)));
    }
    graph_output(g, "y", r);
    double ratio = race(cx, t, g, arena_fmt(a, "%lldx%lldx%lld%s", (long long)c->m, (long long)c->n, (long long)c->k, gelu ? " +bias+gelu" : ""), 2.0 * (double)c->m * (double)c->n * (double)c->k, &in, &s, y, c->m * c->n);
    side_free(&s);
    dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    block_free(x); block_free(w); block_free(b); block_free(y);
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
    float *x = filled(cx, nx, 1, 1), *w = filled(cx, nw, 2, 1), *b = filled(cx, c->out, 3, 1), *y = filled(cx, ny, 4, 0);
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
    Node *r = g2(g, OP_add, conv_of(g, c, image, known(g, a, 4, dw, w), oh, ow), known(g, a, 3, plane, b));
    graph_output(g, "y", g_transpose(g, g2(g, OP_max, r, g_scalar(g, DT_f32, 0)), (int[]){ 0, 2, 3, 1 }));
    double ratio = race(cx, t, g, c->name, 2.0 * (double)(ny * per * c->kernel * c->kernel), &in, &s, y, ny);
    side_free(&s);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    block_free(x); block_free(w); block_free(b); block_free(y);
    arena_free(a);
    return ratio;
}

typedef struct Asked { const char *what; int n; int64_t size[7]; } Asked;

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
    if (!strcmp(what, "gemm") && asked->n == 3)
        for (int gelu = 0; gelu < 2; gelu++) run_gemm(cx, &t, e, stream, &(Gemm){ z[0], z[1], z[2] }, gelu);
    else if (!strcmp(what, "conv") && asked->n == 7) run_conv(cx, &t, e, stream, &(Conv){ "as asked", z[0], z[1], z[2], z[3], z[4], z[5], z[6] });
    else if (!strcmp(what, "gemm"))
        for (int gelu = 0; gelu < 2; gelu++) {
            double sum = 0, least = 1e9;
            for (size_t i = 0; i < COUNT_OF(gemms); i++) { double r = run_gemm(cx, &t, e, stream, &gemms[i], gelu); sum += log(r); if (r < least) least = r; }
            printf("%-34s geometric mean %.3f, least %.3f\n", gelu ? "with bias and gelu" : "plain", exp(sum / (double)COUNT_OF(gemms)), least);
        }
    else {
        double sum = 0, least = 1e9;
        for (size_t i = 0; i < COUNT_OF(convs); i++) { double r = run_conv(cx, &t, e, stream, &convs[i]); sum += log(r); if (r < least) least = r; }
        printf("%-34s geometric mean %.3f, least %.3f\n", "with bias and relu", exp(sum / (double)COUNT_OF(convs)), least);
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(e);
    target_close(&t);
    arena_free(a);
}

int main(int argc, char **argv)
{
    Asked asked = { .what = argc > 1 ? argv[1] : "gemm" };
    for (int i = 2; i < argc && asked.n < 7; i++) asked.size[asked.n++] = strtoll(argv[i], NULL, 10);
    Ctx cx;
    ctx_init(&cx);
    if (guard_call(&cx, run_all, &asked) == E_OK) return 0;
    fprintf(stderr, "bench: %s\n", cx.text);
    return 1;
}
