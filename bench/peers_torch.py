"""An ONNX model as a torch module, for peers.py: ONNX Runtime's basic optimiser folds what it can for the fixed sizes; what depends on sizes only is
evaluated here, and each operator that is left becomes a call of torch."""
import math, os, tempfile
import numpy as np, onnx, torch
import torch.nn.functional as F
from onnx import numpy_helper

OPS = {}


def op(*names):
    def enter(f):
        for n in names:
            OPS[n] = f
        return f
    return enter


for name, f in dict(Add=torch.add, Sub=torch.sub, Mul=torch.mul, Pow=torch.pow, MatMul=torch.matmul, Sqrt=torch.sqrt, Erf=torch.erf, Tanh=torch.tanh, Exp=torch.exp,
                    Sigmoid=torch.sigmoid, Relu=torch.relu, Reciprocal=torch.reciprocal, Equal=torch.eq, Neg=torch.neg, Abs=torch.abs, Log=torch.log,
                    Not=torch.logical_not, And=torch.logical_and, Where=torch.where, Identity=lambda x: x).items():
    OPS[name] = (lambda f: lambda a, v, *x: f(*x))(f)


def window(a, rank):
    pads, pad = a.get("pads", [0] * 2 * rank), a.get("auto_pad", b"NOTSET")
    assert pad in (b"NOTSET", b"VALID"), "auto_pad"
    return a.get("strides", [1] * rank), pads[:rank], pads[rank:], a.get("dilations", [1] * rank)


def padded(x, lo, hi, value):
    return x if lo == hi else F.pad(x, [p for l, h in zip(lo[::-1], hi[::-1]) for p in (l, h)], value=value)


@op("Div")
def div(a, v, x, y):
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@op("Sum", "Max", "Min")
def variadic(a, v, *x):
    f = {"Sum": torch.add, "Max": torch.maximum, "Min": torch.minimum}[a["op"]]
    y = x[0]
    for z in x[1:]:
        y = f(y, z)
    return y


@op("Cast")
def cast(a, v, x):
    return x.to(a["dtype"])


@op("Clip")
def clip(a, v, x, lo=None, hi=None):
    return torch.clamp(x, lo if lo is not None else a.get("min"), hi if hi is not None else a.get("max"))


@op("HardSigmoid")
def hard_sigmoid(a, v, x):
    return torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1)


@op("Reshape")
def reshape(a, v, x, shape):
    return x.reshape([x.shape[k] if s == 0 else s for k, s in enumerate(v[1])])


@op("Flatten")
def flatten(a, v, x):
    n = a.get("axis", 1)
    return x.reshape(math.prod((x.shape[:n])), -1)


@op("Expand")
def expand(a, v, x, shape):
    return x * torch.ones(v[1], dtype=x.dtype) if x.dtype != torch.bool else x.expand(torch.broadcast_shapes(x.shape, tuple(v[1])))


@op("Transpose")
def transpose(a, v, x):
    return x.permute(a.get("perm", list(range(x.ndim))[::-1]))


@op("Unsqueeze")
def unsqueeze(a, v, x, axes=None):
    axes = v[1] if axes is not None else a["axes"]
    for k in sorted(k % (x.ndim + len(axes)) for k in axes):
        x = x.unsqueeze(k)
    return x


@op("Squeeze")
def squeeze(a, v, x, axes=None):
    axes = v[1] if axes is not None else a.get("axes", [k for k, d in enumerate(x.shape) if d == 1])
    return x.reshape([d for k, d in enumerate(x.shape) if k not in [c % x.ndim for c in axes]])


@op("Concat")
def concat(a, v, *x):
    return torch.cat(x, a["axis"])


@op("Slice")
def cut(a, v, x, *rest):
    start, end = (v[1], v[2]) if rest else (a["starts"], a["ends"])
    axes = v[3] if len(rest) > 2 else a.get("axes", list(range(len(start))))
    step = v[4] if len(rest) > 3 else [1] * len(start)
    index = [slice(None)] * x.ndim
    for s, e, k, d in zip(start, end, axes, step):
        assert d > 0
        index[k] = slice(s, e, d)
    return x[tuple(index)]


@op("Gather")
def gather(a, v, x, i):
    k = a.get("axis", 0) % x.ndim
    return torch.index_select(x, k, i.reshape(-1)).reshape(x.shape[:k] + i.shape + x.shape[k + 1:])


