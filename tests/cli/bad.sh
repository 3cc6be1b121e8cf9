#!/bin/bash
# Bad input: every case ends with status 2 and a message that names what was found; none crashes.
. "$(dirname "$0")/../lib/check.sh"

model() { cat >"$T/$1.onnxtxt"; }       # NAME < TEXT
head_of='<ir_version: 10, opset_import: ["" : 21]>'

# ---- files -----------------------------------------------------------------------------------------------------------------
refuse "none.onnx: No such file" "$SINTER" run "$T/none.onnx"
refuse 'sinter: .*' "$SINTER" run "$T"
: >"$T/empty.onnx"
refuse 'empty.onnx' "$SINTER" run "$T/empty.onnx"
head -c 4096 /dev/urandom >"$T/noise.onnx"
for c in run explain bench bisect; do refuse 'noise.onnx' "$SINTER" $c "$T/noise.onnx"; done
model good <<END
$head_of
net (float[N] x) => (float[N] y) { y = Relu(x) }
END
head -c 60 "$T/good.onnxtxt" >"$T/cut.onnxtxt"
refuse 'cut.onnxtxt' "$SINTER" run "$T/cut.onnxtxt"
if [ -n "${SN_CASES:-}" ] && [ -f "$SN_CASES/models/magika_v3_3/model.onnx" ]; then
    for n in 1 100 10000 1000000; do
        head -c $n "$SN_CASES/models/magika_v3_3/model.onnx" >"$T/cut.onnx"
        refuse 'cut.onnx' "$SINTER" run "$T/cut.onnx"
    done
else
    skip "no test material (SN_CASES): truncated binary models"
fi

printf 'PK\003\004not a model' >"$T/zip.onnx"
refuse 'zip.onnx: no ONNX model, or a damaged one: byte [0-9]+' "$SINTER" run "$T/zip.onnx"

# ---- inputs ------------------------------------------------------------------------------------------------------------------
model two <<END
$head_of
net (float[N, 2] x, int64[N] i) => (float[N, 2] y, int64[N] j) { y = Relu(x)
  j = Neg(i) }
END
npy "$T/f.npy" 'f:<f4' '3 2' 1 2 3 4 5 6
npy "$T/wide.npy" 'f:<f4' '3 3' 1 2 3 4 5 6 7 8 9
npy "$T/long.npy" 'q:<i8' '4' 1 2 3 4
refuse "input 'x': .*long.npy has i64\[4\], wanted f32\[N,2\]" "$SINTER" run "$T/two.onnxtxt" -i x="$T/long.npy"
refuse "input 'x': .*wide.npy has f32\[3,3\], wanted f32\[N,2\]" "$SINTER" run "$T/two.onnxtxt" -i x="$T/wide.npy"
refuse "has no such input|no such input; its inputs: 'x' f32\[N,2\], 'i' i64\[N\]" "$SINTER" run "$T/two.onnxtxt" -i z="$T/f.npy"
refuse "gives the input 'x' twice" "$SINTER" run "$T/two.onnxtxt" -i x="$T/f.npy" -i x=zeros
refuse "wanted NAME=FILE.npy" "$SINTER" run "$T/two.onnxtxt" -i x
refuse "wanted a .npy or .pb file" "$SINTER" run "$T/two.onnxtxt" -i x="$T/f.txt"
refuse "none.npy: No such file" "$SINTER" run "$T/two.onnxtxt" -i x="$T/none.npy"
refuse "the seed is no number" "$SINTER" run "$T/two.onnxtxt" -i x=random:a
head -c 100 "$T/f.npy" >"$T/cut.npy"
refuse 'cut.npy' "$SINTER" run "$T/two.onnxtxt" -i x="$T/cut.npy"
head -c 300 /dev/urandom >"$T/noise.pb"
refuse 'noise.pb' "$SINTER" run "$T/two.onnxtxt" -i x="$T/noise.pb"

# ---- what a model says -----------------------------------------------------------------------------------------------------------
model unknown <<END
<ir_version: 10, opset_import: ["" : 21, "my.own" : 3]>
net (float[2] x) => (float[2] y) { a = Frobnicate(x)
  b = my.own.Twist(a)
  c = Frobnicate(b)
  y = Relu(c) }
END
for c in run explain bench bisect; do
    refuse 'ai\.onnx\.Frobnicate\(21\), my\.own\.Twist\(3\)' "$SINTER" $c "$T/unknown.onnxtxt"
