"""Arrays on a device: made there, results that stay there, tensors of others by DLPack, in place. SN_TEST_DEVICES: a comma list of devices; "cuda" is the driver made for
tests, whose memory is the host's, so that NumPy's arrays can pass for tensors of a card."""
import ctypes
import gc
import os
import unittest

import numpy as np

import sinter

DEVICES = os.environ.get("SN_TEST_DEVICES", "cpu").split(",")


class Capsule(ctypes.Structure):       # DLManagedTensor, up to the device
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("rank", ctypes.c_int32)]


def inside(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.POINTER(Capsule), [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, b"dltensor").contents


class Tensor:
    """A NumPy array that says it lies on a card."""
    def __init__(self, array, number=0):
        self.array, self.number, self.streams = array, number, []

    def __dlpack_device__(self):
        return 2, self.number

    def __dlpack__(self, stream=None, **words):
        self.streams.append(stream)
        capsule = self.array.__dlpack__()
        inside(capsule).type, inside(capsule).id = 2, self.number
        return capsule


class Row(ctypes.Structure):           # DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("dims", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class Table(ctypes.Structure):         # DLPackExchangeAPI
    FROM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Row))
    STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("other", ctypes.c_void_p), ("unused", ctypes.c_void_p * 3), ("tensor_from", FROM), ("stream", STREAM)]


class Quick(Tensor):
    """One whose type offers DLPack's table of functions."""
    stream, asked = None, 0

    def fill(self, to):
        Quick.asked += 1
        if self.array.ndim > 2:
            return -1
        self.sizes = (ctypes.c_int64 * 4)(*self.array.shape)
        to[0] = Row(self.array.ctypes.data, 2, self.number, self.array.ndim, 2, 32, 1, self.sizes, None, 0)
        return 0

    def current(kind, number, to):
        to[0] = Quick.stream
        return 0

    table = Table(1, 3, None, (ctypes.c_void_p * 3)(), Table.FROM(fill), Table.STREAM(current))
    newer = Table(2, 0, ctypes.addressof(table), (ctypes.c_void_p * 3)(), Table.FROM(), Table.STREAM())
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    __dlpack_c_exchange_api__ = make(ctypes.addressof(newer), b"dlpack_exchange_api", None)


def program(device, op, *dtypes, shape=("n", "m"), **attributes):
    g = sinter.Graph()
    g.output("y", g.op(op, *(g.input(f"x{i}", t, shape) for i, t in enumerate(dtypes)), **attributes))
    return sinter.compile(g, device=device)


