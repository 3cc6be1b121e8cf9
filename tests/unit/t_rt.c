/* The rt folder: compiler processes, building kernels and their cache. The pool and the device: t_pool.c.
 *
 * Each test of the builder has a cache folder of its own below a temporary folder. What the folder holds is
 * looked at from outside, by its documented names. Child processes check with `return code`, since cmocka's
 * assertions only serve the process that runs the test. */
#include "test.h"
#include "rt/rt.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char prelude[] = "typedef long i64;\n#define KERNEL(n) void n(void *const *buf, const i64 *arg, "
                              "void *scratch, i64 lo, i64 hi, i64 *err)\n";

typedef struct Fix {
    char root[64], cache[128];
    Options opt;
    RtError e;
} Fix;

static int fix_setup(void **state)
{
    Fix *f = calloc(1, sizeof *f);
    snprintf(f->root, sizeof f->root, "/tmp/t_rt-XXXXXX");
    if (!f || !mkdtemp(f->root))
        return -1;
    snprintf(f->cache, sizeof f->cache, "%s/cache", f->root);
    options_default(&f->opt);
    f->opt.cache = f->cache;
    setenv("TMPDIR", f->root, 1); /* private work folders are seen there */
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
    Status st = builder_open(&b, &f->opt, NULL, &f->e);
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
    for (struct dirent *f; (f = readdir(d));) {
        size_t len = strlen(f->d_name), tail = strlen(end);
        if (f->d_name[0] == '.' || strncmp(f->d_name, begin, strlen(begin)) || len < tail ||
            strcmp(f->d_name + len - tail, end))
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
typedef struct Texts {
    KernelText k[KERNELS];
    char name[KERNELS][32], text[KERNELS][256];
} Texts;

static const KernelText *texts_add(Texts *t, const char *stem)
{
    for (int i = 0; i < KERNELS; i++) {
        snprintf(t->name[i], sizeof t->name[i], "%s%d", stem, i);
        snprintf(t->text[i], sizeof t->text[i],
                 "KERNEL(%s%d)\n{\n    float *x = buf[0];\n    for (i64 i = lo; i < hi; i++)\n        x[i] "
                 "+= %d;\n}\n",
                 stem, i, i + 1);
        t->k[i] = (KernelText){ .name = t->name[i], .text = t->text[i], .cost = 1 };
    }
    return t->k;
}

static bool kernels_work(const KernelFn *fn, int n)
{
    for (int k = 0; k < n; k++) {
        float x[7] = { 0 };
        void *buf[1] = { x };
        int64_t err[4] = { 0 };
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
    int kinds = k[0].quick != k[1].quick && strstr(builder_command(b), "-fexpensive") ? 2 : 1;
    assert_int_equal(s.processes, compiled ? 1 + kinds : 0);
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

static Status build_one(Fix *f, Builder *b, const char *name, const char *text, KernelFn *fn, BuildStats *s)
{
    KernelText k = { .name = name, .text = text };
    return builder_build(b, prelude, 1, &k, fn, s, NULL, &f->e);
}

/* Nothing but the cache and what the test itself made is left in the root folder. */
static void check_no_work(Fix *f)
{
    assert_int_equal(folder_count(f->root, "sinter-", "", NULL), 0);
    assert_true(folder_count(f->cache, "tmp-", "", NULL) <= 0);
}

static void test_same_texts(void **state)
{
    Fix *f = *state;
    Texts t;
    KernelFn fn[3];
    BuildStats s;
    const KernelText *k = texts_add(&t, "k");
    Builder *b = fix_open(f);
    KernelText twice[3] = { k[0], k[1], k[0] };
    assert_int_equal(builder_build(b, prelude, 3, twice, fn, &s, NULL, &f->e), E_OK);
    assert_int_equal(s.asked, 3);
    assert_int_equal(s.unique, 2);
    assert_true(fn[0] == fn[2] && fn[0] != fn[1]);
    assert_true(kernels_work(fn, 2));
    twice[1].name = twice[0].name; /* another text, the same name */
    assert_int_equal(builder_build(b, prelude, 2, twice, fn, &s, NULL, &f->e), E_INVALID);
    assert_non_null(strstr(f->e.text, "'k0'"));
    /* in calls of their own, equal names do not disturb one another, and a prelude makes a difference */
    assert_int_equal(build_one(f, b, "same", "KERNEL(same) { ((float *)buf[0])[0] = 1; }", &fn[0], &s), E_OK);
    assert_int_equal(build_one(f, b, "same", "KERNEL(same) { ((float *)buf[0])[0] = 2; }", &fn[1], &s), E_OK);
    char other[512];
    snprintf(other, sizeof other, "%s#define float double\n", prelude);
    KernelText one = { .name = "same", .text = "KERNEL(same) { ((float *)buf[0])[0] = 1; }" };
    assert_int_equal(builder_build(b, other, 1, &one, &fn[2], &s, NULL, &f->e), E_OK);
    assert_int_equal(s.compiled, 1);
    float x = 0;
    double y = 0;
    void *px = &x, *py = &y;
    fn[0](&px, NULL, NULL, 0, 1, NULL);
    assert_true(x == 1);
    fn[1](&px, NULL, NULL, 0, 1, NULL);
    assert_true(x == 2);
    fn[2](&py, NULL, NULL, 0, 1, NULL);
    assert_true(y == 1);
    assert_int_equal(builder_build(b, prelude, 0, NULL, NULL, &s, NULL, &f->e), E_OK);
    builder_close(b);
    check_no_work(f);
}

/* Many kernels: more units than jobs, each of a bounded size. */
static void test_many_kernels(void **state)
{
    Fix *f = *state;
    enum { MANY = 150 };
    static char name[MANY][16], text[MANY][80];
    KernelText k[MANY] = { { 0 } };
    KernelFn fn[MANY];
    BuildStats s;
    f->opt.jobs = 2;
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], sizeof name[i], "k%d", i);
        snprintf(text[i], sizeof text[i], "KERNEL(k%d) { *(int *)buf[0] = %d; }", i, i);
        k[i] = (KernelText){ .name = name[i], .text = text[i], .cost = i % 7 };
    }
    for (int again = 0; again < 2; again++) {
        Builder *b = fix_open(f);
        assert_int_equal(builder_build(b, prelude, MANY, k, fn, &s, NULL, &f->e), E_OK);
        assert_int_equal(again ? s.from_disk : s.compiled, MANY);
        assert_int_equal(s.processes, again ? 0 : 3);
        for (int i = 0; i < MANY; i++) {
            int x = -1;
            void *p = &x;
            fn[i](&p, NULL, NULL, 0, 1, NULL);
            assert_int_equal(x, i);
        }
        builder_close(b);
    }
}

static void test_library_calls(void **state)
{
    Fix *f = *state;
    KernelFn fn;
    BuildStats s;
    Builder *b = fix_open(f);
    Status st = build_one(f, b, "m",
                          "float tanf(float); void *memcpy(void *, const void *, unsigned long);\n"
                          "KERNEL(m) { float *x = buf[0]; char *y = buf[1]; for (i64 i = lo; i < hi; i++) "
                          "x[i] = tanf(x[i]); memcpy(y, x, arg[0]);\n"
                          "__int128 q = arg[1]; y[16] = (char)(q * 5 / (q + arg[2])); }",
                          &fn, &s);
    if (st)
        print_error("%s\n", f->e.text);
    assert_int_equal(st, E_OK);
    float x[4] = { 0, 1, 0, 0 };
    char y[17];
    void *buf[2] = { x, y };
    int64_t arg[3] = { 16, 7, 0 };
    fn(buf, arg, NULL, 0, 2, NULL);
    assert_true(x[1] > 1.557f && x[1] < 1.558f && !memcmp(x, y, 16) && y[16] == 5);
    builder_close(b);
}

static void test_damaged_file(void **state)
{
    Fix *f = *state;
    Texts t;
    const KernelText *k = texts_add(&t, "k");
    f->opt.jobs = 2;
    for (int how = 0; how < 5; how++) {
        char path[512];
        struct stat st;
        Builder *b = fix_open(f);
        build_all(f, b, k, 0, how ? KERNELS : 0, how ? 0 : KERNELS);
        builder_close(b);
        DIR *d = opendir(f->cache);
        for (struct dirent *e; (e = readdir(d));) {
            if (!strstr(e->d_name, ".so"))
                continue;
            snprintf(path, sizeof path, "%s/%s", f->cache, e->d_name);
            assert_int_equal(stat(path, &st), 0);
            FILE *h = fopen(path, "r+");
            if (how == 0)
                assert_int_equal(truncate(path, 0), 0);
            else if (how == 1)
                assert_int_equal(truncate(path, st.st_size / 2), 0);
            else if (how == 2) /* the right size, but the blocks never reached the disk */
                assert_int_equal(truncate(path, 0) | truncate(path, st.st_size), 0);
            else if (how == 3) /* one byte in the middle */
                assert_true(fseek(h, st.st_size / 2, SEEK_SET) == 0 && fputc(0x5A, h) == 0x5A);
            else
                assert_int_equal(unlink(path), 0);
            fclose(h);
        }
        closedir(d);
        b = fix_open(f);
        build_all(f, b, k, 0, 0, KERNELS);
        builder_close(b);
    }
    check_no_work(f);
}

static void test_no_folder(void **state)
{
    Fix *f = *state;
    Texts t;
    char file[128], below[160];
    const KernelText *k = texts_add(&t, "k");
    snprintf(file, sizeof file, "%s/plain", f->root);
    snprintf(below, sizeof below, "%s/folder", file);
    fclose(fopen(file, "w"));
    const char *const caches[] = { file, below, "", "/proc/sinter" };
    for (size_t i = 0; i < COUNT_OF(caches); i++) {
        f->opt.cache = caches[i];
        for (int again = 0; again < 2; again++) {
            Builder *b = fix_open(f);
            build_all(f, b, k, 0, 0, KERNELS);
            build_all(f, b, k, KERNELS, 0, 0);
            builder_close(b);
            check_no_work(f);
        }
    }
    /* a relative path stays the folder it was */
    char there[256], back[256];
    assert_non_null(getcwd(back, sizeof back));
    assert_int_equal(chdir(f->root), 0);
    f->opt.cache = "relative";
    Builder *r = fix_open(f);
    assert_int_equal(chdir(back), 0);
    build_all(f, r, k, 0, 0, KERNELS);
    builder_close(r);
    snprintf(there, sizeof there, "%s/relative", f->root);
    assert_int_equal(folder_count(there, "", ".so", NULL), 2);
    /* a folder that anybody may write to is not a place to take code from */
    f->opt.cache = f->cache;
    assert_int_equal(mkdir(f->cache, 0777) | chmod(f->cache, 0777), 0);
    Builder *b = fix_open(f);
    build_all(f, b, k, 0, 0, KERNELS);
    builder_close(b);
    assert_int_equal(folder_count(f->cache, "", ".so", NULL), 0);
}

static void test_no_compiler(void **state)
{
    Fix *f = *state;
    KernelFn fn;
    BuildStats s;
    const char *const bad[] = { "/nonexistent", "nonexistent -m32", "/", f->root };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        f->opt.cc = bad[i];
        Builder *b = fix_open(f);
        assert_null(builder_compiler(b, &f->e));
        assert_int_equal(f->e.code, E_COMPILE);
        assert_non_null(strstr(f->e.text, bad[i]));
        assert_non_null(strstr(f->e.text, "install"));
        assert_int_equal(build_one(f, b, "k", "KERNEL(k) {}", &fn, &s), E_COMPILE);
        builder_close(b);
    }
    f->opt.cc = "/bin/false";
    Builder *b = fix_open(f);
    assert_int_equal(build_one(f, b, "k", "KERNEL(k) {}", &fn, &s), E_COMPILE);
    assert_non_null(strstr(f->e.text, "/bin/false --version failed with status 1"));
    builder_close(b);
}

