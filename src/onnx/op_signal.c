/* Signals: DFT, STFT, the window functions, MelWeightMatrix.
 *
 * A transform is a contraction with the matrix cos, sin(2 pi (k n mod N) / N): the product is reduced modulo N in integers, so the angle is exact
 * to the last digit however long the signal is. The matrix depends on sizes alone, and is computed in float64 and rounded once. */
#include "onnx/onnx.h"
#include <math.h>
#include <string.h>

static const double two_pi = 6.283185307179586476925;

/* Cosine and sine of the angles of [rows, columns] for a transform of length n, in dtype dt. */
static void dft_matrix(Graph *g, Dim *rows, Dim *columns, Dim *n, DType dt, Node **cosine, Node **sine)
{
    Node *k = axis_node(g, iota_node(g, rows), 2, 0), *j = axis_node(g, iota_node(g, columns), 2, 1), *len = dim_node(g, n, DT_i64);
    Node *turn = g2(g, OP_div, g_cast(g, g2(g, OP_mod, g2(g, OP_mul, k, j), len), DT_f64), g_cast(g, len, DT_f64));
    Node *angle = g2(g, OP_mul, turn, g_scalar(g, DT_f64, two_pi));
    *cosine = g_cast(g, g1(g, OP_cos, angle), dt);
    *sine = g_cast(g, g1(g, OP_sin, angle), dt);
}

/* Component c of x with `axis` moved last and cut or zero-extended to n places: [other axes..., out, n], the same along out. */
static Node *dft_operand(Graph *g, Node *x, int c, int axis, Dim *out, Dim *n)
{
    int rank = x->rank;                   /* the component leaves, the summed axis enters */
    Dim *dims[MAX_RANK] = { NULL }, *idx[MAX_RANK] = { NULL };
    for (int k = 0; k < rank - 1; k++) idx[k] = dim_idx(g, k, dims[k] = k == axis ? out : x->dims[k]);
    dims[rank - 1] = n;
    idx[axis] = dim_idx(g, rank - 1, n);
    idx[rank - 1] = dim_const(g, c);
    Pred inside = { idx[axis], x->dims[axis] };
    return g_view(g, x, rank, dims, &(View){ .nidx = rank, .idx = idx, .npred = n != x->dims[axis], .pred = &inside });
}

/* A matrix [out, n] laid along `axis` and the last axis of the iteration space. */
static Node *dft_factor(Graph *g, Node *m, int rank, int axis)
{
    Dim *dims[MAX_RANK] = { NULL };
    for (int k = 0; k < rank; k++) dims[k] = k == axis ? m->dims[0] : k == rank - 1 ? m->dims[1] : dim_const(g, 1);
    return g_reshape(g, m, rank, dims);
}

/* The transform of x [..., components] of floats as wide as sums are, along axis. n is its length. */
static Node *dft_run(OpCall *o, Node *x, int axis, Dim *n, bool inverse, bool onesided)
{
    Graph *g = o->g;
    int rank = x->rank, last = rank - 1;
    DType dt = x->dt;
    int64_t parts = dim_decide_value(g, x->dims[last], "real or complex values");
    if (parts != 1 && parts != 2)
        fail(o->cx, E_INVALID, "the last axis has %lld places; 1 (real) or 2 (complex) are wanted", (long long)parts);
    Dim *half = dim_addc(g, dim_div(g, n, dim_const(g, 2)), 1);
    Dim *out = onesided && !inverse ? half : n, *in = onesided && inverse ? half : n;
    Node *cosine, *sine;
    dft_matrix(g, out, in, n, dt, &cosine, &sine);
    if (onesided && inverse) {            /* every bin but the first and the middle one stands for its mirror image too */
        Node *k = iota_node(g, in), *one = g_int(g, DT_i64, 1);
        Node *alone = g2(g, OP_or, g2(g, OP_eq, k, g_int(g, DT_i64, 0)), g2(g, OP_eq, g2(g, OP_add, k, k), dim_node(g, n, DT_i64)));
        Node *share = axis_node(g, g_cast(g, g_where(g, alone, one, g_int(g, DT_i64, 2)), dt), 2, 1);
        cosine = g2(g, OP_mul, cosine, share);
        sine = g2(g, OP_mul, sine, share);
    }
    cosine = dft_factor(g, cosine, rank, axis);
    sine = dft_factor(g, sine, rank, axis);
    Node *re = dft_operand(g, x, 0, axis, out, in), *im = parts == 2 ? dft_operand(g, x, 1, axis, out, in) : NULL;
    if (inverse) sine = g1(g, OP_neg, sine);
    /* (re + i im)(cos - i sin) */
    Node *real = g2(g, OP_mul, re, cosine), *imag = g1(g, OP_neg, g2(g, OP_mul, re, sine));
    if (im) {
        real = g2(g, OP_add, real, g2(g, OP_mul, im, sine));
        imag = g2(g, OP_add, imag, g2(g, OP_mul, im, cosine));
    }
    real = g_unsqueeze(g, g_fold(g, FOLD_sum, real, axis_bit(last), false), last);
    imag = g_unsqueeze(g, g_fold(g, FOLD_sum, imag, axis_bit(last), false), last);
    Node *y = onesided && inverse ? real : g_join(g, 2, (Node *[]){ real, imag }, last);
    return inverse ? g2(g, OP_div, y, dim_node(g, n, dt)) : y;
}

