/* Cascaded reductions: folds along one axis, each of which may need those before it, as one kernel that passes over the axis once.
 *
 * From a fold back to what it reads (its cone), every node gets its index at a point of the fold's space. Nodes that vary along the axis and along a row axis,
 * and what is computed from them, are inside; everything else is read from memory. So the matrix of scores between two contractions is never written.
 *
 * A sum over the axis that depends on folds which are complete only after its last step is streamed where its partial sums can be moved from one value of these
 * folds to another: carrier.c finds how. A cascade is taken where every fold has such a carrier, nobody else needs what is inside, and it pays. */
#include "fuse/fuse.h"

#include <string.h>

enum { MAX_INSIDE = 100, MAX_CONE = 400, LEAST_ROWS = 8, LEAST_STEPS = 32, MAX_OUT = 8, MAX_OWN = 256, FEW_STEPS = 256, LEAST_KEPT = 1 << 20, MAX_MORE = 4, MAX_TRIES = 32 };

void refuse_cone(Cone *c, const Node *from, const Node *to, const char *why)
{
    if (!c->why) { c->from = from; c->to = to; c->why = why; }
}

/* ---- the cone ---------------------------------------------------------------------------------------------------------------------------- */
static bool index_uses(int rank, Dim *const *idx, const Dim *var)
{
    for (int k = 0; k < rank; k++) if (!var || dim_uses(idx[k], var->var)) return true;
    return !var;
}

Visit *visit_get(Finder *f, const Node *n) { return n->id < f->nodes + MADE && f->stamp[n->id] == f->now ? f->at[n->id] : NULL; }

static Visit *visit_new(Cone *c, Node *n, Dim *const *idx)
{
    Finder *f = c->f;
    Visit *v = NEW(f->arena, Visit);
    v->n = n;
    v->idx = NEWS(f->arena, Dim *, n->rank + 1);
    for (int k = 0; k < n->rank; k++) v->idx[k] = idx[k];
    f->at[n->id] = v;
    f->stamp[n->id] = f->now;
    vec_push(f->arena, &c->visit, v);
    return v;
}

static Visit *cone_walk(Cone *c, Node *n, Dim *const *idx);

/* Is n, which was visited, read from memory or computed element by element of what is? */
static bool visit_plain(Finder *f, const Node *n)
{
    while (n->op == OP_view && !n->view.npred) n = n->in[0];
    const Visit *v = visit_get(f, n);
    return v && (v->place == PLACE_out || v->plain);
}

/* The body of a fold that stands at every point: what exists only there (it uses the fold's own axes besides) is inside, the rest is read. */
static void cone_body_walk(Cone *c, Node *n, Dim *const *idx, int own)
{
    Finder *f = c->f;
    Dim *to[MAX_RANK] = { 0 };
    while (n->op == OP_view && !n->view.npred) {
        for (int k = 0; k < n->view.nidx; k++) to[k] = dim_subst(f->g, n->view.idx[k], n->rank, idx);
        n = n->in[0];
        idx = to;
        Dim **copy = NEWS(f->arena, Dim *, n->rank + 1);
        for (int k = 0; k < n->rank; k++) copy[k] = idx[k];
        idx = copy;
    }
    Visit *v = visit_get(f, n);
    if (v) {
        for (int k = 0; k < n->rank && v->place == PLACE_in && !v->plain; k++) if (v->idx[k] != idx[k]) refuse_cone(c, n, c->out, "it is needed at two indices");
        return;
    }
    v = visit_new(c, n, idx);
    bool mine = false;
    for (int k = 0; k < n->rank; k++)
        for (int a = own; a < own + MAX_RANK; a++) mine |= dim_uses(idx[k], a);
    if (!by_element(n) || !mine || !index_uses(n->rank, idx, c->i) || !index_uses(n->rank, idx, c->j)) return;
    v->place = PLACE_in;
    v->dep = DEP_x | DEP_inner;
    v->plain = true;
    for (int k = 0; k < n->nin; k++) {
        cone_body_walk(c, n->in[k], idx, own);
        v->plain &= visit_plain(f, n->in[k]);
    }
}

/* What a fold folds: behind a view that only ends the axis. */
Node *folded_body(const Node *fold)
{
    Node *x = fold->in[0];
    return x->op == OP_view && x->view.npred == 1 ? x->in[0] : x;
}

