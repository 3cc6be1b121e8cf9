/* The builders of folds, scans, joins, gathers and composites, evaluated by the reference interpreter and compared with loops written here (ref.h). */
#include "ref.h"

/* ---- loops ---------------------------------------------------------------------------------------------------------------- */

static void folds(Bench *b)
{
    static const int64_t shapes[][3] = { { 3, 4, 5 }, { 1, 4, 1 }, { 2, 0, 3 } };
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        b->nin = 0;
        b->g = graph_new(b->cx, b->a);
        Ref *r = ref_noise(b->a, 3, shapes[s]);
        Node *x = input(b, DT_f64, r);
        for (int kind = FOLD_sum; kind <= FOLD_min; kind++)
            for (uint32_t axes = 0; axes < 8; axes++)
                for (int keep = 0; keep < 2; keep++)
                    same_within(b, g_fold(b->g, (FoldKind)kind, x, axes, keep), ref_fold(b->a, (FoldKind)kind, r, axes, keep), 1e-12);
        assert_ptr_equal(g_fold(b->g, FOLD_sum, x, 0, true), x);
        Ref *mean = ref_fold(b->a, FOLD_sum, r, 6, true);
        for (int64_t j = 0; j < mean->n; j++) mean->at[j] /= (double)(shapes[s][1] * shapes[s][2]);
        same_within(b, g_mean(b->g, x, 6, true), mean, 1e-12);
    }
    /* rank 0; integers wrap; halves accumulate in float32 */
    b->g = graph_new(b->cx, b->a);
    b->nin = 0;
    Ref *r = REF(300), *want = ref_new(b->a, 0, NULL);
    for (int j = 0; j < 300; j++) r->at[j] = 100;
    want->at[0] = (double)(int8_t)(300 * 100);
    same(b, g_fold(b->g, FOLD_sum, input(b, DT_i8, r), 1, false), want);
    for (int j = 0; j < 300; j++) r->at[j] = j ? 1 : 4096;
    want->at[0] = 4096 + 300;           /* 4395 to the nearest multiple of 4; adding ones to 4096 in half would stay there */
    same(b, g_fold(b->g, FOLD_sum, input(b, DT_f16, r), 1, false), want);
    want->at[0] = 1;
    same(b, g_fold(b->g, FOLD_max, input(b, DT_bool, r), 1, false), want);
}

static void arg_folds(Bench *b)
{
    Ref *r = REF(3, 4);
    for (int64_t j = 0; j < r->n; j++) r->at[j] = below(3);
    Node *x = input(b, DT_f32, r);
    for (int kind = FOLD_argmax; kind <= FOLD_argmin; kind++)
        for (int axis = 0; axis < 2; axis++)
            for (int last = 0; last < 2; last++) {
                Ref *want = ref_fold(b->a, FOLD_sum, r, axis_bit(axis), true);
                for (int64_t j = 0; j < want->n; j++) {
                    int64_t best = 0, step = axis ? 1 : 4, base = axis ? j * 4 : j;
                    for (int64_t i = 1; i < r->dims[axis]; i++) {
                        double d = r->at[base + i * step] - r->at[base + best * step];
                        if (kind == FOLD_argmin) d = -d;
                        if (d > 0 || (d == 0 && last)) best = i;
                    }
                    want->at[j] = (double)best;
                }
                same(b, g_argfold(b->g, (FoldKind)kind, x, axis, true, last), want);
                want->rank = 1;
                want->dims[0] = want->n;
                same(b, g_argfold(b->g, (FoldKind)kind, x, axis, false, last), want);
            }
}

static void scans(Bench *b)
{
    Ref *r = REF(3, 4, 2);
    Node *x = input(b, DT_f64, r);
    for (int kind = FOLD_sum; kind <= FOLD_min; kind++)
        for (int axis = 0; axis < 3; axis++)
            for (int mode = 0; mode < 4; mode++) {
                bool exclusive = mode & 1, reverse = mode & 2;
                Ref *want = ref_new(b->a, 3, r->dims);
                for (int64_t j = 0; j < r->n; j++) {
                    int64_t at[REF_RANK], to = 0;
                    coords(r, j, at);
                    to = at[axis];
                    double v = start_of((FoldKind)kind);
                    for (int64_t i = 0; i < r->dims[axis]; i++) {
                        int64_t e = reverse ? r->dims[axis] - 1 - i : i;
                        bool in = reverse ? e > to || (e == to && !exclusive) : e < to || (e == to && !exclusive);
                        at[axis] = e;
                        if (in) v = combine((FoldKind)kind, v, r->at[place(r, at)]);
                    }
                    want->at[j] = v;
                }
                same_within(b, g_scan(b->g, (FoldKind)kind, x, axis, exclusive, reverse), want, 1e-12);
            }
    same(b, g_scan(b->g, FOLD_sum, input(b, DT_f64, REF(2, 0)), 1, true, true), ref_new(b->a, 2, (int64_t[]){ 2, 0 }));
}

