/* NVIDIA GPUs through the driver's library, which is loaded at run time.
 *
 * Kernels come from the builder with NVRTC as its toolchain: a unit is a cubin, loaded as a module. A run takes a lane: a stream with error words, scratch
 * and pinned memory of its own, so that several threads run at the same time. The launches between two host functions are a stretch. A stretch that is seen
 * a second time with the same arguments is recorded into a graph, which later runs replay.
 *
 * A target "cuda:sm_90a" needs no card and no driver: kernels are compiled and reported, and don't run (as on the device null). A kernel that traps makes the context useless for the
 * rest of the process; the device is then lost, every call says so, and nothing else of the program is harmed. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CU_MULTIPROCESSORS = 16, CU_MAJOR = 75, CU_MINOR = 76, CU_SHARED_MOST = 97 }; /* device facts */
enum { CU_ATTRIBUTE_CLUSTER = 4, CU_FUNC_SHARED = 8, CU_FUNC_OWN_SHARED = 1, CU_FUNC_LOCAL = 3, CU_FUNC_REGISTERS = 4, CU_STREAM_APART = 1, CU_CAPTURE_THREAD = 1, CU_EVENT_QUIET = 2 };
enum { HELD = 64 }; /* launches that are surely queued without one of them being run */
enum { CU_OUT_OF_MEMORY = 2, CU_NO_DEVICE = 100, CU_IN_USE = 46 };
#define DRIVER_LEAST 12000
#define STAGE_BYTES  ((size_t)4 << 20) /* of pinned memory for each half of a copy */
#define SHARED_PLAIN 49152 /* a block gets more shared memory only when asked for */
#define ROOMS        16 /* blocks of memory whose sizes are known */
#define ROOMS_FREE   4 /* of them are kept when they are given back, if they are not large: */
#define ROOM_PART    32 /* the device's memory has so many */
#define GRAPHS       8 /* recorded stretches of a lane */
#define MOST_PARAMS  256
#define SCRATCH_BYTES ((size_t)256 << 20) /* of scratch in all, unless one group needs more */

typedef struct Cuda {
    void *lib;
#define CU(name, symbol, args) int(*name) args;
#include "rt/cuda.def"
#undef CU
} Cuda;

typedef struct CudaUnit {
    void *module; /* NULL without a card */
    const char *log;
    struct CudaKernel *kernels;
    size_t n;
    char text[]; /* the cubin, the log, 0 */
} CudaUnit;

/* What a Kernel is to this device. */
typedef struct CudaKernel {
    struct CudaKernel *next;
    void *function;
    KernelFacts facts;
    char note[192];
    int shared_set; /* the most dynamic shared memory asked for so far */
    int threads, local, occupancy; /* of the last question; threads 0: none yet */
} CudaKernel;

typedef struct Recorded {
    uint64_t key;
    void *exec; /* NULL: seen once */
    int64_t used;
} Recorded;

typedef struct CudaLane {
    struct CudaLane *next;
    void *stream; /* its own */
    void *queue; /* where it works: its stream, or the device's default stream */
    uint64_t err, scratch; /* device memory */
    size_t err_room, scratch_room;
    int64_t *err_host;
    size_t err_host_room;
    char *stage[2];
    void *stage_done[2];
    void **event;
    int nevent;
    atomic_int go; /* lets a stream that is held back go on */
    Recorded graph[GRAPHS];
    int64_t clock;
} CudaLane;

/* A block of memory, in use or free for the next who wants as much. */
typedef struct Room {
    uint64_t at; /* 0: none */
    size_t n;
    bool free;
} Room;

struct Device {
    Cuda cu;
    Builder *builder;
    Nvrtc *nvrtc;
    Toolchain tools;
    bool card; /* false: compiles only */
    int device, index, multiprocessors, shared_most, driver;
    void *context;
    char arch[32], name[128], about[512];
    bool graphs;
    pthread_mutex_t lock; /* over lanes, rooms, lost and the kernels' questions */
    CudaLane *free_lanes;
    Room room[ROOMS];
    atomic_bool others; /* others work with this memory too, in the default stream: so do lanes */
    bool lost;
    char why[512];
};

/* ---- errors ---- */

/* After these the context is of no use any more. */
static bool code_is_final(int code)
{
    switch (code) {
    case 214: case 700: case 702: case 710: case 714: case 715: case 716: case 717: case 718: case 719: case 999: return true;
    default: return false;
    }
}

static Status cuda_fail(Device *d, RtError *e, int code, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (d->cu.error_name)
        d->cu.error_name(code, &name);
    if (d->cu.error_text)
        d->cu.error_text(code, &text);
    char line[400];
    snprintf(line, sizeof line, "%s: %s: %s (%s)", d->name[0] ? d->name : "cuda", what, name ? name : "unknown", text ? text : "?");
    if (code_is_final(code)) {
        pthread_mutex_lock(&d->lock);
        if (!d->lost) {
            d->lost = true;
            snprintf(d->why, sizeof d->why, "%s; the device is lost to this process", line);
        }
        pthread_mutex_unlock(&d->lock);
        return rt_fail(e, E_DEVICE, "%s", d->why);
    }
    return rt_fail(e, code == CU_OUT_OF_MEMORY ? E_NOMEM : E_DEVICE, "%s", line);
}

