/* The rt folder: building kernels and their cache, the thread pool, the CPU device.
 *
 * Each test of the builder has a cache folder of its own below a temporary folder. What the folder holds is looked at from outside, by its documented
 * names. Child processes check with `return code`, since cmocka's assertions only serve the process that runs the test. */
#include "test.h"
#include "rt/rt.h"
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char prelude[] = "typedef long i64;\n#define KERNEL(n) void n(void *const *buf, const i64 *arg, void *scratch, i64 lo, i64 hi, i64 *err)\n";

typedef struct Fix { char root[64], cache[128]; Options opt; RtError e; } Fix;

static int fix_setup(void **state)
{
    Fix *f = calloc(1, sizeof *f);
    snprintf(f->root, sizeof f->root, "/tmp/t_rt-XXXXXX");
    if (!f || !mkdtemp(f->root))
        return -1;
    snprintf(f->cache, sizeof f->cache, "%s/cache", f->root);
    options_default(&f->opt);
    f->opt.cache = f->cache;
    f->opt.jobs = 2;
    *state = f;
    return 0;
}

static int fix_teardown(void **state)
{
    Fix *f = *state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", f->root);
    int bad = system(cmd);
    free(f);
    return bad;
}

static Builder *fix_open(Fix *f)
{
    Builder *b = NULL;
    Status st = builder_open(&b, &f->opt, &f->e);
    if (st)
        print_error("%s\n", f->e.text);
    assert_int_equal(st, E_OK);
    return b;
}

/* Names in a folder with this beginning and this end; of the last one, the path. */
static int folder_count(const char *dir, const char *begin, const char *end, char path[512])
{
    int n = 0;
    DIR *d = opendir(dir);
    if (!d)
        return -1;
    for (struct dirent *f; (f = readdir(d)); ) {
        size_t len = strlen(f->d_name), tail = strlen(end);
        if (f->d_name[0] == '.' || strncmp(f->d_name, begin, strlen(begin)) || len < tail || strcmp(f->d_name + len - tail, end))
            continue;
        n++;
        if (path)
            snprintf(path, 512, "%s/%s", dir, f->d_name);
    }
    closedir(d);
    return n;
}

/* Kernel i adds i + 1 to each element of buf[0]. */
enum { KERNELS = 5 };
typedef struct Texts { KernelText k[KERNELS]; char name[KERNELS][32], text[KERNELS][256]; } Texts;

static const KernelText *texts_add(Texts *t, const char *stem)
{
    for (int i = 0; i < KERNELS; i++) {
        snprintf(t->name[i], sizeof t->name[i], "%s%d", stem, i);
        snprintf(t->text[i], sizeof t->text[i], "KERNEL(%s%d)\n{\n    float *x = buf[0];\n    for (i64 i = lo; i < hi; i++)\n        x[i] += %d;\n}\n", stem, i, i + 1);
        t->k[i] = (KernelText){.name = t->name[i], .text = t->text[i], .cost = 1};
    }
    return t->k;
}

static bool kernels_work(const KernelFn *fn, int n)
{
    for (int k = 0; k < n; k++) {
        float x[7] = {0};
        void *buf[1] = {x};
        int64_t err[4] = {0};
        fn[k](buf, NULL, NULL, 1, 6, err);
        for (int i = 0; i < 7; i++)
            if (x[i] != (i >= 1 && i < 6 ? (float)(k + 1) : 0))
                return false;
    }
    return true;
}

static void build_all(Fix *f, Builder *b, const KernelText *k, int memory, int disk, int compiled)
{
    KernelFn fn[KERNELS];
    BuildStats s;
    Status st = builder_build(b, prelude, KERNELS, k, fn, &s, NULL, &f->e);
    if (st)
        print_error("%s\n", f->e.text);
    assert_int_equal(st, E_OK);
    assert_true(kernels_work(fn, KERNELS));
    assert_int_equal(s.asked, KERNELS);
    assert_int_equal(s.unique, KERNELS);
    assert_int_equal(s.from_memory, memory);
    assert_int_equal(s.from_disk, disk);
    assert_int_equal(s.compiled, compiled);
    assert_int_equal(s.processes, compiled ? 2 : 0);
}

static void test_build(void **state)
{
    Fix *f = *state;
    Texts t;
    const KernelText *k = texts_add(&t, "k");
    Builder *b = fix_open(f);
    build_all(f, b, k, 0, 0, KERNELS);
    assert_int_equal(folder_count(f->cache, "", ".so", NULL), 2);
    assert_int_equal(folder_count(f->cache, "k-", "", NULL), KERNELS);
    assert_int_equal(folder_count(f->cache, "cc-", "", NULL), 1);
    assert_int_equal(folder_count(f->cache, "tmp-", "", NULL), 0);
    build_all(f, b, k, KERNELS, 0, 0);
    assert_non_null(strstr(builder_command(b), "-O2"));
    assert_non_null(builder_compiler(b, &f->e));
    builder_close(b);
    b = fix_open(f);
    build_all(f, b, k, 0, KERNELS, 0);
    build_all(f, b, k, KERNELS, 0, 0);
    builder_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_build, fix_setup, fix_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
