/* Packages: a compiled model in one file, which needs no compiler where it runs.
 *
 *   64 bytes   "SINTERPK", format, length of the plan, of the code, of the weights, hash of all of it
 *   plan       JSON: version, instruction set, inputs, outputs, sizes, memory
 *   code       a shared object made of the C file that aot.c prints, at a multiple of 64
 *   weights    at a multiple of 64, read where they are; or in a file beside it, of which the plan has name and hash
 *
 * The hash is over the whole file with the hash's own place zeroed, so no flipped bit goes unnoticed. The code is loaded from a temporary file. */
#include "api/api.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PACKAGE_FORMAT = 1 };
typedef struct PackageHead { char magic[8]; uint32_t format, pad; uint64_t plan, code, weights, hash, zero[2]; } PackageHead;
static const char package_magic[8] = { 'S', 'I', 'N', 'T', 'E', 'R', 'P', 'K' };

#if defined(__x86_64__)
static const char machine[] = "x86-64";
#elif defined(__aarch64__)
static const char machine[] = "aarch64";
#else
static const char machine[] = "other";
#endif

typedef int (*PackageCall)(const void *const *in, void *const *out, const int64_t *size, int64_t *dims, void *workspace, const void *weights, const void *threads);

/* The hook of the C file, see aot_print.c. */
typedef struct PackageThreads {
    void *self;
    int (*count)(void *self);
    void (*run)(void *self, void (*part)(void *job, int64_t lo, int64_t hi, int slot), void *job, int64_t total, int64_t grain);
} PackageThreads;

typedef struct PackageSpace { struct PackageSpace *next; void *at; } PackageSpace;

struct Package {
    Arena *arena;
    const char *path;
    File file, bin;
    void *handle;
    PackageCall call;
    const uint8_t *weights;
    int64_t workspace;
    int nin, nout, nsize, threads;
    AotPort *in, *out; AotSize *size;
    OnnxModel model;
    Pool *pool;
    pthread_mutex_t lock; bool locked;  /* over idle */
    PackageSpace *idle;
};

static size_t place64(size_t n) { return (n + 63) & ~(size_t)63; }

/* ---- writing ----------------------------------------------------------------------------------------------------------------------------- */
static json_t *ports_json(int n, const AotPort *p)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *dims = json_array();
        for (int k = 0; k < p[i].rank; k++) json_array_append_new(dims, json_integer(p[i].dims[k]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I}", "name", p[i].name, "dtype", dtype_info[p[i].dt].name, "dims", dims, "bytes", (json_int_t)p[i].bytes));
    }
    return list;
}

static void put(uint8_t *file, size_t *at, const void *data, size_t n)
{
    if (n) memcpy(file + *at, data, n);
    *at = place64(*at + n);
}