#define CHECK(call, what)                                                                                                        \
    do {                                                                                                                         \
        int code_ = d->cu.call;                                                                                                  \
        if (code_) {                                                                                                             \
            st = cuda_fail(d, e, code_, what);                                                                                   \
            goto done;                                                                                                           \
        }                                                                                                                        \
    } while (0)

/* Makes the device's context the thread's; every enter that succeeds is followed by a leave. */
static Status enter(Device *d, RtError *e)
{
    ASSERT(d->card);
    pthread_mutex_lock(&d->lock);
    bool lost = d->lost;
    pthread_mutex_unlock(&d->lock);
    if (lost)
        return rt_fail(e, E_DEVICE, "%s", d->why);
    int code = d->cu.context_push(d->context);
    return code ? cuda_fail(d, e, code, "its context cannot be entered") : E_OK;
}

static void leave(Device *d)
{
    void *old;
    d->cu.context_pop(&old);
}

/* ---- units and kernels ---- */

static void *unit_open(void *of, const char *path, char *why, size_t nwhy)
{
    Device *d = of;
    File f;
    if (file_map(path, &f, why, nwhy))
        return NULL;
    CudaUnit *u = block_alloc(sizeof *u + f.size + 1);
    if (!u) {
        snprintf(why, nwhy, "no memory");
        goto done;
    }
    memset(u, 0, sizeof *u);
    memcpy(u->text, f.data, f.size);
    u->text[f.size] = 0;
    u->log = nvrtc_log(u->text, f.size);
    if (d->card) {
        RtError e;
        if (enter(d, &e)) {
            snprintf(why, nwhy, "%s", e.text);
            block_free(u), u = NULL;
            goto done;
        }
        int code = d->cu.module_load(&u->module, u->text);
        leave(d);
        if (code) {
            cuda_fail(d, &e, code, "a compiled kernel is refused");
            snprintf(why, nwhy, "%s; the driver serves CUDA %d.%d", e.text, d->driver / 1000, d->driver % 1000 / 10);
            block_free(u), u = NULL;
        }
    }
done:
    file_unmap(&f);
    return u;
}

static void *unit_symbol(void *of, void *unit, const char *name)
{
    Device *d = of;
    CudaUnit *u = unit;
    CudaKernel *k = block_alloc(sizeof *k);
    if (!k)
        return NULL;
    memset(k, 0, sizeof *k);
    bool ok = nvrtc_facts(u->log, name, &k->facts);
    if (d->card) {
        ok = !enter(d, NULL);
        if (ok) {
            ok = !d->cu.module_function(&k->function, u->module, name);
            if (ok && !k->facts.registers)        /* NVRTC remembers what it compiled, and says nothing then */
                ok = !d->cu.function_get(&k->facts.registers, CU_FUNC_REGISTERS, k->function) && !d->cu.function_get(&k->facts.shared, CU_FUNC_OWN_SHARED, k->function)
                    && !d->cu.function_get(&k->facts.stack, CU_FUNC_LOCAL, k->function);
            leave(d);
        }
    }
    if (!ok) {
        block_free(k);
        return NULL;
    }
    snprintf(k->note, sizeof k->note, "%d registers, %d B shared, %d B stack, %d B spilled", k->facts.registers, k->facts.shared, k->facts.stack,
             k->facts.spill_stores + k->facts.spill_loads);
    k->next = u->kernels;
    return u->kernels = k;
}

static void unit_close(void *of, void *unit)
{
    Device *d = of;
    CudaUnit *u = unit;
    while (u->kernels) {
        CudaKernel *k = u->kernels;
        u->kernels = k->next;
        block_free(k);
    }
    if (u->module && !enter(d, NULL)) {
        d->cu.module_free(u->module);
        leave(d);
    }
    block_free(u);
}

/* What a multiprocessor holds, by architecture (CUDA's programming guide, table of technical specifications): threads, blocks, bytes of shared memory; registers are
 * 65,536 everywhere, given to warps by 256. Shared memory that a launch asks for is not counted: so many blocks at most. */
static const struct { int arch, threads, blocks, shared; } multiprocessors[] = {
    { 75, 1024, 16, 64 << 10 }, { 80, 2048, 32, 164 << 10 }, { 86, 1536, 16, 100 << 10 }, { 87, 1536, 16, 164 << 10 }, { 89, 1536, 24, 100 << 10 },
    { 90, 2048, 32, 228 << 10 }, { 100, 2048, 32, 228 << 10 }, { 103, 2048, 32, 228 << 10 }, { 120, 1536, 24, 100 << 10 },
};

static void note_occupancy(const Device *d, CudaKernel *k, const char *text)
{
    static const char bounds[] = "__launch_bounds__(";
    const char *at = strstr(text, bounds);
    int arch = atoi(d->arch + strlen("sm_")), threads = at ? atoi(at + sizeof bounds - 1) : 0;
    for (size_t i = 0; i < COUNT_OF(multiprocessors) && threads > 0 && !strchr(k->note, ':'); i++) {
        if (multiprocessors[i].arch != arch || k->facts.registers < 1)
            continue;
        int warps = (threads + 31) / 32, blocks = multiprocessors[i].blocks, registers = (k->facts.registers * 32 + 255) / 256 * 256;
        int by_registers = 65536 / registers / warps, by_threads = multiprocessors[i].threads / (warps * 32);
        int by_shared = k->facts.shared ? multiprocessors[i].shared / (k->facts.shared + 1024) : blocks;      /* the system takes 1 KiB of each block's */
        blocks = by_registers < blocks ? by_registers : blocks;
        blocks = by_threads < blocks ? by_threads : blocks;
        blocks = by_shared < blocks ? by_shared : blocks;
        size_t n = strlen(k->note);
        snprintf(k->note + n, sizeof k->note - n, "; occupancy: %d block%s of %d threads, %d %%", blocks, blocks == 1 ? "" : "s", threads,
                 blocks * warps * 32 * 100 / multiprocessors[i].threads);
    }
}

