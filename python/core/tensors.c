/* Tensors between Python and the library, without copies.
 *
 * In: the buffer protocol (NumPy arrays, memoryview, array.array), DLPack (PyTorch and others; also from the device that a program runs on). A Python function has the
 * rest: it gives memory and the number of its dtype, for the types that neither protocol can name. Out: a Tensor object, which owns the memory and exports it as DLPack and,
 * on the host, as a flat buffer of bytes. */
#include "core.h"

#include <stdbool.h>
#include <string.h>

/* ---- DLPack: the layout that its specification fixes ------------------------------------------------------------------ */

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

typedef struct DlTensor {
    void *data;
    struct { int32_t type, id; } device;
    int32_t rank;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *dims, *strides;            /* strides: in elements; NULL: row-major */
    uint64_t offset;                    /* in bytes */
} DlTensor;

typedef struct DlManaged {
    DlTensor tensor;
    void *owner;
    void (*release)(struct DlManaged *self);
} DlManaged;

/* The table of functions that a type may offer instead of the Python methods (DLPack 1.3; attribute __dlpack_c_exchange_api__). Older ones may follow in a chain. */
enum { DL_MAJOR = 1 };
typedef struct DlExchange {
    struct { uint32_t major, minor; } version;
    const struct DlExchange *other;
    void (*allocate)(void);             /* this and the next two are not called here */
    void (*managed_from)(void);
    void (*managed_to)(void);
    int (*tensor_from)(void *object, DlTensor *out);        /* NULL: it has none. Valid while the object is; nothing is waited for */
    int (*current_stream)(int type, int32_t id, void **stream);
} DlExchange;

static const struct { sn_dtype dtype; uint8_t code, bits; } dl_types[] = {
    { SN_F32, DL_FLOAT, 32 }, { SN_F64, DL_FLOAT, 64 }, { SN_F16, DL_FLOAT, 16 }, { SN_BF16, DL_BFLOAT, 16 },
    { SN_I8, DL_INT, 8 }, { SN_I16, DL_INT, 16 }, { SN_I32, DL_INT, 32 }, { SN_I64, DL_INT, 64 },
    { SN_U8, DL_UINT, 8 }, { SN_U16, DL_UINT, 16 }, { SN_U32, DL_UINT, 32 }, { SN_U64, DL_UINT, 64 }, { SN_BOOL, DL_BOOL, 8 },
};
enum { DL_TYPES = sizeof dl_types / sizeof dl_types[0] };

/* ---- in: buffers -------------------------------------------------------------------------------------------------------- */

/* The dtype of a format of the struct module; SN_NONE for those that are no single number in the machine's byte order. */
static sn_dtype dtype_of_format(const char *f, Py_ssize_t size)
{
    if (!f) return SN_U8;
    if (*f == '@' || *f == '=' || *f == '<') f++;
    if (!*f || f[1]) return SN_NONE;
    switch (*f) {
    case '?': return SN_BOOL;
    case 'e': return SN_F16;
    case 'f': return SN_F32;
    case 'd': return SN_F64;
    case 'b': case 'h': case 'i': case 'l': case 'q': case 'n':
        return size == 1 ? SN_I8 : size == 2 ? SN_I16 : size == 4 ? SN_I32 : size == 8 ? SN_I64 : SN_NONE;
    case 'B': case 'H': case 'I': case 'L': case 'Q': case 'N':
        return size == 1 ? SN_U8 : size == 2 ? SN_U16 : size == 4 ? SN_U32 : size == 8 ? SN_U64 : SN_NONE;
    default: return SN_NONE;
    }
}

