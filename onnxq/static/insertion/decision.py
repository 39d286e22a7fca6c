"""Decisions of static quantization: what becomes of a node."""

from dataclasses import dataclass
from typing import Annotated

import onnx_ir as ir

from onnxq.core.reason import Reason  # the codec reads annotations at run time
from onnxq.core.saved import Key
from onnxq.graph.walk import node_name, value_name
from onnxq.observers import ObserverSpec
from onnxq.operator import Float, Rule
from onnxq.operator.nodes import input_at, tensor_of
from onnxq.qconfig import QConfigMapping
from onnxq.targets import Target
from onnxq.targets.reduce_range import ReduceRange


@dataclass(frozen=True, slots=True)
class Quantize:
    """A node runs in integers.

    Attributes:
        rule: what its operator says of it.
        folded_into: the node whose integer kernel carries this one out (a Relu after a Conv), or
            None.
        results: tensors behind this node and what is folded into it that get a QuantizeLinear.
    """

    rule: Rule
    how: Annotated[Reason, Key("quantize")]
    folded_into: str | None = None
    results: tuple[str, ...] = ()


Decision = Quantize | Float


def weight_of(node: ir.Node, rule: Rule) -> ir.Value:
    """The constant that a rule with a weight quantizes."""
    assert rule.weight is not None
    return input_at(node, rule.weight.slot)


def weight_observer(node: ir.Node, rule: Rule, qconfig: QConfigMapping) -> ObserverSpec:
    """The observer of the node's weight, as `QConfigMapping.weight_observer` has it."""
    weight = weight_of(node, rule)
    entry = qconfig.for_node(node_name(node), node.op_type)
    assert entry is not None  # a node without an entry is float
    return qconfig.weight_observer(value_name(weight), tensor_of(weight).size, entry)


def weight_limit(rule: Rule, target: Target) -> int:
    """Largest magnitude of an int8 weight of an operator; pairs of them may be limited too."""
    everywhere = target.reduce_range is ReduceRange.EVERYWHERE
    saturates = rule.saturating_pairs and everywhere
    return target.weight_qmax_saturating if saturates else target.weight_qmax
