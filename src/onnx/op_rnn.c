/* Recurrent networks: RNN, GRU, LSTM, unrolled over the sequence, whose length is specialised.
 *
 * For each direction one matrix product over all steps gives the inputs' part of the gates; each step adds the product with the hidden state.
 * Everything is computed in float32 or wider and rounded at the results. Sequence lengths hold a state once its sequence has ended and make
 * later outputs zero; in the reverse direction the same mask makes a sequence start at its own end. Layout 1 is transposed at the borders. */
#include "onnx/onnx.h"
#include <string.h>

typedef struct RnnAct { const char *name; double alpha, beta; bool uses_alpha, uses_beta; } RnnAct;
static const RnnAct rnn_acts[] = {
    { "Relu", 0, 0, false, false },          { "Tanh", 0, 0, false, false },        { "Sigmoid", 0, 0, false, false },
    { "Affine", 1, 0, true, true },          { "LeakyRelu", 0.01, 0, true, false }, { "ThresholdedRelu", 1, 0, true, false },
    { "ScaledTanh", 1, 1, true, true },      { "HardSigmoid", 0.2, 0.5, true, true }, { "Elu", 1, 0, true, false },
    { "Softsign", 0, 0, false, false },      { "Softplus", 0, 0, false, false },
};

enum { RNN_ACTS = 6 };
typedef struct Rnn {
    OpCall *o; Graph *g;
    DType dt, wide;
    int gates, dirs, nact;              /* nact: activations of one direction */
    bool reverse_first, batch_first, couple, linear_first;
    int64_t steps;
    Dim *batch, *hidden;
    Node *x, *w, *r, *b, *len, *h0, *c0, *peep;
    double clip;                        /* 0: none */
    RnnAct act[RNN_ACTS];
} Rnn;
typedef struct RnnDir { Node *x, *rt, *bias, *rb, *peep; const RnnAct *act; } RnnDir;    /* of one direction: x is the gates' part [steps,batch,gates*hidden] */

static bool same_word(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a | 32) != (*b | 32)) return false;
    return *a == *b;
}

/* alpha and beta lists are used up in order by the functions that have such a parameter. */
static void rnn_read_acts(Rnn *n, const char *const *standard)
{
    OpCall *o = n->o;
    int total = n->nact * n->dirs, nalpha, nbeta, a = 0, b = 0;
    const OnnxAttr *names = op_attr(o, "activations");
    const float *alpha = op_floats(o, "activation_alpha", &nalpha), *beta = op_floats(o, "activation_beta", &nbeta);
    if (names && (names->type != ATTR_strings || names->n != total))
        fail(o->cx, E_INVALID, "activations has %d names; %d are wanted", names->type == ATTR_strings ? names->n : 0, total);
    for (int k = 0; k < total; k++) {
        const char *name = names ? names->strings[k] : standard[k % n->nact];
        size_t j = 0;
        while (j < COUNT_OF(rnn_acts) && !same_word(name, rnn_acts[j].name)) j++;
        if (j == COUNT_OF(rnn_acts)) op_unsupported(o, "the activation '%s'", name);
        n->act[k] = rnn_acts[j];
        if (n->act[k].uses_alpha && a < nalpha) n->act[k].alpha = (double)alpha[a++];
        if (n->act[k].uses_beta && b < nbeta) n->act[k].beta = (double)beta[b++];
    }
}

static Node *rnn_act(const Rnn *n, const RnnAct *f, Node *x)
{
    Graph *g = n->g;
    DType dt = x->dt;
    if (n->clip > 0) x = g2(g, OP_max, g2(g, OP_min, x, g_scalar(g, dt, n->clip)), g_scalar(g, dt, -n->clip));
    Node *zero = g_scalar(g, dt, 0), *one = g_scalar(g, dt, 1), *alpha = g_scalar(g, dt, f->alpha), *beta = g_scalar(g, dt, f->beta);
    switch (f->name[0]) {
    case 'T': return f->name[1] == 'a' ? g1(g, OP_tanh, x) : g_where(g, g2(g, OP_lt, x, alpha), zero, x);
    case 'R': return g2(g, OP_max, x, zero);
    case 'A': return g2(g, OP_add, g2(g, OP_mul, alpha, x), beta);
    case 'L': return g_where(g, g2(g, OP_lt, x, zero), g2(g, OP_mul, alpha, x), x);
    case 'H': return g2(g, OP_min, g2(g, OP_max, g2(g, OP_add, g2(g, OP_mul, alpha, x), beta), zero), one);
    case 'E': return g_where(g, g2(g, OP_lt, x, zero), g2(g, OP_mul, alpha, g1(g, OP_expm1, x)), x);
    default: break;
    }
    if (!strcmp(f->name, "Sigmoid")) return g_sigmoid(g, x);
    if (!strcmp(f->name, "ScaledTanh")) return g2(g, OP_mul, alpha, g1(g, OP_tanh, g2(g, OP_mul, beta, x)));
    if (!strcmp(f->name, "Softsign")) return g2(g, OP_div, x, g2(g, OP_add, one, g1(g, OP_abs, x)));
    /* Softplus: max(x,0) + log1p(exp(-|x|)) */
    return g2(g, OP_add, g2(g, OP_max, x, zero), g1(g, OP_log1p, g1(g, OP_exp, g1(g, OP_neg, g1(g, OP_abs, x)))));
}

