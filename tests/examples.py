"""Small models for the tests of verify, bench and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from onnxq.qconfig import Choice, default_qconfig_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from onnxq.core.arrays import Array

ALL_INTEGERS = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
"""For tests that are about the integers of nodes, whatever is best for them."""


def weights(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.3).astype(np.float32)


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, int] | None = None,
    *,
    opset: int = 18,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "example",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in (outputs or {"y": dtype}).items()
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def network(
    *, opset: int = 18, dtype: int = TensorProto.FLOAT, batch: int | str = "N"
) -> onnx.ModelProto:
    """Conv, Relu, Conv, Add, Relu, Softmax, GlobalAveragePool, Flatten, Gemm: 10 classes."""
    node = helper.make_node
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    constants = {
        "w1": weights(1, 8, 3, 3, 3),
        "b1": weights(2, 8),
        "w2": weights(3, 8, 8, 3, 3),
        "w3": weights(4, 8, 10),
        "b3": weights(5, 10),
    }
    return model(
        [
            node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
            node("Relu", ["c1"], ["r1"], "relu1"),
            node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1] * 4),
            node("Add", ["r1", "c2"], ["s"], "add"),
            node("Relu", ["s"], ["a"], "relu2"),
            node("Softmax", ["a"], ["m"], "softmax", axis=1),
            node("GlobalAveragePool", ["m"], ["g"], "pool"),
            node("Flatten", ["g"], ["f"], "flatten"),
            node("Gemm", ["f", "w3", "b3"], ["y"], "gemm"),
        ],
        {name: array.astype(kind) for name, array in constants.items()},
        {"x": [batch, 3, 8, 8]},
        opset=opset,
        dtype=dtype,
    )


def images(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, 3, 8, 8)).astype(np.float32)


def save(proto: onnx.ModelProto, path: Path) -> Path:
    onnx.save(proto, path)
    return path


def as_ir(proto: onnx.ModelProto) -> ir.Model:
    return ir.from_proto(proto)


def quantized_matmul(
    zero_point: Array, *, requantized: bool = True, bias: bool = False
) -> onnx.ModelProto:
    """x -> Q -> DQ -> MatMul(DQ(w)) [-> Add] [-> Q -> DQ] -> y."""
    node = helper.make_node
    constants: dict[str, Array] = {
        "x_scale": np.array(0.02, np.float32),
        "x_zero_point": zero_point,
        "w_quantized": np.arange(64, dtype=np.int8).reshape(8, 8),
        "w_scale": np.array(0.01, np.float32),
        "w_zero_point": np.array(0, np.int8),
        "b": weights(0, 8),
    }
    q = ("x_scale", "x_zero_point")
    nodes = [
        node("QuantizeLinear", ["x", *q], ["x_quantized"], "x_q"),
        node("DequantizeLinear", ["x_quantized", *q], ["x_dequantized"], "x_dq"),
        node("DequantizeLinear", ["w_quantized", "w_scale", "w_zero_point"], ["w"], "w_dq"),
        node("MatMul", ["x_dequantized", "w"], ["product"], "matmul"),
    ]
    last = "product"
    if bias:
        nodes.append(node("Add", [last, "b"], ["sum"], "add"))
        last = "sum"
    if requantized:
        nodes.append(node("QuantizeLinear", [last, *q], [f"{last}_quantized"], "y_q"))
        nodes.append(node("DequantizeLinear", [f"{last}_quantized", *q], ["y"], "y_dq"))
    if not requantized:
        nodes[-1].output[0] = "y"
    return model(nodes, constants, {"x": ["N", 8]}, opset=21)


def tensor_of(value: ir.Value | None) -> ir.TensorProtocol:
    """The tensor of a value that must be a constant."""
    assert value is not None
    assert value.const_value is not None
    return value.const_value
