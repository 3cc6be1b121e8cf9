/* Contractions for groups of threads, where both sides are used again: a group computes a block of rows by columns of the result, and what its threads read lies in
 * memory that they share (Volkov and Demmel 2008).
 *
 * The parallel axes are of three kinds: rows, columns, and the rest, along which groups are apart. No address inside the sum may know both a row and a column; then
 * every operand is either of a row or of a column, and each of its values, with whatever is computed from it, serves a whole side of the block. Which axes these are is
 * read off the addresses: axes that meet in one are of one kind; what all of them know is the rest. So the places of an image in a convolution are one side, its
 * channels the other. A side of several axes is numbered through. Sizes are hints: they decide speed, never the result. */
#include "kir/kir.h"

enum { LEAVES = 64, SIDE_LEAST = 16, STEPS_LEAST = 8, CELLS = 64, SHARED_MOST = 32 << 10, GROUPS_ENOUGH = 128, STEPS_CHUNKED = 2048 };

/* Operands of the sums: of each address the parallel axes in it. */
typedef struct Sides { LoopKernel *k; uint32_t leaf[LEAVES]; int nleaf; bool ok; } Sides;

static uint32_t axes_in(const LoopKernel *k, const Dim *d)
{
    uint32_t m = 0;
    for (int i = 0; d && i < k->npar; i++) if (dim_uses(d, k->par[i].var->var)) m |= axis_bit(i);
    return m;
}

/* Sets KVal.axes: what the value depends on; returns the axes that it must know together to be computed at all, without those of its operands. */
static uint32_t value_axes(const LoopKernel *k, KVal *v)
{
    uint32_t own = axes_in(k, v->dim) | axes_in(k, v->at.off);
    for (int i = 0; i < v->at.npred; i++) own |= axes_in(k, v->at.pred[i].e) | axes_in(k, v->at.pred[i].n);
    for (int i = 0; i < v->nopnd; i++) own |= v->opnd[i]->axes;
    v->axes = own;
    for (int i = 0; i < v->nin; i++) v->axes |= v->in[i]->axes;
    return own;
}

static void leaves_of(Sides *s, KVal *v, uint8_t *seen)
{
    if (seen[v->id] || v->block == s->k->top) return;
    seen[v->id] = 1;
    if (v->kind == KV_fold) s->ok = false;
    for (int i = 0; i < v->nin; i++) leaves_of(s, v->in[i], seen);
    for (int i = 0; i < v->nopnd; i++) leaves_of(s, v->opnd[i], seen);
    uint32_t own = value_axes(s->k, v);
    if (!own) return;
    for (int i = 0; i < s->nleaf; i++) if (s->leaf[i] == own) return;
    if (s->nleaf == LEAVES) s->ok = false;
    else s->leaf[s->nleaf++] = own;
}

/* Loops one in another, values in them, and at the innermost what is added up. */
static void nest_leaves(Sides *s, const KLoop *o, const KLoop *first, uint8_t *seen)
{
    const KLoop *in = NULL;
    if (o->from || o->times || o->step > 1 || o->vector || axes_in(s->k, o->extent)) s->ok = false;
    for (int i = 0; i < o->body->stmt.n && s->ok; i++) {
        const KStmt *t = &o->body->stmt.at[i];
        const KFold *f = t->fold;
        if (t->kind == KS_loop) { s->ok = !in; in = t->loop; }
        else if (t->kind == KS_update) {
            s->ok = f->loop == first && !f->running && f->kind != FOLD_argmax && f->kind != FOLD_argmin;
            leaves_of(s, f->value, seen);
        } else s->ok = t->kind == KS_val;
    }
    for (int i = 0; i < o->body->stmt.n && in; i++) if (o->body->stmt.at[i].kind == KS_update) s->ok = false;
    if (s->ok && in) nest_leaves(s, in, first, seen);
}

/* Axes that meet in an address are of one kind: the kinds among `axes`. */
static int kinds_among(const Sides *s, uint32_t axes, uint32_t *part)
{
    int n = 0;
    for (int i = 0; i < s->nleaf; i++) {
        uint32_t m = s->leaf[i] & axes;
        if (!m) continue;
        int kept = 0;
        for (int j = 0; j < n; j++) if (part[j] & m) m |= part[j]; else part[kept++] = part[j];
        n = kept;
        part[n++] = m;
    }
    return n;
}

static int64_t axes_size(const LoopKernel *k, uint32_t axes)
{
    int64_t n = 1;
    for (int i = 0; i < k->npar; i++) if (axes >> i & 1) n *= dim_hint(k->g, k->par[i].extent);
    return n;
}

