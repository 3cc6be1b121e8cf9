/* Contractions in the forms that only sizes bring about: channels that do not fill the lanes, windows that reach over every border, tiles with rows left over,
 * weights in panels, chains of convolutions that lie channels last, shuffled channels, integers four at a time. Each model is compared with plain loops in this file, over
 * small whole numbers, so that every sum is exact. */
#include "model.h"

#include <math.h>
#include <stdio.h>

enum { MOST = 40000, TEXT = 1 << 19 };

typedef struct Shape { int n, c, h, w, m, k, stride, pad, group, out; } Shape;

/* Numbers from -3 to 3, or from 0 to 6. */
static void numbers(double *p, int n, uint64_t seed, int least)
{
    for (int i = 0; i < n; i++) p[i] = (double)(random_word(seed, (uint64_t)i) % 7) + least;
}

static char *put_list(char *at, const double *v, int n, const char *between)
{
    for (int i = 0; i < n; i++) at += sprintf(at, "%s%.12g", i ? between : "", v[i]);
    return at;
}

/* [n, m, oh, ow] of x [n, c, h, w] and w [m, c / group, k, k]; zero: what x counts as 0. */
static void naive_conv(const Shape *s, const double *x, const double *w, double zero, double *y)
{
    int oh = (s->h + 2 * s->pad - s->k) / s->stride + 1, ow = (s->w + 2 * s->pad - s->k) / s->stride + 1, per = s->c / s->group, each = s->m / s->group;
    for (int n = 0; n < s->n; n++)
        for (int m = 0; m < s->m; m++)
            for (int i = 0; i < oh; i++)
                for (int j = 0; j < ow; j++) {
                    double sum = 0;
                    for (int c = 0; c < per; c++)
                        for (int a = 0; a < s->k; a++)
                            for (int b = 0; b < s->k; b++) {
                                int h = i * s->stride + a - s->pad, v = j * s->stride + b - s->pad;
                                bool padding = h < 0 || h >= s->h || v < 0 || v >= s->w;
                                sum += (padding ? 0 : x[((n * s->c + m / each * per + c) * s->h + h) * s->w + v] - zero) * w[((m * per + c) * s->k + a) * s->k + b];
                            }
                    y[((n * s->m + m) * oh + i) * ow + j] = sum;
                }
}

static double in_x[MOST], in_w[MOST], in_v[MOST], out_c[MOST], out_y[MOST];
static char model[TEXT], input[TEXT], wanted[TEXT];

/* relu of a convolution, and a 1x1 convolution of that with weights of the model. */
enum { OPEN = 1, KNOWN = 2, ODD = 4, FORMS = 8 };        /* the width is not known when kernels are made; the first weights are the model's; one of them is infinite */
static void check_chain(const Shape *s, int form)
{
    int oh = (s->h + 2 * s->pad - s->k) / s->stride + 1, ow = (s->w + 2 * s->pad - s->k) / s->stride + 1, per = s->c / s->group;
    int nx = s->n * s->c * s->h * s->w, nw = s->m * per * s->k * s->k, nc = s->n * s->m * oh * ow, ny = s->n * s->out * oh * ow;
    numbers(in_x, nx, 1, -3);
    numbers(in_w, nw, 2, -3);
    numbers(in_v, s->out * s->m, 3, -3);
    if (form & ODD) in_w[nw / 2 / s->k * s->k] = INFINITY;          /* at the left of a window: in the padding it meets 0 */
    naive_conv(s, in_x, in_w, 0, out_c);
    for (int i = 0; i < nc; i++) if (out_c[i] < 0) out_c[i] = 0;
    naive_conv(&(Shape){ s->n, s->m, oh, ow, s->out, 1, 1, 0, 1, 0 }, out_c, in_v, 0, out_y);
    char width[16] = "W", place[16] = "V", weights[64];
    if (!(form & OPEN)) { sprintf(width, "%d", s->w); sprintf(place, "%d", ow); }
    sprintf(weights, "float[%d,%d,%d,%d] w", s->m, per, s->k, s->k);
    char *at = model + sprintf(model, OPSET(18) "g (float[%d,%d,%d,%s] x%s%s) => (float[%d,%d,%d,%s] r, float[%d,%d,%d,%s] y) <float[%d,%d,1,1] v = {",
                               s->n, s->c, s->h, width, form & KNOWN ? "" : ", ", form & KNOWN ? "" : weights, s->n, s->m, oh, place, s->n, s->out, oh, place, s->out, s->m);
    at = put_list(at, in_v, s->out * s->m, ", ");
    if (form & KNOWN) at = put_list(at + sprintf(at, "}, %s = {", weights), in_w, nw, ", ");
    sprintf(at, "}> { c = Conv<group = %d, strides = [%d, %d], pads = [%d, %d, %d, %d]>(x, w) r = Relu(c) y = Conv(r, v) }", s->group, s->stride, s->stride, s->pad, s->pad, s->pad, s->pad);
    at = input + sprintf(input, "f32[%d,%d,%d,%d] ", s->n, s->c, s->h, s->w);
    at = put_list(at, in_x, nx, " ");
    if (!(form & KNOWN)) put_list(at + sprintf(at, "; f32[%d,%d,%d,%d] ", s->m, per, s->k, s->k), in_w, nw, " ");
    at = wanted + sprintf(wanted, "f32[%d,%d,%d,%d] ", s->n, s->m, oh, ow);
    at = put_list(at, out_c, nc, " ");
    at += sprintf(at, "; f32[%d,%d,%d,%d] ", s->n, s->out, oh, ow);
    put_list(at, out_y, ny, " ");
    trial_gives(model, input, wanted, 0);
}

