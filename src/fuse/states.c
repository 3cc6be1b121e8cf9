/* States: sums over all earlier places, of weights that fall apart, become recurrences, whose state is as large as one place's, not as the square of their number:
 *
 *     y[i] = sum over j <= i, and over d, of q[i,d] k[j,d] e^(r[i] + l[j]) v[j]    becomes    y[i] = e^(r[i] + m[i]) times the sum over d of q[i,d] s[i,d],
 *     s[i] = e^(m[i-1] - m[i]) s[i-1] + e^(l[i] - m[i]) k[i] v[i],    m[i] = the largest l[j], j <= i
 *
 * which is linear attention, with or without decay (Katharopoulos et al., Transformers are RNNs, 2020; Yang et al., Gated linear attention, 2024), in the form in which it is
 * written as a masked product of matrices. The body of a sum is followed down to factors of which each differs along i or along j alone: products, quotients, powers (of e or of a number above 0, whose exponents are sums and
 * differences), selections by the mask, and one sum of products inside (over d). m is a pivot, as in a cascade: no exponent of the state is above 0, and that of what is read of
 * it is the largest of the row's own. Where signs prove that r never rises, as with running sums of what is not above 0, -r takes its place. The state's kernel is that of running folds (kir/scan.c). */
#include "fuse/fuse.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { NONE = 31, INNER_VAR = MAX_RANK, MOST_FACTORS = 24, MOST_COEFS = 4, STATE_MOST_NUMBERS = 1 << 16 };     /* INNER_VAR: the variable of the sum inside; numbers of a state that a cache holds */
#define LOWEST (-1e38)                   /* a pivot where all is -inf */
typedef struct Seen { Node *n; Dim **at; } Seen;         /* a node at an index over the variables of the body */
typedef struct Factor { Seen x; uint32_t by; bool over, exponent; int sign; int ncoef; Seen coef[MOST_COEFS]; } Factor;   /* times x, which differs by these variables; or over x; or e to sign x coef.. */
typedef struct Table { const Tensor *t; int row, col; bool triangle; } Table;   /* a constant that was read */
typedef VEC(Table) Tables;
typedef struct State {
    Graph *g; Arena *arena; const int *uses; int nuses;
    Tables *tables;
    const Node *fold; int j, i, lane;   /* axes of the body; lane: the last of what comes to the state, NONE: that of the sum inside goes by lanes */
    Node *inner; Dim *inner_size;       /* the sum inside, or NULL */
    bool masked, fails;
    bool shared;                        /* something that differs along both is needed elsewhere as well, so it may be computed in any case */
    const char *form;                   /* what was made of the exponents */
    int sign, steps;                    /* of the product; nodes that may yet be looked at */
    int nfactor; Factor factor[MOST_FACTORS];
    int rank, pos[MAX_RANK + 1]; Dim *dims[MAX_RANK];    /* the state's space: where the body's axes and INNER_VAR are there */
    Dim *map[MAX_RANK + 1];
} State;

static Dim **index_of(State *s, int n, Dim *const *idx, int nvar, Dim *const *to)
{
    Dim **at = NEWS(s->arena, Dim *, n + 1);
    for (int k = 0; k < n; k++) at[k] = dim_subst(s->g, idx[k], nvar, to);
    return at;
}

static uint32_t vars_of(const Dim *d)
{
    uint32_t m = 0;
    for (int v = 0; v <= INNER_VAR; v++) if (dim_uses(d, v)) m |= 1u << v;
    return m;
}

/* The variables that a node's value differs by: what is spread over an axis does not. */
static uint32_t differs(State *s, const Node *n, Dim *const *at)
{
    uint32_t by = 0;
    if (--s->steps < 0) { s->fails = true; return ~0u; }
    for (int k = 0; k < n->rank; k++) by |= vars_of(at[k]);
    if (!by) return 0;
    if (n->op == OP_view) {
        Dim **in = index_of(s, n->view.nidx, n->view.idx, n->rank, at);
        uint32_t m = differs(s, n->in[0], in);
        for (int k = 0; k < n->view.npred; k++) m |= vars_of(dim_subst(s->g, n->view.pred[k].e, n->rank, at));
        return m;
    }
    if (n->op == OP_iota) return vars_of(at[n->axis]);
    if (!by_element(n)) return by;
    uint32_t m = 0;
    for (int k = 0; k < n->nin && (m & by) != by; k++) m |= differs(s, n->in[k], at);
    return m & by;
}

static bool by_i(const State *s, uint32_t m) { return m >> s->i & 1; }
static bool by_j(const State *s, uint32_t m) { return m >> s->j & 1; }

