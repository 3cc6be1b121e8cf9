/* NVRTC as a toolchain of the builder: where the worker program and the library are, their command line, and what the compiler's log says about a kernel.
 *
 * The library is never loaded into this process: it is large, compiles serially, and a compiler may hang or crash. Option kernel_compiler names
 * another worker, or the library. libnvrtc is taken from where toolkits are installed, else by name
 * from wherever the loader finds it. */
#include "rt/rt.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKER   "sinter-nvrtc"
#define MAX_FLAG 12

struct Nvrtc {
    Toolchain tools;
    char program[CACHE_PATH], lib[CACHE_PATH + 8], stamp[64], arch[32], missing[256];
    const char *flag[MAX_FLAG];
};

/* ---- the library ---- */

static bool library_in(char *path, size_t n, const char *dir)
{
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if ((size_t)snprintf(path, n, "%s/%s", dir, names[i]) < n && !access(path, R_OK))
            return true;
    return false;
}

static bool library_find(char *path, size_t n)
{
    const char *home = env_get("CUDA_HOME");
    char dir[CACHE_PATH];
    static const char *const fixed[] = { "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu",
                                         "/usr/lib/aarch64-linux-gnu", "/usr/lib64" };
    if (home && snprintf(dir, sizeof dir, "%s/lib64", home) < (int)sizeof dir && library_in(path, n, dir))
        return true;
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        if (library_in(path, n, fixed[i]))
            return true;
    return false;
}

/* ---- the toolchain ---- */

static void flag_add(Nvrtc *v, const char *word)
{
    ASSERT(v->tools.nflag < MAX_FLAG);
    v->flag[v->tools.nflag++] = word;
}

Status nvrtc_open(Nvrtc **out, const Options *opt, const char *arch, RtError *e)
{
    Nvrtc *v = block_alloc(sizeof *v);
    *out = NULL;
    if (!v)
        return rt_fail(e, E_NOMEM, "no memory for a compiler");
    memset(v, 0, sizeof *v);
    v->tools.flag = v->flag;
    const char *want = opt->kernel_compiler && *opt->kernel_compiler ? opt->kernel_compiler : NULL, *base = want ? strrchr(want, '/') : NULL;
    bool is_library = want && strstr(base ? base : want, ".so");
    if (want && !is_library)
        v->tools.program = want;
    else if (worker_find(WORKER, v->program)) {
        v->tools.program = v->program;
    } else {
        snprintf(v->missing, sizeof v->missing, "no CUDA compiler: the program " WORKER " is neither beside sinter nor on PATH");
        v->tools.missing = v->missing;
    }
    memcpy(v->lib, "--lib=", 7);
    struct stat st;
    if (is_library)
        snprintf(v->lib + 6, sizeof v->lib - 6, "%s", want);
    else if (want || !library_find(v->lib + 6, sizeof v->lib - 6))
        v->lib[6] = 0;
    if (v->lib[6])
        flag_add(v, v->lib);
    if (v->lib[6] && !stat(v->lib + 6, &st)) {        /* so that another library of that name makes other keys */
        snprintf(v->stamp, sizeof v->stamp, "--stamp=%llx-%llx", (unsigned long long)st.st_size, (unsigned long long)st.st_mtime);
        flag_add(v, v->stamp);
    }
    snprintf(v->arch, sizeof v->arch, "-arch=%s", arch);
    flag_add(v, v->arch);
    flag_add(v, "--std=c++17");
    flag_add(v, "--fmad=false");            /* a product and a sum are two roundings unless the text says fma */
    flag_add(v, "--ptxas-options=-v");
    v->tools.quick = "--ptxas-options=-O1";
    flag_add(v, "-w");
    *out = v;
    return E_OK;
}

void nvrtc_close(Nvrtc *v) { block_free(v); }
const Toolchain *nvrtc_tools(const Nvrtc *v) { return &v->tools; }

/* ---- what is read from a unit ---- */

static const char unit_mark[] = "\n" WORKER "\n";

const char *nvrtc_log(const char *unit, size_t n)
{
    const char *at = memmem(unit, n, unit_mark, sizeof unit_mark - 1);
    return at ? at + sizeof unit_mark - 1 : NULL;
}

static int number_before(const char *from, const char *end, const char *word)
{
    const char *at = memmem(from, (size_t)(end - from), word, strlen(word));
    if (!at)
        return 0;
    while (at > from && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return atoi(at);
}

bool nvrtc_facts(const char *log, const char *name, KernelFacts *f)
{
    char head[300];
    *f = (KernelFacts){ 0 };
    snprintf(head, sizeof head, "Compiling entry function '%s'", name);
    const char *at = log ? strstr(log, head) : NULL;
    if (!at)
        return false;
    at += strlen(head);
    const char *end = strstr(at, "Compiling entry function");
    if (!end)
        end = at + strlen(at);
    f->registers = number_before(at, end, " registers");
    f->stack = number_before(at, end, " bytes stack frame");
    f->spill_stores = number_before(at, end, " bytes spill stores");
    f->spill_loads = number_before(at, end, " bytes spill loads");
    f->shared = number_before(at, end, " bytes smem");
    return f->registers > 0;
}
