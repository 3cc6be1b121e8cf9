/* TensorProto and SparseTensorProto to OnnxTensor.
 *
 * A first walk finds shape, dtype and how much of each data field there is; then one source is chosen, its size compared with what the
 * shape asks for, and only then is anything allocated. raw_data, external data and packed float_data or double_data are used where they
 * lie in the mapped file; other typed fields and types below 8 bits are unpacked into the arena. */
#include "onnx/onnx.h"
#include <limits.h>
#include <string.h>

static const char *const onnx_dtype_names[] = {NULL, "float", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool",
    "float16", "double", "uint32", "uint64", "complex64", "complex128", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
    "float8e5m2fnuz", "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2"};
enum { ONNX_STRING = 8, ONNX_COMPLEX64 = 14, ONNX_COMPLEX128 = 15 };

const char *onnx_dtype_name(int onnx_dt)
{
    return onnx_dt > 0 && onnx_dt < (int)COUNT_OF(onnx_dtype_names) ? onnx_dtype_names[onnx_dt] : NULL;
}

int64_t onnx_count(int rank, const int64_t *dims)
{
    int64_t n = 1;
    bool zero = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return -1;
        if (dims[i] == 0)
            zero = true;
        else if (n > INT64_MAX / 16 / dims[i])      /* 16: so that the size in bytes fits as well */
            return -1;
        else
            n *= dims[i];
    }
    return zero ? 0 : n;
}

int64_t onnx_packed_bytes(DType dt, int64_t count)
{
    int bits = dtype_bits(dt);
    return bits >= 8 ? count * (bits / 8) : count / (8 / bits) + (count % (8 / bits) != 0);
}

void onnx_unpack(DType dt, const uint8_t *src, int64_t count, uint8_t *dst)
{
    int bits = dtype_bits(dt), per = 8 / bits;
    unsigned mask = (1u << bits) - 1, sign = dtype_info[dt].class == 'S' ? 1u << (bits - 1) : 0;
    for (int64_t i = 0; i < count; i++) {
        unsigned v = (unsigned)src[i / per] >> (bits * (int)(i % per)) & mask;
        dst[i] = (uint8_t)((v ^ sign) - sign);
    }
}

void onnx_pack(DType dt, const uint8_t *src, int64_t count, uint8_t *dst)
{
    int bits = dtype_bits(dt), per = 8 / bits;
    unsigned mask = (1u << bits) - 1;
    memset(dst, 0, (size_t)onnx_packed_bytes(dt, count));
    for (int64_t i = 0; i < count; i++)
        dst[i / per] |= (uint8_t)((src[i] & mask) << (bits * (int)(i % per)));
}

const void *onnx_stored(OnnxReader *r, DType dt, const uint8_t *src, int64_t count)
{
    if (dtype_bits(dt) < 8) {
        uint8_t *dst = arena_alloc(r->arena, (size_t)count);
        onnx_unpack(dt, src, count, dst);
        return dst;
    }
    if (dt != DT_bool)
        return src;
    /* Kernels rely on 0 and 1; a file may hold anything. */
    int64_t i = 0;
    while (i < count && src[i] <= 1)
        i++;
    if (i == count)
        return src;
    uint8_t *dst = arena_alloc(r->arena, (size_t)count);
    for (i = 0; i < count; i++)
        dst[i] = src[i] != 0;
    return dst;
}

static int onnx_data_field(DType dt)
{
    switch (dt) {
    case DT_f32: return PB_Tensor_float_data;
    case DT_f64: return PB_Tensor_double_data;
    case DT_i64: return PB_Tensor_int64_data;
    case DT_u32: case DT_u64: return PB_Tensor_uint64_data;
    default: return PB_Tensor_int32_data;
    }
}

/* One element of int32_data, int64_data or uint64_data; false when it does not fit the dtype. */
static bool put_int(DType dt, int64_t v, uint8_t *dst)
{
    size_t n = dtype_size(dt);
    if (dt == DT_bool) {
        *dst = v != 0;
        return true;
    }
    if (dt != DT_i64 && dt != DT_u64) {
        /* int32 comes sign-extended to 64 bits or as 32 bits: both are meant. Narrow types may be given as their bit pattern. */
        if (dt != DT_u32)
            v = (int32_t)(uint32_t)(uint64_t)v;
        int bits = (int)n * 8;
        if (v >= (int64_t)1 << bits || v < -((int64_t)1 << (bits - 1)))
            return false;
    }
    memcpy(dst, &v, n);                 /* little-endian: the low bytes come first */
    return true;
}

