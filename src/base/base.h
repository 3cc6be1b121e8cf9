/* base: what any compiler needs. Memory, errors, text, options, element types, tensors, the machine.
 *
 * Errors in compiler code are raised: fail() jumps to the nearest guard_call(), so builders return results, not statuses.
 * Nothing in those folders holds a resource outside an arena (mapped files belong to objects made before the guard).
 * Code that holds handles (rt, sys.c) returns an int Status instead and cleans up with one `goto done` tail. */
#ifndef SN_BASE_H
#define SN_BASE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_RANK 16                     /* of a tensor, and of a kernel's iteration space */

/* ---- error.c ---------------------------------------------------------------------------------------------------- */
typedef enum Status {
#define ERR(name, value, text) E_##name = value,
#include "base/errors.def"
#undef ERR
} Status;
const char *status_name(Status s);      /* "INVALID" */

typedef struct Arena Arena;
typedef struct Note { struct Note *up; const char *what, *name, *kind; } Note;   /* lives on the C stack */

typedef struct Options {
#define OPT_int int
#define OPT_str const char *
#define OPT(name, type, value, text) OPT_##type name;
#include "base/options.def"
#undef OPT
} Options;

/* One context for each public call that compiles, loads or builds. Not shared between threads. */
typedef struct Ctx {
    Options opt;
    Note *notes;                        /* innermost first */
    jmp_buf *guard;                     /* NULL outside a guard: fail() then aborts with its message */
    Status code;
    char text[2048];                    /* the message of the last failure */
    volatile int *cancel;               /* set to non-zero from outside to stop; may be NULL */
    int allocs;                         /* arena allocations so far: opt.fail names the one that fails, from 1 */
} Ctx;

void ctx_init(Ctx *cx);                 /* options from the environment */
/* Raises: composes "net.onnx: node 'conv1' (Conv): <message>" from the notes, outermost first. */
_Noreturn void fail(Ctx *cx, Status code, const char *fmt, ...) PRINTF_LIKE(3, 4);
_Noreturn void fail_again(Ctx *cx);       /* raises what a guard_call returned, with its message */
/* Calls fn(cx, arg); a fail() inside ends it. Returns E_OK or the code; restores notes and the outer guard. */
Status guard_call(Ctx *cx, void (*fn)(Ctx *, void *), void *arg);
void ctx_poll(Ctx *cx);                 /* fails with CANCELLED if cx->cancel is set */
/* A note names what is being worked on while it is on the stack: note_push(cx, &n, "node", "conv1", "Conv"). */
static inline void note_push(Ctx *cx, Note *n, const char *what, const char *name, const char *kind)
{ n->up = cx->notes; n->what = what; n->name = name; n->kind = kind; cx->notes = n; }
static inline void note_pop(Ctx *cx) { cx->notes = cx->notes->up; }
/* Broken invariants are our bug: prints and aborts. */
#define ASSERT(c) ((c) ? (void)0 : assert_failed(#c, __FILE__, __LINE__))
_Noreturn void assert_failed(const char *cond, const char *file, int line);

