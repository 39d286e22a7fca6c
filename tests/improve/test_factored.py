"""Factors stay where the outputs gain by them, and else the model is the one that was given."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.improve.factor_sites import sites_of
from onnxq.improve.factor_trial import Flow
from onnxq.improve.factored import judged
from onnxq.samples import open_samples
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
    flow = Flow.of(prepared, open_samples(SAMPLES, prepared.inputs, 4), Objective.SPEED)
    made = judged(flow, "any", factors)
    *places, whole = made.outcomes
    assert [place.kept for place in places] == [kept] * len(sites)
    assert whole.kept is kept
    assert (made.model is prepared.model) is not kept
