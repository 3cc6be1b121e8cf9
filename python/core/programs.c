/* Models and programs, and how a run is stopped.
 *
 * The lock of the interpreter is released while the library works. Python notes a Ctrl-C only between bytecodes, so a run on the main thread, where signal
 * handlers run, puts a handler of its own in the place of Python's for as long as it lasts: it sets the flag that the library looks at. Afterwards Python's
 * handlers get the signal; one that raises ends the call with its exception, and after one that does not the run is repeated, as Python repeats system calls. */
#include "core.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>

/* ---- stopping --------------------------------------------------------------------------------------------------------- */

typedef struct FlagObject {
    PyObject_HEAD
    volatile int stop;                  /* what the library looks at */
    volatile int asked;                 /* by Python, not by a signal */
} FlagObject;

static PyObject *flag_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (kwargs || !PyArg_ParseTuple(args, "")) return NULL;
    return PyType_GenericAlloc(type, 0);
}

static void flag_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *flag_get(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((FlagObject *)self)->asked);
}

static int flag_put(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    FlagObject *f = (FlagObject *)self;
    int on = value ? PyObject_IsTrue(value) : 0;
    if (on < 0) return -1;
    f->asked = on;
    f->stop = on;
    return 0;
}

static PyGetSetDef flag_fields[] = { { "value", flag_get, flag_put, "Whether the runs that look at this flag are to stop.", NULL }, { 0 } };
static PyType_Slot flag_slots[] = {
    { Py_tp_doc, "A flag that stops runs, from any thread." }, { Py_tp_new, flag_new }, { Py_tp_dealloc, flag_dealloc }, { Py_tp_getset, flag_fields }, { 0 } };
PyType_Spec core_flag_spec = { "sinter._core.Flag", sizeof(FlagObject), 0, Py_TPFLAGS_DEFAULT, flag_slots };

/* A signal handler has no argument, so these are the process's: the run on the main thread, if there is one. */
static volatile int *volatile interrupt_stop;
static volatile sig_atomic_t interrupted;
static struct sigaction interrupt_before;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
    if (interrupt_stop) *interrupt_stop = 1;
}

/* Gives the signal that came to the handler from before. */
static bool watch_end(void)
{
    sigaction(SIGINT, &interrupt_before, NULL);
    interrupt_stop = NULL;
    if (!interrupted) return false;
    interrupted = 0;
    raise(SIGINT);
    return true;
}

/* false: not the main thread, or Ctrl-C does not mean a handler. */
static bool watch_begin(const CoreState *s, volatile int *stop)
{
    if (PyThread_get_thread_ident() != s->main_thread || interrupt_stop) return false;
    const struct sigaction own = { .sa_handler = on_interrupt, .sa_flags = SA_ONSTACK };
    interrupt_stop = stop;
    if (sigaction(SIGINT, &own, &interrupt_before)) {
        interrupt_stop = NULL;
        return false;
    }
    if ((interrupt_before.sa_flags & SA_SIGINFO) || (interrupt_before.sa_handler != SIG_DFL && interrupt_before.sa_handler != SIG_IGN)) return true;
    watch_end();
    return false;
}

/* ---- models ------------------------------------------------------------------------------------------------------------- */

typedef struct ModelObject { PyObject_HEAD sn_model *model; Py_buffer bytes; } ModelObject;

PyObject *model_own(const CoreState *s, sn_model *model)
{
    ModelObject *o = PyObject_New(ModelObject, s->model);
    if (!o) {
        sn_model_free(model);
        return NULL;
    }
    o->model = model;
    memset(&o->bytes, 0, sizeof o->bytes);
    return (PyObject *)o;
}

static PyObject *model_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "path", "data", "name", NULL };
    PyObject *path = NULL, *data = NULL;
    const char *name = NULL;
    sn_error err;
    sn_status st;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOz", names, &path, &data, &name)) return NULL;
    if (path == Py_None) path = NULL;
    if (data == Py_None) data = NULL;
    if (!path == !data) {
        PyErr_SetString(PyExc_TypeError, "a model is read from a path or from bytes: one of the two is wanted");
        return NULL;
    }
    ModelObject *o = (ModelObject *)PyType_GenericAlloc(type, 0);
    if (!o) return NULL;
    CoreState *s = core_state((PyObject *)o);
    if (path) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(path, &bytes)) goto bad;
        const char *file = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS
        st = sn_model_load(file, &o->model, &err);
        Py_END_ALLOW_THREADS
        Py_DECREF(bytes);
    } else {
        if (PyObject_GetBuffer(data, &o->bytes, PyBUF_SIMPLE)) goto bad;
        Py_BEGIN_ALLOW_THREADS
        st = sn_model_from_memory(o->bytes.buf, (size_t)o->bytes.len, name, &o->model, &err);
        Py_END_ALLOW_THREADS
    }
    if (!st) return (PyObject *)o;
    core_raise(s, &err);
