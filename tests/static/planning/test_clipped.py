from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import ALL_INTEGERS, images, model, weights

if TYPE_CHECKING:
    from onnxq.qparams import QParams
    from onnxq.static.prepared import Prepared

SAMPLES = {"x": images(16)}


def prepared_with(low: float, high: float) -> Prepared:
    """Convolution a, read by a Clip to these bounds and by a convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first"),
        helper.make_node("Clip", ["a", "low", "high"], ["t"], "clip"),
        helper.make_node("Conv", ["t", "u"], ["y"], "narrow"),
        helper.make_node("Conv", ["a", "u"], ["z"], "wide"),
    ]
    constants = {
        "w": 6 * weights(1, 3, 3, 1, 1),  # a ranges over some +-9
        "u": weights(2, 4, 3, 1, 1),
        "low": np.array(low, np.float32),
        "high": np.array(high, np.float32),
    }
    outputs = dict.fromkeys(("y", "z"), TensorProto.FLOAT)
    network = model(nodes, constants, {"x": ["N", 3, 8, 8]}, outputs)
    return prepare(network, ALL_INTEGERS, "x86-vnni")


def tensors(prepared: Prepared) -> dict[str, QParams]:
    return dict(plan(prepared, calibrate(prepared, SAMPLES)).tensors)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.3), (-0.31, 0.37)])
def test_a_narrow_clip_beside_other_readers_has_integers_of_its_own(
    low: float, high: float
) -> None:
    found = tensors(prepared_with(low, high))
    assert float(found["t"].scale) < 0.1 * float(found["a"].scale)


@pytest.mark.parametrize(("low", "high"), [(-7.0, 7.0), (0.0, float("inf"))])
def test_a_wide_clip_keeps_the_integers_of_its_input(low: float, high: float) -> None:
    found = tensors(prepared_with(low, high))
    assert found["t"] == found["a"]


def test_the_bounds_of_a_narrow_clip_are_exact_and_every_integer_is_the_references() -> None:
    prepared = prepared_with(-0.31, 0.37)
    made = plan(prepared, calibrate(prepared, SAMPLES))
    written = rewrite(prepared, made)
    (clip,) = [node for node in written.graph if node.op_type == "Clip"]
    assert [node.op_type for node in clip.predecessors()] == ["DequantizeLinear"]
    assert onnxq.cross_check(written, SAMPLES).differing == 0
