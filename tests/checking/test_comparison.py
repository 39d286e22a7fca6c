from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.affine import dequantize, quantize
from onnxq.checking.comparison import CHUNK_ELEMENTS, Comparison, Top1Agreement
from onnxq.dtypes import INT8, UINT8
from onnxq.qparams import per_tensor

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles


def normal(seed: int, *shape: int) -> Singles:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compared(*pairs: tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]) -> Comparison:
    comparison = Comparison()
    for x, y in pairs:
        comparison.update(x, y)
    return comparison


def test_formulas_are_those_of_the_docstring() -> None:
    x, y = normal(0, 3, 7), normal(1, 3, 7)
    got = compared((x, y))
    a, b = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
    assert got.sqnr_db == pytest.approx(10 * np.log10((a @ a) / ((a - b) @ (a - b))))
    assert got.cosine == pytest.approx((a @ b) / np.linalg.norm(a) / np.linalg.norm(b))
    assert got.max_error == np.abs(a - b).max()
    assert got.elements == 21


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 2 * CHUNK_ELEMENTS + 1), st.integers(0, 2 * CHUNK_ELEMENTS + 1))
def test_result_does_not_depend_on_how_the_stream_is_cut(size: int, cut: int) -> None:
    x, y = normal(0, size), normal(1, size)
    whole, parts = compared((x, y)), compared((x[:cut], y[:cut]), (x[cut:], y[cut:]))
    assert parts.max_error == whole.max_error
    # sums of < 2^15 float64 terms in another order: relative 2^-53 * 2^15, times 4.3 dB
    assert parts.sqnr_db == pytest.approx(whole.sqnr_db, abs=1e-10)
    assert parts.cosine == pytest.approx(whole.cosine, abs=1e-10)


def test_equal_streams_have_infinite_sqnr() -> None:
    x = normal(0, 10)
    got = compared((x, x))
    assert got.sqnr_db == math.inf
    assert got.cosine == pytest.approx(1.0)
    assert got.max_error == 0.0


def test_zeros_that_became_something_have_no_signal() -> None:
    got = compared((np.zeros(3, np.float32), np.ones(3, np.float32)))
    assert got.sqnr_db == -math.inf
    assert got.cosine == 0.0


def test_two_zero_streams_are_alike() -> None:
    got = compared((np.zeros(3, np.float32), np.zeros(3, np.float32)))
    assert got.sqnr_db == math.inf
    assert got.cosine == 1.0


def test_equal_infinities_are_no_error() -> None:
    x = np.array([np.inf, -np.inf, 1.0], np.float32)
    assert compared((x, x)).max_error == 0.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_on_both_sides_is_left_out(value: float) -> None:
    x, y = np.array([value, 3.0, 4.0]), np.array([value, 3.0, 4.5])
    got = compared((x, y))
    assert got.sqnr_db == compared((x[1:], y[1:])).sqnr_db == 20.0
    assert got.max_error == 0.5
    assert compared((x, x)).sqnr_db == math.inf
    assert math.isnan(compared((x[:1], x[:1])).sqnr_db)  # nothing was compared


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_on_one_side_show(bad: float) -> None:
    got = compared((np.array([bad, 1.0]), np.array([0.0, 1.0])))
    assert math.isnan(got.sqnr_db)
    assert not got.max_error < 1e300


def test_integers_do_not_wrap() -> None:
    got = compared((np.array([0], np.uint8), np.array([255], np.uint8)))
    assert got.max_error == 255.0


def test_an_empty_batch_adds_nothing() -> None:
    x = normal(0, 4)
    empty = np.zeros((0, 4), np.float32)
    got = compared((empty, empty), (x, x))
    assert got.elements == 4
    assert compared((empty, empty)).saturated_share == 0.0


@pytest.mark.parametrize("p", [per_tensor(0.1, 100, UINT8), per_tensor(0.02, -3, INT8)])
def test_integers_are_dequantized(p: object) -> None:
    from onnxq.qparams import QParams

    assert isinstance(p, QParams)
    x = normal(0, 2, CHUNK_ELEMENTS + 5)
    integers = quantize(x, p)
    got = Comparison()
    got.update(x, integers, p)
    assert got.max_error == compared((x, dequantize(integers, p))).max_error


def test_saturated_counts_what_lies_half_a_step_beyond_the_integers() -> None:
    p = per_tensor(1.0, 0, UINT8)
    x = np.array([-0.6, -0.4, 0.0, 255.0, 255.4, 255.6], np.float32)
    got = Comparison()
    got.update(x, quantize(x, p), p)
    assert got.saturated_share == pytest.approx(2 / 6)


def test_memory_does_not_grow_with_the_array() -> None:
    x = normal(0, 100 * CHUNK_ELEMENTS)
    integers = quantize(x, per_tensor(0.1, 0, UINT8))
    tracemalloc.start()
    Comparison().update(x, integers, per_tensor(0.1, 0, UINT8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 8 * CHUNK_ELEMENTS  # some float64 copies of one piece; the array has 100


def test_agreement_counts_rows_with_equal_argmax() -> None:
    agreement = Top1Agreement()
    assert agreement.share is None
    agreement.update(np.array([[1, 2], [3, 0]]), np.array([[0, 1], [0, 1]]))
    agreement.update(np.array([[5, 5]]), np.array([[7, 7]]))  # among equals the first counts
    assert agreement.share == pytest.approx(2 / 3)
