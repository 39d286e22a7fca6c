"""Writes out the integer operators that ONNX Runtime does not fuse, as post-training does.

DQ -> ConvTranspose(DQ(w), DQ(b)) -> Q     becomes     QLinearConv over phases, interleaved
"""

from collections.abc import Collection

import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq import catalog
from onnxq.errors import UnsupportedError
from onnxq.graph.edit import FreeNames, graph_of, sole_reader
from onnxq.operator import NodePlan, OpCategory, Rule, Site
from onnxq.qdq.fuse.scales import Scales, float_view
from onnxq.qdq.read import dequantizer, is_constant, is_quantize, one_scale, qparams_of
from onnxq.qparams import PerBlock, PerTensor, QParams


def lower_layer(node: ir.Node, names: FreeNames) -> None:
    """Writes the operator's own form on integers in place of DQ -> node -> Q.

    Where weight or bias are float, no kernel takes the types, or the result is read unrounded, the
    node stays as it is.
    """
    operator = catalog.find(node.op_type, node.domain)
    if operator is None or not operator.has_lowering():
        return
    view = float_view(node, Scales())  # a rule wants to see constants
    rule = operator.rule(view)
    if not isinstance(rule, Rule) or not rule.lowered:
        return
    quantizer = _quantizer(node)
    if rule.category is not OpCategory.COMPUTE or rule.weight is None or quantizer is None:
        return
    made, result = one_scale(quantizer), quantizer.outputs[0]
    read = [_read(node, slot, {rule.weight.slot, rule.bias}) for slot in range(len(node.inputs))]
    if made is None or any(
        (v is None) != (q is None) for v, q in zip(node.inputs, read, strict=True)
    ):
        return
    sources = [dequantizer(value) for value in node.inputs]
    inputs = [None if source is None else source.inputs[0] for source in sources]
    results: tuple[QParams | None, ...] = (made, *[None] * (len(node.outputs) - 1))
    tape = Tape()
    try:
        (integers,) = operator.lower(Site(tape, view, inputs, NodePlan(tuple(read), results)))
    except UnsupportedError:  # no kernel takes these types
        return
    write(tape, node, names)
    integers.type, integers.shape = result.type, result.shape
    stem = result.name
    result.replace_all_uses_with(integers, replace_graph_outputs=True)
    result.name = names.value(f"{stem}_replaced")
    integers.name = stem
    graph_of(node).remove([quantizer, node], safe=True)


def _read(node: ir.Node, slot: int, constants: Collection[int | None]) -> QParams | None:
    """QParams of the integers in that slot; None: it is absent, or they do not suit a lowering."""
    source = dequantizer(node.inputs[slot])
    qparams = None if source is None else qparams_of(source)
    if not isinstance(qparams, QParams) or is_constant(source) != (slot in constants):
        return None
    if slot not in constants:
        return qparams if qparams.granularity == PerTensor() else None
    suits = not isinstance(qparams.granularity, PerBlock) and not qparams.zero_point.any()
    return qparams if suits else None


def write(tape: Tape, node: ir.Node, names: FreeNames) -> None:
    """Puts what is on the tape ahead of the node, under free names."""
    graph = graph_of(node)
    for value in tape.initializers:
        value.name = names.value(str(value.name))
        graph.register_initializer(value)
    for made in tape.nodes:
        graph.opset_imports.setdefault(made.domain, 1)
        made.name = names.node(made.name or str(node.name))
        for value in made.outputs:
            value.name = names.value(value.name or f"{made.name}_integers")
    graph.insert_before(node, tape.nodes)


def _quantizer(node: ir.Node) -> ir.Node | None:
    """The QuantizeLinear that alone reads the node's only result."""
    reader = sole_reader(node.outputs[0]) if len(node.outputs) == 1 else None
    return reader if is_quantize(reader) else None