/* ---- arena.c: the only caller of malloc -------------------------------------------------------------------------- */
Arena *arena_new(Ctx *cx);              /* raises NOMEM; cx is where later allocations from it raise (see arena_bind) */
void arena_free(Arena *a);              /* NULL is fine */
void arena_bind(Arena *a, Ctx *cx);     /* later failures raise in cx */
void *arena_alloc(Arena *a, size_t n);  /* 16-byte aligned, zeroed; raises NOMEM */
#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWS(a, T, n) ((T *)arena_alloc((a), size_mul((a), sizeof(T), (size_t)(n))))
size_t size_mul(Arena *a, size_t x, size_t y);           /* raises NOMEM on overflow */
void *arena_copy(Arena *a, const void *p, size_t n);
char *arena_str(Arena *a, const char *s);                /* copy of a string */
char *arena_fmt(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
size_t arena_used(const Arena *a);      /* bytes handed out */
/* Single blocks outside arenas, for big buffers with their own owner (64-byte aligned, not zeroed). NULL when there is no memory. */
void *block_alloc(size_t n);
void block_free(void *p);
/* A block that ends with the arena, unless arena_give makes it the caller's (block_free): true if p is such a block. Not zeroed; raises NOMEM. */
void *arena_block(Arena *a, size_t n);
bool arena_give(Arena *a, const void *p);

/* Growable array in an arena: `VEC(Node *) v = {0}; vec_push(a, &v, n);`. Old storage stays in the arena. */
#define VEC(T) struct { T *at; int n, cap; }
#define vec_push(a, v, x) (vec_grow((a), (void **)&(v)->at, (v)->n, &(v)->cap, sizeof *(v)->at), (v)->at[(v)->n++] = (x))
void vec_grow(Arena *a, void **at, int n, int *cap, size_t size);

/* ---- map.c: hash maps in an arena; keys are copied for MapStr -------------------------------------------------------- */
typedef struct MapStr MapStr;           /* string -> pointer */
MapStr *mapstr_new(Arena *a);
void **mapstr_at(MapStr *m, const char *key);            /* the slot, created as NULL when absent */
void *mapstr_get(const MapStr *m, const char *key);      /* NULL when absent */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);   /* xxHash64 */