static Dim *size_input(OpCall *o, int i)
{
    int n;
    Dim **v = op_sizes(o, i, &n);
    if (n != 1) fail(o->cx, E_INVALID, "input %d has %d elements; 1 is wanted", i, n);
    return v[0];
}

static void dft(OpCall *o, int64_t axis, bool from_input)
{
    int n;
    if (from_input && o->nin > 2 && o->in[2]) {
        int64_t *v = op_values_int(o, 2, &n);
        if (n != 1) fail(o->cx, E_INVALID, "axis has %d elements; 1 is wanted", n);
        axis = v[0];
    }
    bool inverse = op_int(o, "inverse", 0) != 0, onesided = op_int(o, "onesided", 0) != 0;
    Dim *len = o->nin > 1 && o->in[1] ? size_input(o, 1) : NULL;
    Graph *g = o->g;
    Node *x = o->in[0];
    DType dt = x->dt;
    int at = op_axis(o, axis, x->rank);
    if (at == x->rank - 1) fail(o->cx, E_INVALID, "axis %lld holds the components of complex numbers", (long long)axis);
    if (!len) len = inverse && onesided ? dim_mulc(g, dim_addc(g, x->dims[at], -1), 2) : x->dims[at];
    o->out[0] = g_cast(g, dft_run(o, g_cast(g, x, dtype_wide(dt)), at, len, inverse, onesided), dt);
}

void op_dft_17(OpCall *o) { dft(o, op_int(o, "axis", 1), false); }
void op_dft(OpCall *o) { dft(o, -2, true); }

/* Frames of the signal, step places apart, times the window, each transformed. */
void op_stft(OpCall *o)
{
    size_input(o, 1);
    Dim *len = o->nin > 3 && o->in[3] ? size_input(o, 3) : NULL;
    Dim *step = size_input(o, 1);         /* again: reading the length may have begun a new graph */
    Graph *g = o->g;
    Node *x = o->in[0], *window = o->nin > 2 ? o->in[2] : NULL;
    DType dt = x->dt, wide = dtype_wide(dt);
    if (x->rank != 3 || (window && window->rank != 1))
        fail(o->cx, E_INVALID, "a signal of rank %d; 3 is wanted, and 1 for a window", x->rank);
    if (!len) len = window ? window->dims[0] : x->dims[1];
    Dim *each = window ? window->dims[0] : len;
    Dim *frames = dim_addc(g, dim_div(g, dim_sub(g, x->dims[1], len), step), 1);
    Dim *dims[4] = { x->dims[0], frames, each, x->dims[2] }, *it[4];
    for (int k = 0; k < 4; k++) it[k] = dim_idx(g, k, dims[k]);
    Dim *at = dim_add(g, dim_mul(g, it[1], step), it[2]);
    Pred inside = { at, x->dims[1] };
    Node *y = g_view(g, g_cast(g, x, wide), 4, dims, &(View){ .nidx = 3, .idx = (Dim *[]){ it[0], at, it[3] }, .npred = each != len, .pred = &inside });
    if (window) y = g2(g, OP_mul, y, axis_node(g, g_cast(g, window, wide), 4, 2));
    o->out[0] = g_cast(g, dft_run(o, y, 2, len, false, op_int(o, "onesided", 1) != 0), dt);
}

/* ---- window functions -------------------------------------------------------------------------------------------------------- */

