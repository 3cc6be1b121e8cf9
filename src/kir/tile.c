/* Tiles of contractions: as many rows times vectors as the registers hold, so that each element loaded serves many multiplications.
 *
 * The rows are one parallel axis (the places of a convolution, the rows of a matrix), the vectors run over another, whose block is the width of the tile.
 * Where nothing is shared between the rows (depthwise convolutions) a tile only hides latency. Also which loops are unrolled, and which are printed
 * apart for the inside of a padded image. Sizes are hints: they decide speed, never the result. */
#include "kir/kir.h"

enum { UNROLL_OPS = 256, UNROLL_MOST = 8, UNROLL_UNIT = 32 };         /* vector operations of an unrolled nest; iterations of one loop; a knob counts in these */

/* Loads and operations inside the loops of a contraction, by whether they differ from row to row; each: loads of which every element of a tile needs its own. */
typedef struct LoopCount { int with, without, each, ops; } LoopCount;
static void count_loads(const KBlock *b, const Dim *row, const Dim *lane, bool inside, LoopCount *c)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) count_loads(s->loop->body, row, s->loop->vector ? s->loop->var : lane, inside || !loop_around(s->loop), c);
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

static KLoop *block_loop(const KBlock *b, bool places)
{
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_loop && (places ? b->stmt.at[i].loop->places : b->stmt.at[i].loop->blocked)) return b->stmt.at[i].loop;
    return NULL;
}

KLoop *kernel_places(const LoopKernel *k)
{
    const KLoop *vec = block_loop(k->body, false);
    KLoop *found = NULL;
    for (KLoop *o = block_loop(vec ? vec->body : k->body, true); o; o = block_loop(o->body, true)) found = o;
    return found;
}

int64_t tile_rows_hint(const LoopKernel *k)
{
    const KLoop *places = kernel_places(k);
    return dim_hint(k->g, places && places->var == k->row_var ? loop_times(places) : k->row_extent);
}

/* Steps of the reduction: iterations of the loops inside the one over lanes; and how often the innermost one is entered. */
static double reduction_steps(const LoopKernel *k, const KBlock *b, double *entries)
{
    double most = 1;
    *entries = 1;
    for (int i = 0; i < b->stmt.n; i++) {
        const KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (!o) continue;
        double e, in = reduction_steps(k, o->body, &e), times = loop_around(o) ? 1 : (double)dim_hint(k->g, o->extent);
        if (in * times <= most) continue;
        most = in * times;
        *entries = in > 1 && !loop_around(o) ? e * times : e;
    }
    return most;
}

/* Do neighbouring rows of the tile lie far apart in what the sums read? */
enum { ROW_BYTES = 1024 };
static bool rows_apart(const LoopKernel *k, const KBlock *b, const Dim *row, bool inside)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        Dim *c, *rest;
        if (s->kind == KS_loop && rows_apart(k, s->loop->body, row, inside || !loop_around(s->loop))) return true;
        if (!inside || s->kind != KS_val || s->val->kind != KV_load || !dim_uses(s->val->at.off, row->var)) continue;
        if (!dim_linear(k->g, s->val->at.off, row->var, &c, &rest) || c->idx_mask || dim_hint(k->g, c) * (int64_t)dtype_size(s->val->dt) >= ROW_BYTES) return true;
    }
    return false;
}

/* Cycles of a step of a tile of mr rows and nv vectors: a multiplication in each, beside which a load costs little but something, more where it comes from the second
 * cache: a panel that the first does not hold, rows far apart (seen with 16 lanes); at least as long as one sum waits for itself; and what streams past the second cache comes slower. */
enum { NEAR_BYTES = 24 << 10, PANEL_BYTES = 384 << 10, FAR_CYCLES = 6, SUM_CYCLES = 8, TILE_CYCLES = 12, ENTRY_CYCLES = 8, RESULT_CYCLES = 4, FEW_RESULTS = 16, HALF_CYCLES = 48, HALF_ROWS = 24 };
typedef struct SumSteps { double steps, entries; bool apart, half; } SumSteps;  /* of the sums of a tile; how often the innermost loop is entered; rows lie far apart; half vectors */
static double step_cycles(int lanes, int mr, int nv, double panel, bool apart, bool half)
{
    bool wide = lanes >= 16;
    if (half) {                          /* two multiplications at once; a single half vector needs a load for each, of which two go at once as well */
        int ops = nv > 1 ? mr * nv : mr + 1;
        return (ops > SUM_CYCLES ? ops : SUM_CYCLES) / 2.0;
    }
    double c = mr * nv + (wide ? 0.08 : 0.12) * (mr + nv);
    if (wide && panel > NEAR_BYTES) c += 0.125 * nv;
    if (wide && apart) c += 0.12 * mr;
    if (c < SUM_CYCLES) c = SUM_CYCLES;
    if (panel > PANEL_BYTES && FAR_CYCLES * nv > c) c = FAR_CYCLES * nv;
    return c;
}

