/* The carrier of a fold in a cascade (cascade.c): what its partial sums are multiplied with, and added to, when a fold that they depend on becomes another.
 *
 * A sum over j of F(x_j; d), where d are folds that are complete only after the last j, can be streamed when F is a product g(x) h(d): the partial sum for one
 * d becomes that for another by the factor h(d') / h(d). A table over the graph's primitives finds that factor (ratio, diff) and writes it as nodes over stand-ins
 * for the folds; where F is a sum of such products it needs companions, further folds of the stream. A rank probe in double, which shares nothing with the table, must
 * agree. d comes in two kinds: a pivot (the maximum so far, which bounds every exponent by 0) moves while the axis is passed over; a sum counts as 1 till the end.
 * What a factor does not cover is refused. */
#include "fuse/fuse.h"

#include <math.h>

enum { PROBES = 8 };                    /* samples of x, and of d */

/* ---- the factor ------------------------------------------------------------------------------------------------------------------------------- */
/* A substitution of folds by other nodes of their shape; what does not depend on them stays the same node. early: they may have nothing yet. */
typedef struct Subst { Cone *c; int n; Node *from[MAX_FOLDS], *to[MAX_FOLDS]; bool early; } Subst;

static bool is_zero(const Node *n)
{
    n = under_views(n);
    return n->op == OP_const && n->rank == 0 && dtype_is_float(n->dt) && scalar_load(n->dt, n->tensor->data).f == 0;
}

/* The maximum, where it is a number, else 0: what log-sum-exp subtracts. NULL: n is no such thing. */
static const Node *guarded_pivot(const Node *n)
{
    n = under_views(n);
    if (n->op != OP_where || !is_zero(n->in[2])) return NULL;
    const Node *is = under_views(n->in[0]), *m = under_views(n->in[1]), *far = is->op == OP_eq && is_zero(is->in[1]) ? under_views(is->in[0]) : NULL;
    return far && far->op == OP_sub && under_views(far->in[0]) == m && under_views(far->in[1]) == m ? m : NULL;
}

static Node *subst_node(const Subst *s, Node *n)
{
    for (int i = 0; i < s->n; i++) if (s->from[i] == n) return s->to[i];
    if (!(dep_of(s->c, n) & DEP_d)) return n;
    Node proto = *n, *in[4] = { 0 };
    ASSERT(n->nin <= 4);
    for (int i = 0; i < n->nin; i++) in[i] = subst_node(s, n->in[i]);
    if (n->op == OP_view) return g_view(s->c->f->g, in[0], n->rank, n->dims, &n->view);
    proto.in = in;
    Node *to = graph_add(s->c->f->g, &proto);
    if (!s->early || !guarded_pivot(n)) return to;
    Graph *g = s->c->f->g;               /* nothing yet is -inf, whatever stands for it */
    return g_where(g, g2(g, OP_eq, in[1], g_scalar(g, n->dt, -INFINITY)), in[1], to);
}

static const Node none_node;          /* a factor that does not exist */
#define NONE ((Node *)&none_node)

static Node *combine(Graph *g, Op op, Node *a, Node *b, double none)
{
    if (a == NONE || b == NONE) return NONE;
    if (!b) return a;
    if (!a) {
        if (op == OP_add || op == OP_mul) return b;
        if (op == OP_sub) return g1(g, OP_neg, b);
        a = g_scalar(g, b->dt, none);
    }
    return g2(g, op, a, b);
}

static Node *view_of(Graph *g, const Node *v, Node *x)
{
    return !x || x == NONE ? x : g_view(g, x, v->rank, v->dims, &v->view);
}

/* n(to) - n(from), which must be the same for all x. NULL: 0. */
static Node *diff(Cone *c, Node *n, const Subst *from, const Subst *to)
{
    Graph *g = c->f->g;
    uint8_t dep = dep_of(c, n);
    if (!(dep & DEP_d)) return NULL;
    if (!(dep & DEP_x)) {
        Node *a = subst_node(to, n), *b = subst_node(from, n);
        return a == b ? NULL : g2(g, OP_sub, a, b);
    }
    switch (n->op) {
    case OP_view: return view_of(g, n, diff(c, n->in[0], from, to));
    case OP_add: return combine(g, OP_add, diff(c, n->in[0], from, to), diff(c, n->in[1], from, to), 0);
    case OP_sub: return combine(g, OP_sub, diff(c, n->in[0], from, to), diff(c, n->in[1], from, to), 0);
    case OP_neg: return combine(g, OP_sub, NULL, diff(c, n->in[0], from, to), 0);
    case OP_mul: case OP_div:
        for (int k = 0; k < (n->op == OP_mul ? 2 : 1); k++) {
            Node *with = n->in[1 - k], *d;
            if (dep_of(c, with) & (DEP_d | DEP_x)) continue;
            d = diff(c, n->in[k], from, to);
            return d == NONE || !d ? d : g2(g, n->op, d, with);
        }
        return NONE;
    default: return NONE;
    }
}

