/* kir: one kernel as loops, values and stores; lowered from a Subgraph (lower.c, block.c, scan.c, stream.c, lanes.c, bounds.c), scheduled (sched.c), printed by gen.
 *
 * A kernel is a tree of blocks. Each value stands in the outermost block where it can be computed, so what does not change in a loop is computed
 * before it. Loop variables are index variables of the graph's Dims; addresses are Dims over them.
 *
 *   function: parallel variables decoded from the part [lo, hi) of their product
 *     block:  values, stores, loops
 *       loop: serial, or vector (LANES at once, nv vectors a step, then a tail); inside a row tile a value may exist for mr rows */
#ifndef SN_KIR_H
#define SN_KIR_H
#include "base/base.h"
#include "ir/ir.h"

enum { LOOP_VAR = 3000, MERGED_VAR = 4000, BUNDLE_VAR = 4700, BASE_VAR = 4800, START_VAR = 4900, VALUE_VAR = 5000 };  /* variables: loops of contractions; merged axes; the first row of a bundle; first element of this vector step; first element of the block of vec_var; VALUE_VAR + id: the number in an i64 value */
enum { VARY_lane = 1, VARY_row = 2 };                           /* how a value differs inside a tile */

typedef enum KKind { KV_const, KV_index, KV_load, KV_ew, KV_cast, KV_bitcast, KV_random, KV_valid, KV_check, KV_fold, KV_quantum, KV_quantise } KKind;      /* the last two: quantise.c */
typedef struct KVal KVal;
typedef struct KBlock KBlock;
typedef struct KLoop KLoop;
typedef struct KFold KFold;
typedef struct KAddr { Dim *off; int npred; Pred *pred; } KAddr;    /* element offset; valid when every 0 <= e < n */
struct KVal {
    KKind kind; Op op; DType dt;        /* dt: the value's dtype; it is held in its compute type */
    int id;
    int nin; KVal *in[3];
    Scalar imm;                         /* const; load: the fill value where not valid */
    Dim *dim;                           /* index: the number, as i64; random: the counter; check: the limit */
    int buf; KAddr at;                  /* load; valid: at.pred */
    enum { WORD_none, WORD_elements, WORD_words } word;  /* load: neighbours as one word of 32 bits; the address counts elements, or words */
    int nopnd; KVal **opnd;             /* values whose numbers occur in dim or at */
    Dim *ahead;                         /* load: so many elements further on lies what the next turn reads: its line is fetched now; or NULL */
    bool ahead_half;                    /* at half the pace: only the first half of what lies there, a row, is fetched */
    bool half;                          /* load: half a vector, or pairs of neighbours all over it: half.c */
    bool held;                          /* load: of what an earlier loop over the row has stored, which lies in registers where LoopKernel.held serves */
    bool saturate;                      /* cast: to the range of the dtype; quantise: that is left to the store */
    bool weighs;                        /* exp: of what is not above 0, added to a 1 (stream.c) */
    bool rough;                         /* GPU: results of 16 bits are all that comes of it, so a few units in the last place more do no harm (rough.c) */
    uint8_t vary;
    uint32_t axes;                      /* product.c: parallel axes that it depends on */
    KBlock *block;                      /* where it stands */
    KFold *fold;
    const Node *node;                   /* where it came from */
};
struct KFold {                          /* an accumulator, declared before its outermost loop */
    FoldKind kind; DType dt; bool last, running, before;    /* running: a scan, its value is used in the loop; before: as it is without the place itself */
    KVal *value, *mul_a, *mul_b;        /* of each iteration; mul_a and mul_b: value is their product and serves nothing else */
    int words;                          /* > 0: the factors are words of so many terms (word.c): 4 bytes, unsigned and signed, or 2 of bf16 */
    bool half;                          /* its sums are kept in half vectors, whose other half is no columns: half.c */
    bool unit; int room;                /* on a unit for tiles (unit.c): the buffer for copies of the rows; */
    int64_t unit_row, unit_along, unit_steps;   /* bytes of a row, its elements, registers along it */
    KVal *power;                        /* or NULL: value is e to this and serves nothing else; it is at most 0, and 0 at one place of the row */
    KVal *index;                        /* arg folds: the position, i64 */
    KVal *result;
    KVal *start;                        /* or NULL: what its accumulators begin with (start.c) */
    KLoop *loop, *own;                  /* outermost of its loops; the one of them that runs in lanes, or NULL */
    int id;
    bool loose;                         /* a maximum that need not keep NaN: loose.c */
    bool team;                          /* one of its loops is dealt out: each thread has a part of the sum */
    uint8_t vary;                       /* of the result: VARY_lane when each lane has its own accumulator */
    const Node *node;
};
struct KLoop {
    Dim *var, *extent;
    bool vector, blocked;               /* LANES at once; blocked: runs over the block of the parallel variable vec_var, or down_var, only */
    bool places;                        /* around a contraction, over places of its result that are reduced as they are computed; the innermost is stepped over by tiles */
    bool unroll, split;                 /* split: printed twice, without predicates where all of them hold for the whole tile (gen/inside.c) */
    int nv;
    int team;                           /* > 1: its iterations are dealt out to so many threads */
    int64_t chunk;                      /* > 0: float sums are taken over so many iterations at a time and these sums added up (see fold_in_loop) */
    Dim *from, *times;                  /* first iteration (NULL: 0); how many there are, roughly, where from or extent are no sizes (NULL: extent) */
    Dim *row_from, *row_past;           /* or NULL: outside of these rows of the kernel's tile nothing changes in a turn: that are at most `before` rows at its beginning, or `after` at its end */
    int before, after;
    int64_t step;                       /* > 1: advances by step */
    int tile;                           /* > 1: so many iterations at once, as rows of a register tile */
    KBlock *body;
};
static inline Dim *loop_times(const KLoop *o) { return o->times ? o->times : o->extent; }
static inline bool loop_around(const KLoop *o) { return o->blocked || o->places; }     /* around the sums of a contraction, no part of them */
typedef enum KSKind { KS_val, KS_store, KS_loop, KS_fold, KS_update, KS_skip, KS_fetch } KSKind;    /* fold: declaration; update: in the innermost body; skip: unless val holds, the rest of this turn of the loop is left out; fetch: the line of a place is asked for */
typedef struct KStmt {
    KSKind kind;
    KVal *val;                          /* val; store: what is stored */
    int buf; KAddr at; Combine how;     /* store; fetch */
    bool once, far, written;            /* fetch: once for all rows of a tile; into the second cache; to be written */
    bool room;                          /* store: there is room for the rows of a tile that lie past the end */
    int nopnd; KVal **opnd;
    bool held;                          /* store: of what only such loads read: there it goes to registers alone */
    bool fetched;                       /* store: the line that is written STORE_AHEAD bytes further on is asked for now */
    KLoop *loop; KFold *fold;
    uint8_t vary;
} KStmt;
struct KBlock { VEC(KStmt) stmt; KLoop *loop; KBlock *up; int depth; };

