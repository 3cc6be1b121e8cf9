#!/bin/bash
# sinter bisect: with a compiler that miscompiles one pair of fused operators, it must name the decision that brought them together.
. "$(dirname "$0")/../lib/check.sh"
cat >"$T/net.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N] x) => (float[N] y, float[N] z)
{ a = Neg(x)
  b = Abs(a)
  c = Exp(b)
  d = Sqrt(c)
  e = Add(d, x)
  y = Tanh(e)
  z = Sin(x) }
END
# changes the sign of square roots in kernels that also have an exponential
cat >"$T/cc" <<'END'
#!/bin/bash
for f; do
    [[ $f == *.c ]] && [ -f "$f" ] && awk '
        /^void k_/ { inside = 1 }
        inside { body = body $0 "\n" }
        inside && /^}/ { if (body ~ /exp_f32v?\(/ && body ~ /sqrt_f32v?\(/) gsub(/= sqrt_/, "= -sqrt_", body); printf "%s", body; body = ""; inside = 0; next }
        !inside' "$f" >"$f.new" && mv "$f.new" "$f"
done
exec cc "$@"
END
chmod +x "$T/cc"
net=("$T/net.onnxtxt" -d N=37)
expect 0 'no fusion changes the result: fused, unfused and interpreted agree' "$SINTER" bisect "${net[@]}"
json 'j["fault"] == "none" and j["decision"] is None' "$SINTER" bisect "${net[@]}" --json
export SN_CC=$T/cc SN_CACHE=$T/kernels
expect 1 'decision [0-9]+ of the planner changes the result' "$SINTER" bisect "${net[@]}"
expect 1 'kernel k_[0-9a-f]+: map: .*Exp c.*Sqrt d' "$SINTER" bisect "${net[@]}"
json 'j["fault"] == "fusion" and j["decision"] >= 1 and len(j["kernels"]) == 1 and "Exp c" in j["kernels"][0]["what"] and "Sqrt d" in j["kernels"][0]["what"]' \
    "$SINTER" bisect "${net[@]}" --json
n=$("$SINTER" bisect "${net[@]}" --json 2>/dev/null | sed -n 's/.*"decision": \([0-9]*\).*/\1/p')
expect 0 'check: equal' env SN_LIMIT=$((n - 1)) "$SINTER" run "${net[@]}" --check
env SN_LIMIT=$n "$SINTER" run "${net[@]}" --check >"$T/log" 2>&1
ok "with that decision the check fails" test $? != 0
cat >"$T/random.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N] x) => (float[N] y) { y = RandomNormalLike(x) }
END
refuse 'draws random numbers' "$SINTER" bisect "$T/random.onnxtxt"
# a fault that is no fusion's: every square root is wrong
sed -i 's/ && body ~ .sqrt_f32v?\\(.//; s/body ~ .exp_f32v?\\(./body ~ \/sqrt_\//' "$T/cc"
rm -rf "$SN_CACHE"
expect 1 'the fault is in a kernel, not in a fusion' "$SINTER" bisect "${net[@]}"
finish
