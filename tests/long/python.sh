#!/bin/bash
# limit: 14400
# The Python package as a user gets it: pip install in a fresh virtual environment, all official backend cases, 2,000 random models.
# SN_RANDOM_MODELS=N: so many models instead.
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../python/_env.sh"
have onnxruntime || want onnxruntime || skip "onnxruntime does not install here: random models are compared with onnx.reference only"

count() {               # a program whose last line is 'N passed, N failed, N skipped'
    local log p f s
    log=$("$@" 2>"$T/stderr")
    printf '%s\n' "$log"
    read -r p _ f _ s _ <<<"$(tail -n 1 <<<"$log" | tr -d ,)"
    [[ $p =~ ^[0-9]+$ && $f =~ ^[0-9]+$ ]] || { bad "$*"; tail -n 10 "$T/stderr"; return; }
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

start=$SECONDS
ok "a fresh virtual environment" python3 -m venv "$T/fresh"
ok "pip install ." "$T/fresh/bin/pip" install -q --disable-pip-version-check .
took=$((SECONDS - start))
ok "it took $took seconds, wanted less than 180" test $took -lt 180
ok "what was installed works" env -u PYTHONPATH "$T/fresh/bin/python" -c '
import numpy, sinter
g = sinter.Graph()
g.output("y", g.op("Relu", g.input("x", "f32", ["n"])))
assert sinter.compile(g)(numpy.array([-1, 2], "f4")).tolist() == [0, 2]'
ok "a wheel" "$T/fresh/bin/pip" wheel -q --no-deps -w "$T/wheel" .
ok "it serves every Python from 3.11 on: $(ls "$T/wheel")" bash -c "ls '$T'/wheel/sinter-*-cp311-abi3-*.whl"
ok "what compiles kernels for devices is in it" test "$(python3 -m zipfile -l "$T"/wheel/*.whl | grep -cE 'sinter/sinter-(nvrtc|opencl) ')" = 2
ok "a source distribution" bash -c "'$T/fresh/bin/pip' install -q --disable-pip-version-check build && '$T/fresh/bin/python' -m build -s -o '$T/sdist' . >'$T/sdist.log' 2>&1"
ok "it installs" bash -c "'$T/fresh/bin/pip' install -q --disable-pip-version-check --force-reinstall --no-deps '$T'/sdist/*.tar.gz"

count "$PY" -W ignore tests/python/backend_test.py --excluded tests/python/excluded.txt
count "$PY" -W ignore tests/python/random_models.py --models "${SN_RANDOM_MODELS:-2000}" --nodes 16 --keep "$T/random"
finish
