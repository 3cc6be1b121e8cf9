/* onnx: an ONNX file as it stands (load.c, onnxtext.c, textscan.c, tensorproto.c, external.c, pb.c), and its meaning as a graph of primitives (import.c, cut.c, ops.def). */
#ifndef SN_ONNX_H
#define SN_ONNX_H
#include "base/base.h"

/* ---- the file as it stands: filled by load.c (binary) or onnxtext.c (text syntax); all strings 0-terminated, in the model's arena -- */
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

typedef struct OnnxDim { int64_t value; const char *sym; } OnnxDim;  /* value >= 0; or value -1 and sym a name, or NULL when unknown */
typedef struct OnnxValue {
    const char *name;
    char kind;                          /* 't' tensor, 's' sequence, 'o' optional, 'p' sparse, 'm' map, 'x' opaque, 0 none given */
    DType dt; int onnx_dt;              /* dt is DT_none unless kind is 't' or 'p'; onnx_dt, rank and dims then are those of the tensor within */
    int rank;                           /* -1 unknown */
    const OnnxDim *dims;
} OnnxValue;

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
    const OnnxTensor *sparse_values, *sparse_indices; const int64_t *sparse_dims; int sparse_rank;   /* ATTR_sparse; t is it made dense */
    const OnnxValue *tp;                /* ATTR_type */
} OnnxAttr;

typedef struct OnnxNode {
    const char *name, *op, *domain, *overload;      /* domain "" for ai.onnx (also written "ai.onnx") */
    int nin, nout, nattr;
    const char **in, **out;             /* "" for an absent optional one */
    const OnnxAttr *attr;
} OnnxNode;

