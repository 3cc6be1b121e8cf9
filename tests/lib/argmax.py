"""argmax.py GOT.npy WANT.pb: succeeds when the largest element of two float32 tensors is the same one in each row of 1000."""
import struct
import sys

data = open(sys.argv[1], "rb").read()
got = data[10 + struct.unpack("<H", data[8:10])[0]:]
data, want, at = open(sys.argv[2], "rb").read(), b"", 0


def varint():
    global at
    v = shift = 0
    while True:
        b = data[at]
        at += 1
        v |= (b & 127) << shift
        shift += 7
        if b < 128:
            return v


while at < len(data):
    tag = varint()
    if tag & 7 == 2:
        n = varint()
        if tag >> 3 in (4, 9):
            want = data[at:at + n]
        at += n
    else:
        varint()
rows = len(want) // 4000
assert rows and len(got) == len(want), (len(got), len(want))
for r in range(rows):
    g, w = (struct.unpack_from("<1000f", b, 4000 * r) for b in (got, want))
    assert g.index(max(g)) == w.index(max(w)), (r, g.index(max(g)), w.index(max(w)))
