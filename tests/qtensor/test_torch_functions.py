"""Torch's own functions take quantized tensors, under the names that PyTorch documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812  # as in the documents

from onnxq import functional, qtensor
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.qtensor import QTensor, _empty_affine_quantized, quantize_per_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
Y: Any = quantize_per_tensor(X, 0.05, 120, qtensor.quint8)

CALLS: dict[str, tuple[Callable[[Any], object], Callable[[QTensor], object]]] = {
    "max": (torch.max, lambda y: y.max()),
    "max of an axis": (lambda y: torch.max(y, 1).values, lambda y: y.max(1).values),
    "min": (torch.min, lambda y: y.min()),
    "argmin": (torch.argmin, lambda y: y.argmin()),
    "sort": (lambda y: torch.sort(y).values, lambda y: y.sort().values),
    "topk": (lambda y: torch.topk(y, 2).indices, lambda y: y.topk(2).indices),
    "transpose": (lambda y: torch.transpose(y, 1, 2), lambda y: y.transpose(1, 2)),
    "permute": (lambda y: torch.permute(y, (0, 2, 3, 1)), lambda y: y.permute(0, 2, 3, 1)),
    "equal": (lambda y: torch.equal(y, y), lambda y: y.equal(y)),
    "dequantize": (torch.dequantize, lambda y: y.dequantize()),
    "int_repr": (torch.int_repr, lambda y: y.int_repr()),
    "mean": (lambda y: torch.mean(y, dim=(2, 3)), lambda y: y.mean((2, 3))),
    "add": (lambda y: torch.add(y, y, out=empty()), lambda y: functional.add(y, y, out=empty())),
    "cat": (lambda y: torch.cat([y, y], 1), lambda y: functional.cat([y, y], 1)),
    "relu": (F.relu, functional.relu),
    "elu": (lambda y: F.elu(y, 2.0), lambda y: functional.elu(y, 0.05, 120, 2.0)),
    "hardswish": (F.hardswish, lambda y: functional.hardswish(y, 0.05, 120)),
    "relu of torch": (torch.relu, functional.relu),
    "max_pool2d": (lambda y: F.max_pool2d(y, 2), lambda y: functional.max_pool2d(y, 2)),
    "avg_pool2d": (lambda y: F.avg_pool2d(y, 2), lambda y: functional.avg_pool2d(y, 2)),
    "threshold": (
        lambda y: F.threshold(y, 0.1, 0.0),
        lambda y: functional.threshold(y, 0.1, 0.0),
    ),
    "interpolate": (
        lambda y: F.interpolate(y, scale_factor=2),
        lambda y: functional.interpolate(y, scale_factor=2),
    ),
}


def empty() -> Any:  # which torch.add takes as its out
    return _empty_affine_quantized(scale=0.1, zero_point=99, dtype=qtensor.quint8)


@pytest.mark.parametrize("name", CALLS)
def test_a_torch_function_is_the_method_or_function_of_its_name(name: str) -> None:
    of_torch, own = CALLS[name]
    got: Any = of_torch(Y)
    wanted: Any = own(Y)
    assert wanted.equal(got) if isinstance(wanted, QTensor) else np.array_equal(got, wanted)


def test_a_float_operand_may_be_a_torch_parameter() -> None:
    x: Any = quantize_per_tensor(X[0, 0], 0.05, 120, qtensor.quint8)
    w: Any = quantize_per_tensor(X[0, 1], 0.02, 0, qtensor.qint8)
    bias = torch.nn.Parameter(torch.ones(4))
    found: Any = F.linear(x, w, bias)
    assert found.equal(functional.linear(x, w, np.ones(4, np.float32)))


def test_other_torch_functions_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"torch\.erf.*dequantize\(\)"):
        torch.erf(Y)
    with pytest.raises(UnsupportedError, match=r"interpolate.*antialias"):
        F.interpolate(Y, scale_factor=2, antialias=True)
    with pytest.raises(UnsupportedError, match=r"torch\.add, alpha="):
        torch.add(Y, Y, alpha=0)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_torch_tensors_are_quantized_as_arrays_are(requires_grad: bool) -> None:
    x = torch.from_numpy(X).requires_grad_(requires_grad)
    assert quantize_per_tensor(x, 0.05, 120, torch.quint8).equal(Y)  # type: ignore[arg-type]
    scales, points = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])
    per_channel = qtensor.quantize_per_channel(x, scales, points, 1, torch.qint8)  # type: ignore[arg-type]
    assert per_channel.equal(qtensor.quantize_per_channel(X, [0.1, 0.2], [0, 1], 1, qtensor.qint8))
    with pytest.raises(ShapeError, match=r"input has dtype .*float64"):
        quantize_per_tensor(x.double(), 0.05, 120, torch.quint8)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*quantize.*:UserWarning")
def test_a_quantized_torch_tensor_is_refused_with_the_remedy() -> None:
    quantized = torch.quantize_per_tensor(torch.from_numpy(X), 0.05, 120, torch.quint8)
    with pytest.raises(ShapeError, match=r"dequantize\(\)"):
        quantize_per_tensor(quantized, 0.05, 120, qtensor.quint8)  # type: ignore[arg-type]
