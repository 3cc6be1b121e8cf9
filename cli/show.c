/* Tensors for reading: as a line of text, and as JSON. */
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void put_value(Text *t, const Tensor *x, int64_t i)
{
    Scalar v = scalar_load(x->dt, tensor_at(x, i));
    if (x->dt == DT_bool) text_add(t, "%s", v.i ? "true" : "false");
    else if (dtype_is_float(x->dt)) text_add(t, x->dt == DT_f64 ? "%.17g" : "%.9g", v.f);
    else if (x->dt == DT_u64) text_add(t, "%" PRIu64, v.u);
    else text_add(t, "%" PRId64, v.i);
}

void show_tensor(Arena *a, const char *name, const Tensor *x)
{
    enum { MOST = 24 };
    Text t = { .arena = a };
    int64_t n = tensor_count(x);
    text_add(&t, "%s: %s%s = ", name, dtype_info[x->dt].name, shape_str(a, x->rank, x->dims));
    if (x->rank) text_add(&t, "[");
    for (int64_t i = 0; i < n && i < MOST; i++) {
        if (i) text_add(&t, ", ");
        put_value(&t, x, i);
    }
    if (n > MOST) text_add(&t, ", ...");
    if (x->rank) text_add(&t, "]");
    printf("%s\n", t.at);
}

json_t *tensor_json(const char *name, const Tensor *x, int64_t most)
{
    json_t *shape = json_array(), *values = json_array();
    int64_t n = tensor_count(x);
    for (int k = 0; k < x->rank; k++) json_array_append_new(shape, json_integer(x->dims[k]));
    for (int64_t i = 0; i < n && i < most; i++) {
        Scalar v = scalar_load(x->dt, tensor_at(x, i));
        json_t *j = x->dt == DT_bool ? json_boolean(v.i) : dtype_is_float(x->dt) ? json_number(v.f) : json_integer(v.i);
        json_array_append_new(values, j);
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:b}", "name", name, "dtype", dtype_info[x->dt].name, "shape", shape, "values", values, "truncated", n > most);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(int n, double *v)
{
    if (n <= 0) return 0;
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
