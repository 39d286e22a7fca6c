"""torch.nn.quantized.functional's documented functions, on tensors that torch quantized.

    x = torch.quantize_per_tensor(images, 0.05, 128, torch.quint8)
    w = torch.quantize_per_channel(weight, scales, zero_points, 0, torch.qint8)
    y = conv2d(x, w, bias, padding=1, scale=0.1, zero_point=120)

Each is the function of that name in onnxq.functional, whose integers are those that ONNX Runtime
computes; torch's own may be one LSB away. A weight may be a QTensor, such as a layer's `weight()`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from onnxq import functional
from onnxq.errors import ShapeError, kind_of
from onnxq.pytorch.numerics.integer_types import from_torch, qdtype_of, to_torch
from onnxq.qtensor import QTensor

Function = Callable[..., torch.Tensor]


_QUANTIZED = ("input", "weight")
"""Parameters that take quantized tensors; a bias is float."""


def _on_tensors(function: Callable[..., QTensor]) -> Function:
    """The function with tensors in place of QTensors; its arguments are the same."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = signature.bind(*args, **kwargs).arguments
        own = {name: _own(function.__name__, name, value) for name, value in given.items()}
        result = function(**own)
        if result is not own["input"]:
            return to_torch(result)
        written: torch.Tensor = given["input"].copy_(to_torch(result))  # in place
        return written

    return run


def _own(op: str, name: str, value: Any) -> Any:
    """An argument as onnxq.functional takes it."""
    if isinstance(value, torch.dtype):
        return qdtype_of(value)
    if name in _QUANTIZED and not isinstance(value, QTensor):
        if not isinstance(value, torch.Tensor) or not value.is_quantized:
            got = value.dtype if isinstance(value, torch.Tensor) else kind_of(value)
            raise ShapeError(
                f"{op}: {name} is {got}; wanted a quantized tensor, such as "
                "torch.quantize_per_tensor gives. A float tensor is for torch.nn.functional."
            )
        return from_torch(value)
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


adaptive_avg_pool2d = _on_tensors(functional.adaptive_avg_pool2d)
adaptive_avg_pool3d = _on_tensors(functional.adaptive_avg_pool3d)
avg_pool2d = _on_tensors(functional.avg_pool2d)
avg_pool3d = _on_tensors(functional.avg_pool3d)
celu = _on_tensors(functional.celu)
clamp = _on_tensors(functional.clamp)
conv1d = _on_tensors(functional.conv1d)
conv2d = _on_tensors(functional.conv2d)
conv3d = _on_tensors(functional.conv3d)
elu = _on_tensors(functional.elu)
hardsigmoid = _on_tensors(functional.hardsigmoid)
hardswish = _on_tensors(functional.hardswish)
hardtanh = _on_tensors(functional.hardtanh)
interpolate = _on_tensors(functional.interpolate)
leaky_relu = _on_tensors(functional.leaky_relu)
linear = _on_tensors(functional.linear)
max_pool1d = _on_tensors(functional.max_pool1d)
max_pool2d = _on_tensors(functional.max_pool2d)
relu = _on_tensors(functional.relu)
threshold = _on_tensors(functional.threshold)
upsample = _on_tensors(functional.upsample)
upsample_bilinear = _on_tensors(functional.upsample_bilinear)
upsample_nearest = _on_tensors(functional.upsample_nearest)

__all__ = sorted([name for name, one in vars().items() if getattr(one, "__wrapped__", None)])
