"""Sums of integers in an exported graph whose integers depend on the machine.

DQ(a) + DQ(b) -> Q is a QLinearAdd in ONNX Runtime; static/planning/plan_sums.py says what
machines make of that.
"""

import onnx_ir as ir

from onnxq.qdq.read import dequantizer, is_quantize, one_scale
from onnxq.qdq.sum_scales import ADD, Sum


def disagreeing_sums(model: ir.Model) -> dict[str, float]:
    """Node -> scale of its result, of those whose integers are not the same on every machine."""
    found = {}
    for node in model.graph:
        if node.op_type != ADD or node.domain:
            continue
        readers = list(node.outputs[0].consumers())
        if len(readers) != 1 or not is_quantize(readers[0]):
            continue
        a, b, c = map(one_scale, (*map(dequantizer, node.inputs), readers[0]))
        if a is None or b is None or c is None:
            continue
        one = Sum(str(node.name), ADD, "", ("a", "b"), ("c",))
        if not one.agrees({"a": a, "b": b, "c": c}):
            found[one.name] = float(c.scale)
    return found
