"""Models that onnxq refuses to read or to quantize, each with the remedy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq import catalog
from onnxq.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OLDEST_OPSET = 7  # ONNX Runtime guarantees nothing below
NEWEST_OPSET = 26  # the last that ONNX Runtime 1.31 calls released

FORMAT_KEY = "onnxq.format"  # metadata of a quantized model; weights alone leave no other trace

_REFUSED_TYPES = {ir.DataType.DOUBLE: "double (float64)", ir.DataType.BFLOAT16: "bfloat16"}


def check_opset(model: ir.Model, where: str) -> None:
    """Passes where the ai.onnx opset is one that onnxq and ONNX Runtime know.

    Raises:
        ModelError: none is imported, or it is too old or too new.
    """
    opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
    supported = f"supported are {OLDEST_OPSET} to {NEWEST_OPSET}"
    if opset is None:
        raise ModelError(
            f"{where}: no opset of domain ai.onnx is imported ({supported}); the file is damaged "
            "or was written by a broken tool. Export the model again."
        )
    if opset < OLDEST_OPSET:
        raise ModelError(
            f"{where}: opset {opset} of domain ai.onnx is too old; {supported}. Export the model "
            "again, or convert it with onnx.version_converter."
        )
    if opset > NEWEST_OPSET:
        raise ModelError(
            f"{where}: opset {opset} of domain ai.onnx is too new; {supported}. Export the model "
            f"with opset_version={NEWEST_OPSET} or lower."
        )


def check_external_data(model: ir.Model, where: str) -> None:
    """Passes where every external tensor lies inside a file that is there and long enough.

    Raises:
        ModelError: names the file and the first tensor of which this is not so.
    """
    sizes: dict[str, int] = {}
    for name, tensor in _tensors(model):
        if not isinstance(tensor, ir.ExternalTensor) or tensor.size == 0:
            continue
        if tensor.path not in sizes:
            sizes[tensor.path] = _file_size(tensor, name, where)
        length = tensor.nbytes if tensor.length is None else tensor.length
        if length != tensor.nbytes:
            raise ModelError(
                f"{where}: tensor '{name}' is said to have {length} bytes in '{tensor.path}', "
                f"its type and shape want {tensor.nbytes}. The model is damaged; export it again."
            )
        end = (tensor.offset or 0) + length
        if end > sizes[tensor.path]:
            raise ModelError(
                f"{where}: external data file '{tensor.path}' is too short: it has "
                f"{sizes[tensor.path]} "
                f"bytes, tensor '{name}' ends at {end}. Copy or download it again."
            )


def _file_size(tensor: ir.ExternalTensor, name: str, where: str) -> int:
    path = Path(tensor.path)
    folder = os.fspath(tensor.base_dir)
    if not path.is_file():
        raise ModelError(
            f"{where}: external data file '{path}' is missing (tensor '{name}' is in it). "
            + (
                "Put it beside the model."
                if folder
                else "Give the path of the model, not its proto."
            )
        )
    if folder and not path.resolve().is_relative_to(Path(folder).resolve()):
        raise ModelError(
            f"{where}: external data file '{tensor.location}' (tensor '{name}') lies outside the "
            f"model's folder, at '{path.resolve()}'. Copy it, not a link to it, beside the model."
        )
    if folder and path.stat().st_nlink > 1:
        raise ModelError(
            f"{where}: external data file '{path}' has several hard links, which onnx refuses "
            "for safety. Copy it beside the model."
        )
    return path.stat().st_size


def check_quantizable(model: ir.Model) -> None:
    """Passes a float model with something to quantize, bodies and functions included.

    Raises:
        ModelError: no nodes, quantized already, double or bfloat16 tensors, or a tensor out of
            nowhere.
    """
    if len(model.graph) == 0:
        raise ModelError(
            "the model's graph is empty: it has no nodes, so there is nothing to quantize."
        )
    if model.metadata_props.get(FORMAT_KEY):
        raise ModelError(
            "the model is quantized already: its metadata say that onnxq wrote it in format "
            f"'{model.metadata_props[FORMAT_KEY]}'. Start from the float model."
        )
    for node in _nodes(model):
        if catalog.is_on_codes(node):
            raise ModelError(
                f"the model is quantized already: node '{node.name or node.outputs[0].name}' is a "
                f"{node.op_type}. Start from the float model."
            )
        _check_inputs(node)
    _check_types(model)


def weights_alone(model: ir.Model) -> bool:
    """Whether onnxq quantized the model dynamically, and left no node that computes in integers.

    Weights may be stored as integers or float16; a DequantizeLinear of them computes in float.
    """
    return model.metadata_props.get(FORMAT_KEY) == "dynamic" and not any(
        catalog.is_on_codes(node) for node in _nodes(model) if node.op_type != "DequantizeLinear"
    )


def _check_inputs(node: ir.Node) -> None:
    for x in node.inputs:
        known = x is None or x.producer() or x.is_graph_input() or x.is_initializer()
        if not known and x is not None:
            raise ModelError(
                f"input '{x.name}' of node '{node.name or node.op_type}' is neither a graph "
                "input, nor an "
                "initializer, nor the output of a node. The model is invalid; export it again."
            )


def _check_types(model: ir.Model) -> None:
    graphs = list(model.graphs())
    ends = [v for g in graphs for v in (*g.inputs, *g.outputs)]
    typed: Iterable[tuple[str, ir.DataType | None]] = [(v.name or "", v.dtype) for v in ends]
    # a lone scalar (a constant of some shape arithmetic) is not worth a refusal
    weights = ((name, t.dtype) for name, t in _tensors(model) if t.size > 1)
    for name, dtype in (*typed, *weights):
        if dtype in _REFUSED_TYPES:
            raise ModelError(
                f"tensor '{name}' is {_REFUSED_TYPES[dtype]}; onnxq quantizes float32 models "
                "(and converts float16). Export the model in float32, in PyTorch model.float()."
            )


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def _tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """(name, tensor) of all initializers and of all tensors in attributes."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.name or "", value.const_value
    for node in _nodes(model):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                yield node.outputs[0].name or node.op_type, attribute.as_tensor()