/* Part k of `count` parts of the last axis, each as wide as the hidden state. */
static Node *rnn_part(const Rnn *n, Node *x, int k)
{
    return g_slice(n->g, x, x->rank - 1, dim_mulc(n->g, n->hidden, k), n->hidden, 1);
}

/* Entry k of axis 0, without that axis. */
static Node *rnn_entry(Graph *g, Node *x, int64_t k)
{
    return g_squeeze(g, g_slice(g, x, 0, dim_const(g, k), dim_const(g, 1), 1), 0);
}

static Node *rnn_input(Rnn *n, int i)
{
    return i < n->o->nin && n->o->in[i] ? g_cast(n->g, n->o->in[i], n->wide) : NULL;
}

static void rnn_init(Rnn *n, OpCall *o, int gates, int nact, const char *const *standard)
{
    Graph *g = o->g;
    *n = (Rnn){ .o = o, .g = g, .dt = o->in[0]->dt, .gates = gates, .nact = nact, .dirs = 1 };
    n->wide = dtype_wide(n->dt);
    const char *direction = op_string(o, "direction", "forward");
    if (!strcmp(direction, "bidirectional")) n->dirs = 2;
    else if (!strcmp(direction, "reverse")) n->reverse_first = true;
    else if (strcmp(direction, "forward")) fail(o->cx, E_INVALID, "the direction is '%s'; forward, reverse or bidirectional is wanted", direction);
    n->batch_first = op_int(o, "layout", 0) != 0;
    n->couple = op_int(o, "input_forget", 0) != 0;
    n->linear_first = op_int(o, "linear_before_reset", 0) != 0;
    n->clip = op_float(o, "clip", 0);
    rnn_read_acts(n, standard);
    n->x = rnn_input(n, 0);
    n->w = rnn_input(n, 1);
    n->r = rnn_input(n, 2);
    n->b = rnn_input(n, 3);
    n->len = o->nin > 4 && o->in[4] ? g_cast(g, o->in[4], DT_i64) : NULL;
    n->h0 = rnn_input(n, 5);
    n->c0 = rnn_input(n, 6);
    n->peep = rnn_input(n, 7);
    if (n->x->rank != 3 || n->w->rank != 3 || n->r->rank != 3)
        fail(o->cx, E_INVALID, "ranks %d, %d and %d of X, W and R; 3 is wanted", n->x->rank, n->w->rank, n->r->rank);
    if (n->batch_first) {
        static const int swap[] = { 1, 0, 2 };
        n->x = g_transpose(g, n->x, swap);
        if ((n->h0 && n->h0->rank != 3) || (n->c0 && n->c0->rank != 3)) fail(o->cx, E_INVALID, "an initial state's rank is not 3");
        if (n->h0) n->h0 = g_transpose(g, n->h0, swap);
        if (n->c0) n->c0 = g_transpose(g, n->c0, swap);
    }
    n->batch = n->x->dims[1];
    n->hidden = n->r->dims[2];
    n->steps = dim_decide_value(g, n->x->dims[0], "the sequence length of a recurrent network");
    int64_t hidden = op_int(o, "hidden_size", -1);
    if (hidden >= 0) op_size_is(o, n->hidden, dim_const(g, hidden), "R's last axis: hidden_size");
    Dim *rows = dim_mulc(g, n->hidden, gates), *dirs = dim_const(g, n->dirs);
    op_size_is(o, n->w->dims[1], rows, "rows of W: the gates times hidden_size");
    op_size_is(o, n->r->dims[1], rows, "rows of R: the gates times hidden_size");
    op_size_is(o, n->w->dims[0], dirs, "entries of W: one for each direction");
    op_size_is(o, n->r->dims[0], dirs, "entries of R: one for each direction");
    const struct { Node *node; int rank; Dim *dims[3]; const char *what; } rest[] = {
        { n->b, 2, { dirs, dim_mulc(g, rows, 2), NULL }, "an axis of B" },
        { n->len, 1, { n->batch, NULL, NULL }, "sequence_lens" },
        { n->h0, 3, { dirs, n->batch, n->hidden }, "an axis of initial_h" },
        { n->c0, 3, { dirs, n->batch, n->hidden }, "an axis of initial_c" },
        { n->peep, 2, { dirs, dim_mulc(g, n->hidden, 3), NULL }, "an axis of P" } };
    for (size_t j = 0; j < COUNT_OF(rest); j++) {
        if (!rest[j].node) continue;
        if (rest[j].node->rank != rest[j].rank)
            fail(o->cx, E_INVALID, "%s: rank %d, wanted %d", rest[j].what, rest[j].node->rank, rest[j].rank);
        for (int k = 0; k < rest[j].rank; k++) op_size_is(o, rest[j].node->dims[k], rest[j].dims[k], rest[j].what);
    }
}

