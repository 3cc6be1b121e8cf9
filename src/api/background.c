/* Kernels compiled while runs go on without them.
 *
 * A segment whose kernels are not all there yet is complete but for code: it is planned, lowered and printed by the thread that traced it. One thread of a
 * program takes such segments in turn and hands their texts to the device; it touches nothing else of them. Until then segment_run() answers from the ready
 * tier (eval_ready). The first run that finds the kernels there finishes the segment, so a swap falls between two runs of a segment, never into one.
 *
 * The thread lowers its own priority, and with it that of the compilers that it starts: answers come first. */
#include "api/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct Background {
    pthread_mutex_t lock; pthread_cond_t ended;      /* over all below; one segment more is done */
    pthread_t thread; bool started, running;         /* started: to be joined */
    pid_t process;                      /* that made the thread: after fork() the child has none */
    int stop;                           /* set with an atomic; the device looks at it */
    Segment *first, *last;              /* in the order in which they came */
};

enum { LOWER = 10, WAIT_MS = 20 };

static void segment_compile(Background *b, Segment *s)
{
    s->build_error = (RtError){ .launch = -1 };
    BuildStats stats = s->times.build;
    Status st = s->target->api->build(s->target->device, s->target->prelude, s->ntext, s->text, s->out, &stats, &b->stop, &s->build_error);
    pthread_mutex_lock(&s->lock);
    s->times.build = stats;
    pthread_mutex_unlock(&s->lock);
    atomic_store_explicit(&s->state, st == E_OK ? SEG_compiled : SEG_failed, memory_order_release);
}

static void *background_main(void *arg)
{
    Background *b = arg;
    setpriority(PRIO_PROCESS, 0, LOWER);             /* 0: this thread, on Linux */
    pthread_mutex_lock(&b->lock);
    while (b->first && !__atomic_load_n(&b->stop, __ATOMIC_RELAXED)) {
        Segment *s = b->first;
        pthread_mutex_unlock(&b->lock);
        segment_compile(b, s);
        pthread_mutex_lock(&b->lock);
        b->first = s->next_compiled;
        pthread_cond_broadcast(&b->ended);
    }
    b->running = false;
    pthread_cond_broadcast(&b->ended);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

Background *background_new(Arena *a)
{
    Background *b = NEW(a, Background);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->ended, NULL);
    b->process = getpid();
    return b;
}

void background_free(Background *b)
{
    if (!b || b->process != getpid()) return;
    __atomic_store_n(&b->stop, 1, __ATOMIC_RELAXED);
    if (b->started) pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    b->process = 0;
}

void background_drop(Background *b, Segment *s)
{
    if (!b || b->process != getpid()) return;
    pthread_mutex_lock(&b->lock);
    while (b->first == s && b->running) pthread_cond_wait(&b->ended, &b->lock);
    for (Segment *x = b->first; x; x = x->next_compiled) {
        if (x->next_compiled != s) continue;
        x->next_compiled = s->next_compiled;
        if (b->last == s) b->last = x;
    }
    pthread_mutex_unlock(&b->lock);
}

/* In the child of a fork() the thread is gone, and what it held is lost. */
static void background_again(Background *b)
{
    if (b->process == getpid()) return;
    *b = (Background){ .process = getpid() };
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->ended, NULL);
}

void background_add(Background *b, Segment *s)
{
    background_again(b);
    pthread_mutex_lock(&b->lock);
    if (b->first) b->last->next_compiled = s;
    else b->first = s;
    b->last = s;
    bool start = !b->running;
    if (start) {
        if (b->started) pthread_join(b->thread, NULL);
        b->running = b->started = thread_start(&b->thread, background_main, b);
        if (!b->running) b->first = NULL;
    }
    bool here = !b->running;            /* no thread to be had: now, then */
    pthread_mutex_unlock(&b->lock);
    if (here) segment_compile(b, s);
}

bool background_busy(Background *b)
{
    if (!b || b->process != getpid()) return false;
    pthread_mutex_lock(&b->lock);
    bool busy = b->running;
    pthread_mutex_unlock(&b->lock);
    return busy;
}

void background_wait(Ctx *cx, Background *b)
{
    while (background_busy(b)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&b->lock);
        if (b->running) pthread_cond_timedwait(&b->ended, &b->lock, &until);
        pthread_mutex_unlock(&b->lock);
        ctx_poll(cx);
    }
}
