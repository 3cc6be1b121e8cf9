/* The random-graph test: the interpreter, the ready tier, the unfused program and the fused program must agree.
 *
 *   fuzz_graph [--seed N] [--count N] [--isa NAME] [--threads N] [--steps N] [--cache DIR] [--seconds N] [--verbose] [--kernels] [--no-shrink] [--no-fork]
 *
 * Graphs are taken in batches of consecutive seeds. A batch runs in a process of its own, so that a crash ends that batch only; its kernels
 * are compiled together. When a batch fails, its seeds run again one by one, and a failing graph is made smaller: first by fewer steps of the
 * generator, then by other outputs (the first node that is wrong) and by inputs in place of inner nodes. The instruction set is a function
 * of the batch, so a seed means the same whatever --seed and --count are. */
#include "fuzz_graph.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 16, VARIANTS = 2, LIMIT_S = 240, MARGIN = 80 };   /* graphs of a process; other sizes; seconds of a process; bytes after an output */
typedef enum Verdict { SAME, DIFFERS, RAISED, CRASHED, SLOW } Verdict;
static const char *const verdict_name[] = { "same", "differs", "raised an error", "crashed", "ran too long" };

typedef struct Args { uint64_t seed; int count, steps, threads; double seconds; const char *isa, *cache; bool verbose, kernels, shrink, fork; } Args;
typedef struct Bench { Ctx *cx; Arena *arena; Target target; } Bench;

static const char *isa_of(const Args *o, uint64_t seed)
{
    static const char *const some[] = { "native", "native", "native", "avx2", "plain", "sse2", "native", "native" };
    return o->isa ? o->isa : some[seed / BATCH % COUNT_OF(some)];
}

static void bench_open(Bench *b, Ctx *cx, const char *isa, int threads)
{
    *b = (Bench){ .cx = cx, .arena = arena_new(cx) };
    cx->opt.isa = !strcmp(isa, "native") ? NULL : isa;
    cx->opt.jobs = 1;
    cx->opt.threads = threads;
    cx->opt.poison = 1;
    target_open(cx, b->arena, &cx->opt, &b->target);
}

static void bench_close(Bench *b)
{
    target_close(&b->target);
    arena_free(b->arena);
}

/* ---- comparing ------------------------------------------------------------------------------------------------------- */
static bool same_element(const Val *v, bool approximate, Scalar got, Scalar want)
{
    if (!dtype_is_float(v->n->dt)) return got.i == want.i;
    if (isnan(want.f) || isnan(got.f)) return isnan(want.f) && isnan(got.f);
    if (v->exact && !approximate) return got.f == want.f && !signbit(got.f) == !signbit(want.f);
    if (got.f == want.f) return true;
    double rel = dtype_size(v->n->dt) == 2 ? 4e-2 : v->n->dt == DT_f64 ? 1e-9 : 1e-3;
    return fabs(got.f - want.f) <= (approximate ? fmax(v->err, rel * fmax(1, fabs(want.f))) : v->err + (v->special ? 1e-5 * fabs(want.f) : 0));
}

static void print_element(Text *t, DType dt, Scalar v)
{
    if (dtype_is_float(dt)) text_add(t, "%.9g", v.f); else text_add(t, "%lld", (long long)v.i);
}

