/* Contractions of dequantised values, on their integers.
 *
 * DequantizeLinear gives x = (q - z) * s. A sum of products of two such values is the product of their scales times a sum of integers:
 *
 *     sum (qx - zx) sx * qw sw  =  sx sw (sum qx qw  -  zx sum qw)
 *
 * The first sum is exact in int32, reads bytes, and has an instruction of its own; the second depends on the weights alone and is computed once. Where a
 * window reaches into the padding, qx is zx there, so that both sums count it and it vanishes, as the 0 of the padding did. What changes is rounding: the
 * products are no longer rounded each, the sum of integers and its product with the scales are. Weights with a zero point, scales of more than one
 * element, and sums too long for int32 stay as they are. */
#include "fuse/fuse.h"

enum { LONGEST = 65000, EXACT = 514 };   /* terms of 255 * 128 that int32, and float32, hold exactly */

typedef struct Quantised { Node *q; const Node *scale; int64_t zero; const View *view; } Quantised;

bool scalar_const(const Node *n, Scalar *v, const Node **at)
{
    if (n->op == OP_view && !n->view.npred) n = n->in[0];
    if (n->op != OP_const || n->rank != 0 || !n->tensor->data) return false;
    *v = scalar_load(n->dt, n->tensor->data);
    *at = n;
    return true;
}

/* Is n a view of (q - z) * s, with q of one byte? */
static bool quantised(Node *n, Quantised *out)
{
    Scalar v;
    const Node *at;
    *out = (Quantised){ 0 };
    if (n->op != OP_view) return false;
    out->view = &n->view;
    if (n->view.npred && (n->view.fill.f != 0)) return false;
    n = n->in[0];
    if (n->op != OP_mul || n->dt != DT_f32) return false;
    int side = scalar_const(n->in[1], &v, &out->scale) ? 0 : scalar_const(n->in[0], &v, &out->scale) ? 1 : -1;
    if (side < 0 || !(v.f > 0 && v.f < 1e30)) return false;
    n = n->in[side];
    if (n->op != OP_cast || n->dt != DT_f32) return false;
    n = n->in[0];
    if (n->op == OP_sub && n->dt == DT_i32) {
        if (!scalar_const(n->in[1], &v, &at)) return false;
        out->zero = v.i;
        n = n->in[0];
    }
    if (n->op == OP_cast && n->dt == DT_i32) n = n->in[0];
    out->q = n;
    return (n->dt == DT_u8 || n->dt == DT_i8) && out->zero >= -128 && out->zero <= 255;
}

Node *operand_sum(Graph *g, const Node *body, const Node *f, uint32_t axes, Node *q, const View *view)
{
    uint32_t reduced = 0, seen = 0;
    Dim *kept[MAX_RANK], *back[MAX_RANK] = { 0 };
    int n = 0, m = 0;
    for (int k = 0; k < body->rank; k++) if (!(axes >> k & 1)) { back[k] = dim_idx(g, m, f->dims[m]); m++; }
    for (int j = 0; j < q->rank; j++) {
        Dim *e = view->idx[j];
        bool r = false, s = false;
        for (int k = 0; k < body->rank; k++) if (dim_uses(e, k)) { if (axes >> k & 1) r = true; else s = true; }
        if (!r) { kept[n++] = dim_subst(g, e, body->rank, back); continue; }
        if (s || e->kind != DIM_idx || e->a != q->dims[j] || (seen >> e->var & 1)) return NULL;
        seen |= 1u << e->var;
        reduced |= 1u << j;
    }
    for (int k = 0; k < body->rank; k++) if ((axes >> k & 1) && !dim_is(body->dims[k], 1) && !(seen >> k & 1)) return NULL;
    return g_view(g, g_fold(g, FOLD_sum, g_cast(g, q, DT_i32), reduced, false), f->rank, f->dims, &(View){ .nidx = n, .idx = kept });
}

/* The axis of q that is axis k of the body, and nothing else; -1: there is none. */
static int axis_alone(const Quantised *q, int k)
{
    int at = -1;
    for (int j = 0; j < q->view->nidx; j++) {
        const Dim *e = q->view->idx[j];
        if (!dim_uses(e, k)) continue;
        if (at >= 0 || e->kind != DIM_idx) return -1;
        at = j;
    }
    for (int p = 0; p < q->view->npred; p++) if (dim_uses(q->view->pred[p].e, k)) return -1;
    return at;
}

/* q with `more` elements of the value fill behind those of an axis, which becomes the last one and is read along axis k; and its view. */
static Node *lengthen(Graph *g, Node *q, View *v, int axis, int k, int64_t more)
{
    int perm[MAX_RANK], n = 0;
    Dim **idx = NEWS(g->arena, Dim *, v->nidx + 1), *dims[MAX_RANK];
    for (int j = 0; j < q->rank; j++) if (j != axis) perm[n++] = j;
    perm[n] = axis;
    for (int j = 0; j <= n; j++) { idx[j] = v->idx[perm[j]]; dims[j] = q->dims[perm[j]]; }
    idx[n] = dim_idx(g, k, dim_addc(g, dims[n], more));
    dims[n] = dim_const(g, more);
    v->idx = idx;
    Node *piece[2] = { g_transpose(g, q, perm), g_expand(g, g_int(g, q->dt, 0), n + 1, dims) };
    return g_join(g, 2, piece, n);
}

/* Few channels, of an image: more of them, so that their number is a multiple of 4, with weights of 0. Then products go four at a time (kir/word.c), which is
 * worth a copy of the image where each element serves many products. Gives the axis of the body, or -1. */
