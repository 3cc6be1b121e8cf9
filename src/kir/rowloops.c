/* Rows in lanes: short ones side by side; the next one fetched; the last loop of a row run beside the next row's.
 *
 * A kernel that reduces rows passes over each of them several times, from memory first and from the caches then. What is here orders that work so that
 * memory and the processor are busy together. Sizes are hints: they decide speed, never the result. */
#include "kir/kir.h"

bool kernel_streams(const Graph *g, const Subgraph *sub)
{
    int64_t row = 4, all = 4;
    for (int i = 0; i < sub->rank; i++) {
        int64_t n = dim_hint(g, sub->space[i]);
        if (sub->rows >> i & 1) row *= n;
        all *= n;
    }
    return sub->kind == SUB_rows && row >= STREAM_ROW_LEAST && row <= STREAM_ROW_MOST && all >= STREAM_BYTES;
}

/* ---- short rows ------------------------------------------------------------------------------------------------------------------------------ */
/* A short row is one long chain of operations that wait for one another: its folds across the lanes, what is computed from them, the next fold. Several rows side
 * by side fill the time. But what comes from memory comes best in one stream: rows of 128 numbers took three times as long four at a time as one by one. Only plain
 * values: what reports errors or remembers positions stays apart. */
enum { SHORT_ROW = 64, SHORT_PAIR = 96, SHORT_READ = 512, SHORT_ROWS = 4 };      /* four rows, or two; four where nothing is stored along the row: then longer ones are in bundles or few */
static bool rows_plain(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && (s->loop->from || !rows_plain(s->loop->body))) return false;
        if (s->kind == KS_fold && (s->fold->kind == FOLD_argmax || s->fold->kind == FOLD_argmin)) return false;
        if (s->kind == KS_store && (s->nopnd || s->at.npred)) return false;
        if (s->kind == KS_val && (s->val->kind == KV_random || s->val->at.npred)) return false;
    }
    return true;
}

static bool stores_along(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_store ? b->loop != NULL : b->stmt.at[i].kind == KS_loop && stores_along(b->stmt.at[i].loop->body)) return true;
    return false;
}

static int64_t row_length(const LoopKernel *k)
{
    int64_t length = 1;
    for (int i = 0; i < k->sub->rank; i++) if (k->sub->rows >> i & 1) length *= dim_hint(k->g, k->sub->space[i]);
    return length;
}

/* Elements of all rows, 4 bytes each. */
static int64_t kernel_bytes(const LoopKernel *k)
{
    int64_t n = (int64_t)dtype_size(DT_f32) * row_length(k);
    for (int i = 0; i < k->npar; i++) n *= dim_hint(k->g, k->par[i].extent);
    return n;
}

static void rows_side_by_side(LoopKernel *k)
{
    int64_t length = row_length(k);
    KAxis *row = k->npar ? &k->par[k->npar - 1] : NULL;
    bool stores = stores_along(k->body);
    int rows = k->sched.rows ? k->sched.rows : length <= (stores ? SHORT_ROW : SHORT_READ) ? SHORT_ROWS : stores && length <= SHORT_PAIR ? 2 : 1;
    if (!row || rows < 2 || dim_hint(k->g, row->extent) < 8 * rows || !rows_plain(k->body)) return;
    for (int i = 0; i < k->buf.n; i++) if (k->buf.at[i].scratch) return;         /* a private row holds one of them */
    k->row_var = row->var; k->row_extent = row->extent;
    row->step = k->mr = rows;
}

/* ---- rows in registers ----------------------------------------------------------------------------------------------------------------------- */
/* A row of few vectors stays in registers from its first loop to its last: its loops are straight lines, and what one of them computes and a later one needs is neither
 * stored nor read. The text for that stands beside the other one, and serves rows of exactly so many vectors; there are as many rows side by side as registers hold. */
enum { HELD_VECTORS = 8, HELD_IN_ALL = 12 };     /* vectors of a row, of all rows side by side, with 32 registers; half of it with 16 */

