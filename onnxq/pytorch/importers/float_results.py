"""Convolutions of integers whose result a PT2E program leaves in float32, and how they are to run.

The x86 quantizer observes what goes into convolutions and linear layers, not what comes out. Where
the next QuantizeLinear can move up to the convolution (Relu, MaxPool, Reshape in between), it does
(onnxq.qdq.tidy), and ONNX Runtime runs QLinearConv. Before an Add or an average it
cannot: torch computes that result in float32, and ONNX Runtime has no fast integer convolution that
returns floats. One thread, AVX512-VNNI, 64 channels of 56 x 56, 3 x 3: QLinearConv 0.31 ms, float
Conv 1.33 ms, ConvInteger 10.2 ms.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.errors import UnsupportedError, listed
from onnxq.graph.edit import FreeNames, graph_of, new_constant, replace
from onnxq.observers import MinMaxObserver
from onnxq.ort import runtime
from onnxq.pytorch.importers.notes import note
from onnxq.qdq.read import (
    WEIGHT,
    array_of,
    dequantizer,
    is_constant,
    is_quantize,
    qparams_of,
    zero_point_of,
)
from onnxq.qdq.tidy import tidy_quantized
from onnxq.qdq.tidy.biases import real_bias
from onnxq.qdq.write import constants_of, new_graph_qparams, quantize_behind
from onnxq.qparams import QParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

_CLAMPS = ("Relu", "Clip")


class FloatResults(enum.Enum):
    """How convolutions run whose result is float32."""

    FLOAT = "float"
    """In float32, as in torch; a warning names them."""
    INTEGER = "integer"
    """ConvInteger: integer convolution, a float result, exact and slow."""
    REQUANTIZE = "requantize"
    """QLinearConv: the result gets 8 bits, its range taken from the example inputs."""


def treat_float_results(
    model: ir.Model, how: FloatResults, inputs: Mapping[str, npt.NDArray[np.generic]]
) -> None:
    """Rewrites the convolutions of integers whose result is float32, in place.

    Args:
        model: in QDQ format.
        how: what becomes of them.
        inputs: example inputs by name, for REQUANTIZE.
    """
    found = [node for node in model.graph if _has_float_result(node)]
    if not found:
        return
    if how is FloatResults.FLOAT:
        note(
            f"convolutions {listed([str(node.name) for node in found])} take integers and give "
            "float32, as in the imported program, whose quantizer observes no result there: ONNX "
            "Runtime computes them in float32. float_results='requantize' gives their results 8 "
            "bits, by their range on the example inputs; 'integer' makes them ConvInteger, which "
            "is exact and slow."
        )
        return
    names = FreeNames(model)
    if how is FloatResults.INTEGER:
        for node in found:
            _as_conv_integer(node, names)
        return
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
    value = node.outputs[0]
    readers = list(value.consumers())
    if len(readers) == 1 and readers[0].op_type in _CLAMPS and not value.is_graph_output():
        return readers[0].outputs[0]
    return value


def _as_conv_integer(node: ir.Node, names: FreeNames) -> None:
    """Y = ConvInteger(x_integers, w_integers) * (x_scale * w_scale) + bias."""
    x, w = dequantizer(node.inputs[0]), dequantizer(node.inputs[WEIGHT])
    assert x is not None, "_has_float_result looked"
    assert w is not None
    integers, x_qparams, w_qparams = array_of(w, 0), qparams_of(x), qparams_of(w)
    assert integers is not None
    assert isinstance(x_qparams, QParams)
    assert isinstance(w_qparams, QParams)
    if (w_qparams.zero_point != w_qparams.zero_point.flat[0]).any():
        raise UnsupportedError(
            f"Conv '{node.name}': its weight has a zero point per channel; ConvInteger takes one "
            "for all. Use float_results='requantize', or 'float'."
        )
    stem, ones = str(node.outputs[0].name), [1] * (integers.ndim - 2)
    scale = (x_qparams.scale * w_qparams.scale).astype(np.float32)
    scale = scale.reshape(1, -1, *ones) if scale.ndim else scale
    middle = np.array(w_qparams.zero_point.flat[0], integers.dtype)
    zero = new_constant(node, names.value(f"{stem}_w_zero_point"), middle)
    attributes = list(node.attributes.values())
    convolution = ir.Node(
        "", "ConvInteger", [x.inputs[0], w.inputs[0], zero_point_of(x), zero], attributes,
        name=names.node(f"{node.name}_integer"),
    )  # fmt: skip
    floats = ir.node(
        "Cast",
        [convolution.outputs[0]],
        {"to": ir.DataType.FLOAT},
        name=names.node(f"{node.name}_cast"),
    )
    scaled = ir.node(
        "Mul",
        [floats.outputs[0], new_constant(node, names.value(f"{stem}_factor"), scale)],
        name=names.node(f"{node.name}_scaled"),
    )
    made = [convolution, floats, scaled]
    bias = real_bias(node)
    if bias is not None:
        constant = new_constant(node, names.value(f"{stem}_bias"), bias.reshape(1, -1, *ones))
        made.append(
            ir.node("Add", [scaled.outputs[0], constant], name=names.node(f"{node.name}_biased"))
        )
    for part, ending in zip(made[:-1], ("sums", "sums_float", "product"), strict=False):
        part.outputs[0].name = names.value(f"{stem}_{ending}")
    graph_of(node).insert_before(node, made[:-1])
    replace(node, made[-1], names)


def _computed(
    model: ir.Model,
    values: list[ir.Value],
    inputs: Mapping[str, npt.NDArray[np.generic]],
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
