#!/bin/bash
# limit: 600
# CUDA without a card: a driver made for tests (tests/gpu) runs the kernels' texts on this machine and fails on demand. Right values; and a clear message, and
# a process that ends by itself, for each way that a driver and a device go wrong.
. "$(dirname "$0")/../lib/check.sh"
command -v "${CXX:-g++}" >/dev/null || { skip "no C++ compiler for the driver of tests"; finish; }
cc -D_GNU_SOURCE -std=gnu11 -O1 -w -shared -fPIC -o "$T/libcuda.so.1" tests/gpu/fake_cuda.c -ldl || { bad "fake_cuda.c"; finish; }
export LD_LIBRARY_PATH=$T${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SN_KERNEL_COMPILER=$PWD/tests/gpu/_fake_nvrtc.sh SN_CACHE=$T/kernels
equal() { expect 0 'equal to the reference interpreter' "$SINTER" run "$@" --check --device cuda; }
equal examples/add_relu.onnxtxt -d n=7001
equal examples/norm.onnxtxt -d batch=7
FAKE_SILENT=1 SN_CACHE=$T/silent equal examples/norm.onnxtxt -d batch=5       # the compiler said nothing about registers: the driver does
expect 0 '40 registers, 0 B shared, 0 B stack, 0 B spilled' env FAKE_SILENT=1 SN_CACHE="$T/silent" "$SINTER" explain examples/norm.onnxtxt -d batch=5 --device cuda
equal examples/attention.onnxtxt -d seq=9
equal examples/matmul.onnxtxt -d batch=3

# elementwise, several packs of 16 bytes for a thread: rows of which one is over, a row that ends inside a pack, one axis
cat >"$T/packs.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 20]>
g (bfloat16[m,n] x, bfloat16[n] b, bfloat16[m,n] r) => (bfloat16[m,n] y)
{ t = Add(x, b)
  u = Gelu<approximate = "tanh">(t)
  y = Add(u, r) }
END
equal "$T/packs.onnxtxt" -d m=513 -d n=4112
equal "$T/packs.onnxtxt" -d m=511 -d n=4107
# rows that are read several times, as heads that share keys: where a row begins follows from a quotient
cat >"$T/repeat.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 20]>
g (float[1024,1,516] x) => (float[4096,516] y) <int64[3] wide = {1024, 4, 516}, int64[2] flat = {4096, 516}, float half = {0.5}>
{ e = Expand(x, wide)
  r = Reshape(e, flat)
  y = Mul(r, half) }
END
equal "$T/repeat.onnxtxt"
equal examples/add_relu.onnxtxt -d n=1100003

. "$(dirname "$0")/../lib/products.sh"

# running folds in one pass: rows of several parts, more parts than one span holds, backwards and without the element itself, across memory
cat >"$T/look.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 20]>
g (float[m,n] x, double[n,2] c, int64[n] i) => (float[m,n] y, double[n,2] w, int64[n] j) <int64 zero = {0}, int64 one = {1}>
{ t = Abs(x)  y = CumSum<reverse = 1>(t, one)  w = CumSum<exclusive = 1>(c, zero)  j = CumSum(i, zero) }
END
equal "$T/look.onnxtxt" -d m=3 -d n=20003
# what is before a running fold is needed behind it as well: serial, by a team, in parts
printf '<ir_version: 10, opset_import: ["" : 20]>\ng (float[m,n] x) => (float[m,n] y, float[m,n] e) <int64 one = {1}>\n{ e = Exp(x)\n c = CumSum(e, one)\n d = Div(e, c)\n y = Mul(d, x) }\n' >"$T/shares.onnxtxt"
for n in 33 9001 200001; do equal "$T/shares.onnxtxt" -d m=3 -d n=$n; done
printf '<ir_version: 10, opset_import: ["" : 20]>\ng (float[n] x) => (float[n] y) <int64 zero = {0}>\n{ t = Abs(x)\n y = CumSum(t, zero) }\n' >"$T/spans.onnxtxt"
equal "$T/spans.onnxtxt" -d n=1060003

# the few largest of rows and the few smallest of columns, equal elements among them: folds in kernels; their values are the function's
cat >"$T/topk.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 20]>
g (float[m,300] x, float16[40,m] h, int32[7,m] i) => (float[m,k] y, int64[m,k] p, float16[3,m] z, int64[3,m] q, int32[2,m] u) <int64[1] k = {5}, int64[1] l = {3}, int64[1] n = {2}>
{ r = Round(x)  y, p = TopK<axis = -1>(r, k)  z, q = TopK<axis = 0, largest = 0>(h, l)  u, v = TopK<axis = 0>(i, n) }
END
expect 0 'rows .*TopK' "$SINTER" explain "$T/topk.onnxtxt" -d m=33 --device cuda
mkdir -p "$T/few" "$T/sorted"
expect 0 '' "$SINTER" run "$T/topk.onnxtxt" -d m=33 --device cuda -o "$T/few"
expect 0 '' "$SINTER" run "$T/topk.onnxtxt" -d m=33 --interpreter -o "$T/sorted"
for f in "$T"/sorted/*.npy; do cmp "$f" "$T/few/${f##*/}" && good || bad "topk: ${f##*/} differs"; done

# many small tensors in one launch: a step of an optimiser, sizes from one to more than a turn of a group, and one without elements; some need the largest element
# of one of them and are launched after its kernel
{
    ins="" outs="" lines=""
    for n in 33,5 1 7 1000 0 2 4096 2051; do
        i=${n/,/_}
        ins+=", float[$n] p$i, float[$n] g$i, float[$n] m$i" outs+=", float q$i, float k$i, float e$i"
        lines+="s$i = Mul(b, m$i)  t$i = Mul(c, g$i)  k$i = Add(s$i, t$i)  d$i = Sqrt(k$i)  q$i = Sub(p$i, d$i)
"
        case $n in
        33,5) lines+="f = ReduceMax<keepdims = 0>(k$i)  e$i = Sub(g$i, f)
" ;;
        7 | 1000) lines+="e$i = Mul(q$i, f)
