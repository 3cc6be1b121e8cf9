/* Sampling by coordinates and centred windows: GridSample, AffineGrid, CenterCropPad.
 *
 * GridSample: each spatial axis gives a list of taps (1 nearest, 2 linear, 4 cubic): an index operand, its weight, and whether it lies inside. The
 * result is the sum over all combinations of one tap of each axis. A coordinate outside is first clamped (border) or mirrored (reflection)
 * and then so is every tap; cubic clamps taps alone, so that it interpolates the extended image as PyTorch does. With zeros a tap outside
 * counts as 0, whatever the tensor holds. */
#include "onnx/onnx.h"
#include <string.h>

typedef enum GridPad { GRID_zeros, GRID_border, GRID_reflection } GridPad;
typedef struct GridTap { Node *index, *inside, *weight; } GridTap;
typedef struct Grid { OpCall *o; Node *x; int n, taps; DType wide; Dim *dims[MAX_RANK], *idx[MAX_RANK]; GridTap tap[SPATIAL_MAX][4]; } Grid;

/* Mirrored at the borders lo and hi as often as needed. */
static Node *grid_reflect(Graph *g, Node *v, Node *lo, Node *hi)
{
    Node *range = g2(g, OP_sub, hi, lo), *zero = g_scalar(g, v->dt, 0), *two = g_scalar(g, v->dt, 2);
    Node *far = g1(g, OP_abs, g2(g, OP_sub, v, lo)), *times = g1(g, OP_floor, g2(g, OP_div, far, range));
    Node *rest = g2(g, OP_sub, far, g2(g, OP_mul, times, range));
    Node *even = g2(g, OP_eq, g2(g, OP_fmod, times, two), zero);
    Node *y = g_where(g, even, g2(g, OP_add, lo, rest), g2(g, OP_sub, hi, rest));
    y = g_where(g, g2(g, OP_eq, range, zero), lo, y);
    return g_where(g, g2(g, OP_and, g2(g, OP_le, lo, v), g2(g, OP_le, v, hi)), v, y);
}

static Node *clamp_node(Graph *g, Node *v, Node *lo, Node *hi) { return g2(g, OP_max, g2(g, OP_min, v, hi), lo); }

/* Weights of the cubic convolution (a = -0.75) at floor-1 .. floor+2 for the remainder r. */
static Node *grid_cubic(Graph *g, Node *r, int t)
{
    const double a = -0.75;
    Node *one = g_scalar(g, r->dt, 1), *rest = g2(g, OP_sub, one, r);
    Node *d = t == 0 ? g2(g, OP_add, r, one) : t == 1 ? r : t == 2 ? rest : g2(g, OP_add, rest, one), *y;
    if (t == 1 || t == 2) {
        y = g2(g, OP_sub, g2(g, OP_mul, g_scalar(g, r->dt, a + 2), d), g_scalar(g, r->dt, a + 3));
        return g2(g, OP_add, g2(g, OP_mul, g2(g, OP_mul, y, d), d), one);
    }
    y = g2(g, OP_sub, g2(g, OP_mul, g_scalar(g, r->dt, a), d), g_scalar(g, r->dt, 5 * a));
    y = g2(g, OP_add, g2(g, OP_mul, y, d), g_scalar(g, r->dt, 8 * a));
    return g2(g, OP_sub, g2(g, OP_mul, y, d), g_scalar(g, r->dt, 4 * a));
}

