#!/bin/bash
# attention.sh [LENGTH]...: attention from the plain graph (12 heads of 64 numbers, float32, one batch): fused and unfused in turns, medians of one process, 1 thread.
# Forms: no mask, causal, a window of 128 positions, ALiBi, scores capped, three heads to a key, eight documents one after the other. Lengths: 512 1024 2048 4096. Temporary memory is
# what lies between kernels; a streaming kernel has its blocks in scratch of each thread besides (some 60 kB at these sizes).
set -euo pipefail
BUILD=${BUILD:-build}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT

# model FILE KEY-HEADS LINES: the scores are s, LINES make m of them; i and j are the positions of row and step
model() {
    local repeat=$((12 / $2))
    {
        echo '<ir_version: 8, opset_import: ["" : 17]>'
        echo "attention (float[1,12,seq,64] q, float[1,$2,seq,64] k, float[1,$2,seq,64] v) => (float[1,12,seq,64] y)"
        echo '<float scale = {0.125}, float five = {5}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] first = {0}, int64[1] second = {1}, int64[1] third = {2}, int64 width = {128},'
        echo ' float low = {-inf}, float slope = {0.1}, int64 axis2 = {2}, int64[1] minus = {-1}, int64[1] group = {'$repeat'}, int64[4] flat = {1,12,-1,64}, int64[5] wide = {1,1,'$repeat',1,1}> {'
        if [ $repeat -gt 1 ]; then
            echo 'k5 = Unsqueeze(k, third) k6 = Expand(k5, wide) kk = Reshape(k6, flat) v5 = Unsqueeze(v, third) v6 = Expand(v5, wide) vv = Reshape(v6, flat)'
        else echo 'kk = Identity(k) vv = Identity(v)'; fi
        echo 'kt = Transpose<perm = [0,1,3,2]>(kk) p = MatMul(q, kt) s = Mul(p, scale) shape = Shape(q) n = Gather(shape, axis2) r = Range(zero, n, one) i = Unsqueeze(r, second) j = Unsqueeze(r, first)'
        echo "$3"
        echo 'w = Softmax<axis = -1>(m) y = MatMul(w, vv) }'
    } >"$1"
}
model "$T/plain.onnxtxt" 12 'm = Identity(s)'
model "$T/causal.onnxtxt" 12 'c = LessOrEqual(j, i) m = Where(c, s, low)'
model "$T/window.onnxtxt" 12 'c1 = LessOrEqual(j, i) far = Sub(i, j) c2 = Less(far, width) c = And(c1, c2) m = Where(c, s, low)'
model "$T/alibi.onnxtxt" 12 'far = Sub(j, i) f = Cast<to = 1>(far) b = Mul(f, slope) m = Add(s, b)'
model "$T/cap.onnxtxt" 12 'd = Div(s, five) t = Tanh(d) m = Mul(t, five)'
model "$T/grouped.onnxtxt" 4 'm = Identity(s)'

printf '%-10s %8s %9s %12s %12s %6s %12s %12s\n' form length kernels unfused fused u/f 'temp u' 'temp f'
model "$T/documents.onnxtxt" 12 'di = Unsqueeze(doc, second) dj = Unsqueeze(doc, first) c = Equal(di, dj) m = Where(c, s, low)'
sed -i 's/64\] v)/64] v, int64[seq] doc)/' "$T/documents.onnxtxt"

# documents FILE LENGTH: which of eight documents each position belongs to, as a file of NumPy's
documents() {
    python3 -c '
import struct, sys
n = int(sys.argv[2])
head = "{\x27descr\x27: \x27<i8\x27, \x27fortran_order\x27: False, \x27shape\x27: (%d,), }" % n
head += " " * (-(len(head) + 11) % 64) + "\n"
open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<%dq" % n, *[8 * i // n for i in range(n)]))' "$1" "$2"
}

for seq in ${*:-512 1024 2048 4096}; do
    documents "$T/doc.npy" "$seq"
    for form in plain causal window alibi cap grouped documents; do
        input=()
        [ $form != documents ] || input=(-i "doc=$T/doc.npy")
        "$BUILD/sinter" bench "$T/$form.onnxtxt" -d seq="$seq" "${input[@]}" --threads 1 --json 2>/dev/null | python3 -c '
import json, sys
d = json.load(sys.stdin)
print("%-10s %8s %4d/%4d %9.2f ms %9.2f ms %6.2f %12d %12d" % (sys.argv[1], sys.argv[2], d["kernels_fused"], d["kernels_unfused"], d["ms_unfused"], d["ms_fused"],
      d["ms_unfused"] / d["ms_fused"], d["temp_peak_unfused"], d["temp_peak_fused"]))' $form "$seq" || echo "$form $seq: no figures"
    done
done
