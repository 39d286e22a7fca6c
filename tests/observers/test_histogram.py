from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.affine import fake_quantize
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import HistogramObserver, MinMaxObserver, Observer
from onnxq.observers.qparams_search import TOLERANCE, search_qparams
from onnxq.qparams import QParams, per_tensor
from tests.observers.whole import observe_whole

if TYPE_CHECKING:
    from onnxq.observers._bins import ZeroAnchoredHistogram
    from onnxq.observers.value_range import QuantRange

F32 = npt.NDArray[np.float32]
SYMMETRIC = {"dtype": "qint8", "qscheme": "per_tensor_symmetric"}
SLACK = 1.005 * (1 + TOLERANCE)  # of the histogram's bins; of the search
RNG = np.random.default_rng(11)
NORMAL = RNG.normal(size=200_000).astype(np.float32)
SHAPES: dict[str, F32] = {
    "normal": NORMAL,
    "relu": np.maximum(NORMAL, 0),
    "relu6": np.clip(4 * NORMAL, 0, 6),
    "gelu": (NORMAL / (1 + np.exp(-1.7 * NORMAL))).astype(np.float32),
    "laplace": RNG.laplace(size=200_000).astype(np.float32),
    "student t3": RNG.standard_t(3, 200_000).astype(np.float32),
    "one outlier": np.append(NORMAL, np.float32(60)),
    "outlier, one-sided range": np.append(NORMAL, np.float32(2e4)),
    "negative": -np.abs(NORMAL),
    "log-normal": np.exp(2 * NORMAL),
    "few": NORMAL[:200],
    "far from zero": NORMAL + 5,
}


def seen(x: F32, observer: Observer | None = None) -> Observer:
    observer = observer or HistogramObserver()
    observe_whole(observer, x)
    return observer


def qparams(x: F32, **arguments: object) -> QParams:
    return seen(x, HistogramObserver.with_args(**arguments)()).calculate_qparams()


def error(x: F32, p: QParams) -> float:
    return float(((fake_quantize(x, p).astype(np.float64) - x) ** 2).sum())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("arguments", [{}, SYMMETRIC, {"dtype": "qint8"}])
def test_error_is_nearly_least_among_the_qparams_around(
    shape: str, arguments: dict[str, object]
) -> None:
    x = SHAPES[shape]
    found = qparams(x, **arguments)
    least = error(x, found)
    zero = int(found.zero_point)
    low, high = found.dtype.qmin, found.dtype.qmax
    fixed = arguments == SYMMETRIC or zero in (low, high)
    for factor in (0.7, 0.9, 0.97, 0.99, 1.01, 1.03, 1.1, 1.4):
        for shift in [0] if fixed else [-8, -2, 0, 2, 8]:
            if not low <= zero + shift <= high:
                continue
            other = per_tensor(float(found.scale) * factor, zero + shift, found.dtype)
            assert least <= error(x, other) * SLACK
    widest = seen(x, MinMaxObserver.with_args(**arguments)()).calculate_qparams()
    assert least <= error(x, widest) * SLACK


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("arguments", [{}, SYMMETRIC])
def test_error_is_not_above_torchs(shape: str, arguments: dict[str, str]) -> None:
    import torch

    reference = torch.ao.quantization.HistogramObserver(
        **{k: getattr(torch, v) for k, v in arguments.items()}
    )
    reference(torch.from_numpy(SHAPES[shape].copy()))
    scale, zero_point = reference.calculate_qparams()
    own = qparams(SHAPES[shape], **arguments)
    torchs = per_tensor(scale.item(), int(zero_point.item()), own.dtype)
    assert error(SHAPES[shape], own) <= 1.002 * error(SHAPES[shape], torchs)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_of_qparams_as_good_takes_torchs() -> None:
    import torch

    reference = torch.ao.quantization.HistogramObserver()
    reference(torch.from_numpy(SHAPES["normal"].copy()))
    scale, zero_point = reference.calculate_qparams()
    own = qparams(SHAPES["normal"])
    assert float(own.scale) == pytest.approx(scale.item(), rel=1e-6)
    assert int(own.zero_point) == int(zero_point)


def test_pixels_are_lossless() -> None:
    pixels = RNG.integers(0, 256, 50_000)
    p = qparams(((pixels - 128) / 64).astype(np.float32))
    assert p == per_tensor(1 / 64, 128, p.dtype)
    p = qparams((pixels / 255).astype(np.float32))
    assert p == per_tensor(np.float32(1) / np.float32(255), 0, p.dtype)


@pytest.mark.parametrize("arguments", [{}, SYMMETRIC])
def test_pixels_that_miss_min_and_max_are_lossless(arguments: dict[str, object]) -> None:
    x = ((RNG.integers(9, 230, 50_000) - 128) / 64).astype(np.float32)
    p = qparams(x, **arguments)
    assert p.scale == np.float32(1 / 64)
    np.testing.assert_array_equal(fake_quantize(x, p), x)


