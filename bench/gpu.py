"""sinter on a GPU beside PyTorch (eager, torch.compile and its fused AdamW) and XLA, in one run on one card: gpu.py [WORD]... takes the cases whose name holds a
word.

Each case: first the values, on fresh random data, against the same formula in float64; then the times. Both sides are timed by device events around single
launches, in turns (peer, sinter, peer, sinter), after a warm-up; figures are medians. The fused AdamW is captured into a CUDA graph, so that only the device's time
counts. XLA gives no events: its time is that of many calls, which are enqueued faster than they run, over their number. "cold" is the time from a kernel's text to
code with an empty cache. A case of several kernels is also measured as a recorded graph that is replayed, on both sides by the clock of the host from the call until
all is done, with arguments and results on the card. GB/s counts each input once and each output once. Peers that cannot be imported are left out. SINTER: the program (default build/sinter); the library lies beside it. SN_DEVICE: the target (default cuda)."""
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

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SINTER = os.path.abspath(os.environ.get("SINTER", os.path.join(HERE, "build", "sinter")))
DEVICE = os.environ.get("SN_DEVICE", "cuda")
os.environ["SN_WAIT"] = "1"        # values are of the kernels, not of what answers until they are built
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
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
NUMPY = {"f32": np.float32, "i64": np.int64, "bf16": np.uint16}


class SnTensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("rank", ctypes.c_int32), ("dims", ctypes.c_int64 * 16), ("strides", ctypes.c_int64 * 16),
                ("has_strides", ctypes.c_int32), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("owner", ctypes.c_void_p), ("buffer", ctypes.c_void_p), ("offset", ctypes.c_size_t)]


class SnError(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class SnOptions(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int32), ("no_fuse", ctypes.c_int32), ("check", ctypes.c_int32), ("interpret", ctypes.c_int32), ("cache", ctypes.c_char_p),
                ("compiler", ctypes.c_char_p), ("cancel", ctypes.c_void_p), ("device", ctypes.c_char_p)]


def library():
    lib = ctypes.CDLL(os.path.join(os.path.dirname(SINTER), "libsinter.so"))
    for name in ("sn_program_free", "sn_model_free", "sn_tensor_release", "sn_buffer_free"):
        getattr(lib, name).argtypes, getattr(lib, name).restype = [ctypes.c_void_p], None
    return lib


def run_sinter(lib, path, arrays, dtypes, nout):
    """The outputs of a model, as arrays (bf16: of its bits)."""
    err, model, program = SnError(), ctypes.c_void_p(), ctypes.c_void_p()

    def check(status):
        if status:
            raise RuntimeError(err.text.decode())

    check(lib.sn_model_load(path.encode(), ctypes.byref(model), ctypes.byref(err)))
    opt = SnOptions(device=DEVICE.encode())
    check(lib.sn_compile(model, ctypes.byref(opt), ctypes.byref(program), ctypes.byref(err)))
    ins, outs = (SnTensor * len(arrays))(), (SnTensor * nout)()
    for t, a, d in zip(ins, arrays, dtypes):
        t.dtype, t.rank, t.data, t.bytes = ONNX[d], a.ndim, a.ctypes.data, a.nbytes
        t.dims[:a.ndim] = a.shape
    check(lib.sn_run(program, len(arrays), ins, nout, outs, ctypes.byref(err)))
    names = {v: k for k, v in ONNX.items()}
    result = []
    for t in outs:
        kind, shape = names[t.dtype], tuple(t.dims[:t.rank])
        n = int(np.prod(shape)) * np.dtype(NUMPY[kind]).itemsize
        result.append((kind, np.frombuffer((ctypes.c_char * n).from_address(t.data), NUMPY[kind]).reshape(shape).copy()))
        lib.sn_tensor_release(ctypes.byref(t))
    lib.sn_program_free(program)
    lib.sn_model_free(model)
    return result


