"""Bias-preserving rounding: int8 weights whose rounding errors cancel in each channel's results.

Those weights are rounded to the other of their two nearest integers that make

    sum v_i d_i^2 + (sum m_i d_i)^2        d_i = w_i / s - q_i

less, for activations of means m_i and variances v_i (docs/why/numerics.md).

Where scales are large because pairs of products have to fit int16, this wins back a third of what
that costs, or more than all of it (docs/guides/targets.md). No turned weight takes a pair out of
int16.

Everything is computed in whole numbers, and no two ranks are equal: all machines turn the same.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize
from onnxq.qparams import FloatArray, QParams

Integers = npt.NDArray[np.int8]
Turned = npt.NDArray[np.int16]
Whole = npt.NDArray[np.int64]
Wide = npt.NDArray[np.int16] | npt.NDArray[np.int64]  # int8 sums would wrap

LARGEST_SUM = 128  # of two integers of one sign: 255 * 128 = 32640; 255 * 129 = 32895 is too much
CHUNK_ELEMENTS = 1 << 16  # pieces that stay in the cache: 20 to 40 ns a weight, twice that else
UNIT = 1 << 16  # an LSB in the units of d: sums of whole numbers are exact in any order
MEAN = 1 << 15  # the largest mean in its units
VARIANCE = 1 << 10  # the square of that mean in the units of variances
LARGEST_VARIANCE = 1 << 30  # beside it, no turn is worth its cost
ROUNDS = 3
"""Times that weights are turned: one whose mean is large may fit only when others have turned."""


@dataclass(frozen=True, slots=True)
class InputMeans:
    """Means and deviations of the channels that a weight is multiplied by.

    Attributes:
        axis: of the weight, along which these channels lie; a group's, where there are groups.
        deviations: from the means, from 0 on.
    """

    axis: int
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def suits(self, channels: Mapping[int, int]) -> bool:
        """Whether there is a finite number for each channel, or for each of each group."""
        size = channels.get(self.axis, 0)
        if not size or len(self.means) % size or len(self.means) != len(self.deviations):
            return False
        return all(map(math.isfinite, (*self.means, *self.deviations)))


@dataclass(frozen=True, slots=True)
class BiasPreservingRounding:
    """Channels of a weight that keep their sums, and which of their integers are neighbours.

    Attributes:
        axes: of the weight, all but its channels', in the order in which products are added, the
            last varying fastest: places (2k, 2k + 1) are a pair, an odd last one is alone.
        channels: that keep their sums; None: all.
        inputs: means of the activations; None: nothing is known of them.
    """

    axes: tuple[int, ...]
    channels: tuple[int, ...] | None = None
    inputs: InputMeans | None = None

    def suits(self, shape: tuple[int, ...]) -> bool:
        """Whether a weight of that shape has these axes, one more, and these channels along it."""
        axes = [axis % max(len(shape), 1) for axis in self.axes]
        left = set(range(len(shape))).difference(axes)
        if len(left) != 1 or len({*axes}) != len(axes):
            return False
        if not set(self.channels or ()) <= set(range(shape[left.pop()])):
            return False
        return self.inputs is None or self.inputs.suits({axis: shape[axis] for axis in axes})

    def integers(self, x: FloatArray, qparams: QParams, limit: int) -> Integers:
        """Integers of the weight, rounded so that the sums stay.

        Otherwise as `quantize` rounds.

        Args:
            x: float32, the weight.
            qparams: int8, with zero points 0; per tensor, or per channel along the axis not in
                `axes`.
            limit: integers are clipped to [-limit, limit].
        Returns:
            int8, x's shape. Pairs that keep LARGEST_SUM as `quantize` rounds them keep it here.
        """
        (axis,) = set(range(x.ndim)) - {a % x.ndim for a in self.axes}
        order = (axis, *self.axes)
        integers = np.clip(quantize(x, qparams), -limit, limit)
        rows = np.array(np.transpose(integers, order), np.int8, order="C")
        flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        weights = np.transpose(x, order)
        scale = np.broadcast_to(qparams.scale, len(rows))
        mean, variance = self._means_and_variances(rows.shape, x.ndim)
        group = np.arange(len(rows)) * len(mean) // max(len(rows), 1)
        channels = range(len(rows)) if self.channels is None else self.channels
        step = max(1, CHUNK_ELEMENTS // max(flat.shape[1], 1))
        for start in range(0, len(channels), step):
            some = list(channels[start : start + step])
            part = np.asarray(weights[some], np.float32).reshape(len(some), -1)
            with np.errstate(over="ignore"):  # far beyond the integers: clipped
                exact = part / scale[some, np.newaxis]
            error = _distances(exact, flat[some])
            flat[some] = _turned(error, flat[some], limit, mean[group[some]], variance[group[some]])
        return np.ascontiguousarray(np.transpose(rows, np.argsort(order)))

    def _means_and_variances(self, rows: tuple[int, ...], rank: int) -> tuple[Whole, Whole]:
        """Means and variances of what each place is multiplied by, int64 (groups, places)."""
        places = math.prod(rows[1:])
        if self.inputs is None:
            return np.full((1, places), MEAN), np.ones((1, places), np.int64)
        at = 1 + [a % rank for a in self.axes].index(self.inputs.axis % rank)
        shape = [size if i == at else 1 for i, size in enumerate(rows)]
        means = np.array(self.inputs.means, np.float64)
        largest = float(np.abs(means).max(initial=0.0)) or 1.0
        variances = np.square(np.array(self.inputs.deviations, np.float64) / largest)

        def spread(each: npt.NDArray[np.float64]) -> Whole:
            groups = np.rint(each).astype(np.int64).reshape(-1, *shape[1:])
            full: Whole = np.broadcast_to(groups, (len(groups), *rows[1:]))
            return full.reshape(len(groups), places)

        units = np.minimum(variances * VARIANCE, LARGEST_VARIANCE)
        return spread(means / largest * MEAN), spread(units)


def leave_int16(one: Wide, other: Wide) -> npt.NDArray[np.bool_]:
    """Which pairs of int8 weights, of one shape, some uint8 activations take beyond int16."""
    above = np.maximum(one, 0) + np.maximum(other, 0)
    below = np.minimum(one, 0) + np.minimum(other, 0)
    return np.asarray((above > LARGEST_SUM) | (below < -LARGEST_SUM))


def _distances(exact: npt.NDArray[np.float32], integers: Integers) -> Whole:
    """Errors w / s - q in units of 1 / UNIT; 0 for clipped weights, which nothing makes up for."""
    distance = np.rint((exact - integers) * np.float32(UNIT))
    distance[np.abs(distance) > UNIT // 2] = 0
    return np.asarray(distance, np.int64)


def _turned(error: Whole, integers: Integers, limit: int, mean: Whole, variance: Whole) -> Integers:
    """Integers with those of a row turned that make its error least.

    Args:
        error: int64 (channels, places), in units of 1 / UNIT.
        integers: int8, rounded and clipped, the same shape.
        limit: of integers.
        mean: int64 (channels, places), up to MEAN.
        variance: int64 (channels, places), up to LARGEST_VARIANCE.
    """
    turned: Turned = np.asarray(integers + np.sign(error), np.int16)
    may_turn = (error != 0) & (np.abs(turned) <= limit) & _pairs_fit(integers, turned)
    decrease = np.sign(error) * mean * UNIT
    cost = variance * (UNIT - 2 * np.abs(error))
    missing = (error * mean).sum(axis=1, dtype=np.int64)
    found = integers.copy()
    for _ in range(ROUNDS):
        turns = _turns(missing, np.where(may_turn, decrease, 0), cost)
        if not turns.any():
            break
        found = np.where(turns, turned, found).astype(np.int8)
        may_turn &= ~turns
        missing -= (decrease * turns).sum(axis=1, dtype=np.int64)
    return found


def _turns(missing: Whole, decrease: Whole, cost: Whole) -> npt.NDArray[np.bool_]:
    """Which places of each row to turn: by decrease per cost, as many as pay.

    Args:
        missing: int64 (channels,), sum of the errors times the means.
        decrease: int64 (channels, places), by which turning a place lessens that sum; 0: it may
            not.
        cost: int64 (channels, places), by which it raises the other term, in its units.
    """
    count = decrease.shape[1]
    decrease = decrease * np.sign(missing)[:, np.newaxis]
    apart = np.abs(missing)[:, np.newaxis]
    pays = (decrease > 0) & (_less(apart, decrease) > _as_squares(cost))
    ratio = np.where(pays, decrease / (cost + 1.0), 0.0)
    bits = count.bit_length()
    places = np.arange(count - 1, -1, -1)
    rank = (ratio.view(np.int64) >> bits << bits) + places
    most = min(count, 16 + math.isqrt(count))  # some 3.5 times as many as turn
    best = np.argpartition(rank, count - most, axis=1)[:, count - most :]
    order = np.take_along_axis(rank, best, axis=1).argsort(axis=1)[:, ::-1]
    place = np.take_along_axis(best, order, axis=1)
    total, paid = (
        np.take_along_axis(a * pays, place, axis=1).cumsum(axis=1) for a in (decrease, cost)
    )
    better_by = _less(apart, total) - _as_squares(paid)
    chosen = np.arange(most) <= better_by.argmax(axis=1)[:, np.newaxis]
    turns = np.zeros(decrease.shape, np.bool_)
    np.put_along_axis(turns, place, chosen & (better_by.max(axis=1) > 0)[:, np.newaxis], axis=1)
    return turns & pays


def _less(apart: Whole, decrease: Whole) -> npt.NDArray[np.float64]:
    """apart^2 - (apart - decrease)^2, in units of (MEAN UNIT)^2."""
    return np.asarray(decrease / (MEAN * UNIT) * ((2 * apart - decrease) / (MEAN * UNIT)))


def _as_squares(cost: Whole) -> npt.NDArray[np.float64]:
    """Cost in the units of `_less`."""
    return np.asarray(cost / (VARIANCE * UNIT))


def _pairs_fit(integers: Integers, turned: Turned) -> npt.NDArray[np.bool_]:
    """Integers whose pair fits int16 whichever of the two turn."""
    fits = np.ones(integers.shape, np.bool_)
    even = integers.shape[1] // 2 * 2
    most, least = np.maximum(integers, turned), np.minimum(integers, turned)
    pairs = [~leave_int16(q[:, 0:even:2], q[:, 1:even:2]) for q in (most, least)]
    fits[:, 0:even:2] = fits[:, 1:even:2] = pairs[0] & pairs[1]
    return fits