/* Cycles of a tile. While the results of a small one are finished, the next one begins. */
static double tile_cycles(const SumSteps *s, int lanes, int mr, int nv, double panel)
{
    int results = mr * nv - FEW_RESULTS;
    if (s->half) return s->steps * step_cycles(lanes, mr, nv, panel, s->apart, true) + HALF_CYCLES;
    return s->steps * step_cycles(lanes, mr, nv, panel, s->apart, s->half) + TILE_CYCLES + ENTRY_CYCLES * (s->entries - 1) + (results > 0 ? RESULT_CYCLES * results : 0);
}

typedef struct Tile { int mr, nv; } Tile;

/* The tile that takes the least time for so many rows and vectors: many elements, so that what is loaded serves many, but few past the ends.
 * regs: accumulators; nv, mr > 0: asked for. */
static Tile tile_best(const LoopKernel *k, int regs, int64_t rows, int64_t vecs, const SumSteps *s, int nv, int mr)
{
    Tile best = { 1, 1 };
    double least = -1;
    int wide = k->lanes >= 16 ? 4 : 2;
    for (int v = nv ? nv : 1; v <= (nv ? nv : wide); v++)
        for (int m = mr ? mr : 1; m <= (mr ? mr : s->half ? HALF_ROWS : 14); m++) {
            if (!mr && m > 1 && (m > rows || m * v > regs || (k->lanes >= 16 && m * v + v > 30))) break;
            if (!nv && v > 1 && v > vecs) continue;
            double panel = s->steps * v * k->lanes * 4;
            int rest = (int)(vecs % v);
            int64_t tiles = (rows + m - 1) / m, blocks = vecs / v;
            double cost = (double)blocks * tile_cycles(s, k->lanes, m, v, panel);
            if (rest) cost += tile_cycles(s, k->lanes, m, rest, panel);
            cost *= (double)tiles;
            if (s->half && rows % m) cost += (double)(tiles * m);       /* which rows an earlier tile has stored */
            if (least >= 0 && cost >= least) continue;
            best = (Tile){ m, v };
            least = cost;
        }
    return best;
}

/* Rows of a tile of nv vectors, at most so many, with which n rows take the least time for each step. */
int tile_of_rows(int nv, int most, int64_t n)
{
    int best = 1;
    double least = -1;
    for (int m = 1; m <= most && m <= n; m++) {
        int64_t tiles = (n + m - 1) / m;
        double cost = (double)tiles * step_cycles(1, m, nv, 0, false, false);
        if (least >= 0 && cost > least) continue;
        best = m;
        least = cost;
    }
    return best;
}

/* Rows of a tile, at most so many, that leave few past the end of n. */
enum { EACH_SUMS = 14 };
static int rows_even(int most, int64_t n)
{
    int64_t tiles = (n + most - 1) / most;
    return tiles > 1 ? (int)((n + tiles - 1) / tiles) : n > 1 ? (int)n : 1;
}

/* Bytes of what the loops of a contraction read: by row of the tile, and the rest. */
typedef struct Read { double rows, rest; } Read;
static void count_bytes(const LoopKernel *k, const KBlock *b, const Dim *row, bool inside, Read *r)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) count_bytes(k, s->loop->body, row, inside || !loop_around(s->loop), r);
        if (s->kind != KS_val || s->val->kind != KV_load || !inside) continue;
        const Node *n = k->buf.at[s->val->buf].node;
        double bytes = (double)dtype_size(k->buf.at[s->val->buf].dt);
        for (int j = 0; n && j < n->rank; j++) bytes *= (double)dim_hint(k->g, n->dims[j]);
        *(dim_uses(s->val->at.off, row->var) ? &r->rows : &r->rest) += bytes;
    }
}

