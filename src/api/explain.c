/* The evidence of a program as text for people and as JSON: segments, their kernels with the operators in each, bytes, times, what was not fused and why.
 *
 * Logical bytes are counted: each buffer that a kernel reads or writes, once. Times are measured, by program_profile; they stand in columns of their own. */
#include "api/api.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

char *bytes_str(Arena *a, int64_t n)
{
    static const char *const unit[] = { "B", "kB", "MB", "GB", "TB" };
    double v = (double)n;
    size_t k = 0;
    for (; fabs(v) >= 999.5 && k + 1 < COUNT_OF(unit); k++) v /= 1000;
    return arena_fmt(a, k == 0 ? "%.0f %s" : v < 9.995 ? "%.2f %s" : v < 99.95 ? "%.1f %s" : "%.0f %s", v, unit[k]);
}

static const char *time_str(Arena *a, double s)
{
    return s < 1e-3 ? arena_fmt(a, "%.2f us", s * 1e6) : s < 1 ? arena_fmt(a, "%.2f ms", s * 1e3) : arena_fmt(a, "%.3f s", s);
}

static bool is_generated(const KernelEvidence *k) { return k->source && !k->interpreted && !k->lib; }

EvidenceSum evidence_sum(Arena *a, int n, const SegmentEvidence *e)
{
    EvidenceSum s = { 0 };
    MapStr *seen = mapstr_new(a);       /* operator -> itself when generated, "" when a part of it is not */
    VEC(const char *) ops = { 0 };
    for (int i = 0; i < n; i++) {
        s.kernels += e[i].launches;
        s.const_bytes += e[i].const_bytes;
        if (e[i].temp_bytes > s.temp_peak) s.temp_peak = e[i].temp_bytes;
        for (int j = 0; j < e[i].nkernel; j++) {
            const KernelEvidence *k = &e[i].kernel[j];
            for (int m = 0; m < k->nnode; m++) {
                void **at = mapstr_at(seen, k->node[m]);
                if (!*at) vec_push(a, &ops, k->node[m]);
                if (!*at || !is_generated(k)) *at = (void *)(uintptr_t)(is_generated(k) ? k->node[m] : "");
            }
            if (k->once) continue;
            s.read_bytes += k->read_bytes;
            s.write_bytes += k->write_bytes;
            s.seconds += k->seconds;
            if (is_generated(k)) s.covered_seconds += k->seconds;
        }
    }
    s.ops = ops.n;
    for (int i = 0; i < ops.n; i++) s.covered_ops += ((const char *)mapstr_get(seen, ops.at[i]))[0] != 0;
    return s;
}

static bool wants_source(const ExplainOptions *o, const KernelEvidence *k)
{
    return o->source && k->source && !k->joined && (!o->kernel || strncmp(k->name, o->kernel, strlen(o->kernel)) == 0);
}

static const char *how(const KernelEvidence *k)
{
    return k->interpreted ? "interpreted" : k->lib ? "library" : !k->source ? "call" : k->once ? "once" : k->kind;
}

/* Operators of a kernel on lines of about 100 columns, from column `from` on. */
static void add_nodes(Text *t, const KernelEvidence *k, int from)
{
    int at = from;
    for (int i = 0; i < k->nnode; i++) {
        int n = (int)strlen(k->node[i]) + 2;
        if (i && at + n > 140) {
            text_add(t, "\n%*s", from, "");
            at = from;
        }
        text_add(t, "%s%s", k->node[i], i + 1 < k->nnode ? ", " : "");
        at += n;
    }
    text_add(t, "\n");
}

