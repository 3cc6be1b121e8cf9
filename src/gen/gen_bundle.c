/* Rows in a bundle (kir/bundle.c): between the loops the row is what runs in lanes; each loop over a row stands in a loop over the rows.
 *
 * Inside that one the names of values are those of its row: numbers that hide the vectors with all rows' numbers. The last bundle may have fewer rows. With a pivot
 * (kir/exp.c) that loop is printed three times: for all rows, with one pivot, or with 0, and for those that lie far from it, with their maxima. The first two are for rows
 * as short as was said; longer ones are all done again, so that their sums are taken in chunks. */
#include "gen/gen.h"

static void mark_val(const KVal *v, uint8_t *used)
{
    if (v) used[v->id] = 1;
}

/* What the statements of a loop use. */
static void mark_block(const KBlock *b, uint8_t *used)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        for (int j = 0; s->kind == KS_val && j < s->val->nopnd; j++) mark_val(s->val->opnd[j], used);
        for (int j = 0; s->kind == KS_val && j < s->val->nin; j++) mark_val(s->val->in[j], used);
        if (s->kind != KS_update) continue;
        mark_val(s->fold->value, used);
        mark_val(s->fold->power, used);
        mark_val(s->fold->mul_a, used);
        mark_val(s->fold->mul_b, used);
    }
}

static bool by_row(const KStmt *s) { return s->kind == KS_val && s->val->kind != KV_const && (s->val->vary & VARY_row); }
static bool fold_of(const KStmt *s, const KLoop *o) { return s->kind == KS_fold && s->fold->loop == o; }

/* The loop that is statement `at`, row after row; near: or NULL, all with that pivot, and its sums not in chunks; far: or NULL, for these rows only. */
static void each_row(Printer *p, const KBlock *b, int at, const uint8_t *used, const char *near, const char *far)
{
    const KLoop *o = b->stmt.at[at].loop;
    KLoop *plain = arena_copy(p->arena, o, sizeof *o);
    if (near) plain->chunk = 0;
    print_line(p, "for (i64 m = 0; m < rem; m++) {");
    if (far) print_line(p, "if (!%s[m]) continue;", far);
    print_line(p, "const i64 %s = first + m;", print_var(p, p->k->par[p->k->npar - 1].var));
    for (int i = 0; i < at; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (!by_row(s) || !used[s->val->id]) continue;
        const char *own = near && s->val == p->k->pivot ? near : arena_fmt(p->arena, "u%d_%d.e[m]", s->val->id, at);
        print_line(p, "const %s v%d = %s;", print_held(s->val->dt), s->val->id, own);
    }
    for (int i = 0; i < at; i++) if (fold_of(&b->stmt.at[i], o)) print_fold(p, b->stmt.at[i].fold);
    print_loop(p, plain);
    for (int i = 0; i < at; i++) if (fold_of(&b->stmt.at[i], o)) print_bundle_put(p, b->stmt.at[i].fold, false);
    print_line(p, "}");
}

