"""Codes of a weight by a method."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.blocks.seen_inputs import SeenInputs
from onnxq.blocks.solve import prepared
from onnxq.errors import CalibrationError
from onnxq.in_blocks.block_spec import BlockSpec, Method
from tests.blocks.block_models import moments_of, solved, weight

if TYPE_CHECKING:
    from onnxq.blocks.input_moments import InputMoments

SPEC = BlockSpec(4, 16)


def moments(inputs: int = 48) -> InputMoments:
    generator = np.random.default_rng(1)
    mixed = generator.standard_normal((400, 8)) @ generator.standard_normal((8, inputs))
    rows = mixed + 0.3 * generator.standard_normal((400, inputs))
    return moments_of(rows.astype(np.float32))


@pytest.mark.parametrize("method", Method)
def test_rows_are_solved_apart_from_each_other(method: Method) -> None:
    w = weight(7, 48)
    solver = pickle.loads(pickle.dumps(prepared(method, SeenInputs.whole(moments()))))
    parts = [solver(w[:3], SPEC), solver(w[3:], SPEC)]
    whole = solved(w, SPEC, method, moments())
    assert np.array_equal(np.concatenate([part.codes for part in parts]), whole.codes)
    # BLAS may add the up to 48 terms of a weight's correction otherwise for fewer rows
    rounding = w.shape[1] * np.finfo(np.float32).eps
    scale = np.concatenate([part.scale for part in parts])
    np.testing.assert_allclose(scale, whole.scale, rtol=rounding, atol=0)


@pytest.mark.parametrize("method", [Method.GPTQ, Method.AWQ])
def test_methods_that_see_data_want_some(method: Method) -> None:
    with pytest.raises(CalibrationError, match="needs samples"):
        prepared(method)
