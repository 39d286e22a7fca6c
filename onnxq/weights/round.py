"""Rounding towards the float model's outputs: GPTQ of a target that makes up for earlier layers.

X is what a layer reads in the quantized model, Y what it gives in the float model; their means are
taken off. The weight that comes nearest to Y from X, held to the float model's W by damping, is

    W* = W + (Y X' - W X X') (X X' + percdamp mean(diag(X X')) I)^-1

and minimizes |Y - V X|^2 + percdamp mean(diag) |V - W|^2 over V, whose Hessian is the matrix in
brackets. GPTQ rounds W* by the same matrix onto the layer's own scale, so that what is rounded is
that objective. Then the bias takes the means: b = mean(Y) - Wq mean(X). Nothing is trained.

Y is taken ahead of a Relu or Clip: which places it cuts off differs from channel to channel, and
with it would the matrix in brackets.

The error of any weight and bias follows from sums over places. With r = y - Wq x - b, what the
layer as it is leaves over, another weight Wq + D and bias b + d leave r - D x - d, whose mean
square is

    E[rr] - 2 D E[xr] + D E[xx'] D' - 2 d E[r - D x] + d d          per row

Every term is of the size of the error, so that sums of float32 products are enough.

The damping, and each channel's scale where integers are few, are chosen on samples held back:
docs/guides/improve.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import numpy as np

from onnxq.core.arrays import Ints, Reals, Singles
from onnxq.dtypes import INT8
from onnxq.observers.tensor_noise import decibels
from onnxq.samples import Batches
from onnxq.samples.excerpt import is_held_apart
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.targets import Target
from onnxq.targets.bias_preserving import LARGEST_SUM
from onnxq.targets.reduce_range import ReduceRange
from onnxq.weights.algorithm import Improved, WeightAlgorithm, register
from onnxq.weights.gptq import InverseFactor, Places, error_of, gptq, inverse_factor
from onnxq.weights.layer_sums import LayerMeans, LayerSums
from onnxq.weights.layers import MOST_PLACES, Layer, NewConstants
from onnxq.weights.layerwise import NO_ELEMENTS, SHARED, LayerProposal, LayerWork, layerwise

PERCDAMPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Damping, as multiples of the mean diagonal of the Hessian; the best was .1 to 1 at 8 bits, .01 to
.3 at 4."""
FIRST = 2
"""Index of the damping that is tried first."""
FEW_BITS = 4
FACTORS = (1.0, 0.92, 0.85, 0.78, 0.71, 0.64)
"""Scales that are tried where integers have FEW_BITS or fewer, as multiples of the plan's."""
MOST_INPUTS = 8192
"""Inputs of a layer, at most: its Hessian takes 512 MiB then, its inverse a minute."""
LEAST_PLACES = 4
"""Per input, so that the Hessian is of full rank with room to spare."""
MOST_WORK = 1 << 37
"""Multiply-adds in the Hessian of a layer that are worth their time, a few seconds; from 1,400
inputs on there are fewer places by it."""
LEAST_DAMPING = 1e-30
"""Damping of an input that is always 0, whose weights are rounded to the nearest then."""
TOO_LARGE = "squares of what it reads overflow float32"
LITTLE = "its bias alone is corrected: the rounding of its weight adds less than {} dB of noise"


@register
class Round(WeightAlgorithm):
    """GPTQ towards the float model's outputs."""

    name = "round"
    corrects_biases = True

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """Layer by layer; see the module."""
        begin = functools.partial(rounding_of, prepared.target)
        return layerwise(prepared, plan, samples, self.name, begin)


def rounding_of(
    target: Target, layer: Layer, batches: int, least_db: float = -math.inf
) -> LayerWork | str:
    """The work on one layer's weight and bias, or why there is none.

    Its bias alone is corrected where the rounding of its weight adds less than `least_db` of noise.
    """
    if not layer.is_alone:
        return SHARED
    if layer.inputs > MOST_INPUTS:
        return f"it has {layer.inputs} inputs, more than {MOST_INPUTS}"
    summed_in_pairs = target.reduces_range and layer.rule.saturating_pairs
    if not summed_in_pairs or layer.plan.qparams.dtype != INT8:
        return _Rounding(layer, batches, None, least_db)
    if target.reduce_range is ReduceRange.OBSERVED:
        return "which of its products saturate is known of the integers that it has alone"
    if layer.partners is None and layer.plan.integer_limit != target.weight_qmax_saturating:
        return "any two of its products may be added in int16"
    return _Rounding(layer, batches, layer.partners, least_db)


def rounding_work(groups: int, outputs: int, inputs: int, places: int) -> int:
    """Multiply-adds of rounding a layer by so many places, about: the Hessian, and three dampings.

    The Hessian takes inputs^2 for each place; a damping inputs^3 for its inverse, and inputs^2 for
    each output to round it and to tell its error.
    """
    seen = min(places, _most_places(inputs))
    return groups * inputs * (seen * (inputs + 2 * outputs) + 3 * inputs * (inputs + 3 * outputs))


