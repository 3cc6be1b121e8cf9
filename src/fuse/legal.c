/* When a node may join a kernel: each condition returns NULL or the reason why not.
 *
 * Everything rests on one question. A kernel runs over a space of points; each of its nodes is computed at one index for each point. A consumer can join
 * if there is an index for it at each point such that, through the views between them, it needs each of the kernel's nodes exactly at the index
 * computed there. Index maps are canonical expressions, so "exactly" is a comparison of pointers. */
#include "fuse/fuse.h"

/* Index of a tensor of as many elements as the space, at a point of it; outside_rows: as the space without the axes that are reduced. NULL: other counts. */
static Dim **space_index(Planner *p, const Group *q, int rank, Dim *const *dims, bool outside_rows)
{
    Graph *g = p->g;
    Dim *flat = dim_const(g, 0), *count = dim_const(g, 1), *want = dim_const(g, 1);
    Dim **idx = NEWS(p->arena, Dim *, rank + 1);
    int same = 0, n = 0;
    for (int i = 0; i < q->rank; i++) {
        if (outside_rows && (q->rows >> i & 1)) continue;
        Dim *v = dim_idx(g, SPACE_VAR + i, q->space[i]);
        flat = dim_add(g, dim_mul(g, flat, q->space[i]), v);
        count = dim_mul(g, count, q->space[i]);
        if (n < rank && dims[n] == q->space[i]) { idx[n] = v; same++; }
        n++;
    }
    if (n == rank && same == rank) return idx;
    for (int i = 0; i < rank; i++) want = dim_mul(g, want, dims[i]);
    if (want != count || dim_is(count, 0)) return NULL;
    int first = 0;
    while (first < rank && dim_is(dims[first], 1)) first++;
    for (int i = rank - 1; i >= 0; i--) {
        if (dim_is(dims[i], 1)) { idx[i] = dim_const(g, 0); continue; }
        idx[i] = i == first ? flat : dim_mod(g, flat, dims[i]);
        flat = dim_div(g, flat, dims[i]);
    }
    return idx;
}

/* The operand of a widening node that holds its bytes. */
const Node *thin_operand(const Planner *p, const Node *x)
{
    for (int i = 0; i < x->nin; i++) if (!p->pure[x->in[i]->id]) return x->in[i];
    ASSERT(!"a widening node reads something");
    return NULL;
}

const Node *operand_source(Planner *p, const Node *x, Dim *const *idx, Dim **at, bool *padded)
{
    for (int k = 0; k < x->rank; k++) at[k] = idx[k];
    *padded = false;
    while (p->home[x->id] == HOME_free && (x->op == OP_view || p->thin[x->id])) {
        if (p->thin[x->id]) {
            const Node *y = thin_operand(p, x);
            ASSERT(y->rank == x->rank);
            x = y;
            continue;
        }
        Dim *to[MAX_RANK];
        ASSERT(x->view.nidx == x->in[0]->rank);
        *padded |= x->view.npred > 0;
        for (int k = 0; k < x->view.nidx; k++) to[k] = dim_subst(p->g, x->view.idx[k], x->rank, at);
        x = x->in[0];
        for (int k = 0; k < x->rank; k++) at[k] = to[k];
    }
    return x;
}

/* Does n, computed at index idx, need all its operands that live in q at their own index? */
static const char *needs_same(Planner *p, const Group *q, const Node *n, int nin, Node *const *in, Dim *const *idx)
{
    Dim *at[MAX_RANK] = { 0 };
    for (int i = 0; i < nin; i++) {
        bool padded;
        if (n->op == OP_gather && i == 0) {          /* its index has nothing to do with n's */
            const Node *data = in[0];
            while (p->home[data->id] == HOME_free && (data->op == OP_view || p->thin[data->id])) data = p->thin[data->id] ? thin_operand(p, data) : data->in[0];
            if (group_of(p, p->home[data->id]) == q) return "it is read by index";
            continue;
        }
        const Node *s = operand_source(p, in[i], idx, at, &padded);
        if (group_of(p, p->home[s->id]) != q) continue;
        if (padded) return "it is read through padding";
        for (int k = 0; k < s->rank; k++) if (at[k] != p->coord[s->id][k]) return "it is needed at another index than it is computed at";
    }
    return NULL;
}

