/* Kernel texts to functions: finds the compiler, keys the texts, looks them up in memory and on disk, and
 * compiles the rest.
 *
 * The flags name each processor feature (never -march=native, which compilers do not know for new
 * processors) and keep IEEE rules: only errno and trap flags are given up. Texts become one translation
 * unit for each processor, since starting a compiler costs as much as one small kernel. A shared object is
 * loaded from the work folder before it is renamed into the cache, so that no other process can take it
 * away in between; its file name is the unit's key, because the loader takes two files of one name for the
 * same. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define MAX_UNIT  64 /* kernels of a unit, so that none comes near the limit on time */
#define MAX_WORDS 96

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
 * has the processor's own instructions for all that it does in lanes, nothing is left to vectorise. */
static const char *const gcc_flags[] = {
#if defined(__x86_64__)
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

/* ---- a hash map of 64-bit keys to numbers; linear probing ---- */

typedef struct KeyMap {
    uint64_t *key;
    int *val;
    size_t n, cap;
} KeyMap; /* val -1: free */

static size_t keymap_slot(const KeyMap *m, uint64_t key)
{
    size_t i = (size_t)(key * 0x9E3779B97F4A7C15ull) & (m->cap - 1);
    while (m->val[i] >= 0 && m->key[i] != key)
        i = (i + 1) & (m->cap - 1);
    return i;
}

static int keymap_get(const KeyMap *m, uint64_t key) { return m->cap ? m->val[keymap_slot(m, key)] : -1; }

static bool keymap_put(KeyMap *m, uint64_t key, int val)
{
    if (2 * (m->n + 1) > m->cap) {
        KeyMap w = { .n = m->n, .cap = m->cap ? 2 * m->cap : 64 };
        w.key = block_alloc(w.cap * (sizeof *w.key + sizeof *w.val));
        if (!w.key)
            return false;
        w.val = (int *)(w.key + w.cap);
        memset(w.val, 0xFF, w.cap * sizeof *w.val);
        for (size_t i = 0; i < m->cap; i++)
            if (m->val[i] >= 0) {
                size_t j = keymap_slot(&w, m->key[i]);
                w.key[j] = m->key[i];
                w.val[j] = m->val[i];
            }
        block_free(m->key);
        *m = w;
    }
    size_t i = keymap_slot(m, key);
    m->n += m->val[i] < 0;
    m->key[i] = key;
    m->val[i] = val;
    return true;
}

/* ---- the builder ---- */

typedef struct Loaded {
    uint64_t unit;
    void *handle;
} Loaded;

struct Builder {
    pthread_mutex_t lock; /* over everything below but cache, jobs and isa */
    Toolchain tools;
    bool own_tools; /* the C compiler */
    Cache cache;
    int jobs;
    double seconds; /* that a compiler may take */
    const IsaInfo *isa;
    char want_cc[CACHE_PATH]; /* Options.cc or "" */
    bool resolved; /* the rest of this block is known */
    Status cc_status;
    char cc_why[512], cc_path[CACHE_PATH], cc_text[256], command[2048];
    char words[CACHE_PATH]; /* storage of a compiler given with arguments */
    const char *argv[MAX_WORDS]; /* the compiler, its arguments and the flags */
    const char *libs[8];
    int nargv, nlibs;
    uint64_t identity; /* hash of compiler, flags, version and KERNEL_ABI */
    KeyMap fn_of, loaded_of; /* key of kernel -> fn, key of unit -> loaded */
    KernelFn *fn;
    Loaded *loaded;
    int nfn, cap_fn, nloaded, cap_loaded;
};

static bool array_room(void **at, int n, int *cap, size_t size)
{
    if (n < *cap)
        return true;
    int more = *cap ? 2 * *cap : 64;
    void *p = block_alloc((size_t)more * size);
    if (!p)
        return false;
    if (n)
        memcpy(p, *at, (size_t)n * size);
    block_free(*at);
    *at = p;
    *cap = more;
    return true;
}

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

static Status isa_choose(Builder *b, const char *want, RtError *e)
{
    const char *native = isa_native();
    if (!want || !*want || !strcmp(want, "native"))
        want = native;
    b->isa = isa_find(want);
    if (!b->isa) {
        char names[256] = "";
        int n;
        const IsaInfo *all = isa_list(&n);
        for (int i = 0; i < n; i++)
            snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", all[i].name);
        return rt_fail(e, E_INVALID, "isa is '%s', wanted native%s", want, names);
    }
    if (!isa_within(b->isa, isa_find(native)))
        return rt_fail(e, E_DEVICE, "isa is '%s', but this processor has %s", want, native);
    return E_OK;
}

static void argv_add(Builder *b, const char *word)
{
    ASSERT(b->nargv < MAX_WORDS - 1);
    b->argv[b->nargv++] = word;
}

static void isa_flags(Builder *b)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < COUNT_OF(features); i++)
        if (isa_within(isa_find(features[i].isa), b->isa) && feature_there(&features[i]))
            argv_add(b, features[i].flag);
    if (b->isa->lanes == 16)
        argv_add(b, "-mprefer-vector-width=512"); /* both compilers take 256 for themselves */
    argv_add(b, "-mtune=generic");
