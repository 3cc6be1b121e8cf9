/* Scheduling of a lowered kernel: adjacent axes that all addresses cross with one stride become one; a contraction gets a tile of rows and vectors that
 * stays in registers; loops get their number of vectors a step, parallel axes their steps. Sizes are the graph's hints: they decide speed, never
 * the result. Also what can be read off a scheduled kernel: scratch layout, aliasing. */
#include "kir/kir.h"

typedef void (*DimFn)(void *arg, Dim **d, bool pred);

static void each_addr(KAddr *a, DimFn fn, void *arg)
{
    if (a->off) fn(arg, &a->off, false);
    for (int i = 0; i < a->npred; i++) { fn(arg, &a->pred[i].e, true); fn(arg, &a->pred[i].n, true); }
}

/* Calls fn for each Dim in the statements of a block and the loops inside. */
static void each_dim(KBlock *b, DimFn fn, void *arg)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        switch (s->kind) {
        case KS_val:
            if (s->val->dim) fn(arg, &s->val->dim, false);
            each_addr(&s->val->at, fn, arg);
            break;
        case KS_store: case KS_fetch: each_addr(&s->at, fn, arg); break;
        case KS_loop: each_dim(s->loop->body, fn, arg); break;
        case KS_fold: case KS_update: case KS_skip: break;
        }
    }
}

/* ---- merging axes ------------------------------------------------------------------------------------------------------------------ */
typedef struct Merging { Graph *g; Dim *a, *b, *t; bool ok; } Merging;

static void merge_test(void *arg, Dim **d, bool pred)
{
    Merging *m = arg;
    bool ua = dim_uses(*d, m->a->var), ub = dim_uses(*d, m->b->var);
    if (!m->ok || (!ua && !ub)) return;
    Dim *ca, *cb, *rest;
    m->ok = !pred && dim_linear(m->g, *d, m->a->var, &ca, &rest) && dim_linear(m->g, rest, m->b->var, &cb, &rest)
            && !dim_uses(ca, m->b->var) && dim_mul(m->g, cb, m->b->a) == ca;
}

static void merge_apply(void *arg, Dim **d, bool pred)
{
    Merging *m = arg;
    (void)pred;
    if (!dim_uses(*d, m->a->var) && !dim_uses(*d, m->b->var)) return;
    Dim *c, *rest;
    dim_linear(m->g, *d, m->a->var, &c, &rest);
    dim_linear(m->g, rest, m->b->var, &c, &rest);
    *d = dim_add(m->g, dim_mul(m->g, c, m->t), rest);
}

static bool merge_pair(LoopKernel *k, Dim *a, Dim *b, Dim **t, int *count)
{
    Merging m = { k->g, a, b, NULL, true };
    each_dim(k->top, merge_test, &m);
    each_dim(k->body, merge_test, &m);
    if (!m.ok) return false;
    *t = m.t = dim_idx(k->g, MERGED_VAR + (*count)++, dim_mul(k->g, a->a, b->a));
    each_dim(k->top, merge_apply, &m);
    each_dim(k->body, merge_apply, &m);
    return true;
}

/* Every loop over a has nothing in it but one loop over b? */
static bool loops_nested(const KBlock *b, const Dim *outer, const Dim *inner, int *found)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (!o) continue;
        if (o->var == outer) {
            ++*found;
            if (o->body->stmt.n != 1 || o->body->stmt.at[0].kind != KS_loop || o->body->stmt.at[0].loop->var != inner) return false;
        } else if (o->var == inner && b->loop && b->loop->var != outer) return false;
        if (!loops_nested(o->body, outer, inner, found)) return false;
    }
    return true;
}

static void loops_replace(KBlock *b, const Dim *outer, Dim *t)
{
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        if (o->var == outer) {
            KLoop *in = o->body->stmt.at[0].loop;
            in->var = t; in->extent = t->a; in->body->up = b; in->body->depth = b->depth + 1;
            *o = *in;
            o->body->loop = o;
        }
        loops_replace(o->body, outer, t);
    }
}

static KLoop *loop_inside(const KBlock *b, const Dim *var)
{
    for (int i = 0; i < b->stmt.n; i++)
        if (b->stmt.at[i].kind == KS_loop && b->stmt.at[i].loop->var == var) return b->stmt.at[i].loop;
    return NULL;
}

