"""Integer inputs and outputs: no QuantizeLinear behind an input, no DQ ahead of an output.

x -> Q -> integers -> ...      becomes   integers (an input) -> ...; who reads x, reads DQ(integers)
... -> integers -> DQ -> y     becomes   ... -> integers (an output)
c -> DQ -> Q -> integers       becomes   c -> ..., of equal qparams: Q(DQ(c)) = c
"""

from collections.abc import Iterable

import onnx_ir as ir

from onnxq.errors import QConfigError
from onnxq.graph.edit import FreeNames, all_nodes, graph_of, insert_behind
from onnxq.graph.quantized import (
    INPUTS_KEY,
    OUTPUTS_KEY,
    Meaning,
    QuantizedIO,
    read_quantized_io,
    write_quantized_io,
)
from onnxq.qdq.read import dequantizer, is_quantize, one_scale
from onnxq.qdq.write import graph_qparams_of
from onnxq.qparams import QParams


def cancel_round_trips(model: ir.Model) -> None:
    """Takes out each Q that gives the integers that a DQ right ahead of it has read.

    (c - z) s is rounded to float32, so that its quotient by s is within 2^-22 of c - z: rounding
    gives c.
    """
    for node in list(all_nodes(model)):
        source = dequantizer(node.inputs[0]) if is_quantize(node) else None
        if source is None or source.inputs[0] is None or node.outputs[0].is_graph_output():
            continue
        before, behind = one_scale(source), one_scale(node)
        if before is None or before != behind:
            continue
        node.outputs[0].replace_all_uses_with(source.inputs[0])
        graph_of(node).remove(node, safe=True)
        if not source.outputs[0].uses() and not source.outputs[0].is_graph_output():
            graph_of(source).remove(source, safe=True)


def take_integers(model: ir.Model, inputs: Iterable[str]) -> None:
    """Makes these inputs the integers of their quantizers; the metadata say what they mean."""
    quantized = read_quantized_io(model, INPUTS_KEY)
    for value in [v for v in model.graph.inputs if v.name in set(inputs)]:
        quantized[str(value.name)] = _take(value, FreeNames(model))
    write_quantized_io(model, INPUTS_KEY, quantized)


def _take(value: ir.Value, names: FreeNames) -> QuantizedIO:
    quantizers = [use.node for use in value.uses() if is_quantize(use.node)]
    all_qparams = [one_scale(node) for node in quantizers]
    if not all_qparams or all_qparams[0] is None:
        readers = ", ".join(f"{use.node.op_type} '{use.node.name}'" for use in value.uses())
        raise QConfigError(
            f"quantized_input: no quantizer with one scale reads input '{value.name}', so that it "
            f"has no integers; it is read by {readers or 'no node'}. Have that node in integers "
            "(--set node:NAME=int8), or leave the input out; of an image ask for 'pixels', which "
            "need no quantizer."
        )
    if any(other != all_qparams[0] for other in all_qparams):
        raise QConfigError(
            f"quantized_input: {len(all_qparams)} quantizers of different scales read input "
            f"'{value.name}'. Leave it out."
        )
    graph_qparams, graph = graph_qparams_of(quantizers[0], all_qparams[0]), graph_of(quantizers[0])
    floats = [(use.node, use.idx) for use in value.uses() if use.node not in quantizers]
    for node in quantizers:
        node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
        graph_of(node).remove(node, safe=True)
    value.type = ir.TensorType(graph_qparams.integers)
    if floats:
        name = f"{value.name}_numbers"
        made = graph_qparams.dequantize(value, names.node(name), names.value(name))
        for node, slot in floats:
            node.replace_input_with(slot, made.outputs[0])
        insert_behind(value, made, graph)
    return _quantized(all_qparams[0])


def give_integers(model: ir.Model, outputs: Iterable[str]) -> None:
    """Makes these outputs the integers of their tensors; the metadata say what they mean."""
    quantized: dict[str, QuantizedIO] = {}
    for name in outputs:
        (at,) = [i for i, value in enumerate(model.graph.outputs) if value.name == name]
        quantized[name] = _give(model, at, name)
    write_quantized_io(model, OUTPUTS_KEY, quantized)


def _give(model: ir.Model, at: int, name: str) -> QuantizedIO:
    value = model.graph.outputs[at]
    source = dequantizer(value)
    qparams = one_scale(source)
    integers = None if source is None else source.inputs[0]
    if qparams is None or integers is None or source is None:
        producer = value.producer()
        made = "it is an input" if producer is None else f"{producer.op_type} '{producer.name}'"
        raise QConfigError(
            f"quantized_output: output '{name}' has no integers: {made} makes its numbers in "
            "float. Have that node in integers (--set node:NAME=int8), or leave the output out."
        )
    if integers.is_graph_input() or integers.is_initializer() or integers.is_graph_output():
        raise QConfigError(
            f"quantized_output: output '{name}' is another end of the model, '{integers.name}', "
            "which keeps its name. Leave it out."
        )
    model.graph.outputs[at] = integers
    names = FreeNames(model)
    value.name, integers.name = names.value(f"{name}_numbers"), name
    if not value.uses():
        graph_of(source).remove(source, safe=True)
    return _quantized(qparams)


def _quantized(qparams: QParams) -> QuantizedIO:
    dtype = qparams.dtype.storage.name
    return QuantizedIO(
        Meaning.INTEGERS, dtype, (float(qparams.scale),), (float(qparams.zero_point),)
    )
