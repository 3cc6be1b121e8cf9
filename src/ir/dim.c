/* Symbolic integer expressions: sizes, index maps, offsets.
 *
 * Canonical form. Every expression is a polynomial: a constant plus terms (coefficient * product of atoms,
 * sorted by atom ids). Atoms are symbols, index variables, floor quotients, remainders, minima and maxima.
 * All are hash-consed in their graph, so equal forms are equal pointers; a polynomial that is one atom is
 * that atom.
 *
 * Quotients. a / b splits the terms of a into multiples of b and a remainder; the remainder vanishes when
 * it is proved to lie in one block [k*b, (k+1)*b). Failing that, a common factor f of b and of some terms
 * is taken out when the other terms are proved to lie in one block of f. Remainders use the same two
 * steps, so that (x/b)*b + x%b is recognised. These decide whether a reshape is an affine address.
 *
 * Proofs. p >= 0 is shown by interval bounds, else by writing each atom as its lower bound plus something
 * >= 0 and finding no negative coefficient, else by replacing one atom with a bound of it (largest id
 * first, so that an atom goes before what it is made of) and trying again. A budget of steps bounds the
 * work. Proofs assume that symbols are >= 1 (guards see to it).
 *
 * Overflow of a coefficient: functions ending in `_try` return NULL for it (and for NULL operands), which
 * a proof takes as "not proved"; the public constructors raise. */
#include "ir/ir.h"
#include <stdlib.h>

enum { MAX_TERMS = 4096, MAX_DEGREE = 24, PROOF_STEPS = 300, PROOF_DEPTH = 48 };
#define LIMIT ((int64_t)1 << 62) /* bounds beyond it are not kept */

/* ---- bounds: INT64_MIN and INT64_MAX are the infinities ------------------------------------------------ */

static int64_t bound_clamp_lo(int64_t v) { return v < -LIMIT ? INT64_MIN : v > LIMIT ? LIMIT : v; }
static int64_t bound_clamp_hi(int64_t v) { return v > LIMIT ? INT64_MAX : v < -LIMIT ? -LIMIT : v; }

static int64_t bound_mul(int64_t x, int64_t y)
{
    int64_t r;
    if (x == 0 || y == 0) return 0;
    bool inf = x == INT64_MIN || x == INT64_MAX || y == INT64_MIN || y == INT64_MAX;
    if (inf || __builtin_mul_overflow(x, y, &r)) return (x < 0) != (y < 0) ? INT64_MIN : INT64_MAX;
    return r;
}

