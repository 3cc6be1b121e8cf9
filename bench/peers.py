"""Sinter beside ONNX Runtime, OpenVINO and PyTorch (Inductor), on one processor or two.

Method: each engine is a process of its own, pinned to the same processors, with its own threads; while one runs, the others are stopped
(several pools in one process disturb each other, and some pools' threads turn in circles for a while after a run). Engines take turns: in each round each runs the model a number of times, in an order
that changes from round to round. Of each turn the median counts; of all rounds the table gives the median of these, the spread (quartiles apart, as a part
of the median), and the ratio of the fastest peer to sinter, taken in each round.

All get the same file: initialisers that are also inputs are initialisers only, dimensions are those of the inputs. Each peer runs at its best known
settings, in float32 (OpenVINO would take bfloat16 by itself on some processors). PyTorch gets what ONNX Runtime's basic optimiser leaves of the model
(constants folded, batch normalisation folded into convolutions), converted operator by operator here, frozen, and compiled.

Values: those of the golden file beside the model where there is one, else ONNX Runtime's without optimisation; |got - want| <= 1e-4 + 1e-3 |want|, or
what TOLERANCE in the model's folder says; see tolerance()."""
import argparse, ctypes, glob, json, math, os, select, signal, statistics, struct, subprocess, sys, time
import sn

ENGINES = ["sinter", "ort", "openvino", "inductor"]
NAME = {"sinter": "sinter", "ort": "ONNX Runtime", "openvino": "OpenVINO", "inductor": "Inductor"}


# ---- models: one file for all ---------------------------------------------------------------------------------------------

def read_tensor(path):
    import onnx
    t = onnx.TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return onnx.numpy_helper.to_array(t)


