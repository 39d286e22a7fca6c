"""Factors stay where the outputs gain by them, and else the model is the one that was given."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.improve import Smooth
from onnxq.improve.factor_sites import sites_of
from onnxq.improve.factor_trial import Flow
from onnxq.improve.factored import judged
from onnxq.improve.judgement import Judgement
from onnxq.samples import open_samples
from tests.examples import ALL_INTEGERS, model, weights
from tests.improve.test_equalize import PER_TENSOR, SAMPLES, chain


@pytest.mark.parametrize(
    ("of_chain", "tried", "kept"),
    [(5.0, 5.0, True), (0.0, 2.0, False), (0.0, 0.0, False)],
    ids=["those that even out the channels", "those that spread them", "ones"],
)
def test_factors_stay_together_where_the_outputs_gain(
    of_chain: float, tried: float, kept: bool
) -> None:
    prepared = onnxq.prepare(chain(of_chain), PER_TENSOR)
    sites = sites_of(prepared, 1)
    rng = np.random.default_rng(4)  # with the same spread, the very factors of the chain
    factors = {site: np.exp2(rng.uniform(-tried, tried, 8)) for site in sites}
    flow = Flow.of(
        prepared, open_samples(onnxq.Samples(SAMPLES, 4), prepared.inputs), Objective.SPEED
    )
    made = judged(flow, "any", factors)
    *places, whole = made.outcomes
    assert [place.kept for place in places] == [kept] * len(sites)
    assert whole.kept is kept
    assert (made.model is prepared.model) is not kept


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
    samples = open_samples(onnxq.Samples({"x": rows}, 8), prepared.inputs)
    *_, whole = Smooth().improve(prepared, samples).outcomes
    assert whole.gain_db is not None
    assert whole.gain_db > 3
    assert whole.kept is kept
    assert whole.why == "16 samples cannot tell this gain from chance"
