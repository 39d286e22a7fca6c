"""Files with Q and DQ, as six tools write them; the input is x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[Any]

IMAGE = ("N", 3, 16, 16)
SIGNED, NARROW = np.int8(0), (-127, 127)


class File:
    """Nodes and constants of a file; names count up."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)

    def op(
        self, op_type: str, *inputs: str | npt.ArrayLike, out: str = "", **attributes: Any
    ) -> str:
        """Result of a node; arrays among its inputs become constants."""
        name = out or f"{op_type.lower()}_{len(self.nodes)}"
        slots = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op_type, slots, [name], f"{name}_node", **attributes))
        return name

    def constant(self, array: npt.ArrayLike) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def qdq(
        self,
        x: str,
        scale: npt.ArrayLike,
        zero: npt.ArrayLike,
        clip: tuple[int, int] | None = None,
        axis: int | None = None,
    ) -> str:
        """Q, a Clip on integers where there are ends, DQ."""
        numbers, zeros = self.constant(np.asarray(scale, np.float32)), self.constant(zero)
        along: dict[str, Any] = {} if axis is None else {"axis": axis}
        q = self.op("QuantizeLinear", x, numbers, zeros, **along)
        if clip is not None:
            q = self.op("Clip", q, *(np.asarray(end, np.asarray(zero).dtype) for end in clip))
        return self.op("DequantizeLinear", q, numbers, zeros, **along)

    def normal(self, *shape: int, spread: float = 0.2) -> Numbers:
        return self.rng.normal(0, spread, shape).astype(np.float32)

    def weight(self, *shape: int, axis: int = 0, clip: tuple[int, int] | None = None) -> str:
        """A float weight behind Q and DQ of int8, with a scale per channel."""
        w = self.normal(*shape, spread=0.1)
        others = tuple(i for i in range(w.ndim) if i != axis)
        scale = np.abs(w).max(others) / 127
        return self.qdq(self.constant(w), scale, np.zeros(shape[axis], np.int8), clip, axis=axis)

    def integers(self, low: int, high: int, scale: float, *shape: int) -> str:
        """Stored integers behind a DQ of one scale: int8, or int32 of a vector."""
        q = self.rng.integers(low, high, shape).astype(np.int8 if len(shape) > 1 else np.int32)
        return self.op("DequantizeLinear", q, np.float32(scale), np.zeros((), q.dtype))

    def model(self, producer: str, x: tuple[int | str, ...] = IMAGE) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, producer, inputs, outputs, self.constants)
        domains = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=domains, ir_version=9, producer_name=producer)


def tensorrt() -> onnx.ModelProto:
    """pytorch-quantization: int8 around 0 ahead of Conv and Gemm; float weights; a residual sum."""
    f = File()
    x = f.qdq("x", 0.031, SIGNED)
    y = f.op("Relu", f.op("Conv", x, f.weight(16, 3, 3, 3), f.normal(16), pads=[1] * 4))
    y = f.qdq(y, 0.02, SIGNED)
    z = f.op("Conv", y, f.weight(16, 16, 3, 3), f.normal(16), pads=[1] * 4)
    z = f.qdq(f.op("Relu", f.op("Add", z, y)), 0.025, SIGNED)
    z = f.qdq(f.op("Flatten", f.op("GlobalAveragePool", z)), 0.01, SIGNED)
    f.op("Gemm", z, f.weight(10, 16), f.normal(10), transB=1, out="y")
    return f.model("pytorch")


def brevitas() -> onnx.ModelProto:
    """QCDQ: a Clip between Q and DQ; the second activation has 4 bits."""
    f = File(opset=13)
    x = f.qdq("x", 0.031, SIGNED, NARROW)
    y = f.op("Conv", x, f.weight(16, 3, 3, 3, clip=NARROW), f.normal(16), pads=[1] * 4)
    y = f.qdq(f.op("Relu", y), 0.02, np.uint8(0), (0, 255))
    y = f.op("Conv", y, f.weight(16, 16, 3, 3, clip=NARROW), f.normal(16), pads=[1] * 4)
    y = f.qdq(f.op("Relu", y), 0.2, np.uint8(0), (0, 15))
    y = f.qdq(f.op("Flatten", f.op("GlobalAveragePool", y)), 0.01, np.uint8(0))
    f.op("Gemm", y, f.weight(10, 16, clip=NARROW), f.normal(10), transB=1, out="y")
    return f.model("brevitas")