enum { MANY_OUTPUTS = 16, FEW_TERMS = 3 };
static int few_channels(const Graph *g, const Node *body, uint32_t axes, const Quantised *v, const Quantised *w)
{
    double outputs = 1;
    for (int j = 0; j < w->q->rank; j++) outputs *= (double)dim_hint(g, w->q->dims[j]);
    for (int k = 0; k < body->rank; k++) {
        int64_t count = (axes >> k & 1) && dim_is_const(body->dims[k]) ? body->dims[k]->c : 0, more = (4 - count % 4) % 4;
        int x = axis_alone(v, k), y = axis_alone(w, k);
        if (count < FEW_TERMS || !more || more * 3 > count || x < 0 || y < 0 || v->q->dims[x] != body->dims[k] || w->q->dims[y] != body->dims[k]) continue;
        outputs /= (double)count;
        for (int j = 0; j < body->rank; j++) if ((axes >> j & 1) && j != k) outputs /= (double)dim_hint(g, body->dims[j]);
        return outputs >= MANY_OUTPUTS ? k : -1;
    }
    return -1;
}

static Node *on_integers(Graph *g, const Node *f, bool quads)
{
    Node *x = f->in[0];
    if (f->kind != FOLD_sum || f->dt != DT_f32) return NULL;
    const View *outer = NULL;            /* a body seen through a view: axes of size 1 taken away */
    if (x->op == OP_view && !x->view.npred) { outer = &x->view; x = x->in[0]; }
    if (x->op != OP_mul) return NULL;
    Quantised q[2];
    if (!quantised(x->in[0], &q[0]) || !quantised(x->in[1], &q[1])) return NULL;
    int side = q[1].q->op == OP_const ? 1 : q[0].q->op == OP_const ? 0 : -1;
    if (side < 0) return NULL;
    Quantised *w = &q[side], *v = &q[1 - side];
    if (w->zero != 0 || w->view->npred || w->q->dt != DT_i8 || (v->q->dt != DT_u8 && !quads)) return NULL;
    if (v->q->dt == DT_i8) { v->q = byte_moved(g, v->q, 128, DT_u8); v->zero += 128; }       /* instructions want unsigned times signed bytes */
    int64_t terms = 1;
    bool fours = false;
    const Node *body = f->in[0];
    for (int k = 0; k < body->rank; k++) {
        if (!(f->axes >> k & 1)) continue;
        if (!dim_is_const(body->dims[k]) || body->dims[k]->c > LONGEST) return NULL;
        terms *= body->dims[k]->c;
        fours |= body->dims[k]->c % 4 == 0;
        if (terms > LONGEST) return NULL;
    }
    View vx = *v->view, vw = *w->view;
    vx.fill = (Scalar){ .i = v->zero };
    if (!vx.npred) vx.fill = (Scalar){ 0 };
    Node *qx = v->q, *qw = w->q;
    Dim *dims[MAX_RANK];
    for (int k = 0; k < x->rank; k++) dims[k] = x->dims[k];
    int few = fours || outer || !quads ? -1 : few_channels(g, body, f->axes, v, w);
    if (few >= 0) {
        int64_t more = 4 - dims[few]->c % 4;
        qx = lengthen(g, qx, &vx, axis_alone(v, few), few, more);
        qw = lengthen(g, qw, &vw, axis_alone(w, few), few, more);
        dims[few] = dim_addc(g, dims[few], more);
        fours = true;
    }
    Node *rx = g_view(g, qx, x->rank, dims, &vx), *rw = g_view(g, qw, x->rank, dims, &vw);
    if (outer) { rx = g_view(g, rx, body->rank, body->dims, outer); rw = g_view(g, rw, body->rank, body->dims, outer); }
    if (rx->op != OP_view || rw->op != OP_view) return NULL;
    DType in = fours || quads || terms > EXACT ? DT_i32 : DT_f32;
    Node *sum = g_fold(g, FOLD_sum, g2(g, OP_mul, g_cast(g, rx, in), g_cast(g, rw, in)), f->axes, false);
    if (sum->rank != f->rank) return NULL;
    if (v->zero) {
        Node *w_sum = few < 0 ? operand_sum(g, body, f, f->axes, rw->in[0], &rw->view) : operand_sum(g, body, f, f->axes, w->q, w->view);
        if (!w_sum) return NULL;
        Node *of = w_sum->op == OP_view && !w_sum->view.npred ? w_sum->in[0] : w_sum, *less = g2(g, OP_mul, of, g_int(g, DT_i32, -v->zero));      /* as small as it is: it is a constant */
        if (of != w_sum) less = g_view(g, less, w_sum->rank, w_sum->dims, &w_sum->view);
        sum = g2(g, OP_add, sum, g_cast(g, less, in));
    }
    Node *scale = g2(g, OP_mul, (Node *)v->scale, (Node *)w->scale);
    return g2(g, OP_mul, g_cast(g, sum, DT_f32), scale);
}

static Node *integers_better(Graph *g, Node *old, Node *now, void *arg)
{
    return old->op == OP_fold && now->op == OP_fold ? on_integers(g, now, *(bool *)arg) : NULL;
}

void integers_choose(Ctx *cx, Arena *a, Graph *g, bool quads)
{
    bool any = false;
    for (int id = 0; id < g->node.n && !any; id++) any = g->node.at[id]->op == OP_cast && g->node.at[id]->dt == DT_f32;
    int changed = any ? graph_remake_all(cx, a, g, integers_better, &quads) : 0;
    if (changed) log_line(cx, 2, "integers: %d contractions of quantised values", changed);
}
