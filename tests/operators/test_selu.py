from __future__ import annotations

from tests.operators.builder import copied, operator, u8

OP = operator("Selu")


def test_it_ends_at_minus_alpha_times_gamma() -> None:
    assert copied(OP, u8([0, 7, 107]))[0].tolist() == [4, 7, 112]


def test_alpha_and_gamma_are_read() -> None:
    assert copied(OP, u8([0, 7, 9]), alpha=3.0, gamma=2.0)[0].tolist() == [0, 7, 11]
