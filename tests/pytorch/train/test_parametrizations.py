"""Conversion makes integers of a weight as the model computes it then."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import onnxq
from onnxq.pytorch import annotate, convert, export, prepare_qat
from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph
from onnxq.pytorch.train.parametrizations import materialize_weights, remove_parametrizations
from onnxq.qconfig import QConfigMapping, get_default_qat_qconfig

pytestmark = pytest.mark.oracle


class Computed(nn.Module):
    """A normed weight, a bare one, and one that is a product."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = parametrizations.weight_norm(nn.Linear(4, 4))
        self.bare = nn.Parameter(torch.randn(4, 3))
        self.down, self.up = nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        y = self.normed(x) @ self.bare
        z: Tensor = y @ (torch.eye(3) + self.up @ self.down)
        return z


def test_weights_are_those_of_the_parameters_now() -> None:
    model = Computed()
    graph = training_graph(copy.deepcopy(model), program_of(model, torch.randn(2, 4)))
    calls = {name: m for name, m in graph.named_modules() if isinstance(m, ParametrizedLayer)}
    assert len(calls) == 3
    with torch.no_grad():
        graph.get_parameter("bare").zero_()
    materialize_weights(graph.train())
    weights = {name: call.layer.weight for name, call in calls.items()}
    normed, bare, product = weights.values()
    torch.testing.assert_close(normed, model.normed.weight)
    assert isinstance(bare, Tensor)
    assert not bare.any()
    torch.testing.assert_close(product, (torch.eye(3) + model.up @ model.down).detach().t())
    assert graph.training


def test_a_quantized_layer_needs_no_computation() -> None:
    model = Computed()
    graph = training_graph(copy.deepcopy(model), program_of(model, torch.randn(2, 4)))
    for _, call in list(graph.named_modules()):
        if isinstance(call, ParametrizedLayer):
            call.layer = nn.Identity()
    remove_parametrizations(graph)
    assert "get_attr" not in {node.op for node in graph.graph.nodes}
    assert graph(torch.ones(2, 4)).tolist() == torch.ones(2, 4).tolist()


class Held(nn.Module):
    """A weight that is a buffer, in a model without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.held: Tensor
        self.register_buffer("held", torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        return torch.relu(x @ self.held)


def test_a_model_without_parameters_has_weights_too() -> None:
    model, x = Held(), torch.randn(5, 4)
    converted = convert(prepare_qat(model, inputs=x).eval())
    # 8 bits of weights, 7 of activations: a hundredth of the largest value is a step or two
    torch.testing.assert_close(converted(x), model(x), rtol=0, atol=0.05 * float(model(x).max()))


class Twice(nn.Module):
    """A layer that is called twice; between the calls, a norm that stays float."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y = self.layer(x) * 2.0
        z: Tensor = self.norm(y + self.layer(y))
        return z


@pytest.mark.parametrize("left", ["first", "second"])
def test_a_layer_that_is_float_in_one_call_holds_the_numbers_of_its_weight(left: str) -> None:
    torch.manual_seed(0)
    model, x = Twice(), torch.randn(8, 4)
    nodes = [weight.exported for weight in annotate(model, x).weights]
    mapping = QConfigMapping(get_default_qat_qconfig())
    mapping = mapping.set_node(nodes[0 if left == "first" else -1], None)
    prepared = prepare_qat(model, inputs=x, qconfig=mapping).eval()
    with torch.no_grad():
        wanted = prepared(x)
    torch.testing.assert_close(convert(prepared)(x), wanted)


class OfParameters(nn.Module):
    """A layer of the input and of a parameter, as DeBERTa projects words and distances."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.distances = nn.Linear(4, 4), nn.Parameter(torch.randn(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 8)."""
        y: Tensor = self.layer(x) @ self.layer(self.distances.relu()).t()
        return y


def test_a_layer_that_is_called_on_parameters_too_keeps_its_float_weight_for_them() -> None:
    torch.manual_seed(0)
    model, x = OfParameters(), torch.randn(8, 4)
    prepared = prepare_qat(model, inputs=x).eval()
    with torch.no_grad():
        wanted = prepared(x)
    converted = convert(prepared)
    torch.testing.assert_close(converted(x), wanted)
    assert onnxq.cross_check(export(converted, x), onnxq.Samples([{"x": x.numpy()}], 8)).exact