/* ---- conditions -------------------------------------------------------------------------------------------------------------------------------- */
static bool plain_number(const Node *n, double *v)
{
    const Node *x = under_views(n);
    if (x->op != OP_const || x->rank) return false;
    const Scalar k = scalar_load(x->dt, x->tensor->data);
    *v = dtype_is_float(x->dt) ? k.f : (double)k.i;
    return true;
}

/* Differences and sums of two lengths, and no numbers that are not small. */
static bool of_two_lengths(const Dim *d)
{
    for (int k = 0; k < d->n; k++) if (d->term[k].coef < -1 || d->term[k].coef > 1) return false;
    return d->n <= 2 && d->c > INT32_MIN / 4 && d->c < INT32_MAX / 4;
}

static bool type_holds(DType t, int64_t v) { return (v >= 0 || dtype_info[t].class == 'S') && scalar_cast(t, DT_i64, (Scalar){ .i = v }, false).i == v; }

/* d, if numbers of type t are what it says and never wrap; else NULL. Lengths that are symbols are below 2^30, since there is a weight for each two places. */
static Dim *held_in(Dim *d, DType t)
{
    const bool unknown = dtype_size(t) == 8 || (dtype_size(t) == 4 && of_two_lengths(d));
    if (d->lo == INT64_MIN ? !unknown || dtype_info[t].class != 'S' : !type_holds(t, d->lo)) return NULL;
    return (d->hi == INT64_MAX ? unknown : type_holds(t, d->hi)) ? d : NULL;
}

/* A node of integers as an expression of the variables; NULL: it is none. */
static Dim *whole_number(State *s, const Node *n, Dim *const *at)
{
    double v;
    if (--s->steps < 0 || dtype_is_float(n->dt)) return NULL;
    if (plain_number(n, &v)) return fabs(v) < 1e9 ? dim_const(s->g, (int64_t)v) : NULL;
    Dim *d = NULL;
    switch ((int)n->op) {
    case OP_iota: d = at[n->axis]; break;
    case OP_dims: d = n->rank == 0 ? n->size[0] : NULL; break;
    case OP_view: return n->view.npred ? NULL : whole_number(s, n->in[0], index_of(s, n->view.nidx, n->view.idx, n->rank, at));
    case OP_cast: d = whole_number(s, n->in[0], at); break;
    case OP_add: case OP_sub: case OP_mul: {
        Dim *a = whole_number(s, n->in[0], at), *b = a ? whole_number(s, n->in[1], at) : NULL;
        d = b ? dim_op(s->g, n->op, a, b) : NULL;
        break;
    }
    default: break;
    }
    return d ? held_in(d, n->dt) : NULL;
}

static size_t number_store(DType t, void *p, int v)
{
    scalar_store(t, p, dtype_is_float(t) ? (Scalar){ .f = v } : (Scalar){ .i = v });
    return dtype_size(t);
}

/* Rows of a matrix of n by n are ones, one more in each, and then zeros: each is a piece of n ones and n zeros. Where it is not that to the bit, numbers decide (-0 is 0). */
static bool triangle_read(State *s, const Tensor *t, int row, int col)
{
    const int64_t n = t->dims[row], size = (int64_t)dtype_size(t->dt);
    char *ones = NEWS(s->arena, char, 2 * n * size + 1);
    for (int64_t k = 0, at = 0; k < 2 * n; k++) at += (int64_t)number_store(t->dt, ones + at, k < n);
    for (int64_t i = 0; i < n; i++) {
        const char *p = (const char *)t->data + i * t->strides[row] * size;
        ctx_poll(s->g->cx);
        if (t->strides[col] == 1 && !memcmp(p, ones + (n - 1 - i) * size, (size_t)(n * size))) continue;
        for (int64_t j = 0; j < n; j++) {
            const Scalar v = scalar_load(t->dt, p + j * t->strides[col] * size);
            if (dtype_is_float(t->dt) ? v.f != (j <= i) : v.i != (j <= i)) return false;
        }
    }
    return true;
}

