/* Floor quotients and remainders of symbolic integers, and minima and maxima.
 *
 * a / b splits the terms of a into multiples of b and a remainder; the remainder vanishes when it is proved to
 * lie in one block [k*b, (k+1)*b). Failing that, a common factor f of b and of some terms is taken out when the
 * other terms are proved to lie in one block of f. Remainders use the same two steps, so that (x/b)*b + x%b is
 * recognised. These decide whether a reshape is an affine address. */
#include "ir/dim.h"

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

Dim *dim_div_try(Graph *g, Dim *a, Dim *b)
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

Dim *dim_mod_try(Graph *g, Dim *a, Dim *b)
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
Dim *sum_recombine(Graph *g, Dim *p)
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

Dim *dim_minmax_try(Graph *g, DimKind kind, Dim *a, Dim *b)
{
    if (!a || !b) return NULL;
    bool least = kind == DIM_min;
    int64_t end = least ? INT64_MAX : INT64_MIN; /* "to the end" in slices */
    if (dim_is(a, end)) return b;
    if (dim_is(b, end)) return a;
    if (dim_prove_ge0(g, dim_add_try(g, b, a, -1))) return least ? a : b;
    if (dim_prove_ge0(g, dim_add_try(g, a, b, -1))) return least ? b : a;
    for (int side = 0; side < 2; side++) { /* min(min(x, y), b) with b <= x: min(b, y) */
        Dim *in = side ? b : a, *other = side ? a : b;
        if (in->kind != kind) continue;
        for (int k = 0; k < 2; k++) {
            Dim *x = k ? in->b : in->a, *y = k ? in->a : in->b;
            Dim *gap = least ? dim_add_try(g, x, other, -1) : dim_add_try(g, other, x, -1);
            if (dim_prove_ge0(g, gap)) return dim_minmax_try(g, kind, other, y);
        }
    }
    return a->id < b->id ? dim_atom(g, kind, a, b) : dim_atom(g, kind, b, a);
}
