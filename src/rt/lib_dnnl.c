/* Contractions by oneDNN's C API, versions 2.6 to 3.x, loaded at run time.
 *
 * Nothing of it is needed to build: what is called is declared here, memory descriptors are opaque (version 2 has them as structures, which get
 * room enough), and the few constants that differ stand in pairs. What is called how often is planned by lib_plan.c. Primitives are made for one
 * thread and run on whichever thread of the pool takes the call; so the library starts no threads (OpenMP is told so around each use). Weights
 * that never change are laid out once for each form that is asked for. Lower and upper bounds lose NaN in the library; unless that may be, they are applied here, while the part lies in the cache. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIMS = 12, MD_ROOM = 2048, DESC_ROOM = 16384, ARGS = 6 + LIB_ADDENDS, ALIGN = 64 };
enum { F32 = 3, CPU = 1, INFERENCE = 0x60, CONV_DIRECT = 1, STREAM_DEFAULT = 1, SCRATCH_USER = 1, TAG_ANY = 1 };
enum { ARG_SRC = 1, ARG_SRC_1 = 2, ARG_DST = 17, ARG_WEIGHTS = 33, ARG_SCRATCHPAD = 80 };
enum { QUERY_IMPL = 8, QUERY_WEIGHTS = 131, QUERY_SCRATCHPAD = 136, QUERY_EXEC_ARG = 255 };
enum { RUNTIME_SEQ = 1, RUNTIME_OMP = 2, RUNTIME_THREADPOOL = 8 };
enum { NOMEM = 1, UNIMPLEMENTED = 3 }; /* of its statuses */

typedef struct Version { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } Version;
typedef struct ExecArg { int arg; void *memory; } ExecArg;
typedef const int64_t *Dims;

/* Which major version has it (0: all), our name, its name, result, arguments. */
#define FUNCTIONS(ROW)                                                                                                                            \
    ROW(0, version, "version", const Version *, (void))                                                                                          \
    ROW(0, engine_create, "engine_create", int, (void **, int kind, size_t at))                                                                  \
    ROW(0, engine_destroy, "engine_destroy", int, (void *))                                                                                      \
    ROW(0, stream_create, "stream_create", int, (void **, void *engine, unsigned))                                                               \
    ROW(0, stream_destroy, "stream_destroy", int, (void *))                                                                                      \
    ROW(0, stream_wait, "stream_wait", int, (void *))                                                                                            \
    ROW(0, memory_create, "memory_create", int, (void **, const void *md, void *engine, void *data))                                            \
    ROW(0, memory_destroy, "memory_destroy", int, (void *))                                                                                      \
    ROW(0, memory_set, "memory_set_data_handle", int, (void *, void *data))                                                                      \
    ROW(0, memory_md, "memory_get_memory_desc", int, (const void *, const void **md))                                                          \
    ROW(0, md_equal, "memory_desc_equal", int, (const void *, const void *))                                                                    \
    ROW(0, md_size, "memory_desc_get_size", size_t, (const void *))                                                                              \
    ROW(2, md2_strides, "memory_desc_init_by_strides", int, (void *, int, Dims, int type, Dims strides))                                         \
    ROW(2, md2_tag, "memory_desc_init_by_tag", int, (void *, int, Dims, int type, int tag))                                                      \
    ROW(3, md3_strides, "memory_desc_create_with_strides", int, (void **, int, Dims, int type, Dims strides))                                    \
    ROW(3, md3_tag, "memory_desc_create_with_tag", int, (void **, int, Dims, int type, int tag))                                                 \
    ROW(3, md3_destroy, "memory_desc_destroy", int, (void *))                                                                                    \
    ROW(0, attr_create, "primitive_attr_create", int, (void **))                                                                                 \
    ROW(0, attr_destroy, "primitive_attr_destroy", int, (void *))                                                                                \
    ROW(0, attr_scratch, "primitive_attr_set_scratchpad_mode", int, (void *, int))                                                               \
    ROW(0, attr_fpmath, "primitive_attr_set_fpmath_mode", int, (void *, int))                                                                    \
    ROW(0, attr_post, "primitive_attr_set_post_ops", int, (void *, const void *))                                                                \
    ROW(0, post_create, "post_ops_create", int, (void **))                                                                                       \
    ROW(0, post_destroy, "post_ops_destroy", int, (void *))                                                                                      \
    ROW(0, post_binary, "post_ops_append_binary", int, (void *, int alg, const void *md))                                                        \
    ROW(2, post2_eltwise, "post_ops_append_eltwise", int, (void *, float scale, int alg, float a, float b))                                      \
    ROW(3, post3_eltwise, "post_ops_append_eltwise", int, (void *, int alg, float a, float b))                                                   \
    ROW(2, conv2_desc, "dilated_convolution_forward_desc_init", int,                                                                             \
        (void *, int kind, int alg, const void *src, const void *weights, const void *bias, const void *dst, Dims, Dims, Dims, Dims))            \
    ROW(2, matmul2_desc, "matmul_desc_init", int, (void *, const void *src, const void *weights, const void *bias, const void *dst))             \
    ROW(2, pd2_create, "primitive_desc_create", int, (void **, const void *desc, const void *attr, void *engine, const void *hint))             \
    ROW(3, conv3_pd, "convolution_forward_primitive_desc_create", int,                                                                           \
        (void **, void *engine, int kind, int alg, const void *src, const void *weights, const void *bias, const void *dst, Dims, Dims, Dims,    \
         Dims, const void *attr))                                                                                                                \
    ROW(3, matmul3_pd, "matmul_primitive_desc_create", int,                                                                                      \
        (void **, void *engine, const void *src, const void *weights, const void *bias, const void *dst, const void *attr))                      \
    ROW(0, reorder_pd, "reorder_primitive_desc_create", int, (void **, const void *src, void *, const void *dst, void *, const void *attr))      \
    ROW(0, pd_query, "primitive_desc_query", int, (const void *, int what, int at, void *))                                                      \
    ROW(0, pd_md, "primitive_desc_query_md", const void *, (const void *, int what, int at))                                                     \
    ROW(0, pd_destroy, "primitive_desc_destroy", int, (void *))                                                                                  \
    ROW(0, create, "primitive_create", int, (void **, const void *pd))                                                                           \
    ROW(0, execute, "primitive_execute", int, (const void *, void *stream, int, const ExecArg *))                                                \
    ROW(0, destroy, "primitive_destroy", int, (void *))

