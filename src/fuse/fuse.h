/* fuse: which nodes become one kernel (plan.c, group.c, facts.c, legal.c, cascade.c, carrier.c), and where buffers live (memory.c). Sees the primitive graph only. */
#ifndef SN_FUSE_H
#define SN_FUSE_H
#include "base/base.h"
#include "ir/ir.h"

typedef struct Refusal { const Node *from, *to; const char *rule, *why; } Refusal;     /* `to` might have joined the kernel of `from`; the same node: it might have become something else */
typedef VEC(Refusal) Refusals;
typedef struct Receipt { const Node *of; const char *text; } Receipt;     /* of a fold in a cascade: how it is carried */
typedef VEC(Receipt) Receipts;
typedef struct Plan {
    Graph *g; Arena *arena;
    int nkernel; Subgraph *kernel;      /* in an order in which they can run */
    bool *once;                         /* by kernel: depends on constants only, runs when the program is made */
    int *home;                          /* by node id: position in kernel, or HOME_... */
    uint8_t *stored;                    /* by node id: lies in memory */
    Refusals refusal;
    Receipts receipt;
    int ndecision;                      /* fusions decided; Options.limit counts them */
} Plan;
/* rules: for the FUSE rows of the user's file, or NULL; raises FORMAT for a row that is wrong. stream: the target has a form for SUB_stream. fuse false: one kernel for each operator of the model (or more when one operator needs several). Never fails on a valid graph otherwise. */
Plan *plan_make(Ctx *cx, Arena *a, Graph *g, const RuleSet *rules, bool fuse, bool stream);

/* ---- layout.c ------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites the graph so that results of convolutions, and what is computed from them, lie in memory with their channels last. Before planning. */
void layout_choose(Ctx *cx, Arena *a, Graph *g, int lanes);

/* Is each element computed of the operands' elements at its place? */
static inline bool by_element(const Node *n) { return prim_info[n->op].elementwise || n->op == OP_where || n->op == OP_cast || n->op == OP_bitcast; }

/* ---- joins.c --------------------------------------------------------------------------------------------------------------------------------- */
/* Moves joins behind elementwise nodes. */
void joins_choose(Ctx *cx, Arena *a, Graph *g);

/* ---- gathers.c ------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites gathers of what is computed element by element to gathers of what it is computed from. */
void gathers_choose(Ctx *cx, Arena *a, Graph *g);

/* ---- siblings.c ------------------------------------------------------------------------------------------------------------------------------ */
enum { SIBLING_BYTES = 2 << 20 };
/* Rewrites contractions of one operand with different constants, at least so many bytes of them, as one, where rows are few; returns how many it made. Why others
 * stay apart is added to `why`. */
int siblings_choose(Ctx *cx, Arena *a, Graph *g, size_t least, Refusals *why);

/* ---- tiny.c ---------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites contractions whose weights are below the normal numbers in some columns so that these lie side by side, in vectors of so many lanes; returns how many. Before layouts. */
int tiny_choose(Ctx *cx, Arena *a, Graph *g, int lanes);

/* ---- calls.c ---------------------------------------------------------------------------------------------------------------------------------- */
/* Functions of the host become primitives where they can: for devices far from it. */
void calls_choose(Ctx *cx, Arena *a, Graph *g);

/* ---- winograd.c ------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites convolutions with windows of 3 x 3 as products of transformed tiles (Winograd), where that takes less time; returns how many. Why others stay is added to `why`.
 * tile: 0, or 2 or 4: tiles of so many places in any case. Behind layouts: what it makes lies in the order of what it reads. */
int winograd_choose(Ctx *cx, Arena *a, Graph *g, int tile, Refusals *why);

/* ---- states.c --------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites sums over all earlier places whose weights fall apart (linear attention as a masked product) as recurrences; returns how many. What they became is added to `how`, why others stay to `why`. */
int states_choose(Ctx *cx, Arena *a, Graph *g, Receipts *how, Refusals *why);

