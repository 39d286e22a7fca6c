"""A training graph is saved, copied and moved like any module."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from onnxq.pytorch import prepare_qat
from onnxq.pytorch.programs.graph_module import TrainingGraph
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from tests.pytorch.programs.nets import Nested, sequences

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def graph() -> TrainingGraph:
    model = Nested()
    model.register_buffer("unsaved", torch.ones(1), persistent=False)
    model.spare = nn.Linear(2, 2)
    return training_graph(model, program_of(model, sequences()))


def loaded(graph: TrainingGraph) -> nn.Module:
    file = io.BytesIO()
    torch.save(graph, file)
    file.seek(0)
    module: nn.Module = torch.load(file, weights_only=False)
    return module


@pytest.mark.parametrize(
    "again", [copy.deepcopy, loaded, lambda graph: pickle.loads(pickle.dumps(graph))]
)
def test_a_copy_is_a_graph_with_the_same_state_and_results(
    again: object, graph: TrainingGraph
) -> None:
    other = again(graph)  # type: ignore[operator]  # a function
    assert isinstance(other, TrainingGraph)
    assert [n.name for n in other.graph.nodes] == [n.name for n in graph.graph.nodes]
    assert [*other.state_dict()] == [*graph.state_dict()]
    assert "unsaved" in dict(other.named_buffers())
    got, wanted, weight = other(*sequences()), graph(*sequences()), "lstm.weight_ih_l0"
    torch.testing.assert_close(got.scores, wanted.scores)
    assert other.get_parameter(weight) is not graph.get_parameter(weight)


def test_modes_reach_all_parts(graph: TrainingGraph) -> None:
    assert not any(module.training for module in graph.eval().modules())
    assert all(module.training for module in graph.train().modules())


def test_what_forward_does_not_read_is_kept(graph: TrainingGraph) -> None:
    assert isinstance(graph.spare, nn.Linear)


def test_it_moves_to_another_type(graph: TrainingGraph) -> None:
    moved = copy.deepcopy(graph).double()
    batch, state = sequences()
    result = moved({"x": batch["x"].double()}, tuple(x.double() for x in state))
    assert result.scores.dtype == torch.float64


def test_parameters_have_the_names_and_the_order_of_the_float_model() -> None:
    layers = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()
    model = nn.Sequential(nn.Sequential(*layers), nn.Conv2d(4, 2, 1, bias=False), nn.BatchNorm2d(2))
    prepared = prepare_qat(model, inputs=torch.randn(2, 3, 4, 4))
    names = [name for name, _ in model.named_parameters()]
    assert [name for name, _ in prepared.named_parameters()] == names
    wrapped = nn.Sequential(prepared)
    assert [name for name, _ in wrapped.named_parameters()] == [f"0.{name}" for name in names]
    saved = prepared.state_dict()
    assert "0.1.weight" in saved
    assert "0.0.bn.weight" not in saved  # the same norm
