/* api: the pipeline, from a model to a program that runs. */
#ifndef SN_API_H
#define SN_API_H
#include "base/base.h"
#include "fuse/fuse.h"
#include "gen/gen.h"
#include "ir/ir.h"
#include "kir/kir.h"
#include "onnx/onnx.h"
#include "rt/rt.h"
#include "tune/tune.h"
#include "sinter.h"

/* ---- interp.c: a model run by the reference interpreter, operator by operator: slow, and the measure of everything else -------------- */
/* in: one tensor for each of the main graph's inputs that is no initialiser; out: one for each of its outputs, data in a. */
void interp_run(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *in, Tensor *out);
/* The same for any graph of the model; args: its inputs, then the values it captures. */
void interp_graph(Ctx *cx, Arena *a, const OnnxModel *m, const OnnxGraph *g, int ncapture, const char *const *capture, const Tensor *args, Tensor *out);
/* One segment. */
void interp_segment(Ctx *cx, Arena *a, const Graph *g, const Tensor *in, Tensor *out);

/* ---- control.c: Loop and Scan around a body that somebody else runs --------------------------------------------------------------------- */
typedef void (*BodyRun)(void *self, Ctx *cx, Arena *a, const BodyCall *c, const Tensor *args, Tensor *out);
extern const CallDef loop_call, scan_call;          /* for TraceHost; their eval uses the interpreter */
void control_run(Ctx *cx, Arena *a, const Call *call, const Tensor *in, Tensor *out, BodyRun run, void *self);

/* ---- program.c, segment.c: a compiled model --------------------------------------------------------------------------------------------------
 * A program is a tree of steps. A step is a compiled segment (see onnx.h: Import is a trace) with the guards under which it holds, then perhaps a call
 * (NonZero, Loop ...) on its outputs; the steps that may come next hang below it. A run walks down: at each level it takes the step whose guards hold
 * for the actual sizes and values, or traces and compiles the model anew for them and hangs the new steps in. */
/* check: SN_CHECK; threads 0: Options.threads; ready: runs do not wait for compilers, see background.c; background: set by program_new */
/* plain: tuning records are not used; force_kernel: the kernel of this structure gets the schedule `force` */
typedef struct ProgramOptions { bool fuse, check, ready, plain; int threads; struct Background *background; const char *force_kernel; Sched force; } ProgramOptions;
typedef struct Program Program;
typedef struct KernelEvidence {         /* one launch of a segment */
    const char *name, *kind;            /* "k_0123...", "rows" */
    const char *structure;              /* the name that it has with its own schedule */
    const LoopKernel *loops;            /* NULL for calls */
    const char *const *node; int nnode; /* the model's operators in it: "LayerNormalization ln_1" */
    const char *const *move; int nmove; /* operators that only move data between it and another kernel, and became index maps */
    const int *from; int nfrom;         /* kernels of the segment that compute what it reads */
    const char *source;                 /* C text; NULL for calls */
    const char *note;                   /* what the compiler says about it: "32 registers, 0 B shared ..."; NULL where it says nothing */
    int64_t read_bytes, write_bytes;    /* logical: each buffer once, at the last bound sizes */
    bool once, interpreted;
    bool joined;                        /* a part of the launch before it */
    bool lib, lib_fits, lib_turns;       /* runs in a library; could; could as a convolution and as a product */
    const char *lib_note;           /* which function runs, "oneDNN 2.6.3 brgconv:avx512_core, 4 calls", or why none does or could; NULL: nothing stands in the way */
    bool packs;                         /* copies an operand for the kernel behind it */
    double seconds;                     /* median of the profiled runs; 0 when not measured */
} KernelEvidence;
typedef struct SegmentEvidence {
    int nkernel; const KernelEvidence *kernel;
    int ncarrier; const char *const *carrier;       /* of cascades: "carrier Softmax w: sum, rank 1, ..." */
    int nrefusal; const char *const *refusal;       /* "cannot fuse relu_3 (Relu) into conv_4 (Conv): reason" */
    int nrewrite; const char *const *rewrite;       /* "mul_one 3 times: a product with one" */
    int nidle; const char *const *idle;             /* rules of the user's file that were not applied: "mine 0 times: it needs --allow finite" */
    int nguard; const char *const *guard;           /* "batch == 1: broadcast" */
    const char *why;                    /* why it ends: NULL for the last one */
    const char *graph;                  /* a name for all its kernels */
    int launches;                       /* kernels of each run: without those run once, pieces of one join count as one */
    int64_t temp_bytes, const_bytes;    /* arena at the last bound sizes; results of kernels run once */
    double import_s, plan_s, print_s, build_s;
    BuildStats build;
} SegmentEvidence;
/* The model is borrowed and must outlive the program. Nothing is compiled before the first run or program_prepare. */
Program *program_new(Ctx *cx, const OnnxModel *m, const ProgramOptions *o);
void program_free(Program *p);
/* Compiles for these inputs, whatever ProgramOptions.ready says, without running the last segment (data may be NULL: sizes only; then models whose trace needs values raise INVALID). */
void program_prepare(Ctx *cx, Program *p, const Tensor *in);
/* Runs. in: borrowed, any strides. out[i].data NULL: allocated in a (dims set); else a dense buffer of out_bytes[i] bytes that the result must fit.
 * Thread-safe: several threads may run one program, each with its own cx and arena. */
