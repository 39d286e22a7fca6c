"""Notes say what only train mode does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.train_mode import train_mode_notes
from onnxq.pytorch.programs.training_graph import training_graph
from tests.pytorch.programs.nets import Mixed, images

pytestmark = pytest.mark.oracle


def notes(model: nn.Module, x: Tensor) -> tuple[str, ...]:
    program = program_of(model, x)
    return train_mode_notes(training_graph(copy.deepcopy(model), program), program)


class Masking(nn.Module):
    """Half of the rows are masked in train mode."""

    def forward(self, x: Tensor) -> Tensor:
        """x, or x with rows of 0."""
        if self.training:
            x = x * (torch.rand(x.shape[0], 1) > 0.5)
        return x * 2


class Strict(nn.Module):
    """Train mode wants labels."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice x."""
        if self.training:
            raise ValueError("labels are missing")
        return x * 2


def test_batch_norm_and_dropout_need_no_note() -> None:
    assert notes(Mixed(), images()) == ()


def test_what_train_mode_does_beside_is_said() -> None:
    (note,) = notes(nn.Sequential(Masking(), nn.Linear(3, 3)), torch.randn(8, 3))
    assert "masks that are drawn" in note


def test_a_train_mode_that_fails_is_said() -> None:
    (note,) = notes(nn.Sequential(Strict()), torch.randn(8, 3))
    assert "labels are missing" in note