/* 1: done; 0: this buffer has no meaning here, ask somebody else; -1: an exception. */
static int borrow_buffer(PyObject *object, sn_dtype dtype, int writable, sn_tensor *t, Held *h)
{
    Py_buffer *v = &h->view;
    if (PyObject_GetBuffer(object, v, writable ? PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_FORMAT | PyBUF_STRIDES)) {
        v->obj = NULL;
        if (writable && dtype) return -1;
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear();
        return 0;
    }
    t->dtype = dtype ? dtype : dtype_of_format(v->format, v->itemsize);
    if (!t->dtype || (Py_ssize_t)sn_dtype_size(t->dtype) != v->itemsize || v->ndim > SN_MAX_RANK) goto no;
    t->rank = v->ndim;
    t->has_strides = !PyBuffer_IsContiguous(v, 'C');
    for (int k = 0; k < v->ndim; k++) {
        t->dims[k] = v->shape[k];
        if (!t->has_strides) continue;
        if (v->strides[k] % v->itemsize) goto no;
        t->strides[k] = v->strides[k] / v->itemsize;
    }
    t->data = v->buf;
    t->bytes = t->has_strides ? 0 : (size_t)v->len;
    h->object = object;
    Py_INCREF(object);
    return 1;
no:
    PyBuffer_Release(v);
    v->obj = NULL;
    return 0;
}

/* ---- in: DLPack ----------------------------------------------------------------------------------------------------------- */

/* Of a tensor without elements strides mean nothing, nor that of an axis of one. */
static bool dl_dense(const DlTensor *d)
{
    int64_t step = 1;
    bool dense = true;
    for (int k = d->rank - 1; k >= 0; k--) {
        dense &= !d->strides || d->dims[k] <= 1 || d->strides[k] == step;
        step *= d->dims[k];
    }
    return dense || !step;
}

/* Where an exporter's memory lies. false: it does not say, or with an exception. */
static bool dl_place(PyObject *object, int32_t place[2])
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    bool ok = pair && PyArg_ParseTuple(pair, "ii", &place[0], &place[1]);
    Py_XDECREF(pair);
    return ok;
}

/* CUDA: what the exporter's stream has to do comes before what the default stream (number 1) is given from now on; sn_buffer_wrap waits for that one. */
static PyObject *dl_capsule(PyObject *object, int32_t type)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0), *words = type == DL_CUDA ? Py_BuildValue("{si}", "stream", 1) : NULL, *capsule = NULL;
    if (method && none && !PyErr_Occurred()) capsule = PyObject_Call(method, none, words);
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(words);
    return capsule;
}

static sn_buffer *wrap(const CoreState *s, sn_program *program, void *at, size_t bytes)
{
    sn_buffer *b = NULL;
    sn_error err;
    sn_status st;
    Py_BEGIN_ALLOW_THREADS
    st = sn_buffer_wrap(program, at, bytes, &b, &err);
    Py_END_ALLOW_THREADS
    if (st) core_raise(s, &err);
    return b;
}

static bool dl_far(const int32_t place[2]) { return place[0] != DL_CPU && place[0] != DL_CUDA_HOST; }

static void own_place(sn_program *program, int32_t own[2])
{
    own[0] = DL_CPU;
    own[1] = 0;
    if (program) sn_program_place(program, &own[0], &own[1]);
}

/* 1: done; 0: it has no form here; -1: an exception. */
static int borrow_tensor(const CoreState *s, sn_program *program, const DlTensor *d, int writable, sn_tensor *t, Held *h)
{
    const bool far = dl_far((const int32_t[]){ d->device.type, d->device.id });
    if (d->rank > SN_MAX_RANK || d->dtype.lanes != 1) return 0;
    for (int i = 0; i < DL_TYPES; i++) if (dl_types[i].code == d->dtype.code && dl_types[i].bits == d->dtype.bits) t->dtype = dl_types[i].dtype;
    const bool dense = dl_dense(d);
    if (!t->dtype || (writable && !dense && !far)) return 0;
    size_t count = 1;
    t->rank = d->rank;
    t->has_strides = !dense;
    for (int k = 0; k < d->rank; k++) {
        count *= (size_t)(t->dims[k] = d->dims[k]);
        if (!dense) t->strides[k] = d->strides[k];
    }
    void *at = d->data ? (char *)d->data + d->offset : NULL;
    const size_t bytes = count * sn_dtype_size(t->dtype);
    if (far) {                          /* with strides: the library refuses it, by name */
        if (!(t->buffer = h->buffer = wrap(s, program, at, bytes))) return -1;
    } else {
        t->data = at;
        t->bytes = writable ? bytes : 0;
    }
    return 1;
}

static const DlExchange *dl_exchange(PyObject *object)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
    const DlExchange *x = capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api") ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    if (!capsule) PyErr_Clear();
    while (x && x->version.major != DL_MAJOR) x = x->other;
    return x && x->tensor_from && x->current_stream ? x : NULL;
}

