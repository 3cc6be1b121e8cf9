/* NVIDIA GPUs as a device: kernels, and what a target of the name cuda is.
 *
 * Kernels come from the builder with NVRTC as its toolchain: a unit is a cubin, loaded as a module. Memory is cuda.c's, runs are cuda_run.c's.
 *
 * A target "cuda:sm_90a" needs no card and no driver: kernels are compiled and reported, and don't run (as on the device null). */
#include "rt/rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CU_FUNC_OWN_SHARED = 1, CU_FUNC_LOCAL = 3, CU_FUNC_REGISTERS = 4 };

typedef struct CudaUnit {
    void *module; /* NULL without a card */
    const char *log;
    struct CudaKernel *kernels;
    size_t n;
    char text[]; /* the cubin, the log, 0 */
} CudaUnit;

struct Device {
    CudaCard card;
    Builder *builder;
    Nvrtc *nvrtc;
    Toolchain tools;
    char about[512];
};

/* ---- units and kernels ---- */

static void *unit_open(void *of, const char *path, char *why, size_t nwhy)
{
    Device *d = of;
    File f;
    if (file_map(path, &f, why, nwhy))
        return NULL;
    CudaUnit *u = block_alloc(sizeof *u + f.size + 1);
    if (!u) {
        snprintf(why, nwhy, "no memory");
        goto done;
    }
    memset(u, 0, sizeof *u);
    memcpy(u->text, f.data, f.size);
    u->text[f.size] = 0;
    u->log = nvrtc_log(u->text, f.size);
    if (d->card.there) {
        RtError e;
        if (card_enter(&d->card, &e)) {
            snprintf(why, nwhy, "%s", e.text);
            block_free(u), u = NULL;
            goto done;
        }
        int code = d->card.cu.module_load(&u->module, u->text);
        card_leave(&d->card);
        if (code) {
            card_fail(&d->card, &e, code, "a compiled kernel is refused");
            snprintf(why, nwhy, "%s; the driver serves CUDA %d.%d", e.text, d->card.driver / 1000, d->card.driver % 1000 / 10);
            block_free(u), u = NULL;
        }
    }
done:
    file_unmap(&f);
    return u;
}

static void *unit_symbol(void *of, void *unit, const char *name)
{
    Device *d = of;
    CudaUnit *u = unit;
    CudaKernel *k = block_alloc(sizeof *k);
    if (!k)
        return NULL;
    memset(k, 0, sizeof *k);
    bool ok = nvrtc_facts(u->log, name, &k->facts);
    if (d->card.there) {
        ok = !card_enter(&d->card, NULL);
        if (ok) {
            ok = !d->card.cu.module_function(&k->function, u->module, name);
            if (ok && !k->facts.registers)        /* NVRTC remembers what it compiled, and says nothing then */
                ok = !d->card.cu.function_get(&k->facts.registers, CU_FUNC_REGISTERS, k->function) && !d->card.cu.function_get(&k->facts.shared, CU_FUNC_OWN_SHARED, k->function)
                    && !d->card.cu.function_get(&k->facts.stack, CU_FUNC_LOCAL, k->function);
            card_leave(&d->card);
        }
    }
    if (!ok) {
        block_free(k);
        return NULL;
    }
    snprintf(k->note, sizeof k->note, "%d registers, %d B shared, %d B stack, %d B spilled", k->facts.registers, k->facts.shared, k->facts.stack,
             k->facts.spill_stores + k->facts.spill_loads);
    k->next = u->kernels;
    return u->kernels = k;
}

static void unit_close(void *of, void *unit)
{
    Device *d = of;
    CudaUnit *u = unit;
    while (u->kernels) {
        CudaKernel *k = u->kernels;
        u->kernels = k->next;
        block_free(k);
    }
    if (u->module && !card_enter(&d->card, NULL)) {
        d->card.cu.module_free(u->module);
        card_leave(&d->card);
    }
    block_free(u);
}

/* What a multiprocessor holds, by architecture (CUDA's programming guide, table of technical specifications): threads, blocks, bytes of shared memory; registers are
 * 65,536 everywhere, given to warps by 256. Shared memory that a launch asks for is not counted: so many blocks at most. */
