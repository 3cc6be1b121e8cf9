"""sinter on a GPU beside PyTorch (eager, torch.compile and its fused AdamW) and XLA, in one run on one card: gpu.py [WORD]... takes the cases whose name holds a
word; "random" stands for random shapes beside the table, of sinter alone.

Each case: first the values, on fresh random data that is made on the card, against the same formula in float64; then the times. All sides are timed by device events
around single launches that are enqueued before the first of them runs, in turns (peer, sinter, peer, sinter), after a warm-up; figures are medians. The fused AdamW
is captured into a CUDA graph, so that only the device's time counts. XLA gives no events: its time is that of many calls, which are enqueued faster than they
run, over their number. "cold" is the time from a kernel's text to code with an empty cache, the median of three, and the least and most. A case of several kernels
is also measured as a recorded graph that is replayed, on both sides by the clock of the host from the call until all is done. GB/s counts each input once and each output once. Peers that cannot be imported are left
out; without PyTorch the values are not checked. Before the table, processes beside one another fill the peers' caches of compiled kernels.

SINTER: the program (default build/sinter); the library lies beside it. SN_DEVICE: the target (default cuda). SEED, RANDOM: of the random shapes, and how many of
them (default 20). RESULTS: folder of the table (default bench/results). LIMIT: no case begins after so many seconds."""
import ctypes
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import sn

START = time.monotonic()
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SINTER = os.path.abspath(os.environ.get("SINTER", os.path.join(HERE, "build", "sinter")))
DEVICE = os.environ.get("SN_DEVICE", "cuda")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
try:
    import torch
    if not torch.cuda.is_available():
        torch = None
except ImportError:
    torch = None

try:
    import jax
    import jax.numpy as jnp
    if torch is None or not any(d.platform == "gpu" for d in jax.devices()):
        jax = None
except Exception:       # also one that finds no driver
    jax = None

# ---- the library, as far as it is needed ----
ONNX = {"f32": 1, "i64": 7, "bf16": 16}
WORD = {"f32": "float", "i64": "int64", "bf16": "bfloat16"}
SIZE = {"f32": 4, "i64": 8, "bf16": 2}


class Program:
    """A case compiled, with its arguments and results on the card. tensors: of torch, or arrays, which are copied there."""

    def __init__(self, lib, case, tensors, cache):
        self.lib, self.err, self.model, self.program, self.buffers = lib, sn.Error(), ctypes.c_void_p(), ctypes.c_void_p(), []
        self.keep = text = case.text().encode()
        self.call("sn_model_from_memory", text, ctypes.c_size_t(len(text)), b"case.onnxtxt", ctypes.byref(self.model))
        self.call("sn_compile", self.model, ctypes.byref(sn.Options(device=DEVICE.encode(), cache=cache.encode())), ctypes.byref(self.program))
        self.nin, self.nout = len(case.inputs), len(case.outputs)
        self.ins, self.outs = (sn.Tensor * self.nin)(), (sn.Tensor * self.nout)()
        for t, (_, kind, shape), x in zip(self.ins, case.inputs, tensors):
            self.place(t, kind, shape, x)
        self.results = []
        if torch is not None:
            for t, (name, kind) in zip(self.outs, case.outputs):
                shape = case.shape_of(name)
                self.results.append(torch.empty(shape, dtype=torch_dtype(kind), device="cuda"))
                self.place(t, kind, shape, self.results[-1])

    def call(self, name, *args):
        if getattr(self.lib, name)(*args, ctypes.byref(self.err)):
            raise RuntimeError(self.err.text.decode())

    def place(self, t, kind, shape, x):
        b = ctypes.c_void_p()
        n = ctypes.c_size_t(SIZE[kind] * int(np.prod(shape)))
        if torch is not None:
            self.call("sn_buffer_wrap", self.program, ctypes.c_void_p(x.data_ptr()), n, ctypes.byref(b))
        else:
            self.call("sn_buffer_new", self.program, n, ctypes.byref(b))
            self.call("sn_buffer_write", b, ctypes.c_size_t(0), ctypes.c_void_p(x.ctypes.data), n)
        self.buffers.append(b)
        t.dtype, t.rank, t.buffer = ONNX[kind], len(shape), b
        t.dims[:len(shape)] = shape

    def run(self):
        self.call("sn_run", self.program, self.nin, self.ins, self.nout, self.outs)

    def segments(self):
        text = ctypes.c_void_p()
        self.call("sn_program_explain", self.program, 1, ctypes.byref(text))
        d = json.loads(ctypes.string_at(text))
        self.lib.sn_string_free(text)
        return d["segments"]

    def measure(self, runs=15):
        """Milliseconds of the kernels of one run, their number, and what the compiler said."""
        self.call("sn_profile", self.program, self.nin, self.ins, runs)
        kernels = [k for s in self.segments() for k in s["kernels"] if not k["once"] and not k.get("joined")]
        return sum(k["ms"] for k in kernels), len(kernels), "; ".join(k.get("compiler", "") for k in kernels)

    def built(self):
        """Milliseconds that compiling took, after a run."""
        return sum(s["build_ms"] for s in self.segments() if "build_ms" in s)

    def close(self):
        for b in self.buffers:
            self.lib.sn_buffer_free(b)
        self.lib.sn_program_free(self.program)
        self.lib.sn_model_free(self.model)