static bool same_tensor(Text *t, const Val *v, bool approximate, const Tensor *got, const Tensor *want)
{
    int64_t n = tensor_count(want), bad = 0, first = -1;
    double most = 0;
    for (int k = 0; k < want->rank; k++)
        if (got->dims[k] != want->dims[k]) { text_add(t, "%%%d has size %lld at axis %d, wanted %lld\n", v->n->id, (long long)got->dims[k], k, (long long)want->dims[k]); return false; }
    for (int64_t j = 0; j < n; j++) {
        Scalar x = scalar_load(got->dt, tensor_at(got, j)), y = scalar_load(want->dt, tensor_at(want, j));
        if (same_element(v, approximate, x, y)) continue;
        if (first < 0) first = j;
        bad++;
        if (dtype_is_float(got->dt)) most = fmax(most, fabs(x.f - y.f));
    }
    if (!bad) return true;
    text_add(t, "%%%d %s%s: %lld of %lld elements differ, the first at [", v->n->id, dtype_info[got->dt].name, v->exact ? ", exact" : "", (long long)bad, (long long)n);
    int64_t rest = first, at[MAX_RANK];
    for (int k = want->rank - 1; k >= 0; k--) { at[k] = rest % want->dims[k]; rest /= want->dims[k]; }
    for (int k = 0; k < want->rank; k++) text_add(t, "%s%lld", k ? "," : "", (long long)at[k]);
    text_add(t, "] of [");
    for (int k = 0; k < want->rank; k++) text_add(t, "%s%lld", k ? "," : "", (long long)want->dims[k]);
    text_add(t, "]: ");
    print_element(t, got->dt, scalar_load(got->dt, tensor_at(got, first)));
    text_add(t, ", the interpreter says ");
    print_element(t, want->dt, scalar_load(want->dt, tensor_at(want, first)));
    text_add(t, " (allowed %.3g, most %.3g)\n", v->err, most);
    return false;
}

/* ---- one graph --------------------------------------------------------------------------------------------------------- */
typedef struct Job { Bench *b; Case *c; bool approximate, traced_only; Text *report; Verdict verdict; int fused, unfused, served; } Job;

typedef struct Attempt { Job *j; Arena *a; Segment *s; const Tensor *in; const int64_t *syms; Tensor *out; bool ready; } Attempt;

static void interpret(Ctx *cx, void *arg)
{
    Attempt *x = arg;
    const Case *c = x->j->c;
    Node *node[FUZZ_OUTPUTS];           /* as they were generated: the graph's own outputs may have been rewritten */
    for (int i = 0; i < c->nout; i++) node[i] = c->out[i].n;
    (x->ready ? eval_ready : eval_nodes)(cx, x->a, c->g, x->in, x->syms, c->nout, node, x->out);
}

static void run_program(Ctx *cx, void *arg)
{
    Attempt *x = arg;
    segment_run(cx, x->a, x->s, x->in, x->syms, x->out, NULL, NULL);
}

static bool run_sizes(Job *j, Segment *s, bool fuse, const Tensor *in, const int64_t *syms, const char *sizes)
{
    Case *c = j->c;
    Arena *a = arena_new(c->cx);
    arena_bind(c->arena, c->cx);
    Tensor *want = NEWS(a, Tensor, c->nout + 1), *got = NEWS(a, Tensor, c->nout + 1);
    bool same = true;
    Attempt x = { j, a, s, in, syms, want, false };
    if (guard_call(c->cx, interpret, &x) != E_OK) {  /* an index outside its axis: the program has to find it too */
        x.out = got;
        same = c->cx->code == E_INVALID && guard_call(c->cx, run_program, &x) == E_INVALID;
        if (!same) text_add(j->report, "the interpreter and the %s program at %s do not both say INVALID: %s\n", fuse ? "fused" : "unfused", sizes, c->cx->text);
        arena_free(a);
        return same;
    }
    if (!fuse) {                        /* the ready tier has the contract of kernels */
        x.ready = true;
        x.out = got;
        interpret(c->cx, &x);
        for (int i = 0; i < c->nout && same; i++)
            if (!(same = same_tensor(j->report, &c->out[i], j->approximate, &got[i], &want[i])))
                text_add(j->report, "  in output %d, ready tier, %s\n", i, sizes);
    }
    Tensor own[FUZZ_INPUTS];
    size_t bytes[FUZZ_OUTPUTS];
    for (int i = 0; i < c->nin; i++) {               /* inputs and outputs may lie anywhere */
        own[i] = in[i];
        own[i].data = (char *)arena_alloc(a, tensor_bytes(&in[i]) + 8) + 1 + i % 7;
        memcpy(own[i].data, in[i].data, tensor_bytes(&in[i]));
    }
    for (int run = 0; run < 2 && same; run++) {      /* the second time in the first one's memory, into the caller's */
        memset(got, 0, sizeof *got * (size_t)c->nout);
        for (int i = 0; run && i < c->nout; i++) {
            bytes[i] = tensor_bytes(&want[i]);
            got[i].data = (char *)arena_alloc(a, bytes[i] + MARGIN) + 1 + i % 5;
            memset(got[i].data, 0xA5, bytes[i] + MARGIN - 8);
        }
        segment_run(c->cx, a, s, own, syms, got, run ? bytes : NULL, NULL);
        for (int i = 0; i < c->nout && same; i++) {
            same = same_tensor(j->report, &c->out[i], j->approximate, &got[i], &want[i]);
            for (size_t k = 0; run && same && k < MARGIN - 8; k++)
                if (((uint8_t *)got[i].data)[bytes[i] + k] != 0xA5) { text_add(j->report, "%%%d is written past its end\n", c->out[i].n->id); same = false; }
            if (!same) text_add(j->report, "  in output %d, %s, %s%s, %s\n", i, fuse ? "fused" : "unfused", sizes, run ? ", second run" : "", j->b->target.isa);
        }
        for (int i = 0; i < c->nin && same; i++)
            if (memcmp(own[i].data, in[i].data, tensor_bytes(&in[i]))) { text_add(j->report, "input %d is written to, %s\n", i, fuse ? "fused" : "unfused"); same = false; }
    }
    arena_free(a);
    return same;
}

