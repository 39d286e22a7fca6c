"""CIFAR-10 images as the models take them: float32, (N, 3, 32, 32), pixel p as (p - 128) / 64.

With that choice 8-bit quantization of the input at scale 1/64, zero point 128 loses nothing.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt


def normalize(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Model input (N, 3, 32, 32) from pixels (N, 32, 32, 3)."""
    scaled = (pixels.astype(np.float32) - np.float32(128)) / np.float32(64)
    return scaled.transpose(0, 3, 1, 2).copy()


def load_sample(name: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """(images, labels) of a sample in this folder: "calibration" (256) or "test" (1,000)."""
    folder = Path(__file__).parent
    with np.load(folder / f"{name}.npz") as data, np.load(folder / "labels.npz") as labels:
        return data["image"], labels[name]


def load_jpeg_split(
    file: Path, split: str
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """(images, labels) of a split of an npz with <split>_jpeg, <split>_offsets, <split>_labels.

    Args:
        file: the npz; JPEG i is bytes offsets[i]:offsets[i + 1].
        split: "train" or "test".
    """
    from PIL import Image  # needed for the full data set only

    with np.load(file) as data:
        jpeg, offsets = data[f"{split}_jpeg"], data[f"{split}_offsets"]
        labels = data[f"{split}_labels"]
    pixels = np.empty((len(labels), 32, 32, 3), np.uint8)
    for i in range(len(labels)):
        raw = jpeg[offsets[i] : offsets[i + 1]].tobytes()
        pixels[i] = np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))
    return normalize(pixels), labels
