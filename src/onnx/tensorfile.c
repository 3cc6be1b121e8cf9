/* Tensors in files of their own: TensorProto (.pb) and NumPy's .npy, read and written, in every dtype.
 *
 * NumPy has no word for bfloat16, float8 and types below 8 bits; ml_dtypes writes them as raw void types, from which the dtype cannot be
 * told apart. So does npy_write, and adds the dtype as a comment behind the header's dictionary, which NumPy's reader skips.
 *
 * Mapped files and scratch memory belong to a Job, whose work runs in a guard of its own, so that a failure releases them. */
#include "onnx/onnx.h"
#include <stdio.h>
#include <string.h>

typedef struct Job {
    const char *path, *name;
    const char **name_out;
    Arena *arena, *scratch;
    Tensor *out;
    const Tensor *t;
    File file;
} Job;

static void job_run(Ctx *cx, Job *job, void (*fn)(Ctx *, void *))
{
    Note note;
    note_push(cx, &note, "file", job->path, NULL);
    Status st = guard_call(cx, fn, job);
    file_unmap(&job->file);
    arena_free(job->scratch);
    note_pop(cx);
    if (st != E_OK) {
        cx->notes = NULL;               /* the text has them already; the outer guard puts them back */
        fail(cx, st, "%s", cx->text);
    }
}

static void job_map(Ctx *cx, Job *job)
{
    char why[256];
    Status st = file_map(job->path, &job->file, why, sizeof why);
    if (st != E_OK)
        fail(cx, st, "%s", why);
}

static void job_save(Ctx *cx, Job *job, const void *data, size_t n)
{
    char why[256];
    Status st = file_write(job->path, data, n, why, sizeof why);
    if (st != E_OK)
        fail(cx, st, "%s", why);
}

/* Copies the elements in row-major order, whatever their strides. */
static void copy_rows(const Tensor *t, uint8_t *dst)
{
    size_t size = dtype_size(t->dt);
    int64_t n = tensor_count(t), idx[MAX_RANK] = {0};
    if (tensor_dense(t)) {
        if (n)
            memcpy(dst, t->data, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < t->rank; d++)
            at += idx[d] * t->strides[d];
        memcpy(dst, (const uint8_t *)t->data + at * (int64_t)size, size);
        dst += size;
        for (int d = t->rank - 1; d >= 0 && ++idx[d] == t->dims[d]; d--)
            idx[d] = 0;
    }
}

/* ---- TensorProto ------------------------------------------------------------------------------------------------------ */

typedef struct ProtoJob { OnnxReader r; PbSpan all; OnnxTensor t; } ProtoJob;

static void proto_read(Ctx *cx, void *arg)
{
    ProtoJob *job = arg;
    (void)cx;
    onnx_tensor_read(&job->r, &job->all, &job->t);
}

/* SequenceProto and OptionalProto: a name in field 1, where a TensorProto has its dims, or nothing but a type. */
static bool looks_boxed(const uint8_t *at, size_t n)
{
    if (n == 2 && at[0] == 0x10)
        return true;
    if (n < 3 || at[0] != 0x0a || at[1] == 0 || at[1] > 0x7f || at[1] > n - 2)
        return false;
    for (size_t i = 0; i < at[1]; i++)
        if (at[2 + i] < 0x20 || at[2 + i] > 0x7e)
            return false;
    return true;
}

static void tensorpb_read_job(Ctx *cx, void *arg)
{
    Job *job = arg;
    ProtoJob proto = {0};
    job_map(cx, job);
    const uint8_t *file = job->file.data;
    size_t size = job->file.size;
    onnx_reader_init(&proto.r, cx, job->arena, NULL, file, size);
    proto.all = (PbSpan){file, file + size, NULL, NULL};
    Status st = guard_call(cx, proto_read, &proto);
    if (st == E_FORMAT && looks_boxed(file, size))
        fail(cx, E_UNSUPPORTED, "found what looks like a SequenceProto or OptionalProto, wanted a TensorProto");
    if (st != E_OK) {
        cx->notes = NULL;
        fail(cx, st, "%s", cx->text);
    }
    const OnnxTensor *t = &proto.t;
    if (t->dt == DT_none)
        fail(cx, E_UNSUPPORTED, "tensor '%s' is of type %s", t->name, onnx_dtype_name(t->onnx_dt));
    tensor_init(cx, job->out, t->dt, t->rank, t->dims);
    const uint8_t *data = t->data;
    size_t n = tensor_bytes(job->out);
    bool mapped = data >= file && data < file + size;
    job->out->data = mapped || n == 0 ? arena_copy(job->arena, data, n) : (void *)data;
    if (job->name_out)
        *job->name_out = t->name;
}

