/* ir: the graph of primitives. Immutable hash-consed nodes with one result each, explicit dtypes, symbolic sizes.
 *
 * A graph is traced for one set of example sizes (hints). Wherever building needs to know how sizes compare (is this axis 1? are these
 * equal?) and the answer does not follow from the expressions, the answer for the hints is taken and a Guard is recorded; the graph serves
 * every set of sizes for which all its guards hold. So guards are data, evaluated in C before a run. */
#ifndef SN_IR_H
#define SN_IR_H
#include "base/base.h"

#include <string.h>

typedef struct Graph Graph;
typedef struct Node Node;
typedef struct Dim Dim;

/* ---- dim.c, dimuse.c: integer expressions: sizes, index maps, offsets. Hash-consed in their graph: equal means same pointer ------------- */
/* Canonical form: a sum of (coefficient * product of atoms) plus a constant. Atoms: symbols, index variables, floor quotients and
 * remainders, minima and maxima. The constructors simplify with the bounds of index variables (0 <= i < extent) and symbols (>= 0). */
typedef enum DimKind { DIM_sum, DIM_sym, DIM_idx, DIM_div, DIM_mod, DIM_min, DIM_max } DimKind;
typedef struct DimTerm { int64_t coef; int n; Dim *const *factor; } DimTerm;      /* factors sorted by id */
struct Dim {
    DimKind kind;
    int id;
    int64_t c;                          /* sum: the constant */
    int n; const DimTerm *term;         /* sum: n >= 0 terms; n == 0 is a constant. An atom has itself as its one term, and c 0 */
    Dim *a, *b;                         /* div mod min max: operands; idx: a is the extent */
    int var;                            /* sym: number; idx: number of the variable */
    uint64_t idx_mask;                  /* which index variables (var modulo 64) occur: a quick test */
    int64_t lo, hi;                     /* lo <= value <= hi for all symbols >= 1; INT64_MIN, INT64_MAX: not known */
    int weight;                         /* atoms in it when it is written out, and terms: what walks over it cost */
    signed char nonneg;                 /* what dim_prove_ge0 found: 1 proved, -1 not, 0 not asked */
};
static inline bool dim_is_const(const Dim *d) { return d->kind == DIM_sum && d->n == 0; }
static inline bool dim_is(const Dim *d, int64_t c) { return dim_is_const(d) && d->c == c; }
Dim *dim_const(Graph *g, int64_t c);
Dim *dim_sym(Graph *g, int sym);
/* Index variable 0 <= i < extent; same var and extent: same variable. With extent 1 it is the constant 0, except for operands. */
Dim *dim_idx(Graph *g, int var, Dim *extent);
Dim *dim_add(Graph *g, Dim *a, Dim *b);
Dim *dim_sub(Graph *g, Dim *a, Dim *b);
Dim *dim_mul(Graph *g, Dim *a, Dim *b);
Dim *dim_div(Graph *g, Dim *a, Dim *b);                  /* floor; b > 0 */
Dim *dim_mod(Graph *g, Dim *a, Dim *b);                  /* in [0, b) */
Dim *dim_min(Graph *g, Dim *a, Dim *b);
Dim *dim_max(Graph *g, Dim *a, Dim *b);
Dim *dim_ceildiv(Graph *g, Dim *a, Dim *b);
static inline Dim *dim_addc(Graph *g, Dim *a, int64_t c) { return dim_add(g, a, dim_const(g, c)); }
static inline Dim *dim_mulc(Graph *g, Dim *a, int64_t c) { return dim_mul(g, a, dim_const(g, c)); }
/* Substitutes index variables: var k becomes to[k] where k < n and to[k] is not NULL. */
Dim *dim_subst(Graph *g, Dim *d, int n, Dim *const *to);
/* Variables numbered DIM_OPERAND + j stand for the value of an index operand (gather, scatter). */
enum { DIM_OPERAND = 1000 };
/* Coefficient of a variable when d is linear in it: d = coef*i + rest, with i in neither. False when it is not. */
bool dim_linear(Graph *g, Dim *d, int var, Dim **coef, Dim **rest);
/* Proofs, for all symbols >= 1 and variables in range. False: not proved. */
bool dim_prove_ge0(Graph *g, Dim *d);                    /* d >= 0 */
bool dim_prove_lt(Graph *g, Dim *a, Dim *b);             /* a < b */
bool dim_prove_le(Graph *g, Dim *a, Dim *b);             /* a <= b */
/* NumPy broadcasting of one size with another (NULL: they do not fit), and of shapes: the result's rank; raises INVALID. out may be a. */
Dim *dim_broadcast(Graph *g, Dim *a, Dim *b);            /* view.c */
int dims_broadcast(Graph *g, int ra, Dim *const *a, int rb, Dim *const *b, Dim **out);   /* view.c */
char *dims_str(const Graph *g, int rank, Dim *const *dims);      /* view.c: "[N,4]", in the graph's arena */
/* dimuse.c */
/* Places p of an axis read something at e = a p + b s + c (a, b > 0 and c numbers) for each step s of a window: where 0 <= e < n does not hold, it is padding. Known when
 * the padding is so narrow that no step has it at both ends of the axis: then at most `before` of the first places have any at a step, and `after` of the last. */
