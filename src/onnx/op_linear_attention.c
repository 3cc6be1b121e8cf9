/* LinearAttention and FlexAttention.
 *
 * Linear attention keeps a state of [head size, value size] for each head: it decays, takes up key times value, and is read by the query.
 * Without the delta rule it has a closed form: the output is a masked product of all queries and keys, weighted by the decay between their
 * steps, and the state's own part. The running sums of the decay's logarithms are kept in float64, because their differences count. The delta rule
 * writes what the state got wrong, so each step needs the one before: it is unrolled over the sequence, whose length is specialised. */
#include "onnx/onnx.h"
#include <math.h>
#include <string.h>

typedef struct LinAtt {
    OpCall *o; Graph *g;
    Dim *batch, *steps, *heads, *kv_heads, *dk, *dv;
    bool gated, delta;
    Node *q, *k, *v;                    /* [B,Hkv,T,.], q [B,H,T,dk], f32 or wider */
    Node *decay, *beta;                 /* [B,Hkv,T,1 or dk], [B,Hkv or 1,T,1] */
    Node *state;                        /* [B,Hkv,dk,dv]; NULL: zeros */
    Node *scale;
} LinAtt;

static Node *for_queries(const LinAtt *a, Node *x)
{
    return heads_repeat(a->o, x, a->heads);
}

static Node *swap_last(Graph *g, Node *x)
{
    return g_transpose(g, x, (int[]){ 0, 1, 3, 2 });
}

/* Output t is the sum over s <= t of (sum over d of q[t,d] k[s,d] exp(G[t,d] - G[s,d])) v[s], and q[t] exp(G[t]) times the first state. */
static Node *closed_form(LinAtt *a, Node **last)
{
    Graph *g = a->g;
    DType wide = a->q->dt;
    Node *q = a->q, *k = for_queries(a, a->k), *v = for_queries(a, a->v), *y, *grown = a->k, *from_start = q, *final = NULL;
    Node *t = g_reshape(g, iota_node(g, a->steps), 2, (Dim *[]){ a->steps, dim_const(g, 1) }), *past = g2(g, OP_le, iota_node(g, a->steps), t);
    Node *none = g_scalar(g, wide, -INFINITY);
    if (!a->gated) {
        Node *weight = g_where(g, past, g_matmul(g, q, swap_last(g, k)), g_scalar(g, wide, 0));
        y = g_matmul(g, weight, v);
    } else {
        Node *sum = g_scan(g, FOLD_sum, g_cast(g, a->decay, DT_f64), 2, false, false), *each = for_queries(a, sum);    /* [B,H,T,1 or dk] */
        Node *end = g_slice(g, sum, 2, dim_addc(g, a->steps, -1), dim_const(g, 1), 1), *weight;
        grown = g2(g, OP_mul, a->k, g1(g, OP_exp, g_cast(g, g2(g, OP_sub, end, sum), wide)));
        from_start = g2(g, OP_mul, q, g1(g, OP_exp, g_cast(g, each, wide)));
        final = swap_last(g, g1(g, OP_exp, g_cast(g, end, wide)));                                  /* [B,Hkv,1 or dk,1] */
        if (dim_decide_eq(g, sum->dims[3], dim_const(g, 1), "one decay for a head")) {
            Node *between = g_where(g, past, g_cast(g, g2(g, OP_sub, each, swap_last(g, each)), wide), none);
            weight = g2(g, OP_mul, g_matmul(g, q, swap_last(g, k)), g1(g, OP_exp, between));
        } else {                        /* [B,H,T,T,dk] summed over dk, never stored */
            Node *between = g_cast(g, g2(g, OP_sub, g_unsqueeze(g, each, 3), g_unsqueeze(g, each, 2)), wide);
            Node *decayed = g1(g, OP_exp, g_where(g, g_unsqueeze(g, past, 2), between, none));
            Node *product = g2(g, OP_mul, g2(g, OP_mul, g_unsqueeze(g, q, 3), g_unsqueeze(g, k, 2)), decayed);
            weight = g_fold(g, FOLD_sum, product, axis_bit(4), false);
        }
        y = g_matmul(g, weight, v);
    }
    *last = g_matmul(g, swap_last(g, grown), a->v);
    if (a->state) {
        y = g2(g, OP_add, y, g_matmul(g, from_start, for_queries(a, a->state)));
        *last = g2(g, OP_add, *last, final ? g2(g, OP_mul, a->state, final) : a->state);
    }
    return y;
}

static Node *step_of(Graph *g, Node *x, int64_t t)
{
    return g_slice(g, x, 2, dim_const(g, t), dim_const(g, 1), 1);
}

static Node *unrolled(LinAtt *a, Node **last)
{
    Graph *g = a->g;
    int64_t steps = dim_decide_value(g, a->steps, "the steps of a recurrence are unrolled");
    Dim *dims[4] = { a->batch, a->kv_heads, a->dk, a->dv };
    Node *s = a->state ? a->state : g_expand(g, g_scalar(g, a->q->dt, 0), 4, dims), **out = NEWS(a->o->a, Node *, steps + 1);
    for (int64_t t = 0; t < steps; t++) {
        Node *k = swap_last(g, step_of(g, a->k, t)), *v = step_of(g, a->v, t);          /* [B,Hkv,dk,1] and [B,Hkv,1,dv] */
        if (a->gated) s = g2(g, OP_mul, s, g1(g, OP_exp, swap_last(g, step_of(g, a->decay, t))));
        Node *found = g_fold(g, FOLD_sum, g2(g, OP_mul, s, k), axis_bit(2), true);
        Node *change = g2(g, OP_mul, step_of(g, a->beta, t), g2(g, OP_sub, v, found));
        s = g2(g, OP_add, s, g2(g, OP_mul, k, change));
        out[t] = g_matmul(g, step_of(g, a->q, t), for_queries(a, s));
    }
    *last = s;
    if (steps) return g_join(g, (int)steps, out, 2);
    return g_expand(g, g_scalar(g, a->q->dt, 0), 4, (Dim *[]){ a->batch, a->heads, a->steps, a->dv });
}

