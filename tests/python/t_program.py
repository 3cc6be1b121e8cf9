"""sinter's own interface: graphs, programs, arrays in and out, evidence, failures, threads, signals."""
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import sinter


def one_op(op, *dtypes, shape=("n", "m"), outputs=None, **attributes):
    g = sinter.Graph()
    values = [g.input(f"x{i}", t, shape) for i, t in enumerate(dtypes)]
    made = g.op(op, *values, outputs=outputs, **attributes)
    for i, v in enumerate(made if outputs else (made,)):
        g.output(f"y{i}", v)
    return sinter.compile(g, threads=1)


class Graphs(unittest.TestCase):
    def test_calls(self):
        g = sinter.Graph()
        x = g.input("x", "f32", ["n", 3, None])
        k = g.const([[1.0], [2.0], [3.0]])
        y = g.op("Mul", x, g.op("Cast", k, to="f32"))
        a, b = g.op("Split", y, axis=1, num_outputs=2, outputs=2)
        g.output("a", a)
        g.output("b", b)
        model = g.finish()
        self.assertEqual([(i.name, i.dtype, i.type, i.shape) for i in model.inputs], [("x", "f32", "tensor(float)", ["n", 3, None])])
        self.assertEqual([o.name for o in model.outputs], ["a", "b"])
        x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
        a, b = sinter.compile(model)(x)
        np.testing.assert_array_equal(a, (x * np.array([[1], [2], [3]], np.float32))[:, :2])
        np.testing.assert_array_equal(b, (x * np.float32(3))[:, 2:])

    def test_attributes(self):
        x = np.array([[3, 1, 2], [9, 7, 8]], np.float32)
        np.testing.assert_array_equal(one_op("Transpose", "f32", perm=[1, 0])(x), x.T)
        np.testing.assert_array_equal(one_op("ReduceMax", "f32", keepdims=False)(x), np.float32(9))
        np.testing.assert_allclose(one_op("LeakyRelu", "f32", alpha=0.5)(-x), -x / 2)
        np.testing.assert_array_equal(one_op("Cast", "f32", to="i64")(x), x.astype(np.int64))
        np.testing.assert_array_equal(one_op("sinter.fold", "f32", kind="sum", axes=[1], keepdims=0)(x), [6, 24])

        for to in (np.float16, np.dtype("float16"), "float16", "f16", "tensor(float16)", 10):
            self.assertEqual(one_op("Cast", "f32", to=to)(x).dtype, np.float16)
        with self.assertRaisesRegex(sinter.InvalidArgument, "'f99' is no dtype"):
            one_op("Cast", "f32", to="f99")
        with self.assertRaisesRegex(sinter.FormatError, "attribute 'axs' is unknown, wanted 'axis'"):
            one_op("Softmax", "f32", axs=0)(x)

    def test_erf_of_doubles(self):
        import math
        x = np.linspace(-6, 6, 97)
        np.testing.assert_allclose(one_op("Erf", "f64", shape=["n"])(x), [math.erf(v) for v in x], rtol=1e-14, atol=1e-300)
        np.testing.assert_allclose(one_op("Gelu", "f64", shape=["n"])(x), [v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in x], rtol=1e-13, atol=1e-15)

    def test_refusals(self):
        g, h = sinter.Graph(), sinter.Graph()
        x = g.input("x", "f32", [2])
        with self.assertRaisesRegex(sinter.InvalidArgument, "input 0 of Relu .* wanted a value of this graph"):
            h.op("Relu", x)
        with self.assertRaisesRegex(sinter.InvalidArgument, "attribute 'a' is None|attribute 'a' is <object"):
            g.op("Relu", x, a=object())
        with self.assertRaisesRegex(sinter.InvalidArgument, "wanted 0 or more"):
            g.input("z", "f32", [-2])
        with self.assertRaisesRegex(sinter.InvalidArgument, "no dtype"):
            g.input("z", "text", [2])
        with self.assertRaisesRegex(sinter.InvalidArgument, "'x' is given twice"):
            g.input("x", "f32", [2])
        with self.assertRaisesRegex(sinter.InvalidArgument, "finished"):
            g.finish()
        with self.assertRaisesRegex(sinter.Unsupported, "Nonsense"):
            one_op("Nonsense", "f32")