/* PyTorch keeps such tensors from others, by its Python method only. */
static bool wants_gradient(PyObject *object)
{
    PyObject *flag = PyObject_GetAttrString(object, "requires_grad");
    const bool wants = flag && flag != Py_False;
    Py_XDECREF(flag);
    if (!flag) PyErr_Clear();
    return wants;
}

static int follow(const CoreState *s, sn_program *program, void *stream)
{
    sn_error err;
    if (!sn_program_follow(program, stream, &err)) return 0;
    core_raise(s, &err);
    return -1;
}

/* By the type's table: a tenth of a microsecond, where the Python methods take ten. Runs follow the default stream anyhow (sn_buffer_wrap), and another one where the exporter
 * works in that. */
static int borrow_exchange(const CoreState *s, sn_program *program, PyObject *object, int writable, sn_tensor *t, Held *h)
{
    const DlExchange *x = dl_exchange(object);
    int32_t own[2];
    DlTensor d;
    void *stream = NULL;
    if (!x || wants_gradient(object)) return 0;
    own_place(program, own);
    memset(&d, 0, sizeof d);
    if (x->tensor_from(object, &d)) goto no;
    if (dl_far((const int32_t[]){ d.device.type, d.device.id })) {
        if (d.device.type != own[0] || d.device.id != own[1]) return 0;
        if (x->current_stream(d.device.type, d.device.id, &stream)) goto no;
        if ((uintptr_t)stream > 1 && follow(s, program, stream)) return -1;       /* 0 and 1: the default stream */
    }
    int done = borrow_tensor(s, program, &d, writable, t, h);
    if (done == 1) h->object = Py_NewRef(object);
    return done;
no:
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();                      /* __dlpack__ says what is wrong */
    return 0;
}

static int borrow_dlpack(const CoreState *s, sn_program *program, PyObject *object, int writable, sn_tensor *t, Held *h)
{
    int32_t place[2], own[2];
    own_place(program, own);
    if (!PyObject_HasAttrString(object, "__dlpack__") || !dl_place(object, place)) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear();
        return 0;
    }
    const bool far = dl_far(place);
    if (far && (place[0] != own[0] || place[1] != own[1])) return 0;
    PyObject *capsule = dl_capsule(object, place[0]);
    if (!capsule) {
        if (far || !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear();
        return 0;
    }
    DlManaged *m = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    int done = m && m->tensor.device.type == place[0] ? borrow_tensor(s, program, &m->tensor, writable, t, h) : 0;
    if (done == 1 && PyCapsule_SetName(capsule, "used_dltensor")) done = -1;
    if (done == 1) {
        h->managed = m;
        h->object = Py_NewRef(object);
    } else {
        sn_buffer_free(h->buffer);
        h->buffer = NULL;
    }
    Py_DECREF(capsule);
    return done;
}

/* A Tensor, itself or as an array's attribute `_tensor`, that lies in a buffer of this program: also where memory has no addresses. */
static int borrow_own(const CoreState *s, sn_program *program, PyObject *object, sn_tensor *t, Held *h);

/* ---- in --------------------------------------------------------------------------------------------------------------------- */

static int borrow_pair(PyObject *pair, int writable, sn_tensor *t, Held *h)
{
    PyObject *object;
    int dtype;
    if (!PyArg_ParseTuple(pair, "Oi", &object, &dtype)) return -1;
    if (!sn_dtype_size((sn_dtype)dtype)) {
        PyErr_Format(PyExc_ValueError, "%d is the number of no dtype", dtype);
        return -1;
    }
    int done = borrow_buffer(object, (sn_dtype)dtype, writable, t, h);
    if (done == 0) PyErr_Format(PyExc_TypeError, "memory that cannot be read as dtype %s: a buffer of elements of %zu bytes is wanted", sn_dtype_name((sn_dtype)dtype),
        sn_dtype_size((sn_dtype)dtype));
    return done == 1 ? 0 : -1;
}

