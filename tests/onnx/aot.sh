#!/bin/bash
# sinter compile: models as C files give, bit for bit, what a program gives; with gcc and clang, without a warning. Then objects, libraries and packages.
# Here a sample of the official cases; MODES=all (tests/long) takes all of them, the real models, the sanitizers, every instruction set, and an emulated Arm.
# limit: 900
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
export T CASES SINTER SN_WAIT=1
known=tests/onnx/aot_known.txt

# ---- files and flags: no test material is needed ----------------------------------------------------------------------------
norm=examples/norm.onnxtxt
plain=(-std=c11 -O1 -fwrapv -Wall -Wextra -pedantic -Werror)
refuse "compile needs -o FILE" "$SINTER" compile $norm
refuse "wanted a name that ends in .c, .o, .so or .sinter" "$SINTER" compile $norm -o "$T/x.txt"
refuse "there is no instruction set 'frob'" "$SINTER" compile $norm --isa frob -o "$T/x.c"
refuse "wanted file, bin or pointer" "$SINTER" compile $norm --weights frob -o "$T/x.c"
refuse "wanted DIM=LO..HI with LO at most HI" "$SINTER" compile $norm -d batch=8..2 -o "$T/x.c"
"$SINTER" run $norm -d batch=4 -i x=random:1 -i bias=random:2 -i gain=random:3 -o "$T/want" >/dev/null
# inputs as files, made by a model that gives back what it gets
cat >"$T/same.onnxtxt" <<'END'
<ir_version: 8, opset_import: ["" : 17]> g (float[batch,768] x, float[768] bias, float[768] gain) => (float[batch,768] a, float[768] b, float[768] c)
{ a = Identity(x) b = Identity(bias) c = Identity(gain) }
END
SN_ISA=plain "$SINTER" run $norm -d batch=4 -i x=random:1 -i bias=random:2 -i gain=random:3 -o "$T/plain" >/dev/null
"$SINTER" run "$T/same.onnxtxt" -d batch=4 -i x=random:1 -i bias=random:2 -i gain=random:3 -o "$T/in" >/dev/null
for weights in file bin pointer; do
    dir=$T/$weights
    mkdir -p "$dir/out"
    ok "compile --weights $weights" "$SINTER" compile $norm -d batch=1..8 --weights $weights --threads 3 -o "$dir/norm.c"
    cp "$dir/norm.c" "$dir/first.c"
    ok "compile again" "$SINTER" compile $norm -d batch=1..8 --weights $weights --threads 3 -o "$dir/norm.c"
    ok "the same bytes" cmp "$dir/norm.c" "$dir/first.c"
    for cc in gcc clang; do
        command -v $cc >/dev/null || { skip "no $cc"; continue; }
        ok "$cc, $weights" bash -c "cd '$dir' && $cc ${plain[*]} -DMODEL_MAIN norm.c -lm -o norm && ./norm -o out '$T/in/a.npy' '$T/in/b.npy' '$T/in/c.npy' && tail -c 12288 out/y.npy | cmp - <(tail -c 12288 '$T/plain/y.npy')"
    done
done
ok "a C file has the operators' names" grep -q "LayerNormalization 'y'" "$T/file/norm.c"
ok "--isa auto" "$SINTER" compile $norm -d batch=1..8 --isa auto -o "$T/auto.c"
ok "auto runs" bash -c "cd '$T' && mkdir -p autoout && gcc -std=c11 -O2 -DMODEL_MAIN auto.c -lm -o auto && ./auto -o autoout in/a.npy in/b.npy in/c.npy && tail -c 12288 autoout/y.npy | cmp - <(tail -c 12288 want/y.npy)"
ok "an object" "$SINTER" compile $norm -d batch=1..8 -o "$T/norm.o"
ok "a library" "$SINTER" compile $norm -d batch=1..8 -o "$T/norm.so"
cat >"$T/call.c" <<'END'
#include "norm.h"
#include <stdio.h>
static float x[4 * 768], bias[768], gain[768], y[4 * 768];
static _Alignas(64) unsigned char work[NORM_WORKSPACE + 64];
int main(void)
{
    norm_inputs in = { .x = x, .bias = bias, .gain = gain, .batch = 4 };
    norm_outputs out = { .y = y };
    for (int i = 0; i < 768; i++) { bias[i] = 1; gain[i] = 2; }
    int ok = norm_run(&in, &out, work), bad;
    in.batch = 9;
    bad = norm_run(&in, &out, work);
    printf("%d %d %g\n", ok, bad, (double)y[5]);
    return !(ok == NORM_OK && bad == NORM_SIZES && y[5] == 1);
}
END
ok "an object is linked" bash -c "cd '$T' && gcc -std=c11 -Wall -Wextra -Werror call.c norm.o -lm -o call && ./call"
ok "a library is linked" bash -c "cd '$T' && gcc -std=c11 call.c ./norm.so -lm -o callso && ./callso"

