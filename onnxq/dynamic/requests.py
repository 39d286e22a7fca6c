"""Requests for dynamic quantization that have no effect: an error or a note each, none silent."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import onnx_ir as ir

from onnxq.catalog import find, has_dynamic_quantization
from onnxq.core.reason import Reason
from onnxq.dtypes import FLOAT16, QDType
from onnxq.dynamic.choose_precision import stored_type
from onnxq.dynamic.dynamic_decision import DynamicDecision, DynamicPlan
from onnxq.dynamic.reasons import NoDynamicOperator, NoWeights
from onnxq.dynamic.spec import dynamic_op_types
from onnxq.errors import NothingQuantizedError, QConfigError, counted, listed
from onnxq.graph.prequantized_weights import stores_groups
from onnxq.graph.walk import node_name, op_label, value_name, walk
from onnxq.operator import Float
from onnxq.operator.reasons import InGroupsAlready
from onnxq.operator.site import MICROSOFT
from onnxq.qconfig import Entry, QConfigDynamic, QConfigMapping


def unmet_dynamic(
    nodes: Sequence[ir.Node],
    decisions: Mapping[str, DynamicDecision],
    qconfig: QConfigMapping,
    slower: Collection[str],
) -> list[str]:
    """Notes on what the qconfig names to be quantized dynamically, and that stays in float.

    Args:
        nodes: of the canonical model.
        decisions: node name -> decision.
        qconfig: of exact names and op types each node counts; of a glob, which may match more than
            it is for, only that nothing it matches is quantized.
        slower: nodes that only the objective leaves in float, which is a request too.
    """
    groups: dict[tuple[str, Reason], list[str]] = {}
    for node in nodes:
        name, decision = node_name(node), decisions[node_name(node)]
        named = name in qconfig.nodes or node.op_type in qconfig.op_types
        if not (named and isinstance(decision, Float)) or name in slower:
            continue
        if isinstance(qconfig.entry_for_node(name, node.op_type), QConfigDynamic):
            groups.setdefault((node.op_type, decision.reason), []).append(name)
    notes = [
        f"{op_type} {listed(names)}: asked for by the qconfig, but stays in float: {reason}"
        for (op_type, reason), names in groups.items()
    ]
    done = {name for name, d in decisions.items() if not isinstance(d, Float)} | set(slower)
    return notes + [
        f"nodes '{pattern}': asked for by the qconfig, but nothing that it matches is quantized "
        "dynamically"
        for pattern, entry in qconfig.nodes.items()
        if isinstance(entry, QConfigDynamic)
        and pattern not in decisions
        and not any(fnmatchcase(name, pattern) for name in done)
    ]


def nothing_quantized(target: str) -> str:
    """Sentence on a plan that leaves all weights in float, to be fast on the target."""
    return f"nothing is quantized: {_all_slower(target, 'every node with weights')}"


def nothing_dynamic(target: str) -> str:
    """Sentence on such a plan where static quantization may take other nodes."""
    return (
        "nothing is quantized dynamically: "
        f"{_all_slower(target, 'every node that the qconfig names for it')}"
    )


def notes_on_open_sizes(nodes: Sequence[str]) -> list[str]:
    """One note where nodes stay in float for as few rows as their open sizes allow."""
    if not nodes:
        return []
    return [
        f"{counted(nodes)}: in float at the sizes that are assumed where the model leaves them "
        "open, such as batch or length. Say others (--shape NAME=SIZE,..., or samples to check "
        "on): with more rows integers may be faster. Objective 'size' (--objective size) "
        "quantizes them."
    ]


def _all_slower(target: str, nodes: str) -> str:
    return (
        f"objective 'speed' leaves in float what would be slower in every precision on {target}, "
        f"and here that is {nodes}; objective 'size' (--objective size) quantizes them anyway."
    )


def without_form(node: ir.Node) -> NoWeights | InGroupsAlready | NoDynamicOperator:
    """Why a node stays in float whose operator has no dynamic form."""
    if stores_groups(node):
        return InGroupsAlready()
    weight = _matrix(node)
    if weight is None:
        return NoWeights()
    remedy = "onnxq quantize has one, with samples" if find(node.op_type, node.domain) else ""
    if node.domain == MICROSOFT:
        remedy = "quantize the model before such nodes are fused from MatMul or Gemm"
    return NoDynamicOperator(op_label(node), value_name(weight), remedy)


def _matrix(node: ir.Node) -> ir.Value | None:
    """The first constant of float32 that has two axes of more than one element."""
    for value in node.inputs:
        tensor = None if value is None or not value.is_initializer() else value.const_value
        if tensor is None:
            continue
        long = [size for size in tensor.shape.numpy() if size > 1]  # what is declared may be wrong
        if tensor.dtype == ir.DataType.FLOAT and len(long) > 1:
            return value
    return None


def check_something(plan: DynamicPlan, model: ir.Model) -> None:
    """Passes a plan that quantizes something, or would but for the target's measurements."""
    if plan.quantized or plan.slower:
        return
    counts = Counter(node.op_type for node, _ in walk(model.graph))
    found = ", ".join(f"{count} {op_type}" for op_type, count in counts.most_common())
    names: dict[Reason, list[str]] = {}
    for node, _ in walk(model.graph):
        decision = plan.decisions[node_name(node)]
        if isinstance(decision, Float) and (has_dynamic_quantization(node) or _matrix(node)):
            names.setdefault(decision.reason, []).append(f"{node.op_type} '{node.name}'")
    reasons = "; ".join(f"{counted(nodes)}: {reason}" for reason, nodes in names.items())
    raise NothingQuantizedError(
        f"there are no weights to quantize. The model has {found}. "
        + (f"{reasons}. " if reasons else "None of them is quantized dynamically. ")
        + "Quantized dynamically are "
        + ", ".join(dynamic_op_types())
        + ", where their weights are constants and the qconfig names them."
    )


def notes_on_dtype(qconfig: QConfigMapping, dtype: QDType) -> list[str]:
    """A note where entries for nodes or op types store another type than the one asked for."""
    exceptions: dict[str, Entry] = {f"op type '{k}'": v for k, v in qconfig.op_types.items()}
    exceptions |= {f"node '{k}'": v for k, v in qconfig.nodes.items()}
    if qconfig.global_qconfig is None:
        check_dtype(exceptions, dtype)
        return []
    check_dtype({"every node": qconfig.global_qconfig}, dtype)
    others = [f"{where} ({found})" for where, found in _others(exceptions, dtype).items()]
    if not others:
        return []
    return [f"dtype {dtype} is for what the qconfig does not name; it names {', '.join(others)}"]


def check_dtype(entries: Mapping[str, Entry], dtype: QDType) -> None:
    """Passes entries that store weights in that type, if they store any."""
    for where, found in _others(entries, dtype).items():
        raise QConfigError(
            f"dtype {dtype} is asked for, and the entry of {where} has {found} weights, which "
            "would win. Leave the dtype out, or change the entry: float16_dynamic_qconfig stores "
            "float16."
        )


def _others(entries: Mapping[str, Entry], dtype: QDType) -> dict[str, QDType]:
    """The types of the dynamic entries that are not that one."""
    types = {
        where: stored_type([entry.weight_observer]) or FLOAT16
        for where, entry in entries.items()
        if isinstance(entry, QConfigDynamic)
    }
    return {w: t for w, t in types.items() if isinstance(t, QDType) and t != dtype}
