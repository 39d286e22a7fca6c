from __future__ import annotations

import numpy as np
import pytest

from onnxq import catalog
from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Array, Call, Case, Float, NodePlan
from onnxq.operators._select import Extremum, Selection
from onnxq.qparams import IntArray, per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, integers

SELECTIONS = [op for op in catalog.all_operators() if isinstance(op, Selection)]
COPYING = [op for op in SELECTIONS if op.outputs]  # ArgMax gives an index
EXTREMA = [op for op in catalog.all_operators() if isinstance(op, Extremum)]
NOT_FUSED = {"GatherND", "SpaceToDepth"}


def beyond(_: Call, x: IntArray) -> Array:
    return np.asarray(np.take(x, 9))


def test_selections_that_onnx_runtime_does_not_fuse_are_exactly_these() -> None:
    assert {op.op_type for op in SELECTIONS if op.lowered} == NOT_FUSED


@pytest.mark.parametrize("operator", COPYING, ids=lambda op: op.op_type)
def test_integers_are_not_copied_between_different_qparams(operator: Selection) -> None:
    plan = NodePlan((SHARED,), (per_tensor(0.25, 7, UINT8),))
    with pytest.raises(ShapeError, match=f"{operator.op_type}: .* equal qparams"):
        operator.kernel(Call(operator.op_type, [integers(2, 3)], plan))


def test_numpys_refusals_name_the_operator() -> None:
    with pytest.raises(ShapeError, match="Mine: index 9 is out of bounds"):
        builder.copied(Selection("Mine", beyond, tuple), integers(3))


@pytest.mark.parametrize("operator", EXTREMA, ids=lambda op: op.op_type)
def test_an_extremum_of_a_mask_stays_float(operator: Extremum) -> None:
    x = np.zeros((2, 2), np.float32)
    case = Case("", (x, np.array(-3.4e38, np.float32)), (1,))
    assert isinstance(builder.rule(operator, case), Float)


@pytest.mark.parametrize("operator", EXTREMA, ids=lambda op: op.op_type)
def test_all_operands_of_an_extremum_are_integers(operator: Extremum) -> None:
    x = np.zeros((2, 2), np.float32)
    rule = builder.rule_of(operator, Case("", (x, x, x)))
    assert (rule.lowered, rule.activations) == (True, (0, 1, 2))
