/* Attention: the one definition that all its spellings share (sdpa), ONNX's Attention and RotaryEmbedding.
 *
 * Everything is lowered to primitives: two contractions with a softmax between them, masks as selections. 16-bit operands are computed in
 * float32 and rounded at the end. What the operator leaves open is decided so:
 *   - a key that a mask of truth values, a causal bound, a window, a length or an additive -inf excludes has the weight 0 exactly, whatever its
 *     score (a NaN there does no harm); a row without any key gives zeros;
 *   - values beyond a given sequence length are never used (they may hold NaN); a NaN in a value that a mask excludes is multiplied by 0, as it
 *     would be operator by operator. */
#include "onnx/onnx.h"
#include <math.h>
#include <string.h>

/* ---- shapes --------------------------------------------------------------------------------------------------------------------------- */

Node *heads_split(OpCall *o, Node *x, int64_t heads)
{
    Graph *g = o->g;
    if (x->rank != 3) fail(o->cx, E_INVALID, "an operand has the shape %s; batch, sequence, hidden is wanted", dims_str(g, x->rank, x->dims));
    if (heads < 1) fail(o->cx, E_INVALID, "%lld heads; a positive number is wanted", (long long)heads);
    Dim *count = dim_const(g, heads);
    if (!dim_decide_eq(g, dim_mod(g, x->dims[2], count), dim_const(g, 0), "heads divide the hidden size"))
        fail(o->cx, E_INVALID, "%lld heads do not divide the hidden size %lld", (long long)heads, (long long)dim_hint(g, x->dims[2]));
    return g_transpose(g, g_reshape(g, x, 4, (Dim *[]){ x->dims[0], x->dims[1], count, dim_div(g, x->dims[2], count) }), (int[]){ 0, 2, 1, 3 });
}

Node *heads_merge(OpCall *o, Node *x)
{
    Graph *g = o->g;
    return g_reshape(g, g_transpose(g, x, (int[]){ 0, 2, 1, 3 }), 3, (Dim *[]){ x->dims[0], x->dims[2], dim_mul(g, x->dims[1], x->dims[3]) });
}

/* Each of the heads of k serves several neighbouring heads of q. */
Node *heads_repeat(OpCall *o, Node *k, Dim *heads)
{
    Graph *g = o->g;
    if (dim_decide_eq(g, k->dims[1], heads, "as many heads of keys as of queries")) return k;
    if (!dim_decide_eq(g, dim_mod(g, heads, k->dims[1]), dim_const(g, 0), "heads of keys divide the heads of queries"))
        fail(o->cx, E_INVALID, "%lld heads of keys do not divide %lld heads of queries", (long long)dim_hint(g, k->dims[1]), (long long)dim_hint(g, heads));
    Dim *dims[4] = { k->dims[0], heads, k->dims[2], k->dims[3] }, *idx[4];
    for (int j = 0; j < 4; j++) idx[j] = dim_idx(g, j, dims[j]);
    idx[1] = dim_div(g, idx[1], dim_div(g, heads, k->dims[1]));
    return g_view(g, k, 4, dims, &(View){ .nidx = 4, .idx = idx });
}

Node *sdpa_scale(OpCall *o, Dim *head, double given, DType dt)
{
    Graph *g = o->g;
    if (given != 0) return g_scalar(g, dt, given);
    if (dim_is_const(head)) return g_scalar(g, dt, 1 / sqrt((double)head->c));
    return g2(g, OP_div, g_scalar(g, dt, 1), g1(g, OP_sqrt, dim_node(g, head, dt)));
}

/* ---- masks: i64 positions, rank 2 [S,T] or with a batch axis [B,1,S,T] ------------------------------------------------------------------ */

Node *sdpa_keys(Graph *g, Dim *keys)
{
    return iota_node(g, keys);
}

Node *sdpa_queries(Graph *g, Dim *queries, Node *offset)
{
    Node *i = g_reshape(g, iota_node(g, queries), 2, (Dim *[]){ queries, dim_const(g, 1) });
    return offset ? g2(g, OP_add, i, offset) : i;
}

Node *sdpa_per_batch(OpCall *o, Node *v)
{
    Graph *g = o->g;
    Dim *one = dim_const(g, 1);
    if (v->rank != 1) v = g_reshape(g, v, 1, (Dim *[]){ g_count(g, v) });
    return g_reshape(g, g_cast(g, v, DT_i64), 4, (Dim *[]){ v->dims[0], one, one, one });
}

static void sdpa_allow(Graph *g, Sdpa *s, Node *allowed)
{
    s->allowed = s->allowed ? g2(g, OP_and, s->allowed, allowed) : allowed;
}

