from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.operators._fma import fma


def nearest_even(exact: Fraction) -> np.float32:
    """The float32 nearest to an exact number, by comparing neighbours."""
    guess = np.float32(float(exact))
    around = [np.nextafter(guess, np.float32(s * np.inf), dtype=np.float32) for s in (-1, 1)]
    return min(
        [guess, *around],
        key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) & 1),
    )


@given(
    a=st.integers(-255, 255),
    b=st.floats(2**-20, 2**20, width=32),
    c=st.floats(-(2**20), 2**20, width=32, allow_subnormal=False),
)
@settings(max_examples=300, deadline=None)
def test_sum_is_rounded_once(a: int, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert fma(a, np.float32(b), np.float32(c)) == nearest_even(exact)


def test_double_rounding_is_avoided() -> None:
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 lies between two float32: the tiny addend decides, which a
    # sum in float64 would lose
    factor, tiny = np.float32(1 + 2**-12), np.float32(2**-60)
    assert fma(factor, factor, 0.0) == np.float32(1 + 2**-11)
    assert fma(factor, factor, tiny) == np.float32(1 + 2**-11 + 2**-23)
    assert fma(factor, factor, -tiny) == np.float32(1 + 2**-11)


def test_infinities_stay() -> None:
    rows = [[1, 1, 3e38, -3e38, 3e38], [2, 2, 10, 10, 10], [np.inf, -np.inf, 0, 0, -np.inf]]
    a, b, c = np.array(rows, np.float32)
    assert fma(a, b, c).tolist() == [np.inf, -np.inf, np.inf, -np.inf, -np.inf]
    assert np.isnan(fma(np.float32(np.inf), 1, np.float32(-np.inf)))