def library():
    lib = ctypes.CDLL(os.path.join(os.path.dirname(SINTER), "libsinter.so"))
    for name in ("sn_program_free", "sn_model_free", "sn_string_free", "sn_buffer_free"):
        getattr(lib, name).argtypes, getattr(lib, name).restype = [ctypes.c_void_p], None
    return lib


def torch_dtype(kind):
    return {"f32": torch.float32, "i64": torch.int64, "bf16": torch.bfloat16}[kind]


# ---- cases: inputs as (name, dtype, shape), outputs as (name, dtype), the model's lines, and the formula ----
class Case:
    def __init__(self, name, inputs, outputs, body, formula, xla=None, rival=None, opset=23):
        self.name, self.inputs, self.outputs, self.body, self.formula, self.opset = name, inputs, outputs, body, formula, opset
        self.xla, self.rival = xla, rival      # the formula for JAX; what stands in for torch.compile: from tensors to a function to be timed
        self.shapes = {}                       # of outputs that have not the first input's
        self.moved = None                      # bytes, where they do not follow from the first input

    def text(self):
        ins = ", ".join("%s[%s] %s" % (WORD[d], ",".join(map(str, s)), n) for n, d, s in self.inputs)
        outs = ", ".join("%s %s" % (WORD[d], n) for n, d in self.outputs)
        return '<ir_version: 10, opset_import: ["" : %d]>\ng (%s) => (%s)\n{\n    %s\n}\n' % (self.opset, ins, outs, "\n    ".join(self.body))

    def shape_of(self, output):
        return self.shapes.get(output, self.inputs[0][2])

    def bytes(self):
        if self.moved:
            return self.moved
        n = sum(SIZE[d] * int(np.prod(s)) for _, d, s in self.inputs)
        return n + sum(SIZE[d] * int(np.prod(self.shape_of(name))) for name, d in self.outputs)


def add_relu(n, d):
    return Case("add+relu %s 2^%d" % (d, n.bit_length() - 1) if n & (n - 1) == 0 else "add+relu %s %d" % (d, n), [("a", d, (n,)), ("b", d, (n,))], [("y", d)],
                ["t = Add(a, b)", "y = Relu(t)"], lambda a, b: torch.relu(a + b), lambda a, b: jax.nn.relu(a + b))


def bias_gelu(m, n):
    return Case("bias+GELU+residual bf16 %dx%d" % (m, n), [("x", "bf16", (m, n)), ("b", "bf16", (n,)), ("r", "bf16", (m, n))], [("y", "bf16")],
                ["t = Add(x, b)", 'g = Gelu<approximate = "tanh">(t)', "y = Add(g, r)"],
                lambda x, b, r: torch.nn.functional.gelu(x + b, approximate="tanh") + r, lambda x, b, r: jax.nn.gelu(x + b, approximate=True) + r)


def softmax(m, n):
    return Case("softmax bf16 %dx%d" % (m, n), [("x", "bf16", (m, n))], [("y", "bf16")], ["y = Softmax<axis = -1>(x)"], lambda x: torch.softmax(x, -1),
                lambda x: jax.nn.softmax(x.astype(jnp.float32), axis=-1).astype(x.dtype))