static int64_t bound_add_lo(int64_t x, int64_t y)
{
    return x == INT64_MIN || y == INT64_MIN ? INT64_MIN : bound_clamp_lo(x + y);
}
static int64_t bound_add_hi(int64_t x, int64_t y)
{
    return x == INT64_MAX || y == INT64_MAX ? INT64_MAX : bound_clamp_hi(x + y);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static void bound_term(const DimTerm *t, int64_t *lo, int64_t *hi)
{
    int64_t l = t->coef, h = t->coef;
    if (l > LIMIT || l < -LIMIT) l = bound_clamp_lo(l), h = bound_clamp_hi(h);
    for (int k = 0; k < t->n; k++) {
        int64_t fl = t->factor[k]->lo, fh = t->factor[k]->hi;
        int64_t v[4] = { bound_mul(l, fl), bound_mul(l, fh), bound_mul(h, fl), bound_mul(h, fh) };
        l = h = v[0];
        for (int j = 1; j < 4; j++) {
            if (v[j] < l) l = v[j];
            if (v[j] > h) h = v[j];
        }
        l = bound_clamp_lo(l);
        h = bound_clamp_hi(h);
    }
    *lo = l;
    *hi = h;
}

static void dim_set_bounds(Dim *d)
{
    int64_t lo = 0, hi = INT64_MAX, bl, bh;
    ASSERT(d->kind == DIM_sum || d->kind == DIM_sym || (d->a && (d->kind == DIM_idx || d->b)));
    switch (d->kind) {
    case DIM_sum:
        lo = bound_clamp_lo(d->c);
        hi = bound_clamp_hi(d->c);
        for (int k = 0; k < d->n; k++) {
            bound_term(&d->term[k], &bl, &bh);
            lo = bound_add_lo(lo, bl);
            hi = bound_add_hi(hi, bh);
        }
        break;
    case DIM_sym: lo = 1; break;
    case DIM_idx:
        if (d->a->hi != INT64_MAX) hi = d->a->hi > 0 ? d->a->hi - 1 : 0;
        break;
    case DIM_div:
        bl = d->b->lo > 1 ? d->b->lo : 1;
        bh = d->b->hi;
        if (d->a->lo >= 0)
            lo = bh == INT64_MAX ? 0 : d->a->lo / (bh > 0 ? bh : 1);
        else
            lo = d->a->lo == INT64_MIN ? INT64_MIN : floor_div(d->a->lo, bl);
        if (d->a->hi == INT64_MAX)
            hi = INT64_MAX;
        else if (d->a->hi >= 0)
            hi = d->a->hi / bl;
        else
            hi = bh == INT64_MAX ? -1 : floor_div(d->a->hi, bh > 0 ? bh : 1);
        break;
    case DIM_mod:
        if (d->b->hi != INT64_MAX) hi = d->b->hi > 0 ? d->b->hi - 1 : 0;
        if (d->a->lo >= 0 && d->a->hi < hi) hi = d->a->hi;
        break;
    case DIM_min:
        lo = d->a->lo < d->b->lo ? d->a->lo : d->b->lo;
        hi = d->a->hi < d->b->hi ? d->a->hi : d->b->hi;
        break;
    case DIM_max:
        lo = d->a->lo > d->b->lo ? d->a->lo : d->b->lo;
        hi = d->a->hi > d->b->hi ? d->a->hi : d->b->hi;
        break;
    }
    d->lo = lo;
    d->hi = hi;
}

/* ---- hash-consing -------------------------------------------------------------------------------------- */

static uint64_t dim_hash(const Dim *d)
{
    int64_t head[5] = { d->kind, d->c, d->var, d->a ? d->a->id : -1, d->b ? d->b->id : -1 };
    uint64_t h = hash_bytes(head, sizeof head, 1);
    if (d->kind != DIM_sum) return h;
    for (int k = 0; k < d->n; k++) {
        h = hash_bytes(&d->term[k].coef, sizeof d->term[k].coef, h);
        for (int j = 0; j < d->term[k].n; j++) h = hash_bytes(&d->term[k].factor[j]->id, sizeof(int), h);
        h++;
    }
    return h;
}

static int term_cmp(const DimTerm *x, const DimTerm *y)
{
    for (int k = 0; k < x->n && k < y->n; k++)
        if (x->factor[k] != y->factor[k]) return x->factor[k]->id < y->factor[k]->id ? -1 : 1;
    return x->n - y->n;
}

static bool dim_equal(const void *item, const void *key)
{
    const Dim *x = item, *y = key;
    if (x->kind != y->kind) return false;
    if (x->kind != DIM_sum) return x->var == y->var && x->a == y->a && x->b == y->b;
    if (x->c != y->c || x->n != y->n) return false;
    for (int k = 0; k < x->n; k++)
        if (x->term[k].coef != y->term[k].coef || term_cmp(&x->term[k], &y->term[k]) != 0) return false;
    return true;
}

/* proto's terms may be in scratch memory; they are copied. */
static Dim *dim_intern(Graph *g, const Dim *proto)
{
    uint64_t h = dim_hash(proto);
    Dim *d = set_get(&g->tables->dim, h, dim_equal, proto);
    if (d) return d;
    d = arena_copy(g->arena, proto, sizeof *d);
    d->id = g->tables->ndim++;
    if (d->kind == DIM_sum) {
        int total = 0;
        for (int k = 0; k < d->n; k++) total += d->term[k].n;
        DimTerm *term = NEWS(g->arena, DimTerm, d->n);
        Dim **factor = NEWS(g->arena, Dim *, total);
        for (int k = 0; k < d->n; k++) {
            term[k] = proto->term[k];
            for (int j = 0; j < term[k].n; j++) {
                factor[j] = term[k].factor[j];
                d->idx_mask |= factor[j]->idx_mask;
            }
            term[k].factor = factor;
            factor += term[k].n;
        }
        d->term = term;
    } else {
        Dim **self = NEW(g->arena, Dim *);
        DimTerm *term = NEW(g->arena, DimTerm);
        *self = d;
        *term = (DimTerm){ 1, 1, self };
        d->n = 1;
        d->term = term;
        if (d->kind == DIM_idx)
            d->idx_mask = (uint64_t)1 << (d->var & 63);
        else
            d->idx_mask = (d->a ? d->a->idx_mask : 0) | (d->b ? d->b->idx_mask : 0);
    }
    dim_set_bounds(d);
    set_put(g->arena, &g->tables->dim, h, d);
    return d;
}

Dim *dim_const(Graph *g, int64_t c) { return dim_intern(g, &(Dim){ .kind = DIM_sum, .c = c }); }
Dim *dim_sym(Graph *g, int sym) { return dim_intern(g, &(Dim){ .kind = DIM_sym, .var = sym }); }

Dim *dim_idx(Graph *g, int var, Dim *extent)
{
    ASSERT(var >= 0 && extent->idx_mask == 0);
    if (dim_is(extent, 1) && (var < DIM_OPERAND || var >= SPACE_VAR)) return dim_const(g, 0);
    return dim_intern(g, &(Dim){ .kind = DIM_idx, .var = var, .a = extent });
}

static Dim *dim_atom(Graph *g, DimKind kind, Dim *a, Dim *b)
{
    return dim_intern(g, &(Dim){ .kind = kind, .a = a, .b = b });
}

/* ---- sums: a polynomial being made --------------------------------------------------------------------- */

typedef struct Sum {
    Graph *g;
    int64_t c;
    DimTerm *term;
    int n, cap;
    int nfactor;
    bool over;
    DimTerm term0[16];
    Dim *factor0[64];
} Sum;

static void sum_open(Sum *s, Graph *g)
{
    s->g = g;
    s->c = 0;
    s->term = s->term0;
    s->n = s->nfactor = 0;
    s->cap = (int)COUNT_OF(s->term0);
    s->over = false;
}

static Dim **sum_factors(Sum *s, int n)
{
    if (s->nfactor + n > (int)COUNT_OF(s->factor0)) return NEWS(s->g->arena, Dim *, n);
    s->nfactor += n;
    return s->factor0 + s->nfactor - n;
}

static void sum_const(Sum *s, int64_t c)
{
    if (__builtin_add_overflow(s->c, c, &s->c)) s->over = true;
}

static void sum_term(Sum *s, int64_t coef, int n, Dim *const *factor)
{
    if (coef == 0) return;
    if (n == 0) {
        sum_const(s, coef);
        return;
    }
    if (s->n >= MAX_TERMS || n > MAX_DEGREE) {
        s->over = true;
        return;
    }
    if (s->n == s->cap) {
        DimTerm *more = NEWS(s->g->arena, DimTerm, s->cap * 2);
        for (int k = 0; k < s->n; k++) more[k] = s->term[k];
        s->term = more;
        s->cap *= 2;
    }
    s->term[s->n++] = (DimTerm){ coef, n, factor };
}

static void sum_scaled(Sum *s, const Dim *d, int64_t by)
{
    int64_t v;
    if (__builtin_mul_overflow(d->c, by, &v))
        s->over = true;
    else
        sum_const(s, v);
    for (int k = 0; k < d->n; k++) {
        if (__builtin_mul_overflow(d->term[k].coef, by, &v))
            s->over = true;
        else
            sum_term(s, v, d->term[k].n, d->term[k].factor);
    }
}

static void sum_product_term(Sum *s, const DimTerm *x, const DimTerm *y)
{
    int64_t coef;
    if (__builtin_mul_overflow(x->coef, y->coef, &coef)) {
        s->over = true;
        return;
    }
    Dim **f = sum_factors(s, x->n + y->n);
    int i = 0, j = 0, n = 0;
    while (i < x->n || j < y->n) {
        bool left = j == y->n || (i < x->n && x->factor[i]->id <= y->factor[j]->id);
        f[n++] = left ? x->factor[i++] : y->factor[j++];
    }
    sum_term(s, coef, n, f);
}

static void sum_product(Sum *s, const Dim *a, const Dim *b)
{
    const DimTerm ca = { a->c, 0, NULL }, cb = { b->c, 0, NULL };
    for (int i = -1; i < a->n; i++)
        for (int j = -1; j < b->n && !s->over; j++)
            sum_product_term(s, i < 0 ? &ca : &a->term[i], j < 0 ? &cb : &b->term[j]);
}

static int term_cmp_sort(const void *x, const void *y) { return term_cmp(x, y); }

/* Sorts, merges equal products, drops what cancelled. */
static void sum_merge(Sum *s)
{
    bool sorted = true;
    for (int k = 1; k < s->n && sorted; k++) sorted = term_cmp(&s->term[k - 1], &s->term[k]) < 0;
    if (sorted) return;
    if (s->n > 24) {
        qsort(s->term, (size_t)s->n, sizeof *s->term, term_cmp_sort);
    } else {
        for (int k = 1; k < s->n; k++) {
            DimTerm t = s->term[k];
            int j = k;
            for (; j > 0 && term_cmp(&s->term[j - 1], &t) > 0; j--) s->term[j] = s->term[j - 1];
            s->term[j] = t;
        }
    }
    int n = 0;
    for (int k = 0; k < s->n; k++) {
        if (n > 0 && term_cmp(&s->term[n - 1], &s->term[k]) == 0) {
            if (__builtin_add_overflow(s->term[n - 1].coef, s->term[k].coef, &s->term[n - 1].coef))
                s->over = true;
        } else {
            if (n > 0 && s->term[n - 1].coef == 0) n--;
            s->term[n++] = s->term[k];
        }
    }
    if (n > 0 && s->term[n - 1].coef == 0) n--;
    s->n = n;
}

static Dim *sum_recombine(Graph *g, Dim *p);

static Dim *sum_close(Sum *s)
{
    sum_merge(s);
    if (s->over) return NULL;
    if (s->n == 1 && s->c == 0 && s->term[0].coef == 1 && s->term[0].n == 1) return s->term[0].factor[0];
    return sum_recombine(s->g,
                         dim_intern(s->g, &(Dim){ .kind = DIM_sum, .c = s->c, .n = s->n, .term = s->term }));
}

/* a + by * b */
static Dim *dim_add_try(Graph *g, Dim *a, Dim *b, int64_t by)
{
    if (!a || !b) return NULL;
    if (dim_is(b, 0)) return a;
    Sum s;
    sum_open(&s, g);
    sum_scaled(&s, a, 1);
    sum_scaled(&s, b, by);
    return sum_close(&s);
}

static Dim *dim_addc_try(Graph *g, Dim *a, int64_t c)
{
    return c == 0 ? a : dim_add_try(g, a, dim_const(g, c), 1);
}

static Dim *dim_mul_try(Graph *g, Dim *a, Dim *b)
{
    if (!a || !b) return NULL;
    if (dim_is(a, 1) || dim_is(b, 0)) return b;
    if (dim_is(b, 1) || dim_is(a, 0)) return a;
    Sum s;
    sum_open(&s, g);
    if (dim_is_const(a))
        sum_scaled(&s, b, a->c);
    else if (dim_is_const(b))
        sum_scaled(&s, a, b->c);
    else
        sum_product(&s, a, b);
    return sum_close(&s);
}

static Dim *dim_muladd_try(Graph *g, Dim *rest, Dim *k, Dim *x)
{
    return dim_add_try(g, rest, dim_mul_try(g, k, x), 1);
}

/* ---- proofs -------------------------------------------------------------------------------------------- */

static Dim *dim_div_try(Graph *g, Dim *a, Dim *b);
static Dim *dim_mod_try(Graph *g, Dim *a, Dim *b);
static Dim *dim_minmax_try(Graph *g, DimKind kind, Dim *a, Dim *b);
static bool prove_ge0(Graph *g, Dim *p);

/* Each atom is its lower bound plus something >= 0: true when no coefficient of the polynomial in these is
 * negative. */
static bool prove_by_shift(Graph *g, const Dim *p)
{
    Sum s;
    sum_open(&s, g);
    s.c = p->c;
    for (int k = 0; k < p->n; k++) {
        const DimTerm *t = &p->term[k];
        if (t->n > 8) return false;
        for (int j = 0; j < t->n; j++)
            if (t->factor[j]->lo == INT64_MIN) return false;
        for (unsigned keep = 0; keep < 1u << t->n; keep++) {
            int64_t coef = t->coef;
            int n = 0;
            Dim **f = NULL;
            for (int j = 0; j < t->n && coef != 0; j++)
                if (!(keep >> j & 1) && __builtin_mul_overflow(coef, t->factor[j]->lo, &coef)) return false;
            if (coef == 0) continue;
            if (keep) f = sum_factors(&s, t->n);
            for (int j = 0; j < t->n; j++)
                if (keep >> j & 1) f[n++] = t->factor[j];
            sum_term(&s, coef, n, f);
        }
    }
    sum_merge(&s);
    if (s.over || s.c < 0) return false;
    for (int k = 0; k < s.n; k++)
        if (s.term[k].coef < 0) return false;
    return true;
}

/* p = coef * atom + rest with the atom in no other product; false when p is not linear in it. */
static bool dim_split_atom(Graph *g, const Dim *p, const Dim *atom, Dim **coef, Dim **rest)
{
    Sum c, r;
    sum_open(&c, g);
    sum_open(&r, g);
    r.c = p->c;
    for (int k = 0; k < p->n; k++) {
        const DimTerm *t = &p->term[k];
        int at = -1, times = 0;
        for (int j = 0; j < t->n; j++)
            if (t->factor[j] == atom) at = j, times++;
        if (times > 1) return false;
        if (times == 0) {
            sum_term(&r, t->coef, t->n, t->factor);
            continue;
        }
        Dim **f = sum_factors(&c, t->n);
        int n = 0;
        for (int j = 0; j < t->n; j++)
            if (j != at) f[n++] = t->factor[j];
        sum_term(&c, t->coef, n, f);
    }
    *coef = sum_close(&c);
    *rest = sum_close(&r);
    return *coef && *rest;
}

static int prove_sign(Graph *g, Dim *k)
{
    if (k->lo >= 0) return 1;
    if (k->hi <= 0) return -1;
    if (prove_ge0(g, k)) return 1;
    return prove_ge0(g, dim_mul_try(g, k, dim_const(g, -1))) ? -1 : 0;
}

/* The atom of the largest id below `below` that is not a symbol; needs_idx: that contains an index
 * variable. NULL when there is none. */
static Dim *dim_top_atom(const Dim *p, int below, bool needs_idx)
{
    Dim *top = NULL;
    for (int k = 0; k < p->n; k++)
        for (int j = 0; j < p->term[k].n; j++) {
            Dim *f = p->term[k].factor[j];
            if (f->kind == DIM_sym || f->id >= below || (needs_idx && f->idx_mask == 0)) continue;
            if (!top || f->id > top->id) top = f;
        }
    return top;
}

/* An upper or lower bound of d without index variables; NULL when none was found. */
static Dim *dim_bound(Graph *g, Dim *d, bool upper)
{
    for (int step = 0; d && d->idx_mask; step++) {
        Dim *atom = dim_top_atom(d, INT32_MAX, true), *coef, *rest, *by = NULL;
        if (step == 32 || !dim_split_atom(g, d, atom, &coef, &rest)) return NULL;
        int sign = prove_sign(g, coef);
        if (sign == 0) return NULL;
        bool up = (sign > 0) == upper;
        switch (atom->kind) {
        case DIM_sum:
        case DIM_sym: break;
        case DIM_idx: by = up ? dim_addc_try(g, atom->a, -1) : dim_const(g, 0); break;
        case DIM_mod: by = up ? dim_addc_try(g, atom->b, -1) : dim_const(g, 0); break;
        case DIM_div:
            by = atom->b->idx_mask ? NULL : dim_div_try(g, dim_bound(g, atom->a, up), atom->b);
            break;
        case DIM_min:
        case DIM_max:
            by = dim_minmax_try(g, atom->kind, dim_bound(g, atom->a, up), dim_bound(g, atom->b, up));
            break;
        }
        if (by == atom) return NULL;
        d = dim_muladd_try(g, rest, coef, by);
    }
    return d;
}

static bool prove_without_div(Graph *g, Dim *atom, int sign, Dim *k, Dim *rest)
{
    Dim *a = atom->a, *b = atom->b;
    if (sign == 0)
        return atom->lo != INT64_MIN && atom->hi != INT64_MAX &&
               prove_ge0(g, dim_muladd_try(g, rest, k, dim_const(g, atom->lo))) &&
               prove_ge0(g, dim_muladd_try(g, rest, k, dim_const(g, atom->hi)));
    if (a->idx_mask && !b->idx_mask) { /* monotone: the quotient of a bound */
        Dim *q = dim_div_try(g, dim_bound(g, a, sign < 0), b);
        if (q && q != atom && prove_ge0(g, dim_muladd_try(g, rest, k, q))) return true;
    }
    /* a - b + 1 <= b * (a / b) <= a */
    Dim *ba = sign < 0 ? a : dim_addc_try(g, dim_add_try(g, a, b, -1), 1);
    if (prove_ge0(g, dim_muladd_try(g, dim_mul_try(g, rest, b), k, ba))) return true;
    int64_t end = sign > 0 ? atom->lo : atom->hi;
    return end != INT64_MIN && end != INT64_MAX &&
           prove_ge0(g, dim_muladd_try(g, rest, k, dim_const(g, end)));
}

/* p >= 0 by a bound of one atom, in which p is linear: a linear function is least at an end of the atom's
 * range. */
static bool prove_without(Graph *g, Dim *p, Dim *atom)
{
    Dim *k, *rest;
    if (!dim_split_atom(g, p, atom, &k, &rest)) return false;
    int sign = prove_sign(g, k);
    if (atom->kind == DIM_div) return prove_without_div(g, atom, sign, k, rest);
    if (atom->kind == DIM_min || atom->kind == DIM_max) {
        Dim *pa = dim_muladd_try(g, rest, k, atom->a), *pb = dim_muladd_try(g, rest, k, atom->b);
        bool any = sign != 0 && (atom->kind == DIM_max) == (sign > 0);
        return any ? prove_ge0(g, pa) || prove_ge0(g, pb) : prove_ge0(g, pa) && prove_ge0(g, pb);
    }
    Dim *top = dim_addc_try(g, atom->kind == DIM_mod ? atom->b : atom->a, -1);
    if (sign >= 0 && !prove_ge0(g, rest)) return false;
    if (sign > 0 || prove_ge0(g, dim_muladd_try(g, rest, k, top))) return true;
    return sign < 0 && atom->kind == DIM_mod && prove_ge0(g, atom->a) &&
           prove_ge0(g, dim_muladd_try(g, rest, k, atom->a));
}

static bool prove_ge0(Graph *g, Dim *p)
{
    struct GraphTables *t = g->tables;
    if (!p || p->hi < 0) return false;
    if (p->lo >= 0) return true;
    if (p->nonneg) return p->nonneg > 0;
    if (t->depth == 0) t->fuel = PROOF_STEPS;
    if (t->depth >= PROOF_DEPTH) t->fuel = 0;
    if (t->fuel == 0) return false;
    t->fuel--;
    t->depth++;
    bool yes = prove_by_shift(g, p);
    for (Dim *atom = dim_top_atom(p, INT32_MAX, false); atom && !yes; atom = dim_top_atom(p, atom->id, false))
        yes = prove_without(g, p, atom);
    t->depth--;
    /* A failure for want of steps inside another proof says nothing about p itself. */
    if (yes)
        p->nonneg = 1;
    else if (t->fuel > 0 || t->depth == 0)
        p->nonneg = -1;
    return yes;
}

bool dim_prove_ge0(Graph *g, Dim *d) { return prove_ge0(g, d); }
bool dim_prove_le(Graph *g, Dim *a, Dim *b) { return prove_ge0(g, dim_add_try(g, b, a, -1)); }
bool dim_prove_lt(Graph *g, Dim *a, Dim *b)
{
    return prove_ge0(g, dim_addc_try(g, dim_add_try(g, b, a, -1), -1));
}

/* Is r in [k*b, (k+1)*b) for one k that is found here? */
static bool dim_block(Graph *g, Dim *r, Dim *b, int64_t *k)
{
    if (!r || !b) return false;
    if (dim_is_const(b) && r->lo != INT64_MIN && r->hi != INT64_MAX) {
        *k = floor_div(r->lo, b->c);
        if (floor_div(r->hi, b->c) == *k) return true;
    }
    *k = 0;
    if (prove_ge0(g, r)) return dim_prove_lt(g, r, b);
    *k = -1;
    return prove_ge0(g, dim_add_try(g, r, b, 1)) && dim_prove_lt(g, r, dim_const(g, 0));
}

/* ---- division of polynomials --------------------------------------------------------------------------- */

static int64_t gcd64(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t r = x % y;
        x = y;
        y = r;
    }
    return x > INT64_MAX ? 1 : (int64_t)x;
}

