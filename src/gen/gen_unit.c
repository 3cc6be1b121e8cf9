/* The sum of a contraction on a unit for tiles (kir/unit.c): the rows of the tile are copied together, unless the panel before had the same, and a function of
 * prelude/units.inc leaves all sums of the tile in the accumulator's array. */
#include "gen/gen.h"

void print_unit(Printer *p, const KLoop *o, const KFold *f)
{
    const LoopKernel *k = p->k;
    Graph *g = p->g;
    const KVal *x = f->mul_a, *w = f->mul_b;
    Dim *step, *x_at, *w_at;
    dim_linear(g, x->at.off, o->var->var, &step, &x_at);
    dim_linear(g, w->at.off, o->var->var, &step, &w_at);
    int64_t bytes = o->extent->c / f->words * 4, whole = f->room_row - UNIT_TILE_BYTES;
    const char *row = print_var(p, k->row_var), *apart = print_arg(p, dim_const(g, f->room_row));
    Dim *lane = p->lane;
    p->lane = NULL;                      /* the same for all columns */
    print_line(p, "if ((const u8 *)(%s) != unit_at || %s != unit_row) {", print_place(p, x->buf, x_at), row);
    print_line(p, "for (int m = 0; m < %d; m++) {", k->mr);
    print_row(p);
    p->in_m = true;
    print_line(p, "unit_copy((u8 *)b%d + m * %s, %s, %s, %s);", f->room, apart, print_place(p, x->buf, x_at), print_arg(p, dim_const(g, bytes)), print_arg(p, dim_const(g, whole)));
    p->in_m = false;
    print_line(p, "}");
    print_line(p, "unit_at = (const u8 *)(%s);", print_place(p, x->buf, x_at));
    print_line(p, "unit_row = %s;", row);
    print_line(p, "}");
    p->lane = lane;
    print_line(p, "unit_%s(a%d[0], %d, %d, (const u8 *)b%d, %s, (const u8 *)((const i32 *)b%d + %s), %s, %s);", f->words == 2 ? "pairs" : "quads", f->id, k->mr, p->nv, f->room, apart,
        w->buf, print_dim(p, w_at), print_arg(p, dim_const(g, k->buf.at[w->buf].panel * 4)), print_arg(p, dim_const(g, whole / UNIT_TILE_BYTES)));
}
