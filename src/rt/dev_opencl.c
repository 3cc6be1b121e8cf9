/* OpenCL as a device, through the loader library, which is opened when it is asked for: nothing of it is needed to build.
 *
 * A block of memory is a memory object; its address is a number of our own, so that a program may add to it, and is turned into object and offset again when
 * a kernel gets it. Kernels are compiled several to a program; program binaries lie in the folder of compiled kernels, under a key of text, prelude, options,
 * device and driver. One queue, in order. Arguments of a kernel are set under the lock. */
#include "rt/rt.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ClApi {
#define CL(result, name, args) result (*name) args;
#include "rt/opencl.def"
#undef CL
} ClApi;

/* numbers of the standard */
enum { CL_PLATFORM_NAME = 0x0902, CL_DEVICE_TYPE_ALL = -1, CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004, CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
       CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017, CL_DEVICE_SINGLE_FP_CONFIG = 0x101B, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F, CL_DEVICE_NAME = 0x102B, CL_DRIVER_VERSION = 0x102D,
       CL_DEVICE_VERSION = 0x102F, CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032, CL_QUEUE_PROFILING = 2, CL_MEM_READ_WRITE = 1, CL_PROGRAM_BINARY_SIZES = 0x1165,
       CL_PROGRAM_BINARIES = 0x1166, CL_PROGRAM_BUILD_LOG = 0x1183, CL_PROFILING_START = 0x1282, CL_PROFILING_END = 0x1283, FP_CORRECTLY_ROUNDED = 1 << 7 };
enum { BATCH = 16, KERNEL_SLOTS = 4096, GROUPS_MOST = 1 << 16, GROUPS_SCRATCH = 8 };      /* kernels of a program; groups for each compute unit when each needs scratch */
#define CL_TEXT_ABI "cl1"                /* raise when the meaning of parameters changes */

typedef struct Block { struct Block *next; uint64_t address; size_t size; void *mem; } Block;
struct Kernel { struct Kernel *next; uint64_t key; void *kernel; };
typedef struct ClProgram { struct ClProgram *next; void *program; } ClProgram;

struct Device {
    ClApi cl;
    void *library, *id, *context, *queue;
    char name[160], driver[160], version[160], about[512], options[128];
    uint64_t memory, block_most, units, group_most, param_most;
    pthread_mutex_t lock;               /* over all below, and over setting arguments */
    Block *blocks; uint64_t next_address, used;
    struct Kernel *slot[KERNEL_SLOTS];
    ClProgram *programs;
    Cache cache;
};

static const char *cl_error(int32_t st)
{
    switch (st) {
    case -1: return "device not found";
    case -2: return "device not available";
    case -3: return "compiler not available";
    case -4: return "no device memory for an object";
    case -5: return "out of resources";
    case -6: return "out of host memory";
    case -11: return "the program does not build";
    case -14: return "a command before it failed";
    case -36: return "invalid command queue";
    case -38: return "invalid memory object";
    case -45: return "invalid program executable";
    case -48: return "invalid kernel";
    case -51: return "invalid size of an argument";
    case -52: return "invalid arguments";
    case -54: return "invalid group size";
    case -61: return "invalid buffer size";
    default: return "failed";
    }
}

static Status cl_fail(RtError *e, Status code, const char *what, int32_t st)
{
    if (st == -4 || st == -6) code = E_NOMEM;
    return rt_fail(e, code, "OpenCL: %s: %s (%d)", what, cl_error(st), st);
}

/* ---- open, close, describe -------------------------------------------------------------------------------------------------------------------- */
static Status library_open(Device *d, RtError *e)
{
    if (!(d->library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL)))
        return rt_fail(e, E_DEVICE, "OpenCL: there is no libOpenCL.so.1 (Debian: ocl-icd-libopencl1, and pocl-opencl-icd for the processor)");
#define CL(result, name, args) if (!(*(void **)&d->cl.name = dlsym(d->library, "cl" #name))) return rt_fail(e, E_DEVICE, "OpenCL: libOpenCL.so.1 has no cl" #name);
#include "rt/opencl.def"
#undef CL
    return E_OK;
}

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