/* scratch: a private row of `size` elements, no parameter; twice: it exists twice, for late loops. packed: copied for this kernel, place k of its memory holding axis order[k];
 * panel > 0: then, as a matrix of rows of `width` elements, in blocks of so many columns (panel.c), the last one filled up with zeros;
 * words: rows by so many terms (word.c); rows: filled up to so many, or 0. */
typedef struct KBuf { const Node *node; DType dt; bool read, write, scratch; Dim *size; bool packed; uint8_t order[MAX_RANK]; int64_t panel; Dim *width; int words; int64_t rows; bool twice; } KBuf;
typedef struct KAxis { Dim *var, *extent; int64_t step; } KAxis;     /* a parallel variable; it advances by step */
typedef struct Sched {                  /* knobs; 0: as tile.c and sched.c choose */
#define KNOB(name, kinds, groups, values, text) int name;
#include "kir/sched.def"
#undef KNOB
} Sched;
/* A contraction by groups (product.c). A side: parallel axes, numbered through as one; so many of its places for each of PRODUCT_SIDE threads; along: neighbours
 * of the side, not of the sum, lie together in memory. A nest: loops around sums, outermost first, and values of one side each that lie in shared memory, for
 * PRODUCT_STEP steps of the sums at a time. */
enum { LOOK_PART = 4096 };
enum { PRODUCT_SIDE = 16, PRODUCT_STEP = 8, PRODUCT_PAD = 4, PRODUCT_CHUNK = 256 };
typedef struct KSide { uint32_t axes; Dim *extent; int each; bool along; } KSide;
typedef struct KNest { const KLoop *loop[MAX_RANK]; int nloop; VEC(KFold *) fold; VEC(KVal *) staged; } KNest;
typedef struct KProduct { KSide row, col; VEC(KNest) nest; } KProduct;
typedef struct LoopKernel {
    Graph *g; Arena *arena;
    Sched sched;                        /* as asked for */
    const Subgraph *sub;
    VEC(KBuf) buf;
    int npar; KAxis par[MAX_RANK + 1];  /* outermost first */
    int lanes, dots;                    /* 1: scalar code; see Vectors */
    bool row_open, row_fits;            /* its rows begin anywhere, not at 0; no tile of rows reaches past their end */
    bool row_each, row_fed;             /* every element of the tile needs its own loads; these are operands of its multiplications, as they lie */
    Dim *row_var, *row_extent; int mr;  /* row tile: row_var advances by mr > 1 */
    bool bundle;                        /* bundle.c: LANES rows at a time, whose loops run one after the other; what is between the loops has a lane for each row */
    int held; bool held_past;           /* rowloops.c: vectors of a row that stays in registers, where it has exactly so many, or 0; its stores pass the caches by */
    Dim *vec_var;                       /* parallel variable whose blocks the vector loop runs, or NULL */
    Dim *down_var;                      /* the same of a loop over rows inside it (reuse.c), or NULL */
    int pack;                           /* > 1: a thread takes so many neighbours in the last parallel axis, which advances by that */
    int packs;                          /* > 1: and so many of these at once: neighbours in the axis before it, which advances by that; else `threads` apart */
    int columns;                        /* > 1: a group takes so many points side by side, each by a team whose threads are `columns` apart */
    Dim *tile_var;                      /* or NULL: a group takes tiles of SIMT_TILE by SIMT_TILE points of it and the last parallel axis, and turns loads over */
    bool waits, split;                  /* groups may wait for one another; vectors are computed by halves: see Vectors */
    const KLoop *look;                  /* or NULL: the loop of a running fold whose parts, of LOOK_PART elements, groups share */
    KProduct *product;                  /* or NULL: a group takes a block of rows and columns of a contraction */
    int threads, team;                  /* GPU (0 elsewhere): threads of a group; team > 1: a group takes one point at a time, its loops over the row are dealt out */
    bool unit;                          /* its fold runs on a unit for tiles: unit.c */
    bool half, paired;                  /* its sums have few columns: half.c; paired: whole vectors of two terms for each */
    bool stream;                        /* stores pass the caches by */
    KLoop *late, *during;               /* the last loop of a point runs during that loop of the next one; or NULL */
    KVal *pivot; KLoop *pivoted; const KFold *highest;      /* or NULL: what that loop takes away from x before exp, the loop, and its maximum, above which the pivot may not lie far below: exp.c */
    KBlock *top, *body;                 /* before the parallel loop; in it */
    const char *note;                   /* SUB_stream: which part of the axis is visited, or NULL */
    int nval, nfold;
    double cost;                        /* compile effort */
    Dim *total, *work;                  /* parallel index range; scalar operations in all */
    VEC(Dim *) limit;                   /* axes that are indexed by values and may be empty: then no index is right, and none is safe */
} LoopKernel;

