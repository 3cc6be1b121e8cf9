/* sinter tune: measures other schedules of a model's kernels, and other cuts of its graph, and records what is faster.
 *
 * Each trial is a process with two programs of the model, one as it is by itself and one with the candidate, run in turns: how the candidate fails is no matter, and
 * what disturbs the machine disturbs both. A device does not survive fork(), so these processes are started by one that has opened none (the server). First the cuts (one kernel for each operator; without each rule of
 * fusion), since what is used must not be slower than unfused; then, where the machine has a library for contractions, the kernels that it can compute, in a few
 * numbers of calls; then round after round the next candidate of each kernel, those that take longest first, as the
 * search in src/tune proposes it. All trials are recorded, and the learned model is fitted to them again and again, with more weight on those of the kernel at
 * hand; without enough of them the order is that of the analytic model. What is found is written at once, so that an interrupt loses nothing. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 11, TRIAL_SECONDS = 60, MOST_KERNELS = 256, REFIT_EACH = 4 };
static const double gain_least = 0.03, share_least = 0.01;   /* a record needs 3 % (less is noise); a kernel counts from 1 % of the time */

typedef struct Trial { bool unfused; const char *off, *kernel; Sched sched; } Trial;
typedef struct Times { double own, other; bool same; } Times; /* medians of the kernel, or of the whole run; the results agree */
typedef struct Tunable { const char *name, *bucket; const LoopKernel *loops; double seconds, best; SchedSearch *search; CostModel *model; int fitted; bool done, lib, turns; } Tunable;       /* lib: a library could compute it; turns: as a convolution and as a product */
/* example: all trials of this machine, `known` of them from earlier runs; modelled: trials that the learned model chose */
typedef struct Tuner { Cli *c; const OnnxModel *m; Inputs in; Records *records; const Target *target; double end; int to, from; int trials, found, known, modelled, lib; VEC(Example) example; Fitting *fitting; } Tuner;

/* Of the kernels with this name, and of what copies operands for them; NULL: of all. */
static double kernel_seconds(Ctx *cx, Arena *a, Program *p, const char *name)
{
    int n;
    double sum = 0;
    const SegmentEvidence *e = program_evidence(cx, p, a, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < e[i].nkernel; k++) {
            int of = k;
            while (of + 1 < e[i].nkernel && e[i].kernel[of].packs) of++;
            if (!name || !strcmp(e[i].kernel[of].structure, name)) sum += e[i].kernel[k].seconds;
        }
    return sum;
}

/* Do the kernels with this name run in a library? */
static bool runs_in_library(Ctx *cx, Arena *a, Program *p, const char *name)
{
    int n;
    const SegmentEvidence *e = program_evidence(cx, p, a, &n);
    for (int i = 0; i < n && name; i++)
        for (int k = 0; k < e[i].nkernel; k++) if (e[i].kernel[k].structure && !strcmp(e[i].kernel[k].structure, name) && e[i].kernel[k].lib) return true;
    return false;
}

static bool same_graph(Ctx *cx, Arena *a, Program *const p[2])
{
    int n[2];
    const SegmentEvidence *e[2];
    for (int k = 0; k < 2; k++) e[k] = program_evidence(cx, p[k], a, &n[k]);
    return n[0] == 1 && n[1] == 1 && !strcmp(e[0][0].graph, e[1][0].graph);
}

/* false: the other side has ended. */
static bool pipe_read(int fd, void *to, size_t size)
{
    ssize_t n;
    do n = read(fd, to, size);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)size;
}

typedef struct TrialJob { Tuner *t; const Trial *what; Times out; } TrialJob;

static void trial_guarded(Ctx *cx, void *arg)
{
    TrialJob *j = arg;
    Arena *a = j->t->c->arena;
    const Trial *w = j->what;
    ProgramOptions own = { .fuse = true, .plain = true, .threads = cx->opt.threads }, other = own;
    const char *off = cx->opt.off;
    double t[2][TURNS];
    Tensor *out[2];
    other.fuse = !w->unfused;
    other.force_kernel = w->kernel;
    other.force = w->sched;
    Program *p[2] = { program_new(cx, j->t->m, &own), NULL };
    program_prepare(cx, p[0], j->t->in.t);
    if (w->off) cx->opt.off = off && off[0] ? arena_fmt(a, "%s,%s", off, w->off) : w->off;
    p[1] = program_new(cx, j->t->m, &other);
    for (int k = 0; k < 2; k++) {
        out[k] = NEWS(a, Tensor, j->t->m->graph->nout + 1);
        program_run(cx, p[k], a, j->t->in.t, out[k], NULL);
    }
    if (!w->kernel && same_graph(cx, a, p)) return;      /* nothing to cut: not a candidate */
    if (w->sched.lib && !runs_in_library(cx, a, p[1], w->kernel)) return;
    for (int i = 0; i < TURNS; i++)
        for (int k = 0; k < 2; k++) {
            RunStats st;
            program_profile(cx, p[k ^ (i & 1)], j->t->in.t, 1, &st);
            t[k ^ (i & 1)][i] = kernel_seconds(cx, a, p[k ^ (i & 1)], w->kernel);
        }
    Difference d = compare_outputs(j->t->m, out[1], out[0], (Tolerance){ 1e-3, 1e-4, model_is_random(j->t->m, j->t->in.t) });
    j->out = (Times){ median(TURNS, t[0]), median(TURNS, t[1]), d.same };
    program_free(p[1]);
    program_free(p[0]);
}

