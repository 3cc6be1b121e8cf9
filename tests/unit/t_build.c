/* The builders of views, elementwise nodes and symbolic sizes, evaluated by the reference interpreter and compared with a naive meaning (ref.h).
 *
 * Random chains of movements are applied to a node and to a Ref side by side; the results must be equal, and the chain must have become one view. */
#include "ref.h"

/* ---- movements, twice ------------------------------------------------------------------------------------------------- */

typedef enum Move { MOVE_transpose, MOVE_reshape, MOVE_expand, MOVE_slice, MOVE_pad, MOVE_flip, MOVE_unsqueeze, MOVE_squeeze, MOVE_COUNT } Move;
typedef struct Step { Move move; int rank; int axis, perm[REF_RANK]; int64_t dims[REF_RANK], before[REF_RANK], after[REF_RANK], start, count, by; double fill; } Step;

static Ref *ref_step(Arena *a, const Ref *x, const Step *s)
{
    int64_t dims[REF_RANK];
    memcpy(dims, x->dims, sizeof dims);
    int rank = x->rank;
    switch (s->move) {
    case MOVE_transpose: for (int k = 0; k < rank; k++) dims[k] = x->dims[s->perm[k]]; break;
    case MOVE_reshape: case MOVE_expand: rank = s->rank; memcpy(dims, s->dims, sizeof dims); break;
    case MOVE_slice: dims[s->axis] = s->count; break;
    case MOVE_pad: for (int k = 0; k < rank; k++) dims[k] += s->before[k] + s->after[k]; break;
    case MOVE_flip: case MOVE_COUNT: break;
    case MOVE_unsqueeze: for (int k = rank++; k > s->axis; k--) dims[k] = dims[k - 1]; dims[s->axis] = 1; break;
    case MOVE_squeeze: for (int k = s->axis; k < rank - 1; k++) dims[k] = dims[k + 1]; rank--; break;
    }
    Ref *y = ref_new(a, rank, dims);
    for (int64_t j = 0; j < y->n; j++) {
        int64_t to[REF_RANK] = {0}, from[REF_RANK];
        coords(y, j, to);
        memcpy(from, to, sizeof from);
        switch (s->move) {
        case MOVE_transpose: for (int k = 0; k < rank; k++) from[s->perm[k]] = to[k]; break;
        case MOVE_reshape: case MOVE_unsqueeze: case MOVE_squeeze: coords(x, j, from); break;
        case MOVE_expand: for (int k = 0; k < x->rank; k++) from[k] = x->dims[k] == 1 ? 0 : to[rank - x->rank + k]; break;
        case MOVE_slice: from[s->axis] = s->start + to[s->axis] * s->by; break;
        case MOVE_pad: for (int k = 0; k < rank; k++) from[k] = to[k] - s->before[k]; break;
        case MOVE_flip: from[s->axis] = dims[s->axis] - 1 - to[s->axis]; break;
        case MOVE_COUNT: break;
        }
        int64_t p = place(x, from);
        y->at[j] = p < 0 ? s->fill : x->at[p];
    }
    return y;
}

static Scalar fill_of(const Node *x, double v) { return scalar_cast(x->dt, DT_f64, (Scalar){ .f = v }, false); }

static Node *node_step(Bench *b, Node *x, const Step *s)
{
    Graph *g = b->g;
    switch (s->move) {
    case MOVE_transpose: return g_transpose(g, x, s->perm);
    case MOVE_reshape: return g_reshape(g, x, s->rank, sizes(b, s->rank, s->dims));
    case MOVE_expand: return g_expand(g, x, s->rank, sizes(b, s->rank, s->dims));
    case MOVE_slice: return g_slice(g, x, s->axis, dim_const(g, s->start), dim_const(g, s->count), s->by);
    case MOVE_pad: return g_pad(g, x, sizes(b, x->rank, s->before), sizes(b, x->rank, s->after), fill_of(x, s->fill));
    case MOVE_flip: return g_flip(g, x, s->axis);
    case MOVE_unsqueeze: return g_unsqueeze(g, x, s->axis);
    case MOVE_squeeze: return g_squeeze(g, x, s->axis);
    case MOVE_COUNT: break;
    }
    return NULL;
}

