"""Operators that multiply by a weight, as layers that are given it.

aten.matmul(x, W)       Linear, with W^T
aten.addmm(b, x, W)     Linear, with W^T and b
aten.conv2d(x, W, b)    Conv2d with W and b
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from onnxq.pytorch.programs.leaf_calls import arguments

if TYPE_CHECKING:
    from torch import fx

aten = torch.ops.aten

_CONVS: dict[Any, type[nn.Module]] = {
    aten.conv1d.default: nn.Conv1d,
    aten.conv2d.default: nn.Conv2d,
    aten.conv3d.default: nn.Conv3d,
    aten.conv1d.padding: nn.Conv1d,
    aten.conv2d.padding: nn.Conv2d,
    aten.conv3d.padding: nn.Conv3d,
    aten.conv_transpose1d.default: nn.ConvTranspose1d,
    aten.conv_transpose2d.input: nn.ConvTranspose2d,
    aten.conv_transpose3d.input: nn.ConvTranspose3d,
}
_NUMBERS = ("stride", "padding", "output_padding", "dilation", "groups")
_MATRIX = 2  # rank


@dataclass(frozen=True, slots=True)
class LinearCall:
    """One operator with a weight.

    Attributes:
        x: what is multiplied.
        weight: (rows, columns) of a matrix, or that of a convolution.
        bias: None where there is none.
        is_transposed: whether the weight is (columns, rows) of the layer's.
        node: the operator.
    """

    x: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    is_transposed: bool
    node: fx.Node

    def layer(self) -> nn.Module:
        """The layer that computes it; its parameters are on no device."""
        shape = [int(size) for size in self.weight.meta["val"].shape]
        has_bias = self.bias is not None
        kind: Any = _CONVS.get(self.node.target)
        if kind is None:
            rows, columns = reversed(shape) if self.is_transposed else shape
            return nn.Linear(columns, rows, bias=has_bias, device="meta")
        bound = arguments(self.node)
        numbers = {name: bound[name] for name in _NUMBERS if name in bound}
        numbers = {k: tuple(v) if isinstance(v, list) else v for k, v in numbers.items()}
        channels = (shape[1] * bound["groups"], shape[0])
        if "output_padding" in bound:
            channels = (channels[1], channels[0])
        made: nn.Module = kind(*channels, tuple(shape[2:]), bias=has_bias, device="meta", **numbers)
        return made


def linear_call(node: fx.Node) -> LinearCall | None:
    """The linear layer that a node computes; None for other nodes."""
    args: Any = node.args
    if node.target is aten.linear.default or node.target in _CONVS:
        bound = arguments(node)
        return LinearCall(bound["input"], bound["weight"], bound.get("bias"), False, node)
    if node.target in (aten.matmul.default, aten.mm.default):
        x, weight = args
        is_matrix = weight.meta["val"].ndim == _MATRIX and x.meta["val"].ndim >= _MATRIX
        return LinearCall(x, weight, None, True, node) if is_matrix else None
    if node.target is aten.addmm.default and not node.kwargs:
        bias, x, weight = args
        columns = weight.meta["val"].shape[1]
        is_vector = tuple(bias.meta["val"].shape) == (columns,)
        return LinearCall(x, weight, bias, True, node) if is_vector else None
    return None
