"""dlpack.py: on an NVIDIA GPU with PyTorch: its tensors are read and written where they lie. Values against PyTorch's, addresses, streams, memory that runs out, a device that
is lost, two processes at once. Each line ends in ok or FAILED."""
import ctypes
import subprocess
import sys
import time

import torch

import sinter

failed = 0


def ok(what, good):
    global failed
    failed += not good
    print(f"{what}: {'ok' if good else 'FAILED'}", flush=True)


def program(op, *inputs, **attributes):
    g = sinter.Graph()
    g.output("y", g.op(op, *(g.input(f"x{i}", t, shape) for i, (t, shape) in enumerate(inputs)), **attributes))
    return sinter.compile(g, device="cuda")


def median_ms(f, n=30):
    times = []
    for _ in range(n):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        f()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[n // 2] * 1e3


def alone_us(f, n=300):
    times = []
    for _ in range(n):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return sorted(times)[n // 2] * 1e6


def values():
    for dtype, name, close in ((torch.float32, "f32", 1e-6), (torch.bfloat16, "bf16", 1e-2), (torch.float16, "f16", 2e-3)):
        p = program("Softmax", (name, ["m", "n"]), axis=-1)
        x = torch.randn(513, 1000, device="cuda", dtype=dtype)
        y = torch.from_dlpack(p(x))
        ok(f"softmax {name}", y.dtype == dtype and y.is_cuda and torch.allclose(y.float(), torch.softmax(x.float(), -1), atol=close))
    p = program("Add", ("f32", ["n"]), ("f32", ["n"]))
    a, b = torch.randn(1 << 26, device="cuda"), torch.randn(1 << 26, device="cuda")
    made = p(a, b)
    y = torch.from_dlpack(made)
    ok("add 2^26", torch.equal(y, a + b))
    again = torch.from_dlpack(made)
    ok("one memory for two readers", y.data_ptr() == again.data_ptr())
    del made
    room = torch.empty_like(a)
    at = room.data_ptr()
    ok("out= gives the tensor back", p(a, b, out=[room]) is room and room.data_ptr() == at and torch.equal(room, a + b))
    want = a + b
    p(a, b, out=[a])
    ok("in place", torch.equal(a, want))
    ok("a view that begins inside", torch.equal(torch.from_dlpack(p(a[128:], b[128:])), (a + b)[128:]))
    try:
        p(a[::2], b[::2])
        ok("strides are refused", False)
    except sinter.InvalidArgument as e:
        ok(f"strides are refused ({e})", "strides" in str(e))
    host = a.cpu().numpy(), b.cpu().numpy()
    print(f"add of 2^26 float32: {median_ms(lambda: p(a, b, out=[room])):.3f} ms with out=, {median_ms(lambda: p(a, b)):.3f} ms with a new result, "
          f"PyTorch {median_ms(lambda: torch.add(a, b, out=room)):.3f} ms, over the host {median_ms(lambda: p(*host), 3):.1f} ms", flush=True)
    x, y = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
    own, room = [p.put(t.cpu().numpy()) for t in (x, y)], torch.empty_like(x)
    g = sinter.Graph()
    g.output("y", g.op("Transpose", g.op("Softmax", g.input("x", "f32", [32, 32])), perm=[1, 0]))
    pair, square, turned = sinter.compile(g, device="cuda"), x.reshape(32, 32), torch.empty(32, 32, device="cuda")
    turned[:] = torch.from_dlpack(pair(square))
    ok("two launches", torch.allclose(turned, torch.softmax(square, -1).T, atol=1e-6))
    rows = [("with out=", lambda: p(x, y, out=[room])), ("with a new result", lambda: p(x, y)), ("arrays of sinter", lambda: p(*own, out=[own[0]])),
            ("PyTorch", lambda: torch.add(x, y, out=room)), ("PyTorch, a new result", lambda: torch.add(x, y)), ("softmax and transpose with out=", lambda: pair(square, out=[turned])),
            ("PyTorch's", lambda: torch.softmax(square, -1).T.contiguous()), ("nothing but the wait", lambda: None)]
    side = torch.cuda.Stream()
    print(f"the call alone, which has ended when it returns: {alone_us(rows[0][1]):.1f} us with out=; PyTorch's call and the wait for it {alone_us(lambda: (rows[3][1](), torch.cuda.current_stream().synchronize())):.1f} us", flush=True)
    print("add of 2^10 float32, us: " + ", ".join(f"{name} {median_ms(f, 300) * 1e3:.1f}" for name, f in rows), flush=True)
    with torch.cuda.stream(side):
        print(f"in a stream of its own: {median_ms(rows[0][1], 300) * 1e3:.1f} us with out=, the call alone {alone_us(rows[0][1]):.1f}", flush=True)


def streams():
    p = program("Add", ("f32", ["n"]), ("f32", ["n"]))
    one = torch.ones(1 << 20, device="cuda")
    p(one, one)
    right = True
    for side in (None, torch.cuda.Stream()):
        for k in range(5):
            with torch.cuda.stream(side):
                x = torch.zeros(1 << 20, device="cuda")
                torch.cuda._sleep(200_000_000)               # 0.1 s, and then what the run must see
                x += k + 1
                y = torch.from_dlpack(p(x, one))
                right &= bool((y == k + 2).all())
                torch.cuda._sleep(200_000_000)
                y *= 3
                right &= bool((torch.from_dlpack(p(y, one)) == 3 * k + 7).all())
    ok("what a stream has to do before is waited for", right)


def memory():
    p = program("Add", ("f32", ["n"]), ("f32", ["n"]))
    a = torch.randn(1 << 26, device="cuda")
    p(a, a)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(200):
        torch.from_dlpack(p(a, a))
    ok("memory of results is given back", torch.cuda.mem_get_info()[0] >= before - (1 << 29))
    g = sinter.Graph()
    g.output("y", g.op("Expand", g.input("x", "f32", [1]), g.const([1 << 37])))
    huge = sinter.compile(g, device="cuda")
    try:
        huge(torch.ones(1, device="cuda"))
        ok("too much memory is refused", False)
    except sinter.NoMemory as e:
        ok(f"too much memory is refused ({e})", "bytes are wanted" in str(e))
    ok("and the device goes on", torch.equal(torch.from_dlpack(p(a, a)), a + a))


class Nowhere:
    """A tensor at an address where nothing is."""
    def __init__(self, like):
        self.like = like

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **words):
        capsule = self.like.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.POINTER(ctypes.c_uint64), [ctypes.py_object, ctypes.c_char_p]
        get(capsule, b"dltensor")[0] = 1 << 44
        return capsule


def lost():
    p = program("Add", ("f32", ["n"]), ("f32", ["n"]))
    x = torch.ones(1 << 20, device="cuda")
    p(x, x)
    for _ in range(2):
        try:
            p(Nowhere(x), x)
            print("no exception")
            return
        except sinter.DeviceError as e:
            print(e)
    import numpy as np
    g = sinter.Graph()
    g.output("y", g.op("Neg", g.input("x", "f32", ["n"])))
    print("the processor runs" if sinter.compile(g)(np.ones(3, np.float32))[0] == -1 else "the processor is wrong", flush=True)
    import os
    os._exit(0)                         # the frameworks' own clean-up meets the lost device


def worker(seed):
    torch.manual_seed(seed)
    p = program("Softmax", ("f32", ["m", "n"]), axis=-1)
    good = True
    for _ in range(200):
        x = torch.randn(4096, 1024, device="cuda")
        good &= torch.allclose(torch.from_dlpack(p(x)), torch.softmax(x, -1), atol=1e-6)
    print("right" if good else "wrong", flush=True)


if len(sys.argv) > 1:
    lost() if sys.argv[1] == "lost" else worker(int(sys.argv[1]))
    sys.exit()
for part in (values, streams, memory):
    try:
        part()
    except Exception as e:
        ok(f"{part.__name__}: {type(e).__name__}: {e}", False)
said = subprocess.run([sys.executable, __file__, "lost"], capture_output=True, text=True, timeout=120)
print(said.stdout, said.stderr[-600:])
ok("a lost device is reported, and the processor still runs", said.stdout.count("the device is lost") == 2 and "the processor runs" in said.stdout)
both = [subprocess.Popen([sys.executable, __file__, str(k)], stdout=subprocess.PIPE, text=True) for k in (1, 2)]
ok("two processes on one device", [p.communicate(timeout=120)[0].strip() for p in both] == ["right", "right"])
sys.exit(failed > 0)
