"""Guards the qconfig's entries for single tensors: one that cannot take effect is an error.

A node that the qconfig names and that stays in float all the same is a note. Entries of exact names
are looked at; a glob may match more than it is for.

An entry for a weight names the weight's observer; one for a bias, for a tensor that a fused node
never writes, or two that disagree on tensors with common qparams cannot be followed.
"""

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from onnxq.core.reason import Reason
from onnxq.errors import QConfigError, listed
from onnxq.graph.walk import node_name, tensor_names, value_name, walk
from onnxq.observers import ObserverSpec
from onnxq.operator import Float, Precision
from onnxq.operator.nodes import find_input
from onnxq.qconfig import QConfigMapping
from onnxq.static.insertion.decision import Decision, Quantize, weight_of


def group_override(members: Sequence[str], qconfig: QConfigMapping) -> ObserverSpec | None:
    """The observer named for tensors of common qparams, exact names ahead of globs; None: none."""
    named = {t: spec for t in members if isinstance(spec := qconfig.for_tensor(t), ObserverSpec)}
    exact = {t: spec for t, spec in named.items() if t in qconfig.tensors}
    chosen = exact or named
    if not chosen:
        return None
    first, *others = chosen.items()
    for tensor, spec in others:
        if spec != first[1]:
            raise QConfigError(
                f"qconfig: tensors '{first[0]}' ({first[1]}) and '{tensor}' ({spec}) have one "
                "scale and zero point, because the nodes between them only copy integers. Give "
                "both the same observer, or name one of them only."
            )
    return first[1]


def check_overrides(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    quantized: Iterable[str],
    qconfig: QConfigMapping,
) -> list[str]:
    """Notes on observers named for tensors that stay in float."""
    asked = {t for t, spec in qconfig.tensors.items() if isinstance(spec, ObserverSpec)}
    if not asked:
        return []
    effective = set(quantized)
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        if not isinstance(decision, Quantize):
            continue
        if decision.rule.weight is not None and not decision.folded_into:
            effective.add(value_name(weight_of(node, decision.rule)))
        bias = None if decision.rule.bias is None else find_input(node, decision.rule.bias)
        if bias is not None and bias.name in asked:
            raise QConfigError(
                f"qconfig: tensor '{bias.name}' is the bias of '{node.name}', which is int32 at "
                "input scale * weight scale, without an observer. Take the entry out, or give "
                "null to leave the node float."
            )
        for value in node.outputs:
            if value.name in asked and value.name not in effective:
                _refuse_folded(node, value.name, decision, decisions)
    known = set(tensor_names(model))
    names = {p for p in asked if p not in effective and p in known}
    return [
        f"tensor '{name}' stays in float: the observer that the qconfig names for it has no effect"
        for name in sorted(names)
    ]


def unmet_requests(
    model: ir.Model, decisions: Mapping[str, Decision], qconfig: QConfigMapping
) -> list[str]:
    """Notes on nodes and op types that the qconfig wants quantized, and that stay in float."""
    groups: dict[tuple[str, Reason], list[str]] = {}
    for node, _ in walk(model.graph):
        name, decision = node_name(node), decisions[node_name(node)]
        asked = name in qconfig.nodes or node.op_type in qconfig.op_types
        if not (asked and isinstance(decision, Float)):
            continue
        entry = qconfig.for_node(name, node.op_type)
        if entry is not None and entry.precision is not Precision.FLOAT:
            groups.setdefault((node.op_type, decision.reason), []).append(name)
    return [
        f"{op_type} {listed(names)}: asked for by the qconfig, but stays in float: {reason}"
        for (op_type, reason), names in groups.items()
    ]


def unmet_precisions(
    model: ir.Model, decisions: Mapping[str, Decision], qconfig: QConfigMapping
) -> list[str]:
    """Notes on nodes with integers out where the qconfig names a float result, with the reason."""
    groups: dict[str, list[str]] = {}
    for node, _ in walk(model.graph):
        name, decision = node_name(node), decisions[node_name(node)]
        entry = qconfig.for_node(name, node.op_type)
        named = name in qconfig.nodes or node.op_type in qconfig.op_types
        if entry is None or entry.precision is not Precision.INT8_FLOAT_OUTPUT or not named:
            continue
        if isinstance(decision, Quantize) and (decision.results or decision.folded_into):
            groups.setdefault(node.op_type, []).append(name)
    return [
        f"{op_type} {listed(names)}: the qconfig asks for precision 'int8_float_output', but ONNX "
        "Runtime has its integer kernel only with integers out; it has precision 'int8'"
        for op_type, names in groups.items()
    ]


def _refuse_folded(
    node: ir.Node, tensor: str, decision: Quantize, decisions: Mapping[str, Decision]
) -> None:
    base = decisions[decision.folded_into] if decision.folded_into else decision
    if not isinstance(base, Quantize) or not base.results:
        return
    raise QConfigError(
        f"qconfig: tensor '{tensor}' is not written in the quantized model: the nodes behind it "
        f"are part of '{decision.folded_into or node.name}'. Name '{base.results[0]}' instead."
    )