/* Does a table say 1 (or true) at j <= i and 0 elsewhere? Each is read once, by however many sums it is asked for. */
static bool is_triangle(State *s, const Node *n, Dim *const *at)
{
    const Tensor *t = n->op == OP_const ? n->tensor : NULL;
    int row = -1, col = -1;
    for (int k = 0; t && k < n->rank; k++) {
        if (at[k] == s->map[s->i] && row < 0) row = k;
        else if (at[k] == s->map[s->j] && col < 0) col = k;
        else if (!dim_is(at[k], 0) || t->dims[k] != 1) return false;
    }
    if (!t || row < 0 || col < 0 || t->dims[row] != t->dims[col]) return false;
    for (int k = 0; k < s->tables->n; k++) if (s->tables->at[k].t == t && s->tables->at[k].row == row && s->tables->at[k].col == col) return s->tables->at[k].triangle;
    const Table read = { t, row, col, triangle_read(s, t, row, col) };
    vec_push(s->arena, s->tables, read);
    return read.triangle;
}

/* 1: the truth value n says j <= i; -1: it says that it is not so; 0: neither. */
static int says_past(State *s, const Node *n, Dim *const *at)
{
    double v, w;
    if (--s->steps < 0) return 0;
    Dim *i = s->map[s->i], *j = s->map[s->j];
    switch ((int)n->op) {
    case OP_const: return is_triangle(s, n, at);
    case OP_view: return n->view.npred ? 0 : says_past(s, n->in[0], index_of(s, n->view.nidx, n->view.idx, n->rank, at));
    case OP_not: return n->dt == DT_bool ? -says_past(s, n->in[0], at) : 0;          /* of integers: all bits */
    case OP_cast: return says_past(s, n->in[0], at);
    case OP_where:
        if (!plain_number(n->in[1], &v) || !plain_number(n->in[2], &w) || (v != 0) == (w != 0)) return 0;
        if ((v != 0 ? v : w) != 1 && n->dt != DT_bool) return 0;
        return v != 0 ? says_past(s, n->in[0], at) : -says_past(s, n->in[0], at);
    case OP_eq:
        if (plain_number(n->in[1], &v)) return v == 0 ? -says_past(s, n->in[0], at) : v == 1 ? says_past(s, n->in[0], at) : 0;
        return 0;
    case OP_le: case OP_lt: {           /* a <= b: the difference is not negative */
        Dim *a = whole_number(s, n->in[0], at), *b = a ? whole_number(s, n->in[1], at) : NULL;
        if (!b) return 0;
        Dim *e = dim_addc(s->g, dim_sub(s->g, b, a), -(n->op == OP_lt));
        return e == dim_sub(s->g, i, j) ? 1 : e == dim_addc(s->g, dim_sub(s->g, j, i), -1) ? -1 : 0;
    }
    default: return 0;
    }
}

/* ---- factors ----------------------------------------------------------------------------------------------------------------------------------- */
static void factor_add(State *s, Factor f)
{
    if (s->nfactor == MOST_FACTORS) s->fails = true;
    else s->factor[s->nfactor++] = f;
}

/* The branch of a selection by the mask whose other branch is `none`; NULL: it is no such. */
static Node *masked_branch(State *s, Node *n, Dim **at, double none)
{
    double v;
    const int past = says_past(s, n->in[0], at), keep = past > 0 ? 1 : 2;
    if (!past || !plain_number(n->in[3 - keep], &v) || v != none) return NULL;
    s->masked = true;
    return n->in[keep];
}

static void exponent_walk(State *s, Node *n, Dim **at, Factor f)
{
    const uint32_t by = differs(s, n, at);
    if (s->fails) return;
    if (!by_i(s, by) || !by_j(s, by)) { f.x = (Seen){ n, at }; f.by = by; factor_add(s, f); return; }
    switch ((int)n->op) {
    case OP_view:
        if (n->view.npred) break;
        exponent_walk(s, n->in[0], index_of(s, n->view.nidx, n->view.idx, n->rank, at), f);
        return;
    case OP_cast:                        /* integers that never wrap are what they say in any wide type */
        if (dtype_size(n->dt) < 4 || (dtype_is_float(n->in[0]->dt) ? dtype_size(n->in[0]->dt) < 4 : !whole_number(s, n->in[0], at))) break;
        exponent_walk(s, n->in[0], at, f);
        return;
    case OP_add: case OP_sub: case OP_neg:
        for (int k = 0; k < n->nin; k++) {
            Factor part = f;
            if ((n->op == OP_sub && k == 1) || n->op == OP_neg) part.sign = -f.sign;
            exponent_walk(s, n->in[k], at, part);
        }
        return;
    case OP_mul:
        for (int k = 0; k < 2; k++) {
            const uint32_t own = differs(s, n->in[k], at);
            if (by_i(s, own) || by_j(s, own) || f.ncoef == MOST_COEFS) continue;
            f.coef[f.ncoef++] = (Seen){ n->in[k], at };
            exponent_walk(s, n->in[1 - k], at, f);
            return;
        }
        break;
    case OP_where: {
        Node *x = f.ncoef ? NULL : masked_branch(s, n, at, f.sign > 0 ? -INFINITY : INFINITY);
        if (!x) break;
        exponent_walk(s, x, at, f);
        return;
    }
    default: break;
    }
    s->fails = true;
}