/* The factors of t without those of d, into out; -1 when d's are not all among t's. */
static int term_without(const DimTerm *t, const DimTerm *d, Dim **out)
{
    int n = 0, j = 0;
    for (int i = 0; i < t->n; i++) {
        if (j < d->n && t->factor[i] == d->factor[j])
            j++;
        else
            out[n++] = t->factor[i];
    }
    return j == d->n ? n : -1;
}

/* a = f * q + r, termwise by the monomial f. Coefficients divide toward zero when `part`, else only
 * exactly; the constant by floor. */
static void dim_split_monomial(Graph *g, const Dim *a, const DimTerm *f, bool part, Dim **q, Dim **r)
{
    Sum sq, sr;
    sum_open(&sq, g);
    sum_open(&sr, g);
    if (f->n == 0) {
        sq.c = floor_div(a->c, f->coef);
        sr.c = a->c - sq.c * f->coef;
    } else {
        sr.c = a->c;
    }
    for (int k = 0; k < a->n; k++) {
        const DimTerm *t = &a->term[k];
        Dim **rest = sum_factors(&sq, t->n);
        int n = term_without(t, f, rest);
        if (n < 0 || (!part && t->coef % f->coef != 0)) {
            sum_term(&sr, t->coef, t->n, t->factor);
        } else {
            sum_term(&sq, t->coef / f->coef, n, rest);
            sum_term(&sr, t->coef % f->coef, t->n, t->factor);
        }
    }
    *q = sum_close(&sq);
    *r = sum_close(&sr);
}

