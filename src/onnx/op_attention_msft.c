/* com.microsoft's attention operators: Attention, QAttention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding. Each brings its operands
 * to [batch, heads, sequence, head size] and its masks to positions, and hands them to sdpa().
 *
 * A masked key has the weight 0, not the weight of a score of -10000: mask_filter_value is read as "masked" whatever its size, so padding and
 * causal masks together leak nothing. A cache is never written in place here: the present state is a value of its own, which the planner may
 * place in the past's buffer. */
#include "onnx/onnx.h"
#include <string.h>

static Node *part_of(Graph *g, Node *x, int axis, Dim *start, Dim *count)
{
    return g_slice(g, x, axis, start, count, 1);
}

static Node *pick(Graph *g, Node *x, int axis, int64_t i)
{
    return g_squeeze(g, part_of(g, x, axis, dim_const(g, i), dim_const(g, 1)), axis);
}

static Node *nonzero(Graph *g, Node *x)
{
    return x->dt == DT_bool ? x : g2(g, OP_lt, g_int(g, x->dt, 0), x);
}

/* The forms of mask_index: lengths [B]; ends and starts [2B]; lengths and cumulated lengths [3B+2]; keys [B,T]; keys of each query [B,S,T]; a square
 * [B,1,M,M] of which the queries' rows count. */
static void key_mask(OpCall *o, Sdpa *s, Node *mask, Dim *past)
{
    Graph *g = o->g;
    Dim *batch = s->q->dims[0], *queries = s->q->dims[2], *keys = s->k->dims[2], *zero = dim_const(g, 0), *one = dim_const(g, 1);
    const char *why = "the form of the mask";
    switch (mask->rank) {
    case 1:
        if (dim_decide_eq(g, mask->dims[0], dim_mulc(g, batch, 2), why)) {
            Node *end = sdpa_per_batch(o, part_of(g, mask, 0, zero, batch)), *start = sdpa_per_batch(o, part_of(g, mask, 0, batch, batch));
            sdpa_lengths(o, s, end);
            sdpa_exclude(o, s, g2(g, OP_le, start, sdpa_keys(g, keys)));
        } else if (dim_decide_eq(g, mask->dims[0], batch, why) || dim_decide_eq(g, mask->dims[0], dim_addc(g, dim_mulc(g, batch, 3), 2), why)) {
            sdpa_lengths(o, s, sdpa_per_batch(o, part_of(g, mask, 0, zero, batch)));
        } else fail(o->cx, E_INVALID, "a mask of %lld values for a batch of %lld", (long long)dim_hint(g, mask->dims[0]), (long long)dim_hint(g, batch));
        return;
    case 2: mask = g_reshape(g, mask, 4, (Dim *[]){ mask->dims[0], one, one, mask->dims[1] }); break;
    case 3: mask = g_unsqueeze(g, mask, 1); break;
    case 4: mask = part_of(g, part_of(g, mask, 2, past, queries), 3, zero, keys); break;
    default: fail(o->cx, E_INVALID, "the mask has rank %d; 1 to 4 is wanted", mask->rank);
    }
    sdpa_mask(o, s, nonzero(g, mask));
}

static void only_without(OpCall *o, const char *attr)
{
    if (op_int(o, attr, 0)) op_unsupported(o, "the attribute %s", attr);
}

/* The common end of Attention and QAttention: x [B,S,q+k+v] are the projected operands. */
static void packed_attention(OpCall *o, Node *x, Node *mask, Node *past, Node *bias)
{
    Graph *g = o->g;
    int64_t heads = op_int(o, "num_heads", 0);
    int n;
    const int64_t *given = op_ints(o, "qkv_hidden_sizes", &n);
    Dim *size[3], *at = dim_const(g, 0), *zero = at;
    only_without(o, "do_rotary");
    only_without(o, "past_present_share_buffer");
    if (given && n != 3) fail(o->cx, E_INVALID, "qkv_hidden_sizes has %d values; 3 are wanted", n);
    Node *part[3];
    for (int k = 0; k < 3; k++) {
        size[k] = given ? dim_const(g, given[k]) : dim_div(g, x->dims[2], dim_const(g, 3));
        part[k] = heads_split(o, part_of(g, x, 2, at, size[k]), heads);
        at = dim_add(g, at, size[k]);
    }
    Sdpa s = { .q = part[0], .k = part[1], .v = part[2], .scale = op_float(o, "scale", 0) };
    Dim *before = zero;
    if (past) {
        if (past->rank != 5) fail(o->cx, E_INVALID, "past has rank %d; 5 is wanted", past->rank);
        before = past->dims[3];
        s.k = g_join(g, 2, (Node *[]){ pick(g, past, 0, 0), s.k }, 2);
        s.v = g_join(g, 2, (Node *[]){ pick(g, past, 0, 1), s.v }, 2);
    }
    if (op_wants(o, 1)) o->out[1] = g_join(g, 2, (Node *[]){ g_unsqueeze(g, s.k, 0), g_unsqueeze(g, s.v, 0) }, 0);
    if (bias) sdpa_mask(o, &s, bias);
    if (mask) key_mask(o, &s, mask, before);
    if (op_int(o, "unidirectional", 0)) sdpa_causal(o, &s, past ? dim_node(g, before, DT_i64) : NULL, -1, 0);
    o->out[0] = heads_merge(o, sdpa(o, &s, NULL));
}

