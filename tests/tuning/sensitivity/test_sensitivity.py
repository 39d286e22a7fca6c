from __future__ import annotations

import math
from dataclasses import replace

import pytest

from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import PrecisionChange
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.sensitivity.sensitivity import GroupCost, Sensitivity
from tests.tuning.made_up import FLOAT, Layer, Network


def cost(local_db: float = 40.0, total_db: float = 30.0) -> GroupCost:
    return GroupCost("g", 0.01, {"y": 35.0, "z": 25.0}, local_db, total_db, 8)


def test_noise_is_that_of_the_worst_output() -> None:
    assert cost().noise == pytest.approx(10**-2.5)


def test_a_group_that_loses_all_leaves_something_known_of_the_others() -> None:
    """An output of zeros, or of another shape: its noise is beyond all, and no infinity."""
    lost = replace(cost(), alone_db={"y": math.nan})
    network = Network((Layer(0.0, 0.2, 0.1), Layer(0.0, 0.2, 0.1)))
    loud, quiet = network.groups
    estimates = NoiseEstimates({loud.anchor.name: lost.noise, quiet.anchor.name: 1e-3})
    estimates.meet(network.start, Score(-math.inf, {"y": math.nan}, 1))
    without = estimates.total(network.start.with_changes([PrecisionChange(loud, FLOAT)]))
    assert without == pytest.approx(1e-3)


def test_own_and_inherited_errors_add_up_to_the_total() -> None:
    found = cost(local_db=33.0, total_db=30.0)
    powers = 10 ** (-found.accumulated_db / 10) + 10 ** (-found.local_db / 10)
    assert powers == pytest.approx(10**-3.0)


def test_where_the_own_error_is_all_there_is_nothing_is_inherited() -> None:
    assert cost(local_db=30.0, total_db=30.0).accumulated_db == math.inf
    assert cost(local_db=29.0, total_db=30.0).accumulated_db == math.inf  # errors that cancel


def test_a_sensitivity_survives_its_file_form() -> None:
    found = Sensitivity((cost(), cost(math.inf, math.inf)), 1, agreed=True, runs=2.5)
    assert Sensitivity.from_dict(found.to_dict()) == found


def test_a_group_that_is_not_quantized_has_no_cost() -> None:
    found = Sensitivity((cost(),), 1, agreed=True, runs=2.5)
    assert found.of("g") == cost()
    assert found.of("h") is None


def test_a_sensitivity_of_sqnr_shows_no_drop_and_no_bare_nan() -> None:
    found = replace(cost(math.nan, math.inf), metric_drop=math.inf)
    assert str(Sensitivity((found,), 0, agreed=True, runs=1.0)).splitlines()[1] == (
        "g  25.0  -  -  -"
    )


def test_a_sensitivity_reads_as_a_table() -> None:
    assert str(Sensitivity((cost(),), 0, agreed=True, runs=1.0)).splitlines()[1] == (
        "g  25.0  40.0  30.5  0.01"
    )
