"""torch.ao.nn.quantized.functional on float tensors: its functions refuse tensors of float32.

They ask `input.is_quantized`, which no TorchFunctionMode sees. While a Region runs, what stands
under their names calls what they would call.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

_HOMES = ("torch.ao.nn.quantized.functional", "torch.nn.quantized.functional")
_SAME = (
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "hardsigmoid",
    "hardtanh", "interpolate", "max_pool1d", "max_pool2d", "upsample", "upsample_bilinear",
    "upsample_nearest",
)  # fmt: skip
"""Functions that are torch.nn.functional's, behind the question."""


def _elu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    return torch.ops.quantized.elu(input, scale, zero_point, alpha)


def _celu(input: Tensor, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    return torch.ops.quantized.celu(input, scale, zero_point, alpha)


def _hardswish(input: Tensor, scale: float, zero_point: int) -> Any:
    return torch.ops.quantized.hardswish(input, scale, zero_point)


def _leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    inplace: object = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> Any:
    if scale is None or zero_point is None:
        return functional.leaky_relu(input, negative_slope)
    return torch.ops.quantized.leaky_relu(input, negative_slope, bool(inplace), scale, zero_point)


def _threshold(input: Tensor, threshold: float, value: float) -> Any:
    return functional.threshold(input, threshold, value)


def _clamp(input: Tensor, min_: float, max_: float) -> Any:
    return torch.clamp(input, min_, max_)


def _replacements() -> dict[str, Callable[..., Any]]:
    made: dict[str, Callable[..., Any]] = {name: getattr(functional, name) for name in _SAME}
    return made | {
        "celu": _celu,
        "clamp": _clamp,
        "elu": _elu,
        "hardswish": _hardswish,
        "leaky_relu": _leaky_relu,
        "threshold": _threshold,
    }


@contextlib.contextmanager
def on_floats() -> Iterator[None]:
    """A context in which the functions take float tensors."""
    homes = [sys.modules[name] for name in _HOMES if name in sys.modules]
    found = [(home, name) for home in homes for name in _replacements() if hasattr(home, name)]
    kept = [(home, name, getattr(home, name)) for home, name in found]
    try:
        for home, name in found:
            setattr(home, name, _replacements()[name])
        yield
    finally:
        for home, name, function in kept:
            setattr(home, name, function)