/* input, weights, bias, mask_index, past, attention_bias, past_sequence_length */
void op_msft_attention(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    DType dt = x->dt, wide = dtype_wide(dt);
    if (o->in[6]) op_unsupported(o, "past_sequence_length: the past in a longer buffer");
    Node *y = g_matmul(g, g_cast(g, x, wide), g_cast(g, o->in[1], wide));
    if (o->in[2]) y = g2(g, OP_add, y, g_cast(g, o->in[2], wide));
    packed_attention(o, g_cast(g, y, dt), o->in[3], o->in[4], o->in[5]);
}

/* input, weight, bias, their scales, mask_index, their zero points, past */
void op_qattention(OpCall *o)
{
    Node *x = quant_matmul_float(o, o->in[0], o->in[3], o->in[6], o->in[1], o->in[4], o->in[7], o->in[2]);
    packed_attention(o, x, o->in[5], o->in[8], NULL);
}

/* ---- MultiHeadAttention ---------------------------------------------------------------------------------------------------------------- */

/* Adds heads*size places of the bias from `at` on and gives [B,H,S,D]. x is [B,S,H*D] or [B,S,H,D]. */
static Node *biased_heads(OpCall *o, Node *x, Node *bias, Dim **at, int64_t heads)
{
    Graph *g = o->g;
    if (x->rank == 4) x = g_reshape(g, x, 3, (Dim *[]){ x->dims[0], x->dims[1], dim_mul(g, x->dims[2], x->dims[3]) });
    if (bias && x->rank == 3) {
        x = g2(g, OP_add, x, part_of(g, bias, 0, *at, x->dims[2]));
        *at = dim_add(g, *at, x->dims[2]);
    }
    return heads_split(o, x, heads);
}

/* query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value. Query may hold all three as [B,S,H,3,D], key may hold key and value
 * as [B,T,H,2,D], or key and value come as [B,H,T,D]. */
void op_multi_head_attention(OpCall *o)
{
    Graph *g = o->g;
    Node *q = o->in[0], *k = o->in[1], *v = o->in[2], *bias = o->in[3];
    int64_t heads = op_int(o, "num_heads", 0);
    Dim *at = dim_const(g, 0), *before = at;
    if (o->in[8] || o->in[9]) op_unsupported(o, "past_sequence_length or cache_indirection: the past in a longer buffer");
    if (q->rank == 5) {
        k = pick(g, o->in[0], 3, 1);
        v = pick(g, o->in[0], 3, 2);
        q = pick(g, o->in[0], 3, 0);
    } else if (k && k->rank == 5) {
        v = pick(g, o->in[1], 3, 1);
        k = pick(g, o->in[1], 3, 0);
    }
    if (!k || !v) fail(o->cx, E_INVALID, "key and value are absent and the query has rank %d; packed operands have rank 5", o->in[0]->rank);
    bool ready = o->in[1] && o->in[1]->rank == 4;                     /* key and value in heads already, their bias added */
    Sdpa s = { .q = biased_heads(o, q, bias, &at, heads), .k = k, .v = v, .scale = op_float(o, "scale", 0) };
    if (!ready) s.k = biased_heads(o, k, bias, &at, heads), s.v = biased_heads(o, v, bias, &at, heads);
    if (!o->in[6] != !o->in[7]) fail(o->cx, E_INVALID, "only one of past_key and past_value is given");
    if (o->in[6]) {
        before = o->in[6]->dims[2];
        s.k = g_join(g, 2, (Node *[]){ o->in[6], s.k }, 2);
        s.v = g_join(g, 2, (Node *[]){ o->in[7], s.v }, 2);
    }
    o->out[1] = s.k;
    o->out[2] = s.v;
    if (o->in[5]) sdpa_mask(o, &s, o->in[5]);
    if (o->in[4]) key_mask(o, &s, o->in[4], before);
    if (op_int(o, "unidirectional", 0)) sdpa_causal(o, &s, o->in[6] ? dim_node(g, before, DT_i64) : NULL, -1, 0);
    Node *scores[4];
    o->out[0] = heads_merge(o, sdpa(o, &s, scores));
    o->out[3] = g_cast(g, scores[0], o->in[0]->dt);
}

