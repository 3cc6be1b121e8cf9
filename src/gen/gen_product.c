/* Contractions by blocks (kir/product.c): each thread of a group has `each` rows times `each` columns of the block in registers.
 *
 * A few steps of the sums are in shared memory at a time, with all rows and columns of the block: while the sums of one piece are taken, the next is fetched into
 * registers, and lies in the other of two buffers before all go on. What is stored there is computed already: casts, padding, whatever stood between memory and the
 * product. Places past the end of a side repeat its last one, and are not stored. Behind the sums, what is computed of them is written once and run for each row of
 * a thread, which takes the row's sums out of the registers by comparing numbers: an index would make them memory. */
#include "gen/gen.h"

enum { NEAR = 4, FETCHERS = PRODUCT_SIDE * PRODUCT_SIDE / PRODUCT_STEP };        /* places of a side that lie together, for 16-byte loads; threads that fetch one step */

typedef struct Product { Printer *p; const LoopKernel *k; const KNest *nest; Text *names; const char *local; uint8_t *need; } Product;

static bool is_row(const Product *x, const KSide *side) { return side == &x->k->product->row; }
static const char *letter(const Product *x, const KSide *side) { return is_row(x, side) ? "r" : "c"; }
static int near_of(const KSide *side) { return side->each < NEAR ? side->each : NEAR; }

/* Where in the block this thread's place i of a side is. */
static const char *own_place(const Product *x, const KSide *side, const char *i)
{
    int near = near_of(side);
    if (side->each == near) return arena_fmt(x->p->arena, "%s_own + %s", letter(x, side), i);
    return arena_fmt(x->p->arena, "%s_own + %s / %d * %d + %s %% %d", letter(x, side), i, near, near * PRODUCT_SIDE, i, near);
}

/* The variables that a number counts through, the last one fastest; each is written between `before` and `after`. */
static void print_apart(Printer *p, const char *number, int n, const Dim *const *var, const char *before, const char *after)
{
    for (int i = n - 1; i >= 0; i--) {
        ASSERT(var[i]);
        const char *v = print_var(p, var[i]);
        if (!i) { print_line(p, "%s%s%s = %s;", before, v, after, number); return; }
        const char *size = print_dim(p, var[i]->a), *up = arena_fmt(p->arena, "%s_%d", number, i);
        print_line(p, "const i64 %s = quot(%s, %s);", up, number, size);
        print_line(p, "%s%s%s = %s - %s * %s;", before, v, after, number, up, size);
        number = up;
    }
}

static int axis_vars(const LoopKernel *k, uint32_t axes, const Dim **var)
{
    int n = 0;
    for (int i = 0; i < k->npar; i++) if (axes >> i & 1) var[n++] = k->par[i].var;
    return n;
}

static bool in_shared(const Product *x, const KVal *v)
{
    for (int i = 0; i < x->nest->staged.n; i++) if (x->nest->staged.at[i] == v) return true;
    return false;
}

/* Marks what v is computed from, in the body or the nest. cell: what lies in shared memory is there already. */
static void need(Product *x, const KVal *v, bool cell)
{
    if (v->kind == KV_const || v->block == x->k->top || x->need[v->id] || (cell && in_shared(x, v))) return;
    x->need[v->id] = 1;
    if (v->kind == KV_fold) return;
    for (int i = 0; i < v->nin; i++) need(x, v->in[i], cell);
    for (int i = 0; i < v->nopnd; i++) need(x, v->opnd[i], cell);
}

static void print_needed(Product *x, const KBlock *b)
{
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        if (s->kind == KS_val && x->need[s->val->id]) print_val(x->p, s->val);
        if (s->kind == KS_loop && x->nest && (b != x->k->body || s->loop == x->nest->loop[0])) print_needed(x, s->loop->body);
    }
}

static uint8_t *need_none(Product *x) { return x->need = NEWS(x->p->arena, uint8_t, x->k->nval + 1); }

/* ---- from memory to registers ------------------------------------------------------------------------------------------------------------------------ */
static bool side_used(const Product *x, const KSide *side)
{
    for (int i = 0; i < x->nest->staged.n; i++) if (product_side(x->k, x->nest->staged.at[i]) == side) return true;
    return false;
}

