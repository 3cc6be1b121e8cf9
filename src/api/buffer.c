/* sn_buffer: memory on a program's device, and tensors of runs that lie in it. On devices without memory of their own (and for interpreted programs and packages, which
 * have no device) a buffer is memory of the host, and such a tensor is like any other. Else it is an address of the device (Tensor.far), which
 * kernels get as it is: see far_nodes() in instance.c. */
#include "api/api.h"

#include <string.h>

enum { VALUES_MOST = 4096 };            /* elements of an integer input that are read back, for shapes and branches */

struct sn_buffer {
    const DeviceApi *api; Device *device;            /* NULL: none, memory of the host */
    uint8_t *at; size_t bytes;
    bool own;
    sn_program *program;
};

static const Target *target_of(const sn_program *p) { return p->program ? program_target_of(p->program) : NULL; }
static bool on_host(const sn_buffer *b) { return !b->api || b->api->host_memory; }

typedef struct BufferCall { sn_program *p; void *address; size_t bytes; bool wrap; sn_buffer *made; } BufferCall;

static void make_guarded(Ctx *cx, void *arg)
{
    BufferCall *c = arg;
    api_need(cx, c->p, "program");
    const Target *t = target_of(c->p);
    if (c->wrap && t && !t->api->addresses) fail(cx, E_UNSUPPORTED, "memory of the device '%s' has no addresses that others could know", t->name);
    if (c->wrap && c->bytes) api_need(cx, c->address, "address");
    sn_buffer *b = block_alloc(sizeof *b);
    if (!b) fail(cx, E_NOMEM, "no memory for a buffer");
    *b = (sn_buffer){ .api = t ? t->api : NULL, .device = t ? t->device : NULL, .at = c->address, .bytes = c->bytes, .own = !c->wrap, .program = c->p };
    c->made = b;
    RtError e = { .launch = -1 };
    void *at = NULL;
    if (c->wrap) {
        if (t && t->api->follow && t->api->follow(t->device, NULL, &e)) fail(cx, e.code, "%s", e.text);
        return;
    }
    if (!t) {
        if (!(at = block_alloc(c->bytes + 1))) fail(cx, E_NOMEM, "no memory for %zu bytes", c->bytes);
    } else if (t->api->alloc(t->device, c->bytes + 1, &at, &e)) fail(cx, e.code, "%s", e.text);
    b->at = at;
}

static sn_status make(BufferCall *c, sn_buffer **out, sn_error *err)
{
    Ctx cx;
    if (c->p) ctx_of(&cx, c->p);
    else ctx_quiet(&cx);
    Status st = guard_call(&cx, make_guarded, c);
    if (st == E_OK) *out = c->made;
    else block_free(c->made);
    return api_report(&cx, st, err);
}

sn_status sn_buffer_new(sn_program *program, size_t bytes, sn_buffer **buffer, sn_error *err)
{
    BufferCall c = { .p = program, .bytes = bytes };
    return make(&c, buffer, err);
}

sn_status sn_buffer_wrap(sn_program *program, void *address, size_t bytes, sn_buffer **buffer, sn_error *err)
{
    BufferCall c = { .p = program, .address = address, .bytes = bytes, .wrap = true };
    return make(&c, buffer, err);
}

typedef struct FollowCall { sn_program *p; void *stream; } FollowCall;

static void follow_guarded(Ctx *cx, void *arg)
{
    const FollowCall *c = arg;
    api_need(cx, c->p, "program");
    const Target *t = target_of(c->p);
    RtError e = { .launch = -1 };
    if (t && t->api->follow && t->api->follow(t->device, c->stream, &e)) fail(cx, e.code, "%s", e.text);
}

sn_status sn_program_follow(sn_program *program, void *stream, sn_error *err)
{
    Ctx cx;
    FollowCall c = { program, stream };
    if (program) ctx_of(&cx, program);
    else ctx_quiet(&cx);
    return api_report(&cx, guard_call(&cx, follow_guarded, &c), err);
}

void sn_buffer_free(sn_buffer *b)
{
    if (!b) return;
    if (b->own && !b->api) block_free(b->at);
    if (b->own && b->api) b->api->release(b->device, b->at);
    block_free(b);
}

void *sn_buffer_address(const sn_buffer *b) { return !b->api || b->api->addresses ? b->at : NULL; }

void sn_program_place(const sn_program *program, int32_t *device_type, int32_t *device_id)
{
    const Target *t = target_of(program);
    *device_type = t ? t->api->place : dev_cpu.place;
    *device_id = t && t->api->number ? t->api->number(t->device) : 0;
}

typedef struct CopyCall { const sn_buffer *b; size_t offset, bytes; const void *from; void *to; } CopyCall;

static void copy_guarded(Ctx *cx, void *arg)
{
    const CopyCall *c = arg;
    const sn_buffer *b = c->b;
    api_need(cx, b, "buffer");
    if (c->offset > b->bytes || c->bytes > b->bytes - c->offset)
        fail(cx, E_INVALID, "%zu bytes from %zu on are not inside a buffer of %zu bytes", c->bytes, c->offset, b->bytes);
    if (!c->bytes) return;
    if (!c->to) api_need(cx, c->from, "from");
    RtError e = { .launch = -1 };
    Status st = E_OK;
    if (!b->api) memmove(c->to ? c->to : b->at + c->offset, c->to ? b->at + c->offset : c->from, c->bytes);
    else if (c->to) st = b->api->read(b->device, c->to, b->at + c->offset, c->bytes, &e);
    else st = b->api->write(b->device, b->at + c->offset, c->from, c->bytes, &e);
    if (st) fail(cx, st, "%s", e.text);
}