/* By LibStepKind: is it a binary one, with which number; else the elementwise one in versions 2 and 3. */
static const struct { const char *name; int binary, eltwise2, eltwise3; } step_info[] = {
    [LIB_add] = { "add", 0x1fff0, 0, 0 },       [LIB_sub] = { "sub", 0x1fff5, 0, 0 },         [LIB_mul] = { "mul", 0x1fff1, 0, 0 },
    [LIB_clip] = { "clip", 0, 0xff, 0x2e },     [LIB_tanh] = { "tanh", 0, 0x2f, 0x21 },       [LIB_sigmoid] = { "sigmoid", 0, 0xaf, 0x29 },
    [LIB_gelu] = { "GELU", 0, 0x30, 0x31 },
};

typedef struct Md { void *at; _Alignas(64) char own[MD_ROOM]; } Md; /* a memory descriptor; version 2: in own */

/* Weights in a form, for all runs that want it. */
typedef struct Kept {
    struct Kept *next;
    int refs;
    const void *from;
    int n;
    int64_t dims[5], strides[5]; /* as they lie at `from` */
    void *data, *memory;
} Kept;

struct Lib {
    void *handle, *engine;
    int major;
    void (*omp_set)(int);
    int (*omp_get)(void);
    pthread_mutex_t lock; /* over kept */
    Kept *kept;
    char about[64];
#define ROW(major, name, symbol, result, args) result(*name) args;
    FUNCTIONS(ROW)
#undef ROW
};

/* ---- the library ---- */

/* Its uses on this thread from here on start no threads; returns what must be given back. */
static int alone_begin(const Lib *l)
{
    int n = l->omp_get ? l->omp_get() : 1;
    if (n != 1)
        l->omp_set(1);
    return n;
}

static void alone_end(const Lib *l, int n)
{
    if (n != 1)
        l->omp_set(n);
}