/* a0 - a1 cos(2 pi i / m) + a2 cos(4 pi i / m), with m the size (periodic) or the size less 1; a window of one place is 1. */
static void window_function(OpCall *o, double a0, double a1, double a2)
{
    Dim *n = size_input(o, 0);
    Graph *g = o->g;
    bool periodic = op_int(o, "periodic", 1) != 0;
    DType dt = dtype_from_onnx((int)op_int(o, "output_datatype", 1));
    if (dt == DT_none) op_unsupported(o, "the element type %lld", (long long)op_int(o, "output_datatype", 1));
    Node *y;
    if (!periodic && dim_decide_eq(g, n, dim_const(g, 1), "a window of one place")) {
        y = g_expand(g, g_scalar(g, DT_f64, 1), 1, &n);
    } else {
        Node *i = g_cast(g, iota_node(g, n), DT_f64), *m = dim_node(g, dim_addc(g, n, periodic ? 0 : -1), DT_f64);
        Node *angle = g2(g, OP_mul, g2(g, OP_div, i, m), g_scalar(g, DT_f64, two_pi));
        y = g2(g, OP_sub, g_scalar(g, DT_f64, a0), g2(g, OP_mul, g_scalar(g, DT_f64, a1), g1(g, OP_cos, angle)));
        if (a2 != 0) y = g2(g, OP_add, y, g2(g, OP_mul, g_scalar(g, DT_f64, a2), g1(g, OP_cos, g2(g, OP_add, angle, angle))));
    }
    o->out[0] = g_cast(g, y, dt);
}

void op_hann_window(OpCall *o) { window_function(o, 0.5, 0.5, 0); }
void op_hamming_window(OpCall *o) { window_function(o, 25.0 / 46, 21.0 / 46, 0); }
void op_blackman_window(OpCall *o) { window_function(o, 0.42, 0.5, 0.08); }

/* ---- MelWeightMatrix ------------------------------------------------------------------------------------------------------------ */

static double scalar_input(OpCall *o, int i)
{
    const Tensor *t = op_value(o, i);
    if (!t || tensor_count(t) != 1) fail(o->cx, E_INVALID, "input %d is no scalar", i);
    Scalar v = scalar_load(t->dt, tensor_at(t, 0));
    return dtype_is_float(t->dt) ? v.f : (double)v.i;
}

/* Triangles between bins that are equally spaced on the mel scale: rows are spectrogram bins, columns mel bins. */
void op_mel_weight_matrix(OpCall *o)
{
    double bins = scalar_input(o, 0), len = scalar_input(o, 1), rate = scalar_input(o, 2), low = scalar_input(o, 3), high = scalar_input(o, 4);
    DType dt = dtype_from_onnx((int)op_int(o, "output_datatype", 1));
    if (dt == DT_none) op_unsupported(o, "the element type %lld", (long long)op_int(o, "output_datatype", 1));
    if (!(bins >= 0 && bins < 1e6 && len >= 0 && len < 1e9 && rate > 0))
        fail(o->cx, E_INVALID, "%g mel bins, DFT length %g, sample rate %g", bins, len, rate);
    Graph *g = o->g;
    int64_t n = (int64_t)bins, rows = (int64_t)len / 2 + 1;
    double from = 2595 * log10(1 + low / 700), to = 2595 * log10(1 + high / 700), step = (to - from) / (double)(n + 2);
    int64_t *edge = NEWS(o->a, int64_t, n + 2);
    for (int64_t i = 0; i < n + 2; i++) {
        double hertz = 700 * (pow(10, ((double)i * step + from) / 2595) - 1), bin = floor((len + 1) * hertz / rate);
        if (!(bin >= 0 && bin < (double)rows))
            fail(o->cx, E_INVALID, "a mel edge of %g Hz is bin %g of %lld", hertz, bin, (long long)rows);
        edge[i] = (int64_t)bin;
    }
    Tensor *t = tensor_new(g->arena, o->cx, dt, 2, (int64_t[]){ rows, n });
    for (int64_t i = 0; i < n; i++) {
        int64_t a = edge[i], b = edge[i + 1], c = edge[i + 2];
        for (int64_t j = a; j < c || j == b; j++) {
            double v = j < b ? (double)(j - a) / (double)(b - a) : j == b ? 1 : (double)(c - j) / (double)(c - b);
            scalar_store(dt, tensor_at(t, j * n + i), dtype_is_float(dt) ? (Scalar){ .f = v } : (Scalar){ .i = (int64_t)v });
        }
    }
    o->out[0] = g_const(g, t);
}