void sdpa_exclude(OpCall *o, Sdpa *s, Node *allowed)
{
    sdpa_allow(o->g, s, allowed);
    s->may_be_empty = true;
}

void sdpa_causal(OpCall *o, Sdpa *s, Node *offset, int64_t left, int64_t right)
{
    Graph *g = o->g;
    Node *i = sdpa_queries(g, s->q->dims[2], offset), *j = sdpa_keys(g, s->k->dims[2]);
    if (right >= 0) sdpa_allow(g, s, g2(g, OP_le, j, right ? g2(g, OP_add, i, g_int(g, DT_i64, right)) : i));
    if (left >= 0) sdpa_allow(g, s, g2(g, OP_le, g2(g, OP_sub, i, g_int(g, DT_i64, left)), j));
    if (left >= 0) s->may_be_empty = true;
}

/* Keys at `lengths` and beyond (i64 [B,1,1,1]) do not exist. */
void sdpa_lengths(OpCall *o, Sdpa *s, Node *lengths)
{
    Graph *g = o->g;
    Node *j = sdpa_keys(g, s->k->dims[2]);
    sdpa_exclude(o, s, g2(g, OP_lt, j, lengths));
    Node *row = g2(g, OP_lt, g_reshape(g, j, 2, (Dim *[]){ s->k->dims[2], dim_const(g, 1) }), lengths);
    s->v = g_where(g, row, s->v, g_scalar(g, s->v->dt, 0));
}

void sdpa_mask(OpCall *o, Sdpa *s, Node *mask)
{
    Graph *g = o->g;
    Dim *keys = s->k->dims[2];
    if (mask->rank < 1 || mask->rank > 4) fail(o->cx, E_INVALID, "the mask has rank %d; 1 to 4 is wanted", mask->rank);
    int last = mask->rank - 1;
    bool truth = mask->dt == DT_bool;
    if (!dim_decide_eq(g, mask->dims[last], keys, "the mask covers all keys")) {     /* a short mask excludes the rest */
        Dim *none[4] = { dim_const(g, 0), dim_const(g, 0), dim_const(g, 0), dim_const(g, 0) }, *after[4];
        memcpy(after, none, sizeof after);
        after[last] = dim_sub(g, keys, mask->dims[last]);
        if (dim_decide_lt(g, after[last], none[0], "the mask is not longer than the keys"))
            fail(o->cx, E_INVALID, "a mask of shape %s for %lld keys", dims_str(g, mask->rank, mask->dims), (long long)dim_hint(g, keys));
        if (!truth) mask = g_cast(g, mask, dtype_wide(s->q->dt));
        mask = g_pad(g, mask, none, after, truth ? (Scalar){ .i = 0 } : (Scalar){ .f = -INFINITY });
    }
    if (truth) { sdpa_exclude(o, s, mask); return; }
    mask = g_cast(g, mask, dtype_wide(s->q->dt));
    s->bias = s->bias ? g2(g, OP_add, s->bias, mask) : mask;
    s->may_be_empty = true;
}

/* ---- the definition ----------------------------------------------------------------------------------------------------------------------- */

/* Softmax over the keys with one more logit for each head that takes a share and gives no value. */
static Node *softmax_with_sink(Graph *g, Node *x, Node *sink)
{
    uint32_t last = axis_bit(x->rank - 1);
    Node *most = g2(g, OP_max, g_fold(g, FOLD_max, x, last, true), sink), *e = g1(g, OP_exp, g2(g, OP_sub, x, most));
    Node *sum = g2(g, OP_add, g_fold(g, FOLD_sum, e, last, true), g1(g, OP_exp, g2(g, OP_sub, sink, most)));
    return g2(g, OP_div, e, sum);
}

