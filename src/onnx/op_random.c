/* Random numbers: RandomUniform, RandomNormal, their Like forms, Bernoulli, Multinomial.
 *
 * Numbers are a function of a key and the element's index (see `random` in ir/prim.def), so they do not depend on the order of evaluation, on
 * threads or on the target. The key comes from the attribute seed when there is one: equal seeds give equal numbers. Without it the key is made
 * of the name of the node's result and the count of random nodes before it: two nodes differ, and a model gives the same numbers in every run. */
#include "onnx/onnx.h"
#include <math.h>
#include <string.h>

static Node *random_key(OpCall *o)
{
    Graph *g = o->g;
    uint64_t key;
    g->random_count++;
    if (op_attr(o, "seed")) {
        float seed = (float)op_float(o, "seed", 0);
        key = hash_bytes(&seed, sizeof seed, 1);
    } else key = hash_bytes(o->node->out[0], strlen(o->node->out[0]), g->random_count + 1);
    return g_int(g, DT_u64, (int64_t)key);
}

Node *random_unit(OpCall *o, int rank, Dim *const *dims, DType dt)
{
    Graph *g = o->g;
    int bits = dt == DT_f64 ? 53 : 24;
    Node *word = g2(g, OP_shr, g_random(g, random_key(o), rank, dims), g_int(g, DT_u64, 64 - bits));
    return g2(g, OP_mul, g_cast(g, word, dt), g_scalar(g, dt, ldexp(1, -bits)));
}

/* By Box and Muller; the radius comes from the upper half of a word, the angle from the lower half. */
static Node *random_gauss(OpCall *o, int rank, Dim *const *dims, DType dt)
{
    Graph *g = o->g;
    Node *word = g_random(g, random_key(o), rank, dims), *scale = g_scalar(g, dt, ldexp(1, -32));
    Node *upper = g2(g, OP_add, g2(g, OP_shr, word, g_int(g, DT_u64, 32)), g_int(g, DT_u64, 1));      /* not 0: its logarithm is finite */
    Node *lower = g2(g, OP_and, word, g_int(g, DT_u64, 0xffffffff));
    Node *u = g2(g, OP_mul, g_cast(g, upper, dt), scale), *v = g2(g, OP_mul, g_cast(g, lower, dt), scale);
    Node *radius = g1(g, OP_sqrt, g2(g, OP_mul, g_scalar(g, dt, -2), g1(g, OP_log, u)));
    return g2(g, OP_mul, radius, g1(g, OP_cos, g2(g, OP_mul, g_scalar(g, dt, 2 * 3.14159265358979323846), v)));
}

static DType random_dtype(OpCall *o, DType fallback)
{
    int64_t code = op_int(o, "dtype", 0);
    DType dt = code ? dtype_from_onnx((int)code) : fallback;
    if (dt == DT_none) op_unsupported(o, "the element type %lld", (long long)code);
    return dt;
}

static void random_fill(OpCall *o, bool gauss, int rank, Dim *const *dims, DType dt)
{
    Graph *g = o->g;
    if (!dtype_is_float(dt)) fail(o->cx, E_INVALID, "random numbers of dtype %s; a float is wanted", dtype_info[dt].name);
    DType wide = dtype_wide(dt);
    double shift = gauss ? op_float(o, "mean", 0) : op_float(o, "low", 0), width = gauss ? op_float(o, "scale", 1) : op_float(o, "high", 1) - shift;
    Node *x = gauss ? random_gauss(o, rank, dims, wide) : random_unit(o, rank, dims, wide);
    o->out[0] = g_cast(g, g2(g, OP_add, g2(g, OP_mul, x, g_scalar(g, wide, width)), g_scalar(g, wide, shift)), dt);
}

static void random_shaped(OpCall *o, bool gauss)
{
    int n;
    const int64_t *shape = op_ints(o, "shape", &n);
    Dim *dims[MAX_RANK];
    if (!shape || n > MAX_RANK) fail(o->cx, E_INVALID, "a shape of %d axes; 0 to %d are wanted", n, MAX_RANK);
    for (int k = 0; k < n; k++) {
        if (shape[k] < 0) fail(o->cx, E_INVALID, "shape[%d] is %lld; 0 or more is wanted", k, (long long)shape[k]);
        dims[k] = dim_const(o->g, shape[k]);
    }
    random_fill(o, gauss, n, dims, random_dtype(o, DT_f32));
}

void op_random_uniform(OpCall *o) { random_shaped(o, false); }
void op_random_normal(OpCall *o) { random_shaped(o, true); }
void op_random_uniform_like(OpCall *o) { random_fill(o, false, o->in[0]->rank, o->in[0]->dims, random_dtype(o, o->in[0]->dt)); }
void op_random_normal_like(OpCall *o) { random_fill(o, true, o->in[0]->rank, o->in[0]->dims, random_dtype(o, o->in[0]->dt)); }

void op_bernoulli(OpCall *o)
{
    Graph *g = o->g;
    Node *p = o->in[0];
    DType wide = dtype_wide(p->dt);
    o->out[0] = g_cast(g, g2(g, OP_lt, random_unit(o, p->rank, p->dims, wide), g_cast(g, p, wide)), random_dtype(o, p->dt));
}

/* The number of classes whose running probability a uniform number has passed. */
void op_multinomial(OpCall *o)
{
    Graph *g = o->g;
    Node *x = o->in[0];
    int64_t n = op_int(o, "sample_size", 1);
    if (x->rank != 2 || n < 1) fail(o->cx, E_INVALID, "an input of rank %d and sample_size %lld; rank 2 and a positive number are wanted", x->rank, (long long)n);
    DType dt = random_dtype(o, DT_i32), wide = dtype_wide(x->dt);
    Node *below = g_unsqueeze(g, g_scan(g, FOLD_sum, g_softmax(g, g_cast(g, x, wide), axis_bit(1), false), 1, false, false), 1);
    Node *u = g_unsqueeze(g, random_unit(o, 2, (Dim *[]){ x->dims[0], dim_const(g, n) }, wide), 2);
    Node *passed = g_fold(g, FOLD_sum, g_cast(g, g2(g, OP_le, below, u), DT_i64), axis_bit(2), false);
    Node *last = g_dims(g, 0, 1, (Dim *[]){ dim_addc(g, x->dims[1], -1) });
    o->out[0] = g_cast(g, g2(g, OP_min, passed, last), dt);
}
