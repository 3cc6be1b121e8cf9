#!/bin/bash
# sinter run --check: with compilers that miscompile one kernel, it must name that kernel and none that only reads what it left.
. "$(dirname "$0")/../lib/check.sh"
export SN_CACHE=
# fault IN FROM TO: in the text of each kernel that calls IN, FROM (a regular expression) becomes TO
cat >"$T/cc" <<'END'
#!/bin/bash
for f; do
    [[ $f == *.c ]] && [ -f "$f" ] && awk -v within="$WITHIN" -v from="$FROM" -v to="$TO" '
        /^void k_/ { inside = 1 }
        inside { body = body $0 "\n" }
        inside && /^}/ { if (body ~ within) gsub(from, to, body); printf "%s", body; body = ""; inside = 0; next }
        !inside' "$f" >"$f.new" && mv "$f.new" "$f"
done
exec cc "$@"
END
chmod +x "$T/cc"
model() { { echo '<ir_version: 10, opset_import: ["" : 21]>'; cat; } >"$T/net.onnxtxt"; }
check() { "$SINTER" run "$T/net.onnxtxt" -d N=37 --no-fuse --check "$@"; }
fused() { "$SINTER" run "$T/net.onnxtxt" -d N=37 --check "$@"; }
fault() { WITHIN=$1 FROM=$2 TO=$3 SN_CC=$T/cc "${@:4}"; }
said="the interpreter says -?[0-9.e+-]+ \([0-9.e+-]+ apart is allowed[;)]"

# ---- the kernel at fault, and what its result is -------------------------------------------------------------------------------------------------
model <<'END'
net (float[N] x) => (float[N] y)
{ a = Abs(x)
  b = Sqrt(a)
  c = Tanh(b)
  y = Neg(c) }
END
expect 0 'check: equal to the reference interpreter' check
expect 2 "check: kernel k_[0-9a-f]+, 'b' \(Sqrt\), element \[0\] of f32\[37\]: -[0-9.]+, $said" fault sqrt_ '= sqrt_' '= -sqrt_' check
expect 2 "check: kernel k_[0-9a-f]+, 'y' \(Neg\), element \[0\] of f32\[37\]: [0-9.]+, $said" fault '= -v' '= -v' '= v' check

# Within what is allowed for one kernel, and much more behind another, which only amplifies it: the outputs differ, no kernel does.
model <<'END'
net (float[N] x) => (float[N] y)
{ b = Exp(x)
  c = Log(b)
  d = Sub(c, x)
  k = Constant<value_float = 3000.0>()
  y = Mul(d, k) }
END
expect 0 'check: equal' check --atol 0.01
expect 1 "^check: 'y' \(f32\[37\]\): [0-9]+ of 37 elements differ" fault exp_ 'exp_f32v[(]' '1.00004f * exp_f32v(' check --atol 0.01

# What cancels, or is rounded to few values, behind a sum is compared by how far a sum of float32 may be off; a fault is still found there, and a small one where nothing cancels.
model <<'END'
net (float[N,256] x) => (float[N,256] y)
{ k = Constant<value_float = 1000.0>()
  one = Constant<value_float = 1.0>()
  last = Constant<value_ints = [1]>()
  a = Add(x, k)
  s = Mul(a, a)
  e = ReduceMean(s, last)
  m = ReduceMean(a, last)
  q = Mul(m, m)
  v = Sub(e, q)
  w = Abs(v)
  p = Add(w, one)
  d = Sqrt(p)
  c = Sub(a, m)
  y = Div(c, d) }
END
cancels() { "$SINTER" run "$T/net.onnxtxt" -d N=37 --check --atol 5 "$@"; }
expect 0 'check: equal' cancels
expect 2 "check: kernel k_[0-9a-f]+, 'y' \(Div\), element .*: -?[0-9.]+, $said" fault sqrt_ '= div_' '= -div_' cancels
model <<'END'
net (float[N,64] x) => (int64[N] y)
{ k = Constant<value_float = 16777216.0>()
  last = Constant<value_ints = [1]>()
  s = ReduceSum<keepdims = 0>(x, last)
  d = Sub(s, k)
  y = Cast<to = 7>(d) }
