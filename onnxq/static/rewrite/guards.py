"""Which nodes that are to stay float ONNX Runtime would quantize by itself.

DQ -> op -> Q                   becomes QLinearOp, or op on integers
DQ -> Reshape -> op -> Q        too: a DQ moves down through what only moves data
DQ -> op -> Relu -> Q           too: a Q moves up, and takes Relu and Clip in
DQ -> MatMul -> Add -> Q        too: they become a Gemm
"""

import onnx_ir as ir

from onnxq.graph.walk import node_name, value_name
from onnxq.ort import facts
from onnxq.ort.matmul_add import MatMulAdd, matmul_add, matmul_add_of
from onnxq.ort.version import OLDEST
from onnxq.qdq.read import dequantizer
from onnxq.static.plan import Plan


def inputs_to_guard(node: ir.Node, plan: Plan) -> tuple[int, ...]:
    """Input slots of a float node, of which one needs a guard; empty where none is needed."""
    fact = facts.of(node, OLDEST)
    if fact.stays_float:
        return ()
    if slots := _takes_bias(node, plan):
        return slots
    varying = [
        (slot, value)
        for slot, value in enumerate(node.inputs)
        if value is not None
        and not value.is_initializer()
        and value.dtype in (None, ir.DataType.FLOAT)  # a Where has a condition, too
    ]
    if not varying or not all(_dequantized(value) for _, value in varying):
        return ()
    without_q = fact.without_q and len(varying) > 1  # two activations, not one and a float weight
    adder = matmul_add(node)
    goes_with_bias = adder is not None and _is_quantized(adder, plan)
    if without_q or goes_with_bias or any(_quantized(v, plan) for v in node.outputs):
        return tuple(slot for slot, _ in varying)
    return ()


def _takes_bias(node: ir.Node, plan: Plan) -> tuple[int, ...]:
    """Slot of a MatMul on integers that takes the node, an Add that is to stay float, along."""
    found = matmul_add_of(node)
    if found is None or not _is_quantized(found, plan):
        return ()
    on_integers = all(v is not None and _dequantized(v) for v in found.matmul.inputs)
    return (1 - found.slot,) if on_integers else ()


def _is_quantized(found: MatMulAdd, plan: Plan) -> bool:
    """Whether ONNX Runtime looks for a Q behind the Add, and finds one."""
    (result,) = found.add.outputs
    # of batches, a Reshape stands behind the Gemm: a Q moves past it, a Relu does not
    stopped = found.is_flattened and any(facts.of(n, OLDEST).swallowed for n in result.consumers())
    return found.rounds_bias and not stopped and _quantized(result, plan)


def results_to_guard(node: ir.Node, guarded: tuple[int, ...]) -> bool:
    """Whether the results need a guard, too: a Q behind them would be moved ahead of the node."""
    fact = facts.of(node, OLDEST)
    return fact.moved_past and (bool(guarded) or fact.slowdown > 1)


def _dequantized(value: ir.Value) -> bool:
    """Whether a DQ makes the value, or could be moved down to it."""
    producer = value.producer()
    while producer is not None and facts.of(producer, OLDEST).transparent:
        above = producer.inputs[0]
        if above is None:
            return False
        value, producer = above, above.producer()
    return dequantizer(value) is not None


def _quantized(value: ir.Value, plan: Plan) -> bool:
    """Whether a Q stands behind the value, or could be moved up to it."""
    seen, waiting = {value}, [value]
    while waiting:
        one = waiting.pop()
        if one.name and value_name(one) in plan.tensors:
            return True
        for node in one.consumers():
            result, fact = node.outputs[0], facts.of(node, OLDEST)
            absorbed = fact.transparent or fact.swallowed
            if result not in seen and absorbed and node_name(node) in plan.decisions:
                seen.add(result)
                waiting.append(result)
    return False
