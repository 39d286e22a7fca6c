"""Models that are written down in a few lines: a MatMul with Relu, and any text of a graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import helper


def matmul_weight() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((16, 256), np.float32)


def matmul_proto(weight: npt.NDArray[np.float32]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
        helper.make_node("Relu", ["m"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 256])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def matmul_model() -> ir.Model:
    return ir.from_proto(matmul_proto(matmul_weight()))


def parsed(text: str) -> ir.Model:
    return ir.serde.deserialize_model(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    )
