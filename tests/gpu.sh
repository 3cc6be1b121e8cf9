#!/bin/bash
# On an NVIDIA GPU: the examples, the planner's tests, random graphs, the real models and the official cases with --device cuda. Skipped without a card.
# limit: 3600
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/cases.sh"
if ! said=$("$SINTER" run examples/add_relu.onnxtxt -d n=5 --device cuda 2>&1 >/dev/null); then
    skip "${said##*sinter: }"
    finish
fi
for m in 'norm -d batch=7' 'attention -d seq=33' 'matmul -d batch=9'; do
    read -r name flags <<<"$m"
    # shellcheck disable=SC2086
    expect 0 'equal to the reference interpreter' "$SINTER" run "examples/$name.onnxtxt" $flags --check --device cuda
done
rows_right() {      # N INPUTS CALL: rows of N are one row each, and right
    printf '<ir_version: 10, opset_import: ["" : 23]>\ng (float[m,%d] x%s) => (float[m,%d] y) { y = %s }\n' "$1" "$2" "$1" "$3" >"$T/row.onnxtxt"
    expect 0 "rows of $1:" "$SINTER" explain "$T/row.onnxtxt" -d m=300 -i x=zeros --source --device cuda
    expect 0 'equal to the reference interpreter' "$SINTER" run "$T/row.onnxtxt" -d m=300 --check --device cuda
}
for n in 4096 8800 10000 11752 12252 13200 18000 19624 23000 25252 26000 30700 37000 37252 44000 46500; do      # one of each form (row_shape.c), more rows than all groups take at once
    rows_right $n ", float[$n] g, float[$n] b" 'LayerNormalization<axis = -1>(x, g, b)'
done
for n in 8864 16000 25000 33000 46252 47500; do
    rows_right $n ", float[$n] g" 'RMSNormalization<axis = -1>(x, g)'
    rows_right $n '' 'Softmax<axis = -1>(x)'
done
ok "the planner's tests" env SN_TARGET=cuda "$BUILD/tests/unit/t_fuse"
ok "random graphs" env SN_TARGET=cuda "$BUILD/tests/fuzz/fuzz_graph" --seed 0 --count 40 --cache "$T/kernels"
if command -v python3 >/dev/null; then      # the rough forms, for what is rounded to 16 bits, take a hundredth of its last place
    mkdir -p "$T/ulps"
    for f in 'exp f32 2' 'sigmoid f32 4' 'tanh f32 2' 'exp bf16 0.51' 'sigmoid bf16 0.51'; do
        # shellcheck disable=SC2086
        expect 0 '' python3 tests/gpu/ulps.py "$SINTER" cuda "$T/ulps" $f
    done
else skip "no python3 for the units in the last place"; fi
if python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null && [ -f "$BUILD/python/_core.abi3.so" ]; then
    mkdir -p "$T/site/sinter"
    ln -sf "$PWD"/python/sinter/*.py "$BUILD/python/_core.abi3.so" "$T/site/sinter/"
    ok "PyTorch's tensors where they lie" env PYTHONPATH="$T/site" PATH="$BUILD:$PATH" python3 tests/gpu/dlpack.py
else skip "no PyTorch with a GPU, or no extension for Python: tensors by DLPack"; fi
need_cases models onnx.tar.xz onnx-cases.tsv graphs.tar.xz
unpack onnx.tar.xz
unpack graphs.tar.xz
mkdir -p "$CASES/models"
for m in "$SN_CASES"/models/*/; do ln -sfn "$(realpath "$m")" "$CASES/models/$(basename "$m")"; done
(cd "$CASES" && ls -d models/* | grep -v mobilenetv2_qdq_int8) >"$T/models"
echo models/mobilenetv2_qdq_int8 >"$T/int8"
judge cuda "$T/models" --device cuda --atol 1e-4 --rtol 1e-3 --limit 300
judge cuda "$T/int8" --device cuda --atol 0.7655 --rtol 0 --limit 300      # at most 5 quanta (0.1530994) apart
{
    awk -F'\t' 'NR > 1 && $1 !~ /^light/ { print "onnx/" $1 }' "$SN_CASES/onnx-cases.tsv"
    (cd "$CASES" && find graphs -name model.onnx | sed 's|/model.onnx$||' | sort)
} >"$T/cases"
judge cuda "$T/cases" --device cuda --limit 300
finish
