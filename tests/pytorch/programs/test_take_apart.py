"""Functions that a program has as several nodes: they compute what the one function did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.pytorch.programs.take_apart import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = torch.export.Dim.DYNAMIC
X = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[True, False, True, True, False]] * 5)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """The function's result."""
        return self.function(x)


def attention(**options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: functional.scaled_dot_product_attention(x, x + 1, x * 2, **options)


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "mish": functional.mish,
    "glu": functional.glu,
    "glu of channels": lambda x: functional.glu(x, 1),
    "mean": lambda x: x.mean((2, 3)),
    "mean that keeps its axes": lambda x: x.mean((-1, -2), keepdim=True),
    "attention": attention(),
    "causal attention": attention(is_causal=True),
    "attention with a scale": attention(scale=0.3),
    "attention with a negative scale": attention(scale=-0.3),
    "masked attention": attention(attn_mask=MASK),
    "attention with a summand": attention(attn_mask=torch.eye(5)),
    "grouped queries": lambda x: functional.scaled_dot_product_attention(
        x, x[:, :2], x[:, 2:], enable_gqa=True
    ),
}
# sums in another order, of 6 products and 30 means at most
TOLERANCE = 32 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("case", CASES)
def test_the_nodes_compute_what_the_function_did(case: str) -> None:
    function = CASES[case]
    program = torch.export.export(Call(function), (X,), dynamic_shapes=({0: BATCH},))
    before = {node.target for node in program.graph.nodes}
    take_apart(program)
    after = {node.target for node in program.graph.nodes}
    assert after - before, "it was one node"
    x = torch.cat([X, X + 0.5, -X])  # another batch than the one that was exported
    wanted = function(x)
    assert torch.allclose(program.module()(x), wanted, rtol=TOLERANCE, atol=TOLERANCE)
    for node in program.graph.nodes:
        if node.op == "call_function":
            assert "val" in node.meta


def test_the_last_node_keeps_the_name_of_the_function() -> None:
    program = torch.export.export(Call(functional.silu), (X,))
    take_apart(program)
    names = [node.name for node in program.graph.nodes if node.op == "call_function"]
    assert names == ["sigmoid_default", "silu"]


def test_a_scale_of_one_is_no_product() -> None:
    program = torch.export.export(Call(attention(scale=1.0)), (X,))
    take_apart(program)
    targets = [node.target for node in program.graph.nodes]
    assert targets.count(torch.ops.aten.mul.Tensor) == 1  # x * 2


def test_dropout_of_attention_weights_becomes_a_node_that_training_turns_on() -> None:
    program = torch.export.export(Call(attention()), (X,))
    graph = program.graph_module.graph
    aten = torch.ops.aten
    (node,) = [n for n in graph.nodes if n.target is aten.scaled_dot_product_attention.default]
    node.kwargs = {"dropout_p": 0.25}
    take_apart(program)
    (dropout,) = [n for n in graph.nodes if n.target is aten.dropout.default]
    assert dropout.args[1:] == (0.25, False)