X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Everywhere(unittest.TestCase):
    def each(self):
        for device in DEVICES:
            with self.subTest(device):
                yield device

    def test_put_and_keep(self):
        for device in self.each():
            p = program(device, "Sub", "f32", "f32")
            a, b = p.put(X), p.put(np.ones((3, 4), np.float32))
            self.assertEqual((a.shape, a.dtype, a.device), ((3, 4), np.float32, p.device))
            np.testing.assert_array_equal(a.numpy(), X)
            y = p(a, b)
            if device == "cpu":         # no memory of its own: results are the host's
                self.assertIsInstance(y, np.ndarray)
            else:
                self.assertIsInstance(y, sinter.DeviceArray)
                self.assertRegex(repr(y), r"<DeviceArray float32\[3, 4\] on " + device)
                self.assertEqual(np.asarray(y).dtype, np.float32)
                self.assertEqual(p.device, device + ":0")
            np.testing.assert_array_equal(np.asarray(p(y, b)), X - 2)
            np.testing.assert_array_equal(np.asarray(p(y, np.ones((3, 4), np.float32))), X - 2)          # one there, one on the host
            self.assertIsInstance(p(X, X), np.ndarray)

    def test_out(self):
        for device in self.each():
            p = program(device, "Sub", "f32", "f32")
            a, b, room = p.put(X), p.put(np.ones((3, 4), np.float32)), p.put(np.zeros((3, 4), np.float32))
            self.assertIs(p(a, b, out=[room]), room)
            np.testing.assert_array_equal(room.numpy(), X - 1)
            self.assertIs(p(room, b, out=[room]), room)
            np.testing.assert_array_equal(room.numpy(), X - 2)
            host = np.zeros((3, 4), np.float32)
            p(room, b, out=[host])
            np.testing.assert_array_equal(host, X - 3)
            with self.assertRaisesRegex(sinter.InvalidArgument, "48 bytes"):
                p(a, b, out=[p.put(np.zeros(3, np.float32))])

    def test_dtypes_and_shapes(self):
        for device in self.each():
            p = program(device, "Neg", "f32", shape=())
            np.testing.assert_array_equal(np.asarray(p(p.put(np.float32(3)))), np.float32(-3))
            p = program(device, "Neg", "i64", shape=["n"])
            self.assertEqual(np.asarray(p(p.put(np.zeros(0, np.int64)))).shape, (0,))
            np.testing.assert_array_equal(np.asarray(p(p.put(np.array([1, -2])[::-1]))), [2, -1])
            try:
                import ml_dtypes
            except ImportError:
                continue
            p = program(device, "Neg", "bf16", shape=["n"])
            y = np.asarray(p(p.put(np.array([1, 2.5], ml_dtypes.bfloat16))))
            self.assertEqual((y.dtype, y.tolist()), (ml_dtypes.bfloat16, [-1, -2.5]))

    def test_after_the_program(self):
        for device in self.each():
            p = program(device, "Neg", "f32")
            y = p(p.put(X))
            del p
            gc.collect()
            np.testing.assert_array_equal(np.asarray(y), -X)

    def test_result_of_an_input(self):
        for device in self.each():
            g = sinter.Graph()
            x = g.input("x", "f32", ["n"])
            g.output("same", x)
            g.output("y", g.op("Neg", x))
            g.output("k", g.const(np.array([1, 2], np.float32)))
            p = sinter.compile(g, device=device)
            same, y, k = p(p.put(X[0]))
            np.testing.assert_array_equal(np.asarray(same), X[0])
            np.testing.assert_array_equal(np.asarray(y), -X[0])
            np.testing.assert_array_equal(np.asarray(k), [1, 2])

    def test_sizes_from_data(self):
        for device in self.each():
            g = sinter.Graph()
            x = g.input("x", "f32", ["n", "m"])
            g.output("y", g.op("NonZero", x))
            g.output("z", g.op("Neg", x))
            p = sinter.compile(g, device=device)
            for k in range(2):
                y, z = p(p.put(X - k))
                np.testing.assert_array_equal(np.asarray(y), np.nonzero(X - k))
                np.testing.assert_array_equal(np.asarray(z), k - X)

    def test_checked_and_interpreted(self):
        for device in self.each():
            for way in ({"check": True}, {"interpret": True}, {"fuse": False}):
                g = sinter.Graph()
                g.output("y", g.op("Softmax", g.op("Exp", g.input("x", "f32", ["n", "m"]))))
                p = sinter.compile(g, device=device, **way)
                e = np.exp(np.exp(X / 12) - np.exp(X / 12).max(1, keepdims=True))
                np.testing.assert_allclose(np.asarray(p(p.put(X / 12))), e / e.sum(1, keepdims=True), rtol=1e-5)

    def test_failures_keep_nothing(self):
        for device in self.each():
            g = sinter.Graph()
            g.output("y", g.op("Gather", g.input("x", "f32", ["n", "m"]), g.input("i", "i64", ["k"])))
            p = sinter.compile(g, device=device)
            x, bad, good = p.put(np.ones((1 << 8, 1 << 10), np.float32)), p.put(np.full(1 << 8, 5000)), p.put(np.zeros(1 << 8, np.int64))
            for _ in range(20):         # results of 1 MiB
                with self.assertRaisesRegex(sinter.InvalidArgument, "5000"):
                    p(x, bad)
            self.assertEqual(np.asarray(p(x, good)).sum(), 1 << 18)

    def test_wrong_dtype_of_a_result(self):
        for device in self.each():
            p = program(device, "Neg", "f32")
            for room in (np.zeros((3, 4)), p.put(np.zeros((3, 4)))):
                with self.assertRaisesRegex(sinter.InvalidArgument, "output 0 is of dtype f32, what it was to be written to is of f64"):
                    p(p.put(X), out=[room])


