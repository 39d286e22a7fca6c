"""Models that onnxq reads and refuses to quantize, each with the remedy."""

from collections.abc import Iterator

import onnx_ir as ir

from onnxq import catalog
from onnxq.errors import ModelError
from onnxq.graph.prequantized_weights import stores_groups
from onnxq.graph.untrusted.problem import WHERE_KEY
from onnxq.graph.untrusted.scopes import all_tensors, scoped_nodes

FORMAT_KEY = "onnxq.format"  # metadata of a quantized model; weights alone leave no other trace

_REMEDY = (
    "Nothing is changed: run it as it is, or start from the float model; where a command takes "
    "both, it stands first."
)
_REMEDY_QDQ = (
    "Start from the float model; or `onnxq import-qdq` brings a file of another tool to integers, "
    "with the scales that it has."
)
_READS_INTEGERS = "DequantizeLinear"  # makes floats of stored integers: of weights, or of an input
_ONE_MACHINE = ("com.microsoft.nchwc", "NhwcFusedConv")
_REFUSED_TYPES = {ir.DataType.DOUBLE: "double (float64)"}


def check_quantizable(model: ir.Model) -> None:
    """Passes a float model with something to quantize, bodies and functions included.

    A float model may store weights, or take inputs, as integers that a DequantizeLinear reads, and
    have linear layers with weights in groups.
    """
    if len(model.graph) == 0:
        raise ModelError(
            "the model's graph is empty: it has no nodes, so there is nothing to quantize."
        )
    where = model.meta.get(WHERE_KEY, "the model")
    if model.metadata_props.get(FORMAT_KEY):
        raise ModelError(
            f"{where} is quantized already: its metadata say that onnxq wrote it in format "
            f"'{model.metadata_props[FORMAT_KEY]}'. {_REMEDY}"
        )
    check_for_any_machine(model)
    check_computes_in_float(model)
    _check_types(model)


def check_computes_in_float(model: ir.Model) -> None:
    """Passes a model without nodes that compute in integers; its weights may be integers."""
    where = model.meta.get(WHERE_KEY, "the model")
    for node, _ in scoped_nodes(model):
        reads_stored = node.op_type == _READS_INTEGERS or stores_groups(node)
        if reads_stored or not catalog.is_on_integers(node):
            continue
        is_ours = FORMAT_KEY in model.metadata_props
        is_qdq = node.op_type == "QuantizeLinear" and not is_ours
        raise ModelError(
            f"{where} is quantized already: node '{node.name or node.outputs[0].name}' is a "
            f"{node.op_type}. {_REMEDY_QDQ if is_qdq else _REMEDY}"
        )


def check_for_any_machine(model: ir.Model) -> None:
    """Passes a model that ONNX Runtime did not optimize for the machine that it ran on."""
    where = model.meta.get(WHERE_KEY, "the model")
    for node, _ in scoped_nodes(model):
        if node.domain in _ONE_MACHINE or node.op_type in _ONE_MACHINE:
            raise ModelError(
                f"{where} was optimized by ONNX Runtime for one machine: node "
                f"'{node.name or node.outputs[0].name}' is a {node.op_type} in its layout. Give "
                "the model that it was made from, or optimize that with ORT_ENABLE_EXTENDED."
            )


def weights_alone(model: ir.Model) -> bool:
    """Whether onnxq quantized the model dynamically, and left no node that computes in integers.

    Weights may be stored as integers or float16; a DequantizeLinear of them computes in float.
    """
    return model.metadata_props.get(FORMAT_KEY) == "dynamic" and not any(
        catalog.is_on_integers(node) and node.op_type != _READS_INTEGERS
        for node, _ in scoped_nodes(model)
    )


def _check_types(model: ir.Model) -> None:
    """Passes a model with float32 or float16 numbers; float64 nodes beside them are let be."""
    found = list(_floats(model))
    if not found or any(dtype not in _REFUSED_TYPES for dtype, _ in found):
        return
    dtype, name = found[0]
    raise ModelError(
        f"tensor '{name}' is {_REFUSED_TYPES[dtype]}, as all floats of the model; onnxq quantizes "
        "float32 models (and float16, bfloat16). Export the model in float32, in PyTorch "
        "model.float()."
    )


def _floats(model: ir.Model) -> Iterator[tuple[ir.DataType, str]]:
    """(type, name) of inputs, outputs and constants that are floats."""
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs):
            if value.dtype is not None and value.dtype.is_floating_point():
                yield value.dtype, value.name or ""
    for name, tensor in all_tensors(model):
        # a lone scalar may be a constant of some shape arithmetic
        if tensor.size > 1 and tensor.dtype.is_floating_point():
            yield tensor.dtype, name
