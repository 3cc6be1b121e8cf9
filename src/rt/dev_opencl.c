/* OpenCL as a device, through the loader library, which is opened when it is asked for: nothing of it is needed to build.
 *
 * A block of memory is a memory object; its address is a number of our own, so that a program may add to it, and is turned into object and offset again when
 * a kernel gets it. Kernels come from the builder with the worker sinter-opencl as its toolchain: a unit is a program's binary for this device and driver. One queue, in
 * order. Arguments of a kernel are set under the lock. After some failures a queue is of no use any more: the device is then lost, every call says so, and nothing
 * else of the program is harmed. */
#include "rt/rt.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* numbers of the standard */
enum { CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004, CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
       CL_DEVICE_SINGLE_FP_CONFIG = 0x101B, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F, CL_DEVICE_NAME = 0x102B, CL_DRIVER_VERSION = 0x102D, CL_DEVICE_VERSION = 0x102F,
       CL_DEVICE_EXTENSIONS = 0x1030, CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032, CL_DEVICE_OPENCL_C_VERSION = 0x103D, CL_DEVICE_MAX_NUM_SUB_GROUPS = 0x105C,
       CL_QUEUE_PROFILING = 2, CL_MEM_READ_WRITE = 1, CL_PROFILING_START = 0x1282, CL_PROFILING_END = 0x1283, FP_CORRECTLY_ROUNDED = 1 << 7 };
enum { GROUPS_MOST = 1 << 16, GROUPS_SCRATCH = 8, FLAGS_MOST = 6 };      /* groups for each compute unit when each needs scratch */
#define CL_WORKER "sinter-opencl"

typedef struct Block { struct Block *next; uint64_t address; size_t size; void *mem; } Block;
/* What a Kernel is to this device. */
typedef struct ClKernel { struct ClKernel *next; void *kernel; } ClKernel;
typedef struct ClUnit { void *program; ClKernel *kernels; } ClUnit;

struct Device {
    ClApi cl;
    void *id, *context, *queue;
    Builder *builder;
    Toolchain tools;
    const char *flag[FLAGS_MOST];
    char name[160], driver[160], version[160], about[512], options[96], number[32], stamp[32], worker[CACHE_PATH], missing[160];
    bool shuffles;                      /* threads of a sub-group can read each other's registers */
    uint64_t memory, block_most, units, group_most, param_most;
    pthread_mutex_t lock;               /* over the next line, and over setting arguments */
    Block *blocks; uint64_t next_address, used;
    pthread_mutex_t failing;            /* over the next line; innermost */
    bool lost; char why[512];
};

/* ---- errors ---- */

/* waited: it was reported for what had been enqueued, not for the call itself. Of these codes the queue does not recover; -9999 is what some drivers say of a kernel that
 * leaves its memory. */
static bool cl_final(int32_t st, bool waited) { return st == -2 || st == -36 || st == -9999 || (waited && (st == -5 || st == -14)); }

static Status cl_report(Device *d, RtError *e, Status code, const char *what, int32_t st, bool waited)
{
    if (st == -4 || st == -6) code = E_NOMEM;
    if (!cl_final(st, waited)) return rt_fail(e, code, "OpenCL: %s: %s (%d)", what, opencl_error(st), st);
    pthread_mutex_lock(&d->failing);
    if (!d->lost) snprintf(d->why, sizeof d->why, "OpenCL: %.150s: %s: %s (%d); the device is lost to this process", d->name, what, opencl_error(st), st);
    d->lost = true;
    pthread_mutex_unlock(&d->failing);
    return rt_fail(e, E_DEVICE, "%s", d->why);
}

static Status cl_fail(Device *d, RtError *e, Status code, const char *what, int32_t st) { return cl_report(d, e, code, what, st, false); }
static Status cl_waited(Device *d, RtError *e, const char *what, int32_t st) { return st ? cl_report(d, e, E_DEVICE, what, st, true) : E_OK; }

static Status device_there(Device *d, RtError *e)
{
    pthread_mutex_lock(&d->failing);
    bool lost = d->lost;
    pthread_mutex_unlock(&d->failing);
    return lost ? rt_fail(e, E_DEVICE, "%s", d->why) : E_OK;
}