bad:
    Py_DECREF(o);
    return NULL;
}

static void model_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ModelObject *o = (ModelObject *)self;
    sn_model_free(o->model);
    if (o->bytes.obj) PyBuffer_Release(&o->bytes);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* (name, dtype number, dims: ints, names or None; None when the rank is not declared) */
static PyObject *port_tuple(const sn_port *p)
{
    if (p->rank < 0) return Py_BuildValue("(siO)", p->name, (int)p->dtype, Py_None);
    PyObject *dims = PyTuple_New(p->rank);
    for (int k = 0; dims && k < p->rank; k++) {
        PyObject *d = p->dims[k] >= 0 ? PyLong_FromLongLong(p->dims[k]) : Py_BuildValue("z", p->symbols[k]);
        if (d) PyTuple_SetItem(dims, k, d);
        else Py_CLEAR(dims);
    }
    return dims ? Py_BuildValue("(siN)", p->name, (int)p->dtype, dims) : NULL;
}

/* The model of a Model or a Program. */
static const sn_model *model_of(PyObject *self);

static PyObject *model_ports(PyObject *self, int n, sn_status (*get)(const sn_model *, int, sn_port *, sn_error *))
{
    PyObject *list = PyTuple_New(n);
    for (int i = 0; list && i < n; i++) {
        sn_port port;
        sn_error err;
        PyObject *item = get(model_of(self), i, &port, &err) ? core_raise(core_state(self), &err) : port_tuple(&port);
        if (item) PyTuple_SetItem(list, i, item);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *model_inputs(PyObject *self, void *unused)
{
    (void)unused;
    return model_ports(self, sn_model_input_count(model_of(self)), sn_model_input);
}

static PyObject *model_outputs(PyObject *self, void *unused)
{
    (void)unused;
    return model_ports(self, sn_model_output_count(model_of(self)), sn_model_output);
}

static PyObject *model_metadata(PyObject *self, void *unused)
{
    (void)unused;
    const sn_model *m = model_of(self);
    PyObject *list = PyTuple_New(sn_model_meta_count(m));
    for (int i = 0; list && i < sn_model_meta_count(m); i++) {
        const char *key = "", *value = "";
        sn_error err;
        PyObject *item = sn_model_meta_at(m, i, &key, &value, &err) ? core_raise(core_state(self), &err) : Py_BuildValue("(ss)", key, value);
        if (item) PyTuple_SetItem(list, i, item);
        else Py_CLEAR(list);
    }
    return list;
}

/* export(path, isa, weights, threads, inputs, ranges, compiler, adapt, rules, allow): inputs a tuple as in Program.prepare; ranges a tuple of (name, least). */
static PyObject *model_export(PyObject *self, PyObject *args);

static PyMethodDef model_methods[] = {
    { "export", model_export, METH_VARARGS, "export(path, isa, weights, threads, inputs, ranges, compiler, adapt, rules, allow)" },
    { 0 } };
static PyGetSetDef model_get[] = {
    { "inputs", model_inputs, NULL, "Inputs: tuples (name, dtype number, sizes).", NULL },
    { "outputs", model_outputs, NULL, "Outputs: tuples (name, dtype number, sizes).", NULL },
    { "metadata", model_metadata, NULL, "Pairs (key, value): what the file says about itself, then its own.", NULL },
    { 0 } };
static PyType_Slot model_slots[] = {
    { Py_tp_doc, "Model(path=None, data=None, name=None)" }, { Py_tp_new, model_new }, { Py_tp_dealloc, model_dealloc },
    { Py_tp_getset, model_get }, { Py_tp_methods, model_methods }, { 0 } };
PyType_Spec core_model_spec = { "sinter._core.Model", sizeof(ModelObject), 0, Py_TPFLAGS_DEFAULT, model_slots };

/* ---- programs ----------------------------------------------------------------------------------------------------------- */

typedef struct ProgramObject {
    PyObject_HEAD
    sn_program *program;
    PyObject *model;                    /* which the program borrows; NULL: it is a package, which has its own */
    volatile int stop;                  /* of sn_prepare */
} ProgramObject;

sn_program *program_of(PyObject *self) { return ((ProgramObject *)self)->program; }

static const sn_model *model_of(PyObject *self)
{
    return Py_TYPE(self) == core_state(self)->model ? ((ModelObject *)self)->model : sn_program_model(((ProgramObject *)self)->program);
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "model", "threads", "fuse", "check", "interpret", "cache", "compiler", "device", "package", "background", "rules", "allow", NULL };
    PyObject *model = NULL, *package = NULL, *path = NULL;
    int threads = 0, fuse = 1, check = 0, interpret = 0, background = 0;
    const char *cache = NULL, *compiler = NULL, *device = NULL, *rules = NULL, *allow = NULL;
    sn_error err;
    sn_status st;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|ipppzzzOpzz", names, &model, &threads, &fuse, &check, &interpret, &cache, &compiler, &device, &package,
        &background, &rules, &allow)) return NULL;
    ProgramObject *o = (ProgramObject *)PyType_GenericAlloc(type, 0);
    if (!o) return NULL;
    CoreState *s = core_state((PyObject *)o);
    sn_options options = { .threads = threads, .no_fuse = !fuse, .check = check, .interpret = interpret, .cache = cache, .compiler = compiler, .cancel = &o->stop,
        .device = device, .background = background, .rules = rules, .allow = allow };
    if (package && package != Py_None) {
        if (!PyUnicode_FSConverter(package, &path)) goto bad;
        const char *file = PyBytes_AsString(path);
        Py_BEGIN_ALLOW_THREADS
        st = sn_program_load(file, &options, &o->program, &err);
        Py_END_ALLOW_THREADS
        Py_DECREF(path);
    } else if (Py_TYPE(model) != s->model) {
        PyErr_Format(PyExc_TypeError, "a program is made of a Model, not of %R", (PyObject *)Py_TYPE(model));
        goto bad;
    } else {
        Py_INCREF(model);
        o->model = model;
        Py_BEGIN_ALLOW_THREADS
        st = sn_compile(((ModelObject *)model)->model, &options, &o->program, &err);
        Py_END_ALLOW_THREADS
    }
    if (!st) return (PyObject *)o;
    core_raise(s, &err);
