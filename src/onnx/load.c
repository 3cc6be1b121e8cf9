/* ModelProto to OnnxModel, and the opening and closing of model files.
 *
 * Each message is walked twice: first to count its repeated fields, so that arrays get their exact size, then to fill them. A field that
 * is not repeated but occurs several times is collected as a list of pieces and read as one message, which is protobuf's merge. Lengths
 * inside a message are skipped, not entered, by the walks of the messages around it, so the whole costs time linear in the file. */
#include "onnx/onnx.h"
#include <limits.h>
#include <string.h>

static void read_graph(OnnxReader *r, const PbSpan *msg, OnnxGraph *g);

const char *onnx_domain(const char *domain)
{
    return strcmp(domain, "ai.onnx") ? domain : "";
}

static void reader_deeper(OnnxReader *r, const Pb *p, const char *what)
{
    if (++r->depth > ONNX_DEPTH)
        pb_fail(p, E_UNSUPPORTED, "%s nested deeper than %d", what, ONNX_DEPTH);
}

/* ---- types and values ------------------------------------------------------------------------------------------------ */

static void read_dim(OnnxReader *r, const PbSpan *msg, OnnxDim *d)
{
    Pb p;
    *d = (OnnxDim){-1, NULL};
    pb_open(&p, r->cx, r->base, PB_Dim, msg);
    while (pb_next(&p)) {
        if (p.number == PB_Dim_dim_value) {
            int64_t v = (int64_t)p.v;
            if (v < -1)                 /* -1 is how some exporters spell an unknown size */
                pb_fail(&p, E_FORMAT, "found %lld, wanted 0 or more", (long long)v);
            *d = (OnnxDim){v, NULL};
        } else {
            const char *sym = pb_name(&p, r->arena);
            *d = (OnnxDim){-1, *sym ? sym : NULL};
        }
    }
}

static void read_tensor_type(OnnxReader *r, const PbSpan *msg, OnnxValue *v)
{
    Pb p;
    PbSpan shape = {0};
    bool has_shape = false;
    pb_open(&p, r->cx, r->base, PB_TensorType, msg);
    while (pb_next(&p)) {
        if (p.number == PB_TensorType_elem_type) {
            v->onnx_dt = (int)(int32_t)(uint32_t)p.v;
        } else {
            has_shape = true;
            pb_merge(&p, r->arena, &shape);
        }
    }
    v->dt = dtype_from_onnx(v->onnx_dt);
    if (!has_shape)
        return;
    int n[PB_FIELDS];
    pb_count(r->cx, r->base, PB_Shape, &shape, n);
    pb_open(&p, r->cx, r->base, PB_Shape, &shape);
    if (n[PB_Shape_dim] > MAX_RANK)
        pb_fail(&p, E_UNSUPPORTED, "rank %d, at most %d", n[PB_Shape_dim], MAX_RANK);
    OnnxDim *dims = NEWS(r->arena, OnnxDim, n[PB_Shape_dim]);
    v->rank = 0;
    v->dims = dims;
    while (pb_next(&p))
        read_dim(r, &p.bytes, &dims[v->rank++]);
}

/* One of several kinds; the last one in the message stands. */
static void read_type(OnnxReader *r, const PbSpan *msg, OnnxValue *v)
{
    Pb p;
    PbSpan inner = {0};
    int which = 0;
    pb_open(&p, r->cx, r->base, PB_Type, msg);
    while (pb_next(&p)) {
        if (p.number != which)
            inner = (PbSpan){0};
        which = p.number;
        pb_merge(&p, r->arena, &inner);
    }
    v->kind = 0;
    v->dt = DT_none;
    v->onnx_dt = 0;
    v->rank = -1;
    v->dims = NULL;
    reader_deeper(r, &p, "types");
    switch (which) {
    case PB_Type_tensor_type:
    case PB_Type_sparse_tensor_type:
        read_tensor_type(r, &inner, v);
        v->kind = which == PB_Type_tensor_type ? 't' : 'p';
        break;
    case PB_Type_sequence_type:
    case PB_Type_optional_type: {
        PbSpan elem = {0};
        pb_open(&p, r->cx, r->base, PB_BoxType, &inner);
        while (pb_next(&p))
            pb_merge(&p, r->arena, &elem);
        if (elem.at)
            read_type(r, &elem, v);
        v->kind = which == PB_Type_sequence_type ? 's' : 'o';
        v->dt = DT_none;
        break;
    }
    case PB_Type_map_type: v->kind = 'm'; break;
    case PB_Type_opaque_type: v->kind = 'x'; break;
    default: break;
    }
    r->depth--;
}

