/* Blocks and loops of a kernel as C.
 *
 * A block is printed in segments between its loops. In a tile of mr rows and nv vectors a segment is ordered: what is the same everywhere; a loop over the
 * vectors for what differs by lane only; a loop over the rows with what differs by row, and inside it a loop over the vectors for the rest. Values that are
 * needed outside the loop that computes them are arrays over the tile. All these loops have constant bounds and are unrolled by the compiler.
 * A vector loop is printed twice: whole steps, then a tail of single vectors of which `rem` lanes are real. */
#include "gen/gen.h"

/* The kernel as it is inside a loop that is a tile of rows. */
/* fits: printed where no row of the tile lies past the end. */
static const LoopKernel *tiled(Printer *p, const KLoop *o, bool fits)
{
    LoopKernel *k = arena_copy(p->arena, p->k, sizeof *p->k);
    k->row_var = o->var; k->row_extent = o->extent; k->mr = o->tile; k->row_open = o->from != NULL; k->row_fits = fits;
    return k;
}

/* ---- which values are arrays ------------------------------------------------------------------------------------------------------------ */
typedef struct Escape { Printer *p; int seg; int *at; int *nv; } Escape;   /* by value id: segment, vectors a step there */

static void escape_use(Escape *x, const KVal *v, int seg, uint8_t vary)
{
    if (!v || v->kind == KV_const) return;
    Printer *p = x->p;
    bool lane = (v->vary & VARY_lane) && x->nv[v->id] > 1, row = (v->vary & VARY_row) && p->k->mr > 1;
    if (!lane && !row) return;
    if (x->at[v->id] != seg || (lane && !(v->vary & VARY_row) && (vary & VARY_row) && p->k->mr > 1)) p->array[v->id] = 1;
}

/* Stages of long chains: each is taken for all vectors of a step before the next one. */
static bool ends_stage(const LoopKernel *k, const KStmt *s)
{
    if (k->sub->kind != SUB_scan && k->sub->kind != SUB_map) return false;
    return s->kind == KS_update || (s->kind == KS_val && is_dear(s->val));
}

static void escape_walk(Escape *x, const KBlock *b, int nv)
{
    int seg = ++x->seg;
    const LoopKernel *was;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        switch (s->kind) {
        case KS_val:
            x->at[s->val->id] = seg;
            x->nv[s->val->id] = nv;
            x->p->vals[s->val->id] = s->val;
            for (int j = 0; j < s->val->nin; j++) escape_use(x, s->val->in[j], seg, s->vary);
            for (int j = 0; j < s->val->nopnd; j++) escape_use(x, s->val->opnd[j], seg, s->vary);
            break;
        case KS_store:
            escape_use(x, s->val, seg, s->vary);
            for (int j = 0; j < s->nopnd; j++) escape_use(x, s->opnd[j], seg, s->vary);
            break;
        case KS_update: {
            uint8_t vary = s->vary | s->fold->vary;
            escape_use(x, s->fold->value, seg, vary);
            escape_use(x, s->fold->power, seg, vary);
            escape_use(x, s->fold->mul_a, seg, vary);
            escape_use(x, s->fold->mul_b, seg, vary);
            escape_use(x, s->fold->index, seg, vary);
            break;
        }
        case KS_loop:
            was = x->p->k;
            if (s->loop->tile > 1) x->p->k = tiled(x->p, s->loop, false);
            escape_walk(x, s->loop->body, !s->loop->vector ? nv : x->p->held ? x->p->held : s->loop->nv);
            x->p->k = was;
            if (!x->p->k->unit || s->loop->vector) seg = ++x->seg;       /* what is around a sum on the unit for tiles is one segment */
            break;
        case KS_fold: escape_use(x, s->fold->start, seg, s->fold->vary); break;
        case KS_skip: case KS_fetch: break;
        }
        if (nv > 1 && ends_stage(x->p->k, s)) seg = ++x->seg;
    }
}

void print_prepare(Printer *p)
{
    int n = p->k->nval + 1;
    p->vals = NEWS(p->arena, const KVal *, n);
    p->array = NEWS(p->arena, uint8_t, n);
    p->spread = NEWS(p->arena, uint8_t, n);
    Escape x = { p, 0, NEWS(p->arena, int, n), NEWS(p->arena, int, n) };
    escape_walk(&x, p->k->top, 1);
    escape_walk(&x, p->k->body, 1);
}

