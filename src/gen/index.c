/* Index expressions of a kernel as C: sizes, variables, and sums of their products.
 *
 * The text depends on the structure of a kernel only: sizes from 8 on are arguments n0, n1 ..., so kernels of different sizes are one. Variables are named by what
 * they count: i0 an axis of the space, k0 a loop of a contraction, t0 axes that were merged, p0 a parallel axis of groups of threads; inside the loops over a
 * tile's rows, vectors and single lanes the name gets an m, v or l. */
#include "gen/gen.h"

#include <string.h>

const char *print_arg(Printer *p, Dim *d)
{
    int i = 0;
    while (i < p->arg.n && p->arg.at[i] != d) i++;
    if (i == p->arg.n) vec_push(p->arena, &p->arg, d);
    return arena_fmt(p->arena, "n%d", i);
}

static const char *number(Printer *p, Dim *d)
{
    if (dim_is_const(d) && d->c > -8 && d->c < 8) return arena_fmt(p->arena, "%lld", (long long)d->c);
    if (d->kind == DIM_sum && d->n == 0 && d->c < 0) return arena_fmt(p->arena, "-%s", print_arg(p, dim_const(p->g, -d->c)));
    return print_arg(p, d);
}

const char *print_var(Printer *p, const Dim *var)
{
    if (var->var == BUNDLE_VAR) return "first";
    if (var->var == START_VAR) return arena_fmt(p->arena, "%s0", print_var(p, p->k->vec_var));
    for (int i = 0; p->simt && i < p->k->npar; i++) if (p->k->par[i].var == var) return arena_fmt(p->arena, "p%d", i);     /* merged or not: one text for both */
    if (var->var >= MERGED_VAR) return arena_fmt(p->arena, "t%d", var->var - MERGED_VAR);
    if (var->var >= LOOP_VAR) return arena_fmt(p->arena, "k%d", var->var - LOOP_VAR);
    return arena_fmt(p->arena, "i%d", var->var - SPACE_VAR);
}

/* A variable at the point of the tile where we are. */
static const char *var_here(Printer *p, const Dim *var)
{
    if (var->var >= VALUE_VAR) return print_operand(p, p->vals[var->var - VALUE_VAR]);
    if (var->var == BASE_VAR) return print_var(p, p->k->vec_var);
    const char *s = print_var(p, var);
    if (p->k->row_var == var && p->in_m) return arena_fmt(p->arena, "%s%c", s, p->past_rows ? 'r' : 'm');
    if (p->at_pack && var == p->k->par[p->k->npar - 1].var) return arena_fmt(p->arena, "%s_0", s);
    if (p->lane == var) return p->lane_of ? arena_fmt(p->arena, "%sl", s) : p->in_v ? arena_fmt(p->arena, "%sv", s) : s;
    return s;
}

static const char *atom(Printer *p, Dim *d)
{
    if (!d->idx_mask) return number(p, d);
    const char *a, *b;
    switch (d->kind) {
    case DIM_idx: return var_here(p, d);
    case DIM_div: case DIM_mod:
        a = print_dim(p, d->a); b = print_dim(p, d->b);
        if (p->simt && dim_prove_ge0(p->g, d->a)) return arena_fmt(p->arena, "%s(%s, %s)", d->kind == DIM_div ? "quot" : "rest", a, b);
        if (dim_prove_ge0(p->g, d->a)) return arena_fmt(p->arena, "(%s) %s %s", a, d->kind == DIM_div ? "/" : "%", d->b->idx_mask ? arena_fmt(p->arena, "(%s)", b) : b);
        return arena_fmt(p->arena, "%s(%s, %s)", d->kind == DIM_div ? "idiv" : "imod", a, b);
    case DIM_min: return arena_fmt(p->arena, "imin(%s, %s)", print_dim(p, d->a), print_dim(p, d->b));
    case DIM_max: return arena_fmt(p->arena, "imax(%s, %s)", print_dim(p, d->a), print_dim(p, d->b));
    case DIM_sum: return arena_fmt(p->arena, "(%s)", print_dim(p, d));
    case DIM_sym: break;
    }
    ASSERT(!"a variable");
    return "";
}

