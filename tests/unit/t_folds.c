/* Folds and scans in generated kernels, against the interpreter: every kind on every dtype, along the axis that runs in lanes and across it.
 *
 * The length of the folded axis is a symbol, so one kernel meets all lengths: fewer than the lanes, whole vectors, one more, several vectors a
 * step with a tail. Elements are small whole numbers and powers of two: sums and products are exact in any order, and all results must be the
 * same. Rows with NaN, infinities, zeros of both signs and ties in different places come among them. */
#include "test.h"
#include "target.h"
#include <math.h>
#include <stdio.h>

enum { ROWS = 13, COLUMNS = 37 };
static const int64_t fold_lengths[] = { 1, 3, 15, 16, 17, 64, 65, 1000 };

typedef struct FoldCase { Node *node; const char *what; } FoldCase;
typedef struct FoldTable {
    Ctx *cx; Arena *arena; Graph *g;
    VEC(FoldCase) cases;
    VEC(DType) in_dt; VEC(int) in_form;  /* of each input: across the lanes or along them; of products */
    int bad;
} FoldTable;
enum { FORM_along = 0, FORM_across = 1, FORM_product = 2 };

/* Element j of n in row r. */
static Scalar fold_sample(DType t, int form, int64_t r, int64_t j, int64_t n)
{
    Scalar s = { 0 };
    uint64_t h = random_word((uint64_t)(r * 31 + form), (uint64_t)j);
    if (!dtype_is_float(t)) {
        s.i = r == 1 ? 1 : r == 2 ? (j == n / 2 ? 7 : 7 - (int64_t)(h % 3)) : r == 3 ? (int64_t)h : form & FORM_product ? 1 + (int64_t)(h % 3) : (int64_t)(h % 15) - 7;
        return scalar_round(t, s, false);
    }
    if (form & FORM_product) {
        static const double factor[] = { 1, -1, 2, 0.5, -2, -0.5 };
        s.f = factor[h % 6];
    } else s.f = (double)(h % 15) - 7;
    switch (r % 13) {
    case 1: s.f = 1; break;
    case 2: if (j == n / 2) s.f = NAN; break;
    case 3: if (j == 0 || j == n - 1) s.f = NAN; break;
    case 4: if (j == n - 1) s.f = NAN; break;
    case 5: if (j == n / 3) s.f = -INFINITY; break;
    case 6: if (j == n / 3) s.f = INFINITY; break;
    case 7: s.f = -0.0; break;
    case 8: s.f = h & 1 ? 0.0 : -0.0; break;
    case 9: s.f = -INFINITY; break;
    case 10: s.f = INFINITY; break;
    case 11: s.f = NAN; break;
    }
    return s;
}

static Node *fold_input(FoldTable *t, DType dt, int form, int64_t length)
{
    bool across = form & FORM_across;
    char *name = arena_fmt(t->arena, "x%d", t->in_dt.n);
    int64_t sym = length ? -1 : 0, dims[2] = { across ? sym : ROWS, across ? COLUMNS : sym }, hint[2] = { across ? length : ROWS, across ? COLUMNS : length };
    const char *const names[2] = { across ? "N" : NULL, across ? NULL : "N" };
    Tensor x;
    tensor_init(t->cx, &x, dt, 2, hint);
    vec_push(t->arena, &t->in_dt, dt);
    vec_push(t->arena, &t->in_form, form);
    return graph_input(t->g, name, dt, 2, dims, names, arena_copy(t->arena, &x, sizeof x));
}

static void fold_case(FoldTable *t, Node *n, const char *what)
{
    FoldCase c = { n, what };
    vec_push(t->arena, &t->cases, c);
    graph_output(t->g, what, n);
    graph_origin(t->g, what, what, "");
}