/* The elements of data field number `field` of the message, checked to be as many as wanted, in the arena (or in place). */
static const void *tensor_typed(OnnxReader *r, const PbSpan *msg, DType dt, int field, int64_t count)
{
    Pb p;
    bool sub = dtype_bits(dt) < 8;
    int64_t n = sub ? onnx_packed_bytes(dt, count) : count, done = 0;
    size_t size = dtype_size(dt);
    uint8_t *dst = NULL, *to = NULL;
    int64_t part[64];
    pb_open(&p, r->cx, r->base, PB_Tensor, msg);
    while (pb_next(&p)) {
        if (p.number != field)
            continue;
        size_t k = pb_elems(&p);
        if (field == PB_Tensor_float_data || field == PB_Tensor_double_data) {
            if (p.wire == 2 && (int64_t)k == n)
                return p.bytes.at;      /* all of them in one piece: used where they lie */
            if (!dst)
                to = dst = arena_alloc(r->arena, (size_t)n * size);
            if (p.wire == 2)
                memcpy(to, p.bytes.at, k * size);
            else
                memcpy(to, &p.v, size);
            to += k * size;
            continue;
        }
        if (!dst)
            to = dst = arena_alloc(r->arena, sub ? (size_t)n : (size_t)n * size);
        /* In parts, so that a long packed field needs no second array. */
        Pb q = p;
        for (const uint8_t *at = p.bytes.at; k > 0;) {
            size_t m = k < COUNT_OF(part) ? k : COUNT_OF(part);
            if (p.wire == 2) {
                q.bytes.at = at;
                for (size_t i = 0; i < m; i++)
                    while (*at++ & 0x80) {}
                q.bytes.end = at;
            }
            pb_ints(&q, part);
            for (size_t i = 0; i < m; i++, done++) {
                if (sub ? part[i] < -128 || part[i] > 255 : !put_int(dt, part[i], to))
                    pb_fail(&p, E_FORMAT, "element %lld is %lld, which does not fit %s", (long long)done, (long long)part[i], dtype_info[dt].name);
                if (sub)
                    *to = (uint8_t)part[i];
                to += sub ? 1 : size;
            }
            k -= m;
        }
    }
    if (!dst)
        return "";
    return sub ? onnx_stored(r, dt, dst, count) : dst;
}

static void external_entry(OnnxReader *r, const PbSpan *msg, const char *what[3])
{
    Pb p;
    const char *key = "", *value = "";
    pb_open(&p, r->cx, r->base, PB_Pair, msg);
    while (pb_next(&p)) {
        if (p.number == PB_Pair_key)
            key = pb_str(&p, r->arena);
        else
            value = pb_str(&p, r->arena);
    }
    static const char *const keys[3] = {"location", "offset", "length"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(key, keys[i]))
            what[i] = value;
}

