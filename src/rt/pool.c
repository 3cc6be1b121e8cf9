/* Threads for the CPU device: one owner at a time, chunks from atomic counters.
 *
 * A region's chunks lie in shards, one for each thread (or a few threads). A thread takes those of its own shard, then helps with the others: so it computes the
 * same part of each launch of a list, one that hangs together, and finds in its own cache what it stored there, while one that is held up is waited for no longer.
 *
 * A region is opened and closed through one word, the door: | number:16 | open:1 | waiting:1 | inside:14 |.
 * A worker that sees an open door of a new number goes inside by adding 1, takes chunks until none is left,
 * and leaves by subtracting 1. The caller takes chunks too, then shuts the door, and waits only for those
 * inside: they hold a chunk that was taken, while a worker that is asleep or delayed outside is never
 * waited for. What describes the region is written while nobody is inside, so it needs no atomics.
 *
 * Outside a region workers watch the door for a short while (longer while a list of launches runs), then
 * sleep on the bell. The caller rings it only when somebody sleeps: the worker counts itself as a sleeper
 * before its last look at the door, the caller opens the door before it counts sleepers.
 *
 * What a hand-over costs is measured when the workers are made: two parts that meet, with a worker that watches the door and with one that sleeps.
 *
 * After fork() the workers do not exist in the child: the first pool_enter there notices by the process
 * number and begins anew. (A list that was under way in the thread that forked goes on without workers.) */
#include "rt/rt.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DOOR_OPEN    0x8000u
#define DOOR_WAITING 0x4000u
#define DOOR_INSIDE  0x3FFFu
#define DOOR_NUMBER  16 /* shift */
#define MAX_THREADS  1024
#define MAX_SHARDS   8 /* more threads share one: who is done looks through all of them */
#define CHUNKS_EACH  8 /* parts for each thread: cheap, yet levelling out a thread that loses its processor */
#define SPIN_LIST    200e-6 /* seconds that an idle worker watches the door while a list runs ... */
#define SPIN_IDLE    50e-6 /* ... and when none runs: the next list of a small model often follows at once */
#define LINE         64
#define COST_TRIES   6 /* of each kind; the shortest counts */
#define COST_NAPS    5
#define COST_LIMIT   400e-6 /* seconds until a part no longer waits for the other */
#define COST_AWAKE   0.5e-6 /* what is believed where nobody came */
#define COST_ASLEEP  50e-6

typedef struct Worker {
    Pool *pool;
    pthread_t thread;
    int slot;
} Worker;

typedef struct Shard {
    _Alignas(LINE) _Atomic int64_t next; /* the first chunk that is not taken */
    int64_t end;
} Shard;

struct Pool {
    _Alignas(LINE) _Atomic uint32_t door;
    Shard shard[MAX_SHARDS];
    _Alignas(LINE) _Atomic uint32_t bell; /* changes at each ring */
    _Atomic int sleepers;
    _Atomic bool stop, list; /* list: some caller is between pool_enter and pool_leave */
    _Alignas(LINE) const void *_Atomic owner; /* a thread, by the address of its own pool_self; NULL: free */
    _Atomic long pid; /* process that the workers belong to; -1 while they are made */
    _Alignas(LINE) void (*fn)(void *arg, int64_t lo, int64_t hi, int slot); /* the region, see above */
    void *arg;
    int64_t total, chunk;
    int shards; /* of this region */
    int limit; /* slots below it may take part */
    bool inside; /* the owner is in a region; only it looks */
    int threads, made; /* wanted, including the caller; workers there are */
    PoolCost cost; /* written before pid is */
    double left; /* when the last list ended; the owner's */
    Worker worker[];
};

static _Thread_local char pool_self;

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *at, uint32_t seen)
{
    syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *at, int n)
{
    syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void pool_chunks(Pool *p, int slot)
{
    int own = (int)((int64_t)slot * p->shards / p->limit);
    for (int i = 0; i < p->shards; i++) {
        Shard *s = &p->shard[(own + i) % p->shards];
        while (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) {
            int64_t c = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed), lo = c * p->chunk;
            if (c < s->end)
                p->fn(p->arg, lo, p->total - lo < p->chunk ? p->total : lo + p->chunk, slot);
        }
    }
}

