#!/bin/bash
# run_tests.sh BUILD [--long] [WORD...]: runs every test, two at a time, and adds up what they say.
#
# A test is
#   - a program BUILD/tests/unit/NAME, made from tests/unit/NAME.c, or
#   - a script tests/**/NAME.sh, run by bash in the root of the tree. tests/long/ runs with --long only; tests/fuzz/
#     has a command of its own; files in tests/lib/ and files whose name begins with '_' are parts of tests, not tests.
# With WORDs only tests whose name contains one of them run.
#
# A test's last line is 'N passed, N failed, N skipped' (cmocka's closing lines count as one). A test that ends without
# that line, exits with another status than its line says, or runs too long counts as one failure. Its time limit is
# 300 seconds, or what a line '# limit: SECONDS' (in C: '/* limit: SECONDS') near its top says.
#
# Tests find in the environment: SINTER (the program), BUILD, ROOT (folders), and SN_CASES, the folder of test material,
# if there is one. What needs SN_CASES says so in one line and counts as skipped without it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# ---- one test (the script calls itself) ---------------------------------------------------------------------------

# tally LOG: prints "passed failed skipped" from the test's own closing lines, or nothing.
tally() {
    awk '
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { line = 1; p = $1; f = $3; s = $5 }
        /^\[  PASSED  \] [0-9]+ test\(s\)\./ { cm = 1; cp += $4 }
        /^\[  SKIPPED \] [0-9]+ test\(s\), listed below/ { cm = 1; cs += $4 }
        /^\[  FAILED  \] [0-9]+ test\(s\), listed below/ { cm = 1; cf += $4 }
        END { if (line) print p, f, s; else if (cm) print cp + 0, cf + 0, cs + 0 }' "$1"
}

run_one() {
    local name=$1 log result limit source=tests/$1 passed failed skipped start seconds status word=ok
    log=$BUILD/test-logs/${name//\//_}.log
    local run=(bash "tests/$name")
    if [[ $name != *.sh ]]; then
        run=("$BUILD/tests/$name")
        source=tests/$name.c
    fi
    limit=$(head -n 20 "$source" | sed -n 's/^\(#\|\/\*\) limit: *\([0-9][0-9]*\).*/\2/p' | head -n 1)
    start=$EPOCHREALTIME
    timeout --kill-after=10 "${limit:-300}" "${run[@]}" >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
    result=$(tally "$log")
    read -r passed failed skipped <<<"${result:-0 0 0}"
    if [ $status = 124 ] || [ $status = 137 ]; then
        say "ran longer than ${limit:-300} seconds or was killed" >>"$log"; failed=$((failed + 1))
    elif [ -z "$result" ]; then
        say "ended with status $status without its closing line" >>"$log"; failed=$((failed + 1))
    elif [ $status != 0 ] && [ "$failed" = 0 ]; then
        say "exited with status $status" >>"$log"; failed=1
    fi
    [ "$failed" = 0 ] || word=FAIL
    {
        printf '%-4s %8s s  %s: %d passed, %d failed, %d skipped\n' $word "$seconds" "$name" "$passed" "$failed" "$skipped"
        [ "$failed" = 0 ] || { tail -n 60 "$log" | sed 's/^/     | /'; say "     whole output: ${log#"$PWD/"}"; }
    } >"$log.out"
    say "$passed $failed $skipped" >"$log.count"
    flock "$BUILD/test-logs/lock" cat "$log.out"
}

say() { printf '%s\n' "$*"; }

if [ "${1:-}" = --one ]; then
    run_one "$2"
    exit 0
fi

# ---- all tests ----------------------------------------------------------------------------------------------------

list_tests() {
    local f
    for f in tests/unit/*.c; do
        f=$(basename "$f" .c)
        [ -x "$BUILD/tests/unit/$f" ] && say "unit/$f"
    done
    find tests -name '*.sh' ! -name '_*' ! -path 'tests/lib/*' ! -path 'tests/fuzz/*' ! -path 'tests/long/*' |
        sed 's/^tests.//' | sort
    [ "$long" = 0 ] || find tests/long -name '*.sh' ! -name '_*' 2>/dev/null | sed 's/^tests.//' | sort
}

pick() {
    if [ ${#words[@]} = 0 ]; then cat; else grep -F "${words[@]/#/-e}"; fi
}

BUILD=$(realpath "${1:?usage: run_tests.sh BUILD [--long] [WORD...]}"); shift
long=0 words=()
for a; do
    if [ "$a" = --long ]; then long=1; else words+=("$a"); fi
done
ROOT=$PWD
SINTER=${SINTER:-$BUILD/sinter}
if [ -z "${SN_CASES:-}" ]; then
    for d in shared ../shared ../../shared; do
        [ -d "$d/cases" ] && { SN_CASES=$(realpath "$d/cases"); break; }
    done
fi
export BUILD ROOT SINTER SN_CASES=${SN_CASES:-}
rm -rf "$BUILD/test-logs"
mkdir -p "$BUILD/test-logs"
list_tests | pick | xargs -r -d '\n' -n 1 -P 2 bash tools/run_tests.sh --one
read -r passed failed skipped < <(cat "$BUILD"/test-logs/*.count 2>/dev/null |
    awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
