/* The compiler of a builder: which program it is, which arguments it gets, and who it says it is.
 *
 * Without a toolchain it is the C compiler: the option, else the first of cc, gcc and clang on PATH. The flags
 * name each processor feature (never -march=native, which compilers do not know for new processors) and keep
 * IEEE rules: only errno and trap flags are given up. Its version is asked for once and kept in the cache by
 * path, size and time of the file; with the flags it is the identity that keys of kernels contain. */
#include "rt/rt.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const common_flags[] = { "-O2",
                                            "-std=gnu11",
                                            "-fno-math-errno",
                                            "-fno-trapping-math",
                                            "-ffp-contract=off",
                                            "-fwrapv",
                                            "-fno-strict-aliasing",
                                            "-fPIC",
                                            "-shared",
                                            "-nostdlib",
                                            "-w" };

/* Passes of gcc at -O2 that take two fifths of its time and were not seen to make kernels faster: these are long straight lines of vector operations. Where the prelude
 * has the processor's own instructions for all that it does in lanes, nothing is left to vectorise. Quick kernels are compiled with -O1 and the passes named here: in two thirds of the
 * time, since loops are unrolled after most passes. Then sums that are arrays come into registers where they change in each turn of a loop, but not where that depends on a condition. */
#if defined(__x86_64__)
#define GCC_QUICK "-O1"
#else
#define GCC_QUICK NULL /* not measured */
#endif
static const char *const gcc_flags[] = {
#if defined(__x86_64__)
    "-fexpensive-optimizations",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
#endif
    "-fno-tree-vrp",
    "-fno-gcse",
    "-fno-thread-jumps",
    "-fira-region=one",
    "-fno-rerun-cse-after-loop",
    "-fno-cse-follow-jumps",
    "-fno-tree-tail-merge",
    "-fno-crossjumping",
    "-fno-tree-dominator-opts",
    "-fno-tree-bit-ccp",
    "-fno-tree-pta",
    "-fno-tree-loop-distribution",
    "-fno-tree-switch-conversion",
    "-fno-store-merging",
    "-fno-optimize-strlen",
    "-fno-cprop-registers",
    "-fno-ipa-cp",
    "-fno-ipa-sra",
    "-fno-ipa-vrp",
    "-fno-ipa-icf"
};

/* ---- instruction sets ---- */

#if defined(__x86_64__)
typedef struct CpuFeature {
    const char *flag, *isa;
    int leaf, sub, reg, bit;
} CpuFeature;
/* Flags of a set, where the processor has the feature; those of avx2 count for avx512 also. reg: 0 eax, 1
 * ebx, 2 ecx, 3 edx. */
/* clang-format off */
static const CpuFeature features[] = {
    {"-mpopcnt",     "avx2",   1, 0, 2, 23}, {"-mf16c",       "avx2",   1, 0, 2, 29},
    {"-mfma",        "avx2",   1, 0, 2, 12}, {"-mavx2",       "avx2",   7, 0, 1, 5},
    {"-mbmi",        "avx2",   7, 0, 1, 3},  {"-mbmi2",       "avx2",   7, 0, 1, 8},
    {"-mavx512f",    "avx512", 7, 0, 1, 16}, {"-mavx512bw",   "avx512", 7, 0, 1, 30},
    {"-mavx512dq",   "avx512", 7, 0, 1, 17}, {"-mavx512vl",   "avx512", 7, 0, 1, 31},
    {"-mavx512cd",   "avx512", 7, 0, 1, 28}, {"-mavx512vnni", "avx512vnni", 7, 0, 2, 11},
    {"-mavx512bf16", "avx512bf16", 7, 1, 0, 5},
    {"-mamx-tile",   "amx",    7, 0, 3, 24}, {"-mamx-bf16",   "amx",    7, 0, 3, 22},
    {"-mamx-int8",   "amx",    7, 0, 3, 25},
};
/* clang-format on */

