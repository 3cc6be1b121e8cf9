/* Accumulators of folds in C: their declaration, an update for each turn of a loop, and what they come to.
 *
 * An accumulator is one variable, or an array over the rows and vectors of a tile. A fold whose own loop runs in lanes has a vector of partial results, which are put
 * together when the loop is over; one whose place differs by lane has an accumulator in each lane. Sums of many terms are added up in chunks; folds that a team of threads
 * shares end in a macro of the prelude; running folds leave what they have come to beside the accumulator. */
#include "gen/gen.h"

static bool is_arg(const KFold *f) { return f->kind == FOLD_argmax || f->kind == FOLD_argmin; }
/* accumulators with lanes: one for each lane of the loop around (mode of a contraction), or of its own vector loop */
static uint8_t acc_vary(const KFold *f) { return (f->vary & VARY_row) | (f->own || (f->vary & VARY_lane) ? VARY_lane : 0); }
static int acc_nv(const Printer *p, const KFold *f) { return !f->own ? p->nv : p->held ? 1 : f->own->nv; }

/* What a fold begins with. */
static Scalar fold_identity(FoldKind k, DType t) { return fold_start(k == FOLD_argmax ? FOLD_max : k == FOLD_argmin ? FOLD_min : k, t); }

static const char *acc_name(Printer *p, const KFold *f, const char *letter)
{
    if (p->cell) return arena_fmt(p->arena, "%s%d%s", letter, f->id, p->cell);
    if (f->unit) return arena_fmt(p->arena, "%s%d[m - first][%s]", letter, f->id, p->in_v ? "v" : "0");
    if (p->held) return arena_fmt(p->arena, "%s%d%s%s", letter, f->id, print_subscript(p, acc_vary(f), false), acc_vary(f) & VARY_lane ? "[0]" : "");
    return arena_fmt(p->arena, "%s%d%s", letter, f->id, print_subscript(p, acc_vary(f), acc_vary(f) & VARY_lane));
}

/* Runs fn for each element of an accumulator array. */
static void acc_each(Printer *p, const KFold *f, bool lane_loop)
{
    if ((acc_vary(f) & VARY_row) && p->k->mr > 1) { print_line(p, "UNROLL for (int m = 0; m < %d; m++) {", p->k->mr); p->in_m = true; }
    if (lane_loop && (acc_vary(f) & VARY_lane) && acc_nv(p, f) > 1) { print_line(p, "UNROLL for (int v = 0; v < %d; v++) {", acc_nv(p, f)); p->in_v = true; }
}

static void acc_each_end(Printer *p, const KFold *f, bool lane_loop)
{
    if (lane_loop && (acc_vary(f) & VARY_lane) && acc_nv(p, f) > 1) { print_line(p, "}"); p->in_v = false; }
    if ((acc_vary(f) & VARY_row) && p->k->mr > 1) { print_line(p, "}"); p->in_m = false; }
}

static const char *acc_dims(Printer *p, const KFold *f)
{
    const char *m = (acc_vary(f) & VARY_row) && p->k->mr > 1 ? arena_fmt(p->arena, "[%d]", p->k->mr) : "";
    return acc_vary(f) & VARY_lane ? arena_fmt(p->arena, "%s[%d]", m, acc_nv(p, f)) : m;
}

static const char *acc_suffix(const Printer *p, const KFold *f) { return f->half && !p->k->paired ? "h" : acc_vary(f) & VARY_lane ? "v" : ""; }

const char *print_identity(Printer *p, const KFold *f)
{
    const char *id = print_literal(p, f->dt, fold_identity(f->kind, f->dt));
    return acc_vary(f) & VARY_lane ? arena_fmt(p->arena, "splat_%s%s(%s)", print_held(f->dt), acc_suffix(p, f), id) : id;
}

/* The largest (least) number of a row and whether there was a NaN are found apart: together they take three instructions, and wait for one another. */
static bool nan_apart(const Printer *p, const KFold *f) { return !p->simt && !f->loose && f->own && !f->running && f->dt == DT_f32 && (f->kind == FOLD_max || f->kind == FOLD_min); }

