/* view.c: the builders of views, and broadcasting.
 *
 * Every movement of elements (reshape, transpose, expand, slice, pad, flip, a gather with known indices) is
 * one node:
 *     out[i] = valid(i) ? x[idx(i)] : fill
 * All builders here only compute idx and the predicates; g_view does the rest, in this order:
 *     compose with a view below -> drop what is proved -> fold constants and sizes -> drop identities
 * so a chain of movements is one node, and the shape arithmetic of a model (Shape, Gather, Slice, Concat) is
 * no node at all.
 *
 * Questions about symbolic sizes are put so that the answer for the hints needs one guard and not two:
 * dim_hint chooses which question to ask, dim_decide_* then proves it or records it. */
#include "ir/ir.h"
#include <string.h>

enum { VIEW_LIMIT = 64, SPREAD_LIMIT = 16 }; /* elements of an integer constant computed now; from one element */

char *dims_str(const Graph *g, int rank, Dim *const *dims)
{
    Text t = { .arena = g->arena };
    text_add(&t, "[");
    for (int k = 0; k < rank; k++) {
        if (k) text_add(&t, ",");
        dim_print(&t, g, dims[k]);
    }
    text_add(&t, "]");
    return t.at;
}

static void check_rank(Graph *g, int rank)
{
    ASSERT(rank >= 0);
    if (rank > MAX_RANK)
        fail(g->cx, E_INVALID, "a tensor of rank %d; at most %d is possible", rank, MAX_RANK);
}

static void check_axis(Graph *g, const Node *x, int axis, const char *what)
{
    if (axis < 0 || axis >= x->rank)
        fail(g->cx, E_INVALID, "%s along axis %d of a tensor of shape %s", what, axis,
             dims_str(g, x->rank, x->dims));
}

static Dim *dims_product(Graph *g, int n, Dim *const *dims)
{
    Dim *p = dim_const(g, 1);
    for (int k = 0; k < n; k++) p = dim_mul(g, p, dims[k]);
    return p;
}

Dim *g_count(Graph *g, const Node *x) { return dims_product(g, x->rank, x->dims); }

/* ---- broadcasting ------------------------------------------------------------------------------------ */

Dim *dim_broadcast(Graph *g, Dim *a, Dim *b)
{
    static const char why[] = "sizes broadcast";
    if (a == b || dim_is(b, 1)) return a;
    if (dim_is(a, 1)) return b;
    int64_t ha = dim_hint(g, a), hb = dim_hint(g, b);
    if (ha == hb) {
        if (!dim_decide_eq(g, a, b, why)) return NULL;
        return dim_is_const(b) ? b : a;
    }
    if (ha == 1) return dim_decide_eq(g, a, dim_const(g, 1), why) ? b : NULL;
    if (hb == 1) return dim_decide_eq(g, b, dim_const(g, 1), why) ? a : NULL;
    return NULL;
}

int dims_broadcast(Graph *g, int ra, Dim *const *a, int rb, Dim *const *b, Dim **out)
{
    int rank = ra > rb ? ra : rb;
    Dim *to[MAX_RANK]; /* out may be a */
    for (int k = 1; k <= rank; k++) {
        Dim *d = k > ra ? b[rb - k] : k > rb ? a[ra - k] : dim_broadcast(g, a[ra - k], b[rb - k]);
        if (!d)
            fail(g->cx, E_INVALID, "shapes %s and %s do not broadcast", dims_str(g, ra, a),
                 dims_str(g, rb, b));
        to[rank - k] = d;
    }
    memcpy(out, to, sizeof *out * (size_t)rank);
    return rank;
}

/* Index along an axis of size `from` that is broadcast to `to` at result axis `var`; NULL when it does not. */
static Dim *broadcast_idx(Graph *g, Dim *from, Dim *to, int var)
{
    static const char why[] = "sizes broadcast";
    if (from == to) return dim_idx(g, var, to);
    if (dim_is(from, 1)) return dim_const(g, 0);
    if (dim_hint(g, from) == 1 && dim_hint(g, to) != 1)
        return dim_decide_eq(g, from, dim_const(g, 1), why) ? dim_const(g, 0) : NULL;
    return dim_decide_eq(g, from, to, why) ? dim_idx(g, var, to) : NULL;
}