/* In the server: a process for the trial; false: it failed or was stopped. */
static bool trial_serve(Tuner *t, const Trial *what, Times *out)
{
    int p[2];
    if (pipe(p)) return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        TrialJob j = { .t = t, .what = what };
        close(p[0]);
        signal(SIGALRM, SIG_DFL);
        alarm(TRIAL_SECONDS);
        Status st = guard_call(t->c->cx, trial_guarded, &j);
        ssize_t n = st == E_OK ? write(p[1], &j.out, sizeof j.out) : 0;
        _exit(n != (ssize_t)sizeof j.out);
    }
    close(p[1]);
    bool ok = pid > 0 && pipe_read(p[0], out, sizeof *out);
    close(p[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) { }
    return ok;
}

/* What the server gets: names in place of pointers. */
typedef struct Request { bool unfused; char off[64], kernel[64]; Sched sched; } Request;

static _Noreturn void serve(Tuner *t, int in, int out)
{
    Request r;
    while (pipe_read(in, &r, sizeof r)) {
        Trial what = { .unfused = r.unfused, .off = r.off[0] ? r.off : NULL, .kernel = r.kernel[0] ? r.kernel : NULL, .sched = r.sched };
        Times times = { 0 };
        if (!trial_serve(t, &what, &times)) times = (Times){ 0 };
        if (write(out, &times, sizeof times) != (ssize_t)sizeof times) break;
    }
    _exit(0);
}

/* Before a device is opened. It ends when the pipe to it does, with this process at the latest. */
static void server_start(Tuner *t)
{
    int to[2], from[2];
    if (pipe(to)) fail(t->c->cx, E_NOMEM, "no pipe: %s", strerror(errno));
    if (pipe(from)) fail(t->c->cx, E_NOMEM, "no pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(to[1]), close(from[0]);
        serve(t, to[0], from[1]);
    }
    close(to[0]), close(from[1]);
    if (pid < 0) fail(t->c->cx, E_NOMEM, "no process could be started: %s", strerror(errno));
    t->to = to[1], t->from = from[0];
}

/* false: it failed or was stopped. */
static bool trial_run(Tuner *t, const Trial *what, Times *out)
{
    Request r = { .unfused = what->unfused, .sched = what->sched };
    snprintf(r.off, sizeof r.off, "%s", what->off ? what->off : "");
    snprintf(r.kernel, sizeof r.kernel, "%s", what->kernel ? what->kernel : "");
    bool ok = write(t->to, &r, sizeof r) == (ssize_t)sizeof r && pipe_read(t->from, out, sizeof *out);
    ctx_poll(t->c->cx);
    if (!ok) fail(t->c->cx, E_IO, "the process that starts trials has ended");
    t->trials++;
    return out->same && out->own > 0 && out->other > 0;
}

/* Is it faster than the best so far, twice? *x: the lesser gain. */
static bool trial_wins(Tuner *t, const Trial *what, double best, Times *x)
{
    Times again;
    if (!trial_run(t, what, x) || x->other >= best * x->own) return false;
    if (!trial_run(t, what, &again) || again.other >= best * again.own) return false;
    if (again.other / again.own > x->other / x->own) *x = again;
    return true;
}

static void tell(const Tuner *t, const char *what)
{
    double left = t->end - time_now();
    if (on_terminal()) fprintf(stderr, "\r%d trials, %d found, %.0f s left: %-40.40s", t->trials, t->found, left > 0 ? left : 0.0, what);
}

static void note_found(Tuner *t, const char *kernel, const char *bucket, const char *choice, const Times *x)
{
    RecordKey key = { kernel, bucket, t->target->machine, t->target->compiler };
    records_put(t->c->cx, t->records, &key, choice, x->other, x->own);
    t->found++;
    if (!flag_given(t->c, FLAG_json)) printf("%s%s %s: %s: %.4f ms instead of %.4f\n", on_terminal() ? "\r" : "", kernel, bucket, choice, x->other * 1e3, x->own * 1e3);
}