static void test_convolutions(void **state)
{
    (void)state;
    static const Shape shape[] = {
        { 1, 3, 9, 13, 16, 3, 1, 1, 1, 9 },  /* few channels in, tiles with a rest */
        { 2, 16, 7, 10, 24, 3, 2, 1, 1, 8 }, /* a stride; lanes left over */
        { 1, 20, 6, 9, 20, 3, 1, 1, 20, 12 },/* one channel each */
        { 1, 16, 3, 11, 16, 5, 1, 2, 16, 8 },/* a window higher than the image */
        { 1, 230, 3, 7, 16, 3, 1, 1, 1, 8 }, /* a sum so long that it is taken in chunks */
        { 1, 8, 5, 5, 32, 5, 1, 2, 2, 3 },   /* groups; a border everywhere; few channels out */
        { 1, 12, 4, 7, 70, 1, 1, 0, 1, 33 },
        { 1, 24, 6, 21, 24, 3, 1, 1, 24, 9 },/* neighbours share what they read */
        { 1, 8, 5, 16, 32, 5, 1, 2, 1, 4 },  /* two rows of a tile in the padding at each end */
        { 1, 4, 9, 14, 40, 7, 2, 3, 1, 4 },  /* two at one end, one at the other */
        { 1, 16, 7, 7, 16, 3, 1, 1, 1, 8 },  /* one tile has both ends */
        { 1, 3, 4, 30, 16, 3, 1, 2, 1, 4 },  /* more places than the image has */
        { 1, 8, 6, 9, 64, 3, 1, 1, 1, 6 },   /* few channels out of many: lanes over the sum, those of a tile of places added up together */
        { 1, 8, 5, 11, 70, 1, 1, 0, 1, 5 },  /* the same; the sum fills no whole vectors, the places no whole tiles */
        { 1, 8, 6, 29, 8, 3, 1, 1, 1, 7 },   /* channels that fill half a vector, and part of a half */
        { 2, 6, 9, 14, 4, 3, 1, 1, 1, 2 },   /* a quarter, which takes the sum by pairs */
        { 1, 230, 3, 7, 4, 3, 1, 1, 1, 3 },  /* the same, in chunks; an odd number of terms */
        { 1, 5, 7, 8, 3, 3, 2, 1, 1, 8 },
    };
    for (size_t i = 0; i < FORMS * COUNT_OF(shape); i++) if ((int)i % FORMS < ODD || shape[i / FORMS].pad) check_chain(&shape[i / FORMS], (int)i % FORMS);
}

/* Channels of a convolution by groups, shuffled, through a window of one channel each, times and plus a number for each, added to what is not shuffled, and by
 * groups again. */