#else
    (void)b;
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
static Status compiler_find(Builder *b, RtError *e)
{
    static const char *const names[] = { "cc", "gcc", "clang" };
    ASSERT(b);
    if (!b->own_tools) {
        if (!b->tools.program)
            return rt_fail(e, E_COMPILE, "%s", b->tools.missing);
        if (!program_find(b->tools.program, b->cc_path))
            return rt_fail(e, E_COMPILE, "%.900s is not a program", b->tools.program);
        argv_add(b, b->cc_path);
        for (int i = 0; i < b->tools.nflag; i++)
            argv_add(b, b->tools.flag[i]);
        return E_OK;
    }
    if (!b->want_cc[0]) {
        for (size_t i = 0; i < COUNT_OF(names); i++)
            if (program_find(names[i], b->cc_path)) {
                argv_add(b, b->cc_path);
                return E_OK;
            }
        return rt_fail(
            e, E_COMPILE,
            "no C compiler: neither cc, gcc nor clang is on PATH (install gcc or clang, or set SN_CC)");
    }
    if (program_find(b->want_cc, b->cc_path)) {
        argv_add(b, b->cc_path);
        return E_OK;
    }
    snprintf(b->words, sizeof b->words, "%s", b->want_cc);
    char *rest = NULL, *word = strtok_r(b->words, " \t", &rest);
    if (!word || !program_find(word, b->cc_path))
        return rt_fail(
            e, E_COMPILE,
            "no C compiler: '%.300s' (option cc) is not a program (install gcc or clang, or set SN_CC)",
            b->want_cc);
    argv_add(b, b->cc_path);
    while ((word = strtok_r(NULL, " \t", &rest)))
        if (b->nargv < 16)
            argv_add(b, word);
        else
            return rt_fail(e, E_COMPILE, "option cc has more than 16 words");
    return E_OK;
}

/* First line of `cc --version`: from the cache, where it is kept for this file of this size and time, else
 * by asking. */
static Status compiler_version(Builder *b, uint64_t file_hash, RtError *e)
{
    char path[CACHE_PATH], why[128];
    snprintf(path, sizeof path, "%s/cc-%016" PRIx64, b->cache.dir, file_hash);
    File f;
    if (b->cache.on && !file_map(path, &f, why, sizeof why)) {
        bool ok = f.size > 1 && f.size < sizeof b->cc_text && f.data[f.size - 1] == '\n' &&
                  !memchr(f.data, 0, f.size);
        if (ok)
            snprintf(b->cc_text, sizeof b->cc_text, "%.*s", (int)f.size - 1, (const char *)f.data);
        file_unmap(&f);
        if (ok)
            return E_OK;
    }
    Proc *p = block_alloc(sizeof *p);
    if (!p)
        return rt_fail(e, E_NOMEM, "no memory to start a compiler");
    const char *argv[20];
    int n = b->nargv;
    memcpy(argv, b->argv, (size_t)n * sizeof *argv);
    argv[n] = "--version";
    argv[n + 1] = NULL;
    p->argv = argv;
    Status st = proc_run(p, 1, 1, b->seconds, NULL, NULL, e);
    if (!st) {
        int len = (int)strcspn(p->out, "\n");
        snprintf(b->cc_text, sizeof b->cc_text, "%.*s", len < 250 ? len : 250, p->out);
        if (!b->cc_text[0])
            st = rt_fail(e, E_COMPILE, "%s --version says nothing: is it a C compiler?", b->cc_path);
    } else if (st == E_COMPILE && p->status > 0) {
        rt_fail(e, st, "%s --version failed with status %d: %.300s", b->cc_path, p->status, p->out);
    }
    if (!st && b->cache.on) {
        char line[300];
        int len = snprintf(line, sizeof line, "%s\n", b->cc_text);
        file_write(path, line, (size_t)len, why, sizeof why);
    }
    block_free(p);
    return st;
}

