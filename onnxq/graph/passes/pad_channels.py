"""Channels of zeros beside those of a depthwise convolution, up to a multiple of 16.

ONNX Runtime's depthwise kernel on integers takes 16 channels at a time and the rest one by one. A
3x3 on 28x28 takes 74 us with 60 channels and 29 with 64, 116 with 116 and 47 with 128 (AVX512-VNNI,
benchmarks/results/mobile.md). In float, ONNX Runtime pads channels itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, forget_unread, graph_of, new_initializer
from onnxq.graph.walk import value_name
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import find_input

LANES = 16
SCALAR_NS = 0.6  # of a channel that is computed alone, per tap and place
PRODUCT_NS = 0.0024  # of a weight of a dense convolution, per place
ELEMENT_NS = 0.3  # of an element of what stands between convolutions
PADDED_KEY = "onnxq.padded_channels"
"""Metadata of the model: JSON, tensor -> number of its channels in the float model."""
POINTWISE = frozenset(
    (
        *("Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid"),
        *("Softplus", "Tanh", "GlobalAveragePool", "GlobalMaxPool"),
    )
)
"""Functions of one tensor that keep channels apart."""
PAIRS = frozenset(("Add", "Mul"))
_WEIGHT, _BIAS = 1, 2  # slots of Conv


class PadDepthwise(ir.passes.InPlacePass):
    """Conv_2(f(depthwise(g(Conv_1(x))))) with C' = 16 ceil(C / 16) channels in place of C.

    Conv_1 gets rows of zeros, the depthwise convolution too, and Conv_2 columns of zeros, so that
    the result is the same. Between them may stand functions of one element, global pools, sums and
    products of tensors with these channels (squeeze and excitation). All graphs; where something
    else reads or makes the channels, or the zeros would cost more than they save, all stays.
    The model's metadata says how many channels there were.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        constants: _Constants | None = None
        padded: dict[str, int] = {}
        for node in list(all_nodes(model)):
            channels = _depthwise_channels(node)
            if channels < LANES or channels % LANES == 0:
                continue
            tied = _tied(node, channels)
            if tied is None or not _is_worth(tied, channels):
                continue
            constants = constants or _Constants(FreeNames(model))
            _widen(tied, channels, constants)
            padded |= {value_name(value): channels for value in tied.values}
        if padded:
            model.metadata_props[PADDED_KEY] = json.dumps(padded)
        return ir.passes.PassResult(model, modified=bool(padded))


def padded_channels(model: ir.Model) -> Mapping[str, int]:
    """Tensor -> number of its channels in the float model, where channels were added."""
    text = model.metadata_props.get(PADDED_KEY)
    return {} if text is None else json.loads(text)


@dataclass(slots=True)
class _Tied:
    """Tensors and convolutions that share the channels of one depthwise convolution.

    Attributes:
        depthwise: convolutions, channel by channel.
    """

    values: dict[ir.Value, None] = field(default_factory=dict)
    rows: dict[ir.Node, None] = field(default_factory=dict)
    columns: dict[ir.Node, None] = field(default_factory=dict)
    depthwise: dict[ir.Node, None] = field(default_factory=dict)
    others: dict[ir.Node, None] = field(default_factory=dict)


def _depthwise_channels(node: ir.Node) -> int:
    """Number of channels of a depthwise convolution with as many results; else 0."""
    weight = _float_weight(node)
    group = node.attributes.get_int("group", 1) if weight is not None else 1
    if weight is None or group == 1 or weight.shape[0] != group or weight.shape[1] != 1:
        return 0
    return group


def _float_weight(node: ir.Node) -> ir.TensorProtocol | None:
    """The constant float32 weight of a Conv whose bias, if any, is constant too."""
    if node.op_type != "Conv" or node.domain:
        return None
    weight, bias = constant(node.inputs[_WEIGHT]), find_input(node, _BIAS)
    if weight is None or weight.dtype != ir.DataType.FLOAT:
        return None
    return None if bias is not None and constant(bias) is None else weight


def _tied(start: ir.Node, channels: int) -> _Tied | None:
    """Everything that has the channels of the convolution; None: not all of it can be widened."""
    tied = _Tied()
    waiting = [start.inputs[0], start.outputs[0]]
    while waiting:
        value = waiting.pop()
        if value is None or not _has_channels(value, channels, start):
            return None
        if value in tied.values:
            continue
        tied.values[value] = None
        producer = value.producer()
        assert producer is not None
        for node, slot in ((producer, None), *((use.node, use.idx) for use in value.uses())):
            more = _link(tied, node, slot, channels)
            if more is None:
                return None
            waiting += more
    return tied


