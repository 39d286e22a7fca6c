"""Sums over the places of a layer, of which the error of any weight and bias follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.core.arrays import Reals, Singles
from onnxq.weights.hessian import HessianSum


@dataclass(frozen=True, slots=True, eq=False)
class LayerMeans:
    """Means over places; groups g, outputs o, inputs i.

    Attributes:
        x: float64 (g, i).
        r: float64 (g, o).
        hessian: float64 (g, i, i), E[x x'].
        rx: float64 (g, o, i).
        rr: float64 (g, o).
        yy: float64 (g, o), power of the results.
    """

    x: Reals
    r: Reals
    hessian: Reals
    rx: Reals
    rr: Reals
    yy: Reals

    @property
    def centred(self) -> LayerMeans:
        """LayerMeans of x and r less their means."""
        return LayerMeans(
            np.zeros_like(self.x),
            np.zeros_like(self.r),
            self.hessian - self.x[:, :, np.newaxis] * self.x[:, np.newaxis, :],
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
        from_weight = np.einsum("goi,goi->go", change @ self.hessian - 2 * self.rx, change)
        from_bias = np.square(shift) - 2 * shift * self.missing(change)
        return np.asarray(self.rr + from_weight + from_bias)


class LayerSums:
    """Sums of rows and of what is left over, which `means` divides."""

    def __init__(self, groups: int, outputs: int, inputs: int) -> None:
        self._x, self._r = np.zeros((groups, inputs)), np.zeros((groups, outputs))
        self._hessian = HessianSum(inputs, (groups,))
        self._rx = np.zeros((groups, outputs, inputs))
        self._rr, self._yy = np.zeros((groups, outputs)), np.zeros((groups, outputs))

    def add(self, rows: Singles, results: Singles, left: Singles) -> None:
        """Adds places.

        Args:
            rows: float32 (groups, places, inputs).
            results: float32 (groups, places, outputs).
            left: float32, of the same shape: what the layer as it is leaves over of them.
        """
        self._hessian.add(rows)
        self._x += rows.sum(axis=1, dtype=np.float64)
        self._r += left.sum(axis=1, dtype=np.float64)
        self._rx += np.swapaxes(left, 1, 2) @ rows
        self._rr += np.square(left, dtype=np.float64).sum(axis=1)
        self._yy += np.square(results, dtype=np.float64).sum(axis=1)

    @property
    def count(self) -> int:
        """Places so far."""
        return self._hessian.count

    def means(self) -> LayerMeans:
        """The means over all places; the sums take no more of them."""
        x, r, rx, rr, yy = (
            total / self.count for total in (self._x, self._r, self._rx, self._rr, self._yy)
        )
        return LayerMeans(x, r, self._hessian.mean(), rx, rr, yy)