static void command_add(Builder *b, const char *const *word, int n)
{
    size_t at = strlen(b->command);
    for (int i = 0; i < n && at < sizeof b->command; i++)
        at += (size_t)snprintf(b->command + at, sizeof b->command - at, "%s%s", at ? " " : "", word[i]);
}

static void c_flags(Builder *b)
{
    for (size_t i = 0; i < COUNT_OF(common_flags); i++)
        argv_add(b, common_flags[i]);
    bool clang = strstr(b->cc_text, "clang") != NULL;
    for (size_t i = 0; i < COUNT_OF(gcc_flags) && !clang; i++)
        argv_add(b, gcc_flags[i]);
    isa_flags(b);
    b->libs[b->nlibs++] = "-lm";
    if (!clang)
        b->libs[b->nlibs++] =
            "-lgcc"; /* 128-bit division, half precision without hardware; clang may come without it */
    b->libs[b->nlibs++] = "-lc";
}

static Status compiler_resolve(Builder *b, RtError *e)
{
    struct stat st;
    Status s = compiler_find(b, e);
    if (s)
        return s;
    if (stat(b->cc_path, &st))
        return rt_fail(e, E_COMPILE, "the compiler %s went away", b->cc_path);
    uint64_t h = hash_bytes(b->cc_path, strlen(b->cc_path), 0);
    for (int i = 1; i < b->nargv; i++)
        h = hash_bytes(b->argv[i], strlen(b->argv[i]) + 1, h);
    int64_t facts[] = { st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
    h = hash_bytes(facts, sizeof facts, h);
    if ((s = compiler_version(b, h, e)))
        return s;
    if (b->own_tools)
        c_flags(b);
    static const char *const names[] = { "-o", "kernel.so", "kernel.c" };
    command_add(b, b->argv, b->nargv);
    command_add(b, names, 3);
    command_add(b, b->libs, b->nlibs);
    h = hash_bytes(b->cc_text, strlen(b->cc_text), h);
    h = hash_bytes(b->command, strlen(b->command), h);
    b->identity = hash_bytes(SINTER_VERSION "/" KERNEL_ABI, sizeof SINTER_VERSION "/" KERNEL_ABI, h);
    return E_OK;
}

/* Finds the compiler at the first need and remembers the outcome. Called with the lock held. */
static Status compiler_need(Builder *b, RtError *e)
{
    if (!b->resolved) {
        RtError own;
        b->cc_status = compiler_resolve(b, &own);
        if (b->cc_status)
            snprintf(b->cc_why, sizeof b->cc_why, "%.500s", own.text);
        b->resolved = true;
    }
    return b->cc_status ? rt_fail(e, b->cc_status, "%s", b->cc_why) : E_OK;
}

/* ---- loading ---- */

static void *object_load(void *of, const char *path, char *why, size_t nwhy)
{
    (void)of;
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *s = h ? NULL : dlerror();
    if (!h)
        snprintf(why, nwhy, "%s", s ? s : "unknown reason");
    return h;
}

static void *object_symbol(void *of, void *unit, const char *name)
{
    (void)of;
    return dlsym(unit, name);
}

static void object_unload(void *of, void *unit)
{
    (void)of;
    dlclose(unit);
}

/* Loads a shared object as `unit`; -1 when the system refuses (why). Called with the lock held. */
static int unit_load(Builder *b, uint64_t unit, const char *path, char *why, size_t nwhy)
{
    int at = keymap_get(&b->loaded_of, unit);
    if (at >= 0)
        return at;
    void *h = b->tools.load(b->tools.of, path, why, nwhy);
    if (!h)
        return -1;
    if (!array_room((void **)&b->loaded, b->nloaded, &b->cap_loaded, sizeof *b->loaded) ||
        !keymap_put(&b->loaded_of, unit, b->nloaded)) {
        b->tools.unload(b->tools.of, h);
        snprintf(why, nwhy, "no memory");
        return -1;
    }
    b->loaded[b->nloaded] = (Loaded){ unit, h };
    return b->nloaded++;
}

/* Remembers the function of a kernel in a loaded unit; NULL when it has none of that name or memory is
 * short. */
static KernelFn kernel_bind(Builder *b, int unit, uint64_t key, const char *name)
{
    int at = keymap_get(&b->fn_of, key);
    if (at >= 0)
        return b->fn[at];
    KernelFn fn = (KernelFn)(uintptr_t)b->tools.symbol(b->tools.of, b->loaded[unit].handle, name);
    if (!fn || !array_room((void **)&b->fn, b->nfn, &b->cap_fn, sizeof *b->fn) ||
        !keymap_put(&b->fn_of, key, b->nfn))
        return NULL;
    return b->fn[b->nfn++] = fn;
}

static KernelFn kernel_on_disk(Builder *b, uint64_t key, const char *name)
{
    uint64_t unit;
    char path[CACHE_PATH], why[256];
    if (!cache_unit(&b->cache, key, &unit))
        return NULL;
    int at = keymap_get(&b->loaded_of, unit);
    if (at < 0 && cache_check(&b->cache, unit, path)) {
        at = unit_load(b, unit, path, why, sizeof why);
        if (at < 0)
            unlink(path);
    }
    return at < 0 ? NULL : kernel_bind(b, at, key, name);
}

/* ---- compiling ---- */

typedef struct Item {
    int text, unit;
    uint64_t key;
    double cost;
} Item; /* a kernel to be compiled */
typedef struct Unit {
    uint64_t key;
    double cost;
    int items;
    char src[CACHE_PATH], so[CACHE_PATH];
    const char *argv[MAX_WORDS + 16];
} Unit;

static int item_dearer(const void *pa, const void *pb)
{
    const Item *a = pa, *b = pb;
    return a->cost != b->cost ? (a->cost > b->cost ? -1 : 1) : a->text - b->text;
}

static int item_order(const void *pa, const void *pb)
{
    const Item *a = pa, *b = pb;
    return a->unit != b->unit ? a->unit - b->unit : a->text - b->text;
}

/* The dearest first, each to the unit with the least to do; then in the order of units. Sets the units'
 * keys. */
static void units_balance(Unit *u, int nu, Item *item, int n)
{
    qsort(item, (size_t)n, sizeof *item, item_dearer);
    for (int i = 0; i < n; i++) {
        int best = 0;
        for (int j = 1; j < nu; j++)
            if (u[j].cost < u[best].cost)
                best = j;
        item[i].unit = best;
        u[best].cost += item[i].cost;
        u[best].items++;
    }
    qsort(item, (size_t)n, sizeof *item, item_order);
    for (int i = 0; i < n; i++)
        u[item[i].unit].key = hash_bytes(&item[i].key, sizeof item[i].key, u[item[i].unit].key);
}

/* #line names the kernel in the compiler's messages. */
static bool unit_write(const char *path, const char *prelude, const KernelText *k, const Item *item, int n)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return false;
    fprintf(f, "#line 1 \"prelude\"\n");
    fputs(prelude, f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "\n#line 1 \"%s\"\n", k[item[i].text].name);
        fputs(k[item[i].text].text, f);
    }
    fputc('\n', f);
    bool ok = !ferror(f);
    return fclose(f) == 0 && ok;
}