/* ---- GroupQueryAttention --------------------------------------------------------------------------------------------------------------------- */

/* The cache after new rows have been put behind `filled` rows (i64 [B,1,1,1]) of the old one: `rows` rows, zeros behind. */
static Node *cache_extended(OpCall *o, Node *past, Node *fresh, Node *filled, Dim *rows)
{
    Graph *g = o->g;
    Dim *dims[4] = { fresh->dims[0], fresh->dims[1], rows, fresh->dims[3] }, *zero = dim_const(g, 0), *idx[4];
    Node *t = g_reshape(g, iota_node(g, rows), 2, (Dim *[]){ rows, dim_const(g, 1) }), *place = g2(g, OP_sub, t, filled);
    Node *last = dim_node(g, dim_addc(g, fresh->dims[2], -1), DT_i64), *first = g_int(g, DT_i64, 0);
    Node *index = g_expand(g, g2(g, OP_min, g2(g, OP_max, place, first), last), 4, dims);
    for (int k = 0; k < 4; k++) idx[k] = dim_idx(g, k, dims[k]);
    idx[2] = dim_idx(g, DIM_OPERAND, fresh->dims[2]);
    Node *moved = g_gather(g, fresh, 1, &index, 4, dims, &(View){ .nidx = 4, .idx = idx });
    Node *y = g_where(g, g2(g, OP_le, place, last), moved, g_scalar(g, fresh->dt, 0));
    if (!past) return y;
    Dim *none[4] = { zero, zero, zero, zero }, *after[4] = { zero, zero, dim_sub(g, rows, past->dims[2]), zero };
    return g_where(g, g2(g, OP_lt, t, filled), g_pad(g, past, none, after, (Scalar){ 0 }), y);
}

static Node *rotated_at(OpCall *o, Node *x, Node *at, Node *c, Node *s)
{
    Graph *g = o->g;
    c = g_unsqueeze(g, g_gather_axis(g, c, at, 0), 1);
    s = g_unsqueeze(g, g_gather_axis(g, s, at, 0), 1);
    return rotary(o, x, c, s, dim_mulc(g, c->dims[3], 2), op_int(o, "rotary_interleaved", 0) != 0);
}

/* query, key, value, past_key, past_value, seqlens_k (valid keys less one), total_sequence_length, cosines, sines, position_ids, attention_bias,
 * head_sink. A query as long as the total sequence is a first prompt: nothing of the past counts. Else `seqlens_k + 1 - S` rows of it do. */