void package_write(Ctx *cx, Arena *a, const AotExport *e, const AotFiles *f, const char *isa, const char *shared_object, const char *bin)
{
    json_t *size = json_array();
    for (int i = 0; i < f->nsize; i++) json_array_append_new(size, json_pack("{s:s, s:I, s:I}", "name", f->size[i].name, "least", (json_int_t)f->size[i].lo, "most", (json_int_t)f->size[i].hi));
    json_t *plan = json_pack("{s:s, s:s, s:s, s:I, s:i, s:i, s:o, s:o, s:o, s:I}", "sinter", SINTER_VERSION, "machine", machine, "isa", isa, "workspace", (json_int_t)f->workspace, "threads", e->threads,
        "kernels", f->kernels, "inputs", ports_json(f->nin, f->in), "outputs", ports_json(f->nout, f->out), "sizes", size, "weights", (json_int_t)f->nweights);
    if (plan && bin) {
        json_object_set_new(plan, "weights_file", json_string(bin));
        json_object_set_new(plan, "weights_hash", json_integer((json_int_t)hash_bytes(f->weights, f->nweights, 0)));
    }
    size_t nplan = plan ? json_dumpb(plan, NULL, 0, JSON_INDENT(1)) : 0;
    char *text = arena_alloc(a, nplan + 1);
    if (plan) json_dumpb(plan, text, nplan, JSON_INDENT(1));
    json_decref(plan);
    if (!nplan) fail(cx, E_NOMEM, "no memory for the package's plan");
    File code;
    char why[256];
    if (file_map(shared_object, &code, why, sizeof why) != E_OK) fail(cx, E_IO, "%s: %s", shared_object, why);
    size_t inside = bin ? 0 : f->nweights, n = sizeof(PackageHead) + place64(nplan) + place64(code.size) + place64(inside), at = sizeof(PackageHead);
    uint8_t *file = block_alloc(n);
    if (!file) { file_unmap(&code); fail(cx, E_NOMEM, "no memory for %zu bytes", n); }
    memset(file, 0, n);
    PackageHead h = { .format = PACKAGE_FORMAT, .plan = nplan, .code = code.size, .weights = inside };
    memcpy(h.magic, package_magic, sizeof h.magic);
    memcpy(file, &h, sizeof h);
    put(file, &at, text, nplan);
    put(file, &at, code.data, code.size);
    put(file, &at, f->weights, inside);
    file_unmap(&code);
    h.hash = hash_bytes(file, n, 0);
    memcpy(file, &h, sizeof h);
    Status st = file_write(e->path, file, n, why, sizeof why);
    block_free(file);
    if (st != E_OK) fail(cx, E_IO, "%s: %s", e->path, why);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------------------------- */
bool package_is(const char *path)
{
    File f;
    char why[8];
    size_t length = strlen(path);
    if (length > 7 && !strcmp(path + length - 7, ".sinter")) return true;
    if (file_map(path, &f, why, sizeof why) != E_OK) return false;
    bool is = f.size >= sizeof package_magic && !memcmp(f.data, package_magic, sizeof package_magic);
    file_unmap(&f);
    return is;
}

static void check_file(Ctx *cx, Package *p, PackageHead *h)
{
    char why[256];
    if (file_map(p->path, &p->file, why, sizeof why) != E_OK) fail(cx, E_IO, "%s: %s", p->path, why);
    const File *f = &p->file;
    if (f->size < sizeof *h || memcmp(f->data, package_magic, sizeof package_magic)) fail(cx, E_FORMAT, "%s: no package of sinter, which begins with SINTERPK", p->path);
    memcpy(h, f->data, sizeof *h);
    if (h->format != PACKAGE_FORMAT) fail(cx, E_UNSUPPORTED, "%s: a package of format %" PRIu32 ", wanted %d; make it anew with sinter compile", p->path, h->format, PACKAGE_FORMAT);
    size_t left = f->size - sizeof *h;
    bool fits = h->plan <= left && h->code <= left && h->weights <= left && place64(h->plan) + place64(h->code) + place64(h->weights) == left;
    PackageHead zeroed = *h;
    zeroed.hash = 0;
    if (fits) {
        uint8_t *copy = block_alloc(f->size);
        if (!copy) fail(cx, E_NOMEM, "%s: no memory for %zu bytes", p->path, f->size);
        memcpy(copy, f->data, f->size);
        memcpy(copy, &zeroed, sizeof zeroed);
        fits = hash_bytes(copy, f->size, 0) == h->hash;
        block_free(copy);
    }
    if (!fits) fail(cx, E_FORMAT, "%s: the package is damaged: its checksum or length is not what it was when it was made", p->path);
}

static const char *plan_string(Ctx *cx, const Package *p, json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s) fail(cx, E_FORMAT, "%s: the plan has no '%s'", p->path, key);
    return arena_str(p->arena, s);
}

static int64_t plan_number(Ctx *cx, const Package *p, json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_integer(v)) fail(cx, E_FORMAT, "%s: the plan has no '%s'", p->path, key);
    return json_integer_value(v);
}