/* A random factorisation of n elements. */
static int random_shape_of(int64_t n, int64_t *dims)
{
    if (n == 0) { int rank = 1 + below(3), z = below(rank); for (int k = 0; k < rank; k++) dims[k] = k == z ? 0 : below(4); return rank; }
    int rank = 0;
    while (rank < REF_RANK - 1 && (n > 1 || below(4) == 0)) {
        int64_t d = 1;
        for (int tries = 0; tries < 8; tries++) { int64_t c = 1 + below((int)(n < 12 ? n : 12)); if (n % c == 0 && c > d) d = c; }
        if (rank == REF_RANK - 2) d = n;
        dims[rank++] = d;
        n /= d;
    }
    return rank;
}

/* A random movement that x allows; false when it would be too large. */
static bool random_step(const Ref *x, Step *s, double fill)
{
    *s = (Step){ .move = (Move)below(MOVE_COUNT), .rank = x->rank, .fill = fill };
    if (x->rank) s->axis = below(x->rank);
    int64_t size = x->rank ? x->dims[s->axis] : 0, n = 1;
    switch (s->move) {
    case MOVE_transpose:
        for (int k = 0; k < x->rank; k++) { int j = below(k + 1); s->perm[k] = s->perm[j]; s->perm[j] = k; }
        return true;
    case MOVE_reshape: s->rank = random_shape_of(x->n, s->dims); return true;
    case MOVE_expand:
        s->rank = x->rank + (x->rank < REF_RANK - 1 ? below(2) : 0);
        for (int k = 0; k < s->rank; k++) {
            int from = k - (s->rank - x->rank);
            s->dims[k] = from < 0 || x->dims[from] == 1 ? below(4) : x->dims[from];
            n *= s->dims[k];
        }
        return n <= 512;
    case MOVE_slice:
        if (!x->rank) return false;
        s->by = (below(2) ? 1 : -1) * (1 + below(3));
        s->start = below((int)size + 1);
        if (s->start == size) { s->count = 0; return true; }
        s->count = below((int)((s->by > 0 ? size - 1 - s->start : s->start) / labs((long)s->by)) + 2);
        return true;
    case MOVE_pad:
        for (int k = 0; k < x->rank; k++) {
            s->before[k] = below(5) - 2;
            s->after[k] = below(5) - 2;
            if (x->dims[k] + s->before[k] + s->after[k] < 0) return false;
            n *= x->dims[k] + s->before[k] + s->after[k];
        }
        return n <= 512;
    case MOVE_flip: return x->rank > 0;
    case MOVE_unsqueeze: s->axis = below(x->rank + 1); return x->rank < REF_RANK - 1;
    case MOVE_squeeze: return x->rank > 0 && size == 1;
    case MOVE_COUNT: break;
    }
    return false;
}

static void chains(Bench *b)
{
    for (int trial = 0; trial < 150; trial++) {
        int64_t dims[REF_RANK];
        int rank = below(4);
        for (int k = 0; k < rank; k++) dims[k] = below(12) ? 1 + below(4) : 0;
        b->nin = 0;
        b->g = graph_new(b->cx, b->a);
        Ref *r = ref_count_up(b->a, rank, dims);
        int kind = below(3);            /* leaf: an input, or something that views may fold into: a constant, an iota */
        Tensor t;
        if (kind == 1) ref_store(b, &t, DT_i64, r);
        if (kind == 2 && rank) {
            int axis = below(rank);
            for (int64_t j = 0; j < r->n; j++) {
                int64_t at[REF_RANK];
                coords(r, j, at);
                r->at[j] = (double)at[axis];
            }
            kind += axis;
        }
        Node *leaf = kind == 1 ? g_const(b->g, &t) : kind >= 2 && rank ? g_iota(b->g, rank, sizes(b, rank, dims), kind - 2)
                     : input(b, DT_f32, r), *x = leaf;
        bool one_fill = below(2);       /* equal fills always compose */
        for (int left = 1 + below(7); left > 0; left--) {
            Step s;
            while (!random_step(r, &s, one_fill ? -7 : -1 - below(3))) continue;
            r = ref_step(b->a, r, &s);
            x = node_step(b, x, &s);
            same(b, x, r);
        }
        if (one_fill) assert_true(x->nin == 0 || (x->op == OP_view && x->in[0]->nin == 0));
    }
}

