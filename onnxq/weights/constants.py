"""Constants of a prepared model under way: replaced layer by layer, with the plan beside them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import NamePool, graph_of, new_initializer
from onnxq.graph.walk import node_name, tensor_names
from onnxq.graph.weights import is_private
from onnxq.operator.nodes import has_input, input_at
from onnxq.qparams import scale_for_int32_bias
from onnxq.static.insertion.decision import Quantize, weight_of
from onnxq.static.planning.constants import plan_bias
from onnxq.weights.layers import layer_of

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles
    from onnxq.qparams import QParams
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared
    from onnxq.weights.layers import BiasSlot, Layer


@dataclass(frozen=True, slots=True, eq=False)
class NewConstants:
    """Constants of one layer that take the place of its own.

    Attributes:
        weight: float32, the weight's shape, rounded by qparams; None: as it is.
        qparams: of the new weight's integers; None: there is none.
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
        made = self._gain_of_result(layer)
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

    def _gain_of_result(self, layer: Layer) -> Singles | None:
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