void tensorpb_read(Ctx *cx, Arena *a, const char *path, Tensor *out, const char **name)
{
    Job job = {.path = path, .arena = a, .out = out, .name_out = name};
    job_run(cx, &job, tensorpb_read_job);
}

static uint8_t *put_varint(uint8_t *to, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *to++ = (uint8_t)(v | 0x80);
    *to++ = (uint8_t)v;
    return to;
}

static uint8_t *put_tag(uint8_t *to, int number, int wire)
{
    return put_varint(to, (uint64_t)number << 3 | (unsigned)wire);
}

static void tensorpb_write_job(Ctx *cx, void *arg)
{
    Job *job = arg;
    const Tensor *t = job->t;
    int64_t count = tensor_count(t);
    size_t n = (size_t)onnx_packed_bytes(t->dt, count), name = job->name ? strlen(job->name) : 0;
    job->scratch = arena_new(cx);
    uint8_t *file = arena_alloc(job->scratch, 64 + MAX_RANK * 12 + name + n), *to = file;
    for (int i = 0; i < t->rank; i++) {
        to = put_tag(to, PB_Tensor_dims, 0);
        to = put_varint(to, (uint64_t)t->dims[i]);
    }
    to = put_tag(to, PB_Tensor_data_type, 0);
    to = put_varint(to, (uint64_t)dtype_info[t->dt].onnx);
    if (name) {
        to = put_tag(to, PB_Tensor_name, 2);
        to = put_varint(to, name);
        memcpy(to, job->name, name);
        to += name;
    }
    to = put_tag(to, PB_Tensor_raw_data, 2);
    to = put_varint(to, n);
    if (dtype_bits(t->dt) < 8) {
        uint8_t *rows = arena_alloc(job->scratch, (size_t)count);
        copy_rows(t, rows);
        onnx_pack(t->dt, rows, count, to);
    } else {
        copy_rows(t, to);
    }
    job_save(cx, job, file, (size_t)(to - file) + n);
}

void tensorpb_write(Ctx *cx, const char *path, const char *name, const Tensor *t)
{
    Job job = {.path = path, .name = name, .t = t};
    job_run(cx, &job, tensorpb_write_job);
}

/* ---- .npy --------------------------------------------------------------------------------------------------------------- */

static const char npy_magic[] = "\x93NUMPY";
static const char npy_dtype_mark[] = "# dtype ";

/* The header's dictionary: a cursor over its text. */
typedef struct NpyHead { Ctx *cx; const char *start, *at, *end; } NpyHead;

_Noreturn static void npy_wanted(const NpyHead *h, const char *wanted)
{
    char found[24];
    size_t n = (size_t)(h->end - h->at);
    snprintf(found, sizeof found, "%.*s", (int)(n < sizeof found - 1 ? n : sizeof found - 1), h->at);
    for (char *c = found; *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    fail(h->cx, E_FORMAT, "npy header, column %zu: found '%s', wanted %s", (size_t)(h->at - h->start) + 1, found, wanted);
}

static void npy_space(NpyHead *h)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t'))
        h->at++;
}

static bool npy_take(NpyHead *h, const char *word)
{
    size_t n = strlen(word);
    npy_space(h);
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n))
        return false;
    h->at += n;
    return true;
}

static void npy_string(NpyHead *h, char *out, size_t size)
{
    npy_space(h);
    char quote = h->at < h->end ? *h->at : 0;
    const char *close = quote == '\'' || quote == '"' ? memchr(h->at + 1, quote, (size_t)(h->end - h->at - 1)) : NULL;
    if (!close || (size_t)(close - h->at) > size)
        npy_wanted(h, "a short string (structured dtypes have no meaning here)");
    size_t n = (size_t)(close - h->at - 1);
    memcpy(out, h->at + 1, n);
    out[n] = 0;
    h->at = close + 1;
}

static int64_t npy_int(NpyHead *h)
{
    int64_t v = 0;
    npy_space(h);
    const char *start = h->at;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++) {
        if (v > (INT64_MAX - (*h->at - '0')) / 10)
            npy_wanted(h, "a size of at most 2^63 - 1");
        v = v * 10 + (*h->at - '0');
    }
    if (h->at == start)
        npy_wanted(h, "a size");
    (void)npy_take(h, "L");             /* of Python 2 */
    return v;
}