/* Its index where the fold's operand is at `in`. A view with a predicate must say no more than where the axis ends (*end; else NULL); NULL if it says more. */
static Dim **body_at(Cone *c, const Node *fold, Dim **in, Dim **end)
{
    Graph *g = c->f->g;
    const Node *x = fold->in[0], *b = folded_body(fold);
    *end = NULL;
    if (x == b) return in;
    Dim **at = NEWS(c->f->arena, Dim *, b->rank + 1), *coef, *rest, *e = dim_subst(g, x->view.pred[0].e, x->rank, in), *n = dim_subst(g, x->view.pred[0].n, x->rank, in);
    for (int k = 0; k < b->rank; k++) at[k] = dim_subst(g, x->view.idx[k], x->rank, in);
    if (!dtype_is_float(x->dt) || x->view.fill.f != fold_start((FoldKind)fold->kind, x->dt).f || dim_uses(n, c->j->var)) return NULL;
    if (!dim_linear(g, e, c->j->var, &coef, &rest) || !dim_is(coef, 1) || !dim_prove_ge0(g, rest)) return NULL;
    *end = dim_sub(g, n, rest);
    return at;
}

/* Another fold of the cone, which ends there. */
static void end_add(Cone *c, const Node *fold, Dim *end)
{
    if (c->ended && c->end != end) refuse_cone(c, fold->in[0], fold, "the folds end at different places of the axis");
    c->ended = true;
    c->end = end;
}

static Visit *cone_fold(Cone *c, Node *n, Dim *const *idx)
{
    Finder *f = c->f;
    const Node *x = n->in[0];
    bool at_j = index_uses(n->rank, idx, c->j), at_i = index_uses(n->rank, idx, c->i);
    Visit *v = visit_new(c, n, idx);
    Dim **in = NEWS(f->arena, Dim *, x->rank + 1);
    int wide = 0, last = -1;
    for (int k = 0, r = 0; k < x->rank; k++) {
        if (!(n->axes >> k & 1)) { in[k] = idx[r++]; continue; }
        in[k] = dim_const(f->g, 0);
        if (dim_is(x->dims[k], 1)) continue;
        wide++;
        last = k;
    }
    if (at_j && at_i) {
        for (int k = 0; k < x->rank; k++) if ((n->axes >> k & 1) && !dim_is(x->dims[k], 1)) in[k] = dim_idx(f->g, CONE_VAR + k, x->dims[k]);
        v->inner = true;
        v->place = PLACE_in;
        v->dep = DEP_x | DEP_inner;
        cone_body_walk(c, n->in[0], in, CONE_VAR);
    } else if (!at_j && wide == 1 && x->dims[last] == c->j->a) {
        in[last] = c->j;
        Dim *end, **at = body_at(c, n, in, &end);
        Visit *b = cone_walk(c, at ? folded_body(n) : n->in[0], at ? at : in);
        if (b->place == PLACE_in && (b->dep & (DEP_d | DEP_inner))) {
            v->fold = true;
            v->place = PLACE_in;
            v->dep = DEP_d;
            v->in = in;
            v->at = at;
            end_add(c, n, end);
        }
    }
    return v;
}

static Visit *cone_walk(Cone *c, Node *n, Dim *const *idx)
{
    Finder *f = c->f;
    Dim *at[MAX_RANK] = { 0 };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    while (n->op == OP_view && !n->view.npred) {
        Dim *to[MAX_RANK] = { 0 };
        for (int k = 0; k < n->view.nidx; k++) to[k] = dim_subst(f->g, n->view.idx[k], n->rank, at);
        n = n->in[0];
        for (int k = 0; k < n->rank; k++) at[k] = to[k];
    }
    Visit *v = visit_get(f, n);
    if (v) {
        bool same = true;
        for (int k = 0; k < n->rank; k++) same &= v->idx[k] == at[k];
        if (!same && v->place != PLACE_out && !v->plain) refuse_cone(c, n, c->out, "it is needed at two indices");
        return v;
    }
    if (n->op == OP_fold && c->visit.n < MAX_CONE) return cone_fold(c, n, at);
    v = visit_new(c, n, at);
    bool at_j = index_uses(n->rank, at, c->j), at_i = index_uses(n->rank, at, c->i);
    v->dep = at_j ? DEP_x : 0;
    if (!by_element(n) || c->visit.n >= MAX_CONE) return v;
    bool inside = false;
    v->plain = true;
    for (int k = 0; k < n->nin; k++) {
        Visit *o = cone_walk(c, n->in[k], at);
        inside |= o->place == PLACE_in;
        v->plain &= visit_plain(f, n->in[k]);
        v->dep |= o->place == PLACE_in ? o->dep : o->dep & DEP_x;
    }
    v->place = inside ? PLACE_in : at_j && at_i ? PLACE_leaf : PLACE_out;
    return v;
}

