/* The thread pool and the CPU device.
 *
 * Threads are asked for beyond the processors that there are, so that all paths are taken on a small
 * machine too. */
#include "test.h"
#include "rt/rt.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- pool ---- */

typedef struct Sum {
    atomic_llong count, sum, parts;
    atomic_int in_slot[64], clash, high;
    int64_t grain, small; /* parts below the grain */
    Pool *nested;
} Sum;

static void sum_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    Sum *s = arg;
    int64_t sum = 0;
    if (atomic_fetch_add(&s->in_slot[slot], 1))
        atomic_fetch_add(&s->clash, 1);
    for (int64_t i = lo; i < hi; i++)
        sum += i;
    atomic_fetch_add(&s->count, hi - lo);
    atomic_fetch_add(&s->sum, sum);
    atomic_fetch_add(&s->parts, 1);
    if (slot > atomic_load(&s->high))
        atomic_store(&s->high, slot);
    atomic_fetch_sub(&s->in_slot[slot], 1);
}

static bool sum_right(const Sum *s, int64_t n, int threads)
{
    return s->count == n && s->sum == n * (n - 1) / 2 && !s->clash && s->high < threads;
}

static void test_ranges(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        Pool *p = pool_new(threads);
        for (int round = 0; round < 3000; round++) {
            int64_t n = round * 37 % 5000, grain = 1 + round * 11 % 700;
            int use = 1 + round % 5;
            Sum s = { 0 };
            bool own = round % 3 == 0 && pool_enter(p);
            pool_run(p, use, n, grain, sum_part, &s);
            if (own)
                pool_leave(p);
            assert_true(sum_right(&s, n, use < threads ? use : threads));
            assert_true(s.parts <= n / grain + 1);
        }
        pool_free(p);
    }
    pool_free(NULL);
}

static void count_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    (void)slot;
    atomic_fetch_add(&((Sum *)arg)->count, hi - lo);
}

static void test_long_range(void **state)
{
    (void)state;
    Pool *p = pool_new(3);
    for (int64_t grain = 1; grain < INT64_MAX / 8; grain = grain * 5 + 1) {
        Sum s = { 0 };
        pool_run(p, 3, INT64_MAX, grain, count_part, &s);
        assert_true(s.count == INT64_MAX);
    }
    pool_free(p);
}

/* Work really is shared: both parts wait until the other has begun. sum: how many met. */
static void meet_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    Sum *s = arg;
    (void)lo, (void)hi, (void)slot;
    double start = time_now();
    atomic_fetch_add(&s->count, 1);
    while (atomic_load(&s->count) < 2 && time_now() - start < 20)
        sched_yield();
    if (time_now() - start < 20)
        atomic_fetch_add(&s->sum, 1);
}

static void test_shared(void **state)
{
    (void)state;
    Pool *p = pool_new(2);
    for (int i = 0; i < 200; i++) {
        Sum s = { 0 };
        pool_run(p, 2, 2, 1, meet_part, &s);
        assert_true(s.count == 2 && s.sum == 2);
        if (i % 50 == 0) /* the worker sleeps by then */
            nanosleep(&(struct timespec){ 0, 3000000 }, NULL);
    }
    pool_free(p);
}

/* Each thread begins with its own share: the first part of either waits until the other has one too. */
typedef struct Begin {
    atomic_int begun;
    atomic_llong first[2]; /* by slot: 1 + where its first part begins */
} Begin;

static void begin_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    Begin *b = arg;
    (void)hi;
    if (atomic_load(&b->first[slot]))
        return;
    double start = time_now();
    atomic_store(&b->first[slot], 1 + lo);
    atomic_fetch_add(&b->begun, 1);
    while (atomic_load(&b->begun) < 2 && time_now() - start < 20)
        sched_yield();
}

static void test_own_share(void **state)
{
    (void)state;
    Pool *p = pool_new(2);
    for (int i = 0; i < 100; i++) {
        Begin b = { 0 };
        pool_run(p, 2, 160, 10, begin_part, &b);
        assert_int_equal(b.first[0], 1);
        assert_int_equal(b.first[1], 1 + 80);
    }
    pool_free(p);
}

static void nested_part(void *arg, int64_t lo, int64_t hi, int slot)
{
    Sum *s = arg, inner = { 0 };
    pool_run(s->nested, 4, 100, 1, sum_part, &inner);
    if (!sum_right(&inner, 100, 4))
        atomic_fetch_add(&s->clash, 1);
    sum_part(s, lo, hi, slot);
}

