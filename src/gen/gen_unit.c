/* Contractions on a unit for tiles (kir/unit.c): the loop over the lanes of a point, whose turns are squares of 32 rows and a panel, all rows of a panel first.
 *
 * The unit works by itself, but waits for the processor where that has more to do than its window holds. So what follows the sums of a square, which prelude/units.inc
 * leaves in memory, is done between the products of the next one, a few rows after each step along the reduction; one more turn is for the last square. Rows are
 * read where they lie, unless a register would reach past their ends or past the last row: then they are copied together, unless the point before had the same. */
#include "gen/gen.h"

static const KFold *unit_fold(const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) if (b->stmt.at[i].kind == KS_fold) return b->stmt.at[i].fold;
    return NULL;
}

/* Sets x and apart: the first row of the point, and bytes from one to the next. */
static void print_unit_rows(Printer *p, const KFold *f, Dim *at)
{
    const LoopKernel *k = p->k;
    Graph *g = p->g;
    Dim *stride, *rest;
    dim_linear(g, at, k->row_var->var, &stride, &rest);
    const int64_t bytes = f->unit_row, whole = f->unit_steps * UNIT_TILE_BYTES, room_row = whole + UNIT_TILE_BYTES;
    const char *place = print_place(p, f->mul_a->buf, at), *row = print_var(p, k->row_var);
    const bool fits = bytes == whole, there = rows_whole(k) || p->shifted;
    print_line(p, "const u8 *x = (const u8 *)(%s);", place);
    print_line(p, "i64 apart = %s;", print_arg(p, dim_mulc(g, stride, bytes / f->unit_along)));
    if (fits && there) return;
    if (fits) print_line(p, "if (%s + %d > %s) {", row, k->mr, print_dim(p, k->row_extent));
    print_line(p, "apart = %s;", print_arg(p, dim_const(g, room_row)));
    print_line(p, "if (x != unit_at || %s != unit_row) {", row);
    print_line(p, "unit_at = x;");
    print_line(p, "unit_row = %s;", row);
    print_line(p, "for (int m = 0; m < %d; m++) {", k->mr);
    print_row(p);
    p->in_m = true;
    print_line(p, "unit_copy((u8 *)b%d + m * apart, %s, %s, %s);", f->room, print_place(p, f->mul_a->buf, at), print_arg(p, dim_const(g, bytes)), print_arg(p, dim_const(g, whole)));
    p->in_m = false;
    print_line(p, "}");
    print_line(p, "}");
    print_line(p, "x = (const u8 *)b%d;", f->room);
    if (fits) print_line(p, "}");
}

void print_unit(Printer *p, const KLoop *o)
{
    const LoopKernel *k = p->k;
    Graph *g = p->g;
    const KFold *f = unit_fold(o->body);
    const KVal *w = f->mul_b;
    const char *v = print_var(p, o->var), *ty = print_held(f->dt);
    const int squares = (k->mr + UNIT_SQUARE - 1) / UNIT_SQUARE, width = p->nv * k->lanes, panel = o->nv * k->lanes;
    Dim *step, *x_at, *w_at, *lane = p->lane;
    p->lane = NULL;                      /* the same for all columns */
    dim_linear(g, f->mul_a->at.off, f->loop->var->var, &step, &x_at);
    dim_linear(g, w->at.off, f->loop->var->var, &step, &w_at);
    print_line(p, "if (%s < end) {", v);
    print_unit_rows(p, f, x_at);
    print_line(p, "const i64 %sf = %s, turns = (end - %s%s) / %d * %d;", v, v, v, p->part || width < panel ? arena_fmt(p->arena, " + %d", width - 1) : "", width, squares);
    print_line(p, "%sv sums[%d][%d];", ty, 2 * UNIT_SQUARE, p->nv);
    print_line(p, "for (i64 t = 0; t <= turns && turns > 0; t++) {");
    print_line(p, "const i64 now = imin(t, turns - 1), was = t > 0 ? t - 1 : 0, steps = t < turns ? %s : 1, each = (%d + steps - 1) / steps;", print_arg(p, dim_const(g, f->unit_steps)), UNIT_SQUARE);
    print_line(p, "const u8 *const x_now = x + now %% %d * %d * apart, *w_now;", squares, UNIT_SQUARE);
    if (k->mr % UNIT_SQUARE == 0) print_line(p, "enum { two = 1 };");
    else print_line(p, "const i32 two = now %% %d * %d + 16 < %d;", squares, UNIT_SQUARE, k->mr);
    print_line(p, "{");
    print_line(p, "const i64 %s = %sf + now / %d * %d, %s0 = %s - %s %% %d;", v, v, squares, width, v, v, v, panel);
    print_line(p, "w_now = (const u8 *)((const i32 *)b%d + %s);", w->buf, print_dim(p, w_at));
    print_line(p, "}");
    print_line(p, "%sv (*const a%d)[%d] = sums + was %% 2 * %d;", ty, f->id, p->nv, UNIT_SQUARE);
    print_line(p, "const i64 %s = %sf + was / %d * %d, %s0 = %s - %s %% %d;", v, v, squares, width, v, v, v, panel);
    if (p->part) print_line(p, "const i64 rem = imin(end - %s, %d);", v, width);
    print_line(p, "const int first = (int)(was %% %d) * %d, due = t > 0 ? (int)imin(first + %d, %d) : first;", squares, UNIT_SQUARE, UNIT_SQUARE, k->mr);
    print_line(p, "int m = first;");
    p->lane = lane;
    print_shared(p, o->body);
    print_line(p, "for (i64 s = 0; s < steps; s++) {");
    print_line(p, "if (t < turns) unit_%s(sums[t %% 2 * %d], two, %d, x_now, apart, w_now, %s, s, steps);", f->words == 2 ? "pairs" : "quads", UNIT_SQUARE, p->nv == 2,
        print_arg(p, dim_const(g, k->buf.at[w->buf].panel * 4)));
    print_line(p, "for (i64 e = 0; e < each && m < due; e++, m++) {");
    print_of_row(p, o->body);
    print_line(p, "}");
    print_line(p, "}");
    print_line(p, "}");
    print_line(p, "%s += turns / %d * %d;", v, squares, width);
    print_line(p, "}");
}
