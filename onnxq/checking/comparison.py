"""Compares two streams of arrays in bounded memory: sums in float64, one pass.

SQNR   = 10 log10( sum x^2 / sum (x - y)^2 )  dB       x: float, y: what quantization made of it
cosine = sum x y / sqrt( sum x^2  sum y^2 )
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.affine import dequantize
from onnxq.qparams import QParams

# float64 copies are made in pieces that stay in the cache; from 10,000 elements on, OpenBLAS splits
# a dot product over threads: 80 ns per element instead of 3 on a busy machine
CHUNK_ELEMENTS = 1 << 13


@dataclass(slots=True)
class Comparison:
    """Running sums over pairs of arrays of equal shape.

    Attributes:
        max_error: largest |x - y|; NaN as soon as one difference is NaN.
        saturated: elements of x beyond the clipping range.
        nonfinite_pairs: elements that are the same NaN or Inf on both sides.
    """

    elements: int = 0
    max_error: float = 0.0
    saturated: int = 0
    nonfinite_pairs: int = 0
    _sum_xx: float = 0.0
    _sum_yy: float = 0.0
    _sum_xy: float = 0.0
    _sum_ee: float = 0.0

    def update(
        self, x: npt.NDArray[np.generic], y: npt.NDArray[np.generic], qparams: QParams | None = None
    ) -> None:
        """Adds one pair of arrays."""
        flat_x, flat_y = x.reshape(-1), y.reshape(-1)
        limits = None if qparams is None else _limits(qparams)
        for start in range(0, flat_x.size, CHUNK_ELEMENTS):
            a, b = (flat[start : start + CHUNK_ELEMENTS] for flat in (flat_x, flat_y))
            if qparams is not None:
                b = dequantize(b.astype(qparams.dtype.storage, copy=False), qparams)
            self._add(a.astype(np.float64), b.astype(np.float64), limits)
        self.elements += flat_x.size

    def add(self, other: Comparison) -> None:
        """Adds the sums of other pairs."""
        self.elements += other.elements
        self.max_error = float(np.maximum(self.max_error, other.max_error))
        self.saturated += other.saturated
        self.nonfinite_pairs += other.nonfinite_pairs
        self._sum_xx += other._sum_xx
        self._sum_yy += other._sum_yy
        self._sum_xy += other._sum_xy
        self._sum_ee += other._sum_ee

    def _add(
        self,
        x: npt.NDArray[np.float64],
        y: npt.NDArray[np.float64],
        limits: tuple[float, float] | None,
    ) -> None:
        # a model may give NaN or Inf by itself: where both sides do, there is nothing to compare
        with np.errstate(invalid="ignore", over="ignore"):
            error = x - y
            if not math.isfinite(float(error @ error)):
                alike = ~np.isfinite(x) & ((x == y) | (np.isnan(x) & np.isnan(y)))
                self.nonfinite_pairs += int(np.count_nonzero(alike))
                x, y, error = (np.where(alike, 0.0, each) for each in (x, y, error))
            self._sum_xx += float(x @ x)
            self._sum_yy += float(y @ y)
            self._sum_xy += float(x @ y)
            self._sum_ee += float(error @ error)
            self.max_error = float(np.maximum(self.max_error, np.abs(error).max(initial=0.0)))
        if limits is not None and not (x.min() >= limits[0] and x.max() <= limits[1]):
            self.saturated += int(np.count_nonzero((x < limits[0]) | (x > limits[1])))

    @property
    def sqnr_db(self) -> float:
        """SQNR in dB; inf: equal; -inf: float is all zeros; NaN: nothing finite to compare."""
        if 0 < self.nonfinite_pairs == self.elements:
            return math.nan
        if self._sum_ee == 0.0:
            return math.inf
        if self._sum_xx == 0.0:
            return -math.inf
        return 10.0 * math.log10(self._sum_xx / self._sum_ee) if self._finite else math.nan

    @property
    def cosine(self) -> float:
        """1 for two all-zero streams, 0 where only one is all zero."""
        if not self._finite:
            return math.nan
        if self._sum_xx == 0.0 or self._sum_yy == 0.0:
            return float(self._sum_xx == self._sum_yy)
        return self._sum_xy / (math.sqrt(self._sum_xx) * math.sqrt(self._sum_yy))

    @property
    def saturated_share(self) -> float:
        """Share of all elements that are saturated; 0 for none seen."""
        return self.saturated / self.elements if self.elements else 0.0

    @property
    def _finite(self) -> bool:
        return all(map(math.isfinite, (self._sum_xx, self._sum_yy, self._sum_ee)))


def _limits(p: QParams) -> tuple[float, float]:
    """Clipping range (min, max), half an LSB included."""
    low = p.dtype.qmin - int(p.zero_point) - 0.5
    high = p.dtype.qmax - int(p.zero_point) + 0.5
    return low * float(p.scale), high * float(p.scale)


@dataclass(slots=True)
class Top1Agreement:
    """How often two classifiers name the same class.

    Attributes:
        same: rows whose argmax is equal; the first one counts among equals.
    """

    samples: int = 0
    same: int = 0

    def update(self, x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> None:
        """Adds two arrays of shape (samples, classes), classes >= 2."""
        self.samples += len(x)
        self.same += int(np.count_nonzero(x.argmax(axis=1) == y.argmax(axis=1)))

    def add(self, other: Top1Agreement) -> None:
        """Adds the counts of another one."""
        self.samples += other.samples
        self.same += other.same

    @property
    def share(self) -> float | None:
        """Share of all rows whose classes are equal; None for none seen."""
        return self.same / self.samples if self.samples else None
