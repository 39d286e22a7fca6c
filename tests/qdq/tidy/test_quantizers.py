from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from onnxq.qdq.tidy import share_equal
from tests.op_types import op_types
from tests.qdq.tidy.quantized import Array, computed, images, model, node


def two_readers(
    second: tuple[float, int], clips: tuple[int, int] = (255, 255), rank: int = 0
) -> tuple[list[str], Array, Array]:
    """x, quantized twice: (ops afterwards, what it computed before, and after)."""
    constants: dict[str, Array] = {}
    nodes = []
    for i, (scale, middle) in enumerate([(0.05, 128), second]):
        constants |= {
            f"s{i}": np.full((3,) * rank, scale, np.float32),
            f"z{i}": np.full((3,) * rank, middle, np.uint8),
            f"l{i}": np.array(0, np.uint8),
            f"h{i}": np.array(clips[i], np.uint8),
        }
        nodes += [
            node("QuantizeLinear", ["x", f"s{i}", f"z{i}"], [f"q{i}"], f"q{i}", axis=1),
            node("Clip", [f"q{i}", f"l{i}", f"h{i}"], [f"c{i}"], f"c{i}"),
            node("DequantizeLinear", [f"c{i}", f"s{i}", f"z{i}"], [f"d{i}"], f"d{i}", axis=1),
        ]
    nodes.append(node("Mul", ["d0", "d1"], ["y"], "mul"))
    made = model(nodes, constants)
    x = images(2, 3, 6, 6) * 3
    before = computed(made, x)
    share_equal(made)
    return op_types(made), before, computed(made, x)


@pytest.mark.parametrize("rank", [0, 1])
def test_equal_quantizers_and_clips_become_one(rank: int) -> None:
    found, before, after = two_readers((0.05, 128), rank=rank)
    np.testing.assert_array_equal(before, after)
    assert found.count("QuantizeLinear") == 1
    assert found.count("Clip") == 1
    assert found.count("DequantizeLinear") == 2


@pytest.mark.parametrize("second", [(0.04, 128), (0.05, 127)])
def test_others_stay_two(second: tuple[float, int]) -> None:
    found, before, after = two_readers(second)
    np.testing.assert_array_equal(before, after)
    assert found.count("QuantizeLinear") == 2


def test_different_clips_of_the_same_integers_stay_two() -> None:
    found, before, after = two_readers((0.05, 128), clips=(255, 140))
    np.testing.assert_array_equal(before, after)
    assert (found.count("QuantizeLinear"), found.count("Clip")) == (1, 2)


def test_integers_that_are_an_output_stay() -> None:
    constants: dict[str, Array] = {"s": np.array(1, np.float32), "z": np.array(0, np.int8)}
    nodes = [node("QuantizeLinear", ["x", "s", "z"], [y], y) for y in "ab"]
    made = model(nodes, constants, outputs=dict.fromkeys("ab", TensorProto.INT8))
    share_equal(made)
    assert len(op_types(made)) == 2
