from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.operator import IntegerCall
from onnxq.operator.examples import codes, scales, zero
from onnxq.operators._fixed_sum import fixed_sum
from onnxq.operators.add import add_codes
from onnxq.operators.qlinear_add import QLinearAdd
from onnxq.qparams import per_tensor
from onnxq.targets.accumulation import Accumulator, Arithmetic, Effect, Overflows

if TYPE_CHECKING:
    from onnxq.operator import Array

ARM = (Arithmetic.WRAPS, Arithmetic.WRAPS_DEPTHWISE)


def inputs(a: Array, b: Array, scale: tuple[float, float, float]) -> list[Array]:
    """Of QLinearAdd; zero points 0."""
    x, y, z = (scales(s) for s in scale)
    return [a, x, zero(0, a.dtype.name), b, y, zero(0, a.dtype.name), z, zero(0, a.dtype.name)]


def test_halves_go_away_from_zero() -> None:
    a = np.array([-5, -3, -1, 1, 3, 5], np.int8)
    given = inputs(a, np.zeros(1, np.int8), (0.5, 0.5, 1))
    (arm,) = QLinearAdd().kernel_on(IntegerCall("QLinearAdd", given), Accumulator(Arithmetic.WRAPS))
    (x86,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given), Accumulator(Arithmetic.SATURATES)
    )
    assert arm.tolist() == [-3, -2, -1, 1, 2, 3]
    assert x86.tolist() == [-2, -2, 0, 0, 2, 2]


# what an emulated Cortex-A57 gave, and this reference's x86, where they differ
@pytest.mark.parametrize(
    ("qdtype", "scale", "zeros", "ab", "arm", "x86"),
    [
        (INT8, (0.086736955, 0.06336469, 0.03340877), (36, -40, 87), (-108, 92), -37, -36),
        (INT8, (0.086736955, 0.06336469, 0.03340877), (36, -40, 87), (-77, 87), 34, 35),
        (UINT8, (0.027219154, 0.017339736, 0.086970426), (170, 220, 215), (186, 72), 190, 191),
        (INT8, (0.052471876, 0.034664355, 0.010638265), (96, 86, 37), (119, 63), 75, 76),
        (UINT8, (0.05, 1e-7, 0.06), (116, 198, 92), (11, 200), 4, 5),  # float: far apart
    ],
)
def test_results_next_to_a_tie_are_as_measured(
    qdtype: QDType,
    scale: tuple[float, float, float],
    zeros: tuple[int, int, int],
    ab: tuple[int, int],
    arm: int,
    x86: int,
) -> None:
    p, q, out = (per_tensor(s, z, qdtype) for s, z in zip(scale, zeros, strict=True))
    a, b = (np.array([code], np.int32) for code in ab)
    assert fixed_sum(a, b, p, q, out).tolist() == [arm]
    assert add_codes(a, b, p, q, out).tolist() == [x86]


@pytest.mark.parametrize("arithmetic", ARM)
def test_what_differs_is_noted_and_is_among_the_risks(arithmetic: Arithmetic) -> None:
    given = inputs(codes(4000), codes(4000, seed=1), (0.25, 0.5, 1))
    heard: list[Overflows] = []
    (arm,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given), Accumulator(arithmetic, heard.append)
    )
    (exact,) = QLinearAdd().kernel(IntegerCall("QLinearAdd", given))
    assert heard[0].changed == heard[0].count.sum() == np.count_nonzero(arm != exact) > 0
    assert heard[0].change == 1
    for x in (given, [np.zeros(0, np.uint8), *given[1:3], np.zeros(0, np.uint8), *given[4:]]):
        risks = QLinearAdd().risks(IntegerCall("QLinearAdd", x), arithmetic)
        assert risks is not None
        named = set(zip(risks.first.tolist(), risks.second.tolist(), strict=True))
        assert set(zip(heard[0].first.tolist(), heard[0].second.tolist(), strict=True)) <= named


def test_what_is_only_noted_changes_nothing() -> None:
    given = inputs(codes(400), codes(400, seed=1), (0.25, 0.5, 1))
    accumulator = Accumulator(Arithmetic.WRAPS, effect=Effect.NOTED)
    (noted,) = QLinearAdd().kernel_on(IntegerCall("QLinearAdd", given), accumulator)
    np.testing.assert_array_equal(noted, QLinearAdd().kernel(IntegerCall("QLinearAdd", given))[0])


def test_scales_without_ties_have_no_risk_and_scales_not_known_have() -> None:
    given = inputs(codes(4), codes(4), (0.05606395, 0.09554173, 0.02297436))
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given), Arithmetic.WRAPS) is None
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given), Arithmetic.SATURATES) is None
    given[1] = np.zeros(0, np.float32)
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given), Arithmetic.WRAPS) is not None
