"""Arguments of the wrong kind: each is refused in words, none gets through to NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq import functional, qtensor
from onnxq.errors import QConfigError, ShapeError
from onnxq.qtensor import quantize_per_channel, quantize_per_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
F: Any = functional
T: Any = qtensor
Q: Any = quantize_per_tensor(X, 0.05, 100, "quint8")
W: Any = quantize_per_tensor(X[:, :, :2, :2], 0.05, 0, "qint8")
NAN = float("nan")

WRONG: dict[str, Callable[[], object]] = {
    "QTensor, integers": lambda: T.QTensor([1, 2], Q.qparams),
    "QTensor, qparams": lambda: T.QTensor(Q.int_repr(), None),
    "scale": lambda: T.quantize_per_tensor(X, "a", 0, "quint8"),
    "zero point": lambda: T.quantize_per_tensor(X, 0.1, None, "quint8"),
    "zero point, NaN": lambda: T.quantize_per_tensor(X, 0.1, NAN, "quint8"),
    "axis": lambda: quantize_per_channel(X, [0.1] * 3, [0] * 3, 1.0, "quint8"),  # type: ignore[arg-type]
    "scales": lambda: quantize_per_channel(X, 0.1, 0, 1, "quint8"),
    "empty": lambda: T._empty_affine_quantized("ab", dtype="quint8"),
    "view": lambda: Q.view("a"),
    "view, None": lambda: Q.view(None),
    "view, -2": lambda: Q.view(-2, 4),
    "view, -1 twice": lambda: Q.view(-1, -1),
    "as_strided": lambda: Q.as_strided((1.5,), (1,)),
    "as_strided, None": lambda: Q.as_strided(None, None),
    "expand": lambda: Q.expand(-2, 3, 4, 4),
    "flatten": lambda: Q.flatten("a"),
    "select, dim": lambda: Q.select(0.5, 0),
    "select, index": lambda: Q.select(0, 0.5),
    "indexing": lambda: Q[0.5],
    "indexing, too many": lambda: Q[0, 0, 0, 0, 0],
    "indexing, mask": lambda: Q[np.zeros(3, bool)],
    "transpose": lambda: Q.transpose("a", 0),
    "permute": lambda: Q.permute(None),
    "comparison": lambda: Q < None,
    "copy_": lambda: Q.clone().copy_([1.0]),
    "resize_": lambda: Q.clone().resize_(1.5),
    "max": lambda: Q.max(1.5),
    "argmax": lambda: Q.argmax("a"),
    "topk": lambda: Q.topk(1.5),
    "mean": lambda: Q.mean("a"),
    "mean, out": lambda: Q.mean(out=X),
    "size": lambda: Q.size("a"),
    "number of one axis": lambda: len(Q[0, 0, 0, 0]),
    "save": lambda: T.save(X, "x.npz"),
    "to_onnx": lambda: T.to_onnx(X, "x"),
    "add, scale": lambda: F.add(Q, Q, "x", 0),
    "add, None": lambda: F.add(Q, Q, None, None),
    "add, zero point": lambda: F.add(Q, Q, 0.1, 0.5),
    "cat": lambda: F.cat(None),
    "cat of a tensor": lambda: F.cat(Q),
    "cat, dim": lambda: F.cat([Q], "a"),
    "elu, alpha": lambda: F.elu(Q, 0.1, 0, NAN),
    "hardtanh": lambda: F.hardtanh(Q, "a"),
    "hardtanh, NaN": lambda: F.hardtanh(Q, NAN),
    "max_pool2d": lambda: F.max_pool2d(Q, "2"),
    "max_pool2d, None": lambda: F.max_pool2d(Q, None),
    "avg_pool2d": lambda: F.avg_pool2d(Q, 1.5),
    "avg_pool2d, divisor": lambda: F.avg_pool2d(Q, 2, divisor_override=1.5),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(Q, 1.5),
    "interpolate, size": lambda: F.interpolate(Q, "a"),
    "interpolate, scale": lambda: F.interpolate(Q, None, "a"),
    "interpolate, NaN": lambda: F.interpolate(Q, None, NAN),
    "interpolate, negative": lambda: F.interpolate(Q, None, -2.0),
    "conv2d, padding": lambda: F.conv2d(Q, W, None, padding="same"),
    "conv2d, negative padding": lambda: F.conv2d(Q, W, None, padding=-1),
    "conv2d, groups": lambda: F.conv2d(Q, W, None, groups=1.5),
    "conv2d, bias": lambda: F.conv2d(Q, W, [0.0, 0.0]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_of_the_wrong_kind_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=r"; wanted|wants|: a tensor of shape|holds"):
        WRONG[name]()


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(QConfigError, match="dtype 'None' is not known"):
        T.quantize_per_tensor(X, 0.1, 0, None)
    with pytest.raises(QConfigError, match="dtype 'None' is not known"):
        F.conv2d(Q, W, None, dtype=None)


def test_numpys_numbers_are_numbers() -> None:
    two = np.int64(2)
    assert Q.mean(two).size() == (2, 3, 4)
    assert F.adaptive_avg_pool2d(Q, two).size() == (2, 3, 2, 2)
    assert F.interpolate(Q, None, np.float32(2)).size() == (2, 3, 8, 8)
    assert F.max_pool2d(Q, np.array([2, 2])).size() == (2, 3, 2, 2)
    assert T._empty_affine_quantized(two, dtype="quint8").size() == (2,)
