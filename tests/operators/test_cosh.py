from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Cosh")


def test_both_signs_have_one_integer() -> None:
    assert copied(OP, u8([5, 7, 9, 255]))[0].tolist() == [10, 9, 10, 255]  # -1, 0, 1 by SHARED
