#!/bin/bash
# A run of a small model under valgrind: no invalid access, nothing lost. Kernels for AVX2, which is what valgrind knows.
# limit: 300
. "$(dirname "$0")/lib/check.sh"
if ! command -v valgrind >/dev/null; then skip "valgrind is not installed"; finish; fi
if grep -q __asan_init "$SINTER"; then skip "the address sanitizer and valgrind exclude one another"; finish; fi
grep -qw avx2 /proc/cpuinfo && export SN_ISA=avx2 || export SN_ISA=plain
for model in examples/norm.onnxtxt examples/attention.onnxtxt examples/nonzero.onnxtxt; do
    "$SINTER" run "$model" >/dev/null 2>&1                       # compiles: the compiler need not run under valgrind
    for flag in "" --no-fuse; do
        ok "$model $flag" valgrind -q --leak-check=full --error-exitcode=9 "$SINTER" run "$model" --threads 2 $flag
    done
done
finish
