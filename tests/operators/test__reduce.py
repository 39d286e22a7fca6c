from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import NodeCall
from onnxq.operators._reduce import axes_of, reduce_integers

X = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_axes_come_from_the_input_or_the_attribute() -> None:
    by_input = reduce_integers(
        NodeCall("ReduceMax", [X, np.array([1, -1])], attributes={"axes": [0]}), X, np.maximum
    )
    by_attribute = reduce_integers(
        NodeCall("ReduceMax", [X], attributes={"axes": [1, 2]}), X, np.maximum
    )
    np.testing.assert_array_equal(by_input, X.max(axis=(1, 2), keepdims=True))
    np.testing.assert_array_equal(by_attribute, by_input)
    assert by_input.dtype == np.uint8


def test_without_axes_everything_is_reduced_or_nothing() -> None:
    assert reduce_integers(NodeCall("ReduceMin", [X]), X, np.minimum).tolist() == [[[0]]]
    untouched = reduce_integers(
        NodeCall("ReduceMin", [X, None], attributes={"noop_with_empty_axes": 1}), X, np.minimum
    )
    np.testing.assert_array_equal(untouched, X)
    assert not np.shares_memory(untouched, X)


def test_keepdims_0_drops_the_axes() -> None:
    dropped = reduce_integers(
        NodeCall("ReduceMin", [X], attributes={"axes": [1], "keepdims": 0}), X, np.minimum
    )
    assert dropped.shape == (2, 4)


def test_an_axis_outside_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"ReduceMax: axes \[5\] of a tensor of rank 3"):
        reduce_integers(NodeCall("ReduceMax", [X], attributes={"axes": [5]}), X, np.maximum)


def test_axes_come_from_the_input_then_the_attribute_then_are_all() -> None:
    assert axes_of(NodeCall("ReduceSum", (), attributes={"axes": [1]}), 3, [-1, 0]) == [0, 2]
    assert axes_of(NodeCall("ReduceSum", (), attributes={"axes": [1]}), 3, None) == [1]
    assert axes_of(NodeCall("ReduceSum", ()), 3, None) == [0, 1, 2]
    assert axes_of(NodeCall("ReduceSum", (), attributes={"noop_with_empty_axes": 1}), 3, []) == []


def test_an_axis_twice_is_refused() -> None:
    with pytest.raises(ShapeError, match="axes"):
        axes_of(NodeCall("ReduceSum", ()), 2, [1, -1])
