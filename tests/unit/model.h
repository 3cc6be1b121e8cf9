/* Models in ONNX's text syntax, run four ways and compared with given results: the reference interpreter, the same with the loops of the ready tier, a program
 * with fusion, a program without.
 *
 * Tensors are written as "f32[2,3] 1 2 3 4 5 6; i64[] 7": dtype, shape, values. One value fills the tensor; v*n is n times v; a..b counts up or down by
 * one; nan, inf and -0 mean what they say. Programs run twice, the second time over poisoned memory, and must give the same bits and leave their
 * inputs alone. With a tolerance of 0 the results must be the very values, signs of zeros included. */
#ifndef SN_TEST_MODEL_H
#define SN_TEST_MODEL_H
#include "test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/api.h"

#define OPSET(v) "<ir_version: 10, opset_import: [\"\" : " #v "]>\n"
enum { TRIAL_PORTS = 1100 };
typedef enum TrialMode { MODE_interpreter, MODE_ready, MODE_fused, MODE_unfused, MODE_COUNT } TrialMode;
static const char *const mode_name[MODE_COUNT] = { "interpreter", "ready tier", "fused", "unfused" };

typedef struct Trial {
    Ctx cx;
    Arena *arena;
    OnnxModel *model;
    Program *program;
    const char *text, *path;
    TrialMode mode;
    int threads;
    int nin, nwant, nout;
    Tensor *in, *want, *out;
    Status status;
} Trial;

/* ---- tensors as text --------------------------------------------------------------------------------------------------------------------- */
static inline void trial_store(Tensor *t, int64_t at, const char *word)
{
    Scalar v;
    if (dtype_is_float(t->dt)) v.f = strtod(word, NULL);
    else if (t->dt == DT_u64) v.u = strtoull(word, NULL, 0);
    else v.i = strtoll(word, NULL, 0);
    scalar_store(t->dt, (uint8_t *)t->data + (size_t)at * dtype_size(t->dt), v);
}