void onnx_tensor_read(OnnxReader *r, const PbSpan *msg, OnnxTensor *t)
{
    Pb p;
    int64_t dims[MAX_RANK];
    const char *where[3] = {NULL, NULL, NULL};
    uint64_t have[PB_FIELDS] = {0};     /* elements of each data field */
    PbSpan raw = {0};
    int location = 0;
    memset(t, 0, sizeof *t);
    t->name = "";
    pb_open(&p, r->cx, r->base, PB_Tensor, msg);
    while (pb_next(&p)) {
        switch (p.number) {
        case PB_Tensor_dims: {
            size_t k = pb_elems(&p);
            if (k > (size_t)(MAX_RANK - t->rank))
                pb_fail(&p, E_UNSUPPORTED, "more than %d dimensions", MAX_RANK);
            pb_ints(&p, dims + t->rank);
            t->rank += (int)k;
            break;
        }
        case PB_Tensor_data_type: t->onnx_dt = (int)(int32_t)(uint32_t)p.v; break;
        case PB_Tensor_name: t->name = pb_name(&p, r->arena); break;
        case PB_Tensor_raw_data: raw = p.bytes; break;
        case PB_Tensor_segment:
            pb_fail(&p, E_UNSUPPORTED, "%s", r->model ? "a tensor stored in segments" : "found a tensor in segments, a SequenceProto or an OptionalProto; wanted a whole TensorProto");
        case PB_Tensor_data_location: location = (int)(int32_t)(uint32_t)p.v; break;
        case PB_Tensor_external_data: external_entry(r, &p.bytes, where); break;
        case PB_Tensor_string_data: have[p.number]++; break;
        default: have[p.number] += pb_elems(&p); break;
        }
    }
    p.number = 0;
    p.tag_at = msg->at ? msg->at : r->base;
    char *shape = NULL;
    t->count = onnx_count(t->rank, dims);
    t->dims = arena_copy(r->arena, dims, (size_t)t->rank * sizeof *dims);
    if (t->count < 0) {
        shape = shape_str(r->arena, t->rank, dims);
        pb_fail(&p, E_FORMAT, "tensor '%s': dims %s are negative or too large", t->name, shape);
    }
    const char *type = onnx_dtype_name(t->onnx_dt);
    if (!type)
        pb_fail(&p, t->onnx_dt <= 0 ? E_FORMAT : E_UNSUPPORTED, "tensor '%s': data_type is %d, wanted 1 to %d", t->name, t->onnx_dt,
            (int)COUNT_OF(onnx_dtype_names) - 1);
    if (location != 0 && location != 1)
        pb_fail(&p, E_FORMAT, "tensor '%s': data_location is %d, wanted 0 or 1", t->name, location);
    t->dt = dtype_from_onnx(t->onnx_dt);

    if (t->onnx_dt == ONNX_STRING) {
        if (location || have[PB_Tensor_string_data] != (uint64_t)t->count)
            pb_fail(&p, E_FORMAT, "tensor '%s': found %llu strings in string_data, wanted %lld", t->name,
                (unsigned long long)have[PB_Tensor_string_data], (long long)t->count);
        t->strings = NEWS(r->arena, const char *, t->count + 1);
        int64_t i = 0;
        pb_open(&p, r->cx, r->base, PB_Tensor, msg);
        while (pb_next(&p))
            if (p.number == PB_Tensor_string_data)
                t->strings[i++] = pb_str(&p, r->arena);
        return;
    }
    bool complex = t->onnx_dt == ONNX_COMPLEX64 || t->onnx_dt == ONNX_COMPLEX128;
    int64_t want = complex ? t->count * (t->onnx_dt == ONNX_COMPLEX64 ? 8 : 16) : onnx_packed_bytes(t->dt, t->count);
    if (location == 1) {
        if (!where[0])
            pb_fail(&p, E_FORMAT, "tensor '%s': external data without a location", t->name);
        const uint8_t *src = onnx_external(r, t->name, where[0], where[1], where[2], (uint64_t)want);
        t->data = complex ? src : onnx_stored(r, t->dt, src, t->count);
        return;
    }
    int field = complex ? (t->onnx_dt == ONNX_COMPLEX64 ? PB_Tensor_float_data : PB_Tensor_double_data) : onnx_data_field(t->dt);
    size_t nraw = raw.at ? (size_t)(raw.end - raw.at) : 0;
    if (nraw > 0 || (raw.at && have[field] == 0)) {
        if (nraw != (uint64_t)want) {
            shape = shape_str(r->arena, t->rank, dims);
            pb_fail(&p, E_FORMAT, "tensor '%s': raw_data has %zu bytes, but %s%s wants %lld", t->name, nraw, type, shape, (long long)want);
        }
        t->data = complex ? raw.at : onnx_stored(r, t->dt, raw.at, t->count);
        return;
    }
    int64_t elems = complex ? 2 * t->count : dtype_bits(t->dt) < 8 ? want : t->count;
    if (have[field] != (uint64_t)elems) {
        static const char *const names[PB_FIELDS] = {[PB_Tensor_float_data] = "float_data", [PB_Tensor_double_data] = "double_data",
            [PB_Tensor_int32_data] = "int32_data", [PB_Tensor_int64_data] = "int64_data", [PB_Tensor_uint64_data] = "uint64_data"};
        shape = shape_str(r->arena, t->rank, dims);
        pb_fail(&p, E_FORMAT, "tensor '%s': no raw_data and %llu elements in %s, but %s%s wants %lld", t->name,
            (unsigned long long)have[field], names[field], type, shape, (long long)elems);
    }
    if (complex)
        t->data = tensor_typed(r, msg, t->onnx_dt == ONNX_COMPLEX64 ? DT_f32 : DT_f64, field, elems);
    else
        t->data = tensor_typed(r, msg, t->dt, field, t->count);
}

/* Indices are [nnz] (into the flattened tensor) or [nnz, rank], ascending. */
const char *onnx_sparse_dense(OnnxReader *r, const OnnxTensor *values, const OnnxTensor *indices, int rank, const int64_t *dims, OnnxTensor *dense)
{
    int64_t n = values->count, count = onnx_count(rank, dims), last = -1;
    if (count < 0)
        return "dims are negative or too large";
    if (values->dt == DT_none)
        return "values of a type without meaning here";
    if (values->rank != 1)
        return "values are not of rank 1";
    bool flat = indices->rank == 1;
    if (indices->dt != DT_i64 || (indices->rank != 1 && indices->rank != 2) || indices->dims[0] != n || (!flat && indices->dims[1] != rank))
        return "indices are not int64 of shape [n] or [n, rank]";
    uint64_t size = dtype_size(values->dt), bytes = (uint64_t)count * size;
    if (bytes > r->dense_left)
        return "the dense form is out of proportion to the file's size";
    r->dense_left -= bytes;
    uint8_t *data = arena_alloc(r->arena, (size_t)bytes);
    const uint8_t *src = values->data, *idx = indices->data;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, k;
        for (int d = 0; d < (flat ? 1 : rank); d++) {
            memcpy(&k, idx, sizeof k);
            idx += sizeof k;
            int64_t lim = flat ? count : dims[d];
            if (k < 0 || k >= lim)
                return "an index is outside its axis";
            at = flat ? k : at * dims[d] + k;
        }
        if (at <= last)
            return "indices are not ascending";
        last = at;
        memcpy(data + (size_t)at * size, src + (size_t)i * size, size);
    }
    *dense = (OnnxTensor){.name = values->name, .dt = values->dt, .onnx_dt = values->onnx_dt, .rank = rank, .count = count, .data = data};
    dense->dims = arena_copy(r->arena, dims, (size_t)rank * sizeof *dims);
    return NULL;
}
