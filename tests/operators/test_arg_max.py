from __future__ import annotations

import numpy as np

from onnxq.operator import Case
from tests.operators import builder
from tests.operators.builder import copied

OP = builder.operator("ArgMax")


def test_result_is_not_quantized() -> None:
    assert builder.rule_of(OP, Case("", (np.zeros((2, 3), np.float32),))).outputs == ()


def test_first_or_last_of_equal_integers() -> None:
    x = np.full((1, 3), 9, np.uint8)
    assert copied(OP, x, axis=1)[0].tolist() == [[0]]
    assert copied(OP, x, axis=1, select_last_index=1)[0].tolist() == [[2]]