@unittest.skipUnless("opencl" in DEVICES, "no OpenCL device")
class NoAddresses(unittest.TestCase):
    def test_dlpack(self):
        p = program("opencl", "Neg", "f32")
        y = p(p.put(X))
        with self.assertRaisesRegex(BufferError, "no addresses"):
            y.__dlpack__()
        np.testing.assert_array_equal(program("opencl", "Neg", "f32")(np.asarray(y)), X)


@unittest.skipUnless("cuda" in DEVICES, "no CUDA device")
class Others(unittest.TestCase):
    def test_in_and_out(self):
        p = program("cuda", "Sub", "f32", "f32")
        a, b = Tensor(X.copy()), Tensor(np.ones((3, 4), np.float32))
        y = p(a, b)
        self.assertIsInstance(y, sinter.DeviceArray)
        np.testing.assert_array_equal(y.numpy(), X - 1)
        self.assertEqual(a.streams, [1])
        a.array[0, 0] = 100             # it is read where it lies
        self.assertEqual(p(a, b).numpy()[0, 0], 99)
        room = Tensor(np.zeros((3, 4), np.float32))
        self.assertIs(p(y, b, out=[room]), room)
        np.testing.assert_array_equal(room.array, X - 2)
        self.assertIs(p(room, b, out=[room]), room)
        np.testing.assert_array_equal(room.array, X - 3)

    def test_table(self):
        p = program("cuda", "Sub", "f32", "f32")
        Quick.asked = 0
        a, b, room = Quick(X.copy()), Quick(np.ones((3, 4), np.float32)), Quick(np.zeros((3, 4), np.float32))
        self.assertIs(p(a, b, out=[room]), room)
        np.testing.assert_array_equal(room.array, X - 1)
        self.assertEqual((a.streams, Quick.asked), ([], 3))
        driver = ctypes.CDLL("libcuda.so.1")
        driver.fake_followed.restype = ctypes.c_void_p
        self.assertIsNone(driver.fake_followed())
        Quick.stream = 1 << 20          # another stream is followed
        np.testing.assert_array_equal(p(a, b).numpy(), X - 1)
        self.assertEqual((a.streams, driver.fake_followed()), ([], 1 << 20))
        Quick.stream = None
        a.requires_grad = True
        np.testing.assert_array_equal(p(a, b).numpy(), X - 1)
        self.assertEqual(a.streams, [1])
        deep = Quick(X.reshape(3, 2, 2).copy())         # the table declines
        np.testing.assert_array_equal(program("cuda", "Neg", "f32", shape=("n", "m", "k"))(deep).numpy(), -deep.array)
        self.assertEqual(deep.streams, [1])
        with self.assertRaisesRegex(sinter.InvalidArgument, "lies on cuda:1"):
            p(Quick(X.copy(), 1), b)

    def calls_of(self, run, n=10):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.fake_calls.restype = ctypes.c_long
        before = driver.fake_calls()
        for _ in range(n):
            run()
        return (driver.fake_calls() - before) / n

    def test_calls_of_the_driver(self):
        p = program("cuda", "Sub", "f32", "f32")
        a, b, rooms = Quick(X.copy()), Quick(np.ones((3, 4), np.float32)), [Quick(np.zeros((3, 4), np.float32)) for _ in range(50)]
        p(a, b), p(a, b, out=[rooms[0]])
        self.assertLessEqual(self.calls_of(lambda: p(a, b, out=[rooms[0]])), 3)                  # the context, the kernel, the wait
        self.assertLessEqual(self.calls_of(lambda: p(a, b, out=[rooms.pop()])), 3)              # and the same where addresses are new
        self.assertLessEqual(self.calls_of(lambda: p(a, b)), 5)                                  # a result: the one that was given back, once nobody works on it
        g = sinter.Graph()
        y = g.op("Softmax", g.op("CumSum", g.input("x", "f32", ["n", "m"]), g.const(np.int64(0))))
        g.output("y", g.op("Transpose", y, perm=[1, 0]))
        chain = sinter.compile(g, device="cuda")
        one, to = Quick(X.copy()), [Quick(np.zeros((4, 3), np.float32)) for _ in range(50)]
        for _ in range(4):
            chain(one, out=[to[0]])
        launches = len(chain.explain().kernels)
        self.assertGreater(launches, 1)
        self.assertLessEqual(self.calls_of(lambda: chain(one, out=[to[0]])), 3)                  # replayed
        self.assertLessEqual(self.calls_of(lambda: chain(one, out=[to.pop()])), 2 + launches)    # nothing is recorded for addresses that come once
        for _ in range(4):
            np.testing.assert_allclose(chain(one, out=[to[0]]).array.sum(0), np.ones(3), rtol=1e-6)

    def test_given_on(self):
        p = program("cuda", "Neg", "f32")
        y = p(Tensor(X.copy()))
        self.assertEqual(y.__dlpack_device__(), (2, 0))
        capsule = y.__dlpack__(stream=2, max_version=(1, 0))
        at = inside(capsule)
        self.assertEqual((at.type, at.id, at.rank), (2, 0, 2))
        number = ctypes.cast(at.data, ctypes.POINTER(ctypes.c_float))
        del y, p                        # the capsule keeps the memory and the device
        gc.collect()
        self.assertEqual([number[k] for k in range(12)], (-X).ravel().tolist())
        del capsule
        other = program("cuda", "Neg", "f32")
        first = program("cuda", "Neg", "f32")
        np.testing.assert_array_equal(other(first(Tensor(X.copy()))).numpy(), X)

    def test_views(self):
        p = program("cuda", "Neg", "f32")
        rows = Tensor(X[1:])            # it begins at an offset
        np.testing.assert_array_equal(p(rows).numpy(), -X[1:])
        one = Tensor(X.T[:1].T)         # strides of axes of one mean nothing, others do
        with self.assertRaisesRegex(sinter.InvalidArgument, "input 'x0' lies in a buffer and has strides"):
            p(one)
        with self.assertRaisesRegex(sinter.InvalidArgument, "'x0' is f32\\[3\\], wanted f32\\[n,m\\]"):
            p(Tensor(X[:, 0].copy()))
        self.assertEqual(p(Tensor(np.zeros((0, 4), np.float32))).shape, (0, 4))

    def test_elsewhere(self):
        with self.assertRaisesRegex(sinter.InvalidArgument, "input 'x0' lies on cuda:0; it can be taken from there by a program that runs there"):
            program(None, "Neg", "f32")(Tensor(X))
        p = program("cuda", "Neg", "f32")
        with self.assertRaisesRegex(sinter.InvalidArgument, "input 'x0' lies on cuda:1"):
            p(Tensor(X, 1))
        with self.assertRaisesRegex(sinter.InvalidArgument, "output 0 is to lie on cuda:1"):
            p(X, out=[Tensor(X.copy(), 1)])

    def test_shape_from_a_value(self):
        g = sinter.Graph()
        g.output("y", g.op("Reshape", g.input("x", "f32", ["n"]), g.input("shape", "i64", [2])))
        p = sinter.compile(g, device="cuda")
        y = p(Tensor(X.ravel().copy()), Tensor(np.array([4, 3])))
        np.testing.assert_array_equal(y.numpy(), X.reshape(4, 3))

    def test_memory_is_given_back(self):
        p = program("cuda", "Neg", "f32")
        x = Tensor(np.zeros((1 << 10, 1 << 10), np.float32))
        for _ in range(6):              # results of 4 MiB, of 16 that there are
            p(x)
        with self.assertRaisesRegex(sinter.NoMemory, "bytes are wanted, "):
            kept = [p(x) for _ in range(6)]
        del x


if __name__ == "__main__":
    unittest.main()
