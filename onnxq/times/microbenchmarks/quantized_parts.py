"""Pieces of quantized graphs: Q and DQ, weights, and integer operators, all with one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.times.microbenchmarks.parts import MICROSOFT, Parts

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from onnxq.times.microbenchmarks.link import Build

SCALE = np.float32(0.02)
MIDDLE = np.uint8(128)
CLIPPED = np.uint8(0)
"""Zero point behind a Relu: numbers below 0 are clipped.

Where sums become integers one by one, as in WebAssembly, the processor cannot foresee which: a 1x1
convolution of 64 to 384 channels over 8x8 and one back take 255 us there, and 138 where none is
clipped."""


def qparams(parts: Parts, point: np.uint8 = MIDDLE) -> list[str]:
    """Names of the scale and the zero point."""
    return [parts.constant(np.asarray(each)) for each in (SCALE, point)]


def quantized(parts: Parts, name: str, point: np.uint8 = MIDDLE) -> str:
    """Integers, and behind them the numbers that they stand for."""
    ends = qparams(parts, point)
    return parts.add("DequantizeLinear", [parts.add("QuantizeLinear", [name, *ends]), *ends])


def weight_of(parts: Parts, w: Array, axis: int) -> tuple[str, str]:
    """(weight, bias of zeros) as DequantizeLinear gives them, one scale per channel.

    Every call rolls w by another step, so that no two of them are one.
    """
    count = w.shape[axis]
    scale = np.full(count, 0.01 / np.sqrt(w.size / count), np.float32)
    integers = np.roll(w, len(parts.nodes)), np.zeros(count, np.int32)
    points = np.zeros(count, np.int8), np.zeros(count, np.int32)
    found = [
        parts.add("DequantizeLinear", [parts.constant(each) for each in parts_of], {"axis": at})
        for *parts_of, at in (
            (integers[0], scale, points[0], axis),
            (integers[1], scale * SCALE, points[1], 0),
        )
    ]
    return found[0], found[1]


def on_integers(
    parts: Parts,
    op_type: str,
    operands: tuple[str, ...],
    attributes: dict[str, object],
    domain: str = MICROSOFT,
) -> str:
    """An operator whose operands are followed by their scale and zero point, as is its result's."""
    inputs = [part for name in operands for part in (name, *qparams(parts))]
    return parts.add(op_type, [*inputs, *qparams(parts)], attributes, domain)


def calling_on_integers(
    op_type: str,
    attributes: dict[str, object],
    others: tuple[str, ...] = (),
    domain: str = MICROSOFT,
) -> Build:
    """A link of one operator on integers; `others` are the inputs behind its first one."""
    return lambda parts, name: on_integers(parts, op_type, (name, *others), attributes, domain)


def pooled(parts: Parts, name: str) -> str:
    """The mean of each channel: few numbers, in whatever layout the input has."""
    return parts.add("GlobalAveragePool", [name])


def pooled_integers(parts: Parts, name: str) -> str:
    """The mean of each channel, in integers."""
    return quantized(parts, pooled(parts, name))