def keras() -> onnx.ModelProto:
    """tf2onnx of a TFLite file: NHWC, a Transpose at each Conv, uint8 whose 0 is the Relu."""
    f = File()
    x = f.qdq(f.op("Transpose", "x", perm=[0, 3, 1, 2]), 0.031, np.uint8(128))
    y = f.op("Conv", x, f.weight(16, 3, 3, 3), f.normal(16), pads=[1] * 4)
    y = f.op("Transpose", f.qdq(y, 0.02, np.uint8(0)), perm=[0, 2, 3, 1])
    y = f.op("Transpose", y, perm=[0, 3, 1, 2])
    y = f.op("Conv", y, f.weight(16, 16, 3, 3), f.normal(16), pads=[1] * 4, strides=[2, 2])
    y = f.op("Transpose", f.qdq(y, 0.02, np.uint8(0)), perm=[0, 2, 3, 1])
    y = f.qdq(f.op("ReduceMean", y, axes=[1, 2], keepdims=0), 0.01, np.uint8(0))
    y = f.op("Add", f.op("MatMul", y, f.weight(16, 10, axis=1)), f.normal(10))
    f.op("Softmax", f.qdq(y, 0.02, np.uint8(120)), out="y")
    return f.model("tf2onnx", ("N", 16, 16, 3))


def onnxruntime() -> onnx.ModelProto:
    """onnxruntime.quantization: int8 weights and int32 biases behind DQ, uint8 activations."""
    f = File(opset=13)
    x = f.qdq("x", 0.031, np.uint8(128))
    w, b = f.integers(-127, 128, 0.003, 16, 3, 3, 3), f.integers(-2000, 2000, 0.031 * 0.003, 16)
    y = f.qdq(f.op("Relu", f.op("Conv", x, w, b, pads=[1] * 4)), 0.02, np.uint8(0))
    y = f.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = f.qdq(f.op("GlobalAveragePool", f.qdq(y, 0.02, np.uint8(0))), 0.01, np.uint8(0))
    y = f.qdq(f.op("Flatten", y), 0.01, np.uint8(0))
    y = f.qdq(f.op("MatMul", y, f.integers(-127, 128, 0.003, 16, 10)), 0.02, np.uint8(128))
    f.op("Add", y, f.normal(10), out="y")
    return f.model("onnx.quantize")


def modelopt() -> onnx.ModelProto:
    """Linear layers: float weight, Q, DQ, Transpose, MatMul, Add."""
    f, y = File(opset=19), "x"
    for place, (k, n) in enumerate(((32, 64), (64, 64), (64, 16))):
        x, w = f.qdq(y, 0.03, SIGNED), f.op("Transpose", f.weight(n, k), perm=[1, 0])
        is_held_apart = place == 2
        y = f.op("Add", f.op("MatMul", x, w), f.normal(n), out="y" if is_held_apart else "")
        y = y if is_held_apart else f.op("Relu", y)
    return f.model("modelopt", ("N", 32))


def nncf() -> onnx.ModelProto:
    """A layer of attention: MatMuls of activations between Q and DQ of uint8."""
    f = File()
    x = f.qdq("x", 0.03, np.uint8(120))
    q, k, v = (
        f.qdq(f.op("MatMul", x, f.weight(32, 32, axis=1)), 0.05, np.uint8(128)) for _ in "qkv"
    )
    s = f.op("Mul", f.op("MatMul", q, f.op("Transpose", k, perm=[0, 2, 1])), np.float32(0.17))
    s = f.qdq(f.op("Softmax", s, axis=-1), 1 / 255, np.uint8(0))
    y = f.op("MatMul", f.qdq(f.op("MatMul", s, v), 0.05, np.uint8(128)), f.weight(32, 32, axis=1))
    y = f.op("Add", y, x)
    f.op("LayerNormalization", y, np.ones(32, np.float32), f.normal(32), out="y")
    return f.model("nncf", ("N", 8, 32))


FILES = {made.__name__: made for made in (tensorrt, brevitas, keras, onnxruntime, modelopt, nncf)}


def inputs(model: onnx.ModelProto, count: int = 16) -> dict[str, Numbers]:
    shape = [d.dim_value or count for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(9).normal(0, 1, shape).astype(np.float32)}
