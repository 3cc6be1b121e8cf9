/* Files made of a model: C source and its header, weights, objects, shared libraries, packages. */
#include "api/aot.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void write_file(Ctx *cx, const char *path, const void *data, size_t n)
{
    char why[256];
    if (file_write(path, data, n, why, sizeof why) != E_OK) fail(cx, E_IO, "%s: %s", path, why);
}

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

/* "dir/Net-1.c" is net_1. */
static const char *stem_of(Ctx *cx, Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    char *s = arena_fmt(a, "%.*s", (int)(dot ? dot - base : (long)strlen(base)), base);
    for (char *p = s; *p; p++) *p = isalnum((unsigned char)*p) ? (char)tolower((unsigned char)*p) : '_';
    if (!s[0]) fail(cx, E_INVALID, "'%s' has no name before its ending", path);
    return isdigit((unsigned char)s[0]) ? arena_fmt(a, "model_%s", s) : s;
}

/* Compiles the source in a folder of its own. */
typedef struct AotBuild { const AotExport *e; const AotFiles *f; Arena *a; const char *stem, *dir, *isa, *bin; bool object, package; } AotBuild;

static void build_guarded(Ctx *cx, void *arg)
{
    AotBuild *b = arg;
    Arena *a = b->a;
    const char *source = path_join(a, b->dir, arena_fmt(a, "%s.c", b->stem)), *made = path_join(a, b->dir, b->object ? "made.o" : "made.so");
    write_file(cx, source, b->f->source, strlen(b->f->source));
    write_file(cx, path_join(a, b->dir, arena_fmt(a, "%s.h", b->stem)), b->f->header, strlen(b->f->header));
    if (b->e->weights == AOT_BIN) write_file(cx, path_join(a, b->dir, b->bin), b->f->weights ? b->f->weights : (const uint8_t *)"", b->f->nweights);
    const char *words[] = { "-std=c11", "-O2", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-w", "-fPIC", b->object ? "-c" : "-shared", arena_fmt(a, "-Wa,-I%s", b->dir), source, "-o", made, b->object ? "-DMODEL_OBJECT" : "-lm",
        b->package ? "-DMODEL_CALL" : NULL };
    RtError e = { .launch = -1 };
    int n = (int)COUNT_OF(words) - (b->package ? 0 : 1);
    if (compiler_run(&cx->opt, n, words, cx->cancel, &e) != E_OK) fail(cx, e.code, "%s", e.text);
    if (b->package) {
        package_write(cx, a, b->e, b->f, b->isa, made, b->e->weights == AOT_FILE ? NULL : b->bin);
        return;
    }
    File f;
    char why[256];
    if (file_map(made, &f, why, sizeof why) != E_OK) fail(cx, E_IO, "%s: %s", made, why);
    Status st = file_write(b->e->path, f.data, f.size, why, sizeof why);
    file_unmap(&f);
    if (st != E_OK) fail(cx, E_IO, "%s: %s", b->e->path, why);
}

void aot_export(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *args, const AotExport *e, AotFiles *f)
{
    bool c = ends_in(e->path, ".c"), object = ends_in(e->path, ".o"), shared = ends_in(e->path, ".so"), package = ends_in(e->path, ".sinter");
    if (!c && !object && !shared && !package) fail(cx, E_INVALID, "the file is to be '%s', wanted a name that ends in .c, .o, .so or .sinter", e->path);
    const char *dir = path_dir(a, e->path), *stem = stem_of(cx, a, e->path), *isa = e->isa;
    if (!isa) isa = c ? "plain" : "native";
    if (!strcmp(isa, "native")) {
        RtError er = { .launch = -1 };
        Device *d = NULL;
        Options opt = cx->opt;
        opt.isa = NULL;
        if (dev_cpu.open(&d, &opt, &er) != E_OK) fail(cx, er.code, "%s", er.text);
        isa = arena_str(a, dev_cpu.isa(d));
        dev_cpu.close(d);
    }
    if (!strcmp(isa, "amx")) isa = "avx512bf16";     /* the system gives the unit for tiles to who asks, which is the device */
    AotOptions o = { .name = stem, .isa = isa, .weights = package ? AOT_POINTER : e->weights, .bin = arena_fmt(a, "%s.bin", stem), .threads = e->threads, .nrange = e->nrange, .range = e->range,
        .command = e->command };
    aot_compile(cx, a, m, args, &o, f);
    if (!package) write_file(cx, path_join(a, dir, arena_fmt(a, "%s.h", stem)), f->header, strlen(f->header));
    if (e->weights != AOT_FILE) write_file(cx, path_join(a, dir, o.bin), f->weights ? f->weights : (const uint8_t *)"", f->nweights);
    if (c) { write_file(cx, e->path, f->source, strlen(f->source)); return; }
    char work[CACHE_PATH], why[256];
    Cache none = { .on = false };
    if (!work_make(&none, true, work, why, sizeof why)) fail(cx, E_IO, "%s", why);
    AotBuild b = { .e = e, .f = f, .a = a, .stem = stem, .dir = work, .isa = isa, .bin = o.bin, .object = object, .package = package };
    Status st = guard_call(cx, build_guarded, &b);
    work_remove(work);
    if (st != E_OK) fail_again(cx);
}
