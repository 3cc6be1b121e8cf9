/* Products of matrices: MatMul, Gemm, Einsum; and the determinant, a call. */
#include <math.h>
#include <string.h>
#include "onnx/onnx.h"

static Node *product_wide(OpCall *o, int i) { return g_cast(o->g, o->in[i], dtype_wide(o->in[i]->dt)); }

void op_matmul(OpCall *o)
{
    o->out[0] = g_matmul(o->g, o->in[0], o->in[1]);
}

static Node *times(OpCall *o, Node *x, double f, const char *name)
{
    if (f == 1) return x;
    if (dtype_is_float(x->dt)) return g2(o->g, OP_mul, x, g_scalar(o->g, x->dt, f));
    if (f != floor(f)) op_unsupported(o, "%s is %g for integer matrices", name, f);
    return g2(o->g, OP_mul, x, g_int(o->g, x->dt, (int64_t)f));
}

/* alpha * A' * B' + beta * C, rounded once. C broadcasts to the product's shape, never the other way. */
void op_gemm(OpCall *o)
{
    Graph *g = o->g;
    double alpha = op_float(o, "alpha", 1), beta = op_float(o, "beta", 1);
    Node *m[2];
    for (int i = 0; i < 2; i++) {
        Node *x = o->in[i];
        if (x->rank != 2) fail(o->cx, E_INVALID, "input %d has rank %d, wanted 2", i, x->rank);
        m[i] = op_int(o, i ? "transB" : "transA", 0) ? g_transpose(g, x, (int[]){ 1, 0 }) : x;
    }
    DType dt = m[0]->dt;
    bool plain = alpha == 1 && (!o->in[2] || beta == 0);
    for (int i = 0; i < 2 && !plain; i++) m[i] = g_cast(g, m[i], dtype_wide(dt));
    Node *y = times(o, g_matmul(g, m[0], m[1]), alpha, "alpha");
    if (o->in[2] && beta != 0) {
        Node *c = times(o, product_wide(o, 2), beta, "beta"), *sum = g2(g, OP_add, y, c);
        bool fits = sum->rank == 2;
        for (int k = 0; k < 2 && fits; k++) fits = dim_decide_eq(g, sum->dims[k], y->dims[k], "Gemm's C broadcasts to the product");
        if (!fits) fail(o->cx, E_INVALID, "C is %s, which does not broadcast to %s", dims_str(g, c->rank, c->dims), dims_str(g, 2, y->dims));
        y = sum;
    }
    o->out[0] = g_cast(g, y, dt);
}

/* ---- Einsum ------------------------------------------------------------------------------------------------------------------------ */

/* Labels: letters by their own code; the axes of an ellipsis by ELLIPSIS + their distance from the right, so that they broadcast. */
enum { ELLIPSIS = 128, LABELS = ELLIPSIS + MAX_RANK };

typedef struct Term { int n; int label[MAX_RANK]; Node *x; } Term;

static void einsum_fail(OpCall *o, const char *what)
{
    fail(o->cx, E_INVALID, "equation '%s': %s", op_string(o, "equation", ""), what);
}

/* Labels of one term of the equation; rank -1: of the result, whose ellipsis has `dots` axes. Returns where the term ends. */
static const char *einsum_term(OpCall *o, const char *p, Term *t, int rank, int *dots)
{
    int letters = 0;
    bool open = false;
    for (const char *q = p; *q && *q != ',' && *q != '-'; q++)
        if ((*q >= 'a' && *q <= 'z') || (*q >= 'A' && *q <= 'Z')) letters++;
    t->n = 0;
    for (; *p && *p != ',' && *p != '-'; p++) {
        if (*p == ' ') continue;
        if (p[0] == '.' && p[1] == '.' && p[2] == '.' && !open) {
            int n = rank < 0 ? *dots : rank - letters;
            if (n < 0 || t->n + n > MAX_RANK) einsum_fail(o, "an operand has fewer axes than letters");
            for (int k = 0; k < n; k++) t->label[t->n++] = ELLIPSIS + n - 1 - k;
            if (n > *dots) *dots = n;
            open = true;
            p += 2;
        } else if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) {
            if (t->n == MAX_RANK) einsum_fail(o, "too many letters in a term");
            t->label[t->n++] = (unsigned char)*p;
        } else {
            einsum_fail(o, "wanted letters, commas, '...' and '->'");
        }
    }
    if (rank >= 0 && t->n != rank) einsum_fail(o, "the letters of a term are not as many as the operand's axes");
    return p;
}

