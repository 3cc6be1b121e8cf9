/* ONNX's text syntax (.onnxtxt) to OnnxModel: recursive descent (its scanner: textscan.c), as the onnx project's docs/Syntax.md has it.
 *
 *     < ir_version: 10, opset_import: [ "" : 21 ] >
 *     agraph (float[N, 4] X, float bias = {0.5}) => (float[N, 4] Y) < float[4] W = {1, 2, 3, 4} >
 *     {
 *         T = Mul (X, W)                            # a comment
 *         [label] Y = local.Scale <alpha: float = 2> (T)
 *     }
 *
 * Values in braces are bit patterns for float16, bfloat16, float8 and float4, as in ONNX's own parser. Below 8 bits they are one number
 * for each element; as many as packed bytes are taken as packed, which is how ONNX's printer writes them. A list that mixes whole
 * numbers and floats is a list of floats. */
#include "onnx/onnx.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef VEC(OnnxValue) ValueVec;
typedef VEC(OnnxTensor) TensorVec;
typedef VEC(OnnxNode) NodeVec;
typedef VEC(OnnxAttr) AttrVec;
typedef VEC(OnnxOpset) OpsetVec;
typedef VEC(const char *) NameVec;

static OnnxGraph *tx_graph(Tx *t);

/* ---- types ------------------------------------------------------------------------------------------------------------------- */
static int dtype_word(const char *s, size_t n)
{
    for (int code = 1; onnx_dtype_name(code); code++) {
        const char *name = onnx_dtype_name(code);
        if (strlen(name) == n && !memcmp(name, s, n))
            return code;
    }
    return 0;
}

static char kind_word(const char *s, size_t n)
{
    static const struct { const char *word; char kind; } kinds[] = {{"seq", 's'}, {"map", 'm'}, {"optional", 'o'}, {"sparse_tensor", 'p'}, {"opaque", 'x'}};
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strlen(kinds[i].word) == n && !memcmp(kinds[i].word, s, n))
            return kinds[i].kind;
    return 0;
}

static bool tx_next_is_type(Tx *t)
{
    size_t n = tx_word_len(t);
    return n && (dtype_word(t->at, n) || kind_word(t->at, n));
}

static void tx_dims(Tx *t, OnnxValue *v)
{
    OnnxDim dims[MAX_RANK];
    v->rank = 0;
    if (!tx_take(t, '['))
        return;                         /* a scalar */
    if (tx_take(t, ']')) {
        v->rank = -1;
        return;
    }
    do {
        OnnxDim d = {-1, NULL};
        if (tx_peek(t) == '"' || tx_word_len(t)) {
            d.sym = tx_name(t);
            if (!*d.sym)
                d.sym = NULL;
        } else if (!tx_take(t, '?')) {
            d.value = tx_int(t);
            if (d.value < -1)           /* -1 is how some exporters spell an unknown size */
                tx_fail(t, E_FORMAT, t->at, "dimension %lld, wanted 0 or more", (long long)d.value);
        }
        if (v->rank == MAX_RANK)
            tx_fail(t, E_UNSUPPORTED, t->at, "more than %d dimensions", MAX_RANK);
        dims[v->rank++] = d;
    } while (tx_take(t, ','));
    tx_need(t, ']');
    v->dims = arena_copy(t->a, dims, (size_t)v->rank * sizeof *dims);
}

static void tx_prim_type(Tx *t, OnnxValue *v)
{
    size_t n = tx_word_len(t);
    v->onnx_dt = n ? dtype_word(t->at, n) : 0;
    if (!v->onnx_dt)
        tx_wanted(t, "an element type");
    t->at += n;
    v->dt = dtype_from_onnx(v->onnx_dt);
}

