/* gen: a scheduled kernel to source text. cstyle.c prints what all C dialects share; gen_c.c is the CPU's frame and prelude. */
#ifndef SN_GEN_H
#define SN_GEN_H
#include "base/base.h"
#include "ir/ir.h"
#include "kir/kir.h"

typedef struct KernelSource {
    const char *name, *text;            /* name: k_<hash of the text behind the name> */
    const char *code;                   /* text without the comment before it: what is compiled, the same for operators of other names */
    int narg; Dim **arg;                /* numbers that the kernel gets, over the graph's symbols */
    int nbuf; int *buf;                 /* parameter k is LoopKernel.buf[buf[k]] */
    Dim *scratch;                       /* bytes, or NULL */
    Dim *common;                        /* of groups: bytes of scratch that all share, 0 before each launch; or NULL */
    int threads; int64_t each;          /* of groups: see Launch */
    bool resident;                      /* no more groups than run at once */
    int cluster;                        /* > 1: so many blocks are a group, and share what each has */
    Dim *local;                         /* bytes of local memory, or NULL */
    bool quick;                         /* see KernelText */
    bool checks;                        /* may report a data error */
    const char *params, *inside;        /* groups of threads: the parameters before `total`; what is between the braces, without what says which group it is */
} KernelSource;

/* A language that kernels are printed in; api/targets.def joins it with a device. */
typedef struct Dialect {
    const char *name;
    Vectors (*vectors)(const char *isa);
    const char *(*prelude)(Arena *a, const char *isa);
    void (*print)(Ctx *cx, Arena *a, const char *isa, const LoopKernel *k, KernelSource *out);      /* isa: as above; what the kernel may use */
    /* (optional: where a launch is cheap, nothing is won) One kernel that does the work of several launches: texts[i] are printed kernels k[i]. See gen_join.c for
     * the table that it gets. */
    void (*join)(Arena *a, int n, const LoopKernel *const *k, const KernelSource *const *texts, KernelSource *out);
} Dialect;
extern const Dialect dialect_c, dialect_opencl, dialect_cuda;

/* Prints a kernel as C. The text depends on structure only: sizes of 8 and more are arguments, so equal kernels of different sizes are one. */
void gen_c(Ctx *cx, Arena *a, const char *isa, const LoopKernel *k, KernelSource *out);
/* What precedes kernels in a translation unit for an instruction set (a row of isas.def), and its vectors. */
const char *gen_c_prelude(Arena *a, const char *isa);
Vectors gen_c_vectors(const char *isa);

/* ---- expand.c: kernels and the helpers they use, as source that stands alone ------------------------------------------------------------------ */
typedef struct Helpers Helpers;
Helpers *gen_c_helpers(Ctx *cx, Arena *a, const char *isa, const char *suffix);      /* isa: a row of isas.def; suffix: put behind each of their names; "" for one instruction set */
Helpers *gen_c_helpers_of(Ctx *cx, Arena *a, const char *text);  /* of another text than the prelude */
const char *gen_c_standalone(Helpers *h, const char *code);      /* a kernel's KernelSource.code without macros; notes which helpers it uses */
void gen_c_helpers_print(Helpers *h, Text *t);                   /* those that were noted; call it after the kernels */

/* ---- cstyle.c ----------------------------------------------------------------------------------------------------------------------------- */
/* What a dialect for groups of threads spells in its own way. */
typedef struct SimtWords {
    const char *function, *global, *local;      /* before a kernel; of pointers to device memory; of arrays that a group shares */
    const char *alone;                          /* of a pointer to what the kernel only reads: "__restrict__ " */
    bool at_once;                               /* behind the threads of a group the function takes how many groups are to run at once */
    const char *cluster;                        /* of a kernel whose blocks form clusters of %d, or NULL */
    const char *group, *groups, *thread;        /* numbers of the group and of the thread in it; how many groups */
    const char *where;                          /* what declares group and groups; NULL: they are expressions */
    bool objects;                               /* buffers are memory objects with an offset */
} SimtWords;
/* gen_simt.c: a kernel for groups of threads, in such a dialect; and its prelude behind `own`: what the C dialects share. */
void gen_simt(Ctx *cx, Arena *a, const LoopKernel *k, const SimtWords *w, KernelSource *out);
const char *gen_simt_prelude(Arena *a, const char *own);
void gen_head(Text *t, const LoopKernel *k, const char *form);   /* the comment before a kernel; form: NULL, or how it runs */
const char *gen_storage(DType t);               /* "u16": a buffer's element type in kernels */