static void check_shuffle(int c, int group, int h, int w)
{
    static double shuffled[MOST], gain[64], bias[64];
    int per = c / group, places = h * w;
    Shape first = { 1, c, h, w, c, 1, 1, 0, group, 0 }, window = { 1, c, h, w, c, 3, 1, 1, c, 0 };
    numbers(in_x, c * places, 8, -3);
    numbers(in_v, c * per, 9, -1);
    numbers(in_w, c * 9, 10, -3);
    numbers(gain, c, 11, -3);
    numbers(bias, c, 12, -3);
    naive_conv(&first, in_x, in_v, 0, out_c);
    for (int i = 0; i < c * places; i++) shuffled[i] = out_c[(i / places % group * per + i / places / group) * places + i % places];
    naive_conv(&window, shuffled, in_w, 0, out_c);
    for (int i = 0; i < c * places; i++) out_c[i] = out_c[i] * gain[i / places] + bias[i / places];
    naive_conv(&first, out_c, in_v, 0, out_y);
    for (int i = 0; i < c * places; i++) out_c[i] += in_x[i];
    char *at = model + sprintf(model, OPSET(18) "g (float[1,%d,%d,%d] x) => (float[1,%d,%d,%d] r, float[1,%d,%d,%d] y) <int64[5] apart = {1, %d, %d, %d, %d}, int64[4] whole = {1, %d, %d, %d}, float[%d,%d,1,1] v = {",
                               c, h, w, c, h, w, c, h, w, group, per, h, w, c, h, w, c, per);
    at = put_list(at, in_v, c * per, ", ");
    at = put_list(at + sprintf(at, "}, float[%d,1,3,3] w = {", c), in_w, c * 9, ", ");
    at = put_list(at + sprintf(at, "}, float[%d,1,1] gain = {", c), gain, c, ", ");
    at = put_list(at + sprintf(at, "}, float[%d,1,1] bias = {", c), bias, c, ", ");
    sprintf(at, "}> { a = Conv<group = %d>(x, v) b = Reshape(a, apart) d = Transpose<perm = [0, 2, 1, 3, 4]>(b) e = Reshape(d, whole)"
                " f = Conv<group = %d, pads = [1, 1, 1, 1]>(e, w) m = Mul(f, gain) s = Add(m, bias) r = Add(s, x) y = Conv<group = %d>(s, v) }", group, c, group);
    put_list(input + sprintf(input, "f32[1,%d,%d,%d] ", c, h, w), in_x, c * places, " ");
    at = put_list(wanted + sprintf(wanted, "f32[1,%d,%d,%d] ", c, h, w), out_c, c * places, " ");
    put_list(at + sprintf(at, "; f32[1,%d,%d,%d] ", c, h, w), out_y, c * places, " ");
    trial_gives(model, input, wanted, 0);
}

static void test_shuffles(void **state)
{
    (void)state;
    check_shuffle(24, 4, 5, 9);
    check_shuffle(40, 2, 3, 18);
    check_shuffle(12, 3, 6, 1);
}

/* The results, quantised again and in part beyond the range: bytes without a sign, and with one. */
static char *put_quantised(char *at, const Shape *s, int oh, int ow, const char *type, int zero, int low, int high, float step)
{
    int n = s->n * s->m * oh * ow;
    at += sprintf(at, "; %s[%d,%d,%d,%d] ", type, s->n, s->m, oh, ow);
    for (int i = 0; i < n; i++) {
        float v = rintf((float)out_c[i] / step) + (float)zero;
        at += sprintf(at, "%.0f ", v < (float)low ? (float)low : v > (float)high ? (float)high : v);
    }
    return at;
}

/* Quantised with powers of two, so that all is exact; x is 0 at z. The image comes as bytes with its channels last, or as floats with its channels first. */
static void check_quantised(const Shape *s, int zero, bool floats)
{
    int oh = (s->h + 2 * s->pad - s->k) / s->stride + 1, ow = (s->w + 2 * s->pad - s->k) / s->stride + 1, per = s->c / s->group;
    int nx = s->n * s->c * s->h * s->w, nw = s->m * per * s->k * s->k, nc = s->n * s->m * oh * ow;
    numbers(in_x, nx, 4, 0);
    numbers(in_w, nw, 5, -3);
    in_w[0] = -128; in_w[nw - 1] = 127;
    in_x[0] = 255; in_x[nx - 1] = 255;
    naive_conv(s, in_x, in_w, zero, out_c);
    char *at = model + sprintf(model, OPSET(18) "g (");
    at += floats ? sprintf(at, "float[%d,%d,%d,%d] p", s->n, s->c, s->h, s->w) : sprintf(at, "uint8[%d,%d,%d,%d] p", s->n, s->h, s->w, s->c);
    at += sprintf(at, ") => (float[%d,%d,%d,%d] y, uint8[%d,%d,%d,%d] u, int8[%d,%d,%d,%d] i, uint8[%d,%d,%d,%d] f) <float quarter = {0.25}, float half = {0.5}, float two = {2}, float one = {1}, float tiny = {9.5367431640625e-07}, uint8 z = {%d}, int8 wz = {0}, int8 iz = {-5},"
                  " int8[%d,%d,%d,%d] w = {", s->n, s->m, oh, ow, s->n, s->m, oh, ow, s->n, s->m, oh, ow, s->n, s->m, oh, ow, zero, s->m, per, s->k, s->k);
    at = put_list(at, in_w, nw, ", ");
    sprintf(at, "}> { q = %s x = DequantizeLinear(q, quarter, z) v = DequantizeLinear(w, half, wz) y = Conv<group = %d, strides = [%d, %d], pads = [%d, %d, %d, %d]>(x, v)"
            " u = QuantizeLinear(y, two, z) i = QuantizeLinear(y, two, iz) b = Min(y, one) f = QuantizeLinear(b, tiny, z) }",
            floats ? "QuantizeLinear(p, quarter, z)" : "Transpose<perm = [0, 3, 1, 2]>(p)", s->group, s->stride, s->stride, s->pad, s->pad, s->pad, s->pad);
    int places = s->h * s->w;
    for (int i = 0; i < nx; i++) in_v[floats ? i : (i / (s->c * places) * places + i % places) * s->c + i / places % s->c] = floats ? (in_x[i] - zero) / 4 : in_x[i];
    if (floats) at = input + sprintf(input, "f32[%d,%d,%d,%d] ", s->n, s->c, s->h, s->w);
    else at = input + sprintf(input, "u8[%d,%d,%d,%d] ", s->n, s->h, s->w, s->c);
    put_list(at, in_v, nx, " ");
    for (int i = 0; i < nc; i++) out_c[i] /= 8;
    at = put_list(wanted + sprintf(wanted, "f32[%d,%d,%d,%d] ", s->n, s->m, oh, ow), out_c, nc, " ");
    at = put_quantised(at, s, oh, ow, "u8", zero, 0, 255, 2);
    at = put_quantised(at, s, oh, ow, "i8", -5, -128, 127, 2);
    for (int i = 0; i < nc; i++) out_c[i] = fmin(out_c[i], 1);
    put_quantised(at, s, oh, ow, "u8", zero, 0, 255, 0x1p-20f);     /* far below what 32 bits hold, but not above */
    trial_gives(model, input, wanted, 0);
}

