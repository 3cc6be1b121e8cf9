"""Where somebody speaks, with the Silero voice detector (silero_vad_v6.onnx), over a stream.

    python speech.py MODEL SOUND.wav [--threshold 0.5]

SOUND.wav is mono, 16 bits, 16 or 8 kHz. It is read in windows of 32 ms; the network's state and the end of the window before go into the next run.
Prints a JSON object with the probability of each window, then one for each stretch of speech, in seconds. With onnxruntime only the import line changes.
"""
import argparse
import json
import wave

import numpy as np

import sinter as onnxruntime


class Detector:
    """The probability of speech in one window after the other."""

    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = 1
        if "CPUExecutionProvider" in onnxruntime.get_available_providers():
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"], sess_options=options)
        else:
            self.session = onnxruntime.InferenceSession(path, sess_options=options)
        self.reset()

    def reset(self):
        self.state = np.zeros((2, 1, 128), dtype=np.float32)
        self.context = np.zeros((1, 0), dtype=np.float32)

    def __call__(self, window, rate):
        size = 64 if rate == 16000 else 32
        if not self.context.shape[1]:
            self.context = np.zeros((1, size), dtype=np.float32)
        x = np.concatenate([self.context, window[np.newaxis]], axis=1)
        output, self.state = self.session.run(None, {"input": x, "state": self.state, "sr": np.array(rate, dtype="int64")})
        self.context = x[:, -size:]
        return float(output[0, 0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("sound")
    parser.add_argument("--threshold", type=float, default=0.5)
    args = parser.parse_args()

    with wave.open(args.sound) as f:
        rate = f.getframerate()
        if f.getnchannels() != 1 or f.getsampwidth() != 2 or rate not in (8000, 16000):
            raise SystemExit("wanted: mono, 16 bits, 16000 or 8000 samples a second")
        sound = np.frombuffer(f.readframes(f.getnframes()), dtype="<i2").astype(np.float32) / 32768

    detector = Detector(args.model)
    step = 512 if rate == 16000 else 256
    speech = []
    for at in range(0, len(sound), step):
        window = sound[at:at + step]
        speech.append(detector(np.pad(window, (0, step - len(window))), rate))
    print(json.dumps({"windows": [round(p, 4) for p in speech]}))
    start = None
    for i, p in enumerate(speech + [0.0]):
        if p >= args.threshold and start is None:
            start = i
        elif p < args.threshold and start is not None:
            print(json.dumps({"from": round(start * step / rate, 3), "to": round(i * step / rate, 3)}))
            start = None


if __name__ == "__main__":
    main()