/* ---- segments ------------------------------------------------------------------------------------------------------------------------------ */
static void print_stmt(Printer *p, const KStmt *s)
{
    switch (s->kind) {
    case KS_val: print_val(p, s->val); break;
    case KS_store: print_store(p, s); break;
    case KS_update: print_update(p, s); break;
    case KS_skip: print_line(p, "if (!(%s)) continue;", print_operand(p, s->val)); break;
    case KS_fetch:                       /* maybe past its end */
        print_line(p, "%s(b%d, %s);", s->written ? "fetch_own" : s->far ? "fetch" : "fetch_near", s->buf, print_dim(p, dim_mulc(p->g, s->at.off, (int64_t)dtype_size(p->k->buf.at[s->buf].dt))));
        break;
    case KS_fold: case KS_loop: break;
    }
}

static uint8_t stmt_vary(const Printer *p, const KStmt *s)
{
    uint8_t v = s->kind == KS_update ? s->vary | s->fold->vary : s->vary;
    if (!p->lane) v &= (uint8_t)~VARY_lane;
    if (p->k->bundle) v &= (uint8_t)~VARY_row;       /* one row at a time */
    return v;
}

/* What an update computes by itself, the product of a fused multiply-add or a power of e, is not printed on its own. */
static bool skipped(const KBlock *b, const KStmt *s)
{
    if (s->kind == KS_fold || s->kind == KS_loop) return true;
    if (s->kind != KS_val) return false;
    if (s->val->kind == KV_const) return true;
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind == KS_update && b->stmt.at[i].fold->power && b->stmt.at[i].fold->value == s->val) return true;
        if (b->stmt.at[i].kind == KS_update && b->stmt.at[i].fold->mul_a && b->stmt.at[i].fold->value == s->val) {
            for (int j = 0; j < b->stmt.n; j++) {            /* unless something else uses it */
                const KStmt *u = &b->stmt.at[j];
                if (u->kind == KS_store && u->val == s->val) return false;
                if (u->kind == KS_update && u->fold->value == s->val && !u->fold->mul_a) return false;
                if (u->kind == KS_val) for (int q = 0; q < u->val->nin; q++) if (u->val->in[q] == s->val) return false;
            }
            return true;
        }
    }
    return false;
}

static bool phase_any(const Printer *p, const KBlock *b, int from, int to, uint8_t mask, uint8_t want)
{
    for (int i = from; i < to; i++) if (!skipped(b, &b->stmt.at[i]) && (stmt_vary(p, &b->stmt.at[i]) & mask) == want) return true;
    return false;
}

static void phase(Printer *p, const KBlock *b, int from, int to, uint8_t want)
{
    for (int i = from; i < to; i++) if (!skipped(b, &b->stmt.at[i]) && stmt_vary(p, &b->stmt.at[i]) == want) print_stmt(p, &b->stmt.at[i]);
}

const char *print_rem(const Printer *p) { return p->in_v ? "remv" : "rem"; }

bool rows_whole(const LoopKernel *k) { return k->row_fits || (k->row_extent && !k->row_open && dim_is_const(k->row_extent) && k->row_extent->c % k->mr == 0); }

static void vectors_open(Printer *p)
{
    if (p->nv == 1) return;
    print_line(p, "UNROLL for (int v = 0; v < %d; v++) {", p->nv);
    print_line(p, "const i64 %sv = %s + v * %s;", print_var(p, p->lane), print_var(p, p->lane), p->k->half ? "(LANES / 2)" : "LANES");
    if (p->part) print_line(p, "const i64 remv = imin(rem - v * LANES, LANES);");
    p->in_v = true;
}

static void vectors_close(Printer *p)
{
    if (p->nv == 1) return;
    p->in_v = false;
    print_line(p, "}");
}

/* What varies so, for each vector of a step. */
static void phase_vectors(Printer *p, const KBlock *b, int from, int to, uint8_t want)
{
    if (!phase_any(p, b, from, to, 3, want)) return;
    int joined = 0;
    for (int i = from; i < to; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (stmt_vary(p, s) != want || !print_joined(p, s)) continue;
        bool twice = false;
        for (int j = from; j < i; j++) twice |= stmt_vary(p, &b->stmt.at[j]) == want && print_joined(p, &b->stmt.at[j]) && b->stmt.at[j].val == s->val;
        if (!twice) print_line(p, "i32v q%d[%d];", s->val->id, p->nv);
        joined++;
    }
    p->joins = joined > 0;
    vectors_open(p);
    phase(p, b, from, to, want);
    vectors_close(p);
    p->joins = false;
    for (int i = from; i < to && joined; i++) if (stmt_vary(p, &b->stmt.at[i]) == want && print_joined(p, &b->stmt.at[i])) print_joined_store(p, &b->stmt.at[i]);
}

