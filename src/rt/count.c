/* Hardware counters: traffic between the last-level cache and memory, and the process's peak memory.
 *
 * perf_event_open counts one thread for each descriptor, so one read and one write counter is opened for
 * each thread that the process has. Counters that the kernel had to share with others were on for a part of
 * the time only and are scaled by it. */
#include "rt/rt.h"
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_COUNTED 256 /* threads */
#define LL_MISS(op)                                                                                          \
    (PERF_COUNT_HW_CACHE_LL | (uint64_t)(op) << 8 | (uint64_t)PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

static int counter_open(pid_t thread, uint64_t config)
{
    struct perf_event_attr a;
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.type = PERF_TYPE_HW_CACHE;
    a.config = config;
    a.disabled = 1;
    a.inherit = 1; /* threads that are made meanwhile */
    a.exclude_kernel = 1;
    a.exclude_hv = 1;
    a.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &a, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* The scaled count, or -1. */
static double counter_read(int fd)
{
    uint64_t v[3]; /* count, time enabled, time running */
    if (read(fd, v, sizeof v) != (ssize_t)sizeof v)
        return -1;
    return v[2] ? (double)v[0] * ((double)v[1] / (double)v[2]) : v[1] ? -1 : 0;
}

/* Opens both counters of each thread; returns the number of descriptors, or -1 with a reason. */
static int counters_open(int *fd, char *why, size_t nwhy)
{
    static const uint64_t config[] = { LL_MISS(PERF_COUNT_HW_CACHE_OP_READ),
                                       LL_MISS(PERF_COUNT_HW_CACHE_OP_WRITE) };
    int n = 0;
    bool ok = true;
    DIR *d = opendir("/proc/self/task");
    if (!d) {
        snprintf(why, nwhy, "/proc is not there");
        return -1;
    }
    for (struct dirent *f; ok && (f = readdir(d));) {
        if (f->d_name[0] == '.')
            continue;
        for (int k = 0; k < 2 && ok; k++) {
            if (n == 2 * MAX_COUNTED) {
                snprintf(why, nwhy, "the process has more than %d threads", MAX_COUNTED);
                ok = false;
                break;
            }
            fd[n] = counter_open((pid_t)atoi(f->d_name), config[k]);
            if (fd[n] >= 0) {
                n++;
            } else if (errno != ESRCH) { /* ESRCH: the thread has just ended */
                snprintf(why, nwhy, "no counter of last-level cache %s misses: %s%s", k ? "write" : "read",
                         strerror(errno),
                         errno == EACCES || errno == EPERM ? " (see /proc/sys/kernel/perf_event_paranoid)"
                                                           : "");
                ok = false;
            }
        }
    }
    closedir(d);
    if (ok)
        return n;
    while (n > 0)
        close(fd[--n]);
    return -1;
}

int64_t count_bytes(void (*fn)(void *arg), void *arg, char *why, size_t nwhy)
{
    int fd[2 * MAX_COUNTED];
    double misses = 0;
    bool lost = false;
    int n = counters_open(fd, why, nwhy);
    for (int i = 0; i < n; i++)
        ioctl(fd[i], PERF_EVENT_IOC_ENABLE, 0);
    fn(arg);
    for (int i = 0; i < n; i++)
        ioctl(fd[i], PERF_EVENT_IOC_DISABLE, 0);
    for (int i = 0; i < n; i++) {
        double c = counter_read(fd[i]);
        lost |= c < 0;
        misses += c < 0 ? 0 : c;
        close(fd[i]);
    }
    if (n < 0)
        return -1;
    if (lost) {
        snprintf(why, nwhy, "the counters were in use by others");
        return -1;
    }
    long line = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
    return (int64_t)(misses * (double)(line > 0 ? line : 64));
}

int64_t peak_memory(void)
{
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %lld", &kib) != 1)
        ;
    fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}