static void axis_move(LoopKernel *k, const Dim *var, int to)
{
    int at = 0;
    while (at < k->npar && k->par[at].var != var) at++;
    if (at == k->npar) return;
    KAxis x = k->par[at];
    for (; at < to; at++) k->par[at] = k->par[at + 1];
    for (; at > to; at--) k->par[at] = k->par[at - 1];
    k->par[to] = x;
}

enum { ROWS_BYTES = 512 << 10, PANELS_BYTES = 160 << 10, SHORT_ROWS = 7, FIRST_BYTES = 16 << 10 };

/* The order of the axes: rows of the tile last, so that the panel of the other operand stays in the cache, and panels first; or, where the rows do not stay
 * there but all panels do, panels last. each: every element needs its own loads, which then follow one another in memory. Lanes over the sum: there are no
 * panels, but where all of the other operand stays in the first cache, a tile's rows do too, if they are outermost. */
static void order_axes(LoopKernel *k, bool each)
{
    Read r = { 0 };
    if (k->row_var) count_bytes(k, k->body, k->row_var, false, &r);
    bool first = k->row_var && !k->vec_var && (k->sched.order ? k->sched.order == 2 : r.rest <= FIRST_BYTES && r.rows > FIRST_BYTES);
    if (k->row_var) axis_move(k, k->row_var, first ? 0 : k->npar - 1);
    bool inner = k->sched.order ? k->sched.order == 2 : each || (r.rest <= PANELS_BYTES && r.rows > ROWS_BYTES);
    if (k->vec_var && k->row_var) axis_move(k, k->vec_var, inner ? k->npar - 1 : 0);
}

enum { SHORT_SUMS = 16 };                /* steps of sums for which adding up lanes takes a good part of the time */
void tile_choose(LoopKernel *k, KLoop *vec)
{
    int64_t best = 1;
    LoopCount of = { 0 };
    KLoop *places = kernel_places(k);
    if (places) {
        count_loads(k->body, places->var, NULL, false, &of);
        best = dim_hint(k->g, loop_times(places));
        k->row_var = places->var; k->row_extent = places->extent; k->row_open = places->from != NULL;
    }
    for (int i = 0; i < k->npar && !places; i++) {
        if (k->par[i].var == k->vec_var) continue;
        LoopCount c = { 0 };
        count_loads(k->body, k->par[i].var, NULL, false, &c);
        int64_t n = dim_hint(k->g, k->par[i].extent);
        bool enough = n >= best || n >= SHORT_ROWS;          /* neighbours along a later axis lie closer together */
        if (c.with && c.without && n > 1 && enough && (!of.without || c.each <= of.each)) { best = n; of = c; k->row_var = k->par[i].var; k->row_extent = k->par[i].extent; }
    }
    int64_t vecs = vec ? (dim_hint(k->g, vec->extent) + k->lanes - 1) / k->lanes : 4;
    int regs = k->lanes >= 16 ? 28 : 12, folds = kernel_folds(places ? places->body : k->body);
    k->row_each = of.each > 0;
    regs /= folds > 1 ? folds : 1;
    if (of.ops > 4) regs /= 2;
    Tile t = { 1, 4 };
    if (of.each) {                       /* little is shared in a tile: it hides latency, and neighbours read the same elements */
        t.nv = vec && k->lanes >= 16 && vecs > 1 ? 2 : 1;
        t.mr = rows_even(vec && k->lanes >= 16 ? EACH_SUMS / t.nv : 4, best);
        if (k->sched.vectors && vec) t.nv = k->sched.vectors;
        if (k->sched.rows) t.mr = k->sched.rows;
    } else {
        half_choose(k);
        int halves = k->half ? half_count(k) : 0;
        if (halves) vecs = halves;
        SumSteps s = { .half = k->half, .apart = k->row_var && rows_apart(k, k->body, k->row_var, false) };
        s.steps = reduction_steps(k, k->body, &s.entries);
        t = tile_best(k, regs, k->row_var ? best : 1, vecs, &s, halves > 1 ? halves : vec ? k->sched.vectors : 4, k->row_var ? k->sched.rows : 1);
        if (!vec && k->row_var && !k->sched.rows && folds == 1 && best >= k->lanes && s.steps <= SHORT_SUMS * k->lanes) t.mr = k->lanes;       /* see sums_at_once() */
    }
    if (!k->row_var) t.mr = 1;
    order_axes(k, of.each);
    if (t.mr == 1) k->row_var = NULL;
    k->mr = t.mr;
    if (places && t.mr > 1) places->step = t.mr;
    if (vec) vec->nv = t.nv;
    for (int i = 0; i < k->npar; i++)
        if (k->par[i].var == k->vec_var) k->par[i].step = (int64_t)t.nv * (k->half && t.nv > 1 ? k->lanes / 2 : k->lanes);
        else if (k->par[i].var == k->row_var) k->par[i].step = t.mr;
}

