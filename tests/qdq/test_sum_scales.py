from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.qdq.sum_scales import Among, Sum, raise_scales
from onnxq.qparams import QParams, per_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

COUNT = 40


def chain() -> tuple[list[Sum], dict[str, QParams]]:
    """Sums s0 = a0 + a1, s1 = s0 + a2 ... of integers with scales that make ties."""
    tensors = {f"a{i}": per_tensor(0.5 + i / 64, 128, UINT8) for i in range(COUNT + 1)}
    tensors |= {f"s{i}": per_tensor(1.0 + i / 16, 128, UINT8) for i in range(COUNT)}
    sums = []
    for i in range(COUNT):
        left = f"s{i - 1}" if i else "a0"
        sums.append(Sum(f"add{i}", "Add", "", (left, f"a{i + 1}"), (f"s{i}",)))
    return sums, tensors


def test_a_sum_is_looked_at_again_only_when_one_of_its_scales_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums, tensors = chain()
    looks: Counter[str] = Counter()

    def noted(one: Sum, scales: Mapping[str, QParams]) -> bool:
        """Every third sum wants its result's scale raised once; the look of a sum is counted."""
        looks[one.name] += 1
        result = str(one.outputs[0])
        return int(result[1:]) % 3 > 0 or bool(scales[result].scale != tensors[result].scale)

    monkeypatch.setattr(Sum, "agrees", noted)
    raised, left = raise_scales(sums, {name: [name] for name in tensors}, tensors)
    assert not left
    changed = {name for name in tensors if raised[name] != tensors[name]}
    assert changed == {f"s{i}" for i in range(0, COUNT, 3)}
    # once; those that are raised try two scales and look once more; their readers look once more
    assert max(looks.values()) <= 4
    assert sum(looks.values()) <= 3 * COUNT


def test_scales_that_are_raised_agree() -> None:
    sums, tensors = chain()
    raised, left = raise_scales(sums[:4], {name: [name] for name in tensors}, tensors)
    assert all(one.agrees(raised) or one in left for one in sums[:4])


THREE, TWO = {1: np.array(3, np.float32)}, {1: np.array(2, np.float32)}


# scales with three decimals, which make ties
@pytest.mark.parametrize(
    ("op_type", "scales", "zeros", "constants"),
    [
        ("Mul", (0.066, 0.031, 0.228), (78, 10, 19), {}),
        ("Div", (0.061, 0.014), (152, 32), THREE),
        ("Pow", (0.03, 0.036), (187, 109), TWO),
        ("Neg", (0.011, 0.01), (202, 22), {}),
    ],
)
def test_products_that_webassembly_rounds_otherwise_get_another_scale(
    op_type: str,
    scales: tuple[float, ...],
    zeros: tuple[int, ...],
    constants: dict[int, npt.NDArray[np.float32]],
) -> None:
    names = ["a", "b", "c"] if len(scales) == 3 else ["a", "c"]
    all_qparams = zip(names, scales, zeros, strict=True)
    tensors = {name: per_tensor(scale, zero, UINT8) for name, scale, zero in all_qparams}
    inputs = (*names[:-1], *[None for _ in constants])
    one = Sum("product", op_type, "", inputs, ("c",), {}, constants)
    assert not one.agrees(tensors)
    assert replace(one, among=Among.ORDERS).agrees(tensors)
    raised, left = raise_scales([one], {"c": ["c"]}, tensors)
    assert not left
    assert one.agrees(raised)
    assert 1 < raised["c"].scale / tensors["c"].scale < 1.00001