static bool plain_vectors(const KLoop *o) { return o->vector && !o->blocked && !o->from && !o->split && o->tile <= 1 && o->team <= 1; }

/* Stores and loads of a row's own element, by buffer: the last store is the result's. */
static bool mark_held(LoopKernel *k, int buf)
{
    const KBuf *b = &k->buf.at[buf];
    KStmt *last = NULL;
    const Dim *off = NULL;
    for (int i = 0; i < k->body->stmt.n; i++) {
        const KStmt *out = &k->body->stmt.at[i];
        KBlock *in = out->kind == KS_loop ? out->loop->body : NULL;
        if ((out->kind == KS_store && out->buf == buf) || (out->kind == KS_val && out->val->kind == KV_load && out->val->buf == buf)) return false;
        for (int j = 0; in && j < in->stmt.n; j++) {
            KStmt *s = &in->stmt.at[j];
            bool store = s->kind == KS_store && s->buf == buf, load = s->kind == KS_val && s->val->kind == KV_load && s->val->buf == buf;
            if (!store && !load) continue;
            const Dim *at = store ? s->at.off : s->val->at.off;
            if (load && !last) return false;
            if (off && off != at) return false;
            off = at;
            if (load) s->val->held = true;
            else if (s->how != COMBINE_set || dtype_info[b->dt].compute != b->dt || dtype_size(b->dt) != 4 || s->val->dt != b->dt) return false;
            else { if (last) last->held = true; last = s; }
        }
    }
    if (last && b->scratch) last->held = true;
    return true;
}

static bool small_values(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop || (s->kind == KS_update && s->fold->running)) return false;
        if (s->kind == KS_val && (s->val->kind == KV_check || dtype_size(dtype_info[s->val->dt].compute) > 4)) return false;
    }
    return true;
}

static bool rows_held(LoopKernel *k)
{
    int64_t length = row_length(k), fit = k->lanes >= 16 ? 1 : 2, vecs = length / k->lanes;
    const KLoop *first = NULL;
    KAxis *row = k->npar ? &k->par[k->npar - 1] : NULL;
    int loops = 0, rows = SHORT_ROWS;
    if (!row || k->sub->step || length % k->lanes || vecs < 1 || vecs > HELD_VECTORS / fit || !stores_along(k->body) || !rows_plain(k->body)) return false;
    for (int i = 0; i < k->body->stmt.n; i++) {
        const KStmt *s = &k->body->stmt.at[i];
        if (s->kind != KS_loop) continue;
        if (!first) first = s->loop;
        if (!plain_vectors(s->loop) || s->loop->extent != first->extent || s->loop->var != first->var || !small_values(s->loop->body)) return false;
        loops++;
    }
    for (int i = 0; i < k->buf.n; i++) if (k->buf.at[i].scratch) rows = 1;           /* otherwise a private row holds one of them */
    while (rows > 1 && rows * vecs > HELD_IN_ALL / fit) rows /= 2;
    if (k->sched.rows || loops < 2 || dim_hint(k->g, row->extent) < 8 * rows) return false;
    for (int i = 0; i < k->buf.n; i++) if (k->buf.at[i].write && k->buf.at[i].read && !mark_held(k, i)) return false;
    k->held = (int)vecs;
    k->held_past = kernel_bytes(k) >= STREAM_BYTES;
    if (rows == 1) return true;
    k->row_var = row->var; k->row_extent = row->extent;
    row->step = k->mr = rows;
    return true;
}

/* The first loop over a row waits for memory, later ones do not, and what follows a row lies where no prefetcher of the processor looks: so the one that has the
 * most to compute, or else the first, fetches a row to come. Longer rows are a stream by themselves; what caches hold is near enough. But where such a row is read again
 * with little to compute, and the second cache has room for it, half of the next one is fetched meanwhile. A long row that is read once fetches its own elements to come. */
