from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.qdq.tidy.biases import FEW_BITS, store_bias
from tests.op_types import op_types
from tests.qdq.tidy.quantized import (
    STEP,
    Array,
    computed,
    constants_of,
    each,
    images,
    model,
    node,
    weight,
    x_integers,
)

if TYPE_CHECKING:
    import onnx_ir as ir

RNG = np.random.default_rng(8)
SCALE = np.array([0.004, 0.003, 0.002, 0.005], np.float32)


def biased_conv(integers: Array, bias: Array, scale: Array = SCALE, last: str = "Q") -> ir.Model:
    """Conv of integers with a float bias, and a Q behind it, or a Relu."""
    nodes, constants = x_integers()
    more, weights = weight(integers, scale)
    ends: dict[str, Array] = {"ys": np.array(0.03, np.float32), "yz": np.array(100, np.uint8)}
    constants |= weights | {"b": bias} | ends
    nodes += [*more, node("Conv", ["xd", "wd", "b"], ["c"], "conv")]
    if last == "Relu":
        nodes.append(node("Relu", ["c"], ["y"], "relu"))
        return model(nodes, constants)
    nodes.append(node("QuantizeLinear", ["c", "ys", "yz"], ["yq"], "yq"))
    nodes.append(node("DequantizeLinear", ["yq", "ys", "yz"], ["y"], "ydq"))
    return model(nodes, constants)


def int8(limit: int) -> Array:
    return RNG.integers(-limit, limit + 1, size=(4, 3, 3, 3)).astype(np.int8)


def test_integers_of_the_bias_are_int32_at_the_product_of_the_scales() -> None:
    bias = images(4)
    made = biased_conv(int8(127), bias)
    each(made, store_bias)
    integers, scale = constants_of(made, "Conv", 2)
    assert integers.dtype == np.int32
    np.testing.assert_array_equal(scale, STEP * SCALE)
    np.testing.assert_array_equal(integers, np.rint(bias.astype(np.float64) / scale))


@pytest.mark.parametrize(
    ("limit", "factor"), [(1, 64), (3, 16), (7, 8), (31, 2), (64, 1), (127, 1)]
)
def test_small_integers_are_multiplied_so_that_the_bias_is_finer(limit: int, factor: int) -> None:
    integers, bias = int8(limit), images(4)
    integers[0, 0, 0, 0] = limit
    made = biased_conv(integers, bias)
    x = images(3, 3, 6, 6)
    wanted = computed(made, x)
    each(made, store_bias)
    stored, scale = constants_of(made, "Conv", 1)
    np.testing.assert_array_equal(stored, integers * factor)
    np.testing.assert_array_equal(scale, SCALE / np.float32(factor))
    assert abs(stored).max() <= FEW_BITS or factor == 1
    bias_integers, bias_scale = constants_of(made, "Conv", 2)
    assert np.abs(bias_integers * bias_scale - bias).max() <= 0.501 * (STEP * SCALE).max() / factor
    steps = np.abs(computed(made, x) - wanted) / 0.03
    assert steps.max() < 1.01
    assert (steps > 0.5).mean() < 0.01


def test_a_channel_whose_bias_leaves_int32_gets_a_larger_scale() -> None:
    scale, bias = SCALE.copy(), images(4)
    scale[2], bias[2] = 1e-12, 5.0
    made = biased_conv(int8(127), bias, scale)
    each(made, store_bias)
    integers, bias_scale = constants_of(made, "Conv", 2)
    np.testing.assert_allclose(integers * bias_scale.astype(np.float64), bias, atol=1e-4)
    stored, weight_scale = constants_of(made, "Conv", 1)
    assert not stored[2].any()  # 127e-12 is nothing beside a bias of 5
    np.testing.assert_array_equal(weight_scale[[0, 1, 3]], SCALE[[0, 1, 3]])


def test_a_dead_channel_keeps_a_fine_bias() -> None:
    integers, bias = int8(127), images(4)
    integers[1] = 0
    made = biased_conv(integers, bias)
    each(made, store_bias)
    bias_integers, scale = constants_of(made, "Conv", 2)
    assert abs(bias_integers[1] * np.float64(scale[1]) - bias[1]) < 1e-6


@pytest.mark.parametrize("reason", ["float result", "no constant", "infinite"])
def test_other_biases_stay_float(reason: str) -> None:
    bias = images(4)
    if reason == "infinite":
        bias[0] = np.inf
    made = biased_conv(int8(127), bias, last="Relu" if reason == "float result" else "Q")
    if reason == "no constant":
        made.graph.initializers["b"].const_value = None
    before = op_types(made)
    each(made, store_bias)
    assert op_types(made) == before
