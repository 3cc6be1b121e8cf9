/* sinter: tensor graphs in, fused kernels out.
 *
 *     sn_error err;
 *     sn_model *model;
 *     sn_program *program;
 *     if (sn_model_load("net.onnx", &model, &err)) ...              one file, or sn_graph_new() and calls
 *     if (sn_compile(model, NULL, &program, &err)) ...
 *     if (sn_run(program, 1, &x, 1, &y, &err)) ...                  any number of times, from any number of threads
 *     sn_tensor_release(&y);
 *     sn_program_free(program);
 *     sn_model_free(model);
 *
 * Errors      Functions that can fail return a status, SN_OK (0) when all went well. The last argument takes the message: what was found and what was
 *             wanted, with the file's and the operator's name. It may be NULL. The library keeps no error and no other state of its own, prints
 *             nothing to stdout and never ends the process on wrong input.
 * Ownership   What a function gives through a pointer to a pointer is the caller's and has a function that frees it; that takes NULL as well. Arguments
 *             are borrowed for the call unless the function says more. Results are only set when the call succeeds.
 * Threads     Different objects are independent. One program may be run by several threads at once. All else on one object needs the caller's care.
 * Numbers     Elements are little-endian, as ONNX's TensorProto has them in raw_data, except that types below 8 bits take a byte for each element. */
#ifndef SINTER_H
#define SINTER_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SN_API __attribute__((visibility("default")))
#else
#define SN_API
#endif

/* ---- statuses ----------------------------------------------------------------------------------------------------- */

typedef enum sn_status {
    SN_OK = 0,
    SN_NOMEM = 1,                       /* memory could not be allocated, or a size is larger than the machine's memory */
    SN_IO = 2,                          /* a file or folder could not be read or written */
    SN_FORMAT = 3,                      /* the model is not what its format demands: truncated, a cycle, a name defined twice */
    SN_UNSUPPORTED = 4,                 /* the model is legal, but this version has no meaning for it: an operator, a dtype */
    SN_INVALID = 5,                     /* the caller's argument is wrong: a shape, a dtype, a missing input, an index outside its axis */
    SN_COMPILE = 6,                     /* the C compiler is missing or refused a kernel */
    SN_DEVICE = 7,                      /* the device is missing, lost or out of resources */
    SN_TIMEOUT = 8,                     /* a limit on time was reached */
    SN_CANCELLED = 9                    /* the caller asked to stop: sn_options.cancel */
} sn_status;

typedef struct sn_error {
    sn_status code;
    char text[1024];                    /* 0-terminated */
} sn_error;

/* "INVALID" for SN_INVALID; "?" for a number that is no status. Never NULL. */
SN_API const char *sn_status_name(sn_status status);

/* "0.1.0". */
SN_API const char *sn_version(void);

/* ---- element types and tensors -------------------------------------------------------------------------------------- */

/* The numbers are those of ONNX's TensorProto.DataType. */
typedef enum sn_dtype {
    SN_NONE = 0,
    SN_F32 = 1, SN_F64 = 11, SN_F16 = 10, SN_BF16 = 16,
    SN_F8E4M3FN = 17, SN_F8E4M3FNUZ = 18, SN_F8E5M2 = 19, SN_F8E5M2FNUZ = 20, SN_F8E8M0 = 24, SN_F4E2M1 = 23,
    SN_I8 = 3, SN_I16 = 5, SN_I32 = 6, SN_I64 = 7,
    SN_U8 = 2, SN_U16 = 4, SN_U32 = 12, SN_U64 = 13,
    SN_I4 = 22, SN_U4 = 21, SN_I2 = 26, SN_U2 = 25,
    SN_BOOL = 9                         /* one byte, 0 or 1 */
} sn_dtype;

/* "f32"; "?" for a number that is no dtype. Never NULL. */
SN_API const char *sn_dtype_name(sn_dtype dtype);
/* The dtype of a name such as "f32"; SN_NONE when there is none. */
SN_API sn_dtype sn_dtype_from_name(const char *name);
/* Bytes of one element in memory; 0 for a number that is no dtype. */
SN_API size_t sn_dtype_size(sn_dtype dtype);

#define SN_MAX_RANK 16