void program_run(Ctx *cx, Program *p, Arena *a, const Tensor *in, Tensor *out, const size_t *out_bytes);
typedef struct RunStats { double device_s; int launches; } RunStats;
void program_profile(Ctx *cx, Program *p, const Tensor *in, int runs, RunStats *st);   /* fills seconds of the evidence; median of device time and launches */
int program_variants(Program *p);       /* compiled segments in all */
bool program_compiling(Program *p);     /* kernels are being compiled: runs go on without them */
const SegmentEvidence *program_evidence(Ctx *cx, Program *p, Arena *a, int *n);         /* of the segments of the last run, in order */
const char *program_describe(Program *p);           /* device, compiler, instruction set */
const char *program_compile_line(Program *p);

/* ---- segment.c: one graph, compiled ------------------------------------------------------------------------------------------------------------- */
typedef struct Segment Segment;
/* The device a segment is for: what it prints for and runs on. Shared by all segments of a program. ahead: kernels are only printed, but for those that run
 * once; without a device the interpreter computes what these would. */
typedef struct Target {
    const char *name; const Dialect *dialect; const DeviceApi *api; Device *device; const char *isa, *prelude; Vectors vectors; const RuleSet *rules; bool ahead;
    Records *records; const char *machine, *compiler;        /* tuned.c */
} Target;
/* target.c: by Options.target ("cpu", or another row of targets.def, which may have ":..." for the device behind it). The prelude lies in a. Raises INVALID for a
 * name that is none, and what the device's open says. */
void target_open(Ctx *cx, Arena *a, const Options *opt, Target *t);
void target_close(Target *t);
const RuleSet *target_rules(Ctx *cx, Arena *a, const Options *opt);      /* the table's and those of Options.rules; raises what is wrong with these, Options.allow or Options.off */
const Target *program_target_of(const Program *p);
typedef struct TargetInfo { const char *name; const Dialect *dialect; const DeviceApi *api; const char *text; } TargetInfo;
const TargetInfo *target_list(int *n);
typedef struct SwitchInfo { const char *name, *what, *text; } SwitchInfo;
const SwitchInfo *switch_list(int *n);                   /* what SN_OFF switches off: passes, fusions, rewriting rules */
/* Plans, prints and builds; runs what depends on constants only. The graph outlives the segment. */
Segment *segment_new(Ctx *cx, const Target *t, Graph *g, const ProgramOptions *o);
/* Rewrites the graph for a target where o says fuse, and plans it. rewrites: by rule, how often it was applied, added to; NULL when o does not say fuse. */
Plan *segment_plan(Ctx *cx, Arena *a, const Target *t, Graph *g, const ProgramOptions *o, int *rewrites);
void segment_free(Segment *s);
/* What runs without kernels may have put off: waits for none, but raises what stopped their compilation. After background_wait all are there. */
void segment_settle(Ctx *cx, Segment *s);
/* Does it serve these inputs? Dtypes, ranks, fixed sizes, guards. syms: g->sym.n values, filled when it does. */
bool segment_serves(Ctx *cx, Arena *scratch, const Segment *s, const Tensor *in, int64_t *syms, const char **why);
/* in: dense. out as in program_run. seconds: NULL, or one for each kernel. Thread-safe. */
void segment_run(Ctx *cx, Arena *a, Segment *s, const Tensor *in, const int64_t *syms, Tensor *out, const size_t *out_bytes, double *seconds);
/* Makes what a run for these sizes needs, so that the run finds it, and the evidence its sizes. */
void segment_prepare(Ctx *cx, Segment *s, const int64_t *syms);
int segment_kernels(const Segment *s);
int segment_outputs(const Segment *s);
int segment_symbols(const Segment *s);
void segment_evidence(Ctx *cx, Arena *a, Segment *s, const double *seconds, SegmentEvidence *e);