/* Are all who read n, through views, inside? */
static bool read_inside(Cone *c, const Node *n)
{
    Finder *f = c->f;
    for (int i = f->first[n->id]; i < f->first[n->id + 1]; i++) {
        const Node *r = f->g->node.at[f->reader[i]];
        Visit *v = visit_get(f, r);
        if (v && v->place == PLACE_in) continue;
        if (r->op != OP_view || !read_inside(c, r)) return false;
    }
    for (int i = 0; i < f->g->output.n; i++) if (f->g->output.at[i].node == n) return false;
    return true;
}

uint8_t dep_of(Cone *c, const Node *n)
{
    while (n->op == OP_view && !visit_get(c->f, n)) n = n->in[0];
    Visit *v = visit_get(c->f, n);
    return v ? v->dep : 0;
}

static int64_t space_count_hint(const Graph *g, int rank, Dim *const *dims)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++) n *= dim_hint(g, dims[k]);
    return n;
}

/* Loads inside contractions and results with axes of their own that differ along both the axis and the row axis: nothing to share between rows. */
static bool shares_rows(Cone *c)
{
    for (int i = 0; i < c->visit.n; i++) {
        Visit *v = c->visit.at[i];
        if (v->place != PLACE_out || v->n->op == OP_const) continue;
        bool own = false;
        for (int k = 0; k < v->n->rank; k++) for (int a = 0; a < MAX_RANK; a++) own |= dim_uses(v->idx[k], CONE_VAR + a);
        if (own && index_uses(v->n->rank, v->idx, c->i) && index_uses(v->n->rank, v->idx, c->j)) return false;
    }
    return true;
}

/* ---- results -------------------------------------------------------------------------------------------------------------------------------------- */
/* A fold of the cone that is wanted: the first, or a further one (cone_more). */
static void cone_result(Cone *c, Node *r, Dim **in, Dim **body)
{
    Dim *at[MAX_RANK] = { 0 };
    fold_index(c->f->g, r, in, at);
    Visit *v = visit_new(c, r, at);
    v->fold = v->result = true;
    v->place = PLACE_in;
    v->dep = DEP_d;
    v->in = in;
    v->at = body;
}

/* The index, at a point of the space, of what fold r reduces, where it reads something that stands inside: axis by axis; NULL for axes of its own. */
static bool index_inside(Cone *c, const Node *n, Dim *const *idx, Dim **in, int *fuel)
{
    Graph *g = c->f->g;
    Dim *at[MAX_RANK] = { 0 };
    for (int k = 0; k < n->rank; k++) at[k] = idx[k];
    while (n->op == OP_view && !n->view.npred) {
        Dim *to[MAX_RANK] = { 0 };
        for (int k = 0; k < n->view.nidx; k++) to[k] = dim_subst(g, n->view.idx[k], n->rank, at);
        n = n->in[0];
        for (int k = 0; k < n->rank; k++) at[k] = to[k];
    }
    if (--*fuel < 0) return false;
    const Visit *v = visit_get(c->f, n);
    if (v && v->place == PLACE_in && !v->result && (v->dep & DEP_x)) {
        for (int k = 0; k < n->rank; k++) {
            ASSERT(at[k]);
            if (at[k]->kind == DIM_idx && (v->idx[k]->kind == DIM_idx ? at[k]->a == v->idx[k]->a : dim_is_const(v->idx[k]))) in[at[k]->var] = v->idx[k];
            for (int i = 0; at[k]->kind == DIM_sum && v->idx[k]->kind == DIM_sum && at[k]->n == v->idx[k]->n && at[k]->c == v->idx[k]->c && i < at[k]->n; i++)      /* a part's place */
                for (int j = 0; j < at[k]->n; j++) {
                    const DimTerm *a = &at[k]->term[i], *b = &v->idx[k]->term[j];
                    if (a->n == 1 && b->n == 1 && a->coef == b->coef && a->factor[0]->kind == DIM_idx && b->factor[0]->kind == DIM_idx && a->factor[0]->a == b->factor[0]->a) in[a->factor[0]->var] = b->factor[0];
                }
        }
        return true;
    }
    if (!by_element(n)) return false;
    for (int k = 0; k < n->nin; k++) if (index_inside(c, n->in[k], at, in, fuel)) return true;
    return false;
}