enum { LONG_ROWS = 64 };                 /* statements, all copies counted */

/* Many statements for each row, and no accumulator updated: a loop over the rows costs nothing beside them, and copies of them cost the compiler much. */
static bool is_long(const Printer *p, const KBlock *b, int from, int to)
{
    int n = 0;
    bool dear = false;
    if (p->simt || p->held) return false;           /* arrays with an index that is not known lie in memory */
    for (int i = from; i < to; i++) {
        const KStmt *s = &b->stmt.at[i];
        if ((s->kind == KS_update && (s->fold->vary & VARY_row)) || (s->kind == KS_val && s->val->kind == KV_fold && (s->val->fold->kind == FOLD_argmax || s->val->fold->kind == FOLD_argmin))) return false;
        n += !skipped(b, s) && (stmt_vary(p, s) & VARY_row);
        dear |= s->kind == KS_val && is_dear(s->val);
    }
    return (n > 5 || dear) && p->k->mr > 2 && n * p->k->mr * (p->lane ? p->nv : 1) > LONG_ROWS;
}

void print_row(Printer *p)
{
    const char *r = print_var(p, p->k->row_var);
    if (rows_whole(p->k) || p->shifted || p->inside) print_line(p, "const i64 %sm = %s + m;", r, r);
    else print_line(p, "const i64 %sr = %s + m, %sm = imin(%sr, %s - 1);", r, r, r, r, print_dim(p, p->k->row_extent));
}

/* Arrays of a segment. */
static void segment_open(Printer *p, const KBlock *b, int from, int to)
{
    const LoopKernel *k = p->k;
    for (int i = from; i < to; i++) if (b->stmt.at[i].kind == KS_fold) print_fold(p, b->stmt.at[i].fold);
    for (int i = from; i < to; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_val && p->array[s->val->id] && !skipped(b, s)) {
            bool lane = p->lane && (s->val->vary & VARY_lane);
            print_line(p, "%s%s v%d%s%s;", dtype_info[dtype_info[s->val->dt].compute].name, s->val->half ? half_suffix(p, s->val) : lane ? "v" : "", s->val->id,
                (s->val->vary & VARY_row) && k->mr > 1 ? arena_fmt(p->arena, "[%d]", k->mr) : "", lane ? arena_fmt(p->arena, "[%d]", p->nv) : "");
        }
    }
}

/* What is the same for all rows of a tile. */
static void segment_shared(Printer *p, const KBlock *b, int from, int to)
{
    phase(p, b, from, to, 0);
    for (int at = from, end; at < to; at = end) {
        for (end = at + 1; end < to && (p->nv == 1 || !ends_stage(p->k, &b->stmt.at[end - 1])); end++) { }
        phase_vectors(p, b, at, end, VARY_lane);
    }
}

/* What differs, for the row m. */
static void segment_row(Printer *p, const KBlock *b, int from, int to)
{
    print_row(p);
    p->in_m = true;
    phase(p, b, from, to, VARY_row);
    phase_vectors(p, b, from, to, VARY_row | VARY_lane);
    p->in_m = false;
}

void print_stmts(Printer *p, const KBlock *b, int from, int to)
{
    for (int i = from; i < to; i++) if (!skipped(b, &b->stmt.at[i])) print_stmt(p, &b->stmt.at[i]);
}

static void print_segment(Printer *p, const KBlock *b, int from, int to)
{
    const LoopKernel *k = p->k;
    bool rows = k->mr > 1 && b != k->top, vecs = p->lane && p->nv > 1;
    segment_open(p, b, from, to);
    if (!rows && !vecs) print_stmts(p, b, from, to);
    else segment_shared(p, b, from, to);
    for (int i = from; i < to; i++) if (b->stmt.at[i].kind == KS_fold && b->stmt.at[i].fold->start) print_begin(p, b->stmt.at[i].fold);
    if (rows || vecs) {
        if (phase_any(p, b, from, to, VARY_row, VARY_row)) {
            p->rolled = is_long(p, b, from, to);
            for (int i = from; i < to && p->rolled; i++)
                if (b->stmt.at[i].kind == KS_val && b->stmt.at[i].val->kind == KV_fold && (b->stmt.at[i].vary & VARY_row) && !sums_at_once(p, b->stmt.at[i].val->fold)) print_rolled(p, b->stmt.at[i].val->fold);
            for (int i = from; i < to; i++)
                if (b->stmt.at[i].kind == KS_val && b->stmt.at[i].val->kind == KV_fold && sums_at_once(p, b->stmt.at[i].val->fold)) print_sums(p, b->stmt.at[i].val->fold);
            for (int i = from; i < to && p->rolled; i++) if (!skipped(b, &b->stmt.at[i]) && stmt_vary(p, &b->stmt.at[i]) == (VARY_row | VARY_lane)) print_spread(p, &b->stmt.at[i]);
            print_line(p, "%sfor (int m = %d; m < %d; m++) {", p->rolled ? "" : "UNROLL ", p->row_from, p->row_past ? p->row_past : k->mr);
            segment_row(p, b, from, to);
            p->rolled = false;
            print_line(p, "}");
            memset(p->spread, 0, (size_t)k->nval + 1);
        }
    }
}