/* ---- units and kernels ---- */

static void *cl_unit_open(void *of, const char *path, char *why, size_t nwhy)
{
    Device *d = of;
    File f;
    ClUnit *u = NULL;
    int32_t st = 0, binary_st = 0;
    uint64_t n = 0;
    if (file_map(path, &f, why, nwhy) != E_OK) return NULL;
    if (f.size > sizeof n) memcpy(&n, f.data, sizeof n);
    const uint8_t *binary = f.data + sizeof n;
    size_t size = n;
    if (!n || n > f.size - sizeof n) snprintf(why, nwhy, "%s is no program for a device", path);
    else if (!(u = block_alloc(sizeof *u))) snprintf(why, nwhy, "no memory");
    else {
        *u = (ClUnit){ d->cl.CreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, &binary_st, &st), NULL };
        if (u->program) st = d->cl.BuildProgram(u->program, 1, &d->id, d->options, NULL, NULL);
        if (!u->program || st) {
            snprintf(why, nwhy, "OpenCL: a compiled program is refused: %s (%d)", opencl_error(st), st);
            if (u->program) d->cl.ReleaseProgram(u->program);
            block_free(u);
            u = NULL;
        }
    }
    file_unmap(&f);
    return u;
}

static void *cl_unit_symbol(void *of, void *unit, const char *name)
{
    Device *d = of;
    ClUnit *u = unit;
    int32_t st = 0;
    ClKernel *k = block_alloc(sizeof *k);
    if (!k) return NULL;
    *k = (ClKernel){ u->kernels, d->cl.CreateKernel(u->program, name, &st) };
    if (!k->kernel) {
        block_free(k);
        return NULL;
    }
    return u->kernels = k;
}

static void cl_unit_close(void *of, void *unit)
{
    Device *d = of;
    ClUnit *u = unit;
    while (u->kernels) {
        ClKernel *k = u->kernels;
        u->kernels = k->next;
        d->cl.ReleaseKernel(k->kernel);
        block_free(k);
    }
    d->cl.ReleaseProgram(u->program);
    block_free(u);
}

static Status opencl_build(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, volatile int *cancel, RtError *e)
{
    KernelFn *fn = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *fn);
    if (!fn) return rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
    Status st = builder_build(d->builder, prelude, n, k, fn, stats, cancel, e);
    for (int i = 0; i < n && !st; i++) out[i] = (const Kernel *)(uintptr_t)fn[i];
    block_free(fn);
    return st;
}

/* ---- open, close, describe -------------------------------------------------------------------------------------------------------------------- */
static const char *opencl_isa(Device *d) { return d->shuffles ? "sub-groups" : "plain"; }

static uint64_t device_number(Device *d, uint32_t what)
{
    uint64_t v = 0;
    return d->cl.GetDeviceInfo(d->id, what, sizeof v, &v, NULL) ? 0 : v;
}

static void device_words(Device *d, uint32_t what, char *to, size_t n)
{
    to[0] = 0;
    if (d->cl.GetDeviceInfo(d->id, what, n, to, NULL)) snprintf(to, n, "?");
    to[n - 1] = 0;
}

static void opencl_close(Device *d)
{
    if (!d) return;
    builder_close(d->builder);
    while (d->blocks) {
        Block *b = d->blocks;
        d->blocks = b->next;
        d->cl.ReleaseMemObject(b->mem);
        block_free(b);
    }
    if (d->queue) d->cl.ReleaseCommandQueue(d->queue);
    if (d->context) d->cl.ReleaseContext(d->context);
    /* the library stays: implementations keep threads */
    pthread_mutex_destroy(&d->failing);
    pthread_mutex_destroy(&d->lock);
    block_free(d);
}

static Status device_number_of(const Options *opt, uint32_t *n, RtError *e)
{
    const char *s = opt->target ? strchr(opt->target, ':') : NULL;
    char *end;
    *n = 0;
    if (!s) return E_OK;
    unsigned long v = strtoul(s + 1, &end, 10);
    if (end == s + 1 || *end || v > 1000) return rt_fail(e, E_INVALID, "target '%s': wanted the number of a device behind the colon", opt->target);
    *n = (uint32_t)v;
    return E_OK;
}