def to_f32(kind, a):
    return (a.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else a


def bf16_bits(a):
    u = a.astype(np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


# ---- cases: inputs as (name, dtype, shape), outputs as (name, dtype), the model's lines, and the formula ----
class Case:
    def __init__(self, name, inputs, outputs, body, formula, xla=None, rival=None, opset=23):
        self.name, self.inputs, self.outputs, self.body, self.formula, self.opset = name, inputs, outputs, body, formula, opset
        self.xla, self.rival = xla, rival      # the formula for JAX; what stands in for torch.compile: from tensors to a function to be timed
        self.moved = None                      # bytes, where they do not follow from the first input

    def text(self):
        ins = ", ".join("%s[%s] %s" % (WORD[d], ",".join(map(str, s)), n) for n, d, s in self.inputs)
        outs = ", ".join("%s %s" % (WORD[d], n) for n, d in self.outputs)
        return '<ir_version: 10, opset_import: ["" : %d]>\ng (%s) => (%s)\n{\n    %s\n}\n' % (self.opset, ins, outs, "\n    ".join(self.body))

    def bytes(self):
        if self.moved:
            return self.moved
        size = {"f32": 4, "i64": 8, "bf16": 2}
        n = sum(size[d] * int(np.prod(s)) for _, d, s in self.inputs)
        shape = {"rows": self.inputs[0][2][:1]}
        for name, d in self.outputs:
            n += size[d] * int(np.prod(shape["rows"] if name == "loss" else self.inputs[0][2]))
        return n


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

    return Case("cross-entropy+gradient bf16 %dx%d" % (m, n), [("x", "bf16", (m, n)), ("y", "i64", (m,))], [("dx", "bf16"), ("loss", "f32")],
                ["w = Cast<to = 1>(x)", "lse = ReduceLogSumExp<keepdims = 1>(w, axis)", "y1 = Unsqueeze(y, axis)", "at16 = GatherElements<axis = 1>(x, y1)",
                 "at = Cast<to = 1>(at16)", "d = Sub(lse, at)", "loss = Squeeze(d, axis)", "s = Sub(w, lse)", "p = Exp(s)", "h = OneHot<axis = 1>(y, depth, values)", "q = Sub(p, h)",
                 "dx = Cast<to = 16>(q)"], formula, xla)


def cross_entropy_text(case):
    n = case.inputs[0][2][1]
    consts = ["axis = Constant<value_ints = [1]>()", "depth = Constant<value_int = %d>()" % n, "values = Constant<value_floats = [0.0, 1.0]>()"]
    case.body = consts + case.body
    return case


def gpt2_chain(m):
    """What stands between the products of one block: residual and norm, bias and GELU, residual."""
    def formula(x, a, g, b, f, c, p):
        h = x + a
        n = torch.nn.functional.layer_norm(h, (h.shape[-1],), g, b, 1e-5)
        u = torch.nn.functional.gelu(f + c, approximate="tanh")
        return h + p, n, u

    return Case("GPT-2 pointwise chain bf16 %dx768" % m, [("x", "bf16", (m, 768)), ("a", "bf16", (m, 768)), ("g", "bf16", (768,)), ("b", "bf16", (768,)),
                ("f", "bf16", (m, 3072)), ("c", "bf16", (3072,)), ("p", "bf16", (m, 768))], [("y", "bf16"), ("n", "bf16"), ("u", "bf16")],
                ["h = Add(x, a)", "n = LayerNormalization<axis = -1, epsilon = 1e-5>(h, g, b)", "t = Add(f, c)", 'u = Gelu<approximate = "tanh">(t)', "y = Add(h, p)"], formula)


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
    case.moved = 28 * sum(int(np.prod(s)) for s in shapes)
    return case


TABLE = [add_relu(1 << 28, "f32"), add_relu(1 << 28, "bf16"), bias_gelu(8192, 4096)]
for kind in (softmax, layer_norm, rms_norm):
    TABLE += [kind(131072, 1024), kind(16384, 8192), kind(2048, 65536)]
TABLE += [cross_entropy_text(cross_entropy(m, n)) for m, n in ((131072, 1024), (16384, 8192), (2048, 65536))]
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
def sinter_ms(path, cache=None):
    """Milliseconds of the kernels of one run, their number, what the compiler said, and how long it took."""
    p = subprocess.run([SINTER, "explain", path, "--json", "--device", DEVICE], capture_output=True, text=True, env=dict(os.environ, **({"SN_CACHE": cache} if cache else {})))
    if p.returncode:
        raise RuntimeError(p.stderr.strip().splitlines()[-1] if p.stderr.strip() else "explain failed")
    d = json.loads(p.stdout)
    kernels = [k for s in d["segments"] for k in s["kernels"] if not k["once"] and not k.get("joined")]
    if any(k["ms"] is None for k in kernels):
        raise RuntimeError(d.get("not_timed", "no times"))
    return sum(k["ms"] for k in kernels), len(kernels), "; ".join(k.get("compiler", "") for k in kernels), sum(s["build_ms"] for s in d["segments"] if "build_ms" in s)


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


def replayed_ms(lib, case, path, f, tensors, rounds=300):
    """Of sinter, and of a torch function in a CUDA graph: medians by the host's clock, in turns."""
    err, model, program = SnError(), ctypes.c_void_p(), ctypes.c_void_p()

    def check(status):
        if status:
            raise RuntimeError(err.text.decode())

    check(lib.sn_model_load(path.encode(), ctypes.byref(model), ctypes.byref(err)))
    opt = SnOptions(device=DEVICE.encode())
    check(lib.sn_compile(model, ctypes.byref(opt), ctypes.byref(program), ctypes.byref(err)))
    buffers = []

    def place(t, kind, tensor):
        b = ctypes.c_void_p()
        check(lib.sn_buffer_wrap(program, ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.numel() * tensor.element_size()), ctypes.byref(b), ctypes.byref(err)))
        buffers.append(b)
        t.dtype, t.rank, t.buffer = ONNX[kind], tensor.dim(), b
        t.dims[:tensor.dim()] = tensor.shape

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            f(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        want = f(*tensors)
    want = want if isinstance(want, tuple) else (want,)
    results = [torch.empty_like(w) for w in want]
    ins, outs = (SnTensor * len(tensors))(), (SnTensor * len(want))()
    for t, (_, d, _), x in zip(ins, case.inputs, tensors):
        place(t, d, x)
    for t, (_, d), x in zip(outs, case.outputs, results):
        place(t, d, x)
    times = ([], [])
    for _ in range(rounds):
        start = time.perf_counter()
        check(lib.sn_run(program, len(ins), ins, len(outs), outs, ctypes.byref(err)))
        middle = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times[0].append(middle - start)
        times[1].append(time.perf_counter() - middle)
    for b in buffers:
        lib.sn_buffer_free(b)
    lib.sn_program_free(program)
    lib.sn_model_free(model)
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


def inputs_of(case, rng):
    arrays = []
    if torch is not None:       # made on the card: the large ones take a host seconds
        torch.manual_seed(int(rng.integers(1 << 31)))
        for name, d, s in case.inputs:
            if d == "i64":
                arrays.append(torch.randint(0, case.inputs[0][2][1], s, device="cuda").cpu().numpy())
                continue
            a = torch.randn(s, device="cuda")
            if name[0] == "v":
                a = a.abs()
            if len(s) == 2:     # rows of different spread
                a = a * torch.linspace(0.5, 2.0, s[0], device="cuda")[:, None]
            arrays.append(a.to(torch.bfloat16).view(torch.int16).cpu().numpy().view(np.uint16) if d == "bf16" else a.cpu().numpy())
        return arrays
    for name, d, s in case.inputs:
        if d == "i64":
            arrays.append(rng.integers(0, case.inputs[0][2][1], s))
        else:
            block = rng.standard_normal(min(int(np.prod(s)), 1 << 24), np.float32)
            if name[0] == "v":
                block = np.abs(block)
            n = int(np.prod(s))
            a = np.resize(block, n)
            a = a.reshape(s)
            if a.ndim == 2 and n > len(block):     # no two rows alike
                a = a * np.linspace(0.5, 2.0, s[0], dtype=np.float32)[:, None]
            arrays.append(bf16_bits(a) if d == "bf16" else a)
    return arrays


def on_card(kind, a, dtype):
    t = torch.from_numpy(a.view(np.int16) if kind == "bf16" else a).cuda()
    return t.view(torch.bfloat16).to(dtype) if kind == "bf16" else t if kind == "i64" else t.to(dtype)


def check_values(lib, case, path, arrays):
    got = run_sinter(lib, path, arrays, [d for _, d, _ in case.inputs], len(case.outputs))
    if torch is None:
        return None
    want = case.formula(*[on_card(d, a, torch.float64) for (_, d, _), a in zip(case.inputs, arrays)])
    worst = 0.0
    for (kind, g), w in zip(got, want if isinstance(want, tuple) else (want,)):
        g = on_card(kind, g, torch.float64)
        if not torch.isfinite(g).all():
            return float("inf")
        worst = max(worst, float(torch.linalg.vector_norm(g - w) / torch.linalg.vector_norm(w)))
        del g, w
    del want
    torch.cuda.empty_cache()
    return worst


def copy_rate():
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    ms = torch_ms(lambda: b.copy_(a), ())
    return 2 * a.numel() / ms / 1e6


def measure(lib, case, folder, rng, report, roof, peers=True):
    path = os.path.join(folder, "case.onnxtxt")
    with open(path, "w") as f:
        f.write(case.text())
    line = {"case": case.name}
    try:
        arrays = inputs_of(case, rng)
        err = check_values(lib, case, path, arrays)
        line["err"] = err
        times = {"sinter": [], "compile": [], "eager": [], "xla": []}
        tensors = compiled = None
        if torch is not None and peers:
            half = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": None}
            tensors = [on_card(d, a, half[d]) for (_, d, _), a in zip(case.inputs, arrays)]
            torch._dynamo.reset()
            compiled = case.rival(tensors) if case.rival else torch.compile(case.formula)
        for turn in range(2):
            if tensors is not None:
                times["eager"].append(torch_ms(case.formula, tensors, 15 if len(tensors) < 100 else 2))
                times["compile"].append(torch_ms(compiled, [] if case.rival else tensors))
            ms, kernels, note, cold = sinter_ms(path, os.path.join(folder, case.name.replace("/", "-")) if turn == 0 else None)
            times["sinter"].append(ms)
            if turn == 0:
                line["cold"] = cold
        if tensors is not None and kernels > 1 and not case.rival:
            line["replayed"] = replayed_ms(lib, case, path, compiled, tensors)
        if tensors is not None and jax is not None and case.xla:
            try:
                times["xla"].append(xla_ms(case.xla, tensors))
            except Exception as e:
                report("# XLA: %s" % str(e).replace("\n", " ")[:200])
        del tensors, compiled
        if torch is not None:
            torch.cuda.empty_cache()
        for k, v in times.items():
            line[k] = min(v) if v else None
        rate = case.bytes() / line["sinter"] / 1e6
        line["share"] = rate / roof if roof else None
        ok = err is None or err < 1e-2
        ms = {k: "%.4f" % line[k] if line[k] else "-" for k in ("compile", "eager", "xla")}
        report("%-44s %s %8s  sinter %8.4f  %s %8s  XLA %8s  eager %8s  %5.0f GB/s %s  %d kernel%s  cold %.2f s  [%s]" % (
            case.name, "ok  " if ok else "FAIL", "-" if err is None else "%.1e" % err, line["sinter"], "fused AdamW" if case.rival else "compile", ms["compile"], ms["xla"], ms["eager"],
            rate, "%3.0f %%" % (100 * line["share"]) if roof else "", kernels, "" if kernels == 1 else "s", line["cold"] / 1e3, note))
        if "replayed" in line:
            report("%-44s replayed: sinter %8.4f  compile in a CUDA graph %8.4f, until the host sees the end" % ((case.name,) + tuple(line["replayed"])))
    except Exception as e:      # one case that fails is a line of the table
        report("%-44s FAIL %s" % (case.name, str(e).replace("\n", " ")[:300]))
    return line


def main(words):
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip().splitlines()
    card = card[0] if card else "no card"
    out = os.environ.get("RESULTS", os.path.join(HERE, "bench", "results"))
    os.makedirs(out, exist_ok=True)
    name = os.path.join(out, "%s-%s.txt" % (datetime.date.today().isoformat(), card.split(",")[0].replace(" ", "-")))
    f = open(name, "a")

    def report(text):
        print(text, flush=True)
        f.write(text + "\n")
        f.flush()

    seed = int(os.environ.get("SEED", time.time_ns() & 0xFFFFFF))
    roof = copy_rate() if torch is not None else None
    report("# %s, %s, torch %s, seed %d; a copy of 2 GiB moves %s" % (datetime.datetime.now().isoformat(" ", "minutes"), card, torch.__version__ if torch else "none", seed,
           "%.0f GB/s" % roof if roof else "?"))
    report("# ms: medians of single launches by device events, the better of two turns; err: norm of the difference to float64 over the norm")
    lib = library()
    rng = np.random.default_rng(seed)
    count = int(os.environ.get("RANDOM", 20))
    with tempfile.TemporaryDirectory() as folder:
        for case in TABLE:
            if not words or any(w in case.name for w in words):
                measure(lib, case, folder, rng, report, roof)
        shares = []
        for case in random_cases(count, seed) if not words or "random" in words else []:
            line = measure(lib, case, folder, rng, report, roof, peers=False)
            if line.get("share"):
                shares.append(line["share"])
        if shares:
            report("# %d random shapes: %.0f %% of the copy at least, %.0f %% in the middle" % (len(shares), 100 * min(shares), 100 * statistics.median(shares)))
    print("written to", name)


if __name__ == "__main__":
    main(sys.argv[1:])