def _has_channels(value: ir.Value, channels: int, start: ir.Node) -> bool:
    """Whether it is a tensor of that many channels between nodes of the same graph."""
    if value.shape is None or len(value.shape) < 3 or value.shape[1] != channels:
        return False
    producer = value.producer()
    if producer is None or value.is_graph_output() or value.dtype != ir.DataType.FLOAT:
        return False
    return all(node.graph is start.graph for node in (producer, *value.consumers()))


def _link(
    tied: _Tied, node: ir.Node, slot: int | None, channels: int
) -> list[ir.Value | None] | None:
    """Notes a node that makes (slot None) or reads a tied tensor; what else is tied by it.

    None: it cannot be widened.
    """
    if node.domain:
        return None
    if node.op_type == "Conv":
        if _float_weight(node) is None or slot not in (None, 0):
            return None
        if _depthwise_channels(node) == channels:
            tied.depthwise[node] = None
            return [node.inputs[0], node.outputs[0]]
        if node.attributes.get_int("group", 1) != 1:
            return None
        (tied.rows if slot is None else tied.columns)[node] = None
        return []
    if node.op_type in POINTWISE:
        tied.others[node] = None
        return [node.inputs[0], node.outputs[0]] if slot in (None, 0) else None
    if node.op_type in PAIRS:
        tied.others[node] = None
        constants = [constant(v) for v in node.inputs]
        numbers = [tensor is not None and tensor.size == 1 for tensor in constants]
        read = [v for v, is_number in zip(node.inputs, numbers, strict=True) if not is_number]
        return [node.outputs[0], *read]
    return None


def _is_worth(tied: _Tied, channels: int) -> bool:
    """Whether the channels that are computed alone cost more than those that are added."""
    added = -channels % LANES
    taps = sum(_per_row(node) for node in tied.depthwise)
    products = sum(_per_row(node) for node in tied.rows)
    products += sum(math.prod(_shape(node)) // _shape(node)[1] for node in tied.columns)
    costs = added * (products * PRODUCT_NS + len(tied.others) * ELEMENT_NS)
    return channels % LANES * taps * SCALAR_NS > costs


def _per_row(conv: ir.Node) -> int:
    """Weights of one output channel."""
    return math.prod(_shape(conv)[1:])


def _shape(conv: ir.Node) -> tuple[int, ...]:
    weight = _float_weight(conv)
    assert weight is not None, "looked at when it was tied"
    return tuple(weight.shape.numpy())


def _widen(tied: _Tied, channels: int, constants: _Constants) -> None:
    added = -channels % LANES
    for node in (*tied.rows, *tied.depthwise):
        constants.pad(node, _WEIGHT, 0, added)
        if find_input(node, _BIAS) is not None:
            constants.pad(node, _BIAS, 0, added)
    for node in tied.columns:
        constants.pad(node, _WEIGHT, 1, added)
    for node in tied.depthwise:
        node.attributes["group"] = ir.AttrInt64("group", channels + added)
    for value in tied.values:
        assert value.shape is not None
        dims = list(value.shape.dims)
        dims[1] = channels + added
        value.shape = ir.Shape(dims)


class _Constants:
    """Padded constants; nodes that read one constant read one padded one."""

    def __init__(self, names: FreeNames) -> None:
        self._names = names
        self._made: dict[tuple[ir.Value, ir.Graph, int, int], ir.Value] = {}

    def pad(self, node: ir.Node, slot: int, axis: int, added: int) -> None:
        """Lets the node read the constant with zeros behind the end of an axis."""
        old, graph = node.inputs[slot], graph_of(node)
        assert old is not None
        key = old, graph, axis, added
        if key not in self._made:
            self._made[key] = self._padded(old, graph, axis, added)
        node.replace_input_with(slot, self._made[key])
        forget_unread(old)

    def _padded(self, old: ir.Value, graph: ir.Graph, axis: int, added: int) -> ir.Value:
        tensor = constant(old)
        assert tensor is not None
        width = [(0, added if i == axis else 0) for i in range(len(tensor.shape))]
        sizes = [size + more for size, (_, more) in zip(tensor.shape.numpy(), width, strict=True)]
        name = self._names.value(f"{old.name}_padded")
        wide = derived(lambda: np.pad(tensor.numpy(), width), ir.DataType.FLOAT, sizes, name)
        return new_initializer(graph, name, wide)
