/* Panels: an operand of a contraction laid out as the tile reads it.
 *
 * A tile reads, for each step of the reduction, a few vectors of one operand (the weights): as a matrix, one piece of a row. Rows that lie far apart cost a
 * line and a page of their own each, and lanes past the end a mask. So such an operand is copied before: the pieces of all rows that one block of tiles
 * reads lie one after the other, the last block filled up with zeros. With Q rows of E elements and blocks of P,
 *
 *     element (q, e)   at  q * E + e   becomes   at  (e / P) * Q * P + q * P + e % P   =   e + start * (Q - 1) + q * P
 *
 * where start is the first column of the block: linear in e, as a loop over lanes wants it. Constants are copied once, when the program is made. */
#include "kir/kir.h"

enum { FEW_READERS = 48, LINE = 64 };    /* rows of the result from which on a copy pays; bytes of a cache line */

typedef struct Panels { LoopKernel *k; KLoop *vec; int buf; Dim *rows, *width; bool ok, seen; } Panels;

/* The row of an address in a matrix of that width, or NULL. */
static Dim *panel_row(const Panels *p, Dim *off)
{
    Graph *g = p->k->g;
    Dim *c, *rest;
    if (!dim_linear(g, off, p->k->vec_var->var, &c, &rest) || !dim_is(c, 1)) return NULL;
    Dim *q = dim_div(g, rest, p->width);
    return dim_mul(g, q, p->width) == rest ? q : NULL;
}

/* A panel is read again by each tile of its rows, of which the first finds it in no near cache. So each tile asks for its share of the next panel, spread over the steps of its
 * sums. Few tiles, or that does not matter; and not so much that the second cache holds neither of the two. */
enum { FETCH_TILES = 64, FETCH_LEAST = 256 << 10, FETCH_MOST = 1 << 20 };
typedef struct Tiles { Dim *at; int64_t n; } Tiles;      /* the number of this one, of those that read a panel; how many */
static void tiles_along(Graph *g, Tiles *t, Dim *var, Dim *extent, int64_t step)
{
    Dim *each = dim_const(g, step > 1 ? step : 1), *n = dim_ceildiv(g, extent, each);
    t->at = dim_add(g, dim_mul(g, t->at, n), dim_div(g, var, each));
    t->n *= dim_hint(g, n);
}

static void tiles_places(Graph *g, Tiles *t, const KLoop *o)
{
    const KLoop *out = o->body->up->loop;
    if (out && out->places) tiles_places(g, t, out);
    tiles_along(g, t, o->var, loop_times(o), o->step);
}

static void panel_fetch(const Panels *p, KBlock *b, Dim *row)
{
    LoopKernel *k = p->k;
    Graph *g = k->g;
    const KLoop *places = kernel_places(k);
    const int64_t panel = k->buf.at[p->buf].panel, size = (int64_t)dtype_size(k->buf.at[p->buf].dt), steps = dim_hint(g, p->rows);
    Tiles t = { dim_const(g, 0), 1 };
    if (k->half || k->par[0].var != k->vec_var || steps * dim_hint(g, p->width) * size < FETCH_LEAST || steps * panel * size > FETCH_MOST) return;
    for (int i = 1; i < k->npar; i++) tiles_along(g, &t, k->par[i].var, k->par[i].extent, k->par[i].step);
    if (places) tiles_places(g, &t, places);
    if (t.n < 2 || t.n > FETCH_TILES) return;
    int64_t each = (panel + t.n - 1) / t.n;              /* elements, for a step of the sums */
    Dim *next = dim_mul(g, dim_addc(g, dim_idx(g, START_VAR, p->width), panel), p->rows);
    Dim *off = dim_add(g, next, dim_mulc(g, dim_add(g, dim_mul(g, t.at, p->rows), row), each));
    for (int64_t at = 0; at < each; at += LINE / size)
        vec_push(k->arena, &b->stmt, ((KStmt){ .kind = KS_fetch, .buf = p->buf, .once = true, .far = true, .at.off = dim_addc(g, off, at) }));
}