bool dim_outside(Graph *g, Dim *e, Dim *n, const Dim *place, const Dim *step, int *before, int *after);
/* Value for given symbols and variables (NULL when none may occur). Wraps on overflow are excluded by tensor_init's limits. */
int64_t dim_eval(const Dim *d, const int64_t *syms, const int64_t *vars);
bool dim_uses(const Dim *d, int var);
bool dim_open(const Dim *d);             /* does its value depend on a symbol? */
void dim_print(Text *t, const Graph *g, const Dim *d);   /* names of symbols; variables as i0 i1 ... */

/* Decisions: proved, or taken for the hints and recorded as a guard with the reason (a literal). */
bool dim_decide_eq(Graph *g, Dim *a, Dim *b, const char *why);
bool dim_decide_lt(Graph *g, Dim *a, Dim *b, const char *why);
int64_t dim_decide_value(Graph *g, Dim *d, const char *why);     /* specialises: guard d == hint */
int64_t dim_hint(const Graph *g, const Dim *d);          /* the value for the hints; for cost estimates only, records nothing */
bool dim_fits(const Graph *g, const Dim *d);             /* Is it computed for the hints without leaving 64 bits? */

/* ---- graph.c: nodes ------------------------------------------------------------------------------------------------------- */
typedef enum Op {
#define EW(name, n, dom, cost, fv, iv, c) OP_##name,
#define CMP(name, n, dom, cost, fv, iv, c) OP_##name,
#define STRUCT(name, what) OP_##name,
#include "ir/prim.def"
#undef EW
#undef CMP
#undef STRUCT
    OP_COUNT } Op;
typedef struct PrimInfo { const char *name; int arity; const char *domain, *spelling; int cost; bool elementwise, compares; } PrimInfo;   /* arity -1: any; cost of a structural one: 1 */
enum { OPERATIONS_POWER = 12 };         /* PrimInfo.cost of a power of e and the like */
extern const PrimInfo prim_info[OP_COUNT];
Op op_from_name(const char *s);         /* OP_COUNT when unknown */
/* An elementwise primitive on sizes (b NULL: of one operand), as integers of 64 bits compute it; NULL when it is no size arithmetic, its exact meaning is not that of
 * Dims, or the expression would be long. */
Dim *dim_op(Graph *g, Op op, Dim *a, Dim *b);

typedef enum FoldKind { FOLD_sum, FOLD_prod, FOLD_max, FOLD_min, FOLD_argmax, FOLD_argmin, FOLD_COUNT } FoldKind;   /* arg*: result i64 */
extern const char *const fold_name[FOLD_COUNT];
typedef enum Combine { COMBINE_set, COMBINE_add, COMBINE_mul, COMBINE_max, COMBINE_min, COMBINE_COUNT } Combine;
extern const char *const combine_name[COMBINE_COUNT];

