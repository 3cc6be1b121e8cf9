/* sinter run: one model, one set of inputs, its outputs.
 *
 * It does not wait for compilers unless --wait (or --check, or SN_WAIT) says so: on a cold cache the answer comes from the ready tier, and a process that
 * stays behind compiles the kernels for the next start. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* DIR/NAME.npy for each output, then each input. Characters that folders do not take become '_'; names that then are equal get a number. */
static const char **tensor_paths(Cli *c, const OnnxModel *m, const Inputs *in, const char *dir)
{
    int nout = m->graph->nout, n = nout + in->n;
    const char **path = NEWS(c->arena, const char *, n + 1);
    for (int i = 0; i < n; i++) {
        char *name = arena_str(c->arena, i < nout ? m->graph->out[i].name : in->value[i - nout]->name);
        for (char *p = name; *p; p++)
            if (!isalnum((unsigned char)*p) && !strchr("._-+", *p)) *p = '_';
        if (name[0] == '.') name[0] = '_';
        path[i] = path_join(c->arena, dir, arena_fmt(c->arena, "%.200s.npy", name));
        for (int k = 0; k < i; k++)
            if (strcmp(path[i], path[k]) == 0) path[i] = path_join(c->arena, dir, arena_fmt(c->arena, "%.200s_%d.npy", name, i)), k = -1;
    }
    return path;
}

static void write_files(Cli *c, const OnnxModel *m, const Tensor *out, const Inputs *in, const char *dir, json_t *files)
{
    int nout = m->graph->nout, n = nout + (flag_given(c, FLAG_inputs) ? in->n : 0);
    const char **path = tensor_paths(c, m, in, dir);
    if (mkdir(dir, 0777) && errno != EEXIST) fail(c->cx, E_IO, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        const Tensor *t = i < nout ? &out[i] : &in->t[i - nout];
        ctx_poll(c->cx);
        npy_write(c->cx, path[i], t);
        if (files) json_array_append_new(files, json_string(text_utf8(c->arena, path[i])));
        else printf("%s: %s%s\n", path[i], dtype_info[t->dt].name, shape_str(c->arena, t->rank, t->dims));
    }
}

/* The runs after the first write into the buffers of the first. */
static void run_any(Cli *c, Arena *a, const OnnxModel *m, Program *p, Package *k, const Tensor *in, Tensor *out, const size_t *bytes)
{
    if (k) package_run(c->cx, k, a, in, out, bytes);
    else if (p) program_run(c->cx, p, a, in, out, bytes);
    else interp_run(c->cx, a, m, in, out);
}

static double run_repeatedly(Cli *c, const OnnxModel *m, Program *p, Package *pk, const Tensor *in, Tensor *out, int repeat, double *first)
{
    int nout = m->graph->nout;
    size_t *bytes = NEWS(c->arena, size_t, nout + 1);
    double *ms = NEWS(c->arena, double, repeat), start = time_now();
    run_any(c, c->arena, m, p, pk, in, out, bytes);
    *first = (time_now() - start) * 1e3;
    if (p && repeat > 1) program_prepare(c->cx, p, in);      /* what is timed are kernels */
    for (int i = 0; i < repeat && repeat > 1; i++) {
        Arena *scratch = arena_new(c->cx);
        Tensor *again = NEWS(scratch, Tensor, nout + 1);
        for (int k = 0; k < nout && (p || pk); k++) {
            bytes[k] = tensor_bytes(&out[k]);
            again[k].data = out[k].data;
        }
        start = time_now();
        run_any(c, scratch, m, p, pk, in, again, bytes);
        ms[i] = (time_now() - start) * 1e3;
        arena_free(scratch);
    }
    return repeat > 1 ? median(repeat, ms) : *first;
}

typedef struct Behind { Cli *c; const OnnxModel *m; const Tensor *in; bool fuse; } Behind;

static void behind_guarded(Ctx *cx, void *arg)
{
    Behind *b = arg;
    program_prepare(cx, cli_program(b->c, b->m, b->fuse, false), b->in);
}

enum { MOST_FILES = 1024 };

