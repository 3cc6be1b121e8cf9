#!/bin/bash
# OpenCL: the examples, fused and unfused, against the interpreter; a sample of the official cases; wrong devices. tests/long/opencl.sh runs everything.
# limit: 600
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
. "$(dirname "$0")/../lib/opencl.sh"
equal() { expect 0 'equal to the reference interpreter' "$SINTER" run "$@" --check --device opencl; }
expect 2 "there is no target 'tpu'; wanted one of cpu, " "$SINTER" run examples/add_relu.onnxtxt --device tpu
expect 0 'y: f32\[5\]' "$SINTER" run examples/add_relu.onnxtxt -d n=5 --device null
need_opencl
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"     # drivers keep memory until the process ends
refuse 'device 999 is wanted, there ' "$SINTER" run examples/add_relu.onnxtxt --device opencl:999
refuse 'wanted the number of a device' "$SINTER" run examples/add_relu.onnxtxt --device opencl:first
expect 0 'equal to the reference interpreter' "$SINTER" run examples/add_relu.onnxtxt -d n=70001 --check --device opencl
expect 0 'equal to the reference interpreter' "$SINTER" run examples/add_relu.onnxtxt -d n=1100003 --check --device opencl
printf '<ir_version: 10, opset_import: ["" : 20]>\ng (float[m,n] x, float[n] b) => (float[m,n] y)\n{ t = Add(x, b)\n y = Sigmoid(t) }\n' >"$T/packs.onnxtxt"
printf '<ir_version: 10, opset_import: ["" : 13]>\ng (float[n] x, float[n,5] c) => (float y, float[5] s, int64 p)\n{ y = ReduceSum<keepdims = 0>(x)\n s = ReduceMax<axes = [0], keepdims = 0>(c)\n p = ArgMax<axis = 0, keepdims = 0>(x) }\n' >"$T/parts.onnxtxt"
expect 0 'equal to the reference interpreter' "$SINTER" run "$T/parts.onnxtxt" -d n=70003 --check --device opencl
printf '<ir_version: 10, opset_import: ["" : 20]>\ng (float[n] x, int32[n,3] c) => (float[n] y, int32[n,3] w) <int64 zero = {0}>\n{ t = Abs(x)\n y = CumSum<reverse = 1>(t, zero)\n w = CumSum<exclusive = 1>(c, zero) }\n' >"$T/scan.onnxtxt"
expect 0 'equal to the reference interpreter' "$SINTER" run "$T/scan.onnxtxt" -d n=70003 --check --device opencl
expect 0 'equal to the reference interpreter' "$SINTER" run "$T/packs.onnxtxt" -d m=2051 -d n=2052 --check --device opencl        # several packs for a thread, rows left over
expect 0 'equal to the reference interpreter' "$SINTER" run examples/norm.onnxtxt -d batch=7 --check --device opencl
expect 0 'equal to the reference interpreter' "$SINTER" run examples/attention.onnxtxt -d seq=33 --check --device opencl
expect 0 'equal to the reference interpreter' "$SINTER" run examples/matmul.onnxtxt -d batch=9 --check --device opencl:0
expect 0 'y: i64\[1,3\] = \[-2, -5, -6\]' "$SINTER" run examples/nonzero.onnxtxt -d n=8 --device opencl
# contractions by blocks in shared memory: ends that are no whole block, a sum in chunks, no steps at all, batches, 16-bit floats with work before and behind, images
# with padding and strides, groups of channels, two sums in one kernel, a sum that is no product, integers
product() { # NAME INPUTS OUTPUTS LINES FLAG...
    printf '<ir_version: 10, opset_import: ["" : 21]>\ng (%s) => (%s) <int64[1] two = {2}>\n{ %s }\n' "$2" "$3" "$4" >"$T/$1.onnxtxt"
    equal "$T/$1.onnxtxt" "${@:5}"
}
product long 'float[m,k] x, float[k,n] w' 'float[m,n] y' 'y = MatMul(x, w)' -d m=33 -d n=65 -d k=2061
equal "$T/long.onnxtxt" -d m=33 -d n=65 -d k=0
product batch 'float[b,2,m,21] x, float[b,2,21,n] w, float[n] c' 'float[b,2,m,n] y' 't = MatMul(x, w)  u = Add(t, c)  y = Sigmoid(u)' -d b=2 -d m=35 -d n=20
product narrow 'bfloat16[k,m] x, bfloat16[n,k] w, bfloat16[n] c' 'bfloat16[m,n] y' 't = Gemm<transA = 1, transB = 1>(x, w, c)  y = Relu(t)' -d m=37 -d n=66 -d k=45
product image 'float[2,19,h,17] x, float[24,19,3,3] w, float[24] b' 'float[2,24,p,q] y' 't = Conv<pads = [1,1,1,1], strides = [2,1]>(x, w, b)  y = Relu(t)' -d h=9
product groups 'float[1,32,h,9] x, float[40,16,3,3] w' 'float[1,40,p,q] y' 'y = Conv<group = 2>(x, w)' -d h=9
product gated 'float[m,24] x, float[24,n] a, float[24,n] c' 'float[m,n] y' 's = MatMul(x, a)  t = MatMul(x, c)  u = Sigmoid(s)  v = Mul(s, u)  y = Mul(v, t)' -d m=40 -d n=35
product apart 'float[m,1,24] x, float[1,n,24] w' 'float[m,n] y' 'd = Sub(x, w)  a = Abs(d)  y = ReduceSum<keepdims = 0>(a, two)' -d m=40 -d n=35
product whole 'uint8[m,30] x, int8[30,n] w' 'int32[m,n] y' 'y = MatMulInteger(x, w)' -d m=40 -d n=35
product double 'double[m,30] x, double[30,n] w' 'double[m,n] y' 'y = MatMul(x, w)' -d m=40 -d n=35
need_cases onnx.tar.xz onnx-cases.tsv
unpack onnx.tar.xz
for case in add_bcast argmax_default_axis_random attention_4d_with_qk_matmul_softcap averagepool_2d_pads cast_FLOAT_to_FLOAT8E4M3FN conv_with_strides_padding \
    cumsum_1d_reverse_exclusive gather_elements_1 gelu_tanh_1 layer_normalization_4d_axis1 logsoftmax_axis_0 lstm_defaults pow_types_int64_float32 quantizelinear_uint4 \
    reduce_l2_keep_dims_random scatter_elements_with_reduction_mul top_k_smallest; do
    echo "onnx/node/test_$case"
done >"$T/cases"
judge opencl "$T/cases" --device opencl
finish
