"""Transposed convolutions, where they differ from others: channels of the weight, padding.

Their weight has shape (in_channels, out_channels / groups, *kernel). Output channels lie along axis
1, and groups share scales; a depthwise one has its channels along axis 0 (the rule of
operators/conv_transpose.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from onnxq.errors import ShapeError
from onnxq.qconfig import FakeQuantSpec, Part

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (*CONVS, *TRANSPOSED)
CONV: tuple[Callable[..., Tensor], ...] = (functional.conv1d, functional.conv2d, functional.conv3d)
CONV_TRANSPOSE: tuple[Callable[..., Tensor], ...] = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)
"""Functions of torch for 1, 2 and 3 spatial axes."""
WEIGHTED = (nn.Linear, *CONVOLUTIONS)
"""Layers that batch norm and ReLU fuse with."""


def arguments_of(layer: Any) -> dict[str, Any]:
    """The constructor's arguments of a linear layer or a convolution, transposed or not."""
    names = "in_channels out_channels kernel_size stride padding dilation groups padding_mode"
    if isinstance(layer, nn.Linear):
        names = "in_features out_features"
    elif isinstance(layer, TRANSPOSED):
        names += " output_padding"
    return {name: getattr(layer, name) for name in names.split()} | {"bias": layer.bias is not None}


def convolved(
    conv: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Result of a convolution, transposed or not, with these parameters."""
    axes = weight.ndim - 2
    if conv.transposed:
        rest = (output_padding(conv, x, output_size), conv.groups, conv.dilation)
        return CONV_TRANSPOSE[axes - 1](x, weight, bias, conv.stride, conv.padding, *rest)
    padding: Any = conv.padding
    if conv.padding_mode != "zeros":
        x, padding = functional.pad(x, _sides(conv), conv.padding_mode), 0
    return CONV[axes - 1](x, weight, bias, conv.stride, padding, conv.dilation, conv.groups)


def _sides(conv: Any) -> list[int]:
    """Padding as functional.pad wants it: last axis first, both sides."""
    if conv.padding == "valid":
        return [0] * (2 * len(conv.kernel_size))
    sides: list[int] = []
    for axis in reversed(range(len(conv.kernel_size))):
        if conv.padding == "same":
            total = conv.dilation[axis] * (conv.kernel_size[axis] - 1)
            sides += [total // 2, total - total // 2]
        else:
            sides += [conv.padding[axis]] * 2
    return sides


def channel_axis(shape: Sequence[int], groups: int) -> int:
    """Axis of a transposed convolution's weight along which scales lie."""
    depthwise = (shape[0], shape[1]) == (groups, 1) != (1, 1)
    return 0 if depthwise else 1


def along_channels(part: Part, module: nn.Module) -> Part:
    """The weight's part of a qconfig, its scales along the channels of the module's weight."""
    if not isinstance(module, TRANSPOSED):
        return part
    spec = part.observer if isinstance(part, FakeQuantSpec) else part
    if not spec().qscheme.per_channel:
        return part
    spec = spec.with_args(ch_axis=channel_axis(module.weight.shape, module.groups))
    return replace(part, observer=spec) if isinstance(part, FakeQuantSpec) else spec


def per_weight(values: Tensor, weight: Tensor, groups: int) -> Tensor:
    """A vector of output channels, shaped to broadcast with the weight."""
    rows = values.reshape(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))


def output_padding(conv: Any, x: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
    """Padding on one side of the result for a size, spatial or whole; None: the module's own."""
    if output_size is None:
        given: tuple[int, ...] = tuple(conv.output_padding)
        return given
    rank = len(conv.kernel_size)
    asked = tuple(output_size)[-rank:]
    found = []
    for axis, size in enumerate(asked):
        spread = conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1
        least = (x.shape[axis - rank] - 1) * conv.stride[axis] - 2 * conv.padding[axis] + spread
        most = least + max(conv.stride[axis], conv.dilation[axis]) - 1
        if not least <= size <= most:
            raise ShapeError(
                f"{type(conv).__name__}: output_size {list(asked)}: axis {axis} may have {least} "
                f"to {most} for an input of shape {list(x.shape)}."
            )
        found.append(size - least)
    return tuple(found)
