"""Speech among noise: without recordings, a voice is synthesized as pulses through formants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import SILERO

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.core.arrays import Singles

    Doubles = npt.NDArray[np.float64]

RATE, CHUNK, CONTEXT = 16_000, 512, 64
"""Samples a second, per call, and of the call before that are given again."""
VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480))
"""Formants of a, i, u, e in Hz (Peterson and Barney 1952, men)."""
SCORED = (11, 12, 13)
"""Seeds of the stretches that are scored."""
VARIANTS = ("silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless", "silero_vad_half")


def voice(seconds: float, random: np.random.Generator) -> Singles:
    """Syllables of 0.2 s: a gliding pitch, one vowel each, loud in the middle."""
    parts = []
    for _ in range(round(seconds / 0.2)):
        time = np.arange(int(0.2 * RATE)) / RATE
        pitch = random.uniform(100, 160) * (1 + 0.3 * time)
        phase = np.cumsum(pitch) / RATE
        sound = np.diff(np.floor(phase), prepend=0) + 0.01 * random.standard_normal(time.size)
        for formant in VOWELS[random.integers(len(VOWELS))]:
            sound = _resonance(sound, formant, 80)
        parts.append(sound / np.abs(sound).max() * np.sin(np.pi * time / 0.2) ** 0.5)
    return (0.4 * np.concatenate(parts)).astype(np.float32)


def _resonance(sound: Doubles, hertz: float, width: float) -> Doubles:
    """A second-order resonator (Klatt 1980)."""
    r = np.exp(-np.pi * width / RATE)
    b, c = 2 * r * np.cos(2 * np.pi * hertz / RATE), -(r**2)
    out = np.zeros(len(sound) + 2)
    for i, x in enumerate(sound):
        out[i + 2] = (1 - b - c) * x + b * out[i + 1] + c * out[i]
    return out[2:]


def stretch(seed: int) -> tuple[Singles, npt.NDArray[np.bool_]]:
    """(4 s of noise, voice, noise, voice; per chunk whether there is a voice)."""
    random = np.random.default_rng(seed)
    voiced = np.repeat([0.0, 1.0, 0.0, 1.0], RATE)
    spoken = np.concatenate([np.zeros(RATE), voice(1, random), np.zeros(RATE), voice(1, random)])
    sound = spoken + random.uniform(0.002, 0.02) * random.standard_normal(4 * RATE)
    chunks = len(sound) // CHUNK
    is_voice = voiced[: chunks * CHUNK].reshape(chunks, CHUNK).mean(1) > 0.5
    return sound.astype(np.float32), is_voice


def fed(sound: Singles, inputs: tuple[str, ...]) -> list[Batch]:
    """A batch per chunk, each with the end of the one before, and with a state of zeros."""
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    others = {"state": np.zeros((2, 1, 128), np.float32), "sr": np.array(RATE)}
    return [
        {"input": padded[None, i : i + CONTEXT + CHUNK]} | {n: others[n] for n in inputs}
        for i in range(0, len(sound) - CHUNK + 1, CHUNK)
    ]


def activity(variant: str) -> Task:
    """Area under the curve of the probability of speech: chunks with a voice against the others."""
    inputs = ("state",) if variant == "silero_vad_half" else ("state", "sr")

    def score(predict: Predict) -> float:
        right: list[float] = []
        for seed in SCORED:
            sound, is_voice = stretch(seed)
            state: Batch = {}
            found: list[float] = []
            for batch in fed(sound, inputs):
                probability, new = predict({**batch, **state})
                state = {"state": new}
                found.append(float(probability.ravel()[0]))
            scores = np.array(found)
            pairs = scores[is_voice][:, None] - scores[~is_voice][None]
            right.append(float((pairs > 0).mean() + 0.5 * (pairs == 0).mean()))
        return float(np.mean(right))

    path = SILERO.extract(f"silero_vad/data/{variant}.onnx")
    first, *others = fed(stretch(10)[0], inputs)[20:80]
    samples = [first, *({k: x for k, x in batch.items() if k != "state"} for batch in others)]
    chunks, name = len(SCORED) * (4 * RATE // CHUNK), variant.replace("_", " ")
    measure, feedback = "area under the curve", {"stateN": "state"}
    return Task(name, path, samples, score, measure, chunks, feedback)
