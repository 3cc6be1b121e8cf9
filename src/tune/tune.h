/* tune: schedules to try, and what was found. Sees kernels, not models: who runs them is above. */
#ifndef SN_TUNE_H
#define SN_TUNE_H
#include "base/base.h"
#include "kir/kir.h"

/* ---- candidates.c: from sched.def -------------------------------------------------------------------------------------------------------- */
/* Schedules for a kernel that was lowered with its own choice, the one that an analytic model expects most of first; without that choice itself. */
int sched_candidates(Arena *a, const LoopKernel *k, Sched **out);
char *sched_text(Arena *a, const Sched *s);              /* "rows=6 vectors=2" */
bool sched_parse(const char *text, Sched *s);            /* false: another version's */
/* Sizes that schedules depend on, each to a power of two: records hold for all in one bucket. */
char *sched_bucket(Arena *a, const LoopKernel *k);

/* ---- records.c: what was measured, in an SQLite file that processes share ------------------------------------------------------------------- */
typedef struct Records Records;
typedef struct RecordKey { const char *kernel, *bucket, *machine, *compiler; } RecordKey;    /* kernel: the name of its structure */
/* make: the file may be new; else NULL without one. Raises IO. Closed by records_close, also after a failure elsewhere. */
Records *records_open(Ctx *cx, const char *path, bool make);
void records_close(Records *r);                          /* NULL is fine */
char *records_get(Records *r, Arena *a, const RecordKey *k);         /* the choice, or NULL */
void records_put(Ctx *cx, Records *r, const RecordKey *k, const char *choice, double seconds, double before);
/* All records as lines of tabs, and back: newer measurements of a key replace older ones. Gives their number. Raises IO, FORMAT. */
int records_export(Ctx *cx, Records *r, const char *path);
int records_import(Ctx *cx, Records *r, const char *path);
#endif
