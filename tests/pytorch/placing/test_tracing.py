"""trace: a module as a graph in which weights belong to modules that are called once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.placing.tracing import trace

if TYPE_CHECKING:
    from torch import fx


class Rules(nn.Module):
    """One of everything that tracing rewrites."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.matrix = nn.Parameter(torch.randn(4, 4))
        self.twice = nn.Conv2d(4, 4, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor, scale: float = 2.0, mask: Tensor | None = None) -> Tensor:
        """(N, 4)."""
        if mask is not None:
            x = x * mask
        x = functional.conv2d(x, self.kernel, None, 1, 1)
        x = self.twice(self.act(self.twice(x)))
        x += scale
        x = functional.dropout(x, 0.5, self.training).mean((-2, -1))
        return functional.linear(x, self.matrix)


def traced() -> tuple[Rules, fx.GraphModule, Tensor]:
    torch.manual_seed(0)
    model, x = Rules(), torch.randn(2, 3, 6, 6)
    return model, trace(model, bind(model, x)), x


def test_the_graph_computes_what_the_module_computes() -> None:
    model, graph, x = traced()
    assert torch.allclose(graph(x), model.eval()(x), atol=1e-6)


def test_weights_belong_to_modules_that_are_called_once() -> None:
    _, graph, _ = traced()
    called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
    assert len(called) == len(set(called))
    assert not [n for n in graph.graph.nodes if n.op == "get_attr"]
    kinds = [type(graph.get_submodule(str(name))) for name in called]
    assert kinds.count(nn.Conv2d) == 3
    assert kinds.count(nn.Linear) == 1


def test_parameters_are_the_modules_own() -> None:
    model, graph, _ = traced()
    own = {id(p) for p in model.parameters()}
    assert {id(p) for p in graph.parameters()} == own


def test_dropout_is_on_in_train_mode_alone() -> None:
    _, graph, x = traced()
    graph.train()
    assert not torch.equal(graph(x), graph(x))
    graph.eval()
    assert torch.equal(graph(x), graph(x))


def test_nothing_works_in_place() -> None:
    _, graph, x = traced()
    before = x.clone()
    graph(x)
    assert torch.equal(x, before)
    names = [str(n.target) for n in graph.graph.nodes]
    assert not [name for name in names if "iadd" in name]
    modules: list[Any] = list(graph.modules())
    assert not any(getattr(m, "inplace", False) for m in modules)


def test_inputs_that_forward_does_not_take_are_refused() -> None:
    model = Rules()
    with pytest.raises(ModelError, match="fails on example inputs"):
        trace(model, bind(model, torch.randn(2, 5, 6, 6)))


class Masked(nn.Module):
    """Attention whose mask is made of the length of the sequence."""

    def forward(self, x: Tensor) -> Tensor:
        """As x, (N, T, C)."""
        _, length, channels = x.shape
        later = ~torch.ones(length, length, dtype=torch.bool).tril()
        scores = (x @ x.transpose(1, 2)).masked_fill(later, float("-inf"))
        return scores.softmax(-1) @ x + torch.full((length, channels), 0.5)


def test_tensors_made_of_sizes_are_traced_with_their_sizes() -> None:
    model, x, longer = Masked(), torch.randn(2, 5, 4), torch.randn(2, 9, 4)
    graph = trace(model, bind(model, x))
    assert torch.equal(graph(longer), model(longer))
    assert not hasattr(torch.ones, "__wrapped__")  # as it was


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(8, 2, batch_first=True), nn.LSTM(8, 4)])
def test_a_layer_by_itself_is_asked_for_in_a_module(layer: nn.Module) -> None:
    x = torch.zeros(2, 3, 8)
    given = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else x
    with pytest.raises(UnsupportedError, match="by itself cannot be traced"):
        prepare_qat(layer, inputs=given)
