from __future__ import annotations

import platform

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.operator import Case, NodeCall
from onnxq.operator.examples import ints
from onnxq.operators._sums import count_over, sum_over
from onnxq.operators.reduce_sum import ReduceSum
from tests.operators import builder

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 8, 13, 30]), min_size=1, max_size=5)


@given(shape=SHAPES, data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_sums_have_the_order_of_onnx_runtime(
    shape: list[int], data: st.DataObject, seed: int
) -> None:
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    x = np.random.default_rng(seed).integers(-113, 143, shape).astype(np.float32)
    x *= np.float32(0.0371)  # sums that float32 has to round
    case = Case("sum", (x, ints(*axes)), (1,))
    (wanted,) = builder.run_float(ReduceSum(), case)
    got = sum_over(NodeCall("Op", ()), x, axes)
    if platform.machine() == "x86_64":
        assert np.array_equal(got, wanted)
    noise = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    assert noise.max() <= 1e-5 * np.abs(x).sum()  # whatever the order


def test_no_elements_sum_to_0() -> None:
    assert sum_over(
        NodeCall("Op", (), attributes={"keepdims": 0}), np.zeros((3, 0), np.float32), [1]
    ).tolist() == [0, 0, 0]


def test_counts_are_products() -> None:
    assert count_over((2, 3, 4), [0, 2]) == 8
