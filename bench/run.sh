#!/bin/bash
# run.sh [kernels|rows|models|...]...: what fusion gains on this machine. Prints two tables; without an argument both.
# run.sh aot [MODEL]...: models ahead of time (bench/aot.sh).
# run.sh --peers [ARGUMENT]...: a third: sinter beside other engines (bench/peers.sh).
#
#   kernels   printed kernels against loops written by hand and against one kernel for each operator, one thread (bench/kernels.c)
#   rows      softmax, norms, losses and activations on matrices past the caches, against a plain copy of as many bytes (bench/rows.c)
#   gemm      matrix products against oneDNN's, float32, bfloat16 and bytes, one thread, plain and with bias and gelu (bench/contract.c)
#   conv      convolutions with bias and relu against oneDNN's
#   models    real models, fused against unfused, from $SN_CASES/models when that is there (or folders in MODELS)
#   starts    the first result of those models with nothing compiled, and a start with kernels on disk: median and worst of STARTS (20) processes each
#   grain     a kernel of many sizes on one thread, in parts, and as the device chooses (bench/grain.c)
#   learn     tuning with the learned model of cost against four times the measurements without it (bench/learn.c)
#   regret    each fused kernel of those models against the kernels of its operators when nothing is fused (bench/regret.py)
#   attention attention of many forms from the plain graph (bench/attention.sh)
#
# Contenders take turns within one process; figures are medians. Run it on an idle machine: the first line says how busy it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
BUILD=${BUILD:-build}
[ "${1:-}" != aot ] || exec bash bench/aot.sh "${@:2}"
[ "${1:-}" != --peers ] || exec bash bench/peers.sh "${@:2}"
. tests/lib/sizes.sh
what=${*:-kernels models}
echo "$(date -u +%F) $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), $(cc --version | head -1)"
for w in $what; do
    case $w in
    kernels)
        cmake --build "$BUILD" --target bench_kernels >/dev/null
        "$BUILD/bench_kernels"
        ;;
    rows)
        cmake --build "$BUILD" --target bench_rows >/dev/null
        "$BUILD/bench_rows"
        ;;
    grain)
        cmake --build "$BUILD" --target bench_grain >/dev/null
        "$BUILD/bench_grain"
        ;;
    learn)
        cmake --build "$BUILD" --target bench_learn >/dev/null
        "$BUILD/bench_learn" --build
        "$BUILD/bench_learn"
        ;;
    gemm|conv)
        if ! cmake --build "$BUILD" --target bench_contract >/dev/null 2>&1; then
            echo "$w: skipped: oneDNN's header is not here (Debian: libdnnl-dev; then configure again)"
            continue
        fi
        OMP_NUM_THREADS=1 "$BUILD/bench_contract" "$w"
        [ "$w" = conv ] || for kind in --bf16 --int8; do OMP_NUM_THREADS=1 "$BUILD/bench_contract" "$w" "$kind"; done
        ;;
    regret)
        models=${MODELS:-$(ls -d "${SN_CASES:-../shared/cases}"/models/*/ 2>/dev/null || true)}
        [ -n "$models" ] || { echo "regret: no models found; name folders with model.onnx in MODELS"; continue; }
        for dir in $models; do
            model_sizes "$dir"
            python3 bench/regret.py "$BUILD/sinter" "$dir/model.onnx" "${sizes[@]}" --threads 1 || true
        done
        ;;
    models)
        models=${MODELS:-$(ls -d "${SN_CASES:-../shared/cases}"/models/*/ 2>/dev/null || true)}
        [ -n "$models" ] || { echo "models: none found; name folders with model.onnx in MODELS"; continue; }
        for threads in 1 2; do
            printf '%-24s %7s %10s %10s %6s %9s %9s %9s %8s %8s %8s\n' "model, $threads thread(s)" kernels unfused fused f/u 'cold s' 'warm s' 'first cold' 'first ms' 'temp u' 'temp f'
            for dir in $models; do
                model_sizes "$dir"
                { "$BUILD/sinter" bench "$dir/model.onnx" "${sizes[@]}" --threads $threads --json 2>/dev/null || true; } | python3 -c '
import json, sys
d = json.load(sys.stdin)
print("%-24s %3d/%3d %7.3f ms %7.3f ms %6.2f %9.2f %9.3f %9.1f %8.1f %8d %8d" % (sys.argv[1], d["kernels_fused"], d["kernels_unfused"], d["ms_unfused"], d["ms_fused"],
      d["ms_fused"] / d["ms_unfused"], d["cold_compile_s"] or 0, d["warm_start_s"] or 0, d["first_result_cold_ms"], d["first_result_ms"] or 0, d["temp_peak_unfused"], d["temp_peak_fused"]))' "$(basename "$dir")" || echo "$dir: no figures"
            done
        done
        ;;
    starts)
        models=${MODELS:-$(ls -d "${SN_CASES:-../shared/cases}"/models/*/ 2>/dev/null || true)}
        [ -n "$models" ] || { echo "starts: no models found; name folders with model.onnx in MODELS"; continue; }
        for threads in ${THREADS:-1 2}; do
            printf '%-24s %10s %21s %21s %21s\n' "$threads thread(s), ms" "cold, once" "first cold: worst" "warm start: worst" "first warm: worst"
            for dir in $models; do
                model_sizes "$dir"
                { "$BUILD/sinter" bench "$dir/model.onnx" "${sizes[@]}" --threads $threads --starts ${STARTS:-20} --json 2>/dev/null || true; } | python3 -c '
import json, sys
d = json.load(sys.stdin)
print("%-24s %10.0f" % (sys.argv[1], d["cold_compile_ms"]), *("%13.1f %7.1f" % (d[k]["median"], d[k]["worst"]) for k in ("first_result_cold_ms", "warm_start_ms", "first_result_ms")))' "$(basename "$dir")" || echo "$dir: no figures"
            done
        done
        ;;
    attention) bash bench/attention.sh ;;
    *) echo "run.sh: no benchmark named '$w' (kernels, rows, learn, regret, models, starts, grain, gemm, conv, attention)" >&2; exit 2 ;;
    esac
done
