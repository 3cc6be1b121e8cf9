/* What an operator's function asks of its node: attributes with defaults, values of inputs, other operators of the table; and the
 * operators that are formulas.
 *
 * A formula row binds its inputs and attributes to names and hands the text to expr_build(). Sixteen-bit and narrower floats are computed
 * in float32 and rounded once at the end; a row whose formula is one primitive needs no such detour, since a primitive rounds once anyway. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "onnx/onnx.h"

void op_unsupported(OpCall *o, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fail(o->cx, E_UNSUPPORTED, "%s", text);
}

/* ---- attributes ------------------------------------------------------------------------------------------------------------------- */

const OnnxAttr *op_attr(OpCall *o, const char *name)
{
    bool before = o->nasked == (int)COUNT_OF(o->asked);
    for (int i = 0; i < o->nasked && !before; i++) before = strcmp(o->asked[i], name) == 0;
    if (!before) o->asked[o->nasked++] = name;
    for (int i = 0; i < o->node->nattr; i++)
        if (strcmp(o->node->attr[i].name, name) == 0) {
            const OnnxAttr *t = &o->node->attr[i];
            if (t->ref && t->ref[0])
                fail(o->cx, E_FORMAT, "attribute '%s' refers to the function's attribute '%s' outside of a function", name, t->ref);
            return t;
        }
    return NULL;
}

/* Is one name the other with a letter changed, left out or put in, or two neighbours exchanged? */
static bool names_close(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), head = 0, tail = 0, most = n < m ? n : m;
    if (most < 3) return false;
    while (head < most && a[head] == b[head]) head++;
    while (tail < most - head && a[n - 1 - tail] == b[m - 1 - tail]) tail++;
    size_t x = n - head - tail, y = m - head - tail;
    return (x <= 1 && y <= 1) || (x == 2 && y == 2 && a[head] == b[head + 1] && a[head + 1] == b[head]);
}

static bool attr_given(const OnnxNode *n, const char *name)
{
    for (int i = 0; i < n->nattr; i++) if (strcmp(n->attr[i].name, name) == 0) return true;
    return false;
}

/* Of what is written by hand: exporters' files may hold what nobody looks for, misspelt names too, and other engines take them. It may be an attribute of training or of
 * another version of the operator. So in general only a name is refused that is nearly one which was looked for and is not there. */
void op_attrs_check(OpCall *o, bool all)
{
    const OnnxNode *n = o->node;
    for (int i = 0; i < n->nattr; i++) {
        const char *name = n->attr[i].name, *close = NULL;
        bool asked = false;
        for (int k = 0; k < o->nasked; k++) {
            asked |= strcmp(o->asked[k], name) == 0;
            if (!close && !attr_given(n, o->asked[k]) && names_close(o->asked[k], name)) close = o->asked[k];
        }
        if (asked) continue;
        if (close) fail(o->cx, E_FORMAT, "attribute '%s' is unknown, wanted '%s'", name, close);
        if (!all) continue;
        Text t = { .arena = o->a };
        for (int k = 0; k < o->nasked; k++) text_add(&t, "%s%s", k ? ", " : "wanted ", o->asked[k]);
        fail(o->cx, E_FORMAT, "attribute '%s' is unknown, %s", name, t.n ? t.at : "wanted none");
    }
}

static const char *const attr_type_name[] = { "nothing", "a float", "an int", "a string", "a tensor", "a graph", "floats", "ints", "strings",
    "tensors", "graphs", "a sparse tensor", "sparse tensors", "a type", "types" };

static const OnnxAttr *typed_attr(OpCall *o, const char *name, OnnxAttrType type)
{
    const OnnxAttr *t = op_attr(o, name);
    if (t && t->type != type) {
        if (t->type == ATTR_string) fail(o->cx, E_FORMAT, "attribute '%s' is '%.60s', wanted %s", name, t->s, attr_type_name[type]);
        const char *found = (unsigned)t->type < COUNT_OF(attr_type_name) ? attr_type_name[t->type] : "of an unknown type";
        fail(o->cx, E_FORMAT, "attribute '%s' is %s, wanted %s", name, found, attr_type_name[type]);
    }
    return t;
}

int64_t op_int(OpCall *o, const char *name, int64_t fallback)
{
    const OnnxAttr *t = typed_attr(o, name, ATTR_int);
    return t ? t->i : fallback;
}

double op_float(OpCall *o, const char *name, double fallback)
{
    const OnnxAttr *t = typed_attr(o, name, ATTR_float);
    return t ? (double)t->f : fallback;
}

const char *op_string(OpCall *o, const char *name, const char *fallback)
{
    const OnnxAttr *t = typed_attr(o, name, ATTR_string);
    return t ? t->s : fallback;
}

