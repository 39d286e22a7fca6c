"""Shapes that a graph does not hold for are named where it is called."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import ShapeError
from onnxq.pytorch.programs.call_form import ShapeGuard, guard_of
from onnxq.pytorch.programs.program import program_of

pytestmark = pytest.mark.oracle


class Pair(nn.Module):
    """A MatMul of two inputs of one length."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """(N,)."""
        return (x * y).sum(1)


@pytest.fixture(scope="module")
def guard() -> ShapeGuard:
    return guard_of(program_of(Pair(), (torch.ones(2, 3), torch.ones(2, 3))).exported)


def test_other_batches_pass(guard: ShapeGuard) -> None:
    for rows in (1, 2, 7):
        guard(torch.ones(rows, 3), torch.ones(rows, 3))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 4), (2, 4)), "'x' has shape .2, 4.: axis 1 has to be 3 long"),
        (((2, 3), (3, 3)), "axis 0 has to be as long as axis 0 of 'x', 2"),
        (((2,), (2, 3)), "wanted 2 axes"),
    ],
)
def test_other_shapes_are_refused(
    guard: ShapeGuard, shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        guard(*map(torch.ones, shapes))


def test_the_guard_is_copied_with_its_shapes(guard: ShapeGuard) -> None:
    with pytest.raises(ShapeError):
        copy.deepcopy(guard)(torch.ones(2, 4), torch.ones(2, 4))


def test_an_argument_that_is_left_out_is_named(guard: ShapeGuard) -> None:
    with pytest.raises(ShapeError, match="'y' is NoneType; wanted a tensor"):
        guard(torch.ones(2, 3), None)