/* Sums: what has no variable in it is one argument; terms with the same variables share one coefficient, and those with one coefficient are added up
 * before they are multiplied: addresses of neighbours are then seen to be the same. */
enum { POINTERS = 6 };                   /* more rows than that cannot each have a register for their address: the distance is a number, so that one serves all */
typedef struct Term { Dim *coef; bool negative, rows; const char *text; } Term;
const char *print_dim(Printer *p, Dim *d)
{
    if (!d->idx_mask) return number(p, d);
    if (d->kind != DIM_sum) return atom(p, d);
    Graph *g = p->g;
    Dim *rest = dim_const(g, d->c);
    const char *out = NULL;
    bool *used = NEWS(p->arena, bool, d->n);
    Term *term = NEWS(p->arena, Term, d->n);
    int n = 0;
    for (int i = 0; i < d->n; i++) {
        if (used[i]) continue;
        Dim *coef = dim_const(g, 0);
        int nvar = 0;
        Dim *var[32];
        for (int f = 0; f < d->term[i].n; f++) if (d->term[i].factor[f]->idx_mask && nvar < 32) var[nvar++] = d->term[i].factor[f];
        for (int j = i; j < d->n; j++) {
            Dim *c = dim_const(g, d->term[j].coef);
            int m = 0; bool same = true;
            for (int f = 0; f < d->term[j].n; f++) {
                Dim *x = d->term[j].factor[f];
                if (!x->idx_mask) c = dim_mul(g, c, x);
                else { same = same && m < nvar && var[m] == x; m++; }
            }
            if (!same || m != nvar) continue;
            used[j] = true;
            coef = dim_add(g, coef, c);
        }
        if (!nvar) { rest = dim_add(g, rest, coef); continue; }
        bool negative = dim_is_const(coef) && coef->c < 0 && coef->c != INT64_MIN;
        if (negative) coef = dim_const(g, -coef->c);
        const char *s = NULL;
        for (int f = 0; f < nvar; f++) {
            const char *x = atom(p, var[f]);
            if (var[f]->kind == DIM_div || var[f]->kind == DIM_mod) x = arena_fmt(p->arena, "(%s)", x);
            s = s ? arena_fmt(p->arena, "%s * %s", s, x) : x;
        }
        int at = 0;
        while (at < n && (term[at].coef != coef || term[at].negative != negative || dim_is(coef, 1))) at++;
        bool rows = p->in_m && nvar == 1 && var[0] == p->k->row_var;
        if (at == n) { term[n++] = (Term){ coef, negative, rows, s }; continue; }
        term[at].rows |= rows;
        term[at].text = arena_fmt(p->arena, "%s + %s", term[at].text, s);
    }
    for (int i = 0; i < n; i++) {
        const char *s = term[i].text;
        const char *by = term[i].rows && dim_is_const(term[i].coef) && !p->simt && p->k->mr > POINTERS ? arena_fmt(p->arena, "%lld", (long long)term[i].coef->c) : NULL;
        if (by && (rows_whole(p->k) || p->shifted || p->inside) && !strcmp(s, arena_fmt(p->arena, "%sm", print_var(p, p->k->row_var)))) s = arena_fmt(p->arena, "%s * %s %c %s * m", by, print_var(p, p->k->row_var), term[i].negative ? '-' : '+', by);
        else if (!dim_is(term[i].coef, 1)) s = arena_fmt(p->arena, strstr(s, " + ") ? "%s * (%s)" : "%s * %s", by ? by : number(p, term[i].coef), s);
        out = out ? arena_fmt(p->arena, "%s %s %s", out, term[i].negative ? "-" : "+", s) : term[i].negative ? arena_fmt(p->arena, "-%s", s) : s;
    }
    if (dim_is(rest, 0)) return out ? out : "0";
    if (dim_is_const(rest) && rest->c < 0 && out) return arena_fmt(p->arena, "%s - %s", out, number(p, dim_const(g, -rest->c)));
    return out ? arena_fmt(p->arena, "%s + %s", out, number(p, rest)) : number(p, rest);
}
