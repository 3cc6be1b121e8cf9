/* The spellings of prim.def in generated kernels, against their values in the interpreter.
 *
 * One graph holds every elementwise row on every dtype that it allows, casts between all pairs of dtypes, bitcasts, and ways to read and
 * write memory: each on ordinary and special numbers, in pairs, with a length that leaves a tail behind the whole vectors. The graph is
 * compiled for each instruction set that the machine can run, an operator for a kernel, and every element is compared. A row of the table
 * needs no test of its own.
 *
 * Integers, truth values and what IEEE 754 rounds exactly must be the same, the sign of zero and NaN-ness included. `ulp_bound` says what is
 * allowed to the others, in units of the last place of the result's dtype against the value rounded from double. */
#include "test.h"
#include "target.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- operands ---------------------------------------------------------------------------------------------------------------------- */
enum { COUNT = 1995 };                  /* 11 mod 16: a tail for each number of lanes */

static uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 16 ^ *s << 40;
}

static const double float_specials[] = {
    0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 0.1, -0.7, 10, 100.25, -7.75, 1e-3, 0x1p-149, -0x1p-149, 0x1p-126, 0x1p-133, 0x1p-134,
    0x1.8p-134, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-14, 0x1.ffcp-15, 6e-8, 1e-40, 5e-324, 0x1p-1022, 0x1.fffffep127, -0x1.fffffep127, 0x1.ffffffp127, 1e300,
    -1e300, 65504, 65519.99, 65520, -65536, 0x1.fep127, 0x1.ffp127, 88.72283, 88.73, -87.3, -103.97, -104.5, 127.5, 128, 255.5, 256, -129, 32767.9, 65535.5,
    8388607.5, 8388608.5, 16777217, 2147483520.0, 2147483648.0, -2147483648.0, 4294967040.0, 4294967296.0, 9223372036854774784.0, 0x1p63, -0x1p63, 0x1p64,
    0x1.fffffffffffffp63, 1e20, 448, 464, 465, 240, 248, 57344, 61440, 61441, 6, 7, 5, 0.25, 0.75, 0.0625, 0x1.00801p0, 0x1.018p0, 0x1.0180000001p0,
    0x1.002p0, 0x1.006p0, 0x1.0060000001p0, 0x1.0020000001p0, 0x1.0000010000001p0, 0x1p-127, 0x1.8p-127, 0x1p-128, 3.14159265, 1.57079637, 100000, 1e5 + 3, INFINITY, -INFINITY, NAN,
};
static const int64_t int_specials[] = {
    0, 1, -1, 2, -2, 3, -3, 5, 7, -7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, -128, -129, 255, 256, 1000, -1000, 32767, 32768, -32768, 65535, 65536,
    16777215, 16777217, -16777217, 33554435, 0x40408001, 0x40400001, 0x40c00000, 2147483647, -2147483647 - 1, 0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff,
    -0x7fffffffffffffff - 1, 0x7fffffffffffff00, 0x4040000000000001, 0x7f80000000000001, 0x0040400000000001, 0x20000000000001, -0x20000000000003,
};

/* Element j of an operand: special numbers in all pairs for side 0 and 1, then random bits. */
static Scalar spell_sample(DType t, int side, int j, uint64_t *seed)
{
    Scalar s = { 0 };
    uint64_t r = next_random(seed);
    if (dtype_is_float(t)) {
        int n = COUNT_OF(float_specials);
        if (j % 8 == 7) {                /* random bits */
            uint64_t bits = r;
            return scalar_load(t, &bits);
        }
        if (j % 8 == 6) s.f = ldexp((double)(int64_t)r, -66 + (int)(next_random(seed) % 12));
        else s.f = float_specials[j < 2 * n ? (side ? n - 1 - j % n : j % n) : (int)(r % (uint64_t)n)];
        return scalar_round(t, s, false);
    }
    int n = COUNT_OF(int_specials);
    s.i = j % 8 == 7 ? (int64_t)r : j % 8 == 6 ? (int64_t)(r % 70) : int_specials[j < 2 * n ? (side ? n - 1 - j % n : j % n) : (int)(r % (uint64_t)n)];
    return scalar_round(t, s, false);
}

/* ---- the graph ------------------------------------------------------------------------------------------------------------------------ */
typedef struct Case { Node *node; const char *what; double ulp; } Case;
typedef struct Table {
    Ctx *cx; Arena *arena; Graph *g;
    VEC(Case) cases; int nflat;         /* nflat: rows and casts, the first ones */
    VEC(Tensor) in;
    Tensor *want;
    int64_t *syms;
    int bad;
} Table;

