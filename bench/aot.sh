#!/bin/bash
# aot.sh [MODEL]...: models ahead of time: packages against programs, and against the C files of emx-onnx-cgen and onnx2c; sizes and times of compiling.
#
# All run on one thread, pinned, in turns within one process (bench/aot.c); the rivals' C is compiled with -O3 -march=native. emx-onnx-cgen comes from PyPI into
# a folder below the build; onnx2c is built from source by whoever wants it in the table: ONNX2C names the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
BUILD=$(realpath "${BUILD:-build}")
SINTER=${SINTER:-$BUILD/sinter}
cases=${SN_CASES:-../shared/cases}/models
work=$BUILD/bench-aot
mkdir -p "$work"
[ -d "$cases" ] || { echo "aot: no models: SN_CASES names no folder with models"; exit 0; }
cmake --build "$BUILD" --target bench_aot >/dev/null
emx=$work/venv/bin/emx-onnx-cgen
if [ ! -x "$emx" ]; then
    { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q emx-onnx-cgen; } >"$work/pip.log" 2>&1 || echo "aot: emx-onnx-cgen could not be installed: left out"
fi
onnx2c=${ONNX2C:-$(command -v onnx2c || true)}
[ -n "$onnx2c" ] || echo "aot: onnx2c is not there (ONNX2C names the program): left out"
echo "$(date -u +%F) $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), load $(cut -d' ' -f1 /proc/loadavg), $(cc --version | head -n 1)"

# rival NAME FILE.c MODEL: a library whose bench_call hands the arrays on in the order of the inputs and outputs
rival() {
    local name=$1 file=$2 dir=$3 entry
    entry=$(python3 - "$file" "$name" <<'END'
import re, sys
s = open(sys.argv[1]).read()
found = [m for m in re.finditer(r"^(?:extern\s+)?void\s+(model|entry|\w+)\s*\(((?:[^(){};]*\[[^;{}]*)+)\)\s*\{", s, re.M)]
m = [f for f in found if f.group(1) in ("model", "entry")] or found[-1:]
n = len(m[0].group(2).split("],")) if m else 0
args = re.split(r",\s*(?=const|float|u?int|double|bool|_Bool)", m[0].group(2))
print(m[0].group(1), len([a for a in args if "const" in a]), len([a for a in args if "const" not in a]))
END
)
    read -r fn nin nout <<<"$entry"
    {
        printf '#include "%s"\n' "$file"
        grep -q '_Bool model_load\|^bool model_load' "$file" && printf '__attribute__((constructor)) static void ready(void) { model_load("%s"); }\n' "$(dirname "$file")/model.bin"
        printf 'void bench_call(void **in, void **out);\nvoid bench_call(void **in, void **out) { %s(' "$fn"
        for ((i = 0; i < nin; i++)); do printf '%sin[%d]' "$([ $i = 0 ] || echo ', ')" $i; done
        for ((i = 0; i < nout; i++)); do printf ', out[%d]' $i; done
        printf '); }\n'
    } >"$work/$name-wrap.c"
    cc -O3 -march=native -w -shared -fPIC "$work/$name-wrap.c" -lm -o "$work/$name.so"
}

for model in ${*:-ulfd_RFB-320 ppocrv4_rec mobilenetv2_qdq_int8 bert_toy magika_v3_3 silero_vad_v6}; do
    dir=$(realpath "$cases/$model")
    flags=()
    i=0
    while IFS= read -r name; do
        flags+=(-i "$name=$dir/test_data_set_0/input_$i.pb")
        i=$((i + 1))
    done < <(python3 -c 'import sys
sys.path.insert(0, "tests/lib")
import aot
print("\n".join(aot.inputs(sys.argv[1])))' "$dir/model.onnx")
    echo "== $model"
    "$SINTER" compile "$dir/model.onnx" "${flags[@]}" -o "$work/$model.sinter"
    "$SINTER" compile "$dir/model.onnx" "${flags[@]}" --weights pointer --isa plain -o "$work/plain.c"
    "$SINTER" compile "$dir/model.onnx" "${flags[@]}" --weights pointer --isa plain -o "$work/plain.o" >/dev/null
    size "$work/plain.o" | awk 'NR == 2 { print "plain object code: " $1 " bytes" }'
    taskset -c 0 "$BUILD/bench_aot" "$dir" "$work/$model.sinter"
    if [ -x "$emx" ]; then
        mkdir -p "$work/emx"
        if (cd "$work/emx" && "$emx" compile "$dir/model.onnx" "$work/emx/model.c") >"$work/emx.log" 2>&1 && rival emx "$work/emx/model.c" "$dir" 2>"$work/emx.log"; then
            printf 'emx-onnx-cgen: '
            taskset -c 0 "$BUILD/bench_aot" "$dir" "$work/$model.sinter" "$work/emx.so" || true
        else echo "emx-onnx-cgen: no C file of this model: $(tail -n 1 "$work/emx.log" | cut -c1-150)"; fi
    fi
    if [ -n "$onnx2c" ]; then
        if "$onnx2c" "$dir/model.onnx" >"$work/onnx2c.c" 2>"$work/onnx2c.log" && rival onnx2c "$work/onnx2c.c" "$dir" 2>"$work/onnx2c.log"; then
            printf 'onnx2c: '
            taskset -c 0 "$BUILD/bench_aot" "$dir" "$work/$model.sinter" "$work/onnx2c.so" || true
        else echo "onnx2c: no C file of this model: $(tail -n 1 "$work/onnx2c.log" | cut -c1-150)"; fi
    fi
done
