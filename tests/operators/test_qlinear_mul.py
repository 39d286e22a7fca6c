from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators.qlinear_mul import QLinearMul
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationMode

P = (scales(0.5), zero(10))


def test_integers_stand_for_the_product() -> None:
    a, b = np.array([10, 12, 6], np.uint8), np.array([16], np.uint8)
    (c,) = QLinearMul().kernel(IntegerCall("QLinearMul", (a, *P, b, *P, *P)))
    assert c.tolist() == [10, 16, 0]  # 0, 1 and -2 times 3; the last saturates at -5


def test_operands_of_different_types_are_refused() -> None:
    inputs = (integers(3), *P, integers(3, dtype="int8"), *P, *P)
    with pytest.raises(ShapeError, match="QLinearMul: B has dtype int8; wanted uint8"):
        QLinearMul().kernel(IntegerCall("QLinearMul", inputs))


TIES = ((scales(0.1), zero(79)), (scales(0.07), zero(164)), (scales(0.14), zero(140)))
"""Parameters with which -118.5000018 + 140 is 21.5 in float32."""


@pytest.mark.parametrize("mode", [SaturationMode.WRAPS, SaturationMode.WRAPS_DEPTHWISE])
def test_arm_rounds_once(mode: SaturationMode) -> None:
    a, b = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    call = IntegerCall("QLinearMul", (a, *TIES[0], b, *TIES[1], *TIES[2]))
    heard: list[Overflows] = []
    (arm,) = QLinearMul().kernel_on(call, Accumulator(mode, heard.append))
    (x86,) = QLinearMul().kernel(call)
    place = (164 - 158, 79 + 15)
    assert (arm[place], x86[place]) == (21, 22)  # 21 is what an emulated Cortex-A57 gave
    assert np.count_nonzero(arm != x86) == heard[0].changed == 102
    risks = QLinearMul().risks(call, mode)
    assert risks is not None
    assert risks.first.size == 102
