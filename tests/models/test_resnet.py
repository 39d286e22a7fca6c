from __future__ import annotations

import torch
from torch import nn

from models.resnet import BasicBlock, example_inputs, resnet20


def test_resnet20_has_20_layers_and_10_logits() -> None:
    model = resnet20().eval()
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    on_shortcuts = [m for m in layers if isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1)]
    assert (len(layers) - len(on_shortcuts), len(on_shortcuts)) == (20, 2)
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_shortcut_is_a_convolution_only_where_shapes_differ() -> None:
    assert len(BasicBlock(16, 16, 1).shortcut) == 0
    assert BasicBlock(16, 32, 2)(torch.zeros(1, 16, 8, 8)).shape == (1, 32, 4, 4)


def test_example_inputs_suit_the_model() -> None:
    (name, images), *others = example_inputs().items()
    assert (name, others, images.shape) == ("image", [], (4, 3, 32, 32))