static inline void trial_tensor(Ctx *cx, Arena *a, char *text, Tensor *out)
{
    char *bracket = strchr(text, '['), *end = bracket ? strchr(bracket, ']') : NULL;
    ASSERT(end);
    while (*text == ' ' || *text == '\n') text++;
    *bracket = *end = 0;
    DType dt = dtype_from_name(text);
    ASSERT(dt != DT_none);
    int rank = 0;
    int64_t dims[MAX_RANK] = { 0 }, n = 0;
    for (char *p = bracket + 1; *p; p += *p == ',') dims[rank++] = strtoll(p, &p, 10);
    *out = *tensor_new(a, cx, dt, rank, dims);
    int64_t count = tensor_count(out);
    for (char *save = NULL, *w = strtok_r(end + 1, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
        char *range = strstr(w, ".."), *times = strchr(w, '*'), word[32];
        if (range) {
            int64_t from = strtoll(w, NULL, 10), to = strtoll(range + 2, NULL, 10), step = from <= to ? 1 : -1;
            for (int64_t v = from;; v += step) {
                snprintf(word, sizeof word, "%lld", (long long)v);
                ASSERT(n < count);
                trial_store(out, n++, word);
                if (v == to) break;
            }
        } else
            for (int64_t k = times ? strtoll(times + 1, NULL, 10) : 1; k > 0; k--) {
                ASSERT(n < count);
                trial_store(out, n++, w);
            }
    }
    if (n == 1)
        for (; n < count; n++) memcpy((uint8_t *)out->data + (size_t)n * dtype_size(dt), out->data, dtype_size(dt));
    ASSERT(n == count);
}

static inline Tensor *trial_tensors(Ctx *cx, Arena *a, const char *text, int *n)
{
    Tensor *t = NEWS(a, Tensor, TRIAL_PORTS);
    char *copy = arena_str(a, text);
    *n = 0;
    for (char *save = NULL, *p = strtok_r(copy, ";", &save); p; p = strtok_r(NULL, ";", &save))
        if (strchr(p, '[')) trial_tensor(cx, a, p, &t[(*n)++]);
    return t;
}

/* ---- one model --------------------------------------------------------------------------------------------------------------------------- */
/* text: the model; or NULL and the path of one. */
static inline void trial_open(Trial *r, TrialMode mode, const char *text)
{
    memset(r, 0, sizeof *r);
    ctx_init(&r->cx);
#ifdef TEST_CACHE
    if (!r->cx.opt.cache) r->cx.opt.cache = TEST_CACHE;
#endif
    r->text = text;
    r->path = "<memory>";
    r->mode = mode;
    r->arena = arena_new(&r->cx);
    r->model = onnx_new(&r->cx);
}

static inline void trial_close(Trial *r)
{
    program_free(r->program);
    onnx_close(r->model);
    arena_free(r->arena);
}

static inline void trial_body(Ctx *cx, void *arg)
{
    Trial *r = arg;
    if (!r->model->graph) onnx_load(cx, r->model, r->path, r->text, r->text ? strlen(r->text) : 0);
    r->nout = r->model->graph->nout;
    r->out = NEWS(r->arena, Tensor, r->nout + 1);
    cx->opt.ready = r->mode == MODE_ready;
    if (r->mode <= MODE_ready) {
        interp_run(cx, r->arena, r->model, r->in, r->out);
        return;
    }
    if (!r->program) r->program = program_new(cx, r->model, &(ProgramOptions){ .fuse = r->mode == MODE_fused, .threads = r->threads });
    program_run(cx, r->program, r->arena, r->in, r->out, NULL);
}

static inline Status trial_run(Trial *r)
{
    r->status = guard_call(&r->cx, trial_body, r);
    return r->status;
}

static inline void trial_inputs(Trial *r, const char *text) { r->in = trial_tensors(&r->cx, r->arena, text, &r->nin); }

/* The differences of the outputs from what is wanted, printed; how many outputs differ. */
static inline int trial_differences(Trial *r, double tol)
{
    int bad = 0;
    if (r->nout != r->nwant) { print_error("%s: %d outputs, wanted %d\n", mode_name[r->mode], r->nout, r->nwant); return 1; }
    for (int k = 0; k < r->nout; k++) {
        const Tensor *t = &r->out[k], *w = &r->want[k];
        bool same = t->dt == w->dt && t->rank == w->rank;
        for (int i = 0; same && i < t->rank; i++) same = t->dims[i] == w->dims[i];
        if (!same) {
            print_error("%s: output %d is %s%s, wanted %s%s\n", mode_name[r->mode], k, dtype_info[t->dt].name, shape_str(r->arena, t->rank, t->dims),
                        dtype_info[w->dt].name, shape_str(r->arena, w->rank, w->dims));
            bad++;
            continue;
        }
        for (int64_t i = 0; i < tensor_count(t); i++) {
            Scalar x = scalar_load(t->dt, tensor_at(t, i)), y = scalar_load(t->dt, tensor_at(w, i));
            bool ok = x.i == y.i;
            if (dtype_is_float(t->dt))
                ok = isnan(y.f) ? isnan(x.f) : isinf(y.f) || tol == 0 ? x.f == y.f && !signbit(x.f) == !signbit(y.f) : fabs(x.f - y.f) <= tol * (1 + fabs(y.f));
            if (ok) continue;
            if (dtype_is_float(t->dt)) print_error("%s: output %d, element %lld: %.9g, wanted %.9g\n", mode_name[r->mode], k, (long long)i, x.f, y.f);
            else print_error("%s: output %d, element %lld: %lld, wanted %lld\n", mode_name[r->mode], k, (long long)i, (long long)x.i, (long long)y.i);
            bad++;
            break;
        }
    }
    return bad;
}

/* Runs a program again over poisoned memory; 1 when anything differs. */
static inline int trial_again(Trial *r, const Tensor *kept)
{
    Tensor *first = r->out;
    r->cx.opt.poison = 1;
    if (trial_run(r)) { print_error("%s, second run: %s\n", mode_name[r->mode], r->cx.text); return 1; }
    for (int k = 0; k < r->nout; k++)
        if (memcmp(first[k].data, r->out[k].data, tensor_bytes(&first[k]))) { print_error("%s: output %d differs in a second run\n", mode_name[r->mode], k); return 1; }
    for (int k = 0; k < r->nin; k++)
        if (memcmp(kept[k].data, r->in[k].data, tensor_bytes(&kept[k]))) { print_error("%s: input %d was written to\n", mode_name[r->mode], k); return 1; }
    return 0;
}

static inline int trial_mode(TrialMode mode, const char *text, const char *in, const char *want, double tol)
{
    Trial r;
    int n, bad;
    trial_open(&r, mode, text);
    trial_inputs(&r, in);
    const Tensor *kept = trial_tensors(&r.cx, r.arena, in, &n);
    r.want = trial_tensors(&r.cx, r.arena, want, &r.nwant);
    if (trial_run(&r)) { print_error("%s: %s\n", mode_name[mode], r.cx.text); bad = 1; }
    else bad = trial_differences(&r, tol);
    if (!bad && mode != MODE_interpreter) bad = trial_again(&r, kept);
    trial_close(&r);
    return bad;
}

/* All four ways give what is wanted. */
static inline void trial_gives_at(const char *text, const char *in, const char *want, double tol, const char *file, int line)
{
    int bad = 0;
    for (int mode = 0; mode < MODE_COUNT; mode++) bad += trial_mode(mode, text, in, want, tol);
    if (bad) _fail(file, line);
}
#define trial_gives(text, in, want, tol) trial_gives_at(text, in, want, tol, __FILE__, __LINE__)

/* All three ways end in this status, with a message that has these words. */
static inline void trial_refused_at(const char *text, const char *in, Status status, const char *words, const char *file, int line)
{
    int bad = 0;
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        Trial r;
        trial_open(&r, mode, text);
        trial_inputs(&r, in);
        if (trial_run(&r) != status || !strstr(r.cx.text, words)) {
            print_error("%s: %s \"%s\", wanted %s with \"%s\"\n", mode_name[mode], status_name(r.status), r.status ? r.cx.text : "", status_name(status), words);
            bad++;
        }
        trial_close(&r);
    }
    if (bad) _fail(file, line);
}
#define trial_refused(text, in, status, words) trial_refused_at(text, in, status, words, __FILE__, __LINE__)
#endif