static bool lib_symbols(Lib *l, char *why, size_t nwhy)
{
    const Version *(*version)(void) = NULL;
    *(void **)&version = dlsym(l->handle, "dnnl_version");
    const Version *v = version ? version() : NULL;
    if (!v || v->major < 2 || v->major > 3 || (v->major == 2 && v->minor < 6)) {
        snprintf(why, nwhy, "oneDNN is of another version than 2.6 to 3");
        return false;
    }
    l->major = v->major;
    snprintf(l->about, sizeof l->about, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
#define ROW(major_, name, symbol, result, args)                                                \
    if ((major_) == 0 || (major_) == l->major)                                                 \
        if (!(*(void **)&l->name = dlsym(l->handle, "dnnl_" symbol))) {                        \
            snprintf(why, nwhy, "%s has no function dnnl_" symbol, l->about);                \
            return false;                                                                      \
        }
    FUNCTIONS(ROW)
#undef ROW
    if (v->cpu_runtime == RUNTIME_OMP) {
        *(void **)&l->omp_set = dlsym(l->handle, "omp_set_num_threads");
        *(void **)&l->omp_get = dlsym(l->handle, "omp_get_max_threads");
    }
    bool alone = v->cpu_runtime == RUNTIME_SEQ || v->cpu_runtime == RUNTIME_THREADPOOL || (l->omp_set && l->omp_get);
    if (!alone)
        snprintf(why, nwhy, "%s has threads of a kind that cannot be switched off (runtime %u)", l->about, v->cpu_runtime);
    return alone;
}

Lib *lib_open(const char *name, char *why, size_t nwhy)
{
    static const char *const names[] = { "libdnnl.so.3", "libdnnl.so.3.6", "libdnnl.so.2" }; /* upstream's, Debian's */
    Lib *l = block_alloc(sizeof *l);
    snprintf(why, nwhy, "no memory");
    if (!l)
        return NULL;
    memset(l, 0, sizeof *l);
    bool locked = pthread_mutex_init(&l->lock, NULL) == 0;
    snprintf(why, nwhy, "%s is not there (Debian: libdnnl3.6 or libdnnl2)", name && *name ? name : "libdnnl.so");
    for (size_t i = 0; locked && !l->handle && i < COUNT_OF(names); i++)
        l->handle = dlopen(name && *name ? name : names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* OpenMP is not made to be unloaded */
    bool ok = l->handle && lib_symbols(l, why, nwhy);
    if (ok && l->engine_create(&l->engine, CPU, 0)) {
        snprintf(why, nwhy, "%s has no engine for this processor", l->about);
        ok = false;
    }
    if (ok)
        return l;
    if (locked)
        pthread_mutex_destroy(&l->lock);
    if (l->handle)
        dlclose(l->handle);
    block_free(l);
    return NULL;
}

void lib_close(Lib *l)
{
    if (!l)
        return;
    l->engine_destroy(l->engine);
    dlclose(l->handle);
    pthread_mutex_destroy(&l->lock);
    block_free(l);
}

const char *lib_version(const Lib *l) { return l->about; }

/* ---- descriptors ---- */

/* strides NULL: as the primitive likes. */
static int md_make(const Lib *l, Md *d, int n, Dims dims, Dims strides)
{
    d->at = l->major == 2 ? d->own : NULL;
    if (l->major == 2)
        return strides ? l->md2_strides(d->at, n, dims, F32, strides) : l->md2_tag(d->at, n, dims, F32, TAG_ANY);
    return strides ? l->md3_strides(&d->at, n, dims, F32, strides) : l->md3_tag(&d->at, n, dims, F32, TAG_ANY);
}

static void md_free(const Lib *l, Md *d)
{
    if (l->major == 3 && d->at)
        l->md3_destroy(d->at);
    d->at = NULL;
}

/* One kind of call: a primitive, and what its operands look like to the library. */
typedef struct Variant {
    LibShape s;
    bool staged;      /* the result lies densely in scratch, and goes from there to its place */
    int64_t dense[5]; /* then: its strides there */
    Md md[3], add[LIB_ADDENDS];
    void *pd, *primitive;
    size_t scratch;
    int post_base;
} Variant;

/* What one thread needs for a call besides the data: a stream, and memory objects of each variant. */
typedef struct Tools { struct Tools *next; void *stream; void *memory[][ARGS]; } Tools;

struct LibRun {
    Lib *lib;
    LibOp op;
    int nown; /* the last so many steps (0 or 1) are applied here */
    LibPlan plan;
    int nvariant;
    Variant *variant; /* by shape of the plan */
    Kept **kept;      /* by call: its weights, or NULL */
    pthread_mutex_t lock;
    Tools *tools; /* idle ones */
    size_t scratch;
    bool locked;
    char how[160];
};

static void variant_clear(const Lib *l, Variant *x)
{
    if (x->primitive)
        l->destroy(x->primitive);
    if (x->pd)
        l->pd_destroy(x->pd);
    x->primitive = x->pd = NULL;
    for (int i = 0; i < 3; i++)
        md_free(l, &x->md[i]);
    for (int i = 0; i < LIB_ADDENDS; i++)
        md_free(l, &x->add[i]);
}

static void tools_free(const LibRun *r, Tools *t)
{
    for (int v = 0; v < r->nvariant; v++)
        for (int k = 0; k < ARGS; k++)
            if (t->memory[v][k])
                r->lib->memory_destroy(t->memory[v][k]);
    if (t->stream)
        r->lib->stream_destroy(t->stream);
    block_free(t);
}

static void kept_release(Lib *l, Kept *k)
{
    pthread_mutex_lock(&l->lock);
    bool last = --k->refs == 0;
    for (Kept **at = &l->kept; last && *at; at = &(*at)->next)
        if (*at == k) {
            *at = k->next;
            break;
        }
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (k->memory)
        l->memory_destroy(k->memory);
    block_free(k->data);
    block_free(k);
}

void lib_free(LibRun *r)
{
    if (!r)
        return;
    Lib *l = r->lib;
    while (r->tools) {
        Tools *t = r->tools;
        r->tools = t->next;
        tools_free(r, t);
    }
    for (int64_t i = 0; r->kept && i < r->plan.ncall; i++)
        if (r->kept[i])
            kept_release(l, r->kept[i]);
    for (int v = 0; r->variant && v < r->nvariant; v++)
        variant_clear(l, &r->variant[v]);
    if (r->locked)
        pthread_mutex_destroy(&r->lock);
    block_free(r->kept);
    lib_plan_free(&r->plan);
    block_free(r->variant);
    block_free(r);
}

const char *lib_how(const LibRun *r) { return r->how; }

/* ---- primitives ---- */

static Status lib_status(const Lib *l, int status, const char *what, RtError *e)
{
    if (!status)
        return E_OK;
    if (status == NOMEM)
        return rt_fail(e, E_NOMEM, "%s has no memory: %s", l->about, what);
    return rt_fail(e, E_UNSUPPORTED, "%s has no %s like this (status %d)", l->about, what, status);
}

/* The steps that are the library's, as post-ops. */
static int attributes(const LibRun *r, Variant *x, void **attr)
{
    const Lib *l = r->lib;
    void *post = NULL;
    int st = l->attr_create(attr);
    if (!st)
        st = l->attr_scratch(*attr, SCRATCH_USER);
    if (!st)
        st = l->attr_fpmath(*attr, 0); /* strict, whatever the environment says */
    if (!st)
        st = l->post_create(&post);
    for (int i = 0; i < r->op.nstep - r->nown && !st; i++) {
        const LibStep *s = &r->op.step[i];
        if (step_info[s->kind].binary)
            st = l->post_binary(post, step_info[s->kind].binary, x->add[s->addend].at);
        else if (l->major == 2)
            st = l->post2_eltwise(post, 1, step_info[s->kind].eltwise2, s->lo, s->hi);
        else
            st = l->post3_eltwise(post, step_info[s->kind].eltwise3, s->lo, s->hi);
    }
    if (!st)
        st = l->attr_post(*attr, post);
    if (post)
        l->post_destroy(post);
    return st;
}

static int variant_pd(const LibRun *r, Variant *x, const void *attr)
{
    const Lib *l = r->lib;
    const void *src = x->md[0].at, *weights = x->md[1].at, *dst = x->md[2].at;
    if (l->major == 3)
        return x->s.window ? l->conv3_pd(&x->pd, l->engine, INFERENCE, CONV_DIRECT, src, weights, NULL, dst, x->s.stride, x->s.dilation, x->s.pad, x->s.pad_end, attr)
                         : l->matmul3_pd(&x->pd, l->engine, src, weights, NULL, dst, attr);
    void *desc = block_alloc(DESC_ROOM);
    if (!desc)
        return NOMEM;
    int st = x->s.window ? l->conv2_desc(desc, INFERENCE, CONV_DIRECT, src, weights, NULL, dst, x->s.stride, x->s.dilation, x->s.pad, x->s.pad_end)
                       : l->matmul2_desc(desc, src, weights, NULL, dst);
    if (!st)
        st = l->pd2_create(&x->pd, desc, attr, l->engine, NULL);
    block_free(desc);
    return st;
}

/* Where the number of a post-op's operand begins; versions differ. */
static int post_base(const LibRun *r, const Variant *x)
{
    static const int bases[] = { 16384, 32768 };
    for (int i = 0; i < r->op.nstep - r->nown; i++)
        for (size_t b = 0; step_info[r->op.step[i].kind].binary && b < COUNT_OF(bases); b++) {
            const void *md = r->lib->pd_md(x->pd, QUERY_EXEC_ARG, bases[b] * (i + 1) | ARG_SRC_1);
            if (md && r->lib->md_size(md))
                return bases[b];
        }
    return bases[0];
}

static int64_t result_count(const Variant *x)
{
    int64_t n = 1;
    for (int k = 0; k < x->s.n; k++)
        n *= x->s.dims[2][k];
    return n;
}

static Status variant_try(LibRun *r, Variant *x, RtError *e)
{
    const Lib *l = r->lib;
    const char *what = x->s.window ? "convolution" : "product", *impl = NULL;
    int st = 0;
    for (int i = 0; i < 3 && !st; i++)
        st = md_make(l, &x->md[i], x->s.n + (i == LIB_WEIGHTS && x->s.groups), x->s.dims[i],
                     i == LIB_WEIGHTS && x->s.known ? NULL : i == LIB_DST && x->staged ? x->dense : x->s.strides[i]);
    for (int i = 0; i < r->op.naddend && !st; i++)
        st = md_make(l, &x->add[i], x->s.n, x->s.add_dims[i], x->s.add_strides[i]);
    void *attr = NULL;
    if (!st)
        st = attributes(r, x, &attr);
    if (!st)
        st = variant_pd(r, x, attr);
    if (attr)
        l->attr_destroy(attr);
    if (!st && !l->pd_query(x->pd, QUERY_IMPL, 0, &impl) && impl && (!strncmp(impl, "ref", 3) || strstr(impl, ":ref")))
        return rt_fail(e, E_UNSUPPORTED, "%s has only its reference for a %s like this (%s)", l->about, what, impl);
    if (!st)
        st = l->create(&x->primitive, x->pd);
    if (st)
        return lib_status(l, st, what, e);
    const void *md = l->pd_md(x->pd, QUERY_SCRATCHPAD, 0);
    x->scratch = ((md ? l->md_size(md) : 0) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    size_t all = x->scratch + (x->staged ? (size_t)result_count(x) * sizeof(float) : 0);
    if (all > r->scratch)
        r->scratch = all;
    x->post_base = post_base(r, x);
    if (!r->how[0])
        snprintf(r->how, sizeof r->how, "%s %s", l->about, impl ? impl : "");
    return E_OK;
}

/* Where the library wants a dense result and this one has gaps (pieces of a join): through scratch. */
static Status variant_make(LibRun *r, Variant *x, RtError *e)
{
    Status st = variant_try(r, x, e);
    bool dense = true;
    int64_t step = 1;
    static const int order[2][4] = { { 1, 0 }, { 1, 3, 2, 0 } }; /* channels together */
    for (int k = 0; k < x->s.n; k++) {
        int d = order[x->s.window][k];
        x->dense[d] = step;
        step *= x->s.dims[2][d];
        dense &= x->s.dims[2][d] == 1 || x->dense[d] == x->s.strides[2][d];
    }
    if (st != E_UNSUPPORTED || dense)
        return st;
    variant_clear(r->lib, x);
    x->staged = true;
    return variant_try(r, x, e);
}

/* Weights that lie at `from`, in the form that the variant wants. */
static Status kept_make(Lib *l, const Variant *x, const void *from, Kept **out, RtError *e)
{
    const void *form = l->pd_md(x->pd, QUERY_WEIGHTS, 0);
    const void *md = NULL;
    int n = x->s.n + x->s.groups, st;
    pthread_mutex_lock(&l->lock);
    for (Kept *k = l->kept; k; k = k->next)
        if (k->from == from && k->n == n && !memcmp(k->dims, x->s.dims[1], sizeof k->dims) && !memcmp(k->strides, x->s.strides[1], sizeof k->strides)
            && !l->memory_md(k->memory, &md) && l->md_equal(md, form)) {
            k->refs++;
            *out = k;
            pthread_mutex_unlock(&l->lock);
            return E_OK;
        }
    Kept *k = block_alloc(sizeof *k);
    void *plain = NULL, *pd = NULL, *reorder = NULL, *stream = NULL;
    Md lies = { .at = NULL };
    if (!(st = k ? 0 : NOMEM)) {
        memset(k, 0, sizeof *k);
        *k = (Kept){ .refs = 1, .from = from, .n = n };
        memcpy(k->dims, x->s.dims[1], sizeof k->dims);
        memcpy(k->strides, x->s.strides[1], sizeof k->strides);
        k->data = block_alloc(l->md_size(form) + 64);
        st = k->data ? md_make(l, &lies, n, k->dims, k->strides) : NOMEM;
        if (!st)
            memory_huge(k->data, l->md_size(form));
    }
    if (!st)
        st = l->reorder_pd(&pd, lies.at, l->engine, form, l->engine, NULL);
    if (!st)
        st = l->create(&reorder, pd);
    if (!st)
        st = l->stream_create(&stream, l->engine, STREAM_DEFAULT);
    if (!st)
        st = l->memory_create(&plain, lies.at, l->engine, (void *)(uintptr_t)from);
    if (!st)
        st = l->memory_create(&k->memory, form, l->engine, k->data);
    if (!st)
        st = l->execute(reorder, stream, 2, (ExecArg[]){ { ARG_SRC, plain }, { ARG_DST, k->memory } });
    if (!st)
        st = l->stream_wait(stream);
    if (plain)
        l->memory_destroy(plain);
    if (stream)
        l->stream_destroy(stream);
    if (reorder)
        l->destroy(reorder);
    if (pd)
        l->pd_destroy(pd);
    md_free(l, &lies);
    if (!st) {
        k->next = l->kept;
        l->kept = k;
        *out = k;
    } else if (k) {
        if (k->memory)
            l->memory_destroy(k->memory);
        block_free(k->data);
        block_free(k);
    }
    pthread_mutex_unlock(&l->lock);
    return lib_status(l, st, "order of weights", e);
}

/* ---- making ---- */

static Status steps_check(LibRun *r, RtError *e)
{
    LibOp *op = &r->op;
    for (int i = 0; i < op->nstep; i++) {
        const LibStep *s = &op->step[i];
        if (step_info[s->kind].binary || op->finite)
            continue;
        if (s->kind != LIB_clip || i + 1 < op->nstep)
            return rt_fail(e, E_UNSUPPORTED, "its %s loses NaN, which wants leave (--allow finite)", step_info[s->kind].name);
        r->nown = 1;
    }
    return E_OK;
}

static Status run_make(LibRun *r, RtError *e)
{
    Status st = steps_check(r, e);
    if (!st)
        st = lib_plan(&r->op, &r->plan, e);
    if (st)
        return st;
    int n = r->plan.nshape;
    if (!(r->variant = block_alloc((size_t)n * sizeof *r->variant)))
        return rt_fail(e, E_NOMEM, "no memory for calls of the library");
    memset(r->variant, 0, (size_t)n * sizeof *r->variant);
    for (; r->nvariant < n && !st; r->nvariant++) {
        r->variant[r->nvariant].s = r->plan.shape[r->nvariant];
        st = variant_make(r, &r->variant[r->nvariant], e);
    }
    const LibOperand *w = &r->op.operand[LIB_WEIGHTS];
    size_t size = (size_t)r->plan.ncall * sizeof(Kept *);
    if (!st && w->known && !(r->kept = block_alloc(size)))
        st = rt_fail(e, E_NOMEM, "no memory for calls of the library");
    if (r->kept)
        memset(r->kept, 0, size);
    for (int64_t i = 0; r->kept && i < r->plan.ncall && !st; i++) {
        const LibCall *c = &r->plan.call[i];
        st = kept_make(r->lib, &r->variant[c->shape], (const float *)w->known + w->at + c->at[LIB_WEIGHTS], &r->kept[i], e);
    }
    return st;
}

Status lib_make(Lib *l, const LibOp *op, LibRun **out, RtError *e)
{
    *out = NULL;
    LibRun *r = block_alloc(sizeof *r);
    if (!r)
        return rt_fail(e, E_NOMEM, "no memory for a call of the library");
    memset(r, 0, sizeof *r);
    r->lib = l;
    r->op = *op;
    r->locked = pthread_mutex_init(&r->lock, NULL) == 0;
    int before = alone_begin(l);
    Status st = r->locked ? run_make(r, e) : rt_fail(e, E_NOMEM, "no memory for a lock");
    alone_end(l, before);
    if (st) {
        lib_free(r);
        return st;
    }
    size_t n = strlen(r->how);
    snprintf(r->how + n, sizeof r->how - n, ", %" PRId64 " call%s", r->plan.ncall, r->plan.ncall == 1 ? "" : "s");
    *out = r;
    return E_OK;
}

/* ---- running ---- */

static int tool_memory(const LibRun *r, Tools *t, int v, int k, const void *md)
{
    return r->lib->memory_create(&t->memory[v][k], md, r->lib->engine, NULL);
}

/* NULL without memory. */
static Tools *tools_take(LibRun *r)
{
    const Lib *l = r->lib;
    pthread_mutex_lock(&r->lock);
    Tools *t = r->tools;
    if (t)
        r->tools = t->next;
    pthread_mutex_unlock(&r->lock);
    if (t)
        return t;
    size_t size = sizeof *t + (size_t)r->nvariant * sizeof t->memory[0];
    if (!(t = block_alloc(size)))
        return NULL;
    memset(t, 0, size);
    int st = l->stream_create(&t->stream, l->engine, STREAM_DEFAULT);
    for (int v = 0; v < r->nvariant && !st; v++) {
        const Variant *x = &r->variant[v];
        for (int k = 0; k < 3 && !st; k++)
            if (k != LIB_WEIGHTS || !x->s.known)
                st = tool_memory(r, t, v, k, x->md[k].at);
        for (int a = 0; a < r->op.naddend && !st; a++)
            st = tool_memory(r, t, v, LIB_ADDEND + a, x->add[a].at);
        if (!st)
            st = tool_memory(r, t, v, ARGS - 1, l->pd_md(x->pd, QUERY_SCRATCHPAD, 0));
    }
    if (!st)
        return t;
    tools_free(r, t);
    return NULL;
}

static void tools_give(LibRun *r, Tools *t)
{
    pthread_mutex_lock(&r->lock);
    t->next = r->tools;
    r->tools = t;
    pthread_mutex_unlock(&r->lock);
}

/* Bounds, keeping NaN, over n numbers, which may go to another place on the way. */
static void clip(float *to, const float *from, int64_t n, float lo, float hi)
{
    enum { LANES = 16 };
    typedef float V __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
    typedef int32_t M __attribute__((vector_size(LANES * sizeof(float))));
    V low, high;
    for (int i = 0; i < LANES; i++)
        low[i] = lo, high[i] = hi;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V v = *(const V *)(from + i);
        M below = v < low;
        v = (V)((below & (M)low) | (~below & (M)v));
        M above = v > high;
        *(V *)(to + i) = (V)((above & (M)high) | (~above & (M)v));
    }
    for (; i < n; i++) {
        float v = from[i] < lo ? lo : from[i];
        to[i] = v > hi ? hi : v;
    }
}

/* What is left to do with a part of the result: to its place, within bounds. */
static void part_finish(const Variant *x, float *to, const float *from, float lo, float hi)
{
    const int64_t *d = x->s.dims[2], *st = x->s.strides[2], *own = x->staged ? x->dense : st;
    const int order[3] = { x->s.window ? 2 : 0, x->s.window ? 3 : 0, 1 };
    int in = st[1] == 1 || !x->s.window ? 2 : 1; /* which of them lies together */
    int out = 3 - in;
    int64_t n = d[order[in]], high = x->s.window ? d[2] : 1;
    for (int64_t i = 0; i < high; i++)
        for (int64_t j = 0; j < d[order[out]]; j++) {
            int64_t row = x->s.window ? i * st[2] : 0, row_own = x->s.window ? i * own[2] : 0;
            float *a = to + row + j * st[order[out]];
            const float *b = from + row_own + j * own[order[out]];
            if (st[order[in]] == 1 && own[order[in]] == 1)
                clip(a, b, n, lo, hi);
            else
                for (int64_t k = 0; k < n; k++)
                    clip(a + k * st[order[in]], b + k * own[order[in]], 1, lo, hi);
        }
}

static int call_run(const LibRun *r, Tools *t, int64_t number, void *const *buf, void *scratch)
{
    const LibCall *c = &r->plan.call[number];
    const Lib *l = r->lib;
    const Variant *x = &r->variant[c->shape];
    void **memory = t->memory[c->shape];
    ExecArg arg[ARGS + LIB_STEPS];
    int n = 0, st = 0;
    float *base[LIB_OPERANDS] = { NULL }, *staged = (float *)(void *)((char *)scratch + x->scratch);
    for (int o = 0; o < LIB_ADDEND + r->op.naddend && !st; o++) {
        const LibOperand *p = &r->op.operand[o];
        if (o == LIB_WEIGHTS && x->s.known)
            continue;
        base[o] = (float *)(p->known ? (void *)(uintptr_t)p->known : buf[p->slot]) + p->at + c->at[o];
        st = l->memory_set(memory[o], o == LIB_DST && x->staged ? staged : base[o]);
    }
    if (!st)
        st = l->memory_set(memory[ARGS - 1], scratch);
    arg[n++] = (ExecArg){ ARG_SRC, memory[LIB_SRC] };
    arg[n++] = (ExecArg){ ARG_WEIGHTS, x->s.known ? r->kept[number]->memory : memory[LIB_WEIGHTS] };
    arg[n++] = (ExecArg){ ARG_DST, memory[LIB_DST] };
    arg[n++] = (ExecArg){ ARG_SCRATCHPAD, memory[ARGS - 1] };
    for (int i = 0; i < r->op.nstep - r->nown; i++)
        if (step_info[r->op.step[i].kind].binary)
            arg[n++] = (ExecArg){ x->post_base * (i + 1) | ARG_SRC_1, memory[LIB_ADDEND + r->op.step[i].addend] };
    if (!st)
        st = l->execute(x->primitive, t->stream, n, arg);
    if (!st)
        st = l->stream_wait(t->stream);
    if (!st && (r->nown || x->staged)) {
        const LibStep *s = r->nown ? &r->op.step[r->op.nstep - 1] : NULL;
        part_finish(x, base[LIB_DST], x->staged ? staged : base[LIB_DST], s ? s->lo : -INFINITY, s ? s->hi : INFINITY);
    }
    return st;
}

static void lib_part(void *const *buf, const int64_t *arg, void *scratch, int64_t lo, int64_t hi, int64_t *err)
{
    LibRun *r = buf[arg[0]];
    int before = alone_begin(r->lib), st = 0;
    Tools *t = tools_take(r);
    for (int64_t i = lo; i < hi && t && !st; i++)
        st = call_run(r, t, i, buf, scratch);
    if (t)
        tools_give(r, t);
    alone_end(r->lib, before);
    if (!t || st) {
        err[0] = 2;
        err[1] = t ? st : NOMEM;
    }
}

void lib_launch(LibRun *r, void **buf, int slot, int64_t *arg, Launch *l)
{
    enum { HANDS = 64 };
    KernelFn fn = lib_part;
    buf[slot] = r;
    arg[0] = slot;
    l->kernel = (const Kernel *)(uintptr_t)fn;
    l->buf = buf;
    l->arg = arg;
    l->nbuf = slot + 1;
    l->narg = 1;
    l->total = r->plan.ncall;
    l->grain = (r->plan.ncall + HANDS - 1) / HANDS;
    l->scratch = r->scratch + 64;
}