int tensor_borrow(const CoreState *s, sn_program *program, PyObject *object, PyObject *adapt, Py_ssize_t index, int writable, sn_tensor *t, Held *h)
{
    memset(t, 0, sizeof *t);
    memset(h, 0, sizeof *h);
    int done = PyObject_CheckBuffer(object) ? borrow_buffer(object, SN_NONE, writable, t, h) : 0;
    if (done == 0) done = borrow_exchange(s, program, object, writable, t, h);
    if (done == 0 && program) done = borrow_own(s, program, object, t, h);
    if (done == 0) {
        memset(t, 0, sizeof *t);
        done = borrow_dlpack(s, program, object, writable, t, h);
    }
    if (done == 0) {
        memset(t, 0, sizeof *t);
        PyObject *pair = PyObject_CallFunction(adapt, "On", object, index);
        if (!pair) return -1;
        done = borrow_pair(pair, writable, t, h) ? -1 : 1;
        Py_DECREF(pair);
    }
    h->dtype = t->dtype;
    return done == 1 ? 0 : -1;
}

void tensor_return(Held *h)
{
    if (h->view.obj) PyBuffer_Release(&h->view);
    sn_buffer_free(h->buffer);
    h->buffer = NULL;
    if (h->managed && h->managed->release) h->managed->release(h->managed);
    Py_CLEAR(h->object);
    h->managed = NULL;
}

/* ---- out: the type Tensor ------------------------------------------------------------------------------------------------------ */

typedef struct TensorObject {
    PyObject_HEAD
    sn_tensor t;
    PyObject *program;                  /* whose device it lies on; NULL: on the host */
} TensorObject;

PyObject *tensor_own(const CoreState *s, const sn_tensor *t, PyObject *owner)
{
    TensorObject *o = PyObject_New(TensorObject, s->tensor);
    if (!o) return NULL;
    o->t = *t;
    o->program = t->buffer ? Py_NewRef(owner) : NULL;
    return (PyObject *)o;
}

static void tensor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    TensorObject *o = (TensorObject *)self;
    sn_tensor_release(&o->t);
    Py_XDECREF(o->program);
    PyObject_Free(self);
    Py_DECREF(type);
}

static void tensor_place(const TensorObject *o, int32_t place[2])
{
    place[0] = DL_CPU;
    place[1] = 0;
    if (o->program) sn_program_place(program_of(o->program), &place[0], &place[1]);
}

static int borrow_own(const CoreState *s, sn_program *program, PyObject *object, sn_tensor *t, Held *h)
{
    PyObject *inner = Py_TYPE(object) == s->tensor ? Py_NewRef(object) : PyObject_GetAttrString(object, "_tensor");
    if (!inner) PyErr_Clear();
    const TensorObject *o = inner && Py_TYPE(inner) == s->tensor ? (TensorObject *)inner : NULL;
    if (!o || !o->program || program_of(o->program) != program) {
        Py_XDECREF(inner);
        return 0;
    }
    *t = o->t;
    t->owner = NULL;
    h->object = inner;
    return 1;
}

static int tensor_buffer(PyObject *self, Py_buffer *view, int flags)
{
    sn_tensor *t = &((TensorObject *)self)->t;
    if (!t->buffer) return PyBuffer_FillInfo(view, self, t->data, (Py_ssize_t)t->bytes, 0, flags);
    view->obj = NULL;
    PyErr_SetString(PyExc_BufferError, "this array lies on a device: numpy() copies it to the host");
    return -1;
}

/* read(into): copies it from the device into a writable buffer of as many bytes. */
static PyObject *tensor_read(PyObject *self, PyObject *into)
{
    const sn_tensor *t = &((TensorObject *)self)->t;
    Py_buffer v;
    sn_error err;
    sn_status st = SN_OK;
    if (PyObject_GetBuffer(into, &v, PyBUF_WRITABLE)) return NULL;
    if ((size_t)v.len != t->bytes) {
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes, wanted %zu", v.len, t->bytes);
        PyBuffer_Release(&v);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    if (t->buffer) st = sn_buffer_read(t->buffer, t->offset, v.buf, t->bytes, &err);
    else memcpy(v.buf, t->data, t->bytes);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&v);
    return st ? core_raise(core_state(self), &err) : Py_NewRef(Py_None);
}

static PyObject *tensor_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong((long)((TensorObject *)self)->t.dtype);
}

