from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("ThresholdedRelu")


def test_the_threshold_itself_becomes_zero() -> None:
    assert copied(OP, u8([6, 7, 8, 9, 10]))[0].tolist() == [7, 7, 7, 7, 10]


def test_alpha_may_be_negative() -> None:
    assert copied(OP, u8([4, 5, 6]), alpha=-1.0)[0].tolist() == [7, 7, 6]