class Arrays(unittest.TestCase):
    def test_strides_are_read_in_place(self):
        p = one_op("Neg", "f32")
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
        for view in (x, x.T, x[::2, ::-1], x[:, 1:3], np.broadcast_to(x[0], (3, 6)), x[:0]):
            np.testing.assert_array_equal(p(view), -view)
        x.flags.writeable = False
        np.testing.assert_array_equal(p(x), -x)

    def test_ranks_and_dtypes(self):
        for dtype in "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 ?".split():
            p = one_op("Identity", np.dtype(dtype), shape=())
            y = p(np.array(1, dtype))
            self.assertEqual((y.dtype, y.shape, y[()]), (np.dtype(dtype), (), np.array(1, dtype)))
        p = one_op("Neg", "f32", shape=[3])
        for x in (np.array([1, 2, 3], ">f4"), [1, 2, 3], (1.0, 2.0, 3.0), memoryview(np.array([1, 2, 3], "f4"))):
            np.testing.assert_array_equal(p(x), np.array([-1, -2, -3], np.float32))
        odd = np.zeros(3, np.dtype([("a", "u1"), ("x", "<f4")]))
        odd["x"] = [1, 2, 3]            # strides are no multiple of the element
        np.testing.assert_array_equal(p(odd["x"]), np.array([-1, -2, -3], np.float32))

    def test_narrow_dtypes(self):
        import ml_dtypes
        for name, dtype in (("bf16", ml_dtypes.bfloat16), ("f8e4m3fn", ml_dtypes.float8_e4m3fn), ("i4", ml_dtypes.int4)):
            p = one_op("Identity", name, shape=["n"])
            x = np.array([1, -2, 3], dtype)
            y = p(x)
            self.assertEqual(y.dtype, x.dtype)
            self.assertEqual(y.tolist(), x.tolist())
        for name, dtype, low in (("i4", ml_dtypes.int4, -8), ("i2", ml_dtypes.int2, -2)):
            x = np.array([low, low + 1, -1, 0, 1], dtype)
            self.assertEqual(one_op("Cast", name, shape=["n"], to="i32")(x).tolist(), [low, low + 1, -1, 0, 1])
            self.assertEqual(one_op("Cast", "i32", shape=["n"], to=name)(x.astype(np.int32)).tolist(), x.tolist())
        self.assertEqual(one_op("Identity", "bf16", shape=[])(np.array(2, ml_dtypes.bfloat16)).shape, ())
        y = one_op("Add", "bf16", "bf16", shape=["n"])(np.array([1.5], ml_dtypes.bfloat16), np.array([2], ml_dtypes.bfloat16))
        self.assertEqual(float(y[0]), 3.5)

    def test_results_own_their_memory(self):
        p = one_op("Neg", "f32")
        x = np.ones((100, 100), np.float32)
        y = p(x)
        kept = y[50]
        del y, p
        gc.collect()
        np.testing.assert_array_equal(kept, -x[0])
        self.assertTrue(kept.flags.writeable)

    def test_out(self):
        p = one_op("Neg", "f32")
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        y = np.empty((2, 3), np.float32)
        self.assertIs(p(x, out=[y]), y)
        np.testing.assert_array_equal(y, -x)
        larger = np.full(10, 7, np.float32)
        z = p(x, out=[larger])
        np.testing.assert_array_equal(z, -x)
        self.assertTrue(np.shares_memory(z, larger))
        self.assertEqual(larger[6:].tolist(), [7] * 4)
        for wrong, message in ((y.T, "row-major"), (np.empty(2, np.float32), "needs 24 bytes|has 24 bytes"), ([1], "row-major")):
            with self.assertRaisesRegex(sinter.InvalidArgument, message):
                p(x, out=[wrong])
        frozen = np.empty((2, 3), np.float32)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(sinter.InvalidArgument, "writable"):
            p(x, out=[frozen])

    def test_dlpack(self):
        class Exporter:                 # DLPack without the buffer protocol, as PyTorch's tensors have it
            def __init__(self, a):
                self.a = a

            def __dlpack__(self, **kwargs):
                return self.a.__dlpack__(**kwargs)

            def __dlpack_device__(self):
                return self.a.__dlpack_device__()
        p = one_op("Neg", "f32")
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
        np.testing.assert_array_equal(p(Exporter(x)), -x)
        np.testing.assert_array_equal(p(Exporter(x[1:, ::2])), -x[1:, ::2])
        v = sinter.InferenceSession(p.model).run_with_ort_values(None, {"x0": sinter.OrtValue(x)})[0]
        y = np.from_dlpack(v)
        np.testing.assert_array_equal(y, -x)
        del v
        gc.collect()
        np.testing.assert_array_equal(y, -x)

    def test_no_leaks(self):
        import resource
        p = one_op("Neg", "f32")
        x = np.ones((256, 256), np.float32)
        for _ in range(50):
            p(x)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(1000):           # 256 KB each
            p(x)
            try:
                p(x[0])
            except sinter.InvalidArgument:
                pass
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 50000)
        counts = [sys.getrefcount(x)]
        for _ in range(10):
            p(x)
        self.assertEqual(sys.getrefcount(x), counts[0])


