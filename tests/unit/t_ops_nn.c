/* Operators of windows, resizing, indices, sorting, signals and recurrence: a row is a model in ONNX's text syntax, its inputs, and the values worked
 * out by hand; mostly the corners that implementations disagree about. Tensors are written "f32 2,3: 1 2 3 4 5 6"; a result that starts
 * with "!" is a failure whose message contains the rest. */
#include "test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/api.h"

#define HEAD "<ir_version: 8, opset_import: [\"\" : 19]>\n"
typedef struct Row { const char *name, *model, *in[6], *out[3]; } Row;
static const Row rows[] = {
    /* ---- pools */
    { "a zero from Pad is a number, not padding", HEAD "g (float[1,1,4] x) => (float y) <int64[6] p = {0,0,1,0,0,1}> { a = Pad(x, p) y = MaxPool<kernel_shape=[2], strides=[2]>(a) }",
      { "f32 1,1,4: -1 -2 -3 -4" }, { "f32 1,1,3: 0 -2 0" } },
    { "padding never wins", HEAD "g (float[1,1,2] x) => (float y) { y = MaxPool<kernel_shape=[3], pads=[1,1]>(x) }", { "f32 1,1,2: -1 -2" }, { "f32 1,1,2: -1 -1" } },
    { "padding of integers never wins", HEAD "g (int8[1,1,2] x) => (int8 y) { y = MaxPool<kernel_shape=[3], pads=[1,1]>(x) }", { "i8 1,1,2: -128 -128" }, { "i8 1,1,2: -128 -128" } },
    { "NaN is the maximum of its windows", HEAD "g (float[1,1,5] x) => (float y) { y = MaxPool<kernel_shape=[2]>(x) }", { "f32 1,1,5: nan 1 2 nan 3" }, { "f32 1,1,4: nan 2 nan nan" } },
    { "an index is never padding's, and the first of equals", HEAD "g (float[1,1,3] x) => (float y, int64 i) { y, i = MaxPool<kernel_shape=[2], pads=[1,1]>(x) }",
      { "f32 1,1,3: -inf -inf nan" }, { "f32 1,1,4: -inf -inf nan nan", "i64 1,1,4: 0 0 2 2" } },
    { "column-major indices", HEAD "g (float[1,2,2,3] x) => (float y, int64 i) { y, i = MaxPool<kernel_shape=[2,2], storage_order=1>(x) }",
      { "f32 1,2,2,3: 0 5 1  2 3 9   7 0 0  0 0 8" }, { "f32 1,2,1,2: 5 9 7 8", "i64 1,2,1,2: 2 5 6 11" } },
    { "dilation with SAME_UPPER", HEAD "g (float[1,1,5] x) => (float y) { y = MaxPool<kernel_shape=[2], dilations=[2], auto_pad=\"SAME_UPPER\">(x) }",
      { "f32 1,1,5: 1 2 3 4 5" }, { "f32 1,1,5: 2 3 4 5 4" } },
    { "ceil_mode: pads count, places beyond them do not",
      HEAD "g (float[1,1,9] x) => (float y) { y = AveragePool<kernel_shape=[7], strides=[3], pads=[3,3], ceil_mode=1, count_include_pad=1>(x) }",
      { "f32 1,1,9: 1 2 3 4 5 6 7 8 9" }, { "f32 1,1,4: 1.4285714 4 5.5714286 4" } },
    { "ceil_mode: no window begins in the padding at the end", HEAD "g (float[1,1,5] x) => (float y) { y = AveragePool<kernel_shape=[2], strides=[3], pads=[1,1], ceil_mode=1>(x) }",
      { "f32 1,1,5: 1 2 3 4 5" }, { "f32 1,1,2: 1 3.5" } },
    { "an average of f16 is summed wide", HEAD "g (float16[1,1,4] x) => (float16 y) { y = AveragePool<kernel_shape=[4]>(x) }", { "f16 1,1,4: 60000 60000 60000 60000" }, { "f16 1,1,1: 60000" } },
    { "LpPool with p 1 and 3", HEAD "g (float[1,1,2] x) => (float y, float z) { y = LpPool<kernel_shape=[2], p=1>(x) z = LpPool<kernel_shape=[2], p=3>(x) }",
      { "f32 1,1,2: -3 4" }, { "f32 1,1,1: 7", "f32 1,1,1: 4.4979414" } },
    { "LRN of an even size looks one further ahead", HEAD "g (float[1,3,1] x) => (float y) { y = LRN<size=2, alpha=2.0, beta=1.0, bias=0.0>(x) }", { "f32 1,3,1: 1 2 3" }, { "f32 1,3,1: 0.2 0.15384615 0.33333333" } },
    { "MaxUnpool into a larger shape", HEAD "g (float[1,1,2] x, int64[1,1,2] i) => (float y) <int64[3] s = {1,1,6}> { y = MaxUnpool<kernel_shape=[2], strides=[2]>(x, i, s) }",
      { "f32 1,1,2: 5 7", "i64 1,1,2: 1 2" }, { "f32 1,1,6: 0 5 7 0 0 0" } },
    { "a region of an image that is not there", HEAD "g (float[1,1,2,2] x, float[1,4] r, int64[1] b) => (float y) { y = RoiAlign(x, r, b) }",
      { "f32 1,1,2,2: 1 2 3 4", "f32 1,4: 0 0 1 1", "i64 1: 3" }, { "!a region is of image 3" } },
    /* ---- convolutions */
    { "negative Pad before a padded Conv", HEAD "g (float[1,1,5] x) => (float y) <int64[6] p = {0,0,-2,0,0,-1}, float[1,1,3] w = {1,1,1}> { a = Pad(x, p) y = Conv<pads=[1,1]>(a, w) }",
      { "f32 1,1,5: 1 2 3 4 5" }, { "f32 1,1,2: 7 7" } },
    { "no batch", HEAD "g (float[N,1,3] x) => (float y) <float[2,1,2] w = {1,1,1,1}> { y = Conv(x, w) }", { "f32 0,1,3:" }, { "f32 0,2,2:" } },
    { "a bias is added before the one rounding", HEAD "g (float16[1,1,2] x, float16[1,1,2] w, float16[1] b) => (float16 y) { y = Conv(x, w, b) }",
      { "f16 1,1,2: 2048 1", "f16 1,1,2: 1 1", "f16 1: 1" }, { "f16 1,1,1: 2050" } },
    { "groups that do not fit", HEAD "g (float[1,3,2] x) => (float y) <float[2,1,1] w = {1,1}> { y = Conv<group=2>(x, w) }", { "f32 1,3,2: 1 2 3 4 5 6" }, { "!input channels: group times the weight's: 3, wanted 2" } },
    { "ConvTranspose in groups", HEAD "g (float[1,2,2] x) => (float y) <float[2,1,2] w = {1,10,100,1000}> { y = ConvTranspose<group=2, strides=[2]>(x, w) }",
      { "f32 1,2,2: 1 2 3 4" }, { "f32 1,2,4: 1 10 2 20 300 3000 400 4000" } },
    { "ConvTranspose: strides larger than the kernel, and dilation", HEAD
      "g (float[1,1,2] x) => (float y, float z) <float[1,1,2] w = {1,10}> { y = ConvTranspose<strides=[3], output_padding=[1]>(x, w) z = ConvTranspose<strides=[2], dilations=[2]>(x, w) }",
      { "f32 1,1,2: 1 2" }, { "f32 1,1,6: 1 10 0 2 20 0", "f32 1,1,5: 1 0 12 0 20" } },
    { "ConvInteger pads with the zero point", HEAD "g (uint8[1,1,2] x, uint8 z) => (int32 y) <int8[1,1,3] w = {1,1,1}> { y = ConvInteger<pads=[1,1]>(x, w, z) }",
      { "u8 1,1,2: 10 20", "u8 : 5" }, { "i32 1,1,2: 20 20" } },
    { "Col2Im sums overlaps", HEAD "g (float[1,2,3] x) => (float y) <int64[1] s = {4}, int64[1] b = {2}> { y = Col2Im(x, s, b) }", { "f32 1,2,3: 1 2 3 10 20 30" }, { "f32 1,1,4: 1 12 23 30" } },
    { "a causal convolution carries its last places", "<ir_version: 8, opset_import: [\"\" : 27]>\n"
      "g (float[1,1,2] x, float[1,1,2] s) => (float y, float t) <float[1,1,3] w = {1,10,100}> { y, t = CausalConvWithState(x, w, , s) }",
      { "f32 1,1,2: 3 4", "f32 1,1,2: 1 2" }, { "f32 1,1,2: 321 432", "f32 1,1,2: 3 4" } },
    { "blocks to channels, by place first and by depth first", "<ir_version: 8, opset_import: [\"\" : 28]>\n"
      "g (float[1,2,2,2] x) => (float y, float z) { y = SpaceToDepth<blocksize=2>(x) z = SpaceToDepth<blocksize=2, mode=\"CRD\">(x) }",
      { "f32 1,2,2,2: 1 2 3 4 5 6 7 8" }, { "f32 1,8,1,1: 1 5 2 6 3 7 4 8", "f32 1,8,1,1: 1 2 3 4 5 6 7 8" } },
    { "a shift of all bits to the right leaves the sign", "<ir_version: 8, opset_import: [\"\" : 28]>\n"
      "g (int8[4] x, int8[4] n) => (int8 y, int8 z) { y = BitShift<direction=\"RIGHT\">(x, n) z = BitShift<direction=\"LEFT\">(x, n) }",
      { "i8 4: -3 -3 3 -128", "i8 4: 8 -1 9 7" }, { "i8 4: -1 -1 0 -1", "i8 4: 0 0 0 0" } },
    /* ---- resizing */
    { "a tie of the exact scale rounds up", HEAD "g (float[20] x) => (float y) <int64[1] s = {6}> { y = Resize<nearest_mode=\"round_prefer_ceil\">(x, , , s) }",
      { "f32 20: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19" }, { "f32 6: 1 5 8 11 15 18" } },
    { "and of the float32 nearest to it", HEAD "g (float[20] x) => (float y) <float[1] s = {0.3}> { y = Resize<nearest_mode=\"round_prefer_ceil\">(x, , s) }",
      { "f32 20: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19" }, { "f32 6: 1 5 8 11 15 18" } },
    { "a place before the first is the first", HEAD "g (float[N] x) => (float y) <float[1] s = {2}> { y = Resize<nearest_mode=\"floor\">(x, , s) }", { "f32 4: 0 1 2 3" }, { "f32 8: 0 0 0 1 1 2 2 3" } },
    { "a linear resize of integers rounds", HEAD "g (uint8[2] x) => (uint8 y) <float[1] s = {2}> { y = Resize<mode=\"linear\">(x, , s) }", { "u8 2: 0 255" }, { "u8 4: 0 64 191 255" } },
    { "outside of a region", HEAD "g (float[3] x) => (float y) <float[2] r = {0.5, 1.5}, int64[1] s = {3}> "
      "{ y = Resize<mode=\"linear\", coordinate_transformation_mode=\"tf_crop_and_resize\", extrapolation_value=9.0>(x, r, , s) }", { "f32 3: 0 1 4" }, { "f32 3: 1 4 9" } },
    { "sizes that keep the aspect ratio", HEAD "g (float[2,4] x) => (float y) <int64[2] s = {3,3}> { y = Resize<keep_aspect_ratio_policy=\"not_larger\">(x, , , s) }",
      { "f32 2,4: 0 1 2 3 4 5 6 7" }, { "f32 2,3: 0 1 3 4 5 7" } },
    { "an odd crop leaves more at the end", HEAD "g (float[4] x) => (float y, float z) <int64[1] s = {1}, int64[1] t = {7}> { y = CenterCropPad(x, s) z = CenterCropPad(x, t) }",
      { "f32 4: 1 2 3 4" }, { "f32 1: 2", "f32 7: 0 1 2 3 4 0 0" } },
    { "a sample outside hides what is there", "<ir_version: 8, opset_import: [\"\" : 20]>\ng (float[1,1,1,2] x, float[1,1,2,2] p) => (float y) { y = GridSample<align_corners=1>(x, p) }",
      { "f32 1,1,1,2: 3 inf", "f32 1,1,2,2: -1 0 -5 0" }, { "f32 1,1,1,2: nan 0" } },
    /* ---- indices */
    { "negative indices, scalar index", HEAD "g (float[1,4] x, int64 i, int64[1,2] j) => (float y, float z) { y = Gather<axis=-1>(x, i) z = Gather<axis=1>(x, j) }",
      { "f32 1,4: 1 2 3 4", "i64 : -1", "i64 1,2: 0 -1" }, { "f32 1: 4", "f32 1,1,2: 1 4" } },
    { "an index outside", HEAD "g (float[4] x, int64[1] i) => (float y) { y = Gather(x, i) }", { "f32 4: 1 2 3 4", "i64 1: 7" }, { "!index" } },
    { "GatherND with a batch", HEAD "g (float[2,2,2] x, int64[2,1] i) => (float y) { y = GatherND<batch_dims=1>(x, i) }", { "f32 2,2,2: 0 1 2 3 4 5 6 7", "i64 2,1: 1 -2" }, { "f32 2,2: 2 3 4 5" } },
    { "equal indices add up", HEAD "g (float[2] x, int64[4,1] i, float[4] u) => (float y) { y = ScatterND<reduction=\"add\">(x, i, u) }",
      { "f32 2: 1 2", "i64 4,1: 1 1 1 -1", "f32 4: 1 2 4 8" }, { "f32 2: 1 17" } },
    { "without a reduction the last one wins", HEAD "g (float[2] x, int64[3] i, float[3] u) => (float y) { y = ScatterElements(x, i, u) }",
      { "f32 2: 1 2", "i64 3: 0 1 0", "f32 3: 5 6 7" }, { "f32 2: 7 6" } },
    { "f16 sums at one place are rounded once", HEAD "g (float16[1] x, int64[2] i, float16[2] u) => (float16 y) { y = ScatterElements<reduction=\"add\">(x, i, u) }",
      { "f16 1: 2048", "i64 2: 0 0", "f16 2: 1 1" }, { "f16 1: 2050" } },
    { "reversed up to each length", HEAD "g (float[3,2] x, int64[2] n) => (float y) { y = ReverseSequence(x, n) }", { "f32 3,2: 1 2 3 4 5 6", "i64 2: 3 2" }, { "f32 3,2: 5 4 3 2 1 6" } },
    { "an ignored target weighs nothing", HEAD "g (float[2,2] x, int64[2] t) => (float y) { y = NegativeLogLikelihoodLoss<ignore_index=-1>(x, t) }", { "f32 2,2: -1 -2 -3 -4", "i64 2: 1 -1" }, { "f32 : 2" } },
    /* ---- sorting and selection */
    { "NaN is above all numbers", HEAD "g (float[4] x) => (float y, int64 i) <int64[1] k = {3}> { y, i = TopK(x, k) }", { "f32 4: 1 nan 3 nan" }, { "f32 3: nan nan 3", "i64 3: 1 3 2" } },
    { "the smallest, ties by index", HEAD "g (int64[4] x) => (int64 y, int64 i) <int64[1] k = {3}> { y, i = TopK<largest=0>(x, k) }", { "i64 4: 2 1 2 1" }, { "i64 3: 1 1 2", "i64 3: 1 3 0" } },
    { "more than there are", HEAD "g (float[2] x, int64[1] k) => (float y, int64 i) { y, i = TopK(x, k) }", { "f32 2: 1 2", "i64 1: 3" }, { "!3 from 2" } },
    { "all NaN are one value", HEAD "g (float[5] x) => (float y, int64 a, int64 b) { y, a, b = Unique(x) }", { "f32 5: nan 1 nan 1 -0.0" }, { "f32 3: 0 1 nan", "i64 3: 4 1 0", "i64 5: 2 1 2 1 0" } },
    { "in order of occurrence", HEAD "g (int64[2,3] x) => (int64 y, int64 a, int64 b) { y, a, b = Unique<sorted=0, axis=1>(x) }", { "i64 2,3: 2 1 2 3 3 3" }, { "i64 2,2: 2 1 3 3", "i64 2: 0 1", "i64 3: 0 1 0" } },
    { "NonZero counts NaN", HEAD "g (float[2,2] x) => (int64 y) { y = NonZero(x) }", { "f32 2,2: 0 nan 1 -0.0" }, { "i64 2,2: 0 1 1 0" } },
    { "a short condition", HEAD "g (float[2,3] x, bool[2] c) => (float y) { y = Compress<axis=1>(x, c) }", { "f32 2,3: 1 2 3 4 5 6", "bool 2: 0 1" }, { "f32 2,1: 2 5" } },
    { "no box is asked for", HEAD "g (float[1,2,4] b, float[1,1,2] s) => (int64 y) { y = NonMaxSuppression(b, s) }", { "f32 1,2,4: 0 0 1 1 0 0 1 1", "f32 1,1,2: 1 2" }, { "i64 0,3:" } },
    /* ---- signals */
    { "the inverse of a one-sided transform", "<ir_version: 8, opset_import: [\"\" : 20]>\ng (float[1,3,2] x) => (float y) { y = DFT<inverse=1, onesided=1>(x) }", { "f32 1,3,2: 10 0 -2 2 -2 0" }, { "f32 1,4,1: 1 2 3 4" } },
    { "a transform of a longer length", HEAD "g (float[1,2,1] x) => (float y) <int64 n = {4}> { y = DFT(x, n) }", { "f32 1,2,1: 1 1" }, { "f32 1,4,2: 2 0 1 -1 0 0 1 1" } },
    { "a window of one place", HEAD "g (int64 n) => (float y) { y = HannWindow<periodic=0>(n) }", { "i64 : 1" }, { "f32 1: 1" } },
    /* ---- recurrent networks */
    { "sequences end early and begin at their own end", HEAD "g (float[3,2,1] x, int32[2] n) => (float y, float h) <float[1,1,1] w = {1}, float[1,1,1] r = {1}> "
      "{ y, h = RNN<hidden_size=1, direction=\"reverse\", activations=[\"Relu\"]>(x, w, r, , n) }", { "f32 3,2,1: 1 10 2 20 4 40", "i32 2: 2 3" },
      { "f32 3,1,2,1: 3 70 2 60 0 40", "f32 1,2,1: 3 70" } },
    { "layout 1, and an initial state", HEAD "g (float[2,2,1] x, float[2,1,1] h0) => (float y, float h) <float[1,1,1] w = {1}, float[1,1,1] r = {1}> "
      "{ y, h = RNN<hidden_size=1, layout=1, activations=[\"Affine\"], activation_alpha=[2.0], activation_beta=[1.0]>(x, w, r, , , h0) }",
      { "f32 2,2,1: 1 2 10 20", "f32 2,1,1: 0 100" }, { "f32 2,2,1,1: 3 11 221 483", "f32 2,1,1: 11 483" } },
};

