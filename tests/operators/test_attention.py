from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from onnxq.affine import dequantize
from onnxq.errors import ShapeError
from onnxq.operator import Call, Float, Precision
from onnxq.operators.attention import Attention
from tests.operators import builder
from tests.operators.builder import Types

OP = Attention()
CASES = {case.name: case for case in OP.cases()}


def test_queries_keys_and_values_are_integers_and_it_computes_in_float() -> None:
    for case in CASES.values():
        rule = builder.rule_of(OP, case)
        assert rule.precision is Precision.FLOAT_BETWEEN_QDQ
        assert rule.activations == (0, 1, 2)
        assert rule.outputs == (0,)


def test_scores_that_are_read_leave_it_in_float() -> None:
    verdict = builder.rule(OP, dataclasses.replace(CASES["plain"], outputs=4))
    assert isinstance(verdict, Float)
    assert "scores" in verdict.reason.words


def test_lengths_of_keys_leave_it_in_float() -> None:
    case = CASES["plain"]
    inputs = (*case.inputs, None, None, None, np.array([3, 6]))
    verdict = builder.rule(OP, dataclasses.replace(case, inputs=inputs, opset=24))
    assert isinstance(verdict, Float)
    assert "lengths" in verdict.reason.words


def test_present_keys_are_the_past_and_what_the_integers_stand_for() -> None:
    case = CASES["past"]
    plan = builder.plan_of(OP, case, Types())
    integers = builder.integers_of(case, plan)
    _, keys, values = OP.kernel(Call(OP.op_type, integers, plan))
    for got, slot in ((keys, 1), (values, 2)):
        p, x, past = plan.inputs[slot], integers[slot], case.inputs[slot + 3]
        assert p is not None
        assert x is not None
        assert past is not None
        assert np.array_equal(got, np.concatenate([past, dequantize(np.asarray(x), p)], axis=2))


@pytest.mark.parametrize(
    ("name", "attributes", "match"),
    [
        ("heads side by side", {"q_num_heads": 5, "kv_num_heads": 2}, "with 5 heads"),
        ("heads side by side", {"q_num_heads": 4}, "with 0 heads"),
        ("heads side by side", {"q_num_heads": 1, "kv_num_heads": 2}, "1 heads of Q, 2 of K"),
    ],
)
def test_heads_that_do_not_fit_are_named(name: str, attributes: dict[str, int], match: str) -> None:
    case = CASES[name]
    plan = builder.plan_of(OP, case, Types())
    with pytest.raises(ShapeError, match=match):
        OP.kernel(Call(OP.op_type, builder.integers_of(case, plan), plan, attributes=attributes))


def test_a_mask_that_does_not_broadcast_is_refused() -> None:
    case = CASES["float mask"]
    plan = builder.plan_of(OP, case, Types())
    integers = builder.integers_of(case, plan)
    integers[3] = np.zeros((5, 4), np.float32)
    with pytest.raises(ShapeError, match="Attention"):
        OP.kernel(Call(OP.op_type, integers, plan))