bad:
    Py_DECREF(o);
    return NULL;
}

static void program_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ProgramObject *o = (ProgramObject *)self;
    sn_program_free(o->program);
    Py_XDECREF(o->model);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Tensors of one call: on the stack when there are few. */
enum { FEW = 8 };
typedef struct Args {
    sn_tensor *t, few_t[FEW];
    Held *held, few_held[FEW];
    Py_ssize_t n, borrowed;
} Args;

static int args_room(Args *a, Py_ssize_t n)
{
    a->n = n;
    a->borrowed = 0;
    a->t = n <= FEW ? a->few_t : PyMem_Malloc((size_t)n * sizeof *a->t);
    a->held = n <= FEW ? a->few_held : PyMem_Malloc((size_t)n * sizeof *a->held);
    if (a->t && a->held) return 0;
    a->n = 0;
    PyErr_NoMemory();
    return -1;
}

static void args_free(Args *a)
{
    for (Py_ssize_t i = 0; i < a->borrowed; i++) tensor_return(&a->held[i]);
    if (a->t != a->few_t) PyMem_Free(a->t);
    if (a->held != a->few_held) PyMem_Free(a->held);
}

/* items: a tuple; with skip_none, None leaves a tensor empty. */
static int args_borrow(Args *a, const ProgramObject *o, const CoreState *s, PyObject *items, PyObject *adapt, bool results)
{
    for (Py_ssize_t i = 0; i < a->n; i++) {
        PyObject *x = PyTuple_GetItem(items, i);
        if (results && x == Py_None) {
            memset(&a->t[i], 0, sizeof a->t[i]);
            memset(&a->held[i], 0, sizeof a->held[i]);
        } else if (tensor_borrow(s, o->program, x, adapt, i, results, &a->t[i], &a->held[i])) {
            return -1;
        }
        a->borrowed++;
    }
    return 0;
}

