"""Quantized tensors are led to the nodes that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from onnxq.observers import HistogramObserver, MinMaxObserver
from onnxq.pytorch.insertion.operands import Operands
from onnxq.pytorch.insertion.tensors import Tensors, with_observer
from onnxq.qconfig import FakeQuantSpec
from tests.pytorch.insertion.viewed import small, viewed

if TYPE_CHECKING:
    from onnxq.pytorch.insertion.view import View

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def view() -> View:
    return small()


def test_tensors_are_annotated_where_they_are_computed_and_copies_where_they_are_copied(
    view: View,
) -> None:
    tensors = Tensors(view)
    assert not list(tensors.annotate())
    groups = {tuple(group.nodes): group for group in tensors.annotated_groups()}
    pooled = groups["adaptive_avg_pool2d_default", "mean"]
    assert pooled.sources == ("adaptive_avg_pool2d_default",)
    assert groups["relu",].clamp == (0.0, float("inf"))
    assert ("norm",) not in groups  # its ReLU's result is rounded, not its own


def test_what_pads_and_what_drops_is_looked_through(view: View) -> None:
    tensors = Tensors(view)
    list(tensors.annotate())
    nodes = {node.name: node for node in view.traced.graph.nodes}
    assert tensors.source(nodes["pad"]).name == "relu"
    assert tensors.source(nodes["dropout"]).name == "mean"


def test_a_constant_that_nothing_was_found_to_read_is_said(view: View) -> None:
    tensors = Tensors(view)
    list(tensors.annotate())
    (left,) = tensors.annotate_rows()  # of nodes that were not gone through
    assert (left.name, left.nodes) == ("place", ("node_add_36",))
    assert "no node that reads this constant" in left.reason


class Lookup(nn.Module):
    """Rows of a table of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 8)
        self.fc = nn.Linear(8, 4)

    def forward(self, ids: Tensor) -> Tensor:
        """(N, 4) of each row."""
        y: Tensor = self.fc(self.table(ids))
        return y


def test_an_embedding_is_rounded_by_the_rows_that_are_looked_up() -> None:
    view = viewed(Lookup().eval(), torch.randint(0, 16, (2, 5)))
    tensors = Tensors(view)
    operands = Operands(view, tensors)
    assert not [*tensors.annotate(), *operands.annotate(), *tensors.annotate_rows()]
    groups = [group for group in tensors.annotated_groups() if "table" in group.nodes]
    assert [group.sources for group in groups] == [("table",)]


class Recurrent(nn.Module):
    """Steps of an LSTM, whose result ONNX has in another order of axes."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, 3)."""
        y, _ = self.lstm(x)
        z: Tensor = self.fc(y)
        return z


def test_a_tensor_that_the_module_has_transposed_alone_is_rounded_there() -> None:
    view = viewed(Recurrent().eval(), torch.randn(2, 5, 4))
    tensors = Tensors(view)
    operands = Operands(view, tensors)
    assert not [*tensors.annotate(), *operands.annotate(), *tensors.annotate_rows()]
    assert all(group.sources for group in tensors.annotated_groups())


def test_a_part_keeps_rounding_with_another_observer() -> None:
    spec = FakeQuantSpec(MinMaxObserver.with_args())
    other = HistogramObserver.with_args()
    assert with_observer(spec, other) == FakeQuantSpec(other)
    assert with_observer(spec.observer, other) == other
