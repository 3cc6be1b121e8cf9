#!/bin/bash
# sinter run: outputs, inputs, sizes, files; usage; what the other commands share.
. "$(dirname "$0")/../lib/check.sh"

# ---- usage ------------------------------------------------------------------------------------------------------------
expect 0 'usage: sinter COMMAND' "$SINTER" --help
expect 0 '^sinter [0-9]+\.[0-9]+\.[0-9]+$' "$SINTER" --version
for c in run compile explain bench conformance bisect ops demo; do
    expect 0 "example: sinter $c" "$SINTER" $c --help
    expect 0 "usage: sinter $c" "$SINTER" help $c
    refuse "$c has no flag '--frob'" "$SINTER" $c --frob
done
refuse "no command" "$SINTER"
refuse "there is no command 'frob'" "$SINTER" frob
refuse "there is no command 'frob'" "$SINTER" help frob
refuse "run needs MODEL" "$SINTER" run
refuse "run takes MODEL, found 'b' too" "$SINTER" run a b
refuse "--input needs a value" "$SINTER" run a -i
refuse "--threads is 'x', wanted a whole number from 1 on" "$SINTER" run a --threads x
refuse "--threads is '0'" "$SINTER" run a --threads=0
refuse "--json takes no value" "$SINTER" run a --json=1
refuse "bench has no flag '--why'" "$SINTER" bench a --why

# ---- outputs ------------------------------------------------------------------------------------------------------------
cat >"$T/net.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 3] x, float[M] b, int64[2] k) => (float[N, 3] y, int64[2] "a/k", bool[N, 3] positive)
<float zero = {0}>
{ s = Add(x, b)
  y = Relu(s)
  "a/k" = Add(k, k)
  positive = Greater(s, zero) }
END
npy "$T/x.npy" 'f:<f4' '2 3' -1 2 3 4 -5 6
npy "$T/b.npy" 'f:<f4' '1' 1
pb "$T/k.pb" k 7 q 2 5 -7
given=(-i x="$T/x.npy" -i b="$T/b.npy" -i k="$T/k.pb")
for how in "" --no-fuse --interpreter --check "--threads 1" "--repeat 3"; do
    expect 0 '^y: f32\[2,3\] = \[0, 3, 4, 5, 0, 7\]$' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" $how
    expect 0 '^a/k: i64\[2\] = \[10, -14\]$' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" $how
    expect 0 'positive: bool\[2,3\] = \[false, true, true, true, false, true\]' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" $how
done
expect 0 'median [0-9.]+ ms' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" --repeat 5
expect 0 'check: equal to the reference interpreter' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" --check
json 'j["outputs"][0] == {"name": "y", "dtype": "f32", "shape": [2, 3], "values": [0, 3, 4, 5, 0, 7], "truncated": False}' \
    "$SINTER" run "$T/net.onnxtxt" "${given[@]}" --json
json '[o["name"] for o in j["outputs"]] == ["y", "a/k", "positive"]' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" --json

# ---- files ---------------------------------------------------------------------------------------------------------------
expect 0 'y\.npy: f32\[2,3\]' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" -o "$T/out"
ok "a name with a slash makes a file" test -f "$T/out/a_k.npy"
expect 0 '^y: f32\[2,3\] = \[1, 4, 5, 6, 1, 8\]$' "$SINTER" run "$T/net.onnxtxt" -i x="$T/out/y.npy" -i b="$T/b.npy"
expect 0 'in/x\.npy: f32\[2,3\]' "$SINTER" run "$T/net.onnxtxt" "${given[@]}" -o "$T/in" --inputs
ok "inputs are written as they were read" bash -c "cmp <(tail -c 24 '$T/in/x.npy') <(tail -c 24 '$T/x.npy') && cmp '$T/in/y.npy' '$T/out/y.npy'"
expect 0 '^a/k: i64\[2\] = \[10, -14\]$' "$SINTER" run "$T/net.onnxtxt" -i k="$T/in/k.npy"
refuse "--inputs needs -o DIR" "$SINTER" run "$T/net.onnxtxt" --inputs
refuse 'File exists|Not a directory' "$SINTER" run "$T/net.onnxtxt" -o "$T/x.npy"
ok "nothing half-written" bash -c "! ls '$T/out' | grep -v '\.npy\$'"