static void run_mode(Job *j, bool fuse)
{
    Case *c = j->c;
    Segment *s = segment_new(c->cx, &j->b->target, c->g, &(ProgramOptions){ .fuse = fuse });
    int64_t *syms = NEWS(c->arena, int64_t, c->g->sym.n + 1);
    const char *why = "";
    *(fuse ? &j->fused : &j->unfused) = segment_kernels(s);
    if (!segment_serves(c->cx, c->arena, s, c->in, syms, &why)) {
        text_add(j->report, "the segment does not serve the sizes it was made for: %s\n", why);
        j->verdict = DIFFERS;
    } else if (!run_sizes(j, s, fuse, c->in, syms, "the traced sizes")) j->verdict = DIFFERS;
    SegmentEvidence evidence;
    segment_evidence(c->cx, c->arena, s, NULL, &evidence);
    for (int v = 0; v < VARIANTS && c->g->sym.n && !j->traced_only && j->verdict == SAME; v++) {
        Tensor in[FUZZ_INPUTS * 2];
        case_inputs(c, c->arena, v, in);
        if (!segment_serves(c->cx, c->arena, s, in, syms, &why)) continue;
        if (fuse) j->served++;
        Text sizes = { .arena = c->arena };
        text_add(&sizes, "sizes");
        for (int i = 0; i < c->g->sym.n; i++) text_add(&sizes, " %s=%lld", c->g->sym.at[i].name ? c->g->sym.at[i].name : "?", (long long)syms[i]);
        if (!run_sizes(j, s, fuse, in, syms, sizes.at)) j->verdict = DIFFERS;
    }
    segment_free(s);
}

static void run_case(Ctx *cx, void *arg)
{
    Job *j = arg;
    graph_check(cx, j->c->g);
    run_mode(j, false);
    if (j->verdict == SAME) run_mode(j, true);
}

static void job_run(Job *j)
{
    j->verdict = SAME;
    if (guard_call(j->c->cx, run_case, j) != E_OK) {
        j->verdict = RAISED;
        text_add(j->report, "error %s: %s\n", status_name(j->c->cx->code), j->c->cx->text);
    }
}

/* ---- compiling the kernels of many graphs together ----------------------------------------------------------------------- */
typedef struct Warm { Bench *b; Case *c; VEC(KernelText) text; int kind[2][SUB_COUNT], largest; } Warm;    /* kind: kernels by fused and kind */

