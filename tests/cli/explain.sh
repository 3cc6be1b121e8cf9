#!/bin/bash
# sinter explain, bench and ops: reports as text and as JSON.
. "$(dirname "$0")/../lib/check.sh"
cat >"$T/net.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 64] x, float[64, 32] w, float[32] b) => (float[N, 32] y)
{ p = MatMul(x, w)
  q = Add(p, b)
  r = Relu(q)
  y = Softmax <axis = 1> (r) }
END
net=("$T/net.onnxtxt" -d N=16)
expect 0 'segment 1 of 1' "$SINTER" explain "${net[@]}"
expect 0 'MatMul p.*Add q' "$SINTER" explain "${net[@]}"
expect 0 'logical +logical +measured' "$SINTER" explain "${net[@]}"
expect 0 '4 of 4 operators in generated kernels' "$SINTER" explain "${net[@]}"
expect 0 'segment 1 of 1: 4 kernels' "$SINTER" explain "${net[@]}" --no-fuse
expect 0 '^void k_' "$SINTER" explain "${net[@]}" --source
name=$("$SINTER" explain "${net[@]}" | grep -oE 'k_[0-9a-f]+' | head -n 1)
expect 0 "^void $name" "$SINTER" explain "${net[@]}" --source "$name"
ok "one source only" test "$("$SINTER" explain "${net[@]}" --source="$name" | grep -c '^void k_')" = 1
json 'len(j["segments"]) == 1 and j["operators"] == 4 and j["operators_generated"] == 4 and j["variants"] == 1' "$SINTER" explain "${net[@]}" --json
json 'len(j["segments"][0]["kernels"]) < 4 and any("Relu r" in k["operators"] and len(k["operators"]) > 1 for k in j["segments"][0]["kernels"])' "$SINTER" explain "${net[@]}" --json
json 'all("source" in k for k in j["segments"][0]["kernels"] if k["generated"])' "$SINTER" explain "${net[@]}" --json --source
json '"refusals" in j["segments"][0]' "$SINTER" explain "${net[@]}" --json --why
json 'all(k["ms"] > 0 for k in j["segments"][0]["kernels"] if not k["once"])' env SN_ALIKE=1 "$SINTER" explain "${net[@]}" --json
expect 0 'segment' "$SINTER" explain "${net[@]}" --dot "$T/g.dot"
ok "the picture is a graph" grep -q '^digraph' "$T/g.dot"
if command -v dot >/dev/null; then ok "Graphviz reads it" dot -Tsvg -o "$T/g.svg" "$T/g.dot"; fi
refuse 'No such file|not' "$SINTER" explain "${net[@]}" --dot "$T/none/g.dot"

# a panel of weights that few tiles read is asked for before; one that many read, or that is small, is not
cat >"$T/panels.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, K] x, float[K, 512] w) => (float[N, 512] y) { y = MatMul(x, w) }
END
fetches() { "$SINTER" explain "$T/panels.onnxtxt" -d N="$1" -d K="$2" --source | grep -c 'fetch(b1,' || true; }
if "$SINTER" explain "$T/panels.onnxtxt" -d N=4 -d K=4 --source | grep -q LANES; then
    ok "panels are asked for" test "$(fetches 49 512)" -gt 0
    ok "small ones are not" test "$(fetches 49 64)" = 0
    ok "what many tiles read is not" test "$(fetches 4900 512)" = 0
fi

