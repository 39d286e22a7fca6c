"""A function as a module has the function's backward."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from onnxq.pytorch.programs.own_gradients import AppliedFunction, Place

pytestmark = pytest.mark.oracle


class Scaled(torch.autograd.Function):
    """x times a factor; the gradient is 7."""

    @staticmethod
    def forward(ctx: Any, factor: float, x: Tensor) -> Tensor:  # noqa: ARG004  # torch's signature
        """The product."""
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # noqa: ARG004  # torch's signature
        """Sevens."""
        return None, torch.full_like(gradient, 7)


def test_arguments_go_to_their_places_before_and_after_pickling() -> None:
    module = AppliedFunction(Scaled, (3.0, Place(0)))
    for made in (module, pickle.loads(pickle.dumps(module))):
        x = torch.ones(2, requires_grad=True)
        y = made(x)
        y.sum().backward()
        assert y.tolist() == [3, 3]
        assert x.grad is not None
        assert x.grad.tolist() == [7, 7]
    assert "Scaled" in repr(module)