/* ---- parts.c ---------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites folds of many elements to few results as folds of parts and of their results. The last before planning. */
void parts_choose(Ctx *cx, Arena *a, Graph *g, bool many, bool scans);   /* many: for a device of thousands of threads; scans: and whose groups cannot share a running fold */

/* ---- integers.c ------------------------------------------------------------------------------------------------------------------------------ */
/* Rewrites sums of products of dequantised values as sums of their integers. Before layouts. */
void integers_choose(Ctx *cx, Arena *a, Graph *g, bool quads);
/* Is n one number, known now? *at: the constant that has it. */
bool scalar_const(const Node *n, Scalar *v, const Node **at);
/* The sum, in int32, of an operand q of a contraction, seen through `view` over its body, over the axes that the fold f reduces; as a node with the dims of
 * the fold. NULL: its axes are not simply those of the body. */
Node *operand_sum(Graph *g, const Node *body, const Node *f, uint32_t axes, Node *q, const View *view);
Node *byte_moved(Graph *g, Node *n, int by, DType t);    /* narrow.c: n + by, as the byte t */

/* ---- narrow.c -------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites contractions of bytes and of bfloat16 with known weights so that they are widened in the loops, where instructions of `dots` (DOT_...) multiply
 * several at once; round: float32 operands become bfloat16 for that. Behind integers_choose, before layouts. */
void narrow_choose(Ctx *cx, Arena *a, Graph *g, int dots, bool round);

/* ---- shuffle.c -------------------------------------------------------------------------------------------------------------------------------- */
/* Rewrites what is computed along a shuffled axis so that it runs in the order of what it reads. Before layouts. */
void shuffles_choose(Ctx *cx, Arena *a, Graph *g);

/* ---- plan.c --------------------------------------------------------------------------------------------------------------------------- */
typedef struct Group {
    SubKind kind;
    int id, merged;                     /* merged: the group that took it over, or -1 */
    bool once;
    int origin;
    int rank; Dim *const *space; uint32_t rows, inner;
    const Stream *stream;
    int part; int64_t step;             /* as in Subgraph */
    VEC(Node *) node;
    VEC(SubStore) store;                /* into other nodes' buffers */
    VEC(int) succ;                      /* groups that read from it */
    int stamp;
} Group;
/* ---- cascade.c ---------------------------------------------------------------------------------------------------------------------------- */
/* Kernels that stream (see Stream in ir.h), found before the others are made: their nodes with the index of each at a point of the space. */
enum { CONE_VAR = 3900 };                /* variables of contractions, while a cone is looked at */
typedef struct Cascade { Stream stream; Node *out; int rank; Dim *const *space; int nnode; Node **node; Dim ***coord; Group *group; } Cascade;
typedef struct Cascades { VEC(Cascade *) at; int n, nstand; int *claim; VEC(Refusal) refusal; Receipts receipt; } Cascades;    /* claim: by node id, position in at or -1 */
void cascades_find(Ctx *cx, Arena *a, Graph *g, Cascades *all);         /* adds nodes to g */
/* Between cascade.c and carrier.c: a fold back to what it reads. */
enum { DEP_d = 1, DEP_x = 2, DEP_inner = 4 };       /* needs folds along the axis; differs along the axis; a fold that stands at every j */
enum { MADE = 4096 };                   /* nodes of the pass's own that it can look at */
typedef enum Place { PLACE_out, PLACE_leaf, PLACE_in } Place;    /* read from memory; inside if nobody else reads it; inside */
typedef struct Visit { Node *n; Dim **idx; uint8_t dep; Place place; bool fold, inner, result, plain; Dim **in, **at; } Visit;     /* plain: of what is read alone, at whatever index; of a fold: the index of what it reads, and of its body */