/* Where an element comes from. idx has one expression for each axis of the source, over the index variables 0..rank-1 of the result
 * (of in[1] for a scatter), each with that axis' extent. Valid when every 0 <= pred[k].e < pred[k].n. */
typedef struct Pred { Dim *e, *n; } Pred;
typedef struct View { int nidx; Dim *const *idx; int npred; const Pred *pred; Scalar fill; } View;
bool view_open(const View *v);           /* dimuse.c: does it depend on a symbol which element is read, or whether? */
/* dimuse.c: What the running fold n folds, and its index `at` where n's is the index of its variables: n's operand, or, where that is a view that only moves its source one place on (the
 * fold of what stands before each place), the source without the move; then *before is set. */
const Node *scan_folded(Graph *g, const Node *n, Dim **at, bool *before);

typedef struct Call Call;
typedef struct CallDef {
    const char *name;
    bool dynamic;                       /* the sizes of its results are known only after it ran */
    /* in: ncall->in tensors. out: dt set; for a static call dims and data too; a dynamic one sets dims and takes data from the arena. */
    void (*eval)(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out);
    /* (optional) A result of it in primitives, for devices that are far from the host: part is that OP_part. NULL: not of these operands. */
    Node *(*primitives)(Graph *g, const Call *call, Node *const *in, const Node *part);
} CallDef;
struct Call { const CallDef *def; int nin, nout; const DType *out_dt; const void *attr; size_t attr_size; };  /* attr: plain data, hashed; or size 0: compared by address */

struct Node {
    Op op;
    DType dt;
    int id;                             /* position in Graph.node; operands have smaller ids */
    int rank;
    Dim *const *dims;
    int nin;
    Node *const *in;
    int origin;                         /* index into Graph.origin: the model's operator this came from */
    union {
        int index;                      /* input, part */
        int axis;                       /* iota, scan (with kind), join; fold: the axis of `whole` that is cut */
        const Tensor *tensor;           /* const */
        Dim *const *size;               /* dims: rank 0: one; rank 1: dims[0] of them */
        View view;                      /* view, gather, scatter */
        bool saturate;                  /* cast to f8 or f4 */
        const Call *call;
    };
    uint8_t kind;                       /* fold and scan: FoldKind; scatter: Combine */
    uint32_t axes;                      /* fold: mask of reduced axes of in[0] */
    bool last;                          /* argmax, argmin: the last of equals instead of the first */
    /* fold: NULL, or the fold of which this one is a part of each `step` elements (fuse/parts.c). It says how a kernel may compute it, not what it is: its operand does. */
    const Node *whole; int64_t step;
};
/* Is n a running sum with a factor for what came before each place (in[1])? */
static inline bool is_recurrence(const Node *n) { return n->op == OP_scan && n->nin > 1; }
/* What is folded, and over which axes, as a kernel sees it. */
static inline const Node *fold_whole(const Node *f) { return f->whole ? f->whole : f; }

typedef enum SymSource { SYM_input, SYM_value } SymSource;
typedef struct Sym { const char *name; int64_t hint; SymSource from; int input, axis; Node *node; int elem; } Sym;   /* value: element of a host-evaluable i64 node */
typedef struct Guard { Dim *a, *b; char rel; const char *why; int origin; } Guard;     /* rel '=' '!' '<' 'g' (>=): a rel b */
typedef struct Origin { const char *name, *op, *domain; const int *also; int nalso; } Origin;      /* of a node in the model; index 0: none. also: it stands for all of these */
typedef struct GraphPort { const char *name; Node *node; } GraphPort;

