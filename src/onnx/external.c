/* External data: bytes of a tensor in another file beside the model.
 *
 * The location is relative to the model's folder and must stay in it: absolute paths and `..` are refused, and a symbolic link must lead
 * to a file inside an allowed folder. Allowed are the folder that holds the model as it was named, and the folder that holds the model's
 * own file once its links are resolved: model caches keep models and their data as links into one folder of blobs, and both then resolve
 * into that folder. Each file is mapped once; offsets and lengths are 64-bit and compared with the file's size. */
#include "onnx/onnx.h"
#include <string.h>

/* A plain decimal number; false when it is none or above 2^63 - 1. */
static bool read_decimal(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (INT64_MAX - (uint64_t)(*s - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *out = v;
    return true;
}

/* NULL, or why the location is refused without looking at the disk. */
static const char *location_refused(const char *s)
{
    if (!*s)
        return "is empty";
    if (*s == '/' || strchr(s, '\\') || (((*s | 32) >= 'a' && (*s | 32) <= 'z') && s[1] == ':'))
        return "is not a relative path";
    for (const char *at = s; at; at = strchr(at, '/')) {
        while (*at == '/')
            at++;
        if (at[0] == '.' && at[1] == '.' && (at[2] == '/' || !at[2]))
            return "leaves the model's folder";
    }
    return NULL;
}

static bool path_within(const char *path, const char *folder)
{
    size_t n = folder ? strlen(folder) : 0;
    if (!n || strncmp(path, folder, n))
        return false;
    return folder[n - 1] == '/' || path[n] == '/' || !path[n];
}

static void find_roots(OnnxReader *r, const char *dir)
{
    if (r->roots[0])
        return;
    const char *self = path_real(r->arena, r->model->path);
    r->roots[1] = self ? path_dir(r->arena, self) : NULL;
    r->roots[0] = path_real(r->arena, dir);
}

static const File *external_file(OnnxReader *r, const char *tensor, const char *location)
{
    OnnxModel *m = r->model;
    char why[256];
    if (!r->located)
        r->located = mapstr_new(r->arena);
    void **slot = mapstr_at(r->located, location);
    if (*slot)
        return &m->external[(uintptr_t)*slot - 1];
    const char *refused = location_refused(location);
    if (refused)
        fail(r->cx, E_FORMAT, "tensor '%s': the location '%s' of its external data %s", tensor, location, refused);
    const char *dir = path_dir(r->arena, m->path);
    find_roots(r, dir);
    const char *path = path_join(r->arena, dir, location), *real = path_real(r->arena, path);
    if (!real && r->roots[1]) {         /* only the model is a link: its data stayed beside the real file */
        const char *beside = path_join(r->arena, r->roots[1], location);
        if ((real = path_real(r->arena, beside)))
            path = beside;
    }
    if (real && !path_within(real, r->roots[0]) && !path_within(real, r->roots[1]))
        fail(r->cx, E_FORMAT, "tensor '%s': its external data '%s' is a link to '%s', outside the folder of the model", tensor, path, real);
    if (m->nexternal == r->cap_external)
        vec_grow(r->arena, (void **)&m->external, m->nexternal, &r->cap_external, sizeof *m->external);
    Status st = file_map(real ? real : path, &m->external[m->nexternal], why, sizeof why);
    if (st != E_OK)
        fail(r->cx, st, "tensor '%s': its external data '%s': %s", tensor, path, why);
    m->nexternal++;
    *slot = (void *)(uintptr_t)m->nexternal;
    return &m->external[m->nexternal - 1];
}

const uint8_t *onnx_external(OnnxReader *r, const char *tensor, const char *location, const char *offset, const char *length, uint64_t want)
{
    uint64_t from = 0, n = want;
    if (!r->model)
        fail(r->cx, E_UNSUPPORTED, "tensor '%s': external data in a tensor file", tensor);
    if (!strcmp(r->model->path, "<memory>"))
        fail(r->cx, E_INVALID, "tensor '%s': external data '%s', but a model in memory has no folder", tensor, location);
    if ((offset && !read_decimal(offset, &from)) || (length && !read_decimal(length, &n)))
        fail(r->cx, E_FORMAT, "tensor '%s': external data with offset '%s' and length '%s', wanted whole numbers", tensor,
            offset ? offset : "0", length ? length : "");
    if (n != want)
        fail(r->cx, E_FORMAT, "tensor '%s': external data has length %llu, but its shape wants %llu bytes", tensor, (unsigned long long)n,
            (unsigned long long)want);
    const File *f = external_file(r, tensor, location);
    if (from > f->size || n > f->size - from)
        fail(r->cx, E_FORMAT, "tensor '%s': external data is %llu bytes at offset %llu, but '%s' has %zu bytes", tensor,
            (unsigned long long)n, (unsigned long long)from, location, f->size);
    return f->data + from;
}
