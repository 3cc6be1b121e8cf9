/* Lowering of a cascade of folds along one axis (SUB_stream): one pass, block by block.
 *
 * Lanes run over rows: what all rows share (keys, values, points) is read in its own order, one number for all lanes, so no operand is packed but what belongs to
 * the rows, once. The state of each fold lies in scratch: one vector for each place of the result's own axes. For each block of the axis
 *   contractions that stand at every point are computed in register tiles (places of the axis x rows) and kept for the block;
 *   each fold is taken over the block by itself, in order of stages; then state = state * advance + block, and a pivot moves.
 * What one loop over the block computed is computed again by a later one if that is cheap, and kept otherwise. In the end each state gets its last factor.
 * Powers of e that are only weights need not be exact where they are tiny (find_weights).
 * Rows of memory are asked for before they are needed, spread over what is computed meanwhile (wide_fetch, tile_fetch, rows_fetch_share).
 *
 * A block is skipped when no row of the tile can have anything there (stream_bounds): its bounds are affine in the rows, so they are numbers of the launch. */
#include "kir/kir.h"

/* Of one row, what is read passes by once: few places of the axis side by side, so that it is read in order. Of a few rows, each block of it is read from the first cache from
 * the second row on: as many places side by side as there are lanes, whose sums over lanes are taken at once. */
enum { BLOCK_BYTES = 24576, TILE_ROWS = 6, NARROW_ROWS = 12, FEW_STEPS = 2048, FEW_TILE = 2 };

typedef struct Streaming {
    Lowering *l; const Stream *s; Graph *g;
    Dim *j, *jb, *end;                  /* the axis; where the block starts and ends */
    int width;                          /* rows at once */
    Dim *row;                           /* the few rows that share what is read: a loop in each block; or NULL */
    int *state;                         /* scratch of each fold */
} Streaming;

/* Places of the axis in a block: whole tiles, and no more than the first cache holds of a few values, or of what several rows read. */
static int block_steps(const Streaming *t)
{
    const Lowering *l = t->l;
    int64_t each = 0, whole = l->few ? l->k->lanes : NARROW_ROWS, steps, outs = 1;
    for (int i = 0; i < t->s->ninner && t->row; i++) {
        const Node *f = t->s->inner[i].node;
        int64_t own = 1;
        for (int k = 0; k < f->in[0]->rank; k++) if (f->axes >> k & 1) own *= dim_hint(t->g, f->in[0]->dims[k]);
        each += own;
    }
    for (int a = 0; a < l->sub->rank; a++) if (t->s->out >> a & 1) outs *= dim_hint(t->g, l->sub->space[a]);
    each = t->row ? each + outs : t->width;
    steps = (t->row ? 32768 : BLOCK_BYTES) / 4 / each / whole * whole;
    return (int)(steps > FEW_STEPS ? FEW_STEPS : steps < whole ? whole : steps);
}

/* Where there are too few rows for all vectors, as many accumulators are taken from the other side. */
static int rows_of_tile(const Lowering *l)
{
    if (l->few) return l->sub->stream->row >= 0 ? l->k->lanes : FEW_TILE;
    return !l->k->vec_var || l->nv == stream_vectors(l->k->lanes) ? TILE_ROWS : NARROW_ROWS;
}

static Dim *lane_offset(const Lowering *l)
{
    return l->k->vec_var ? dim_sub(l->g, l->k->vec_var, dim_idx(l->g, BASE_VAR, l->k->vec_var->a)) : dim_const(l->g, 0);
}

static int scratch_new(Lowering *l, DType dt, const Node *n, Dim *size)
{
    KBuf b = { .node = n, .dt = dt, .read = true, .write = true, .scratch = true, .size = size };
    vec_push(l->arena, &l->k->buf, b);
    return l->k->buf.n - 1;
}

/* Loads and stores of scratch stay where they are asked for: others write it in between. */
static KVal *scratch_load(Lowering *l, int buf, DType dt, Dim *off, const Node *n)
{
    KVal p = { .kind = KV_load, .dt = dt, .buf = buf, .at.off = off, .node = n, .block = l->cur };
    return val_new(l, &p);
}

static void scratch_store(Lowering *l, int buf, KVal *v, Dim *off)
{
    block_add(l, l->cur, (KStmt){ .kind = KS_store, .val = v, .buf = buf, .at.off = off });
}

static bool lanes_apart(const Lowering *l, const KVal *v, int *steps)
{
    Dim *c, *rest, *lane = l->k->vec_var;
    if (v->kind == KV_load && lane && v->at.off && dim_uses(v->at.off, lane->var) && !(dim_linear(l->g, v->at.off, lane->var, &c, &rest) && dim_is(c, 1))) return true;
    if (--*steps < 0) return true;
    for (int i = 0; i < v->nin; i++) if (v->in[i]->block == v->block && lanes_apart(l, v->in[i], steps)) return true;
    return false;
}

bool stream_keeps(const Lowering *l, const KVal *v)
{
    for (int i = 0; i < l->rows.n; i++) if (v->kind == KV_load && v->buf == l->rows.at[i].buf) return true;     /* it is kept */
    return cost_again(v) > 4 || lanes_apart(l, v, &(int){ WALK_STEPS });
}