static void test_bad_text(void **state)
{
    Fix *f = *state;
    Texts t;
    KernelFn fn[KERNELS];
    BuildStats s;
    texts_add(&t, "k");
    Builder *b = fix_open(f);
    snprintf(t.text[3], sizeof t.text[3], "KERNEL(k3)\n{\n    nonsense(;\n}\n");
    assert_int_equal(builder_build(b, prelude, KERNELS, t.k, fn, &s, NULL, &f->e), E_COMPILE);
    if (!strstr(f->e.text, "k3:3:") || !strstr(f->e.text, "error: expected expression"))
        print_error("%s\n", f->e.text);
    assert_non_null(strstr(f->e.text, "k3:3:")); /* the kernel's name and the line in its text */
    assert_non_null(strstr(f->e.text, "error: expected expression"));
    assert_null(strchr(f->e.text, '\n'));
    check_no_work(f);
    snprintf(t.text[3], sizeof t.text[3], "KERNEL(other) {}\n");
    assert_int_equal(builder_build(b, prelude, KERNELS, t.k, fn, &s, NULL, &f->e), E_COMPILE);
    assert_non_null(strstr(f->e.text, "'k3'"));
    check_no_work(f);
    snprintf(t.text[3], sizeof t.text[3],
             "void missing_function(void); KERNEL(k3) { missing_function(); }\n");
    assert_int_equal(builder_build(b, prelude, KERNELS, t.k, fn, &s, NULL, &f->e), E_COMPILE);
    assert_non_null(strstr(f->e.text, "missing_function"));
    check_no_work(f);
    texts_add(&t, "k"); /* the builder is still of use */
    assert_int_equal(builder_build(b, prelude, KERNELS, t.k, fn, &s, NULL, &f->e), E_OK);
    assert_true(kernels_work(fn, KERNELS));
    builder_close(b);
}

