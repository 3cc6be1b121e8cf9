#!/usr/bin/env python3
"""An attention variant as a plain graph, by calls: scores capped by tanh, ALiBi, documents, causal. Prints how many kernels it became, and checks it with NumPy.

    python3 variant.py [POSITIONS]
"""
import sys

import numpy as np

import sinter

HEADS, WIDTH, CAP = 8, 64, 30.0
slope = (2.0 ** -np.arange(1, HEADS + 1)).astype(np.float32).reshape(HEADS, 1, 1)


def build():
    g = sinter.Graph()
    q, k, v = (g.input(name, "f32", [HEADS, "n", WIDTH]) for name in "qkv")
    document = g.input("document", "i64", ["n"])

    def number(x):
        return g.const(np.float32(x))

    def axis(i):
        return g.const(np.array([i]))

    s = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 1])), number(WIDTH ** -0.5))
    s = g.op("Mul", g.op("Tanh", g.op("Div", s, number(CAP))), number(CAP))
    place = g.op("sinter.iota", g.op("Shape", document), axis=0)
    row, column = g.op("Unsqueeze", place, axis(1)), g.op("Unsqueeze", place, axis(0))
    s = g.op("Add", s, g.op("Mul", g.op("Cast", g.op("Sub", column, row), to="f32"), g.const(slope)))
    same = g.op("Equal", g.op("Unsqueeze", document, axis(1)), g.op("Unsqueeze", document, axis(0)))
    s = g.op("Where", g.op("And", same, g.op("GreaterOrEqual", row, column)), s, number(-np.inf))
    g.output("y", g.op("MatMul", g.op("Softmax", s, axis=-1), v))
    return g


def wanted(q, k, v, document):
    place = np.arange(len(document))
    s = CAP * np.tanh(q.astype(np.float64) @ k.swapaxes(1, 2) * WIDTH ** -0.5 / CAP) + slope * (place - place[:, None])
    s = np.where((document[:, None] == document) & (place[:, None] >= place), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


n = int(sys.argv[1]) if len(sys.argv) > 1 else 256
random = np.random.default_rng(0)
q, k, v = random.standard_normal((3, HEADS, n, WIDTH), dtype=np.float32)
document = np.sort(random.integers(0, 4, n))
program = sinter.compile(build())
y = program(q, k, v, document)
evidence = program.explain()
print(f"{evidence.launches} kernel, {evidence.operators} operators, error at most {abs(y - wanted(q, k, v, document)).max():.1e}")
print(*evidence.refusals, sep="\n", end="")