/* n(to) / n(from), which must be the same for all x. NULL: 1. */
static Node *ratio(Cone *c, Node *n, const Subst *from, const Subst *to)
{
    Graph *g = c->f->g;
    uint8_t dep = dep_of(c, n);
    if (!(dep & DEP_d)) return NULL;
    if (!(dep & DEP_x)) {
        Node *a = subst_node(to, n), *b = subst_node(from, n);
        return a == b ? NULL : g2(g, OP_div, a, b);
    }
    switch (n->op) {
    case OP_view: return view_of(g, n, ratio(c, n->in[0], from, to));
    case OP_mul: return combine(g, OP_mul, ratio(c, n->in[0], from, to), ratio(c, n->in[1], from, to), 1);
    case OP_div: return combine(g, OP_div, ratio(c, n->in[0], from, to), ratio(c, n->in[1], from, to), 1);
    case OP_neg: return ratio(c, n->in[0], from, to);
    case OP_exp: {
        Node *d = diff(c, n->in[0], from, to);
        return d == NONE || !d ? d : g1(g, OP_exp, d);
    }
    case OP_where: {
        if (dep_of(c, n->in[0]) & DEP_d) return NONE;
        Node *a = ratio(c, n->in[1], from, to), *b = ratio(c, n->in[2], from, to);
        return is_zero(n->in[1]) ? b : is_zero(n->in[2]) || a == b ? a : NONE;
    }
    default: return NONE;
    }
}

/* ---- the bound -------------------------------------------------------------------------------------------------------------------------------- */
/* Is n <= 0 because it is something minus the maximum of it, scaled by a positive number or shifted by what is no pivot? */
static bool below_pivot(Cone *c, const Node *n, int depth)
{
    const Node *m = n->nin == 2 ? under_views(n->in[1]) : NULL;
    if (m && guarded_pivot(m)) m = guarded_pivot(m);
    Visit *v = m ? visit_get(c->f, m) : NULL;
    if (depth > 8) return false;
    switch (n->op) {
    case OP_sub:
        if (v && v->fold && m->kind == FOLD_max && under_views(folded_body(m)) == under_views(n->in[0])) return true;
        return !(dep_of(c, n->in[1]) & DEP_x) && below_pivot(c, n->in[0], depth + 1);
    case OP_add:
        for (int k = 0; k < 2; k++) if (!(dep_of(c, n->in[1 - k]) & DEP_x) && below_pivot(c, n->in[k], depth + 1)) return true;
        return false;
    case OP_mul: case OP_div:
        for (int k = 0; k < (n->op == OP_mul ? 2 : 1); k++) {
            const Node *s = under_views(n->in[1 - k]);
            if (s->op == OP_const && s->rank == 0 && scalar_load(s->dt, s->tensor->data).f > 0 && below_pivot(c, n->in[k], depth + 1)) return true;
        }
        return false;
    default: return false;
    }
}

/* Is every exponent that depends on a fold bounded by its pivot, and does a pivot stand nowhere else? */
static bool exponents_bounded(Cone *c, const Node *n, int *steps)
{
    uint8_t dep = dep_of(c, n);
    if (!(dep & DEP_d)) return true;
    if (--*steps < 0) return false;
    if (n->op == OP_exp && (dep & DEP_x)) return below_pivot(c, n->in[0], 0);
    if (n->op == OP_sub && (dep & DEP_x) && below_pivot(c, n, 0)) return true;      /* times such an exponential it is bounded too */
    Visit *v = visit_get(c->f, n);
    if (v && v->fold) return n->kind == FOLD_sum;
    for (int i = 0; i < n->nin; i++) if (!exponents_bounded(c, n->in[i], steps)) return false;
    return true;
}

static bool rounds_inside(Cone *c, const Node *n, int *steps)
{
    if (!(dep_of(c, n) & DEP_d)) return false;
    if (--*steps < 0 || (n->dt != DT_f32 && (n->dt != DT_bool || (dep_of(c, n) & DEP_x)))) return true;
    Visit *v = visit_get(c->f, n);
    if (v && v->fold) return false;
    for (int i = 0; i < n->nin; i++) if (rounds_inside(c, n->in[i], steps)) return true;
    return false;
}

