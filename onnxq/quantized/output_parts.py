"""Parts of an output whose power differs from the rest, such as scores beside boxes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Array
from onnxq.quantized.output_verdict import OutputPart

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
MOST_KEPT = 256
"""Samples whose powers are kept one by one: memory does not grow with the samples."""
LOST = 0.5
"""Noise of a lost slice, as a share of its power: 3 dB."""
LEAST_DROP_DB = 0.1
"""A part that is less below the whole is not named: decibels are said with one digit."""
LEAST_SCORE = 0.05
"""Largest score of a slice that no threshold of a detector or classifier ever takes."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Sums along one axis.

    Attributes:
        signal: (n,): sum of x^2 over all.
        by_sample: per batch (samples, n): sum of x^2 of the first MOST_KEPT samples one by one.
        noise: (n,): sum of (x - y)^2 over all.
        values: numbers of one slice so far.
        least, most: (n,): of x.
    """

    signal: Doubles
    by_sample: tuple[Doubles, ...]
    noise: Doubles
    values: int
    least: Doubles
    most: Doubles

    @property
    def is_enough(self) -> bool:
        """Whether each slice has enough numbers, all of them finite."""
        finite = np.isfinite(self.signal).all() and np.isfinite(self.noise).all()
        return self.values >= LEAST_VALUES and bool(finite)

    def __add__(self, later: _Axis) -> _Axis:
        left = MOST_KEPT - sum(map(len, self.by_sample))
        more = (rows[:left] for rows in later.by_sample) if left > 0 else ()
        return _Axis(
            self.signal + later.signal,
            (*self.by_sample, *more),
            self.noise + later.noise,
            self.values + later.values,
            np.minimum(self.least, later.least),
            np.maximum(self.most, later.most),
        )


def _sums(axis: int, x: Doubles, squares: Doubles, noise: Doubles) -> _Axis:
    others = tuple(a for a in range(1, x.ndim) if a != axis)
    rest = (0, *others)
    by_sample = squares.sum(axis=others)
    return _Axis(
        by_sample.sum(axis=0),
        (by_sample[:MOST_KEPT],),
        noise.sum(axis=rest),
        x.size // x.shape[axis],
        x.min(axis=rest),
        x.max(axis=rest),
    )


@dataclass(slots=True)
class PartSums:
    """Running sums of an output x of the float model and y of the quantized one, by slices.

    The SQNR of a whole output is that of its loudest part. A detector's boxes (0 to 640) hide what
    happens to the scores (0 to 1) beside them in one tensor. So each axis of constant size n is
    asked:

        S_i = mean over samples and all other axes of x[i]^2
        loud  = {i: S_i >= max S / 100}                             quiet = the rest

    An axis counts where no slice lies between the two, within 10 dB of both, as in spectra and
    logits; where each of the first 256 samples has the quiet slices at least 10 dB below the
    loud ones; and where each slice has 64 numbers or more: a pause in a recording, or padding
    of another length in each sample, moves from sample to sample, and a channel does not. Axis
    0 is that of the samples; of pictures, (N, C, H, W) or (N, H, W, C), the channels alone are
    asked. The axis with the largest ratio is taken; the quiet part is parted again, three parts at
    most; scores (0 to 1) stay together. Slices of zeros, and of scores that never exceed 0.05,
    belong to no part.

    In a part, and in an output without parts, loud slices of 3 dB or less are lost, such as a dead
    class: they are the part that is named where the others have 13 dB or more.
    """

    _axes: dict[int, _Axis] = field(default_factory=dict)
    _sizes: tuple[int, ...] | None = None

    @property
    def axes(self) -> list[int]:
        """Axes of constant size so far, that may have parts."""
        return sorted(self._axes)

    def update(self, x: Array, y: Array) -> None:
        """Adds a batch.

        Args:
            x: floats (samples, ...) of the float model.
            y: those of the quantized one, of the same shape.
        """
        batch = PartSums({}, x.shape[1:])
        wanted = [a for a in _asked(x.shape) if 1 < x.shape[a] <= MOST_SLICES]
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

    def parts(self) -> list[OutputPart]:
        """The parts, loudest first; none: the output is one."""
        looked = [_parts(axis, sums) for axis, sums in self._axes.items() if sums.is_enough]
        found = [parts for parts in looked if parts is not None]
        return max(found, key=lambda pair: pair[0])[1] if found else []

    def worst(self, whole_db: float) -> OutputPart | None:
        """The part of least SQNR; None: no parts, or none is LEAST_DROP_DB below the whole."""
        parts, axes = self.parts(), self._axes
        whole = [(axis, np.arange(len(s.signal))) for axis, s in axes.items() if s.is_enough]
        if parts:
            whole = [(part.axis, np.array(part.slices)) for part in parts]
        lost = [_lost(axis, slices, axes[axis]) for axis, slices in whole]
        named = [part for part in (*lost, *parts) if part is not None]
        worst = min(named, key=lambda part: part.sqnr_db, default=None)
        return worst if worst is not None and worst.sqnr_db < whole_db - LEAST_DROP_DB else None


def _parts(axis: int, sums: _Axis) -> tuple[float, list[OutputPart]] | None:
    """(power of the loudest over that of the next, parts); None: it has no parts."""
    signal, by_sample = sums.signal, np.concatenate(sums.by_sample)
    left = (signal > 0) & ~_never_taken(sums)
    if not left.any():
        return None
    parts: list[OutputPart] = []
    ratio = 0.0
    while left.any() and len(parts) < MOST_PARTS:
        is_held_apart = len(parts) == MOST_PARTS - 1 or (
            parts and (sums.least[left] >= 0).all() and (sums.most[left] <= 1).all()
        )  # scores
        loud = left if is_held_apart else _loud(signal, by_sample, left)
        if not parts:
            if (loud == left).all():
                return None
            ratio = float(signal[loud].mean() / signal[left & ~loud].mean())
        parts.append(_part(axis, np.flatnonzero(loud), sums))
        left = left & ~loud
    return ratio, parts


def _asked(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that may be of channels; of four, the last where it is shortest, or behind a square."""
    last = len(shape) - 1
    if last < 3:
        return tuple(range(1, last + 1))
    if last > 3:
        return 1, last
    first, middle, size = shape[1:]
    is_held_apart = size < min(first, middle) or (first == middle != size)
    return (last if is_held_apart and first > 1 else 1,)


