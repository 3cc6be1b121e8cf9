/* Contractions whose results are reduced over their places in the same kernel: sums and maxima of what a convolution or a product and its epilogue come to, with the
 * tensor itself wanted as well and without. Compared with plain loops in this file, over small whole numbers, so that every sum is exact; how many kernels there are;
 * and that threads change no bit. */
#include "model.h"

enum { MOST = 40000, TEXT = 1 << 19 };
enum { OPEN = 1, KNOWN = 2, WANTED = 4, FORMS = 8 };     /* the width is not known when kernels are made; the weights are the model's; the tensor is a result too */
typedef struct Shape { int n, c, h, w, m, k, stride, pad, group; } Shape;

static double in_x[MOST], in_w[MOST], out_c[MOST], out_s[MOST], out_z[MOST];
static char model[TEXT], input[TEXT], wanted[TEXT];

static void numbers(double *p, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) p[i] = (double)(random_word(seed, (uint64_t)i) % 7) - 3;
}

static char *put_list(char *at, const double *v, int n, const char *between)
{
    for (int i = 0; i < n; i++) at += sprintf(at, "%s%.12g", i ? between : "", v[i]);
    return at;
}

/* [n, m, oh, ow] of x [n, c, h, w] and w [m, c / group, k, k], at least 0. */
static void naive(const Shape *s, int oh, int ow)
{
    int per = s->c / s->group, each = s->m / s->group;
    for (int i = 0; i < s->n * s->m * oh * ow; i++) {
        int n = i / (s->m * oh * ow), m = i / (oh * ow) % s->m, y = i / ow % oh, x = i % ow;
        double sum = 0;
        for (int j = 0; j < per * s->k * s->k; j++) {
            int c = m / each * per + j / (s->k * s->k), h = y * s->stride + j / s->k % s->k - s->pad, v = x * s->stride + j % s->k - s->pad;
            if (h >= 0 && h < s->h && v >= 0 && v < s->w) sum += in_x[((n * s->c + c) * s->h + h) * s->w + v] * in_w[m * per * s->k * s->k + j];
        }
        out_c[i] = sum > 0 ? sum : 0;
    }
}

static void check_conv(const Shape *s, int form)
{
    int oh = (s->h + 2 * s->pad - s->k) / s->stride + 1, ow = (s->w + 2 * s->pad - s->k) / s->stride + 1, per = s->c / s->group, places = oh * ow;
    int nx = s->n * s->c * s->h * s->w, nw = s->m * per * s->k * s->k, nc = s->n * s->m;
    numbers(in_x, nx, 1);
    numbers(in_w, nw, 2);
    naive(s, oh, ow);
    for (int i = 0; i < nc; i++) {
        out_s[i] = out_z[i] = 0;
        for (int j = 0; j < places; j++) { double v = out_c[i * places + j]; out_s[i] += v; if (v > out_z[i]) out_z[i] = v; }
        out_z[i] *= 2;
    }
    char width[16] = "W", place[16] = "V", weights[64], r[64];
    if (!(form & OPEN)) { sprintf(width, "%d", s->w); sprintf(place, "%d", ow); }
    sprintf(weights, "float[%d,%d,%d,%d] w", s->m, per, s->k, s->k);
    sprintf(r, ", float[%d,%d,%d,%s] r", s->n, s->m, oh, place);
    char *at = model + sprintf(model, OPSET(11) "g (float[%d,%d,%d,%s] x%s%s) => (float[%d,%d] s, float[%d,%d,1,1] z%s)", s->n, s->c, s->h, width, form & KNOWN ? "" : ", ",
                               form & KNOWN ? "" : weights, s->n, s->m, s->n, s->m, form & WANTED ? r : "");
    if (form & KNOWN) { at = put_list(at + sprintf(at, " <%s = {", weights), in_w, nw, ", "); at += sprintf(at, "}>"); }
    sprintf(at, " { c = Conv<group = %d, strides = [%d, %d], pads = [%d, %d, %d, %d]>(x, w) r = Relu(c) s = ReduceSum<axes = [2, 3], keepdims = 0>(r) m = GlobalMaxPool(r) z = Add(m, m) }",
            s->group, s->stride, s->stride, s->pad, s->pad, s->pad, s->pad);
    at = put_list(input + sprintf(input, "f32[%d,%d,%d,%d] ", s->n, s->c, s->h, s->w), in_x, nx, " ");
    if (!(form & KNOWN)) put_list(at + sprintf(at, "; f32[%d,%d,%d,%d] ", s->m, per, s->k, s->k), in_w, nw, " ");
    at = put_list(wanted + sprintf(wanted, "f32[%d,%d] ", s->n, s->m), out_s, nc, " ");
    at = put_list(at + sprintf(at, "; f32[%d,%d,1,1] ", s->n, s->m), out_z, nc, " ");
    if (form & WANTED) put_list(at + sprintf(at, "; f32[%d,%d,%d,%d] ", s->n, s->m, oh, ow), out_c, nc * places, " ");
    trial_gives(model, input, wanted, 0);
}

