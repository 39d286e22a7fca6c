"""Comparisons are of real values; order is that of the integers."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq import dtypes, qtensor
from onnxq.errors import ShapeError
from onnxq.qparams import per_tensor
from onnxq.qtensor import (
    QTensor,
    quantize_per_tensor,
)
from tests.qtensor.examples import INTEGERS, X, per_channel_quantized, per_tensor_quantized, row


def test_comparisons_are_of_real_values_element_by_element() -> None:
    q, c = per_tensor_quantized(), per_channel_quantized()
    a, b = q.dequantize(), c.dequantize()
    for mine, expected in [
        (q.eq(c), a == b),
        (q.ne(c), a != b),
        (q.ge(c), a >= b),
        (q.le(c), a <= b),
        (q.gt(c), a > b),
        (q.lt(c), a < b),
        (q == b, a == b),
        (q != b, a != b),
        (q >= 0.5, a >= 0.5),
        (q <= 0.5, a <= 0.5),
        (q > X[:1], a > X[:1]),
        (X < q, a > X),  # noqa: SIM300  # the array asks the tensor
    ]:
        assert mine.dtype == np.bool
        assert np.array_equal(mine, expected)


def test_comparisons_need_shapes_that_broadcast() -> None:
    with pytest.raises(ShapeError, match="comparison with QTensor"):
        per_tensor_quantized().eq(row(1, 2, 3))


def test_equal_is_the_same_shape_integers_and_qparams() -> None:
    q = row(1, 2)
    assert q.equal(q.clone())
    assert not q.equal(row(1, 3))
    assert not q.equal(row(1, 2).view(1, 2))
    assert not q.equal(QTensor(q.int_repr(), per_tensor(0.25, 0, qtensor.quint8)))
    assert not q.equal(q.dequantize())


def test_tensors_are_hashed_by_identity() -> None:
    q = row(1)
    assert len({q, q, q.clone()}) == 2


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_order_is_that_of_the_real_values(dtype: dtypes.QDType) -> None:
    q = quantize_per_tensor(X, 0.5, 1, dtype)
    x = q.dequantize()
    assert q.max().item() == x.max()
    assert q.min().item() == x.min()
    assert q.argmax() == x.argmax()
    assert q.argmin() == x.argmin()
    for dim in (0, 1, -1):
        values, indices = q.max(dim)
        assert np.array_equal(values.dequantize(), x.max(dim))
        assert np.array_equal(indices, x.argmax(dim))
        values, indices = q.min(dim, keepdim=True)
        assert np.array_equal(values.dequantize(), x.min(dim, keepdims=True))
        assert np.array_equal(indices, x.argmin(dim, keepdims=True))
        assert np.array_equal(q.argmax(dim), x.argmax(dim))
        assert np.array_equal(q.argmin(dim, keepdim=True), x.argmin(dim, keepdims=True))
        values, indices = q.sort(dim)
        assert np.array_equal(indices, np.argsort(x, dim, kind="stable"))
        assert np.array_equal(values.dequantize(), np.sort(x, dim))
        values, indices = q.sort(dim, descending=True)
        assert np.array_equal(indices, np.argsort(-x, dim, kind="stable"))
        top = q.topk(2, dim)
        assert np.array_equal(top.values.dequantize(), values.dequantize().take([0, 1], dim))
        assert np.array_equal(top.indices, indices.take([0, 1], dim))
        bottom = q.topk(1, dim, largest=False)
        assert np.array_equal(bottom.values.dequantize(), x.min(dim, keepdims=True))
        assert bottom.indices.dtype == np.int64


def test_of_equal_elements_the_first_comes_first() -> None:
    q = row(0, 1, 1, 0, 1)
    assert q.argmax() == q.max(0).indices == 1
    assert q.argmin() == 0
    assert q.sort(descending=True).indices.tolist() == [1, 2, 4, 0, 3]
    assert q.topk(2).indices.tolist() == [1, 2]
    assert q.argsort().tolist() == [0, 3, 1, 2, 4]


def test_keepdim_without_dim_keeps_all_axes() -> None:
    assert per_tensor_quantized().argmax(keepdim=True).shape == (1, 1, 1)


def test_a_number_is_its_own_order() -> None:
    q = row(3)[0]
    assert q.ndim == 0
    assert q.max(0).values.equal(q)
    assert q.min(-1, keepdim=True).indices == 0
    assert q.sort().values.equal(q)
    assert q.topk(1).indices == 0
    assert q.mean(0).equal(q)
    assert q.argmax() == 0
    assert q.flatten().size() == (1,)


def test_order_of_nothing_is_refused_or_empty() -> None:
    empty = per_tensor_quantized()[:, :0]
    for reduce in (empty.max, empty.min, empty.argmax, empty.mean):
        with pytest.raises(ShapeError, match="elements"):
            reduce()
    with pytest.raises(ShapeError, match="no elements to reduce"):
        empty.argmin(1)
    assert empty.max(0).values.size() == (0, 4)
    assert empty.sort().values.size() == (2, 0, 4)
    assert empty.topk(0).indices.shape == (2, 0, 0)


def test_topk_has_as_many_as_there_are() -> None:
    for k in (-1, 5):
        with pytest.raises(ShapeError, match=f"k is {k}; wanted 0 to 4"):
            per_tensor_quantized().topk(k)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sort", "argsort", "mean"])
def test_a_dim_must_be_there(name: str) -> None:
    with pytest.raises(ShapeError, match=r"dim is 3; .* wants -3 to 2"):
        getattr(per_tensor_quantized(), name)(3)