static void segment_text(Arena *a, Text *t, const SegmentEvidence *e, const ExplainOptions *o)
{
    bool timed = false;
    for (int j = 0; j < e->nkernel; j++) timed |= e->kernel[j].seconds > 0;
    text_add(t, "  %-20s %-12s %10s %10s %11s  %s\n", "", "", "logical", "logical", "measured", "");
    text_add(t, "  %-20s %-12s %10s %10s %11s  %s\n", "kernel", "kind", "read", "written", "time", "operators");
    for (int j = 0; j < e->nkernel; j++) {
        const KernelEvidence *k = &e->kernel[j];
        text_add(t, "  %-20s %-12s %10s %10s", k->name, how(k), bytes_str(a, k->read_bytes), bytes_str(a, k->write_bytes));
        text_add(t, " %11s  ", k->joined ? "same launch" : timed && !k->once ? time_str(a, k->seconds) : "-");
        add_nodes(t, k, 2 + 20 + 1 + 12 + 1 + 10 + 1 + 10 + 1 + 11 + 2);
        if (k->note) text_add(t, "  %-20s %s\n", "", k->note);
        if (k->lib) text_add(t, "  %-20s runs in %s\n", "", k->lib_note);
    }
    EvidenceSum s = evidence_sum(a, 1, e);
    text_add(t, "  %-20s %-12s %10s %10s", "each run", arena_fmt(a, "%d launches", s.kernels), bytes_str(a, s.read_bytes), bytes_str(a, s.write_bytes));
    text_add(t, " %11s\n", timed ? time_str(a, s.seconds) : "-");
    text_add(t, "  temporary memory %s, results kept of kernels that run once %s\n", bytes_str(a, e->temp_bytes), bytes_str(a, e->const_bytes));
    text_add(t, "  import %.1f ms, plan %.1f ms, print %.1f ms, build %.1f ms: %d kernels asked, %d different, %d in memory, %d on disk, %d compiled\n",
        e->import_s * 1e3, e->plan_s * 1e3, e->print_s * 1e3, e->build_s * 1e3, e->build.asked, e->build.unique, e->build.from_memory, e->build.from_disk,
        e->build.compiled);
    for (int j = 0; j < e->nguard; j++) text_add(t, "  %s %s\n", j ? "               " : "holds as long as", e->guard[j]);
    for (int j = 0; j < e->nrewrite; j++) text_add(t, "  rule %s\n", e->rewrite[j]);
    for (int j = 0; j < e->nidle; j++) text_add(t, "  rule %s\n", e->idle[j]);
    for (int j = 0; j < e->ncarrier; j++) text_add(t, "  %s\n", e->carrier[j]);
    if (o->why)
        for (int j = 0; j < e->nrefusal; j++) text_add(t, "  %s\n", e->refusal[j]);
    if (o->why && !e->nrefusal) text_add(t, "  nothing that could be one kernel stayed apart\n");
    for (int j = 0; o->why && j < e->nkernel; j++) {
        const KernelEvidence *k = &e->kernel[j];
        if (k->lib_note && !k->lib) text_add(t, "  kernel %s cannot run in a library: %s\n", k->name, k->lib_note);
        else if (k->lib_fits && !k->lib) text_add(t, "  kernel %s could run in a library, and was not found faster there (sinter tune measures it)\n", k->name);
    }
    for (int j = 0; j < e->nkernel; j++)
        if (wants_source(o, &e->kernel[j])) text_add(t, "\n%s\n", e->kernel[j].source);
}

void explain_text(Ctx *cx, Text *t, Program *p, const ExplainOptions *o)
{
    int n;
    Arena *a = t->arena;
    const SegmentEvidence *e = program_evidence(cx, p, a, &n);
    const char *line = program_compile_line(p);
    text_add(t, "%s\n", program_describe(p));
    if (line && line[0]) text_add(t, "kernels built by: %s\n", line);
    for (int i = 0; i < n; i++) {
        text_add(t, "\nsegment %d of %d: %d kernels\n", i + 1, n, e[i].nkernel);
        segment_text(a, t, &e[i], o);
        if (e[i].why) text_add(t, "  ends because %s\n", e[i].why);
    }
    EvidenceSum s = evidence_sum(a, n, e);
    text_add(t, "\nin all: %d launches, %d of %d operators in generated kernels, %s read and %s written (logical), at most %s temporary\n", s.kernels,
        s.covered_ops, s.ops, bytes_str(a, s.read_bytes), bytes_str(a, s.write_bytes), bytes_str(a, s.temp_peak));
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------------------- */

static json_t *strings_json(int n, const char *const *s)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_string_nocheck(s[i]));
    return list;
}

