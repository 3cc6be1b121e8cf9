/* onnx: an ONNX file as it stands (pb.c, parse.c, external.c), and its meaning as a graph of primitives (import.c, ops.def). */
#ifndef SN_ONNX_H
#define SN_ONNX_H
#include "base/base.h"

/* ---- the file as it stands: filled by pb.c (binary) or onnxtext.c (text syntax); all strings 0-terminated, in the model's arena -- */
typedef struct OnnxTensor {
    const char *name;                   /* "" when it has none */
    DType dt;                           /* DT_none: a dtype without meaning here (string, complex); onnx_dt says which */
    int onnx_dt;
    int rank;
    const int64_t *dims;
    int64_t count;
    const void *data;                   /* dense, little-endian; points into the mapped file when stored as raw_data or external data of a
                                         * byte-addressed dtype; four- and two-bit types and the typed fields (float_data...) are unpacked into the arena */
    const char **strings;               /* for string tensors, else NULL */
} OnnxTensor;

typedef struct OnnxGraph OnnxGraph;
typedef enum OnnxAttrType { ATTR_none, ATTR_float = 1, ATTR_int, ATTR_string, ATTR_tensor, ATTR_graph, ATTR_floats, ATTR_ints, ATTR_strings,
    ATTR_tensors, ATTR_graphs, ATTR_sparse, ATTR_sparses, ATTR_type, ATTR_types } OnnxAttrType;
typedef struct OnnxAttr {
    const char *name, *ref;             /* ref: inside a function body, the caller's attribute it stands for; NULL else */
    OnnxAttrType type;
    float f; int64_t i; const char *s; size_t s_len;
    const OnnxTensor *t; OnnxGraph *g;
    int n;                              /* of floats, ints, strings, tensors or graphs */
    const float *floats; const int64_t *ints; const char **strings;
    const OnnxTensor **tensors; OnnxGraph **graphs;
    const OnnxTensor *sparse_values, *sparse_indices; const int64_t *sparse_dims; int sparse_rank;   /* ATTR_sparse */
} OnnxAttr;

typedef struct OnnxNode {
    const char *name, *op, *domain, *overload;      /* domain "" for ai.onnx (also written "ai.onnx") */
    int nin, nout, nattr;
    const char **in, **out;             /* "" for an absent optional one */
    const OnnxAttr *attr;
} OnnxNode;

typedef struct OnnxDim { int64_t value; const char *sym; } OnnxDim;  /* value >= 0; or value -1 and sym a name, or NULL when unknown */
typedef struct OnnxValue {
    const char *name;
    char kind;                          /* 't' tensor, 's' sequence, 'o' optional, 'p' sparse, 0 none given */
    DType dt; int onnx_dt;
    int rank;                           /* -1 unknown */
    const OnnxDim *dims;
} OnnxValue;

struct OnnxGraph {
    const char *name;
    int nnode, ninit, nin, nout, ninfo;
    OnnxNode *node; OnnxTensor *init;   /* sparse initialisers arrive here made dense */
    OnnxValue *in, *out, *info;
};

typedef struct OnnxOpset { const char *domain; int64_t version; } OnnxOpset;
typedef struct OnnxFunction {
    const char *name, *domain, *overload;
    int nin, nout, nattr, nnode, nopset;
    const char **in, **out, **attr;     /* names; attr without a default */
    int nattr_default; const OnnxAttr *attr_default;
    OnnxNode *node; const OnnxOpset *opset;
} OnnxFunction;

typedef struct OnnxModel {
    Arena *arena;
    const char *path;                   /* as given, for messages; "<memory>" when loaded from memory */
    int64_t ir_version;
    const char *producer, *producer_version, *domain, *doc;
    int nopset, nfunction, nmeta;
    const OnnxOpset *opset; OnnxFunction *function;
    const char **meta_key, **meta_value;
    OnnxGraph *graph;
    File file;                          /* mapped; data NULL when the bytes are the caller's */
    File *external; int nexternal;      /* mapped external data files */
} OnnxModel;

/* Loads a model: binary ONNX, or ONNX's text syntax when the name ends in .onnxtxt or the bytes start like it. Raises IO, FORMAT, NOMEM
 * with the file's name and byte offset (binary) or line and column (text). onnx_close also unmaps. When `bytes` is not NULL it is the model
 * (borrowed while the OnnxModel lives) and path serves for messages and the folder of external data.
 * The OnnxModel is made first, so that on failure the caller closes it: OnnxModel *m = onnx_new(cx); guard{onnx_load(cx, m, path, 0, 0)}. */
OnnxModel *onnx_new(Ctx *cx);
void onnx_load(Ctx *cx, OnnxModel *m, const char *path, const void *bytes, size_t n);
void onnx_close(OnnxModel *m);

/* A TensorProto (.pb of the backend tests; SequenceProto and OptionalProto raise UNSUPPORTED) and NumPy .npy files (versions 1-3). */
void tensorpb_read(Ctx *cx, Arena *a, const char *path, Tensor *out, const char **name);
void tensorpb_write(Ctx *cx, const char *path, const char *name, const Tensor *t);
void npy_read(Ctx *cx, Arena *a, const char *path, Tensor *out);
void npy_write(Ctx *cx, const char *path, const Tensor *t);   /* bf16 and f8 are written as raw void types of their width */
#endif