static void test_values(void **state)
{
    (void)state;
    static const Shape shape[] = {
        { 1, 1, 1, 1, 1, 1, 1, 0, 1 },       /* one of all */
        { 1, 20, 6, 9, 20, 3, 1, 1, 20 },    /* one channel each */
        { 1, 130, 5, 17, 130, 5, 1, 2, 130 },/* the same; a window wider than what is left of a tile */
        { 1, 12, 4, 7, 70, 1, 1, 0, 1 },     /* places that lie together; lanes left over */
        { 2, 16, 7, 10, 24, 3, 2, 1, 1 },    /* a stride; two images */
        { 1, 4, 9, 14, 40, 7, 2, 3, 1 },     /* columns that are five half vectors */
        { 1, 8, 6, 29, 8, 3, 1, 1, 1 },      /* no more columns than fill half a vector */
        { 1, 6, 1, 1, 33, 1, 1, 0, 1 },      /* one place */
        { 1, 3, 50, 49, 8, 1, 1, 0, 1 },     /* so many places that sums are taken in chunks */
        { 2, 8, 5, 5, 32, 5, 1, 2, 2 },      /* groups; a border everywhere */
    };
    for (size_t i = 0; i < FORMS * COUNT_OF(shape); i++) check_conv(&shape[i / FORMS], (int)i % FORMS);
}

/* Launches of a run of this: a product with 160 columns and an activation, and `body`; and its first result, if `out` is there. */
static int launches(const char *results, const char *body, const char *off, int threads, Tensor **out, Trial *r)
{
    int n, at = 0;
    numbers(in_w, 40 * 160, 2);
    char *to = model + sprintf(model, OPSET(18) "g (float[1,50,40] x) => (%s) <int64[1] rows = {1}, float[40,160] w = {", results);
    to = put_list(to, in_w, 40 * 160, ", ");
    sprintf(to, "}> { c = MatMul(x, w) r = HardSwish(c) %s }", body);
    trial_open(r, MODE_fused, model);
    r->cx.opt.off = off;
    r->threads = threads;
    trial_inputs(r, "f32[1,50,40] 0");
    for (float *x = r->in[0].data; at < 50 * 40; at++) x[at] = (float)(int)(random_word(5, (uint64_t)at) % 2001) / 1000 - 1;
    if (trial_run(r)) fail_msg("%s", r->cx.text);
    const SegmentEvidence *e = program_evidence(&r->cx, r->program, r->arena, &n);
    if (out) *out = r->out;
    return e[n - 1].launches;
}

/* Kernels that the rule saves. */
static int saved(const char *results, const char *body)
{
    Trial on, off;
    int n = launches(results, body, "dot_rows", 1, NULL, &off) - launches(results, body, NULL, 1, NULL, &on);
    trial_close(&on);
    trial_close(&off);
    return n;
}

/* Whether the tensor is read by others decides whether it is stored, not how many kernels there are. */
static void test_kernels(void **state)
{
    (void)state;
    assert_int_equal(saved("float[1,1,160] y", "y = ReduceMean(r, rows)"), 1);
    assert_int_equal(saved("float[1,1,160] y, float[1,50,160] r", "y = ReduceMean(r, rows)"), 1);
    assert_int_equal(saved("float[1,1,160] y", "m = ReduceMax(r, rows) n = ReduceMean(r, rows) y = Sub(m, n)"), 1);
    assert_int_equal(saved("float[1,50,160] y", "n = ReduceMean(r, rows) s = Sigmoid(n) y = Mul(r, s)"), 0);      /* what needs it at each place is a kernel behind it, which took the reduction in */
    assert_int_equal(saved("float[1,50,1] y", "k = Constant<value_ints = [2]>() y = ReduceMax(r, k)"), 0);        /* lanes run along what it reduces */
}

