"""_inputs.py MODELS OUT: pictures and sound for examples/python, from the models' own test inputs where there are some."""
import pathlib
import sys
import wave

import numpy as np
import onnx
from onnx import numpy_helper

models, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def tensor(path):
    t = onnx.TensorProto()
    t.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(t)


def picture(x, scale, shift):
    return np.clip(np.round(x.transpose(1, 2, 0) * scale + shift), 0, 255).astype(np.uint8)


np.save(out / "picture.npy", picture(tensor(models / "ulfd_RFB-320/test_data_set_0/input_0.pb")[0], 128, 127))
for k in range(2):
    np.save(out / f"line{k}.npy", picture(tensor(models / f"ppocrv4_rec/test_data_set_{k}/input_0.pb")[0], 127.5, 127.5))

# Four seconds: vowels (harmonics of a gliding pitch under formants, in syllables) between stretches of noise.
rate = 16000
t = np.arange(4 * rate) / rate
phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.7 * t)) / rate
voice = sum(np.sin(k * phase) * sum(np.exp(-((k * 120 - f) / 150.0) ** 2) for f in (700, 1200, 2600)) for k in range(1, 26))
voice *= np.clip(np.sin(2 * np.pi * 4 * t), 0, 1) * (np.floor(t) % 2 == 1)
sound = 0.2 * voice + 0.003 * np.random.default_rng(5).standard_normal(len(t))
with wave.open(str(out / "sound.wav"), "wb") as f:
    f.setnchannels(1)
    f.setsampwidth(2)
    f.setframerate(rate)
    f.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