/* "<f4", "|b1", ">i8", or the name of a dtype. `mark` is the comment's word, "" when there is none. */
static DType npy_dtype(NpyHead *h, const char *descr, const char *mark, bool *swap)
{
    static const struct { const char *name; DType dt; } names[] = {{"bfloat16", DT_bf16}, {"float8_e4m3fn", DT_f8e4m3fn},
        {"float8_e4m3fnuz", DT_f8e4m3fnuz}, {"float8_e5m2", DT_f8e5m2}, {"float8_e5m2fnuz", DT_f8e5m2fnuz}, {"float8_e8m0fnu", DT_f8e8m0},
        {"float4_e2m1fn", DT_f4e2m1}, {"int4", DT_i4}, {"uint4", DT_u4}, {"int2", DT_i2}, {"uint2", DT_u2}};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(descr, names[i].name))
            return names[i].dt;
    const char *type = descr + (*descr == '<' || *descr == '>' || *descr == '|' || *descr == '=');
    DType marked = *mark ? dtype_from_name(mark) : DT_none;
    if (!strcmp(type, "f1"))
        return DT_f8e5m2;
    if (marked != DT_none && !strcmp(type, dtype_info[marked].numpy)) {
        *swap = *descr == '>' && dtype_size(marked) > 1;
        return marked;
    }
    if (!strcmp(type, "V1"))
        fail(h->cx, E_UNSUPPORTED, "npy dtype '%s' may be any type of one byte; write the tensor as .pb, or add '%sf8e4m3fn' or the like to the header",
             descr, npy_dtype_mark);
    for (int t = DT_none + 1; t < DT_COUNT; t++)
        if (!strcmp(type, dtype_info[t].numpy)) {
            *swap = *descr == '>' && dtype_size((DType)t) > 1;
            return (DType)t;
        }
    fail(h->cx, E_UNSUPPORTED, "npy dtype '%s' has no meaning here", descr);
}

/* Elements of src, of `order` strides, to row-major order; bytes swapped, bits outside the dtype's cleared. */
static void npy_copy(const Tensor *out, const uint8_t *src, bool fortran, bool swap)
{
    Tensor from = *out;
    size_t size = dtype_size(out->dt);
    int64_t n = tensor_count(out), stride = 1;
    uint8_t *dst = out->data;
    from.data = (void *)src;
    if (fortran)
        for (int i = 0; i < out->rank; i++) {
            from.strides[i] = stride;
            stride *= out->dims[i];
        }
    copy_rows(&from, dst);
    for (int64_t i = 0; swap && i < n; i++)
        for (size_t k = 0; k < size / 2; k++) {
            uint8_t *x = dst + (size_t)i * size + k, *y = dst + (size_t)i * size + size - 1 - k, b = *x;
            *x = *y;
            *y = b;
        }
    int bits = dtype_bits(out->dt);
    if (bits < 8) {
        unsigned mask = (1u << bits) - 1, sign = dtype_info[out->dt].class == 'S' ? 1u << (bits - 1) : 0;
        for (int64_t i = 0; i < n; i++)
            dst[i] = (uint8_t)(((dst[i] & mask) ^ sign) - sign);
    }
    for (int64_t i = 0; out->dt == DT_bool && i < n; i++)
        dst[i] = dst[i] != 0;
}

