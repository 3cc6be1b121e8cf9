/* sinter conformance: cases in the form of ONNX's backend tests.
 *
 * A case is a folder with model.onnx and test_data_set_*: input_K.pb and the output_K.pb that are wanted. Each case runs in a process of its own with a
 * time limit, so that a crash or an endless loop is one failed case; where starting a device takes longer than a case, a process takes several in turn, and
 * another goes on behind one that crashed. A child writes each verdict to a pipe: a letter (p passed, f failed, s skipped), the reason, and a 0. Equal means what compare.c says, with rtol 1e-3 and atol 1e-7 (or --rtol, --atol; 1e-3 where Fourier transforms
 * are involved), which a case's data.json may change. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LETTERS = 4000 };

typedef struct Case {
    const char *folder;
    char verdict;                       /* p f s */
    const char *reason;
} Case;

typedef struct Suite {
    Cli *c;
    VEC(Case) at;
    bool fuse, interpret;
    int limit, batch;                   /* batch: cases of one process */
    Tolerance tol;
} Suite;

/* ---- one case, in its own process ------------------------------------------------------------------------------------------------------------ */

typedef struct OneCase {
    const Suite *suite;
    const char *folder;
    Cli *c;
    Arena *a;
    const OnnxModel *m;
    Inputs in;
    Tolerance tol;
    Program *p;
    char verdict;
    char reason[LETTERS];
} OneCase;

static bool there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* What the first aim leaves out: values that are no tensors of numbers. */
static const char *out_of_scope(OneCase *x, const OnnxValue *v, const char *what)
{
    const char *is = v->kind == 's' ? "a sequence" : v->kind == 'o' ? "an optional" : v->kind == 'p' ? "a sparse tensor" : v->kind == 'm' ? "a map" :
        v->kind == 'x' ? "an opaque type" : NULL;
    if (is) return arena_fmt(x->a, "%s '%s' is %s", what, v->name, is);
    if (v->kind == 't' && !v->dt && v->onnx_dt) {
        const char *name = onnx_dtype_name(v->onnx_dt);
        return arena_fmt(x->a, "%s '%s' is a tensor of %s", what, v->name, name ? name : "an unknown type");
    }
    return NULL;
}

static void read_tolerance(OneCase *x)
{
    static const char *const loose[] = { "DFT", "STFT" };
    x->tol = x->suite->tol;
    if (model_uses(x->m, loose, COUNT_OF(loose)) && x->tol.atol < 1e-3) x->tol.atol = 1e-3;
    const char *path = arena_fmt(x->a, "%s/data.json", x->folder);
    if (!there(path)) return;
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (!j) fail(x->c->cx, E_FORMAT, "%s: %s", path, e.text);
    const json_t *r = json_object_get(j, "rtol"), *a = json_object_get(j, "atol");
    if (json_is_number(r)) x->tol.rtol = json_number_value(r);
    if (json_is_number(a)) x->tol.atol = json_number_value(a);
    json_decref(j);
}

/* input_K.pb belongs to the input of its own name, else to the K-th. */
static void read_inputs(OneCase *x, const char *dir)
{
    Ctx *cx = x->c->cx;
    bool *given = NEWS(x->a, bool, x->in.n + 1);
    x->in.t = NEWS(x->a, Tensor, x->in.n + 1);
    for (int k = 0;; k++) {
        const char *path = arena_fmt(x->a, "%s/input_%d.pb", dir, k), *name = NULL;
        int at = k;
        Tensor t;
        if (!there(path)) break;
        tensorpb_read(cx, x->a, path, &t, &name);
        for (int i = 0; i < x->in.n; i++)
            if (name && strcmp(name, x->in.value[i]->name) == 0) at = i;
        if (at >= x->in.n) continue;    /* of an initialiser that is an input too */
        x->in.t[at] = t;
        given[at] = true;
    }
    for (int i = 0; i < x->in.n; i++)
        if (!given[i]) fail(cx, E_INVALID, "%s has no data for input '%s'", dir, x->in.value[i]->name);
}

