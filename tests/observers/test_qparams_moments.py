from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.observers._bins import ZeroAnchoredHistogram
from onnxq.observers.qparams_search import Moments

BINS = 1024


def moments(x: npt.ArrayLike) -> tuple[Moments, float]:
    values = np.asarray(x, np.float32)
    histogram = ZeroAnchoredHistogram(BINS)
    histogram.add(values, values.min(), values.max())
    return Moments(histogram), histogram.width


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_squared_error_is_that_of_the_data(sign: int, shift: float) -> None:
    x = sign * (np.random.default_rng(3).normal(size=200_000) + shift).astype(np.float32)
    found, width = moments(x)
    for scale, zero in ((0.03, 128), (0.05, 3), (0.02, 250), (0.01, 100)):
        q = np.clip(np.rint(x / scale), -zero, 255 - zero)
        expected = ((x - q * scale) ** 2).sum(dtype=np.float64)
        got = found.squared_error(
            np.asarray([scale / width]), np.asarray([-zero]), np.asarray([255 - zero])
        )
        # a bin is 1/128 wide: the spread assumed inside it moves sums of 200,000 values by 1e-3
        assert got[0] * width**2 == pytest.approx(expected, rel=2e-3)


def test_values_on_the_qparams_of_the_bins_are_exact() -> None:
    x = np.asarray([0, 0, 6, 6, 3, 1.5, -2], np.float32)
    found, width = moments(x)
    args = np.asarray([1.0 / width]), np.asarray([-1]), np.asarray([5])
    # 6 -> 5, 1.5 -> 1 or 2, -2 -> -1
    assert found.squared_error(*args)[0] * width**2 == pytest.approx(2 * 1 + 0.25 + 1)
    assert found.total == 7
    assert found.mean * width == pytest.approx(x.sum())
    assert found.square * width**2 == pytest.approx((x**2).sum())


def test_quantiles_are_exact_to_a_bin() -> None:
    x = np.random.default_rng(5).normal(size=50_000).astype(np.float32)
    found, width = moments(x)
    for share in (0.0, 0.001, 0.25, 0.5, 0.9, 0.9999, 1.0):
        assert found.quantile(share) * width == pytest.approx(np.quantile(x, share), abs=2 * width)


def test_quantiles_of_a_tensor_that_is_mostly_zero() -> None:
    found, width = moments(np.asarray([0] * 98 + [1, 4]))
    assert found.quantile(0.5) == 0
    assert found.quantile(1.0) * width == 4


def test_mass_below_is_nothing_or_everything_outside() -> None:
    found, _ = moments(np.asarray([-1.0, 0.5, 2.0]))
    mass, moment = found.below(np.asarray([-1e9, 1e9]))
    assert mass.tolist() == [0, 3]
    assert moment[0] == 0
    assert moment[1] == pytest.approx(found.mean)