Node *g_expand(Graph *g, Node *x, int rank, Dim *const *dims)
{
    check_rank(g, rank);
    Dim *idx[MAX_RANK];
    int pad = rank - x->rank;
    bool fits = pad >= 0;
    for (int k = 0; fits && k < x->rank; k++) {
        idx[k] = broadcast_idx(g, x->dims[k], dims[pad + k], pad + k);
        fits = idx[k] != NULL;
    }
    if (!fits)
        fail(g->cx, E_INVALID, "shape %s does not broadcast to %s", dims_str(g, x->rank, x->dims),
             dims_str(g, rank, dims));
    return g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* ---- what a view may fold into ----------------------------------------------------------------------- */

/* The elements chosen by a view from sizes or from an integer constant, when all indices are known now; else NULL. */
static Node *view_fold_ints(Graph *g, Node *x, int rank, Dim *const *dims, const View *v)
{
    bool sizes = x->op == OP_dims;
    if (!sizes && (x->op != OP_const || dtype_is_float(x->dt) || !x->tensor->data)) return NULL;
    int64_t n = 1;
    for (int k = 0; k < rank; k++) {
        if (!dim_is_const(dims[k]) || dims[k]->c > VIEW_LIMIT) return NULL;
        n *= dims[k]->c;
        if (n > VIEW_LIMIT) return NULL;
    }
    Dim *total = g_count(g, x);
    if (!dim_is_const(total)) return NULL;
    /* one element many times stays a view, so that kernels see the value itself; short lists are shape arithmetic */
    if (total->c == 1 && n > 1 && (rank > 1 || (!sizes && n > SPREAD_LIMIT))) return NULL;
    if (rank > 1 && (sizes || n > total->c)) return NULL;
    Dim *chosen[VIEW_LIMIT], *to[MAX_RANK] = { 0 };
    Tensor *t = NULL;
    if (!sizes) {
        int64_t shape[MAX_RANK];
        for (int k = 0; k < rank; k++) shape[k] = dims[k]->c;
        t = tensor_new(g->arena, g->cx, x->dt, rank, shape);
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t rest = j;
        for (int k = rank - 1; k >= 0; k--) {
            to[k] = dim_const(g, rest % dims[k]->c);
            rest /= dims[k]->c;
        }
        bool valid = true;
        for (int k = 0; k < v->npred; k++) {
            Dim *e = dim_subst(g, v->pred[k].e, rank, to), *end = dim_subst(g, v->pred[k].n, rank, to);
            if (!dim_is_const(e) || !dim_is_const(end)) return NULL;
            valid = valid && e->c >= 0 && e->c < end->c;
        }
        int64_t offset = 0;
        for (int k = 0; valid && k < v->nidx; k++) {
            Dim *e = dim_subst(g, v->idx[k], rank, to);
            if (!dim_is_const(e) || e->c < 0 || !dim_is_const(x->dims[k]) || e->c >= x->dims[k]->c)
                return NULL;
            offset += e->c * (sizes ? 1 : x->tensor->strides[k]);
        }
        if (sizes) {
            chosen[j] = valid ? x->size[offset] : dim_const(g, v->fill.i);
        } else {
            size_t size = dtype_size(x->dt);
            const char *src = (const char *)x->tensor->data + (ptrdiff_t)size * offset;
            scalar_store(x->dt, (char *)t->data + size * (size_t)j,
                         valid ? scalar_load(x->dt, src) : v->fill);
        }
    }
    return sizes ? g_dims(g, rank, (int)n, chosen) : g_const(g, t);
}

/* A known tensor of one element as rank 0: all its expansions then share one node. */
static Node *scalar_of(Graph *g, Node *x)
{
    Tensor *t = NEW(g->arena, Tensor);
    t->dt = x->dt;
    t->data = x->tensor->data;
    return g_const(g, t);
}

static bool is_one_const(const Node *x)
{
    if (x->op != OP_const || !x->tensor->data) return false;
    for (int k = 0; k < x->rank; k++)
        if (!dim_is(x->dims[k], 1)) return false;
    return true;
}

static Node *splat(Graph *g, DType dt, Scalar value, int rank, Dim *const *dims)
{
    Tensor *t = tensor_new(g->arena, g->cx, dt, 0, NULL);
    scalar_store(dt, t->data, value);
    return g_view(g, g_const(g, t), rank, dims, &(View){ 0 });
}

/* An iota whose own axis is one axis of the result, or stands still. */
static Node *view_fold_iota(Graph *g, Node *x, int rank, Dim *const *dims, const View *v)
{
    Dim *i = v->idx[x->axis];
    if (dim_is_const(i)) return splat(g, DT_i64, (Scalar){ .i = i->c }, rank, dims);
    for (int k = 0; k < rank; k++)
        if (i == dim_idx(g, k, dims[k])) return g_iota(g, rank, dims, k);
    return NULL;
}

static bool view_is_identity(Graph *g, const Node *x, int rank, Dim *const *dims, const View *v)
{
    if (v->npred || rank != x->rank) return false;
    for (int k = 0; k < rank; k++) {
        if (dims[k] != x->dims[k]) return false;
        if (v->idx[k] != dim_idx(g, k, dims[k]) && !dim_is(dims[k], 1)) return false;
    }
    return true;
}

/* Adds a predicate unless it is proved or already there. False: it never holds. */
static bool pred_add(Graph *g, Pred *list, int *n, Pred p)
{
    bool low = dim_prove_ge0(g, p.e), high = dim_prove_lt(g, p.e, p.n);
    if (low && high) return true;
    if (!low && dim_prove_lt(g, p.e, dim_const(g, 0))) return false;
    if (!high && dim_prove_ge0(g, dim_sub(g, p.e, p.n))) return false;
    for (int k = 0; k < *n; k++)
        if (list[k].e == p.e && list[k].n == p.n) return true;
    list[(*n)++] = p;
    return true;
}

Node *g_view(Graph *g, Node *x, int rank, Dim *const *dims, const View *v)
{
    check_rank(g, rank);
    ASSERT(v->nidx == x->rank);
    Dim *idx[MAX_RANK];
    const View *below = x->op == OP_view ? &x->view : NULL;
    int nown = 0, npred = 0;
    bool never = false, never_below = false;
    Pred *pred = NEWS(g->arena, Pred, v->npred + (below ? below->npred : 0) + 1);
    for (int k = 0; k < v->npred; k++) never = !pred_add(g, pred, &nown, v->pred[k]) || never;
    npred = nown;
    for (int k = 0; below && k < below->npred; k++) {
        Pred p = { dim_subst(g, below->pred[k].e, v->nidx, v->idx),
                   dim_subst(g, below->pred[k].n, v->nidx, v->idx) };
        never_below = !pred_add(g, pred, &npred, p) || never_below;
    }
    Scalar fill = scalar_round(x->dt, v->fill, true);
    if (never) return splat(g, x->dt, fill, rank, dims);
    if (below && nown && (npred > nown || never_below) && below->fill.u != fill.u) {
        below = NULL; /* both are invalid somewhere, and one fill cannot serve both */
        npred = nown;
    }
    if (below) {
        if (!nown) fill = below->fill;
        if (never_below) return splat(g, x->dt, fill, rank, dims);
        for (int k = 0; k < below->nidx; k++) idx[k] = dim_subst(g, below->idx[k], v->nidx, v->idx);
        x = x->in[0];
        ASSERT(below->nidx == x->rank);
    } else {
        for (int k = 0; k < v->nidx; k++) idx[k] = v->idx[k];
    }
    for (int k = 0; k < x->rank; k++)
        if (dim_is(x->dims[k], 1)) idx[k] = dim_const(g, 0);
    View w = { .nidx = x->rank, .idx = idx, .npred = npred, .pred = pred };
    if (npred) w.fill = fill; /* without predicates it is all zeros, so that equal views are one node */
    Node *y = view_fold_ints(g, x, rank, dims, &w);
    if (y) return y;
    if (is_one_const(x)) {
        if (x->rank) x = scalar_of(g, x);
        w.nidx = 0;
        if (npred && scalar_load(x->dt, x->tensor->data).u == fill.u) w = (View){ 0 };
    }
    if (x->op == OP_iota && !npred && (y = view_fold_iota(g, x, rank, dims, &w))) return y;
    if (view_is_identity(g, x, rank, dims, &w)) return x;
    return graph_add(
        g, &(Node){ .op = OP_view, .dt = x->dt, .rank = rank, .dims = dims, .nin = 1, .in = &x, .view = w });
}

/* ---- movements --------------------------------------------------------------------------------------- */

Node *g_transpose(Graph *g, Node *x, const int *perm)
{
    Dim *dims[MAX_RANK], *idx[MAX_RANK] = { 0 };
    for (int k = 0; k < x->rank; k++) {
        if (perm[k] < 0 || perm[k] >= x->rank || idx[perm[k]])
            fail(g->cx, E_INVALID, "the axes given to transpose are no permutation of the %d axes of %s",
                 x->rank, dims_str(g, x->rank, x->dims));
        dims[k] = x->dims[perm[k]];
        idx[perm[k]] = dim_idx(g, k, dims[k]);
    }
    return g_view(g, x, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* Index of the source axes [s0, s1) from the result axes [d0, d1), which hold the same number of elements. */
static void reshape_group(Graph *g, const Node *x, int s0, int s1, Dim *const *dims, int d0, int d1,
                          Dim **idx)
{
    Dim *linear = dim_const(g, 0), *stride = dim_const(g, 1);
    for (int k = d1 - 1; k >= d0; k--) {
        linear = dim_add(g, linear, dim_mul(g, dim_idx(g, k, dims[k]), stride));
        stride = dim_mul(g, stride, dims[k]);
    }
    while (s0 < s1 && dim_is(x->dims[s0], 1)) idx[s0++] = dim_const(g, 0);
    stride = dim_const(g, 1);
    for (int k = s1 - 1; k >= s0; k--) {
        idx[k] = dim_div(g, linear, stride);
        if (k > s0) idx[k] = dim_mod(g, idx[k], x->dims[k]); /* the first is below its size anyway */
        stride = dim_mul(g, stride, x->dims[k]);
    }
}

/* idx of the view that reshapes x to dims: both shapes are cut where their products meet, and each group of axes has
 * its own, simpler map. The numbers of elements are equal. */
static void reshape_map(Graph *g, const Node *x, int rank, Dim *const *dims, Dim **idx)
{
    if (dim_is(g_count(g, x), 0) || dim_is(dims_product(g, rank, dims), 0)) {
        for (int k = 0; k < x->rank; k++) idx[k] = dim_const(g, 0);
        return;
    }
    for (int i = 0, j = 0; i < x->rank || j < rank;) {
        int i0 = i, j0 = j;
        Dim *p = dim_const(g, 1), *q = p;
        do {
            int64_t hp = dim_hint(g, p), hq = dim_hint(g, q);
            bool more_p = i < x->rank && (j == rank || hp <= hq);
            bool more_q = j < rank && (i == x->rank || hq <= hp);
            if (more_p) p = dim_mul(g, p, x->dims[i++]);
            if (more_q) q = dim_mul(g, q, dims[j++]);
        } while (p != q && (i < x->rank || j < rank));
        reshape_group(g, x, i0, i, dims, j0, j, idx);
    }
}

/* Is x itself a reshape of its source? Then a further reshape starts at the source: nested quotients and remainders
 * need not be simplified away. */
static bool is_reshape(Graph *g, const Node *x)
{
    if (x->op != OP_view || x->view.npred || g_count(g, x) != g_count(g, x->in[0])) return false;
    Dim *idx[MAX_RANK] = { 0 };
    reshape_map(g, x->in[0], x->rank, x->dims, idx);
    for (int k = 0; k < x->view.nidx; k++)
        if (idx[k] != x->view.idx[k]) return false;
    return true;
}

Node *g_reshape(Graph *g, Node *x, int rank, Dim *const *dims)
{
    check_rank(g, rank);
    if (!dim_decide_eq(g, g_count(g, x), dims_product(g, rank, dims), "reshape keeps the number of elements"))
        fail(g->cx, E_INVALID, "cannot reshape %s to %s: the numbers of elements differ",
             dims_str(g, x->rank, x->dims), dims_str(g, rank, dims));
    if (is_reshape(g, x)) x = x->in[0];
    Dim *idx[MAX_RANK];
    reshape_map(g, x, rank, dims, idx);
    return g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

Node *g_flatten(Graph *g, Node *x, int axis)
{
    if (axis < 0 || axis > x->rank)
        fail(g->cx, E_INVALID, "cannot flatten %s at axis %d", dims_str(g, x->rank, x->dims), axis);
    Dim *dims[2] = { dims_product(g, axis, x->dims), dims_product(g, x->rank - axis, x->dims + axis) };
    return g_reshape(g, x, 2, dims);
}

/* idx and dims of the view that changes nothing: a starting point. */
static void identity_map(Graph *g, const Node *x, Dim **dims, Dim **idx)
{
    for (int k = 0; k < x->rank; k++) {
        dims[k] = x->dims[k];
        idx[k] = dim_idx(g, k, dims[k]);
    }
}

Node *g_slice(Graph *g, Node *x, int axis, Dim *start, Dim *count, int64_t step)
{
    static const char why[] = "slice stays inside its axis";
    check_axis(g, x, axis, "slice");
    ASSERT(step != 0);
    Dim *dims[MAX_RANK], *idx[MAX_RANK], *size = x->dims[axis], *none = dim_const(g, -1);
    identity_map(g, x, dims, idx);
    if (!dim_is_const(count) && dim_hint(g, count) == 0 && dim_decide_eq(g, count, dim_const(g, 0), why))
        count = dim_const(g, 0);
    if (!dim_is(count, 0)) {
        Dim *last = dim_add(g, start, dim_mulc(g, dim_addc(g, count, -1), step));
        Dim *low = step > 0 ? start : last, *high = step > 0 ? last : start;
        if (!dim_decide_lt(g, none, count, why) || !dim_decide_lt(g, none, low, why) ||
            !dim_decide_lt(g, high, size, why)) {
            Dim *const range[3] = { start, count, dim_const(g, step) };
            fail(g->cx, E_INVALID, "slice [start,count,step] = %s along axis %d reaches outside %s",
                 dims_str(g, 3, range), axis, dims_str(g, x->rank, x->dims));
        }
    }
    dims[axis] = count;
    idx[axis] = dim_add(g, start, dim_mulc(g, dim_idx(g, axis, count), step));
    return g_view(g, x, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

Node *g_pad(Graph *g, Node *x, Dim *const *before, Dim *const *after, Scalar fill)
{
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    Pred pred[MAX_RANK];
    for (int k = 0; k < x->rank; k++) {
        dims[k] = dim_add(g, x->dims[k], dim_add(g, before[k], after[k]));
        if (!dim_decide_lt(g, dim_const(g, -1), dims[k], "a padded size is not negative"))
            fail(g->cx, E_INVALID, "padding axis %d of %s by %s leaves less than nothing", k,
                 dims_str(g, x->rank, x->dims), dims_str(g, 2, (Dim *const[]){ before[k], after[k] }));
        idx[k] = dim_sub(g, dim_idx(g, k, dims[k]), before[k]);
        pred[k] = (Pred){ idx[k], x->dims[k] };
    }
    View v = { .nidx = x->rank, .idx = idx, .npred = x->rank, .pred = pred, .fill = fill };
    return g_view(g, x, x->rank, dims, &v);
}

Node *g_unsqueeze(Graph *g, Node *x, int axis)
{
    check_rank(g, x->rank + 1);
    if (axis < 0 || axis > x->rank)
        fail(g->cx, E_INVALID, "no place for a new axis %d in %s", axis, dims_str(g, x->rank, x->dims));
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    for (int k = 0; k < x->rank; k++) {
        int to = k < axis ? k : k + 1;
        dims[to] = x->dims[k];
        idx[k] = dim_idx(g, to, dims[to]);
    }
    dims[axis] = dim_const(g, 1);
    return g_view(g, x, x->rank + 1, dims, &(View){ .nidx = x->rank, .idx = idx });
}

Node *g_squeeze(Graph *g, Node *x, int axis)
{
    check_axis(g, x, axis, "squeeze");
    if (!dim_decide_eq(g, x->dims[axis], dim_const(g, 1), "a squeezed axis has size 1"))
        fail(g->cx, E_INVALID, "cannot squeeze axis %d of %s: its size is not 1", axis,
             dims_str(g, x->rank, x->dims));
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    for (int k = 0; k < x->rank; k++) {
        int to = k < axis ? k : k - 1;
        if (k == axis) {
            idx[k] = dim_const(g, 0);
            continue;
        }
        dims[to] = x->dims[k];
        idx[k] = dim_idx(g, to, dims[to]);
    }
    return g_view(g, x, x->rank - 1, dims, &(View){ .nidx = x->rank, .idx = idx });
}

Node *g_flip(Graph *g, Node *x, int axis)
{
    check_axis(g, x, axis, "flip");
    Dim *dims[MAX_RANK], *idx[MAX_RANK];
    identity_map(g, x, dims, idx);
    idx[axis] = dim_sub(g, dim_addc(g, dims[axis], -1), idx[axis]);
    return g_view(g, x, x->rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* ---- gathers ----------------------------------------------------------------------------------------- */

Node *g_gather(Graph *g, Node *x, int nindex, Node *const *index, int rank, Dim *const *dims, const View *v)
{
    check_rank(g, rank);
    ASSERT(v->nidx == x->rank && nindex >= 1);
    Node **in = NEWS(g->arena, Node *, nindex + 1);
    in[0] = x;
    for (int k = 0; k < nindex; k++) {
        ASSERT(index[k]->dt == DT_i64);
        in[k + 1] = g_expand(g, index[k], rank, dims);
    }
    return graph_add(g, &(Node){ .op = OP_gather, .dt = x->dt, .rank = rank, .dims = dims, .nin = nindex + 1,
                                 .in = in, .view = *v });
}

Node *g_scatter(Graph *g, Node *x, Node *updates, int nindex, Node *const *index, const View *v, Combine how)
{
    ASSERT(v->nidx == x->rank);
    if (x->dt != updates->dt)
        fail(g->cx, E_INVALID, "updates of dtype %s for a tensor of dtype %s", dtype_info[updates->dt].name,
             dtype_info[x->dt].name);
    for (int k = 0; k < updates->rank; k++) /* as in g_fold() */
        if (dim_is(updates->dims[k], 0)) return x;
    Node **in = NEWS(g->arena, Node *, nindex + 2);
    in[0] = x;
    in[1] = updates;
    for (int k = 0; k < nindex; k++) {
        ASSERT(index[k]->dt == DT_i64);
        in[k + 2] = g_expand(g, index[k], updates->rank, updates->dims);
    }
    return graph_add(g, &(Node){ .op = OP_scatter, .dt = x->dt, .rank = x->rank, .dims = x->dims,
                                 .nin = nindex + 2, .in = in, .view = *v, .kind = (uint8_t)how });
}

static int64_t index_at(const Tensor *t, int64_t j) { return scalar_load(t->dt, tensor_at(t, j)).i; }

/* A known index tensor without negative values, or NULL when that needs work at run time. */
static Node *wrap_known(Graph *g, Node *index, Dim *n)
{
    if (index->op != OP_const || !index->tensor->data) return NULL;
    int64_t count = tensor_count(index->tensor), lowest = 0;
    for (int64_t j = 0; j < count; j++) {
        int64_t e = index_at(index->tensor, j);
        if (e < lowest) lowest = e;
    }
    if (lowest == 0) return g_cast(g, index, DT_i64);
    if (!dim_is_const(n)) return NULL;
    Tensor *t = tensor_new(g->arena, g->cx, DT_i64, index->rank, index->tensor->dims);
    for (int64_t j = 0; j < count; j++) {
        int64_t e = index_at(index->tensor, j);
        scalar_store(DT_i64, tensor_at(t, j), (Scalar){ .i = e < 0 ? e + n->c : e });
    }
    return g_const(g, t);
}

Node *g_wrap_index(Graph *g, Node *index, Dim *n)
{
    Node *known = wrap_known(g, index, n);
    if (known) return known;
    index = g_cast(g, index, DT_i64);
    if (index->op == OP_iota) return index;
    Node *zero = g_int(g, DT_i64, 0);
    return g_where(g, g2(g, OP_lt, index, zero), g2(g, OP_add, index, g_dims(g, 0, 1, &n)), index);
}

enum { INDEX_LIMIT = 1 << 30 }; /* of constant indices on a symbolic axis: far from overflow */

/* The known index `value` on an axis of size n as a place from its start; checked. */
static Dim *index_place(Graph *g, const Node *x, int axis, Dim *value)
{
    static const char why[] = "an index lies inside its axis";
    Dim *n = x->dims[axis];
    Dim *at = dim_decide_lt(g, value, dim_const(g, 0), why) ? dim_add(g, value, n) : value;
    if (!dim_decide_lt(g, dim_const(g, -1), at, why) || !dim_decide_lt(g, at, n, why))
        fail(g->cx, E_INVALID, "index %lld is outside axis %d of %s", (long long)dim_hint(g, value), axis,
             dims_str(g, x->rank, x->dims));
    return at;
}

/* Gather with known indices start, start + step, ... in row-major order, as a view; NULL: they are not so. */
static Node *gather_as_view(Graph *g, Node *x, Node *index, int axis, int rank, Dim *const *dims)
{
    Dim *start, *step = dim_const(g, 0);
    if (index->op == OP_dims && (index->rank == 0 || dim_is(index->dims[0], 1))) {
        start = index_place(g, x, axis, index->size[0]);
    } else if (index->op == OP_const && index->tensor->data) {
        int64_t n = tensor_count(index->tensor);
        if (n == 0) return NULL;
        int64_t first = 0, by = 0, size = dim_is_const(x->dims[axis]) ? x->dims[axis]->c : -1;
        bool regular = true, negative = false;
        for (int64_t j = 0; j < n; j++) {
            int64_t e = index_at(index->tensor, j);
            if (size >= 0 ? e < -size || e >= size : e < -INDEX_LIMIT || e > INDEX_LIMIT)
                index_place(g, x, axis, dim_const(g, e));
            if (size >= 0 && e < 0) e += size;
            if (j == 0) first = e;
            if (j == 1) by = e - first;
            if (j == 0) negative = e < 0;
            /* on a symbolic axis a negative index is counted from an end not known yet: signs must not mix */
            regular = regular && e == first + j * by && negative == (e < 0);
        }
        if (!regular) return NULL;
        start = index_place(g, x, axis, dim_const(g, first));
        if (n > 1) index_place(g, x, axis, dim_const(g, first + (n - 1) * by));
        step = dim_const(g, by);
    } else {
        return NULL;
    }
    Dim *idx[MAX_RANK] = { 0 }, *linear = dim_const(g, 0);
    for (int k = 0; k < index->rank; k++)
        linear = dim_add(g, dim_mul(g, linear, index->dims[k]), dim_idx(g, axis + k, index->dims[k]));
    for (int k = 0; k < x->rank; k++) {
        int to = k < axis ? k : k - 1 + index->rank;
        idx[k] = k == axis ? dim_add(g, start, dim_mul(g, linear, step)) : dim_idx(g, to, dims[to]);
    }
    return g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}

/* Sizes, or known integers, chosen by a constant list of indices are the same again. */
static Node *gather_sizes(Graph *g, Node *x, Node *index)
{
    int n, size;
    Dim **from = x->rank == 1 && x->dt == DT_i64 ? node_as_dims(g, x, &size) : NULL;
    Dim **at = from && index->rank <= 1 ? node_as_dims(g, index, &n) : NULL;
    if (!at) return NULL;
    for (int k = 0; k < n; k++) {
        if (!dim_is_const(at[k])) return NULL;
        int64_t e = at[k]->c;
        if (e < -size || e >= size) index_place(g, x, 0, at[k]);
        at[k] = from[e < 0 ? e + size : e];
    }
    return g_dims(g, index->rank, n, at);
}

Node *g_gather_axis(Graph *g, Node *x, Node *index, int axis)
{
    check_axis(g, x, axis, "gather");
    if (!dtype_is_int(index->dt))
        fail(g->cx, E_INVALID, "an index of dtype %s; an integer is wanted", dtype_info[index->dt].name);
    int rank = x->rank - 1 + index->rank;
    check_rank(g, rank);
    Dim *dims[MAX_RANK] = { 0 }, *idx[MAX_RANK] = { 0 };
    for (int k = 0; k < axis; k++) dims[k] = x->dims[k];
    for (int k = 0; k < index->rank; k++) dims[axis + k] = index->dims[k];
    for (int k = axis + 1; k < x->rank; k++) dims[k - 1 + index->rank] = x->dims[k];
    Node *y = gather_sizes(g, x, index);
    if (!y) y = gather_as_view(g, x, index, axis, rank, dims);
    if (y) return y;
    /* the index tensor takes its place among the result's axes and is the same along the others */
    Node *wrapped = g_wrap_index(g, index, x->dims[axis]);
    Dim *spread[MAX_RANK] = { 0 };
    for (int k = 0; k < index->rank; k++) spread[k] = dim_idx(g, axis + k, index->dims[k]);
    wrapped = g_view(g, wrapped, rank, dims, &(View){ .nidx = index->rank, .idx = spread });
    for (int k = 0; k < x->rank; k++) {
        int to = k < axis ? k : k - 1 + index->rank;
        idx[k] = k == axis ? dim_idx(g, DIM_OPERAND, x->dims[axis]) : dim_idx(g, to, dims[to]);
    }
    return g_gather(g, x, 1, &wrapped, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
}
