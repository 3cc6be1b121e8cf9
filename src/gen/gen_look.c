/* Long running folds in one pass, for groups that may wait for one another (decoupled look-back: Merrill and Garland, Single-pass parallel prefix scan, 2016).
 *
 * A group draws the next part of the axis and folds it; what it comes to is written where later parts see it, and then the group waits for what stands before its
 * part. Parts are drawn in order, so a part that is waited for is running or done. Each element is read once and written once.
 *
 * What stands before a part must not depend on who was first, or sums would differ from run to run. So parts are in spans of as many as a group has threads, less
 * one: a part folds those before it in its span, in a fixed order, with what stands before the span; the last one of a span writes that for the next. */
#include "gen/gen.h"

static const char *look_fold(const KFold *f) { return f->kind == FOLD_sum ? "sum" : f->kind == FOLD_max ? "max" : "min"; }

void print_look(Printer *p, const LoopKernel *k, const SimtWords *w, Text *names)
{
    const KLoop *o = k->look;
    const KBlock *b = o->body;
    int at = 0, each = LOOK_PART / k->threads, n = k->threads;
    while (b->stmt.at[at].kind != KS_update) at++;
    const KFold *f = b->stmt.at[at].fold;
    const char *t = print_held(f->dt), *v = print_var(p, o->var), *size = print_arg(p, o->extent), *first = print_identity(p, f), *fold = look_fold(f);
    const char *parts = print_arg(p, dim_ceildiv(k->g, o->extent, dim_const(k->g, LOOK_PART)));
    text_add(names, "    %s%s piece[%d];\n    %si64 drawn;\n", w->local, t, LOOK_PART + LOOK_PART / each, w->local);
    print_line(p, "i64 *const parts = (i64 *)scratch + 1, *const spans = parts + 2 * total;");
    print_line(p, "const i64 row_spans = (%s + %d) / %d;", parts, n - 1, n);
    print_line(p, "for (;;) {");
    print_line(p, "if (thread == 0) drawn = look_draw((i64 *)scratch);");
    print_line(p, "BARRIER;");
    print_line(p, "const i64 turn = drawn, point = quot(turn, %s), part = turn - point * %s;", parts, parts);
    print_line(p, "if (turn >= total) break;");
    print_point(p);
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", each);
    print_line(p, "const int at = e * %d + thread;", n);
    print_line(p, "const i64 %s = part * %d + at;", v, LOOK_PART);
    print_scan_open(p, f);
    print_line(p, "if (%s < %s) {", v, size);
    for (int i = 0; i < at; i++) if (b->stmt.at[i].kind == KS_val) print_val(p, b->stmt.at[i].val);
    print_scan_take(p, f);
    print_line(p, "}");
    print_line(p, "piece[at + at / %d] = t%d_in;", each, f->id);
    print_line(p, "}");
    print_line(p, "BARRIER;");
    print_line(p, "%s run[%d], whole, seen = %s;", t, each, first);
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) run[e] = e ? both_%s_%s(run[e ? e - 1 : 0], piece[thread * %d + e]) : piece[thread * %d];", each, fold, t, each + 1, each + 1);
    print_line(p, "%s in = run[%d];", t, each - 1);
    print_line(p, "TEAM_SCAN(%s, %s, in, whole, %d)", fold, t, n);
    print_line(p, "const %s own = thread ? ((LOCAL %s *)shared)[thread - 1] : %s;", t, t, first);
    print_line(p, "const int place = (int)(part %% %d);", n);
    print_line(p, "i64 *const span = spans + 2 * (point * row_spans + part / %d);", n);
    print_line(p, "if (thread == 0) look_put(parts + 2 * turn, whole);");
    print_line(p, "if (thread < place) look_wait(parts + 2 * (turn - place + thread), seen);");
    print_line(p, "else if (thread == %d && part >= %d) look_wait(span, seen);", n - 1, n);
    print_line(p, "const %s before = team_%s_%s(shared, thread, %d, seen), start = both_%s_%s(before, own);", t, fold, t, n, fold, t);
    print_line(p, "if (thread == 0 && place == %d) look_put(span + 2, both_%s_%s(before, whole));", n - 1, fold, t);
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) piece[thread * %d + e] = both_%s_%s(start, run[e]);", each, each + 1, fold, t);
    print_line(p, "BARRIER;");
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", each);
    print_line(p, "const int at = e * %d + thread;", n);
    print_line(p, "const i64 %s = part * %d + at;", v, LOOK_PART);
    print_line(p, "if (%s < %s) {", v, size);
    print_line(p, "const %s a%d = piece[at + at / %d];", t, f->id, each);
    for (int i = 0; i < b->stmt.n; i++) {                /* what came before it as well: what follows may need it */
        if (i == at) continue;
        if (b->stmt.at[i].kind == KS_val) print_val(p, b->stmt.at[i].val);
        if (b->stmt.at[i].kind == KS_store) print_store(p, &b->stmt.at[i]);
    }
    print_line(p, "}");
    print_line(p, "}");
    print_line(p, "BARRIER;");
    print_line(p, "}");
}

Dim *look_state(const LoopKernel *k)
{
    Graph *g = k->g;
    Dim *parts = dim_ceildiv(g, k->look->extent, dim_const(g, LOOK_PART)), *rows = dim_const(g, 1);
    for (int i = 0; i < k->npar; i++) rows = dim_mul(g, rows, k->par[i].extent);
    Dim *words = dim_add(g, dim_mulc(g, k->total, 2), dim_mulc(g, dim_mul(g, rows, dim_ceildiv(g, parts, dim_const(g, k->threads))), 2));
    return dim_mulc(g, dim_addc(g, words, 1 + 2), sizeof(int64_t));
}
