"""Narrow integers in bytes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.core.packing import packed_rows, unpacked_rows


def test_the_first_integer_is_in_the_low_bits() -> None:
    assert packed_rows(np.array([[1, 2, 3]], np.uint8), 4).tolist() == [[0x21, 0x03]]
    assert packed_rows(np.array([[3, 0, 1, 2, 1]], np.uint8), 2).tolist() == [[0b10010011, 1]]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_was_packed_comes_back(bits: int) -> None:
    integers = np.random.default_rng(0).integers(0, 1 << bits, (3, 13)).astype(np.uint8)
    assert np.array_equal(unpacked_rows(packed_rows(integers, bits), bits)[:, :13], integers)
