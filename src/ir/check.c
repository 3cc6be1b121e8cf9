/* The verifier: every node of a graph against the rules of prim.def: operands before users, dtypes, shapes,
 * index expressions over the right variables. It runs after each pass when asked to. A violation is a bug of
 * the pass before: the node is printed and ASSERT stops. Two sizes agree when they are the same expression
 * or, under the graph's guards, equal for the hints. */
#include "ir/ir.h"
#include <stdio.h>

typedef struct Check { Ctx *cx; const Graph *g; const Node *n; } Check;

static void check_failed(const Check *c, const char *what)
{
    Arena *a = arena_new(c->cx);
    Text t = { .arena = a };
    node_print(&t, c->g, c->n);
    fprintf(stderr, "%s\n", t.at);
    for (int k = 0; k < c->n->nin; k++) {
        Text in = { .arena = a };
        node_print(&in, c->g, c->n->in[k]);
        fprintf(stderr, "  %s\n", in.at);
    }
    assert_failed(what, __FILE__, __LINE__);
}

#define CHECK(cond) do { if (!(cond)) check_failed(c, #cond); } while (0)

static bool size_same(const Check *c, const Dim *a, const Dim *b)
{
    return a == b || dim_hint(c->g, a) == dim_hint(c->g, b);
}

static bool shape_same(const Check *c, const Node *a, const Node *b)
{
    bool same = a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++)
        same = size_same(c, a->dims[k], b->dims[k]);
    return same;
}

static bool domain_has(const char *domain, DType t)
{
    char want = dtype_info[t].class == 'F' ? 'F' : dtype_info[t].class == 'B' ? 'B' : 'I';
    for (; *domain; domain++)
        if (*domain == want)
            return true;
    return false;
}

/* Every variable of d is an index of `over` with its extent, or one of nop operands; every symbol exists. */
static bool dim_in_scope(const Check *c, const Dim *d, const Node *over, int nop)
{
    switch (d->kind) {
    case DIM_sym: return d->var >= 0 && d->var < c->g->sym.n;
    case DIM_idx:
        if (d->var >= DIM_OPERAND)
            return d->var - DIM_OPERAND < nop;
        return over && d->var < over->rank && size_same(c, d->a, over->dims[d->var]);
    case DIM_sum:
        for (int k = 0; k < d->n; k++)
            for (int f = 0; f < d->term[k].n; f++)
                if (!dim_in_scope(c, d->term[k].factor[f], over, nop))
                    return false;
        return true;
    case DIM_div: case DIM_mod: case DIM_min: case DIM_max: break;
    }
    return dim_in_scope(c, d->a, over, nop) && dim_in_scope(c, d->b, over, nop);
}

/* first: of the index operands. over: whose indices the expressions use. */
static void verify_view(const Check *c, const Node *over, int first)
{
    const Node *n = c->n;
    const View *v = &n->view;
    int nop = n->nin - first;
    CHECK(v->nidx == n->in[0]->rank);
    for (int k = 0; k < v->nidx; k++)
        CHECK(dim_in_scope(c, v->idx[k], over, nop));
    for (int k = 0; k < v->npred; k++) {
        CHECK(dim_in_scope(c, v->pred[k].e, over, nop));
        CHECK(dim_in_scope(c, v->pred[k].n, over, nop));
    }
    for (int k = first; k < n->nin; k++) {
        CHECK(n->in[k]->dt == DT_i64);
        CHECK(shape_same(c, n->in[k], over));
    }
}

static void verify_fold(const Check *c)
{
    const Node *n = c->n, *x = n->in[0];
    bool arg = n->kind == FOLD_argmax || n->kind == FOLD_argmin;
    CHECK(n->nin == 1);
    CHECK(n->kind < FOLD_COUNT);
    CHECK(n->axes && (n->axes >> x->rank) == 0);
    CHECK(n->dt == (arg ? DT_i64 : x->dt));
    CHECK(arg || !n->last);
    int o = 0;
    for (int k = 0; k < x->rank; k++)
        if (!(n->axes & axis_bit(k))) {
            CHECK(o < n->rank && size_same(c, n->dims[o], x->dims[k]));
            o++;
        }
    CHECK(o == n->rank);
}

static void verify_join(const Check *c)
{
    const Node *n = c->n;
    int64_t sum = 0;
    CHECK(n->nin >= 1);
    CHECK(n->axis >= 0 && n->axis < n->rank);
    for (int i = 0; i < n->nin; i++) {
        CHECK(n->in[i]->dt == n->dt && n->in[i]->rank == n->rank);
        for (int k = 0; k < n->rank; k++)
            CHECK(k == n->axis || size_same(c, n->in[i]->dims[k], n->dims[k]));
        sum += dim_hint(c->g, n->in[i]->dims[n->axis]);
    }
    CHECK(sum == dim_hint(c->g, n->dims[n->axis]));
}