static void test_chains(void **state)
{
    (void)state;
    for (seed = 1; seed <= 12; seed++) { uint64_t keep = seed; with_graph(chains); seed = keep; }
}

/* ---- views: identities and folding ------------------------------------------------------------------------------------ */

static void identities(Bench *b)
{
    Graph *g = b->g;
    Node *x = input(b, DT_f32, REF(2, 3, 4));
    assert_ptr_equal(g_reshape(g, g_reshape(g, x, 2, DIMS(6, 4)), 3, DIMS(2, 3, 4)), x);
    assert_ptr_equal(g_reshape(g, g_reshape(g, x, 3, DIMS(4, 3, 2)), 3, DIMS(2, 3, 4)), x);
    assert_ptr_equal(g_transpose(g, g_transpose(g, x, (int[]){ 1, 2, 0 }), (int[]){ 2, 0, 1 }), x);
    assert_ptr_equal(g_flip(g, g_flip(g, x, 1), 1), x);
    assert_ptr_equal(g_squeeze(g, g_unsqueeze(g, x, 1), 1), x);
    assert_ptr_equal(g_expand(g, x, 3, DIMS(2, 3, 4)), x);
    assert_ptr_equal(g_slice(g, x, 2, dim_const(g, 0), dim_const(g, 4), 1), x);
    /* a pad that is cropped away again leaves no predicate */
    Node *p = g_pad(g, x, DIMS(1, 0, 2), DIMS(0, 3, 0), (Scalar){ .f = 1 });
    assert_int_equal(p->view.npred, 3);
    assert_ptr_equal(g_pad(g, p, DIMS(-1, 0, -2), DIMS(0, -3, 0), (Scalar){ .f = 2 }), x);
    /* only padding: the fill alone */
    Node *fill = g_slice(g, p, 0, dim_const(g, 0), dim_const(g, 1), 1);
    assert_true(fill->op == OP_view && fill->in[0]->op == OP_const && fill->view.npred == 0);
    /* a known element spread out is a view of rank 0; padding it with itself changes nothing */
    Node *one = g_scalar(g, DT_f32, 1), *ones = g_expand(g, one, 2, DIMS(2, 2));
    assert_true(ones->op == OP_view && ones->in[0] == one && ones->view.nidx == 0);
    assert_ptr_equal(g_pad(g, ones, DIMS(1, 1), DIMS(0, 0), (Scalar){ .f = 1 }), g_expand(g, one, 2, DIMS(3, 3)));
    assert_ptr_equal(g_expand(g, g_reshape(g, one, 2, DIMS(1, 1)), 2, DIMS(2, 2)), ones);
    Node *counter = g_iota(g, 1, DIMS(5), 0);
    assert_ptr_equal(g_expand(g, g_unsqueeze(g, counter, 1), 2, DIMS(5, 3)), g_iota(g, 2, DIMS(5, 3), 0));
}