static int dim_parts(const Dim *d) { return d->n + (d->c != 0); }

/* a = b * q + r, r without multiples of b that are seen. Either may come back NULL (overflow). */
static void dim_split(Graph *g, Dim *a, Dim *b, Dim **q, Dim **r)
{
    if (dim_is_const(b) || (b->n == 1 && b->c == 0)) {
        const DimTerm c = { b->c, 0, NULL }, *f = dim_is_const(b) ? &c : &b->term[0];
        if (f->coef > 0) {
            dim_split_monomial(g, a, f, true, q, r);
            return;
        }
    }
    /* Long division by the term of the highest degree. */
    const DimTerm *lead = NULL;
    for (int k = 0; k < b->n; k++)
        if (!lead || b->term[k].n > lead->n) lead = &b->term[k];
    *q = dim_const(g, 0);
    *r = a;
    for (int step = 0; lead && step < 16 && *r; step++) {
        Dim *f[MAX_DEGREE], *m = NULL;
        for (int k = 0; k < (*r)->n && !m; k++) {
            const DimTerm *t = &(*r)->term[k];
            int n = t->coef % lead->coef == 0 && !(t->coef == INT64_MIN && lead->coef == -1)
                        ? term_without(t, lead, f)
                        : -1;
            if (n < 0) continue;
            Sum s;
            sum_open(&s, g);
            sum_term(&s, t->coef / lead->coef, n, f);
            m = sum_close(&s);
        }
        if (!m) break;
        *q = dim_add_try(g, *q, m, 1);
        *r = dim_add_try(g, *r, dim_mul_try(g, m, b), -1);
    }
    if (*q && *r && dim_parts(*r) < dim_parts(a)) return;
    *q = dim_const(g, 0);
    *r = a;
}

