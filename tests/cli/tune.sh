#!/bin/bash
# sinter tune: what it measures is recorded and used, whatever stands in a record the results stay right, records travel as text.
. "$(dirname "$0")/../lib/check.sh"
export SN_CACHE=$T/kernels SN_THREADS=1
cat >"$T/net.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 17]>
net (float[B, 120] x, float[120, 72] w) => (float[B, 72] y)
{ a = MatMul(x, w)  b = Tanh(a)  y = Softmax(b) }
END
net=("$T/net.onnxtxt" -d B=37)

json 'j["trials"] >= 1 and j["found"] >= 0' "$SINTER" tune "${net[@]}" --budget 8s --json
json 'j["known"] >= 1 and j["modelled"] <= j["trials"]' "$SINTER" tune "${net[@]}" --budget 2s --json
expect 0 'the learned model' "$SINTER" tune "${net[@]}" --budget 1s
ok "a file of records" [ -s "$SN_CACHE/tuned.sqlite" ]
expect 0 'equal to the reference' "$SINTER" run "${net[@]}" --check

# a record of our own: the name, the bucket, the machine and the compiler of this kernel, a schedule that nobody would choose
kernel=$(SN_RECORDS='' "$SINTER" explain "${net[@]}" --json 2>/dev/null | python3 -c 'import json, sys
print(next(k["name"] for s in json.load(sys.stdin)["segments"] for k in s["kernels"] if k["kind"] == "dot"))')
about=$(SN_RECORDS='' "$SINTER" explain "${net[@]}" --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["device"])')
machine=${about%%, cc*} compiler=cc${about##*, cc}
[ "$machine" != "$about" ] || { machine=${about%%, gcc*} compiler=gcc${about##*, gcc}; }
for bucket in t{0..12}w{16..24}r{0..8}; do printf '%s\t%s\t%s\t%s\trows=3 vectors=1\t0.5\t1\n' "$kernel" "$bucket" "$machine" "$compiler"; done >"$T/mine.tsv"
rm -f "$SN_CACHE/tuned.sqlite"
expect 0 'records read from' "$SINTER" tune --import "$T/mine.tsv"
expect 0 "kernel $kernel: rows=3 vectors=1" env SN_DEBUG=3 "$SINTER" run "${net[@]}"
expect 0 'equal to the reference' "$SINTER" run "${net[@]}" --check
expect 0 "records written to" "$SINTER" tune --export "$T/back.tsv"
ok "what was written is what was read" diff <(sort "$T/mine.tsv" | cut -f1-5) <(sort "$T/back.tsv" | cut -f1-5)
expect 0 '^y: f32' env SN_RECORDS= SN_DEBUG=3 "$SINTER" run "${net[@]}"
ok "SN_RECORDS= uses none" bash -c "! SN_RECORDS= SN_DEBUG=3 '$SINTER' run '$T/net.onnxtxt' -d B=37 2>&1 | grep -q 'rows=3'"

# a library for contractions, where there is one: a candidate that is measured; a record counts for the version that made it; the results stay right
cat >"$T/layer.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 17]>
layer (float[B, 64] x, float[96] b) => (float[B, 96] y) <float[64, 96] w>
{ a = MatMul(x, w)  c = Add(a, b)  y = Relu(c) }
END
{ sed -n '1p' "$T/layer.onnxtxt"
  sed -n '2p' "$T/layer.onnxtxt" | sed "s/w>/w = {$(seq -s, 1 6144)}>/"
  sed -n '3p' "$T/layer.onnxtxt"; } >"$T/known.onnxtxt"
layer=("$T/known.onnxtxt" -d B=40)
refuse 'SN_LIB is .some., wanted all or none' env SN_LIB=some "$SINTER" run "${layer[@]}" --wait
expect 0 'could run in a library, and was not found faster' "$SINTER" explain "${layer[@]}" --why
expect 0 'SN_LIB says none' env SN_LIB=none "$SINTER" tune "${layer[@]}" --budget 1s
expect 0 'libdnnl.so is not there' env SN_DNNL=/none/libdnnl.so "$SINTER" tune "${layer[@]}" --budget 1s
expect 0 'equal to the reference' env SN_DNNL=/none/libdnnl.so SN_LIB=all "$SINTER" run "${layer[@]}" --check
library=$("$SINTER" tune "${layer[@]}" --budget 1s | sed -n 's/^library for contractions: //p')
if [[ $library == oneDNN* ]]; then
    json 'j["library_trials"] >= 1' "$SINTER" tune "${layer[@]}" --budget 6s --json
    expect 0 "runs in $library" env SN_LIB=all "$SINTER" explain "${layer[@]}"
    expect 0 'equal to the reference' env SN_LIB=all "$SINTER" run "${layer[@]}" --check
    kernel=$(SN_RECORDS='' "$SINTER" explain "${layer[@]}" --json 2>/dev/null | python3 -c 'import json, sys
print(next(k["name"] for s in json.load(sys.stdin)["segments"] for k in s["kernels"] if k["kind"] == "dot"))')
    for version in "$library" "oneDNN 1.0.0"; do
        rm -f "$SN_CACHE/tuned.sqlite"
        for bucket in t{0..12}w{16..24}r{0..8}; do printf '%s\t%s\t%s\t%s\tlib=2 by %s\t0.5\t1\n' "$kernel" "$bucket" "$machine" "$compiler" "$version"; done >"$T/library.tsv"
        expect 0 'records read from' "$SINTER" tune --import "$T/library.tsv"
        "$SINTER" explain "${layer[@]}" >"$T/explained"
        ok "a record of $version" [ "$(grep -c "runs in $library" "$T/explained")" = $([ "$version" = "$library" ] && echo 1 || echo 0) ]
        expect 0 'equal to the reference' "$SINTER" run "${layer[@]}" --check
    done
    expect 0 'kernels' "$SINTER" compile "${layer[@]}" -o "$T/layer.c"
    ok "a C file needs no library" bash -c "! grep -q dnnl '$T/layer.c'"
else skip "a library for contractions: $library"
fi

# a choice that this version does not know is none; a broken file is refused by tune, with its line
sed 's/rows=3 vectors=1/colour=7/' "$T/mine.tsv" >"$T/other.tsv"
expect 0 'records read' "$SINTER" tune --import "$T/other.tsv"
expect 0 'equal to the reference' "$SINTER" run "${net[@]}" --check
printf 'a\tb\n' >"$T/bad.tsv"
refuse 'line 1 is no record' "$SINTER" tune --import "$T/bad.tsv"
refuse "nothing can be measured: no kernel of this model runs on the device 'null'" "$SINTER" tune "${net[@]}" --device null
expect 0 'trials' "$SINTER" tune "${net[@]}" --budget 1s --device cpu --rules "$ROOT/examples/relu.rules" --allow finite
refuse "wrong.rules:2: rule 'drop_zero'" "$SINTER" tune "${net[@]}" --rules "$ROOT/examples/wrong.rules"
refuse 'needs MODEL' "$SINTER" tune
refuse "budget is 'soon'" "$SINTER" tune "${net[@]}" --budget soon
finish