static PyObject *run_results(const CoreState *s, Args *out, PyObject *self)
{
    PyObject *list = PyList_New(out->n);
    for (Py_ssize_t i = 0; list && i < out->n; i++) {
        PyObject *item;
        if (out->t[i].owner) {
            item = tensor_own(s, &out->t[i], self);
            if (item) out->t[i].owner = NULL;
        } else if (out->held[i].dtype != out->t[i].dtype) {
            item = PyErr_Format(s->error[SN_INVALID], "output %zd is of dtype %s, what it was to be written to is of %s", i, sn_dtype_name(out->t[i].dtype),
                sn_dtype_name(out->held[i].dtype));
        } else if (out->t[i].buffer) {  /* in the caller's memory on the device */
            item = Py_NewRef(Py_None);
        } else {                        /* in the caller's buffer: its shape */
            item = PyTuple_New(out->t[i].rank);
            for (int k = 0; item && k < out->t[i].rank; k++) PyTuple_SetItem(item, k, PyLong_FromLongLong(out->t[i].dims[k]));
        }
        if (item) PyList_SetItem(list, i, item);
        else Py_CLEAR(list);
    }
    for (Py_ssize_t i = 0; i < out->n; i++) sn_tensor_release(&out->t[i]);
    return list;
}

/* run(inputs, outputs, flag, adapt_input, adapt_output): outputs a tuple of None or writable buffers, or None; flag a Flag or None. Results: a Tensor for each
 * output that was None, for the others the shape, or None where they lie on the device. */
static PyObject *program_run(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    ProgramObject *o = (ProgramObject *)self;
    CoreState *s = core_state(self);
    int nout = sn_model_output_count(sn_program_model(o->program));
    if (n != 5 || !PyTuple_Check(args[0]) || (args[1] != Py_None && !PyTuple_Check(args[1])) || (args[2] != Py_None && Py_TYPE(args[2]) != s->flag)) {
        PyErr_SetString(PyExc_TypeError, "run(inputs, outputs, flag, adapt_input, adapt_output)");
        return NULL;
    }
    if (args[1] != Py_None) nout = (int)PyTuple_Size(args[1]);
    FlagObject own = { .stop = 0 }, *flag = args[2] == Py_None ? &own : (FlagObject *)args[2];
    Args in, out;
    PyObject *result = NULL;
    if (args_room(&in, PyTuple_Size(args[0]))) return NULL;
    if (args_room(&out, nout)) goto free_in;
    if (args_borrow(&in, o, s, args[0], args[3], false)) goto free_out;
    if (args[1] == Py_None) memset(out.t, 0, sizeof *out.t * (size_t)nout);
    else if (args_borrow(&out, o, s, args[1], args[4], true)) goto free_out;
    bool far = false;                   /* results stay where inputs lie */
    for (Py_ssize_t i = 0; i < in.n; i++) far |= in.t[i].buffer != NULL;
    for (int i = 0; i < nout; i++) out.t[i].on_device = far;
    for (;;) {
        sn_error err;
        sn_status st;
        bool watched = watch_begin(s, &flag->stop);
        Py_BEGIN_ALLOW_THREADS
        st = sn_run_cancellable(o->program, &flag->stop, (int)in.n, in.t, nout, out.t, &err);
        Py_END_ALLOW_THREADS
        if (watched && watch_end()) {
            flag->stop = 0;
            if (flag->asked) flag->stop = 1;         /* meanwhile by another thread */
            if (PyErr_CheckSignals()) {
                for (int i = 0; !st && i < nout; i++) sn_tensor_release(&out.t[i]);
                break;
            }
        }
        if (st == SN_CANCELLED && !flag->asked) continue;            /* by a signal, perhaps on the thread of another run with this flag */
        result = st ? core_raise(s, &err) : run_results(s, &out, self);
        break;
    }
free_out:
    args_free(&out);
free_in:
    args_free(&in);
    return result;
}