static Status cuda_build(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, volatile int *cancel,
                         RtError *e)
{
    KernelFn *fn = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *fn);
    if (!fn)
        return rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
    Status st = builder_build(d->builder, prelude, n, k, fn, stats, cancel, e);
    for (int i = 0; i < n && !st; i++) {
        out[i] = (const Kernel *)(uintptr_t)fn[i];
        if (!k[i].note)
            continue;
        pthread_mutex_lock(&d->lock);
        note_occupancy(d, (CudaKernel *)(uintptr_t)fn[i], k[i].text);
        pthread_mutex_unlock(&d->lock);
        *k[i].note = ((const CudaKernel *)(uintptr_t)fn[i])->note;
    }
    block_free(fn);
    return st;
}

/* Blocks of a kernel that a multiprocessor holds at once; 0: the launch is impossible. */
static int blocks_at_once(Device *d, CudaKernel *k, int threads, int local)
{
    int n = 0;
    pthread_mutex_lock(&d->lock);
    if (local + k->facts.shared > SHARED_PLAIN && local > k->shared_set && !d->cu.function_set(k->function, CU_FUNC_SHARED, local))
        k->shared_set = local;
    if (k->threads != threads || k->local != local) {
        if (d->cu.occupancy(&n, k->function, threads, (size_t)local))
            n = 0;
        k->threads = threads, k->local = local, k->occupancy = n;
    }
    n = k->occupancy;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* What the driver calls CUlaunchConfig. */
typedef struct LaunchAttribute { unsigned id; char pad[4]; union { unsigned dim[3]; char room[64]; } value; } LaunchAttribute;
typedef struct LaunchConfig { unsigned grid[3], block[3], shared; void *stream; LaunchAttribute *attr; unsigned nattr; } LaunchConfig;

/* Groups of a launch that run at once: blocks, or clusters of blocks, which need places near each other. */
static int64_t groups_at_once(Device *d, const Launch *l)
{
    CudaKernel *k = (CudaKernel *)(uintptr_t)l->kernel;
    int64_t n = (int64_t)blocks_at_once(d, k, l->threads, (int)l->local) * d->multiprocessors;
    if (l->cluster > 1) {
        unsigned cluster = (unsigned)l->cluster;
        LaunchAttribute attr = { .id = CU_ATTRIBUTE_CLUSTER, .value.dim = { cluster, 1, 1 } };
        LaunchConfig config = { .grid = { cluster * 64, 1, 1 }, .block = { (unsigned)l->threads, 1, 1 }, .shared = (unsigned)l->local, .attr = &attr, .nattr = 1 };
        int clusters = 0;
        n /= l->cluster;
        if (!d->cu.clusters(&clusters, k->function, &config) && clusters > 0 && clusters < n) n = clusters;
    }
    return n > 0 ? n : 1;
}

/* ---- memory ---- */

static void *address(uint64_t at) { return (void *)(uintptr_t)at; }
static uint64_t target_number(const void *p) { return (uint64_t)(uintptr_t)p; }

/* ---- blocks that are used again: results that stay on the device are asked for and given back with every call, and the driver takes long over that ---- */

static Room *room_of(Device *d, uint64_t at)
{
    for (int i = 0; i < ROOMS; i++)
        if (d->room[i].at == at)
            return &d->room[i];
    return NULL;
}

/* A free block of exactly n bytes, or 0. */
static uint64_t room_take(Device *d, size_t n)
{
    uint64_t at = 0;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < ROOMS && !at; i++)
        if (d->room[i].at && d->room[i].free && d->room[i].n == n) {
            d->room[i].free = false;
            at = d->room[i].at;
        }
    pthread_mutex_unlock(&d->lock);
    return at;
}

/* Remembers the size of a new block, if it is one to be kept and there is a place. */
static void room_note(Device *d, uint64_t at, size_t n, size_t total)
{
    pthread_mutex_lock(&d->lock);
    Room *r = n <= total / ROOM_PART ? room_of(d, 0) : NULL;
    if (r)
        *r = (Room){ at, n, false };
    pthread_mutex_unlock(&d->lock);
}

/* Keeps a block for the next who wants as much; false: it is to be freed, and forgotten. */
static bool room_keep(Device *d, uint64_t at)
{
    pthread_mutex_lock(&d->lock);
    Room *r = room_of(d, at);
    int n = 0;
    for (int i = 0; i < ROOMS; i++)
        n += d->room[i].at && d->room[i].free;
    bool keep = r && n < ROOMS_FREE && !d->lost;
    if (r && keep)
        r->free = true;
    else if (r)
        *r = (Room){ 0 };
    pthread_mutex_unlock(&d->lock);
    return keep;
}

/* In the device's context. */
static void rooms_drop(Device *d)
{
    for (int i = 0; i < ROOMS; i++) {
        pthread_mutex_lock(&d->lock);
        uint64_t at = d->room[i].free ? d->room[i].at : 0;
        if (at)
            d->room[i] = (Room){ 0 };
        pthread_mutex_unlock(&d->lock);
        if (at)
            d->cu.release(at);
    }
}

