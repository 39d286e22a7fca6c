"""convert: parameters that are NaN or infinite are named; masks may be infinite."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import ModelError
from onnxq.pytorch import convert, disable_observer, prepare_qat
from onnxq.pytorch.train.conversion import check_parameters


class Net(nn.Module):
    """A layer that becomes integers, a norm that may stay in float, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.layer_norm, self.fc = nn.LayerNorm(4), nn.Linear(4, 2)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 2)."""
        pooled = self.norm(self.conv(x)).relu().mean((2, 3))
        y: Tensor = self.fc(self.layer_norm(pooled))
        return y


def trained() -> Any:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 6, 6)
    model: Any = prepare_qat(Net(), inputs=x)
    model(x)
    return model.apply(disable_observer).eval()


def test_each_parameter_and_statistic_that_is_not_a_number_is_refused_by_name() -> None:
    model = trained()
    for name in ("conv.weight", "norm.running_var", "layer_norm.weight", "fc.bias"):
        tensor = model.state_dict(keep_vars=True)[name]
        kept = tensor.detach().clone()
        for bad in (torch.nan, torch.inf):
            with torch.no_grad():
                tensor.view(-1)[0] = bad
            with pytest.raises(ModelError, match=f"'{name}' .1 of {kept.numel()} elements.*NaN"):
                convert(model)
        with torch.no_grad():
            tensor.copy_(kept)
    convert(model)


def test_others_are_counted() -> None:
    model = trained()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(ModelError, match=r"'conv.weight' .108 of 108 elements., and 7 more holds"):
        convert(model)


def test_masks_may_be_infinite_but_not_nan() -> None:
    model = Net()
    check_parameters(model)
    model.fc.bias.requires_grad_(False).fill_(-torch.inf)
    check_parameters(model)
    model.fc.bias.fill_(torch.nan)
    with pytest.raises(ModelError, match=r"fc\.bias"):
        check_parameters(model)
