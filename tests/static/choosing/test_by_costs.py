from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.graph.sizes import sizes_of
from onnxq.operator import Precision
from onnxq.qconfig import default_qconfig_mapping
from onnxq.static.choosing.measurements import by_time, by_total_time
from onnxq.static.choosing.weighing import in_us
from onnxq.static.deciders import weighed
from onnxq.static.statistics import Statistics
from tests.examples import images, model, network, weights
from tests.static.choosing.tables import measurements, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.graph.sizes import Sizes
    from onnxq.static.prepared import Prepared
    from onnxq.times import Costs


def by_costs(prepared: Prepared, sizes: Mapping[str, Sizes], costs: Costs) -> Prepared:
    seen = measurements(prepared, Statistics(prepared.model_hash, {}, {}, {}), (sizes, costs))
    return weighed(prepared, seen, (by_time, by_total_time))


@pytest.fixture(name="prepared")
def _prepared() -> Prepared:
    return onnxq.prepare(network(), None, "x86-vnni")


@pytest.fixture(name="sizes")
def _sizes(prepared: Prepared) -> Mapping[str, Sizes]:
    return sizes_of(prepared.model, {"x": images(1).shape})


def forms(prepared: Prepared) -> set[Precision]:
    return {chosen.precision for chosen in prepared.precisions.values()}


def test_integers_that_pay_stay(prepared: Prepared, sizes: Mapping[str, Sizes]) -> None:
    assert by_costs(prepared, sizes, table(prepared, 1e5, 1e4)) is prepared


def test_integers_that_take_longer_with_their_conversions_stay_float(
    prepared: Prepared, sizes: Mapping[str, Sizes]
) -> None:
    found = by_costs(prepared, sizes, table(prepared, 1e4, 2e4))
    assert forms(found) == {Precision.FLOAT}
    reasons = {chosen.reason.words for chosen in found.precisions.values()}
    assert any("us, conversions included (times measured on x86-vnni)" in r for r in reasons)


def test_conversions_alone_can_make_integers_slower(
    prepared: Prepared, sizes: Mapping[str, Sizes]
) -> None:
    found = by_costs(prepared, sizes, table(prepared, 100.0, 90.0))
    assert forms(found) == {Precision.FLOAT}


def test_savings_that_nobody_would_notice_move_nothing(
    prepared: Prepared, sizes: Mapping[str, Sizes]
) -> None:
    costs = table(prepared, 100.0, 90.0, run_ns=1e6)
    assert by_costs(prepared, sizes, costs) is prepared


def test_what_the_user_names_stays(sizes: Mapping[str, Sizes]) -> None:
    mapping = default_qconfig_mapping().with_overrides(["op:Conv=default"])
    prepared = onnxq.prepare(network(), mapping, "x86-vnni")
    found = by_costs(prepared, sizes, table(prepared, 1e4, 2e4))
    kept = {c.precision for c in found.precisions.values() if c.op_type == "Conv"}
    assert Precision.INT8 in kept


def test_integers_that_save_too_little_all_together_are_given_up(
    prepared: Prepared, sizes: Mapping[str, Sizes]
) -> None:
    found = by_costs(prepared, sizes, table(prepared, 1e5, 0.99e5, change_ns=1.0))
    assert Precision.INT8 not in forms(found)
    assert any(
        "too little for what they round" in c.reason.words for c in found.precisions.values()
    )


def test_small_models_keep_their_integers(prepared: Prepared, sizes: Mapping[str, Sizes]) -> None:
    costs = table(prepared, 1e5, 0.99e5, run_ns=1e6, change_ns=1.0)
    assert by_costs(prepared, sizes, costs) is prepared


def test_times_are_told_to_three_digits_without_an_exponent() -> None:
    told = [f"{in_us(ns):g}" for ns in (450_123.0, 1_078_900.0, 12_345.0, 7.0)]
    assert told == ["450", "1080", "12.3", "0.007"]


def test_a_network_whose_integers_take_longer_is_float_with_its_flatten() -> None:
    """Two convolutions of 8 channels over 32 x 32: 1.33 of float's time on integers."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "first", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w2"], ["b"], "second", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["b"], ["p"], "pool"),
        node("Flatten", ["p"], ["f"], "flatten"),
        node("MatMul", ["f", "w3"], ["y"], "last"),
    ]
    constants = {
        "w1": weights(1, 8, 3, 3, 3),
        "w2": weights(2, 8, 8, 3, 3),
        "w3": weights(3, 8, 10),
    }
    source = onnxq.prepare(model(nodes, constants, {"x": ["N", 3, 32, 32]}), None, "x86-vnni")
    samples = np.random.default_rng(0).normal(size=(8, 3, 32, 32)).astype(np.float32)
    made = onnxq.plan(source, onnxq.calibrate(source, samples))
    assert {made.precisions[name].precision for name in ("first", "second", "flatten")} == {
        Precision.FLOAT
    }
