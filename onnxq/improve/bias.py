"""Bias correction: the mean of every channel as in the float model.

    b'[o] = mean(Y[o]) - Wq[o] mean(X)        Y: float model's results, X: quantized model's inputs

With rounded weights and inputs, E[Wq x + b] is not E[W x + b]: the difference is the same for every
sample, and a bias takes it away, at no cost when the model runs. X comes from the quantized model,
whose earlier layers are corrected already, so that what they leave over is corrected here, too.
(Nagel et al. 2019, section 4.2, with observed means, and layer by layer.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.improve.constants import NewConstants
from onnxq.improve.held_back import is_held_back
from onnxq.improve.improvement import Improved, WeightImprovement, register
from onnxq.improve.layerwise import Proposal, layerwise
from onnxq.observers.tensor_noise import decibels

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.improve.layer import Layer
    from onnxq.samples import Samples
    from onnxq.static.plan import Plan
    from onnxq.static.prepare import Prepared

NO_BIAS = "it has no bias, and none can be added for nothing"


@register
class Bias(WeightImprovement):
    """Bias correction from observed means."""

    name = "bias"

    def improve(self, prepared: Prepared, plan: Plan, samples: Samples) -> Improved:
        """Layer by layer; see the module."""
        return layerwise(prepared, plan, samples, self.name, _begin)


def _begin(layer: Layer, batches: int) -> _Residuals | str:
    return NO_BIAS if layer.bias_slot is None else _Residuals(layer, batches)


class _Residuals:
    """Sums of what is missing, y - (Wq x + b), per channel; of the batches held back apart."""

    def __init__(self, layer: Layer, batches: int) -> None:
        self._layer, self._batches = layer, batches
        self._stored = np.asarray(layer.stored, np.float32).swapaxes(1, 2)
        self._bias = layer.bias[:, np.newaxis]
        shape = layer.bias.shape
        self._count = [0, 0]
        self._sum = np.zeros((2, *shape))
        self._squares, self._signal = np.zeros(shape), np.zeros(shape)

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Adds a batch."""
        held = is_held_back(index)
        for rows, results in self._layer.pairs(x, y, index, self._batches):
            missing = results.astype(np.float64) - np.matmul(rows, self._stored) - self._bias
            self._count[held] += rows.shape[1]
            self._sum[int(held)] += missing.sum(axis=1)
            if held:
                self._squares += np.square(missing).sum(axis=1)
                self._signal += np.square(results, dtype=np.float64).sum(axis=1)

    def proposal(self) -> Proposal:
        """The bias with the mean of what is missing added."""
        if not all(self._count):
            return Proposal(None, why="the samples have no elements there")
        shift = self._sum[0] / self._count[0]
        after = self._squares - 2 * shift * self._sum[1] + self._count[1] * np.square(shift)
        signal = float(self._signal.sum())
        return Proposal(
            NewConstants(bias=self._layer.bias + shift),
            decibels(signal, float(self._squares.sum())),
            decibels(signal, float(after.sum())),
        )