static void product_walk(State *s, Node *n, Dim **at, bool over)
{
    const uint32_t by = differs(s, n, at);
    if (s->fails) return;
    if (!by_i(s, by) || !by_j(s, by)) {
        if (n->op != OP_mul || (by >> INNER_VAR & 1) || n->rank < 2) { factor_add(s, (Factor){ .x = { n, at }, .by = by, .over = over }); return; }
    } else s->shared |= n->id < s->nuses && s->uses[n->id] > 1 && n->op != OP_view;
    switch ((int)n->op) {
    case OP_view:
        if (n->view.npred) break;
        product_walk(s, n->in[0], index_of(s, n->view.nidx, n->view.idx, n->rank, at), over);
        return;
    case OP_neg:
        s->sign = -s->sign;
        product_walk(s, n->in[0], at, over);
        return;
    case OP_mul: case OP_div:
        product_walk(s, n->in[0], at, over);
        product_walk(s, n->in[1], at, over != (n->op == OP_div));
        return;
    case OP_exp: exponent_walk(s, n->in[0], at, (Factor){ .exponent = true, .sign = over ? -1 : 1 }); return;
    case OP_pow: {                       /* of a number above 0: e to a multiple of its logarithm */
        const uint32_t own = differs(s, n->in[0], at);
        const Reach base = node_reach(s->g, n->in[0]);
        if (by_i(s, own) || by_j(s, own) || !reach_known(base) || base.lo <= 0) break;
        exponent_walk(s, n->in[1], at, (Factor){ .exponent = true, .sign = over ? -1 : 1, .ncoef = 1, .coef[0] = { g1(s->g, OP_log, n->in[0]), at } });
        return;
    }
    case OP_where: {
        double v;
        Node *x = over ? NULL : masked_branch(s, n, at, 0);
        if (!x) break;
        if (plain_number(x, &v) && v == 1) return;
        product_walk(s, x, at, over);
        return;
    }
    case OP_cast:
        if (n->in[0]->dt != DT_bool || over || says_past(s, n->in[0], at) <= 0) break;
        s->masked = true;
        return;
    case OP_const:
        if (over || !is_triangle(s, n, at)) break;
        s->masked = true;
        return;
    case OP_fold: {
        if (over || s->inner || n->kind != FOLD_sum || n->whole || n->dt != DT_f32) break;
        const Node *body = n->in[0];
        Dim **in = NEWS(s->arena, Dim *, body->rank + 1);
        int axes = 0, r = 0;
        for (int k = 0; k < body->rank; k++) {
            if (!(n->axes >> k & 1)) { in[k] = at[r++]; continue; }
            axes++;
            s->inner_size = body->dims[k];
            in[k] = dim_idx(s->g, INNER_VAR, body->dims[k]);
        }
        if (axes != 1) break;
        s->inner = n;
        product_walk(s, n->in[0], in, false);
        return;
    }
    default: break;
    }
    s->fails = true;
}

/* ---- signs: does the exponent of the rows never rise? ---------------------------------------------------------------------------------------------- */
enum { MAY_RISE = 1, MAY_FALL = 2 };     /* of a value: be above 0, be below 0; of a row's: by its place */
static int flipped(int m) { return (m & MAY_RISE ? MAY_FALL : 0) | (m & MAY_FALL ? MAY_RISE : 0); }
static int product_sign(int a, int b) { return !a || !b ? 0 : (a & b ? MAY_RISE : 0) | ((a & 1 && b & 2) || (a & 2 && b & 1) ? MAY_FALL : 0); }

static int number_sign(double v) { return v > 0 ? MAY_RISE : v < 0 ? MAY_FALL : v == 0 ? 0 : 3; }

