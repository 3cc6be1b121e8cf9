/* Contractions by oneDNN's C API, versions 2.6 to 3.x, loaded at run time.
 *
 * Nothing of it is needed to build: what is called is declared here, memory descriptors are opaque (version 2 has them as structures, which get
 * room enough), and the few constants that differ stand in pairs. A contraction of any number of axes (LibOp) becomes calls of one or a few
 * primitives: axes that lie together are merged; what is left over, and blocks of rows or columns so that threads have something to share, are
 * calls of their own. Which they are follows from sizes alone. Primitives are made for one thread and run on whichever thread of the pool takes
 * the call; so the library starts no threads (OpenMP is told so around each use). Weights that never change are laid out once for each form
 * that is asked for. Lower and upper bounds lose NaN in the library; unless that may be, they are applied here, while the part lies in the cache. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIMS = 12, MD_ROOM = 2048, DESC_ROOM = 16384, MOST_CALLS = 1 << 16, ARGS = 6 + LIB_ADDENDS, ALIGN = 64 };
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

/* One kind of call: a primitive, and what its operands look like. */
typedef struct Variant {
    bool window;
    int n; /* rank of src and dst; weights have one more when there are groups */
    int64_t dims[3][5], strides[3][5]; /* src, weights, dst */
    int64_t add_dims[LIB_ADDENDS][4], add_strides[LIB_ADDENDS][4];
    int64_t stride[2], dilation[2], pad[2], pad_end[2];
    bool groups, known;  /* known: the weights never change */
    bool staged;         /* the result lies densely in scratch, and goes from there to its place */
    int64_t dense[5];    /* then: its strides there */
    Md md[3], add[LIB_ADDENDS];
    void *pd, *primitive;
    size_t scratch;
    int post_base;
} Variant;

typedef struct Call { int variant; Kept *weights; int64_t at[LIB_OPERANDS]; } Call;

/* What one thread needs for a call besides the data: a stream, and memory objects of each variant. */
typedef struct Tools { struct Tools *next; void *stream; void *memory[][ARGS]; } Tools;

struct LibRun {
    Lib *lib;
    LibOp op;
    int nown; /* the last so many steps (0 or 1) are applied here */
    int nvariant;
    Variant *variant;
    int64_t ncall;
    Call *call;
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
    for (int64_t i = 0; r->call && i < r->ncall; i++)
        if (r->call[i].weights)
            kept_release(l, r->call[i].weights);
    for (int v = 0; r->variant && v < r->nvariant; v++)
        variant_clear(l, &r->variant[v]);
    if (r->locked)
        pthread_mutex_destroy(&r->lock);
    block_free(r->call);
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
        return x->window ? l->conv3_pd(&x->pd, l->engine, INFERENCE, CONV_DIRECT, src, weights, NULL, dst, x->stride, x->dilation, x->pad, x->pad_end, attr)
                         : l->matmul3_pd(&x->pd, l->engine, src, weights, NULL, dst, attr);
    void *desc = block_alloc(DESC_ROOM);
    if (!desc)
        return NOMEM;
    int st = x->window ? l->conv2_desc(desc, INFERENCE, CONV_DIRECT, src, weights, NULL, dst, x->stride, x->dilation, x->pad, x->pad_end)
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
    for (int k = 0; k < x->n; k++)
        n *= x->dims[2][k];
    return n;
}

