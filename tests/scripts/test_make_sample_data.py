from __future__ import annotations

import numpy as np
import pytest

from models.cifar10 import load_sample
from scripts.make_sample_data import stratified


def test_stratified_takes_classes_alike_and_the_same_again() -> None:
    labels = np.random.default_rng(0).integers(0, 3, 300).astype(np.uint8)
    chosen = stratified(labels, 100, seed=1)
    assert sorted(np.bincount(labels[chosen])) == [33, 33, 34]
    assert len(set(chosen)) == 100
    np.testing.assert_array_equal(chosen, stratified(labels, 100, seed=1))


@pytest.mark.parametrize(("name", "count"), [("calibration", 256), ("test", 1000)])
def test_embedded_images_are_pixels_as_the_models_take_them(name: str, count: int) -> None:
    images, labels = load_sample(name)
    assert images.shape == (count, 3, 32, 32)
    assert images.dtype == np.float32
    pixels = images * 64 + 128
    np.testing.assert_array_equal(pixels, np.rint(pixels))
    assert 0 <= pixels.min() < pixels.max() <= 255
    assert len(labels) == count
    assert np.ptp(np.bincount(labels)) <= 1