KVal *stream_again(Lowering *l, const Node *n, KVal *v)
{
    const Streaming *t = l->streaming;
    Dim *off = dim_add(l->g, dim_mulc(l->g, dim_sub(l->g, t->j, t->jb), t->width), lane_offset(l));
    DType dt = v->dt == DT_bool ? DT_bool : dtype_info[v->dt].compute == DT_i32 ? DT_i32 : dtype_info[v->dt].compute;
    int buf = scratch_new(l, dt, n, dim_const(l->g, BLOCK_BYTES / 4));
    block_add(l, v->block, (KStmt){ .kind = KS_store, .val = v, .buf = buf, .at.off = off, .room = true });     /* for whole tiles: see block_steps() */
    StoredRow r = { v, buf, off };
    vec_push(l->arena, &l->rows, r);
    return scratch_load(l, buf, v->dt, off, n);
}

/* What belongs to the rows is copied once for each tile of rows, lanes together. Returns 0 when the load is none of that kind. */
KVal *stream_packed(Lowering *l, const KVal *load)
{
    Graph *g = l->g;
    Dim *c, *rest, *lane = l->k->vec_var;
    const Streaming *t = l->streaming;
    if (!lane || load->at.npred || load->nopnd || !dim_linear(g, load->at.off, lane->var, &c, &rest) || dim_is(c, 0) || dim_is(c, 1) || dim_uses(load->at.off, t->j->var)) return NULL;
    Dim *off = load->at.off, *to = dim_const(g, 0), *here = dim_const(g, 0), *stride = dim_const(g, t->width);
    Dim *map[LOOP_VAR + 64] = { 0 };
    KBlock *was = l->cur;
    KLoop *loop[MAX_RANK];
    int nl = 0;
    for (const KBlock *b = was; b && b != l->point; b = b->up) {
        if (!b->loop || b->loop->var == t->jb || b->loop->var == t->j || !dim_uses(off, b->loop->var->var)) continue;
        if (b->loop->var->var >= LOOP_VAR + 64 || nl == MAX_RANK) return NULL;
        nl++;
    }
    if (!nl) return NULL;
    nl = 0;
    l->cur = l->point;
    for (const KBlock *b = was; b && b != l->point; b = b->up) {
        if (!b->loop || !dim_uses(off, b->loop->var->var)) continue;
        Dim *own = dim_idx(g, LOOP_VAR + l->nloop++, b->loop->var->a);
        loop[nl++] = loop_new(l, own, false);
        map[b->loop->var->var] = own;
        here = dim_add(g, here, dim_mul(g, b->loop->var, stride));
        to = dim_add(g, to, dim_mul(g, own, stride));
        stride = dim_mul(g, stride, b->loop->var->a);
    }
    int buf = scratch_new(l, load->dt == DT_bool ? DT_bool : dtype_info[load->dt].compute == DT_i32 ? DT_i32 : dtype_info[load->dt].compute, load->node, stride);
    KVal p = *load;
    p.at.off = dim_subst(g, off, LOOP_VAR + 64, map);
    p.block = l->cur;
    KVal *v = val_new(l, &p);
    scratch_store(l, buf, v, dim_add(g, to, lane_offset(l)));
    while (nl) loop_close(l, loop[--nl]);
    l->cur = was;
    return scratch_load(l, buf, load->dt, dim_add(g, here, lane_offset(l)), load->node);
}

/* ---- states --------------------------------------------------------------------------------------------------------------------------------- */
static Dim *state_offset(const Streaming *t, const StreamFold *f)
{
    const Lowering *l = t->l;
    Dim *off = dim_const(t->g, 0);
    for (int a = 0; a < l->sub->rank; a++)
        if ((f->out >> a & 1) || (t->row && a == t->s->row)) off = dim_add(t->g, dim_mul(t->g, off, l->sub->space[a]), dim_idx(t->g, SPACE_VAR + a, l->sub->space[a]));
    return dim_add(t->g, dim_mulc(t->g, off, t->width), lane_offset(l));
}

static KVal *state_load(const Streaming *t, const StreamFold *f)
{
    return scratch_load(t->l, t->state[f - t->s->fold], f->node->dt, state_offset(t, f), f->node);
}

static void state_store(const Streaming *t, const StreamFold *f, KVal *v) { scratch_store(t->l, t->state[f - t->s->fold], v, state_offset(t, f)); }

/* Opens loops over the axes that only f has; tiled: the last in tiles of rows. */
static int out_open(const Streaming *t, const StreamFold *f, KLoop **o, bool tiled)
{
    Lowering *l = t->l;
    int n = 0;
    for (int a = 0; a < l->sub->rank; a++)
        if (f->out >> a & 1) o[n++] = loop_new(l, dim_idx(t->g, SPACE_VAR + a, l->sub->space[a]), l->few && f->out >> a == 1);
    if (n && tiled && !l->few) o[n - 1]->tile = tile_of_rows(l->k->vec_var ? l->nv : 1, rows_of_tile(l), dim_hint(t->g, o[n - 1]->extent));
    return n;
}

static void out_close(const Streaming *t, KLoop **o, int n)
{
    while (n--) loop_close(t->l, o[n]);
}

