/* The machine: files, time, processors, memory. The system's reason for a failure goes to `why`, and the caller adds
 * what it wanted the file for.
 *
 * Limits of containers: the control group of this process is found in /proc/self/cgroup, and the limit is the
 * smallest one on the way from there to the root, in version 2 (one tree, "cpu.max") or version 1 (a tree for each
 * controller). Inside a container the path may name a folder that is not visible; the root then has the limit. */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static Status system_says(char *why, size_t nwhy, int error)
{
    snprintf(why, nwhy, "%s", strerror(error));
    return error == ENOMEM ? E_NOMEM : E_IO;
}

Status file_map(const char *path, File *f, char *why, size_t nwhy)
{
    *f = (File){ .data = (const uint8_t *)"" };
    Status st = E_OK;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return system_says(why, nwhy, errno);
    if (fstat(fd, &info)) {
        st = system_says(why, nwhy, errno);
    } else if (!S_ISREG(info.st_mode)) {
        snprintf(why, nwhy, "%s, wanted a file", S_ISDIR(info.st_mode) ? "is a folder" : "is not an ordinary file");
        st = E_IO;
    } else if (info.st_size > 0) {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            st = system_says(why, nwhy, errno);
        else
            *f = (File){ .data = map, .size = (size_t)info.st_size, .map = map };
    }
    close(fd);
    return st;
}

/* AMD's family 19h is Zen 3, which has no such vectors, and Zen 4. */
bool cpu_splits_vectors(void)
{
#ifdef __x86_64__
    enum { ZEN_3_AND_4 = 0x19, BASE = 0xf };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx) return false;
    return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & BASE) == BASE && (a >> 20 & 0xff) + BASE == ZEN_3_AND_4;
#else
    return false;
#endif
}

void memory_huge(void *p, size_t n)
{
    const uintptr_t page = 4096, from = ((uintptr_t)p + page - 1) & ~(page - 1), to = ((uintptr_t)p + n) & ~(page - 1);
    if (to > from && n >= (size_t)4 << 20)
        madvise((void *)from, to - from, MADV_HUGEPAGE);
}

void file_unmap(File *f)
{
    if (f->map)
        munmap(f->map, f->size);
    *f = (File){ 0 };
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t did = write(fd, p, n < (1 << 30) ? n : 1 << 30);
        if (did < 0 && errno == EINTR)
            continue;
        if (did < 0)
            return -1;
        p += did;
        n -= (size_t)did;
    }
    return 0;
}

/* A device or pipe (/dev/null, /dev/stdout) is written to, never replaced by a file. */
static Status write_special(const char *path, const void *data, size_t n, char *why, size_t nwhy)
{
    Status st = E_OK;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write_all(fd, data, n))
        st = system_says(why, nwhy, errno);
    if (fd >= 0)
        close(fd);
    return st;
}

Status file_write(const char *path, const void *data, size_t n, char *why, size_t nwhy)
{
    char temporary[4096];
    struct stat info;
    Status st = E_OK;
    int fd = -1;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return write_special(path, data, n, why, nwhy);
    for (int i = 0; fd < 0; i++) {      /* O_EXCL: two threads never share a temporary file */
        int len = snprintf(temporary, sizeof temporary, "%s.%ld.%d.tmp", path, (long)getpid(), i);
        if (len < 0 || (size_t)len >= sizeof temporary)
            return system_says(why, nwhy, ENAMETOOLONG);
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && (errno != EEXIST || i == 1000))
            return system_says(why, nwhy, errno);
    }
    if (write_all(fd, data, n))
        st = system_says(why, nwhy, errno);
    if (close(fd) && st == E_OK)
        st = system_says(why, nwhy, errno);
    if (st == E_OK && rename(temporary, path))
        st = system_says(why, nwhy, errno);
    if (st != E_OK)
        unlink(temporary);
    return st;
}

