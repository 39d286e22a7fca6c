"""Factors and exponents of smoothing, on arrays."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.weights.smoothing import (
    LinearLayer,
    expected_maxima,
    row_noise,
    smoothing_scales,
    varying_noise,
)

RNG = np.random.default_rng(3)
X = (RNG.normal(size=(256, 32)) * np.where(np.arange(32) % 16 == 3, 60, 1)).astype(np.float32)
W = RNG.normal(size=(32, 24)).astype(np.float32)


def rounded(x: np.typing.NDArray[np.float32], axis: int | None) -> np.typing.NDArray[np.float32]:
    """Symmetric 8 bits: one scale, or one per column."""
    scale = np.abs(x).max(axis, keepdims=True) / 127
    return np.asarray(np.rint(x / scale) * scale, np.float32)


LAYER = LinearLayer(
    W,
    undone=lambda factors: factors.reshape(-1, 1),
    rounded=lambda w: rounded(w, 0),
    rows=lambda x: x[np.newaxis],
    matrix=lambda w: w.T[np.newaxis],
    noise=row_noise,
)


def noise(exponent: float) -> float:
    x_max, w_max = np.abs(X).max(0).astype(float), np.abs(W).max(1).astype(float)
    factors = smoothing_scales(x_max, w_max, exponent)
    divided = rounded((X / factors).astype(np.float32), None)
    return LAYER.noises(LAYER.results(X, W), divided, factors)[0]


@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.8])
def test_factors_are_those_of_the_paper(exponent: float) -> None:
    """Equation 4 of SmoothQuant, as its published code has it (smooth.py, smooth_ln_fcs)."""
    x_max, w_max = np.abs(X).max(0).astype(float), np.abs(W).max(1).astype(float)
    published = (x_max**exponent / w_max ** (1 - exponent)).clip(1e-5)
    assert np.allclose(smoothing_scales(x_max, w_max, exponent), published, rtol=1e-12)


def test_exponent_of_a_half_gives_both_sides_one_maximum() -> None:
    x_max, w_max = np.abs(X).max(0).astype(float), np.abs(W).max(1).astype(float)
    s = smoothing_scales(x_max, w_max, 0.5)
    assert np.allclose(x_max / s, w_max * s)


def test_channels_of_zeros_have_finite_factors_that_enlarge_nothing() -> None:
    x_max, w_max = np.array([1.0, 0.0, 2.0]), np.array([0.5, 0.5, 0.0])
    s = smoothing_scales(x_max, w_max, 0.5)
    assert np.isfinite(s).all()
    assert (s > 0).all()
    assert x_max[2] / s[2] <= x_max[0] / s[0]


def test_what_two_halves_tell_apart_is_taken_for_larger_but_not_than_the_largest() -> None:
    maxima = np.array([[10.0, 1.0, 0.01, 0.0], [10.0, 1.0, 0.10, 0.5]])
    np.testing.assert_allclose(expected_maxima(maxima), [10.0, 1.0, 1.0, 10.0])
    np.testing.assert_array_equal(expected_maxima(maxima[:1]), maxima[0])


def test_outlying_channels_lose_less_at_the_best_exponent_than_at_any_far_from_it() -> None:
    """Brute force over a fine grid: the error has one valley, and the coarse grid finds it."""
    fine = {a: noise(a) for a in np.linspace(0, 1, 41)}
    least = min(fine.values())
    assert 10 * np.log10(fine[0.0] / least) > 6
    assert 10 * np.log10(min(noise(a) for a in (0.4, 0.5, 0.6, 0.7, 0.8)) / least) < 0.5


def test_row_noise_counts_a_row_of_huge_values_as_one_row() -> None:
    wanted = np.ones((10, 4), np.float32)
    got = wanted * np.float32(1.1)
    wanted[0], got[0] = 1e4, 1e4
    assert row_noise(wanted, got) == pytest.approx(0.9 * 0.01, rel=1e-3)


def test_an_error_that_is_the_same_in_all_rows_is_none_where_a_bias_takes_it_away() -> None:
    wanted = RNG.normal(size=(64, 4)).astype(np.float32)
    shifted = wanted + np.array([0.1, -0.2, 0.3, 0.4], np.float32)
    assert varying_noise(wanted, shifted) < 1e-12
    noisy = wanted + RNG.normal(size=(64, 4)).astype(np.float32)
    assert (
        varying_noise(wanted, noisy) < row_noise(wanted, noisy) < 1.1 * varying_noise(wanted, noisy)
    )


def test_largest_is_that_of_each_row() -> None:
    assert np.array_equal(LAYER.largest(32), np.abs(W).max(1))
