"""Copies, sizes in place and means, as PyTorch documents them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq import dtypes, qtensor
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.qparams import per_tensor
from onnxq.qtensor import (
    QTensor,
    _empty_affine_quantized,
    quantize_per_tensor,
)
from tests.qtensor.examples import INTEGERS, X, per_channel_quantized, per_tensor_quantized, row


def test_copy_takes_over_integers_and_qparams() -> None:
    q, src = per_tensor_quantized(), quantize_per_tensor(X, 0.1, 3, qtensor.quint8)
    assert q.copy_(src) is q
    assert q.equal(src)


def test_copy_quantizes_floats_with_its_own_qparams() -> None:
    for q, qparams in [(t, t.qparams) for t in (per_tensor_quantized(), per_channel_quantized())]:
        expected = q.clone()
        q.copy_(np.zeros_like(X)).copy_(X)
        assert q.equal(expected)
        assert q.qparams == qparams


def test_copy_reaches_through_views() -> None:
    q = per_tensor_quantized()
    q[0].copy_(np.zeros((3, 4), np.float32))
    assert (q[0] == 0).all()
    assert q[1].equal(per_tensor_quantized()[1])


def test_copy_of_an_overlapping_view_reads_before_it_writes() -> None:
    q = row(1, 2, 3, 4)
    q[1:].copy_(q[:3])
    assert q.int_repr().tolist() == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("src", "said"),
    [
        (quantize_per_tensor(X, 0.1, 0, qtensor.qint8), "from int8 .* to uint8"),
        (per_channel_quantized(), "wanted the same"),
        (quantize_per_tensor(X[:1], 0.1, 0, qtensor.quint8), r"from shape \(1, 3, 4\)"),
        (X[:1], r"from shape \(1, 3, 4\)"),
        (X.astype(np.float64), "float64"),
    ],
)
def test_copy_needs_the_same_shape_and_type(src: QTensor, said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        per_tensor_quantized().copy_(src)


def test_a_repeated_element_cannot_be_written() -> None:
    q = row(1).expand(3)
    with pytest.raises(UnsupportedError, match=r"one in memory. Call clone\(\) first"):
        q.copy_(row(1, 2, 3))


def test_resize_keeps_the_memory_and_fills_with_zeros() -> None:
    q = QTensor(np.arange(1, 5, dtype=np.uint8), per_tensor(0.5, 7, qtensor.quint8))
    assert q.resize_(2, 1) is q
    assert q.int_repr().tolist() == [[1], [2]]
    assert q.resize_((4,)).int_repr().tolist() == [1, 2, 3, 4]
    assert q.resize_(2, 3).int_repr().tolist() == [[1, 2, 3], [4, 7, 7]]
    assert q.dequantize()[1, 2] == 0


def test_resize_of_a_view_starts_where_it_starts() -> None:
    q = row(1, 2, 3, 4)
    assert q[2:].resize_(1).int_repr().tolist() == [3]
    assert q[2:2].resize_(1).int_repr().tolist() == [0]  # nothing of what it has no element of


def test_resize_refuses_negative_sizes() -> None:
    with pytest.raises(ShapeError, match="negative"):
        row(1).resize_(-1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_mean_is_the_rounded_mean_of_integers(dtype: dtypes.QDType) -> None:
    q = quantize_per_tensor(X, 0.5, 1, dtype)
    integers = q.int_repr().astype(np.float64)
    for dim in (None, 0, -1, (0, 2), ()):
        axes = None if dim == () else dim
        expected = np.rint(integers.mean(axes) - 1) + 1  # halves to even before the zero point
        y = q.mean(dim)
        assert y.qparams == q.qparams
        assert np.array_equal(y.int_repr(), expected)
    assert q.mean((0, 2), keepdim=True).size() == (1, 3, 1)


def test_a_mean_takes_the_qparams_of_out() -> None:
    q = row(1, 2, 3, 4)
    out = _empty_affine_quantized((), scale=0.25, zero_point=9, dtype="quint8")
    assert q.mean(out=out) is out
    assert out.int_repr() == 1.25 / 0.25 + 9
    empty = _empty_affine_quantized(scale=0.25, zero_point=9, dtype="quint8")
    assert q.view(2, 2).mean(1, out=empty).int_repr().tolist() == [12, 16]


def test_a_long_sum_does_not_wrap() -> None:
    integers = np.full(2**23 + 2**20, 255, np.uint8)  # their sum is beyond int32
    assert QTensor(integers, per_tensor(1.0, 0, qtensor.quint8)).mean().item() == 255


def test_a_mean_needs_axes_once_and_a_fitting_out() -> None:
    q = per_tensor_quantized()
    with pytest.raises(ShapeError, match="no twins"):
        q.mean((0, -3))
    with pytest.raises(ShapeError, match="out is int8; wanted uint8"):
        q.mean(out=_empty_affine_quantized(dtype="qint8"))
    with pytest.raises(ShapeError, match=r"out has shape \(3,\); wanted \(3, 4\)"):
        q.mean(0, out=_empty_affine_quantized((3,), dtype="quint8"))
