"""Values of the ONNX form lead to nodes of the training graph by recorded names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import fx, nn

from onnxq.pytorch.insertion.view import Names, is_tensor
from tests.pytorch.insertion.viewed import small

if TYPE_CHECKING:
    from onnxq.pytorch.insertion.view import View

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def view() -> View:
    return small()


def node(view: View, name: str) -> fx.Node:
    found: fx.Node = next(node for node in view.traced.graph.nodes if node.name == name)
    return found


def test_a_value_leads_to_the_node_that_computes_it_and_to_its_copies(view: View) -> None:
    names = [each.name for each in view.names.nodes(view.values["view"])]
    assert names == ["mean", "dropout"]


def test_a_folded_norm_is_led_to_its_own_node(view: View) -> None:
    assert [each.name for each in view.names.nodes(view.values["getitem"])] == ["norm"]


def test_dropout_copies_and_a_relu_does_not(view: View) -> None:
    assert view.names.is_copy(node(view, "dropout"))
    assert not view.names.is_copy(node(view, "relu"))


def test_padding_with_zeros_is_told(view: View) -> None:
    assert view.names.is_zero_padding(node(view, "pad"))
    assert not view.names.is_zero_padding(node(view, "mean"))


def test_products_of_parameters_are_of_parameters_and_what_reads_an_input_is_not(
    view: View,
) -> None:
    assert all(view.names.is_of_parameters(node(view, name)) for name in ("a", "t", "matmul"))
    assert not any(view.names.is_of_parameters(node(view, name)) for name in ("x", "add", "fc"))


def test_a_long_chain_of_doublings_is_walked_once() -> None:
    graph = fx.Graph()
    made = graph.get_attr("w")
    for _ in range(3000):  # a recursion ends at 1000; 2^3000 paths lead to w
        made = graph.call_function(torch.add, (made, made))
    graph.output(made)
    root = nn.Module()
    root.w = nn.Parameter(torch.ones(1))
    traced, program = fx.GraphModule(root, graph), SimpleNamespace(graph=fx.Graph())
    names = Names(traced, cast("Any", program))
    assert all(map(names.is_of_parameters, list(traced.graph.nodes)[:-1]))


def test_a_guard_gives_no_tensor(view: View) -> None:
    assert not is_tensor(node(view, "shape_guard"))
    assert is_tensor(node(view, "conv"))
