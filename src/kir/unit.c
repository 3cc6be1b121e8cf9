/* Contractions by words (word.c) on a unit for tiles, as AMX is: registers of 16 rows of 64 bytes, and an instruction that multiplies two of them and adds to
 * a third. Such a kernel's tile has many rows, which are copied together before, the words along the reduction filled up to whole registers, and
 * two vectors of columns, of which a panel holds what a register wants: each row of a word of terms. All sums of the tile lie in memory until the epilogue,
 * which is a loop over the rows. The rows are copied once for all panels, so panels are the innermost axis. The text: gen/gen_unit.c. */
#include "kir/kir.h"

/* Rows at most, and their bytes, which stay in the second cache; rows where all panels together stay there, so that they need not serve many rows; fewer rows do
 * not pay. Measured on Emerald Rapids. */
enum { UNIT_ROWS = 256, UNIT_BYTES = 832 << 10, UNIT_FEW_ROWS = 32, UNIT_PANELS = 512 << 10, UNIT_LEAST = 4, UNIT_VECTORS = 2 };

/* Few tiles, all of them as high: a multiple of a register's rows. */
static int unit_rows(int64_t rows, int64_t bytes, int64_t panels)
{
    int64_t most = panels > UNIT_PANELS ? UNIT_ROWS : UNIT_FEW_ROWS;
    while (most > UNIT_TILE_ROWS && most * bytes > UNIT_BYTES) most -= UNIT_TILE_ROWS;
    int64_t tiles = (rows + most - 1) / most, each = (rows + tiles - 1) / tiles;
    return (int)((each + UNIT_TILE_ROWS - 1) / UNIT_TILE_ROWS * UNIT_TILE_ROWS);
}

bool unit_choose(LoopKernel *k, KLoop *vec, KFold *f, const KLoop *o, const KVal *x, int terms)
{
    Graph *g = k->g;
    Dim *c, *rest;
    if (!(k->dots & DOT_tiles) || k->lanes != UNIT_TILE_ROWS || !k->row_var || dim_hint(g, k->row_extent) < UNIT_LEAST || x->at.npred || o->body->up != vec->body || o->from) return false;
    if (!dim_is_const(o->extent) || o->extent->c < 1 || !dim_linear(g, x->at.off, k->row_var->var, &c, &rest) || !dim_is_const(c)) return false;
    int64_t bytes = (o->extent->c / terms * 4 + UNIT_TILE_BYTES - 1) / UNIT_TILE_BYTES * UNIT_TILE_BYTES + UNIT_TILE_BYTES;   /* one more line: rows a power of two apart would share sets of the cache */
    k->mr = unit_rows(dim_hint(g, k->row_extent), bytes, bytes * dim_hint(g, vec->extent));
    vec->nv = UNIT_VECTORS;
    int lane = 0;
    for (int i = 0; i < k->npar; i++) {
        if (k->par[i].var == k->vec_var) { lane = i; k->par[i].step = (int64_t)vec->nv * k->lanes; }
        if (k->par[i].var == k->row_var) k->par[i].step = k->mr;
    }
    KAxis panels = k->par[lane];
    for (; lane + 1 < k->npar; lane++) k->par[lane] = k->par[lane + 1];
    k->par[lane] = panels;
    KBuf room = { .dt = DT_i32, .read = true, .write = true, .scratch = true, .size = dim_const(g, k->mr * bytes / 4) };
    vec_push(k->arena, &k->buf, room);
    f->unit = true;
    f->room = k->buf.n - 1;
    f->room_row = bytes;
    k->unit = true;
    return true;
}
