# products.sh: contractions on GPUs. Source it after check.sh, where `equal MODEL FLAG...` compares a device with the interpreter.
#
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