static void warm_collect(Ctx *cx, void *arg)
{
    Warm *w = arg;
    for (int fuse = 0; fuse < 2; fuse++) {
        Plan *p = plan_make(cx, w->c->arena, w->c->g, NULL, fuse, w->b->target.vectors.lanes != LANES_simt);
        for (int i = 0; i < p->nkernel; i++) {
            w->kind[fuse][p->kernel[i].kind]++;
            if (fuse && p->kernel[i].nnode > w->largest) w->largest = p->kernel[i].nnode;
            if (p->kernel[i].kind == SUB_call) continue;
            LoopKernel *k = kernel_lower(cx, w->c->arena, w->c->g, &p->kernel[i], w->b->target.vectors);
            KernelSource src;
            w->b->target.dialect->print(cx, w->c->arena, w->b->target.isa, k, &src);
            KernelText t = { .name = src.name, .text = src.code, .cost = k->cost };
            vec_push(w->b->arena, &w->text, t);
        }
    }
}

static void warm_build(Warm *w)
{
    RtError e = { .launch = -1 };
    BuildStats st = { 0 };
    const Kernel **out = NEWS(w->b->arena, const Kernel *, w->text.n + 1);
    /* a failure shows again when the graph's own segment is built */
    if (w->text.n && w->b->target.api->build(w->b->target.device, w->b->target.prelude, w->text.n, w->text.at, out, &st, NULL, &e) != E_OK)
        log_line(w->b->cx, 1, "the kernels of the batch do not build together: %s", e.text);
}

static void print_kernels_of(Ctx *cx, void *arg)
{
    Warm *w = arg;
    warm_collect(cx, w);
    for (int i = 0; i < w->text.n; i++) printf("%s\n", w->text.at[i].text);
}

/* ---- processes ----------------------------------------------------------------------------------------------------------- */
typedef Verdict (*Work)(const Args *o, void *arg);

/* Runs work in a child; its verdict is the exit status. */
static Verdict apart(const Args *o, Work work, void *arg, int seconds)
{
    fflush(stdout);
    if (!o->fork) return work(o, arg);
    pid_t pid = fork();
    if (pid == 0) {
        alarm((unsigned)seconds);
        Verdict v = work(o, arg);
        fflush(stdout);
        _exit((int)v);
    }
    int st = 0;
    while (pid > 0 && waitpid(pid, &st, 0) < 0 && errno == EINTR) { }
    if (pid > 0 && WIFEXITED(st) && WEXITSTATUS(st) <= SLOW) return (Verdict)WEXITSTATUS(st);
    return pid > 0 && WIFSIGNALED(st) && WTERMSIG(st) == SIGALRM ? SLOW : CRASHED;
}

typedef struct Opening { const Args *o; uint64_t seed; Bench *b; int n, steps; Case *c; } Opening;

static void open_and_make(Ctx *cx, void *arg)
{
    Opening *x = arg;
    if (x->o->cache) cx->opt.cache = x->o->cache;
    bench_open(x->b, cx, isa_of(x->o, x->seed), x->o->threads);
    for (int i = 0; i < x->n; i++) case_make(cx, arena_new(cx), x->seed + (uint64_t)i, x->steps, &x->c[i]);
}

typedef struct Range { uint64_t seed; int n; } Range;

static Verdict batch_work(const Args *o, void *arg)
{
    Range *r = arg;
    Ctx cx;
    Bench b;
    Case c[BATCH];
    ctx_init(&cx);
    if (guard_call(&cx, open_and_make, &(Opening){ o, r->seed, &b, r->n, o->steps, c }) != E_OK) { printf("%s\n", cx.text); return RAISED; }
    Warm w = { .b = &b };
    for (int i = 0; i < r->n; i++) {
        w.c = &c[i];
        (void)guard_call(&cx, warm_collect, &w);
    }
    warm_build(&w);
    for (int k = 0; k < SUB_COUNT && o->verbose; k++) printf("%s%s %d, fused %d", k ? "; " : "kernels: ", sub_kind_name[k], w.kind[0][k], w.kind[1][k]);
    if (o->verbose) printf("; the largest has %d nodes\n", w.largest);
    Verdict all = SAME;
    for (int i = 0; i < r->n; i++) {
        Text t = { .arena = c[i].arena };
        Job j = { .b = &b, .c = &c[i], .report = &t };
        job_run(&j);
        if (j.verdict != SAME) all = DIFFERS;
        if (o->verbose) printf("%llu: %d nodes, %d kernels unfused, %d fused, %d symbols, served %d other sizes: %s\n", (unsigned long long)c[i].seed, c[i].g->node.n, j.unfused, j.fused, c[i].g->sym.n,
            j.served, verdict_name[j.verdict]);
        arena_free(c[i].arena);
    }
    bench_close(&b);
    return all;
}

