"""A float model that ONNX Runtime runs, and whose integer form it does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from tests.examples import model, weights

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Array

CHANNELS = 8


def refused() -> onnx.ModelProto:
    """Two Convs, and behind them a Relu beside a MaxPool that drops every second column.

    ONNX Runtime 1.31 reuses a buffer of the pool's larger input for its smaller result, when it has
    moved the pool into channels-last: "Shape mismatch attempting to re-use buffer".
    """
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1]),
        node("Conv", ["a", "w2"], ["b"], "conv2"),
        node("Relu", ["b"], ["r"], "relu"),
        node("MaxPool", ["b"], ["p"], "pool", ceil_mode=1, kernel_shape=[1], strides=[2]),
    ]
    constants = {"w1": weights(1, CHANNELS, 2, 3), "w2": weights(2, CHANNELS, CHANNELS, 1)}
    outputs = {"r": TensorProto.FLOAT, "p": TensorProto.FLOAT}
    return model(nodes, constants, {"x": [1, 2, 2]}, outputs)


def samples() -> dict[str, Array]:
    """Three inputs of it."""
    return {"x": weights(3, 3, 2, 2)}
