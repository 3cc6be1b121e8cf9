/* tune: schedules to try, what is expected of them, and what was found. Sees kernels, not models: who runs them is above. */
#ifndef SN_TUNE_H
#define SN_TUNE_H
#include "base/base.h"
#include "gen/gen.h"
#include "kir/kir.h"

/* ---- features.c: a scheduled kernel as numbers, from features.def ------------------------------------------------------------------------------ */
enum {
#define FEATURE(name, value, text) FEATURE_##name,
#include "tune/features.def"
#undef FEATURE
    FEATURES };
typedef struct Features { float x[FEATURES]; } Features;
Features kernel_features(const LoopKernel *k);
enum { FEATURES_TEXT = 24 + 16 * FEATURES };
void features_text(char text[FEATURES_TEXT], const Features *f);        /* begins with a hash of features.def */
bool features_parse(const char *text, Features *f);      /* false: other features */

/* ---- model.c: the learned model of cost -------------------------------------------------------------------------------------------------------- */
/* A measured candidate. gain: log(its time / the time of the kernel with its own schedule), in turns with it. */
typedef struct Example { const char *kernel; Features own, it; float gain; } Example;
float example_gain(double ratio);         /* of a time by the kernel's own; within bounds, so that a disaster counts no more than a bad choice */
typedef struct CostModel CostModel;
enum { MODEL_LEAST = 48 };               /* examples from which on a model is worth having */
CostModel *model_new(Arena *a);
typedef struct Fitting Fitting;          /* memory for fitting, used again and again */
Fitting *fitting_new(Arena *a);
/* Anew; examples of that kernel count more (NULL: of none). false: there are too few. */
bool model_fit(CostModel *m, Fitting *f, int n, const Example *e, const char *kernel);
float model_gain(const CostModel *m, const Features *own, const Features *it);     /* expected */

/* ---- candidates.c: from sched.def -------------------------------------------------------------------------------------------------------- */
char *sched_text(Arena *a, const Sched *s);              /* "rows=6 vectors=2" */
bool sched_parse(const char *text, Sched *s);            /* false: another version's */
/* Sizes that schedules depend on, each to a power of two: records hold for all in one bucket. */
char *sched_bucket(Arena *a, const LoopKernel *k);

typedef struct Contender {
    Sched sched; Features features;
    uint64_t text;                       /* hash of what is printed for it: two with one hash are one */
    double cost;                         /* of the analytic model: they are listed in this order */
    double ratio;                        /* measured: its time by the kernel's own; 0: not yet, below 0: it failed */
} Contender;
/* A search for a schedule of one kernel. Its list of candidates begins with those of at most two knobs, in the order of an analytic model, and grows by changes
 * of the best ones found. */
typedef struct SchedSearch {
    Ctx *cx; Arena *arena; const LoopKernel *own; const Dialect *dialect; const char *isa; Vectors vectors;
    Features features; uint64_t text;    /* of the kernel's own schedule */
    VEC(Contender) list;
    uint64_t seed; int measured;
} SchedSearch;
/* own: a kernel that was lowered with its own choice; cx, arena and it outlive the search. */
SchedSearch *search_new(Ctx *cx, Arena *a, const LoopKernel *own, const Dialect *d, const char *isa, Vectors v);
/* The index of the next candidate to measure: by the model, or where that is NULL in the order of the list; -1: there is nothing left. */
int search_next(SchedSearch *s, const CostModel *m);
void search_tell(SchedSearch *s, int at, double ratio);       /* below 0: it failed */

/* ---- records.c: what was measured, in an SQLite file that processes share ------------------------------------------------------------------- */
typedef struct Records Records;
typedef struct RecordKey { const char *kernel, *bucket, *machine, *compiler; } RecordKey;    /* kernel: the name of its structure */
/* make: the file may be new; else NULL without one. Raises IO. Closed by records_close, also after a failure elsewhere. */
Records *records_open(Ctx *cx, const char *path, bool make);
void records_close(Records *r);                          /* NULL is fine */
char *records_get(Records *r, Arena *a, const RecordKey *k);         /* the choice, or NULL */
void records_put(Ctx *cx, Records *r, const RecordKey *k, const char *choice, double seconds, double before);
/* Every measured candidate, also those that were no faster: what the model learns from. A newer measurement replaces an older one. */
void trials_put(Ctx *cx, Records *r, const RecordKey *k, const char *choice, double seconds, double before, const Features *own, const Features *it);
/* Those of a machine and compiler, with the features of this version. Example.kernel: name and bucket. */
int trials_get(Ctx *cx, Records *r, Arena *a, const char *machine, const char *compiler, Example **out);
/* All records and trials as lines of tabs, and back: newer measurements of a key replace older ones. Gives their number. Raises IO, FORMAT. */
int records_export(Ctx *cx, Records *r, const char *path);
int records_import(Ctx *cx, Records *r, const char *path);
#endif