struct Graph {
    Ctx *cx; Arena *arena;
    VEC(Node *) node;
    VEC(Sym) sym;
    VEC(Guard) guard;
    VEC(Origin) origin;
    VEC(GraphPort) input, output;
    VEC(const struct Reach *) reach;    /* reach.c: by node id, of those that were asked for; else NULL */
    VEC(const Tensor *) hint;           /* of each input: example with data, or data NULL */
    int cur_origin;                     /* given to nodes made now */
    int nrewrite;                       /* rules applied to it: the first decisions that Options.limit counts */
    uint64_t random_count;              /* random nodes so far: each gets its own key */
    struct GraphTables *tables;         /* hash tables of nodes and dims */
    struct HostTables *host;            /* host.c: what is computable and computed while building */
};
/* Hash-consing: one set for each kind of thing. */
typedef struct HashSet { struct HashSlot { uint64_t hash; void *item; } *slot; int n, cap; } HashSet;
void *set_get(const HashSet *s, uint64_t hash, bool (*same)(const void *item, const void *key), const void *key);   /* NULL when absent */
void set_put(Arena *a, HashSet *s, uint64_t hash, void *item);
struct GraphTables { HashSet dim, node, guard; MapStr *sym; int ndim, depth, fuel; };   /* depth, fuel: of the prover */

Graph *graph_new(Ctx *cx, Arena *a);
int graph_origin(Graph *g, const char *name, const char *op, const char *domain);      /* adds one and makes it current */
void graph_output(Graph *g, const char *name, Node *n);
Node *graph_remake(Graph *g, Node *n, Node *const *made);        /* n with its operands replaced: made, by node id */
/* Makes all that the outputs need anew. better: what stands for a node (now: it with its new operands), or NULL for `now`. Gives how often it gave one. */
typedef Node *(*BetterFn)(Graph *g, Node *old, Node *now, void *arg);
int graph_remake_all(Ctx *cx, Arena *a, Graph *g, BetterFn better, void *arg);
int *graph_uses(Arena *a, const Graph *g);               /* by node id: how often what the outputs need reads it; an output counts once more */
uint8_t *graph_live(Arena *a, const Graph *g);           /* by node id: do the outputs need it? A call that they need keeps all its parts, read or not. */
/* An input whose axis k has the size dims[k] if that is >= 0, else the symbol named sym[k] (NULL: a name is made up). Equal names are one
 * symbol. hint gives example sizes and, for values needed while building, data (borrowed while the graph is built). */
Node *graph_input(Graph *g, const char *name, DType dt, int rank, const int64_t *dims, const char *const *sym, const Tensor *hint);

/* Adds a symbol. Proofs assume symbols >= 1: a hint >= 1 is guarded to stay so; for any other the result is the constant, with a guard. */
Dim *graph_sym(Graph *g, const Sym *sym);
void graph_guard(Graph *g, Dim *a, char rel, Dim *b, const char *why);   /* once: a guard that is there is not added again */
/* The elements of an i64 or i32 node of rank 0 or 1 that is `dims`, `const`, or a cast of one; NULL when it is not. */
Dim **node_as_dims(Graph *g, Node *x, int *n);

/* The raw constructor: checks nothing but ASSERTs, hash-conses, folds what is cheap. Used by builders.c, view.c, expr.c. */
Node *graph_add(Graph *g, const Node *proto);

/* ---- builders.c, view.c: the builders. All broadcast like NumPy where they take several operands; raise INVALID on shapes that do not fit and on dtypes that
 * differ. Axes may be negative only where said. ------------------------------------------------------------------------------------------ */
