/* Tiles of contractions: as many rows times vectors as the registers hold, so that each element loaded serves many multiplications.
 *
 * The rows are one parallel axis (the places of a convolution, the rows of a matrix), the vectors run over another, whose block is the width of the tile.
 * Where nothing is shared between the rows (depthwise convolutions) a tile only hides latency. Also which loops are unrolled, and which are printed
 * apart for the inside of a padded image. Sizes are hints: they decide speed, never the result. */
#include "kir/kir.h"

enum { UNROLL_OPS = 224, UNROLL_MOST = 8 };          /* vector operations of an unrolled nest; iterations of one loop */

/* Loads and operations inside the loops of a contraction, by whether they differ from row to row; each: loads of which every element of a tile needs its own. */
typedef struct LoopCount { int with, without, each, ops; } LoopCount;
static void count_loads(const KBlock *b, const Dim *row, const Dim *lane, bool inside, LoopCount *c)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) count_loads(s->loop->body, row, s->loop->vector ? s->loop->var : lane, inside || !s->loop->blocked, c);
        if (s->kind != KS_val || !inside) continue;
        if (s->val->kind == KV_load) {
            bool by_row = dim_uses(s->val->at.off, row->var);
            for (int p = 0; p < s->val->at.npred; p++) by_row |= dim_uses(s->val->at.pred[p].e, row->var);
            if (by_row) c->with++; else c->without++;
            if (by_row && lane && dim_uses(s->val->at.off, lane->var)) c->each++;
        } else if (s->val->kind != KV_const && s->val->kind != KV_index) c->ops++;
    }
}

int kernel_folds(const KBlock *b)
{
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) n += b->stmt.at[i].kind == KS_fold ? 1 : b->stmt.at[i].kind == KS_loop ? kernel_folds(b->stmt.at[i].loop->body) : 0;
    return n;
}

/* Vectors a step: as many as fit, or less if that leaves nothing over. */
static int tile_vectors(int most, int64_t vecs)
{
    if (vecs <= most) return vecs < 1 ? 1 : (int)vecs;
    for (int nv = most; nv > most / 2; nv--) if (vecs % nv == 0) return nv;
    return most;
}

/* Rows of a tile, for n rows in all: many, so that what is loaded for all of them serves many, but few past the end. */
static int rows_fitting(int most, int64_t n)
{
    int best = most;
    double least = 0;
    for (int mr = most; mr > 0 && 2 * mr >= most; mr--) {
        int64_t tiles = (n + mr - 1) / mr;
        double cost = (double)tiles * (mr + 0.7);
        if (mr != most && cost >= least) continue;
        best = mr;
        least = cost;
    }
    return n < best ? (int)n : best;
}

void tile_choose(LoopKernel *k, KLoop *vec)
{
    int64_t best = 1;
    LoopCount of = { 0 };
    for (int i = 0; i < k->npar; i++) {
        if (k->par[i].var == k->vec_var) continue;
        LoopCount c = { 0 };
        count_loads(k->body, k->par[i].var, NULL, false, &c);
        int64_t n = dim_hint(k->g, k->par[i].extent);
        if (c.with && c.without && n > best && (!of.without || c.each <= of.each)) { best = n; of = c; k->row_var = k->par[i].var; k->row_extent = k->par[i].extent; }
    }
    int64_t vecs = vec ? (dim_hint(k->g, vec->extent) + k->lanes - 1) / k->lanes : 4;
    int regs = k->lanes >= 16 ? 26 : 12, folds = kernel_folds(k->body);
    regs /= folds > 1 ? folds : 1;
    if (of.ops > 4) regs /= 2;
    if (of.each) regs = vec && k->lanes >= 16 ? 8 : 4;       /* little is shared in a tile: it hides latency, and neighbours read the same elements */
    int nv = vec ? tile_vectors(k->lanes >= 16 ? 4 : 2, vecs) : k->lanes >= 16 ? 4 : 2;
    if (of.each && vec) nv = vecs % 2 == 0 ? 2 : 1;
    if (k->sched.vectors && vec) nv = k->sched.vectors;
    int mr = regs / nv;
    if (mr > 14) mr = 14;
    if (mr < 1) mr = 1;
    mr = k->row_var ? rows_fitting(mr, best) : 1;
    if (k->sched.rows && k->row_var) mr = k->sched.rows;
    if (mr == 1) k->row_var = NULL;
    k->mr = mr;
    if (vec) vec->nv = nv;
    for (int i = 0; i < k->npar; i++) {              /* rows of the tile last: the panel of the other operand stays in cache */
        if (k->par[i].var == k->vec_var) k->par[i].step = (int64_t)nv * k->lanes;
        if (k->par[i].var != k->row_var) continue;
        KAxis r = k->par[i];
        for (int j = i; j + 1 < k->npar; j++) k->par[j] = k->par[j + 1];
        r.step = mr;
        k->par[k->npar - 1] = r;
        break;
    }
    for (int i = 0; i < k->npar; i++) if (k->par[i].var == k->vec_var) k->par[i].step = (int64_t)nv * k->lanes;
}

