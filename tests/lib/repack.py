"""repack.py PACKAGE OUT SED-EXPRESSION: the plan of a package changed, and its lengths and checksum made right again."""
import struct, subprocess, sys

def xxh64(b):
    """xxHash64, written out: the tests share no code with what they test."""
    M, P1, P2, P3, P4, P5 = (1 << 64) - 1, 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261
    rot = lambda x, r: ((x << r) | (x >> (64 - r))) & M
    rnd = lambda a, x: rot((a + x * P2) & M, 31) * P1 & M
    n, i = len(b), 0
    if n >= 32:
        v = [(P1 + P2) & M, P2, 0, -P1 & M]
        while i + 32 <= n:
            for k, x in enumerate(struct.unpack_from("<4Q", b, i)): v[k] = rnd(v[k], x)
            i += 32
        h = (rot(v[0], 1) + rot(v[1], 7) + rot(v[2], 12) + rot(v[3], 18)) & M
        for x in v: h = ((h ^ rnd(0, x)) * P1 + P4) & M
    else: h = P5
    h = (h + n) & M
    while i + 8 <= n:
        h = (rot(h ^ rnd(0, struct.unpack_from("<Q", b, i)[0]), 27) * P1 + P4) & M
        i += 8
    if i + 4 <= n:
        h = (rot(h ^ (struct.unpack_from("<I", b, i)[0] * P1 & M), 23) * P2 + P3) & M
        i += 4
    for c in b[i:]: h = rot(h ^ (c * P5 & M), 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32

path, out, expression = sys.argv[1:]
b = open(path, "rb").read()
magic, form, pad, plan, code, weights, old = struct.unpack_from("<8sIIQQQQ", b)
up = lambda n: (n + 63) // 64 * 64
fill = lambda x: x + bytes(up(len(x)) - len(x))
head = lambda p, h: struct.pack("<8sIIQQQQQQ", magic, form, pad, p, code, weights, h, 0, 0)
if xxh64(head(plan, 0) + b[64:]) != old: sys.exit("the checksum is not the xxHash64 of the file")
text = subprocess.run(["sed", expression], input=b[64:64 + plan], stdout=subprocess.PIPE, check=True).stdout
if text == b[64:64 + plan]: sys.exit("the plan has nothing for " + expression)
rest = fill(text) + b[64 + up(plan):]
open(out, "wb").write(head(len(text), xxh64(head(len(text), 0) + rest)) + rest)
