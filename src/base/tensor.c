/* Tensors: a shape, strides and borrowed data. Rank 0 is one element; any dimension of 0 makes the tensor empty. */
#include "base/base.h"

/* Row-major strides. In an empty tensor the product of the other dimensions may not fit: such strides are 0, and no
 * element exists that would use them. */
static void row_major(Tensor *t)
{
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        t->strides[i] = stride;
        int64_t d = t->dims[i] ? t->dims[i] : 1;
        stride = stride > INT64_MAX / d ? 0 : stride * d;
    }
}

void tensor_init(Ctx *cx, Tensor *t, DType dt, int rank, const int64_t *dims)
{
    if (dt <= DT_none || dt >= DT_COUNT)
        fail(cx, E_INVALID, "element type number %d, wanted one of dtypes.def", (int)dt);
    if (rank < 0 || rank > MAX_RANK)
        fail(cx, E_INVALID, "rank %d, wanted 0 to %d", rank, MAX_RANK);
    *t = (Tensor){ .dt = dt, .rank = rank };
    int64_t count = 1, limit = (int64_t)(PTRDIFF_MAX / dtype_info[dt].bytes);
    bool empty = false, large = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            fail(cx, E_INVALID, "dimension %d is %lld, wanted 0 or more", i, (long long)dims[i]);
        t->dims[i] = dims[i];
        if (dims[i] == 0)
            empty = true;
        else if (count > limit / dims[i])
            large = true;
        else
            count *= dims[i];
    }
    if (large && !empty)
        fail(cx, E_INVALID, "a tensor of %s with so many elements has more bytes than an address can count",
             dtype_info[dt].name);
    row_major(t);
}

int64_t tensor_count(const Tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0)
            return 0;
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

size_t tensor_bytes(const Tensor *t) { return (size_t)tensor_count(t) * dtype_size(t->dt); }

void *tensor_at(const Tensor *t, int64_t j)
{
    int64_t offset = 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        offset += j % t->dims[i] * t->strides[i];
        j /= t->dims[i];
    }
    return (char *)t->data + (ptrdiff_t)dtype_size(t->dt) * (ptrdiff_t)offset;
}

bool tensor_dense(const Tensor *t)
{
    if (tensor_count(t) == 0)
        return true;
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != stride)
            return false;
        stride *= t->dims[i];
    }
    return true;
}

Tensor *tensor_new(Arena *a, Ctx *cx, DType dt, int rank, const int64_t *dims)
{
    Tensor *t = NEW(a, Tensor);
    tensor_init(cx, t, dt, rank, dims);
    t->data = arena_alloc(a, tensor_bytes(t));
    return t;
}

char *shape_str(Arena *a, int rank, const int64_t *dims)
{
    Text t = { .arena = a };
    text_put(&t, "[", 1);
    for (int i = 0; i < rank; i++)
        text_add(&t, i ? ",%lld" : "%lld", (long long)dims[i]);
    text_put(&t, "]", 1);
    return t.at;
}