/* Sub-groups are of use where a thread can read what its neighbours hold. They came with OpenCL 2.0, and were left to the device again in 3.0. */
static Status shuffles_find(Device *d, RtError *e)
{
    size_t n = 0;
    if (d->cl.GetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, 0, NULL, &n) || !n) return E_OK;
    char *words = block_alloc(n + 1);
    if (!words) return rt_fail(e, E_NOMEM, "no memory for a device's extensions");
    device_words(d, CL_DEVICE_EXTENSIONS, words, n + 1);
    d->shuffles = strstr(words, "cl_khr_subgroup_shuffle") && (uint32_t)device_number(d, CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0;
    block_free(words);
    return E_OK;
}

static Status toolchain_open(Device *d, const Options *opt, uint32_t number, RtError *e)
{
    char c[64];
    uint64_t h = hash_bytes(d->name, strlen(d->name), hash_bytes(d->driver, strlen(d->driver), hash_bytes(d->version, strlen(d->version), 0)));
    device_words(d, CL_DEVICE_OPENCL_C_VERSION, c, sizeof c);           /* "OpenCL C 1.2 ..." */
    snprintf(d->number, sizeof d->number, "--device=%u", number);
    snprintf(d->stamp, sizeof d->stamp, "--stamp=%016" PRIx64, h);        /* so that another driver makes other keys */
    d->tools = (Toolchain){ .flag = d->flag, .of = d, .load = cl_unit_open, .symbol = cl_unit_symbol, .unload = cl_unit_close };
    if (worker_find(CL_WORKER, d->worker)) d->tools.program = d->worker;
    else {
        snprintf(d->missing, sizeof d->missing, "no OpenCL compiler: the program " CL_WORKER " is neither beside sinter nor on PATH");
        d->tools.missing = d->missing;
    }
    d->flag[d->tools.nflag++] = d->number;
    d->flag[d->tools.nflag++] = d->stamp;
    const int options = d->tools.nflag;
    d->flag[d->tools.nflag++] = !d->shuffles ? "-cl-std=CL1.2" : strstr(c, "OpenCL C 2.") ? "-cl-std=CL2.0" : "-cl-std=CL3.0";
    if (device_number(d, CL_DEVICE_SINGLE_FP_CONFIG) & FP_CORRECTLY_ROUNDED) d->flag[d->tools.nflag++] = "-cl-fp32-correctly-rounded-divide-sqrt";
    for (int i = options; i < d->tools.nflag; i++) snprintf(d->options + strlen(d->options), sizeof d->options - strlen(d->options), "%s%s", i > options ? " " : "", d->flag[i]);
    return builder_open(&d->builder, opt, &d->tools, e);
}

static Status opencl_open(Device **out, const Options *opt, RtError *e)
{
    *out = NULL;
    Device *d = block_alloc(sizeof *d);
    if (!d) return rt_fail(e, E_NOMEM, "no memory for a device");
    memset(d, 0, sizeof *d);
    if (pthread_mutex_init(&d->lock, NULL)) { block_free(d); return rt_fail(e, E_NOMEM, "no memory for a lock"); }
    if (pthread_mutex_init(&d->failing, NULL)) { pthread_mutex_destroy(&d->lock); block_free(d); return rt_fail(e, E_NOMEM, "no memory for a lock"); }
    d->next_address = (uint64_t)1 << 44;
    uint32_t number = 0;
    int32_t st = 0;
    char why[256];
    Status ret = device_number_of(opt, &number, e);
    if (!ret && (!opencl_load(&d->cl, why, sizeof why) || !opencl_device(&d->cl, number, &d->id, why, sizeof why))) ret = rt_fail(e, E_DEVICE, "%s", why);
    if (ret) goto done;
    device_words(d, CL_DEVICE_NAME, d->name, sizeof d->name);
    device_words(d, CL_DRIVER_VERSION, d->driver, sizeof d->driver);
    device_words(d, CL_DEVICE_VERSION, d->version, sizeof d->version);
    d->memory = device_number(d, CL_DEVICE_GLOBAL_MEM_SIZE);
    d->block_most = device_number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->units = device_number(d, CL_DEVICE_MAX_COMPUTE_UNITS);
    d->group_most = device_number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    d->param_most = device_number(d, CL_DEVICE_MAX_PARAMETER_SIZE);
    if (!device_number(d, CL_DEVICE_DOUBLE_FP_CONFIG)) { ret = rt_fail(e, E_DEVICE, "OpenCL: %s has no double precision, which kernels need", d->name); goto done; }
    if (!opt->isa || strcmp(opt->isa, "plain")) ret = shuffles_find(d, e);
    if (ret) goto done;
    snprintf(d->about, sizeof d->about, "%.150s, OpenCL, %s, driver %.150s", d->name, opencl_isa(d), d->driver);
    d->context = d->cl.CreateContext(NULL, 1, &d->id, NULL, NULL, &st);
    if (!d->context) { ret = cl_fail(d, e, E_DEVICE, "no context", st); goto done; }
    d->queue = d->cl.CreateCommandQueue(d->context, d->id, CL_QUEUE_PROFILING, &st);
    if (!d->queue) { ret = cl_fail(d, e, E_DEVICE, "no queue", st); goto done; }
    ret = toolchain_open(d, opt, number, e);
done:
    if (ret) opencl_close(d);
    else *out = d;
    return ret;
}