const int64_t *op_ints(OpCall *o, const char *name, int *n)
{
    const OnnxAttr *t = op_attr(o, name);
    *n = 0;
    if (!t || (t->type != ATTR_ints && t->n == 0 && t->type == ATTR_none)) return NULL;
    t = typed_attr(o, name, ATTR_ints);
    *n = t->n;
    return t->ints ? t->ints : NEWS(o->a, int64_t, 1);
}

const float *op_floats(OpCall *o, const char *name, int *n)
{
    const OnnxAttr *t = typed_attr(o, name, ATTR_floats);
    *n = t ? t->n : 0;
    return !t ? NULL : t->floats ? t->floats : NEWS(o->a, float, 1);
}

const OnnxTensor *op_tensor(OpCall *o, const char *name)
{
    const OnnxAttr *t = typed_attr(o, name, ATTR_tensor);
    return t ? t->t : NULL;
}

int op_axis(OpCall *o, int64_t axis, int rank)
{
    int64_t k = axis < 0 ? axis + rank : axis;
    if (k < 0 || k >= rank) fail(o->cx, E_INVALID, "axis %lld, wanted one in [%d, %d)", (long long)axis, -rank, rank);
    return (int)k;
}

Node *op_onnx_const(OpCall *o, const OnnxTensor *t)
{
    if (t->dt == DT_none)
        fail(o->cx, E_UNSUPPORTED, "tensor '%s' has the ONNX element type %d, which is not supported", t->name, t->onnx_dt);
    Tensor *x = NEW(o->a, Tensor);
    tensor_init(o->cx, x, t->dt, t->rank, t->dims);
    x->data = (void *)(uintptr_t)t->data;
    return g_const(o->g, x);
}

/* ---- values of inputs -------------------------------------------------------------------------------------------------------------- */

static const char *need_text(OpCall *o, int i)
{
    return arena_fmt(o->a, "%s needs the value of its input %d ('%s')", o->node->op, i, i < o->node->nin ? o->node->in[i] : "");
}

const Tensor *op_value(OpCall *o, int i)
{
    if (i >= o->nin || !o->in[i]) return NULL;
    const Tensor *t = host_value(o->g, o->in[i]);
    if (t) return t;
    op_cut(o, need_text(o, i));
    t = host_value(o->g, o->in[i]);
    if (!t) op_unsupported(o, "%s while the graph is built, but it is too large for that", need_text(o, i));
    return t;
}

Dim **op_sizes(OpCall *o, int i, int *n)
{
    *n = 0;
    if (i >= o->nin || !o->in[i]) return NULL;
    const Node *x = o->in[i];
    if (x->rank > 1 || !(dtype_is_int(x->dt) || x->dt == DT_bool))
        fail(o->cx, E_INVALID, "input %d is %s of rank %d, wanted integers of rank 0 or 1", i, dtype_info[x->dt].name, x->rank);
    Dim **d = host_dims(o->g, o->in[i], n);
    if (d) return d;
    op_cut(o, need_text(o, i));
    d = host_dims(o->g, o->in[i], n);
    if (!d) op_unsupported(o, "%s while the graph is built, but it is too large for that", need_text(o, i));
    return d;
}

int64_t *op_values_int(OpCall *o, int i, int *n)
{
    Dim **d = op_sizes(o, i, n);
    if (!d) return NULL;
    int64_t *v = NEWS(o->a, int64_t, *n + 1);
    for (int k = 0; k < *n; k++) v[k] = dim_decide_value(o->g, d[k], "a value that shapes the graph");
    return v;
}

/* ---- formulas ------------------------------------------------------------------------------------------------------------------------ */

enum { FORMULA_NAMES = 24 };

typedef struct Word { const char *at; int n; } Word;

static Word next_word(const char **p)
{
    while (**p == ' ') ++*p;
    Word w = { *p, 0 };
    while (**p && **p != ' ') ++*p, w.n++;
    return w;
}

/* A formula like "exp(x)" or "add(a, b)", one primitive on the row's inputs in order; else OP_COUNT. */
static Op single_primitive(const OpRow *row)
{
    char text[80];
    const char *open = strchr(row->formula, '(');
    if (!open || open - row->formula >= 16) return OP_COUNT;
    int n = snprintf(text, sizeof text, "%.*s", (int)(open - row->formula), row->formula), arity = 0;
    Op op = op_from_name(text);
    if (op == OP_COUNT || !prim_info[op].elementwise) return OP_COUNT;
    const char *p = row->inputs;
    for (Word w = next_word(&p); w.n; w = next_word(&p), arity++) {
        if (n + w.n + 4 > (int)sizeof text) return OP_COUNT;
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%.*s", arity ? ", " : "(", w.n, w.at);
    }
    snprintf(text + n, sizeof text - (size_t)n, ")");
    return arity == prim_info[op].arity && strcmp(text, row->formula) == 0 ? op : OP_COUNT;
}

static uint32_t axes_mask(OpCall *o, int n, const int64_t *axes, int rank)
{
    uint32_t mask = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bit = axis_bit(op_axis(o, axes[i], rank));
        if (mask & bit) fail(o->cx, E_INVALID, "axis %lld is given twice", (long long)axes[i]);
        mask |= bit;
    }
    return mask;
}