def layer_norm(m, n):
    def xla(x, g, b):
        w = x.astype(jnp.float32)
        d = w - w.mean(-1, keepdims=True)
        return (d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g.astype(jnp.float32) + b.astype(jnp.float32)).astype(x.dtype)

    return Case("LayerNorm bf16 %dx%d" % (m, n), [("x", "bf16", (m, n)), ("g", "bf16", (n,)), ("b", "bf16", (n,))], [("y", "bf16")],
                ["y = LayerNormalization<axis = -1, epsilon = 1e-5>(x, g, b)"], lambda x, g, b: torch.nn.functional.layer_norm(x, (x.shape[-1],), g, b, 1e-5), xla)


def rms_norm(m, n):
    def xla(x, g):
        w = x.astype(jnp.float32)
        return (w * jax.lax.rsqrt((w * w).mean(-1, keepdims=True) + 1e-5) * g.astype(jnp.float32)).astype(x.dtype)

    return Case("RMSNorm bf16 %dx%d" % (m, n), [("x", "bf16", (m, n)), ("g", "bf16", (n,))], [("y", "bf16")],
                ["y = RMSNormalization<axis = -1, epsilon = 1e-5>(x, g)"], lambda x, g: torch.nn.functional.rms_norm(x, (x.shape[-1],), g, 1e-5), xla)


def cross_entropy(m, n):
    def formula(x, y):
        wide = x if x.dtype == torch.float64 else x.float()
        lse = torch.logsumexp(wide, -1, keepdim=True)
        loss = (lse - wide.gather(-1, y[:, None]))[:, 0]
        hot = torch.arange(x.shape[-1], device=x.device)[None, :] == y[:, None]
        return (torch.exp(wide - lse) - hot.to(wide.dtype)).to(x.dtype), loss

    def xla(x, y):
        w = x.astype(jnp.float32)
        lse = jax.scipy.special.logsumexp(w, axis=-1, keepdims=True)
        loss = (lse - jnp.take_along_axis(w, y[:, None], axis=-1))[:, 0]
        hot = jnp.arange(x.shape[-1])[None, :] == y[:, None]
        return (jnp.exp(w - lse) - hot.astype(jnp.float32)).astype(x.dtype), loss

    case = Case("cross-entropy+gradient bf16 %dx%d" % (m, n), [("x", "bf16", (m, n)), ("y", "i64", (m,))], [("dx", "bf16"), ("loss", "f32")],
                ["axis = Constant<value_ints = [1]>()", "depth = Constant<value_int = %d>()" % n, "values = Constant<value_floats = [0.0, 1.0]>()", "w = Cast<to = 1>(x)", "lse = ReduceLogSumExp<keepdims = 1>(w, axis)", "y1 = Unsqueeze(y, axis)", "at16 = GatherElements<axis = 1>(x, y1)",
                 "at = Cast<to = 1>(at16)", "d = Sub(lse, at)", "loss = Squeeze(d, axis)", "s = Sub(w, lse)", "p = Exp(s)", "h = OneHot<axis = 1>(y, depth, values)", "q = Sub(p, h)",
                 "dx = Cast<to = 16>(q)"], formula, xla)
    case.shapes["loss"] = (m,)
    return case


def gpt2_chain(m):
    """What stands between the products of one block: residual and norm, bias and GELU, residual."""
    def formula(x, a, g, b, f, c, p):
        h = x + a
        n = torch.nn.functional.layer_norm(h, (h.shape[-1],), g, b, 1e-5)
        u = torch.nn.functional.gelu(f + c, approximate="tanh")
        return h + p, n, u

    case = Case("GPT-2 pointwise chain bf16 %dx768" % m, [("x", "bf16", (m, 768)), ("a", "bf16", (m, 768)), ("g", "bf16", (768,)), ("b", "bf16", (768,)),
                ("f", "bf16", (m, 3072)), ("c", "bf16", (3072,)), ("p", "bf16", (m, 768))], [("y", "bf16"), ("n", "bf16"), ("u", "bf16")],
                ["h = Add(x, a)", "n = LayerNormalization<axis = -1, epsilon = 1e-5>(h, g, b)", "t = Add(f, c)", 'u = Gelu<approximate = "tanh">(t)', "y = Add(h, p)"], formula)
    case.shapes["u"] = (m, 3072)
    return case


