/* Contractions of narrow numbers: what widens them goes inside.
 *
 * A product of bfloat16 matrices is written as a sum of products of float32, of operands that were cast before; one of bytes as a sum in int32. Computed
 * where it stands, the cast is a kernel of its own that stores the wide operand. Here it moves behind the view that spreads the operand over the space of
 * the contraction, so that the loops read the narrow numbers and instructions that multiply several of them at once apply (kir/word.c). The value of
 * every product stays the same.
 *
 * Zero points come out of the sum, modulo 2^32 as int32 has it:
 *
 *     sum (x - zx)(w - zw)  =  sum x w  -  zx sum w  -  zw sum x  +  K zx zw
 *
 * and signed x or unsigned w are moved by 128 first, since the instructions want unsigned times signed bytes.
 *
 * With leave (--allow bf16) the operands of float32 contractions are rounded to bfloat16; then the above applies to them too. */
#include "fuse/fuse.h"

typedef struct Narrowing { int dots; bool round; int count; } Narrowing;

/* An operand of a contraction: q, widened, less a zero point (or NULL), seen through a view (or NULL). */
typedef struct Narrow { Node *q, *zero; const View *view; } Narrow;

static bool is_byte(DType t) { return t == DT_u8 || t == DT_i8; }

/* A single element that is spread over some axes. */
static Node *one_for_all(Node *n)
{
    if (n->rank == 0) return n;
    return n->op == OP_view && !n->view.npred && n->in[0]->rank == 0 ? n->in[0] : NULL;
}

static bool narrow(Node *n, DType wide, Narrow *out)
{
    *out = (Narrow){ 0 };
    if (n->op == OP_view) {
        if (n->view.npred && (wide != DT_f32 || n->view.fill.f != 0)) return false;
        out->view = &n->view;
        n = n->in[0];
    }
    if (wide == DT_i32 && n->op == OP_sub) {
        if (!(out->zero = one_for_all(n->in[1]))) return false;
        n = n->in[0];
    }
    if (n->op != OP_cast || n->dt != wide) return false;
    out->q = n->in[0];
    return wide == DT_f32 ? out->q->dt == DT_bf16 : is_byte(out->q->dt);
}

/* An operand in the loops: widened there, from its element at each point. */
static Node *inside(Graph *g, const Node *body, const Narrow *x, DType wide)
{
    return g_cast(g, x->view ? g_view(g, x->q, body->rank, body->dims, x->view) : x->q, wide);
}

/* The one axis that a contraction reduces (axes of size 1 aside), of so many elements that words of `terms` fill it; or -1. */
static int axis_of_words(const Node *f, int terms)
{
    int axis = -1;
    const Node *x = f->in[0];
    for (int k = 0; k < x->rank; k++) {
        if (!(f->axes >> k & 1) || dim_is(x->dims[k], 1)) continue;
        if (axis >= 0) return -1;
        axis = k;
    }
    return axis >= 0 && dim_is_const(x->dims[axis]) && x->dims[axis]->c > 0 && x->dims[axis]->c % terms == 0 ? axis : -1;
}

/* Is it read from a constant, through casts and views? */
static bool from_const(const Node *n)
{
    while (n->op == OP_view || n->op == OP_cast) n = n->in[0];
    return n->op == OP_const;
}

/* The fold anew, of the product of a and b. */
static Node *summed(Graph *g, const Node *f, const View *outer, Node *a, Node *b)
{
    Node *product = g2(g, OP_mul, a, b);
    if (outer) product = g_view(g, product, f->in[0]->rank, f->in[0]->dims, outer);
    return g_fold(g, FOLD_sum, product, f->axes, false);
}

Node *byte_moved(Graph *g, Node *n, int by, DType t) { return g_cast(g, g2(g, OP_add, g_cast(g, n, DT_i32), g_int(g, DT_i32, by)), t); }

static Node *plus(Graph *g, Node *zero, int by)
{
    Node *move = g_int(g, DT_i32, by);
    return !zero ? by ? move : NULL : by ? g2(g, OP_add, zero, move) : zero;
}

