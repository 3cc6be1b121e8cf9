/* The CPU as a device: memory, kernels through the builder, launch lists through the pool.
 *
 * A lane is what a list needs besides its buffers: scratch and error words for each slot. A list that owns
 * the pool uses all slots of its lane; one that runs beside it, on its caller's thread, uses slot 0 of
 * another lane. Lanes are kept, so that a warm run allocates nothing. */
#include "rt/rt.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGN        64
#define HUGE_PAGE    ((size_t)2 << 20)
#define BIG_BLOCK    HUGE_PAGE /* from this size on a block is mapped on its own, on huge pages */
#define SERIAL_PARTS 64 /* of a launch on one thread that may be cancelled */
#define PACE_WARM                                                                                            \
    32 /* runs of a launch until it is timed: first ones touch new memory, and find threads asleep or on this processor */
#define PACE_SHARED (PACE_WARM + 8) /* runs after which its time in parts is known ... */
#define PACE_ALONE  (PACE_SHARED + 8) /* ... and on one thread */
#define PACE_LIFE                                                                                            \
    (1 << 14) /* runs until it is timed again: the other processors may have become free, or busy */
#define PACE_LONG 500e-6 /* seconds from which a launch is shared without a trial */
#define WORTH                                                                                                \
    8 /* hand-overs that a launch must last to be shared; and wakings that a list must, to wake threads */

typedef struct Slot {
    void *scratch;
    size_t room;
    int64_t err[4]; /* the kernel writes here */
    int64_t bad[4], bad_lo; /* the error of the lowest part so far; bad[0] 0: none */
    char pad[ALIGN]; /* two threads' slots share no cache line */
} Slot;

typedef struct Lane {
    struct Lane *next;
    PoolCost cost; /* of the pool, once a list of this lane owned it */
    int slots;
    Slot slot[];
} Lane;

struct Device {
    Builder *builder;
    Pool *pool;
    int threads;
    bool flush; /* kernels take numbers below the normal ones for 0: the user's leave */
    pthread_mutex_t lock; /* over lanes, about and library */
    Lane *free_lanes;
    Lib *lib; /* once it was asked for */
    char library_name[1024];
    char library_why[256]; /* not empty: there is none */
    char about[512];
};

/* A kernel's handle is its entry point: nothing to keep, nothing to free. */
static const Kernel *kernel_of(KernelFn fn) { return (const Kernel *)(uintptr_t)fn; }
static KernelFn kernel_fn(const Kernel *k) { return (KernelFn)(uintptr_t)k; }

/* ---- open, close, describe ---- */

static void cpu_close(Device *d)
{
    if (!d)
        return;
    while (d->free_lanes) {
        Lane *l = d->free_lanes;
        d->free_lanes = l->next;
        for (int i = 0; i < l->slots; i++)
            block_free(l->slot[i].scratch);
        block_free(l);
    }
    lib_close(d->lib);
    pool_free(d->pool);
    builder_close(d->builder);
    pthread_mutex_destroy(&d->lock);
    block_free(d);
}

static Status cpu_open(Device **out, const Options *opt, RtError *e)
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
    snprintf(d->library_name, sizeof d->library_name, "%s", opt->dnnl ? opt->dnnl : "");
    Status st = builder_open(&d->builder, opt, NULL, e);
    d->threads = opt->threads > 0 ? opt->threads : cpu_count();
    d->flush = list_has(opt->allow, "flush");
    if (!st && !(d->pool = pool_new(d->threads)))
        st = rt_fail(e, E_NOMEM, "no memory for %d threads", d->threads);
    if (st)
        cpu_close(d);
    else
        *out = d;
    return st;
}

static void processor_name(char *name, size_t n)
{
    char line[512];
    snprintf(name, n, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        char *s = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !s)
            continue;
        s += strspn(s, ": \t");
        s[strcspn(s, "\n")] = 0;
        snprintf(name, n, "%.*s", (int)n - 1, s);
        break;
    }
    fclose(f);
}