static PyObject *tensor_shape(PyObject *self, void *unused)
{
    (void)unused;
    const sn_tensor *t = &((TensorObject *)self)->t;
    PyObject *shape = PyTuple_New(t->rank);
    for (int k = 0; shape && k < t->rank; k++) {
        PyObject *n = PyLong_FromLongLong(t->dims[k]);
        if (!n) Py_CLEAR(shape);
        else PyTuple_SetItem(shape, k, n);
    }
    return shape;
}

static PyObject *tensor_on_device(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((TensorObject *)self)->t.buffer != NULL);
}

/* A DLPack tensor of a Tensor: it holds a reference to it. */
typedef struct Exported { DlManaged m; int64_t dims[SN_MAX_RANK]; } Exported;

static void exported_release(DlManaged *m)
{
    PyGILState_STATE gil = PyGILState_Ensure();      /* DLPack may release from any thread */
    Py_DECREF((PyObject *)m->owner);
    PyMem_Free(m);
    PyGILState_Release(gil);
}

static void capsule_release(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor")) return;            /* somebody took it over */
    DlManaged *m = PyCapsule_GetPointer(capsule, "dltensor");
    m->release(m);
}

static PyObject *tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;           /* max_version, dl_device, copy: the first form of the capsule serves every reader; stream: a run has ended when it returns */
    const sn_tensor *t = &((TensorObject *)self)->t;
    int i = 0;
    while (i < DL_TYPES && dl_types[i].dtype != t->dtype) i++;
    if (i == DL_TYPES) return PyErr_Format(PyExc_BufferError, "DLPack has no form for the dtype %s", sn_dtype_name(t->dtype));
    void *at = t->buffer ? sn_buffer_address(t->buffer) : t->data;
    if (t->buffer && !at) return PyErr_Format(PyExc_BufferError, "memory of this device has no addresses that others could use: numpy() copies it to the host");
    int32_t place[2];
    tensor_place((TensorObject *)self, place);
    Exported *e = PyMem_Malloc(sizeof *e);
    if (!e) return PyErr_NoMemory();
    memset(e, 0, sizeof *e);
    memcpy(e->dims, t->dims, sizeof e->dims);
    e->m.tensor.data = at;
    e->m.tensor.offset = t->offset;
    e->m.tensor.device.type = place[0];
    e->m.tensor.device.id = place[1];
    e->m.tensor.rank = t->rank;
    e->m.tensor.dtype.code = dl_types[i].code;
    e->m.tensor.dtype.bits = dl_types[i].bits;
    e->m.tensor.dtype.lanes = 1;
    e->m.tensor.dims = e->dims;
    e->m.owner = self;
    e->m.release = exported_release;
    PyObject *capsule = PyCapsule_New(&e->m, "dltensor", capsule_release);
    if (!capsule) PyMem_Free(e);
    else Py_INCREF(self);
    return capsule;
}

static PyObject *tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    int32_t place[2];
    tensor_place((TensorObject *)self, place);
    return Py_BuildValue("(ii)", place[0], place[1]);
}

static PyGetSetDef tensor_get[] = {
    { "dtype", tensor_dtype, NULL, "Number of the dtype, as in ONNX's TensorProto.", NULL },
    { "shape", tensor_shape, NULL, "Sizes, a tuple.", NULL },
    { "on_device", tensor_on_device, NULL, "Whether it lies in a buffer of a program's device.", NULL },
    { 0 } };
static PyMethodDef tensor_methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS, "A DLPack capsule of the memory, which is not copied." },
    { "__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "DLPack's type of the device and its number; (1, 0): the host." },
    { "read", tensor_read, METH_O, "read(into): copies it into a writable buffer of as many bytes." },
    { 0 } };
static PyType_Slot tensor_slots[] = {
    { Py_tp_doc, "A result: its memory, exported as DLPack and, on the host, as bytes (buffer protocol)." },
    { Py_tp_dealloc, tensor_dealloc }, { Py_tp_getset, tensor_get }, { Py_tp_methods, tensor_methods }, { Py_bf_getbuffer, tensor_buffer }, { 0 } };
PyType_Spec core_tensor_spec = { "sinter._core.Tensor", sizeof(TensorObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tensor_slots };