Node *g_const(Graph *g, const Tensor *t);                /* tensor and bytes are borrowed for the graph's life */
Node *g_scalar(Graph *g, DType dt, double v);            /* rank 0 */
Node *g_int(Graph *g, DType dt, int64_t v);              /* rank 0 */
Node *g_ints(Graph *g, int n, const int64_t *v);         /* i64[n] */
Node *g_dims(Graph *g, int rank, int n, Dim *const *v);  /* i64 of rank 0 (n 1) or 1 */
Node *g_iota(Graph *g, int rank, Dim *const *dims, int axis);
Node *g_random(Graph *g, Node *key, int rank, Dim *const *dims);   /* u64 words; key: u64 rank 0 */
Node *g_op(Graph *g, Op op, int n, Node *const *in);     /* any elementwise primitive or where; broadcasts */
Node *g1(Graph *g, Op op, Node *a);
Node *g2(Graph *g, Op op, Node *a, Node *b);
Node *g_where(Graph *g, Node *c, Node *a, Node *b);
Node *g_cast(Graph *g, Node *x, DType to);               /* saturating for f8 and f4 */
Node *g_cast_sat(Graph *g, Node *x, DType to, bool saturate);
Node *g_bitcast(Graph *g, Node *x, DType to);
/* views */
Node *g_view(Graph *g, Node *x, int rank, Dim *const *dims, const View *v);        /* composes with a view below */
Node *g_reshape(Graph *g, Node *x, int rank, Dim *const *dims);                    /* raises INVALID when the counts differ */
Node *g_transpose(Graph *g, Node *x, const int *perm);                             /* result axis k is x's axis perm[k] */
Node *g_expand(Graph *g, Node *x, int rank, Dim *const *dims);                     /* NumPy broadcast to exactly these dims */
Node *g_slice(Graph *g, Node *x, int axis, Dim *start, Dim *count, int64_t step);  /* elements start, start+step, ...; step any but 0 */
Node *g_pad(Graph *g, Node *x, Dim *const *before, Dim *const *after, Scalar fill);/* sizes may be negative: crops */
Node *g_unsqueeze(Graph *g, Node *x, int axis);                                    /* new axis of size 1 at position axis */
Node *g_squeeze(Graph *g, Node *x, int axis);
Node *g_flip(Graph *g, Node *x, int axis);
Node *g_flatten(Graph *g, Node *x, int axis);                                      /* to rank 2, split before axis */
/* loops. Sums, products and scans of narrow dtypes keep the dtype: floats accumulate in float32 and are rounded once, integers wrap. Over no
 * elements a fold is its identity: 0, 1, the lowest (-inf), the highest. Over no axes it is x. max and min take bool too (any, all). */
Node *g_fold(Graph *g, FoldKind kind, Node *x, uint32_t axes, bool keep);          /* keep: reduced axes stay with size 1 */
Node *g_argfold(Graph *g, FoldKind kind, Node *x, int axis, bool keep, bool last);
Node *g_scan(Graph *g, FoldKind kind, Node *x, int axis, bool exclusive, bool reverse);
Node *g_recurrence(Graph *g, Node *x, Node *factor, int axis, bool reverse);       /* y[t] = factor[t] y[t - 1] + x[t], y[-1] = 0; floats; both broadcast */
Node *g_join(Graph *g, int n, Node *const *x, int axis);
/* gathers. g_gather_axis counts negative indices from the end, as in ONNX, and is a view when the indices are known and regular. g_gather and
 * g_scatter take each index operand as it is (an index expression uses it as dim_idx(g, DIM_OPERAND + j, axis size)): use g_wrap_index first. */
Node *g_gather_axis(Graph *g, Node *x, Node *index, int axis);                     /* ONNX Gather */
Node *g_wrap_index(Graph *g, Node *index, Dim *n);                                 /* as i64; negative ones plus n */
Node *g_gather(Graph *g, Node *x, int nindex, Node *const *index, int rank, Dim *const *dims, const View *v);   /* index: i64, shape dims */
Node *g_scatter(Graph *g, Node *x, Node *updates, int nindex, Node *const *index, const View *v, Combine how);  /* index: i64, shape of updates */
Node **g_call(Graph *g, const Call *call, Node *const *in, const int *rank, Dim *const *const *dims);           /* the parts */
/* composites */
Node *g_matmul(Graph *g, Node *a, Node *b);              /* NumPy matmul, accumulates in the operands' dtype (f16, bf16: float32, rounded once) */
Node *g_softmax(Graph *g, Node *x, uint32_t axes, bool logarithm);
Node *g_mean(Graph *g, Node *x, uint32_t axes, bool keep);
Node *g_sigmoid(Graph *g, Node *x);
Dim *g_count(Graph *g, const Node *x);                   /* number of elements */
static inline const Node *under_views(const Node *n)     /* what views without a predicate read */
{
    while (n->op == OP_view && !n->view.npred) n = n->in[0];
    return n;
}
static inline uint32_t axis_bit(int axis) { ASSERT(axis >= 0 && axis < MAX_RANK); return 1u << axis; }
DType dtype_wide(DType t);                               /* f32 for f16, bf16, f8, f4; else t: where composites compute */

