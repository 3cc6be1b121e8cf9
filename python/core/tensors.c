/* Tensors between Python and the library, without copies.
 *
 * In: the buffer protocol (NumPy arrays, memoryview, array.array), DLPack (PyTorch and others). A Python function has the
 * rest: it gives memory and the number of its dtype, for the types that neither protocol can name. Out: a Tensor object, which owns the memory, exports it as a flat buffer of bytes, and as DLPack. */
#include "core.h"

#include <stdbool.h>
#include <string.h>

/* ---- DLPack: the layout that its specification fixes ------------------------------------------------------------------ */

enum { DL_CPU = 1, DL_CUDA_HOST = 3 };
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

static int borrow_dlpack(PyObject *object, sn_tensor *t, Held *h)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (!method) { PyErr_Clear(); return 0; }
    PyObject *capsule = PyObject_CallNoArgs(method);
    Py_DECREF(method);
    if (!capsule) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear();
        return 0;
    }
    DlManaged *m = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    int done = 0;
    if (m && (m->tensor.device.type == DL_CPU || m->tensor.device.type == DL_CUDA_HOST) && m->tensor.rank <= SN_MAX_RANK && m->tensor.dtype.lanes == 1) {
        const DlTensor *d = &m->tensor;
        for (int i = 0; i < DL_TYPES; i++) if (dl_types[i].code == d->dtype.code && dl_types[i].bits == d->dtype.bits) t->dtype = dl_types[i].dtype;
        if (t->dtype && PyCapsule_SetName(capsule, "used_dltensor") == 0) {
            t->rank = d->rank;
            t->has_strides = d->strides != NULL;
            for (int k = 0; k < d->rank; k++) {
                t->dims[k] = d->dims[k];
                if (d->strides) t->strides[k] = d->strides[k];
            }
            t->data = d->data ? (char *)d->data + d->offset : NULL;
            h->managed = m;
            h->object = object;
            Py_INCREF(object);
            done = 1;
        }
    }
    Py_DECREF(capsule);
    return done;
}

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

int tensor_borrow(PyObject *object, PyObject *adapt, Py_ssize_t index, int writable, sn_tensor *t, Held *h)
{
    memset(t, 0, sizeof *t);
    memset(h, 0, sizeof *h);
    int done = borrow_buffer(object, SN_NONE, writable, t, h);
    if (done == 0 && !writable) done = borrow_dlpack(object, t, h);
    if (done) return done == 1 ? 0 : -1;
    PyObject *pair = PyObject_CallFunction(adapt, "On", object, index);
    if (!pair) return -1;
    done = borrow_pair(pair, writable, t, h);
    Py_DECREF(pair);
    return done;
}

void tensor_return(Held *h)
{
    if (h->view.obj) PyBuffer_Release(&h->view);
    if (h->managed && h->managed->release) h->managed->release(h->managed);
    Py_CLEAR(h->object);
    h->managed = NULL;
}

/* ---- out: the type Tensor ------------------------------------------------------------------------------------------------------ */

typedef struct TensorObject { PyObject_HEAD sn_tensor t; } TensorObject;

PyObject *tensor_own(const CoreState *s, const sn_tensor *t)
{
    TensorObject *o = PyObject_New(TensorObject, s->tensor);
    if (o) o->t = *t;
    return (PyObject *)o;
}

static void tensor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    sn_tensor_release(&((TensorObject *)self)->t);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int tensor_buffer(PyObject *self, Py_buffer *view, int flags)
{
    sn_tensor *t = &((TensorObject *)self)->t;
    return PyBuffer_FillInfo(view, self, t->data, (Py_ssize_t)t->bytes, 0, flags);
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
    (void)args, (void)kwargs;           /* stream, max_version, dl_device, copy: the first form of the capsule serves every reader */
    const sn_tensor *t = &((TensorObject *)self)->t;
    int i = 0;
    while (i < DL_TYPES && dl_types[i].dtype != t->dtype) i++;
    if (i == DL_TYPES) return PyErr_Format(PyExc_BufferError, "DLPack has no form for the dtype %s", sn_dtype_name(t->dtype));
    Exported *e = PyMem_Malloc(sizeof *e);
    if (!e) return PyErr_NoMemory();
    memset(e, 0, sizeof *e);
    memcpy(e->dims, t->dims, sizeof e->dims);
    e->m.tensor.data = t->data;
    e->m.tensor.device.type = DL_CPU;
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
    (void)self, (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyGetSetDef tensor_get[] = {
    { "dtype", tensor_dtype, NULL, "Number of the dtype, as in ONNX's TensorProto.", NULL },
    { "shape", tensor_shape, NULL, "Sizes, a tuple.", NULL },
    { 0 } };
static PyMethodDef tensor_methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS, "A DLPack capsule of the memory, which is not copied." },
    { "__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "(1, 0): the CPU." },
    { 0 } };
static PyType_Slot tensor_slots[] = {
    { Py_tp_doc, "A result: its memory, exported as bytes (buffer protocol) and as DLPack." },
    { Py_tp_dealloc, tensor_dealloc }, { Py_tp_getset, tensor_get }, { Py_tp_methods, tensor_methods }, { Py_bf_getbuffer, tensor_buffer }, { 0 } };
PyType_Spec core_tensor_spec = { "sinter._core.Tensor", sizeof(TensorObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tensor_slots };
