"""Gradients that code changes beside the operators are noted, rounding is not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.train_mode import gradient_notes
from onnxq.pytorch.programs.training_graph import training_graph
from tests.pytorch.programs.nets import Mixed, images

pytestmark = pytest.mark.oracle


class Hooked(nn.Module):
    """A layer whose result halves its gradient, and one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 2)."""
        y = self.first(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient / 2)
        z: Tensor = self.second(y)
        return z


def notes(model: nn.Module, x: Tensor) -> tuple[str, ...]:
    program = program_of(model, x)
    return gradient_notes(model, training_graph(copy.deepcopy(model), program), program)


def test_parameters_behind_a_hook_are_named() -> None:
    (note,) = notes(Hooked(), torch.randn(3, 4))
    assert "'first.weight', 'first.bias'" in note
    assert "second" not in note


def test_equal_gradients_leave_no_note_and_no_trace() -> None:
    model = Mixed()
    assert notes(model, images()) == ()
    assert all(p.grad is None for p in model.parameters())
    assert model.count == 0


class Turned(nn.Module):
    """Attention, whose result torch lays out otherwise than the operators it is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 2, 5, 4)."""
        q, k, v = self.packed(x).reshape(x.shape[0], 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_a_result_of_another_layout_leaves_no_note() -> None:
    torch.manual_seed(0)
    assert notes(Turned(), torch.randn(3, 5, 8)) == ()