static int signs_of(State *s, const Node *n)
{
    if (--s->steps < 0) return 3;
    double v;
    int m = 0;
    switch ((int)n->op) {
    case OP_const:
        if (!dtype_is_float(n->dt) || !tensor_dense(n->tensor) || tensor_count(n->tensor) > 1 << 16) return 3;
        for (int64_t k = 0; k < tensor_count(n->tensor); k++) m |= number_sign(scalar_load(n->dt, (const char *)n->tensor->data + k * (int64_t)dtype_size(n->dt)).f);
        return m;
    case OP_abs: case OP_exp: case OP_sigmoid: case OP_sqrt: case OP_iota: return MAY_RISE;
    case OP_neg: return flipped(signs_of(s, n->in[0]));
    case OP_view:
        m = signs_of(s, n->in[0]);
        return n->view.npred ? m | number_sign(n->view.fill.f) : m;
    case OP_cast: return dtype_is_float(n->dt) ? signs_of(s, n->in[0]) : 3;
    case OP_log1p: case OP_expm1: case OP_tanh: case OP_erf: case OP_sinh: case OP_atan: return signs_of(s, n->in[0]);
    case OP_log: {
        const Node *x = under_views(n->in[0]);
        const Reach of = node_reach(s->g, x);
        if (x->op == OP_sigmoid) return MAY_FALL;
        if (reach_known(of) && of.lo >= 0) return (of.hi > 1 ? MAY_RISE : 0) | (of.lo < 1 ? MAY_FALL : 0);
        if (x->op == OP_add && plain_number(x->in[0], &v) && v >= 1 && !(signs_of(s, x->in[1]) & MAY_FALL)) return MAY_RISE;
        if (x->op == OP_add && plain_number(x->in[1], &v) && v >= 1 && !(signs_of(s, x->in[0]) & MAY_FALL)) return MAY_RISE;
        return 3;
    }
    case OP_mul: case OP_div: return n->op == OP_mul && n->in[0] == n->in[1] ? MAY_RISE : product_sign(signs_of(s, n->in[0]), signs_of(s, n->in[1]));
    case OP_add: return signs_of(s, n->in[0]) | signs_of(s, n->in[1]);
    case OP_sub: return signs_of(s, n->in[0]) | flipped(signs_of(s, n->in[1]));
    case OP_where: return signs_of(s, n->in[1]) | signs_of(s, n->in[2]);
    case OP_max: case OP_min: {
        const int a = signs_of(s, n->in[0]), b = signs_of(s, n->in[1]), drop = n->op == OP_max ? MAY_FALL : MAY_RISE;
        return !(a & drop) || !(b & drop) ? (a | b) & ~drop : a | b;
    }
    case OP_scan: return n->kind == FOLD_sum && !is_recurrence(n) ? signs_of(s, n->in[0]) : 3;
    case OP_fold: return n->kind == FOLD_sum ? signs_of(s, n->in[0]) : 3;
    default: return 3;
    }
}

/* How n at this index changes with the row's place. */
static int moves(State *s, const Node *n, Dim *const *at)
{
    const uint32_t by = differs(s, n, at);
    if (s->fails) return 3;
    if (!by_i(s, by)) return 0;
    switch ((int)n->op) {
    case OP_view: return n->view.npred ? 3 : moves(s, n->in[0], index_of(s, n->view.nidx, n->view.idx, n->rank, at));
    case OP_cast: return dtype_is_float(n->dt) ? moves(s, n->in[0], at) : 3;
    case OP_neg: return flipped(moves(s, n->in[0], at));
    case OP_add: return moves(s, n->in[0], at) | moves(s, n->in[1], at);
    case OP_sub: return moves(s, n->in[0], at) | flipped(moves(s, n->in[1], at));
    case OP_mul: case OP_div:
        if (!by_i(s, differs(s, n->in[1], at))) return product_sign(moves(s, n->in[0], at), signs_of(s, n->in[1]));
        return n->op == OP_mul && !by_i(s, differs(s, n->in[0], at)) ? product_sign(moves(s, n->in[1], at), signs_of(s, n->in[0])) : 3;
    case OP_iota: return at[n->axis] == s->map[s->i] ? MAY_RISE : 3;
    case OP_scan: {
        for (int k = 0; k < n->rank; k++) if ((k == n->axis) != (at[k] == s->map[s->i]) || (k != n->axis && dim_uses(at[k], s->i))) return 3;
        return n->kind == FOLD_sum && !is_recurrence(n) ? signs_of(s, n->in[0]) : 3;
    }
    default: return 3;
    }
}

static bool rows_never_rise(State *s)
{
    for (int k = 0; k < s->nfactor; k++) {
        const Factor *f = &s->factor[k];
        if (!f->exponent || !by_i(s, f->by)) continue;
        int m = moves(s, f->x.n, f->x.at);
        for (int c = 0; c < f->ncoef; c++) m = product_sign(m, signs_of(s, f->coef[c].n));
        if ((f->sign < 0 ? flipped(m) : m) & MAY_RISE) return false;
    }
    return !s->fails;
}