@op("ReduceMean", "ReduceSum", "ReduceMax")
def reduce(a, v, x, axes=None):
    axes = v[1] if axes is not None else a.get("axes", list(range(x.ndim)))
    f = {"ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax}[a["op"]]
    return f(x, dim=axes, keepdim=bool(a.get("keepdims", 1)))


@op("Softmax")
def softmax(a, v, x):
    if a["version"] >= 13:
        return torch.softmax(x, a.get("axis", -1))
    k = a.get("axis", 1) % x.ndim
    return torch.softmax(x.reshape(math.prod((x.shape[:k])), -1), 1).reshape(x.shape)


@op("Gemm")
def gemm(a, v, x, w, b=None):
    y = (x.t() if a.get("transA") else x) @ (w.t() if a.get("transB") else w)
    y = y * a["alpha"] if a.get("alpha", 1) != 1 else y
    return y if b is None else y + (b * a["beta"] if a.get("beta", 1) != 1 else b)


@op("Conv")
def conv(a, v, x, w, b=None):
    rank = w.ndim - 2
    stride, lo, hi, dilation = window(a, rank)
    f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    return f(padded(x, lo, hi, 0), w, b, stride, lo if lo == hi else 0, dilation, a.get("group", 1))


@op("MaxPool")
def max_pool(a, v, x):
    rank = x.ndim - 2
    stride, lo, hi, dilation = window(a, rank)
    kernel, f = a["kernel_shape"], {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[rank]
    return f(padded(x, lo, hi, float("-inf")), kernel, stride, lo if lo == hi else 0, dilation, bool(a.get("ceil_mode", 0)))


@op("AveragePool")
def average_pool(a, v, x):
    rank = x.ndim - 2
    stride, lo, hi, _ = window(a, rank)
    assert lo == hi or a.get("count_include_pad")
    f = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[rank]
    return f(padded(x, lo, hi, 0), a["kernel_shape"], stride, lo if lo == hi else 0, bool(a.get("ceil_mode", 0)), bool(a.get("count_include_pad", 0)))


@op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(a, v, x):
    f = torch.mean if a["op"] == "GlobalAveragePool" else torch.amax
    return f(x, dim=list(range(2, x.ndim)), keepdim=True)


@op("LRN")
def lrn(a, v, x):
    return F.local_response_norm(x, a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0))


def along(a, x, p):
    return p if p.ndim == 0 else p.reshape([-1 if k == a.get("axis", 1) % x.ndim else 1 for k in range(x.ndim)]) if p.numel() > 1 else p.reshape([])


@op("QuantizeLinear")
def quantize(a, v, x, s, z=None):
    info = torch.iinfo(z.dtype if z is not None else torch.uint8)
    y = torch.round(x / along(a, x, s)) + (along(a, x, z).float() if z is not None else 0)
    return torch.clamp(y, info.min, info.max).to(z.dtype if z is not None else torch.uint8)


@op("DequantizeLinear")
def dequantize(a, v, x, s, z=None):
    y = x.float() - along(a, x, z).float() if z is not None else x.float()
    return y * along(a, x, s)


def integers(c):
    """A constant that may be a shape or axes, as numbers for the function of its operator."""
    return c.reshape(-1).tolist() if c is not None and c.dtype.kind == "i" and c.size <= 64 else None


class Net(torch.nn.Module):
    def __init__(self, graph, version, known):
        super().__init__()
        self.inputs, self.outputs, self.steps, self.known = [i.name for i in graph.input], [o.name for o in graph.output], [], known
        self.slot = {}
        for n in graph.node:
            if all(o in known for o in n.output):
                continue
            assert n.op_type in OPS and n.domain in ("", "ai.onnx"), "operator %s has no form in torch here" % n.op_type
            a = {x.name: onnx.helper.get_attribute_value(x) for x in n.attribute}
            a.update(op=n.op_type, version=version)
            if "to" in a:
                a["dtype"] = torch.from_numpy(np.zeros(0, onnx.helper.tensor_dtype_to_np_dtype(a["to"]))).dtype
            for i in n.input:
                if i in known and i not in self.slot:
                    self.slot[i] = "c%d" % len(self.slot)
                    self.register_buffer(self.slot[i], torch.from_numpy(np.array(known[i])))
            self.steps.append((OPS[n.op_type], a, [integers(known.get(i)) for i in n.input], list(n.input), n.output[0]))

    def forward(self, *args):
        env = dict(zip(self.inputs, args))
        env.update({i: getattr(self, c) for i, c in self.slot.items()})
        for f, a, v, names, out in self.steps:
            env[out] = f(a, v, *[env[i] if i else None for i in names])
        return [env[o] for o in self.outputs]


def convert(path, data):
    import onnxruntime as ort
    with tempfile.TemporaryDirectory() as tmp:
        so = ort.SessionOptions()
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        so.log_severity_level = 4
        so.optimized_model_filepath = os.path.join(tmp, "basic.onnx")
        ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])
        m = onnx.load(so.optimized_model_filepath)
    g = m.graph
    known = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    static, wanted = set(known), []
    for n in g.node:                        # what depends on constants and sizes only
        if n.op_type == "Constant":
            known[n.output[0]] = numpy_helper.to_array(n.attribute[0].t)
            static.add(n.output[0])
        elif n.op_type == "Shape" or n.input and all(i in static or not i for i in n.input) and n.op_type not in ("DequantizeLinear", "If", "Loop"):
            static.update(n.output)
            wanted.extend(o for o in n.output if o)
    if wanted:
        probe = onnx.ModelProto()
        probe.CopyFrom(m)
        del probe.graph.output[:]
        probe.graph.output.extend(onnx.helper.make_empty_tensor_value_info(w) for w in wanted)
        so = ort.SessionOptions()
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        known.update(zip(wanted, ort.InferenceSession(probe.SerializeToString(), so, providers=["CPUExecutionProvider"]).run(wanted, data)))
    version = max(x.version for x in m.opset_import if x.domain in ("", "ai.onnx"))
    return Net(g, version, known).eval()
