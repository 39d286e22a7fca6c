"""Rounding towards the float model's outputs: GPTQ of a target that makes up for earlier layers.

X is what a layer reads in the quantized model, Y what it gives in the float model; their means are
taken off. The weight that comes nearest to Y from X, held to the float model's W by a ridge, is

    W* = W + (Y X' - W X X') (X X' + ridge mean(diag(X X')) I)^-1

and minimizes |Y - V X|^2 + ridge mean(diag) |V - W|^2 over V, whose second derivative is the matrix
in brackets. GPTQ rounds W* by the same matrix onto the layer's own grid, so that what is rounded is
that objective. Then the bias takes the means: b = mean(Y) - Wq mean(X). Nothing is trained.

Y is taken ahead of a Relu or Clip: which places it cuts off differs from channel to channel, and
with it would the matrix in brackets.

The ridge stands between samples and what they are drawn from: without one, W* fits the samples. It
is chosen by the error on samples held back, as is each channel's scale where codes are few: a
narrower grid that clips the largest weights, or the plan's own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.dtypes import INT8
from onnxq.improve.constants import NewConstants
from onnxq.improve.gptq import CodedRows, error_of, gptq
from onnxq.improve.held_back import is_held_back
from onnxq.improve.improvement import Improved, WeightImprovement, register
from onnxq.improve.inverse_factor import inverse_factor
from onnxq.improve.layer import MOST_PLACES
from onnxq.improve.layerwise import NO_ELEMENTS, SHARED, Proposal, layerwise
from onnxq.improve.moments import Sums
from onnxq.observers.tensor_noise import decibels
from onnxq.targets.range_reduction import RangeReduction

if TYPE_CHECKING:
    from onnxq.core.arrays import Ints, Reals, Singles
    from onnxq.improve.inverse_factor import InverseFactor, Places
    from onnxq.improve.layer import Layer
    from onnxq.improve.moments import Means
    from onnxq.samples import Batches
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Multiples of the mean power of an input; the best was .1 to 1 at 8 bits, .01 to .3 at 4."""
FEW_BITS = 4
FACTORS = (1.0, 0.92, 0.85, 0.78, 0.71, 0.64)
"""Scales that are tried where codes have FEW_BITS or fewer, as multiples of the plan's."""
MOST_INPUTS = 8192
"""Inputs of a layer, at most: its second moments take 512 MiB then, their inverse a minute."""
LEAST_PLACES = 4
"""Per input, so that the second moments are of full rank with room to spare."""
PRODUCTS = 1 << 37
"""Products in the second moments of a layer that are worth their time, a few seconds; from 1,400
inputs on there are fewer places by it."""
LEAST_POWER = 1e-30
"""Power that an input which is always 0 counts with: its weights are rounded to the nearest."""


@register
class Round(WeightImprovement):
    """GPTQ towards the float model's outputs."""

    name = "round"
    corrects_biases = True

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """Layer by layer; see the module."""
        target = prepared.target

        def begin(layer: Layer, batches: int) -> _Rounding | str:
            if not layer.is_alone:
                return SHARED
            if layer.inputs > MOST_INPUTS:
                return f"it has {layer.inputs} inputs, more than {MOST_INPUTS}"
            summed_in_pairs = target.reduces_range and layer.rule.saturating_pairs
            if not summed_in_pairs or layer.plan.qparams.dtype != INT8:
                return _Rounding(layer, batches, None)
            if target.range_reduction is RangeReduction.OBSERVED:
                return "which of its products saturate is known of the codes that it has alone"
            if layer.partners is None and layer.plan.code_limit != target.weight_qmax_saturating:
                return "any two of its products may be added in int16"
            return _Rounding(layer, batches, layer.partners)

        return layerwise(prepared, plan, samples, self.name, begin)


