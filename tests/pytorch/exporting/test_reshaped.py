from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.pytorch import export


class Heads(nn.Module):
    """Attention as T5 has it: with a bias of positions, and a view of what torch has contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(8, 24), nn.Parameter(torch.zeros(1, 2, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.view(len(x), -1, 2, 4).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, self.bias)
        return y.transpose(1, 2).contiguous().view(len(x), -1, 8)


@pytest.mark.nightly
def test_views_of_attention_are_exported_with_their_axes_named() -> None:
    torch.manual_seed(0)
    model = export(Heads(), torch.randn(2, 5, 8))
    assert str(model.graph.inputs[0].shape) == "[batch,5,8]"
    assert str(model.graph.outputs[0].shape) == "[batch,5,8]"


class Joined(nn.Module):
    """Attention as BEiT has it: biases out of a table, and a reshape of what torch has in order."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.table = nn.Linear(8, 24), nn.Parameter(torch.zeros(25, 2))
        self.register_buffer("places", torch.arange(25))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(x.shape[0], 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.get_buffer("places")].view(5, 5, -1).permute(2, 0, 1).contiguous()
        y = F.scaled_dot_product_attention(q, k, v, bias.unsqueeze(0))
        return y.transpose(1, 2).reshape(x.shape[0], 5, 8)


@pytest.mark.nightly
def test_reshapes_of_attention_are_exported_too() -> None:
    model = export(Joined(), torch.randn(4, 5, 8))
    assert str(model.graph.outputs[0].shape) == "[batch,5,8]"