static void tx_type(Tx *t, OnnxValue *v)
{
    const char *ignored;
    size_t n = tx_word_len(t);
    char kind = n ? kind_word(t->at, n) : 0;
    *v = (OnnxValue){.name = "", .rank = -1};
    if (!kind) {
        tx_prim_type(t, v);
        tx_dims(t, v);
        v->kind = 't';
        return;
    }
    if (++t->r->depth > ONNX_DEPTH)
        tx_fail(t, E_UNSUPPORTED, t->at, "types nested deeper than %d", ONNX_DEPTH);
    t->at += n;
    tx_need(t, '(');
    switch (kind) {
    case 's': case 'o':
        tx_type(t, v);
        v->dt = DT_none;
        break;
    case 'p':
        tx_prim_type(t, v);
        tx_dims(t, v);
        break;
    case 'm':
        tx_prim_type(t, v);
        tx_need(t, ',');
        tx_type(t, v);
        *v = (OnnxValue){.name = "", .rank = -1};
        break;
    default:
        if (tx_peek(t) != ')') {
            tx_qualified(t, &ignored, "a name");
            if (tx_take(t, ','))
                tx_need_word(t, "a name");
        }
    }
    tx_need(t, ')');
    v->kind = kind;
    t->r->depth--;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */
/* ["location": "weights.bin", "offset": "0", "length": "16"] */
static void tx_pairs(Tx *t, NameVec *keys, NameVec *values)
{
    tx_need(t, '[');
    if (tx_take(t, ']'))
        return;
    do {
        vec_push(t->a, keys, tx_string(t, NULL));
        tx_need(t, ':');
        vec_push(t->a, values, tx_string(t, NULL));
    } while (tx_take(t, ','));
    tx_need(t, ']');
}

static void tx_external(Tx *t, OnnxTensor *out)
{
    NameVec keys = {0}, values = {0};
    const char *where[3] = {NULL, NULL, NULL};
    static const char *const words[3] = {"location", "offset", "length"};
    tx_pairs(t, &keys, &values);
    for (int i = 0; i < keys.n; i++)
        for (int k = 0; k < 3; k++)
            if (!strcmp(keys.at[i], words[k]))
                where[k] = values.at[i];
    if (!where[0] || out->dt == DT_none)
        tx_fail(t, E_FORMAT, t->at, "external data %s", where[0] ? "of a type that cannot have it" : "without a location");
    const uint8_t *src = onnx_external(t->r, out->name, where[0], where[1], where[2], (uint64_t)onnx_packed_bytes(out->dt, out->count));
    out->data = onnx_stored(t->r, out->dt, src, out->count);
}

/* One literal, stored as the dtype holds it. */
static void tx_element(Tx *t, DType dt, uint8_t *dst)
{
    char buf[128];
    char kind = tx_number(t, buf, sizeof buf);
    size_t size = dtype_size(dt);
    if (dt == DT_f32) {
        float v = (float)tx_to_float(t, buf, true);
        memcpy(dst, &v, sizeof v);
        return;
    }
    if (dt == DT_f64) {
        double v = tx_to_float(t, buf, false);
        memcpy(dst, &v, sizeof v);
        return;
    }
    if (kind != 'i')
        tx_fail(t, E_FORMAT, t->at, "found %s in a tensor of %s, wanted %s", buf, dtype_info[dt].name,
            dtype_is_float(dt) ? "its bit pattern as a whole number" : "a whole number");
    if (dt == DT_u64) {
        errno = 0;
        uint64_t v = strtoull(buf, NULL, 10);
        if (errno || (buf[0] == '-' && v))
            tx_fail(t, E_FORMAT, t->at, "%s does not fit u64", buf);
        memcpy(dst, &v, sizeof v);
        return;
    }
    int64_t v = tx_to_int(t, buf);
    int bits = size < 8 ? (int)size * 8 : 32;
    bool sub = dtype_bits(dt) < 8, is_signed = dtype_info[dt].class == 'S';
    /* Types below 8 bits are looked at again when their number is known: elements or packed bytes. */
    int64_t low = is_signed ? -((int64_t)1 << (bits - 1)) : 0, high = ((int64_t)1 << (is_signed && !sub ? bits - 1 : bits)) - 1;
    if (size < 8 && (v < low || v > high))
        tx_fail(t, E_FORMAT, t->at, "%s does not fit %s", buf, dtype_info[dt].name);
    if (dt == DT_bool)
        v = v != 0;
    memcpy(dst, &v, size);
}

/* The literals of a type below 8 bits, one byte each, to elements; there is one at least. */
static const void *tx_narrow(Tx *t, DType dt, const uint8_t *found, int64_t n, int64_t count)
{
    ASSERT(found);
    int bits = dtype_bits(dt);
    int low = dtype_info[dt].class == 'S' ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
    bool fits = n == count;
    for (int64_t i = 0; fits && i < n; i++) {
        int v = low < 0 ? (int8_t)found[i] : found[i];
        fits = v >= low && v <= high;
    }
    if (fits)
        return found;
    if (n != onnx_packed_bytes(dt, count))
        tx_fail(t, E_FORMAT, t->at, "a value does not fit %s", dtype_info[dt].name);
    return onnx_stored(t->r, dt, found, count);
}

/* "{1, 2}" or external data; the type comes before it. */
static void tx_tensor_data(Tx *t, const OnnxValue *type, const char *name, OnnxTensor *out)
{
    int64_t dims[MAX_RANK];
    if (type->kind != 't' || type->rank < 0)
        tx_fail(t, E_FORMAT, t->at, "tensor '%s' needs a tensor type with its dimensions", name);
    for (int i = 0; i < type->rank; i++)
        if ((dims[i] = type->dims[i].value) < 0)
            tx_fail(t, E_FORMAT, t->at, "tensor '%s' needs numbers as dimensions", name);
    *out = (OnnxTensor){.name = name, .dt = type->dt, .onnx_dt = type->onnx_dt, .rank = type->rank};
    out->dims = arena_copy(t->a, dims, (size_t)type->rank * sizeof *dims);
    out->count = onnx_count(type->rank, dims);
    if (out->count < 0)
        tx_fail(t, E_FORMAT, t->at, "tensor '%s': dims %s are too large", name, shape_str(t->a, type->rank, dims));
    if (tx_peek(t) == '[') {
        tx_external(t, out);
        return;
    }
    VEC(uint8_t) bytes = {0};
    NameVec strings = {0};
    bool is_string = out->onnx_dt == 8, is_complex = out->dt == DT_none && !is_string;
    DType dt = is_complex ? (out->onnx_dt == 14 ? DT_f32 : DT_f64) : out->dt;
    size_t size = is_string ? 0 : dtype_size(dt);
    int64_t n = 0, want = is_complex ? 2 * out->count : out->count;
    tx_need(t, '{');
    if (!tx_take(t, '}')) {
        do {
            if (is_string) {
                vec_push(t->a, &strings, tx_string(t, NULL));
            } else {
                uint8_t e[8];
                tx_element(t, dt, e);
                for (size_t i = 0; i < size; i++)
                    vec_push(t->a, &bytes, e[i]);
            }
            n++;
        } while (tx_take(t, ','));
        tx_need(t, '}');
    }
    if (!is_string && !is_complex && dtype_bits(dt) < 8 && n == onnx_packed_bytes(dt, want)) {
        out->data = n ? tx_narrow(t, dt, bytes.at, n, want) : "";
        return;
    }
    if (n != want)
        tx_fail(t, E_FORMAT, t->at, "tensor '%s' has %lld values, but %s wants %lld", name, (long long)n,
            shape_str(t->a, type->rank, dims), (long long)want);
    if (is_string)
        out->strings = strings.at ? strings.at : NEWS(t->a, const char *, 1);
    else
        out->data = !n ? "" : dtype_bits(dt) < 8 ? tx_narrow(t, dt, bytes.at, n, want) : bytes.at;
}

/* ---- attributes ------------------------------------------------------------------------------------------------------------------ */
static OnnxAttrType attr_type_word(Tx *t)
{
    static const char *const words[] = {[ATTR_float] = "float", [ATTR_int] = "int", [ATTR_string] = "string", [ATTR_tensor] = "tensor",
        [ATTR_graph] = "graph", [ATTR_floats] = "floats", [ATTR_ints] = "ints", [ATTR_strings] = "strings", [ATTR_tensors] = "tensors",
        [ATTR_graphs] = "graphs", [ATTR_sparse] = "sparse_tensor", [ATTR_sparses] = "sparse_tensors", [ATTR_type] = "type_proto",
        [ATTR_types] = "type_protos"};
    size_t n = tx_word_len(t);
    for (size_t i = 1; n && i < COUNT_OF(words); i++)
        if (words[i] && strlen(words[i]) == n && !memcmp(words[i], t->at, n)) {
            t->at += n;
            return (OnnxAttrType)i;
        }
    tx_wanted(t, "an attribute type");
}

/* float of floats, and so on; the type itself when it is no list */
static OnnxAttrType element_of(OnnxAttrType t)
{
    switch (t) {
    case ATTR_floats: return ATTR_float;
    case ATTR_ints: return ATTR_int;
    case ATTR_strings: return ATTR_string;
    case ATTR_tensors: return ATTR_tensor;
    case ATTR_graphs: return ATTR_graph;
    case ATTR_sparses: return ATTR_sparse;
    case ATTR_types: return ATTR_type;
    default: return t;
    }
}

/* One value. `as_float`: whole numbers become floats. */
static void tx_attr_value(Tx *t, OnnxAttr *a, bool as_float)
{
    char c = tx_peek(t), buf[128];
    if (c == '"') {
        a->type = ATTR_string;
        a->s = tx_string(t, &a->s_len);
    } else if (tx_next_is_type(t)) {
        OnnxValue type;
        tx_type(t, &type);
        c = tx_peek(t);
        if (c == '{' || c == '=' || c == '[' || c == '"' || tx_word_len(t)) {
            OnnxTensor *tensor = NEW(t->a, OnnxTensor);
            const char *name = tx_name(t);
            (void)tx_take(t, '=');
            tx_tensor_data(t, &type, name ? name : "", tensor);
            a->type = ATTR_tensor;
            a->t = tensor;
        } else {
            a->type = ATTR_type;
            a->tp = arena_copy(t->a, &type, sizeof type);
        }
    } else if (tx_word_len(t) && !tx_next_is_special(t)) {
        a->type = ATTR_graph;
        a->g = tx_graph(t);
    } else if (tx_number(t, buf, sizeof buf) == 'f' || as_float) {
        a->type = ATTR_float;
        a->f = (float)tx_to_float(t, buf, true);
    } else {
        a->type = ATTR_int;
        a->i = tx_to_int(t, buf);
    }
}

static void tx_attr_list(Tx *t, OnnxAttr *a)
{
    VEC(float) floats = {0};
    VEC(int64_t) ints = {0};
    NameVec strings = {0};
    VEC(const OnnxTensor *) tensors = {0};
    VEC(OnnxGraph *) graphs = {0};
    OnnxAttrType want = a->type == ATTR_none ? ATTR_none : element_of(a->type), kind = want;
    const char *open = t->at - 1;
    if (want != ATTR_none && want == a->type)
        tx_fail(t, E_FORMAT, open, "attribute '%s' has a type for one value, found a list", a->name);
    if (tx_take(t, ']')) {
        if (want == ATTR_none)
            tx_fail(t, E_FORMAT, open, "attribute '%s': an empty list needs a type, as in '%s: ints = []'", a->name, a->name);
        return;
    }
    do {
        OnnxAttr e = {0};
        const char *at = (tx_peek(t), t->at);
        tx_attr_value(t, &e, want == ATTR_float);
        if (want == ATTR_none && kind == ATTR_int && e.type == ATTR_float)
            kind = ATTR_float;
        if (want == ATTR_none && kind == ATTR_float && e.type == ATTR_int) {
            e.type = ATTR_float;
            e.f = (float)e.i;
        }
        if (kind == ATTR_none)
            kind = e.type;
        if (e.type != kind)
            tx_fail(t, E_FORMAT, at, "attribute '%s': the list's values differ in type", a->name);
        switch (kind) {
        case ATTR_int: vec_push(t->a, &ints, e.i); break;
        case ATTR_float:
            for (int i = 0; i < ints.n; i++)
                vec_push(t->a, &floats, (float)ints.at[i]);
            ints.n = 0;
            vec_push(t->a, &floats, e.f);
            break;
        case ATTR_string: vec_push(t->a, &strings, e.s); break;
        case ATTR_tensor: vec_push(t->a, &tensors, e.t); break;
        case ATTR_graph: vec_push(t->a, &graphs, e.g); break;
        default: tx_fail(t, E_UNSUPPORTED, at, "attribute '%s': a list of types", a->name);
        }
    } while (tx_take(t, ','));
    tx_need(t, ']');
    switch (kind) {
    case ATTR_int: a->type = ATTR_ints; a->n = ints.n; a->ints = ints.at; break;
    case ATTR_float: a->type = ATTR_floats; a->n = floats.n; a->floats = floats.at; break;
    case ATTR_string: a->type = ATTR_strings; a->n = strings.n; a->strings = strings.at; break;
    case ATTR_tensor: a->type = ATTR_tensors; a->n = tensors.n; a->tensors = tensors.at; break;
    default: a->type = ATTR_graphs; a->n = graphs.n; a->graphs = graphs.at; break;
    }
}

/* What follows an attribute's name. */
static void tx_attr_rest(Tx *t, const char *name, OnnxAttr *a)
{
    *a = (OnnxAttr){.name = name};
    if (tx_take(t, ':'))
        a->type = attr_type_word(t);
    tx_need(t, '=');
    OnnxAttrType want = a->type;
    const char *at = (tx_peek(t), t->at);
    if (tx_take(t, '@')) {
        a->ref = tx_need_name(t, "the name of an attribute");
    } else if (tx_take(t, '[')) {
        tx_attr_list(t, a);
    } else {
        tx_attr_value(t, a, want == ATTR_float);
        if (want != ATTR_none && a->type != want)
            tx_fail(t, E_FORMAT, at, "attribute '%s': its value is not of the type before it", name);
    }
}

static void tx_attrs(Tx *t, AttrVec *attrs)
{
    if (!tx_take(t, '<') || tx_take(t, '>'))
        return;
    do {
        OnnxAttr a;
        tx_attr_rest(t, tx_need_word(t, "the name of an attribute"), &a);
        vec_push(t->a, attrs, a);
    } while (tx_take(t, ','));
    tx_need(t, '>');
}

/* ---- nodes and graphs --------------------------------------------------------------------------------------------------------------- */
/* Names between commas, each of which may be missing: "a, , b" has three, "a," one, "" none. */
static void tx_names(Tx *t, NameVec *v)
{
    for (;;) {
        const char *s = tx_name(t);
        if (!s && tx_peek(t) != ',')
            return;
        vec_push(t->a, v, s ? s : "");
        if (!tx_take(t, ','))
            return;
    }
}

static void tx_node(Tx *t, OnnxNode *n)
{
    NameVec in = {0}, out = {0};
    AttrVec attrs = {0};
    Note note;
    *n = (OnnxNode){.name = "", .overload = ""};
    if (tx_take(t, '[')) {
        const char *label = tx_name(t);
        n->name = label ? label : "";
        tx_need(t, ']');
    }
    tx_names(t, &out);
    tx_need(t, '=');
    n->op = tx_qualified(t, &n->domain, "an operator's name");
    if (tx_take(t, ':'))
        n->overload = tx_need_word(t, "an overload's name");
    note_push(t->cx, &note, "node", n->name, n->op);
    tx_attrs(t, &attrs);
    tx_need(t, '(');
    tx_names(t, &in);
    tx_need(t, ')');
    if (attrs.n == 0)
        tx_attrs(t, &attrs);
    note_pop(t->cx);
    n->nin = in.n, n->in = in.at;
    n->nout = out.n, n->out = out.at;
    n->nattr = attrs.n, n->attr = attrs.at;
}

static void tx_nodes(Tx *t, NodeVec *v)
{
    tx_need(t, '{');
    while (!tx_take(t, '}')) {
        OnnxNode n;
        if (v->n % 1024 == 0)
            ctx_poll(t->cx);
        tx_node(t, &n);
        vec_push(t->a, v, n);
    }
}

/* "float[2] w": the type may be missing. */
static void tx_value(Tx *t, OnnxValue *v)
{
    *v = (OnnxValue){.name = "", .rank = -1};
    if (tx_next_is_type(t))
        tx_type(t, v);
    v->name = tx_need_name(t, "the name of a value");
}

/* Values up to `close`, with their initialisers if there may be some. In a graph's list of values an initialised one is only that. */
static void tx_values(Tx *t, char close, ValueVec *values, TensorVec *init, bool both)
{
    if (tx_take(t, close))
        return;
    do {
        OnnxValue v;
        OnnxTensor w;
        tx_value(t, &v);
        bool has = init && tx_take(t, '=');
        if (has) {
            tx_tensor_data(t, &v, v.name, &w);
            vec_push(t->a, init, w);
        }
        if (!has || both)
            vec_push(t->a, values, v);
    } while (tx_take(t, ','));
    tx_need(t, close);
}

static OnnxGraph *tx_graph(Tx *t)
{
    ValueVec in = {0}, out = {0}, info = {0};
    TensorVec init = {0};
    NodeVec nodes = {0};
    OnnxGraph *g = NEW(t->a, OnnxGraph);
    if (++t->r->depth > ONNX_DEPTH)
        tx_fail(t, E_UNSUPPORTED, t->at, "subgraphs nested deeper than %d", ONNX_DEPTH);
    g->name = tx_need_name(t, "the name of a graph");
    if (tx_take(t, '('))
        tx_values(t, ')', &in, &init, true);
    tx_arrow(t);
    tx_need(t, '(');
    tx_values(t, ')', &out, NULL, true);
    if (tx_take(t, '<'))
        tx_values(t, '>', &info, &init, false);
    tx_nodes(t, &nodes);
    g->nin = in.n, g->in = in.at;
    g->nout = out.n, g->out = out.at;
    g->ninfo = info.n, g->info = info.at;
    g->ninit = init.n, g->init = init.at;
    g->nnode = nodes.n, g->node = nodes.at;
    t->r->depth--;
    return g;
}

/* ---- functions and the model ------------------------------------------------------------------------------------------------------------ */
static void tx_opsets(Tx *t, OpsetVec *v)
{
    tx_need(t, '[');
    if (tx_take(t, ']'))
        return;
    do {
        OnnxOpset o;
        o.domain = onnx_domain(tx_string(t, NULL));
        tx_need(t, ':');
        o.version = tx_int(t);
        if (o.version < 0)
            tx_fail(t, E_FORMAT, t->at, "version %lld of domain '%s', wanted 1 or more", (long long)o.version, o.domain);
        vec_push(t->a, v, o);
    } while (tx_take(t, ','));
    tx_need(t, ']');
}

/* Function inputs and outputs: names, each with or without a type, which only documents. */
static void tx_params(Tx *t, NameVec *v)
{
    tx_need(t, '(');
    if (tx_take(t, ')'))
        return;
    do {
        OnnxValue value;
        tx_value(t, &value);
        vec_push(t->a, v, value.name);
    } while (tx_take(t, ','));
    tx_need(t, ')');
}

static bool word_is(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(s, word, n);
}

static void tx_function(Tx *t, OnnxFunction *f)
{
    NameVec in = {0}, out = {0}, attr = {0};
    AttrVec defaults = {0};
    OpsetVec opset = {0};
    NodeVec nodes = {0};
    ValueVec info = {0};
    Note note;
    *f = (OnnxFunction){.domain = "", .overload = ""};
    if (tx_take(t, '<') && !tx_take(t, '>')) {
        do {
            size_t n = tx_word_len(t);
            const char *key = t->at;
            if (!word_is(key, n, "opset_import") && !word_is(key, n, "domain") && !word_is(key, n, "doc_string") && !word_is(key, n, "overload"))
                tx_wanted(t, "opset_import, domain, doc_string or overload");
            t->at += n;
            tx_need(t, ':');
            if (word_is(key, n, "opset_import"))
                tx_opsets(t, &opset);
            else if (word_is(key, n, "domain"))
                f->domain = onnx_domain(tx_string(t, NULL));
            else if (word_is(key, n, "overload"))
                f->overload = tx_string(t, NULL);
            else
                tx_string(t, NULL);
        } while (tx_take(t, ','));
        tx_need(t, '>');
    }
    f->name = tx_need_name(t, "the name of a function");
    note_push(t->cx, &note, "function", f->name, NULL);
    if (tx_take(t, '<') && !tx_take(t, '>')) {
        do {
            const char *name = tx_need_name(t, "the name of an attribute");
            char c = tx_peek(t);
            if (c == ':' || c == '=') {
                OnnxAttr a;
                tx_attr_rest(t, name, &a);
                vec_push(t->a, &defaults, a);
            } else {
                vec_push(t->a, &attr, name);
            }
        } while (tx_take(t, ','));
        tx_need(t, '>');
    }
    tx_params(t, &in);
    tx_arrow(t);
    tx_params(t, &out);
    if (tx_take(t, '<'))
        tx_values(t, '>', &info, NULL, true);
    tx_nodes(t, &nodes);
    note_pop(t->cx);
    f->nin = in.n, f->in = in.at;
    f->nout = out.n, f->out = out.at;
    f->nattr = attr.n, f->attr = attr.at;
    f->nattr_default = defaults.n, f->attr_default = defaults.at;
    f->nopset = opset.n, f->opset = opset.at;
    f->nnode = nodes.n, f->node = nodes.at;
}

static void tx_header(Tx *t, OnnxModel *m, OpsetVec *opset, NameVec *meta_key, NameVec *meta_value)
{
    const struct { const char *word; const char **to; } strings[] = {{"producer_name", &m->producer},
        {"producer_version", &m->producer_version}, {"domain", &m->domain}, {"doc_string", &m->doc}};
    if (!tx_take(t, '<') || tx_take(t, '>'))
        return;
    do {
        size_t n = tx_word_len(t), i = 0;
        const char *key = t->at;
        t->at += n;
        while (i < COUNT_OF(strings) && !word_is(key, n, strings[i].word))
            i++;
        bool is_ir = word_is(key, n, "ir_version"), is_version = word_is(key, n, "model_version");
        bool is_opset = word_is(key, n, "opset_import"), is_meta = word_is(key, n, "metadata_props");
        if (i == COUNT_OF(strings) && !is_ir && !is_version && !is_opset && !is_meta) {
            t->at = key;
            tx_wanted(t, "ir_version, opset_import, producer_name or another field of a model");
        }
        tx_need(t, ':');
        if (is_ir)
            m->ir_version = tx_int(t);
        else if (is_version)
            m->model_version = tx_int(t);
        else if (is_opset)
            tx_opsets(t, opset);
        else if (is_meta)
            tx_pairs(t, meta_key, meta_value);
        else
            *strings[i].to = tx_string(t, NULL);
    } while (tx_take(t, ','));
    tx_need(t, '>');
}

void onnx_text_load(OnnxReader *r, const char *text, size_t n)
{
    OnnxModel *m = r->model;
    Tx t = {.r = r, .cx = r->cx, .a = r->arena, .start = text, .at = text, .end = text + n};
    OpsetVec opset = {0};
    NameVec meta_key = {0}, meta_value = {0};
    VEC(OnnxFunction) functions = {0};
    tx_header(&t, m, &opset, &meta_key, &meta_value);
    m->graph = tx_graph(&t);
    while (tx_peek(&t), t.at < t.end) {
        OnnxFunction f;
        tx_function(&t, &f);
        vec_push(t.a, &functions, f);
    }
    m->nopset = opset.n, m->opset = opset.at;
    m->nmeta = meta_key.n, m->meta_key = meta_key.at, m->meta_value = meta_value.at;
    m->nfunction = functions.n, m->function = functions.at;
}