/* of: NULL, or gets the bytes that the device has. */
static Status memory_take(Device *d, size_t n, uint64_t *at, size_t *of, RtError *e)
{
    Status st = E_OK;
    size_t left = 0, total = 0;
    *at = 0;
    CHECK(memory_info(&left, &total), "its memory cannot be asked for");
    if (n > left) {
        rooms_drop(d);
        CHECK(memory_info(&left, &total), "its memory cannot be asked for");
    }
    if (n > left)
        return rt_fail(e, E_NOMEM, "%s: %zu bytes are wanted, %zu of %zu are free", d->name, n, left, total);
    CHECK(alloc(at, n ? n : 1), "memory cannot be allocated");
    if (of)
        *of = total;
done:
    return st;
}

static Status cuda_alloc(Device *d, size_t n, void **out, RtError *e)
{
    uint64_t at = 0;
    size_t total = 0;
    *out = NULL;
    if (!d->card)
        return dev_null.alloc(NULL, n, out, e);
    Status st = enter(d, e);
    if (st)
        return st;
    if ((at = room_take(d, n)))
        CHECK(context_wait(), "its work cannot be waited for"); /* who had the block before may have given it work, in whatever stream */
    else if ((st = memory_take(d, n, &at, &total, e)))
        goto done;
    else
        room_note(d, at, n, total);
    *out = address(at);
done:
    leave(d);
    return st;
}

static void cuda_release(Device *d, void *p)
{
    if (!d->card)
        dev_null.release(NULL, p);
    if (!p || !d->card || room_keep(d, target_number(p)) || enter(d, NULL))
        return;
    d->cu.release(target_number(p));
    leave(d);
}

/* ---- lanes ---- */

static void lane_drop(Device *d, CudaLane *l)
{
    for (int i = 0; i < GRAPHS; i++)
        if (l->graph[i].exec)
            d->cu.exec_free(l->graph[i].exec);
    for (int i = 0; i < l->nevent; i++)
        d->cu.event_free(l->event[i]);
    block_free(l->event);
    for (int i = 0; i < 2; i++) {
        if (l->stage[i])
            d->cu.host_release(l->stage[i]);
        if (l->stage_done[i])
            d->cu.event_free(l->stage_done[i]);
    }
    if (l->err_host)
        d->cu.host_release(l->err_host);
    if (l->err)
        d->cu.release(l->err);
    if (l->scratch)
        d->cu.release(l->scratch);
    if (l->stream)
        d->cu.stream_free(l->stream);
    block_free(l);
}

/* In the device's context. */
static Status lane_open(Device *d, CudaLane **out, RtError *e)
{
    Status st = E_OK;
    pthread_mutex_lock(&d->lock);
    CudaLane *l = d->free_lanes;
    if (l)
        d->free_lanes = l->next;
    pthread_mutex_unlock(&d->lock);
    if (!l) {
        if (!(l = block_alloc(sizeof *l)))
            return rt_fail(e, E_NOMEM, "no memory for a stream");
        memset(l, 0, sizeof *l);
        CHECK(stream_new(&l->stream, CU_STREAM_APART), "a stream cannot be made");
    }
    l->queue = atomic_load(&d->others) ? NULL : l->stream;
done:
    if (st)
        block_free(l);
    *out = st ? NULL : l;
    return st;
}

static void lane_close(Device *d, CudaLane *l)
{
    pthread_mutex_lock(&d->lock);
    l->next = d->free_lanes;
    d->free_lanes = l;
    pthread_mutex_unlock(&d->lock);
}

/* Forgets what was recorded: it holds addresses of the lane. */
static void graphs_drop(Device *d, CudaLane *l)
{
    for (int i = 0; i < GRAPHS; i++)
        if (l->graph[i].exec)
            d->cu.exec_free(l->graph[i].exec);
    memset(l->graph, 0, sizeof l->graph);
}

static Status lane_memory(Device *d, CudaLane *l, uint64_t *at, size_t *room, size_t n, RtError *e)
{
    Status st = E_OK;
    if (*room >= n)
        return E_OK;
    CHECK(stream_wait(l->queue), "its work cannot be waited for");
    graphs_drop(d, l);
    if (*at)
        d->cu.release(*at);
    *at = 0, *room = 0;
    if (!(st = memory_take(d, n, at, NULL, e)))
        *room = n;
done:
    return st;
}

static Status stage_need(Device *d, CudaLane *l, RtError *e)
{
    Status st = E_OK;
    ASSERT(l);
    for (int i = 0; i < 2; i++) {
        void *p = NULL;
        if (!l->stage_done[i])
            CHECK(event_new(&l->stage_done[i], CU_EVENT_QUIET), "an event cannot be made");
        if (!l->stage[i]) {
            CHECK(host_alloc(&p, STAGE_BYTES), "pinned memory cannot be had");
            l->stage[i] = p;
        }
    }
done:
    return st;
}

