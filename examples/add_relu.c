/* Builds Y = max(X + B, 0) by calls and runs it on fixed data: one kernel, which reads X and B and writes Y.
 *
 *     cc add_relu.c $(pkg-config --cflags --libs sinter) -o add_relu && ./add_relu */
#include <sinter.h>
#include <stdio.h>

int main(void)
{
    sn_error err = { 0 };
    sn_graph *g;
    sn_model *model = NULL;
    sn_program *program = NULL;
    sn_value in[2], sum, y;
    int status = 1;
    const int64_t any[1] = { -1 };
    const char *const size[1] = { "N" };
    float x_data[4] = { -3, 1, 2, -1 }, b_data[4] = { 1, 2, -4, 2 }, y_data[4];

    if (sn_graph_new(&g, &err)) goto failed;
    sn_graph_input(g, "X", SN_F32, 1, any, size, &in[0]);           /* the first failure of these is kept ... */
    sn_graph_input(g, "B", SN_F32, 1, any, size, &in[1]);
    sn_graph_op(g, "Add", NULL, 2, in, 1, &sum);
    sn_graph_op(g, "Relu", NULL, 1, &sum, 1, &y);
    sn_graph_output(g, "Y", y);
    if (sn_graph_finish(g, &model, &err)) goto failed;              /* ... and reported here */
    if (sn_compile(model, NULL, &program, &err)) goto failed;

    sn_tensor t[2] = { { .dtype = SN_F32, .rank = 1, .dims = { 4 }, .data = x_data, .bytes = sizeof x_data },
                       { .dtype = SN_F32, .rank = 1, .dims = { 4 }, .data = b_data, .bytes = sizeof b_data } };
    sn_tensor out = { .data = y_data, .bytes = sizeof y_data };     /* our own buffer: nothing to release */
    if (sn_run(program, 2, t, 1, &out, &err)) goto failed;
    for (int i = 0; i < 4; i++) printf("%g%s", y_data[i], i < 3 ? " " : "\n");
    status = 0;
failed:
    if (status) fprintf(stderr, "%s: %s\n", sn_status_name(err.code), err.text);
    sn_program_free(program);
    sn_model_free(model);
    return status;
}