/* vector: in lanes, where there are few rows */
static KLoop *block_open_loop(const Streaming *t, int tile, bool vector)
{
    KLoop *o = loop_new(t->l, t->j, vector && t->l->few);
    if (o->vector) tile = 1;
    o->from = t->jb; o->extent = t->end; o->tile = tile;
    o->times = dim_const(t->g, block_steps(t));
    t->l->row_loop = o;
    return o;
}

static void block_close_loop(const Streaming *t, KLoop *o)
{
    t->l->row_loop = NULL;
    loop_close(t->l, o);
}

/* A factor is the same along the axis: asked for at its place 0. */
static KVal *factor(const Streaming *t, const StreamFold *f, const Node *n)
{
    Dim *map[SPACE_VAR + MAX_RANK] = { 0 }, *at[MAX_RANK] = { 0 };
    if (!n) return NULL;
    map[t->j->var] = dim_const(t->g, 0);
    for (int a = 0; a < t->l->sub->rank; a++) if (f->out >> a & 1) map[SPACE_VAR + a] = map[t->j->var];
    for (int k = 0; k < n->rank; k++) at[k] = dim_subst(t->g, f->at[k], SPACE_VAR + MAX_RANK, map);
    return demand(t->l, n, at);
}

/* -inf would make inf - inf of what is masked throughout so far. */
static KVal *safe_pivot(Lowering *l, KVal *m)
{
    KVal *low = val_const(l, m->dt, scalar_min(m->dt)), *zero = val_const(l, m->dt, (Scalar){ 0 });
    KVal *eq[3] = { m, low }, *in[3] = { NULL, zero, m };
    in[0] = val_ew(l, OP_eq, DT_bool, 2, eq);
    return val_ew(l, OP_where, m->dt, 3, in);
}

static KVal *two(Lowering *l, Op op, KVal *a, KVal *b)
{
    KVal *in[3] = { a, b };
    return val_ew(l, op, a->dt, 2, in);
}

/* A partial sum of f, moved to other pivots (or, at the end, to the sums themselves): was[i] are the partial sums before, NULL for those that each place has for itself. */
static KVal *moved_sum(const Streaming *t, const StreamFold *f, KVal *old, bool end, KVal *const *was)
{
    Lowering *l = t->l;
    KVal *by = factor(t, f, end ? f->finish : f->advance), *now = by ? two(l, OP_mul, old, by) : old;
    for (int i = 0; i < f->nterm; i++) {
        const StreamTerm *e = &f->term[i];
        KVal *times = factor(t, f, end ? e->finish : e->advance);
        if (!times) continue;
        KVal *more = two(l, OP_mul, times, was[e->of] ? was[e->of] : state_load(t, &t->s->fold[e->of])), *low = val_const(l, more->dt, scalar_min(more->dt)), *zero = val_const(l, more->dt, (Scalar){ 0 });
        for (int k = 0; k < t->s->nfold && !end; k++) {
            if (!(e->pivots >> k & 1)) continue;
            KVal *eq[3] = { was[k], low }, *in[3] = { NULL, zero, more };
            in[0] = val_ew(l, OP_eq, DT_bool, 2, eq);
            more = val_ew(l, OP_where, more->dt, 3, in);
        }
        now = two(l, OP_add, now, more);
    }
    return now;
}

static Op merging(const StreamFold *f) { return f->node->kind == FOLD_max ? OP_max : f->node->kind == FOLD_min ? OP_min : OP_add; }

/* Folds with axes of their own: those that need others' partial sums before these move. */
static int wide_order(const Stream *s, int stage, const StreamFold **list)
{
    uint32_t done = 0;
    int n = 0;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < s->nfold; i++) {
            bool wait = (done >> i & 1) || !s->fold[i].out || (stage >= 0 && s->fold[i].stage != stage);
            for (int k = 0; k < s->nfold && !wait; k++)
                for (int e = 0; e < s->fold[k].nterm; e++) wait |= s->fold[k].term[e].of == i && !(done >> k & 1) && s->fold[k].out;
            if (wait) continue;
            done |= 1u << i;
            list[n++] = &s->fold[i];
            again = true;
        }
    }
    return n;
}

/* ---- a block --------------------------------------------------------------------------------------------------------------------------------- */
/* The folds of a stage, or those of the first stage with the contractions before them, in one loop over the block; acc: by fold. A tile may end past the block and
 * then has its last place several times, which changes no maximum. */
static void block_folds(const Streaming *t, int stage, bool inner, KFold **acc)
{
    Lowering *l = t->l;
    const Stream *s = t->s;
    bool any = inner;
    for (int i = 0; i < s->nfold; i++)
        if (s->fold[i].stage == stage && !s->fold[i].out) { acc[i] = fold_new(l, s->fold[i].node); any = true; }
    if (!any) return;
    KLoop *o = block_open_loop(t, inner ? rows_of_tile(t->l) : 1, true);
    for (int i = 0; inner && i < s->ninner; i++) demand(l, s->inner[i].node, s->inner[i].at);
    for (int i = 0; i < s->nfold; i++) {
        if (!acc[i]) continue;
        KVal *v = demand(l, s->fold[i].body, s->fold[i].at);
        acc[i]->loop = o;
        fold_update(l, acc[i], v, s->fold[i].in);
    }
    block_close_loop(t, o);
}