enum { FETCH_LEAST = 32, FETCH_MOST = 32768, FETCH_COST = 8, FETCH_AHEAD = 16 << 10 };       /* the last: bytes, at least: with less, memory answers too late */
static void fetch_ahead(LoopKernel *k, KBlock *b, const Dim *lane, int64_t rows, bool half, uint8_t *seen)
{
    const KAxis *row = &k->par[k->npar - 1];
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        Dim *c, *rest;
        if (s->kind == KS_loop) { fetch_ahead(k, s->loop->body, s->loop->vector ? s->loop->var : lane, rows, half, seen); continue; }
        if (s->kind != KS_val || s->val->kind != KV_load || !lane || s->val->nopnd || s->val->at.npred || k->buf.at[s->val->buf].scratch || seen[s->val->buf]) continue;
        if (!dim_linear(k->g, s->val->at.off, lane->var, &c, &rest) || !dim_is(c, 1) || !dim_linear(k->g, s->val->at.off, row->var->var, &c, &rest) || dim_is(c, 0)) continue;
        seen[s->val->buf] = 1;
        s->val->ahead = rows ? dim_mulc(k->g, c, rows * row->step) : dim_const(k->g, FETCH_AHEAD / (int64_t)dtype_size(s->val->dt));
        s->val->ahead_half = half;
    }
}

/* Columns: each step down the rows lies far from the one before, unless it takes the whole row. What the second cache holds comes without being asked for. */
enum { FETCH_ROWS = 8, FETCH_STRIDE = 512, FETCH_BYTES = 3 << 18 };
static double buf_bytes(const LoopKernel *k, int buf)
{
    const Node *n = k->buf.at[buf].node;
    double bytes = (double)dtype_size(k->buf.at[buf].dt);
    for (int i = 0; i < n->rank; i++) bytes *= (double)dim_hint(k->g, n->dims[i]);
    return bytes;
}

static void columns_fetch(LoopKernel *k, KBlock *b, const Dim *down, int64_t width)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        Dim *c, *rest;
        if (s->kind == KS_loop) { columns_fetch(k, s->loop->body, s->loop->blocked ? NULL : s->loop->var, width); continue; }
        if (s->kind != KS_val || s->val->kind != KV_load || !down || s->val->nopnd || s->val->at.npred || k->buf.at[s->val->buf].scratch || buf_bytes(k, s->val->buf) < FETCH_BYTES) continue;
        if (!dim_linear(k->g, s->val->at.off, k->vec_var->var, &c, &rest) || !dim_is(c, 1) || !dim_linear(k->g, s->val->at.off, down->var, &c, &rest)) continue;
        if (dim_hint(k->g, c) > width && dim_hint(k->g, c) * (int64_t)dtype_size(s->val->dt) >= FETCH_STRIDE) s->val->ahead = dim_mulc(k->g, c, FETCH_ROWS);
    }
}

/* ---- the last loop ---------------------------------------------------------------------------------------------------------------------------- */
/* Reading a row, computing, and writing it take turns, so that memory waits for the processor and the other way round. So the last loop of a row, which only
 * stores what is known by then, runs together with the loop before it of the next row: software pipelining. Private rows that it reads exist twice. */
static bool reads_written(const LoopKernel *k, const KVal *v)
{
    const KBuf *b = &k->buf.at[v->buf];
    return !b->scratch && b->write;
}

static bool may_run_late(const LoopKernel *k, const KLoop *o)
{
    bool stores = false;
    for (int i = 0; i < o->body->stmt.n; i++) {
        const KStmt *s = &o->body->stmt.at[i];
        if (s->kind == KS_store) {
            if (s->nopnd || s->at.npred || s->how != COMBINE_set || k->buf.at[s->buf].scratch) return false;
            stores = true;
        } else if (s->kind != KS_val || s->val->kind == KV_random || s->val->kind == KV_check || s->val->kind == KV_fold || s->val->at.npred || s->val->nopnd) return false;
        else if (s->val->kind == KV_load && reads_written(k, s->val)) return false;
    }
    return stores;
}