static bool has_checks(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if ((s->kind == KS_loop && has_checks(s->loop->body)) || (s->kind == KS_val && s->val->kind == KV_check)) return true;
    }
    return false;
}

/* Rows that two tiles compute are loaded after the first stored them, perhaps in their operand's place; that is harmless where they are not stored again, and
 * where no loaded number is an index. */
bool tile_shifts(const LoopKernel *k)
{
    if (!k->row_var || k->row_open || !dim_is_const(k->row_extent) || k->row_extent->c < k->mr || k->row_extent->c % k->mr == 0) return false;
    return !has_checks(k->top) && !has_checks(k->body);
}

bool tile_fits(const LoopKernel *k)
{
    return k->row_var && !k->row_open && dim_is_const(k->row_extent) && (k->row_extent->c % k->mr == 0 || tile_shifts(k));
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

static int64_t unroll_ops(const LoopKernel *k) { return k->sched.unroll ? UNROLL_UNIT * k->sched.unroll : UNROLL_OPS; }

static bool pred_uses(const KBlock *b, const Dim *var)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && pred_uses(s->loop->body, var)) return true;
        for (int p = 0; s->kind == KS_val && p < s->val->at.npred; p++) if (dim_uses(s->val->at.pred[p].e, var->var)) return true;
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
        if (each < 0 || in->vector || in->chunk || in->row_from || !dim_is_const(in->extent) || in->extent->c > UNROLL_MOST || each * in->extent->c > unroll_ops(k)) { inner = false; continue; }
        in->unroll = true;
        ops += each * in->extent->c;
    }
    return inner ? ops : -1;
}

static bool has_loops(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_loop) return true;
    return false;
}

/* A loop of few iterations with nothing in it but another loop. */
static bool short_nest(const KLoop *o)
{
    const Dim *n = loop_times(o);
    return !o->vector && dim_is_const(n) && n->c <= UNROLL_MOST && o->body->stmt.n == 1 && o->body->stmt.at[0].kind == KS_loop;
}

/* Where neighbouring rows share what they read, only the innermost loop is unrolled: then the compiler keeps it all in registers; none, where loads are operands of
 * multiplications, and cost nothing. */
void tile_loops(LoopKernel *k)
{
    KLoop *vec = block_loop(k->body, false), *places = kernel_places(k);
    KBlock *b = places ? places->body : vec ? vec->body : k->body;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        bool each = vec && k->row_each && k->row_var && k->mr > 1;
        KLoop *split = !k->sched.tests && k->lanes > 1 && (k->sub->kind == SUB_dot || k->sub->kind == SUB_rows) && (has_predicates(o->body) || (each && !dim_is_const(k->row_extent))) ? o : NULL;
        for (KLoop *c = o; split && short_nest(c); c = c->body->stmt.at[0].loop)       /* under a short loop: then only its iterations at the border are at the border */
            if (pred_uses(c->body, c->var)) split = c->body->stmt.at[0].loop;
        if (split) split->split = true;
        int64_t ops = k->lanes > 1 && k->sub->kind == SUB_dot && (!(each && k->row_fed) || k->sched.unroll) ? unroll_loops(k, o, (int64_t)k->mr * (vec ? vec->nv : 1)) : -1;
        if (ops >= 0 && !(each && !k->sched.unroll && has_loops(o->body)) && (!split || split == o) && !o->vector && !o->chunk && !o->row_from && dim_is_const(o->extent) && o->extent->c <= UNROLL_MOST && ops * o->extent->c <= unroll_ops(k)) o->unroll = true;
    }
}