" ;;
        *) lines+="e$i = Div(q$i, g$i)
" ;;
        esac
    done
    printf '<ir_version: 10, opset_import: ["" : 20]>\ng (%s) => (%s) <float b = {0.9}, float c = {0.1}>\n{ %s}\n' "${ins:2}" "${outs:2}" "$lines"
} >"$T/many.onnxtxt"
expect 0 'same launch' "$SINTER" explain "$T/many.onnxtxt" --device cuda
mkdir -p "$T/joint" "$T/apart" "$T/right"
expect 0 '' "$SINTER" run "$T/many.onnxtxt" --device cuda -o "$T/joint"
SN_OFF=horizontal expect 0 '' "$SINTER" run "$T/many.onnxtxt" --device cuda -o "$T/apart"
expect 0 '' "$SINTER" run "$T/many.onnxtxt" --interpreter -o "$T/right"
for f in "$T"/right/*.npy; do
    cmp "$f" "$T/joint/${f##*/}" && cmp "$f" "$T/apart/${f##*/}" && good || bad "many: ${f##*/} differs"
done
equal "$T/many.onnxtxt"

# long folds, in parts that groups share: of all, of columns, the place of the largest
printf '<ir_version: 10, opset_import: ["" : 13]>\ng (float[n] x, float[n,5] c) => (float y, float[5] s, int64 p)\n{ y = ReduceSum<keepdims = 0>(x)\n s = ReduceMax<axes = [0], keepdims = 0>(c)\n p = ArgMax<axis = 0, keepdims = 0>(x) }\n' >"$T/parts.onnxtxt"
equal "$T/parts.onnxtxt" -d n=70003

# the public functions: buffers on the device, in place
expect 0 'PASSED' "$BUILD/tests/unit/t_buffers"

# rows: one team for several rows, a row that ends inside a vector, one for a block, one that fills the registers, and values that must spread
row() { # LENGTH LINE
    printf '<ir_version: 10, opset_import: ["" : 23]>\ng (%s[m,%d] x) => (%s[m,%d] y)\n{\n    %s\n}\n' "${3:-bfloat16}" "$1" "${3:-bfloat16}" "$1" "$2" >"$T/row_$1.onnxtxt"
    equal "$T/row_$1.onnxtxt" -d m=5
}
row 40 'y = Softmax<axis = -1>(x)'
row 1000 'y = Softmax<axis = -1>(x)'
row 4096 'y = LogSoftmax<axis = -1>(x)'
row 20000 'y = Softmax<axis = -1>(x)'
row 999 'y = Softmax<axis = -1>(x)' float
# rows through a ring in shared memory: more rows than a ring is long, by teams and by blocks; piece by piece; by a cluster of blocks; with what all rows read
# alike; what only the last loop reads; a row that is not a whole number of 16 bytes; a number of rows that leaves teams without one
case_of() { printf '<ir_version: 10, opset_import: ["" : 23]>\ng (%s) => (%s)\n{\n    %s\n}\n' "$2" "$3" "$4" >"$T/$1.onnxtxt"; }
ring() { # NAME M INPUTS OUTPUTS LINES
    case_of "$1" "$3" "$4" "$5"
    equal "$T/$1.onnxtxt" -d m="$2"
}
ring teams 301 'bfloat16[m,1024] x' 'bfloat16[m,1024] y' 'y = Softmax<axis = -1>(x)'
ring blocks 50 'bfloat16[m,7816] x' 'bfloat16[m,7816] y' 'y = Softmax<axis = -1>(x)'
ring pieces 7 'float16[m,32768] x' 'float16[m,32768] y, float16[m] z' 'y = LogSoftmax<axis = -1>(x)
    one = Constant<value_ints = [1]>()
    z = ReduceSum<keepdims = 0>(y, one)'
ring cluster 5 'float[m,40000] x, float[40000] g, float[40000] b' 'float[m,40000] y' 'y = LayerNormalization<axis = -1>(x, g, b)'
ring place 5 'float[m,60000] x' 'int64[m] y' 'y = ArgMax<axis = 1, keepdims = 0, select_last_index = 1>(x)'
ring late 33 'float16[m,2048] x, float[2048] g, int8[m,2048] q, float[m,2048] r' 'float[m,2048] y' 'f = Cast<to = 1>(x)
    c = Cast<to = 1>(q)
    h = Add(f, c)
    s = Softmax<axis = -1>(h)
    t = Mul(s, g)
    y = Add(t, r)'
ring ragged 9 'bfloat16[m,4001] x' 'bfloat16[m,4001] y' 'y = Softmax<axis = -1>(x)'
ring doubles 21 'double[m,1536] x' 'double[m] y' 'one = Constant<value_ints = [1]>()
    y = ReduceMean<keepdims = 0>(x, one)'
ring labels 40 'bfloat16[m,1024] x, int64[m] t' 'float[m] y' 'w = Cast<to = 1>(x)
    y = SoftmaxCrossEntropyLoss<reduction = "none">(w, t)'
# rows that come through a ring and begin inside a line of memory, with others of other widths; in pieces, and in blocks whose last one has less
for s in 'ring=1 threads=128' 'ring=3 threads=64 cluster=4' 'ring=1 threads=128 cluster=2 again=2'; do
    SN_SCHED=$s ring late 33 'float16[m,2064] x, float[2064] g, int8[m,2064] q, float[m,2064] r' 'float[m,2064] y' 'f = Cast<to = 1>(x)
    c = Cast<to = 1>(q)
    h = Add(f, c)
    s = Softmax<axis = -1>(h)
    t = Mul(s, g)
    y = Add(t, r)'
    SN_SCHED=$s ring whole 9 'bfloat16[m,4008] x' 'bfloat16[m,4008] y' 'y = Softmax<axis = -1>(x)'
    SN_SCHED=$s ring labels 40 'bfloat16[m,1032] x, int64[m] t' 'float[m] y' 'w = Cast<to = 1>(x)
    y = SoftmaxCrossEntropyLoss<reduction = "none">(w, t)'
done
# two reductions at once: rows without a finite element, with some infinite ones, with NaN, with sums that are too large, whose elements are all alike
for s in 'pairs=1 threads=64 ring=1000' 'ring=1 threads=128 cluster=2' 'ring=2 threads=64 cluster=4 again=2' 'pairs=2 threads=64 ring=1000'; do
    export SN_SCHED=$s
    ring infinite 5 'float[m,2048] x' 'float[m,2048] y' 's = Constant<value_floats = [1.0, 0.0, -1.0, 0.0, 1e-30]>()  axis = Constant<value_ints = [1]>()  c = Unsqueeze(s, axis)
    l = Log(c)  t = Add(x, l)  y = Softmax<axis = -1>(t)'
    ring some 5 'float[m,2048] x' 'float[m,2048] y' 'r = Relu(x)  t = Log(r)  y = Softmax<axis = -1>(t)'
    ring above 5 'float[m,2048] x' 'float[m] y' 'axis = Constant<value_ints = [1]>()  r = Relu(x)  t = Reciprocal(r)  y = ReduceLogSumExp<keepdims = 0>(t, axis)'
    ring large 5 'float[m,2048] x' 'float[m,2048] y, float[m,1] mean, float[m,1] inv' 's = Constant<value_floats = [1.0, 0.0, 1e25, 3e38, 1e-20]>()  axis = Constant<value_ints = [1]>()  c = Unsqueeze(s, axis)
    two = Constant<value_float = 2.0>()  one = Constant<value_floats = [1.0]>()  u = Add(x, two)  t = Mul(u, c)  y, mean, inv = LayerNormalization<axis = -1>(t, one)'
    unset SN_SCHED
done
# schedules that are asked for: threads of a row, a ring in so many pieces, what all rows read alike fetched once in part, computed again, hints to the caches
for s in 'threads=64 ring=1000' 'threads=256 ring=4 hint=4' 'threads=512 ring=2 again=2 once=2' 'threads=256 ring=2 once=3 cluster=2' 'hint=3' 'blocks=1' 'threads=128 ring=1 cluster=4' 'pairs=1 threads=256 ring=1000' 'pairs=2 ring=1'; do
    SN_SCHED=$s ring asked 7 'bfloat16[m,8192] x, bfloat16[8192] g, bfloat16[8192] b' 'bfloat16[m,8192] y' 'y = LayerNormalization<axis = -1>(x, g, b)'
done
for s in 'packs=1 threads=256 hint=2' 'packs=2 hint=4'; do SN_SCHED=$s equal "$T/packs.onnxtxt" -d m=513 -d n=4112; done
refuse 'no list of knobs' env SN_SCHED=rows "$SINTER" run "$T/packs.onnxtxt" -d m=5 -d n=40 --device cuda
# a function may be rough where its results are rounded to 16 bits, and nowhere else
case_of narrow 'bfloat16[m,64] x' 'bfloat16[m,64] y' 'y = Softmax<axis = -1>(x)'
expect 0 'rough_exp_f32\(v' "$SINTER" explain "$T/narrow.onnxtxt" -d m=3 --device cuda --source
case_of wide 'float[m,64] x' 'float[m,64] y, bfloat16[m,64] z' 's = Softmax<axis = -1>(x)
    y = Identity(s)
    z = Cast<to = 16>(s)'
expect 0 ' exp_f32\(v' "$SINTER" explain "$T/wide.onnxtxt" -d m=3 --device cuda --source
"$SINTER" explain "$T/wide.onnxtxt" -d m=3 --device cuda --source | grep -q 'rough_exp_f32(v' && bad "rough in float32" || good
case_of apart 'float[m,64] x' 'bfloat16[m,64] y' 'one = Constant<value_float = 1.0>()
    e = Exp(x)
    d = Sub(e, one)
    y = Cast<to = 16>(d)'
"$SINTER" explain "$T/apart.onnxtxt" -d m=3 --device cuda --source | grep -q 'rough_exp_f32(v' && bad "rough before a difference" || good
# the index and the element of a label are had once for each row, in the kernel of the rows, also where both a difference and a comparison need them
case_of gradient 'bfloat16[m,64] x, int64[m] y' 'bfloat16[m,64] dx, float[m] loss' 'axis = Constant<value_ints = [1]>()
    depth = Constant<value_int = 64>()
    values = Constant<value_floats = [0.0, 1.0]>()
    w = Cast<to = 1>(x)
    lse = ReduceLogSumExp<keepdims = 1>(w, axis)
    y1 = Unsqueeze(y, axis)
    at16 = GatherElements<axis = 1>(x, y1)
    at = Cast<to = 1>(at16)
    d = Sub(lse, at)
    loss = Squeeze(d, axis)
    s = Sub(w, lse)
    p = Exp(s)
    h = OneHot<axis = 1>(y, depth, values)
    q = Sub(p, h)
    dx = Cast<to = 16>(q)'
equal "$T/gradient.onnxtxt" -d m=37
expect 0 'in all: 1 launches' "$SINTER" explain "$T/gradient.onnxtxt" -d m=37 --device cuda
cat >"$T/pad.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
g (float[8,40,8] x) => (float[8,41] y) <int64[6] p = {0,0,0,0,1,0}, float one = {1.0}, int64[1] a = {2}>
{ q = Pad(x, p, one)
  y = ReduceMax<keepdims = 0>(q, a) }
END
cat >"$T/wrap.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
g (int32[n] x) => (int32[n] y) <int32 k = {65535}>
{ s = Add(x, k)
  p = Mul(s, s)
  y = Abs(p) }
END
equal "$T/wrap.onnxtxt" -d n=100        # a product that wraps is negative, whatever the compiler takes for granted
equal "$T/pad.onnxtxt"                  # a row that is all padding has the padding's value

# where memory waits for what is computed, the compiler is told to move little about: those kernels are a unit of their own
case_of powers 'bfloat16[m,1024] x, int64[m] label, bfloat16[m,1024] z' 'bfloat16[m,1024] dx, bfloat16[m,1024] y' 'axis = Constant<value_ints = [1]>()  depth = Constant<value_int = 1024>()
    values = Constant<value_floats = [0.0, 1.0]>()  w = Cast<to = 1>(x)  lse = ReduceLogSumExp<keepdims = 1>(w, axis)  s = Sub(w, lse)  p = Exp(s)  h = OneHot<axis = 1>(label, depth, values)
    q = Sub(p, h)  dx = Cast<to = 16>(q)  y = Softmax<axis = -1>(z)'
printf '#!/bin/bash\necho "$@" >>"%s"\nexec "%s" "$@"\n' "$T/commands" "$SN_KERNEL_COMPILER" >"$T/recorder"
chmod +x "$T/recorder"
SN_JOBS=1 SN_KERNEL_COMPILER=$T/recorder expect 0 'equal to the reference interpreter' "$SINTER" run "$T/powers.onnxtxt" -d m=5 --check --device cuda
ok 'two units, one of them quick' test "$(grep -c -- ' -o ' "$T/commands") $(grep -c -- '--ptxas-options=-O1 -o ' "$T/commands")" = '2 1'

# tune: the fastest of the candidates that are right is recorded, and used by the next run; an interrupt loses nothing that was found
tune() { env SN_RECORDS="$T/tuned.sqlite" FAKE_CUDA=best=64 "$@"; }
case_of tuned 'float[m,n] x' 'float[m,n] y' 'e = Abs(x)  y = Sqrt(e)'
timeout -s INT 100 env SN_RECORDS="$T/tuned.sqlite" FAKE_CUDA=best=64 "$SINTER" tune "$T/tuned.onnxtxt" -d m=200 -d n=300 --device cuda --budget 90s >"$T/tuning" 2>&1 &
tuning=$!
for _ in $(seq 900); do grep -qs 'threads=64' "$T/tuning" && break; sleep .1; done
sleep .5
kill -INT "$(pgrep -P $tuning | head -n 1)" 2>/dev/null
wait $tuning
expect 0 '^[1-9][0-9]* records written' tune "$SINTER" tune --export "$T/tuned.tsv"
ok 'the record has the device and the compiler' grep -qP 'fake GPU, 2 multiprocessors, sm_90a\tdriver for CUDA 13.0, fake NVRTC 1.0\tthreads=64\t' "$T/tuned.tsv"
expect 0 '__launch_bounds__\(64' tune "$SINTER" explain "$T/tuned.onnxtxt" -d m=200 -d n=300 --device cuda --source
expect 0 'equal to the reference interpreter' tune "$SINTER" run "$T/tuned.onnxtxt" -d m=200 -d n=300 --check --device cuda
"$SINTER" explain "$T/tuned.onnxtxt" -d m=200 -d n=300 --device cuda --source | grep -q '__launch_bounds__(64' && bad 'tuned without records' || good
case_of tuned_rows 'bfloat16[m,1024] x' 'bfloat16[m,1024] y' 'y = Softmax<axis = -1>(x)'
FAKE_CUDA=best=64 SN_RECORDS=$T/rows.sqlite json 'j["trials"] >= 2' "$SINTER" tune "$T/tuned_rows.onnxtxt" -d m=9 --device cuda --budget 15s --json
refuse 'nothing can be measured' env SN_RECORDS="$T/rows.sqlite" "$SINTER" tune "$T/tuned_rows.onnxtxt" -d m=9 --device cuda:sm_90a --budget 5s

wrong() { local told=$1; shift; refuse "$1" env FAKE_CUDA="$told" "$SINTER" run examples/add_relu.onnxtxt -d n=7001 --device cuda; }
wrong cuInit=100 'no NVIDIA GPU on this machine'
wrong version=11000 'driver is too old: it serves CUDA 11\.0, 12\.0 or newer'
wrong memory=1000 '84096 bytes are wanted, 1000 of 1000 are free'
wrong cuMemAlloc_v2=2 'memory cannot be allocated: CUDA_ERROR_OUT_OF_MEMORY'
ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" wrong trap=700 'a kernel failed: CUDA_ERROR_ILLEGAL_ADDRESS.*the device is lost to this process'       # and so is what was allocated there
wrong cuModuleLoadData=209 'a compiled kernel is refused'
refuse '/bin/false --version failed with status 1' env SN_KERNEL_COMPILER=/bin/false SN_CACHE="$T/none" "$SINTER" run examples/add_relu.onnxtxt -d n=7001 --device cuda
expect 0 '^y: ' env FAKE_CUDA=trap=700 "$SINTER" run examples/add_relu.onnxtxt -d n=7001
finish