/* The want-th device of all platforms. */
static Status device_find(Device *d, uint32_t want, RtError *e)
{
    void *platform[16], *device[64];
    uint32_t np = 0, seen = 0;
    int32_t st = d->cl.GetPlatformIDs(COUNT_OF(platform), platform, &np);
    if (st || !np) return rt_fail(e, E_DEVICE, "OpenCL: there is no platform (Debian: pocl-opencl-icd runs on the processor)");
    for (uint32_t p = 0; p < np && p < COUNT_OF(platform); p++) {
        uint32_t nd = 0;
        if (d->cl.GetDeviceIDs(platform[p], (uint64_t)(int64_t)CL_DEVICE_TYPE_ALL, COUNT_OF(device), device, &nd)) continue;
        if (nd > COUNT_OF(device)) nd = COUNT_OF(device);
        if (want < seen + nd) {
            d->id = device[want - seen];
            return E_OK;
        }
        seen += nd;
    }
    if (!seen) return rt_fail(e, E_DEVICE, "OpenCL: %u platform%s without a device", np, np == 1 ? "" : "s");
    return rt_fail(e, E_DEVICE, "OpenCL: device %u is wanted, there are %u, from 0 on", want, seen);
}

static void opencl_close(Device *d)
{
    if (!d) return;
    for (int i = 0; i < KERNEL_SLOTS; i++)
        while (d->slot[i]) {
            struct Kernel *k = d->slot[i];
            d->slot[i] = k->next;
            d->cl.ReleaseKernel(k->kernel);
            block_free(k);
        }
    while (d->programs) {
        ClProgram *p = d->programs;
        d->programs = p->next;
        d->cl.ReleaseProgram(p->program);
        block_free(p);
    }
    while (d->blocks) {
        Block *b = d->blocks;
        d->blocks = b->next;
        d->cl.ReleaseMemObject(b->mem);
        block_free(b);
    }
    if (d->queue) d->cl.ReleaseCommandQueue(d->queue);
    if (d->context) d->cl.ReleaseContext(d->context);
    /* the library stays: implementations keep threads */
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

static Status opencl_open(Device **out, const Options *opt, RtError *e)
{
    *out = NULL;
    Device *d = block_alloc(sizeof *d);
    if (!d) return rt_fail(e, E_NOMEM, "no memory for a device");
    memset(d, 0, sizeof *d);
    if (pthread_mutex_init(&d->lock, NULL)) { block_free(d); return rt_fail(e, E_NOMEM, "no memory for a lock"); }
    d->next_address = (uint64_t)1 << 44;
    uint32_t number = 0;
    int32_t st = 0;
    Status ret = device_number_of(opt, &number, e);
    if (!ret) ret = library_open(d, e);
    if (!ret) ret = device_find(d, number, e);
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
    snprintf(d->options, sizeof d->options, "-cl-std=CL1.2%s", device_number(d, CL_DEVICE_SINGLE_FP_CONFIG) & FP_CORRECTLY_ROUNDED ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
    snprintf(d->about, sizeof d->about, "%.150s, OpenCL, driver %.150s", d->name, d->driver);
    d->context = d->cl.CreateContext(NULL, 1, &d->id, NULL, NULL, &st);
    if (!d->context) { ret = cl_fail(e, E_DEVICE, "no context", st); goto done; }
    d->queue = d->cl.CreateCommandQueue(d->context, d->id, CL_QUEUE_PROFILING, &st);
    if (!d->queue) { ret = cl_fail(e, E_DEVICE, "no queue", st); goto done; }
    cache_open(&d->cache, opt);
done:
    if (ret) opencl_close(d);
    else *out = d;
    return ret;
}

static const char *opencl_describe(Device *d) { return d->about; }
static const char *opencl_isa(Device *d) { return d->version; }
static const char *opencl_command(Device *d) { return d->options; }

/* ---- memory --------------------------------------------------------------------------------------------------------------------------------------- */
static Status opencl_alloc(Device *d, size_t n, void **out, RtError *e)
{
    *out = NULL;
    int32_t st = 0;
    Status ret = E_OK;
    if (n > d->block_most) return rt_fail(e, E_NOMEM, "%zu bytes are wanted in one block, %s allows %" PRIu64, n, d->name, d->block_most);
    Block *b = block_alloc(sizeof *b);
    if (!b) return rt_fail(e, E_NOMEM, "no memory for a block");
    pthread_mutex_lock(&d->lock);
    if (n > d->memory - d->used) {
        ret = rt_fail(e, E_NOMEM, "%zu bytes are wanted, %s has %" PRIu64 ", of which %" PRIu64 " are in use", n, d->name, d->memory, d->used);
        goto done;
    }
    *b = (Block){ d->blocks, d->next_address, n, d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, n ? n : 1, NULL, &st) };
    if (!b->mem) { ret = cl_fail(e, E_NOMEM, "no buffer", st); goto done; }
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
    if (!n) return E_OK;
    pthread_mutex_lock(&d->lock);
    void *mem = block_of(d, far, &at);
    pthread_mutex_unlock(&d->lock);
    if (!mem) return rt_fail(e, E_DEVICE, "OpenCL: %p is no address of the device", far);
    int32_t st = from ? d->cl.EnqueueWriteBuffer(d->queue, mem, 1, at, n, from, 0, NULL, NULL) : d->cl.EnqueueReadBuffer(d->queue, mem, 1, at, n, to, 0, NULL, NULL);
    return st ? cl_fail(e, E_DEVICE, from ? "copying to the device" : "copying from the device", st) : E_OK;
}

static Status opencl_write(Device *d, void *dst, const void *src, size_t n, RtError *e) { return copy_bytes(d, dst, src, NULL, n, e); }
static Status opencl_read(Device *d, void *dst, const void *src, size_t n, RtError *e) { return copy_bytes(d, (void *)(uintptr_t)src, NULL, dst, n, e); }

/* ---- build ------------------------------------------------------------------------------------------------------------------------------------------ */
static struct Kernel *kernel_find(const Device *d, uint64_t key)
{
    struct Kernel *k = d->slot[key % KERNEL_SLOTS];
    while (k && k->key != key) k = k->next;
    return k;
}

static Status kernel_add(Device *d, void *program, const char *name, uint64_t key, RtError *e)
{
    int32_t st = 0;
    if (kernel_find(d, key)) return E_OK;
    struct Kernel *k = block_alloc(sizeof *k);
    if (!k) return rt_fail(e, E_NOMEM, "no memory for a kernel");
    *k = (struct Kernel){ d->slot[key % KERNEL_SLOTS], key, d->cl.CreateKernel(program, name, &st) };
    if (!k->kernel) { block_free(k); return cl_fail(e, E_COMPILE, name, st); }
    d->slot[key % KERNEL_SLOTS] = k;
    return E_OK;
}

/* Takes over a program in any case. */
static Status program_keep(Device *d, void *program, RtError *e)
{
    ClProgram *p = block_alloc(sizeof *p);
    if (!p) {
        d->cl.ReleaseProgram(program);
        return rt_fail(e, E_NOMEM, "no memory for a program");
    }
    *p = (ClProgram){ d->programs, program };
    d->programs = p;
    return E_OK;
}

/* A program that the folder holds, or NULL. A file is the binary's size in 8 bytes, the binary, and the folder's trailer. */
static void *binary_load(Device *d, uint64_t unit)
{
    char path[CACHE_PATH], why[64];
    File f;
    void *program = NULL;
    int32_t st = 0, binary_st = 0;
    if (!cache_check(&d->cache, unit, path) || file_map(path, &f, why, sizeof why) != E_OK) return NULL;
    uint64_t n = 0;
    if (f.size > sizeof n) memcpy(&n, f.data, sizeof n);
    if (n && n <= f.size - sizeof n) {
        const uint8_t *binary = f.data + sizeof n;
        size_t size = n;
        program = d->cl.CreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, &binary_st, &st);
        if (program && d->cl.BuildProgram(program, 1, &d->id, d->options, NULL, NULL)) {
            d->cl.ReleaseProgram(program);
            program = NULL;
        }
    }
    file_unmap(&f);
    return program;
}

