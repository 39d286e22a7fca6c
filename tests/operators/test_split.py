from __future__ import annotations

import numpy as np

from onnxq.operator import Case
from onnxq.operators.split import Split
from tests.operators import builder
from tests.operators.builder import copied, integers

OP = Split()


def test_every_output_shares_the_qparams_of_the_input() -> None:
    case = Case("", (np.zeros((4, 2), np.float32),), outputs=3, attributes={"num_outputs": 3})
    rule = builder.rule_of(OP, case)
    assert rule.outputs == (0, 1, 2)
    assert rule.shares_qparams


def test_last_part_is_the_smaller_one() -> None:
    assert [y.shape for y in copied(OP, integers(5, 1), results=3)] == [(2, 1), (2, 1), (1, 1)]
