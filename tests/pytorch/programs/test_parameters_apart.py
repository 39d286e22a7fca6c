"""Where quantizers sit does not depend on values of parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.insertion.annotate import annotate_program, parameters_apart
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.qconfig import QConfigMapping, get_default_qat_qconfig

pytestmark = pytest.mark.oracle


class Fresh(nn.Module):
    """Layers as their initialisation leaves them: biases of 0, gains of 1, a layer that is tied."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.gains, self.shifts = (
            nn.ParameterList(nn.Parameter(torch.full((4,), value)) for _ in range(2))
            for value in (1.0, 0.0)
        )
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.layers[0].weight  # type: ignore[assignment]  # a parameter

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        for layer, gain, shift in zip(self.layers, self.gains, self.shifts, strict=True):
            x = layer(x) * gain + shift
        y: Tensor = self.tied(x) * self.scale
        return y


def test_fresh_parameters_have_quantizers_where_trained_ones_have() -> None:
    model, x = Fresh(), torch.randn(3, 4)
    nn.init.zeros_(model.layers[0].bias)  # type: ignore[arg-type]  # of a Linear
    program = program_of(model, x)
    mapping = QConfigMapping(get_default_qat_qconfig())
    found = annotate_program(training_graph(copy.deepcopy(model), program), program, mapping, None)
    assert not found.unannotated
    assert len(found.weights) == 3
    annotated = [name for group in found.groups for name in group.nodes]
    assert {"gains_0", "gains_1", "shifts_0", "shifts_1"} <= set(annotated)


def test_values_come_back_and_ties_stay() -> None:
    model = Fresh()
    state = program_of(model, torch.randn(3, 4)).exported
    held = dict(state.state_dict)
    with parameters_apart(state):
        inside = dict(state.state_dict)
        assert inside["layers.0.weight"] is inside["tied.weight"]
        shifts = [inside[f"shifts.{i}"] for i in range(2)]
        assert not torch.equal(*shifts)
        assert inside["scale"] != 1
        assert inside["layers.1.weight"] is held["layers.1.weight"]
    assert all(state.state_dict[name] is x for name, x in held.items())
