"""The file formats of demo.sh: magika's wheel, what its model reads, and .npy files. Standard library only.

    demo.py unpack WHEEL DIR        takes the model and its two tables out of the wheel
    demo.py bytes FILE DIR          writes DIR/bytes.npy: what the model reads of FILE
    demo.py answer FILE DIR OUT     prints what the model said: OUT holds its output
    demo.py agree OUT1 OUT2         compares two outputs; status 1 when they differ

The input is made as magika's own code makes it (magika.py, "features extraction v2"): the first and the last 4,096
bytes, without white space at the file's begin and end; of these the first and the last 1,024; 256 where there are
fewer. The numbers are read from the model's own config.
"""
import signal
for s in (signal.SIGINT, signal.SIGPIPE):            # end without a traceback, also while the rest is loaded
    signal.signal(s, signal.SIG_DFL)
import json
import os
import struct
import sys
import zipfile


def unpack(wheel, folder):
    """Written under another name first: an interrupted run leaves nothing that looks complete."""
    wanted = {"/model.onnx": "model.onnx", "/config.min.json": "config.json", "content_types_kb.min.json": "types.json"}
    with zipfile.ZipFile(wheel) as z:
        for ending, name in wanted.items():
            inside = [n for n in z.namelist() if n.endswith(ending)]
            if len(inside) != 1:
                sys.exit("the wheel holds %d files '%s', wanted one" % (len(inside), ending))
            path = os.path.join(folder, name)
            with open(path + ".part", "wb") as f:
                f.write(z.read(inside[0]))
            os.replace(path + ".part", path)


def load(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return json.load(f)


def npy_write(path, code, values):
    """A .npy file of version 1.0 with the shape [1, len(values)]."""
    header = "{'descr': '<%s4', 'fortran_order': False, 'shape': (1, %d), }" % (code, len(values))
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("ascii"))
        f.write(struct.pack("<%d%s" % (len(values), code), *values))


def npy_read(path):
    """The float32 elements of a .npy file."""
    with open(path, "rb") as f:
        data = f.read()
    wide = data[6] > 1
    size = struct.unpack_from("<I" if wide else "<H", data, 8)[0]
    start = 8 + (4 if wide else 2) + size
    if data[:6] != b"\x93NUMPY" or b"'<f4'" not in data[:start]:
        sys.exit("%s is no .npy file of float32" % path)
    return struct.unpack("<%df" % ((len(data) - start) // 4), data[start:])


def outputs(folder):
    """The model has one output: what `sinter run -o` wrote."""
    return npy_read(os.path.join(folder, "target_label.npy"))


def write_bytes(path, folder):
    config = load(folder, "config.json")
    beg, end, block, pad = (config[k] for k in ("beg_size", "end_size", "block_size", "padding_token"))
    if config["mid_size"] or config["use_inputs_at_offsets"]:
        sys.exit("the model wants parts of the file that this demonstration does not read")
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        first = f.read(block)
        f.seek(max(0, size - block))
        last = f.read(block)
    head = list(first.lstrip()[:beg])
    tail = list(last.rstrip()[-end:])
    if len(head) < config["min_file_size_for_dl"]:
        try:
            kind = "txt" if first.decode("utf-8") else "empty"
        except UnicodeDecodeError:
            kind = "unknown"
        print("%s: %s (too short to ask the model; give a longer file)" % (path, kind))
        return 3
    npy_write(os.path.join(folder, "bytes.npy"), "i", head + [pad] * (beg - len(head)) + [pad] * (end - len(tail)) + tail)
    return 0


def answer(path, folder, out):
    config, types, p = load(folder, "config.json"), load(folder, "types.json"), outputs(out)
    labels = config["target_labels_space"]
    if len(p) != len(labels):
        sys.exit("%d probabilities for %d file types" % (len(p), len(labels)))
    if not abs(sum(p) - 1) < 1e-3:
        sys.exit("the probabilities add up to %g, not to 1: this result is wrong" % sum(p))
    order = sorted(range(len(p)), key=lambda i: -p[i])
    best = labels[order[0]]
    label = config["overwrite_map"].get(best, best)
    note = types.get(label, {}).get("description") or ""
    if p[order[0]] < config["thresholds"].get(best, config["medium_confidence_threshold"]):
        label = "txt" if types.get(label, {}).get("is_text") else "unknown"
        note = "too little to be sure of"
    print("%s: %s, %.1f %%%s" % (path, label if label == best else "%s (%s)" % (label, best), 100 * p[order[0]], note and " - " + note))
    print("  then " + ", ".join("%s %.2g %%" % (labels[i], 100 * p[i]) for i in order[1:4]))
    return 0


def agree(one, two):
    a, b = outputs(one), outputs(two)
    worst = max(abs(x - y) for x, y in zip(a, b)) if len(a) == len(b) else float("inf")
    same = len(a) == len(b) and a.index(max(a)) == b.index(max(b)) and all(
        abs(x - y) <= 1e-4 + 1e-3 * abs(y) for x, y in zip(a, b))
    print("fused and unfused %s: largest difference of a probability %.1e" % ("agree" if same else "DISAGREE", worst))
    return 0 if same else 1


COMMANDS = {"unpack": unpack, "bytes": write_bytes, "answer": answer, "agree": agree}
if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
