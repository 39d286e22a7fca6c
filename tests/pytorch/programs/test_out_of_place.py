"""Writes in place become new tensors, seen by all that reads the old one behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.arguments.axes import Axes
from onnxq.pytorch.programs import program
from onnxq.pytorch.programs.out_of_place import is_mutation
from onnxq.pytorch.programs.program import program_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.oracle


def a_part(x: Tensor) -> Tensor:
    y = x + 1
    y[:, 0] *= 0.5
    return y * 2


def a_part_of_a_part(x: Tensor) -> Tensor:
    y = x + 1
    y[:, 1:3].t()[0] = 7.0
    return y


def a_view_taken_before(x: Tensor) -> Tensor:
    y = x + 1
    view = y.unsqueeze(0)
    y.mul_(3)
    return view[0] + y


def the_whole(x: Tensor) -> Tensor:
    y = x * 2
    y += x
    return torch.relu_(y)


def the_input(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1].copy_(x[:, 0])
    return x


def two_parts(x: Tensor) -> Tensor:
    y = x.clone()
    y[:2] += 1
    y[:, 0] = 0
    return y


def a_result_by_another_name(x: Tensor) -> Tensor:
    y = x.clone()
    z = y.add_(1)
    y.mul_(2)
    return z


def a_part_of_a_result(x: Tensor) -> Tensor:
    y = x.clone()
    y.add_(1)[0].mul_(2)
    y[1:3].sub_(1)[:, 1] = 3
    return y


def a_view_ahead_of_two_writes(x: Tensor) -> Tensor:
    y = x.clone()
    view = y[:, 1:]
    y[0] += 1
    y[1] *= 2
    first = view + 0
    view[2] = 5
    return torch.cat([first, y], 1)


@pytest.mark.parametrize(
    "function",
    [
        a_part,
        a_part_of_a_part,
        a_view_taken_before,
        the_whole,
        the_input,
        two_parts,
        a_result_by_another_name,
        a_part_of_a_result,
        a_view_ahead_of_two_writes,
    ],
)
def test_the_program_computes_the_same_without_writes(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "batch_axes", lambda *_: Axes({}, {}))  # some want three rows

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    x = torch.randn(4, 4)
    exported = program_of(Model(), x).exported
    assert not any(map(is_mutation, exported.graph.nodes))
    (result,) = exported.module()(x.clone())
    torch.testing.assert_close(result, function(x.clone()), rtol=0, atol=0)


class Counting(nn.Module):
    """A buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """x and the count."""
        self.count.add_(1)
        return x + self.count


def test_writes_into_buffers_stay() -> None:
    exported = program_of(Counting(), torch.ones(2)).exported
    assert any(map(is_mutation, exported.graph.nodes))
