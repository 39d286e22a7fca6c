"""int8 weights as torch has them: which machines they endanger, and how to narrow them.

torch's observers give integers in [-128, 127]. Some machines add two products in int16, which then
saturate (x86 without VNNI, beyond 64) or wrap (ARM, -128): see onnxq.targets. Imported integers are
kept, because they are what was trained, unless narrowing is asked for:

    the limit is 127    -128 becomes -127: one LSB, of these weights alone
    the limit is 64     w_scale' = w_scale * max|integers| / 64, integers rounded to that scale
"""

import enum
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import catalog, targets
from onnxq.dtypes import INT8
from onnxq.graph.edit import FreeNames, new_constant
from onnxq.graph.passes.unused import RemoveUnused
from onnxq.operator.nodes import find_input
from onnxq.ort.target_here import target_here
from onnxq.pytorch.importers.notes import note
from onnxq.pytorch.importers.patterns import WEIGHTS
from onnxq.qdq.read import BIAS, WEIGHT, array_of, dequantizer, is_constant
from onnxq.qdq.tidy.biases import real_bias, store_bias
from onnxq.qdq.write import constants_of, feed, new_graph_qparams
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.targets import Target
from onnxq.targets.accumulation import SaturationMode

Integers = npt.NDArray[np.int8]


INT8_MAX = 127
_WRAPS = (SaturationMode.WRAPS, SaturationMode.WRAPS_DEPTHWISE)
_DYNAMIC = {
    "DynamicQuantizeMatMul": (1,),
    "MatMulIntegerToFloat": (1,),
    "MatMulInteger": (1,),
    "DynamicQuantizeLSTM": (1, 2),
}
"""Operators whose weights are quantized, but not their inputs -> slots of the weights."""


class ImportedWeights(enum.Enum):
    """Ways to treat the integers of weights."""

    KEEP = "keep"
    """Integers stay as torch has them; a warning names the machines that they endanger."""
    NARROW = "narrow"
    """Integers are brought within what the target computes exactly."""


def warn_of_endangered(model: ir.Model, target: Target | None) -> None:
    """Notes the machines that do not compute the model's integer products exactly."""
    found = [(integers, saturates) for _, integers, saturates in _weights(model)]
    if not found:
        return
    machines = [t for t in targets.all_targets() if t.name != "portable"]
    asked = machines
    if target is not None and target.name != "portable":
        asked = list(dict.fromkeys((target, target_here())))
    endangered = [t for t in asked if any(_endangers(t, *pair) for pair in found)]
    if not endangered:
        return
    count = sum(int((integers == -INT8_MAX - 1).sum()) for integers, _ in found)
    largest = max(_largest(integers) for integers, _ in found)
    wraps = ", ".join(t.name for t in endangered if t.saturation_mode in _WRAPS)
    saturates = ", ".join(
        t.name for t in endangered if t.saturation_mode is SaturationMode.SATURATES
    )
    reasons = [f"{count} of them are -128, which wraps on {wraps}"] if wraps else []
    if saturates:
        reasons.append(
            f"they reach {largest}, and products beyond 64 may saturate on {saturates} (not where "
            "activations were observed with reduce_range and stay in their range)"
        )
    note(
        f"int8 weights were imported as they are: {'; '.join(reasons)}. Pass weights='narrow' with "
        "the target to bring them within what it computes exactly."
    )


def narrow(model: ir.Model, target: Target) -> int:
    """Brings the weights beside Q/DQ within what the target computes exactly; returns how many."""
    names = FreeNames(model)
    changed = 0
    for node, integers, saturates in list(_weights(model)):
        limit = limit_of(target, saturates)
        if node.op_type in WEIGHTS and _largest(integers) > limit:
            _narrow(node, integers, limit, names)
            changed += 1
    if changed:
        RemoveUnused()(model)
    return changed


