/* A program: a model compiled for the sizes and values it meets.
 *
 * Steps form a tree. A run walks down from the root; at each level it takes the step whose guards hold for the tensors at hand. Where none holds, the
 * model is traced again from the start for the actual arguments; steps on the way that serve are used again, so only the new part is compiled, and
 * kernels that are equal but for sizes are found in memory by their text. */
#include "api/api.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Step Step;
struct Step {
    Segment *seg;
    Arena *memory;                      /* of the trace that made it: the graph, the call */
    const Call *call; const int *call_in;
    Program *body;                      /* of Loop and Scan */
    const char *why;                    /* it ends here */
    double import_s;
    double *seconds;                    /* by kernel, median of profiled runs */
    Step *before, *child, *next;        /* NULL: the first; first of those that may follow; next sibling */
};

struct Program {
    Arena *arena;
    const OnnxModel *model; const OnnxGraph *graph;
    int ncapture; const char *const *capture;
    ProgramOptions opt;
    Target target; Target *shared;      /* shared: the root program's, used by bodies */
    pthread_mutex_t lock;               /* held while the tree grows or is searched */
    Step *root;                         /* alternatives for the first step */
    int nstep;
    VEC(Arena *) traces;
    Step *_Atomic last;                 /* where the last run ended: read while others run */
};

/* ---- making -------------------------------------------------------------------------------------------------------------------------------- */
typedef struct ProgramMaking { Arena *a; Program *p; } ProgramMaking;

static void program_alloc(Ctx *cx, void *arg)
{
    ProgramMaking *mk = arg;
    (void)cx;
    mk->p = NEW(mk->a, Program);
}