/* Ports, and the same as a model declares them. */
static AotPort *plan_ports(Ctx *cx, Package *p, json_t *list, int *n, OnnxValue **value)
{
    *n = (int)json_array_size(list);
    AotPort *port = NEWS(p->arena, AotPort, *n + 1);
    *value = NEWS(p->arena, OnnxValue, *n + 1);
    for (int i = 0; i < *n; i++) {
        json_t *o = json_array_get(list, (size_t)i), *dims = json_object_get(o, "dims");
        OnnxDim *d = NEWS(p->arena, OnnxDim, MAX_RANK);
        port[i] = (AotPort){ .name = plan_string(cx, p, o, "name"), .dt = dtype_from_name(plan_string(cx, p, o, "dtype")), .rank = (int)json_array_size(dims), .bytes = plan_number(cx, p, o, "bytes") };
        if (!port[i].dt || port[i].rank > MAX_RANK) fail(cx, E_FORMAT, "%s: the plan's '%s' is not understood", p->path, port[i].name);
        for (int k = 0; k < port[i].rank; k++) {
            int64_t size = port[i].dims[k] = json_integer_value(json_array_get(dims, (size_t)k));
            d[k].value = size < 0 ? -1 : size;
            if (size < 0 && ~size < p->nsize) d[k].sym = p->size[~size].name;
        }
        (*value)[i] = (OnnxValue){ .name = port[i].name, .kind = 't', .dt = port[i].dt, .onnx_dt = dtype_info[port[i].dt].onnx, .rank = port[i].rank, .dims = d };
    }
    return port;
}

static void read_plan(Ctx *cx, Package *p, json_t *o, const char **bin, uint64_t *bin_hash, int64_t *nweights)
{
    const char *version = plan_string(cx, p, o, "sinter"), *of = plan_string(cx, p, o, "machine"), *isa = plan_string(cx, p, o, "isa");
    if (strcmp(version, SINTER_VERSION)) fail(cx, E_UNSUPPORTED, "%s: the package was made by sinter %s, and this is %s; make it anew with sinter compile", p->path, version, SINTER_VERSION);
    if (strcmp(of, machine)) fail(cx, E_DEVICE, "%s: the package is for %s, and this machine is %s", p->path, of, machine);
    if (strcmp(isa, "auto") && strcmp(isa, "plain")) {
        Options opt = cx->opt;
        RtError e = { .launch = -1 };
        Device *d = NULL;
        opt.isa = isa;
        if (dev_cpu.open(&d, &opt, &e) != E_OK) fail(cx, e.code, "%s: the package is for %s: %s", p->path, isa, e.text);
        dev_cpu.close(d);
    }
    p->workspace = plan_number(cx, p, o, "workspace");
    *nweights = plan_number(cx, p, o, "weights");
    int most = (int)plan_number(cx, p, o, "threads");
    if (!p->threads || p->threads > most) p->threads = most;
    json_t *size = json_object_get(o, "sizes");
    p->nsize = (int)json_array_size(size);
    p->size = NEWS(p->arena, AotSize, p->nsize + 1);
    for (int i = 0; i < p->nsize; i++) {
        json_t *s = json_array_get(size, (size_t)i);
        p->size[i] = (AotSize){ plan_string(cx, p, s, "name"), plan_number(cx, p, s, "least"), plan_number(cx, p, s, "most") };
    }
    OnnxGraph *g = NEW(p->arena, OnnxGraph);
    g->name = p->path;
    p->in = plan_ports(cx, p, json_object_get(o, "inputs"), &p->nin, &g->in);
    p->out = plan_ports(cx, p, json_object_get(o, "outputs"), &p->nout, &g->out);
    g->nin = p->nin; g->nout = p->nout;
    p->model = (OnnxModel){ .arena = p->arena, .path = p->path, .graph = g, .producer = "sinter", .producer_version = SINTER_VERSION };
    *bin = json_object_get(o, "weights_file") ? plan_string(cx, p, o, "weights_file") : NULL;
    *bin_hash = *bin ? (uint64_t)plan_number(cx, p, o, "weights_hash") : 0;
}

static void load_code(Ctx *cx, Package *p, const uint8_t *code, size_t n)
{
    char work[CACHE_PATH], why[256];
    Cache none = { .on = false };
    if (!work_make(&none, true, work, why, sizeof why)) fail(cx, E_IO, "%s: %s", p->path, why);
    const char *so = path_join(p->arena, work, "model.so");
    Status st = file_write(so, code, n, why, sizeof why);
    RtError e = { .launch = -1 };
    void *fn = NULL;
    if (st == E_OK) st = object_open(so, "sinter_call", &p->handle, &fn, &e);
    else snprintf(e.text, sizeof e.text, "%s", why);
    work_remove(work);
    if (st != E_OK) fail(cx, E_DEVICE, "%s: its code cannot be loaded: %s", p->path, e.text);
    memcpy(&p->call, &fn, sizeof fn);
}

