"""KeptSums: int8 codes of a weight whose errors of rounding add up to 0 in each channel.

A result is off by the sum of d_i a_i, where d_i = w_i / s - q_i. With activations of mean m and
variance v that are independent of each other, its mean square is

    v sum d_i^2 + m^2 (sum d_i)^2

Rounding to the nearest makes the first sum least and leaves the second to chance. Behind a Relu,
m^2 is about half of v; pixels and tokens that resemble their neighbours add to it. So
n = round(sum d_i) weights are rounded to the other of their two nearest codes: those whose d_i are
the largest of that sign, next to a tie, where it costs least. Of K weights about sqrt(K / 12)
turn, which adds some 1 / K to the first sum.

Where scales are large because pairs of products have to fit int16, this wins back a third of what
that costs, or all of it (docs/targets.md). No turned code takes a pair out of int16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.qparams import FloatArray, QParams, quantize

Codes = npt.NDArray[np.int8]
Wide = npt.NDArray[np.int16] | npt.NDArray[np.int64]  # int8 sums would wrap

LARGEST_SUM = 128  # of two codes of one sign: 255 * 128 = 32640, and 255 * 129 = 32895 is too much
CHUNK_ELEMENTS = 1 << 16  # pieces that stay in the cache: 20 to 40 ns a weight, twice that else
STEP = 1 << 16  # a code's distance in the units of d: sums of whole numbers are exact in any order


@dataclass(frozen=True, slots=True)
class KeptSums:
    """Channels of a weight that keep their sums, and which of their codes are neighbours.

    Attributes:
        axes: of the weight, all but its channels', in the order in which products are added, the
            last varying fastest: places (2k, 2k + 1) are a pair, an odd last one is alone.
        channels: that keep their sums; None: all.
    """

    axes: tuple[int, ...]
    channels: tuple[int, ...] | None = None

    def codes(self, x: FloatArray, qparams: QParams, limit: int) -> Codes:
        """Codes of the weight, rounded so that the sums are kept; otherwise as `quantize` rounds.

        Args:
            x: float32, the weight.
            qparams: int8, with zero points 0; per tensor, or per channel along the axis not in
                `axes`.
            limit: codes are clipped to [-limit, limit].

        Returns:
            int8, x's shape. Pairs that keep LARGEST_SUM as `quantize` rounds them keep it here.
        """
        (axis,) = set(range(x.ndim)) - {a % x.ndim for a in self.axes}
        order = (axis, *self.axes)
        codes = np.clip(quantize(x, qparams), -limit, limit)
        rows = np.array(np.transpose(codes, order), np.int8, order="C")
        flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        weights = np.transpose(x, order)
        scale = np.broadcast_to(qparams.scale, len(rows))
        channels = range(len(rows)) if self.channels is None else self.channels
        step = max(1, CHUNK_ELEMENTS // max(flat.shape[1], 1))
        for start in range(0, len(channels), step):
            some = list(channels[start : start + step])
            part = np.asarray(weights[some], np.float32).reshape(len(some), -1)
            with np.errstate(over="ignore"):  # far beyond the codes: clipped
                steps = part / scale[some, np.newaxis]
            flat[some] = _turned(steps, flat[some], limit)
        return np.ascontiguousarray(np.transpose(rows, np.argsort(order)))


def leave_int16(one: Wide, other: Wide) -> npt.NDArray[np.bool_]:
    """Which pairs of int8 codes, of one shape, some uint8 codes beside them take beyond int16."""
    above = np.maximum(one, 0) + np.maximum(other, 0)
    below = np.minimum(one, 0) + np.minimum(other, 0)
    return np.asarray((above > LARGEST_SUM) | (below < -LARGEST_SUM))


def _turned(steps: npt.NDArray[np.float32], codes: Codes, limit: int) -> Codes:
    """Codes with as many of a row turned as bring the sum of its errors nearest to 0.

    Args:
        steps: float32 (channels, products), w / s.
        codes: int8, rounded and clipped, the same shape.
        limit: of codes.
    """
    distance = np.rint((steps - codes) * np.float32(STEP))
    distance[np.abs(distance) > STEP // 2] = 0  # of clipped weights: no neighbour makes up for it
    error = distance.astype(np.int64)
    missing = (error.sum(axis=1, dtype=np.int64) + STEP // 2) // STEP
    most = int(np.abs(missing).max(initial=0))
    if not most:
        return codes
    sign = np.sign(missing).astype(np.int16)[:, np.newaxis]
    turned = codes + sign
    fits = (np.abs(turned) <= limit) & _both_may_turn(turned)
    gain = np.where(fits, np.maximum(error * sign, 0), 0)
    # no two ranks are equal: the order does not depend on how this machine sorts
    count = codes.shape[1]
    rank = gain * count + np.arange(count - 1, -1, -1)
    best = np.argpartition(rank, count - most, axis=1)[:, count - most :]
    ordered = np.take_along_axis(rank, best, axis=1).argsort(axis=1)[:, ::-1]
    place = np.take_along_axis(best, ordered, axis=1)
    chosen = np.arange(most) < np.abs(missing)[:, np.newaxis]
    turns = np.zeros(codes.shape, np.bool_)
    np.put_along_axis(turns, place, chosen, axis=1)
    return np.where(turns & (gain > 0), turned, codes).astype(np.int8)


def _both_may_turn(turned: npt.NDArray[np.int16]) -> npt.NDArray[np.bool_]:
    """Codes whose pair fits int16 also where both of it turn; then it fits with one, too."""
    fits = np.ones(turned.shape, np.bool_)
    even = turned.shape[1] // 2 * 2
    pairs = ~leave_int16(turned[:, 0:even:2], turned[:, 1:even:2])
    fits[:, 0:even:2] = fits[:, 1:even:2] = pairs
    return fits