/* Index of a tensor of these dims read by `in` where its operands of q determine it axis by axis: the inverse of their views. */
static Dim **index_from_operands(Planner *p, const Group *q, const Node *n, int rank, Dim *const *dims, int nin, Node *const *in)
{
    Dim **idx = NEWS(p->arena, Dim *, rank + 1), *own[MAX_RANK] = { NULL }, *at[MAX_RANK] = { 0 };
    for (int k = 0; k < rank; k++) own[k] = dim_idx(p->g, k, dims[k]);
    for (int i = n->op == OP_gather ? 1 : 0; i < nin; i++) {
        bool padded;
        const Node *s = operand_source(p, in[i], own, at, &padded);
        if (group_of(p, p->home[s->id]) != q || padded) continue;
        for (int j = 0; j < s->rank; j++)
        {
            ASSERT(at[j]);
            if (at[j]->kind == DIM_idx && at[j]->var < rank && at[j] == own[at[j]->var]) idx[at[j]->var] = p->coord[s->id][j];
            Dim *c, *end;
            for (int k = 0; k < rank && (n->op == OP_scan || q->kind == SUB_scan); k++)      /* turned round */
                if (dim_uses(at[j], k) && dim_linear(p->g, at[j], k, &c, &end) && dim_is(c, -1) && !end->idx_mask) idx[k] = dim_sub(p->g, end, p->coord[s->id][j]);
        }
    }
    for (int k = 0; k < rank; k++) {
        if (!idx[k] && dim_is(dims[k], 1)) idx[k] = dim_const(p->g, 0);
        if (!idx[k]) return NULL;
    }
    return idx;
}

/* Does idx reach every element of a tensor of these dims? As many points as elements: the product of the extents of the variables in it. Axes without
 * elements are counted apart, since they make all products equal. */
static bool covers(Planner *p, const Group *q, int rank, Dim *const *dims, Dim *const *idx)
{
    Dim *points = dim_const(p->g, 1), *count = dim_const(p->g, 1);
    int none = 0;
    for (int a = 0; a < q->rank; a++) {
        bool used = false;
        for (int k = 0; k < rank && !dim_is(q->space[a], 1); k++) used |= dim_uses(idx[k], SPACE_VAR + a);
        if (!used && !(q->rows >> a & 1) && !dim_prove_lt(p->g, dim_const(p->g, 0), q->space[a])) return false;    /* no points: never computed */
        if (!used) continue;
        if (dim_is(q->space[a], 0)) none++;
        else points = dim_mul(p->g, points, q->space[a]);
    }
    for (int k = 0; k < rank; k++) {
        if (dim_is(dims[k], 0)) none--;
        else count = dim_mul(p->g, count, dims[k]);
    }
    return points == count && none == 0;
}

static const char *find_index(Planner *p, const Group *q, const Node *n, int rank, Dim *const *dims, int nin, Node *const *in, Dim ***out)
{
    const char *why = "the iteration spaces differ";
    for (int way = 0; way < 3; way++) {
        Dim **idx = way == 0 ? index_from_operands(p, q, n, rank, dims, nin, in) : way == 1 ? space_index(p, q, rank, dims, false)
                  : q->kind == SUB_rows && !q->step ? space_index(p, q, rank, dims, true) : NULL;
        if (!idx || !covers(p, q, rank, dims, idx)) continue;
        const char *no = needs_same(p, q, n, nin, in, idx);
        if (!no) { *out = idx; return NULL; }
        why = no;
    }
    return why;
}

static const char reduced_inside[] = "a reduction of the running fold is computed there";

const char *allow_same_point(Planner *p, Candidate *c)
{
    Node *self = (Node *)c->n;
    bool view = self->op == OP_view;    /* a copy: what it reads is seen through its own index map */
    const char *no = find_index(p, c->q, c->n, self->rank, self->dims, view ? 1 : self->nin, view ? &self : self->in, &c->coord);
    if (no || c->q->kind != SUB_scan || !c->q->inner) return no;
    for (int k = 0; k < self->rank; k++)        /* the loops over these axes are inside of the reduction */
        for (int a = 0; a < c->q->rank; a++) if ((c->q->inner >> a & 1) && dim_uses(c->coord[k], SPACE_VAR + a)) return reduced_inside;
    return NULL;
}