static const char *opencl_describe(Device *d) { return d->about; }
static const char *opencl_command(Device *d) { return builder_command(d->builder); }

/* ---- memory --------------------------------------------------------------------------------------------------------------------------------------- */
static Status opencl_alloc(Device *d, size_t n, void **out, RtError *e)
{
    *out = NULL;
    int32_t st = 0;
    Status ret = device_there(d, e);
    if (ret) return ret;
    if (n > d->block_most) return rt_fail(e, E_NOMEM, "%zu bytes are wanted in one block, %s allows %" PRIu64, n, d->name, d->block_most);
    Block *b = block_alloc(sizeof *b);
    if (!b) return rt_fail(e, E_NOMEM, "no memory for a block");
    pthread_mutex_lock(&d->lock);
    if (n > d->memory - d->used) {
        ret = rt_fail(e, E_NOMEM, "%zu bytes are wanted, %s has %" PRIu64 ", of which %" PRIu64 " are in use", n, d->name, d->memory, d->used);
        goto done;
    }
    *b = (Block){ d->blocks, d->next_address, n, d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, n ? n : 1, NULL, &st) };
    if (!b->mem) { ret = cl_fail(d, e, E_NOMEM, "no buffer", st); goto done; }
    d->next_address += (n + 0x1ffff) & ~(uint64_t)0xffff;       /* one address is the end of no two blocks */
    d->used += n;
    d->blocks = b;
    *out = (void *)(uintptr_t)b->address;
done:
    pthread_mutex_unlock(&d->lock);
    if (ret) block_free(b);
    return ret;
}

static void opencl_release(Device *d, void *p)
{
    if (!p) return;
    pthread_mutex_lock(&d->lock);
    for (Block **at = &d->blocks; *at; at = &(*at)->next) {
        Block *b = *at;
        if (b->address != (uintptr_t)p) continue;
        *at = b->next;
        d->used -= b->size;
        d->cl.ReleaseMemObject(b->mem);
        block_free(b);
        break;
    }
    pthread_mutex_unlock(&d->lock);
}

/* Under the lock. NULL (an empty buffer) is no object, at 0. */
static void *block_of(Device *d, const void *p, uint64_t *at)
{
    uint64_t a = (uintptr_t)p;
    *at = 0;
    for (const Block *b = d->blocks; b && p; b = b->next) {
        if (a < b->address || a > b->address + b->size) continue;
        *at = a - b->address;
        return b->mem;
    }
    return NULL;
}

static Status copy_bytes(Device *d, void *far, const void *from, void *to, size_t n, RtError *e)
{
    uint64_t at;
    Status there = n ? device_there(d, e) : E_OK;
    if (!n || there) return there;
    pthread_mutex_lock(&d->lock);
    void *mem = block_of(d, far, &at);
    pthread_mutex_unlock(&d->lock);
    if (!mem) return rt_fail(e, E_DEVICE, "OpenCL: %p is no address of the device", far);
    int32_t st = from ? d->cl.EnqueueWriteBuffer(d->queue, mem, 1, at, n, from, 0, NULL, NULL) : d->cl.EnqueueReadBuffer(d->queue, mem, 1, at, n, to, 0, NULL, NULL);
    return cl_waited(d, e, from ? "copying to the device" : "copying from the device", st);
}

