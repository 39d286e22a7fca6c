"""MatMuls with a stack of matrices, as batched experts have them, split into one per matrix.

    Y = X W, W (stack, inputs, outputs)    ->    Y = Concat(X_0 W_0, X_1 W_1 ...)    exact

MatMulNBits has one matrix.
"""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import (
    FreeNames,
    all_nodes,
    forget_unread,
    graph_of,
    new_constant,
    new_initializer,
    replace,
)
from onnxq.graph.walk import node_name, value_name
from onnxq.graph.weights import derived
from onnxq.operator.nodes import input_at, is_constant, shape, sizes, tensor_of
from onnxq.qconfig.names import pattern_for

STACK, MATRIX = 3, 2  # ranks
STACK_AXIS = -3


def split_stacked_matmuls(model: ir.Model, exclude: Collection[str] = ()) -> None:
    """Splits every MatMul with a constant stack, in place."""
    names, left = FreeNames(model), dict.fromkeys(exclude)
    for node in list(all_nodes(model)):
        if _is_stacked(node) and pattern_for(left, node_name(node)) is None:
            _split(node, names)


def _is_stacked(node: ir.Node) -> bool:
    """Whether a node multiplies by a stack of matrices: each by its own operand, or all by one."""
    if node.op_type != "MatMul" or node.domain or not is_constant(node, 1):
        return False
    x, w = shape(node, 0), sizes(node, 1)
    if x is None or len(x) < MATRIX or len(w) != STACK:
        return False
    return len(x) == MATRIX or x[STACK_AXIS] in (1, w[0])


def _split(node: ir.Node, names: FreeNames) -> None:
    x, stack = input_at(node, 0), input_at(node, 1)
    (count, *matrix), given = sizes(node, 1), shape(node, 0) or ()
    graph, tensor, stem = graph_of(node), tensor_of(stack), node_name(node)

    def inserted(made: ir.Node, name: str, sizes: tuple[int | None, ...]) -> ir.Node:
        made.name = names.node(name)
        for value in made.outputs:
            value.name = names.value(f"{name}_output")
            value.type, value.shape = x.type, ir.Shape(sizes)
        graph.insert_before(node, made)
        return made

    if len(given) == MATRIX:
        axis = new_constant(node, names.value(f"{stem}_axis"), np.array([0]))
        given = (1, *given)
        x = inserted(ir.node("Unsqueeze", [x, axis]), f"{stem}_unsqueeze", given).outputs[0]
    parts = [x] * count
    one = (*given[:STACK_AXIS], 1, *given[STACK_AXIS + 1 :])
    if given[STACK_AXIS] != 1:
        each = new_constant(node, names.value(f"{stem}_sizes"), np.ones(count, np.int64))
        split = ir.node("Split", [x, each], {"axis": len(given) + STACK_AXIS}, num_outputs=count)
        parts = list(inserted(split, f"{stem}_split", one).outputs)
    results: list[ir.Value] = []
    for index, part in enumerate(parts):
        name = names.value(f"{value_name(stack)}.{index}")
        weight = derived(lambda i=index: tensor.numpy()[i], tensor.dtype, matrix, name)  # type: ignore[misc]  # mypy infers no lambda with a default
        matmul = ir.node("MatMul", [part, new_initializer(graph, name, weight)])
        results += inserted(matmul, f"{stem}.{index}", (*one[:-1], matrix[-1])).outputs
    joined = ir.node("Concat", results, {"axis": len(given) + STACK_AXIS}, name=names.node(stem))
    replace(node, joined, names)
    forget_unread(stack)
