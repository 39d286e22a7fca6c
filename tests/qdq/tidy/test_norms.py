from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq.qdq.tidy.norms import fold_norm
from tests.op_types import op_types
from tests.qdq.tidy.quantized import (
    Array,
    computed,
    constants_of,
    each,
    images,
    model,
    node,
    weight,
)

if TYPE_CHECKING:
    import onnx_ir as ir

RNG = np.random.default_rng(3)
CHANNELS = 4
ONE_SCALE = np.array(0.01, np.float32)


def normed(integers: Array, scale: Array, gamma: Array, bias: str = "", **conv: Any) -> ir.Model:
    """Conv (or what conv["op"] names) of integers, then BatchNormalization."""
    op, axis = conv.pop("op", "Conv"), conv.pop("axis", 0)
    nodes, constants = weight(integers, scale, axis)
    norm = ("gamma", "beta", "mean", "var")
    values = (gamma, images(CHANNELS, seed=4), images(CHANNELS, seed=5), RNG.random(CHANNELS) + 0.5)
    constants |= dict(zip(norm, (v.astype(np.float32) for v in values), strict=True))
    constants["bias"] = images(CHANNELS, seed=6)
    nodes += [
        node(op, ["x", "wd", *([bias] if bias else [])], ["c"], "layer", **conv),
        node("BatchNormalization", ["c", *norm], ["y"], "norm"),
    ]
    return model(nodes, constants, ["N", integers.shape[1 if op == "Conv" else 0], 6, 6])


def int8(*shape: int) -> Array:
    return RNG.integers(-127, 128, size=shape).astype(np.int8)


@pytest.mark.parametrize("bias", ["", "bias"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_the_factor_goes_into_the_scales_and_its_sign_into_the_integers(
    bias: str, per_channel: bool
) -> None:
    integers = int8(CHANNELS, 3, 3, 3)
    scale = np.asarray(RNG.random(CHANNELS if per_channel else ()) + 0.01, np.float32) / 100
    gamma = np.array([1.5, -0.7, 0.0, -2.0])
    made = normed(integers, np.asarray(scale), gamma, bias)
    x = images(5, 3, 6, 6)
    wanted = computed(made, x)
    each(made, fold_norm)
    assert op_types(made) == ["DequantizeLinear", "Conv"]
    np.testing.assert_allclose(computed(made, x), wanted, rtol=1e-5, atol=2e-6)
    stored = constants_of(made, "Conv", 1)[0]
    np.testing.assert_array_equal(stored, integers * np.sign(gamma).reshape(-1, 1, 1, 1))


def test_behind_a_transposed_convolution_of_one_group() -> None:
    scale = (RNG.random(CHANNELS) + 0.01).astype(np.float32) / 100
    made = normed(int8(3, CHANNELS, 2, 2), scale, images(CHANNELS), op="ConvTranspose", axis=1)
    x = images(2, 3, 6, 6)
    wanted = computed(made, x)
    each(made, fold_norm)
    assert "BatchNormalization" not in op_types(made)
    np.testing.assert_allclose(computed(made, x), wanted, rtol=1e-5, atol=2e-6)


def test_a_integer_without_a_negative_keeps_the_norm() -> None:
    integers = int8(CHANNELS, 3, 3, 3)
    integers[1, 0, 0, 0] = -128
    for gamma, folded in (([1.0, 1.0, -1.0, 1.0], True), ([1.0, -1.0, 1.0, 1.0], False)):
        made = normed(integers, ONE_SCALE, np.array(gamma))
        each(made, fold_norm)
        assert ("BatchNormalization" not in op_types(made)) is folded


def test_groups_of_a_transposed_convolution_keep_the_norm() -> None:
    made = normed(int8(4, 2, 2, 2), ONE_SCALE, images(CHANNELS), op="ConvTranspose", group=2)
    each(made, fold_norm)
    assert "BatchNormalization" in op_types(made)


def test_a_layer_that_others_read_keeps_the_norm() -> None:
    made = normed(int8(CHANNELS, 3, 3, 3), ONE_SCALE, images(CHANNELS))
    made.graph.outputs.append(next(n for n in made.graph if n.op_type == "Conv").outputs[0])
    each(made, fold_norm)
    assert "BatchNormalization" in op_types(made)
