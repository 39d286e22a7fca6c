"""Names of codes and of what they stand for, as onnxq writes them everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.qdq.read import dequantizer, is_dequantize, is_quantize

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.graph.edit import FreeNames

_OWN_NAMES = ("dequantize_linear", "leave_integers")  # after operators that are no model's own


def name_codes(model: ir.Model, names: FreeNames) -> None:
    """`<tensor>_quantized` and `<tensor>_dequantized`, as onnxq writes them everywhere."""
    for node in model.graph:
        if not is_quantize(node) or node.inputs[0] is None:
            continue
        codes = _last_codes(node)
        if codes.is_graph_output():
            continue
        stem = node.inputs[0].name
        codes.name = names.value(f"{stem}_quantized")
        for reader in codes.consumers():
            if is_dequantize(reader) and not reader.outputs[0].is_graph_output():
                reader.outputs[0].name = names.value(f"{stem}_dequantized")


def name_outputs(model: ir.Model, names: FreeNames) -> None:
    """An output that comes from codes is called as the float tensor that they stand for."""
    for value in model.graph.outputs:
        source = dequantizer(value)
        if source is None or not str(value.name).startswith(_OWN_NAMES):
            continue
        codes = source.inputs[0]
        while codes is not None and codes.producer() is not None:
            producer = codes.producer()
            assert producer is not None
            if not (is_quantize(producer) or producer.op_type == "Clip"):
                break
            codes = producer.inputs[0]
        if codes is None or codes.name is None or codes.is_graph_input() or codes.is_graph_output():
            continue
        stem = codes.name
        codes.name = names.value(f"{stem}_float")
        value.name = stem


def _last_codes(quantizer: ir.Node) -> ir.Value:
    """The codes behind a Clip on codes."""
    codes = quantizer.outputs[0]
    readers = list(codes.consumers())
    while len(readers) == 1 and readers[0].op_type == "Clip":
        codes = readers[0].outputs[0]
        readers = list(codes.consumers())
    return codes
