"""Stores once what is stored twice: matrices of which one is the other, transposed.

    B = A^T, both initializers  ->  B = Transpose(A), which ONNX Runtime folds at load

An embedding that is the output matrix too reaches us as two initializers: the exporter's
Transpose of the embedding is a constant like any other, and folded.
"""

from collections.abc import Iterable

import onnx_ir as ir

from onnxq.catalog import has_dynamic_quantization
from onnxq.dynamic.tied_weights import find_tied
from onnxq.graph.edit import home_of
from onnxq.graph.walk import value_name


def store_tied_integers_once(values: Iterable[ir.Value]) -> None:
    """Replaces initializers in place by a Transpose of an earlier one."""
    groups: dict[tuple[object, object], list[ir.Value]] = {}
    for value in values:
        if value.uses() and value.is_initializer() and not value.is_graph_output():
            groups.setdefault((value.graph, value.dtype), []).append(value)
    for group in groups.values():
        for value, source in find_tied(group).items():
            _turn(value, source)


def float_matrices(model: ir.Model) -> list[ir.Value]:
    """Weights left in float that nothing but operators with a dynamic form reads."""
    values = [v for graph in model.graphs() for v in graph.initializers.values()]
    return [
        v
        for v in values
        if v.dtype == ir.DataType.FLOAT
        and not v.is_graph_input()
        and all(has_dynamic_quantization(use.node) for use in v.uses())
    ]


def _turn(value: ir.Value, source: ir.Value) -> None:
    """The value becomes the result of a Transpose at the start of its graph."""
    graph, name = home_of(value), value_name(value)
    node = ir.node("Transpose", [source], {"perm": [1, 0]}, num_outputs=1, name=f"{name}_transpose")
    (turned,) = node.outputs
    turned.type, turned.shape = value.type, value.shape
    graph.insert_before(graph[0], node)
    value.replace_all_uses_with(turned)
    del graph.initializers[name]
    value.name, turned.name = None, name