/* A further fold along the axis that reads what is inside becomes a result of the same kernel. Axes that only it has are axes of the space like those of the first result. */
static bool cone_more(Cone *c, Node *r)
{
    Graph *g = c->f->g;
    const Node *x = r->in[0];
    Dim *own[MAX_RANK] = { 0 }, **in = NEWS(c->f->arena, Dim *, x->rank + 1);
    int fuel = 200, reduced = -1;
    uint32_t used = 0;
    if (visit_get(c->f, r)) return false;
    for (int k = 0; k < x->rank; k++) {
        own[k] = dim_idx(g, k, x->dims[k]);
        if ((r->axes >> k & 1) && !dim_is(x->dims[k], 1)) reduced = k;
    }
    Node *body = folded_body(r);
    Dim *at[MAX_RANK] = { 0 };
    for (int k = 0; k < body->rank; k++) at[k] = body == x ? own[k] : dim_subst(g, x->view.idx[k], x->rank, own);
    if (!index_inside(c, body, at, in, &fuel) || in[reduced] != c->j) return false;
    for (int i = 0; i < c->visit.n; i++) {           /* axes that rows or contractions run over are no axes of a result's own */
        const Visit *v = c->visit.at[i];
        for (int a = 0; a < c->rank && (v->inner || (v->fold && !v->result)); a++) if (index_uses(v->n->rank, v->idx, dim_idx(g, SPACE_VAR + a, c->space[a]))) used |= 1u << a;
    }
    for (int k = 0; k < x->rank; k++) {
        if (in[k]) { if (in[k]->kind == DIM_idx) used |= 1u << (in[k]->var - SPACE_VAR); continue; }
        int a = 0;
        if (dim_is(x->dims[k], 1)) { in[k] = dim_const(g, 0); continue; }
        while (a < c->rank && ((used >> a & 1) || c->space[a] != x->dims[k] || a == c->axis)) a++;
        if (a == MAX_RANK) return false;
        if (a == c->rank) c->space[c->rank++] = x->dims[k];
        used |= 1u << a;
        in[k] = dim_idx(g, SPACE_VAR + a, x->dims[k]);
    }
    Dim *end, **index = body_at(c, r, in, &end);
    if (!index) return false;
    end_add(c, r, end);
    const Visit *b = cone_walk(c, body, index);
    if (b->place != PLACE_in || c->why) return false;
    cone_result(c, r, in, index);
    return true;
}

/* The cone of fold `out` with rows along space axis `lane` (-1: few), and of further folds. False: no cascade. */
static bool cone_try(Finder *f, Node *out, int axis, int lane, int nmore, Node *const *more, Cone *c)
{
    Graph *g = f->g;
    Node *x = out->in[0];
    *c = (Cone){ .f = f, .out = out, .axis = axis, .lane = lane, .rank = x->rank };
    c->space = NEWS(f->arena, Dim *, MAX_RANK);
    f->now++;
    Dim **idx = NEWS(f->arena, Dim *, x->rank + 1);
    for (int k = 0; k < x->rank; k++) { c->space[k] = x->dims[k]; idx[k] = dim_idx(g, SPACE_VAR + k, x->dims[k]); }
    c->j = idx[axis];
    c->i = lane < 0 ? NULL : idx[lane];
    Dim *end, **at = body_at(c, out, idx, &end);
    if (!at) return false;
    end_add(c, out, end);
    Visit *body = cone_walk(c, folded_body(out), at);
    if (body->place != PLACE_in || !(body->dep & DEP_inner)) return false;
    if ((!by_element(body->n) && out->kind == FOLD_sum) || body->n != under_views(folded_body(out))) return false;
    cone_result(c, out, idx, at);
    for (int i = 0; i < nmore; i++) if (!cone_more(c, more[i])) return false;
    /* an own part of the row and the axis is inside if only the inside reads it */
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < c->visit.n; i++) {
            Visit *v = c->visit.at[i];
            if (v->place != PLACE_leaf) continue;
            bool all = true;
            v->place = PLACE_in;
            all = read_inside(c, v->n);
            if (!all) v->place = PLACE_out;
            again |= all;
            if (all) continue;
            v->place = PLACE_leaf;
        }
    }
    for (int i = 0; i < c->visit.n; i++) if (c->visit.at[i]->place == PLACE_leaf) c->visit.at[i]->place = PLACE_out;
    return true;
}

