from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from onnxq.pytorch import FakeQuantize, FloatFunctional

if TYPE_CHECKING:
    from collections.abc import Callable

X, Y = torch.randn(2, 1, 3, 4, generator=torch.Generator().manual_seed(0))

OPERATIONS: dict[str, tuple[Callable[[FloatFunctional], Tensor], Tensor]] = {
    "add": (lambda f: f.add(X, Y), X + Y),
    "add_scalar": (lambda f: f.add_scalar(X, 0.3), X + 0.3),
    "mul": (lambda f: f.mul(X, Y), X * Y),
    "mul_scalar": (lambda f: f.mul_scalar(X, 0.3), X * 0.3),
    "cat": (lambda f: f.cat([X, Y], 1), torch.cat([X, Y], 1)),
    "add_relu": (lambda f: f.add_relu(X, Y), (X + Y).relu()),
    "matmul": (lambda f: f.matmul(X, Y.mT), X @ Y.mT),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_torchs_and_rounded_once_prepared(name: str) -> None:
    function, expected = OPERATIONS[name]
    module = FloatFunctional()
    assert torch.equal(function(module), expected)
    module.activation_post_process = fake = FakeQuantize()
    assert torch.equal(function(module), fake.eval()(expected))
    assert fake.has_observed
