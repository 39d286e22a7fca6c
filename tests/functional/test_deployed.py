"""The functions compute, bit for bit, what ONNX Runtime computes with the deployed operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnxq import functional
from onnxq.pytorch.exporting.agreement import onnx_runtime
from onnxq.qtensor import QTensor, qint8, quantize_per_channel, quantize_per_tensor, quint8
from tests.exact_engine import exact

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(0)


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


X = quantize_per_tensor(normal(2, 4, 15, 14), 0.03, 101, quint8)
Z = quantize_per_tensor(normal(2, 4, 15, 14), 0.05, 4, quint8)
OUT = np.array(0.07, np.float32), np.array(61, np.uint8)
BIAS = normal(6)


def flat(*tensors: QTensor) -> list[npt.NDArray[Any]]:
    """Integers, scale and zero point of each, as QLinear operators take them."""
    return [a for x in tensors for a in (x.int_repr(), x.qparams.scale, x.qparams.zero_point)]


def run(
    op_type: str, domain: str, inputs: list[npt.NDArray[Any]], **attributes: Any
) -> npt.NDArray[np.uint8]:
    names = [f"in{i}" for i in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], domain=domain, **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    result = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "g", values, [result])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    engine = exact if op_type == "QLinearConv" else onnx_runtime
    with engine(ir.from_proto(model)) as session:
        return np.asarray(session.run(dict(zip(names, inputs, strict=True)))[0], np.uint8)


def integer_bias(w: QTensor) -> npt.NDArray[np.int32]:
    scale = X.qparams.scale * w.qparams.scale
    return np.rint(BIAS[: w.size(0)].astype(np.float64) / scale).astype(np.int32)


@pytest.mark.parametrize(
    "w",
    [
        quantize_per_tensor(normal(6, 2, 3, 3), 0.02, 0, qint8),
        quantize_per_channel(normal(6, 2, 3, 3), RNG.uniform(0.01, 0.03, 6), [0] * 6, 0, qint8),
    ],
    ids=["per tensor", "per channel"],
)
def test_a_convolution_is_qlinearconv(w: QTensor) -> None:
    inputs = [*flat(X, w), *OUT, integer_bias(w)]
    expected = run("QLinearConv", "", inputs, strides=[2, 1], pads=[1, 0, 1, 0], group=2)
    y = functional.conv2d(X, w, BIAS, (2, 1), (1, 0), groups=2, scale=0.07, zero_point=61)
    assert np.array_equal(y.int_repr(), expected)


def test_a_linear_layer_is_qgemm() -> None:
    w = quantize_per_tensor(normal(5, 14), 0.02, 0, qint8)
    rows = [X.int_repr().reshape(-1, 14), *flat(X)[1:]]
    expected = run("QGemm", MICROSOFT, [*rows, *flat(w), integer_bias(w), *OUT], transB=1)
    y = functional.linear(X, w, BIAS[:5], 0.07, 61)
    assert np.array_equal(y.flatten(0, 2).int_repr(), expected)


def test_sums_and_products_are_qlinear() -> None:
    for name, function in [("QLinearAdd", functional.add), ("QLinearMul", functional.mul)]:
        expected = run(name, MICROSOFT, [*flat(X, Z), *OUT])
        assert np.array_equal(function(X, Z, 0.07, 61).int_repr(), expected)


def test_a_concatenation_is_qlinearconcat() -> None:
    expected = run("QLinearConcat", MICROSOFT, [*OUT, *flat(X, Z)], axis=1)
    assert np.array_equal(functional.cat([X, Z], 1, 0.07, 61).int_repr(), expected)


@pytest.mark.parametrize("count_include_pad", [False, True])
def test_an_average_is_qlinearaveragepool(count_include_pad: bool) -> None:
    expected = run(
        "QLinearAveragePool",
        MICROSOFT,
        [*flat(X), *flat(X)[1:]],
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1] * 4,
        count_include_pad=int(count_include_pad),
    )
    y = functional.avg_pool2d(X, 3, 2, 1, count_include_pad=count_include_pad)
    assert np.array_equal(y.int_repr(), expected)


def test_a_global_average_and_a_mean_are_qlinearglobalaveragepool() -> None:
    expected = run("QLinearGlobalAveragePool", MICROSOFT, [*flat(X), *flat(X)[1:]])
    assert np.array_equal(functional.adaptive_avg_pool2d(X, 1).int_repr(), expected)
    assert np.array_equal(X.mean((2, 3), keepdim=True).int_repr(), expected)
