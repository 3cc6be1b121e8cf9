#!/bin/bash
# limit: 600
# The first seeds of the random-graph test (tests/fuzz/graphs.sh runs more): interpreter, unfused and fused programs agree.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
BUILD=${BUILD:-build}
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
"$BUILD/tests/fuzz/fuzz_graph" --seed 0 --count 160 --cache "$cache" >"$cache/other" &
"$BUILD/tests/fuzz/fuzz_graph" --seed 160 --count 144 --cache "$cache" >"$cache/one"
"$BUILD/tests/fuzz/fuzz_graph" --seed 33554432 --count 24 --cache "$cache" >>"$cache/one"      # recurrences, linear attention
"$BUILD/tests/fuzz/fuzz_graph" --seed 3200600 --count 1 --cache "$cache" >>"$cache/one"      # one number, read through padding: only the padding tells rows apart
"$BUILD/tests/fuzz/fuzz_graph" --seed 3000214 --count 1 --cache "$cache" >>"$cache/one"      # a window of four terms, by pairs: padding cuts one in two
"$BUILD/tests/fuzz/fuzz_graph" --seed 3000760 --count 1 --cache "$cache" >>"$cache/one"      # a tile of rows that are read from the last on
"$BUILD/tests/fuzz/fuzz_graph" --seed 16777216 --count 48 --cache "$cache" >>"$cache/one"     # products and windows reduced over their places
wait
grep -hv ' passed, ' "$cache/one" "$cache/other"
awk '/ passed, / { p += $1; f += $3 } END { print p + 0 " passed, " f + 0 " failed, 0 skipped"; exit f != 0 || p != 379 }' "$cache/one" "$cache/other"
