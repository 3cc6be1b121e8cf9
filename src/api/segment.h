/* Between segment.c (compiling), instance.c (memory and launches of a run) and evidence.c (the report): the inside of a Segment. */
#ifndef SN_SEGMENT_H
#define SN_SEGMENT_H
#include "api/api.h"

#include <pthread.h>
#include <stdatomic.h>

/* made: its kernels are there. compiling: in the hands of background.c. compiled: the next run finishes it. failed: build_error says why */
typedef enum SegState { SEG_made, SEG_compiling, SEG_compiled, SEG_failed } SegState;
enum { MAX_IDLE = 8 };                  /* idle instances that are kept */

/* Parts in one launch, which stand together from member[0] on; of each its text in the kernel; words of a row of the table (gen_join.c). */
typedef struct Joint { int n, *member, *text, words; KernelSource src; bool placed; } Joint;

typedef struct LibForm LibForm;          /* of library.c */
typedef struct Part {                   /* one kernel of the plan; loops NULL: a call */
    const Subgraph *sub;
    const char *structure;              /* its name with its own schedule */
    bool once, packs;                   /* depends on constants only; copies an operand for the part behind it */
    LoopKernel *loops; KernelSource src;
    const Kernel *built;
    const char *note;                   /* what the compiler says about it, or NULL */
    const LibForm *lib;             /* what a library could compute instead, or NULL; where loops->sched.lib is set it does */
    LibRun *lib_run;                /* for all instances, where sizes are known; else each makes its own */
    const char *lib_note;           /* which of its functions runs, or why none does; NULL: not asked for */
    struct Part *join_mate;             /* an earlier copy into the same join: counted as one launch */
    Joint *joint;                       /* what it is launched with, or NULL */
} Part;

typedef struct JointRun {               /* of an instance */
    const Joint *joint;
    Launch *member;                     /* what each would be alone */
    int64_t *row, *sent, rows;          /* the table, and as it lies on the device, if known */
    void *table; bool known;
} JointRun;

typedef struct Packed { struct Packed *next; const Node *node; const KBuf *form; int64_t width; size_t bytes; void *data; } Packed;     /* form: of the first kernel that wanted it */

typedef struct Instance {
    struct Instance *next;
    int64_t *syms;
    const uint8_t *far;                 /* by node id: an input or output that lies in the caller's memory on the device; NULL: none does */
    uint64_t far_hash; bool far_checked;             /* the addresses that were looked at last */
    uint8_t *arena; int64_t arena_bytes;
    int nlaunch; Launch *launch;        /* without those run once */
    int *part;                          /* of each launch: index of its Part */
    struct Patch { void **at; int node; } *patch; int npatch;        /* addresses that each run fills in: inputs and outputs */
    struct HostCall *host;              /* by launch */
    void **where;                       /* by node id: its address on the device; NULL: it has none of its own */
    JointRun *joint; int njoint;
    LibRun **lib; int nlib;     /* its own */
    void *table;                        /* of all of them, on the device */
    int64_t temp_bytes;
    Arena *memory;                      /* of all the above */
} Instance;

struct Segment {
    Arena *arena;
    const Target *target;
    Graph *g;
    ProgramOptions opt;
    int *rewrites;                      /* by rule: how often it was applied; NULL: not looked for */
    Plan *plan;
    Part *part; int npart;              /* kernels of the plan, and before contractions those that pack their operands */
    int *first, *last, *share;          /* by node id: kernels that write and last read it; the node whose memory it takes over, or -1 */
    void **fixed;                       /* by node id: results computed once, on the device; else NULL */
    void **uploaded, *upload_block;     /* by node id: constants copied to a device with memory of its own */
    void *once_block; int64_t once_bytes;
    Packed *packed;                     /* constants in the forms that contractions want */
    VEC(Dim *) limit;                   /* where one of these sizes is 0 the interpreter runs it: see LoopKernel */
    bool interpreted; const char *interpreted_why;      /* no kernels: the reference interpreter runs it */
    pthread_mutex_t lock;               /* over idle, last_syms and, while it compiles, times */
    _Atomic int state;                  /* SegState */
    int ntext; KernelText *text; const Kernel **out;         /* to be built, and what came of it */
    RtError build_error;
    struct Segment *next_compiled;      /* of background.c */
    Instance *idle; int nidle;
    int64_t *last_syms; int64_t last_temp;
    int dump;                           /* number of its files in SN_DUMP's folder */
    SegmentEvidence times;              /* the times of its making */
};

