from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from onnxq.checking.side_by_side import SideBySide
from onnxq.errors import CalibrationError, ModelError
from onnxq.jobs import Processes
from onnxq.operator import Precision
from onnxq.qconfig import onnxq_default_qconfig
from onnxq.qconfig.quantized_input import Pixels
from onnxq.tuning.evaluation.evaluations import Evaluations
from onnxq.tuning.evaluation.journal import Journal, JournalHead
from onnxq.tuning.scoring.node_group import NodeGroup
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.sensitivity import measure_sensitivity as module
from onnxq.tuning.sensitivity.measure_sensitivity import errors_inside, results_of, sensitivity_of
from onnxq.tuning.sensitivity.sensitivity import ALL_GROUPS
from tests.examples import ALL_INTEGERS, model, weights
from tests.tuning.parts import evaluator_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluation.evaluator import Evaluator
    from onnxq.tuning.sensitivity.sensitivity import Sensitivity

HEAD = JournalHead("model", "samples", "sqnr", "portable", "1")
FLOAT = replace(onnxq_default_qconfig, precision=Precision.FLOAT)


@dataclass(frozen=True)
class Nodes:
    """A group of nodes."""

    names: tuple[str, ...]

    @property
    def node_group(self) -> NodeGroup:
        return NodeGroup("+".join(self.names), self.names)


GROUPS = [Nodes(("first", "relu")), Nodes(("wide",)), Nodes(("last",))]


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


def alone(group: Nodes) -> QConfigMapping:
    mapping = ALL_INTEGERS
    for other in GROUPS:
        for name in other.names if other != group else ():
            mapping = mapping.set_node(name, FLOAT)
    return mapping


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    x = np.random.default_rng(0).standard_normal((80, 16)).astype(np.float32)
    return evaluator_of(chain(), {"x": x})


@pytest.fixture(scope="module")
def found(evaluator: Evaluator) -> Sensitivity:
    return sensitivity_of(
        Evaluations(evaluator, Journal.open(None, HEAD)), alone, GROUPS, ALL_INTEGERS
    )


def test_the_dearest_group_comes_first(found: Sensitivity) -> None:
    assert found.costs[0].group == "last"  # which rounds what `wide` gives
    worst = [cost.worst_db for cost in found.costs]
    assert worst == sorted(worst)


def test_what_a_group_costs_alone_is_what_its_model_scores(
    found: Sensitivity, evaluator: Evaluator
) -> None:
    cost = found.of("last")
    assert cost is not None
    few = evaluator.samples.few(cost.samples)
    assert few.rows == cost.samples
    assert math.isinf(cost.metric_drop)  # SQNR of the float model has no bound
    score = evaluator(alone(GROUPS[2]))
    assert cost.worst_db == pytest.approx(score.worst_db, abs=3.0)  # on other samples


def test_local_errors_are_told_apart_from_inherited_ones(found: Sensitivity) -> None:
    first, wide, last = (found.of(each.node_group.name) for each in GROUPS)
    assert first is not None
    assert wide is not None
    assert last is not None
    assert first.local_db == pytest.approx(first.total_db, abs=0.1)  # nothing is ahead of it
    assert wide.total_db < wide.local_db
    assert math.isfinite(wide.accumulated_db)
    assert last.total_db == pytest.approx(min(last.alone_db.values()), abs=3.0)


def test_the_dearest_are_confirmed_on_more_samples(found: Sensitivity) -> None:
    assert found.confirmed == 3
    assert {cost.samples for cost in found.costs} == {15}
    assert found.runs == pytest.approx((4 * 4 + 15 * 4) / 60, abs=0.1)


def test_a_group_without_a_model_says_why(evaluator: Evaluator) -> None:
    def without(group: Nodes) -> QConfigMapping:
        return alone(group).set_node("nowhere", None) if group is GROUPS[0] else alone(group)

    found = sensitivity_of(
        Evaluations(evaluator, Journal.open(None, HEAD)), without, GROUPS, ALL_INTEGERS
    )
    assert found.of("first+relu") is None
    assert len(found.costs) == 2
    assert "nowhere" in found.refused["first+relu"]


def test_costs_alone_are_found_where_the_model_of_all_groups_is_refused(
    evaluator: Evaluator,
) -> None:
    found = sensitivity_of(
        Evaluations(evaluator, Journal.open(None, HEAD)),
        alone,
        GROUPS,
        ALL_INTEGERS.set_node("nowhere", None),
    )
    assert "nowhere" in found.refused[ALL_GROUPS]
    assert all(math.isnan(cost.total_db) for cost in found.costs)
    assert all(math.isfinite(cost.local_db) for cost in found.costs)
    assert "nan" not in str(found)
    assert f"not measured: {ALL_GROUPS}" in str(found)