/* Copies through pinned memory in two halves: one is filled or emptied by the processor while the other is on its way. */
static Status cuda_copy(Device *d, uint64_t dev, char *to, const char *from, size_t n, RtError *e)
{
    CudaLane *l = NULL;
    Status st = n ? enter(d, e) : E_OK;
    if (st || !n)
        return st;
    if ((st = lane_open(d, &l, e)) || (st = stage_need(d, l, e)))
        goto done;
    size_t parts = (n + STAGE_BYTES - 1) / STAGE_BYTES;
    for (size_t i = 0; i < parts + (to ? 1 : 0); i++) {
        int half = (int)(i & 1);
        size_t at = i * STAGE_BYTES, m = n - at < STAGE_BYTES ? n - at : STAGE_BYTES;
        if (from) {
            if (i >= 2)
                CHECK(event_wait(l->stage_done[half]), "a copy failed");
            memcpy(l->stage[half], from + at, m);
            CHECK(to_device(dev + at, l->stage[half], m, l->queue), "a copy cannot be started");
            CHECK(event_record(l->stage_done[half], l->queue), "an event cannot be recorded");
            continue;
        }
        if (i < parts) {
            CHECK(to_host(l->stage[half], dev + at, m, l->queue), "a copy cannot be started");
            CHECK(event_record(l->stage_done[half], l->queue), "an event cannot be recorded");
        }
        if (i) {
            size_t was = at - STAGE_BYTES, k = n - was < STAGE_BYTES ? n - was : STAGE_BYTES;
            CHECK(event_wait(l->stage_done[!half]), "a copy failed");
            ASSERT(to && l->stage[!half]);
            memcpy(to + was, l->stage[!half], k);
        }
    }
    CHECK(stream_wait(l->queue), "a copy failed");
done:
    if (l)
        lane_close(d, l);
    leave(d);
    return st;
}

static Status cuda_write(Device *d, void *dst, const void *src, size_t n, RtError *e)
{
    return d->card ? cuda_copy(d, target_number(dst), NULL, src, n, e) : dev_null.write(NULL, dst, src, n, e);
}

static Status cuda_read(Device *d, void *dst, const void *src, size_t n, RtError *e)
{
    return d->card ? cuda_copy(d, target_number(src), dst, NULL, n, e) : dev_null.read(NULL, dst, src, n, e);
}

/* ---- running ---- */

static int64_t groups_of(Device *d, const Launch *l)
{
    int64_t each = l->each > 0 ? l->each : 1, n = (l->total + each - 1) / each, most = INT32_MAX;
    if (l->scratch || l->resident) {
        most = groups_at_once(d, l);
        if (l->scratch && most > (int64_t)(SCRATCH_BYTES / l->scratch))
            most = l->scratch < SCRATCH_BYTES ? (int64_t)(SCRATCH_BYTES / l->scratch) : 1;
    }
    return n < most ? n : most;
}

static Status launch_issue(Device *d, CudaLane *lane, const Launch *l, int64_t slot, RtError *e)
{
    Status st = E_OK;
    CudaKernel *k = (CudaKernel *)(uintptr_t)l->kernel;
    int64_t total = l->total, groups = groups_of(d, l);
    uint64_t scratch = l->scratch || l->common ? lane->scratch : 0, err = lane->err + (uint64_t)slot * 32;
    void *param[MOST_PARAMS];
    int n = 0;
    if (l->nbuf + l->narg + 3 > MOST_PARAMS)
        return rt_fail(e, E_UNSUPPORTED, "a kernel has %d parameters, at most %d are possible", l->nbuf + l->narg + 3, MOST_PARAMS);
    if ((int64_t)l->local + k->facts.shared > d->shared_most)
        return rt_fail(e, E_DEVICE, "%s: a kernel wants %zu bytes of shared memory, a block has at most %d", d->name, l->local + (size_t)k->facts.shared,
                       d->shared_most);
    if (blocks_at_once(d, k, l->threads, (int)l->local) < 1)
        return rt_fail(e, E_DEVICE, "%s: a kernel of %d threads, %d registers and %zu bytes of shared memory does not fit a multiprocessor", d->name,
                       l->threads, k->facts.registers, l->local + (size_t)k->facts.shared);
    for (int i = 0; i < l->nbuf; i++)
        param[n++] = &l->buf[i];
    for (int i = 0; i < l->narg; i++)
        param[n++] = (void *)(uintptr_t)&l->arg[i];
    param[n++] = &total;
    param[n++] = &scratch;
    param[n++] = &err;
    if (l->common)
        CHECK(fill8(scratch, 0, l->common, lane->queue), "memory cannot be cleared");
    CHECK(launch(k->function, (unsigned)(groups * (l->cluster > 1 ? l->cluster : 1)), 1, 1, (unsigned)l->threads, 1, 1, (unsigned)l->local, lane->queue, param, NULL), "a kernel cannot be started");
done:
    return st;
}

static bool launch_runs(const Launch *l) { return !l->host && l->total > 0; }

/* All that a recorded stretch depends on. */
static uint64_t stretch_key(int n, const Launch *l)
{
    uint64_t h = (uint64_t)n + 1;
    for (int i = 0; i < n; i++) {
        if (!launch_runs(&l[i]))
            continue;
        int64_t facts[] = { (int64_t)(uintptr_t)l[i].kernel, l[i].total, l[i].each, l[i].threads, (int64_t)l[i].local, (int64_t)l[i].scratch, (int64_t)l[i].common, l[i].cluster, i };
        h = hash_bytes(facts, sizeof facts, h);
        h = hash_bytes(l[i].buf, sizeof *l[i].buf * (size_t)l[i].nbuf, h);
        h = hash_bytes(l[i].arg, sizeof *l[i].arg * (size_t)l[i].narg, h);
    }
    return h;
}