/* Which places of a side this thread fetches, and their variables: the same for all steps. */
static void print_fetched(Product *x, const KSide *side)
{
    Printer *p = x->p;
    const Dim *var[MAX_RANK + 1] = { NULL };
    const char *l = letter(x, side), *to = arena_fmt(p->arena, "%s_", l);
    int n = axis_vars(x->k, side->axes, var), each = side->each * PRODUCT_SIDE / FETCHERS;
    if (side->along) print_line(p, "const int %s_step = thread / %d, %s_at = thread %% %d;", l, FETCHERS, l, FETCHERS);
    else print_line(p, "const int %s_step = thread %% %d, %s_at = thread / %d;", l, PRODUCT_STEP, l, PRODUCT_STEP);
    for (int i = 0; i < n; i++) print_line(p, "i64 %s_%s[%d];", l, print_var(p, var[i]), each);
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", each);
    print_line(p, "const i64 at = imin(%s_0 + %s_at + %d * e, %s - 1);", l, l, FETCHERS, print_arg(p, side->extent));
    print_apart(p, "at", n, var, to, "[e]");
    print_line(p, "}");
}

static void print_fetch(Product *x, const KSide *side)
{
    Printer *p = x->p;
    const Dim *axis[MAX_RANK + 1], *loop[MAX_RANK] = { NULL };
    const char *l = letter(x, side);
    int n = axis_vars(x->k, side->axes, axis);
    print_line(p, "{");
    print_line(p, "const i64 s = imin(step + %s_step, steps - 1);", l);
    for (int i = 0; i < x->nest->nloop; i++) loop[i] = x->nest->loop[i]->var;
    print_apart(p, "s", x->nest->nloop, loop, "const i64 ", "");
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", side->each * PRODUCT_SIDE / FETCHERS);
    for (int i = 0; i < n; i++) print_line(p, "const i64 %s = %s_%s[e];", print_var(p, axis[i]), l, print_var(p, axis[i]));
    need_none(x);
    for (int i = 0; i < x->nest->staged.n; i++) if (product_side(x->k, x->nest->staged.at[i]) == side) need(x, x->nest->staged.at[i], false);
    print_needed(x, x->k->body);
    for (int i = 0; i < x->nest->staged.n; i++)
        if (product_side(x->k, x->nest->staged.at[i]) == side) print_line(p, "g%d[e] = v%d;", x->nest->staged.at[i]->id, x->nest->staged.at[i]->id);
    print_line(p, "}");
    print_line(p, "}");
}

/* ---- the sums ----------------------------------------------------------------------------------------------------------------------------------------- */
static void cells_open(const Product *x)
{
    print_line(x->p, "UNROLL for (int i = 0; i < %d; i++) UNROLL for (int j = 0; j < %d; j++) {", x->k->product->row.each, x->k->product->col.each);
}

static void print_step(Product *x)
{
    Printer *p = x->p;
    for (int i = 0; i < x->nest->staged.n; i++) {
        const KVal *v = x->nest->staged.at[i];
        const KSide *side = product_side(x->k, v);
        print_line(p, "%s w%d[%d];", print_held(v->dt), v->id, side->each);
        print_line(p, "UNROLL for (int i = 0; i < %d; i++) w%d[i] = s%d[1 - now][s][%s];", side->each, v->id, v->id, own_place(x, side, "i"));
    }
    cells_open(x);
    for (int i = 0; i < x->nest->staged.n; i++) {
        const KVal *v = x->nest->staged.at[i];
        print_line(p, "const %s v%d = w%d[%s];", print_held(v->dt), v->id, v->id, is_row(x, product_side(x->k, v)) ? "i" : "j");
    }
    need_none(x);
    for (int i = 0; i < x->nest->fold.n; i++) {
        const KFold *f = x->nest->fold.at[i];
        if (!f->mul_a) { need(x, f->value, true); continue; }
        need(x, f->mul_a, true);
        need(x, f->mul_b, true);
    }
    print_needed(x, x->nest->loop[0]->body);
    p->cell = "[i][j]";
    for (int i = 0; i < x->nest->fold.n; i++) print_update(p, &(KStmt){ .kind = KS_update, .fold = x->nest->fold.at[i] });
    p->cell = NULL;
    print_line(p, "}");
}

