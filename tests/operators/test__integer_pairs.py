from __future__ import annotations

import numpy as np
import pytest

from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators._divided import divided_product
from onnxq.operators._integer_pairs import possible_pairs
from onnxq.operators.mul import multiply_integers
from onnxq.operators.qlinear_add import QLinearAdd
from onnxq.operators.qlinear_mul import QLinearMul
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationEffect, SaturationMode

TIES = [scales(0.1), zero(79), scales(0.07), zero(164), scales(0.14), zero(140)]
OPERATORS = [QLinearAdd(), QLinearMul()]


def given(a: np.ndarray, b: np.ndarray) -> IntegerCall:
    return IntegerCall("op", [a, *TIES[:2], b, *TIES[2:]])


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_differs_in_webassembly_is_noted_and_is_among_the_risks(
    operator: QLinearAdd | QLinearMul,
) -> None:
    call, heard = given(integers(256, 64), integers(256, 64, seed=1)), list[Overflows]()
    (own,) = operator.kernel_on(call, Accumulator(SaturationMode.DIVIDES, heard.append))
    (exact,) = operator.kernel(call)
    assert heard[0].changed == heard[0].count.sum() == np.count_nonzero(own != exact) > 0
    assert heard[0].change == 1
    unseen = given(np.zeros(0, np.uint8), np.zeros(0, np.uint8))
    risks = operator.risks(unseen, SaturationMode.DIVIDES)
    assert risks is not None
    named = set(zip(risks.first.tolist(), risks.second.tolist(), strict=True))
    assert set(zip(heard[0].first.tolist(), heard[0].second.tolist(), strict=True)) <= named


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_only_noted_changes_nothing(operator: QLinearAdd | QLinearMul) -> None:
    call = given(integers(256, 64), integers(256, 64, seed=1))
    accumulator = Accumulator(SaturationMode.DIVIDES, effect=SaturationEffect.NOTED)
    assert np.array_equal(operator.kernel_on(call, accumulator)[0], operator.kernel(call)[0])


@pytest.mark.parametrize(
    "kind", [kind for kind in SaturationMode if not (kind.divides or kind.fixed_point)]
)
def test_products_of_integers_are_alike_on_x86(kind: SaturationMode) -> None:
    call = given(integers(256, 64), integers(256, 64, seed=1))
    assert QLinearMul().risks(call, kind) is None
    (own,) = QLinearMul().kernel_on(call, Accumulator(kind))
    assert np.array_equal(own, QLinearMul().kernel(call)[0])


def test_scales_that_are_not_known_are_a_risk() -> None:
    inputs = list(given(integers(4), integers(4)).inputs)
    inputs[1] = np.zeros(0, np.float32)
    call = IntegerCall("QLinearMul", inputs)
    assert possible_pairs(call, multiply_integers, (divided_product,)) is not None
