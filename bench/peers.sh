#!/bin/bash
# peers.sh [OPTION]... [MODEL.onnx]...: sinter beside ONNX Runtime, OpenVINO and PyTorch (Inductor): one table. --help lists the options.
# peers.sh attention [LENGTH]... [--threads N] [--queries N] [--heads N]: attention in every form that their users would write (bench/attention_peers.py).
# peers.sh rows [NAME|COLUMNS]... [--threads N]: softmax, norms, cross-entropy, GELU beside Inductor and a copy (bench/rows_peers.py).
#
# The peers are installed from PyPI into a scratch environment, once: the folder SN_PEERS, else BUILD/peers. What cannot be installed is left out of the
# table, with a line that says why. Without MODELs: those of $SN_CASES/models, and the light models, whose weights are filled in first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
BUILD=$(realpath "${BUILD:-build}")
peers=${SN_PEERS:-$BUILD/peers}
for d in shared ../shared ../../shared; do [ -n "${SN_CASES:-}" ] || [ ! -d "$d/cases" ] || SN_CASES=$(realpath "$d/cases"); done
SN_CASES=${SN_CASES:-}
python=$peers/venv/bin/python
mkdir -p "$peers"
[ -x "$python" ] || python3 -m venv "$peers/venv"
for package in numpy onnx onnxruntime openvino torch; do
    [ -e "$peers/has-$package" ] && continue
    echo "peers.sh: installing $package into $peers/venv" >&2
    if "$python" -m pip install -q "$package" >"$peers/pip-$package.log" 2>&1; then touch "$peers/has-$package"
    else echo "peers.sh: $package could not be installed: $(tail -n 1 "$peers/pip-$package.log")" >&2; fi
done

export SN_CACHE=${SN_CACHE:-$peers/kernels} TORCHINDUCTOR_CACHE_DIR=$peers/inductor
case ${1:-} in attention|rows) exec "$python" "bench/$1_peers.py" --lib "$BUILD/libsinter.so" "${@:2}" ;; esac

# the light models, with weights
light=$peers/light
if [ -d "$SN_CASES/light" ] && [ -e "$SN_CASES/onnx.tar.xz" ]; then
    for want in "$SN_CASES"/light/*.output_0.pb; do
        name=$(basename "$want" .output_0.pb) dir=$light/$(basename "$want" .output_0.pb)
        [ -s "$dir/model.onnx" ] && continue
        mkdir -p "$dir/test_data_set_0"
        tar -xJf "$SN_CASES/onnx.tar.xz" -C "$light" "onnx/light/light_$name.onnx"
        "$python" "$SN_CASES/light/light_fill.py" "$light/onnx/light/light_$name.onnx" "$dir/model.onnx" >/dev/null
        ln -sf "$(realpath "$SN_CASES/light/input_0.pb")" "$dir/test_data_set_0/input_0.pb"
        ln -sf "$(realpath "$want")" "$dir/test_data_set_0/output_0.pb"
    done
fi
exec "$python" bench/peers.py --lib "$BUILD/libsinter.so" --work "$peers/work" --folders "$SN_CASES/models" "$light" -- "$@"
