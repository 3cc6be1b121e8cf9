/* What tuning found, applied: schedules of kernels and ways to cut a graph, from the records beside the compiled kernels (src/tune).
 *
 * A kernel is looked up by the name that it has with its own schedule (a hash of its text, so of its structure), by the bucket of its sizes, the machine and
 * the compiler; a graph by all its kernels. Without a file of records nothing of this costs anything. */
#include "api/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

char *tuned_path(Arena *a, const Options *opt)
{
    Cache c;
    if (opt->records) return opt->records[0] ? arena_str(a, opt->records) : NULL;
    cache_open(&c, opt);
    return c.on ? path_join(a, c.dir, "tuned.sqlite") : NULL;
}

void tuned_name(Arena *a, Target *t)
{
    char *all = arena_str(a, t->api->describe(t->device)), *isa = strstr(all, arena_fmt(a, ", %s, ", t->isa));
    t->machine = all;
    t->compiler = "";
    if (!isa) return;
    t->compiler = isa + strlen(t->isa) + 4;
    isa[strlen(t->isa) + 2] = 0;
}

void tuned_open(Ctx *cx, Arena *a, Target *t, const Options *opt)
{
    char *path = tuned_path(a, opt);
    t->records = path ? records_open(cx, path, false) : NULL;
    if (t->records) tuned_name(a, t);
}

static RecordKey tuned_key(const Target *t, const char *kernel, const char *bucket) { return (RecordKey){ kernel, bucket, t->machine, t->compiler }; }

char *tuned_choice(Arena *a, const Target *t, const Sched *s)
{
    char why[8];
    Lib *l = s->lib && t->api->lib ? t->api->lib(t->device, why, sizeof why) : NULL;
    return l ? arena_fmt(a, "%s by %s", sched_text(a, s), lib_version(l)) : sched_text(a, s);
}

/* A record's choice; a library's counts if it is the version that is there now. */
static Sched choice_sched(Ctx *cx, Arena *a, const Target *t, const char *choice)
{
    Sched s = { 0 };
    char *text = arena_str(a, choice), *by = strstr(text, " by ");
    if (by) *by = 0;
    if (!sched_parse(text, &s) || (by && !s.lib)) return (Sched){ 0 };
    if (s.lib && (list_has(cx->opt.lib, "none") || strcmp(tuned_choice(a, t, &s), choice) != 0)) return (Sched){ 0 };
    return s;
}

enum { LIBRARY_CALLS = 4 };
/* What SN_LIB says about a kernel, which is k by itself. A library reads operands as they lie: those that a run gives are not copied for it. */
static void library_wish(Ctx *cx, const Target *t, const LoopKernel *k, Sched *want)
{
    const Subgraph *sub = k->sub;
    const char *wish = cx->opt.lib;
    bool all = wish && !strcmp(wish, "all"), none = wish && !strcmp(wish, "none");
    if (wish && wish[0] && !all && !none) fail(cx, E_INVALID, "SN_LIB is '%s', wanted all or none", wish);
    if (none || !t->api->lib || t->ahead || sub->kind != SUB_dot) want->lib = 0;
    else if (all && !want->lib) want->lib = LIBRARY_CALLS;
    for (int i = 0; want->lib && i < k->buf.n; i++) if (k->buf.at[i].packed && !sub->constant[k->buf.at[i].node->id]) want->panels = 1;
}

LoopKernel *tuned_lower(Ctx *cx, Segment *s, const Subgraph *sub, const char **structure)
{
    const Target *t = s->target;
    LoopKernel *k = kernel_lower(cx, s->arena, s->g, sub, t->vectors);
    Sched want = { 0 };
    bool records = t->records && !s->opt.plain;
    *structure = NULL;
    if (cx->opt.sched) {
        if (!sched_parse(cx->opt.sched, &want)) fail(cx, E_INVALID, "SN_SCHED: '%s' is no list of knobs of sched.def and values from 1 to 1024", cx->opt.sched);
        library_wish(cx, t, k, &want);
        return kernel_lower_as(cx, s->arena, s->g, sub, t->vectors, &want);
    }
    if (!records && !s->opt.force_kernel && !cx->opt.lib) return k;
    KernelSource src;
    t->dialect->print(cx, s->arena, t->isa, k, &src);
    *structure = src.name;
    if (records) {
        RecordKey key = tuned_key(t, src.name, sched_bucket(s->arena, k));
        const char *choice = records_get(t->records, s->arena, &key);
        if (choice) want = choice_sched(cx, s->arena, t, choice);
    }
    if (s->opt.force_kernel && !strcmp(s->opt.force_kernel, src.name)) want = s->opt.force;
    library_wish(cx, t, k, &want);
    if (!memcmp(&want, &(Sched){ 0 }, sizeof want)) return k;
    log_line(cx, 3, "kernel %s: %s", src.name, sched_text(s->arena, &want));
    return kernel_lower_as(cx, s->arena, s->g, sub, t->vectors, &want);
}

char *tuned_graph(Arena *a, const Segment *s)
{
    uint64_t h = 0;
    for (int i = 0; i < s->npart; i++) h = hash_bytes(s->part[i].structure, strlen(s->part[i].structure), h);
    return arena_fmt(a, "graph_%016" PRIx64, h);
}

const char *tuned_cut(Ctx *cx, Segment *s)
{
    if (!s->target->records || s->opt.plain || !s->opt.fuse) return NULL;
    RecordKey key = tuned_key(s->target, tuned_graph(s->arena, s), "");
    const char *cut = records_get(s->target->records, s->arena, &key);
    if (cut) log_line(cx, 3, "graph %s: %s", key.kernel, cut);
    return cut;
}