static Status variant_try(LibRun *r, Variant *x, RtError *e)
{
    const Lib *l = r->lib;
    const char *what = x->window ? "convolution" : "product", *impl = NULL;
    int st = 0;
    for (int i = 0; i < 3 && !st; i++)
        st = md_make(l, &x->md[i], x->n + (i == LIB_WEIGHTS && x->groups), x->dims[i],
                     i == LIB_WEIGHTS && x->known ? NULL : i == LIB_DST && x->staged ? x->dense : x->strides[i]);
    for (int i = 0; i < r->op.naddend && !st; i++)
        st = md_make(l, &x->add[i], x->n, x->add_dims[i], x->add_strides[i]);
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
    for (int k = 0; k < x->n; k++) {
        int d = order[x->window][k];
        x->dense[d] = step;
        step *= x->dims[2][d];
        dense &= x->dims[2][d] == 1 || x->dense[d] == x->strides[2][d];
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
    int n = x->n + x->groups, st;
    pthread_mutex_lock(&l->lock);
    for (Kept *k = l->kept; k; k = k->next)
        if (k->from == from && k->n == n && !memcmp(k->dims, x->dims[1], sizeof k->dims) && !memcmp(k->strides, x->strides[1], sizeof k->strides)
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
        memcpy(k->dims, x->dims[1], sizeof k->dims);
        memcpy(k->strides, x->strides[1], sizeof k->strides);
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

/* ---- from axes to calls ---- */

typedef struct Axes { LibAxis *at[LIB_AXES]; int n; } Axes;

/* Merges axes of one role that lie together in every operand: the outer one of two goes on where the inner one ends. */
static void axes_merge(LibOp *op, LibRole role)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < op->naxis && !more; i++)
            for (int j = 0; j < op->naxis && !more; j++) {
                LibAxis *out = &op->axis[i], *in = &op->axis[j];
                bool fits = i != j && out->role == role && in->role == role && out->window < 0 && in->window < 0 && !out->padded && !in->padded;
                for (int k = 0; k < LIB_OPERANDS; k++)
                    fits = fits && out->at[k] == in->at[k] * in->extent;
                for (int k = 0; k < op->naxis; k++) /* a window's sum stays what it is */
                    fits = fits && op->axis[k].window != i && op->axis[k].window != j;
                if (!fits)
                    continue;
                in->extent *= out->extent;
                in->size = 0;
                op->naxis--;
                for (int k = i; k < op->naxis; k++)
                    op->axis[k] = op->axis[k + 1];
                for (int k = 0; k < op->naxis; k++)
                    op->axis[k].window -= op->axis[k].window > i;
                more = true;
            }
    }
}

static void axes_of(LibOp *op, LibRole role, bool window, Axes *out)
{
    out->n = 0;
    for (int i = 0; i < op->naxis; i++) {
        bool slides = op->axis[i].window >= 0;
        for (int k = 0; k < op->naxis; k++)
            slides |= op->axis[k].window == i;
        if (op->axis[i].role == role && slides == window)
            out->at[out->n++] = &op->axis[i];
    }
}

/* The transposed product. */
static void op_turn(LibOp *op)
{
    LibOperand o = op->operand[LIB_SRC];
    op->operand[LIB_SRC] = op->operand[LIB_WEIGHTS];
    op->operand[LIB_WEIGHTS] = o;
    for (int i = 0; i < op->naxis; i++) {
        LibAxis *x = &op->axis[i];
        int64_t t = x->at[LIB_SRC];
        x->at[LIB_SRC] = x->at[LIB_WEIGHTS];
        x->at[LIB_WEIGHTS] = t;
        x->role = x->role == LIB_row ? LIB_col : x->role == LIB_col ? LIB_row : x->role;
    }
}

/* Calls for all places of the outer axes, each with the blocks that were planned for one. */
static Status calls_spread(LibRun *r, const Axes *outer, int nblock, const Call *block, RtError *e)
{
    int64_t n = nblock;
    for (int i = 0; i < outer->n; i++) {
        n *= outer->at[i]->extent;
        if (n > MOST_CALLS)
            return rt_fail(e, E_UNSUPPORTED, "it would take more than %d calls of the library", MOST_CALLS);
    }
    if (!(r->call = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *r->call)))
        return rt_fail(e, E_NOMEM, "no memory for calls of the library");
    for (int64_t i = 0; i < n; i++) {
        Call c = block[i % nblock];
        int64_t rest = i / nblock;
        for (int k = outer->n - 1; k >= 0; k--) {
            int64_t place = rest % outer->at[k]->extent;
            rest /= outer->at[k]->extent;
            for (int o = 0; o < LIB_OPERANDS; o++)
                c.at[o] += place * outer->at[k]->at[o];
        }
        r->call[i] = c;
    }
    r->ncall = n;
    return E_OK;
}

