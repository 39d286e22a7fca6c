from __future__ import annotations

from onnxq.operator import Float
from onnxq.operators.conv_transpose import ConvTranspose
from tests.operators import builder

OP = ConvTranspose()


def test_it_stays_float_and_says_why() -> None:
    (case,) = OP.cases()
    rule = builder.rule(OP, case)
    assert isinstance(rule, Float)
    assert "no integer kernel" in rule.reason