/* ---- aot.c: a model as a C file of its own ---------------------------------------------------------------------------------------------------------- */
typedef enum AotWeights { AOT_FILE, AOT_BIN, AOT_POINTER } AotWeights;       /* in the C file; beside it, linked in; beside it, given by the caller */
typedef struct AotRange { const char *name; int64_t lo; } AotRange;          /* a symbolic dimension that may be smaller than in the inputs: by name or INPUT:AXIS */
typedef struct AotOptions {
    const char *name;                   /* of the functions: an identifier */
    const char *isa;                    /* "plain" ... or "auto" */
    AotWeights weights; const char *bin;             /* bin: what the C file calls the file of weights */
    int threads;                        /* at most; 1: no hook */
    int nrange; const AotRange *range;
    const char *command;                /* how the file was made; for its head */
} AotOptions;
typedef struct AotPort { const char *name; DType dt; int rank; int64_t dims[MAX_RANK]; int64_t bytes; } AotPort;     /* dims below 0: ~ number of a size; of outputs: -1, a run says; bytes: at most */
typedef struct AotSize { const char *name; int64_t lo, hi; } AotSize;
typedef struct AotFiles {
    const char *source, *header;
    const uint8_t *weights; size_t nweights;
    int64_t workspace, arena;           /* bytes, for all threads; of intermediate results */
    int nin, nout, nsize; const AotPort *in, *out; const AotSize *size;
    int kernels;
    bool any_isa;                       /* runs on every processor of the machine's family: plain or auto */
} AotFiles;
/* Prints a model for the sizes of these arguments (data where shapes or branches depend on it; then the file serves these values only). All in a. Raises
 * UNSUPPORTED with the operator's name for what has no form in C. */
void aot_compile(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *args, const AotOptions *o, AotFiles *out);

/* aot_file.c: writes path (.c, .o, .so or .sinter) and what belongs beside it. isa NULL: plain for source, else this machine's. */
typedef struct AotExport { const char *path, *isa; AotWeights weights; int threads, nrange; const AotRange *range; const char *command; } AotExport;
void aot_export(Ctx *cx, Arena *a, const OnnxModel *m, const Tensor *args, const AotExport *e, AotFiles *f);

/* ---- package.c: a compiled model in one file -------------------------------------------------------------------------------------------------------- */
typedef struct Package Package;
void package_write(Ctx *cx, Arena *a, const AotExport *e, const AotFiles *f, const char *isa, const char *shared_object, const char *bin);       /* bin: the file beside it that has the weights; NULL: they are inside */
bool package_is(const char *path);      /* is it named .sinter, or does it begin like one? */
/* Refuses what another version made, another processor's, and a file of which a bit is not as it was written. */
Package *package_open(Ctx *cx, const char *path, int threads);
void package_close(Package *p);         /* NULL is fine */
const OnnxModel *package_model(const Package *p);            /* its inputs and outputs, in the form of a model without operators */
/* As program_run. Thread-safe. */
void package_run(Ctx *cx, Package *p, Arena *a, const Tensor *in, Tensor *out, const size_t *out_bytes);