static const struct { int arch, threads, blocks, shared; } multiprocessors[] = {
    { 75, 1024, 16, 64 << 10 }, { 80, 2048, 32, 164 << 10 }, { 86, 1536, 16, 100 << 10 }, { 87, 1536, 16, 164 << 10 }, { 89, 1536, 24, 100 << 10 },
    { 90, 2048, 32, 228 << 10 }, { 100, 2048, 32, 228 << 10 }, { 103, 2048, 32, 228 << 10 }, { 120, 1536, 24, 100 << 10 },
};

static void note_occupancy(const Device *d, CudaKernel *k, const char *text)
{
    static const char bounds[] = "__launch_bounds__(";
    const char *at = strstr(text, bounds);
    int arch = atoi(d->card.arch + strlen("sm_")), threads = at ? atoi(at + sizeof bounds - 1) : 0;
    for (size_t i = 0; i < COUNT_OF(multiprocessors) && threads > 0 && !strchr(k->note, ':'); i++) {
        if (multiprocessors[i].arch != arch || k->facts.registers < 1)
            continue;
        int warps = (threads + 31) / 32, blocks = multiprocessors[i].blocks, registers = (k->facts.registers * 32 + 255) / 256 * 256;
        int by_registers = 65536 / registers / warps, by_threads = multiprocessors[i].threads / (warps * 32);
        int by_shared = k->facts.shared ? multiprocessors[i].shared / (k->facts.shared + 1024) : blocks;      /* the system takes 1 KiB of each block's */
        blocks = by_registers < blocks ? by_registers : blocks;
        blocks = by_threads < blocks ? by_threads : blocks;
        blocks = by_shared < blocks ? by_shared : blocks;
        size_t n = strlen(k->note);
        snprintf(k->note + n, sizeof k->note - n, "; occupancy: %d block%s of %d threads, %d %%", blocks, blocks == 1 ? "" : "s", threads,
                 blocks * warps * 32 * 100 / multiprocessors[i].threads);
    }
}

static Status cuda_build(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, volatile int *cancel,
                         RtError *e)
{
    KernelFn *fn = block_alloc((size_t)(n > 0 ? n : 1) * sizeof *fn);
    if (!fn)
        return rt_fail(e, E_NOMEM, "no memory to build %d kernels", n);
    Status st = builder_build(d->builder, prelude, n, k, fn, stats, cancel, e);
    for (int i = 0; i < n && !st; i++) {
        out[i] = (const Kernel *)(uintptr_t)fn[i];
        if (!k[i].note)
            continue;
        pthread_mutex_lock(&d->card.lock);
        note_occupancy(d, (CudaKernel *)(uintptr_t)fn[i], k[i].text);
        pthread_mutex_unlock(&d->card.lock);
        *k[i].note = ((const CudaKernel *)(uintptr_t)fn[i])->note;
    }
    block_free(fn);
    return st;
}

/* ---- memory and runs: the card's, or nobody's ---- */

static Status cuda_alloc(Device *d, size_t n, void **out, RtError *e)
{
    return d->card.there ? card_alloc(&d->card, n, out, e) : dev_null.alloc(NULL, n, out, e);
}

static void cuda_release(Device *d, void *p)
{
    if (d->card.there)
        card_release(&d->card, p);
    else
        dev_null.release(NULL, p);
}

static Status cuda_write(Device *d, void *dst, const void *src, size_t n, RtError *e)
{
    return d->card.there ? card_copy(&d->card, (uint64_t)(uintptr_t)dst, NULL, src, n, e) : dev_null.write(NULL, dst, src, n, e);
}

static Status cuda_read(Device *d, void *dst, const void *src, size_t n, RtError *e)
{
    return d->card.there ? card_copy(&d->card, (uint64_t)(uintptr_t)src, dst, NULL, n, e) : dev_null.read(NULL, dst, src, n, e);
}

