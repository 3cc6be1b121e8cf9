/* Sizes and values of random graphs: what is drawn, and what is known of a value (bounds, exactness, a bound of the rounding error).
 *
 * A value is picked among the recent ones more often; those that are too uncertain are not picked. A partner of a value broadcasts with it and has
 * its dtype. */
#include "gen_values.h"

#include <math.h>

uint64_t rng_word(Rng *r)
{
    uint64_t z = (r->s += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int rng_below(Rng *r, int n) { return (int)(rng_word(r) % (uint64_t)n); }

/* ---- sizes --------------------------------------------------------------------------------------------------------- */
int below(Gen *s, int n) { return rng_below(&s->r, n); }
bool chance(Gen *s, int percent) { return below(s, 100) < percent; }
int64_t hint(Gen *s, Dim *d) { return dim_hint(s->g, d); }
Dim *num(Gen *s, int64_t v) { return dim_const(s->g, v); }
double most_of(Gen *s, Dim *d)
{
    int64_t syms[8];
    for (int i = 0; i < 8; i++) syms[i] = i < s->g->sym.n && s->g->sym.at[i].hint > MOST_SIZE ? s->g->sym.at[i].hint : MOST_SIZE;
    return fmax((double)hint(s, d), s->g->sym.n <= 8 ? (double)dim_eval(d, syms, NULL) : 0);
}

int64_t elements(Gen *s, int rank, Dim *const *dims)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++) n *= hint(s, dims[k]);
    return n;
}

Dim *any_size(Gen *s) { return chance(s, 12) ? num(s, 1) : s->size[below(s, s->nsize)]; }

int any_shape(Gen *s, Dim **dims)
{
    int rank = below(s, 10) ? 1 + below(s, 4) : 0;
    do for (int k = 0; k < rank; k++) dims[k] = any_size(s);
    while (elements(s, rank, dims) > s->most && (rank > 1 ? rank-- : 1));
    return rank;
}

bool has_zero(const Node *n)
{
    for (int k = 0; k < n->rank; k++) if (dim_is(n->dims[k], 0)) return true;
    return false;
}

/* ---- values -------------------------------------------------------------------------------------------------------- */
double unit(DType t) { return t == DT_f64 ? 1.2e-16 : t == DT_f16 ? 4.9e-4 : t == DT_bf16 ? 3.91e-3 : 6e-8; }
double mag(const Val *v) { return fmax(fabs(v->lo), fabs(v->hi)); }
bool is_float(const Val *v) { return dtype_is_float(v->n->dt); }

Val of_range(Node *n, double lo, double hi) { return (Val){ .n = n, .lo = lo, .hi = hi, .exact = true }; }

/* An integer or truth value: exact. */
Val of_int(Node *n)
{
    double lo = n->dt == DT_bool ? 0 : (double)scalar_min(n->dt).i, hi = n->dt == DT_u64 ? 1.9e19 : n->dt == DT_bool ? 1 : (double)scalar_max(n->dt).i;
    return of_range(n, lo, hi);
}

void keep(Gen *s, Val v)
{
    if (elements(s, v.n->rank, v.n->dims) > 2 * s->most) return;
    if (has_zero(v.n)) v.special = v.special && is_float(&v);
    vec_push(s->c->arena, &s->val, v);
}

/* Not too uncertain to go on with. */
bool usable(const Val *v) { return !is_float(v) || v->err <= (v->n->dt == DT_f16 || v->n->dt == DT_bf16 ? 0.2 : 1e-2) * fmax(1, mag(v)); }

bool want_any(const Val *v) { (void)v; return true; }
bool want_float(const Val *v) { return is_float(v); }
bool want_int(const Val *v) { return dtype_is_int(v->n->dt); }
bool want_bool(const Val *v) { return v->n->dt == DT_bool; }
bool want_exact(const Val *v) { return v->exact; }
bool want_exact_float(const Val *v) { return v->exact && is_float(v); }
bool want_exact_number(const Val *v) { return v->exact && v->n->dt != DT_bool; }
bool want_number(const Val *v) { return v->n->dt != DT_bool; }
bool want_wide(const Val *v) { return dtype_is_int(v->n->dt) || v->n->dt == DT_f32 || v->n->dt == DT_f64; }

