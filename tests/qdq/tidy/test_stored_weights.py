from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq.graph.edit import FreeNames
from onnxq.qdq.tidy.stored_weights import weight_of
from tests.qdq.tidy.quantized import (
    Array,
    computed,
    constants_of,
    images,
    model,
    node,
    weight,
)

if TYPE_CHECKING:
    import onnx_ir as ir

INTEGERS = np.arange(-54, 54).reshape(4, 3, 3, 3).astype(np.int8)


def only(
    integers: Array, scale: Array, op: str = "Conv", axis: int = 0, **attributes: Any
) -> ir.Model:
    nodes, constants = weight(integers, scale, axis)
    nodes.append(node(op, ["x", "wd"], ["y"], "layer", **attributes))
    return model(nodes, constants, ["N", 4] if op == "Gemm" else ["N", 3, 6, 6])


@pytest.mark.parametrize(
    ("op", "shape", "axis", "attributes", "channels"),
    [
        ("Conv", (4, 3, 3, 3), 0, {}, 4),
        ("ConvTranspose", (3, 4, 3, 3), 1, {}, 4),
        ("Gemm", (5, 4), 0, {"transB": 1}, 5),
        ("Gemm", (4, 5), 1, {}, 5),
    ],
)
def test_the_axis_is_that_of_the_output_channels(
    op: str, shape: tuple[int, ...], axis: int, attributes: dict[str, Any], channels: int
) -> None:
    made = only(np.ones(shape, np.int8), np.ones(channels, np.float32), op, axis, **attributes)
    found = weight_of(made.graph[1])
    assert found is not None
    assert (found.axis, found.channels, found.stem) == (axis, channels, "w")


def test_what_is_no_weight_of_that_kind_is_none() -> None:
    other_axis = only(INTEGERS, np.ones(3, np.float32), axis=1)
    ones = np.ones(4, np.float32)
    groups = only(np.ones((3, 4, 3, 3), np.int8), ones, "ConvTranspose", 1, group=3)
    for part in (other_axis.graph[1], groups.graph[1], groups.graph[0]):
        assert weight_of(part) is None


def test_exchanged_integers_and_scales_are_what_the_node_computes_with() -> None:
    made = only(INTEGERS, np.array(0.1, np.float32))
    found = weight_of(made.graph[1])
    assert found is not None
    integers, scale = (INTEGERS // 2).astype(np.int8), np.array([0.05, 0.1, 0.2, 0.4], np.float32)
    stored = found.store(integers, scale, made.graph[1], FreeNames(made))
    assert (stored.name, stored.stem) == ("w_folded_quantized", "w")
    np.testing.assert_array_equal(constants_of(made, "Conv", 1)[0], integers)
    x = images(1, 3, 6, 6)
    np.testing.assert_array_equal(computed(made, x), computed(only(integers, scale), x))
