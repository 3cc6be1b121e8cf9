#!/bin/bash
# Real models with golden results, with 1 and 2 threads; and the light models, whose weights are filled in first.
# limit: 1500
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
need_cases models light onnx.tar.xz
unpack onnx.tar.xz

# ---- real models ----------------------------------------------------------------------------------------------------------
mkdir -p "$CASES/models"
for m in "$SN_CASES"/models/*/; do ln -sfn "$(realpath "$m")" "$CASES/models/$(basename "$m")"; done
(cd "$CASES" && ls -d models/* | grep -v mobilenetv2_qdq_int8) >"$T/cases"
echo models/mobilenetv2_qdq_int8 >"$T/int8"
for mode in ${MODES:-fused}; do
    flag=() threads="1 2"
    case $mode in
    unfused) flag=(--no-fuse) ;;
    interpreter) flag=(--interpreter) threads=1 ;;
    esac
    for n in $threads; do
        judge $mode "$T/cases" --atol 1e-4 --rtol 1e-3 --threads "$n" -j 1 --limit 600 "${flag[@]}"
        # int8: at most 5 quanta (0.1530994) apart, and below: the same class
        judge $mode "$T/int8" --atol 0.7655 --rtol 0 --threads "$n" -j 1 --limit 600 "${flag[@]}"
    done
done
net=$CASES/models/mobilenetv2_qdq_int8
for set in "$net"/test_data_set_*; do
    ok "int8: the class of $(basename "$set")" bash -c "'$SINTER' run '$net/model.onnx' -i image='$set/input_0.pb' -o '$T/int8.out' &&
        python3 tests/lib/argmax.py '$T/int8.out/scores.npy' '$set/output_0.pb'"
done

# ---- sizes other than the golden ones, against the interpreter --------------------------------------------------------
at_sizes() { local m=$1; shift; ok "$m at $*" "$SINTER" run "$SN_CASES/models/$m/model.onnx" "$@" --check; }
at_sizes bert_toy -d batch=2 -d max_seq_len_in_batch=7
at_sizes bert_toy -d batch=5 -d max_seq_len_in_batch=33 --no-fuse
at_sizes ppocrv4_rec -d p2o.DynamicDimension.0=2 -d p2o.DynamicDimension.1=64
# Each kernel is compared; all of them together amplify: a mean lies between two quanta, a variance of equal bytes cancels in the model's own E[x^2] - E[x]^2.
at_sizes mobilenetv2_qdq_int8 -d batch=2 --atol 0.7655 --rtol 0
at_sizes magika_v3_3 -d unk__214=3 --atol 0.01

# ---- light models ------------------------------------------------------------------------------------------------------------
venv=$BUILD/cases/venv
if ! python3 -c 'import onnx, numpy' 2>/dev/null && [ ! -f "$venv/ready" ]; then
    { python3 -m venv "$venv" && "$venv/bin/pip" install -q onnx numpy && touch "$venv/ready"; } >"$T/venv.log" 2>&1
fi
python=python3
[ -f "$venv/ready" ] && python=$venv/bin/python
if ! "$python" -c 'import onnx, numpy' 2>/dev/null; then
    skip "the light models need Python's onnx and numpy, which could not be installed here"
    finish
fi
: >"$T/light"
for want in "$SN_CASES"/light/*.output_0.pb; do
    name=$(basename "$want" .output_0.pb)
    dir=$CASES/filled/$name
    mkdir -p "$dir/test_data_set_0"
    [ -s "$dir/model.onnx" ] || "$python" "$SN_CASES/light/light_fill.py" "$CASES/onnx/light/light_$name.onnx" "$dir/model.onnx" ||
        { bad "light_fill.py $name"; continue; }
    ln -sf "$SN_CASES/light/input_0.pb" "$dir/test_data_set_0/input_0.pb"
    ln -sf "$want" "$dir/test_data_set_0/output_0.pb"
    echo "filled/$name" >>"$T/light"
done
for mode in ${MODES:-fused}; do
    [ $mode = interpreter ] && continue     # minutes for each
    flag=()
    [ $mode = unfused ] && flag=(--no-fuse)
    for n in 1 2; do judge $mode "$T/light" --atol 1e-4 --rtol 1e-3 --threads "$n" -j 1 --limit 600 "${flag[@]}"; done
done
finish