static void joins(Bench *b)
{
    Graph *g = b->g;
    Ref *r[3] = { REF(2, 3), REF(2, 0), REF(2, 2) }, *want = ref_new(b->a, 2, (int64_t[]){ 2, 5 });
    Node *x[3];
    for (int k = 0; k < 3; k++) x[k] = input(b, DT_f32, r[k]);
    for (int64_t j = 0; j < 10; j++) want->at[j] = j % 5 < 3 ? r[0]->at[j / 5 * 3 + j % 5] : r[2]->at[j / 5 * 2 + j % 5 - 3];
    Node *y = g_join(g, 3, x, 1);
    same(b, y, want);
    assert_int_equal(y->nin, 2);
    assert_ptr_equal(g_join(g, 2, x, 1), x[0]);
    assert_int_equal(g_join(g, 2, (Node *[]){ y, x[0] }, 1)->nin, 3);
    Tensor t;
    ref_store(b, &t, DT_f32, r[0]);
    Node *known = g_const(g, &t), *both = g_join(g, 2, (Node *[]){ known, known }, 1);
    assert_int_equal(both->op, OP_const);
    Ref *twice = ref_new(b->a, 2, (int64_t[]){ 2, 6 });
    for (int64_t j = 0; j < 12; j++) twice->at[j] = r[0]->at[j / 6 * 3 + j % 3];
    same(b, both, twice);
}

/* ---- gathers ---------------------------------------------------------------------------------------------------------------- */

static Ref *ref_gather(Arena *a, const Ref *x, const Ref *index, int axis)
{
    int64_t dims[REF_RANK];
    int rank = 0;
    for (int k = 0; k < axis; k++) dims[rank++] = x->dims[k];
    for (int k = 0; k < index->rank; k++) dims[rank++] = index->dims[k];
    for (int k = axis + 1; k < x->rank; k++) dims[rank++] = x->dims[k];
    Ref *y = ref_new(a, rank, dims);
    for (int64_t j = 0; j < y->n; j++) {
        int64_t to[REF_RANK], from[REF_RANK];
        coords(y, j, to);
        int64_t i = (int64_t)index->at[place(index, to + axis)];
        for (int k = 0; k < x->rank; k++) from[k] = k < axis ? to[k] : k > axis ? to[k - 1 + index->rank] : i < 0 ? i + x->dims[k] : i;
        y->at[j] = x->at[place(x, from)];
    }
    return y;
}

static void gathers(Bench *b)
{
    for (int trial = 0; trial < 60; trial++) {
        b->nin = 0;
        b->g = graph_new(b->cx, b->a);
        Ref *r = REF(2, 5, 3), *index = below(3) ? REF(2, 2) : below(2) ? REF(3) : ref_noise(b->a, 0, NULL);
        int axis = below(3), size = (int)r->dims[axis];
        for (int64_t j = 0; j < index->n; j++) index->at[j] = below(2 * size) - size;
        Node *x = input(b, DT_f32, r);
        Ref *want = ref_gather(b->a, r, index, axis);
        same(b, g_gather_axis(b->g, x, input(b, below(2) ? DT_i32 : DT_i64, index), axis), want);
        Tensor t;
        ref_store(b, &t, DT_i32, index);
        same(b, g_gather_axis(b->g, x, g_const(b->g, &t), axis), want);
        /* a progression needs no gather */
        for (int64_t j = 0; j < index->n; j++) index->at[j] = (double)(size - 1 - (j > size - 1 ? size - 1 : j));
        if (index->n > size) continue;
        ref_store(b, &t, DT_i64, index);
        Node *y = g_gather_axis(b->g, x, g_const(b->g, &t), axis);
        assert_int_equal(y->op, OP_view);
        assert_ptr_equal(y->in[0], x);
        same(b, y, ref_gather(b->a, r, index, axis));
    }
    Ref *rs = ref_count_up(b->a, 1, (int64_t[]){ 4 }), *ru = REF(2), *ri = REF(2);
    b->nin = 0;
    b->g = graph_new(b->cx, b->a);
    ri->at[0] = 3;
    ri->at[1] = 0;
    Node *x = input(b, DT_f32, rs), *u = input(b, DT_f32, ru), *i = input(b, DT_i64, ri);
    Dim *at = dim_idx(b->g, DIM_OPERAND, x->dims[0]);
    Node *y = g_scatter(b->g, x, u, 1, &i, &(View){ .nidx = 1, .idx = &at }, COMBINE_add);
    rs->at[3] = (float)rs->at[3] + (float)ru->at[0];
    rs->at[0] = (float)rs->at[0] + (float)ru->at[1];
    same(b, y, rs);
}

/* ---- composites ---------------------------------------------------------------------------------------------------------------- */

