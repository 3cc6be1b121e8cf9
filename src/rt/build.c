/* Kernel texts to functions: keys the texts, looks them up in memory and on disk, and compiles the rest.
 *
 * Texts become one translation unit for each processor, since starting a compiler costs as much as one small kernel. A shared object is
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
#include <unistd.h>

#define MAX_UNIT 64 /* kernels of a unit, so that none comes near the limit on time */

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
    pthread_mutex_t lock; /* over everything below but cache, jobs and cc.isa */
    Toolchain tools;
    Cache cache;
    Compiler cc;
    int jobs;
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
    bool quick;
} Item; /* a kernel to be compiled */
typedef struct Unit {
    uint64_t key;
    double cost;
    int items;
    bool quick;
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

/* Units for n kernels, `wanted` if that can be: none has more than MAX_UNIT, and none is empty. */
static int units_count(int wanted, int n)
{
    int least = (n + MAX_UNIT - 1) / MAX_UNIT;
    return wanted < least ? least : wanted < n ? wanted : n;
}

/* Units of each kind: one if there is little to do, else as its part of the work demands; of few processors each takes both kinds.
 * The kind with less to do comes first; a unit that waits for its only one gets less. Returns how many there are; u NULL: that only. */
enum { FEW_JOBS = 4 };
static int units_plan(Unit *u, const Item *item, int n, int jobs)
{
    double cost[2] = { 0 };
    int count[2] = { 0 }, nu = 0;
    for (int i = 0; i < n; i++) {
        cost[item[i].quick] += item[i].cost;
        count[item[i].quick]++;
    }
    const bool less = cost[true] < cost[false];
    for (int j = 0; j < 2; j++) {
        const bool kind = j ? !less : less;
        const double share = jobs * cost[kind] / (cost[0] + cost[1]);
        const int wanted = share < 0.5 ? 1 : jobs <= FEW_JOBS ? jobs : (int)(share + 0.5);
        const int units = count[kind] ? units_count(wanted, count[kind]) : 0;
        for (int i = 0; i < units && u; i++)
            u[nu + i].quick = kind;
        nu += units;
    }
    if (u && nu == jobs + 1)
        u[nu - 1].cost = cost[less];
    return nu;
}

/* The dearest first, each to the unit of its kind with the least to do; then in the order of units. Sets the
 * units' keys. */
static void units_balance(Unit *u, int nu, Item *item, int n)
{
    qsort(item, (size_t)n, sizeof *item, item_dearer);
    for (int i = 0; i < n; i++) {
        int best = -1;
        for (int j = 0; j < nu; j++)
            if (u[j].quick == item[i].quick && (best < 0 || u[j].cost < u[best].cost))
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
    const KernelText **in = block_alloc((size_t)n * sizeof *in);
    for (int i = 0; i < n && in; i++)
        in[i] = &k[item[i].text];
    char *needed = in ? prelude_needed(prelude, n, in) : NULL;
    fprintf(f, "#line 1 \"prelude\"\n%s", needed ? needed : prelude);
    block_free(needed);
    block_free(in);
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
        return rt_fail(e, E_COMPILE, "%s failed with status %d and no message", b->cc.path, p->status);
    return rt_fail(e, E_COMPILE, "%.*s (%s)", len < 700 ? len : 700, line, b->cc.text);
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
        for (int j = 0; j < b->cc.nargv; j++)
            u[i].argv[n++] = b->cc.argv[j];
        if (u[i].quick)
            u[i].argv[n++] = b->cc.quick;
        u[i].argv[n++] = "-o";
        u[i].argv[n++] = u[i].so;
        u[i].argv[n++] = u[i].src;
        for (int j = 0; j < b->cc.nlibs; j++)
            u[i].argv[n++] = b->cc.libs[j];
        u[i].argv[n] = NULL;
        p[i].argv = u[i].argv;
    }
    Status st = proc_run(p, nu, jobs, b->cc.seconds, work, cancel, e);
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
    const int nu = units_plan(NULL, item, n, b->jobs);
    char work[CACHE_PATH], why[256];
    Status st = E_OK;
    Unit *u = block_alloc((size_t)nu * sizeof *u);
    Proc *p = block_alloc((size_t)nu * sizeof *p);
    if (!u || !p) {
        st = rt_fail(e, E_NOMEM, "no memory to compile %d kernels", n);
        goto done;
    }
    memset(u, 0, (size_t)nu * sizeof *u);
    units_plan(u, item, n, b->jobs);
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
    b->tools =
        tools ? *tools : (Toolchain){ .load = object_load, .symbol = object_symbol, .unload = object_unload };
    Status st = compiler_open(&b->cc, opt, tools ? &b->tools : NULL, &b->cache, e);
    if (!st && pthread_mutex_init(&b->lock, NULL))
        st = rt_fail(e, E_NOMEM, "no memory for a lock");
    if (st) {
        block_free(b);
        return st;
    }
    b->jobs = opt->jobs > 0 ? opt->jobs : cpu_count();
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

const char *builder_isa(Builder *b) { return b->cc.isa->name; }

const char *builder_compiler(Builder *b, RtError *e)
{
    pthread_mutex_lock(&b->lock);
    Status st = compiler_need(&b->cc, e);
    pthread_mutex_unlock(&b->lock);
    return st ? NULL : b->cc.text;
}

const char *builder_command(Builder *b) { return builder_compiler(b, NULL) ? b->cc.command : "cc"; }

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
    st = compiler_need(&b->cc, e);
    if (!st && (m = kernels_unique(n, k, hash_bytes(prelude, strlen(prelude), b->cc.identity), key, first,
                                   which, e)) < 0)
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
                                      .cost = t->cost > 0 ? t->cost : (double)strlen(t->text),
                                      .quick = t->quick && b->cc.quick };
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