typedef struct PackageMaking { Arena *a; const char *path; int threads; Package *p; json_t *plan; } PackageMaking;

static void open_guarded(Ctx *cx, void *arg)
{
    PackageMaking *mk = arg;
    Package *p = mk->p = NEW(mk->a, Package);
    p->arena = mk->a;
    p->path = arena_str(p->arena, mk->path);
    p->threads = mk->threads;
    p->locked = !pthread_mutex_init(&p->lock, NULL);
    PackageHead h;
    check_file(cx, p, &h);
    const uint8_t *plan = p->file.data + sizeof h, *code = plan + place64(h.plan), *weights = code + place64(h.code), *found = weights;
    json_error_t wrong;
    mk->plan = json_loadb((const char *)plan, h.plan, 0, &wrong);
    if (!mk->plan) fail(cx, E_FORMAT, "%s: the plan is no JSON: %s", p->path, wrong.text);
    const char *bin;
    uint64_t bin_hash;
    int64_t nweights;
    read_plan(cx, p, mk->plan, &bin, &bin_hash, &nweights);
    if (bin) {
        char why[256];
        const char *at = path_join(p->arena, path_dir(p->arena, p->path), bin);
        if (file_map(at, &p->bin, why, sizeof why) != E_OK) fail(cx, E_IO, "%s: its weights are in %s: %s", p->path, at, why);
        if (p->bin.size != (size_t)nweights || hash_bytes(p->bin.data, p->bin.size, 0) != bin_hash) fail(cx, E_FORMAT, "%s: the weights in %s are not those that the package was made with", p->path, at);
        found = p->bin.data;
    }
    p->weights = found;
    load_code(cx, p, code, h.code);
    if (p->threads > 1) p->pool = pool_new(p->threads);
}

Package *package_open(Ctx *cx, const char *path, int threads)
{
    PackageMaking mk = { arena_new(cx), path, threads, NULL, NULL };
    Status st = guard_call(cx, open_guarded, &mk);
    json_decref(mk.plan);
    if (st == E_OK) {
        arena_bind(mk.a, NULL);
        return mk.p;
    }
    if (mk.p) package_close(mk.p);
    else arena_free(mk.a);
    fail_again(cx);
}

void package_close(Package *p)
{
    if (!p) return;
    while (p->idle) { PackageSpace *s = p->idle; p->idle = s->next; block_free(s); }
    if (p->pool) pool_free(p->pool);
    object_close(p->handle);
    file_unmap(&p->file);
    file_unmap(&p->bin);
    if (p->locked) pthread_mutex_destroy(&p->lock);
    arena_free(p->arena);
}

const OnnxModel *package_model(const Package *p) { return &p->model; }

/* ---- running ----------------------------------------------------------------------------------------------------------------------------- */
static int threads_count(void *self) { return ((Package *)self)->threads; }
static void threads_run(void *self, void (*part)(void *job, int64_t lo, int64_t hi, int slot), void *job, int64_t total, int64_t grain)
{
    Package *p = self;
    pool_run(p->pool, p->threads, total, grain, part, job);
}

/* A workspace is kept with its list entry in front. */
static PackageSpace *space_take(Ctx *cx, Package *p)
{
    pthread_mutex_lock(&p->lock);
    PackageSpace *s = p->idle;
    if (s) p->idle = s->next;
    pthread_mutex_unlock(&p->lock);
    if (s) return s;
    s = block_alloc((size_t)p->workspace + 64);
    if (!s) fail(cx, E_NOMEM, "%s: no memory for %" PRId64 " bytes", p->path, p->workspace);
    s->at = (uint8_t *)s + 64;
    return s;
}

static void space_give(Package *p, PackageSpace *s)
{
    pthread_mutex_lock(&p->lock);
    s->next = p->idle;
    p->idle = s;
    pthread_mutex_unlock(&p->lock);
}

