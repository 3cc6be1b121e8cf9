/* Runs a model file with inputs of ones and prints each output's first elements.
 *
 *     cc run_model.c $(pkg-config --cflags --libs sinter) -o run_model && ./run_model net.onnx */
#include <sinter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* Fills one element with 1. Floats of other widths are left 0: this is an example of calls, not of number formats. */
static void set_one(const sn_tensor *t, size_t i)
{
    switch (t->dtype) {
    case SN_F32: ((float *)t->data)[i] = 1; break;
    case SN_F64: ((double *)t->data)[i] = 1; break;
    case SN_I64: ((int64_t *)t->data)[i] = 1; break;
    case SN_I32: ((int32_t *)t->data)[i] = 1; break;
    case SN_BOOL: ((uint8_t *)t->data)[i] = 1; break;
    default: break;
    }
}

int main(int argc, char **argv)
{
    sn_error err;
    sn_model *model = NULL;
    sn_program *program = NULL;
    sn_tensor in[MOST], out[MOST];
    int nin = 0, nout = 0, status = 1;
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    if (argc != 2) {
        fprintf(stderr, "usage: run_model MODEL\n");
        return 2;
    }
    if (sn_model_load(argv[1], &model, &err)) goto failed;
    if (sn_model_input_count(model) > MOST || sn_model_output_count(model) > MOST) goto done;
    for (; nin < sn_model_input_count(model); nin++) {
        sn_port p;
        sn_tensor *t = &in[nin];
        size_t count = 1;
        if (sn_model_input(model, nin, &p, &err)) goto failed;
        t->dtype = p.dtype;
        t->rank = p.rank > 0 ? p.rank : 0;
        for (int k = 0; k < t->rank; k++) {
            t->dims[k] = p.dims[k] < 0 ? 1 : p.dims[k];     /* known only when it runs: 1 */
            count *= (size_t)t->dims[k];
        }
        t->bytes = count * sn_dtype_size(t->dtype);
        t->data = calloc(1, t->bytes ? t->bytes : 1);
        if (!t->data) goto done;
        for (size_t i = 0; i < count; i++) set_one(t, i);
        printf("input %s: %s, rank %d\n", p.name, sn_dtype_name(p.dtype), p.rank);
    }
    nout = sn_model_output_count(model);
    if (sn_compile(model, NULL, &program, &err)) goto failed;
    if (sn_run(program, nin, in, nout, out, &err)) goto failed;
    for (int i = 0; i < nout; i++) {
        sn_port p;
        if (sn_model_output(model, i, &p, &err)) goto failed;
        printf("output %s: %s [", p.name, sn_dtype_name(out[i].dtype));
        for (int k = 0; k < out[i].rank; k++) printf("%s%lld", k ? "," : "", (long long)out[i].dims[k]);
        printf("]");
        for (size_t j = 0; out[i].dtype == SN_F32 && j < out[i].bytes / 4 && j < 8; j++) printf(" %g", ((float *)out[i].data)[j]);
        printf("\n");
    }
    status = 0;
    goto done;
failed:
    fprintf(stderr, "%s: %s\n", sn_status_name(err.code), err.text);
done:
    for (int i = 0; i < nout; i++) sn_tensor_release(&out[i]);
    for (int i = 0; i < nin; i++) free(in[i].data);
    sn_program_free(program);
    sn_model_free(model);
    return status;
}
