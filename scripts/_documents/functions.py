"""Functions on quantized tensors: nn.quantized.functional and nn.functional, integer by integer.

Scales are prime to each other, so that no result lies on a tie, where ONNX Runtime and torch may
round to different sides; a check whose values do lie on ties says so in its name. Nor does a result
lie next to one by what the rounding of a bias to int32 may move it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as floats

from onnxq import functional as on_qtensors
from onnxq import qtensor
from onnxq.pytorch.nn.quantized import functional as ours
from scripts._documents.check import COVERAGE, DESIGN, GUIDE, Check
from scripts._documents.compare import same_quantized

theirs: Any = import_module("torch.ao.nn.quantized.functional")
NAMESPACE, METHODS = "nn.quantized.functional", "nn.functional"
SCALE, ZERO = 0.0513, 117


def image(*shape: int) -> Tensor:
    """A quint8 tensor of normal numbers times 2."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(5)) * 2
    return torch.quantize_per_tensor(x, SCALE, ZERO, torch.quint8)


def weight(*shape: int, per_channel: object = True) -> Tensor:
    """A qint8 weight with scales of its channels, or one."""
    w = torch.randn(*shape, generator=torch.Generator().manual_seed(6)) * 0.2
    if not per_channel:
        return torch.quantize_per_tensor(w, 0.0071, 0, torch.qint8)
    scales = torch.linspace(0.0047, 0.0091, shape[0], dtype=torch.float64)
    zeros = torch.zeros(shape[0], dtype=torch.int64)
    return torch.quantize_per_channel(w, scales, zeros, 0, torch.qint8)


BIAS = torch.tensor([0.11, -0.23, 0.37, 0.05])
OUT: dict[str, Any] = {"scale": 0.0937, "zero_point": 111}

# --- Calls that torch.ao.nn.quantized.functional and onnxq's take alike.

