"""Weights that are integers, in each form that tools write, and the number of their scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.checking.inventory import Inventory, inventory
from tests.examples import network, quantized_matmul

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

W = np.arange(-16, 16, dtype=np.int8).reshape(8, 4)


def of(node: onnx.NodeProto, constants: dict[str, Array]) -> Inventory:
    """Inventory of a model of one node, from x to y."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", [x], [y], weights)
    opsets = [helper.make_opsetid(d, v) for d, v in {"": 21, "com.microsoft": 1}.items()]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="tool")
    return inventory(ir.from_proto(model))


def test_a_float_model_has_nothing_quantized() -> None:
    found = inventory(ir.from_proto(network()))
    assert not found.is_quantized
    assert (found.weights, found.activations) == ((), {})


def test_qdq_names_the_operator_that_reads_the_weight_and_its_qparams() -> None:
    found = inventory(ir.from_proto(quantized_matmul(np.array(3, np.uint8))))
    (weight,) = found.weights
    assert found.is_quantized
    assert (weight.op_type, weight.dtype) == ("MatMul", "int8")
    assert weight.granularity.startswith(("per tensor", "per channel"))
    assert found.activations == {"uint8, per tensor": 2}


@pytest.mark.parametrize(
    ("scales", "words"),
    [
        (np.float32(0.5), "per tensor"),
        (np.full(4, 0.5, np.float32), "per channel"),
        (np.full(4, -0.5, np.float32), "scale computed behind it"),  # a bias
    ],
)
def test_an_operator_on_integers_has_its_scales_behind_them(scales: Array, words: str) -> None:
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s"], ["y"], domain="com.microsoft")
    (weight,) = of(node, {"w": W, "s": np.asarray(scales)}).weights
    assert (weight.granularity, weight.shape, weight.size_bytes) == (words, (8, 4), 32)


def test_weights_in_blocks_say_their_bits() -> None:
    attributes: dict[str, Any] = {"K": 32, "N": 2, "bits": 4, "block_size": 16}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **attributes
    )
    packed = np.zeros((2, 2, 8), np.uint8)
    found = of(node, {"w": packed, "s": np.ones(4, np.float32)})
    (weight,) = found.weights
    assert (weight.dtype, weight.granularity) == ("4 bits", "groups of 16, symmetric")
    assert found.stored == {"uint8": (1, 32), "float": (1, 16)}
    assert found.producer == "tool"


@pytest.mark.parametrize(("zeros", "scheme"), [(np.uint8, "affine"), (np.float32, "real")])
def test_weights_in_blocks_say_their_scheme_and_level(zeros: type, scheme: str) -> None:
    attributes: dict[str, Any] = {"K": 32, "N": 2, "bits": 4, "block_size": 16, "accuracy_level": 4}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft", **attributes
    )
    constants: dict[str, Array] = {
        "w": np.zeros((2, 2, 8), np.uint8),
        "s": np.ones(4, np.float32),
        "z": np.zeros(2, zeros),
    }
    assert [weight.granularity for weight in of(node, constants).weights] == [
        f"groups of 16, {scheme}, accuracy level 4"
    ]


def test_the_value_prints_in_a_line() -> None:
    found = inventory(ir.from_proto(quantized_matmul(np.array(3, np.uint8))))
    assert repr(found).startswith("Inventory(1 weights as integers")


@pytest.mark.parametrize(
    ("op_type", "first"),
    [("MatMulNBits", ["x", "w"]), ("GatherBlockQuantized", ["w", "x"])],
)
def test_zero_points_of_blocks_are_no_weight_though_they_are_a_matrix(
    op_type: str, first: list[str]
) -> None:
    node = helper.make_node(
        op_type, [*first, "s", "z"], ["y"], domain="com.microsoft", bits=4, block_size=32
    )
    constants: dict[str, Array] = {
        "w": np.zeros((8, 32), np.uint8),
        "s": np.ones((8, 2), np.float32),
        "z": np.zeros((8, 1), np.uint8),
    }
    (weight,) = of(node, constants).weights
    assert (weight.dtype, weight.granularity) == ("4 bits", "groups of 32, affine")