GPT2 = [(50257, 768), (1024, 768)] + 12 * [(768,), (768,), (768, 2304), (2304,), (768, 768), (768,), (768,), (768,), (768, 3072), (3072,), (3072, 768), (768,)] + [(768,), (768,)]


def adamw(shapes):
    """The first step of AdamW, lr 1e-3, weight decay 0.1: parameters, gradients, moments; new parameters and moments."""
    lr, b1, b2, eps, decay = 1e-3, 0.9, 0.999, 1e-8, 0.1

    def formula(*args):
        out = []
        for p, g, m, v in zip(*[iter(args)] * 4):
            m2 = b1 * m + (1 - b1) * g
            v2 = b2 * v + (1 - b2) * g * g
            out += [p * (1 - lr * decay) - lr / (1 - b1) * m2 / (torch.sqrt(v2) / (1 - b2) ** 0.5 + eps), m2, v2]
        return tuple(out)

    def rival(tensors):
        params = [torch.nn.Parameter(p.clone()) for p in tensors[::4]]
        for p, g in zip(params, tensors[1::4]):
            p.grad = g
        step = torch.optim.AdamW(params, lr=lr, betas=(b1, b2), eps=eps, weight_decay=decay, fused=True, capturable=True).step
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    k = "%s = Constant<value_float = %r>()"
    lines = [k % x for x in (("b1", b1), ("c1", 1 - b1), ("b2", b2), ("c2", 1 - b2), ("keep", 1 - lr * decay), ("rate", lr / (1 - b1)), ("root", 1 / (1 - b2) ** 0.5), ("eps", eps))]
    inputs, outputs = [], []
    for i, shape in enumerate(shapes):
        inputs += [("%s%d" % (x, i), "f32", shape) for x in "pgmv"]
        outputs += [("%s%d" % (x, i), "f32") for x in ("pn", "mn", "vn")]
        lines += [x.replace("$", str(i)) for x in ("s$ = Mul(b1, m$)", "t$ = Mul(c1, g$)", "mn$ = Add(s$, t$)", "u$ = Mul(g$, g$)", "w$ = Mul(c2, u$)", "z$ = Mul(b2, v$)", "vn$ = Add(z$, w$)",
                  "q$ = Sqrt(vn$)", "r$ = Mul(q$, root)", "e$ = Add(r$, eps)", "n$ = Mul(rate, mn$)", "d$ = Div(n$, e$)", "o$ = Mul(p$, keep)", "pn$ = Sub(o$, d$)")]
    case = Case("AdamW f32, %d tensors" % len(shapes), inputs, outputs, lines, formula, rival=rival)
    case.shapes = {x + str(i): shape for i, shape in enumerate(shapes) for x in ("pn", "mn", "vn")}
    case.moved = 28 * sum(int(np.prod(s)) for s in shapes)
    return case


TABLE = [add_relu(1 << 28, "f32"), add_relu(1 << 28, "bf16"), bias_gelu(8192, 4096)]
for kind in (softmax, layer_norm, rms_norm):
    TABLE += [kind(131072, 1024), kind(16384, 8192), kind(2048, 65536)]
TABLE += [cross_entropy(m, n) for m, n in ((131072, 1024), (16384, 8192), (2048, 65536))]
TABLE += [gpt2_chain(16384), adamw(GPT2)]


def random_cases(count, seed):
    r = random.Random(seed)
    out = []
    while len(out) < count:
        kind = r.choice([softmax, layer_norm, rms_norm, bias_gelu])
        n = 8 * r.randint(32, 2500) if r.random() < 0.7 else 8 * r.randint(2500, 12000)
        m = max(64, (1 << 27) // n)
        out.append(kind(m, n))
    return out


# ---- measuring ----
def torch_ms(f, args, rounds=15):
    start, end = [torch.cuda.Event(enable_timing=True) for _ in range(rounds)], [torch.cuda.Event(enable_timing=True) for _ in range(rounds)]
    for _ in range(min(3, rounds)):
        f(*args)
    torch.cuda.synchronize()
    for a, b in zip(start, end):
        a.record()
        f(*args)
        b.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(start, end))