/* A view of somebody's memory. Zero-initialise it, then set what you need: fields added later will mean what they meant before when they are 0. */
typedef struct sn_tensor {
    sn_dtype dtype;
    int32_t rank;                       /* 0 to SN_MAX_RANK; 0 is a scalar */
    int64_t dims[SN_MAX_RANK];          /* each >= 0 */
    int64_t strides[SN_MAX_RANK];       /* in elements; may be 0 (broadcast) or, for inputs, negative. Read only when has_strides */
    int32_t has_strides;                /* 0: row-major without gaps */
    void *data;                         /* element [0,0,...]; any alignment. May be NULL when there are no elements */
    size_t bytes;                       /* size of the memory at data. Inputs: 0 leaves it unchecked; else it must hold what dims and strides reach */
    void *owner;                        /* set by sn_run for memory or a buffer that it allocated; else NULL */
    struct sn_buffer *buffer;           /* not NULL: the elements lie in this buffer, row-major, `offset` bytes from its beginning; data and bytes are not looked at */
    size_t offset;                      /* a multiple of an element's size */
    int32_t on_device;                  /* outputs that are allocated: 1: in a buffer of the device, `buffer`, if it has memory of its own */
} sn_tensor;

/* Frees what sn_run allocated for an output, its memory or its buffer, and clears the tensor. Does nothing to a tensor whose owner is NULL. */
SN_API void sn_tensor_release(sn_tensor *tensor);

/* ---- models --------------------------------------------------------------------------------------------------------- */

typedef struct sn_model sn_model;

/* Reads an ONNX file: binary, or ONNX's text syntax when the name ends in .onnxtxt. The file and its external data stay mapped: they must not change
 * while the model lives. IO, FORMAT, NOMEM. */
SN_API sn_status sn_model_load(const char *path, sn_model **model, sn_error *err);

/* The same from memory, which is borrowed while the model lives. name: for messages, and its folder is where external data may lie; NULL: "<memory>". */
SN_API sn_status sn_model_from_memory(const void *bytes, size_t n, const char *name, sn_model **model, sn_error *err);

/* Frees a model. Its programs must be freed before. */
SN_API void sn_model_free(sn_model *model);

/* An input or output as the model declares it. Strings live as long as the model. */
typedef struct sn_port {
    const char *name;
    sn_dtype dtype;                     /* SN_NONE: not declared, or of a type that sinter has no meaning for */
    int32_t rank;                       /* -1: not declared */
    int64_t dims[SN_MAX_RANK];          /* -1: known only when it runs */
    const char *symbols[SN_MAX_RANK];   /* the name of a size that is -1: equal names are equal sizes; NULL when it has none */
} sn_port;

/* Inputs (initialisers do not count) and outputs of the main graph, in the order in which sn_run takes them. */
SN_API int sn_model_input_count(const sn_model *model);
SN_API int sn_model_output_count(const sn_model *model);
/* INVALID when there is no port of that number, or its rank is above SN_MAX_RANK. */
SN_API sn_status sn_model_input(const sn_model *model, int index, sn_port *port, sn_error *err);
SN_API sn_status sn_model_output(const sn_model *model, int index, sn_port *port, sn_error *err);

/* Metadata: the model's own pairs, after the pairs "producer", "producer_version", "domain", "doc", "model_version", "graph" (its
 * name), "graph_doc", "ir_version" and "opset" (as "ai.onnx:17 x:1"): nine. Strings live as long as the model. sn_model_meta: the value of a key, NULL when there is none. */
SN_API int sn_model_meta_count(const sn_model *model);
SN_API sn_status sn_model_meta_at(const sn_model *model, int index, const char **key, const char **value, sn_error *err);
SN_API const char *sn_model_meta(const sn_model *model, const char *key);

/* ---- a model by calls ------------------------------------------------------------------------------------------------ */

typedef struct sn_graph sn_graph;
typedef int32_t sn_value;               /* a tensor of the graph; 0 is none, for an absent optional input or an unwanted output */

/* Each call returns a status, and the first failure is also kept: all later calls do nothing and return it, and so does sn_graph_finish with its message.
 * So a graph can be written down without a test after each line. Arguments are copied. */
SN_API sn_status sn_graph_new(sn_graph **graph, sn_error *err);

/* An input. dims[k] -1: a size known only when it runs, named symbols[k] (symbols or the name NULL: a size of its own). */
SN_API sn_status sn_graph_input(sn_graph *graph, const char *name, sn_dtype dtype, int rank, const int64_t *dims, const char *const *symbols,
                                sn_value *value);