/* Letters that occur twice: the diagonal, one axis of both. */
static void einsum_diagonal(OpCall *o, Term *t)
{
    Graph *g = o->g;
    for (int a = 0; a < t->n; a++)
        for (int b = a + 1; b < t->n; b++) {
            if (t->label[a] != t->label[b]) continue;
            Node *x = t->x;
            if (!dim_decide_eq(g, x->dims[a], x->dims[b], "Einsum's repeated letter")) einsum_fail(o, "a letter stands for two sizes in one term");
            Dim *idx[MAX_RANK], *dims[MAX_RANK];
            int rank = 0;
            for (int k = 0; k < x->rank; k++)
                if (k != b) dims[rank++] = x->dims[k];
            for (int k = 0, j = 0; k < x->rank; k++) {
                int var = k == b ? a : j++;
                idx[k] = dim_idx(g, var, dims[var]);
            }
            t->x = g_view(g, x, rank, dims, &(View){ .nidx = x->rank, .idx = idx });
            for (int k = b; k + 1 < t->n; k++) t->label[k] = t->label[k + 1];
            t->n--;
            b--;
        }
}

/* The term's axes in the order of `order`; absent ones of size 1. */
static Node *einsum_align(OpCall *o, const Term *t, const int *order, int n)
{
    int perm[MAX_RANK] = { 0 }, m = 0;
    for (int k = 0; k < n; k++)
        for (int j = 0; j < t->n; j++)
            if (t->label[j] == order[k]) perm[m++] = j;
    ASSERT(m == t->n);
    Node *x = g_transpose(o->g, t->x, perm);
    for (int k = 0; k < n; k++) {
        bool there = false;
        for (int j = 0; j < t->n; j++) there = there || t->label[j] == order[k];
        if (!there) x = g_unsqueeze(o->g, x, k);
    }
    return x;
}

static bool einsum_has(const Term *t, int label)
{
    for (int k = 0; k < t->n; k++)
        if (t->label[k] == label) return true;
    return false;
}

/* Sums away the labels that neither the result nor a later term has. */
static void einsum_sum(OpCall *o, Term *t, const Term *later, int nlater, const Term *result)
{
    uint32_t axes = 0;
    int n = 0;
    for (int k = 0; k < t->n; k++) {
        bool keep = einsum_has(result, t->label[k]);
        for (int j = 0; j < nlater && !keep; j++) keep = einsum_has(&later[j], t->label[k]);
        if (keep) t->label[n++] = t->label[k];
        else axes |= axis_bit(k);
    }
    t->n = n;
    t->x = g_fold(o->g, FOLD_sum, t->x, axes, false);
}

