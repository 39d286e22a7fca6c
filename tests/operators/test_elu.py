from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Elu")


def test_it_ends_at_minus_alpha() -> None:
    assert copied(OP, u8([0, 5, 7, 9]))[0].tolist() == [5, 6, 7, 9]


def test_alpha_bounds_the_result_below() -> None:
    assert copied(OP, u8([0, 7, 9]), alpha=3.0)[0].tolist() == [1, 7, 9]
