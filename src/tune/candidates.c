/* Schedules to try, from the table of knobs.
 *
 * All combinations of the knobs that apply to a kernel's kind are listed and put in the order of a simple model of a contraction's tile: work past the edges,
 * too few independent sums to hide the latency of an addition, loads for each product, and registers that do not suffice. The model only orders; what is
 * taken is what was measured. */
#include "tune/tune.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 16, MOST_CANDIDATES = 256, LATENCY = 8, REGISTERS = 32 };

typedef struct KnobInfo { const char *name; unsigned kinds; const char *values; size_t at; } KnobInfo;
static const KnobInfo knob_info[] = {
#define KNOB(name, kinds, values, text) { #name, kinds, values, offsetof(Sched, name) },
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
        if (sscanf(text, "%31[a-z_]=%d%n", name, &v, &n) != 2 || v < 1 || v > 64) return false;
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(knob_info); i++)
            if (!strcmp(knob_info[i].name, name)) { *knob_of(s, &knob_info[i]) = v; known = true; }
        if (!known) return false;
        text += n;
        while (*text == ' ') text++;
    }
    return true;
}

static int log2_of(int64_t n)
{
    int b = 0;
    while (n > 1) { n >>= 1; b++; }
    return b;
}

char *sched_bucket(Arena *a, const LoopKernel *k)
{
    return arena_fmt(a, "t%dw%dr%d", log2_of(dim_hint(k->g, k->total)), log2_of(dim_hint(k->g, k->work)), k->row_extent ? log2_of(dim_hint(k->g, k->row_extent)) : 0);
}

/* Expected time of a product, relative. */
static double tile_cost(const LoopKernel *k, int rows, int vectors)
{
    int64_t n = k->row_extent ? dim_hint(k->g, k->row_extent) : 1, vecs = 1;
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

typedef struct Ranked { Sched s; double cost; int order; } Ranked;
static int by_cost(const void *x, const void *y)
{
    const Ranked *a = x, *b = y;
    return a->cost != b->cost ? (a->cost < b->cost ? -1 : 1) : a->order - b->order;
}

int sched_candidates(Arena *a, const LoopKernel *k, Sched **out)
{
    Ranked *all = NEWS(a, Ranked, MOST_CANDIDATES);
    int n = 1;
    for (size_t i = 0; i < COUNT_OF(knob_info); i++) {
        if (!(knob_info[i].kinds >> k->sub->kind & 1) || k->lanes < 2) continue;
        int before = n;
        for (const char *p = knob_info[i].values; *p;) {
            char *end;
            int v = (int)strtol(p, &end, 10);
            for (int j = 0; j < before && n < MOST_CANDIDATES; j++, n++) {
                all[n] = all[j];
                *knob_of(&all[n].s, &knob_info[i]) = v;
            }
            for (p = end; *p == ' ';) p++;
        }
    }
    int m = 0, own = k->mr > 1 ? k->mr : 1;
    for (int i = 1; i < n; i++) {                        /* 0: no knob is set */
        Sched s = all[i].s;
        if (s.rows > 1 && !k->row_extent) continue;
        if (k->sub->kind == SUB_dot && (!s.rows || !s.vectors)) continue;
        all[m] = (Ranked){ s, tile_cost(k, s.rows ? s.rows : own, s.vectors ? s.vectors : 2), i };
        m++;
    }
    qsort(all, (size_t)m, sizeof *all, by_cost);
    *out = NEWS(a, Sched, m + 1);
    for (int i = 0; i < m; i++) (*out)[i] = all[i].s;
    return m;
}