static const void **fitting_inputs(Ctx *cx, const Package *p, Arena *a, const Tensor *in, int64_t *size)
{
    const void **at = NEWS(a, const void *, p->nin + 1);
    for (int i = 0; i < p->nin; i++) {
        const AotPort *w = &p->in[i];
        bool fits = in[i].dt == w->dt && in[i].rank == w->rank;
        for (int k = 0; fits && k < w->rank; k++) {
            int64_t want = w->dims[k];
            if (want >= 0) { fits = in[i].dims[k] == want; continue; }
            const AotSize *s = &p->size[~want];
            if (!size[~want]) size[~want] = in[i].dims[k];
            if (in[i].dims[k] != size[~want]) fail(cx, E_INVALID, "%s: input '%s': axis %d has size %lld, and '%s' is %lld", p->path, w->name, k, (long long)in[i].dims[k], s->name, (long long)size[~want]);
            if (size[~want] < s->lo || size[~want] > s->hi)
                fail(cx, E_INVALID, "%s: input '%s': '%s' is %lld, and the package is for %lld to %lld", p->path, w->name, s->name, (long long)size[~want], (long long)s->lo, (long long)s->hi);
        }
        if (!fits) {
            int64_t want[MAX_RANK];
            for (int k = 0; k < w->rank; k++) want[k] = w->dims[k] < 0 ? -1 : w->dims[k];
            fail(cx, E_INVALID, "%s: input '%s' is %s%s, wanted %s%s", p->path, w->name, dtype_info[in[i].dt].name, shape_str(a, in[i].rank, in[i].dims), dtype_info[w->dt].name, shape_str(a, w->rank, want));
        }
        Tensor t = in[i];
        if (!tensor_dense(&t)) {
            Tensor *d = tensor_new(a, cx, t.dt, t.rank, t.dims);
            for (int64_t e = 0, n = tensor_count(d); e < n; e++) memcpy((uint8_t *)d->data + (size_t)e * dtype_size(t.dt), tensor_at(&t, e), dtype_size(t.dt));
            t = *d;
        }
        at[i] = t.data ? t.data : "";
    }
    return at;
}

typedef struct PackageJob { Package *p; Arena *a; const Tensor *in; Tensor *out; const size_t *out_bytes; PackageSpace *space; } PackageJob;

static void package_run_guarded(Ctx *cx, void *arg)
{
    PackageJob *j = arg;
    Package *p = j->p;
    Arena *a = j->a;
    int64_t *size = NEWS(a, int64_t, p->nsize + 1), *dims = NEWS(a, int64_t, 16 * p->nout + 16);
    const void **in = fitting_inputs(cx, p, a, j->in, size);
    void **out = NEWS(a, void *, p->nout + 1);
    for (int i = 0; i < p->nout; i++) {              /* a buffer of the caller that may be too small for the largest result is filled afterwards */
        bool direct = j->out[i].data && j->out_bytes && j->out_bytes[i] >= (size_t)p->out[i].bytes;
        out[i] = direct ? j->out[i].data : arena_alloc(a, (size_t)p->out[i].bytes + 1);
    }
    j->space = space_take(cx, p);
    PackageThreads t = { p, threads_count, threads_run };
    int st = p->call(in, out, size, dims, j->space->at, p->weights, p->pool ? &t : NULL);
    static const char *const said[] = { "", "a size, or the number of results, is outside what the package is for", "an input that decides about shapes or branches has other values than the package was made for",
        "an index is outside its axis" };
    if (st) fail(cx, E_INVALID, "%s: %s", p->path, st > 0 && st < 4 ? said[st] : "failed");
    for (int i = 0; i < p->nout; i++) {
        void *own = j->out[i].data;
        tensor_init(cx, &j->out[i], p->out[i].dt, p->out[i].rank, dims + 16 * i);
        size_t n = tensor_bytes(&j->out[i]);
        if (own && j->out_bytes && n > j->out_bytes[i]) fail(cx, E_INVALID, "output '%s' needs %zu bytes, the buffer has %zu", p->out[i].name, n, j->out_bytes[i]);
        if (own && own != out[i]) memcpy(own, out[i], n);
        j->out[i].data = own ? own : out[i];
    }
}

void package_run(Ctx *cx, Package *p, Arena *a, const Tensor *in, Tensor *out, const size_t *out_bytes)
{
    PackageJob j = { p, a, in, out, out_bytes, NULL };
    ctx_poll(cx);
    Status st = guard_call(cx, package_run_guarded, &j);
    if (j.space) space_give(p, j.space);
    if (st != E_OK) fail_again(cx);
}
