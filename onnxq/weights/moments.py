"""Moments of a layer: sums over places from which the error of any weight and bias follows.

With r = y - Wq x - b, what the layer as it is leaves over, another weight Wq + D and bias b + d
leave r - D x - d, whose mean square is

    E[rr] - 2 D E[xr] + D E[xx'] D' - 2 d E[r - D x] + d d          per row

Every term is of the size of the error, so that sums of float32 products are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """Means over places; groups g, outputs o, inputs i.

    Attributes:
        x: float64 (g, i).
        r: float64 (g, o).
        xx: float64 (g, i, i).
        rx: float64 (g, o, i).
        rr: float64 (g, o).
        yy: float64 (g, o), power of the results.
    """

    x: Reals
    r: Reals
    xx: Reals
    rx: Reals
    rr: Reals
    yy: Reals

    @property
    def centred(self) -> Means:
        """The same with the means of x and r taken off."""
        return Means(
            np.zeros_like(self.x),
            np.zeros_like(self.r),
            self.xx - self.x[:, :, np.newaxis] * self.x[:, np.newaxis, :],
            self.rx - self.r[:, :, np.newaxis] * self.x[:, np.newaxis, :],
            self.rr - np.square(self.r),
            self.yy,
        )

    def missing(self, change: Reals) -> Reals:
        """float64 (g, o): mean of what is left over with another weight, which a bias can add."""
        return np.asarray(self.r - np.einsum("goi,gi->go", change, self.x))

    def error(self, change: Reals, shift: Reals) -> Reals:
        """float64 (g, o): mean square of what is left over.

        Args:
            change: float64 (g, o, i), new weight less the layer's own.
            shift: float64 (g, o), likewise of the bias.
        """
        from_weight = np.einsum("goi,goi->go", change @ self.xx - 2 * self.rx, change)
        from_bias = np.square(shift) - 2 * shift * self.missing(change)
        return np.asarray(self.rr + from_weight + from_bias)


class Sums:
    """Sums of rows and of what is left over, which `means` divides.

    Args:
        groups, outputs, inputs: of the layer.
    """

    def __init__(self, groups: int, outputs: int, inputs: int) -> None:
        self.count = 0
        self._x, self._r = np.zeros((groups, inputs)), np.zeros((groups, outputs))
        self._xx, self._rx = (np.zeros((groups, n, inputs)) for n in (inputs, outputs))
        self._rr, self._yy = np.zeros((groups, outputs)), np.zeros((groups, outputs))

    def add(self, rows: Singles, results: Singles, left: Singles) -> None:
        """Adds places.

        Args:
            rows: float32 (groups, places, inputs).
            results: float32 (groups, places, outputs).
            left: float32, of the same shape: what the layer as it is leaves over of them.
        """
        self.count += rows.shape[1]
        across = np.swapaxes(rows, 1, 2)
        self._x += rows.sum(axis=1, dtype=np.float64)
        self._r += left.sum(axis=1, dtype=np.float64)
        self._xx += across @ rows
        self._rx += np.swapaxes(left, 1, 2) @ rows
        self._rr += np.square(left, dtype=np.float64).sum(axis=1)
        self._yy += np.square(results, dtype=np.float64).sum(axis=1)

    @property
    def means(self) -> Means:
        """The means over all places."""
        sums = (self._x, self._r, self._xx, self._rx, self._rr, self._yy)
        return Means(*(total / self.count for total in sums))
