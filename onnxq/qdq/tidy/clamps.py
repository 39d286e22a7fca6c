"""Relu and Clip before a QuantizeLinear: its integers carry them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.affine import integer_bounds
from onnxq.graph.edit import graph_of, insert_behind
from onnxq.operator import OpCategory
from onnxq.qdq.read import (
    is_dequantize,
    is_quantize,
    one_scale,
)
from onnxq.qdq.write import clip_integers, constants_of

if TYPE_CHECKING:
    from onnxq.dtypes import QDType
    from onnxq.graph.edit import FreeNames


def fold_clamps(node: ir.Node, names: FreeNames) -> None:
    """Q(clip(x)) = clip(Q(x)): a Clip on integers takes its place, where it cuts integers off."""
    qparams = one_scale(node) if is_quantize(node) else None
    if qparams is None:
        return
    x = node.inputs[0]
    clamps: list[ir.Node] = []
    low, high = -np.inf, np.inf
    producer = None if x is None else x.producer()
    while producer is not None and _only_reader(producer):
        bounds = _bounds(producer)
        if bounds is None:
            break
        # what comes later clips what came earlier
        ends = np.clip(np.array(bounds), low, high)
        low, high = (float(end) for end in ends)
        clamps.append(producer)
        above = producer.inputs[0]
        assert above is not None
        x, producer = above, above.producer()
    if not clamps:
        return
    if is_dequantize(producer):
        return  # a clamp of integers on another grid: it stays where it is
    node.replace_input_with(0, x)
    for clamp in clamps:
        assert isinstance(clamp.graph, ir.Graph)
        clamp.graph.remove(clamp, safe=True)
    integers = integer_bounds((low, high), qparams)
    if integers != (qparams.dtype.qmin, qparams.dtype.qmax):
        _clip_behind(node, qparams.dtype, integers, names)


def _clip_behind(
    quantizer: ir.Node, dtype: QDType, bounds: tuple[int, int], names: FreeNames
) -> None:
    value = quantizer.outputs[0]
    new = constants_of(quantizer, names)
    node = clip_integers(value, dtype, bounds, str(value.name), new)
    node.name = names.node(f"{quantizer.name}_clip")
    result = node.outputs[0]
    result.name = names.value(f"{value.name}_clipped")
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    node.replace_input_with(0, value)
    insert_behind(value, node, graph_of(quantizer))


def _bounds(node: ir.Node) -> tuple[float, float] | None:
    """Bounds that the node clips its input to; None where it does something else."""
    rule = catalog.rule_of(node)
    return rule.clamp if rule is not None and rule.category is OpCategory.CLAMP else None


def _only_reader(node: ir.Node) -> bool:
    value = node.outputs[0]
    return len(list(value.uses())) == 1 and not value.is_graph_output()