static void fold_cases(FoldTable *t, DType dt, int64_t length)
{
    Graph *g = t->g;
    bool few = dtype_bits(dt) < 8;       /* held like i8 and u8 */
    for (int form = 0; form < 4; form++) {
        int axis = form & FORM_across ? 0 : 1;
        Node *x = fold_input(t, dt, form, length);
        for (FoldKind k = 0; k < FOLD_COUNT; k++) {
            bool arg = k == FOLD_argmax || k == FOLD_argmin;
            if ((k == FOLD_prod) != !!(form & FORM_product) || (dt == DT_bool && k < FOLD_max) || (arg && (few || dt == DT_bool || !length))) continue;
            char *what = arena_fmt(t->arena, "%s %s %s", fold_name[k], dtype_info[dt].name, axis ? "along the lanes" : "across the lanes");
            for (int last = 0; arg && last < 2; last++) fold_case(t, g_argfold(g, k, x, axis, false, last), last ? arena_fmt(t->arena, "last %s", what) : what);
            if (arg) continue;
            fold_case(t, g_fold(g, k, x, axis_bit(axis), false), what);
            if (dt != DT_bool && length) fold_case(t, g_scan(g, k, x, axis, false, false), arena_fmt(t->arena, "scan: %s", what));
        }
    }
}

static Tensor fold_data(FoldTable *t, Arena *a, int i, int64_t length)
{
    int form = t->in_form.at[i];
    bool across = form & FORM_across;
    Tensor x;
    tensor_init(t->cx, &x, t->in_dt.at[i], 2, (int64_t[]){ across ? length : ROWS, across ? COLUMNS : length });
    x.data = arena_alloc(a, tensor_bytes(&x) + 1);
    for (int64_t r = 0; r < (across ? COLUMNS : ROWS); r++)
        for (int64_t j = 0; j < length; j++)
            scalar_store(x.dt, (char *)x.data + (size_t)(across ? j * COLUMNS + r : r * length + j) * dtype_size(x.dt), fold_sample(x.dt, form, r, j, length));
    return x;
}

static void fold_compare(FoldTable *t, const char *isa, int64_t length, const char *what, const Tensor *got, const Tensor *want)
{
    int wrong = 0;
    assert_int_equal(tensor_count(got), tensor_count(want));
    for (int64_t j = 0; j < tensor_count(want); j++) {
        Scalar a = scalar_load(want->dt, (char *)got->data + (size_t)j * dtype_size(want->dt)), b = scalar_load(want->dt, (char *)want->data + (size_t)j * dtype_size(want->dt));
        bool same = !dtype_is_float(want->dt) ? a.i == b.i : isnan(a.f) || isnan(b.f) ? isnan(a.f) && isnan(b.f) : a.f == b.f && !signbit(a.f) == !signbit(b.f);
        if (same || wrong++) continue;
        if (dtype_is_float(want->dt)) print_error("%s: %s, length %lld: element %lld is %a, wanted %a\n", isa, what, (long long)length, (long long)j, a.f, b.f);
        else print_error("%s: %s, length %lld: element %lld is %lld, wanted %lld\n", isa, what, (long long)length, (long long)j, (long long)a.i, (long long)b.i);
    }
    t->bad += wrong > 0;
}

static void folds_run(FoldTable *t, Segment *s, const char *isa, int64_t length)
{
    Arena *a = arena_new(t->cx);
    Tensor *in = NEWS(a, Tensor, t->in_dt.n), *got = NEWS(a, Tensor, t->cases.n), *want = NEWS(a, Tensor, t->cases.n);
    Node **node = NEWS(a, Node *, t->cases.n);
    int64_t *syms = NEWS(a, int64_t, t->g->sym.n + 1);
    const char *why = "";
    for (int i = 0; i < t->in_dt.n; i++) in[i] = fold_data(t, a, i, length);
    for (int i = 0; i < t->cases.n; i++) node[i] = t->cases.at[i].node;
    if (!segment_serves(t->cx, a, s, in, syms, &why)) fail_msg("length %lld is not served: %s", (long long)length, why);
    eval_nodes(t->cx, a, t->g, in, syms, t->cases.n, node, want);
    segment_run(t->cx, a, s, in, syms, got, NULL, NULL);
    for (int i = 0; i < t->cases.n; i++) fold_compare(t, isa, length, t->cases.at[i].what, &got[i], &want[i]);
    arena_free(a);
}

