/* Uses of integer expressions: values, text, and decisions.
 *
 * A decision is proved, or else taken for the hints and recorded as a guard: the graph then serves the
 * sizes for which it comes out the same. */
#include "ir/ir.h"

enum { DIM_WINDOW = 64 }; /* longer windows are not looked at, step by step */

/* ---- values -------------------------------------------------------------------------------------------- */

/* The value of symbol k is the int64_t at syms + k * stride. It wraps, and says so. */
static int64_t dim_value(const Dim *d, const char *syms, size_t stride, const int64_t *vars, bool *wraps)
{
    int64_t a, b, v;
    switch (d->kind) {
    case DIM_sum:
        v = d->c;
        for (int k = 0; k < d->n; k++) {
            a = d->term[k].coef;
            for (int j = 0; j < d->term[k].n; j++)
                *wraps |= __builtin_mul_overflow(a, dim_value(d->term[k].factor[j], syms, stride, vars, wraps), &a);
            *wraps |= __builtin_add_overflow(v, a, &v);
        }
        return v;
    case DIM_sym: ASSERT(syms); return *(const int64_t *)(const void *)(syms + stride * (size_t)d->var);
    case DIM_idx: ASSERT(vars); return vars[d->var];
    case DIM_div:
    case DIM_mod:
    case DIM_min:
    case DIM_max: break;
    }
    a = dim_value(d->a, syms, stride, vars, wraps);
    b = dim_value(d->b, syms, stride, vars, wraps);
    if (d->kind == DIM_min) return a < b ? a : b;
    if (d->kind == DIM_max) return a > b ? a : b;
    if (b <= 0) return 0; /* only where a size is 0, and then nothing is read there */
    v = a / b - (a % b < 0);
    return d->kind == DIM_div ? v : a - v * b;
}

int64_t dim_eval(const Dim *d, const int64_t *syms, const int64_t *vars)
{
    return dim_is_const(d) ? d->c : dim_value(d, (const char *)syms, sizeof *syms, vars, &(bool){ false });
}

int64_t dim_hint(const Graph *g, const Dim *d)
{
    ASSERT(d->idx_mask == 0);
    if (dim_is_const(d)) return d->c;
    return dim_value(d, g->sym.n ? (const char *)&g->sym.at[0].hint : NULL, sizeof(Sym), NULL, &(bool){ false });
}

bool dim_fits(const Graph *g, const Dim *d)
{
    bool wraps = false;
    if (!dim_is_const(d)) dim_value(d, g->sym.n ? (const char *)&g->sym.at[0].hint : NULL, sizeof(Sym), NULL, &wraps);
    return !wraps;
}

bool dim_open(const Dim *d)
{
    if (d->kind == DIM_sym) return true;
    if (d->kind == DIM_idx) return false;
    if (d->kind == DIM_sum) {
        for (int k = 0; k < d->n; k++)
            for (int f = 0; f < d->term[k].n; f++)
                if (dim_open(d->term[k].factor[f])) return true;
        return false;
    }
    return (d->a && dim_open(d->a)) || (d->b && dim_open(d->b));
}

bool view_open(const View *v)
{
    for (int k = 0; k < v->nidx; k++)
        if (dim_open(v->idx[k])) return true;
    for (int k = 0; k < v->npred; k++)
        if (dim_open(v->pred[k].e) || dim_open(v->pred[k].n)) return true;
    return false;
}

bool dim_uses(const Dim *d, int var)
{
    if (!(d->idx_mask >> (var & 63) & 1)) return false;
    if (d->kind == DIM_idx) return d->var == var;
    if (d->kind != DIM_sum) return dim_uses(d->a, var) || dim_uses(d->b, var);
    for (int k = 0; k < d->n; k++)
        for (int j = 0; j < d->term[k].n; j++)
            if (dim_uses(d->term[k].factor[j], var)) return true;
    return false;
}

/* ---- running folds ------------------------------------------------------------------------------------- */

const Node *scan_folded(Graph *g, const Node *n, Dim **at, bool *before)
{
    const Node *x = n->in[0];
    Dim *own = dim_idx(g, n->axis, n->dims[n->axis]), *next[MAX_RANK] = { 0 };
    *before = false;
    for (int k = 0; k < x->rank; k++) at[k] = dim_idx(g, k, x->dims[k]);
    if (is_recurrence(n) || x->op != OP_view || x->view.npred != 1 || dim_is_const(own)) return x;
    const Pred *p = x->view.pred;
    Scalar none = fold_start((FoldKind)n->kind, x->dt);
    bool moved = p->e == dim_addc(g, own, -1) && dim_prove_le(g, own->a, p->n);
    if (!moved || (dtype_is_float(x->dt) ? x->view.fill.f != none.f : x->view.fill.i != none.i)) return x;
    *before = true;
    next[n->axis] = dim_addc(g, own, 1);
    for (int k = 0; k < x->view.nidx; k++) at[k] = dim_subst(g, x->view.idx[k], n->axis + 1, next);
    return x->in[0];
}