def prepare(path, work, dims):
    """Writes the common form of a model and its inputs; gives the folder."""
    import numpy as np, onnx
    folder = os.path.dirname(path)
    name = os.path.basename(folder) if os.path.basename(path) == "model.onnx" else os.path.basename(path)[:-5]
    out = os.path.join(work, name)
    os.makedirs(out, exist_ok=True)
    m = onnx.load(path)
    init = {t.name for t in m.graph.initializer}
    inputs = [i for i in m.graph.input if i.name not in init]
    del m.graph.input[:]
    m.graph.input.extend(inputs)
    m.ir_version = max(m.ir_version, 4)
    data = {}
    for k, i in enumerate(inputs):
        golden = os.path.join(folder, "test_data_set_0", "input_%d.pb" % k)
        t = i.type.tensor_type
        if os.path.exists(golden):
            x = read_tensor(golden)
        else:
            shape = [d.dim_value if d.HasField("dim_value") else dims.get(d.dim_param, 1) for d in t.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
            rng = np.random.default_rng(k)
            x = rng.uniform(-1, 1, shape).astype(kind) if np.issubdtype(kind, np.floating) else rng.integers(0, 2, shape).astype(kind)
        data[i.name] = x
        t.ClearField("shape")
        t.shape.SetInParent()
        for d in x.shape:
            t.shape.dim.add().dim_value = d
    onnx.save(m, os.path.join(out, "model.onnx"))
    np.savez(os.path.join(out, "in.npz"), **data)
    golden = sorted(glob.glob(os.path.join(folder, "test_data_set_0", "output_*.pb")), key=lambda p: int(p.rsplit("_", 1)[1][:-3]))
    if golden:
        want = [read_tensor(p) for p in golden]
    else:
        import onnxruntime as ort
        so = ort.SessionOptions()
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        want = ort.InferenceSession(m.SerializeToString(), so, providers=["CPUExecutionProvider"]).run(None, data)
    np.savez(os.path.join(out, "want.npz"), *want)
    return name, out


def tolerance(folder):
    """Of a quantised model: five quanta of its last QuantizeLinear, since engines may round between integer kernels elsewhere. Else the common one."""
    import onnx
    m = onnx.load(os.path.join(folder, "model.onnx"))
    last = [n for n in m.graph.node if n.op_type == "QuantizeLinear"]
    if not last:
        return 1e-4, 1e-3
    scale = [onnx.numpy_helper.to_array(t) for t in m.graph.initializer if t.name == last[-1].input[1]]
    return (5 * float(scale[0].max()) + 1e-4, 0.0) if scale else (1e-4, 1e-3)


# ---- engines: each gives (run, outputs): a function that runs once, and one that gives the last results -----------------------

def start_sinter(folder, data, threads, lib):
    import numpy as np
    os.environ["SN_THREADS"] = str(threads)
    so, err, code = ctypes.CDLL(lib), sn.Error(), {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}
    name = {v: k for k, v in code.items()}

    def check(status):
        if status:
            raise RuntimeError(err.text.decode())

    model, program = ctypes.c_void_p(), ctypes.c_void_p()
    check(so.sn_model_load(os.path.join(folder, "model.onnx").encode(), ctypes.byref(model), ctypes.byref(err)))
    check(so.sn_compile(model, None, ctypes.byref(program), ctypes.byref(err)))
    nin, nout = so.sn_model_input_count(model), so.sn_model_output_count(model)
    tin, tout, arrays = (sn.Tensor * nin)(), (sn.Tensor * nout)(), list(data.values())
    for t, x in zip(tin, arrays):
        t.dtype, t.rank, t.data, t.bytes = code[str(x.dtype)], x.ndim, x.ctypes.data, x.nbytes
        t.dims[:x.ndim] = x.shape
    check(so.sn_prepare(program, nin, tin, ctypes.byref(err)))

    def run():
        check(so.sn_run(program, nin, tin, nout, tout, ctypes.byref(err)))

    run()
    results = []
    for t in tout:                          # later runs write into memory of ours
        y = np.empty(t.dims[:t.rank], name[t.dtype])
        so.sn_tensor_release(ctypes.byref(t))
        t.data, t.bytes = y.ctypes.data, y.nbytes
        results.append(y)
    return run, lambda: results


def start_ort(folder, data, threads, lib):
    import onnxruntime as ort
    so = ort.SessionOptions()
    so.intra_op_num_threads, so.inter_op_num_threads = threads, 1
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    so.log_severity_level = 4
    so.add_session_config_entry("session.force_spinning_stop", "1")         # at the end of a turn, not within
    s = ort.InferenceSession(os.path.join(folder, "model.onnx"), so, providers=["CPUExecutionProvider"])
    b = s.io_binding()
    for k, x in data.items():
        b.bind_cpu_input(k, x)
    for o in s.get_outputs():
        b.bind_output(o.name, "cpu")
    return lambda: s.run_with_iobinding(b), b.copy_outputs_to_cpu


def start_openvino(folder, data, threads, lib):
    import openvino as ov
    core = ov.Core()
    model = core.read_model(os.path.join(folder, "model.onnx"))
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
                                                 "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False})
    r = compiled.create_infer_request()
    for k, x in enumerate(data.values()):
        r.set_input_tensor(k, ov.Tensor(x, shared_memory=True))
    return r.infer, lambda: [r.get_output_tensor(k).data for k in range(len(compiled.outputs))]


def start_inductor(folder, data, threads, lib):
    import torch
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import peers_torch
    torch.set_num_threads(threads)
    import torch._inductor.config as config
    config.freezing = True
    config.cpp.threads = threads
    net = peers_torch.convert(os.path.join(folder, "model.onnx"), data)
    args = [torch.from_numpy(x) for x in data.values()]
    with torch.no_grad():
        compiled = torch.compile(net, dynamic=False, fullgraph=True, mode="max-autotune")
        compiled(*args)
    last = []

    def run():
        with torch.no_grad():
            last[:] = [compiled(*args)]

    return run, lambda: [y.numpy() for y in last[0]]


# ---- a worker ----------------------------------------------------------------------------------------------------------------

def worker(engine, folder, threads, lib):
    """Reads a number of runs a line; answers with the median milliseconds of a run. First the time to its being ready and the difference of its values."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    for v in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[v] = str(threads)
    import numpy as np

    def say(**k):
        print(json.dumps(k), file=answer, flush=True)

    try:
        with np.load(os.path.join(folder, "in.npz")) as f:
            data = {k: np.array(f[k], order="C") for k in f.files}
        begin = time.perf_counter()
        run, outputs = globals()["start_" + engine](folder, data, threads, lib)
        run()
        ready = time.perf_counter() - begin
        atol, rtol = tolerance(folder)
        worst, same = 0.0, True
        with np.load(os.path.join(folder, "want.npz")) as want:
            for y, k in zip(outputs(), want.files):
                w = want[k].astype(np.float64)
                d = np.abs(y.astype(np.float64).reshape(w.shape) - w)
                worst = max(worst, float(d.max(initial=0)))
                same &= bool((d <= atol + rtol * np.abs(w)).all())
        say(ready=ready, worst=worst, same=same)
    except Exception as e:
        said = [line.strip() for line in str(e).splitlines() if line.strip()] or [""]
        say(error="%s: %s" % (type(e).__name__, " ".join(said[:1] + said[-1:] if len(said) > 1 else said)[:300]))
        return
    for line in sys.stdin:
        n, times = int(line), []
        run()                               # wakes what went to sleep
        for _ in range(n):
            t = time.perf_counter()
            run()
            times.append((time.perf_counter() - t) * 1e3)
        say(ms=statistics.median(times))


class Worker:
    def __init__(self, engine, folder, threads, lib, limit):
        self.engine, self.ms, self.limit = engine, [], limit
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", engine, folder, str(threads), lib],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        self.about = self.listen()
        self.signal(signal.SIGSTOP)

    def signal(self, what):
        if self.p.poll() is None:
            os.killpg(self.p.pid, what)

    def listen(self):
        """Its next line. One that says nothing for too long is ended, with what it started (compilers)."""
        if not select.select([self.p.stdout], [], [], self.limit)[0]:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.wait()
            return {"error": "no answer within %g s" % self.limit}
        line = self.p.stdout.readline()
        return json.loads(line) if line else {"error": "the process died (%s)" % self.p.wait()}

    def turn(self, n):
        if self.p.poll() is not None:
            return None
        self.signal(signal.SIGCONT)
        self.p.stdin.write("%d\n" % n)
        self.p.stdin.flush()
        got = self.listen()
        self.signal(signal.SIGSTOP)
        if "ms" not in got:
            self.about = got
        return got.get("ms")

    def close(self):
        self.signal(signal.SIGCONT)
        self.p.stdin.close()
        try:
            self.p.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.p.pid, signal.SIGKILL)
            self.p.wait()
        self.p.stdout.close()


# ---- the table ---------------------------------------------------------------------------------------------------------------

def spread(v):
    q = statistics.quantiles(v, n=4) if len(v) > 3 else [min(v), 0, max(v)]
    return (q[2] - q[0]) / statistics.median(v)


def take_turns(ws, o):
    """Rounds of turns; gives their number and the workers that lived through all of them."""
    live = [w for w in ws if "ready" in w.about]
    turns = {}
    for w in live:
        ms = w.turn(1)
        turns[w] = max(1, min(200, int(o.turn_ms / max(ms or 1, 1e-3))))
    rounds = 0
    begin = time.time()
    while live and (rounds < o.rounds or (rounds < 3 * o.rounds and time.time() - begin < o.seconds)):
        rounds += 1
        for w in live[rounds % len(live):] + live[:rounds % len(live)]:
            w.ms.append(w.turn(turns[w]))
        live = [w for w in live if w.ms[-1] is not None]
    return rounds, [w for w in live if w.ms and None not in w.ms]


def measure(name, folder, threads, o):
    ws = []
    try:
        for e in o.engines:
            ws.append(Worker(e, folder, threads, o.lib, o.limit))
        rounds, live = take_turns(ws, o)
    finally:
        for w in ws:
            w.close()
    row = {"model": name, "threads": threads, "rounds": rounds, "load": os.getloadavg()[0]}
    for w in ws:
        row[w.engine] = dict(w.about, ms=statistics.median(w.ms) if w in live else None, spread=spread(w.ms) if w in live else None)
    us = [w for w in live if w.engine == "sinter"]
    right = [w for w in live if w.engine != "sinter" and w.about["same"]]
    if us and right:
        best = min(right, key=lambda w: statistics.median(w.ms))
        row.update(best=best.engine, ratio=statistics.median(b / a for a, b in zip(us[0].ms, best.ms)))
    return row


def cell(d):
    if not d:
        return "-"
    if d.get("ms") is None:
        return "none"
    return "%.3f ±%2.0f%%%s" % (d["ms"], 50 * d["spread"], "" if d["same"] else " WRONG")


def print_table(rows, o, out):
    print("%-28s %2s" % ("model", "T"), *["%20s" % ("%s ms" % NAME[e]) for e in o.engines], "%16s %7s" % ("best peer", "ratio"), file=out)
    for r in rows:
        print("%-28s %2d" % (r["model"][:28], r["threads"]), *["%20s" % cell(r.get(e)) for e in o.engines],
              "%16s %7s" % (NAME.get(r.get("best"), "-"), "%.2fx" % r["ratio"] if "ratio" in r else "-"), file=out)
    for t in o.threads:
        v = [r["ratio"] for r in rows if r["threads"] == t and "ratio" in r]
        if v:
            print("%d thread(s): geometric mean %.2fx as fast as the best peer on each of %d models; lowest %.2fx" % (t, math.exp(sum(map(math.log, v)) / len(v)), len(v), min(v)), file=out)
    said = set()
    for r in rows:
        for e in o.engines:
            d = r.get(e) or {}
            note = "%s, %s: %s" % (r["model"], NAME[e], d["error"]) if "error" in d else \
                "%s, %s: values differ by up to %.3g" % (r["model"], NAME[e], d["worst"]) if d and not d.get("same", True) else None
            if note and note not in said:
                said.add(note)
                print("  " + note, file=out)


def versions(o):
    from importlib.metadata import version, PackageNotFoundError
    text = []
    for e, package in (("ort", "onnxruntime"), ("openvino", "openvino"), ("inductor", "torch")):
        try:
            text.append("%s %s" % (NAME[e], version(package)))
        except PackageNotFoundError:
            text.append("%s not installed" % NAME[e])
            if e in o.engines:
                o.engines.remove(e)
    return ", ".join(text)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--lib"), p.add_argument("--work"), p.add_argument("--folders", nargs="*", default=[])
    own = p.parse_args(sys.argv[1:cut])
    p = argparse.ArgumentParser(prog="./dev bench --peers", description="sinter beside ONNX Runtime, OpenVINO and PyTorch: one table")
    p.add_argument("models", nargs="*", help="model.onnx files, with test_data_set_0 beside them or else random inputs; or words that pick from the models of the test material")
    p.add_argument("--threads", default="1,2", help="numbers of threads; default 1,2")
    p.add_argument("--engines", default=",".join(ENGINES), help="which of %(default)s")
    p.add_argument("--dim", "-d", action="append", default=[], metavar="NAME=SIZE", help="a dimension of a model without test data; default 1")
    p.add_argument("--rounds", type=int, default=15, help="turns of each engine; default %(default)s")
    p.add_argument("--seconds", type=float, default=5, help="more rounds (up to three times as many) while a model took less; default %(default)s")
    p.add_argument("--turn-ms", type=float, default=20, help="about so long is a turn; default %(default)s")
    p.add_argument("--limit", type=float, default=300, help="seconds that an engine may take to get ready or for a turn; then the table says so; default %(default)s")
    p.add_argument("--json", metavar="FILE", help="also writes all figures there, model by model; what already stands there is not measured again, so that a run can be stopped and gone on with")
    o = p.parse_args(sys.argv[cut + 1:])
    o.lib, o.work = own.lib, own.work
    o.threads = [int(t) for t in o.threads.split(",")]
    o.engines = [e for e in o.engines.split(",") if e in ENGINES]
    there = [m for f in own.folders for m in sorted(glob.glob(os.path.join(f, "*", "model.onnx")))]
    files = [m for m in o.models if m.endswith(".onnx")]
    words = [m for m in o.models if not m.endswith(".onnx")]
    picked = files + [m for m in there if words and any(w in m for w in words) or not o.models]
    if not picked:
        sys.exit("peers: no models; name .onnx files, or say where the test material is in SN_CASES")
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    print("%s, %s, %d processors, load %.2f; %s" % (time.strftime("%F %H:%M", time.gmtime()), cpu, len(os.sched_getaffinity(0)), os.getloadavg()[0], versions(o)), flush=True)
    rows = []
    if o.json and os.path.exists(o.json):
        with open(o.json) as f:
            rows = json.load(f)
    have = {(r["model"], r["threads"]) for r in rows if all(e in r for e in o.engines)}
    rows = [r for r in rows if (r["model"], r["threads"]) in have]
    dims = {k: int(v) for k, v in (d.rsplit("=", 1) for d in o.dim)}
    for m in picked:
        name, folder = prepare(m, o.work, dims)
        for t in o.threads:
            if (name, t) in have:
                continue
            rows.append(measure(name, folder, t, o))
            print("%s, %d thread(s): %s" % (name, t, ", ".join("%s %s" % (NAME[e], cell(rows[-1].get(e))) for e in o.engines)), file=sys.stderr, flush=True)
            if o.json:
                with open(o.json + ".new", "w") as f:
                    json.dump(rows, f, indent=1)
                os.replace(o.json + ".new", o.json)
    print_table(rows, o, sys.stdout)
    if any(not r.get("sinter", {}).get("same", False) for r in rows if "sinter" in o.engines):
        sys.exit(1)


if __name__ == "__main__":
    main()
