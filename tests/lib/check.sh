# check.sh: what test scripts share. Source it; end with `finish`.
#   T          a folder for this test's files, emptied at the start
#   ok NAME COMMAND...          counts as passed when the command succeeds; else shows what it printed
#   expect STATUS PATTERN COMMAND...   runs a command; its exit status must be STATUS and its output hold the extended regular expression PATTERN
#   refuse PATTERN COMMAND...   the same with status 2
set -uo pipefail
BUILD=$(realpath "${BUILD:-build}") SINTER=${SINTER:-$BUILD/sinter}
T=${0#*tests/}
T=${T%.sh}
T=$BUILD/tests/files/${T//\//_}
rm -rf "$T"
mkdir -p "$T"
export SN_WAIT=1        # tests are of kernels, unless they say otherwise
export SN_CACHE=${SN_CACHE:-$BUILD/tests/kernels} SN_CACHE_MB=${SN_CACHE_MB:-2048}
passed=0 failed=0 skipped=0

good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf 'FAILED: %s\n' "$*"; }
skip() { skipped=$((skipped + 1)); printf 'skipped: %s\n' "$*"; }

ok() {
    local name=$1 log; shift
    log=$("$@" 2>&1) && { good; return; }
    bad "$name: $*"
    printf '%s\n' "$log" | tail -n 20 | sed 's/^/    /'
}

expect() {
    local status=$1 pattern=$2 got log; shift 2
    log=$("$@" 2>&1 </dev/null); got=$?
    [ $got = "$status" ] && grep -qE -- "$pattern" <<<"$log" && { good; return; }
    bad "wanted status $status and /$pattern/, got status $got: $*"
    printf '%s\n' "$log" | tail -n 20 | sed 's/^/    /'
}

refuse() { expect 2 "$@"; }

# json EXPRESSION COMMAND...: the command's output is one JSON object j for which the Python expression holds.
json() {
    local what=$1 log; shift
    log=$("$@" 2>"$T/stderr" </dev/null)
    python3 -c 'import json,sys
j = json.loads(sys.stdin.read())
sys.exit(not eval(sys.argv[1]))' "$what" <<<"$log" 2>>"$T/stderr" && { good; return; }
    bad "json: $what does not hold: $*"
    printf '%s\n' "$log" | tail -n 10 | sed 's/^/    /'
    tail -n 3 "$T/stderr"
}

# npy FILE TYPE "DIMS" VALUE...: a NumPy file; TYPE a letter of Python's struct and its NumPy word, as f:<f4, q:<i8, B:|u1, ?:|b1.
npy() {
    python3 -c 'import struct,sys
path, t, dims = sys.argv[1:4]
letter, word = t.split(":")
shape = "(" + "".join(d + "," for d in dims.split()) + ")"
h = "{\x27descr\x27: \x27%s\x27, \x27fortran_order\x27: False, \x27shape\x27: %s, }" % (word, shape)
h = h.ljust(117) + "\n"
v = [float(x) if letter in "fd" else int(x) for x in sys.argv[4:]]
open(path, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(h)) + h.encode() + struct.pack("<%d%s" % (len(v), letter), *v))' "$@"
}

# pb FILE NAME ONNX-TYPE LETTER "DIMS" VALUE...: a TensorProto.
pb() {
    python3 -c 'import struct,sys
path, name, code, letter, dims = sys.argv[1:6]
v = [float(x) if letter in "fd" else int(x) for x in sys.argv[6:]]
raw = struct.pack("<%d%s" % (len(v), letter), *v)
def num(n):
    b = b""
    while n > 127: b += bytes([n & 127 | 128]); n >>= 7
    return b + bytes([n])
out = b"".join(b"\x08" + num(int(d)) for d in dims.split()) + b"\x10" + num(int(code))
if name: out += b"\x42" + num(len(name)) + name.encode()
open(path, "wb").write(out + b"\x4a" + num(len(raw)) + raw)' "$@"
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}
