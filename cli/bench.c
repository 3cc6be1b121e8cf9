/* sinter bench: one model fused and unfused, side by side.
 *
 *   start      child processes, one after the other: the first result with nothing compiled, from the ready tier; then, with a cache folder that is empty at
 *              first, what compiling costs, and what a second start costs. --starts N measures nothing else, N times
 *   times      both programs in this process, in turns, so that what disturbs the machine disturbs both; medians after warm-up
 *   counts     launches, logical bytes, temporary memory: from the programs' evidence; measured bytes: from hardware counters where there are any
 *   errors     the fused result against the reference interpreter or, when that takes too long, against the unfused one */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_UP = 3, MIN_ROUNDS = 5, MAX_ROUNDS = 500, PROFILE_RUNS = 7 };
static const double time_budget = 3.0, interpreter_limit = 20.0;    /* seconds */

typedef struct Side {
    bool fuse;
    Program *p;
    Tensor *out; size_t *bytes;
    EvidenceSum sum;
    double *ms, median_ms;
    int64_t measured;
    char why[200];
} Side;

typedef struct Bench { Cli *c; const OnnxModel *m; Inputs in; Side side[2]; int rounds; double at_once; } Bench;   /* side: unfused, fused */

/* ---- cold and warm start, in children --------------------------------------------------------------------------------------------------- */

typedef struct Start { double ready_s, first_s; } Start;            /* loaded and compiled; with the first result */
typedef struct StartJob { Cli *c; const char *path; const Tensor *in; bool ready; Start t; } StartJob;     /* ready: nothing waits for compilers */

static void start_guarded(Ctx *cx, void *arg)
{
    StartJob *j = arg;
    double begin = time_now();
    OnnxModel *m = cli_load(j->c, j->path);
    Program *p = j->ready ? cli_ready_program(j->c, m, true) : cli_program(j->c, m, true, false);
    if (!j->ready) program_prepare(cx, p, j->in);
    j->t.ready_s = time_now() - begin;
    Tensor *out = NEWS(j->c->arena, Tensor, m->graph->nout + 1);
    program_run(cx, p, j->c->arena, j->in, out, NEWS(j->c->arena, size_t, m->graph->nout + 1));
    j->t.first_s = time_now() - begin;
}

/* Must come before this process makes threads. */
static Start start_in_child(Cli *c, const char *path, const Inputs *in, const char *cache, bool ready)
{
    int p[2], status = 0;
    if (pipe(p)) fail(c->cx, E_NOMEM, "no pipe: %s", strerror(errno));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        StartJob j = { .c = c, .path = path, .in = in->t, .ready = ready };
        close(p[0]);
        c->cx->opt.cache = cache;
        Status st = guard_call(c->cx, start_guarded, &j);
        if (st != E_OK) fprintf(stderr, "sinter: %s\n", c->cx->text);
        ssize_t n = write(p[1], &j.t, sizeof j.t);
        for (int i = 0; i < c->program.n; i++) program_free(c->program.at[i]);
        _exit(st != E_OK || n != (ssize_t)sizeof j.t);
    }
    close(p[1]);
    if (pid < 0) close(p[0]), fail(c->cx, E_NOMEM, "no process could be started: %s", strerror(errno));
    Start t = { 0 };
    ssize_t n = read(p[0], &t, sizeof t);
    while (n < 0 && errno == EINTR) n = read(p[0], &t, sizeof t);
    close(p[0]);
    waitpid(pid, &status, 0);
    ctx_poll(c->cx);
    if (n != (ssize_t)sizeof t || !WIFEXITED(status) || WEXITSTATUS(status)) fail(c->cx, E_DEVICE, "the process that measures the start failed");
    return t;
}

