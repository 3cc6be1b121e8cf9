/* Elementwise kernels for groups of threads: a thread takes k->pack neighbours in the last axis, and k->packs of these packs at once.
 *
 * What lies together is moved 16 bytes at a time, all loads before anything is computed. Whether addresses allow that is mostly the same for all points: where
 * buffers begin, and what their axes' strides are multiples of, is tested before the loop over points; what is left is tested for each. Points for which it
 * does not hold, and those at the end of an axis, are taken one by one. Packs of a thread are neighbours in the axis before the last, so that what
 * these share (the place in a division, a vector that is added to each row) is had once; with one axis only, they are `threads` packs apart. */
#include "gen/gen.h"

typedef struct Packing {
    Printer *p; const LoopKernel *k; const SimtWords *w;
    VEC(const KStmt *) stmt;            /* what is moved in packs */
    const char *always, *here;          /* tests before the loop; for each point; or NULL */
    int packs; bool lines;              /* lines: packs are neighbours in `row` */
    const KAxis *last, *row;
    const char *v, *n;                  /* the last axis' variable and extent */
} Packing;

static const char *both_tests(Arena *a, const char *x, const char *y) { return !x ? y : arena_fmt(a, "%s && %s", x, y); }

/* Every address of a pack is its buffer's plus multiples of the strides: if each of these is one of 16 bytes (or of the pack), so is the address. false: the offset
 * is not linear. */
static bool test_before(Packing *x, int buf, const Dim *off, int64_t align)
{
    Printer *p = x->p;
    int64_t elements = align / (int64_t)dtype_size(x->k->buf.at[buf].dt);
    const char *test = arena_fmt(p->arena, "ALIGNED(b%d, %lld)", buf, (long long)align);
    Dim *rest = (Dim *)off, *c;
    for (int i = 0; i <= x->k->npar; i++) {
        if (i == x->k->npar) c = rest;
        else if (!dim_uses(rest, x->k->par[i].var->var)) continue;
        else if (!dim_linear(p->g, rest, x->k->par[i].var->var, &c, &rest)) return false;
        if (c->idx_mask) return false;
        if (i < x->k->npar && x->k->par[i].var == x->last->var) continue;         /* advances by packs */
        if (dim_is(c, 0)) continue;
        test = arena_fmt(p->arena, "%s && %s %% %lld == 0", test, print_arg(p, c), (long long)elements);
    }
    x->always = both_tests(p->arena, x->always, test);
    return true;
}

static void find_packs(Packing *x)
{
    Printer *p = x->p;
    for (int i = 0; i < x->k->body->stmt.n; i++) {
        const KStmt *s = &x->k->body->stmt.at[i];
        const KAddr *at = simt_pack_at(x->k, s);
        if (!at) continue;
        int buf = s->kind == KS_store ? s->buf : s->val->buf;
        int64_t bytes = (int64_t)dtype_size(x->k->buf.at[buf].dt) * x->k->pack, align = bytes > 16 ? 16 : bytes;
        vec_push(p->arena, &x->stmt, s);
        if (test_before(x, buf, at->off, align)) continue;
        x->packs = 1;                    /* a test for each pack */
        p->at_pack = true;
        x->here = both_tests(p->arena, x->here, arena_fmt(p->arena, "ALIGNED(%s, %lld)", print_place(p, buf, at->off), (long long)align));
        p->at_pack = false;
    }
}

/* Opens the loop over the packs of a thread, and says where each is. whole: all of them are there. */
static void packs_open(Packing *x, bool whole)
{
    Printer *p = x->p;
    if (x->packs == 1) return;
    print_line(p, "%sfor (int u = 0; u < %d; u++) {", whole ? "UNROLL " : "ROLLED ", x->packs);
    if (x->lines) {
        const char *r = print_var(p, x->row->var), *n = print_arg(p, x->row->extent);
        if (whole) print_line(p, "const i64 %s = imin(%s_0 + u, %s - 1);", r, r, n);        /* past the end: the last one again */
        else print_line(p, "const i64 %s = %s_0 + u;", r, r);
        if (!whole) print_line(p, "if (%s < %s) {", r, n);
    } else {
        print_line(p, "const i64 point = first + u * %d + thread;", x->k->threads);
        if (!whole) print_line(p, "if (point < total) {");
        print_point(p);
    }
}

static void packs_close(Packing *x, bool whole)
{
    if (x->packs == 1) return;
    if (!whole) print_line(x->p, "}");
    print_line(x->p, "}");
}

static const char *pack_type(const Packing *x, const KStmt *s)
{
    int buf = s->kind == KS_store ? s->buf : s->val->buf;
    return arena_fmt(x->p->arena, "PACK(%s, %d)", gen_storage(x->k->buf.at[buf].dt), x->k->pack);
}

