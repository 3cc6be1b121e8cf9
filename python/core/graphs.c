/* Graphs by calls, and the module itself. A Graph's values are the numbers that the library gives; the Python class around it makes objects of them. */
#include "core.h"

#include <stdbool.h>
#include <string.h>

typedef struct GraphObject { PyObject_HEAD sn_graph *graph; } GraphObject;

/* ---- graphs ------------------------------------------------------------------------------------------------------------- */

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (kwargs || !PyArg_ParseTuple(args, "")) return NULL;
    GraphObject *o = (GraphObject *)PyType_GenericAlloc(type, 0);
    sn_error err;
    if (!o) return NULL;
    if (sn_graph_new(&o->graph, &err)) {
        core_raise(core_state((PyObject *)o), &err);
        Py_CLEAR(o);
    }
    return (PyObject *)o;
}

static void graph_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    sn_graph_free(((GraphObject *)self)->graph);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The graph of self; NULL with an exception once it is finished. */
static sn_graph *graph_of(PyObject *self)
{
    sn_graph *g = ((GraphObject *)self)->graph;
    if (!g) PyErr_SetString(core_state(self)->error[SN_INVALID], "the graph is finished");
    return g;
}

/* After a failed call: the message is kept by the graph and comes out when it is finished, so that is done here. */
static PyObject *graph_failed(PyObject *self)
{
    GraphObject *o = (GraphObject *)self;
    sn_error err = { .code = SN_INVALID };
    sn_model *model = NULL;
    sn_graph *g = o->graph;
    o->graph = NULL;
    if (sn_graph_finish(g, &model, &err) == SN_OK) sn_model_free(model);
    return core_raise(core_state(self), &err);
}

static PyObject *graph_input(PyObject *self, PyObject *args)
{
    const char *name, *symbols[SN_MAX_RANK] = { 0 };
    int dtype, rank;
    PyObject *dims;
    int64_t size[SN_MAX_RANK] = { 0 };
    sn_value value = 0;
    sn_graph *g = graph_of(self);
    if (!g || !PyArg_ParseTuple(args, "siO!", &name, &dtype, &PyTuple_Type, &dims)) return NULL;
    Py_ssize_t n = PyTuple_Size(dims);
    if (n > SN_MAX_RANK) return PyErr_Format(core_state(self)->error[SN_INVALID], "input '%s' has %zd axes, wanted %d at most", name, n, SN_MAX_RANK);
    rank = (int)n;
    for (int k = 0; k < rank; k++) {
        PyObject *d = PyTuple_GetItem(dims, k);
        size[k] = -1;
        if (PyLong_Check(d)) size[k] = PyLong_AsLongLong(d);
        else if (PyUnicode_Check(d)) symbols[k] = PyUnicode_AsUTF8AndSize(d, NULL);
        else if (d != Py_None) PyErr_Format(PyExc_TypeError, "size %d of input '%s' is %R, wanted an int, a name or None", k, name, d);
        if (PyErr_Occurred()) return NULL;
        if (PyLong_Check(d) && size[k] < 0) return PyErr_Format(core_state(self)->error[SN_INVALID], "size %d of input '%s' is %R, wanted 0 or more", k, name, d);
    }
    if (sn_graph_input(g, name, (sn_dtype)dtype, rank, size, symbols, &value)) return graph_failed(self);
    return PyLong_FromLong(value);
}

static PyObject *graph_const(PyObject *self, PyObject *args)
{
    PyObject *array, *adapt;
    sn_tensor t;
    Held held;
    sn_value value = 0;
    sn_graph *g = graph_of(self);
    if (!g || !PyArg_ParseTuple(args, "OO", &array, &adapt) || tensor_borrow(core_state(self), NULL, array, adapt, 0, 0, &t, &held)) return NULL;
    sn_status st = sn_graph_const(g, &t, &value);
    tensor_return(&held);
    return st ? graph_failed(self) : PyLong_FromLong(value);
}