static void read_value(OnnxReader *r, const PbSpan *msg, OnnxValue *v)
{
    Pb p;
    PbSpan type = {0};
    v->name = "";
    v->rank = -1;
    pb_open(&p, r->cx, r->base, PB_Value, msg);
    while (pb_next(&p)) {
        if (p.number == PB_Value_name)
            v->name = pb_name(&p, r->arena);
        else
            pb_merge(&p, r->arena, &type);
    }
    if (type.at)
        read_type(r, &type, v);
}

/* ---- sparse tensors --------------------------------------------------------------------------------------------------- */

typedef struct SparseParts { OnnxTensor values, indices; int64_t dims[MAX_RANK]; int rank; } SparseParts;

static void read_sparse(OnnxReader *r, const PbSpan *msg, SparseParts *s, OnnxTensor *dense)
{
    Pb p;
    PbSpan values = {0}, indices = {0};
    s->rank = 0;
    pb_open(&p, r->cx, r->base, PB_Sparse, msg);
    while (pb_next(&p)) {
        if (p.number == PB_Sparse_values) {
            pb_merge(&p, r->arena, &values);
        } else if (p.number == PB_Sparse_indices) {
            pb_merge(&p, r->arena, &indices);
        } else {
            size_t k = pb_elems(&p);
            if (k > (size_t)(MAX_RANK - s->rank))
                pb_fail(&p, E_UNSUPPORTED, "more than %d dimensions", MAX_RANK);
            pb_ints(&p, s->dims + s->rank);
            s->rank += (int)k;
        }
    }
    p.number = 0;
    p.tag_at = msg->at;
    if (!values.at || !indices.at)
        pb_fail(&p, E_FORMAT, "a sparse tensor without %s", values.at ? "indices" : "values");
    onnx_tensor_read(r, &values, &s->values);
    onnx_tensor_read(r, &indices, &s->indices);
    const char *wrong = onnx_sparse_dense(r, &s->values, &s->indices, s->rank, s->dims, dense);
    if (wrong)
        pb_fail(&p, E_FORMAT, "sparse tensor '%s' %s with %lld values: %s", s->values.name, shape_str(r->arena, s->rank, s->dims),
            (long long)s->values.count, wrong);
}

/* ---- attributes --------------------------------------------------------------------------------------------------------- */

/* The field that holds the value of each attribute type. */
static int attr_field(OnnxAttrType t)
{
    switch (t) {
    case ATTR_none: return 0;
    case ATTR_float: return PB_Attribute_f;
    case ATTR_int: return PB_Attribute_i;
    case ATTR_string: return PB_Attribute_s;
    case ATTR_tensor: return PB_Attribute_t;
    case ATTR_graph: return PB_Attribute_g;
    case ATTR_floats: return PB_Attribute_floats;
    case ATTR_ints: return PB_Attribute_ints;
    case ATTR_strings: return PB_Attribute_strings;
    case ATTR_tensors: return PB_Attribute_tensors;
    case ATTR_graphs: return PB_Attribute_graphs;
    case ATTR_sparse: return PB_Attribute_sparse_tensor;
    case ATTR_sparses: return PB_Attribute_sparse_tensors;
    case ATTR_type: return PB_Attribute_tp;
    case ATTR_types: return PB_Attribute_type_protos;
    }
    return 0;
}