/* Does each of a thread's packs read the same elements? */
static bool same_for_all(const Packing *x, const KStmt *s) { return x->packs > 1 && x->lines && s->kind == KS_val && !dim_uses(s->val->at.off, x->row->var->var); }

static void print_whole(Packing *x)
{
    Printer *p = x->p;
    const LoopKernel *k = x->k;
    const int hint = k->sched.hint;
    const char *load = hint == 2 || hint == 4 ? "PASS" : "LOAD", *store = hint >= 3 ? "LEAVE" : "STORE";
    const char *each = x->packs > 1 ? "[u]" : "", *room = x->packs > 1 ? arena_fmt(p->arena, "[%d]", x->packs) : "";
    for (int i = 0; i < x->stmt.n; i++) print_line(p, "%s r%d%s;", pack_type(x, x->stmt.at[i]), i, room);
    packs_open(x, true);
    p->at_pack = true;
    for (int i = 0; i < x->stmt.n; i++) {
        const KStmt *s = x->stmt.at[i];
        const bool same = same_for_all(x, s);
        if (same) print_line(p, "if (u > 0) r%d[u] = r%d[0]; else", i, i);
        if (s->kind == KS_val) print_line(p, "PACK_%s(r%d%s, %s, %s);", same ? "LOAD" : load, i, each, pack_type(x, s), print_place(p, s->val->buf, s->val->at.off));
        vec_push(p->arena, &p->pack, s->kind == KS_store ? (const void *)s : (const void *)s->val);
    }
    p->at_pack = false;
    packs_close(x, true);
    packs_open(x, true);
    p->pack_place = each;
    print_line(p, "UNROLL for (int e = 0; e < %d; e++) {", k->pack);
    print_line(p, "const i64 %s = %s_0 + e;", x->v, x->v);
    print_block(p, k->body);
    print_line(p, "}");
    p->at_pack = true;
    for (int i = 0; i < x->stmt.n; i++) {
        const KStmt *s = x->stmt.at[i];
        if (s->kind == KS_store) print_line(p, "PACK_%s(r%d%s, %s, %s);", store, i, each, pack_type(x, s), print_place(p, s->buf, s->at.off));
    }
    p->at_pack = false;
    p->pack.n = 0;
    packs_close(x, true);
}

static void print_singly(Packing *x)
{
    Printer *p = x->p;
    packs_open(x, false);
    print_line(p, "ROLLED for (i64 %s = %s_0; %s < imin(%s_0 + %d, %s); %s++) {", x->v, x->v, x->v, x->v, x->k->pack, x->n, x->v);
    print_block(p, x->k->body);
    print_line(p, "}");
    packs_close(x, false);
}

int64_t print_packs(Printer *p, const LoopKernel *k, const SimtWords *w)
{
    Packing x = { .p = p, .k = k, .w = w, .packs = k->packs > 1 ? k->packs : 1, .last = &k->par[k->npar - 1], .row = k->npar > 1 ? &k->par[k->npar - 2] : NULL };
    x.lines = x.row != NULL;
    x.v = print_var(p, x.last->var);
    x.n = print_arg(p, x.last->extent);
    find_packs(&x);
    if (x.lines && k->packs > 1) x.packs = k->packs;         /* the axis advances by them */
    int64_t each = x.lines ? k->threads : (int64_t)k->threads * x.packs;
    const char *cond = x.always ? "whole" : NULL;
    if (x.always) print_line(p, "const int whole = %s;", x.always);
    if (x.lines || x.packs == 1) {
        print_line(p, "for (i64 point = %s * %d + thread; point < total; point += (i64)%s * %d) {", w->group, k->threads, w->groups, k->threads);
        print_point(p);
        cond = both_tests(p->arena, cond, arena_fmt(p->arena, "%s_0 + %d <= %s", x.v, k->pack, x.n));
    } else {
        print_line(p, "for (i64 first = %s * %lld; first < total; first += (i64)%s * %lld) {", w->group, (long long)each, w->groups, (long long)each);
        cond = both_tests(p->arena, cond, arena_fmt(p->arena, "(first + %lld) * %d <= %s", (long long)each, k->pack, x.n));
    }
    if (x.here && x.packs > 1) {         /* at each of them */
        print_line(p, "int near = 1;");
        packs_open(&x, true);
        print_line(p, "near &= %s;", x.here);
        packs_close(&x, true);
        x.here = "near";
    }
    if (x.here) cond = both_tests(p->arena, cond, x.here);
    print_line(p, "if (%s) {", cond);
    print_whole(&x);
    print_line(p, "} else {");
    print_singly(&x);
    print_line(p, "}");
    print_line(p, "}");
    return each;
}
