/* Contractions that a library can compute (rt/lib_dnnl.c): found by what the primitive graph says, never by operators' names.
 *
 * A kernel is one when its only reduction is the sum of products of two things that lie in memory, when every address is linear in the kernel's axes and those
 * that are summed over, and when what follows the sum is a chain of additions, products and functions that the library has. An axis is a row, a column, known to
 * both, or summed over, by which operand's address knows it; where an index of an operand mixes a row and a sum, a window slides. Sizes are expressions
 * here (LibForm); an instance has numbers for them and hands those over (LibOp). */
#include "api/segment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct FormAxis { Dim *extent, *at[LIB_OPERANDS]; LibRole role; int window; bool padded; Dim *step, *dilation, *pad, *size; } FormAxis;
struct LibForm {
    int naxis; FormAxis axis[LIB_AXES];
    const Node *operand[LIB_OPERANDS]; Dim *at[LIB_OPERANDS]; int naddend;
    int nstep; LibStep step[LIB_STEPS];
};

enum { SUM_VAR = 2200, DEEP = 64 };      /* variables of the sum's axes; nodes in a chain */
typedef struct Match {
    Arena *arena; Graph *g; const Subgraph *sub;
    const Node *fold;
    LibForm *form;
    const char *why;
} Match;
typedef struct Seen { const Node *node; Dim **idx; int npred; Pred pred[2 * MAX_RANK]; bool zeros; } Seen;    /* a node at an index, through views; zeros: what is read where a predicate fails */

static bool refuse_match(Match *m, const char *why) { if (!m->why) m->why = why; return false; }

static bool seen_through(Match *m, const Node *n, Dim *const *idx, Seen *out)
{
    *out = (Seen){ .node = n, .idx = (Dim **)(uintptr_t)idx, .zeros = true };
    while (out->node->op == OP_view) {
        const View *v = &out->node->view;
        Dim **to = NEWS(m->arena, Dim *, v->nidx + 1);
        for (int k = 0; k < v->nidx; k++) to[k] = dim_subst(m->g, v->idx[k], out->node->rank, out->idx);
        for (int k = 0; k < v->npred; k++) {
            if (out->npred == (int)COUNT_OF(out->pred)) return refuse_match(m, "too many conditions of padding");
            out->pred[out->npred++] = (Pred){ dim_subst(m->g, v->pred[k].e, out->node->rank, out->idx), v->pred[k].n };
        }
        out->zeros &= !v->npred || v->fill.f == 0;
        out->node = out->node->in[0];
        out->idx = to;
    }
    return true;
}

static bool form_reads(const Match *m, const Node *n)
{
    int home = m->sub->home[n->id];
    return n->op == OP_const || n->op == OP_input || home == HOME_memory || (home >= 0 && home != m->sub->id);
}

/* The address of a node's element, by axis of the form. */
static bool operand_add(Match *m, int which, const Node *n, Dim *const *idx)
{
    Graph *g = m->g;
    Dim *off = dim_const(g, 0), *stride = dim_const(g, 1);
    if (n->dt != DT_f32) return refuse_match(m, "the library is asked for float32 only");
    for (int k = n->rank - 1; k >= 0; k--) {
        off = dim_add(g, off, dim_mul(g, idx[k], stride));
        stride = dim_mul(g, stride, n->dims[k]);
    }
    for (int i = 0; i < m->form->naxis; i++) {
        int fold_rank = m->fold->rank, var = i < fold_rank ? SPACE_VAR + i : SUM_VAR + i - fold_rank;
        Dim *coef, *rest;
        m->form->axis[i].at[which] = dim_const(g, 0);
        if (!dim_uses(off, var)) continue;
        if (!dim_linear(g, off, var, &coef, &rest)) return refuse_match(m, "an address is not linear in the axes");
        m->form->axis[i].at[which] = coef;
        off = rest;
    }
    for (int i = 0; i < m->form->naxis; i++)             /* products of axes, remainders */
        for (int v = 0; v < 2; v++) if (dim_uses(off, (v ? SPACE_VAR : SUM_VAR) + i) || dim_uses(m->form->axis[i].at[which], (v ? SPACE_VAR : SUM_VAR) + i)) return refuse_match(m, "an address is not linear in the axes");
    m->form->operand[which] = n;
    m->form->at[which] = off;
    return true;
}