/* A compiler that is a shell script: what it does with a unit is `body`; $so and $src are its files. */
static void script_compiler(Fix *f, const char *body, char path[128])
{
    snprintf(path, 128, "%s/cc.sh", f->root);
    FILE *s = fopen(path, "w");
    fprintf(s,
            "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'script 1.0'; exit; }\n"
            "for a; do case $a in *.so) so=$a ;; *.c) src=$a ;; esac; done\n%s\n",
            body);
    fclose(s);
    assert_int_equal(chmod(path, 0755), 0);
    f->opt.cc = path;
}

/* The process whose number the script wrote there has ended. A zombie that nobody collects counts as such. */
static bool script_ended(Fix *f, const char *name)
{
    char path[128], state[64] = "";
    long pid = 0;
    snprintf(path, sizeof path, "%s/%s", f->root, name);
    FILE *h = fopen(path, "r");
    bool ok = h && fscanf(h, "%ld", &pid) == 1;
    if (h)
        fclose(h);
    if (!ok)
        return false;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    h = fopen(path, "r");
    while (h && fgets(state, sizeof state, h))
        if (!strncmp(state, "State:", 6))
            break;
    if (h)
        fclose(h);
    return !h || strchr(state, 'Z');
}

static void *set_soon(void *arg)
{
    nanosleep(&(struct timespec){ 0, 300000000 }, NULL);
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void test_cancel(void **state)
{
    Fix *f = *state;
    Texts t;
    KernelFn fn[KERNELS];
    BuildStats s;
    char cc[128], body[256];
    volatile int cancel = 0;
    pthread_t thread;
    snprintf(body, sizeof body,
             "echo $$ >%s/first; sleep 60 & echo $! >%s/second; echo part >$so; echo part >${TMPDIR}/x; wait",
             f->root, f->root);
    script_compiler(f, body, cc);
    Builder *b = fix_open(f);
    double start = time_now();
    pthread_create(&thread, NULL, set_soon, (void *)&cancel);
    assert_int_equal(builder_build(b, prelude, KERNELS, texts_add(&t, "k"), fn, &s, &cancel, &f->e),
                     E_CANCELLED);
    pthread_join(thread, NULL);
    assert_true(time_now() - start < 10);
    assert_true(script_ended(f, "first") && script_ended(f, "second"));
    assert_int_equal(folder_count(f->cache, "", ".so", NULL), 0);
    check_no_work(f);
    assert_int_equal(builder_build(b, prelude, KERNELS, texts_add(&t, "k"), fn, &s, &cancel, &f->e),
                     E_CANCELLED);
    builder_close(b);
}

static void test_sibling(void **state)
{
    Fix *f = *state;
    Texts t;
    KernelFn fn[KERNELS];
    BuildStats s;
    char cc[128], body[256];
    snprintf(body, sizeof body,
             "grep -q 'KERNEL(k2)' $src && { sleep 0.3; echo 'note: x'; echo 'k2: error: no'; exit 1; }; "
             "echo $$ >%s/first; exec sleep 60",
             f->root);
    script_compiler(f, body, cc);
    Builder *b = fix_open(f);
    double start = time_now();
    assert_int_equal(builder_build(b, prelude, KERNELS, texts_add(&t, "k"), fn, &s, NULL, &f->e), E_COMPILE);
    assert_true(time_now() - start < 10);
    assert_true(!strncmp(f->e.text, "k2: error: no", 13));
    assert_true(script_ended(f, "first"));
    check_no_work(f);
    builder_close(b);
    script_compiler(f, "echo not an object >$so", cc);
    b = fix_open(f);
    assert_int_equal(builder_build(b, prelude, KERNELS, t.k, fn, &s, NULL, &f->e), E_COMPILE);
    assert_non_null(strstr(f->e.text, "cannot be loaded"));
    check_no_work(f);
    builder_close(b);
}

static void test_processes(void **state)
{
    (void)state;
    RtError e;
    Proc p[3];
    const char *const loud[] = { "/bin/sh", "-c", "yes error | head -c 1000000; exit 3", NULL };
    const char *const hang[] = { "/bin/sh", "-c", "sleep 60 & exec >/dev/null 2>&1; wait", NULL };
    const char *const fine[] = { "/bin/sh", "-c", "echo $TMPDIR $LC_ALL; cat", NULL };
    p[0].argv = loud;
    assert_int_equal(proc_run(p, 1, 1, 60, NULL, NULL, &e), E_COMPILE);
    assert_int_equal(p[0].status, 3);
    assert_int_equal(strlen(p[0].out), sizeof p[0].out - 1);
    const char *const server[] = { "/bin/sh", "-c", "sleep 20 & echo done", NULL };
    double begin = time_now();
    p[0].argv = server; /* what it leaves behind is not waited for */
    assert_int_equal(proc_run(p, 1, 1, 60, NULL, NULL, &e), E_OK);
    assert_string_equal(p[0].out, "done\n");
    assert_true(time_now() - begin < 10);
    p[0].argv = p[1].argv = p[2].argv = fine;
    assert_int_equal(proc_run(p, 3, 2, 60, "/tmp/there", NULL, &e), E_OK);
    assert_string_equal(p[0].out, "/tmp/there C\n");
    assert_string_equal(p[2].out, "/tmp/there C\n");
    p[1].argv = hang;
    double start = time_now();
    assert_int_equal(proc_run(p, 2, 2, 0.3, NULL, NULL, &e), E_TIMEOUT);
    assert_true(time_now() - start < 10);
    p[0].argv = (const char *const[]){ "/nonexistent", NULL };
    assert_int_equal(proc_run(p, 1, 1, 60, NULL, NULL, &e), E_COMPILE);
    assert_int_equal(p[0].status, -1);
    assert_non_null(strstr(e.text, "/nonexistent"));
}

/* Eight processes start with an empty folder at the same moment. */
static void test_many_processes(void **state)
{
    Fix *f = *state;
    Texts t;
    pid_t child[8];
    int go[2];
    const KernelText *k = texts_add(&t, "k");
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < 8; i++) {
        child[i] = fork();
        if (child[i])
            continue;
        char c;
        KernelFn fn[KERNELS];
        Builder *b;
        close(go[1]);
        ssize_t got = read(go[0], &c, 1);
        bool ok = got == 0 && !builder_open(&b, &f->opt, NULL, &f->e) &&
                  !builder_build(b, prelude, KERNELS, k, fn, NULL, NULL, &f->e) && kernels_work(fn, KERNELS);
        _exit(!ok);
    }
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < 8; i++) {
        int st = -1;
        assert_int_equal(waitpid(child[i], &st, 0), child[i]);
        assert_int_equal(st, 0);
    }
    check_no_work(f);
    Builder *b = fix_open(f);
    build_all(f, b, k, 0, KERNELS, 0);
    builder_close(b);
}

