"""Data movement, and clamps, of what comes from integers: they get integers of their own."""

import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq import catalog
from onnxq.affine import integer_bounds
from onnxq.graph.edit import FreeNames, graph_of, replace, sole_reader
from onnxq.operator import NodePlan, OpCategory, Rule, Site
from onnxq.qdq import read
from onnxq.qdq.tidy.lowered import write
from onnxq.qdq.write import (
    GraphQParams,
    clip_integers,
    constants_of,
    graph_qparams_of,
    quantize_behind,
)
from onnxq.qparams import QParams


def onto_qparams(node: ir.Node, names: FreeNames) -> None:
    """Gives what only moves data, or clips, integers of its own: those that come in."""
    if read.is_quantize(node) or read.is_dequantize(node) or node.op_type == MARK:
        return
    rule = catalog.rule_of(node)
    if rule is None or rule.category not in (OpCategory.CLAMP, OpCategory.MOVEMENT):
        return
    if rule.category is OpCategory.MOVEMENT and not rule.shares_qparams:
        return
    sources = [read.dequantizer(node.inputs[slot]) for slot in rule.activations]
    found = [None if source is None else read.qparams_of(source) for source in sources]
    qparams = found[0] if found else None
    if not isinstance(qparams, QParams) or any(other != qparams for other in found):
        return
    if any(read.is_constant(source) for source in sources):
        return
    first = sources[0]
    assert first is not None
    graph_qparams = graph_qparams_of(first, qparams)
    if rule.category is OpCategory.CLAMP:
        _clip_to_qparams(node, rule, qparams, graph_qparams, names)
        return
    readers = [reader for slot in rule.outputs for reader in node.outputs[slot].consumers()]
    if readers and all(read.is_quantize(r) and read.qparams_of(r) == qparams for r in readers):
        return  # they quantize with the same qparams already
    if rule.lowered:
        _lower(node, rule, qparams, graph_qparams, names)
        return
    for slot in rule.outputs:
        quantize_behind(node.outputs[slot], graph_qparams, names)


def _clip_to_qparams(
    node: ir.Node, rule: Rule, qparams: QParams, graph_qparams: GraphQParams, names: FreeNames
) -> None:
    """DQ -> Relu -> readers becomes DQ -> Q -> Clip on integers -> DQ: the first two copy."""
    assert rule.clamp is not None
    source = read.dequantizer(node.inputs[0])
    assert source is not None
    value = source.inputs[0]
    assert value is not None
    bounds = integer_bounds(rule.clamp, qparams)
    new = constants_of(node, names)
    clip = clip_integers(value, qparams.dtype, bounds, f"{node.name}_integer", new)
    clip.name = names.node(f"{node.name}_clip")
    integers = clip.outputs[0]
    integers.name = names.value(f"{node.outputs[0].name}_quantized")
    graph_of(node).insert_before(node, clip)
    replace(node, graph_qparams.dequantize(integers, names.node(f"{node.name}_dequantize")), names)


def _lower(
    node: ir.Node, rule: Rule, qparams: QParams, graph_qparams: GraphQParams, names: FreeNames
) -> None:
    """The operator's own form on integers, then DQ."""
    operator = catalog.find(node.op_type, node.domain)
    assert operator is not None
    inputs = list(node.inputs)
    in_qparams: list[QParams | None] = [None] * len(inputs)
    for slot in rule.activations:
        source = read.dequantizer(inputs[slot])
        assert source is not None
        inputs[slot], in_qparams[slot] = source.inputs[0], qparams
    out_qparams = [qparams if i in rule.outputs else None for i in range(len(node.outputs))]
    tape = Tape()
    plan = NodePlan(tuple(in_qparams), tuple(out_qparams))
    results = operator.lower(Site(tape, node, inputs, plan))
    graph = graph_of(node)
    write(tape, node, names)
    for slot, integers in enumerate(results):
        old = node.outputs[slot]
        if slot not in rule.outputs:
            old.replace_all_uses_with(integers, replace_graph_outputs=True)
            continue
        integers.name = names.value(f"{old.name}_quantized")
        back = graph_qparams.dequantize(integers, names.node(f"{old.name}_dequantize"))
        real, stem = back.outputs[0], old.name
        real.type, real.shape = old.type, old.shape
        old.replace_all_uses_with(real, replace_graph_outputs=True)
        old.name, real.name = names.value(f"{stem}_float"), stem
        graph.insert_before(node, back)
    graph.remove(node, safe=True)


def drop_round_trip(node: ir.Node) -> None:
    """Q(DQ(integers)) = integers, of equal qparams."""
    source = read.dequantizer(node.inputs[0]) if read.is_quantize(node) else None
    if source is None or read.is_constant(source):
        return
    integers, qparams = source.inputs[0], read.qparams_of(node)
    if isinstance(qparams, read.Unread) or read.qparams_of(source) != qparams:
        return
    if integers is None or node.outputs[0].is_graph_output():
        return
    node.outputs[0].replace_all_uses_with(integers)
    graph_of(node).remove(node, safe=True)


def quantize_before(node: ir.Node, names: FreeNames) -> None:
    """Q(move(x)) = move(Q(x)): what makes x gets its Q right behind, which it needs to fuse."""
    qparams = read.one_scale(node) if read.is_quantize(node) else None
    if qparams is None:
        return
    graph_qparams = graph_qparams_of(node, qparams)
    value = node.inputs[0]
    while value is not None:
        producer = value.producer()
        above = None if producer is None else _moved(producer)
        if above is None or read.dequantizer(above) is not None or above.is_graph_input():
            return
        if sole_reader(above) is None:
            return  # others read it unrounded
        quantize_behind(above, graph_qparams, names)
        value = above


def _moved(node: ir.Node) -> ir.Value | None:
    """The only activation of a node that only moves it, to one reader; None for any other node."""
    rule = catalog.rule_of(node)
    if rule is None or rule.category is not OpCategory.MOVEMENT or not rule.is_fused:
        return None
    if not rule.shares_qparams or len(rule.activations) != 1 or rule.outputs != (0,):
        return None
    if sole_reader(node.outputs[0]) is None:
        return None
    value = node.inputs[rule.activations[0]]
    return None if value is None or value.is_initializer() else value


# --- Marks that a PyTorch export leaves in a graph


MARK = "Max"
"""ONNX operator of one input that stands for the mark in an exported graph."""