/* ---- the rank probe --------------------------------------------------------------------------------------------------------------------------- */
/* F at sampled x and d, in double. Leaves get values from a hash of their number and the sample's; sums are positive. */
typedef struct Probe { Cone *c; uint64_t x, d; bool fails; int steps; } Probe;
static double probe_leaf(const Node *n, uint64_t sample, double lo, double hi)
{
    uint64_t h = random_word(sample * 7919 + 17, (uint64_t)n->id);
    if (n->dt == DT_bool) return (double)(h >> 63);
    return lo + (hi - lo) * (double)(h >> 11) * 0x1p-53;
}

static double probe_value(Probe *p, const Node *n)
{
    while (n->op == OP_view && !visit_get(p->c->f, n)) n = n->in[0];
    Visit *v = visit_get(p->c->f, n);
    if (n->op == OP_const && n->rank == 0) {
        Scalar s = scalar_load(n->dt, n->tensor->data);
        return dtype_is_float(n->dt) ? s.f : (double)s.i;
    }
    if (v && v->fold) return n->kind == FOLD_sum ? probe_leaf(n, p->d, 0.5, 4) : probe_leaf(n, p->d, -2, 2);
    if (!v || !by_element(n) || v->inner || v->place != PLACE_in || !(v->dep & DEP_d)) return probe_leaf(n, v && (v->dep & DEP_x) ? p->x : 3, -2, 2);
    if (++p->steps > WALK_STEPS) { p->fails = true; return 0; }
    Scalar in[3] = { { 0 } };
    for (int i = 0; i < n->nin; i++) {
        double y = probe_value(p, n->in[i]);
        if (dtype_is_float(n->in[i]->dt)) in[i].f = y;
        else in[i].i = (int64_t)y;
    }
    if (n->op == OP_where) return in[0].i ? in[1].f : in[2].f;
    if (n->op == OP_cast) return in[0].f;
    if (n->op == OP_bitcast || !dtype_is_float(n->in[0]->dt)) { p->fails = true; return 0; }
    Scalar r = eval_ew(n->op, DT_f64, n->nin, in);
    return prim_info[n->op].compares ? (double)r.i : r.f;
}

/* Numerical rank of F(x_a, d_b): Gaussian elimination with full pivoting. -1: it could not be sampled. */
static int probe_rank(Cone *c, const Node *body)
{
    int worst = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        double m[PROBES][PROBES], most = 0;
        for (int a = 0; a < PROBES; a++)
            for (int b = 0; b < PROBES; b++) {
                Probe p = { c, seed * 100 + (uint64_t)a, seed * 1000 + 500 + (uint64_t)b, false, 0 };
                m[a][b] = probe_value(&p, body);
                if (p.fails || !isfinite(m[a][b])) return -1;
                if (fabs(m[a][b]) > most) most = fabs(m[a][b]);
            }
        int rank = 0;
        for (; rank < PROBES; rank++) {
            int pa = rank, pb = rank;
            for (int a = rank; a < PROBES; a++) for (int b = rank; b < PROBES; b++) if (fabs(m[a][b]) > fabs(m[pa][pb])) { pa = a; pb = b; }
            if (fabs(m[pa][pb]) <= 1e-10 * most) break;
            for (int b = 0; b < PROBES; b++) { double t = m[pa][b]; m[pa][b] = m[rank][b]; m[rank][b] = t; }
            for (int a = 0; a < PROBES; a++) { double t = m[a][pb]; m[a][pb] = m[a][rank]; m[a][rank] = t; }
            for (int a = rank + 1; a < PROBES; a++) {
                double q = m[a][rank] / m[rank][rank];
                for (int b = rank; b < PROBES; b++) m[a][b] -= q * m[rank][b];
            }
        }
        if (rank > worst) worst = rank;
    }
    return worst;
}

/* ---- the carrier ------------------------------------------------------------------------------------------------------------------------------ */
Node *stand_in(Finder *f, const Node *like)
{
    Node proto = { .op = OP_input, .dt = like->dt, .rank = like->rank, .dims = like->dims, .index = -1 - f->all->nstand++ };
    return graph_add(f->g, &proto);
}

/* n(to) = ratio n(from) + sum of by[i] basis[i](from), by[i] being the same for all x. ratio NULL: 1, NONE: in no such form; basis NULL: 1. */
typedef struct Moved { Node *ratio; int n; Node *by[STREAM_TERMS], *basis[STREAM_TERMS]; } Moved;
static const Moved not_moved = { .ratio = NONE };