enum { MOST_VARIANTS = 64 };
/* The number of this kind of call; made if it is new. Negative: it failed. */
static int variant_find(LibRun *r, const Variant *x, Status *st, RtError *e)
{
    for (int v = 0; v < r->nvariant; v++) {
        const Variant *y = &r->variant[v];
        if (y->window == x->window && !memcmp(y->dims, x->dims, sizeof x->dims) && !memcmp(y->pad, x->pad, sizeof x->pad) && !memcmp(y->pad_end, x->pad_end, sizeof x->pad_end))
            return v;
    }
    if (r->nvariant == MOST_VARIANTS) {
        *st = rt_fail(e, E_UNSUPPORTED, "it would take more than %d kinds of calls of the library", MOST_VARIANTS);
        return -1;
    }
    Variant *y = &r->variant[r->nvariant++];
    *y = *x;
    *st = variant_make(r, y, e);
    return *st ? -1 : r->nvariant - 1;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The operands of steps, as many axes as the result, of one place where they are the same for all. */
static void addends_place(const LibRun *r, Variant *x, const LibAxis *const *axis)
{
    for (int a = 0; a < r->op.naddend; a++)
        for (int k = 0; k < x->n; k++) {
            int64_t step = axis[k] ? axis[k]->at[LIB_ADDEND + a] : 0;
            x->add_dims[a][k] = step ? x->dims[2][k] : 1;
            x->add_strides[a][k] = step ? step : 1;
        }
}

enum { FEW_ROWS = 8, COLUMNS = 64 }; /* fewer rows than that are not shared; columns in groups */

static Status plan_product(LibRun *r, RtError *e)
{
    LibOp *op = &r->op;
    Axes row, col, both, sum;
    for (int role = LIB_row; role <= LIB_sum; role++)
        axes_merge(op, (LibRole)role);
    axes_of(op, LIB_row, false, &row);
    axes_of(op, LIB_col, false, &col);
    bool turned = false;
    for (int i = 0; i < row.n; i++)
        turned |= row.at[i]->at[LIB_DST] == 1;
    if (turned) { /* the result lies the other way: so do the operands */
        op_turn(op);
        axes_of(op, LIB_row, false, &row);
        axes_of(op, LIB_col, false, &col);
    }
    axes_of(op, LIB_both, false, &both);
    axes_of(op, LIB_sum, false, &sum);
    if (sum.n != 1)
        return rt_fail(e, E_UNSUPPORTED, "its sum is over no single axis");
    int along = 0; /* the axis that is a call's columns: the one that lies together in the result */
    for (int i = 1; i < col.n; i++)
        if (col.at[i]->at[LIB_DST] == 1)
            along = i;
    LibAxis one = { .extent = 1, .window = -1 };
    int longest = 0; /* the axis that is a call's rows: one whose rows of the result lie side by side, if there is one */
    for (int i = 1; i < row.n; i++) {
        bool dense[2];
        for (int k = 0; k < 2; k++)
            dense[k] = row.at[k ? i : longest]->at[LIB_DST] == (col.n ? col.at[along]->extent : 1);
        if (dense[1] > dense[0] || (dense[1] == dense[0] && row.at[i]->extent > row.at[longest]->extent))
            longest = i;
    }
    LibAxis *m = row.n ? row.at[longest] : &one, *n = col.n ? col.at[along] : &one, *k = sum.at[0];
    Axes outer = both;
    for (int i = 0; i < row.n; i++)
        if (i != longest)
            outer.at[outer.n++] = row.at[i];
    for (int i = 0; i < col.n; i++)
        if (i != along)
            outer.at[outer.n++] = col.at[i];
    int64_t outside = 1;
    for (int i = 0; i < outer.n; i++)
        outside *= outer.at[i]->extent;
    bool known = op->operand[LIB_WEIGHTS].known != NULL;
    if (k->at[LIB_SRC] != 1 && m->at[LIB_SRC] != 1 && m->extent > 1)
        return rt_fail(e, E_UNSUPPORTED, "rows of an operand do not lie together");
    if (!known && k->at[LIB_WEIGHTS] != 1 && n->at[LIB_WEIGHTS] != 1 && n->extent > 1)
        return rt_fail(e, E_UNSUPPORTED, "rows of an operand do not lie together");
    if (n->at[LIB_DST] != 1 && n->extent > 1)
        return rt_fail(e, E_UNSUPPORTED, "rows of the result do not lie together");
    int64_t blocks = ceil_div(op->parts, outside > 0 ? outside : 1), mb = m->extent, nb = n->extent;
    if (m->extent >= FEW_ROWS * blocks)
        mb = ceil_div(m->extent, blocks);
    else
        nb = ceil_div(ceil_div(n->extent, blocks), COLUMNS) * COLUMNS;
    Call block[256];
    int nblock = 0;
    Status st = E_OK;
    for (int64_t i = 0; i < m->extent && !st; i += mb)
        for (int64_t j = 0; j < n->extent && !st; j += nb) {
            Variant x = { .n = 2, .known = known };
            int64_t rows = m->extent - i < mb ? m->extent - i : mb, cols = n->extent - j < nb ? n->extent - j : nb;
            int64_t dims[3][2] = { { rows, k->extent }, { k->extent, cols }, { rows, cols } };
            int64_t strides[3][2] = { { rows > 1 ? m->at[LIB_SRC] : k->extent, k->at[LIB_SRC] },
                                      { k->at[LIB_WEIGHTS], n->extent > 1 ? n->at[LIB_WEIGHTS] : 1 },
                                      { rows > 1 ? m->at[LIB_DST] : cols, n->extent > 1 ? n->at[LIB_DST] : 1 } };
            for (int o = 0; o < 3; o++) {
                memcpy(x.dims[o], dims[o], sizeof dims[o]);
                memcpy(x.strides[o], strides[o], sizeof strides[o]);
            }
            addends_place(r, &x, (const LibAxis *[]){ m, n });
            if (nblock == (int)COUNT_OF(block))
                return rt_fail(e, E_UNSUPPORTED, "it would take too many blocks");
            Call *c = &block[nblock++];
            *c = (Call){ .variant = variant_find(r, &x, &st, e) };
            for (int o = 0; o < LIB_OPERANDS; o++)
                c->at[o] = i * m->at[o] + j * n->at[o];
        }
    return st ? st : calls_spread(r, &outer, nblock, block, e);
}

/* How a source axis lies, as seen by a row of the result and the sum that slides over it. */
typedef struct Spatial { LibAxis *row, *sum; int64_t stride; } Spatial;

/* There is one: its stride is the size of it. */
static void one_image(const int64_t *dims, int64_t *stride)
{
    for (int k = 1; k < 4; k++)
        if (dims[k] * stride[k] > stride[0])
            stride[0] = dims[k] * stride[k];
}

static Status plan_window(LibRun *r, RtError *e)
{
    LibOp *op = &r->op;
    Axes slide, row, col, both, sum, outer = { .n = 0 };
    LibAxis one = { .role = LIB_row, .extent = 1, .window = -1, .step = 1, .dilation = 1, .size = 1 }, zero = one;
    for (int role = LIB_col; role <= LIB_sum; role++)
        axes_merge(op, (LibRole)role);
    axes_of(op, LIB_row, true, &slide);
    axes_of(op, LIB_row, false, &row);
    axes_of(op, LIB_col, false, &col);
    axes_of(op, LIB_both, false, &both);
    axes_of(op, LIB_sum, false, &sum);
    Spatial s[2]; /* places across, places along */
    int n = 0;
    for (int i = 0; i < slide.n && n < 2; i++)
        s[n++] = (Spatial){ slide.at[i], slide.at[i]->window >= 0 ? &op->axis[slide.at[i]->window] : &zero, 0 };
    for (int i = row.n - 1; i >= 0; i--) { /* those that no window slides over count as windows of one */
        bool takes = n < 2 && row.at[i]->size > 0;
        if (takes)
            s[n++] = (Spatial){ row.at[i], &zero, 0 };
        else
            outer.at[outer.n++] = row.at[i];
    }
    while (n < 2)
        s[n++] = (Spatial){ &one, &zero, 0 };
    for (int i = 0; i < 2; i++)
        s[i].stride = s[i].row->at[LIB_SRC] / s[i].row->step;
    if (s[1].row == &one || (s[0].row != &one && s[0].stride < s[1].stride)) {
        Spatial t = s[0];
        s[0] = s[1];
        s[1] = t;
    }
    if (s[0].row == &one) /* lies like one line of the other */
        s[0].stride = one.at[LIB_SRC] = s[1].stride * s[1].row->size, one.at[LIB_DST] = s[1].row->at[LIB_DST] * s[1].row->extent;
    LibAxis *g = both.n ? both.at[both.n - 1] : NULL, *oc = col.n ? col.at[0] : NULL, *ic = sum.n ? sum.at[0] : NULL;
    for (int i = 0; i + 1 < both.n; i++)
        outer.at[outer.n++] = both.at[i];
    if (slide.n > 2 || col.n > 1 || sum.n > 1 || !op->operand[LIB_WEIGHTS].known)
        return rt_fail(e, E_UNSUPPORTED, "a window over more than two axes, or channels that are no single axis, or weights that change");
    int64_t groups = g ? g->extent : 1, in = ic ? ic->extent : 1, out = oc ? oc->extent : 1;
    int64_t in_step = ic ? ic->at[LIB_SRC] : g ? g->at[LIB_SRC] : 1, out_step = oc ? oc->at[LIB_DST] : g ? g->at[LIB_DST] : 1;
    if (g && (g->at[LIB_SRC] != in * in_step || g->at[LIB_DST] != out * out_step))
        return rt_fail(e, E_UNSUPPORTED, "groups of channels do not lie together");
    LibAxis channel = oc ? *oc : g ? *g : one; /* of the result: all groups' */
    for (int o = LIB_ADDEND; g && oc && o < LIB_OPERANDS; o++)
        if (g->at[o] != oc->at[o] * oc->extent)
            return rt_fail(e, E_UNSUPPORTED, "groups of channels do not lie together");
    int64_t outside = 1, high = s[0].row->extent;
    for (int i = 0; i < outer.n; i++)
        outside *= outer.at[i]->extent;
    int64_t rows = ceil_div(high, ceil_div(op->parts, outside > 0 ? outside : 1)), step = s[0].row->step, dil = s[0].sum->extent > 1 ? s[0].row->dilation : 1;
    Call block[256];
    int nblock = 0;
    Status st = E_OK;
    for (int64_t i = 0; i < high && !st; i += rows) {
        int64_t h = high - i < rows ? high - i : rows, from = i * step - s[0].row->pad, to = from + (h - 1) * step + (s[0].sum->extent - 1) * dil + 1;
        int64_t before = from < 0 ? -from : 0, after = to > s[0].row->size ? to - s[0].row->size : 0, lines = to - from - before - after;
        if (lines <= 0)
            return rt_fail(e, E_UNSUPPORTED, "a block of lines lies in the padding alone");
        int64_t wide = s[1].row->extent, wdil = s[1].sum->extent > 1 ? s[1].row->dilation : 1;
        int64_t pad = s[1].row->pad > 0 ? s[1].row->pad : 0, across = s[1].row->size + s[1].row->pad - pad; /* what lies before its first place is not seen */
        int64_t end = (wide - 1) * s[1].row->step + (s[1].sum->extent - 1) * wdil + 1 - pad - across;
        Variant x = { .window = true, .n = 4, .known = true, .groups = g != NULL };
        x.stride[0] = step, x.stride[1] = s[1].row->step;
        x.dilation[0] = dil - 1, x.dilation[1] = wdil - 1;
        x.pad[0] = before, x.pad[1] = pad, x.pad_end[0] = after, x.pad_end[1] = end;
        int64_t dims[3][5] = { { 1, groups * in, lines, across }, { groups, out, in, s[0].sum->extent, s[1].sum->extent }, { 1, groups * out, h, wide } };
        int64_t strides[3][5] = { { 1, in_step, s[0].stride, s[1].stride },
                                  { g ? g->at[1] : 1, oc ? oc->at[1] : 1, ic ? ic->at[1] : 1, s[0].sum->at[1], s[1].sum->at[1] },
                                  { 1, out_step, s[0].row->at[LIB_DST], s[1].row->at[LIB_DST] } };
        int skip = g ? 0 : 1; /* weights of one group have no axis for it */
        for (int k = 0; k < 5; k++) {
            x.dims[0][k] = dims[0][k], x.strides[0][k] = strides[0][k];
            x.dims[2][k] = dims[2][k], x.strides[2][k] = strides[2][k];
            if (k + skip < 5)
                x.dims[1][k] = dims[1][k + skip], x.strides[1][k] = strides[1][k + skip];
        }
        addends_place(r, &x, (const LibAxis *[]){ NULL, &channel, s[0].row, s[1].row });
        one_image(x.dims[0], x.strides[0]);
        one_image(x.dims[2], x.strides[2]);
        for (int a = 0; a < op->naddend; a++)
            one_image(x.add_dims[a], x.add_strides[a]);
        if (nblock == (int)COUNT_OF(block))
            return rt_fail(e, E_UNSUPPORTED, "it would take too many blocks");
        Call *c = &block[nblock++];
        *c = (Call){ .variant = variant_find(r, &x, &st, e) };
        c->at[LIB_SRC] = (s[0].row->pad + before + from) * s[0].stride + pad * s[1].stride;
        for (int o = LIB_DST; o < LIB_OPERANDS; o++)
            c->at[o] = i * s[0].row->at[o];
    }
    return st ? st : calls_spread(r, &outer, nblock, block, e);
}

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
    r->variant = block_alloc(MOST_VARIANTS * sizeof *r->variant);
    Status st = r->locked && r->variant ? steps_check(r, e) : rt_fail(e, E_NOMEM, "no memory for a call of the library");
    bool window = false, empty = false;
    int unmerged = 0, before = alone_begin(l);
    for (int i = 0; i < op->naxis; i++) {
        window |= op->axis[i].window >= 0;
        empty |= op->axis[i].extent <= 0;
        unmerged += op->axis[i].role == LIB_row && op->axis[i].size > 0 && op->axis[i].step > 1;
        window |= op->axis[i].role == LIB_row && op->axis[i].padded;
    }
    if (!st && empty)
        st = rt_fail(e, E_UNSUPPORTED, "it is empty");
    if (!st)
        st = window || (unmerged > 1 && op->operand[LIB_WEIGHTS].known) ? plan_window(r, e) : plan_product(r, e);
    for (int64_t i = 0; i < r->ncall && !st && r->op.operand[LIB_WEIGHTS].known; i++) {
        const LibOperand *w = &r->op.operand[LIB_WEIGHTS];
        st = kept_make(l, &r->variant[r->call[i].variant], (const float *)w->known + w->at + r->call[i].at[LIB_WEIGHTS], &r->call[i].weights, e);
    }
    alone_end(l, before);
    if (st) {
        lib_free(r);
        return st;
    }
    size_t n = strlen(r->how);
    snprintf(r->how + n, sizeof r->how - n, ", %" PRId64 " call%s", r->ncall, r->ncall == 1 ? "" : "s");
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
            if (k != LIB_WEIGHTS || !x->known)
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
    const int64_t *d = x->dims[2], *st = x->strides[2], *own = x->staged ? x->dense : st;
    const int order[3] = { x->window ? 2 : 0, x->window ? 3 : 0, 1 };
    int in = st[1] == 1 || !x->window ? 2 : 1; /* which of them lies together */
    int out = 3 - in;
    int64_t n = d[order[in]], high = x->window ? d[2] : 1;
    for (int64_t i = 0; i < high; i++)
        for (int64_t j = 0; j < d[order[out]]; j++) {
            int64_t row = x->window ? i * st[2] : 0, row_own = x->window ? i * own[2] : 0;
            float *a = to + row + j * st[order[out]];
            const float *b = from + row_own + j * own[order[out]];
            if (st[order[in]] == 1 && own[order[in]] == 1)
                clip(a, b, n, lo, hi);
            else
                for (int64_t k = 0; k < n; k++)
                    clip(a + k * st[order[in]], b + k * own[order[in]], 1, lo, hi);
        }
}