static Node *add_input(Table *t, DType dt, int rank, const int64_t *dims, int side)
{
    Tensor x;
    tensor_init(t->cx, &x, dt, rank, dims);
    x.data = arena_alloc(t->arena, tensor_bytes(&x) + 1);
    uint64_t seed = (uint64_t)dt * 977 + (uint64_t)side;
    for (int64_t j = 0; j < tensor_count(&x); j++) scalar_store(dt, (char *)x.data + (size_t)j * dtype_size(dt), spell_sample(dt, side, (int)j, &seed));
    vec_push(t->arena, &t->in, x);
    return graph_input(t->g, arena_fmt(t->arena, "x%d", t->in.n), dt, rank, dims, NULL, NULL);
}

/* What follows becomes a kernel of its own. */
static void origin_next(Table *t, const char *what) { graph_origin(t->g, what, what, ""); }
enum { GROUP = 12 };

static void add_case(Table *t, Node *n, const char *what, double ulp)
{
    if (n->op == OP_input) return;       /* nothing is left of it */
    for (int i = 0; i < t->cases.n; i++) if (t->cases.at[i].node == n) return;     /* the same value by another way */
    Case c = { n, what, ulp };
    vec_push(t->arena, &t->cases, c);
    if (t->nflat) graph_output(t->g, what, n);
}

/* Where a kernel may differ from the correctly rounded value. f16 and bf16 are computed in float and rounded again. */
static double ulp_bound(Op op, DType t)
{
    switch (op) {
    case OP_exp: case OP_log: case OP_tanh: case OP_erf: case OP_sin: case OP_cos:
        return t == DT_f32 ? 2 : t == DT_f64 ? 1 : 1;
    case OP_log1p: case OP_expm1: case OP_tan: case OP_asin: case OP_acos: case OP_atan: case OP_sinh: case OP_cosh: case OP_asinh: case OP_acosh:
    case OP_atanh: case OP_pow:
        return t == DT_f32 ? 4 : 1;
    case OP_sigmoid:
        return t == DT_f32 ? 4 : t == DT_f64 ? 2 : 1;
    default:
        return 0;
    }
}

static void build_rows(Table *t, DType dt, Node *x, Node *y)
{
    for (Op op = 0; op < OP_COUNT; op++) {
        const PrimInfo *p = &prim_info[op];
        char class = dtype_info[dt].class == 'F' ? 'F' : dt == DT_bool ? 'B' : 'I';
        if (!p->elementwise || !strchr(p->domain, class)) continue;
        char *what = arena_fmt(t->arena, "%s %s", p->name, dtype_info[dt].name);
        add_case(t, p->arity == 1 ? g1(t->g, op, x) : g2(t->g, op, x, y), what, ulp_bound(op, dt));
    }
}

/* The larger and the smaller of a value and a plain number, which have spellings of their own. */
static void build_bounds(Table *t, DType dt, Node *x)
{
    static const double bound[] = { 0.0, -0.0, 1.5, -2, INFINITY, -INFINITY, NAN };
    for (size_t i = 0; i < COUNT_OF(bound); i++)
        for (int op = 0; op < 2; op++) {
            Node *c = g_scalar(t->g, dt, bound[i]);
            char *what = arena_fmt(t->arena, "%s %s and %g", op ? "max" : "min", dtype_info[dt].name, bound[i]);
            add_case(t, i % 2 ? g2(t->g, op ? OP_max : OP_min, c, x) : g2(t->g, op ? OP_max : OP_min, x, c), what, 0);
        }
    static const DType narrow[] = { DT_u8, DT_i8, DT_u16, DT_i16 };
    for (size_t i = 0; i < COUNT_OF(narrow); i++) {
        Node *low = g_scalar(t->g, dt, (double)scalar_min(narrow[i]).i), *high = g_scalar(t->g, dt, (double)scalar_max(narrow[i]).i);
        add_case(t, g_cast(t->g, g2(t->g, OP_min, g2(t->g, OP_max, x, low), high), narrow[i]), arena_fmt(t->arena, "%s within %s", dtype_info[dt].name, dtype_info[narrow[i]].name), 0);
    }
}