/* The weights of one direction and the gates' part of all inputs, biases included. For GRU the recurrent bias of the last gate stays apart. */
static RnnDir rnn_direction(const Rnn *n, int d)
{
    Graph *g = n->g;
    static const int swap[] = { 1, 0 };
    RnnDir y = { .act = n->act + d * n->nact };
    y.x = g_matmul(g, n->x, g_transpose(g, rnn_entry(g, n->w, d), swap));
    y.rt = g_transpose(g, rnn_entry(g, n->r, d), swap);
    if (n->b) {
        Node *b = rnn_entry(g, n->b, d);
        Dim *rows = dim_mulc(g, n->hidden, n->gates);
        y.bias = g_slice(g, b, 0, dim_const(g, 0), rows, 1);
        y.rb = g_slice(g, b, 0, rows, rows, 1);
    }
    if (n->peep) y.peep = rnn_entry(g, n->peep, d);
    return y;
}

static Node *rnn_state(const Rnn *n, Node *given, int d)
{
    Graph *g = n->g;
    return given ? rnn_entry(g, given, d) : g_expand(g, g_scalar(g, n->wide, 0), 2, (Dim *[]){ n->batch, n->hidden });
}

static Node *sum_with(Graph *g, Node *a, Node *b) { return b ? g2(g, OP_add, a, b) : a; }

typedef void (*RnnStep)(const Rnn *n, const RnnDir *d, Node *x, Node **h, Node **c);

static void step_rnn(const Rnn *n, const RnnDir *d, Node *x, Node **h, Node **c)
{
    (void)c;
    Graph *g = n->g;
    Node *sum = sum_with(g, sum_with(g, g2(g, OP_add, x, g_matmul(g, *h, d->rt)), d->bias), d->rb);
    *h = rnn_act(n, &d->act[0], sum);
}

static void step_gru(const Rnn *n, const RnnDir *d, Node *x, Node **h, Node **c)
{
    (void)c;
    Graph *g = n->g;
    Node *rec = g_matmul(g, *h, n->linear_first ? d->rt : g_slice(g, d->rt, 1, dim_const(g, 0), dim_mulc(g, n->hidden, 2), 1));
    x = sum_with(g, x, d->bias);
    Node *gate[2];
    for (int k = 0; k < 2; k++) {
        Node *sum = g2(g, OP_add, rnn_part(n, x, k), rnn_part(n, rec, k));
        gate[k] = rnn_act(n, &d->act[0], sum_with(g, sum, d->rb ? rnn_part(n, d->rb, k) : NULL));
    }
    Node *rb = d->rb ? rnn_part(n, d->rb, 2) : NULL, *update = gate[0], *reset = gate[1], *fresh;
    if (n->linear_first) fresh = g2(g, OP_mul, reset, sum_with(g, rnn_part(n, rec, 2), rb));
    else fresh = sum_with(g, g_matmul(g, g2(g, OP_mul, reset, *h), rnn_part(n, d->rt, 2)), rb);
    fresh = rnn_act(n, &d->act[1], g2(g, OP_add, rnn_part(n, x, 2), fresh));
    Node *one = g_scalar(g, n->wide, 1);
    *h = g2(g, OP_add, g2(g, OP_mul, g2(g, OP_sub, one, update), fresh), g2(g, OP_mul, update, *h));
}