static void size_chains(Bench *b)
{
    /* Shape -> Gather -> Unsqueeze -> Concat -> Slice: no node is left but sizes */
    Graph *g = b->g;
    Tensor hint;
    tensor_init(b->cx, &hint, DT_f32, 2, (int64_t[]){ 5, 3 });
    Node *x = graph_input(g, "x", DT_f32, 2, (int64_t[]){ -1, 3 }, (const char *[]){ "N", NULL }, &hint);
    Node *shape = g_dims(g, 1, 2, x->dims);
    int nguard = g->guard.n;
    assert_int_equal(shape->op, OP_dims);
    Node *n = g_gather_axis(g, shape, g_int(g, DT_i64, 0), 0);
    assert_true(n->op == OP_dims && n->rank == 0 && n->size[0] == x->dims[0]);
    assert_int_equal(g_gather_axis(g, shape, g_int(g, DT_i64, -1), 0)->op, OP_const);
    Node *n1 = g_unsqueeze(g, n, 0);
    assert_true(n1->op == OP_dims && n1->rank == 1);
    Node *list = g_join(g, 3, (Node *[]){ n1, g_ints(g, 2, (int64_t[]){ 7, 8 }), g_unsqueeze(g, n, 0) }, 0);
    assert_true(list->op == OP_dims && dim_is(list->dims[0], 4) && list->size[3] == x->dims[0] && dim_is(list->size[2], 8));
    Node *back = g_slice(g, list, 0, dim_const(g, 3), dim_const(g, 2), -3);
    assert_true(back->op == OP_dims && back->size[0] == x->dims[0] && back->size[1] == x->dims[0]);
    assert_ptr_equal(g_gather_axis(g, list, g_ints(g, 3, (int64_t[]){ 0, 1, -1 }), 0),
                     g_dims(g, 1, 3, (Dim *[]){ x->dims[0], dim_const(g, 7), x->dims[0] }));
    assert_ptr_equal(g_slice(g, g_ints(g, 3, (int64_t[]){ 4, 5, 6 }), 0, dim_const(g, 1), dim_const(g, 2), 1), g_ints(g, 2, (int64_t[]){ 5, 6 }));
    assert_int_equal(g->guard.n, nguard);
}

/* ---- elementwise -------------------------------------------------------------------------------------------------------- */

static void elementwise(Bench *b)
{
    Graph *g = b->g;
    Ref *rx = REF(2, 1, 3), *ry = REF(4, 1), *rz = ref_noise(b->a, 0, NULL), *want = ref_new(b->a, 3, (int64_t[]){ 2, 4, 3 });
    Node *x = input(b, DT_f64, rx), *y = input(b, DT_f64, ry), *z = input(b, DT_f64, rz);
    for (int64_t j = 0; j < want->n; j++) {
        int64_t at[REF_RANK];
        coords(want, j, at);
        want->at[j] = rx->at[at[0] * 3 + at[2]] + ry->at[at[1]];
    }
    same(b, g2(g, OP_add, x, y), want);
    for (int64_t j = 0; j < want->n; j++) want->at[j] = want->at[j] < rz->at[0] ? rz->at[0] : 2;
    same(b, g_where(g, g2(g, OP_lt, g2(g, OP_add, x, y), z), z, g_scalar(g, DT_f64, 2)), want);
    /* zero size against one, and rank 0 alone */
    Node *none = input(b, DT_f64, REF(0, 3));
    same(b, g2(g, OP_mul, none, g_slice(g, x, 0, dim_const(g, 0), dim_const(g, 1), 1)), ref_new(b->a, 3, (int64_t[]){ 1, 0, 3 }));
    rz->at[0] = -rz->at[0];
    same(b, g1(g, OP_neg, z), rz);
    /* what is known is computed now */
    assert_ptr_equal(g2(g, OP_mul, g_scalar(g, DT_f32, 3), g_scalar(g, DT_f32, 0.5)), g_scalar(g, DT_f32, 1.5));
    assert_ptr_equal(g_cast(g, g_scalar(g, DT_f32, 2.75), DT_i32), g_int(g, DT_i32, 2));
    assert_ptr_equal(g_where(g, g_int(g, DT_bool, 1), z, g_scalar(g, DT_f64, 2)), z);
    assert_ptr_equal(g_cast(g, z, DT_f64), z);
    Node *bits = g_bitcast(g, input(b, DT_f32, ref_count_up(b->a, 1, (int64_t[]){ 2 })), DT_u32);
    Ref *rb = ref_new(b->a, 1, (int64_t[]){ 2 });
    rb->at[0] = 0x3f800000;
    rb->at[1] = 0x40000000;
    same(b, bits, rb);
}