void op_group_query_attention(OpCall *o)
{
    int n;
    Dim **total = op_sizes(o, 6, &n);
    Graph *g = o->g;
    if (!total || n != 1) fail(o->cx, E_INVALID, "a single total_sequence_length is wanted");
    int64_t heads = op_int(o, "num_heads", 0), kv_heads = op_int(o, "kv_num_heads", 0), window = op_int(o, "local_window_size", -1);
    Node *q = o->in[0], *k = o->in[1], *v = o->in[2], *past_k = o->in[3], *past_v = o->in[4];
    const char *quantised[2] = { op_string(o, "k_quant_type", "NONE"), op_string(o, "v_quant_type", "NONE") };
    if (strcmp(quantised[0], "NONE") || strcmp(quantised[1], "NONE")) op_unsupported(o, "a quantised cache");
    if (heads < 1 || kv_heads < 1) fail(o->cx, E_INVALID, "%lld and %lld heads; positive numbers are wanted", (long long)heads, (long long)kv_heads);
    if (!k) {
        Dim *head = dim_div(g, q->dims[2], dim_const(g, heads + 2 * kv_heads)), *nq = dim_mulc(g, head, heads), *nk = dim_mulc(g, head, kv_heads);
        k = part_of(g, q, 2, nq, nk);
        v = part_of(g, q, 2, dim_add(g, nq, nk), nk);
        q = part_of(g, q, 2, dim_const(g, 0), nq);
    }
    if (!v || !past_k != !past_v) fail(o->cx, E_INVALID, "value and key, past_value and past_key are wanted together");
    Sdpa s = { .q = heads_split(o, q, heads), .k = heads_split(o, k, kv_heads), .v = heads_split(o, v, kv_heads),
               .scale = op_float(o, "scale", 0), .softcap = op_float(o, "softcap", 0) };
    Dim *rows = s.q->dims[2];
    bool first = dim_decide_eq(g, rows, total[0], "a first prompt");
    Node *valid = g2(g, OP_add, sdpa_per_batch(o, op_need(o, 5)), g_int(g, DT_i64, 1));
    Node *filled = first ? g_int(g, DT_i64, 0) : g2(g, OP_sub, valid, dim_node(g, rows, DT_i64));
    if (op_int(o, "do_rotary", 0)) {
        if (!o->in[7] || !o->in[8]) fail(o->cx, E_INVALID, "do_rotary without cosines and sines");
        Node *at = o->in[9], *begin = first ? filled : g_reshape(g, filled, 2, (Dim *[]){ filled->dims[0], dim_const(g, 1) });
        if (!at) at = g_expand(g, g2(g, OP_add, iota_node(g, rows), begin), 2, (Dim *[]){ s.q->dims[0], rows });
        s.q = rotated_at(o, s.q, at, o->in[7], o->in[8]);
        s.k = rotated_at(o, s.k, at, o->in[7], o->in[8]);
    }
    Dim *present = past_k ? dim_max(g, past_k->dims[2], total[0]) : total[0];
    bool exact = past_k && !first && dim_decide_eq(g, s.q->dims[0], dim_const(g, 1), "a single sequence") &&
                 dim_decide_eq(g, dim_add(g, past_k->dims[2], rows), total[0], "a past without free rows");
    if (exact) {
        s.k = g_join(g, 2, (Node *[]){ past_k, s.k }, 2);
        s.v = g_join(g, 2, (Node *[]){ past_v, s.v }, 2);
    } else {
        s.k = cache_extended(o, first ? NULL : past_k, s.k, filled, present);
        s.v = cache_extended(o, first ? NULL : past_v, s.v, filled, present);
    }
    o->out[1] = s.k;
    o->out[2] = s.v;
    if (o->in[10]) sdpa_mask(o, &s, o->in[10]);
    sdpa_causal(o, &s, filled, window > 0 ? window - 1 : -1, 0);      /* the window counts the query's own key */
    if (o->in[11]) s.sink = g_reshape(g, o->in[11], 4, (Dim *[]){ dim_const(g, 1), s.q->dims[1], dim_const(g, 1), dim_const(g, 1) });
    else if (op_int(o, "smooth_softmax", 0) > 0) s.sink = g_scalar(g, dtype_wide(s.q->dt), 0);
    o->out[0] = heads_merge(o, sdpa(o, &s, NULL));
}

/* ---- RotaryEmbedding -------------------------------------------------------------------------------------------------------------------------- */

/* input, position_ids ([B,S], or one number: where the sequence starts), cosines, sines */
void op_msft_rotary_embedding(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0], *at = o->in[1], *c = o->in[2], *s = o->in[3];
    int64_t heads = op_int(o, "num_heads", 0), part = op_int(o, "rotary_embedding_dim", 0);
    bool packed = x->rank == 3;
    if (op_float(o, "scale", 1) != 1) op_unsupported(o, "a scale other than 1");
    only_without(o, "is_packed_batching");
    if (x->rank != 3 && x->rank != 4) fail(o->cx, E_INVALID, "the input has rank %d; 3 or 4 is wanted", x->rank);
    Dim *rows = x->dims[packed ? 1 : 2];
    if (at->rank < 2) {
        at = g2(g, OP_add, iota_node(g, rows), g_cast(g, quant_scalar(o, at), DT_i64));
        at = g_unsqueeze(g, at, 0);
    }
    Dim *head = packed && heads ? dim_div(g, x->dims[2], dim_const(g, heads)) : packed ? dim_mulc(g, c->dims[1], 2) : x->dims[3];
    if (packed) x = g_reshape(g, x, 4, (Dim *[]){ x->dims[0], rows, dim_div(g, x->dims[2], head), head });
    int axis = packed ? 2 : 1;
    c = g_unsqueeze(g, g_gather_axis(g, c, at, 0), axis);
    s = g_unsqueeze(g, g_gather_axis(g, s, at, 0), axis);
    Node *y = rotary(o, x, c, s, part ? dim_const(g, part) : dim_mulc(g, c->dims[3], 2), op_int(o, "interleaved", 0) != 0);
    o->out[0] = packed ? g_reshape(g, y, 3, o->in[0]->dims) : y;
}
