"""Rows beside Inductor (torch.compile) and a plain copy of as many bytes: softmax, LayerNorm, RMSNorm, cross-entropy, bias + GELU + residual, as in bench/rows.c.

    ./dev bench --peers rows [NAME|COLUMNS]... [--threads N]       default: all, 1 thread

All run in one process, in turns, over the same matrices of 2^24 numbers, past the caches; both write their results into memory that is there; medians, and the ratio of each to
sinter's. The results of both are compared.
"""
import argparse, os, statistics, sys, tempfile, time

ELEMENTS, ROUNDS = 1 << 24, 11
HEAD = '<ir_version: 10, opset_import: ["": 21]> g '
NAMES, COLUMNS = ["softmax", "layernorm", "rmsnorm", "crossentropy", "biasgelu"], [64, 256, 1024, 4096, 16384, 65536]


def operations():
    """name: the model, its inputs (M: a matrix, V: of columns, L: a label for each row), numbers moved for each of the matrix, the same in torch"""
    import torch
    f = torch.nn.functional
    return {
        "softmax": ("(float[N, M] x) => (float[N, M] y) { y = Softmax<axis = -1>(x) }", "M", 2, lambda x: torch.softmax(x, -1)),
        "layernorm": ("(float[N, M] x, float[M] s, float[M] b) => (float[N, M] y) { y = LayerNormalization<axis = -1>(x, s, b) }", "MVV", 2,
                      lambda x, s, b: f.layer_norm(x, s.shape, s, b)),
        "rmsnorm": ("(float[N, M] x, float[M] s) => (float[N, M] y) <float two = {2}, float eps = {1e-5}, int64[1] last = {-1}> "
                    "{ q = Pow(x, two) m = ReduceMean(q, last) e = Add(m, eps) r = Sqrt(e) d = Div(x, r) y = Mul(d, s) }", "MV", 2,
                    lambda x, s: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * s),
        "crossentropy": ('(float[N, M] x, int64[N] t) => (float[N] y) { y = SoftmaxCrossEntropyLoss<reduction = "none">(x, t) }', "ML", 1,
                         lambda x, t: f.cross_entropy(x, t, reduction="none")),
        "biasgelu": ("(float[N, M] x, float[M] b, float[N, M] r) => (float[N, M] y) { a = Add(x, b) c = Gelu(a) y = Add(c, r) }", "MVM", 3,
                     lambda x, b, r: f.gelu(x + b) + r),
    }


def inductor(function, data, shape):
    import numpy as np, torch
    torch._dynamo.reset()                   # one form for these sizes, not one for all
    args, y = [torch.from_numpy(x) for x in data.values()], np.zeros(shape, np.float32)
    out, compiled = torch.from_numpy(y), torch.compile(lambda out, *x: out.copy_(function(*x)), dynamic=False)

    def run():
        with torch.no_grad():
            compiled(out, *args)

    return run, lambda: [y]


def main():
    import numpy as np, onnx.parser, torch
    import peers
    p = argparse.ArgumentParser()
    p.add_argument("which", nargs="*")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--lib", required=True)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    names, columns = [w for w in o.which if w in NAMES] or NAMES, [int(w) for w in o.which if w.isdigit()] or COLUMNS
    for w in o.which:
        if w not in NAMES and not w.isdigit():
            p.error("no operation and no number of columns: " + w)
    print("%-13s %6s %12s %12s %12s %12s %12s %10s" % ("", "cols", "sinter", "Inductor", "copy", "to Inductor", "to the copy", "differs by"))
    for name in names:
        model, form, moved, function = operations()[name]
        for m in columns:
            n, r = ELEMENTS // m, np.random.default_rng(0)
            make = {"M": lambda: r.uniform(-2, 2, (n, m)).astype(np.float32), "V": lambda: r.uniform(-2, 2, m).astype(np.float32), "L": lambda: r.integers(0, m, n)}
            data = {"x%d" % k: make[c]() for k, c in enumerate(form)}
            source, to = np.ones(ELEMENTS * moved // 2, np.float32), np.zeros(ELEMENTS * moved // 2, np.float32)
            with tempfile.TemporaryDirectory() as work:
                onnx.save(onnx.parser.parse_model(HEAD + model), os.path.join(work, "model.onnx"))
                runs = {"sinter": peers.start_sinter(work, data, o.threads, o.lib)}
            runs["Inductor"] = inductor(function, data, runs["sinter"][1]()[0].shape)
            runs["copy"] = (lambda: np.copyto(to, source), None)
            times = {k: [] for k in runs}
            for k in range(-2, ROUNDS):
                for which, (run, _) in runs.items():
                    start = time.perf_counter()
                    run()
                    if k >= 0:
                        times[which].append(time.perf_counter() - start)
            sinter, other, copy = [statistics.median(times[k]) for k in ("sinter", "Inductor", "copy")]
            far = float(np.abs(runs["sinter"][1]()[0] - runs["Inductor"][1]()[0]).max())
            print("%-13s %6d %9.3f ms %9.3f ms %9.3f ms %12.2f %12.2f %10.1e%s" % (name, m, sinter * 1e3, other * 1e3, copy * 1e3, other / sinter, sinter / copy, far,
                                                                                "" if far < 2e-5 else "  WRONG"), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main()
