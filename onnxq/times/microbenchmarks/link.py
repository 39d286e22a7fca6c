"""A link: one node in one form among its like, and how models of few and of many of them are made.

chain     x -> link -> link -> ... -> y      convolutions, MatMuls: each in the layout that
                                             the one before it writes
branches  x -> link -> Shape, x -> link ...  all else; Shape reads the sizes alone, so that
                                             nothing else happens to the result
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxq.core.arrays import Array, Singles
from onnxq.graph.sizes import sizes_of
from onnxq.operator import Precision
from onnxq.operator.site import MICROSOFT
from onnxq.ort.layouts import INTO_BLOCKS, OUT_OF_BLOCKS, QUANTIZES_AT_RUN, REORDERED
from onnxq.ort.runtime import Optimization
from onnxq.qdq.read import DEQUANTIZE, QUANTIZE
from onnxq.times import Change, Work, work_of

# --- A small model that repeats one link, so that the time of a link is a difference of two
#     runs


BLOCKS = "com.microsoft.nchwc"
OPSETS = {"": 21, MICROSOFT: 1, BLOCKS: 1}
NO_ATTRIBUTES: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Parts:
    """Nodes and constants of a model that grows."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def constant(self, value: Array) -> str:
        """Name of a new initializer."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object] = NO_ATTRIBUTES,
        domain: str = "",
        results: int = 1,
    ) -> str:
        """Name of the first result of a new node."""
        name = f"n{len(self.nodes)}"
        outputs = [f"{name}_{i}" if i else name for i in range(results)]
        node = helper.make_node(op_type, inputs, outputs, name=name, domain=domain)
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self.nodes.append(node)
        return name

    def model(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> ir.Model:
        """The model; sizes of its inputs are left open, so that nothing is computed ahead."""
        graph = helper.make_graph(
            self.nodes,
            "link",
            [
                helper.make_tensor_value_info(
                    name,
                    helper.np_dtype_to_tensor_dtype(array.dtype),
                    [f"{name}{axis}" for axis in range(array.ndim)],
                )
                for name, array in inputs.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid(*item) for item in OPSETS.items()]
        return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def numbers(*shape: int) -> Singles:
    """Normally distributed float32 numbers, the same ones every time."""
    return np.resize(_NUMBERS, shape)


def integers(*shape: int) -> Array:
    """Integers of type uint8, the same ones every time."""
    return np.resize(_INTEGERS, shape)


def weights(*shape: int) -> Array:
    """Weights of type int8, the same ones every time."""
    return np.resize(np.maximum(_INTEGERS.view(np.int8), -127), shape)


_NUMBERS = np.random.default_rng(0).standard_normal(65_521, np.float32)  # a prime: rows differ
_INTEGERS = np.random.default_rng(0).integers(0, 256, 65_521).astype(np.uint8)


# --- A link: one node in one form among its like, and how models of few and of many of them are
#     made


Build = Callable[[Parts, str], str]
"""build(parts, name of its input): adds the nodes of one link, and returns its result's name."""


SHAPE = (Work("Shape", "", 1, 1), Precision.FLOAT)
"""Work and precision of the node that reads the result of a branch."""


class Arrangement(enum.Enum):
    """Order in which links stand in a model."""

    CHAIN = "chain"
    BRANCHES = "branches"


def nothing(parts: Parts, name: str) -> str:
    """Adds no node."""
    del parts
    return name


def calling(
    op_type: str,
    attributes: Mapping[str, object] = NO_ATTRIBUTES,
    domain: str = "",
    results: int = 1,
) -> Build:
    """A link of one node with one input."""
    return lambda parts, name: parts.add(op_type, [name], attributes, domain, results)


def both(first: Build, second: Build) -> Build:
    """A link of two links."""
    return lambda parts, name: second(parts, first(parts, name))


def sizes_alone(parts: Parts, name: str) -> str:
    """Reads the sizes of a result."""
    return parts.add("Shape", [name])


