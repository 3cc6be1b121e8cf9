#!/bin/bash
# Kernels compiled for sm_90a without a card, from examples and rows of several lengths: all compile, none spills. tests/long/cuda_offline.sh: all test models.
# limit: 300
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
. "$(dirname "$0")/../lib/offline.sh"
need_nvrtc
compile_offline examples/add_relu.onnxtxt -d n=100000
compile_offline examples/norm.onnxtxt -d batch=64
compile_offline examples/attention.onnxtxt -d seq=128
printf '<ir_version: 10, opset_import: ["" : 23]>\ng (float[m,0] x) => (float[m] y) <int64[1] a = {1}>\n{ y = ReduceSum<keepdims = 0>(x, a) }\n' >"$T/none.onnxtxt"
compile_offline "$T/none.onnxtxt" -d m=64       # rows without elements
for line in '1024 Softmax<axis = -1>(x)' '32768 Softmax<axis = -1>(x)' '8192 Softmax<axis = -1>(x)' '8192 LogSoftmax<axis = -1>(x)' '5000 Softmax<axis = -1>(x)'; do
    n=${line%% *}
    printf '<ir_version: 10, opset_import: ["" : 23]>\ng (bfloat16[m,%d] x) => (bfloat16[m,%d] y)\n{\n    y = %s\n}\n' "$n" "$n" "${line#* }" >"$T/row.onnxtxt"
    compile_offline "$T/row.onnxtxt" -d m=64
done
finish