static bool feature_there(const CpuFeature *f)
{
    unsigned r[4] = { 0 };
    return __get_cpuid_count((unsigned)f->leaf, (unsigned)f->sub, &r[0], &r[1], &r[2], &r[3]) &&
           (r[f->reg] >> f->bit & 1);
}

/* May this process use the registers of the unit for tiles? Linux gives them to those that ask: for all
 * threads, and for good. */
static bool tiles_given(void)
{
    enum { ASK = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    for (size_t i = 0; i < COUNT_OF(features); i++)
        if (!strcmp(features[i].isa, "amx") && !feature_there(&features[i]))
            return false;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}
#endif

/* The best set that processor and system support. */
static const char *isa_native(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool f16c = feature_there(&features[1]);
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !f16c)
        return "sse2";
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return "avx2";
    if (!__builtin_cpu_supports("avx512vnni"))
        return "avx512";
    if (!__builtin_cpu_supports("avx512bf16"))
        return "avx512vnni";
    return tiles_given() ? "amx" : "avx512bf16";
#elif defined(__aarch64__)
    return "neon";
#else
    return "plain";
#endif
}

static Status isa_choose(Compiler *c, const char *want, RtError *e)
{
    const char *native = isa_native();
    if (!want || !*want || !strcmp(want, "native"))
        want = native;
    c->isa = isa_find(want);
    if (!c->isa) {
        char names[256] = "";
        int n;
        const IsaInfo *all = isa_list(&n);
        for (int i = 0; i < n; i++)
            snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", all[i].name);
        return rt_fail(e, E_INVALID, "isa is '%s', wanted native%s", want, names);
    }
    if (!isa_within(c->isa, isa_find(native)))
        return rt_fail(e, E_DEVICE, "isa is '%s', but this processor has %s", want, native);
    return E_OK;
}

static void argv_add(Compiler *c, const char *word)
{
    ASSERT(c->nargv < MAX_WORDS - 1);
    c->argv[c->nargv++] = word;
}

static void isa_flags(Compiler *c)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < COUNT_OF(features); i++)
        if (isa_within(isa_find(features[i].isa), c->isa) && feature_there(&features[i]))
            argv_add(c, features[i].flag);
    if (c->isa->lanes == 16)
        argv_add(c, "-mprefer-vector-width=512"); /* both compilers take 256 for themselves */
    argv_add(c, "-mtune=generic");
#else
    (void)c;
#endif
}

/* ---- the compiler ---- */