/* Lists: the values of a.type, `count` elements. */
static void read_attr_list(OnnxReader *r, const PbSpan *msg, OnnxAttr *a, size_t count)
{
    Pb p;
    int field = attr_field(a->type);
    float *floats = NULL;
    int64_t *ints = NULL;
    OnnxTensor *tensors = NULL;
    OnnxGraph *graphs = NULL;
    size_t i = 0;
    pb_open(&p, r->cx, r->base, PB_Attribute, msg);
    if (count > INT_MAX)
        pb_fail(&p, E_UNSUPPORTED, "attribute '%s' has %zu elements, at most %d", a->name, count, INT_MAX);
    a->n = (int)count;
    switch (a->type) {
    case ATTR_floats: a->floats = floats = NEWS(r->arena, float, count); break;
    case ATTR_ints: a->ints = ints = NEWS(r->arena, int64_t, count); break;
    case ATTR_strings: a->strings = NEWS(r->arena, const char *, count); break;
    case ATTR_tensors: a->tensors = NEWS(r->arena, const OnnxTensor *, count); tensors = NEWS(r->arena, OnnxTensor, count); break;
    case ATTR_graphs: a->graphs = NEWS(r->arena, OnnxGraph *, count); graphs = NEWS(r->arena, OnnxGraph, count); break;
    default: return;                    /* lists of types and of sparse tensors: no operator has them */
    }
    while (pb_next(&p)) {
        if (p.number != field)
            continue;
        size_t k = pb_elems(&p);
        switch (a->type) {
        case ATTR_floats:
            if (p.wire == 2 && k)
                memcpy(floats + i, p.bytes.at, k * sizeof *floats);
            else if (p.wire != 2)
                floats[i] = pb_f32(p.v);
            i += k;
            break;
        case ATTR_ints: pb_ints(&p, ints + i); i += k; break;
        case ATTR_strings: a->strings[i++] = pb_str(&p, r->arena); break;
        case ATTR_tensors: onnx_tensor_read(r, &p.bytes, &tensors[i]); a->tensors[i] = &tensors[i]; i++; break;
        case ATTR_graphs: read_graph(r, &p.bytes, &graphs[i]); a->graphs[i] = &graphs[i]; i++; break;
        default: break;
        }
    }
}