/* Finds the two sides: drops the axis that most addresses know until what is left falls apart. */
static bool find_sides(Sides *s, KProduct *p)
{
    const LoopKernel *k = s->k;
    uint32_t axes = 0, part[LEAVES];
    for (int i = 0; i < s->nleaf; i++) axes |= s->leaf[i];
    int n;
    while ((n = kinds_among(s, axes, part)) == 1) {
        int most = 0, drop = -1;
        for (int i = 0; i < k->npar; i++) {
            int uses = 0;
            for (int j = 0; j < s->nleaf; j++) uses += axes >> i & 1 && s->leaf[j] >> i & 1;
            if (uses > most) { most = uses; drop = i; }
        }
        axes &= ~axis_bit(drop);
    }
    if (n < 2) return false;
    for (int i = 0; i < 2; i++)          /* the two that are largest */
        for (int j = i + 1; j < n; j++) if (axes_size(k, part[j]) > axes_size(k, part[i])) { uint32_t t = part[i]; part[i] = part[j]; part[j] = t; }
    bool first = part[0] > part[1];      /* the innermost axis is of the columns */
    p->row.axes = part[first]; p->col.axes = part[!first];
    return true;
}

/* ---- what lies in shared memory ------------------------------------------------------------------------------------------------------------------- */
KSide *product_side(const LoopKernel *k, const KVal *v) { return v->axes & k->product->col.axes ? &k->product->col : &k->product->row; }

static bool of_cell(const LoopKernel *k, const KVal *v) { return (v->axes & k->product->row.axes) && (v->axes & k->product->col.axes); }

/* What v of one cell of the block needs of a row or a column alone. */
static void stage(LoopKernel *k, KNest *n, KVal *v, uint8_t *seen)
{
    if (v->kind == KV_const || v->block == k->top || seen[v->id]) return;
    seen[v->id] = 1;
    if (!of_cell(k, v)) {
        for (int i = 0; i < n->staged.n; i++) if (n->staged.at[i] == v) return;
        vec_push(k->arena, &n->staged, v);
        return;
    }
    for (int i = 0; i < v->nin; i++) stage(k, n, v->in[i], seen);
    for (int i = 0; i < v->nopnd; i++) stage(k, n, v->opnd[i], seen);
}

static void stage_updates(LoopKernel *k, KNest *n, const KLoop *o, uint8_t *seen)
{
    n->loop[n->nloop++] = o;
    for (int i = 0; i < o->body->stmt.n; i++) {
        const KStmt *s = &o->body->stmt.at[i];
        if (s->kind == KS_loop) stage_updates(k, n, s->loop, seen);
        if (s->kind != KS_update) continue;
        vec_push(k->arena, &n->fold, s->fold);
        if (!s->fold->mul_a) { stage(k, n, s->fold->value, seen); continue; }
        stage(k, n, s->fold->mul_a, seen);
        stage(k, n, s->fold->mul_b, seen);
    }
}

/* Do neighbours of the side lie together in memory, or else those of the sum? */
static void count_near(const LoopKernel *k, const KVal *v, const Dim *var, int *n, int *steps)
{
    Dim *c, *rest;
    if (v->block == k->top || --*steps < 0) return;
    if (v->kind == KV_load && dim_uses(v->at.off, var->var) && dim_linear(k->g, v->at.off, var->var, &c, &rest) && dim_is(c, 1)) ++*n;
    for (int i = 0; i < v->nin; i++) count_near(k, v->in[i], var, n, steps);
}

static void choose_along(LoopKernel *k, KSide *side)
{
    int side_near = 0, sum_near = 0, last = -1;
    for (int i = 0; i < k->npar; i++) {
        if (!(side->axes >> i & 1)) continue;
        side->extent = side->extent ? dim_mul(k->g, side->extent, k->par[i].extent) : k->par[i].extent;
        last = i;
    }
    for (int i = 0; i < k->product->nest.n; i++) {
        const KNest *n = &k->product->nest.at[i];
        for (int j = 0; j < n->staged.n; j++) {
            if (product_side(k, n->staged.at[j]) != side) continue;
            count_near(k, n->staged.at[j], k->par[last].var, &side_near, &(int){ WALK_STEPS });
            count_near(k, n->staged.at[j], n->loop[n->nloop - 1]->var, &sum_near, &(int){ WALK_STEPS });
        }
    }
    side->along = side_near >= sum_near;
}

/* ---- how large a block is -------------------------------------------------------------------------------------------------------------------------- */
Dim *product_steps(const LoopKernel *k, const KNest *n)
{
    Dim *d = n->loop[0]->extent;
    for (int i = 1; i < n->nloop; i++) d = dim_mul(k->g, d, n->loop[i]->extent);
    return d;
}

