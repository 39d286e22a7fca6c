"""Convolutions to be measured: between their like, in the layout that ONNX Runtime runs them in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onnxq.core.arrays import Array
from onnxq.operator import Precision
from onnxq.ort.layouts import FEW_CHANNELS, FUSED_BEHIND_CONV
from onnxq.ort.runtime import Optimization
from onnxq.times.microbenchmarks import link
from onnxq.times.work import FUSED


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a convolution."""

    channels: int
    results: int
    size: int
    kernel: int = 1
    group: int = 1
    stride: int = 1
    axes: int = 2
    dilation: int = 1

    @property
    def turned(self) -> Shape:
        """The convolution that leads back, where one that keeps the sizes has other channels."""
        return replace(self, channels=self.results, results=self.channels)

    @property
    def is_chain(self) -> bool:
        """Whether the result can be the input of the same convolution, or of its turned one."""
        return self.stride == 1 and self.channels >= FEW_CHANNELS

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of the node: same padding."""
        pad = self.dilation * (self.kernel - 1)
        patches = self.stride == self.kernel
        return {
            "kernel_shape": [self.kernel] * self.axes,
            "pads": [0 if patches else pad // 2] * self.axes
            + [0 if patches else pad - pad // 2] * self.axes,
            "strides": [self.stride] * self.axes,
            "dilations": [self.dilation] * self.axes,
            "group": self.group,
        }

    @property
    def weight(self) -> tuple[int, ...]:
        """Shape of the weight."""
        return (self.results, self.channels // self.group, *[self.kernel] * self.axes)

    @property
    def node(self) -> link.TimedNode:
        """The float node."""
        x = link.numbers(1, self.channels, *[self.size] * self.axes)
        return link.TimedNode("Conv", (x,), (link.numbers(*self.weight),), self.attributes)


POINTWISE = (
    *((16, 16, 112), (24, 144, 56), (32, 32, 56), (64, 64, 56), (64, 256, 56), (32, 192, 28)),
    *((64, 64, 28), (32, 128, 28), (128, 128, 28), (58, 58, 28), (128, 128, 14), (40, 240, 14)),
    *((96, 576, 14), (256, 256, 14), (128, 512, 14), (256, 1024, 14), (512, 512, 7)),
    *((160, 960, 7), (512, 2048, 7), (24, 72, 28), (80, 200, 14), (16, 96, 28), (32, 64, 16)),
    *((16, 64, 1), (64, 240, 1), (120, 480, 1), (240, 960, 1), (32, 32, 8), (64, 128, 8)),
)
"""(channels, results, size)."""
DENSE = (
    *((16, 16, 112), (16, 16, 32), (32, 32, 56), (24, 24, 40), (64, 64, 56), (32, 64, 28)),
    *((64, 64, 28), (64, 64, 14), (128, 128, 28), (96, 96, 14), (256, 256, 14), (512, 512, 7)),
    *((16, 32, 16), (64, 64, 8), (32, 32, 128), (128, 128, 8)),
)
DEPTHWISE = (
    *((16, 112, 3), (32, 112, 3), (64, 56, 3), (96, 56, 3), (144, 28, 3), (72, 28, 5)),
    *((192, 28, 3), (120, 28, 5), (240, 14, 3), (384, 14, 3), (480, 14, 5), (58, 28, 3)),
    *((672, 7, 5), (960, 7, 3), (96, 56, 7), (192, 28, 7), (384, 14, 7), (768, 7, 7), (32, 16, 3)),
)
"""(channels, size, kernel)."""
GROUPED = (
    *((64, 64, 28, 1, 4), (240, 240, 28, 1, 3), (480, 480, 14, 1, 3), (96, 384, 14, 1, 3)),
    *((64, 64, 56, 3, 4), (128, 128, 28, 3, 8), (128, 128, 28, 3, 16), (256, 256, 14, 3, 16)),
    *((128, 128, 28, 3, 32), (96, 96, 28, 3, 2), (240, 240, 14, 3, 10), (32, 32, 28, 3, 4)),
)
"""(channels, results, size, kernel, group)."""
STRIDED = (
    *(Shape(64, 128, 56, 3, stride=2), Shape(128, 256, 28, 3, stride=2)),
    *(Shape(256, 512, 14, 3, stride=2), Shape(32, 64, 32, 3, stride=2)),
    *(Shape(64, 128, 56, 1, stride=2), Shape(256, 512, 28, 1, stride=2)),
    *(Shape(96, 96, 112, 3, 96, 2), Shape(144, 144, 56, 3, 144, 2), Shape(240, 240, 28, 5, 240, 2)),
    *(Shape(64, 64, 56, 3, 64, 2), Shape(128, 128, 28, 3, 8, 2), Shape(64, 64, 56, 3, 4, 2)),
    *(Shape(64, 64, 64, 2, stride=2), Shape(96, 192, 56, 2, stride=2)),
)
FIRST = (
    *(Shape(3, 16, 224, 3, stride=2), Shape(3, 32, 224, 3, stride=2), Shape(3, 24, 160, 3)),
    *(
        Shape(3, 64, 224, 7, stride=2),
        Shape(3, 96, 224, 4, stride=4),
        Shape(3, 192, 224, 16, 1, 16),
    ),
    *(Shape(3, 16, 32, 3), Shape(3, 64, 64, 3), Shape(1, 32, 28, 3), Shape(1, 16, 64, 5)),
    *(Shape(3, 32, 64, 3, stride=2), Shape(3, 128, 32, 4, stride=4), Shape(8, 32, 56, 3)),
    *(Shape(3, 16, 128, 3, stride=2), Shape(1, 64, 32, 3), Shape(3, 64, 32, 3)),
)
SEQUENCES = (
    *(
        Shape(32, 32, 1000, 3, axes=1),
        Shape(64, 64, 256, 3, axes=1),
        Shape(128, 128, 100, 5, axes=1),
    ),
    *(Shape(64, 64, 1000, 2, axes=1, dilation=8), Shape(128, 128, 400, 3, axes=1)),
    *(
        Shape(256, 256, 50, 3, axes=1),
        Shape(32, 32, 1000, 1, axes=1),
        Shape(64, 64, 256, 1, axes=1),
    ),
    *(Shape(128, 128, 100, 1, axes=1), Shape(256, 256, 200, 1, axes=1)),
    *(Shape(64, 64, 256, 3, 64, axes=1), Shape(128, 128, 400, 5, 128, axes=1)),
    *(Shape(256, 256, 100, 15, 256, axes=1), Shape(1, 32, 8000, 10, 1, 5, 1)),
    *(Shape(1, 64, 4000, 32, 1, 16, 1), Shape(8, 64, 256, 3, axes=1)),
)
VOLUMES = (
    *(Shape(16, 16, 14, 3, axes=3), Shape(32, 32, 14, 3, axes=3), Shape(64, 64, 7, 3, axes=3)),
    *(Shape(3, 16, 28, 3, axes=3), Shape(3, 32, 16, 3, axes=3)),
)


def shapes() -> Iterator[Shape]:
    """All convolutions that are measured."""
    yield from (Shape(*each) for each in POINTWISE)
    yield from (Shape(*each, 3) for each in DENSE)
    yield from (Shape(32, 32, 28, 5), Shape(64, 64, 14, 5), Shape(64, 64, 28, 3, dilation=2))
    yield from (Shape(c, c, size, kernel, c) for c, size, kernel in DEPTHWISE)
    yield from (Shape(*each) for each in GROUPED)
    yield from (*STRIDED, *FIRST, *SEQUENCES, *VOLUMES)


def convolution_links() -> Iterator[link.Link]:
    """Every shape in float and in integers."""
    for shape in shapes():
        yield _link(shape, Precision.FLOAT)
        yield _link(shape, Precision.INT8)


def _link(shape: Shape, precision: Precision) -> link.Link:
    """A chain of the convolution, and of the one that leads back; or branches behind one input."""
    is_float, node = precision is Precision.FLOAT, shape.node
    add, begin = (add_float, link.nothing) if is_float else (add_integer, link.quantized)
    chain = link.Link(
        (node.work,),
        precision,
        partial(add, shape=shape),
        node.feeds(),
        link.Arrangement.CHAIN,
        begin,
        optimization=Optimization.ALL,
        few=2,
        more=4,
    )
    if not shape.is_chain:
        is_first = shape.channels < FEW_CHANNELS
        # ahead of the branches: its result is in the layout that they read
        ahead = Shape(shape.channels, shape.channels, shape.size, axes=shape.axes)
        return replace(
            chain,
            arrangement=link.Arrangement.BRANCHES,
            begin=begin if is_first else link.both(begin, partial(add, shape=ahead)),
            end=link.pooled if is_float else link.pooled_integers,
            minus=((link.TimedNode("GlobalAveragePool", (_result(shape),)).work, precision),),
            few=1,
            more=3,
        )
    if shape.channels == shape.results:
        return chain
    works, back = (node.work, shape.turned.node.work), partial(add, shape=shape.turned)
    return replace(chain, works=works, build=link.both(chain.build, back), few=1, more=2)


def fused_links() -> Iterator[link.Link]:
    """Activations that a float convolution computes, in place of the Relu that costs nothing."""
    for shape in (Shape(32, 32, 14), Shape(64, 64, 28), Shape(32, 32, 56), Shape(64, 64, 56)):
        node = shape.node
        for op_type in sorted(FUSED_BEHIND_CONV - {"Relu", "Clip"}):
            work = link.TimedNode(op_type, (_result(shape),)).work
            yield link.Link(
                (replace(work, kind=FUSED),),
                Precision.FLOAT,
                partial(add_float, shape=shape, activation=op_type),
                node.feeds(),
                link.Arrangement.CHAIN,
                optimization=Optimization.ALL,
                minus=((node.work, Precision.FLOAT),),
                few=2,
                more=6,
            )


def _result(shape: Shape) -> Array:
    size = (shape.size + shape.stride - 1) // shape.stride
    return link.numbers(1, shape.results, *[size] * shape.axes)


def add_float(parts: link.Parts, name: str, shape: Shape, activation: str = "Relu") -> str:
    """Conv with a bias, and the activation that it computes itself."""
    w = link.numbers(*shape.weight) / np.float32(np.sqrt(np.prod(shape.weight[1:])))
    inputs = [name, parts.constant(w + np.float32(len(parts.nodes) * 1e-6))]
    inputs.append(parts.constant(np.zeros(shape.results, np.float32)))
    return parts.add(activation, [parts.add("Conv", inputs, shape.attributes)])


def add_integer(parts: link.Parts, name: str, shape: Shape) -> str:
    """Conv between integers, clipped as by a Relu: DequantizeLinear around its weight and bias."""
    weight, bias = link.weight_of(parts, link.weights(*shape.weight), 0)
    return link.quantized(
        parts, parts.add("Conv", [name, weight, bias], shape.attributes), link.CLIPPED
    )