Node *sdpa(OpCall *o, const Sdpa *s, Node **scores)
{
    Graph *g = o->g;
    if (s->q->rank != 4 || s->k->rank != 4 || s->v->rank != 4)
        fail(o->cx, E_INVALID, "query, key and value have the ranks %d, %d, %d; 4 is wanted", s->q->rank, s->k->rank, s->v->rank);
    DType dt = s->q->dt, wide = dtype_wide(dt);
    Node *q = g_cast(g, s->q, wide), *minus_inf = g_scalar(g, wide, -INFINITY), *none = g_scalar(g, wide, 0);
    Node *k = heads_repeat(o, g_cast(g, s->k, wide), q->dims[1]), *v = heads_repeat(o, g_cast(g, s->v, wide), q->dims[1]);
    Node *x = g_matmul(g, g2(g, OP_mul, q, sdpa_scale(o, q->dims[3], s->scale, wide)), g_transpose(g, k, (int[]){ 0, 1, 3, 2 }));
    Node *stage[4] = { x, x, x, x };
    if (s->softcap > 0) {
        Node *cap = g_scalar(g, wide, s->softcap);
        x = g2(g, OP_mul, g1(g, OP_tanh, g2(g, OP_div, x, cap)), cap);
        stage[1] = x;
    }
    if (s->bias) x = g_where(g, g2(g, OP_eq, s->bias, minus_inf), minus_inf, g2(g, OP_add, x, s->bias));
    if (s->allowed) x = g_where(g, s->allowed, x, minus_inf);
    stage[2] = x;
    if (s->softmax_dt) x = g_cast(g, x, s->softmax_dt);
    Node *p = s->sink ? softmax_with_sink(g, x, g_cast(g, s->sink, x->dt)) : g_softmax(g, x, axis_bit(3), false);
    p = g_cast(g, p, wide);
    Node *y = g_matmul(g, p, v);
    if (s->may_be_empty && !s->sink) {
        Node *empty = g2(g, OP_eq, g_fold(g, FOLD_max, g_cast(g, x, wide), axis_bit(3), true), minus_inf);
        y = g_where(g, empty, none, y);
        p = g_where(g, empty, none, p);
    }
    stage[3] = p;
    for (int j = 0; scores && j < 4; j++) scores[j] = stage[j];
    return g_cast(g, y, dt);
}

/* ---- ONNX Attention ---------------------------------------------------------------------------------------------------------------------------- */

/* Inputs: Q K V, mask, past key, past value, lengths. Outputs: Y, present key, present value, the scores at one of four stages. */
void op_attention(OpCall *o)
{
    Graph *g = o->g;
    Node *past_k = o->in[4], *past_v = o->in[5], *lengths = o->in[6];
    bool packed = o->in[0]->rank == 3;
    if (packed != (o->in[1]->rank == 3) || packed != (o->in[2]->rank == 3))
        fail(o->cx, E_INVALID, "query, key and value have the ranks %d, %d, %d; all 3 or all 4 is wanted", o->in[0]->rank, o->in[1]->rank, o->in[2]->rank);
    if (!past_k != !past_v) fail(o->cx, E_INVALID, "only one of past_key and past_value is given");
    if (past_k && lengths) fail(o->cx, E_INVALID, "nonpad_kv_seqlen and past_key exclude one another");
    Sdpa s = { .q = o->in[0], .k = o->in[1], .v = o->in[2], .softcap = op_float(o, "softcap", 0), .scale = op_float(o, "scale", 0) };
    if (packed) {
        int64_t nq = op_int(o, "q_num_heads", 0), nkv = op_int(o, "kv_num_heads", 0);
        s.q = heads_split(o, s.q, nq);
        s.k = heads_split(o, s.k, nkv);
        s.v = heads_split(o, s.v, nkv);
    }
    Node *offset = past_k ? dim_node(g, past_k->dims[2], DT_i64) : NULL;
    if (past_k) s.k = g_join(g, 2, (Node *[]){ past_k, s.k }, 2), s.v = g_join(g, 2, (Node *[]){ past_v, s.v }, 2);
    o->out[1] = s.k;
    o->out[2] = s.v;
    int64_t precision = op_int(o, "softmax_precision", 0), mode = op_int(o, "qk_matmul_output_mode", 0);
    if (precision) s.softmax_dt = dtype_from_onnx((int)precision);
    if (precision && !dtype_is_float(s.softmax_dt)) fail(o->cx, E_INVALID, "softmax_precision %lld; a float is wanted", (long long)precision);
    if (mode < 0 || mode > 3) fail(o->cx, E_INVALID, "qk_matmul_output_mode %lld; 0 to 3 is wanted", (long long)mode);
    if (o->in[3]) sdpa_mask(o, &s, o->in[3]);
    if (lengths) {
        lengths = sdpa_per_batch(o, lengths);
        sdpa_lengths(o, &s, lengths);
        offset = g2(g, OP_sub, lengths, dim_node(g, s.q->dims[2], DT_i64));
    }
    int64_t left = op_int(o, "left_window_size", -1), right = op_int(o, "right_window_size", -1);
    if (left < -1 || right < -1) fail(o->cx, E_INVALID, "a window of %lld and %lld; -1 or more is wanted", (long long)left, (long long)right);
    if (op_int(o, "is_causal", 0)) right = 0;
    if (left >= 0 || right >= 0) sdpa_causal(o, &s, offset, left, right);
    Node *scores[4], *y = sdpa(o, &s, scores);
    o->out[0] = g_cast(g, packed ? heads_merge(o, y) : y, o->in[0]->dt);
    o->out[3] = g_cast(g, scores[mode], o->in[0]->dt);
}