void print_shared(Printer *p, const KBlock *b)
{
    segment_open(p, b, 0, b->stmt.n);
    segment_shared(p, b, 0, b->stmt.n);
}

void print_of_row(Printer *p, const KBlock *b) { segment_row(p, b, 0, b->stmt.n); }

/* ---- loops ----------------------------------------------------------------------------------------------------------------------------------- */
static void chunk_folds(Printer *p, const KLoop *o, const KBlock *b, ChunkPart part)
{
    for (int i = 0; o->chunk && i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind == KS_update && fold_in_loop(b->stmt.at[i].fold, o)) print_chunk(p, b->stmt.at[i].fold, o, part);
        if (b->stmt.at[i].kind == KS_loop) chunk_folds(p, o, b->stmt.at[i].loop->body, part);
    }
}

static void chunk_open(Printer *p, const KLoop *o, const char *v, const char *from, const char *n)
{
    chunk_folds(p, o, o->body, CHUNK_open);
    print_line(p, "for (i64 %sc = %s; %sc < %s; %sc += %lld) {", v, from, v, n, v, (long long)o->chunk);
    print_line(p, "const i64 %se = imin(%sc + %lld, %s);", v, v, (long long)o->chunk, n);
}

static void chunk_close(Printer *p, const KLoop *o)
{
    for (int i = 0; o == p->k->pivoted && !p->k->bundle && i < o->body->stmt.n; i++)
        if (o->body->stmt.at[i].kind == KS_update && o->body->stmt.at[i].fold->power) print_pivot(p, o, o->body->stmt.at[i].fold);
    chunk_folds(p, o, o->body, CHUNK_add);
    print_line(p, "}");
    chunk_folds(p, o, o->body, CHUNK_close);
}

/* ---- the last loop, late ------------------------------------------------------------------------------------------------------------------ */
/* Its text is the same wherever it stands: names of the point before hide those of this one. */
static void late_names(Printer *p)
{
    const LoopKernel *k = p->k;
    for (int i = 0; i < k->npar; i++) print_line(p, "const i64 %s = %s_late;", print_var(p, k->par[i].var), print_var(p, k->par[i].var));
    for (int i = 0; i < p->kept.n; i++) {
        const KVal *v = p->kept.at[i];
        print_line(p, "const %s v%d = v%d_late;", dtype_info[dtype_info[v->dt].compute].name, v->id, v->id);
    }
    for (int i = 0; i < k->buf.n; i++) if (k->buf.at[i].twice) print_line(p, "const %s *const b%d = b%d_late;", gen_storage(k->buf.at[i].dt), i, i);
}

static void late_keep(Printer *p, const KVal *v)
{
    if (!v || v->kind == KV_const || v->block == p->k->late->body || v->block == p->k->top) return;
    for (int i = 0; i < p->kept.n; i++) if (p->kept.at[i] == v) return;
    vec_push(p->arena, &p->kept, v);
}

void print_late_declare(Printer *p)
{
    const LoopKernel *k = p->k;
    for (int i = 0; i < k->late->body->stmt.n; i++) {
        const KStmt *s = &k->late->body->stmt.at[i];
        late_keep(p, s->val->block == k->late->body ? NULL : s->val);
        for (int j = 0; s->kind == KS_val && j < s->val->nin; j++) late_keep(p, s->val->in[j]);
    }
    for (int i = 0; i < k->npar; i++) print_line(p, "i64 %s_late = 0;", print_var(p, k->par[i].var));
    for (int i = 0; i < p->kept.n; i++) print_line(p, "%s v%d_late = 0;", dtype_info[dtype_info[p->kept.at[i]->dt].compute].name, p->kept.at[i]->id);
}