static void test_nested(void **state)
{
    (void)state;
    Pool *p = pool_new(4);
    for (int i = 0; i < 200; i++) {
        Sum s = { .nested = p };
        pool_run(p, 4, 1000, 10, nested_part, &s);
        assert_true(sum_right(&s, 1000, 4));
    }
    pool_free(p);
}

typedef struct Caller {
    Pool *p;
    bool ok;
    int owned;
} Caller;

static void *caller_main(void *arg)
{
    Caller *c = arg;
    c->ok = true;
    for (int i = 0; i < 2000; i++) {
        Sum s = { 0 };
        bool own = i % 2 && pool_enter(c->p);
        c->owned += own;
        pool_run(c->p, 3, 3000, 50, sum_part, &s);
        pool_run(c->p, 3, 10, 1, sum_part, &(Sum){ 0 });
        if (own)
            pool_leave(c->p);
        c->ok &= sum_right(&s, 3000, 3);
    }
    return NULL;
}

static void test_two_callers(void **state)
{
    (void)state;
    Caller c[2] = { { .p = pool_new(3) }, { 0 } };
    pthread_t t[2];
    c[1].p = c[0].p;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, caller_main, &c[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    assert_true(c[0].ok && c[1].ok && c[0].owned + c[1].owned > 0);
    pool_free(c[0].p);
}

/* 0: right in the child. shared: it has workers of its own. */
static int child_runs(Pool *p, bool shared)
{
    pid_t child = fork();
    if (!child) {
        Sum s = { 0 }, met = { 0 };
        alarm(60);
        pool_run(p, 3, 100000, 10, sum_part, &s);
        if (shared)
            pool_run(p, 2, 2, 1, meet_part, &met);
        pool_free(p);
        _exit(!sum_right(&s, 100000, 3) || met.sum != (shared ? 2 : 0));
    }
    int st = -1;
    return waitpid(child, &st, 0) == child ? st : -1;
}

static void test_fork(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    print_message("skipped: the thread sanitizer cannot follow threads made after fork()\n");
    skip();
#endif
    Pool *p = pool_new(3);
    Sum s = { 0 };
    assert_int_equal(child_runs(p, true), 0); /* before there are workers */
    pool_run(p, 3, 100000, 10, sum_part, &s);
    assert_int_equal(child_runs(p, true), 0);
    nanosleep(&(struct timespec){ 0, 3000000 }, NULL);
    assert_int_equal(child_runs(p, true), 0); /* workers asleep */
    assert_true(pool_enter(p));
    assert_int_equal(child_runs(p, false), 0); /* in the middle of a list, which goes on alone */
    pool_leave(p);
    pool_run(p, 3, 100000, 10, sum_part, &s);
    assert_true(s.count == 200000);
    pool_free(p);
}

static void test_one_processor(void **state)
{
    (void)state;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &old)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cpu_count(), 1);
    Pool *p = pool_new(4); /* more threads than processors still ends soon */
    double start = time_now();
    for (int i = 0; i < 200; i++) {
        Sum s = { 0 };
        pool_run(p, 4, 10000, 10, sum_part, &s);
        assert_true(sum_right(&s, 10000, 4));
    }
    assert_true(time_now() - start < 20);
    pool_free(p);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

/* Idle workers use no processor. */
static void test_idle(void **state)
{
    (void)state;
    Sum s = { 0 };
    struct timespec a, b;
    Pool *p = pool_new(4);
    pool_run(p, 4, 100000, 10, sum_part, &s);
    nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    assert_true((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) < 0.05);
    pool_free(p);
}

/* ---- device ---- */

static const char prelude[] = "typedef long i64;\n#define KERNEL(n) void n(void *const *buf, const i64 *arg, "
                              "void *scratch, i64 lo, i64 hi, i64 *err)\n";
enum { K_fill, K_gather, K_scratch, DEVICE_KERNELS };
static const KernelText texts[DEVICE_KERNELS] = {
    { .name = "fill",
      .text = "KERNEL(fill) { for (i64 i = lo; i < hi; i++) ((i64 *)buf[0])[i] += i * arg[0]; }" },
    { .name = "gather",
      .text = "KERNEL(gather)\n{\n    const i64 *ix = buf[1];\n    for (i64 i = lo; i < hi; i++) {\n        "
              "i64 j = ix[i];\n"
              "        if (j < 0 || j >= arg[0]) {\n            if (!err[0]) { err[0] = 1; err[1] = arg[1]; "
              "err[2] = j; err[3] = arg[0]; }\n"
              "            j = 0;\n        }\n        ((i64 *)buf[0])[i] = j;\n    }\n}\n" },
    { .name = "scratchy",
      .text = "KERNEL(scratchy)\n{\n    char *s = scratch;\n    for (i64 i = lo; i < hi; i++) {\n        for "
              "(i64 j = 0; j < arg[0]; j++) s[j] = (char)i;\n"
              "        i64 bad = (i64)s % 64;\n        for (i64 j = 0; j < arg[0]; j++) bad += s[j] != "
              "(char)i;\n        ((i64 *)buf[0])[i] = bad;\n    }\n}\n" },
};

