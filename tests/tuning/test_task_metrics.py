from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import CalibrationError, QConfigError

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)
SIDE, CLASSES = 16, 3


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


def images(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Pictures of two blobs each."""
    found = RNG.uniform(0, 0.2, (count, 3, SIDE, SIDE)).astype(np.float32)
    for one in found:
        for _ in range(2):
            top, left = 2 * RNG.integers(0, 7, 2)
            one[RNG.integers(3), top : top + 2, left : left + 2] = RNG.uniform(0.6, 1)
    return found


@pytest.mark.parametrize("metric", ["boxes", "map"])
def test_a_detector_is_tuned_by_its_boxes(metric: str) -> None:
    goal = onnxq.Goal(metric=metric, max_drop=0.1, max_runs=3, objective=Objective.SIZE)
    found = onnxq.tune(detector(), {"x": images(32)}, goal=goal, target="x86-vnni")
    assert found.float_metric == 1.0
    assert found.metric_layout.startswith(
        "'output0' (1, 7, 64): axis 1, format xywh, objectness no"
    )
    assert f"metric {metric}: {found.metric_layout}" in found.report()
    assert 0.9 <= found.score.metric <= 1.0


def test_samples_without_objects_are_refused(tmp_path: Path) -> None:
    onnx.save(detector(), tmp_path / "m.onnx")
    nothing = {"x": np.zeros((8, 3, SIDE, SIDE), np.float32)}
    with pytest.raises(CalibrationError, match="float model finds nothing in these samples"):
        onnxq.tune(tmp_path / "m.onnx", nothing, goal=onnxq.Goal(metric="boxes", max_drop=0.1))


def test_another_kind_of_output_is_refused_ahead_of_any_run() -> None:
    with pytest.raises(QConfigError, match=r"masks: wanted .*masks:output=NAME"):
        onnxq.tune(detector(), {"x": images(8)}, goal=onnxq.Goal(metric="masks", max_drop=0.1))
