from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Sin")


def test_sine_of_half_pi() -> None:
    assert copied(OP, u8([4, 7, 10]))[0].tolist() == [5, 7, 9]
