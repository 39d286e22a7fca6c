from __future__ import annotations

import numpy as np

from onnxq import reference
from tests.operators import builder
from tests.operators.builder import copied, integers

OP = builder.operator("Unsqueeze")


def test_axes_count_in_the_result() -> None:
    assert copied(OP, integers(2, 3), [0, 3])[0].shape == (1, 2, 3, 1)


def test_one_axis_may_be_a_number() -> None:  # ONNX Runtime takes it; in Squeeze it does not
    x = np.arange(6, dtype=np.uint8).reshape(2, 3)
    (y,) = reference.kernel("Unsqueeze")([x, np.array(1)], {})
    assert y.shape == (2, 1, 3)