static void tune_cuts(Tuner *t, const char *graph)
{
    static const char *const cuts[][2] = {           /* what is switched off; rules that refuse all change nothing */
#define FUSE(name, producer, consumer, allowed, text) { #name, #allowed },
#include "fuse/fusion.def"
#undef FUSE
        { "cascade", "" },
    };
    double best = 1 - gain_least;
    for (size_t i = 0; i <= COUNT_OF(cuts) && time_now() < t->end; i++) {
        if (i && strstr(cuts[i - 1][1], "never")) continue;
        Trial w = { .unfused = i == 0, .off = i ? cuts[i - 1][0] : NULL };
        const char *choice = i ? arena_fmt(t->c->arena, "off=%s", w.off) : "unfused";
        Times x;
        tell(t, choice);
        if (!trial_wins(t, &w, best, &x)) continue;
        best = x.other / x.own;
        note_found(t, graph, "", choice, &x);
    }
}

static int by_seconds(const void *x, const void *y)
{
    const Tunable *a = x, *b = y;
    return a->seconds != b->seconds ? (a->seconds > b->seconds ? -1 : 1) : strcmp(a->name, b->name);
}

/* The model for a kernel: fitted to all trials, its own counting more. NULL: there are too few. */
static const CostModel *tunable_model(Tuner *t, Tunable *k, const char *key)
{
    if (k->fitted && k->search->measured - k->fitted + 1 < REFIT_EACH) return k->model;
    if (!k->model) k->model = model_new(t->c->arena);
    if (!model_fit(k->model, t->fitting, t->example.n, t->example.at, key)) return NULL;
    k->fitted = k->search->measured + 1;
    return k->model;
}

/* One trial of a kernel; false: there is nothing left to try. */
static bool tune_kernel(Tuner *t, Tunable *k)
{
    Arena *a = t->c->arena;
    if (!k->search) k->search = search_new(t->c->cx, a, k->loops, t->target->dialect, t->target->isa, t->target->vectors);
    char *key = arena_fmt(a, "%s %s", k->name, k->bucket);
    const CostModel *m = tunable_model(t, k, key);
    int at = search_next(k->search, m);
    if (at < 0) return false;
    const Contender *c = &k->search->list.at[at];
    Trial w = { .kernel = k->name, .sched = c->sched };
    char *choice = sched_text(a, &w.sched);
    Times x = { 0 };
    tell(t, choice);
    bool wins = trial_wins(t, &w, k->best, &x);
    t->modelled += m != NULL;
    bool fine = x.same && x.own > 0 && x.other > 0;
    if (fine) {
        RecordKey record = { k->name, k->bucket, t->target->machine, t->target->compiler };
        Example e = { .kernel = key, .own = k->search->features, .it = c->features, .gain = example_gain(x.other / x.own) };
        trials_put(t->c->cx, t->records, &record, choice, x.other, x.own, &e.own, &e.it);
        vec_push(a, &t->example, e);
    }
    search_tell(k->search, at, fine ? x.other / x.own : -1);
    if (!wins) return true;
    k->best = x.other / x.own;
    note_found(t, k->name, k->bucket, choice, &x);
    return true;
}

/* The kernel in a library, in about 1, 2, 4 ... calls. */
static void tune_library(Tuner *t, Tunable *k)
{
    static const int calls[] = { 1, 2, 4, 12 };
    for (size_t i = 0; i < COUNT_OF(calls) * (k->turns ? 2 : 1) && time_now() < t->end; i++) {
        Trial w = { .kernel = k->name, .sched = { .lib = calls[i % COUNT_OF(calls)], .window = i >= COUNT_OF(calls) } };
        char *choice = tuned_choice(t->c->arena, t->target, &w.sched);
        Times x = { 0 };
        tell(t, choice);
        t->lib++;
        bool wins = trial_wins(t, &w, k->best, &x);
        if (!(x.own > 0)) return;        /* it cannot after all */
        if (!wins) continue;
        k->best = x.other / x.own;
        note_found(t, k->name, k->bucket, choice, &x);
    }
}

static void tune_kernels(Tuner *t, int n, Tunable *k)
{
    char why[256] = "SN_LIB says none";
    bool none = t->c->cx->opt.lib && !strcmp(t->c->cx->opt.lib, "none");
    Lib *l = none || !t->target->api->lib ? NULL : t->target->api->lib(t->target->device, why, sizeof why);
    if (t->target->api->lib && !flag_given(t->c, FLAG_json)) printf("library for contractions: %s\n", l ? lib_version(l) : why);
    for (int i = 0; l && i < n && time_now() < t->end; i++) if (k[i].lib) tune_library(t, &k[i]);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n && time_now() < t->end; i++) {
            if (k[i].done) continue;
            k[i].done = !tune_kernel(t, &k[i]);
            more |= !k[i].done;
        }
        if (time_now() >= t->end) break;
    }
}

