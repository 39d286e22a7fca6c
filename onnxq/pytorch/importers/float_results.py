"""Convolutions of integers whose result a PT2E program leaves in float32, and how they are to run.

The x86 quantizer observes what goes into convolutions and linear layers, not what comes out. Where
the next QuantizeLinear can move up to the convolution (Relu, MaxPool, Reshape in between), it does
(onnxq.qdq.tidy), and ONNX Runtime runs QLinearConv. Before an Add or an average it cannot: torch
computes that result in float32, and ONNX Runtime has no fast integer convolution that returns
floats. One thread, AVX512-VNNI, 64 channels of 56 x 56, 3 x 3: QLinearConv 0.31 ms, float Conv 1.33
ms, ConvInteger 10.2 ms.
"""

import enum
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.errors import listed
from onnxq.graph.edit import FreeNames, sole_reader
from onnxq.observers import MinMaxObserver
from onnxq.ort import runtime
from onnxq.pytorch.importers.notes import note
from onnxq.qdq.read import WEIGHT, dequantizer, is_constant, is_quantize, qparams_of
from onnxq.qdq.tidy import tidy_quantized
from onnxq.qdq.write import constants_of, new_graph_qparams, quantize_behind
from onnxq.qparams import QParams

_CLAMPS = ("Relu", "Clip")


class FloatResults(enum.Enum):
    """How convolutions run whose result is float32."""

    FLOAT = "float"
    """In float32, as in torch; a warning names them."""
    REQUANTIZE = "requantize"
    """QLinearConv: the result gets 8 bits, its range taken from the example inputs."""


def treat_float_results(
    model: ir.Model, how: FloatResults, inputs: Mapping[str, npt.NDArray[np.generic]]
) -> None:
    """Rewrites the convolutions of integers whose result is float32, in place."""
    found = [node for node in model.graph if _has_float_result(node)]
    if not found:
        return
    if how is FloatResults.FLOAT:
        note(
            f"convolutions {listed([str(node.name) for node in found])} take integers and give "
            "float32, as in the imported program, whose quantizer observes no result there: ONNX "
            "Runtime computes them in float32. float_results='requantize' gives their results 8 "
            "bits, by their range on the example inputs."
        )
        return
    names = FreeNames(model)
    results = [_clamped(node) for node in found]
    for value, array in zip(results, _computed(model, results, inputs), strict=True):
        _requantize(value, array, names)
    tidy_quantized(model)


def _has_float_result(node: ir.Node) -> bool:
    if node.op_type != "Conv" or node.domain:
        return False
    sources = [dequantizer(value) for value in node.inputs[: WEIGHT + 1]]
    if not all(s is not None and isinstance(qparams_of(s), QParams) for s in sources):
        return False
    if not is_constant(sources[WEIGHT]):
        return False
    readers = list(_clamped(node).consumers())
    return not readers or not all(map(is_quantize, readers))


def _clamped(node: ir.Node) -> ir.Value:
    """The result behind a Relu that is alone behind the convolution."""
    reader = sole_reader(node.outputs[0])
    return reader.outputs[0] if reader and reader.op_type in _CLAMPS else node.outputs[0]


def _computed(
    model: ir.Model, values: list[ir.Value], inputs: Mapping[str, npt.NDArray[np.generic]]
) -> list[npt.NDArray[np.float32]]:
    """Arrays of the values for the inputs."""
    shown = model.clone()
    by_name = {v.name: v for node in shown.graph for v in node.outputs}
    before = len(shown.graph.outputs)
    shown.graph.outputs.extend(by_name[value.name] for value in values)
    with runtime.open_session(shown) as session:
        return [np.asarray(array, np.float32) for array in session.run(inputs)[before:]]


def _requantize(value: ir.Value, array: npt.NDArray[np.float32], names: FreeNames) -> None:
    """Value -> Q -> DQ, uint8 over the range of the array."""
    observer = MinMaxObserver(dtype="quint8")
    observer.observe(array, 0)
    qparams = observer.calculate_qparams()
    node = value.producer()
    assert node is not None
    pair = new_graph_qparams(constants_of(node, names), str(value.name), qparams)
    quantize_behind(value, pair, names)