def _part(axis: int, slices: npt.NDArray[np.intp], sums: _Axis) -> OutputPart:
    power, noise = float(sums.signal[slices].sum()), float(sums.noise[slices].sum())
    db = float("inf") if noise == 0 else 10 * np.log10(power / noise)
    return OutputPart(axis, tuple(slices.tolist()), float(db))


def _lost(axis: int, slices: npt.NDArray[np.intp], sums: _Axis) -> OutputPart | None:
    """The lost ones of slices; None: none is, or the others are not much better."""
    signal, noise = sums.signal[slices], sums.noise[slices]
    lost = (noise >= LOST * signal) & (signal >= LOUD * signal.max()) & (signal > 0)
    is_rest_well = noise[~lost].sum() <= LOST * GAP * signal[~lost].sum()
    if not lost.any() or 2 * lost.sum() > len(lost) or not is_rest_well:
        return None
    return _part(axis, slices[lost], sums)


def _never_taken(sums: _Axis) -> Mask:
    """Slices of scores that are near zero in all samples."""
    never: Mask = (sums.least >= 0) & (sums.most <= LEAST_SCORE)
    return never if sums.most.max() > LEAST_SCORE else np.zeros_like(never)


def _loud(power: Doubles, by_sample: Doubles, left: Mask) -> Mask:
    """The loud ones of the slices that are left; all, where the rest is not quiet in a sample."""
    loud = left & (power >= LOUD * power[left].max())
    quiet = left & ~loud
    if not quiet.any() or power[quiet].max() > GAP * power[loud].min():
        return left
    quiet_power, loud_power = (by_sample[:, each].mean(axis=1) for each in (quiet, loud))
    return loud if (quiet_power <= CONSISTENT * loud_power).all() else left