void print_late_keep(Printer *p)
{
    const LoopKernel *k = p->k;
    for (int i = 0; i < k->npar; i++) print_line(p, "%s_late = %s;", print_var(p, k->par[i].var), print_var(p, k->par[i].var));
    for (int i = 0; i < p->kept.n; i++) print_line(p, "v%d_late = v%d;", p->kept.at[i]->id, p->kept.at[i]->id);
    for (int i = 0; i < k->buf.n; i++) {
        if (!k->buf.at[i].twice) continue;
        print_line(p, "{");
        print_line(p, "%s *const was = b%d;", gen_storage(k->buf.at[i].dt), i);
        print_line(p, "b%d = b%d_late;", i, i);
        print_line(p, "b%d_late = was;", i);
        print_line(p, "}");
    }
}

static void print_vector_loop(Printer *p, const KLoop *o);
void print_late_finish(Printer *p)
{
    print_line(p, "if (lo < hi) {");
    late_names(p);
    print_vector_loop(p, p->k->late);
    print_line(p, "}");
}

/* Where the block of a parallel variable ends. */
static const char *block_end(Printer *p, const KLoop *o)
{
    int64_t step = 1;
    for (int i = 0; i < p->k->npar; i++) if (p->k->par[i].var == o->var) step = p->k->par[i].step;
    return arena_fmt(p->arena, "imin(%s0 + %lld, %s)", print_var(p, o->var), (long long)step, print_dim(p, o->extent));
}

/* A row that stays in registers: all of its vectors. */
static void print_held_loop(Printer *p, const KLoop *o)
{
    print_line(p, "{");
    print_line(p, "const i64 %s = 0;", print_var(p, o->var));
    p->lane = o->var;
    p->nv = p->held;
    print_block(p, o->body);
    p->lane = NULL;
    p->nv = 1;
    print_line(p, "}");
}

static void print_vector_loop(Printer *p, const KLoop *o)
{
    if (p->held) { print_held_loop(p, o); return; }
    const char *v = print_var(p, o->var), *from = "0", *end;
    Dim *lane = p->lane;
    int nv = p->nv;
    p->lane = NULL;                      /* bounds do not vary */
    if (o->blocked) {
        from = arena_fmt(p->arena, "%s0", v);
        end = block_end(p, o);
    } else {
        if (o->from) from = print_dim(p, o->from);
        end = print_dim(p, o->extent);
    }
    p->lane = lane;
    print_line(p, "{");
    if (o->chunk) {
        chunk_open(p, o, v, from, end);
        from = arena_fmt(p->arena, "%sc", v);
        end = arena_fmt(p->arena, "%se", v);
    }
    print_line(p, "const i64 end = %s;", end);
    print_line(p, "i64 %s = %s;", v, from);
    p->lane = o->var;
    bool halves = p->k->half && o->nv > 1;
    int64_t step = (int64_t)o->nv * (halves ? p->k->lanes / 2 : p->k->lanes), rest = dim_is_const(o->extent) && !o->from ? o->extent->c % step : -1;        /* what whole steps leave over, where known */
    int64_t likely = rest < 0 && o->blocked && p->k->sub->kind == SUB_stream ? dim_hint(p->g, o->extent) % step : rest;          /* a vector more that has nothing does no harm */
    for (int pass = 0; pass < 2; pass++) {
        p->part = pass == 1 && (rest < 0 || rest % p->k->lanes);       /* else whole vectors are left over */
        p->nv = !pass ? o->nv : o->blocked && likely > 0 ? (int)((likely + p->k->lanes - 1) / p->k->lanes) : 1;
        if (pass ? rest == 0 : rest >= 0 && o->extent->c < step) continue;
        const char *unit = p->nv == 1 ? "LANES" : arena_fmt(p->arena, halves ? "%d * (LANES / 2)" : "%d * LANES", p->nv);
        if (p->k->unit) { print_unit(p, o); continue; }
        if (p->part && o->nv == 1 && p->k->bundle) {          /* there is one at most; elsewhere registers were seen to be given out worse */
            print_line(p, "if (__builtin_expect(%s < end, 0)) {", v);
            print_line(p, "const i64 rem = end - %s;", v);
        } else if (p->part) {
            print_line(p, "for (; %s < end; %s += %s) {", v, v, unit);
            print_line(p, "const i64 rem = imin(end - %s, %s);", v, unit);
        } else print_line(p, "for (; %s + %s <= end; %s += %s) {", v, unit, v, unit);
        print_block(p, o->body);
        if (o == p->k->during) {
            print_line(p, "if (point > lo) {");
            late_names(p);
            print_block(p, p->k->late->body);
            print_line(p, "}");
        }
        print_line(p, "}");
    }
    p->part = false;
    p->lane = lane;
    p->nv = nv;
    if (o->chunk) chunk_close(p, o);
    print_line(p, "}");
}