/* What kernels are lowered for: floats in a vector; which sums of products have an instruction (DOT_...); whether a group that has begun goes on while others
 * wait for it; whether a vector passes through units of half its width, so that half of one takes half the time. */
typedef struct Vectors { int lanes, dots; bool waits, split; } Vectors;
enum { LANES_simt = 0 };                /* scalar code for groups of threads: a GPU */

typedef struct Guarding { struct Guarding *up; Pred p; int id; } Guarding;
typedef struct MemoEntry { const Node *node; const Guarding *guard; KVal *val; Dim **idx; struct MemoEntry *next; } MemoEntry;
typedef struct StoredRow { const KVal *val; int buf; Dim *off; } StoredRow;  /* a value of a closed row loop that lies in memory */
typedef struct Lowering {
    Ctx *cx; Arena *arena; Graph *g; const Subgraph *sub; LoopKernel *k;
    KBlock *cur, *point;                /* where demands happen; the block of a point of the unreduced space */
    Guarding *guard; int nguard;
    MemoEntry *memo[1024];
    VEC(StoredRow) rows;
    uint8_t *done, *lent;               /* stores already emitted; those whose memory holds something else till then */
    MapStr *above;                      /* nodes above a contraction of the kernel, by id */
    VEC(KVal *) vals;                   /* by id */
    int nloop;
    KLoop *row_loop;                    /* innermost open loop over the rows, or NULL */
    bool vec_k;                         /* contractions run their innermost own loop in lanes */
    bool rows_vec;                      /* row folds, or running folds, run the last row axis in lanes */
    bool simt;                          /* for groups of threads */
    KFold **running;                    /* SUB_scan: by node of the kernel, of those that run */
    const struct Streaming *streaming;  /* stream.c */
    bool few;                           /* a stream of few rows: lanes run along its axis, and along its contractions' and its results' own axes */
    int nv;                             /* vectors a step of rows that are streamed */
} Lowering;

