"""Layers: nodes with a quantized weight, as the matrix products that PTQ algorithms see."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import catalog
from onnxq.affine import dequantize, fake_quantize
from onnxq.core.arrays import Ints, Reals, Singles
from onnxq.graph.edit import NamePool, graph_of, new_initializer
from onnxq.graph.walk import node_name, tensor_names, value_name
from onnxq.graph.weights import constant_array, is_private
from onnxq.operator import Rule, Unfolded
from onnxq.operator.nodes import find_input, has_input, input_at
from onnxq.ort.matmul_add import matmul_add
from onnxq.qdq.tensors import rounded_integers
from onnxq.qparams import PerBlock, QParams, scale_for_int32_bias
from onnxq.static.insertion.decision import Decision, Quantize, weight_observer, weight_of
from onnxq.static.plan import Plan
from onnxq.static.planning.constants import PlannedWeight, plan_bias
from onnxq.static.prepared import Prepared

Number = TypeVar("Number", bound=np.generic)

MOST_PLACES = 1 << 16
"""Places of all samples that are looked at, evenly spread: means are then off by 1/256 of a
deviation, and a covariance of 4,000 inputs has 16 places each."""
CHUNK_ELEMENTS = 1 << 22  # of rows that are unfolded at once: 16 MiB


@dataclass(frozen=True, slots=True, eq=False)
class BiasSlot:
    """Where a layer's bias stands: an input of its own, or of the Add behind a MatMul."""

    node: ir.Node
    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A node with a quantized weight, in real numbers: factors per channel are taken out.

    Attributes:
        x: the tensor that it reads.
        y: its result with the bias, before any Relu or Clip that is folded into it.
        span: smallest and largest integer that its observer gives.
        channel_scale: factor per channel of x, on its axis 1, that integers of x carry; None: none.
        bias_slot: where its bias is, or can be added for nothing; None: nowhere.
        clamp: real bounds of the Relu or Clip that alone reads y; None: there is none.
    """

    node: ir.Node
    rule: Rule
    unfolded: Unfolded
    x: str
    y: str
    plan: PlannedWeight
    span: tuple[int, int]
    channel_scale: Singles | None
    bias_slot: BiasSlot | None
    clamp: tuple[float, float] | None

    @property
    def name(self) -> str:
        """The node's."""
        return node_name(self.node)

    @property
    def weight(self) -> Singles:
        """float32: the weight as the model has it."""
        return constant_array(weight_of(self.node, self.rule))

    @property
    def written(self) -> Singles:
        """float32: the weight as it is rounded, times the factors that its integers carry."""
        if self.plan.channel_scale is None:
            return self.weight
        return np.asarray(self.weight * self._rows(np.array(self.plan.channel_scale, np.float32)))

    @property
    def is_alone(self) -> bool:
        """Whether no other node reads the weight."""
        return is_private(weight_of(self.node, self.rule))

    @property
    def integers(self) -> Ints:
        """Integers (groups, outputs, inputs), less the zero point."""
        p = self.plan
        integers = rounded_integers(self.written, p.qparams, p.integer_limit, p.bias_preserving)
        zero = np.broadcast_to(self._along(p.qparams.zero_point), integers.shape)
        matrix = self.unfolded.matrix(integers.astype(np.int32) - zero.astype(np.int32))
        return np.ascontiguousarray(matrix)

    @property
    def scale(self) -> Reals:
        """float64 (groups, outputs, 1): of the integers, in the float model's numbers."""
        scale = self._along(self.plan.qparams.scale).astype(np.float64)
        if self.plan.channel_scale is not None:
            scale = scale / self._rows(np.array(self.plan.channel_scale, np.float64))
        wide = np.broadcast_to(scale, self.weight.shape)
        return np.array(self.unfolded.matrix(wide)[..., :1])

    @property
    def inputs(self) -> int:
        """Inputs of an output: channels of its group times taps."""
        return int(self.matrix.shape[-1])

    @property
    def matrix(self) -> Reals:
        """float64 (groups, outputs, inputs): the weight as the model has it."""
        return self.unfolded.matrix(self.weight).astype(np.float64)

    @property
    def limits(self) -> tuple[Ints, Ints]:
        """int32 (groups, outputs): smallest and largest integer, less the zero point."""
        p, limit = self.plan.qparams, self.plan.integer_limit
        low, high = self.span
        low, high = (low, high) if limit is None else (max(low, -limit), min(high, limit))
        zero = np.broadcast_to(self._along(p.zero_point).astype(np.int32), self.weight.shape)
        of_rows = self.unfolded.matrix(zero)[..., 0]
        return low - of_rows, high - of_rows

    @property
    def partners(self) -> npt.NDArray[np.int64] | None:
        """int64 (inputs,): the input whose product is added to this one's in int16; its own: none.

        None where the order in which products are added is not known, or not that of all groups.
        """
        assert self.rule.weight is not None
        if not self.rule.pair_axes:
            return None
        axis = self.rule.weight.axis % self.weight.ndim
        order = (axis, *(a % self.weight.ndim for a in self.rule.pair_axes))
        sizes = [self.weight.shape[a] for a in order]
        count = math.prod(sizes[1:])
        place = np.broadcast_to(np.arange(count).reshape(1, *sizes[1:]), sizes)
        of_inputs = self.unfolded.matrix(np.transpose(place, np.argsort(order)))[:, 0]
        shifts = of_inputs - of_inputs[0]
        if (shifts != shifts[:, :1]).any() or (shifts % 2).any():
            return None  # groups have pairs of their own
        at = {int(place): i for i, place in enumerate(of_inputs[0])}
        return np.array([at.get(place ^ 1, i) for place, i in at.items()])  # 2k and 2k + 1

    @property
    def stored(self) -> Reals:
        """float64 (groups, outputs, inputs): the numbers that the integers stand for."""
        return np.asarray(self.integers * self.scale, np.float64)

    @property
    def bias(self) -> Reals:
        """float64 (groups, outputs): as the model has it; zeros where there is none."""
        groups, outputs, _ = self.scale.shape
        if self.bias_slot is None or not has_input(self.bias_slot.node, self.bias_slot.slot):
            return np.zeros((groups, outputs))
        array = constant_array(input_at(self.bias_slot.node, self.bias_slot.slot))
        flat = np.broadcast_to(array.reshape(-1), groups * outputs)
        return flat.astype(np.float64).reshape(groups, outputs)

    def seen(self, x: Singles, plan: Plan) -> Singles:
        """The tensor x as the integer kernel sees it, in the float model's numbers."""
        integers = fake_quantize(np.asarray(x, np.float32), plan.tensors[self.x])
        if self.channel_scale is None:
            return integers
        return integers / self.channel_scale.reshape(1, -1, *[1] * (x.ndim - 2))

    def on_qparams(self, integers: Ints, qparams: QParams) -> Singles:
        """The float weight that quantizes to these integers."""
        array = self.unfolded.weight(integers) + self._along(qparams.zero_point).astype(np.int32)
        weight = dequantize(array.astype(qparams.dtype.storage), qparams)
        if self.plan.channel_scale is None:
            return weight
        channel_scale = self._rows(np.array(self.plan.channel_scale, np.float32))
        return np.divide(weight, channel_scale, dtype=np.float32)

    def pairs(
        self, x: Singles, y: Singles, index: int, batches: int, most: int = MOST_PLACES
    ) -> Iterator[tuple[Singles, Singles]]:
        """(rows, results) of evenly spread places of one batch, in pieces.

        `most`: places of all batches that are looked at.

        Yields:
            float32 (groups, places, inputs) and (groups, places, outputs).
        """
        places = self.unfolded.places(x)
        stride = max(1, places * batches // most)
        width = math.prod(self.unfolded.matrix(self.weight).shape[::2])
        step = stride * max(1, CHUNK_ELEMENTS // max(width, 1))
        for start in range(index % stride, places, step):
            piece = slice(start, min(start + step, places), stride)
            yield self.unfolded.rows(x, piece), self.unfolded.results(y, piece)

    def _along(self, array: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Numbers per channel in the shape in which they broadcast to the weight."""
        if not array.ndim:
            return array
        assert self.rule.weight is not None
        axis = self.rule.weight.axis % self.weight.ndim
        return array.reshape([-1 if i == axis else 1 for i in range(self.weight.ndim)])

    def _rows(self, array: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Numbers per row in the shape in which they broadcast to the weight."""
        return array.reshape(-1, *[1] * (self.weight.ndim - 1))


def layers_of(model: ir.Model, plan: Plan) -> dict[str, Layer]:
    """Node name -> Layer, of nodes of the main graph, in its order."""
    found = {}
    for node in model.graph:
        layer = layer_of(node, plan)
        if layer is not None:
            found[layer.name] = layer
    return found


def layer_of(node: ir.Node, plan: Plan) -> Layer | None:
    """The Layer that a node is; None: no quantized weight, or no matrix product is known."""
    decision, operator = plan.decisions[node_name(node)], catalog.find(node.op_type, node.domain)
    if not isinstance(decision, Quantize) or node_name(node) not in plan.weights:
        return None
    weight = plan.weights[node_name(node)]
    unfolded = None if operator is None else operator.unfolded(node)
    x = find_input(node, decision.rule.activations[0])
    if unfolded is None or x is None or x.is_initializer():
        return None
    if isinstance(weight.qparams.granularity, PerBlock):
        return None
    tensor = value_name(x)
    channel_scale = (
        np.array(plan.channel_scales[tensor], np.float32) if tensor in plan.channel_scales else None
    )
    slot, y = bias_of(node, decision.rule, plan.decisions)
    return Layer(
        node,
        decision.rule,
        unfolded,
        tensor,
        value_name(y),
        weight,
        _span_of(node, decision.rule, plan),
        channel_scale,
        slot,
        _clamp_of(y),
    )


def _span_of(node: ir.Node, rule: Rule, plan: Plan) -> tuple[int, int]:
    """Integers that the observer of a weight gives."""
    dtype = plan.weights[node_name(node)].qparams.dtype
    observer = weight_observer(node, rule, plan.asked.mapping)()
    return max(dtype.qmin, observer.quant_min), min(dtype.qmax, observer.quant_max)


def bias_of(
    node: ir.Node, rule: Rule, decisions: Mapping[str, Decision]
) -> tuple[BiasSlot | None, ir.Value]:
    """(where the bias is or can be, the result that has it added)."""
    if rule.bias is not None:
        return BiasSlot(node, rule.bias), node.outputs[0]
    found = matmul_add(node)
    behind = None if found is None else decisions[node_name(found.add)]
    on_integers = isinstance(behind, Quantize) and behind.folded_into != node_name(node)
    if found is not None and found.adds_vector and not on_integers:
        return BiasSlot(found.add, found.slot), found.add.outputs[0]
    return None, node.outputs[0]


def _clamp_of(y: ir.Value) -> tuple[float, float] | None:
    """Real bounds of the node that alone reads the value, where it bounds it and does no more."""
    if len(y.uses()) != 1 or y.is_graph_output():
        return None
    (reader,) = (use.node for use in y.uses())
    operator = catalog.find(reader.op_type, reader.domain)
    rule = None if operator is None else operator.rule(reader)
    return rule.clamp if isinstance(rule, Rule) else None


# --- Constants of a prepared model under way: replaced layer by layer, with the plan beside them


@dataclass(frozen=True, slots=True, eq=False)
class NewConstants:
    """Constants of one layer that take the place of its own.

    Attributes:
        weight: float32, the weight's shape; see Layer.on_qparams. None: as it is.
        qparams: of the new weight's integers, given with each new weight.
        bias: float64 (groups, outputs); None: as it is.
    """

    weight: Singles | None = None
    qparams: QParams | None = None
    bias: Reals | None = None


class Constants:
    """A clone of a prepared model and its plan, to be changed."""

    def __init__(self, prepared: Prepared, plan: Plan) -> None:
        self.model = prepared.model.clone()
        self.plan = plan
        self.nodes = {node_name(node): node for node in self.model.graph}
        self._names = NamePool(
            {*tensor_names(self.model), *self.model.graph.initializers, *self.nodes}
        )

    def layer(self, name: str) -> Layer:
        """The layer as it is now."""
        found = layer_of(self.nodes[name], self.plan)
        assert found is not None, "it is one of the plan's layers"
        return found

    def replace(self, layer: Layer, new: NewConstants) -> str:
        """Puts constants in place; why that cannot be done, or the empty string."""
        weight = layer.plan
        if new.qparams is not None:  # integers of other weights have no sums to keep
            weight = dataclasses.replace(weight, qparams=new.qparams, bias_preserving=None)
        bias = layer.bias if new.bias is None else new.bias
        made = self._scale_of_result(layer)
        numbers = bias.reshape(-1) if made is None else bias.reshape(-1) * made
        x = self.plan.tensors[layer.x]
        if (
            scale_for_int32_bias(weight.qparams.scale, numbers, x.scale) > weight.qparams.scale
        ).any():
            return "its bias would leave int32 at x_scale * w_scale"
        if new.weight is not None:
            value = weight_of(layer.node, layer.rule)
            value.const_value = ir.Tensor(new.weight, name=value.name)
        if new.bias is not None:
            assert layer.bias_slot is not None, "who gives a bias has looked"
            self._write_bias(layer.bias_slot, new.bias.reshape(-1).astype(np.float32))
        weights, biases = dict(self.plan.weights), dict(self.plan.biases)
        if layer.rule.bias is not None and has_input(layer.node, layer.rule.bias):
            weight, biases[layer.name], _ = plan_bias(layer.node, layer.rule, x, weight, made)
        weights[layer.name] = weight
        self.plan = dataclasses.replace(self.plan, weights=weights, biases=biases)
        return ""

    def _scale_of_result(self, layer: Layer) -> Singles | None:
        """Factors per channel that the integers of the layer's result carry; None: none."""
        decision = self.plan.decisions[layer.name]
        assert isinstance(decision, Quantize), "a layer has a quantized weight"
        tensors = [t for t in decision.results if t in self.plan.channel_scales]
        return np.array(self.plan.channel_scales[tensors[0]], np.float32) if tensors else None

    def _write_bias(self, slot: BiasSlot, bias: Singles) -> None:
        node = slot.node
        value = input_at(node, slot.slot) if has_input(node, slot.slot) else None
        if value is not None and is_private(value):
            value.const_value = ir.Tensor(bias, name=value.name)
            value.shape = ir.Shape(bias.shape)
            return
        name = self._names.take(f"{node_name(node)}_bias")
        made = new_initializer(graph_of(node), name, ir.Tensor(bias, name=name))
        if slot.slot >= len(node.inputs):
            node.resize_inputs(slot.slot + 1)
        node.replace_input_with(slot.slot, made)