static Recorded *recorded_slot(CudaLane *lane, uint64_t key)
{
    Recorded *oldest = &lane->graph[0];
    for (int i = 0; i < GRAPHS; i++) {
        if (lane->graph[i].key == key)
            return &lane->graph[i];
        if (lane->graph[i].used < oldest->used)
            oldest = &lane->graph[i];
    }
    return oldest;
}

static bool any_checks(int n, const Launch *l)
{
    bool checks = false;
    for (int i = 0; i < n; i++)
        checks |= l[i].checks;
    return checks;
}

static Status stretch_issue(Device *d, CudaLane *lane, int n, const Launch *l, RtError *e)
{
    Status st = E_OK;
    bool checks = any_checks(n, l);
    if (checks)
        CHECK(fill8(lane->err, 0, (size_t)n * 32, lane->queue), "memory cannot be cleared");
    for (int i = 0; i < n && !st; i++)
        if (launch_runs(&l[i]))
            st = launch_issue(d, lane, &l[i], i, e);
done:
    return st;
}

static Status stretch_record(Device *d, CudaLane *lane, Recorded *r, int n, const Launch *l, RtError *e)
{
    void *graph = NULL;
    Status st = E_OK;
    void *queue = lane->queue;
    CHECK(capture_begin(lane->stream, CU_CAPTURE_THREAD), "launches cannot be recorded");
    lane->queue = lane->stream;
    st = stretch_issue(d, lane, n, l, e);
    lane->queue = queue;
    int code = d->cu.capture_end(lane->stream, &graph);
    if (!st && code)
        st = cuda_fail(d, e, code, "launches cannot be recorded");
    if (!st)
        CHECK(graph_make(&r->exec, graph, 0), "recorded launches cannot be made ready");
done:
    if (graph)
        d->cu.graph_free(graph);
    return st;
}

/* One stretch without times: replayed when it is known, recorded when it was seen once, else issued. */
static Status stretch_run(Device *d, CudaLane *lane, int n, const Launch *l, RtError *e)
{
    Status st = E_OK;
    int runs = 0;
    for (int i = 0; i < n; i++)
        runs += launch_runs(&l[i]);
    if (!d->graphs || runs < 2)
        return stretch_issue(d, lane, n, l, e);
    uint64_t key = stretch_key(n, l);
    Recorded *r = recorded_slot(lane, key);
    if (r->key != key) {
        if (r->exec)
            d->cu.exec_free(r->exec);
        *r = (Recorded){ .key = key, .used = ++lane->clock };
        return stretch_issue(d, lane, n, l, e);
    }
    r->used = ++lane->clock;
    if (!r->exec && (st = stretch_record(d, lane, r, n, l, e)))
        return st;
    CHECK(graph_launch(r->exec, lane->queue), "recorded launches cannot be started");
done:
    return st;
}

static Status events_need(Device *d, CudaLane *lane, int n, RtError *e)
{
    Status st = E_OK;
    if (n <= lane->nevent)
        return E_OK;
    void **more = block_alloc((size_t)n * sizeof *more);
    if (!more)
        return rt_fail(e, E_NOMEM, "no memory for %d events", n);
    if (lane->nevent)
        memcpy(more, lane->event, (size_t)lane->nevent * sizeof *more);
    block_free(lane->event);
    lane->event = more;
    while (lane->nevent < n) {
        CHECK(event_new(&lane->event[lane->nevent], 0), "an event cannot be made");
        lane->nevent++;
    }
done:
    return st;
}

static void held_back(void *go)
{
    while (!atomic_load((atomic_int *)go))
        sched_yield();
}

/* The device is held back until all is enqueued (what is behind HELD launches would fill its queue): else the time from an event to the launch behind it would be
 * counted, a few microseconds of the host's. */
static Status stretch_timed(Device *d, CudaLane *lane, int n, const Launch *l, double *seconds, RtError *e)
{
    Status st = events_need(d, lane, n + 1, e);
    if (st)
        return st;
    CHECK(fill8(lane->err, 0, (size_t)n * 32, lane->queue), "memory cannot be cleared");
    atomic_store(&lane->go, 0);
    CHECK(host_call(lane->queue, held_back, &lane->go), "a call of the host cannot be enqueued");
    for (int i = 0; i < n && !st; i++) {
        if (i == HELD)
            atomic_store(&lane->go, 1);
        CHECK(event_record(lane->event[i], lane->queue), "an event cannot be recorded");
        if (launch_runs(&l[i]) && (st = launch_issue(d, lane, &l[i], i, e)))
            goto done;
    }
    CHECK(event_record(lane->event[n], lane->queue), "an event cannot be recorded");
    atomic_store(&lane->go, 1);
    CHECK(stream_wait(lane->queue), "a kernel failed");
    for (int i = 0; i < n; i++) {
        float ms = 0;
        CHECK(event_between(&ms, lane->event[i], lane->event[i + 1]), "times cannot be read");
        seconds[i] = 1e-3 * (double)ms;
    }
done:
    atomic_store(&lane->go, 1);
    return st;
}

