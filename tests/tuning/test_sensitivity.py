from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from onnxq.jobs import Processes
from onnxq.operator import Precision
from onnxq.qconfig import onnxq_default_qconfig
from onnxq.tuning.evaluation.evaluations import Evaluations, Journal, JournalHead
from onnxq.tuning.evaluation.evaluator import Evaluator
from onnxq.tuning.sensitivity import GroupCost, Sensitivity, sensitivity_of
from tests.examples import ALL_INTEGERS, model, weights
from tests.tuning.parts import evaluator_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

    from onnxq.qconfig import QConfigMapping

HEAD = JournalHead("model", "samples", "sqnr", "portable", "1")
FLOAT = replace(onnxq_default_qconfig, precision=Precision.FLOAT)


GROUPS = {"first+relu": ("first", "relu"), "wide": ("wide",), "last": ("last",)}


def chain() -> onnx.ModelProto:
    """first - relu - wide - last, where results of `wide` are of very different sizes."""
    node = helper.make_node
    wide = weights(2, 16, 16)
    wide[3, 5] = 60.0  # its column takes nearly all integers of the result
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], "first"),
        node("Relu", ["a"], ["r"], "relu"),
        node("MatMul", ["r", "w2"], ["b"], "wide"),
        node("MatMul", ["b", "w3"], ["y"], "last"),
    ]
    last = weights(3, 16, 16)
    last[5] *= 1e-3
    return model(nodes, {"w1": weights(1, 16, 16), "w2": wide, "w3": last}, {"x": ["N", 16]})


def alone(group: str) -> QConfigMapping:
    mapping = ALL_INTEGERS
    for name in (n for other, names in GROUPS.items() if other != group for n in names):
        mapping = mapping.set_node(name, FLOAT)
    return mapping


ALONE = {group: alone(group) for group in GROUPS}


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    x = np.random.default_rng(0).standard_normal((80, 16)).astype(np.float32)
    return evaluator_of(chain(), {"x": x})


@pytest.fixture(scope="module")
def found(evaluator: Evaluator) -> Sensitivity:
    return sensitivity_of(Evaluations(evaluator, Journal.open(None, HEAD)), ALONE)


def test_the_dearest_group_comes_first(found: Sensitivity) -> None:
    assert found.costs[0].group == "last"  # which rounds what `wide` gives
    worst = [cost.worst_db for cost in found.costs]
    assert worst == sorted(worst)


def test_what_a_group_costs_alone_is_what_its_model_scores(
    found: Sensitivity, evaluator: Evaluator
) -> None:
    cost = found.of("last")
    assert cost is not None
    assert math.isinf(cost.metric_drop)  # SQNR of the float model has no bound
    score = evaluator(ALONE["last"])
    assert cost.worst_db == pytest.approx(score.worst_db, abs=3.0)  # on other samples


def test_a_group_without_a_model_says_why(evaluator: Evaluator) -> None:
    without = ALONE | {"first+relu": ALONE["first+relu"].set_node("nowhere", None)}
    found = sensitivity_of(Evaluations(evaluator, Journal.open(None, HEAD)), without)
    assert found.of("first+relu") is None
    assert len(found.costs) == 2
    assert "nowhere" in found.refused["first+relu"]


def test_groups_that_there_are_no_runs_for_are_named_and_no_more_runs_are_taken(
    evaluator: Evaluator,
) -> None:
    found = sensitivity_of(
        Evaluations(evaluator, Journal.open(None, HEAD)),
        ALONE,
        most_runs=2 * 4 / 60,  # 4 of 60 samples for each of two groups
    )
    assert {cost.group for cost in found.costs} == {"wide", "first+relu"}
    assert found.refused == {"last": "no run was left for it"}
    assert found.runs == pytest.approx(2 * 4 / 60)


def test_an_interrupted_measurement_goes_on(
    evaluator: Evaluator, found: Sensitivity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    measured = Evaluator.__call__

    def stopping(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measured(*arguments)  # type: ignore[arg-type]  # as they came

    calls: list[object] = []
    monkeypatch.setattr(Evaluator, "__call__", stopping)
    with Journal.open(path, HEAD) as journal, pytest.raises(KeyboardInterrupt):
        sensitivity_of(Evaluations(evaluator, journal), ALONE)
    with Journal.open(path, HEAD) as journal:
        again = sensitivity_of(Evaluations(evaluator, journal), ALONE)
    assert again == found
    assert len(calls) == 3 + 1  # the third one once more


def test_a_metric_of_the_user_has_a_drop() -> None:
    x = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)

    def mean_error(run: object, samples: Iterator[dict[str, object]]) -> float:
        return -float(np.mean([run(b)["y"] - b["y"] for b in samples]))  # type: ignore[operator]  # a run

    exact = evaluator_of(chain(), {"x": x, "y": np.zeros(40, np.float32)}, mean_error)
    found = sensitivity_of(Evaluations(exact, Journal.open(None, HEAD)), ALONE)
    assert all(math.isfinite(cost.metric_drop) for cost in found.costs)


@pytest.mark.nightly
def test_any_number_of_workers_finds_the_same(evaluator: Evaluator, found: Sensitivity) -> None:
    with Processes(2) as executor:
        again = sensitivity_of(Evaluations(evaluator, Journal.open(None, HEAD)), ALONE, executor)
    assert again == found


COST = GroupCost("g", 0.01, {"y": 35.0, "z": 25.0})


def test_noise_is_that_of_the_worst_output() -> None:
    assert COST.noise == pytest.approx(10**-2.5)


def test_a_sensitivity_survives_its_file_form() -> None:
    found = Sensitivity((COST, GroupCost("h", math.inf, {"y": math.inf})), 2.5, {"i": "no kernel"})
    assert Sensitivity.from_dict(found.to_dict()) == found


def test_costs_of_two_measurements_stand_dearest_first() -> None:
    loud = replace(COST, group="loud", alone_db={"y": 5.0})
    found = Sensitivity((COST,), 1.0).beside(Sensitivity((loud,), 0.5, {"h": "no run"}))
    assert [cost.group for cost in found.costs] == ["loud", "g"]
    assert (found.runs, found.notes) == (1.5, ("not measured: h: no run",))


def test_a_sensitivity_reads_as_a_table_in_which_sqnr_has_no_drop() -> None:
    found = Sensitivity((COST, replace(COST, metric_drop=math.inf)), 1.0)
    assert str(found).splitlines()[1:] == ["g  25.0  0.01", "g  25.0  -"]
