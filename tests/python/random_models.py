"""Random ONNX models: sinter against onnx.reference and ONNX Runtime.

    python random_models.py [--seed 1] [--models 200] [--nodes 12] [--keep FOLDER]

A model grows node by node: an operator is drawn from the table STEPS, with operands from the values that are there, attributes and small constants; the node
is run by onnx.reference on the values at hand, which gives its results and refuses what is not legal. Some sizes of the inputs are declared symbolic. The
whole model then runs in sinter and in ONNX Runtime. Where results differ, each node runs alone, on the reference's operands, in all three: so a difference is
the fault of a node, or the growth of rounding, which is only believed when the reference, given the operands that the runtime itself computed, gives for each
node what the runtime gives. Differences at a node must stand in EXPLAINED. Prints what it met, and as its last line "N passed, N failed, N skipped": a model that only ONNX Runtime lacks is passed when
sinter and the reference agree.

NNSmith would be the generator to take; it writes ONNX through PyTorch, whose package is a hundred times the size of all that the tests need.
"""
import argparse
import collections
import concurrent.futures.process
import multiprocessing
import os
import sys
import warnings

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import sinter

try:
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
except ImportError:
    onnxruntime = None

OPSET, IR = 21, 10
F, I, B = "f", "i", "b"                 # kinds of dtypes
FLOATS = (np.float32, np.float32, np.float32, np.float32, np.float64, np.float16)
INTS = (np.int64, np.int64, np.int32, np.int8, np.uint8)

# (operator, who differs from the other two): the reason. Nothing else may differ. Where ONNX Runtime lacks the operator, the other two differ from each other:
# then the row names the dtype, and the reason says how it was settled.
EXPLAINED = {
    ("LpNormalization", "reference"): "with p=1 it divides by the sum, not by the sum of absolute values",
    ("Gelu float64", "sinter or reference"): "the reference computes erf in float32; t_program.py compares with math.erf",
    ("Erf float64", "sinter or reference"): "the reference computes erf in float32; t_program.py compares with math.erf",
    ("HardSwish float64", "sinter or reference"): "the reference takes 1/6 as a float32",
    ("ConvTranspose", "reference"): "with groups it gives each group the first biases, and keeps one channel of each",
    ("LRN", "reference"): "its loop over channels runs to the size of the batch",
}


class Model:
    def __init__(self, rng):
        self.rng, self.values, self.nodes, self.inputs, self.constants = rng, {}, [], [], {}

    # ---- choosing --------------------------------------------------------------------------------------------------
    def integer(self, low, high):       # both may come
        return int(self.rng.integers(low, high + 1))

    def chance(self, p):
        return self.rng.random() < p

    def one(self, items):
        return items[self.integer(0, len(items) - 1)]

    def pick(self, kind, rank=None, least=0):
        """A value of a kind; later ones are likelier, so models are deep."""
        names = [n for n, v in self.values.items() if n not in self.constants and kind_of(v.dtype) == kind and v.ndim >= least
                 and (rank is None or v.ndim == rank)]
        if not names:
            return None
        return names[max(self.integer(0, len(names) - 1), self.integer(0, len(names) - 1))]

    def numbers(self, shape, dtype):
        if kind_of(dtype) == F:
            return self.rng.normal(0, 1, shape).astype(dtype)
        if kind_of(dtype) == B:
            return self.rng.random(shape) < 0.5
        return self.rng.integers(0 if np.dtype(dtype).kind == "u" else -5, 6, shape).astype(dtype)

    # ---- building --------------------------------------------------------------------------------------------------
    def input(self, dtype, shape):
        name = f"x{len(self.inputs)}"
        self.values[name] = self.numbers(shape, dtype)
        self.inputs.append(name)
        return name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = np.asarray(array)
        return name

    def partner(self, name):
        """A value that broadcasts with this one and has its dtype."""
        v = self.values[name]
        fits = [n for n, w in self.values.items() if w.dtype == v.dtype and n not in self.constants and can_broadcast(v.shape, w.shape)]
        if fits and self.chance(0.7):
            return self.one(fits)
        shape = [d if self.chance(0.6) else 1 for d in v.shape][self.integer(0, v.ndim):]
        return self.constant(self.numbers(shape, v.dtype)) if self.chance(0.7) else self.input(v.dtype, shape)

    def add(self, op, inputs, outputs=1, **attributes):
        """Adds a node if the reference runs it and gives numbers that are worth going on with."""
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        node = helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", **attributes)
        feed = {n: self.values[n] for n in inputs if n}
        results = reference(single(node, feed), feed)
        for r in results:
            if not isinstance(r, np.ndarray) or r.size > 20000 or r.ndim > 6:
                return False
            if r.dtype.kind == "f" and r.size and not (np.isfinite(r).all() and np.abs(r.astype(np.float64)).max() < (1e3 if r.dtype == np.float16 else 1e6)):
                return False
        self.nodes.append(node)
        self.values.update(zip(names, results))
        return True