/* The first launch that reported an index outside its axis. */
static Status stretch_check(Device *d, CudaLane *lane, int n, const Launch *l, RtError *e)
{
    Status st = E_OK;
    bool checks = any_checks(n, l);
    if (checks)
        CHECK(to_host(lane->err_host, lane->err, (size_t)n * 32, lane->queue), "a copy cannot be started");
    CHECK(stream_wait(lane->queue), "a kernel failed");
    for (int i = 0; checks && i < n; i++) {
        const int64_t *w = lane->err_host + 4 * i;
        if (!l[i].checks || !launch_runs(&l[i]) || !w[0])
            continue;
        st = rt_fail(e, E_INVALID, "index %" PRId64 " is outside an axis of size %" PRId64, w[2], w[3]);
        if (e) {
            e->launch = l[i].id;
            e->site = w[1], e->value = w[2], e->limit = w[3];
        }
        break;
    }
done:
    return st;
}

/* Memory of the lane for the longest stretch, before anything is started. */
static Status lane_need(Device *d, CudaLane *lane, int n, const Launch *list, RtError *e)
{
    ASSERT(lane);
    size_t scratch = 0, err = (size_t)n * 32;
    for (int i = 0; i < n; i++)
        if (launch_runs(&list[i]) && (list[i].scratch || list[i].common)) {
            size_t bytes = list[i].common ? list[i].common : (size_t)groups_of(d, &list[i]) * list[i].scratch;
            if (bytes > scratch)
                scratch = bytes;
        }
    Status st = lane_memory(d, lane, &lane->err, &lane->err_room, err, e);
    if (!st)
        st = lane_memory(d, lane, &lane->scratch, &lane->scratch_room, scratch, e);
    if (!st && lane->err_host_room < err) {
        void *p = NULL;
        CHECK(host_alloc(&p, err), "pinned memory cannot be had");
        if (lane->err_host)
            d->cu.host_release(lane->err_host);
        lane->err_host = p;
        lane->err_host_room = err;
    }
done:
    return st;
}

static Status cuda_run(Device *d, int n, const Launch *list, int threads, volatile int *cancel, double *seconds, RtError *e)
{
    CudaLane *lane = NULL;
    if (!d->card)
        return dev_null.run(NULL, n, list, threads, cancel, seconds, e);
    Status st = n > 0 ? enter(d, e) : E_OK;
    if (st || n <= 0)
        return st;
    if ((st = lane_open(d, &lane, e)) || (st = lane_need(d, lane, n, list, e)))
        goto done;
    for (int i = 0, to; i < n && !st; i = to) {
        if (proc_cancelled(cancel)) {
            st = rt_fail(e, E_CANCELLED, "stopped");
            break;
        }
        for (to = i; to < n && !list[to].host; to++) { }
        if (to > i) {
            st = seconds ? stretch_timed(d, lane, to - i, list + i, seconds + i, e) : stretch_run(d, lane, to - i, list + i, e);
            if (!st)
                st = stretch_check(d, lane, to - i, list + i, e);
        } else {
            RtError own = { .launch = list[i].id };
            double start = time_now();
            list[i].host(list[i].host_arg, &own);
            if (own.code && e)
                *e = own;
            st = own.code;
            if (seconds)
                seconds[i] = time_now() - start;
            to = i + 1;
        }
    }
done:
    if (lane)
        lane_close(d, lane);
    leave(d);
    return st;
}

/* ---- open and close ---- */

static void cuda_close(Device *d)
{
    if (!d)
        return;
    bool in = d->context && !enter(d, NULL);
    while (d->free_lanes) {
        CudaLane *l = d->free_lanes;
        d->free_lanes = l->next;
        lane_drop(d, l);
    }
    if (in) {
        rooms_drop(d);
        leave(d);
    }
    builder_close(d->builder);
    nvrtc_close(d->nvrtc);
    if (d->context)
        d->cu.context_give(d->device);
    pthread_mutex_destroy(&d->lock);
    block_free(d);          /* the driver's library stays: it does not like to be unloaded */
}

static Status driver_load(Device *d, RtError *e)
{
    static const struct { const char *symbol; size_t at; } calls[] = {
#define CU(name, symbol, args) { symbol, offsetof(Cuda, name) },
#include "rt/cuda.def"
#undef CU
    };
    d->cu.lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->cu.lib)
        return rt_fail(e, E_DEVICE, "no NVIDIA driver: %s", dlerror());
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        void *f = dlsym(d->cu.lib, calls[i].symbol);
        if (!f)
            return rt_fail(e, E_DEVICE, "the NVIDIA driver is too old: it has no %s; one for CUDA %d.%d or newer is wanted", calls[i].symbol,
                           DRIVER_LEAST / 1000, DRIVER_LEAST % 1000 / 10);
        memcpy((char *)&d->cu + calls[i].at, &f, sizeof f);
    }
    return E_OK;
}

