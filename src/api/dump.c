/* A segment as the log and the dump folder show it: the graph of primitives, which of its nodes form which kernel, the kernels' sources.
 *
 * SN_DEBUG prints them: 3 the plan, 5 the graph (and 4 each source, as soon as it is made). SN_WHY=1 prints each
 * edge that was not fused. SN_DUMP names a folder for all of it, a set of files for each segment: 000-graph.txt, 000-graph.dot, 000-plan.txt,
 * 000-kernels.c. Files of earlier runs are not overwritten: the number goes on. */
#include "api/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *origin_str(Arena *a, const Graph *g, const Node *n)
{
    const Origin *o = &g->origin.at[n->origin];
    if (!o->op) return prim_info[n->op].name;
    return o->name && o->name[0] ? arena_fmt(a, "%s '%s'", o->op, o->name) : o->op;
}

/* "kernel 0 rows over [N,768], reduces axes 1: %3 add, %4 max; stores %9 of LayerNormalization 'y'" */
static void plan_print(Text *t, const Segment *s)
{
    for (int i = 0; i < s->plan->nkernel; i++) {
        const Subgraph *k = &s->plan->kernel[i];
        text_add(t, "kernel %d %s over [", i, sub_kind_name[k->kind]);
        for (int j = 0; j < k->rank; j++) {
            if (j) text_add(t, ",");
            dim_print(t, s->g, k->space[j]);
        }
        text_add(t, "]");
        for (int j = 0, n = 0; j < k->rank; j++)
            if (k->rows >> j & 1) text_add(t, "%s %d", n++ ? "" : k->kind == SUB_scan ? ", runs along axis" : ", reduces axes", j);
        text_add(t, "%s:", s->plan->once[i] ? ", once" : "");
        for (int j = 0; j < k->nnode; j++) text_add(t, "%s %%%d %s", j ? "," : "", k->node[j]->id, prim_info[k->node[j]->op].name);
        for (int j = 0; j < k->nstore; j++)
            text_add(t, "%s %%%d (%s)", j ? "," : "; stores", k->store[j].into->id, origin_str(t->arena, s->g, k->store[j].into));
        text_add(t, "\n");
    }
}

static void refusals_print(Text *t, const Segment *s)
{
    for (int i = 0; i < s->plan->refusal.n; i++) {
        const Refusal *r = &s->plan->refusal.at[i];
        text_add(t, "not fused: %%%d (%s) and %%%d (%s)%s%s: %s\n", r->from->id, origin_str(t->arena, s->g, r->from), r->to->id, origin_str(t->arena, s->g, r->to),
            r->rule[0] ? ", " : "", r->rule, r->why);
    }
}

/* Line by line: a line of the log has a limit. */
static void log_text(const Ctx *cx, int level, const Text *t)
{
    for (const char *p = t->n ? t->at : "", *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        log_line(cx, level, "%.*s", (int)(end - p), p);
    }
}

static void dump_file(Ctx *cx, Arena *a, int number, const char *name, const Text *t)
{
    char why[256];
    const char *path = path_join(a, cx->opt.dump, arena_fmt(a, "%03d-%s", number, name));
    if (t->n && file_write(path, t->at, t->n, why, sizeof why) != E_OK) fail(cx, E_IO, "SN_DUMP: %s: %s", path, why);
}

void segment_tell(Ctx *cx, Segment *s)
{
    const Options *o = &cx->opt;
    const char *dir = o->dump && o->dump[0] ? o->dump : NULL;
    if (o->debug < 3 && !o->why && !dir) return;
    struct stat st;
    Arena *a = arena_new(cx);
    Text graph = { .arena = a }, dot = { .arena = a }, plan = { .arena = a }, why = { .arena = a };
    graph_print(&graph, s->g);
    plan_print(&plan, s);
    refusals_print(&why, s);
    log_text(cx, 5, &graph);
    log_text(cx, 3, &plan);
    if (o->why) log_text(cx, 0, &why);
    if (dir) {
        if (mkdir(dir, 0777) && errno != EEXIST) fail(cx, E_IO, "SN_DUMP: %s: %s", dir, strerror(errno));
        while (s->dump < 999 && stat(path_join(a, dir, arena_fmt(a, "%03d-graph.txt", s->dump)), &st) == 0) s->dump++;
        graph_dot(&dot, s->g, s->plan->home);
        if (why.n) text_put(&plan, why.at, why.n);
        dump_file(cx, a, s->dump, "graph.txt", &graph);
        dump_file(cx, a, s->dump, "graph.dot", &dot);
        dump_file(cx, a, s->dump, "plan.txt", &plan);
    }
    arena_free(a);
}

void segment_tell_kernels(Ctx *cx, const Segment *s)
{
    if (!cx->opt.dump || !cx->opt.dump[0]) return;
    Arena *a = arena_new(cx);
    Text source = { .arena = a };
    for (int i = 0; i < s->npart; i++)
        if (s->part[i].loops) text_add(&source, "%s\n", s->part[i].src.text);
    dump_file(cx, a, s->dump, "kernels.c", &source);
    arena_free(a);
}