static const char *cpu_describe(Device *d)
{
    char name[128];
    const char *cc = builder_compiler(d->builder, NULL);
    pthread_mutex_lock(&d->lock);
    if (!d->about[0]) {
        processor_name(name, sizeof name);
        snprintf(d->about, sizeof d->about, "%s, %d thread%s, %s, %s", name, d->threads,
                 d->threads == 1 ? "" : "s", builder_isa(d->builder), cc ? cc : "no C compiler");
    }
    pthread_mutex_unlock(&d->lock);
    return d->about;
}

/* ---- memory ---- */

typedef struct BlockHead {
    void *base;
    size_t mapped;
    char pad[ALIGN - sizeof(void *) - sizeof(size_t)];
} BlockHead; /* before each block; mapped 0: from block_alloc */

static Status cpu_alloc(Device *d, size_t n, void **out, RtError *e)
{
    (void)d;
    BlockHead h = { 0 };
    *out = NULL;
    int64_t total = memory_total();
    if (total > 0 && n > (size_t)total)
        return rt_fail(e, E_NOMEM, "%zu bytes are wanted, the machine has %" PRId64, n, total);
    if (n < BIG_BLOCK) {
        if (!(h.base = block_alloc(n + sizeof h)))
            return rt_fail(e, E_NOMEM, "no memory for %zu bytes", n);
        *out = (char *)h.base + sizeof h;
    } else {
        size_t body = (n + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
        h.mapped = body + 2 * HUGE_PAGE; /* to align, and for the head; untouched pages cost nothing */
        h.base =
            mmap(NULL, h.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (h.base == MAP_FAILED)
            return rt_fail(e, E_NOMEM, "no memory for %zu bytes: %s", n, strerror(errno));
        *out = (void *)(((uintptr_t)h.base + sizeof h + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
        madvise(*out, body, MADV_HUGEPAGE);
    }
    memcpy((char *)*out - sizeof h, &h, sizeof h);
    return E_OK;
}

static void cpu_release(Device *d, void *p)
{
    (void)d;
    BlockHead h;
    if (!p)
        return;
    memcpy(&h, (char *)p - sizeof h, sizeof h);
    if (h.mapped)
        munmap(h.base, h.mapped);
    else
        block_free(h.base);
}

static Status cpu_copy(Device *d, void *dst, const void *src, size_t n, RtError *e)
{
    (void)d, (void)e;
    if (n)
        memmove(dst, src, n);
    return E_OK;
}

/* ---- build ---- */

static Status cpu_build(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out,
                        BuildStats *stats, volatile int *cancel, RtError *e)
{
    KernelFn *fn = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *fn);
    if (!fn)
        return rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
    Status st = builder_build(d->builder, prelude, n, k, fn, stats, cancel, e);
    for (int i = 0; i < n && !st; i++)
        out[i] = kernel_of(fn[i]);
    block_free(fn);
    return st;
}

static Status cpu_find(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out,
                       BuildStats *stats, RtError *e)
{
    KernelFn *fn = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *fn);
    if (!fn)
        return rt_fail(e, E_NOMEM, "no memory to look for %d kernels", n);
    Status st = builder_find(d->builder, prelude, n, k, fn, stats, e);
    for (int i = 0; i < n && !st; i++)
        out[i] = fn[i] ? kernel_of(fn[i]) : NULL;
    block_free(fn);
    return st;
}

/* ---- run ---- */

static Lane *lane_take(Device *d)
{
    pthread_mutex_lock(&d->lock);
    Lane *l = d->free_lanes;
    if (l)
        d->free_lanes = l->next;
    pthread_mutex_unlock(&d->lock);
    if (l)
        return l;
    size_t size = sizeof *l + (size_t)d->threads * sizeof(Slot);
    if ((l = block_alloc(size))) {
        memset(l, 0, size);
        l->slots = d->threads;
    }
    return l;
}

static void lane_give(Device *d, Lane *l)
{
    pthread_mutex_lock(&d->lock);
    l->next = d->free_lanes;
    d->free_lanes = l;
    pthread_mutex_unlock(&d->lock);
}

static bool lane_room(Lane *l, int slots, size_t scratch)
{
    for (int i = 0; i < slots; i++) {
        Slot *s = &l->slot[i];
        if (s->room >= scratch)
            continue;
        block_free(s->scratch);
        s->room = 0;
        if (!(s->scratch = block_alloc(scratch)))
            return false;
        s->room = scratch;
    }
    return true;
}

typedef struct LaunchRun {
    const Launch *launch;
    KernelFn fn;
    Lane *lane;
    volatile int *cancel;
    bool flush, timed;
    double seconds; /* on the caller's thread ... */
    int64_t done; /* ... for so much of total */
} LaunchRun;

/* Keeps the error of the lowest part, so that the report does not depend on which thread was first. */
static void launch_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    LaunchRun *r = arg;
    Slot *s = &r->lane->slot[slot];
    if (proc_cancelled(r->cancel))
        return;
    bool timed = r->timed && slot == 0;
    double begin = timed ? time_now() : 0;
    uint64_t mode = r->flush ? float_flush() : 0;
    r->fn(r->launch->buf, r->launch->arg, s->scratch, lo, hi, s->err);
    if (r->flush)
        float_mode(mode);
    if (timed) {
        r->seconds += time_now() - begin;
        r->done += hi - lo;
    }
    if (!s->err[0])
        return;
    if (!s->bad[0] || lo < s->bad_lo) {
        memcpy(s->bad, s->err, sizeof s->bad);
        s->bad_lo = lo;
    }
    memset(s->err, 0, sizeof s->err);
}

/* On the caller's thread alone. Who may cancel gets parts to do it between. */
static void launch_serial(LaunchRun *r)
{
    const Launch *l = r->launch;
    int64_t part = l->total / SERIAL_PARTS > l->grain ? l->total / SERIAL_PARTS : l->grain;
    if (!r->cancel)
        part = l->total;
    for (int64_t lo = 0; lo < l->total; lo += part)
        launch_part(r, lo, l->total - lo < part ? l->total : lo + part, 0);
}

/* Looks for a data error in the slots and clears them. */
static Status launch_check(const Launch *launch, Lane *lane, int slots, const Lib *library, RtError *e)
{
    const Slot *low = NULL;
    Status st = E_OK;
    for (int i = 0; i < slots; i++)
        if (lane->slot[i].bad[0] && (!low || lane->slot[i].bad_lo < low->bad_lo))
            low = &lane->slot[i];
    if (!low)
        return E_OK;
    if (low->bad[0] == 2)
        st = rt_fail(e, low->bad[1] == 1 ? E_NOMEM : E_DEVICE, "a call of %s failed (status %" PRId64 ")",
                     lib_version(library), low->bad[1]);
    else
        st = rt_fail(e, E_INVALID, "index %" PRId64 " is outside an axis of size %" PRId64, low->bad[2],
                     low->bad[3]);
    if (e && low->bad[0] == 1) {
        e->launch = launch->id;
        e->site = low->bad[1];
        e->value = low->bad[2];
        e->limit = low->bad[3];
    }
    for (int i = 0; i < slots; i++)
        lane->slot[i].bad[0] = 0;
    return st;
}

static Status launch_host(const Launch *launch, RtError *e)
{
    RtError own = { .launch = launch->id };
    launch->host(launch->host_arg, &own);
    if (own.code && e)
        *e = own;
    return own.code;
}

/* The least part of a launch, where a hand-over takes `cost`. First runs are shared and tell how long it takes; if sharing may pay or not, the next ones are alone. */
static int64_t launch_grain(const Launch *l, double cost)
{
    const Pace *p = l->pace;
    if (l->grain >= l->total || !p || p->runs < PACE_SHARED)
        return l->grain;
    double whole = p->each * (double)l->total, least = WORTH * cost;
    if (whole < least || (whole < PACE_LONG && (p->runs < PACE_ALONE || p->alone < p->shared + cost)))
        return l->total;
    return (int64_t)(least / p->each) + 1;
}

static void pace_least(bool first, double *least, double seconds)
{
    if (first || seconds < *least)
        *least = seconds;
}

static void pace_note(Pace *p, const LaunchRun *r, double seconds)
{
    if (r->timed && p->runs < PACE_SHARED) {
        pace_least(p->runs == PACE_WARM, &p->each, r->seconds / (double)r->done);
        pace_least(p->runs == PACE_WARM, &p->shared, seconds);
    } else if (r->timed)
        pace_least(p->runs == PACE_SHARED, &p->alone, seconds);
    p->runs = p->runs < PACE_LIFE ? p->runs + 1 : 0;
}

/* Do the workers sleep, and would be woken for less than that takes? Unless lists follow one another so fast that they will not sleep again. */
static bool lets_sleep(const Device *d, int n, const Launch *list, PoolCost cost)
{
    double shared = 0;
    if (!pool_rests(d->pool))
        return false;
    for (int i = 0; i < n; i++) {
        const Launch *l = &list[i];
        if (l->host || l->total <= 0 || launch_grain(l, cost.awake) >= l->total)
            continue;
        if (!l->pace || l->pace->runs < PACE_SHARED)
            return false;
        shared += l->pace->each * (double)l->total;
    }
    return shared < WORTH * cost.asleep;
}

static Status cpu_run(Device *d, int n, const Launch *list, int threads, volatile int *cancel,
                      double *seconds, RtError *e)
{
    size_t scratch = 0;
    bool parallel = false, owner = false;
    Status st = E_OK;
    if (threads <= 0 || threads > d->threads)
        threads = d->threads;
    Lane *lane = lane_take(d);
    if (!lane)
        return rt_fail(e, E_NOMEM, "no memory to run %d launches", n);
    for (int i = 0; i < n; i++) {
        if (list[i].total <= 0 || list[i].host)
            continue;
        parallel |= threads > 1 && launch_grain(&list[i], lane->cost.awake) < list[i].total;
        if (list[i].scratch > scratch)
            scratch = list[i].scratch;
    }
    if (parallel)
        owner = pool_enter(d->pool);
    if (owner)
        lane->cost = pool_cost(d->pool);
    bool shares = owner && !lets_sleep(d, n, list, lane->cost);
    int slots = owner ? threads : 1;
    if (!lane_room(lane, slots, scratch)) {
        st = rt_fail(e, E_NOMEM, "no memory for %zu bytes of scratch for each of %d threads", scratch, slots);
        goto done;
    }
    for (int i = 0; i < n && !st; i++) {
        const Launch *l = &list[i];
        double start = seconds ? time_now() : 0;
        if (l->host) {
            st = launch_host(l, e);
        } else if (l->total > 0) {
            LaunchRun r = {
                .launch = l, .fn = kernel_fn(l->kernel), .lane = lane, .cancel = cancel, .flush = d->flush
            };
            bool paced =
                l->pace && l->grain < l->total && threads > 1 && (shares || l->pace->runs >= PACE_SHARED);
            r.timed = paced && l->pace->runs >= PACE_WARM && l->pace->runs < PACE_ALONE;
            double begin = r.timed ? time_now() : 0;
            int64_t grain = shares ? launch_grain(l, lane->cost.awake) : l->total;
            if (grain < l->total)
                pool_run(d->pool, threads, l->total, grain, launch_part, &r);
            else
                launch_serial(&r);
            if (paced)
                pace_note(l->pace, &r, r.timed ? time_now() - begin : 0);
            st = launch_check(l, lane, slots, d->lib, e);
        }
        if (seconds)
            seconds[i] = time_now() - start;
        if (!st && proc_cancelled(cancel))
            st = rt_fail(e, E_CANCELLED, "stopped on request, while it ran");
    }
done:
    if (owner)
        pool_leave(d->pool);
    lane_give(d, lane);
    return st;
}

static Lib *cpu_library(Device *d, char *why, size_t nwhy)
{
    pthread_mutex_lock(&d->lock);
    if (!d->lib && !d->library_why[0])
        d->lib = lib_open(d->library_name, d->library_why, sizeof d->library_why);
    snprintf(why, nwhy, "%s", d->lib ? "" : d->library_why);
    pthread_mutex_unlock(&d->lock);
    return d->lib;
}

static const char *cpu_isa(Device *d) { return builder_isa(d->builder); }
static const char *cpu_command(Device *d) { return builder_command(d->builder); }

const DeviceApi dev_cpu = {
    .name = "cpu",
    .host_memory = true,
    .addresses = true,
    .place = 1,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .isa = cpu_isa,
    .command = cpu_command,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .write = cpu_copy,
    .read = cpu_copy,
    .build = cpu_build,
    .find = cpu_find,
    .run = cpu_run,
    .lib = cpu_library,
};
