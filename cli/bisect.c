/* sinter bisect: which fusion changes a result?
 *
 * The planner numbers its decisions and stops after Options.limit of them. The program without any is compared with the reference interpreter first; if they
 * agree and the whole program does not, a binary search finds the first limit at which the result is wrong. Its last decision is the one; the kernels that it
 * made are those which are not there with one decision less. */
#include "cli.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct Search {
    Cli *c;
    const OnnxModel *m;
    Inputs in;
    Tensor *want;
    Tolerance tol;
    int tries;
} Search;

/* Runs with the planner's first `limit` decisions (-1: all). */
static Difference try_limit(Search *s, bool fuse, int limit, Program **keep)
{
    Cli *c = s->c;
    Ctx *cx = c->cx;
    Tensor *out = NEWS(c->arena, Tensor, s->m->graph->nout + 1);
    cx->opt.limit = limit;
    Program *p = cli_program(c, s->m, fuse, false);
    program_run(cx, p, c->arena, s->in.t, out, NEWS(c->arena, size_t, s->m->graph->nout + 1));
    Difference d = compare_outputs(s->m, out, s->want, s->tol);
    if (keep) {
        *keep = p;
    } else {
        program_free(p);
        c->program.n--;
    }
    s->tries++;
    if (on_terminal()) fprintf(stderr, "\r%d programs tried ", s->tries);
    return d;
}

static const char *kernel_text(Arena *a, const KernelEvidence *k)
{
    Text t = { .arena = a };
    text_add(&t, "%s", k->kind ? k->kind : "call");
    for (int i = 0; i < k->nnode; i++) text_add(&t, "%s%s", i ? ", " : ": ", k->node[i]);
    return t.at;
}

/* The kernels of one program that the other does not have. */
static json_t *new_kernels(Search *s, Program *with, Program *without)
{
    json_t *list = json_array();
    MapStr *known = mapstr_new(s->c->arena);
    int n;
    const SegmentEvidence *e = program_evidence(s->c->cx, without, s->c->arena, &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < e[i].nkernel; j++) *mapstr_at(known, e[i].kernel[j].name) = s;
    e = program_evidence(s->c->cx, with, s->c->arena, &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < e[i].nkernel; j++) {
            const KernelEvidence *k = &e[i].kernel[j];
            if (mapstr_get(known, k->name)) continue;
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", k->name, "what", kernel_text(s->c->arena, k)));
        }
    return list;
}

static int verdict(Search *s, const char *word, const char *text, const Difference *d, int decision, json_t *kernels)
{
    bool wrong = strcmp(word, "none") != 0;
    if (on_terminal()) fprintf(stderr, "\r%40s\r", "");
    if (flag_given(s->c, FLAG_json)) {
        json_t *j = json_pack("{s:s, s:s, s:s, s:i}", "model", text_utf8(s->c->arena, s->c->arg[0]), "fault", word, "text", text, "programs_tried", s->tries);
        json_object_set_new(j, "decision", decision > 0 ? json_integer(decision) : json_null());
        json_object_set_new(j, "difference", wrong ? json_string(text_utf8(s->c->arena, d->text)) : json_null());
        json_object_set_new(j, "kernels", kernels ? kernels : json_array());
        print_json(j);
    } else {
        size_t i;
        const json_t *k;
        printf("%s\n", text);
        if (wrong) printf("  %s\n", d->text);
        json_array_foreach(kernels, i, k) printf("  kernel %s: %s\n", json_string_value(json_object_get(k, "name")), json_string_value(json_object_get(k, "what")));
        if (decision > 0) printf("SN_LIMIT=%d is right, SN_LIMIT=%d is wrong\n", decision - 1, decision);
        json_decref(kernels);
    }
    return wrong ? EXIT_WRONG : EXIT_FINE;
}

int cmd_bisect(Cli *c)
{
    Search s = { .c = c, .tol = { flag_real(c, FLAG_rtol, 1e-3), flag_real(c, FLAG_atol, 1e-5), false } };
    s.m = cli_load(c, c->arg[0]);
    s.in = cli_inputs(c, s.m, flag_given(c, FLAG_json), false);
    if (model_is_random(s.m, s.in.t)) fail(c->cx, E_INVALID, "%s draws random numbers, so there is no result to compare with", c->arg[0]);
    s.want = NEWS(c->arena, Tensor, s.m->graph->nout + 1);
    bool interpreted = interp_limited(c, s.m, s.in.t, s.want, 60);
    if (!interpreted) {                 /* too slow: the unfused program is the measure, and cannot itself be judged */
        Tensor *out = s.want;
        Program *p = cli_program(c, s.m, false, false);
        program_run(c->cx, p, c->arena, s.in.t, out, NEWS(c->arena, size_t, s.m->graph->nout + 1));
    }
    Difference d = try_limit(&s, false, -1, NULL);
    if (!d.same) return verdict(&s, "unfused", "the unfused program differs from the reference interpreter: the fault is in a kernel, not in a fusion", &d, 0, NULL);
    d = try_limit(&s, true, -1, NULL);
    if (d.same)
        return verdict(&s, "none", interpreted ? "no fusion changes the result: fused, unfused and interpreted agree"
                                               : "no fusion changes the result: fused and unfused agree (the interpreter was too slow to ask)", &d, 0, NULL);
    int good = 0, bad = 1;
    Difference at_bad = try_limit(&s, true, 0, NULL);
    if (!at_bad.same) return verdict(&s, "planner", "the planner's result is wrong before its first decision", &at_bad, 0, NULL);
    for (;;) {
        ctx_poll(c->cx);
        at_bad = try_limit(&s, true, bad, NULL);
        if (!at_bad.same) break;
        good = bad;
        if (bad > INT_MAX / 4) return verdict(&s, "unstable", "the result is wrong with all decisions, but right with any number of them: it is not stable", &d, 0, NULL);
        bad *= 2;
    }
    while (bad - good > 1) {
        ctx_poll(c->cx);
        int mid = good + (bad - good) / 2;
        Difference m = try_limit(&s, true, mid, NULL);
        if (m.same) good = mid;
        else bad = mid, at_bad = m;
    }
    Program *with, *without;
    try_limit(&s, true, good, &without);
    at_bad = try_limit(&s, true, bad, &with);
    json_t *kernels = new_kernels(&s, with, without);
    return verdict(&s, "fusion", arena_fmt(c->arena, "decision %d of the planner changes the result; the kernels that it made:", bad), &at_bad, bad, kernels);
}
