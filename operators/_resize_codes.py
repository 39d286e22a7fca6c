"""Resize of uint8 and int8 codes as they are: what ONNX Runtime's integer kernels compute.

Linear interpolation truncates toward 0 where the float operator would round, and counts in steps of
1 / 1024 where the channels are last; the antialiasing filter counts in steps of 2^-22.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.errors import UnsupportedError
from onnxq.operators._antialias import filter_weights
from onnxq.operators._interpolate import along, blend, linear_taps, neighbours

if TYPE_CHECKING:
    from onnxq.operator import NodeCall
    from onnxq.operators._resample import Axis, Places
    from onnxq.qparams import IntArray

PLACE_BITS = 10
FILTER_BITS = 22

IntTap = tuple["Places", npt.NDArray[np.int32]]


def linear_codes(call: NodeCall, x: IntArray, axes: dict[int, Axis]) -> IntArray:
    """Codes between codes; axes: those that are interpolated."""
    if x.ndim == 4 and x.ndim - 1 not in axes:
        return _blend_codes(x, {i: _integer_taps(call, a) for i, a in axes.items()})
    taps = {i: linear_taps(call, a) for i, a in axes.items()}
    return np.asarray(blend(x.astype(np.float32), taps)).astype(x.dtype)  # truncates


def _integer_taps(call: NodeCall, axis: Axis) -> tuple[IntTap, IntTap]:
    """`linear_taps` with weights that are multiples of 1 / 1024, as integers."""
    one = 1 << PLACE_BITS
    place, before, behind = neighbours(call, axis)
    fine = (place * np.float32(one)).astype(np.int32)
    near, far = (np.abs(fine - i.astype(np.int32) * one) for i in (before, behind))
    same = before == behind
    near[same] = far[same] = one // 2
    return (before, far), (behind, near)


def _blend_codes(x: IntArray, taps: dict[int, tuple[IntTap, IntTap]]) -> IntArray:
    total: npt.NDArray[np.int32] | None = None
    for corner in itertools.product((0, 1), repeat=len(taps)):
        part, weight = x, np.ones((), np.int32)
        for axis, side in zip(taps, corner, strict=True):
            places, weights = taps[axis][side]
            part = np.take(part, places, axis)
            weight = weight * along(weights, axis, x.ndim)
        term = part.astype(np.int32) * weight
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None, "there is a corner"
    magnitude = np.abs(total) >> (PLACE_BITS * len(taps))
    return np.asarray(np.copysign(magnitude, total)).astype(x.dtype)


def antialiased_codes(call: NodeCall, x: IntArray, axes: dict[int, Axis], mode: str) -> IntArray:
    """Weighted sums of codes along each axis whose size changes, the last axis first.

    Raises:
        UnsupportedError: int8, which ONNX Runtime clips to [0, 255] as if it were uint8.
    """
    if x.dtype != np.uint8:
        raise UnsupportedError(
            f"Resize with antialias on {x.dtype} codes: ONNX Runtime clips them to [0, 255], as if "
            "they were uint8. Dequantize before it."
        )
    for axis in sorted(axes, reverse=True):
        if axes[axis].size == axes[axis].out:
            continue
        first, weights = filter_weights(call, axes[axis], mode)
        scaled = weights.astype(np.float64) * (1 << FILTER_BITS)
        counts = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int32)
        shape = (*x.shape[:axis], axes[axis].out, *x.shape[axis + 1 :])
        total = np.full(shape, 1 << (FILTER_BITS - 1), np.int32)
        for tap in range(counts.shape[1]):
            index = np.minimum(first + tap, axes[axis].size - 1)
            part = np.take(x, index, axis).astype(np.int32)
            total += part * along(counts[:, tap], axis, x.ndim)
        x = np.clip(total >> FILTER_BITS, 0, 255).astype(np.uint8)
    return x
