from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operators.qmoe import QMoE

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from onnxq.operator import AttributeValue

OP = QMoE()
SIZES: dict[str, AttributeValue] = {"k": 1, "block_size": 16, "activation_type": "identity"}
ROUTER = np.array([[1, 3], [2, 0]], np.float32)


def experts(size: int = 16) -> tuple[Array, ...]:
    """Two experts without a bias: W of the first is all 1, that of the second all 2."""
    packed = np.stack([np.full((size, size // 2), 8 + 8 * 16 + w * 17, np.uint8) for w in (1, 2)])
    return packed, np.full((2, size, size // 16), 1 / size, np.float32)


def run(attributes: dict[str, AttributeValue], *others: Array | None) -> Array:
    x = np.ones((2, 16), np.float32)
    inputs = (x, ROUTER, *experts(), None, *experts(), None, *others)
    (y,) = OP.kernel(IntegerCall(OP.op_type, inputs, attributes={**SIZES, **attributes}))
    return y


def test_each_token_goes_to_its_expert() -> None:
    assert run({})[:, 0].tolist() == [4.0, 1.0]


def test_softmax_is_over_the_chosen_experts_alone() -> None:
    share = 1 / (1 + np.exp(-2.0))
    assert run({"k": 2})[:, 0] == pytest.approx(
        [4 * share + (1 - share)] * 1 + [share + 4 * (1 - share)]
    )


def test_router_weights_are_taken_as_they_are() -> None:
    weights = np.array([[0.25, 0.5], [0.125, 0.5]], np.float32)
    assert run({}, *[None] * 6, weights)[:, 0].tolist() == [2.0, 0.125]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"activation_type": "swiglu", "swiglu_fusion": 2}, "swiglu"),
        ({"quant_type": "fp4"}, "quant_type"),
        ({"fc2_expert_weight_bits": 8}, "bits of one layer"),
        ({"block_size": 0}, "groups"),
    ],
)
def test_what_has_no_kernel_is_refused(attributes: dict[str, AttributeValue], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        run(attributes)


def test_more_experts_than_there_are_is_refused() -> None:
    with pytest.raises(ShapeError, match="k 3"):
        run({"k": 3})