typedef struct BuildThread {
    Fix *f;
    Builder *b;
    const KernelText *k;
    bool ok;
} BuildThread;

static void *build_thread(void *arg)
{
    BuildThread *t = arg;
    KernelFn fn[KERNELS];
    RtError e;
    t->ok = true;
    for (int i = 0; i < 20; i++)
        t->ok &=
            !builder_build(t->b, prelude, KERNELS, t->k, fn, NULL, NULL, &e) && kernels_work(fn, KERNELS);
    return NULL;
}

static void test_many_threads(void **state)
{
    Fix *f = *state;
    Texts t;
    pthread_t thread[4];
    BuildThread arg[4];
    Builder *b = fix_open(f);
    const KernelText *k = texts_add(&t, "k");
    for (int i = 0; i < 4; i++) {
        arg[i] = (BuildThread){ f, b, k, false };
        assert_int_equal(pthread_create(&thread[i], NULL, build_thread, &arg[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_true(arg[i].ok);
    }
    builder_close(b);
    check_no_work(f);
}

static int64_t folder_bytes(const char *dir)
{
    char path[512];
    struct stat st;
    int64_t total = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strstr(e->d_name, ".so") && !stat(path, &st))
            total += st.st_size;
    }
    closedir(d);
    return total;
}

static BuildStats build_big(Fix *f, Builder *b, int i)
{
    char name[32], text[256];
    KernelFn fn;
    BuildStats s;
    snprintf(name, sizeof name, "big%d", i);
    snprintf(text, sizeof text,
             "const char table%d[300000] = {1, [299999] = 2};\nKERNEL(big%d) { ((char *)buf[0])[0] = "
             "table%d[arg[0]]; }",
             i, i, i);
    assert_int_equal(build_one(f, b, name, text, &fn, &s), E_OK);
    return s;
}

static void test_size_limit(void **state)
{
    Fix *f = *state;
    char path[512];
    struct stat st;
    f->opt.cache_mb = 1;
    Builder *b = fix_open(f);
    build_big(f, b, 0);
    assert_int_equal(folder_count(f->cache, "", ".so", path), 1);
    char first[512];
    snprintf(first, sizeof first, "%s", path);
    build_big(f, b, 1);
    /* both were used long ago; using the first makes it young again */
    const struct timespec old[2] = { { time(NULL) - 90000, 0 }, { time(NULL) - 90000, 0 } };
    DIR *d = opendir(f->cache);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".so"))
            assert_int_equal(utimensat(dirfd(d), e->d_name, old, 0), 0);
    closedir(d);
    builder_close(b);
    b = fix_open(f);
    assert_int_equal(build_big(f, b, 0).from_disk, 1);
    assert_int_equal(stat(first, &st), 0);
    assert_true(st.st_mtime > time(NULL) - 1000);
    for (int i = 2; i < 4; i++)
        build_big(f, b, i);
    assert_true(folder_bytes(f->cache) <= 1 << 20);
    assert_int_equal(folder_count(f->cache, "", ".so", NULL), 3);
    assert_int_equal(folder_count(f->cache, "k-", "", NULL), 3);
    builder_close(b);
    b = fix_open(f);
    assert_int_equal(build_big(f, b, 0).from_disk, 1);
    assert_int_equal(build_big(f, b, 2).from_disk, 1);
    assert_int_equal(build_big(f, b, 3).from_disk, 1);
    assert_int_equal(build_big(f, b, 1).compiled, 1);
    builder_close(b);
}

