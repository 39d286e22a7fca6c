from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import QConfigError
from onnxq.observers import MinMaxObserver, PercentileObserver
from tests.observers.whole import observe_whole

if TYPE_CHECKING:
    from onnxq.qparams import QParams

X = np.random.default_rng(2).normal(size=100_000).astype(np.float32)


def qparams(percentile: float, **arguments: object) -> QParams:
    observer = PercentileObserver.with_args(percentile=percentile, **arguments)()
    observe_whole(observer, X)
    return observer.calculate_qparams()


@pytest.mark.parametrize("percentile", [99.99, 99.0, 80.0])
def test_leaves_out_half_of_the_rest_at_each_end(percentile: float) -> None:
    rest = (100 - percentile) / 200
    low, high = np.quantile(X, [rest, 1 - rest])
    p = qparams(percentile)
    assert float(p.scale) * 255 == pytest.approx(high - low, rel=2e-3)
    assert int(p.zero_point) == pytest.approx(-low / float(p.scale), abs=1)


def test_symmetric_takes_the_percentile_of_absolute_values() -> None:
    p = qparams(99.0, dtype="qint8", qscheme="per_tensor_symmetric")
    assert float(p.scale) * 127.5 == pytest.approx(np.quantile(np.abs(X), 0.99), rel=2e-3)


@pytest.mark.parametrize("scheme", ["per_tensor_affine", "per_tensor_symmetric"])
def test_all_of_it_is_min_max(scheme: str) -> None:
    observer = MinMaxObserver(qscheme=scheme, dtype="qint8")
    observer.observe(X, 0)
    p = qparams(100.0, qscheme=scheme, dtype="qint8")
    np.testing.assert_array_max_ulp(p.scale, observer.calculate_qparams().scale, 1)
    assert p.zero_point == observer.calculate_qparams().zero_point


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.5])
def test_percentile_outside_0_to_100_is_refused(percentile: float) -> None:
    with pytest.raises(QConfigError, match="0 < percentile <= 100"):
        PercentileObserver(percentile=percentile)


def test_zeros_give_the_smallest_scale() -> None:
    observer = PercentileObserver()
    observer.observe(np.zeros(10, np.float32), 0)
    assert observer.calculate_qparams().scale == np.float32(2**-23)
