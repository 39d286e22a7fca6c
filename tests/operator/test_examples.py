from __future__ import annotations

import numpy as np

from onnxq.operator.examples import ints, normal


def test_arrays_are_the_same_at_every_call_and_differ_by_seed() -> None:
    np.testing.assert_array_equal(normal(2, 3), normal(2, 3))
    assert (normal(2, 3) != normal(2, 3, seed=1)).all()
    assert normal(2, 3).dtype == np.float32


def test_vectors_of_integers_are_int64() -> None:
    assert ints(1, -1).dtype == np.int64
    assert ints().shape == (0,)
