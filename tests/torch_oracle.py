"""Pairs of quantized tensors, PyTorch's and ours, that hold the same integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from onnxq import dtypes
from onnxq.errors import OnnxqError
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.qtensor import QTensor

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET = (
    "ignore:quantized tensor creation",  # deprecated, and the only oracle there is
    "ignore:torch.ao.quantization is deprecated",
    "ignore:.*quantized.*deprecated",
)
"""For pytest.mark.filterwarnings."""

TYPES = (torch.quint8, torch.qint8, torch.qint32)
EIGHT_BITS = TYPES[:2]


def reals(*shape: int, seed: int = 0, spread: float = 1.0) -> npt.NDArray[np.float32]:
    """Normal numbers; NumPy's generator, so that counts do not depend on torch's version."""
    x = np.random.default_rng(seed).standard_normal(shape) * spread
    return np.asarray(x, np.float32)


def theirs(
    x: npt.NDArray[np.float32], scale: float, zero_point: int, dtype: torch.dtype
) -> torch.Tensor:
    """PyTorch's, on a scale that is a float32, as all of ours are."""
    exact = float(np.float32(scale))
    return torch.quantize_per_tensor(torch.from_numpy(x), exact, zero_point, dtype)


def ours(q: torch.Tensor) -> QTensor:
    """A QTensor of the same integers and qparams."""
    dtype = dtypes.find(str(q.dtype))
    integers = q.int_repr().numpy()
    if q.qscheme() == torch.per_tensor_affine:
        return QTensor(integers, QParams(q.q_scale(), q.q_zero_point(), dtype, PerTensor()))  # type: ignore[arg-type]  # numbers are arrays enough
    scales, zero_points = q.q_per_channel_scales(), q.q_per_channel_zero_points()
    granularity = PerChannel(q.q_per_channel_axis())
    scale = scales.numpy().astype(np.float32)
    return QTensor(integers, QParams(scale, zero_points.numpy(), dtype, granularity))


def differing(expected: torch.Tensor, got: QTensor) -> int:
    """Integers that differ, each by one LSB; shape, dtype and qparams being equal."""
    assert tuple(expected.shape) == got.shape
    assert str(expected.dtype) == f"torch.q{got.dtype}"
    assert np.float32(expected.q_scale()) == np.float32(got.q_scale())
    assert expected.q_zero_point() == got.q_zero_point()
    steps = expected.int_repr().numpy().astype(np.int64) - got.int_repr().astype(np.int64)
    assert np.abs(steps).max(initial=0) <= 1
    return int(np.count_nonzero(steps))


def refused(function: Callable[..., Any], *args: object) -> bool:
    """Whether PyTorch, or onnxq with an error of its own, says no."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    owner = getattr(function, "__self__", None)
    of_torch = bool(tensors) or isinstance(owner, torch.Tensor)
    refusals = (
        (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError)
        if of_torch
        else (OnnxqError,)
    )
    try:
        function(*args)
    except refusals:
        return True
    return False
