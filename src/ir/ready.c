/* The ready tier: what makes the interpreter fast enough to answer while kernels are being compiled.
 *
 * Its state, its plan and its order are the interpreter's (eval.c). Two things differ. Steps on float32 and on small integers work on floats and int32
 * instead of Scalars (ready_lanes.c). And a sum of products whose factors miss some of its axes (a matrix product, a convolution, whatever it came from) is
 * computed by panels: each factor is evaluated over its own axes only, by the interpreter's programs, so paddings, gathers and casts in it need no case of
 * their own, and is written in the order in which a block of 8 rows and 16 columns reads it. Products are added in float32, KC at a time, and these sums
 * added up with what each addition loses: the liberty that kernels have (the order of a sum, and a product that is not rounded). */
#include "ir/eval.h"
#include <string.h>

enum { ROWS = 8, COLS = 16, KC = 64, FEWEST = 2, FEW_TAPS = 256, MOST_KNOWN = 1 << 16 };
static const int64_t panel_limit = (int64_t)16 << 20;       /* floats of the packed rows at a time */
static const int64_t least_work = 20000;                    /* products from which panels pay */

/* ---- a block of rows times columns ------------------------------------------------------------------------- */
/* part[ROWS]: the products of one stretch of KC, added up. */
#define BLOCK_PART(name) \
    Vec##name part[ROWS] = { 0 }; \
    int64_t to = from + KC < k ? from + KC : k; \
    for (int64_t i = from; i < to; i++) { \
        Vec##name v = *(const Vec##name *)(b + i * COLS + h); \
        for (int r = 0; r < ROWS; r++) \
            part[r] += v * a[i * ROWS + r]; \
    }
