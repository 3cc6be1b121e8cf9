/* One NVIDIA card through the driver's library, which is loaded at run time: its context, its memory, and what its errors mean.
 *
 * Results that stay on the card are asked for and given back with every call, and the driver takes long over that: so a few blocks of memory whose size is known
 * are kept for the next who wants as much, till somebody needs the room. A kernel that traps makes the context useless for the rest of the process; the card is then
 * lost, every call says so, and nothing else of the program is harmed. */
#include "rt/rt.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CU_MULTIPROCESSORS = 16, CU_MAJOR = 75, CU_MINOR = 76, CU_SHARED_MOST = 97 }; /* device facts */
enum { CU_OUT_OF_MEMORY = 2, CU_NO_DEVICE = 100, CU_IN_USE = 46 };
#define DRIVER_LEAST 12000
#define ROOMS_FREE   4 /* blocks that are kept when they are given back, if they are not large: */
#define ROOM_PART    32 /* the device's memory has so many */

/* ---- errors ---- */

/* After these the context is of no use any more. */
static bool code_is_final(int code)
{
    switch (code) {
    case 214: case 700: case 702: case 710: case 714: case 715: case 716: case 717: case 718: case 719: case 999: return true;
    default: return false;
    }
}

Status card_fail(CudaCard *d, RtError *e, int code, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (d->cu.error_name)
        d->cu.error_name(code, &name);
    if (d->cu.error_text)
        d->cu.error_text(code, &text);
    char line[400];
    snprintf(line, sizeof line, "%s: %s: %s (%s)", d->name[0] ? d->name : "cuda", what, name ? name : "unknown", text ? text : "?");
    if (code_is_final(code)) {
        pthread_mutex_lock(&d->lock);
        if (!d->lost) {
            d->lost = true;
            snprintf(d->why, sizeof d->why, "%s; the device is lost to this process", line);
        }
        pthread_mutex_unlock(&d->lock);
        return rt_fail(e, E_DEVICE, "%s", d->why);
    }
    return rt_fail(e, code == CU_OUT_OF_MEMORY ? E_NOMEM : E_DEVICE, "%s", line);
}

Status card_enter(CudaCard *d, RtError *e)
{
    ASSERT(d->there);
    pthread_mutex_lock(&d->lock);
    bool lost = d->lost;
    pthread_mutex_unlock(&d->lock);
    if (lost)
        return rt_fail(e, E_DEVICE, "%s", d->why);
    int code = d->cu.context_push(d->context);
    return code ? card_fail(d, e, code, "its context cannot be entered") : E_OK;
}

void card_leave(CudaCard *d)
{
    void *old;
    d->cu.context_pop(&old);
}

/* ---- memory: blocks that are used again ---- */

static CudaRoom *room_of(CudaCard *d, uint64_t at)
{
    for (int i = 0; i < CUDA_ROOMS; i++)
        if (d->room[i].at == at)
            return &d->room[i];
    return NULL;
}

/* A free block of exactly n bytes, or 0. */
static uint64_t room_take(CudaCard *d, size_t n)
{
    uint64_t at = 0;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < CUDA_ROOMS && !at; i++)
        if (d->room[i].at && d->room[i].free && d->room[i].n == n) {
            d->room[i].free = false;
            at = d->room[i].at;
        }
    pthread_mutex_unlock(&d->lock);
    return at;
}

/* Remembers the size of a new block, if it is one to be kept and there is a place. */
static void room_note(CudaCard *d, uint64_t at, size_t n, size_t total)
{
    pthread_mutex_lock(&d->lock);
    CudaRoom *r = n <= total / ROOM_PART ? room_of(d, 0) : NULL;
    if (r)
        *r = (CudaRoom){ at, n, false };
    pthread_mutex_unlock(&d->lock);
}

/* Keeps a block for the next who wants as much; false: it is to be freed, and forgotten. */
static bool room_keep(CudaCard *d, uint64_t at)
{
    pthread_mutex_lock(&d->lock);
    CudaRoom *r = room_of(d, at);
    int n = 0;
    for (int i = 0; i < CUDA_ROOMS; i++)
        n += d->room[i].at && d->room[i].free;
    bool keep = r && n < ROOMS_FREE && !d->lost;
    if (r && keep)
        r->free = true;
    else if (r)
        *r = (CudaRoom){ 0 };
    pthread_mutex_unlock(&d->lock);
    return keep;
}

/* In the device's context. */
static void rooms_drop(CudaCard *d)
{
    for (int i = 0; i < CUDA_ROOMS; i++) {
        pthread_mutex_lock(&d->lock);
        uint64_t at = d->room[i].free ? d->room[i].at : 0;
        if (at)
            d->room[i] = (CudaRoom){ 0 };
        pthread_mutex_unlock(&d->lock);
        if (at)
            d->cu.release(at);
    }
}

