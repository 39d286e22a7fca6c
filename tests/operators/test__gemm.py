from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.operators._gemm import integer_matmul


@given(
    bound=st.sampled_from([1, 127, 255, 4095, 65535]),
    inner=st.sampled_from([0, 1, 3, 257, 258, 1500]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_product_is_exact_modulo_two_to_the_32(bound: int, inner: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    a = random.integers(-bound, bound + 1, (2, 3, inner))
    b = random.integers(-bound, bound + 1, (inner, 4))
    got = integer_matmul(a.astype(np.float32), b.astype(np.float32))
    assert np.array_equal(got, (a @ b).astype(np.int32))


@pytest.mark.parametrize("value", [255, 65535])
def test_the_largest_sums_are_exact(value: int) -> None:
    a = np.full((1, 5000), value, np.float32)
    exact = np.array(5000 * value**2, np.int64).astype(np.int32)
    assert integer_matmul(a, a.T.copy()).item() == exact