static void folds_body(Ctx *cx, void *arg)
{
    int64_t length = *(const int64_t *)arg;       /* 0: no symbol, folds over nothing */
    FoldTable t = { .cx = cx, .arena = arena_new(cx) };
    t.g = graph_new(cx, t.arena);
    for (DType dt = DT_none + 1; dt < DT_COUNT; dt++)
        if ((!dtype_is_float(dt) || dtype_size(dt) > 1) && (length || dt == DT_f32 || dt == DT_bf16 || dt == DT_i8 || dt == DT_u64 || dt == DT_bool)) fold_cases(&t, dt, length);
    graph_check(cx, t.g);
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(isa_names); i++) {
        Target target;
        if (!isa_open_next(cx, t.arena, i, &any, &target)) continue;
        double t0 = time_now();
        Segment *s = segment_new(cx, &target, t.g, &(ProgramOptions){ .fuse = false, .threads = 1 });
        assert_false(s->interpreted);
        int bad = t.bad;
        for (size_t k = 0; length && k < COUNT_OF(fold_lengths); k++) folds_run(&t, s, isa_names[i], fold_lengths[k]);
        if (!length) folds_run(&t, s, isa_names[i], 0);
        print_message("%s: %d folds, %d kernels, %.1f s, %d wrong\n", isa_names[i], t.cases.n, segment_kernels(s), time_now() - t0, t.bad - bad);
        segment_free(s);
        dev_cpu.close(target.device);
    }
    arena_free(t.arena);
    assert_int_equal(t.bad, 0);
}

/* Long float32 sums do not stop at 2^24: the accumulators of a long axis are themselves added up. */
static void long_sums(Ctx *cx, void *arg)
{
    (void)arg;
    Arena *a = arena_new(cx);
    const int64_t n = 20000000;
    float *ones = NEWS(a, float, n);
    for (int64_t i = 0; i < n; i++) ones[i] = 1;
    for (int64_t width = 1; width <= 3; width += 2) {
        Graph *g = graph_new(cx, a);
        Tensor x, out[2] = { { 0 } }, all[2];
        tensor_init(cx, &x, DT_f32, 2, (int64_t[]){ n / width, width });
        x.data = ones;
        all[0] = x;
        Node *in = graph_input(g, "x", DT_f32, 2, x.dims, NULL, NULL);
        graph_output(g, "columns", g_fold(g, FOLD_sum, in, axis_bit(0), false));
        graph_output(g, "all", g_fold(g, FOLD_sum, in, axis_bit(0) | axis_bit(1), false));
        bool any = false;
        for (size_t i = 0; i < COUNT_OF(isa_names); i++) {
            Target target;
            if (!isa_open_next(cx, a, i, &any, &target)) continue;
            Segment *s = segment_new(cx, &target, g, &(ProgramOptions){ .fuse = false, .threads = 2 });
            int64_t syms[8] = { 0 };
            memset(out, 0, sizeof out);
            segment_run(cx, a, s, all, syms, out, NULL, NULL);
            float columns = *(float *)out[0].data, sum = *(float *)out[1].data;
            if (columns != (float)(n / width) || sum != (float)(n / width * width))
                fail_msg("%s: sum of %lld ones in %lld columns is %.0f in the first one, %.0f in all", isa_names[i], (long long)n, (long long)width, (double)columns, (double)sum);
            segment_free(s);
            dev_cpu.close(target.device);
        }
    }
    arena_free(a);
}

static void under_guard(void (*body)(Ctx *, void *), void *arg)
{
    Ctx cx;
    ctx_init(&cx);
    if (guard_call(&cx, body, arg) != E_OK) fail_msg("%s", cx.text);
}

static void folds_all(void **state) { (void)state; under_guard(folds_body, &(int64_t){ 1000 }); }
static void folds_of_nothing(void **state) { (void)state; under_guard(folds_body, &(int64_t){ 0 }); }
static void folds_long(void **state) { (void)state; under_guard(long_sums, NULL); }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(folds_all), cmocka_unit_test(folds_of_nothing), cmocka_unit_test(folds_long) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