/* So many places that they are taken in parts, which threads share: with few columns, with the tensor and without. All places are alike. */
static void test_parts(void **state)
{
    (void)state;
    numbers(in_w, 4 * 128, 7);
    for (int i = 0; i < 128; i++) {
        double sum = in_w[i] + in_w[128 + i] + in_w[256 + i] + in_w[384 + i];
        out_s[i] = sum > 0 ? sum : 0;
    }
    for (int form = 0; form < 8; form++) {
        const char *rows = form & OPEN ? "rows" : "12544";
        char *at = model + sprintf(model, OPSET(18) "g (float[1,%s,4] x) => (float[1,128] s%s%s) <int64[1] axes = {1}, float[4,128] w = {", rows, form & 4 ? ", float[1,128] z" : "", form & 2 ? ", float[1,n,1] v" : "");
        at = put_list(at, in_w, 4 * 128, ", ");
        sprintf(at, "}> { c = MatMul(x, w) r = Relu(c) s = ReduceMean<keepdims = 0>(r, axes) %s %s }", form & 4 ? "z = ReduceMax<keepdims = 0>(r, axes)" : "", form & 2 ? "last = Constant<value_ints = [2]>() v = ReduceMin(r, last)" : "");
        at = put_list(wanted + sprintf(wanted, "f32[1,128] "), out_s, 128, " ");
        if (form & 4) at = put_list(at + sprintf(at, "; f32[1,128] "), out_s, 128, " ");
        if (form & 2) sprintf(at, "; f32[1,12544,1] 0");
        trial_gives(model, "f32[1,12544,4] 1", wanted, 0);
    }
}

/* Kernels that were made for 64 rows, run with others: fewer than a tile has, one more, none. */
static void test_lengths(void **state)
{
    (void)state;
    static const int lengths[] = { 64, 65, 7, 3, 1, 200, 0 };
    enum { DEEP = 20, WIDE = 150 };
    numbers(in_w, DEEP * WIDE, 2);
    char *at = model + sprintf(model, OPSET(18) "g (float[1,rows,20] x) => (float[1,rows,150] r, float[1,150] s, float[1,150] z) <int64[1] axes = {1}, float[20,150] w = {");
    at = put_list(at, in_w, DEEP * WIDE, ", ");
    sprintf(at, "}> { c = MatMul(x, w) r = Relu(c) s = ReduceSum<keepdims = 0>(r, axes) z = ReduceMax<keepdims = 0>(r, axes) }");
    Trial t;
    trial_open(&t, MODE_fused, model);
    for (size_t k = 0; k < COUNT_OF(lengths); k++) {
        const int n = lengths[k];
        numbers(in_x, n * DEEP, 11 + k);
        sprintf(input, "f32[1,%d,20]%s", n, n ? " 0" : "");
        trial_inputs(&t, input);
        for (int i = 0; i < n * DEEP; i++) ((float *)t.in[0].data)[i] = (float)in_x[i];
        if (trial_run(&t)) fail_msg("%d rows: %s", n, t.cx.text);
        const float *r = t.out[0].data, *s = t.out[1].data, *z = t.out[2].data;
        for (int j = 0; j < WIDE; j++) {
            double sum = 0, most = -INFINITY;
            for (int i = 0; i < n; i++) {
                double v = 0;
                for (int d = 0; d < DEEP; d++) v += in_x[i * DEEP + d] * in_w[d * WIDE + j];
                if (v < 0) v = 0;
                if ((double)r[i * WIDE + j] != v) fail_msg("%d rows: row %d, column %d is %g, wanted %g", n, i, j, (double)r[i * WIDE + j], v);
                sum += v;
                most = fmax(most, v);
            }
            if ((double)s[j] != sum || (double)z[j] != most) fail_msg("%d rows: column %d sums to %g, wanted %g, and at most %g, wanted %g", n, j, (double)s[j], sum, (double)z[j], most);
        }
    }
    trial_close(&t);
}

static void test_threads(void **state)
{
    (void)state;
    Trial one, four;
    Tensor *a, *b;
    launches("float[1,1,160] y", "y = ReduceMean(r, rows)", NULL, 1, &a, &one);
    launches("float[1,1,160] y", "y = ReduceMean(r, rows)", NULL, 4, &b, &four);
    assert_memory_equal(a->data, b->data, tensor_bytes(a));
    trial_close(&one);
    trial_close(&four);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_values), cmocka_unit_test(test_parts), cmocka_unit_test(test_kernels), cmocka_unit_test(test_lengths), cmocka_unit_test(test_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