/* ---- rotary embedding ------------------------------------------------------------------------------------------------------------------------------ */

/* Rotates the first `count` places of the last axis: as pairs (i, i + count/2), or (2i, 2i + 1) when interleaved. c and s broadcast to x with
 * count/2 places. */
Node *rotary(OpCall *o, Node *x, Node *c, Node *s, Dim *count, bool interleaved)
{
    Graph *g = o->g;
    DType dt = x->dt, wide = dtype_wide(dt);
    int last = x->rank - 1;
    Dim *zero = dim_const(g, 0), *half = dim_div(g, count, dim_const(g, 2)), *rest = dim_sub(g, x->dims[last], count);
    Node *w = g_cast(g, x, wide);
    c = g_cast(g, c, wide);
    s = g_cast(g, s, wide);
    Node *a = g_slice(g, w, last, zero, half, interleaved ? 2 : 1);
    Node *b = g_slice(g, w, last, interleaved ? dim_const(g, 1) : half, half, interleaved ? 2 : 1);
    Node *re = g2(g, OP_sub, g2(g, OP_mul, c, a), g2(g, OP_mul, s, b)), *im = g2(g, OP_add, g2(g, OP_mul, s, a), g2(g, OP_mul, c, b));
    Node *y;
    if (interleaved) {
        Dim *dims[MAX_RANK];
        memcpy(dims, x->dims, sizeof *dims * (size_t)x->rank);
        dims[last] = count;
        y = g_reshape(g, g_join(g, 2, (Node *[]){ g_unsqueeze(g, re, last + 1), g_unsqueeze(g, im, last + 1) }, last + 1), x->rank, dims);
    } else y = g_join(g, 2, (Node *[]){ re, im }, last);
    y = g_cast(g, y, dt);
    if (dim_decide_eq(g, rest, zero, "the whole head is rotated")) return y;
    return g_join(g, 2, (Node *[]){ y, g_slice(g, x, last, count, rest, 1) }, last);
}

/* Inputs: X, cosines, sines, positions. The heads axis is 1 in [B,H,S,D] and 2 in [B,S,H,D]. */
void op_rotary_embedding(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *c = o->in[1], *s = o->in[2], *at = o->in[3];
    bool packed = x->rank == 3;
    int64_t heads = op_int(o, "num_heads", 0), part = op_int(o, "rotary_embedding_dim", 0);
    if (x->rank != 3 && x->rank != 4) fail(o->cx, E_INVALID, "the input has rank %d; 3 or 4 is wanted", x->rank);
    if (at) c = g_gather_axis(g, c, at, 0), s = g_gather_axis(g, s, at, 0);
    if (c->rank != 3 || s->rank != 3) fail(o->cx, E_INVALID, "cosines of rank %d and sines of rank %d for each position; 3 is wanted", c->rank, s->rank);
    if (packed) {
        if (heads < 1) fail(o->cx, E_INVALID, "num_heads is %lld; an input of rank 3 needs it", (long long)heads);
        Dim *count = dim_const(g, heads);
        x = g_reshape(g, x, 4, (Dim *[]){ x->dims[0], x->dims[1], count, dim_div(g, x->dims[2], count) });
    }
    Dim *count = part ? dim_const(g, part) : x->dims[3];
    int axis = packed ? 2 : 1;
    Node *y = rotary(o, x, g_unsqueeze(g, c, axis), g_unsqueeze(g, s, axis), count, op_int(o, "interleaved", 0) != 0);
    o->out[0] = packed ? g_reshape(g, y, 3, o->in[0]->dims) : y;
}

/* ---- gates ------------------------------------------------------------------------------------------------------------------------------------------ */

/* a * sigmoid(alpha a) * b, without broadcasting. The sigmoid's factor rounds to the dtype first, as Swish and Mul one after the other do. */
void op_swiglu(OpCall *o)
{
    Graph *g = o->g;
    Node *a = o->in[0], *b = o->in[1];
    DType wide = dtype_wide(a->dt);
    bool same = a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++) same = dim_decide_eq(g, a->dims[k], b->dims[k], "gate and value have one shape");
    if (!same)
        fail(o->cx, E_INVALID, "gate %s and value %s; equal shapes are wanted", dims_str(g, a->rank, a->dims), dims_str(g, b->rank, b->dims));
    Node *w = g_cast(g, a, wide), *gate = g_sigmoid(g, g2(g, OP_mul, g_scalar(g, wide, op_float(o, "alpha", 1)), w));
    Node *swish = g_cast(g, g2(g, OP_mul, w, gate), a->dt);
    o->out[0] = g2(g, OP_mul, swish, b);
}
