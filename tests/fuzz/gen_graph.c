/* Random graphs.
 *
 * A step takes values that are there, the recent ones more often, and adds one by a builder. Every value carries bounds and a bound of the
 * rounding error, so that a comparison may be as sharp as arithmetic allows: what is exact (integers, copies, IEEE operations on exact
 * operands, sums of small whole numbers) must agree in every bit, and only exact values go through steps (rounding, comparison, argmax),
 * where the smallest difference would become a large one. Values that grow too large are clamped before use; values that are too uncertain
 * are used no more. */
#include "gen_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- leaves ---------------------------------------------------------------------------------------------------------- */
void fill_tensor(Rng *r, Fill fill, Tensor *t)
{
    static const double odd[] = { NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-40, -3e-42, 5e-7, 1e-38, 1, -1 };
    int64_t n = tensor_count(t);
    for (int64_t j = 0; j < n; j++) {
        Scalar v;
        uint64_t w = rng_word(r);
        if (t->dt == DT_bool) v.i = w & 1;
        else if (dtype_is_float(t->dt)) {
            v.f = fill == FILL_whole ? (double)(int)(w % 7) - 3 : ((double)(w >> 11) * 0x1p-53 - 0.5) * 8;
            if (fill == FILL_special && rng_below(r, 3) == 0) v.f = odd[rng_below(r, COUNT_OF(odd))];
        } else {
            int how = (int)(w % 10);
            w = rng_word(r);
            v = how < 6 ? (Scalar){ .i = (int64_t)(w % 11) - 5 } : how < 8 ? (Scalar){ .u = w } : w & 1 ? scalar_min(t->dt) : scalar_max(t->dt);
        }
        scalar_store(t->dt, tensor_at(t, j), scalar_round(t->dt, v, false));
    }
}

Val leaf_val(Node *n, Fill fill)
{
    if (!dtype_is_float(n->dt)) return of_int(n);
    Val v = of_range(n, -4, 4);
    v.whole = fill == FILL_whole;
    v.special = v.tiny = fill == FILL_special;
    return v;
}

static Fill any_fill_kind(Gen *s) { return s->special && chance(s, 50) ? FILL_special : chance(s, 40) ? FILL_whole : FILL_real; }

static void add_input(Gen *s)
{
    Case *c = s->c;
    if (c->nin == FUZZ_INPUTS) return;
    Dim *d[MAX_RANK];
    int rank = any_shape(s, d);
    int64_t size[MAX_RANK], h[MAX_RANK];
    const char *sym[MAX_RANK];
    for (int k = 0; k < rank; k++) {
        h[k] = hint(s, d[k]);
        size[k] = dim_is_const(d[k]) ? h[k] : -1;
        sym[k] = dim_is_const(d[k]) ? NULL : s->g->sym.at[d[k]->var].name;
    }
    Tensor *t = &c->in[c->nin];
    Fill fill = c->fill[c->nin] = any_fill_kind(s);
    DType dt = any_dtype(s);
    *t = *tensor_new(c->arena, s->cx, dt, rank, h);
    fill_tensor(&s->r, fill, t);
    Tensor *shape = tensor_new(c->arena, s->cx, dt, rank, h);
    shape->data = NULL;
    Node *n = graph_input(s->g, arena_fmt(c->arena, "x%d", c->nin), dt, rank, size, sym, shape);
    c->nin++;
    keep(s, leaf_val(n, fill));
}

static void add_const(Gen *s)
{
    Dim *d[MAX_RANK];
    int64_t h[MAX_RANK];
    int rank = any_shape(s, d);
    for (int k = 0; k < rank; k++) { if (!dim_is_const(d[k])) return; h[k] = hint(s, d[k]); }
    Fill fill = any_fill_kind(s);
    Tensor *t = tensor_new(s->c->arena, s->cx, any_dtype(s), rank, h);
    fill_tensor(&s->r, fill, t);
    keep(s, leaf_val(g_const(s->g, t), fill));
}