/* ---- host.c: values needed while building: shape arithmetic, axes, scales -------------------------------------------------------- */
/* The elements of a small integer (or bool) tensor of rank 0 or 1 as expressions, or NULL when they depend on data that only a run gives.
 * What is not symbolic arithmetic but computable from small inputs and sizes becomes a SYM_value symbol. *n: number of elements. */
Dim **host_dims(Graph *g, Node *x, int *n);
/* The tensor's value now, when it depends on constants, sizes and small inputs only; guards pin what it depended on. NULL when not. */
const Tensor *host_value(Graph *g, Node *x);
/* Before a run: binds all symbols of g from the actual inputs; false when a guard does not hold (*why names it). syms: g->sym.n values. */
bool host_bind(Ctx *cx, Arena *scratch, const Graph *g, const Tensor *inputs, int64_t *syms, const char **why);

/* ---- value.c: what primitives do to values: n elements at once, as Scalars rounded to their dtype --------------------------------------- */
Scalar eval_ew(Op op, DType operand, int n, const Scalar *in);   /* one elementwise primitive (not cast, bitcast, where) on one element, rounded */
void ew_lanes(Op op, DType operand, int n, const Scalar *x, const Scalar *y, Scalar *restrict r);   /* the same; y is x when the arity is one */
void cast_lanes(DType to, DType from, bool saturate, int n, const Scalar *x, Scalar *restrict r);
void bitcast_lanes(DType to, DType from, int n, const Scalar *x, Scalar *restrict r);
void round_lanes(DType t, int n, Scalar *r);
Scalar fold_start(FoldKind kind, DType t);               /* what a fold of nothing gives */
/* acc[j] takes x[j]; or, serial, acc[0] takes all of them in order. out, if not NULL, gets the running values. Nothing is rounded. */
void fold_lanes(FoldKind kind, DType t, bool serial, Scalar *acc, const Scalar *x, int n, Scalar *out);
/* The same for argmax and argmin: at[j] is the position of acc[j], -1 for none; x[j] stands at pos + j*step. */
void argfold_lanes(const Node *n, bool serial, Scalar *acc, int64_t *at, const Scalar *x, int m, int64_t pos, int64_t step);
Scalar combine_value(Combine how, DType t, Scalar old, Scalar x);   /* one update of a scatter, not rounded */
uint64_t random_word(uint64_t key, uint64_t index);      /* counter hash; the same in kernels */

/* Steps of a walk down from one node that goes to a node by each of its ways. There may be 2^n of them to what lies n nodes below, so such a walk counts its steps,
 * and takes the answer that changes nothing when they are used up. */
enum { WALK_STEPS = 4096 };

/* ---- reach.c: what a node's values can be ---------------------------------------------------------------------------------------------- */
/* All of them are numbers, none infinite, lo <= x <= hi; lo > hi: that is not known. */
typedef struct Reach { double lo, hi; } Reach;
static inline bool reach_known(Reach r) { return r.lo <= r.hi; }
Reach node_reach(Graph *g, const Node *n);
/* Element i of float32 constants, which lie in a file, at any address. */
static inline float float_at(const void *x, int64_t i) { float v; memcpy(&v, (const char *)x + i * (int64_t)sizeof v, sizeof v); return v; }
Reach reach_ew(Op op, DType t, int n, const Reach *in);  /* of an elementwise primitive's results, rounded to t */
Reach reach_cast(DType to, Reach x);

/* ---- eval.c: the reference interpreter: simple, slow, the definition of right ------------------------------------------------------ */
/* Values of `outs` for the given inputs (one Tensor for each g->input) and symbols. Results in a. Never touches hints. Map nodes are evaluated on
 * demand, element by element; folds, scans, scatters, calls and nodes used more than once are stored. Raises INVALID for an index outside its axis. */
