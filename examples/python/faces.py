"""Faces in a picture, with the Ultra-Light face detector (ulfd_RFB-320.onnx).

    python faces.py MODEL PICTURE.npy [--threshold 0.7]

PICTURE.npy is an array uint8[height,width,3], red green blue. Prints one JSON object a line: the box in pixels and its score. With onnxruntime
instead of sinter only the import line changes.
"""
import argparse
import json

import numpy as np

import sinter as onnxruntime


def resized(picture, width, height):
    """Bilinear, pixel centres at half."""
    def along(a, n, axis):
        at = np.clip((np.arange(n) + 0.5) * a.shape[axis] / n - 0.5, 0, a.shape[axis] - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, a.shape[axis] - 1)
        part = (at - low).astype(np.float32).reshape([-1 if k == axis else 1 for k in range(a.ndim)])
        return np.take(a, low, axis) * (1 - part) + np.take(a, high, axis) * part
    return along(along(picture.astype(np.float32), height, 0), width, 1)


def overlap(box, boxes):
    """Area of the intersection over that of the union."""
    size = np.clip(np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2]), 0, None)
    both = size[:, 0] * size[:, 1]
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) + np.prod(box[2:] - box[:2])
    return both / (area - both + 1e-9)


def suppressed(boxes, scores, limit=0.3):
    """Of boxes that overlap keeps the best."""
    kept = []
    order = np.argsort(-scores, kind="stable")
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        order = order[overlap(boxes[best], boxes[order]) <= limit]
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("picture")
    parser.add_argument("--threshold", type=float, default=0.7)
    args = parser.parse_args()

    session = onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    _, _, height, width = session.get_inputs()[0].shape

    picture = np.load(args.picture)
    x = (resized(picture, width, height) - 127) / 128
    x = np.expand_dims(np.transpose(x, (2, 0, 1)), 0).astype(np.float32)
    scores, boxes = session.run(None, {name: x})

    faces = scores[0, :, 1]
    chosen = faces > args.threshold
    boxes, faces = boxes[0][chosen], faces[chosen]
    size = np.array([picture.shape[1], picture.shape[0]] * 2, np.float32)
    for i in suppressed(boxes, faces):
        print(json.dumps({"box": [round(float(v), 2) for v in boxes[i] * size], "score": round(float(faces[i]), 4)}))


if __name__ == "__main__":
    main()
