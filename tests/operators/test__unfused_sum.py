from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.operator import IntegerCall
from onnxq.operators._tables import all_codes
from onnxq.operators._unfused_sum import unfused_sum, unfused_sum_of_scalar
from onnxq.operators.add import add_codes
from onnxq.operators.qlinear_add import QLinearAdd
from onnxq.qparams import PerTensor, QParams
from onnxq.targets.accumulation import Accumulator, Arithmetic, Overflows

Number = np.float32


def qparams(scale: float, zero: int) -> QParams:
    return QParams(np.array(scale, np.float32), np.array(zero, np.uint8), UINT8, PerTensor())


# scales for which 931 of 65,536 pairs of codes are rounded otherwise
P, Q, OUT = qparams(0.0481, 79), qparams(0.0845, 164), qparams(0.0468, 140)
A, B = all_codes(UINT8)[:, None], all_codes(UINT8)[None, :]


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
    accumulator = Accumulator(Arithmetic.UNFUSED, notes.append)
    (got,) = QLinearAdd().kernel_on(
        IntegerCall("QLinearAdd", given(a.copy(), b.copy())), accumulator
    )
    assert np.array_equal(got, unfused_sum(A, B, P, Q, OUT))
    (heard,) = notes
    assert heard.count.sum() == np.count_nonzero(got != add_codes(A, B, P, Q, OUT)) > 0
    risks = QLinearAdd().risks(IntegerCall("QLinearAdd", given(a[:1], b[:1])), Arithmetic.UNFUSED)
    assert risks is not None
    seen = set(zip(heard.first.tolist(), heard.second.tolist(), strict=True))
    assert seen <= set(zip(risks.first.tolist(), risks.second.tolist(), strict=True))


@pytest.mark.parametrize("kind", [Arithmetic.EXACT, Arithmetic.SATURATES])
def test_other_x86_machines_fuse(kind: Arithmetic) -> None:
    assert QLinearAdd().risks(IntegerCall("QLinearAdd", given(A, B)), kind) is None