static void panel_walk(Panels *p, KBlock *b, bool inside, bool change)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) panel_walk(p, s->loop->body, inside || !loop_around(s->loop), change);
        if (s->kind != KS_val || s->val->kind != KV_load || s->val->buf != p->buf) continue;
        Dim *row = inside && !s->val->at.npred && !s->val->nopnd ? panel_row(p, s->val->at.off) : NULL;
        if (!row || (p->k->row_var && dim_uses(row, p->k->row_var->var))) { p->ok = false; return; }
        p->seen = true;
        if (!change) continue;
        Graph *g = p->k->g;
        Dim *start = dim_idx(g, START_VAR, p->width);
        s->val->at.off = dim_add(g, dim_add(g, p->k->vec_var, dim_mul(g, start, dim_addc(g, p->rows, -1))), dim_mulc(g, row, p->k->buf.at[p->buf].panel));
        panel_fetch(p, b, row);
    }
}

static bool reads_along(const KBlock *b, int buf, const Dim *var)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && reads_along(s->loop->body, buf, var)) return true;
        if (s->kind == KS_val && s->val->kind == KV_load && s->val->buf == buf && dim_uses(s->val->at.off, var->var)) return true;
    }
    return false;
}

/* Rows of the result for each of which a panel is read again. */
static double panel_readers(const LoopKernel *k, int buf)
{
    double n = 1;
    for (int i = 0; i < k->npar; i++)
        if (k->par[i].var != k->vec_var && !reads_along(k->body, buf, k->par[i].var)) n *= (double)dim_hint(k->g, k->par[i].extent);
    for (const KLoop *o = kernel_places(k); o; o = o->body->up->loop && o->body->up->loop->places ? o->body->up->loop : NULL)
        if (!reads_along(k->body, buf, o->var)) n *= (double)dim_hint(k->g, loop_times(o));
    return n;
}

void buf_pack(KBuf *b)
{
    for (int k = 0; k < b->node->rank && !b->packed; k++) b->order[k] = (uint8_t)k;
    b->packed = true;
}

void panel_choose(LoopKernel *k, KLoop *vec)
{
    Graph *g = k->g;
    bool once = k->sub->nnode && k->sub->constant[k->sub->node[0]->id];      /* its constants may not be computed yet */
    for (int i = 0; vec && !once && !k->sched.panels && i < k->buf.n; i++) {
        KBuf *b = &k->buf.at[i];
        const Node *n = b->node;
        if (b->write || b->scratch || b->panel || n->rank == 0) continue;
        bool constant = k->sub->constant[n->id];
        Dim *count = dim_const(g, 1);
        for (int j = 0; j < n->rank; j++) count = dim_mul(g, count, n->dims[j]);
        if (dim_is(vec->extent, 0)) return;
        Panels p = { .k = k, .vec = vec, .buf = i, .width = vec->extent, .ok = true };
        p.rows = dim_div(g, count, p.width);
        int64_t panel = (int64_t)vec->nv * (k->half ? k->lanes / 2 : k->lanes), width = dim_hint(g, p.width), size = (int64_t)dtype_size(n->dt);
        if (dim_mul(g, p.rows, p.width) != count || dim_hint(g, p.rows) < 2) continue;
        bool aligned = width * size % (k->half ? LINE / 2 : LINE) == 0;
        if (width <= panel && aligned) continue;     /* one panel as it is */
        if (!constant) {
            int axis = b->packed ? b->order[n->rank - 1] : n->rank - 1;
            if (n->rank == MAX_RANK || n->dims[axis] != p.width || (aligned && width * size <= 1024) || panel_readers(k, i) < FEW_READERS) continue;
        }
        panel_walk(&p, k->top, false, false);
        panel_walk(&p, k->body, false, false);
        if (!p.ok || !p.seen) continue;
        buf_pack(b);
        b->panel = panel; b->width = p.width;
        panel_walk(&p, k->body, false, true);
    }
}