/* a / b when b divides a as a polynomial, else NULL. */
static Dim *dim_exact(Graph *g, Dim *a, Dim *b)
{
    Dim *q, *r;
    if (!a || !b) return NULL;
    dim_split(g, a, b, &q, &r);
    return q && r && dim_is(r, 0) ? q : NULL;
}

/* r = f * x + rest where f > 1 divides b and 0 <= rest < f is proved. */
static bool dim_factor(Graph *g, Dim *r, Dim *b, Dim **f, Dim **x, Dim **rest)
{
    /* The largest monomial that divides all of b. */
    Dim *common[MAX_DEGREE];
    DimTerm content = { b->c, 0, common };
    for (int k = 0; k < b->n; k++) {
        const DimTerm *t = &b->term[k];
        content.coef = gcd64(content.coef, t->coef);
        int n = 0;
        if (k == 0 && b->c == 0) {
            for (int j = 0; j < t->n; j++)
                if (t->factor[j]->lo >= 0) common[n++] = t->factor[j];
        } else {
            for (int i = 0, j = 0; i < content.n; i++) {
                while (j < t->n && t->factor[j]->id < common[i]->id) j++;
                if (j < t->n && t->factor[j] == common[i]) common[n++] = common[i], j++;
            }
        }
        content.n = n;
    }
    if (content.coef < 0) content.coef = -content.coef;
    for (int k = 0; k < r->n; k++) {
        Dim *both[MAX_DEGREE];
        const DimTerm *t = &r->term[k];
        DimTerm m = { gcd64(content.coef, t->coef), 0, both };
        for (int i = 0, j = 0; i < content.n; i++) {
            while (j < t->n && t->factor[j]->id < common[i]->id) j++;
            if (j < t->n && t->factor[j] == common[i]) both[m.n++] = common[i], j++;
        }
        if (m.coef <= 0 || (m.n == 0 && m.coef == 1)) continue;
        Sum s;
        sum_open(&s, g);
        sum_term(&s, m.coef, m.n, both);
        *f = sum_close(&s);
        dim_split_monomial(g, r, &m, false, x, rest);
        int64_t block;
        if (!*f || !*x || !dim_block(g, *rest, *f, &block)) continue;
        *x = dim_addc_try(g, *x, block);
        *rest = dim_add_try(g, *rest, *f, -block);
        return true;
    }
    /* b = content * (sum): the sum itself, as in (i*(N + 1) + j) / (8*N + 8). */
    if (dim_parts(b) < 2 || (content.coef == 1 && content.n == 0)) return false;
    Sum s;
    int64_t block;
    sum_open(&s, g);
    sum_term(&s, content.coef, content.n, content.factor);
    *f = dim_exact(g, b, sum_close(&s));
    if (!*f) return false;
    dim_split(g, r, *f, x, rest);
    if (!*x || !*rest || dim_is(*x, 0) || !dim_block(g, *rest, *f, &block)) return false;
    *x = dim_addc_try(g, *x, block);
    *rest = dim_add_try(g, *rest, *f, -block);
    return true;
}