static Node *bytes_better(Graph *g, const Node *f, const Node *body, const View *outer)
{
    Narrow n[2];
    Scalar zw = { 0 };
    const Node *at;
    if (!narrow(body->in[0], DT_i32, &n[0]) || !narrow(body->in[1], DT_i32, &n[1]) || axis_of_words(f, 4) < 0) return NULL;
    int side = from_const(n[1].q) ? 1 : 0;
    if (!from_const(n[side].q)) return NULL;
    Narrow x = n[1 - side], w = n[side];
    if (w.zero && !scalar_const(w.zero, &zw, &at)) return NULL;
    if (x.q->dt == DT_i8) { x.q = byte_moved(g, x.q, 128, DT_u8); x.zero = plus(g, x.zero, 128); }
    if (w.q->dt == DT_u8) { w.q = byte_moved(g, w.q, -128, DT_i8); zw.i -= 128; }
    Node *sum = summed(g, f, outer, inside(g, body, &x, DT_i32), inside(g, body, &w, DT_i32));
    if (sum->rank != f->rank || (!x.zero && !zw.i)) return sum;
    int64_t terms = f->in[0]->dims[axis_of_words(f, 4)]->c;
    View vx = x.view ? *x.view : (View){ 0 }, vw = w.view ? *w.view : (View){ 0 };
    if (!x.view || !w.view) return NULL;
    if (zw.i) {
        Node *rx = g_view(g, x.q, body->rank, body->dims, &vx);
        if (outer) rx = g_view(g, rx, f->in[0]->rank, f->in[0]->dims, outer);
        Node *of = rx->op == OP_view ? operand_sum(g, f->in[0], f, f->axes, rx->in[0], &rx->view) : NULL;
        if (!of) return NULL;
        sum = g2(g, OP_sub, sum, g2(g, OP_mul, of, g_int(g, DT_i32, zw.i)));
    }
    if (x.zero) {
        Node *rw = g_view(g, w.q, body->rank, body->dims, &vw);
        if (outer) rw = g_view(g, rw, f->in[0]->rank, f->in[0]->dims, outer);
        Node *of = rw->op == OP_view ? operand_sum(g, f->in[0], f, f->axes, rw->in[0], &rw->view) : NULL;
        if (!of) return NULL;
        if (zw.i) of = g2(g, OP_sub, of, g_int(g, DT_i32, scalar_round(DT_i32, (Scalar){ .i = zw.i * terms }, false).i));
        sum = g2(g, OP_sub, sum, g2(g, OP_mul, of, x.zero));
    }
    return sum;
}

static Node *pairs_better(Graph *g, const Node *f, const Node *body, const View *outer, bool round)
{
    Narrow n[2];
    if (axis_of_words(f, 2) < 0 || from_const(body->in[0]) == from_const(body->in[1])) return NULL;
    for (int i = 0; i < 2; i++) {
        if (narrow(body->in[i], DT_f32, &n[i])) continue;
        Node *x = body->in[i];
        if (!round) return NULL;
        n[i] = (Narrow){ 0 };
        if (x->op == OP_view) {
            if (x->view.npred && x->view.fill.f != 0) return NULL;
            n[i].view = &x->view;
            x = x->in[0];
        }
        n[i].q = g_cast(g, x, DT_bf16);
    }
    if (!n[0].view || !n[1].view) return NULL;
    return summed(g, f, outer, inside(g, body, &n[0], DT_f32), inside(g, body, &n[1], DT_f32));
}

static Node *narrow_better(Graph *g, Node *old, Node *now, void *arg)
{
    Narrowing *w = arg;
    if (old->op != OP_fold || now->op != OP_fold || now->kind != FOLD_sum || now->whole) return NULL;
    Node *x = now->in[0];
    const View *outer = NULL;            /* a body seen through a view: axes of size 1 taken away */
    if (x->op == OP_view && !x->view.npred) { outer = &x->view; x = x->in[0]; }
    if (x->op != OP_mul || x->in[0] == x->in[1]) return NULL;
    if (now->dt == DT_i32 && w->dots & DOT_quads) return bytes_better(g, now, x, outer);
    if (now->dt == DT_f32 && w->dots & DOT_pairs) return pairs_better(g, now, x, outer, w->round);
    return NULL;
}

void narrow_choose(Ctx *cx, Arena *a, Graph *g, int dots, bool round)
{
    bool any = round;
    Narrowing w = { .dots = dots, .round = round };
    for (int id = 0; id < g->node.n && !any; id++) {
        const Node *n = g->node.at[id];
        any = n->op == OP_cast && ((n->dt == DT_f32 && n->in[0]->dt == DT_bf16) || (n->dt == DT_i32 && is_byte(n->in[0]->dt)));
    }
    int changed = any && dots ? graph_remake_all(cx, a, g, narrow_better, &w) : 0;
    if (changed) log_line(cx, 2, "narrow: %d contractions of narrow numbers", changed);
}