/* ---- one seed by itself, and smaller ---------------------------------------------------------------------------------------- */
typedef struct Single { uint64_t seed; int steps; bool print, graph; } Single;

static Verdict single_work(const Args *o, void *arg)
{
    Single *s = arg;
    Ctx cx;
    Bench b;
    Case c;
    ctx_init(&cx);
    if (guard_call(&cx, open_and_make, &(Opening){ o, s->seed, &b, 1, s->steps, &c }) != E_OK) {
        if (s->print) printf("the generator: %s\n", cx.text);
        return RAISED;
    }
    Text t = { .arena = c.arena };
    Job j = { .b = &b, .c = &c, .report = &t };
    if (s->print && s->graph) {
        Text g = { .arena = c.arena };
        graph_print(&g, c.g);
        printf("%s\n", g.at);
        fflush(stdout);
    }
    job_run(&j);
    if (s->print && t.at) printf("%s", t.at);
    return j.verdict;
}

/* A case cut down: outputs replaced, inner nodes made inputs. */
typedef struct Smaller { int output; int nin, in[64]; } Smaller;        /* node ids of the original graph; output -1: as they are */
typedef struct Cutting { uint64_t seed; int steps; Smaller *cut; bool print, sizes; Case *c; } Cutting;

static bool is_cut(const Smaller *k, int id)
{
    for (int i = 0; i < k->nin; i++) if (k->in[i] == id) return true;
    return false;
}

/* Rebuilds what the output needs, with the values of cut nodes as new inputs. */
static void cut_apply(Ctx *cx, void *arg)
{
    Cutting *x = arg;
    Case *c = x->c;
    Graph *g = c->g;
    int n = g->node.n;
    Node **to = NEWS(c->arena, Node *, n + 1);
    for (int i = 0; i < x->cut->nin; i++) {
        Node *old = g->node.at[x->cut->in[i]];
        if (c->nin >= FUZZ_INPUTS) fail(cx, E_INVALID, "too many inputs");
        int64_t *syms = NEWS(c->arena, int64_t, g->sym.n + 1), dims[MAX_RANK];
        const char *why, *sym[MAX_RANK] = { 0 };
        if (!host_bind(cx, c->arena, g, c->in, syms, &why)) fail(cx, E_INVALID, "%s", why);
        eval_nodes(cx, c->arena, g, c->in, syms, 1, &old, &c->in[c->nin]);
        for (int k = 0; k < old->rank; k++) {
            dims[k] = dim_is_const(old->dims[k]) ? old->dims[k]->c : -1;
            if (dims[k] < 0 && old->dims[k]->kind != DIM_sym) fail(cx, E_INVALID, "a computed size");
            if (dims[k] < 0) sym[k] = g->sym.at[old->dims[k]->var].name;
        }
        Tensor *shape = NEW(c->arena, Tensor);
        *shape = c->in[c->nin];
        shape->data = NULL;
        c->fill[c->nin] = FILL_real;
        to[old->id] = graph_input(g, arena_fmt(c->arena, "cut%d", i), old->dt, old->rank, dims, sym, shape);
        c->nin++;
    }
    for (int id = 0; id < n; id++) {
        Node *old = g->node.at[id];
        if (to[id]) continue;
        to[id] = old;
        bool changed = false;
        Node **in = NEWS(c->arena, Node *, old->nin + 1);
        for (int k = 0; k < old->nin; k++) { in[k] = to[old->in[k]->id]; changed |= in[k] != old->in[k]; }
        if (!changed) continue;
        Node proto = *old;
        proto.in = in;
        to[id] = graph_add(g, &proto);
    }
    Val v = c->out[0];
    if (x->cut->output >= 0) v = (Val){ .n = g->node.at[x->cut->output] };
    for (int i = 0; i < c->nout; i++) if (c->out[i].n == v.n) v = c->out[i];
    v.n = to[v.n->id];
    g->output.n = 0;
    c->nout = 1;
    c->out[0] = v;
    graph_output(g, "y", v.n);
}

