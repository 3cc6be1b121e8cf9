#!/bin/bash
# pb.sh [SECONDS]: fuzzes the ONNX readers (binary and text) for SECONDS (60) with libFuzzer under AddressSanitizer and UBSan.
# Corpus and findings stay in BUILD/fuzz/pb (BUILD: build). Seeds: small models of the test material in SN_CASES, if it is there, and
# a text model written here. Without clang's libFuzzer the seeds alone are run, in a build by cc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
SECONDS_TO_RUN=${1:-60}
DIR=${BUILD:-build}/fuzz/pb
CASES=${SN_CASES:-../shared/cases}
mkdir -p "$DIR/corpus" "$DIR/seeds" "$DIR/found"

cat >"$DIR/seeds/a.onnxtxt" <<'END'
< ir_version: 10, opset_import: [ "" : 21, "local" : 1 ], metadata_props: [ "k" : "v" ] >
g (float[N, 2, ?, "a b"] X, float b = {1e-1}, seq(float[]) s, optional(map(int64, int32[2])) o) => (float[N] Y)
<int4[3] w = {-8, 7, 1}, bool[2] c = {0, 1}, double[2] d = {-inf, nan}, string[1] t = {"a\"b"}, float16[1] h = {15360}>
{
   [n1] T, , "out" = local.F <a = 1, b = [1, 2.5], c = ["x"], d : ints = [], e = float[2] {1, 2}, f = float[3]> (X, , "")
   Y = If (T) < then_branch = g1 () => (float z) { z = Identity(X) }, else_branch = g2 () => (float z) <float[1] q = {3}> { z = Neg(q) } >
}
<opset_import: [ "" : 21 ], domain: "local", overload: "v">
F <alpha: float = 4.0, gamma> (float[N] x, b) => (y) <float[N] t> { y = Mul : ov <v : ints = @gamma> (x, b) # comment
}
END
if [ -d "$CASES/models" ]; then
    i=0
    while read -r f; do
        cp "$f" "$DIR/seeds/$((i++)).${f##*.}"
    done < <(find "$CASES/models" \( -name '*.onnx' -o -name '*.pb' \) -size -64k)
    if [ -f "$CASES/onnx.tar.xz" ] && [ ! -e "$DIR/seeds/.unpacked" ]; then
        tmp=$(mktemp -d)
        trap 'rm -rf "$tmp"' EXIT
        tar -xJf "$CASES/onnx.tar.xz" -C "$tmp" --wildcards '*/test_[a-i]*/*.onnx' '*/test_sequence*/*.onnx' '*/test_sparse*/*.onnx' 2>/dev/null || true
        while read -r f; do
            cp "$f" "$DIR/seeds/case$((i++)).onnx"
        done < <(find "$tmp" -name '*.onnx' -size -8k)
        touch "$DIR/seeds/.unpacked"
    fi
else
    echo "no test material in $CASES: the seeds are only those written here"
fi

FLAGS=(-std=c11 -g -O1 -D_GNU_SOURCE -Isrc -Wall -Wextra)
SOURCES=(tests/fuzz/fuzz_pb.c src/base/*.c src/onnx/{pb,load,tensorproto,external,onnxtext,textscan,tensorfile}.c)
if command -v clang >/dev/null && clang "${FLAGS[@]}" -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all "${SOURCES[@]}" -lm \
        -o "$DIR/fuzz_pb" 2>"$DIR/build.log"; then
    printf '"\\x08\\x0a"\n"\\x0a\\x00"\n"ir_version"\n"float["\n"=>"\n' >"$DIR/dict"
    if "$DIR/fuzz_pb" -max_total_time="$SECONDS_TO_RUN" -dict="$DIR/dict" -artifact_prefix="$DIR/found/" -max_len=16384 -timeout=10 \
        -rss_limit_mb=3000 -print_final_stats=1 "$DIR/corpus" "$DIR/seeds" 2>&1 | tail -n 40; then
        echo "1 passed, 0 failed, 0 skipped"
    else
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
else
    cc "${FLAGS[@]}" -DFUZZ_MAIN -fsanitize=address,undefined -fno-sanitize-recover=all "${SOURCES[@]}" -lm -o "$DIR/fuzz_pb_main"
    "$DIR/fuzz_pb_main" "$DIR"/seeds/*
fi
