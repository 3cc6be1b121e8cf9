"""How exact a function is on a device: ulps.py SINTER DEVICE FOLDER exp|sigmoid|tanh f32|bf16 LIMIT. Its values for float32 arguments, all the way from results
below the normal numbers to the largest, are compared with Python's in double precision; results are stored as the dtype named. Exit status 1 when one is further off than LIMIT
units in the last place (of bf16, where it is normal: more digits of the result are not there)."""
import array
import math
import os
import struct
import subprocess
import sys

SINTER, DEVICE, FOLDER, NAME, KIND, LIMIT = sys.argv[1:6] + [float(sys.argv[6])]
COUNT = 200000
FUNCTIONS = {"exp": ("Exp", math.exp, -103.9, 88.7), "sigmoid": ("Sigmoid", lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, -103.0, 30.0), "tanh": ("Tanh", math.tanh, -12.0, 12.0)}
op, f, low, high = FUNCTIONS[NAME]


def npy_write(path, numbers):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % len(numbers)
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + numbers.tobytes())


def npy_read(path):
    with open(path, "rb") as file:
        data = file.read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


x = array.array("f", [low + (high - low) * i / (COUNT - 1) for i in range(COUNT)] + [math.ldexp(s, -e) for e in range(40) for s in (1, -1)])
npy_write(os.path.join(FOLDER, "x.npy"), x)
narrow = {"f32": "t = %s(x)\n y = Identity(t)", "bf16": "t = %s(x)\n n = Cast<to = 16>(t)\n y = Cast<to = 1>(n)"}[KIND] % op
with open(os.path.join(FOLDER, "ulps.onnxtxt"), "w") as file:
    file.write('<ir_version: 10, opset_import: ["" : 21]>\ng (float[n] x) => (float[n] y)\n{ %s }\n' % narrow)
subprocess.run([SINTER, "run", os.path.join(FOLDER, "ulps.onnxtxt"), "-d", "n=%d" % len(x), "-i", "x=" + os.path.join(FOLDER, "x.npy"), "--device", DEVICE, "-o", FOLDER], check=True)
digits, least = (24, -149) if KIND == "f32" else (8, -133)
worst, where = 0.0, None
for a, got in zip(x, npy_read(os.path.join(FOLDER, "y.npy"))):
    want = f(a)
    if KIND == "bf16" and abs(want) < 2.0 ** -125:
        continue
    off = abs(got - want) / 2.0 ** max(math.frexp(want)[1] - digits, least)
    if not off <= worst:
        worst, where = off, a
print("%s, %s: %.3f ulp at %r" % (NAME, KIND, worst, where))
sys.exit(not worst <= LIMIT)