static void add_mismatch(Bench *b) { g2(b->g, OP_add, input(b, DT_f32, REF(2, 3)), input(b, DT_f32, REF(4))); }
static void add_dtypes(Bench *b) { g2(b->g, OP_add, g_scalar(b->g, DT_f32, 1), g_scalar(b->g, DT_f64, 1)); }
static void sqrt_of_int(Bench *b) { g1(b->g, OP_sqrt, g_int(b->g, DT_i32, 1)); }
static void where_number(Bench *b) { Node *x = g_scalar(b->g, DT_f32, 1); g_where(b->g, x, x, x); }
static void reshape_count(Bench *b) { g_reshape(b->g, input(b, DT_f32, REF(2, 3)), 1, DIMS(5)); }
static void expand_shape(Bench *b) { g_expand(b->g, input(b, DT_f32, REF(2, 3)), 2, DIMS(2, 4)); }
static void slice_outside(Bench *b) { g_slice(b->g, input(b, DT_f32, REF(2, 3)), 1, dim_const(b->g, 1), dim_const(b->g, 2), 2); }
static void squeeze_two(Bench *b) { g_squeeze(b->g, input(b, DT_f32, REF(2, 3)), 0); }
static void perm_twice(Bench *b) { g_transpose(b->g, input(b, DT_f32, REF(2, 3)), (int[]){ 0, 0 }); }
static void pad_too_little(Bench *b) { g_pad(b->g, input(b, DT_f32, REF(2)), DIMS(-1), DIMS(-2), (Scalar){ .f = 0 }); }
static void fold_axis(Bench *b) { g_fold(b->g, FOLD_sum, input(b, DT_f32, REF(2)), 2, false); }
static void join_shapes(Bench *b) { g_join(b->g, 2, (Node *[]){ input(b, DT_f32, REF(2, 3)), input(b, DT_f32, REF(2, 4)) }, 0); }
static void gather_outside(Bench *b) { g_gather_axis(b->g, input(b, DT_f32, REF(2, 3)), g_int(b->g, DT_i64, -4), 1); }
static void matmul_inner(Bench *b) { g_matmul(b->g, input(b, DT_f32, REF(2, 3)), input(b, DT_f32, REF(4, 2))); }
static void argmax_of_none(Bench *b) { g_argfold(b->g, FOLD_argmax, input(b, DT_f32, REF(2, 0)), 1, false, false); }
static void sum_of_bool(Bench *b) { g_fold(b->g, FOLD_sum, input(b, DT_bool, REF(2)), 1, false); }

static void mistakes(Bench *b)
{
    static const struct { const char *part; void (*fn)(Bench *b); } cases[] = {
        { "shapes [2,3] and [4] do not broadcast", add_mismatch }, { "f32 and f64", add_dtypes }, { "sqrt is not defined on dtype i32", sqrt_of_int },
        { "bool is wanted", where_number }, { "[2,3] to [5]", reshape_count }, { "[2,3] does not broadcast to [2,4]", expand_shape },
        { "outside [2,3]", slice_outside }, { "its size is not 1", squeeze_two }, { "no permutation", perm_twice }, { "less than nothing", pad_too_little },
        { "sum over axes", fold_axis }, { "[2,3] and [2,4] cannot be joined", join_shapes }, { "index -4 is outside axis 1 of [2,3]", gather_outside },
        { "[2,3] and [4,2]: the inner sizes differ", matmul_inner }, { "no elements", argmax_of_none }, { "dtype bool", sum_of_bool },
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        b->nin = 0;
        b->g = graph_new(b->cx, b->a);
        raises_build(b, E_INVALID, cases[k].part, cases[k].fn);
    }
}

/* ---- symbolic sizes -------------------------------------------------------------------------------------------------------------- */

static bool guards_hold(const Bench *b)
{
    for (int k = 0; k < b->g->guard.n; k++) {
        const Guard *u = &b->g->guard.at[k];
        int64_t x = dim_eval(u->a, b->sym, NULL), y = dim_eval(u->b, b->sym, NULL);
        if (!(u->rel == '=' ? x == y : u->rel == '!' ? x != y : u->rel == '<' ? x < y : x >= y)) return false;
    }
    return true;
}

