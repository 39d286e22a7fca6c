"""Factors stay where the outputs gain by them, and else the model is the one that was given."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.samples import open_samples
from onnxq.weights import Smooth
from onnxq.weights.judgement import Judgement
from tests.examples import ALL_INTEGERS, model, weights


@pytest.mark.parametrize(
    ("improve", "bias", "kept"),
    [
        (("smooth", "bias"), True, True),
        (("smooth",), True, False),
        (("smooth", "bias"), False, False),
    ],
    ids=["biases corrected", "biases as they are", "no bias to correct"],
)
def test_a_gain_in_sum_is_enough_where_biases_are_corrected_alone(
    improve: tuple[str, ...], bias: bool, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judgement, "is_gain", lambda _, tried: tried < 1)  # chance explains it all
    channels = np.array([40.0, *[1.0] * 11], np.float32)
    rows = np.random.default_rng(0).normal(size=(64, 12)).astype(np.float32) * channels
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m" if bias else "y"], "product")]
    nodes += [helper.make_node("Add", ["m", "b"], ["y"], "add")] if bias else []
    constants = {"w": weights(1, 12, 8) / channels[:, np.newaxis]}
    constants |= {"b": weights(2, 8)} if bias else {}
    qconfig = ALL_INTEGERS.set_improve(improve)
    prepared = onnxq.prepare(model(nodes, constants, {"x": ["N", 12]}), qconfig)
    samples = open_samples({"x": rows}, prepared.inputs, 8)
    *_, whole = Smooth().improve(prepared, samples).outcomes
    assert whole.gain_db is not None
    assert whole.gain_db > 3
    assert whole.kept is kept
    assert whole.why == "16 samples cannot tell this gain from chance"
