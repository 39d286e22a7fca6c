from __future__ import annotations

import numpy as np
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional import add, cat, mul
from onnxq.operator import IntegerCall
from onnxq.qparams import per_tensor
from onnxq.qtensor import QTensor, _empty_affine_quantized, quantize_per_tensor

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(2))
A = quantize_per_tensor(X, 0.05, 100, "quint8")
B = quantize_per_tensor(Y, 0.07, 90, "quint8")


def test_sums_and_products_have_the_given_qparams() -> None:
    for function, real in [
        (add, A.dequantize() + B.dequantize()),
        (mul, A.dequantize() * B.dequantize()),
    ]:
        y = function(A, B, scale=0.1, zero_point=128)
        assert y.qparams == per_tensor(0.1, 128, A.dtype)
        # half an LSB, and float32's rounding of a value of some hundred steps
        assert np.abs(y.dequantize() - real).max() <= 0.05 * (1 + 1e-4)


def test_the_default_is_scale_1_and_zero_point_0() -> None:
    assert add(A, B).qparams == mul(A, B).qparams == per_tensor(1.0, 0, A.dtype)


def test_integers_are_those_of_onnxs_operator() -> None:
    """Functions add as com.microsoft QLinearAdd does in a deployed model."""
    operator = catalog.find_integer("QLinearAdd", "com.microsoft")
    if operator is None:
        pytest.skip("QLinearAdd on integers is not there")
    out = per_tensor(0.1, 128, A.dtype)
    operands = [
        part for x in (A, B) for part in (x.int_repr(), x.qparams.scale, x.qparams.zero_point)
    ]
    expected = operator.kernel(
        IntegerCall(operator.op_type, [*operands, out.scale, out.zero_point])
    )[0]
    assert np.array_equal(add(A, B, 0.1, 128).int_repr(), expected)


def test_shapes_broadcast() -> None:
    assert add(A, B[:1, :, :1], 0.1, 128).size() == (2, 3, 4)
    with pytest.raises(ShapeError):
        add(A, B[:, :2], 0.1, 128)


def test_out_says_scale_and_zero_point_as_documented() -> None:
    a = quantize_per_tensor(X, 0.05, 0, "qint8")
    c = _empty_affine_quantized(scale=0.5, zero_point=32, dtype="qint8")
    assert add(a, a, out=c) is c
    assert c.equal(add(a, a, scale=0.5, zero_point=32))
    assert mul(a, a, out=c) is c
    assert c.equal(mul(a, a, scale=0.5, zero_point=32))
    d = _empty_affine_quantized((4, 3, 4), scale=0.5, zero_point=32, dtype="qint8")
    assert cat([a, a], out=d).equal(cat([a, a], scale=0.5, zero_point=32))


def test_out_may_be_an_operand() -> None:
    a = A.clone()
    expected = add(A, B, A.q_scale(), A.q_zero_point())
    assert add(a, B, out=a).equal(expected)


def test_out_must_fit() -> None:
    with pytest.raises(ShapeError, match="out is int8; wanted uint8"):
        add(A, B, out=_empty_affine_quantized(dtype="qint8"))
    with pytest.raises(ShapeError, match=r"out has shape \(2,\); wanted \(2, 3, 4\)"):
        mul(A, B, out=_empty_affine_quantized((2,), dtype="quint8"))
    with pytest.raises(ShapeError, match="out is a ndarray"):
        cat([A], out=X)  # type: ignore[arg-type]


def test_types_are_not_mixed() -> None:
    b = quantize_per_tensor(Y, 0.07, 0, "qint8")
    for function in (add, mul):
        with pytest.raises(ShapeError, match="operands are uint8, int8; wanted the same"):
            function(A, b)
    with pytest.raises(ShapeError, match="operands are uint8, int8; wanted the same"):
        cat([A, b])


def test_kernels_are_of_8_bits() -> None:
    q = quantize_per_tensor(X, 0.05, 0, "qint32")
    with pytest.raises(UnsupportedError, match="8 bits"):
        add(q, q)


def test_a_concatenation_copies_equal_qparams_and_quantizes_others_again() -> None:
    assert np.array_equal(
        cat([A, A], 1).int_repr(), np.concatenate([A.int_repr(), A.int_repr()], 1)
    )
    y = cat([A, B], dim=-1, scale=0.1, zero_point=128)
    parts = [quantize_per_tensor(x.dequantize(), 0.1, 128, "quint8").int_repr() for x in (A, B)]
    assert np.array_equal(y.int_repr(), np.concatenate(parts, -1))


def test_a_concatenation_has_the_firsts_qparams_by_default() -> None:
    assert cat([A, B]).qparams == A.qparams
    assert cat([B, A], scale=0.1).qparams == per_tensor(0.1, 90, A.dtype)


def test_a_concatenation_takes_every_type() -> None:
    q = quantize_per_tensor(X, 0.05, 0, "qint32")
    assert cat([q, q]).size() == (4, 3, 4)


def test_tensors_that_do_not_fit_side_by_side_are_refused() -> None:
    with pytest.raises(ShapeError, match="no tensors"):
        cat([])
    with pytest.raises(ShapeError, match="Concat"):
        cat([A, B[:, :1]])
    with pytest.raises(ShapeError, match="Concat"):
        cat([A, B], 3)


def test_rank_0_adds() -> None:
    one = QTensor(np.array(102, np.uint8), A.qparams)
    assert add(one, one, 0.1, 0).item() == pytest.approx(0.2)