static int call_run(const LibRun *r, Tools *t, const Call *c, void *const *buf, void *scratch)
{
    const Lib *l = r->lib;
    const Variant *x = &r->variant[c->variant];
    void **memory = t->memory[c->variant];
    ExecArg arg[ARGS + LIB_STEPS];
    int n = 0, st = 0;
    float *base[LIB_OPERANDS] = { NULL }, *staged = (float *)(void *)((char *)scratch + x->scratch);
    for (int o = 0; o < LIB_ADDEND + r->op.naddend && !st; o++) {
        const LibOperand *p = &r->op.operand[o];
        if (o == LIB_WEIGHTS && x->known)
            continue;
        base[o] = (float *)(p->known ? (void *)(uintptr_t)p->known : buf[p->slot]) + p->at + c->at[o];
        st = l->memory_set(memory[o], o == LIB_DST && x->staged ? staged : base[o]);
    }
    if (!st)
        st = l->memory_set(memory[ARGS - 1], scratch);
    arg[n++] = (ExecArg){ ARG_SRC, memory[LIB_SRC] };
    arg[n++] = (ExecArg){ ARG_WEIGHTS, x->known ? c->weights->memory : memory[LIB_WEIGHTS] };
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
        st = call_run(r, t, &r->call[i], buf, scratch);
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
    l->total = r->ncall;
    l->grain = ceil_div(r->ncall, HANDS);
    l->scratch = r->scratch + 64;
}