static void test_integers(void **state)
{
    (void)state;
    static const Shape shape[] = { { 1, 8, 6, 9, 24, 3, 1, 1, 1, 0 }, { 2, 20, 5, 6, 17, 1, 1, 0, 1, 0 }, { 1, 5, 6, 6, 16, 3, 2, 1, 1, 0 }, { 1, 18, 7, 7, 18, 3, 1, 1, 18, 0 },
                                   { 2, 3, 9, 70, 32, 3, 2, 1, 1, 0 }, { 1, 8, 3, 7, 48, 1, 1, 0, 1, 0 }, { 1, 12, 4, 6, 80, 1, 1, 0, 1, 0 }, { 1, 64, 9, 9, 64, 3, 1, 1, 64, 0 } };
    for (size_t i = 0; i < COUNT_OF(shape); i++)
        for (int zero = 0; zero < 256; zero += 127 + (zero > 0)) check_quantised(&shape[i], zero, i == 4 || (i == 0 && zero));
}

/* y [m, n] = a [m, k] b, b of the model or an input. */
static void check_matrix(int m, int n, int k, bool known)
{
    numbers(in_x, m * k, 6, -3);
    numbers(in_w, k * n, 7, -3);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            out_c[i * n + j] = 0;
            for (int q = 0; q < k; q++) out_c[i * n + j] += in_x[i * k + q] * in_w[q * n + j];
        }
    char *at = model + sprintf(model, OPSET(18) "g (float[%d,%d] a%s) => (float[%d,%d] y) ", m, k, known ? "" : ", float[K,N] b", m, n);
    if (known) {
        at += sprintf(at, "<float[%d,%d] b = {", k, n);
        at = put_list(at, in_w, k * n, ", ");
        at += sprintf(at, "}> ");
    }
    sprintf(at, "{ y = MatMul(a, b) }");
    at = put_list(input + sprintf(input, "f32[%d,%d] ", m, k), in_x, m * k, " ");
    if (!known) put_list(at + sprintf(at, "; f32[%d,%d] ", k, n), in_w, k * n, " ");
    put_list(wanted + sprintf(wanted, "f32[%d,%d] ", m, n), out_c, m * n, " ");
    trial_gives(model, input, wanted, 0);
}

static void test_panels(void **state)
{
    (void)state;
    static const int size[][3] = { { 65, 70, 37 }, { 7, 130, 9 }, { 1, 300, 20 }, { 100, 64, 5 }, { 61, 17, 33 } };
    for (size_t i = 0; i < COUNT_OF(size); i++)
        for (int known = 0; known < 2; known++) check_matrix(size[i][0], size[i][1], size[i][2], known);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_convolutions), cmocka_unit_test(test_shuffles), cmocka_unit_test(test_integers), cmocka_unit_test(test_panels) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
