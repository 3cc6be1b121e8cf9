/* core: the extension sinter._core, a thin layer over sinter.h for the package's Python files.
 *
 * Dtypes are numbers (sn_dtype), tensors come in through the buffer protocol or DLPack and go out as objects that own what sn_run allocated. Names, NumPy
 * and everything that may be slow is Python's part. Only the stable interface of Python 3.11 is used, so one build serves all later versions. */
#ifndef SINTER_CORE_H
#define SINTER_CORE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "sinter.h"

#define STATUS_COUNT 10                 /* sn_status: 0 to 9 */

typedef struct CoreState {
    PyObject *error[STATUS_COUNT];      /* exception classes by status; [0] is their base, sinter.Error */
    PyTypeObject *model, *program, *graph, *tensor, *flag;
    unsigned long main_thread;          /* the one that Python's signal handlers run in */
} CoreState;

/* The state of the module that the type of self belongs to. */
CoreState *core_state(PyObject *self);
/* Raises what a library call reported; gives NULL. */
PyObject *core_raise(const CoreState *s, const sn_error *err);

/* ---- tensors.c ------------------------------------------------------------------------------------------------------ */
extern PyType_Spec core_tensor_spec;

typedef struct Held {                   /* what keeps an argument's memory alive during a call */
    Py_buffer view;
    PyObject *object;                   /* that the view or the DLPack tensor is of */
    struct DlManaged *managed;          /* from a DLPack capsule */
    sn_buffer *buffer;                  /* over memory of the device */
    sn_dtype dtype;                     /* of a result's memory */
} Held;

/* Fills t from a Python object without a copy: a buffer, or a DLPack exporter whose memory is the host's or that of the program's device (program NULL: the
 * host's only). For others adapt(object, index) gives a pair (buffer, dtype number) that says what the bytes mean. 0, or -1 with an exception. writable: for
 * results, which are row-major. */
int tensor_borrow(const CoreState *s, sn_program *program, PyObject *object, PyObject *adapt, Py_ssize_t index, int writable, sn_tensor *t, Held *h);
void tensor_return(Held *h);
/* Takes over what sn_run allocated. owner: the Program's object, which the device's memory needs. */
PyObject *tensor_own(const CoreState *s, const sn_tensor *t, PyObject *owner);

/* ---- programs.c: models, programs, flags ------------------------------------------------------------------------------ */
extern PyType_Spec core_model_spec, core_program_spec, core_flag_spec;
PyObject *model_own(const CoreState *s, sn_model *model);
sn_program *program_of(PyObject *self);

/* ---- graphs.c ---------------------------------------------------------------------------------------------------------- */
extern PyType_Spec core_graph_spec;
#endif
