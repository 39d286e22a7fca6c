"""Precisions that were chosen, node by node, and the qconfig that names them all."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import onnx_ir as ir

from onnxq.core.reason import Reason  # the codec reads annotations at run time
from onnxq.dtypes import BYTE_BITS
from onnxq.dynamic.dynamic_decision import QuantizeDynamic
from onnxq.errors import QConfigError
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Float, OpCategory, Precision
from onnxq.operator.reasons import HowAndWhy
from onnxq.qconfig import (
    STATIC_PRECISIONS,
    Entry,
    QConfig,
    QConfigDynamic,
    QConfigMapping,
    onnxq_default_dynamic_qconfig,
)
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.reasons import (
    FasterLinearLayers,
    FewerConversions,
    OneKernel,
    PartOf,
    QuantizedAtRunTime,
    SmallerValues,
    SmallerWeights,
)
from onnxq.targets.target import Throughput


@dataclass(frozen=True, slots=True)
class NodePrecision:
    """The precision of a node."""

    op_type: str
    precision: Precision
    reason: Reason


NodePrecisions = Mapping[str, NodePrecision]
"""Node name -> its precision, in graph order."""


def precision_counts(precisions: NodePrecisions) -> dict[str, int]:
    """Precision -> nodes that have it, the most frequent first."""
    return dict(Counter(choice.precision.value for choice in precisions.values()).most_common())


def precisions_of(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    reasons: Mapping[str, Reason],
    throughput: Throughput | None,
) -> NodePrecisions:
    """The precision of each node by its decision, and why."""
    nodes = [(node_name(node), node.op_type) for node, _ in walk(model.graph)]
    return {
        name: _choice(op_type, decisions[name], reasons.get(name), throughput)
        for name, op_type in nodes
    }


def _choice(
    op_type: str, decision: Decision, reason: Reason | None, throughput: Throughput | None
) -> NodePrecision:
    if isinstance(decision, Float):
        precision = Precision.DYNAMIC_INT8 if is_dynamic(decision) else Precision.FLOAT
        return NodePrecision(op_type, precision, reason or decision.reason)
    inner = decision.folded_into is not None
    float_result = (
        decision.rule.category is OpCategory.COMPUTE and not decision.results and not inner
    )
    precision = Precision.INT8_FLOAT_OUTPUT if float_result else Precision.INT8
    return NodePrecision(op_type, precision, reason or _why_integers(decision, throughput))


def is_dynamic(decision: Decision) -> bool:
    """Whether the node is left to dynamic quantization."""
    return isinstance(decision, Float) and isinstance(decision.reason, QuantizedAtRunTime)


def _why_integers(decision: Quantize, throughput: Throughput | None) -> Reason:
    """How a node runs in integers, with a figure of what that saves."""
    if isinstance(decision.how, PartOf):
        return OneKernel(decision.how.op_type)
    match decision.rule.category:
        case OpCategory.COMPUTE if throughput is not None:
            faster = FasterLinearLayers(throughput.uint8_int8, throughput.float32)
            return HowAndWhy(decision.how, faster)
        case OpCategory.COMPUTE if decision.rule.weight is not None:
            return HowAndWhy(decision.how, SmallerWeights())
        case OpCategory.ELEMENTWISE:
            count = len(decision.rule.activations) + len(decision.results)
            return HowAndWhy(decision.how, FewerConversions(count))
        case OpCategory.MOVEMENT | OpCategory.CLAMP:
            return HowAndWhy(decision.how, SmallerValues())
    return decision.how


@dataclass(frozen=True, slots=True)
class Request:
    """A qconfig as it was asked for, saved as its YAML."""

    mapping: QConfigMapping

    def to_dict(self) -> dict[str, object]:
        """{"yaml": text}."""
        return {"yaml": self.mapping.to_yaml()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """The value that `to_dict` wrote."""
        if not isinstance(text := data.get("yaml"), str):
            raise QConfigError(f"the plan's qconfig is a {type(text).__name__}; wanted YAML text.")
        return cls(QConfigMapping.from_yaml(text))


def with_dynamic(
    precisions: NodePrecisions, dynamic: Mapping[str, QuantizeDynamic], floats: Mapping[str, Float]
) -> NodePrecisions:
    """The precisions, those of nodes that are quantized dynamically among them."""
    found = dict(precisions)
    for name, made in dynamic.items():
        why = precisions[name].reason
        asked = isinstance(why, QuantizedAtRunTime)
        reason = made.how if asked else HowAndWhy(made.how, why)
        found[name] = replace(precisions[name], precision=made.precision, reason=reason)
    for name, left in floats.items():
        found[name] = replace(precisions[name], precision=Precision.FLOAT, reason=left.reason)
    return found


def named_mapping(
    asked: QConfigMapping, precisions: NodePrecisions, dynamic: Mapping[str, QuantizeDynamic]
) -> QConfigMapping:
    """The mapping that names the precision of every node, so that nothing is left to choose."""
    nodes: dict[str, Entry] = dict(asked.nodes)
    for name, choice in precisions.items():
        entry = asked.entry_for_node(name, choice.op_type)
        if name in dynamic:
            nodes[name] = _dynamic(entry, dynamic[name])
        elif isinstance(entry, QConfig):
            kept = choice.precision in STATIC_PRECISIONS
            nodes[name] = replace(entry, precision=choice.precision if kept else Precision.FLOAT)
        else:
            nodes[name] = None
    return replace(asked, nodes=nodes)


def dynamic_entry(entry: QConfig) -> QConfigDynamic:
    """The dynamic entry with the same weights, where dynamic quantization stores such."""
    dtype = entry.weight_observer().dtype
    if not dtype.is_integer or dtype.bits > BYTE_BITS:
        return onnxq_default_dynamic_qconfig
    return QConfigDynamic(entry.weight)


def _dynamic(entry: Entry, made: QuantizeDynamic) -> QConfigDynamic:
    """The entry with the precision that was found for it."""
    asked = dynamic_entry(entry) if isinstance(entry, QConfig) else entry
    assert asked is not None, "a node that the user leaves in float is not quantized"
    return asked if asked.precision is not None else replace(asked, precision=made.precision)
