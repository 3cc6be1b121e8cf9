/* Features and steps of classical learning: TfIdfVectorizer on integers, and the optimisers Adagrad, Adam and Momentum of
 * ai.onnx.preview.training.
 *
 * TfIdfVectorizer compares every n-gram of its pool with every place of the sequence: the pool is a constant [n-grams, n], the sequence a view
 * [places, n], and an n-gram's count is a sum of conjunctions. The optimisers are elementwise formulas on each of several tensors. */
#include "onnx/onnx.h"
#include <string.h>

/* ---- n-grams ------------------------------------------------------------------------------------------------------------------------------ */

/* How often each of `count` n-grams occurs in x [N, C], whose words stand `gap` places apart: i64 [N, count]. */
static Node *ngram_counts(OpCall *o, Node *x, Node *pool, int64_t n, int64_t gap)
{
    Graph *g = o->g;
    Dim *places = dim_max(g, dim_addc(g, x->dims[1], -(n - 1) * gap), dim_const(g, 0)), *words = dim_const(g, n);
    Dim *dims[3] = { x->dims[0], places, words };
    Dim *at = dim_add(g, dim_idx(g, 1, places), dim_mulc(g, dim_idx(g, 2, words), gap));
    Pred inside = { at, x->dims[1] };
    Node *grams = g_view(g, x, 3, dims, &(View){ .nidx = 2, .idx = (Dim *[]){ dim_idx(g, 0, dims[0]), at }, .npred = 1, .pred = &inside });
    Node *same = g2(g, OP_eq, g_unsqueeze(g, grams, 1), g_unsqueeze(g, pool, 1));              /* [N, count, places, n] */
    Node *found = g_fold(g, FOLD_min, same, axis_bit(3), false);
    return g_fold(g, FOLD_sum, g_cast(g, found, DT_i64), axis_bit(2), false);
}

void op_tfidf_vectorizer(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    int npool, nstart, nindex, nweight;
    const int64_t *pool = op_ints(o, "pool_int64s", &npool), *start = op_ints(o, "ngram_counts", &nstart), *index = op_ints(o, "ngram_indexes", &nindex);
    const float *weight = op_floats(o, "weights", &nweight);
    int64_t shortest = op_int(o, "min_gram_length", 1), longest = op_int(o, "max_gram_length", 1), skips = op_int(o, "max_skip_count", 0), most = -1;
    const char *mode = op_string(o, "mode", "");
    bool counts = !strcmp(mode, "TF") || !strcmp(mode, "TFIDF"), weighs = !strcmp(mode, "IDF") || !strcmp(mode, "TFIDF");
    if (!pool || !dtype_is_int(x->dt)) op_unsupported(o, "n-grams of strings");
    if (!counts && !weighs) fail(o->cx, E_FORMAT, "mode is '%s'; TF, IDF or TFIDF is wanted", mode);
    if (x->rank < 1 || x->rank > 2) fail(o->cx, E_INVALID, "the input has rank %d; 1 or 2 is wanted", x->rank);
    if (shortest < 1 || longest < shortest || longest > nstart || skips < 0 || !nindex || (nweight && nweight != nindex))
        fail(o->cx, E_FORMAT, "n-grams of %lld to %lld words, %d starts, %d places, %d weights", (long long)shortest, (long long)longest, nstart, nindex, nweight);
    bool batched = x->rank == 2;
    x = g_cast(g, batched ? x : g_unsqueeze(g, x, 0), DT_i64);
    for (int k = 0; k < nindex; k++) {
        if (index[k] < 0) fail(o->cx, E_FORMAT, "ngram_indexes[%d] is %lld; 0 or more is wanted", k, (long long)index[k]);
        if (index[k] > most) most = index[k];
    }
    VEC(Node *) piece = {0};            /* for all n-grams of the pool in order */
    int64_t done = 0;
    for (int n = 1; n <= nstart; n++) {
        int64_t from = start[n - 1], to = n < nstart ? start[n] : npool;
        if (from < 0 || to < from || to > npool || (to - from) % n) fail(o->cx, E_FORMAT, "ngram_counts do not divide a pool of %d words", npool);
        int64_t count = (to - from) / n;
        if (count == 0) continue;
        if (done + count > nindex) fail(o->cx, E_FORMAT, "more n-grams than the %d ngram_indexes", nindex);
        Node *sum = NULL;
        if (n >= shortest && n <= longest) {
            Node *grams = g_reshape(g, g_ints(g, (int)(to - from), pool + from), 2, (Dim *[]){ dim_const(g, count), dim_const(g, n) });
            for (int64_t skip = 0; skip <= (n == 1 ? 0 : skips); skip++) {
                Node *some = ngram_counts(o, x, grams, n, skip + 1);
                sum = sum ? g2(g, OP_add, sum, some) : some;
            }
        } else sum = g_expand(g, g_int(g, DT_i64, 0), 2, (Dim *[]){ x->dims[0], dim_const(g, count) });
        vec_push(o->a, &piece, sum);
        done += count;
    }
    if (done != nindex) fail(o->cx, E_FORMAT, "%lld n-grams and %d ngram_indexes", (long long)done, nindex);
    Node *all = g_join(g, piece.n, piece.at, 1);
    if (!counts) all = g2(g, OP_min, all, g_int(g, DT_i64, 1));
    all = g_cast(g, all, DT_f32);
    if (weighs && weight) {
        Tensor *w = tensor_new(o->a, o->cx, DT_f32, 1, (int64_t[]){ nweight });
        memcpy(w->data, weight, sizeof *weight * (size_t)nweight);
        all = g2(g, OP_mul, all, g_const(g, w));
    }
    Node *to = g_expand(g, g_ints(g, nindex, index), 2, all->dims), *empty = g_expand(g, g_scalar(g, DT_f32, 0), 2, (Dim *[]){ x->dims[0], dim_const(g, most + 1) });
    View v = { .nidx = 2, .idx = (Dim *[]){ dim_idx(g, 0, all->dims[0]), dim_idx(g, DIM_OPERAND, empty->dims[1]) } };
    Node *y = g_scatter(g, empty, all, 1, &to, &v, COMBINE_add);
    o->out[0] = batched ? y : g_squeeze(g, y, 0);
}

