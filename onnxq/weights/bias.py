"""Bias correction: the mean of every channel as in the float model.

    b'[o] = mean(Y[o]) - Wq[o] mean(X)        Y: float model's results, X: quantized model's inputs

With rounded weights and inputs, E[Wq x + b] is not E[W x + b]: the difference is the same for every
sample, and a bias takes it away, at no cost when the model runs. X comes from the quantized model,
whose earlier layers are corrected already, so that what they leave over is corrected here, too.
(Nagel et al. 2019, section 4.2, with observed means, and layer by layer.)

Where a Relu or Clip alone reads the result, errors beyond its bounds are cut off, and a mean over
them would spoil the rest. There the mean is taken over the places where the float result, or that
of the layer as it is, lies within the bounds: a Newton step towards the least square of
clip(y) - clip(yq).
"""

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Reals, Singles
from onnxq.observers.tensor_noise import decibels
from onnxq.samples import Batches
from onnxq.samples.excerpt import is_held_apart
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.weights.algorithm import Improved, WeightAlgorithm, register
from onnxq.weights.layers import Layer, NewConstants
from onnxq.weights.layerwise import NO_ELEMENTS, LayerProposal, LayerWork, layerwise

NO_BIAS = "it has no bias, and none can be added for nothing"


@register
class Bias(WeightAlgorithm):
    """Bias correction from observed means."""

    name = "bias"
    biases_alone = True
    corrects_biases = True

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """Layer by layer; see the module."""
        return layerwise(prepared, plan, samples, self.name, bias_work)


def bias_work(layer: Layer, batches: int) -> LayerWork | str:
    """The work on one layer's bias, or why there is none."""
    return NO_BIAS if layer.bias_slot is None else _Residuals(layer, batches)


class _Residuals:
    """Sums of what is missing, y - (Wq x + b), per channel; of the batches held back apart."""

    def __init__(self, layer: Layer, batches: int) -> None:
        self._layer, self._batches = layer, batches
        self._stored = np.asarray(layer.stored, np.float32).swapaxes(1, 2)
        self._bias = layer.bias[:, np.newaxis]
        shape = layer.bias.shape
        self._count, self._sum = np.zeros((2, *shape)), np.zeros((2, *shape))
        self._squares, self._signal = np.zeros(shape), np.zeros(shape)

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Adds a batch."""
        held = int(is_held_apart(index))
        for rows, results in self._layer.pairs(x, y, index, self._batches):
            made = np.matmul(rows, self._stored) + self._bias
            counts = self._counts(results, made)
            missing = np.where(counts, results - made, 0.0)
            self._count[held] += counts.sum(axis=1)
            self._sum[held] += missing.sum(axis=1)
            if held:
                self._squares += np.square(missing).sum(axis=1)
                self._signal += np.square(np.where(counts, results, 0.0)).sum(axis=1)

    def _counts(self, results: Singles, made: Reals) -> npt.NDArray[np.bool_]:
        """Whether a difference of the two results is seen behind the layer's Relu or Clip."""
        if self._layer.clamp is None:
            return np.ones(made.shape, np.bool_)
        low, high = self._layer.clamp
        return ((low < results) & (results < high)) | ((low < made) & (made < high))

    def proposal(self) -> LayerProposal:
        """The bias with the mean of what is missing added."""
        if not self._count.sum(axis=(1, 2)).all():
            return LayerProposal(None, why=NO_ELEMENTS)
        shift = self._sum[0] / np.maximum(self._count[0], 1)
        after = self._squares - 2 * shift * self._sum[1] + self._count[1] * np.square(shift)
        signal = float(self._signal.sum())
        return LayerProposal(
            NewConstants(bias=self._layer.bias + shift),
            decibels(signal, float(self._squares.sum())),
            decibels(signal, float(after.sum())),
        )