/* A product of nodes inside, as a node that is looked at like them. */
static Node *inside_product(Cone *c, Node *a, Node *b)
{
    if (!a || !b) return a ? a : b;
    Finder *f = c->f;
    Node *p = g2(f->g, OP_mul, a, b);
    if (p->id >= f->nodes + MADE) return NULL;
    if (visit_get(f, p)) return p;
    Visit *v = NEW(f->arena, Visit);
    *v = (Visit){ .n = p, .dep = dep_of(c, a) | dep_of(c, b), .place = PLACE_in };
    f->at[p->id] = v;
    f->stamp[p->id] = f->now;
    return p;
}

/* What is the same for all x is no part of a basis. */
static void moved_add(Cone *c, Moved *m, Node *by, Node *basis, const Subst *from)
{
    Graph *g = c->f->g;
    while (basis && (basis->op == OP_div || basis->op == OP_mul)) {
        int k = basis->op == OP_mul && !(dep_of(c, basis->in[0]) & (DEP_x | DEP_inner)) ? 0 : 1;
        if (dep_of(c, basis->in[k]) & (DEP_x | DEP_inner)) break;
        by = g2(g, basis->op, by, subst_node(from, basis->in[k]));
        basis = basis->in[1 - k];
    }
    for (int i = 0; i < m->n; i++)
        if (m->basis[i] == basis) { m->by[i] = g2(g, OP_add, m->by[i], by); return; }
    if (m->n == STREAM_TERMS) { *m = not_moved; return; }
    m->by[m->n] = by;
    m->basis[m->n++] = basis;
}

static Moved sum_moved(Cone *c, Node *n, const Subst *from, const Subst *to)
{
    Graph *g = c->f->g;
    Moved m = { .ratio = ratio(c, n, from, to) }, a, b;
    if (m.ratio != NONE) return m;
    Node *d = diff(c, n, from, to);
    if (d != NONE) {
        m = (Moved){ 0 };
        if (d) moved_add(c, &m, d, NULL, from);
        return m;
    }
    switch (n->op) {
    case OP_view:
        a = sum_moved(c, n->in[0], from, to);
        a.ratio = view_of(g, n, a.ratio);
        for (int i = 0; i < a.n; i++) { a.by[i] = view_of(g, n, a.by[i]); a.basis[i] = view_of(g, n, a.basis[i]); }
        return a;
    case OP_mul:
        a = sum_moved(c, n->in[0], from, to);
        b = sum_moved(c, n->in[1], from, to);
        if (a.ratio == NONE || b.ratio == NONE) return not_moved;
        m = (Moved){ .ratio = combine(g, OP_mul, a.ratio, b.ratio, 1) };
        for (int i = 0; i < a.n; i++) moved_add(c, &m, combine(g, OP_mul, a.by[i], b.ratio, 1), inside_product(c, a.basis[i], n->in[1]), from);
        for (int i = 0; i < b.n; i++) moved_add(c, &m, combine(g, OP_mul, b.by[i], a.ratio, 1), inside_product(c, b.basis[i], n->in[0]), from);
        for (int i = 0; i < a.n; i++) for (int k = 0; k < b.n; k++) moved_add(c, &m, g2(g, OP_mul, a.by[i], b.by[k]), inside_product(c, a.basis[i], b.basis[k]), from);
        return m;
    case OP_div:
        if (dep_of(c, n->in[1]) & DEP_x) return not_moved;
        a = sum_moved(c, n->in[0], from, to);
        if (a.ratio == NONE) return a;
        m.ratio = combine(g, OP_div, a.ratio, ratio(c, n->in[1], from, to), 1);
        for (int i = 0; i < a.n; i++) moved_add(c, &m, g2(g, OP_div, a.by[i], subst_node(to, n->in[1])), a.basis[i], from);
        return m;
    case OP_neg:
        a = sum_moved(c, n->in[0], from, to);
        for (int i = 0; i < a.n; i++) a.by[i] = g1(g, OP_neg, a.by[i]);
        return a;
    case OP_add: case OP_sub:
        a = sum_moved(c, n->in[0], from, to);
        b = sum_moved(c, n->in[1], from, to);
        if (a.ratio == NONE || a.ratio != b.ratio) return not_moved;
        for (int i = 0; i < b.n; i++) moved_add(c, &a, n->op == OP_sub ? g1(g, OP_neg, b.by[i]) : b.by[i], b.basis[i], from);
        return a;
    default: return not_moved;
    }
}