typedef struct Dev {
    char cache[64];
    Options opt;
    Device *d;
    RtError e;
    const Kernel *k[DEVICE_KERNELS];
} Dev;

static int dev_setup(void **state)
{
    Dev *v = calloc(1, sizeof *v);
    snprintf(v->cache, sizeof v->cache, "/tmp/t_pool-XXXXXX");
    if (!mkdtemp(v->cache))
        return -1;
    options_default(&v->opt);
    v->opt.cache = v->cache;
    v->opt.threads = 3;
    *state = v;
    if (dev_cpu.open(&v->d, &v->opt, &v->e) ||
        dev_cpu.build(v->d, prelude, DEVICE_KERNELS, texts, v->k, NULL, NULL, &v->e)) {
        print_error("%s\n", v->e.text);
        return -1;
    }
    return 0;
}

static int dev_teardown(void **state)
{
    Dev *v = *state;
    char cmd[128];
    dev_cpu.close(v->d);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", v->cache);
    int bad = system(cmd);
    free(v);
    return bad;
}

static void test_memory(void **state)
{
    Dev *v = *state;
    const size_t sizes[] = {
        0, 1, 63, 4096, 100000, ((size_t)2 << 20) - 1, (size_t)2 << 20, 5000000, 70000000
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *p;
        assert_int_equal(dev_cpu.alloc(v->d, sizes[i], &p, &v->e), E_OK);
        assert_true((uintptr_t)p % (sizes[i] >= (size_t)2 << 20 ? (size_t)2 << 20 : 64) == 0);
        memset(p, 0xA5, sizes[i]);
        char from[5] = "abcd", to[5] = "";
        if (sizes[i] > 64) {
            assert_int_equal(dev_cpu.write(v->d, (char *)p + sizes[i] - 5, from, 5, &v->e), E_OK);
            assert_int_equal(dev_cpu.read(v->d, to, (char *)p + sizes[i] - 5, 5, &v->e), E_OK);
            assert_string_equal(to, "abcd");
        }
        dev_cpu.release(v->d, p);
    }
    void *p = &p;
    char figure[32];
    snprintf(figure, sizeof figure, "%lld", (long long)memory_total());
    assert_int_equal(dev_cpu.alloc(v->d, (size_t)memory_total() + 1, &p, &v->e), E_NOMEM);
    assert_non_null(strstr(v->e.text, figure));
    assert_null(p);
    assert_int_equal(dev_cpu.alloc(v->d, SIZE_MAX, &p, &v->e), E_NOMEM);
    dev_cpu.release(v->d, NULL);
}

static void host_add(void *arg, RtError *e)
{
    int64_t *x = arg;
    x[1] += 1000;
    if (x[1] > 3000)
        rt_fail(e, E_IO, "host says no");
}

static void test_run(void **state)
{
    Dev *v = *state;
    enum { N = 20000 };
    int64_t *x = calloc(N, sizeof *x), one = 1, two = 2, size = 3000;
    double seconds[6];
    void *buf[1] = { x };
    Launch list[6] = {
        { .kernel = v->k[K_fill], .buf = buf, .arg = &one, .total = N, .grain = 100 },
        { .kernel = v->k[K_fill], .buf = buf, .arg = &two, .total = N, .grain = N },
        { .kernel = v->k[K_fill], .buf = buf, .arg = &two, .total = 0, .grain = 1 },
        { .host = host_add, .host_arg = x },
        { .kernel = v->k[K_fill], .buf = buf, .arg = &one, .total = N, .grain = 1 },
        { .kernel = v->k[K_scratch], .buf = buf, .arg = &size, .total = 10, .grain = 1, .scratch = 3000 },
    };
    for (int threads = 0; threads <= 5; threads++) {
        memset(x, 0, N * sizeof *x);
        assert_int_equal(dev_cpu.run(v->d, 6, list, threads, NULL, threads % 2 ? seconds : NULL, &v->e), E_OK);
        for (int i = 10; i < N; i++)
            assert_true(x[i] == 4 * i);
        for (int i = 0; i < 10; i++)
            assert_true(x[i] == 0); /* scratch was aligned, private and large enough */
        for (int i = 0; i < 6 && threads % 2; i++)
            assert_true(seconds[i] >= 0 && seconds[i] < 60);
    }
    memset(x, 0, N * sizeof *x);
    x[1] = 2500;
    list[3].id = 33;
    assert_int_equal(dev_cpu.run(v->d, 5, list, 0, NULL, NULL, &v->e), E_IO);
    assert_string_equal(v->e.text, "host says no");
    assert_true(x[2] == 6); /* what follows the failure did not run */
    assert_int_equal(dev_cpu.run(v->d, 0, NULL, 0, NULL, NULL, &v->e), E_OK);
    free(x);
}