/* Its accumulators before the first element. */
void print_begin(Printer *p, const KFold *f)
{
    acc_each(p, f, true);
    print_line(p, "%s = %s;", acc_name(p, f, "a"), f->start ? print_operand_as(p, f->start, acc_vary(f)) : print_identity(p, f));
    if (is_arg(f)) print_line(p, "%s = %s;", acc_name(p, f, "x"), acc_vary(f) & VARY_lane ? "splat_i64v(0)" : "0");
    acc_each_end(p, f, true);
}

/* The same where each lane has a result of its own: there are not so many masks as vectors, so one tells whether a NaN was met at all, and if so the loop is run again
 * with exact steps. */
enum { QUICK_TURNS = 32 };
static bool nan_late(const Printer *p, const KFold *f)
{
    const LoopKernel *k = p->k;
    if (p->simt || k->lanes < 16 || k->sub->kind != SUB_rows || !k->vec_var || k->mr > 1 || !f->loop || f->loose || f->own || f->running || f->dt != DT_f32 || (f->kind != FOLD_max && f->kind != FOLD_min)) return false;
    return (f->vary & VARY_lane) && dim_hint(p->g, loop_times(f->loop)) >= QUICK_TURNS;
}

/* Are all results of the loop o the same when it is run again from the beginning, and would one of them be computed quicker if there were no NaN? */
static bool quick_walk(const Printer *p, const KLoop *o, const KBlock *b, bool *any)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop ? s->loop->vector || s->loop->chunk || !quick_walk(p, o, s->loop->body, any) : s->kind == KS_store || s->kind == KS_skip) return false;
        if (s->kind == KS_val && (s->val->kind == KV_random || s->val->kind == KV_check)) return false;
        if (s->kind != KS_update) continue;
        if (s->fold->loop != o || s->fold->running) return false;
        *any |= nan_late(p, s->fold);
    }
    return true;
}

bool loop_quick(const Printer *p, const KLoop *o)
{
    bool any = false;
    return !o->vector && !o->chunk && !o->blocked && o->tile <= 1 && o->team <= 1 && quick_walk(p, o, o->body, &any) && any;
}

void print_again(Printer *p, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_loop) print_again(p, s->loop->body);
        else if (s->kind == KS_update) print_begin(p, s->fold);
    }
}

static const char *nan_name(Printer *p, const KFold *f) { return arena_fmt(p->arena, "nan%d%s", f->id, print_subscript(p, acc_vary(f), false)); }

/* Does the update leave what the running fold comes to there beside the accumulator? Along lanes, and where the place itself does not count. */
static bool runs_beside(const Printer *p, const KFold *f) { return !p->simt && f->running && (f->own || f->before); }

void print_fold(Printer *p, const KFold *f)
{
    if (f->unit) return;
    if (runs_beside(p, f)) print_line(p, "%s%s w%d%s;", print_held(f->dt), acc_suffix(p, f), f->id, acc_dims(p, f));
    if (nan_apart(p, f)) print_line(p, "u16 nan%d%s = { 0 };", f->id, (acc_vary(f) & VARY_row) && p->k->mr > 1 ? arena_fmt(p->arena, "[%d]", p->k->mr) : "");
    print_line(p, "%s%s a%d%s;", print_held(f->dt), acc_suffix(p, f), f->id, acc_dims(p, f));
    if (is_arg(f)) print_line(p, "i64%s x%d%s;", acc_suffix(p, f), f->id, acc_dims(p, f));
    if (!f->start) print_begin(p, f);
}

enum { FEW_SUMS = 8 };                   /* with more of them, the registers are for the accumulators */

static const char *chunk_name(Printer *p, const KLoop *o) { return arena_fmt(p->arena, "s_%s_", print_var(p, o->var)); }