static Status opencl_write(Device *d, void *dst, const void *src, size_t n, RtError *e) { return copy_bytes(d, dst, src, NULL, n, e); }
static Status opencl_read(Device *d, void *dst, const void *src, size_t n, RtError *e) { return copy_bytes(d, (void *)(uintptr_t)src, NULL, dst, n, e); }

/* ---- run ---------------------------------------------------------------------------------------------------------------------------------------------- */
typedef struct ListRun { void *err, *scratch; size_t scratch_room; void **event; } ListRun;

static int64_t launch_groups(const Device *d, const Launch *l)
{
    int64_t n = (l->total + l->each - 1) / l->each, most = GROUPS_MOST;
    if (l->scratch) most = (int64_t)d->units * GROUPS_SCRATCH;
    return n < most ? n : most;
}

/* Under the lock: arguments belong to the kernel object. */
static Status launch_enqueue(Device *d, const ListRun *r, const Launch *l, int at, RtError *e)
{
    void *kernel = ((const ClKernel *)(const void *)l->kernel)->kernel;
    uint32_t a = 0;
    int32_t st = 0;
    if ((uint64_t)l->threads > d->group_most) return rt_fail(e, E_DEVICE, "OpenCL: a group of %d threads is wanted, %s allows %" PRIu64, l->threads, d->name, d->group_most);
    if ((uint64_t)l->nbuf * 16 + (uint64_t)l->narg * 8 + 40 > d->param_most)
        return rt_fail(e, E_DEVICE, "OpenCL: a kernel has %d buffers and %d numbers, more parameters than %s allows", l->nbuf, l->narg, d->name);
#define SET(n, p) if (!st) st = d->cl.SetKernelArg(kernel, a++, n, p)
    for (int i = 0; i < l->nbuf; i++) {
        uint64_t off;
        void *mem = block_of(d, l->buf[i], &off);
        if (!mem && l->buf[i]) return rt_fail(e, E_DEVICE, "OpenCL: %p is no address of the device", l->buf[i]);
        SET(sizeof mem, mem ? &mem : NULL);
        SET(sizeof off, &off);
    }
    for (int i = 0; i < l->narg; i++) SET(sizeof l->arg[i], &l->arg[i]);
    uint64_t err_at = (uint64_t)at * 32;
    SET(sizeof l->total, &l->total);
    SET(sizeof r->scratch, l->scratch ? &r->scratch : NULL);
    SET(sizeof r->err, l->checks ? &r->err : NULL);
    SET(sizeof err_at, &err_at);
    if (l->local) SET(l->local, NULL);
#undef SET
    if (st) return cl_fail(d, e, E_DEVICE, "setting arguments", st);
    size_t local = (size_t)l->threads, global = local * (size_t)launch_groups(d, l);
    st = d->cl.EnqueueNDRangeKernel(d->queue, kernel, 1, NULL, &global, &local, 0, NULL, r->event ? &r->event[at] : NULL);
    return st ? cl_fail(d, e, E_DEVICE, "launching a kernel", st) : E_OK;
}

/* What the list needs beside its buffers. */
static Status list_open(Device *d, ListRun *r, int n, const Launch *list, bool times, RtError *e)
{
    bool checks = false;
    size_t scratch = 0;
    int32_t st = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].host || list[i].total <= 0) continue;
        checks |= list[i].checks;
        size_t want = list[i].scratch * (size_t)launch_groups(d, &list[i]);
        if (want > scratch) scratch = want;
    }
    if (scratch > d->block_most) return rt_fail(e, E_NOMEM, "%zu bytes of scratch are wanted, %s allows blocks of %" PRIu64, scratch, d->name, d->block_most);
    if (scratch && !(r->scratch = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, scratch, NULL, &st))) return cl_fail(d, e, E_NOMEM, "no buffer for scratch", st);
    if (times) {
        if (!(r->event = block_alloc(sizeof *r->event * (size_t)(n + 1)))) return rt_fail(e, E_NOMEM, "no memory for %d events", n);
        memset(r->event, 0, sizeof *r->event * (size_t)(n + 1));
    }
    if (!checks) return E_OK;
    if (!(r->err = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, 32 * (size_t)n, NULL, &st))) return cl_fail(d, e, E_NOMEM, "no buffer for errors", st);
    void *zero = block_alloc(32 * (size_t)n);
    if (!zero) return rt_fail(e, E_NOMEM, "no memory for %d error words", n);
    memset(zero, 0, 32 * (size_t)n);
    st = d->cl.EnqueueWriteBuffer(d->queue, r->err, 1, 0, 32 * (size_t)n, zero, 0, NULL, NULL);
    block_free(zero);
    return st ? cl_fail(d, e, E_DEVICE, "clearing the error words", st) : E_OK;
}