# rewriting rules: of a file, with leave, wrong ones
expect 0 'rule half_sum 1 times' "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules" --allow finite
expect 0 'rule half_sum 1 times' "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules" --fast
expect 0 'rule half_sum 0 times: it needs --allow finite' "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules"
expect 0 'rule half_sum 0 times: switched off' env SN_OFF=half_sum "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules" --fast
expect 0 'rule half_sum 0 times: nothing matches' "$SINTER" explain "$ROOT/examples/norm.onnxtxt" -d batch=2 --rules "$ROOT/examples/relu.rules" --fast
json 'j["segments"][0]["rewrites"] == [] and j["segments"][0]["rewrites_idle"] == ["half_sum 0 times: it needs --allow finite"]' "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules" --json
refuse "--source k_zz: no kernel's name begins so; kernels: k_" "$SINTER" explain "$ROOT/examples/norm.onnxtxt" -d batch=2 --source k_zz
expect 0 'cascade +pass +chains of reductions' "$SINTER" ops
json 'all(any(s["name"] == n and s["what"] == w for s in j["switches"]) for n, w in (("layout", "pass"), ("epilogue", "fusion"), ("mul_one", "rule"), ("hoist", "rule")))' "$SINTER" ops --json
expect 0 '^y: ' env SN_OFF="$(grep -rhoE 'opt\.off, "[a-z_]+"' "$ROOT/src" | cut -d'"' -f2 | paste -sd, -)" "$SINTER" run "$ROOT/examples/norm.onnxtxt" -d batch=2     # each pass has its row
refuse "SN_OFF: there is no 'cascades'; wanted a pass or a rule that .sinter ops. lists" env SN_OFF=joins,cascades "$SINTER" run "$ROOT/examples/add_relu.onnxtxt" -d n=4
refuse "f.rules:1: found RUL., wanted RULE. or FUSE." bash -c "echo 'RUL( a, b )' >'$T/f.rules'; '$SINTER' run '$ROOT/examples/add_relu.onnxtxt' -d n=4 --rules '$T/f.rules'"
expect 0 'rule div_const 1 times' "$SINTER" explain "$ROOT/examples/variant.onnxtxt" -d seq=8 --allow finite,reassoc
expect 0 'nothing that could be one kernel stayed apart' "$SINTER" explain "$ROOT/examples/add_relu.onnxtxt" -d n=4 --why
json 'j["segments"][0]["rewrites"] == ["half_sum 1 times: the positive part, spelt as a mean"]' "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules" --fast --json
half=("$ROOT/examples/half_sum.onnxtxt" -d n=40 -o "$T/half.c")
ok "a C file as the rules want it" bash -c '"$@" >/dev/null && ! grep -q abs_f32 "$0" && grep -q "half_sum.onnxtxt .*--rules relu.rules --allow finite" "$0"' "$T/half.c" "$SINTER" compile "${half[@]}" --rules "$ROOT/examples/relu.rules" --allow finite
ok "and without leave as the model has it" bash -c '"$@" >/dev/null && grep -q abs_f32 "$0"' "$T/half.c" "$SINTER" compile "${half[@]}" --rules "$ROOT/examples/relu.rules"
refuse "wrong.rules:2: rule 'drop_zero'" "$SINTER" compile "${half[@]}" --rules "$ROOT/examples/wrong.rules"
refuse "'speed' is nothing that can be allowed" "$SINTER" compile "${half[@]}" --allow speed
refuse "wrong.rules:2: rule 'drop_zero': .* is not .* x=-0" "$SINTER" run "$ROOT/examples/add_relu.onnxtxt" -d n=4 --rules "$ROOT/examples/wrong.rules"
expect 0 'segment' "$SINTER" explain "$ROOT/examples/half_sum.onnxtxt" -d n=40 --rules "$ROOT/examples/relu.rules" --fast --dot "$T/rule.dot"
ok "the picture shows the graph as the rules left it" bash -c "grep -q max '$T/rule.dot' && ! grep -q abs '$T/rule.dot'"
expect 0 'segment 1 of 1: 2 kernels' "$SINTER" explain "$ROOT/examples/add_relu.onnxtxt" -d n=4 --rules "$ROOT/examples/apart.rules"
expect 0 'segment 1 of 1: 1 kernels' env SN_OFF=keep_apart "$SINTER" explain "$ROOT/examples/add_relu.onnxtxt" -d n=4 --rules "$ROOT/examples/apart.rules"
fusion_refused() {      # FIELDS MESSAGE
    echo "FUSE( $1 )" >"$T/f.rules"
    refuse "f.rules:1: .*$2" "$SINTER" run "$ROOT/examples/add_relu.onnxtxt" -d n=4 --rules "$T/f.rules"
}
fusion_refused 'f, dot, fold, allow_rows, "no way"' 'no way to put a fold into a kernel of kind dot'
fusion_refused 'f, dot, fold, allow_all, "no condition"' "no condition 'allow_all'"
fusion_refused 'f, tree, fold, allow_rows, "no kind"' 'found tree and fold'
fusion_refused 'f, map' '2 fields'
refuse "none.rules: No such file" "$SINTER" run "$ROOT/examples/add_relu.onnxtxt" -d n=4 --rules "$T/none.rules"
refuse "'speed' is nothing that can be allowed" "$SINTER" run "$ROOT/examples/add_relu.onnxtxt" -d n=4 --allow finite,speed

