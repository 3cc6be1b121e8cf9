"""Attention beside other engines, each in every form that its users would write: heads of 64 numbers, float32, one batch.

    ./dev bench --peers attention [LENGTH]... [--threads N] [--queries N] [--heads N] [--no-torch]       default: 1024 2048 4096, 1 thread, as many queries as keys, 12 heads

All run in one process, in turns; medians, the best times, and what sinter gains over each. sinter gets the plain graph (MatMul, Mul, Softmax, MatMul). The engines get it
too, and their own operator: MultiHeadAttention (ONNX Runtime), ScaledDotProductAttention (OpenVINO), scaled_dot_product_attention (PyTorch, as it is and by Inductor).
With several threads there is a pause before each run: after one, some engines' threads turn in circles for milliseconds, which would be taken from whoever comes next.
"""
import argparse, os, statistics, sys, tempfile, time

WIDTH = 64
PAUSE = 0.02                               # seconds


def save(folder, nodes, shapes, constants, opsets):
    import onnx
    from onnx import TensorProto, helper
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name])
    g = helper.make_graph(nodes, "attention", [port(n) for n in "qkv"], [port("y")], constants)
    os.makedirs(folder)
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=8), os.path.join(folder, "model.onnx"))
    return folder


def plain(work, shapes):
    from onnx import TensorProto, helper
    node = helper.make_node
    nodes = [node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["p"]), node("Mul", ["p", "scale"], ["s"]),
             node("Softmax", ["s"], ["w"], axis=-1), node("MatMul", ["w", "v"], ["y"])]
    return save(os.path.join(work, "plain"), nodes, shapes, [helper.make_tensor("scale", TensorProto.FLOAT, [], [WIDTH ** -0.5])], [("", 17)])


def multihead(work, shapes, heads):
    from onnx import helper
    nodes = [helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=heads)]
    return save(os.path.join(work, "multihead"), nodes, shapes, [], [("", 17), ("com.microsoft", 1)])


def openvino_operator(data, threads):
    import numpy as np, openvino as ov, openvino.opset13 as op
    ports = [op.parameter(list(x.shape), np.float32) for x in data.values()]
    compiled = ov.Core().compile_model(ov.Model([op.scaled_dot_product_attention(*ports)], ports), "CPU",
                                       {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False})
    r = compiled.create_infer_request()
    for k, x in enumerate(data.values()):
        r.set_input_tensor(k, ov.Tensor(x, shared_memory=True))
    return r.infer, lambda: [r.get_output_tensor(0).data]


def torch_forms(data, threads):
    import torch
    torch.set_num_threads(threads)
    args, scale = [torch.from_numpy(x) for x in data.values()], WIDTH ** -0.5
    whole = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v)
    written = lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * scale, -1) @ v
    for name, f in [("PyTorch, its operator", whole), ("Inductor, its operator", torch.compile(whole)), ("Inductor, plain graph", torch.compile(written))]:
        last = []

        def run(f=f, last=last):
            with torch.no_grad():
                last[:] = [f(*args)]

        yield name, run, lambda last=last: [last[0].numpy()]


def main():
    import numpy as np
    import peers
    p = argparse.ArgumentParser()
    p.add_argument("lengths", nargs="*", type=int, default=[1024, 2048, 4096])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--queries", type=int, default=0, help="0: as many as keys")
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--no-torch", action="store_true")
    p.add_argument("--lib", required=True)
    o = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(o.threads)
    print("%6s %-24s %12s %12s %10s %12s" % ("length", "", "median", "best", "to sinter", "differs by"))
    for length in o.lengths or [1024, 2048, 4096]:
        with tempfile.TemporaryDirectory() as work:
            r = np.random.default_rng(0)
            long = dict(q=o.queries or length, k=length, v=length, y=o.queries or length)
            shapes = {k: [1, o.heads, n, WIDTH] for k, n in long.items()}
            data = {k: r.uniform(-1, 1, shapes[k]).astype(np.float32) for k in "qkv"}
            rows = {k: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(1, long[k], o.heads * WIDTH) for k, x in data.items()}
            graph = plain(work, shapes)
            runs = {"sinter": peers.start_sinter(graph, data, o.threads, o.lib)}
            runs["ONNX Runtime"] = peers.start_ort(graph, data, o.threads, None)
            runs["ONNX Runtime, operator"] = peers.start_ort(multihead(work, {k: [1, n, o.heads * WIDTH] for k, n in long.items()}, o.heads), rows, o.threads, None)
            runs["OpenVINO"] = peers.start_openvino(graph, data, o.threads, None)
            runs["OpenVINO, operator"] = openvino_operator(data, o.threads)
            for name, run, results in [] if o.no_torch else torch_forms(data, o.threads):
                runs[name] = (run, results)
            times, far, want = {n: [] for n in runs}, {}, None
            for name, (run, results) in runs.items():        # each once before; the results of all are compared
                run()
                y = np.array(results()[0])
                y = y.reshape(1, long["y"], o.heads, WIDTH).transpose(0, 2, 1, 3) if y.ndim == 3 else y
                want = y if want is None else want
                far[name] = float(np.abs(y - want).max())
            for _ in range(max(3, 15360 // long["q"] if long["q"] > 1 else 200)):
                for name, (run, _) in runs.items():
                    time.sleep(PAUSE if o.threads > 1 else 0)
                    start = time.perf_counter()
                    run()
                    times[name].append(time.perf_counter() - start)
            own = statistics.median(times["sinter"])
            for name, t in times.items():
                print("%6d %-24s %9.2f ms %9.2f ms %10.2f %12.1e%s" % (length, name, statistics.median(t) * 1e3, min(t) * 1e3, statistics.median(t) / own, far[name],
                                                                   "" if far[name] < 1e-4 else "  WRONG"), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
