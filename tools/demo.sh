#!/bin/bash
# demo.sh [FILE]: a trained model from PyPI looks at FILE (default: README.md) and says what kind of file it is.
#
# ./dev demo calls it. The model is magika's (Google, Apache-2.0): 95 ONNX operators, input 2,048 bytes of the file,
# output a probability for each of 214 file types. It is fetched once, into BUILD/demo, and never becomes part of the
# tree. Shown are the answer, fused and unfused, whether the two agree, and what the fusion gained. Where the model
# cannot be fetched, `sinter demo add-relu` runs instead, which needs nothing. tools/demo.py knows the file formats.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
SINTER=${SINTER:-build/sinter} SINTER=${SINTER#"$PWD/"}
BUILD=${BUILD:-build} BUILD=${BUILD#"$PWD/"}
WHEEL=magika==1.0.3
dir=$BUILD/demo
model=$dir/model.onnx
file=${1:-README.md}

say() { printf '%s\n' "$*"; }
die() { printf 'demo: %s\n' "$*" >&2; exit 2; }
trap 'rm -rf "$dir/fetch"; exit 130' INT TERM
trap 'rm -rf "$dir/fetch"' EXIT

# show COMMAND...: prints it as it can be typed, then runs it.
show() {
    printf '$'
    printf ' %q' "$@"
    say
    "$@"
    local status=$?
    [ $status != 130 ] || exit 130
    return $status
}

# Puts model.onnx, config.json and types.json into $dir. Says why it could not.
fetch_model() {
    [ -s "$model" ] && [ -s "$dir/config.json" ] && [ -s "$dir/types.json" ] && return 0
    if ! command -v python3 >/dev/null; then why="python3 is missing"; return 1; fi
    if ! python3 -m pip --version >/dev/null 2>&1; then why="pip is missing (Debian: python3-pip)"; return 1; fi
    say "fetching $WHEEL from PyPI, once (16 MB)"
    rm -rf "$dir/fetch"
    mkdir -p "$dir/fetch"
    if ! python3 -m pip download --no-deps --only-binary=:all: --disable-pip-version-check --retries 1 --timeout 20 \
        --quiet --dest "$dir/fetch" "$WHEEL" >"$dir/fetch.log" 2>&1; then
        why="pip could not fetch it: $(grep -v '^ *$' "$dir/fetch.log" | tail -n 1 | cut -c1-200)"
        return 1
    fi
    if ! why=$(python3 tools/demo.py unpack "$dir/fetch"/*.whl "$dir" 2>&1); then return 1; fi
    rm -f "$dir/fetch.log"
}

[ -x "$SINTER" ] || die "$SINTER is missing: ./dev build"
[ -f "$file" ] && [ -r "$file" ] || die "$file: no such file, or it cannot be read"
why=""
if ! fetch_model; then
    say "The model is not here: $why"
    say "So this is the demonstration that needs none:"
    say
    show "$SINTER" demo add-relu
    exit $?
fi

# Files of a few bytes have an answer without the model, as in magika itself: demo.py gives it and says 3.
python3 tools/demo.py bytes "$file" "$dir"
case $? in 0) ;; 3) exit 0 ;; *) exit 2 ;; esac

show "$SINTER" run "$model" -i bytes="$dir/bytes.npy" -o "$dir/fused" || exit $?
python3 tools/demo.py answer "$file" "$dir" "$dir/fused" || exit $?
say
show "$SINTER" run "$model" -i bytes="$dir/bytes.npy" -o "$dir/unfused" --no-fuse || exit $?
python3 tools/demo.py agree "$dir/fused" "$dir/unfused" || exit $?
say
show "$SINTER" bench "$model" -i bytes="$dir/bytes.npy" || exit $?
say
say "Which operators became which kernel, and their C source:"
say "  $SINTER explain $model --source"
