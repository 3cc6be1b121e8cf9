/* Runs of launch lists on an NVIDIA card, and copies.
 *
 * A run takes a lane: a stream with error words, scratch and pinned memory of its own, so that several threads run at the same time. The launches between two host
 * functions are a stretch. A stretch that is seen a second time with the same arguments is recorded into a graph, which later runs replay. Copies go through pinned
 * memory in two halves. */
#include "rt/rt.h"
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { CU_ATTRIBUTE_CLUSTER = 4, CU_FUNC_SHARED = 8, CU_STREAM_APART = 1, CU_CAPTURE_THREAD = 1 };
enum { HELD = 64 }; /* launches that are surely queued without one of them being run */
#define STAGE_BYTES  ((size_t)4 << 20) /* of pinned memory for each half of a copy */
#define SHARED_PLAIN 49152 /* a block gets more shared memory only when asked for */
#define GRAPHS       8 /* recorded stretches of a lane */
#define MOST_PARAMS  256
#define SCRATCH_BYTES ((size_t)256 << 20) /* of scratch in all, unless one group needs more */

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

/* ---- lanes ---- */

static void lane_drop(CudaCard *d, CudaLane *l)
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

void card_lanes_drop(CudaCard *d)
{
    while (d->free_lanes) {
        CudaLane *l = d->free_lanes;
        d->free_lanes = l->next;
        lane_drop(d, l);
    }
}

/* In the device's context. */
static Status lane_open(CudaCard *d, CudaLane **out, RtError *e)
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
        CUDA_CHECK(stream_new(&l->stream, CU_STREAM_APART), "a stream cannot be made");
    }
    l->queue = atomic_load(&d->others) ? NULL : l->stream;
done:
    if (st)
        block_free(l);
    *out = st ? NULL : l;
    return st;
}

static void lane_close(CudaCard *d, CudaLane *l)
{
    pthread_mutex_lock(&d->lock);
    l->next = d->free_lanes;
    d->free_lanes = l;
    pthread_mutex_unlock(&d->lock);
}

/* Forgets what was recorded: it holds addresses of the lane. */
static void graphs_drop(CudaCard *d, CudaLane *l)
{
    for (int i = 0; i < GRAPHS; i++)
        if (l->graph[i].exec)
            d->cu.exec_free(l->graph[i].exec);
    memset(l->graph, 0, sizeof l->graph);
}

static Status lane_memory(CudaCard *d, CudaLane *l, uint64_t *at, size_t *room, size_t n, RtError *e)
{
    Status st = E_OK;
    if (*room >= n)
        return E_OK;
    CUDA_CHECK(stream_wait(l->queue), "its work cannot be waited for");
    graphs_drop(d, l);
    if (*at)
        d->cu.release(*at);
    *at = 0, *room = 0;
    if (!(st = card_memory(d, n, at, NULL, e)))
        *room = n;
done:
    return st;
}

static Status stage_need(CudaCard *d, CudaLane *l, RtError *e)
{
    Status st = E_OK;
    ASSERT(l);
    for (int i = 0; i < 2; i++) {
        void *p = NULL;
        if (!l->stage_done[i])
            CUDA_CHECK(event_new(&l->stage_done[i], CU_EVENT_QUIET), "an event cannot be made");
        if (!l->stage[i]) {
            CUDA_CHECK(host_alloc(&p, STAGE_BYTES), "pinned memory cannot be had");
            l->stage[i] = p;
        }
    }
done:
    return st;
}

/* Copies through pinned memory in two halves: one is filled or emptied by the processor while the other is on its way. */
Status card_copy(CudaCard *d, uint64_t dev, char *to, const char *from, size_t n, RtError *e)
{
    CudaLane *l = NULL;
    Status st = n ? card_enter(d, e) : E_OK;
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
                CUDA_CHECK(event_wait(l->stage_done[half]), "a copy failed");
            memcpy(l->stage[half], from + at, m);
            CUDA_CHECK(to_device(dev + at, l->stage[half], m, l->queue), "a copy cannot be started");
            CUDA_CHECK(event_record(l->stage_done[half], l->queue), "an event cannot be recorded");
            continue;
        }
        if (i < parts) {
            CUDA_CHECK(to_host(l->stage[half], dev + at, m, l->queue), "a copy cannot be started");
            CUDA_CHECK(event_record(l->stage_done[half], l->queue), "an event cannot be recorded");
        }
        if (i) {
            size_t was = at - STAGE_BYTES, k = n - was < STAGE_BYTES ? n - was : STAGE_BYTES;
            CUDA_CHECK(event_wait(l->stage_done[!half]), "a copy failed");
            ASSERT(to && l->stage[!half]);
            memcpy(to + was, l->stage[!half], k);
        }
    }
    CUDA_CHECK(stream_wait(l->queue), "a copy failed");
done:
    if (l)
        lane_close(d, l);
    card_leave(d);
    return st;
}

/* ---- running ---- */

/* Blocks of a kernel that a multiprocessor holds at once; 0: the launch is impossible. */
static int blocks_at_once(CudaCard *d, CudaKernel *k, int threads, int local)
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
static int64_t groups_at_once(CudaCard *d, const Launch *l)
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

static int64_t groups_of(CudaCard *d, const Launch *l)
{
    int64_t each = l->each > 0 ? l->each : 1, n = (l->total + each - 1) / each, most = INT32_MAX;
    if (l->scratch || l->resident) {
        most = groups_at_once(d, l);
        if (l->scratch && most > (int64_t)(SCRATCH_BYTES / l->scratch))
            most = l->scratch < SCRATCH_BYTES ? (int64_t)(SCRATCH_BYTES / l->scratch) : 1;
    }
    return n < most ? n : most;
}