/* For each fold whose sums are taken in chunks. */
static void print_chunks(Product *x, const char *before, const char *after)
{
    bool any = false;
    for (int i = 0; i < x->nest->fold.n; i++) any |= product_chunked(x->k, x->nest, x->nest->fold.at[i]);
    if (!any) return;
    if (before) print_line(x->p, "%s {", before);
    cells_open(x);
    for (int i = 0; i < x->nest->fold.n; i++) {
        int id = x->nest->fold.at[i]->id;
        if (!product_chunked(x->k, x->nest, x->nest->fold.at[i])) continue;
        if (after) print_line(x->p, "a%d[i][j] = t%d[i][j];", id, id);
        else print_line(x->p, "t%d[i][j] = t%d[i][j] + a%d[i][j];", id, id, id);
        if (!after) print_line(x->p, "a%d[i][j] = 0;", id);
    }
    print_line(x->p, "}");
    if (before) print_line(x->p, "}");
}

static void print_nest(Product *x)
{
    Printer *p = x->p;
    const KProduct *b = x->k->product;
    const KSide *side[2] = { &b->row, &b->col };
    print_line(p, "{");
    print_line(p, "const i64 steps = %s;", print_arg(p, product_steps(x->k, x->nest)));
    for (int i = 0; i < x->nest->fold.n; i++) {
        const KFold *f = x->nest->fold.at[i];
        if (!product_chunked(x->k, x->nest, f)) continue;
        print_line(p, "%s t%d[%d][%d];", print_held(f->dt), f->id, b->row.each, b->col.each);
        cells_open(x);
        print_line(p, "t%d[i][j] = 0;", f->id);
        print_line(p, "}");
    }
    for (int i = 0; i < 2; i++) if (side_used(x, side[i])) print_fetched(x, side[i]);
    print_line(p, "for (i64 step = 0; step < steps + %d; step += %d) {", PRODUCT_STEP, PRODUCT_STEP);
    print_line(p, "const int now = (int)(step / %d & 1);", PRODUCT_STEP);
    for (int i = 0; i < x->nest->staged.n; i++) {
        const KVal *v = x->nest->staged.at[i];
        const KSide *s = product_side(x->k, v);
        print_line(p, "%s g%d[%d];", print_held(v->dt), v->id, s->each * PRODUCT_SIDE / FETCHERS);
        text_add(x->names, "    %sALIGN(16) %s s%d[2][%d][%d];\n", x->local, print_held(v->dt), v->id, PRODUCT_STEP, s->each * PRODUCT_SIDE + PRODUCT_PAD);
    }
    print_line(p, "if (step < steps) {");
    for (int i = 0; i < 2; i++) if (side_used(x, side[i])) print_fetch(x, side[i]);
    print_line(p, "}");
    print_line(p, "if (step > 0) {");
    print_line(p, "const int left = (int)imin(steps - step + %d, %d);", PRODUCT_STEP, PRODUCT_STEP);
    print_line(p, "if (left == %d) UNROLL for (int s = 0; s < %d; s++) {", PRODUCT_STEP, PRODUCT_STEP);
    print_step(x);
    print_line(p, "}");
    print_line(p, "else ROLLED for (int s = 0; s < left; s++) {");
    print_step(x);
    print_line(p, "}");
    print_chunks(x, arena_fmt(p->arena, "if (step %% %d == 0 || step >= steps)", PRODUCT_CHUNK), NULL);
    print_line(p, "}");
    print_line(p, "if (step < steps) {");
    for (int i = 0; i < x->nest->staged.n; i++) {
        const KVal *v = x->nest->staged.at[i];
        const KSide *s = product_side(x->k, v);
        print_line(p, "UNROLL for (int e = 0; e < %d; e++) s%d[now][%s_step][%s_at + %d * e] = g%d[e];", s->each * PRODUCT_SIDE / FETCHERS, v->id, letter(x, s), letter(x, s), FETCHERS, v->id);
    }
    print_line(p, "}");
    print_line(p, "BARRIER;");
    print_line(p, "}");
    print_chunks(x, NULL, "");
    print_line(p, "}");
}

