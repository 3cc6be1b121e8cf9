"""Cases through `sinter compile`: aot.py LIST KNOWN [--isa NAME] [--cc CC...] [--flags "..."] [--jobs N] [--run COMMAND] [--near]

LIST names case folders. Each model is compiled to C, that to a program, without a warning; what the program writes must be, bit for bit, what `sinter run`
writes for the same instruction set, with vectors also with the same compiler, which has its own forms of some functions (--near: near the golden outputs instead, for instruction sets that cannot run here). KNOWN holds cases that have no
form in C: case, tab, reason; one of them that passes is an error. The last line printed is "passed failed skipped"."""
import concurrent.futures, glob, os, re, shutil, struct, subprocess, sys, tempfile

DTYPE = {1: ("<f4", 4), 2: ("|u1", 1), 3: ("|i1", 1), 4: ("<u2", 2), 5: ("<i2", 2), 6: ("<i4", 4), 7: ("<i8", 8), 9: ("|b1", 1), 10: ("<f2", 2), 11: ("<f8", 8),
         12: ("<u4", 4), 13: ("<u8", 8), 16: ("<V2", 2), 17: ("|V1", 1), 18: ("|V1", 1), 19: ("|V1", 1), 20: ("|V1", 1), 21: ("|V1", 1), 22: ("|V1", 1), 23: ("|V1", 1),
         24: ("|V1", 1), 25: ("|V1", 1), 26: ("|V1", 1)}

def varint(b, i):
    v = s = 0
    while True:
        v |= (b[i] & 127) << s
        s += 7
        i += 1
        if b[i - 1] < 128: return v, i

def fields(b):
    i = 0
    while i < len(b):
        tag, i = varint(b, i)
        if tag & 7 == 0: v, i = varint(b, i)
        elif tag & 7 == 2:
            n, i = varint(b, i)
            v, i = b[i:i + n], i + n
        elif tag & 7 == 5: v, i = b[i:i + 4], i + 4
        else: v, i = b[i:i + 8], i + 8
        yield tag >> 3, tag & 7, v