static void bundle_loop(Printer *p, const KBlock *b, int at)
{
    const KLoop *o = b->stmt.at[at].loop;
    const KVal *pivot = o == p->k->pivoted ? p->k->pivot : NULL;
    uint8_t *used = NEWS(p->arena, uint8_t, p->k->nval + 1);
    mark_block(o->body, used);
    for (int i = 0; i < at; i++) {
        const KStmt *s = &b->stmt.at[i];
        const char *t = by_row(s) ? print_held(s->val->dt) : NULL;
        if (t && used[s->val->id] && s->val != pivot) print_line(p, "union { %sv v; %s e[LANES]; } u%d_%d = { .v = v%d };", t, t, s->val->id, at, s->val->id);
    }
    if (pivot) {
        print_line(p, "f32 near = number_f32(v%d[0]);", pivot->id);
        print_line(p, "if (near > -%d.0f && near < %d.0f) {", PIVOT_NONE, PIVOT_NONE);
        print_line(p, "near = 0;");
        each_row(p, b, at, used, "0.0f", NULL);
        print_line(p, "}");
        print_line(p, "else {");
        each_row(p, b, at, used, "near", NULL);
        print_line(p, "}");
    } else each_row(p, b, at, used, NULL, NULL);
    for (int i = 0; i < at; i++) {
        if (!fold_of(&b->stmt.at[i], o)) continue;
        print_line(p, "for (i64 m = rem; m < LANES; m++) {");
        print_bundle_put(p, b->stmt.at[i].fold, true);
        print_line(p, "}");
    }
    if (!pivot) return;
    print_line(p, "const f32v highest = rows_%smax_f32v(l%d);", p->k->highest->loose ? "loose_" : "", p->k->highest->id);
    print_line(p, "v%d = splat_f32v(near);", pivot->id);
    const char *beyond = !o->chunk || (dim_is_const(o->extent) && o->extent->c <= o->chunk) ? "" : arena_fmt(p->arena, " | splat_i32v(-(%s > %lld))", print_dim(p, o->extent), (long long)o->chunk);
    print_line(p, "union { i32v v; i32 e[LANES]; } far = { .v = lt_f32v(splat_f32v(near + %d.0f), highest) | lt_f32v(highest, splat_f32v(near - %d.0f))%s };", PIVOT_REACH, PIVOT_REACH, beyond);
    print_line(p, "if (__builtin_expect(anyv(far.v), 0)) {");
    print_line(p, "v%d = sel_f32v(far.v, atleast_f32v(highest, splat_f32v(%s)), v%d);", pivot->id, print_operand(p, pivot->in[1]), pivot->id);
    print_line(p, "union { f32v v; f32 e[LANES]; } u%d_%d = { .v = v%d };", pivot->id, at, pivot->id);
    each_row(p, b, at, used, NULL, "far.e");
    print_line(p, "}");
}

/* A loop that is the same for all rows. */
static bool is_common(const KBlock *b, int at)
{
    for (int i = 0; i < at; i++) if (fold_of(&b->stmt.at[i], b->stmt.at[at].loop) && (b->stmt.at[i].fold->vary & VARY_row)) return false;
    return true;
}

/* What is between two loops, or behind the last one, a lane for each row. part: there may be fewer rows than lanes. */
static void between(Printer *p, const KBlock *b, int from, int to, bool part)
{
    p->lane = p->k->par[p->k->npar - 1].var;
    p->bundled = true;
    p->part = part;
    for (int i = from; i < to; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind != KS_fold) print_stmts(p, b, i, i + 1);
        else if (s->fold->vary & VARY_row) print_bundle_fold(p, s->fold);
        else print_fold(p, s->fold);
    }
    p->lane = NULL;
    p->bundled = p->part = false;
}

/* Are there lanes that are taken one by one? */
static bool takes_lanes(const KBlock *b, int from)
{
    for (int i = from; i < b->stmt.n; i++)
        if (b->stmt.at[i].kind == KS_val && (b->stmt.at[i].val->kind == KV_check || (b->stmt.at[i].val->kind == KV_load && b->stmt.at[i].val->nopnd))) return true;
    return false;
}

void print_bundle(Printer *p, const KBlock *b)
{
    const KAxis *row = &p->k->par[p->k->npar - 1];
    bool part = !(dim_is_const(row->extent) && row->extent->c % p->k->lanes == 0);
    int from = 0;
    print_line(p, "const i64 first = %s, rem = imin(%s - first, LANES);", print_var(p, row->var), print_dim(p, row->extent));
    for (int i = 0; i < b->stmt.n; i++) {
        if (b->stmt.at[i].kind != KS_loop) continue;
        between(p, b, from, i, part);
        if (is_common(b, i)) print_loop(p, b->stmt.at[i].loop);
        else bundle_loop(p, b, i);
        from = i + 1;
    }
    if (part && takes_lanes(b, from)) {  /* as many as are known are unrolled */
        print_line(p, "if (rem == LANES) {");
        between(p, b, from, b->stmt.n, false);
        print_line(p, "}");
        print_line(p, "else {");
    }
    between(p, b, from, b->stmt.n, part);
    if (part && takes_lanes(b, from)) print_line(p, "}");
}
