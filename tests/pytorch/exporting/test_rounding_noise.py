from __future__ import annotations

import math

import torch
from torch import nn

from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.exporting.check_quantized import rounding_noise
from onnxq.pytorch.nn.quantized import Requantize

X = torch.linspace(-1, 1, 10_000).reshape(100, 100)
SCALE = 0.01


class Amplifying(nn.Module):
    """A tensor at quantized levels, and `gain` times it with the same scale."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain
        self.first, self.second = Requantize(SCALE, 128), Requantize(SCALE, 128)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.second(self.first(x) * self.gain)
        return y, y.argmax(-1)


def test_one_rounding_moves_by_half_an_lsb() -> None:
    module = nn.Sequential(Requantize(SCALE, 128))
    (moved,) = rounding_noise(module, bind(module, X))
    assert math.isclose(moved, SCALE / 2, rel_tol=0.05)  # E d^2 = 1/4


def test_amplification_between_roundings_is_measured() -> None:
    module = Amplifying(0.9)
    usual, integers = rounding_noise(module, bind(module, X / 50))
    large = rounding_noise(Amplifying(30), bind(module, X / 50))[0]
    assert integers == 0
    assert SCALE / 2 < usual < SCALE
    assert math.isclose(large, 30 * SCALE / 2, rel_tol=0.2)


def test_the_module_rounds_as_before_afterwards() -> None:
    module = Amplifying(2)
    before = module(X)[0]
    rounding_noise(module, bind(module, X))
    assert torch.equal(module(X)[0], before)