# ---- packages -----------------------------------------------------------------------------------------------------------------
ok "a package" "$SINTER" compile $norm -d batch=1..8 --threads 2 -o "$T/norm.sinter"
same=(-d batch=4 -i x=random:1 -i bias=random:2 -i gain=random:3)
ok "a package runs without a compiler" env SN_CC=/nonexistent PATH=/nonexistent "$SINTER" run "$T/norm.sinter" "${same[@]}" -o "$T/packed"
ok "and gives the same bits" cmp "$T/packed/y.npy" "$T/want/y.npy"
ok "threads: a package" "$SINTER" compile examples/matmul.onnxtxt -d batch=64 --threads 3 -o "$T/product.sinter"
ok "threads: runs" "$SINTER" run "$T/product.sinter" --threads 3 -o "$T/threads3"
ok "threads: one" "$SINTER" run "$T/product.sinter" --threads 1 -o "$T/threads1"
ok "threads: the program" "$SINTER" run examples/matmul.onnxtxt -d batch=64 -o "$T/threads0"
ok "threads: the same bits" cmp "$T/threads3/y.npy" "$T/threads0/y.npy"
ok "threads: the same bits with one" cmp "$T/threads1/y.npy" "$T/threads0/y.npy"
ok "a package with its weights beside it" "$SINTER" compile $norm -d batch=1..8 --weights bin -o "$T/beside.sinter"
ok "runs" "$SINTER" run "$T/beside.sinter" "${same[@]}" -o "$T/packed2"
ok "and gives the same bits" cmp "$T/packed2/y.npy" "$T/want/y.npy"
printf 'x' >>"$T/beside.bin"
refuse "are not those that the package was made with" "$SINTER" run "$T/beside.sinter" "${same[@]}"
refuse "'batch' is 9, and the package is for 1 to 8" "$SINTER" run "$T/norm.sinter" -d batch=9
refuse "need the model" "$SINTER" run "$T/norm.sinter" --check
ok "each flipped bit is refused" python3 - "$SINTER" "$T/norm.sinter" "$T/flipped.sinter" <<'END'
import random, subprocess, sys
sinter, path, bad = sys.argv[1:]
data = open(path, "rb").read()
random.seed(1)
for at in list(range(0, 64, 3)) + [random.randrange(len(data)) for _ in range(25)]:
    b = bytearray(data)
    b[at] ^= 1 << random.randrange(8)
    open(bad, "wb").write(b)
    p = subprocess.run([sinter, "run", bad, "-d", "batch=2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = p.stderr.decode()
    if p.returncode != 2 or not ("damaged" in said or "no package" in said or "format" in said): sys.exit("byte %d: status %d: %s" % (at, p.returncode, said))
# another version, machine and instruction set, with right checksums: the text of the plan is changed and the package made whole again
END
for change in 's/"sinter": "[0-9.]*"/"sinter": "9.9.9"/:made by sinter 9.9.9' 's/"machine": "[a-z0-9-]*"/"machine": "vax"/:is for vax' 's/"isa": "[a-z0-9]*"/"isa": "frob"/:is for frob'; do
    ok "repack ${change%%:made*}" python3 tests/lib/repack.py "$T/norm.sinter" "$T/other.sinter" "$(sed 's/\/:[^:]*$/\//' <<<"$change")"
    refuse "${change##*/:}" "$SINTER" run "$T/other.sinter" -d batch=2
done

# ---- official cases -------------------------------------------------------------------------------------------------------------
need_cases onnx.tar.xz onnx-cases.tsv
unpack onnx.tar.xz
take() { local p f s line; while read -r line; do [[ $line =~ ^[0-9]+\ [0-9]+\ [0-9]+$ ]] && read -r p f s <<<"$line" || echo "$line"; done; passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0})); }
compilers=gcc
command -v clang >/dev/null && compilers=gcc,clang
native=$(SN_ISA=native "$SINTER" explain $norm | grep -oE 'avx512bf16|avx512vnni|avx512|avx2|sse2|neon' | head -n 1)
awk -F'\t' 'NR > 1 && $1 !~ /^light/ { print "onnx/" $1 }' "$SN_CASES/onnx-cases.tsv" >"$T/all"
if [ "${MODES:-}" != all ]; then
    awk 'NR % 97 == 5' "$T/all" >"$T/list"
    printf 'onnx/node/%s\n' test_loop11 test_scan9_sum test_nonzero_example test_nonmaxsuppression_limit_output_size test_unique_sorted_with_axis_3d test_top_k test_compress_0 test_det_nd test_cast_FLOAT_to_INT4 test_dequantizelinear_int4 test_linear_attention_linear_expanded >>"$T/list"
    take < <(python3 tests/lib/aot.py "$T/list" $known --cc $compilers)
    printf 'onnx/node/%s\n' test_qlinearmatmul_2D_int8_float16 test_bitshift_left_uint64 test_cast_FLOAT_to_DOUBLE test_affine_grid_2d >"$T/vectors"
    take < <(python3 tests/lib/aot.py "$T/vectors" $known --cc $compilers --isa "${native:-plain}" --flags "-std=c11 -O1 -fwrapv -Wno-psabi")
    finish
