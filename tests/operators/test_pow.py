from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.operator import Case, Float, Rule
from onnxq.operators.pow import Pow
from tests.operators import builder
from tests.operators.builder import copied, u8

OP = Pow()
X = np.ones((2, 3), np.float32)


def rule(exponent: npt.ArrayLike, *constants: int, base: np.ndarray = X) -> Rule | Float:
    return builder.rule(OP, Case("", (base, np.asarray(exponent)), constants))


@pytest.mark.parametrize(("exponent", "lowered"), [(2.0, True), (0.5, True), (3.0, False)])
def test_the_faster_of_integers_and_float_is_taken(exponent: float, lowered: bool) -> None:
    for dtype in (np.float32, np.int64):
        if exponent == int(exponent) or dtype == np.float32:
            found = rule(np.array(exponent, dtype), 1)
            assert isinstance(found, Rule)
            assert found.lowered is lowered


def test_it_stays_float_unless_named() -> None:
    for found in (rule(np.float32(2), 1), rule(X), rule(X[0], 1)):
        assert isinstance(found, Rule)
        assert "badly" in found.named_only


def test_only_floats_that_vary_are_quantized() -> None:
    for found, varying in (
        (rule(X), (0, 1)),
        (rule(X[0], 1), (0,)),
        (rule(X[0].astype(np.int64)), (0,)),
        (rule(X, 0, base=X[0]), (1,)),
    ):
        assert isinstance(found, Rule)
        assert found.activations == varying
    assert isinstance(rule(np.ones(3, np.int64), 0), Float)


def test_squares_and_roots() -> None:
    assert copied(OP, u8([5, 7, 11]), np.float32(2))[0].tolist() == [9, 7, 15]
    assert copied(OP, u8([7, 11]), np.float32(0.5))[0].tolist() == [7, 10]


def test_powers_that_are_not_real_get_the_lowest_integer() -> None:
    assert copied(OP, u8([5]), np.float32(0.5))[0].tolist() == [0]


def test_infinite_exponents_stay_float() -> None:
    assert isinstance(rule(np.float32(np.inf), 1), Float)
