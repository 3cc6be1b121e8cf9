#!/bin/bash
# graphs.sh [SECONDS] [FIRST-SEED]: random graphs, two processes at once; those that differ are printed and made smaller.
# 10,000 graphs take about half an hour. A seed by itself: build/tests/fuzz/fuzz_graph --seed N --count 1 --verbose
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BUILD=${BUILD:-build}
SECONDS_TO_RUN=${1:-60}
FIRST=${2:-100000}
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
pids=()
for half in 0 1; do
    "$BUILD/tests/fuzz/fuzz_graph" --seed $((FIRST + half * 1000000)) --count 1000000 --seconds "$SECONDS_TO_RUN" --cache "$cache" >"$cache/log$half" 2>&1 &
    pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
grep -hv ' passed, ' "$cache"/log*
awk '/ passed, / { p += $1; f += $3 } END { print p + 0 " passed, " f + 0 " failed, 0 skipped" }' "$cache"/log*
exit $status
