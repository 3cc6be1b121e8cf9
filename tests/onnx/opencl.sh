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
printf '<ir_version: 10, opset_import: ["" : 20]>\ng (float[m,n] x) => (float[m,n] y, float[m,n] e) <int64 one = {1}>\n{ e = Exp(x)\n c = CumSum(e, one)\n d = Div(e, c)\n y = Mul(d, x) }\n' >"$T/shares.onnxtxt"
for n in 33 9001; do expect 0 'equal to the reference interpreter' "$SINTER" run "$T/shares.onnxtxt" -d m=3 -d n=$n --check --device opencl; done
printf '<ir_version: 10, opset_import: ["" : 13, "sinter" : 1]>\ng (float[m,n,5] x, float[m,n,5] g) => (float[m,n,5] y, float[m,n] z)\n{ f = Sigmoid(g)\n y = sinter.scan<kind = "sum", axis = 1>(x, f)\n s = ReduceMax<axes = [2], keepdims = 0>(f)\n z = sinter.scan<kind = "sum", axis = 1, reverse = 1>(s, s) }\n' >"$T/recurrence.onnxtxt"
for n in 33 2001; do expect 0 'equal to the reference interpreter' "$SINTER" run "$T/recurrence.onnxtxt" -d m=2 -d n=$n --check --device opencl; done
expect 0 'equal to the reference interpreter' "$SINTER" run "$T/packs.onnxtxt" -d m=2051 -d n=2052 --check --device opencl        # several packs for a thread, rows left over
expect 0 'equal to the reference interpreter' "$SINTER" run examples/norm.onnxtxt -d batch=7 --check --device opencl
expect 0 'equal to the reference interpreter' "$SINTER" run examples/attention.onnxtxt -d seq=33 --check --device opencl
expect 0 'equal to the reference interpreter' "$SINTER" run examples/matmul.onnxtxt -d batch=9 --check --device opencl:0
SN_RECORDS=$T/tuned.sqlite json 'j["trials"] >= 3' "$SINTER" tune "$T/packs.onnxtxt" -d m=64 -d n=300 --device opencl --budget 8s --json
SN_RECORDS=$T/tuned.sqlite expect 0 'equal to the reference interpreter' "$SINTER" run "$T/packs.onnxtxt" -d m=64 -d n=300 --check --device opencl
expect 0 'y: i64\[1,3\] = \[-2, -5, -6\]' "$SINTER" run examples/nonzero.onnxtxt -d n=8 --device opencl
. "$(dirname "$0")/../lib/products.sh"

# a library that stands before the machine's own and fails when it is told to: what is to be said, and soon
real=$(ldconfig -p 2>/dev/null | sed -n 's/.*libOpenCL\.so\.1 .*=> //p' | head -n 1)
if [ -n "$real" ] && cc -D_GNU_SOURCE -std=gnu11 -O1 -w -shared -fPIC -Isrc -o "$T/libOpenCL.so.1" tests/gpu/fake_opencl.c -ldl; then
    behind() { local told=$1; shift; env FAKE_OPENCL="$told" REAL_OPENCL="$real" LD_LIBRARY_PATH="$T${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" SN_CACHE="$T/behind" "$@"; }
    wrong() { local told=$1; shift; refuse "$1" behind "$told" "$SINTER" run examples/norm.onnxtxt -d batch=7 --device opencl; }
    # the limit stops the compiler, and what runs on the processor has nothing to do with all that
    SN_COMPILE_SECONDS=3 wrong compile=hang 'sinter-opencl has not ended after 3 s'
    wrong compile=crash 'sinter-opencl.*status 134'
    wrong clBuildProgram=-11 'the program does not build'
    wrong clGetPlatformIDs=-1001 'there is no platform'
    wrong clCreateCommandQueue=-6 'no queue: out of host memory'
    wrong clEnqueueNDRangeKernel=-5 'launching a kernel: out of resources \(-5\)$'
    wrong clEnqueueNDRangeKernel=-2 'launching a kernel: device not available \(-2\); the device is lost to this process'
    wrong clFinish=-5 'running kernels: out of resources \(-5\); the device is lost to this process'
    expect 0 '^y: ' behind clFinish=-5,compile=hang "$SINTER" run examples/norm.onnxtxt -d batch=7
    expect 0 'equal to the reference interpreter' behind none=0 "$SINTER" run examples/norm.onnxtxt -d batch=7 --check --device opencl
    # folds by sub-groups, and without; in one thread of PoCL, which 3.1 with more was seen to compute these wrongly now and then: sub-groups are none of its own
    sub() { expect 0 "$1" behind subgroups=1 SN_ISA="$2" "$SINTER" explain examples/norm.onnxtxt -d batch=7 --device opencl; }
    sub '^[^,]*, OpenCL, sub-groups, driver ' native
    sub '-cl-std=CL1.2' plain
    for isa in native plain; do
        expect 0 "equal to the reference interpreter" behind subgroups=1 POCL_MAX_PTHREAD_COUNT=1 SN_ISA=$isa "$SINTER" run examples/norm.onnxtxt -d batch=9 --check --device opencl
        expect 0 "equal to the reference interpreter" behind subgroups=1 POCL_MAX_PTHREAD_COUNT=1 SN_ISA=$isa "$SINTER" run "$T/parts.onnxtxt" -d n=70003 --check --device opencl
    done
else skip "no C compiler or no loader for the library that fails"; fi
need_cases onnx.tar.xz onnx-cases.tsv
unpack onnx.tar.xz
for case in add_bcast argmax_default_axis_random attention_4d_with_qk_matmul_softcap averagepool_2d_pads cast_FLOAT_to_FLOAT8E4M3FN conv_with_strides_padding \
    cumsum_1d_reverse_exclusive gather_elements_1 gelu_tanh_1 layer_normalization_4d_axis1 logsoftmax_axis_0 lstm_defaults pow_types_int64_float32 quantizelinear_uint4 \
    reduce_l2_keep_dims_random scatter_elements_with_reduction_mul top_k_smallest; do
    echo "onnx/node/test_$case"
done >"$T/cases"
judge opencl "$T/cases" --device opencl
finish
