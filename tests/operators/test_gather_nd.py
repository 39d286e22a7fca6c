from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case, Form
from onnxq.operators.gather_nd import GatherND
from tests.operators import builder
from tests.operators.builder import Codes, codes, copied

OP = GatherND()


def test_onnx_runtime_has_the_kernel_but_no_fusion() -> None:
    case = Case("", (np.zeros((2, 2), np.float32), np.array([[0, 1]])), (1,))
    assert builder.rule_of(OP, case).form is Form.CODES


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(3, 2), np.array([[3, 0]])), {}),
        ((codes(3, 2), np.array([[0, 0, 0]])), {}),
        ((codes(3, 2), np.array([[0]])), {"batch_dims": 1}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
