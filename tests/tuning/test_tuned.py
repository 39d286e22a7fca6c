from __future__ import annotations

import math
from dataclasses import replace

import onnx_ir as ir

from onnxq.qconfig import default_qconfig_mapping
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.tuning.goal import Goal
from onnxq.tuning.score import Score
from onnxq.tuning.sensitivity import GroupCost, Sensitivity
from onnxq.tuning.times import Times
from onnxq.tuning.tuned import MOST_ROWS, Checked, Tuned
from tests.examples import network

SCORE = Score(30.0, {"y": 30.0}, 1000, 1.0)
COST = GroupCost("Conv, a", math.inf, {"y": 30.0}, 31.0, math.nan, 4)


def tuned(*costs: GroupCost) -> Tuned:
    """A search that measured these groups, and no more."""
    model = QuantizedModel(ir.serde.deserialize_model(network()).graph, ir_version=10)
    sensitivity = Sensitivity(costs, 0, agreed=True, runs=1.0)
    checked = Checked("samples, every 4th", math.inf, SCORE)
    mapping = default_qconfig_mapping()
    return Tuned(model, mapping, SCORE, checked, math.inf, (), (), (), sensitivity, None, Goal())


def test_error_that_does_not_show_is_a_dash() -> None:
    row = next(line for line in tuned(COST).report().splitlines() if line.startswith("Conv, a"))
    assert row.split()[-3:] == ["30.0", "31.0", "-"]


def test_report_says_what_could_not_be_made() -> None:
    found = tuned(COST)
    refused = replace(found.sensitivity, refused={"MatMul, b": "no kernel"})
    times = Times("here", {}, {}, {}, {}, 1.0, ("no times of the model in all integers",))
    report = replace(found, sensitivity=refused, times=times).report()
    assert "note: not measured: MatMul, b: no kernel" in report
    assert "note: no times of the model in all integers" in report


def test_count_of_further_groups_stands_apart_from_the_next_table() -> None:
    costs = [replace(COST, group=f"g{i}") for i in range(MOST_ROWS + 2)]
    lines = tuned(*costs).report().splitlines()
    at = lines.index("and 2 more")
    assert lines[at + 1] == ""
