"""Integers from what the model alone tells."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.qparams.group_ranges import rounded, search_ranges, unshrunk
from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from onnxq.weights.solve import POWER
from tests.weights.block_models import solved, weight


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("inputs", [96, 80])  # the second leaves a short group
def test_real_zero_points_are_others_with_a_smaller_sum_of_powers(bits: int, inputs: int) -> None:
    w, spec = weight(64, inputs), GroupSpec(bits, 32, Scheme.REAL)
    nearest = unshrunk(w, rounded(w, spec, *search_ranges(w, spec)))
    made = solved(w, spec, Method.HQQ)
    costs = [(np.abs(c.dequantized - w) ** POWER).sum() for c in (nearest, made)]
    assert costs[1] < costs[0]


def test_symmetric_integers_have_no_zero_point_to_move() -> None:
    w, spec = weight(4, 32), GroupSpec(4, 32, Scheme.SYMMETRIC)
    assert (solved(w, spec, Method.HQQ).zero_point == spec.middle).all()