/* Gates in the order input, output, forget, cell; peepholes in the order input, output, forget. */
static void step_lstm(const Rnn *n, const RnnDir *d, Node *x, Node **h, Node **c)
{
    Graph *g = n->g;
    Node *sum = sum_with(g, sum_with(g, g2(g, OP_add, x, g_matmul(g, *h, d->rt)), d->bias), d->rb);
    Node *pre[4];
    for (int k = 0; k < 4; k++) pre[k] = rnn_part(n, sum, k);
    if (d->peep) {
        pre[0] = g2(g, OP_add, pre[0], g2(g, OP_mul, rnn_part(n, d->peep, 0), *c));
        pre[2] = g2(g, OP_add, pre[2], g2(g, OP_mul, rnn_part(n, d->peep, 2), *c));
    }
    Node *input = rnn_act(n, &d->act[0], pre[0]);
    Node *forget = n->couple ? g2(g, OP_sub, g_scalar(g, n->wide, 1), input) : rnn_act(n, &d->act[0], pre[2]);
    *c = g2(g, OP_add, g2(g, OP_mul, forget, *c), g2(g, OP_mul, input, rnn_act(n, &d->act[1], pre[3])));
    if (d->peep) pre[1] = g2(g, OP_add, pre[1], g2(g, OP_mul, rnn_part(n, d->peep, 1), *c));
    /* the clip is of gates: the cell state enters its activation as it is */
    Rnn unclipped = *n;
    unclipped.clip = 0;
    *h = g2(g, OP_mul, rnn_act(n, &d->act[0], pre[1]), rnn_act(&unclipped, &d->act[2], *c));
}

/* Results: all hidden states, the last hidden state, the last cell state. */
static void rnn_run(Rnn *n, RnnStep step)
{
    OpCall *o = n->o;
    Graph *g = n->g;
    Node *all[2] = { NULL }, *last_h[2] = { NULL }, *last_c[2] = { NULL }, *zero = g_scalar(g, n->wide, 0);
    Node **y = NEWS(o->a, Node *, n->steps + 1);
    for (int d = 0; d < n->dirs; d++) {
        RnnDir dir = rnn_direction(n, d);
        Node *h = rnn_state(n, n->h0, d), *c = rnn_state(n, n->c0, d);
        bool back = d == 1 || n->reverse_first;
        for (int64_t k = 0; k < n->steps; k++) {
            int64_t t = back ? n->steps - 1 - k : k;
            Node *old_h = h, *old_c = c;
            step(n, &dir, rnn_entry(g, dir.x, t), &h, &c);
            y[t] = h;
            if (n->len) {
                Node *running = g_unsqueeze(g, g2(g, OP_lt, g_int(g, DT_i64, t), n->len), 1);
                y[t] = g_where(g, running, h, zero);
                h = g_where(g, running, h, old_h);
                c = g_where(g, running, c, old_c);
            }
            y[t] = g_unsqueeze(g, y[t], 0);
        }
        if (n->steps == 0) all[d] = g_expand(g, zero, 3, (Dim *[]){ dim_const(g, 0), n->batch, n->hidden });
        else all[d] = g_join(g, (int)n->steps, y, 0);
        all[d] = g_unsqueeze(g, all[d], 1);
        last_h[d] = g_unsqueeze(g, h, 0);
        last_c[d] = g_unsqueeze(g, c, 0);
    }
    Node *result[3] = { n->dirs == 2 ? g_join(g, 2, all, 1) : all[0], n->dirs == 2 ? g_join(g, 2, last_h, 0) : last_h[0],
                        n->dirs == 2 ? g_join(g, 2, last_c, 0) : last_c[0] };
    for (int k = 0; k < o->nout && k < 3; k++) {
        Node *r = g_cast(g, result[k], n->dt);
        if (n->batch_first) r = g_transpose(g, r, k == 0 ? (const int[]){ 2, 0, 1, 3 } : (const int[]){ 1, 0, 2 });
        o->out[k] = r;
    }
}

void op_rnn(OpCall *o)
{
    Rnn n;
    rnn_init(&n, o, 1, 1, (const char *const[]){ "Tanh" });
    rnn_run(&n, step_rnn);
}

void op_gru(OpCall *o)
{
    Rnn n;
    rnn_init(&n, o, 3, 2, (const char *const[]){ "Sigmoid", "Tanh" });
    rnn_run(&n, step_gru);
}

void op_lstm(OpCall *o)
{
    Rnn n;
    rnn_init(&n, o, 4, 3, (const char *const[]){ "Sigmoid", "Tanh", "Tanh" });
    rnn_run(&n, step_lstm);
}