/* Is no other process at it? Many runs in a row leave one behind, not many. The lock goes with the process. */
static bool only_one(const Options *opt)
{
    Cache cache;
    char path[CACHE_PATH];
    cache_open(&cache, opt);
    if (!cache.on) return false;
    snprintf(path, sizeof path, "%s/behind.lock", cache.dir);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* The answer is there before the kernels are: a process of its own compiles them for the next start, with nothing to say and the lowest priority. */
static void compile_behind(Cli *c, const OnnxModel *m, const Tensor *in, bool fuse)
{
    Behind b = { c, m, in, fuse };
    fflush(NULL);
    if (fork() != 0) return;
    for (int fd = 3; fd < MOST_FILES; fd++) close(fd);       /* the other process waits for the ends of its compilers' pipes */
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; fd++) dup2(null, fd);
    setsid();
    setpriority(PRIO_PROCESS, 0, 19);
    if (only_one(&c->cx->opt)) guard_call(c->cx, behind_guarded, &b);
    for (int i = 1; i < c->program.n; i++) program_free(c->program.at[i]);   /* the first one's threads are in the other process */
    _exit(0);
}

int cmd_run(Cli *c)
{
    bool check = flag_given(c, FLAG_check), json = flag_given(c, FLAG_json), interpret = flag_given(c, FLAG_interpreter);
    int repeat = flag_int(c, FLAG_repeat, 1, 1);
    Tolerance tol = { flag_real(c, FLAG_rtol, 1e-3), flag_real(c, FLAG_atol, 1e-5), false };
    const char *dir = flag_value(c, FLAG_output);
    Package *pk = NULL;
    if (flag_given(c, FLAG_inputs) && !dir) fail(c->cx, E_INVALID, "--inputs needs -o DIR: where the files are to be");
    if (package_is(c->arg[0])) {
        if (check || interpret || flag_given(c, FLAG_no_fuse)) fail(c->cx, E_INVALID, "%s is a package: --check, --interpreter and --no-fuse need the model", c->arg[0]);
        pk = package_open(c->cx, c->arg[0], c->cx->opt.threads);
        vec_push(c->arena, &c->package, pk);
    }
    const OnnxModel *m = pk ? package_model(pk) : cli_load(c, c->arg[0]);
    Inputs in = cli_inputs(c, m, json, false);
    Tensor *out = NEWS(c->arena, Tensor, m->graph->nout + 1);
    bool fuse = !flag_given(c, FLAG_no_fuse), wait = check || flag_given(c, FLAG_wait) || c->cx->opt.wait || c->cx->opt.check;
    Program *p = interpret || pk ? NULL : wait ? cli_program(c, m, fuse, check) : cli_ready_program(c, m, fuse);
    double first, ms = run_repeatedly(c, m, p, pk, in.t, out, repeat, &first);
    Difference d = { .same = true };
    if (check && !interpret) {
        Tensor *want = NEWS(c->arena, Tensor, m->graph->nout + 1);
        interp_run(c->cx, c->arena, m, in.t, want);
        tol.shape_only = model_is_random(m, in.t);
        d = compare_outputs(m, out, want, tol);
    }
    bool behind = p && !wait && program_compiling(p) && !(c->cx->opt.cache && !c->cx->opt.cache[0]);
    json_t *files = json ? json_array() : NULL;
    if (dir) write_files(c, m, out, &in, dir, files);
    if (!json) {
        for (int i = 0; i < m->graph->nout && !dir; i++) show_tensor(c->arena, m->graph->out[i].name, &out[i]);
        if (repeat > 1) printf("first run %.3f ms (with compilation), then %d runs, median %.3f ms\n", first, repeat, ms);
        if (check) printf(d.same ? "check: equal to the reference interpreter\n" : "check: %s\n", d.text);
        if (behind) compile_behind(c, m, in.t, fuse);
        return d.same ? EXIT_FINE : EXIT_WRONG;
    }
    json_t *outputs = json_array();
    for (int i = 0; i < m->graph->nout; i++) json_array_append_new(outputs, tensor_json(m->graph->out[i].name, &out[i], dir ? 0 : 64));
    json_t *j = json_pack("{s:s, s:o, s:o, s:f, s:i}", "model", text_utf8(c->arena, c->arg[0]), "outputs", outputs, "files", files, "first_run_ms", first, "runs", repeat);
    if (repeat > 1) json_object_set_new(j, "ms", json_real(ms));
    if (check) json_object_set_new(j, "check", d.same ? json_true() : json_string(text_utf8(c->arena, d.text)));
    print_json(j);
    if (behind) compile_behind(c, m, in.t, fuse);
    return d.same ? EXIT_FINE : EXIT_WRONG;
}
