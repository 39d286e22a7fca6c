from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq.operator import NodeForm
from onnxq.qconfig import default_qconfig_mapping
from onnxq.static.choosing.by_costs import by_costs
from onnxq.static.choosing.weighing import in_us
from onnxq.static.seen_samples import SeenSamples
from tests.examples import images, network
from tests.static.choosing.tables import table

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics


@pytest.fixture(name="prepared")
def _prepared() -> Prepared:
    return onnxq.prepare(network(), None, "x86-vnni")


@pytest.fixture(name="statistics")
def _statistics(prepared: Prepared) -> Statistics:
    return onnxq.calibrate(prepared, {"x": images(8)}, threads=1)


def forms(prepared: Prepared) -> set[NodeForm]:
    return {choice.form for choice in prepared.choices.values()}


def test_integers_that_pay_stay(prepared: Prepared, statistics: Statistics) -> None:
    assert by_costs(prepared, statistics, table(prepared, 1e5, 1e4)) is prepared


def test_integers_that_take_longer_with_their_conversions_stay_float(
    prepared: Prepared, statistics: Statistics
) -> None:
    found = by_costs(prepared, statistics, table(prepared, 1e4, 2e4))
    assert forms(found) == {NodeForm.FLOAT}
    reasons = {choice.reason for choice in found.choices.values()}
    assert any("us, conversions included (times measured on x86-vnni)" in r for r in reasons)


def test_conversions_alone_can_make_integers_slower(
    prepared: Prepared, statistics: Statistics
) -> None:
    found = by_costs(prepared, statistics, table(prepared, 100.0, 90.0))
    assert forms(found) == {NodeForm.FLOAT}


def test_savings_that_nobody_would_notice_move_nothing(
    prepared: Prepared, statistics: Statistics
) -> None:
    costs = table(prepared, 100.0, 90.0, run_ns=1e6)
    assert by_costs(prepared, statistics, costs) is prepared


def test_what_the_user_names_stays(statistics: Statistics) -> None:
    mapping = default_qconfig_mapping().with_overrides(["op:Conv=default"])
    prepared = onnxq.prepare(network(), mapping, "x86-vnni")
    found = by_costs(prepared, statistics, table(prepared, 1e4, 2e4))
    kept = {c.form for c in found.choices.values() if c.op_type == "Conv"}
    assert NodeForm.INTEGER in kept


def test_statistics_without_shapes_decide_nothing(
    prepared: Prepared, statistics: Statistics
) -> None:
    old = replace(statistics, samples=SeenSamples(8))
    assert by_costs(prepared, old, table(prepared, 1e4, 2e4)) is prepared


def test_codes_that_save_too_little_all_together_are_given_up(
    prepared: Prepared, statistics: Statistics
) -> None:
    found = by_costs(prepared, statistics, table(prepared, 1e5, 0.99e5, change_ns=1.0))
    assert NodeForm.INTEGER not in forms(found)
    assert any("too little for what they round" in c.reason for c in found.choices.values())


def test_small_models_keep_their_codes(prepared: Prepared, statistics: Statistics) -> None:
    costs = table(prepared, 1e5, 0.99e5, run_ns=1e6, change_ns=1.0)
    assert by_costs(prepared, statistics, costs) is prepared


def test_times_are_told_to_three_digits_without_an_exponent() -> None:
    told = [f"{in_us(ns):g}" for ns in (450_123.0, 1_078_900.0, 12_345.0, 7.0)]
    assert told == ["450", "1080", "12.3", "0.007"]
