#!/bin/bash
# The demonstration without a network: it says so and shows the one that needs no model; and what the model would read of
# a file, seen through a model that returns its input.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
SINTER=${SINTER:-$PWD/build/sinter}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SN_CACHE=$work/cache
passed=0 failed=0 skipped=0
is() {                  # WHAT FOUND WANTED
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); else printf '%s: found %s, wanted %s\n' "$1" "$2" "$3"; failed=$((failed + 1)); fi
}

out=$(BUILD=$work SINTER=$SINTER PIP_INDEX_URL=http://127.0.0.1:9/ PIP_NO_INDEX=1 bash tools/demo.sh README.md 2>&1)
is "exit status without a network" $? 0
is "says that the model is not here" "$(grep -c '^The model is not here: ' <<<"$out")" 1
is "shows the other demonstration" "$(grep -c '^fused  *1 kernel,  *48 bytes = 3Nb' <<<"$out")" 1
is "leaves nothing half fetched" "$(ls "$work/demo" 2>/dev/null | grep -cv '\.log$')" 0
BUILD=$work bash tools/demo.sh "$work/nothing" >/dev/null 2>&1
is "exit status for a file that is not there" $? 2

if command -v python3 >/dev/null; then
    cat >"$work/config.json" <<<'{"beg_size": 4, "mid_size": 0, "end_size": 4, "block_size": 8, "padding_token": 256,
        "min_file_size_for_dl": 3, "use_inputs_at_offsets": false}'
    printf '%s\n' '<ir_version: 8, opset_import: ["" : 17]>' 'echo (int32[1, 8] bytes) => (int32[1, 8] y) { y = Identity(bytes) }' >"$work/echo.onnxtxt"
    reads() {           # TEXT: what the model reads of it
        printf "$1" >"$work/file"
        python3 tools/demo.py bytes "$work/file" "$work" && "$SINTER" run "$work/echo.onnxtxt" -i bytes="$work/bytes.npy" | sed 's/.*= //'
    }
    is "a longer file: its first and last bytes" "$(reads ' abcdefghijkl\n')" "[97, 98, 99, 100, 105, 106, 107, 108]"
    is "a short file is filled up" "$(reads 'abc')" "[97, 98, 99, 256, 256, 97, 98, 99]"
    is "bytes above 127" "$(reads '\377\376\375\374')" "[255, 254, 253, 252, 255, 254, 253, 252]"
    is "too short for the model" "$(reads '   ab')" "$work/file: txt (too short to ask the model; give a longer file)"
    is "empty" "$(reads '')" "$work/file: empty (too short to ask the model; give a longer file)"
else
    echo "python3 is missing: what the model reads is not tested"
    skipped=5
fi
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
