from __future__ import annotations

import numpy as np
import pytest

from onnxq.samples.batches import crc_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_order_of_names_and_of_memory_makes_no_difference() -> None:
    y = np.array(["a", "b"], object)
    assert crc_of({"x": X, "y": y}) == crc_of({"y": y, "x": np.asfortranarray(X)})


@pytest.mark.parametrize(
    "other",
    [{"z": X}, {"x": X.reshape(3, 2)}, {"x": X.astype(np.float64)}, {"x": X + 1}, {"x": X, "y": X}],
)
def test_names_shapes_types_and_values_all_count(other: dict[str, np.ndarray]) -> None:
    assert crc_of(other) != crc_of({"x": X})


def test_batches_in_another_order_are_other_samples() -> None:
    first, second = {"x": X}, {"x": X + 1}
    assert crc_of(second, crc_of(first)) != crc_of(first, crc_of(second))
