"""Buffers that train mode updates are updated by the training graph, in train mode."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph

pytestmark = pytest.mark.oracle


class Running(nn.Module):
    """Buffers that are written: whole, in part, anew, ahead of and behind what reads them."""

    mean: Tensor
    spread: Tensor
    made: Tensor
    rows: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        for name in ("mean", "spread", "made"):
            self.register_buffer(name, torch.zeros(4))
        self.register_buffer("rows", torch.zeros(3, 4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = torch.dropout(self.norm(self.fc(x)), 0.1, self.training)
        before = y * self.spread.clone()
        if self.training:
            self.steps += 1
            self.mean.mul_(0.9).add_(0.1 * y.detach().mean(0))
            with torch.no_grad():
                self.rows[1] = y.mean(0)
                self.spread.lerp_(y.var(0), 0.5)
                self.made = self.made * 0.5 + y.sum(0)
        return y - self.mean + before + self.made


def test_buffers_go_on_as_those_of_the_model_do() -> None:
    model, x = Running(), torch.randn(5, 4)
    graph = training_graph(copy.deepcopy(model), program_of(model, x))
    graph = pickle.loads(pickle.dumps(copy.deepcopy(graph)))
    results = []
    for module in (model.train(), graph.train()):
        torch.manual_seed(0)
        for _ in range(3):
            y: Tensor = module(x)
        y.sum().backward()  # type: ignore[no-untyped-call]  # torch's
        module.eval()(x)
        results.append([y, *module.state_dict().values()])
    assert model.steps == 3
    assert bool(model.rows[1].abs().sum() > 0)
    for wanted, got in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted)
