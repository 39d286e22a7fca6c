"""A classifier of sounds behind a constant-Q transform: convolutions, squares, a logarithm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # its name everywhere

import onnxq
from scripts._architectures._parts import Feeds, Size, batches
from scripts._defaults.case import TOGETHER, Case, top1

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

RATE = 16000  # samples a second
LOWEST_HZ, PER_OCTAVE = 80.0, 12
FLOOR = 1e-7  # of the power; torch's exporter drops a sum with 1e-8
LOUDNESS_DB = (-45.0, 0.0)  # of the loudest sample of a sound
KINDS = 8
SIZES = {Size.REAL: (16000, 84, 2048, 256, 1600, 6), Size.TINY: (2000, 12, 256, 128, 32, 1)}
"""Samples, bands, longest kernel, hop, sounds to train on, epochs."""
TRAIN_SEED, CALIBRATION_SEED, TEST_SEED = 1, 7, 11
BATCH, PEAK_LR = 50, 4e-3


class ConstantQ(nn.Module):
    """log(cosine part squared + sine part squared) of each band; a Conv for both parts."""

    def __init__(self, bands: int, longest: int, hop: int) -> None:
        super().__init__()
        self.bands = bands
        self.filters = nn.Conv1d(1, 2 * bands, longest, hop, longest // 2, bias=False)
        kernels = torch.zeros(2 * bands, 1, longest)
        for band in range(bands):
            frequency = LOWEST_HZ * 2 ** (band / PER_OCTAVE)
            length = min(longest, int(17 * RATE / frequency))
            at = torch.arange(length) - length / 2
            window = torch.hann_window(length) / length
            start = (longest - length) // 2
            phase = 2 * math.pi * frequency / RATE * at
            kernels[band, 0, start : start + length] = window * torch.cos(phase)
            kernels[bands + band, 0, start : start + length] = window * torch.sin(phase)
        self.filters.weight = nn.Parameter(kernels, requires_grad=False)

    def forward(self, wave: Tensor) -> Tensor:
        """(N, bands, frames) of (N, samples)."""
        parts = self.filters(wave[:, None])
        power = parts[:, : self.bands] ** 2 + parts[:, self.bands :] ** 2
        return torch.log(power + FLOOR)


class Listener(nn.Module):
    """Three convolutions with ReLU that halve bands and frames, a GRU over frames, a Linear."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        c, rows = 24, bands
        convs: list[nn.Module] = [nn.BatchNorm2d(1)]
        for before, after in ((1, c), (c, 2 * c), (2 * c, 2 * c)):
            convs += [nn.Conv2d(before, after, 3, (2, 1), 1), nn.BatchNorm2d(after), nn.ReLU()]
            rows = (rows + 1) // 2
        self.convs = nn.Sequential(*convs, nn.MaxPool2d((1, 2)))
        self.gru = nn.GRU(2 * c * rows, 64, batch_first=True)
        self.head = nn.Linear(64, KINDS)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Logits (N, KINDS) of (N, bands, frames)."""
        x = self.convs(spectrum[:, None]).flatten(1, 2).transpose(1, 2)
        logits: Tensor = self.head(self.gru(x)[0].mean(1))
        return logits


class Classifier(nn.Module):
    """The transform and the listener behind it."""

    def __init__(self, bands: int, longest: int, hop: int) -> None:
        super().__init__()
        self.front, self.listener = ConstantQ(bands, longest, hop), Listener(bands)

    def forward(self, wave: Tensor) -> Tensor:
        """Logits (N, KINDS) of (N, samples)."""
        logits: Tensor = self.listener(self.front(wave))
        return logits


def sounds(
    count: int, samples: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """(waves (count, samples), kinds): tones, chords, chirps, beats, trills, clicks, noise.

    Kinds take turns; pitch, loudness, and the noise around them are drawn.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / RATE
    kinds = np.arange(count) % KINDS
    waves = np.empty((count, samples), np.float32)
    for i, kind in enumerate(kinds):
        wave = _sound(int(kind), t, rng)
        wave = wave / np.abs(wave).max()
        wave += rng.standard_normal(samples) * 10 ** (rng.uniform(-25, 2) / 20)
        waves[i] = wave * 10 ** (rng.uniform(*LOUDNESS_DB) / 20)
    return waves, kinds


def _sound(
    kind: int, t: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    hertz = rng.uniform(200, 2000)
    phase = 2 * np.pi * hertz * t
    slow = 2 * np.pi * rng.uniform(3, 9) * t
    bend = rng.uniform(0.5, 1.5) * hertz * t**2 * np.pi / t[-1]
    made = (
        lambda: np.sin(phase),
        lambda: np.sin(phase) + np.sin(1.26 * phase) + np.sin(1.5 * phase),
        lambda: np.sin(phase + bend),
        lambda: np.sin(phase - bend / 2),
        lambda: np.sin(phase) * (1 + np.sin(slow)),
        lambda: np.sin(phase + hertz / 60 * np.sin(slow)),
        lambda: np.exp(-60 * (t * 8 % 1)) * np.sin(phase),
        lambda: rng.standard_normal(len(t)) * (1 + np.sin(slow)),
    )
    return made[kind]()


def trained(module: Classifier, size: Size) -> None:
    """Trains all but the transform, for which the sounds go through it once."""
    samples, _, _, _, count, epochs = SIZES[size]
    waves, kinds = sounds(count, samples, TRAIN_SEED)
    with torch.no_grad():
        parts = [module.front(x) for x in torch.split(torch.from_numpy(waves), BATCH)]
    spectra, wanted = torch.cat(parts), torch.from_numpy(kinds)
    listener = module.listener
    steps = epochs * math.ceil(count / BATCH)
    optimizer = torch.optim.AdamW(listener.parameters(), PEAK_LR)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LR, total_steps=steps)
    listener.train()
    for _ in range(epochs):
        for chosen in torch.split(torch.randperm(count), BATCH):
            loss = F.cross_entropy(listener(spectra[chosen]), wanted[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's has no types
            optimizer.step()
            schedule.step()


def constant_q(size: Size, folder: Path) -> Case:
    """A second of sound, one of KINDS, at a loudness between 0 and -45 dB; trained here."""
    samples, bands, longest, hop, _, _ = SIZES[size]
    torch.manual_seed(0)
    module = Classifier(bands, longest, hop)
    trained(module, size)
    calibration, _ = sounds(32, samples, CALIBRATION_SEED)
    test, kinds = sounds(200 if size is Size.REAL else 16, samples, TEST_SEED)

    def feeds(waves: npt.NDArray[np.float32]) -> Feeds:
        return {"wave": torch.from_numpy(waves)}

    path = folder / "float.onnx"
    onnxq.export(module.eval(), feeds(calibration[:2]), path)
    return Case(
        path,
        batches(feeds(calibration), TOGETHER),
        batches(feeds(test), TOGETHER),
        {"": {"wave": test[:1]}},
        top1(kinds),
    )
