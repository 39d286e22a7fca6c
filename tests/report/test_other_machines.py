from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from onnxq import targets
from onnxq.checking.execution import execution
from onnxq.checking.findings import Execution
from onnxq.report import print_prediction
from onnxq.static.calibrate import calibrate
from onnxq.static.observed_range import plan_observed
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import network, weights

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

DATA = {"x": np.abs(weights(7, 4, 3, 8, 8))}
INTEGERS = Execution({"QLinearConv": 2}, {}, {"QuantizeLinear": 1}, ())


def planned(reduction: str, source: onnx.ModelProto | None = None) -> tuple[Plan, ir.Model]:
    target = targets.find("portable").with_reduce_range(reduction)
    prepared = prepare(source or network(), None, target)
    statistics = calibrate(prepared, DATA)
    made = (
        plan_observed(prepared, statistics, DATA)
        if reduction == "observed"
        else plan(prepared, statistics)
    )
    return made, rewrite(prepared, made)


def test_nothing_is_to_be_said_of_integers_that_are_safe_for_any_input() -> None:
    for reduction in ("worst-case", "everywhere"):
        assert print_prediction.on_other_machines(planned(reduction)[0], INTEGERS) == []


def test_an_observed_reduction_says_that_other_inputs_may_differ() -> None:
    (note,) = print_prediction.on_other_machines(planned("observed")[0], INTEGERS)
    assert "on other inputs integers may differ on x86 without VNNI" in note


def test_an_observed_reduction_means_nothing_where_nothing_saturates() -> None:
    made = dataclasses.replace(planned("observed")[0], target="x86-vnni")
    assert print_prediction.on_other_machines(made, INTEGERS) == []


def test_floats_that_are_left_are_named() -> None:
    made, model = planned("worst-case")
    (note,) = print_prediction.on_other_machines(made, execution(model))
    assert "kernels that compute in float: Softmax (1), GlobalAveragePool (1). Their last" in note
    blocks = Execution({"MatMulNBits": 3}, {"Gelu": 1, "Reshape": 2}, {}, ())
    note, own = print_prediction.on_other_machines(made, blocks)
    assert "kernels that compute in float: Gelu (1); kernels that sum integers and" in note
    assert "scale them to float32: MatMulNBits (3). Their last bits may differ" in note
    assert own == print_prediction.OWN_BLOCKS


def test_each_layer_that_gave_up_range_has_a_row() -> None:
    made, _ = planned("everywhere")
    rows = print_prediction.reduced_rows(made)
    assert [row[0] for row in rows] == list(made.reductions)
    assert rows[0][1:] == ("8 of 8", "x 1.984", "x 1.984")