/* Waits until the door is open under another number than `last`; false: the pool ends. */
static bool worker_wait(Pool *p, uint32_t last, uint32_t *door)
{
    double begin = time_now();
    for (int i = 1;; i++) {
        uint32_t d = atomic_load_explicit(&p->door, memory_order_acquire);
        if ((d & DOOR_OPEN) && d >> DOOR_NUMBER != last) {
            *door = d;
            return true;
        }
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return false;
        cpu_relax();
        if (i % 64 || time_now() - begin <
                          (atomic_load_explicit(&p->list, memory_order_relaxed) ? SPIN_LIST : SPIN_IDLE))
            continue;
        uint32_t bell = atomic_load(&p->bell);
        atomic_fetch_add(&p->sleepers, 1);
        d = atomic_load(&p->door);
        if (!((d & DOOR_OPEN) && d >> DOOR_NUMBER != last) && !atomic_load(&p->stop))
            futex_wait(&p->bell, bell);
        atomic_fetch_sub(&p->sleepers, 1);
        begin = time_now();
    }
}

static void *worker_main(void *arg)
{
    Worker *w = arg;
    Pool *p = w->pool;
    uint32_t last = 0, d;
    while (worker_wait(p, last, &d)) {
        if (!atomic_compare_exchange_strong(&p->door, &d, d + 1))
            continue; /* the door moved meanwhile: look again */
        last = d >> DOOR_NUMBER;
        if (w->slot < p->limit)
            pool_chunks(p, w->slot);
        d = atomic_fetch_sub(&p->door, 1);
        if ((d & DOOR_WAITING) && (d & DOOR_INSIDE) == 1)
            futex_wake(&p->door, 1);
    }
    return NULL;
}

/* Makes the workers. Signals stay with the program's own threads. */
static void pool_start(Pool *p)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (p->made = 0; p->made < p->threads - 1; p->made++) {
        Worker *w = &p->worker[p->made];
        w->pool = p;
        w->slot = p->made + 1;
        if (pthread_create(&w->thread, NULL, worker_main, w))
            break; /* fewer threads do as well */
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void pool_region(Pool *p, int threads, int64_t total, int64_t chunk, int64_t nchunks,
                        void (*fn)(void *, int64_t, int64_t, int), void *arg);

typedef struct Meeting {
    atomic_int there;
    double begin;
} Meeting;

/* Each of two parts waits for the other. */
static void meeting_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    Meeting *m = arg;
    (void)lo, (void)hi, (void)slot;
    atomic_fetch_add(&m->there, 1);
    while (atomic_load_explicit(&m->there, memory_order_relaxed) < 2 && time_now() - m->begin < COST_LIMIT)
        cpu_relax();
}

/* The seconds until two threads have met, in *least if these are the fewest so far. false: nobody came. */
static bool pool_meet(Pool *p, double *least)
{
    Meeting m = { .begin = time_now() };
    pool_region(p, p->made + 1, 2, 1, 2, meeting_part, &m);
    double took = time_now() - m.begin;
    if (took < *least)
        *least = took;
    return took < COST_LIMIT;
}

/* In less than a millisecond, where the machine is not busy. */
static void pool_measure(Pool *p)
{
    PoolCost c = { COST_LIMIT, COST_LIMIT };
    const struct timespec nap = { 0, (long)(SPIN_IDLE * 2e9) };
    bool came = false;
    for (int i = 0, met = 0; i < COST_NAPS && met < 2; i++) {
        nanosleep(&nap, NULL); /* they begin, find nothing and fall asleep */
        if (atomic_load(&p->sleepers) == p->made)
            met += came = pool_meet(p, &c.asleep);
    }
    for (int i = 0; i < COST_TRIES && came; i++)
        came = pool_meet(p, &c.awake);
    if (c.awake >= COST_LIMIT)
        c.awake = COST_AWAKE;
    if (c.asleep >= COST_LIMIT)
        c.asleep = COST_ASLEEP;
    p->cost = c;
}

Pool *pool_new(int threads)
{
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    size_t size = sizeof(Pool) + (size_t)(threads - 1) * sizeof(Worker);
    Pool *p = block_alloc(size);
    if (!p)
        return NULL;
    memset(p, 0, size);
    p->threads = threads;
    return p;
}

void pool_free(Pool *p)
{
    if (!p)
        return;
    if (p->made && atomic_load(&p->pid) == (long)getpid()) {
        atomic_store(&p->stop, true);
        atomic_fetch_add(&p->bell, 1);
        futex_wake(&p->bell, INT_MAX);
        for (int i = 0; i < p->made; i++)
            pthread_join(p->worker[i].thread, NULL);
    }
    block_free(p);
}

