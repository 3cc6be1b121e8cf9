# _env.sh: what the Python tests share. Source it after check.sh.
#   PY             Python of a virtual environment under BUILD with what the tests need from PyPI; made once. `finish`es the test where that cannot be
#   have MODULE    whether it can be imported there; `want NAME...` tries to install packages that some tests need, quietly
#   $T/site        the package as the build made it, for PYTHONPATH
venv=$BUILD/python-venv
PY=$venv/bin/python
export T

have() { "$PY" -c "import $1" 2>/dev/null; }
want() { timeout 240 "$PY" -m pip install -q --disable-pip-version-check "$@" >"$T/pip.log" 2>&1; }

if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    skip "the Python package needs python3 of version 3.11 or later"
    finish
fi
if [ ! -f "$BUILD/python/_core.abi3.so" ]; then
    skip "the extension is not part of this build: Python's headers are missing, or it is a sanitized one"
    finish
fi
if [ ! -f "$venv/ready" ]; then
    rm -rf "$venv"
    if ! python3 -m venv "$venv" >"$T/pip.log" 2>&1 || ! want numpy onnx ml_dtypes mypy; then
        tail -n 3 "$T/pip.log"
        skip "PyPI cannot be reached: the Python tests need numpy, onnx, ml_dtypes and mypy"
        finish
    fi
    touch "$venv/ready"
fi
mkdir -p "$T/site/sinter"
ln -sf "$PWD"/python/sinter/*.py* "$PWD"/python/sinter/py.typed "$BUILD/python/_core.abi3.so" "$BUILD/sinter-opencl" "$BUILD/sinter-nvrtc" "$T/site/sinter/"
export PYTHONPATH=$T/site
