/* sinter explain: what became of a model. The report itself is api/explain.c; the picture of the graph is made here, from the importer and the planner. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* ---- --dot: each segment's graph, the planner's kernels as groups ------------------------------------------------------------------------ */

typedef struct Dot { Cli *c; const Target *target; const Tensor *in; bool fuse; Text text; int count; } Dot;

static void dot_graph(Dot *d, Ctx *cx, Graph *g)
{
    Plan *p = segment_plan(cx, d->c->arena, d->target, g, &(ProgramOptions){ .fuse = d->fuse }, NEWS(d->c->arena, int, rules_count(d->target->rules) + 1));
    if (d->count++) text_add(&d->text, "\n");
    graph_dot(&d->text, g, p->home);
}

/* A cut's values are needed to go on: the interpreter gives them. */
static void dot_cut(void *self, Ctx *cx, const Cut *cut, Tensor *out)
{
    Dot *d = self;
    interp_segment(cx, d->c->arena, cut->g, d->in, out);
    dot_graph(d, cx, cut->g);           /* last: it rewrites the graph */
    if (cut->call) {
        Tensor *in = NEWS(d->c->arena, Tensor, cut->call->nin + 1), *result = out + cut->g->output.n;
        for (int i = 0; i < cut->call->nin; i++) in[i] = out[cut->call_in[i]];
        for (int i = 0; i < cut->call->nout; i++) result[i].dt = cut->call->out_dt[i];
        cut->call->def->eval(cx, d->c->arena, cut->call, in, result);
    }
    d->in = out;
}

static void write_dot(Cli *c, const OnnxModel *m, const Target *target, const Inputs *in, const char *path)
{
    char why[256];
    Dot d = { .c = c, .target = target, .in = in->t, .fuse = !flag_given(c, FLAG_no_fuse), .text = { .arena = c->arena } };
    TraceHost host = { &d, dot_cut, &loop_call, &scan_call };
    dot_graph(&d, c->cx, onnx_import(c->cx, c->arena, m, m->graph, 0, NULL, in->t, &host));
    Status st = file_write(path, d.text.at, d.text.n, why, sizeof why);
    if (st != E_OK) fail(c->cx, st, "%s: %s", path, why);
}

/* ---- the report ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct Profile { Program *p; const Tensor *in; } Profile;

static void profile_guarded(Ctx *cx, void *arg)
{
    Profile *x = arg;
    RunStats st;
    program_profile(cx, x->p, x->in, 5, &st);
}

/* --source KERNEL must name one. */
static void find_kernel(Cli *c, Program *p, const char *kernel)
{
    int n;
    const SegmentEvidence *e = program_evidence(c->cx, p, c->arena, &n);
    Text names = { .arena = c->arena };
    for (int i = 0; i < n; i++)
        for (int j = 0; j < e[i].nkernel; j++) {
            const KernelEvidence *k = &e[i].kernel[j];
            if (!k->source) continue;
            if (strncmp(k->name, kernel, strlen(kernel)) == 0) return;
            text_add(&names, " %s", k->name);
        }
    fail(c->cx, E_INVALID, "--source %s: no kernel's name begins so; kernels:%s", kernel, names.n ? names.at : " none");
}

int cmd_explain(Cli *c)
{
    bool json = flag_given(c, FLAG_json);
    const OnnxModel *m = cli_load(c, c->arg[0]);
    Inputs in = cli_inputs(c, m, json, false);
    Program *p = cli_program(c, m, !flag_given(c, FLAG_no_fuse), false);
    if (flag_value(c, FLAG_dot)) write_dot(c, m, program_target_of(p), &in, flag_value(c, FLAG_dot));
    program_prepare(c->cx, p, in.t);
    Profile x = { p, in.t };
    Status st = guard_call(c->cx, profile_guarded, &x);
    if (st == E_CANCELLED) fail(c->cx, st, "%s", c->cx->text);
    const char *untimed = st == E_OK ? NULL : arena_str(c->arena, c->cx->text);
    const char *kernel = flag_value(c, FLAG_source);
    if (kernel) find_kernel(c, p, kernel);
    ExplainOptions o = { flag_given(c, FLAG_why), flag_given(c, FLAG_source), flag_value(c, FLAG_source) };
    if (json) {
        json_t *j = explain_json(c->cx, c->arena, p, &o);
        json_object_set_new(j, "model", json_string(text_utf8(c->arena, c->arg[0])));
        if (untimed) json_object_set_new(j, "not_timed", json_string(text_utf8(c->arena, untimed)));
        print_json(j);
        return EXIT_FINE;
    }
    Text t = { .arena = c->arena };
    explain_text(c->cx, &t, p, &o);
    printf("%s\n%s", c->arg[0], t.at);
    if (untimed) printf("not timed: %s\n", untimed);
    return EXIT_FINE;
}