static Dim *dim_div_try(Graph *g, Dim *a, Dim *b)
{
    Dim *q, *r, *f, *x, *rest;
    int64_t block;
    if (!a || !b) return NULL;
    if (dim_is(b, 1) || dim_is(a, 0)) return a;
    if (dim_is_const(a) && dim_is_const(b)) return dim_const(g, floor_div(a->c, b->c));
    dim_split(g, a, b, &q, &r);
    if (!q || !r) return NULL;
    if (dim_block(g, r, b, &block)) return dim_addc_try(g, q, block);
    if (dim_factor(g, r, b, &f, &x, &rest))
        return dim_add_try(g, q, dim_div_try(g, x, dim_exact(g, b, f)), 1);
    /* floor((floor(y / c) + e) / b) = floor((y + c*e) / (c*b)) */
    for (int k = 0; k < r->n; k++) {
        Dim *d = r->term[k].factor[0];
        if (r->term[k].coef != 1 || r->term[k].n != 1 || d->kind != DIM_div) continue;
        Dim *e = dim_add_try(g, r, d, -1);
        return dim_add_try(g, q, dim_div_try(g, dim_muladd_try(g, d->a, e, d->b), dim_mul_try(g, d->b, b)),
                           1);
    }
    if (r->kind == DIM_mod) { /* (y mod b*k) / b = (y / b) mod k */
        Dim *k = dim_exact(g, r->b, b);
        if (k) return dim_add_try(g, q, dim_mod_try(g, dim_div_try(g, r->a, b), k), 1);
    }
    return dim_add_try(g, q, dim_atom(g, DIM_div, r, b), 1);
}