/* Inputs that may be pairs (dtype number, sizes) without data. */
static int args_borrow_shapes(Args *a, sn_program *program, const CoreState *s, PyObject *items, PyObject *adapt)
{
    for (Py_ssize_t i = 0; i < a->n; i++) {
        PyObject *x = PyTuple_GetItem(items, i), *dims;
        sn_tensor *t = &a->t[i];
        if (PyTuple_Check(x) && PyTuple_Size(x) == 2 && PyTuple_Check(dims = PyTuple_GetItem(x, 1))) {
            memset(t, 0, sizeof *t);
            memset(&a->held[i], 0, sizeof a->held[i]);
            Py_ssize_t rank = PyTuple_Size(dims);
            if (rank > SN_MAX_RANK) {
                PyErr_Format(s->error[SN_INVALID], "input %zd has %zd axes, wanted %d at most", i, rank, SN_MAX_RANK);
                return -1;
            }
            t->dtype = (sn_dtype)PyLong_AsLong(PyTuple_GetItem(x, 0));
            t->rank = (int)rank;
            for (int k = 0; k < rank; k++) t->dims[k] = PyLong_AsLongLong(PyTuple_GetItem(dims, k));
            if (PyErr_Occurred()) return -1;
        } else if (tensor_borrow(s, program, x, adapt, i, 0, t, &a->held[i])) {
            return -1;
        }
        a->borrowed++;
    }
    return 0;
}

static PyObject *model_export(PyObject *self, PyObject *args)
{
    CoreState *s = core_state(self);
    PyObject *path, *inputs, *ranges, *adapt, *result = NULL, *file = NULL;
    const char *isa, *compiler, *rules, *allow;
    int weights, threads;
    sn_range *range = NULL;
    Args in;
    sn_error err;
    sn_status st;
    if (!PyArg_ParseTuple(args, "OziiO!O!zOzz", &path, &isa, &weights, &threads, &PyTuple_Type, &inputs, &PyTuple_Type, &ranges, &compiler, &adapt, &rules, &allow)) return NULL;
    Py_ssize_t nrange = PyTuple_Size(ranges);
    if (args_room(&in, PyTuple_Size(inputs))) return NULL;
    if (args_borrow_shapes(&in, NULL, s, inputs, adapt) || !PyUnicode_FSConverter(path, &file)) goto done;
    if (!(range = PyMem_Calloc((size_t)nrange + 1, sizeof *range))) { PyErr_NoMemory(); goto done; }
    for (Py_ssize_t i = 0; i < nrange; i++) {
        long long least;
        if (!PyArg_ParseTuple(PyTuple_GetItem(ranges, i), "sL", &range[i].name, &least)) goto done;
        range[i].least = least;
    }
    const sn_export_options o = { .isa = isa, .weights = (sn_weights)weights, .threads = threads, .nin = (int)in.n, .in = in.t, .nrange = (int)nrange, .range = range,
        .compiler = compiler, .rules = rules, .allow = allow };
    const char *to = PyBytes_AsString(file);
    Py_BEGIN_ALLOW_THREADS
    st = sn_export(((ModelObject *)self)->model, to, &o, &err);
    Py_END_ALLOW_THREADS
    result = st ? core_raise(s, &err) : Py_NewRef(Py_None);
done:
    PyMem_Free(range);
    Py_XDECREF(file);
    args_free(&in);
    return result;
}

/* prepare(inputs, adapt): inputs are tensors, or pairs (dtype number, sizes) that have no data. prepare(inputs, adapt, runs): tensors, and measures so many runs. */
static PyObject *program_prepare(PyObject *self, PyObject *args)
{
    ProgramObject *o = (ProgramObject *)self;
    CoreState *s = core_state(self);
    PyObject *inputs, *adapt, *result = NULL;
    int runs = 0;
    Args in;
    if (!PyArg_ParseTuple(args, "O!O|i", &PyTuple_Type, &inputs, &adapt, &runs) || args_room(&in, PyTuple_Size(inputs))) return NULL;
    if (args_borrow_shapes(&in, o->program, s, inputs, adapt)) goto done;
    for (;;) {
        sn_error err;
        sn_status st;
        bool watched = watch_begin(s, &o->stop);
        Py_BEGIN_ALLOW_THREADS
        st = runs ? sn_profile(o->program, (int)in.n, in.t, runs, &err) : sn_prepare(o->program, (int)in.n, in.t, &err);
        Py_END_ALLOW_THREADS
        if (watched && watch_end()) {
            o->stop = 0;
            if (PyErr_CheckSignals()) break;
        }
        if (st == SN_CANCELLED) continue;            /* only a signal sets this flag, perhaps one of another thread's call */
        result = st ? core_raise(s, &err) : Py_NewRef(Py_None);
        break;
    }
done:
    args_free(&in);
    return result;
}

