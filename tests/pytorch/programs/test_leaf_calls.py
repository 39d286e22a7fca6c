"""Layers are found again by what operators read, and by the module that they lie in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.pytorch.programs.leaf_calls import LeafCalls, arguments
from onnxq.pytorch.programs.program import program_of

pytestmark = pytest.mark.oracle


class Layers(nn.Module):
    """A layer twice, its weight in a function, another padding, a weight that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.GELU()
        self.up = nn.ConvTranspose1d(4, 4, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, 20)."""
        y = self.act(self.fc(self.fc(x)))
        y = functional.linear(y, self.fc.weight, self.fc.bias)
        y = functional.linear(y, self.fc.weight * 2, self.fc.bias)
        z: Tensor = self.up(self.up(y), output_size=[20])
        return z


def test_calls_are_found() -> None:
    model = Layers()
    exported = program_of(model, torch.ones(2, 4, 4)).exported
    calls = LeafCalls(model, exported)
    found = [
        calls.path(n)
        for n in exported.graph.nodes
        if n.op == "call_function" and "sym" not in n.name
    ]
    assert found == ["fc", "fc", "act", "fc", None, None, "up", None]


def test_arguments_go_by_name_with_defaults() -> None:
    exported = program_of(nn.LayerNorm(4), torch.ones(2, 4)).exported
    (node,) = [n for n in exported.graph.nodes if n.op == "call_function"]
    bound = arguments(node)
    assert bound["normalized_shape"] == [4]
    assert bound["eps"] == 1e-5
