"""Inputs that are much the same: raw data, such as the pixels of a patch or the samples of a sound.

    x_i = m + n_i        E[x x'] = E[n n'] + E[m^2] 1 1'

What the numbers have in common adds the errors of a row up before they are squared. It is in what a
model is given, as far as that is moved, or scaled by constants, and no norm has taken it out. So
methods that see no samples can heed it all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq import catalog
from onnxq.graph.passes.fold_factors import ARITHMETIC
from onnxq.graph.walk import value_name
from onnxq.operator import Float
from onnxq.operator.nodes import is_constant
from onnxq.operator.rule import Role

if TYPE_CHECKING:
    import onnx_ir as ir

ALIKE = 1.0
"""Power that raw data has in common, over what each number has of its own."""


def raw_tensors(model: ir.Model) -> set[str]:
    """Names of a model's inputs, and of the tensors that they are moved or scaled to.

    Args:
        model: canonical.
    """
    raw = {value for value in model.graph.inputs if value.name}
    for node in model.graph:
        data = [v for slot, v in enumerate(node.inputs) if v and not is_constant(node, slot)]
        if data and raw.issuperset(data) and _keeps(node, len(data)):
            raw.update(value for value in node.outputs if value.name)
    return {value_name(value) for value in raw}


def _keeps(node: ir.Node, operands: int) -> bool:
    """Whether results are alike where all operands are."""
    operator = catalog.find(node.op_type, node.domain)
    rule = Float("no such operator") if operator is None else operator.rule(node)
    if isinstance(rule, Float):
        return False
    scales = node.op_type in ARITHMETIC and operands == 1
    return scales or rule.role in (Role.MOVEMENT, Role.CLAMP)
