"""Small models of integers, and integers to run them on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnxq
from tests.examples import as_ir, model, weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Array

make = helper.make_node
MICROSOFT = "com.microsoft"


def integers_only() -> onnx.ModelProto:
    """Conv, Relu, MaxPool, Conv, Add, GlobalAveragePool, Flatten, Gemm."""
    return model(
        [
            make("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
            make("Relu", ["c1"], ["r1"], "relu1"),
            make("MaxPool", ["r1"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
            make("Conv", ["p", "w2"], ["c2"], "conv2", pads=[1] * 4),
            make("Add", ["p", "c2"], ["s"], "add"),
            make("GlobalAveragePool", ["s"], ["g"], "mean"),
            make("Flatten", ["g"], ["f"], "flatten"),
            make("Gemm", ["f", "w3", "b3"], ["y"], "gemm"),
        ],
        {
            "w1": weights(1, 8, 3, 3, 3),
            "b1": weights(2, 8),
            "w2": weights(3, 8, 8, 3, 3),
            "w3": weights(4, 8, 10),
            "b3": weights(5, 10),
        },
        {"x": ["N", 3, 8, 8]},
    )


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 8, 8)).astype(np.float32)


@functools.cache
def quantized() -> ir.Model:
    """The model of `integers_only`, quantized; shared, so leave it as it is."""
    return onnxq.quantize(as_ir(integers_only()), [{"x": images(16)}])


def on_integers(
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, Array],
    dtype: int = TensorProto.UINT8,
    outputs: dict[str, int] | None = None,
    shape: Sequence[int | str] = ("N", 4, 6, 6),
) -> onnx.ModelProto:
    """A model of one input x of integers; com.microsoft is known."""
    proto = model(nodes, constants, {"x": shape}, outputs or {"y": dtype}, opset=21, dtype=dtype)
    proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return proto


def integers(
    seed: int = 0,
    dtype: str = "uint8",
    shape: Sequence[int] = (2, 4, 6, 6),
    limit: int | None = None,
) -> Array:
    top = np.iinfo(dtype).max if limit is None else limit
    values = np.random.default_rng(seed).integers(np.iinfo(dtype).min, top, shape, endpoint=True)
    return values.astype(dtype)


def scales(value: float) -> Array:
    return np.array(value, np.float32)


def convolution(name: str = "conv", x: str = "x", y: str = "y", **attributes: Any) -> Any:
    slots = [x, "s", "z", "w", "ws", "wz", "ys", "z"]
    return make("QLinearConv", slots, [y], name, **attributes)


CONVOLUTION: dict[str, Array] = {
    "s": scales(0.5),
    "z": np.array(7, np.uint8),
    "w": integers(1, "int8", (4, 4, 3, 3)),
    "ws": scales(0.01),
    "wz": np.array(0, np.int8),
    "ys": scales(3.0),
}