static void run_data_set(OneCase *x, const char *dir)
{
    Ctx *cx = x->c->cx;
    const OnnxGraph *g = x->m->graph;
    read_inputs(x, dir);
    Tensor *out = NEWS(x->a, Tensor, g->nout + 1);
    size_t *bytes = NEWS(x->a, size_t, g->nout + 1);
    Tolerance tol = x->tol;
    tol.shape_only = model_is_random(x->m, x->in.t);
    if (x->suite->interpret) interp_run(cx, x->a, x->m, x->in.t, out);
    else program_run(cx, x->p, x->a, x->in.t, out, bytes);
    int compared = 0;
    for (int k = 0; k < g->nout; k++) {
        const char *path = arena_fmt(x->a, "%s/output_%d.pb", dir, k);
        Tensor want;
        if (!there(path)) continue;
        tensorpb_read(cx, x->a, path, &want, NULL);
        compared++;
        Difference d = compare_tensors(g->out[k].name, &out[k], &want, tol);
        if (d.same) continue;
        x->verdict = 'f';
        snprintf(x->reason, sizeof x->reason, "%s: output %d %s", strrchr(dir, '/') + 1, k, d.text);
        return;
    }
    if (!compared) fail(cx, E_INVALID, "%s has no outputs to compare with", dir);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static void case_guarded(Ctx *cx, void *arg)
{
    OneCase *x = arg;
    x->m = cli_load(x->c, arena_fmt(x->a, "%s/model.onnx", x->folder));
    x->in.value = model_inputs(x->a, x->m, &x->in.n);
    const char *why = NULL;
    for (int i = 0; i < x->in.n && !why; i++) why = out_of_scope(x, x->in.value[i], "input");
    for (int i = 0; i < x->m->graph->nout && !why; i++) why = out_of_scope(x, &x->m->graph->out[i], "output");
    if (why) {
        x->verdict = 's';
        snprintf(x->reason, sizeof x->reason, "%s", why);
        return;
    }
    read_tolerance(x);
    if (!x->suite->interpret) x->p = cli_program(x->c, x->m, x->suite->fuse, false);
    VEC(const char *) sets = { 0 };
    DIR *d = opendir(x->folder);
    if (!d) fail(cx, E_IO, "%s: %s", x->folder, strerror(errno));
    for (const struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "test_data_set_", 14) == 0) vec_push(x->a, &sets, path_join(x->a, x->folder, e->d_name));
    closedir(d);
    if (!sets.n) {
        x->verdict = 's';
        snprintf(x->reason, sizeof x->reason, "no test data");
        return;
    }
    qsort(sets.at, (size_t)sets.n, sizeof *sets.at, by_text);
    for (int i = 0; i < sets.n && x->verdict == 'p'; i++) run_data_set(x, sets.at[i]);
}

static bool say(int to, const void *p, size_t n)
{
    for (const char *q = p; n;) {
        ssize_t m = write(to, q, n);
        if (m < 0 && errno != EINTR) return false;
        if (m > 0) q += m, n -= (size_t)m;
    }
    return true;
}

/* The program before this one stays until there is another: its device, once started, serves on. */
_Noreturn static void child_main(const Suite *s, int first, int count, int to)
{
    static OneCase x;
    Cli *c = s->c;
    bool ok = true;
    for (int i = 0; i < count && ok; i++) {
        memset(&x, 0, sizeof x);
        x.suite = s;
        x.folder = s->at.at[first + i].folder;
        x.c = c;
        x.a = c->arena;
        x.verdict = 'p';
        Status st = guard_call(c->cx, case_guarded, &x);
        if (st != E_OK) {
            x.verdict = 'f';
            snprintf(x.reason, sizeof x.reason, "%s", c->cx->text);
        }
        ok = say(to, &x.verdict, 1) && say(to, x.reason, strlen(x.reason) + 1);
        for (; c->program.n > 1; c->program.n--) {
            program_free(c->program.at[0]);
            memmove(c->program.at, c->program.at + 1, sizeof *c->program.at * (size_t)(c->program.n - 1));
        }
    }
    for (int i = 0; i < c->program.n; i++) program_free(c->program.at[i]);
    _exit(!ok);
}

