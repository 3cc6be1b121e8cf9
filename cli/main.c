/* sinter: the program's entry. Finds the command and its flags in commands.def and flags.def, runs it in a guard, and says what went wrong.
 *
 * Exit status: 0 all is well, 1 a result is wrong, 2 bad usage or input, or the machine lacks something, 130 stopped by a signal. */
#include "cli.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef struct CommandInfo { const char *name, *args; int fewest, most; const char *text, *example; int (*fn)(Cli *); } CommandInfo;
static const CommandInfo commands[] = {
#define COMMAND(name, args, lo, hi, text, example) { #name, args, lo, hi, text, example, cmd_##name },
#include "commands.def"
#undef COMMAND
};

typedef struct FlagInfo { const char *name; char letter; const char *value, *commands, *text; } FlagInfo;
static const FlagInfo flags[] = {
#define FLAG(name, letter, value, commands, text) { #name, letter, value, commands, text },
#include "flags.def"
#undef FLAG
};

/* ---- signals: they only set a number, which the library looks at between steps ------------------------------------------------------- */

static volatile int stop_asked;         /* CANCEL_... */
static struct timespec stop_time;       /* of the first request; written before stop_asked is, by the handler only */

/* A second request ends the program at once. One within half a second of the first is the same request: a terminal, a
 * shell or timeout(1) may send it to the process and to its group. */
static void on_signal(int sig)
{
    if (sig == SIGALRM) {
        if (!stop_asked) stop_asked = CANCEL_TIME;
        return;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (stop_asked != CANCEL_USER) {
        stop_time = now;
        stop_asked = CANCEL_USER;
    } else if ((double)(now.tv_sec - stop_time.tv_sec) + (double)(now.tv_nsec - stop_time.tv_nsec) * 1e-9 > 0.5) {
        static const char text[] = "sinter: stopped at once\n";
        if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_CANCELLED);
        _exit(EXIT_CANCELLED);
    }
}

static void catch_signals(void)
{
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&a.sa_mask);
    sigaddset(&a.sa_mask, SIGINT);
    sigaddset(&a.sa_mask, SIGTERM);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGALRM, &a, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);           /* a limit on the sizes of files is an error of the write, as a full disk is */
}

typedef struct Interp { const OnnxModel *m; const Tensor *in; Tensor *out; Arena *a; } Interp;

static void interp_guarded(Ctx *cx, void *arg)
{
    Interp *x = arg;
    interp_run(cx, x->a, x->m, x->in, x->out);
}

bool interp_limited(Cli *c, const OnnxModel *m, const Tensor *in, Tensor *out, double limit)
{
    struct itimerval timer = { .it_value = { .tv_sec = (time_t)limit, .tv_usec = (suseconds_t)((limit - (double)(time_t)limit) * 1e6) } }, none = { 0 };
    Interp x = { m, in, out, c->arena };
    setitimer(ITIMER_REAL, &timer, NULL);
    Status st = guard_call(c->cx, interp_guarded, &x);
    setitimer(ITIMER_REAL, &none, NULL);
    bool late = stop_asked == CANCEL_TIME;
    if (late) stop_asked = 0;
    if (st == E_CANCELLED && late) return false;
    if (st != E_OK) fail(c->cx, st, "%s", c->cx->text);
    return true;
}

/* ---- flags ---------------------------------------------------------------------------------------------------------------------------------- */

