"""Where an error of a tensor goes, and what is left of the signal there: one sweep backwards.

What a step makes of an error is onnxq.static.noise.error; what is left behind a function that
magnifies it, `of_curve` and `of_normalization`.

A quotient y = x / d has errors that differ from value to value, by how large the divisor is there:

    a |x|^q  ->  a |d|^(q - 2) |y|^q, and y is dead below half an LSB of x over |d|

What is divided by a measure of its own loudness is as large where it is quiet, so that y and d are
taken for independent: the noise behind is the mean over the divisors that the samples have. A
product with another tensor is that with 1 / d, where the samples tell it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.core.arrays import Array, Reals
from onnxq.graph.walk import node_name, value_name
from onnxq.graph.weights import constant_array
from onnxq.observers import FloatHistogramObserver, NormalizationObserver, Observer
from onnxq.observers.tensor_noise import decibels, noise_at
from onnxq.operator import Curve, Factored, Linear, Normalizing, Rule, Summed, Weighted, WeightSlot
from onnxq.operator.nodes import constant, find_input, input_at
from onnxq.operator.propagated_errors import PropagatedError, propagated_errors
from onnxq.static.insertion.context import Context
from onnxq.static.noise.error import (
    Change,
    Error,
    Signs,
    added,
    bounded,
    factor_of,
    multiplied,
    raised,
    scaled,
    summed,
    times,
)
from onnxq.static.noise.probed import responses

MOST_MAGNIFIERS = 8  # kept per tensor; those behind have been counted on the way
MOST_FACTORS = 16  # of the sizes that a tensor of factors has: as many quantiles
MOST_SHARES = 256  # of an error, behind all factors on its way: two tensors of them


@dataclass(frozen=True, slots=True)
class Magnifier:
    """A node that magnifies errors, seen from a tensor ahead of it.

    Attributes:
        node: the node, in words.
        reader: name of the node that the error goes through first.
        layers: linear layers on the way.
        sqnr_db: of what it gives, for an error of the tensor.
        shares: of the error, each of which is followed to the node.
    """

    node: str
    tensor: str
    reader: str
    layers: int
    sqnr_db: Callable[[Error], float]
    shares: int = 1

    def is_duplicate_of(self, other: Magnifier) -> bool:
        """Whether both are of one node, by way of the same reader and as many linear layers."""
        ours = (self.node, self.reader, self.layers)
        return ours == (other.node, other.reader, other.layers)

    def through(self, node: ir.Node, changes: Sequence[Change] = (), layers: int = 0) -> Magnifier:
        """The same one, seen from ahead of a node that does these to as many shares of an error.

        Without any, it leaves errors as they are. Shares multiply from node to node: behind
        MOST_SHARES, some stand for all.
        """
        apart = -(-len(changes) * self.shares // MOST_SHARES)
        changes = changes[apart // 2 :: apart] if apart > 1 else changes

        def sqnr_db(error: Error) -> float:
            if not changes:
                return self.sqnr_db(error)
            with np.errstate(all="ignore"):  # high roots: float64 may not hold the powers
                noises = [noise_at(self.sqnr_db(change(error))) for change in changes]
            return decibels(1.0, sum(noises) / len(noises))

        layers += self.layers
        shares = self.shares * max(len(changes), 1)
        return Magnifier(self.node, self.tensor, node_name(node), layers, sqnr_db, shares)


def magnifiers(
    context: Context, observers: Mapping[str, Observer], positive: Collection[str]
) -> dict[str, tuple[Magnifier, ...]]:
    """Tensor -> the nodes that magnify its errors; tensors without any are missing."""
    found: dict[str, list[Magnifier]] = {}
    for node, loop in reversed(context.order):
        if loop is not None:
            continue
        behind = [magnifier for v in node.outputs if v.name for magnifier in found.get(v.name, ())]
        for value, magnifier in _steps(node, context.rules.find(node), behind, observers, positive):
            at = found.setdefault(value_name(value), [])
            known = any(magnifier.is_duplicate_of(other) for other in at)
            if not known and len(at) < MOST_MAGNIFIERS:
                at.append(magnifier)
    return {name: tuple(at) for name, at in found.items()}


def _steps(
    node: ir.Node,
    rule: Rule | None,
    behind: list[Magnifier],
    observers: Mapping[str, Observer],
    positive: Collection[str],
) -> Iterator[tuple[ir.Value, Magnifier]]:
    """(input, Magnifier seen from it) for all that lies behind the node, and the node itself."""
    operator = catalog.find(node.op_type, node.domain)
    if operator is None:
        return
    for step in propagated_errors(operator, node, rule) if behind else ():
        followed = [magnifier for magnifier in behind if step.is_followed(magnifier.layers)]
        changes = _changes(node, step, observers, positive) if followed else None
        if changes is None:
            continue
        for magnifier in followed:
            yield step.value, magnifier.through(node, changes, step.layers)
    for response in operator.responses(node):
        match response:
            case Curve():
                yield from _ahead_of_curve(node, response, observers)
            case Normalizing():
                yield from _ahead_of_normalization(node, response, observers)


def _changes(
    node: ir.Node,
    step: PropagatedError,
    observers: Mapping[str, Observer],
    positive: Collection[str],
) -> tuple[Change, ...] | None:
    """Error of the input -> error of the result, by shares; empty: the same; None: not known."""
    signs = Signs.ONE if value_name(step.value) in positive else Signs.BOTH
    match step.through:
        case Factored(by=by, power=power):
            factors = _factors(node, by, power, observers)
            return None if factors is None else tuple(map(times, factors))
        case Linear():
            return (scaled(step.through),)
        case Curve(exponent=exponent) if exponent is not None:
            return (raised(exponent),)
        case Weighted(rows=rows):
            return (summed(rows, signs),)
        case Summed():
            return (added(step.through, signs),)
        case WeightSlot(slot=slot, axis=axis):
            return (multiplied(constant_array(input_at(node, slot)), axis, signs),)
    return () if step.bounds is None else (bounded(*step.bounds),)


def _ahead_of_curve(
    node: ir.Node, curve: Curve, observers: Mapping[str, Observer]
) -> Iterator[tuple[ir.Value, Magnifier]]:
    value = _varying(node, curve.slot)
    seen = None if value is None else observers.get(value_name(value))
    if value is not None and isinstance(seen, FloatHistogramObserver):
        yield value, _magnifier(node, value, of_curve(curve, seen, _origins(node, curve)))


def _origins(node: ir.Node, curve: Curve) -> tuple[float, ...]:
    """Numbers from which the signal of what the function gives may count; none: from its mean.

    The mean of a power is signal, as a factor or a divisor is; but not what its only reader takes
    from it: (x + 2)^0.5 - 2^0.5. That of a logarithm is none: it is how loud the samples are.
    """
    if curve.exponent is None:
        return ()
    readers = list(node.outputs[0].consumers())
    found = responses(readers[0]) if len(readers) == 1 else ()
    lines = [each for each in found if isinstance(each, Linear) and each.offset]
    return (0.0, *(-float(each.offset or 0.0) / factor_of(each) for each in lines))


def _ahead_of_normalization(
    node: ir.Node, normalizing: Normalizing, observers: Mapping[str, Observer]
) -> Iterator[tuple[ir.Value, Magnifier]]:
    value = _varying(node, 0)
    seen = None if value is None else observers.get(value_name(value))
    if value is not None and isinstance(seen, NormalizationObserver):
        slot = normalizing.gamma_slot
        amplification = None if slot is None else constant(node, slot)
        yield value, _magnifier(node, value, of_normalization(seen, amplification))


def _magnifier(node: ir.Node, value: ir.Value, sqnr_db: Callable[[Error], float]) -> Magnifier:
    name = node_name(node)
    return Magnifier(f"{node.op_type} '{name}'", value_name(value), name, 0, sqnr_db)


def _varying(node: ir.Node, slot: int) -> ir.Value | None:
    """The value in that slot, unless it is a constant."""
    value = find_input(node, slot)
    return None if value is None or value.is_initializer() else value


def _factors(
    node: ir.Node, slot: int, power: float, observers: Mapping[str, Observer]
) -> list[float] | None:
    """Sizes of an input to that power, from the smallest on, for equal shares of its values.

    None: they are not known, as it is neither probed nor a function of what is.
    """
    value = _varying(node, slot)
    found = None if value is None else _seen(value, observers)
    if found is None:
        return None
    values, counts = found
    with np.errstate(all="ignore"):
        sizes = np.abs(values) ** power
    good = np.isfinite(sizes) & (sizes > 0)  # a factor of 0 leaves no error
    order = np.argsort(sizes[good])
    sizes, shares = sizes[good][order], np.cumsum(counts[good][order])
    if not sizes.size:
        return None
    wanted = (np.arange(MOST_FACTORS) + 0.5) / MOST_FACTORS * shares[-1]
    return [float(size) for size in sizes[np.searchsorted(shares, wanted)]]


def _seen(value: ir.Value, observers: Mapping[str, Observer]) -> tuple[Reals, Reals] | None:
    """(values, counts) of a probed tensor, or of what is a Curve of one alone; None: neither."""
    seen = observers.get(value_name(value))
    if isinstance(seen, FloatHistogramObserver):
        return seen.occupied()
    producer = value.producer()
    found = () if producer is None else responses(producer)
    if producer is None or len(found) != 1 or not isinstance(curve := found[0], Curve):
        return None
    seen = observers.get(value_name(input_at(producer, curve.slot)))
    if not isinstance(seen, FloatHistogramObserver):
        return None
    x, counts = seen.occupied()
    with np.errstate(all="ignore"):
        return curve.function(x), counts


# Gauss-Hermite: five errors of a normal distribution of variance 1 with their shares
_ERRORS, _SHARES = np.polynomial.hermite_e.hermegauss(5)
_SHARES = _SHARES / _SHARES.sum()


def of_curve(
    curve: Curve, seen: FloatHistogramObserver, origins: tuple[float, ...]
) -> Callable[[Error], float]:
    """SQNR of f(x + e); e is normal, and x + e stays within the range that x had."""

    def sqnr_db(error: Error) -> float:
        x, counts = seen.occupied()
        low, high = float(seen.min_val), float(seen.max_val)
        with np.errstate(all="ignore"):
            power = sum((a.mean() * np.abs(x) ** q for a, q in error.terms), np.zeros(x.shape))
            deviation = np.sqrt(np.where(np.isfinite(power), power, (high - low) ** 2))
            right = curve.function(x)
            middle = x + error.shift.mean()
            moved = np.clip(middle[:, None] + deviation[:, None] * _ERRORS, low, high)
            squares = np.square(curve.function(moved) - right[:, None]) @ _SHARES
            dead = error.dead_share(x)
            lost = np.square(_of_floor(curve, error.floor, low, high) - right)
            squares = squares + dead * (lost - squares)
        good = np.isfinite(right) & np.isfinite(squares)
        total = counts[good].sum()
        if not total:
            return decibels(1.0, 0.0)
        shares, results = counts[good] / total, right[good]
        away = origins or (float(shares @ results),)
        signal = min(float(shares @ np.square(results - origin)) for origin in away)
        return decibels(signal, float(shares @ squares[good]))

    return sqnr_db


def _of_floor(curve: Curve, floor: float | None, low: float, high: float) -> float:
    """f(floor); where that has no bound, or the floor is not known, of the range's nearest end."""
    known = floor is not None and (curve.exponent is None or curve.exponent > 0)
    found = float(curve.function(np.asarray(floor))) if known else math.inf
    if math.isfinite(found):
        return found
    return float(curve.function(np.clip(floor or 0.0, low, high)))


def of_normalization(
    seen: NormalizationObserver, amplification: Array | None
) -> Callable[[Error], float]:
    """SQNR behind the normalization and its gain, for an error alike in all channels."""
    amplifications = (
        np.ones(())
        if amplification is None
        else _per_channel(amplification, seen.channel_power.size)
    )

    def sqnr_db(error: Error) -> float:
        return decibels(*seen.behind(error.constant, amplifications, error.clipped))

    return sqnr_db


def _per_channel(amplification: Array, channels: int) -> Reals:
    """Root mean square of the gain for each channel; one for all where it does not fit."""
    squares = np.square(amplification.astype(np.float64))
    if amplification.shape[-1:] == (channels,):
        return np.asarray(np.sqrt(squares.reshape(-1, channels).mean(axis=0)))
    return np.asarray(np.sqrt(squares.mean()))
