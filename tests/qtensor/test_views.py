"""Views have the elements of the tensor, share its memory, and keep qparams of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import qtensor
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.qtensor import (
    QTensor,
    quantize_per_tensor,
)
from tests.qtensor.examples import X, per_channel_quantized, per_tensor_quantized

if TYPE_CHECKING:
    from collections.abc import Callable


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
