from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.qtensor.stored import expanded, offset_of, strided

STORAGE = np.arange(12, dtype=np.uint8)


def test_offset_counts_elements_before_the_first() -> None:
    assert offset_of(STORAGE.reshape(3, 4)[1:, 2:], STORAGE) == 6
    wide = STORAGE.astype(np.int32)
    assert offset_of(wide[5:], wide) == 5
    assert offset_of(STORAGE[12:], STORAGE) == 0


def test_strided_is_a_view_by_its_formula() -> None:
    y = strided(STORAGE, (2, 3), (1, 4), 1)
    assert y.tolist() == [[1, 5, 9], [2, 6, 10]]
    assert np.shares_memory(y, STORAGE)
    assert strided(STORAGE, (), (), 5).item() == 5


def test_repeated_elements_cannot_be_written() -> None:
    assert not strided(STORAGE, (2, 3), (0, 1), 0).flags.writeable
    assert strided(STORAGE, (1, 3), (0, 1), 0).flags.writeable


@pytest.mark.parametrize(
    ("size", "stride", "offset", "said"),
    [
        ((2, 2), (1,), 0, "as many of both"),
        ((2, -1), (1, 1), 0, "negative"),
        ((2, 2), (-1, 1), 0, "negative"),
        ((13,), (1,), 0, "reach element 12; the tensor's memory has 12"),
        ((2,), (1,), 11, "reach element 12"),
    ],
)
def test_views_stay_inside_the_memory(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int, said: str
) -> None:
    with pytest.raises(ShapeError, match=said):
        strided(STORAGE, size, stride, offset)


def test_a_view_of_nothing_may_point_anywhere() -> None:
    assert strided(STORAGE, (0, 99), (1, 1), 0).shape == (0, 99)


def test_minus_one_keeps_a_size_and_new_axes_come_first() -> None:
    assert expanded((1, 3), (2, -1)) == (2, 3)
    assert expanded((3,), (2, 3)) == (2, 3)
    assert expanded((), (2,)) == (2,)


@pytest.mark.parametrize("sizes", [(2, 4), (3,), (-1, 1, 3)])
def test_only_axes_of_one_grow(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="only axes of size 1 grow"):
        expanded((1, 3), sizes)
