#!/bin/bash
# limit: 300
# The first seeds of the random-graph test (tests/fuzz/graphs.sh runs more): interpreter, unfused and fused programs agree.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
"${BUILD:-build}/tests/fuzz/fuzz_graph" --seed 1 --count 304 --cache "$cache"