Status card_memory(CudaCard *d, size_t n, uint64_t *at, size_t *of, RtError *e)
{
    Status st = E_OK;
    size_t left = 0, total = 0;
    *at = 0;
    CUDA_CHECK(memory_info(&left, &total), "its memory cannot be asked for");
    if (n > left) {
        rooms_drop(d);
        CUDA_CHECK(memory_info(&left, &total), "its memory cannot be asked for");
    }
    if (n > left)
        return rt_fail(e, E_NOMEM, "%s: %zu bytes are wanted, %zu of %zu are free", d->name, n, left, total);
    CUDA_CHECK(alloc(at, n ? n : 1), "memory cannot be allocated");
    if (of)
        *of = total;
done:
    return st;
}

Status card_alloc(CudaCard *d, size_t n, void **out, RtError *e)
{
    uint64_t at = 0;
    size_t total = 0;
    *out = NULL;
    Status st = card_enter(d, e);
    if (st)
        return st;
    if ((at = room_take(d, n)))
        CUDA_CHECK(context_wait(), "its work cannot be waited for"); /* who had the block before may have given it work, in whatever stream */
    else if ((st = card_memory(d, n, &at, &total, e)))
        goto done;
    else
        room_note(d, at, n, total);
    *out = (void *)(uintptr_t)at;
done:
    card_leave(d);
    return st;
}

void card_release(CudaCard *d, void *p)
{
    if (!p || room_keep(d, (uint64_t)(uintptr_t)p) || card_enter(d, NULL))
        return;
    d->cu.release((uint64_t)(uintptr_t)p);
    card_leave(d);
}

/* ---- open and close ---- */

static Status driver_load(CudaCard *d, RtError *e)
{
    static const struct { const char *symbol; size_t at; } calls[] = {
#define CU(name, symbol, args) { symbol, offsetof(CudaApi, name) },
#include "rt/cuda.def"
#undef CU
    };
    d->cu.lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->cu.lib)
        return rt_fail(e, E_DEVICE, "no NVIDIA driver: %s", dlerror());
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        void *f = dlsym(d->cu.lib, calls[i].symbol);
        if (!f)
            return rt_fail(e, E_DEVICE, "the NVIDIA driver is too old: it has no %s; one for CUDA %d.%d or newer is wanted", calls[i].symbol,
                           DRIVER_LEAST / 1000, DRIVER_LEAST % 1000 / 10);
        memcpy((char *)&d->cu + calls[i].at, &f, sizeof f);
    }
    return E_OK;
}

Status card_open(CudaCard *d, RtError *e)
{
    Status st = driver_load(d, e);
    int count = 0, major = 0, minor = 0;
    if (st)
        return st;
    int code = d->cu.init(0);
    if (code == CU_NO_DEVICE)
        return rt_fail(e, E_DEVICE, "no NVIDIA GPU on this machine");
    if (code)
        return card_fail(d, e, code, "the driver cannot be started");
    CUDA_CHECK(driver_version(&d->driver), "the driver's version cannot be read");
    if (d->driver < DRIVER_LEAST)
        return rt_fail(e, E_DEVICE, "the NVIDIA driver is too old: it serves CUDA %d.%d, %d.%d or newer is wanted", d->driver / 1000, d->driver % 1000 / 10,
                       DRIVER_LEAST / 1000, DRIVER_LEAST % 1000 / 10);
    CUDA_CHECK(device_count(&count), "devices cannot be counted");
    if (d->index >= count)
        return rt_fail(e, E_DEVICE, "there is no cuda:%d: this machine has %d NVIDIA GPU%s", d->index, count, count == 1 ? "" : "s");
    CUDA_CHECK(device_get(&d->device, d->index), "the device cannot be had");
    CUDA_CHECK(device_name(d->name, (int)sizeof d->name - 1, d->device), "the device's name cannot be read");
    CUDA_CHECK(device_fact(&major, CU_MAJOR, d->device), "the device cannot be asked");
    CUDA_CHECK(device_fact(&minor, CU_MINOR, d->device), "the device cannot be asked");
    CUDA_CHECK(device_fact(&d->multiprocessors, CU_MULTIPROCESSORS, d->device), "the device cannot be asked");
    CUDA_CHECK(device_fact(&d->shared_most, CU_SHARED_MOST, d->device), "the device cannot be asked");
    snprintf(d->arch, sizeof d->arch, "sm_%d%d%s", major, minor, major >= 9 ? "a" : "");
    code = d->cu.context_take(&d->context, d->device);
    if (code == CU_IN_USE)
        return rt_fail(e, E_DEVICE, "%s: another process has it for itself alone", d->name);
    if (code)
        return card_fail(d, e, code, "no context can be had");
    d->there = true;
done:
    return st;
}

void card_clear(CudaCard *d)
{
    bool in = d->context && !card_enter(d, NULL);
    card_lanes_drop(d);
    if (in) {
        rooms_drop(d);
        card_leave(d);
    }
}

void card_close(CudaCard *d)
{
    if (d->context)
        d->cu.context_give(d->device);          /* the driver's library stays: it does not like to be unloaded */
}