/* ---- what follows the sum ------------------------------------------------------------------------------------------------------------------- */
static bool reaches(const Match *m, const Node *n, int *steps)
{
    if (n == m->fold) return true;
    if (form_reads(m, n) || --*steps < 0) return false;
    for (int i = 0; i < n->nin; i++) if (reaches(m, n->in[i], steps)) return true;
    return false;
}

/* Does the sum lie below n? Where that is not found in so many steps, n is too much for a library in any case. */
static bool above_sum(const Match *m, const Node *n) { return reaches(m, n, &(int){ WALK_STEPS }); }

static bool form_is_number(const Node *n, double v)
{
    const Node *at;
    Scalar s;
    return scalar_const(n, &s, &at) && s.f == v;
}

static bool form_number(const Node *n, double *v)
{
    const Node *at;
    Scalar s;
    if (!scalar_const(n, &s, &at)) return false;
    *v = s.f;
    return true;
}

/* n as an operation of x and something else; x NULL: as one with a number. */
static const Node *other_of(const Node *n, Op op, const Node *x)
{
    if (n->op != op) return NULL;
    double v;
    for (int i = 0; i < 2; i++) if (x ? n->in[i] == x : form_number(n->in[i], &v)) return n->in[1 - i];
    return NULL;
}

/* x where n is x * 0.5 * (1 + erf(x / sqrt(2))), however it is bracketed. */
static const Node *gelu_of(const Node *n)
{
    const Node *term[3] = { NULL }, *sum = NULL, *x = NULL;
    int count = 0, half = 0;
    const Node *open[5] = { n };
    for (int at = 0, last = 1; at < last; at++) {
        const Node *o = open[at];
        if (form_is_number(o, 0.5)) half++;
        else if (o->op == OP_mul && last + 2 <= 5) { open[last++] = o->in[0]; open[last++] = o->in[1]; }
        else if (count < 3) term[count++] = o;
    }
    if (count != 2 || half != 1) return NULL;
    for (int i = 0; i < 2; i++) if (term[i]->op == OP_add && other_of(term[i], OP_add, NULL) && other_of(term[i], OP_add, NULL)->op == OP_erf) { sum = term[i]; x = term[1 - i]; }
    if (!sum || (!form_is_number(sum->in[0], 1) && !form_is_number(sum->in[1], 1))) return NULL;
    const Node *inner = other_of(sum, OP_add, NULL)->in[0];
    double c = 0;
    if (inner->op == OP_div && inner->in[0] == x && form_number(inner->in[1], &c)) return fabs(c - M_SQRT2) < 1e-6 ? x : NULL;
    if (inner->op == OP_mul) for (int i = 0; i < 2; i++) if (inner->in[i] == x && form_number(inner->in[1 - i], &c)) return fabs(c - M_SQRT1_2) < 1e-6 ? x : NULL;
    return NULL;
}

static bool form_step(Match *m, LibStep s)
{
    LibForm *f = m->form;
    LibStep *last = f->nstep ? &f->step[f->nstep - 1] : NULL;
    if (s.kind == LIB_clip && last && last->kind == LIB_clip && fmaxf(s.lo, last->lo) <= fminf(s.hi, last->hi)) {
        last->lo = fmaxf(s.lo, last->lo);
        last->hi = fminf(s.hi, last->hi);
        return true;
    }
    if (f->nstep == LIB_STEPS) return refuse_match(m, "too much follows the sum");
    f->step[f->nstep++] = s;
    return true;
}

