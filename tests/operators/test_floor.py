from __future__ import annotations

from onnxq.operators.floor import Floor
from tests.operators.builder import copied, u8

OP = Floor()


def test_halves_go_down() -> None:
    assert copied(OP, u8([4, 5, 6, 7, 8]))[0].tolist() == [3, 5, 5, 7, 7]
