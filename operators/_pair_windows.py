"""Sums of convolutions as machines give them that add pairs of products in int16; see _pairs."""

import enum
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from onnxq.operator import Ints
from onnxq.operators import _pairs
from onnxq.operators._windows import Windows, sliding, tap
from onnxq.qparams import IntArray, QParams
from onnxq.targets.accumulation import (
    LOWEST,
    Accumulator,
    Overflows,
    Pairs,
    SaturationEffect,
    SaturationMode,
    may_overflow,
)

HIGHEST_SUM = 256  # of two weights: 256 * -128 is still within int16
ELEMENTS = 1 << 24  # 16 MiB of integers: images unfolded at once


def conv_correction(
    x: IntArray,
    x_qparams: QParams,
    w: IntArray,
    w_qparams: QParams,
    group: int,
    windows: Windows,
    accumulator: Accumulator,
) -> Ints | None:
    """Change that int16 makes in QLinearConv's sums, (batch, outputs, *windows.out); None: none.

    Args:
        x: stored integers (batch, channels, *spatial).
        x_qparams: of x; the padding is its zero point.
        w: stored integers (outputs, channels / group, *kernel).
        w_qparams: of w; its zero points decide which of ONNX Runtime's kernels is meant.
        group: channels and outputs are split into this many groups.
        windows: of x.
        accumulator: of the machine.
    """
    symmetric, fill = not w_qparams.zero_point.any(), int(x_qparams.zero_point)
    sums = conv_sums(accumulator.saturation_mode, x.dtype, w, group, symmetric)
    if sums is PairSums.EXACT:
        return None
    if sums is PairSums.DENSE:
        found = _dense(x, fill, w, group, windows, accumulator)
    else:
        found = _depthwise(x, fill, w, windows, accumulator)
    return None if accumulator.effect is SaturationEffect.NOTED else found


class PairSums(enum.Enum):
    """Which products a convolution adds in int16."""

    EXACT = "none"
    DENSE = "pairs of K"
    DEPTHWISE = "pairs of taps"


def conv_sums(
    saturation_mode: SaturationMode,
    x: np.dtype[np.generic],
    w: IntArray,
    group: int,
    symmetric: bool,
) -> PairSums:
    """Pairs that QLinearConv adds in int16; `symmetric`: all zero points of w are 0."""
    depthwise = w.shape[1] == 1 and w.shape[0] == group
    if saturation_mode is SaturationMode.SATURATES:
        saturates = _pairs.adds_pairs(saturation_mode, x, w.dtype) and not depthwise
        return PairSums.DENSE if saturates else PairSums.EXACT
    if depthwise:
        wraps = saturation_mode.fixed_point and w.dtype == np.int8 and symmetric
        return PairSums.DEPTHWISE if wraps else PairSums.EXACT
    wraps = _pairs.adds_pairs(saturation_mode, x, w.dtype) and not (x == np.int8 and symmetric)
    return PairSums.DENSE if wraps else PairSums.EXACT


def conv_pairs(
    saturation_mode: SaturationMode,
    x: np.dtype[np.generic],
    w: IntArray,
    group: int,
    symmetric: bool,
) -> Pairs | None:
    """Pairs of weights whose products QLinearConv adds in int16; None: none."""
    sums = conv_sums(saturation_mode, x, w, group, symmetric)
    if sums is PairSums.DEPTHWISE:
        first, second = _pairs.depthwise_places(math.prod(w.shape[2:]), len(w))
        return Pairs(w.reshape(len(w), -1).T, first, second)
    if sums is PairSums.EXACT:
        return None
    columns, places = _columns(w, group)
    matrix = columns.transpose(1, 0, 2).reshape(len(places), -1)
    return Pairs(matrix, *_pairs.pair_places(saturation_mode, len(places)), places)