static void build_casts(Table *t, DType dt, Node *x)
{
    for (DType to = DT_none + 1; to < DT_COUNT; to++) {
        char *what = arena_fmt(t->arena, "cast %s to %s", dtype_info[dt].name, dtype_info[to].name);
        if (to != dt) add_case(t, g_cast_sat(t->g, x, to, false), what, 0);
        bool narrow = dtype_is_float(to) && dtype_size(to) == 1;
        if (narrow) add_case(t, g_cast_sat(t->g, x, to, true), arena_fmt(t->arena, "%s, saturating", what), 0);
        if (to == dt || dtype_size(to) != dtype_size(dt) || dtype_bits(to) < 8 || dtype_bits(dt) < 8 || dt == DT_bool || to == DT_bool) continue;
        what = arena_fmt(t->arena, "bitcast %s to %s", dtype_info[dt].name, dtype_info[to].name);
        add_case(t, g_bitcast(t->g, x, to), what, 0);
    }
}

/* Loads and stores in every form: whole and part vectors, strides both ways, one element for all lanes, padding, gathers. */
static void build_moves(Table *t, DType dt, Node *x, Node *y, Node *one, Node *c, Node *index)
{
    Graph *g = t->g;
    const char *name = dtype_info[dt].name;
    Dim *n = x->dims[0];
    origin_next(t, "where");
    add_case(t, g_where(g, c, x, y), arena_fmt(t->arena, "where %s", name), 0);
    origin_next(t, "one");
    add_case(t, g_where(g, c, x, one), arena_fmt(t->arena, "where %s with one element", name), 0);
    origin_next(t, "steps");
    add_case(t, g_where(g, g_slice(g, c, 0, dim_const(g, 0), dim_div(g, n, dim_const(g, 3)), 1), g_slice(g, x, 0, dim_const(g, 1), dim_div(g, n, dim_const(g, 3)), 3),
        g_slice(g, y, 0, dim_const(g, 0), dim_div(g, n, dim_const(g, 3)), 1)), arena_fmt(t->arena, "every third %s", name), 0);
    origin_next(t, "flip");
    add_case(t, g_where(g, c, g_flip(g, x, 0), y), arena_fmt(t->arena, "flipped %s", name), 0);
    origin_next(t, "pad");
    Scalar fill = dtype_is_float(dt) ? scalar_round(dt, (Scalar){ .f = 1.5 }, false) : scalar_round(dt, (Scalar){ .i = 1 }, false);
    Dim *before = dim_const(g, 5), *after = dim_const(g, 21);
    add_case(t, g_pad(g, x, &before, &after, fill), arena_fmt(t->arena, "padded %s", name), 0);
    origin_next(t, "pad of step");
    add_case(t, g_pad(g, g_slice(g, x, 0, dim_const(g, 0), dim_const(g, 40), 2), &before, &after, (Scalar){ 0 }), arena_fmt(t->arena, "padded steps of %s", name), 0);
    origin_next(t, "gather");
    add_case(t, g_gather_axis(g, x, index, 0), arena_fmt(t->arena, "gathered %s", name), 0);
    origin_next(t, "join");
    add_case(t, g_join(g, 2, (Node *[]){ g_slice(g, x, 0, dim_const(g, 3), dim_const(g, 50), 1), y }, 0), arena_fmt(t->arena, "joined %s", name), 0);
    origin_next(t, "table");             /* the lanes run along an axis that is not the last in memory */
    Node *square = g_reshape(g, g_slice(g, x, 0, dim_const(g, 0), dim_const(g, 23 * 19), 1), 2, (Dim *[]){ dim_const(g, 23), dim_const(g, 19) });
    add_case(t, g_where(g, g_reshape(g, g_slice(g, c, 0, dim_const(g, 0), dim_const(g, 23 * 19), 1), 2, (Dim *[]){ dim_const(g, 19), dim_const(g, 23) }),
        g_transpose(g, square, (int[]){ 1, 0 }), one), arena_fmt(t->arena, "transposed %s", name), 0);
}

/* ---- comparing ------------------------------------------------------------------------------------------------------------------------- */
/* Floats in order as integers; the distance of two neighbours is 1. */
static double order_of(DType t, double v)
{
    uint64_t code = 0;
    scalar_store(t, &code, (Scalar){ .f = v });
    uint64_t top = (uint64_t)1 << (dtype_bits(t) - 1), mag = code & (top - 1);
    return code & top ? -(double)mag : (double)mag;
}

static bool same_value(DType t, double ulp, Scalar a, Scalar b)
{
    if (!dtype_is_float(t)) return a.i == b.i;
    if (a.f != a.f || b.f != b.f) return a.f != a.f && b.f != b.f;
    if (a.f == b.f) return (signbit(a.f) != 0) == (signbit(b.f) != 0);
    return ulp > 0 && (a.f < 0) == (b.f < 0) && fabs(order_of(t, a.f) - order_of(t, b.f)) <= ulp;
}