# batch normalisation goes into the weights where the user allows another order of roundings: of groups, depthwise, transposed, and not where it is not finite
folded() {      # CONVOLUTION "CHANNELS IN" "DIMS OF W" GAIN: rewrites
    printf '<ir_version: 10, opset_import: ["" : 21]>\nnet (float[N, %s, 6, 7] x) => (float[N, 4, P, Q] y)\n<float[%s] w = {%s}, float[4] g = {%s}, float[4] b = {1, 2, -3, 0.5}, float[4] m = {0.5, -1, 2, 3}, float[4] v = {1, 4, 0.25, 2}>\n{ c = %s(x, w)  n = BatchNormalization(c, g, b, m, v)  y = Relu(n) }\n' \
        "$2" "$3" "$(seq -s ', ' -9 $((${3//,/*} - 10)))" "$4" "$1" >"$T/bn.onnxtxt"
    expect 0 'check: equal' "$SINTER" run "$T/bn.onnxtxt" -d N=2 --fast --check
    "$SINTER" explain "$T/bn.onnxtxt" -d N=2 --fast 2>/dev/null | grep -c 'rule scale_sum 1 times'
}
gain='0.5, -2, 3, 1.5'
while IFS='|' read -r conv in dims; do
    ok "batch normalisation in the weights: $conv" test "$(folded "$conv" "$in" "$dims" "$gain")" = 1
    ok "not of what is not finite: $conv" test "$(folded "$conv" "$in" "$dims" "0.5, inf, 3, 1.5")" = 0
done <<'END'
Conv|3|4,3,2,2
Conv<pads = [1,1,1,1], group = 2>|4|4,2,3,3
Conv<strides = [2,2], group = 4>|4|4,1,3,3
ConvTranspose<strides = [2,2]>|3|3,4,3,3
ConvTranspose<group = 2>|4|4,2,2,2
END

# a model whose sizes depend on data: two segments, and the reason
cat >"$T/cut.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N] x) => (int64[1, M] y, float[N] z)
{ z = Neg(x)
  i = NonZero(z)
  y = Mul(i, i) }
END
expect 0 'segment 2 of 2' "$SINTER" explain "$T/cut.onnxtxt" -d N=9 --dot "$T/cut.dot"
expect 0 'ends because .*NonZero' "$SINTER" explain "$T/cut.onnxtxt" -d N=9

# ---- bench ---------------------------------------------------------------------------------------------------------------------
keys='["model", "threads", "kernels_unfused", "kernels_fused", "coverage_ops", "coverage_time", "logical_bytes_unfused", "logical_bytes_fused", "measured_bytes_unfused", "measured_bytes_fused", "temp_peak_unfused", "temp_peak_fused", "ms_unfused", "ms_fused", "cold_compile_s", "warm_start_s", "first_result_ms", "max_abs_err", "max_rel_err", "reference"]'
"$SINTER" bench "${net[@]}" --threads 1 --json >"$T/bench.json" 2>"$T/stderr"
ok "bench: status" test $? = 0
json "all(k in j for k in $keys)" cat "$T/bench.json"
json 'j["kernels_unfused"] == 4 and j["kernels_fused"] < 4 and j["logical_bytes_fused"] < j["logical_bytes_unfused"] and j["threads"] == 1' cat "$T/bench.json"
json 'j["reference"] == "interpreter" and 0 <= j["max_abs_err"] < 1e-5 and j["equal"]' cat "$T/bench.json"
json '(j["measured_bytes_fused"] is None) == ("no_counters" in j)' cat "$T/bench.json"
json 'j["cold_compile_s"] > j["warm_start_s"] > 0 and j["first_result_ms"] >= j["warm_start_s"] * 1e3 and j["ms_fused"] > 0' cat "$T/bench.json"
"$SINTER" bench "${net[@]}" >"$T/bench.txt" 2>&1
for p in 'logical \(counted\) +measured' 'kernels +4 ' 'memory traffic' 'time of a run' 'coverage: 4 of 4' 'errors against the reference interpreter'; do
    expect 0 "$p" cat "$T/bench.txt"
done
ok "bench leaves no folder behind" bash -c "! ls -d '${TMPDIR:-/tmp}'/sinter-bench-* 2>/dev/null | grep -q $$"

# ---- not more than pays: a chain of exp before a broadcast is computed once for each element, and not in each window of a pool ------------------------
cat >"$T/broadcast.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 17]>
net (float[M] x, float[N, M] c) => (float[N, M] y) { a = Exp(x)  b = Exp(a)  d = Exp(b)  y = Add(d, c) }
END
cat >"$T/pool.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 17]>
net (float[1,8,28,28] x, float[1,8,28,28] c) => (float[1,8,28,28] y)
{ a = Exp(x)  p = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(a)  y = Add(p, c) }
END
ops='[[o.split()[0] for o in k["operators"]] for k in j["segments"][0]["kernels"]]'
json "$ops == [['Exp', 'Exp', 'Exp'], ['Add']]" "$SINTER" explain "$T/broadcast.onnxtxt" -d N=64 -d M=64 --json
json "$ops == [['Exp'], ['MaxPool', 'Add']]" "$SINTER" explain "$T/pool.onnxtxt" --json