static bool no_space(const char *out)
{
    return strstr(out, "No space left") || strstr(out, "quota exceeded") ||
           strstr(out, "Read-only file system");
}

/* The first line of the compiler's output that tells of an error. */
static Status compile_failed(const Builder *b, const Proc *p, RtError *e)
{
    const char *line = strstr(p->out, "error");
    if (!line)
        line = p->out;
    while (line > p->out && line[-1] != '\n')
        line--;
    int len = (int)strcspn(line, "\n");
    if (!len)
        return rt_fail(e, E_COMPILE, "%s failed with status %d and no message", b->cc_path, p->status);
    return rt_fail(e, E_COMPILE, "%.*s (%s)", len < 700 ? len : 700, line, b->cc_text);
}

/* One attempt in one work folder. *full: it failed for want of room there. */
static Status units_compile(Builder *b, const char *work, const char *prelude, const KernelText *k, Unit *u,
                            Proc *p, int nu, Item *item, int jobs, volatile int *cancel, bool *full,
                            RtError *e)
{
    *full = false;
    for (int i = 0, at = 0; i < nu; at += u[i++].items) {
        int n = 0;
        if ((size_t)snprintf(u[i].src, CACHE_PATH, "%s/%016" PRIx64 ".c", work, u[i].key) >= CACHE_PATH ||
            (size_t)snprintf(u[i].so, CACHE_PATH, "%s/%016" PRIx64 ".so", work, u[i].key) >= CACHE_PATH ||
            !unit_write(u[i].src, prelude, k, item + at, u[i].items)) {
            *full = true;
            return rt_fail(e, E_IO, "cannot write kernel source to %.900s", u[i].src);
        }
        for (int j = 0; j < b->nargv; j++)
            u[i].argv[n++] = b->argv[j];
        u[i].argv[n++] = "-o";
        u[i].argv[n++] = u[i].so;
        u[i].argv[n++] = u[i].src;
        for (int j = 0; j < b->nlibs; j++)
            u[i].argv[n++] = b->libs[j];
        u[i].argv[n] = NULL;
        p[i].argv = u[i].argv;
    }
    Status st = proc_run(p, nu, jobs, b->seconds, work, cancel, e);
    for (int i = 0; i < nu && st == E_COMPILE; i++)
        if (p[i].status > 0) {
            *full = no_space(p[i].out);
            return compile_failed(b, &p[i], e);
        }
    return st;
}