def _most_places(inputs: int) -> int:
    return max(LEAST_PLACES * inputs, min(MOST_PLACES, MOST_WORK // inputs**2))


class _Rounding:
    """The work on one layer: sums over its places, those of the batches held back apart."""

    def __init__(
        self, layer: Layer, batches: int, partners: Places | None, least_db: float
    ) -> None:
        self._layer, self._batches, self._least_db = layer, batches, least_db
        self._qparams = IntegerRows(layer.scale, *layer.limits, partners)
        self._stored = layer.stored
        self._bias = layer.bias[:, np.newaxis]
        self._sums = tuple(LayerSums(*self._stored.shape) for _ in range(2))
        self._places = _most_places(self._stored.shape[-1])

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Adds a batch."""
        stored = np.asarray(self._stored, np.float32).swapaxes(1, 2)
        for rows, results in self._layer.pairs(x, y, index, self._batches, self._places):
            left = results - rows @ stored - self._bias.astype(np.float32)
            self._sums[is_held_apart(index)].add(rows, results, left)

    def proposal(self) -> LayerProposal:
        """The constants of the damping with the least error on the batches held back."""
        if not all(sums.count for sums in self._sums):
            return LayerProposal(None, why=NO_ELEMENTS)
        seen, held = (sums.means() for sums in self._sums)
        if not math.isfinite(sum(each.hessian.sum() + each.rx.sum() for each in (seen, held))):
            return LayerProposal(None, why=TOO_LARGE)
        best = self._bias_alone(seen, held)
        if self._from_rounding_db(seen, held, best) < self._least_db:
            why = LITTLE.format(self._least_db)
            return dataclasses.replace(self._proposal(held, best), why=why)
        first = self._tried(seen, held, FIRST)
        if first.error < best.error:
            best = self._searched(seen, held, first)
        return self._proposal(held, best)

    def _proposal(self, held: LayerMeans, best: _Tried) -> LayerProposal:
        signal = float(held.yy.sum())
        before, after = decibels(signal, float(held.rr.sum())), decibels(signal, best.error)
        return LayerProposal(self._constants(best.rounded), before, after)

    def _from_rounding_db(self, seen: LayerMeans, held: LayerMeans, bias: _Tried) -> float:
        """Noise that the weight's rounding adds to what its bias cannot make up for.

        10 log10(e / f): e, f the errors on the batches held back, of the weight as it is rounded
        and in float, each with the bias that takes the means.
        """
        change = self._layer.matrix - self._stored
        shift = np.zeros(change.shape[:-1])
        if self._layer.bias_slot is not None:
            shift = seen.missing(change)
        return decibels(bias.error, max(0.0, float(held.error(change, shift).sum())))

    def _bias_alone(self, seen: LayerMeans, held: LayerMeans) -> _Tried:
        """The weight as it is, with the bias that takes the means."""
        change = np.zeros_like(self._stored)
        shift = np.zeros(change.shape[:-1]) if self._layer.bias_slot is None else seen.r
        return _Tried(float(held.error(change, shift).sum()), _Rounded(None, None, change, shift))

    def _tried(self, seen: LayerMeans, held: LayerMeans, index: int) -> _Tried:
        """The weight of that damping; of infinite error where its inputs hardly vary."""
        try:
            made = self._rounded(seen, PERCDAMPS[index])
        except np.linalg.LinAlgError:  # the damping is lost beside means that are large
            return _Tried(math.inf, self._bias_alone(seen, held).rounded)
        return _Tried(float(held.error(made.change, made.shift).sum()), made)

    def _searched(self, seen: LayerMeans, held: LayerMeans, first: _Tried) -> _Tried:
        """The best of the dampings downhill from the first one, on either side of it."""
        best = first
        for step in (1, -1):
            index = FIRST + step
            while 0 <= index < len(PERCDAMPS):
                tried = self._tried(seen, held, index)
                if not tried.error < best.error:
                    break
                best, index = tried, index + step
            if best is not first:
                break
        return best

    def _rounded(self, seen: LayerMeans, percdamp: float) -> _Rounded:
        """Integers that this damping gives, each row with the scale that suits it best."""
        centred = seen if self._layer.bias_slot is None else seen.centred
        weight = self._layer.matrix
        cross = centred.rx + (self._stored - weight) @ centred.hessian
        diagonal = np.trace(centred.hessian, axis1=1, axis2=2) / weight.shape[-1]
        damping = np.maximum(percdamp * diagonal, LEAST_DAMPING)[:, np.newaxis, np.newaxis]
        hessian = centred.hessian + damping * np.eye(weight.shape[-1])
        inverse = inverse_factor(hessian)
        target = weight + inverse.divided(cross)
        integers, factors = _with_scales(target, hessian, inverse, self._qparams, self._factors())
        change = integers * (self._qparams.scale * factors) - self._stored
        shift = np.zeros(change.shape[:-1])
        if self._layer.bias_slot is not None:
            shift = seen.missing(change)
        return _Rounded(integers, factors, change, shift)

    def _factors(self) -> tuple[float, ...]:
        qparams = self._layer.plan.qparams
        few = qparams.dtype.bits <= FEW_BITS or self._qparams.partner is not None
        own = qparams.scale.size == self._qparams.scale.size  # groups that share scales keep them
        return FACTORS if few and own else FACTORS[:1]

    def _constants(self, made: _Rounded) -> NewConstants:
        layer = self._layer
        qparams = layer.plan.qparams
        bias = None if layer.bias_slot is None else layer.bias + made.shift
        if made.integers is None or made.factors is None:
            return NewConstants(bias=bias)
        if qparams.scale.size == made.factors.size:
            scale = qparams.scale * made.factors.reshape(qparams.scale.shape)
            qparams = dataclasses.replace(qparams, scale=scale.astype(np.float32))
        return NewConstants(layer.on_qparams(made.integers, qparams), qparams, bias)


@dataclass(frozen=True, slots=True, eq=False)
class _Rounded:
    """Integers of a layer, and what they change.

    Attributes:
        integers: int32 (groups, outputs, inputs); None: the layer's own.
        factors: float64 (groups, outputs, 1), of the plan's scales; None: the scales as they are.
        change: float64 (groups, outputs, inputs), of the weight.
        shift: float64 (groups, outputs), of the bias.
    """

    integers: Ints | None
    factors: Reals | None
    change: Reals
    shift: Reals


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """Constants, and the sum of their mean squared errors on the batches held back."""

    error: float
    rounded: _Rounded


@dataclass(frozen=True, slots=True, eq=False)
class IntegerRows:
    """Integers of a stack of matrices, and the numbers that they stand for: integer * scale.

    Attributes:
        scale: float64, broadcasts to (..., rows, 1).
        low: int32, smallest integer, broadcasts to (..., rows).
        high: int32, largest integer, likewise.
        partner: int64 (columns,): the column whose integer is added to this one's in int16, its
            own where none is: two integers of one sign then add up to LARGEST_SUM at most. None:
            no sums are bounded.
    """

    scale: Reals
    low: Ints
    high: Ints
    partner: Places | None = None

    def by_gptq(self, weight: Reals, factor: InverseFactor) -> Ints:
        """Integers of the weights by GPTQ, int32."""
        *groups, rows, columns = weight.shape
        rounded = np.zeros((math.prod(groups), columns, rows), np.int32)  # in act_order
        every = np.arange(len(rounded))
        scale = np.broadcast_to(self.scale, (*weight.shape[:-1], 1))[..., 0]
        partner = None
        if self.partner is not None:
            partner = _moved(self.partner, factor.act_order).reshape(-1, columns)

        def round_column(j: int, column: Reals) -> Reals:
            raw = np.clip(np.rint(column / scale), self.low, self.high)
            if partner is not None:
                other = rounded[every, partner[:, j]].reshape(raw.shape)  # 0: still to come
                low, high = -LARGEST_SUM - np.minimum(other, 0), LARGEST_SUM - np.maximum(other, 0)
                raw = np.clip(raw, low, high)
            rounded[:, j] = raw.reshape(-1, rows)
            return np.asarray(raw * scale, np.float64)

        gptq(weight, factor.act_order, factor.upper, round_column)
        return factor.as_given(np.swapaxes(rounded, 1, 2).reshape(weight.shape))


def _moved(partner: Places, act_order: Places) -> Places:
    """Partners of the columns in that order, by their places in it."""
    place = np.argsort(act_order, axis=-1)
    return np.take_along_axis(place, partner[act_order], -1)


def _with_scales(
    target: Reals,
    hessian: Reals,
    inverse: InverseFactor,
    rows: IntegerRows,
    factors: tuple[float, ...],
) -> tuple[Ints, Reals]:
    """(integers, factor of each row's scale) with the least error of the rows' products.

    All factors are tried in one run: rows are rounded apart from each other.
    """
    groups, outputs, inputs = target.shape
    wide = np.tile(target, (1, len(factors), 1))
    every_scale = [np.broadcast_to(rows.scale * f, (groups, outputs, 1)) for f in factors]
    scale = np.concatenate(every_scale, axis=1)
    low, high = (np.tile(end, (1, len(factors))) for end in (rows.low, rows.high))
    integers = IntegerRows(scale, low, high, rows.partner).by_gptq(wide, inverse)
    errors = error_of(wide - integers * scale, hessian).reshape(groups, len(factors), outputs)
    best = errors.argmin(axis=1)  # the first among equals: the plan's own scale
    every = integers.reshape(groups, len(factors), outputs, inputs)
    index = best[:, np.newaxis, :, np.newaxis]
    chosen = np.take_along_axis(every, index, 1)[:, 0]
    return chosen, np.array(factors)[best][..., np.newaxis]
