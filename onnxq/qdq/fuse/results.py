"""Results of a node: what quantizes them, and what stands between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.ort import facts
from onnxq.qdq.fuse.fusion import Kept
from onnxq.qdq.fuse.scales import KERNEL_TYPES, Scales
from onnxq.qdq.fuse.view import float_view
from onnxq.qdq.read import Unread, is_quantize
from onnxq.qparams import PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from onnxq.operator import Rule


@dataclass(slots=True)
class Results:
    """Quantizers of the results of a node.

    Attributes:
        qparams: per output slot; None where the result stays in float32.
        quantizers: per output slot the QuantizeLinear nodes behind it, all alike.
        absorbed: Relu or Clip nodes between, which the integers' range makes redundant.
    """

    qparams: list[QParams | None]
    quantizers: dict[int, list[ir.Node]] = field(default_factory=dict)
    absorbed: list[ir.Node] = field(default_factory=list)


def results_of(node: ir.Node, rule: Rule, scales: Scales) -> Results | Kept:
    """The Results, or why the node cannot give integers."""
    results = Results([None] * len(node.outputs))
    for slot in rule.outputs:
        value = node.outputs[slot]
        clamp = _only_clamp(value, node)
        if clamp is not None and not rule.shares_qparams and rule.clamp is None:
            value = clamp.outputs[0]
        quantizing = [r for r in value.consumers() if is_quantize(r) and r.graph is node.graph]
        if clamp is None and not quantizing and not rule.needs_output:
            continue
        qparams = _qparams_behind(value, quantizing, scales)
        if isinstance(qparams, Kept):
            return qparams
        if clamp is not None and value is clamp.outputs[0]:
            if not _redundant(clamp, quantizing[0], qparams):
                return Kept(f"{clamp.op_type} behind it bounds more than its integers do")
            results.absorbed.append(clamp)
        if qparams.dtype.name not in KERNEL_TYPES or qparams.granularity != PerTensor():
            return Kept(f"its result is {qparams.dtype}, or has one scale per channel")
        results.quantizers[slot], results.qparams[slot] = quantizing, qparams
    return results


def _qparams_behind(
    value: ir.Value, quantizing: Sequence[ir.Node], scales: Scales
) -> QParams | Kept:
    """The one grid that all readers of the value quantize it to, or why there is none."""
    if not quantizing or len(quantizing) < len(value.consumers()) or value.is_graph_output():
        return Kept("its result is read in float32 too, or not quantized at all")
    found = [scales.of(quantizer) for quantizer in quantizing]
    qparams = found[0]
    if isinstance(qparams, Unread):
        return Kept(f"its result is quantized: {qparams.reason}")
    if any(other != qparams for other in found):
        return Kept("its result is quantized in more than one way")
    return qparams


def _only_clamp(value: ir.Value, node: ir.Node) -> ir.Node | None:
    """Relu or Clip that alone reads the value and has one reader itself, as ONNX Runtime asks."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    (reader,) = (use.node for use in uses)
    if not facts.of(reader).swallowed or reader.graph is not node.graph:
        return None
    result = reader.outputs[0]
    return None if result.is_graph_output() or len(result.uses()) != 1 else reader


def _redundant(clamp: ir.Node, quantize: ir.Node, qparams: QParams) -> bool:
    """Whether saturation to the integers' type does what the Relu or Clip does (or nearly so).

    rint(bound / scale) + zero_point is compared with the ends of the type, as ONNX Runtime does,
    for a Clip where scale and zero point have rank 0.
    """
    rule = catalog.rule_of(float_view(clamp, Scales()))
    if rule is None or rule.clamp is None:
        return False
    zero_point, dtype = int(qparams.zero_point), qparams.dtype
    if clamp.op_type == "Relu":
        return zero_point == dtype.qmin
    if any(v is not None and v.shape is not None and len(v.shape) for v in quantize.inputs[1:]):
        return False
    low, high = (np.rint(np.float32(bound) / qparams.scale) for bound in rule.clamp)
    if not (np.isfinite(low) and np.isfinite(high)) or max(-low, high) >= 2**31:
        return False  # ONNX Runtime casts these to int32: what that gives depends on the CPU
    return int(low) + zero_point <= dtype.qmin and int(high) + zero_point >= dtype.qmax


def goes_to_quantize(value: ir.Value, node: ir.Node) -> bool:
    """Whether only Q nodes read the value, directly or behind a Relu or Clip."""
    clamp = _only_clamp(value, node)
    readers = [use.node for use in (clamp.outputs[0] if clamp else value).uses()]
    return bool(readers) and not value.is_graph_output() and all(map(is_quantize, readers))
