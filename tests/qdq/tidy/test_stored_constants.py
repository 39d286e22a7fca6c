from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.errors import UnsupportedError
from onnxq.qdq.tidy.stored_constants import DEAD, store_integers, store_narrow
from tests.op_types import op_types
from tests.qdq.tidy.quantized import Array, computed, constants_of, each, images, model, node

W = images(4, 3, 3, 3, seed=1)
SCALE = (np.abs(W).max((1, 2, 3)) / 100).astype(np.float32)


def quantized_weight(
    zero_point: Array, scale: Array = SCALE, clip: tuple[int, int] | None = None
) -> ir.Model:
    nodes = [node("QuantizeLinear", ["w", "s", "z"], ["q"], "wq", axis=0)]
    constants: dict[str, Array] = {"w": W, "s": scale, "z": zero_point}
    if clip is not None:
        constants |= {k: np.array(v, zero_point.dtype) for k, v in zip("lh", clip, strict=True)}
        nodes.append(node("Clip", ["q", "l", "h"], ["c"], "clip"))
    last = "q" if clip is None else "c"
    nodes.append(node("DequantizeLinear", [last, "s", "z"], ["wd"], "wdq", axis=0))
    nodes.append(node("Conv", ["x", "wd"], ["y"], "conv"))
    return model(nodes, constants)


@pytest.mark.parametrize("middle", [0, 128])
@pytest.mark.parametrize("cut", [None, 20])
def test_a_weight_is_stored_as_int8_and_computes_the_same(middle: int, cut: int | None) -> None:
    dtype = np.uint8 if middle else np.int8
    clip = None if cut is None else (middle - cut, middle + cut)
    made = quantized_weight(np.full(4, middle, dtype), clip=clip)
    x = images(2, 3, 6, 6)
    wanted = computed(made, x)
    each(made, store_integers)
    assert op_types(made) == ["DequantizeLinear", "Conv"]
    np.testing.assert_array_equal(computed(made, x), wanted)
    integers = np.rint(W / SCALE.reshape(4, 1, 1, 1))
    stored = constants_of(made, "Conv", 1)[0]
    np.testing.assert_array_equal(stored, integers if cut is None else np.clip(integers, -cut, cut))
    assert stored.dtype == np.int8


def test_a_channel_of_amax_0_gets_a_small_scale() -> None:
    scale = SCALE.copy()
    scale[1] = 2.0**127
    made = quantized_weight(np.zeros(4, np.int8), scale)
    each(made, store_integers)
    integers, stored = constants_of(made, "Conv", 1)
    assert not integers[1].any()
    wanted = SCALE.copy()
    wanted[1] = np.delete(SCALE, 1).max() * DEAD
    np.testing.assert_array_equal(stored, wanted)


def activation(scale: float) -> ir.Model:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], "dq"),
    ]
    return model(nodes, {"s": np.array(scale, np.float32), "z": np.array(0, np.int8)})


def test_what_is_no_constant_stays() -> None:
    made = activation(1.0)
    each(made, store_integers)
    assert op_types(made) == ["QuantizeLinear", "DequantizeLinear"]


def test_a_tensor_of_amax_0_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'x' is quantized with amax <= 2\^-24"):
        each(activation(2.0**127), store_integers)


def test_integers_that_are_cast_to_4_bits_are_stored_in_4_bits() -> None:
    integers = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    nodes = [
        node("Cast", ["c"], ["n"], "narrow", to=ir.DataType.INT4),
        node("DequantizeLinear", ["n", "s"], ["wd"], "wdq"),
        node("MatMul", ["x", "wd"], ["y"], "matmul"),
    ]
    made = model(nodes, {"c": integers, "s": np.array(0.5, np.float32)})
    made.graph[0].outputs[0].dtype = ir.DataType.INT4
    each(made, store_narrow)
    assert op_types(made) == ["DequantizeLinear", "MatMul"]
    stored = made.graph[0].inputs[0]
    assert stored is not None
    assert stored.const_value is not None
    assert stored.const_value.dtype == ir.DataType.INT4
    np.testing.assert_array_equal(stored.const_value.numpy().astype(np.int8), integers)
