"""Operators that multiply by a weight are layers that are given it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph

pytestmark = pytest.mark.oracle


class Linears(nn.Module):
    """One of each."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))
        self.b = nn.Parameter(torch.randn(4))
        self.kernel = nn.Parameter(torch.randn(4, 2, 3))
        self.twice = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, 4)."""
        x = torch.addmm(self.b, x, self.w) + x @ self.w
        x = self.twice(self.twice(x))
        x = functional.linear(x, self.w * 2, self.b)
        y = functional.conv1d(x[:, None].expand(-1, 4, -1), self.kernel, self.b, 2, 1, groups=2)
        y = functional.conv_transpose1d(y, self.kernel, None, 2, output_padding=1, groups=2)
        return y @ y.transpose(1, 2)  # of activations alone


def test_they_compute_the_same() -> None:
    model, x = Linears(), torch.randn(3, 4)
    graph = training_graph(copy.deepcopy(model), program_of(model, x))
    given = [str(n.target) for n in graph.graph.nodes if n.op == "call_module"]
    given = [path for path in given if isinstance(graph.get_submodule(path), ParametrizedLayer)]
    assert given == ["addmm", "matmul", "linear_1", "linear_2", "conv1d", "conv_transpose1d"]
    torch.testing.assert_close(graph(x), model(x), rtol=1e-5, atol=1e-4)  # sums in another order
    assert [*graph.state_dict()] == [*model.state_dict()]
