"""Nodes that multiply integers, as nasty as they get for machines that add pairs in int16.

Sizes around the blocks of the kernels (odd, 8 and 16 more or less, beyond 2^16), every padding,
stride, dilation, group and channel multiplier, zero points per tensor and per channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import Case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.operator import Array, AttributeValue

PAIRS = (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"))
KERNELLED = PAIRS[:3]
"""Pairs of QLinearConv, QLinearMatMul and QGemm; ONNX Runtime has no int8 by uint8 there."""
SHAPES = (  # (M, K, N) of products
    (1, 1, 1),
    (3, 2, 5),
    (1, 64, 33),
    (1, 37, 16),
    (6, 9, 8),
    (7, 40, 19),
    (9, 257, 12),
    (33, 130, 17),
    (3, 1030, 5),
)
LONG = 65_541
"""Products of one sum; odd, beyond 2^16, and 127 * 255 * LONG is still an int32."""
CONVOLUTIONS: tuple[tuple[int, int, int, tuple[int, ...], tuple[int, ...], dict[str, object]], ...]
CONVOLUTIONS = (  # channels, outputs, group, kernel, image, attributes
    (8, 16, 1, (3, 3), (7, 6), {}),
    (3, 16, 1, (3, 3), (9, 9), {"strides": [2, 2]}),
    (7, 5, 1, (1, 1), (5, 5), {}),
    (64, 20, 1, (1, 1), (5, 5), {}),
    (40, 16, 1, (3, 3), (6, 6), {"dilations": [2, 2]}),
    (130, 9, 1, (3, 3), (4, 4), {}),
    (1, 1, 1, (3, 3), (7, 7), {}),
    (16, 16, 16, (3, 3), (7, 7), {}),  # depthwise
    (32, 32, 32, (3, 3), (7, 7), {"strides": [2, 2]}),
    (24, 24, 24, (3, 3), (7, 7), {"strides": [2, 2]}),
    (8, 8, 8, (5, 5), (8, 8), {}),
    (32, 32, 32, (5, 5), (9, 9), {"dilations": [2, 2]}),
    (12, 12, 12, (3, 3), (6, 6), {}),
    (16, 16, 16, (7, 7), (9, 9), {}),
    (16, 16, 16, (9,), (14,), {}),
    (16, 16, 16, (3, 3, 1), (5, 5, 5), {}),
    (16, 32, 16, (3, 3), (7, 7), {}),  # channel multipliers
    (6, 12, 6, (3, 3), (7, 7), {}),
    (1, 8, 1, (5, 5), (8, 8), {}),
    (32, 32, 4, (3, 3), (7, 7), {}),  # groups
    (15, 10, 5, (3, 2), (7, 7), {}),
    (48, 8, 1, (1,), (12,), {}),
    (5, 6, 1, (3,), (12,), {}),
    (4, 6, 1, (2, 3, 3), (4, 5, 6), {}),
    (7283, 2, 1, (3, 3), (3, 4), {}),  # K beyond 2^16
)


class Draw:
    """Random integers of every kind that a kernel may trip over."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def integers(self, shape: tuple[int, ...], dtype: str, fill: str) -> Array:
        """Integers of that type.

        Args:
            shape: of the result.
            dtype: uint8 or int8.
            fill: "uniform"; "ends": half of them the lowest, a quarter the highest, so that 0 and
                255 meet -128 and 127.
        """
        limits = np.iinfo(dtype)
        x = self.random.integers(limits.min, limits.max, shape, np.dtype(dtype), endpoint=True)
        if fill == "uniform":
            return x
        u = self.random.random(shape)
        x = np.where(u < 0.5, np.asarray(limits.min, dtype), x)
        return np.asarray(np.where(u > 0.75, np.asarray(limits.max, dtype), x))

    def case(
        self,
        name: str,
        inputs: tuple[Array | None, ...],
        constants: tuple[int, ...],
        attributes: Mapping[str, AttributeValue] | None = None,
        outputs: int = 1,
    ) -> Case:
        """A Case."""
        return Case(name, inputs, constants, attributes, outputs)


def real(value: float) -> Array:
    """A scale."""
    return np.asarray(value, np.float32)