/* Axes of the space in the index of v. */
static uint32_t axes_of_visit(const Cone *c, const Visit *v)
{
    uint32_t used = 0;
    for (int a = 0; a < c->rank; a++) if (!dim_is(c->space[a], 1) && index_uses(v->n->rank, v->idx, dim_idx(c->f->g, SPACE_VAR + a, c->space[a]))) used |= 1u << a;
    return used;
}

/* Is every element of v's node at some point of the space? */
static bool index_plain(const Cone *c, const Visit *v)
{
    uint32_t seen = 0;
    for (int k = 0; k < v->n->rank; k++) {
        const Dim *i = v->idx[k];
        if (dim_is(v->n->dims[k], 1)) continue;
        if (i->kind != DIM_idx || i->a != v->n->dims[k] || i->var < SPACE_VAR || i->var >= SPACE_VAR + c->rank || (seen >> (i->var - SPACE_VAR) & 1)) return false;
        seen |= 1u << (i->var - SPACE_VAR);
    }
    return true;
}

static bool cone_legal(Cone *c)
{
    Finder *f = c->f;
    int inside = 0, first = f->nodes, last = -1;
    uint8_t *reads = f->reads;
    memset(reads, 0, (size_t)f->nodes + 1);
    for (int i = 0; i < c->visit.n; i++) {
        Visit *v = c->visit.at[i];
        if (v->place == PLACE_out && v->n->id > last) last = v->n->id;
        if (v->place != PLACE_in) continue;
        if (v->n->id < first) first = v->n->id;
        inside++;
        reads[v->n->id] = 1;
        if (v->n->op == OP_fold && v->n->dt != DT_f32) refuse_cone(c, v->n, c->out, "only float32 is streamed");
        if (v->n->op == OP_fold && v->n->whole) refuse_cone(c, v->n, c->out, "one is computed in parts");
        if (f->all->claim[v->n->id] >= 0) refuse_cone(c, v->n, c->out, "another kernel streams it");
        if (!v->result && ((v->dep & DEP_x) || !index_plain(c, v)) && !read_inside(c, v->n)) refuse_cone(c, v->n, c->out, "it is needed elsewhere as well");        /* what stands once for each row is stored besides */
    }
    if (inside > MAX_INSIDE) refuse_cone(c, c->out->in[0], c->out, "the kernel is full");
    for (int id = first; id <= last; id++) {         /* what is read from memory must not wait for the inside */
        const Node *n = f->g->node.at[id];
        for (int k = 0; k < n->nin && !reads[id]; k++) reads[id] = reads[n->in[k]->id] ? 2 : 0;
    }
    for (int i = 0; i < c->visit.n; i++) {
        Visit *v = c->visit.at[i];
        if (v->place == PLACE_out && reads[v->n->id]) refuse_cone(c, v->n, c->out, "it is read through padding or by index");
    }
    return !c->why;
}