static Status cuda_run(Device *d, int n, const Launch *list, int threads, volatile int *cancel, double *seconds, RtError *e)
{
    return d->card.there ? card_run(&d->card, n, list, cancel, seconds, e) : dev_null.run(NULL, n, list, threads, cancel, seconds, e);
}

static Status cuda_follow(Device *d, void *stream, RtError *e) { return card_follow(&d->card, stream, e); }

/* ---- open and close ---- */

static void cuda_close(Device *d)
{
    if (!d)
        return;
    card_clear(&d->card);
    builder_close(d->builder);
    nvrtc_close(d->nvrtc);
    card_close(&d->card);
    pthread_mutex_destroy(&d->card.lock);
    block_free(d);
}

/* "cuda", "cuda:1" or "cuda:sm_90a". */
static Status target_read(Device *d, const char *target, RtError *e)
{
    const char *s = target ? strchr(target, ':') : NULL;
    char *end;
    if (!s)
        return E_OK;
    if (!strncmp(++s, "sm_", 3)) {
        size_t digits = strspn(s + 3, "0123456789");
        if (digits < 2 || digits > 3 || (s[3 + digits] && strcmp(s + 3 + digits, "a") && strcmp(s + 3 + digits, "f")))
            return rt_fail(e, E_INVALID, "target is '%s', wanted an architecture such as cuda:sm_90a", target);
        snprintf(d->card.arch, sizeof d->card.arch, "%s", s);
        return E_OK;
    }
    long n = strtol(s, &end, 10);
    if (end == s || *end || n < 0 || n > 1023)
        return rt_fail(e, E_INVALID, "target is '%s', wanted cuda, cuda:N or cuda:sm_NN", target);
    d->card.index = (int)n;
    return E_OK;
}

static Status cuda_open(Device **out, const Options *opt, RtError *e)
{
    *out = NULL;
    Device *d = block_alloc(sizeof *d);
    if (!d)
        return rt_fail(e, E_NOMEM, "no memory for a device");
    memset(d, 0, sizeof *d);
    if (pthread_mutex_init(&d->card.lock, NULL)) {
        block_free(d);
        return rt_fail(e, E_NOMEM, "no memory for a lock");
    }
    d->card.graphs = opt->graph != 0;
    Status st = target_read(d, opt->target, e);
    if (!st && !d->card.arch[0])
        st = card_open(&d->card, e);
    if (!st)
        st = nvrtc_open(&d->nvrtc, opt, d->card.arch, e);
    if (!st) {
        d->tools = *nvrtc_tools(d->nvrtc);
        d->tools.of = d;
        d->tools.load = unit_open, d->tools.symbol = unit_symbol, d->tools.unload = unit_close;
        st = builder_open(&d->builder, opt, &d->tools, e);
    }
    if (st)
        cuda_close(d);
    else
        *out = d;
    return st;
}

static const char *cuda_describe(Device *d)
{
    const char *cc = builder_compiler(d->builder, NULL);
    pthread_mutex_lock(&d->card.lock);
    if (!d->about[0] && d->card.there)
        snprintf(d->about, sizeof d->about, "%s, %d multiprocessors, %s, driver for CUDA %d.%d, %.200s", d->card.name, d->card.multiprocessors, d->card.arch, d->card.driver / 1000,
                 d->card.driver % 1000 / 10, cc ? cc : "no NVRTC");
    else if (!d->about[0])
        snprintf(d->about, sizeof d->about, "no card: compiles for %s, nothing runs, results mean nothing; %.200s", d->card.arch, cc ? cc : "no NVRTC");
    pthread_mutex_unlock(&d->card.lock);
    return d->about;
}

static const char *cuda_isa(Device *d) { return d->card.arch; }
static int cuda_number(Device *d) { return d->card.index; }

static const char *cuda_command(Device *d) { return builder_command(d->builder); }

const DeviceApi dev_cuda = {
    .name = "cuda",
    .addresses = true,
    .place = 2,
    .number = cuda_number,
    .follow = cuda_follow,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .isa = cuda_isa,
    .command = cuda_command,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .write = cuda_write,
    .read = cuda_read,
    .build = cuda_build,
    .run = cuda_run,
};