const char *allow_each_row(Planner *p, Candidate *c)
{
    const Group *q = c->q;
    const char *no = allow_same_point(p, c);
    if (no) return no;
    for (int a = 0; a < q->rank; a++)
        for (int k = 0; k < c->n->rank && ((q->rows | q->stream->out) >> a & 1); k++)
            if (dim_uses(c->coord[k], SPACE_VAR + a)) return "a cascade keeps its rows in lanes: what has more than one number for each is read back";
    return NULL;
}

/* The axis of x that a fold of parts cuts must be one of the space, and the same for all of them. */
static bool is_cut(const Candidate *c, const Node *x)
{
    if (!c->n->whole) return true;
    const Dim *cut = c->coord[c->n->axis];
    return cut->kind == DIM_idx && cut->a == x->dims[c->n->axis] && (!c->q->step || cut->var == SPACE_VAR + c->q->part);
}

const char *allow_rows(Planner *p, Candidate *c)
{
    const Node *f = fold_whole(c->n), *x = f->in[0];
    const Group *q = c->q;
    const char *no = find_index(p, q, f, x->rank, x->dims, 1, f->in, &c->coord);
    if (no) return no;
    if (q->kind == SUB_rows && q->step != c->n->step) return "one is computed in parts";
    uint32_t rows = 0, kept = 0;
    for (int k = 0; k < x->rank; k++)
        for (int a = 0; a < q->rank; a++)
            if (dim_uses(c->coord[k], SPACE_VAR + a)) { if (f->axes >> k & 1) rows |= 1u << a; else kept |= 1u << a; }
    if (rows & kept) return "it reduces a part of an axis";
    if (q->kind == SUB_rows) {
        uint32_t all = 0;
        for (int a = 0; a < q->rank; a++) if (!dim_is(q->space[a], 1)) all |= 1u << a;
        if ((rows & all) != (q->rows & all)) return "it reduces other axes than the rows of the kernel";
    }
    if (!is_cut(c, x)) return "it reduces a part of an axis";
    c->rows = rows;
    return NULL;
}

bool behind_places(Planner *p, const Group *q, const Node *n)
{
    if (q->kind != SUB_dot || !q->rows) return false;
    Sources s = { 0 };
    sources_of(p, n, &s);
    for (int i = 0; i < s.at.n; i++) {
        const Node *x = s.at.at[i];
        if (group_of(p, p->home[x->id]) == q && (p->iter[x->id] || p->behind[x->id])) return true;
    }
    return false;
}

const char *allow_epilogue(Planner *p, Candidate *c)
{
    const Group *q = c->q;
    const char *no = allow_same_point(p, c);
    if (no || !q->rows) return no;
    bool along = false;
    for (int k = 0; k < c->n->rank; k++) for (int a = 0; a < q->rank; a++) along |= (q->rows >> a & 1) && dim_uses(c->coord[k], SPACE_VAR + a);
    return along && behind_places(p, q, c->n) ? "its contraction is computed once for each place, and the reduction is known after the last" : NULL;
}

/* Does all that n, a part of a contraction's body, reads at idx lie together along the variable var, or not change with it? What is known is laid out as it is wanted. */
static bool reads_along_column(Planner *p, const Node *n, Dim *const *idx, int var, int *steps)
{
    Dim *at[MAX_RANK];
    bool padded;
    const Node *x = operand_source(p, n, idx, at, &padded);
    if (--*steps < 0) return false;
    if (p->home[x->id] == HOME_body) {
        for (int i = x->op == OP_gather ? 1 : 0; i < x->nin; i++) if (!reads_along_column(p, x->in[i], at, var, steps)) return false;
        return x->op != OP_gather;
    }
    int last = -1;
    for (int k = 0; k < x->rank; k++) if (!dim_is(x->dims[k], 1)) last = k;
    for (int k = 0; k < last && !p->constant[x->id]; k++) if (dim_uses(at[k], var)) return false;
    return true;
}

static bool columns_lie_along(Planner *p, const Node *f, int column)
{
    Dim *idx[MAX_RANK];
    int var = -1, steps = BODY_STEPS;
    for (int k = 0, j = 0; k < f->in[0]->rank; k++) {
        idx[k] = dim_idx(p->g, k, f->in[0]->dims[k]);
        if (!(f->axes >> k & 1) && j++ == column) var = k;
    }
    return reads_along_column(p, f->in[0], idx, var, &steps);
}

/* At least, where there is something to share: columns whose blocks threads take, and those of the last axis, as fewer have kernels of their own kind (kir/half.c). */
enum { PLACE_COLUMNS = 128, PLACE_LAST = 48, PLACE_WORK = 1 << 16 };

