"""Models whose weights are integers already, as tools write them; the input is x (4, 256)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import numpy.typing as npt

K, N = 256, 64
SHAPE = {"x": (4, K)}


class Graph:
    """Nodes and constants in the order in which they are named."""

    def __init__(self, opset: int = 17, x: tuple[int, ...] = (4, K)) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *x[1:]])

    def constant(self, name: str, array: npt.ArrayLike, kind: int | None = None) -> str:
        """An initializer; of `kind` where NumPy has no type of its own."""
        numbers = np.asarray(array)
        if kind is None:
            self.constants.append(numpy_helper.from_array(numbers, name))
        else:
            flat = numbers.ravel().tolist()
            self.constants.append(helper.make_tensor(name, kind, numbers.shape, flat))
        return name

    def op(self, op_type: str, inputs: list[str], output: str, domain: str = "", **a: Any) -> str:
        node = helper.make_node(op_type, inputs, [output], f"{output}_node", domain=domain, **a)
        self.nodes.append(node)
        return output

    def model(self, y: str, *, microsoft: bool = False) -> onnx.ModelProto:
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "given", [self.x], [out], self.constants)
        domains = [helper.make_opsetid("", self.opset)]
        domains += [helper.make_opsetid("com.microsoft", 1)] if microsoft else []
        return helper.make_model(graph, opset_imports=domains, ir_version=10)


def integers(low: int, high: int, *shape: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).integers(low, high, shape)


def scales(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).uniform(0.001, 0.003, shape).astype(np.float32)


def per_channel() -> onnx.ModelProto:
    """torchao, NNCF: int8 with a scale per output, zero points 0."""
    g = Graph()
    g.constant("w_q", integers(-127, 128, K, N).astype(np.int8))
    g.constant("w_scale", scales(N))
    g.constant("w_zero", np.zeros(N, np.int8))
    g.op("DequantizeLinear", ["w_q", "w_scale", "w_zero"], "w", axis=1)
    return g.model(g.op("MatMul", ["x", "w"], "y"))


def zero_points(layers: int = 6) -> onnx.ModelProto:
    """NNCF int8_asym: uint8 with a scale and a zero point per output, in layer after layer."""
    g, y = Graph(), "x"
    for n in range(layers):
        g.constant(f"w_q{n}", (integers(0, 256, K, K) + n).astype(np.uint8))
        g.constant(f"w_scale{n}", scales(K))
        g.constant(f"w_zero{n}", integers(100 + n, 140, K).astype(np.uint8))
        g.op("DequantizeLinear", [f"w_q{n}", f"w_scale{n}", f"w_zero{n}"], f"w{n}", axis=1)
        y = g.op("MatMul", [y, f"w{n}"], f"y{n}")
    return g.model(y)


def turned(low: int = -127, high: int = 128) -> onnx.ModelProto:
    """PyTorch: rows of a Linear, behind a Transpose and a Reshape; one scale."""
    g = Graph()
    g.constant("w_q", integers(low, high, N, K).astype(np.int8))
    g.constant("w_scale", np.float32(0.002))
    g.constant("shape", np.array([K, N], np.int64))
    g.op("DequantizeLinear", ["w_q", "w_scale"], "w_rows")
    g.op("Transpose", ["w_rows"], "w_turned", perm=[1, 0])
    g.op("Reshape", ["w_turned", "shape"], "w")
    return g.model(g.op("MatMul", ["x", "w"], "y"))


def groups(size: int = 32, *, half: bool = False, symmetric: bool = False) -> onnx.ModelProto:
    """ModelOpt, AWQ, Olive: uint4 in groups along the inputs; half: float16 scales and a Cast."""
    g = Graph(opset=21)
    g.constant("w_q", integers(0, 16, K, N), TensorProto.UINT4)
    g.constant("w_scale", scales(K // size, N).astype(np.float16 if half else np.float32))
    points = np.full((K // size, N), 8) if symmetric else integers(0, 16, K // size, N)
    g.constant("w_zero", points, TensorProto.UINT4)
    g.op("DequantizeLinear", ["w_q", "w_scale", "w_zero"], "w_real", axis=0, block_size=size)
    w = g.op("Cast", ["w_real"], "w", to=TensorProto.FLOAT) if half else "w_real"
    return g.model(g.op("MatMul", ["x", w], "y"))


def few_levels() -> onnx.ModelProto:
    """4-bit training: int8 of 15 levels in a Conv, an int32 bias behind a DequantizeLinear."""
    g = Graph(x=(4, 16, 12, 12))
    g.constant("w_q", integers(-7, 8, 32, 16, 3, 3).astype(np.int8))
    g.constant("w_scale", scales(32))
    g.constant("w_zero", np.zeros(32, np.int8))
    g.constant("b_q", integers(-99, 99, 32).astype(np.int32))
    g.constant("b_scale", scales(32) / 10)
    g.op("DequantizeLinear", ["w_q", "w_scale", "w_zero"], "w", axis=0)
    g.op("DequantizeLinear", ["b_q", "b_scale"], "b", axis=0)
    return g.model(g.op("Conv", ["x", "w", "b"], "y", pads=[1] * 4))


def shifted() -> onnx.ModelProto:
    """onnxruntime.quantization: uint8 weights around a zero point that is not 128."""
    g = Graph()
    g.constant("w_q", integers(0, 256, K, N).astype(np.uint8))
    g.constant("w_scale", np.float32(0.002))
    g.constant("w_zero", np.uint8(100))
    g.op("DequantizeLinear", ["w_q", "w_scale", "w_zero"], "w")
    return g.model(g.op("MatMul", ["x", "w"], "y"))


def nbits() -> onnx.ModelProto:
    """onnxruntime's MatMulNBits, beside a float MatMul."""
    g = Graph(opset=21)
    g.constant("w_q", integers(0, 256, N, 8, 16).astype(np.uint8))
    g.constant("w_scale", scales(N * 8))
    g.constant("v", np.random.default_rng(2).normal(0, 0.1, (N, N)).astype(np.float32))
    sizes = {"K": K, "N": N, "bits": 4, "block_size": 32, "accuracy_level": 4}
    g.op("MatMulNBits", ["x", "w_q", "w_scale"], "h", "com.microsoft", **sizes)
    return g.model(g.op("MatMul", ["h", "v"], "y"), microsoft=True)
