from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Asinh")


def test_large_numbers_come_out_small() -> None:
    # -1, 0 and 124 by SHARED; -0.88, 0 and 5.51 in steps of a half
    assert copied(OP, u8([5, 7, 255]))[0].tolist() == [5, 7, 18]
