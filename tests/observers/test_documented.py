from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.observers import HistogramObserver
from onnxq.observers.qparams_search import Moments, _cell_errors, _narrowing, documented_range
from tests.observers.whole import observe_whole

RNG = np.random.default_rng(5)
NORMAL = RNG.normal(size=100_000).astype(np.float32)
SHAPES: dict[str, npt.NDArray[np.float32]] = {
    "normal": NORMAL,
    "relu": np.maximum(NORMAL, 0),
    "laplace": RNG.laplace(size=100_000).astype(np.float32),
    "student t3": RNG.standard_t(3, 100_000).astype(np.float32),
    "uniform": RNG.uniform(-1, 3, 100_000).astype(np.float32),
    "positive": np.abs(NORMAL) + np.float32(2),
    "outlier": np.append(np.tile(NORMAL, 2), np.float32(60)),
}


def found(x: npt.NDArray[np.float32]) -> tuple[float, float]:
    observer = HistogramObserver()
    observe_whole(observer, x)
    low, high = documented_range(observer.histogram, Moments(observer.histogram), 256)
    return float(low), float(high)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_is_torchs_range(shape: str) -> None:
    import torch

    x = SHAPES[shape]
    reference = torch.ao.quantization.HistogramObserver()
    reference(torch.from_numpy(x.copy()))
    expected = [float(end) for end in reference._non_linear_param_search()]
    # two bins of torch's: ours are anchored elsewhere, so a quantile may fall into the next one
    np.testing.assert_allclose(found(x), expected, atol=2 * float(np.ptp(x)) / 2048)


@pytest.mark.parametrize("value", [0.0, 2.5, -1e30])
def test_constant_has_its_value_as_range(value: float) -> None:
    assert found(np.full(10, value, np.float32)) == (float(np.float32(value)),) * 2


def test_ranges_only_narrow_and_stop() -> None:
    counts = RNG.integers(0, 50, 2048) * RNG.integers(0, 2, 2048)
    ranges = list(_narrowing(np.cumsum(counts).astype(float).tolist()))
    for (start, end), (next_start, next_end) in pairwise(ranges):
        assert start <= next_start < next_end <= end
        assert (start == next_start) != (end == next_end)


def test_errors_are_integrals_over_the_cells() -> None:
    counts = RNG.integers(0, 9, 2048).astype(np.float64)
    mass = np.concatenate([[0.0], np.cumsum(counts)])
    moment = np.concatenate([[0.0], np.cumsum(counts * (np.arange(2048) + 0.5))])
    ranges = np.asarray([[0, 2048], [3, 1900], [700, 701]])
    x = (np.arange(2048 * 64) + 0.5) / 64
    weight = np.repeat(counts / 64, 64)
    for (start, end), error in zip(ranges, _cell_errors(mass, moment, ranges, 16), strict=True):
        size = (end - start) / 16
        cell = np.clip(np.floor((x - start) / size), 0, 15)
        middle = start + (cell + 0.5) * size
        expected = float((weight * ((x - middle) ** 2 - x**2)).sum())
        assert error == pytest.approx(expected, rel=1e-4)