/* ---- behind the sums -------------------------------------------------------------------------------------------------------------------------------------- */
static void side_place(Product *x, const KSide *side, const char *i)
{
    const Dim *var[MAX_RANK + 1] = { NULL };
    const char *l = letter(x, side);
    int n = axis_vars(x->k, side->axes, var);
    print_line(x->p, "const i64 %s_here = %s_0 + %s;", l, l, own_place(x, side, i));
    print_line(x->p, "if (%s_here < %s) {", l, print_arg(x->p, side->extent));
    print_apart(x->p, arena_fmt(x->p->arena, "%s_here", l), n, var, "const i64 ", "");
}

static void print_results(Product *x)
{
    Printer *p = x->p;
    const KProduct *b = x->k->product;
    print_line(p, "ROLLED for (int i = 0; i < %d; i++) {", b->row.each);
    for (int n = 0; n < b->nest.n; n++)
        for (int f = 0; f < b->nest.at[n].fold.n; f++) {
            const KFold *a = b->nest.at[n].fold.at[f];
            print_line(p, "%s r%d[%d];", print_held(a->dt), a->id, b->col.each);
            print_line(p, "UNROLL for (int m = 0; m < %d; m++) if (m == i) UNROLL for (int j = 0; j < %d; j++) r%d[j] = a%d[m][j];", b->row.each, b->col.each, a->id, a->id);
        }
    side_place(x, &b->row, "i");
    print_line(p, "UNROLL for (int j = 0; j < %d; j++) {", b->col.each);
    side_place(x, &b->col, "j");
    x->nest = NULL;
    need_none(x);
    for (int i = 0; i < x->k->body->stmt.n; i++) {
        const KStmt *s = &x->k->body->stmt.at[i];
        if (s->kind != KS_store) continue;
        need(x, s->val, false);
        for (int j = 0; j < s->nopnd; j++) need(x, s->opnd[j], false);
    }
    p->cell = "[j]";
    p->rolled = true;
    print_needed(x, x->k->body);
    p->cell = NULL;
    p->rolled = false;
    for (int i = 0; i < x->k->body->stmt.n; i++) if (x->k->body->stmt.at[i].kind == KS_store) print_store(p, &x->k->body->stmt.at[i]);
    for (int i = 0; i < 4; i++) print_line(p, "}");
}

void print_product(Printer *p, const LoopKernel *k, const SimtWords *w, Text *names)
{
    const KProduct *b = k->product;
    Product x = { .p = p, .k = k, .names = names, .local = w->local };
    const Dim *var[MAX_RANK + 1] = { NULL };
    int apart = axis_vars(k, ~(b->row.axes | b->col.axes), var), rows = b->row.each * PRODUCT_SIDE, cols = b->col.each * PRODUCT_SIDE;
    const char *nr = print_arg(p, dim_ceildiv(k->g, b->row.extent, dim_const(k->g, rows))), *nc = print_arg(p, dim_ceildiv(k->g, b->col.extent, dim_const(k->g, cols)));
    print_line(p, "const int r_own = thread / %d * %d, c_own = thread %% %d * %d;", PRODUCT_SIDE, near_of(&b->row), PRODUCT_SIDE, near_of(&b->col));
    print_line(p, "for (i64 point = %s; point < total; point += %s) {", w->group, w->groups);
    print_line(p, "const i64 band = quot(point, %s), c_0 = (point - band * %s) * %d;", nc, nc, cols);
    print_line(p, "const i64 apart = quot(band, %s), r_0 = (band - apart * %s) * %d;", nr, nr, rows);
    print_apart(p, "apart", apart, var, "const i64 ", "");
    for (int n = 0; n < b->nest.n; n++)
        for (int f = 0; f < b->nest.at[n].fold.n; f++) {
            const KFold *a = b->nest.at[n].fold.at[f];
            print_line(p, "%s a%d[%d][%d];", print_held(a->dt), a->id, b->row.each, b->col.each);
            cells_open(&x);
            print_line(p, "a%d[i][j] = %s;", a->id, print_identity(p, a));
            print_line(p, "}");
        }
    for (int n = 0; n < b->nest.n; n++) {
        x.nest = &b->nest.at[n];
        print_nest(&x);
    }
    print_results(&x);
    print_line(p, "}");
}