/* ---- the rows' language ----------------------------------------------------------------------------------------------------------------- */

typedef struct Run { Ctx cx; Arena *arena; OnnxModel *model; const Row *row; Tensor in[8], out[8]; } Run;

static double read_number(char **p)
{
    while (**p == ' ') ++*p;
    return strtod(*p, p);
}

static Tensor read_tensor(Run *r, const char *text)
{
    char name[8] = "", *p = (char *)(uintptr_t)text;
    int64_t dims[MAX_RANK];
    int n = 0, rank = 0;
    while (*p != ' ') name[n++] = *p++;
    while (*++p != ':' && *p) dims[rank++] = strtoll(p, &p, 10), p -= *p == ':';
    Tensor *t = tensor_new(r->arena, &r->cx, dtype_from_name(name), rank, dims);
    p++;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        double v = read_number(&p);
        scalar_store(t->dt, tensor_at(t, i), dtype_is_float(t->dt) ? (Scalar){ .f = v } : (Scalar){ .i = (int64_t)v });
    }
    return *t;
}

static void run_row(Ctx *cx, void *arg)
{
    Run *r = arg;
    onnx_load(cx, r->model, "<memory>", r->row->model, strlen(r->row->model));
    for (int k = 0; k < 6 && r->row->in[k]; k++) r->in[k] = read_tensor(r, r->row->in[k]);
    interp_run(cx, r->arena, r->model, r->in, r->out);
}

