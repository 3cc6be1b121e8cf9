"""reference.py SINTER CASES LIST: graphs whose golden values we do not reach, against a second reference.

Prints a line for each graph named in LIST (folders below CASES): how far our results and the golden ones are from those of
onnx.reference, in units of rtol 1e-3, atol 1e-7, and then 'N passed, N failed, N skipped'. A graph passes when ours agree.
A graph that onnx.reference has no meaning for is skipped, with what it says.
"""

import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator


def tensor(path: str) -> onnx.TensorProto:
    t = onnx.TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return t


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Into an order in which they can run: the reference takes them as they stand."""
    have = {"", *(i.name for i in graph.initializer), *(i.name for i in graph.input)}
    rest, done = list(graph.node), []
    while rest:
        ready = [n for n in rest if all(i in have for i in n.input)]
        if not ready:
            break
        for n in ready:
            have.update(n.output)
        done += ready
        rest = [n for n in rest if n not in ready]
    del graph.node[:]
    graph.node.extend(done + rest)


def file_name(name: str) -> str:
    """As `sinter run -o` spells it."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def distance(x: np.ndarray, to: np.ndarray) -> float:
    a, b = x.astype(np.float64), to.astype(np.float64)
    return float(np.max(np.abs(a - b) / (1e-7 + 1e-3 * np.abs(b)), initial=0))


def judge(sinter: str, folder: str) -> tuple[bool | None, str]:
    model = onnx.load(folder + "/model.onnx")
    sort_nodes(model.graph)
    data = folder + "/test_data_set_0"
    names = [i.name for i in model.graph.input]
    files = sorted(glob.glob(data + "/input_*.pb"), key=lambda f: int(f.rsplit("_", 1)[1][:-3]))
    inputs = {tensor(f).name or names[k]: f for k, f in enumerate(files)}
    try:
        want = ReferenceEvaluator(model).run(None, {k: numpy_helper.to_array(tensor(f)) for k, f in inputs.items()})
    except Exception as e:  # whatever the reference raises means that it is no reference here
        return None, f"onnx.reference: {str(e).splitlines()[0][:120]}"
    words, good = [], True
    with tempfile.TemporaryDirectory() as out:
        flags = [w for k, f in inputs.items() for w in ("-i", f"{k}={f}")]
        run = subprocess.run([sinter, "run", folder + "/model.onnx", "-o", out, *flags], capture_output=True, text=True)
        if run.returncode:
            return False, run.stderr.strip()
        for k, port in enumerate(model.graph.output):
            ours = np.load(os.path.join(out, file_name(port.name) + ".npy"))
            golden = numpy_helper.to_array(tensor(f"{data}/output_{k}.pb"))
            ref = np.asarray(want[k])
            near = distance(ours, ref)
            good &= near <= 1 and ours.shape == ref.shape and ours.dtype == ref.dtype
            words.append(f"{port.name} {ours.dtype}: ours {near:.2f}, golden {distance(golden, ref):.2f}")
    return good, "; ".join(words)


def main() -> None:
    sinter, cases, names = sys.argv[1:]
    count = {True: 0, False: 0, None: 0}
    for name in open(names).read().split():
        good, what = judge(sinter, os.path.join(cases, name))
        count[good] += 1
        print(f"{ {True: 'ok', False: 'FAILED', None: 'skipped'}[good] } {name}: {what}")
    print(f"{count[True]} passed, {count[False]} failed, {count[None]} skipped")


main()
