from __future__ import annotations

import numpy as np
import pytest

from onnxq.observers import EntropyObserver, MinMaxObserver
from onnxq.observers._bins import ZeroAnchoredHistogram
from onnxq.observers.histogram import least_divergent_threshold
from tests.observers.whole import observe_whole

X = np.random.default_rng(2).normal(size=200_000).astype(np.float32)


def test_clips_a_lone_outlier() -> None:
    observer = EntropyObserver()
    observer.observe(np.append(X, np.float32(60)), 0)
    width = float(observer.calculate_qparams().scale) * 255
    assert 6 < width < 12  # the bulk is -4.6 .. 4.7; 60 is not in it


def test_keeps_a_uniform_range_whole() -> None:
    x = np.random.default_rng(4).random(200_000).astype(np.float32)
    observer = EntropyObserver()
    observer.observe(x, 0)
    assert float(observer.calculate_qparams().scale) * 255 == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_constants_are_as_min_max_has_them(value: float) -> None:
    x = np.full(50, value, np.float32)
    own, reference = EntropyObserver(), MinMaxObserver()
    own.observe(x, 0)
    reference.observe(x, 0)
    assert own.calculate_qparams() == reference.calculate_qparams()


def test_exact_zeros_do_not_count() -> None:
    positive = np.abs(X)
    with_zeros = np.concatenate([positive, np.zeros(1_000_000, np.float32)])
    results = []
    for x in (positive, with_zeros):
        observer = EntropyObserver()
        observe_whole(observer, x)
        results.append(observer.calculate_qparams())
    assert results[0] == results[1]


def test_threshold_is_the_maximum_where_bins_are_no_more_than_integers() -> None:
    histogram = ZeroAnchoredHistogram(64)
    histogram.add(np.abs(X), np.abs(X).min(), np.abs(X).max())
    assert least_divergent_threshold(histogram, 128) == np.abs(X).max()
