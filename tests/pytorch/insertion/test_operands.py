"""Operands of quantized nodes are those that the training graph's nodes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.insertion.operands import Operands, module_of
from onnxq.pytorch.insertion.tensors import Tensors
from tests.pytorch.insertion.viewed import small, viewed

if TYPE_CHECKING:
    from onnxq.pytorch.insertion.view import View

pytestmark = pytest.mark.oracle


def annotated(view: View) -> tuple[Tensors, Operands, list[str]]:
    tensors = Tensors(view)
    operands = Operands(view, tensors)
    said = [*tensors.annotate(), *operands.annotate(), *tensors.annotate_rows()]
    return tensors, operands, [each.reason for each in said]


def test_weights_are_those_of_layers_norms_folded_and_of_what_is_given_one() -> None:
    _, operands, said = annotated(small())
    assert not said
    found = [(weight.path, weight.norm) for weight in operands.weights]
    assert found == [("conv", "norm"), ("second", None), ("fc", None), ("matmul_1.layer", None)]


def test_a_constant_is_annotated_by_the_node_that_reads_it() -> None:
    tensors, _, _ = annotated(small())
    assert {"place"} in [set(group.nodes) for group in tensors.annotated_groups()]


class Scaled(nn.Module):
    """A number among the arguments, and a layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y: Tensor = self.fc(self.act(self.fc(x)) * 0.3)
        return y


@pytest.fixture(scope="module")
def scaled() -> View:
    torch.manual_seed(0)
    return viewed(Scaled().eval(), torch.randn(3, 4))


def test_a_number_is_an_operand_at_its_position(scaled: View) -> None:
    tensors, _, said = annotated(scaled)
    assert not said
    numbers = [number for group in tensors.annotated_groups() for number in group.numbers]
    assert [(node, position) for node, position, _, _ in numbers] == [("mul", 1)]
    assert numbers[0][3] == pytest.approx(0.3)


def test_each_call_of_a_layer_has_a_weight_of_its_own(scaled: View) -> None:
    _, operands, _ = annotated(scaled)
    assert len({weight.node for weight in operands.weights}) == 2
    assert len({weight.exported for weight in operands.weights}) == 2


def test_a_function_calls_no_module(scaled: View) -> None:
    nodes = {node.name: node for node in scaled.traced.graph.nodes}
    assert module_of(scaled.traced, nodes["mul"]) is None
    assert isinstance(module_of(scaled.traced, nodes["act"]), nn.ReLU)


class Pooled(nn.Module):
    """One token of each row, as CLIP's text tower takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, 8) -> (N, 4)."""
        y = self.fc(x)
        scores: Tensor = self.head(y[torch.arange(y.shape[0]), x.sum(-1).argmax(-1)])
        return scores


def test_a_token_that_is_looked_up_by_its_index_is_annotated() -> None:
    tensors, operands, said = annotated(viewed(Pooled(), torch.randn(2, 5, 8)))
    assert not said
    assert len(operands.weights) == 2
    assert any("index" in group.nodes for group in tensors.annotated_groups())


class Bilinear(nn.Module):
    """An operator of torch that is several in ONNX."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Bilinear(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) -> (N, 3)."""
        y: Tensor = self.product(x, x)
        return y


def test_the_reason_for_several_nodes_of_one_step_names_the_step() -> None:
    _, _, said = annotated(viewed(Bilinear(), torch.randn(2, 4)))
    wanted = "it lies inside 'aten.bilinear.default', which is one step of forward"
    assert len(said) > 3
    assert all(reason.startswith(wanted) for reason in said)