def test_groups_that_there_are_no_runs_for_are_named_and_no_more_runs_are_taken(
    evaluator: Evaluator,
) -> None:
    found = sensitivity_of(
        Evaluations(evaluator, Journal.open(None, HEAD)),
        alone,
        GROUPS,
        ALL_INTEGERS,
        most_runs=3 * 4 / 60,  # 4 of 60 samples for the model of all groups, and for two groups
    )
    assert {cost.group for cost in found.costs} == {"wide", "first+relu"}
    assert found.refused == {"last": "no run was left for it"}
    assert found.confirmed == 0
    assert found.runs == pytest.approx(3 * 4 / 60)


def test_an_interrupted_measurement_goes_on(
    evaluator: Evaluator, found: Sensitivity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    measured = module._alone

    def stopping(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measured(*arguments)  # type: ignore[arg-type]  # as they came

    calls: list[object] = []
    monkeypatch.setattr(module, "_alone", stopping)
    with Journal.open(path, HEAD) as journal, pytest.raises(KeyboardInterrupt):
        sensitivity_of(Evaluations(evaluator, journal), alone, GROUPS, ALL_INTEGERS)
    with Journal.open(path, HEAD) as journal:
        again = sensitivity_of(Evaluations(evaluator, journal), alone, GROUPS, ALL_INTEGERS)
    assert again == found
    assert len(calls) == 3 + 1 + 3  # the third one once more, then those on more samples


def test_a_metric_of_the_user_has_a_drop() -> None:
    x = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)

    def mean_error(run: object, samples: Iterator[dict[str, object]]) -> float:
        return -float(np.mean([run(b)["y"] - b["y"] for b in samples]))  # type: ignore[operator]  # a run

    exact = evaluator_of(chain(), {"x": x, "y": np.zeros(40, np.float32)}, mean_error)
    found = sensitivity_of(
        Evaluations(exact, Journal.open(None, HEAD)), alone, GROUPS, ALL_INTEGERS
    )
    assert all(math.isfinite(cost.metric_drop) for cost in found.costs)


@pytest.mark.nightly
def test_any_number_of_workers_finds_the_same(evaluator: Evaluator, found: Sensitivity) -> None:
    with Processes(2) as executor:
        again = sensitivity_of(
            Evaluations(evaluator, Journal.open(None, HEAD)), alone, GROUPS, ALL_INTEGERS, executor
        )
    assert again == found


def test_results_of_a_group_stand_in_graph_order_without_those_that_it_keeps() -> None:
    count = 12
    nodes = [helper.make_node("Relu", ["x"], ["inside"], name="first")]
    nodes += [
        helper.make_node("Sigmoid", ["inside"], [f"y{i}"], name=f"branch{i}") for i in range(count)
    ]
    nodes.append(helper.make_node("Sum", [f"y{i}" for i in range(count)], ["y"], name="last"))
    found = Subject.of(model(nodes, {}, {"x": ["N", 4]})).canonical.model
    group = NodeGroup("branches", ("first", *(f"branch{i}" for i in range(count))))
    assert results_of(found, group) == [f"y{i}" for i in range(count)]


def test_errors_inside_of_a_model_that_takes_pixels_are_those_of_integers() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
    found = evaluator_of(samples={"x": pixels}, wishes=Wishes(quantized_input={"x": Pixels()}))
    made = found.quantized(ALL_INTEGERS).model
    source = found.subject.prepared(ALL_INTEGERS).model
    errors = errors_inside(source, made, ["r1", "y"], found.baseline.samples, {})
    assert set(errors) == {"r1", "y"}
    assert all(30 < db < 70 for db in errors.values())


def test_a_model_that_does_not_run_is_no_fault_of_the_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The candidate is at fault: a search goes on without it."""

    def compare(_batch: object) -> None:
        raise CalibrationError("no kernel for these sizes")

    monkeypatch.setattr(SideBySide, "open", lambda _self: compare)
    found = evaluator_of()
    made = found.quantized(ALL_INTEGERS).model
    source = found.subject.prepared(ALL_INTEGERS).model
    with pytest.raises(ModelError, match="no kernel for these sizes"):
        errors_inside(source, made, ["r1"], found.baseline.samples, {})