/* A sum over the chunks of a loop, which stands beside the accumulator: in double precision, but in single for products and where few chunks are likely. */
void print_chunk(Printer *p, const KFold *f, const KLoop *o, ChunkPart part)
{
    bool lane = acc_vary(f) & VARY_lane, wide = !f->mul_a && dim_hint(p->g, loop_times(o)) > o->chunk;
    const char *t = wide ? "f64" : "f32", *s = chunk_name(p, o), *sv = acc_suffix(p, f);
    const char *to = !wide ? "" : lane ? "cvt_f32_f64v" : "(f64)", *back = !wide ? "" : lane ? "cvt_f64_f32v" : "(f32)";
    if (part == CHUNK_open) print_line(p, "%s%s %s%d%s;", t, sv, s, f->id, acc_dims(p, f));
    acc_each(p, f, true);
    const char *a = acc_name(p, f, "a"), *sum = acc_name(p, f, s);
    if (part == CHUNK_open) print_line(p, "%s = %s(%s);", sum, to, a);
    else if (part == CHUNK_add) print_line(p, "%s = %s + %s(%s);", sum, sum, to, a);
    else print_line(p, "%s = %s(%s);", a, back, sum);
    if (part != CHUNK_close) print_line(p, "%s = %s;", a, print_identity(p, f));
    if (part != CHUNK_close && lane && !p->simt && p->k->mr * acc_nv(p, f) > FEW_SUMS) print_line(p, "spill_%s%s(&%s);", t, sv, sum);
    acc_each_end(p, f, true);
}

static const char *folded_with(Printer *p, const KFold *f, const char *a, const char *b)
{
    bool infix;
    const char *op = print_fold_op(f->kind, f->dt, &infix);
    return infix ? arena_fmt(p->arena, "%s %s %s", a, op, b) : arena_fmt(p->arena, "%s_%s%s(%s, %s)", op, print_held(f->dt), acc_suffix(p, f), a, b);
}

/* A fold over the places of a contraction takes each of them once: what it prints before an update of the tile's row m. */
static const char *past_rows(Printer *p, const KStmt *s)
{
    return p->in_m && p->k->sub->kind == SUB_dot && !(s->fold->vary & VARY_row) ? print_row_guard(p) : "";
}

void print_update(Printer *p, const KStmt *s)
{
    const KFold *f = s->fold;
    uint8_t vary = acc_vary(f);
    const char *a = acc_name(p, f, "a"), *t = print_held(f->dt), *sv = acc_suffix(p, f);
    bool infix, mask = p->part && f->own;
    if (is_arg(f)) {
        print_line(p, "%s{", past_rows(p, s));
        const char *x = acc_name(p, f, "x"), *v = print_operand_as(p, f->value, vary);
        print_line(p, "const i32%s up = %s_%s_%s%s(%s, %s)%s;", sv, f->kind == FOLD_argmax ? "above" : "below", f->last ? "last" : "first", t, sv, v, a, mask ? " & lanes_below(rem)" : "");
        print_line(p, "%s = sel_%s%s(up, %s, %s);", a, t, sv, v, a);
        print_line(p, "%s = sel_i64%s(up, %s, %s);", x, sv, print_operand_as(p, f->index, vary), x);
        print_line(p, "}");
        return;
    }
    const char *e, *past = past_rows(p, s);
    if (runs_beside(p, f) && f->own) {   /* the lanes by themselves, then what was before them */
        a = arena_fmt(p->arena, "a%d[0]", f->id);
        print_line(p, "{");
        print_line(p, "const %sv here = run_%s_%s(%s);", t, fold_name[f->kind], t, print_operand_as(p, f->value, VARY_lane));
        const char *own = f->before ? arena_fmt(p->arena, "moved_%sv(here, %s)", t, print_literal(p, f->dt, fold_identity(f->kind, f->dt))) : "here";
        print_line(p, "%s = %s;", acc_name(p, f, "w"), folded_with(p, f, a, own));
        print_line(p, "%s = %s;", a, folded_with(p, f, a, arena_fmt(p->arena, "splat_%sv(here[LANES - 1])", t)));
        print_line(p, "}");
        return;
    }
    if (runs_beside(p, f)) print_line(p, "%s = %s;", acc_name(p, f, "w"), a);
    if (nan_apart(p, f)) {
        const char *x = print_operand_as(p, f->value, vary);
        if (mask) x = arena_fmt(p->arena, "sel_f32v(lanes_below(rem), %s, %s)", x, a);
        print_line(p, "%s = %sn_f32v(%s, %s);", a, fold_name[f->kind], a, x);
        print_line(p, "%s |= nan_f32v(%s);", nan_name(p, f), x);
        return;
    }
    if (p->quick && nan_late(p, f)) {
        const char *x = print_operand_as(p, f->value, vary);
        print_line(p, "%s = %sn_f32v(%s, %s);", a, fold_name[f->kind], a, x);
        print_line(p, "nan_%s |= nan_f32v(%s);", print_var(p, f->loop->var), x);
        return;
    }
    p->half = f->half;
    if (f->words && !f->half) e = arena_fmt(p->arena, "dot%d%s(%s, %s, %s)", f->words, sv, print_operand_as(p, f->mul_a, vary), print_operand_as(p, f->mul_b, vary), a);
    else if (f->power) e = arena_fmt(p->arena, "add_power_f32v(%s, %s)", a, print_operand_as(p, f->power, vary));
    else if (f->mul_a) e = arena_fmt(p->arena, "fma_%s%s(%s, %s, %s)", t, sv, print_operand_as(p, f->mul_a, vary), print_operand_as(p, f->mul_b, vary), a);
    else {
        const char *op = print_fold_op(f->kind, f->dt, &infix), *v = print_operand_as(p, f->value, vary);
        if (f->loose && vary & VARY_lane) op = "loose_max";
        e = infix ? arena_fmt(p->arena, "%s %s %s", a, op, v) : arena_fmt(p->arena, "%s_%s%s(%s, %s)", op, t, sv, a, v);
    }
    p->half = false;
    if (mask) e = arena_fmt(p->arena, "sel_%sv(lanes_below(rem), %s, %s)", t, e, a);
    print_line(p, "%s%s = %s;", past, a, e);
}

