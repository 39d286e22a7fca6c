"""Predicted noise against that of the very tensor, quantized."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.observers import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver
from onnxq.observers.tensor_noise import decibels, predicted_noise
from tests.observers.whole import observe_whole

if TYPE_CHECKING:
    from onnxq.qparams import QParams

COUNT = 100_000
RNG = np.random.default_rng(3)
NORMAL = RNG.normal(size=COUNT)
DECADES = NORMAL * np.exp(3 * RNG.normal(size=COUNT))
SHAPES: dict[str, npt.NDArray[np.floating]] = {
    "normal": NORMAL,
    "half-normal": np.abs(NORMAL),
    "relu": np.maximum(NORMAL, 0),
    "gelu": NORMAL / (1 + np.exp(-1.7 * NORMAL)),
    "log-normal": np.exp(2 * NORMAL),
    "laplace": RNG.laplace(size=COUNT),
    "student t3": RNG.standard_t(3, COUNT),
    "outliers": NORMAL * np.where(RNG.random(COUNT) < 1e-3, 200, 1),
    "sparse": NORMAL * (RNG.random(COUNT) < 0.01),
    "spectrum": DECADES,
    "powers of a spectrum": DECADES**2,
    "logarithms of a spectrum": np.log(1e-6 + DECADES**2),
}
WITHIN_DB = 0.6  # a step over the bins beside zero, where the spectrum's few large values count


def measured(x: npt.NDArray[np.float32], p: QParams) -> tuple[float, float]:
    """(SQNR in dB, share of the error beyond the integers)."""
    error = np.square(x - dequantize(quantize(x, p), p).astype(np.float64))
    zero, scale = int(p.zero_point), float(p.scale)
    beyond = (x > (255.5 - zero) * scale) | (x < (-0.5 - zero) * scale)
    signal = float(np.square(x, dtype=np.float64).sum())
    return decibels(signal, float(error.sum())), float(error[beyond].sum() / error.sum())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chooser", [HistogramObserver, MinMaxObserver])
def test_the_prediction_is_what_quantizing_the_tensor_gives(
    shape: str, chooser: type[HistogramObserver | MinMaxObserver]
) -> None:
    x = SHAPES[shape].astype(np.float32)
    seen, chosen = HistogramObserver(), chooser()
    observe_whole(seen, x)
    observe_whole(chosen, x)
    qparams = chosen.calculate_qparams()
    noise = predicted_noise(seen, qparams)
    sqnr_db, clipped = measured(x, qparams)
    assert noise is not None
    assert noise.sqnr_db == pytest.approx(sqnr_db, abs=WITHIN_DB)
    assert noise.clipped_share == pytest.approx(clipped, abs=0.03)


def test_zeros_and_values_on_levels_have_no_error() -> None:
    mask = np.where(RNG.random(COUNT) < 0.5, np.float32(-1), np.float32(0))
    seen = HistogramObserver()
    seen.observe(mask, 0)
    noise = predicted_noise(seen, seen.calculate_qparams())
    assert noise is not None
    # float32 scales: 255 steps of 1 / 255 are 1 to 1e-7
    assert noise.sqnr_db is not None
    assert noise.sqnr_db > 120
    assert noise.integers == pytest.approx(2, abs=0.01)


def test_integers_in_use_are_counted_by_their_entropy() -> None:
    seen = HistogramObserver()
    seen.observe(np.linspace(0, 1, COUNT, dtype=np.float32), 0)
    noise = predicted_noise(seen, seen.calculate_qparams())
    assert noise is not None
    assert noise.integers == pytest.approx(256, rel=0.01)


def test_a_range_alone_gives_the_noise_of_many_integers_and_no_signal() -> None:
    seen = MinMaxObserver()
    seen.observe(NORMAL.astype(np.float32), 0)
    qparams = seen.calculate_qparams()
    noise = predicted_noise(seen, qparams)
    assert noise is not None
    assert noise.sqnr_db is None
    assert noise.power == pytest.approx(float(qparams.scale) ** 2 / 12)


def test_scales_per_channel_and_unseen_tensors_have_no_prediction() -> None:
    channels = PerChannelMinMaxObserver()
    channels.observe(np.ones((3, 4), np.float32), 0)
    assert predicted_noise(channels, channels.calculate_qparams()) is None
    one = MinMaxObserver()
    one.observe(np.ones(3, np.float32), 0)
    assert predicted_noise(HistogramObserver(), one.calculate_qparams()) is None


def test_decibels_stay_finite() -> None:
    assert math.isfinite(decibels(0.0, 1.0))
    assert math.isfinite(decibels(1.0, 0.0))
    assert decibels(100.0, 1.0) == pytest.approx(20)