/* Are the folds of the first stage extremes, so that they can be taken in tiles? */
static bool starts_with_maxima(const Stream *s)
{
    int n = 0;
    for (int i = 0; i < s->nfold; i++) {
        if (s->fold[i].stage) continue;
        if (merging(&s->fold[i]) == OP_add || s->fold[i].out) return false;
        n++;
    }
    return s->ninner && n;
}

/* Is a contraction so short that the one fold that needs it computes it at each place? */
enum { SHORT_INNER = 4 };
static bool at_once(const Streaming *t)
{
    const Stream *s = t->s;
    for (int i = 0; i < s->ninner; i++) {
        const Node *f = s->inner[i].node, *x = f->in[0];
        int64_t n = 1;
        for (int k = 0; k < x->rank; k++) if (f->axes >> k & 1) n *= dim_is_const(x->dims[k]) ? x->dims[k]->c : SHORT_INNER + 1;
        if (n > SHORT_INNER) return false;
    }
    return s->nfold == 1 && s->fold[0].out && !t->l->few;
}

/* While the axis is passed over, a sum counts as 1. */
static void sum_stands(const Streaming *t, const StreamFold *f)
{
    Dim *idx[MAX_RANK] = { 0 };
    fold_index(t->g, f->node, f->in, idx);
    memo_put(t->l, f->node, idx, val_const(t->l, f->node->dt, (Scalar){ .f = 1 }));
}

/* A result with axes of its own is folded over the block for each place of these. */
static void lower_wide(const Streaming *t, const StreamFold *f, KVal *const *was)
{
    Lowering *l = t->l;
    factor(t, f, f->advance);            /* before the loops */
    KLoop *o[MAX_RANK];
    int n = out_open(t, f, o, true);
    KFold *a = fold_new(l, f->node);
    KLoop *in = block_open_loop(t, 1, false);
    KVal *v = demand(l, f->body, f->at);
    a->loop = in;
    fold_update(l, a, v, f->in);
    for (int i = 0; i < in->body->stmt.n; i++) {
        KLoop *own = in->body->stmt.at[i].kind == KS_loop ? in->body->stmt.at[i].loop : NULL;
        if (own && dim_is_const(own->extent) && own->extent->c <= SHORT_INNER) own->unroll = true;
    }
    block_close_loop(t, in);
    KVal *block = fold_result(l, a), *old = state_load(t, f);
    state_store(t, f, two(l, merging(f), f->pivot ? old : moved_sum(t, f, old, false, was), block));
    out_close(t, o, n);
}

static void lower_stage(const Streaming *t, int stage, KVal **was)
{
    Lowering *l = t->l;
    const Stream *s = t->s;
    KFold *acc[MAX_FOLDS] = { 0 };
    bool tiled = stage == 0 && starts_with_maxima(s) && !l->few;
    if (stage == 0 && s->ninner && !tiled && !at_once(t)) {
        KLoop *o = block_open_loop(t, rows_of_tile(l), false);
        for (int i = 0; i < s->ninner; i++) demand(l, s->inner[i].node, s->inner[i].at);
        block_close_loop(t, o);
    }
    block_folds(t, stage, tiled, acc);
    for (int i = 0; i < s->nfold; i++) if (acc[i]) was[i] = state_load(t, &s->fold[i]);
    for (int i = 0; i < s->nfold; i++) {
        const StreamFold *f = &s->fold[i];
        if (!acc[i]) continue;
        Dim *idx[MAX_RANK] = { 0 };
        fold_index(t->g, f->node, f->in, idx);
        KVal *block = fold_result(l, acc[i]), *old = was[i], *now;
        if (f->pivot) {
            now = two(l, OP_max, old, block);
            KVal *safe = safe_pivot(l, now);
            memo_put(l, f->old, idx, old);
            memo_put(l, f->cur, idx, safe);
            memo_put(l, f->node, idx, safe);
        } else now = two(l, merging(f), moved_sum(t, f, old, false, was), block);
        state_store(t, f, now);
    }
    const StreamFold *wide[MAX_FOLDS];
    int n = wide_order(s, stage, wide);
    for (int i = 0; i < n; i++) lower_wide(t, wide[i], was);
}

static KVal *finished(const Streaming *t, const StreamFold *f, KVal *const *was)
{
    Lowering *l = t->l;
    Dim *idx[MAX_RANK] = { 0 };
    fold_index(t->g, f->node, f->in, idx);
    KVal *v = state_load(t, f);
    if (f->pivot) memo_put(l, f->cur, idx, safe_pivot(l, v));
    if (!f->pivot) v = moved_sum(t, f, v, true, was);
    memo_put(l, f->node, idx, v);
    return v;
}