static void test_stale_work(void **state)
{
    Fix *f = *state;
    char dead[512], young[512], mine[512], file[600];
    Builder *b = fix_open(f);
    pid_t gone = fork(); /* a process number that was in use, and is not */
    if (!gone)
        _exit(0);
    waitpid(gone, NULL, 0);
    snprintf(dead, sizeof dead, "%s/tmp-%ld-0", f->cache, (long)gone);
    snprintf(young, sizeof young, "%s/tmp-%ld-1", f->cache, (long)gone);
    snprintf(mine, sizeof mine, "%s/tmp-%ld-0", f->cache, (long)getpid());
    snprintf(file, sizeof file, "%s/x.c", dead);
    assert_int_equal(mkdir(dead, 0700) | mkdir(young, 0700) | mkdir(mine, 0700), 0);
    fclose(fopen(file, "w"));
    const struct timespec old[2] = { { time(NULL) - 9000, 0 }, { time(NULL) - 9000, 0 } };
    assert_int_equal(utimensat(AT_FDCWD, dead, old, 0) | utimensat(AT_FDCWD, mine, old, 0), 0);
    build_big(f, b, 0); /* its own work goes beside the folder that is in its way */
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
    assert_int_equal(access(mine, F_OK), 0);
    assert_int_equal(folder_count(f->cache, "tmp-", "", NULL), 2);
    builder_close(b);
}

