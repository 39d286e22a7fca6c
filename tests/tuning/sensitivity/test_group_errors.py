from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnxq.checking.side_by_side import SideBySide
from onnxq.errors import CalibrationError, ModelError
from onnxq.qconfig.input_codes import Pixels
from onnxq.tuning.scoring.subject import Subject, Wishes
from onnxq.tuning.sensitivity.group_errors import errors_inside, results_of
from onnxq.tuning.timing.node_group import NodeGroup
from tests.examples import ALL_INTEGERS, model
from tests.tuning.parts import evaluator_of


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


def test_errors_inside_of_a_model_that_takes_pixels_are_those_of_codes() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
    found = evaluator_of(samples={"x": pixels}, wishes=Wishes(input_codes={"x": Pixels()}))
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
