"""Operators of regions stand in the program's own graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.insertion.annotate import annotate_program
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.qconfig import QConfigMapping, get_default_qat_qconfig

pytestmark = pytest.mark.oracle


class Probe(nn.Module):
    """A layer that is not trained, and one that is, in halves."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, and what was put through the head."""
        with torch.no_grad():
            y: Tensor = self.frozen(x).relu()
        with torch.autocast("cpu", torch.bfloat16):
            z: Tensor = self.head(y)
        return z.float(), y


def test_regions_train_without_gradients_and_are_quantized() -> None:
    model, x = Probe(), torch.randn(3, 4)
    program = program_of(model, x)
    targets = [str(node.target) for node in program.exported.graph.nodes]
    assert not any(target.startswith("wrap_with") for target in targets)
    graph = training_graph(copy.deepcopy(model), program)
    scores, inside = graph(x)
    scores.square().sum().backward()
    assert graph.get_parameter("frozen.weight").grad is None
    assert graph.get_parameter("head.weight").grad is not None
    torch.testing.assert_close(inside, model.frozen(x).relu().detach())
    mapping = QConfigMapping(get_default_qat_qconfig())
    found = annotate_program(training_graph(copy.deepcopy(model), program), program, mapping, None)
    assert [weight.path for weight in found.weights] == ["frozen", "head"]
    assert not found.unannotated


class Mapped(nn.Module):
    """Products with a stack of matrices, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.Parameter(torch.randn(4, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of the products."""
        made: torch.Tensor = torch.vmap(lambda w: x @ w.T)(self.stack)
        return made.sum(0)


def test_vmap_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"torch.vmap.*torch.einsum"):
        prepare_qat(Mapped(), inputs=torch.randn(2, 8))
