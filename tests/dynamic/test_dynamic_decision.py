from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dtypes import INT8
from onnxq.dynamic.dynamic_decision import (
    DynamicPlan,
    DynamicWeightPlan,
    Objective,
    QuantizeDynamic,
    as_objective,
)
from onnxq.errors import CalibrationError, QConfigError
from onnxq.operator import DynamicNodePlan, Float, OperatorLimit, Precision
from onnxq.qparams import PerChannel, QParams

if TYPE_CHECKING:
    from pathlib import Path

QPARAMS = QParams(np.array([0.1, 0.3], np.float32), np.zeros(2, np.int8), INT8, PerChannel(1))
CHOSEN = QuantizeDynamic(
    Precision.DYNAMIC_INT8,
    OperatorLimit("int8 weights"),
    (DynamicWeightPlan(1, "w", (1, 0), QPARAMS, 64), DynamicWeightPlan(2, "r", None, None)),
)
PLAN = DynamicPlan(
    "hash",
    "portable",
    Objective.SIZE,
    {"a": CHOSEN, "b": Float(OperatorLimit("why"))},
    ("b",),
    ("note",),
)


def test_a_node_plan_has_the_qparams_of_each_weight() -> None:
    assert CHOSEN.node_plan == DynamicNodePlan(Precision.DYNAMIC_INT8, (QPARAMS, None))


def test_quantized_leaves_out_what_stays_float() -> None:
    assert PLAN.quantized == {"a": CHOSEN}


def test_plain_values_are_read_back_exactly() -> None:
    assert DynamicPlan.from_dict(json.loads(PLAN.to_json())) == PLAN


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "onnxq plan 1"}', '{"format": "onnxq dynamic plan 1"}']
)
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(CalibrationError, match=r"not a dynamic plan .* --save-plan"):
        DynamicPlan.load(tmp_path / "plan.json")


def test_objectives_have_names() -> None:
    assert as_objective("speed") is as_objective(Objective.SPEED) is Objective.SPEED
    with pytest.raises(QConfigError, match=r"objective 'sized' is not known.*Did you mean 'size'"):
        as_objective("sized")
