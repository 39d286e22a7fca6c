"""Networks in the style of pytorch_quantization: layers that quantize their inputs and weights."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.pytorch.tensor_quant import QuantDescriptor, TensorQuantizer

INPUT, WEIGHT = QuantDescriptor(), QuantDescriptor(axis=0)


class QuantConv2d(nn.Conv2d):
    def __init__(
        self,
        channels: int,
        rows: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
        x: QuantDescriptor = INPUT,
        w: QuantDescriptor = WEIGHT,
    ) -> None:
        super().__init__(channels, rows, kernel, stride, padding, groups=groups, bias=bias)
        self._input_quantizer, self._weight_quantizer = TensorQuantizer(x), TensorQuantizer(w)

    def forward(self, x: Tensor) -> Tensor:
        weight = self._weight_quantizer(self.weight)
        y: Tensor = self._conv_forward(self._input_quantizer(x), weight, self.bias)
        return y


class QuantLinear(nn.Linear):
    def __init__(
        self, columns: int, rows: int, x: QuantDescriptor = INPUT, w: QuantDescriptor = WEIGHT
    ) -> None:
        super().__init__(columns, rows)
        self._input_quantizer, self._weight_quantizer = TensorQuantizer(x), TensorQuantizer(w)

    def forward(self, x: Tensor) -> Tensor:
        weight = self._weight_quantizer(self.weight)
        return functional.linear(self._input_quantizer(x), weight, self.bias)


class Chain(nn.Module):
    """conv, bn, relu, conv, relu, max_pool, depthwise conv, q, pool, linear."""

    def __init__(self, x: QuantDescriptor = INPUT, w: QuantDescriptor = WEIGHT) -> None:
        super().__init__()
        self.first = QuantConv2d(3, 8, 3, padding=1, bias=False, w=w)
        self.norm = nn.BatchNorm2d(8)
        self.second = QuantConv2d(8, 16, 3, stride=2, padding=1, x=x, w=w)
        self.third = QuantConv2d(16, 16, 3, padding=1, groups=16, x=x, w=w)
        self.pooled = TensorQuantizer(INPUT)
        self.head = QuantLinear(16, 10, w=w)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.first(x)))
        x = functional.max_pool2d(functional.relu(self.second(x)), 2)
        x = self.pooled(self.third(x))
        return cast("Tensor", self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1)))


class Residual(nn.Module):
    """A block whose input three layers quantize, each for itself, and whose sum is quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = QuantConv2d(3, 8, 3, padding=1)
        self.one = QuantConv2d(8, 8, 3, padding=1)
        self.two = QuantConv2d(8, 8, 3, padding=1)
        self.down = QuantConv2d(8, 8, 1)
        self.residual_quantizer, self.branch_quantizer = TensorQuantizer(), TensorQuantizer()
        self.head = QuantConv2d(8, 4, 1)
        self.last = TensorQuantizer()

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x))
        y = self.branch_quantizer(self.two(functional.relu(self.one(x))))
        x = functional.relu(self.residual_quantizer(self.down(x)) + y)
        return cast("Tensor", self.last(self.head(x)))


def quantizers(module: nn.Module) -> list[TensorQuantizer]:
    return [part for part in module.modules() if isinstance(part, TensorQuantizer)]


@torch.no_grad()
def calibrated(net: nn.Module, size: int = 16, seed: int = 0) -> nn.Module:
    """The net with statistics and amax of random images, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(4, 16, 3, size, size, generator=generator)
    for part in quantizers(net):
        part.disable_quant()
    for batch in images:
        net(batch)
    net.eval()
    for part in quantizers(net):
        part.enable_calib()
    for batch in images:
        net(batch)
    for part in quantizers(net):
        part.load_calib_amax()
        part.disable_calib()
        part.enable_quant()
    return net