typedef struct Printer {
    Ctx *cx; Arena *arena; const LoopKernel *k; Graph *g;
    Text *t; int indent;
    VEC(Dim *) arg;
    Dim *lane;                          /* variable of the vector loop around, or NULL */
    int nv; bool part;                  /* vectors a step here; part: the tail, `rem` lanes are real */
    bool in_m, in_v;                    /* inside the loops over the tile's rows, vectors */
    bool past_rows;                     /* rows are named as they are, not at most the last one */
    int row_from, row_past;             /* rows of the tile that are printed; past 0: all */
    bool quick, exact;                  /* a loop that may lose NaN, and marks it; the same loop again (print_quick()) */
    bool inside;                        /* all predicates of the addresses hold here: none is printed */
    bool border;                        /* they may not, and there is another text for where they do: this one, which runs seldom, is not unrolled: with rows that may be missing it would be long */
    bool rest;                          /* of tiles that reach past the end: there is another text for where they do not */
    bool shifted;                       /* the last tile of rows begins earlier where it would reach past the end; what an earlier one stored, from `f` on, is not stored again */
    bool rolled;                        /* that loop over the rows is not unrolled: accumulators are read from copies */
    bool half;                          /* what is printed has half a vector of lanes: kir/half.c */
    int held;                           /* rows have exactly so many vectors, and stay in registers: kir/rowloops.c; or 0 */
    const char *cell;                   /* behind the name of an accumulator: which of many is meant; or NULL */
    int lane_of;                        /* > 0: inside a loop over single lanes */
    VEC(const void *) pack;             /* loads (KVal) and stores (KStmt) that are done for several points at once: their elements lie in r0, r1 ... */
    const char *pack_place;             /* where in it this point's element is */
    bool at_pack;                       /* the last parallel axis is printed as the first of these points */
    VEC(const KVal *) kept;             /* what LoopKernel.late needs of the point before */
    bool bundled;                       /* between the loops of a bundle: what differs by row has a lane for each */
    bool folded;                        /* parts of folds are put together by the printer's caller */
    bool simt, in_team, checks;         /* for groups of threads; inside a loop dealt out; printed: may report an error */
    const KVal **vals;                  /* by id */
    uint8_t *array;                     /* by value id: it is an array over the tile */
    uint8_t *spread;                    /* by value id: it is in all lanes of a vector s0, s1 ... */
    bool joins;                         /* stores that take all vectors of a step at once (print_joined()) only collect them */
} Printer;
void print_block(Printer *p, const KBlock *b);
void print_bundle(Printer *p, const KBlock *b);                  /* gen_bundle.c: the body of a kernel whose rows are in bundles */
void print_loop(Printer *p, const KLoop *o);
void print_stmts(Printer *p, const KBlock *b, int from, int to); /* those that compute or store something, one after the other */
void print_row(Printer *p);                                      /* this row of a tile, inside its loop */
const char *print_row_guard(Printer *p);
void print_unit(Printer *p, const KLoop *o);                     /* gen_unit.c: the loop o over the lanes of a kernel on a unit for tiles: whole steps, or its rest */
/* A block without the loops in it: its arrays and what all rows of a tile share; the rest, for the row m. */
void print_shared(Printer *p, const KBlock *b);
void print_of_row(Printer *p, const KBlock *b);
/* Finds out which values must be arrays; before the first print_block. */
void print_prepare(Printer *p);
/* A kernel whose last loop runs late: what it needs of the point before is declared, kept at the end of a point, and in the end the last point is finished. */
void print_late_declare(Printer *p);
void print_held_rows(Printer *p);                                /* values.c: what rows that stay in registers hold, declared */
void print_late_keep(Printer *p);
void print_late_finish(Printer *p);
void print_line(Printer *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* index.c */
const char *print_dim(Printer *p, Dim *d);                       /* an integer expression; new sizes become arguments */
const char *print_var(Printer *p, const Dim *var);
const char *print_arg(Printer *p, Dim *d);                       /* a number as an argument of the kernel, whatever its size */
/* values.c */
const char *print_literal(Printer *p, DType t, Scalar s);    /* in the dtype that t is computed in */
void print_val(Printer *p, const KVal *v);
const char *print_operand(Printer *p, const KVal *v);            /* a single value as an expression */
void print_store(Printer *p, const KStmt *s);
void print_spread(Printer *p, const KStmt *s);                   /* before a loop over the rows: what is one number for all of them as a vector, so that each need not make it */
bool print_joined(const Printer *p, const KStmt *s);             /* Does the store take all vectors of a step at once, from q0, q1 ...? */
void print_joined_store(Printer *p, const KStmt *s);             /* behind the loop over them */
const char *print_held(DType t);                                 /* the type that a value is held in */
const char *print_place(Printer *p, int buf, const Dim *off);    /* "b0 + n1 * i0 + i1" */
/* for accumulator.c: */
const char *print_operand_as(Printer *p, const KVal *v, uint8_t vary);   /* as an operand of something that varies so (VARY_...) */
const char *print_subscript(Printer *p, uint8_t vary, bool vectors);     /* "[m][v]": of an array over the tile; vectors: it has several of them */
const char *print_narrowed(Printer *p, DType t, const char *e, uint8_t vary);    /* e, rounded or wrapped to a narrow dtype */
const char *print_fold_op(FoldKind k, DType t, bool *infix);             /* "+", or the first part of a function's name */
void print_assign(Printer *p, const KVal *v, const char *e);             /* declares v with this value */
const char *half_suffix(const Printer *p, const KVal *v);                /* of the type of a value that is half a vector, or pairs in a whole one */
const char *print_declare(Printer *p, const KVal *v);                    /* declares v, which statements fill; returns its name */
/* gen_look.c: the loop over the parts of a kernel with k->look; bytes that its groups share. */
void print_look(Printer *p, const LoopKernel *k, const SimtWords *w, Text *names);
Dim *look_state(const LoopKernel *k);
/* accumulator.c */
void print_fold(Printer *p, const KFold *f);                     /* declaration, and what it begins with; where that is a value (KFold.start), behind that: */
void print_begin(Printer *p, const KFold *f);
bool loop_quick(const Printer *p, const KLoop *o);               /* Is it printed so that a NaN is lost, and once more for that case? */
void print_again(Printer *p, const KBlock *b);                   /* the accumulators of a loop's body as they were before it */
const char *print_identity(Printer *p, const KFold *f);          /* what an accumulator begins with */
void print_update(Printer *p, const KStmt *s);
void print_bundle_fold(Printer *p, const KFold *f);              /* room for what an accumulator of each row of a bundle comes to; */
void print_bundle_put(Printer *p, const KFold *f, bool none);    /* that of row m; none: there is no such row */
void print_finish(Printer *p, const KVal *v);                    /* its result */
/* A running fold by a team, for one turn of its threads: a variable for this thread's value; its value; the fold, which leaves the whole in e0, e1 ... */
void print_scan_open(Printer *p, const KFold *f);
void print_scan_take(Printer *p, const KFold *f);
void print_scan_fold(Printer *p, const KFold *f, int team);
typedef enum ChunkPart { CHUNK_open, CHUNK_add, CHUNK_close } ChunkPart;      /* before the chunks, after each, after the last */
void print_chunk(Printer *p, const KFold *f, const KLoop *o, ChunkPart part);
void print_pivot(Printer *p, const KLoop *o, const KFold *sum);  /* behind a chunk of LoopKernel.pivoted, before it is added: is it to be done again? */
void print_rolled(Printer *p, const KFold *f);                   /* a copy of an accumulator that a loop over the rows can index */
bool sums_at_once(const Printer *p, const KFold *f);             /* Are the sums over lanes of all rows of a tile made at once? */
void print_sums(Printer *p, const KFold *f);
/* inside.c: that all predicates of the addresses in a loop hold for the whole tile, as a condition before the loop; NULL: there are none, or it cannot be said. */
const char *print_inside(Printer *p, const KLoop *o);
const char *print_rem(const Printer *p);                         /* lanes that are real here, in a part */
bool rows_whole(const LoopKernel *k);                            /* Does no tile reach past the last row? */
/* gen_simt.c: the parallel variables at `point`; the frame around a printed body. blocks: 0, or how many
 * groups are to run at once on a multiprocessor (CUDA only); each: points that a group takes at a time; shared: words of 8 bytes that it
 * shares, named so; cluster: > 1, blocks of a group; local: bytes of shared memory that the launch gives, named room; form: for the comment, or NULL. */
typedef struct SimtFrame { int threads, blocks; int64_t each; int shared, columns, cluster, local; bool scratch, quick; const char *form, *names; } SimtFrame;     /* names: further declarations, or NULL */
void print_point(Printer *p);
/* gen_product.c: the loop over the blocks of a kernel with k->product, and the shared memory that it declares. */
void print_product(Printer *p, const LoopKernel *k, const SimtWords *w, Text *names);
/* gen_join.c */
enum { JOIN_FIRST, JOIN_TEXT, JOIN_ARGS };
void gen_join(Arena *a, const SimtWords *w, int n, const LoopKernel *const *k, const KernelSource *const *texts, KernelSource *out);
int join_words(int n, const KernelSource *const *texts);                 /* of a row of the table */
/* gen_pack.c: the loop over the points of an elementwise kernel with k->pack > 1; how many points (packs) a group takes at a time. */
int64_t print_packs(Printer *p, const LoopKernel *k, const SimtWords *w);
void simt_frame(Printer *p, const SimtWords *w, const SimtFrame *f, KernelSource *out);
/* ---- row_shape.c: what gen_rows.c prints: is it that form, and how are rows dealt out? ------------------------------------------------------------ */
typedef struct RowSlot {                   /* elements of the row that are loaded or stored as vectors */
    int buf; Dim *off; int npred; Pred *pred; DType dt;
    int id, first, last;                /* loops that use it */
    bool store, kept;                   /* kept: a value that a later loop may compute again needs it */
    int nopnd;
    enum { FROM_memory, FROM_ring, FROM_once } from;    /* once: one copy in shared memory serves all rows */
    bool taken;                         /* the text so far takes single elements out of it */
    int at;                             /* byte in a stage of the ring, or in what is fetched once */
} RowSlot;
typedef struct RowKept { const KVal *val; int first, last; int buf; Dim *off; } RowKept;     /* a value that later loops read back from buf */

typedef struct Rows {
    Printer p;
    Ctx *cx; Arena *a; Graph *g; const LoopKernel *k;
    Dim *var;                           /* of the row */
    int64_t n;                          /* its length */
    int nloop; const KBlock **loop;     /* bodies of the loops over the row */
    VEC(RowSlot) slot;
    VEC(RowKept) kept;
    const RowSlot **slot_of;               /* by value id: the slot of a load */
    int *kept_of;                       /* by value id: 1 + the RowKept that a load reads back */
    int *holds;                         /* by value id: 1 + the RowKept that this value is */
    int *stamp, scope;                  /* by value id: the scope in which it was printed last */
    int e, v, w, rows;                  /* elements of a vector, vectors of a thread, threads of a row, rows of a block */
    int cluster; int64_t part;          /* blocks of a row, elements of it in each */
    int shift;                          /* elements of a line of memory, where rows begin inside one and are dealt from the line's beginning on; or 0 */
    int need;                           /* registers of a thread for its part of the row */
    int stages;                         /* of the ring, for each row; 0: none */
    int steps, pieces, piece;           /* vectors of a thread in a piece, pieces of a block's part of a row, bytes of a piece */
    int once, room, blocks;             /* bytes fetched once, of shared memory in all; blocks of a multiprocessor */
    int released;                       /* the loop after which a stage is free */
    bool again;                         /* kept values are computed again */
    int soon;                           /* 1: the second cache is asked for the next row while this one is worked on; 2: for half of it */
    bool paired, hinted, crowded;       /* two reductions are made at once; what is read and written once passes the caches; the compiler must not see what it might keep of an earlier loop */
    bool quick;                         /* memory waits for what is computed: more blocks, in fewer registers each, hide more than what the compiler would move about */
    int here;                           /* the loop being printed */
    const KVal *apart;                  /* a difference in a loop that is joined to the one before: there it is to what the thread has, not to the row's */
} Rows;
typedef enum Pair { PAIR_none, PAIR_exp, PAIR_squares } Pair;    /* two reductions at once: a greatest element and a sum of exp(x - it), a sum and a sum of (x - mean)^2 */
bool rows_find(Rows *r);                                         /* sorts loops, loads and stores */
bool rows_shape(Rows *r, bool bulk);                             /* chooses threads and blocks; false: nothing serves */
bool rows_in(const Rows *r, const KVal *v);                      /* Is it a value of an element? */
RowSlot *rows_slot(Rows *r, int buf, const KAddr *at, bool store);
bool rows_passes(const RowSlot *s);                                 /* loaded where it is used, and not kept */
int rows_last(const Rows *r, const RowSlot *s, bool again);         /* the last loop that needs it */
bool rows_exact(const Rows *r);                                  /* Have all threads the same number of whole vectors? */
int rows_sure(const Rows *r);
bool rows_varies(const Rows *r, const RowSlot *s);                  /* Is it another one for each row? */
bool rows_whole_pieces(const Rows *r, const RowSlot *s);            /* Can the device copy a row of it by itself? */
int rows_parts(const Rows *r);                                      /* bytes through which the threads of a row put their parts of a reduction together */
const RowSlot *rows_first(const Rows *r);
bool rows_dropped(const Rows *r, int l, const KStmt *s);         /* a store that nobody sees */
const KFold *rows_fold(const Rows *r, int l);                    /* the only one of a loop, or NULL */
Pair rows_pair(const Rows *r, int l);                            /* how loop l and the next go together */
/* gen_rows.c: rows kept in registers; false where that form does not serve, and nothing is done. */
bool gen_rows(Ctx *cx, Arena *a, const LoopKernel *k, const SimtWords *w, bool bulk, KernelSource *out);      /* bulk: copies into shared memory run by themselves, blocks form clusters */
#endif