/* ---- block.c: for lower.c, scan.c and stream.c --------------------------------------------------------------------------------------------------- */
KBlock *block_new(Lowering *l, KBlock *up, KLoop *loop); /* loop NULL: no loop's body */
void block_add(Lowering *l, KBlock *b, KStmt s);
bool block_open(const Lowering *l, const KBlock *b);     /* Is it around what is being made? */
KBlock *block_for(const Lowering *l, KBlock *b, const Dim *d);           /* the deeper of b and the deepest open block whose variables occur in d */
KBlock *block_for_addr(const Lowering *l, KBlock *b, const KAddr *a, int nopnd, KVal *const *opnd);     /* the same for an address, and for the values whose numbers occur in it */
void values_in(Lowering *l, const Dim *d, KVal ***list, int *n);         /* adds the values whose numbers occur in d to a list */
void values_in_addr(Lowering *l, const KAddr *a, KVal ***list, int *n);
KVal *val_new(Lowering *l, const KVal *proto);           /* proto->block: not further out than this */
KVal *val_const(Lowering *l, DType dt, Scalar s);
KVal *val_index(Lowering *l, Dim *d);                    /* a number, as i64 */
KVal *val_ew(Lowering *l, Op op, DType dt, int n, KVal *const *in);      /* of known numbers: the number; times 1: itself (factors of a cascade come with such) */
int cost_again(const KVal *v);                           /* operations in v's own block that it takes to compute v */
/* ---- lower.c, for scan.c, stream.c and lanes.c: demands and what they make ---------------------------------------------------------------------------------------- */
KVal *demand(Lowering *l, const Node *n, Dim *const *idx);             /* the value of a node at an index, in the outermost block that knows it */
void memo_put(Lowering *l, const Node *n, Dim *const *idx, KVal *v);   /* from now on this is it */
void memo_clear(Lowering *l);
KLoop *loop_new(Lowering *l, Dim *var, bool vector);     /* opens it */
void loop_close(Lowering *l, KLoop *o);
KFold *fold_new(Lowering *l, const Node *f);
void fold_update(Lowering *l, KFold *a, KVal *v, Dim *const *in);
KVal *fold_result(Lowering *l, KFold *a);
void store_add(Lowering *l, const SubStore *s, KVal *v, Combine how);
bool max_is_loose(const Lowering *l, const Node *f);                    /* loose.c: need this maximum keep no NaN? */
/* One way to use lanes: over an axis of the space (lane), or (lane < 0) over the last axis that folds reduce. */
LoopKernel *lower_once(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v, int lane);
/* ---- scan.c ----------------------------------------------------------------------------------------------------------------------------------- */
void lower_scan(Lowering *l);                                          /* a kernel of running folds */
KVal *demand_scan(Lowering *l, const Node *n, Dim *const *idx);        /* what the running fold n has come to, inside their loop */
/* ---- stream.c --------------------------------------------------------------------------------------------------------------------------------- */
void lower_stream(Lowering *l);
static inline int stream_vectors(int lanes) { return lanes >= 16 ? 4 : 2; }     /* of rows side by side, at most: what registers hold with a tile's accumulators */
/* bounds.c: the part [lo, hi) of axis j outside of which no fold of the stream changes, for rows first to last of the variable `row`. lo NULL: 0. */
void stream_bounds(Lowering *l, Dim *j, Dim *row, Dim *first, Dim *last, Dim **lo, Dim **hi);
/* At the start of a block's turn: leaves it out where numbers that are read show that it has nothing. False: there are none such. */
bool stream_skips(Lowering *l, Dim *j, Dim *start, Dim *end, int steps, Dim *row, Dim *first, Dim *last);
bool stream_keeps(const Lowering *l, const KVal *v);                   /* Is v of an earlier loop over the block not to be computed again? */
KVal *stream_again(Lowering *l, const Node *n, KVal *v);               /* v of an earlier loop over the block, kept */
bool under_pivot(Graph *g, const Node *n);                            /* Is it not above 0 because it is x minus the largest so far? */
KVal *stream_packed(Lowering *l, const KVal *load);                    /* NULL: it is read where it lies */