void print_scan_open(Printer *p, const KFold *f)
{
    print_line(p, "%s t%d_in = %s, e%d;", print_held(f->dt), f->id, print_identity(p, f), f->id);
}

void print_scan_take(Printer *p, const KFold *f)
{
    print_line(p, "t%d_in = %s;", f->id, print_operand_as(p, f->value, 0));
}

/* Each thread's result takes the place of the accumulator till the end of the turn. */
void print_scan_fold(Printer *p, const KFold *f, int team)
{
    bool any_of = f->kind == FOLD_max || f->kind == FOLD_sum;
    const char *a = acc_name(p, f, "a"), *whole = arena_fmt(p->arena, "e%d", f->id), *in = arena_fmt(p->arena, "t%d_in", f->id);
    print_line(p, "TEAM_SCAN(%s, %s, %s, %s, %d)", f->dt == DT_bool ? (any_of ? "or" : "and") : fold_name[f->kind], print_held(f->dt), in, whole, team);
    print_line(p, "%s = %s;", whole, folded_with(p, f, a, whole));
    print_line(p, "%s = %s;", a, folded_with(p, f, a, in));
}

static void finish_arg(Printer *p, const KFold *f, const char *to)
{
    const char *t = print_held(f->dt);
    print_line(p, "{");
    print_line(p, "%s best = %s; i64 at = 0; i32 have = 0;", t, print_literal(p, f->dt, fold_identity(f->kind, f->dt)));
    print_line(p, "for (int v = 0; v < %d; v++) for (int l = 0; l < LANES; l++) {", acc_nv(p, f));
    const char *m = (acc_vary(f) & VARY_row) && p->k->mr > 1 ? "[m]" : "";
    print_line(p, "const %s e = a%d%s[v][l]; const i64 i = x%d%s[v][l];", t, f->id, m, f->id, m);
    print_line(p, "const i32 up = %s_first_%s(e, best), same = ~%s_first_%s(best, e) & ~up;", f->kind == FOLD_argmax ? "above" : "below", t, f->kind == FOLD_argmax ? "above" : "below", t);
    print_line(p, "if (!have || up || (same && %s)) { best = e; at = i; have = 1; }", f->last ? "(e == e ? i > at : i < at)" : "i < at");
    print_line(p, "}");
    print_line(p, "%s = at;", to);
    print_line(p, "}");
}

