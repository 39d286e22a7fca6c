"""Trials of factors: what the outputs lose, and which products run in integers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.improve.factor_sites import sites_of
from onnxq.improve.trial import trial_of
from onnxq.operator import DynamicForm
from onnxq.qconfig import QConfigMapping, onnxq_default_dynamic_qconfig
from tests.examples import ALL_INTEGERS, model, weights

if TYPE_CHECKING:
    from onnxq.samples.inputs import Batch

IN_INTEGERS = replace(onnxq_default_dynamic_qconfig, form=DynamicForm.INTEGER)
CHANNELS = np.array([40.0, *[1.0] * 11], np.float32)
"""One channel stands out, and its weights are as much smaller."""


@pytest.mark.parametrize(
    "qconfig",
    [ALL_INTEGERS, QConfigMapping().set_global(IN_INTEGERS)],
    ids=["static", "dynamic"],
)
def test_factors_that_even_out_the_channels_lose_less(qconfig: QConfigMapping) -> None:
    weight = weights(1, 12, 8) / CHANNELS[:, np.newaxis]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    prepared = onnxq.prepare(model(nodes, {"w": weight}, {"x": ["N", 12]}), qconfig, "x86-vnni")
    rows = np.random.default_rng(0).normal(size=(64, 12)).astype(np.float32) * CHANNELS
    batches: list[Batch] = [{"x": rows[i : i + 8]} for i in range(0, 64, 8)]
    (site,) = sites_of(prepared, -1)
    plain, tried = (
        trial_of(prepared, factors, {}, batches)
        for factors in ({}, {site: CHANNELS.astype(np.float64)})
    )
    assert plain.runs_in_integers("product")
    assert tried.runs_in_integers("product")
    assert tried.errors.shape == tried.signal.shape == (16,)
    judgement = tried.beside(plain)
    assert judgement.is_gain
    assert judgement.after_db > judgement.before_db + 10
