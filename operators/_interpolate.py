"""Interpolation between elements, in float32 and in the order in which ONNX Runtime adds.

A tap is what one neighbour of the place contributes: (which input element, its weight), each with
one entry per output element of an axis. Antialiasing is a filter that widens as the image shrinks.
"""

import itertools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.operator import NodeCall, Singles
from onnxq.operators._resample import HALF, Axis, Coordinates, Places, coordinates

Tap = tuple[Places, Singles]
Number = TypeVar("Number", bound=np.generic)

CUBIC_TAPS = 4
CUBIC_A = -0.75


def places_of(call: NodeCall, axis: Axis) -> Coordinates:
    """`coordinates`; an axis of scale 1 maps each element to itself."""
    if axis.scale == 1:
        return np.arange(axis.out, dtype=np.float32)
    return coordinates(call, axis)


def neighbours(call: NodeCall, axis: Axis) -> tuple[Coordinates, Places, Places]:
    """(place inside the input, element before it, element behind it) of each output element."""
    last = axis.size - 1
    place = np.clip(places_of(call, axis), np.float32(0), np.float32(last))
    before = np.minimum(place.astype(np.intp), last)
    return place, before, np.minimum(before + 1, last)


def linear_taps(call: NodeCall, axis: Axis) -> tuple[Tap, Tap]:
    """The elements on either side of each place; weights of 1/2 where they are the same."""
    place, before, behind = neighbours(call, axis)
    near, far = (np.abs(place - i.astype(np.float32)) for i in (before, behind))
    same = before == behind
    near[same] = far[same] = np.float32(0.5)
    return (before, far), (behind, near)


def blend(x: Singles, taps: dict[int, tuple[Tap, Tap]]) -> Singles:
    """Sum over the corners of weight * element, the last axis counting fastest."""
    axes = list(taps)
    total: Singles | None = None
    for corner in itertools.product((0, 1), repeat=len(axes)):
        part, weight = x, np.ones((), np.float32)
        for axis, side in reversed(list(zip(axes, corner, strict=True))):
            _, weights = taps[axis][side]
            weight = weight * along(weights, axis, x.ndim)
        for axis, side in zip(axes, corner, strict=True):
            part = np.take(part, taps[axis][side][0], axis)
        part = part * weight
        total = part if total is None else np.add(total, part, out=total)
    return x if total is None else total


def along(values: npt.NDArray[Number], axis: int, rank: int) -> npt.NDArray[Number]:
    """A vector in the shape in which it broadcasts along the axis of a tensor of that rank."""
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def cubic(call: NodeCall, x: Singles, axes: dict[int, Axis]) -> Singles:
    """Cubic convolution over 4 taps per axis, the last axis first (Keys, 1981)."""
    order = sorted(axes, reverse=True)
    for axis in order:
        indices, weights, total = _cubic_taps(call, axes[axis])
        y: Singles | None = None
        for index, weight in zip(indices, weights, strict=True):
            part, w = np.take(x, index, axis), along(weight, axis, x.ndim)
            if axis == order[0]:
                part = part * (w / along(total, axis, x.ndim))
            else:
                part = part * w / along(total, axis, x.ndim)
            y = part if y is None else np.add(y, part, out=y)
        assert y is not None, "there are 4 taps"
        x = y
    return x


def _cubic_taps(call: NodeCall, axis: Axis) -> tuple[list[Places], list[Singles], Singles]:
    """(elements, weights) of the 4 taps, and the sum to divide the weights by."""
    place = places_of(call, axis)
    first = np.floor(place)
    weights = _keys(place - first, np.float32(call.real("cubic_coeff_a", CUBIC_A)))
    raw = [first.astype(np.intp) - 1 + i for i in range(CUBIC_TAPS)]
    total = np.ones(axis.out, np.float32)
    if call.integer("exclude_outside", 0):
        weights = [
            np.where((i >= 0) & (i < axis.size), w, np.float32(0))
            for i, w in zip(raw, weights, strict=True)
        ]
        total = np.zeros(axis.out, np.float32)
        for w in weights:
            total = total + w
    return [np.clip(i, 0, axis.size - 1) for i in raw], weights, total


