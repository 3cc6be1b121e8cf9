/* Where the programs lie that compile for devices: beside the program or the library, in ../libexec/sinter, or on PATH. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool worker_at(const char *name, char path[CACHE_PATH], const char *dir, const char *below)
{
    return snprintf(path, CACHE_PATH, "%s/%s%s", dir, below, name) < CACHE_PATH && !access(path, X_OK);
}

static bool folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = 0;
    return slash;
}

/* The folders of the object that holds this code and of the program, and what an installation or a build has beside them. */
bool worker_find(const char *name, char path[CACHE_PATH])
{
    static const char *const below[] = { "", "../libexec/sinter/", "../../libexec/sinter/", "../bin/", "../../bin/", "../../" };
    char dir[CACHE_PATH - 64];
    Dl_info here;
    for (int which = 0; which < 2; which++) {
        dir[0] = 0;
        if (which == 0) {
            ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
            dir[n > 0 ? n : 0] = 0;
        } else if (dladdr((void *)(uintptr_t)worker_find, &here) && here.dli_fname) {
            snprintf(dir, sizeof dir, "%s", here.dli_fname);
        }
        if (!folder_of(dir))
            continue;
        for (size_t i = 0; i < COUNT_OF(below); i++)
            if (worker_at(name, path, dir, below[i]))
                return true;
    }
    const char *dirs = env_get("PATH");
    for (const char *s = dirs ? dirs : ""; *s;) {
        size_t n = strcspn(s, ":");
        if (n && n < sizeof dir) {
            memcpy(dir, s, n);
            dir[n] = 0;
            if (worker_at(name, path, dir, ""))
                return true;
        }
        s += n + (s[n] == ':');
    }
    return false;
}
