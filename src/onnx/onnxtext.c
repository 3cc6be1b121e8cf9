/* ONNX's text syntax (.onnxtxt). */
#include "onnx/onnx.h"

void onnx_text_load(OnnxReader *r, const char *text, size_t n)
{
    (void)text, (void)n;
    fail(r->cx, E_UNSUPPORTED, "a model in text syntax, which this version does not read");
}