static bool merge_loops(LoopKernel *k, KBlock *b, int *count)
{
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        if (o->body->stmt.n == 1 && o->body->stmt.at[0].kind == KS_loop && !o->vector) {
            KLoop *in = o->body->stmt.at[0].loop;
            Dim *outer = o->var, *inner = in->var, *t;
            int found = 0;
            if (!in->blocked && !o->from && !in->from && loops_nested(k->body, outer, inner, &found) && found && merge_pair(k, outer, inner, &t, count)) {
                loops_replace(k->body, outer, t);
                return true;
            }
        }
        if (merge_loops(k, o->body, count)) return true;
    }
    return false;
}

void kernel_merge(LoopKernel *k)
{
    int count = 0;
    for (int i = 0; i + 1 < k->npar;) {
        Dim *a = k->par[i].var, *b = k->par[i + 1].var, *t;
        KLoop *vec = b == k->vec_var ? loop_inside(k->body, b) : NULL;
        if (a == k->vec_var || (k->sub->step && (a->var == PART_VAR || b->var == PART_VAR)) || !merge_pair(k, a, b, &t, &count)) { i++; continue; }
        if (vec) { vec->var = t; vec->extent = t->a; k->vec_var = t; }
        k->par[i] = (KAxis){ t, t->a, 1 };
        for (int j = i + 1; j + 1 < k->npar; j++) k->par[j] = k->par[j + 1];
        k->npar--;
        if (i) i--;
    }
    while (merge_loops(k, k->body, &count)) { }
}

/* ---- how values differ in a tile ------------------------------------------------------------------------------------------------------ */
typedef struct Varying { const Dim *lane, *row; uint8_t v; } Varying;

static void vary_dim(void *arg, Dim **d, bool pred)
{
    Varying *y = arg;
    (void)pred;
    if (y->lane && dim_uses(*d, y->lane->var)) y->v |= VARY_lane;
    if (y->row && dim_uses(*d, y->row->var)) y->v |= VARY_row;
}

static void vary_block(LoopKernel *k, KBlock *b, const Dim *lane, const Dim *row)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        Varying y = { lane, row, 0 };
        switch (s->kind) {
        case KS_val:
            if (s->val->dim) vary_dim(&y, &s->val->dim, false);
            each_addr(&s->val->at, vary_dim, &y);
            for (int j = 0; j < s->val->nin; j++) y.v |= s->val->in[j]->vary;
            for (int j = 0; j < s->val->nopnd; j++) y.v |= s->val->opnd[j]->vary;
            if (s->val->fold) y.v = s->val->fold->vary;
            if (k->bundle && s->val == k->pivot) y.v |= VARY_row;        /* it may move */
            s->val->vary = s->vary = y.v;
            break;
        case KS_store:
            each_addr(&s->at, vary_dim, &y);
            for (int j = 0; j < s->nopnd; j++) y.v |= s->opnd[j]->vary;
            s->vary = y.v | s->val->vary;
            break;
        case KS_loop: vary_block(k, s->loop->body, s->loop->vector ? s->loop->var : lane, s->loop->tile > 1 ? s->loop->var : row); break;
        case KS_fold: s->fold->vary = 0; break;
        case KS_skip: s->vary = s->val->vary; break;
        case KS_fetch: each_addr(&s->at, vary_dim, &y); s->vary = s->once ? 0 : y.v; break;
        case KS_update: {
            KFold *f = s->fold;
            s->vary = f->value->vary;
            f->own = NULL;               /* its own loops run in lanes: one result */
            for (KBlock *c = f->loop ? b : NULL; c && c->loop; c = c->up) {
                if (c->loop->vector && !c->loop->blocked) f->own = c->loop;
                if (c->loop == f->loop) break;
            }
            f->vary = f->own && !f->running ? f->value->vary & VARY_row : f->value->vary;
            if (f->own && f->running) f->vary |= VARY_lane;
            for (const KBlock *c = f->loop ? b : NULL; c && c->loop; c = c->up) {    /* a loop of its own in tiles of rows: one result for them */
                if (c->loop->tile > 1 || c->loop->places) f->vary &= (uint8_t)~VARY_row;
                if (c->loop->places && c->loop->var == k->row_var) s->vary |= VARY_row;      /* once for each place, whatever it folds */
                if (c->loop == f->loop) break;
            }
            if (f->own) s->vary |= VARY_lane;
            break;
        }
        }
    }
}

void kernel_vary(LoopKernel *k)
{
    vary_block(k, k->top, NULL, k->row_var);
    vary_block(k, k->body, NULL, k->bundle ? k->par[k->npar - 1].var : k->row_var);
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------------------ */
static bool has_update(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++)
        if (b->stmt.at[i].kind == KS_update || (b->stmt.at[i].kind == KS_loop && has_update(b->stmt.at[i].loop->body))) return true;
    return false;
}