/* A running fold by a team: the part up to the update, then all of them folded, then what uses the results. */
static bool print_team_scan(Printer *p, const KLoop *o)
{
    const KBlock *b = o->body;
    int at = 0;
    while (at < b->stmt.n && !(b->stmt.at[at].kind == KS_update && b->stmt.at[at].fold->running)) at++;
    if (at == b->stmt.n) return false;
    const KFold *f = b->stmt.at[at].fold;
    const char *v = print_var(p, o->var), *n = print_dim(p, o->extent);
    bool was = p->in_team;
    print_line(p, "for (i64 %s_0 = 0; %s_0 < %s; %s_0 += %d) {", v, v, n, v, o->team);
    print_line(p, "const i64 %s = %s_0 + thread;", v, v);
    p->in_team = true;
    print_scan_open(p, f);
    print_line(p, "if (%s < %s) {", v, n);
    print_segment(p, b, 0, at);
    print_scan_take(p, f);
    print_line(p, "}");
    print_scan_fold(p, f, o->team);
    print_line(p, "if (%s < %s) {", v, n);
    for (int i = 0; i < at; i++) if (b->stmt.at[i].kind == KS_val) print_val(p, b->stmt.at[i].val);      /* again: what follows may need it */
    print_segment(p, b, at + 1, b->stmt.n);
    print_line(p, "}");
    print_line(p, "a%d = e%d;", f->id, f->id);
    print_line(p, "}");
    p->in_team = was;
    return true;
}

/* Iterations dealt out to the threads of a team; bounds are the same for all of them. */
static void print_team_loop(Printer *p, const KLoop *o)
{
    const char *v = print_var(p, o->var), *n = print_dim(p, o->extent), *from = o->from ? arena_fmt(p->arena, "%s + ", print_dim(p, o->from)) : "";
    bool was = p->in_team;
    if (o->chunk) {
        print_line(p, "{");
        chunk_open(p, o, v, o->from ? print_dim(p, o->from) : "0", n);
        from = arena_fmt(p->arena, "%sc + ", v);
        n = arena_fmt(p->arena, "%se", v);
    }
    print_line(p, "for (i64 %s = %sthread; %s < %s; %s += %d) {", v, from, v, n, v, o->team);
    p->in_team = true;
    print_block(p, o->body);
    p->in_team = was;
    print_line(p, "}");
    if (!o->chunk) return;
    chunk_close(p, o);
    print_line(p, "}");
}

/* Strides of an address along the lanes and along a loop, where they are the same everywhere. */
static bool strides(Printer *p, const KAddr *a, const KLoop *o, Dim **lane, Dim **along)
{
    Dim *rest;
    return !a->npred && dim_linear(p->g, a->off, p->lane->var, lane, &rest) && dim_linear(p->g, a->off, o->var->var, along, &rest) && !dim_uses(*lane, o->var->var);
}

/* A loop of a stream that copies between memory, where its lanes lie apart and its turns together, and scratch, where it is the other way round: by squares that
 * are turned over in registers, as far as the loop has whole ones. Scratch has room for whole vectors. True: the loop itself is for the rest. */
static bool print_turned(Printer *p, const KLoop *o)
{
    const KBlock *b = o->body;
    if (!p->lane || p->k->sub->kind != SUB_stream || o->from || o->step > 1 || o->tile > 1 || b->stmt.n != 2 || b->stmt.at[0].kind != KS_val || b->stmt.at[1].kind != KS_store) return false;
    const KStmt *to = &b->stmt.at[1];
    const KVal *from = b->stmt.at[0].val;
    const KBuf *fb = &p->k->buf.at[from->buf], *tb = &p->k->buf.at[to->buf];
    Dim *fl, *fa, *tl, *ta;
    if (from->kind != KV_load || to->val != from || to->how != COMBINE_set || from->nopnd || to->nopnd || from->dt != DT_f32 || fb->dt != DT_f32 || tb->dt != DT_f32) return false;
    if (!strides(p, &from->at, o, &fl, &fa) || !strides(p, &to->at, o, &tl, &ta)) return false;
    bool in = tb->scratch && dim_is(fa, 1) && dim_is(tl, 1), out = fb->scratch && dim_is(fl, 1) && dim_is(ta, 1);
    if (in == out) return false;
    const char *v = print_var(p, o->var);
    print_line(p, "for (i64 %s = 0; %s + LANES <= %s; %s += LANES) {", v, v, print_dim(p, o->extent), v);
    vectors_open(p);
    const char *real = p->part ? print_rem(p) : "LANES";
    print_line(p, "turn_f32v(%s, %s, %s, %s, %s, %s);", print_place(p, from->buf, from->at.off), print_dim(p, in ? fl : fa), in ? real : "LANES",
        print_place(p, to->buf, to->at.off), print_dim(p, in ? ta : tl), in ? "LANES" : real);
    vectors_close(p);
    print_line(p, "}");
    return true;
}

