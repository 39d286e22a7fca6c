"""Writes the sample of CIFAR-10 that the repository ships, from the whole data set.

    python scripts/make_sample_data.py cifar10_jpeg.npz models

calibration.npz   array `image`: 256 training images, float32 (256, 3, 32, 32), all classes alike
test.npz          array `image`: 1,000 test images, likewise
labels.npz        arrays `calibration` and `test`: their classes 0..9, uint8; apart from the images,
                  since onnxq takes an npz whose arrays are the model's inputs and nothing else
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file: find models/

from models.cifar10 import load_jpeg_split

SEED = 0


def stratified(labels: npt.NDArray[np.uint8], count: int, seed: int) -> npt.NDArray[np.intp]:
    """Indices of `count` random samples, ascending; classes differ in number by at most one."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    classes = np.unique(labels)
    by_class = [shuffled[labels[shuffled] == c] for c in classes]
    quota = np.full(len(classes), count // len(classes))
    quota[: count % len(classes)] += 1
    return np.sort(np.concatenate([of[:n] for of, n in zip(by_class, quota, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="npz of JPEG files, as scripts/train.py takes it")
    parser.add_argument("folder", type=Path, help="where to write")
    args = parser.parse_args()
    classes: dict[str, npt.NDArray[np.uint8]] = {}
    for split, name, count in (("train", "calibration", 256), ("test", "test", 1000)):
        images, labels = load_jpeg_split(args.data, split)
        chosen = stratified(labels, count, SEED)
        path = args.folder / f"{name}.npz"
        np.savez_compressed(path, image=images[chosen])
        print(f"{path}: {count} images, {path.stat().st_size:,} bytes")
        classes[name] = labels[chosen]
    np.savez_compressed(
        args.folder / "labels.npz", calibration=classes["calibration"], test=classes["test"]
    )


if __name__ == "__main__":
    main()
