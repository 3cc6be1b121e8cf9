/* Runs folders of ONNX backend cases through the importer and the reference interpreter.
 *
 *     interp_cases [-t seconds] [-s] FOLDER...       a FOLDER has model.onnx and test_data_set_*, or holds such folders
 *
 * Each case runs in a process of its own with a time limit, so that a crash or an endless loop is one failed case. Prints one line for each case that
 * does not pass ("unsup": refused as unsupported; -s: shapes and dtypes only), then the counts. Equal means: same dtype and shape, and
 * |a - b| <= atol + rtol * |b| with rtol 1e-3, atol 1e-7 (1e-3 for DFT and STFT), NaN equal to NaN. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/api.h"

static int case_limit = 20;
static bool shapes_only;
static int counts[5];
enum { PASS, FAIL, UNSUP, CRASH, LATE };
static const char *const outcome_name[] = { "pass", "FAIL", "unsup", "CRASH", "LATE" };

typedef struct Job {
    const char *folder;
    Arena *arena;
    OnnxModel *model;
    char text[1500];
    bool differs;
} Job;

static bool equal_within(double a, double b, double atol)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= atol + 1e-3 * fabs(b);
}

/* Ones whose results are random by definition. */
static bool is_random(const char *folder)
{
    static const char *const words[] = { "training_dropout", "bernoulli", "RandomUniform", "RandomNormal", "randomuniform", "randomnormal", "multinomial" };
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strstr(folder, words[i])) return true;
    return false;
}

static void compare(Ctx *cx, Job *j, int k, const Tensor *got, const Tensor *want)
{
    (void)cx;
    if (j->differs) return;
    bool same = got->dt == want->dt && got->rank == want->rank;
    for (int i = 0; same && i < got->rank; i++) same = got->dims[i] == want->dims[i];
    if (!same) {
        j->differs = true;
        snprintf(j->text, sizeof j->text, "output %d is %s%s, wanted %s%s", k, dtype_info[got->dt].name, shape_str(j->arena, got->rank, got->dims),
            dtype_info[want->dt].name, shape_str(j->arena, want->rank, want->dims));
        return;
    }
    if (shapes_only || is_random(j->folder)) return;
    double atol = strstr(j->folder, "dft") || strstr(j->folder, "stft") ? 1e-3 : strstr(j->folder, "/light") ? 1e-4 : 1e-7;
    int64_t n = tensor_count(got), wrong = 0, first = -1;
    for (int64_t i = 0; i < n; i++) {
        Scalar a = scalar_load(got->dt, tensor_at(got, i)), b = scalar_load(want->dt, tensor_at(want, i));
        bool ok = dtype_is_float(got->dt) ? equal_within(a.f, b.f, atol) : a.i == b.i;
        if (!ok && !wrong++) first = i;
    }
    if (!wrong) return;
    j->differs = true;
    Scalar a = scalar_load(got->dt, tensor_at(got, first)), b = scalar_load(want->dt, tensor_at(want, first));
    bool f = dtype_is_float(got->dt);
    snprintf(j->text, sizeof j->text, "output %d (%s%s): %lld of %lld differ, first at %lld: %.9g, wanted %.9g", k, dtype_info[got->dt].name,
        shape_str(j->arena, got->rank, got->dims), (long long)wrong, (long long)n, (long long)first, f ? a.f : (double)a.i, f ? b.f : (double)b.i);
}