/* ---- text ---------------------------------------------------------------------------------------------- */

static void dim_print_atom(Text *t, const Graph *g, const Dim *d)
{
    bool paren = d->kind == DIM_sum ? d->n > 0 || d->c < 0 : d->kind == DIM_div || d->kind == DIM_mod;
    if (paren) text_add(t, "(");
    dim_print(t, g, d);
    if (paren) text_add(t, ")");
}

static void dim_print_sum(Text *t, const Graph *g, const Dim *d)
{
    for (int k = 0; k < d->n; k++) {
        const DimTerm *m = &d->term[k];
        bool neg = m->coef < 0;
        uint64_t size = neg ? 0 - (uint64_t)m->coef : (uint64_t)m->coef;
        text_add(t, "%s", k == 0 ? (neg ? "-" : "") : neg ? " - " : " + ");
        if (size != 1) text_add(t, "%llu*", (unsigned long long)size);
        for (int j = 0; j < m->n; j++) {
            if (j) text_add(t, "*");
            dim_print_atom(t, g, m->factor[j]);
        }
    }
    if (d->n == 0)
        text_add(t, "%lld", (long long)d->c);
    else if (d->c != 0)
        text_add(t, d->c < 0 ? " - %llu" : " + %llu",
                 (unsigned long long)(d->c < 0 ? 0 - (uint64_t)d->c : (uint64_t)d->c));
}

void dim_print(Text *t, const Graph *g, const Dim *d)
{
    switch (d->kind) {
    case DIM_sum: dim_print_sum(t, g, d); break;
    case DIM_sym:
        if (d->var < g->sym.n && g->sym.at[d->var].name)
            text_add(t, "%s", g->sym.at[d->var].name);
        else
            text_add(t, "s%d", d->var);
        break;
    case DIM_idx:
        if (d->var >= DIM_OPERAND)
            text_add(t, "v%d", d->var - DIM_OPERAND);
        else
            text_add(t, "i%d", d->var);
        break;
    case DIM_div:
    case DIM_mod:
        dim_print_atom(t, g, d->a);
        text_add(t, "%s", d->kind == DIM_div ? "/" : "%");
        dim_print_atom(t, g, d->b);
        break;
    case DIM_min:
    case DIM_max:
        text_add(t, "%s(", d->kind == DIM_min ? "min" : "max");
        dim_print(t, g, d->a);
        text_add(t, ", ");
        dim_print(t, g, d->b);
        text_add(t, ")");
        break;
    }
}

/* ---- decisions ----------------------------------------------------------------------------------------- */

bool dim_decide_eq(Graph *g, Dim *a, Dim *b, const char *why)
{
    if (a == b) return true;
    if (dim_prove_lt(g, a, b) || dim_prove_lt(g, b, a)) return false;
    bool equal = dim_hint(g, a) == dim_hint(g, b);
    graph_guard(g, a, equal ? '=' : '!', b, why);
    return equal;
}

bool dim_decide_lt(Graph *g, Dim *a, Dim *b, const char *why)
{
    if (dim_prove_lt(g, a, b)) return true;
    if (dim_prove_le(g, b, a)) return false;
    bool less = dim_hint(g, a) < dim_hint(g, b);
    graph_guard(g, a, less ? '<' : 'g', b, why);
    return less;
}

int64_t dim_decide_value(Graph *g, Dim *d, const char *why)
{
    if (dim_is_const(d)) return d->c;
    int64_t v = dim_hint(g, d);
    graph_guard(g, d, '=', dim_const(g, v), why);
    return v;
}

/* ---- windows ------------------------------------------------------------------------------------------- */

bool dim_outside(Graph *g, Dim *e, Dim *n, const Dim *place, const Dim *step, int *before, int *after)
{
    Dim *a, *b, *rest, *c;
    if (!dim_is_const(place->a) || !dim_is_const(step->a) || !dim_is_const(n) || step->a->c > DIM_WINDOW) return false;
    if (!dim_linear(g, e, place->var, &a, &rest) || !dim_linear(g, rest, step->var, &b, &c)) return false;
    if (!dim_is_const(a) || !dim_is_const(b) || !dim_is_const(c) || a->c < 1 || b->c < 1) return false;
    *before = *after = 0;
    for (int64_t s = 0; s < step->a->c; s++) {
        Dim *at = dim_const(g, b->c * s + c->c);
        int64_t first = dim_ceildiv(g, dim_mulc(g, at, -1), a)->c, past = dim_ceildiv(g, dim_sub(g, n, at), a)->c;
        int64_t low = first > 0 ? first : 0, high = past < place->a->c ? place->a->c - past : 0;
        if ((low && high) || low >= place->a->c || high >= place->a->c) return false;
        if (low > *before) *before = (int)low;
        if (high > *after) *after = (int)high;
    }
    return true;
}