static bool cone_pays(Cone *c, const Stream *s)
{
    Graph *g = c->f->g;
    const Node *x = c->out->in[0];
    int64_t rows = c->lane < 0 ? LEAST_ROWS : dim_hint(g, x->dims[c->lane]), steps = dim_hint(g, x->dims[c->axis]), outs = 1, own = 0;
    for (int k = 0; k < c->rank; k++) if (s->out >> k & 1) outs *= dim_hint(g, c->space[k]);
    for (int i = 0; i < c->visit.n; i++) {
        Visit *v = c->visit.at[i];
        if (!v->inner) continue;
        int64_t n = space_count_hint(g, v->n->in[0]->rank, v->n->in[0]->dims) / (space_count_hint(g, v->n->rank, v->n->dims) + 1);
        if (n > own) own = n;
    }
    if (rows < LEAST_ROWS) refuse_cone(c, c->out->in[0], c->out, "too few rows to fill vectors: partly fused");
    else if (steps < LEAST_STEPS) refuse_cone(c, c->out->in[0], c->out, "the axis is short: partly fused");
    else if (!s->out && own > MAX_OWN) refuse_cone(c, c->out->in[0], c->out, "its contraction is long, and goes faster in a kernel of its own: partly fused");
    else if (s->nfold == 1) {            /* no cascade: only the store between is saved */
        int64_t kept = space_count_hint(g, x->rank, x->dims) / outs;
        if (outs > MAX_OUT || own > 128 || kept < LEAST_KEPT) refuse_cone(c, c->out->in[0], c->out, "keeping what is between costs less: partly fused");
    }
    return !c->why;
}

/* What explain says of a fold: its rank in the folds before it, its form, and the fact that makes it safe. */
static void receipt_add(Cone *c, const Stream *s, const StreamFold *f)
{
    Finder *w = c->f;
    bool chained = dep_of(c, f->body) & DEP_d;
    Receipt r = { f->node, f->node->kind == FOLD_min ? "minimum, rank 0: needs no fold before it; what parts come to is compared" : f->pivot && s->nfold == 1 ? "maximum, rank 0: needs no fold before it; what parts come to is compared" : f->pivot ? "maximum, rank 0: the pivot; it moves while the axis is passed over"
        : !chained ? "sum, rank 0: needs no fold before it; partial sums are added up"
        : f->advance && !f->nterm ? arena_fmt(w->arena, "sum, rank %d, pivot form: every exponent is x - max x <= 0, so each term lies in [0, 1] times what it weighs; times exp(old - new) when the pivot moves%s", f->rank,
            f->out ? "; what else depends on the folds before it is a factor in the end" : "")
        : f->nterm ? arena_fmt(w->arena, "sum, rank %d, pivot form: beside it %d other sums move it", f->rank, f->nterm)
        : arena_fmt(w->arena, "sum, rank %d, deferred form: the folds before it are one factor in the end", f->rank) };
    vec_push(w->arena, &w->all->receipt, r);
}

static bool cone_take(Cone *c)
{
    Finder *f = c->f;
    Graph *g = f->g;
    Node *x = c->out->in[0];
    if (!cone_legal(c)) return false;
    Cascade *q = NEW(f->arena, Cascade);
    Stream *s = &q->stream;
    q->rank = c->rank; q->space = c->space; q->out = c->out;
    s->axis = c->axis; s->lane = c->lane; s->row = c->row; s->end = c->end;
    int n = 0, inner = 0;
    for (int i = 0; i < c->visit.n; i++) { n += c->visit.at[i]->fold; inner += c->visit.at[i]->inner; }
    if (n > MAX_FOLDS) { refuse_cone(c, x, c->out, "the kernel is full"); return false; }
    s->fold = NEWS(f->arena, StreamFold, MAX_FOLDS);
    s->inner = NEWS(f->arena, StreamInner, inner + 1);
    uint32_t rows = axis_bit(c->axis);
    for (int id = 0; id < f->nodes; id++) {          /* in the order of their numbers, so each after those that it needs */
        Visit *v = visit_get(f, g->node.at[id]);
        if (!v || v->place != PLACE_in) continue;
        if (v->fold) s->fold[s->nfold++] = (StreamFold){ .node = v->n, .in = v->in, .body = folded_body(v->n), .at = v->at };
        if (v->inner) s->inner[s->ninner++] = (StreamInner){ v->n, v->idx };
        if (v->inner || (v->fold && !v->result)) rows |= axes_of_visit(c, v);
    }
    for (int i = 0; i < s->nfold; i++) s->out |= s->fold[i].out = axes_of_visit(c, visit_get(f, s->fold[i].node)) & ~rows;
    if (c->why || !cone_pays(c, s)) return false;
    for (int i = 0; i < s->nfold; i++)
        if (s->fold[i].node->kind == FOLD_max) {
            s->fold[i].old = stand_in(f, s->fold[i].node);
            s->fold[i].cur = stand_in(f, s->fold[i].node);
        }
    for (int i = 0; i < s->nfold; i++) if (!carrier_make(c, s, &s->fold[i])) return false;
    for (int i = 0; i < s->nfold; i++) s->fold[i].stage = dep_of(c, s->fold[i].body) & DEP_d ? 1 : 0;
    for (int i = 0; i < s->nfold; i++) receipt_add(c, s, &s->fold[i]);
    q->node = NEWS(f->arena, Node *, c->visit.n + 1);
    q->coord = NEWS(f->arena, Dim **, c->visit.n + 1);
    for (int i = 0; i < c->visit.n; i++) {
        Visit *v = c->visit.at[i];
        if (v->place != PLACE_in) continue;
        f->all->claim[v->n->id] = f->all->n;
        q->node[q->nnode] = v->n;
        q->coord[q->nnode++] = v->idx;
    }
    vec_push(f->arena, &f->all->at, q);
    f->all->n++;
    return true;
}