static void npy_read_job(Ctx *cx, void *arg)
{
    Job *job = arg;
    job_map(cx, job);
    const uint8_t *file = job->file.data;
    size_t size = job->file.size;
    if (size < 10 || memcmp(file, npy_magic, 6))
        fail(cx, E_FORMAT, "wanted a .npy file, which starts with \\x93NUMPY");
    int major = file[6];
    size_t head = major == 1 ? 10 : 12;
    if (major < 1 || major > 3)
        fail(cx, E_UNSUPPORTED, "npy version %d.%d, wanted 1 to 3", major, file[7]);
    if (size < head)
        fail(cx, E_FORMAT, "the file ends within the npy header");
    size_t n = (size_t)file[8] | (size_t)file[9] << 8;
    if (major > 1)
        n |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
    if (n > size - head)
        fail(cx, E_FORMAT, "the npy header has %zu bytes, but the file ends %zu bytes after its start", n, size - head);

    NpyHead h = {cx, (const char *)file + head, (const char *)file + head, (const char *)file + head + n};
    char descr[32] = "", mark[32] = "", key[32];
    bool fortran = false, swap = false;
    int rank = -1, seen = 0;
    int64_t dims[MAX_RANK];
    if (!npy_take(&h, "{"))
        npy_wanted(&h, "'{'");
    while (!npy_take(&h, "}")) {
        npy_string(&h, key, sizeof key);
        if (!npy_take(&h, ":"))
            npy_wanted(&h, "':'");
        if (!strcmp(key, "descr")) {
            npy_string(&h, descr, sizeof descr);
            seen |= 1;
        } else if (!strcmp(key, "fortran_order")) {
            fortran = npy_take(&h, "True");
            if (!fortran && !npy_take(&h, "False"))
                npy_wanted(&h, "True or False");
            seen |= 2;
        } else if (!strcmp(key, "shape")) {
            if (!npy_take(&h, "("))
                npy_wanted(&h, "'('");
            for (rank = 0; !npy_take(&h, ")");) {
                if (rank == MAX_RANK)
                    fail(cx, E_UNSUPPORTED, "npy shape has more than %d dimensions", MAX_RANK);
                dims[rank++] = npy_int(&h);
                npy_space(&h);
                if (!npy_take(&h, ",") && (h.at == h.end || *h.at != ')'))
                    npy_wanted(&h, "',' or ')'");
            }
            seen |= 4;
        } else {
            npy_wanted(&h, "one of descr, fortran_order and shape before this");
        }
        npy_space(&h);
        if (!npy_take(&h, ",") && (h.at == h.end || *h.at != '}'))
            npy_wanted(&h, "',' or '}'");
    }
    if (seen != 7)
        npy_wanted(&h, "descr, fortran_order and shape");
    if (npy_take(&h, npy_dtype_mark)) {
        size_t k = 0;
        while (h.at < h.end && k + 1 < sizeof mark && ((*h.at >= 'a' && *h.at <= 'z') || (*h.at >= '0' && *h.at <= '9')))
            mark[k++] = *h.at++;
    }
    npy_space(&h);
    if (h.at < h.end && *h.at != '#')
        npy_wanted(&h, "the end of the header");

    DType dt = npy_dtype(&h, descr, mark, &swap);
    int64_t count = onnx_count(rank, dims);
    if (count < 0)
        fail(cx, E_FORMAT, "npy shape %s is too large", shape_str(job->arena, rank, dims));
    size_t want = (size_t)count * dtype_size(dt), have = size - head - n;
    if (want != have)
        fail(cx, E_FORMAT, "%zu bytes follow the npy header, but %s%s wants %zu", have, dtype_info[dt].name,
             shape_str(job->arena, rank, dims), want);
    tensor_init(cx, job->out, dt, rank, dims);
    job->out->data = arena_alloc(job->arena, want);
    npy_copy(job->out, file + head + n, fortran, swap);
}

void npy_read(Ctx *cx, Arena *a, const char *path, Tensor *out)
{
    Job job = {.path = path, .arena = a, .out = out};
    job_run(cx, &job, npy_read_job);
}

static void npy_write_job(Ctx *cx, void *arg)
{
    Job *job = arg;
    const Tensor *t = job->t;
    const DTypeInfo *info = &dtype_info[t->dt];
    int64_t count = tensor_count(t);
    size_t n = (size_t)count * dtype_size(t->dt);
    job->scratch = arena_new(cx);
    Text head = {.arena = job->scratch};
    text_add(&head, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", info->bytes > 1 ? '<' : '|', info->numpy);
    for (int i = 0; i < t->rank; i++)
        text_add(&head, "%lld%s", (long long)t->dims[i], i + 1 < t->rank ? ", " : t->rank == 1 ? "," : "");
    text_add(&head, "), }");
    if (info->numpy[0] == 'V')
        text_add(&head, " %s%s", npy_dtype_mark, info->name);
    size_t whole = (10 + head.n + 1 + 63) / 64 * 64;
    uint8_t *file = arena_alloc(job->scratch, whole + n);
    memcpy(file, npy_magic, 6);
    file[6] = 1;
    file[8] = (uint8_t)(whole - 10);
    file[9] = (uint8_t)((whole - 10) >> 8);
    memcpy(file + 10, head.at, head.n);
    memset(file + 10 + head.n, ' ', whole - 11 - head.n);
    file[whole - 1] = '\n';
    copy_rows(t, file + whole);
    int bits = dtype_bits(t->dt);
    for (int64_t i = 0; bits < 8 && i < count; i++)
        file[whole + (size_t)i] &= (uint8_t)((1u << bits) - 1);       /* as ml_dtypes stores them */
    job_save(cx, job, file, whole + n);
}

void npy_write(Ctx *cx, const char *path, const Tensor *t)
{
    Job job = {.path = path, .t = t};
    job_run(cx, &job, npy_write_job);
}