def kind_of(dtype):
    return {"f": F, "i": I, "u": I, "b": B}.get(np.dtype(dtype).kind, "?")


def can_broadcast(a, b):
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def single(node, feed):
    """A model of one node."""
    ins = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feed.items()]
    outs = [onnx.ValueInfoProto(name=n) for n in node.output]
    return helper.make_model(helper.make_graph([node], "node", ins, outs), opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def reference(model, feed):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(r) if isinstance(r, np.generic) else r for r in ReferenceEvaluator(model).run(None, feed)]


# ---- steps: each draws operands and adds a node, or gives up ----------------------------------------------------------------

STEPS = []


def step(weight):
    def note(f):
        STEPS.extend([f] * weight)
        return f
    return note


@step(10)
def unary(m):
    x = m.pick(F)
    op = m.one("Relu Sigmoid Tanh Erf Abs Neg Floor Ceil Round Sign Softplus Softsign Elu Selu LeakyRelu HardSigmoid HardSwish Mish Gelu Celu "
               "ThresholdedRelu Sin Cos Atan Sinh Asinh Exp Sqrt Log Reciprocal Identity".split())
    if op in ("Log", "Sqrt", "Reciprocal"):
        m.add("Abs", [x])
        x = m.nodes[-1].output[0] if m.nodes and m.nodes[-1].op_type == "Abs" else x
    extra = {"alpha": float(np.float32(m.rng.uniform(0.1, 1)))} if op in ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu") else {}
    if op == "Gelu":
        extra = {"approximate": m.one(["none", "tanh"])}
    return m.add(op, [x], **extra)


@step(8)
def binary(m):
    x = m.pick(m.one([F, F, F, I]))
    if x is None:
        return False
    op = m.one(["Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu", "Pow"]
               if kind_of(m.values[x].dtype) == F else ["Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor"])
    y = m.partner(x)
    if op == "Pow":
        m.add("Abs", [x])
        y = m.constant(np.asarray(m.one([0.5, 2, 3, 1.5]), m.values[x].dtype))
    if op == "Div" and (np.abs(m.values[y].astype(np.float64)) < 0.05).any():
        return False
    if op == "PRelu" and np.broadcast_shapes(m.values[x].shape, m.values[y].shape) != m.values[x].shape:
        return False
    return m.add(op, [x, y])


@step(3)
def compared(m):
    x = m.pick(m.one([F, I]))
    return x is not None and m.add(m.one(["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"]), [x, m.partner(x)])


@step(2)
def logical(m):
    x = m.pick(B)
    if x is None:
        return False
    op = m.one(["And", "Or", "Xor", "Not"])
    return m.add(op, [x] if op == "Not" else [x, m.partner(x)])


@step(3)
def chosen(m):
    c, x = m.pick(B), m.pick(m.one([F, F, I]))
    if c is None or x is None or not can_broadcast(m.values[c].shape, m.values[x].shape):
        return False
    return m.add("Where", [c, x, m.partner(x)])


