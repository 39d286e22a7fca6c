"""Integers of a weight by a method."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.hessian import InputHessians
from onnxq.weights.solve import prepared
from tests.weights.block_models import hessian_of, solved, weight

if TYPE_CHECKING:
    from onnxq.weights.hessian import Hessian

SPEC = GroupSpec(4, 16)


def hessians(inputs: int = 48) -> Hessian:
    generator = np.random.default_rng(1)
    mixed = generator.standard_normal((400, 8)) @ generator.standard_normal((8, inputs))
    rows = mixed + 0.3 * generator.standard_normal((400, inputs))
    return hessian_of(rows.astype(np.float32))


@pytest.mark.parametrize("method", Method)
def test_rows_are_solved_apart_from_each_other(method: Method) -> None:
    w = weight(7, 48)
    solver = pickle.loads(pickle.dumps(prepared(method, InputHessians.whole(hessians()))))
    parts = [solver(w[:3], SPEC), solver(w[3:], SPEC)]
    whole = solved(w, SPEC, method, hessians())
    assert np.array_equal(np.concatenate([part.integers for part in parts]), whole.integers)
    # BLAS may add the up to 48 terms of a weight's correction otherwise for fewer rows
    rounding = w.shape[1] * np.finfo(np.float32).eps
    scale = np.concatenate([part.scale for part in parts])
    np.testing.assert_allclose(scale, whole.scale, rtol=rounding, atol=0)


def test_gptq_without_samples_is_refused() -> None:
    with pytest.raises(CalibrationError, match="needs samples"):
        prepared(Method.GPTQ)
