from __future__ import annotations

import numpy as np
import pytest

from onnxq import dtypes
from onnxq.errors import QConfigError, ShapeError
from onnxq.qtensor.checked import qdtype, shape_errors, sizes_of


@pytest.mark.parametrize("sizes", [(2, 3), ((2, 3),), ([2, 3],), (np.int64(2), 3)])
def test_sizes_may_be_given_one_by_one_or_together(sizes: tuple[int, ...]) -> None:
    assert sizes_of("view", sizes) == (2, 3)


def test_one_size_is_a_size() -> None:
    assert sizes_of("view", (-1,)) == (-1,)
    assert sizes_of("view", ()) == ()


def test_sizes_are_whole_numbers() -> None:
    with pytest.raises(ShapeError, match=r"view: size is 0\.5; wanted a whole number"):
        sizes_of("view", (2, 0.5))  # type: ignore[arg-type]


def test_refusals_of_numpy_name_function_and_shape() -> None:
    said = r"view: a tensor of shape \(2,\): no such thing\."
    with pytest.raises(ShapeError, match=said), shape_errors("view", (2,)):
        raise ValueError("no such thing")


def test_types_are_known_by_value_and_by_what_they_print() -> None:
    class Printed:
        def __str__(self) -> str:
            return "torch.quint8"

    assert qdtype(dtypes.UINT8) is qdtype("quint8") is qdtype(Printed()) is dtypes.UINT8
    with pytest.raises(QConfigError, match="is not known"):
        qdtype(np.int8)