/* A constant. Any strides; its elements are copied. */
SN_API sn_status sn_graph_const(sn_graph *graph, const sn_tensor *tensor, sn_value *value);

/* An operator:
 *
 *     sn_graph_op(g, "Relu", NULL, 1, &x, 1, &y);
 *     sn_graph_op(g, "Softmax", "axis=-1", 1, &x, 1, &y);
 *     sn_graph_op(g, "com.microsoft.FusedMatMul", "alpha=0.5 transB=1", 2, ab, 1, &y);
 *     sn_graph_op(g, "sinter.max", NULL, 2, ab, 1, &y);
 *
 * op      ONNX's name for an operator of the default domain (its newest version that sinter has); "com.microsoft.NAME"; or "sinter.NAME": one of sinter's
 *         own primitives: every elementwise one (operands broadcast and share a dtype), and
 *           where c a b | cast x: to saturate=1 | bitcast x: to | dims x | iota shape: axis=0 | random key(u64 scalar) shape
 *           fold x: kind axes keepdims=1 (axis, last=0 for argmax, argmin) | scan x: kind axis exclusive=0 reverse=0 | join x...: axis
 *           gather x index: axis | scatter x index updates: axis combine="set" (index a vector along the axis)
 *           view x: dims strides offset=0 (numbers of elements of x, row-major; every element must lie inside x)
 *         with kind sum prod max min argmax argmin (scan: the first four) and combine set add mul max min. `sinter ops` lists all.
 * attrs   NULL or words "name=value": 2 an integer, 2.0 or 1e-5 or inf a float, [1,2] integers, [1.0,2.0] floats, 'text' or a word a string. The name of a
 *         dtype is its number (to=f16).
 * out     nout values, filled.
 * FORMAT for a text that is not this, INVALID for a value that is none of this graph. What the operator itself refuses comes from sn_compile or sn_run. */
SN_API sn_status sn_graph_op(sn_graph *graph, const char *op, const char *attrs, int nin, const sn_value *in, int nout, sn_value *out);

/* Makes a value an output of the model. Outputs keep the order of these calls. */
SN_API sn_status sn_graph_output(sn_graph *graph, const char *name, sn_value value);

/* Ends the graph and gives the model. The graph is freed, whether this succeeds or not. */
SN_API sn_status sn_graph_finish(sn_graph *graph, sn_model **model, sn_error *err);

/* Frees a graph that is not to be finished. */
SN_API void sn_graph_free(sn_graph *graph);

/* ---- programs -------------------------------------------------------------------------------------------------------- */

typedef struct sn_program sn_program;

/* Zero means the default for every field, so zero-initialise. Strings are copied. What is not said here comes from the environment (SN_THREADS ...),
 * which is read once, by sn_compile. */
typedef struct sn_options {
    int32_t threads;                    /* at most so many for each run; 0: one for each processor that the process may use */
    int32_t no_fuse;                    /* 1: one kernel for each operator (more when one needs several) */
    int32_t check;                      /* 1: each kernel's results are compared with the reference interpreter; a difference fails the run. Slow */
    int32_t interpret;                  /* 1: no kernels at all: runs with the reference interpreter, which needs no compiler. Very slow */
    const char *cache;                  /* folder of compiled kernels; "": none; NULL: the user's */
    const char *compiler;               /* C compiler of the kernels; NULL: the first of cc, gcc, clang that is there */
    const volatile int *cancel;         /* when *cancel becomes non-zero, calls stop soon with CANCELLED. Borrowed while the program lives; may be NULL */
    const char *device;                 /* where kernels run: "cpu", or another target ("sinter ops" lists them), as NAME or NAME:N for its device N; NULL: the CPU */
    int32_t background;                 /* 1: runs never wait for a compiler, see below. Without effect with check, and on devices that cannot say what is there (CUDA) */
    const char *rules;                  /* file of further rewriting and fusion rules: docs/fusion.md; NULL: none. FORMAT when it is wrong */
    const char *allow;                  /* what rules may assume: "finite,reassoc,wide,winograd,flush,bf16" or some of these; NULL: only what changes no bit */
} sn_options;