/* What is made of the factors has steps of its own: these may be used up. */
static bool never_rises(State *s)
{
    s->steps = WALK_STEPS;
    const bool never = rows_never_rise(s);
    s->steps = WALK_STEPS;
    return never;
}

/* ---- what is made ------------------------------------------------------------------------------------------------------------------------------- */
/* A node at an index over the body's variables, at the places of the state; along axes that it does not differ by it has one place, as long as there are steps to find them. */
static Node *at_state(State *s, Node *n, Dim *const *at)
{
    Graph *g = s->g;
    const uint32_t by = differs(s, n, at);
    uint32_t own = 0;
    for (int k = 0; k < n->rank; k++) own |= vars_of(at[k]);
    if (n->op == OP_view && !n->view.npred) return at_state(s, n->in[0], index_of(s, n->view.nidx, n->view.idx, n->rank, at));
    if (by_element(n) && (own & ~by)) {
        Node *in[3] = { 0 };
        for (int k = 0; k < n->nin; k++) in[k] = at_state(s, n->in[k], at);
        return n->op == OP_cast ? g_cast(g, in[0], n->dt) : n->op == OP_bitcast ? g_bitcast(g, in[0], n->dt) : g_op(g, n->op, n->nin, in);
    }
    Dim *dims[MAX_RANK], *to[MAX_RANK + 1], *idx[MAX_RANK] = { 0 };
    for (int p = 0; p < s->rank; p++) dims[p] = dim_const(g, 1);
    for (int v = 0; v <= INNER_VAR; v++) {
        to[v] = s->map[v] ? dim_const(g, 0) : NULL;
        if (!s->map[v] || !(by >> v & 1)) continue;
        dims[s->pos[v]] = s->dims[s->pos[v]];
        to[v] = dim_idx(g, s->pos[v], s->dims[s->pos[v]]);
    }
    for (int k = 0; k < n->rank; k++) idx[k] = dim_subst(g, at[k], INNER_VAR + 1, to);
    return g_view(g, n, s->rank, dims, &(View){ .nidx = n->rank, .idx = idx });
}

static Node *product_of(Graph *g, Node *a, Node *b) { return !a ? b : !b ? a : g2(g, OP_mul, a, b); }      /* NULL: 1 */

/* The sum of the exponents of one side; NULL: there is none. */
static Node *exponent_made(State *s, bool rows)
{
    Graph *g = s->g;
    Node *sum = NULL;
    for (int k = 0; k < s->nfactor; k++) {
        const Factor *f = &s->factor[k];
        if (!f->exponent || by_i(s, f->by) != rows) continue;
        Node *x = at_state(s, f->x.n, f->x.at);
        if (!dtype_is_float(x->dt)) x = g_cast(g, x, DT_f64);        /* places: exact, however far */
        for (int c = 0; c < f->ncoef; c++) {
            Node *by = at_state(s, f->coef[c].n, f->coef[c].at);
            if (!dtype_is_float(by->dt)) by = g_cast(g, by, DT_f64);
            x = g2(g, OP_mul, dtype_size(x->dt) < dtype_size(by->dt) ? g_cast(g, x, by->dt) : x, dtype_size(by->dt) < dtype_size(x->dt) ? g_cast(g, by, x->dt) : by);
        }
        if (f->sign < 0) x = g1(g, OP_neg, x);
        if (sum && x->dt != sum->dt) { x = g_cast(g, x, DT_f64); sum = g_cast(g, sum, DT_f64); }
        sum = sum ? g2(g, OP_add, sum, x) : x;
    }
    return sum;
}

/* The product of the factors that do not differ along j (rows) or do, and of these those that differ along axis `var` (has) or do not. */
static Node *product_made(State *s, bool rows, int var, bool has)
{
    Node *p = NULL;
    for (int wide = 0; wide < 2; wide++)             /* first those of few numbers */
        for (int k = 0; k < s->nfactor; k++) {
            const Factor *f = &s->factor[k];
            if (f->exponent || by_j(s, f->by) == rows || (f->by >> var & 1) != has || (__builtin_popcount(f->by) > 2) != wide) continue;
            Node *x = at_state(s, f->x.n, f->x.at);
            p = f->over ? g2(s->g, OP_div, p ? p : g_scalar(s->g, x->dt, 1), x) : product_of(s->g, p, x);
        }
    return p;
}