done
model cycle <<END
$head_of
net (float[2] x) => (float[2] y) { a = Add(x, b)
  b = Relu(a)
  y = Neg(b) }
END
refuse 'cycle' "$SINTER" run "$T/cycle.onnxtxt"
model twice <<END
$head_of
net (float[2] x) => (float[2] y) { y = Relu(x)
  y = Neg(x) }
END
refuse "'y'.*twice" "$SINTER" run "$T/twice.onnxtxt"
model dangling <<END
$head_of
net (float[2] x) => (float[2] y) { y = Add(x, nothing) }
END
refuse "uses 'nothing'" "$SINTER" run "$T/dangling.onnxtxt"
model misfit <<END
$head_of
net (float[2, 3] x, float[2, 4] w) => (float[2] y) { y = MatMul(x, w) }
END
refuse "misfit.onnxtxt: node 'y' \(MatMul\)" "$SINTER" run "$T/misfit.onnxtxt"
model outside <<END
$head_of
net (float[3] x) => (float[1] y) <int64[1] i = {7}> { y = Gather(x, i) }
END
refuse '7' "$SINTER" run "$T/outside.onnxtxt"
model outside_data <<END
$head_of
net (float[3] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }
END
npy "$T/seven.npy" 'q:<i8' '1' 7
refuse "Gather.*7|7.*Gather" "$SINTER" run "$T/outside_data.onnxtxt" -i i="$T/seven.npy"
refuse "7" "$SINTER" run "$T/outside_data.onnxtxt" -i i="$T/seven.npy" --interpreter

# external data must stay below the model's folder: a model as bytes, whose initialiser w lies in LOCATION
external() {
    python3 -c 'import sys
def msg(field, b): return bytes([field << 3 | 2]) + bytes([len(b)]) + b
loc = sys.argv[2].encode()
entry = lambda k, v: msg(13, msg(1, k) + msg(2, v))
tensor = b"\x08\x02\x10\x01" + msg(8, b"w") + entry(b"location", loc) + b"\x70\x01"
dim = msg(1, b"\x08\x02")
port = lambda n: msg(1, n) + msg(2, msg(1, b"\x08\x01" + msg(2, dim)))
node = msg(1, b"x") + msg(1, b"w") + msg(2, b"y") + msg(4, b"Add")
graph = msg(1, node) + msg(2, b"g") + msg(5, tensor) + msg(11, port(b"x")) + msg(12, port(b"y"))
open(sys.argv[1], "wb").write(b"\x08\x0a" + bytes([7 << 3 | 2, len(graph) & 127 | 128, len(graph) >> 7]) + graph + msg(8, b"\x10\x15"))' "$1" "$2"
}
mkdir -p "$T/in"
printf '\0\0\200\077\0\0\0\100' >"$T/in/w.bin"
cp "$T/in/w.bin" "$T/w.bin"
external "$T/in/good.onnx" w.bin
expect 0 'y: f32\[2\] = \[1, 2\]' "$SINTER" run "$T/in/good.onnx" -i x=zeros
for at in ../w.bin "$(realpath "$T/w.bin")" sub/../../w.bin none.bin; do
    external "$T/in/bad.onnx" "$at"
    refuse 'bad.onnx.*' "$SINTER" run "$T/in/bad.onnx"
done
ln -sf ../w.bin "$T/in/link.bin"
external "$T/in/bad.onnx" link.bin
refuse 'bad.onnx.*' "$SINTER" run "$T/in/bad.onnx"

# Numbers so large that sizes leave 64 bits, and steps beyond any axis.
far=9223372036854775807
while read -r text; do
    model far <<<"$head_of
$text"
    for how in --interpreter --wait --check; do refuse 'fit in 64 bits|than an address can count' "$SINTER" run "$T/far.onnxtxt" -d a=10 $how; done
done <<END
m (float[1,1,a] x) => (float[n,c,b] y) { y = MaxPool<kernel_shape=[2],strides=[$far]>(x) }
m (float[1,1,a] x) => (float[n,c,b] y) { y = MaxPool<kernel_shape=[2],pads=[$far,$far]>(x) }
m (float[1,1,a] x) => (float[n,c,b] y) { y = MaxPool<kernel_shape=[2],dilations=[$far],ceil_mode=1>(x) }
m (float[a] x) => (float[b] y) <int64[1] p={4611686018427387904}> { t = Tile(x, p) y = Relu(t) }
m (float[a] x) => (float[b] y) <int64[1] p={1844674407370955162}> { t = Tile(x, p) y = Relu(t) }
END
model step <<END
$head_of
m (float[a] x) => (float[b] y, float[c] z) <int64[1] s={-$far}, int64[1] l={-1}, int64[1] e={$far}, int64[1] ax={0}, int64[1] st={$far}, int64[1] back={-$far}> {
  y = Slice(x, s, e, ax, st)
  z = Slice(x, l, s, ax, back) }