Call = Callable[[Any], Any]
CALLS: dict[str, Call] = {
    "adaptive_avg_pool2d, 1": lambda f: f.adaptive_avg_pool2d(image(2, 3, 7, 7), 1),
    "adaptive_avg_pool2d, (3, 2)": lambda f: f.adaptive_avg_pool2d(image(2, 3, 9, 6), (3, 2)),
    "avg_pool2d, 3": lambda f: f.avg_pool2d(image(2, 3, 9, 9), 3),
    "avg_pool2d, stride, padding": lambda f: f.avg_pool2d(image(2, 3, 9, 9), 3, 2, 1),
    "avg_pool2d, count_include_pad": lambda f: f.avg_pool2d(
        image(1, 3, 9, 9), 3, 2, 1, count_include_pad=False
    ),
    "avg_pool2d, 2": lambda f: f.avg_pool2d(image(2, 3, 8, 8), 2),
    "avg_pool3d, 3": lambda f: f.avg_pool3d(image(1, 3, 6, 6, 6), 3),
    "conv1d": lambda f: f.conv1d(image(2, 3, 12), weight(4, 3, 3), BIAS, **OUT),
    "conv1d, stride, padding": lambda f: f.conv1d(
        image(2, 3, 12), weight(4, 3, 3), BIAS, stride=2, padding=1, **OUT
    ),
    "conv2d": lambda f: f.conv2d(image(2, 3, 8, 8), weight(4, 3, 3, 3), BIAS, **OUT),
    "conv2d, per tensor": lambda f: f.conv2d(
        image(2, 3, 8, 8), weight(4, 3, 3, 3, per_channel=False), BIAS, **OUT
    ),
    "conv2d, padding, dilation": lambda f: f.conv2d(
        image(2, 3, 8, 8), weight(4, 3, 3, 3), BIAS, padding=2, dilation=2, **OUT
    ),
    "conv2d, groups": lambda f: f.conv2d(
        image(2, 4, 8, 8), weight(4, 1, 3, 3), BIAS, groups=4, **OUT
    ),
    "conv2d, no bias": lambda f: f.conv2d(image(1, 3, 8, 8), weight(4, 3, 3, 3), None, **OUT),
    "conv3d": lambda f: f.conv3d(image(1, 3, 4, 4, 4), weight(4, 3, 2, 2, 2), BIAS, **OUT),
    "interpolate, size": lambda f: f.interpolate(image(1, 3, 4, 4), size=(8, 8)),
    "interpolate, bilinear": lambda f: f.interpolate(
        image(1, 3, 4, 4), size=(8, 8), mode="bilinear", align_corners=True
    ),
    "interpolate, bilinear, ties": lambda f: f.interpolate(
        image(1, 3, 4, 4), size=(7, 7), mode="bilinear", align_corners=True
    ),
    "linear": lambda f: f.linear(image(5, 6), weight(4, 6), BIAS, 0.0937, 111),
    "linear, per tensor": lambda f: f.linear(
        image(5, 6), weight(4, 6, per_channel=False), BIAS, 0.0937, 111
    ),
    "linear, no bias": lambda f: f.linear(image(5, 6), weight(4, 6), None, 0.0937, 111),
    "max_pool2d": lambda f: f.max_pool2d(image(2, 3, 8, 8), 2),
    "max_pool2d, stride, padding": lambda f: f.max_pool2d(image(2, 3, 9, 9), 3, 2, 1),
    "elu": lambda f: f.elu(image(64), 0.0417, 29),
    "elu, alpha": lambda f: f.elu(image(64), 0.0417, 91, 2.0),
    "hardsigmoid": lambda f: f.hardsigmoid(image(64)),
    "hardswish": lambda f: f.hardswish(image(64), 0.0417, 29),
    "hardtanh": lambda f: f.hardtanh(image(64)),
    "hardtanh, limits": lambda f: f.hardtanh(image(64), -2.5, 1.5),
    "upsample, scale_factor": lambda f: f.upsample(image(1, 3, 4, 4), scale_factor=2),
    "upsample_bilinear": lambda f: f.upsample_bilinear(image(1, 3, 4, 4), (8, 8)),
    "upsample_nearest": lambda f: f.upsample_nearest(image(1, 3, 4, 4), (8, 8)),
}

# --- Calls of torch.nn.functional on quantized tensors: torch's own, and on a QTensor.

ON_TENSORS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda q: floats.relu(q),
    "relu_": lambda q: floats.relu_(q),
    "max_pool2d": lambda q: floats.max_pool2d(q, 2),
    "adaptive_avg_pool2d": lambda q: floats.adaptive_avg_pool2d(q, 1),
    "avg_pool2d": lambda q: floats.avg_pool2d(q, 3),
    "interpolate": lambda q: floats.interpolate(q, scale_factor=2),
    "hardsigmoid": lambda q: floats.hardsigmoid(q),
    "hardtanh": lambda q: floats.hardtanh(q),
    "upsample": lambda q: floats.upsample(q, scale_factor=2),
    "upsample_bilinear": lambda q: floats.upsample_bilinear(q, (11, 11)),
    "upsample_nearest": lambda q: floats.upsample_nearest(q, scale_factor=2),
    "relu, then min, as the document writes": lambda q: floats.relu(floats.max_pool2d(q, 2)).min(),
}

# --- The same on QTensors, by onnxq.functional, beside torch's on quantized tensors.