enum { LATE_LENGTH = 16384 };            /* of a row that the late loop reads again where it was read first: two of them are to stay in the cache */
static void rows_late(LoopKernel *k)
{
    KBlock *b = k->body;
    KLoop *during = NULL, *late = NULL;
    if (!kernel_streams(k->g, k->sub) || k->mr > 1 || k->sub->step || !k->npar || b->stmt.n == 0) return;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind == KS_store) return;
        if (b->stmt.at[i].kind != KS_loop) continue;
        during = late;
        late = b->stmt.at[i].loop;
    }
    if (!during || b->stmt.at[b->stmt.n - 1].kind != KS_loop || !plain_vectors(during) || !plain_vectors(late)) return;
    if (during->var != late->var || during->extent != late->extent || !may_run_late(k, late)) return;
    bool kept = false;
    for (int i = 0; i < late->body->stmt.n; i++) {
        const KStmt *s = &late->body->stmt.at[i];
        if (s->kind == KS_val && s->val->kind == KV_load) kept |= k->buf.at[s->val->buf].scratch;
    }
    if (!kept && dim_hint(k->g, late->extent) > LATE_LENGTH) return;
    k->late = late;
    k->during = during;
    for (int i = 0; i < late->body->stmt.n; i++) {
        const KStmt *s = &late->body->stmt.at[i];
        if (s->kind == KS_val && s->val->kind == KV_load && k->buf.at[s->val->buf].scratch) k->buf.at[s->val->buf].twice = true;
    }
}

/* Operations for what a loop adds up or stores. */
static int loop_cost(const KLoop *o)
{
    int c = 0;
    for (int i = 0; i < o->body->stmt.n; i++) {
        const KStmt *s = &o->body->stmt.at[i];
        const KVal *v = s->kind == KS_update ? s->fold->value : s->kind == KS_store ? s->val : NULL;
        if (v) c += cost_again(v);
    }
    return c;
}

/* A loop that neither is the first, which waits for memory, nor stores: memory has nothing to do meanwhile. */
static const KLoop *between_loops(const KBlock *b)
{
    int loops = 0;
    for (int i = 0; i < b->stmt.n; i++) {
        const KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (o && loops++ && o->vector && !stores_along(o->body)) return o;
    }
    return NULL;
}

static void rows_fetch(LoopKernel *k)
{
    int64_t length = row_length(k);
    if (!k->npar || k->sub->step || length < FETCH_LEAST || kernel_bytes(k) < STREAM_BYTES) return;
    uint8_t *seen = NEWS(k->arena, uint8_t, k->buf.n + 1);
    if (k->pivoted && !k->bundle) { fetch_ahead(k, k->pivoted->body, k->pivoted->var, 0, false, seen); return; }
    if (length > 2 * FETCH_MOST) return;
    const KLoop *most = k->during;
    bool half = false;
    for (int i = 0; !k->during && i < k->body->stmt.n; i++) {
        const KLoop *o = k->body->stmt.at[i].loop;
        if (k->body->stmt.at[i].kind == KS_loop && o->vector && loop_cost(o) >= FETCH_COST && (!most || loop_cost(o) > loop_cost(most))) most = o;
    }
    if (!most && length > FETCH_MOST) most = between_loops(k->body), half = true;
    int64_t step = (int64_t)dtype_size(DT_f32) * length * k->par[k->npar - 1].step, ahead = (FETCH_AHEAD + step - 1) / step;
    if (most) fetch_ahead(k, most->body, most->var, ahead > 1 || length > FETCH_MOST ? ahead : 2, half, seen);      /* one row ahead comes too late for short ones */
    if (length <= FETCH_MOST) fetch_ahead(k, k->body, NULL, ahead, false, seen);
}

void kernel_rows(LoopKernel *k)
{
    kernel_powers(k);
    bool pivot = kernel_pivot(k);
    bool bundle = bundle_choose(k);
    if (!bundle && !pivot && !rows_held(k)) {
        rows_side_by_side(k);
        rows_late(k);
    }
    if (!k->sched.fetch && !k->held) rows_fetch(k);      /* whole short rows are a stream by themselves */
}

void kernel_columns(LoopKernel *k, const KLoop *vec)
{
    if (!k->sched.fetch) columns_fetch(k, k->body, NULL, (int64_t)vec->nv * k->lanes);
}