/* x[N,3,M]: built once for the hints, run for other sizes. */
static void symbolic(Bench *b)
{
    static const int64_t runs[][2] = { { 4, 5 }, { 7, 3 }, { 2, 2 }, { 9, 4 }, { 1, 6 }, { 3, 1 } };
    Graph *g = b->g;
    Tensor hint;
    tensor_init(b->cx, &hint, DT_f32, 3, (int64_t[]){ 4, 3, 5 });
    Node *x = graph_input(g, "x", DT_f32, 3, (int64_t[]){ -1, 3, -1 }, (const char *[]){ "N", NULL, "M" }, &hint);
    int nguard = g->guard.n;
    Dim *N = x->dims[0], *M = x->dims[2], *c3 = dim_const(g, 3), *none = dim_const(g, 0), *NM3 = dim_mul(g, dim_mul(g, N, c3), M);
    Node *flat = g_reshape(g, x, 1, &NM3);
    Node *y[] = {
        g_reshape(g, x, 2, (Dim *[]){ N, dim_mul(g, c3, M) }),
        g_reshape(g, g_transpose(g, x, (int[]){ 2, 0, 1 }), 2, (Dim *[]){ dim_mul(g, M, N), c3 }),
        g_reshape(g, flat, 3, x->dims),
        g_flip(g, flat, 0),
        g_pad(g, x, (Dim *[]){ none, none, dim_const(g, 1) }, (Dim *[]){ N, none, none }, (Scalar){ .f = -5 }),
        g_expand(g, g_unsqueeze(g, flat, 0), 2, (Dim *[]){ N, NM3 }),
        g_mean(g, x, 5, true),
        g_slice(g, x, 0, dim_addc(g, N, -1), N, -1),
    };
    assert_ptr_equal(y[2], x);
    assert_int_equal(g->guard.n, nguard);       /* all of that holds for any sizes */
    for (size_t run = 0; run < COUNT_OF(runs); run++) {
        int64_t n = runs[run][0], m = runs[run][1];
        Ref *r = REF(n, 3, m);
        for (int64_t j = 0; j < r->n; j++) r->at[j] = (double)(j + 1);
        ref_store(b, &b->in[0], DT_f32, r);
        for (int k = 0; k < g->sym.n; k++) b->sym[k] = g->sym.at[k].axis == 0 ? n : m;
        Ref *f = ref_step(b->a, r, &(Step){ .move = MOVE_reshape, .rank = 1, .dims = { n * 3 * m } });
        same(b, y[0], ref_step(b->a, r, &(Step){ .move = MOVE_reshape, .rank = 2, .dims = { n, 3 * m } }));
        Ref *t = ref_step(b->a, r, &(Step){ .move = MOVE_transpose, .perm = { 2, 0, 1 } });
        same(b, y[1], ref_step(b->a, t, &(Step){ .move = MOVE_reshape, .rank = 2, .dims = { m * n, 3 } }));
        same(b, y[2], r);
        same(b, y[3], ref_step(b->a, f, &(Step){ .move = MOVE_flip }));
        same(b, y[4], ref_step(b->a, r, &(Step){ .move = MOVE_pad, .before = { 0, 0, 1 }, .after = { n, 0, 0 }, .fill = -5 }));
        same(b, y[5], ref_step(b->a, f, &(Step){ .move = MOVE_expand, .rank = 2, .dims = { n, n * 3 * m } }));
        Ref *mean = ref_fold(b->a, FOLD_sum, r, 5, true);
        for (int64_t j = 0; j < mean->n; j++) mean->at[j] /= (double)(n * m);
        same_within(b, y[6], mean, 1e-6);
        same(b, y[7], ref_step(b->a, r, &(Step){ .move = MOVE_flip, .axis = 0 }));
    }
}

/* Movements that any sizes allow: what they do to one axis of size d, or to two neighbours. */
typedef enum Free { FREE_transpose, FREE_flip, FREE_trim, FREE_back, FREE_pad, FREE_merge, FREE_fold_back, FREE_repeat, FREE_COUNT } Free;
typedef struct FreeStep { Free what; int axis; int64_t a, b; } FreeStep;