# ---- what is computed of joined halves is computed of each: rotary embeddings are one kernel; not where others read the join ---------------------------
cat >"$T/rotary.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[B, H, S, 64] x, float[S, 64] c, float[S, 64] s) => (float[B, H, S, 64] y)
<int64[1] from = {0}, int64[1] half = {32}, int64[1] end = {64}, int64[1] last = {3}>
{ a = Slice(x, from, half, last)  b = Slice(x, half, end, last)  n = Neg(b)  r = Concat<axis = -1>(n, a)
  p = Mul(x, c)  q = Mul(r, s)  y = Add(p, q) }
END
cat >"$T/joins.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 5] x, float[N, 3] y, float[N, 8] z, float[K] k) => (float[N, 8] a, float[N, 8] b, int32[3] d, float[N, 8] g) <int64[1] one = {1}>
{ e = Exp(x)  j = Concat<axis = 1>(e, y)  t = Tanh(z)  u = Mul(j, t)  a = Add(u, k)
  l = Concat<axis = 1>(y, x)  w = Abs(z)  b = Sub(w, l)  g = Max(l, z)
  h = Concat<axis = 0>(x, x)  i = ReduceSum<keepdims = 0>(h)  c = Cast<to = 6>(i)  m = Reshape(c, one)  v = Flatten(y)  r = Shape(v)  s = Cast<to = 6>(r)
  q = Concat<axis = 0>(m, s)  d = Neg(q) }
END
json "$ops == [['Neg', 'Mul', 'Mul', 'Add']]" "$SINTER" explain "$T/rotary.onnxtxt" -d B=2 -d H=3 -d S=5 --json
SN_OFF=joins json 'j["segments"][0]["launches"] == 3' "$SINTER" explain "$T/rotary.onnxtxt" -d B=2 -d H=3 -d S=5 --json
for s in 1 5 129; do expect 0 'check: equal' "$SINTER" run "$T/rotary.onnxtxt" -d B=2 -d H=3 -d S=$s --check; done
for how in '-d N=7 -d K=8' '-d N=0 -d K=8' '-d N=1 -d K=1'; do
    # shellcheck disable=SC2086
    expect 0 'check: equal' "$SINTER" run "$T/joins.onnxtxt" $how --check
done

# ---- embeddings and the norm behind them are one kernel: negative indices are wrapped there, once for each row ------------------------------------------
cat >"$T/embed.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (int64[B, S] ids, int64[1, S] pos, int64[B, S] seg, float[50, 24] w, float[40, 24] p, float[2, 24] t, float[24] g, float[24] b) => (float[B, S, 24] y)
{ e = Gather(w, ids)  f = Gather(p, pos)  h = Gather(t, seg)  u = Add(e, f)  v = Add(u, h)  y = LayerNormalization<axis = -1>(v, g, b) }
END
json "$ops == [['Gather', 'Gather', 'Gather', 'Add', 'Add', 'LayerNormalization']]" "$SINTER" explain "$T/embed.onnxtxt" -d B=2 -d S=3 --json
npy "$T/ids.npy" 'q:<i8' '2 3' -1 0 49 -50 7 3
npy "$T/pos.npy" 'q:<i8' '1 3' 0 1 -40
expect 0 'check: equal' "$SINTER" run "$T/embed.onnxtxt" -i ids="$T/ids.npy" -i pos="$T/pos.npy" --check
npy "$T/ids.npy" 'q:<i8' '2 3' -1 0 50 -50 7 3
refuse "Gather.*50|50.*Gather" "$SINTER" run "$T/embed.onnxtxt" -i ids="$T/ids.npy" -i pos="$T/pos.npy"

# ---- ops -----------------------------------------------------------------------------------------------------------------------
expect 0 '^  Softmax +1' "$SINTER" ops
expect 0 '^  add +2  FI$' "$SINTER" ops
expect 0 'operators of com.microsoft' "$SINTER" ops
json 'len(j["operators"]) > 150 and any(o["op"] == "Conv" and o["domain"] == "ai.onnx" and 1 in o["versions"] for o in j["operators"])' "$SINTER" ops --json
json '"cpu" == j["targets"][0]["name"] and any(t["name"] == "null" for t in j["targets"])' "$SINTER" ops --json
json 'any(d["name"] == "bf16" and d["onnx"] == 16 and d["bytes"] == 2 for d in j["dtypes"]) and any(p["name"] == "fold" for p in j["primitives"])' "$SINTER" ops --json
json 'all(any(o["domain"] == "sinter" and o["op"] == p["name"] for o in j["operators"]) for p in j["primitives"] if p["elementwise"])' "$SINTER" ops --json
finish