/* Loads what was compiled, then puts it into the cache. *barred: the file system does not allow code to run. */
static Status units_take(Builder *b, const char *work, const KernelText *k, const Unit *u, int nu,
                         const Item *item, bool keep, bool *barred, RtError *e)
{
    char why[512];
    Status st = E_OK;
    pthread_mutex_lock(&b->lock);
    for (int i = 0, at = 0; i < nu && !st; at += u[i++].items) {
        int unit = unit_load(b, u[i].key, u[i].so, why, sizeof why);
        if (unit < 0) {
            *barred = strstr(why, "failed to map segment");
            st = rt_fail(e, E_COMPILE, "a compiled kernel cannot be loaded: %s", why);
        }
        for (int j = 0; j < u[i].items && !st; j++)
            if (!kernel_bind(b, unit, item[at + j].key, k[item[at + j].text].name))
                st = rt_fail(e, E_COMPILE, "kernel text '%s' defines no function of that name",
                             k[item[at + j].text].name);
    }
    pthread_mutex_unlock(&b->lock);
    for (int i = 0, at = 0; i < nu && !st && keep; at += u[i++].items) {
        keep = cache_store(&b->cache, u[i].so, u[i].key);
        for (int j = 0; j < u[i].items && keep; j++)
            keep = cache_link(&b->cache, work, item[at + j].key, u[i].key);
    }
    return st;
}

static Status build_missing(Builder *b, const char *prelude, const KernelText *k, Item *item, int n,
                            BuildStats *stats, volatile int *cancel, RtError *e)
{
    int nu = (n + MAX_UNIT - 1) / MAX_UNIT;
    nu = nu > b->jobs ? nu : n < b->jobs ? n : b->jobs;
    char work[CACHE_PATH], why[256];
    Status st = E_OK;
    Unit *u = block_alloc((size_t)nu * sizeof *u);
    Proc *p = block_alloc((size_t)nu * sizeof *p);
    if (!u || !p) {
        st = rt_fail(e, E_NOMEM, "no memory to compile %d kernels", n);
        goto done;
    }
    memset(u, 0, (size_t)nu * sizeof *u);
    units_balance(u, nu, item, n);
    for (int apart = 0; apart < 2; apart++) {
        bool full = false;
        if (!work_make(&b->cache, apart, work, why, sizeof why)) {
            st = rt_fail(e, E_IO, "%s", why);
            break;
        }
        st = units_compile(b, work, prelude, k, u, p, nu, item, b->jobs, cancel, &full, e);
        if (!st)
            st = units_take(b, work, k, u, nu, item, !apart, &full, e);
        work_remove(work);
        if (!full)
            break;
    }
    if (!st) {
        stats->compiled += n;
        stats->processes += nu;
        cache_trim(&b->cache);
    }
done:
    block_free(u);
    block_free(p);
    return st;
}