/* A reduction of what a contraction and its epilogue come to, over all places of a block of columns, which one thread then computes one after the other. */
const char *allow_places(Planner *p, Candidate *c)
{
    static const char no_row[] = "a tile of a contraction holds no whole row to reduce";
    const Node *f = fold_whole(c->n), *x = f->in[0];
    const Group *q = c->q;
    if (p->groups || f->kind == FOLD_argmax || f->kind == FOLD_argmin) return no_row;
    const char *no = find_index(p, q, f, x->rank, x->dims, 1, f->in, &c->coord);
    if (no) return no;
    uint32_t rows = 0, kept = 0;
    int last = -1, folds = 0;
    double columns = 1, points = 1, steps = 1;
    for (int k = 0; k < x->rank; k++)
        for (int a = 0; a < q->rank; a++) if (dim_uses(c->coord[k], SPACE_VAR + a)) *(f->axes >> k & 1 ? &rows : &kept) |= 1u << a;
    if (rows & kept) return "it reduces a part of an axis";
    for (int a = 0; a < q->rank; a++) {
        if (dim_is(q->space[a], 1)) continue;
        last = a;
        points *= (double)dim_hint(p->g, q->space[a]);
        if (!(rows >> a & 1)) columns *= (double)dim_hint(p->g, q->space[a]);
    }
    if (!rows || last < 0 || rows >> last & 1) return no_row;
    if (q->rows && q->rows != rows) return "it reduces other axes than the rows of the kernel";
    if (q->rows && q->step != c->n->step) return "one is computed in parts";
    if (!is_cut(c, x)) return "it reduces a part of an axis";
    for (int i = 0; i < q->node.n; i++) {
        const Node *y = q->node.at[i];
        if (y->op != OP_fold) continue;
        if (p->iter[y->id]) folds++;
        else if (y->in[0]->dt != DT_f32 || p->inner[y->id]) return "a contraction of narrow numbers ends each tile by itself";
        if (!p->iter[y->id] && !columns_lie_along(p, y, last)) return "lanes would run along its columns, which lie apart in what it reads";
        for (int k = 0; !p->iter[y->id] && k < y->in[0]->rank; k++) if (y->axes >> k & 1) steps *= (double)dim_hint(p->g, y->in[0]->dims[k]);
    }
    if (x->dt != DT_f32 || folds == PLACE_FOLDS || behind_places(p, q, f)) return no_row;
    if (!c->n->whole && points * steps > PLACE_WORK && (columns < PLACE_COLUMNS || dim_hint(p->g, q->space[last]) < PLACE_LAST)) return "too few columns for threads to share, where one of them takes all places";
    c->rows = rows;
    return NULL;
}

Node *scan_operand(Planner *p, const Node *n, Node *view)
{
    bool before;
    Dim **at = NEWS(p->arena, Dim *, MAX_RANK);
    const Node *x = p->groups || p->home[n->in[0]->id] != HOME_free ? n->in[0] : scan_folded(p->g, n, at, &before);
    if (x == n->in[0]) return n->in[0];
    *view = *n->in[0];                   /* by its number: as free as that */
    view->view = (View){ .nidx = x->rank, .idx = at };
    return view;
}

/* On the processor, a running fold along the last axis goes by lanes, but for recurrences, products of floats, which may be 0 where a part is inf, and truth values. */
static bool by_element_only(Planner *p, const Group *q, const Node *scan, uint32_t rows)
{
    int last = -1;
    for (int a = 0; a < q->rank; a++) if (!dim_is(q->space[a], 1)) last = a;
    return !p->groups && last >= 0 && rows == axis_bit(last) && (scan->dt == DT_bool || is_recurrence(scan) || (scan->kind == FOLD_prod && dtype_is_float(scan->dt)));
}

static const char alone[] = "it is folded element by element, where what is beside it goes by lanes";

const char *scan_refuses(Planner *p, const Group *q, Op op)
{
    for (int i = 0; i < q->node.n && !op_cheap(op); i++)
        if (q->node.at[i]->op == OP_scan && by_element_only(p, q, q->node.at[i], q->rows)) return alone;
    return NULL;
}