static Status launch_issue(CudaCard *d, CudaLane *lane, const Launch *l, int64_t slot, RtError *e)
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
        CUDA_CHECK(fill8(scratch, 0, l->common, lane->queue), "memory cannot be cleared");
    CUDA_CHECK(launch(k->function, (unsigned)(groups * (l->cluster > 1 ? l->cluster : 1)), 1, 1, (unsigned)l->threads, 1, 1, (unsigned)l->local, lane->queue, param, NULL), "a kernel cannot be started");
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

static Status stretch_issue(CudaCard *d, CudaLane *lane, int n, const Launch *l, RtError *e)
{
    Status st = E_OK;
    bool checks = any_checks(n, l);
    if (checks)
        CUDA_CHECK(fill8(lane->err, 0, (size_t)n * 32, lane->queue), "memory cannot be cleared");
    for (int i = 0; i < n && !st; i++)
        if (launch_runs(&l[i]))
            st = launch_issue(d, lane, &l[i], i, e);
done:
    return st;
}

static Status stretch_record(CudaCard *d, CudaLane *lane, Recorded *r, int n, const Launch *l, RtError *e)
{
    void *graph = NULL;
    Status st = E_OK;
    void *queue = lane->queue;
    CUDA_CHECK(capture_begin(lane->stream, CU_CAPTURE_THREAD), "launches cannot be recorded");
    lane->queue = lane->stream;
    st = stretch_issue(d, lane, n, l, e);
    lane->queue = queue;
    int code = d->cu.capture_end(lane->stream, &graph);
    if (!st && code)
        st = card_fail(d, e, code, "launches cannot be recorded");
    if (!st)
        CUDA_CHECK(graph_make(&r->exec, graph, 0), "recorded launches cannot be made ready");
done:
    if (graph)
        d->cu.graph_free(graph);
    return st;
}

/* One stretch without times: replayed when it is known, recorded when it was seen once, else issued. */
static Status stretch_run(CudaCard *d, CudaLane *lane, int n, const Launch *l, RtError *e)
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
    CUDA_CHECK(graph_launch(r->exec, lane->queue), "recorded launches cannot be started");
done:
    return st;
}

static Status events_need(CudaCard *d, CudaLane *lane, int n, RtError *e)
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
        CUDA_CHECK(event_new(&lane->event[lane->nevent], 0), "an event cannot be made");
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
static Status stretch_timed(CudaCard *d, CudaLane *lane, int n, const Launch *l, double *seconds, RtError *e)
{
    Status st = events_need(d, lane, n + 1, e);
    if (st)
        return st;
    CUDA_CHECK(fill8(lane->err, 0, (size_t)n * 32, lane->queue), "memory cannot be cleared");
    atomic_store(&lane->go, 0);
    CUDA_CHECK(host_call(lane->queue, held_back, &lane->go), "a call of the host cannot be enqueued");
    for (int i = 0; i < n && !st; i++) {
        if (i == HELD)
            atomic_store(&lane->go, 1);
        CUDA_CHECK(event_record(lane->event[i], lane->queue), "an event cannot be recorded");
        if (launch_runs(&l[i]) && (st = launch_issue(d, lane, &l[i], i, e)))
            goto done;
    }
    CUDA_CHECK(event_record(lane->event[n], lane->queue), "an event cannot be recorded");
    atomic_store(&lane->go, 1);
    CUDA_CHECK(stream_wait(lane->queue), "a kernel failed");
    for (int i = 0; i < n; i++) {
        float ms = 0;
        CUDA_CHECK(event_between(&ms, lane->event[i], lane->event[i + 1]), "times cannot be read");
        seconds[i] = 1e-3 * (double)ms;
    }
done:
    atomic_store(&lane->go, 1);
    return st;
}

/* The first launch that reported an index outside its axis. */
static Status stretch_check(CudaCard *d, CudaLane *lane, int n, const Launch *l, RtError *e)
{
    Status st = E_OK;
    bool checks = any_checks(n, l);
    if (checks)
        CUDA_CHECK(to_host(lane->err_host, lane->err, (size_t)n * 32, lane->queue), "a copy cannot be started");
    CUDA_CHECK(stream_wait(lane->queue), "a kernel failed");
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
static Status lane_need(CudaCard *d, CudaLane *lane, int n, const Launch *list, RtError *e)
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
        CUDA_CHECK(host_alloc(&p, err), "pinned memory cannot be had");
        if (lane->err_host)
            d->cu.host_release(lane->err_host);
        lane->err_host = p;
        lane->err_host_room = err;
    }
done:
    return st;
}

Status card_run(CudaCard *d, int n, const Launch *list, volatile int *cancel, double *seconds, RtError *e)
{
    CudaLane *lane = NULL;
    Status st = n > 0 ? card_enter(d, e) : E_OK;
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
    card_leave(d);
    return st;
}

/* The default stream keeps the order by itself, and nobody waits. Lanes' own streams are apart from it: else nobody could use that while launches are recorded. */
Status card_follow(CudaCard *d, void *stream, RtError *e)
{
    void *event = NULL;
    Status st = E_OK;
    atomic_store(&d->others, true);
    if (!stream || !d->there || (st = card_enter(d, e)))
        return st;
    CUDA_CHECK(event_new(&event, CU_EVENT_QUIET), "an event cannot be made");
    CUDA_CHECK(event_record(event, stream), "an event cannot be recorded");
    CUDA_CHECK(stream_after(NULL, event, 0), "another stream cannot be followed");
done:
    if (event)
        d->cu.event_free(event); /* the driver keeps it until it has happened */
    card_leave(d);
    return st;
}
