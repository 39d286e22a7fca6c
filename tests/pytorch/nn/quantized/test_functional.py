from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from onnxq import functional as on_arrays
from onnxq.errors import ShapeError
from onnxq.pytorch.nn.quantized import functional as F  # noqa: N812  # as torch's documents
from onnxq.pytorch.numerics.integer_types import from_torch
from onnxq.qparams import per_tensor
from onnxq.qtensor import quint8

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.quantize_per_tensor"
)  # to be removed, it says

GENERATOR = torch.Generator().manual_seed(0)


def integers(*shape: int) -> torch.Tensor:
    real = torch.randn(*shape, generator=GENERATOR)
    return torch.quantize_per_tensor(real, 0.03125, 128, torch.quint8)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # likewise, where the file is collected
    X, ROWS, VOLUME = integers(2, 4, 8, 6), integers(3, 4), integers(1, 2, 4, 4, 4)
    real_weight = torch.randn(6, 4, 3, 3, generator=GENERATOR)
    W = torch.quantize_per_tensor(real_weight, 0.015625, 0, torch.qint8)
BIAS = torch.linspace(-1, 1, 6)
QPARAMS: dict[str, Any] = {"scale": 0.125, "zero_point": 120}

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "adaptive_avg_pool2d": ((X, (2, 3)), {}),
    "adaptive_avg_pool3d": ((VOLUME, (2, 3, 1)), {}),
    "avg_pool2d": ((X, 2), {"padding": 1}),
    "avg_pool3d": ((VOLUME, 2), {}),
    "celu": ((X,), {"alpha": 0.5, **QPARAMS}),
    "clamp": ((X, -0.5, 0.5), {}),
    "conv1d": ((X[:, :, 0], W[:, :, 0], BIAS), {"padding": 1, "dtype": torch.quint8, **QPARAMS}),
    "conv2d": ((X, W, BIAS), {"stride": 2, **QPARAMS}),
    "conv3d": ((X.unsqueeze(2), W.unsqueeze(2), None), QPARAMS),
    "elu": ((X,), QPARAMS),
    "hardsigmoid": ((X,), {}),
    "hardswish": ((X,), QPARAMS),
    "hardtanh": ((X, -0.5, 0.5), {}),
    "interpolate": ((X,), {"scale_factor": 2}),
    "leaky_relu": ((X, 0.2), QPARAMS),
    "linear": ((ROWS, W[:, :, 0, 0], BIAS), QPARAMS),
    "max_pool1d": ((X[:, :, 0], 2), {"padding": 1}),
    "max_pool2d": ((X, 2), {}),
    "relu": ((X,), {}),
    "threshold": ((X, 0.5, 0.25), {}),
    "upsample": ((X,), {"size": (16, 12)}),
    "upsample_bilinear": ((X,), {"scale_factor": 2}),
    "upsample_nearest": ((X,), {"scale_factor": 2}),
}

FLOAT = {"clamp": "hardtanh"}  # clamp is no function of torch.nn.functional


def float_result(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> torch.Tensor:
    """The float function on the tensors' real numbers."""
    real = [x.dequantize() if getattr(x, "is_quantized", False) else x for x in args]
    left = {k: v for k, v in options.items() if k not in ("scale", "zero_point", "dtype")}
    y: torch.Tensor = getattr(torch.nn.functional, FLOAT.get(name, name))(*real, **left)
    return y


@pytest.mark.filterwarnings("ignore:.*nn.functional.upsample.*:UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_float_functions_fake_quantized(name: str) -> None:
    args, options = CALLS[name]
    y: torch.Tensor = getattr(F, name)(*args, **options)
    assert y.dtype == torch.quint8
    wanted = float_result(name, args, options)
    ends = torch.tensor([0, 255]).sub(y.q_zero_point()).mul(y.q_scale())
    assert (y.dequantize() - wanted.clamp(*ends)).abs().max() <= 1.01 * y.q_scale()
    if options.keys() >= QPARAMS.keys():
        assert from_torch(y).qparams == per_tensor(0.125, 120, quint8)


def test_every_function_is_called_here() -> None:
    assert set(CALLS) == set(F.__all__)
    # of two tensors: torch has these as methods of QFunctional
    assert {*F.__all__, "add", "mul", "cat", "relu_"} == set(on_arrays.__all__)


def test_integers_are_those_of_the_function_on_arrays() -> None:
    y = F.conv2d(X, W, BIAS, padding=1, **QPARAMS)
    wanted = on_arrays.conv2d(from_torch(X), from_torch(W), BIAS.numpy(), padding=1, **QPARAMS)
    np.testing.assert_array_equal(y.int_repr().numpy(), wanted.int_repr())
    assert torch.equal(F.conv2d(X, from_torch(W), BIAS, padding=1, **QPARAMS), y)


def test_in_place_writes_to_the_tensor() -> None:
    x = X.clone()
    assert F.relu(x, inplace=True) is x
    assert torch.equal(x, torch.relu(X))


def test_float_tensors_are_refused_with_the_remedy() -> None:
    with pytest.raises(ShapeError, match=r"input is torch\.float32.*quantize_per_tensor"):
        F.conv2d(X.dequantize(), W, BIAS)
    with pytest.raises(ShapeError, match=r"weight is None"):
        F.linear(ROWS, None)
