/* What tests of the public functions share: a place for errors, tensors, a model of one operator. */
#ifndef SN_TEST_SN_MODEL_H
#define SN_TEST_SN_MODEL_H
#include "api/api.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sn_error err;

static inline sn_tensor vec_f32(float *data, int64_t n)
{
    return (sn_tensor){ .dtype = SN_F32, .rank = 1, .dims = { n }, .data = data, .bytes = (size_t)n * 4 };
}

/* A model with one operator on inputs of one shape. */
static inline sn_model *one_op(const char *op, const char *attrs, int nin, sn_dtype dt, int rank, const int64_t *dims)
{
    sn_graph *g;
    sn_model *m;
    sn_value in[8], out;
    assert_int_equal(sn_graph_new(&g, &err), SN_OK);
    for (int i = 0; i < nin; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        assert_int_equal(sn_graph_input(g, name, dt, rank, dims, NULL, &in[i]), SN_OK);
    }
    sn_graph_op(g, op, attrs, nin, in, 1, &out);
    sn_graph_output(g, "y", out);
    if (sn_graph_finish(g, &m, &err)) fail_msg("%s: %s", op, err.text);
    return m;
}
#endif
