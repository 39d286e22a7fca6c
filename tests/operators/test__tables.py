from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import INT8, INT16, UINT8, QDType
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import NodeCall, NodePlan
from onnxq.operators._tables import (
    DIRECT,
    Codes,
    all_codes,
    is_tabulable,
    look_up,
    look_up_pairs,
    requantize_codes,
    rounded,
    tabulate,
)
from onnxq.qparams import per_tensor


@pytest.mark.parametrize(("dtype", "low"), [(UINT8, 0), (INT8, -128)])
def test_every_code_is_looked_up_at_its_place(dtype: QDType, low: int) -> None:
    every = all_codes(dtype)
    assert (every[0], every[-1], len(every)) == (low, low + 255, 256)
    x = every.astype(dtype.storage).reshape(16, 16)
    np.testing.assert_array_equal(look_up(every * 2, x, dtype), x.astype(np.int32) * 2)


def test_wide_types_are_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match="choose uint8 or int8"):
        all_codes(INT16)


def difference(a: Codes, b: Codes) -> np.ndarray:
    return np.asarray(a - b)


def test_pairs_of_types_and_shapes_that_broadcast() -> None:
    a = np.array([[0], [255]], np.uint8)
    b = np.array([-128, 0, 127], np.int8)
    got = look_up_pairs(NodeCall("Sub", ()), difference, (a, UINT8), (b, INT8))
    assert got.tolist() == [[128, 0, -127], [383, 255, 128]]


def test_shapes_that_do_not_broadcast_are_refused() -> None:
    a, b = np.zeros(2, np.uint8), np.zeros(3, np.uint8)
    with pytest.raises(ShapeError, match="Sub: shape mismatch"):
        look_up_pairs(NodeCall("Sub", ()), difference, (a, UINT8), (b, UINT8))


@pytest.mark.parametrize("size", [100, 200])
def test_large_arrays_of_pairs_give_what_small_ones_do(size: int) -> None:
    random = np.random.default_rng(0)
    a = random.integers(0, 256, (size, size)).astype(np.uint8)
    b = random.integers(-128, 128, (1, size)).astype(np.int8)
    assert (size * size > DIRECT) == (size > 100)
    got = look_up_pairs(NodeCall("Sub", ()), difference, (a, UINT8), (b, INT8))
    assert np.array_equal(got, a.astype(np.int32) - b)


def test_codes_are_the_same_array_where_qparams_are_equal() -> None:
    x = np.array([0, 7, 255], np.uint8)
    p, q = per_tensor(0.5, 7, UINT8), per_tensor(1.0, 0, UINT8)
    assert requantize_codes(x, p, p) is x
    assert requantize_codes(x, p, q).tolist() == [0, 0, 124]


def test_nan_and_infinity_have_codes() -> None:
    p = per_tensor(1.0, 1, UINT8)
    with np.errstate(all="raise"):
        table = tabulate(np.log, p, p)
    assert table[:4].tolist() == [0, 0, 1, 2]


def test_functions_round_to_float32_once() -> None:
    got = rounded(lambda x: x / 3, np.array([1], np.float32))
    assert got.dtype == np.float32
    assert got[0] == np.float32(1 / 3)


def test_only_eight_bits_have_tables() -> None:
    narrow, wide = per_tensor(1.0, 0, UINT8), per_tensor(1.0, 0, INT16)
    assert is_tabulable(NodePlan((narrow, None), (narrow,)))
    assert not is_tabulable(NodePlan((narrow,), (wide,)))
    with pytest.raises(UnsupportedError, match="8 bits"):
        tabulate(np.sin, wide, wide)
