from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers, scales, zero
from onnxq.operators._machine_sums import (
    fixed_sum,
    fused_product,
    unfused_sum,
    unfused_sum_of_scalar,
)
from onnxq.operators._tables import all_integers
from onnxq.operators.add import add_integers
from onnxq.operators.mul import multiply_integers
from onnxq.operators.qlinear_add import QLinearAdd
from onnxq.qparams import PerTensor, QParams, per_tensor
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationEffect, SaturationMode

if TYPE_CHECKING:
    from onnxq.operator import Array
    from onnxq.operators._integer_pairs import PairFunction

Number = np.float32


def qparams(scale: float, zero: int) -> QParams:
    return QParams(np.array(scale, np.float32), np.array(zero, np.uint8), UINT8, PerTensor())


# scales for which 931 of 65,536 pairs of integers are rounded otherwise
P, Q, OUT = qparams(0.0481, 79), qparams(0.0845, 164), qparams(0.0468, 140)
A, B = all_integers(UINT8)[:, None], all_integers(UINT8)[None, :]


def given(a: np.ndarray, b: np.ndarray) -> list[np.ndarray | None]:
    parts = [x for q in (P, Q, OUT) for x in (q.scale, q.zero_point)]
    return [a, parts[0], parts[1], b, *parts[2:]]


def test_each_product_and_each_sum_is_rounded() -> None:
    wanted = np.empty((256, 256), np.uint8)
    ra, rb = np.float32(P.scale / OUT.scale), np.float32(Q.scale / OUT.scale)
    rest = Number(140) - Number(Number(ra * Number(79)) + Number(rb * Number(164)))
    for a in range(256):
        for b in (0, 1, 77, 200, 255):
            total = Number(Number(rest + Number(Number(a) * ra)) + Number(Number(b) * rb))
            wanted[a, b] = min(max(round(float(total)), 0), 255)
    got = unfused_sum(A, B, P, Q, OUT)
    for b in (0, 1, 77, 200, 255):
        assert np.array_equal(got[:, b], wanted[:, b])


def test_a_scalar_is_added_first() -> None:
    assert np.array_equal(unfused_sum_of_scalar(A, B, P, Q, OUT), unfused_sum(B, A, Q, P, OUT))


def test_what_differs_is_among_the_risks() -> None:
    a, b = np.broadcast_arrays(*(x.astype(np.uint8) for x in (A, B)))
    notes: list[Overflows] = []
    accumulator = Accumulator(SaturationMode.UNFUSED, notes.append)
    (got,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given(a.copy(), b.copy())), accumulator
    )
    assert np.array_equal(got, unfused_sum(A, B, P, Q, OUT))
    (heard,) = notes
    assert heard.count.sum() == np.count_nonzero(got != add_integers(A, B, P, Q, OUT)) > 0
    risks = QLinearAdd().risks(
        IntegerCall("QLinearAdd", given(a[:0], b[:0])), SaturationMode.UNFUSED
    )
    assert risks is not None
    seen = set(zip(heard.first.tolist(), heard.second.tolist(), strict=True))
    assert seen <= set(zip(risks.first.tolist(), risks.second.tolist(), strict=True))


@pytest.mark.parametrize("kind", [SaturationMode.EXACT, SaturationMode.SATURATES])
def test_other_x86_machines_fuse(kind: SaturationMode) -> None:
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given(A, B)), kind) is None


ARM = (SaturationMode.WRAPS, SaturationMode.WRAPS_DEPTHWISE)


def inputs(a: Array, b: Array, scale: tuple[float, float, float]) -> list[Array]:
    """Inputs of QLinearAdd; zero points 0."""
    x, y, z = (scales(s) for s in scale)
    return [a, x, zero(0, a.dtype.name), b, y, zero(0, a.dtype.name), z, zero(0, a.dtype.name)]


