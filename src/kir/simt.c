/* Scheduling for a GPU: groups of threads instead of lanes.
 *
 * Two forms. By points: each thread takes points of the parallel axes by itself; neighbours in the innermost axis are neighbouring threads, so what lies together
 * in memory is read together. By teams: a group takes one row, the loops over it are dealt out to its threads, and folds are finished by all of them. A team is
 * taken when the row is long and its elements lie together. Where rows lie across memory, points read better; when there are too few of them for all threads, a
 * group takes neighbouring rows, each by a team of its own. Sizes are hints: they decide speed only. */
#include "kir/kir.h"

enum { GROUP = 128, GROUP_HEAVY = 128, TEAM_LEAST = 32, TEAM_MOST = 512, TEAM_EACH = 4, ROW_LEAST = 24, ROW_TILE = 8, THREADS_LEAST = 16384, TURN_POINTS = 65536, TURN_BYTES = 32,
       POINTS_ENOUGH = 131072, PACKS = 4, VECTORS_MOST = 16, THREADS_PACKS = 131072, COLUMN_LEAST = 64, TEAM_COLUMN = 8, SCAN_LEAST = 512, LOOK_LEAST = 4 * LOOK_PART, TEAM_SCAN = 256 };

/* ---- which axis of a row is dealt out -------------------------------------------------------------------------------------------------- */
/* Loads and stores inside loops over a row whose neighbours in `var` lie together. */
static int near_accesses(const LoopKernel *k, const KBlock *b, const Dim *var)
{
    int n = 0;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) { n += near_accesses(k, s->loop->body, var); continue; }
        const KAddr *at = s->kind == KS_store ? &s->at : s->kind == KS_val && s->val->kind == KV_load ? &s->val->at : NULL;
        Dim *c, *rest;
        if (at && b->loop && dim_uses(at->off, var->var) && dim_linear(k->g, at->off, var->var, &c, &rest) && dim_is(c, 1)) n++;
    }
    return n;
}

static KLoop *loop_over_row(const LoopKernel *k, const KBlock *b, bool (*take)(const KLoop *o, void *arg), void *arg)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (!o) continue;
        if (take(o, arg)) return o;
        KLoop *in = loop_over_row(k, o->body, take, arg);
        if (in) return in;
    }
    return NULL;
}

typedef struct RowAxis { const LoopKernel *k; const Dim *var; int64_t extent; int near; } RowAxis;

/* Is o a loop over an axis of the row, not one of a fold inside? Remembers the best of them. */
static bool row_axis(const KLoop *o, void *arg)
{
    RowAxis *x = arg;
    if (o->var->var >= LOOP_VAR && o->var->var < MERGED_VAR) return false;
    int64_t n = dim_hint(x->k->g, o->times ? o->times : o->extent);
    int near = near_accesses(x->k, x->k->body, o->var);
    if (!x->var || (near && !x->near) || ((near > 0) == (x->near > 0) && n > x->extent)) { x->var = o->var; x->extent = n; x->near = near; }
    return false;
}

static void deal_out(KBlock *b, const Dim *var, int team)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (!o) continue;
        if (o->var == var) o->team = team;
        deal_out(o->body, var, team);
    }
}

/* Folds with a loop that is dealt out have parts to be put together. */
static void mark_folds(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) mark_folds(s->loop->body);
        if (s->kind != KS_update || s->fold->running) continue;
        for (const KBlock *c = s->fold->loop ? b : NULL; c && c->loop; c = c->up) {
            if (c->loop->team > 1) s->fold->team = true;
            if (c->loop == s->fold->loop) break;
        }
    }
}

static void choose_team(LoopKernel *k)
{
    RowAxis x = { .k = k };
    loop_over_row(k, k->body, row_axis, &x);
    if (!x.var || x.extent < ROW_LEAST) return;
    int64_t points = 1;
    for (int i = 0; i < k->npar; i++) points *= dim_hint(k->g, k->par[i].extent);
    int across = k->npar ? near_accesses(k, k->body, k->par[k->npar - 1].var) : 0;
    if (across > x.near && points >= 1024) {         /* rows that lie across memory, side by side */
        if (points >= POINTS_ENOUGH || x.extent < COLUMN_LEAST || !dim_is(kernel_scratch(k, k->buf.n), 0)) return;
        k->columns = SIMT_TILE;
        k->team = TEAM_COLUMN;
        k->threads = k->columns * k->team;
        deal_out(k->body, x.var, k->team);
        mark_folds(k->body);
        return;
    }
    int team = TEAM_LEAST;
    while (team < TEAM_MOST && (int64_t)team * TEAM_EACH < x.extent) team *= 2;
    k->team = k->threads = team;
    deal_out(k->body, x.var, team);
    mark_folds(k->body);
}

