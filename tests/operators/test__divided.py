from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.operators._divided import divided_product, divided_sum
from onnxq.operators._tables import all_integers
from onnxq.operators.add import add_integers
from onnxq.operators.mul import multiply_integers
from onnxq.qparams import QParams, per_tensor

A, B = all_integers(UINT8)[:, None], all_integers(UINT8)[None, :]


def all_qparams(scales: tuple[float, float, float], zeros: tuple[int, int, int]) -> list[QParams]:
    return [per_tensor(s, z, UINT8) for s, z in zip(scales, zeros, strict=True)]


# integers that onnxruntime-web 1.30 gave, and x86, where they differ
@pytest.mark.parametrize(
    ("scales", "zeros", "ab", "wasm", "x86"),
    [
        ((0.029977087, 0.020118346, 0.02), (48, 196, 125), (79, 202), 177, 178),
        ((0.0098, 0.0095, 0.007), (71, 164, 252), (1, 73), 31, 30),
    ],
)
def test_sums_next_to_a_tie_are_as_measured(
    scales: tuple[float, float, float],
    zeros: tuple[int, int, int],
    ab: tuple[int, int],
    wasm: int,
    x86: int,
) -> None:
    p, q, out = all_qparams(scales, zeros)
    a, b = (np.array([code], np.int32) for code in ab)
    assert divided_sum(a, b, p, q, out).tolist() == [wasm]
    assert add_integers(a, b, p, q, out).tolist() == [x86]


@pytest.mark.parametrize(
    ("scales", "zeros", "ab"),
    [
        ((0.0702, 0.098456666, 0.419), (79, 208, 136), (35, 239)),
        ((0.0513, 0.006737803, 0.047708422), (247, 120, 111), (94, 14)),
    ],
)
def test_products_next_to_a_tie_are_as_measured(
    scales: tuple[float, float, float], zeros: tuple[int, int, int], ab: tuple[int, int]
) -> None:
    p, q, out = all_qparams(scales, zeros)
    a, b = (np.array([code], np.int32) for code in ab)
    assert multiply_integers(a, b, p, q, out) - divided_product(a, b, p, q, out) == 1


@pytest.mark.parametrize("function", [divided_sum, divided_product])
def test_operands_may_change_places(function: object) -> None:
    p, q, out = all_qparams((0.0098, 0.0095, 0.007), (71, 164, 252))
    assert callable(function)
    assert np.array_equal(function(A, B, p, q, out), function(B, A, q, p, out))


def test_results_saturate_ahead_of_the_zero_point() -> None:
    p, q, out = all_qparams((1.0, 1.0, 1.0), (0, 0, 200))
    assert divided_sum(A, B, p, q, out).max() == 255
    assert divided_sum(A, B, p, q, out).min() == 200
