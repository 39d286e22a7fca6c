from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import dtypes
from onnxq.errors import ShapeError
from onnxq.functional import (
    celu,
    clamp,
    elu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    relu,
    relu_,
    threshold,
)
from onnxq.qtensor import QTensor, quantize_per_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.linspace(-5, 5, 41, dtype=np.float32).reshape(1, 41)
INTEGERS = [t for t in dtypes.all_qdtypes() if t.is_integer]


def quantized(scale: float = 0.25, zero_point: int = 20, dtype: str = "quint8") -> QTensor:
    return quantize_per_tensor(X, scale, zero_point, dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_clamps_keep_qparams_and_take_every_type(dtype: dtypes.QDType) -> None:
    q = quantize_per_tensor(X, 0.5, 1, dtype)
    real = q.dequantize()
    assert relu(q).qparams == hardtanh(q).qparams == q.qparams
    assert np.array_equal(relu(q).dequantize(), np.maximum(real, 0))
    low, high = max(-1, real.min()), min(1, real.max())
    assert np.array_equal(hardtanh(q).dequantize(), np.clip(real, low, high))


def test_bounds_are_rounded_to_integers() -> None:
    assert hardtanh(quantized(), -0.3, 0.6).max().item() == 0.5
    assert hardtanh(quantized(), 0, 0).max().item() == 0
    with pytest.raises(ShapeError, match=r"min_val 1\.0 is above max_val -1\.0"):
        hardtanh(quantized(), 1.0, -1.0)


def test_a_threshold_replaces_what_is_not_above_it() -> None:
    x = quantized().dequantize()
    found = threshold(quantized(), 0.5, -1.1).dequantize()
    assert np.array_equal(found, np.where(x > 0.5, x, -1.0))  # the nearest integer of -1.1
    assert clamp(quantized(), -0.5, 1).equal(hardtanh(quantized(), -0.5, 1))


def test_a_leaky_relu_has_both_numbers_or_neither() -> None:
    assert leaky_relu(quantized()).qparams == quantized().qparams
    with pytest.raises(ShapeError, match="both numbers, or neither"):
        leaky_relu(quantized(), scale=0.1)
    with pytest.raises(ShapeError, match="both numbers, or neither"):
        leaky_relu(quantized(), inplace=True, scale=0.1, zero_point=3)


def test_functions_are_rounded_once() -> None:
    q = quantized()
    x = q.dequantize().astype(np.float64)
    six = np.minimum(np.maximum(x + 3, 0), 6) / 6
    for y, real in [
        (elu(q, 0.03, 40), np.where(x > 0, x, np.expm1(x))),
        (elu(q, 0.03, 40, alpha=0.5), np.where(x > 0, x, 0.5 * np.expm1(x))),
        (hardswish(q, 0.03, 40), x * six),
        (celu(q, 0.03, 40, alpha=0.5), np.where(x > 0, x, 0.5 * np.expm1(x / 0.5))),
        (leaky_relu(q, 0.25, scale=0.03, zero_point=40), np.where(x > 0, x, 0.25 * x)),
    ]:
        assert y.equal(quantize_per_tensor(np.asarray(real, np.float32), 0.03, 40, q.dtype))


@pytest.mark.parametrize(("dtype", "zero_point"), [("quint8", 0), ("qint8", -128)])
def test_a_hardsigmoid_spans_0_to_1(dtype: str, zero_point: int) -> None:
    y = hardsigmoid(quantized(0.125, 50, dtype))
    assert (y.q_scale(), y.q_zero_point()) == (2**-8, zero_point)
    assert (y.min().item(), y.max().item()) == (0, 255 / 256)


def test_in_place_functions_return_their_input() -> None:
    cases: list[tuple[Callable[[QTensor], QTensor], QTensor]] = [
        (lambda q: relu(q, inplace=True), relu(quantized())),
        (relu_, relu(quantized())),
        (lambda q: hardtanh(q, inplace=True), hardtanh(quantized())),
        (lambda q: hardsigmoid(q, inplace=True), hardsigmoid(quantized())),
    ]
    for function, expected in cases:
        q = quantized()
        assert function(q) is q
        assert q.equal(expected)


def test_functions_copy_otherwise() -> None:
    q = quantized()
    relu(q), hardtanh(q), hardsigmoid(q), hardswish(q, 1.0, 0), elu(q, 1.0, 0)
    assert q.equal(quantized())


def test_qparams_of_results_are_checked() -> None:
    for function in (elu, hardswish):
        with pytest.raises(ShapeError, match="zero_point: got 256"):
            function(quantized(), 0.1, 256)
        with pytest.raises(ShapeError, match="scale: got"):
            function(quantized(), -0.1, 0)