/* How many vectors does a thread load that the next ones in the axis before the last do not load too? */
static int own_loads(const LoopKernel *k)
{
    int n = 0;
    for (int i = 0; i < k->body->stmt.n; i++) {
        const KStmt *s = &k->body->stmt.at[i];
        if (s->kind == KS_val && simt_pack_at(k, s)) n += k->npar < 2 || dim_uses(s->val->at.off, k->par[k->npar - 2].var->var);
    }
    return n;
}

/* Several of them at once, while there are registers for the vectors of one: where a thread loads one vector only, since too little would be under way; and in a kernel that
 * does the work of many launches, since what a group looks up serves more. Else threads hide each other's waits, and with one vector each most of them fit. */
static void choose_packs(LoopKernel *k, int64_t threads, int vectors)
{
    KAxis *before = k->npar > 1 ? &k->par[k->npar - 2] : NULL;
    int packs = k->sched.packs ? k->sched.packs : k->sched.joint || own_loads(k) < 2 ? PACKS : 1;
    while (packs > 1 && !k->sched.packs && (packs * vectors > VECTORS_MOST || (!k->sched.joint && threads < THREADS_PACKS * (int64_t)packs) || (before && dim_hint(k->g, before->extent) < packs))) packs /= 2;
    if (packs == 1) return;
    k->packs = packs;
    if (before) before->step = packs;
}

/* Elementwise kernels move 16 bytes at a time of what lies together; fewer when there is too little to do for all threads. */
static void choose_pack(LoopKernel *k)
{
    if (!k->npar) return;
    KAxis *last = &k->par[k->npar - 1];
    int64_t points = 1;
    size_t least = 8;
    int near = 0;
    for (int i = 0; i < k->npar; i++) points *= dim_hint(k->g, k->par[i].extent);
    for (int i = 0; i < k->body->stmt.n; i++) {
        const KStmt *s = &k->body->stmt.at[i];
        const KAddr *at = simt_pack_at(k, s);
        if (!at) continue;
        size_t size = dtype_size(k->buf.at[s->kind == KS_store ? s->buf : s->val->buf].dt);
        if (size && size < least) least = size;
        near++;
    }
    int pack = least == 1 ? 8 : (int)(16 / least);
    while (pack > 1 && !k->sched.joint && (points < 4096 * (int64_t)pack || dim_hint(k->g, last->extent) < 2 * pack)) pack /= 2;
    if (!near || pack < 2) return;
    k->pack = pack;
    last->step = pack;
    choose_packs(k, points / pack, near);
}

const KAddr *simt_pack_at(const LoopKernel *k, const KStmt *s)
{
    const bool store = s->kind == KS_store, load = s->kind == KS_val && s->val->kind == KV_load;
    const KAddr *at = store ? &s->at : load ? &s->val->at : NULL;
    Dim *c, *rest, *var = k->npar ? k->par[k->npar - 1].var : NULL;
    if (!at || !var || at->npred || (store ? s->nopnd || s->how != COMBINE_set : s->val->nopnd) || k->buf.at[store ? s->buf : s->val->buf].scratch) return NULL;
    return dim_linear(k->g, at->off, var->var, &c, &rest) && dim_is(c, 1) ? at : NULL;
}

/* The running fold of a loop if it can be taken from what parts come to: not a product, which is 0 or inf in parts where the whole is neither. */
static const KFold *running_fold(const KBlock *b)
{
    const KFold *f = NULL;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_update) continue;
        if (f) return NULL;
        f = b->stmt.at[i].fold;
    }
    return f && f->running && f->dt != DT_bool && (f->kind == FOLD_sum || f->kind == FOLD_max || f->kind == FOLD_min) ? f : NULL;
}