/* One text for vectors of any width; each width is compiled for the processors that have it. a: [k][ROWS], b: [k][COLS], c: [ROWS][COLS]. */
#define BLOCK(name, width, attribute) \
    typedef float Vec##name __attribute__((vector_size(4 * (width)), aligned(4), may_alias)); \
    typedef int32_t Bits##name __attribute__((vector_size(4 * (width)), aligned(4), may_alias)); \
    attribute static void block_##name(int64_t k, const float *a, const float *b, float *c) \
    { \
        for (int h = 0; h < COLS; h += (width)) { \
            Vec##name sum[ROWS] = { 0 }, lost[ROWS] = { 0 }; \
            for (int64_t from = 0; from < k; from += KC) { \
                BLOCK_PART(name); \
                for (int r = 0; r < ROWS; r++) { \
                    Vec##name add = part[r] - lost[r], next = sum[r] + add, less = (next - sum[r]) - add; \
                    lost[r] = (Vec##name)((Bits##name)less & (less == less)); /* infinity loses nothing */ \
                    sum[r] = next; \
                } \
            } \
            for (int r = 0; r < ROWS; r++) \
                *(Vec##name *)(c + r * COLS + h) = sum[r]; \
        } \
    }
/* The same for factors of at most 8 bits: the sum of KC products is exact in float32, and these sums are added as integers. */
#define BLOCK_INT(name, width, attribute) \
    typedef int32_t Int##name __attribute__((vector_size(4 * (width)), aligned(4), may_alias)); \
    attribute static void block_int_##name(int64_t k, const float *a, const float *b, float *c) \
    { \
        for (int h = 0; h < COLS; h += (width)) { \
            Int##name sum[ROWS] = { 0 }; \
            for (int64_t from = 0; from < k; from += KC) { \
                BLOCK_PART(name); \
                for (int r = 0; r < ROWS; r++) \
                    sum[r] += __builtin_convertvector(part[r], Int##name); \
            } \
            for (int r = 0; r < ROWS; r++) \
                *(Int##name *)(c + r * COLS + h) = sum[r]; \
        } \
    }
typedef void BlockFn(int64_t k, const float *a, const float *b, float *c);      /* c: of four bytes each, floats or integers */
BLOCK(narrow, 4, )
BLOCK_INT(narrow, 4, )
#if defined(__x86_64__)
BLOCK(avx2, 8, __attribute__((target("avx2,fma"))))
BLOCK(avx512, 16, __attribute__((target("avx512f"))))
BLOCK_INT(avx2, 8, __attribute__((target("avx2,fma"))))
BLOCK_INT(avx512, 16, __attribute__((target("avx512f"))))
#endif

static BlockFn *block_best(bool ints)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return ints ? block_int_avx512 : block_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return ints ? block_int_avx2 : block_avx2;
#endif
    return ints ? block_int_narrow : block_narrow;
}

/* ---- which axes a factor depends on -------------------------------------------------------------------------- */
static uint32_t dim_axes(const Dim *d, int rank)
{
    uint32_t m = 0;
    for (int k = 0; k < rank && d->idx_mask; k++)
        if (dim_uses(d, k))
            m |= axis_bit(k);
    return m;
}

static uint32_t node_axes(const Eval *ev, const Node *n)
{
    const NodeState *f = eval_state(ev, n);
    uint32_t m = 0;
    if (f->stored || n->op == OP_random) {
        for (int k = 0; k < n->rank; k++)
            if (f->dims[k] > 1)
                m |= axis_bit(k);
    } else if (n->op == OP_iota) {
        m = axis_bit(n->axis);
    } else if (n->op == OP_view || n->op == OP_gather) {
        const View *v = &n->view;
        for (int k = 0; k < v->nidx; k++)
            m |= dim_axes(v->idx[k], n->rank);
        for (int k = 0; k < v->npred; k++)
            m |= dim_axes(v->pred[k].e, n->rank) | dim_axes(v->pred[k].n, n->rank);
        for (int k = 1; k < n->nin; k++)
            m |= node_axes(ev, n->in[k]);
    } else {
        for (int k = 0; k < n->nin; k++)
            m |= node_axes(ev, n->in[k]);
    }
    return m;
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */
typedef struct Contract {
    const Node *space;                  /* what is summed: the product, or a view of it */
    const Node *row, *col;              /* the factors */
    uint32_t rows, cols, sum, outer;    /* masks of axes: of one factor only; reduced; the rest, one product after the other */
    int64_t stride[MAX_RANK];           /* of each axis in the result */
    int64_t nrow, ncol, nsum;
} Contract;

static int64_t mask_count(const Eval *ev, uint32_t axes)
{
    int64_t n = 1;
    for (int k = 0; k < ev->rank; k++)
        if (axes & axis_bit(k))
            n *= ev->dim[k];
    return n;
}

static int64_t mask_place(const Eval *ev, uint32_t axes)
{
    int64_t at = 0;
    for (int k = 0; k < ev->rank; k++)
        if (axes & axis_bit(k))
            at = at * ev->dim[k] + ev->idx[k];
    return at;
}

/* An integer of 8 bits in a wider one. */
static bool is_small(const Node *x) { return x->op == OP_cast && (x->in[0]->dt == DT_i8 || x->in[0]->dt == DT_u8); }

/* The axes of c->space that a factor depends on. */
static uint32_t factor_axes(const Eval *ev, const Node *space, const Node *x)
{
    uint32_t own = node_axes(ev, x), m = 0;
    if (space->op != OP_view)
        return own;
    for (int k = 0; k < x->rank; k++)
        if (own & axis_bit(k))
            m |= dim_axes(space->view.idx[k], space->rank);
    return m;
}

/* Evaluates a factor at the outer index `outer` into panels of `width` of its free axes: element (f, k) lies at panel f / width, [k][f % width]. */
static void panels_fill(Eval *ev, const Contract *c, const Node *x, uint32_t free_axes, int width, const int64_t *outer, float *to)
{
    int slot = cone_begin_below(ev, c->space, x);
    cone_flatten(ev);
    memcpy(ev->idx, outer, sizeof ev->idx);
    nest_lane(ev, free_axes | c->sum);
    int64_t nfree = mask_count(ev, free_axes), extent = ev->lane < 0 ? 1 : ev->dim[ev->lane];
    uint32_t lane_bit = ev->lane < 0 ? 0 : axis_bit(ev->lane), rest = (free_axes | c->sum) & ~lane_bit;
    if (nfree % width)
        memset(to + nfree / width * width * c->nsum, 0, (size_t)(width * c->nsum) * sizeof *to);
    int64_t step_free = 0, step_sum = 0;
    if (ev->lane >= 0) {
        int64_t below = 1;
        uint32_t own = free_axes & lane_bit ? free_axes : c->sum;
        for (int k = ev->lane + 1; k < ev->rank; k++)
            if (own & axis_bit(k))
                below *= ev->dim[k];
        *(own == free_axes ? &step_free : &step_sum) = below;
    }
    do {
        for (int64_t l = 0; l < extent; l += LANES) {
            int m = extent - l < LANES ? (int)(extent - l) : LANES;
            if (ev->lane >= 0)
                ev->idx[ev->lane] = l;
            eval_block(ev, m);
            float own[LANES];
            const float *v = (const float *)ev->slot.at[slot];
            if (!floats(ev, x)) {
                for (int j = 0; j < m; j++)
                    own[j] = (float)((const int32_t *)ev->slot.at[slot])[j];
                v = own;
            }
            int64_t f = mask_place(ev, free_axes), k = mask_place(ev, c->sum);
            if (step_free)
                for (int j = 0; j < m; j++, f += step_free)
                    to[(f / width * c->nsum + k) * width + f % width] = v[j];
            else {
                float *at = to + (f / width * c->nsum + k) * width + f % width;
                for (int j = 0; j < m; j++)
                    at[j * step_sum * width] = v[j];
            }
        }
        if (ev->lane >= 0)
            ev->idx[ev->lane] = 0;
    } while (nest_next(ev, rest));
}

/* Where each element of the product lies in the result. */
static void places_fill(Eval *ev, const Contract *c, uint32_t axes, int64_t *at)
{
    int64_t n = 0;
    memset(ev->idx, 0, sizeof ev->idx);
    do {
        int64_t off = 0;
        for (int k = 0; k < ev->rank; k++)
            if (axes & axis_bit(k))
                off += ev->idx[k] * c->stride[k];
        at[n++] = off;
    } while (nest_next(ev, axes));
}

/* Words, whatever they are; columns that lie together in the result are copied at once. */
static void product(const Contract *c, BlockFn *block, const float *row, const float *col, const int64_t *row_at, const int64_t *col_at, char *out)
{
    float tile[ROWS * COLS];
    for (int64_t j = 0; j < c->ncol; j += COLS) {
        int cols = c->ncol - j < COLS ? (int)(c->ncol - j) : COLS, together = 1;
        while (together < cols && col_at[j + together] == col_at[j] + together)
            together++;
        for (int64_t i = 0; i < c->nrow; i += ROWS) {
            block(c->nsum, row + i * c->nsum, col + j * c->nsum, tile);
            for (int r = 0; r < ROWS && i + r < c->nrow; r++)
                for (int q = 0; q < cols; q += together == cols ? cols : 1)
                    memcpy(out + (row_at[i + r] + col_at[j + q]) * (int64_t)sizeof *tile, &tile[r * COLS + q], sizeof *tile * (size_t)(together == cols ? cols : 1));
        }
    }
}

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool ready_contract(Eval *ev, const Node *n, const Tensor *out)
{
    const Node *x = n->in[0], *mul = x->op == OP_view && !x->view.npred ? x->in[0] : x;
    const NodeState *f = eval_state(ev, x);
    bool ints = n->dt == DT_i32 && mul->op == OP_mul && is_small(mul->in[0]) && is_small(mul->in[1]);
    if (n->kind != FOLD_sum || (n->dt != DT_f32 && !ints) || mul->op != OP_mul || f->stored || eval_state(ev, mul)->stored || mul->in[0] == mul->in[1] || !x->rank)
        return false;
    uint32_t all = (uint32_t)((1ull << x->rank) - 1), kept = all & ~n->axes, a = factor_axes(ev, x, mul->in[0]), b = factor_axes(ev, x, mul->in[1]);
    Contract c = { .space = x, .row = mul->in[0], .col = mul->in[1], .sum = n->axes & all, .outer = kept & a & b, .rows = kept & ~b, .cols = kept & b & ~a };
    ev->rank = x->rank;
    memcpy(ev->dim, f->dims, sizeof *f->dims * (size_t)x->rank);
    int64_t total = mask_count(ev, all);
    for (int k = x->rank - 1, o = n->rank - 1; k >= 0; k--)
        if (kept & axis_bit(k))
            c.stride[k] = out->strides[o--];
    for (int k = x->rank - 1; k >= 0; k--) {            /* columns lie together in the result */
        if (!(kept & axis_bit(k)) || ev->dim[k] < 2)
            continue;
        if (c.rows & axis_bit(k)) {
            uint32_t m = c.rows;
            const Node *p = c.row;
            c.rows = c.cols, c.cols = m, c.row = c.col, c.col = p;
        }
        break;
    }
    c.nsum = mask_count(ev, c.sum), c.ncol = mask_count(ev, c.cols), c.nrow = mask_count(ev, c.rows);
    if (total < least_work || c.nrow < FEWEST || c.ncol < FEWEST)
        return false;
    for (int k = 0; k < x->rank && up(c.nrow, ROWS) * c.nsum > panel_limit; k++)        /* too many rows at once: outer ones by themselves */
        if (c.rows & axis_bit(k) && mask_count(ev, c.rows & ~axis_bit(k)) >= FEWEST) {
            c.rows &= ~axis_bit(k), c.outer |= axis_bit(k);
            c.nrow = mask_count(ev, c.rows);
        }
    if (up(c.nrow, ROWS) * c.nsum > 4 * panel_limit || up(c.ncol, COLS) * c.nsum > 8 * panel_limit)
        return false;
    size_t rows = (size_t)(up(c.nrow, ROWS) * c.nsum) * sizeof(float), cols = (size_t)(up(c.ncol, COLS) * c.nsum) * sizeof(float);
    NodeState *own = eval_state(ev, n);
    size_t room;
    uint8_t *block = own->stage = spare_take(ev, (size_t)(c.nrow + c.ncol) * sizeof(int64_t) + rows + cols, &room);
    if (!block)
        fail(ev->cx, E_NOMEM, "no memory for the panels of a product");
    int64_t *row_at = (int64_t *)block, *col_at = row_at + c.nrow, outer[MAX_RANK] = { 0 }, next[MAX_RANK], seen = -1;
    float *row = (float *)(col_at + c.ncol), *col = row + rows / sizeof(float);
    int64_t dim[MAX_RANK];
    memcpy(dim, ev->dim, sizeof dim);
    places_fill(ev, &c, c.rows, row_at);
    places_fill(ev, &c, c.cols, col_at);
    for (bool more = true; more;) {
        ev->rank = x->rank;                             /* evaluating a factor leaves its own loops behind */
        memcpy(ev->dim, dim, sizeof dim);
        memcpy(ev->idx, outer, sizeof outer);
        int64_t off = 0, which = mask_place(ev, c.outer & factor_axes(ev, x, c.col));
        for (int k = 0; k < x->rank; k++)
            off += outer[k] * c.stride[k];
        more = nest_next(ev, c.outer);
        memcpy(next, ev->idx, sizeof next);
        ctx_poll(ev->cx);
        if (which != seen)
            panels_fill(ev, &c, c.col, c.cols, COLS, outer, col);
        seen = which;
        panels_fill(ev, &c, c.row, c.rows, ROWS, outer, row);
        product(&c, block_best(ints), row, col, row_at, col_at, (char *)out->data + off * (int64_t)sizeof(float));
        memcpy(outer, next, sizeof outer);
    }
    spare_give(ev, own->stage, room);
    own->stage = NULL;
    return true;
}

/* ---- taps: folds of one or two factors that lie in memory at linear places -------------------------------------------- */
typedef struct Factor {
    const char *data;
    DType dt;                           /* f32, or small integers */
    Affine at;
    int npred;
    struct { Affine e; int64_t n; } pred[2 * MAX_RANK];             /* inside where each 0 <= e < n; else fill */
    float fill;
} Factor;

static bool affine_make(Eval *ev, const Dim *d, const Affine *var, Affine *r)
{
    Lin l;
    lin_make(ev, &l, d);
    return affine_lin(&l, var, r);
}

static bool factor_make(Eval *ev, const Node *space, const Node *x, Factor *f)
{
    Affine axis[MAX_RANK] = { 0 }, e;
    *f = (Factor){ 0 };
    for (int k = 0; k < x->rank; k++) {
        if (space == x || space->op != OP_view)
            axis[k].coef[k] = 1;
        else if (!affine_make(ev, space->view.idx[k], NULL, &axis[k]))
            return false;
    }
    if (!eval_state(ev, x)->stored && is_small(x))
        x = x->in[0];
    bool view = !eval_state(ev, x)->stored && x->op == OP_view;
    const Node *source = view ? x->in[0] : x;
    if ((x->dt != DT_f32 && x->dt != DT_i8 && x->dt != DT_u8) || !eval_state(ev, source)->stored)
        return false;
    f->dt = x->dt;
    const Tensor *t = eval_state(ev, source)->val;
    f->data = t->data;
    for (int k = 0; k < source->rank; k++) {
        if (!view)
            e = axis[k];
        else if (!affine_make(ev, x->view.idx[k], axis, &e))
            return false;
        affine_add(&f->at, t->strides[k], &e);
    }
    f->npred = view ? x->view.npred : 0;
    f->fill = !view ? 0 : x->dt == DT_f32 ? (float)x->view.fill.f : (float)x->view.fill.i;
    for (int k = 0; k < f->npred; k++)
        if (k == COUNT_OF(f->pred) || x->view.pred[k].n->idx_mask || !affine_make(ev, x->view.pred[k].e, axis, &f->pred[k].e))
            return false;
        else
            f->pred[k].n = dim_eval(x->view.pred[k].n, ev->syms, NULL);
    return true;
}

/* Lanes lo to hi of bytes, signed or not. */
WIDE static void bytes_load(DType t, const char *p, int64_t step, int lo, int hi, float *restrict r)
{
    const int8_t *i = (const int8_t *)p;
    const uint8_t *u = (const uint8_t *)p;
    if (step == 0)
        for (int j = lo; j < hi; j++)
            r[j] = t == DT_u8 ? (float)*u : (float)*i;
    else if (step == 1 && t == DT_u8)
        for (int j = lo; j < hi; j++)
            r[j] = (float)u[j];
    else if (step == 1)
        for (int j = lo; j < hi; j++)
            r[j] = (float)i[j];
    else
        for (int j = lo; j < hi; j++)
            r[j] = t == DT_u8 ? (float)u[step * j] : (float)i[step * j];
}

/* n lanes of a factor from ev->idx on: where they lie, if they lie together, else in r. */
static const float *factor_load(const Eval *ev, const Factor *f, int n, float *restrict r)
{
    int lo = 0, hi = n;
    for (int k = 0; k < f->npred; k++) {
        int64_t e = affine_at(ev, &f->pred[k].e), step = ev->lane < 0 ? 0 : f->pred[k].e.coef[ev->lane], m = f->pred[k].n;
        while (lo < hi && !(e + step * lo >= 0 && e + step * lo < m))
            lo++;
        while (lo < hi && !(e + step * (hi - 1) >= 0 && e + step * (hi - 1) < m))
            hi--;
    }
    const char *p = f->data + affine_at(ev, &f->at) * (int64_t)dtype_size(f->dt);
    int64_t step = ev->lane < 0 ? 0 : f->at.coef[ev->lane];
    if (f->dt == DT_f32 && step == 1 && lo == 0 && hi == n && (uintptr_t)p % sizeof(float) == 0)
        return (const float *)(const void *)p;
    for (int j = 0; j < lo; j++)
        r[j] = f->fill;
    if (f->dt != DT_f32)
        bytes_load(f->dt, p, step, lo, hi, r);
    else if (step == 1)
        memcpy(r + lo, p + lo * (int64_t)sizeof *r, (size_t)(hi - lo) * sizeof *r);
    else
        for (int j = lo; j < hi; j++)
            memcpy(&r[j], p + step * j * (int64_t)sizeof *r, sizeof *r);
    for (int j = hi; j < n; j++)
        r[j] = f->fill;
    return r;
}

typedef struct Taps { FoldKind kind; int nfactor; Factor factor[2]; } Taps;

WIDE static void taps_product(int n, const float *x, const float *y, float *restrict acc)
{
    for (int j = 0; j < n; j++)
        acc[j] += x[j] * y[j];
}

WIDE static void taps_scaled(int n, const float *x, float w, float *restrict acc)
{
    for (int j = 0; j < n; j++)
        acc[j] += x[j] * w;
}

/* known: the lanes of the second factor, or NULL. */
static void taps_add(const Eval *ev, const Taps *t, int n, const float *known, float *restrict acc)
{
    float own[LANES], y[LANES];
    const float *x = factor_load(ev, &t->factor[0], n, own);
    if (known) {
        taps_product(n, x, known, acc);
        return;
    }
    if (t->nfactor == 2 && t->factor[1].npred == 0 && (ev->lane < 0 || t->factor[1].at.coef[ev->lane] == 0)) {
        float w;
        taps_scaled(n, x, *factor_load(ev, &t->factor[1], 1, &w), acc);
    } else if (t->nfactor == 2) {
        taps_product(n, x, factor_load(ev, &t->factor[1], n, y), acc);
    } else {
        floats_ew(t->kind == FOLD_max ? OP_max : OP_min, n, acc, x, y);
        memcpy(acc, y, (size_t)n * sizeof *y);
    }
}

/* The second factor for all lanes of all taps, where it is the same for all results beside each other (the weights of a depthwise convolution); NULL: it
 * is not, or there are too many. */
static float *taps_known(Eval *ev, const Taps *t, uint32_t red, uint32_t beside, int64_t count)
{
    const Factor *f = &t->factor[1];
    if (t->nfactor < 2 || f->npred || !f->at.coef[ev->lane] || count > MOST_KNOWN)
        return NULL;
    for (int k = 0; k < ev->rank; k++)
        if (beside & axis_bit(k) && ev->dim[k] > 1 && f->at.coef[k])
            return NULL;
    int64_t extent = ev->dim[ev->lane];
    float *known = NEWS(ev->mem, float, count), *to = known;
    do {
        for (int64_t l = 0; l < extent; l += LANES) {
            int m = extent - l < LANES ? (int)(extent - l) : LANES;
            ev->idx[ev->lane] = l;
            const float *at = factor_load(ev, f, m, to);
            if (at != to)
                memcpy(to, at, (size_t)m * sizeof *to);
            to += m;
        }
        ev->idx[ev->lane] = 0;
    } while (nest_next(ev, red));
    return known;
}

/* acc += part, with what earlier additions lost. */
static void taps_carry(int n, float *restrict acc, float *restrict lost, float *restrict part)
{
    for (int j = 0; j < n; j++) {
        float add = part[j] - lost[j], next = acc[j] + add, less = (next - acc[j]) - add;
        lost[j] = less == less ? less : 0; /* infinity loses nothing */
        acc[j] = next;
        part[j] = 0;
    }
}

/* One result from the lanes of a reduced axis. */
static float taps_close(FoldKind kind, int n, const float *acc)
{
    double sum = 0;
    float most = (float)fold_start(kind, DT_f32).f;
    for (int j = 0; j < n; j++) {
        sum += acc[j];
        most = kind == FOLD_max ? max_float(most, acc[j]) : min_float(most, acc[j]);
    }
    return kind == FOLD_sum ? (float)sum : most;
}

bool ready_taps(Eval *ev, const Node *n, const Tensor *out)
{
    const Node *x = n->in[0], *mul = x->op == OP_view && !x->view.npred ? x->in[0] : x;
    const NodeState *f = eval_state(ev, x);
    Taps t = { .kind = n->kind };
    uint32_t all = (uint32_t)((1ull << x->rank) - 1), red = n->axes & all, kept = all & ~red;
    bool ints = n->dt == DT_i32 && n->kind == FOLD_sum;      /* few enough small products: exact in float32 */
    if ((n->dt != DT_f32 && !ints) || !x->rank || !f->count)
        return false;
    if (n->kind == FOLD_sum && mul->op == OP_mul && !eval_state(ev, mul)->stored && (x == mul || !f->stored)) {
        t.nfactor = 2;
        if (ints && (!is_small(mul->in[0]) || !is_small(mul->in[1])))
            return false;
        if (!factor_make(ev, x, mul->in[0], &t.factor[0]) || !factor_make(ev, x, mul->in[1], &t.factor[1]))
            return false;
    } else if (n->kind == FOLD_max || n->kind == FOLD_min) {
        t.nfactor = 1;
        if (!factor_make(ev, x, x, &t.factor[0]))
            return false;
    } else {
        return false;
    }
    ev->rank = x->rank;
    int64_t stride[MAX_RANK] = { 0 }, nred = 1;
    for (int k = x->rank - 1, o = n->rank - 1; k >= 0; k--) {
        ev->dim[k] = f->dims[k], ev->idx[k] = 0;
        if (kept & axis_bit(k))
            stride[k] = out->strides[o--];
        else
            nred *= ev->dim[k];
    }
    if (ints && nred > FEW_TAPS)
        return false;
    nest_lane(ev, all);
    uint32_t lane_bit = axis_bit(ev->lane);
    bool serial = red & lane_bit;
    int64_t extent = ev->dim[ev->lane];
    float part[LANES], acc[LANES], lost[LANES], start = (float)fold_start(n->kind, DT_f32).f;
    float *known = serial ? NULL : taps_known(ev, &t, red, kept & ~lane_bit, nred * extent);
    do {
        for (int64_t l = 0; l < (serial ? 1 : extent); l += LANES) {
            int m = extent - l < LANES ? (int)(extent - l) : LANES, taps = 0;
            const float *at = known ? known + l : NULL;
            for (int j = 0; j < m; j++)
                part[j] = acc[j] = start, lost[j] = 0;
            do {
                for (int64_t c = l; c < (serial ? extent : l + 1); c += LANES) {
                    ev->idx[ev->lane] = c;
                    taps_add(ev, &t, serial && extent - c < LANES ? (int)(extent - c) : m, at, t.kind == FOLD_sum ? part : acc);
                    at = known ? at + extent : NULL;
                    if (t.kind == FOLD_sum && ++taps == KC) {
                        taps_carry(m, acc, lost, part);
                        taps = 0;
                    }
                }
                if (serial)
                    ev->idx[ev->lane] = 0;
            } while (nest_next(ev, red & ~lane_bit));
            if (t.kind == FOLD_sum)
                taps_carry(m, acc, lost, part);
            int64_t to = 0;
            for (int k = 0; k < x->rank; k++)
                to += ev->idx[k] * stride[k];
            if (serial)
                acc[0] = taps_close(n->kind, m, acc);
            int count = serial ? 1 : m;
            int64_t step = serial ? 0 : stride[ev->lane];
            if (ints)
                for (int j = 0; j < count; j++)
                    ((int32_t *)out->data)[to + step * j] = (int32_t)acc[j];
            else
                floats_store((float *)out->data + to, step, count, acc);
        }
        ev->idx[ev->lane] = 0;
        if (++ev->blocks % 256 == 0)
            ctx_poll(ev->cx);
    } while (nest_next(ev, kept & ~lane_bit));
    return true;
}
