"""What sinter costs besides the work: `import sinter` in a fresh process, and a session's run of one Relu of four numbers. The best of several measurements,
because a busy machine only adds. Fails above 0.15 s and 10 us; prints both, and onnxruntime's run where that is installed."""
import subprocess
import sys
import time


def imported():
    code = "import time; t = time.perf_counter(); import sinter; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def called(session, feed):
    best = float("inf")
    for _ in range(40):
        start = time.perf_counter()
        for _ in range(200):
            session.run(None, feed)
        best = min(best, (time.perf_counter() - start) / 200)
    return best


import_s = min(imported() for _ in range(5))

import numpy as np
import sinter

g = sinter.Graph()
g.output("y", g.op("Relu", g.input("x", "f32", ["n", 4])))
feed = {"x": np.array([[1, -2, 3, -4]], np.float32)}
run_s = called(sinter.InferenceSession(g), feed)
print(f"import sinter: {import_s:.3f} s, wanted at most 0.15; run: {run_s * 1e6:.2f} us, wanted at most 10")
try:
    import onnxruntime
    from onnx import helper
    value = [helper.make_tensor_value_info(n, 1, ["n", 4]) for n in "xy"]
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 20)])
    print(f"onnxruntime's run: {called(onnxruntime.InferenceSession(model.SerializeToString()), feed) * 1e6:.2f} us")
except ImportError:
    pass
sys.exit(import_s > 0.15 or run_s > 10e-6)
