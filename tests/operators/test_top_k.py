from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Call, Case, Float, IntegerCall, NodePlan
from onnxq.operator.examples import integers, ints
from onnxq.operators._plain_on_integers import PlainOnIntegers
from onnxq.operators.top_k import TopK
from tests.operators import builder
from tests.operators.builder import SHARED, copied

OP = TopK()


def test_of_equals_the_first_come_first() -> None:
    y, i = copied(OP, np.array([3, 7, 3, 7], np.uint8), ints(3))
    assert y.tolist() == [7, 7, 3]
    assert i.tolist() == [1, 3, 0]
    assert i.dtype == np.int64


def test_unsorted_results_stay_float() -> None:
    case = Case("", (np.zeros((2, 4), np.float32), ints(2)), (1,), {"sorted": 0}, outputs=2)
    rule = builder.rule(OP, case)
    assert isinstance(rule, Float)
    assert "sorted" in rule.reason.words


def test_unsorted_integers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="TopK"):
        PlainOnIntegers(OP).kernel(
            IntegerCall(
                PlainOnIntegers(OP).op_type, (integers(4), ints(2)), attributes={"sorted": 0}
            )
        )


@given(
    size=st.integers(1, 70),
    share=st.floats(0, 1),
    largest=st.integers(0, 1),
    values=st.sampled_from([2, 5, 256]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_kernel_equals_onnx_runtime_for_any_k(
    size: int, share: float, largest: int, values: int, seed: int
) -> None:
    x = np.random.default_rng(seed).integers(0, values, (3, size, 2)).astype(np.uint8)
    k, attributes = ints(round(size * share)), {"axis": 1, "largest": largest}
    case = Case("k", (x.astype(np.float32), k), (1,), attributes, outputs=2)
    plan = NodePlan((SHARED, None), (SHARED, None))
    wanted = builder.run(builder.lowered_model(OP, case, plan, [x, k]), case, [x, k])
    for y, ort in zip(
        OP.kernel(Call(OP.op_type, [x, k], plan, attributes=attributes)), wanted, strict=True
    ):
        assert np.array_equal(y, ort)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((integers(3), ints(4)), {}),
        ((integers(3), ints(-1)), {}),
        ((integers(3), ints(1, 2)), {}),
        ((integers(3), ints(1)), {"axis": 1}),
        ((integers(3), None), {}),
    ],
)
def test_kernel_refuses_what_does_not_fit(inputs: Any, attributes: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="TopK"):
        copied(OP, *inputs, **attributes)