/* Makes a program of a model, which is borrowed while the program lives. Kernels depend on the inputs' sizes where the model leaves them open, so they
 * are compiled by the first run (or sn_prepare) and again when sizes come that the kernels there do not serve. UNSUPPORTED names all operators that have
 * no meaning.
 *
 * With background, sizes that need kernels which are not there are no reason to wait either: until a thread of the program has compiled them, loops of the
 * library answer, which are slower and within the same bounds of rounding; from some run on kernels do. A compiler that fails does not fail a run;
 * sn_prepare, which waits, tells. */
SN_API sn_status sn_compile(const sn_model *model, const sn_options *options, sn_program **program, sn_error *err);
SN_API void sn_program_free(sn_program *program);

/* Compiles for the dtypes and dims of these inputs, so that the first run does not have to. data may be NULL: then a model whose kernels depend on an
 * input's values (a shape that is computed from them) is refused with INVALID. COMPILE, UNSUPPORTED, INVALID. */
SN_API sn_status sn_prepare(sn_program *program, int nin, const sn_tensor *in, sn_error *err);

/* Runs: in are the model's inputs, out its outputs, in order. Inputs are borrowed for the call and may have any strides.
 *   out[i].data NULL   memory is allocated and belongs to the caller: sn_tensor_release. dtype, rank, dims, bytes and owner are set. With
 *                      on_device, on a device with memory of its own, it is a buffer there, which is to be released before the program is freed
 *   else               a row-major buffer of `bytes` bytes that the result must fit (INVALID); dtype, rank and dims are set. With has_strides the caller
 *                      sets dtype, rank, dims and strides, they must be the result's, and no two elements may share memory.
 * Outputs must not overlap inputs or one another; but see sn_buffer. After a failure the contents of out's buffers are undefined and nothing was allocated.
 * INVALID for inputs that do not fit the model (which, what, and what was wanted) and for data that make an index leave its axis. */
SN_API sn_status sn_run(sn_program *program, int nin, const sn_tensor *in, int nout, sn_tensor *out, sn_error *err);

/* The same, and stops soon with CANCELLED when *cancel becomes non-zero; sn_options.cancel is not looked at. For runs of one program that are to be
 * stopped one by one. cancel NULL: sn_run. */
SN_API sn_status sn_run_cancellable(sn_program *program, const volatile int *cancel, int nin, const sn_tensor *in, int nout, sn_tensor *out, sn_error *err);

/* Runs so many times (at least once) and measures each kernel; what sn_program_explain gives has the medians. On a device of its own arguments and results lie
 * there meanwhile, and its own clock counts. Results are dropped. UNSUPPORTED for packages and for interpreted programs; else as sn_run. */
SN_API sn_status sn_profile(sn_program *program, int nin, const sn_tensor *in, int runs, sn_error *err);

/* ---- memory on the device -------------------------------------------------------------------------------------------- */

/* Tensors that stay where a program runs: inputs that are read there, outputs that are written there, results of one run that the next one reads. Nothing is
 * copied. A buffer belongs to its program and to programs for the same device; it must be freed before the program it was made with. On the CPU it is
 * the host's memory.
 *
 * An output may lie exactly where an input of the same number of bytes lies: p = p - g in one memory. INVALID where kernels would read an element after it
 * was written (on the CPU the result is copied there in the end). Values that shapes or branches depend on are read back by a run when they are integers or
 * truth values of at most 4096 elements; others are refused with INVALID. */
typedef struct sn_buffer sn_buffer;

/* bytes: may be 0. The contents are undefined. NOMEM, DEVICE. */
SN_API sn_status sn_buffer_new(sn_program *program, size_t bytes, sn_buffer **buffer, sn_error *err);

/* Memory that somebody else allocated, borrowed while the buffer lives. address: on the CPU of the host, 64-byte alignment is not asked for; with CUDA a device
 * pointer of the device's primary context (PyTorch's, or what DLPack names: data + byte_offset). Runs and copies come after what
 * the device's default stream was given before; other work of others on it must have ended before they begin, or be followed (sn_program_follow); they have ended when they return. UNSUPPORTED on devices whose memory has no such addresses (OpenCL). */
SN_API sn_status sn_buffer_wrap(sn_program *program, void *address, size_t bytes, sn_buffer **buffer, sn_error *err);
SN_API void sn_buffer_free(sn_buffer *buffer);

