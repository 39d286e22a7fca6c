"""Sums with a constant that keep the integers of the other operand: nothing is rounded twice.

    y = x + g,  x = s (q - z_x),  y = s (q - z_y)    <=>    z_y = z_x - g / s

That takes one scale s for both, of which g is a multiple, and zero points that are integers: with
k = |g| / s whole,

    s >= (max(-lo, g, 0) + max(hi, -g, 0)) / integers    for x in [lo, hi],    and    s >= s_x.

The error of both roundings is (s_x^2 + s_y^2) / 12, that of one is s^2 / 12: it is done where that
is less, for sums that alone read x. PP-OCRv4's recognition has such sums ahead of depthwise
convolutions that pad: the padding is 0 and not g, so that g cannot move into their biases.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxq.graph.passes.formulas import line_of
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.qparams import PerTensor, QParams, per_tensor
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.insertion.groups import TensorGroup
from onnxq.static.insertion.overrides import group_override
from onnxq.static.prepared import Prepared


def with_shifts(
    prepared: Prepared, decisions: Mapping[str, Decision], tensors: Mapping[str, QParams]
) -> dict[str, QParams]:
    """`tensors`, where sums with a number have the integers of what is added to."""
    found = dict(tensors)
    groups = {member: group for group in prepared.groups for member in group.members}
    changed: set[str] = set()
    for node, _ in walk(prepared.model.graph):
        line = line_of(node)
        if line is None or line.factor != 1.0 or not line.offset:
            continue
        x, y = value_name(line.x), value_name(node.outputs[0])
        if not isinstance(decisions[node_name(node)], Quantize) or _has_others(line.x, decisions):
            continue
        if not all(_is_free(end, prepared, groups) for end in (x, y)) or groups[x] is groups[y]:
            continue
        pair = _shifted(found[x], found[y], line.offset) if x in found and y in found else None
        members = {*groups[x].members, *groups[y].members}
        if pair is None or members & changed:
            continue
        found |= dict.fromkeys(groups[x].members, pair[0])
        found |= dict.fromkeys(groups[y].members, pair[1])
        changed |= members
    return found


def _has_others(x: ir.Value, decisions: Mapping[str, Decision]) -> bool:
    """Whether others read the operand, or a Clip gives it, whose bounds its range holds."""
    producer = x.producer()
    if producer is None or len(x.uses()) > 1:
        return True
    decision = decisions[node_name(producer)]
    return isinstance(decision, Quantize) and decision.rule.clamp is not None


def _is_free(tensor: str, prepared: Prepared, groups: Mapping[str, TensorGroup]) -> bool:
    """Whether nothing but the data of one tensor gives its qparams."""
    if tensor not in groups:
        return False
    group = groups[tensor]
    members = set(group.members)
    inputs_and_outputs = {
        value_name(v) for v in (*prepared.model.graph.inputs, *prepared.model.graph.outputs)
    }
    return (
        len(group.sources) == 1
        and not group.constants
        and group.range is None
        and group_override(list(group.members), prepared.qconfig) is None
        and not members & (inputs_and_outputs | prepared.clamps.keys())
    )


def _shifted(x: QParams, y: QParams, g: float) -> tuple[QParams, QParams] | None:
    """(qparams of x, of x + g) with the same integers; None: two roundings lose less."""
    if x.dtype != y.dtype or not all(isinstance(q.granularity, PerTensor) for q in (x, y)):
        return None
    own, behind = float(x.scale), float(y.scale)
    integers = x.dtype.qmax - x.dtype.qmin
    low = (x.dtype.qmin - int(x.zero_point)) * own
    high = (x.dtype.qmax - int(x.zero_point)) * own
    least = max(own, (max(-low, g, 0.0) + max(high, -g, 0.0)) / integers)
    steps = math.floor(abs(g) / least)
    if not steps:
        return None
    scale = abs(g) / steps
    if scale**2 >= own**2 + behind**2:
        return None
    below = math.ceil(max(-low, g, 0.0) / scale - 1e-6)  # integers below that of 0, where all fit
    zero = x.dtype.qmin + min(below, integers)
    shifted = zero - int(math.copysign(steps, g))
    if not x.dtype.qmin <= shifted <= x.dtype.qmax:
        return None
    step = np.float32(scale)
    return per_tensor(step, zero, x.dtype), per_tensor(step, shifted, x.dtype)