char *path_join(Arena *a, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    if (n == 0 || name[0] == '/')
        return arena_str(a, name);
    return arena_fmt(a, dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

char *path_dir(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return arena_str(a, ".");
    while (slash > path && slash[-1] == '/')
        slash--;
    size_t n = slash > path ? (size_t)(slash - path) : 1;
    char *dir = arena_alloc(a, n + 1);
    memcpy(dir, path, n);
    return dir;
}

char *path_real(Arena *a, const char *path)
{
    char real[PATH_MAX];
    return realpath(path, real) ? arena_str(a, real) : NULL;
}

double time_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- limits of control groups --------------------------------------------------------------------------------------- */

/* The first line of a small file, without its end. False when there is none. */
static bool read_line(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, size, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

/* The limit that one folder of a tree states, or -1. */
typedef double (*GroupLimit)(const char *folder);

static double quota_v2(const char *folder)
{
    char path[1200], line[128];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_line(path, line, sizeof line) && sscanf(line, "%lf %lf", &quota, &period) == 2 && period > 0)
        return quota / period;
    return -1;                          /* "max 100000" */
}

static double quota_v1(const char *folder)
{
    char path[1200], line[128];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    double quota = read_line(path, line, sizeof line) ? atof(line) : -1;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    double period = read_line(path, line, sizeof line) ? atof(line) : -1;
    return quota > 0 && period > 0 ? quota / period : -1;
}

static double memory_limit(const char *folder, const char *file)
{
    char path[1200], line[128];
    double bytes;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_line(path, line, sizeof line) && sscanf(line, "%lf", &bytes) == 1 ? bytes : -1;
}

static double memory_v2(const char *folder) { return memory_limit(folder, "memory.max"); }
static double memory_v1(const char *folder) { return memory_limit(folder, "memory.limit_in_bytes"); }

static double smaller(double a, double b) { return a < 0 ? b : b < 0 || a < b ? a : b; }

/* The smallest limit from the folder tree/path up to the tree's root. */
static double limit_on_path(const char *tree, const char *path, GroupLimit limit)
{
    char folder[1024];
    size_t root = strlen(tree);
    double least = -1;
    if (root + strlen(path) >= sizeof folder)
        path = "";
    snprintf(folder, sizeof folder, "%s%s", tree, path);
    for (;;) {
        least = smaller(least, limit(folder));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= root || !slash || (size_t)(slash - folder) < root)
            return least;
        *slash = 0;
    }
}

static double group_limit(const char *controller, GroupLimit v2, GroupLimit v1)
{
    char line[1024], tree[300];
    double least = -1;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {   /* "4:cpu,cpuacct:/docker/1a2b" or "0::/user.slice" */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *list++ = 0;
        *path++ = 0;
        if (!*list) {
            least = smaller(least, limit_on_path("/sys/fs/cgroup", path, v2));
        } else if (list_has(list, controller)) {
            snprintf(tree, sizeof tree, "/sys/fs/cgroup/%.256s", list);
            if (access(tree, F_OK))
                snprintf(tree, sizeof tree, "/sys/fs/cgroup/%s", controller);
            least = smaller(least, limit_on_path(tree, path, v1));
        }
    }
    fclose(f);
    return least;
}

int cpu_count(void)
{
    int n = 0;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    if (n < 1)                          /* more processors than the fixed set holds */
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = group_limit("cpu", quota_v2, quota_v1);
    if (quota > 0 && quota < n)
        n = quota < 1 ? 1 : (int)(quota + 0.5);
    return n < 1 ? 1 : n;
}

#if defined __SSE2__
uint64_t float_flush(void)
{
    unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode | 0x8040);       /* results, operands */
    return mode;
}
void float_mode(uint64_t mode) { __builtin_ia32_ldmxcsr((unsigned)mode); }
#elif defined __aarch64__
void float_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
uint64_t float_flush(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    float_mode(mode | 1 << 24);
    return mode;
}
#else
uint64_t float_flush(void) { return 0; }
void float_mode(uint64_t mode) { (void)mode; }
#endif

int64_t memory_total(void)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double limit = group_limit("memory", memory_v2, memory_v1);
    return (int64_t)(limit > 0 && limit < bytes ? limit : bytes);
}