static void host_cancel(void *arg, RtError *e)
{
    (void)e;
    *(volatile int *)arg = 1;
}

/* What was started before ends; nothing more is started, on one thread or several. */
typedef struct Parts { atomic_int parts; int64_t x[4000]; } Parts;

static void parts_kernel(void *const *buf, const int64_t *arg, void *scratch, int64_t lo, int64_t hi, int64_t *err)
{
    Parts *p = buf[0];
    (void)arg, (void)scratch, (void)err;
    atomic_fetch_add(&p->parts, 1);
    for (int64_t i = lo; i < hi; i++)
        p->x[i] += i;
}

/* Parts of one launch after `runs` runs in which it took this long. */
static int parts_of(Dev *v, Pace pace, int64_t grain)
{
    static Parts p;
    KernelFn fn = parts_kernel;
    void *buf[1] = { &p };
    Launch l = { .kernel = (const Kernel *)(uintptr_t)fn, .buf = buf, .nbuf = 1, .total = COUNT_OF(p.x), .grain = grain, .pace = &pace };
    memset(p.x, 0, sizeof p.x);
    atomic_store(&p.parts, 0);
    for (int i = 0; i < 2; i++)          /* the second list follows at once: what workers that sleep cost is no matter */
        assert_int_equal(dev_cpu.run(v->d, 1, &l, 0, NULL, NULL, &v->e), E_OK);
    for (size_t i = 0; i < COUNT_OF(p.x); i++)
        assert_true(p.x[i] == 2 * (int64_t)i);           /* however it is cut */
    return atomic_load(&p.parts) / 2;
}

/* A launch is cut by what handing over costs and by how long it was seen to take. */
static void test_pace(void **state)
{
    Dev *v = *state;
    Pool *pool = pool_new(3);
    assert_true(pool_enter(pool));
    PoolCost cost = pool_cost(pool);
    pool_leave(pool);
    pool_free(pool);
    assert_true(cost.awake > 0 && cost.awake < 1e-3 && cost.asleep > 0 && cost.asleep < 1e-3);
    assert_true(parts_of(v, (Pace){ 0 }, 100) > 1);      /* an estimate, at first */
    assert_int_equal(parts_of(v, (Pace){ 0 }, 4000), 1);
    assert_int_equal(parts_of(v, (Pace){ .runs = 100, .each = 1e-13, .shared = 1e-9, .alone = 1e-9 }, 100), 1);    /* so short */
    assert_true(parts_of(v, (Pace){ .runs = 100, .each = 1e-6, .shared = 2e-3, .alone = 1e-3 }, 100) > 1);         /* so long that no trial counts */
    assert_int_equal(parts_of(v, (Pace){ .runs = 100, .each = 1e-7, .shared = 3e-4, .alone = 2e-4 }, 100), 1);     /* between: what was seen */
    assert_true(parts_of(v, (Pace){ .runs = 100, .each = 1e-7, .shared = 2e-4, .alone = 3e-4 }, 100) > 1);
    assert_int_equal(parts_of(v, (Pace){ .runs = 40, .each = 1e-7, .shared = 2e-4 }, 100), 1);                   /* the trial alone */
}