struct OnnxGraph {
    const char *name, *doc;             /* doc: NULL when there is none */
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
    int64_t ir_version, model_version;
    const char *producer, *producer_version, *domain, *doc;
    int nopset, nfunction, nmeta;
    const OnnxOpset *opset; OnnxFunction *function;
    const char **meta_key, **meta_value;
    OnnxGraph *graph;
    bool by_calls, by_hand;             /* made by sn_graph_op(); so or in the text form */
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

/* ---- tensorfile.c ------------------------------------------------------------------------------------------------ */
/* A TensorProto (.pb of the backend tests; SequenceProto and OptionalProto raise UNSUPPORTED) and NumPy .npy files (versions 1-3). */
void tensorpb_read(Ctx *cx, Arena *a, const char *path, Tensor *out, const char **name);
void tensorpb_write(Ctx *cx, const char *path, const char *name, const Tensor *t);
void npy_read(Ctx *cx, Arena *a, const char *path, Tensor *out);
void npy_write(Ctx *cx, const char *path, const Tensor *t);   /* bf16, f8 and types below 8 bits are written as raw void
                                                               * types of their width; a comment in the header then names the dtype */

/* ---- what the readers share: pb.c, the protobuf wire format ------------------------------------------------------- */
/* A message is a list of pieces: more than one when a field that is not repeated occurs several times, which means: merge. */
typedef struct PbSpan { const uint8_t *at, *end; struct PbSpan *next, *last; } PbSpan;   /* at NULL: absent; last counts in the first piece */
#define PB_FIELDS 32                    /* field numbers in use are below it */
typedef enum PbMessage {
#define MESSAGE(m, text) PB_##m,
#define FIELD(m, name, number, kind)
#include "onnx/proto.def"
#undef MESSAGE
#undef FIELD
    PB_MESSAGES } PbMessage;
enum {
#define MESSAGE(m, text)
#define FIELD(m, name, number, kind) PB_##m##_##name = number,
#include "onnx/proto.def"
#undef MESSAGE
#undef FIELD
    PB_field_end };
typedef struct Pb {
    Ctx *cx;
    const uint8_t *base, *at, *end;     /* base: of the file, for offsets in messages */
    const PbSpan *span;
    PbMessage message;
    const uint8_t *tag_at;
    int number, wire;                   /* of the field that pb_next found */
    uint64_t v;                         /* its varint or fixed bits */
    PbSpan bytes;                       /* or its bytes */
} Pb;
void pb_open(Pb *p, Ctx *cx, const uint8_t *base, PbMessage m, const PbSpan *msg);
bool pb_next(Pb *p);                    /* to the next field that proto.def knows, its wire type checked; false at the end */
/* Occurrences of each field. Counts are of occurrences, not of packed elements. */
void pb_count(Ctx *cx, const uint8_t *base, PbMessage m, const PbSpan *msg, int n[PB_FIELDS]);
_Noreturn void pb_fail(const Pb *p, Status code, const char *fmt, ...) PRINTF_LIKE(3, 4);   /* names byte, message and field */
const char *pb_str(const Pb *p, Arena *a);               /* the field's bytes as a string; refuses a zero byte */
static inline const char *pb_name(const Pb *p, Arena *a) { return text_utf8(a, pb_str(p, a)); }       /* a name, as text */
void pb_merge(const Pb *p, Arena *a, PbSpan *msg);       /* appends the field's bytes to a message */
size_t pb_elems(const Pb *p);           /* elements of a repeated number, 1 when not packed */
void pb_ints(const Pb *p, int64_t *out);                 /* all pb_elems of them */
static inline float pb_f32(uint64_t bits) { union { uint32_t u; float f; } x; x.u = (uint32_t)bits; return x.f; }

/* One loading of a file. */
typedef struct OnnxReader {
    Ctx *cx; Arena *arena;
    OnnxModel *model;                   /* NULL for a tensor file: external data is refused then */
    const uint8_t *base;
    int depth;                          /* of subgraphs or types */
    uint64_t dense_left;                /* bytes that sparse tensors may still grow by, so that memory follows the file's size */
    MapStr *located; int cap_external;  /* external files by location */
    const char *roots[2];               /* folders, links resolved, in which external data may lie */
} OnnxReader;
#define ONNX_DEPTH 64
void onnx_reader_init(OnnxReader *r, Ctx *cx, Arena *a, OnnxModel *m, const void *base, size_t n);
void onnx_text_load(OnnxReader *r, const char *text, size_t n);                      /* onnxtext.c */
const char *onnx_domain(const char *domain);             /* "ai.onnx" is "" */
const char *onnx_dtype_name(int onnx_dt);                /* the word of ONNX's text syntax; NULL when there is none */

/* textscan.c: the text syntax, read from left to right. tx_need... raise FORMAT with what was found and what was wanted. */
typedef struct Tx {
    OnnxReader *r;
    Ctx *cx;
    Arena *a;
    const char *start, *at, *end;
} Tx;
_Noreturn void tx_fail(const Tx *t, Status code, const char *at, const char *fmt, ...) PRINTF_LIKE(4, 5);       /* says line and column of `at` */
_Noreturn void tx_wanted(Tx *t, const char *wanted);    /* fails with what comes next instead */
char tx_peek(Tx *t);                                     /* the next character that is neither white space nor in a comment; 0 at the end */
bool tx_take(Tx *t, char c);                             /* reads it, if it comes next */
void tx_need(Tx *t, char c);
void tx_arrow(Tx *t);                                    /* => */
size_t tx_word_len(Tx *t);                               /* of the identifier that comes next, 0 when there is none */
const char *tx_need_word(Tx *t, const char *wanted);     /* an identifier, in the model's arena */
const char *tx_string(Tx *t, size_t *len);               /* quoted; len may be NULL */
const char *tx_name(Tx *t);                              /* an identifier or a quoted string; NULL when neither comes next */
const char *tx_need_name(Tx *t, const char *wanted);
const char *tx_qualified(Tx *t, const char **domain, const char *wanted);       /* "a.b.c": the part before the last point is the domain */
bool tx_next_is_special(Tx *t);                          /* inf, infinity, nan, in any case, as a whole word */
char tx_number(Tx *t, char *buf, size_t size);           /* a number's text; returns 'i' for a whole number, 'f' else */
double tx_to_float(Tx *t, char *buf, bool is_f32);       /* of such a text */
int64_t tx_to_int(Tx *t, const char *buf);
int64_t tx_int(Tx *t);

/* tensorproto.c */
void onnx_tensor_read(OnnxReader *r, const PbSpan *msg, OnnxTensor *t);
/* Product of the dims and size in a file; -1 when one is negative or the product of those that are not 0 is out of range. */
int64_t onnx_count(int rank, const int64_t *dims);
int64_t onnx_packed_bytes(DType dt, int64_t count);
void onnx_unpack(DType dt, const uint8_t *src, int64_t count, uint8_t *dst);         /* below 8 bits: one byte for each element */
void onnx_pack(DType dt, const uint8_t *src, int64_t count, uint8_t *dst);
/* Bytes as a file holds them become the tensor's data: as they are, or unpacked, or (bool) made 0 and 1. */
const void *onnx_stored(OnnxReader *r, DType dt, const uint8_t *src, int64_t count);
/* Fills `dense`; NULL, or what is wrong with the indices. */
const char *onnx_sparse_dense(OnnxReader *r, const OnnxTensor *values, const OnnxTensor *indices, int rank, const int64_t *dims, OnnxTensor *dense);

/* external.c: offset and length are as the file spells them, NULL when absent. Returns `want` bytes. */
const uint8_t *onnx_external(OnnxReader *r, const char *tensor, const char *location, const char *offset, const char *length, uint64_t want);

/* ---- import.c: its meaning as graphs of primitives -------------------------------------------------------------------------------
 * Import is a trace for concrete arguments: it knows the sizes (as hints of symbols) and the argument tensors. A value that building needs (a target
 * shape, the condition of an If, a repeat count) comes from host_dims / host_value. When it depends on data that only a run gives, the trace is
 * cut: the graph built so far becomes a finished segment, the host runs it, and a new graph begins whose inputs are the values still needed. The same
 * happens around an operator whose result's size is known only after it ran (NonZero, Loop ...): it runs between two segments.
 * If is inlined (its condition becomes a guard), Loop and Scan are calls whose body is traced by the host for each set of argument shapes. */
#include "ir/ir.h"
#include <limits.h>

typedef struct Cut {
    Graph *g;                           /* finished: its outputs are the live values, in order */
    const Call *call; int *call_in;     /* a call that runs on those outputs number call_in[0..nin) right after; or NULL */
    const char *why;                    /* "Reshape needs the value of its input 'shape'" */
} Cut;
typedef struct TraceHost {
    void *self;
    /* Runs the segment (and call); out: one Tensor for each output of g, then each result of the call. The next graph's inputs are these, in order.
     * The tensors live as long as the trace. */
    void (*cut)(void *self, Ctx *cx, const Cut *cut, Tensor *out);
    const CallDef *loop, *scan;         /* executed by the host: attr is a BodyCall */
} TraceHost;
/* A call with a body: operands are the operator's own inputs, then the captured outer values. For Loop an absent trip count or condition is replaced
 * by INT64_MAX and true. */
typedef struct BodyCall {
    const OnnxModel *model; const OnnxGraph *body; const OnnxNode *node; int64_t opset;
    int ncapture; const char *const *capture;
    int nstate;                         /* Loop: carried values; Scan: state variables */
    int nscan_in; const int64_t *in_axes, *in_dirs, *out_axes, *out_dirs;   /* Scan */
} BodyCall;

/* Traces a graph of the model (the main graph, or a body with the names it captures as further arguments). args: one tensor for each of
 * g->in that is no initialiser (then the captures); data may be NULL when only sizes are known. Returns the last segment; its outputs are the
 * graph's outputs in order. Raises UNSUPPORTED with all unknown operators at once, FORMAT, INVALID. Symbols are named by the model's own dimension names. */
Graph *onnx_import(Ctx *cx, Arena *a, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, const TraceHost *host);
/* All operators of the main graph, its bodies and functions that have no meaning here, as "domain.Op(version)"; NULL when there are none. */
const char *onnx_unknown_ops(Ctx *cx, Arena *a, const OnnxModel *m);

/* ---- what an operator's function sees (ops_*.c) ------------------------------------------------------------------------------------ */
typedef struct Import Import;
typedef struct OpCall {
    Import *im; Ctx *cx; Graph *g; Arena *a;
    const OnnxNode *node;
    int64_t opset;                      /* of the node's domain */
    int nin, nout;
    Node **in;                          /* NULL where absent; may be replaced by a cut: read o->in[i] again after op_value / op_sizes */
    Node **out;                         /* to be filled; unwanted ones may stay NULL. Both have at least OP_PLACES places, NULL beyond nin */
    int nasked; const char *asked[24];  /* attributes that were looked for */
} OpCall;
enum { OP_PLACES = 16 };
/* After the operator was made: raises FORMAT for an attribute whose name is misspelt; all: nothing but what was looked for is right. */
void op_attrs_check(OpCall *o, bool all);
static inline bool op_wants(const OpCall *o, int j) { return j < o->nout && o->node->out[j][0]; }
/* attributes with defaults; raise FORMAT on a wrong type */
int64_t op_int(OpCall *o, const char *name, int64_t fallback);
double op_float(OpCall *o, const char *name, double fallback);
const char *op_string(OpCall *o, const char *name, const char *fallback);
const int64_t *op_ints(OpCall *o, const char *name, int *n);     /* NULL and *n = 0 when absent */
const float *op_floats(OpCall *o, const char *name, int *n);
const OnnxTensor *op_tensor(OpCall *o, const char *name);
const OnnxAttr *op_attr(OpCall *o, const char *name);            /* NULL when absent; ref attributes are already resolved */
Node *op_onnx_const(OpCall *o, const OnnxTensor *t);             /* weights are borrowed */
/* values of inputs. Both may cut the trace (o->g and all of o->in change), never return NULL for a present input */
const Tensor *op_value(OpCall *o, int i);                        /* NULL when input i is absent */
Dim **op_sizes(OpCall *o, int i, int *n);                        /* an integer vector as expressions */
int64_t *op_values_int(OpCall *o, int i, int *n);                /* an integer vector as numbers (guarded) */
int op_axis(OpCall *o, int64_t axis, int rank);                  /* normalises a negative axis; raises INVALID */
/* A call between two segments: returns its nout result nodes (inputs of the new graph) in o->a. Copies attr. */
Node **op_host_call(OpCall *o, const CallDef *def, int nin, Node *const *in, int nout, const DType *dt, const void *attr, size_t attr_size);
/* Another operator of the table on nodes: op_apply(o, "Softmax", 13, 1, in, "axis=i:-1") -> first result. For operators that are composites of others. */
Node *op_apply(OpCall *o, const char *op, int64_t version, int nin, Node *const *in, const char *attrs);
/* Import of a subgraph of this node in place (If branches): outputs into out. */
void op_inline(OpCall *o, const OnnxGraph *body, Node **out);
/* The same for a subgraph with formal inputs. Nodes held elsewhere than in o->in and o->out do not survive a cut inside it. */
void op_inline_on(OpCall *o, const OnnxGraph *body, int nin, Node *const *in, int nout, Node **out);
/* The call of a body (Loop, Scan): fills model, body, node, opset and the captures of b, and appends the captured values to the operands. */
Node **op_body_call(OpCall *o, const CallDef *def, const OnnxGraph *body, BodyCall *b, int nin, Node *const *in, int nout, const DType *dt);
const TraceHost *op_host(const OpCall *o);
void op_cut(OpCall *o, const char *why);                         /* ends the graph here; all nodes of o->in and the names change */
const OnnxOpset *op_opsets(const OpCall *o, int *n);             /* the opset imports that hold for o->node */
_Noreturn void op_unsupported(OpCall *o, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- op_window.c: windows of convolutions and pools -------------------------------------------------------------------------------- */
/* Spatial axis j of the input is read at o*stride[j] - before[j] + k*dilation[j], valid inside [0, in[j]). */
enum { SPATIAL_MAX = 6 };
typedef struct Window {
    int n;                              /* spatial axes */
    Dim *in[SPATIAL_MAX], *kernel[SPATIAL_MAX], *out[SPATIAL_MAX], *before[SPATIAL_MAX], *after[SPATIAL_MAX];
    int64_t stride[SPATIAL_MAX], dilation[SPATIAL_MAX];
    bool padded;                        /* false: no window leaves the input */
} Window;
/* From the attributes strides, dilations, pads, auto_pad, and ceil_mode where the operator has it. */
void window_init(OpCall *o, Window *w, const Node *x, Dim *const *kernel, bool pool);
void window_at(Graph *g, const Window *w, int j, Dim *out, Dim *k, Dim **idx, View *v, Pred *pred);    /* appends one predicate when padded */
Node *window_view(Graph *g, const Window *w, Node *x, Scalar fill);      /* x [N,C,in...] -> [N,C,out...,kernel...] */
uint32_t window_axes(const Window *w);                                   /* the kernel axes of window_view */
/* The sum of a convolution in the dtype of its operands: x [N,C,in...], weight [M,C/group,kernel...] -> [N,M,out...] */
Node *conv_sum(OpCall *o, const Window *w, Node *x, Node *weight, int64_t group);
void conv_check(OpCall *o, const Node *x, const Node *weight, int64_t group);
/* attributes with one number for each of n axes; all `fallback` when absent; raises INVALID on another count */
const int64_t *op_ints_n(OpCall *o, const char *name, int n, int64_t fallback);
/* checks of sizes, which may become guards; raise INVALID: "what: found, wanted" */
void op_size_is(OpCall *o, Dim *found, Dim *wanted, const char *what);
void op_divides(OpCall *o, int64_t n, Dim *size, const char *what);
Node *axis_node(Graph *g, Node *x, int rank, int axis);                  /* a vector laid along one axis of rank many */
Node *dim_node(Graph *g, Dim *d, DType dt);                              /* a size as a rank-0 node of a dtype */
Node *iota_node(Graph *g, Dim *n);                                       /* i64 [n]: 0 1 2 ... */

/* ---- op_quant.c: pieces of quantised operators, and how an operator uses another ------------------------------------------------------------- */
/* Another operator's function on other operands, with this node's attributes; for functions that ask for no values (op_value, op_sizes). */
Node *op_with(OpCall *o, void (*fn)(OpCall *), int nin, Node *const *in);
Node *op_need(OpCall *o, int i);                                         /* input i; raises FORMAT when absent: for ones behind an optional one */
Node *channels_last_to_first(Graph *g, Node *x);                         /* [N, ..., C] -> [N, C, ...] */
Node *channels_first_to_last(Graph *g, Node *x);
Node *quant_scalar(OpCall *o, Node *p);                                  /* a one-element scale or zero point as rank 0; NULL stays NULL */
Node *quant_along(OpCall *o, Node *p, const Node *x, int axis);          /* one, or one for each place of an axis of x; higher ranks stay as they are */
Node *quant_centred(OpCall *o, Node *x, Node *zero);                     /* x - zero in i32 (floats: x in f32) */
Node *quant_real(OpCall *o, Node *x, Node *scale, Node *zero, DType dt); /* (x - zero) * scale */
Node *quant_store(OpCall *o, Node *quotient, Node *zero, DType to, bool saturate);   /* rounds half to even, adds zero, saturates */
Node *quant_requantised(OpCall *o, Node *sum, Node *sx, Node *sw, Node *sy, Node *zero, DType to);   /* sum * sx * sw / sy, stored */
Node *quant_matmul(OpCall *o, Node *a, Node *az, Node *b, Node *bz);     /* the product of a - az and b - bz */
Node *quant_matmul_float(OpCall *o, Node *a, Node *sa, Node *az, Node *b, Node *sb, Node *bz, Node *bias);   /* op_qlinear.c: in the dtype of sa */
void quant_dynamic(OpCall *o, Node *x, Node **y, Node **scale, Node **zero);         /* as DynamicQuantizeLinear */

/* ---- op_attention.c: attention as all its spellings share it ---------------------------------------------------------------------------- */
typedef struct Sdpa {
    Node *q, *k, *v;                    /* [B,H,S,D], [B,Hkv,T,D], [B,Hkv,T,Dv]; Hkv divides H */
    Node *bias;                         /* added to the scores, in dtype_wide of q; NULL: nothing */
    Node *allowed;                      /* truth values; NULL: all keys */
    Node *sink;                         /* one more logit: rank 0 or [1,H,1,1]; NULL: none */
    bool may_be_empty;                  /* a row may be without any key: it gives zeros */
    double scale, softcap;              /* 0: 1/sqrt(D); none */
    DType softmax_dt;                   /* DT_none: as the scores */
} Sdpa;
/* The result in q's dtype [B,H,S,Dv]. scores, when not NULL, gets four stages: product, capped, masked, softmax. */
Node *sdpa(OpCall *o, const Sdpa *s, Node **scores);
Node *sdpa_scale(OpCall *o, Dim *head, double given, DType dt);
Node *sdpa_keys(Graph *g, Dim *keys);                                    /* positions of keys: i64 [T] */
Node *sdpa_queries(Graph *g, Dim *queries, Node *offset);                /* of queries: i64 [S,1], plus the offset */
Node *sdpa_per_batch(OpCall *o, Node *v);                                /* one number for each batch as i64 [B,1,1,1] */
void sdpa_exclude(OpCall *o, Sdpa *s, Node *allowed);                    /* keys may take part only where allowed */
void sdpa_causal(OpCall *o, Sdpa *s, Node *offset, int64_t left, int64_t right);     /* query i + offset sees keys -left..right around it; -1: no bound */
void sdpa_lengths(OpCall *o, Sdpa *s, Node *lengths);                    /* only keys below a number for each batch exist */
void sdpa_mask(OpCall *o, Sdpa *s, Node *mask);                          /* truth values, or numbers to add */
Node *heads_split(OpCall *o, Node *x, int64_t heads);                    /* [B,S,H*D] -> [B,H,S,D] */
Node *heads_merge(OpCall *o, Node *x);                                   /* and back */
Node *heads_repeat(OpCall *o, Node *x, Dim *heads);                      /* [B,Hkv,T,D] -> [B,H,T,D]: each head for several neighbours */
Node *rotary(OpCall *o, Node *x, Node *c, Node *s, Dim *count, bool interleaved);    /* the first `count` places of the last axis */

/* ---- attributes of calls (op_call.c, op_pool.c), for those who run them by other means; no gaps: they are hashed --------------------------------- */
typedef struct TopKAttr { int axis, largest; } TopKAttr;
typedef struct UniqueAttr { int axis, sorted; } UniqueAttr;
typedef struct NmsAttr { int64_t most; double iou, score; int center, use_score; } NmsAttr;
typedef struct RoiAttr { int64_t sampling; float scale; int half_pixel, use_max, unused; } RoiAttr;     /* compress: an int, the axis */

/* ---- op_random.c ---------------------------------------------------------------------------------------------------------------------------- */
Node *random_unit(OpCall *o, int rank, Dim *const *dims, DType dt);      /* uniform in [0, 1), f32 or f64 */

/* ---- between import.c and cut.c: a trace ------------------------------------------------------------------------------------------------- */
enum { NEVER = -1, ALWAYS = INT_MAX };
typedef struct NameScope NameScope;
typedef struct NameSlot {
    const char *name;
    NameScope *owner;
    Node *node;                         /* in the current graph; NULL: not computed yet, or no longer needed */
    const OnnxTensor *init;
    int def;                            /* number of the node that computes it; NEVER: an input or initialiser */
    int last;                           /* place in the order of the last node that uses it, NEVER, or ALWAYS for a result */
    bool needed;                        /* during a cut: an inner scope uses it later */
} NameSlot;
typedef struct NameUse { NameSlot *slot; int node; } NameUse;        /* this node uses that name */

struct NameScope {
    NameScope *up, *caller;                 /* where names are looked up further; the scope that this one interrupts */
    const OnnxGraph *g;
    const OnnxFunction *function;       /* whose nodes these are, or NULL */
    const char *prefix;                 /* of names in messages, inside a function */
    const OnnxOpset *opset; int nopset;
    MapStr *names;
    int *order, pos;                    /* order NULL: as in the file */
    VEC(NameUse) outer;                    /* uses of names of outer scopes; node is a place in the order */
    VEC(NameSlot *) live;                   /* names with a node in the current graph */
};

struct Import {
    Ctx *cx; Arena *a;
    const OnnxModel *m;
    const TraceHost *host;
    Graph *g;
    NameScope *scope;
    VEC(OpCall *) calls;                /* the operators being imported, outermost first */
    MapStr *rows, *functions;
    int depth;
};

/* THE table of operators: onnx/ops.def. A later version is a further row; the newest `since` not above the model's opset wins. */
typedef struct OpRow { const char *op, *domain; int since, min_in, max_in; const char *inputs, *attrs, *formula; void (*fn)(OpCall *o); } OpRow;   /* fn NULL: a formula */
void op_formula(OpCall *o, const OpRow *row);                    /* runs a formula row */
extern const OpRow op_table[];
extern const int op_table_n;
const OpRow *op_find(const char *domain, const char *op, int64_t opset);
/* The functions of the table's rows. */
void op_prim_ew(OpCall *o);             /* of all elementwise primitives, as operators of the domain sinter: op_prim.c */
#define EXPR(op, since, inputs, attrs, formula)
#define FUNC(op, since, lo, hi, fn) void fn(OpCall *o);
#define MSFT_EXPR(op, since, inputs, attrs, formula)
#define MSFT_FUNC(op, since, lo, hi, fn) void fn(OpCall *o);
#define DOMAIN_FUNC(domain, op, since, lo, hi, fn) void fn(OpCall *o);
#include "onnx/ops.def"
#undef EXPR
#undef FUNC
#undef MSFT_EXPR
#undef MSFT_FUNC
#undef DOMAIN_FUNC
#endif