static PyObject *graph_op(PyObject *self, PyObject *args)
{
    const char *op, *attrs;
    PyObject *in;
    int nout;
    sn_graph *g = graph_of(self);
    if (!g || !PyArg_ParseTuple(args, "szO!i", &op, &attrs, &PyTuple_Type, &in, &nout)) return NULL;
    Py_ssize_t nin = PyTuple_Size(in);
    if (nin > INT32_MAX / 2 || nout < 1 || nout > 1 << 16) return PyErr_Format(core_state(self)->error[SN_INVALID], "%d outputs of %zd inputs", nout, nin);
    sn_value *value = PyMem_Calloc((size_t)nin + (size_t)nout, sizeof *value);
    if (!value) return PyErr_NoMemory();
    PyObject *out = NULL;
    for (Py_ssize_t i = 0; i < nin; i++) value[i] = (sn_value)PyLong_AsLong(PyTuple_GetItem(in, i));
    if (PyErr_Occurred()) goto done;
    if (sn_graph_op(g, op, attrs, (int)nin, value, nout, value + nin)) { graph_failed(self); goto done; }
    out = PyTuple_New(nout);
    for (int i = 0; out && i < nout; i++) {
        PyObject *n = PyLong_FromLong(value[nin + i]);
        if (n) PyTuple_SetItem(out, i, n);
        else Py_CLEAR(out);
    }
done:
    PyMem_Free(value);
    return out;
}

static PyObject *graph_output(PyObject *self, PyObject *args)
{
    const char *name;
    int value;
    sn_graph *g = graph_of(self);
    if (!g || !PyArg_ParseTuple(args, "si", &name, &value)) return NULL;
    if (sn_graph_output(g, name, value)) return graph_failed(self);
    Py_RETURN_NONE;
}

static PyObject *graph_finish(PyObject *self, PyObject *unused)
{
    (void)unused;
    GraphObject *o = (GraphObject *)self;
    sn_model *model = NULL;
    sn_error err;
    sn_graph *g = graph_of(self);
    if (!g) return NULL;
    o->graph = NULL;
    if (sn_graph_finish(g, &model, &err)) return core_raise(core_state(self), &err);
    return model_own(core_state(self), model);
}

static PyMethodDef graph_methods[] = {
    { "input", graph_input, METH_VARARGS, "input(name, dtype, dims) -> value" },
    { "const", graph_const, METH_VARARGS, "const(array, adapt) -> value" },
    { "op", graph_op, METH_VARARGS, "op(name, attributes, values, outputs) -> values" },
    { "output", graph_output, METH_VARARGS, "output(name, value)" },
    { "finish", graph_finish, METH_NOARGS, "finish() -> Model" },
    { 0 } };
static PyType_Slot graph_slots[] = {
    { Py_tp_doc, "A graph that is being built. After a failed call it is finished." },
    { Py_tp_new, graph_new }, { Py_tp_dealloc, graph_dealloc }, { Py_tp_methods, graph_methods }, { 0 } };
PyType_Spec core_graph_spec = { "sinter._core.Graph", sizeof(GraphObject), 0, Py_TPFLAGS_DEFAULT, graph_slots };

/* ---- the module ------------------------------------------------------------------------------------------------------------ */

CoreState *core_state(PyObject *self) { return PyType_GetModuleState(Py_TYPE(self)); }

PyObject *core_raise(const CoreState *s, const sn_error *err)
{
    int code = (int)err->code > 0 && (int)err->code < STATUS_COUNT ? (int)err->code : 0;
    PyErr_SetString(s->error[code], err->text);
    return NULL;
}

/* status, class, what it is besides a sinter.Error, text. One row for each status that can be raised. */
#define EXCEPTIONS(X)                                                                                                   \
    X(SN_NOMEM, "NoMemory", PyExc_MemoryError, "Memory could not be allocated, or a size is larger than the machine's.") \
    X(SN_IO, "FileError", PyExc_OSError, "A file or folder could not be read or written.")                             \
    X(SN_FORMAT, "FormatError", PyExc_ValueError, "The model is not what its format demands.")                          \
    X(SN_UNSUPPORTED, "Unsupported", PyExc_NotImplementedError, "The model is legal, but has an operator or dtype without a meaning here.") \
    X(SN_INVALID, "InvalidArgument", PyExc_ValueError, "An argument is wrong: a shape, a dtype, an index outside its axis.") \
    X(SN_COMPILE, "CompileError", PyExc_RuntimeError, "The C compiler is missing or refused a kernel.")                 \
    X(SN_DEVICE, "DeviceError", PyExc_RuntimeError, "The device is missing, lost or out of resources.")                 \
    X(SN_TIMEOUT, "Timeout", PyExc_TimeoutError, "A limit on time was reached.")                                        \
    X(SN_CANCELLED, "Cancelled", PyExc_RuntimeError, "The caller asked to stop.")

