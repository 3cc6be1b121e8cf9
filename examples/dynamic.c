/* One program for many sizes, and the evidence of what it did: softmax over rows of a table whose height and width are known only when it runs.
 *
 *     cc dynamic.c $(pkg-config --cflags --libs sinter) -lm -o dynamic && ./dynamic */
#include <math.h>
#include <sinter.h>
#include <stdio.h>
#include <stdlib.h>

static sn_status build(sn_model **model, sn_error *err)
{
    sn_graph *g;
    sn_value x, y;
    const int64_t dims[2] = { -1, -1 };
    const char *const names[2] = { "rows", "columns" };
    if (sn_graph_new(&g, err)) return err->code;
    sn_graph_input(g, "x", SN_F32, 2, dims, names, &x);
    sn_graph_op(g, "Softmax", "axis=1", 1, &x, 1, &y);
    sn_graph_output(g, "y", y);
    return sn_graph_finish(g, model, err);
}

int main(void)
{
    static const int64_t sizes[][2] = { { 3, 5 }, { 1, 1 }, { 7, 1000 }, { 64, 33 }, { 3, 5 } };
    sn_error err = { 0 };
    sn_model *model = NULL;
    sn_program *program = NULL;
    char *report = NULL;
    float *data = malloc(7000 * sizeof *data);
    int status = 1;
    if (!data) return 1;
    for (int i = 0; i < 7000; i++) data[i] = (float)(i % 13) / 13;
    if (build(&model, &err) || sn_compile(model, NULL, &program, &err)) goto done;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        sn_tensor x = { .dtype = SN_F32, .rank = 2, .dims = { sizes[k][0], sizes[k][1] }, .data = data, .bytes = 7000 * sizeof *data }, y = { 0 };
        if (sn_run(program, 1, &x, 1, &y, &err)) goto done;
        double sum = 0;                 /* each row of a softmax adds up to 1 */
        for (int64_t i = 0; i < y.dims[0] * y.dims[1]; i++) sum += ((float *)y.data)[i];
        printf("%lld x %lld: sum %.4f, %d compiled so far\n", (long long)y.dims[0], (long long)y.dims[1], sum, sn_program_variants(program));
        if (fabs(sum - (double)y.dims[0]) > 1e-3) goto done;
        sn_tensor_release(&y);
    }
    if (sn_program_explain(program, SN_EXPLAIN_TEXT, &report, &err)) goto done;
    printf("\n%s", report);
    status = 0;
done:
    if (status) fprintf(stderr, "%s: %s\n", sn_status_name(err.code), err.text);
    sn_string_free(report);
    sn_program_free(program);
    sn_model_free(model);
    free(data);
    return status;
}
