from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch import export, prepare_qat
from onnxq.pytorch.exporting.trace import PromotedBounds

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.oracle

X = torch.linspace(-2, 2, 12).reshape(3, 4)
CLAMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "by place": lambda x: torch.clamp(x, 0, 0.5),
    "by name": lambda x: torch.clip(x, min=-0.5, max=1),
    "all by name": lambda x: torch.clamp(input=x, min=0, max=0.5),
    "a method": lambda x: x.clip(-1, max=0.25),
    "in place": lambda x: (x + 0).clamp_(0, 0.5),
    "of integers": lambda x: (4 * x).long().clamp(-3, 2.5),
}


class Clamped(nn.Module):
    def __init__(self, clamp: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.clamp, self.last = nn.Linear(4, 4), clamp, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.clamp(self.first(x)))


@pytest.mark.parametrize("name", CLAMPS)
def test_an_int_beside_a_float_is_what_torch_takes_it_for(name: str) -> None:
    with PromotedBounds():
        got = CLAMPS[name](X)
    torch.testing.assert_close(got, CLAMPS[name](X), rtol=0, atol=0)


def test_a_module_with_such_bounds_is_exported_and_prepared() -> None:
    module = Clamped(CLAMPS["by place"])
    model = export(module.eval(), X)
    assert [node.op_type for node in model.graph].count("Clip") == 1
    prepared = prepare_qat(module.train(), inputs=X)
    assert prepared(X).shape == (3, 2)