/* A turn of a loop for some rows of the tile only. */
static void print_turn_rows(Printer *p, const KLoop *o, const char *when, int from, int past)
{
    print_line(p, "%s {", when);
    p->row_from = from; p->row_past = past;
    if (from < past) print_block(p, o->body);
    p->row_from = p->row_past = 0;
    print_line(p, "}");
}

static void print_turn(Printer *p, const KLoop *o)
{
    if (!o->row_from) { print_block(p, o->body); return; }
    const char *v = print_var(p, o->var), *row = print_var(p, p->k->row_var);
    int mr = p->k->mr;
    print_line(p, "const i64 %sb = %s - %s, %sa = %s + %d - (%s);", v, print_dim(p, o->row_from), row, v, row, mr, print_dim(p, o->row_past));
    print_turn_rows(p, o, arena_fmt(p->arena, "if (%sb <= 0 && %sa <= 0)", v, v), 0, mr);
    for (int n = 1; n <= o->before && n <= mr; n++) print_turn_rows(p, o, arena_fmt(p->arena, "else if (%sb == %d)", v, n), n, mr);
    for (int n = 1; n <= o->after && n <= mr; n++) print_turn_rows(p, o, arena_fmt(p->arena, "else if (%sa == %d)", v, n), 0, mr - n);
}

/* A loop over the rows of a register tile. Where lanes run across it there is a text for tiles that do not reach past the end: each row's address is then a number away from the
 * first one's, and no register is needed for it. */
static void print_tiles(Printer *p, const KLoop *o)
{
    const LoopKernel *was = p->k, *whole = tiled(p, o, true);
    const char *v = print_var(p, o->var), *n = print_dim(p, o->extent), *from = o->from ? print_dim(p, o->from) : "0";
    bool shifted = p->shifted, fits = was->lanes > 1 && o->tile == was->lanes && !rows_whole(tiled(p, o, false));
    p->shifted = false;
    if (fits) {
        print_line(p, "{");
        print_line(p, "i64 %sf = %s;", v, from);
        print_line(p, "for (; %sf + %d <= %s; %sf += %d) {", v, o->tile, n, v, o->tile);
        print_line(p, "const i64 %s = %sf;", v, v);
        p->k = whole;
        print_turn(p, o);
        print_line(p, "}");
        from = arena_fmt(p->arena, "%sf", v);
    }
    print_line(p, "%sfor (i64 %s = %s; %s < %s; %s += %d) {", o->unroll && !p->border ? "UNROLL " : "", v, from, v, n, v, o->tile);
    p->k = tiled(p, o, false);
    print_turn(p, o);
    print_line(p, "}");
    if (fits) print_line(p, "}");
    p->k = was;
    p->shifted = shifted;
}

/* Tiles of places from `from` to `past`. The last one begins earlier, or there is a text for tiles that do not reach past the end, and one for the rest. False: o is no such loop. */
static bool print_places(Printer *p, const KLoop *o, const char *from, const char *past)
{
    const LoopKernel *was = p->k;
    const char *v = print_var(p, o->var);
    const int mr = was->mr;
    if (!o->places || o->var != was->row_var || mr == 1) return false;
    if (p->shifted) {
        print_line(p, "for (i64 %sf = %s; %sf < %s; %sf += %d) {", v, from, v, past, v, mr);
        print_line(p, "const i64 %s = imin(%sf, %s - %d);", v, v, print_dim(p, o->extent), mr);
        print_turn(p, o);
        print_line(p, "}");
        return true;
    }
    LoopKernel *fits = arena_copy(p->arena, was, sizeof *was);
    fits->row_fits = true;
    print_line(p, "{");
    print_line(p, "i64 %sf = %s;", v, from);
    print_line(p, "for (; %sf + %d <= %s; %sf += %d) {", v, mr, past, v, mr);
    print_line(p, "const i64 %s = %sf;", v, v);
    p->k = fits;
    print_turn(p, o);
    p->k = was;
    print_line(p, "}");
    if (!rows_whole(was)) {
        print_line(p, "for (i64 %s = %sf; %s < %s; %s += %d) {", v, v, v, past, v, mr);
        p->border = p->rest = true;
        print_turn(p, o);
        p->border = p->rest = false;
        print_line(p, "}");
    }
    print_line(p, "}");
    return true;
}