static void verify_leaf(const Check *c)
{
    const Node *n = c->n;
    CHECK(n->nin == 0);
    if (n->op == OP_input) {
        CHECK(n->index < c->g->input.n);      /* negative: the stand-in of a fold, in a factor of a cascade */
    } else if (n->op == OP_const) {
        CHECK(n->tensor->dt == n->dt && n->tensor->rank == n->rank);
        for (int k = 0; k < n->rank; k++)
            CHECK(dim_is(n->dims[k], n->tensor->dims[k]));
        CHECK(n->tensor->data || tensor_count(n->tensor) == 0);
    } else if (n->op == OP_dims) {
        CHECK(n->dt == DT_i64 && n->rank <= 1);
        CHECK(!n->rank || dim_is_const(n->dims[0]));
        for (int k = 0; k < (n->rank ? n->dims[0]->c : 1); k++)
            CHECK(dim_in_scope(c, n->size[k], NULL, 0));
    } else {
        CHECK(n->dt == DT_i64 && n->axis >= 0 && n->axis < n->rank);
    }
}

static void verify_node(const Check *c)
{
    const Node *n = c->n;
    switch (n->op) {
#define EW(name, arity, dom, cost, fv, iv, sp) \
    case OP_##name: CHECK(n->nin == arity); CHECK(domain_has(dom, n->in[0]->dt)); goto elementwise;
#define CMP(name, arity, dom, cost, fv, iv, sp) EW(name, arity, dom, cost, fv, iv, sp)
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    elementwise:
        CHECK(n->dt == (prim_info[n->op].compares ? DT_bool : n->in[0]->dt));
        for (int k = 0; k < n->nin; k++) {
            CHECK(n->in[k]->dt == n->in[0]->dt);
            CHECK(shape_same(c, n, n->in[k]));
        }
        break;
    case OP_where:
        CHECK(n->nin == 3 && n->in[0]->dt == DT_bool && n->in[1]->dt == n->dt && n->in[2]->dt == n->dt);
        CHECK(shape_same(c, n, n->in[0]) && shape_same(c, n, n->in[1]) && shape_same(c, n, n->in[2]));
        break;
    case OP_cast:
        CHECK(n->nin == 1 && shape_same(c, n, n->in[0]));
        break;
    case OP_bitcast:
        CHECK(n->nin == 1 && shape_same(c, n, n->in[0]) && dtype_size(n->dt) == dtype_size(n->in[0]->dt));
        break;
    case OP_input: case OP_const: case OP_dims: case OP_iota:
        verify_leaf(c);
        break;
    case OP_random:
        CHECK(n->nin == 1 && n->dt == DT_u64 && n->in[0]->dt == DT_u64 && n->in[0]->rank == 0);
        break;
    case OP_view:
        CHECK(n->nin == 1 && n->in[0]->dt == n->dt);
        verify_view(c, n, 1);
        break;
    case OP_gather:
        CHECK(n->nin >= 2 && n->in[0]->dt == n->dt);
        verify_view(c, n, 1);
        break;
    case OP_scatter:
        CHECK(n->nin >= 2 && n->in[0]->dt == n->dt && n->in[1]->dt == n->dt && n->kind < COMBINE_COUNT);
        CHECK(shape_same(c, n, n->in[0]));
        verify_view(c, n->in[1], 2);
        break;
    case OP_fold:
        verify_fold(c);
        break;
    case OP_scan:
        CHECK((n->nin == 1 || n->nin == 2) && n->in[0]->dt == n->dt && shape_same(c, n, n->in[0]));
        CHECK(n->nin == 1 || (n->kind == FOLD_sum && dtype_is_float(n->dt) && n->in[1]->dt == n->dt && shape_same(c, n, n->in[1])));
        CHECK(n->axis >= 0 && n->axis < n->rank);
        CHECK(n->kind != FOLD_argmax && n->kind != FOLD_argmin && n->kind < FOLD_COUNT);
        break;
    case OP_join:
        verify_join(c);
        break;
    case OP_call:
        CHECK(n->call && n->call->def && n->call->def->eval && n->nin == n->call->nin && n->call->nout > 0);
        break;
    case OP_part:
        CHECK(n->nin == 1 && n->in[0]->op == OP_call);
        CHECK(n->index >= 0 && n->index < n->in[0]->call->nout && n->dt == n->in[0]->call->out_dt[n->index]);
        break;
    case OP_COUNT:
        CHECK(!"a primitive");
    }
}

void graph_check(Ctx *cx, const Graph *g)
{
    for (int i = 0; i < g->node.n; i++) {
        const Node *n = g->node.at[i];
        const Check check = { cx, g, n }, *c = &check;
        CHECK(n->id == i);
        CHECK(n->rank >= 0 && n->rank <= MAX_RANK);
        CHECK(n->op == OP_call || (n->dt > DT_none && n->dt < DT_COUNT));
        CHECK(n->origin >= 0 && (n->origin == 0 || n->origin < g->origin.n));
        for (int k = 0; k < n->nin; k++) {
            CHECK(n->in[k]->id >= 0 && n->in[k]->id < i && g->node.at[n->in[k]->id] == n->in[k]);
            CHECK(n->in[k]->op != OP_call || n->op == OP_part);
        }
        for (int k = 0; k < n->rank; k++) {
            CHECK(dim_in_scope(c, n->dims[k], NULL, 0));
            CHECK(dim_hint(g, n->dims[k]) >= 0);
        }
        verify_node(c);
    }
    for (int k = 0; k < g->output.n; k++) {
        const Node *n = g->output.at[k].node;
        ASSERT(n && n->op != OP_call && n->id < g->node.n && g->node.at[n->id] == n);
    }
}