void step_leaf(Gen *s)
{
    Dim *d[MAX_RANK];
    int rank;
    switch (below(s, 5)) {
    case 0: add_input(s); return;
    case 1: add_const(s); return;
    case 2: {
        if (!(rank = any_shape(s, d))) return;
        int axis = below(s, rank);
        Val v = of_range(g_iota(s->g, rank, d, axis), 0, most_of(s, d[axis]));
        keep(s, v);
        return;
    }
    case 3: {
        rank = any_shape(s, d);
        keep(s, of_int(g_random(s->g, g_int(s->g, DT_u64, below(s, 100)), rank, d)));
        return;
    }
    default: {
        Dim *n = any_size(s);
        Val v = of_range(g_dims(s->g, 0, 1, &n), 0, most_of(s, n));
        keep(s, v);
    }
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------------ */
static const struct { const char *name; void (*step)(Gen *s); int weight; } steps[] = {
#define STEP(name, weight) { #name, step_##name, weight },
    STEPS(STEP)
#undef STEP
};

static void take_step(Gen *s)
{
    int total = 0, w;
    int weight[COUNT_OF(steps)];
    for (size_t i = 0; i < COUNT_OF(steps); i++) total += weight[i] = s->favoured >> i & 1 ? 30 : steps[i].weight;
    w = below(s, total);
    size_t i = 0;
    while (w >= weight[i]) w -= weight[i++];
    if (s->c->nop < (int)COUNT_OF(s->c->op)) snprintf(s->c->op[s->c->nop++], sizeof s->c->op[0], "%s", steps[i].name);
    graph_origin(s->g, arena_fmt(s->c->arena, "%s_%d", steps[i].name, s->val.n), steps[i].name, "");
    int before = s->val.n;
    steps[i].step(s);
    if (s->places && s->val.n > before && (steps[i].step == step_matmul || steps[i].step == step_window)) reduce_places(s);
}

static void draw_sizes(Gen *s)
{
    static const int64_t sizes[] = { 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 31, 33, 40 }, large[] = { 64, 100, 129, 257, 600, 5000 };
    s->nsize = 2 + below(s, 3);
    int symbols = chance(s, 40) ? 1 + below(s, 2) : 0;
    for (int i = 0; i < s->nsize; i++) {
        int64_t n = s->big && chance(s, 60) ? large[below(s, COUNT_OF(large))] : sizes[below(s, COUNT_OF(sizes))];
        if (i < symbols) {
            /* a symbol comes with an input that has it as an axis */
            Tensor *t = &s->c->in[s->c->nin], *shape = tensor_new(s->c->arena, s->cx, DT_f32, 1, &n);
            *t = *tensor_new(s->c->arena, s->cx, DT_f32, 1, &n);
            fill_tensor(&s->r, FILL_real, t);
            shape->data = NULL;
            const char *name = i ? "M" : "N";
            Node *x = graph_input(s->g, arena_fmt(s->c->arena, "x%d", s->c->nin), DT_f32, 1, (int64_t[]){ -1 }, &name, shape);
            s->c->fill[s->c->nin++] = FILL_real;
            keep(s, leaf_val(x, FILL_real));
            s->size[i] = x->dims[0];
        } else s->size[i] = num(s, n);
    }
    if (chance(s, 4)) s->size[s->nsize - 1] = num(s, 0);
}

static bool taken(const Case *c, const Node *n)
{
    for (int i = 0; i < c->nout; i++) if (c->out[i].n == n) return true;
    return false;
}

static void choose_outputs(Gen *s)
{
    Case *c = s->c;
    int n = s->val.n, want = 1 + below(s, 6);
    bool *used = NEWS(c->arena, bool, s->g->node.n + 1);
    for (int i = 0; i < s->g->node.n; i++) for (int k = 0; k < s->g->node.at[i]->nin; k++) used[s->g->node.at[i]->in[k]->id] = true;
    c->out[c->nout++] = s->val.at[n - 1];
    for (int i = n - 2; i >= 0 && c->nout < want; i--) {
        Val v = s->val.at[i];
        if (taken(c, v.n) || (v.n->op == OP_input && !chance(s, 20))) continue;
        if (!used[v.n->id] || chance(s, 15)) c->out[c->nout++] = v;
    }
    if (chance(s, 4) && c->nout < FUZZ_OUTPUTS) c->out[c->nout] = c->out[0], c->nout++;     /* twice the same */
    for (int i = 0; i < c->nout; i++) graph_output(s->g, arena_fmt(c->arena, "y%d", i), c->out[i].n);
}

void case_make(Ctx *cx, Arena *a, uint64_t seed, int most, Case *c)
{
    memset(c, 0, sizeof *c);
    c->cx = cx; c->arena = a; c->seed = seed;
    c->g = graph_new(cx, a);
    Gen s = { .c = c, .g = c->g, .cx = cx, .r = { seed * 0x2545F4914F6CDD1Du + 17 } };
    rng_word(&s.r);
    s.special = chance(&s, 15);
    s.big = chance(&s, 6);
    s.most = s.big ? 60000 : chance(&s, 20) ? 4096 : 600;
    s.places = seed >= PLACES_SEEDS;
    s.states = seed >= STATES_SEEDS;
    for (int i = chance(&s, 60) ? 2 + below(&s, 5) : 0; i > 0; i--) s.favoured |= (uint64_t)1 << below(&s, COUNT_OF(steps));
    draw_sizes(&s);
    for (int i = 1 + below(&s, 3); i > 0; i--) add_input(&s);
    int n = 3 + below(&s, chance(&s, 50) ? 12 : 38);
    if (most > 0 && n > most) n = most;
    for (int tries = 0; s.val.n < c->nin + n && tries < 4 * n; tries++) take_step(&s);
    choose_outputs(&s);
}

void case_inputs(const Case *c, Arena *a, int variant, Tensor *in)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 8, 11, 16, 19, 24, MOST_SIZE };
    Rng r = { c->seed * 31 + (uint64_t)variant * 7919 + 5 };
    int64_t *syms = NEWS(a, int64_t, c->g->sym.n + 1);
    for (int i = 0; i < c->g->sym.n; i++) syms[i] = sizes[rng_below(&r, COUNT_OF(sizes))];
    for (int i = 0; i < c->nin; i++) {
        const Node *n = c->g->input.at[i].node;
        int64_t dims[MAX_RANK];
        for (int k = 0; k < n->rank; k++) dims[k] = dim_eval(n->dims[k], syms, NULL);
        in[i] = *tensor_new(a, c->cx, n->dt, n->rank, dims);
        fill_tensor(&r, c->fill[i], &in[i]);
    }
}
