/* A scheduled kernel as numbers for the learned model: what its text does for the sizes at hand, counted along its loops.
 *
 * A statement counts as often as it is executed in a part: the iterations of the loops around it, the rows and vectors of the tile that it differs in. So what a
 * tile computes past the ends, or loads again, shows by itself, and the same numbers describe kernels of all kinds. */
#include "tune/tune.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Traits {
    double parts, ops, loads, apart, tested, stores, dear, sums, inner, steps, unrolled, panel, packed, read, written, by_row, width, rest, block, ahead;
    int nv, nest;
    bool split, inmost;
} Traits;

static double log2_of(double x) { return log2(1 + (x > 0 ? x : 0)); }

static double loop_count(const LoopKernel *k, const KLoop *o)
{
    double n = (double)dim_hint(k->g, loop_times(o)), unit = o->vector ? (double)o->nv * k->lanes : o->step > 1 ? (double)o->step : o->tile > 1 ? o->tile : 1;
    for (int i = 0; o->blocked && i < k->npar; i++) if (k->par[i].var == o->var && n > (double)k->par[i].step) n = (double)k->par[i].step;
    return ceil(n / unit);
}

static double bytes_of(const LoopKernel *k, const KBuf *b)
{
    double n = (double)dtype_size(b->dt);
    for (int j = 0; b->node && j < b->node->rank; j++) n *= (double)dim_hint(k->g, b->node->dims[j]);
    return b->node ? n : 0;
}

static void count_load(Traits *t, const LoopKernel *k, const KVal *v, const Dim *lane, double times)
{
    Dim *c, *rest;
    bool tests = v->at.npred > 0, apart = false;
    if (lane && dim_uses(v->at.off, lane->var)) {
        apart = !dim_linear(k->g, v->at.off, lane->var, &c, &rest) || !dim_is(c, 1);
        for (int i = 0; i < v->at.npred; i++) apart |= dim_uses(v->at.pred[i].e, lane->var);
        if (k->lanes > 1 && !k->buf.at[v->buf].scratch) t->panel += times * k->lanes * (double)dtype_size(k->buf.at[v->buf].dt) / (v->vary & VARY_row ? k->mr : 1);
    }
    t->loads += times;
    if (apart) t->apart += times;
    if (tests) t->tested += times;
    if (v->ahead) t->ahead++;
}

/* Adds up a block that is executed `times` times for each part; returns the operations in its text, with what is unrolled. */
static double count_block(Traits *t, const LoopKernel *k, const KBlock *b, const KLoop *lane, double times, int depth)
{
    double text = 0;
    bool innermost = depth > 0;
    if (depth > t->nest) t->nest = depth;
    for (int i = 0; i < b->stmt.n; i++) {
        const KStmt *s = &b->stmt.at[i];
        double tile = (s->vary & VARY_row ? k->mr : 1) * (lane && (s->vary & VARY_lane) ? lane->nv : 1), n = times * tile;
        switch (s->kind) {
        case KS_loop: {
            const KLoop *o = s->loop;
            double count = loop_count(k, o), in = count_block(t, k, o->body, o->vector ? o : lane, times * count, depth + !o->blocked);
            if (o->vector && o->nv > t->nv) t->nv = o->nv;
            t->split |= o->split;
            text += o->unroll ? in * count : in;
            innermost = false;
            break;
        }
        case KS_val:
            if (s->val->kind == KV_load) count_load(t, k, s->val, lane ? lane->var : NULL, n);
            else if (s->val->kind == KV_ew || s->val->kind == KV_cast) t->ops += n;
            if (is_dear(s->val)) t->dear += n;
            text += tile;
            break;
        case KS_store: t->stores += n; break;
        case KS_fold: t->sums += tile; break;
        case KS_skip: case KS_fetch: break;
        case KS_update: t->ops += n; text += tile; break;
        }
    }
    if (text > t->unrolled) t->unrolled = text;
    if (innermost && times > t->steps) { t->steps = times; t->inner = b->loop ? loop_count(k, b->loop) : 1; }
    return text;
}

static Traits traits_of(const LoopKernel *k)
{
    Traits t = { .parts = (double)dim_hint(k->g, k->total), .nv = 1, .inner = 1, .steps = 1 };
    count_block(&t, k, k->body, NULL, 1, 0);
    for (int i = 0; i < k->buf.n; i++) {
        const KBuf *b = &k->buf.at[i];
        if (b->scratch) continue;
        if (b->read) t.read += bytes_of(k, b);
        if (b->write) t.written += bytes_of(k, b);
        t.packed += b->packed || b->panel > 0;
        if (b->read && !b->panel) t.by_row += bytes_of(k, b);
    }
    for (int i = 0; i < k->npar; i++) {
        if (k->par[i].var != k->vec_var) continue;
        double unit = k->lanes;
        t.width = (double)dim_hint(k->g, k->par[i].extent);
        t.block = (double)k->par[i].step;
        t.rest = t.width > 0 ? ceil(t.width / unit) * unit / t.width - 1 : 0;
        t.inmost = i == k->npar - 1;
    }
    return t;
}

Features kernel_features(const LoopKernel *k)
{
    Traits t = traits_of(k);
    Features f;
#define FEATURE(name, value, text) f.x[FEATURE_##name] = (float)(value);
#include "tune/features.def"
#undef FEATURE
    return f;
}

static const char feature_names[] =
#define FEATURE(name, value, text) #name "=" #value ";"
#include "tune/features.def"
#undef FEATURE
    ;
static uint64_t features_hash(void) { return hash_bytes(feature_names, sizeof feature_names, 0); }

void features_text(char text[FEATURES_TEXT], const Features *f)
{
    int n = snprintf(text, FEATURES_TEXT, "%016" PRIx64, features_hash());
    for (int i = 0; i < FEATURES && n < FEATURES_TEXT; i++) n += snprintf(text + n, (size_t)(FEATURES_TEXT - n), " %.5g", (double)f->x[i]);
}

bool features_parse(const char *text, Features *f)
{
    uint64_t hash;
    int n;
    if (sscanf(text, "%16" SCNx64 "%n", &hash, &n) != 1 || hash != features_hash()) return false;
    const char *p = text + n;
    for (int i = 0; i < FEATURES; i++) {
        char *end;
        f->x[i] = strtof(p, &end);
        if (end == p || !isfinite(f->x[i])) return false;
        p = end;
    }
    return !*p;
}