/* ---- optimisers ---------------------------------------------------------------------------------------------------------------------------------- */

/* Inputs: the rate r, the number t of steps so far, then the tensors x, their gradients g, and `states` states of each; results in the same order.
 * A formula for each result may use the ones before it by the names y0, y1...; they are computed in the order `order` of results. */
static void optimiser(OpCall *o, int states, const char *const *formula, const int *order, int nb, const Binding *numbers)
{
    Graph *g = o->g;
    int each = 2 + states, n = (o->nin - 2) / each;
    if (n < 1 || (o->nin - 2) % each) fail(o->cx, E_INVALID, "%d inputs; 2 and %d for each tensor are wanted", o->nin, each);
    static const char *const input_name[] = { "x", "g", "s", "h" }, *const result_name[] = { "y0", "y1", "y2" };
    for (int i = 0; i < n; i++) {
        Binding b[24] = { 0 };
        int m = 0;
        DType wide = dtype_wide(op_need(o, 2 + i)->dt);
        b[m++] = (Binding){ .name = "r", .type = 'n', .node = g_cast(g, quant_scalar(o, o->in[0]), wide) };
        b[m++] = (Binding){ .name = "t", .type = 'n', .node = g_cast(g, quant_scalar(o, o->in[1]), wide) };
        for (int k = 0; k < each; k++) b[m++] = (Binding){ .name = input_name[k], .type = 'n', .node = g_cast(g, op_need(o, 2 + k * n + i), wide) };
        for (int k = 0; k < nb; k++) b[m++] = numbers[k];
        for (int k = 0; k <= states; k++) {
            int j = order[k];
            Node *y = expr_build(g, formula[j], m, b);
            b[m++] = (Binding){ .name = result_name[j], .type = 'n', .node = y };
            o->out[j * n + i] = g_cast(g, y, o->in[2 + (j ? j + 1 : 0) * n + i]->dt);
        }
    }
}

static Binding number_attr(OpCall *o, const char *attr, const char *name, double fallback)
{
    return (Binding){ .name = name, .type = 'f', .number = op_float(o, attr, fallback) };
}

void op_adagrad(OpCall *o)
{
    Binding b[] = { number_attr(o, "decay_factor", "decay", 0), number_attr(o, "epsilon", "eps", 0), number_attr(o, "norm_coefficient", "norm", 0) };
    static const char *const formula[] = { "x - r / (1 + t * decay) * (norm * x + g) / (sqrt(y1) + eps)", "s + square(norm * x + g)" };
    optimiser(o, 1, formula, (const int[]){ 1, 0 }, 3, b);
}

void op_adam(OpCall *o)
{
    Binding b[] = { number_attr(o, "alpha", "alpha", (double)0.9f), number_attr(o, "beta", "beta", (double)0.999f), number_attr(o, "epsilon", "eps", 0),
                    number_attr(o, "norm_coefficient", "norm", 0), number_attr(o, "norm_coefficient_post", "post", 0) };
    static const char *const formula[] = {
        "rate = where(t > 0, r * sqrt(1 - pow(beta, t)) / (1 - pow(alpha, t)), r); (1 - post) * (x - rate * (y1 / (sqrt(y2) + eps)))",
        "alpha * s + (1 - alpha) * (norm * x + g)", "beta * h + (1 - beta) * square(norm * x + g)" };
    optimiser(o, 2, formula, (const int[]){ 1, 2, 0 }, 5, b);
}

void op_momentum(OpCall *o)
{
    const char *mode = op_string(o, "mode", "standard");
    Binding b[] = { number_attr(o, "alpha", "alpha", 0), number_attr(o, "beta", "beta", 0), number_attr(o, "norm_coefficient", "norm", 0) };
    static const char velocity[] = "alpha * s + where(t > 0, beta * (norm * x + g), norm * x + g)";
    static const char *const standard[] = { "x - r * y1", velocity }, *const nesterov[] = { "x - r * (norm * x + g + alpha * y1)", velocity };
    if (strcmp(mode, "standard") && strcmp(mode, "nesterov")) fail(o->cx, E_FORMAT, "mode is '%s'; standard or nesterov is wanted", mode);
    optimiser(o, 1, strcmp(mode, "standard") ? nesterov : standard, (const int[]){ 1, 0 }, 3, b);
}
