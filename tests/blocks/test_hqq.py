"""Half-quadratic quantization."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.blocks.hqq import POWER
from onnxq.blocks.solve import solve
from onnxq.in_blocks.block_spec import BlockSpec, Method, Scheme
from tests.blocks.block_models import weight


@pytest.mark.parametrize("bits", [2, 4])
def test_the_sum_of_powers_is_no_more_than_that_of_rounding(bits: int) -> None:
    w, spec = weight(64, 96), BlockSpec(bits, 32)
    nearest, made = (solve(w, spec, m) for m in (Method.RTN, Method.HQQ))
    costs = [(np.abs(c.reals - w) ** POWER).sum() for c in (nearest, made)]
    assert costs[1] <= costs[0]


def test_symmetric_codes_have_no_zero_point_to_move() -> None:
    w, spec = weight(4, 32), BlockSpec(4, 32, Scheme.SYMMETRIC)
    assert (solve(w, spec, Method.HQQ).zero_point == spec.middle).all()
