#!/bin/bash
# sinter conformance: verdicts, reasons, tolerances, isolation, on cases made here. The official cases are in tests/onnx.
. "$(dirname "$0")/../lib/check.sh"

# new CASE: a folder whose model is the text on stdin, with one data set
new() { mkdir -p "$T/$1/test_data_set_0"; cat >"$T/$1/model.onnx"; at=$T/$1/test_data_set_0; }
head_of='<ir_version: 10, opset_import: ["" : 21]>'
relu="$head_of net (float[3] x) => (float[3] y) { y = Relu(x) }"

new good/relu <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 -1 0 nan; pb "$at/output_0.pb" y 1 f 3 0 0 nan
new good/close <<<"$relu"
pb "$at/input_0.pb" "" 1 f 3 1 1000 inf; pb "$at/output_0.pb" y 1 f 3 1.0009 1000.9 inf
new good/two_sets <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f 3 1 2 3
mkdir -p "$T/good/two_sets/test_data_set_more"
pb "$T/good/two_sets/test_data_set_more/input_0.pb" x 1 f 3 4 5 6; pb "$T/good/two_sets/test_data_set_more/output_0.pb" y 1 f 3 4 5 6
new good/by_name <<<"$head_of net (float[1] a, float[1] b) => (float[1] y) { y = Sub(a, b) }"
pb "$at/input_0.pb" b 1 f 1 1; pb "$at/input_1.pb" a 1 f 1 3; pb "$at/output_0.pb" y 1 f 1 2
new good/loose <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f 3 1.4 2.4 3.4
echo '{"atol": 0.5, "rtol": 0, "kind": "node"}' >"$T/good/loose/data.json"
new good/random <<<"$head_of net (float[3] x) => (float[3] y) { y = RandomUniformLike(x) }"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f 3 9 9 9
expect 0 '^6 passed, 0 failed, 0 skipped$' "$SINTER" conformance "$T/good"
for how in --no-fuse --interpreter "--threads 1" "-j 1" "-j 3"; do expect 0 '^6 passed' "$SINTER" conformance "$T/good" $how; done

new bad/value <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f 3 1 2.003 3
new bad/small <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 0 0 1e-6; pb "$at/output_0.pb" y 1 f 3 0 2e-7 1e-6
new bad/nan <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 nan; pb "$at/output_0.pb" y 1 f 3 1 2 3
new bad/infinite <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 inf; pb "$at/output_0.pb" y 1 f 3 1 2 3e38
new bad/shape <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f "1 3" 1 2 3
new bad/dtype <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 11 d 3 1 2 3
new bad/unknown <<<"$head_of net (float[3] x) => (float[3] y) { y = Frobnicate(x) }"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f 3 1 2 3
new bad/no_input <<<"$relu"
pb "$at/output_0.pb" y 1 f 3 1 2 3
new bad/no_output <<<"$relu"
pb "$at/input_0.pb" x 1 f 3 1 2 3
new bad/random_shape <<<"$head_of net (float[3] x) => (float[3] y) { y = RandomUniformLike(x) }"
pb "$at/input_0.pb" x 1 f 3 1 2 3; pb "$at/output_0.pb" y 1 f 2 9 9
new bad/noise </dev/null
expect 1 '^0 passed, 11 failed, 0 skipped$' "$SINTER" conformance "$T/bad"
expect 1 '^failed .*/value: .*output 0 .y. .*1 of 3 elements differ, the first at 1: 2, wanted 2.003' "$SINTER" conformance "$T/bad/value"
expect 1 "'y' is f32\[3\], wanted f32\[1,3\]" "$SINTER" conformance "$T/bad/shape"
expect 1 "'y' is f32\[3\], wanted f64\[3\]" "$SINTER" conformance "$T/bad/dtype"
expect 1 "Frobnicate" "$SINTER" conformance "$T/bad/unknown"
expect 1 "no data for input 'x'" "$SINTER" conformance "$T/bad/no_input"
expect 1 "has no outputs to compare with" "$SINTER" conformance "$T/bad/no_output"

new skip/text <<<"$head_of net (string[3] x) => (string[3] y) { y = Identity(x) }"
new skip/sequence <<<"$head_of net (seq(float[3]) x) => (float[3] y) { i = Constant<value_int = 0>()
  y = SequenceAt(x, i) }"
new skip/optional <<<"$head_of net (optional(float[3]) x) => (float[3] y) { y = OptionalGetElement(x) }"
expect 0 '^0 passed, 0 failed, 3 skipped$' "$SINTER" conformance "$T/skip"
expect 0 "input 'x' is a tensor of string" "$SINTER" conformance "$T/skip/text"
expect 0 "input 'x' is a sequence" "$SINTER" conformance "$T/skip/sequence"
json '(j["passed"], j["failed"], j["skipped"]) == (6, 11, 3) and len(j["failures"]) == 11 and len(j["skips"]) == 3' "$SINTER" conformance "$T/good" "$T/bad" "$T/skip" --json
json 'any(f["case"].endswith("bad/unknown") and "Frobnicate" in f["reason"] for f in j["failures"])' "$SINTER" conformance "$T/bad" --json

# a case that never ends, and one that crashes, are one failure each
new late/loop <<<"$head_of
net (int64 n, bool go, float x) => (float y) {
  y = Loop (n, go, x) < body = b (int64 i, bool c, float v) => (bool again, float w) {
    again = Identity(c)
    w = Add(v, v) } >
}"
pb "$at/input_0.pb" n 7 q "" 9000000000000000000; pb "$at/input_1.pb" go 9 B "" 1; pb "$at/input_2.pb" x 1 f "" 1; pb "$at/output_0.pb" y 1 f "" 1
expect 1 'late/loop: ran longer than 1 seconds' "$SINTER" conformance "$T/late" --limit 1
expect 1 '^6 passed, 1 failed' "$SINTER" conformance "$T/good" "$T/late" --limit 1 -j 2
refuse "none: No such file" "$SINTER" conformance "$T/none"
mkdir -p "$T/hollow"
refuse "no folder with a model.onnx" "$SINTER" conformance "$T/hollow"

# Ctrl-C: a message, status 130, no process left behind
timeout -s INT 4 "$SINTER" conformance "$T/late" >"$T/stopped" 2>&1
status=$?
ok "stopped by a signal" grep -q 'stopped on request' "$T/stopped"
ok "and ends with 130 ($status)" test $status = 124 -o $status = 130
sleep 0.3
ok "no child is left" test -z "$(pgrep -f "sinter conformance $T/late")"
"$SINTER" run "$T/late/loop/model.onnx" -i n="$T/late/loop/test_data_set_0/input_0.pb" -i go="$T/late/loop/test_data_set_0/input_1.pb" -o "$T/stopped.d" >"$T/stopped" 2>&1 &
pid=$!
sleep 3
kill -INT $pid
wait $pid
status=$?
ok "run: 130 after a signal, not $status" test $status = 130
ok "run: says so" grep -q 'stopped on request' "$T/stopped"
ok "run: wrote nothing" test ! -e "$T/stopped.d"
finish
