/* Between eval.c (the reference interpreter), cone.c and evalblock.c (its programs), ready.c and ready_lanes.c (fast loops): the state of an evaluation. */
#ifndef SN_EVAL_H
#define SN_EVAL_H
#include "ir/ir.h"
#include <math.h>

enum { LANES = 256, EVAL_DEPTH = 64, EVAL_CONE = 200 };

/* ---- state --------------------------------------------------------------------------------------------- */
typedef struct Lanes { int64_t start, step, *v; } Lanes;            /* at lane j: v ? v[j] : start + step*j */
typedef struct Space {
    int n, lo, hi;
    const uint8_t *mask;
    Lanes var[MAX_RANK];
    int place;                      /* of cone_flatten: first of its variables in Eval.place, -1: they are not linear; */
    bool wanted;                    /* something needs them */
} Space; /* valid: lo <= j < hi and mask, if there is one */
/* An index expression: linear with numbers, or the Dim itself. */
enum { LIN_MAX = 6 };
typedef struct Lin {
    const Dim *d;
    bool linear;
    int n;
    int64_t c;
    int var[LIN_MAX];
    int64_t coef[LIN_MAX];
} Lin;

typedef struct Affine { int64_t c, coef[MAX_RANK]; } Affine;        /* c + sum of coef[k] * index k */

typedef enum StepKind {
    STEP_load,
    STEP_ew,
    STEP_where,
    STEP_cast,
    STEP_bitcast,
    STEP_iota,
    STEP_random,
    STEP_enter,
    STEP_leave
} StepKind;
typedef struct Step {
    StepKind kind;
    const Node *n;
    int space;                      /* where its value is defined: the value of step k is slot k */
    int a, b, c; /* steps of operands; enter: a is the new space; leave: a the value, b the inner space */
    int lin, arg;                   /* enter: first of its expressions, first of its index operands */
    int jump;                       /* enter: its leave step, or 0 */
    int flat;                       /* load: its place in the tensor is number flat - 1 of Eval.place; 0: that of its space's variables */
    bool skip;                      /* enter: nothing needs the new space */
    bool filled;                    /* load of a single element: the slot holds it for all lanes */
} Step;

typedef struct NodeState {
    Node *n;
    int64_t *dims, count;
    int64_t base;                   /* elements of the stored tensors that its cone reads */
    int uses, depth, cone, last;    /* last: position after which its value is no longer needed */
    int next_dead;                  /* chain of values with the same `last`, from first_dead */
    int first_dead;
    bool stored, result;
    const Tensor *given;            /* its value, where the caller has it */
    Tensor *val;                    /* call: nout of them */
    size_t room;                    /* of block */
    void *block, *stage;            /* owned; stage: scatter's wide copy while it runs */
} NodeState;

typedef struct Spare { void *at; size_t room; } Spare;             /* a block that may be used again */
enum { SPARES = 12 };

typedef struct Eval {
    Ctx *cx;
    Arena *mem, *res;               /* scratch; the caller's arena */
    const Graph *g;
    const Tensor *inputs, *const *given;     /* given: by node id, or NULL */
    const int64_t *syms;
    int nout;
    Node *const *outs;
    Tensor *result;
    NodeState *st;                  /* of the needed nodes, by id */
    int nst;
    int *pos;                       /* of each node id: its place in st, from 1; 0: not needed */
    /* the current program */
    VEC(Step) step;
    VEC(Space) space;
    VEC(Lin) lin;
    VEC(int) arg;
    VEC(Scalar *) slot, own;        /* by step: where its lanes are; its own memory for them */
    VEC(int64_t *) temp;
    VEC(Affine) place;
    Spare spare[SPARES];
    int ntemp, nlane, zero_space;
    /* the current loop nest */
    int rank, lane;
    int64_t dim[MAX_RANK], idx[MAX_RANK];
    unsigned blocks;
    unsigned trial;                 /* sums and functions err, each as this number has it (erring.c); 0: none does */
    bool ready;                     /* slots of float32 hold floats, those of integers of at most 32 bits int32 */
} Eval;

static inline NodeState *eval_state(const Eval *ev, const Node *n)
{
    ASSERT(ev->pos[n->id] > 0);
    return &ev->st[ev->pos[n->id] - 1];
}

/* Index arithmetic wraps: lanes that a predicate excludes may hold anything. */
static inline int64_t ix_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t ix_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t ix_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static inline int64_t lane_at(const Lanes *l, int j)
{
    return l->v ? l->v[j] : ix_add(l->start, ix_mul(l->step, j));
}

/* ---- cone.c: a cone of map nodes as a program ---- */
/* Starts a program whose loop nest is the space of x; the value of x is its last slot, which is returned. */
int cone_begin(Eval *ev, const Node *x, bool top);
int cone_beside(Eval *ev, const Node *x);     /* after it: a further node of the same shape */
/* The same for an operand of x or, where x is a view, of what x reads; in the space of x. */
int cone_begin_below(Eval *ev, const Node *x, const Node *operand);
/* For a scatter, whose places are opened by itself: a new space; the index expressions of a view, and the operands of n from in[first] on, compiled in `space`. Each
 * returns the number of the first. */
int space_add(Eval *ev);
int lins_add(Eval *ev, const View *v);
int args_add(Eval *ev, const Node *n, int first, int space);

/* ---- evalblock.c: running it ---- */
void lin_make(Eval *ev, Lin *l, const Dim *d);
/* Runs the program for n lanes from ev->idx on. */
void eval_block(Eval *ev, int n);
/* The value of a step (of the node n) as Scalars, till the next block. */
const Scalar *slot_scalars(Eval *ev, const Node *n, int step);
/* Opens space `to` of a view, gather or scatter in space `from`; false when no lane is valid. lin, arg: first of its expressions, of its index operands. */
bool space_enter(Eval *ev, const Node *n, int from, int to, int lin, int arg);