/* The workers of this process; false while another thread of it makes them. */
static bool pool_here(Pool *p)
{
    long pid = (long)getpid(), was = atomic_load(&p->pid);
    if (was == pid)
        return true;
    if (was < 0 || !atomic_compare_exchange_strong(&p->pid, &was, -1))
        return false;
    atomic_store(&p->door, 0); /* as fork() left it: the owner and the workers may have been anywhere */
    atomic_store(&p->sleepers, 0);
    atomic_store(&p->list, false);
    atomic_store(&p->owner, NULL);
    p->inside = false;
    p->made = 0;
    pool_start(p);
    if (p->made && p->cost.awake == 0)
        pool_measure(p);
    atomic_store(&p->pid, pid);
    return true;
}

bool pool_enter(Pool *p)
{
    const void *none = NULL;
    if (!pool_here(p) || !atomic_compare_exchange_strong(&p->owner, &none, (const void *)&pool_self))
        return false;
    atomic_store_explicit(&p->list, true, memory_order_relaxed);
    return true;
}

PoolCost pool_cost(const Pool *p) { return p->cost; }

bool pool_rests(const Pool *p)
{
    return atomic_load(&p->sleepers) == p->made && time_now() - p->left > SPIN_IDLE;
}

void pool_leave(Pool *p)
{
    p->left = time_now();
    atomic_store_explicit(&p->list, false, memory_order_relaxed);
    atomic_store(&p->owner, NULL);
}

/* The owner's part: opens the door, works, shuts it, waits for those inside. */
static void pool_region(Pool *p, int threads, int64_t total, int64_t chunk, int64_t nchunks,
                        void (*fn)(void *, int64_t, int64_t, int), void *arg)
{
    p->fn = fn;
    p->arg = arg;
    p->total = total;
    p->chunk = chunk;
    p->limit = threads;
    p->shards = threads < MAX_SHARDS ? threads : MAX_SHARDS;
    for (int i = 0; i < p->shards; i++) {
        p->shard[i].end = nchunks * (i + 1) / p->shards;
        atomic_store_explicit(&p->shard[i].next, nchunks * i / p->shards, memory_order_relaxed);
    }
    p->inside = true;
    uint32_t number = (atomic_load_explicit(&p->door, memory_order_relaxed) >> DOOR_NUMBER) + 1;
    atomic_store(&p->door, (number << DOOR_NUMBER) | DOOR_OPEN);
    if (atomic_load(&p->sleepers)) {
        atomic_fetch_add(&p->bell, 1);
        /* The bell cannot choose whom it wakes, so all must hear it when not all may take part. */
        futex_wake(&p->bell, threads > p->made && nchunks - 1 < p->made ? (int)nchunks - 1 : INT_MAX);
    }
    pool_chunks(p, 0);
    uint32_t d = atomic_fetch_and(&p->door, ~DOOR_OPEN) & ~DOOR_OPEN;
    for (int i = 0; d & DOOR_INSIDE; i++) {
        if (i < 2000) {
            cpu_relax();
            d = atomic_load(&p->door);
        } else if (!(d & DOOR_WAITING)) {
            d = atomic_fetch_or(&p->door, DOOR_WAITING) | DOOR_WAITING;
        } else {
            futex_wait(&p->door, d);
            d = atomic_load(&p->door);
        }
    }
    p->inside = false;
}

void pool_run(Pool *p, int threads, int64_t total, int64_t grain,
              void (*fn)(void *arg, int64_t lo, int64_t hi, int slot), void *arg)
{
    if (total <= 0)
        return;
    if (grain < 1)
        grain = 1;
    bool mine = atomic_load_explicit(&p->owner, memory_order_relaxed) == (const void *)&pool_self;
    bool entered = false;
    if (threads > p->threads)
        threads = p->threads;
    if (threads > 1 && grain < total && !(mine && p->inside))
        entered = !mine && pool_enter(p);
    if (threads <= 1 || grain >= total || !(mine || entered) || (mine && p->inside)) {
        fn(arg, 0, total, 0);
        return;
    }
    if (threads > p->made + 1)
        threads = p->made + 1;
    int64_t each = total / ((int64_t)threads * CHUNKS_EACH);
    int64_t chunk = each > grain ? each : grain;
    int64_t nchunks = total / chunk + (total % chunk != 0);
    chunk = total / nchunks + (total % nchunks != 0); /* even parts */
    nchunks = total / chunk + (total % chunk != 0);
    if (threads == 1 || nchunks == 1)
        fn(arg, 0, total, 0);
    else
        pool_region(p, threads, total, chunk, nchunks, fn, arg);
    if (entered)
        pool_leave(p);
}
