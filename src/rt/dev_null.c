/* A device that runs nothing: memory of its own, so that what is staged for a device is staged here too, and results of which only the sizes mean something.
 * With it a model can be planned, printed and placed where neither a compiler nor a card is. */
#include "rt/rt.h"

#include <inttypes.h>
#include <string.h>

struct Device { int unused; };

static Status null_open(Device **out, const Options *opt, RtError *e)
{
    (void)opt;
    if (!(*out = block_alloc(sizeof **out))) return rt_fail(e, E_NOMEM, "no memory for a device");
    return E_OK;
}

static void null_close(Device *d) { block_free(d); }
static const char *null_describe(Device *d) { (void)d; return "no device: nothing runs, results mean nothing"; }
static const char *null_isa(Device *d) { (void)d; return "plain"; }
static const char *null_command(Device *d) { (void)d; return "(nothing is compiled)"; }

static Status null_alloc(Device *d, size_t n, void **out, RtError *e)
{
    (void)d;
    int64_t total = memory_total();
    *out = NULL;
    if (total > 0 && n > (size_t)total) return rt_fail(e, E_NOMEM, "%zu bytes are wanted, the machine has %" PRId64, n, total);
    if (!(*out = block_alloc(n))) return rt_fail(e, E_NOMEM, "no memory for %zu bytes", n);
    memset(*out, 0, n);
    return E_OK;
}

static void null_release(Device *d, void *p) { (void)d; block_free(p); }

static Status null_copy(Device *d, void *dst, const void *src, size_t n, RtError *e)
{
    (void)d, (void)e;
    if (n) memmove(dst, src, n);
    return E_OK;
}

static Status null_build(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, volatile int *cancel, RtError *e)
{
    (void)d, (void)prelude, (void)k, (void)cancel, (void)e;
    for (int i = 0; i < n; i++) out[i] = NULL;
    if (stats) *stats = (BuildStats){ .asked = n, .unique = n };
    return E_OK;
}

/* Functions of the host run, since they may be what a program waits for; kernels do not. */
static Status null_run(Device *d, int n, const Launch *list, int threads, volatile int *cancel, double *seconds, RtError *e)
{
    (void)d, (void)threads;
    for (int i = 0; i < n; i++) {
        if (seconds) seconds[i] = 0;
        if (proc_cancelled(cancel)) return rt_fail(e, E_CANCELLED, "stopped on request");
        if (!list[i].host) continue;
        RtError own = { .launch = list[i].id };
        list[i].host(list[i].host_arg, &own);
        if (!own.code) continue;
        if (e) *e = own;
        return own.code;
    }
    return E_OK;
}

const DeviceApi dev_null = {
    .name = "null",
    .place = 12,
    .open = null_open, .close = null_close, .describe = null_describe, .isa = null_isa, .command = null_command,
    .alloc = null_alloc, .release = null_release, .write = null_copy, .read = null_copy, .build = null_build, .run = null_run,
};