/* Each thread of a team has a part of the fold: all get the whole. */
static void finish_team(Printer *p, const KVal *v)
{
    const KFold *f = v->fold;
    const char *a = acc_name(p, f, "a"), *t = print_held(f->dt);
    if (is_arg(f)) {
        const char *x = acc_name(p, f, "x");
        print_line(p, "TEAM_ARG(%s, %s, %s, %s, %d, %d)", t, a, x, f->kind == FOLD_argmax ? "above_first" : "below_first", f->last, p->k->team);
        print_assign(p, v, x);
        return;
    }
    bool any_of = f->kind == FOLD_max || f->kind == FOLD_sum;
    const char *name = f->dt == DT_bool ? (any_of ? "or" : "and") : fold_name[f->kind];
    print_assign(p, v, print_narrowed(p, f->node->dt, arena_fmt(p->arena, "%s_%s_%s(shared, thread, %d, %s)", p->k->columns ? "column" : "team", name, t, p->k->team, a), v->vary));
}

/* The sums over lanes of all rows of a tile at once, which takes a third of the operations that they take one by one. */
bool sums_at_once(const Printer *p, const KFold *f)
{
    return f->own && f->kind == FOLD_sum && f->dt == DT_f32 && (acc_vary(f) & VARY_row) && p->k->lanes > 1 && p->k->mr == p->k->lanes && !p->simt && !p->k->unit;
}

void print_sums(Printer *p, const KFold *f)
{
    const char *e = NULL;
    print_line(p, "f32 h%d[LANES]; f32v l%d[LANES];", f->id, f->id);
    for (int i = 0; i < acc_nv(p, f); i++) e = e ? arena_fmt(p->arena, "(%s + a%d[m][%d])", e, f->id, i) : arena_fmt(p->arena, "a%d[m][%d]", f->id, i);
    print_line(p, "UNROLL for (int m = 0; m < LANES; m++) l%d[ROW_AT(m)] = %s;", f->id, e);
    print_line(p, "hsums_f32v(h%d, l%d);", f->id, f->id);
}

/* What all lanes come to. */
static const char *over_lanes(Printer *p, const KFold *f)
{
    bool infix;
    const char *op = print_fold_op(f->kind, f->dt, &infix), *e = NULL;
    const char *m = (acc_vary(f) & VARY_row) && p->k->mr > 1 ? "[m]" : "";
    const char *whole = f->loose ? "loose_max" : nan_apart(p, f) ? arena_fmt(p->arena, "%sn", fold_name[f->kind]) : fold_name[f->kind];
    if (!infix) op = whole;
    for (int i = 0; i < acc_nv(p, f); i++) {
        const char *x = arena_fmt(p->arena, "%s%d%s[%d]", p->rolled ? "r" : "a", f->id, m, i);
        e = !e ? x : infix ? arena_fmt(p->arena, "(%s %s %s)", e, op, x) : arena_fmt(p->arena, "%s_%sv(%s, %s)", op, print_held(f->dt), e, x);
    }
    if (f->dt == DT_bool) e = f->kind == FOLD_max ? arena_fmt(p->arena, "-(anyv(%s) != 0)", e) : arena_fmt(p->arena, "-(anyv(~%s) == 0)", e);
    else e = arena_fmt(p->arena, "h%s_%s(%s)", whole, print_held(f->dt), e);
    if (nan_apart(p, f)) e = arena_fmt(p->arena, "number_or_nan(%s, %s)", e, nan_name(p, f));
    return e;
}

/* Behind a chunk of the loop with a pivot. */
void print_pivot(Printer *p, const KLoop *o, const KFold *sum)
{
    int v = p->k->pivot->id;
    const KFold *f = p->k->highest;
    const char *e = NULL;
    for (int i = 0; i < f->own->nv; i++) {
        const char *x = arena_fmt(p->arena, "a%d[%d]", f->id, i);
        e = e ? arena_fmt(p->arena, "loose_max_f32v(%s, %s)", e, x) : x;
    }
    print_line(p, "if (above_f32v(%s, v%d + %d.0f)) {", e, v, PIVOT_REACH);
    print_line(p, "const f32 highest = %s;", over_lanes(p, f));
    print_line(p, "const f32 less = exp_f32(v%d - highest);", v);
    acc_each(p, sum, true);
    const char *whole = acc_name(p, sum, chunk_name(p, o));
    print_line(p, "%s = %s * less;", whole, whole);
    print_line(p, "%s = %s;", acc_name(p, sum, "a"), print_identity(p, sum));
    acc_each_end(p, sum, true);
    print_line(p, "v%d = highest;", v);
    print_line(p, "%sc -= %lld;", print_var(p, o->var), (long long)o->chunk);
    print_line(p, "continue;");
    print_line(p, "}");
}