/* put(array, adapt): a copy of a row-major array on the program's device, a Tensor. */
static PyObject *program_put(PyObject *self, PyObject *args)
{
    ProgramObject *o = (ProgramObject *)self;
    CoreState *s = core_state(self);
    PyObject *array, *adapt, *result = NULL;
    sn_tensor t;
    Held held;
    sn_error err;
    sn_status st;
    if (!PyArg_ParseTuple(args, "OO", &array, &adapt) || tensor_borrow(s, NULL, array, adapt, 0, 0, &t, &held)) return NULL;
    sn_tensor made = t;
    made.data = NULL;
    made.bytes = sn_dtype_size(t.dtype);
    for (int k = 0; k < t.rank; k++) made.bytes *= (size_t)t.dims[k];
    if (t.has_strides) {
        PyErr_SetString(PyExc_ValueError, "a row-major array is wanted");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    st = sn_buffer_new(o->program, made.bytes, &made.buffer, &err);
    if (!st && made.bytes) st = sn_buffer_write(made.buffer, 0, t.data, made.bytes, &err);
    Py_END_ALLOW_THREADS
    made.owner = made.buffer;
    result = st ? core_raise(s, &err) : tensor_own(s, &made, self);
    if (!result) sn_buffer_free(made.buffer);
done:
    tensor_return(&held);
    return result;
}

static PyObject *program_explain(PyObject *self, PyObject *json)
{
    char *text = NULL;
    sn_error err;
    int on = PyObject_IsTrue(json);
    if (on < 0) return NULL;
    if (sn_program_explain(((ProgramObject *)self)->program, on ? SN_EXPLAIN_JSON : SN_EXPLAIN_TEXT, &text, &err)) return core_raise(core_state(self), &err);
    PyObject *s = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    sn_string_free(text);
    return s;
}

static PyObject *program_place(PyObject *self, void *unused)
{
    (void)unused;
    int32_t type, id;
    sn_program_place(((ProgramObject *)self)->program, &type, &id);
    return Py_BuildValue("(ii)", type, id);
}

static PyObject *program_compiling(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(sn_program_compiling(((ProgramObject *)self)->program));
}

static PyObject *program_variants(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(sn_program_variants(((ProgramObject *)self)->program));
}

static PyMethodDef program_methods[] = {
    { "run", (PyCFunction)(void (*)(void))program_run, METH_FASTCALL, "run(inputs, outputs, flag, adapt_input, adapt_output) -> list" },
    { "prepare", program_prepare, METH_VARARGS, "prepare(inputs, adapt, runs=0)" },
    { "put", program_put, METH_VARARGS, "put(array, adapt) -> Tensor on the program's device" },
    { "explain", program_explain, METH_O, "explain(json) -> str" },
    { 0 } };
static PyGetSetDef program_get[] = {
    { "variants", program_variants, NULL, "How many sets of kernels were compiled.", NULL },
    { "compiling", program_compiling, NULL, "Whether kernels are being compiled in the background.", NULL },
    { "place", program_place, NULL, "DLPack's device type and number of the device where its arrays may lie.", NULL },
    { "inputs", model_inputs, NULL, "Inputs: tuples (name, dtype number, sizes).", NULL },
    { "outputs", model_outputs, NULL, "Outputs: tuples (name, dtype number, sizes).", NULL },
    { "metadata", model_metadata, NULL, "Pairs (key, value): what the file says about itself, then its own.", NULL },
    { 0 } };
static PyType_Slot program_slots[] = {
    { Py_tp_doc, "Program(model, threads=0, fuse=True, check=False, interpret=False, cache=None, compiler=None, device=None, package=None, background=False, rules=None, allow=None)" }, { Py_tp_new, program_new },
    { Py_tp_dealloc, program_dealloc }, { Py_tp_methods, program_methods }, { Py_tp_getset, program_get }, { 0 } };
PyType_Spec core_program_spec = { "sinter._core.Program", sizeof(ProgramObject), 0, Py_TPFLAGS_DEFAULT, program_slots };
