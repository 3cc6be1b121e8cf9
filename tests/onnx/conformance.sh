#!/bin/bash
# The official ONNX backend cases. Those with strings, sequences or optional values as inputs or outputs are skipped by the command; what else fails
# is in known.txt. Fused here; tests/long runs the other modes.
# limit: 1500
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
need_cases onnx.tar.xz onnx-cases.tsv
unpack onnx.tar.xz
awk -F'\t' 'NR > 1 && $1 !~ /^light/ { print "onnx/" $1 }' "$SN_CASES/onnx-cases.tsv" >"$T/cases"
for mode in ${MODES:-fused}; do
    case $mode in
    fused) judge fused "$T/cases" ;;
    unfused) judge unfused "$T/cases" --no-fuse ;;
    interpreter) judge interpreter "$T/cases" --interpreter ;;
    ready) SN_READY=1 judge ready "$T/cases" --interpreter ;;
    esac
done
finish