const char *allow_running(Planner *p, Candidate *c)
{
    Graph *g = p->g;
    const Group *q = c->q;
    const Node *n = c->n;
    Node view, *in[2] = { scan_operand(p, n, &view), n->nin > 1 ? n->in[1] : NULL };
    const char *no = find_index(p, q, n, n->rank, n->dims, n->nin, in, &c->coord);
    if (no) return no;
    const Dim *at = c->coord[n->axis];
    int axis = 0;
    while (axis < q->rank && !dim_uses(at, SPACE_VAR + axis)) axis++;
    if (axis == q->rank) return "the axis that it runs along has one place";
    Dim *own = dim_idx(g, SPACE_VAR + axis, q->space[axis]);
    c->back = at == dim_sub(g, dim_addc(g, q->space[axis], -1), own);
    if (q->space[axis] != n->dims[n->axis] || (at != own && !c->back)) return "it runs along a part of an axis";
    for (int k = 0; k < n->rank; k++) if (k != n->axis && dim_uses(c->coord[k], SPACE_VAR + axis)) return "it runs along a part of an axis";
    c->rows = axis_bit(axis);
    if (q->kind == SUB_scan && p->groups) return "threads share one running fold";
    if (q->inner) return reduced_inside;
    if (q->kind == SUB_scan && (q->rows != c->rows || c->back)) return "it runs along another axis, or the other way";
    bool slow = by_element_only(p, q, n, c->rows);
    for (int i = 0; i < q->node.n; i++) {
        const Node *x = q->node.at[i];
        if (x->op == OP_scan ? slow != by_element_only(p, q, x, c->rows) : slow && !op_cheap(x->op)) return alone;
    }
    return NULL;
}

/* The running folds of a state, one for each element of what is reduced, and their reduction: the state stays in a private array, and no step of it is stored. */
enum { STATE_MOST = 1 << 16 };           /* numbers */
const char *allow_inside(Planner *p, Candidate *c)
{
    const Node *f = c->n, *x = f->in[0];
    const Group *q = c->q;
    if (p->groups) return "threads share one running fold";
    if (q->inner || f->whole || f->kind == FOLD_argmax || f->kind == FOLD_argmin) return reduced_inside;
    const char *no = find_index(p, q, f, x->rank, x->dims, 1, f->in, &c->coord);
    if (no) return no;
    uint32_t inner = 0, kept = 0;
    int last = -1;
    int64_t state = 1;
    bool runs = false;
    for (int k = 0; k < x->rank; k++)
        for (int a = 0; a < q->rank; a++) {
            if (!dim_uses(c->coord[k], SPACE_VAR + a)) continue;
            if (!(f->axes >> k & 1)) { kept |= axis_bit(a); continue; }
            inner |= axis_bit(a);
            if (c->coord[k] != dim_idx(p->g, SPACE_VAR + a, q->space[a])) return "it reduces a part of an axis";
        }
    if (inner & kept) return "it reduces a part of an axis";
    for (int a = 0; a < q->rank; a++) {
        if (dim_is(q->space[a], 1)) continue;
        last = a;
        if (q->rows >> a & 1) runs = true;
        if (inner >> a & 1) state *= dim_hint(p->g, q->space[a]);
    }
    if (!inner || (inner & q->rows)) return "it reduces the axis that the fold runs along";
    if (!runs) return "the axis that it runs along has one place";
    if (last < 0 || ((q->rows | inner) >> last & 1)) return "lanes need the last axis";
    if (state * dim_hint(p->g, q->space[last]) > STATE_MOST) return "the state is larger than a cache";
    for (int i = 0; i < q->node.n; i++) {
        const Node *n = q->node.at[i];
        if (n->op != OP_scan) continue;
        if (n->dt != DT_f32) return "only float32 is kept as a state";
        for (int k = 0; k < n->rank; k++)
            if (p->coord[n->id][k]->kind != DIM_idx && !dim_is(n->dims[k], 1)) return "it runs along a part of an axis";
    }
    if (!only_for(p, q, f)) return "the running fold is needed elsewhere as well";
    c->rows = inner;
    return NULL;
}

const char *allow_beside(Planner *p, Candidate *c)
{
    const char *no = scan_refuses(p, c->q, c->n->op);
    return no ? no : allow_same_point(p, c);
}

const char *allow_never(Planner *p, Candidate *c)
{
    (void)p; (void)c;
    return "a rule of the file says never";
}

const char *allow_never_dot(Planner *p, Candidate *c)
{
    (void)p; (void)c;
    return "a contraction reads its operand many times: computed once, stored";
}