static json_t *numbers_json(int n, const int *x)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(x[i]));
    return list;
}

static json_t *kernel_json(const KernelEvidence *k, const ExplainOptions *o)
{
    json_t *j = json_pack("{s:s, s:s, s:o, s:I, s:I, s:b, s:b, s:b}", "name", k->name, "kind", k->kind ? k->kind : "call", "operators",
        strings_json(k->nnode, k->node), "read_bytes", (json_int_t)k->read_bytes, "write_bytes", (json_int_t)k->write_bytes, "once", k->once, "interpreted",
        k->interpreted, "generated", is_generated(k));
    json_object_set_new(j, "ms", k->seconds > 0 ? json_real(k->seconds * 1e3) : json_null());
    if (k->nmove) json_object_set_new(j, "moves", strings_json(k->nmove, k->move));
    if (k->nfrom) json_object_set_new(j, "from", numbers_json(k->nfrom, k->from));
    if (k->joined) json_object_set_new(j, "joined", json_true());
    if (k->lib) json_object_set_new(j, "library", json_string_nocheck(k->lib_note));
    if (k->note) json_object_set_new(j, "compiler", json_string_nocheck(k->note));
    if (wants_source(o, k)) json_object_set_new(j, "source", json_string_nocheck(k->source));
    return j;
}

static json_t *segment_json(const SegmentEvidence *e, const ExplainOptions *o)
{
    json_t *list = json_array();
    for (int j = 0; j < e->nkernel; j++) json_array_append_new(list, kernel_json(&e->kernel[j], o));
    json_t *s = json_pack("{s:o, s:i, s:I, s:I, s:o, s:s?, s:f, s:f, s:f, s:f}", "kernels", list, "launches", e->launches, "temp_bytes", (json_int_t)e->temp_bytes,
        "const_bytes", (json_int_t)e->const_bytes, "guards", strings_json(e->nguard, e->guard), "ends_because", e->why, "import_ms", e->import_s * 1e3,
        "plan_ms", e->plan_s * 1e3, "print_ms", e->print_s * 1e3, "build_ms", e->build_s * 1e3);
    json_object_set_new(s, "build", json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "asked", e->build.asked, "unique", e->build.unique, "from_memory",
        e->build.from_memory, "from_disk", e->build.from_disk, "compiled", e->build.compiled, "processes", e->build.processes));
    json_object_set_new(s, "rewrites", strings_json(e->nrewrite, e->rewrite));
    json_object_set_new(s, "rewrites_idle", strings_json(e->nidle, e->idle));
    json_object_set_new(s, "carriers", strings_json(e->ncarrier, e->carrier));
    if (o->why) json_object_set_new(s, "refusals", strings_json(e->nrefusal, e->refusal));
    return s;
}

struct json_t *explain_json(Ctx *cx, Arena *a, Program *p, const ExplainOptions *o)
{
    int n;
    const SegmentEvidence *e = program_evidence(cx, p, a, &n);
    EvidenceSum s = evidence_sum(a, n, e);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, segment_json(&e[i], o));
    return json_pack("{s:s, s:s?, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o}", "device", program_describe(p), "compiler", program_compile_line(p), "variants",
        program_variants(p), "launches", s.kernels, "operators", s.ops, "operators_generated", s.covered_ops, "read_bytes", (json_int_t)s.read_bytes,
        "write_bytes", (json_int_t)s.write_bytes, "temp_peak", (json_int_t)s.temp_peak, "segments", list);
}
