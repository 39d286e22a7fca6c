"""A small net for the workflows, prepared and converted by either namespace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onnxq.pytorch.nn import quantized as ours_quantized
from scripts._documents.namespaces import ours


class Net(nn.Module):
    """Conv, BatchNorm, ReLU, a sum of two branches, Linear: the guide's steps 1a to 1c.

    Without biases, which onnxq rounds to int32 where torch adds them in float.
    """

    def __init__(self, namespace: Any, biases: object = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        functional = ours_quantized if namespace is ours else torch.ao.nn.quantized
        self.quant, self.dequant = namespace.QuantStub(), namespace.DeQuantStub()
        self.conv, self.bn, self.relu = (
            nn.Conv2d(3, 8, 3, bias=bool(biases)),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.side = nn.Conv2d(3, 8, 3, bias=bool(biases))
        self.total = functional.FloatFunctional()
        self.fc = nn.Linear(8 * 36, 5, bias=bool(biases))
        for layer in (self.conv, self.side, self.fc):
            off_the_tie(layer)

    def forward(self, x: Tensor) -> Tensor:
        x = self.quant(x)
        x = self.total.add(self.relu(self.bn(self.conv(x))), self.side(x))
        y: Tensor = self.dequant(self.fc(x.flatten(1)))
        return y


def off_the_tie(layer: Any, per_tensor: object = False) -> None:
    """Makes the largest weight of each channel, or of all, positive.

    Its quotient by the scale is 127.5. That rounds to 128, which is 127 on both sides; -127.5 is a
    tie, which torch's product by 1 / scale and ONNX's quotient may bring to different sides.
    """
    with torch.no_grad():
        rows = layer.weight.view(1 if per_tensor else len(layer.weight), -1)
        largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
        rows *= largest.sign()


def images(count: int = 4) -> Tensor:
    """Normal numbers (count, 3, 8, 8)."""
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(8))


FUSED = [["conv", "bn", "relu"]]


def static(namespace: Any, backend: str = "fbgemm", biases: object = False) -> Any:
    """Net after prepare, calibration and convert, with observers of ranges."""
    net = Net(namespace, biases).eval()
    net = namespace.fuse_modules(net, FUSED)
    weight = namespace.get_default_qconfig(backend).weight
    net.qconfig = namespace.QConfig(activation=namespace.default_observer, weight=weight)
    prepared = namespace.prepare(net)
    with torch.no_grad():
        prepared(images())
        return namespace.convert(prepared)


def training(namespace: Any, entry: Any = None) -> Any:
    """Net with fused parts, prepared for training; entry: a QConfig, None: default_qat_qconfig."""
    net = Net(namespace).train()
    net = namespace.fuse_modules_qat(net, FUSED)
    net.qconfig = entry or namespace.default_qat_qconfig
    return namespace.prepare_qat(net)
