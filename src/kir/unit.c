/* Contractions by words (word.c) on a unit for tiles, as AMX is: registers of 16 rows of 64 bytes, and an instruction that multiplies two of them and adds to
 * a third. Such a kernel's tile has many rows, the words along the reduction filled up to whole registers, and two vectors of columns, of which a panel holds what a
 * register wants: each row of a word of terms. It is computed by squares of four registers, and the epilogue of one, which is a loop over its rows, runs beside
 * the products of the next. So a point has some squares: of few rows and several panels where all panels stay in the second cache, since then a square's
 * rows stay in the first; else of many rows and one panel. The text: gen/gen_unit.c. */
#include "kir/kir.h"

/* Rows at most, and their bytes, which stay in the second cache; bytes of all panels up to which these stay there; squares of a point that has not many rows; fewer
 * rows do not pay. Measured on Emerald Rapids. */
enum { UNIT_ROWS = 256, UNIT_BYTES = 832 << 10, UNIT_PANELS = 640 << 10, UNIT_SQUARES = 8, UNIT_LEAST = 4, UNIT_VECTORS = 2 };

/* Rows of a tile, at most so many, that take the least time for all of them: whole squares, few past the end. */
static int unit_rows(int64_t rows, int64_t most)
{
    int best = UNIT_TILE_ROWS;
    int64_t least = 0;
    for (int r = UNIT_TILE_ROWS; r <= most; r += UNIT_TILE_ROWS) {
        int64_t cost = (rows + r - 1) / r * (r / UNIT_SQUARE * 16 + (r % UNIT_SQUARE ? 11 : 0) + 1);        /* of half a square; of a tile */
        if (r > UNIT_TILE_ROWS && cost > least) continue;
        best = r;
        least = cost;
    }
    return best;
}

bool unit_choose(LoopKernel *k, KLoop *vec, KFold *f, const KLoop *o, const KVal *x, int terms)
{
    Graph *g = k->g;
    Dim *c, *rest;
    if (!(k->dots & DOT_tiles) || k->lanes != UNIT_TILE_ROWS || !k->row_var || dim_hint(g, k->row_extent) < UNIT_LEAST || x->at.npred || o->body->up != vec->body || o->from) return false;
    if (!dim_is_const(o->extent) || o->extent->c < 1 || !dim_linear(g, x->at.off, k->row_var->var, &c, &rest) || !dim_is_const(c)) return false;
    for (int i = 0; i < vec->body->stmt.n; i++) if (vec->body->stmt.at[i].kind == KS_loop && vec->body->stmt.at[i].loop != o) return false;
    int64_t bytes = o->extent->c / terms * 4, steps = (bytes + UNIT_TILE_BYTES - 1) / UNIT_TILE_BYTES, row = (steps + 1) * UNIT_TILE_BYTES;     /* one more line: rows a power of two apart would share sets of the cache */
    int64_t width = (int64_t)UNIT_VECTORS * k->lanes, panels = (dim_hint(g, vec->extent) + width - 1) / width, across = 1, rows = UNIT_ROWS;
    if (row * dim_hint(g, vec->extent) <= UNIT_PANELS) {
        across = panels < UNIT_SQUARES ? panels : UNIT_SQUARES;
        rows = UNIT_SQUARES / (across > 0 ? across : 1) * UNIT_SQUARE;
    }
    while (rows > UNIT_TILE_ROWS && rows * row > UNIT_BYTES) rows -= UNIT_TILE_ROWS;
    k->mr = unit_rows(dim_hint(g, k->row_extent), rows);
    vec->nv = UNIT_VECTORS;
    int lane = 0;
    for (int i = 0; i < k->npar; i++) {
        if (k->par[i].var == k->vec_var) { lane = i; k->par[i].step = width * (across > 0 ? across : 1); }
        if (k->par[i].var == k->row_var) k->par[i].step = k->mr;
    }
    KAxis columns = k->par[lane];
    for (; lane + 1 < k->npar; lane++) k->par[lane] = k->par[lane + 1];
    k->par[lane] = columns;
    KBuf room = { .dt = DT_i32, .read = true, .write = true, .scratch = true, .size = dim_const(g, k->mr * row / 4) };
    vec_push(k->arena, &k->buf, room);
    f->unit = true;
    f->room = k->buf.n - 1;
    f->unit_row = bytes;
    f->unit_along = o->extent->c;
    f->unit_steps = steps;
    k->unit = true;
    return true;
}