/* ---- text.c -------------------------------------------------------------------------------------------------------- */
typedef struct Text { Arena *arena; char *at; size_t n, cap; } Text;     /* always 0-terminated once written to */
void text_add(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_put(Text *t, const char *s, size_t n);
/* The only printers of numbers into C source or JSON: shortest form that reads back the same; a C float literal of type f32 or f64
 * ("1.5f", "-INFINITY" is spelt (-__builtin_inff())). */
void text_float(Text *t, double v, bool is_f32);
const char *text_utf8(Arena *a, const char *s);           /* s; or, where it is no UTF-8, a copy in which bytes that are none stand as \xFF */
bool list_has(const char *comma_list, const char *word); /* NULL list: false */

/* ---- rows.c: tables in files: NAME( field, "field", ... ) ------------------------------------------------------------ */
enum { ROW_FIELDS = 8 };
typedef struct FileRow { const char *name; int n, line; const char *field[ROW_FIELDS]; } FileRow;
int rows_read(Ctx *cx, Arena *a, const char *path, FileRow **out);       /* their number; raises FORMAT or IO, with the line */

/* ---- option.c ------------------------------------------------------------------------------------------------------ */
void options_default(Options *o);       /* from options.def, then the environment */
const char *env_get(const char *name);  /* for HOME, PATH and the like; the only getenv */

/* ---- log.c --------------------------------------------------------------------------------------------------------- */
void log_line(const Ctx *cx, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);     /* to stderr when opt.debug >= level */

/* ---- dtype.c ------------------------------------------------------------------------------------------------------- */
typedef enum DType { DT_none,
#define DTYPE(name, onnx, class, bytes, compute, numpy, ctype) DT_##name,
#include "base/dtypes.def"
#undef DTYPE
    DT_COUNT } DType;
typedef struct DTypeInfo { const char *name, *numpy, *ctype; int onnx, bytes; char class; DType compute; } DTypeInfo;
extern const DTypeInfo dtype_info[DT_COUNT];
DType dtype_from_onnx(int code);        /* DT_none when unknown (string, complex) */
DType dtype_from_name(const char *s);
static inline bool dtype_is_float(DType t) { return dtype_info[t].class == 'F'; }
static inline bool dtype_is_int(DType t) { return dtype_info[t].class == 'S' || dtype_info[t].class == 'U'; }
static inline size_t dtype_size(DType t) { return (size_t)dtype_info[t].bytes; }
int dtype_bits(DType t);                /* 4 for i4, u4 and f4e2m1, 2 for i2 and u2, else 8 * bytes: the size in a file */

/* ---- isa.c --------------------------------------------------------------------------------------------------------- */
/* What one instruction multiplies and adds: four bytes in int32, two bfloat16 in float32; or whole tiles of such. */
enum { DOT_quads = 1, DOT_pairs = 2, DOT_tiles = 4 };
typedef struct IsaInfo { const char *name, *machine, *features, *macros; int level, lanes, dots; } IsaInfo;      /* a row of isas.def */
const IsaInfo *isa_list(int *n);
const IsaInfo *isa_find(const char *name);               /* NULL when there is none of this name */
bool isa_within(const IsaInfo *x, const IsaInfo *of);    /* a processor that has `of` has x */

/* One scalar of any dtype. Floats live in f, integers and bool in i (u64 as its bit pattern). */
typedef union Scalar { double f; int64_t i; uint64_t u; } Scalar;
Scalar scalar_load(DType t, const void *p);
void scalar_store(DType t, void *p, Scalar v);           /* rounds to nearest even / wraps to the dtype */
/* Rounds or wraps a value to what the dtype can hold. f8 and f4 overflow saturates when `saturate`, else becomes inf or NaN as ONNX's Cast says. */
Scalar scalar_round(DType t, Scalar v, bool saturate);
/* Cast as generated kernels do it. Float to integer truncates toward zero; NaN gives 0, values outside saturate
 * to the bounds of i64 (u64 for u64) and then wrap to the dtype. Any to bool: v != 0 (NaN is true). */
Scalar scalar_cast(DType to, DType from, Scalar v, bool saturate);
Scalar scalar_min(DType t);             /* lowest value; -inf for floats (largest finite negative where the dtype has no inf) */
Scalar scalar_max(DType t);

/* ---- tensor.c ------------------------------------------------------------------------------------------------------ */
typedef struct Tensor {
    DType dt;
    int rank;
    int64_t dims[MAX_RANK];
    int64_t strides[MAX_RANK];          /* in elements; set by tensor_init to row-major */
    void *data;                         /* borrowed; any alignment */
    void *far;                          /* row-major, in the memory of the device that it is for, or NULL; then data may be NULL */
    bool make_far;                      /* of a result: memory there is to be allocated for it, which is the caller's */
} Tensor;
/* Sets dt, dims and row-major strides; data NULL. Raises INVALID when rank or the byte size is out of range. */
void tensor_init(Ctx *cx, Tensor *t, DType dt, int rank, const int64_t *dims);
int64_t tensor_count(const Tensor *t);
size_t tensor_bytes(const Tensor *t);
void *tensor_at(const Tensor *t, int64_t j);             /* address of element j in row-major order, whatever the strides */
bool tensor_dense(const Tensor *t);     /* row-major without gaps */
Tensor *tensor_new(Arena *a, Ctx *cx, DType dt, int rank, const int64_t *dims);   /* data in the arena, zeroed */
char *shape_str(Arena *a, int rank, const int64_t *dims);                         /* "[2,3]" */

/* ---- sys.c: files, time, processes, threads' count; the only user of such calls outside rt ------------------------------ */
typedef struct File { const uint8_t *data; size_t size; void *map; } File;
Status file_map(const char *path, File *f, char *why, size_t nwhy);   /* read-only, private mapping; why: the system's reason */
void file_unmap(File *f);
/* Writes a temporary file beside path and renames it: a reader sees the old or the new file, never a part. */
Status file_write(const char *path, const void *data, size_t n, char *why, size_t nwhy);
char *path_join(Arena *a, const char *dir, const char *name);
char *path_dir(Arena *a, const char *path);              /* "." when there is none */
char *path_real(Arena *a, const char *path);             /* absolute, links resolved; NULL when there is no such file */
double time_now(void);                  /* seconds, monotonic */
int cpu_count(void);                    /* by affinity mask and cgroup limit, at least 1 */
uint64_t float_flush(void);             /* from here on numbers below the normal ones are 0 in this thread, what is read and what comes out; returns the mode before */
void float_mode(uint64_t mode);         /* puts it back */
bool cpu_splits_vectors(void);          /* Do vectors of 512 bits pass through units of 256, two to each of them? */
void memory_huge(void *p, size_t n);    /* large pages for what lies wholly in there, where the system gives such */
int64_t memory_total(void);             /* bytes; by cgroup limit where there is one */
#endif
