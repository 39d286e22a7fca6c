"""Names in exported models do not depend on values of parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.exporting.exporter import export
from onnxq.pytorch.insertion.annotate import annotate
from onnxq.qconfig import QConfigMapping, get_default_qat_qconfig

if TYPE_CHECKING:
    import onnx_ir as ir

pytestmark = pytest.mark.oracle


class Fresh(nn.Module):
    """Layers whose biases are 0, and shifts that are equal to them; one weight is tied."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.same = nn.Conv2d(4, 4, 1)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.zeros(4))
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        for layer in (self.same, self.first, self.second):
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # each has one

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, 4)."""
        x = torch.relu(self.same(torch.relu(self.norm(self.conv(x)))))
        x = torch.relu(self.first(x.flatten(2).mT)) * 2 + self.shift
        y: Tensor = self.tied(torch.relu(self.second(x)))
        return y


IMAGES = torch.randn(2, 3, 4, 4)


def trained() -> Fresh:
    """The module with other parameters everywhere."""
    model = Fresh()
    with torch.no_grad():
        for x in model.parameters():
            x.uniform_(0.5, 1.5)
    return model


def names(model: ir.Model) -> list[str | None]:
    """Names of nodes and their results."""
    return [name for node in model.graph for name in (node.name, node.outputs[0].name)]


def test_nodes_of_a_fresh_module_are_named_like_those_of_a_trained_one() -> None:
    fresh, other = export(Fresh(), IMAGES), export(trained(), IMAGES)
    assert names(fresh) == names(other)
    assert [node.name for node in fresh.graph if node.op_type == "Conv"] == [
        "node_conv2d",  # batch norm is part of it
        "node_conv2d_1",
    ]


def test_parameters_of_equal_values_stay_apart_and_tied_ones_are_one() -> None:
    model = export(Fresh(), IMAGES)
    assert {"first.bias", "second.bias", "shift"} <= set(model.graph.initializers)
    matmuls = [node for node in model.graph if node.op_type == "MatMul"]
    assert matmuls[0].inputs[1] is matmuls[2].inputs[1]


@pytest.mark.parametrize("name", ["node_conv2d", "node_conv2d_1", "node_linear_1"])
def test_a_name_read_in_the_exported_file_names_that_node_in_training(name: str) -> None:
    model = Fresh()
    assert name in names(export(model, IMAGES))
    mapping = QConfigMapping(get_default_qat_qconfig()).set_node(name, None)
    assert name in annotate(model, IMAGES, mapping).floats