static void make_temporary(Cli *c)
{
    const char *tmp = env_get("TMPDIR");
    char *dir = arena_fmt(c->arena, "%s/sinter-bench-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (strlen(dir) >= sizeof c->made_dir || !mkdtemp(dir)) fail(c->cx, E_IO, "%s: %s", dir, strerror(errno));
    snprintf(c->made_dir, sizeof c->made_dir, "%s", dir);
}

/* ---- times and counts ----------------------------------------------------------------------------------------------------------------------- */

static double run_once(Bench *b, Side *s)
{
    Ctx *cx = b->c->cx;
    int n = b->m->graph->nout;
    Arena *scratch = arena_new(cx);
    Tensor *out = NEWS(scratch, Tensor, n + 1);
    for (int i = 0; i < n; i++) out[i].data = s->out[i].data;
    double start = time_now();
    program_run(cx, s->p, scratch, b->in.t, out, s->bytes);
    double ms = (time_now() - start) * 1e3;
    arena_free(scratch);
    return ms;
}

typedef struct CountJob { Bench *b; Side *s; Status st; } CountJob;

static void count_guarded(Ctx *cx, void *arg)
{
    CountJob *j = arg;
    (void)cx;
    run_once(j->b, j->s);
}

static void count_run(void *arg)
{
    CountJob *j = arg;
    j->st = guard_call(j->b->c->cx, count_guarded, j);
}

static void measure(Bench *b)
{
    Ctx *cx = b->c->cx;
    Arena *a = b->c->arena;
    int nout = b->m->graph->nout;
    for (int k = 0; k < 2; k++) {
        Side *s = &b->side[k];
        s->fuse = k == 1;
        s->p = cli_program(b->c, b->m, s->fuse, false);
        s->out = NEWS(a, Tensor, nout + 1);
        s->bytes = NEWS(a, size_t, nout + 1);
        s->ms = NEWS(a, double, MAX_ROUNDS);
        program_run(cx, s->p, a, b->in.t, s->out, s->bytes);
        for (int i = 0; i < nout; i++) s->bytes[i] = tensor_bytes(&s->out[i]);
        for (int i = 0; i < WARM_UP; i++) run_once(b, s);
    }
    for (double start = time_now(); b->rounds < MAX_ROUNDS && (b->rounds < MIN_ROUNDS || time_now() - start < time_budget); b->rounds++) {
        ctx_poll(cx);
        bool odd = b->rounds & 1;       /* each goes first in half of the rounds */
        for (int k = 0; k < 2; k++) {
            Side *s = &b->side[odd ? 1 - k : k];
            s->ms[b->rounds] = run_once(b, s);
        }
    }
    for (int k = 0; k < 2; k++) {
        Side *s = &b->side[k];
        RunStats st;
        int n;
        s->median_ms = median(b->rounds, s->ms);
        program_profile(cx, s->p, b->in.t, PROFILE_RUNS, &st);
        const SegmentEvidence *e = program_evidence(cx, s->p, a, &n);
        s->sum = evidence_sum(a, n, e);
        CountJob job = { b, s, E_OK };
        s->measured = count_bytes(count_run, &job, s->why, sizeof s->why);
        if (job.st != E_OK) fail(cx, job.st, "%s", cx->text);
    }
}

/* ---- the report ------------------------------------------------------------------------------------------------------------------------------- */

typedef struct Row { const char *name, *value[4]; } Row;            /* logical unfused, fused; measured unfused, fused */

static const char *ms_text(Cli *c, double ms) { return arena_fmt(c->arena, "%.3f ms", ms); }

static void print_report(Bench *b, Start cold, Start warm, const char *reference, const Difference *d, bool random)
{
    Cli *c = b->c;
    const Side *u = &b->side[0], *f = &b->side[1];
    int64_t bytes[2] = { u->sum.read_bytes + u->sum.write_bytes, f->sum.read_bytes + f->sum.write_bytes };
    bool counters = u->measured >= 0 && f->measured >= 0;
    Row row[] = {
        { "kernels", { arena_fmt(c->arena, "%d", u->sum.kernels), arena_fmt(c->arena, "%d", f->sum.kernels), "", "" } },
        { "memory traffic", { bytes_str(c->arena, bytes[0]), bytes_str(c->arena, bytes[1]), counters ? bytes_str(c->arena, u->measured) : "none",
                              counters ? bytes_str(c->arena, f->measured) : "none" } },
        { "temporary memory", { bytes_str(c->arena, u->sum.temp_peak), bytes_str(c->arena, f->sum.temp_peak), "", "" } },
        { "time of a run", { "", "", ms_text(c, u->median_ms), ms_text(c, f->median_ms) } },
        { "  of it in kernels", { "", "", ms_text(c, u->sum.seconds * 1e3), ms_text(c, f->sum.seconds * 1e3) } },
    };
    printf("%s, %d threads\n%s\n\n", c->arg[0], c->cx->opt.threads, program_describe(f->p));
    printf("%-20s %25s   %25s\n", "", "logical (counted)", "measured");
    printf("%-20s %12s %12s   %12s %12s\n", "", "unfused", "fused", "unfused", "fused");
    for (size_t i = 0; i < COUNT_OF(row); i++)
        printf("%-20s %12s %12s   %12s %12s\n", row[i].name, row[i].value[0], row[i].value[1], row[i].value[2], row[i].value[3]);
    if (!counters) printf("measured memory traffic: this machine has no hardware counters that can be read (%s)\n", u->measured < 0 ? u->why : f->why);
    printf("\ntimes: medians of %d runs each, in turns; fused is %.2f times as fast\n", b->rounds, u->median_ms / f->median_ms);
    printf("coverage: %d of %d operators and %.1f%% of the time in generated kernels\n", f->sum.covered_ops, f->sum.ops,
        f->sum.seconds > 0 ? 100 * f->sum.covered_seconds / f->sum.seconds : 100.0);
    printf("start: %.3f s with nothing compiled, %.3f s with kernels on disk; first result after %.1f ms and %.1f ms\n", cold.ready_s, warm.ready_s, b->at_once * 1e3,
        warm.first_s * 1e3);
    if (random) printf("errors: none to tell, the model draws random numbers\n");
    else printf("errors against the %s: at most %.3g absolute, %.3g relative%s%s\n", reference, d->max_abs, d->max_rel, d->same ? "" : "; WRONG: ", d->text);
}

static json_t *report_json(Bench *b, Start cold, Start warm, const char *reference, const Difference *d, bool random)
{
    const Side *u = &b->side[0], *f = &b->side[1];
    json_t *j = json_pack("{s:s, s:i, s:s, s:i, s:i}", "model", text_utf8(b->c->arena, b->c->arg[0]), "threads", b->c->cx->opt.threads, "device", program_describe(f->p),
        "kernels_unfused", u->sum.kernels, "kernels_fused", f->sum.kernels);
    json_object_set_new(j, "coverage_ops", json_real(f->sum.ops ? (double)f->sum.covered_ops / f->sum.ops : 1));
    json_object_set_new(j, "coverage_time", json_real(f->sum.seconds > 0 ? f->sum.covered_seconds / f->sum.seconds : 1));
    json_object_set_new(j, "logical_bytes_unfused", json_integer(u->sum.read_bytes + u->sum.write_bytes));
    json_object_set_new(j, "logical_bytes_fused", json_integer(f->sum.read_bytes + f->sum.write_bytes));
    json_object_set_new(j, "measured_bytes_unfused", u->measured >= 0 ? json_integer(u->measured) : json_null());
    json_object_set_new(j, "measured_bytes_fused", f->measured >= 0 ? json_integer(f->measured) : json_null());
    if (u->measured < 0 || f->measured < 0) json_object_set_new(j, "no_counters", json_string(u->measured < 0 ? u->why : f->why));
    json_object_set_new(j, "temp_peak_unfused", json_integer(u->sum.temp_peak));
    json_object_set_new(j, "temp_peak_fused", json_integer(f->sum.temp_peak));
    json_object_set_new(j, "ms_unfused", json_real(u->median_ms));
    json_object_set_new(j, "ms_fused", json_real(f->median_ms));
    json_object_set_new(j, "kernel_ms_unfused", json_real(u->sum.seconds * 1e3));
    json_object_set_new(j, "kernel_ms_fused", json_real(f->sum.seconds * 1e3));
    json_object_set_new(j, "rounds", json_integer(b->rounds));
    json_object_set_new(j, "variants", json_integer(program_variants(f->p)));
    json_object_set_new(j, "cold_compile_s", json_real(cold.ready_s));
    json_object_set_new(j, "warm_start_s", json_real(warm.ready_s));
    json_object_set_new(j, "first_result_cold_ms", json_real(b->at_once * 1e3));
    json_object_set_new(j, "first_result_ms", json_real(warm.first_s * 1e3));
    json_object_set_new(j, "reference", random ? json_null() : json_string(reference));
    json_object_set_new(j, "max_abs_err", random ? json_null() : json_number(d->max_abs));
    json_object_set_new(j, "max_rel_err", random ? json_null() : json_number(d->max_rel));
    json_object_set_new(j, "equal", json_boolean(d->same));
    return j;
}

/* ---- starts alone ------------------------------------------------------------------------------------------------------------------------------- */

static void start_row(Cli *c, json_t *j, const char *name, const char *what, int n, double *s)
{
    double mid = median(n, s), worst = 0;
    for (int i = 0; i < n; i++) worst = s[i] > worst ? s[i] : worst;
    if (j) json_object_set_new(j, name, json_pack("{s:f, s:f}", "median", mid * 1e3, "worst", worst * 1e3));
    else printf("%-45s %12s %12s\n", what, ms_text(c, mid * 1e3), ms_text(c, worst * 1e3));
}

/* n times: the first result with nothing compiled; a start with everything compiled, and its first result. Once: compiling. */
static void bench_starts(Cli *c, const Inputs *in, int n, bool json)
{
    double *at_once = NEWS(c->arena, double, n), *ready = NEWS(c->arena, double, n), *first = NEWS(c->arena, double, n);
    const char *none = path_join(c->arena, c->made_dir, "none");
    Start cold = start_in_child(c, c->arg[0], in, c->made_dir, false);
    for (int i = 0; i < n; i++) {
        at_once[i] = start_in_child(c, c->arg[0], in, none, true).first_s;
        Start warm = start_in_child(c, c->arg[0], in, c->made_dir, false);
        ready[i] = warm.ready_s;
        first[i] = warm.first_s;
    }
    json_t *j = json ? json_pack("{s:s, s:i, s:i, s:f}", "model", text_utf8(c->arena, c->arg[0]), "threads", c->cx->opt.threads, "starts", n, "cold_compile_ms", cold.ready_s * 1e3) : NULL;
    if (!json) printf("%-45s %12s %12s\n%-45s %12s\n", arena_fmt(c->arena, "%d starts, %d threads", n, c->cx->opt.threads), "median", "worst", "nothing compiled, waiting for compilers, once", ms_text(c, cold.ready_s * 1e3));
    start_row(c, j, "first_result_cold_ms", "first result with nothing compiled", n, at_once);
    start_row(c, j, "warm_start_ms", "ready with kernels on disk", n, ready);
    start_row(c, j, "first_result_ms", "first result with kernels on disk", n, first);
    if (json) print_json(j);
}

int cmd_bench(Cli *c)
{
    Bench b = { .c = c };
    bool json = flag_given(c, FLAG_json);
    if (!c->cx->opt.threads) c->cx->opt.threads = cpu_count();
    b.m = cli_load(c, c->arg[0]);
    b.in = cli_inputs(c, b.m, json, false);
    make_temporary(c);
    int starts = flag_int(c, FLAG_starts, 0, 1);
    if (starts) {
        bench_starts(c, &b.in, starts, json);
        return EXIT_FINE;
    }
    Start at_once = start_in_child(c, c->arg[0], &b.in, path_join(c->arena, c->made_dir, "none"), true);
    Start cold = start_in_child(c, c->arg[0], &b.in, c->made_dir, false), warm = start_in_child(c, c->arg[0], &b.in, c->made_dir, false);
    b.at_once = at_once.first_s;
    measure(&b);
    Tolerance tol = { 1e-3, 1e-4, model_is_random(b.m, b.in.t) };
    Tensor *want = NEWS(c->arena, Tensor, b.m->graph->nout + 1);
    bool full = tol.shape_only || interp_limited(c, b.m, b.in.t, want, interpreter_limit);
    Difference d = compare_outputs(b.m, b.side[1].out, full && !tol.shape_only ? want : b.side[0].out, tol);
    const char *reference = full ? "interpreter" : "unfused";
    if (json) print_json(report_json(&b, cold, warm, reference, &d, tol.shape_only));
    else print_report(&b, cold, warm, full ? "reference interpreter" : "unfused program", &d, tol.shape_only);
    return d.same ? EXIT_FINE : EXIT_WRONG;
}
