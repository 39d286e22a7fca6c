from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.core.threads import workers
from onnxq.dtypes import INT8, UINT8, UINT16
from onnxq.operators._gemm import integer_matmul, matmul_int32, origin
from onnxq.qparams import per_tensor

if TYPE_CHECKING:
    from onnxq.dtypes import QDType


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


SHAPES = (
    ((3, 700), (700, 4)),
    ((2, 3, 9), (9, 4)),
    ((2, 1, 3, 700), (5, 700, 2)),
    ((9,), (9,)),
    ((700,), (2, 700, 3)),
    ((2, 3, 700), (700,)),
    ((0, 9), (9, 2)),
    ((2, 0), (0, 3)),
)


@given(
    dtype=st.sampled_from([UINT8, INT8, UINT16]),
    share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    shapes=st.sampled_from(SHAPES),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_products_of_integers_are_exact_whatever_is_subtracted(
    dtype: QDType, share: float, shapes: tuple[tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    a = random.integers(dtype.qmin, dtype.qmax, shapes[0], dtype.storage.type, endpoint=True)
    b = random.integers(-128, 128, shapes[1])
    p = per_tensor(1.0, round(dtype.qmin + share * (dtype.qmax - dtype.qmin)), dtype)
    exact = (a.astype(np.int64) - int(p.zero_point)) @ b
    got = matmul_int32(a, p, b.astype(np.float32), 128)
    assert got.dtype == np.int32
    assert got.shape == exact.shape
    assert np.array_equal(got, exact.astype(np.int32))


def test_integers_stand_around_their_middle_where_sums_are_long() -> None:
    p = per_tensor(1.0, 3, UINT8)
    assert origin(p, 128, 520) == 3
    assert origin(p, 128, 521) == 128
    assert origin(per_tensor(1.0, 3, INT8), 128, 5000) == 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((300, 200), (200, 90)),
        ((3, 200), (200, 9000)),
        ((400, 200), (200,)),
        ((200,), (200, 400)),
        ((20000,), (20000,)),
        ((2, 300, 200), (200, 90)),
        ((4, 60, 70), (5, 1, 70, 300)),
        ((1, 90, 200), (6, 200, 400)),
    ],
    ids=str,
)
def test_workers_change_nothing(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-255, 256, s).astype(np.float32) for s in (a, b))
    wanted = integer_matmul(left, right)
    with workers(3):
        got = integer_matmul(left, right)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, wanted)
