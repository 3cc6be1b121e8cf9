"""The interface of onnxruntime: sessions, options, values, bindings. Where onnxruntime is installed the same calls go to both and must agree."""
import os
import tempfile
import unittest
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper

import sinter

try:
    import onnxruntime
except ImportError:
    onnxruntime = None


def net():
    """y = relu(x @ w + b), z = sum of its rows; metadata."""
    rng = np.random.default_rng(3)
    w, b = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["s"]), helper.make_node("Relu", ["s"], ["y"]),
             helper.make_node("ReduceSum", ["y", "axes"], ["z"], keepdims=0)]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", 1, ["n", 4])],
        [helper.make_tensor_value_info("y", 1, ["n", 3]), helper.make_tensor_value_info("z", 1, ["n"])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b"), numpy_helper.from_array(np.array([1]), "axes")], doc_string="about the graph")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10, producer_name="somebody", doc_string="about", domain="a.b",
                              model_version=7)
    helper.set_model_props(model, {"classes": "cat,dog"})
    return model


RUNTIMES = [sinter] + ([onnxruntime] if onnxruntime else [])
X = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


class Sessions(unittest.TestCase):
    def both(self, ask):
        """What ask(runtime, session) gives in sinter; the same in onnxruntime if it is there."""
        answers = [ask(r, r.InferenceSession(net().SerializeToString(), providers=["CPUExecutionProvider"])) for r in RUNTIMES]
        for other in answers[1:]:
            self.assert_same(answers[0], other)
        return answers[0]

    def assert_same(self, a, b):
        if isinstance(a, (list, tuple)):
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b):
                self.assert_same(x, y)
        elif isinstance(a, np.ndarray):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        else:
            self.assertEqual(a, b)

    def test_description(self):
        got = self.both(lambda r, s: [(p.name, p.type, p.shape) for p in s.get_inputs() + s.get_outputs()] + [len(s.get_overridable_initializers())])
        self.assertEqual(got, [("x", "tensor(float)", ["n", 4]), ("y", "tensor(float)", ["n", 3]), ("z", "tensor(float)", ["n"]), 0])
        meta = self.both(lambda r, s: [getattr(s.get_modelmeta(), n) for n in (
            "producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map")])
        self.assertEqual(meta, ["somebody", "small", "a.b", "about", "about the graph", 7, {"classes": "cat,dog"}])
        self.assertEqual(self.both(lambda r, s: s.get_providers()), ["CPUExecutionProvider"])

    def test_run(self):
        y, z = self.both(lambda r, s: s.run(None, {"x": X}))
        np.testing.assert_allclose(y.sum(axis=1), z, rtol=1e-5)
        self.assert_same(self.both(lambda r, s: s.run(["z", "y"], {"x": X})), [z, y])
        self.assert_same(self.both(lambda r, s: s.run(["z"], {"x": X[:2]}, r.RunOptions())), [z[:2]])
        self.assert_same(self.both(lambda r, s: s.run([], {"x": X[:0]})), [y[:0], z[:0]])
        self.assert_same(self.both(lambda r, s: s.run(None, {"x": np.asfortranarray(X)})), [y, z])

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.onnx")
            onnx.save(net(), path)
            for r in RUNTIMES:
                self.assertEqual(r.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], {"x": X})[0].shape, (5, 3))
            onnx.save(net(), path, save_as_external_data=True, all_tensors_to_one_file=True, location="weights.bin", size_threshold=60)
            import pathlib
            self.both(lambda r, s: r.InferenceSession(pathlib.Path(path), providers=["CPUExecutionProvider"]).run(None, {"x": X}))
        self.assertEqual(sinter.InferenceSession(net()).run(["y"], {"x": X})[0].shape, (5, 3))

    def test_refusals(self):
        for feed, message in (({}, r"inputs \['x'\] are missing"), ({"x": X, "w": X}, r"no inputs are called \['w'\]; there are \['x'\]"),
                              ({"x": X.astype(np.float64)}, r"input 'x' is f64\[5,4\], wanted f32\[n,4\]"),
                              ({"x": X[:, :3]}, r"input 'x' is f32\[5,3\], wanted f32\[n,4\]"), ({"x": X[0]}, r"input 'x' is f32\[4\], wanted f32\[n,4\]")):
            for r in RUNTIMES:          # both refuse; the words are ours
                with self.assertRaises(Exception) as caught:
                    r.InferenceSession(net().SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
                if r is sinter:
                    self.assertIsInstance(caught.exception, sinter.InvalidArgument)
                    self.assertRegex(str(caught.exception), message)
        with self.assertRaisesRegex(sinter.InvalidArgument, "no output is called 'q'"):
            sinter.InferenceSession(net()).run(["q"], {"x": X})

    def test_options(self):
        def ask(r, s):
            o = r.SessionOptions()
            o.intra_op_num_threads = 1
            o.inter_op_num_threads = 1
            o.execution_mode = r.ExecutionMode.ORT_SEQUENTIAL
            o.graph_optimization_level = r.GraphOptimizationLevel.ORT_DISABLE_ALL
            o.log_severity_level = 3
            o.enable_mem_pattern = False
            o.enable_profiling = False
            o.add_session_config_entry("session.intra_op.allow_spinning", "0")
            t = r.InferenceSession(net().SerializeToString(), sess_options=o, providers=[("CPUExecutionProvider", {})])
            return [o.get_session_config_entry("session.intra_op.allow_spinning"), t.run(None, {"x": X})]
        self.both(ask)
        o = sinter.SessionOptions()
        o.graph_optimization_level = sinter.GraphOptimizationLevel.ORT_DISABLE_ALL
        s = sinter.InferenceSession(net(), o)
        s.run(None, {"x": X})
        self.assertEqual(s.program.explain().launches, 4)
        o.add_session_config_entry("sinter.interpret", "1")
        self.assert_same(sinter.InferenceSession(net(), o).run(None, {"x": X}), s.run(None, {"x": X}))
        with self.assertRaisesRegex(sinter.InvalidArgument, "no session option is called 'sinter.nonsense'"):
            o.add_session_config_entry("sinter.nonsense", "1")
        with self.assertRaises(sinter.Unsupported):
            o.register_custom_ops_library("ops.so")
        with self.assertRaises(sinter.Unsupported):
            o.optimized_model_filepath = "out.onnx"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sinter.InferenceSession(net(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
        self.assertRegex(str(caught[0].message), "CUDAExecutionProvider.*is not there")

    def test_values(self):
        def ask(r, s):
            v = r.OrtValue.ortvalue_from_numpy(X, "cpu", 0)
            out = s.run_with_ort_values(["z", "y"], {"x": v})
            empty = r.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64, "cpu", 0)
            w = r.OrtValue.ortvalue_from_numpy(X.copy())
            w.update_inplace(X * 2)
            return [v.shape(), v.data_type(), v.element_type(), v.device_name(), v.is_tensor(), v.has_value(), v.tensor_size_in_bytes(), empty.shape(),
                    empty.data_type(), [o.numpy() for o in out], w.numpy()]
        self.both(ask)
        v = sinter.OrtValue.ortvalue_from_numpy(X)
        self.assertEqual(v.data_ptr(), X.ctypes.data)
        b = sinter.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x3fc0], np.uint16), 16)
        self.assertEqual((b.data_type(), float(b.numpy()[0])), ("tensor(bfloat16)", 1.5))
        with self.assertRaisesRegex(sinter.InvalidArgument, "wanted 'cpu'"):
            sinter.OrtValue.ortvalue_from_numpy(X, "cuda", 0)

    def test_bindings(self):
        def ask(r, s):
            b = s.io_binding()
            b.bind_cpu_input("x", X)
            b.bind_output("y")
            b.bind_output("z", "cpu")
            s.run_with_iobinding(b)
            first = b.copy_outputs_to_cpu()
            x2 = np.ascontiguousarray(X[:2])
            y2, z2 = np.zeros((2, 3), np.float32), r.OrtValue.ortvalue_from_shape_and_type([2], np.float32)
            b = s.io_binding()
            b.bind_input("x", "cpu", 0, np.float32, [2, 4], x2.ctypes.data)
            b.bind_output("y", "cpu", 0, np.float32, [2, 3], y2.ctypes.data)
            b.bind_ortvalue_output("z", z2)
            b.synchronize_inputs()
            s.run_with_iobinding(b)
            b.synchronize_outputs()
            return [first, y2, z2.numpy(), [o.shape() for o in b.get_outputs()]]
        first, y2, z2, _ = self.both(ask)
        self.assert_same([y2, z2], [first[0][:2], first[1][:2]])
        with self.assertRaisesRegex(sinter.InvalidArgument, "no output is called"):
            sinter.InferenceSession(net()).io_binding().bind_output("q")

    def test_async(self):
        import threading
        def ask(r, s):
            done, got = threading.Event(), []

            def callback(results, data, message):
                got.extend([results, data, message])
                done.set()
            s.run_async(None, {"x": X}, callback, "data")
            self.assertTrue(done.wait(60))
            return got
        self.both(ask)

    def test_constants(self):
        for name in ("GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"):
            members = getattr(sinter, name).__members__
            self.assertTrue(members)
            for r in RUNTIMES[1:]:
                self.assertEqual({k: int(v) for k, v in members.items()}, {k: int(v) for k, v in getattr(r, name).__members__.items()})
        self.assertEqual((sinter.get_device(), sinter.get_available_providers()), ("CPU", ["CPUExecutionProvider"]))
        self.assertTrue(sinter.__version__ == sinter.get_version_string() and sinter.__version__.count(".") == 2)


class Backend(unittest.TestCase):
    def test_backend(self):
        from sinter import backend
        y, z = backend.run_model(net(), [X])
        self.assertEqual((y.shape, z.shape), ((5, 3), (5,)))
        rep = backend.prepare(net(), "CPU", threads=1)
        np.testing.assert_array_equal(rep.run({"x": X}).y, y)
        np.testing.assert_array_equal(rep.run(X)[1], z)
        self.assertTrue(backend.supports_device("CPU") and not backend.supports_device("CUDA"))
        self.assertTrue(backend.is_compatible(net()))
        node = helper.make_node("Clip", ["a", "", "top"], ["b"])
        np.testing.assert_array_equal(backend.run_node(node, [X, np.float32(0.5)])[0], np.minimum(X, np.float32(0.5)))
        with self.assertRaises(onnx.checker.ValidationError):
            bad = net()
            bad.graph.node[0].input[0] = "nobody"
            backend.prepare(bad)


if __name__ == "__main__":
    unittest.main()