static Ref *ref_matmul(Arena *a, const Ref *x, const Ref *y)
{
    int64_t dims[REF_RANK], bx = x->rank > 2 ? x->rank - 2 : 0, by = y->rank > 2 ? y->rank - 2 : 0, nb = bx > by ? bx : by;
    int rank = 0;
    for (int64_t k = 0; k < nb; k++) {
        int64_t dx = k >= nb - bx ? x->dims[k - (nb - bx)] : 1, dy = k >= nb - by ? y->dims[k - (nb - by)] : 1;
        dims[rank++] = dx == 1 ? dy : dx;
    }
    if (x->rank > 1) dims[rank++] = x->dims[x->rank - 2];
    if (y->rank > 1) dims[rank++] = y->dims[y->rank - 1];
    Ref *z = ref_new(a, rank, dims);
    for (int64_t j = 0; j < z->n; j++) {
        int64_t to[REF_RANK], fx[REF_RANK], fy[REF_RANK];
        coords(z, j, to);
        for (int64_t k = 0; k < bx; k++) fx[k] = x->dims[k] == 1 ? 0 : to[nb - bx + k];
        for (int64_t k = 0; k < by; k++) fy[k] = y->dims[k] == 1 ? 0 : to[nb - by + k];
        if (x->rank > 1) fx[x->rank - 2] = to[nb];
        if (y->rank > 1) fy[y->rank - 1] = to[rank - 1];
        for (int64_t k = 0; k < x->dims[x->rank - 1]; k++) {
            fx[x->rank - 1] = k;
            fy[y->rank > 1 ? y->rank - 2 : 0] = k;
            z->at[j] += x->at[place(x, fx)] * y->at[place(y, fy)];
        }
    }
    return z;
}

static void matmuls(Bench *b)
{
    static const struct { int rx; int64_t x[4]; int ry; int64_t y[4]; } cases[] = {
        { 2, { 3, 4 }, 2, { 4, 5 } }, { 1, { 4 }, 2, { 4, 5 } }, { 2, { 3, 4 }, 1, { 4 } }, { 1, { 4 }, 1, { 4 } },
        { 3, { 2, 3, 4 }, 2, { 4, 5 } }, { 4, { 2, 1, 3, 4 }, 3, { 6, 4, 2 } }, { 1, { 4 }, 3, { 2, 4, 3 } }, { 3, { 2, 3, 4 }, 1, { 4 } },
        { 2, { 3, 0 }, 2, { 0, 2 } }, { 2, { 0, 4 }, 2, { 4, 2 } }, { 2, { 1, 4 }, 2, { 4, 1 } }, { 2, { 3, 1 }, 2, { 1, 2 } },
        { 3, { 1, 1, 4 }, 3, { 5, 4, 1 } },
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        b->nin = 0;
        b->g = graph_new(b->cx, b->a);
        Ref *x = ref_noise(b->a, cases[k].rx, cases[k].x), *y = ref_noise(b->a, cases[k].ry, cases[k].y);
        same_within(b, g_matmul(b->g, input(b, DT_f64, x), input(b, DT_f64, y)), ref_matmul(b->a, x, y), 1e-12);
        for (int64_t j = 0; j < x->n; j++) x->at[j] = below(200) - 100;
        for (int64_t j = 0; j < y->n; j++) y->at[j] = below(200) - 100;
        same(b, g_matmul(b->g, input(b, DT_i32, x), input(b, DT_i32, y)), ref_matmul(b->a, x, y));
        /* halves: exact in float32, rounded once */
        Ref *want = ref_matmul(b->a, x, y);
        for (int64_t j = 0; j < want->n; j++) want->at[j] = scalar_round(DT_f16, (Scalar){ .f = want->at[j] }, false).f;
        same(b, g_matmul(b->g, input(b, DT_f16, x), input(b, DT_f16, y)), want);
    }
}

static void softmaxes(Bench *b)
{
    Ref *r = REF(3, 4);
    r->at[1] = 900;                     /* exp would overflow without the shift */
    for (int k = 8; k < 12; k++) r->at[k] = -INFINITY;
    Node *x = input(b, DT_f64, r);
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        Ref *want = ref_new(b->a, 2, r->dims);
        for (int i = 0; i < 3; i++) {
            double m = -INFINITY, s = 0;
            for (int k = 0; k < 4; k++) m = fmax(m, r->at[i * 4 + k]);
            for (int k = 0; k < 4; k++) s += exp(r->at[i * 4 + k] - m);
            for (int k = 0; k < 4; k++) want->at[i * 4 + k] = logarithm ? r->at[i * 4 + k] - m - log(s) : exp(r->at[i * 4 + k] - m) / s;
        }
        assert_true(isnan(want->at[9]));
        same_within(b, g_softmax(b->g, x, 2, logarithm), want, 1e-14);
    }
    Ref *s = REF(5), *want = ref_new(b->a, 1, s->dims);
    static const double at[5] = { -2000, -1, 0, 3, 2000 };
    memcpy(s->at, at, sizeof at);
    for (int k = 0; k < 5; k++) want->at[k] = 1 / (1 + exp(-at[k]));
    same_within(b, g_sigmoid(b->g, input(b, DT_f64, s)), want, 1e-15);
}

TEST_WITH(folds) TEST_WITH(arg_folds) TEST_WITH(scans) TEST_WITH(joins) TEST_WITH(gathers) TEST_WITH(matmuls)
TEST_WITH(softmaxes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folds), cmocka_unit_test(test_arg_folds), cmocka_unit_test(test_scans), cmocka_unit_test(test_joins),
        cmocka_unit_test(test_gathers), cmocka_unit_test(test_matmuls), cmocka_unit_test(test_softmaxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