def products(seed: int, fill: str) -> Iterator[tuple[str, str, Case]]:
    """(op_type, domain, case) of every operator that multiplies integers."""
    draw = Draw(seed)
    for at, bt in PAIRS:
        for m, k, n in SHAPES:
            yield from _plain(draw, at, bt, (m, k, n), fill)
        yield from _per_column(draw, at, bt, fill)
        for i, shape in enumerate(CONVOLUTIONS):
            yield from _convolutions(draw, at, bt, shape, i, fill)
    for bt in ("int8", "uint8"):
        yield from _dynamic(draw, bt, fill)
    yield from _long(draw, fill)


def _plain(
    draw: Draw, at: str, bt: str, shape: tuple[int, int, int], fill: str
) -> Iterator[tuple[str, str, Case]]:
    m, k, n = shape
    label = f"{at}-{bt}-{m}-{k}-{n}"
    a, b = draw.integers((m, k), at, fill), draw.integers((k, n), bt, fill)
    zero, zero_b = draw.integers((), at, "uniform"), draw.integers((), bt, "uniform")
    for constants in ((1, 2, 3), (2, 3)):  # a weight, or two activations
        yield (
            "MatMulInteger",
            "",
            draw.case(f"{label}-{constants[0]}", (a, b, zero, zero_b), constants),
        )
    if (at, bt) not in KERNELLED:
        return
    y = real(0.0004 * 60 * np.sqrt(k))
    rest = (real(0.02), zero, b, np.full(n, 0.02, np.float32), np.zeros(n, bt), y, np.array(9, at))
    every = (1, 2, 3, 4, 5, 6, 7)
    yield "QLinearMatMul", "", draw.case(label, (a, *rest), every)
    bias = draw.random.integers(-9999, 9999, n).astype(np.int32)
    gemm = (a, real(0.02), zero, np.ascontiguousarray(b.T), *rest[3:5], bias, y, np.array(9, at))
    yield "QGemm", "com.microsoft", draw.case(label, gemm, (*every, 8), {"transB": 1})
    late = (a, b, real(0.1), np.full(n, 0.02, np.float32), zero, np.zeros(n, bt))
    yield "MatMulIntegerToFloat", "com.microsoft", draw.case(label, late, (1, 2, 3, 4, 5))


def _per_column(draw: Draw, at: str, bt: str, fill: str) -> Iterator[tuple[str, str, Case]]:
    """Zero points of their own in every column, and batches."""
    label = f"{at}-{bt}"
    a, b = draw.integers((7, 41), at, fill), draw.integers((41, 19), bt, fill)
    zero, zeros = draw.integers((), at, "uniform"), draw.integers((19,), bt, "uniform")
    points = draw.case(f"{label}-columns", (a, b, zero, zeros), (1, 2, 3))
    yield "MatMulInteger", "", points
    left, right = draw.integers((2, 5, 40), at, fill), draw.integers((2, 40, 19), bt, fill)
    for constants in ((), (1,)):
        name = f"{label}-batches-{len(constants)}"
        yield "MatMulInteger", "", draw.case(name, (left, right, None, None), constants)
    if (at, bt) not in KERNELLED:
        return
    scales = np.full(19, 0.02, np.float32)
    late = (a, b, real(0.1), scales, zero, zeros)
    yield (
        "MatMulIntegerToFloat",
        "com.microsoft",
        draw.case(f"{label}-columns", late, (1, 2, 3, 4, 5)),
    )
    rest = (real(0.02), zero, b, scales, zeros, real(0.2), np.array(9, at))
    yield "QLinearMatMul", "", draw.case(f"{label}-columns", (a, *rest), (1, 2, 3, 4, 5, 6, 7))


