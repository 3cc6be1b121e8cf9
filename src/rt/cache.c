/* The folder of compiled kernels (its files: rt.h).
 *
 * No locks: files appear by rename, so a reader sees the old one, the new one or none, and "none" only
 * costs a compilation. A crash of the machine may leave a file of the right length without its content; the
 * trailer's hash tells. Removal takes the units that were used longest ago: loading a unit renews its time,
 * at most once an hour to spare the disk. */
#include "rt/rt.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STALE_SECONDS 3600
#define TRAILER_MAGIC 0x3130304f534e53ull /* "SNSO001" */
typedef struct Trailer {
    uint64_t magic, size, hash;
} Trailer; /* the last bytes of a unit; the loader ignores them */

static bool folder_make(const char *path)
{
    char s[CACHE_PATH];
    size_t n = strlen(path);
    if (n >= sizeof s)
        return false;
    memcpy(s, path, n + 1);
    for (size_t i = 1; i <= n; i++)
        if (s[i] == '/' || !s[i]) {
            char c = s[i];
            s[i] = 0;
            if (mkdir(s, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES)
                return false;
            s[i] = c;
        }
    return true;
}

/* Code is run from this folder: it must not be one that strangers can write to. */
static bool folder_safe(const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode) || (st.st_mode & S_IWOTH))
        return false;
    return geteuid() == 0 || st.st_uid == 0 || st.st_uid == geteuid();
}

void cache_open(Cache *c, const Options *opt)
{
    const char *home;
    int n = 0;
    c->on = false;
    c->dir[0] = 0;
    c->limit = (int64_t)opt->cache_mb << 20;
    if (opt->cache)
        n = snprintf(c->dir, sizeof c->dir, "%s", opt->cache);
    else if ((home = env_get("XDG_CACHE_HOME")) && home[0] == '/')
        n = snprintf(c->dir, sizeof c->dir, "%s/sinter", home);
    else if ((home = env_get("HOME")) && home[0] == '/')
        n = snprintf(c->dir, sizeof c->dir, "%s/.cache/sinter", home);
    c->on = n > 0 && (size_t)n < sizeof c->dir && c->limit > 0 && folder_make(c->dir) && folder_safe(c->dir);
    char real[PATH_MAX]; /* the program may change its current folder later */
    if (c->on && (!realpath(c->dir, real) || strlen(real) >= sizeof c->dir))
        c->on = false;
    if (c->on)
        memcpy(c->dir, real, strlen(real) + 1);
}

static void unit_path(const Cache *c, uint64_t unit, char path[CACHE_PATH])
{
    snprintf(path, CACHE_PATH, "%s/%016" PRIx64 ".so", c->dir, unit);
}

bool cache_unit(const Cache *c, uint64_t kernel, uint64_t *unit)
{
    char path[CACHE_PATH], to[64], *end;
    if (!c->on)
        return false;
    snprintf(path, sizeof path, "%s/k-%016" PRIx64, c->dir, kernel);
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n != 19)
        return false;
    to[n] = 0;
    *unit = strtoull(to, &end, 16);
    return end == to + 16 && !strcmp(end, ".so");
}

static bool unit_whole(const char *path)
{
    File f;
    char why[128];
    Trailer t;
    if (file_map(path, &f, why, sizeof why))
        return false;
    bool ok = f.size > sizeof t;
    if (ok) {
        memcpy(&t, f.data + f.size - sizeof t, sizeof t);
        ok = t.magic == TRAILER_MAGIC && t.size == f.size - sizeof t &&
             t.hash == hash_bytes(f.data, f.size - sizeof t, 0);
    }
    file_unmap(&f);
    return ok;
}

bool cache_check(const Cache *c, uint64_t unit, char path[CACHE_PATH])
{
    struct stat st;
    unit_path(c, unit, path);
    if (!c->on || stat(path, &st))
        return false;
    if (!unit_whole(path)) {
        unlink(path);
        return false;
    }
    if (st.st_mtime < time(NULL) - STALE_SECONDS)
        utimensat(AT_FDCWD, path, NULL, 0);
    return true;
}