static void grid_axis(Grid *s, int j, Node *at, GridPad pad, bool corners)
{
    Graph *g = s->o->g;
    DType dt = at->dt;
    Dim *n = s->x->dims[2 + j];
    Node *size = dim_node(g, n, dt), *one = g_scalar(g, dt, 1), *half = g_scalar(g, dt, 0.5), *zero = g_scalar(g, dt, 0);
    Node *last = g2(g, OP_sub, size, one);
    at = g2(g, OP_add, at, one);
    at = corners ? g2(g, OP_mul, g2(g, OP_mul, at, half), last) : g2(g, OP_mul, g2(g, OP_sub, g2(g, OP_mul, at, size), one), half);
    if (s->taps == 1) at = g1(g, OP_round, at);
    Node *lo = corners ? zero : g_scalar(g, dt, -0.5), *hi = corners ? last : g2(g, OP_sub, size, half);
    if (pad == GRID_border && s->taps < 4) at = clamp_node(g, at, zero, last);
    if (pad == GRID_reflection) at = grid_reflect(g, at, lo, hi);
    Node *low = g1(g, OP_floor, at), *part = g_cast(g, g2(g, OP_sub, at, low), s->wide);
    Node *first = g_int(g, DT_i64, 0), *end = dim_node(g, dim_addc(g, n, -1), DT_i64);
    for (int t = 0; t < s->taps; t++) {
        GridTap *p = &s->tap[j][t];
        int offset = s->taps == 4 ? t - 1 : t;
        if (pad == GRID_reflection) {
            Node *mirrored = grid_reflect(g, g2(g, OP_add, low, g_scalar(g, dt, offset)), lo, hi);
            p->index = clamp_node(g, g_cast(g, mirrored, DT_i64), first, end);
        } else {
            Node *index = g2(g, OP_add, g_cast(g, low, DT_i64), g_int(g, DT_i64, offset));
            p->index = clamp_node(g, index, first, end);
            if (pad == GRID_zeros) p->inside = g2(g, OP_and, g2(g, OP_le, first, index), g2(g, OP_le, index, end));
        }
        if (s->taps == 2) p->weight = t ? part : g2(g, OP_sub, g_scalar(g, s->wide, 1), part);
        if (s->taps == 4) p->weight = grid_cubic(g, part, t);
    }
}

static Node *grid_sum(Grid *s, int j, Node **index, Node *inside, Node *weight)
{
    Graph *g = s->o->g;
    if (j == s->n) {
        Node *v = g_gather(g, s->x, s->n, index, 2 + s->n, s->dims, &(View){ .nidx = s->x->rank, .idx = s->idx });
        if (inside) v = g_where(g, inside, v, g_cast(g, g_int(g, DT_i32, 0), v->dt));
        return weight ? g2(g, OP_mul, g_cast(g, v, s->wide), weight) : v;
    }
    Node *sum = NULL;
    for (int t = 0; t < s->taps; t++) {
        const GridTap *p = &s->tap[j][t];
        index[j] = p->index;
        Node *in = !p->inside ? inside : inside ? g2(g, OP_and, inside, p->inside) : p->inside;
        Node *w = !p->weight ? weight : weight ? g2(g, OP_mul, weight, p->weight) : p->weight;
        Node *v = grid_sum(s, j + 1, index, in, w);
        sum = sum ? g2(g, OP_add, sum, v) : v;
    }
    return sum;
}

static int grid_word(OpCall *o, const char *attr, const char *fallback, const char *const *words)
{
    const char *s = op_string(o, attr, fallback);
    for (int k = 0; words[k]; k++)
        if (!strcmp(s, words[k])) return k;
    fail(o->cx, E_INVALID, "%s is '%s', which has no meaning", attr, s);
}

void op_grid_sample(OpCall *o)
{
    static const char *const modes[] = { "nearest", "linear", "cubic", "bilinear", "bicubic", NULL };
    static const char *const pads[] = { "zeros", "border", "reflection", NULL };
    static const int taps[] = { 1, 2, 4, 2, 4 };
    Graph *g = o->g;
    Node *x = o->in[0], *grid = o->in[1];
    Grid s = { .o = o, .x = x, .n = x->rank - 2, .wide = dtype_is_float(x->dt) ? dtype_wide(x->dt) : DT_f32 };
    s.taps = taps[grid_word(o, "mode", "linear", modes)];
    GridPad pad = (GridPad)grid_word(o, "padding_mode", "zeros", pads);
    if (s.n < 1 || s.n > SPATIAL_MAX || grid->rank != x->rank)
        fail(o->cx, E_INVALID, "input of rank %d and grid of rank %d; equal ranks of 3 or more are wanted", x->rank, grid->rank);
    op_size_is(o, grid->dims[grid->rank - 1], dim_const(g, s.n), "coordinates: one for each spatial axis");
    Node *coordinates = g_cast(g, grid, dtype_wide(grid->dt));
    bool corners = op_int(o, "align_corners", 0) != 0;
    for (int k = 0; k < 2 + s.n; k++) {
        s.dims[k] = k < 2 ? x->dims[k] : grid->dims[k - 1];
        s.idx[k] = k < 2 ? dim_idx(g, k, s.dims[k]) : dim_idx(g, DIM_OPERAND + k - 2, x->dims[k]);
    }
    for (int j = 0; j < s.n; j++) {       /* the grid names the last axis first */
        Node *at = g_squeeze(g, g_slice(g, coordinates, grid->rank - 1, dim_const(g, s.n - 1 - j), dim_const(g, 1), 1), grid->rank - 1);
        grid_axis(&s, j, g_unsqueeze(g, at, 1), pad, corners);
    }
    Node *index[SPATIAL_MAX];
    o->out[0] = g_cast(g, grid_sum(&s, 0, index, NULL, NULL), x->dt);
}