def _convolutions(
    draw: Draw,
    at: str,
    bt: str,
    shape: tuple[int, int, int, tuple[int, ...], tuple[int, ...], dict[str, object]],
    i: int,
    fill: str,
) -> Iterator[tuple[str, str, Case]]:
    channels, outputs, group, kernel, image, extra = shape
    x = draw.integers((1 if channels > 1000 else 2, channels, *image), at, fill)
    w = draw.integers((outputs, channels // group, *kernel), bt, fill)
    both = np.array((*kernel, *kernel))
    pads = np.minimum(draw.random.integers(0, 3, 2 * len(kernel)), both - 1)
    attributes: dict[str, AttributeValue] = {"group": group, "pads": pads.tolist()}
    attributes |= extra  # type: ignore[arg-type]  # lists of int
    low = int(np.iinfo(at).min)
    for point in (0, 3):
        zero = np.array(low if draw.random.random() < 0.5 else 5, at)
        label = f"{at}-{bt}-{i}-{point}"
        if len(kernel) == 2:
            integer = (x, w, zero, np.array(point, bt))
            yield "ConvInteger", "", draw.case(label, integer, (1, 2, 3), attributes)
        if (at, bt) not in KERNELLED:
            continue
        one = draw.random.random() < 0.5
        scale = real(0.02) if one else np.full(outputs, 0.02, np.float32)
        points = np.array(point, bt) if one else np.full(outputs, point, bt)
        y = real(0.0004 * 280 * np.sqrt(w[0].size))
        bias = draw.random.integers(-9999, 9999, outputs).astype(np.int32)
        inputs = (x, real(0.02), zero, w, scale, points, y, np.array(9, at), bias)
        yield "QLinearConv", "", draw.case(label, inputs, tuple(range(1, 9)), attributes)


def _dynamic(draw: Draw, bt: str, fill: str) -> Iterator[tuple[str, str, Case]]:
    """Activations in float: what saturates then is half of them at either end."""
    for m, k, n in SHAPES[2:]:
        a = _reals(draw, (m, k), fill)
        b, scale = draw.integers((k, n), bt, fill), np.full(n, 0.02, np.float32)
        for points in (np.zeros(n, bt), draw.integers((n,), bt, "uniform")):
            name = f"{bt}-{m}-{k}-{n}-{int(points.any())}"
            inputs = (a, b, scale, points)
            yield "DynamicQuantizeMatMul", "com.microsoft", draw.case(name, inputs, (1, 2, 3))
    hidden, size = 19, 21
    w = draw.integers((1, size, 4 * hidden), bt, fill)
    r = draw.integers((1, hidden, 4 * hidden), bt, fill)
    scales, points = np.full(1, 0.005, np.float32), np.zeros(1, bt)
    lstm = (_reals(draw, (4, 3, size), fill), w, r, *(None,) * 5, scales, points, scales, points)
    attributes: dict[str, AttributeValue] = {"hidden_size": hidden}
    case = draw.case(bt, lstm, (1, 2, 8, 9, 10, 11), attributes, 3)
    yield "DynamicQuantizeLSTM", "com.microsoft", case
    for rows in (1, 7):
        x, weight = draw.integers((2, rows, 41), "uint8", fill), draw.integers((41, 48), bt, fill)
        column, zeros = np.full(48, 0.001, np.float32), draw.integers((48,), bt, "uniform")
        bias = np.zeros(48, np.float32)
        attention = (x, weight, bias, real(0.01), column, None, np.array(9, np.uint8), zeros)
        label = f"{bt}-{rows}"
        case = draw.case(label, attention, (1, 2, 3, 4, 6, 7), {"num_heads": 2}, 2)
        yield "QAttention", "com.microsoft", case


def _reals(draw: Draw, shape: tuple[int, ...], fill: str) -> Array:
    x = draw.random.standard_normal(shape)
    return np.asarray(x if fill == "uniform" else np.sign(x) * 3, np.float32)


def _long(draw: Draw, fill: str) -> Iterator[tuple[str, str, Case]]:
    """K beyond 2^16."""
    for at, bt in KERNELLED:
        a, b = draw.integers((2, LONG), at, fill), draw.integers((LONG, 3), bt, fill)
        zero, point = np.array(0, at), np.array(0, bt)
        yield "MatMulInteger", "", draw.case(f"{at}-{bt}-long", (a, b, zero, point), (1, 2, 3))
        rest = (real(0.02), zero, b, real(0.02), point, real(100), np.array(9, at))
        yield "QLinearMatMul", "", draw.case(f"{at}-{bt}-long", (a, *rest), (1, 2, 3, 4, 5, 6, 7))