/* Lowers and schedules a subgraph for such vectors. Raises UNSUPPORTED when a dtype has no spelling in kernels; the caller then runs
 * the subgraph by the interpreter. */
LoopKernel *kernel_lower(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v);
LoopKernel *kernel_lower_as(Ctx *cx, Arena *a, Graph *g, const Subgraph *sub, Vectors v, const Sched *sched);
void kernel_schedule(LoopKernel *k);                          /* sched.c: merges axes, chooses tiles and blocks */
void kernel_simt(LoopKernel *k);                              /* simt.c: the same for groups of threads */
void kernel_rough(LoopKernel *k);                             /* rough.c: which values need not be exact to the last places */
/* The address of a load or store of a point whose neighbours in the last parallel axis lie together, so that one access may move several; else NULL. */
const KAddr *simt_pack_at(const LoopKernel *k, const KStmt *s);
enum { SIMT_TILE = 32 };
bool simt_turned(const LoopKernel *k, const KStmt *s);       /* a load whose neighbours in tile_var lie together, and those in the last parallel axis do not */
/* product.c: a contraction with reuse on both sides gets k->product; false: it is none. */
bool product_choose(LoopKernel *k);
Dim *product_blocks(const LoopKernel *k);                     /* how many in all: the parallel axes of neither side outermost, then rows, then columns */
Dim *product_steps(const LoopKernel *k, const KNest *n);      /* of the sums */
KSide *product_side(const LoopKernel *k, const KVal *v);      /* of a value of one side */
bool product_chunked(const LoopKernel *k, const KNest *n, const KFold *f);       /* Is it summed in chunks of PRODUCT_CHUNK steps, whose sums are added up? */
/* Their parts: */
void kernel_merge(LoopKernel *k);                             /* adjacent axes become one */
void kernel_chunks(LoopKernel *k);                            /* long float32 sums */
void kernel_vary(LoopKernel *k);                              /* how values differ in a tile */
void kernel_measure(LoopKernel *k);                           /* total, work, cost */
/* tile.c */
void tile_choose(LoopKernel *k, KLoop *vec);                  /* a contraction's tile of rows and vectors; vec: its loop over lanes, or NULL */
int tile_of_rows(int nv, int most, int64_t n);                /* rows of a tile of nv vectors that leaves few of n past its end */
/* Without lanes: points of an axis that a thread takes together, so that what does not change along it is loaded once for all of them: `most`, if there are that
 * many and `least` threads are left. */
void tile_rows(LoopKernel *k, int most, int64_t least);
bool tile_shifts(const LoopKernel *k);                        /* Does the last tile begin earlier, since it would reach past the last row? */
bool tile_fits(const LoopKernel *k);                          /* No tile reaches past the last row. */
void tile_loops(LoopKernel *k);                               /* which loops are unrolled or split */
int kernel_folds(const KBlock *b);
int64_t tile_rows_hint(const LoopKernel *k);                  /* rows that tiles go over, likely: the extent of row_var */
KLoop *kernel_places(const LoopKernel *k);                    /* the innermost loop over places that a contraction's results are reduced over, or NULL */
enum { LINE_BYTES = 64, STORE_AHEAD = 1024 };                 /* of memory; a result's line is asked for so much before it is written */
/* Do a SUB_rows kernel's results pass the caches by? They are larger than these, and its rows are neither short nor too long to be kept meanwhile. */
enum { STREAM_BYTES = 32 << 20, STREAM_ROW_LEAST = 1024, STREAM_ROW_MOST = 512 << 10 };
bool kernel_streams(const Graph *g, const Subgraph *sub);
void window_bounds(LoopKernel *k);                            /* bounds.c: loops over windows leave padding out; after the tile is chosen */
/* A function of many steps with as many numbers. Behind the loops of a contraction it is called: put in there, a compiler would load its numbers before these loops, into the registers of
 * the accumulators. In an elementwise or running kernel it is a stage: see sched.c. */
