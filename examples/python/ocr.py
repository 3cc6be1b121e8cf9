"""The text of a line, with a PaddleOCR recogniser (ppocrv4_rec.onnx) and CTC decoding.

    python ocr.py MODEL LINE.npy... [--characters FILE]

LINE.npy is an array uint8[height,width,3]. The characters come from the model's metadata, or from FILE, one a line; without either the numbers of
the classes are printed. Lines are recognised in one batch. Prints one JSON object for each. With onnxruntime only the import line changes.
"""
import argparse
import json

import numpy as np

import sinter as onnxruntime

HEIGHT = 48


def prepared(line, width):
    """Scaled to the height, values in [-1,1], padded with zeros."""
    wide = min(width, max(1, round(line.shape[1] * HEIGHT / line.shape[0])))
    rows = np.minimum((np.arange(HEIGHT) + 0.5) * line.shape[0] / HEIGHT, line.shape[0] - 1).astype(int)
    columns = np.minimum((np.arange(wide) + 0.5) * line.shape[1] / wide, line.shape[1] - 1).astype(int)
    x = line[rows][:, columns].astype(np.float32) / 255
    out = np.zeros((3, HEIGHT, width), np.float32)
    out[:, :, :wide] = (x.transpose(2, 0, 1) - 0.5) / 0.5
    return out


def decoded(probabilities, characters):
    """Greedy CTC: the best class of each step, repetitions and blanks (class 0) left out."""
    best = probabilities.argmax(axis=1)
    keep = best != 0
    keep[1:] &= best[1:] != best[:-1]
    classes = best[keep]
    confidence = probabilities.max(axis=1)[keep]
    text = "".join(characters[c - 1] if c <= len(characters) else " " for c in classes) if characters else " ".join(map(str, classes))
    return text, float(confidence.mean()) if len(confidence) else 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("lines", nargs="+")
    parser.add_argument("--characters")
    args = parser.parse_args()

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(args.model, sess_options=options, providers=[("CPUExecutionProvider", {})])

    characters = session.get_modelmeta().custom_metadata_map.get("character", "").splitlines()
    if args.characters:
        with open(args.characters, encoding="utf-8") as f:
            characters = f.read().splitlines()

    lines = [np.load(path) for path in args.lines]
    width = max(32, max(-(-line.shape[1] * HEIGHT // line.shape[0]) for line in lines))
    batch = np.stack([prepared(line, width) for line in lines])
    outputs = session.run([session.get_outputs()[0].name], {session.get_inputs()[0].name: batch})
    for probabilities in outputs[0]:
        text, confidence = decoded(probabilities, characters)
        print(json.dumps({"text": text, "score": round(confidence, 4)}))


if __name__ == "__main__":
    main()