static const char *flag_spelling(int f, char text[64])
{
    snprintf(text, 64, "--%s", flags[f].name);
    for (char *p = text; *p; p++)
        if (*p == '_') *p = '-';
    return text;
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

bool flag_given(const Cli *c, Flag f)
{
    for (int i = 0; i < c->ngiven; i++)
        if (c->given[i].flag == f) return true;
    return false;
}

const char *flag_value(const Cli *c, Flag f)
{
    const char *v = NULL;
    for (int i = 0; i < c->ngiven; i++)
        if (c->given[i].flag == f) v = c->given[i].value;
    return v;
}

int flag_int(Cli *c, Flag f, int fallback, int lo)
{
    const char *s = flag_value(c, f);
    char *end, name[64];
    if (!s) return fallback;
    errno = 0;
    long v = strtol(s, &end, 10);
    if (*end || end == s || errno || v < lo || v > 1000000000) fail(c->cx, E_INVALID, "%s is '%s', wanted a whole number from %d on", flag_spelling((int)f, name), s, lo);
    return (int)v;
}

double flag_real(Cli *c, Flag f, double fallback)
{
    const char *s = flag_value(c, f);
    char *end, name[64];
    if (!s) return fallback;
    double v = strtod(s, &end);
    if (*end || end == s || !(v >= 0)) fail(c->cx, E_INVALID, "%s is '%s', wanted a number >= 0", flag_spelling((int)f, name), s);
    return v;
}

static void say_flag(int f)
{
    char name[64], left[80];
    const char *v = flags[f].value;
    flag_spelling(f, name);
    if (flags[f].letter) snprintf(left, sizeof left, "-%c, %s %s", flags[f].letter, name, v ? v : "");
    else snprintf(left, sizeof left, "    %s %s", name, v ? v : "");
    printf("  %-26s %s\n", left, flags[f].text);
}

static void say_help(const CommandInfo *k)
{
    if (k) {
        printf("usage: sinter %s%s%s [FLAG...]\n\n%s %s.\n\nflags:\n", k->name, k->args[0] ? " " : "", k->args, k->name, k->text);
        for (int f = 0; f < FLAG_COUNT; f++)
            if (word_in(flags[f].commands, k->name)) say_flag(f);
        printf("\nexample: %s\n", k->example);
        return;
    }
    printf("usage: sinter COMMAND [ARGUMENT...] [FLAG...]\n\ncommands:\n");
    for (size_t i = 0; i < COUNT_OF(commands); i++) printf("  %-12s %-8s %s\n", commands[i].name, commands[i].args, commands[i].text);
    printf("\n`sinter COMMAND --help` says more. `sinter --version` says which this is.\n"
           "Exit status: 0 all is well, 1 a result is wrong, 2 bad usage or input or the machine lacks something, 130 stopped by a signal.\n"
           "Environment: SN_DEBUG=1..6, SN_CHECK=1, SN_CACHE=FOLDER, SN_CC=COMPILER, SN_THREADS=N and more: docs/debug.md.\n");
}

typedef struct Main { Cli *c; int argc; char **argv; int status; } Main;

/* One flag at argv[i]; how many words it takes. */
static int read_flag(Cli *c, const CommandInfo *k, char **argv, int i)
{
    Ctx *cx = c->cx;
    const char *word = argv[i], *value = NULL, *eq = strchr(word, '=');
    char name[64];
    int f = 0, used = 1;
    bool is_long = word[1] == '-';
    for (; f < FLAG_COUNT; f++) {
        flag_spelling(f, name);
        size_t n = strlen(name);
        if (is_long && strncmp(word, name, n) == 0 && (!word[n] || word[n] == '=')) break;
        if (!is_long && flags[f].letter == word[1]) break;
    }
    if (f == FLAG_COUNT || !word_in(flags[f].commands, k->name))
        fail(cx, E_INVALID, "%s has no flag '%s'; see sinter %s --help", k->name, word, k->name);
    const char *wanted = flags[f].value;
    if (is_long && eq) value = eq + 1;
    else if (!is_long && word[2]) value = word + 2;
    if (value && !wanted) fail(cx, E_INVALID, "%s takes no value; found '%s'", name, word);
    bool optional = wanted && wanted[0] == '[';
    if (!value && wanted && argv[i + 1] && (!optional || strncmp(argv[i + 1], "k_", 2) == 0)) {
        value = argv[i + 1];
        used = 2;
    }
    if (!value && wanted && !optional) fail(cx, E_INVALID, "%s needs a value: %s", flag_spelling(f, name), wanted);
    c->given[c->ngiven++] = (Given){ (Flag)f, value };
    return used;
}

static void main_guarded(Ctx *cx, void *arg)
{
    Main *x = arg;
    Cli *c = x->c;
    const char *name = x->argc > 1 ? x->argv[1] : "";
    const CommandInfo *k = NULL;
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (strcmp(name, "--version") == 0) {
        printf("sinter %s\n", SINTER_VERSION);
        return;
    }
    if (help && x->argc > 2) name = x->argv[2];
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(commands[i].name, name) == 0) k = &commands[i];
    if (help) {
        if (x->argc > 2 && !k) fail(cx, E_INVALID, "there is no command '%s'; see sinter --help", name);
        say_help(k);
        return;
    }
    if (!name[0]) fail(cx, E_INVALID, "no command; see sinter --help");
    if (!k) fail(cx, E_INVALID, "there is no command '%s'; see sinter --help", name);
    c->given = NEWS(c->arena, Given, x->argc);
    c->arg = NEWS(c->arena, const char *, x->argc);
    bool plain = false;
    for (int i = 2; i < x->argc;) {
        const char *word = x->argv[i];
        if (!plain && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            say_help(k);
            return;
        }
        if (!plain && strcmp(word, "--") == 0) {
            plain = true;
            i++;
        } else if (!plain && word[0] == '-' && word[1]) {
            i += read_flag(c, k, x->argv, i);
        } else {
            c->arg[c->narg++] = word;
            i++;
        }
    }
    if (c->narg < k->fewest) fail(cx, E_INVALID, "%s needs %s; see sinter %s --help", k->name, k->args, k->name);
    if (k->most >= 0 && c->narg > k->most)
        fail(cx, E_INVALID, "%s takes %s, found '%s' too", k->name, k->most ? k->args : "no argument", c->arg[k->most]);
    if (flag_given(c, FLAG_device)) cx->opt.target = flag_value(c, FLAG_device);
    cx->opt.rules = flag_given(c, FLAG_rules) ? flag_value(c, FLAG_rules) : cx->opt.rules;
    cx->opt.allow = flag_given(c, FLAG_allow) ? flag_value(c, FLAG_allow) : flag_given(c, FLAG_fast) ? "finite,reassoc,wide,winograd,flush" : cx->opt.allow;
    cx->opt.threads = flag_int(c, FLAG_threads, cx->opt.threads, 1);
    x->status = k->fn(c);
}