bool is_dear(const KVal *v);
void kernel_rows(LoopKernel *k);                              /* rowloops.c: with lanes along the rows; with lanes across them: */
void kernel_columns(LoopKernel *k, const KLoop *vec);
enum { BUNDLE_ONCE = 4096 };                                 /* elements of a row that is read once, at most */
bool bundle_serves(const LoopKernel *k, bool once);           /* bundle.c: Are its rows, so far as their number and length say, for bundles? once: each is read once */
bool bundle_choose(LoopKernel *k);                            /* sets k->bundle */
bool word_pairs(const LoopKernel *k, const KLoop *vec);       /* word.c: Would its sum of float32 go by pairs, if it had few columns? */
void word_choose(LoopKernel *k, KLoop *vec);                  /* before: */
/* unit.c: the fold f of words of x along the loop o on a unit for tiles; false: that does not serve, and nothing is done. */
/* Rows and bytes of its registers; rows, and columns, of four registers of sums; registers along the reduction that are summed up at a time: these sums are added, so
 * that float32 keeps its digits. */
enum { UNIT_TILE_ROWS = 16, UNIT_TILE_BYTES = 64, UNIT_SQUARE = 32, UNIT_STEPS = 64 };
bool unit_choose(LoopKernel *k, KLoop *vec, KFold *f, const KLoop *o, const KVal *x, int terms);
void panel_choose(LoopKernel *k, KLoop *vec);                 /* panel.c */
void reuse_choose(LoopKernel *k, KLoop *vec);                 /* reuse.c: what rows of an elementwise kernel share stays in registers; sets down_var */
/* half.c. Lanes that are enough for a contraction's columns, the axis in lanes: all, or, where these fit in half a vector or a quarter, and the sums are such, so many. */
int half_lanes(LoopKernel *k);
int half_width(const LoopKernel *k);                          /* the same of one that has k->half */
int half_count(const LoopKernel *k);                           /* half vectors that its columns are, 1 where they fit in one; 0: whole vectors serve them */
void half_choose(LoopKernel *k);                              /* sets LoopKernel.half; before the tile is chosen; after panels: */
void half_apply(LoopKernel *k, KLoop *vec);
void buf_pack(KBuf *b);                                       /* it is packed, if not yet, in its own order */
void kernel_powers(LoopKernel *k);                            /* exp.c: sets KFold.power, in lanes */
bool kernel_pivot(LoopKernel *k);                             /* after it: does it sum powers of e, less a maximum, in one pass? */
void pivot_chunk(LoopKernel *k);
enum { PIVOT_REACH = 40, PIVOT_NONE = 20 };                   /* e^40 times the longest row is far from too large; a pivot nearer to 0 is none */
bool below_largest(const KVal *v);                            /* Is v, if it is a number, not above 0 because it is x minus the largest x of a row? */
void count_uses(int *uses, const KBlock *b);                  /* how often each value is used, by id */
void start_choose(LoopKernel *k);                             /* start.c: sums of integers that begin with what is added to them; after kernel_vary() */
void quantise_choose(LoopKernel *k);                          /* quantise.c: quantisations in lanes, without a division; after kernel_vary() */
Dim *kernel_scratch(const LoopKernel *k, int buf);                       /* byte offset in the thread's scratch; buf = buf.n: the whole size */
/* May `out` share its memory with `in`? Proved when every read of in is at the very element that is written, and not after the write, and no element is
 * written by more than one point. */
bool kernel_may_alias(const LoopKernel *k, int in, int out);
/* Do rows of `out` lie one after the other and end inside a vector? What is stored of that vector covers the beginning of the next row, and a load from there would wait for it. */
bool kernel_rows_meet(const LoopKernel *k, int out);
bool fold_in_loop(const KFold *f, const KLoop *o);       /* Is it a float32 sum that runs over o (and not one inside each iteration)? */
#endif