/* ---- tuned.c: what tuning found, applied ------------------------------------------------------------------------------------------------------------- */
char *tuned_path(Arena *a, const Options *opt);              /* of the records; NULL: there are to be none */
void tuned_name(Arena *a, Target *t);                        /* machine and compiler */
void tuned_open(Ctx *cx, Arena *a, Target *t, const Options *opt);
LoopKernel *tuned_lower(Ctx *cx, Segment *s, const Subgraph *sub, const char **structure);     /* structure NULL: the printed name */
char *tuned_graph(Arena *a, const Segment *s);
char *tuned_choice(Arena *a, const Target *t, const Sched *s);          /* as a record has it; with the library's version where it is one */
const char *tuned_cut(Ctx *cx, Segment *s);                  /* "unfused", "off=RULE"; NULL: as planned */

/* ---- background.c: kernels compiled while runs go on without them ------------------------------------------------------------------------------------ */
typedef struct Background Background;
Background *background_new(Arena *a);
void background_free(Background *b);                         /* stops what is being compiled. Before the segments are freed */
void background_add(Background *b, Segment *s);
void background_drop(Background *b, Segment *s);             /* before a segment is freed that may still be waiting */
bool background_busy(Background *b);
void background_wait(Ctx *cx, Background *b);                /* until nothing is left to compile */

/* ---- explain.c: evidence as a report ---------------------------------------------------------------------------------------------------------- */
typedef struct ExplainOptions { bool why, source; const char *kernel; } ExplainOptions;     /* source: of all kernels, or the one whose name begins so */
void explain_text(Ctx *cx, Text *t, Program *p, const ExplainOptions *o);
struct json_t *explain_json(Ctx *cx, Arena *a, Program *p, const ExplainOptions *o);         /* the caller's; NULL without memory */
typedef struct EvidenceSum {            /* over the segments of a run, without kernels that ran once when the program was made */
    int kernels;                        /* launches */
    int ops, covered_ops;               /* the model's operators; those of which all is done by generated kernels */
    int64_t read_bytes, write_bytes, temp_peak, const_bytes;
    double seconds, covered_seconds;    /* measured; of generated kernels */
} EvidenceSum;
EvidenceSum evidence_sum(Arena *a, int n, const SegmentEvidence *e);
char *bytes_str(Arena *a, int64_t n);   /* "12.3 MB" */

/* ---- sinter.c, graphcall.c: the public functions ------------------------------------------------------------------------------------------------ */
typedef struct MetaPair { const char *key, *value; } MetaPair;
struct sn_model { OnnxModel *m; const OnnxValue **in; int nin, nmeta; MetaPair *meta; };     /* in the OnnxModel's arena */
struct sn_program {
    Arena *arena;
    Program *program;                   /* NULL when interpreted */
    Package *package;                   /* of sn_program_load: then model is what the package says about itself */
    const sn_model *model;
    Options opt;
    volatile int *cancel;
};
void ctx_of(Ctx *cx, const sn_program *p);
void api_need(Ctx *cx, const void *p, const char *what);      /* INVALID when p is NULL */
/* buffer.c: tensors of a run that lie in buffers. output: where a result is to go (result, bytes), for a run; finish: copies it if it is not there. */
Tensor buffer_input(Ctx *cx, Arena *a, const sn_program *p, const sn_tensor *s, const char *name);
void buffer_output(Ctx *cx, const sn_program *p, const sn_tensor *s, const char *name, int nin, const Tensor *in, Tensor *result, size_t *bytes);
void buffer_finish(Ctx *cx, const sn_tensor *s, const char *name, const Tensor *result);
/* Results that a run allocated on the device (Tensor.make_far): as a buffer, or freed. */
sn_buffer *buffer_adopt(Ctx *cx, sn_program *p, Tensor *result);
void buffer_drop(const sn_program *p, Tensor *result);
void ctx_quiet(Ctx *cx);              /* no look at the environment */
sn_model *model_wrap(OnnxModel *m);
sn_status api_report(const Ctx *cx, Status st, sn_error *err);
Tensor tensor_of_public(Ctx *cx, const sn_tensor *s, const char *what, const char *name);     /* checked; borrows the data */
void tensor_copy_to(const Tensor *src, void *to, const int64_t *stride);                      /* stride NULL: row-major */
const OnnxValue **model_inputs(Arena *a, const OnnxModel *m, int *n);                         /* the main graph's inputs that are no initialisers */
#endif