def replayed_ms(program, f, tensors, rounds=300):
    """Of sinter, and of a torch function in a CUDA graph: medians by the host's clock, in turns."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            f(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f(*tensors)
    times = ([], [])
    for _ in range(rounds):
        start = time.perf_counter()
        program.run()
        middle = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
    return [1e3 * statistics.median(t) for t in times]


def xla_ms(f, tensors, calls=40):
    args = [jax.dlpack.from_dlpack(t.contiguous()) for t in tensors]
    g = jax.jit(f)
    for _ in range(3):
        jax.block_until_ready(g(*args))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        last = [g(*args) for _ in range(calls)][-1]
        jax.block_until_ready(last)
        times.append((time.perf_counter() - start) / calls * 1e3)
    return min(times)


def inputs_of(case, seed):
    """Rows of different spread; where a name begins with v, nothing below 0."""
    tensors = []
    rng = np.random.default_rng(seed)
    if torch is not None:
        torch.manual_seed(seed)
    for name, kind, shape in case.inputs:
        wide = case.inputs[0][2][-1]
        if torch is None:
            a = rng.integers(0, wide, shape) if kind == "i64" else rng.standard_normal(shape, np.float32)
            a = np.abs(a) if name[0] == "v" else a
            tensors.append(np.ascontiguousarray(a if kind != "bf16" else (a.view(np.uint32) >> 16).astype(np.uint16)))
        elif kind == "i64":
            tensors.append(torch.randint(0, wide, shape, device="cuda"))
        else:
            a = torch.randn(shape, device="cuda")
            a = a.abs_() if name[0] == "v" else a
            if len(shape) == 2:
                a *= torch.linspace(0.5, 2.0, shape[0], device="cuda")[:, None]
            tensors.append(a.to(torch_dtype(kind)))
    return tensors


def check_values(case, program, tensors):
    """The norm of the difference to float64 over the norm, of the worst result. None: nothing to compare with."""
    program.run()
    if torch is None:
        return None
    want = case.formula(*[t if t.dtype == torch.int64 else t.double() for t in tensors])
    worst = 0.0
    for g, w in zip(program.results, want if isinstance(want, tuple) else (want,)):
        g = g.double()
        if g.shape != w.shape or not torch.isfinite(g).all():
            return float("inf")
        worst = max(worst, float(torch.linalg.vector_norm(g - w) / torch.linalg.vector_norm(w)))
    return worst


def copy_rate():
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    ms = torch_ms(lambda: b.copy_(a), ())
    return 2 * a.numel() / ms / 1e6


def compiled_peer(case, tensors):
    torch._dynamo.reset()
    return case.rival(tensors) if case.rival else torch.compile(case.formula)


def peers_ahead(number, of):
    """In a process of its own: the peers' code of every of-th case gets into the caches that they keep on disk."""
    for case in [c for c in TABLE if not c.rival][number::of]:
        tensors = inputs_of(case, 0)
        compiled_peer(case, tensors)(*tensors)
        torch.cuda.synchronize()
        if jax is not None and case.xla:
            xla_ms(case.xla, tensors, 1)


def cold_ms(lib, case, tensors, folder):
    program = Program(lib, case, tensors, tempfile.mkdtemp(dir=folder))
    program.run()
    ms = program.built()
    program.close()
    return ms