void eval_nodes(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const int64_t *syms, int n, Node *const *outs, Tensor *result);
/* The same where some values are there already: given[id] is that of node id (borrowed), which is then neither computed nor looked below; NULL: it is computed.
 * trial: 0, or from 2 on: sums, products and functions err as those of a kernel may, in a way of this number's (erring.c). */
void eval_given(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const Tensor *const *given, const int64_t *syms, int n, Node *const *outs, Tensor *result, unsigned trial);

/* ready.c: the same with fast loops for float32, for answers while kernels are being compiled. Elementwise values are the interpreter's, bit for bit; a sum
 * of products is added in float32, in another order. */
void eval_ready(Ctx *cx, Arena *a, const Graph *g, const Tensor *inputs, const int64_t *syms, int n, Node *const *outs, Tensor *result);

/* ---- irtext.c, check.c --------------------------------------------------------------------------------------------------------------- */
void node_print(Text *t, const Graph *g, const Node *n);         /* "%7 f32[N,4] = add %3 %5   ; Add add_1" */
void graph_print(Text *t, const Graph *g);
void graph_dot(Text *t, const Graph *g, const int *group);       /* Graphviz; group of each node id or NULL */
void graph_check(Ctx *cx, const Graph *g);                       /* verifier: every rule of prim.def; a failure is an ASSERT */

/* ---- expr.c: the one expression language (operator tables, rules) ---------------------------------------------------------------------- */
/* "e = exp(x - max[axis](x)); e / sum[axis](e)". Names: bindings; calls: primitives, folds with [axes mask binding], and the composites
 * sigmoid, mean, clamp, relu, square, rsqrt, recip, sign, ge, gt, ne, where. Numbers take the dtype of the other operand. Raises FORMAT on a wrong
 * expression (a broken table row), INVALID on shapes. */
typedef struct Binding { const char *name; Node *node; double number; uint32_t axes; char type; } Binding;   /* type 'n' node, 'f' number, 'a' axes mask */
Node *expr_build(Graph *g, const char *text, int n, const Binding *b);

/* ---- rules.c, rewrite.c: algebraic rules (rules.def and the user's file) ---------------------------------------------------------------- */
enum { RULE_FINITE = 1, RULE_REASSOC = 2, RULE_WIDE = 4, RULE_BF16 = 8, RULE_WINOGRAD = 16, RULE_FLUSH = 32 };   /* what a rule needs leave for: see rules.def; operands of contractions rounded to bfloat16; sums of differences (fuse/winograd.c); what rt/dev_cpu.c does, no rule */
typedef struct RuleSet RuleSet;
/* The stock rules, and the RULE rows of a file (NULL: none), which are checked. Raises FORMAT for a row that is wrong. Constant afterwards. */
RuleSet *rules_new(Ctx *cx, Arena *a, const char *file);
unsigned rules_leave(Ctx *cx, const char *list);         /* "finite,reassoc" as RULE_...; NULL: none; raises INVALID */
int rules_count(const RuleSet *s);
const char *rules_name(const RuleSet *s, int i);
const char *rules_text(const RuleSet *s, int i);
const char *rules_idle(Ctx *cx, Arena *a, const RuleSet *s, int i);      /* why a rule of the file was not applied; NULL for those of rules.def */
const FileRow *rules_rows(const RuleSet *s, int *n);         /* all rows of the file */
void rules_check(Ctx *cx, const RuleSet *s);             /* what every rule claims; raises at the first that is wrong */
/* Rewrites what the outputs of g need by the rules that opt.allow permits and opt.off does not name. times: by rule, how often it was applied, added to.
 * opt.limit bounds their number. */
void graph_rewrite(Ctx *cx, Arena *a, Graph *g, const RuleSet *rules, int *times);

/* ---- Subgraph: what the planner (fuse) gives and the kernel compiler (kir) takes ---------------------------------------------------- */
/* One kernel. Its nodes are those whose home is `id`, and free nodes (views, constants, sizes) and bodies of contractions that they need.
 * Everything else that they read lies in memory. The kernel runs over a space of loop variables SPACE_VAR + k. */