@step(2)
def casted(m):
    x = m.pick(m.one([F, F, I, B]))
    if x is None:
        return False
    to = m.one(FLOATS + INTS + (np.bool_,))
    if kind_of(m.values[x].dtype) == F and kind_of(to) == I and (np.dtype(to).itemsize == 1 and ((v := m.values[x]) < 0).any() or np.abs(v).max(initial=0) > 100):
        return False                    # outside the type: undefined in ONNX
    return m.add("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@step(2)
def clipped(m):
    x = m.pick(m.one([F, I]))
    if x is None:
        return False
    t = m.values[x].dtype
    return m.add("Clip", [x, m.constant(np.asarray(0 if t.kind == "u" else -1, t)), m.constant(np.asarray(2, t))][:m.integer(2, 3)])


@step(6)
def reduced(m):
    x = m.pick(F, least=1)
    if x is None:
        return False
    rank = m.values[x].ndim
    axes = sorted(m.rng.choice(rank, m.integer(1, rank), replace=False).tolist())
    axes = [a - rank if m.chance(0.3) else a for a in axes]
    op = m.one("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare".split())
    return m.add(op, [x] if m.chance(0.15) else [x, m.constant(np.array(axes, np.int64))], keepdims=m.integer(0, 1))


@step(2)
def best(m):
    x = m.pick(F, least=1)
    if x is None:
        return False
    axis = m.integer(-m.values[x].ndim, m.values[x].ndim - 1)
    if m.chance(0.5):
        return m.add(m.one(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=m.integer(0, 1), select_last_index=m.integer(0, 1))
    n = m.values[x].shape[axis]
    return n > 0 and m.add("TopK", [x, m.constant(np.array([m.integer(1, n)], np.int64))], 2, axis=axis, largest=m.integer(0, 1))


@step(4)
def normalised(m):
    x = m.pick(F, least=1)
    if x is None:
        return False
    v = m.values[x]
    axis = m.integer(0, v.ndim - 1)
    op = m.one(["Softmax", "LogSoftmax", "LayerNormalization", "CumSum", "InstanceNormalization", "BatchNormalization", "GroupNormalization", "LpNormalization",
                "LRN", "Hardmax"])
    if op in ("Softmax", "LogSoftmax", "Hardmax"):
        return m.add(op, [x], axis=axis)
    if op == "LpNormalization":
        return m.add(op, [x], axis=axis, p=m.integer(1, 2))
    if op == "CumSum":
        return m.add(op, [x, m.constant(np.array(axis, np.int64))], exclusive=m.integer(0, 1), reverse=m.integer(0, 1))
    if op == "LayerNormalization":
        shape = v.shape[axis:]
        return m.add(op, [x, m.constant(m.numbers(shape, v.dtype))] + ([m.constant(m.numbers(shape, v.dtype))] if m.chance(0.5) else []), axis=axis,
                     epsilon=1e-3)
    if v.ndim < 3 or v.dtype == np.float16 or v.dtype == np.float64:
        return False
    c = v.shape[1]
    if op == "LRN":
        return v.ndim == 4 and m.add(op, [x], size=m.one([1, 3, 5]), alpha=0.1, beta=0.5, bias=1.0)
    scale, bias = m.constant(m.numbers([c], v.dtype)), m.constant(m.numbers([c], v.dtype))
    if op == "InstanceNormalization":
        return m.add(op, [x, scale, bias], epsilon=1e-3)
    if op == "GroupNormalization":
        return m.add(op, [x, scale, bias], num_groups=m.one([g for g in (1, 2, 3, 4) if c % g == 0] or [1]), epsilon=1e-3)
    return m.add(op, [x, scale, bias, m.constant(m.numbers([c], v.dtype)), m.constant(np.abs(m.numbers([c], v.dtype)) + np.asarray(0.1, v.dtype))], epsilon=1e-3)


@step(8)
def moved(m):
    x = m.pick(m.one([F, F, F, I, B]), least=1)
    if x is None:
        return False
    v = m.values[x]
    op = m.one("Transpose Reshape Flatten Squeeze Unsqueeze Expand Tile Slice Slice Pad Pad".split())
    def ints(a):
        return m.constant(np.array(a, np.int64))
    if op == "Transpose":
        return m.add(op, [x], perm=m.rng.permutation(v.ndim).tolist())
    if op == "Flatten":
        return m.add(op, [x], axis=m.integer(0, v.ndim))
    if op == "Unsqueeze":
        return m.add(op, [x, ints([m.integer(0, v.ndim)])])
    if op == "Squeeze":
        ones = [k for k, d in enumerate(v.shape) if d == 1]
        return bool(ones) and m.add(op, [x, ints([m.one(ones)])])
    if op == "Reshape":
        shape, k = list(v.shape), m.integer(0, v.ndim - 1)
        if v.ndim > 1 and m.chance(0.6):
            k = m.integer(0, v.ndim - 2)
            shape[k:k + 2] = [shape[k] * shape[k + 1]]
        else:
            for f in (2, 3, 5):
                if shape[k] % f == 0 and shape[k]:
                    shape[k:k + 1] = [f, shape[k] // f]
                    break
        if 0 not in shape and m.chance(0.5):
            shape[m.integer(0, len(shape) - 1)] = -1
        return m.add(op, [x, ints(shape)])
    if op == "Expand":
        return m.add(op, [x, ints(([m.integer(1, 3)] if m.chance(0.3) else []) + [m.integer(1, 4) if d == 1 else d for d in v.shape])])
    if op == "Tile":
        return m.add(op, [x, ints([m.integer(1, 2) for _ in v.shape])])
    if op == "Slice":
        axes = sorted(m.rng.choice(v.ndim, m.integer(1, v.ndim), replace=False).tolist())
        steps = [m.one([1, 1, 2, -1, -2, 3]) for _ in axes]
        starts, ends = [], []
        for a, s in zip(axes, steps):
            lo, hi = sorted(m.integer(-1, v.shape[a]) for _ in range(2))
            lo, hi = max(lo, 0), hi + 1
            starts.append(lo if s > 0 else hi - 1)
            ends.append(hi if s > 0 else (lo - 1 if lo else -(1 << 40)))
        return m.add(op, [x, ints(starts), ints(ends), ints(axes), ints(steps)])
    mode = m.one(["constant", "constant", "edge", "reflect", "wrap"])
    if v.dtype == np.bool_ or (v.dtype == np.float16 and mode == "wrap"):
        return False
    pads = [m.integer(0, 2) if mode in ("constant", "edge") else m.integer(0, max(0, min(2, d - 1))) for d in v.shape * 2]
    return m.add(op, [x, ints(pads)] + ([m.constant(np.asarray(3, v.dtype))] if mode == "constant" and m.chance(0.5) else []), mode=mode)


@step(4)
def joined(m):
    x = m.pick(m.one([F, F, I, B]), least=1)
    if x is None:
        return False
    v = m.values[x]
    axis = m.integer(0, v.ndim - 1)
    if m.chance(0.4):
        n = v.shape[axis]
        if n < 2:
            return False
        at = m.integer(1, n - 1)
        return m.add("Split", [x, m.constant(np.array([at, n - at], np.int64))], 2, axis=axis)
    fits = [n for n, w in m.values.items() if w.dtype == v.dtype and w.ndim == v.ndim and all(a == b for k, (a, b) in enumerate(zip(v.shape, w.shape)) if k != axis)]
    return m.add("Concat", [x] + [m.one(fits) for _ in range(m.integer(1, 2))], axis=axis)


@step(4)
def indexed(m):
    x = m.pick(m.one([F, F, I]), least=1)
    if x is None:
        return False
    v = m.values[x]
    axis = m.integer(0, v.ndim - 1)
    n = v.shape[axis]
    if n == 0:
        return False
    op = m.one(["Gather", "GatherElements", "ScatterElements", "ScatterND", "Trilu", "OneHot", "NonZero", "GatherND"])
    def indices(shape):
        a = m.rng.integers(-n, n, shape)
        return m.constant(a.astype(np.int64)) if m.chance(0.6) else index_input(m, a)
    if op == "Gather":
        return m.add(op, [x, indices([m.integer(1, 3)] * m.integer(0, 2))], axis=axis)
    if op == "GatherElements":
        return m.add(op, [x, indices([d if k != axis else m.integer(1, 4) for k, d in enumerate(v.shape)])], axis=axis)
    if op == "ScatterElements":
        at = np.stack([m.rng.permutation(n)[:min(n, 2)] for _ in range(v.size // n)], -1).reshape(*[d for k, d in enumerate(v.shape) if k != axis], -1)
        at = np.moveaxis(at, -1, axis).astype(np.int64)
        return m.add(op, [x, m.constant(at), m.constant(m.numbers(at.shape, v.dtype))], axis=axis, reduction=m.one(["none", "add"]))
    if op == "ScatterND":
        at = m.rng.permutation(v.shape[0])[:2].reshape(-1, 1).astype(np.int64)
        return m.add(op, [x, m.constant(at), m.constant(m.numbers((len(at),) + v.shape[1:], v.dtype))])
    if op == "GatherND":
        return m.add(op, [x, m.constant(m.rng.integers(0, v.shape[0], (2, 1)).astype(np.int64))])
    if op == "Trilu":
        return v.ndim >= 2 and m.add(op, [x, m.constant(np.array(m.integer(-2, 2), np.int64))], upper=m.integer(0, 1))
    if op == "NonZero":
        return m.add(op, [x])
    return kind_of(v.dtype) == I and v.ndim < 4 and m.add(op, [x, m.constant(np.array(6, np.int64)), m.constant(np.array([0, 1], np.float32))], axis=-1) \
        if np.abs(v.astype(np.int64)).max(initial=0) < 6 else False


def index_input(m, array):
    name = m.input(np.int64, array.shape)
    m.values[name] = array.astype(np.int64)
    return name


@step(6)
def contracted(m):
    x = m.pick(F, least=1)
    if x is None:
        return False
    v = m.values[x]
    if v.dtype == np.float16:
        return False
    k = v.shape[-1]
    op = m.one(["MatMul", "MatMul", "Gemm", "Einsum"])
    def other(shape):
        fits = [n for n, w in m.values.items() if w.dtype == v.dtype and w.shape == tuple(shape)]
        return m.one(fits) if fits and m.chance(0.5) else m.constant(m.numbers(shape, v.dtype)) if m.chance(0.6) else m.input(v.dtype, shape)
    n = m.integer(1, 9)
    if op == "MatMul":
        batch = [d if m.chance(0.5) else 1 for d in v.shape[:-2]] if m.chance(0.4) else []
        return m.add(op, [x, other(batch + [k, n])])
    if v.ndim != 2:
        return False
    if op == "Gemm":
        ta, tb = m.integer(0, 1), m.integer(0, 1)
        k = v.shape[0] if ta else v.shape[1]
        ins = [x, other([n, k] if tb else [k, n])] + ([other([n])] if m.chance(0.6) else [])
        return m.add(op, ins, transA=ta, transB=tb, alpha=0.5, beta=float(m.integer(1, 2)))
    return m.add(op, [x, other([n, k])], equation=m.one(["ij,kj->ik", "ij,kj->ki", "ij,kj->k"]))


@step(6)
def windowed(m):
    x = m.pick(F, rank=m.one([3, 4]))
    if x is None or m.values[x].dtype != np.float32:
        return False
    v = m.values[x]
    spatial, c = v.ndim - 2, v.shape[1]
    kernel = [m.integer(1, 3) for _ in range(spatial)]
    strides = [m.integer(1, 2) for _ in range(spatial)]
    pads = [m.integer(0, k - 1) for k in kernel] * 2
    op = m.one(["Conv", "Conv", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth", "Resize"])
    if v.shape[0] == 0 or c == 0 or 0 in v.shape:
        return False
    if op in ("GlobalAveragePool", "GlobalMaxPool"):
        return (spatial == 2 or op == "GlobalAveragePool") and m.add(op, [x])          # the reference loses an axis of a GlobalMaxPool along one
    if op == "DepthToSpace":
        return spatial == 2 and c % 4 == 0 and m.add(op, [x], blocksize=2, mode=m.one(["DCR", "CRD"]))
    if op == "SpaceToDepth":
        return spatial == 2 and all(d % 2 == 0 for d in v.shape[2:]) and m.add(op, [x], blocksize=2)
    if op == "Resize":
        scales = m.constant(np.array([1, 1] + [m.one([0.5, 1, 2]) for _ in range(spatial)], np.float32))
        if m.chance(0.5):
            return m.add(op, [x, "", scales], mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")
        return m.add(op, [x, "", scales], mode="linear", coordinate_transformation_mode=m.one(["half_pixel", "asymmetric"]))
    if op in ("MaxPool", "AveragePool"):
        if any(d + 2 * p < k for d, p, k in zip(v.shape[2:], pads, kernel)):
            return False
        extra = {"count_include_pad": m.integer(0, 1)} if op == "AveragePool" else {}
        return m.add(op, [x], kernel_shape=kernel, strides=strides, pads=pads, **extra)
    group = m.one([g for g in (1, 1, c, 2) if c % g == 0])
    out = group * m.integer(1, 3)
    dilations = [m.integer(1, 2) for _ in range(spatial)]
    if any(d + 2 * p < (k - 1) * e + 1 for d, p, k, e in zip(v.shape[2:], pads, kernel, dilations)):
        return False
    weight = [out, c // group] + kernel if op == "Conv" else [c, out // group] + kernel
    ins = [x, m.constant(m.numbers(weight, v.dtype))] + ([m.constant(m.numbers([out], v.dtype))] if m.chance(0.5) else [])
    return m.add(op, ins, kernel_shape=kernel, strides=strides, pads=pads, group=group, dilations=dilations)


@step(2)
def quantised(m):
    x = m.pick(F)
    if x is None or m.values[x].dtype != np.float32:
        return False
    t = m.one([np.int8, np.uint8])
    scale, zero = m.constant(np.float32(0.05)), m.constant(np.asarray(m.integer(0, 3), t))
    return m.add("QuantizeLinear", [x, scale, zero]) and m.add("DequantizeLinear", [m.nodes[-1].output[0], scale, zero])


# ---- a model -----------------------------------------------------------------------------------------------------------------------

def grow(seed, size):
    """The model, its inputs, the reference's values of everything, and which outputs it has."""
    m = Model(np.random.default_rng(seed))
    for _ in range(m.integer(1, 3)):
        rank = m.one([1, 2, 2, 3, 3, 4, 4, 0])
        m.input(m.one(FLOATS), [m.one([1, 2, 3, 4, 5, 7, 8, 16, 0 if m.chance(0.05) else 6]) for _ in range(rank)])
    if m.chance(0.3):
        m.input(m.one(INTS), [m.one([1, 2, 3, 4, 6]) for _ in range(m.integer(0, 3))])
    want = m.integer(2, size)
    for _ in range(size * 8):
        if len(m.nodes) >= want:
            break
        try:
            m.one(STEPS)(m)
        except Exception:               # the reference refuses it: not a legal node, or one that it lacks
            continue
    used = {n for node in m.nodes for n in node.input}
    made = [n for node in m.nodes for n in node.output]
    outputs = [n for n in made if n not in used or m.chance(0.1)]
    sizes = {}                          # a size that inputs share is one symbol in all of them, or fixed in all
    def declared(name):
        v = m.values[name]
        dims = [sizes.setdefault(d, f"s{d}" if m.chance(0.4) and d > 1 else d) for d in v.shape]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), dims)
    inputs = [n for n in m.inputs if n in used]
    constants = [numpy_helper.from_array(v, n) for n, v in m.constants.items() if n in used]
    outs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(m.values[n].dtype), None) for n in outputs]
    graph = helper.make_graph(m.nodes, f"random{seed}", [declared(n) for n in inputs], outs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return model, {n: m.values[n] for n in inputs}, m.values, outputs


def by_sinter(model, feed):
    return sinter.InferenceSession(model).run(None, feed)


class Child:
    """A process for ONNX Runtime, which ends on some models (an empty tensor, a division by zero); a new one is made then."""

    def __init__(self):
        self.pool = None

    def __call__(self, *args):
        if self.pool is None:
            self.pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(run_onnxruntime, *args).result(timeout=120)
        except (concurrent.futures.process.BrokenProcessPool, TimeoutError):
            self.pool = None
            raise RuntimeError("onnxruntime crashed") from None


child = Child()


def by_onnxruntime(model, feed, plain=False):
    """plain: as the nodes stand, every value written out; else it keeps float16 values in float32 from node to node, among others."""
    return child(model.SerializeToString(), feed, plain)


def run_onnxruntime(data, feed, plain):
    model = onnx.load_from_string(data)
    options = onnxruntime.SessionOptions()
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(with_all_values(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run([o.name for o in model.graph.output], feed)
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)


def distance(a, b):
    """How far apart, in units of what is allowed; inf for another dtype or shape."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.inf
    if a.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else np.inf
    if not a.size:
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    relative, absolute = {2: (5e-3, 5e-3), 4: (1e-3, 1e-5), 8: (1e-6, 1e-9)}[a.dtype.itemsize]
    with np.errstate(all="ignore"):
        d = np.abs(x - y) / (absolute * max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0)) + relative * np.abs(y))
    d = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, np.where(np.isnan(d), np.inf, d))
    return float(d.max())


def same(a, b):
    return len(a) == len(b) and all(distance(x, y) <= 1 for x, y in zip(a, b))


def at_fault(model, values):
    """Nodes that differ when run alone on the reference's operands: pairs (operator, who differs), with a note."""
    found = []
    for node in model.graph.node:
        feed = {n: values[n] for n in dict.fromkeys(node.input) if n}
        one, want = single(node, feed), [values[n] for n in node.output]
        shapes = ", ".join(f"{v.dtype}{list(v.shape)}" for v in feed.values())
        note = f"{node.op_type}({shapes}) {' '.join(helper.printable_attribute(a) for a in node.attribute)}"
        results = {}
        for who, run in (("sinter", by_sinter), ("onnxruntime", by_onnxruntime if onnxruntime else None)):
            try:
                if run:
                    results[who] = run(one, feed)
            except Exception as e:
                if who == "sinter":
                    found.append((node.op_type, "sinter", f"{note}: {str(e)[:200]}"))
        got, ort = results.get("sinter"), results.get("onnxruntime")
        if got is None or same(got, want) and (ort is None or same(ort, want)):
            continue
        op = node.op_type
        if ort is None:
            who, op = "sinter or reference", f"{op} {next(iter(feed.values())).dtype}"
        else:
            who = "onnxruntime" if same(got, want) else "reference" if same(got, ort) else "sinter" if same(ort, want) else "all"
        found.append((op, who, f"{note}: sinter {got[0].ravel()[:4]}, reference {want[0].ravel()[:4]}, onnxruntime {ort[0].ravel()[:4] if ort else '-'}"))
    return found


def with_all_values(model):
    """The model with each node's results among its outputs, after its own."""
    more, known = onnx.ModelProto(), {o.name for o in model.graph.output}
    more.CopyFrom(model)
    more.graph.output.extend(onnx.ValueInfoProto(name=n) for node in model.graph.node for n in node.output if n and n not in known)
    return more


def is_growth(run, model, feed, got, but=None):
    """Whether a runtime's results follow node by node from its own: given the very operands that it computed, the reference gives what it gives for each node.
    Then results differ because small differences of rounding grew (at a step, by cancelling), and no node is wrong. but: nodes with operands of this dtype
    are left out."""
    more = with_all_values(model)
    values = dict(zip([o.name for o in more.graph.output], run(more, feed)))
    if not same([values[o.name] for o in model.graph.output], got):
        return False
    values.update(feed)
    values.update((t.name, numpy_helper.to_array(t)) for t in model.graph.initializer)
    for node in model.graph.node:
        operands = {n: values[n] for n in dict.fromkeys(node.input) if n}
        if any(but and v.dtype == but for v in operands.values()):
            continue
        if not same(reference(single(node, operands), operands), [values[n] for n in node.output]):
            return False
    return True


def check(seed, size, counts, keep):
    model, feed, values, outputs = grow(seed, size)
    if not model.graph.node:
        counts["empty"] += 1
        return True
    want = [values[n] for n in outputs]
    counts["nodes"] += len(model.graph.node)
    try:
        got = by_sinter(model, feed)
    except Exception as e:
        faults = at_fault(model, values)
        for op, who, note in faults:
            counts[f"{op}: {who} differs: {EXPLAINED.get((op, who), '?')}"] += 1
        if faults and all((op, who) in EXPLAINED for op, who, _ in faults):
            return True
        print(f"model {seed}: sinter: {type(e).__name__}: {str(e)[:400]}", *(note for _, _, note in faults), sep="\n    ")
        save(keep, seed, model, feed, want)
        return False
    ort = None
    try:
        ort = by_onnxruntime(model, feed) if onnxruntime else None
    except Exception as e:
        counts["onnxruntime crashes" if "crashed" in str(e) else "onnxruntime lacks a kernel or refuses"] += 1
    good = same(got, want)
    if good and (ort is None or same(got, ort)):
        counts["all the same"] += 1
        return True
    faults = at_fault(model, values)
    for op, who, note in faults:
        if (op, who) in EXPLAINED:
            counts[f"{op}: {who} differs: {EXPLAINED[op, who]}"] += 1
        else:
            print(f"model {seed}: {who} differs: {note}")
            save(keep, seed, model, feed, want)
            return False
    if faults:
        return True
    if good and same(got, by_onnxruntime(model, feed, plain=True)):
        counts["onnxruntime differs, but not without its optimisations"] += 1
        return True
    who, run, theirs = ("onnxruntime", by_onnxruntime, ort) if good else ("sinter", by_sinter, got)
    if is_growth(run, model, feed, theirs):
        counts[f"rounding that grows: what {who} gives follows, node by node, from its own operands"] += 1
        return True
    if good and is_growth(run, model, feed, theirs, np.float16):
        counts["onnxruntime keeps float32 from one float16 node to the next, whatever the level of optimisation; each node alone agrees"] += 1
        return True
    other = want if not good else ort
    print(f"model {seed}: each node alone agrees, together not: {[round(distance(g, w), 2) for g, w in zip(got, other)]} times what is allowed"
          f" ({'reference' if not good else 'onnxruntime'})")
    save(keep, seed, model, feed, want)
    return False


def save(keep, seed, model, feed, want):
    if not keep:
        return
    folder = os.path.join(keep, f"random{seed}", "test_data_set_0")
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(keep, f"random{seed}", "model.onnx"))
    for kind, arrays, names in (("input", list(feed.values()), list(feed)), ("output", want, [o.name for o in model.graph.output])):
        for k, (a, n) in enumerate(zip(arrays, names)):
            with open(os.path.join(folder, f"{kind}_{k}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(a, n).SerializeToString())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--keep", help="folder for models that fail")
    args = parser.parse_args()
    counts, passed, failed = collections.Counter(), 0, 0
    for seed in range(args.seed, args.seed + args.models):
        if check(seed, args.nodes, counts, args.keep):
            passed += 1
        else:
            failed += 1
        sys.stdout.flush()
    for what, n in counts.most_common():
        print(f"{n:6} {what}")
    if not onnxruntime:
        print("onnxruntime is not there: compared with onnx.reference only")
    print(f"{passed} passed, {failed} failed, {counts['empty']} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