/* A result with axes of its own, and where it goes to: by a loop that only copies, since lanes lie together in scratch, and mostly apart in the result. */
static void finish_wide(const Streaming *t, const StreamFold *f, KVal *const *was)
{
    Lowering *l = t->l;
    factor(t, f, f->finish);             /* before the loops */
    KLoop *o[MAX_RANK];
    int n = out_open(t, f, o, false);
    KVal *v = finished(t, f, was);
    state_store(t, f, v);
    out_close(t, o, n);
    for (int k = 0; k < l->sub->nstore; k++) {
        if (l->sub->store[k].node != f->node) continue;
        n = out_open(t, f, o, false);
        store_add(l, &l->sub->store[k], state_load(t, f), COMBINE_set);
        out_close(t, o, n);
    }
}

static bool is_wide(const Stream *s, const Node *n)
{
    for (int i = 0; i < s->nfold; i++) if (s->fold[i].node == n) return s->fold[i].out;
    return false;
}

static void lower_end(const Streaming *t)
{
    Lowering *l = t->l;
    const Stream *s = t->s;
    memo_clear(l);
    KVal *was[MAX_FOLDS] = { 0 };
    for (int i = 0; i < s->nfold; i++) if (!s->fold[i].out) was[i] = state_load(t, &s->fold[i]);
    for (int i = 0; i < s->nfold; i++) if (!s->fold[i].out) finished(t, &s->fold[i], was);
    for (int k = 0; k < l->sub->nstore; k++) {
        const SubStore *st = &l->sub->store[k];
        if (!is_wide(s, st->node)) store_add(l, st, demand(l, st->node, st->at), COMBINE_set);
    }
    const StreamFold *wide[MAX_FOLDS];
    int n = wide_order(s, -1, wide);
    for (int i = 0; i < n; i++) finish_wide(t, wide[i], was);
}

/* ---- weights -------------------------------------------------------------------------------------------------------------------------------- */
/* Is it not above 0 because it is x minus the largest so far, where a cascade's blocks have had a part of the row: the maximum so far, of all that x may be by then. */
bool under_pivot(Graph *g, const Node *n)
{
    const Node *m = n && n->op == OP_sub ? n->in[1] : NULL, *x = m ? n->in[0] : NULL;
    if (!m || m->op != OP_view || m->view.npred) return false;
    const Node *f = m->in[0];
    if (f->op != OP_fold || f->kind != FOLD_max || f->in[0] != x) return false;
    for (int k = 0, r = 0; k < x->rank; k++)         /* the view puts each row's maximum at all its places */
        if (!(f->axes >> k & 1) && m->view.idx[r++] != dim_idx(g, k, m->dims[k])) return false;
    return true;
}

/* Is x a product of w, or where w is not needed at all, anything? Other folds of the cascade are ready numbers. */
static bool proportional(const Stream *s, const Node *x, const Node *w, bool *needs, int *steps)
{
    *needs = x == w;
    if (*needs) return true;
    if (--*steps < 0) return false;
    for (int i = 0; i < s->nfold; i++) if (x == s->fold[i].node) return true;
    bool in[3] = { false };
    for (int i = 0; i < x->nin; i++) {
        bool need;
        if (!proportional(s, x->in[i], w, &need, steps)) return false;
        if (need && i > 2) return false;
        if (need) *needs = in[i] = true;
    }
    if (!*needs || x->op == OP_view) return true;
    if (x->op == OP_cast) return dtype_is_float(x->dt);
    if (x->op == OP_where) return !in[0];
    return x->op == OP_mul ? in[0] != in[1] : x->op == OP_div && !in[1];
}

/* Is w, a power of e, only summed up, with factors, next to a power that is 1? Then one far below it, and its last digits, do not count. */
static bool only_weighs(const Stream *s, const Node *w)
{
    for (int i = 0; i < s->nfold; i++) {
        bool needs;
        if (!proportional(s, s->fold[i].body, w, &needs, &(int){ WALK_STEPS })) return false;
        if (needs && s->fold[i].node->kind != FOLD_sum) return false;
    }
    return true;
}

/* The factor that brings a sum from one pivot to the next, which is a weight too: that of all before beside what follows. */
static bool moves_pivot(const Stream *s, const Node *n)
{
    const Node *d = n->in[0], *m = d->op == OP_neg ? d->in[0] : d;
    const bool turned = m != d;
    if (m->op != OP_sub) return false;
    for (int i = 0; i < s->nfold; i++)
        if (s->fold[i].pivot && under_views(m->in[turned]) == s->fold[i].old && under_views(m->in[!turned]) == s->fold[i].cur) return true;
    return false;
}

static void find_weights(const Lowering *l, const Stream *s)
{
    for (int i = 0; i < l->vals.n; i++) {
        KVal *v = l->vals.at[i];
        if (v->kind != KV_ew || v->op != OP_exp || v->dt != DT_f32 || !v->node || v->node->op != OP_exp) continue;
        v->weighs = (under_pivot(l->g, v->node->in[0]) && only_weighs(s, v->node)) || moves_pivot(s, v->node);
    }
}

/* ---- scratch in place ----------------------------------------------------------------------------------------------------------------------- */
/* What a block keeps lies in the first cache, so a row of values takes over the memory of another that is read for the last time where, or before, it is written. */
typedef struct Life { int store, load; const KBlock *stored, *loaded; } Life;    /* place in the order of statements of the first store, of the last load */

