from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case
from onnxq.operators.arg_max import ArgMax
from tests.operators import builder
from tests.operators.builder import Codes, codes, copied

OP = ArgMax()


def test_result_is_not_quantized() -> None:
    assert builder.rule_of(OP, Case("", (np.zeros((2, 3), np.float32),))).outputs == ()


def test_first_or_last_of_equal_codes() -> None:
    x = np.full((1, 3), 9, np.uint8)
    assert copied(OP, x, axis=1)[0].tolist() == [[0]]
    assert copied(OP, x, axis=1, select_last_index=1)[0].tolist() == [[2]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(3, 2),), {"axis": 2}), ((codes(0, 2),), {"axis": 0})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
