from __future__ import annotations

import numpy as np
import pytest

from onnxq.operators._reduce import reduce_codes

X = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_axes_come_from_the_input_or_the_attribute() -> None:
    by_input = reduce_codes(X, np.maximum, [X, np.array([1, -1])], {"axes": [0]})
    by_attribute = reduce_codes(X, np.maximum, [X], {"axes": [1, 2]})
    np.testing.assert_array_equal(by_input, X.max(axis=(1, 2), keepdims=True))
    np.testing.assert_array_equal(by_attribute, by_input)
    assert by_input.dtype == np.uint8


def test_without_axes_everything_is_reduced_or_nothing() -> None:
    assert reduce_codes(X, np.minimum, [X], {}).tolist() == [[[0]]]
    untouched = reduce_codes(X, np.minimum, [X, None], {"noop_with_empty_axes": 1})
    np.testing.assert_array_equal(untouched, X)
    assert not np.shares_memory(untouched, X)


def test_keepdims_0_drops_the_axes() -> None:
    assert reduce_codes(X, np.minimum, [X], {"axes": [1], "keepdims": 0}).shape == (2, 4)


def test_an_axis_outside_is_numpys_error() -> None:
    with pytest.raises(ValueError, match="axis 5"):
        reduce_codes(X, np.maximum, [X], {"axes": [5]})