/* The mask of the axes that a row's attribute or input says. */
static uint32_t axes_or_all(OpCall *o, int n, const int64_t *axes, int rank)
{
    if (n > 0) return axes_mask(o, n, axes, rank);
    return op_int(o, "noop_with_empty_axes", 0) ? 0 : (uint32_t)((1ull << rank) - 1);
}

static Node *squeeze_axes(Graph *g, Node *x, uint32_t mask)
{
    for (int k = x->rank - 1; k >= 0; k--)
        if (mask & axis_bit(k)) x = g_squeeze(g, x, k);
    return x;
}

static void bind_attr(OpCall *o, Word w, Binding *b, int rank)
{
    const char *eq = memchr(w.at, '=', (size_t)w.n);
    size_t len = eq ? (size_t)(eq - w.at) : (size_t)w.n;
    char *name = NEWS(o->a, char, len + 1);
    memcpy(name, w.at, len);
    b->name = name;
    double fallback = eq ? strtod(eq + 1, NULL) : 0;
    if (strcmp(name, "axis") == 0) {
        b->type = 'a';
        b->axes = axis_bit(op_axis(o, op_int(o, "axis", (int64_t)fallback), rank));
    } else if (strcmp(name, "axes") == 0) {
        int n;
        const int64_t *axes = op_ints(o, "axes", &n);
        b->type = 'a';
        b->axes = axes_or_all(o, n, axes, rank);
    } else {
        const OnnxAttr *t = op_attr(o, name);
        b->type = 'f';
        b->number = !t ? fallback : t->type == ATTR_int ? (double)t->i : op_float(o, name, fallback);
    }
}

void op_formula(OpCall *o, const OpRow *row)
{
    Op op = single_primitive(row);
    if (op != OP_COUNT) {
        o->out[0] = g_op(o->g, op, prim_info[op].arity, o->in);
        return;
    }
    Binding b[FORMULA_NAMES];
    memset(b, 0, sizeof b);
    int n = 0, rank = o->in[0]->rank;
    uint32_t mask = 0;
    /* an axes input first: reading it may cut the trace, and nodes bound before would be of the finished graph */
    const char *p = row->inputs;
    for (int i = 0;; i++) {
        Word w = next_word(&p);
        if (!w.n) break;
        if (strncmp(w.at, "axes", 4) || (w.n > 4 && w.at[4] != '?')) continue;
        int count;
        const int64_t *axes = op_values_int(o, i, &count);
        b[n++] = (Binding){ .name = "axes", .type = 'a', .axes = axes_or_all(o, count, axes, rank) };
    }
    DType dt = o->in[0]->dt, wide = dtype_wide(dt);
    p = row->inputs;
    for (int i = 0;; i++) {
        Word w = next_word(&p);
        if (!w.n) break;
        ASSERT(n < FORMULA_NAMES);
        if (strncmp(w.at, "axes", 4) == 0 && (w.n == 4 || w.at[4] == '?')) continue;
        if (!o->in[i]) continue;
        int len = w.at[w.n - 1] == '?' ? w.n - 1 : w.n;
        char *name = NEWS(o->a, char, len + 1);
        memcpy(name, w.at, (size_t)len);
        Node *x = o->in[i];
        if (dtype_is_float(x->dt)) x = g_cast(o->g, x, dtype_wide(x->dt));
        b[n++] = (Binding){ .name = name, .type = 'n', .node = x };
    }
    p = row->attrs;
    for (;;) {
        Word w = next_word(&p);
        if (!w.n) break;
        ASSERT(n < FORMULA_NAMES);
        bind_attr(o, w, &b[n++], rank);
    }
    bool squeeze = false;
    for (int i = 0; i < n; i++) {
        if (b[i].type == 'a') mask = b[i].axes;
        if (b[i].type == 'f' && strcmp(b[i].name, "keepdims") == 0) squeeze = b[i].number == 0;
    }
    Node *y = expr_build(o->g, row->formula, n, b);
    if (dt != wide && dtype_is_float(dt) && y->dt == wide) y = g_cast(o->g, y, dt);
    o->out[0] = squeeze ? squeeze_axes(o->g, y, mask) : y;
}
