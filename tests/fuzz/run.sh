#!/bin/bash
# run.sh [SECONDS] [PIECE...]: the fuzz tests beside this file, all or those named, SECONDS (60) each. Findings stay in BUILD/fuzz/PIECE.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=60
[[ ${1:-} =~ ^[0-9]+$ ]] && { seconds=$1; shift; }
if [ $# = 0 ]; then
    for f in tests/fuzz/*.sh; do
        [ "$f" = tests/fuzz/run.sh ] || set -- "$@" "$(basename "$f" .sh)"
    done
fi
passed=0 failed=0
for piece in "$@"; do
    echo "== $piece, $seconds s"
    if bash "tests/fuzz/$piece.sh" "$seconds"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