static Dim *dim_mod_try(Graph *g, Dim *a, Dim *b)
{
    Dim *q, *r, *f, *x, *rest;
    int64_t block;
    if (!a || !b) return NULL;
    if (dim_is(b, 1)) return dim_const(g, 0);
    if (dim_is_const(a) && dim_is_const(b)) return dim_const(g, a->c - floor_div(a->c, b->c) * b->c);
    dim_split(g, a, b, &q, &r);
    if (!q || !r) return NULL;
    if (dim_block(g, r, b, &block)) return dim_add_try(g, r, b, -block);
    /* A multiple of b in the divisor of a remainder: k * (y mod c) = k * y (mod b) when b divides k*c. */
    for (int k = 0; k < r->n; k++) {
        const DimTerm *t = &r->term[k];
        for (int j = 0; j < t->n; j++) {
            Dim *m = t->factor[j], *coef, *other;
            if (m->kind != DIM_mod || !dim_split_atom(g, r, m, &coef, &other)) continue;
            if (dim_exact(g, dim_mul_try(g, coef, m->b), b))
                return dim_mod_try(g, dim_muladd_try(g, other, coef, m->a), b);
        }
    }
    if (dim_factor(g, r, b, &f, &x, &rest))
        return dim_muladd_try(g, rest, f, dim_mod_try(g, x, dim_exact(g, b, f)));
    return dim_atom(g, DIM_mod, r, b);
}

static bool dim_has_factor(const Dim *p, const Dim *atom)
{
    for (int k = 0; k < p->n; k++)
        for (int j = 0; j < p->term[k].n; j++)
            if (p->term[k].factor[j] == atom) return true;
    return false;
}

/* k*b*(x/b) + k*(x mod b) is k*x, and k*b*((x/b) mod c) + k*(x mod b) is k*(x mod b*c): taken when the sum
 * gets shorter. */
static Dim *sum_recombine(Graph *g, Dim *p)
{
    int nmod = 0, nquot = 0;
    for (int k = 0; k < p->n; k++)
        for (int j = 0; j < p->term[k].n; j++) {
            nmod += p->term[k].factor[j]->kind == DIM_mod;
            nquot += p->term[k].factor[j]->kind == DIM_div;
        }
    if (nmod == 0 || nmod + nquot < 2) return p;
    for (int k = 0; k < p->n; k++) {
        const DimTerm *t = &p->term[k];
        for (int j = 0; j < t->n; j++) {
            Dim *m = t->factor[j];
            if (m->kind != DIM_mod) continue;
            Dim *x = m->a, *b = m->b, *quot = dim_div_try(g, x, b), *found = NULL, *value = NULL;
            if (!quot) continue;
            if (dim_has_factor(p, quot)) found = quot, value = x;
            for (int i = 0; i < p->n && !found; i++)
                for (int h = 0; h < p->term[i].n && !found; h++) {
                    Dim *m2 = p->term[i].factor[h];
                    if (m2->kind == DIM_mod && m2->a == quot)
                        found = m2, value = dim_mod_try(g, x, dim_mul_try(g, b, m2->b));
                }
            if (!found || !value) continue;
            Dim *f[MAX_DEGREE];
            Sum s;
            sum_open(&s, g);
            int n = term_without(t, &m->term[0], f);
            sum_term(&s, t->coef, n, f);
            Dim *coef = sum_close(&s), *less = coef ? dim_mul_try(g, coef, dim_const(g, -1)) : NULL;
            Dim *less_b = dim_mul_try(g, less, b);
            if (!less_b) continue;
            sum_open(&s,
                     g); /* p - coef * (m + b * found) + coef * value, in one sum: no part is recombined */
            sum_scaled(&s, p, 1);
            sum_product(&s, less, m);
            sum_product(&s, less_b, found);
            sum_product(&s, coef, value);
            Dim *next = NULL;
            sum_merge(&s);
            if (!s.over && s.n + (s.c != 0) < dim_parts(p)) next = sum_close(&s);
            if (next) return next;
        }
    }
    return p;
}