static void read_attr(OnnxReader *r, const PbSpan *msg, OnnxAttr *a)
{
    Pb p;
    size_t n[PB_FIELDS] = {0};          /* elements of each field */
    PbSpan one = {0}, tensor = {0}, graph = {0}, type = {0}, sparse = {0};
    int code = 0;
    memset(a, 0, sizeof *a);
    a->name = "";
    pb_open(&p, r->cx, r->base, PB_Attribute, msg);
    while (pb_next(&p)) {
        n[p.number] += p.number == PB_Attribute_floats || p.number == PB_Attribute_ints ? pb_elems(&p) : 1;
        switch (p.number) {
        case PB_Attribute_name: a->name = pb_name(&p, r->arena); break;
        case PB_Attribute_ref_attr_name: a->ref = pb_name(&p, r->arena); break;
        case PB_Attribute_type: code = (int)(int32_t)(uint32_t)p.v; break;
        case PB_Attribute_f: a->f = pb_f32(p.v); break;
        case PB_Attribute_i: a->i = (int64_t)p.v; break;
        case PB_Attribute_s: one = p.bytes; break;
        case PB_Attribute_t: pb_merge(&p, r->arena, &tensor); break;
        case PB_Attribute_g: pb_merge(&p, r->arena, &graph); break;
        case PB_Attribute_tp: pb_merge(&p, r->arena, &type); break;
        case PB_Attribute_sparse_tensor: pb_merge(&p, r->arena, &sparse); break;
        default: break;
        }
    }
    p.number = 0;
    p.tag_at = msg->at;
    if (!*a->name)
        pb_fail(&p, E_FORMAT, "an attribute without a name");
    if (code < 0 || code > ATTR_types)
        pb_fail(&p, E_FORMAT, "attribute '%s': type is %d, wanted 1 to %d", a->name, code, ATTR_types);
    a->type = (OnnxAttrType)code;
    if (a->ref && *a->ref)
        return;
    a->ref = NULL;
    /* The value's field may be absent when it is the default, but not in favour of another field. Old files name no type. */
    if (n[attr_field(a->type)] == 0)
        for (int k = ATTR_float; k <= ATTR_types; k++)
            if (n[attr_field((OnnxAttrType)k)]) {
                if (a->type != ATTR_none)
                    pb_fail(&p, E_FORMAT, "attribute '%s': type is %d, but its value is of type %d", a->name, code, k);
                a->type = (OnnxAttrType)k;
            }
    const char *missing = NULL;
    switch (a->type) {
    case ATTR_none: case ATTR_float: case ATTR_int: case ATTR_sparses: case ATTR_types: break;
    case ATTR_string: {
        a->s_len = one.at ? (size_t)(one.end - one.at) : 0;
        char *s = arena_alloc(r->arena, a->s_len + 1);
        if (a->s_len)
            memcpy(s, one.at, a->s_len);
        a->s = s;
        break;
    }
    case ATTR_tensor:
        if (tensor.at) {
            OnnxTensor *t = NEW(r->arena, OnnxTensor);
            onnx_tensor_read(r, &tensor, t);
            a->t = t;
        } else {
            missing = "tensor";
        }
        break;
    case ATTR_graph:
        if (graph.at)
            read_graph(r, &graph, a->g = NEW(r->arena, OnnxGraph));
        else
            missing = "graph";
        break;
    case ATTR_sparse:
        if (sparse.at) {
            SparseParts *s = NEW(r->arena, SparseParts);
            OnnxTensor *t = NEW(r->arena, OnnxTensor);
            read_sparse(r, &sparse, s, t);
            a->t = t;
            a->sparse_values = &s->values;
            a->sparse_indices = &s->indices;
            a->sparse_dims = s->dims;
            a->sparse_rank = s->rank;
        } else {
            missing = "sparse tensor";
        }
        break;
    case ATTR_type:
        if (type.at) {
            OnnxValue *v = NEW(r->arena, OnnxValue);
            v->name = "";
            read_type(r, &type, v);
            a->tp = v;
        } else {
            missing = "type";
        }
        break;
    case ATTR_floats: case ATTR_ints: case ATTR_strings: case ATTR_tensors: case ATTR_graphs:
        read_attr_list(r, msg, a, n[attr_field(a->type)]);
        break;
    }
    if (missing)
        pb_fail(&p, E_FORMAT, "attribute '%s': its %s is missing", a->name, missing);
}

/* ---- nodes, graphs, functions ------------------------------------------------------------------------------------------- */

static void read_node(OnnxReader *r, const PbSpan *msg, OnnxNode *d)
{
    Pb p;
    Note note;
    d->name = d->op = d->domain = d->overload = "";
    pb_open(&p, r->cx, r->base, PB_Node, msg);
    while (pb_next(&p))
        switch (p.number) {
        case PB_Node_input: d->nin++; break;
        case PB_Node_output: d->nout++; break;
        case PB_Node_attribute: d->nattr++; break;
        case PB_Node_name: d->name = pb_name(&p, r->arena); break;
        case PB_Node_op_type: d->op = pb_name(&p, r->arena); break;
        case PB_Node_domain: d->domain = onnx_domain(pb_name(&p, r->arena)); break;
        case PB_Node_overload: d->overload = pb_name(&p, r->arena); break;
        default: break;
        }
    if (!*d->op) {
        p.number = 0;
        p.tag_at = msg->at;
        pb_fail(&p, E_FORMAT, "node '%s' has no op_type", d->name);
    }
    note_push(r->cx, &note, "node", d->name, d->op);
    int nin = 0, nout = 0, nattr = 0;
    OnnxAttr *attr = NEWS(r->arena, OnnxAttr, d->nattr);
    d->in = NEWS(r->arena, const char *, d->nin);
    d->out = NEWS(r->arena, const char *, d->nout);
    d->attr = attr;
    pb_open(&p, r->cx, r->base, PB_Node, msg);
    while (pb_next(&p))
        switch (p.number) {
        case PB_Node_input: d->in[nin++] = pb_name(&p, r->arena); break;
        case PB_Node_output: d->out[nout++] = pb_name(&p, r->arena); break;
        case PB_Node_attribute: read_attr(r, &p.bytes, &attr[nattr++]); break;
        default: break;
        }
    note_pop(r->cx);
}