static bool trailer_add(const char *so)
{
    File f;
    char why[128];
    if (file_map(so, &f, why, sizeof why))
        return false;
    Trailer t = { TRAILER_MAGIC, f.size, hash_bytes(f.data, f.size, 0) };
    file_unmap(&f);
    int fd = open(so, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = write(fd, &t, sizeof t) == (ssize_t)sizeof t;
    return close(fd) == 0 && ok;
}

bool cache_store(const Cache *c, const char *so, uint64_t unit)
{
    char path[CACHE_PATH];
    if (!c->on || !trailer_add(so))
        return false;
    unit_path(c, unit, path);
    return !rename(so, path);
}

bool cache_link(const Cache *c, const char *work, uint64_t kernel, uint64_t unit)
{
    char path[CACHE_PATH], link[CACHE_PATH], to[64];
    snprintf(to, sizeof to, "%016" PRIx64 ".so", unit);
    snprintf(path, sizeof path, "%s/k-%016" PRIx64, c->dir, kernel);
    if ((size_t)snprintf(link, sizeof link, "%s/link", work) >= sizeof link || symlink(to, link))
        return false;
    if (!rename(link, path))
        return true;
    unlink(link);
    return false;
}

/* ---- work folders ---- */

bool work_make(const Cache *c, bool apart, char path[CACHE_PATH], char *why, size_t nwhy)
{
    if (c->on && !apart)
        for (int i = 0; i < 1000; i++) {
            if ((size_t)snprintf(path, CACHE_PATH, "%s/tmp-%ld-%d", c->dir, (long)getpid(), i) >= CACHE_PATH)
                break;
            if (!mkdir(path, 0700))
                return true;
            if (errno != EEXIST)
                break;
        }
    const char *places[] = { env_get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm" };
    int err = ENOENT;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        if (!places[i] || !*places[i] ||
            (size_t)snprintf(path, CACHE_PATH, "%s/sinter-XXXXXX", places[i]) >= CACHE_PATH)
            continue;
        if (mkdtemp(path))
            return true;
        err = errno;
    }
    snprintf(why, nwhy, "no folder for temporary files: %s (set TMPDIR)", strerror(err));
    return false;
}

void work_remove(const char *path)
{
    DIR *d = opendir(path);
    if (d) {
        for (struct dirent *f; (f = readdir(d));)
            if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
                unlinkat(dirfd(d), f->d_name, 0);
        closedir(d);
    }
    rmdir(path);
}

/* ---- size limit ---- */

typedef struct UnitFile {
    uint64_t unit;
    int64_t size, time, nsec;
} UnitFile;
typedef struct UnitFiles {
    UnitFile *at;
    size_t n, cap;
    int64_t total;
} UnitFiles;

static bool unitfiles_add(UnitFiles *v, UnitFile f)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? 2 * v->cap : 256;
        UnitFile *at = block_alloc(cap * sizeof *at);
        if (!at)
            return false;
        if (v->n)
            memcpy(at, v->at, v->n * sizeof *at);
        block_free(v->at);
        v->at = at;
        v->cap = cap;
    }
    v->at[v->n++] = f;
    v->total += f.size;
    return true;
}

static int unitfile_older(const void *pa, const void *pb)
{
    const UnitFile *a = pa, *b = pb;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->nsec != b->nsec)
        return a->nsec < b->nsec ? -1 : 1;
    return a->unit < b->unit ? -1 : a->unit > b->unit;
}

/* A work folder whose process is gone. Process numbers may come from another machine or container, so age
 * counts as well. */
static bool work_stale(const char *name, const struct stat *st)
{
    char *end;
    long pid = strtol(name + 4, &end, 10);
    return end != name + 4 && *end == '-' && pid > 0 && st->st_mtime < time(NULL) - STALE_SECONDS &&
           kill((pid_t)pid, 0) && errno == ESRCH;
}

static void links_prune(DIR *d)
{
    struct stat st;
    rewinddir(d);
    for (struct dirent *f; (f = readdir(d));)
        if (!strncmp(f->d_name, "k-", 2) && fstatat(dirfd(d), f->d_name, &st, 0) && errno == ENOENT)
            unlinkat(dirfd(d), f->d_name, 0);
}

void cache_trim(const Cache *c)
{
    UnitFiles v = { 0 };
    char path[CACHE_PATH];
    DIR *d = c->on ? opendir(c->dir) : NULL;
    if (!d)
        return;
    for (struct dirent *f; (f = readdir(d));) {
        struct stat st;
        char *end;
        const char *name = f->d_name;
        bool work = !strncmp(name, "tmp-", 4);
        uint64_t unit = strtoull(name, &end, 16);
        if (!work && (end != name + 16 || strcmp(end, ".so")))
            continue;
        if (fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (!work && S_ISREG(st.st_mode) &&
            !unitfiles_add(&v, (UnitFile){ unit, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec }))
            goto done;
        if (work && S_ISDIR(st.st_mode) && work_stale(name, &st) &&
            (size_t)snprintf(path, sizeof path, "%s/%s", c->dir, name) < sizeof path)
            work_remove(path);
    }
    if (v.n && v.total > c->limit) {
        qsort(v.at, v.n, sizeof *v.at, unitfile_older);
        for (size_t i = 0; i < v.n && v.total > c->limit; i++) {
            unit_path(c, v.at[i].unit, path);
            if (!unlink(path) || errno == ENOENT)
                v.total -= v.at[i].size;
        }
        links_prune(d);
    }
done:
    closedir(d);
    block_free(v.at);
}