static void life_walk(const KBlock *b, Life *life, int *now)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        ++*now;
        if (s->kind == KS_loop) life_walk(s->loop->body, life, now);
        if (s->kind == KS_store && !life[s->buf].store) { life[s->buf].store = *now; life[s->buf].stored = b; }
        if (s->kind == KS_val && s->val->kind == KV_load) { life[s->val->buf].load = *now; life[s->val->buf].loaded = b; }
    }
}

static void bufs_rename(KBlock *b, const int *to)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) bufs_rename(s->loop->body, to);
        if (s->kind == KS_store || s->kind == KS_fetch) s->buf = to[s->buf];
        if (s->kind == KS_val && s->val->kind == KV_load) s->val->buf = to[s->val->buf];
    }
}

/* The loop of `blocks` that b is or lies in. */
static const KBlock *part_of_block(const KBlock *b, const KLoop *blocks)
{
    while (b->up != blocks->body) b = b->up;
    return b;
}

static void rows_in_place(Lowering *l, const KLoop *blocks)
{
    LoopKernel *k = l->k;
    int now = 0, nbuf = k->buf.n, *to = NEWS(l->arena, int, nbuf);
    Life *life = NEWS(l->arena, Life, nbuf);
    life_walk(blocks->body, life, &now);
    for (int i = 0; i < nbuf; i++) to[i] = i;
    for (int i = 0; i < l->rows.n; i++)
        for (int j = 0; j < i; j++) {
            int a = l->rows.at[j].buf, b = l->rows.at[i].buf;
            Life *x = &life[a], *y = &life[b];
            if (to[a] != a || to[b] != b || k->buf.at[a].dt != k->buf.at[b].dt || !x->load || x->store > y->store || x->load > y->store) continue;
            bool same = x->loaded == y->stored && x->loaded->up == blocks->body && x->loaded->loop->tile <= 1 && l->rows.at[i].off == l->rows.at[j].off;
            if (!same && part_of_block(x->loaded, blocks) == part_of_block(y->stored, blocks)) continue;
            to[b] = a;
            x->load = y->load;
            x->loaded = y->loaded;
        }
    int n = 0;
    for (int i = 0; i < nbuf; i++) {
        if (to[i] != i) { to[i] = to[to[i]]; continue; }
        k->buf.at[n] = k->buf.at[i];
        to[i] = n++;
    }
    k->buf.n = n;
    for (KBlock *b = l->point; b; b = b->up) bufs_rename(b, to);     /* these are open: none is part of another yet */
}

/* A loop over the few rows, if there are several. */
static KLoop *rows_each_open(const Streaming *t) { return t->row ? loop_new(t->l, t->row, false) : NULL; }

static void rows_each_close(const Streaming *t, KLoop *rows)
{
    if (rows) loop_close(t->l, rows);
}

/* What all of the few rows read of a block waits for memory, for the first of them only. So it is asked for while the block before is computed. What one loop passes by in order
 * (values) the processor asks for by itself; not what lies across a tile (keys). */
static void block_ahead(const Streaming *t, const KBlock *b, int steps)
{
    Dim *c, *rest;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) block_ahead(t, s->loop->body, steps);
        if (s->kind != KS_val || s->val->kind != KV_load || s->val->nopnd || s->val->at.npred || t->l->k->buf.at[s->val->buf].scratch || dim_uses(s->val->at.off, t->row->var)) continue;
        bool across = false;
        for (const KBlock *u = b; u->loop; u = u->up) across |= u->loop->var == t->j && u->loop->tile > 1;
        if (across && dim_linear(t->g, s->val->at.off, t->j->var, &c, &rest) && !dim_is(c, 0)) s->val->ahead = dim_mulc(t->g, c, steps);
    }
}

/* What a result with axes of its own reads of a place of the axis (a row of values) is a row of memory, of which each tile takes a few bytes at a time. So the last loop before,
 * which computes, asks for the whole row. */
enum { FETCH_ROW = 2048 };              /* bytes */
static KLoop *last_pass(const Streaming *t, const KBlock *b)
{
    KLoop *o = NULL;
    for (int i = 0; i < b->stmt.n; i++)
        if (b->stmt.at[i].kind == KS_loop && b->stmt.at[i].loop->var == t->j && b->stmt.at[i].loop->tile <= 1) o = b->stmt.at[i].loop;
    return o;
}

static void wide_fetch(const Streaming *t, const KBlock *b, KLoop *pass)
{
    Lowering *l = t->l;
    const Dim *lane = l->k->vec_var;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        const KVal *v = s->kind == KS_val ? s->val : NULL;
        if (s->kind == KS_loop && s->loop != pass) wide_fetch(t, s->loop->body, pass);
        if (!v || v->kind != KV_load || v->nopnd || v->at.npred || l->k->buf.at[v->buf].scratch || !b->loop || b->loop->var != t->j || !b->up->loop || (lane && dim_uses(v->at.off, lane->var))) continue;
        const KLoop *out = b->up->loop;
        const int64_t size = (int64_t)dtype_size(v->dt);
        Dim *c, *step, *rest, *map[LOOP_VAR] = { 0 };
        if (out->tile <= 1 || !dim_linear(t->g, v->at.off, out->var->var, &c, &rest) || !dim_is(c, 1) || dim_hint(t->g, out->extent) * size > FETCH_ROW) continue;
        if (!dim_linear(t->g, v->at.off, t->j->var, &step, &rest) || dim_hint(t->g, step) * size < LINE_BYTES) continue;
        KBlock *was = l->cur;
        l->cur = pass->body;
        KLoop *o = loop_new(l, dim_idx(t->g, LOOP_VAR + l->nloop++, out->extent), false);
        o->step = LINE_BYTES / size;
        map[out->var->var] = o->var;
        block_add(l, l->cur, (KStmt){ .kind = KS_fetch, .buf = v->buf, .at.off = dim_subst(t->g, v->at.off, LOOP_VAR, map) });
        loop_close(l, o);
        l->cur = was;
    }
}