/* Runs and copies from now on come after what a stream of somebody else's has been given so far; nobody waits. stream: with CUDA a CUstream of the primary context; on other
 * devices there is nothing to follow. DEVICE. */
SN_API sn_status sn_program_follow(sn_program *program, void *stream, sn_error *err);

/* Copies to or from the host; done when they return. INVALID when [offset, offset + bytes) is not inside. */
SN_API sn_status sn_buffer_write(sn_buffer *buffer, size_t offset, const void *from, size_t bytes, sn_error *err);
SN_API sn_status sn_buffer_read(const sn_buffer *buffer, size_t offset, void *to, size_t bytes, sn_error *err);

/* Where it lies, in the sense of sn_buffer_wrap; NULL on devices whose memory has no such addresses. */
SN_API void *sn_buffer_address(const sn_buffer *buffer);

/* Where a program's buffers lie, as DLPack says it: the type (DLDeviceType: 1 the host's memory, 2 CUDA, 4 OpenCL, 12 another) and which of them. */
SN_API void sn_program_place(const sn_program *program, int32_t *device_type, int32_t *device_id);

typedef enum sn_explain_form { SN_EXPLAIN_TEXT = 0, SN_EXPLAIN_JSON = 1 } sn_explain_form;

/* What the last run (or sn_prepare) did: segments, kernels and the operators in each, bytes that each reads and writes, what was not fused and why.
 * The string is the caller's: sn_string_free. INVALID before the first run. */
SN_API sn_status sn_program_explain(sn_program *program, sn_explain_form form, char **text, sn_error *err);
SN_API void sn_string_free(char *text);

/* ---- ahead of time ---------------------------------------------------------------------------------------------------- */

typedef enum sn_weights {
    SN_WEIGHTS_FILE = 0,                /* in the C file, object, library or package */
    SN_WEIGHTS_BIN = 1,                 /* in a file NAME.bin beside it, which the assembler puts in (a package: which is mapped) */
    SN_WEIGHTS_POINTER = 2              /* in a file NAME.bin beside it; the caller gives its bytes (a package: as BIN) */
} sn_weights;

typedef struct sn_range { const char *name; int64_t least; } sn_range;      /* a symbol, or "INPUT:AXIS" */

/* Zero-initialise it, then set what you need. */
typedef struct sn_export_options {
    const char *isa;                    /* "plain", "sse2", "avx2", "avx512", "avx512vnni", "avx512bf16", "neon", "auto"; NULL: "plain" for .c, else this machine's */
    sn_weights weights;
    int32_t threads;                    /* the most that a run may use; 0 and 1: one, and no hook in the file */
    int32_t nin; const sn_tensor *in;   /* for these sizes. data may be NULL where no shape and no branch depends on it; else the result serves these values */
    int32_t nrange; const sn_range *range;       /* symbolic dimensions that stay parameters: from `least` to the size in the inputs */
    const char *compiler;               /* for .o, .so and .sinter; NULL: the first of cc, gcc, clang that is there */
    const char *rules, *allow;          /* as in sn_options; what is written needs neither later */
} sn_export_options;

/* Writes a model as a file that needs no compiler, by the ending of path: .c (and .h beside it), .o, .so, or .sinter, a package for sn_program_load.
 * docs/embedded.md has the C interface. UNSUPPORTED names the operator that has no such form. INVALID, COMPILE, IO. */
SN_API sn_status sn_export(const sn_model *model, const char *path, const sn_export_options *options, sn_error *err);

/* Loads a package. It runs by sn_run; only `threads` and `cancel` of the options count, and the latter is looked at before a run. FORMAT when it is damaged, UNSUPPORTED when another version of sinter
 * made it, DEVICE when this processor lacks its instruction set. */
SN_API sn_status sn_program_load(const char *path, const sn_options *options, sn_program **program, sn_error *err);

/* The model of a program; of a package, its inputs and outputs in the form of a model. Lives as long as the program. */
SN_API const sn_model *sn_program_model(const sn_program *program);

/* 1 while kernels are being compiled in the background. */
SN_API int sn_program_compiling(sn_program *program);

/* How many variants were compiled: one for each set of sizes that needed kernels of its own. */
SN_API int sn_program_variants(sn_program *program);

#ifdef __cplusplus
}
#endif
#endif