static void read_graph(OnnxReader *r, const PbSpan *msg, OnnxGraph *g)
{
    Pb p;
    int n[PB_FIELDS];
    pb_count(r->cx, r->base, PB_Graph, msg, n);
    pb_open(&p, r->cx, r->base, PB_Graph, msg);
    reader_deeper(r, &p, "subgraphs");
    if (n[PB_Graph_initializer] > INT_MAX - n[PB_Graph_sparse_initializer])
        pb_fail(&p, E_UNSUPPORTED, "more than %d initialisers", INT_MAX);
    g->name = "";
    g->node = NEWS(r->arena, OnnxNode, n[PB_Graph_node]);
    g->init = NEWS(r->arena, OnnxTensor, n[PB_Graph_initializer] + n[PB_Graph_sparse_initializer]);
    g->in = NEWS(r->arena, OnnxValue, n[PB_Graph_input]);
    g->out = NEWS(r->arena, OnnxValue, n[PB_Graph_output]);
    g->info = NEWS(r->arena, OnnxValue, n[PB_Graph_value_info]);
    while (pb_next(&p))
        switch (p.number) {
        case PB_Graph_name: g->name = pb_name(&p, r->arena); break;
        case PB_Graph_doc_string: g->doc = pb_name(&p, r->arena); break;
        case PB_Graph_node:
            if (g->nnode % 1024 == 0)
                ctx_poll(r->cx);
            read_node(r, &p.bytes, &g->node[g->nnode++]);
            break;
        case PB_Graph_initializer: onnx_tensor_read(r, &p.bytes, &g->init[g->ninit++]); break;
        case PB_Graph_sparse_initializer: {
            SparseParts s;
            read_sparse(r, &p.bytes, &s, &g->init[g->ninit++]);
            break;
        }
        case PB_Graph_input: read_value(r, &p.bytes, &g->in[g->nin++]); break;
        case PB_Graph_output: read_value(r, &p.bytes, &g->out[g->nout++]); break;
        case PB_Graph_value_info: read_value(r, &p.bytes, &g->info[g->ninfo++]); break;
        default: break;
        }
    r->depth--;
}

static void read_opset(OnnxReader *r, const PbSpan *msg, OnnxOpset *o)
{
    Pb p;
    o->domain = "";
    pb_open(&p, r->cx, r->base, PB_Opset, msg);
    while (pb_next(&p)) {
        if (p.number == PB_Opset_domain)
            o->domain = onnx_domain(pb_name(&p, r->arena));
        else
            o->version = (int64_t)p.v;
    }
    p.number = 0;
    p.tag_at = msg->at;
    if (o->version < 0)
        pb_fail(&p, E_FORMAT, "version %lld of domain '%s', wanted 1 or more", (long long)o->version, o->domain);
}