/* Functions of many steps that wait for one another. */
bool is_dear(const KVal *v)
{
    if (v->kind != KV_ew || v->dt != DT_f32) return false;
    return v->op == OP_exp || v->op == OP_log || v->op == OP_tanh || v->op == OP_erf || v->op == OP_sigmoid;
}

/* Where such chains follow one another, so many vectors are computed at a time, each function for all of them: a processor looks some hundred instructions ahead. */
enum { STAGED = 4 };
static int stages(const KBlock *b)
{
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) n += b->stmt.at[i].kind == KS_val && is_dear(b->stmt.at[i].val);
    return n;
}

/* Vector loops over rows: several vectors a step hide the latency of the accumulators; in a bundle the next row does, and to put accumulators together takes time. */
static void choose_steps(LoopKernel *k, KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        if (o->vector && !o->blocked) {
            int64_t vecs = dim_hint(k->g, loop_times(o)) / k->lanes;
            int nv = has_update(o->body) ? (o->body->stmt.n > 16 ? 2 : 4) : o->body->stmt.n <= 16 ? 2 : 1;
            if (nv == 4 && k->mr > 4) nv = 2;
            if (k->mr == k->lanes && k->sub->kind == SUB_dot) nv = 1;
            if ((k->mr > 1 && k->sub->kind == SUB_rows) || (b->loop && b->loop->tile > 1)) nv = 1;      /* rows side by side hide the latency */
            if (k->bundle) nv = 1;
            if (k->sched.vectors && k->sub->kind == SUB_rows) nv = k->sched.vectors;
            if (k->sub->kind == SUB_scan) nv = STAGED;
            while (nv > 1 && vecs < nv) nv /= 2;
            o->nv = nv;
        }
        choose_steps(k, o->body);
    }
}

/* ---- long sums --------------------------------------------------------------------------------------------------------------------------- */
/* Added one by one, small addends vanish beside a large single-precision sum. So a sum of many steps is taken in chunks, whose sums are added up apart. */
enum { SUM_STEPS = 2048, CHUNK_STEPS = 256, CHUNK_DOT = 1024 };     /* the latter for contractions, whose many accumulators would be spilled too often, and for columns that are likely to be no longer */

bool fold_in_loop(const KFold *f, const KLoop *o)
{
    return f->kind == FOLD_sum && !f->running && f->loop && dtype_is_float(f->dt) && dtype_info[f->dt].compute == DT_f32 && o->body->depth >= f->loop->body->depth;
}

static int64_t loop_unit(const LoopKernel *k, const KLoop *o) { return o->vector ? (int64_t)o->nv * k->lanes : o->team ? o->team : o->step > 1 ? o->step : 1; }

/* Additions to one accumulator in an iteration of o, of whose body b is a part. */
static int64_t sum_steps(const LoopKernel *k, const KLoop *o, const KBlock *b);
static int64_t loop_steps(const LoopKernel *k, const KLoop *o, int64_t each)
{
    int64_t unit = loop_unit(k, o);
    if (o->chunk || !each) return each ? 1 : 0;
    const Dim *n = loop_times(o);
    if (!dim_is_const(n) || n->c / unit >= SUM_STEPS / each) return SUM_STEPS + 1;
    return (n->c / unit + 1) * each;
}

static int64_t sum_steps(const LoopKernel *k, const KLoop *o, const KBlock *b)
{
    int64_t most = 0;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        int64_t n = s->kind == KS_update ? (o->places ? loop_unit(k, o) : 1) * fold_in_loop(s->fold, o) : s->kind == KS_loop ? loop_steps(k, s->loop, sum_steps(k, o, s->loop->body)) : 0;
        if (n > most) most = n;
    }
    return most;
}

static void choose_chunks(LoopKernel *k, KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        KLoop *o = b->stmt.at[i].loop;
        choose_chunks(k, o->body);
        int64_t each = sum_steps(k, o, o->body);
        if (o->blocked || loop_steps(k, o, each) <= (k->sub->step ? CHUNK_STEPS : SUM_STEPS)) continue;      /* in parts: no less exact than as a whole */
        bool once = k->vec_var && dim_hint(k->g, loop_times(o)) * each <= CHUNK_DOT;
        int64_t steps = (k->sub->kind == SUB_dot && !o->places) || once ? CHUNK_DOT : CHUNK_STEPS;
        o->chunk = (each < steps ? steps / each : 1) * loop_unit(k, o);
    }
}

