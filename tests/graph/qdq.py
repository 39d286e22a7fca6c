"""Builds small QDQ graphs by hand, in the patterns that other tools write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxq.ort import runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

SHAPE = (2, 8, 6, 6)


class Graph:
    """Nodes and constants; the input is `x`. Weights are random, seeded by their number."""

    def __init__(self, dtype: npt.DTypeLike = np.uint8) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, npt.NDArray[Any]] = {}

    def constant(self, name: str, value: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        self.constants[name] = np.asarray(value, dtype)
        return name

    def op(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        name = f"{op_type.lower()}_{output}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name, **attributes))
        return output

    def split(self, x: str, *outputs: str) -> None:
        made = helper.make_node("Split", [x], outputs, "split", axis=1, num_outputs=len(outputs))
        self.nodes.append(made)

    def q(self, x: str, scale: float = 0.05, zero_point: int = 131) -> str:
        """Integers of x; zero_point is that of uint8 integers."""
        shift = 0 if self.dtype == np.uint8 else 128
        self.constant(f"{x}_scale", scale, np.float32)
        self.constant(f"{x}_zero_point", zero_point - shift, self.dtype)
        parameters = [f"{x}_scale", f"{x}_zero_point"]
        return self.op("QuantizeLinear", [x, *parameters], f"{x}_quantized")

    def dq(self, x: str, output: str = "") -> str:
        parameters = [f"{x}_scale", f"{x}_zero_point"]
        output = output or f"{x}_dequantized"
        return self.op("DequantizeLinear", [f"{x}_quantized", *parameters], output)

    def qdq(self, x: str, scale: float = 0.05, zero_point: int = 131) -> str:
        self.q(x, scale, zero_point)
        return self.dq(x)

    def weight(self, shape: tuple[int, ...], axis: int = 0, zero_point: bool = True) -> str:
        """Output of a DequantizeLinear of int8 integers, one scale per channel."""
        number = sum(node.op_type == "DequantizeLinear" for node in self.nodes)
        random, name = np.random.default_rng(number), f"w{number}"
        self.constant(f"{name}_quantized", random.integers(-127, 128, shape), np.int8)
        self.constant(f"{name}_scale", random.uniform(0.001, 0.02, shape[axis]), np.float32)
        parameters = [f"{name}_quantized", f"{name}_scale"]
        if zero_point:
            zeros = np.zeros(shape[axis])
            parameters.append(self.constant(f"{name}_zero_point", zeros, np.int8))
        return self.op("DequantizeLinear", parameters, f"{name}_dequantized", axis=axis)

    def vector(self, count: int) -> str:
        """A float constant."""
        number = len(self.constants)
        random = np.random.default_rng(number)
        return self.constant(f"v{number}", random.standard_normal(count), np.float32)

    def conv(self, x: str, output: str) -> str:
        return self.op("Conv", [x, self.weight((8, 8, 3, 3))], output, pads=[1] * 4)

    def model(self, *outputs: str, shape: Sequence[int | str] = SHAPE, opset: int = 21) -> ir.Model:
        graph = helper.make_graph(
            self.nodes,
            "qdq",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return ir.from_proto(onnx.shape_inference.infer_shapes(made))


def kernels(model: ir.Model) -> list[str]:
    """Sorted operator types of the graph that ONNX Runtime runs, without changes of layout."""
    nodes = runtime.optimized_graph(model).graph
    return sorted(node.op_type for node in nodes if node.op_type != "Transpose")


def run(model: ir.Model, shape: Sequence[int], seed: int = 0) -> list[npt.NDArray[Any]]:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 2
    with runtime.open_session(model, threads=1) as session:
        return [np.asarray(y) for y in session.run({"x": x})]