/* The axis that fold n reduces, if it is one and it can be the last fold of a cascade. */
static int only_axis(const Node *n)
{
    int axis = -1;
    const Node *x = n->in[0];
    for (int k = 0; k < x->rank; k++) {
        if (!(n->axes >> k & 1) || dim_is(x->dims[k], 1)) continue;
        if (axis >= 0) return -1;
        axis = k;
    }
    return (n->kind == FOLD_sum || n->kind == FOLD_max || n->kind == FOLD_min) && n->dt == DT_f32 ? axis : -1;
}

/* Few rows: lanes run along the axis, and along the axes of results. Are what is inside and what these read such that this goes well? */
static bool few_rows(Cone *c, int64_t rows)
{
    uint32_t each = 1u << c->axis;
    if (rows >= LEAST_ROWS || !(dep_of(c, under_views(folded_body(c->out))) & DEP_d)) return false;
    for (int i = 0; i < c->visit.n; i++) if (c->visit.at[i]->fold && !c->visit.at[i]->result) each |= axes_of_visit(c, c->visit.at[i]);
    for (int i = 0; i < c->visit.n; i++) {
        const Visit *v = c->visit.at[i];
        if (v->inner && (axes_of_visit(c, v) & ~each)) return false;          /* a contraction for each place of a result: of its own */
        if (v->place != PLACE_out || !index_uses(v->n->rank, v->idx, c->j)) continue;
        bool own = axes_of_visit(c, v) & ~each;
        int last = -1;
        for (int k = 0; k < v->n->rank; k++) {
            for (int a = 0; a < MAX_RANK; a++) own |= dim_uses(v->idx[k], CONE_VAR + a);
            if (!dim_is(v->n->dims[k], 1)) last = k;
        }
        const Dim *along = own ? v->idx[last] : NULL;        /* what is read must lie together along an axis of a contraction or of a result */
        if (along && (along->kind != DIM_idx || (along->var < CONE_VAR && (along->var >= SPACE_VAR + c->rank || (each >> (along->var - SPACE_VAR) & 1))))) return false;
    }
    return true;
}

/* Folds along the same axis, as far as they fit into the same kernel: the next ones that are no part of another, so that a long chain of cascades takes linear time. */
static int further_results(Finder *f, const Cone *first, Node **more)
{
    int n = 0, all = 0, tries = 0, least = f->nodes;
    Cone c;
    const Dim *steps = first->out->in[0]->dims[first->axis];
    for (int i = 0; i < first->visit.n; i++) if (first->visit.at[i]->inner && first->visit.at[i]->n->id < least) least = first->visit.at[i]->n->id;
    for (int id = least + 1; id < f->nodes && n < MAX_MORE && tries < MAX_TRIES; id++) {
        Node *r = f->g->node.at[id];
        int axis = r != first->out && f->live[id] && r->op == OP_fold && r->kind == FOLD_sum && f->all->claim[id] < 0 ? only_axis(r) : -1;
        if (axis < 0 || r->in[0]->dims[axis] != steps) continue;
        more[n] = r;
        tries++;
        n += cone_try(f, first->out, first->axis, first->lane, n + 1, more, &c);
    }
    if (cone_try(f, first->out, first->axis, first->lane, n, more, &c) && cone_legal(&c)) return n;
    for (int i = n, k = 0; k < i; k++) {             /* one by one, where they do not go all together */
        more[all] = more[k];
        all += cone_try(f, first->out, first->axis, first->lane, all + 1, more, &c) && cone_legal(&c);
    }
    return all;
}