static Dim *dim_minmax_try(Graph *g, DimKind kind, Dim *a, Dim *b)
{
    if (!a || !b) return NULL;
    bool least = kind == DIM_min;
    int64_t end = least ? INT64_MAX : INT64_MIN; /* "to the end" in slices */
    if (dim_is(a, end)) return b;
    if (dim_is(b, end)) return a;
    if (prove_ge0(g, dim_add_try(g, b, a, -1))) return least ? a : b;
    if (prove_ge0(g, dim_add_try(g, a, b, -1))) return least ? b : a;
    for (int side = 0; side < 2; side++) { /* min(min(x, y), b) with b <= x: min(b, y) */
        Dim *in = side ? b : a, *other = side ? a : b;
        if (in->kind != kind) continue;
        for (int k = 0; k < 2; k++) {
            Dim *x = k ? in->b : in->a, *y = k ? in->a : in->b;
            Dim *gap = least ? dim_add_try(g, x, other, -1) : dim_add_try(g, other, x, -1);
            if (prove_ge0(g, gap)) return dim_minmax_try(g, kind, other, y);
        }
    }
    return a->id < b->id ? dim_atom(g, kind, a, b) : dim_atom(g, kind, b, a);
}

/* ---- public constructors ------------------------------------------------------------------------------- */

static Dim *dim_checked(Graph *g, Dim *d)
{
    if (!d) fail(g->cx, E_INVALID, "a size or an offset does not fit in 64 bits");
    return d;
}

static void dim_need_divisor(Graph *g, const Dim *b)
{
    if (b->hi < 1)
        fail(g->cx, E_INVALID, "a size is divided by %lld; wanted a positive divisor", (long long)b->hi);
}

Dim *dim_add(Graph *g, Dim *a, Dim *b) { return dim_checked(g, dim_add_try(g, a, b, 1)); }
Dim *dim_sub(Graph *g, Dim *a, Dim *b) { return dim_checked(g, dim_add_try(g, a, b, -1)); }
Dim *dim_mul(Graph *g, Dim *a, Dim *b) { return dim_checked(g, dim_mul_try(g, a, b)); }
Dim *dim_min(Graph *g, Dim *a, Dim *b) { return dim_checked(g, dim_minmax_try(g, DIM_min, a, b)); }
Dim *dim_max(Graph *g, Dim *a, Dim *b) { return dim_checked(g, dim_minmax_try(g, DIM_max, a, b)); }

Dim *dim_div(Graph *g, Dim *a, Dim *b)
{
    dim_need_divisor(g, b);
    return dim_checked(g, dim_div_try(g, a, b));
}

Dim *dim_mod(Graph *g, Dim *a, Dim *b)
{
    dim_need_divisor(g, b);
    return dim_checked(g, dim_mod_try(g, a, b));
}

Dim *dim_ceildiv(Graph *g, Dim *a, Dim *b) { return dim_div(g, dim_addc(g, dim_add(g, a, b), -1), b); }

/* ---- substitution, linear parts ------------------------------------------------------------------------ */

/* Results so far, by id modulo the size: shared parts of one expression are substituted once. */
typedef struct Subst {
    int n;
    Dim *const *to;
    uint64_t mask;
    struct {
        Dim *from, *to;
    } memo[64];
} Subst;

static Dim *dim_subst_in(Graph *g, Dim *d, Subst *s)
{
    if (!(d->idx_mask & s->mask)) return d;
    if (s->memo[d->id & 63].from == d) return s->memo[d->id & 63].to;
    Dim *r = d, *a, *b;
    switch (d->kind) {
    case DIM_sym: break;
    case DIM_idx:
        if (d->var < s->n && s->to[d->var]) r = s->to[d->var];
        break;
    case DIM_sum: {
        Sum sum;
        sum_open(&sum, g);
        sum.c = d->c;
        for (int k = 0; k < d->n; k++) {
            Dim *p = NULL;
            for (int j = 0; j < d->term[k].n; j++) {
                Dim *f = dim_subst_in(g, d->term[k].factor[j], s);
                p = p ? dim_checked(g, dim_mul_try(g, p, f)) : f;
            }
            ASSERT(p);                          /* a term has a factor */
            sum_scaled(&sum, p, d->term[k].coef);
        }
        r = sum_close(&sum);
        break;
    }
    case DIM_div:
    case DIM_mod:
    case DIM_min:
    case DIM_max:
        a = dim_subst_in(g, d->a, s);
        b = dim_subst_in(g, d->b, s);
        if (a == d->a && b == d->b) break;
        if (d->kind == DIM_div)
            r = dim_div(g, a, b);
        else if (d->kind == DIM_mod)
            r = dim_mod(g, a, b);
        else
            r = dim_minmax_try(g, d->kind, a, b);
        break;
    }
    dim_checked(g, r);
    s->memo[d->id & 63].from = d;
    s->memo[d->id & 63].to = r;
    return r;
}

Dim *dim_subst(Graph *g, Dim *d, int n, Dim *const *to)
{
    Subst s;
    s.n = n;
    s.to = to;
    s.mask = 0;
    for (int k = 0; k < n; k++)
        if (to[k]) s.mask |= (uint64_t)1 << (k & 63);
    if (!(d->idx_mask & s.mask)) return d;
    for (int k = 0; k < 64; k++) s.memo[k].from = NULL;
    return dim_subst_in(g, d, &s);
}

bool dim_linear(Graph *g, Dim *d, int var, Dim **coef, Dim **rest)
{
    Dim *atom = NULL;
    *coef = dim_const(g, 0);
    *rest = d;
    for (int k = 0; k < d->n; k++)
        for (int j = 0; j < d->term[k].n; j++) {
            Dim *f = d->term[k].factor[j];
            if (!dim_uses(f, var)) continue;
            if (f->kind != DIM_idx || (atom && atom != f)) return false;
            atom = f;
        }
    return !atom || dim_split_atom(g, d, atom, coef, rest);
}
