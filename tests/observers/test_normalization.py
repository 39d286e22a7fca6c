"""Predicted signal and error behind a normalization against those of the normalized tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import CalibrationError
from onnxq.observers import NormalizationObserver
from onnxq.operators._normalize import normalized, root_mean_square_normalized

EPSILON = 1e-5
RNG = np.random.default_rng(5)
Reals = npt.NDArray[np.float64]


def stream(outlier: float = 100.0) -> Reals:
    """(rows, channels): three channels far larger than the others, rows of sizes of their own."""
    x: Reals = RNG.normal(size=(400, 96)) * np.exp(RNG.normal(size=(400, 1)) / 2)
    x[:, [3, 40, 77]] *= outlier
    return x


def noise_like(x: Reals, power: float) -> Reals:
    return np.asarray(RNG.uniform(-1, 1, x.shape) * np.sqrt(3 * power))


def decibels(signal: Reals, noise: Reals) -> float:
    return float(10 * np.log10(np.square(signal).mean() / np.square(noise).mean()))


@pytest.mark.parametrize("power", [1e-3, 0.05, 0.3])
def test_the_ratio_behind_a_layer_normalization_is_the_measured_one(power: float) -> None:
    x = stream()
    gain = np.ones(96)
    gain[[3, 40, 77]] = 0.02
    error = noise_like(x, power)
    right, wrong = (normalized(a, (1,), EPSILON) * gain for a in (x, x + error))
    observer = NormalizationObserver()
    observer.observe(x.astype(np.float32), 0)
    signal, noise = observer.behind(np.asarray(power), gain)
    predicted = 10 * np.log10(signal / noise)
    assert predicted == pytest.approx(decibels(right, wrong - right), abs=0.7)
    # in itself, the tensor is 15 dB better: that is the trap
    assert decibels(x, error) > predicted + 15


def test_the_same_without_a_mean() -> None:
    x = stream(20.0) + 3
    error = noise_like(x, 0.05)
    right, wrong = (root_mean_square_normalized(a, (1,), EPSILON) for a in (x, x + error))
    observer = NormalizationObserver(centred=False)
    observer.observe(x.astype(np.float32), 0)
    signal, noise = observer.behind(np.asarray(0.05), np.ones(()))
    assert 10 * np.log10(signal / noise) == pytest.approx(decibels(right, wrong - right), abs=0.7)


@pytest.mark.parametrize("groups", [0, 2])
def test_the_same_over_space(groups: int) -> None:
    x = RNG.normal(size=(3, 6, 9, 7)) * np.array([0.02, 0.1, 1, 1, 3, 30]).reshape(1, 6, 1, 1)
    error = noise_like(x, 1e-3)

    def norm(a: Reals) -> Reals:
        split = a if not groups else a.reshape(3, groups, -1, 9, 7)
        return normalized(split, tuple(range(2, split.ndim)), EPSILON).reshape(a.shape)

    observer = NormalizationObserver(axis=2, ch_axis=1, groups=groups)
    observer.observe(x.astype(np.float32), 0)
    signal, noise = observer.behind(np.asarray(1e-3), np.ones(()))
    right = norm(x)
    measured = decibels(right, norm(x + error) - right)
    assert 10 * np.log10(signal / noise) == pytest.approx(measured, abs=1.5)


def test_ranges_are_those_of_the_channels() -> None:
    x = stream().astype(np.float32)
    observer = NormalizationObserver()
    observer.observe(x[:100], 0)
    observer.observe(x[100:], 1)
    np.testing.assert_array_equal(observer.channel_min, x.min(axis=0))
    np.testing.assert_array_equal(observer.channel_max, x.max(axis=0))


def test_axes_and_groups_that_a_tensor_lacks_are_refused() -> None:
    with pytest.raises(CalibrationError, match="batch 2: shape"):
        NormalizationObserver(axis=4).observe(np.ones((2, 3), np.float32), 2)
    with pytest.raises(CalibrationError, match="3 channels are no 2 groups"):
        NormalizationObserver(axis=2, ch_axis=1, groups=2).observe(
            np.ones((2, 3, 4), np.float32), 0
        )


def test_saved_channels_that_do_not_fit_together_are_refused() -> None:
    observer = NormalizationObserver()
    observer.observe(stream().astype(np.float32), 0)
    state = {**observer.state(), "channel_max": np.ones(4, np.float32)}
    with pytest.raises(CalibrationError, match="channels"):
        NormalizationObserver().load_state(state)