def conv_integer_correction(
    x: IntArray, x_zero: int, w: IntArray, group: int, windows: Windows, accumulator: Accumulator
) -> Ints | None:
    """Change that int16 makes in ConvInteger's sums: W (outputs, K) by the image (K, places)."""
    if not _pairs.adds_pairs(accumulator.saturation_mode, w.dtype, x.dtype):
        return None
    total = np.zeros((group, w.shape[0] // group, x.shape[0], math.prod(windows.out)), np.int32)
    rows = w.reshape(group, w.shape[0] // group, -1)
    changed = False
    for images, g, seen in _unfolded(x, x_zero, group, windows, kernel_first=False):
        named = _renamed(accumulator, np.arange(rows.shape[2]), g * rows.shape[1])
        found = _pairs.correction(rows[g].T, seen, named, _pairs.Weight.LEFT)
        if found is not None:
            total[g, :, images] += found.T.reshape(rows.shape[1], -1, total.shape[3])
            changed = True
    changed = changed and accumulator.effect is SaturationEffect.APPLIED
    return _in_shape(total, windows) if changed else None


def conv_integer_risks(
    saturation_mode: SaturationMode, x: np.dtype[np.generic], w: IntArray
) -> Overflows | None:
    """Pairs that ConvInteger adds in int16: it multiplies the weight (outputs, K) by the image."""
    if not _pairs.adds_pairs(saturation_mode, w.dtype, x):
        return None
    rows = w.reshape(len(w), -1).T
    first, second = _pairs.pair_places(saturation_mode, len(rows))
    # a sum of 257 leaves int16 where the image has -128
    if saturation_mode is SaturationMode.SATURATES:
        risky = rows[first].astype(np.int16) + rows[second] > HIGHEST_SUM
    else:
        lowest = 0 if w.dtype == np.uint8 else LOWEST
        risky = (rows[first] == lowest) & (rows[second] == lowest)
    pair, channel = np.nonzero(risky)
    if not pair.size:
        return None
    return Overflows(first[pair], second[pair], channel, np.zeros(pair.size, np.int64), 0, 0)


def _dense(
    x: IntArray, x_zero: int, w: IntArray, group: int, windows: Windows, accumulator: Accumulator
) -> Ints | None:
    outputs = w.shape[0] // group
    columns, places = _columns(w, group)
    first, second = _pairs.pair_places(accumulator.saturation_mode, len(places))
    touched = [may_overflow(accumulator.saturation_mode, b, first, second).any() for b in columns]
    if not any(touched):
        return None
    total = np.zeros((group, outputs, x.shape[0], math.prod(windows.out)), np.int32)
    changed = False
    for images, g, seen in _unfolded(x, x_zero, group, windows, kernel_first=True):
        if not touched[g]:
            continue
        found = _pairs.correction(seen, columns[g], _renamed(accumulator, places, g * outputs))
        if found is not None:
            total[g, :, images] += found.reshape(outputs, -1, total.shape[3])
            changed = True
    return _in_shape(total, windows) if changed else None


def _columns(w: IntArray, group: int) -> tuple[IntArray, _pairs.Places]:
    """(B (group, K, outputs / group), place of each k in W[o]); K: the channels of each tap."""
    outputs, channels, taps = w.shape[0] // group, w.shape[1], math.prod(w.shape[2:])
    columns = w.reshape(group, outputs, channels, taps).transpose(0, 3, 2, 1)
    places = np.arange(channels * taps).reshape(channels, taps).T.reshape(-1)
    return np.ascontiguousarray(columns.reshape(group, taps * channels, outputs)), places


def _depthwise(
    x: IntArray, x_zero: int, w: IntArray, windows: Windows, accumulator: Accumulator
) -> Ints | None:
    taps = math.prod(windows.kernel)
    first, second = _pairs.depthwise_places(taps, len(w))
    rows = w.reshape(len(w), taps)
    channels, pairs = np.nonzero((rows[:, first] == LOWEST) & (rows[:, second] == LOWEST))
    if not channels.size:
        return None
    low = sliding(x, windows, x_zero) == (0 if x.dtype == np.uint8 else LOWEST)
    places = list(np.ndindex(*windows.kernel))
    total = np.zeros(low.shape[: low.ndim - len(windows.kernel)], np.int32)
    counts = np.zeros(channels.size, np.int64)
    for i, (channel, pair) in enumerate(zip(channels, pairs, strict=True)):
        one, other = (tap(low[:, channel], places[side[pair]]) for side in (first, second))
        counts[i] = np.count_nonzero(one & other)
        total[:, channel] += np.int32(_pairs.WRAP) * (one & other)
    hit = np.flatnonzero(counts)
    if not hit.size:
        return None
    if accumulator.note is not None:
        names = (first[pairs[hit]], second[pairs[hit]], channels[hit], counts[hit])
        accumulator.note(Overflows(*names, -_pairs.WRAP, int(np.count_nonzero(total))))
    return total


def _unfolded(
    x: IntArray, fill: int, group: int, windows: Windows, *, kernel_first: bool
) -> Iterator[tuple[slice, int, IntArray]]:
    """(images, group, what its windows see: (K, images * places)).

    K runs over (*kernel, channels / group), or the other way round.
    """
    rank, channels = len(windows.out), x.shape[1] // group
    view = sliding(x, windows, fill)
    inner = channels * math.prod(windows.kernel)
    step = max(1, ELEMENTS // max(inner * math.prod(windows.out), 1))
    kernel, out = range(2 + rank, 2 + 2 * rank), range(2, 2 + rank)
    order = (*kernel, 1, 0, *out) if kernel_first else (1, *kernel, 0, *out)
    for start in range(0, x.shape[0], step):
        images = slice(start, min(start + step, x.shape[0]))
        for g in range(group):
            seen = view[images, g * channels : (g + 1) * channels].transpose(order)
            yield images, g, np.ascontiguousarray(seen).reshape(inner, -1)


def _in_shape(total: Ints, windows: Windows) -> Ints:
    """(batch, outputs, *out) of (group, outputs / group, batch, places)."""
    group, outputs, batch, _ = total.shape
    return np.moveaxis(total, 2, 0).reshape(batch, group * outputs, *windows.out)


def _renamed(accumulator: Accumulator, places: _pairs.Places, offset: int) -> Accumulator:
    """Notes with the places and the channels of the whole weight."""
    note = accumulator.note
    if note is None:
        return accumulator

    def named(found: Overflows) -> None:
        note(
            replace(
                found,
                first=places[found.first],
                second=places[found.second],
                channel=found.channel + offset,
            )
        )

    return replace(accumulator, note=named)