fi
take < <(python3 tests/lib/aot.py "$T/all" $known --cc $compilers --flags "-std=c11 -O0 -fwrapv -Wall -Wextra -pedantic -Werror")
take < <(python3 tests/lib/aot.py "$T/all" $known --cc gcc --flags "-std=c11 -O1 -g -fwrapv -fsanitize=address,undefined -fno-sanitize-recover=all")
awk 'NR % 5 == 1' "$T/all" >"$T/fifth"
take < <(python3 tests/lib/aot.py "$T/fifth" $known --cc $compilers --isa "${native:-plain}" --flags "-std=c11 -O2 -fwrapv -Wno-psabi")

# ---- real models -----------------------------------------------------------------------------------------------------------------
need_cases models
mkdir -p "$CASES/models"
for m in "$SN_CASES"/models/*/; do ln -sfn "$(realpath "$m")" "$CASES/models/$(basename "$m")"; done
(cd "$CASES" && ls -d models/*/model.onnx) | sed 's/.model.onnx//' >"$T/models"
for isa in plain sse2 avx2 "${native:-plain}"; do
    take < <(python3 tests/lib/aot.py "$T/models" $known --jobs 1 --cc $([ $isa = plain ] && echo $compilers || echo gcc) --isa $isa --flags "-std=c11 -O2 -fwrapv -Wall -Wextra$([ $isa = plain ] && echo ' -pedantic' || echo ' -Wno-psabi') -Werror")
done
take < <(python3 tests/lib/aot.py "$T/models" $known --jobs 1 --cc gcc --flags "-std=c11 -O1 -g -fwrapv -fsanitize=address,undefined -fno-sanitize-recover=all")

# ---- Arm, emulated ---------------------------------------------------------------------------------------------------------------
if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    skip "Arm: aarch64-linux-gnu-gcc and qemu-aarch64 are not installed"
    finish
fi
grep -v mobilenet "$T/models" >"$T/arm"
for isa in neon plain; do
    take < <(python3 tests/lib/aot.py "$T/arm" $known --jobs 1 --cc aarch64-linux-gnu-gcc --isa $isa --near --flags "-std=c11 -O2 -fwrapv -Wno-psabi -static" --run qemu-aarch64)
done
finish
