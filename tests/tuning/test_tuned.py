from __future__ import annotations

import math
from dataclasses import replace

import onnx_ir as ir
import pytest

from onnxq.operator import Precision
from onnxq.qconfig import (
    QConfig,
    QConfigDynamic,
    QConfigMapping,
    default_qconfig_mapping,
    onnxq_default_qconfig,
)
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.times.model_times import NodeTimes, Times
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.local_search import SearchEnd
from onnxq.tuning.search.quantization_groups import NodeGroup
from onnxq.tuning.sensitivity import GroupCost, Sensitivity
from onnxq.tuning.tables import Milestone
from onnxq.tuning.tuned import Checked, Tuned
from tests.examples import network

SCORE = Score(30.0, {"y": 30.0}, 1000, 1.0)
COST = GroupCost("Conv, a", math.inf, {"y": 30.0})
GROUP = NodeGroup("Conv, a", ("a",))


def tuned(*costs: GroupCost) -> Tuned:
    """A search that measured these groups, and no more."""
    model = QuantizedModel(ir.serde.deserialize_model(network()).graph, ir_version=10)
    sensitivity = Sensitivity(costs, 1.0)
    checked = Checked("samples, every 4th", math.inf, SCORE)
    mapping = default_qconfig_mapping()
    return Tuned(model, mapping, SCORE, checked, math.inf, (), (), (), sensitivity, None, Goal())


def test_report_says_what_could_not_be_made() -> None:
    found = tuned(COST)
    refused = replace(found.sensitivity, refused={"MatMul, b": "no kernel"})
    times = Times("here", {}, {}, {}, {}, 1.0, ("no times of the model in all integers",))
    report = replace(found, sensitivity=refused, times=times).report()
    assert "note: not measured: MatMul, b: no kernel" in report
    assert "note: no times of the model in all integers" in report


@pytest.mark.parametrize(
    ("why", "said", "other"),
    [
        (SearchEnd.LATE, "--max-seconds", "--max-runs"),
        (SearchEnd.NO_RUN, "--max-runs 80", "--max-seconds"),
    ],
)
def test_a_search_that_was_cut_asks_for_what_it_lacked(
    why: SearchEnd, said: str, other: str
) -> None:
    report = replace(tuned(COST), why=why).report()
    assert said in report
    assert other not in report


def test_report_shows_times_of_layer_types_and_marks_predicted_ones() -> None:
    times = Times("here", {}, {"a": NodeTimes({"float": 100.0})}, {}, {}, 200.0)
    step = Milestone((), SCORE.timed(0.5, (0.4, 0.6)), default_qconfig_mapping())
    begun = Milestone((), SCORE, default_qconfig_mapping())
    found = replace(tuned(COST), times=times, layer_types=(GROUP,), steps=(begun, step))
    report = found.report()
    assert "microseconds of each group" in report
    assert "~1.000" in report
    assert " 0.500" in report
    groups = found.to_dict()["group_times"]
    assert groups == [{"group": "Conv, a", "nodes": ["a"], "ns": {"float": 100.0}}]


def test_report_says_that_nothing_bounds_the_accuracy() -> None:
    unbounded, bounded = tuned(COST), replace(tuned(COST), goal=Goal(min_sqnr_db=20))
    assert "bounds no accuracy" in unbounded.report()
    assert "bounds no accuracy" not in bounded.report()


def test_two_searches_that_found_the_same_are_equal_with_what_nobody_sees() -> None:
    again = replace(COST, alone_db={"y": float("nan")})
    assert tuned(again) == tuned(replace(COST, alone_db={"y": float("nan")}))
    assert tuned(again) != tuned(COST)


def test_digits_of_a_metric_show_a_hundredth_of_the_drop_that_is_allowed() -> None:
    goal = Goal(max_drop=0.0005)
    score = replace(SCORE, metric=-0.0978451)
    found = replace(tuned(COST), goal=goal, score=score, float_metric=-0.0975)
    assert found.metric_digits == 6
    assert "metric -0.097845 (float -0.097500)" in found.report()


@pytest.mark.parametrize(
    ("interval", "max_time", "is_said"),
    [((1.03, 1.13), None, True), ((0.99, 1.1), None, False), ((1.03, 1.13), 1.0, False)],
)
def test_a_model_slower_than_float_is_said_to_be(
    interval: tuple[float, float], max_time: float | None, is_said: bool
) -> None:
    found = replace(tuned(COST), goal=Goal(max_time=max_time), score=SCORE.timed(1.07, interval))
    assert ("slower than float here" in found.report()) is is_said


def test_a_model_that_stays_float_is_said_to_be() -> None:
    entry = default_qconfig_mapping().global_qconfig
    assert isinstance(entry, QConfig)
    for precision, is_float in ((Precision.FLOAT, True), (Precision.INT8, False)):
        mapping = QConfigMapping(entry, nodes={"a": replace(entry, precision=precision)})
        found = replace(tuned(COST), qconfig=mapping)
        assert found.is_float is is_float
        report = found.report()
        assert ("note: nothing is quantized" in report) is is_float
        assert ("this is your float model again" in report) is is_float


def test_a_model_that_stays_float_lists_no_changes() -> None:
    """Weights that nobody quantizes gain nothing by a PTQ algorithm."""
    entry = default_qconfig_mapping().global_qconfig
    assert isinstance(entry, QConfig)
    mapping = QConfigMapping(entry, nodes={"a": replace(entry, precision=Precision.FLOAT)})
    step = Milestone(("float: Conv, a", "improve: bias"), SCORE, mapping)
    chosen = [
        line
        for line in replace(tuned(COST), qconfig=mapping, steps=(step,)).report().splitlines()
        if line.startswith("chosen")
    ]
    assert len(chosen) == 1
    assert "improve" not in chosen[0]


@pytest.mark.parametrize("changes", [("float: " + "a" * 100,), ("float: " + "a" * 50,) * 3])
def test_a_row_of_changes_fits_a_page(changes: tuple[str, ...]) -> None:
    step = Milestone(changes, SCORE, default_qconfig_mapping())
    report = replace(tuned(COST), steps=(step,)).report()
    (row,) = [line for line in report.splitlines() if line.startswith("float: aa")]
    assert len(row) <= 120
    assert ("and 2 more" in row) is (len(changes) == 3)


def test_a_model_with_stored_weights_alone_is_said_to_compute_in_float() -> None:
    stored = QConfigDynamic(weight=onnxq_default_qconfig.weight, precision=Precision.WEIGHT_ONLY)
    mapping = QConfigMapping(onnxq_default_qconfig, nodes={"a": stored})
    report = replace(tuned(COST), qconfig=mapping).report()
    assert "note: weights are stored as integers, and all computes in float" in report
    assert "float model again" not in report
