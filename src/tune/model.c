/* The learned model of cost: boosted regression trees (J. H. Friedman, Greedy function approximation: a gradient boosting machine, 2001; squared error).
 *
 * An input has the features of a schedule and what it changes of the kernel's own; the output is the logarithm of the time by the time of the kernel's own
 * schedule. Each feature is cut into bins of about as many examples each; a tree of a few levels splits on the bin that takes most of the squared error away,
 * and each tree fits what the trees before it left over. Nothing is random: equal examples give equal models. */
#include "tune/tune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 2 * FEATURES, BINS = 24, LEVELS = 4, NODES = 1 << LEVELS, TREES = 120, LEAF_LEAST = 3, OWN_WEIGHT = 3 };
static const double shrink = 0.12, ridge = 1;            /* the part of a tree that counts; added to the weight of a leaf */

typedef struct Split { int input; float above; } Split;  /* right where the input is greater; input -1: none, always left */
typedef struct Tree { Split split[NODES]; float leaf[NODES]; } Tree;     /* split i has 2i + 1 and 2i + 2 below it */
struct CostModel { double mean; int n; Tree tree[TREES]; };

float example_gain(double ratio) { return (float)fmin(fmax(log(ratio), -2), 1.5); }

static void inputs_of(const Features *own, const Features *it, float *x)
{
    for (int i = 0; i < FEATURES; i++) { x[i] = it->x[i]; x[FEATURES + i] = it->x[i] - own->x[i]; }
}

static int tree_leaf(const Tree *t, const float *x)
{
    int at = 0;
    while (at < NODES - 1) at = 2 * at + 1 + (t->split[at].input >= 0 && x[t->split[at].input] > t->split[at].above);
    return at - (NODES - 1);
}

float model_gain(const CostModel *m, const Features *own, const Features *it)
{
    float x[INPUTS];
    double y = m->mean;
    inputs_of(own, it, x);
    for (int i = 0; i < m->n; i++) y += (double)m->tree[i].leaf[tree_leaf(&m->tree[i], x)];
    return (float)y;
}

/* What is fitted: inputs as bins, and what is left over of each example. */
struct Fitting { Arena *arena; int n, cap; float (*x)[INPUTS]; uint8_t (*bin)[INPUTS]; float edge[INPUTS][BINS], *sorted; double *weight, *left; int *node; };

static int by_float(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

static int bin_last(int n, int b) { int at = (int)((int64_t)(b + 1) * n / BINS) - 1; return at > 0 ? at : 0; }

/* edge[i][b]: the greatest value in bin b of input i. */
static void bins_make(Fitting *f)
{
    float *v = f->sorted;
    for (int i = 0; i < INPUTS; i++) {
        for (int j = 0; j < f->n; j++) v[j] = f->x[j][i];
        qsort(v, (size_t)f->n, sizeof *v, by_float);
        for (int b = 0; b < BINS; b++) f->edge[i][b] = v[bin_last(f->n, b)];
        for (int j = 0; j < f->n; j++) {
            int b = 0;
            while (b < BINS - 1 && f->x[j][i] > f->edge[i][b]) b++;
            f->bin[j][i] = (uint8_t)b;
        }
    }
}

typedef struct LeafSum { double weight, left; int n; } LeafSum;
static double score(const LeafSum *s) { return s->left * s->left / (s->weight + ridge); }

/* The split of each node of a level, the first of which is `first`: examples are added up once for each input. */
static void level_split(const Fitting *f, int first, int nodes, Split *split)
{
    double most[NODES];
    for (int k = 0; k < nodes; k++) { split[first + k] = (Split){ .input = -1 }; most[k] = 1e-9; }
    for (int i = 0; i < INPUTS; i++) {
        LeafSum in[NODES / 2][BINS] = { 0 };
        for (int j = 0; j < f->n; j++) {
            LeafSum *s = &in[f->node[j] - first][f->bin[j][i]];
            s->weight += f->weight[j]; s->left += f->weight[j] * f->left[j]; s->n++;
        }
        for (int k = 0; k < nodes; k++) {
            LeafSum all = { 0 }, low = { 0 };
            for (int b = 0; b < BINS; b++) { all.weight += in[k][b].weight; all.left += in[k][b].left; all.n += in[k][b].n; }
            for (int b = 0; b + 1 < BINS; b++) {
                low.weight += in[k][b].weight; low.left += in[k][b].left; low.n += in[k][b].n;
                LeafSum high = { all.weight - low.weight, all.left - low.left, all.n - low.n };
                if (low.n < LEAF_LEAST || high.n < LEAF_LEAST) continue;
                double won = score(&low) + score(&high) - score(&all);
                if (won <= most[k]) continue;
                most[k] = won;
                split[first + k] = (Split){ i, f->edge[i][b] };
            }
        }
    }
}

static void tree_fit(Fitting *f, Tree *t)
{
    LeafSum leaf[NODES] = { 0 };
    for (int j = 0; j < f->n; j++) f->node[j] = 0;
    for (int nodes = 1; nodes < NODES; nodes *= 2) {
        level_split(f, nodes - 1, nodes, t->split);
        for (int j = 0; j < f->n; j++) {
            const Split *s = &t->split[f->node[j]];
            f->node[j] = 2 * f->node[j] + 1 + (s->input >= 0 && f->x[j][s->input] > s->above);
        }
    }
    for (int j = 0; j < f->n; j++) {
        LeafSum *s = &leaf[f->node[j] - (NODES - 1)];
        s->weight += f->weight[j]; s->left += f->weight[j] * f->left[j];
    }
    for (int i = 0; i < NODES; i++) t->leaf[i] = (float)(shrink * leaf[i].left / (leaf[i].weight + ridge));
    for (int j = 0; j < f->n; j++) f->left[j] -= (double)t->leaf[f->node[j] - (NODES - 1)];
}

CostModel *model_new(Arena *a) { return NEW(a, CostModel); }

Fitting *fitting_new(Arena *a)
{
    Fitting *f = NEW(a, Fitting);
    f->arena = a;
    return f;
}

static void fitting_grow(Fitting *f, int n)
{
    if (n > f->cap) {
        int cap = f->cap = 2 * n;
        f->x = arena_alloc(f->arena, size_mul(f->arena, sizeof *f->x, (size_t)cap));
        f->bin = arena_alloc(f->arena, size_mul(f->arena, sizeof *f->bin, (size_t)cap));
        f->sorted = NEWS(f->arena, float, cap);
        f->weight = NEWS(f->arena, double, cap);
        f->left = NEWS(f->arena, double, cap);
        f->node = NEWS(f->arena, int, cap);
    }
    f->n = n;
}

bool model_fit(CostModel *m, Fitting *f, int n, const Example *e, const char *kernel)
{
    double sum = 0, all = 0;
    if (n < MODEL_LEAST) return false;
    fitting_grow(f, n);
    for (int j = 0; j < n; j++) {
        inputs_of(&e[j].own, &e[j].it, f->x[j]);
        f->weight[j] = kernel && !strcmp(e[j].kernel, kernel) ? OWN_WEIGHT : 1;
        sum += f->weight[j] * (double)e[j].gain;
        all += f->weight[j];
    }
    m->mean = all > 0 ? sum / all : 0;
    for (int j = 0; j < n; j++) f->left[j] = (double)e[j].gain - m->mean;
    bins_make(f);
    for (m->n = 0; m->n < TREES; m->n++) tree_fit(f, &m->tree[m->n]);
    return true;
}
