/* Compiling the cone of a stored node: the map nodes between it and the stored nodes that it reads, as a flat
 * program for evalblock.c to run.
 *
 * A walk from the node to its operands adds one step for each pair of node and space, operands first, so that
 * what several of them need is computed once. A view becomes two steps, between which its source is computed in
 * another space: enter, and, where it has a predicate, leave, which fills in what the predicate excludes. */
#include "ir/eval.h"

static int step_add(Eval *ev, Step s)
{
    vec_push(ev->mem, &ev->step, s);
    if (ev->slot.n < ev->step.n) {
        vec_push(ev->mem, &ev->own, NEWS(ev->mem, Scalar, LANES));
        vec_push(ev->mem, &ev->slot, NULL);
    }
    ev->slot.at[ev->step.n - 1] = ev->own.at[ev->step.n - 1];
    return ev->step.n - 1;
}

int space_add(Eval *ev)
{
    vec_push(ev->mem, &ev->space, ((Space){.hi = LANES}));
    return ev->space.n - 1;
}

int lins_add(Eval *ev, const View *v)
{
    int first = ev->lin.n;
    Lin l;
    for (int k = 0; k < v->nidx + 2 * v->npred; k++) {
        int p = k - v->nidx;
        lin_make(ev, &l, p < 0 ? v->idx[k] : p % 2 ? v->pred[p / 2].n : v->pred[p / 2].e);
        vec_push(ev->mem, &ev->lin, l);
    }
    return first;
}

static int cone_step(Eval *ev, const Node *n, int space, bool top);

/* Compiles index operands from in[first] on; they are in the space of the node that uses them. */
int args_add(Eval *ev, const Node *n, int first, int space)
{
    int at[MAX_RANK], pos;
    for (int k = first; k < n->nin; k++)
        at[k - first] = cone_step(ev, n->in[k], space, false);
    pos = ev->arg.n;
    for (int k = first; k < n->nin; k++)
        vec_push(ev->mem, &ev->arg, at[k - first]);
    return pos;
}

static int cone_view(Eval *ev, const Node *n, int space)
{
    Step s = {.kind = STEP_enter, .n = n, .space = space};
    if (n->op == OP_gather)
        s.arg = args_add(ev, n, 1, space);
    s.a = space_add(ev);
    s.lin = lins_add(ev, &n->view);
    int enter = step_add(ev, s), x = cone_step(ev, n->in[0], s.a, false);
    if (!n->view.npred)
        return x;
    int leave = step_add(ev, (Step){.kind = STEP_leave, .n = n, .space = space, .a = x, .b = s.a});
    ev->step.at[enter].jump = leave;
    return leave;
}

/* The step whose slot holds n in that space. top: the node being stored itself. */
static int cone_step(Eval *ev, const Node *n, int space, bool top)
{
    for (int k = ev->step.n - 1; k >= 0; k--)
        if (ev->step.at[k].n == n && ev->step.at[k].space == space) {
            if (ev->step.at[k].kind != STEP_enter)
                return k;
            if (!n->view.npred)
                return cone_step(ev, n->in[0], ev->step.at[k].a, false);
        }
    Step s = {.n = n, .space = space};
    if (!top && eval_state(ev, n)->stored)
        return s.kind = STEP_load, step_add(ev, s);
    switch (n->op) {
#define EW(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define CMP(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
        s.kind = STEP_ew;
        s.a = cone_step(ev, n->in[0], space, false);
        s.b = n->nin > 1 ? cone_step(ev, n->in[1], space, false) : s.a;
        return step_add(ev, s);
    case OP_where:
        s.kind = STEP_where;
        s.a = cone_step(ev, n->in[0], space, false);
        s.b = cone_step(ev, n->in[1], space, false);
        s.c = cone_step(ev, n->in[2], space, false);
        return step_add(ev, s);
    case OP_cast: case OP_bitcast:
        s.kind = n->op == OP_cast ? STEP_cast : STEP_bitcast;
        s.a = cone_step(ev, n->in[0], space, false);
        return step_add(ev, s);
    case OP_iota:
        s.kind = STEP_iota;
        return step_add(ev, s);
    case OP_random:
        if (!ev->zero_space)
            ev->zero_space = space_add(ev);
        s.kind = STEP_random;
        s.a = cone_step(ev, n->in[0], ev->zero_space, false);
        return step_add(ev, s);
    case OP_view: case OP_gather:
        return cone_view(ev, n, space);
    case OP_input:
    case OP_const:
    case OP_dims:
    case OP_scatter:
    case OP_fold:
    case OP_scan:
    case OP_join:
    case OP_call:
    case OP_part:
    case OP_COUNT:
        break;
    }
    ASSERT(!"a map node");
    return 0;
}

static void nest_begin(Eval *ev, const Node *x)
{
    const NodeState *f = eval_state(ev, x);
    ev->step.n = ev->space.n = ev->lin.n = ev->arg.n = 0;
    ev->zero_space = 0;
    space_add(ev);
    ev->rank = x->rank;
    for (int k = 0; k < x->rank; k++)
        ev->dim[k] = f->dims[k], ev->idx[k] = 0;
}

int cone_begin(Eval *ev, const Node *x, bool top)
{
    nest_begin(ev, x);
    return cone_step(ev, x, 0, top);
}

int cone_beside(Eval *ev, const Node *x) { return cone_step(ev, x, 0, false); }

int cone_begin_below(Eval *ev, const Node *x, const Node *operand)
{
    nest_begin(ev, x);
    if (x->op != OP_view)
        return cone_step(ev, operand, 0, false);
    Step s = {.kind = STEP_enter, .n = x, .a = space_add(ev), .lin = lins_add(ev, &x->view)};
    step_add(ev, s);
    return cone_step(ev, operand, s.a, false);
}