/* Failures only mean that nothing is remembered. */
static void binary_store(Device *d, void *program, uint64_t unit, int n, const uint64_t *key)
{
    size_t size = 0;
    char work[CACHE_PATH], path[CACHE_PATH + 16], why[128];
    if (!d->cache.on || d->cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) || !size) return;
    uint8_t *bytes = block_alloc(size + sizeof(uint64_t)), *binary = bytes + sizeof(uint64_t);
    if (!bytes) return;
    uint64_t length = size;
    memcpy(bytes, &length, sizeof length);
    if (!d->cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) && work_make(&d->cache, false, work, why, sizeof why)) {
        snprintf(path, sizeof path, "%s/unit", work);
        if (file_write(path, bytes, size + sizeof length, why, sizeof why) == E_OK && cache_store(&d->cache, path, unit))
            for (int i = 0; i < n; i++) cache_link(&d->cache, work, key[i], unit);
        work_remove(work);
    }
    block_free(bytes);
}

static Status log_fail(Device *d, void *program, int32_t st, RtError *e)
{
    size_t n = 0;
    if (d->cl.GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) || n < 2) return cl_fail(e, E_COMPILE, d->options, st);
    char *log = block_alloc(n + 1);
    if (!log) return cl_fail(e, E_COMPILE, d->options, st);
    log[0] = 0;
    d->cl.GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, n, log, NULL);
    log[n] = 0;
    const char *error = strstr(log, "error");
    Status ret = rt_fail(e, E_COMPILE, "OpenCL: %s: %.800s", cl_error(st), error ? error : log);
    block_free(log);
    return ret;
}