/* A value, the recent ones more often; n NULL when there is none. */
Val pick(Gen *s, Want want)
{
    for (int tries = 0; tries < 60; tries++) {
        int back = below(s, 3) ? below(s, 5) : below(s, s->val.n), i = s->val.n - 1 - back;
        if (i < 0) continue;
        Val v = s->val.at[i];
        if (want(&v) && usable(&v)) return v;
    }
    return (Val){ 0 };
}

Node *scalar_like(Gen *s, const Node *x, double v) { return g_scalar(s->g, x->dt, v); }

Val clamp(Gen *s, Val v, double lo, double hi)
{
    if (v.lo < lo) { v.n = g2(s->g, OP_max, v.n, scalar_like(s, v.n, lo)); v.lo = lo; }
    if (v.hi > hi) { v.n = g2(s->g, OP_min, v.n, scalar_like(s, v.n, hi)); v.hi = hi; }
    v.lo = fmin(v.lo, hi); v.hi = fmax(v.hi, lo);
    v.whole = v.whole && lo == rint(lo) && hi == rint(hi);
    return v;
}

Val tame(Gen *s, Val v, double most) { return mag(&v) > most ? clamp(s, v, -8, 8) : v; }

/* An inexact result: bounds, error so far, plus `ulps` roundings. */
Val approx(Val v, double err, double ulps)
{
    v.exact = v.whole = false;
    v.err = err + (ulps + 1) * unit(v.n->dt) * (mag(&v) + err) + 1e-37;
    if (dtype_size(v.n->dt) == 2) v.err += 3e-7 * mag(&v) + 1e-7;    /* f16 has denormals up here */
    return v;
}

/* Result of an operation that IEEE rounds once: exact when its operands are. */
Val rounded_once(Val v, double err, const Val *a, const Val *b)
{
    if (a->exact && (!b || b->exact)) { v.exact = true; v.err = 0; return v; }
    return approx(v, err, 2);
}

bool fits(const Node *a, const Node *b)      /* NumPy broadcasting by equal sizes, without a guard */
{
    for (int k = 1; k <= a->rank && k <= b->rank; k++) {
        Dim *x = a->dims[a->rank - k], *y = b->dims[b->rank - k];
        if (x != y && !dim_is(x, 1) && !dim_is(y, 1)) return false;
    }
    return true;
}

bool expands_to(const Node *x, int rank, Dim *const *dims)
{
    bool ok = x->rank <= rank;
    for (int k = 1; ok && k <= x->rank; k++) ok = x->dims[x->rank - k] == dims[rank - k] || dim_is(x->dims[x->rank - k], 1);
    return ok;
}

int64_t broadcast_elements(Gen *s, const Node *a, const Node *b)
{
    int64_t n = 1;
    for (int k = 1; k <= a->rank || k <= b->rank; k++) {
        int64_t x = k <= a->rank ? hint(s, a->dims[a->rank - k]) : 1, y = k <= b->rank ? hint(s, b->dims[b->rank - k]) : 1;
        n *= x == 1 ? y : x;
    }
    return n;
}

/* A partner for a: broadcasts with it and has its dtype, by a cast if need be; else a number. */
Val partner(Gen *s, Val a, Want want)
{
    for (int tries = 0; tries < 12; tries++) {
        Val b = pick(s, want);
        if (!b.n || !fits(a.n, b.n) || broadcast_elements(s, a.n, b.n) > s->most) continue;
        if (b.n->dt == a.n->dt) return b;
        if (tries > 6 && (b.exact || dtype_is_float(a.n->dt))) { b = cast_val(s, b, a.n->dt); if (want(&b)) return b; }
    }
    double v = below(s, 7) - 3;
    if (dtype_is_float(a.n->dt) && chance(s, 50)) v += 0.25;
    if (dtype_info[a.n->dt].class == 'U') v = fabs(v);
    if (a.n->dt == DT_bool) v = v > 0;
    Val b = of_range(scalar_like(s, a.n, v), v, v);
    b.whole = v == rint(v);
    return b;
}

Val join_bounds(Val a, const Val *b)
{
    a.lo = fmin(a.lo, b->lo); a.hi = fmax(a.hi, b->hi); a.err = fmax(a.err, b->err);
    a.exact = a.exact && b->exact; a.whole = a.whole && b->whole;
    a.special |= b->special; a.tiny |= b->tiny;
    return a;
}
