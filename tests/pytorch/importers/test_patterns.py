"""Fake quantization that a module writes out in float operators is found again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from onnxq.pytorch.importers import import_quantized
from onnxq.pytorch.importers.patterns import _step_of
from tests.exact_engine import exact

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning"),
]
X = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ARG004  # autograd's signature
        x: torch.Tensor,
        s: torch.Tensor,
        z: int,
        low: int,
        high: int,
    ) -> torch.Tensor:
        return (torch.clamp(torch.round(x / s) + z, low, high) - z) * s

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # noqa: ARG004
        return grad, None, None, None, None


class Net(nn.Module):
    """Two convolutions; the second one's weights are too many to be folded by the exporter."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList([nn.Conv2d(3, 48, 3), nn.Conv2d(48, 48, 3)])
        self.low, self.high, self.middle = low, high, (low + high + 1) // 2
        self.register_buffer("scale", torch.tensor(0.03))
        for i, conv in enumerate(self.convs):
            widest = conv.weight.detach().abs().amax((1, 2, 3), keepdim=True)  # type: ignore[operator]
            self.register_buffer(f"w{i}", widest / 127)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = FakeQuantize.apply(x, self.scale, self.middle, self.low, self.high)
        for i, conv in enumerate(self.convs):
            w = FakeQuantize.apply(conv.weight, getattr(self, f"w{i}"), 0, -127, 127)
            x = functional.relu(functional.conv2d(x, w, conv.bias))  # type: ignore[arg-type]
            x = FakeQuantize.apply(x, self.scale, self.low, self.low, self.high)
        return x


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-128, 127)])
def test_both_ranges_become_uint8_and_the_same_numbers(low: int, high: int) -> None:
    module = Net(low, high).eval()
    model = import_quantized(module, X, format="qoperator")
    counts = Counter(node.op_type for node in model.graph)
    assert counts["QLinearConv"] == 2
    assert counts["Round"] == 0
    with exact(model) as session:
        got = session.run({"x": X.numpy()})[0]
    wanted = module(X).detach().numpy()
    off = np.rint(np.abs(got - wanted) / 0.03)
    assert off.max() <= 1
    assert (off > 0).mean() <= 0.01  # the bias, int32 there and float32 here


def test_the_scale_of_multiples_is_the_largest() -> None:
    integers = np.array([-126, 4, 0, 90], np.float32)
    assert _step_of(integers * np.float32(0.013)) == pytest.approx(0.026, rel=1e-6)
    assert _step_of(np.zeros(3, np.float32)) == 1
    assert np.isnan(_step_of(np.array([1, 0.12345, 0.777], np.float32)))