/* grid[b, place..., r] = sum over c of theta[b,r,c] * coordinate c of the place, and theta[b,r,n]; coordinate 0 runs along the last axis. */
void op_affine_grid(OpCall *o)
{
    int count;
    Dim **size = op_sizes(o, 1, &count);
    Graph *g = o->g;
    DType dt = o->in[0]->dt, wide = dtype_wide(dt);
    Node *theta = g_cast(g, o->in[0], wide), *sum = NULL;
    int n = count - 2, rank = n + 2;
    bool corners = op_int(o, "align_corners", 0) != 0;
    if (theta->rank != 3 || n < 1 || rank > MAX_RANK)
        fail(o->cx, E_INVALID, "theta of rank %d and %d sizes; rank 3 and 4 or 5 sizes are wanted", theta->rank, count);
    op_size_is(o, theta->dims[1], dim_const(g, n), "rows of theta: one for each spatial axis");
    op_size_is(o, theta->dims[2], dim_const(g, n + 1), "columns of theta: one more");
    Dim *dims[MAX_RANK], *one = dim_const(g, 1);
    for (int c = 0; c <= n; c++) {
        for (int k = 0; k < rank; k++) dims[k] = k == 0 ? theta->dims[0] : k == rank - 1 ? theta->dims[1] : one;
        Node *term = g_reshape(g, g_slice(g, theta, 2, dim_const(g, c), one, 1), rank, dims);
        if (c < n) {
            Dim *d = size[2 + n - 1 - c];
            Node *i = g_cast(g, iota_node(g, d), wide), *two = g_scalar(g, wide, 2), *unit = g_scalar(g, wide, 1);
            Node *at = corners ? g2(g, OP_div, g2(g, OP_mul, i, two), dim_node(g, dim_max(g, dim_addc(g, d, -1), one), wide))
                               : g2(g, OP_div, g2(g, OP_add, g2(g, OP_mul, i, two), unit), dim_node(g, d, wide));
            term = g2(g, OP_mul, term, axis_node(g, g2(g, OP_sub, at, unit), rank, 1 + n - 1 - c));
        }
        sum = sum ? g2(g, OP_add, sum, term) : term;
    }
    dims[0] = theta->dims[0];
    for (int k = 0; k < n; k++) dims[1 + k] = size[2 + k];
    dims[rank - 1] = theta->dims[1];
    o->out[0] = g_cast(g, g_expand(g, sum, rank, dims), dt);
}

/* The middle of a longer axis; or a shorter one amid zeros. An odd difference leaves the larger part at the end. */
void op_center_crop_pad(OpCall *o)
{
    int n, naxes;
    Dim **size = op_sizes(o, 1, &n), *before[MAX_RANK], *after[MAX_RANK];
    const int64_t *axes = op_ints(o, "axes", &naxes);
    Graph *g = o->g;
    Node *x = o->in[0];
    if ((axes ? naxes : x->rank) != n) fail(o->cx, E_INVALID, "%d sizes for %d axes", n, axes ? naxes : x->rank);
    Dim *two = dim_const(g, 2);
    for (int k = 0; k < x->rank; k++) before[k] = after[k] = dim_const(g, 0);
    for (int j = 0; j < n; j++) {
        int k = axes ? op_axis(o, axes[j], x->rank) : j;
        Dim *more = dim_sub(g, size[j], x->dims[k]), *less = dim_sub(g, x->dims[k], size[j]);
        bool crop = dim_decide_lt(g, size[j], x->dims[k], "an axis is cropped");
        before[k] = crop ? dim_mulc(g, dim_div(g, less, two), -1) : dim_div(g, more, two);
        after[k] = dim_sub(g, more, before[k]);
    }
    o->out[0] = g_pad(g, x, before, after, (Scalar){ 0 });
}