/* dump.c: to the log and the dump folder, as SN_DEBUG, SN_WHY and SN_DUMP ask: graph and plan before kernels are made (they may add nodes); then those. */
void segment_tell(Ctx *cx, Segment *s);
void segment_tell_kernels(Ctx *cx, const Segment *s);
extern const char *const sub_kind_name[SUB_COUNT];           /* evidence.c */

/* library.c: the contraction of a kernel as a library's, and one with numbers for its sizes (NULL, with a reason: it has none). */
const LibForm *library_form(Arena *a, Graph *g, const Subgraph *sub, const char **why);
bool library_turns(const LibForm *f);                        /* a product of matrices that could be a convolution: its rows are places of an image */
LibRun *library_run(Ctx *cx, const Segment *s, const Part *p, const int64_t *syms, char *why, size_t nwhy);
void library_settle(Ctx *cx, Segment *s);                    /* those of fixed sizes, once for the segment; who has none runs its own kernel */
static inline bool in_library(const Part *p) { return p->lib && p->loops && p->loops->sched.lib; }

/* joint.c: which parts are launched together, before they are built; a launch of them from those that each would be; its table, once addresses are known. */
void segment_join(Ctx *cx, Segment *s);
void joint_launch(Arena *a, const Joint *j, JointRun *r, Launch *l);
void joint_send(Ctx *cx, const Segment *s, JointRun *r);
static inline bool joined_before(const Segment *s, int part) { return s->part[part].joint && s->part[part].joint->member[0] != part; }

/* instance.c */
bool segment_is_output(const Segment *s, const Node *n);
void segment_raise(Ctx *cx, const Segment *s, const RtError *e);
void segment_run_once(Ctx *cx, Segment *s);                  /* kernels that depend on constants only */
bool segment_ready(Ctx *cx, Segment *s);                     /* its kernels can be run now; finishes it when they are new */
void instance_free(const Segment *s, Instance *x);
int64_t node_bytes(const Node *n, const int64_t *syms);
void *device_block(Ctx *cx, const Segment *s, int64_t bytes);

const Node *part_reads(const Segment *s, int part, const Node *n);            /* segment.c: what is read of the graph where it reads the buffer of n: what a part before it packed there, or n */
void node_tensor(Ctx *cx, const Node *n, const int64_t *syms, Tensor *t);     /* its dtype and sizes; no data */

/* checker.c: a launch, compared with what the interpreter makes of what it reads; and, at the end, whether results are still what they were. */
typedef struct Checker {
    const Segment *s; const int64_t *syms; const Tensor *in;         /* in: on the host */
    void *const *at;                    /* by node id: where what kernels and calls compute lies, on the device; else NULL */
    uint64_t *seen;                     /* by node id: hash of what lies there, as it was last seen; 0: not yet */
} Checker;
void checker_run(Ctx *cx, Checker *c, int part, const Launch *l, int threads, double *seconds);
void checker_end(Ctx *cx, Checker *c);

/* packed.c */
const void *packed_data(Segment *s, const KBuf *b, size_t *bytes);     /* a constant in the form that a kernel wants, made once, and its size (bytes may be NULL); NULL without memory */
void segment_pack(Ctx *cx, Segment *s);                      /* all of them, before the first run */

/* stage.c: what lies in the memory of a device that has its own; nothing to do on others */
static inline bool is_staged(const Segment *s) { return !s->target->api->host_memory; }
void stage_constants(Ctx *cx, Segment *s);                   /* those that kernels read; once for a segment */
void stage_sizes(Ctx *cx, const Segment *s, const Instance *x);     /* sizes that kernels read as data */
void stage_write(Ctx *cx, const Segment *s, void *to, const void *from, size_t n);
void stage_read(Ctx *cx, const Segment *s, void *to, const void *from, size_t n);
/* Places intermediate results of bytes[id] each (-1: none of those) at offset[id]; returns the bytes of all. */
int64_t segment_place(Arena *a, const Segment *s, const int64_t *bytes, int64_t *offset);
bool segment_in_arena(const Segment *s, const Node *n);      /* is it such a result? */
#endif
