"""Decisions of static quantization: what becomes of a node."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxq.graph.walk import node_name, value_name
from onnxq.observers import ObserverSpec
from onnxq.operator import Float, Form, Role, Rule, WeightSlot
from onnxq.targets.range_reduction import RangeReduction

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.qconfig import QConfigMapping
    from onnxq.targets import Target


@dataclass(frozen=True, slots=True)
class Quantize:
    """A node runs in integers.

    Attributes:
        rule: what its operator says of it.
        how: in words, for people.
        folded_into: the node whose integer kernel carries this one out (a Relu after a Conv), or
            None.
        results: tensors behind this node and what is folded into it that get a QuantizeLinear.
    """

    rule: Rule
    how: str
    folded_into: str | None = None
    results: tuple[str, ...] = ()


Decision = Quantize | Float


def weight_observer(node: ir.Node, rule: Rule, qconfig: QConfigMapping) -> ObserverSpec:
    """The observer of the node's weight: the one named for the tensor, else the node's.

    Args:
        node: one that the qconfig quantizes.
        rule: its operator's, with a weight.
        qconfig: what was asked for.
    """
    assert rule.weight is not None
    value = node.inputs[rule.weight.slot]
    assert value is not None
    named = qconfig.for_tensor(value_name(value))
    entry = qconfig.for_node(node_name(node), node.op_type)
    assert entry is not None  # a node without an entry is float
    return named if isinstance(named, ObserverSpec) else entry.weight_observer


def weight_limit(rule: Rule, target: Target) -> int:
    """Largest magnitude of an int8 weight of an operator; pairs of them may be limited too."""
    everywhere = target.range_reduction is RangeReduction.EVERYWHERE
    saturates = rule.saturating_pairs and everywhere
    return target.weight_qmax_saturating if saturates else target.weight_qmax


def decision_to_dict(decision: Decision) -> dict[str, object]:
    """Plain values that JSON can hold."""
    if isinstance(decision, Float):
        return {"float": decision.reason}
    rule = dataclasses.asdict(decision.rule)
    if decision.rule.clamp is not None:  # JSON has no infinity
        rule["clamp"] = [bound if math.isfinite(bound) else None for bound in decision.rule.clamp]
    rule["role"], rule["form"] = decision.rule.role.value, decision.rule.form.value
    return {
        "quantize": decision.how,
        "folded_into": decision.folded_into,
        "results": list(decision.results),
        "rule": rule,
    }


def decision_from_dict(data: Mapping[str, object]) -> Decision:
    """The inverse of decision_to_dict.

    Raises:
        KeyError, TypeError, ValueError: the data are no decision.
    """
    if "float" in data:
        return Float(str(data["float"]))
    fields = data["rule"]
    if not isinstance(fields, dict):
        raise TypeError("rule")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    values |= {"role": Role(fields["role"]), "form": Form(fields["form"])}
    if fields["weight"] is not None:
        values["weight"] = WeightSlot(**fields["weight"])
    if fields["clamp"] is not None:
        low, high = fields["clamp"]
        values["clamp"] = (-math.inf if low is None else low, math.inf if high is None else high)
    results, folded_into = data["results"], data["folded_into"]
    if not isinstance(results, list) or not isinstance(folded_into, str | None):
        raise TypeError("results or folded_into")
    return Quantize(Rule(**values), str(data["quantize"]), folded_into, tuple(results))