typedef struct Finder {
    Ctx *cx; Arena *arena; Graph *g; Cascades *all;
    int nodes;                          /* of the graph, without what the pass adds */
    uint8_t *live;
    int *reader, *first;                /* readers of node k: reader[first[k] .. first[k + 1]) */
    Visit **at; int *stamp, now;
    uint8_t *reads;                     /* of cone_legal() */
} Finder;
typedef struct Cone {
    Finder *f; Node *out;
    int axis, lane, row;                /* lane -1: few rows, along axis row */
    Dim *j, *i;                         /* the variables of these axes; i NULL: no axis of rows */
    bool ended; Dim *end;               /* where the folds end, as in Stream; ended: known */
    int rank; Dim **space;              /* of the fold that it began with, and axes of further results */
    VEC(Visit *) visit;
    const Node *from, *to; const char *why;      /* why not */
} Cone;
void refuse_cone(Cone *c, const Node *from, const Node *to, const char *why);
Visit *visit_get(Finder *f, const Node *n);               /* NULL: n was not visited for this cone */
uint8_t dep_of(Cone *c, const Node *n);                   /* DEP_... of n, seen through views; 0 if it was not visited */
Node *folded_body(const Node *fold);                      /* what it folds, behind a view that only ends the axis */
/* carrier.c: an input that stands for the fold `like` in a carrier's nodes. */
Node *stand_in(Finder *f, const Node *like);
/* Finds what moves the partial sums of f, and further folds of s that it needs; false with a reason when there is none. */
bool carrier_make(Cone *c, Stream *s, StreamFold *f);
/* split.c: rewrites cascades of few rows over a long axis as cascades of its parts and their merge. Before parts_choose(). */
void cascades_split(Ctx *cx, Arena *a, Graph *g);

typedef struct FusionRow FusionRow;
typedef struct Planner {
    Ctx *cx; Arena *arena; Graph *g; bool fuse; Plan *plan;
    bool groups;                        /* for groups of threads: a GPU */
    VEC(Group *) group;
    int *home;                          /* by node: group (follow merged), HOME_... */
    Dim ***coord;                       /* by node: its index at a point of its group's space */
    Dim ***iter;                        /* by node: for folds over rows */
    uint8_t *live, *constant, *output, *dense;      /* dense: lies in memory whatever reads it (results of the graph, operands of calls) */
    uint8_t *pure;                      /* operations below a node that reads no memory; 0: it does */
    uint8_t *thin;                      /* operations between a node and the bytes that it is made of (see widens); 0: it is no such node */
    uint8_t *inner;                     /* widens an operand of a contraction at each of its points (narrow.c): never computed before; or such a contraction */
    uint8_t *behind;                    /* its kernel is a contraction, and it is computed there from a reduction of the results */
    uint8_t *spread;                    /* a fold reads it through a view, that is, again and again */
    int *uses, *folds;                  /* by node: readers; folds among them */
    Cascades cascades;
    const FusionRow *row; int nrow;     /* the user's, then those of fusion.def */
    VEC(int) *readers;                  /* by node: groups that read it from memory (recent ones) */
    VEC(int) *writers;                  /* by node: groups that write parts of it (joins, scatters), else its home */
    int stamp;
    int *walked, walk;                  /* by node: the last walk down to memory that came by it */
} Planner;
/* ---- facts.c ------------------------------------------------------------------------------------------------------------------------------------- */
typedef enum NodeClass { CLASS_free, CLASS_map, CLASS_fold, CLASS_scan, CLASS_dot, CLASS_whole } NodeClass;
NodeClass node_class(const Node *n);
bool op_cheap(Op op);                   /* computed again rather than read: few instructions */
void facts_find(Planner *p);            /* fills the arrays `live` to `folds` */
/* Values that read no memory (sizes, plain numbers, positions) and take few operations: whoever needs one computes it again. Counts them in `pure`. */
bool reads_nothing(Planner *p, const Node *n);
/* A few cheap operations that widen a value of one byte, with plain numbers: whoever needs the result reads the byte and computes them again. Not where a fold reads it
 * many times. Counts them in `thin`. */
bool widens(Planner *p, const Node *n);

