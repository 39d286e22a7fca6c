"""Which number types a model may have, so that ONNX Runtime loads it; asked before any data is run.

    activations   int8 and uint8 in integer kernels; int16 and uint16 between Q and DQ, in float
    weights       the same, and those of 4 and 2 bits, which kernels read as int8 and uint8

One scale per activation tensor. Plain operators on integers (Clip, Pad, Max ...) have kernels for 8
bits only.
"""

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnxq.dtypes import INT2, INT4, INT8, INT16, UINT2, UINT4, UINT8, UINT16, QDType, in_bytes
from onnxq.errors import UnsupportedError
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import NoopObserver, ObserverSpec
from onnxq.qconfig import QConfigMapping
from onnxq.static.insertion.decision import Decision, Quantize, weight_observer

ACTIVATIONS = (UINT8, INT8, UINT16, INT16)
WEIGHTS = (*ACTIVATIONS, UINT4, INT4, UINT2, INT2)
IN_INTEGERS = (UINT8, INT8)


def check_types(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    groups: Sequence[tuple[Sequence[str], ObserverSpec]],
    clamps: Mapping[str, tuple[float, float]],
    qconfig: QConfigMapping,
) -> list[str]:
    """Notes on types that ONNX Runtime computes in float."""
    float_activations: dict[QDType, list[str]] = {}
    float_weights: dict[QDType, list[str]] = {}
    dtypes: dict[str, QDType] = {}
    for members, spec in groups:
        dtype = _activation_dtype(members, spec, clamps)
        dtypes.update(dict.fromkeys(members, dtype))
        if dtype in (UINT16, INT16):
            float_activations.setdefault(dtype, []).extend(members)
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.folded_into:
            continue
        _check_integers_form(node, decision, dtypes)
        if decision.rule.weight is None:
            continue
        dtype = in_bytes(_weight_dtype(node, decision, qconfig))
        if dtype not in IN_INTEGERS:
            float_weights.setdefault(dtype, []).append(node_name(node))
    return [
        *(_note(f"{dtype} activations", "", names) for dtype, names in float_activations.items()),
        *(
            _note(f"{dtype} weights", ": they save bytes, not time", names)
            for dtype, names in float_weights.items()
        ),
    ]


def _note(what: str, effect: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{what}: ONNX Runtime has no integer kernels for them and computes in float between "
        f"DequantizeLinear and QuantizeLinear{effect} ('{names[0]}'{more})"
    )


def _activation_dtype(
    members: Sequence[str], spec: ObserverSpec, clamps: Mapping[str, tuple[float, float]]
) -> QDType:
    observer, tensor = spec(), members[0]
    if isinstance(observer, NoopObserver):  # the plan leaves its nodes in float, and says why
        return observer.dtype
    if observer.dtype not in ACTIVATIONS:
        raise UnsupportedError(
            f"tensor '{tensor}': {spec} gives {observer.dtype} activations, which ONNX "
            f"Runtime has no kernels for; wanted {_listed(ACTIVATIONS)}. Change the observer's "
            "dtype, or leave the tensor float."
        )
    if observer.qscheme.per_channel:
        raise UnsupportedError(
            f"tensor '{tensor}': {spec} gives a scale per channel, and ONNX Runtime's kernels take "
            "one scale per activation tensor. Use a per-tensor observer, such as MinMaxObserver."
        )
    clamped = [t for t in members if t in clamps]
    if clamped and observer.dtype not in IN_INTEGERS and observer.qscheme.symmetric:
        raise UnsupportedError(
            f"tensor '{clamped[0]}': a Relu or Clip on symmetric {observer.dtype} integers needs a "
            f"Clip, which ONNX Runtime lacks for {observer.dtype}. Use an affine qscheme, or 8 "
            "bits."
        )
    return observer.dtype


def _check_integers_form(node: ir.Node, decision: Quantize, dtypes: Mapping[str, QDType]) -> None:
    if not decision.rule.lowered:
        return
    slots = [node.inputs[slot] for slot in decision.rule.activations]
    for value in (*slots, *(node.outputs[slot] for slot in decision.rule.outputs)):
        dtype = None if value is None else dtypes.get(value_name(value))
        if value is None or dtype not in (UINT16, INT16):
            continue
        raise UnsupportedError(
            f"{node.op_type} '{node.name}': ONNX Runtime has no {node.op_type} on {dtype} integers "
            f"(tensor '{value.name}'). Leave the node float in the qconfig "
            f"(nodes: {{{node.name}: null}}), or use 8 bits."
        )


def _weight_dtype(node: ir.Node, decision: Quantize, qconfig: QConfigMapping) -> QDType:
    """The type that the model has: a registered type counts as the ONNX type that stores it."""
    spec = weight_observer(node, decision.rule, qconfig)
    observer = spec()
    stored = {dtype.onnx: dtype for dtype in WEIGHTS}.get(observer.dtype.onnx)
    if isinstance(observer, NoopObserver) or stored is None:
        kind = "no integers" if isinstance(observer, NoopObserver) else str(observer.dtype)
        raise UnsupportedError(
            f"{node.op_type} '{node.name}': {spec} gives {kind} for its weight; ONNX Runtime runs "
            f"{_listed(WEIGHTS)}. Change the weight observer's dtype, or leave the node float."
        )
    return stored


def _listed(dtypes: Sequence[QDType]) -> str:
    return ", ".join(str(dtype) for dtype in dtypes)