/* A running fold over a long axis, by a team: its threads take neighbouring elements, fold them together, and go on with the whole as their start. */
static void choose_scan(LoopKernel *k)
{
    KLoop *o = NULL;
    for (int i = 0; i < k->body->stmt.n; i++) if (k->body->stmt.at[i].kind == KS_loop) o = k->body->stmt.at[i].loop;
    if (!o || dim_hint(k->g, o->extent) < SCAN_LEAST) return;
    for (int i = 0; i < o->body->stmt.n; i++) if (o->body->stmt.at[i].kind == KS_loop) return;     /* a fold inside each step */
    for (int i = 0; i < k->sub->nnode; i++) if (is_recurrence(k->sub->node[i])) return;            /* place by place: parts do not say what comes after them */
    const KFold *f = running_fold(o->body);
    if (k->waits && f && dim_hint(k->g, o->extent) >= LOOK_LEAST) {
        k->look = o;
        k->threads = TEAM_SCAN;
        return;
    }
    int64_t points = 1;
    for (int i = 0; i < k->npar; i++) points *= dim_hint(k->g, k->par[i].extent);
    if (k->npar && !near_accesses(k, k->body, o->var) && points >= 1024) return;
    k->team = k->threads = o->team = TEAM_SCAN;
}

static bool turned_by(const LoopKernel *k, const KStmt *s, const Dim *var)
{
    const KVal *v = s->kind == KS_val && s->val->kind == KV_load ? s->val : NULL;
    const Dim *last = k->par[k->npar - 1].var;
    Dim *c, *rest;
    return v && !v->at.npred && !v->nopnd && !k->buf.at[v->buf].scratch && dim_linear(k->g, v->at.off, var->var, &c, &rest) && dim_is(c, 1) && dim_uses(v->at.off, last->var)
        && !simt_pack_at(k, s);
}

bool simt_turned(const LoopKernel *k, const KStmt *s) { return k->tile_var && turned_by(k, s, k->tile_var); }

/* What is read across and written along goes through memory that the group shares, so that both sides are read and written along. */
static bool choose_turn(LoopKernel *k)
{
    int64_t points = 1, most = 0;
    int axis = -1;
    for (int i = 0; i < k->npar; i++) points *= dim_hint(k->g, k->par[i].extent);
    if (k->npar < 2 || points < TURN_POINTS || dim_hint(k->g, k->par[k->npar - 1].extent) < SIMT_TILE / 2) return false;
    for (int i = 0; i + 1 < k->npar; i++) {
        int64_t n = 0;
        if (dim_hint(k->g, k->par[i].extent) < SIMT_TILE / 2) continue;
        for (int j = 0; j < k->body->stmt.n; j++) if (turned_by(k, &k->body->stmt.at[j], k->par[i].var)) n += (int64_t)dtype_size(k->body->stmt.at[j].val->dt);
        if (n > most) { most = n; axis = i; }
    }
    if (axis < 0 || most > TURN_BYTES) return false;
    k->tile_var = k->par[axis].var;
    k->par[axis].step = k->par[k->npar - 1].step = SIMT_TILE;
    return true;
}

/* A row that one thread adds up is short. What a reader subtracts may leave little but the sum's rounding, so it is rounded once: pairs are added in double precision. */
static void pair_sums(KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        KLoop *o = b->stmt.at[i].kind == KS_loop ? b->stmt.at[i].loop : NULL;
        if (!o) continue;
        pair_sums(o->body);
        for (int j = 0; j < o->body->stmt.n && !o->chunk; j++)
            if (o->body->stmt.at[j].kind == KS_update && fold_in_loop(o->body->stmt.at[j].fold, o)) o->chunk = 2;
    }
}

void kernel_simt(LoopKernel *k)
{
    kernel_merge(k);
    k->threads = k->sub->kind != SUB_map ? GROUP_HEAVY : k->sched.threads ? k->sched.threads : GROUP;
    if (k->sub->kind == SUB_rows) choose_team(k);
    if (k->sub->kind == SUB_scan) choose_scan(k);
    if (k->sub->kind == SUB_map && (k->sched.joint || !choose_turn(k))) choose_pack(k);
    if (k->sub->kind == SUB_dot && !product_choose(k)) tile_rows(k, ROW_TILE, THREADS_LEAST);
    if (!k->product) kernel_chunks(k);
    if (k->sub->kind == SUB_rows && k->team <= 1) pair_sums(k->body);
    kernel_rough(k);
    kernel_measure(k);
}
