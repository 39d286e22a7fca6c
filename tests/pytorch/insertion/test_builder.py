"""Builders give the modules that annotations ask for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxq.errors import QConfigError
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.insertion.graph_prepare import prepare_graph, prepare_graph_qat
from onnxq.pytorch.programs.graph_module import FLOAT_STATE
from onnxq.qconfig import QConfigMapping, get_default_qconfig

pytestmark = pytest.mark.oracle


def test_an_observer_that_does_not_round_trains_nothing() -> None:
    with pytest.raises(QConfigError, match="does not round"):
        prepare_graph_qat(nn.Linear(4, 4), torch.randn(3, 4), QConfigMapping(get_default_qconfig()))


def test_observing_folds_batch_norm_and_takes_no_float_checkpoint() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    prepared = prepare_graph(model, torch.randn(2, 3, 4, 4))
    assert type(prepared.get_submodule("0")) is nn.Conv2d
    assert FLOAT_STATE not in prepared.meta


class Hooked(nn.Module):
    """A layer whose result changes its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 4)."""
        y: torch.Tensor = self.fc(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient / 2)  # type: ignore[no-untyped-call]  # torch's
        return y


def test_a_warning_shows_the_line_that_prepares() -> None:
    with pytest.warns(UserWarning, match="gradients of 'fc.weight'") as found:
        prepare_qat(Hooked(), inputs=torch.randn(3, 4))
    assert found[0].filename == __file__
