from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import CalibrationError, QConfigError
from scripts._corpus.blobs import SIDE, detector, pictures

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("metric", ["boxes", "map"])
def test_a_detector_is_tuned_by_its_boxes(metric: str) -> None:
    goal = onnxq.Goal(metric=metric, max_drop=0.1, max_runs=3, objective=Objective.SIZE)
    found = onnxq.tune(detector(), {"x": pictures(32)}, goal=goal, target="x86-vnni")
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
        onnxq.tune(detector(), {"x": pictures(8)}, goal=onnxq.Goal(metric="masks", max_drop=0.1))