static void read_function(OnnxReader *r, const PbSpan *msg, OnnxFunction *f)
{
    Pb p;
    Note note;
    int n[PB_FIELDS];
    pb_count(r->cx, r->base, PB_Function, msg, n);
    f->name = f->domain = f->overload = "";
    pb_open(&p, r->cx, r->base, PB_Function, msg);
    while (pb_next(&p))
        switch (p.number) {
        case PB_Function_name: f->name = pb_name(&p, r->arena); break;
        case PB_Function_domain: f->domain = onnx_domain(pb_name(&p, r->arena)); break;
        case PB_Function_overload: f->overload = pb_name(&p, r->arena); break;
        default: break;
        }
    p.number = 0;
    p.tag_at = msg->at;
    if (!*f->name)
        pb_fail(&p, E_FORMAT, "a function without a name");
    note_push(r->cx, &note, "function", f->name, NULL);
    OnnxAttr *attr = NEWS(r->arena, OnnxAttr, n[PB_Function_attribute_proto]);
    OnnxOpset *opset = NEWS(r->arena, OnnxOpset, n[PB_Function_opset_import]);
    f->in = NEWS(r->arena, const char *, n[PB_Function_input]);
    f->out = NEWS(r->arena, const char *, n[PB_Function_output]);
    f->attr = NEWS(r->arena, const char *, n[PB_Function_attribute]);
    f->node = NEWS(r->arena, OnnxNode, n[PB_Function_node]);
    f->attr_default = attr;
    f->opset = opset;
    pb_open(&p, r->cx, r->base, PB_Function, msg);
    while (pb_next(&p))
        switch (p.number) {
        case PB_Function_input: f->in[f->nin++] = pb_name(&p, r->arena); break;
        case PB_Function_output: f->out[f->nout++] = pb_name(&p, r->arena); break;
        case PB_Function_attribute: f->attr[f->nattr++] = pb_name(&p, r->arena); break;
        case PB_Function_attribute_proto: read_attr(r, &p.bytes, &attr[f->nattr_default++]); break;
        case PB_Function_node: read_node(r, &p.bytes, &f->node[f->nnode++]); break;
        case PB_Function_opset_import: read_opset(r, &p.bytes, &opset[f->nopset++]); break;
        default: break;
        }
    note_pop(r->cx);
}

static void read_meta(OnnxReader *r, const PbSpan *msg, const char **key, const char **value)
{
    Pb p;
    *key = *value = "";
    pb_open(&p, r->cx, r->base, PB_Pair, msg);
    while (pb_next(&p))
        *(p.number == PB_Pair_key ? key : value) = pb_str(&p, r->arena);
}

static void read_model(OnnxReader *r, const PbSpan *msg)
{
    Pb p;
    OnnxModel *m = r->model;
    PbSpan graph = {0};
    int n[PB_FIELDS];
    pb_count(r->cx, r->base, PB_Model, msg, n);
    OnnxOpset *opset = NEWS(r->arena, OnnxOpset, n[PB_Model_opset_import]);
    m->opset = opset;
    m->function = NEWS(r->arena, OnnxFunction, n[PB_Model_functions]);
    m->meta_key = NEWS(r->arena, const char *, n[PB_Model_metadata_props]);
    m->meta_value = NEWS(r->arena, const char *, n[PB_Model_metadata_props]);
    pb_open(&p, r->cx, r->base, PB_Model, msg);
    while (pb_next(&p))
        switch (p.number) {
        case PB_Model_ir_version: m->ir_version = (int64_t)p.v; break;
        case PB_Model_model_version: m->model_version = (int64_t)p.v; break;
        case PB_Model_producer_name: m->producer = pb_name(&p, r->arena); break;
        case PB_Model_producer_version: m->producer_version = pb_name(&p, r->arena); break;
        case PB_Model_domain: m->domain = pb_name(&p, r->arena); break;
        case PB_Model_doc_string: m->doc = pb_name(&p, r->arena); break;
        case PB_Model_graph: pb_merge(&p, r->arena, &graph); break;
        case PB_Model_opset_import: read_opset(r, &p.bytes, &opset[m->nopset++]); break;
        case PB_Model_metadata_props: read_meta(r, &p.bytes, &m->meta_key[m->nmeta], &m->meta_value[m->nmeta]); m->nmeta++; break;
        case PB_Model_functions: read_function(r, &p.bytes, &m->function[m->nfunction++]); break;
        default: break;
        }
    p.number = PB_Model_graph;
    if (!graph.at)
        pb_fail(&p, E_FORMAT, "the model has no graph (is it an ONNX model?)");
    m->graph = NEW(r->arena, OnnxGraph);
    read_graph(r, &graph, m->graph);
}

