from __future__ import annotations

import torch
from torch import nn

from models.mobilenet import InvertedResidual, example_inputs, mobilenetv2


def test_ten_logits_through_depthwise_convolutions_and_relu6() -> None:
    model = mobilenetv2().eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    depthwise = [m for m in convolutions if m.groups == m.in_channels > 1]
    assert len(depthwise) == 10
    assert not any(isinstance(m, nn.ReLU) for m in model.modules())


def test_only_blocks_of_equal_shape_are_residual() -> None:
    assert InvertedResidual(16, 16, 1, 6).residual
    assert not InvertedResidual(16, 16, 2, 6).residual
    assert not InvertedResidual(16, 24, 1, 6).residual


def test_example_inputs_suit_the_model() -> None:
    assert {name: x.shape for name, x in example_inputs().items()} == {"image": (4, 3, 32, 32)}
