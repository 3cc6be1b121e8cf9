#!/bin/bash
# OpenCL with sub-groups, on the runtime for processors that Intel offers on PyPI: folds by registers, and the same by local memory, against the interpreter.
# limit: 900
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
V=$BUILD/intel-opencl
if [ ! -f "$V/ready" ]; then
    rm -rf "$V"
    python3 -m venv "$V" >"$T/pip.log" 2>&1 && timeout 300 "$V/bin/python" -m pip install -q --disable-pip-version-check --no-deps intel-opencl-rt intel-cmplr-lib-rt tbb tcmlib >>"$T/pip.log" 2>&1 ||
        { skip "Intel's OpenCL runtime does not install here"; finish; }
    touch "$V/ready"
fi
mkdir -p "$T/vendors"
echo "$V/lib/libintelocl.so" >"$T/vendors/intel.icd"
export OCL_ICD_VENDORS=$T/vendors LD_LIBRARY_PATH=$V/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SN_WAIT=1
said=$("$SINTER" run examples/add_relu.onnxtxt -d n=5 --device opencl 2>&1) || { skip "Intel's OpenCL runtime does not run here: ${said:0:200}"; finish; }
expect 0 ', OpenCL, sub-groups, driver ' "$SINTER" explain examples/norm.onnxtxt -d batch=7 --device opencl
printf '<ir_version: 10, opset_import: ["" : 13]>\ng (float[n] x, float[n,5] c, int64[n] i, double[n] d) => (float y, float[5] s, int64 p, int64 q, double e)\n{ y = ReduceSum<keepdims = 0>(x)\n s = ReduceMax<axes = [0], keepdims = 0>(c)\n p = ArgMax<axis = 0, keepdims = 0>(x)\n q = ReduceMin<keepdims = 0>(i)\n e = ReduceProd<keepdims = 0>(d) }\n' >"$T/parts.onnxtxt"
printf '<ir_version: 10, opset_import: ["" : 18]>\ng (float[m,n] x) => (float[m] y, float[m] z)\n{ a = Constant<value_ints = [1]>()  l = Relu(x)  t = Reciprocal(l)  y = ReduceMax<keepdims = 0>(t, a)  u = Log(x)  z = ReduceMin<keepdims = 0>(u, a) }\n' >"$T/special.onnxtxt"
for isa in native plain; do
    export SN_ISA=$isa
    equal() { expect 0 'equal to the reference interpreter' "$SINTER" run "$@" --check --device opencl; }
    equal examples/norm.onnxtxt -d batch=7
    equal examples/attention.onnxtxt -d seq=33
    equal examples/matmul.onnxtxt -d batch=9
    for n in 33 700 70003; do equal "$T/parts.onnxtxt" -d n=$n; done
    for n in 24 129 5000; do equal "$T/special.onnxtxt" -d m=3 -d n=$n; done       # infinities and NaN
done
unset SN_ISA
if [ -z "${SN_CASES:-}" ]; then skip "SN_CASES is not set: no official cases"; finish; fi
need_cases onnx.tar.xz onnx-cases.tsv
unpack onnx.tar.xz
for case in argmax_default_axis_random cumsum_1d_reverse_exclusive layer_normalization_4d_axis1 logsoftmax_axis_0 reduce_l2_keep_dims_random reduce_log_sum_exp_default_axes_keepdims_random \
    reduce_prod_default_axes_keepdims_random sce_mean softmax_large_number top_k_smallest; do
    echo "onnx/node/test_$case"
done >"$T/cases"
judge opencl "$T/cases" --device opencl
finish
