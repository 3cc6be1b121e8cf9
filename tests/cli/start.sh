#!/bin/bash
# sinter run on a cold cache: it answers before its kernels are compiled, leaves a process behind that compiles them, and finds them at the next start.
. "$(dirname "$0")/../lib/check.sh"
unset SN_WAIT
export SN_CACHE=$T/kernels
cat >"$T/net.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 17]>
net (float[B, 48] x, float[48, 48] w) => (float[B, 48] y)
{ a = MatMul(x, w)  b = Tanh(a)  c = Softmax(b)  d = Mul(c, x)  e = MatMul(d, w)  y = Add(e, x) }
END
kernels() { find "$SN_CACHE" -name 'k-*' 2>/dev/null | wc -l; }
close() { python3 -c 'import json, sys
a, b = (json.load(open(p))["outputs"][0]["values"] for p in sys.argv[1:])
sys.exit(not (len(a) == len(b) > 0 and all(abs(x - y) <= 1e-5 * (1 + abs(y)) for x, y in zip(a, b))))' "$@"; }

expect 0 'from disk, [1-9][0-9]* being compiled' env SN_DEBUG=1 "$SINTER" run "$T/net.onnxtxt" -d B=3
for _ in $(seq 600); do [ "$(kernels)" -ge 1 ] && break; sleep 0.2; done
ok "kernels were compiled behind" [ "$(kernels)" -ge 1 ]
for n in $(seq 100); do [ "$n" = 1 ] || [ "$was" != "$(kernels)" ] || break; was=$(kernels); sleep 1; done       # all of them
expect 0 '0 compiled, [1-9][0-9]* from disk, 0 being compiled' env SN_DEBUG=1 "$SINTER" run "$T/net.onnxtxt" -d B=3
"$SINTER" run "$T/net.onnxtxt" -d B=3 --json >"$T/kernels.json" 2>/dev/null
SN_CACHE='' "$SINTER" run "$T/net.onnxtxt" -d B=3 --json >"$T/ready.json" 2>/dev/null      # no cache: nothing is left behind
"$SINTER" run "$T/net.onnxtxt" -d B=3 --json --interpreter >"$T/interpreter.json" 2>/dev/null
ok "the ready tier and kernels agree" close "$T/ready.json" "$T/kernels.json"
ok "the ready tier and the interpreter agree" close "$T/ready.json" "$T/interpreter.json"

# --wait, and --repeat, which times kernels
SN_CACHE=$T/second expect 0 '[1-9][0-9]* compiled, 0 from disk, 0 being compiled' env SN_DEBUG=1 "$SINTER" run "$T/net.onnxtxt" -d B=3 --wait
SN_CACHE=$T/second expect 0 '0 being compiled' env SN_DEBUG=1 "$SINTER" run "$T/net.onnxtxt" -d B=3
SN_CACHE=$T/third expect 0 'then 3 runs' "$SINTER" run "$T/net.onnxtxt" -d B=3 --repeat 3
SN_CACHE=$T/third expect 0 ', 0 being compiled' env SN_DEBUG=1 "$SINTER" run "$T/net.onnxtxt" -d B=3

# no compiler: an answer all the same; who waits is told
expect 0 '^y: f32' env SN_CACHE= SN_CC=/nonexistent/cc "$SINTER" run "$T/net.onnxtxt" -d B=3
refuse 'nonexistent' env SN_CACHE= SN_CC=/nonexistent/cc "$SINTER" run "$T/net.onnxtxt" -d B=3 --wait
finish