def within(
    integers: Integers, scale: npt.NDArray[np.float32], limit: int, axis: int
) -> tuple[Integers, npt.NDArray[np.float32]]:
    """Integers in [-limit, limit] and their scale, () or (channels,) along the axis."""
    if limit >= INT8_MAX:
        return np.maximum(integers, -limit).astype(np.int8), scale
    others = tuple(a for a in range(integers.ndim) if scale.ndim == 0 or a != axis % integers.ndim)
    largest = np.abs(integers.astype(np.int32)).max(axis=others)
    ratio = (np.maximum(largest, limit) / limit).astype(np.float64)
    shape = [-1 if scale.ndim and a == axis % integers.ndim else 1 for a in range(integers.ndim)]
    narrowed = np.rint(integers / ratio.reshape(shape)).astype(np.int8)
    return narrowed, (scale * ratio).astype(np.float32)


def _narrow(node: ir.Node, integers: Integers, limit: int, names: FreeNames) -> None:
    old = dequantizer(node.inputs[1])
    assert old is not None
    axis = old.attributes.get_int("axis", 1)
    scale, zero_point = array_of(old, 1), array_of(old, 2)
    assert scale is not None
    narrowed, new_scale = within(integers, scale, limit, axis)
    stem = str(old.inputs[0].name) if old.inputs[0] is not None else str(node.name)
    stored = new_constant(node, names.value(f"{stem}_narrow"), narrowed)
    zeros = np.zeros(new_scale.shape, np.int8) if zero_point is None else zero_point
    granularity = PerChannel(axis) if scale.ndim else PerTensor()
    qparams = QParams(new_scale, zeros, INT8, granularity)
    pair = new_graph_qparams(constants_of(node, names), f"{stem}_narrow", qparams)
    name, real = names.node(f"{old.name}_narrow"), names.value(f"{old.outputs[0].name}_narrow")
    feed(node, WEIGHT, pair.dequantize(stored, name, real))
    _renew_bias(node, names)


def _renew_bias(node: ir.Node, names: FreeNames) -> None:
    """The int32 bias at the new x_scale * w_scale."""
    bias, real = find_input(node, BIAS), real_bias(node)
    if bias is None or real is None or not is_constant(dequantizer(bias)):
        return
    value = new_constant(node, names.value(f"{bias.name}_float"), real)
    node.replace_input_with(BIAS, value)
    store_bias(node, names)


def _weights(model: ir.Model) -> Iterator[tuple[ir.Node, Integers, bool]]:
    """(node, integers, whether its products are added in pairs) of the int8 weights."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type in WEIGHTS and not node.domain and dequantizer(node.inputs[0]) is not None:
            source = dequantizer(node.inputs[1])
            integers = array_of(source, 0) if source is not None and is_constant(source) else None
            if integers is not None and integers.dtype == np.int8:
                rule = catalog.rule_of(node)
                yield node, integers, rule is None or rule.saturating_pairs
        for slot in _DYNAMIC.get(node.op_type, ()):
            integers = array_of(node, slot)
            if integers is not None and integers.dtype == np.int8:
                yield node, integers, True


def _endangers(target: Target, integers: Integers, saturates: object) -> bool:
    match target.saturation_mode:
        case SaturationMode.SATURATES:
            return bool(saturates) and _largest(integers) > target.weight_qmax_saturating
        case SaturationMode.WRAPS | SaturationMode.WRAPS_DEPTHWISE:
            return bool((integers == -INT8_MAX - 1).any())
    return False


def limit_of(target: Target, saturates: object) -> int:
    """Largest magnitude of an integer that the target computes exactly in such a layer."""
    if target.saturation_mode in (SaturationMode.EXACT, SaturationMode.UNFUSED):
        return INT8_MAX + 1
    return target.weight_qmax_saturating if saturates else target.weight_qmax


def _largest(integers: Integers) -> int:
    return int(np.abs(integers.astype(np.int32)).max(initial=0))
