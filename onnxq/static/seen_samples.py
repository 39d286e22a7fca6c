"""How the samples of a calibration looked, and notes on those that look like a mistake."""

from __future__ import annotations

from collections.abc import (
    Collection,
    Mapping,  # the codec reads annotations at run time
)
from dataclasses import dataclass, field

import numpy as np

from onnxq.core.arrays import Array

FEW = 100  # samples that are usual: 100 to 500
PIXELS = (128.0, 255.0)
"""Bounds of the largest value of whole numbers from 0 on that are taken for pixels."""

STATE = (
    "If it is state, name the output that it comes from (--feedback) and leave it out of the "
    "samples, but for the first of each sequence."
)
"""Remedy where an input begins as zeros, and is given so every time."""


@dataclass(frozen=True, slots=True)
class SeenInput:
    """Values that one input had, over all samples."""

    minimum: float
    maximum: float
    are_whole: bool

    def merged(self, other: SeenInput) -> SeenInput:
        """Values of both."""
        return SeenInput(
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            self.are_whole and other.are_whole,
        )

    def notes(self, name: str) -> list[str]:
        """A note if the values are all the same, or look like pixels as they are in a file."""
        if self.minimum == self.maximum:
            remedy = "Check the samples." if self.minimum else f"Check the samples. {STATE}"
            return [
                f"input '{name}' is {self.minimum:g} everywhere in all samples: what the model "
                f"computes from other values was not seen. {remedy}"
            ]
        if self.are_whole and self.minimum >= 0 and PIXELS[0] <= self.maximum <= PIXELS[1]:
            return [
                f"input '{name}' has whole numbers from {self.minimum:g} to {self.maximum:g}, as "
                "pixels in a file have. Unless the model scales them itself, preprocess the "
                "samples as in training (scale, normalize)."
            ]
        return []


@dataclass(frozen=True, slots=True)
class SeenSamples:
    """Samples of a calibration, as far as mistakes show.

    Attributes:
        count: number of samples, where batches have an axis of them, else of batches.
        inputs: values of each input of floats; numbers of rank 0 are left out.
        shapes: of one sample, a batch of 1: the largest size that each axis of each input had.
            Times are predicted at them, and long samples take most of it.
    """

    count: int = 0
    inputs: Mapping[str, SeenInput] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(batch: Mapping[str, Array], sliced: Collection[str]) -> SeenSamples:
        """Samples of one batch."""
        rows = [array.shape[0] for name, array in batch.items() if name in sliced and array.ndim]
        floats = {n: x for n, x in batch.items() if x.dtype.kind == "f" and x.ndim and x.size}
        shapes = {
            name: (1, *array.shape[1:]) if name in sliced and array.ndim else array.shape
            for name, array in batch.items()
        }
        return SeenSamples(max(rows, default=1), {n: _seen(x) for n, x in floats.items()}, shapes)

    def merged(self, other: SeenSamples) -> SeenSamples:
        """Samples of both."""
        inputs = dict(self.inputs)
        for name, seen in other.inputs.items():
            inputs[name] = seen.merged(inputs[name]) if name in inputs else seen
        shapes = dict(self.shapes)
        for name, shape in other.shapes.items():
            known = shapes.get(name, ())  # of the higher rank, where ranks differ
            is_alike = len(shape) == len(known)
            shapes[name] = tuple(map(max, shape, known)) if is_alike else max(shape, known, key=len)
        return SeenSamples(
            self.count + other.count, dict(sorted(inputs.items())), dict(sorted(shapes.items()))
        )

    def notes(self) -> list[str]:
        """Notes on samples that look like a mistake."""
        few = []
        if self.count == 1:
            few = [f"calibrated on one sample; {FEW} to {5 * FEW} are usual. Give more."]
        return few + [note for name, seen in self.inputs.items() for note in seen.notes(name)]


def _seen(x: Array) -> SeenInput:
    low, high = float(x.min()), float(x.max())
    in_range = low >= 0 and high <= PIXELS[1]  # elsewhere nobody asks
    return SeenInput(low, high, in_range and bool((np.rint(x) == x).all()))