/* ---- erring.c: what kernels may make of sums and functions ---- */
typedef struct ErrSum { double value, size; int64_t steps; } ErrSum;    /* so far; that of the terms without their signs; how many these were */
bool err_sums(const Eval *ev, const Node *n);           /* of a fold or a scan: a trial in which it errs */
/* A fold's partial sums, anew (part NULL: in new memory); `seen` terms later, lanes as in fold_lanes(); the results. */
ErrSum *err_start(const Eval *ev, const Node *n, ErrSum *part);
void err_fold(const Eval *ev, const Node *n, bool serial, ErrSum *part, int64_t seen, const Scalar *x, int m);
void err_end(const Eval *ev, const Node *n, int m, const ErrSum *part, Scalar *acc);
void err_scan(const Eval *ev, const Node *n, bool serial, ErrSum *sum, const Scalar *x, const Scalar *factor, int m, Scalar *run);     /* factor: of a recurrence, or NULL */
void err_function(const Eval *ev, const Node *n, int m, Scalar *r);    /* results of an elementwise primitive */

/* ---- eval.c: loop nests ---- */
/* The axis along which lanes run: the innermost of reasonable size among those allowed, else the largest. */
void nest_lane(Eval *ev, uint32_t allowed);
/* Moves to the next index along these axes, innermost fastest; false when all of them are back at 0. */
bool nest_next(Eval *ev, uint32_t axes);

/* ---- flat.c: memory and places, see there ---- */
/* At least so many bytes, NULL when there are none; room: how many it is, to be told when it is given back. */
void *spare_take(Eval *ev, size_t bytes, size_t *room);
void spare_give(Eval *ev, void *p, size_t room);        /* p may be NULL */
void spares_free(Eval *ev);
void affine_add(Affine *to, int64_t times, const Affine *x);
bool affine_lin(const Lin *l, const Affine *var, Affine *r);      /* l over variables that are themselves var (NULL: the indices); false: it is not linear */
int64_t affine_at(const Eval *ev, const Affine *a);     /* at ev->idx */
/* After cone_begin: gives loads their places where these are linear; true: all of them are, and no view is entered any more. */
bool cone_flatten(Eval *ev);
/* A step whose lanes lie together in a tensor has them there: a load in what it reads, the last one in the result (its index off, and from lane to lane step).
 * false: it needs its own memory. */
bool slot_in_source(Eval *ev, int step, const Tensor *t);
bool slot_in_result(Eval *ev, int step, const Tensor *out, int64_t off, int64_t lane_step);
/* Then: makes one of neighbouring axes of the loop nest, where what is loaded and the result (by axis: its strides) lie so. */
void nest_merge(Eval *ev, int64_t *stride);

/* ---- ready_lanes.c: float32 as floats, small integers as int32 ---- */
/* Loops that are compiled for several processors; which one runs is decided when the program is loaded. Sanitizers are not ready by then. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif
/* As the primitives: NaN stays, and 0 is larger than -0. */
static inline float max_float(float a, float b) { return a != a ? a : b != b ? b : a > b || (a == b && !signbit(a)) ? a : b; }
static inline float min_float(float a, float b) { return a != a ? a : b != b ? b : a < b || (a == b && signbit(a)) ? a : b; }
/* The dtypes whose slots hold int32, and their types in memory. */
#define INT_ROWS(ROW) ROW(DT_i8, int8_t) ROW(DT_u8, uint8_t) ROW(DT_i16, int16_t) ROW(DT_u16, uint16_t) ROW(DT_i32, int32_t)
/* What the slot of a value holds. */
static inline bool floats(const Eval *ev, const Node *n) { return ev->ready && n->dt == DT_f32; }
static inline bool ints(const Eval *ev, const Node *n)
{
#define IS(dt_, type) || n->dt == dt_
    return ev->ready && (n->dt == DT_bool INT_ROWS(IS));
#undef IS
}
void floats_to_scalars(int n, const float *x, Scalar *r);
void floats_load(const void *p, const Lanes *off, const Space *s, float *r);
void floats_store(float *p, int64_t step, int n, const float *x);
/* An elementwise primitive on float32 operands; r: floats, or int32 when it compares. The same values as ew_lanes gives. */
void floats_ew(Op op, int n, const float *x, const float *y, void *restrict r);
void floats_cast(DType from, int n, const Scalar *x, float *restrict r);          /* to float32 */
bool floats_to_ints(DType to, bool saturate, int n, const float *x, int32_t *restrict r);      /* false: not to this dtype */
void ints_to_scalars(int n, const int32_t *x, Scalar *r);
void scalars_to_ints(int n, const Scalar *x, int32_t *restrict r);
void ints_load(DType t, const void *p, const Lanes *off, const Space *s, int32_t *restrict r);
void ints_store(DType t, void *p, int64_t step, int n, const int32_t *x);
bool ints_ew(Op op, DType t, int n, const int32_t *x, const int32_t *y, int32_t *restrict r);   /* false: it has no loop here */
bool ints_cast(DType to, int n, const int32_t *x, void *restrict r);              /* to float32 or another of these; false: to something else */

/* ---- ready.c ---- */
/* A sum of products whose factors do not depend on all of the same axes, by packed panels; false when it is none. */
bool ready_contract(Eval *ev, const Node *n, const Tensor *out);
/* A sum of products, or a maximum, of what lies in memory at places that are linear in the axes (depthwise convolutions, pools); false when it is none. */
bool ready_taps(Eval *ev, const Node *n, const Tensor *out);
#endif