static bool chain_walk(Match *m, const Node *n, Dim *const *idx, int depth)
{
    Seen s = { 0 };
    if (depth > DEEP || !seen_through(m, n, idx, &s)) return refuse_match(m, "too much follows the sum");
    n = s.node;
    if (s.npred) return refuse_match(m, "what follows the sum is read through padding");
    if (n->dt != DT_f32) return refuse_match(m, "the library is asked for float32 only");
    if (n == m->fold) {
        for (int k = 0; k < n->rank; k++) if (s.idx[k] != dim_idx(m->g, SPACE_VAR + k, n->dims[k])) return refuse_match(m, "the sum is needed at another index than it is computed at");
        return true;
    }
    if (form_reads(m, n)) return refuse_match(m, "the result does not come from the sum");
    double v;
    const Node *x = gelu_of(n);
    if (x && above_sum(m, x)) return chain_walk(m, x, s.idx, depth + 1) && form_step(m, (LibStep){ .kind = LIB_gelu });
    if (n->op == OP_tanh || n->op == OP_sigmoid) return chain_walk(m, n->in[0], s.idx, depth + 1) && form_step(m, (LibStep){ .kind = n->op == OP_tanh ? LIB_tanh : LIB_sigmoid });
    if (n->op == OP_max || n->op == OP_min)
        for (int i = 0; i < 2; i++)
            if (form_number(n->in[1 - i], &v) && v == v) {
                LibStep step = { .kind = LIB_clip, .lo = n->op == OP_max ? (float)v : -INFINITY, .hi = n->op == OP_max ? INFINITY : (float)v };
                return chain_walk(m, n->in[i], s.idx, depth + 1) && form_step(m, step);
            }
    if (n->op == OP_add || n->op == OP_mul || n->op == OP_sub)
        for (int i = 0; i < (n->op == OP_sub ? 1 : 2); i++) {
            Seen o = { 0 };
            if (!above_sum(m, n->in[i]) || above_sum(m, n->in[1 - i])) continue;
            if (!chain_walk(m, n->in[i], s.idx, depth + 1)) return false;
            if (!seen_through(m, n->in[1 - i], s.idx, &o) || !form_reads(m, o.node) || o.npred) return refuse_match(m, "what follows the sum computes another operand");
            if (m->form->naddend == LIB_ADDENDS) return refuse_match(m, "too much follows the sum");
            int at = m->form->naddend++;
            return operand_add(m, LIB_ADDEND + at, o.node, o.idx) && form_step(m, (LibStep){ .kind = n->op == OP_add ? LIB_add : n->op == OP_sub ? LIB_sub : LIB_mul, .addend = at });
        }
    return refuse_match(m, "the library has not what follows the sum");
}

/* ---- the sum ---------------------------------------------------------------------------------------------------------------------------------- */
static bool never_moves(const Dim *d) { return dim_is(d, 0); }

/* Which role each axis has. src, weights: the operands of the product as they were seen. */
static bool roles_find(Match *m, const Seen *src)
{
    LibForm *f = m->form;
    int kept = m->fold->rank;
    for (int i = 0; i < f->naxis; i++) {
        FormAxis *x = &f->axis[i];
        bool a = !never_moves(x->at[LIB_SRC]), b = !never_moves(x->at[LIB_WEIGHTS]);
        x->window = -1;
        x->step = x->dilation = dim_const(m->g, 1);
        x->pad = x->size = dim_const(m->g, 0);
        if (dim_is(x->extent, 1)) { x->role = i < kept ? LIB_row : LIB_sum; continue; }
        if (i >= kept && (!a || !b)) return refuse_match(m, "an axis is summed over that one operand does not know");
        if (!a && !b) return refuse_match(m, "an axis of the result that no operand knows");
        x->role = i >= kept ? LIB_sum : a && b ? LIB_both : a ? LIB_row : LIB_col;
    }
    int npred = 0;
    for (int j = 0; j < src->node->rank; j++) {
        Dim *e = src->idx[j], *rest = e;
        int row = -1, sum = -1, others = 0;
        for (int i = 0; i < f->naxis; i++) {
            int var = i < kept ? SPACE_VAR + i : SUM_VAR + i - kept;
            if (!dim_uses(e, var)) continue;
            if (f->axis[i].role == LIB_row && row < 0) row = i;
            else if (f->axis[i].role == LIB_sum && sum < 0) sum = i;
            else others++;
        }
        bool padded = false;
        for (int p = 0; p < src->npred; p++)
            if (src->pred[p].e == e && src->pred[p].n == src->node->dims[j]) { padded = true; npred++; }
        if (row < 0 || others) { if (padded) npred = -MAX_RANK; continue; }
        FormAxis *x = &f->axis[row];
        if (!dim_linear(m->g, e, SPACE_VAR + row, &x->step, &rest) || (sum >= 0 && !dim_linear(m->g, rest, SUM_VAR + sum - kept, &x->dilation, &rest))) return refuse_match(m, "an address is not linear in the axes");
        if (!never_moves(x->size)) return refuse_match(m, "an axis of the result walks along two of an operand");
        x->window = sum;
        x->padded = padded;
        x->pad = dim_sub(m->g, dim_const(m->g, 0), rest);
        x->size = src->node->dims[j];
    }
    if (npred != src->npred || !src->zeros) return refuse_match(m, "an operand is read through padding of another kind");
    return true;
}

