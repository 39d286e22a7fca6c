"""A detector of coloured blobs, laid out as YOLOv8's files are, and pictures for it to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

SIDE = 16
"""Pixels of a picture; a place has 2 by 2 of them."""


def detector() -> onnx.ModelProto:
    """A YOLO-style head over 64 places: boxes and scores (N, 4 + 3, 64) of blobs of one colour."""
    mix = np.zeros((7, 3, 2, 2), np.float32)
    mix[4:] = 4 * np.eye(3, dtype=np.float32)[:, :, None, None]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], strides=[2, 2], name="conv"),
        helper.make_node("Reshape", ["h", "shape"], ["flat"], name="flat"),
        helper.make_node("Split", ["flat"], ["offsets", "logits"], axis=1, name="split"),
        helper.make_node("Sigmoid", ["logits"], ["scores"], name="sigmoid"),
        helper.make_node("Add", ["offsets", "places"], ["boxes"], name="decode"),
        helper.make_node("Concat", ["boxes", "scores"], ["output0"], axis=1, name="join"),
    ]
    nodes[2].input.append("parts")
    y, x = np.mgrid[:8, :8].reshape(2, 64) * 2.0 + 1
    places = np.stack([x, y, np.full(64, 6), np.full(64, 4)])[None].astype(np.float32)
    given = {
        "w": mix,
        "b": np.array([0, 0, 0, 0, -8, -8, -8], np.float32),
        "shape": np.array([0, 7, 64]),
        "parts": np.array([4, 3]),
        "places": places,
    }
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["N", 7, 64])],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def pictures(count: int, seed: int = 0) -> Singles:
    """Pictures (count, 3, 16, 16) of two blobs each, red, green or blue."""
    rng = np.random.default_rng(seed)
    found = rng.uniform(0, 0.2, (count, 3, SIDE, SIDE)).astype(np.float32)
    for one in found:
        for _ in range(2):
            top, left = 2 * rng.integers(0, 7, 2)
            one[rng.integers(3), top : top + 2, left : left + 2] = rng.uniform(0.6, 1)
    return found