/* The fold of the stream that sums up `basis`, which is made if there is none; -1: there is no room for it. */
static int companion(Cone *c, Stream *s, const StreamFold *f, Node *basis)
{
    Graph *g = c->f->g;
    const Node *x = f->node->in[0], *b = f->body;
    for (int i = 0; i < s->nfold && basis; i++)
        if (s->fold[i].node->kind == FOLD_sum && under_views(s->fold[i].body) == under_views(basis)) return i;
    if (s->nfold == MAX_FOLDS) return -1;
    Node *body = basis ? g_expand(g, basis, b->rank, b->dims) : g_expand(g, g_scalar(g, DT_f32, 1), b->rank, b->dims);
    if (body->op == OP_const) return -1;
    Node *sum = g_fold(g, FOLD_sum, x == b ? body : g_view(g, body, x->rank, x->dims, &x->view), f->node->axes, false);
    if (sum->op != OP_fold) return -1;
    s->fold[s->nfold] = (StreamFold){ .node = sum, .in = f->in, .body = body, .at = f->at, .out = f->out, .stage = f->stage };
    return s->nfold++;
}

static bool node_needs(const Node *n, const Node *what, int *steps)
{
    if (n == what || --*steps < 0) return true;
    for (int i = 0; i < n->nin && n->id > what->id; i++) if (node_needs(n->in[i], what, steps)) return true;
    return false;
}

static bool terms_make(Cone *c, Stream *s, StreamFold *f, const Moved *m, bool advance)
{
    for (int i = 0; i < m->n; i++) {
        int of = companion(c, s, f, m->basis[i]), k = 0;
        if (of < 0) return false;
        while (k < f->nterm && f->term[k].of != of) k++;
        if (k == STREAM_TERMS) return false;
        if (k == f->nterm) f->term[f->nterm++] = (StreamTerm){ .of = of };
        if (advance) f->term[k].advance = m->by[i];
        else f->term[k].finish = m->by[i];
        for (int d = 0; advance && d < s->nfold; d++) if (s->fold[d].pivot && node_needs(m->by[i], s->fold[d].old, &(int){ WALK_STEPS })) f->term[k].pivots |= 1u << d;
    }
    return true;
}

/* The factors of one sum; false with a reason when there are none. */
bool carrier_make(Cone *c, Stream *s, StreamFold *f)
{
    Finder *w = c->f;
    Graph *g = w->g;
    Node *body = f->body;
    Subst old = { .c = c, .early = true }, cur = { .c = c }, end = { .c = c };
    uint8_t dep = dep_of(c, body);
    if (f->node->kind == FOLD_max && !(dep & DEP_d)) { f->pivot = true; return true; }
    if (!(dep & DEP_d) && (f->node->kind == FOLD_sum || f->node->kind == FOLD_min)) return true;
    if (f->node->kind != FOLD_sum) { refuse_cone(c, body, f->node, "only sums, and extremes of what needs no other fold, are streamed"); return false; }
    if (rounds_inside(c, body, &(int){ WALK_STEPS })) { refuse_cone(c, body, f->node, "a rounding stands between the folds: no finite rank"); return false; }
    for (int i = 0; i < s->nfold; i++) {
        StreamFold *d = &s->fold[i];
        if (d->node->id >= f->node->id || d->node->id >= w->nodes) continue;
        Node *one = d->pivot ? NULL : g_expand(g, g_scalar(g, d->node->dt, 1), d->node->rank, d->node->dims);
        old.from[old.n] = cur.from[old.n] = end.from[old.n] = d->node;
        old.to[old.n] = d->pivot ? d->old : one;
        cur.to[old.n] = d->pivot ? d->cur : one;
        end.to[old.n] = d->node;
        old.n = cur.n = end.n = old.n + 1;
    }
    f->rank = probe_rank(c, body);
    Moved advance = not_moved, finish = not_moved;
    if (f->rank >= 1) {                  /* the samples have shown that there are not too many ways down */
        advance = sum_moved(c, body, &old, &cur);
        finish = sum_moved(c, body, &cur, &end);
    }
    if (advance.ratio == NONE || finish.ratio == NONE || f->rank < 1 || f->rank > 1 + (advance.n > finish.n ? advance.n : finish.n)) {
        refuse_cone(c, body, f->node, f->rank < 0 ? "its dependence on the folds before it could not be sampled"
            : f->rank > 4 ? "as a function of the folds before it it has a rank above 4: two passes" : "of finite rank, but in no form that factors are known for");
        return false;
    }
    if (!exponents_bounded(c, body, &(int){ WALK_STEPS })) { refuse_cone(c, body, f->node, "no pivot bounds its exponent: a partial sum could overflow"); return false; }
    f->advance = advance.ratio;
    f->finish = finish.ratio;
    if (!terms_make(c, s, f, &advance, true) || !terms_make(c, s, f, &finish, false)) { refuse_cone(c, body, f->node, "its carrier needs too many sums"); return false; }
    return true;
}