/* ---- rows in a bundle: kir/bundle.c */
/* Are the accumulators of all rows folded together, each into one of the lanes? Else each by itself. */
static bool bundle_folds(const KFold *f) { return f->dt != DT_bool && dtype_size(dtype_info[f->dt].compute) == 4; }

void print_bundle_fold(Printer *p, const KFold *f)
{
    const char *t = print_held(f->dt);
    if (bundle_folds(f)) print_line(p, "%sv l%d[LANES];", t, f->id);
    else print_line(p, "union { %sv v; %s e[LANES]; } l%d;", t, t, f->id);
}

void print_bundle_put(Printer *p, const KFold *f, bool none)
{
    bool infix;
    const char *op = print_fold_op(f->kind, f->dt, &infix), *e = NULL;
    if (!bundle_folds(f)) { print_line(p, "l%d.e[m] = %s;", f->id, none ? "0" : over_lanes(p, f)); return; }
    for (int i = 0; i < f->own->nv; i++) {
        const char *x = arena_fmt(p->arena, "a%d[%d]", f->id, i);
        e = !e ? x : infix ? arena_fmt(p->arena, "(%s %s %s)", e, op, x) : arena_fmt(p->arena, "%s_%sv(%s, %s)", f->loose ? "loose_max" : op, print_held(f->dt), e, x);
    }
    if (nan_apart(p, f)) e = arena_fmt(p->arena, "or_nan_f32v(%s, %s)", e, nan_name(p, f));
    print_line(p, "l%d[ROW_AT(m)] = %s;", f->id, none ? arena_fmt(p->arena, "splat_%sv(0)", print_held(f->dt)) : e);
}

void print_finish(Printer *p, const KVal *v)
{
    const KFold *f = v->fold;
    DType t = f->node->dt;
    if (p->bundled && (f->vary & VARY_row)) {
        const char *e = f == p->k->highest ? "highest" : bundle_folds(f) ? arena_fmt(p->arena, "rows_%s_%sv(l%d)", f->loose ? "loose_max" : fold_name[f->kind], print_held(f->dt), f->id) : arena_fmt(p->arena, "l%d.v", f->id);
        print_assign(p, v, print_narrowed(p, t, e, v->vary));
        return;
    }
    if (sums_at_once(p, f)) { print_assign(p, v, print_narrowed(p, t, arena_fmt(p->arena, "h%d[m]", f->id), 0)); return; }
    if (f->team && !p->folded) { finish_team(p, v); return; }
    if (runs_beside(p, f)) { print_assign(p, v, print_narrowed(p, t, acc_name(p, f, "w"), v->vary)); return; }
    if (!f->own) {
        const char *sum = acc_name(p, f, p->rolled ? "r" : "a");
        if (f->half && f->words) sum = arena_fmt(p->arena, "sums_f32%s(%s)", acc_suffix(p, f), sum);
        print_assign(p, v, is_arg(f) ? acc_name(p, f, "x") : print_narrowed(p, t, sum, v->vary));
        return;
    }
    if (is_arg(f)) { finish_arg(p, f, print_declare(p, v)); return; }
    print_assign(p, v, print_narrowed(p, t, over_lanes(p, f), 0));
}

/* A copy of an accumulator that a loop over the rows can index: the accumulator itself must stay in registers. */
void print_rolled(Printer *p, const KFold *f)
{
    print_line(p, "%s%s r%d%s;", print_held(f->dt), acc_suffix(p, f), f->id, acc_dims(p, f));
    acc_each(p, f, true);
    print_line(p, "%s = %s;", acc_name(p, f, "r"), acc_name(p, f, "a"));
    acc_each_end(p, f, true);
}