static Program *program_make(Ctx *cx, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const ProgramOptions *o)
{
    ProgramMaking mk = { arena_new(cx), NULL };
    if (guard_call(cx, program_alloc, &mk) != E_OK) { arena_free(mk.a); fail_again(cx); }
    Program *p = mk.p;
    p->arena = mk.a; p->model = m; p->graph = g; p->ncapture = ncapture; p->capture = capture; p->opt = *o;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void program_target(Ctx *cx, void *arg)
{
    Program *p = arg;
    Options opt = cx->opt;
    if (p->opt.threads) opt.threads = p->opt.threads;
    target_open(cx, p->arena, &opt, &p->target);
    p->shared = &p->target;
    if (!p->opt.plain) tuned_open(cx, p->arena, &p->target, &opt);
    p->opt.background = p->opt.ready ? background_new(p->arena) : NULL;
}

Program *program_new(Ctx *cx, const OnnxModel *m, const ProgramOptions *o)
{
    Program *p = program_make(cx, m, m->graph, 0, NULL, o);
    if (guard_call(cx, program_target, p) != E_OK) { program_free(p); fail_again(cx); }
    return p;
}

static void steps_free(Step *s)
{
    for (; s; s = s->next) {
        steps_free(s->child);
        program_free(s->body);
        segment_free(s->seg);
    }
}

void program_free(Program *p)
{
    if (!p) return;
    if (p->target.api) background_free(p->opt.background);   /* the root's; bodies share it */
    steps_free(p->root);
    for (int i = 0; i < p->traces.n; i++) arena_free(p->traces.at[i]);
    target_close(&p->target);
    pthread_mutex_destroy(&p->lock);
    arena_free(p->arena);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------------------- */
typedef struct Walk {
    Program *p; Arena *a;               /* a: of this run */
    const Tensor *in;                   /* the next step's inputs */
    Step **at;                          /* the alternatives for it */
    Tensor *out; const size_t *out_bytes;            /* of the last step */
    const Tensor *args;
    Arena *trace; double traced_at;
    bool profile, prepare_only;
    VEC(Step *) path;
} Walk;

static void body_of_program(void *self, Ctx *cx, Arena *a, const BodyCall *c, const Tensor *args, Tensor *out)
{
    (void)c;
    memset(out, 0, sizeof *out * (size_t)c->body->nout);
    program_run(cx, self, a, args, out, NULL);
}

static Step *step_find(Ctx *cx, Walk *w, int64_t **syms)
{
    const char *why = "";
    for (Step *s = *w->at; s; s = s->next) {
        *syms = NEWS(w->a, int64_t, segment_symbols(s->seg) + 1);
        if (segment_serves(cx, w->a, s->seg, w->in, *syms, &why)) return s;
    }
    return NULL;
}

typedef struct StepMaking { Walk *w; Graph *g; Step *s; } StepMaking;

static void step_make(Ctx *cx, void *arg)
{
    StepMaking *mk = arg;
    Walk *w = mk->w;
    Step *s = mk->s;
    s->seg = segment_new(cx, w->p->shared, mk->g, &w->p->opt);
    s->seconds = NEWS(w->p->arena, double, segment_kernels(s->seg) + 1);
    if (s->call && (s->call->def == &loop_call || s->call->def == &scan_call)) {
        const BodyCall *c = s->call->attr;
        s->body = program_make(cx, c->model, c->body, c->ncapture, c->capture, &w->p->opt);
        s->body->shared = w->p->shared;
    }
}

static Step *step_hang(Ctx *cx, Walk *w, Graph *g, const Call *call, const int *call_in, const char *why)
{
    arena_bind(w->p->arena, cx);
    Step *s = NEW(w->p->arena, Step);
    s->before = w->path.n ? w->path.at[w->path.n - 1] : NULL;
    s->memory = w->trace; s->call = call; s->call_in = call_in; s->why = why;
    s->import_s = time_now() - w->traced_at;
    if (guard_call(cx, step_make, &(StepMaking){ w, g, s }) != E_OK) { segment_free(s->seg); fail_again(cx); }
    Step **at = w->at;
    while (*at) at = &(*at)->next;
    *at = s;
    w->p->nstep++;
    return s;
}

/* Runs a step on w->in; out gets the segment's outputs and the call's results. */
static void step_run(Ctx *cx, Walk *w, Step *s, const int64_t *syms, Tensor *out, const size_t *out_bytes)
{
    vec_push(w->a, &w->path, s);
    segment_run(cx, w->a, s->seg, w->in, syms, out, out_bytes, w->profile ? s->seconds : NULL);
    if (!s->call) return;
    int n = segment_outputs(s->seg);
    Tensor *in = NEWS(w->a, Tensor, s->call->nin + 1), *result = out + n;
    for (int i = 0; i < s->call->nin; i++) in[i] = out[s->call_in[i]];
    for (int i = 0; i < s->call->nout; i++) { result[i] = (Tensor){ .dt = s->call->out_dt[i] }; }
    if (s->body) control_run(cx, w->a, s->call, in, result, body_of_program, s->body);
    else s->call->def->eval(cx, w->a, s->call, in, result);
}

static void trace_cut(void *self, Ctx *cx, const Cut *cut, Tensor *out)
{
    Walk *w = self;
    int64_t *syms;
    Step *s = step_find(cx, w, &syms);
    if (!s) {
        int *in = cut->call ? NEWS(w->trace, int, cut->call->nin + 1) : NULL;
        for (int i = 0; in && i < cut->call->nin; i++) in[i] = cut->call_in[i];
        step_hang(cx, w, cut->g, cut->call, in, cut->why);
        s = step_find(cx, w, &syms);
        if (!s) fail(cx, E_INVALID, "the sizes that the trace was made for are not served by it");
    }
    memset(out, 0, sizeof *out * (size_t)(cut->g->output.n + (cut->call ? cut->call->nout : 0)));
    step_run(cx, w, s, syms, out, NULL);
    w->in = out;
    w->at = &s->child;
    w->traced_at = time_now();
}

/* Traces the model for w->args, runs all steps but the last, returns that with its inputs in w->in. */
static Step *trace(Ctx *cx, Walk *w, int64_t **syms)
{
    Program *p = w->p;
    TraceHost host = { w, trace_cut, &loop_call, &scan_call };
    w->in = w->args; w->at = &p->root; w->path.n = 0;
    arena_bind(p->arena, cx);
    vec_push(p->arena, &p->traces, NULL);           /* the place first, so that nothing is lost without memory for it */
    w->trace = p->traces.at[p->traces.n - 1] = arena_new(cx);
    w->traced_at = time_now();
    Graph *last = onnx_import(cx, w->trace, p->model, p->graph, p->ncapture, p->capture, w->args, &host);
    Step *s = step_find(cx, w, syms);
    if (!s) {
        const char *why = "";
        s = step_hang(cx, w, last, NULL, NULL, NULL);
        if (!segment_serves(cx, w->a, s->seg, w->in, *syms = NEWS(w->a, int64_t, segment_symbols(s->seg) + 1), &why))
            fail(cx, E_INVALID, "the sizes that the trace was made for are not served by it: %s", why);
    }
    return s;
}

/* Runs all steps but the last; finds or makes that one. Under the lock. */
static void find_last(Ctx *cx, Walk *w, Step **last, int64_t **syms)
{
    w->in = w->args; w->at = &w->p->root;
    for (;;) {
        Step *s = step_find(cx, w, syms);
        if (!s) { *last = trace(cx, w, syms); return; }
        if (!s->why) { *last = s; return; }
        int n = segment_outputs(s->seg) + (s->call ? s->call->nout : 0);
        Tensor *out = NEWS(w->a, Tensor, n + 1);
        step_run(cx, w, s, *syms, out, NULL);
        w->in = out;
        w->at = &s->child;
    }
}

typedef struct Finding { Walk *w; Step *last; int64_t *syms; } Finding;
static void find_guarded(Ctx *cx, void *arg)
{
    Finding *f = arg;
    find_last(cx, f->w, &f->last, &f->syms);
}

/* The arguments, those with gaps copied without. */
static Tensor *dense_arguments(Ctx *cx, Arena *a, const Tensor *in, int n)
{
    Tensor *t = NEWS(a, Tensor, n + 1);
    for (int i = 0; i < n; i++) {
        t[i] = in[i];
        if (!t[i].data || tensor_dense(&t[i])) continue;
        Tensor *d = tensor_new(a, cx, t[i].dt, t[i].rank, t[i].dims);
        int64_t count = tensor_count(d);
        size_t size = dtype_size(d->dt);
        for (int64_t e = 0; e < count; e++) memcpy((uint8_t *)d->data + (size_t)e * size, tensor_at(&t[i], e), size);
        t[i] = *d;
    }
    return t;
}

/* Arguments of the graph: inputs that are no initialisers, then captures. */
static int argument_count(const Program *p)
{
    MapStr *init = NULL;
    int n = p->ncapture;
    Ctx cx;
    if (p->graph->ninit == 0) return n + p->graph->nin;
    ctx_init(&cx);
    Arena *a = arena_new(&cx);
    init = mapstr_new(a);
    for (int i = 0; i < p->graph->ninit; i++) *mapstr_at(init, p->graph->init[i].name) = (void *)1;
    for (int i = 0; i < p->graph->nin; i++) n += !mapstr_get(init, p->graph->in[i].name);
    arena_free(a);
    return n;
}

static void steps_settle(Ctx *cx, Step *s)
{
    for (; s; s = s->next) {
        segment_settle(cx, s->seg);
        if (s->body) steps_settle(cx, s->body->root);
        steps_settle(cx, s->child);
    }
}

static void settle_guarded(Ctx *cx, void *arg)
{
    const Program *p = arg;
    steps_settle(cx, p->root);
}

/* All kernels that are being compiled: waits for them. */
static void program_settle(Ctx *cx, Program *p)
{
    if (!p->opt.background) return;
    background_wait(cx, p->opt.background);
    pthread_mutex_lock(&p->lock);
    Status st = guard_call(cx, settle_guarded, p);
    pthread_mutex_unlock(&p->lock);
    if (st != E_OK) fail_again(cx);
}

static void walk(Ctx *cx, Program *p, Arena *a, const Tensor *in, Tensor *out, const size_t *out_bytes, bool profile, bool prepare_only)
{
    int n = argument_count(p);
    Walk w = { .p = p, .a = a, .profile = profile };
    w.args = dense_arguments(cx, a, in, n);
    Finding f = { &w, NULL, NULL };
    pthread_mutex_lock(&p->lock);
    Status st = guard_call(cx, find_guarded, &f);
    if (st == E_OK) p->last = f.last;
    pthread_mutex_unlock(&p->lock);
    if (st != E_OK) fail_again(cx);
    if (prepare_only) {
        program_settle(cx, p);
        segment_prepare(cx, f.last->seg, f.syms);
    } else segment_run(cx, a, f.last->seg, w.in, f.syms, out, out_bytes, profile ? f.last->seconds : NULL);
}

bool program_compiling(Program *p) { return background_busy(p->opt.background); }

typedef struct Preparing { Program *p; Arena *arena; const Tensor *in; } Preparing;

static void prepare_guarded(Ctx *cx, void *arg)
{
    Preparing *w = arg;
    walk(cx, w->p, w->arena, w->in, NULL, NULL, false, true);
}

void program_prepare(Ctx *cx, Program *p, const Tensor *in)
{
    Preparing w = { p, arena_new(cx), in };
    Status made = guard_call(cx, prepare_guarded, &w);
    arena_free(w.arena);
    if (made != E_OK) fail_again(cx);
}

void program_run(Ctx *cx, Program *p, Arena *a, const Tensor *in, Tensor *out, const size_t *out_bytes)
{
    walk(cx, p, a, in, out, out_bytes, false, false);
}

/* The steps of the last run, in order. */
static Step **path_of(Program *p, Arena *a, int *n)
{
    Step *last = p->last;
    *n = 0;
    for (Step *s = last; s; s = s->before) ++*n;
    Step **path = NEWS(a, Step *, *n + 1);
    for (int i = *n; last; last = last->before) path[--i] = last;
    return path;
}

/* ---- evidence ------------------------------------------------------------------------------------------------------------------------------------ */
static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

/* On a device with memory of its own arguments and results lie there while it is profiled: copies between runs would let it fall asleep. own: by argument, it
 * was put there for this; turn: memory of the run that is under way. */
typedef struct Resident { Program *p; Arena *arena; Tensor *in, *out; bool *own; int nin, nout; Arena *turn; } Resident;

static void resident_add(Ctx *cx, const Resident *r, Tensor *t)
{
    const Target *target = r->p->shared;
    RtError e = { .launch = -1 };
    size_t n = tensor_bytes(t);
    void *at = NULL;
    if (n && target->api->alloc(target->device, n, &at, &e)) fail(cx, e.code, "%s", e.text);
    t->far = at;
}

static void resident_free(Resident *r)
{
    arena_free(r->turn);
    for (int i = 0; i < r->nin; i++) if (r->own[i] && r->in[i].far) r->p->shared->api->release(r->p->shared->device, r->in[i].far);
    for (int i = 0; i < r->nout; i++) if (r->out[i].far) r->p->shared->api->release(r->p->shared->device, r->out[i].far);
}

static void resident_make(Ctx *cx, Resident *r)
{
    const Target *target = r->p->shared;
    RtError e = { .launch = -1 };
    size_t *bytes = NEWS(r->arena, size_t, r->nout + 1);
    r->turn = arena_new(cx);
    if (r->p->opt.background) program_prepare(cx, r->p, r->in);
    walk(cx, r->p, r->turn, r->in, r->out, NULL, false, false);          /* for the sizes of its results */
    for (int i = 0; i < r->nout; i++) { r->out[i].data = NULL; bytes[i] = tensor_bytes(&r->out[i]); }
    arena_free(r->turn);
    r->turn = NULL;
    for (int i = 0; i < r->nin; i++) {
        if (!tensor_bytes(&r->in[i]) || r->in[i].far) continue;
        r->own[i] = true;
        resident_add(cx, r, &r->in[i]);
        if (target->api->write(target->device, r->in[i].far, r->in[i].data, tensor_bytes(&r->in[i]), &e)) fail(cx, e.code, "%s", e.text);
    }
    for (int i = 0; i < r->nout; i++) resident_add(cx, r, &r->out[i]);
}

/* On the host results have their memory before anything is measured: pages that are touched for the first time would count. */
static size_t *results_make(Ctx *cx, Resident *r)
{
    size_t *bytes = NEWS(r->arena, size_t, r->nout + 1);
    walk(cx, r->p, r->arena, r->in, r->out, NULL, false, false);
    for (int i = 0; i < r->nout; i++) bytes[i] = tensor_bytes(&r->out[i]);
    return bytes;
}

typedef struct Profile { Resident res; int runs; RunStats *st; } Profile;

static void profile_guarded(Ctx *cx, void *arg)
{
    Profile *f = arg;
    Program *p = f->res.p;
    Arena *a = f->res.arena;
    int nout = p->graph->nout, total = 0, runs = f->runs, steps = 0;
    Step **path = NULL;
    size_t *bytes = NULL;
    if (!p->shared->api->host_memory) resident_make(cx, &f->res);
    else {
        if (p->opt.background) program_prepare(cx, p, f->res.in);
        bytes = results_make(cx, &f->res);
    }
    VEC(double *) sample = { 0 };
    double *device = NEWS(a, double, runs + 1);
    for (int r = 0; r < runs; r++) {
        Arena *own = f->res.turn = arena_new(cx);
        Tensor *out = NEWS(own, Tensor, nout + 1);
        for (int i = 0; i < nout; i++) { out[i].far = f->res.out[i].far; out[i].data = f->res.out[i].data; }
        walk(cx, p, own, f->res.in, out, bytes, true, false);
        total = 0;
        path = path_of(p, a, &steps);
        for (int i = 0; i < steps; i++) total += segment_kernels(path[i]->seg);
        double *s = NEWS(a, double, total + 1);
        int k = 0;
        for (int i = 0; i < steps; i++)
            for (int j = 0; j < segment_kernels(path[i]->seg); j++) device[r] += s[k++] = path[i]->seconds[j];
        vec_push(a, &sample, s);
        arena_free(own);
        f->res.turn = NULL;
    }
    int k = 0;
    double *one = NEWS(a, double, runs + 1);
    f->st->launches = 0;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < segment_kernels(path[i]->seg); j++, k++) {
            for (int r = 0; r < runs; r++) one[r] = sample.at[r][k];
            qsort(one, (size_t)runs, sizeof *one, by_value);
            path[i]->seconds[j] = one[runs / 2];
        }
    qsort(device, (size_t)runs, sizeof *device, by_value);
    f->st->device_s = device[runs / 2];
    int n;
    const SegmentEvidence *e = program_evidence(cx, p, a, &n);
    for (int i = 0; i < n; i++) f->st->launches += e[i].launches;
}

void program_profile(Ctx *cx, Program *p, const Tensor *in, int runs, RunStats *st)
{
    Arena *a = arena_new(cx);
    int nin = argument_count(p), nout = p->graph->nout;
    Profile f = { { p, a, dense_arguments(cx, a, in, nin), NEWS(a, Tensor, nout + 1), NEWS(a, bool, nin + 1), nin, nout, NULL }, runs, st };
    Status made = guard_call(cx, profile_guarded, &f);
    resident_free(&f.res);
    arena_free(a);
    if (made != E_OK) fail_again(cx);
}

int program_variants(Program *p) { return p->nstep; }

const SegmentEvidence *program_evidence(Ctx *cx, Program *p, Arena *a, int *n)
{
    Step **path = path_of(p, a, n);
    SegmentEvidence *e = NEWS(a, SegmentEvidence, *n + 1);
    for (int i = 0; i < *n; i++) {
        segment_evidence(cx, a, path[i]->seg, path[i]->seconds, &e[i]);
        e[i].why = path[i]->why;
        e[i].import_s = path[i]->import_s;
    }
    return e;
}

const Target *program_target_of(const Program *p) { return p->shared; }
const char *program_describe(Program *p) { return p->shared->api->describe(p->shared->device); }
const char *program_compile_line(Program *p) { return p->shared->api->command(p->shared->device); }
