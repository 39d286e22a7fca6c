from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.operator import Float
from onnxq.operator.nodes import (
    constant,
    constant_operand,
    find_input,
    has_input,
    infinite,
    infinite_operand,
    input_at,
    is_constant,
    shape,
    tensor_of,
)


def node(array: np.ndarray | None = None) -> ir.Node:
    """Op(x float[N,3], <absent>, w)."""
    x = ir.val("x", ir.DataType.FLOAT, ["N", 3])
    w = ir.Value(name="w", const_value=None if array is None else ir.tensor(array))
    return ir.node("Op", [x, None, w])


def test_absent_inputs_are_not_connected() -> None:
    assert [has_input(node(), slot) for slot in range(4)] == [True, False, True, False]


def test_inputs_that_a_node_needs_are_read_without_a_check() -> None:
    made = node(np.ones(2, np.float32))
    assert input_at(made, 0) is made.inputs[0]
    assert [find_input(made, slot) for slot in range(4)] == [*made.inputs, None]
    assert tensor_of(input_at(made, 2)).shape == (2,)
    with pytest.raises(AssertionError):
        input_at(made, 1)


def test_only_initializers_are_constant() -> None:
    array = np.ones(2, np.float32)
    assert [is_constant(node(array), slot) for slot in range(4)] == [False, False, True, False]
    found = constant(node(array), 2)
    assert found is not None
    np.testing.assert_array_equal(found, array)
    assert constant(node(), 2) is None


def test_a_default_that_a_caller_may_override_is_not_constant() -> None:
    made = node(np.ones(2, np.float32))
    w = made.inputs[2]
    assert w is not None
    ir.Graph([w], made.outputs, nodes=[made], initializers=[w])
    assert not is_constant(made, 2)
    assert constant(made, 2) is None


def test_sizes_that_are_not_known_are_none() -> None:
    assert shape(node(), 0) == (None, 3)
    assert [shape(node(), slot) for slot in (1, 2, 3)] == [None] * 3


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([1e5, -1e5], False), ([], False), ([0, -1e9], True), ([np.inf], True), ([np.nan], True)],
)
def test_numbers_that_no_scale_holds_beside_data_count_as_infinite(
    values: list[float], wanted: bool
) -> None:
    assert infinite(np.array(values, np.float32)) == wanted


def test_a_mask_of_infinities_keeps_its_node_in_float() -> None:
    masked = infinite_operand(node(np.array([0, -np.inf], np.float32)), (0, 1, 2))
    assert isinstance(masked, Float)
    assert "infinity" in masked.reason.words
    assert infinite_operand(node(np.ones(2, np.float32)), (0, 1, 2)) is None


def test_only_floating_point_constants_can_stand_for_infinity() -> None:
    assert not infinite(np.array([2**40]))
    assert not infinite(np.array(["text"], object))
    assert infinite(np.array([0, np.nan], np.float32))


@pytest.mark.parametrize(
    ("array", "number"), [(np.full(3, 2.0), 2.0), (np.arange(3.0), None), (np.empty(0), None)]
)
def test_a_constant_operand_that_is_one_number(array: np.ndarray, number: float | None) -> None:
    x = ir.val("x", ir.DataType.FLOAT, ["N", 3])
    w = ir.Value(name="w", const_value=ir.tensor(array))
    assert constant_operand(ir.node("Op", [x, w])) == number
    assert constant_operand(ir.node("Op", [w, x])) == number
    assert constant_operand(ir.node("Op", [x, x])) is None
