#!/bin/bash
# OpenCL: all official cases and graphs, fused and unfused; the planner's tests and random graphs.
# limit: 14400
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
. "$(dirname "$0")/../lib/opencl.sh"
need_opencl
ok "the planner's tests" env SN_TARGET=opencl "$BUILD/tests/unit/t_fuse"
ok "random graphs" env SN_TARGET=opencl "$BUILD/tests/fuzz/fuzz_graph" --seed 0 --count 40 --cache "$T/kernels"
need_cases onnx.tar.xz onnx-cases.tsv graphs.tar.xz
unpack onnx.tar.xz
unpack graphs.tar.xz
{
    awk -F'\t' 'NR > 1 && $1 !~ /^light/ { print "onnx/" $1 }' "$SN_CASES/onnx-cases.tsv"
    (cd "$CASES" && find graphs -name model.onnx | sed 's|/model.onnx$||' | sort)
} >"$T/cases"
judge fused "$T/cases" --device opencl --limit 300
judge unfused "$T/cases" --device opencl --no-fuse --limit 300
finish
