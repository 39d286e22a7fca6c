from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.observers import HistogramObserver, Observer, PercentileObserver
from onnxq.operator import Curve
from onnxq.static.noise.curves_behind import CurveBehind
from onnxq.static.planning.activation_qparams import with_curves

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.qparams import QParams


@pytest.fixture(name="x", scope="module")
def _x() -> Singles:
    """Student's t: of least squared error is a grid that gives up the largest values."""
    return np.random.default_rng(3).standard_t(5, size=20_000).astype(np.float32)


def seen(observer: Observer, x: Singles) -> Observer:
    observer.observe(x, 0)
    return observer


def behind(x: Singles, function: np.ufunc) -> CurveBehind:
    return CurveBehind(Curve(0, function), float(x.min()), float(x.max()))


def largest(p: QParams) -> float:
    return float((p.dtype.qmax - p.zero_point) * p.scale)


def error(x: Singles, p: QParams) -> float:
    exact = np.exp(x.astype(np.float64))
    rounded = np.exp(dequantize(quantize(x, p), p).astype(np.float64))
    return float(np.square(rounded - exact).mean())


def test_largest_values_are_kept_ahead_of_exp(x: Singles) -> None:
    observer = seen(HistogramObserver(), x)
    least = observer.calculate_qparams()
    found = with_curves(observer, least, [behind(x, np.exp)])
    assert largest(least) < 0.95 * x.max() < largest(found)
    assert error(x, found) < error(x, least) / 10


def test_ends_where_the_function_is_flat_stay(x: Singles) -> None:
    observer = seen(HistogramObserver(), x)
    least = observer.calculate_qparams()
    found = with_curves(observer, least, [behind(x, np.exp)])
    low, least_low = (-float(p.zero_point) * float(p.scale) for p in (found, least))
    assert low == pytest.approx(least_low, abs=float(found.scale))


def test_bounded_functions_change_nothing(x: Singles) -> None:
    observer = seen(HistogramObserver(), x)
    least = observer.calculate_qparams()
    assert with_curves(observer, least, [behind(x, np.tanh)]) is least


def test_tensors_that_no_function_reads_change_nothing(x: Singles) -> None:
    observer = seen(HistogramObserver(), x)
    least = observer.calculate_qparams()
    assert with_curves(observer, least, []) is least


def test_qparams_of_one_sign_keep_their_zero_point(x: Singles) -> None:
    observer = seen(HistogramObserver(), np.abs(x))
    least = observer.calculate_qparams()
    found = with_curves(observer, least, [behind(np.abs(x), np.exp)])
    assert found.zero_point == least.zero_point == 0
    assert found.scale > least.scale


def test_a_percentile_that_the_user_names_is_kept(x: Singles) -> None:
    observer = seen(PercentileObserver(), x)
    asked = observer.calculate_qparams()
    assert with_curves(observer, asked, [behind(x, np.exp)]) is asked
