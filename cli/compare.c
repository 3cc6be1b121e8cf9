/* Comparing results: the rule of ONNX's backend tests, and which models it does not apply to. */
#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void shape_text(const Tensor *t, char text[256])
{
    size_t n = (size_t)snprintf(text, 256, "%s[", dtype_info[t->dt].name);
    for (int k = 0; k < t->rank && n < 240; k++) n += (size_t)snprintf(text + n, 256 - n, "%s%" PRId64, k ? "," : "", t->dims[k]);
    snprintf(text + n, 256 - n, "]");
}

static double as_real(DType t, Scalar v) { return dtype_is_float(t) ? v.f : t == DT_u64 ? (double)v.u : (double)v.i; }

Difference compare_tensors(const char *name, const Tensor *got, const Tensor *want, Tolerance tol)
{
    Difference d = { .same = got->dt == want->dt && got->rank == want->rank, .first = -1 };
    char a[256], b[256];
    for (int k = 0; d.same && k < got->rank; k++) d.same = got->dims[k] == want->dims[k];
    shape_text(got, a);
    shape_text(want, b);
    if (!d.same) {
        snprintf(d.text, sizeof d.text, "'%.100s' is %.120s, wanted %.120s", name, a, b);
        return d;
    }
    d.count = tensor_count(got);
    for (int64_t i = 0; i < d.count && !tol.shape_only; i++) {
        Scalar x = scalar_load(got->dt, tensor_at(got, i)), y = scalar_load(want->dt, tensor_at(want, i));
        double g = as_real(got->dt, x), w = as_real(want->dt, y);
        bool ok;
        if (!dtype_is_float(got->dt) && x.i == y.i) continue;
        if (isnan(g) || isnan(w)) {
            ok = isnan(g) && isnan(w);
        } else if (isinf(g) || isinf(w)) {
            ok = g == w;
        } else {
            double diff = fabs(g - w);
            if (diff > d.max_abs) d.max_abs = diff;
            if (w != 0 && diff / fabs(w) > d.max_rel) d.max_rel = diff / fabs(w);
            ok = diff <= tol.atol + tol.rtol * fabs(w);
        }
        if (!ok && !d.wrong++) d.first = i;
    }
    if (!d.wrong) return d;
    d.same = false;
    double g = as_real(got->dt, scalar_load(got->dt, tensor_at(got, d.first))), w = as_real(want->dt, scalar_load(want->dt, tensor_at(want, d.first)));
    snprintf(d.text, sizeof d.text, "'%.100s' (%.120s): %" PRId64 " of %" PRId64 " elements differ, the first at %" PRId64 ": %.9g, wanted %.9g", name, a, d.wrong,
        d.count, d.first, g, w);
    return d;
}

Difference compare_outputs(const OnnxModel *m, const Tensor *got, const Tensor *want, Tolerance t)
{
    Difference all = { .same = true, .first = -1 };
    for (int i = 0; i < m->graph->nout; i++) {
        Difference d = compare_tensors(m->graph->out[i].name, &got[i], &want[i], t);
        double abs = fmax(all.max_abs, d.max_abs), rel = fmax(all.max_rel, d.max_rel);
        if (all.same && !d.same) all = d;
        all.max_abs = abs;
        all.max_rel = rel;
    }
    return all;
}

/* ---- what a model's operators say ----------------------------------------------------------------------------------------------------------- */

typedef bool (*NodeTest)(const OnnxModel *m, const OnnxGraph *g, const OnnxNode *n, const void *arg);

static bool any_node(const OnnxModel *m, const OnnxGraph *g, int n, const OnnxNode *node, NodeTest test, const void *arg)
{
    for (int i = 0; i < n; i++) {
        if (test(m, g, &node[i], arg)) return true;
        for (int k = 0; k < node[i].nattr; k++) {
            const OnnxAttr *t = &node[i].attr[k];
            if (t->g && any_node(m, t->g, t->g->nnode, t->g->node, test, arg)) return true;
            for (int j = 0; t->type == ATTR_graphs && j < t->n; j++)
                if (any_node(m, t->graphs[j], t->graphs[j]->nnode, t->graphs[j]->node, test, arg)) return true;
        }
    }
    return false;
}

static bool any_of_model(const OnnxModel *m, NodeTest test, const void *arg)
{
    if (any_node(m, m->graph, m->graph->nnode, m->graph->node, test, arg)) return true;
    for (int i = 0; i < m->nfunction; i++)
        if (any_node(m, NULL, m->function[i].nnode, m->function[i].node, test, arg)) return true;
    return false;
}

typedef struct OpList { const char *const *op; int n; } OpList;

static bool node_is_one_of(const OnnxModel *m, const OnnxGraph *g, const OnnxNode *n, const void *arg)
{
    const OpList *list = arg;
    (void)m, (void)g;
    for (int i = 0; i < list->n; i++)
        if (strcmp(n->op, list->op[i]) == 0) return true;
    return false;
}

bool model_uses(const OnnxModel *m, const char *const *ops, int n)
{
    OpList list = { ops, n };
    return any_of_model(m, node_is_one_of, &list);
}

/* Is the boolean named so known to be false: an initialiser, a Constant, or an input of the model? */
static bool known_false(const OnnxModel *m, const OnnxGraph *g, const char *name, const Tensor *in)
{
    for (int i = 0; g && i < g->ninit; i++)
        if (strcmp(g->init[i].name, name) == 0) return g->init[i].dt == DT_bool && g->init[i].count == 1 && !*(const uint8_t *)g->init[i].data;
    for (int i = 0; g && i < g->nnode; i++) {
        const OnnxNode *n = &g->node[i];
        if (strcmp(n->op, "Constant") || n->nout != 1 || strcmp(n->out[0], name)) continue;
        for (int k = 0; k < n->nattr; k++)
            if (n->attr[k].t && n->attr[k].t->dt == DT_bool && n->attr[k].t->count == 1) return !*(const uint8_t *)n->attr[k].t->data;
    }
    int at = 0;
    for (int i = 0; g == m->graph && in && i < g->nin; i++) {
        bool init = false;
        for (int k = 0; k < g->ninit && !init; k++) init = strcmp(g->init[k].name, g->in[i].name) == 0;
        if (init) continue;
        if (strcmp(g->in[i].name, name) == 0) return in[at].dt == DT_bool && tensor_count(&in[at]) == 1 && !*(const uint8_t *)in[at].data;
        at++;
    }
    return false;
}

static bool node_is_random(const OnnxModel *m, const OnnxGraph *g, const OnnxNode *n, const void *arg)
{
    static const char *const always[] = { "RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli", "Multinomial" };
    OpList list = { always, COUNT_OF(always) };
    if (node_is_one_of(m, g, n, &list)) return true;
    return strcmp(n->op, "Dropout") == 0 && n->nin > 2 && n->in[2][0] && !known_false(m, g, n->in[2], arg);
}

bool model_is_random(const OnnxModel *m, const Tensor *in) { return any_of_model(m, node_is_random, in); }