def _keys(s: Singles, a: np.float32) -> list[Singles]:
    """Weights of the taps at distances 1 + s, s, 1 - s and 2 - s."""
    one, two, three, four, five, eight = (np.float32(n) for n in (1, 2, 3, 4, 5, 8))

    def outer(t: Singles) -> Singles:
        return ((a * t - five * a) * t + eight * a) * t - four * a

    def inner(t: Singles) -> Singles:
        return ((a + two) * t - (a + three)) * t * t + one

    return [outer(s + one), inner(s), inner(one - s), outer(two - s)]


ONE = np.float32(1)


def antialiased(call: NodeCall, x: Singles, axes: dict[int, Axis], mode: str) -> Singles:
    """Weighted sums along each of the axes whose size changes, the last axis first."""
    for axis in sorted(axes, reverse=True):
        if axes[axis].size == axes[axis].out:
            continue  # copied, whatever the scale says
        first, weights = filter_weights(call, axes[axis], mode)
        y = np.zeros((*x.shape[:axis], axes[axis].out, *x.shape[axis + 1 :]), np.float32)
        for tap in range(weights.shape[1]):
            index = np.minimum(first + tap, axes[axis].size - 1)
            y += np.take(x, index, axis) * along(weights[:, tap], axis, x.ndim)
        x = y
    return x


def filter_weights(call: NodeCall, axis: Axis, mode: str) -> tuple[Places, Singles]:
    """(first element, weights) of every output element.

    Returns:
        shapes (out,) and (out, taps); weights sum to 1, and are 0 behind the last element.
    """
    shrink = ONE / axis.scale
    support = np.float32(1 if mode == "linear" else 2) * max(shrink, ONE)
    taps = 2 * math.ceil(support) + 1
    narrow = ONE / shrink if shrink >= 1 else ONE
    places = np.arange(axis.out, dtype=np.float32)
    center = HALF + (places if shrink == 1 else coordinates(call, axis))
    low = np.floor(center - support + HALF).astype(np.intp)
    high = low + np.clip(np.floor(center + support + HALF).astype(np.intp) - low, 0, taps)
    inside_low, inside_high = np.clip(low, 0, axis.size), np.clip(high, 0, axis.size)
    outside = call.integer("exclude_outside", 0) == 0
    start, stop = (low, high) if outside else (inside_low, inside_high)
    kernel = _triangle if mode == "linear" else _cubic(call.real("cubic_coeff_a", CUBIC_A))
    weights = np.zeros((axis.out, taps), np.float32)
    total = np.zeros(axis.out, np.float32)
    for tap in range(taps):
        distance = (start + tap).astype(np.float32) - center + HALF
        weight = np.where(start + tap < stop, kernel(distance * narrow), np.float32(0))
        weights[:, tap] = weight
        total += weight
    if outside:
        for i in np.flatnonzero((low < 0) | (high > axis.size)):
            _fold(weights[i], int(low[i]), int(high[i]), axis.size)
    count = inside_high - inside_low
    weights[np.arange(taps) >= count[:, None]] = 0
    inverse = np.divide(ONE, total, out=np.ones_like(total), where=total != 0)
    return inside_low, weights * inverse[:, None]


def _fold(weights: Singles, low: int, high: int, size: int) -> None:
    """Adds the weights of elements outside to the first and last inside, in place."""
    taps = high - low
    before = min(max(-low, 0), taps - 1)
    for i in range(before):
        weights[before] += weights[i]
    behind = min(max(high - size, 0), taps - 1)
    for i in range(taps - behind, taps):
        weights[taps - behind - 1] += weights[i]
    weights[: taps - before] = weights[before:taps].copy()


def _triangle(x: Singles) -> Singles:
    return np.maximum(ONE - np.abs(x), np.float32(0))


def _cubic(a: float) -> Callable[[Singles], Singles]:
    """The cubic convolution kernel with that parameter."""
    c = np.float32(a)
    two, three, four, five, eight = (np.float32(n) for n in (2, 3, 4, 5, 8))

    def kernel(x: Singles) -> Singles:
        t = np.abs(x)
        inner = ((c + two) * t - (c + three)) * t * t + ONE
        outer = (((t - five) * t + eight) * t - four) * c
        return np.where(t < 1, inner, np.where(t < two, outer, np.float32(0)))

    return kernel
