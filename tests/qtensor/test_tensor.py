"""The documented methods. (Longer than 300 lines: as the class is.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import dtypes, qtensor
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.qparams import PerBlock, QParams, per_tensor
from onnxq.qtensor import (
    QTensor,
    _empty_affine_quantized,
    quantize_per_channel,
    quantize_per_tensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
INTEGERS = [t for t in dtypes.all_qdtypes() if t.is_integer]


def per_tensor_quantized() -> QTensor:
    return quantize_per_tensor(X, 0.05, 10, qtensor.quint8)


def per_channel_quantized() -> QTensor:
    return quantize_per_channel(X, [0.1, 0.2, 0.3], [0, 1, 2], 1, qtensor.qint8)


def row(*codes: int) -> QTensor:
    return QTensor(np.array(codes, np.uint8), per_tensor(0.5, 0, qtensor.quint8))


# construction


def test_codes_are_copied() -> None:
    codes = np.zeros(3, np.uint8)
    y = QTensor(codes, per_tensor(1.0, 0, qtensor.quint8))
    codes[0] = 1
    y.int_repr()[1] = 1
    assert y.int_repr().tolist() == [0, 0, 0]


def test_codes_must_fit_the_qparams() -> None:
    with pytest.raises(ShapeError, match="codes have dtype int64; uint8 wants uint8"):
        QTensor(np.zeros(3, np.int64), per_tensor(1.0, 0, qtensor.quint8))
    with pytest.raises(ShapeError, match="codes are 0 to 16; uint4 holds 0 to 15"):
        QTensor(np.array([0, 16], np.uint8), per_tensor(1.0, 0, dtypes.UINT4))
    with pytest.raises(ShapeError, match="has 4 channels; scale has 3"):
        QTensor(np.zeros((2, 4), np.int8), per_channel_quantized().qparams)


# what it is


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_it_tells_its_integers_and_qparams(dtype: dtypes.QDType) -> None:
    y = quantize_per_tensor(X, 0.5, 1, dtype)
    assert (y.dtype, y.shape, y.ndim, y.numel()) == (dtype, (2, 3, 4), 3, 24)
    assert (y.size(), y.size(1), y.size(-1), len(y)) == ((2, 3, 4), 3, 4, 2)
    assert (y.q_scale(), y.q_zero_point()) == (0.5, 1)
    assert np.array_equal(y.dequantize(), (y.int_repr().astype(np.float32) - 1) * np.float32(0.5))


def test_channels_are_told_in_torchs_types() -> None:
    y = per_channel_quantized()
    assert y.q_per_channel_scales().dtype == np.float64
    assert y.q_per_channel_scales().astype(np.float32).tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert y.q_per_channel_zero_points().dtype == np.int64
    assert y.q_per_channel_axis() == 1


def test_a_question_about_another_scheme_is_refused() -> None:
    for name in ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis"):
        with pytest.raises(UnsupportedError, match=f"{name}: .* not per channel"):
            getattr(per_tensor_quantized(), name)()
    for name in ("q_scale", "q_zero_point"):
        with pytest.raises(UnsupportedError, match=f"{name} works on per-tensor"):
            getattr(per_channel_quantized(), name)()
    p = QParams(
        np.ones((2, 2), np.float32), np.zeros((2, 2), np.int8), qtensor.qint8, PerBlock(1, 2)
    )
    with pytest.raises(UnsupportedError, match="no name for PerBlock"):
        QTensor(np.zeros((2, 4), np.int8), p).qscheme()


def test_a_dim_that_is_not_there_has_no_size() -> None:
    with pytest.raises(ShapeError, match="size: a tensor of shape"):
        per_tensor_quantized().size(3)


def test_one_element_is_a_number_and_a_truth() -> None:
    y = row(3)
    assert y.item() == 1.5
    assert bool(y)
    assert not bool(row(0))
    with pytest.raises(ShapeError, match="item"):
        bool(row(1, 2))


def test_it_does_not_turn_into_an_array_unasked() -> None:
    with pytest.raises(UnsupportedError, match=r"dequantize\(\) for its real values"):
        np.asarray(per_tensor_quantized())


# views


VIEWS: dict[str, tuple[Callable[[QTensor], QTensor], object]] = {
    "view": (lambda q: q.view(6, -1), X.reshape(6, 4)),
    "view of one size": (lambda q: q.view(-1), X.reshape(-1)),
    "view of a sequence": (lambda q: q.view((4, 6)), X.reshape(4, 6)),
    "as_strided": (
        lambda q: q.as_strided((2, 2), (4, 1), 3),
        np.lib.stride_tricks.as_strided(X.reshape(-1)[3:], (2, 2), (16, 4)),
    ),
    "as_strided of a view": (lambda q: q[1].as_strided((2,), (2,)), X.reshape(-1)[12:16:2]),
    "expand": (lambda q: q[:1].expand(5, -1, 4), np.broadcast_to(X[:1], (5, 3, 4))),
    "expand, new axis": (lambda q: q.expand(2, 2, 3, 4), np.broadcast_to(X, (2, 2, 3, 4))),
    "flatten": (lambda q: q.flatten(), X.reshape(-1)),
    "flatten some": (lambda q: q.flatten(1), X.reshape(2, 12)),
    "flatten between": (lambda q: q.flatten(0, 1), X.reshape(6, 4)),
    "select": (lambda q: q.select(1, -1), X[:, 2]),
    "number": (lambda q: q[0], X[0]),
    "numbers": (lambda q: q[0, 1, 2], X[0, 1, 2]),
    "slices": (lambda q: q[:, 1:, ::2], X[:, 1:, ::2]),
    "ellipsis": (lambda q: q[..., 1], X[..., 1]),
    "new axis": (lambda q: q[None, 0], X[None, 0]),
    "transpose": (lambda q: q.transpose(0, -1), X.swapaxes(0, 2)),
    "transpose as documented": (lambda q: q[0].transpose(), X[0].T),
    "permute": (lambda q: q.permute(2, 0, 1), X.transpose(2, 0, 1)),
    "permute by a sequence": (lambda q: q.permute([2, 0, 1]), X.transpose(2, 0, 1)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_have_the_elements_and_qparams_and_share_the_memory(name: str) -> None:
    view, expected = VIEWS[name]
    q = per_tensor_quantized()
    y = view(q)
    assert y.equal(quantize_per_tensor(np.asarray(expected), 0.05, 10, qtensor.quint8))
    q.copy_(np.zeros_like(X))
    assert (y == 0).all()


def test_arrays_and_masks_of_indices_give_copies() -> None:
    q = per_tensor_quantized()
    picked, masked = q[np.array([1, 0, 1])], q[q > 0]
    q.copy_(np.zeros_like(X))
    assert picked.equal(quantize_per_tensor(X[[1, 0, 1]], 0.05, 10, qtensor.quint8))
    assert (masked > 0).all()
    assert masked.ndim == 1


def test_a_tensor_iterates_over_its_first_axis() -> None:
    q = per_tensor_quantized()
    assert [part.equal(q[i]) for i, part in enumerate(q)] == [True, True]


def test_contiguous_copies_what_is_not() -> None:
    q = per_tensor_quantized()
    assert q.contiguous() is q
    y = q.transpose(0, 1)
    assert not y.is_contiguous()
    assert y.stride() == (4, 12, 1)
    assert y.contiguous().stride() == (8, 4, 1)
    assert y.contiguous().equal(y)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda q: q.view(5, 5), "view"),
        (lambda q: q.transpose(0, 1).view(-1), r"Call contiguous\(\) first"),
        (lambda q: q.as_strided((100,), (1,)), "reach element 99"),
        (lambda q: q.expand(2, 5, 4), "only axes of size 1 grow"),
        (lambda q: q.flatten(2, 1), "start_dim 2 comes after end_dim 1"),
        (lambda q: q.flatten(3), "dim is 3"),
        (lambda q: q.select(0, 7), "index 7 along dim 0"),
        (lambda q: q.select(4, 0), "dim is 4"),
        (lambda q: q[::-1], "steps"),
        (lambda q: q[7], "indexing"),
        (lambda q: q["a"], "indexing"),
        (lambda q: q.transpose(0, 5), "dim is 5"),
        (lambda q: q.permute(0, 1), "permute"),
        (lambda q: q.permute(0, 1, 1), "permute"),
    ],
)
def test_views_that_do_not_fit_are_refused(
    refused: Callable[[QTensor], QTensor], said: str
) -> None:
    with pytest.raises(ShapeError, match=said):
        refused(per_tensor_quantized())


PER_TENSOR_ONLY: dict[str, Callable[[QTensor], object]] = {
    "view": lambda q: q.view(-1),
    "as_strided": lambda q: q.as_strided((2,), (1,)),
    "expand": lambda q: q.expand(2, 2, 3, 4),
    "flatten": lambda q: q.flatten(),
    "select": lambda q: q.select(0, 0),
    "indexing": lambda q: q[0],
    "transpose": lambda q: q.transpose(0, 1),
    "permute": lambda q: q.permute(2, 0, 1),
    "max": lambda q: q.max(),
    "min": lambda q: q.min(1),
    "argmax": lambda q: q.argmax(),
    "argmin": lambda q: q.argmin(1),
    "argsort": lambda q: q.sort(),
    "topk": lambda q: q.topk(1),
    "mean": lambda q: q.mean(),
    "resize_": lambda q: q.resize_(3),
}


@pytest.mark.parametrize("name", PER_TENSOR_ONLY)
def test_per_channel_quantized_tensors_refuse_views_and_order(name: str) -> None:
    q = per_channel_quantized()
    with pytest.raises(UnsupportedError, match=f"^{name}: .* works on per-tensor quantized"):
        PER_TENSOR_ONLY[name](q)
    assert q.equal(per_channel_quantized())


# comparisons


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


# copies


def test_a_clone_shares_nothing() -> None:
    q = per_tensor_quantized()
    for y in (q.clone(), q.transpose(0, 2).clone()):
        y.copy_(np.zeros(y.shape, np.float32))
    assert q.equal(per_tensor_quantized())
    assert q.transpose(0, 2).clone().is_contiguous()


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


# size


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


# order


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


# mean


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_mean_is_the_rounded_mean_of_integers(dtype: dtypes.QDType) -> None:
    q = quantize_per_tensor(X, 0.5, 1, dtype)
    codes = q.int_repr().astype(np.float64)
    for dim in (None, 0, -1, (0, 2), ()):
        axes = None if dim == () else dim
        expected = np.rint(codes.mean(axes) - 1) + 1  # halves to even before the zero point
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
    codes = np.full(2**23 + 2**20, 255, np.uint8)  # their sum is beyond int32
    assert QTensor(codes, per_tensor(1.0, 0, qtensor.quint8)).mean().item() == 255


def test_a_mean_needs_axes_once_and_a_fitting_out() -> None:
    q = per_tensor_quantized()
    with pytest.raises(ShapeError, match="no twins"):
        q.mean((0, -3))
    with pytest.raises(ShapeError, match="out is int8; wanted uint8"):
        q.mean(out=_empty_affine_quantized(dtype="qint8"))
    with pytest.raises(ShapeError, match=r"out has shape \(3,\); wanted \(3, 4\)"):
        q.mean(0, out=_empty_affine_quantized((3,), dtype="quint8"))
