"""Parts of an output whose power differs, such as boxes beside scores: each has its own SQNR.

The SQNR of a whole output is that of its loudest part. A detector's boxes (0 to 640) hide what
happens to the scores (0 to 1) beside them in one tensor. So each axis of constant size n is asked:

    S_i = mean over samples and all other axes of x[i]^2
    loud  = {i: S_i >= max S / 100}                             quiet = the rest

An axis counts where no slice lies between the two, within 10 dB of both, as in spectra and logits;
where every sample has the quiet slices at least 10 dB below the loud ones; and where each slice has
64 numbers or more: a pause in a recording, or padding of another length in each sample, moves from
sample to sample, and a channel does not. Axis 0 is that of the samples. The axis with the largest
ratio is taken; the quiet part is parted again, three parts at most; scores (0 to 1) stay together.
Slices of zeros, and of scores that never exceed 0.05, belong to no part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.quantized.output_part import OutputPart

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LOUD = 1e-2
"""Least power of a loud slice, as a share of the largest: 20 dB."""
CONSISTENT = 1e-1
"""Most power of quiet slices in any sample, as a share of that of the loud ones: 10 dB."""
GAP = 1e-1
"""Most power of a quiet slice, as a share of the least of a loud one: 10 dB."""
LEAST_VALUES = 64
"""Numbers of a slice over all samples; the power of fewer is chance."""
MOST_SLICES = 4096
"""Longest axis that is looked at: longer ones are of samples in time, or of places."""
MOST_PARTS = 3
LEAST_SCORE = 0.05
"""Largest score of a slice that no threshold of a detector or classifier ever takes."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Sums along one axis.

    Attributes:
        signal: per batch (samples, n): sum of x^2 over the other axes.
        noise: (n,): sum of (x - y)^2 over all.
        values: numbers of one slice so far.
        least, most: (n,): of x.
    """

    signal: tuple[Doubles, ...]
    noise: Doubles
    values: int
    least: Doubles
    most: Doubles

    def __add__(self, later: _Axis) -> _Axis:
        return _Axis(
            (*self.signal, *later.signal),
            self.noise + later.noise,
            self.values + later.values,
            np.minimum(self.least, later.least),
            np.maximum(self.most, later.most),
        )


def _sums(axis: int, x: Doubles, squares: Doubles, noise: Doubles) -> _Axis:
    others = tuple(a for a in range(1, x.ndim) if a != axis)
    rest = (0, *others)
    return _Axis(
        (squares.sum(axis=others),),
        noise.sum(axis=rest),
        x.size // x.shape[axis],
        x.min(axis=rest),
        x.max(axis=rest),
    )


@dataclass(slots=True)
class PartSums:
    """Running sums of an output x of the float model and y of the quantized one, by slices."""

    _axes: dict[int, _Axis] = field(default_factory=dict)
    _sizes: tuple[int, ...] | None = None

    def update(self, x: Array, y: Array) -> None:
        """Adds a batch.

        Args:
            x: floats (samples, ...) of the float model.
            y: those of the quantized one, of the same shape.
        """
        batch = PartSums({}, x.shape[1:])
        wanted = [a for a, size in enumerate(x.shape) if a and 1 < size <= MOST_SLICES]
        if wanted and x.size and x.dtype.kind == "f":
            x64 = x.astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):  # `_parts` leaves Inf and NaN out
                squares, noise = x64 * x64, np.square(x64 - y.astype(np.float64))
            batch._axes = {axis: _sums(axis, x64, squares, noise) for axis in wanted}
        self.add(batch)

    def add(self, later: PartSums) -> None:
        """Adds the sums of later batches; axes whose size changes are left out."""
        if self._sizes is None:
            self._axes, self._sizes = later._axes, later._sizes
        elif later._sizes is not None:
            same = len(self._sizes) == len(later._sizes)
            shared = [
                axis
                for axis in self._axes.keys() & later._axes.keys()
                if same and self._sizes[axis - 1] == later._sizes[axis - 1]
            ]
            self._axes = {axis: self._axes[axis] + later._axes[axis] for axis in sorted(shared)}

    def worst(self, whole_db: float) -> OutputPart | None:
        """The part of least SQNR; None: the output has no parts, or none is below the whole."""
        looked = [_parts(axis, sums) for axis, sums in self._axes.items()]
        found = [parts for parts in looked if parts is not None]
        if not found:
            return None
        loudest = max(found, key=lambda pair: pair[0])
        worst = min(loudest[1], key=lambda part: part.sqnr_db)
        return worst if worst.sqnr_db < whole_db else None


def _parts(axis: int, sums: _Axis) -> tuple[float, list[OutputPart]] | None:
    """(power of the loudest over that of the next, parts); None: it has no parts."""
    signal = np.concatenate(sums.signal)
    finite = np.isfinite(signal).all() and np.isfinite(sums.noise).all()
    if sums.values < LEAST_VALUES or not finite:
        return None
    left = (signal.sum(axis=0) > 0) & ~_never_taken(sums)
    if not left.any():
        return None
    parts: list[OutputPart] = []
    ratio = 0.0
    while left.any() and len(parts) < MOST_PARTS:
        is_last = len(parts) == MOST_PARTS - 1 or (parts and _are_scores(sums, left))
        loud = left if is_last else _loud(signal, left)
        if not parts:
            if (loud == left).all():
                return None
            ratio = float(signal[:, loud].mean() / signal[:, left & ~loud].mean())
        power, noise = float(signal[:, loud].sum()), float(sums.noise[loud].sum())
        db = float("inf") if noise == 0 else 10 * np.log10(power / noise)
        parts.append(OutputPart(axis, tuple(np.flatnonzero(loud).tolist()), float(db)))
        left = left & ~loud
    return ratio, parts


def _are_scores(sums: _Axis, slices: Mask) -> bool:
    return bool((sums.least[slices] >= 0).all() and (sums.most[slices] <= 1).all())


def _never_taken(sums: _Axis) -> Mask:
    """Slices of scores that are near zero in all samples."""
    never: Mask = (sums.least >= 0) & (sums.most <= LEAST_SCORE)
    return never if sums.most.max() > LEAST_SCORE else np.zeros_like(never)


def _loud(signal: Doubles, left: Mask) -> Mask:
    """The loud ones of the slices that are left; all, where the rest is not quiet in a sample."""
    power = signal.sum(axis=0)
    loud = left & (power >= LOUD * power[left].max())
    quiet = left & ~loud
    if not quiet.any() or power[quiet].max() > GAP * power[loud].min():
        return left
    by_sample = signal[:, quiet].mean(axis=1) <= CONSISTENT * signal[:, loud].mean(axis=1)
    return loud if by_sample.all() else left
