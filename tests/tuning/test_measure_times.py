from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import ModelError
from onnxq.operator import Precision
from onnxq.times import Change, costs_of, timed_runs
from onnxq.times.model_times import TimeModel
from onnxq.times.time_model import ChangeTime
from onnxq.tuning import measure_times as module
from onnxq.tuning.evaluation.evaluator import precisions_of
from onnxq.tuning.measure_times import measure_times, times_of
from tests.examples import ALL_INTEGERS
from tests.tuning.parts import evaluator_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from onnxq.times.model_times import Times
    from onnxq.tuning.evaluation.evaluator import Evaluator


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return evaluator_of()


@pytest.fixture(scope="module")
def times(evaluator: Evaluator) -> Times:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_runs, "MEASURED_S", 0.1)
        return measure_times(evaluator)


def test_every_node_has_a_time_in_float_and_in_integers(times: Times) -> None:
    assert set(times.nodes) == {
        "conv1", "relu1", "conv2", "add", "relu2", "softmax", "pool", "flatten", "gemm"
    }  # fmt: skip
    assert all(Precision.FLOAT.value in each.ns for each in times.nodes.values())
    for name in ("conv1", "conv2", "gemm", "add"):
        assert times.nodes[name].of(Precision.INT8) is not None
    assert times.nodes["relu1"].of(Precision.FLOAT) == 0.0  # inside of conv1


def test_times_add_up_to_the_float_model(times: Times) -> None:
    parts = [ns for each in times.nodes.values() for ns in (each.ns["float"], each.around["float"])]
    assert sum(parts) + sum(times.others.values()) == pytest.approx(times.float_ns)


def test_all_changes_are_timed(times: Times) -> None:
    assert set(times.changes) == {change.value for change in Change}
    # one alone may come out as nothing beside the noise of a busy machine
    assert max(change.ns(100_000) for change in times.changes.values()) > 0


def test_what_runs_in_float_has_a_time_behind_each_form_that_was_met(times: Times) -> None:
    assert set(times.nodes["softmax"].behind) >= {"float"}
    relu = times.nodes["relu1"]
    assert relu.of_float(Precision.FLOAT) == relu.behind["float"]
    assert relu.of_float(Precision.FLOAT_BETWEEN_QDQ) == relu.of(Precision.FLOAT)  # was not met


def test_times_survive_their_file_form_and_predict_the_same(
    evaluator: Evaluator, times: Times
) -> None:
    again = type(times).from_dict(times.to_dict())
    assert again == times
    model = evaluator.subject.prepared(ALL_INTEGERS).model
    precisions = {"conv1": Precision.INT8, "relu1": None}
    assert TimeModel(again, model).ratio(precisions) == TimeModel(times, model).ratio(precisions)


def test_a_model_that_cannot_be_made_leaves_a_note(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_runs, "MEASURED_S", 0.0)
    found = measure_times(evaluator, {"of nobody": ALL_INTEGERS.set_node("nowhere", None)})
    assert len(found.notes) == 1
    assert "of nobody" in found.notes[0]
    assert "nowhere" in found.notes[0]


def test_a_model_that_does_not_run_leaves_a_note(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = timed_runs.check_runs
    asked = iter([False, True])

    def refusing(model: ir.Model, feeds: Mapping[str, Array]) -> None:
        check(model, feeds)
        if next(asked):
            raise ModelError("no kernel for these sizes")

    monkeypatch.setattr(module, "check_runs", refusing)
    monkeypatch.setattr(timed_runs, "MEASURED_S", 0.02)
    mappings = {"one": ALL_INTEGERS, "another": ALL_INTEGERS.set_node("conv2", None)}
    (note,) = measure_times(evaluator, mappings).notes
    assert "another" in note
    assert "no kernel for these sizes" in note


def test_changes_cost_what_whole_runs_show(evaluator: Evaluator, times: Times) -> None:
    model = evaluator.subject.prepared(ALL_INTEGERS).model
    precisions = precisions_of(evaluator.quantized(ALL_INTEGERS).plan)
    dear = replace(times, changes={name: ChangeTime(1e6, 0.0) for name in times.changes})
    half = module._with(dear, 0.5)
    whole = [(precisions, TimeModel(half, model).ns(precisions))]
    found = module._fitted(dear, model, whole)
    assert found.changes["quantize"].fixed_ns == pytest.approx(0.5e6)


def test_a_table_of_costs_gives_times_of_the_same_kind(evaluator: Evaluator) -> None:
    table = costs_of("x86-vnni")
    assert table is not None
    found = times_of(evaluator, table)
    assert found.of(("conv2",), Precision.INT8) != found.of(("conv2",), Precision.FLOAT)
    assert "x86-vnni" in found.source
    model = evaluator.subject.prepared(ALL_INTEGERS).model
    assert TimeModel(found, model).ratio({}) == 1.0