bool product_chunked(const LoopKernel *k, const KNest *n, const KFold *f)
{
    Dim *steps = product_steps(k, n);
    return fold_in_loop(f, n->loop[0]) && !(dim_is_const(steps) && steps->c <= STEPS_CHUNKED);
}

/* Registers for each result of a thread; bytes for each row and column that a step has in shared memory. */
static void block_needs(const LoopKernel *k, int *cell, int64_t *row, int64_t *col)
{
    *cell = 0; *row = *col = 0;
    for (int i = 0; i < k->product->nest.n; i++) {
        const KNest *n = &k->product->nest.at[i];
        for (int j = 0; j < n->fold.n; j++) *cell += (dtype_size(dtype_info[n->fold.at[j]->dt].compute) > 4 ? 2 : 1) * (product_chunked(k, n, n->fold.at[j]) ? 2 : 1);
        for (int j = 0; j < n->staged.n; j++) *(product_side(k, n->staged.at[j]) == &k->product->row ? row : col) += (int64_t)dtype_size(dtype_info[n->staged.at[j]->dt].compute);
    }
}

/* The block that takes the least time: a round of groups takes as long as one of them. */
static bool choose_block(LoopKernel *k)
{
    KProduct *p = k->product;
    int cell;
    int64_t row, col, rows = dim_hint(k->g, p->row.extent), cols = dim_hint(k->g, p->col.extent), apart = 1;
    double least = -1;
    block_needs(k, &cell, &row, &col);
    for (int i = 0; i < k->npar; i++) if (!((p->row.axes | p->col.axes) >> i & 1)) apart *= dim_hint(k->g, k->par[i].extent);
    for (int r = 2; r <= 8; r *= 2)
        for (int c = 2; c <= 8; c *= 2) {
            if (r * c * cell > CELLS || 2 * PRODUCT_STEP * (row * (r * PRODUCT_SIDE + PRODUCT_PAD) + col * (c * PRODUCT_SIDE + PRODUCT_PAD)) > SHARED_MOST) continue;
            int64_t groups = apart * ((rows + r * PRODUCT_SIDE - 1) / (r * PRODUCT_SIDE)) * ((cols + c * PRODUCT_SIDE - 1) / (c * PRODUCT_SIDE));
            int64_t turns = (groups + GROUPS_ENOUGH - 1) / GROUPS_ENOUGH;
            double cost = (double)turns * (r * c + 2 * (r + c));
            if (least >= 0 && cost >= least) continue;
            least = cost;
            p->row.each = r; p->col.each = c;
        }
    return least >= 0;
}

bool product_choose(LoopKernel *k)
{
    Sides s = { .k = k, .ok = true };
    KProduct *p = NEW(k->arena, KProduct);
    uint8_t *seen = NEWS(k->arena, uint8_t, k->nval + 1);
    if (k->npar < 2) return false;
    for (int i = 0; i < k->buf.n; i++) if (k->buf.at[i].scratch) return false;
    for (int i = 0; i < k->body->stmt.n && s.ok; i++) {
        const KStmt *t = &k->body->stmt.at[i];
        if (t->kind == KS_update) return false;
        if (t->kind == KS_loop) nest_leaves(&s, t->loop, t->loop, seen);
    }
    if (!s.ok || !find_sides(&s, p)) return false;
    int64_t rows = axes_size(k, p->row.axes), cols = axes_size(k, p->col.axes);
    if (rows < SIDE_LEAST || cols < SIDE_LEAST) return false;
    k->product = p;
    for (int i = 0; i < k->body->stmt.n; i++) {
        if (k->body->stmt.at[i].kind != KS_loop) continue;
        KNest n = { .nloop = 0 };
        stage_updates(k, &n, k->body->stmt.at[i].loop, NEWS(k->arena, uint8_t, k->nval + 1));
        if (dim_hint(k->g, product_steps(k, &n)) < STEPS_LEAST) { k->product = NULL; return false; }
        vec_push(k->arena, &p->nest, n);
    }
    choose_along(k, &p->row);
    choose_along(k, &p->col);
    if (!choose_block(k)) { k->product = NULL; return false; }
    k->threads = PRODUCT_SIDE * PRODUCT_SIDE;
    return true;
}

Dim *product_blocks(const LoopKernel *k)
{
    const KProduct *p = k->product;
    Dim *n = dim_mul(k->g, dim_ceildiv(k->g, p->row.extent, dim_const(k->g, p->row.each * PRODUCT_SIDE)), dim_ceildiv(k->g, p->col.extent, dim_const(k->g, p->col.each * PRODUCT_SIDE)));
    for (int i = 0; i < k->npar; i++) if (!((p->row.axes | p->col.axes) >> i & 1)) n = dim_mul(k->g, n, k->par[i].extent);
    return n;
}