END
for how in --interpreter --wait --check; do ok "steps beyond the axis, $how" bash -c "'$SINTER' run '$T/step.onnxtxt' -d a=9 $how -i x=random:3"; done
expect 0 'z: f32\[1\]' "$SINTER" run "$T/step.onnxtxt" -d a=9

# ---- the machine -----------------------------------------------------------------------------------------------------------------
refuse '/nonexistent' env SN_CC=/nonexistent SN_CACHE= "$SINTER" run "$T/good.onnxtxt"
expect 0 'y: f32' env SN_CC=/nonexistent SN_CACHE= "$SINTER" run "$T/good.onnxtxt" --interpreter
printf '#!/bin/sh\nexit 1\n' >"$T/broken-cc"
chmod +x "$T/broken-cc"
refuse 'sinter: .*' env SN_CC="$T/broken-cc" SN_CACHE= "$SINTER" run "$T/good.onnxtxt"
: >"$T/a-file"
expect 0 'y: f32' env SN_CACHE="$T/a-file/cache" "$SINTER" run "$T/good.onnxtxt"
expect 0 'y: f32' env SN_CACHE=/proc/nowhere "$SINTER" run "$T/good.onnxtxt"
expect 0 'y: f32' env SN_CACHE= "$SINTER" run "$T/good.onnxtxt"
refuse 'could not be written' bash -c "'$SINTER' ops >/dev/full"
refuse 'y.npy: File too large' bash -c "ulimit -f 1; '$SINTER' run '$T/good.onnxtxt' -d N=10000 --interpreter -o '$T/large'"
ok 'a cache that takes no files' bash -c "ulimit -f 1; SN_CACHE='$T/small' '$SINTER' run '$T/good.onnxtxt' --interpreter"

# ---- what programs read ----------------------------------------------------------------------------------------------------------
# With --json a failure is an object too, whatever failed, and what is no UTF-8 (names in a file, the file's own) stands as \xFF.
for c in run explain bench bisect tune conformance demo; do
    json 'j["error"]["status"] in ("IO", "INVALID") and "none" in j["error"]["text"]' "$SINTER" $c "$T/none" --json
done
json 'j["error"]["status"] == "INVALID" and "--nosuch" in j["error"]["text"]' "$SINTER" run "$T/good.onnxtxt" --nosuch --json
json 'j["error"]["status"] == "COMPILE"' env SN_CC=/nonexistent SN_CACHE= "$SINTER" run "$T/good.onnxtxt" --json
json '"add-relu" in j' "$SINTER" demo --json
odd=$T/$(printf 'odd\377').onnx
python3 -c 'import sys
msg = lambda n, b: bytes([n << 3 | 2, len(b)]) + b
port = lambda n: msg(1, n) + msg(2, msg(1, b"\x08\x01" + msg(2, msg(1, b"\x08\x02"))))
node = msg(1, b"x") + msg(2, b"o\xc3\xa9\xff\xc0\x80\"") + msg(3, b"no\xfede") + msg(4, b"Relu")
graph = msg(1, node) + msg(2, b"g") + msg(11, port(b"x")) + msg(12, port(b"o\xc3\xa9\xff\xc0\x80\""))
open(sys.argv[1].encode("utf-8", "surrogateescape"), "wb").write(b"\x08\x0a" + msg(7, graph) + msg(8, b"\x10\x15"))' "$odd"
json 'j["model"].endswith("odd\\xFF.onnx") and j["outputs"][0]["name"] == "o\u00e9\\xFF\\xC0\\x80\""' "$SINTER" run "$odd" --json
json 'j["segments"][0]["kernels"][0]["operators"] == ["Relu no\\xFEde"]' "$SINTER" explain "$odd" --json
for c in "bench --threads 1" bisect; do json 'j["model"].endswith("odd\\xFF.onnx")' "$SINTER" $c "$odd" --json; done
finish