/* The kernels of the model as it is by itself, with the time of each. */
static int tunables(Tuner *t, Program *p, Tunable *k)
{
    int nseg, n = 0;
    const SegmentEvidence *e = program_evidence(t->c->cx, p, t->c->arena, &nseg);
    double all = 0;
    for (int i = 0; i < nseg; i++)
        for (int j = 0; j < e[i].nkernel; j++) {
            const KernelEvidence *v = &e[i].kernel[j];
            all += v->seconds;
            if (!v->loops || v->once || v->packs) continue;
            int at = 0;
            while (at < n && strcmp(k[at].name, v->structure)) at++;
            if (at == MOST_KERNELS) continue;
            if (at == n) k[n++] = (Tunable){ .name = v->structure, .bucket = sched_bucket(t->c->arena, v->loops), .loops = v->loops, .best = 1 - gain_least };
            k[at].seconds += v->seconds;
            k[at].lib |= v->lib_fits;
            k[at].turns |= v->lib_turns;
        }
    qsort(k, (size_t)n, sizeof *k, by_seconds);
    while (n && k[n - 1].seconds < share_least * all) n--;
    return n;
}

static double budget(Cli *c)
{
    const char *text = flag_value(c, FLAG_budget);
    char *end = NULL;
    double s = text ? strtod(text, &end) : 60;
    if (text && (end == text || !(s > 0) || (strcmp(end, "") && strcmp(end, "s") && strcmp(end, "m")))) fail(c->cx, E_INVALID, "--budget is '%s', wanted seconds, as 60s, or minutes, as 5m", text);
    return text && *end == 'm' ? 60 * s : s;
}

int cmd_tune(Cli *c)
{
    Ctx *cx = c->cx;
    const char *path = tuned_path(c->arena, &cx->opt), *import = flag_value(c, FLAG_import), *export = flag_value(c, FLAG_export);
    if (!path) fail(cx, E_INVALID, "tuning records have no place: there is no folder of compiled kernels, and SN_RECORDS names no file");
    if (!c->narg && !import && !export) fail(cx, E_INVALID, "tune needs MODEL, --import or --export");
    Tuner t = { .c = c };
    double seconds = budget(c);
    int imported = -1, exported = -1;
    if (c->narg) {
        t.m = cli_load(c, c->arg[0]);
        t.in = cli_inputs(c, t.m, flag_given(c, FLAG_json), false);
        server_start(&t);
    }
    t.records = c->records = records_open(cx, path, true);
    if (import) imported = records_import(cx, t.records, import);
    if (c->narg) {
        ProgramOptions o = { .fuse = true, .plain = true, .threads = cx->opt.threads };
        Program *p = program_new(cx, t.m, &o);
        vec_push(c->arena, &c->program, p);
        Target own = *program_target_of(p);
        tuned_name(c->arena, &own);
        t.target = &own;
        RunStats st;
        program_profile(cx, p, t.in.t, 5, &st);
        if (!(kernel_seconds(cx, c->arena, p, NULL) > 0)) fail(cx, E_UNSUPPORTED, "nothing can be measured: no kernel of this model runs on the device '%s'", own.name);
        Tunable *k = NEWS(c->arena, Tunable, MOST_KERNELS);
        int n = tunables(&t, p, k), nseg;
        const SegmentEvidence *e = program_evidence(cx, p, c->arena, &nseg);
        Example *known;
        t.known = trials_get(cx, t.records, c->arena, own.machine, own.compiler, &known);
        for (int i = 0; i < t.known; i++) vec_push(c->arena, &t.example, known[i]);
        t.fitting = fitting_new(c->arena);
        t.end = time_now() + seconds;
        if (nseg == 1) tune_cuts(&t, e[0].graph);
        tune_kernels(&t, n, k);
        if (on_terminal()) fprintf(stderr, "\r%79s\r", "");
    }
    if (export) exported = records_export(cx, t.records, export);
    if (flag_given(c, FLAG_json)) {
        print_json(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "records", text_utf8(c->arena, path), "trials", t.trials, "library_trials", t.lib, "found", t.found, "modelled", t.modelled, "known", t.known, "imported", imported, "exported", exported));
        return EXIT_FINE;
    }
    if (c->narg) printf("%d trials, %d found faster; records in %s\n", t.trials, t.found, path);
    if (c->narg && t.modelled) printf("the learned model chose %d schedules; it stood on %d measured ones, %d of them from earlier runs\n", t.modelled, t.example.n, t.known);
    else if (c->narg) printf("the learned model was not used: %d measured schedules, %d are wanted\n", t.example.n, MODEL_LEAST);
    if (imported >= 0) printf("%d records read from %s\n", imported, import);
    if (exported >= 0) printf("%d records written to %s\n", exported, export);
    return EXIT_FINE;
}