/* x one place earlier; at the first, itself. */
static Node *earlier(State *s, Node *x)
{
    Dim *idx[MAX_RANK] = { 0 };
    const int time = s->pos[s->i];
    for (int p = 0; p < x->rank; p++) idx[p] = dim_idx(s->g, p, x->dims[p]);
    idx[time] = dim_max(s->g, dim_addc(s->g, idx[time], -1), dim_const(s->g, 0));
    return g_view(s->g, x, x->rank, x->dims, &(View){ .nidx = x->rank, .idx = idx });
}

static Node *power(Graph *g, Node *x) { return g1(g, OP_exp, g_cast(g, x, DT_f32)); }

/* The factors that come from exponents: of what the state was, of what comes to it, of what is read of it; NULL: 1. */
typedef struct Powers { Node *fade, *in, *out; } Powers;
static Powers powers_made(State *s)
{
    Graph *g = s->g;
    Node *r = exponent_made(s, true), *l = exponent_made(s, false);
    s->form = "running form: nothing fades";
    if (!r || !l) return (Powers){ NULL, l ? power(g, l) : NULL, r ? power(g, r) : NULL };
    if (r->dt != l->dt) { r = g_cast(g, r, DT_f64); l = g_cast(g, l, DT_f64); }
    if (never_rises(s)) {
        s->form = "running form: it fades by a factor that signs prove to be 1 at most";
        Node *step = g2(g, OP_sub, r, g2(g, OP_max, earlier(s, r), g_scalar(g, r->dt, r->dt == DT_f64 ? -DBL_MAX : -FLT_MAX)));     /* what has come to -inf stays there, and is 0 */
        if (l->op != OP_neg || l->in[0] != r) return (Powers){ power(g, step), power(g, g2(g, OP_add, r, l)), NULL };
        return (Powers){ power(g, g2(g, OP_add, step, g2(g, OP_add, r, l))), NULL, NULL };       /* r + l is 0, or no number */
    }
    s->form = "pivot form: its largest exponent so far is taken away";
    Node *m = g2(g, OP_max, g_scan(g, FOLD_max, l, s->pos[s->i], false, false), g_scalar(g, l->dt, LOWEST));
    return (Powers){ power(g, g2(g, OP_sub, earlier(s, m), m)), power(g, g2(g, OP_sub, l, m)), power(g, g2(g, OP_add, r, m)) };
}

static Node *state_made(State *s)
{
    Graph *g = s->g;
    const int time = s->pos[s->i], var = s->inner ? INNER_VAR : s->lane;
    s->steps = WALK_STEPS;
    Powers p = powers_made(s);
    Node *few = product_made(s, false, s->lane, false), *many = product_made(s, false, s->lane, true), *x;
    if (p.in) few = product_of(g, p.in, few);
    if (!few && !many) few = g_scalar(g, DT_f32, 1);
    x = g_expand(g, !many ? few : few ? g2(g, OP_mul, few, many) : many, s->rank, s->dims);
    Node *y = p.fade ? g_recurrence(g, x, p.fade, time, false) : g_scan(g, FOLD_sum, x, time, false, false);
    Node *q = product_made(s, true, var, true), *outside = product_made(s, true, var, false);
    if (p.out) {
        if (s->inner && !dim_is(p.out->dims[s->pos[INNER_VAR]], 1)) q = product_of(g, p.out, q);
        else outside = product_of(g, p.out, outside);
    }
    if (q) y = g2(g, OP_mul, y, q);
    if (s->inner) y = g_fold(g, FOLD_sum, y, axis_bit(s->pos[INNER_VAR]), true);
    if (outside) y = g2(g, OP_mul, y, outside);
    if (s->sign < 0) y = g1(g, OP_neg, y);
    const Node *f = s->fold;
    Dim *idx[MAX_RANK];
    for (int k = 0; k < s->rank; k++) idx[k] = dim_const(g, 0);
    for (int k = 0, o = 0; k < f->in[0]->rank; k++) if (k != s->j) { idx[s->pos[k]] = dim_idx(g, o, f->dims[o]); o++; }
    return g_view(g, y, f->rank, f->dims, &(View){ .nidx = s->rank, .idx = idx });
}

/* ---- whether ------------------------------------------------------------------------------------------------------------------------------------ */
static const char *why_product(const State *s)
{
    const double n = (double)dim_hint(s->g, s->map[s->i]->a), d = s->inner ? (double)dim_hint(s->g, s->inner_size) : 1, e = s->lane == NONE ? 1 : (double)dim_hint(s->g, s->map[s->lane]->a);
    bool fades = false;
    for (int k = 0; k < s->nfactor; k++) fades |= s->factor[k].exponent;
    if (d * e > STATE_MOST_NUMBERS) return "the state is larger than a cache";
    if ((fades ? 3 : 2) * d * e > n * (s->shared ? e / 2 : d + e)) return "few places: their products cost less than a state";
    return NULL;
}

