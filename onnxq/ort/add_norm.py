"""Add ahead of LayerNormalization, which ONNX Runtime makes one node that is slower than both.

    LayerNormalization(A + B)     becomes     SkipLayerNormalization(A, B)

Its SkipLayerNormFusion, on these terms: A and B are of rank 3 and have the same sizes, nobody but
the LayerNormalization reads the sum, and it is over the last axis. A Sum of two inputs is the same
addition, which the fusion does not look for. It is written where the fusion applies, and nowhere
else, because a Sum alone takes longer than an Add. benchmarks/results/fusions.md has the times by
width: of 16 rows and more, the fused node takes 6 to 7 times as long as both.
"""

import onnx_ir as ir

from onnxq.graph.edit import all_nodes
from onnxq.operator.nodes import ONNX_DOMAINS, input_at

RANK = 3
SUM_OPSET = 8  # the first whose Sum broadcasts, as Add does


def write_sums(model: ir.Model) -> None:
    """Writes every Add that would be fused with the LayerNormalization behind it as a Sum.

    In place, bodies included; names stay. It comes last in a rewrite: the canonical model, its hash
    and its decisions know an Add, which is what a user reads in the float model, and which can run
    in integers; a Sum cannot.
    """
    if model.opset_imports.get("", 0) < SUM_OPSET:
        return
    for add in list(filter(is_fused, all_nodes(model))):
        add.op_type = "Sum"


def is_fused(add: ir.Node) -> bool:
    """Whether ONNX Runtime makes one node of an Add and what reads it.

    Sizes that are not known, or have different names, are taken to be equal: they may get known
    when the model is loaded, and missing the fusion costs more than a Sum in vain.
    """
    if add.op_type != "Add" or add.domain not in ONNX_DOMAINS:
        return False
    a, b, result = input_at(add, 0), input_at(add, 1), add.outputs[0]
    if result.is_graph_output() or len(result.uses()) != 1 or result.dtype != ir.DataType.FLOAT:
        return False
    (use,) = result.uses()
    return use.idx == 0 and _is_over_last_axis(use.node, add) and _may_be_equal(a, b)


def _is_over_last_axis(norm: ir.Node, add: ir.Node) -> bool:
    if norm.op_type != "LayerNormalization" or norm.domain not in ONNX_DOMAINS:
        return False
    return norm.graph is add.graph and norm.attributes.get_int("axis", -1) in (-1, RANK - 1)


def _may_be_equal(a: ir.Value, b: ir.Value) -> bool:
    """Whether A and B may be of rank 3 with the same sizes; 1 beside a name is a broadcast."""
    shapes = [v.shape for v in (a, b) if v.shape is not None]
    if any(len(shape) != RANK for shape in shapes):
        return False
    if len(shapes) < 2:
        return True
    return all(
        m == n or (not (isinstance(m, int) and isinstance(n, int)) and 1 not in (m, n))
        for m, n in zip(*shapes, strict=True)
    )
