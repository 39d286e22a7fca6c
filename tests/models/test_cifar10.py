from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from models.cifar10 import load_jpeg_split, load_sample, normalize

if TYPE_CHECKING:
    from pathlib import Path


def test_pixels_become_multiples_of_a_64th_around_zero() -> None:
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    pixels[1, 5, 7] = (0, 128, 255)
    x = normalize(pixels)
    assert x.shape == (2, 3, 32, 32)
    assert x.dtype == np.float32
    assert x[1, :, 5, 7].tolist() == [-2.0, 0.0, 127 / 64]


@pytest.mark.parametrize(("name", "count"), [("calibration", 256), ("test", 1000)])
def test_samples_are_images_with_labels_of_every_class(name: str, count: int) -> None:
    images, labels = load_sample(name)
    assert images.shape == (count, 3, 32, 32)
    assert images.dtype == np.float32
    assert set(labels.tolist()) == set(range(10))
    integers = images * 64 + 128  # exact: quantizing the input at 1/64 loses nothing
    np.testing.assert_array_equal(integers, np.clip(np.rint(integers), 0, 255))


def test_jpegs_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    raw = []
    for grey in (0, 255):
        file = io.BytesIO()
        Image.new("RGB", (32, 32), (grey,) * 3).save(file, "JPEG")
        raw.append(file.getvalue())
    np.savez(
        tmp_path / "d.npz",
        train_jpeg=np.frombuffer(b"".join(raw), np.uint8),
        train_offsets=np.cumsum([0, *map(len, raw)]),
        train_labels=np.array([3, 7], np.uint8),
    )
    images, labels = load_jpeg_split(tmp_path / "d.npz", "train")
    assert labels.tolist() == [3, 7]
    assert [image.mean() for image in images] == [-2.0, 127 / 64]