static void readers_find(Finder *f)
{
    Graph *g = f->g;
    f->live = NEWS(f->arena, uint8_t, f->nodes + 1);
    f->first = NEWS(f->arena, int, f->nodes + 2);
    for (int i = 0; i < g->output.n; i++) f->live[g->output.at[i].node->id] = 1;
    for (int id = f->nodes - 1; id >= 0; id--)
        for (int k = 0; f->live[id] && k < g->node.at[id]->nin; k++) {
            f->live[g->node.at[id]->in[k]->id] = 1;
            f->first[g->node.at[id]->in[k]->id + 1]++;
        }
    for (int id = 0; id < f->nodes; id++) f->first[id + 1] += f->first[id];
    f->reader = NEWS(f->arena, int, f->first[f->nodes] + 1);
    int *fill = NEWS(f->arena, int, f->nodes + 1);
    for (int id = 0; id < f->nodes; id++)
        for (int k = 0; f->live[id] && k < g->node.at[id]->nin; k++) {
            int to = g->node.at[id]->in[k]->id;
            f->reader[f->first[to] + fill[to]++] = id;
        }
}

void cascades_find(Ctx *cx, Arena *a, Graph *g, Cascades *all)
{
    Finder f = { .cx = cx, .arena = a, .g = g, .all = all, .nodes = g->node.n };
    all->claim = NEWS(a, int, f.nodes + 1);
    for (int id = 0; id < f.nodes; id++) all->claim[id] = -1;
    bool any = false;
    for (int id = 0; id < f.nodes; id++) any |= g->node.at[id]->op == OP_fold;
    if (!any || list_has(cx->opt.off, "cascade")) return;
    readers_find(&f);
    f.at = NEWS(a, Visit *, f.nodes + MADE);
    f.stamp = NEWS(a, int, f.nodes + MADE);
    f.reads = NEWS(a, uint8_t, f.nodes + 1);
    for (int id = f.nodes - 1; id >= 0; id--) {
        Node *n = g->node.at[id];
        int axis = f.live[id] && n->op == OP_fold && all->claim[id] < 0 ? only_axis(n) : -1;
        if (axis < 0 || (cx->opt.limit >= 0 && g->nrewrite + all->n >= cx->opt.limit)) continue;
        Cone best = { 0 };
        int64_t most = 0;
        int row = -1;
        bool cascade = false;
        for (int k = 0; k < n->in[0]->rank; k++) {   /* rows: where contractions share most; with folds that wait for one another before without */
            Cone c;
            int64_t rows = dim_hint(g, n->in[0]->dims[k]);
            if ((n->axes >> k & 1) || dim_is(n->in[0]->dims[k], 1) || !cone_try(&f, n, axis, k, 0, NULL, &c) || !shares_rows(&c)) continue;
            bool chain = dep_of(&c, under_views(folded_body(n))) & DEP_d;
            if (chain < cascade || (chain == cascade && rows <= most)) continue;
            best = c; most = rows; cascade = chain;
        }
        if (!best.out || dim_hint(g, n->in[0]->dims[best.lane]) < LEAST_ROWS) {
            Cone c;
            row = best.out ? best.lane : -1;
            if (dim_hint(g, n->in[0]->dims[axis]) >= FEW_STEPS && cone_try(&f, n, axis, -1, 0, NULL, &c) && few_rows(&c, row < 0 ? 1 : dim_hint(g, n->in[0]->dims[row]))) { best = c; cascade = true; }
        }
        if (!best.out) continue;
        Node *more[MAX_MORE];
        int nmore = cascade ? further_results(&f, &best, more) : 0;
        if (!cone_try(&f, n, axis, best.lane, nmore, more, &best)) continue;
        best.row = row;
        if (!cone_take(&best) && (cascade || best.why)) {
            Refusal r = { best.from ? best.from : n->in[0], best.to ? best.to : n, "cascade", best.why ? best.why : "?" };
            vec_push(a, &all->refusal, r);
        }
    }
}