/* A warm start asks the compiler nothing: the script would fail if asked a second time. */
static void test_identity(void **state)
{
    Fix *f = *state;
    KernelFn fn;
    BuildStats s;
    char cc[128], body[128];
    snprintf(body, sizeof body, "exec cc \"$@\"");
    script_compiler(f, body, cc);
    Builder *b = fix_open(f);
    assert_string_equal(builder_compiler(b, &f->e), "script 1.0");
    assert_int_equal(build_one(f, b, "k", "KERNEL(k) {}", &fn, &s), E_OK);
    builder_close(b);
    struct stat st;
    assert_int_equal(stat(cc, &st), 0);
    FILE *h = fopen(cc, "r+"); /* same size and time, other content: only the first line is damaged */
    fputs("#!/bin/no", h);
    fclose(h);
    assert_int_equal(utimensat(AT_FDCWD, cc, (struct timespec[2]){ st.st_atim, st.st_mtim }, 0), 0);
    b = fix_open(f);
    assert_int_equal(build_one(f, b, "k", "KERNEL(k) {}", &fn, &s), E_OK);
    assert_int_equal(s.from_disk, 1);
    builder_close(b);
    assert_int_equal(utimensat(AT_FDCWD, cc, (struct timespec[2]){ { 1, 0 }, { 1, 0 } }, 0), 0);
    b = fix_open(f);
    assert_int_equal(build_one(f, b, "k", "KERNEL(k) {}", &fn, &s), E_COMPILE);
    builder_close(b);
}