/* ---- the file ------------------------------------------------------------------------------------------------------------ */

void onnx_reader_init(OnnxReader *r, Ctx *cx, Arena *a, OnnxModel *m, const void *base, size_t n)
{
    memset(r, 0, sizeof *r);
    r->cx = cx;
    r->arena = a;
    r->model = m;
    r->base = base;
    r->dense_left = ((uint64_t)16 << 20) + (n < UINT64_MAX / 2048 ? (uint64_t)n * 1024 : UINT64_MAX / 2);
}

typedef struct NewModel { Arena *arena; OnnxModel *model; } NewModel;

static void new_model(Ctx *cx, void *arg)
{
    NewModel *made = arg;
    (void)cx;
    made->model = NEW(made->arena, OnnxModel);
}

OnnxModel *onnx_new(Ctx *cx)
{
    NewModel made = {arena_new(cx), NULL};
    Status st = guard_call(cx, new_model, &made);
    if (st != E_OK) {                   /* nobody owns the arena yet */
        arena_free(made.arena);
        cx->notes = NULL;               /* the text has them already; the outer guard puts them back */
        fail(cx, st, "%s", cx->text);
    }
    OnnxModel *m = made.model;
    m->arena = made.arena;
    m->path = "<memory>";
    m->producer = m->producer_version = m->domain = m->doc = "";
    return m;
}

/* Text starts with its header or a comment. Neither byte can open a binary model: '<' ends a group, '#' starts one. */
static bool is_text(const char *path, const uint8_t *bytes, size_t n)
{
    size_t len = strlen(path), i = 0;
    if (len > 8 && !strcmp(path + len - 8, ".onnxtxt"))
        return true;
    while (i < n && (bytes[i] == ' ' || bytes[i] == '\n' || bytes[i] == '\r' || bytes[i] == '\t'))
        i++;
    return i < n && (bytes[i] == '<' || bytes[i] == '#');
}

void onnx_load(Ctx *cx, OnnxModel *m, const char *path, const void *bytes, size_t n)
{
    static const char lfs[] = "version https://git-lfs";
    Note note;
    OnnxReader r;
    arena_bind(m->arena, cx);
    if (path)
        m->path = arena_str(m->arena, path);
    note_push(cx, &note, "file", m->path, NULL);
    if (!bytes && !path)
        fail(cx, E_INVALID, "neither a path nor bytes of a model");
    if (!bytes) {
        char why[256];
        Status st = file_map(m->path, &m->file, why, sizeof why);
        if (st != E_OK)
            fail(cx, st, "%s", why);
        bytes = m->file.data;
        n = m->file.size;
    }
    if (n == 0)
        fail(cx, E_FORMAT, "found an empty file, wanted an ONNX model");
    if (n > sizeof lfs && !memcmp(bytes, lfs, sizeof lfs - 1))
        fail(cx, E_FORMAT, "found a Git LFS pointer, wanted the model itself (git lfs pull fetches it)");
    onnx_reader_init(&r, cx, m->arena, m, bytes, n);
    if (is_text(m->path, bytes, n)) {
        m->by_hand = true;
        onnx_text_load(&r, bytes, n);
    } else {
        PbSpan all = {r.base, r.base + n, NULL, NULL};
        read_model(&r, &all);
    }
    note_pop(cx);
}

void onnx_close(OnnxModel *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->nexternal; i++)
        file_unmap(&m->external[i]);
    file_unmap(&m->file);
    arena_free(m->arena);
}
