"""Error of a tensor, and what a step of the graph makes of it.

The power of an error is a function of the value that it sits on,

    E[e^2 | x] = sum_i a_i |x|^(q_i)

and values below half an LSB, which become 0 whatever they were: their logarithms are lost whole.
What is 0 then may get a number added, or be bounded: the floor of a logarithm.

docs/why/numerics.md says what squares, roots, linear layers and filter banks make of it.
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from onnxq.core.arrays import Array, Reals
from onnxq.observers.tensor_noise import TensorNoise
from onnxq.operator import Linear, Summed

SECOND_ORDER = 2.0  # variance of e^2 / (E e^2)^2 of a normal distribution
SQUARE = 2.0


@dataclass(frozen=True, slots=True)
class Error:
    """Error of a tensor.

    Attributes:
        terms: ((a, q), ...): its power on a value x is the sum of a |x|^q; a is float64, () or
            (channels,) behind a linear layer, whose columns are of different sizes.
        dead: what is nearer than that to the floor has become it; float64, () or (channels,).
        clipped: share of the power that lies on the largest values alone.
        floor: what dead values are; None: not known, though they are about 0.
        shift: mean of the error, float64, () or (channels,); the terms are what varies.
    """

    terms: tuple[tuple[Reals, float], ...]
    dead: Reals = field(default_factory=lambda: np.zeros(()))
    clipped: float = 0.0
    floor: float | None = 0.0
    shift: Reals = field(default_factory=lambda: np.zeros(()))

    @property
    def constant(self) -> Reals:
        """Power on a value that is 0; () or (channels,)."""
        varying = sum((a for a, q in self.terms if q == 0), np.zeros(()))
        return np.asarray(varying + np.square(self.shift))

    def dead_share(self, x: Reals) -> Reals:
        """Share of the channels in which such a value is dead; shape of x."""
        limits = np.sort(self.dead.reshape(-1))
        distance = np.abs(x - (self.floor or 0.0))
        return 1.0 - np.searchsorted(limits, distance, side="right") / limits.size


Change = Callable[[Error], Error]


"""Error of an input -> error of the result."""


class Signs(enum.Enum):
    """Signs that the values of a tensor have."""

    ONE = "none is below 0"
    BOTH = "not known"


def of_rounding(noise: TensorNoise, step: float) -> Error:
    """The error of integers: the noise on every value, and 0 for less than half an LSB."""
    return Error(((np.asarray(noise.power), 0.0),), np.asarray(step / 2), noise.clipped_share)


def times(factor: float) -> Change:
    """Times one number."""
    return scaled(Linear((0,), factor * factor))


def factor_of(linear: Linear) -> float:
    """Factor that an input is multiplied by, of one number for all."""
    return linear.sign * math.sqrt(linear.amplification)


def scaled(linear: Linear) -> Change:
    """Times factors c: a |x|^q becomes c^2 a |y / c|^q."""
    factor = factor_of(linear)

    def change(error: Error) -> Error:
        terms = tuple(
            (a * np.float64(linear.amplification) ** (1 - q / 2), q) for a, q in error.terms
        )
        known = error.floor is not None and linear.offset is not None
        floor = (error.floor or 0.0) * factor + (linear.offset or 0.0) if known else None
        dead = error.dead * abs(factor)
        return Error(terms, dead, error.clipped, floor, error.shift * factor)

    return change


def bounded(low: float, high: float) -> Change:
    """Within bounds, which leave fewer values that are dead where they are beyond the floor."""

    def change(error: Error) -> Error:
        if error.floor is None:
            return error
        floor = min(max(error.floor, low), high)
        dead = np.maximum(error.dead - abs(floor - error.floor), 0.0)
        return replace(error, dead=dead, floor=floor)

    return change


def raised(p: float) -> Change:
    """To the power p; a square has the term of second order, too."""

    def change(error: Error) -> Error:
        terms = (*error.terms, (np.square(error.shift), 0.0))
        grown = tuple((p * p * a, (q + 2 * (p - 1)) / p) for a, q in terms)
        shift = np.zeros(())
        if p == SQUARE:
            grown = (*grown, (SECOND_ORDER * error.constant**2, 0.0))
            shift = error.constant
        if p <= 0:
            return Error(grown)
        nearest = abs(error.floor or 0.0)
        dead = (nearest + error.dead) ** p - nearest**p
        return Error(grown, dead, 0.0, None if error.floor is None else nearest**p, shift)

    return change


def multiplied(weight: Array, axis: int, signs: Signs) -> Change:
    """Times a constant weight: per channel of the result, sum over k of a_k w_k^2.

    What is dead is known where no summand takes from another: weights and values are from 0 on.
    """
    columns = np.moveaxis(np.abs(weight.astype(np.float64)), axis, 0)
    columns = columns.reshape(*columns.shape[:2], -1)
    squares, sums = np.square(columns).sum(axis=2), columns.sum(axis=2)
    signed = np.moveaxis(weight.astype(np.float64), axis, 0).reshape(columns.shape).sum(axis=2)
    linear = squares.sum() / max(float(columns.sum()), 1e-30)
    is_known = signs is Signs.ONE and bool(weight.astype(np.float64).min(initial=0.0) >= 0)

    def per_channel(factors: Reals, a: Reals) -> Reals:
        per_input = a if a.size == factors.shape[1] else a.mean()
        return np.asarray((factors * per_input).sum(axis=1))

    def power(a: Reals, q: float) -> Reals:
        return np.asarray(a.mean() * linear) if q == 1 else per_channel(squares, a)

    def change(error: Error) -> Error:
        terms = tuple((power(a, q), q) for a, q in error.terms)
        shift = per_channel(signed, error.shift)
        if not is_known:
            return Error(terms, shift=shift)
        floor = None if error.floor is None else error.floor * float(sums.sum(axis=1).mean())
        return Error(terms, per_channel(sums, error.dead), floor=floor, shift=shift)

    return change


def added(sums: Summed, signs: Signs) -> Change:
    """Sums of n elements, times c: a |x|^q becomes c^2 n a |y / (c n)|^q, x = y / (c n) each."""
    n, c = sums.count, sums.factor

    def change(error: Error) -> Error:
        terms = tuple((a * c * c * n * np.float64(c * n) ** -q, q) for a, q in error.terms)
        shift = error.shift * c * n
        if signs is Signs.BOTH:
            return Error(terms, shift=shift)
        floor = None if error.floor is None else error.floor * c * n
        return Error(terms, error.dead * c * n, error.clipped, floor, shift)

    return change


def summed(rows: Array, signs: Signs) -> Change:
    """Times the rows of a constant, in the mean of its sums: these may lie on any axis."""
    change = multiplied(rows.reshape(-1, rows.shape[-1]), 0, signs)

    def in_the_mean(error: Error) -> Error:
        changed = change(error)
        terms = tuple((np.asarray(a.mean()), q) for a, q in changed.terms)
        return replace(changed, terms=terms, shift=np.asarray(changed.shift.mean()))

    return in_the_mean
