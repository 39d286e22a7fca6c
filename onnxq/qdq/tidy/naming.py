"""Names of integers and of what they stand for, as onnxq writes them everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.qdq.read import dequantizer, is_dequantize, is_quantize

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.graph.edit import FreeNames

_OWN_NAMES = ("dequantize_linear", "leave_integers")  # after operators that are no model's own


def name_integers(model: ir.Model, names: FreeNames) -> None:
    """`<tensor>_quantized` and `<tensor>_dequantized`, as onnxq writes them everywhere."""
    for node in model.graph:
        if not is_quantize(node) or node.inputs[0] is None:
            continue
        integers = _last_integers(node)
        if integers.is_graph_output():
            continue
        stem = node.inputs[0].name
        integers.name = names.value(f"{stem}_quantized")
        for reader in integers.consumers():
            if is_dequantize(reader) and not reader.outputs[0].is_graph_output():
                reader.outputs[0].name = names.value(f"{stem}_dequantized")


def name_outputs(model: ir.Model, names: FreeNames) -> None:
    """An output that comes from integers is called as the float tensor that they stand for."""
    for value in model.graph.outputs:
        source = dequantizer(value)
        if source is None or not str(value.name).startswith(_OWN_NAMES):
            continue
        integers = source.inputs[0]
        while integers is not None and integers.producer() is not None:
            producer = integers.producer()
            assert producer is not None
            if not (is_quantize(producer) or producer.op_type == "Clip"):
                break
            integers = producer.inputs[0]
        if (
            integers is None
            or integers.name is None
            or integers.is_graph_input()
            or integers.is_graph_output()
        ):
            continue
        stem = integers.name
        integers.name = names.value(f"{stem}_float")
        value.name = stem


def _last_integers(quantizer: ir.Node) -> ir.Value:
    """The integers behind a Clip on integers."""
    integers = quantizer.outputs[0]
    readers = list(integers.consumers())
    while len(readers) == 1 and readers[0].op_type == "Clip":
        integers = readers[0].outputs[0]
        readers = list(integers.consumers())
    return integers
