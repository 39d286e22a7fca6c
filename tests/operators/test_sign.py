from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Sign")


def test_results_are_minus_one_zero_and_one() -> None:
    assert copied(OP, u8([0, 7, 8]))[0].tolist() == [5, 7, 9]