/* The first launch that found an index outside its axis. */
static Status list_check(Device *d, const ListRun *r, int n, const Launch *list, RtError *e)
{
    if (!r->err) return E_OK;
    int64_t (*words)[4] = block_alloc(sizeof *words * (size_t)n);
    if (!words) return rt_fail(e, E_NOMEM, "no memory for %d error words", n);
    int32_t st = d->cl.EnqueueReadBuffer(d->queue, r->err, 1, 0, sizeof *words * (size_t)n, words, 0, NULL, NULL);
    Status ret = cl_waited(d, e, "reading the error words", st);
    for (int i = 0; i < n && !ret; i++) {
        if (!words[i][0]) continue;
        ret = rt_fail(e, E_INVALID, "index %" PRId64 " is outside an axis of size %" PRId64, words[i][2], words[i][3]);
        if (e) {
            e->launch = list[i].id;
            e->site = words[i][1]; e->value = words[i][2]; e->limit = words[i][3];
        }
    }
    block_free(words);
    return ret;
}

static double event_seconds(Device *d, void *event)
{
    uint64_t from = 0, to = 0;
    if (!event || d->cl.GetEventProfilingInfo(event, CL_PROFILING_START, sizeof from, &from, NULL) || d->cl.GetEventProfilingInfo(event, CL_PROFILING_END, sizeof to, &to, NULL)) return 0;
    return (double)(to - from) * 1e-9;
}

static Status opencl_run(Device *d, int n, const Launch *list, int threads, volatile int *cancel, double *seconds, RtError *e)
{
    (void)threads;
    ListRun r = { 0 };
    Status ret = device_there(d, e);
    if (!ret) ret = list_open(d, &r, n, list, seconds != NULL, e);
    for (int i = 0; i < n && !ret; i++) {
        const Launch *l = &list[i];
        if (seconds) seconds[i] = 0;
        if (proc_cancelled(cancel)) { ret = rt_fail(e, E_CANCELLED, "cancelled while it ran"); break; }
        if (l->host) {
            RtError own = { .launch = l->id };
            double start = time_now();
            l->host(l->host_arg, &own);
            if (seconds) seconds[i] = time_now() - start;
            if (own.code && e) *e = own;
            ret = own.code;
        } else if (l->total > 0) {
            pthread_mutex_lock(&d->lock);
            ret = launch_enqueue(d, &r, l, i, e);
            pthread_mutex_unlock(&d->lock);
        }
    }
    int32_t st = d->cl.Finish(d->queue);
    if (st && !ret) ret = cl_waited(d, e, "running kernels", st);
    if (!ret) ret = list_check(d, &r, n, list, e);
    for (int i = 0; r.event && seconds && i < n; i++) {
        if (!r.event[i]) continue;
        seconds[i] = event_seconds(d, r.event[i]);
        d->cl.ReleaseEvent(r.event[i]);
    }
    if (r.err) d->cl.ReleaseMemObject(r.err);
    if (r.scratch) d->cl.ReleaseMemObject(r.scratch);
    block_free(r.event);
    return ret;
}

const DeviceApi dev_opencl = {
    .name = "opencl",
    .place = 4,
    .open = opencl_open, .close = opencl_close, .describe = opencl_describe, .isa = opencl_isa, .command = opencl_command,
    .alloc = opencl_alloc, .release = opencl_release, .write = opencl_write, .read = opencl_read, .build = opencl_build, .run = opencl_run,
};
