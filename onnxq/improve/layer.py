"""Layers: nodes with a quantized weight, as the products of matrices that improvements think in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from onnxq import catalog
from onnxq.graph.walk import node_name, value_name
from onnxq.graph.weights import constant_array, is_private
from onnxq.operator.nodes import find_input, has_input, input_at
from onnxq.ort.matmul_add import biased_product
from onnxq.qdq.tensors import rounded_codes
from onnxq.qparams import PerBlock, dequantize, fake_quantize
from onnxq.static.placing.decision import Quantize, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import onnx_ir as ir

    from onnxq.core.arrays import Ints, Reals, Singles
    from onnxq.operator import Rule, Unfolded
    from onnxq.qparams import IntArray
    from onnxq.static.plan import Plan
    from onnxq.static.planning.constants import WeightPlan

Number = TypeVar("Number", bound=np.generic)

MOST_PLACES = 1 << 16
"""Places of all samples that are looked at, evenly spread: means are then off by 1/256 of a
deviation, and a covariance of 4,000 inputs has 16 places each."""
CHUNK_ELEMENTS = 1 << 22  # of rows that are unfolded at once: 16 MiB


@dataclass(frozen=True, slots=True, eq=False)
class BiasSlot:
    """Where a layer's bias stands: an input of its own, or of the Add behind a product."""

    node: ir.Node
    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A node with a quantized weight, in real numbers: factors per channel are taken out.

    Attributes:
        node: of the canonical model.
        rule: its operator's.
        unfolded: the node as a product of matrices.
        x: the tensor that it reads.
        y: its result with the bias, before any Relu or Clip that is folded into it.
        plan: how the weight is stored.
        gain: factor per channel of x, on its axis 1, that codes of x carry; None: none.
        bias_slot: where its bias is, or can be added for nothing; None: nowhere.
    """

    node: ir.Node
    rule: Rule
    unfolded: Unfolded
    x: str
    y: str
    plan: WeightPlan
    gain: Singles | None
    bias_slot: BiasSlot | None

    @property
    def name(self) -> str:
        """The node's."""
        return node_name(self.node)

    @property
    def weight(self) -> Singles:
        """float32: the weight as the model has it."""
        return constant_array(weight_of(self.node, self.rule))

    @property
    def is_alone(self) -> bool:
        """Whether no other node reads the weight."""
        return is_private(weight_of(self.node, self.rule))

    @property
    def codes(self) -> Ints:
        """Integers (groups, outputs, inputs), less the zero point."""
        p = self.plan
        written = self.weight
        if p.gain is not None:
            written = written * self._rows(np.array(p.gain, np.float32))
        codes = rounded_codes(np.asarray(written, np.float32), p.qparams, p.code_limit, p.kept_sums)
        zero = np.broadcast_to(self._along(p.qparams.zero_point), codes.shape)
        matrix = self.unfolded.matrix(codes.astype(np.int32) - zero.astype(np.int32))
        return np.ascontiguousarray(matrix)

    @property
    def scale(self) -> Reals:
        """float64 (groups, outputs, 1): of the codes, in the float model's numbers."""
        scale = self._along(self.plan.qparams.scale).astype(np.float64)
        if self.plan.gain is not None:
            scale = scale / self._rows(np.array(self.plan.gain, np.float64))
        wide = np.broadcast_to(scale, self.weight.shape)
        return np.array(self.unfolded.matrix(wide)[..., :1])

    @property
    def stored(self) -> Reals:
        """float64 (groups, outputs, inputs): the numbers that the codes stand for."""
        return np.asarray(self.codes * self.scale, np.float64)

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
        """What the integer kernel sees of a tensor x, in the float model's numbers."""
        codes = fake_quantize(np.asarray(x, np.float32), plan.tensors[self.x])
        if self.gain is None:
            return codes
        return codes / self.gain.reshape(1, -1, *[1] * (x.ndim - 2))

    def pairs(
        self, x: Singles, y: Singles, index: int, batches: int
    ) -> Iterator[tuple[Singles, Singles]]:
        """(rows, results) of evenly spread places of one batch, in pieces.

        Args:
            x: as `seen`.
            y: the float model's result.
            index: of the batch.
            batches: how many there are.

        Yields:
            float32 (groups, places, inputs) and (groups, places, outputs).
        """
        places = self.unfolded.places(x)
        stride = max(1, places * batches // MOST_PLACES)
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
    """The Layer that a node is; None: it has no quantized weight, or no product is known of it."""
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
    gain = np.array(plan.gains[tensor], np.float32) if tensor in plan.gains else None
    slot, y = _bias_of(node, decision.rule)
    return Layer(node, decision.rule, unfolded, tensor, y, weight, gain, slot)


def dequantized_weight(weight: WeightPlan, codes: IntArray) -> Singles:
    """The float weight that `weight` quantizes to these codes.

    Args:
        weight: with the qparams of the codes.
        codes: of its dtype, in the layout of the weight.
    """
    array = dequantize(codes, weight.qparams)
    if weight.gain is None:
        return array
    return array / np.array(weight.gain, np.float32).reshape(-1, *[1] * (codes.ndim - 1))


def _bias_of(node: ir.Node, rule: Rule) -> tuple[BiasSlot | None, str]:
    """(where the bias is or can be, the tensor that has it added)."""
    if rule.bias is not None:
        return BiasSlot(node, rule.bias), value_name(node.outputs[0])
    found = biased_product(node)
    if found is not None and found.adds_vector:
        return BiasSlot(found.add, found.slot), value_name(found.add.outputs[0])
    return None, value_name(node.outputs[0])
