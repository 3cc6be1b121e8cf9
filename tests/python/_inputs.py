"""_inputs.py OUT: a picture with a face, two lines of text, and speech-like sound for examples/python, all drawn."""
import pathlib
import sys
import wave

import numpy as np

out = pathlib.Path(sys.argv[1])


def smooth(a, times):
    for _ in range(times):
        a = (np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) + 4 * a) / 8
    return a


def bytes_of(a):
    return np.clip(np.round(a), 0, 255).astype(np.uint8)


def face(picture, x0, y0, size):
    """Ovals: hair, face, eyes, brows, nose, mouth, shoulders."""
    y, x = np.mgrid[:picture.shape[0], :picture.shape[1]].astype(float)
    for dx, dy, rx, ry, colour in (
            (0, -.25, .95, 1.15, (50, 35, 25)), (0, .1, .78, 1.0, (215, 170, 140)), (-.32, -.08, .17, .09, (245, 245, 245)), (.32, -.08, .17, .09, (245, 245, 245)),
            (-.32, -.08, .08, .08, (40, 30, 30)), (.32, -.08, .08, .08, (40, 30, 30)), (-.32, -.27, .22, .05, (60, 40, 30)), (.32, -.27, .22, .05, (60, 40, 30)),
            (0, .22, .10, .18, (190, 140, 115)), (0, .55, .3, .09, (170, 70, 70)), (0, 1.6, .9, .6, (60, 80, 150))):
        picture[((x - x0 - dx * size) / (rx * size)) ** 2 + ((y - y0 - dy * size) / (ry * size)) ** 2 < 1] = colour


picture = np.empty((360, 480, 3))
picture[...] = (90, 110, 130)
picture += np.linspace(0, 40, 360)[:, None, None]
face(picture, 150, 150, 60)
face(picture, 340, 190, 70)
np.save(out / "picture.npy", bytes_of(smooth(picture, 6)))

DIGITS = ("01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110", "01110 10001 00001 00110 01000 10000 11111",
          "01110 10001 00001 00110 00001 10001 01110", "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
          "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000", "01110 10001 10001 01110 10001 10001 01110",
          "01110 10001 10001 01111 00001 00010 01100")
for k, text in enumerate(("2718281828", "31415926")):
    glyphs = [np.array([[int(b) for b in row] for row in DIGITS[int(c)].split()]) for c in text]
    line = np.concatenate([np.pad(g, ((2, 2), (1, 1))) for g in glyphs], axis=1)
    ink = smooth(np.kron(line, np.ones((5, 4))).astype(float), 4)
    np.save(out / f"line{k}.npy", bytes_of(np.repeat((235 - 200 * ink)[..., None], 3, axis=2)))

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
