/* The inputs of a model: from files, from -d, or made up.
 *
 * Files first: they also say how large the dimensions that they share with other inputs are. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Source { const char *what; bool done; int line; } Source;   /* what -i says; NULL: nothing */
typedef struct Maker {
    Cli *c; Ctx *cx; Arena *a;
    const OnnxModel *m;
    Inputs in;
    Source *source;
    MapStr *size;                       /* symbol -> int64_t */
    bool *dim_used;                     /* by number of -d */
    bool ranges;                        /* -d takes LO..HI */
    Text assumed;
} Maker;

void fill_random(Tensor *t, uint64_t seed)
{
    const int64_t n = tensor_count(t);
    const size_t size = dtype_size(t->dt);
    const bool real = dtype_is_float(t->dt);
    ASSERT(tensor_dense(t));
    char *at = t->data;
    for (int64_t i = 0; i < n; i++, at += size) {
        uint64_t w = random_word(seed, (uint64_t)i);
        Scalar v;
        if (real) v.f = (double)(w >> 11) * 0x1p-52 - 1;
        else v.i = (int64_t)(w >> 63);
        if (t->dt == DT_f32) { const float x = (float)v.f; memcpy(at, &x, sizeof x); }
        else scalar_store(t->dt, at, v);
    }
}

static int input_named(const Maker *x, const char *name, size_t n)
{
    for (int i = 0; i < x->in.n; i++)
        if (strlen(x->in.value[i]->name) == n && strncmp(x->in.value[i]->name, name, n) == 0) return i;
    return -1;
}

static const char *declared(const Maker *x, const OnnxValue *v)
{
    Text t = { .arena = x->a };
    text_add(&t, "%s", v->dt ? dtype_info[v->dt].name : "any type");
    if (v->rank < 0) return t.at;
    for (int k = 0; k < v->rank; k++) {
        text_add(&t, "%s", k ? "," : "[");
        if (v->dims[k].value >= 0) text_add(&t, "%" PRId64, v->dims[k].value);
        else text_add(&t, "%s", v->dims[k].sym && v->dims[k].sym[0] ? v->dims[k].sym : "?");
    }
    text_add(&t, v->rank ? "]" : "[]");
    return t.at;
}

static const char *input_list(const Maker *x)
{
    Text t = { .arena = x->a };
    text_add(&t, "%s", x->in.n ? "" : "none");
    for (int i = 0; i < x->in.n; i++) text_add(&t, "%s'%s' %s", i ? ", " : "", x->in.value[i]->name, declared(x, x->in.value[i]));
    return t.at;
}