static Ref *ref_reshape(Arena *a, const Ref *x, int rank, const int64_t *dims)
{
    Step s = { .move = MOVE_reshape, .rank = rank };
    memcpy(s.dims, dims, sizeof *dims * (size_t)rank);
    return ref_step(a, x, &s);
}

static Ref *ref_free(Arena *a, const Ref *x, const FreeStep *f)
{
    Step s = { .axis = f->axis, .fill = -3, .by = 1 };
    int64_t d = x->dims[f->axis], dims[REF_RANK];
    memcpy(dims, x->dims, sizeof dims);
    switch (f->what) {
    case FREE_transpose:
        s.move = MOVE_transpose;
        for (int k = 0; k < x->rank; k++) s.perm[k] = (k + (int)f->a) % x->rank;
        break;
    case FREE_flip: s.move = MOVE_flip; break;
    case FREE_trim: s.move = MOVE_slice; s.start = f->a; s.count = d - f->a; break;
    case FREE_back: s.move = MOVE_slice; s.start = d - 1; s.count = d; s.by = -1; break;
    case FREE_pad: s.move = MOVE_pad; s.before[f->axis] = f->a; s.after[f->axis] = f->b; break;
    case FREE_merge: case FREE_fold_back:
        dims[f->axis] *= dims[f->axis + 1];
        for (int k = f->axis + 1; k < x->rank - 1; k++) dims[k] = dims[k + 1];
        x = ref_reshape(a, x, x->rank - 1, dims);
        if (f->what == FREE_merge) return ref_step(a, x, &(Step){ .move = MOVE_flip, .axis = f->axis });
        x = ref_step(a, x, &(Step){ .move = MOVE_flip, .axis = f->axis });
        for (int k = x->rank; k > f->axis + 1; k--) dims[k] = dims[k - 1];
        dims[f->axis + 1] = d ? dims[f->axis] / d : 0;
        dims[f->axis] = d;
        return ref_reshape(a, x, x->rank + 1, dims);
    case FREE_repeat:
        x = ref_step(a, x, &(Step){ .move = MOVE_unsqueeze, .axis = f->axis });
        memcpy(s.dims, x->dims, sizeof dims);
        s.dims[f->axis] = d;
        s.rank = x->rank;
        s.move = MOVE_expand;
        break;
    case FREE_COUNT: break;
    }
    return ref_step(a, x, &s);
}

static Node *node_free(Bench *b, Node *x, const FreeStep *f)
{
    Graph *g = b->g;
    Dim *d = x->dims[f->axis], *dims[REF_RANK + 1], *before[REF_RANK], *after[REF_RANK];
    int perm[REF_RANK], rank = x->rank;
    memcpy(dims, x->dims, sizeof *dims * (size_t)rank);
    switch (f->what) {
    case FREE_transpose:
        for (int k = 0; k < rank; k++) perm[k] = (k + (int)f->a) % rank;
        return g_transpose(g, x, perm);
    case FREE_flip: return g_flip(g, x, f->axis);
    case FREE_trim: return g_slice(g, x, f->axis, dim_const(g, f->a), dim_addc(g, d, -f->a), 1);
    case FREE_back: return g_slice(g, x, f->axis, dim_addc(g, d, -1), d, -1);
    case FREE_pad:
        for (int k = 0; k < rank; k++) before[k] = dim_const(g, k == f->axis ? f->a : 0), after[k] = dim_const(g, k == f->axis ? f->b : 0);
        return g_pad(g, x, before, after, fill_of(x, -3));
    case FREE_merge: case FREE_fold_back:
        dims[f->axis] = dim_mul(g, d, dims[f->axis + 1]);
        for (int k = f->axis + 1; k < rank - 1; k++) dims[k] = dims[k + 1];
        Node *y = g_flip(g, g_reshape(g, x, rank - 1, dims), f->axis);
        return f->what == FREE_merge ? y : g_reshape(g, y, rank, x->dims);
    case FREE_repeat:
        for (int k = rank; k > f->axis; k--) dims[k] = dims[k - 1];
        return g_expand(g, g_unsqueeze(g, x, f->axis), rank + 1, dims);
    case FREE_COUNT: break;
    }
    return NULL;
}