def measure(lib, case, folder, seed, report, roof, peers=True):
    line = {"case": case.name}
    program = tensors = compiled = None
    try:
        tensors = inputs_of(case, seed)
        if torch is not None:
            torch.cuda.synchronize()
        program = Program(lib, case, tensors, tempfile.mkdtemp(dir=folder))
        err = check_values(case, program, tensors)
        cold = sorted([program.built()] + [cold_ms(lib, case, tensors, folder) for _ in range(2)])
        times = {"sinter": [], "compile": [], "eager": [], "xla": []}
        peers = peers and torch is not None
        if torch is not None:
            torch.cuda.empty_cache()
        if peers:
            compiled = compiled_peer(case, tensors)
        for _ in range(2):
            if peers:
                times["eager"].append(torch_ms(case.formula, tensors, 15 if len(tensors) < 100 else 2))
                times["compile"].append(torch_ms(compiled, [] if case.rival else tensors))
            ms, kernels, note = program.measure()
            times["sinter"].append(ms)
        if peers and kernels > 1 and not case.rival:
            line["replayed"] = replayed_ms(program, compiled, tensors)
        if peers and jax is not None and case.xla:
            try:
                times["xla"].append(xla_ms(case.xla, tensors))
            except Exception as e:
                report("# XLA: %s" % str(e).replace("\n", " ")[:200])
        for k, v in times.items():
            line[k] = min(v) if v else None
        rate = case.bytes() / line["sinter"] / 1e6
        line["share"] = rate / roof if roof else None
        ok = err is None or err < 1e-2
        ms = {k: "%.4f" % line[k] if line[k] else "-" for k in ("compile", "eager", "xla")}
        report("%-44s %s %8s  sinter %8.4f  %s %8s  XLA %8s  eager %8s  %5.0f GB/s %s  %d kernel%s  cold %.2f (%.2f to %.2f) s  [%s]" % (
            case.name, "ok  " if ok else "FAIL", "-" if err is None else "%.1e" % err, line["sinter"], "fused AdamW" if case.rival else "compile", ms["compile"], ms["xla"], ms["eager"],
            rate, "%3.0f %%" % (100 * line["share"]) if roof else "", kernels, "" if kernels == 1 else "s", cold[1] / 1e3, cold[0] / 1e3, cold[2] / 1e3, note))
        if "replayed" in line:
            report("%-44s replayed: sinter %8.4f  compile in a CUDA graph %8.4f, until the host sees the end" % ((case.name,) + tuple(line["replayed"])))
    except Exception as e:      # one case that fails is a line of the table
        report("%-44s FAIL %s" % (case.name, str(e).replace("\n", " ")[:300]))
    if program:
        program.close()
    del program, tensors, compiled
    if torch is not None:
        torch.cuda.empty_cache()
    return line


def main(words):
    try:
        card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        card = "no card"
    out = os.environ.get("RESULTS", os.path.join(HERE, "bench", "results"))
    os.makedirs(out, exist_ok=True)
    name = os.path.join(out, "%s-%s.txt" % (datetime.date.today().isoformat(), card.split(",")[0].replace(" ", "-")))
    f = open(name, "a")

    def report(text):
        print(text, flush=True)
        f.write(text + "\n")
        f.flush()

    seed, count, limit = int(os.environ.get("SEED", time.time_ns() & 0xFFFFFF)), int(os.environ.get("RANDOM", 20)), float(os.environ.get("LIMIT", "inf"))
    table = [c for c in TABLE if not words or any(w in c.name for w in words)]
    with tempfile.TemporaryDirectory() as folder:
        for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"):
            os.environ.setdefault(variable, os.path.join(folder, variable.lower()))
        if jax is not None:
            jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        ahead = max(1, min(8, (os.cpu_count() or 1) // 2)) if torch is not None and len(table) > 4 else 0
        for process in [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--ahead", str(i), str(ahead)], stderr=subprocess.DEVNULL) for i in range(ahead)]:
            process.wait()
        roof = copy_rate() if torch is not None else None
        report("# %s, %s, torch %s, seed %d; a copy of 2 GiB moves %s" % (datetime.datetime.now().isoformat(" ", "minutes"), card, torch.__version__ if torch else "none", seed,
               "%.0f GB/s" % roof if roof else "?"))
        report("# ms: medians of single launches by device events, the better of two turns; err: norm of the difference to float64 over the norm")
        lib, shares = library(), []
        for peers, cases in ((True, table), (False, random_cases(count, seed) if not words or "random" in words else [])):
            for case in cases:
                if time.monotonic() - START > limit:
                    report("# the time is over before %s" % case.name)
                    break
                line = measure(lib, case, folder, seed, report, roof, peers)
                if not peers and line.get("share"):
                    shares.append(line["share"])
        if shares:
            report("# %d random shapes: %.0f %% of the copy at least, %.0f %% in the middle" % (len(shares), 100 * min(shares), 100 * statistics.median(shares)))
        report("# %.0f s" % (time.monotonic() - START))
    print("written to", name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ahead"]:
        peers_ahead(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main(sys.argv[1:])