static void check_result(Run *r, int k)
{
    Tensor want = read_tensor(r, r->row->out[k]), *got = &r->out[k];
    const char *found = shape_str(r->arena, got->rank, got->dims), *wanted = shape_str(r->arena, want.rank, want.dims);
    if (got->dt != want.dt || strcmp(found, wanted)) fail_msg("%s: output %d is %s%s, wanted %s%s", r->row->name, k, dtype_info[got->dt].name, found, dtype_info[want.dt].name, wanted);
    for (int64_t i = 0; i < tensor_count(&want); i++) {
        Scalar a = scalar_load(want.dt, tensor_at(got, i)), b = scalar_load(want.dt, tensor_at(&want, i));
        bool is_float = dtype_is_float(want.dt);
        bool ok = !is_float ? a.i == b.i : isnan(b.f) ? isnan(a.f) : isinf(b.f) ? a.f == b.f : fabs(a.f - b.f) <= 1e-5 * (1e-2 + fabs(b.f));
        if (!ok) fail_msg("%s: output %d, element %d: %.9g, wanted %.9g", r->row->name, k, (int)i, is_float ? a.f : (double)a.i, is_float ? b.f : (double)b.i);
    }
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t j = 0; j < COUNT_OF(rows); j++) {
        Run r;
        memset(&r, 0, sizeof r);
        r.row = &rows[j];
        ctx_init(&r.cx);
        r.arena = arena_new(&r.cx);
        r.model = onnx_new(&r.cx);
        Status s = guard_call(&r.cx, run_row, &r);
        if (r.row->out[0][0] == '!') {
            if (!s || !strstr(r.cx.text, r.row->out[0] + 1)) fail_msg("%s: %s \"%s\", wanted a failure with \"%s\"", r.row->name, status_name(s), s ? r.cx.text : "", r.row->out[0] + 1);
        } else {
            if (s) fail_msg("%s: %s", r.row->name, r.cx.text);
            for (int k = 0; k < 3 && r.row->out[k]; k++) check_result(&r, k);
        }
        onnx_close(r.model);
        arena_free(r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