/* What the compiler has to do with a block: its statements, as often as they are printed or unrolled. In a tile the sums are unrolled, and what follows them where it
 * is short; nv: vectors of a step; tail: the loop over lanes is printed again for what is left over. */
enum { SHORT_ROWS = 5 };
static double block_cost(const LoopKernel *k, const KBlock *b, int mr, int nv)
{
    double c = 0;
    int rows = 0;
    for (int i = 0; i < b->stmt.n; i++) rows += b->stmt.at[i].kind != KS_loop && (b->stmt.at[i].vary & VARY_row);
    bool inner = b->loop && !b->loop->blocked;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) {
            const KLoop *o = s->loop;
            double in = block_cost(k, o->body, o->tile > 1 ? o->tile : mr, o->vector ? o->nv : nv) + 4;
            double turns = o->unroll && dim_is_const(o->extent) ? (double)o->extent->c : 1;
            bool tail = o->vector && !(dim_is_const(o->extent) && o->extent->c % (o->nv * k->lanes) == 0);
            bool rest = o->places && o->step > 1 && !tile_fits(k);       /* tiles that reach past the end have a text of their own */
            c += in * (turns + (o->split ? 1 : 0) + o->before + o->after + (rest ? 1 : 0)) + (tail ? block_cost(k, o->body, mr, 1) : 0);
            continue;
        }
        double each = s->kind == KS_val && s->val->kind == KV_ew ? 2 : 1;
        if ((s->vary & VARY_row) && mr > 1 && !k->unit && (inner || rows <= SHORT_ROWS)) each *= mr;
        if (s->vary & VARY_lane) each *= nv;
        c += each;
    }
    return c;
}

static Dim *loops_work(const LoopKernel *k, const KBlock *b)
{
    int n = 1;
    Dim *w = NULL;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind != KS_loop) { n += s->kind == KS_val && s->val->kind == KV_ew ? 1 : 0; continue; }
        Dim *x = loops_work(k, s->loop->body);
        if (!s->loop->blocked) x = dim_mul(k->g, x, loop_times(s->loop));
        w = w ? dim_add(k->g, w, x) : x;
    }
    Dim *own = dim_const(k->g, n);
    return w ? dim_add(k->g, w, own) : own;
}

void kernel_chunks(LoopKernel *k) { choose_chunks(k, k->body); }

static Dim *kernel_points(const LoopKernel *k)
{
    Dim *points = dim_const(k->g, 1);
    for (int i = 0; i < k->npar; i++) points = dim_mul(k->g, points, k->par[i].extent);
    return points;
}

void kernel_measure(LoopKernel *k)
{
    Graph *g = k->g;
    k->total = dim_const(g, 1);
    for (int i = 0; i < k->npar; i++)
        k->total = dim_mul(g, k->total, k->par[i].step == 1 ? k->par[i].extent : dim_ceildiv(g, k->par[i].extent, dim_const(g, k->par[i].step)));
    if (k->look) k->total = dim_mul(g, k->total, dim_ceildiv(g, k->look->extent, dim_const(g, LOOK_PART)));
    if (k->product) k->total = product_blocks(k);
    k->work = dim_mul(g, kernel_points(k), loops_work(k, k->body));
    k->cost = (20 + block_cost(k, k->body, k->mr, 1)) * (k->held ? 2 : 1);
}

enum { COLUMNS = 16, WHOLE = 30, WHOLE_BYTES = 1 << 20, BLOCK = 8192, BLOCK_UNIT = 1024 };  /* vectors of columns at once; of a whole row, so that memory is passed over in order, where there is too little of it for several threads; elements of a step of the axis in lanes; a knob counts in these */

static double columns_bytes(const LoopKernel *k, const KLoop *vec)
{
    double n = 4 * (double)dim_hint(k->g, vec->extent);
    for (int i = 0; i < k->sub->rank; i++) if (k->sub->rows >> i & 1) n *= (double)dim_hint(k->g, k->sub->space[i]);
    return n;
}

/* Vectors of a step: long pieces of the rows of a matrix, since pages are few, and all steps alike; but a rest that does not fill its last vector is short. */
static int columns_step(int most, int64_t width, int lanes)
{
    int64_t vecs = (width + lanes - 1) / lanes, steps = (vecs + most - 1) / most;
    if (width % lanes) return vecs < most ? (int)vecs : most;
    return steps > 0 ? (int)((vecs + steps - 1) / steps) : 1;
}

