"""Trials of factors: what the outputs lose, and which layers run in integers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq import targets
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, onnxq_default_dynamic_qconfig
from onnxq.samples import Batches
from onnxq.targets.reduce_range import ReduceRange
from onnxq.weights.algorithm import Improved, WeightAlgorithm, registry
from onnxq.weights.smoothing_run import Flow, validation_of
from onnxq.weights.smoothing_sites import sites_of
from tests.examples import ALL_INTEGERS, model, weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.samples.inputs import Batch
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

IN_INTEGERS = replace(onnxq_default_dynamic_qconfig, precision=Precision.DYNAMIC_INT8)
CHANNELS = np.array([40.0, *[1.0] * 11], np.float32)
"""One channel stands out, and its weights are as much smaller."""


def flow_of(prepared: Prepared, batches: list[Batch]) -> Flow:
    return Flow(prepared, batches, Objective.SPEED)


def linear_flow(
    rows: Singles, qconfig: QConfigMapping, target: str | targets.Target = "x86-vnni"
) -> Flow:
    """The flow of one layer, on batches of 8 rows."""
    weight = weights(1, 12, 8) / CHANNELS[:, np.newaxis]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")]
    prepared = onnxq.prepare(model(nodes, {"w": weight}, {"x": ["N", 12]}), qconfig, target)
    batches: list[Batch] = [{"x": rows[i : i + 8]} for i in range(0, len(rows), 8)]
    return flow_of(prepared, batches)


def rows_of_noise() -> Singles:
    return np.random.default_rng(0).normal(size=(64, 12)).astype(np.float32) * CHANNELS


@pytest.mark.parametrize(
    "qconfig",
    [ALL_INTEGERS, QConfigMapping().set_global(IN_INTEGERS)],
    ids=["static", "dynamic"],
)
def test_factors_that_even_out_the_channels_lose_less(qconfig: QConfigMapping) -> None:
    flow = linear_flow(rows_of_noise(), qconfig)
    (site,) = sites_of(flow.prepared)
    plain, tried = (
        validation_of(flow, factors, flow.prepared.qconfig)
        for factors in ({}, {site: CHANNELS.astype(np.float64)})
    )
    assert plain.runs_in_integers("matmul")
    assert tried.runs_in_integers("matmul")
    assert tried.errors.shape == tried.signal.shape == (16,)
    judgement = tried.compared_with(plain)
    assert judgement.is_gain(1)
    assert judgement.after_db > judgement.before_db + 10


def test_ranges_that_calibration_will_have_are_counted() -> None:
    """A channel that is silent but in one of the samples held back, and was blown up until then."""
    rows = rows_of_noise()
    rows[:, 3] *= 1e-3
    rows[-1, 3] = 1.0
    flow = linear_flow(rows, ALL_INTEGERS)
    (site,) = sites_of(flow.prepared)
    factors = CHANNELS.astype(np.float64)
    factors[3] = 1e-3
    plain, tried = (
        validation_of(flow, each, flow.prepared.qconfig) for each in ({}, {site: factors})
    )
    assert tried.compared_with(plain).is_loss


def test_a_target_whose_ranges_are_reduced_on_samples_can_be_tried() -> None:
    observed = replace(targets.resolve("x86-avx2"), reduce_range=ReduceRange.OBSERVED)
    flow = linear_flow(rows_of_noise(), ALL_INTEGERS, observed)
    validation = validation_of(flow, {}, ALL_INTEGERS)
    assert validation.runs_in_integers("matmul")


def test_what_improvements_of_weights_will_take_away_is_no_error_of_a_trial() -> None:
    """A weight of 4 bits whose inputs have a mean: most of its error is the same for all rows."""
    rng = np.random.default_rng(0)
    rows = (5 + rng.normal(size=(64, 12))).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b"], ["y"], "add"),
    ]
    proto = model(nodes, {"w": weights(1, 12, 8), "b": weights(2, 8)}, {"x": ["N", 12]})
    narrow = "global={weight: {observer: MinMaxObserver, dtype: int4}}"
    batches: list[Batch] = [{"x": rows[i : i + 8]} for i in range(0, 64, 8)]

    def noise(*improve: str) -> float:
        qconfig = ALL_INTEGERS.with_overrides([narrow]).set_improve(improve)
        prepared = onnxq.prepare(proto, qconfig, "x86-vnni")
        return float(validation_of(flow_of(prepared, batches), {}, qconfig).errors.sum())

    assert noise("smooth") == noise()
    assert noise("smooth", "bias") < noise() / 4
    assert noise("round") == noise("bias")


class Rounds(WeightAlgorithm):
    """Chooses weights, and leaves biases as they are."""

    name = "rounds"

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("improve", "corrects"),
    [(("bias",), True), (("round",), True), (("rounds",), False), (("rounds", "bias"), True)],
)
def test_biases_are_corrected_where_an_improvement_follows_that_does(
    improve: tuple[str, ...], corrects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry, "rounds", Rounds())
    flow = linear_flow(rows_of_noise(), ALL_INTEGERS.set_improve(["smooth", *improve]))
    assert flow.corrects_biases is corrects
