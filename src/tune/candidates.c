/* Schedules to try, from the table of knobs, and in which order.
 *
 * The list of a kernel begins with all settings of one or two knobs that apply to its kind, in the order of a simple model of a contraction's tile: work past the
 * edges, too few independent sums to hide the latency of an addition, loads for each product, and registers that do not suffice; knobs that this model does not
 * know come later, in the order of the table. What prints the same text as another is left out.
 *
 * Once there are measurements enough, the learned model (model.c) says what is measured next; now and then the best found get children, which take knobs from two
 * of them and change one (an evolutionary search; without the model, when the list is at its end). The models only order: what is taken is what was measured. */
#include "tune/tune.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 160, LATENCY = 8, REGISTERS = 32, PARENTS = 4, CHILDREN = 12, BREED_EACH = 5, TRIES = 200, VALUES = 16 };
static const double other_knob = 0.15;                   /* what the analytic model takes a knob that it does not know to cost */
typedef struct KnobInfo { const char *name; unsigned kinds, groups; const char *values; size_t at; } KnobInfo;      /* kinds of kernels that it is tried for: with lanes, for groups of threads */
static const KnobInfo knob_info[] = {
#define KNOB(name, kinds, groups, values, text) { #name, kinds, groups, values, offsetof(Sched, name) },
#include "kir/sched.def"
#undef KNOB
};

static int *knob_of(Sched *s, const KnobInfo *k) { return (int *)(void *)((char *)s + k->at); }

char *sched_text(Arena *a, const Sched *s)
{
    Text t = { .arena = a };
    text_add(&t, "%s", "");
    for (size_t i = 0; i < COUNT_OF(knob_info); i++) {
        int v = *knob_of((Sched *)(uintptr_t)s, &knob_info[i]);
        if (v) text_add(&t, "%s%s=%d", t.n ? " " : "", knob_info[i].name, v);
    }
    return t.at;
}

bool sched_parse(const char *text, Sched *s)
{
    *s = (Sched){ 0 };
    while (*text) {
        char name[32];
        int v, n = 0;
        if (sscanf(text, "%31[a-z_]=%d%n", name, &v, &n) != 2 || v < 1) return false;
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(knob_info); i++)
            if (!strcmp(knob_info[i].name, name) && v <= (knob_info[i].kinds ? 64 : 1024)) { *knob_of(s, &knob_info[i]) = v; known = true; }
        if (!known) return false;
        text += n;
        while (*text == ' ') text++;
    }
    return true;
}

static int log2_floor(int64_t n)
{
    int b = 0;
    while (n > 1) { n >>= 1; b++; }
    return b;
}

char *sched_bucket(Arena *a, const LoopKernel *k)
{
    return arena_fmt(a, "t%dw%dr%d", log2_floor(dim_hint(k->g, k->total)), log2_floor(dim_hint(k->g, k->work)), k->row_extent ? log2_floor(tile_rows_hint(k)) : 0);
}

/* Expected time of a product, relative. */
static double tile_cost(const LoopKernel *k, int rows, int vectors)
{
    int64_t n = k->row_extent ? tile_rows_hint(k) : 1, vecs = 1;
    for (int i = 0; i < k->npar; i++) if (k->par[i].var == k->vec_var) vecs = (dim_hint(k->g, k->par[i].extent) + k->lanes - 1) / k->lanes;
    if (n < 1) n = 1;
    if (vecs < 1) vecs = 1;
    int64_t row_steps = (n + rows - 1) / rows, vector_steps = (vecs + vectors - 1) / vectors;
    double sums = (double)rows * vectors;
    double waste = (double)row_steps * rows / (double)n * (double)vector_steps * vectors / (double)vecs;
    double stall = sums < LATENCY ? LATENCY / sums : 1;
    double loads = (0.5 * rows + vectors) / sums;
    int registers = k->lanes >= 16 ? REGISTERS : REGISTERS / 2;
    double spills = sums + vectors + 1 > registers ? 2 : 0;
    return waste * (stall + loads + spills);
}

static double analytic_cost(const LoopKernel *own, const Sched *s)
{
    double cost = 1;
    if (own->sub->kind == SUB_dot) {
        int nv = 1;
        for (int i = 0; i < own->npar; i++) if (own->par[i].var == own->vec_var && own->lanes > 1) nv = (int)(own->par[i].step / own->lanes);
        cost = tile_cost(own, s->rows ? s->rows : own->mr, s->vectors ? s->vectors : nv > 0 ? nv : 1);
    }
    for (size_t i = 0; i < COUNT_OF(knob_info); i++)
        if (strcmp(knob_info[i].name, "rows") && strcmp(knob_info[i].name, "vectors") && *knob_of((Sched *)(uintptr_t)s, &knob_info[i])) cost += other_knob;
    return cost;
}

static int knob_values(const SchedSearch *s, const KnobInfo *of, int *v)
{
    int n = 0;
    const bool groups = s->vectors.lanes == LANES_simt;
    if (!((groups ? of->groups : of->kinds) >> s->own->sub->kind & 1) || (!groups && s->own->lanes < 2)) return 0;
    for (const char *p = of->values; *p && n < VALUES;) {
        char *end;
        v[n++] = (int)strtol(p, &end, 10);
        for (p = end; *p == ' ';) p++;
    }
    return n;
}

