from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Gelu")


def test_large_numbers_pass() -> None:
    assert copied(OP, u8([0, 7, 9, 255]))[0].tolist() == [7, 7, 9, 255]


def test_by_tanh_too() -> None:
    assert copied(OP, u8([0, 7, 9, 255]), approximate="tanh")[0].tolist() == [7, 7, 9, 255]