@dataclass(frozen=True, eq=False)
class Link:
    """Nodes that are timed together.

    Attributes:
        works: of the nodes that are timed, which share the time evenly.
        inputs: name -> array; "x" is what the first link reads.
        arrangement: of the links in a model.
        begin: adds what stands between "x" and the links.
        optimization: of the session; links that are equal would be made one.
        minus: further works and their precisions that a link holds, whose time is not counted.
        more: links that the longer one has on top, at least.
    """

    works: tuple[Work, ...]
    precision: Precision
    build: Build
    inputs: Mapping[str, Array]
    arrangement: Arrangement = Arrangement.BRANCHES
    begin: Build = nothing
    end: Build = nothing
    optimization: Optimization = Optimization.NONE
    minus: tuple[tuple[Work, Precision], ...] = ()
    few: int = 1
    more: int = 3

    @classmethod
    def alone(
        cls, work: Work, precision: Precision, build: Build, inputs: Mapping[str, Array]
    ) -> Link:
        """Branches of one node, whose result nobody reads."""
        return cls((work,), precision, build, inputs, end=sizes_alone, minus=(SHAPE,))

    def model(self, count: int) -> ir.Model:
        """The model with so many links."""
        parts = Parts()
        name = self.begin(parts, "x")
        outputs = []
        for _ in range(count):
            last = self.build(parts, name)
            if self.arrangement is Arrangement.CHAIN:
                name = last
            else:
                outputs.append(self.end(parts, last))
        if self.arrangement is Arrangement.CHAIN:
            outputs = [self.end(parts, name)]
        return parts.model(self.inputs, outputs)


# --- A float node with its arrays, to be measured: its Work is what `onnxq.times` says of it


@dataclass(frozen=True, eq=False)
class TimedNode:
    """A node of a float model.

    Attributes:
        inputs: one array per activation.
        constants: behind them, one per constant; None for one that is left out.
        results: number of its outputs.
        table: a constant ahead of the activations; None: there is none.
    """

    op_type: str
    inputs: tuple[Array, ...]
    constants: tuple[Array | None, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    results: int = 1
    table: Array | None = None

    def feeds(self) -> dict[str, Array]:
        """Arrays for the inputs: x, x1, x2 ..."""
        return {f"x{i or ''}": array for i, array in enumerate(self.inputs)}

    def build(self, parts: Parts, name: str) -> str:
        """Adds the node, as a link does."""
        others = [f"x{i}" for i in range(1, len(self.inputs))]
        ahead = [] if self.table is None else [parts.constant(self.table)]
        constants = ["" if c is None else parts.constant(c) for c in self.constants]
        return parts.add(
            self.op_type, [*ahead, name, *others, *constants], self.attributes, results=self.results
        )

    @property
    def work(self) -> Work:
        """Work of the node, as the model of one link states it."""
        parts = Parts()
        last = self.build(parts, "x")
        results = [last, *(f"{last}_{i}" for i in range(1, self.results))]
        model = parts.model(self.feeds(), results)
        sizes = sizes_of(model, {name: array.shape for name, array in self.feeds().items()})
        found = work_of(model.graph.node(0), sizes)
        assert found is not None, self.op_type
        return found


# --- Pieces of quantized graphs: Q and DQ, weights, and integer operators, all with one scale


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
    scale_and_point = qparams(parts, point)
    integers = parts.add("QuantizeLinear", [name, *scale_and_point])
    return parts.add("DequantizeLinear", [integers, *scale_and_point])


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


# --- Nodes that change a tensor of an image from one layout or type to another


LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Permutations to channels last, and back."""


def changing_link(change: Change, channels: int) -> Build:
    """The node of a change, of a tensor with so many channels."""
    builds: dict[Change, Build] = {
        Change.QUANTIZE: lambda parts, name: parts.add(QUANTIZE, [name, *qparams(parts)]),
        Change.DEQUANTIZE: lambda parts, name: parts.add(DEQUANTIZE, [name, *qparams(parts)]),
        Change.QUANTIZE_AT_RUN: calling(QUANTIZES_AT_RUN, results=3),
        Change.CHANNELS_LAST: calling(REORDERED, {"perm": LAST}),
        Change.CHANNELS_FIRST: calling(REORDERED, {"perm": FIRST}),
        Change.BLOCKED: calling(INTO_BLOCKS, {}, BLOCKS),
        Change.UNBLOCKED: calling(OUT_OF_BLOCKS, {"channels": channels}, BLOCKS),
    }
    return builds[change]


READS = {Change.DEQUANTIZE: "q", Change.CHANNELS_LAST: "q", Change.CHANNELS_FIRST: "t"}
"""Change -> which of `tensors_of` it reads, where that is not "x"."""


def tensors_of(shape: tuple[int, ...]) -> dict[str, Array]:
    """Floats x, integers q, and integers t with channels last, of an image (1, C, H, W)."""
    turned = [shape[axis] for axis in LAST]
    return {"x": numbers(*shape), "q": integers(*shape), "t": integers(*turned)}