static bool file_runs(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

/* Absolute path of dir/name, if it can be run. Symbolic links stay: compilers look at the name they have. */
static bool program_at(const char *dir, int n, const char *name, char path[CACHE_PATH])
{
    char here[CACHE_PATH] = "";
    if ((n ? dir : name)[0] != '/' && !getcwd(here, sizeof here))
        return false;
    int len = snprintf(path, CACHE_PATH, "%s%s%.*s%s%s", here, *here ? "/" : "", n, dir, n ? "/" : "", name);
    return len < CACHE_PATH && file_runs(path);
}

/* Absolute path of a program given by name or path. */
static bool program_find(const char *name, char path[CACHE_PATH])
{
    if (strchr(name, '/'))
        return program_at("", 0, name, path);
    const char *dirs = env_get("PATH");
    for (const char *s = dirs ? dirs : "/usr/local/bin:/usr/bin:/bin"; *s;) {
        size_t n = strcspn(s, ":");
        if (n && program_at(s, (int)n, name, path))
            return true;
        s += n + (s[n] == ':');
    }
    return false;
}

/* Fills argv[0..] with the compiler and, where the option has several words ("ccache gcc"), its arguments. */
static Status compiler_find(Compiler *c, RtError *e)
{
    static const char *const names[] = { "cc", "gcc", "clang" };
    ASSERT(c);
    if (c->tools) {
        if (!c->tools->program)
            return rt_fail(e, E_COMPILE, "%s", c->tools->missing);
        if (!program_find(c->tools->program, c->path))
            return rt_fail(e, E_COMPILE, "%.900s is not a program", c->tools->program);
        argv_add(c, c->path);
        for (int i = 0; i < c->tools->nflag; i++)
            argv_add(c, c->tools->flag[i]);
        return E_OK;
    }
    if (!c->want[0]) {
        for (size_t i = 0; i < COUNT_OF(names); i++)
            if (program_find(names[i], c->path)) {
                argv_add(c, c->path);
                return E_OK;
            }
        return rt_fail(
            e, E_COMPILE,
            "no C compiler: neither cc, gcc nor clang is on PATH (install gcc or clang, or set SN_CC)");
    }
    if (program_find(c->want, c->path)) {
        argv_add(c, c->path);
        return E_OK;
    }
    snprintf(c->words, sizeof c->words, "%s", c->want);
    char *rest = NULL, *word = strtok_r(c->words, " \t", &rest);
    if (!word || !program_find(word, c->path))
        return rt_fail(
            e, E_COMPILE,
            "no C compiler: '%.300s' (option cc) is not a program (install gcc or clang, or set SN_CC)",
            c->want);
    argv_add(c, c->path);
    while ((word = strtok_r(NULL, " \t", &rest)))
        if (c->nargv < 16)
            argv_add(c, word);
        else
            return rt_fail(e, E_COMPILE, "option cc has more than 16 words");
    return E_OK;
}

/* First line of `cc --version`: from the cache, where it is kept for this file of this size and time, else
 * by asking. */
static Status compiler_version(Compiler *c, uint64_t file_hash, RtError *e)
{
    char path[CACHE_PATH], why[128];
    snprintf(path, sizeof path, "%s/cc-%016" PRIx64, c->cache->dir, file_hash);
    File f;
    if (c->cache->on && !file_map(path, &f, why, sizeof why)) {
        bool ok =
            f.size > 1 && f.size < sizeof c->text && f.data[f.size - 1] == '\n' && !memchr(f.data, 0, f.size);
        if (ok)
            snprintf(c->text, sizeof c->text, "%.*s", (int)f.size - 1, (const char *)f.data);
        file_unmap(&f);
        if (ok)
            return E_OK;
    }
    Proc *p = block_alloc(sizeof *p);
    if (!p)
        return rt_fail(e, E_NOMEM, "no memory to start a compiler");
    const char *argv[20];
    int n = c->nargv;
    memcpy(argv, c->argv, (size_t)n * sizeof *argv);
    argv[n] = "--version";
    argv[n + 1] = NULL;
    p->argv = argv;
    Status st = proc_run(p, 1, 1, c->seconds, NULL, NULL, e);
    if (!st) {
        int len = (int)strcspn(p->out, "\n");
        snprintf(c->text, sizeof c->text, "%.*s", len < 250 ? len : 250, p->out);
        if (!c->text[0])
            st = rt_fail(e, E_COMPILE, "%s --version says nothing: is it a C compiler?", c->path);
    } else if (st == E_COMPILE && p->status > 0) {
        rt_fail(e, st, "%s --version failed with status %d: %.300s", c->path, p->status, p->out);
    }
    if (!st && c->cache->on) {
        char line[300];
        int len = snprintf(line, sizeof line, "%s\n", c->text);
        file_write(path, line, (size_t)len, why, sizeof why);
    }
    block_free(p);
    return st;
}

static void command_add(Compiler *c, const char *const *word, int n)
{
    size_t at = strlen(c->command);
    for (int i = 0; i < n && at < sizeof c->command; i++)
        at += (size_t)snprintf(c->command + at, sizeof c->command - at, "%s%s", at ? " " : "", word[i]);
}

static void c_flags(Compiler *c)
{
    for (size_t i = 0; i < COUNT_OF(common_flags); i++)
        argv_add(c, common_flags[i]);
    bool clang = strstr(c->text, "clang") != NULL;
    for (size_t i = 0; i < COUNT_OF(gcc_flags) && !clang; i++)
        argv_add(c, gcc_flags[i]);
    c->quick = clang ? NULL : GCC_QUICK;
    isa_flags(c);
    c->libs[c->nlibs++] = "-lm";
    if (!clang)
        c->libs[c->nlibs++] =
            "-lgcc"; /* 128-bit division, half precision without hardware; clang may come without it */
    c->libs[c->nlibs++] = "-lc";
}

static Status compiler_resolve(Compiler *c, RtError *e)
{
    struct stat st;
    Status s = compiler_find(c, e);
    if (s)
        return s;
    if (stat(c->path, &st))
        return rt_fail(e, E_COMPILE, "the compiler %s went away", c->path);
    uint64_t h = hash_bytes(c->path, strlen(c->path), 0);
    for (int i = 1; i < c->nargv; i++)
        h = hash_bytes(c->argv[i], strlen(c->argv[i]) + 1, h);
    int64_t facts[] = { st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
    h = hash_bytes(facts, sizeof facts, h);
    if ((s = compiler_version(c, h, e)))
        return s;
    if (c->tools)
        c->quick = c->tools->quick;
    else
        c_flags(c);
    static const char *const names[] = { "-o", "kernel.so", "kernel.c" };
    command_add(c, c->argv, c->nargv);
    command_add(c, names, 3);
    command_add(c, c->libs, c->nlibs);
    h = hash_bytes(c->text, strlen(c->text), h);
    h = hash_bytes(c->command, strlen(c->command), h);
    h = hash_bytes(c->quick, c->quick ? strlen(c->quick) : 0, h);
    c->identity = hash_bytes(SINTER_VERSION "/" KERNEL_ABI, sizeof SINTER_VERSION "/" KERNEL_ABI, h);
    return E_OK;
}

Status compiler_need(Compiler *c, RtError *e)
{
    if (!c->resolved) {
        RtError own;
        c->status = compiler_resolve(c, &own);
        if (c->status)
            snprintf(c->why, sizeof c->why, "%.500s", own.text);
        c->resolved = true;
    }
    return c->status ? rt_fail(e, c->status, "%s", c->why) : E_OK;
}

Status compiler_open(Compiler *c, const Options *opt, const Toolchain *tools, const Cache *cache, RtError *e)
{
    memset(c, 0, sizeof *c);
    c->tools = tools;
    c->cache = cache;
    c->seconds = opt->compile_seconds > 0 ? opt->compile_seconds : 1e9;
    Status st = tools ? E_OK : isa_choose(c, opt->isa, e);
    if (!st && opt->cc && strlen(opt->cc) >= sizeof c->want)
        st = rt_fail(e, E_INVALID, "option cc is %zu characters long", strlen(opt->cc));
    snprintf(c->want, sizeof c->want, "%s", opt->cc && !st ? opt->cc : "");
    return st;
}

/* ---- one call of the compiler ---- */

Status compiler_run(const Options *opt, int n, const char *const *arg, volatile int *cancel, RtError *e)
{
    Compiler *c = block_alloc(sizeof *c);
    Proc *p = NULL;
    if (!c)
        return rt_fail(e, E_NOMEM, "no memory for a compiler");
    Status st = compiler_open(c, opt, NULL, NULL, e);
    if (st || (st = compiler_find(c, e)))
        goto done;
    if (c->nargv + n >= MAX_WORDS) {
        st = rt_fail(e, E_INVALID, "%d arguments for the compiler", n);
        goto done;
    }
    for (int i = 0; i < n; i++)
        argv_add(c, arg[i]);
    if (!(p = block_alloc(sizeof *p))) {
        st = rt_fail(e, E_NOMEM, "no memory for a process");
        goto done;
    }
    memset(p, 0, sizeof *p);
    p->argv = c->argv;
    if ((st = proc_run(p, 1, 1, 10 * c->seconds, NULL, cancel, e)) == E_COMPILE)
        st = rt_fail(e, E_COMPILE, "%s: %.800s", c->path, p->out[0] ? p->out : "failed");
done:
    block_free(p);
    block_free(c);
    return st;
}