static void spell_compare(Table *t, const char *isa, const Case *c, const Tensor *got, const Tensor *want)
{
    DType dt = want->dt;
    int64_t n = tensor_count(want);
    int wrong = 0;
    assert_int_equal(tensor_count(got), n);
    for (int64_t j = 0; j < n; j++) {
        const char *pg = (const char *)got->data + (size_t)j * dtype_size(dt), *pw = (const char *)want->data + (size_t)j * dtype_size(dt);
        Scalar a = scalar_load(dt, pg), b = scalar_load(dt, pw);
        if (same_value(dt, c->ulp, a, b)) continue;
        DType from = c->node->op == OP_bitcast ? c->node->in[0]->dt : dt;
        if (dtype_is_float(from) && isnan(scalar_load(from, pg).f) && isnan(scalar_load(from, pw).f)) continue;    /* which NaN is left open */
        if (wrong++) continue;
        print_error("%s: %s: element %lld of %lld", isa, c->what, (long long)j, (long long)n);
        for (int k = 0; k < c->node->nin; k++)
            if (c->node->in[k]->op == OP_input && t->in.at[c->node->in[k]->index].rank) {
                const Tensor *x = &t->in.at[c->node->in[k]->index];
                Scalar s = scalar_load(x->dt, (const char *)x->data + (size_t)j * dtype_size(x->dt));
                if (dtype_is_float(x->dt)) print_error(" (%a)", s.f); else print_error(" (%lld)", (long long)s.i);
            }
        if (dtype_is_float(dt)) print_error(" is %a, wanted %a\n", a.f, b.f);
        else print_error(" is %lld, wanted %lld\n", (long long)a.i, (long long)b.i);
    }
    if (wrong > 1) print_error("    and %d more\n", wrong - 1);
    t->bad += wrong > 0;
}


/* Rows and casts: kernels of GROUP results each, since compiling many small ones takes longer. All results have the inputs' one axis. */
static void spaces_lower(Table *t, const Target *target, int n, LoopKernel **k, KernelSource *src)
{
    int *home = NEWS(t->arena, int, t->g->node.n);
    for (int i = 0; i < t->g->node.n; i++) home[i] = t->g->node.at[i]->op == OP_input ? HOME_memory : 1;
    for (int i = 0; i < n; i++) {
        Subgraph *sub = NEW(t->arena, Subgraph);
        SubStore *store = NEWS(t->arena, SubStore, GROUP);
        Node **node = NEWS(t->arena, Node *, GROUP);
        Dim **at = NEWS(t->arena, Dim *, 1);
        *sub = (Subgraph){ .kind = SUB_map, .id = 1, .rank = 1, .node = node, .store = store, .home = home };
        for (int j = i * GROUP; j < t->nflat && j < (i + 1) * GROUP; j++) {
            Node *v = t->cases.at[j].node;
            sub->space = v->dims;
            at[0] = dim_idx(t->g, SPACE_VAR, v->dims[0]);
            node[sub->nnode++] = v;
            store[sub->nstore++] = (SubStore){ v, v, at, at };
        }
        sub->iter = NEWS(t->arena, Dim *const *, t->g->node.n);
        sub->stored = sub->constant = NEWS(t->arena, uint8_t, t->g->node.n);
        k[i] = kernel_lower(t->cx, t->arena, t->g, sub, target->vectors);
        gen_c(t->cx, t->arena, "plain", k[i], &src[i]);
    }
}

static void run_flat(Table *t, const Target *target, Tensor *out)
{
    Ctx *cx = t->cx;
    RtError e = { .launch = -1 };
    int n = (t->nflat + GROUP - 1) / GROUP;
    LoopKernel **k = NEWS(t->arena, LoopKernel *, n);
    KernelSource *src = NEWS(t->arena, KernelSource, n);
    KernelText *text = NEWS(t->arena, KernelText, n);
    const Kernel **built = NEWS(t->arena, const Kernel *, n);
    Launch *launch = NEWS(t->arena, Launch, n);
    spaces_lower(t, target, n, k, src);
    for (int i = 0; i < n; i++) text[i] = (KernelText){ .name = src[i].name, .text = src[i].text, .key = hash_bytes(src[i].name, strlen(src[i].name), 0), .cost = k[i]->cost };
    BuildStats stats = { 0 };
    if (dev_cpu.build(target->device, target->prelude, n, text, built, &stats, NULL, &e) != E_OK) fail(cx, e.code, "%s", e.text);
    for (int i = 0; i < n; i++) {
        int64_t *arg = NEWS(t->arena, int64_t, src[i].narg + 1), total = dim_eval(k[i]->total, t->syms, NULL);
        for (int j = 0; j < src[i].narg; j++) arg[j] = dim_eval(src[i].arg[j], t->syms, NULL);
        launch[i] = (Launch){ .kernel = built[i], .arg = arg, .buf = NEWS(t->arena, void *, src[i].nbuf), .total = total, .grain = total };
        for (int j = 0; j < src[i].nbuf; j++) {
            const Node *v = k[i]->buf.at[src[i].buf[j]].node;
            if (v->op == OP_input) { launch[i].buf[j] = t->in.at[v->index].data; continue; }
            for (int q = 0; q < t->nflat; q++)
                if (t->cases.at[q].node == v) {
                    out[q] = t->want[q];
                    launch[i].buf[j] = out[q].data = arena_alloc(t->arena, tensor_bytes(&out[q]));
                }
        }
    }
    if (dev_cpu.run(target->device, n, launch, 1, NULL, NULL, &e) != E_OK) fail(cx, e.code, "%s", e.text);
}