def numbers(wire, v, fmt):
    """A repeated field: packed bytes, or one element."""
    if fmt == "v":
        if wire == 0: return [v]
        out, i = [], 0
        while i < len(v):
            x, i = varint(v, i)
            out.append(x)
        return out
    return list(struct.unpack("<%d%s" % (len(v) // struct.calcsize(fmt), fmt), v))

def tensor(path):
    """name, dtype, dims, bytes of a TensorProto; elements below 8 bits one to a byte."""
    name, dt, dims, raw, val = "", 0, [], None, []
    for f, w, v in fields(open(path, "rb").read()):
        if f == 1: dims += numbers(w, v, "v")
        elif f == 2: dt = v
        elif f == 8: name = v.decode()
        elif f == 9: raw = bytes(v)
        elif f == 4: val += numbers(w, v, "f")
        elif f == 10: val += numbers(w, v, "d")
        elif f in (5, 7, 11): val += numbers(w, v, "v")
    count = 1
    for d in dims: count *= d
    size = DTYPE[dt][1]
    bits = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}.get(dt)
    if raw is None:
        if bits: raw = bytes(x & 255 for x in val)
        elif dt == 1: raw = struct.pack("<%df" % len(val), *val)
        elif dt == 11: raw = struct.pack("<%dd" % len(val), *val)
        else: raw = b"".join((x & (256 ** size - 1)).to_bytes(size, "little") for x in val)
    if bits:
        per, mask = 8 // bits, (1 << bits) - 1
        out = bytearray((raw[i // per] >> (i % per * bits)) & mask for i in range(count))
        if dt in (22, 26): out = bytearray((x | (256 - (1 << bits))) if x >> (bits - 1) else x for x in out)
        raw = bytes(out)
    return name, dt, dims, raw

def inputs(path):
    """Names of a model's inputs that are no initialisers."""
    for f, w, v in fields(open(path, "rb").read()):
        if f != 7: continue
        graph = list(fields(v))
        init = {n.decode() for g, w, t in graph if g == 5 for k, w, n in fields(t) if k == 8}
        return [n for n in (next((x.decode() for k, w, x in fields(t) if k == 1), "") for g, w, t in graph if g == 11) if n not in init]

def npy_put(path, dt, dims, raw):
    h = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (DTYPE[dt][0], "".join("%d," % d for d in dims))).ljust(117) + "\n"
    open(path, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(h)) + h.encode() + raw)

def npy_get(path):
    b = open(path, "rb").read()
    n = b[8] + 256 * b[9]
    h = b[10:10 + n].decode()
    shape = [int(x) for x in re.findall(r"\d+", h[h.index("'shape'"):].split(")")[0])]
    return re.search(r"'descr': '([^']*)'", h).group(1), shape, b[10 + n:]

def near(descr, got, want, rtol, atol):
    letter = {"f4": "f", "f8": "d", "f2": "e", "i8": "q", "i4": "i", "u1": "B", "i1": "b", "b1": "?", "i2": "h", "u2": "H", "u4": "I", "u8": "Q"}.get(descr[1:])
    if not letter: return got == want
    n = len(got) // struct.calcsize(letter)
    for a, b in zip(struct.unpack("<%d%s" % (n, letter), got), struct.unpack("<%d%s" % (n, letter), want)):
        if not (a == b or (a != a and b != b) or abs(a - b) <= atol + rtol * abs(b)): return False
    return True

class Trouble(Exception): pass

def command(argv, env=None, quiet=False):
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    said = p.stderr.decode(errors="replace")
    if p.returncode or (quiet and said): raise Trouble("%s: status %d: %s" % (os.path.basename(argv[0]), p.returncode, said.strip()[:600]))
    return p.stdout.decode(errors="replace")

def one(case, o):
    work = tempfile.mkdtemp(dir=o["tmp"])
    try:
        data = os.path.join(case, "test_data_set_0")
        model = os.path.join(case, "model.onnx")
        if not os.path.isdir(data): return "skip", "no data"
        flags, npy = [], []
        names = inputs(model)
        for i in range(len(glob.glob(os.path.join(data, "input_*.pb")))):
            path = os.path.join(data, "input_%d.pb" % i)
            try: _, dt, dims, raw = tensor(path)
            except (KeyError, IndexError, ValueError, struct.error): return "skip", "an input that is no tensor"
            flags += ["-i", "%s=%s" % (names[i], path)]
            npy.append(os.path.join(work, "in%d.npy" % i))
            npy_put(npy[i], dt, dims, raw)
        env = dict(os.environ, SN_ISA=o["isa"], SN_WAIT="1")
        jit = []
        for k, cc in enumerate([] if o["near"] else o["cc"]):
            if k and o["isa"] == "plain": jit.append(jit[0])
            else:
                jit.append(os.path.join(work, "jit%d" % k))
                try: command([o["sinter"], "run", model, *flags, "-o", jit[k]], env if o["isa"] == "plain" else dict(env, SN_CC=cc.split()[0]))
                except Trouble as t: return "skip", str(t)
        command([o["sinter"], "compile", model, *flags, "--isa", o["isa"], *o["compile"], "-o", os.path.join(work, "net.c")])
        for k, cc in enumerate(o["cc"]):
            exe, out = os.path.join(work, "net%d" % k), os.path.join(work, "out%d" % k)
            command([*cc.split(), *o["flags"], "-DMODEL_MAIN", os.path.join(work, "net.c"), "-lm", "-o", exe], quiet=True)
            os.mkdir(out)
            command([*o["run"], exe, "-o", out, *npy], quiet=True)
            files = sorted(os.listdir(out))
            if not o["near"]:
                if files != sorted(os.listdir(jit[k])): raise Trouble("%s: other outputs" % cc)
                for f in files:
                    a, b = npy_get(os.path.join(out, f)), npy_get(os.path.join(jit[k], f))
                    if a[0] != b[0] or a[1] != b[1]: raise Trouble("%s: %s is %s %s, wanted %s %s" % (cc, f, a[0], a[1], b[0], b[1]))
                    if a[2] != b[2]: raise Trouble("%s: the bits of %s differ" % (cc, f))
                continue
            for j in range(len(glob.glob(os.path.join(data, "output_*.pb")))):
                name, dt, dims, raw = tensor(os.path.join(data, "output_%d.pb" % j))
                file = re.sub(r"[^A-Za-z0-9._+-]", "_", name) + ".npy"
                d, shape, got = npy_get(os.path.join(out, file))
                if shape != dims or not near(d, got, raw, 1e-3, o["atol"]): raise Trouble("%s: %s is not the golden result" % (cc, file))
        return "pass", ""
    except Trouble as t: return "fail", str(t)
    finally: shutil.rmtree(work, ignore_errors=True)

def main():
    args, o = [], {"isa": "plain", "cc": ["gcc", "clang"], "flags": ["-std=c11", "-O1", "-fwrapv", "-Wall", "-Wextra", "-pedantic", "-Werror"], "jobs": 2, "run": [], "near": False,
                   "atol": 1e-4, "compile": [], "sinter": os.environ["SINTER"], "tmp": os.environ["T"]}
    it = iter(sys.argv[1:])
    for a in it:
        if a == "--isa": o["isa"] = next(it)
        elif a == "--cc": o["cc"] = next(it).split(",")
        elif a == "--flags": o["flags"] = next(it).split()
        elif a == "--compile": o["compile"] = next(it).split()
        elif a == "--jobs": o["jobs"] = int(next(it))
        elif a == "--run": o["run"] = next(it).split()
        elif a == "--atol": o["atol"] = float(next(it))
        elif a == "--near": o["near"] = True
        else: args.append(a)
    cases = [l.strip() for l in open(args[0]) if l.strip()]
    known = dict(l.rstrip("\n").split("\t", 1) for l in open(args[1]) if "\t" in l and l[0] != "#") if len(args) > 1 else {}
    root = os.environ.get("CASES", ".")
    count = {"pass": 0, "fail": 0, "skip": 0}
    with concurrent.futures.ThreadPoolExecutor(o["jobs"]) as pool:
        for case, (verdict, why) in zip(cases, pool.map(lambda c: one(os.path.join(root, c), o), cases)):
            if case in known:
                verdict, why = ("skip", "") if verdict == "fail" else ("fail", "is listed as failing, but passes") if verdict == "pass" else (verdict, why)
            count[verdict] += 1
            if verdict == "fail" or os.environ.get("VERBOSE"): print("%s: %s: %s" % (verdict, case, why), flush=True)
    print("%(pass)d %(fail)d %(skip)d" % count)

if __name__ == "__main__": main()
