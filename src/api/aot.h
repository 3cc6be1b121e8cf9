/* Between aot.c (tracing, files), aot_step.c (a segment as C), aot_call.c (calls and loops as C) and aot_print.c (header, tables, main): the making of a
 * C file from a model. */
#ifndef SN_AOT_H
#define SN_AOT_H
#include "api/segment.h"

/* A tensor between steps as the C text sees it: an expression for its address, its sizes as expressions with bounds. */
typedef struct AotValue {
    const char *ptr;
    DType dt; int rank;
    const char *dim[MAX_RANK];
    int64_t lo[MAX_RANK], hi[MAX_RANK];
    const Tensor *example;              /* as the trace met it; data may be NULL */
    bool pinned;                        /* of the main graph's inputs: where the program depends on its values they are those of the example */
} AotValue;

typedef struct AotStep {                /* one cut of a trace, or its end */
    struct AotStep *next;
    Graph *g;
    const Call *call; const int *call_in;
    const Tensor *in, *out;             /* as met: the segment's inputs; its outputs, then the call's results (NULL for the last step) */
    int64_t *most;                      /* the largest value of each symbol, where more than one run was met; or NULL */
    struct AotBody *body; int64_t trips;             /* of Loop and Scan; iterations of the longest run */
} AotStep;
/* One variant of a body: its steps for arguments like these. least, most: the sizes that arguments and results had, over all iterations. */
typedef struct AotBody { struct AotBody *next; AotStep *step; int narg, nresult; const Tensor *args, *result; int64_t (*least)[MAX_RANK], (*most)[MAX_RANK]; } AotBody;

typedef struct AotParam { const char *name, *var; int64_t lo, hi; } AotParam;     /* a size that the caller gives */
typedef struct AotKernel { struct AotKernel *next; const char *name, *text; Text ops; int nops; } AotKernel;
typedef struct AotBlob { uint8_t *at; size_t n, cap; HashSet known; } AotBlob;

typedef struct Aot {
    Ctx *cx; Arena *a;
    const OnnxModel *m; const AotOptions *o;
    const Tensor *args; int narg;
    const char *lower, *upper;          /* "net", "NET" */
    /* of the instruction set that is being printed */
    Target target; Helpers *helpers; const char *suffix;
    AotKernel *kernel, **last_kernel;
    Text *t; int indent;
    int64_t arena, keep, scratch;       /* bytes: of the largest step; that last; of one thread's scratch */
    int nvar;
    const char *miss;                   /* what to do where a guard does not hold */
    /* of all of them */
    VEC(AotParam) param;
    AotBlob weights;
    const char **in_name, **out_name;   /* as members of the structs */
    int (*in_dims)[MAX_RANK];           /* of each input's axes: 1 + number of the parameter, 0 for a fixed size */
    int64_t workspace; const AotFiles *ports;       /* for the header and the tables */
    AotValue *result;                   /* the model's outputs, as the last printed set has them */
    VEC(Segment *) segment;             /* to be freed */
    bool indexed;                       /* some kernel may find an index outside its axis */
} Aot;

/* aot.c */
void aot_line(Aot *x, const char *fmt, ...) PRINTF_LIKE(2, 3);
int64_t aot_weight(Aot *x, const void *data, size_t n);      /* the offset of these bytes among the weights */
int64_t aot_keep(Aot *x, int64_t bytes);                     /* the offset of memory that lasts, behind the arena */
const char *aot_identifier(Aot *x, const char *name, const char *prefix);
/* aot_step.c: prints a segment; in: its inputs. out: its outputs; those whose ptr is set are written there, for others ptr becomes memory that lasts. */
void aot_segment(Aot *x, const AotStep *step, const AotValue *in, AotValue *out);
AotValue *aot_steps(Aot *x, const AotStep *step, const AotValue *in, AotValue *last);        /* the steps one after the other; last: where the outputs go */
/* aot_call.c */
void aot_call(Aot *x, const char *what, const Call *call, const AotValue *in, AotValue *out);
void aot_host_call(Aot *x, const AotStep *s, const AotValue *in, AotValue *out);
const char *aot_call_text(Ctx *cx, Arena *a, const char *code);      /* what the calls printed into `code` need */
/* aot_print.c */
void aot_header(Aot *x, Text *t);
void aot_tail(Aot *x, Text *t);         /* what is behind #ifdef MODEL_MAIN and MODEL_CALL */
const char *aot_calls_source(void);     /* the functions behind aot_call and aot_host_call */
bool aot_varies(const AotValue *v);      /* its sizes are not all numbers */
const char *aot_ctype(DType dt);
const char *aot_comment(Aot *x, const char *s);          /* as it may stand in a comment */
int64_t aot_bytes(const AotValue *v);   /* at most; -1: too many */
#endif