ON_QTENSORS: dict[str, tuple[Call, Callable[[Tensor], Any]]] = {
    "relu": (lambda q: on_qtensors.relu(q), lambda q: floats.relu(q)),
    "relu_": (lambda q: on_qtensors.relu_(q), lambda q: floats.relu_(q)),
    "elu": (lambda q: on_qtensors.elu(q, 0.0417, 29), lambda q: theirs.elu(q, 0.0417, 29)),
    "max_pool2d": (lambda q: on_qtensors.max_pool2d(q, 3), lambda q: floats.max_pool2d(q, 3)),
    "adaptive_avg_pool2d": (
        lambda q: on_qtensors.adaptive_avg_pool2d(q, 1),
        lambda q: floats.adaptive_avg_pool2d(q, 1),
    ),
    "avg_pool2d": (lambda q: on_qtensors.avg_pool2d(q, 3), lambda q: floats.avg_pool2d(q, 3)),
    "interpolate": (
        lambda q: on_qtensors.interpolate(q, scale_factor=3),
        lambda q: floats.interpolate(q, scale_factor=3),
    ),
    "hardsigmoid": (lambda q: on_qtensors.hardsigmoid(q), lambda q: floats.hardsigmoid(q)),
    "hardswish": (
        lambda q: on_qtensors.hardswish(q, 0.0417, 29),
        lambda q: theirs.hardswish(q, 0.0417, 29),
    ),
    "hardtanh": (lambda q: on_qtensors.hardtanh(q), lambda q: floats.hardtanh(q)),
    "upsample": (
        lambda q: on_qtensors.upsample(q, scale_factor=2),
        lambda q: theirs.upsample(q, scale_factor=2),
    ),
    "upsample_bilinear": (
        lambda q: on_qtensors.upsample_bilinear(q, (11, 11)),
        lambda q: theirs.upsample_bilinear(q, (11, 11)),
    ),
    "upsample_nearest": (
        lambda q: on_qtensors.upsample_nearest(q, (14, 14)),
        lambda q: theirs.upsample_nearest(q, (14, 14)),
    ),
}


def checks() -> Iterator[Check]:
    """All checks of functions."""
    for name, asked in CALLS.items():
        document = DESIGN if name in {"conv2d", "linear"} else COVERAGE
        yield Check(document, NAMESPACE, name, partial(called, asked))
    yield Check(GUIDE, NAMESPACE, "relu", relu)
    for name, of_tensor in ON_TENSORS.items():
        document = DESIGN if "document" in name else COVERAGE
        ask = partial(on_tensor, of_tensor)
        yield Check(document, METHODS, f"{name} of a QTensor by torch's function", ask)
    for name in ("elu", "hardswish"):
        ask = partial(at_input_scale, name)
        yield Check(COVERAGE, METHODS, f"{name} of a QTensor by torch's function", ask)
    for name, (own, torchs) in ON_QTENSORS.items():
        yield Check(COVERAGE, METHODS, f"{name} of onnxq.functional", partial(on_both, own, torchs))


def called(asked: Call) -> None:
    """Both namespaces give the same quantized tensor."""
    same_quantized(asked(ours), asked(theirs))


def relu() -> None:
    """nn.quantized.functional.relu, which torch has now as nn.functional.relu alone."""
    same_quantized(ours.relu(image(64)), floats.relu(image(64)))
    same_quantized(ours.relu(image(64), inplace=True), floats.relu(image(64)))


def on_tensor(asked: Callable[[Any], Any]) -> None:
    """Torch's function takes a QTensor, and gives what it gives of torch's quantized tensor."""
    same_quantized(asked(_own(image(2, 3, 7, 7))), asked(image(2, 3, 7, 7)))


def at_input_scale(name: str) -> None:
    """A function of torch that takes no quantized tensors any more keeps the input's qparams."""
    x = image(2, 3, 7, 7)
    same_quantized(getattr(floats, name)(_own(x)), getattr(theirs, name)(x, SCALE, ZERO))


def on_both(own: Call, torchs: Callable[[Tensor], Any]) -> None:
    """Onnxq's function of a QTensor gives what torch's gives of the quantized tensor."""
    same_quantized(own(_own(image(2, 3, 7, 7))), torchs(image(2, 3, 7, 7)))


def _own(q: Tensor) -> Any:
    return qtensor.quantize_per_tensor(q.dequantize().numpy(), SCALE, ZERO, qtensor.quint8)
