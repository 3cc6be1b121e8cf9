/* Symbolic integer expressions: sizes, index maps, offsets.
 *
 * Canonical form. Every expression is a polynomial: a constant plus terms (coefficient * product of atoms,
 * sorted by atom ids). Atoms are symbols, index variables, floor quotients, remainders, minima and maxima.
 * All are hash-consed in their graph, so equal forms are equal pointers; a polynomial that is one atom is
 * that atom.
 *
 * dimdiv.c makes quotients, remainders, minima and maxima; dimproof.c proves what they ask.
 *
 * Overflow of a coefficient: functions ending in `_try` return NULL for it (and for NULL operands), which
 * a proof takes as "not proved"; the public constructors raise. */
#include "ir/dim.h"
#include <stdlib.h>

enum { MAX_TERMS = 4096 };
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

enum { MOST_WEIGHT = 1 << 20 };
static int dim_weight(const Dim *d)
{
    int64_t w = 1 + (d->kind == DIM_idx ? 0 : (int64_t)(d->a ? d->a->weight : 0) + (d->b ? d->b->weight : 0));
    if (d->kind == DIM_sum)
        for (int k = 0; k < d->n && w < MOST_WEIGHT; k++)
            for (int j = 0; j < d->term[k].n; j++) w += d->term[k].factor[j]->weight;
    return w < MOST_WEIGHT ? (int)w : MOST_WEIGHT;
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
    d->weight = dim_weight(d);
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

Dim *dim_atom(Graph *g, DimKind kind, Dim *a, Dim *b)
{
    return dim_intern(g, &(Dim){ .kind = kind, .a = a, .b = b });
}

/* ---- sums: a polynomial being made --------------------------------------------------------------------- */
void sum_open(Sum *s, Graph *g)
{
    s->g = g;
    s->c = 0;
    s->term = s->term0;
    s->n = s->nfactor = 0;
    s->cap = (int)COUNT_OF(s->term0);
    s->over = false;
}

Dim **sum_factors(Sum *s, int n)
{
    if (s->nfactor + n > (int)COUNT_OF(s->factor0)) return NEWS(s->g->arena, Dim *, n);
    s->nfactor += n;
    return s->factor0 + s->nfactor - n;
}

static void sum_const(Sum *s, int64_t c)
{
    if (__builtin_add_overflow(s->c, c, &s->c)) s->over = true;
}

void sum_term(Sum *s, int64_t coef, int n, Dim *const *factor)
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

void sum_scaled(Sum *s, const Dim *d, int64_t by)
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

void sum_product(Sum *s, const Dim *a, const Dim *b)
{
    const DimTerm ca = { a->c, 0, NULL }, cb = { b->c, 0, NULL };
    for (int i = -1; i < a->n; i++)
        for (int j = -1; j < b->n && !s->over; j++)
            sum_product_term(s, i < 0 ? &ca : &a->term[i], j < 0 ? &cb : &b->term[j]);
}

static int term_cmp_sort(const void *x, const void *y) { return term_cmp(x, y); }

void sum_merge(Sum *s)
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

Dim *sum_close(Sum *s)
{
    sum_merge(s);
    if (s->over) return NULL;
    if (s->n == 1 && s->c == 0 && s->term[0].coef == 1 && s->term[0].n == 1) return s->term[0].factor[0];
    return sum_recombine(s->g,
                         dim_intern(s->g, &(Dim){ .kind = DIM_sum, .c = s->c, .n = s->n, .term = s->term }));
}

Dim *dim_add_try(Graph *g, Dim *a, Dim *b, int64_t by)
{
    if (!a || !b) return NULL;
    if (dim_is(b, 0)) return a;
    Sum s;
    sum_open(&s, g);
    sum_scaled(&s, a, 1);
    sum_scaled(&s, b, by);
    return sum_close(&s);
}

Dim *dim_addc_try(Graph *g, Dim *a, int64_t c)
{
    return c == 0 ? a : dim_add_try(g, a, dim_const(g, c), 1);
}

Dim *dim_mul_try(Graph *g, Dim *a, Dim *b)
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

Dim *dim_muladd_try(Graph *g, Dim *rest, Dim *k, Dim *x)
{
    return dim_add_try(g, rest, dim_mul_try(g, k, x), 1);
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