/* What is printed for a kernel, and for which sizes. */
static uint64_t text_of(SchedSearch *s, const LoopKernel *k)
{
    KernelSource src;
    s->dialect->print(s->cx, s->arena, s->isa, k, &src);
    uint64_t h = hash_bytes(src.code, strlen(src.code), 0);
    for (int i = 0; i < src.narg; i++) { int64_t n = dim_hint(k->g, src.arg[i]); h = hash_bytes(&n, sizeof n, h); }
    for (int i = 0; i < k->buf.n; i++) { const KBuf *b = &k->buf.at[i]; h = hash_bytes(b->order, sizeof b->order, h); h = hash_bytes(&b->panel, sizeof b->panel, h); }
    return h;
}

/* Adds a schedule to the list if it is printed as no other is. */
static bool list_add(SchedSearch *s, const Sched *sched)
{
    LoopKernel *k = kernel_lower_as(s->cx, s->arena, s->own->g, s->own->sub, s->vectors, sched);
    uint64_t h = text_of(s, k);
    if (h == s->text) return false;
    for (int i = 0; i < s->list.n; i++) if (s->list.at[i].text == h) return false;
    Contender c = { .sched = *sched, .features = kernel_features(k), .text = h, .cost = analytic_cost(s->own, sched) };
    vec_push(s->arena, &s->list, c);
    return true;
}

typedef struct Ranked { Sched s; double cost; int order; } Ranked;
static int by_cost(const void *x, const void *y)
{
    const Ranked *a = x, *b = y;
    return a->cost != b->cost ? (a->cost < b->cost ? -1 : 1) : a->order - b->order;
}

SchedSearch *search_new(Ctx *cx, Arena *a, const LoopKernel *own, const Dialect *d, const char *isa, Vectors v)
{
    SchedSearch *s = NEW(a, SchedSearch);
    own = kernel_lower(cx, a, own->g, own->sub, v);      /* anew: its operands may have been packed meanwhile */
    *s = (SchedSearch){ .cx = cx, .arena = a, .own = own, .dialect = d, .isa = isa, .vectors = v, .features = kernel_features(own) };
    s->text = text_of(s, own);
    VEC(Ranked) all = { 0 };
    for (size_t i = 0; i < COUNT_OF(knob_info); i++) {
        int v1[VALUES], n1 = knob_values(s, &knob_info[i], v1);
        for (int x = 0; x < n1; x++) {
            Ranked one = { .order = all.n };
            *knob_of(&one.s, &knob_info[i]) = v1[x];
            one.cost = analytic_cost(own, &one.s);
            vec_push(a, &all, one);
            for (size_t j = i + 1; j < COUNT_OF(knob_info); j++) {
                int v2[VALUES], n2 = knob_values(s, &knob_info[j], v2);
                for (int y = 0; y < n2; y++) {
                    Ranked two = { .s = one.s, .order = all.n };
                    *knob_of(&two.s, &knob_info[j]) = v2[y];
                    two.cost = analytic_cost(own, &two.s);
                    vec_push(a, &all, two);
                }
            }
        }
    }
    if (all.n) qsort(all.at, (size_t)all.n, sizeof *all.at, by_cost);
    for (int i = 0; i < all.n && s->list.n < LISTED; i++) list_add(s, &all.at[i].s);
    return s;
}

/* A number below n. */
static int search_random(SchedSearch *s, int n) { return (int)(random_word(s->text, s->seed++) % (uint64_t)n); }

/* Adds children of the best that were measured. */
static void search_breed(SchedSearch *s)
{
    int parent[PARENTS + 1], n = 0;
    for (int i = 0; i < s->list.n; i++) {
        if (!(s->list.at[i].ratio > 0)) continue;
        int at = n < PARENTS ? n++ : PARENTS;
        parent[at] = i;
        for (; at > 0 && s->list.at[parent[at]].ratio < s->list.at[parent[at - 1]].ratio; at--) { int t = parent[at]; parent[at] = parent[at - 1]; parent[at - 1] = t; }
    }
    for (int added = 0, tries = 0; n && added < CHILDREN && tries < TRIES; tries++) {
        Sched a = s->list.at[parent[search_random(s, n)]].sched, b = s->list.at[parent[search_random(s, n)]].sched;
        for (size_t i = 0; i < COUNT_OF(knob_info); i++) if (search_random(s, 2)) *knob_of(&a, &knob_info[i]) = *knob_of(&b, &knob_info[i]);
        const KnobInfo *k = &knob_info[search_random(s, (int)COUNT_OF(knob_info))];
        int v[VALUES], values = knob_values(s, k, v);
        if (values) { int at = search_random(s, values + 1); *knob_of(&a, k) = at < values ? v[at] : 0; }
        added += list_add(s, &a);
    }
}

static int next_of(const SchedSearch *s, const CostModel *m)
{
    int best = -1;
    float least = 0;
    for (int i = 0; i < s->list.n; i++) {
        const Contender *c = &s->list.at[i];
        if (c->ratio != 0) continue;
        if (!m) return i;
        float gain = model_gain(m, &s->features, &c->features);
        if (best >= 0 && gain >= least) continue;
        best = i;
        least = gain;
    }
    return best;
}

int search_next(SchedSearch *s, const CostModel *m)
{
    if (m && s->measured % BREED_EACH == BREED_EACH - 1) search_breed(s);
    int at = next_of(s, m);
    if (at >= 0) return at;
    search_breed(s);
    return next_of(s, m);
}

void search_tell(SchedSearch *s, int at, double ratio)
{
    s->list.at[at].ratio = ratio;
    s->measured++;
}