static void test_run_cancelled(void **state)
{
    Dev *v = *state;
    enum { N = 20000 };
    int64_t *x = calloc(N, sizeof *x), one = 1;
    void *buf[1] = { x };
    volatile int cancel = 0;
    Launch list[3] = {
        { .kernel = v->k[K_fill], .buf = buf, .arg = &one, .total = N, .grain = 100 },
        { .host = host_cancel, .host_arg = (void *)&cancel },
        { .kernel = v->k[K_fill], .buf = buf, .arg = &one, .total = N, .grain = 100 },
    };
    for (int threads = 1; threads <= 3; threads++) {
        memset(x, 0, N * sizeof *x);
        cancel = 0;
        assert_int_equal(dev_cpu.run(v->d, 1, list, threads, &cancel, NULL, &v->e), E_OK);
        for (int i = 0; i < N; i++)
            assert_true(x[i] == i); /* parts leave nothing out */
        assert_int_equal(dev_cpu.run(v->d, 3, list, threads, &cancel, NULL, &v->e), E_CANCELLED);
        for (int i = 0; i < N; i++)
            assert_true(x[i] == 2 * i);
        assert_int_equal(dev_cpu.run(v->d, 1, list, threads, &cancel, NULL, &v->e), E_CANCELLED);
        for (int i = 0; i < N; i++)
            assert_true(x[i] == 2 * i);
    }
    free(x);
}

static void test_data_error(void **state)
{
    Dev *v = *state;
    enum { N = 20000 };
    int64_t *x = calloc(2 * N, sizeof *x), *ix = x + N, arg[2] = { 50, 7 };
    void *buf[2] = { x, ix };
    Launch l = { .kernel = v->k[K_gather], .buf = buf, .arg = arg, .total = N, .grain = 10, .id = 12 };
    for (int round = 0; round < 50; round++) {
        memset(ix, 0, N * sizeof *ix);
        assert_int_equal(dev_cpu.run(v->d, 1, &l, 3, NULL, NULL, &v->e), E_OK);
        ix[5000] = -8;
        ix[5001] = 50;
        for (int i = 5002; i < N; i += 3)
            ix[i] = 1000 + i;
        assert_int_equal(dev_cpu.run(v->d, 1, &l, 1 + round % 3, NULL, NULL, &v->e), E_INVALID);
        assert_string_equal(v->e.text, "index -8 is outside an axis of size 50");
        assert_int_equal(v->e.launch, 12);
        assert_true(v->e.site == 7 && v->e.value == -8 && v->e.limit == 50);
    }
    free(x);
}

typedef struct RunThread {
    Dev *v;
    bool ok;
} RunThread;

static void *run_thread(void *arg)
{
    RunThread *t = arg;
    enum { N = 5000 };
    int64_t *x = calloc(N, sizeof *x), one = 1, size = 1000;
    void *buf[1] = { x };
    RtError e;
    Launch list[2] = {
        { .kernel = t->v->k[K_scratch], .buf = buf, .arg = &size, .total = N, .grain = 50, .scratch = 1000 },
        { .kernel = t->v->k[K_fill], .buf = buf, .arg = &one, .total = N, .grain = 100 },
    };
    t->ok = true;
    for (int i = 0; i < 50; i++) {
        t->ok &= !dev_cpu.run(t->v->d, 2, list, 0, NULL, NULL, &e);
        for (int j = 0; j < N; j++)
            t->ok &= x[j] == j;
    }
    free(x);
    return NULL;
}

static void test_threads_run(void **state)
{
    RunThread t[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        t[i] = (RunThread){ *state, false };
        assert_int_equal(pthread_create(&thread[i], NULL, run_thread, &t[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        assert_true(t[i].ok);
    }
}

static void test_describe(void **state)
{
    Dev *v = *state;
    assert_non_null(strstr(dev_cpu.describe(v->d), "3 threads"));
    assert_ptr_equal(dev_cpu.describe(v->d), dev_cpu.describe(v->d));
}

/* ---- counters ---- */

static void touch(void *arg) { memset(arg, 1, 64 << 20); }

static void test_counters(void **state)
{
    (void)state;
    char why[256] = "";
    char *p = malloc(64 << 20);
    int64_t bytes = count_bytes(touch, p, why, sizeof why);
    if (bytes < 0)
        assert_true(bytes == -1 && why[0]);
    assert_int_equal(p[(64 << 20) - 1], 1); /* the function ran either way */
    assert_true(peak_memory() >= 64 << 20);
    free(p);
}

#define DEV(test) cmocka_unit_test_setup_teardown(test, dev_setup, dev_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_long_range),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_own_share),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_two_callers),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_one_processor),
        cmocka_unit_test(test_idle),
        DEV(test_memory),
        DEV(test_run),
        DEV(test_pace),
        DEV(test_run_cancelled),
        DEV(test_data_error),
        DEV(test_threads_run),
        DEV(test_describe),
        cmocka_unit_test(test_counters),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
