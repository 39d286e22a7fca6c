"""A weight in groups, and its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.core.packing import unpacked_rows
from onnxq.errors import ShapeError
from onnxq.qparams.group_spec import GroupSpec
from onnxq.qparams.groups import GroupIntegers

SPEC = GroupSpec(4, 16)


def integers(rows: int = 3, inputs: int = 20) -> GroupIntegers:
    generator = np.random.default_rng(0)
    shape = (rows, SPEC.groups(inputs))
    return GroupIntegers(
        SPEC,
        generator.integers(0, 16, (rows, inputs)).astype(np.uint8),
        generator.random(shape).astype(np.float32) + np.float32(0.1),
        generator.integers(0, 16, shape).astype(np.uint8),
    )


def test_reals_are_integers_less_zero_points_times_scales() -> None:
    made = integers()
    q, z = made.integers.astype(np.float32), made.zero_point.astype(np.float32)
    assert made.dequantized[1, 5] == (q[1, 5] - z[1, 0]) * made.scale[1, 0]
    assert made.dequantized[2, 17] == (q[2, 17] - z[2, 1]) * made.scale[2, 1]


def test_a_short_block_is_filled_up_with_its_zero_point() -> None:
    made = integers()
    rows = unpacked_rows(made.packed().integers.reshape(3, -1), 4)
    assert np.array_equal(rows[:, :20], made.integers)
    assert (rows[:, 20:] == made.zero_point[:, 1:]).all()


def test_scales_that_do_not_fit_are_refused() -> None:
    made = integers()
    with pytest.raises(ShapeError, match=r"want scales and zero points of shape \(3, 2\)"):
        GroupIntegers(SPEC, made.integers, made.scale[:, :1], made.zero_point[:, :1])
