/* The operators of ops.def as an array, and the search in it.
 *
 * Rows of one operator stand in any order; the newest `since` not above the asked opset wins. A linear scan is enough: an import asks
 * once for each distinct (domain, operator, version) and remembers the answer. */
#include <string.h>
#include "onnx/onnx.h"

const OpRow op_table[] = {
#define EXPR(op, since, inputs, attrs, formula)      { #op, "", since, 0, 0, inputs, attrs, formula, NULL },
#define FUNC(op, since, lo, hi, fn)                  { #op, "", since, lo, hi, NULL, NULL, NULL, fn },
#define MSFT_EXPR(op, since, inputs, attrs, formula) { #op, "com.microsoft", since, 0, 0, inputs, attrs, formula, NULL },
#define MSFT_FUNC(op, since, lo, hi, fn)             { #op, "com.microsoft", since, lo, hi, NULL, NULL, NULL, fn },
#define DOMAIN_FUNC(domain, op, since, lo, hi, fn)   { #op, domain, since, lo, hi, NULL, NULL, NULL, fn },
#include "onnx/ops.def"
#define EW(name, n, dom, cost, fv, iv, c)                  { #name, "sinter", 1, n, n, NULL, NULL, NULL, op_prim_ew },
#define CMP(name, n, dom, cost, fv, iv, c)                 EW(name, n, dom, cost, fv, iv, c)
#define STRUCT(name, what)
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
#undef EXPR
#undef FUNC
#undef MSFT_EXPR
#undef MSFT_FUNC
#undef DOMAIN_FUNC
};
const int op_table_n = (int)COUNT_OF(op_table);

const OpRow *op_find(const char *domain, const char *op, int64_t opset)
{
    const OpRow *best = NULL;
    if (strcmp(domain, "ai.onnx") == 0) domain = "";
    for (int i = 0; i < op_table_n; i++) {
        const OpRow *r = &op_table[i];
        if (r->since > opset || (best && best->since >= r->since)) continue;
        if (strcmp(r->op, op) == 0 && strcmp(r->domain, domain) == 0) best = r;
    }
    return best;
}
