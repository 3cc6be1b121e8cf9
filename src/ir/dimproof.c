/* Proofs about symbolic integers: is p >= 0 for all values of its symbols and variables?
 *
 * p >= 0 is shown by interval bounds, else by writing each atom as its lower bound plus something >= 0 and
 * finding no negative coefficient, else by replacing one atom with a bound of it (largest id first, so that
 * an atom goes before what it is made of) and trying again. A budget of steps bounds the work. Proofs assume
 * that symbols are >= 1 (guards see to it). What was found is kept with p. */
#include "ir/dim.h"

enum { PROOF_STEPS = 300, PROOF_DEPTH = 48 };

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

bool dim_split_atom(Graph *g, const Dim *p, const Dim *atom, Dim **coef, Dim **rest)
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
    if (dim_prove_ge0(g, k)) return 1;
    return dim_prove_ge0(g, dim_mul_try(g, k, dim_const(g, -1))) ? -1 : 0;
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
               dim_prove_ge0(g, dim_muladd_try(g, rest, k, dim_const(g, atom->lo))) &&
               dim_prove_ge0(g, dim_muladd_try(g, rest, k, dim_const(g, atom->hi)));
    if (a->idx_mask && !b->idx_mask) { /* monotone: the quotient of a bound */
        Dim *q = dim_div_try(g, dim_bound(g, a, sign < 0), b);
        if (q && q != atom && dim_prove_ge0(g, dim_muladd_try(g, rest, k, q))) return true;
    }
    /* a - b + 1 <= b * (a / b) <= a */
    Dim *ba = sign < 0 ? a : dim_addc_try(g, dim_add_try(g, a, b, -1), 1);
    if (dim_prove_ge0(g, dim_muladd_try(g, dim_mul_try(g, rest, b), k, ba))) return true;
    int64_t end = sign > 0 ? atom->lo : atom->hi;
    return end != INT64_MIN && end != INT64_MAX &&
           dim_prove_ge0(g, dim_muladd_try(g, rest, k, dim_const(g, end)));
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
        return any ? dim_prove_ge0(g, pa) || dim_prove_ge0(g, pb) : dim_prove_ge0(g, pa) && dim_prove_ge0(g, pb);
    }
    Dim *top = dim_addc_try(g, atom->kind == DIM_mod ? atom->b : atom->a, -1);
    if (sign >= 0 && !dim_prove_ge0(g, rest)) return false;
    if (sign > 0 || dim_prove_ge0(g, dim_muladd_try(g, rest, k, top))) return true;
    return sign < 0 && atom->kind == DIM_mod && dim_prove_ge0(g, atom->a) &&
           dim_prove_ge0(g, dim_muladd_try(g, rest, k, atom->a));
}

bool dim_prove_ge0(Graph *g, Dim *p)
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

bool dim_prove_le(Graph *g, Dim *a, Dim *b) { return dim_prove_ge0(g, dim_add_try(g, b, a, -1)); }
bool dim_prove_lt(Graph *g, Dim *a, Dim *b)
{
    return dim_prove_ge0(g, dim_addc_try(g, dim_add_try(g, b, a, -1), -1));
}

bool dim_block(Graph *g, Dim *r, Dim *b, int64_t *k)
{
    if (!r || !b) return false;
    if (dim_is_const(b) && r->lo != INT64_MIN && r->hi != INT64_MAX) {
        *k = floor_div(r->lo, b->c);
        if (floor_div(r->hi, b->c) == *k) return true;
    }
    *k = 0;
    if (dim_prove_ge0(g, r)) return dim_prove_lt(g, r, b);
    *k = -1;
    return dim_prove_ge0(g, dim_add_try(g, r, b, 1)) && dim_prove_lt(g, r, dim_const(g, 0));
}