void op_einsum(OpCall *o)
{
    Graph *g = o->g;
    const char *p = op_string(o, "equation", "");
    Term *term = NEWS(o->a, Term, o->nin), result = { 0 };
    int dots = 0;
    for (int i = 0; i < o->nin; i++) {
        if (!o->in[i]) einsum_fail(o, "an operand is absent");
        term[i].x = product_wide(o, i);
        p = einsum_term(o, p, &term[i], term[i].x->rank, &dots);
        if (i + 1 < o->nin && *p++ != ',') einsum_fail(o, "fewer terms than operands");
    }
    if (*p == ',') einsum_fail(o, "more terms than operands");
    if (*p == '-') {
        if (p[1] != '>') einsum_fail(o, "wanted '->'");
        p = einsum_term(o, p + 2, &result, -1, &dots);
        if (*p) einsum_fail(o, "something after the result's letters");
    } else {                            /* the ellipsis, then the letters that occur once, sorted */
        for (int k = 0; k < dots; k++) result.label[result.n++] = ELLIPSIS + dots - 1 - k;
        for (int label = 'A'; label <= 'z'; label++) {
            int count = 0;
            for (int i = 0; i < o->nin; i++)
                for (int k = 0; k < term[i].n; k++) count += term[i].label[k] == label;
            if (count != 1) continue;
            if (result.n == MAX_RANK) einsum_fail(o, "too many axes in the result");
            result.label[result.n++] = label;
        }
    }
    for (int k = 0; k < result.n; k++) {
        bool known = false;
        for (int i = 0; i < o->nin; i++) known = known || einsum_has(&term[i], result.label[k]);
        for (int j = 0; j < k; j++) known = known && result.label[j] != result.label[k];
        if (!known) einsum_fail(o, "the result has a letter twice or one that no operand has");
    }
    Term acc = { 0 };
    for (int i = 0; i < o->nin; i++) {
        einsum_diagonal(o, &term[i]);
        if (i == 0) {
            acc = term[0];
        } else {
            Term both = { 0 };
            for (int k = 0; k < result.n; k++)          /* labels of the result in its order, the others after them */
                if (einsum_has(&acc, result.label[k]) || einsum_has(&term[i], result.label[k])) both.label[both.n++] = result.label[k];
            for (int side = 0; side < 2; side++) {
                const Term *t = side ? &term[i] : &acc;
                for (int k = 0; k < t->n; k++) {
                    if (einsum_has(&both, t->label[k])) continue;
                    if (both.n == MAX_RANK) op_unsupported(o, "equation '%s' has more than %d letters at once", op_string(o, "equation", ""), MAX_RANK);
                    both.label[both.n++] = t->label[k];
                }
            }
            both.x = g2(g, OP_mul, einsum_align(o, &acc, both.label, both.n), einsum_align(o, &term[i], both.label, both.n));
            acc = both;
        }
        einsum_sum(o, &acc, &term[i + 1], o->nin - i - 1, &result);
    }
    o->out[0] = g_cast(g, einsum_align(o, &acc, result.label, result.n), o->in[0]->dt);
}

/* ---- determinant ---------------------------------------------------------------------------------------------------------------------- */

/* Elimination with the greatest pivot of each column, in float64. */
static double determinant(double *m, int64_t n)
{
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(m[i * n + k]) > fabs(m[best * n + k])) best = i;
        double pivot = m[best * n + k];
        if (pivot == 0) return 0;
        if (best != k) {
            det = -det;
            for (int64_t j = k; j < n; j++) {
                double t = m[k * n + j];
                m[k * n + j] = m[best * n + j];
                m[best * n + j] = t;
            }
        }
        det *= pivot;
        for (int64_t i = k + 1; i < n; i++) {
            double f = m[i * n + k] / pivot;
            for (int64_t j = k; j < n; j++) m[i * n + j] -= f * m[k * n + j];
        }
    }
    return det;
}

static void det_eval(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out)
{
    (void)cx, (void)call;
    int64_t n = in->dims[in->rank - 1], count = tensor_count(out);
    double *m = NEWS(a, double, n * n + 1);
    for (int64_t b = 0; b < count; b++) {
        for (int64_t k = 0; k < n * n; k++) m[k] = scalar_load(in->dt, tensor_at(in, b * n * n + k)).f;
        scalar_store(out->dt, tensor_at(out, b), (Scalar){ .f = determinant(m, n) });
    }
}

static const CallDef det_call = { .name = "det", .dynamic = false, .eval = det_eval };

void op_det(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    if (x->rank < 2 || !dim_decide_eq(g, x->dims[x->rank - 1], x->dims[x->rank - 2], "square matrices"))
        fail(o->cx, E_INVALID, "the input is %s, wanted square matrices", dims_str(g, x->rank, x->dims));
    DType *dt = NEW(o->a, DType);
    *dt = x->dt;
    Call *call = NEW(o->a, Call);
    *call = (Call){ .def = &det_call, .nin = 1, .nout = 1, .out_dt = dt };
    int rank = x->rank - 2;
    Dim *const *dims = x->dims;
    o->out[0] = g_call(g, call, &x, &rank, &dims)[0];
}