def test_the_bound_of_relu6_is_a_level() -> None:
    p = qparams(SHAPES["relu6"])
    assert fake_quantize(np.asarray([6.0], np.float32), p)[0] == pytest.approx(
        6, abs=1e-3 * float(p.scale)
    )


def test_negative_min_survives_a_large_positive_outlier() -> None:
    # the zero point of the whole range is 0: a search that kept it would cut all below zero
    assert int(qparams(SHAPES["outlier, one-sided range"][:-1]).zero_point) > 100
    x = np.append(SHAPES["normal"], np.float32(40))
    assert int(qparams(x).zero_point) > 0


@pytest.mark.parametrize("value", [5.3, -1e30])
def test_constants_in_coarse_bins_have_a_small_error(value: float) -> None:
    x = np.full(100, value, np.float32)
    p = qparams(x, bins=64)
    np.testing.assert_allclose(fake_quantize(x, p), x, rtol=2 / 64)


@pytest.mark.parametrize("value", [0.0, 1e-9, 5.0, -5.0, 1e-42, 3e38])
def test_constants_are_as_min_max_has_them(value: float) -> None:
    x = np.full(100, value, np.float32)
    assert qparams(x) == seen(x, MinMaxObserver()).calculate_qparams()


def test_types_of_many_integers_take_the_whole_range() -> None:
    x = SHAPES["one outlier"]
    expected = seen(x, MinMaxObserver(dtype="uint16")).calculate_qparams()
    assert qparams(x, dtype="uint16") == expected


@pytest.mark.parametrize("dtype", ["uint4", "int4", "uint2"])
def test_types_of_few_integers_are_searched(dtype: str) -> None:
    x = SHAPES["normal"]
    widest = seen(x, MinMaxObserver(dtype=dtype)).calculate_qparams()
    assert error(x, qparams(x, dtype=dtype)) < 0.7 * error(x, widest)


def test_range_that_overflows_names_the_batch() -> None:
    observer = seen(np.asarray([3e38], np.float32))
    with pytest.raises(CalibrationError, match="batch 2"):
        observer.observe(np.asarray([-3e38], np.float32), 2)


def test_bins_are_checked_and_rounded_up() -> None:
    assert HistogramObserver(bins=2048).histogram.bins == 2048
    assert HistogramObserver(bins=2049).histogram.bins == 4096
    for bins in (0, 63, 10**9):
        with pytest.raises(QConfigError, match="wanted 64 to 65536"):
            HistogramObserver(bins=bins)


def test_upsample_rate_is_accepted() -> None:
    x = SHAPES["normal"]
    assert qparams(x, upsample_rate=128) == qparams(x)


def test_observing_and_searching_are_fast() -> None:
    x = np.tile(NORMAL, 10)
    observer = HistogramObserver()
    observer.observe(x, 0)
    started = time.process_time()
    observer.observe(x, 1)
    per_element = (time.process_time() - started) / x.size
    started = time.process_time()
    observer.calculate_qparams()
    search = time.process_time() - started
    # 2 ns and 12 ms where this was written; wide bounds, for slow and busy machines
    assert per_element < 20e-9
    assert search < 0.2


def test_the_search_is_done_once_for_what_was_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(histogram: ZeroAnchoredHistogram, integers: QuantRange) -> QParams:
        searched.append(histogram.maximum)
        return search_qparams(histogram, integers)

    monkeypatch.setattr("onnxq.observers.histogram.search_qparams", counted)
    observer = HistogramObserver()
    observer.observe(np.array([-1.0, 2.0], np.float32), 0)
    first = observer.calculate_qparams()
    assert observer.calculate_qparams() == first
    observer.observe(np.array([9.0], np.float32), 1)
    assert observer.calculate_qparams() != first
    assert searched == [2.0, 9.0]


def test_counts_of_even_bins_count_as_values_spread_over_them() -> None:
    values = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    counts, edges = np.histogram(values, 512)
    counted, seen = HistogramObserver(), HistogramObserver()
    counted.observe_counts(counts, (float(edges[0]), float(edges[-1])))
    seen.observe(values, 0)
    assert counted.histogram.counts.sum() == values.size
    scale, wanted = counted.calculate_qparams().scale, seen.calculate_qparams().scale
    np.testing.assert_allclose(scale, wanted, rtol=0.03)


def test_counts_that_are_none_are_refused_and_empty_ones_change_nothing() -> None:
    observer = HistogramObserver()
    with pytest.raises(CalibrationError, match="negative or not finite"):
        observer.observe_counts(np.array([1.0, np.nan]), (0.0, 1.0))
    observer.observe_counts(np.zeros(4), (np.inf, -np.inf))
    assert not observer.histogram.counts.any()
