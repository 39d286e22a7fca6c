"""int8 activations become uint8, which run in integers on every machine.

    x -> Q(int8, z) -> ... -> DQ(z)    becomes    x -> Q(uint8, z + 128) -> ... -> DQ(z + 128)
    constant (int8, z) -> DQ -> Add    becomes    constant + 128 (uint8, z + 128) -> DQ -> Add

(q - zero_point) * scale stays the same number, so that a trained module and its model stay
equal; static/insertion/inserted.py says why int8 integers would not run in integers. Between Q
and DQ may stand a Clip on integers, and what only moves them. Integers that the model returns or
takes stay int8, and so do weights.
"""

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.edit import FreeNames
from onnxq.operator import OpCategory
from onnxq.qdq import read
from onnxq.qdq.write import shifted_constant

UINT8 = ir.TensorType(ir.DataType.UINT8)

Constants = list[tuple[ir.Node, int]]
"""Where int8 constants stand that are integers: nodes, and their slots."""


def store_unsigned(model: ir.Model, names: FreeNames) -> None:
    """Rewrites the main graph in place; integers of weights are constants at their DQ by now."""
    shifted: dict[ir.Value, ir.Value] = {}
    for node in list(model.graph):
        if read.is_quantize(node):
            found = _from_quantizer(node)
        elif read.is_dequantize(node) and read.is_constant(node) and _is_activation(node):
            found = [(node, 0), (node, read.ZERO_POINT)], []
        else:
            continue
        if found is None:
            continue
        arrays = [read.array_of(n, slot) for n, slot in found[0]]
        if any(array is None or array.dtype != np.int8 for array in arrays):
            continue
        constants, values = found
        for holder, slot in constants:
            old = holder.inputs[slot]
            assert old is not None, "it holds an array"
            if old not in shifted:
                shifted[old] = shifted_constant(old, names)
            holder.replace_input_with(slot, shifted[old])
        for value in values:
            value.type = UINT8


def _from_quantizer(quantizer: ir.Node) -> tuple[Constants, list[ir.Value]] | None:
    """The constants among a Q's integers down to every DQ, and the integers; None: some leave."""
    constants: Constants = [(quantizer, read.ZERO_POINT)]
    values, waiting = [], [quantizer.outputs[0]]
    while waiting:
        value = waiting.pop()
        values.append(value)
        if value.is_graph_output():
            return None
        for reader, slot in value.uses():
            if read.is_dequantize(reader):
                constants.append((reader, read.ZERO_POINT))
            elif reader.op_type == "Clip" and slot == 0:
                constants += [(reader, end) for end in (1, 2)]
                waiting += reader.outputs
            elif _moves(reader) and slot == 0:
                waiting += reader.outputs
            else:
                return None
    return constants, values


def _moves(node: ir.Node) -> bool:
    """Whether it moves its first input, and nothing else, to its outputs."""
    rule = catalog.rule_of(node)
    return (
        rule is not None
        and rule.category is OpCategory.MOVEMENT
        and rule.is_fused
        and rule.shares_qparams
        and rule.activations == (0,)
        and len(rule.outputs) == len(node.outputs)
    )


def _is_activation(dequantize: ir.Node) -> bool:
    """Whether a constant is read as an activation, by all of its readers."""
    uses = list(dequantize.outputs[0].uses())
    if read.one_scale(dequantize) is None or not uses or dequantize.outputs[0].is_graph_output():
        return False
    return all(_reads_activation(reader, slot) for reader, slot in uses)


def _reads_activation(node: ir.Node, slot: int) -> bool:
    """Whether the slot is an operand of a node that computes with other integers at run time."""
    rule = catalog.rule_of(node)
    if rule is None or slot not in rule.activations:
        return False
    others = [read.dequantizer(node.inputs[other]) for other in rule.activations if other != slot]
    return any(other is not None and not read.is_constant(other) for other in others)