typedef enum SubKind { SUB_map, SUB_rows, SUB_dot, SUB_stream, SUB_scan, SUB_scatter, SUB_call, SUB_COUNT } SubKind;
enum { SPACE_VAR = 2000, PART_VAR = 2100, PLACE_FOLDS = 8 };     /* PART_VAR: the part of the axis that is cut; PLACE_FOLDS: reductions of the results of a contraction in its kernel, at most */
/* The index of fold f's result where its operand (that of fold_whole(f)) is at `in`; returns the rank. */
int fold_index(Graph *g, const Node *f, Dim *const *in, Dim **out);
/* SUB_stream: folds along one axis of the space, passed over once. A fold of stage 1 needs others. While the axis is passed over, a maximum (pivot)
 * stands for itself so far (`cur`; where that is -inf: 0) and a sum for 1; `advance` is the factor that a partial sum takes when the pivots move from `old` to
 * `cur`, `finish` the one that it takes in the end. old, cur: stand-ins of the fold's shape, no inputs of the graph. Factors: NULL is 1. */
/* Where F is a sum of several products, a partial sum also takes other partial sums, as they were, times factors: NULL is 0. Not where one of `pivots`, by number of fold, was -inf: there
 * is nothing yet. */
typedef struct StreamTerm { int of; uint32_t pivots; Node *advance, *finish; } StreamTerm;
enum { MAX_FOLDS = 8, STREAM_TERMS = 4 };   /* of a stream; of a fold */
typedef struct StreamFold {
    Node *node; Dim *const *in;
    Node *body; Dim *const *at;         /* what is folded, and its index; without a view that ends the axis (Stream.end) */
    int stage, rank; bool pivot;
    uint32_t out;                       /* axes that only it has */
    Node *old, *cur, *advance, *finish;
    int nterm; StreamTerm term[STREAM_TERMS];
} StreamFold;
typedef struct StreamInner { Node *node; Dim *const *at; } StreamInner;      /* a contraction that stands at every point of row and axis, and its index there */
typedef struct Stream {
    int axis, lane;                     /* of the space: what is passed over; the rows that share what is read, -1: there are few, */
    int row;                            /* along this axis, -1: there is one */
    uint32_t out;                       /* axes that only results have, each its own */
    Dim *end;                           /* the axis ends there for a part of it; NULL: with the axis */
    int nfold; StreamFold *fold;        /* in order of their numbers */
    int ninner; StreamInner *inner;
} Stream;
/* A result: element coord[k](point) of the buffer of `into` gets the value of `node` at index at[k](point). A node's own result has into == node and
 * at == coord; a piece of a join or the start of a scatter goes into another node's buffer. */
typedef struct SubStore { Node *node, *into; Dim *const *at, *const *coord; } SubStore;
typedef struct Subgraph {
    SubKind kind;
    int id;
    int rank; Dim *const *space;        /* extents of the space */
    uint32_t rows;                      /* SUB_rows, SUB_stream: the axes of the space that folds reduce; SUB_dot: that results of the contraction are reduced over, or 0; SUB_scan: the axis that runs */
    uint32_t inner;                     /* SUB_scan: axes that a fold of what runs reduces at each place: loops inside, each with its own running fold */
    const Stream *stream;               /* SUB_stream */
    int part; int64_t step;             /* SUB_rows, SUB_dot: the row axis that is cut into parts of `step` places, which are points as well (PART_VAR counts them); step 0: none */
    int nnode; Node *const *node;       /* those whose home this is, in order of id */
    int nstore; const SubStore *store;
    Dim *const *const *iter;            /* by node id, for a fold over rows: in[0]'s index at a point of the space; NULL for other nodes */
    const int *home;                    /* by node id: the kernel that computes it, or HOME_... */
    const uint8_t *stored;              /* by node id: lies in memory */
    const uint8_t *constant;            /* by node id: its elements are known when the program is made */
} Subgraph;
enum { HOME_free = -1, HOME_memory = -2, HOME_body = -3 };  /* computed by whoever needs it; input or constant; inside a contraction's loops */
#endif