# ---- sizes and made-up inputs ----------------------------------------------------------------------------------------------
expect 0 'assumed sizes: N = 1, M = 1' "$SINTER" run "$T/net.onnxtxt"
expect 0 'y: f32\[4,3\]' "$SINTER" run "$T/net.onnxtxt" -d N=4 -d M=3
expect 0 'y: f32\[0,3\] = \[\]' "$SINTER" run "$T/net.onnxtxt" -d N=0 -d M=1
expect 0 'y: f32\[5,3\]' "$SINTER" run "$T/net.onnxtxt" -d x:0=5 -d M=1
expect 0 'y: f32\[1,3\] = \[0, 0, 0\]' "$SINTER" run "$T/net.onnxtxt" -i x=zeros -i b=zeros
refuse "-d Q=4: no input has such a dimension" "$SINTER" run "$T/net.onnxtxt" -d Q=4
refuse "-d is 'N=-1'" "$SINTER" run "$T/net.onnxtxt" -d N=-1
refuse "-d is 'N', wanted DIM=SIZE, SIZE a whole number" "$SINTER" run "$T/net.onnxtxt" -d N
refuse "-d is 'N=1..4': only compile takes a range" "$SINTER" run "$T/net.onnxtxt" -d N=1..4
refuse "-d is 'N=4..1', wanted DIM=LO..HI with LO at most HI" "$SINTER" compile "$T/net.onnxtxt" -d N=4..1 -d M=1 -o "$T/net.c"
refuse "-d is 'N=0..4', wanted DIM=SIZE or DIM=LO..HI, LO from 1 on" "$SINTER" compile "$T/net.onnxtxt" -d N=0..4 -d M=1 -o "$T/net.c"
refuse "no instruction set 'mmx'; wanted auto, plain, .*neon" "$SINTER" compile "$T/net.onnxtxt" -d N=1 -d M=1 --isa mmx -o "$T/net.c"
refuse "axis 0 of .*x.npy is 2, but -d says 3" "$SINTER" run "$T/net.onnxtxt" "${given[@]}" -d N=3
refuse 'they do not fit|broadcast|do not' "$SINTER" run "$T/net.onnxtxt" -d N=4 -d M=2
one=$("$SINTER" run "$T/net.onnxtxt" -i x=random:7 2>&1) two=$("$SINTER" run "$T/net.onnxtxt" -i x=random:7 2>&1) three=$("$SINTER" run "$T/net.onnxtxt" -i x=random:8 2>&1)
ok "a seed gives the same numbers" test "$one" = "$two"
ok "another seed gives others" test "$one" != "$three"

# ---- a rank-0 model and many dtypes -------------------------------------------------------------------------------------------
cat >"$T/types.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float x) => (float16 h, bfloat16 b, double d, uint8 u, float8e4m3fn q)
{ h = Cast <to = 10> (x)
  b = Cast <to = 16> (x)
  d = Cast <to = 11> (x)
  u = Cast <to = 2> (x)
  q = Cast <to = 17> (x) }
END
npy "$T/pi.npy" 'f:<f4' '' 3.14159274
for how in "" --interpreter; do
    expect 0 'h: f16\[\] = 3.140625' "$SINTER" run "$T/types.onnxtxt" -i x="$T/pi.npy" $how
    expect 0 'b: bf16\[\] = 3.140625' "$SINTER" run "$T/types.onnxtxt" -i x="$T/pi.npy" $how
    expect 0 'd: f64\[\] = 3.14159274' "$SINTER" run "$T/types.onnxtxt" -i x="$T/pi.npy" $how
    expect 0 'u: u8\[\] = 3' "$SINTER" run "$T/types.onnxtxt" -i x="$T/pi.npy" $how
    expect 0 'q: f8e4m3fn\[\] = 3.25' "$SINTER" run "$T/types.onnxtxt" -i x="$T/pi.npy" $how
done

# ---- a schedule that is asked for ---------------------------------------------------------------------------------------
# Rows in bundles, also where they are longer than such rows are meant to be.
cat >"$T/loss.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
loss (float[N, M] x, int64[N] t) => (float[N] y) { y = SoftmaxCrossEntropyLoss <reduction = "none"> (x, t) }
END
for m in 60 4100 20003; do
    expect 0 'check: equal to the reference interpreter' env SN_SCHED=bundle=2 "$SINTER" run "$T/loss.onnxtxt" -d N=37 -d M=$m --check
done
finish