static int add_exceptions(PyObject *module, CoreState *s)
{
    s->error[0] = PyErr_NewExceptionWithDoc("sinter.Error", "What the library reports: the message says what was found and what was wanted.", PyExc_Exception, NULL);
    if (!s->error[0] || PyModule_AddObjectRef(module, "Error", s->error[0])) return -1;
#define EXCEPTION(status, name, also, text)                                                                         \
    {                                                                                                               \
        PyObject *bases = PyTuple_Pack(2, s->error[0], also);                                                       \
        s->error[status] = bases ? PyErr_NewExceptionWithDoc("sinter." name, text, bases, NULL) : NULL;             \
        Py_XDECREF(bases);                                                                                          \
        if (!s->error[status] || PyModule_AddObjectRef(module, name, s->error[status])) return -1;                  \
    }
    EXCEPTIONS(EXCEPTION)
#undef EXCEPTION
    return 0;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type ? PyModule_AddType(module, *type) : -1;
}

static int add_main_thread(CoreState *s)
{
    PyObject *threading = PyImport_ImportModule("threading"), *thread = NULL, *ident = NULL;
    if (threading) thread = PyObject_CallMethod(threading, "main_thread", NULL);
    if (thread) ident = PyObject_GetAttrString(thread, "ident");
    if (ident && ident != Py_None) s->main_thread = PyLong_AsUnsignedLongMask(ident);
    Py_XDECREF(threading);
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    return PyErr_Occurred() ? -1 : 0;
}

static int core_exec(PyObject *module)
{
    CoreState *s = PyModule_GetState(module);
    return add_exceptions(module, s) || add_main_thread(s) || add_type(module, &core_tensor_spec, &s->tensor) || add_type(module, &core_flag_spec, &s->flag) ||
            add_type(module, &core_model_spec, &s->model) || add_type(module, &core_program_spec, &s->program) || add_type(module, &core_graph_spec, &s->graph) ||
            PyModule_AddStringConstant(module, "version", sn_version())
        ? -1
        : 0;
}

static int core_traverse(PyObject *module, visitproc visit, void *arg)
{
    CoreState *s = PyModule_GetState(module);
    for (int i = 0; i < STATUS_COUNT; i++) Py_VISIT(s->error[i]);
    Py_VISIT(s->model);
    Py_VISIT(s->program);
    Py_VISIT(s->graph);
    Py_VISIT(s->tensor);
    Py_VISIT(s->flag);
    return 0;
}

static int core_clear(PyObject *module)
{
    CoreState *s = PyModule_GetState(module);
    for (int i = 0; i < STATUS_COUNT; i++) Py_CLEAR(s->error[i]);
    Py_CLEAR(s->model);
    Py_CLEAR(s->program);
    Py_CLEAR(s->graph);
    Py_CLEAR(s->tensor);
    Py_CLEAR(s->flag);
    return 0;
}

static PyObject *core_dtype_name(PyObject *module, PyObject *number)
{
    (void)module;
    long n = PyLong_AsLong(number);
    if (n == -1 && PyErr_Occurred()) return NULL;
    return PyUnicode_FromString(sn_dtype_name((sn_dtype)n));
}

static PyObject *core_dtype_number(PyObject *module, PyObject *name)
{
    (void)module;
    const char *s = PyUnicode_AsUTF8AndSize(name, NULL);
    return s ? PyLong_FromLong((long)sn_dtype_from_name(s)) : NULL;
}

static PyMethodDef core_functions[] = {
    { "dtype_name", core_dtype_name, METH_O, "The name of a dtype by its number, as \"f32\"; \"?\" for a number that is none." },
    { "dtype_number", core_dtype_number, METH_O, "The number of a dtype by its name; 0 for a name that is none." },
    { 0 } };
static PyModuleDef_Slot core_slots[] = { { Py_mod_exec, core_exec }, { 0 } };
static PyModuleDef core_module = { PyModuleDef_HEAD_INIT, "sinter._core", "The library, for the package's own files.", sizeof(CoreState), core_functions, core_slots,
    core_traverse, core_clear, NULL };

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