/* ---- all cases -------------------------------------------------------------------------------------------------------------------------------- */

static void find_cases(Suite *s, const char *folder, int depth)
{
    Ctx *cx = s->c->cx;
    if (there(arena_fmt(s->c->arena, "%s/model.onnx", folder))) {
        vec_push(s->c->arena, &s->at, ((Case){ .folder = folder }));
        return;
    }
    if (depth > 16) return;
    VEC(const char *) below = { 0 };
    DIR *d = opendir(folder);
    if (!d) fail(cx, E_IO, "%s: %s", folder, strerror(errno));
    for (const struct dirent *e; (e = readdir(d));) {
        struct stat st;
        const char *path = path_join(s->c->arena, folder, e->d_name);
        if (e->d_name[0] != '.' && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) vec_push(s->c->arena, &below, path);
    }
    closedir(d);
    if (below.n) qsort(below.at, (size_t)below.n, sizeof *below.at, by_text);
    for (int i = 0; i < below.n; i++) find_cases(s, below.at[i], depth + 1);
}

typedef struct Slot { pid_t pid; int fd, index, left; double start; size_t n; bool late; char text[LETTERS + 2]; } Slot;   /* left: cases from index on */

static bool cases_start(Suite *s, Slot *slot, int index, int count)
{
    int p[2];
    if (pipe(p)) return false;
    fflush(stdout);
    fflush(stderr);
    *slot = (Slot){ .fd = p[0], .index = index, .left = count, .start = time_now() };
    slot->pid = fork();
    if (slot->pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);       /* whatever ends the suite ends its cases */
        close(p[0]);
        child_main(s, index, count, p[1]);
    }
    close(p[1]);
    if (slot->pid > 0) return true;
    close(p[0]);
    slot->pid = 0;
    return false;
}

/* Takes the verdicts that are whole. */
static void take_verdicts(Suite *s, Slot *slot)
{
    const char *end;
    while (slot->left && (end = memchr(slot->text, 0, slot->n))) {
        Case *k = &s->at.at[slot->index++];
        k->verdict = slot->text[0];
        k->reason = arena_str(s->c->arena, slot->text + 1);
        slot->left--;
        slot->n -= (size_t)(end + 1 - slot->text);
        memmove(slot->text, end + 1, slot->n);
        slot->start = time_now();
    }
}

static void cases_end(Suite *s, Slot *slot)
{
    int status = 0;
    close(slot->fd);
    waitpid(slot->pid, &status, 0);
    slot->pid = 0;
    if (!slot->left) return;
    Case *k = &s->at.at[slot->index];
    k->verdict = 'f';
    if (slot->late) k->reason = arena_fmt(s->c->arena, "ran longer than %d seconds", s->limit);
    else if (WIFSIGNALED(status)) k->reason = arena_fmt(s->c->arena, "crashed: %s", strsignal(WTERMSIG(status)));
    else k->reason = arena_fmt(s->c->arena, "ended with status %d and no verdict", WEXITSTATUS(status));
    if (slot->left > 1 && !cases_start(s, slot, slot->index + 1, slot->left - 1)) fail(s->c->cx, E_NOMEM, "no process could be started: %s", strerror(errno));
}

static void stop_all(Slot *slot, int n)
{
    for (int i = 0; i < n; i++) {
        if (!slot[i].pid) continue;
        kill(slot[i].pid, SIGKILL);
        close(slot[i].fd);
        waitpid(slot[i].pid, NULL, 0);
    }
}