END
npy "$T/far.npy" 'f:<f4' '1 64' 16777216 $(for i in {1..63}; do echo 1; done)
sums() { "$SINTER" run "$T/net.onnxtxt" -d N=1 --check -i x="$T/far.npy" "$@"; }
expect 1 "^check: 'y' .*wanted 6[34]" sums
expect 2 "check: kernel k_[0-9a-f]+, 'y' \(Cast\), element \[0\] of i64\[1\]: -[0-9]+, the interpreter says 6[34] \(0 apart is allowed; sums that err make it -?[0-9]+ to 6[0-9]\)" fault hsum_ '= hsum_' '= -hsum_' sums
model <<'END'
net (float[N,4096] x) => (float[N] y)
{ last = Constant<value_ints = [1]>()
  a = Mul(x, x)
  y = ReduceSum<keepdims = 0>(a, last) }
END
expect 0 'check: equal' fused
expect 2 "check: kernel k_[0-9a-f]+, 'y' \(ReduceSum\), element \[0\] of f32\[37\]: [0-9.]+, $said" fault hsum_ '= hsum_' '= 1.0003f * hsum_' fused

# An infinity is not near everything.
model <<'END'
net (float[N] x) => (float[N] y)
{ k = Constant<value_float = 1e30>()
  a = Mul(x, k)
  b = Mul(a, k)
  c = Abs(b)
  d = Sqrt(c)
  y = Tanh(d) }
END
npy "$T/twos.npy" 'f:<f4' 37 $(for i in {1..37}; do echo 2; done)
expect 0 'check: equal' check -i x="$T/twos.npy"
expect 2 "check: kernel k_[0-9a-f]+, 'd' \(Sqrt\), element \[0\] of f32\[37\]: -inf, the interpreter says inf \(0 apart is allowed\)" \
    fault sqrt_ '= sqrt_' '= -sqrt_' check -i x="$T/twos.npy"

# ---- stores into other tensors: pieces of a join, the beginning of a scatter --------------------------------------------------------------------
model <<'END'
net (float[N] x) => (float[2,N] y)
{ s = Constant<value_ints = [1, -1]>()
  r = Reshape(x, s)
  a = Exp(r)
  b = Sqrt(a)
  y = Concat<axis = 0>(a, b) }
END
for how in check fused; do
    expect 0 'check: equal' $how
    expect 2 "check: kernel k_[0-9a-f]+, '[by]' \((Sqrt|Concat)\), element \[[01],0\] of f32\[[12],37\]: -[0-9.]+, $said" fault sqrt_ '= sqrt_' '= -sqrt_' $how
done
model <<'END'
net (float[N] x, int64[2] at, float[2] u) => (float[N] y)
{ b = Exp(x)
  w = Sqrt(b)
  v = Tanh(u)
  z = ScatterElements<axis = 0, reduction = "add">(w, at, v)
  y = Neg(z) }
END
npy "$T/at.npy" 'q:<i8' 2 3 3
given=(-i at="$T/at.npy")
for how in check fused; do
    expect 0 'check: equal' $how "${given[@]}"
    expect 2 "check: kernel k_[0-9a-f]+, '[wz]' \((Sqrt|ScatterElements)\), element \[0\] of f32\[37\]: -[0-9.]+, $said" fault sqrt_ '= sqrt_' '= -sqrt_' $how "${given[@]}"
    expect 2 "check: kernel k_[0-9a-f]+, '[vz]' \((Tanh|ScatterElements)\), element \[[03]\] of f32\[(2|37)\]: " fault tanh_ '= tanh_' '= -tanh_' $how "${given[@]}"
done

# ---- what depends on constants only is computed once, and compared then -------------------------------------------------------------------------
model <<'END'
net (float[N] x) => (float[N] y)
{ k = Constant<value_floats = [1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0, 64.0, 81.0]>()
  s = ReduceSum<keepdims = 0>(k)
  y = Add(x, s) }
END
expect 0 'check: equal' check
expect 2 "check: kernel k_[0-9a-f]+, 's' \(ReduceSum\), element \[\] of f32\[\]: -285, the interpreter says 285 " fault hsum_ '= hsum_' '= -hsum_' check

# ---- a kernel that writes where another one's values are ------------------------------------------------------------------------------------------
model <<'END'
net (float[N] x) => (float[N] y, float[N] z)
{ b = Exp(x)
  y = Tanh(b)
  z = Sin(b) }
END
expect 0 'check: equal' check
expect 2 "check: kernel k_[0-9a-f]+ reads what was changed, 'b' \(Exp\) of \[37\] is not what it was when it was computed" \
    fault tanh_ '\n}\n$' '\n((f32 *)buf[0])[0] = 7;\n}\n' check
finish