/* Splits "NAME=REST" at the last '=' for which NAME is an input (names may hold '='). */
static void take_source(Maker *x, const char *word)
{
    int at = -1;
    const char *rest = NULL;
    for (const char *p = strchr(word, '='); p; p = strchr(p + 1, '=')) {
        int i = input_named(x, word, (size_t)(p - word));
        if (i >= 0) at = i, rest = p + 1;
    }
    if (!strchr(word, '=')) fail(x->cx, E_INVALID, "-i is '%s', wanted NAME=FILE.npy, NAME=FILE.pb, NAME=random:SEED or NAME=zeros", word);
    if (at < 0) fail(x->cx, E_INVALID, "-i %s: the model has no such input; its inputs: %s", word, input_list(x));
    if (x->source[at].what) fail(x->cx, E_INVALID, "-i gives the input '%s' twice", x->in.value[at]->name);
    x->source[at].what = rest;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void set_size(Maker *x, const char *sym, int64_t n)
{
    void **at = mapstr_at(x->size, sym);
    if (!*at) *at = arena_copy(x->a, &n, sizeof n);
}

static void read_file(Maker *x, int i)
{
    const OnnxValue *v = x->in.value[i];
    const char *path = x->source[i].what, *name = NULL;
    Tensor *t = &x->in.t[i];
    if (ends_with(path, ".npy")) npy_read(x->cx, x->a, path, t);
    else tensorpb_read(x->cx, x->a, path, t, &name);
    bool fits = (!v->dt || v->dt == t->dt) && (v->rank < 0 || v->rank == t->rank);
    for (int k = 0; fits && k < v->rank; k++) fits = v->dims[k].value < 0 || v->dims[k].value == t->dims[k];
    if (!fits)
        fail(x->cx, E_INVALID, "input '%s': %s has %s%s, wanted %s", v->name, path, dtype_info[t->dt].name, shape_str(x->a, t->rank, t->dims), declared(x, v));
    for (int k = 0; k < v->rank; k++)
        if (v->dims[k].value < 0 && v->dims[k].sym && v->dims[k].sym[0]) set_size(x, v->dims[k].sym, t->dims[k]);
    x->source[i].done = true;
}

/* What -d says about an axis: by the symbol's name, or by INPUT:AXIS. -1: nothing. */
static int64_t flag_size(Maker *x, const OnnxValue *v, int axis)
{
    int64_t found = -1;
    for (int i = 0; i < x->c->ngiven; i++) {
        if (x->c->given[i].flag != FLAG_dim) continue;
        const char *word = x->c->given[i].value, *eq = strrchr(word, '=');
        char *end;
        errno = 0;
        long long n = eq ? strtoll(eq + 1, &end, 10) : 0;
        if (x->ranges && eq && !strncmp(end, "..", 2) && end > eq + 1 && n > 0) {
            int64_t lo = n;
            n = strtoll(end + 2, &end, 10);
            if (n < lo && !*end) fail(x->cx, E_INVALID, "-d is '%s', wanted DIM=LO..HI with LO at most HI", word);
        } else if (!x->ranges && eq && strstr(eq, "..")) fail(x->cx, E_INVALID, "-d is '%s': only compile takes a range, wanted DIM=SIZE", word);
        if (!eq || eq == word || *end || end == eq + 1 || n < 0 || errno)
            fail(x->cx, E_INVALID, "-d is '%s', wanted DIM=SIZE%s, SIZE a whole number", word, x->ranges ? " or DIM=LO..HI, LO from 1 on" : "");
        const char *key = arena_fmt(x->a, "%.*s", (int)(eq - word), word), *sym = v->dims[axis].sym;
        if ((sym && sym[0] && strcmp(key, sym) == 0) || strcmp(key, arena_fmt(x->a, "%s:%d", v->name, axis)) == 0) {
            x->dim_used[i] = true;
            found = n;
        }
    }
    return found;
}

static void make_input(Maker *x, int i)
{
    const OnnxValue *v = x->in.value[i];
    const char *what = x->source[i].what ? x->source[i].what : "random";
    int64_t dims[MAX_RANK];
    if (v->kind && v->kind != 't') fail(x->cx, E_UNSUPPORTED, "input '%s' is no tensor", v->name);
    if (!v->dt) fail(x->cx, E_UNSUPPORTED, "input '%s' has the ONNX element type %d, which has no meaning here", v->name, v->onnx_dt);
    if (v->rank < 0) fail(x->cx, E_INVALID, "input '%s' has no declared shape: give it with -i %s=FILE.npy", v->name, v->name);
    if (v->rank > MAX_RANK) fail(x->cx, E_UNSUPPORTED, "input '%s' has rank %d, wanted %d at most", v->name, v->rank, MAX_RANK);
    for (int k = 0; k < v->rank; k++) {
        dims[k] = v->dims[k].value;
        if (dims[k] >= 0) continue;
        const char *sym = v->dims[k].sym;
        bool named = sym && sym[0];
        const int64_t *known = named ? mapstr_get(x->size, sym) : NULL;
        dims[k] = flag_size(x, v, k);
        if (dims[k] < 0 && known) dims[k] = *known;
        if (dims[k] < 0) {
            dims[k] = 1;
            text_add(&x->assumed, "%s%s = 1", x->assumed.n ? ", " : "", named ? sym : arena_fmt(x->a, "%s:%d", v->name, k));
        }
        if (named) set_size(x, sym, dims[k]);
    }
    x->in.t[i] = *tensor_new(x->a, x->cx, v->dt, v->rank, dims);
    if (strcmp(what, "zeros") == 0) return;
    uint64_t seed = 0;
    char *end = NULL;
    if (strncmp(what, "random:", 7) == 0) {
        seed = strtoull(what + 7, &end, 10);
        if (*end || end == what + 7) fail(x->cx, E_INVALID, "-i %s=%s: the seed is no number", v->name, what);
    }
    fill_random(&x->in.t[i], seed ^ hash_bytes(v->name, strlen(v->name), 0));
}

static bool is_file(const char *what) { return what && strcmp(what, "zeros") && strcmp(what, "random") && strncmp(what, "random:", 7); }

Inputs cli_inputs(Cli *c, const OnnxModel *m, bool quiet, bool ranges)
{
    Maker x = { .c = c, .cx = c->cx, .ranges = ranges, .a = c->arena, .m = m, .size = mapstr_new(c->arena), .assumed = { .arena = c->arena } };
    x.in.value = model_inputs(c->arena, m, &x.in.n);
    x.in.t = NEWS(c->arena, Tensor, x.in.n + 1);
    x.source = NEWS(c->arena, Source, x.in.n + 1);
    x.dim_used = NEWS(c->arena, bool, c->ngiven + 1);
    for (int i = 0; i < c->ngiven; i++)
        if (c->given[i].flag == FLAG_input) take_source(&x, c->given[i].value);
    for (int i = 0; i < x.in.n; i++) {
        if (!is_file(x.source[i].what)) continue;
        if (!ends_with(x.source[i].what, ".npy") && !ends_with(x.source[i].what, ".pb"))
            fail(c->cx, E_INVALID, "-i %s=%s: wanted a .npy or .pb file, random:SEED or zeros", x.in.value[i]->name, x.source[i].what);
        read_file(&x, i);
        for (int k = 0; k < x.in.value[i]->rank; k++) {
            int64_t n = flag_size(&x, x.in.value[i], k);
            if (n >= 0 && n != x.in.t[i].dims[k])
                fail(c->cx, E_INVALID, "input '%s': axis %d of %s is %" PRId64 ", but -d says %" PRId64, x.in.value[i]->name, k, x.source[i].what, x.in.t[i].dims[k], n);
        }
    }
    for (int i = 0; i < x.in.n; i++)
        if (!x.source[i].done) make_input(&x, i);
    for (int i = 0; i < c->ngiven; i++)
        if (c->given[i].flag == FLAG_dim && !x.dim_used[i])
            fail(c->cx, E_INVALID, "-d %s: no input has such a dimension; inputs: %s", c->given[i].value, input_list(&x));
    if (x.assumed.n && !quiet) fprintf(stderr, "sinter: assumed sizes: %s (say others with -d)\n", x.assumed.at);
    return x.in;
}
