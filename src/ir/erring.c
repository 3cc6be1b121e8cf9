/* What a kernel may make of a graph: trials in which sums and functions err.
 *
 * A kernel adds float32 in another order than the interpreter, adds products without rounding them first, and has its own powers of e. Each of these errs by little, but what
 * follows in the same kernel may make much of it: E[x^2] - E[x]^2 of numbers far from 0 cancels, and the last bit of a mean decides between two quanta. A trial errs like that on
 * purpose: it adds float32 to so many partial sums, and then their sum, as its terms were without their signs, products and functions are off by their last bits, up or down as a
 * hash of the value says, the same wherever it comes again. Where the results of several trials lie close together, a kernel has no excuse. */
#include "ir/eval.h"

/* Trials 2 k and 2 k + 1 are opposites: what errs up in one errs down in the other; by all that it may, a half or a quarter of it, or by what the order of a sum alone does. */
enum { PARTS = 16 };
static int parts_of(const Eval *ev) { return ev->trial & 2 ? PARTS : 1; }

static double rounding(DType t) { return t == DT_f64 ? 0x1p-53 : t == DT_f16 ? 0x1p-11 : t == DT_bf16 ? 0x1p-8 : 0x1p-24; }

/* By how much sums of so many steps and functions (0) err: two units in the last place of float32, in which narrower numbers are computed as well; roundings of a long sum add up as steps of a
 * random walk do. */
static double err_after(DType t, int64_t steps) { return (4 + sqrt((double)steps) / 2) * rounding(t == DT_f64 ? t : DT_f32); }

static double rounded(DType t, double x) { return t == DT_f64 ? x : (double)(float)x; }

static double err_by(const Eval *ev, const Node *n, double x, double most)
{
    static const double part[4] = { 1, 0.5, 0.25, 0 };
    const uint64_t up = random_word((uint64_t)(ev->trial >> 1) << 32 | (uint32_t)n->id, (Scalar){ .f = x }.u) ^ ev->trial;
    return (up & 1 ? most : -most) * part[ev->trial >> 2 & 3];
}

bool err_sums(const Eval *ev, const Node *n)
{
    return ev->trial && dtype_is_float(n->dt) && (n->kind == FOLD_sum || n->kind == FOLD_prod);
}

ErrSum *err_start(const Eval *ev, const Node *n, ErrSum *part)
{
    if (!part) part = NEWS(ev->mem, ErrSum, PARTS * LANES);
    for (int i = 0; i < PARTS * LANES; i++) part[i] = (ErrSum){ fold_start(n->kind, n->dt).f, 0, 0 };
    return part;
}

static void err_step(const Eval *ev, const Node *n, ErrSum *s, double x)
{
    const Node *body = n->in[0];
    const double term = body->op == OP_mul ? x * (1 + err_by(ev, body, x, rounding(body->dt))) : x;
    s->value = rounded(body->dt, n->kind == FOLD_sum ? s->value + term : s->value * term);
    s->size += fabs(term);
    s->steps++;
}

static double err_result(const Eval *ev, const Node *n, const ErrSum *s)
{
    const double most = err_after(n->in[0]->dt, s->steps) * (n->kind == FOLD_sum ? s->size : fabs(s->value));
    return isfinite(most) ? s->value + err_by(ev, n, s->value, most) : s->value;
}

void err_fold(const Eval *ev, const Node *n, bool serial, ErrSum *part, int64_t seen, const Scalar *x, int m)
{
    for (int j = 0; j < m; j++) err_step(ev, n, &part[(serial ? seen + j : seen) % parts_of(ev) * LANES + (serial ? 0 : j)], x[j].f);
}

void err_end(const Eval *ev, const Node *n, int m, const ErrSum *part, Scalar *acc)
{
    for (int j = 0; j < m; j++) {
        ErrSum s = part[j];
        for (int k = 1; k < parts_of(ev); k++) {
            const ErrSum *more = &part[k * LANES + j];
            s.value = rounded(n->in[0]->dt, n->kind == FOLD_sum ? s.value + more->value : s.value * more->value);
            s.size += more->size;
        }
        acc[j].f = err_result(ev, n, &s);
    }
}

void err_scan(const Eval *ev, const Node *n, bool serial, ErrSum *sum, const Scalar *x, const Scalar *factor, int m, Scalar *run)
{
    for (int j = 0; j < m; j++) {
        ErrSum *s = &sum[serial ? 0 : j];
        if (factor) { s->value *= factor[j].f; s->size *= fabs(factor[j].f); }
        err_step(ev, n, s, x[j].f);
        run[j].f = err_result(ev, n, s);
    }
}

void err_function(const Eval *ev, const Node *n, int m, Scalar *r)
{
    if (!ev->trial || !dtype_is_float(n->dt) || prim_info[n->op].cost < OPERATIONS_POWER) return;
    for (int j = 0; j < m; j++) r[j].f *= 1 + err_by(ev, n, r[j].f, err_after(n->dt, 0));
    round_lanes(n->dt, m, r);
}