static bool form_knows(const Match *m, const Node *n) { return n->op == OP_const || m->sub->constant[n->id]; }

static bool sum_match(Match *m)
{
    const Node *f = m->fold, *x = f->in[0];
    Graph *g = m->g;
    LibForm *form = m->form;
    Dim *idx[MAX_RANK] = { NULL };
    Seen body, o[2];
    if (f->kind != FOLD_sum || f->whole || x->rank > LIB_AXES) return refuse_match(m, "it is no sum");
    int kept = 0, reduced = f->rank;
    for (int k = 0; k < x->rank; k++) {
        bool sum = f->axes >> k & 1;
        int at = sum ? reduced++ : kept++;
        idx[k] = dim_idx(g, sum ? SUM_VAR + at - f->rank : SPACE_VAR + at, x->dims[k]);
        form->axis[at].extent = x->dims[k];
    }
    if (kept != f->rank) return refuse_match(m, "the sum keeps axes of one element");
    form->naxis = x->rank;
    if (!seen_through(m, x, idx, &body)) return false;
    if (body.npred || body.node->op != OP_mul || body.node->dt != DT_f32) return refuse_match(m, "what is summed is no product of float32 numbers");
    for (int i = 0; i < 2; i++)
        if (!seen_through(m, body.node->in[i], body.idx, &o[i]) || !form_reads(m, o[i].node)) return refuse_match(m, "an operand is computed in the loops of the sum");
    int weights = form_knows(m, o[1].node) && !form_knows(m, o[0].node) ? 1 : form_knows(m, o[0].node) && !form_knows(m, o[1].node) ? 0 : o[0].npred ? 1 : o[1].npred ? 0 : 1;
    if (o[weights].npred) return refuse_match(m, "both operands are read through padding");
    return operand_add(m, LIB_SRC, o[1 - weights].node, o[1 - weights].idx) && operand_add(m, LIB_WEIGHTS, o[weights].node, o[weights].idx) && roles_find(m, &o[1 - weights]);
}

static bool form_match(Match *m)
{
    const Subgraph *sub = m->sub;
    if (sub->kind != SUB_dot) return refuse_match(m, "it is no contraction");
    if (sub->nstore != 1) return refuse_match(m, "it has more than one result");
    for (int i = 0; i < sub->nnode; i++) {
        if (sub->node[i]->op != OP_fold) continue;
        if (m->fold) return refuse_match(m, "it has more than one sum");
        m->fold = sub->node[i];
    }
    const SubStore *s = &sub->store[0];
    return m->fold && sum_match(m) && chain_walk(m, s->node, s->at, 0) && operand_add(m, LIB_DST, s->into, s->coord);
}

const LibForm *library_form(Arena *a, Graph *g, const Subgraph *sub, const char **why)
{
    Match m = { .arena = a, .g = g, .sub = sub, .form = NEW(a, LibForm) };
    *why = NULL;
    if (form_match(&m)) return m.form;
    *why = m.why ? m.why : "it is no contraction";
    return NULL;
}

