"""The line of forward that torch's exporter could not follow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.exporting.quiet import users_line


class Branching(nn.Module):
    """A layer whose result depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 2)."""
        y: torch.Tensor = self.fc(x)
        if y.sum() > 0:
            y = -y
        return y


@pytest.mark.oracle
def test_a_branch_on_values_is_named_and_no_graph_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UnsupportedError) as refused:
        prepare_qat(Branching(), inputs=torch.randn(3, 4))
    assert f"At {__file__}:" in str(refused.value)
    assert "in forward: if y.sum() > 0:" in str(refused.value)
    assert "whole_layers" not in str(refused.value)
    assert "def forward" not in capfd.readouterr().err


def test_errors_of_torch_alone_have_no_line() -> None:
    assert users_line(ValueError("never raised")) == ""
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2) @ torch.ones(3)
    assert f"{__file__}:" in users_line(raised.value)  # it came through this file
