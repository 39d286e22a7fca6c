"""A small module's ONNX form beside its training graph, for the tests of this folder."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.graph.canonical import canonicalize_module
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.insertion.view import Names, View
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.qconfig import Choice, QConfigMapping, get_default_qat_qconfig
from onnxq.static.prepare import prepare


class Small(nn.Module):
    """A norm and a ReLU behind a convolution, a padding, a dropout, a weight of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3)
        self.fc = nn.Linear(4, 4)
        self.a, self.b = (nn.Parameter(torch.randn(4, 2)) for _ in range(2))
        self.place = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        """Four numbers for each image."""
        y = functional.relu(self.norm(self.conv(x)))
        y = self.second(functional.pad(y, (1, 1, 1, 1)))
        z = functional.dropout(y.mean((2, 3)), 0.1, self.training) + self.place
        scores: Tensor = self.fc(z) @ (self.a @ self.b.t())
        return scores


def viewed(model: nn.Module, x: Tensor) -> View:
    """Both graphs, all in integers that can be."""
    program = program_of(model, x)
    traced = training_graph(copy.deepcopy(model), program)
    mapping = QConfigMapping(get_default_qat_qconfig("fbgemm"), choice=Choice.ALL_INTEGERS)
    canonical = canonicalize_module(onnx_form(program), types_by_run)
    return View(traced, Names(traced, program.exported), prepare(canonical, mapping, None))


def small() -> View:
    """The view of `Small`."""
    torch.manual_seed(0)
    return viewed(Small().eval(), torch.randn(2, 3, 8, 8))
