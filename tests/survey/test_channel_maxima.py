from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnxq.dtypes import UINT8
from onnxq.qparams import QParams
from onnxq.survey.local_errors import channel_axes, channel_maxima, errors_of, median_share
from tests.examples import as_ir, model, weights
from tests.survey.pair import BATCH, pair

QPARAMS = QParams(np.array(0.1, np.float32), np.array(0, np.uint8), UINT8)
"""Reaches 25.5."""


def test_one_wide_channel_leaves_the_median_one_little_of_the_range() -> None:
    values = np.full((2, 5, 3), 0.51)
    values[:, 2] = -25.5
    maxima = channel_maxima(values, 1)
    assert maxima.tolist() == [0.51, 0.51, 25.5, 0.51, 0.51]
    assert median_share(maxima, QPARAMS) == pytest.approx(0.02)


def test_channels_of_zeros_do_not_count() -> None:
    assert median_share(np.array([0.0, 0.0, 0.0, 25.5, 25.5]), QPARAMS) == pytest.approx(1.0)
    assert median_share(np.array([0.0, 25.5]), QPARAMS) is None


def test_channels_lie_where_the_layers_with_weights_sum() -> None:
    convs = channel_axes(pair().source)
    assert convs["x"] == convs["r1"] == 1
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], "one"),
        helper.make_node("Relu", ["t"], ["r"], "relu"),
        helper.make_node("Transpose", ["r"], ["y"], "turned", perm=[0, 2, 1]),
    ]
    found = channel_axes(as_ir(model(nodes, {"w": weights(0, 8, 8)}, {"x": ["N", 4, 8]})))
    assert found["x"] == found["t"] == -1
    assert "y" not in found  # its channels have moved


def test_tensors_of_a_model_have_a_reach_of_each_channel() -> None:
    found = errors_of(pair().sides(), [BATCH, BATCH], {})
    maxima = found["x"].maxima
    assert maxima is not None
    assert maxima.tolist() == np.abs(BATCH["x"]).max((0, 2, 3)).tolist()
