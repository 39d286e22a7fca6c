"""Nodes between quantized tensors that stay float, and sums of codes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.pytorch.insertion.names import is_tensor
from onnxq.qdq.sum_scales import ADD
from onnxq.static.planning.plan_sums import find_sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.pytorch.insertion.tensors import Tensors
    from onnxq.pytorch.insertion.view import View
    from onnxq.qdq.sum_scales import Sum


def kept_float(view: View, tensors: Tensors) -> Iterator[str]:
    """Float nodes that need a guard, as in the rewrite (onnxq.static.rewrite.guards)."""
    for node in view.nodes:
        if view.quantized(node) is not None or node not in view.fusible:
            continue
        results = [v for v in node.outputs if v.name]
        cores = [n for v in results for n in view.names.nodes(v)]
        read = [n for n in cores[0].all_input_nodes if is_tensor(n)] if cores else []
        rounded = [tensors.group_of(tensors.source(n)) is not None for n in read]
        quantized = any(v.name in tensors.of for v in results)
        if read and all(rounded) and (quantized or len(read) > 1):
            yield cores[0].name


def sums(view: View, tensors: Tensors) -> Iterator[Sum]:
    """Sums that ONNX Runtime runs as QLinearAdd, where the target wants sums to agree."""
    if not view.prepared.target.agreeing_sums:
        return
    for one in find_sums(view.prepared, view.prepared.decisions):
        sides = [[tensors.first(t) for t in side] for side in (one.inputs, one.outputs)]
        # others are written by the rewrite alone, and computed in float in an exported module
        if one.op_type == ADD and all(name for side in sides for name in side):
            yield replace(one, inputs=tuple(sides[0]), outputs=tuple(sides[1]))