/* ---- what commands share -------------------------------------------------------------------------------------------------------------------- */

OnnxModel *cli_load(Cli *c, const char *path)
{
    OnnxModel *m = onnx_new(c->cx);
    vec_push(c->arena, &c->model, m);
    onnx_load(c->cx, m, path, NULL, 0);
    return m;
}

Program *cli_program(Cli *c, const OnnxModel *m, bool fuse, bool check)
{
    ProgramOptions o = { .fuse = fuse, .check = check || c->cx->opt.check, .threads = c->cx->opt.threads };
    Program *p = program_new(c->cx, m, &o);
    vec_push(c->arena, &c->program, p);
    return p;
}

Program *cli_ready_program(Cli *c, const OnnxModel *m, bool fuse)
{
    ProgramOptions o = { .fuse = fuse, .ready = true, .threads = c->cx->opt.threads };
    Program *p = program_new(c->cx, m, &o);
    vec_push(c->arena, &c->program, p);
    return p;
}

void print_json(json_t *j)
{
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(j);
}

json_t *json_number(double v) { return v - v == 0 ? json_real(v) : json_null(); }

bool on_terminal(void) { return isatty(STDERR_FILENO); }

static int remove_entry(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
    (void)st, (void)what, (void)ftw;
    remove(path);
    return 0;
}

void remove_tree(const char *dir) { nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* Whether a program reads what is printed, also where the command line could not be read to its end. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) if (!strcmp(argv[i], "--json")) return true;
    return false;
}

int main(int argc, char **argv)
{
    Ctx cx;
    ctx_init(&cx);
    catch_signals();
    cx.cancel = &stop_asked;
    Cli c = { .cx = &cx, .cancel = &stop_asked };
    Main x = { &c, argc, argv, EXIT_FINE };
    int failing = cx.opt.fail;
    cx.opt.fail = -1;                   /* the program's own arena is not what is tested */
    Arena *arena = NULL;
    arena = arena_new(&cx);
    c.arena = arena;
    cx.opt.fail = failing;
    Status st = guard_call(&cx, main_guarded, &x);
    for (int i = 0; i < c.program.n; i++) program_free(c.program.at[i]);
    records_close(c.records);
    for (int i = 0; i < c.package.n; i++) package_close(c.package.at[i]);
    for (int i = 0; i < c.model.n; i++) onnx_close(c.model.at[i]);
    if (c.made_dir[0]) remove_tree(c.made_dir);
    if (st != E_OK) fprintf(stderr, "sinter: %s\n", cx.text);
    if (st != E_OK && wants_json(argc, argv)) print_json(json_pack("{s:{s:s, s:s}}", "error", "status", status_name(st), "text", text_utf8(arena, cx.text)));
    if (st == E_CANCELLED) x.status = EXIT_CANCELLED;
    else if (st != E_OK) x.status = EXIT_USAGE;
    arena_free(arena);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "sinter: the output could not be written: %s\n", strerror(errno));
        return EXIT_USAGE;
    }
    return x.status;
}