/* query, key, value, past_state, decay, beta */
void op_linear_attention(OpCall *o)
{
    Graph *g = o->g;
    const char *rule = op_string(o, "update_rule", "gated_delta");
    int64_t heads = op_int(o, "q_num_heads", 0), kv_heads = op_int(o, "kv_num_heads", 0);
    bool linear = !strcmp(rule, "linear");
    LinAtt a = { .o = o, .g = g, .delta = !strcmp(rule, "delta") || !strcmp(rule, "gated_delta"), .gated = !strcmp(rule, "gated") || !strcmp(rule, "gated_delta") };
    if (!linear && !a.delta && !a.gated) op_unsupported(o, "the update_rule '%s'", rule);
    if (heads < 1 || kv_heads < 1 || heads % kv_heads) fail(o->cx, E_INVALID, "%lld heads of queries for %lld of keys", (long long)heads, (long long)kv_heads);
    if (!a.gated != !o->in[4] || !a.delta != !o->in[5])
        fail(o->cx, E_INVALID, "update_rule '%s' %s decay and %s beta", rule, a.gated ? "needs" : "forbids", a.delta ? "needs" : "forbids");
    DType dt = o->in[0]->dt, wide = dtype_wide(dt), state_dt = o->in[3] ? o->in[3]->dt : dt;
    a.q = g_cast(g, heads_split(o, o->in[0], heads), wide);
    a.k = g_cast(g, heads_split(o, o->in[1], kv_heads), wide);
    a.v = g_cast(g, heads_split(o, o->in[2], kv_heads), wide);
    a.batch = a.q->dims[0], a.steps = a.q->dims[2], a.heads = dim_const(g, heads), a.kv_heads = dim_const(g, kv_heads);
    a.dk = a.k->dims[3], a.dv = a.v->dims[3];
    if (o->in[3]) a.state = g_cast(g, o->in[3], wide);
    if (a.gated) a.decay = g_cast(g, heads_split(o, o->in[4], kv_heads), wide);
    if (a.delta) {
        bool one = dim_decide_eq(g, o->in[5]->dims[o->in[5]->rank - 1], dim_const(g, 1), "one beta for all heads");
        a.beta = g_cast(g, heads_split(o, o->in[5], one ? 1 : kv_heads), wide);
    }
    Node *last, *y = a.delta ? unrolled(&a, &last) : closed_form(&a, &last);
    y = g2(g, OP_mul, y, sdpa_scale(o, a.dk, op_float(o, "scale", 0), wide));
    o->out[0] = g_cast(g, heads_merge(o, y), dt);
    o->out[1] = g_cast(g, last, state_dt);
}

/* ---- FlexAttention ------------------------------------------------------------------------------------------------------------------------------- */

/* Runs a subgraph that maps one tensor to one of the same shape; o->in[keep] survives a cut inside it. */
static Node *modified(OpCall *o, const char *attr, Node *x)
{
    const OnnxAttr *body = op_attr(o, attr);
    if (!body) return x;
    if (body->type != ATTR_graph) fail(o->cx, E_FORMAT, "attribute '%s' is no graph", attr);
    Node *y;
    op_inline_on(o, body->g, 1, &x, 1, &y);
    if (y->dt != x->dt || y->rank != 4)
        fail(o->cx, E_INVALID, "%s gives %s of rank %d; %s of rank 4 is wanted", attr, dtype_info[y->dt].name, y->rank, dtype_info[x->dt].name);
    return y;
}

/* Softmax of the scores as a subgraph changes them, then the weights as another does. Plain softmax: a row of -inf gives NaN. */
void op_flex_attention(OpCall *o)
{
    Graph *g = o->g;
    Node *q = o->in[0], *k = o->in[1];
    DType dt = q->dt, wide = dtype_wide(dt);
    int64_t precision = op_int(o, "softmax_precision", 0);
    DType soft = precision ? dtype_from_onnx((int)precision) : wide;
    if (!dtype_is_float(soft)) fail(o->cx, E_INVALID, "softmax_precision %lld; a float is wanted", (long long)precision);
    if (q->rank != 4 || k->rank != 4 || o->in[2]->rank != 4) fail(o->cx, E_INVALID, "query, key and value have the ranks %d, %d, %d; 4 is wanted", q->rank, k->rank, o->in[2]->rank);
    Node *scale = sdpa_scale(o, q->dims[3], op_float(o, "scale", 0), wide);
    k = heads_repeat(o, g_cast(g, k, wide), q->dims[1]);
    o->in[2] = heads_repeat(o, o->in[2], q->dims[1]);
    Node *x = g_cast(g, g_matmul(g, g2(g, OP_mul, g_cast(g, q, wide), scale), swap_last(g, k)), soft);
    x = modified(o, "score_mod", x);
    x = modified(o, "prob_mod", g_softmax(o->g, x, axis_bit(3), false));
    g = o->g;
    DType last = dtype_wide(soft);
    o->out[0] = g_cast(g, g_matmul(g, g_cast(g, x, last), g_cast(g, o->in[2], last)), dt);
}