static Status card_open(Device *d, RtError *e)
{
    Status st = driver_load(d, e);
    int count = 0, major = 0, minor = 0;
    if (st)
        return st;
    int code = d->cu.init(0);
    if (code == CU_NO_DEVICE)
        return rt_fail(e, E_DEVICE, "no NVIDIA GPU on this machine");
    if (code)
        return cuda_fail(d, e, code, "the driver cannot be started");
    CHECK(driver_version(&d->driver), "the driver's version cannot be read");
    if (d->driver < DRIVER_LEAST)
        return rt_fail(e, E_DEVICE, "the NVIDIA driver is too old: it serves CUDA %d.%d, %d.%d or newer is wanted", d->driver / 1000, d->driver % 1000 / 10,
                       DRIVER_LEAST / 1000, DRIVER_LEAST % 1000 / 10);
    CHECK(device_count(&count), "devices cannot be counted");
    if (d->index >= count)
        return rt_fail(e, E_DEVICE, "there is no cuda:%d: this machine has %d NVIDIA GPU%s", d->index, count, count == 1 ? "" : "s");
    CHECK(device_get(&d->device, d->index), "the device cannot be had");
    CHECK(device_name(d->name, (int)sizeof d->name - 1, d->device), "the device's name cannot be read");
    CHECK(device_fact(&major, CU_MAJOR, d->device), "the device cannot be asked");
    CHECK(device_fact(&minor, CU_MINOR, d->device), "the device cannot be asked");
    CHECK(device_fact(&d->multiprocessors, CU_MULTIPROCESSORS, d->device), "the device cannot be asked");
    CHECK(device_fact(&d->shared_most, CU_SHARED_MOST, d->device), "the device cannot be asked");
    snprintf(d->arch, sizeof d->arch, "sm_%d%d%s", major, minor, major >= 9 ? "a" : "");
    code = d->cu.context_take(&d->context, d->device);
    if (code == CU_IN_USE)
        return rt_fail(e, E_DEVICE, "%s: another process has it for itself alone", d->name);
    if (code)
        return cuda_fail(d, e, code, "no context can be had");
    d->card = true;
done:
    return st;
}

/* "cuda", "cuda:1" or "cuda:sm_90a". */
static Status target_read(Device *d, const char *target, RtError *e)
{
    const char *s = target ? strchr(target, ':') : NULL;
    char *end;
    if (!s)
        return E_OK;
    if (!strncmp(++s, "sm_", 3)) {
        size_t digits = strspn(s + 3, "0123456789");
        if (digits < 2 || digits > 3 || (s[3 + digits] && strcmp(s + 3 + digits, "a") && strcmp(s + 3 + digits, "f")))
            return rt_fail(e, E_INVALID, "target is '%s', wanted an architecture such as cuda:sm_90a", target);
        snprintf(d->arch, sizeof d->arch, "%s", s);
        return E_OK;
    }
    long n = strtol(s, &end, 10);
    if (end == s || *end || n < 0 || n > 1023)
        return rt_fail(e, E_INVALID, "target is '%s', wanted cuda, cuda:N or cuda:sm_NN", target);
    d->index = (int)n;
    return E_OK;
}

static Status cuda_open(Device **out, const Options *opt, RtError *e)
{
    *out = NULL;
    Device *d = block_alloc(sizeof *d);
    if (!d)
        return rt_fail(e, E_NOMEM, "no memory for a device");
    memset(d, 0, sizeof *d);
    if (pthread_mutex_init(&d->lock, NULL)) {
        block_free(d);
        return rt_fail(e, E_NOMEM, "no memory for a lock");
    }
    d->graphs = opt->graph != 0;
    Status st = target_read(d, opt->target, e);
    if (!st && !d->arch[0])
        st = card_open(d, e);
    if (!st)
        st = nvrtc_open(&d->nvrtc, opt, d->arch, e);
    if (!st) {
        d->tools = *nvrtc_tools(d->nvrtc);
        d->tools.of = d;
        d->tools.load = unit_open, d->tools.symbol = unit_symbol, d->tools.unload = unit_close;
        st = builder_open(&d->builder, opt, &d->tools, e);
    }
    if (st)
        cuda_close(d);
    else
        *out = d;
    return st;
}

static const char *cuda_describe(Device *d)
{
    const char *cc = builder_compiler(d->builder, NULL);
    pthread_mutex_lock(&d->lock);
    if (!d->about[0] && d->card)
        snprintf(d->about, sizeof d->about, "%s, %d multiprocessors, %s, driver for CUDA %d.%d, %.200s", d->name, d->multiprocessors, d->arch, d->driver / 1000,
                 d->driver % 1000 / 10, cc ? cc : "no NVRTC");
    else if (!d->about[0])
        snprintf(d->about, sizeof d->about, "no card: compiles for %s, nothing runs, results mean nothing; %.200s", d->arch, cc ? cc : "no NVRTC");
    pthread_mutex_unlock(&d->lock);
    return d->about;
}

static const char *cuda_isa(Device *d) { return d->arch; }
static int cuda_number(Device *d) { return d->index; }

/* The default stream keeps the order by itself, and nobody waits. Lanes' own streams are apart from it: else nobody could use that while launches are recorded. */
static Status cuda_follow(Device *d, void *stream, RtError *e)
{
    void *event = NULL;
    Status st = E_OK;
    atomic_store(&d->others, true);
    if (!stream || !d->card || (st = enter(d, e)))
        return st;
    CHECK(event_new(&event, CU_EVENT_QUIET), "an event cannot be made");
    CHECK(event_record(event, stream), "an event cannot be recorded");
    CHECK(stream_after(NULL, event, 0), "another stream cannot be followed");
done:
    if (event)
        d->cu.event_free(event); /* the driver keeps it until it has happened */
    leave(d);
    return st;
}
static const char *cuda_command(Device *d) { return builder_command(d->builder); }

const DeviceApi dev_cuda = {
    .name = "cuda",
    .addresses = true,
    .place = 2,
    .number = cuda_number,
    .follow = cuda_follow,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .isa = cuda_isa,
    .command = cuda_command,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .write = cuda_write,
    .read = cuda_read,
    .build = cuda_build,
    .run = cuda_run,
};
