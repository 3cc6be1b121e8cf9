/* rt: devices. Builds kernel texts, owns memory, launches and times. Knows no IR: it gets source text,
 * sizes and launch lists. Functions return a Status (0 is OK) and fill an RtError; they never raise, so
 * that handles can be released on one tail. */
#ifndef SN_RT_H
#define SN_RT_H
#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct RtError {
    Status code; char text[1024];
    int launch;                         /* of a data error: Launch.id; else -1 */
    int64_t site, value, limit;         /* of a data error: the words that the kernel stored */
} RtError;
/* Fills e (may be NULL), returns code; proc.c. */
Status rt_fail(RtError *e, Status code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* ---- a kernel's calling convention (CPU) ----------------------------------------------------------------
 * void NAME(void *const *buf, const int64_t *arg, void *scratch, int64_t lo, int64_t hi, int64_t *err)
 *   buf      the buffers, in the order of the kernel's parameter list;    arg: sizes and strides
 *   scratch  private to the calling thread, 64-byte aligned, at least Launch.scratch bytes
 *   lo, hi   the half-open part of the parallel index [0, total) to compute
 *   err      4 words; on a data error (index outside its axis) the kernel stores {1, site, value, limit} and goes on safely; a library's call that fails,
 *            {2, its status, 0, 0} */
typedef void (*KernelFn)(void *const *buf, const int64_t *arg, void *scratch, int64_t lo, int64_t hi, int64_t *err);

/* ---- a kernel's calling convention (GPUs) ----------------------------------------------------------------
 * Groups of Launch.threads threads take `each` points of [0, total) at a time, and go on by the number of groups: any number of groups is right.
 * Parameters, 8 bytes each, in this order:
 *   the buffers (OpenCL: memory object, then byte offset), the numbers, total,
 *   scratch: Launch.scratch bytes for each group, one after the other; NULL when there are none,
 *   err: 4 words as above (OpenCL: object, then byte offset), all 0 before the list runs,
 *   OpenCL only, when Launch.local > 0: so many bytes of local memory (CUDA: dynamic shared memory). */

/* One function. key: hash of text (0: computed); cost: relative compile effort; quick: the compiler is to move little about (Toolchain.quick); note: NULL, or gets a
 * line for the report (registers, shared memory ...), owned by the device. */
typedef struct KernelText { const char *name, *text; uint64_t key; double cost; bool quick; const char **note; } KernelText;
typedef struct Kernel Kernel;           /* a built kernel; owned by its device's cache until device close */

typedef struct Launch {
    const Kernel *kernel;
    void (*host)(void *arg, RtError *e); void *host_arg;   /* instead of a kernel: a function on the caller's thread */
    void **buf; const int64_t *arg;
    int nbuf, narg;
    int64_t total;                      /* parallel index range; 0: nothing to do */
    int64_t grain;                      /* CPU: least part worth a hand-over to another thread; >= total: run on the caller's thread. An estimate: */
    struct Pace *pace;                  /* CPU: NULL, or how long it was seen to take, by which the device then chooses parts; one run at a time may use it */
    size_t scratch;                     /* bytes for each thread; GPU: for each group */
    size_t common;                      /* CUDA: bytes of scratch that all groups share, instead; 0 before the launch */
    int64_t each; int threads;          /* GPU: points that a group takes at a time; threads of a group */
    bool resident;                      /* GPU: no more groups than run at once: they keep something between turns */
    int cluster;                        /* CUDA: > 1, blocks of `threads` that are one group together */
    size_t local;                       /* GPU: bytes of local memory whose size is known at launch only */
    bool checks;                        /* may report a data error */
    int id;                             /* reported back in errors */
} Launch;

typedef struct Pace { int runs; double each, shared, alone; } Pace;   /* so far; seconds of the fastest for one of `total` on a thread, of all in parts, of all on one thread */

typedef struct BuildStats { int asked, unique, from_memory, from_disk, compiled, processes, missing; double seconds; } BuildStats;

/* ---- struct Device: one for each target; dev_cpu.c. All fields are needed unless marked (optional) ------ */
typedef struct Device Device;
typedef struct DeviceApi {
    const char *name;
    bool host_memory;                   /* alloc gives addresses of the host: nothing is staged */
    bool addresses;                     /* what alloc gives is an address to others as well, and memory that they allocated may be used */
    int place;                          /* what kind of device its memory is of, as DLPack numbers them (DLDeviceType): 1 the host, 2 CUDA, 4 OpenCL, 12 others */
    int (*number)(Device *d);           /* (optional) which one of that kind; 0 without it */
    /* (optional) From now on all that the device does comes after what others have given a stream of theirs so far, and its default stream (NULL) at any time before. */
    Status (*follow)(Device *d, void *stream, RtError *e);
    Status (*open)(Device **out, const Options *opt, RtError *e);
    void (*close)(Device *d);
    const char *(*describe)(Device *d);                     /* "AMD EPYC, 2 threads, avx512, cc 12.2.0" */
    const char *(*isa)(Device *d);                          /* what kernels and prelude are to be printed for */
    const char *(*command)(Device *d);                      /* the compiler line */
    Status (*alloc)(Device *d, size_t n, void **out, RtError *e);        /* at least 64-byte aligned; refuses more than the memory there is, with the figure */
    void (*release)(Device *d, void *p);
    /* Addresses of the device may be added to. write and read are done when they return, and come after all that ran before. */
    Status (*write)(Device *d, void *dst, const void *src, size_t n, RtError *e);
    Status (*read)(Device *d, void *dst, const void *src, size_t n, RtError *e);
    /* Builds (or finds in memory or on disk) kernels; what they need of `prelude` precedes each translation unit. out: one for each text. Thread-safe. */
    Status (*build)(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, volatile int *cancel, RtError *e);
    /* (optional) The same without compiling: a kernel that is not there yet is NULL and counts as missing. */
    Status (*find)(Device *d, const char *prelude, int n, const KernelText *k, const Kernel **out, BuildStats *stats, RtError *e);
    /* Runs the list in order; returns when all is done. seconds: NULL or one device time for each launch. threads: at most so many; 0: all. cancel: looked at
     * between launches and between parts of them (CANCELLED); NULL: never. Thread-safe: when the pool is busy with another caller's list, this one runs
     * on its own thread. */
    Status (*run)(Device *d, int n, const Launch *list, int threads, volatile int *cancel, double *seconds, RtError *e);
    /* (optional) The library for contractions, opened when it is asked for first; NULL with a reason. The device's own. Thread-safe. */
    struct Lib *(*lib)(Device *d, char *why, size_t nwhy);
} DeviceApi;
extern const DeviceApi dev_cpu, dev_cuda, dev_opencl, dev_null;       /* null: memory apart, builds and runs nothing */

/* ---- pool.c: threads for the CPU device -----------------------------------------------------------------
 * Workers spin briefly while a list runs, then sleep; none spins when idle. Chunks are taken from an atomic
 * counter; the caller takes part and never waits for a chunk that nobody took. After fork() the child makes
 * its threads anew. Falls back to the caller's thread when threads cannot be made. */
typedef struct Pool Pool;
Pool *pool_new(int threads);            /* total including the caller; NULL when out of memory */
void pool_free(Pool *p);
/* Calls fn(arg, lo, hi, slot) over [0, total) in parts of about `grain` or more; slot < threads is unique
 * among concurrent calls. */
void pool_run(Pool *p, int threads, int64_t total, int64_t grain, void (*fn)(void *arg, int64_t lo, int64_t hi, int slot), void *arg);
/* Seconds from handing two parts to the pool until a worker has taken one and both are done, measured when the workers are made: a worker that watches for
 * work, and one that sleeps. */
typedef struct PoolCost { double awake, asleep; } PoolCost;
PoolCost pool_cost(const Pool *p);      /* by the owner */
bool pool_rests(const Pool *p);         /* by the owner: all workers sleep, and the last list did not end just now */
bool pool_enter(Pool *p);               /* try to own the pool for a list of launches (keeps workers awake); false: busy, run serially */
void pool_leave(Pool *p);

/* ---- proc.c: compiler processes -------------------------------------------------------------------------
 * Started without a shell, in a process group of their own, messages in English, stdin empty. */
typedef struct Proc {
    const char *const *argv;            /* NULL-terminated; argv[0] is a path */
    char out[8192];                     /* beginning of stdout and stderr, 0-terminated */
    int status;                         /* exit status; 128 + signal; -1: not started or stopped */
    int pid, fd; size_t nout; double start;      /* of proc_run */
} Proc;
/* Runs them, `jobs` at once. When one fails, when *cancel is set, or when one takes longer than `limit`
 * seconds, all are killed and waited for. tmp: folder for their temporary files, or NULL. Returns COMPILE
 * (see status), CANCELLED, TIMEOUT, NOMEM. */
bool thread_start(pthread_t *t, void *(*fn)(void *), void *arg);        /* false: there is none to be had */
bool proc_cancelled(volatile int *cancel);               /* set by another thread or a signal; NULL: never */
Status proc_run(Proc *p, int n, int jobs, double limit, const char *tmp, volatile int *cancel, RtError *e);

/* ---- cache.c: the folder of compiled kernels ------------------------------------------------------------
 *   <key of unit>.so              the shared object, written under a temporary name and renamed; a trailer holds
 *                                 its size and hash
 *   k-<key of kernel>             a symbolic link to the unit that holds it, made after it
 *   cc-<key of compiler file>     first line of `cc --version`, so that a warm start runs no compiler
 *   tmp-<pid>-<n>/                work of a build; what a killed process left is removed after an hour
 * Shared by many processes without locks, survives a kill at any moment. A missing, read-only or full
 * folder only means that nothing is remembered. */
#define CACHE_PATH 4096
typedef struct Cache { char dir[CACHE_PATH - 256]; bool on; int64_t limit; } Cache;
void cache_open(Cache *c, const Options *opt);           /* makes the folder; on: it can be read */
bool cache_unit(const Cache *c, uint64_t kernel, uint64_t *unit);       /* the unit that holds a kernel */
/* Is the unit there and whole? A broken one is removed. */
bool cache_check(const Cache *c, uint64_t unit, char path[CACHE_PATH]);
bool cache_store(const Cache *c, const char *so, uint64_t unit);        /* moves a finished object into the folder */
bool cache_link(const Cache *c, const char *work, uint64_t kernel, uint64_t unit);
void cache_trim(const Cache *c);        /* removes units past the limit, the least recently used first; stale work */
/* A new folder for work: in the cache, or private when that cannot be or `apart` is asked. false: no folder
 * can be written (why is filled). */
bool work_make(const Cache *c, bool apart, char path[CACHE_PATH], char *why, size_t nwhy);
void work_remove(const char *path);     /* with its files */

/* ---- build.c: kernel texts to functions -----------------------------------------------------------------
 * One translation unit for each processor, balanced by cost; kernels already in memory or on disk are not
 * compiled. The key of a kernel is a hash of text, prelude, compiler identity and flags (which name the
 * processor's features), version and KERNEL_ABI. */
#define KERNEL_ABI "1"                  /* raise when the meaning of KernelFn changes */
typedef struct Builder Builder;
/* A compiler that is not the C compiler, and how what it makes becomes functions. Its command is `program flag... -o UNIT SOURCE`; `program --version`
 * says who it is. load and symbol return NULL when they fail; their results are opaque to the builder, which calls unload for each unit in the end. */
typedef struct Toolchain {
    const char *program, *missing;      /* NULL: there is none; missing says what is not there */
    const char *const *flag; int nflag; /* borrowed while the builder lives */
    const char *quick;                  /* a further flag for kernels of which that is asked, or NULL */
    void *of;                           /* handed to the functions */
    void *(*load)(void *of, const char *path, char *why, size_t nwhy);
    void *(*symbol)(void *of, void *unit, const char *name);
    void (*unload)(void *of, void *unit);
} Toolchain;
/* compiler.c: a builder's compiler. After compiler_need() the call is argv, "-o", unit, source, libs. */
enum { MAX_WORDS = 96 };
typedef struct Compiler {
    const Toolchain *tools;             /* NULL: the C compiler */
    const Cache *cache;                 /* remembers its version; NULL where compiler_need() is not called */
    double seconds;                     /* that it may take */
    const IsaInfo *isa;                 /* of the C compiler: what kernels are compiled for */
    char want[CACHE_PATH];              /* Options.cc or "" */
    bool resolved;                      /* the rest is known: */
    Status status; char why[512];
    char path[CACHE_PATH], text[256], command[2048];     /* text: who it says it is */
    char words[CACHE_PATH];             /* storage of a compiler given with arguments */
    const char *argv[MAX_WORDS], *libs[8]; int nargv, nlibs;
    const char *quick;                  /* a further flag for kernels of which that is asked, or NULL */
    uint64_t identity;                  /* hash of compiler, flags, version and KERNEL_ABI */
} Compiler;
/* tools and cache are borrowed. INVALID for options that cannot be, DEVICE for an instruction set that this processor has not. */
Status compiler_open(Compiler *c, const Options *opt, const Toolchain *tools, const Cache *cache, RtError *e);
Status compiler_need(Compiler *c, RtError *e);           /* finds it at the first need and remembers the outcome; one thread at a time */
/* Runs the C compiler once with these arguments; paths are absolute. COMPILE with what it said. */
Status compiler_run(const Options *opt, int n, const char *const *arg, volatile int *cancel, RtError *e);
/* tools: NULL for the C compiler and the loader of shared objects; else borrowed while the builder lives. */
Status builder_open(Builder **out, const Options *opt, const Toolchain *tools, RtError *e);
void builder_close(Builder *b);
const char *builder_isa(Builder *b);    /* a row of isas.def: what the prelude and kernels are to be printed for */
const char *builder_compiler(Builder *b, RtError *e);      /* "cc (Debian 12.2.0-14) 12.2.0"; NULL when there is none (COMPILE, with what to install) */
const char *builder_command(Builder *b);                   /* the compiler line, for readers of generated source */
char *prelude_needed(const char *prelude, int n, const KernelText *const *k);    /* what n kernels need of it, for block_free(); NULL: no memory */
Status builder_build(Builder *b, const char *prelude, int n, const KernelText *k, KernelFn *out, BuildStats *stats, volatile int *cancel, RtError *e);
Status builder_find(Builder *b, const char *prelude, int n, const KernelText *k, KernelFn *out, BuildStats *stats, RtError *e);       /* compiles nothing: NULL for what is missing */

/* ---- worker.c, opencl.c: compilers of devices ---------------------------------------------------------------------------------------------- */
bool worker_find(const char *name, char path[CACHE_PATH]);              /* a program of ours that compiles; false: it is nowhere */
/* OpenCL's loader library, by name, and its devices. false: why says what is not there. */
typedef struct ClApi {
    void *library;
#define CL(result, name, args) result (*name) args;
#include "rt/opencl.def"
#undef CL
} ClApi;
bool opencl_load(ClApi *cl, char *why, size_t nwhy);
bool opencl_device(const ClApi *cl, uint32_t want, void **id, char *why, size_t nwhy);  /* the want-th of all platforms' */
const char *opencl_error(int32_t st);

/* ---- nvrtc.c: the builder's toolchain for CUDA ------------------------------------------------------------- */
typedef struct Nvrtc Nvrtc;
/* arch: "sm_90a". A worker or library that is not there is reported when something is to be compiled. */
Status nvrtc_open(Nvrtc **out, const Options *opt, const char *arch, RtError *e);
void nvrtc_close(Nvrtc *v);             /* NULL is fine */
const Toolchain *nvrtc_tools(const Nvrtc *v);            /* without load, symbol and unload */
/* A unit is a cubin with the compiler's log behind it: the log, 0-terminated if the unit is; NULL when there is none. */
const char *nvrtc_log(const char *unit, size_t n);
typedef struct KernelFacts { int registers, stack, spill_stores, spill_loads, shared; } KernelFacts;   /* bytes; stack: local memory of a thread */
bool nvrtc_facts(const char *log, const char *name, KernelFacts *f);
/* Loads a shared object and finds a function in it. DEVICE when the system refuses, FORMAT when there is no such function. */
Status object_open(const char *path, const char *symbol, void **handle, void **fn, RtError *e);
void object_close(void *handle);       /* NULL is fine */

/* ---- cuda.c, cuda_run.c: one NVIDIA card, for dev_cuda.c --------------------------------------------------------------------------------------- */
/* The driver's library. */
typedef struct CudaApi {
    void *lib;
#define CU(name, symbol, args) int(*name) args;
#include "rt/cuda.def"
#undef CU
} CudaApi;
/* What a Kernel is to this device. */
typedef struct CudaKernel {
    struct CudaKernel *next;
    void *function;
    KernelFacts facts;
    char note[192];
    int shared_set;                     /* the most dynamic shared memory asked for so far */
    int threads, local, occupancy;      /* of the last question; threads 0: none yet */
} CudaKernel;
enum { CUDA_ROOMS = 16 };
typedef struct CudaRoom { uint64_t at; size_t n; bool free; } CudaRoom;       /* a block of memory, in use or free for the next who wants as much; at 0: none */
typedef struct CudaCard {
    CudaApi cu;
    bool there;                         /* false: only arch is known */
    int device, index, multiprocessors, shared_most, driver;
    void *context;
    char arch[32], name[128];           /* "sm_90a" */
    bool graphs;                        /* launches are recorded and replayed */
    pthread_mutex_t lock;               /* over lanes, rooms, lost and the kernels' questions */
    struct CudaLane *free_lanes;
    CudaRoom room[CUDA_ROOMS];
    atomic_bool others;                 /* others work with this memory too, in the default stream: so do lanes */
    bool lost; char why[512];
} CudaCard;
/* A call of the driver in a function that has d, e, st and the label done. */
#define CUDA_CHECK(call, what) do { int code_ = d->cu.call; if (code_) { st = card_fail(d, e, code_, what); goto done; } } while (0)
enum { CU_EVENT_QUIET = 2 };
Status card_open(CudaCard *d, RtError *e);               /* the index-th card: loads the driver, takes its context */
void card_clear(CudaCard *d);                            /* drops streams, recorded launches, memory that was kept; nothing may run. Before its modules are unloaded; then: */
void card_close(CudaCard *d);
Status card_fail(CudaCard *d, RtError *e, int code, const char *what);   /* what the driver says; after some codes the card is lost to this process */
/* Makes the card's context the thread's; every enter that succeeds is followed by a leave. */
Status card_enter(CudaCard *d, RtError *e);
void card_leave(CudaCard *d);
/* New memory, in the card's context; of: NULL, or gets the bytes that the card has. NOMEM with the figure. */
Status card_memory(CudaCard *d, size_t n, uint64_t *at, size_t *of, RtError *e);
Status card_alloc(CudaCard *d, size_t n, void **out, RtError *e);        /* as of DeviceApi; and so are: */
void card_release(CudaCard *d, void *p);
Status card_copy(CudaCard *d, uint64_t dev, char *to, const char *from, size_t n, RtError *e);         /* from the card (to) or to it (from) */
Status card_run(CudaCard *d, int n, const Launch *list, volatile int *cancel, double *seconds, RtError *e);
Status card_follow(CudaCard *d, void *stream, RtError *e);
void card_lanes_drop(CudaCard *d);                       /* of card_clear() */

/* ---- lib_dnnl.c: contractions in oneDNN, if the machine has it ----------------------------------------------------------------------
 * libdnnl is looked for when the first contraction asks for it. Its own threads are not used: a contraction is cut into calls by sizes alone, which the
 * pool hands out as it does the parts of a kernel; so results do not depend on threads, and fork() is as safe as with the pool. float32 only. */
typedef struct Lib Lib;
/* name: a path, or NULL for the libraries that the loader finds. NULL with a reason when there is none that can be used. */
Lib *lib_open(const char *name, char *why, size_t nwhy);
void lib_close(Lib *l);                 /* after all LibRuns; NULL is fine */
const char *lib_version(const Lib *l);  /* "oneDNN 2.6.3" */
typedef enum LibRole { LIB_row, LIB_col, LIB_both, LIB_sum } LibRole;   /* of an axis: kept, known to src alone, to weights alone, to both; or summed over */
typedef enum LibStepKind { LIB_add, LIB_sub, LIB_mul, LIB_clip, LIB_tanh, LIB_sigmoid, LIB_gelu } LibStepKind;
enum { LIB_AXES = 12, LIB_STEPS = 8, LIB_ADDENDS = 4, LIB_SRC = 0, LIB_WEIGHTS, LIB_DST, LIB_ADDEND, LIB_OPERANDS = LIB_ADDEND + LIB_ADDENDS };
/* One axis: its length and, by operand, how many elements further its next place lies. A row whose places are those of a source axis of `size` places: place p of
 * it and q of the sum `window` (an axis' number, or -1) read step * p + dilation * q - pad; padded: that may be outside of [0, size), and is 0 there. size 0: there
 * is no such axis; step is 1 then. */
typedef struct LibAxis { LibRole role; int64_t extent, at[LIB_OPERANDS]; int window; bool padded; int64_t step, dilation, pad, size; } LibAxis;
typedef struct LibStep { LibStepKind kind; int addend; float lo, hi; } LibStep;      /* what is done to the sum, in this order; clip keeps NaN */
/* slot: in a launch's buf. known: its bytes, if they never change; then weights are laid out once. at: elements from there to where all axes are at 0. */
typedef struct LibOperand { int slot; const void *known; int64_t at; } LibOperand;
typedef struct LibOp {
    int naxis; LibAxis axis[LIB_AXES];
    LibOperand operand[LIB_OPERANDS]; int naddend;
    int nstep; LibStep step[LIB_STEPS];
    int parts;                          /* calls wanted, roughly */
    bool window;                        /* a convolution is wanted where a product of matrices would do, if the weights are known */
    bool finite;                        /* NaN may be lost: all steps are the library's */
} LibOp;
typedef struct LibRun LibRun;
/* lib_plan.c: the operands of one kind of call, and the calls. window: a convolution of one image [1, channels, lines, places] with weights [groups, out, in, lines,
 * places] (without the first one when there are no groups), else a product of matrices [rows, sum], [sum, columns]. dims, strides: of src, weights, dst. */
typedef struct LibShape {
    bool window, groups, known;         /* known: the weights never change */
    int n;                              /* rank of src and dst */
    int64_t dims[3][5], strides[3][5];
    int64_t add_dims[LIB_ADDENDS][4], add_strides[LIB_ADDENDS][4];
    int64_t stride[2], dilation[2], pad[2], pad_end[2];              /* dilation: places left out */
} LibShape;
typedef struct LibCall { int shape; int64_t at[LIB_OPERANDS]; } LibCall;     /* at: elements on from LibOperand.at */
enum { LIB_SHAPES = 64 };
typedef struct LibPlan { int nshape; LibShape *shape; int64_t ncall; LibCall *call; } LibPlan;
/* Axes of op are merged, its operands exchanged where the result lies the other way. UNSUPPORTED with a reason, NOMEM. To be freed in any case. */
Status lib_plan(LibOp *op, LibPlan *out, RtError *e);
void lib_plan_free(LibPlan *p);
/* UNSUPPORTED, with what the library cannot do, NOMEM or DEVICE. Thread-safe. */
Status lib_make(Lib *l, const LibOp *op, LibRun **out, RtError *e);
void lib_free(LibRun *r);               /* NULL is fine */
const char *lib_how(const LibRun *r);   /* "brgconv:avx512_core, 8 calls" */
void lib_launch(LibRun *r, void **buf, int slot, int64_t *arg, Launch *l);     /* as one of the CPU device; buf[slot] and arg[0] become its own */

/* ---- count.c: hardware counters ------------------------------------------------------------------------- */
/* Bytes read from and written to memory (last-level cache misses times the line size) by this thread's
 * process while fn ran; -1 and a reason when the machine has no counters. */
int64_t count_bytes(void (*fn)(void *arg), void *arg, char *why, size_t nwhy);
int64_t peak_memory(void);              /* VmHWM of the process in bytes */
#endif
