#!/bin/bash
# limit: 600
# The Python package: its tests, types, documents, the scripts of examples/python against ONNX Runtime, a part of the official backend cases.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/python/_env.sh"

unit() {                # SCRIPT: counts its cases
    local log n
    log=$("$PY" "$1" -v 2>&1)
    n=$(grep -cE '\.\.\. ok$' <<<"$log")
    passed=$((passed + n))
    skipped=$((skipped + $(grep -c '\.\.\. skipped' <<<"$log")))
    tail -n 1 <<<"$log" | grep -q '^OK' && [ "$n" -gt 0 ] || { bad "$1"; tail -n 40 <<<"$log"; }
}

unit tests/python/t_program.py

# arrays on devices: OpenCL's where there is one; the driver made for tests, with little memory, passes for a card
devices=cpu
"$SINTER" run examples/add_relu.onnxtxt -d n=5 --device opencl >"$T/opencl" 2>&1 && devices+=,opencl
SN_TEST_DEVICES=$devices POCL_CACHE_DIR=$BUILD/tests/pocl unit tests/python/t_device.py
if command -v "${CXX:-g++}" >/dev/null && mkdir -p "$T/driver" && cc -D_GNU_SOURCE -std=gnu11 -O1 -w -shared -fPIC -o "$T/driver/libcuda.so.1" tests/gpu/fake_cuda.c -ldl; then
    SN_TEST_DEVICES=cuda FAKE_CUDA=memory=16777216 LD_LIBRARY_PATH=$T/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SN_KERNEL_COMPILER=$PWD/tests/gpu/_fake_nvrtc.sh \
        unit tests/python/t_device.py
else skip "no C++ compiler for the driver of tests"; fi
have onnxruntime || want onnxruntime || skip "onnxruntime does not install here: sessions are compared with nothing"
unit tests/python/t_session.py

ok "types: mypy --strict" "$PY" -m mypy --cache-dir "$T/mypy"
ok "documents" "$PY" tests/python/docs.py README.md docs/python.md docs/from-onnxruntime.md
ok "import sinter takes less than 0.15 s, a run of one node less than 10 us more than nothing" "$PY" tests/python/overhead.py

ok "an attention variant by calls is one kernel" bash -c "'$PY' examples/python/variant.py | grep -E '^1 kernel, 15 operators, error at most [0-9.]+e-0[67]'"

# ---- scripts for onnxruntime -------------------------------------------------------------------------------------------
if [ -z "${SN_CASES:-}" ]; then
    skip "SN_CASES is not set: no models for the scripts of examples/python"
else
    "$PY" tests/python/_inputs.py "$T"
    script() {          # NAME MODEL ARGUMENT...
        local name=$1 model=$SN_CASES/models/$2/model.onnx; shift 2
        ok "$name runs" bash -c "'$PY' examples/python/$name.py '$model' $* >'$T/$name.sinter'"
        have onnxruntime || { skip "$name is compared with nothing: onnxruntime is not there"; return; }
        sed 's/^import sinter as onnxruntime$/import onnxruntime/' "examples/python/$name.py" >"$T/$name.py"
        ok "$name: one line differs" test "$(diff "examples/python/$name.py" "$T/$name.py" | grep -c '^<')" = 1
        ok "$name runs with onnxruntime" bash -c "'$PY' '$T/$name.py' '$model' $* >'$T/$name.onnxruntime'"
        ok "$name: the same answers" "$PY" tests/python/_same.py "$T/$name.sinter" "$T/$name.onnxruntime"
    }
    script faces ulfd_RFB-320 "'$T/picture.npy'"
    script ocr ppocrv4_rec "'$T/line0.npy' '$T/line1.npy'"
    script speech silero_vad_v6 "'$T/sound.wav'"
fi

# ---- official cases ----------------------------------------------------------------------------------------------------
part=$("$PY" -W ignore tests/python/backend_test.py --excluded tests/python/excluded.txt --part 1/40 2>"$T/stderr")
grep '^FAILED' <<<"$part"
read -r p _ f _ s _ <<<"$(tail -n 1 <<<"$part" | tr -d ,)"
if [[ $p =~ ^[0-9]+$ ]]; then
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
else
    bad "the official runner"
    tail -n 10 "$T/stderr"
fi

# ---- random models -----------------------------------------------------------------------------------------------------
random=$("$PY" -W ignore tests/python/random_models.py --models 6 --nodes 12 2>"$T/stderr")
if [[ $(tail -n 1 <<<"$random") == "6 passed, 0 failed, "* ]]; then
    good
else
    bad "random models"
    tail -n 10 <<<"$random"
    tail -n 5 "$T/stderr"
fi
finish
