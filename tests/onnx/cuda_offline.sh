#!/bin/bash
# Kernels compiled for sm_90a without a card, from examples, rows of several lengths and the real models: all compile, none spills.
# limit: 300
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
. "$(dirname "$0")/../lib/offline.sh"
. "$(dirname "$0")/../lib/sizes.sh"
need_nvrtc
# Compiling leaves the device alone: a driver that notes that it was loaded is not.
mkdir -p "$T/driver"
printf '#include <stdio.h>\n__attribute__((constructor)) static void loaded(void) { FILE *f = fopen("%s/loaded", "w"); if (f) fclose(f); }\nint cuInit(unsigned flags) { return 100 + (int)flags; }\n' "$T" |
    cc -shared -fPIC -x c - -o "$T/driver/libcuda.so.1"
printf 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1; }\n' >"$T/k.cu"
LD_LIBRARY_PATH=$T/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$BUILD/sinter-nvrtc" $(sed -n 's/.*\(--lib=[^ ]*\).*/\1/p' <<<"$("$SINTER" explain examples/add_relu.onnxtxt -d n=5 --device cuda:sm_90a 2>&1)" | head -n 1) -arch=sm_90a -o "$T/k.cubin" "$T/k.cu"
ok "a compiled kernel" test -s "$T/k.cubin"
ok "compiling does not open the device" test ! -e "$T/loaded"
compile_offline examples/add_relu.onnxtxt -d n=100000
compile_offline examples/norm.onnxtxt -d batch=64
expect 0 'registers, .*; occupancy: [0-9]+ blocks of [0-9]+ threads, ([1-9][0-9]|100) %' "$SINTER" explain examples/norm.onnxtxt -d batch=64 --device cuda:sm_90a
compile_offline examples/attention.onnxtxt -d seq=128
for line in 'MatMul(x, w)' 'MatMul(a, b)' 'MatMul(x, v)'; do        # blocks of several sizes: constant and unknown lengths of the sums
    printf '<ir_version: 10, opset_import: ["" : 23]>\ng (float[m,512] x, float[512,n] w, float[m,k] a, float[k,n] b, float[512,24] v) => (float[m,p] y)\n{ t = %s\n y = Gelu(t) }\n' "$line" >"$T/product.onnxtxt"
    compile_offline "$T/product.onnxtxt" -d m=4096 -d n=4096 -d k=4096
done
printf '<ir_version: 10, opset_import: ["" : 23]>\ng (float[2,19,h,17] x, float[24,19,3,3] w) => (float[2,24,p,q] y)\n{ y = Conv<pads = [1,1,1,1]>(x, w) }\n' >"$T/conv.onnxtxt"
compile_offline "$T/conv.onnxtxt" -d h=400
printf '<ir_version: 10, opset_import: ["" : 20]>\ng (double[m,n] x) => (double[m,n] y) <int64 one = {1}>\n{ y = CumSum(x, one) }\n' >"$T/scan.onnxtxt"
compile_offline "$T/scan.onnxtxt" -d m=8 -d n=100000
printf '<ir_version: 10, opset_import: ["" : 23]>\ng (float[m,0] x) => (float[m] y) <int64[1] a = {1}>\n{ y = ReduceSum<keepdims = 0>(x, a) }\n' >"$T/none.onnxtxt"
compile_offline "$T/none.onnxtxt" -d m=64       # rows without elements
for line in '1024 Softmax<axis = -1>(x)' '32768 Softmax<axis = -1>(x)' '8192 Softmax<axis = -1>(x)' '8192 LogSoftmax<axis = -1>(x)' '5000 Softmax<axis = -1>(x)'; do
    n=${line%% *}
    printf '<ir_version: 10, opset_import: ["" : 23]>\ng (bfloat16[m,%d] x) => (bfloat16[m,%d] y)\n{\n    y = %s\n}\n' "$n" "$n" "${line#* }" >"$T/row.onnxtxt"
    compile_offline "$T/row.onnxtxt" -d m=64
done
for n in 17600 20000 26424 35504 40000 50000 52000 60000 74504 80000 90104; do        # a norm's long rows: one of each form (row_shape.c)
    printf '<ir_version: 10, opset_import: ["" : 23]>\ng (bfloat16[m,%d] x, bfloat16[%d] g, bfloat16[%d] b) => (bfloat16[m,%d] y) { y = LayerNormalization<axis = -1>(x, g, b) }\n' $n $n $n $n >"$T/row.onnxtxt"
    compile_offline "$T/row.onnxtxt" -d m=512
    expect 0 "rows of $n:" "$SINTER" explain "$T/row.onnxtxt" -d m=512 --source --device cuda:sm_90a
done
need_cases models
for m in "$SN_CASES"/models/*/; do
    model_sizes "${m%/}"
    compile_offline "$m/model.onnx" "${sizes[@]}"
done
finish
