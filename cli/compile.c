/* sinter compile: a model as a file that runs without sinter, or without a compiler. */
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int cmd_compile(Cli *c)
{
    Ctx *cx = c->cx;
    const char *path = flag_value(c, FLAG_output), *where = flag_value(c, FLAG_weights);
    if (!path) fail(cx, E_INVALID, "compile needs -o FILE: a name that ends in .c, .o, .so or .sinter");
    AotWeights weights = AOT_FILE;
    if (where && !strcmp(where, "bin")) weights = AOT_BIN;
    else if (where && !strcmp(where, "pointer")) weights = AOT_POINTER;
    else if (where && strcmp(where, "file")) fail(cx, E_INVALID, "--weights is '%s', wanted file, bin or pointer", where);
    const OnnxModel *m = cli_load(c, c->arg[0]);
    Inputs in = cli_inputs(c, m, false, true);
    VEC(AotRange) range = { 0 };
    Text command = { .arena = c->arena };
    text_add(&command, "sinter compile %s", file_name(c->arg[0]));
    for (int i = 0; i < c->ngiven; i++) {
        const char *word = c->given[i].value;
        if (c->given[i].flag == FLAG_input) {       /* NAME=FILE without its folder: where it lay makes no difference */
            const char *what = strrchr(word, '=') + 1;
            text_add(&command, " -i %.*s%s", (int)(what - word), word, file_name(what));
        }
        if (c->given[i].flag != FLAG_dim) continue;
        const char *eq = strrchr(word, '='), *dots = strstr(eq, "..");
        text_add(&command, " -d %s", word);
        AotRange r = { arena_fmt(c->arena, "%.*s", (int)(eq - word), word), strtoll(eq + 1, NULL, 10) };
        if (dots) vec_push(c->arena, &range, r);
    }
    if (flag_value(c, FLAG_isa)) text_add(&command, " --isa %s", flag_value(c, FLAG_isa));
    if (where) text_add(&command, " --weights %s", where);
    if (flag_given(c, FLAG_rules)) text_add(&command, " --rules %s", file_name(flag_value(c, FLAG_rules)));
    if (flag_given(c, FLAG_allow)) text_add(&command, " --allow %s", flag_value(c, FLAG_allow));
    else if (flag_given(c, FLAG_fast)) text_add(&command, " --fast");
    int threads = flag_int(c, FLAG_threads, 1, 1);
    if (threads > 1) text_add(&command, " --threads %d", threads);
    AotExport e = { .path = path, .isa = flag_value(c, FLAG_isa), .weights = weights, .threads = threads, .nrange = range.n, .range = range.at, .command = command.at };
    double start = time_now();
    AotFiles f = { 0 };
    aot_export(cx, c->arena, m, in.t, &e, &f);
    printf("%s: %d kernels, %zu bytes of weights, %" PRId64 " bytes of workspace; %.0f ms\n", path, f.kernels, f.nweights, f.workspace, 1e3 * (time_now() - start));
    return EXIT_FINE;
}
