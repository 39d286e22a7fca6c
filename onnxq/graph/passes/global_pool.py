"""ReduceMean over space becomes GlobalAveragePool, which ONNX Runtime runs in integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of
from onnxq.graph.weights import constant
from onnxq.operator.nodes import has_input, input_at

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANKS = (3, 4, 5)  # (N, C, spatial...): ONNX Runtime has the kernel for 1 to 3 spatial axes


class MeanToGlobalPool(ir.passes.InPlacePass):
    """ReduceMean(x, axes=2..rank-1) = GlobalAveragePool(x), then Flatten(axis=1) where keepdims=0.

    All graphs. Rank and type (float32) of x must be known, the axes constant. The result keeps its
    name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replaces all that match."""
        names: FreeNames | None = None
        for node in all_nodes(model):
            if not _is_spatial_mean(node):
                continue
            names = names or FreeNames(model)
            keeps = node.attributes.get_int("keepdims", 1)
            node.op_type = "GlobalAveragePool"
            node.attributes.clear()
            node.resize_inputs(1)
            if not keeps:
                _flatten(node, names)
        return ir.passes.PassResult(model, modified=names is not None)


def _is_spatial_mean(node: ir.Node) -> bool:
    if node.op_type != "ReduceMean" or node.domain:
        return False
    x = node.inputs[0]
    if x is None or x.shape is None or x.dtype != ir.DataType.FLOAT:
        return False
    axes, rank = _axes(node), len(x.shape)
    if axes is None or rank not in _RANKS:
        return False
    return sorted(a + rank if a < 0 else a for a in axes) == list(range(2, rank))


def _axes(node: ir.Node) -> Sequence[int] | None:
    """Constant axes: input 1 since opset 18, attribute before; None: absent or computed."""
    if has_input(node, 1):
        tensor = constant(node.inputs[1])
        return None if tensor is None else [int(a) for a in tensor.numpy().reshape(-1)]
    return node.attributes.get_ints("axes")


def _flatten(pool: ir.Node, names: FreeNames) -> None:
    """Appends y = Flatten(pooled): (N, C, 1...) to (N, C)."""
    x, y, graph = input_at(pool, 0), pool.outputs[0], graph_of(pool)
    assert x.shape is not None
    name = names.node(f"{pool.name}_flatten") if pool.name else None
    flatten = ir.node("Flatten", [], {"axis": 1}, num_outputs=1, name=name)
    flatten.metadata_props.update(pool.metadata_props)
    result = flatten.outputs[0]
    result.name, result.type, result.shape = y.name, ir.TensorType(ir.DataType.FLOAT), y.shape
    y.replace_all_uses_with(result, replace_graph_outputs=True)
    y.name = names.value(f"{y.name}_pooled")
    y.type = ir.TensorType(ir.DataType.FLOAT)
    y.shape = ir.Shape([x.shape[0], x.shape[1], *[1] * (len(x.shape) - 2)])
    flatten.resize_inputs(1)
    flatten.replace_input_with(0, y)
    graph.insert_after(pool, flatten)