/* Chains built once for the sizes 3 and 4 and run for others. */
static void symbolic_chains(Bench *b)
{
    static const int64_t runs[][2] = { { 3, 4 }, { 5, 2 }, { 4, 4 }, { 2, 5 }, { 6, 3 } };
    int ran = 0;
    for (int trial = 0; trial < 150; trial++) {
        Graph *g = b->g = graph_new(b->cx, b->a);
        Tensor hint;
        tensor_init(b->cx, &hint, DT_f32, 3, (int64_t[]){ 3, 2, 4 });
        Node *x = graph_input(g, "x", DT_f32, 3, (int64_t[]){ -1, 2, -1 }, (const char *[]){ "N", NULL, "M" }, &hint);
        FreeStep step[6];
        int n = 1 + below(5), rank = 3;
        int64_t size = 24;
        for (int k = 0; k < n; k++) {
            FreeStep *f = &step[k];
            do *f = (FreeStep){ (Free)below(FREE_COUNT), below(rank), below(3), below(2) };
            while (((f->what == FREE_merge || f->what == FREE_fold_back) && f->axis == rank - 1) || (f->what == FREE_repeat && (rank == 4 || size > 40)));
            if (f->what == FREE_trim) f->a = dim_is_const(x->dims[f->axis]) && x->dims[f->axis]->c == 0 ? 0 : f->a % 2;
            x = node_free(b, x, f);
            rank = x->rank;
            size = dim_hint(g, g_count(g, x));
        }
        for (size_t run = 0; run < COUNT_OF(runs); run++) {
            for (int k = 0; k < g->sym.n; k++) b->sym[k] = runs[run][g->sym.at[k].axis == 2];
            if (!guards_hold(b)) { assert_true(run > 0); continue; }
            Ref *r = ref_count_up(b->a, 3, (int64_t[]){ runs[run][0], 2, runs[run][1] });
            ref_store(b, &b->in[0], DT_f32, r);
            for (int k = 0; k < n; k++) r = ref_free(b->a, r, &step[k]);
            same(b, x, r);
            ran++;
        }
    }
    assert_true(ran > 700);             /* nearly all of 750: guards are rare */
}

/* Two symbols that meet: one question, one guard, and only the one that is needed. */
static void guards(Bench *b)
{
    Tensor ha, hb;
    for (int same_hint = 0; same_hint < 2; same_hint++) {
        Graph *g = b->g = graph_new(b->cx, b->a);
        tensor_init(b->cx, &ha, DT_f32, 1, (int64_t[]){ 4 });
        tensor_init(b->cx, &hb, DT_f32, 1, (int64_t[]){ same_hint ? 4 : 1 });
        Node *x = graph_input(g, "x", DT_f32, 1, (int64_t[]){ -1 }, (const char *[]){ "A" }, &ha);
        Node *y = graph_input(g, "y", DT_f32, 1, (int64_t[]){ -1 }, (const char *[]){ "B" }, &hb);
        int nguard = g->guard.n;
        Node *z = g2(g, OP_add, x, y);
        assert_ptr_equal(z->dims[0], x->dims[0]);
        assert_int_equal(g->guard.n, nguard + 1);
        assert_int_equal(g->guard.at[nguard].rel, '=');
        b->sym[0] = 4;
        b->sym[1] = same_hint ? 4 : 1;
        assert_true(guards_hold(b));
        b->sym[1] = 3;
        assert_false(guards_hold(b));
    }
}

TEST_WITH(identities) TEST_WITH(size_chains) TEST_WITH(elementwise) TEST_WITH(mistakes) TEST_WITH(symbolic) TEST_WITH(symbolic_chains)
TEST_WITH(guards)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains), cmocka_unit_test(test_identities), cmocka_unit_test(test_size_chains), cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_symbolic), cmocka_unit_test(test_symbolic_chains), cmocka_unit_test(test_guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
