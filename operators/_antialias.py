"""Resize with antialiasing: a filter that widens as the image shrinks, one axis after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxq.operators._interpolate import CUBIC_A, Reals, along
from onnxq.operators._resample import Axis, Places, coordinates

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.operator import NodeCall

ONE = np.float32(1)
HALF = np.float32(0.5)


def antialiased(call: NodeCall, x: Reals, axes: dict[int, Axis], mode: str) -> Reals:
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


def filter_weights(call: NodeCall, axis: Axis, mode: str) -> tuple[Places, Reals]:
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
    kernel = _triangle if mode == "linear" else _keys(call.real("cubic_coeff_a", CUBIC_A))
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


def _fold(weights: Reals, low: int, high: int, size: int) -> None:
    """Adds the weights of elements outside to the first and last inside, in place."""
    taps = high - low
    before = min(max(-low, 0), taps - 1)
    for i in range(before):
        weights[before] += weights[i]
    behind = min(max(high - size, 0), taps - 1)
    for i in range(taps - behind, taps):
        weights[taps - behind - 1] += weights[i]
    weights[: taps - before] = weights[before:taps].copy()


def _triangle(x: Reals) -> Reals:
    return np.maximum(ONE - np.abs(x), np.float32(0))


def _keys(a: float) -> Callable[[Reals], Reals]:
    """The cubic convolution kernel with that parameter."""
    c = np.float32(a)
    two, three, four, five, eight = (np.float32(n) for n in (2, 3, 4, 5, 8))

    def kernel(x: Reals) -> Reals:
        t = np.abs(x)
        inner = ((c + two) * t - (c + three)) * t * t + ONE
        outer = (((t - five) * t + eight) * t - four) * c
        return np.where(t < 1, inner, np.where(t < two, outer, np.float32(0)))

    return kernel
