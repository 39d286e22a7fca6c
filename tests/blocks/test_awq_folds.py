"""AWQ's factors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import onnxq
from onnxq.blocks.awq_folds import folded
from onnxq.blocks.plan_weights import WeightRequest, plan_weights
from tests.blocks.block_models import canonical
from tests.dynamic_models import normal, parsed, run

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

GAIN = np.ones(64, np.float32)
GAIN[[3, 20, 41]] = 12
NORMED = parsed(
    """g (float[n, 64] x) => (float[n, 48] y) {
        h = LayerNormalization(x, g, b)
        [up] y = MatMul(h, w)
    }""",
    {"g": GAIN, "b": np.zeros(64, np.float32), "w": normal(64, 48)},
)
SAMPLES: dict[str, Array] = {"x": normal(96, 64, seed=4)}


def test_channels_that_stand_out_go_into_the_norm_ahead() -> None:
    model = canonical(NORMED)
    made = folded(model, plan_weights(model, WeightRequest()), [SAMPLES])
    gain = made.graph.node("up").inputs[0].producer().inputs[1].const_value.numpy()  # type: ignore[union-attr]
    assert np.abs(gain).max() / np.abs(gain).min() < 0.8 * GAIN.max()
    # a product of 64 numbers up to 40, rounded otherwise
    np.testing.assert_allclose(run(made, SAMPLES), run(model, SAMPLES), rtol=0, atol=1e-3)


def test_products_lose_less_than_by_rounding() -> None:
    found = [
        onnxq.quantize_weights(NORMED, SAMPLES, method=method, check=SAMPLES).verdict
        for method in ("rtn", "awq")
    ]
    rtn, awq = (v.outputs[0].sqnr_db for v in found if v is not None)
    assert rtn is not None
    assert awq is not None
    assert awq > rtn + 1


def test_an_input_that_nobody_can_divide_stays() -> None:
    proto = parsed(
        "g (float[n, 32] x) => (float[n, 8] y) { y = MatMul(x, w) }", {"w": normal(32, 8)}
    )
    model = canonical(proto)
    assert folded(model, plan_weights(model, WeightRequest()), [{"x": normal(8, 32)}]) is model
