/* Text of nodes and graphs, for logs, dumps and messages, and a drawing for Graphviz. One line for each node:
 *     %7 f32[N,4] = fold sum axes 1 %3   ; ReduceSum 'sum_1'
 * The words are those of prim.def, fold_name and combine_name; index expressions are printed by dim_print. */
#include "ir/ir.h"

static void print_dims(Text *t, const Graph *g, int n, Dim *const *d)
{
    text_add(t, "[");
    for (int k = 0; k < n; k++) {
        if (k)
            text_add(t, ",");
        dim_print(t, g, d[k]);
    }
    text_add(t, "]");
}

static void print_scalar(Text *t, DType dt, Scalar v)
{
    if (dtype_is_float(dt))
        text_float(t, v.f, dt != DT_f64);
    else if (dt == DT_u64)
        text_add(t, "%llu", (unsigned long long)v.u);
    else
        text_add(t, "%lld", (long long)v.i);
}

static void print_type(Text *t, const Graph *g, const Node *n)
{
    text_add(t, "%s", n->dt == DT_none ? "results" : dtype_info[n->dt].name);
    if (n->op != OP_call)
        print_dims(t, g, n->rank, n->dims);
}

static void print_const(Text *t, const Node *n)
{
    enum { SHOWN = 8 };
    int64_t count = tensor_count(n->tensor);
    text_add(t, " {");
    for (int64_t k = 0; k < count && k < SHOWN; k++) {
        text_put(t, ", ", k ? 2 : 0);
        print_scalar(t, n->dt, scalar_load(n->dt, tensor_at(n->tensor, k)));
    }
    text_add(t, "%s", count > SHOWN ? ", ...}" : "}");
}

static void print_view(Text *t, const Graph *g, const Node *n)
{
    const View *v = &n->view;
    text_add(t, " at ");
    print_dims(t, g, v->nidx, v->idx);
    for (int k = 0; k < v->npred; k++) {
        text_add(t, "%s", k ? " and 0 <= " : " if 0 <= ");
        dim_print(t, g, v->pred[k].e);
        text_add(t, " < ");
        dim_print(t, g, v->pred[k].n);
    }
    if (v->npred && n->op != OP_scatter) {
        text_add(t, " else ");
        print_scalar(t, n->dt, v->fill);
    }
}

/* What stands between the primitive's name and its operands. */
static void print_attributes(Text *t, const Graph *g, const Node *n)
{
    switch (n->op) {
    case OP_input:
        text_add(t, " %d '%s'", n->index,
                 n->index >= 0 && n->index < g->input.n && g->input.at[n->index].name ? g->input.at[n->index].name : "");
        break;
    case OP_part: text_add(t, " %d of", n->index); break;
    case OP_iota: text_add(t, " axis %d", n->axis); break;
    case OP_join: text_add(t, " axis %d", n->axis); break;
    case OP_scan: text_add(t, " %s axis %d", fold_name[n->kind], n->axis); break;
    case OP_fold:
        text_add(t, " %s%s axes", fold_name[n->kind], n->last ? " last" : "");
        for (int k = 0, some = 0; k < MAX_RANK; k++)
            if (n->axes & axis_bit(k))
                text_add(t, "%s%d", some++ ? "," : " ", k);
        break;
    case OP_dims: text_add(t, " "); print_dims(t, g, n->rank ? (int)n->dims[0]->c : 1, n->size); break;
    case OP_const: print_const(t, n); break;
    case OP_scatter: text_add(t, " %s", combine_name[n->kind]); break;
    case OP_call: text_add(t, " %s", n->call->def->name); break;
    case OP_cast:
        text_add(t, "%s", n->saturate && dtype_size(n->dt) == 1 && dtype_is_float(n->dt) ? " saturate" : "");
        break;
#define EW(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define CMP(name, arity, dom, cost, fv, iv, c) case OP_##name:
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    case OP_where: case OP_bitcast: case OP_random: case OP_view: case OP_gather: case OP_COUNT: break;
    }
}

void node_print(Text *t, const Graph *g, const Node *n)
{
    text_add(t, "%%%d ", n->id);
    print_type(t, g, n);
    text_add(t, " = %s", prim_info[n->op].name);
    print_attributes(t, g, n);
    for (int k = 0; k < n->nin; k++)
        text_add(t, " %%%d", n->in[k]->id);
    if (n->op == OP_view || n->op == OP_gather || n->op == OP_scatter)
        print_view(t, g, n);
    if (n->origin > 0 && n->origin < g->origin.n) {
        const Origin *o = &g->origin.at[n->origin];
        text_add(t, "   ; %s %s", o->op ? o->op : "", o->name ? o->name : "");
    }
}

void graph_print(Text *t, const Graph *g)
{
    for (int k = 0; k < g->sym.n; k++) {
        const Sym *s = &g->sym.at[k];
        text_add(t, "size %s = %lld", s->name, (long long)s->hint);
        if (s->from == SYM_value)
            text_add(t, "   ; element %d of %%%d\n", s->elem, s->node->id);
        else
            text_add(t, "   ; axis %d of '%s'\n", s->axis, g->input.at[s->input].name);
    }
    for (int k = 0; k < g->node.n; k++) {
        node_print(t, g, g->node.at[k]);
        text_add(t, "\n");
    }
    for (int k = 0; k < g->output.n; k++)
        text_add(t, "output '%s' = %%%d\n", g->output.at[k].name, g->output.at[k].node->id);
    for (int k = 0; k < g->guard.n; k++) {
        const Guard *q = &g->guard.at[k];
        text_add(t, "guard ");
        dim_print(t, g, q->a);
        text_add(t, " %s ", q->rel == 'g' ? ">=" : q->rel == '!' ? "!=" : q->rel == '<' ? "<" : "=");
        dim_print(t, g, q->b);
        text_add(t, "   ; %s\n", q->why ? q->why : "");
    }
}

static void dot_label(Text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            text_put(t, "\\", 1);
        text_put(t, s, 1);
    }
}

void graph_dot(Text *t, const Graph *g, const int *group)
{
    text_add(t, "digraph graph_of_primitives {\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n");
    const uint8_t *live = graph_live(t->arena, g);
    for (int k = 0; k < g->node.n; k++) {
        const Node *n = g->node.at[k];
        if (!live[k] && n->op != OP_input)
            continue;
        Text label = { .arena = t->arena };
        text_add(&label, "%%%d %s", n->id, prim_info[n->op].name);
        print_attributes(&label, g, n);
        text_add(&label, "\n");
        print_type(&label, g, n);
        text_add(t, "  ");
        if (group && group[k] >= 0) /* Graphviz collects what is given to one cluster in several places */
            text_add(t, "subgraph cluster_%d { label=\"%d\"; ", group[k], group[k]);
        text_add(t, "n%d [label=\"", n->id);
        dot_label(t, label.at);
        text_add(t, "\"%s];%s\n",
                 n->op == OP_input   ? ", style=rounded"
                 : n->op == OP_const ? ", style=dotted"
                                     : "",
                 group && group[k] >= 0 ? " }" : "");
        for (int i = 0; i < n->nin; i++)
            text_add(t, "  n%d -> n%d;\n", n->in[i]->id, n->id);
    }
    for (int k = 0; k < g->output.n; k++) {
        text_add(t, "  out%d [shape=plaintext, label=\"", k);
        dot_label(t, g->output.at[k].name);
        text_add(t, "\"];\n  n%d -> out%d;\n", g->output.at[k].node->id, k);
    }
    text_add(t, "}\n");
}