/* Do rows, or what is stored as a whole, begin inside a line of memory? */
static bool begins_inside(const LoopKernel *k, Dim *off, int64_t size)
{
    bool inside = false;
    for (int i = 0; i < k->npar; i++) {
        Dim *c;
        if (!dim_linear(k->g, off, k->par[i].var->var, &c, &off)) return inside;
        inside |= k->par[i].var != k->vec_var && !c->idx_mask && dim_hint(k->g, c) * size % LINE_BYTES != 0;
    }
    return inside || (dim_is_const(off) && off->c * size % LINE_BYTES != 0);
}

/* Vectors that lie in two lines wait for both to be written, and hold up what is behind them: results that the second cache does not hold are asked for in time. */
enum { STORE_BYTES = 3 << 18 };
static void stores_fetch(const LoopKernel *k, KBlock *b)
{
    double points = (double)dim_hint(k->g, kernel_points(k));
    for (int i = 0; i < b->stmt.n; i++) {
        KStmt *s = &b->stmt.at[i];
        if (s->kind != KS_store || s->at.npred) continue;
        int64_t size = (int64_t)dtype_size(s->val->dt);
        s->fetched = points * (double)size >= STORE_BYTES && begins_inside(k, s->at.off, size);
    }
}

void kernel_schedule(LoopKernel *k)
{
    Graph *g = k->g;
    if (k->sub->kind != SUB_stream) kernel_merge(k);
    KLoop *vec = k->vec_var ? loop_inside(k->body, k->vec_var) : NULL;
    if (k->sub->kind == SUB_stream) {
        for (int i = 0; vec && i < k->npar; i++) if (k->par[i].var == k->vec_var) k->par[i].step = (int64_t)vec->nv * k->lanes;
    } else if (k->sub->kind == SUB_dot && k->lanes > 1) { tile_choose(k, vec); window_bounds(k); word_choose(k, vec); panel_choose(k, vec); half_apply(k, vec); }
    else if (vec) {
        int64_t step = k->sched.block ? BLOCK_UNIT * k->sched.block : BLOCK;
        if (has_update(vec->body) || k->sub->kind == SUB_scan) {
            int64_t vecs = (dim_hint(g, vec->extent) + k->lanes - 1) / k->lanes;
            int folds = kernel_folds(vec->body);
            vec->nv = columns_step(folds > 2 ? 2 : folds > 1 ? 4 : k->lanes < 16 ? 12 : vecs <= WHOLE && columns_bytes(k, vec) <= WHOLE_BYTES ? WHOLE : COLUMNS, dim_hint(g, vec->extent), k->lanes);
            if (k->sched.vectors) vec->nv = k->sched.vectors;
            while (vec->nv > 1 && vecs < vec->nv) vec->nv /= 2;
            step = (int64_t)vec->nv * k->lanes;
        } else {
            for (vec->nv = stages(vec->body) > 1 ? STAGED : 1; vec->nv > 1 && dim_hint(g, vec->extent) < (int64_t)vec->nv * k->lanes; vec->nv /= 2) { }
            if (k->sched.vectors) vec->nv = k->sched.vectors;
            step -= step % ((int64_t)vec->nv * k->lanes);            /* so that only the last block has a rest */
        }
        for (int i = 0; i < k->npar; i++) if (k->par[i].var == k->vec_var) k->par[i].step = step;
        if (k->sub->kind == SUB_map) { reuse_choose(k, vec); stores_fetch(k, vec->body); }
    }
    if (k->sub->kind == SUB_rows && k->lanes > 1 && !vec) kernel_rows(k);
    if ((k->sub->kind == SUB_rows || (k->sub->kind == SUB_scan && !k->sub->inner)) && vec) kernel_columns(k, vec);
    choose_steps(k, k->body);
    if (k->late) k->late->nv = k->during->nv;
    if (k->pivoted) pivot_chunk(k);
    if (k->sub->kind != SUB_stream) { kernel_chunks(k); tile_loops(k); }
    kernel_vary(k);
    if (k->lanes > 1 && k->sub->kind == SUB_dot) start_choose(k);
    if (k->lanes > 1) quantise_choose(k);
    kernel_measure(k);
    Dim *points = kernel_points(k);
    if (k->sub->kind == SUB_map && vec && dim_hint(g, points) * 4 >= STREAM_BYTES) k->stream = true;
    if (k->sub->kind == SUB_rows && k->lanes > 1 && kernel_streams(g, k->sub)) k->stream = true;
    if (k->sched.stores && k->lanes > 1) k->stream = k->sched.stores == 2;
}