/* Compiles texts as one program. */
static Status compile_batch(Device *d, const char *prelude, int n, const KernelText *const *k, const uint64_t *key, RtError *e)
{
    const char *text[BATCH + 1];
    int32_t st = 0;
    text[0] = prelude;
    for (int i = 0; i < n; i++) text[i + 1] = k[i]->text;
    void *program = d->cl.CreateProgramWithSource(d->context, (uint32_t)n + 1, text, NULL, &st);
    if (!program) return cl_fail(e, E_COMPILE, "no program", st);
    st = d->cl.BuildProgram(program, 1, &d->id, d->options, NULL, NULL);
    Status ret = st ? log_fail(d, program, st, e) : E_OK;
    if (ret) {
        d->cl.ReleaseProgram(program);
        return ret;
    }
    ret = program_keep(d, program, e);
    for (int i = 0; i < n && !ret; i++) ret = kernel_add(d, program, k[i]->name, key[i], e);
    if (!ret) binary_store(d, program, hash_bytes(key, sizeof *key * (size_t)n, 7), n, key);
    return ret;
}

static bool from_folder(Device *d, const KernelText *k, uint64_t key)
{
    uint64_t unit;
    if (!cache_unit(&d->cache, key, &unit)) return false;
    void *program = binary_load(d, unit);
    return program && program_keep(d, program, NULL) == E_OK && kernel_add(d, program, k->name, key, NULL) == E_OK;
}

