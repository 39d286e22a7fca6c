"""A layer computes with a weight that is an argument, float, in training, and quantized."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, fx, nn

from onnxq.pytorch.modules.parametrized_layer import ParametrizedLayer, weighted_layer
from onnxq.pytorch.nn import qat
from onnxq.qconfig import get_default_qat_qconfig

pytestmark = pytest.mark.oracle

LAYERS = [
    (nn.Linear(4, 5), (2, 4)),
    (nn.Linear(4, 5, bias=False), (2, 3, 4)),
    (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    (nn.Conv2d(4, 5, 3, padding="same", dilation=2), (2, 4, 6, 6)),
    (nn.ConvTranspose2d(4, 5, 3, stride=2, output_padding=1), (2, 4, 5, 5)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_the_result_is_the_layers(layer: nn.Module, shape: tuple[int, ...]) -> None:
    x, given = torch.randn(shape), ParametrizedLayer(copy.deepcopy(layer))
    weight, bias = layer.get_parameter("weight"), dict(layer.named_parameters()).get("bias")
    torch.testing.assert_close(given(x, weight, bias), layer(x), rtol=0, atol=0)
    assert not [*given.parameters()]


def trained() -> ParametrizedLayer:
    given = ParametrizedLayer(nn.Linear(4, 5))
    layer = given.with_parameters()
    layer.qconfig = get_default_qat_qconfig()  # type: ignore[assignment]  # modules take any attribute
    given.layer = qat.Linear.from_float(layer)
    given.clear_parameters()
    return given


def test_a_trained_layer_rounds_the_weight_where_it_is_used() -> None:
    given, weight = trained(), torch.randn(5, 4, requires_grad=True)
    y: Tensor = given(torch.eye(4), weight, torch.zeros(5))
    step = (weight.detach().abs().amax(1) / 127)[:, None]
    assert ((y.t() - weight).abs() <= 0.51 * step).all()
    assert not torch.equal(y.t(), weight)
    y.sum().backward()  # type: ignore[no-untyped-call]  # torch's
    assert weight.grad is not None
    assert [*copy.deepcopy(given).parameters()] == []


def test_a_layer_with_a_weight_of_its_own_reads_that_one() -> None:
    given = ParametrizedLayer(nn.Linear(4, 5, bias=False))
    given.set_parameters(torch.ones(5, 4), None)
    given.layer = given.with_parameters()
    assert given(torch.ones(1, 4), torch.zeros(5, 4)).tolist() == [[4.0] * 5]


def test_the_weighted_layer_of_a_node_is_found_in_either_form() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.given, self.act = (
                nn.Linear(4, 4),
                ParametrizedLayer(nn.Linear(4, 4)),
                nn.ReLU(),
            )
            self.w = nn.Parameter(torch.ones(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.given(self.act(self.own(x)), self.w)
            return y

    graph = fx.GraphModule(Net(), _Tracer().trace(Net()))
    found = {node.name: weighted_layer(graph, node) for node in graph.graph.nodes}
    assert found["own"] == ("own", graph.own)
    assert found["given"] is not None
    assert found["given"][0] == "given.layer"
    assert found["given"][1].get_parameter("weight").shape == (4, 4)
    assert found["act"] is None
    assert found["x"] is None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return True
