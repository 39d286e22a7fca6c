"""Layers that choose their way at run time, as torch.export sees them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from onnxq.pytorch.exporting.trace import gathered_experts

pytestmark = pytest.mark.oracle


class ExpertsOfTransformers(nn.Module):
    """A mixture that looks its way up in a configuration, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_experts_implementation="grouped_mm")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(self.config._experts_implementation == "batched_mm")


def test_experts_of_transformers_gather_their_weights_while_they_are_traced() -> None:
    module = ExpertsOfTransformers()
    with gathered_experts(module):
        assert module(torch.ones(1)).item() == 1
    assert module.config._experts_implementation == "grouped_mm"