/* ---- group.c ------------------------------------------------------------------------------------------------------------------------------------- */
Group *group_of(const Planner *p, int home);             /* the group that a home says, or who took it over; NULL for HOME_... */
Group *group_new(Planner *p, SubKind kind, int rank, Dim *const *space, uint32_t rows, const Node *n);     /* n: its first node, which is to be taken yet */
void group_edge(Planner *p, Group *from, Group *to);     /* `to` reads what `from` writes; from may be NULL */
bool group_reaches(Planner *p, const Group *from, const Group *to);      /* Is there a way from one to the other? When the search gets long: yes. */
bool reaches_through_others(Planner *p, const Group *from, const Group *to);     /* one that is not a single edge */
Dim **identity_index(Planner *p, const Group *q);        /* the index of a point of its space */
typedef struct Sources { VEC(const Node *) at; } Sources;
void sources_of(Planner *p, const Node *n, Sources *s);  /* what n reads through free nodes and bodies */
void sources_below(Planner *p, const Node *n, Sources *s);       /* the same without what this walk, p->walk, has come by already */
void edges_to(Planner *p, const Node *n, Group *q);      /* from those who write the sources of n to q */
void group_take(Planner *p, Group *q, Node *n, Dim **coord);             /* n is computed in q, at index coord for each point */
Dim **index_mapped(Planner *p, int rank, Dim *const *idx, Dim *const *map);      /* idx with map[v] for each variable v of a space */
void group_renumber(Planner *p, const Group *q, Dim *const *map);        /* the points of q, numbered in another way: map says what stands for each variable */
void sort_kernels(Planner *p);                           /* fills the plan's kernels and homes */

enum { BODY_STEPS = 8192 };              /* nodes of a contraction's body that are looked at, each once for each way to it */

/* ---- legal.c, with what of plan.c it needs ------------------------------------------------------------------------------------------------------- */
bool only_for(Planner *p, const Group *h, const Node *n);       /* Are all readers of h's nodes in h itself, or n? Then none of them needs memory. */
/* Is what the operand x reads, seen from index idx of its consumer, a node of group q? Then *src and its index at (NULL behind a predicate). */
const Node *thin_operand(const Planner *p, const Node *x);
const Node *operand_source(Planner *p, const Node *x, Dim *const *idx, Dim **at, bool *padded);

typedef struct Candidate { Group *q; const Node *n; Dim **coord; uint32_t rows; bool back; } Candidate;    /* joining: its coordinates there; rows: axes it reduces, or runs along; back: from the end to the beginning */
typedef const char *(*Allow)(Planner *p, Candidate *c);
const char *allow_same_point(Planner *p, Candidate *c);
const char *allow_each_row(Planner *p, Candidate *c);
const char *allow_rows(Planner *p, Candidate *c);
const char *allow_epilogue(Planner *p, Candidate *c);
const char *allow_places(Planner *p, Candidate *c);
bool behind_places(Planner *p, const Group *q, const Node *n);          /* Does n read a reduction of the results of q's contraction, or what q computes of it? */
const char *allow_running(Planner *p, Candidate *c);
const char *allow_inside(Planner *p, Candidate *c);
const char *allow_beside(Planner *p, Candidate *c);
const char *scan_refuses(Planner *p, const Group *q, Op op);      /* NULL, or why op is not computed beside q's running folds */
/* What the running fold n is seen to read, as an operand: n->in[0], or (scan_folded(), where threads do not share the fold) its source, by a view that is filled in. */
Node *scan_operand(Planner *p, const Node *n, Node *view);
const char *allow_never(Planner *p, Candidate *c);        /* ends the search: no row behind it is tried */
const char *allow_never_dot(Planner *p, Candidate *c);

/* ---- memory.c ------------------------------------------------------------------------------------------------------------------------------ */
/* A buffer of the arena: alive from kernel `first` (which writes it) to `last` (the last that reads it). may_share: an earlier buffer's number whose memory
 * it can take over because the kernel `first` allows it in place, or -1. */
typedef struct MemBuf { int first, last, may_share; int64_t bytes, offset; } MemBuf;
/* Sets offsets (multiples of 64); returns the arena's size. Larger buffers first, each at the lowest place that is free while it lives. */
int64_t memory_place(Arena *scratch, int n, MemBuf *b);
#endif