static Verdict cut_work(const Args *o, void *arg)
{
    Cutting *x = arg;
    Ctx cx;
    Bench b;
    Case c;
    ctx_init(&cx);
    if (guard_call(&cx, open_and_make, &(Opening){ o, x->seed, &b, 1, x->steps, &c }) != E_OK) return RAISED;
    x->c = &c;
    if (guard_call(&cx, cut_apply, x) != E_OK) return SLOW;      /* not a case */
    Text t = { .arena = c.arena };
    if (x->print) {
        bool *live = NEWS(c.arena, bool, c.g->node.n + 1);
        live[c.out[0].n->id] = true;
        for (int id = c.g->node.n - 1; id >= 0; id--) for (int k = 0; live[id] && k < c.g->node.at[id]->nin; k++) live[c.g->node.at[id]->in[k]->id] = true;
        for (int id = 0; id < c.g->node.n; id++) if (live[id]) { node_print(&t, c.g, c.g->node.at[id]); text_add(&t, "\n"); }
        printf("smaller:\n%s  -> %%%d\n", t.at, c.out[0].n->id);
        if (o->kernels) (void)guard_call(&cx, print_kernels_of, &(Warm){ .b = &b, .c = &c });
        fflush(stdout);
        t = (Text){ .arena = c.arena };
    }
    Job j = { .b = &b, .c = &c, .report = &t, .approximate = true, .traced_only = !x->sizes };
    job_run(&j);
    if (x->print && t.at) printf("%s", t.at);
    return j.verdict;
}

static bool fails(Verdict v) { return v == DIFFERS || v == CRASHED || v == RAISED; }

/* Other sizes are drawn at random, which the values of cut nodes would not fit: they are left out once nodes are cut, if the case fails without. */
static void shrink(const Args *o, uint64_t seed, int steps, Verdict as)
{
    Ctx cx;
    Case c;
    ctx_init(&cx);
    Arena *a = arena_new(&cx);
    case_make(&cx, a, seed, steps, &c);              /* the parent made no threads and opened no device */
    int n = c.g->node.n;
    Smaller cut = { .output = -1 };
    Cutting x = { .seed = seed, .steps = steps, .cut = &cut };
    bool *cone = NEWS(a, bool, n + 1);
    for (int i = 0; i < c.nout; i++) cone[c.out[i].n->id] = true;
    for (int id = n - 1; id >= 0; id--) for (int k = 0; cone[id] && k < c.g->node.at[id]->nin; k++) cone[c.g->node.at[id]->in[k]->id] = true;
    bool found = false;
    for (int i = 0; i < 2 * n && !found; i++) {      /* the first node that is wrong when it is the only output */
        int id = i % n;
        Op op = c.g->node.at[id]->op;
        x.sizes = i >= n;
        if (!cone[id] || op == OP_input || op == OP_const || op == OP_call || (x.sizes && !c.g->sym.n)) continue;
        cut.output = id;
        found = apart(o, cut_work, &x, LIMIT_S) == as;
    }
    if (!found) { printf("no output by itself is wrong\n"); arena_free(a); return; }
    memset(cone, 0, sizeof *cone * (size_t)n);
    cone[cut.output] = true;
    for (int id = n - 1; id >= 0; id--) for (int k = 0; cone[id] && k < c.g->node.at[id]->nin; k++) cone[c.g->node.at[id]->in[k]->id] = true;
    for (int id = cut.output - 1; id >= 0; id--) {   /* the latest nodes first: what lies below is gone with them */
        Node *x0 = c.g->node.at[id];
        if (!cone[id] || x0->op == OP_input || (x0->op == OP_const && x0->rank == 0) || x0->op == OP_dims || x0->op == OP_call || cut.nin + c.nin + 1 >= FUZZ_INPUTS) continue;
        cut.in[cut.nin++] = id;
        if (apart(o, cut_work, &x, LIMIT_S) != as) { cut.nin--; continue; }
        memset(cone, 0, sizeof *cone * (size_t)n);
        cone[cut.output] = true;
        for (int k = n - 1; k >= 0; k--) for (int q = 0; cone[k] && !is_cut(&cut, k) && q < c.g->node.at[k]->nin; q++) cone[c.g->node.at[k]->in[q]->id] = true;
    }
    for (int i = 0; i < cut.nin; i++) if (!cone[cut.in[i]]) cut.in[i--] = cut.in[--cut.nin];
    x.print = true;
    Verdict v = apart(o, cut_work, &x, LIMIT_S);
    printf("  %s\n", verdict_name[v]);
    arena_free(a);
}

