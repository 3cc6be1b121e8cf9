/* api: the pipeline, from a model to a program that runs. */
#ifndef SN_API_H
#define SN_API_H
#include "base/base.h"
#include "ir/ir.h"
#include "onnx/onnx.h"

/* ---- interp.c: a model run by the reference interpreter, operator by operator: slow, and the measure of everything else -------------- */
/* in: one tensor for each of the main graph's inputs that is no initialiser; out: one for each of its outputs, data in a. */
void interp_run(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *in, Tensor *out);
/* The same for any graph of the model; args: its inputs, then the values it captures. */
void interp_graph(Ctx *cx, Arena *a, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, Tensor *out);
#endif