void tile_rows(LoopKernel *k, int most, int64_t least)
{
    int64_t points = 1, best = 1;
    int row = -1;
    for (int i = 0; i < k->npar; i++) points *= dim_hint(k->g, k->par[i].extent);
    for (int i = 0; i + 1 < k->npar; i++) {
        LoopCount c = { 0 };
        count_loads(k->body, k->par[i].var, NULL, false, &c);
        int64_t n = dim_hint(k->g, k->par[i].extent);
        if (c.with && c.without && n > best) { best = n; row = i; }
    }
    if (row >= 0) {
        int folds = kernel_folds(k->body), mr = folds > 1 ? most / folds : most;
        while (mr > 1 && (mr > best || points / mr < least)) mr /= 2;
        if (mr > 1) {
            k->row_var = k->par[row].var; k->row_extent = k->par[row].extent;
            k->par[row].step = k->mr = mr;
        }
    }
    kernel_vary(k);
}

/* ---- loops of the body ---------------------------------------------------------------------------------------------------------------------- */
static int count_ops(const KBlock *b)
{
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) n += b->stmt.at[i].kind == KS_val && b->stmt.at[i].val->kind != KV_const;
    return n;
}

static bool has_predicates(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_val && s->val->at.npred) return true;
        if (s->kind == KS_loop && has_predicates(s->loop->body)) return true;
    }
    return false;
}

/* Unrolls short loops, the innermost first, while the text stays small; returns the operations of an iteration's text. */
static int64_t unroll_loops(const LoopKernel *k, const KLoop *o, int64_t width)
{
    int64_t ops = count_ops(o->body) * width;
    bool inner = true;
    for (int i = 0; i < o->body->stmt.n; i++) {
        if (o->body->stmt.at[i].kind != KS_loop) continue;
        KLoop *in = o->body->stmt.at[i].loop;
        int64_t each = unroll_loops(k, in, width);
        if (each < 0 || in->vector || in->chunk || !dim_is_const(in->extent) || in->extent->c > UNROLL_MOST || each * in->extent->c > UNROLL_OPS) { inner = false; continue; }
        in->unroll = true;
        ops += each * in->extent->c;
    }
    return inner ? ops : -1;
}

void tile_loops(LoopKernel *k)
{
    KBlock *b = k->body;
    KLoop *vec = NULL;
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_loop && b->stmt.at[i].loop->blocked) vec = b->stmt.at[i].loop;
    if (vec) b = vec->body;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        KLoop *split = k->lanes > 1 && (k->sub->kind == SUB_dot || k->sub->kind == SUB_rows) && has_predicates(o->body) ? o : NULL;
        if (split) {                     /* under a short loop: then only its iterations at the border are at the border */
            KLoop *in = o->body->stmt.n == 1 && o->body->stmt.at[0].kind == KS_loop ? o->body->stmt.at[0].loop : NULL;
            if (in && !o->vector && dim_is_const(o->extent) && o->extent->c <= UNROLL_MOST) split = in;
            split->split = true;
        }
        int64_t ops = k->lanes > 1 && k->sub->kind == SUB_dot ? unroll_loops(k, o, (int64_t)k->mr * (vec ? vec->nv : 1)) : -1;
        if (ops >= 0 && (!split || split == o) && !o->vector && !o->chunk && dim_is_const(o->extent) && o->extent->c <= UNROLL_MOST && ops * o->extent->c <= UNROLL_OPS) o->unroll = true;
    }
}