/* Reads what the children write, and ends those that are late. */
static void case_wait(Suite *s, Slot *slot, int jobs)
{
    struct pollfd *p = NEWS(s->c->arena, struct pollfd, jobs);
    for (int i = 0; i < jobs; i++) p[i] = (struct pollfd){ .fd = slot[i].pid ? slot[i].fd : -1, .events = POLLIN };
    poll(p, (nfds_t)jobs, 100);
    for (int i = 0; i < jobs; i++) {
        if (!slot[i].pid) continue;
        if (!slot[i].late && time_now() - slot[i].start > s->limit) {
            slot[i].late = true;
            kill(slot[i].pid, SIGKILL);
        }
        if (!(p[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
        ssize_t n = read(slot[i].fd, slot[i].text + slot[i].n, sizeof slot[i].text - 1 - slot[i].n);
        if (n > 0) {
            slot[i].n += (size_t)n;
            take_verdicts(s, &slot[i]);
        } else if (n == 0 || errno != EINTR) cases_end(s, &slot[i]);
    }
}

static void run_all(Suite *s, int jobs)
{
    Slot *slot = NEWS(s->c->arena, Slot, jobs);
    int next = 0, busy = 0, done = 0, failed = 0;
    bool show = on_terminal();
    do {
        busy = 0;
        for (int i = 0; i < jobs; i++) {
            if (!slot[i].pid && next < s->at.n) {
                int count = s->at.n - next < s->batch ? s->at.n - next : s->batch;
                if (cases_start(s, &slot[i], next, count)) next += count;
                else if (busy == 0 && i == jobs - 1) fail(s->c->cx, E_NOMEM, "no process could be started: %s", strerror(errno));
            }
            busy += slot[i].pid != 0;
        }
        if (*s->c->cancel) {
            stop_all(slot, jobs);
            ctx_poll(s->c->cx);
        }
        if (busy) case_wait(s, slot, jobs);
        if (show) {
            for (done = failed = 0; done < next && s->at.at[done].verdict; done++) failed += s->at.at[done].verdict == 'f';
            fprintf(stderr, "\r%d of %d, %d failed ", done, s->at.n, failed);
        }
    } while (busy || next < s->at.n);
    if (show) fprintf(stderr, "\r%40s\r", "");
}

int cmd_conformance(Cli *c)
{
    Suite s = { .c = c, .fuse = !flag_given(c, FLAG_no_fuse), .interpret = flag_given(c, FLAG_interpreter), .limit = flag_int(c, FLAG_limit, 60, 1) };
    s.tol = (Tolerance){ flag_real(c, FLAG_rtol, 1e-3), flag_real(c, FLAG_atol, 1e-7), false };
    int jobs = flag_int(c, FLAG_jobs, cpu_count(), 1), count[3] = { 0 };
    if (jobs > 1024) jobs = 1024;
    for (int i = 0; i < c->narg; i++) find_cases(&s, c->arg[i], 0);
    if (!s.at.n) fail(c->cx, E_INVALID, "no folder with a model.onnx in %s%s", c->arg[0], c->narg > 1 ? " and the others" : "");
    s.batch = s.c->cx->opt.target && strcmp(s.c->cx->opt.target, "cpu") ? 16 : 1;
    run_all(&s, jobs);
    json_t *list[3] = { json_array(), json_array(), json_array() };
    for (int i = 0; i < s.at.n; i++) {
        const Case *k = &s.at.at[i];
        int which = k->verdict == 'p' ? 0 : k->verdict == 'f' ? 1 : 2;
        count[which]++;
        json_array_append_new(list[which], json_pack("{s:s, s:o}", "case", text_utf8(c->arena, k->folder), "reason", json_string(text_utf8(c->arena, k->reason))));
        if (which && !flag_given(c, FLAG_json)) printf("%s %s: %s\n", which == 1 ? "failed" : "skipped", k->folder, k->reason);
    }
    json_decref(list[0]);
    json_t *j = json_pack("{s:i, s:i, s:i, s:o, s:o}", "passed", count[0], "failed", count[1], "skipped", count[2], "failures", list[1], "skips", list[2]);
    if (flag_given(c, FLAG_json)) {
        print_json(j);
    } else {
        json_decref(j);
        printf("%d passed, %d failed, %d skipped\n", count[0], count[1], count[2]);
    }
    return count[1] ? EXIT_WRONG : EXIT_FINE;
}
