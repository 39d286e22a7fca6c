"""Where an error of a tensor goes, and what is left of the signal there: one sweep backwards.

The power of an error is a function of the value that it sits on,

    E[e^2 | x] = sum_i a_i |x|^(q_i)

and values below half a step, which become 0 whatever they were: their logarithms are lost whole.
What is 0 then may get a number added, or be bounded: the floor of a logarithm.

Rounding alone has one term, q = 0. A square y = x^2 makes 4 a |y| + 3 a^2 of it, and in general

    y = x^p:   a |x|^q  ->  p^2 a |y|^((q + 2 (p - 1)) / p)

so that a root takes it back. A product with constant weights w makes a sum of w^2 of a; of terms
with q = 1 (powers of a spectrum, summed by a filter bank of weights from 0 on) it makes
a (sum of w^2) / (sum of w). Sums, copies and bounds leave it as it is. Both take the summands of a
band for as large as each other. So a band is lost whole where its sum is below half a step times
(sum of w).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.graph.weights import constant_array
from onnxq.observers import FloatHistogramObserver, NormalizationObserver
from onnxq.observers.tensor_noise import TensorNoise, decibels
from onnxq.operator import Curve, Linear, Normalizing, Weighted, WeightSlot
from onnxq.operator.carried_errors import carried_errors
from onnxq.operator.nodes import constant, find_input, input_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    import onnx_ir as ir

    from onnxq.core.arrays import Array, Reals
    from onnxq.observers import Observer
    from onnxq.operator.carried_errors import CarriedError

MOST_MAGNIFIERS = 8  # kept per tensor; those behind have been counted on the way
SECOND_ORDER = 3.0  # E e^4 / (E e^2)^2 of a normal distribution
SQUARE = 2.0
# Gauss-Hermite: five errors of a normal distribution of variance 1 with their shares
_ERRORS, _SHARES = np.polynomial.hermite_e.hermegauss(5)
_SHARES = _SHARES / _SHARES.sum()


@dataclass(frozen=True, slots=True)
class Error:
    """Error of a tensor.

    Attributes:
        terms: ((a, q), ...): its power on a value x is the sum of a |x|^q; a is float64, () or
            (channels,) behind a product, whose columns are of different sizes.
        dead: what is nearer than that to the floor has become it; float64, () or (channels,).
        clipped: share of the power that lies on the largest values alone.
        floor: what dead values are; None: not known, though they are about 0.
    """

    terms: tuple[tuple[Reals, float], ...]
    dead: Reals = field(default_factory=lambda: np.zeros(()))
    clipped: float = 0.0
    floor: float | None = 0.0

    @property
    def constant(self) -> Reals:
        """Power on a value that is 0; () or (channels,)."""
        return np.asarray(sum((a for a, q in self.terms if q == 0), np.zeros(())))

    def dead_share(self, x: Reals) -> Reals:
        """Share of the channels in which such a value is dead; shape of x."""
        limits = np.sort(self.dead.reshape(-1))
        distance = np.abs(x - (self.floor or 0.0))
        return 1.0 - np.searchsorted(limits, distance, side="right") / limits.size


@dataclass(frozen=True, slots=True)
class Magnifier:
    """A node that magnifies errors, seen from a tensor ahead of it.

    Attributes:
        node: the node, in words.
        tensor: its input.
        reader: name of the node that the error goes through first.
        products: with constant weights on the way.
        sqnr_db: of what it gives, for an error of the tensor.
    """

    node: str
    tensor: str
    reader: str
    products: int
    sqnr_db: Callable[[Error], float]

    def is_twin_of(self, other: Magnifier) -> bool:
        """Whether both are of one node, by way of the same reader and as many products."""
        ours = (self.node, self.reader, self.products)
        return ours == (other.node, other.reader, other.products)

    def through(
        self, node: ir.Node, change: Callable[[Error], Error] | None = None, products: int = 0
    ) -> Magnifier:
        """The same one, seen from ahead of a node; None: that leaves errors as they are."""

        def sqnr_db(error: Error) -> float:
            return self.sqnr_db(error if change is None else change(error))

        products += self.products
        return Magnifier(self.node, self.tensor, node_name(node), products, sqnr_db)


def of_codes(noise: TensorNoise, step: float) -> Error:
    """The error of codes: the noise on every value, and 0 for less than half a step."""
    return Error(((np.asarray(noise.power), 0.0),), np.asarray(step / 2), noise.clipped_share)


def magnifiers(
    model: ir.Model, observers: Mapping[str, Observer], positive: Collection[str]
) -> dict[str, tuple[Magnifier, ...]]:
    """Tensor -> the nodes that magnify its errors; tensors without any are missing.

    Args:
        model: canonical.
        observers: of the watched tensors.
        positive: tensors without numbers below 0.
    """
    found: dict[str, list[Magnifier]] = {}
    for node, loop in reversed(list(walk(model.graph))):
        if loop is not None:
            continue
        behind = [magnifier for v in node.outputs if v.name for magnifier in found.get(v.name, ())]
        for value, magnifier in _steps(node, behind, observers, positive):
            at = found.setdefault(value_name(value), [])
            known = any(magnifier.is_twin_of(other) for other in at)
            if not known and len(at) < MOST_MAGNIFIERS:
                at.append(magnifier)
    return {name: tuple(at) for name, at in found.items()}


def _steps(
    node: ir.Node,
    behind: list[Magnifier],
    observers: Mapping[str, Observer],
    positive: Collection[str],
) -> Iterator[tuple[ir.Value, Magnifier]]:
    """(input, Magnifier seen from it) for all that lies behind the node, and the node itself."""
    operator = catalog.find(node.op_type, node.domain)
    if operator is None:
        return
    for step in carried_errors(operator, node) if behind else ():
        followed = [magnifier for magnifier in behind if step.is_followed(magnifier.products)]
        change = _change(node, step, positive) if followed else None
        for magnifier in followed:
            yield step.value, magnifier.through(node, change, step.products)
    for response in operator.responses(node):
        match response:
            case Curve():
                yield from _ahead_of_curve(node, response, observers)
            case Normalizing():
                yield from _ahead_of_normalization(node, response, observers)


def _change(
    node: ir.Node, step: CarriedError, positive: Collection[str]
) -> Callable[[Error], Error] | None:
    """Error of the input -> error of the result; None: the same."""
    adds = value_name(step.value) in positive
    match step.through:
        case Linear():
            return _scaled(step.through)
        case Curve(exponent=exponent) if exponent is not None:
            return _raised(exponent)
        case Weighted(rows=rows):
            return _summed(rows, adds=adds)
        case WeightSlot(slot=slot, axis=axis):
            return _multiplied(constant_array(input_at(node, slot)), axis, adds=adds)
    return None if step.bounds is None else _bounded(*step.bounds)


def _ahead_of_curve(
    node: ir.Node, curve: Curve, observers: Mapping[str, Observer]
) -> Iterator[tuple[ir.Value, Magnifier]]:
    value = _varying(node, curve.slot)
    seen = None if value is None else observers.get(value_name(value))
    if value is not None and isinstance(seen, FloatHistogramObserver):
        yield value, _magnifier(node, value, _of_curve(curve, seen))


def _ahead_of_normalization(
    node: ir.Node, normalizing: Normalizing, observers: Mapping[str, Observer]
) -> Iterator[tuple[ir.Value, Magnifier]]:
    value = _varying(node, 0)
    seen = None if value is None else observers.get(value_name(value))
    if value is not None and isinstance(seen, NormalizationObserver):
        slot = normalizing.gain_slot
        gain = None if slot is None else constant(node, slot)
        yield value, _magnifier(node, value, _of_normalization(seen, gain))


def _magnifier(node: ir.Node, value: ir.Value, sqnr_db: Callable[[Error], float]) -> Magnifier:
    name = node_name(node)
    return Magnifier(f"{node.op_type} '{name}'", value_name(value), name, 0, sqnr_db)


def _varying(node: ir.Node, slot: int) -> ir.Value | None:
    """The value in that slot, unless it is a constant."""
    value = find_input(node, slot)
    return None if value is None or value.is_initializer() else value


def _scaled(linear: Linear) -> Callable[[Error], Error]:
    """Times factors c: a |x|^q becomes c^2 a |y / c|^q."""
    factor = linear.gain**0.5

    def change(error: Error) -> Error:
        terms = tuple((a * linear.gain ** (1 - q / 2), q) for a, q in error.terms)
        known = error.floor is not None and linear.offset is not None
        floor = (error.floor or 0.0) * factor + (linear.offset or 0.0) if known else None
        return Error(terms, error.dead * factor, error.clipped, floor)

    return change


def _bounded(low: float, high: float) -> Callable[[Error], Error]:
    """Within bounds, which leave fewer values that are dead where they are beyond the floor."""

    def change(error: Error) -> Error:
        if error.floor is None:
            return error
        floor = min(max(error.floor, low), high)
        dead = np.maximum(error.dead - abs(floor - error.floor), 0.0)
        return replace(error, dead=dead, floor=floor)

    return change


def _raised(p: float) -> Callable[[Error], Error]:
    def change(error: Error) -> Error:
        raised = tuple((p * p * a, (q + 2 * (p - 1)) / p) for a, q in error.terms)
        if p == SQUARE:
            raised = (*raised, (SECOND_ORDER * error.constant**2, 0.0))
        if p <= 0:
            return Error(raised)
        nearest = abs(error.floor or 0.0)
        dead = (nearest + error.dead) ** p - nearest**p
        return Error(raised, dead, floor=None if error.floor is None else nearest**p)

    return change


def _multiplied(weight: Array, axis: int, *, adds: bool) -> Callable[[Error], Error]:
    """Times a constant weight: per channel of the result, sum over k of a_k w_k^2.

    What is dead is known where no summand takes from another: weights and values are from 0 on.
    """
    columns = np.moveaxis(np.abs(weight.astype(np.float64)), axis, 0)
    columns = columns.reshape(*columns.shape[:2], -1)
    squares, sums = np.square(columns).sum(axis=2), columns.sum(axis=2)
    linear = squares.sum() / max(float(columns.sum()), 1e-30)
    adds = adds and bool(weight.astype(np.float64).min(initial=0.0) >= 0)

    def per_channel(factors: Reals, a: Reals) -> Reals:
        per_input = a if a.size == factors.shape[1] else a.mean()
        return np.asarray((factors * per_input).sum(axis=1))

    def power(a: Reals, q: float) -> Reals:
        return np.asarray(a.mean() * linear) if q == 1 else per_channel(squares, a)

    def change(error: Error) -> Error:
        terms = tuple((power(a, q), q) for a, q in error.terms)
        if not adds:
            return Error(terms)
        floor = None if error.floor is None else error.floor * float(sums.sum(axis=1).mean())
        return Error(terms, per_channel(sums, error.dead), floor=floor)

    return change


def _summed(rows: Array, *, adds: bool) -> Callable[[Error], Error]:
    """Times the rows of a constant, in the mean of its sums: these may lie on any axis."""
    change = _multiplied(rows.reshape(-1, rows.shape[-1]), 0, adds=adds)

    def in_the_mean(error: Error) -> Error:
        changed = change(error)
        return replace(changed, terms=tuple((np.asarray(a.mean()), q) for a, q in changed.terms))

    return in_the_mean


def _of_curve(curve: Curve, seen: FloatHistogramObserver) -> Callable[[Error], float]:
    """SQNR of f(x + e); e is normal, and x + e stays within the range that x had.

    The mean of a power is signal, as a factor or a divisor is. That of a logarithm is none: it is
    how loud the samples are.
    """

    def sqnr_db(error: Error) -> float:
        x, counts = seen.occupied()
        low, high = float(seen.min_val), float(seen.max_val)
        with np.errstate(all="ignore"):
            power = sum((a.mean() * np.abs(x) ** q for a, q in error.terms), np.zeros(x.shape))
            deviation = np.sqrt(np.where(np.isfinite(power), power, (high - low) ** 2))
            right = curve.function(x)
            moved = np.clip(x[:, None] + deviation[:, None] * _ERRORS, low, high)
            squares = np.square(curve.function(moved) - right[:, None]) @ _SHARES
            dead = error.dead_share(x)
            lost = np.square(_of_floor(curve, error.floor, low, high) - right)
            squares = squares + dead * (lost - squares)
        good = np.isfinite(right) & np.isfinite(squares)
        total = counts[good].sum()
        if not total:
            return decibels(1.0, 0.0)
        mean = float((counts[good] * right[good]).sum() / total)
        mean = mean if curve.exponent is None else 0.0
        signal = float((counts[good] * np.square(right[good] - mean)).sum() / total)
        return decibels(signal, float((counts[good] * squares[good]).sum() / total))

    return sqnr_db


def _of_floor(curve: Curve, floor: float | None, low: float, high: float) -> float:
    """f(floor); where that has no bound, or the floor is not known, of the range's nearest end."""
    known = floor is not None and (curve.exponent is None or curve.exponent > 0)
    found = float(curve.function(np.asarray(floor))) if known else math.inf
    if math.isfinite(found):
        return found
    return float(curve.function(np.clip(floor or 0.0, low, high)))


def _of_normalization(seen: NormalizationObserver, gain: Array | None) -> Callable[[Error], float]:
    """SQNR behind the normalization and its gain, for an error alike in all channels."""
    gains = np.ones(()) if gain is None else _per_channel(gain, seen.channel_power.size)

    def sqnr_db(error: Error) -> float:
        return decibels(*seen.behind(error.constant, gains, error.clipped))

    return sqnr_db


def _per_channel(gain: Array, channels: int) -> Reals:
    """Root mean square of the gain for each channel; one for all where it does not fit."""
    squares = np.square(gain.astype(np.float64))
    if gain.shape[-1:] == (channels,):
        return np.asarray(np.sqrt(squares.reshape(-1, channels).mean(axis=0)))
    return np.asarray(np.sqrt(squares.mean()))