/* ---- with numbers ---------------------------------------------------------------------------------------------------------------------------- */
/* Where the kernel finds what the library reads; false: it has it in a form of its own. */
static bool operand_place(const Segment *s, const Part *p, const Node *n, LibOperand *o)
{
    o->known = s->fixed[n->id] ? s->fixed[n->id] : n->op == OP_const ? n->tensor->data : NULL;
    for (int k = 0; k < p->src.nbuf; k++) {
        const KBuf *b = &p->loops->buf.at[p->src.buf[k]];
        if (b->node == n && !b->packed) { o->slot = k; return true; }
    }
    return o->known != NULL;
}

bool library_turns(const LibForm *f)
{
    int images = 0;
    for (int i = 0; i < f->naxis; i++) {
        if (f->axis[i].window >= 0 || f->axis[i].padded) return false;
        images += f->axis[i].role == LIB_row && !never_moves(f->axis[i].size);
    }
    return images > 1;
}

/* Does anything of it depend on a size that a run gives? */
static bool form_open(const LibForm *f)
{
    bool open = false;
    for (int o = 0; o < LIB_ADDEND + f->naddend; o++) {
        open |= dim_open(f->at[o]);
        for (int i = 0; i < f->naxis; i++) open |= dim_open(f->axis[i].at[o]);
    }
    for (int i = 0; i < f->naxis; i++) open |= dim_open(f->axis[i].extent) || dim_open(f->axis[i].size) || dim_open(f->axis[i].pad);
    return open;
}

void library_settle(Ctx *cx, Segment *s)
{
    char why[512];
    int64_t *syms = NEWS(s->arena, int64_t, s->g->sym.n + 1);
    for (int i = 0; i < s->g->sym.n; i++) syms[i] = s->g->sym.at[i].hint;
    for (int i = 0; i < s->npart; i++) {
        Part *p = &s->part[i];
        if (!p->lib || !p->loops->sched.lib) continue;
        LibRun *r = library_run(cx, s, p, syms, why, sizeof why);
        if (!r) {
            p->lib_note = arena_str(s->arena, why);
            p->lib = NULL;
            continue;
        }
        p->lib_note = arena_str(s->arena, lib_how(r));
        if (form_open(p->lib)) lib_free(r);
        else p->lib_run = r;
    }
}

LibRun *library_run(Ctx *cx, const Segment *s, const Part *p, const int64_t *syms, char *why, size_t nwhy)
{
    const LibForm *f = p->lib;
    LibOp op = { .naddend = f->naddend, .nstep = f->nstep, .parts = p->loops->sched.lib, .window = p->loops->sched.window };
    RtError e = { .launch = -1 };
    LibRun *run = NULL;
    int number[LIB_AXES];
    op.finite = rules_leave(cx, cx->opt.allow) & RULE_FINITE;
    memcpy(op.step, f->step, sizeof op.step);
    for (int i = 0; i < f->naxis; i++) {                 /* axes of one element are none */
        number[i] = -1;
        if (dim_eval(f->axis[i].extent, syms, NULL) != 1 || f->axis[i].padded || f->axis[i].window >= 0) number[i] = op.naxis++;
    }
    for (int i = 0; i < f->naxis; i++) {
        const FormAxis *x = &f->axis[i];
        if (number[i] < 0) continue;
        LibAxis *to = &op.axis[number[i]];
        *to = (LibAxis){ .role = x->role, .extent = dim_eval(x->extent, syms, NULL), .window = x->window >= 0 ? number[x->window] : -1, .padded = x->padded,
            .step = dim_eval(x->step, syms, NULL), .dilation = dim_eval(x->dilation, syms, NULL), .pad = dim_eval(x->pad, syms, NULL), .size = dim_eval(x->size, syms, NULL) };
        for (int o = 0; o < LIB_ADDEND + f->naddend; o++) to->at[o] = dim_eval(x->at[o], syms, NULL);
    }
    for (int o = 0; o < LIB_ADDEND + f->naddend; o++) {
        op.operand[o].at = dim_eval(f->at[o], syms, NULL);
        if (!operand_place(s, p, f->operand[o], &op.operand[o])) { snprintf(why, nwhy, "an operand is packed for the kernel"); return NULL; }
    }
    Lib *l = s->target->api->lib(s->target->device, why, nwhy);
    if (l && lib_make(l, &op, &run, &e) != E_OK) snprintf(why, nwhy, "%s", e.text);
    return run;
}