static Status opencl_build(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, volatile int *cancel, RtError *e)
{
    const KernelText *batch[BATCH];
    uint64_t batch_key[BATCH], base = hash_bytes(prelude, strlen(prelude), hash_bytes(d->options, strlen(d->options), 0));
    BuildStats s = { .asked = n };
    double start = time_now();
    Status st = E_OK;
    int nbatch = 0;
    base = hash_bytes(d->name, strlen(d->name), hash_bytes(d->driver, strlen(d->driver), hash_bytes(d->version, strlen(d->version), hash_bytes(CL_TEXT_ABI, sizeof CL_TEXT_ABI, base))));
    uint64_t *key = block_alloc(sizeof *key * (size_t)(n + 1));
    if (!key) return rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < n && !st; i++) {
        key[i] = hash_bytes(k[i].text, strlen(k[i].text), base);
        bool waits = false;
        for (int j = 0; j < nbatch; j++) waits |= batch_key[j] == key[i];
        if (kernel_find(d, key[i])) s.from_memory++;
        else if (waits) continue;
        else if (from_folder(d, &k[i], key[i])) { s.from_disk++; s.unique++; }
        else {
            s.unique++;
            batch[nbatch] = &k[i];
            batch_key[nbatch++] = key[i];
        }
        if (nbatch < BATCH && i + 1 < n) continue;
        if (proc_cancelled(cancel)) st = rt_fail(e, E_CANCELLED, "stopped while kernels were built");
        else if (nbatch) st = compile_batch(d, prelude, nbatch, batch, batch_key, e);
        s.compiled += nbatch;
        nbatch = 0;
    }
    if (nbatch && !st) { st = compile_batch(d, prelude, nbatch, batch, batch_key, e); s.compiled += nbatch; }
    for (int i = 0; i < n && !st; i++) out[i] = kernel_find(d, key[i]);
    pthread_mutex_unlock(&d->lock);
    block_free(key);
    if (s.compiled) cache_trim(&d->cache);
    s.seconds = time_now() - start;
    if (stats) *stats = s;
    return st;
}

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
    void *kernel = ((const struct Kernel *)l->kernel)->kernel;
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
    if (st) return cl_fail(e, E_DEVICE, "setting arguments", st);
    size_t local = (size_t)l->threads, global = local * (size_t)launch_groups(d, l);
    st = d->cl.EnqueueNDRangeKernel(d->queue, kernel, 1, NULL, &global, &local, 0, NULL, r->event ? &r->event[at] : NULL);
    return st ? cl_fail(e, E_DEVICE, "launching a kernel", st) : E_OK;
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
    if (scratch && !(r->scratch = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, scratch, NULL, &st))) return cl_fail(e, E_NOMEM, "no buffer for scratch", st);
    if (times) {
        if (!(r->event = block_alloc(sizeof *r->event * (size_t)(n + 1)))) return rt_fail(e, E_NOMEM, "no memory for %d events", n);
        memset(r->event, 0, sizeof *r->event * (size_t)(n + 1));
    }
    if (!checks) return E_OK;
    if (!(r->err = d->cl.CreateBuffer(d->context, CL_MEM_READ_WRITE, 32 * (size_t)n, NULL, &st))) return cl_fail(e, E_NOMEM, "no buffer for errors", st);
    void *zero = block_alloc(32 * (size_t)n);
    if (!zero) return rt_fail(e, E_NOMEM, "no memory for %d error words", n);
    memset(zero, 0, 32 * (size_t)n);
    st = d->cl.EnqueueWriteBuffer(d->queue, r->err, 1, 0, 32 * (size_t)n, zero, 0, NULL, NULL);
    block_free(zero);
    return st ? cl_fail(e, E_DEVICE, "clearing the error words", st) : E_OK;
}

/* The first launch that found an index outside its axis. */
static Status list_check(Device *d, const ListRun *r, int n, const Launch *list, RtError *e)
{
    if (!r->err) return E_OK;
    int64_t (*words)[4] = block_alloc(sizeof *words * (size_t)n);
    if (!words) return rt_fail(e, E_NOMEM, "no memory for %d error words", n);
    int32_t st = d->cl.EnqueueReadBuffer(d->queue, r->err, 1, 0, sizeof *words * (size_t)n, words, 0, NULL, NULL);
    Status ret = st ? cl_fail(e, E_DEVICE, "reading the error words", st) : E_OK;
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
    Status ret = list_open(d, &r, n, list, seconds != NULL, e);
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
    if (st && !ret) ret = cl_fail(e, E_DEVICE, "running kernels", st);
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