class Failures(unittest.TestCase):
    def test_messages(self):
        p = one_op("Add", "f32", "f32", shape=["n", 3])
        x = np.zeros((2, 3), np.float32)
        for arrays, message in (((x, x.astype(np.float64)), r"input 'x1' is f64\[2,3\], wanted f32\[n,3\]"),
                                ((x, x[:, :2]), r"input 'x1' is f32\[2,2\], wanted f32\[n,3\]"),
                                ((x, x[0]), r"input 'x1' is f32\[3\], wanted f32\[n,3\]"),
                                ((x,), "1 inputs are given, wanted 2"),
                                ((x, np.array(["a"])), "input 'x1' has the dtype <U1, wanted f32"),
                                ((x, x.astype(complex)), "input 'x1' has the dtype complex128"),
                                ((x, object()), "input 'x1' is a object that makes no array"),
                                ((x, [[1], [2, 3]]), "input 'x1' is a list that makes no array")):
            with self.assertRaisesRegex(sinter.InvalidArgument, message):
                p(*arrays)
        with self.assertRaisesRegex(sinter.InvalidArgument, r"no inputs are called \['q'\]; wanted: \['x1'\], missing: \['x1'\]"):
            p(x, q=x)
        np.testing.assert_array_equal(p(x, x1=x), x)

    def test_classes(self):
        self.assertTrue(issubclass(sinter.InvalidArgument, ValueError) and issubclass(sinter.InvalidArgument, sinter.Error))
        with self.assertRaises(OSError):
            sinter.load("no/such/file.onnx")
        with self.assertRaisesRegex(sinter.FormatError, "m.onnx: no ONNX model, or a damaged one: byte 0"):
            sinter.load(b"nonsense", name="m.onnx")
        with self.assertRaises(TypeError):
            sinter.load(3.5)
        with self.assertRaisesRegex(sinter.CompileError, "no/such/compiler"):
            g = sinter.Graph()
            g.output("y", g.op("Neg", g.input("x", "f32", [3])))
            sinter.compile(g, compiler="no/such/compiler", cache="")(np.zeros(3, np.float32))

    def test_index_outside(self):
        g = sinter.Graph()
        g.output("y", g.op("Gather", g.const(np.arange(4, dtype=np.float32)), g.input("i", "i64", ["n"])))
        p = sinter.compile(g)
        np.testing.assert_array_equal(p(np.array([3, -4])), np.float32([3, 0]))
        with self.assertRaisesRegex(sinter.InvalidArgument, "Gather.*index 4 is outside an axis of size 4"):
            p(np.array([0, 4]))

    def test_nothing_is_printed(self):
        code = ("import sinter, numpy as np\n"
                "g = sinter.Graph(); g.output('y', g.op('Neg', g.input('x', 'f32', ['n']))); p = sinter.compile(g, cache='')\n"
                "p(np.zeros(3, 'f4'))\n"
                "try: p(np.zeros((3, 3), 'f4'))\nexcept sinter.Error: pass\n"
                "try: sinter.load(b'x')\nexcept sinter.Error: pass\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Evidence(unittest.TestCase):
    def test_explain(self):
        g = sinter.Graph()
        x = g.input("x", "f32", ["n", 8])
        g.output("y", g.op("Softmax", g.op("Relu", g.op("Add", x, g.const(np.ones(8, np.float32)))), axis=-1))
        p = sinter.compile(g)
        with self.assertRaisesRegex(sinter.InvalidArgument, "before the first run"):
            p.explain()
        p.prepare([5, 8])
        e = p.explain()
        self.assertEqual((e.launches, e.operators, e.operators_generated, e.variants), (1, 3, 3, 1))
        self.assertEqual([k.kind for k in e.kernels], ["rows"])
        self.assertEqual([o.split()[0] for o in e.kernels[0].operators], ["Add", "Relu", "Softmax"])
        self.assertEqual((e.read_bytes, e.write_bytes), (5 * 8 * 4 + 8 * 4, 5 * 8 * 4))
        self.assertIn("launches", str(e))
        html = e._repr_html_()
        self.assertIn("<table>", html)
        self.assertIn(e.kernels[0].name, html)
        unfused = sinter.compile(p.model, fuse=False)
        unfused(np.zeros((5, 8), np.float32))
        self.assertEqual(unfused.explain().launches, 3)
        self.assertTrue(unfused.explain().refusals)
        with self.assertRaises(sinter.InvalidArgument):
            sinter.compile(p.model, interpret=True).explain()

    def test_profile(self):
        p = sinter.compile("examples/norm.onnxtxt")
        arrays = [np.ones((4, 768), np.float32), np.zeros(768, np.float32), np.ones(768, np.float32)]
        e = p.profile(*arrays, runs=3)
        self.assertTrue(all(k.ms is not None and k.ms > 0 for k in e.kernels))
        with self.assertRaisesRegex(sinter.InvalidArgument, "1 inputs are given, wanted 3"):
            p.profile(arrays[0])
        with self.assertRaises(sinter.Unsupported):
            sinter.compile("examples/norm.onnxtxt", interpret=True).profile(*arrays)

    def test_rules(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "my.rules"
            file.write_text('RULE( half, "F", FINITE, "(x + abs(x)) * 0.5", "relu(x)", "a mean" )\n')
            p = sinter.compile("examples/half_sum.onnxtxt", rules=file)
            p.prepare([6])
            self.assertEqual((p.explain().segments[0].rewrites, p.explain().segments[0].rewrites_idle), ([], ["half 0 times: it needs --allow finite"]))
            p = sinter.compile("examples/half_sum.onnxtxt", rules=file, allow="finite")
            p.prepare([6])
            self.assertEqual((p.explain().segments[0].rewrites, p.explain().segments[0].rewrites_idle), (["half 1 times: a mean"], []))
            file.write_text("RUL( half )\n")
            with self.assertRaisesRegex(sinter.FormatError, "my.rules:1: found RUL"):
                sinter.compile("examples/half_sum.onnxtxt", rules=file)

    def test_interpret_and_check_agree(self):
        x = np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
        model = one_op("Gelu", "f32").model
        want = sinter.compile(model, interpret=True)(x)
        np.testing.assert_allclose(sinter.compile(model, check=True)(x), want, rtol=1e-6, atol=1e-6)


class Threads(unittest.TestCase):
    def long(self, seconds=3.0):
        """A program and an input whose run takes about so long on one thread."""
        g = sinter.Graph()
        y = g.input("x", "f32", ["n", 512])
        w = g.const(np.zeros((512, 512), np.float32))
        for _ in range(40):
            y = g.op("MatMul", y, w)
        g.output("y", y)
        p = sinter.compile(g, threads=1)
        x = np.zeros((64, 512), np.float32)
        p(x)
        start = time.perf_counter()
        p(x)
        return p, np.zeros((64 * max(1, round(seconds / (time.perf_counter() - start))), 512), np.float32)

    def test_lock_is_released(self):
        p, x = self.long(1.0)
        p.prepare(x.shape)
        ticks, stop = [0], threading.Event()

        def tick():
            while not stop.is_set():
                ticks[0] += 1
                time.sleep(0.001)
        t = threading.Thread(target=tick)
        t.start()
        before = ticks[0]
        p(x)
        during = ticks[0] - before
        stop.set()
        t.join()
        self.assertGreater(during, 20)

    def test_many_threads(self):
        p = one_op("Mul", "f32", "f32")
        wrong = []

        def work(k):
            for i in range(100):
                x = np.full((k + 1, i % 7), k, np.float32)
                if not np.array_equal(p(x, x), x * x):
                    wrong.append((k, i))
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_interrupt(self):
        p, x = self.long()
        p.prepare(x.shape)
        start = time.perf_counter()
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            p(x)
        self.assertLess(time.perf_counter() - start, 2.0)
        np.testing.assert_array_equal(p(x[:2]), x[:2])

    def test_interrupt_while_compiling(self):
        code = "import sys, time; time.sleep(60)"
        folder = os.environ.get("T", ".")
        slow = os.path.join(folder, "slow_cc")
        with open(slow, "w") as f:
            f.write(f'#!/bin/sh\ncase "$*" in *--version*) exec cc "$@";; esac\nexec {sys.executable} -c "{code}"\n')
        os.chmod(slow, 0o755)
        g = sinter.Graph()
        g.output("y", g.op("Neg", g.input("x", "f32", ["n"])))
        p = sinter.compile(g, compiler=slow, cache="")
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.perf_counter()
        with self.assertRaises(KeyboardInterrupt):
            p(np.zeros(3, np.float32))
        self.assertLess(time.perf_counter() - start, 20)

    def test_background(self):
        slow = os.path.join(os.environ.get("T", "."), "late_cc")
        with open(slow, "w") as f:
            f.write('#!/bin/sh\ncase "$*" in *--version*) ;; *) sleep 3;; esac\nexec cc "$@"\n')
        os.chmod(slow, 0o755)
        g = sinter.Graph()
        x, b = g.input("x", "f32", ["n", "m"]), g.input("b", "f32", ["k"])
        g.output("y", g.op("Softmax", g.op("MatMul", g.op("Add", x, b), g.op("Transpose", x))))
        p = sinter.compile(g, compiler=slow, cache="", background=True)
        rng = np.random.default_rng(5)
        for k in (40, 1):               # other sizes, other kernels: nothing waits for them either
            a = rng.standard_normal((33, 40), np.float32), rng.standard_normal(k, np.float32)
            start = time.perf_counter()
            y = p(*a)
            self.assertLess(time.perf_counter() - start, 2)
            self.assertTrue(p.compiling)
            np.testing.assert_array_equal(y, p(*a))
            p.prepare(*(v.shape for v in a))
            self.assertFalse(p.compiling)
            np.testing.assert_allclose(p(*a), y, rtol=1e-5, atol=1e-6)
        self.assertEqual(p.variants, 2)

    def test_handler_that_goes_on(self):
        p, x = self.long(0.6)
        p.prepare(x.shape)
        seen = []
        before = signal.signal(signal.SIGINT, lambda *a: seen.append(1))
        try:
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            np.testing.assert_array_equal(p(x), x)
            timer.join()
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual(seen, [1])

    def test_terminate(self):
        p, x = self.long()
        s = sinter.InferenceSession(p.model)
        options = sinter.RunOptions()
        threading.Timer(0.2, setattr, (options, "terminate", True)).start()
        with self.assertRaises(sinter.Cancelled):
            s.run(None, {"x": x}, options)
        with self.assertRaises(sinter.Cancelled):
            s.run(None, {"x": x[:1]}, options)
        options.terminate = False
        self.assertEqual(s.run(None, {"x": x[:1]}, options)[0].shape, (1, 512))

    def test_fork(self):
        p = one_op("Neg", "f32")
        x = np.ones((300, 300), np.float32)
        p(x)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if np.array_equal(p(x), -x) else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)


if __name__ == "__main__":
    unittest.main()