static bool file_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static void run_case(Ctx *cx, void *arg)
{
    Job *j = arg;
    const OnnxModel *m = j->model;
    onnx_load(cx, j->model, path_join(j->arena, j->folder, "model.onnx"), NULL, 0);
    int nin = 0, index[1024];
    for (int i = 0; i < m->graph->nin && nin < 1024; i++) {
        bool init = false;
        for (int k = 0; k < m->graph->ninit && !init; k++) init = strcmp(m->graph->init[k].name, m->graph->in[i].name) == 0;
        if (!init) index[nin++] = i;
    }
    for (int set = 0;; set++) {
        const char *dir = arena_fmt(j->arena, "%s/test_data_set_%d", j->folder, set);
        if (!file_there(dir)) {
            if (set == 0) fail(cx, E_INVALID, "no test data");
            return;
        }
        Tensor *in = NEWS(j->arena, Tensor, nin + 1), *out = NEWS(j->arena, Tensor, m->graph->nout + 1);
        bool given[1024] = { false };
        for (int k = 0;; k++) {
            const char *path = arena_fmt(j->arena, "%s/input_%d.pb", dir, k), *name;
            if (!file_there(path)) break;
            Tensor t;
            tensorpb_read(cx, j->arena, path, &t, &name);
            int at = k;
            for (int i = 0; i < nin; i++)
                if (name && strcmp(name, m->graph->in[index[i]].name) == 0) at = i;
            if (at >= nin) continue;
            in[at] = t;
            given[at] = true;
        }
        for (int i = 0; i < nin; i++)
            if (!given[i]) fail(cx, E_INVALID, "no test data for input '%s'", m->graph->in[index[i]].name);
        interp_run(cx, j->arena, m, in, out);
        for (int k = 0; k < m->graph->nout; k++) {
            const char *path = arena_fmt(j->arena, "%s/output_%d.pb", dir, k);
            if (!file_there(path)) continue;
            Tensor want;
            tensorpb_read(cx, j->arena, path, &want, NULL);
            compare(cx, j, k, &out[k], &want);
        }
    }
}

static int child(const char *folder, int pipe_to)
{
    Ctx cx;
    ctx_init(&cx);
    Job j = { .folder = folder };
    j.arena = arena_new(&cx);
    j.model = onnx_new(&cx);
    Status st = guard_call(&cx, run_case, &j);
    int result = st == E_UNSUPPORTED ? UNSUP : st != E_OK ? FAIL : j.differs ? FAIL : PASS;
    const char *text = st != E_OK ? cx.text : j.text;
    if (write(pipe_to, text, strlen(text)) < 0) result = CRASH;
    onnx_close(j.model);
    arena_free(j.arena);
    return result;
}

static void one_case(const char *folder)
{
    int p[2], status = 0;
    char text[4096] = "";
    size_t n = 0;
    if (pipe(p)) exit(2);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(p[0]);
        alarm((unsigned)case_limit);
        _exit(child(folder, p[1]));
    }
    close(p[1]);
    for (ssize_t k; n + 1 < sizeof text && (k = read(p[0], text + n, sizeof text - 1 - n)) > 0;) n += (size_t)k;
    text[n] = 0;
    close(p[0]);
    waitpid(pid, &status, 0);
    int result = WIFEXITED(status) && WEXITSTATUS(status) <= UNSUP ? WEXITSTATUS(status) : WIFSIGNALED(status) && WTERMSIG(status) == 14 ? LATE : CRASH;
    counts[result]++;
    const char *name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    if (result != PASS) printf("%s %s: %s\n", outcome_name[result], name, text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void visit(const char *folder)
{
    char path[4096], *names[8192];
    int n = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (file_there(path)) {
        one_case(folder);
        return;
    }
    DIR *d = opendir(folder);
    if (!d) {
        printf("skipped: no folder %s\n", folder);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) && n < 8192;)
        if (e->d_name[0] != '.') names[n++] = strdup(e->d_name);
    closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/model.onnx", folder, names[i]);
        if (file_there(path)) {
            snprintf(path, sizeof path, "%s/%s", folder, names[i]);
            one_case(path);
        }
        free(names[i]);
    }
}

int main(int argc, char **argv)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-t") == 0 && i + 1 < argc) case_limit = atoi(argv[++i]);
        else if (strcmp(argv[i], "-s") == 0) shapes_only = true;
        else {
            fprintf(stderr, "usage: interp_cases [-t seconds] [-s] FOLDER...\n");
            return 2;
        }
    }
    for (; i < argc; i++) visit(argv[i]);
    printf("%d pass, %d fail, %d unsupported, %d crash, %d over time\n", counts[PASS], counts[FAIL], counts[UNSUP], counts[CRASH], counts[LATE]);
    return counts[FAIL] + counts[CRASH] + counts[LATE] > 0;
}