static bool seed_fails(const Args *o, uint64_t seed)
{
    Single s = { .seed = seed, .steps = o->steps };
    Verdict v = apart(o, single_work, &s, LIMIT_S);
    if (v == SAME) return false;
    fflush(stdout), printf("== seed %llu (%s): %s\n", (unsigned long long)seed, isa_of(o, seed), verdict_name[v]);
    int steps = 0;
    for (int n = 1; o->shrink && n < 40 && !steps; n += n < 8 ? 1 : 4) {
        Single t = { .seed = seed, .steps = n };
        Verdict w = apart(o, single_work, &t, LIMIT_S);
        if (fails(w)) { steps = n; v = w; }
    }
    if (steps) s.steps = steps;
    if (s.steps) printf("with --steps %d\n", s.steps);
    s.print = true;
    s.graph = o->verbose || !o->shrink || v == CRASHED;
    apart(o, single_work, &s, LIMIT_S);
    if (o->shrink && v != SLOW) shrink(o, seed, s.steps, v);
    return true;
}

int main(int argc, char **argv)
{
    Args o = { .seed = 1, .count = 100, .threads = 2, .shrink = true, .fork = true };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(a, "--verbose")) o.verbose = true;
        else if (!strcmp(a, "--kernels")) o.kernels = true;
        else if (!strcmp(a, "--no-fork")) o.fork = o.shrink = false;       /* for a debugger */
        else if (!strcmp(a, "--no-shrink")) o.shrink = false;
        else if (i + 1 == argc) { fprintf(stderr, "fuzz_graph: %s needs a value or is not known\n", a); return 2; }
        else if (i++, !strcmp(a, "--seed")) o.seed = strtoull(v, NULL, 10);
        else if (!strcmp(a, "--count")) o.count = atoi(v);
        else if (!strcmp(a, "--steps")) o.steps = atoi(v);
        else if (!strcmp(a, "--seconds")) o.seconds = atof(v);
        else if (!strcmp(a, "--isa")) o.isa = v;
        else if (!strcmp(a, "--threads")) o.threads = atoi(v);
        else if (!strcmp(a, "--cache")) o.cache = v;
        else { fprintf(stderr, "fuzz_graph: unknown option %s\n", a); return 2; }
    }
    double start = time_now();
    int passed = 0, failed = 0;
    for (int done = 0; done < o.count && (o.seconds <= 0 || time_now() - start < o.seconds);) {
        uint64_t seed = o.seed + (uint64_t)done;
        int n = BATCH - (int)(seed % BATCH);         /* batches end at multiples: each has one instruction set */
        if (n > o.count - done) n = o.count - done;
        Range r = { seed, n };
        Verdict together = n == 1 ? DIFFERS : apart(&o, batch_work, &r, LIMIT_S);
        int wrong = 0;
        for (int i = 0; together != SAME && i < n; i++) wrong += seed_fails(&o, seed + (uint64_t)i);
        if (n > 1 && together != SAME && together != SLOW && !wrong) {       /* as serious as a graph that is wrong by itself */
            printf("== seeds %llu to %llu: %s together, right one by one\n", (unsigned long long)seed, (unsigned long long)seed + (unsigned)n - 1, verdict_name[together]);
            wrong = 1;
        }
        failed += wrong;
        passed += n - wrong;
        done += n;
    }
    printf("%d graphs, %.1f s\n%d passed, %d failed, 0 skipped\n", passed + failed, time_now() - start, passed, failed);
    return failed != 0;
}