/* The axis i of the body with which j makes a triangle, and that of the lanes. */
static bool axes_set(State *s, int i)
{
    const Node *body = s->fold->in[0];
    s->i = i;
    s->lane = -1;                       /* the last axis, for now */
    for (int k = 0; k < body->rank; k++) if (k != s->j && k != i && !dim_is(body->dims[k], 1)) s->lane = k;
    if (s->lane < 0) s->lane = NONE;
    for (int k = 0; k <= INNER_VAR; k++) s->map[k] = k < body->rank ? dim_idx(s->g, k, body->dims[k]) : NULL;
    return body->dims[i] == body->dims[s->j];
}

static void state_space(State *s)
{
    const Node *body = s->fold->in[0];
    s->rank = 0;
    for (int k = 0; k < body->rank; k++) if (k != s->i && k != s->j && k != s->lane) { s->pos[k] = s->rank; s->dims[s->rank++] = body->dims[k]; }
    s->pos[s->i] = s->pos[s->j] = s->rank;
    s->dims[s->rank++] = body->dims[s->i];
    if (s->inner) {
        s->map[INNER_VAR] = dim_idx(s->g, INNER_VAR, s->inner_size);
        s->pos[INNER_VAR] = s->rank;
        s->dims[s->rank++] = s->inner_size;
    }
    if (s->lane == NONE) return;
    s->pos[s->lane] = s->rank;
    s->dims[s->rank++] = body->dims[s->lane];
}

typedef struct Making { Arena *arena; const int *uses; int nuses; Receipts *how; Refusals *why; int limit; Tables tables; } Making;
static Node *state_better(Graph *g, Node *old, Node *now, void *arg)
{
    Making *m = arg;
    if (now->op != OP_fold || now->kind != FOLD_sum || now->whole || now->dt != DT_f32 || (now->axes & (now->axes - 1)) || now->rank < 2) return NULL;
    Node *body = now->in[0];
    if ((body->op != OP_mul && body->op != OP_where) || body->rank >= MAX_RANK) return NULL;
    State base = { .g = g, .arena = m->arena, .uses = m->uses, .nuses = m->nuses, .tables = &m->tables, .fold = now };
    while (!(now->axes >> base.j & 1)) base.j++;
    if (dim_is(body->dims[base.j], 1)) return NULL;
    for (int i = 0; i < body->rank; i++) {
        State s = base;
        s.steps = WALK_STEPS;
        s.sign = 1;
        if (i == s.j || !axes_set(&s, i)) continue;
        Dim **at = NEWS(m->arena, Dim *, body->rank + 1);
        for (int k = 0; k < body->rank; k++) at[k] = s.map[k];
        product_walk(&s, body, at, false);
        if (s.fails || !s.masked || (s.lane == NONE && !s.inner)) continue;
        for (int k = 0; s.inner && s.lane != NONE && k < s.nfactor; k++) {       /* an axis of what is read of it as well: states apart from one another, each a row */
            if (by_i(&s, s.factor[k].by) && (s.factor[k].by >> s.lane & 1)) s.lane = NONE;
        }
        const char *no = why_product(&s);
        if (!no && m->limit >= 0 && g->nrewrite >= m->limit) no = "the limit on decisions is reached";
        if (no) { vec_push(m->arena, m->why, ((Refusal){ old, old, "states", no })); return NULL; }
        g->nrewrite++;
        state_space(&s);
        Node *y = state_made(&s);
        Dim *size[2] = { s.inner ? s.inner_size : dim_const(g, 1), s.lane == NONE ? dim_const(g, 1) : body->dims[s.lane] };
        vec_push(m->arena, m->how, ((Receipt){ old, arena_fmt(m->arena, "sum over earlier places, rank 1 in both places: a state of %s numbers for each; %s", dims_str(g, 2, size), s.form) }));
        return y;
    }
    return NULL;
}

int states_choose(Ctx *cx, Arena *a, Graph *g, Receipts *how, Refusals *why)
{
    bool any = false;
    for (int id = 0; id < g->node.n && !any; id++) any = g->node.at[id]->op == OP_iota || g->node.at[id]->op == OP_const;
    Making m = { a, graph_uses(a, g), g->node.n, how, why, cx->opt.limit, { 0 } };
    int n = any ? graph_remake_all(cx, a, g, state_better, &m) : 0;
    if (n) log_line(cx, 2, "states: %d sums over earlier places are recurrences", n);
    return n;
}
