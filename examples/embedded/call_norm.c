/* A program around a C file made by: sinter compile examples/norm.onnxtxt -d batch=1..8 -o norm.c */
#include "norm.h"

#include <stdio.h>

static float x[2 * 768], bias[768], gain[768], y[2 * 768];
static _Alignas(64) unsigned char workspace[NORM_WORKSPACE];

int main(void)
{
    norm_inputs in = { .x = x, .bias = bias, .gain = gain, .batch = 2 };
    norm_outputs out = { .y = y };
    for (int i = 0; i < 2 * 768; i++) x[i] = (float)(i % 768);
    for (int i = 0; i < 768; i++) gain[i] = 1;
    int status = norm_run(&in, &out, workspace);
    printf("status %d, y[0] = %.4f, y[767] = %.4f\n", status, (double)y[0], (double)y[767]);
    in.batch = 9;
    printf("nine rows: status %d\n", norm_run(&in, &out, workspace));
    return status;
}