class _Rounding:
    """The work on one layer: moments of its places, those of the batches held back apart."""

    def __init__(self, layer: Layer, batches: int, partners: Places | None) -> None:
        self._layer, self._batches = layer, batches
        self._grid = CodedRows(layer.scale, *layer.ends, partners)
        self._stored = layer.stored
        self._bias = layer.bias[:, np.newaxis]
        self._sums = tuple(Sums(*self._stored.shape) for _ in range(2))
        inputs = self._stored.shape[-1]
        self._places = max(LEAST_PLACES * inputs, min(MOST_PLACES, PRODUCTS // inputs**2))

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Adds a batch."""
        stored = np.asarray(self._stored, np.float32).swapaxes(1, 2)
        for rows, results in self._layer.pairs(x, y, index, self._batches, self._places):
            left = results - rows @ stored - self._bias.astype(np.float32)
            self._sums[is_held_back(index)].add(rows, results, left)

    def proposal(self) -> Proposal:
        """The constants of the ridge with the least error on the batches held back."""
        if not all(sums.count for sums in self._sums):
            return Proposal(None, why=NO_ELEMENTS)
        seen, held = (sums.means for sums in self._sums)
        found: tuple[float, _Rounded] | None = None
        for ridge in RIDGES:
            try:
                made = self._rounded(seen, ridge)
            except np.linalg.LinAlgError:  # the ridge is lost beside means that are large
                continue
            error = float(held.error(made.change, made.shift).sum())
            if found is None or error < found[0]:
                found = error, made
        if found is None:
            return Proposal(None, why="its inputs hardly vary")
        error, made = found
        signal = float(held.yy.sum())
        before, after = decibels(signal, float(held.rr.sum())), decibels(signal, error)
        return Proposal(self._constants(made), before, after)

    def _rounded(self, seen: Means, ridge: float) -> _Rounded:
        """Codes of the target that this ridge gives, each row with the scale that suits it best."""
        centred = seen if self._layer.bias_slot is None else seen.centred
        weight = self._layer.matrix
        cross = centred.rx + (self._stored - weight) @ centred.xx
        power = np.trace(centred.xx, axis1=1, axis2=2) / weight.shape[-1]
        held_to = np.maximum(ridge * power, LEAST_POWER)[:, np.newaxis, np.newaxis]
        moments = centred.xx + held_to * np.eye(weight.shape[-1])
        inverse = inverse_factor(moments)
        target = weight + inverse.divided(cross)
        codes, factors = _with_scales(target, moments, inverse, self._grid, self._factors())
        change = codes * (self._grid.scale * factors) - self._stored
        shift = np.zeros(change.shape[:-1])
        if self._layer.bias_slot is not None:
            shift = seen.missing(change)
        return _Rounded(codes, factors, change, shift)

    def _factors(self) -> tuple[float, ...]:
        qparams = self._layer.plan.qparams
        few = qparams.dtype.bits <= FEW_BITS or self._grid.partner is not None
        own = qparams.scale.size == self._grid.scale.size  # groups that share scales keep them
        return FACTORS if few and own else FACTORS[:1]

    def _constants(self, made: _Rounded) -> NewConstants:
        layer = self._layer
        qparams = layer.plan.qparams
        if qparams.scale.size == made.factors.size:
            scale = qparams.scale * made.factors.reshape(qparams.scale.shape)
            qparams = dataclasses.replace(qparams, scale=scale.astype(np.float32))
        weight = layer.on_grid(made.codes, qparams)
        bias = None if layer.bias_slot is None else layer.bias + made.shift
        return NewConstants(weight, qparams, bias)


@dataclass(frozen=True, slots=True, eq=False)
class _Rounded:
    """Codes of a layer, and what they change.

    Attributes:
        codes: int32 (groups, outputs, inputs).
        factors: float64 (groups, outputs, 1), of the plan's scales.
        change: float64 (groups, outputs, inputs), of the weight.
        shift: float64 (groups, outputs), of the bias.
    """

    codes: Ints
    factors: Reals
    change: Reals
    shift: Reals


def _with_scales(
    target: Reals,
    moments: Reals,
    inverse: InverseFactor,
    grid: CodedRows,
    factors: tuple[float, ...],
) -> tuple[Ints, Reals]:
    """(codes, factor of each row's scale) with the least error of the rows' products.

    All factors are tried in one run: rows are rounded apart from each other.
    """
    groups, outputs, inputs = target.shape
    wide = np.tile(target, (1, len(factors), 1))
    every_scale = [np.broadcast_to(grid.scale * f, (groups, outputs, 1)) for f in factors]
    scale = np.concatenate(every_scale, axis=1)
    low, high = (np.tile(end, (1, len(factors))) for end in (grid.low, grid.high))
    codes = gptq(wide, inverse, CodedRows(scale, low, high, grid.partner))
    errors = error_of(wide - codes * scale, moments).reshape(groups, len(factors), outputs)
    best = errors.argmin(axis=1)  # the first among equals: the plan's own scale
    every = codes.reshape(groups, len(factors), outputs, inputs)
    index = best[:, np.newaxis, :, np.newaxis]
    chosen = np.take_along_axis(every, index, 1)[:, 0]
    return chosen, np.array(factors)[best][..., np.newaxis]