/* ---- what can be read off ------------------------------------------------------------------------------------------------------------------ */
Dim *kernel_scratch(const LoopKernel *k, int buf)
{
    Dim *at = dim_const(k->g, 0);
    for (int i = 0; i < buf; i++) {
        if (!k->buf.at[i].scratch) continue;
        Dim *bytes = dim_mulc(k->g, k->buf.at[i].size, (int64_t)dtype_size(k->buf.at[i].dt));
        at = dim_add(k->g, at, dim_mulc(k->g, dim_ceildiv(k->g, bytes, dim_const(k->g, 64)), k->buf.at[i].twice ? 128 : 64));
    }
    return at;
}

typedef struct Aliasing { const LoopKernel *k; int in, out; Dim *write; bool ok, written, team; } Aliasing;

/* What a team reads outside the loops that are dealt out, each of its threads reads, and one of them may already have written. */
static bool in_team(const KBlock *b)
{
    for (; b; b = b->up) if (b->loop && b->loop->team > 1) return true;
    return false;
}

/* Another element for each value of var? */
static bool each_apart(Graph *g, Dim *off, const Dim *var, const Dim *extent)
{
    Dim *c, *rest;
    return dim_is(extent, 1) || (dim_linear(g, off, var->var, &c, &rest) && !dim_is(c, 0));
}

/* Is it written once, in block b? What other points, or turns of a loop, write again they also read again, maybe after the first of them has written. */
static bool written_once(const LoopKernel *k, const KBlock *b, Dim *off)
{
    for (int i = 0; i < k->npar; i++) if (!each_apart(k->g, off, k->par[i].var, k->par[i].extent)) return false;
    for (; b; b = b->up) if (b->loop && !each_apart(k->g, off, b->loop->var, b->loop->extent)) return false;
    return true;
}

static void alias_walk(const KBlock *b, Aliasing *x, bool second)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) alias_walk(s->loop->body, x, second);
        if (s->kind == KS_store && s->buf == x->out) {
            if ((x->write && s->at.off != x->write) || s->at.npred || s->how != COMBINE_set || !written_once(x->k, b, s->at.off)) x->ok = false;
            x->write = s->at.off;
            x->written = true;
        }
        if (second && s->kind == KS_val && s->val->kind == KV_load && s->val->buf == x->in) x->ok &= s->val->at.off == x->write && !x->written && !(x->team && !in_team(b));
    }
}

bool kernel_may_alias(const LoopKernel *k, int in, int out)
{
    const KBuf *a = &k->buf.at[in], *b = &k->buf.at[out];
    if (a->scratch || b->scratch || a->packed || a->write || dtype_size(a->dt) != dtype_size(b->dt) || k->sub->kind == SUB_scatter) return false;
    Aliasing x = { .k = k, .in = in, .out = out, .ok = true, .team = k->team > 1 };
    alias_walk(k->top, &x, false);
    alias_walk(k->body, &x, false);
    if (!x.write || !x.ok) return false;
    x.written = false;
    alias_walk(k->top, &x, true);
    alias_walk(k->body, &x, true);
    return x.ok;
}

enum { MEET_VECTORS = 64 };              /* of a longer row the wait is little */
static bool rows_meet(const LoopKernel *k, const KBlock *b, const KLoop *vec, int out)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop && rows_meet(k, s->loop->body, s->loop->vector ? s->loop : vec, out)) return true;
        if (s->kind != KS_store || s->buf != out || !vec || vec->from || vec->extent->idx_mask) continue;
        int64_t n = dim_hint(k->g, vec->extent);
        Dim *c, *rest;
        if (n % k->lanes == 0 || n > MEET_VECTORS * (int64_t)k->lanes || !dim_linear(k->g, s->at.off, vec->var->var, &c, &rest) || !dim_is(c, 1)) continue;
        for (int p = 0; p < k->npar; p++)
            if (k->par[p].var != vec->var && dim_hint(k->g, k->par[p].extent) > 1 && dim_linear(k->g, rest, k->par[p].var->var, &c, &(Dim *){ NULL }) && !c->idx_mask && dim_hint(k->g, c) == n) return true;
    }
    return false;
}

bool kernel_rows_meet(const LoopKernel *k, int out) { return k->lanes > 1 && rows_meet(k, k->body, NULL, out); }
