#!/bin/bash
# Graphs that were made to test another optimiser, with golden results: fusions that must be right, and pairs that must not fuse.
# limit: 900
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
need_cases graphs.tar.xz
unpack graphs.tar.xz
(cd "$CASES" && find graphs -name model.onnx | sed 's|/model.onnx$||' | sort) >"$T/cases"
for mode in ${MODES:-fused}; do
    case $mode in
    fused) judge fused "$T/cases" ;;
    unfused) judge unfused "$T/cases" --no-fuse ;;
    interpreter) judge interpreter "$T/cases" --interpreter ;;
    esac
done
grep -P '^graphs/.*\twithout --allow wide' tests/onnx/known.txt | cut -f1 >"$T/wide"      # golden values that leave roundings out
[ -s "$T/wide" ] && KNOWN=/dev/null judge wide "$T/wide" --allow wide
finish