/* ---- the public part ---- */

Status builder_open(Builder **out, const Options *opt, const Toolchain *tools, RtError *e)
{
    *out = NULL;
    Builder *b = block_alloc(sizeof *b);
    if (!b)
        return rt_fail(e, E_NOMEM, "no memory for a builder");
    memset(b, 0, sizeof *b);
    b->own_tools = !tools;
    b->tools =
        tools ? *tools : (Toolchain){ .load = object_load, .symbol = object_symbol, .unload = object_unload };
    Status st = tools ? E_OK : isa_choose(b, opt->isa, e);
    if (!st && opt->cc && strlen(opt->cc) >= sizeof b->want_cc)
        st = rt_fail(e, E_INVALID, "option cc is %zu characters long", strlen(opt->cc));
    if (!st && pthread_mutex_init(&b->lock, NULL))
        st = rt_fail(e, E_NOMEM, "no memory for a lock");
    if (st) {
        block_free(b);
        return st;
    }
    snprintf(b->want_cc, sizeof b->want_cc, "%s", opt->cc ? opt->cc : "");
    b->jobs = opt->jobs > 0 ? opt->jobs : cpu_count();
    b->seconds = opt->compile_seconds > 0 ? opt->compile_seconds : 1e9;
    cache_open(&b->cache, opt);
    *out = b;
    return E_OK;
}

void builder_close(Builder *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->nloaded; i++)
        b->tools.unload(b->tools.of, b->loaded[i].handle);
    block_free(b->loaded);
    block_free(b->fn);
    block_free(b->fn_of.key);
    block_free(b->loaded_of.key);
    pthread_mutex_destroy(&b->lock);
    block_free(b);
}

const char *builder_isa(Builder *b) { return b->isa->name; }

const char *builder_compiler(Builder *b, RtError *e)
{
    pthread_mutex_lock(&b->lock);
    Status st = compiler_need(b, e);
    pthread_mutex_unlock(&b->lock);
    return st ? NULL : b->cc_text;
}

const char *builder_command(Builder *b) { return builder_compiler(b, NULL) ? b->command : "cc"; }

/* The key of a kernel: all that its machine code depends on. */
static uint64_t kernel_key(const KernelText *k, uint64_t prelude)
{
    uint64_t h[3] = { prelude, k->key ? k->key : hash_bytes(k->text, strlen(k->text), 0),
                      hash_bytes(k->name, strlen(k->name), 0) };
    return hash_bytes(h, sizeof h, 0);
}

/* Numbers the distinct kernels: first[j] is the text of the j-th, which[i] the number of text i. Returns
 * their count, or -1 with an error. */
static int kernels_unique(int n, const KernelText *k, uint64_t prelude, uint64_t *key, int *first, int *which,
                          RtError *e)
{
    KeyMap seen = { 0 }, names = { 0 };
    int m = 0;
    for (int i = 0; i < n; i++) {
        uint64_t h = kernel_key(&k[i], prelude);
        which[i] = keymap_get(&seen, h);
        if (which[i] >= 0)
            continue;
        uint64_t hn = hash_bytes(k[i].name, strlen(k[i].name), 1);
        if (keymap_get(&names, hn) >= 0) {
            rt_fail(e, E_INVALID, "two different kernel texts are named '%s'", k[i].name);
            m = -1;
            break;
        }
        if (!keymap_put(&seen, h, m) || !keymap_put(&names, hn, m)) {
            rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
            m = -1;
            break;
        }
        key[m] = h;
        first[m] = i;
        which[i] = m++;
    }
    block_free(seen.key);
    block_free(names.key);
    return m;
}