/* Moves: through the planner, an operator for a kernel. */
static void run_moves(Table *t, const Target *target, Tensor *out)
{
    Segment *s = segment_new(t->cx, target, t->g, &(ProgramOptions){ .fuse = false, .threads = 1 });
    if (s->interpreted) print_error("%s: %s\n", target->isa, s->interpreted_why);
    assert_false(s->interpreted);
    segment_run(t->cx, t->arena, s, t->in.at, t->syms, out + t->nflat, NULL, NULL);
    segment_free(s);
}

static void run_table(Table *t)
{
    Ctx *cx = t->cx;
    graph_check(cx, t->g);
    int n = t->cases.n;
    Node **nodes = NEWS(t->arena, Node *, n);
    for (int i = 0; i < n; i++) nodes[i] = t->cases.at[i].node;
    t->syms = NEWS(t->arena, int64_t, t->g->sym.n + 1);
    for (int i = 0; i < t->g->sym.n; i++) t->syms[i] = t->g->sym.at[i].hint;
    t->want = NEWS(t->arena, Tensor, n);
    eval_nodes(cx, t->arena, t->g, t->in.at, t->syms, n, nodes, t->want);
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(isa_names); i++) {
        Target target;
        if (!isa_open_next(cx, t->arena, i, &any, &target)) continue;
        Tensor *out = NEWS(t->arena, Tensor, n);
        double t0 = time_now();
        run_flat(t, &target, out);
        run_moves(t, &target, out);
        int bad = t->bad;
        for (int k = 0; k < n; k++) spell_compare(t, isa_names[i], &t->cases.at[k], &out[k], &t->want[k]);
        print_message("%s: %d results, %.1f s, %d wrong\n", isa_names[i], n, time_now() - t0, t->bad - bad);
        dev_cpu.close(target.device);
    }
    assert_int_equal(t->bad, 0);
}

static void table_body(Ctx *cx, void *arg)
{
    (void)arg;
    Table t = { .cx = cx, .arena = arena_new(cx) };
    t.g = graph_new(cx, t.arena);
    Node *c = add_input(&t, DT_bool, 1, (int64_t[]){ COUNT }, 0), *index = add_input(&t, DT_i64, 1, (int64_t[]){ 777 }, 0);
    for (int j = 0; j < 777; j++) ((int64_t *)t.in.at[1].data)[j] = (int64_t)j * 7919 % COUNT - (j % 3 ? 0 : COUNT);
    Node *x[DT_COUNT], *y[DT_COUNT];
    for (DType dt = DT_none + 1; dt < DT_COUNT; dt++) {
        x[dt] = add_input(&t, dt, 1, (int64_t[]){ COUNT }, 0);
        y[dt] = add_input(&t, dt, 1, (int64_t[]){ COUNT }, 1);
        bool code = dtype_is_float(dt) && dtype_size(dt) == 1;     /* held as codes: moved and cast, never computed with */
        if (!code) build_rows(&t, dt, x[dt], y[dt]);
        if (dt == DT_f32) build_bounds(&t, dt, x[dt]);
        build_casts(&t, dt, x[dt]);
    }
    t.nflat = t.cases.n;
    for (DType dt = DT_none + 1; dt < DT_COUNT; dt++) build_moves(&t, dt, x[dt], y[dt], add_input(&t, dt, 0, NULL, 1), c, index);
    run_table(&t);
    arena_free(t.arena);
}

static void spell_all(void **state)
{
    (void)state;
    Ctx cx;
    ctx_init(&cx);
    cx.opt.threads = 1;
    if (guard_call(&cx, table_body, NULL) != E_OK) fail_msg("%s", cx.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(spell_all) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