/* A tile of places of the axis reads a row of memory for each (keys). A turn of the sums asks for as much as it reads of the next tile's rows: where all lie together for what follows
 * what it asked for before, else for the same place of each. */
static void tile_fetch(const Streaming *t, KBlock *b, const KLoop *tile)
{
    const Dim *lane = t->l->k->vec_var;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt s = b->stmt.at[i];
        const KVal *v = s.kind == KS_val ? s.val : NULL;
        if (s.kind == KS_loop) tile_fetch(t, s.loop->body, s.loop->var == t->j ? s.loop->tile > 1 ? s.loop : NULL : tile);
        if (!tile || b->loop == tile || !v || v->kind != KV_load || v->nopnd || v->at.npred || t->l->k->buf.at[v->buf].scratch || (lane && dim_uses(v->at.off, lane->var))) continue;
        const Dim *in = b->loop->var;
        Dim *c, *row, *rest, *map[LOOP_VAR + 64] = { 0 };
        if (in->var >= LOOP_VAR + 64 || b->loop->from || !dim_linear(t->g, v->at.off, in->var, &c, &rest) || !dim_is(c, 1) || !dim_linear(t->g, v->at.off, t->j->var, &row, &rest)) continue;
        const bool together = row == b->loop->extent;
        if (!together && dim_hint(t->g, row) * (int64_t)dtype_size(v->dt) < LINE_BYTES) continue;
        map[t->j->var] = dim_addc(t->g, t->j, tile->tile);
        map[in->var] = together ? dim_mulc(t->g, b->loop->var, tile->tile) : b->loop->var;
        block_add(t->l, b, (KStmt){ .kind = KS_fetch, .buf = v->buf, .at.off = dim_subst(t->g, v->at.off, LOOP_VAR + 64, map), .once = together });
    }
}

/* What a tile of the kernel's rows reads and writes of its own lies in memory that nobody was at for long, row after row. A block of the axis asks for its share: rows that the next
 * tile reads, and rows that this one is going to write. */
static void rows_fetch_share(const Streaming *t, const KBlock *b, const KLoop *blocks)
{
    Lowering *l = t->l;
    Graph *g = t->g;
    const Dim *lane = l->k->vec_var;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && s->loop != blocks) rows_fetch_share(t, s->loop->body, blocks);
        const bool load = s->kind == KS_val && s->val->kind == KV_load, written = s->kind == KS_store;
        if (!b->loop || b->loop->from || b->loop->var->var >= LOOP_VAR + 64 || !(load || written) || (load ? s->val->nopnd : s->nopnd)) continue;
        const KAddr *at = load ? &s->val->at : &s->at;
        const int buf = load ? s->val->buf : s->buf;
        const int64_t size = (int64_t)dtype_size(l->k->buf.at[buf].dt);
        Dim *c, *apart, *rest, *map[LOOP_VAR + 64] = { 0 };
        if (at->npred || l->k->buf.at[buf].scratch || !dim_linear(g, at->off, b->loop->var->var, &c, &rest) || !dim_is(c, 1) || dim_hint(g, b->loop->extent) * size > FETCH_ROW) continue;
        if (!dim_linear(g, at->off, lane->var, &apart, &rest) || dim_hint(g, apart) * size < LINE_BYTES) continue;
        KBlock *was = l->cur;
        Dim *place = dim_idx(g, BASE_VAR, lane->a), *n = l->sub->space[t->s->axis];
        l->cur = blocks->body;
        KLoop *row = loop_new(l, dim_idx(g, LOOP_VAR + l->nloop++, dim_const(g, t->width)), false);
        row->from = dim_div(g, dim_mulc(g, t->jb, t->width), n);
        row->extent = dim_div(g, dim_mulc(g, dim_min(g, dim_addc(g, t->jb, blocks->step), n), t->width), n);
        row->times = dim_const(g, 1);
        KLoop *line = loop_new(l, dim_idx(g, LOOP_VAR + l->nloop++, b->loop->extent), false);
        line->step = LINE_BYTES / size;
        map[lane->var] = dim_add(g, load ? dim_addc(g, place, t->width) : place, row->var);
        map[b->loop->var->var] = line->var;
        block_add(l, l->cur, (KStmt){ .kind = KS_fetch, .buf = buf, .at.off = dim_subst(g, at->off, LOOP_VAR + 64, map), .written = written, .far = true });
        loop_close(l, line);
        loop_close(l, row);
        l->cur = was;
    }
}