def test_halves_go_away_from_zero() -> None:
    a = np.array([-5, -3, -1, 1, 3, 5], np.int8)
    given = inputs(a, np.zeros(1, np.int8), (0.5, 0.5, 1))
    (arm,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given), Accumulator(SaturationMode.WRAPS)
    )
    (x86,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given), Accumulator(SaturationMode.SATURATES)
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
    assert add_integers(a, b, p, q, out).tolist() == [x86]


@pytest.mark.parametrize("saturation_mode", ARM)
def test_what_differs_is_noted_and_is_among_the_risks(saturation_mode: SaturationMode) -> None:
    given = inputs(integers(4000), integers(4000, seed=1), (0.25, 0.5, 1))
    heard: list[Overflows] = []
    (arm,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given), Accumulator(saturation_mode, heard.append)
    )
    (exact,) = QLinearAdd().kernel(IntegerCall("QLinearAdd", given))
    assert heard[0].changed == heard[0].count.sum() == np.count_nonzero(arm != exact) > 0
    assert heard[0].change == 1
    for x in (given, [np.zeros(0, np.uint8), *given[1:3], np.zeros(0, np.uint8), *given[4:]]):
        risks = QLinearAdd().risks(IntegerCall("QLinearAdd", x), saturation_mode)
        assert risks is not None
        named = set(zip(risks.first.tolist(), risks.second.tolist(), strict=True))
        assert set(zip(heard[0].first.tolist(), heard[0].second.tolist(), strict=True)) <= named


def test_what_is_only_noted_changes_nothing() -> None:
    given = inputs(integers(400), integers(400, seed=1), (0.25, 0.5, 1))
    accumulator = Accumulator(SaturationMode.WRAPS, effect=SaturationEffect.NOTED)
    (noted,) = QLinearAdd().kernel_on(IntegerCall("QLinearAdd", given), accumulator)
    np.testing.assert_array_equal(noted, QLinearAdd().kernel(IntegerCall("QLinearAdd", given))[0])


def test_scales_without_ties_have_no_risk_and_scales_not_known_have() -> None:
    given = inputs(integers(4), integers(4), (0.05606395, 0.09554173, 0.02297436))
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given), SaturationMode.WRAPS) is None
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given), SaturationMode.SATURATES) is None
    given[1] = np.zeros(0, np.float32)
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given), SaturationMode.WRAPS) is not None


PAGE = Path(__file__).resolve().parents[2] / "docs/why/numerics.md"
Draw = Callable[[np.random.Generator], "np.ndarray"]


def of_any_size(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(2.0 ** rng.uniform(-8, 0, 3))


def powers_of_two(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(2.0 ** rng.integers(-8, 0, 3))


def two_decimals(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.integers(1, 100, 3) / 100)


@pytest.mark.parametrize(
    ("row", "draw", "ours", "theirs"),
    [
        ("ARM, sums | any", of_any_size, add_integers, fixed_sum),
        ("ARM, sums | powers of two", powers_of_two, add_integers, fixed_sum),
        ("x86 without AVX2, sums | any", of_any_size, add_integers, unfused_sum),
        ("ARM, products | any", of_any_size, multiply_integers, fused_product),
        ("ARM, products | of two decimals", two_decimals, multiply_integers, fused_product),
    ],
)
def test_the_page_says_how_often_machines_differ(
    row: str, draw: Draw, ours: PairFunction, theirs: PairFunction
) -> None:
    rng, counts = np.random.default_rng(0), []
    a, b = all_integers(UINT8)[:, None], all_integers(UINT8)[None]
    for _ in range(200):
        p, q, out = map(qparams, draw(rng).tolist(), rng.integers(0, 256, 3).tolist())
        counts.append(np.count_nonzero(ours(a, b, p, q, out) != theirs(a, b, p, q, out)))
    assert f"| {row} | {np.count_nonzero(counts)} | {max(counts):,} |" in PAGE.read_text("utf-8")
