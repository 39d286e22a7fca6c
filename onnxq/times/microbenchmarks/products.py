"""Products of matrices and recurrent nodes to be measured, in each form that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import Precision
from onnxq.ort.runtime import Optimization
from onnxq.times import Change
from onnxq.times.microbenchmarks.link import Arrangement, Build, Link, both, nothing
from onnxq.times.microbenchmarks.parts import MICROSOFT, Parts, integers, numbers, weights
from onnxq.times.microbenchmarks.quantized_parts import (
    calling_on_integers,
    qparams,
    quantized,
    weight_of,
)
from onnxq.times.microbenchmarks.timed_node import TimedNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Singles

WEIGHTS = (
    *((32, 32), (64, 64), (64, 256), (128, 128), (128, 512), (192, 192), (192, 768), (256, 256)),
    *((256, 1024), (384, 384), (384, 1536), (768, 768), (768, 3072), (1024, 1024), (512, 64)),
)
"""(k, n), and back."""
ROWS = (1, 8, 32, 128, 197, 512)
MOST_PRODUCTS = 512 * 1024 * 1024
ATTENTION = (
    *(
        (1, 16, 64),
        (4, 16, 32),
        (3, 65, 64),
        (4, 64, 32),
        (6, 197, 64),
        (12, 128, 64),
        (3, 197, 64),
    ),
    *((12, 32, 64), (64, 49, 32), (8, 256, 64), (2, 128, 64)),
)
"""(heads, rows, size of a head)."""
RECURRENT = (
    *((32, 32), (32, 64), (50, 64), (100, 96), (50, 128), (100, 128), (26, 256), (64, 256)),
    *((16, 512),),
)
"""(steps, hidden size), and as many features: they are a chain."""


def product_links() -> Iterator[Link]:
    """Constant weights in four forms, and products of two activations in two."""
    for k, n in WEIGHTS:
        for m in ROWS:
            if m * k * n <= MOST_PRODUCTS:
                yield from _constant(m, k, n)
    for heads, rows, size in ATTENTION:
        yield from _activations(numbers(1, heads, rows, size), numbers(1, heads, size, rows))
        yield from _activations(numbers(1, heads, rows, rows), numbers(1, heads, rows, size))


def _constant(m: int, k: int, n: int) -> Iterator[Link]:
    there = TimedNode("MatMul", (numbers(m, k),), (numbers(k, n),))
    back = TimedNode("MatMul", (numbers(m, n),), (numbers(n, k),))
    works = (there.work, back.work) if k != n else (there.work,)
    count = 2 // len(works)
    quantize = tuple((Change.QUANTIZE.work(m * size), Precision.FLOAT) for size in (k, n))
    builds: dict[Precision, tuple[Build, Build]] = {
        Precision.FLOAT: (_float(k, n), _float(n, k)),
        Precision.INT8: (_integer(k, n), _integer(n, k)),
        Precision.INT8_FLOAT_OUTPUT: (_float_result(k, n), _float_result(n, k)),
        Precision.DYNAMIC_INT8: (_dynamic(k, n), _dynamic(n, k)),
    }
    for form, (first, second) in builds.items():
        yield Link(
            works,
            form,
            first if k == n else both(first, second),
            there.feeds(),
            Arrangement.CHAIN,
            quantized if form is Precision.INT8 else nothing,
            optimization=Optimization.ALL,
            minus=quantize[: len(works)] if form is Precision.INT8_FLOAT_OUTPUT else (),
            few=count,
            more=2 * count,
        )


def _float(k: int, n: int) -> Build:
    w = numbers(k, n) / np.float32(np.sqrt(k))

    def build(parts: Parts, name: str) -> str:
        return parts.add("MatMul", [name, parts.constant(np.roll(w, len(parts.nodes)))])

    return build


def _integer(k: int, n: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        w, _ = weight_of(parts, weights(k, n), 1)
        return quantized(parts, parts.add("MatMul", [name, w]))

    return build


def _float_result(k: int, n: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        scale, point = qparams(parts)
        x = parts.add("QuantizeLinear", [name, scale, point])
        w = [np.roll(weights(k, n), len(parts.nodes)), np.full(n, 0.01, np.float32)]
        named = [parts.constant(each) for each in (*w, np.zeros(n, np.int8))]
        operands = [x, named[0], scale, named[1], point, named[2]]
        return parts.add("MatMulIntegerToFloat", operands, {}, MICROSOFT)

    return build


def _dynamic(k: int, n: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        w = [np.roll(weights(k, n), len(parts.nodes)), np.full(n, 0.01, np.float32)]
        named = [parts.constant(each) for each in (*w, np.zeros(n, np.int8))]
        return parts.add("DynamicQuantizeMatMul", [name, *named], {}, MICROSOFT)

    return build


def _activations(a: Singles, b: Singles) -> Iterator[Link]:
    node = TimedNode("MatMul", (a, b))
    yield Link.alone(node.work, Precision.FLOAT, node.build, node.feeds())
    yield Link.alone(
        node.work,
        Precision.INT8,
        calling_on_integers("QLinearMatMul", {}, ("x1",), ""),
        {"x": integers(*a.shape), "x1": integers(*b.shape)},
    )


def recurrent_links() -> Iterator[Link]:
    """LSTM in float and dynamically, GRU in float: a chain, one behind the other."""
    for steps, hidden in RECURRENT:
        for op_type, gates in (("LSTM", 4), ("GRU", 3)):
            shapes = ((1, gates * hidden, hidden),) * 2
            w, r = (numbers(*shape) / np.float32(np.sqrt(hidden)) for shape in shapes)
            node = TimedNode(op_type, (numbers(steps, 1, hidden),), (w, r), {"hidden_size": hidden})
            yield Link(
                (node.work,),
                Precision.FLOAT,
                both(node.build, _squeezed),
                node.feeds(),
                Arrangement.CHAIN,
                more=2,
            )
            if op_type == "LSTM":
                yield Link(
                    (node.work,),
                    Precision.DYNAMIC_INT8,
                    both(_dynamic_lstm(hidden), _squeezed),
                    node.feeds(),
                    Arrangement.CHAIN,
                    more=2,
                )


def _squeezed(parts: Parts, name: str) -> str:
    """Y (steps, 1, batch, hidden) as the next X."""
    return parts.add("Squeeze", [name, parts.constant(np.array([1]))])


def _dynamic_lstm(hidden: int) -> Build:
    def build(parts: Parts, name: str) -> str:
        w = parts.constant(weights(1, hidden, 4 * hidden))
        scale = parts.constant(np.full((1, 4 * hidden), 0.002, np.float32))
        point = parts.constant(np.zeros((1, 4 * hidden), np.int8))
        inputs = [name, w, w, "", "", "", "", "", scale, point, scale, point]
        return parts.add("DynamicQuantizeLSTM", inputs, {"hidden_size": hidden}, MICROSOFT)

    return build