static void test_isa(void **state)
{
    Fix *f = *state;
    KernelFn fn;
    BuildStats s;
    Builder *b;
    const char *const sets[] = { "native", "plain", "sse2", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx", "neon" };
    int built = 0;
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        f->opt.isa = sets[i];
        Status st = builder_open(&b, &f->opt, NULL, &f->e);
        if (st) {
            assert_int_equal(st, E_DEVICE);
            assert_non_null(strstr(f->e.text, sets[i]));
            continue;
        }
        if (i)
            assert_string_equal(builder_isa(b), sets[i]);
        Status bst = build_one(f, b, "k",
                               "KERNEL(k)\n{\n#ifdef __AVX512F__\n    arg = arg;\n    *(int *)buf[0] = "
                               "512;\n#elif defined __AVX2__\n"
                               "    *(int *)buf[0] = 256;\n#else\n    *(int *)buf[0] = 128;\n#endif\n}",
                               &fn, &s);
        if (bst)
            print_error("%s\n", f->e.text);
        assert_int_equal(bst, E_OK);
        int width = 0;
        void *p = &width;
        fn(&p, NULL, NULL, 0, 1, NULL);
        int lanes = isa_find(builder_isa(b))->lanes;
        assert_int_equal(width, lanes == 16 ? 512 : lanes == 8 ? 256 : 128);
        built++;
        builder_close(b);
    }
    assert_true(built >= 2);
    f->opt.isa = "mmx";
    assert_int_equal(builder_open(&b, &f->opt, NULL, &f->e), E_INVALID);
}

/* Whatever compiler is there: the same texts. */
static void test_clang(void **state)
{
    Fix *f = *state;
    Texts t;
    f->opt.cc = "clang";
    Builder *b = fix_open(f);
    if (!builder_compiler(b, &f->e)) {
        builder_close(b);
        print_message("skipped: clang is not there\n");
        skip();
    }
    build_all(f, b, texts_add(&t, "k"), 0, 0, KERNELS);
    builder_close(b);
}

static void test_quick(void **state)
{
    Texts t;
    texts_add(&t, "k");
    for (int i = 1; i < KERNELS; i++)
        t.k[i].quick = true;
    Builder *b = fix_open(*state);
    build_all(*state, b, t.k, 0, 0, KERNELS);
    builder_close(b);
}

#define FIXED(test) cmocka_unit_test_setup_teardown(test, fix_setup, fix_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXED(test_build),         FIXED(test_same_texts),   FIXED(test_many_kernels),
        FIXED(test_library_calls), FIXED(test_damaged_file), FIXED(test_no_folder),
        FIXED(test_no_compiler),   FIXED(test_bad_text),     FIXED(test_cancel),
        FIXED(test_sibling),       FIXED(test_processes),    FIXED(test_many_processes),
        FIXED(test_many_threads),  FIXED(test_size_limit),   FIXED(test_stale_work),
        FIXED(test_identity),      FIXED(test_isa),          FIXED(test_clang), FIXED(test_quick),
    };
    return cmocka_run_group_tests_name("rt", tests, NULL, NULL);
}