static Status kernels_get(Builder *b, const char *prelude, int n, const KernelText *k, bool compile,
                          KernelFn *out, BuildStats *stats, volatile int *cancel, RtError *e)
{
    BuildStats own = { .asked = n };
    double start = time_now();
    Status st = E_OK;
    size_t room = (size_t)(n > 0 ? n : 1);
    int m = 0, missing = 0;
    uint64_t *key = block_alloc(room * sizeof *key);
    int *first = block_alloc(2 * room * sizeof *first), *which = first ? first + room : NULL;
    Item *item = block_alloc(room * sizeof *item);
    if (!prelude)
        prelude = "";
    if (!key || !first || !item) {
        st = rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
        goto done;
    }
    if (proc_cancelled(cancel)) {
        st = rt_fail(e, E_CANCELLED, "stopped on request, before kernels were built");
        goto done;
    }
    pthread_mutex_lock(&b->lock);
    st = compiler_need(b, e);
    if (!st && (m = kernels_unique(n, k, hash_bytes(prelude, strlen(prelude), b->identity), key, first, which,
                                   e)) < 0)
        st = e ? e->code : E_INVALID;
    for (int j = 0; j < m && !st; j++) {
        const KernelText *t = &k[first[j]];
        int at = keymap_get(&b->fn_of, key[j]);
        if (at >= 0)
            own.from_memory++;
        else if (kernel_on_disk(b, key[j], t->name))
            own.from_disk++;
        else
            item[missing++] = (Item){ .text = first[j],
                                      .key = key[j],
                                      .cost = t->cost > 0 ? t->cost : (double)strlen(t->text) };
    }
    pthread_mutex_unlock(&b->lock);
    if (st)
        goto done;
    own.unique = m;
    if (!compile)
        own.missing = missing;
    else if (missing && (st = build_missing(b, prelude, k, item, missing, &own, cancel, e)))
        goto done;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < n; i++) {
        int at = keymap_get(&b->fn_of, key[which[i]]);
        out[i] = at >= 0 ? b->fn[at] : NULL;
    }
    pthread_mutex_unlock(&b->lock);
done:
    own.seconds = time_now() - start;
    if (stats)
        *stats = own;
    block_free(item);
    block_free(first);
    block_free(key);
    return st;
}

Status builder_build(Builder *b, const char *prelude, int n, const KernelText *k, KernelFn *out,
                     BuildStats *stats, volatile int *cancel, RtError *e)
{
    return kernels_get(b, prelude, n, k, true, out, stats, cancel, e);
}

Status builder_find(Builder *b, const char *prelude, int n, const KernelText *k, KernelFn *out,
                    BuildStats *stats, RtError *e)
{
    return kernels_get(b, prelude, n, k, false, out, stats, NULL, e);
}

/* ---- one call of the compiler ---- */

Status compiler_run(const Options *opt, int n, const char *const *arg, volatile int *cancel, RtError *e)
{
    Builder *b = NULL;
    Proc *p = NULL;
    Status st = builder_open(&b, opt, NULL, e);
    if (st)
        return st;
    if ((st = compiler_find(b, e)))
        goto done;
    if (b->nargv + n >= MAX_WORDS) {
        st = rt_fail(e, E_INVALID, "%d arguments for the compiler", n);
        goto done;
    }
    for (int i = 0; i < n; i++)
        argv_add(b, arg[i]);
    if (!(p = block_alloc(sizeof *p))) {
        st = rt_fail(e, E_NOMEM, "no memory for a process");
        goto done;
    }
    memset(p, 0, sizeof *p);
    p->argv = b->argv;
    if ((st = proc_run(p, 1, 1, 10 * b->seconds, NULL, cancel, e)) == E_COMPILE)
        st = rt_fail(e, E_COMPILE, "%s: %.800s", b->cc_path, p->out[0] ? p->out : "failed");
done:
    block_free(p);
    builder_close(b);
    return st;
}

/* ---- one shared object ---- */

Status object_open(const char *path, const char *symbol, void **handle, void **fn, RtError *e)
{
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle)
        return rt_fail(e, E_DEVICE, "%.900s", dlerror());
    *fn = dlsym(*handle, symbol);
    if (*fn)
        return E_OK;
    object_close(*handle);
    *handle = NULL;
    return rt_fail(e, E_FORMAT, "%.500s has no function %s", path, symbol);
}

void object_close(void *handle)
{
    if (handle)
        dlclose(handle);
}
