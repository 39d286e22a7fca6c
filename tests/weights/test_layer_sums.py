"""Sums over places: the error of any weight and bias, from sums alone."""

from __future__ import annotations

import numpy as np

from onnxq.weights.layer_sums import LayerSums

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(1, 1, (2, 50, 4)).astype(np.float32)
RESULTS = GENERATOR.normal(0, 1, (2, 50, 3)).astype(np.float32)
LEFT = GENERATOR.normal(0.2, 0.1, (2, 50, 3)).astype(np.float32)


def sums() -> LayerSums:
    made = LayerSums(2, 3, 4)
    for part in (slice(0, 20), slice(20, 50)):
        made.add(ROWS[:, part], RESULTS[:, part], LEFT[:, part])
    return made


def test_the_error_of_another_weight_and_bias_is_that_of_its_results() -> None:
    change, shift = GENERATOR.normal(0, 0.1, (2, 3, 4)), GENERATOR.normal(0, 0.1, (2, 3))
    left = LEFT - ROWS @ np.swapaxes(change, 1, 2) - shift[:, np.newaxis]
    means = sums().means()
    # float32 sums of 50 products: 50 * 2^-24 of terms of size 1
    np.testing.assert_allclose(
        means.error(change, shift), np.square(left).mean(axis=1), atol=50 * 2**-22
    )
    np.testing.assert_allclose(
        means.missing(change), (left + shift[:, np.newaxis]).mean(axis=1), atol=50 * 2**-22
    )


def test_centred_means_are_those_of_what_varies() -> None:
    centred = sums().means().centred
    x = ROWS - ROWS.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(centred.hessian, np.swapaxes(x, 1, 2) @ x / 50, atol=50 * 2**-20)