static void print_loop_once(Printer *p, const KLoop *o)
{
    if (o->team > 1 && print_team_scan(p, o)) return;
    if (o->team > 1) { print_team_loop(p, o); return; }
    if (o->vector) { print_vector_loop(p, o); return; }
    const char *v = print_var(p, o->var);
    if (o->blocked) {
        print_line(p, "for (i64 %s = %s0, %se = %s; %s < %se; %s++) {", v, v, v, block_end(p, o), v, v, v);
        print_turn(p, o);
        print_line(p, "}");
        return;
    }
    const char *n = print_dim(p, o->extent);
    if (o->chunk) {
        print_line(p, "{");
        chunk_open(p, o, v, o->from ? print_dim(p, o->from) : "0", n);
        if (!print_places(p, o, arena_fmt(p->arena, "%sc", v), arena_fmt(p->arena, "%se", v))) {
            print_line(p, "for (i64 %s = %sc; %s < %se; %s += %lld) {", v, v, v, v, v, o->step > 1 ? (long long)o->step : 1);
            print_turn(p, o);
            print_line(p, "}");
        }
        chunk_close(p, o);
        print_line(p, "}");
        return;
    }
    if (o->tile > 1) { print_tiles(p, o); return; }
    int64_t step = o->step;
    const char *from = o->from ? print_dim(p, o->from) : "0", *unroll = o->unroll && !p->border ? "UNROLL " : "";
    if (print_turned(p, o)) from = arena_fmt(p->arena, "%s / LANES * LANES", n);
    if (print_places(p, o, from, n)) return;
    if (step > 1) print_line(p, "%sfor (i64 %s = %s; %s < %s; %s += %lld) {", unroll, v, from, v, n, v, (long long)step);
    else print_line(p, "%sfor (i64 %s = %s; %s < %s; %s++) {", unroll, v, from, v, n, v);
    print_turn(p, o);
    print_line(p, "}");
}

/* A loop in which a NaN would be lost, and once more if there was one. */
static bool print_quick(Printer *p, const KLoop *o)
{
    if (p->quick || p->exact || !loop_quick(p, o)) return false;
    const char *v = print_var(p, o->var);
    print_line(p, "{");
    print_line(p, "u16 nan_%s = 0;", v);
    p->quick = true;
    print_loop(p, o);
    p->quick = false;
    print_line(p, "if (nan_%s) {", v);
    print_again(p, o->body);
    p->exact = true;
    print_loop(p, o);
    p->exact = false;
    print_line(p, "}");
    print_line(p, "}");
    return true;
}

enum { BORDER_TILES = 8 };               /* so many tiles in a row, of which the first and the last are at the border */
void print_loop(Printer *p, const KLoop *o)
{
    if (print_quick(p, o)) return;
    const char *inside = o->split && !p->inside && !p->rest ? print_inside(p, o) : NULL;
    if (!inside) { print_loop_once(p, o); return; }
    print_line(p, "if (%s) {", inside);
    p->inside = true;
    print_loop_once(p, o);
    p->inside = false;
    print_line(p, "}");
    print_line(p, "else {");
    p->border = p->k->row_var && !dim_is_const(p->k->row_extent) && tile_rows_hint(p->k) >= BORDER_TILES * p->k->mr;       /* else it is short enough */
    print_loop_once(p, o);
    p->border = false;
    print_line(p, "}");
}

void print_block(Printer *p, const KBlock *b)
{
    int from = 0;
    for (int i = 0; i <= b->stmt.n; i++) {
        if (i < b->stmt.n && b->stmt.at[i].kind != KS_loop) continue;
        print_segment(p, b, from, i);
        if (i < b->stmt.n && b->stmt.at[i].loop != p->k->late) print_loop(p, b->stmt.at[i].loop);
        from = i + 1;
    }
}
