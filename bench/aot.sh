#!/bin/bash
# aot.sh [MODEL]...: models ahead of time: packages against programs, and against the C files of emx-onnx-cgen and onnx2c; sizes and times of compiling.
#
# All run on one thread, pinned, in turns within one process (bench/aot.c); the rivals' C is compiled with -O3 -march=native, from the model as onnxsim writes
# it for the sizes of the test's inputs: neither takes dynamic sizes. emx-onnx-cgen and onnxsim come from PyPI into a folder below the build; onnx2c is built
# from source by whoever wants it in the table: ONNX2C names the program.
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
    { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q emx-onnx-cgen onnxsim onnxruntime; } >"$work/pip.log" 2>&1 || echo "aot: emx-onnx-cgen could not be installed: left out"
fi
onnx2c=${ONNX2C:-$(command -v onnx2c || true)}
[ -n "$onnx2c" ] || echo "aot: onnx2c is not there (ONNX2C names the program): left out"
echo "$(date -u +%F) $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), load $(cut -d' ' -f1 /proc/loadavg), $(cc --version | head -n 1)"

# plain_model CASE OUT.onnx
plain_model() {
    "$work/venv/bin/python" - "$@" <<'END'
import sys, onnx, onnxsim
m, shapes = onnx.load(sys.argv[1] + "/model.onnx"), {}
known = {t.name for t in m.graph.initializer}
for i, v in enumerate(v for v in m.graph.input if v.name not in known):
    with open("%s/test_data_set_0/input_%d.pb" % (sys.argv[1], i), "rb") as f: shapes[v.name] = list(onnx.TensorProto.FromString(f.read()).dims)
onnx.save(onnxsim.simplify(m, overwrite_input_shapes=shapes)[0], sys.argv[2])
END
}

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
    plain_model "$dir" "$work/plain.onnx" 2>"$work/plain.log" || { echo "onnxsim: $(tail -n 1 "$work/plain.log" | cut -c1-150)"; continue; }
    mkdir -p "$work/emx-onnx-cgen" "$work/onnx2c"
    for name in emx-onnx-cgen onnx2c; do
        file=$work/$name/model.c log=$work/$name.log
        case $name in
        emx-onnx-cgen) [ -x "$emx" ] || continue; make=("$emx" compile "$work/plain.onnx" "$file") ;;
        onnx2c) [ -n "$onnx2c" ] || continue; make=(bash -c '"$0" "$1" >"$2"' "$onnx2c" "$work/plain.onnx" "$file") ;;
        esac
        if (cd "$work/$name" && timeout 300 "${make[@]}") >"$log" 2>&1 && rival $name "$file" "$dir" 2>"$log"; then
            printf '%s: ' $name
            taskset -c 0 "$BUILD/bench_aot" "$dir" "$work/$model.sinter" "$work/$name.so" || true
        else echo "$name: no library of this model: $(tail -n 1 "$log" | cut -c1-150)"; fi
    done
done