/* For explain, in terms of the tile's first row. */
static const char *bounds_note(const Lowering *l, Dim *lo, Dim *hi, const Dim *first)
{
    Text t = { .arena = l->arena };
    bool whole = dim_is_const(first);
    Dim **map = NEWS(l->arena, Dim *, whole ? 1 : first->var + 1);
    if (!whole) map[first->var] = dim_idx(l->g, 0, first->a);
    text_add(&t, "the mask is empty outside of [");
    dim_print(&t, l->g, dim_subst(l->g, lo, whole ? 0 : first->var + 1, map));
    text_add(&t, ", ");
    dim_print(&t, l->g, dim_subst(l->g, hi, whole ? 0 : first->var + 1, map));
    text_add(&t, whole ? ") for all rows: not visited there" : ") for the tile of rows from i0 on: not visited there");
    return t.at;
}

static const char skips_note[] = "blocks are left out in which no number that the mask reads, between the least and the largest of the block, can meet one of the tile of rows";

void lower_stream(Lowering *l)
{
    Graph *g = l->g;
    const Stream *s = l->sub->stream;
    Streaming t = { .l = l, .s = s, .g = g };
    t.width = l->k->vec_var ? l->nv * l->k->lanes : 1;
    t.j = dim_idx(g, SPACE_VAR + s->axis, l->sub->space[s->axis]);
    t.jb = dim_idx(g, LOOP_VAR + l->nloop++, l->sub->space[s->axis]);
    if (s->lane < 0 && s->row >= 0) t.row = dim_idx(g, SPACE_VAR + s->row, l->sub->space[s->row]);
    int steps = block_steps(&t);
    Dim *row = t.row ? t.row : s->lane < 0 ? dim_idx(g, LOOP_VAR + l->nloop++, dim_const(g, 2)) : dim_idx(g, SPACE_VAR + s->lane, l->sub->space[s->lane]);
    Dim *first = t.row ? dim_const(g, 0) : l->k->vec_var ? dim_idx(g, BASE_VAR, row->a) : row, *lo, *hi;
    Dim *last = t.row ? dim_addc(g, row->a, -1) : l->k->vec_var ? dim_min(g, dim_addc(g, first, t.width - 1), dim_addc(g, row->a, -1)) : row;
    stream_bounds(l, t.j, row, first, last, &lo, &hi);
    bool bounded = lo || hi != t.j->a;
    if (s->end) hi = dim_min(g, hi, s->end);
    t.end = dim_min(g, dim_addc(g, t.jb, steps), hi);
    if (bounded) l->k->note = bounds_note(l, lo ? lo : dim_const(g, 0), hi, first);
    t.state = NEWS(l->arena, int, s->nfold);
    for (int k = 0; k < l->sub->nstore; k++) l->done[k] = 1;         /* what is demanded meanwhile is not yet complete */
    l->streaming = &t;
    int stages = 0;
    KLoop *rows = rows_each_open(&t);
    for (int i = 0; i < s->nfold; i++) {
        const StreamFold *f = &s->fold[i];
        if (f->stage >= stages) stages = f->stage + 1;
        Dim *size = dim_const(g, t.width);
        for (int a = 0; a < l->sub->rank; a++) if ((f->out >> a & 1) || (t.row && a == s->row)) size = dim_mul(g, size, l->sub->space[a]);
        t.state[i] = scratch_new(l, f->node->dt, f->node, size);
        KLoop *o[MAX_RANK];
        int n = out_open(&t, f, o, false);
        state_store(&t, f, val_const(l, f->node->dt, fold_start((FoldKind)f->node->kind, f->node->dt)));
        out_close(&t, o, n);
    }
    rows_each_close(&t, rows);
    KLoop *blocks = loop_new(l, t.jb, false);
    blocks->from = lo; blocks->extent = hi;
    blocks->step = steps;
    blocks->times = dim_ceildiv(g, l->sub->space[s->axis], dim_const(g, steps));
    bool skips = !l->few && stream_skips(l, t.j, t.jb, t.end, steps, row, first, last);
    KVal *was[MAX_FOLDS] = { 0 };
    rows = rows_each_open(&t);
    for (int i = 0; i < s->nfold; i++) if (!s->fold[i].pivot) sum_stands(&t, &s->fold[i]);
    for (int stage = 0; stage < stages; stage++) lower_stage(&t, stage, was);
    if (rows) block_ahead(&t, rows->body, steps);
    else if (l->k->lanes > 1) {
        if (last_pass(&t, l->cur)) wide_fetch(&t, l->cur, last_pass(&t, l->cur));
        tile_fetch(&t, l->cur, NULL);
    }
    rows_each_close(&t, rows);
    loop_close(l, blocks);
    KLoop *ends = rows_each_open(&t);
    lower_end(&t);
    rows_each_close(&t, ends);
    if (!rows && l->k->lanes > 1 && l->k->vec_var && !dim_is(l->sub->space[s->axis], 0)) rows_fetch_share(&t, l->point, blocks);
    rows_in_place(l, rows ? rows : blocks);
    find_weights(l, s);
    if (skips) l->k->note = l->k->note ? arena_fmt(l->arena, "%s; %s", l->k->note, skips_note) : skips_note;
    l->streaming = NULL;
}
