"""Codes of a weight by a method."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from onnxq.blocks.input_moments import InputMoments
from onnxq.blocks.seen_inputs import SeenInputs
from onnxq.blocks.solve import noise_of, prepared, solve
from onnxq.errors import CalibrationError
from onnxq.in_blocks.block_codes import stacked
from onnxq.in_blocks.block_spec import BlockSpec, Method
from tests.blocks.block_models import weight

SPEC = BlockSpec(4, 16)


def moments(inputs: int = 48) -> InputMoments:
    generator = np.random.default_rng(1)
    mixed = generator.standard_normal((400, 8)) @ generator.standard_normal((8, inputs))
    rows = mixed + 0.3 * generator.standard_normal((400, inputs))
    return InputMoments.of_rows(rows.astype(np.float32))


@pytest.mark.parametrize("method", Method)
def test_rows_are_solved_apart_from_each_other(method: Method) -> None:
    w = weight(7, 48)
    solver = pickle.loads(pickle.dumps(prepared(method, SeenInputs.whole(moments()))))
    parts = stacked([solver(w[:3], SPEC), solver(w[3:], SPEC)])
    whole = solve(w, SPEC, method, moments())
    assert np.array_equal(parts.codes, whole.codes)
    assert np.array_equal(parts.scale, whole.scale)


@pytest.mark.parametrize("method", [Method.GPTQ, Method.AWQ])
def test_methods_that_see_data_want_some(method: Method) -> None:
    with pytest.raises(CalibrationError, match="needs samples"):
        prepared(method)


def test_noise_is_the_mean_square_of_what_the_product_loses() -> None:
    generator = np.random.default_rng(2)
    x = generator.standard_normal((50, 48)).astype(np.float32)
    w = weight(5, 48)
    codes = solve(w, SPEC, Method.RTN)
    lost = np.square(x.astype(np.float64) @ (w - codes.reals).T).sum(1).mean()
    assert noise_of(w, codes, InputMoments.of_rows(x)) == pytest.approx(lost, rel=1e-5)