static sn_status copy(CopyCall *c, sn_error *err)
{
    Ctx cx;
    if (c->b) ctx_of(&cx, c->b->program);
    else ctx_quiet(&cx);
    return api_report(&cx, guard_call(&cx, copy_guarded, c), err);
}

sn_status sn_buffer_write(sn_buffer *buffer, size_t offset, const void *from, size_t bytes, sn_error *err)
{
    CopyCall c = { buffer, offset, bytes, from, NULL };
    return copy(&c, err);
}

static void read_guarded(Ctx *cx, void *arg)
{
    const CopyCall *c = arg;
    if (c->bytes) api_need(cx, c->to, "to");
    copy_guarded(cx, arg);
}

sn_status sn_buffer_read(const sn_buffer *buffer, size_t offset, void *to, size_t bytes, sn_error *err)
{
    CopyCall c = { buffer, offset, bytes, NULL, to };
    Ctx cx;
    if (buffer) ctx_of(&cx, buffer->program);
    else ctx_quiet(&cx);
    return api_report(&cx, guard_call(&cx, read_guarded, &c), err);
}

/* ---- tensors of a run -------------------------------------------------------------------------------------------------------------------- */

/* Where a tensor of so many bytes lies; SIZE_MAX: not known yet. */
static uint8_t *caller_memory(Ctx *cx, const sn_program *p, const sn_tensor *s, const char *what, const char *name, DType dt, size_t bytes)
{
    const sn_buffer *b = s->buffer;
    const Target *t = target_of(p);
    if (b->device != (t ? t->device : NULL)) fail(cx, E_INVALID, "%s '%s' lies in a buffer of another device", what, name);
    if (s->has_strides) fail(cx, E_INVALID, "%s '%s' lies in a buffer and has strides, wanted none", what, name);
    if (s->offset > b->bytes || (bytes != SIZE_MAX && bytes > b->bytes - s->offset))
        fail(cx, E_INVALID, "%s '%s': %zu bytes from %zu on are not inside a buffer of %zu bytes", what, name, bytes, s->offset, b->bytes);
    if (dt && !on_host(b) && ((uintptr_t)b->at + s->offset) % dtype_size(dt)) fail(cx, E_INVALID, "%s '%s' begins at byte %zu, wanted a multiple of %zu", what, name, s->offset, dtype_size(dt));
    return b->at + s->offset;
}

Tensor buffer_input(Ctx *cx, Arena *a, const sn_program *p, const sn_tensor *s, const char *name)
{
    sn_tensor bare = *s;
    bare.data = NULL;
    bare.has_strides = 0;
    Tensor t = tensor_of_public(cx, &bare, "input", name);
    uint8_t *at = caller_memory(cx, p, s, "input", name, t.dt, tensor_bytes(&t));
    if (on_host(s->buffer)) { t.data = at; return t; }
    t.far = at;
    int64_t n = tensor_count(&t);
    if (dtype_is_float(t.dt) || n > VALUES_MOST || !n) return t;
    RtError e = { .launch = -1 };
    t.data = arena_alloc(a, tensor_bytes(&t));
    if (s->buffer->api->read(s->buffer->device, t.data, at, tensor_bytes(&t), &e)) fail(cx, e.code, "%s", e.text);
    return t;
}

void buffer_output(Ctx *cx, const sn_program *p, const sn_tensor *s, const char *name, int nin, const Tensor *in, Tensor *result, size_t *bytes)
{
    uint8_t *at = caller_memory(cx, p, s, "output", name, DT_none, SIZE_MAX);
    *bytes = s->buffer->bytes - s->offset;
    if (!on_host(s->buffer)) { result->far = at; return; }
    result->data = at;
    for (int i = 0; i < nin; i++) {                  /* where an input lies it is put in the end */
        const uint8_t *x = in[i].data;
        if (x && x < at + *bytes && at < x + tensor_bytes(&in[i])) result->data = NULL;
    }
}

sn_buffer *buffer_adopt(Ctx *cx, sn_program *p, Tensor *result)
{
    const Target *t = target_of(p);
    sn_buffer *b = block_alloc(sizeof *b);
    if (!b) fail(cx, E_NOMEM, "no memory for a buffer");
    *b = (sn_buffer){ .api = t->api, .device = t->device, .at = result->far, .bytes = tensor_bytes(result), .own = true, .program = p };
    result->far = NULL;
    return b;
}

void buffer_drop(const sn_program *p, Tensor *result)
{
    if (result->make_far && result->far) target_of(p)->api->release(target_of(p)->device, result->far);
    result->far = NULL;
}

void buffer_finish(Ctx *cx, const sn_tensor *s, const char *name, const Tensor *result)
{
    const sn_buffer *b = s->buffer;
    size_t n = tensor_bytes(result);
    if (n > b->bytes - s->offset) fail(cx, E_INVALID, "output '%s' has %zu bytes, but the caller's buffer %zu", name, n, b->bytes - s->offset);
    if (!on_host(b) || result->data == b->at + s->offset) return;
    tensor_copy_to(result, b->at + s->offset, NULL);
}
